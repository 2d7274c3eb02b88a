"""The steps of a recorded episode: mappings as JSON has them, or columns of arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np

from reef.types import Array

NUMBER = "episode"  # the column of Parquet with the number of a step's episode
STEP_KEYS = ("obs", "action", "next_obs", "reward", "terminated", "truncated", "info")
# Of a step, where they are known: how likely its action was, and the action before it was brought into its bounds.
ACTION_LOGP, CHOSEN = "action_logp", "policy_action"
ACTION_PROB, TIME = "action_prob", "t"  # other files may have them: the likelihood itself, and when the step was
NO_SUCCESSOR = "its last step has no successor, as the recording ends there and has no new_obs"
MIB = 1024 * 1024
EPISODE_BYTES = 4096 * MIB  # that an episode may take in memory

Steps = list[dict[str, Any]]
Column = Array | list[Any]  # an item for each step
# Where an episode is, and a function that returns its steps or raises a ValueError that says what is wrong.
Found = tuple[str, Callable[[], Any]]


class ColumnSteps(Sequence[Mapping[str, Any]]):
    """Steps as columns of one length; an item is a step as JSON has it, without the likelihoods that it has not."""

    def __init__(self, columns: Mapping[str, Column]) -> None:
        """`columns`: by the keys of a step."""
        self.columns = columns

    def between(self, start: int, end: int) -> ColumnSteps:
        """Some of the steps."""
        return ColumnSteps({key: column[start:end] for key, column in self.columns.items()})

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, index: Any) -> Any:
        step = {key: _plain(column[index]) for key, column in self.columns.items()}
        return {key: value for key, value in step.items() if value is not None or key not in (ACTION_LOGP, CHOSEN)}


@dataclass(frozen=True)
class EpisodeGroup:
    """Whole episodes that were read together from one file: each begins with the row behind the one before."""

    file: str
    numbers: Sequence[Any]  # [E]
    bounds: Sequence[int]  # [E + 1] of the rows of each
    steps: ColumnSteps  # of all

    def each(self) -> Iterator[Found]:
        """The episodes one by one."""
        for number, (start, end) in zip(self.numbers, pairwise(self.bounds), strict=True):
            yield f"{self.file}, episode {number}", partial(self.steps.between, start, end)


Recorded = Found | EpisodeGroup


def one_by_one(recorded: Iterable[Recorded]) -> Iterator[Found]:
    """The episodes of groups, and those that were read alone."""
    for found in recorded:
        yield from found.each() if isinstance(found, EpisodeGroup) else (found,)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def column(steps: Steps | ColumnSteps, key: str) -> Column:
    """The values of a key, one for each step; KeyError for a step that does not have it."""
    return steps.columns[key] if isinstance(steps, ColumnSteps) else [step[key] for step in steps]


def optional_column(steps: Steps | ColumnSteps, key: str) -> Column | None:
    """As `column`; None unless each step has a value."""
    if isinstance(steps, ColumnSteps):
        values: Column = steps.columns.get(key, [None])
    else:
        values = [step.get(key) for step in steps]
    return None if isinstance(values, list) and any(value is None for value in values) else values


def with_successors(columns: Mapping[str, Column]) -> dict[str, Column]:
    """Columns with `next_obs`: the observation of the next row, or of the last row its own one, if it terminated.

    A last row that did not terminate has no successor and is left out; ValueError where it is the only one. It stays
    where a row before it ended the episode, which is then refused as any other that goes on after its end.
    """
    obs, truncated = columns["obs"], columns.get("truncated", [])
    ended = bool(np.any(columns["terminated"])) or bool(np.any(truncated[:-1]))
    if not ended and len(obs) == 1:
        refuse(NO_SUCCESSOR)
    kept = {key: values if ended else values[:-1] for key, values in columns.items()}
    if isinstance(obs, np.ndarray):
        return kept | {"next_obs": np.concatenate([obs[1:], obs[-1:]]) if ended else obs[1:]}
    return kept | {"next_obs": obs[1:] + (obs[-1:] if ended else [])}


def wrong_step(error: Exception) -> str:
    """What is wrong with the steps of an episode."""
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def refuse(reason: str) -> NoReturn:
    """Raise a ValueError."""
    raise ValueError(reason)


class LeftOut:
    """What cannot be read: how much it is, and the first few reasons."""

    SHOWN = 3

    def __init__(self) -> None:
        self.count = 0
        self.reasons: list[str] = []

    def add(self, place: str, reason: str) -> None:
        """Count one more; only the first reasons are kept, as there may be millions."""
        self.count += 1
        if len(self.reasons) < self.SHOWN:
            self.reasons.append(f"{place}: {reason}")

    def lines(self) -> Iterator[str]:
        """The reasons, and how many more there are."""
        yield from self.reasons
        if self.count > len(self.reasons):
            yield f"{self.count - len(self.reasons)} more"
