"""Splits"""
import numpy as np
def window_sizes(terms,windows): return None
def split(*a): return None
