"""How data flows between workers, replay and learners: one plain loop per kind of algorithm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reef.batch import Rollout, concat_columns
from reef.learn.learner import Stats
from reef.types import PolicyId

if TYPE_CHECKING:
    from reef.run.algorithm import Algorithm


def on_policy(algorithm: Algorithm) -> dict[PolicyId, Stats]:
    """Sample a train batch with the newest weights, learn from it once, publish the weights."""
    with algorithm.timer("sample"):
        rollouts: dict[PolicyId, list[Rollout]] = {}
        steps = 0
        while steps < algorithm.config.total_train_batch_size:
            for sample in algorithm.sample():
                steps += sample.env_steps
                for policy_id, rollout in sample.rollouts.items():
                    rollouts.setdefault(policy_id, []).append(rollout)
    with algorithm.timer("learn"):
        batches = {policy_id: concat_columns(parts) for policy_id, parts in rollouts.items()}
        stats = algorithm.learners.update(batches, algorithm.timestep)
        algorithm.count_trained(steps)
    algorithm.publish_weights()
    return stats
