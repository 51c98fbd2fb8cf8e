"""Exact geometry of piecewise-affine networks in float64: regions, boundaries, codes, cuts, pieces along lines.

Everything here takes a `Graph`, a traced network as a value. Modules, tracing and training do not belong here: nothing
in it imports `splinecut.networks`.
"""
