"""Weights and batch-norm statistics adjusted after a cut, and errors measured on held-out inputs."""
