"""Many runs of one recipe: which runs, in which order, in which processes, and what they cost.

A run itself is `experiments.runner`'s; nothing here knows about networks or data.
"""
