"""Learning from recorded steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from reef.batch import Transitions
from reef.types import PolicyId, Stats

if TYPE_CHECKING:
    from reef.run.algorithm import Algorithm


class DrawnSteps(Protocol):
    """Recorded steps."""

    def sample(self, count: int) -> Transitions:
        """[count] of them, drawn with replacement."""


def offline(algorithm: Algorithm, recorded: DrawnSteps, policy_id: PolicyId) -> dict[PolicyId, Stats]:
    """Learn from a batch of recorded steps, which count as sampled."""
    size = algorithm.config.total_train_batch_size
    algorithm.deadline.end_if_over()
    with algorithm.timer("sample"):
        batch = recorded.sample(size)
        for counter in ("num_env_steps_sampled", "num_agent_steps_sampled"):
            algorithm.counters[counter] += size
    with algorithm.timer("learn"):
        updates = algorithm.learn({policy_id: batch})
        algorithm.count_trained(size, size if updates else 0)
    algorithm.publish_weights(to=())  # workers read, and do not act
    return {policy_id: update.stats for policy_id, update in updates.items()}
