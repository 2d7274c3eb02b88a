"""A sweep: several trainings with different settings inside one job."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, ValidationInfo, model_validator
from pydantic.alias_generators import to_snake

from reef.api.fields import DocumentModel, Number, PositiveCount, Text, refuse
from reef.api.keys import stop_key_problem

Interval = Annotated[list[Number], Field(min_length=2, max_length=2)]
_KINDS = ("grid", "choice", "uniform", "logUniform")


class Parameter(DocumentModel):
    """The values that one setting takes over the trials: exactly one of the four kinds."""

    # Not a CEL rule: CEL does not see `grid` and `choice`, as their items may be of any type.
    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    grid: list[Any] | None = Field(
        default=None, min_length=1, max_length=1000, description="Every one of these values."
    )
    choice: list[Any] | None = Field(
        default=None, min_length=1, max_length=1000, description="One of these values, at random."
    )
    uniform: Interval | None = Field(
        default=None, description="A number between these two, at random; a whole one where the setting takes no other."
    )
    log_uniform: Interval | None = Field(
        default=None, description="A number between these two, at random, evenly over the logarithm; both above 0."
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        given = [kind for kind in _KINDS if getattr(self, to_snake(kind)) is not None]
        if len(given) != 1:
            there = f"there are {', '.join(given)}, remove all but one" if given else "there is none, add one"
            raise ValueError(f"give exactly one of {', '.join(_KINDS)}: {there}")
        interval = self.uniform or self.log_uniform
        if interval and interval[0] >= interval[1]:
            raise ValueError(f"{interval} is no interval: the first number must be the smaller")
        if self.log_uniform and self.log_uniform[0] <= 0:
            raise ValueError(f"logUniform {self.log_uniform} needs numbers above 0")
        return self


class Scheduler(DocumentModel):
    """Which trials are ended early."""

    kind: Literal["fifo", "asha"] = Field(
        default="fifo", description="fifo runs every trial to its end; asha ends the weak ones."
    )
    grace_period: PositiveCount = Field(
        default=1, description="Iterations that every trial gets before asha may end it."
    )
    reduction_factor: Annotated[int, Field(ge=2, le=100)] = Field(
        default=4, description="At each rung asha keeps one trial in this many."
    )


def _known_metric(metric: str, info: ValidationInfo) -> str:
    problem = stop_key_problem(metric)
    refuse([f"{metric!r} {problem}"] if problem else [], "tune", info)
    return metric


class Tune(DocumentModel):
    """A sweep over settings with Ray Tune inside the job's cluster."""

    parameters: dict[str, Parameter] = Field(
        min_length=1,
        max_length=64,
        description="Settings that vary, by their key in spec.config (dotted inside a group: model.fcnet_hiddens), "
        "each with the values it takes, which replace those of spec.config.",
    )
    num_samples: PositiveCount = Field(
        default=1, description="Draws of the random parameters; a grid is repeated this often."
    )
    max_concurrent_trials: PositiveCount | None = Field(
        default=None, description="Trials that run at the same time; none means as many as the cluster holds."
    )
    metric: Annotated[Text, AfterValidator(_known_metric)] = Field(
        default="episode_reward_mean",
        description="Result field by which trials are compared: a number, as in spec.stop. The newest iteration "
        "counts.",
    )
    mode: Literal["max", "min"] = Field(default="max", description="Whether a large or a small metric is better.")
    scheduler: Scheduler = Field(default_factory=Scheduler, description="Which trials are ended early.")
