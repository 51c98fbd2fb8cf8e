"""Networks as values: models by name, their traced graph, and what they cost."""
