"""Sample, learn, publish: the loop of algorithms that train on what they just sampled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reef.batch import Rollout, concat_columns
from reef.types import PolicyId, Stats

if TYPE_CHECKING:
    from reef.run.algorithm import Algorithm


def on_policy(algorithm: Algorithm) -> dict[PolicyId, Stats]:
    """Sample a train batch with the newest weights, learn from it once, publish the weights, merge the filters."""
    with algorithm.timer("sample"):
        rollouts: dict[PolicyId, list[Rollout]] = {}
        steps = 0
        progress = 0  # towards the batch; dead steps count here, or a few of them would cost one more round
        while progress < algorithm.config.enough_steps:
            for sample in algorithm.sample():
                steps += sample.env_steps
                progress += sample.progress
                for policy_id, rollout in sample.rollouts.items():
                    rollouts.setdefault(policy_id, []).append(rollout)
    with algorithm.timer("learn"):
        batches = {policy_id: concat_columns(parts) for policy_id, parts in rollouts.items()}
        updates = algorithm.learn(batches)
        algorithm.count_trained(steps, sum(len(batches[policy_id]) for policy_id in updates))
    algorithm.publish_weights()
    algorithm.synchronize_filters()
    return {policy_id: update.stats for policy_id, update in updates.items()}
