"""Settings that all algorithms with a replay buffer share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from reef.config import AlgorithmConfig, setting
from reef.config.settings import Settings


class ReplayBufferConfig(Settings):
    """The replay buffer. Given as a mapping, it is merged over the algorithm's own defaults."""

    label: ClassVar[str] = "replay_buffer_config"
    prefix: ClassVar[str] = "replay_buffer_config."

    capacity: int = setting(50_000, "Transitions kept for each policy; the oldest go first.", minimum=1, unit="steps")
    prioritized_replay: bool = setting(True, "Replay transitions with large TD errors more often.")
    prioritized_replay_alpha: float = setting(
        0.6, "How much TD errors decide: 0 = not at all, 1 = in proportion.", minimum=0.0, maximum=1.0
    )
    prioritized_replay_beta: float = setting(
        0.4, "How far importance weights undo the preference: 1 = fully.", minimum=0.0, maximum=1.0
    )
    prioritized_replay_eps: float = setting(1e-6, "Added to TD errors, so that no priority is 0.", above=0.0)


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
        """Gradient steps to make when the sampled environment steps have grown from `before` to `after`."""
        if after < self.num_steps_sampled_before_learning_starts:
            return 0
        if self.training_intensity is None:
            return 1
        per_step = self.training_intensity / self.total_train_batch_size
        return int(after * per_step) - int(before * per_step)

    def problems(self) -> Iterator[str]:
        """Say what is wrong."""
        yield from super().problems()
        if self.num_learner_workers > 1 and self.total_train_batch_size % self.num_learner_workers:
            yield (
                f"train_batch_size={self.train_batch_size}: num_learner_workers={self.num_learner_workers} cannot "
                "share it evenly. Set train_batch_size_per_learner instead."
            )
