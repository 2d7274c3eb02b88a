"""A curriculum: the tasks of all environments of a worker, set together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reef.callbacks.hooks import guarded
from reef.config.loading import load_function
from reef.envs.context import env_context
from reef.envs.curriculum.tasks import TASKS, check_storable, set_task, task_settable
from reef.rollout.worker import RolloutWorker
from reef.types import State

TASK_FUNCTION = "env_task_fn"


def set_next_tasks(worker: RolloutWorker, result: Mapping[str, Any]) -> None:
    """Give every environment of a worker the task that `env_task_fn` returns for it after the `result` of `train`."""
    function = load_function(worker.config.env_task_fn, TASK_FUNCTION, "train_results", "task_settable_env", "env_ctx")
    for index, env in enumerate(worker.foreach_env(task_settable)):
        context = env_context(worker.config, worker.worker_index, index, recreated=False)
        task = guarded(TASK_FUNCTION, function, result, env, context)
        check_storable(TASK_FUNCTION, task)
        set_task(env, task)


def tasks_of(worker: RolloutWorker) -> list[Any]:
    """The tasks of the environments of a worker; empty where they have none."""
    return [env.get_task() for env in worker.foreach_env(task_settable) if env is not None]


def set_tasks(worker: RolloutWorker, tasks: Sequence[Any]) -> None:
    """Give the environments of a worker the `tasks` of another one, which may have more or fewer."""
    for index, env in enumerate(worker.foreach_env(task_settable)):
        if env is not None:
            set_task(env, tasks[index % len(tasks)])


def stored_tasks(state: State) -> list[Any]:
    """The tasks in the state of a worker; empty where there are none."""
    in_episodes: State = (state["env"] or {}).get(TASKS, {})
    tasks: list[Any] = in_episodes.get("now") or state.get(TASKS, [])  # the latter: of a state without episodes
    return tasks
