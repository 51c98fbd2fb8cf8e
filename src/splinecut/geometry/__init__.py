"""Pure mathematics of max-affine splines in float64: partitions, boundaries, cuts, codes. Knows nothing of pruning."""
