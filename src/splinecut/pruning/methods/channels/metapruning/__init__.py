"""MetaPruning (Liu et al. 2019): widths searched with weights that a hyper-network generates.

`method` is the method and its evolutionary search, `pruning_net` the network with generated weights and its training
hook.
"""
