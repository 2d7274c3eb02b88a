"""Replayed transitions for the tests of algorithms with continuous actions."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from reef.batch import Transitions

OBS, ACTIONS = spaces.Box(-1, 1, (2,)), spaces.Box(-3.0, 5.0, (1,))


def batch(rows: int = 4, **extras: Any) -> Transitions:
    """Reward 1, discount 0.5; the last row terminates, the one before is truncated."""
    rng = np.random.default_rng(0)
    obs, none = rng.standard_normal((rows, 2), np.float32), np.zeros(rows, np.bool_)
    last, cut = none.copy(), none.copy()
    last[-1], cut[-2] = True, True
    actions = rng.uniform(-1, 1, (rows, 1)).astype(np.float32)
    discounts = np.full(rows, 0.5, np.float32)
    return Transitions(obs, actions, np.ones(rows, np.float32), obs, last, cut, {"discounts": discounts} | extras)
