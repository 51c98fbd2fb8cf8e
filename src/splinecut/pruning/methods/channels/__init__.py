"""Methods that remove channels: groups of units that leave together, so that the network becomes smaller.

A method that needs more than one module has a package of its own. Methods that set single weights to zero are in
`weights`; distances between cuts are in `geometry.cuts`.
"""
