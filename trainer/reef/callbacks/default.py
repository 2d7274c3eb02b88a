"""`DefaultCallbacks`: all hooks, and what each is called with."""

from __future__ import annotations

import inspect
from typing import Any


class DefaultCallbacks:
    """Subclass it and override hooks; give the class to `config.callbacks(...)`.

    Hooks are called with keyword arguments, and a hook gets those that its signature names. `trainer` is another
    name of `algorithm`. Every process makes its own object: the driver, each rollout worker and each learner.
    """

    def on_algorithm_init(self, *, algorithm: Any, **kwargs: Any) -> None:
        """Driver: the `algorithm` has been made, with its workers and learners."""

    def on_trainer_init(self, *, trainer: Any, **kwargs: Any) -> None:
        """Driver: older name of `on_algorithm_init`."""

    def on_train_result(self, *, algorithm: Any, result: dict[str, Any], **kwargs: Any) -> None:
        """Driver: `train()` is about to return `result`, to which numbers may be added."""

    def on_evaluate_start(self, *, algorithm: Any, **kwargs: Any) -> None:
        """Driver: an evaluation begins."""

    def on_evaluate_end(self, *, algorithm: Any, evaluation_metrics: dict[str, Any], **kwargs: Any) -> None:
        """Driver: an evaluation has ended with `evaluation_metrics`, to which numbers may be added."""

    def on_workers_recreated(
        self, *, algorithm: Any, worker_set: Any, worker_ids: list[int], is_evaluation: bool, **kwargs: Any
    ) -> None:
        """Driver: failed workers with the indices `worker_ids` have been started again."""

    def on_checkpoint_loaded(self, *, algorithm: Any, **kwargs: Any) -> None:
        """Driver: the `algorithm` has taken over the state of a checkpoint."""

    def on_create_policy(self, *, policy_id: str, policy: Any, **kwargs: Any) -> None:
        """Worker: a policy has been made."""

    def on_sub_environment_created(
        self, *, worker: Any, sub_environment: Any, env_context: Any, env_index: int, **kwargs: Any
    ) -> None:
        """Worker: an environment has been made, at the start or in place of one that failed."""

    def on_environment_created(self, *, worker: Any, env: Any, env_context: Any, **kwargs: Any) -> None:
        """Worker: all of its environments have been made; `env` is the `base_env` of other hooks."""

    def on_episode_created(
        self, *, worker: Any, base_env: Any, policies: Any, episode: Any, env_index: int, **kwargs: Any
    ) -> None:
        """Worker: an environment is about to be reset, with `episode.options` as options."""

    def on_episode_start(
        self, *, worker: Any, base_env: Any, policies: Any, episode: Any, env_index: int, **kwargs: Any
    ) -> None:
        """Worker: an environment has been reset."""

    def on_episode_step(
        self, *, worker: Any, base_env: Any, policies: Any, episode: Any, env_index: int, **kwargs: Any
    ) -> None:
        """Worker: an environment has been stepped, also for the last time of an episode."""

    def on_episode_end(
        self, *, worker: Any, base_env: Any, policies: Any, episode: Any, env_index: int, **kwargs: Any
    ) -> None:
        """Worker: an episode has ended, after its last step; its environment is not reset yet."""

    def on_postprocess_trajectory(
        self,
        *,
        worker: Any,
        episode: Any,
        agent_id: Any,
        policy_id: str,
        policies: Any,
        postprocessed_batch: Any,
        original_batches: Any,
        **kwargs: Any,
    ) -> None:
        """Worker: the steps of an agent in an episode that are in this sample; `postprocessed_batch` may be changed.

        Advantages and targets are computed afterwards. `original_batches` has (None, class of the policy, copy of the
        batch) by agent.
        """

    def on_sample_end(self, *, worker: Any, samples: Any, **kwargs: Any) -> None:
        """Worker: `samples` goes to the learners or to replay; its arrays may be changed."""

    def on_learn_on_batch(self, *, policy: Any, train_batch: Any, result: dict[str, Any], **kwargs: Any) -> None:
        """Learner: it is about to learn from `train_batch`, which may be changed; numbers in `result` are reported."""


ARGUMENTS = {
    name: frozenset(
        parameter.name
        for parameter in inspect.signature(hook).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    )
    for name, hook in vars(DefaultCallbacks).items()
    if name.startswith("on_")
}
"""What each hook is called with."""
ALIASES = {"algorithm": "trainer", "trainer": "algorithm"}
OF_DRIVER = (
    "on_algorithm_init",
    "on_trainer_init",
    "on_train_result",
    "on_evaluate_start",
    "on_evaluate_end",
    "on_workers_recreated",
    "on_checkpoint_loaded",
)
OF_EPISODES = (
    "on_sub_environment_created",
    "on_episode_created",
    "on_episode_start",
    "on_episode_step",
    "on_episode_end",
    "on_postprocess_trajectory",
)
"""Those for which environments are stepped one by one."""
OF_WORKER = ("on_create_policy", "on_environment_created", "on_sample_end", *OF_EPISODES)


def spellings(hook: str) -> frozenset[str]:
    """The names of what a hook is called with, in all spellings."""
    return ARGUMENTS[hook] | {ALIASES[name] for name in ARGUMENTS[hook] if name in ALIASES}
