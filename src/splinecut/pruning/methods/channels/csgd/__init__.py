"""Centripetal SGD: filters of a cluster are trained to become equal, then merged."""
