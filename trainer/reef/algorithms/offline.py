"""Common parts of algorithms that learn from recorded episodes alone: settings and loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from reef.algorithms.replaying import OffPolicyConfig
from reef.config import AlgorithmConfig, default
from reef.config.groups.inputs import InputUse
from reef.config.ignored import Network, ignored
from reef.run.algorithm import Algorithm
from reef.run.checkpoint import restoring
from reef.run.flows.offline import offline
from reef.run.recorded.reading import steps_to_draw
from reef.types import PolicyId, State, Stats


class OfflineConfig(AlgorithmConfig):
    """Settings of what is read. The environment gives the spaces, and evaluation plays in it; training does not."""

    policies_may_change: ClassVar[bool] = False
    input_use: ClassVar[InputUse] = "needed"

    min_train_timesteps_per_iteration: int | None = default(50_000)

    @property
    def summed_rewards(self) -> int | None:
        """How many rewards of a step and its next ones are summed; None: all up to the episode's end."""
        return 1

    def ignored_settings(self, network: Network) -> Iterator[str]:
        """Yield notes for fragments, which evaluation alone samples, by steps or by a function of its own."""
        yield from super().ignored_settings(network)
        if self.evaluation_duration_unit == "episodes" and self.custom_evaluation_function is None:
            reason = f"with {self.label}, which learns from recorded steps and is evaluated on whole episodes"
            yield from ignored(self, reason, "batch_mode")
            if not self.num_rollout_workers:  # which read as many steps at a time
                yield from ignored(self, reason, "rollout_fragment_length")


class OfflineTransitionsConfig(OfflineConfig, OffPolicyConfig):
    """Of algorithms that learn from n-step transitions; they are drawn from the recorded steps, not from a replay."""

    min_sample_timesteps_per_iteration: int | None = default(None)
    min_train_timesteps_per_iteration: int | None = default(25_600)

    @property
    def summed_rewards(self) -> int | None:
        """`n_step`."""
        return self.n_step

    def ignored_settings(self, network: Network) -> Iterator[str]:
        """Yield notes for the replay memory that is not there."""
        yield from super().ignored_settings(network)
        keys = ("replay_buffer_config", "num_steps_sampled_before_learning_starts", "training_intensity")
        yield from ignored(self, f"with {self.label}, which learns from recorded steps", *keys)


class OfflineAlgorithm(Algorithm):
    """Draw recorded steps, learn from them, publish the weights."""

    config: OfflineConfig

    def setup(self) -> None:
        """Read the episodes."""
        (self.policy_id,) = self.workers.local_worker().runners
        self.recorded = steps_to_draw(self.config, self.workers, self.config.summed_rewards)

    def training_step(self) -> dict[PolicyId, Stats]:
        """One iteration of the offline flow."""
        return offline(self, self.recorded, self.policy_id)

    def state(self) -> State:
        """The algorithm's state with that of the draws."""
        return super().state() | {"recorded": self.recorded.state()}

    def set_state(self, state: State) -> None:
        """Restore what `state` returned."""
        super().set_state(state)
        with restoring("its draws of recorded steps"):
            self.recorded.set_state(state["recorded"])
