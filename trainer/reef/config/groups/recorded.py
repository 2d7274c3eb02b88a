"""What is wrong with settings about recorded episodes: to learn from, or to evaluate by."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from reef.config.groups.columns import column_problems
from reef.config.groups.inputs import FOR_INPUT, POLICY_SERVER, SAMPLER, is_function
from reef.config.loading import load_function
from reef.errors import ConfigError, nearest, without_secrets


def recorded_problems(config: Any) -> Iterator[str]:
    """What does not go together with recorded episodes, or with none."""
    if config.input_ == SAMPLER and config.input_use != "needed":
        for key, usual in FOR_INPUT.items():
            if (value := getattr(config, key)) != usual:
                yield f"{key}={value!r}: nothing is read. Set input_ beside it, or leave it out."
        return
    if config.input_use == "none":
        yield (
            f"input_={config.input_!r}: {config.label} learns from what its own policy has just played. Leave it out, "
            "or learn by MARWIL, BC, CQL, IQL, DQN or SAC. With evaluation_config={'input_': ...} recorded episodes "
            f"evaluate any policy.{nearest(str(config.input_), [POLICY_SERVER])}"
            + (" A function that makes a PolicyServerInput goes with env=None." if is_function(config.input_) else "")
        )
        return
    yield from place_problems(config, config.label)
    yield from _sampling_problems(config)
    yield from _policy_problems(config)


def place_problems(config: Any, who: str) -> Iterator[str]:
    """What is wrong with `input_` itself; `who` reads it."""
    if config.input_ in ("", [], {}, SAMPLER):
        yield (
            f"input_={config.input_!r}: {who} learns from recorded episodes. Set it to a file that "
            "`reef evaluate CHECKPOINT --out FILE` wrote, or a folder of such files."
        )
    if is_function(config.input_):
        try:
            load_function(config.input_, "input_", "ioctx")
        except ConfigError as error:
            yield str(error)
    else:
        yield from column_problems(config.input_config)
    weights = config.input_ if isinstance(config.input_, dict) else {}
    if SAMPLER in weights:
        yield f"input_: 'sampler': {who} samples nothing. Leave it out."
    if wrong := {place: weight for place, weight in weights.items() if not 0 < weight < math.inf}:
        yield f"input_={wrong}: expected weights above 0, such as 0.3. Leave out what is not to be read."


def folder_problems(output: str | None) -> Iterator[str]:
    """What is wrong with the place that `output` names."""
    if output == "":
        yield "output='': expected the path of a folder, or 'logdir' for episodes/ in the result folder."
    elif output and "://" in output:
        from reef.api.fields import EXPLAINED, STORAGE_URI

        if not re.fullmatch(STORAGE_URI, output):
            yield f"output={without_secrets(output)!r}: expected a folder, or {EXPLAINED[STORAGE_URI]}."


def _sampling_problems(config: Any) -> Iterator[str]:
    who = config.label if config.input_use == "needed" else f"{config.label} with input_"
    yield from _reader_problems(config, who)
    if config.sample_async:
        yield f"sample_async=True: {who} samples nothing. Leave it at False."
    if config.output:
        yield f"output={config.output!r}: {who} samples no episodes to write. Leave it out."
    for key in ("record_env", "render_env"):
        if asked := getattr(config, key):
            fix = f"evaluation_config={{{key!r}: {asked!r}}} draws its evaluations."
            yield f"{key}={asked!r}: {who} samples no episodes to draw. Leave it out; {fix}"


def _reader_problems(config: Any, who: str) -> Iterator[str]:
    """Rollout workers read where recorded steps are read while it learns, each a share of the files of one source."""
    given, fix = f"num_rollout_workers={config.num_rollout_workers}", "evaluation_num_workers is for evaluation"
    if not config.num_rollout_workers:
        return
    if config.input_use == "possible":
        yield f"{given}: {who} samples nothing, and reads everything before it learns. Leave it at 0; {fix}."
    elif not config.shuffle_buffer_size:
        yield (
            f"{given}: without shuffle_buffer_size {who} reads everything before it learns. Leave it at 0, or set "
            f"shuffle_buffer_size; {fix}."
        )
    elif isinstance(config.input_, dict):
        yield f"{given}: workers read one source, and input_ is a mapping of several. Leave it at 0, or give a list."


def _policy_problems(config: Any) -> Iterator[str]:
    if config.observation_filter != "NoFilter":
        yield (
            f"observation_filter={config.observation_filter!r}: {config.label} reads observations as they were "
            "recorded. Leave it at 'NoFilter'."
        )
    yield from connector_problems(config, f"{config.label} learns from")
    if len(config.policies) > 1 or any(map(config.own_settings, config.policies)):
        yield (
            f"policies={list(config.policies)}: {config.label} learns a single policy without settings of its own. "
            "Leave it out."
        )


def connector_problems(config: Any, what: str) -> Iterator[str]:
    """Recorded values have not passed connectors."""
    for key in ("env_to_module_connector", "module_to_env_connector"):
        if (function := getattr(config, key)) is not None:
            yield (
                f"{key}={function!r}: {what} observations and actions as they were recorded. Leave it out, and wrap "
                "the environment before its episodes are recorded."
            )


def estimation_problems(config: Any) -> Iterator[str]:
    """Estimates need recorded episodes of one policy, and recorded episodes in evaluation are for estimates alone."""
    methods, given = config.off_policy_estimation_methods, config.evaluation_config.get("input_", SAMPLER)
    for name, method in methods.items():
        if isinstance(method, dict) and "type" not in method:
            yield f"off_policy_estimation_methods: {name}={method!r}: expected a 'type', such as 'wis'."
    if methods and given == SAMPLER:
        yield (
            f"off_policy_estimation_methods={sorted(methods)}: there are no recorded episodes to estimate from. Set "
            "evaluation_config={'input_': 'episodes.json'}."
        )
    if given != SAMPLER and not methods:
        yield (
            f"evaluation_config.input_={given!r}: recorded episodes are for estimates, of which there are none. Set "
            "off_policy_estimation_methods={'wis': {'type': 'wis'}}."
        )
    if not config.ope_split_batch_by_episode and not methods:
        yield "ope_split_batch_by_episode=False: there are no off_policy_estimation_methods. Leave it at True."
    if methods and given != SAMPLER:
        yield from _problems_of_estimates(config, given)


def _problems_of_estimates(config: Any, given: Any) -> Iterator[str]:
    own = {key: config.evaluation_config.get(key, usual) for key, usual in FOR_INPUT.items()}
    if own["shuffle_buffer_size"]:
        yield (
            f"evaluation_config.shuffle_buffer_size={own['shuffle_buffer_size']}: estimates are from all recorded "
            "episodes. Leave it out."
        )
    if isinstance(given, dict):
        yield (
            f"evaluation_config.input_={given!r}: each recorded episode counts once in estimates, so that weights have "
            "no effect. Give a list."
        )
        return
    asked = config.copy().assign({"input_": given, "input_config": own["input_config"]})
    yield from (f"evaluation_config.{problem}" for problem in place_problems(asked, "evaluation"))
    yield from connector_problems(config, "off_policy_estimation_methods read")
    if len(config.policies) > 1:
        yield (
            f"off_policy_estimation_methods={sorted(config.off_policy_estimation_methods)}: recorded episodes are of "
            f"one policy, and policies={list(config.policies)}. Leave it out."
        )
