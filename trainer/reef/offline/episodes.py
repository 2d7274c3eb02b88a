"""Recorded episodes, as `reef evaluate --out` writes them, read as rollouts of one column."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from reef.batch import Rollout
from reef.envs.wrappers import ActionTransform, RewardTransform
from reef.errors import ConfigError
from reef.offline.parquet_reader import Names
from reef.offline.steps import (
    ACTION_LOGP,
    ACTION_PROB,
    CHOSEN,
    TIME,
    Column,
    ColumnSteps,
    EpisodeGroup,
    LeftOut,
    Recorded,
    Steps,
    column,
    one_by_one,
    optional_column,
    wrong_step,
)
from reef.offline.stored_files import RecordedFile, recorded_in_all
from reef.spaces import Layout
from reef.types import Array

log = logging.getLogger(__name__)
KEYS = ("obs", "action", "next_obs", "reward", "terminated", "truncated", TIME)
OF_ESTIMATES = (ACTION_LOGP, ACTION_PROB, CHOSEN)
WRONG = (ValueError, TypeError, KeyError, IndexError, OverflowError)
NUMBERS = "biuf"  # the kinds of arrays that hold them


class EpisodeReader:
    """Reads the episodes of one policy's spaces."""

    def __init__(
        self,
        observations: Layout,
        actions: Layout,
        action_transform: ActionTransform | None,
        reward_transform: RewardTransform,
        excludes: Callable[[Array, Array], Array] | None = None,
        *,
        chosen: bool = False,
        names: Names | None = None,
    ) -> None:
        """The transforms are those of sampling, as files hold what the environment got and gave.

        `action_transform`: None if the recorded actions are those that a policy chose. `excludes`: of observations
        [T, 1, *obs] and actions [T, 1, *action] the steps [T, 1] whose action a mask excludes; None: no mask.
        `chosen`: read actions as they were before they were clipped to their bounds, where that is recorded, and how
        likely they were. `names`: of the columns in Parquet that others wrote.
        """
        self._chosen, self._names = chosen, names
        self._observations, self._actions = observations, actions
        self._action_transform, self._reward_transform = action_transform, reward_transform
        self._excludes = excludes
        self._told = False  # of what is left out, the first time that it is read

    def read(self, files: Sequence[RecordedFile]) -> Iterator[Rollout]:
        """The episodes of files, [T, 1] of one or of several, to estimate of one.

        What is no episode of these spaces is left out, and named.

        Raises:
            ConfigError: a file cannot be read, or none of the episodes is one of these spaces.
            StorageError: an object store refuses, or does not answer.
        """
        keys = (*KEYS, *(OF_ESTIMATES if self._chosen else ()))
        recorded = recorded_in_all(files, keys, self._names)
        return self.checked(recorded, ", ".join(map(str, files)), "Every file is empty.")

    def checked(self, recorded: Iterable[Recorded], where: str, if_none: str) -> Iterator[Rollout]:
        """As `read`, of episodes that were found `where`."""
        is_empty, wrong = True, LeftOut()
        for found in recorded:
            for episodes in self._rollouts(found, wrong):
                is_empty = False
                yield episodes
        if is_empty:
            reason = f"{wrong.reasons[0]}." if wrong.count else if_none
            more = f" {wrong.count} are left out." if wrong.count > 1 else ""
            raise ConfigError(f"input_: no episode can be read from {where}. {reason}{more}")
        if not self._told:
            for text in wrong.lines():
                log.warning("left out of the recorded episodes: %s", text)
        self._told = True

    def _rollouts(self, found: Recorded, wrong: LeftOut) -> Iterator[Rollout]:
        """A group is checked together, once; if any episode of it is wrong, each is checked for itself."""
        if isinstance(found, EpisodeGroup) and (episodes := self._together(found)) is not None:
            yield episodes
            return
        for place, read in one_by_one([found]):
            try:
                steps = read()
                if not isinstance(steps, list | ColumnSteps) or not len(steps):
                    raise ValueError("it has no steps")
                episode = self._rollout(steps, np.array([len(steps) - 1]))
            except WRONG as error:
                wrong.add(place, wrong_step(error))
                continue
            yield episode

    def _together(self, group: EpisodeGroup) -> Rollout | None:
        """None where one is wrong, lacks what others have, or is to be estimated from."""
        if self._chosen or isinstance(group.steps.columns.get(TIME), list):
            return None
        start, *ends = group.bounds
        try:
            return self._rollout(group.steps.between(start, ends[-1]), np.array(ends) - start - 1)
        except WRONG:
            return None

    def _rollout(
        self,
        steps: Steps | ColumnSteps,
        ends: Array,  # [E] the last row of each episode
    ) -> Rollout:
        """[T, 1] of whole episodes."""
        rows = self._rows(steps)
        goes_on = rows.terminated | rows.truncated
        goes_on[ends] = False
        if goes_on.any():
            raise ValueError(f"step {goes_on.argmax() + 1} of {len(steps)} ended the episode, and others follow it")
        times = optional_column(steps, TIME)
        if times is not None and not _grows(_numbers(TIME, times), ends):
            raise ValueError(f"its steps are out of order: {TIME} does not grow from each to the next")
        truncated = rows.truncated.copy()
        truncated[ends] |= ~rows.terminated[ends]  # the recording was cut
        return replace(rows, truncated=truncated)

    def _rows(self, steps: Steps | ColumnSteps) -> Rollout:
        """Steps [N, 1], whose ends are as they were recorded."""
        obs, actions = self._observed(column(steps, "obs")), self._acted(steps)
        if self._excludes is not None and (excluded := self._excludes(obs, actions)).any():
            raise ValueError(f"step {excluded.argmax() + 1} has an action that the mask in its observation excludes")
        rewards = _rewards(column(steps, "reward"))
        return Rollout(
            obs=obs,
            actions=actions,
            rewards=self._reward_transform(rewards),
            next_obs=self._observed(column(steps, "next_obs")),
            terminated=_flags("terminated", column(steps, "terminated")),
            truncated=_flags("truncated", column(steps, "truncated")),
            mask=np.ones(rewards.shape, np.bool_),
            extras=_likelihoods(steps) if self._chosen else {},
        )

    def _observed(self, values: Column) -> Array:
        """[T, 1, *obs]."""
        layout = self._observations
        return _fitting("an observation", values, layout, layout.dtype)[:, np.newaxis]

    def _acted(self, steps: Steps | ColumnSteps) -> Array:
        """[T, 1, *action], as a policy chose them."""
        dtype, transform = self._actions.action_dtype, self._action_transform
        found = _fitting("an action", column(steps, "action"), self._actions, dtype)
        if transform is not None:
            chosen = optional_column(steps, CHOSEN) if self._chosen else None
            found = transform.inverse(found) if chosen is None else _chosen(chosen, found, transform)
        return found.astype(dtype, copy=False)[:, np.newaxis]


