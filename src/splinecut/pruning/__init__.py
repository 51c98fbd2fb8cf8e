"""When to prune, what to prune, and the tickets between."""
