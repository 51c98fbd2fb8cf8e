"""Pruning of trained networks without training and without labels: networks, rows, measures, cells, summary, figure.

`python -m benchmarks.oneshot` runs it.
"""
