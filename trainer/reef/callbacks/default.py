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
