"""Deep Q-learning (Mnih et al. 2015) with the extensions of Rainbow (Hessel et al. 2018), each of which is optional.

Rollout [T, B] -> n-step transitions -> replay, uniform or prioritized -> TD errors against a target network -> new
weights. Double Q-learning, dueling heads, distributions over returns (C51) and noisy layers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor

from reef.algorithms.replaying import ReplayingAlgorithm
from reef.algorithms.simple_q import QLearningConfig, SimpleQLearner, take_actions
from reef.batch import Transitions
from reef.config import setting
from reef.config.ignored import Network, ignored, ignored_beside_custom_model, ignored_of_memory
from reef.learn.learner import Update
from reef.learn.replayed import ReplayedSequences
from reef.math.categorical import project
from reef.math.td import huber, td_targets, weighted_mean
from reef.nn.dueling import NoisyLinear, QPolicy, RecurrentQPolicy
from reef.nn.gradients import Columns, Loss
from reef.spaces import Space


class DQNConfig(QLearningConfig):
    """Settings of DQN."""

    algorithm: ClassVar[str] = "DQN"
    algorithm_class: ClassVar[str] = "reef.algorithms.dqn:DQN"
    policy_class: ClassVar[str] = "reef.algorithms.dqn:q_policy"
    possible_memories: ClassVar[tuple[str, ...]] = ("use_lstm",)
    of_the_network: ClassVar[tuple[str, ...]] = ("dueling", "hiddens", "num_atoms", "v_min", "v_max", "noisy")

    double_q: bool = setting(True, "Choose the next action by the online network, value it by the target network.")
    dueling: bool = setting(True, "Separate streams for state values and advantages.")
    hiddens: list[int] = setting(
        [256], "Sizes of the hidden layers of each stream, behind the model's encoder.", minimum=1
    )
    num_atoms: int = setting(
        1, "Atoms of the distributions over returns (C51 uses 51); 1 learns means only.", minimum=1
    )
    v_min: float = setting(-10.0, "Smallest return that the atoms can hold.")
    v_max: float = setting(10.0, "Largest return that the atoms can hold.")
    noisy: bool = setting(False, "Explore by noise on the weights of the streams, on top of exploration_config.")
    sigma0: float = setting(0.5, "First scale of that noise.", above=0.0)

    def problems(self) -> Iterator[str]:
        """Yield contradictions between these settings."""
        yield from super().problems()
        if self.num_atoms > 1 and self.v_min >= self.v_max:
            yield f"v_min={self.v_min}, v_max={self.v_max}: the atoms need v_min below v_max."

    def ignored_settings(self, network: Network) -> Iterator[str]:
        """Yield notes for Q-networks, whose streams use model.fcnet_activation even for image observations."""
        yield from ignored_of_memory(self)
        if self.model.custom_model:
            noise = () if any(isinstance(part, NoisyLinear) for part in network.modules()) else ("noisy",)
            yield from ignored_beside_custom_model(self, "dueling", "hiddens", "sigma0", *noise)
        else:
            yield from super().ignored_settings(network)
            if not self.noisy:
                yield from ignored(self, "without noisy", "sigma0")
        if self.num_atoms == 1:
            yield from ignored(self, "with num_atoms=1", "v_min", "v_max")


def q_policy(config: DQNConfig, observation_space: Space, action_space: Space) -> QPolicy:
    """Build the network for these settings."""
    return (RecurrentQPolicy if config.model.memories else QPolicy)(
        config,
        observation_space,
        action_space,
        dueling=config.dueling,
        hiddens=config.hiddens,
        num_atoms=config.num_atoms,
        v_min=config.v_min,
        v_max=config.v_max,
        noisy=config.noisy,
        sigma0=config.sigma0,
    )


class DQNLearner(SimpleQLearner):
    """Learns from TD errors against a target network: Huber loss, or cross-entropy between return distributions."""

    config: DQNConfig
    policy: QPolicy

    def setup(self) -> None:
        """Read sequences if the policy has a memory."""
        super().setup()
        self.sequences: ReplayedSequences | None = None
        if isinstance(self.policy, RecurrentQPolicy):
            config, lengths = self.config, self.config.sequences
            assert lengths is not None, "the policy has a memory"
            self.sequences = ReplayedSequences(
                self.policy,
                self.device,
                lengths,
                n_step=config.n_step,
                gamma=config.gamma,
                zero_states=config.replay_buffer_config.zero_init_states,
            )

    def prepare(self, batch: Transitions) -> Columns:
        """As for transitions; sequences are burned in by the online and the target network from the same state."""
        if self.sequences is None:
            return super().prepare(batch)
        replayed, target = self.sequences.read(batch), self.target.network
        with torch.no_grad():
            target.draw_noise(self.generator)
            logits = self.sequences.successors(target, replayed)
            chooser = target.expected(logits)
            if self.config.double_q:
                chooser = self.policy.expected(self.sequences.successors(self.sequences.policy, replayed))
            if self.policy.action_mask is not None:
                chooser = self.policy.masked(self.sequences.successor_obs(replayed), chooser)
            targets = self.bootstrapped(replayed.rewards, replayed.terminated, replayed.discounts, logits, chooser)
        return self.sequences.columns(batch, replayed, targets)

    def minibatches(self, columns: Columns) -> Iterator[Columns]:
        """Yield the sampled rows or sequences in their order."""
        if self.sequences is None:
            return super().minibatches(columns)
        return self.sequences.minibatches(columns, self.minibatch_size, self.rank, self.world_size)

    def targets(self, rewards: Tensor, next_obs: Tensor, terminated: Tensor, discounts: Tensor) -> Tensor:
        """Return the learning targets: [N] values, or [N, atoms] probabilities."""
        target = self.target.network
        target.draw_noise(self.generator)
        logits = target(next_obs)
        double_q = self.config.double_q
        chooser = self.policy.q_values(next_obs) if double_q else target.masked(next_obs, target.expected(logits))
        return self.bootstrapped(rewards, terminated, discounts, logits, chooser)

    def bootstrapped(
        self,
        rewards: Tensor,  # [N]
        terminated: Tensor,  # [N] bool
        discounts: Tensor,  # [N]
        logits: Tensor,  # [N, A] or [N, A, atoms], of the target network for the successors
        chooser: Tensor,  # [N, A] the Q-values that choose the action there
    ) -> Tensor:
        """Return the learning targets from the values of the successors."""
        best = take_actions(logits, chooser.argmax(-1))
        if self.config.num_atoms == 1:
            return td_targets(rewards, discounts, terminated, best)
        return project(torch.softmax(best, -1), rewards, discounts * ~terminated, self.policy.atoms)

    def step(self, minibatch: Columns) -> Loss:
        """One gradient step; noisy layers draw new noise first. A sequence has one TD error, for its priority."""
        self.policy.draw_noise(self.generator)
        loss = super().step(minibatch)
        return loss if self.sequences is None else self.sequences.with_priorities(loss, minibatch)

    def loss(self, outputs: Tensor, minibatch: Columns) -> Loss:
        """Mean loss of the logits, weighted if replay is prioritized; with atoms the TD error is the cross-entropy."""
        chosen, targets = take_actions(outputs, minibatch["actions"]), minibatch["targets"]
        if self.config.num_atoms == 1:
            losses, td_errors = huber(chosen, targets), chosen.detach() - targets
        else:
            losses = -(targets * torch.log_softmax(chosen, -1)).sum(-1)
            td_errors = losses.detach()
        loss = weighted_mean(losses, minibatch.get("weights"))
        return Loss(loss, {"mean_q": self.policy.expected(chosen.detach()).mean()}, {"td_errors": td_errors})

    def update(self, batch: Transitions, timestep: int) -> Update:
        """Update the policy; the rows in the result include "td_errors"."""
        update = super().update(batch, timestep)
        self.policy.draw_noise(None)
        return update


class DQN(ReplayingAlgorithm):
    """Sample a fragment, store it, learn from replayed transitions, publish the weights."""

    config_class = DQNConfig
    learner_class = DQNLearner
