"""Networks as data: exported programs, traced graphs, channel groups, cost, and changes of size.

What can be said or done about any `nn.Module` belongs here, with the models of the package. Geometry knows nothing of
modules and lies below; training and criteria of pruning lie above and are never imported.
"""
