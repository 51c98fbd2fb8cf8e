"""The pruning methods, and the catalogue that names them.

One module or package a method: its hyper-parameters, its formula, and the steps in which it differs from the others.
What several methods share is in `pruning` (values, activations, unit parameters), how they are run in `pruning.engine`.
"""
