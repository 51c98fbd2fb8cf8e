"""Whether a criterion chooses better than chance, method by method."""
