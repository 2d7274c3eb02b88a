"""A rollout worker that learns from what it samples, as one of several equal ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed

from reef.batch import Rollout, Sample, concat_columns
from reef.config.loading import load
from reef.distributed.ray_learners import LearnerProcess
from reef.errors import TrainingError
from reef.learn.learner import Update
from reef.learn.learners import in_worker
from reef.rollout.worker import RolloutWorker
from reef.types import PolicyId, State, Weights

# What a rank holds: the state of its learners, the version of their weights, and its time step.
Held = tuple[State, int, int]
Address = tuple[str, int]  # host and port


class CollectiveError(Exception):
    """The ranks did not all meet, or not all took part in an average: one was lost, or cannot reach the others."""


class RankLearners(LearnerProcess):
    """The learners of a rank; CollectiveError if it cannot meet the others, or average with them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        config = next(iter(self.learners.values())).config
        self._timeout = timedelta(seconds=config.worker_health_probe_timeout_s)

    def join(self, host: str, port: int) -> None:
        """Meet the others there; returns when all have come."""
        # PyTorch numbers its groups, and ranks meet under the same number only: a meeting that failed must not count
        torch.distributed.distributed_c10d._world.group_count = 0
        with collective():
            super().join(host, port)

    def _average(self, gradient: torch.Tensor) -> None:
        with collective():
            super()._average(gradient)


@contextmanager
def collective() -> Iterator[None]:
    """Raise CollectiveError for what PyTorch raises, such as that a connection was closed, or that time ran out."""
    try:
        yield
    except RuntimeError as error:
        raise CollectiveError(f"{type(error).__name__}: {error}") from error


class Rank(RolloutWorker):
    """A rollout worker that keeps its rollouts, and makes each update together with the other ranks."""

    learners: RankLearners

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._rollouts: dict[PolicyId, list[Rollout]] = {}

    def open(self, rank: int, world_size: int) -> Address:
        """Leave the other ranks and make new learners; return where all meet next, if this is the first rank."""
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        learner_class = load(self.config.algorithm_class, "algorithm").learner_class
        self.learners = RankLearners(learner_class, in_worker(self.config), self.spaces, rank, world_size)
        return self.learners.open() if rank == 0 else ("", 0)

    def meet(self, address: Address, held: Held) -> CollectiveError | None:
        """Meet the other ranks at `address` and go on from what one of them held; returns why they did not all come."""
        try:
            self.learners.join(*address)
        except CollectiveError as error:
            return error
        state, version, timestep = held
        self.learners.set_state(state)
        self.set_weights(self.learners.weights(), version, timestep)
        return None

    def held(self) -> Held:
        """Return what the next ranks can go on from."""
        return self.learners.state(), self.policy_version, self.timestep

    def learned_weights(self) -> Weights:
        """The parameters of every policy."""
        return self.learners.weights()

    def set_learned_weights(self, weights: Weights) -> None:
        """Overwrite the parameters."""
        self.learners.set_weights(weights)

    def sample_share(self, steps: int, share: int) -> list[Sample]:
        """Sample fragments of `steps` in each environment until there are `share` steps; the rollouts are kept."""
        self._rollouts = {}
        samples: list[Sample] = []
        while sum(sample.progress for sample in samples) < share:
            sample = self.sample(steps)
            for policy_id, rollout in sample.rollouts.items():
                self._rollouts.setdefault(policy_id, []).append(rollout)
            samples.append(sample.without_rollouts())
        return samples

    def improve(
        self, policies: Sequence[PolicyId], timestep: int
    ) -> dict[PolicyId, Update] | TrainingError | CollectiveError:
        """Improve these policies on the rollouts.

        Returns the error, with the state as before, if the ranks could not do so together, or if all have the same
        error, such as that of a gradient that is not finite.
        """
        before = self.learners.state()
        try:
            updates = self.learners.update({name: concat_columns(self._rollouts[name]) for name in policies}, timestep)
        except (CollectiveError, TrainingError) as error:
            self.learners.set_state(before)
            return error
        self.set_weights(self.learners.weights(), self.policy_version + 1, timestep)
        return updates
