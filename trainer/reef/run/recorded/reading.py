"""Recorded episodes, read as the policy of a worker sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from reef.batch import Rollout
from reef.config import AlgorithmConfig
from reef.config.groups.columns import named_columns
from reef.config.groups.inputs import IOContext, is_function
from reef.config.loading import load_function
from reef.envs.wrappers import RewardTransform
from reef.offline.episodes import EpisodeReader
from reef.offline.own_reader import read_own
from reef.offline.recorded import RecordedSource, RecordedSteps
from reef.offline.shuffle_window import ShuffleWindow
from reef.offline.stored_files import recorded_files
from reef.rollout.policy_runner import PolicyRunner


def recorded_sources(
    config: AlgorithmConfig, runner: PolicyRunner, *, to_estimate: bool = False
) -> list[RecordedSource]:
    """What `input_` means, for the policy of a runner; `to_estimate`: with rewards and actions that were not clipped.

    Raises:
        ConfigError: there is no such file.
        StorageError: an object store refuses, or does not answer.
    """
    policy, columns = runner.policy, runner.columns
    new_reader = partial(
        EpisodeReader,
        policy.observation_layout,
        policy.action_layout,
        None if config.actions_in_input_normalized else columns.action_transform,
        RewardTransform(None, atari=False) if to_estimate else columns.reward_transform,
        None if policy.action_mask is None else policy.action_mask.excludes,
        chosen=to_estimate,
        names=None if is_function(config.input_) else named_columns(config.input_config),
    )
    if is_function(config.input_):
        make = load_function(config.input_, "input_", "ioctx")
        return [RecordedSource(partial(_read_own, new_reader(), make, IOContext(config)))]
    places: Any = config.input_
    weights = places.items() if isinstance(places, dict) else [(places, 1.0)]
    # Each place has a reader of its own, which holds what it read last.
    return [RecordedSource(partial(new_reader().read, recorded_files(place)), weight) for place, weight in weights]


def steps_to_draw(config: AlgorithmConfig, runner: PolicyRunner, n_step: int | None) -> RecordedSteps | ShuffleWindow:
    """The recorded steps to learn from: all, or the newest `shuffle_buffer_size`; `n_step` as of `RecordedSteps`."""
    sources, gamma, seed = recorded_sources(config, runner), config.gamma, config.seed
    if size := config.shuffle_buffer_size:
        return ShuffleWindow(sources, size=size, gamma=gamma, n_step=n_step, seed=seed)
    return RecordedSteps(sources, gamma=gamma, n_step=n_step, seed=seed)


def _read_own(reader: EpisodeReader, make: Callable[[IOContext], Any], context: IOContext) -> Iterator[Rollout]:
    return reader.checked(read_own(make, context), "your own reader", "It gave none.")
