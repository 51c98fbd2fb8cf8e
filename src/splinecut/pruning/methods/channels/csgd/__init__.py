"""Centripetal SGD (Ding et al. 2019): filters of a cluster are trained until they are equal, then merged.

`method` is the method and its training hook, `clusters` finds, averages and merges clusters of units.
"""
