"""Sample, learn, publish: the loop of algorithms that train on what they just sampled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reef.batch import Rollout, concat_columns
from reef.learn.learner_queue import TrainBatch
from reef.types import PolicyId, Stats

if TYPE_CHECKING:
    from reef.run.algorithm import Algorithm


def on_policy(algorithm: Algorithm) -> dict[PolicyId, Stats]:
    """Sample a train batch with the newest weights, learn from it once, publish the weights, merge the filters."""
    with algorithm.timer("sample"):
        samples = algorithm.collected
        # dead steps are progress too, or a few of them would cost one more round
        while sum(sample.progress for sample in samples) < algorithm.config.enough_steps:
            samples += algorithm.sample()
            if algorithm.is_idle:
                return {}
        algorithm.collected = []
        rollouts: dict[PolicyId, list[Rollout]] = {}
        for sample in samples:
            for policy_id, rollout in sample.rollouts.items():
                rollouts.setdefault(policy_id, []).append(rollout)
    with algorithm.timer("learn"):
        batches = {policy_id: concat_columns(parts) for policy_id, parts in rollouts.items()}
        updates = algorithm.learn(batches)
        steps = sum(sample.env_steps for sample in samples)
        algorithm.count_trained(steps, sum(len(batches[policy_id]) for policy_id in updates))
    ages = TrainBatch(rollouts).staleness(algorithm.policy_version) if algorithm.config.uses_policy_server else {}
    algorithm.publish_weights()
    algorithm.synchronize_filters()
    return {policy_id: update.stats | ages.get(policy_id, {}) for policy_id, update in updates.items()}
