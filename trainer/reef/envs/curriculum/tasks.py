"""Environments that have a task, and the tasks of a worker's environments: kept where one is made again or resumed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from reef.callbacks.hooks import guarded
from reef.errors import CheckpointError, EnvironmentError
from reef.trees import json_safe, take_arrays_out
from reef.types import State

TASKS = "tasks"  # their key in the state of a worker's environments


class TaskSettableEnv(gym.Env[Any, Any]):
    """Subclass it for an environment with a task, such as a level, that changes while a policy is trained.

    A task is a number, text, list, dict with text keys or numeric array, so that a checkpoint can hold it. Most
    environments use a new one from the next `reset` on. Any other class with `get_task` and `set_task` is as good.
    """

    def sample_tasks(self, n_tasks: int) -> list[Any]:
        """Some tasks, for code of your own; Reef does not call it."""
        raise NotImplementedError

    def get_task(self) -> Any:
        """The present task."""
        raise NotImplementedError

    def set_task(self, task: Any) -> None:
        """Change the task."""
        raise NotImplementedError


def task_settable(env: Any) -> Any:
    """The environment with a task that `env` is, or has inside Gymnasium's wrappers; None without one."""
    while not (callable(getattr(env, "get_task", None)) and callable(getattr(env, "set_task", None))):
        if not isinstance(env, gym.Wrapper):
            return None
        env = env.env
    return env


def set_task(env: Any, task: Any) -> None:
    """Give a `task_settable` environment a task, unless it has that already: some end their episode then."""
    if json_safe(guarded("get_task of the environment", env.get_task)) != json_safe(task):
        guarded("set_task of the environment", env.set_task, task)


class Tasks:
    """The tasks of a worker's environments, now and when their episodes began; nothing where they have none."""

    def __init__(self, envs: Sequence[Any], name: str) -> None:
        """`envs`: kept up to date by its owner. EnvironmentError where a checkpoint could not hold a task."""
        self._envs, self._name = envs, name
        self.exist = task_settable(envs[0]) is not None
        self._begun = [self._now(env) for env in envs] if self.exist else []

    def begin(self, index: int) -> None:
        """An episode is about to begin."""
        if self.exist:
            self._begun[index] = self._now(self._envs[index])

    def carry_over(self, index: int, env: Any) -> Any:
        """Return `env`, which takes the place of one that failed, with the task of that one."""
        if self.exist:
            try:
                task = task_settable(self._envs[index]).get_task()
            except Exception:  # it is broken
                task = self._begun[index]
            set_task(task_settable(env), task)
        return env

    def state(self) -> State:
        """What is stored with the episodes in progress."""
        if not self.exist:
            return {}
        return {TASKS: {"begun": list(self._begun), "now": [self._now(env) for env in self._envs]}}

    def restore(self, index: int, state: State, which: str = "now") -> None:
        """Set the stored task of an environment: that of `now`, or "begun", with which its episode began."""
        if self.exist and (stored := state.get(TASKS)):
            set_task(task_settable(self._envs[index]), stored[which][index % len(stored[which])])

    def _now(self, env: Any) -> Any:
        return storable_of(self._name, "get_task", task_settable(env).get_task)


def storable_of(name: str, method: str, call: Callable[[], Any]) -> Any:
    """What a method of environment `name` returns, `storable`; EnvironmentError where a checkpoint cannot hold it."""
    value = storable(guarded(f"{method} of environment {name!r}", call))
    check_storable(f"environment {name!r}: {method}()", value)
    return value


def check_storable(what: str, value: Any) -> None:
    """Raise EnvironmentError where a checkpoint cannot hold what a function returned, which messages call `what`."""
    try:
        take_arrays_out(storable(value), "", {})
    except CheckpointError as error:
        raise EnvironmentError(
            f"{what} returned {value!r}, which a checkpoint cannot hold. Let it be a number, text, list, dict with "
            "text keys or numeric array."
        ) from error


def storable(task: Any) -> Any:
    """A value that may have tuples and NumPy's numbers as one that checkpoints hold, with lists and plain numbers."""
    if isinstance(task, np.generic):
        return task.item()
    if isinstance(task, np.ndarray):
        return task.copy()
    if isinstance(task, list | tuple):
        return [storable(item) for item in task]
    if isinstance(task, dict):
        return {key: storable(value) for key, value in task.items()}
    return task
