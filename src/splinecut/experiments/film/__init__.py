"""Partitions of one network recorded during training and pruning, for the report.

`snapshots` keeps weights during training, `window` chooses where to look, `build` turns partitions into frames,
`frames` is their file, read without torch. Does not belong here: computing partitions (`geometry`) and drawing them
(`report`).
"""
