"""Population-based training (Jaderberg et al. 2017): weak trials go on from strong ones, with changed settings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from reef.api.tune import Parameter
from reef.errors import ConfigError
from reef.sweep.plan import Parameters, Plan, Trial, as_value, drawn, is_whole
from reef.sweep.record import Record

FACTORS = (0.8, 1.2)  # by one of which a number changes


@dataclass(frozen=True, slots=True)
class Exchange:
    """That a trial goes on from another one, with these parameters."""

    source: str  # the other trial's name
    parameters: Parameters


def exchange(plan: Plan, record: Record, name: str) -> Exchange | None:
    """What trial `name` changes after the iteration that the record holds; None where it goes on as it is.

    The choices follow from the seed of the sweep, the trial and its iteration.
    """
    scheduler, trial = plan.tune.scheduler, record.trials[name]
    if trial.iteration % scheduler.perturbation_interval:
        return None
    sign = 1 if record.mode == "max" else -1
    known = [one for one in record.trials.values() if one.metric is not None and one.state != "failed"]
    ranked = sorted(known, key=lambda one: sign * (one.metric or 0.0))  # the weakest first
    count = min(math.ceil(len(ranked) * scheduler.quantile_fraction), len(ranked) // 2)
    if trial not in ranked[:count]:
        return None
    seed = plan.base.seed
    generator = np.random.default_rng(None if seed is None else [seed, int(name.split("_")[1]), trial.iteration])
    source = ranked[len(ranked) - count :][generator.integers(count)]
    if source.metric == trial.metric:
        return None
    return Exchange(source.name, explored(plan, trial, source, generator))


def explored(plan: Plan, trial: Trial, source: Trial, generator: np.random.Generator) -> Parameters:
    """The parameters of the stronger trial, changed; unchanged where the settings would contradict each other."""
    resample = plan.tune.scheduler.resample_probability
    parameters: Parameters = {}
    for key, parameter in plan.tune.parameters.items():
        whole = is_whole(plan.base, key)
        if generator.random() < resample:
            parameters[key] = drawn(parameter, generator, whole=whole)
        else:
            parameters[key] = moved(parameter, source.parameters[key], generator, whole=whole)
    try:
        plan.config_with(trial, parameters).validate()
    except ConfigError:
        return dict(source.parameters)
    return parameters


def moved(parameter: Parameter, value: Any, generator: np.random.Generator, *, whole: bool) -> Any:
    """A value beside this one: a neighbour in the list, or a number times one of `FACTORS`, within its limits."""
    if values := parameter.choice or parameter.grid:
        place = values.index(value) + (1 if generator.integers(2) else -1)
        return values[min(max(place, 0), len(values) - 1)]
    interval = parameter.uniform or parameter.log_uniform
    assert interval is not None, "the document's model allows one of four kinds"
    up = generator.integers(2)
    number = value * FACTORS[up]
    if whole:  # by one at least
        number = max(round(number), value + 1) if up else min(round(number), value - 1)
    number = min(max(number, interval[0]), interval[1])
    return as_value(number, whole=whole)
