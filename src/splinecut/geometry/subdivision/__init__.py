"""The algorithm behind `geometry.partition.subdivide`: polygons split layer by layer, in blocks that share vertices.

Ragged polygon sets, signs and crossings, the splitting kernels, affine maps and point location. What is asked of a
finished partition (boundary, certificate, plots) is in `geometry`.
"""
