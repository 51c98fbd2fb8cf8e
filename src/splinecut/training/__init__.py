"""Training with hooks, cost accounting and exact resumption.

The loop, its hooks and checkpoints, the ledger that costs are charged to, configurations, devices and data sets.
Belongs here: what any training needs. Does not: scores, budgets or tickets; nothing here imports `splinecut.pruning`.
"""
