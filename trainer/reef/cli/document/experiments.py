"""Job documents of experiments in RLlib's form, whose keys are also the flags of `reef train`.

An experiment has `run`, `env`, `config` and `stop`, and may say when checkpoints are written and what trials there are.
A value `{grid_search: [...]}` in its `config` makes a sweep.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from reef.errors import ConfigError, nearest

KEYS = (
    "run", "env", "config", "stop", "restore", "checkpoint_freq", "checkpoint_at_end", "keep_checkpoints_num",
    "checkpoint_score_attr", "num_samples", "scheduler", "scheduler_config", "max_failures", "framework",
)  # fmt: skip
SCHEDULERS = {  # by RLlib's and Ray's names, in lower case
    "fifo": "fifo", "asha": "asha", "asynchyperband": "asha", "async_hyperband": "asha", "hyperband": "hyperBand",
    "medianstopping": "medianStopping", "median_stopping_rule": "medianStopping", "pbt": "pbt",
}  # fmt: skip
SCHEDULER_FIELDS = {"min_samples_required": "minSamples"}  # the others differ in their spelling alone
SEARCH = "grid_search"


def experiments_in(found: Any) -> dict[str, Mapping[str, Any]]:
    """The experiments of a file in RLlib's form, by name; none where it has another form."""
    if not isinstance(found, Mapping) or "kind" in found or not found:
        return {}
    known = all(isinstance(one, Mapping) and "run" in one for one in found.values())
    return {str(name): one for name, one in found.items()} if known else {}


def documents_of(experiments: Mapping[str, Mapping[str, Any]], source: str) -> Iterator[dict[str, Any]]:
    """The job documents of experiments, in their order, with a warning for each.

    Raises:
        ConfigError: an experiment has other keys, or no environment.
    """
    for name, experiment in experiments.items():
        if unknown := [key for key in experiment if key not in KEYS]:
            raise ConfigError(
                f"{source}: {name}.{unknown[0]}: {_advice(unknown[0])}{nearest(unknown[0], KEYS)} Known keys: "
                f"{', '.join(KEYS)}."
            )
        warnings.warn(f"{source}: {name} is an experiment of RLlib, and is read as a job document.", stacklevel=2)
        yield document_of(dict(experiment), label(name), f"{source}: {name}")


def _advice(key: str) -> str:
    if key == "resources_per_trial":
        return "the resources of a trial have been automatically set by its settings, such as num_rollout_workers."
    if key in ("local_dir", "storage_path", "upload_dir"):
        return "give it as --storage-path."
    return "is no key of an experiment."


def label(text: str) -> str:
    """The name of a job like this text, for its results' folder: lower-case letters, digits and "-"."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:52].rstrip("-") or "job"


def document_of(experiment: dict[str, Any], name: str, where: str) -> dict[str, Any]:
    """The job document of one experiment; `where` begins messages. What it holds is not checked.

    Raises:
        ConfigError: it has no environment, or a scheduler for a single trial.
    """
    from reef.config.applications import named_in_document

    given = {key: value for key, value in experiment.items() if value is not None}
    config = dict(given.get("config", {}))
    env = named_in_document(given.get("env", config.pop("env", None)), config)
    if not env:
        raise ConfigError(f"{where}: it has no env. Give one, such as env: CartPole-v1.")
    if "framework" in given:
        config["framework"] = given["framework"]
    environment = {"name": env, "config": config.pop("env_config", {})}
    parameters: dict[str, Any] = {}
    config = without_searches(config, parameters)
    environment["config"] = without_searches(environment["config"], parameters, "env_config.")
    spec: dict[str, Any] = {
        "algorithm": given.get("run"),
        "environment": environment,
        "config": config,
        "stop": given.get("stop", {}),
        "checkpoint": {
            "frequency": given.get("checkpoint_freq", 0),
            "atEnd": given.get("checkpoint_at_end", True),
            "keep": given.get("keep_checkpoints_num", 0),
            "scoreAttribute": given.get("checkpoint_score_attr", "training_iteration"),
        },
    }
    if "restore" in given:
        spec["restoreFrom"] = given["restore"]
    if tune := sweep_of(given, parameters, config, where):
        spec["tune"] = tune
        if "max_failures" in given:
            spec["faultTolerance"] = {"backoffLimit": given["max_failures"]}
    elif "max_failures" in given:
        raise ConfigError(
            f"{where}: max_failures={given['max_failures']}: only trials of a sweep are started again. Go on with a "
            "training by --resume."
        )
    return {"apiVersion": "reef.dev/v1", "kind": "RLTrainingJob", "metadata": {"name": name}, "spec": spec}


def without_searches(config: Mapping[str, Any], parameters: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """The settings that are the same in every trial; searches are moved to `parameters`, by dotted key."""
    rest: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and set(value) == {SEARCH}:
            parameters[f"{prefix}{key}"] = {"grid": value[SEARCH]}
        elif isinstance(value, Mapping):
            rest[key] = without_searches(value, parameters, f"{prefix}{key}.")
        else:
            rest[key] = value
    return rest


def sweep_of(
    given: Mapping[str, Any], parameters: dict[str, Any], config: Mapping[str, Any], where: str
) -> dict[str, Any] | None:
    """The sweep of an experiment with several trials; None for one with a single trial.

    Trials without other parameters differ in their seed.
    """
    samples = given.get("num_samples", 1)
    scheduler = scheduler_of(given, where)
    tune: dict[str, Any] = {"parameters": parameters, "numSamples": samples}
    if not parameters:
        if samples == 1:
            if scheduler:
                raise ConfigError(
                    f"{where}: scheduler={given.get('scheduler')}: there is one trial, and none to compare it with. "
                    "Give num_samples, or values as {grid_search: [...]} in config."
                )
            return None
        first = config.get("seed") or 0
        seeds = [first + index for index in range(samples)] if isinstance(samples, int) and samples > 0 else []
        tune |= {"parameters": {"seed": {"grid": seeds}}, "numSamples": 1 if seeds else samples}
    for key in ("metric", "mode"):
        if key in scheduler:
            tune[key] = scheduler.pop(key)
    return tune | ({"scheduler": scheduler} if scheduler else {})


def scheduler_of(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The scheduler of an experiment with the names of a job document; empty for none."""
    from pydantic.alias_generators import to_camel

    name, fields = given.get("scheduler"), given.get("scheduler_config", {})
    if name is None:
        if fields:
            raise ConfigError(f"{where}: scheduler_config: there is no scheduler. Give one of {_schedulers()}.")
        return {}
    kind = SCHEDULERS.get(str(name).lower())
    if kind is None:
        raise ConfigError(
            f"{where}: scheduler={name!r} is unknown.{nearest(str(name), SCHEDULERS)} Known: {_schedulers()}."
        )
    if kind == "fifo" and not fields:
        return {}
    return {"kind": kind} | {SCHEDULER_FIELDS.get(key, to_camel(key)): value for key, value in fields.items()}


def _schedulers() -> str:
    return ", ".join(dict.fromkeys(SCHEDULERS.values()))
