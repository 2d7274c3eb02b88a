"""The seam between a run and what shows its results."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reef.run.metrics import Result
from reef.run.stopping import StopConditions


@dataclass(frozen=True, slots=True, kw_only=True)
class Applications:
    """What applications have at the policy server of this process."""

    open_episodes: int  # whose actions the server chooses; those of clients with "local" are not among them
    queued_steps: int  # that wait to be learned from
    refused: Mapping[int, int]  # requests that were refused, by the status of the answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What reporters know before the first result."""

    folder: Path  # may not exist yet: the first writer makes it
    algorithm: str
    environment: str
    config: dict[str, Any]
    stop: StopConditions
    restored_iteration: int = 0  # results after this one are from a life that is continued, and are done again
    restored_timesteps: int = 0
    worker_problem: Callable[[], str] = lambda: ""  # of one that has failed and not sampled since; from any thread
    applications: Callable[[], Applications | None] = lambda: None  # None: none play here; from any thread
    sweep: str | None = None  # of a trial: the name of its sweep's folder

    @property
    def full_name(self) -> str:
        """The name of the run's folder, with that of its sweep: trials of all sweeps are called trial_0001, ..."""
        return f"{self.sweep}_{self.folder.name}" if self.sweep else self.folder.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """How a run ended."""

    folder: Path
    checkpoint: Path | None  # the newest, if any was written
    result: Result | None  # the last one
    exit_code: int
    reason: str  # "episode_reward_mean 451.2 >= 450", "SIGTERM"
    picture: Path | None = None
    uri: str | None = None  # where the folder is kept, when it is in an object store too


class Reporter(ABC):
    """Shows the results of one run; its methods are called in this order, in the driver's thread, and never wait."""

    run: Run

    def start(self, run: Run) -> None:
        """Before the first iteration. Nothing may be written to disk yet: the first iteration can still fail."""
        self.run = run

    @abstractmethod
    def report(self, result: Result) -> None:
        """After each iteration."""

    def finish(self, summary: Summary | None) -> None:  # noqa: B027 (most have nothing to do)
        """At the end; `None` when the run failed with an error."""


def flatten(result: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Name and value of everything but lists and the configuration: ("evaluation/episode_reward_mean", 20.0)."""
    for key, value in result.items():
        if isinstance(value, Mapping):
            if key not in ("config", "hist_stats"):
                yield from flatten(value, f"{prefix}{key}/")
        elif not isinstance(value, list):
            yield prefix + key, value


def numbers_in(result: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Name and value of every finite number of a result, named as by `flatten`."""
    for name, value in flatten(result):
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            yield name, value


def single_settings(settings: Mapping[str, Any], group: str = "") -> Iterator[tuple[str, Any]]:
    """Name and value of every setting, those of groups as "model.fcnet_hiddens"."""
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from single_settings(value, f"{group}{key}.")
        else:
            yield group + key, value