def _flags(key: str, values: Column) -> Array:
    """[T, 1] bool."""
    found = _numbers(key, values)
    if found.dtype != np.bool_ and (others := (found != 0) & (found != 1)).any():
        raise ValueError(f"{key} is {found[others][0]}, expected true or false")
    return found.astype(np.bool_, copy=False)[:, np.newaxis]


def _rewards(values: Column) -> Array:
    """[T, 1] float32."""
    with np.errstate(over="ignore"):
        rewards = _numbers("reward", values).astype(np.float32)[:, np.newaxis]
    if not np.isfinite(rewards).all():
        raise ValueError("a reward is no finite number")
    return rewards


def _numbers(key: str, values: Column) -> Array:
    """[T] numbers; ValueError for anything else, such as texts that NumPy would take for numbers."""
    found = np.asarray(values)
    if found.dtype.kind not in NUMBERS or found.ndim != 1:
        raise ValueError(f"{key} is not a number in each step")
    return found


def _grows(
    numbers: Array,  # [T]
    ends: Array,  # [E] the last row of each episode
) -> bool:
    """Whether each is larger than the one before in its episode; a difference of unsigned numbers is never negative."""
    grows = numbers[1:] > numbers[:-1]
    grows[ends[:-1]] = True
    return bool(grows.all())


def _chosen(
    values: Column,
    actions: Array,  # [T, *action] in the environment
    transform: ActionTransform,
) -> Array:  # [T, *action]
    """The values as arrays; ValueError unless they are finite, and the transform makes them the actions."""
    chosen = np.array(values, actions.dtype).reshape(actions.shape)
    if not np.isfinite(chosen).all():
        raise ValueError(f"{CHOSEN} holds a number that is not finite")
    differs = ~np.isclose(transform(chosen), actions, rtol=1e-4, atol=1e-6).reshape(len(chosen), -1).all(-1)
    if differs.any():
        row = differs.argmax()
        raise ValueError(
            f"step {row + 1} has the {CHOSEN} {chosen[row].tolist()}, which is {transform(chosen)[row].tolist()} "
            f"within the bounds, and not its action {actions[row].tolist()}"
        )
    return chosen


def _likelihoods(steps: Steps | ColumnSteps) -> dict[str, Array]:
    """`action_logp` [T, 1], if each step has it, or `action_prob`."""
    if (values := optional_column(steps, ACTION_LOGP)) is not None:
        logp = _numbers(ACTION_LOGP, values).astype(np.float64)
    elif (values := optional_column(steps, ACTION_PROB)) is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            logp = np.log(_numbers(ACTION_PROB, values).astype(np.float64))
    else:
        return {}
    if not np.isfinite(logp).all():
        raise ValueError("the likelihood of an action is 0 or no finite number, although it was taken")
    return {ACTION_LOGP: logp[:, np.newaxis]}


def _fitting(name: str, values: Column, layout: Layout, dtype: np.dtype[Any]) -> Array:
    """The values [T, *shape] in the dtype; ValueError for one that it, or a Discrete part of the space, has not."""
    recorded = _stacked(name, values, layout)
    with np.errstate(invalid="ignore", over="ignore"):
        found = recorded.astype(dtype, copy=False)
    if found is not recorded and np.issubdtype(dtype, np.integer) and (changed := found != recorded).any():
        raise ValueError(f"{name} has {recorded[changed][0]}, expected a value of {dtype}")
    if not np.issubdtype(dtype, np.integer) and not np.isfinite(found).all():
        raise ValueError(f"{name} holds a number that is not finite")
    if impossible := layout.first_impossible(found):
        raise ValueError(f"{name} has {impossible[1]}, expected {impossible[2]}")
    return found


def _stacked(name: str, values: Column, layout: Layout) -> Array:
    """The values [T, *shape] as they were recorded, Discrete ones as indices; ValueError for another shape."""
    if layout.composite:
        return np.stack([layout.flatten(value) for value in values])
    try:
        found = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} has another shape, expected {layout.shape} of {layout.space}") from error
    if found.shape[1:] != layout.shape:
        raise ValueError(f"{name} has the shape {found.shape[1:]}, expected {layout.shape} of {layout.space}")
    if found.dtype.kind not in NUMBERS:
        raise ValueError(f"{name} holds something that is no number")
    return found if layout.direct else found - layout.leaves[0].start
