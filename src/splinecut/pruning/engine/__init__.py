"""How a method is run: training, searching, cutting and retraining, with checkpoints and a ledger."""
