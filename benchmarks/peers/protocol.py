"""What every peer script shares: arguments, the timed part, the answer. Standard library only."""

from __future__ import annotations

import importlib.metadata
import json
import sys
import time
from collections.abc import Callable
from typing import Any


def arguments() -> dict[str, Any]:
    """Return the JSON object given as the first argument."""
    parsed: dict[str, Any] = json.loads(sys.argv[1])
    return parsed


def measure(iteration: Callable[[], int], seconds: float, warmup: int = 1) -> dict[str, Any]:
    """Run `iteration` (returns the environment steps it trained on) `warmup` times, then until `seconds` have passed.

    Start-up and the warm-up iterations are not timed. `first_iteration_at` is the Unix time at the end of the first.
    """
    iteration()
    first_iteration_at = time.time()
    for _ in range(warmup - 1):
        iteration()
    steps, elapsed, start = 0, 0.0, time.perf_counter()
    while elapsed < seconds:
        steps += iteration()
        elapsed = time.perf_counter() - start
    return {"steps": steps, "seconds": elapsed, "first_iteration_at": first_iteration_at}


def learning(model: Any, steps: int) -> Callable[[], int]:
    """Return an iteration of a model of Stable-Baselines3: about `steps` environment steps, and training on them."""

    def iteration() -> int:
        before: int = model.num_timesteps
        model.learn(steps, reset_num_timesteps=False)
        trained: int = model.num_timesteps - before
        return trained

    return iteration


def answer(result: dict[str, Any], *packages: str) -> None:
    """Print the one JSON line, with the versions of `packages`."""
    print(json.dumps({**result, "versions": {package: version(package) for package in packages}}), flush=True)


def version(package: str) -> str:
    """Return the installed version of a package."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "source tree"
