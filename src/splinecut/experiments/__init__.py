"""Experiments: a recipe becomes a run folder with a record, and records become rows over seeds.

Here belong the typed spec, the plan, the runner and what reads records; `sweep/` has many runs, `film/` partitions
recorded during one. How a network is trained or pruned belongs in `training` and `pruning`, how it is shown in
`report` and `cli`.
"""
