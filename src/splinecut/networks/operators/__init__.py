"""What every aten operator is to geometry and to channel groups: one table, `table.OPERATORS`.

Readers (operator call -> affine, fold or maximum) and index windows belong here. How operators couple channels is in
`networks.groups.rules`; walking a program is `networks.trace` and `networks.groups.label_pass`.
"""
