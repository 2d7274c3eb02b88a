"""A sweep: several trainings with different settings inside one job."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, ValidationInfo, model_validator
from pydantic.alias_generators import to_camel, to_snake

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


# Which of the fields below each kind reads.
SCHEDULER_FIELDS: dict[str, tuple[str, ...]] = {
    "fifo": (),
    "asha": ("gracePeriod", "reductionFactor"),
    "hyperBand": ("gracePeriod", "reductionFactor", "brackets"),
    "medianStopping": ("gracePeriod", "minSamples"),
    "pbt": ("perturbationInterval", "quantileFraction", "resampleProbability"),
}
Fraction = Annotated[float, Field(gt=0, le=0.5, allow_inf_nan=False)]
Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class Scheduler(DocumentModel):
    """Which trials are ended early, or go on from others."""

    kind: Literal["fifo", "asha", "hyperBand", "medianStopping", "pbt"] = Field(
        default="fifo",
        description="fifo runs every trial to its end. asha ends the weak ones at rungs; hyperBand is asha with "
        "several grace periods; medianStopping ends those below the median. pbt has weak trials go on "
        "from strong ones, with changed settings.",
    )
    grace_period: PositiveCount = Field(
        default=1,
        description="Iterations that every trial gets before it may be ended (asha, hyperBand, medianStopping).",
    )
    reduction_factor: Annotated[int, Field(ge=2, le=100)] = Field(
        default=4, description="At each rung one trial in this many is kept (asha, hyperBand)."
    )
    brackets: Annotated[int, Field(ge=1, le=10)] = Field(
        default=3,
        description="Groups of trials, each with a grace period reductionFactor times that of the group before "
        "(hyperBand).",
    )
    min_samples: PositiveCount = Field(
        default=3, description="Other trials that the median must be of (medianStopping)."
    )
    perturbation_interval: PositiveCount = Field(
        default=10,
        description="Iterations after which a trial may go on from another; a multiple of checkpoint.frequency (pbt).",
    )
    quantile_fraction: Fraction = Field(
        default=0.25, description="Share of the trials that are weak, and of those that are strong (pbt)."
    )
    resample_probability: Probability = Field(
        default=0.25, description="How often a parameter is drawn again, and not changed by a factor (pbt)."
    )

    @model_validator(mode="after")
    def _fields_of_its_kind(self) -> Self:
        given = [to_camel(name) for name in sorted(self.model_fields_set - {"kind"})]
        if others := [name for name in given if name not in SCHEDULER_FIELDS[self.kind]]:
            known = ", ".join(SCHEDULER_FIELDS[self.kind]) or "no other field"
            raise ValueError(f"kind {self.kind} does not read {', '.join(others)}, but {known}: leave out the others")
        return self


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
    scheduler: Scheduler = Field(
        default_factory=Scheduler, description="Which trials are ended early, or go on from others."
    )
    search: Literal["random", "optuna"] = Field(
        default="random",
        description="random: values are drawn before the first trial starts. optuna: each trial's values follow from "
        "the results of those before it.",
    )
