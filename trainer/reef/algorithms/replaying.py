"""Algorithms that learn from replayed transitions."""

from __future__ import annotations

from reef.replay.memory import ReplayMemory, check_memory
from reef.replay.settings import OffPolicyConfig
from reef.run.algorithm import Algorithm
from reef.run.checkpoint import restoring
from reef.run.flows import replay
from reef.types import PolicyId, State, Stats


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
