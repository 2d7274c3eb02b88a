"""Common parts of algorithms that learn from replayed transitions: settings, learner with target network, loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reef.batch import Transitions
from reef.config import AlgorithmConfig, setting
from reef.learn.learner import Learner
from reef.learn.minibatches import in_order
from reef.nn.gradients import Columns
from reef.nn.targets import Target
from reef.replay.memory import ReplayMemory, check_memory
from reef.replay.settings import ReplayBufferConfig
from reef.run.algorithm import Algorithm
from reef.run.checkpoint import restoring
from reef.run.flows.replay import replay
from reef.types import Array, PolicyId, State, Stats


class OffPolicyConfig(AlgorithmConfig):
    """Settings of algorithms that learn from replayed transitions."""

    replay_buffer_config: ReplayBufferConfig = setting({}, "The replay buffer; see its settings.")
    num_steps_sampled_before_learning_starts: int = setting(
        1000, "Environment steps that only fill the buffer.", minimum=0, unit="steps"
    )
    training_intensity: float | None = setting(
        None,
        "Replayed steps per sampled step, for example train_batch_size / 4 for a gradient step every 4 environment "
        "steps; null makes one gradient step per round of samples.",
        above=0.0,
    )
    n_step: int = setting(1, "Rewards summed before the value of a later state is used.", minimum=1, unit="steps")

    def updates_due(self, before: int, after: int) -> int:
        """Number of gradient steps due when the sampled environment steps have grown from `before` to `after`."""
        if after < self.num_steps_sampled_before_learning_starts:
            return 0
        if self.training_intensity is None:
            return 1
        per_step = self.training_intensity / self.total_train_batch_size
        return int(after * per_step) - int(before * per_step)

    def problems(self) -> Iterator[str]:
        """Yield contradictions between these settings."""
        yield from super().problems()
        if self.num_learner_workers > 1 and self.total_train_batch_size % self.num_learner_workers:
            yield (
                f"train_batch_size={self.train_batch_size}: num_learner_workers={self.num_learner_workers} cannot "
                "share it evenly. Set train_batch_size_per_learner instead."
            )


class ReplayingLearner(Learner[Transitions]):
    """One gradient step per `train_batch_size` rows; a subclass creates `target` in `setup`."""

    learns_from = Transitions
    target: Target[Any]

    def minibatches(self, columns: Columns) -> Iterator[Columns]:
        """Yield the sampled rows in their order."""
        return in_order(columns, self.minibatch_size, self.rank, self.world_size)

    def set_weights(self, weights: Array) -> None:
        """Overwrite the parameters, and copy them to the target: its old values would pull the new ones back."""
        super().set_weights(weights)
        self.target.copy_source()

    def state(self) -> State:
        """The learner's state with the target network."""
        return super().state() | {"target": self.target.state()}

    def set_state(self, state: State) -> None:
        """Restore what `state` returned."""
        super().set_state(state)
        self.target.set_state(state["target"])


class ReplayingAlgorithm(Algorithm):
    """Sample a fragment, store it, learn from replayed transitions, publish the weights."""

    config: OffPolicyConfig

    def setup(self) -> None:
        """Create the replay memory."""
        config = self.config
        self.memory = ReplayMemory(
            config.replay_buffer_config, n_step=config.n_step, gamma=config.gamma, seed=config.seed
        )

    def training_step(self) -> dict[PolicyId, Stats]:
        """One iteration of the replay flow."""
        return replay(self, self.memory, self.config.updates_due)

    def state(self) -> State:
        """The algorithm's state with the replay memory."""
        return super().state() | {"memory": self.memory.state()}

    def set_state(self, state: State) -> None:
        """Restore what `state` returned."""
        super().set_state(state)
        with restoring("its memory"):
            memory = state["memory"]
            policies = self.workers.local_worker().policy_map
            check_memory(memory, {name: (one.observation_layout, one.action_layout) for name, one in policies.items()})
            self.memory.set_state(memory)
