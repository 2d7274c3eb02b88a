"""Algorithms that learn from replayed transitions, and their learners, which have a target network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reef.batch import Transitions
from reef.learn.learner import Learner
from reef.learn.minibatches import in_order
from reef.nn.gradients import Columns
from reef.nn.targets import Target
from reef.replay.memory import ReplayMemory, check_memory
from reef.replay.settings import OffPolicyConfig
from reef.run.algorithm import Algorithm
from reef.run.checkpoint import restoring
from reef.run.flows import replay
from reef.types import Array, PolicyId, State, Stats


class ReplayingLearner(Learner[Transitions]):
    """One gradient step per `train_batch_size` rows; `setup` of a subclass makes the `target`."""

    learns_from = Transitions
    target: Target[Any]

    def minibatches(self, columns: Columns) -> Iterator[Columns]:
        """The drawn rows as they come."""
        return in_order(columns, self.minibatch_size, self.rank, self.world_size)

    def set_weights(self, weights: Array) -> None:
        """As `Learner.set_weights`; the target becomes a copy: the old one's values would pull them back."""
        super().set_weights(weights)
        self.target.copy_source()

    def state(self) -> State:
        """Adds the target network."""
        return super().state() | {"target": self.target.state()}

    def set_state(self, state: State) -> None:
        """The reverse of `state`."""
        super().set_state(state)
        self.target.set_state(state["target"])


class ReplayingAlgorithm(Algorithm):
    """Sample a fragment, store it, learn from replayed transitions, publish the weights."""

    config: OffPolicyConfig

    def setup(self) -> None:
        """Make room for what is remembered."""
        self.memory = ReplayMemory(self.config)

    def training_step(self) -> dict[PolicyId, Stats]:
        """One round of the replay flow."""
        return replay(self, self.config, self.memory)

    def state(self) -> State:
        """Adds what is remembered."""
        return super().state() | {"memory": self.memory.state()}

    def set_state(self, state: State) -> None:
        """The reverse of `state`."""
        super().set_state(state)
        with restoring("its memory"):
            memory = state["memory"]
            policies = self.workers.local_worker().policy_map
            check_memory(memory, {name: (one.observation_layout, one.action_layout) for name, one in policies.items()})
            self.memory.set_state(memory)
