"""Random generators from integer keys, so that randomness is a function of position and needs no saved state."""

from __future__ import annotations

import numpy as np
import torch


def generator(*key: int) -> torch.Generator:
    """A generator whose stream is set by all of `key`; keys of different length do not collide."""
    state = np.random.SeedSequence([len(key), *key]).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state >> np.uint64(1)))  # manual_seed takes 63 bits
