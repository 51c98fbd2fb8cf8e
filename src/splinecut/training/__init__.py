"""Training that can be watched, charged and resumed; it imports nothing of pruning."""
