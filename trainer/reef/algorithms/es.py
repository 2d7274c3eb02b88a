"""Evolution strategies (Salimans et al. 2017, algorithm 2): a gradient from the returns of perturbed weights.

Workers play an episode with theta + sigma noise and one with theta - sigma noise, and send indices of the noise and
returns alone -> centered ranks -> a weighted sum of the noise is the gradient -> Adam -> new weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from reef.batch import Perturbations, Sample
from reef.config import AlgorithmConfig, Scheduled, default, setting
from reef.config.ignored import Network, ignored, ignored_without_actor_critic
from reef.learn.learner import Learner
from reef.nn.gradients import Columns, Loss
from reef.nn.perturbed import PerturbedPolicy
from reef.rollout.worker import RolloutWorker
from reef.run.algorithm import Algorithm
from reef.spaces import Space
from reef.types import Array, PolicyId, State, Stats

# They are not read: episodes are whole, returns are not discounted, and there are no gradients of outputs.
WITHOUT_EFFECT = ("gamma", "rollout_fragment_length", "batch_mode", "sample_async", "torch_compile_learner")


class ESConfig(AlgorithmConfig):
    """Settings of ES."""

    policies_may_change: ClassVar[bool] = False
    algorithm: ClassVar[str] = "ES"
    algorithm_class: ClassVar[str] = "reef.algorithms.es:ES"
    policy_class: ClassVar[str] = "reef.algorithms.es:perturbed_policy"
    agents_share_a_policy: ClassVar[bool] = False  # it perturbs the weights of one agent in each environment

    lr: Scheduled = default(0.01)
    train_batch_size: int = default(10_000)
    explore: bool = default(False)
    observation_filter: str = default("MeanStdFilter")
    episodes_per_batch: int = setting(1000, "Fewest episodes of perturbed policies per update.", minimum=2)
    noise_stdev: float = setting(0.02, "Standard deviation of the noise added to the weights.", above=0.0)
    noise_size: int = setting(
        25_000_000, "Numbers in the table of noise, 4 bytes each, which the processes of a node share.", minimum=1
    )
    l2_coeff: float = setting(0.005, "Weight of half the squared length of the weights in the loss.", minimum=0.0)
    eval_prob: float = setting(
        0.003,
        "Episodes of the unperturbed policy for each perturbed one; see eval_return_mean.",
        minimum=0.0,
        maximum=1.0,
    )

    def problems(self) -> Iterator[str]:
        """Yield contradictions between these settings."""
        yield from super().problems()
        if len(self.policies) > 1 or any(map(self.own_settings, self.policies)):
            yield (
                f"policies={list(self.policies)}: not available yet with ES, which perturbs a single policy without "
                "settings of its own. Leave it out."
            )
        if self.learner_connector is not None:
            yield (
                f"learner_connector={self.learner_connector!r}: ES learns from returns of episodes and has no train "
                "batch of steps. Leave it out."
            )
        if self.num_learner_workers:
            yield f"num_learner_workers={self.num_learner_workers}: an update of ES is one sum. Leave it at 0."

    def ignored_settings(self, network: Network) -> Iterator[str]:
        """Yield notes for an actor without a critic, and for what ES does not read."""
        yield from ignored(self, "with ES", *WITHOUT_EFFECT)
        if not (self.explore or self.evaluation_config.get("explore")):
            yield from ignored(self, "with explore=False", "exploration_config")
        yield from ignored_without_actor_critic(self, network, "on an actor without a critic")


def perturbed_policy(config: ESConfig, observation_space: Space, action_space: Space) -> PerturbedPolicy:
    """Build the network for these settings."""
    return PerturbedPolicy(config, observation_space, action_space, noise_size=config.noise_size)


class ESLearner(Learner[Perturbations]):
    """One gradient step per batch of perturbations."""

    learns_from = Perturbations
    config: ESConfig
    policy: PerturbedPolicy

    def prepare(self, batch: Perturbations) -> Columns:
        """Return the estimated gradient of the fitness (not divided by sigma, like the authors' code): [P]."""
        fitness = centered_ranks(batch.returns)
        weights = ((fitness[:, 0] - fitness[:, 1]) / batch.returns.size).astype(np.float32)
        gradient = np.zeros(self.policy.flat.vector.numel(), np.float32)
        for rows in np.array_split(np.arange(len(batch)), max(len(batch) // 100, 1)):  # a few rows of noise at a time
            gradient += weights[rows] @ self.policy.noise(batch.indices[rows])
        return {"gradient": torch.from_numpy(gradient).to(self.device)}

    def minibatches(self, columns: Columns) -> Iterator[Columns]:
        """All at once."""
        yield columns

    def loss(self, outputs: Tensor, minibatch: Columns) -> Loss:
        """Minus the fitness, to first order, and the squared length of the weights; `outputs`: the weights [P]."""
        length = 0.5 * outputs.square().sum()
        loss = self.config.l2_coeff * length - outputs @ minibatch["gradient"]
        return Loss(loss, {"weights_norm": (2 * length.detach()).sqrt()})


def centered_ranks(returns: Array) -> Array:
    """The ranks of the returns, from -0.5 to 0.5; equal ones share the mean of their ranks."""
    _, places, counts = np.unique(returns, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks = (last - 1 - (counts - 1) / 2)[places].reshape(returns.shape)
    return ranks / max(returns.size - 1, 1) - 0.5


def play(tasks: dict[int, tuple[Array, Array]], worker: RolloutWorker) -> tuple[list[Sample], list[float]]:
    """Play an episode for each task of a worker: the index of a noise, and the factor by which it is added.

    `tasks`: [n] and [n] by index of the worker. Returns the samples, without rollouts, and the returns [n].
    """
    samples: list[Sample] = []
    returns: list[float] = []
    if worker.worker_index in tasks:
        (policy,), columns = worker.policy_map.values(), worker.config.num_envs_per_worker
        assert isinstance(policy, PerturbedPolicy)
        indices, factors = tasks[worker.worker_index]
        for start in range(0, len(indices), columns):
            factor = factors[start : start + columns]
            noise = policy.noise(indices[start : start + columns]) * factor[:, None]
            missing = np.zeros((columns - len(factor), noise.shape[1]), np.float32)
            policy.perturb(np.concatenate([noise, missing]))
            try:
                sample = worker.sample_episodes(len(factor))
            finally:
                policy.perturb(None)
            (rollout,) = sample.rollouts.values()
            returns += (rollout.rewards * rollout.mask).sum(0, dtype=np.float64)[: len(factor)].tolist()
            samples.append(replace(sample, rollouts={}))
    return samples, returns


class ES(Algorithm):
    """Rounds of perturbed episodes on all workers until there are enough, one update, new weights."""

    config_class = ESConfig
    learner_class = ESLearner
    config: ESConfig

    def setup(self) -> None:
        """Make the generator of the noise indices: workers draw none, so that no two of them draw the same."""
        self.generator = np.random.default_rng(self.config.seed)
        ((self.policy_id, policy),) = self.workers.local_worker().policy_map.items()
        self.places = self.config.noise_size - policy.flat.vector.numel() + 1

    def training_step(self) -> dict[PolicyId, Stats]:
        """One update."""
        config, evaluated = self.config, []
        indices: list[Array] = []
        returns: list[Array] = []
        started = self.timestep
        with self.timer("sample"):
            enough = config.episodes_per_batch, config.train_batch_size
            while 2 * sum(map(len, indices)) < enough[0] or self.timestep - started < enough[1]:
                for noise, pairs, own in self.round():
                    indices.append(noise)
                    returns.append(pairs)
                    evaluated += own
        with self.timer("learn"):
            batch = Perturbations(np.concatenate(indices), np.concatenate(returns))
            learned = self.learn({self.policy_id: batch})
            steps = self.timestep - started
            self.count_trained(steps, steps if learned else 0)
        self.publish_weights()
        self.synchronize_filters()
        stats: Stats = {"episodes": batch.returns.size, "return_std": float(batch.returns.std())}
        if evaluated:
            stats["eval_return_mean"] = float(np.mean(evaluated))
        return {policy_id: update.stats | stats for policy_id, update in learned.items()}

    def round(self) -> Iterator[tuple[Array, Array, list[float]]]:
        """Give each worker perturbations for all its environments; yield indices, returns, and unperturbed returns."""
        self.deadline.end_if_over()
        pairs = max(self.config.num_envs_per_worker // 2, 1)
        tasks = {}
        for index in self.workers.healthy:
            noise = self.generator.integers(self.places, size=pairs)
            unperturbed = int((self.generator.random(2 * pairs) < self.config.eval_prob).sum())
            nothing = np.zeros(unperturbed, np.int64)
            factors = np.repeat([1.0, -1.0, 0.0], [pairs, pairs, unperturbed]).astype(np.float32)
            tasks[index] = np.concatenate([noise, noise, nothing]), factors * np.float32(self.config.noise_stdev)
        for samples, returns in self.workers.collect(partial(play, tasks)):
            for sample in samples:
                self.count_sampled(sample)
                # The rollouts, by which they are counted, stay in the worker; there is one agent.
                self.counters["num_agent_steps_sampled"] += sample.env_steps
            if samples:
                noise = tasks[samples[0].worker_index][0][:pairs]
                yield noise, np.array(returns[: 2 * pairs]).reshape(2, pairs).T, returns[2 * pairs :]

    def state(self) -> State:
        """The algorithm's state with the generator."""
        return super().state() | {"noise": self.generator.bit_generator.state}

    def set_state(self, state: State) -> None:
        """Restore what `state` returned."""
        super().set_state(state)
        self.generator.bit_generator.state = state["noise"]
