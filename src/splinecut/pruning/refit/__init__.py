"""Weights and batch-norm statistics adjusted after units leave, so that the next layers receive what they did before.

Here: the two refits of `sc.cut` (`fold` without data, `least_squares` on a probe), the statistics of batch norms, and
the error that a refit would leave, measured on held-out inputs. Not here: which units leave (`pruning.methods`), and
how tensors are cut (`networks.surgery`).
"""
