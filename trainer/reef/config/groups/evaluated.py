"""What is wrong with the settings of evaluation: when it happens, and what it changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reef.config.groups.recorded import estimation_problems
from reef.config.ignored import drawn_in_evaluation
from reef.config.settings import Settings
from reef.errors import ConfigError

AS_TRAINED = ("model", "observation_filter", "preprocessor_pref", "action_mask_key")  # weights fit no others
FIX = "has no effect, as evaluation learns nothing. Remove it, or set it for training"
# Settings that evaluation does not read, with what to do about them there.
OF_TRAINING = {
    "num_rollout_workers": "evaluation_num_workers says how many workers evaluate. Remove it",
    "env_task_fn": "tasks are chosen after training, for its environments. Remove it, and set those of evaluation in "
    "the hook on_evaluate_start",
} | dict.fromkeys(
    (
        "num_learner_workers", "num_cpus_per_learner_worker", "num_gpus_per_learner_worker", "policies_to_train",
        "torch_threads_per_learner", "torch_compile_learner", "torch_compile_learner_what_to_compile",
        "torch_compile_learner_dynamo_backend", "torch_compile_learner_dynamo_mode", "replay_mode", "sample_async",
        "logger_creator", "logger_config",
    ),
    FIX,
)  # fmt: skip
GROUPS_OF_TRAINING = ("reporting", "checkpointing")  # whole groups that evaluation does not read
READ_TO_ACT = ("gamma", "sigma0", "max_requests_in_flight_per_sampler_worker")  # of the group training


def why_of_training(settings: Any, key: str) -> str | None:
    """What to do about a key that only training reads; None for one that evaluation reads, or may only repeat.

    Whether a person's own algorithm reads its settings when it acts is not known: they are taken.
    """
    if key in OF_TRAINING:
        return OF_TRAINING[key]
    group = settings.groups.get(key)
    if group == "training" and key not in (*READ_TO_ACT, *AS_TRAINED, *settings.of_the_network):
        name = settings.by_key[key].name if key in settings.by_key else key
        declared = (kind for kind in type(settings).__mro__ if name in vars(kind))
        return FIX if any(kind.__module__.startswith("reef.") for kind in declared) else None
    return FIX if group in GROUPS_OF_TRAINING else None


def as_changes(value: Any) -> Any:
    """What a whole configuration changes as `evaluation_config`: all but its defaults and its own evaluation."""
    if not isinstance(value, Settings):
        return value
    changed = value.changed()
    return {
        key: changed[key]
        for key in changed
        if value.groups[key] != "evaluation" and why_of_training(value, key) is None
    }


def read_by_evaluation(settings: Any) -> dict[str, Any]:
    """A checked `evaluation_config` without settings that it may only repeat: those of training may change later."""
    changes = settings.evaluation_config
    return {key: value for key, value in changes.items() if why_of_training(settings, key) is None}


def evaluation_problems(config: Any) -> Iterator[str]:
    """What is wrong with the settings of evaluation; every changed one must itself be fine."""
    yield from _problems_beside_training(config)
    yield from estimation_problems(config)
    try:
        changed = config.copy().assign(config.evaluation_config)
    except ConfigError as error:
        yield from (f"evaluation_config.{problem}" for problem in str(error).splitlines())
        return
    yield from _problems_of_changes(config, changed)


def _problems_of_changes(config: Any, changed: Any) -> Iterator[str]:
    wrong = [text for key in config.evaluation_config for text in changed.wrong_value(key)]
    yield from (f"evaluation_config.{problem}" for problem in wrong or drawn_in_evaluation(config))
    for key, value in config.evaluation_config.items():
        if config.groups.get(key) == "evaluation" and key not in config.refusals:
            yield (
                f"evaluation_config.{key}={value!r}: has no effect in evaluation_config, whose settings are those "
                f"of evaluation workers. Set {key} beside it: .evaluation({key}=...)."
            )
    for key in config.evaluation_config:
        why = why_of_training(config, key)
        if why is not None and (value := getattr(changed, key)) != getattr(config, key):
            yield f"evaluation_config.{key}={value!r}: {why}."
    for key in (*AS_TRAINED, *config.of_the_network):
        trained, evaluated = getattr(config, key), getattr(changed, key)
        if evaluated != trained:
            yield (
                f"evaluation_config.{key}={evaluated!r}: training has {key}={trained!r}, and what is evaluated is "
                f"the policy that was trained so. Remove {key} from evaluation_config."
            )


def _problems_beside_training(config: Any) -> Iterator[str]:
    if config.evaluation_duration == "auto" and not config.evaluation_parallel_to_training:
        yield (
            "evaluation_duration='auto': needs evaluation_parallel_to_training=True. Give a number of "
            f"{config.evaluation_duration_unit} instead."
        )
    if config.evaluation_parallel_to_training and config.enable_async_evaluation:
        yield (
            "evaluation_parallel_to_training=True, enable_async_evaluation=True: an iteration either waits for the "
            "evaluation beside it, or does not. Keep the first to have results each time, or the second to never "
            "wait."
        )
    asked = [key for key in ("evaluation_parallel_to_training", "enable_async_evaluation") if getattr(config, key)]
    for key in asked[:1]:
        if config.evaluation_num_workers == 0:
            yield (
                f"{key}=True, evaluation_num_workers=0: this process trains meanwhile and cannot evaluate. Set "
                f"evaluation_num_workers to 1 or more, or {key}=False."
            )
        if not config.evaluation_interval:
            yield (
                f"{key}=True, evaluation_interval={config.evaluation_interval}: no iteration has an evaluation. Set "
                f"evaluation_interval to 1 or more, or {key}=False."
            )
