"""Asynchronous advantage actor-critic (Mnih et al. 2016, algorithm S3): workers that compute gradients.

Rollout [T, B] in a worker -> advantages by GAE -> gradient [P] -> one step in the driver -> new weights for the worker.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator
from typing import Any, ClassVar, Literal

import numpy as np

from reef.algorithms.a2c import A2CLearner
from reef.algorithms.asynchronous import AsynchronousConfig
from reef.batch import FragmentGradient, Rollout, Sample
from reef.config import Scheduled, default
from reef.config.ignored import Network, ignored
from reef.config.loading import load
from reef.learn.device import to_device
from reef.learn.learner import Update
from reef.learn.learners import in_worker, learners_of
from reef.learn.trained_parameters import not_finite
from reef.rollout.worker import RolloutWorker
from reef.run.algorithm import Algorithm
from reef.run.flows.gradients import gradients
from reef.types import PolicyId, Stats, Weights


class A3CConfig(AsynchronousConfig):
    """Settings of A3C."""

    policies_may_change: ClassVar[bool] = False
    algorithm: ClassVar[str] = "A3C"
    algorithm_class: ClassVar[str] = "reef.algorithms.a3c:A3C"
    worker_class: ClassVar[str] = "reef.algorithms.a3c:A3CWorker"

    lr: Scheduled = default(1e-4)
    grad_clip: float | None = default(40.0)
    rollout_fragment_length: int | Literal["auto"] = default(10)
    min_sample_timesteps_per_iteration: int | None = default(1000)
    vf_loss_coeff: float = default(0.5)
    entropy_coeff: float | list[list[float]] = default(0.01)
    normalize_advantages: bool = default(False)
    # a worker that waits for its new weights is behind by the gradients of the others alone
    max_requests_in_flight_per_sampler_worker: int = default(1)

    @property
    def weighs_actions(self) -> bool:
        """No: the policy's own actions alone give its gradient."""
        return False

    @property
    def staleness_limit(self) -> int:
        """`max_staleness`, by default that of a worker which is about 10 times slower than the others."""
        if self.max_staleness is not None:
            return self.max_staleness
        return 10 * max(self.num_rollout_workers, 1) * self.max_requests_in_flight_per_sampler_worker

    def problems(self) -> Iterator[str]:
        """Yield contradictions between these settings."""
        yield from super().problems()
        if self.rollout_fragment_length == "auto":
            yield "rollout_fragment_length='auto': A3C has no train batch to divide. Give a number of steps."
        if self.num_learner_workers:
            yield (
                f"num_learner_workers={self.num_learner_workers}: the gradients of A3C are computed by the rollout "
                "workers, and applied one at a time. Leave it at 0."
            )

    def batch_size_problems(self) -> Iterator[str]:
        """Yield nothing: every fragment is a batch."""
        yield from ()

    def ignored_settings(self, network: Network) -> Iterator[str]:
        """Yield notes for the size of batches."""
        yield from super().ignored_settings(network)
        yield from ignored(
            self, "with A3C, where every fragment is a batch", "train_batch_size", "train_batch_size_per_learner"
        )


class A3CLearner(A2CLearner):
    """A2C's loss: its gradient in a worker, and the step along such a gradient in the driver."""

    learns_from = FragmentGradient

    def gradient_of(self, batch: Rollout, timestep: int) -> FragmentGradient:
        """Compute the gradient of the loss of one fragment, by the present weights."""
        self.begin(timestep)
        batch, own = self.before_learning(batch) if self.changes_batches else (batch, {})
        (minibatch,) = self.minibatches(self.prepare(batch))
        flat = self.policy.flat
        flat.gradient.zero_()
        loss = self.parameters.gradient(minibatch)
        stats = {name: value.item() for name, value in loss.stats.items()} | {"total_loss": loss.value.item()} | own
        vector = np.array(flat.gradient.cpu().numpy())
        return FragmentGradient(vector, len(batch), batch.policy_version, stats)

    def update(self, batch: Any, timestep: int) -> Update:
        """Take one step along a gradient that a worker computed; raises TrainingError if it is not finite."""
        self.begin(timestep)
        gradient = to_device(batch.vector, self.device)
        norm = gradient.norm().item()
        if not math.isfinite(norm):
            raise not_finite(batch.stats["total_loss"], norm, {"gradient": gradient})
        self.policy.flat.gradient.copy_(gradient)
        self.parameters.step(norm)
        return Update(self.adapt(batch.stats | {"grad_gnorm": norm, "cur_lr": self.parameters.optimizer.lr}), {})


class A3CWorker(RolloutWorker):
    """A rollout worker that computes the gradients of what it samples; so it gets the critic's weights too."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        learner_class = load(self.config.algorithm_class, "algorithm").learner_class
        config = in_worker(self.config) if self.worker_index else self.config
        spaces = self.spaces if self.env is not None else {}  # a worker that only holds the policies learns nothing
        self.learners: dict[PolicyId, A3CLearner] = learners_of(learner_class, config, spaces)  # type: ignore[assignment]

    def sample(self, steps: int | None = None, reset_episodes: bool = False, episodes: int | None = None) -> Sample:
        """As that of a rollout worker, with the gradient of each trained policy in place of the rollouts."""
        sample = super().sample(steps, reset_episodes, episodes)
        found = {}
        for policy_id, weights in self.get_weights().items():
            rollout = sample.rollouts[policy_id]
            if len(rollout) and self.config.trains(policy_id, rollout):
                learner = self.learners[policy_id]
                learner.set_weights(weights)
                # what Dropout draws: a resumed run draws the same
                learner.generator.manual_seed(self.policy_version)
                found[policy_id] = learner.gradient_of(rollout, self.timestep)
        return sample.without_rollouts(found)

    def acting_weights(self, policies: Container[PolicyId] | None = None) -> Weights:
        """One flat vector for each of these policies, or of all, of all its parameters."""
        return {name: own for name, own in self.get_weights().items() if policies is None or name in policies}

    def load_acting_weights(self, weights: Weights) -> None:
        """Set what `acting_weights` of another worker returned."""
        for policy_id in weights.keys() & self.policy_map.keys():
            self.policy_map[policy_id].flat.load(weights[policy_id])


class A3C(Algorithm):
    """Workers compute gradients without waiting for each other, and the driver applies them as they come."""

    config: A3CConfig
    config_class = A3CConfig
    learner_class = A3CLearner

    def setup(self) -> None:
        """Count the gradients that are dropped."""
        self.counters["num_gradients_dropped"] = 0

    def training_step(self) -> dict[PolicyId, Stats]:
        """Apply the next gradients."""
        return gradients(self, self.config.staleness_limit)
