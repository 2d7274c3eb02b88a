"""Ray Tune with Reef's algorithms: `from reef import tune` in place of `from ray import tune`.

`run` and `Tuner` also take algorithms of Reef and their configurations. All else is Ray's own.
"""

from __future__ import annotations

from typing import Any

from ray import tune as _ray_tune

from reef.tune.python import Analysis, Tuner, run, trainable

__all__ = ["Analysis", "Tuner", "run", "trainable"]


def __getattr__(name: str) -> Any:
    return getattr(_ray_tune, name)
