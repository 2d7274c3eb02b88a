"""Recorded episodes, as `reef evaluate --out` writes them, read as rollouts of one column."""

from __future__ import annotations

import glob
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reef.batch import Rollout
from reef.envs.wrappers import ActionTransform, RewardTransform
from reef.errors import ConfigError
from reef.offline.episode_files import ACTION_LOGP, CHOSEN, ENDINGS, recorded_in
from reef.spaces import Layout
from reef.types import Array

log = logging.getLogger(__name__)
SHOWN = 3  # episodes that are left out are named one by one up to here


def files_of(places: str | Sequence[str]) -> list[Path]:
    """The files that are meant by files, folders (their files with one of `ENDINGS`) and patterns, in order, each once.

    Raises:
        ConfigError: one of them leads to no file, or cannot be read.
    """
    found: dict[Path, None] = {}
    for place in [places] if isinstance(places, str) else places:
        try:
            found.update(dict.fromkeys(_files_at(place)))
        except OSError as error:
            raise ConfigError(f"input_={place!r}: it cannot be read: {error.strerror}.") from error
    return list(found)


def _files_at(place: str) -> list[Path]:
    path, problem = Path(place).expanduser(), "there is no such file"
    if path.is_dir():
        files = [file for file in path.iterdir() if file.suffix in ENDINGS]
        problem = f"the folder has no {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]} file"
    elif path.is_file():
        # its name may look like a pattern
        files = [path]
    else:
        files = list(map(Path, glob.glob(str(path), recursive=True)))
    if not (found := sorted(file for file in files if file.is_file())):
        raise ConfigError(f"input_={place!r}: {problem}. Write episodes with `reef evaluate CHECKPOINT --out FILE`.")
    return found


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
    ) -> None:
        """The transforms are those of sampling, as files hold what the environment got and gave.

        `action_transform`: None if the recorded actions are those that a policy chose. `excludes`: of observations
        [T, 1, *obs] and actions [T, 1, *action] the steps [T, 1] whose action a mask excludes; None: no mask.
        `chosen`: read actions as they were before they were clipped to their bounds, where that is recorded, and how
        likely they were.
        """
        self._chosen = chosen
        self._observations, self._actions = observations, actions
        self._action_transform, self._reward_transform = action_transform, reward_transform
        self._excludes = excludes
        self._told = False  # of what is left out, the first time that it is read

    def read(self, files: Sequence[Path]) -> Iterator[Rollout]:
        """The episodes of files, each [T, 1]; what is no episode of these spaces is left out, and named.

        Raises:
            ConfigError: a file cannot be read, or none of the episodes is one of these spaces.
        """
        recorded = (episode for file in files for episode in recorded_in(file))
        return self.checked(recorded, ", ".join(map(str, files)), "Every file is empty.")

    def checked(self, recorded: Iterable[tuple[str, Callable[[], Any]]], where: str, if_none: str) -> Iterator[Rollout]:
        """As `read`, of episodes that were found `where`: for each its place, and a function that returns its steps."""
        count, wrong = 0, []
        for place, steps in recorded:
            try:
                episode = self._episode(steps())
            except (ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
                wrong.append(f"{place}: {f'{error} is missing' if isinstance(error, KeyError) else error}")
                continue
            count += 1
            yield episode
        if not count:
            raise ConfigError(f"input_: no episode can be read from {where}. {f'{wrong[0]}.' if wrong else if_none}")
        if not self._told:
            for text in wrong[:SHOWN]:
                log.warning("left out of the recorded episodes: %s", text)
            if len(wrong) > SHOWN:
                log.warning("left out of the recorded episodes: %d more", len(wrong) - SHOWN)
        self._told = True

    def _episode(self, steps: Any) -> Rollout:
        if not isinstance(steps, list) or not steps:
            raise ValueError("it has no steps")
        truncated = np.array([[step["truncated"]] for step in steps], np.bool_)
        terminated = np.array([[step["terminated"]] for step in steps], np.bool_)
        truncated[-1] |= ~terminated[-1]  # the recording was cut
        rewards = np.array([[step["reward"]] for step in steps], np.float32)
        if not np.isfinite(rewards).all():
            raise ValueError("a reward is no finite number")
        obs = self._observed([step["obs"] for step in steps])
        actions = self._acted(steps)
        if self._excludes is not None and (excluded := self._excludes(obs, actions)).any():
            raise ValueError(f"step {excluded.argmax() + 1} has an action that the mask in its observation excludes")
        return Rollout(
            obs=obs,
            actions=actions,
            rewards=self._reward_transform(rewards),
            next_obs=self._observed([step["next_obs"] for step in steps]),
            terminated=terminated,
            truncated=truncated,
            mask=np.ones(rewards.shape, np.bool_),
            extras=_likelihoods(steps) if self._chosen else {},
        )

    def _observed(self, values: list[Any]) -> Array:
        """[T, 1, *obs]."""
        layout = self._observations
        found = np.stack([layout.checked(value) for value in values])
        return _fitting("an observation", found, layout, layout.dtype)[:, np.newaxis]

    def _acted(self, steps: list[Any]) -> Array:
        """[T, 1, *action], as a policy chose them."""
        layout, transform = self._actions, self._action_transform
        values = [step["action"] for step in steps]
        found = np.stack([value if layout.direct else layout.flatten(value) for value in values])
        if found.shape[1:] != layout.shape:
            raise ValueError(f"an action has the shape {found.shape[1:]}, expected {layout.shape} of {layout.space}")
        found = _fitting("an action", found, layout, layout.action_dtype)
        if transform is not None:
            if self._chosen and all(step.get(CHOSEN) is not None for step in steps):
                found = _chosen([step[CHOSEN] for step in steps], found, transform)
            else:
                found = transform.inverse(found)
        return found.astype(layout.action_dtype)[:, np.newaxis]


def _chosen(
    values: list[Any],
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


def _likelihoods(steps: list[Any]) -> dict[str, Array]:
    """`action_logp` [T, 1], if each step has it, or `action_prob`."""
    if all(step.get(ACTION_LOGP) is not None for step in steps):
        logp = np.array([[step[ACTION_LOGP]] for step in steps], np.float64)
    elif all(step.get("action_prob") is not None for step in steps):
        with np.errstate(divide="ignore"):
            logp = np.log(np.array([[step["action_prob"]] for step in steps], np.float64))
    else:
        return {}
    if not np.isfinite(logp).all():
        raise ValueError("the likelihood of an action is 0 or no finite number, although it was taken")
    return {ACTION_LOGP: logp}


def _fitting(name: str, values: Array, layout: Layout, dtype: np.dtype[Any]) -> Array:
    """The values [T, *shape] in the dtype; ValueError for one that it, or a Discrete part of the space, has not."""
    with np.errstate(invalid="ignore", over="ignore"):
        found = values.astype(dtype)
    if np.issubdtype(dtype, np.integer) and (changed := found != values).any():
        raise ValueError(f"{name} has {values[changed][0]}, expected a value of {dtype}")
    if not np.isfinite(found).all():
        raise ValueError(f"{name} holds a number that is not finite")
    if impossible := layout.first_impossible(found):
        raise ValueError(f"{name} has {impossible[1]}, expected {impossible[2]}")
    return found
