"""Exact partitions recorded during training and pruning: snapshots of weights, the window, frames and their file."""
