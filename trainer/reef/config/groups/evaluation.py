"""Measuring the policy apart from training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from reef.config.declaration import setting
from reef.config.groups.group import GroupSetter
from reef.config.settings import Settings
from reef.errors import ConfigError

AS_TRAINED = ("model", "observation_filter")  # without which the trained weights mean nothing


class EvaluationSettings(Settings):
    """When, how long and with which changed settings the policy is evaluated."""

    evaluation = GroupSetter()

    evaluation_interval: int | None = setting(
        None, "Iterations between two evaluations; null or 0 never evaluates.", minimum=0, unit="iterations"
    )
    evaluation_duration: int | Literal["auto"] = setting(
        10,
        "Length of one evaluation, in evaluation_duration_unit; 'auto' lasts as long as the parallel training.",
        minimum=1,
    )
    evaluation_duration_unit: str = setting(
        "episodes",
        "'episodes' runs exactly evaluation_duration episodes, 'timesteps' about as many steps.",
        choices=("episodes", "timesteps"),
    )
    evaluation_sample_timeout_s: float = setting(
        180.0, "How long an evaluation may wait for samples before it ends with a warning.", above=0.0, unit="seconds"
    )
    evaluation_config: dict[str, Any] = setting(
        {},
        "Settings that differ in evaluation; explore is false there unless this says otherwise. env_config is merged.",
    )
    evaluation_num_workers: int = setting(
        0, "Workers for evaluation only; 0 evaluates in the algorithm's process.", minimum=0
    )
    always_attach_evaluation_results: bool = setting(False, "Repeat the newest evaluation in every result.")
    in_evaluation: bool = setting(False, "True in the settings of evaluation workers.")

    def problems(self) -> Iterator[str]:
        """An automatic duration needs training beside it, and every changed setting must itself be fine."""
        yield from super().problems()
        if self.evaluation_duration == "auto":
            yield (
                "evaluation_duration='auto': needs evaluation_parallel_to_training=True. Give a number of "
                f"{self.evaluation_duration_unit} instead."
            )
        try:
            changed = self.copy().assign(self.evaluation_config)
        except ConfigError as error:
            yield from (f"evaluation_config.{problem}" for problem in str(error).splitlines())
            return
        for key in self.evaluation_config:
            yield from (f"evaluation_config.{problem}" for problem in changed.wrong_value(key))
        for key in AS_TRAINED:
            trained, evaluated = getattr(self, key), getattr(changed, key)
            if evaluated != trained:
                yield (
                    f"evaluation_config.{key}={evaluated!r}: training has {key}={trained!r}, and what is evaluated is "
                    f"the policy that was trained so. Remove {key} from evaluation_config."
                )
