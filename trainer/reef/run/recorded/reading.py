"""Recorded episodes, read as the policy of a worker sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from reef.batch import Rollout
from reef.config import AlgorithmConfig
from reef.config.groups.columns import named_columns
from reef.config.groups.inputs import IOContext, is_function
from reef.config.loading import load_function
from reef.envs.wrappers import RewardTransform
from reef.errors import ConfigError
from reef.offline.episodes import EpisodeReader
from reef.offline.own_reader import read_own
from reef.offline.recorded import RecordedSource, RecordedSteps
from reef.offline.shuffle_window import ShuffleWindow
from reef.offline.stored_files import RecordedFile, recorded_files
from reef.rollout.policy_runner import PolicyRunner
from reef.rollout.seams import Workers
from reef.types import PolicyId


class Share(NamedTuple):
    """What one of several workers reads: every `workers`-th file; of the worker 0, which only looks, all."""

    worker_index: int
    workers: int

    def of(self, files: list[RecordedFile]) -> list[RecordedFile]:
        """Its files; ConfigError where there are fewer than workers."""
        if len(files) < self.workers:
            raise ConfigError(
                f"num_rollout_workers={self.workers}: input_ has {len(files)} files, and each worker reads files of "
                f"its own. Set it to at most {len(files)}, or record with a smaller output_max_file_size."
            )
        return files[self.worker_index - 1 :: self.workers] if self.worker_index else files


EVERYTHING = Share(worker_index=0, workers=0)


def recorded_sources(
    config: AlgorithmConfig, runner: PolicyRunner, *, to_estimate: bool = False, share: Share = EVERYTHING
) -> list[RecordedSource]:
    """What `input_` means, for the policy of a runner; `to_estimate`: with rewards and actions that were not clipped.

    A function finds its `share` by `IOContext.worker_index`.

    Raises:
        ConfigError: there is no such file, or none for each worker.
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
        return [RecordedSource(partial(_read_own, new_reader(), make, IOContext(config, share.worker_index)))]
    places: Any = config.input_
    weights = places.items() if isinstance(places, dict) else [(places, 1.0)]
    # Each place has a reader of its own, which holds what it read last.
    return [
        RecordedSource(partial(new_reader().read, share.of(recorded_files(place))), weight) for place, weight in weights
    ]


def steps_to_draw(config: AlgorithmConfig, workers: Workers, n_step: int | None) -> RecordedSteps | ShuffleWindow:
    """The recorded steps to learn from: all, or the newest `shuffle_buffer_size`; `n_step` as of `RecordedSteps`.

    They are read here, or by `workers` in processes of their own.
    """
    ((policy_id, runner),) = workers.local_worker().runners.items()
    if config.num_rollout_workers:
        sources = [RecordedSource(partial(read_by, workers, policy_id), keeps_place=True)]
    else:
        sources = recorded_sources(config, runner)
    gamma, seed = config.gamma, config.seed
    if size := config.shuffle_buffer_size:
        return ShuffleWindow(sources, size=size, gamma=gamma, n_step=n_step, seed=seed)
    return RecordedSteps(sources, gamma=gamma, n_step=n_step, seed=seed)


def read_by(workers: Workers, policy_id: PolicyId) -> Iterator[Rollout]:
    """What workers read, as it arrives, without end; each reads ahead as far as it may have requests under way."""
    while True:
        for index in workers.healthy:
            while workers.request(index):
                pass
        for sample in workers.ready():
            yield sample.rollouts[policy_id]


def _read_own(reader: EpisodeReader, make: Callable[[IOContext], Any], context: IOContext) -> Iterator[Rollout]:
    return reader.checked(read_own(make, context), "your own reader", "It gave none.")
