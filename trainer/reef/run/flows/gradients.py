"""Workers that compute gradients, and a driver that applies each as it comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reef.types import PolicyId, Stats

if TYPE_CHECKING:
    from reef.run.algorithm import Algorithm


def gradients(algorithm: Algorithm) -> dict[PolicyId, Stats]:
    """Apply the gradients that workers have computed, one after the other, each as soon as it comes.

    Every worker has as many fragments requested as it may have, and gets the newest weights for each that it delivers.
    Staleness is the number of gradients that were applied since the weights of a gradient were published.
    """
    stats: dict[PolicyId, Stats] = {}
    ages: dict[PolicyId, list[int]] = {}
    while not stats:
        algorithm.deadline.end_if_over()
        with algorithm.timer("sample"):
            for index in algorithm.workers.healthy:
                while algorithm.workers.request(index):
                    pass
            samples = algorithm.workers.ready()
        for sample in samples:
            algorithm.count_sampled(sample)
            with algorithm.timer("learn"):
                updates = algorithm.learn(sample.gradients)
            if updates:
                steps = sum(len(sample.gradients[policy_id]) for policy_id in updates)
                algorithm.count_trained(sample.env_steps, steps)
            for policy_id, update in updates.items():
                found = ages.setdefault(policy_id, [])
                found.append(algorithm.policy_version - sample.gradients[policy_id].policy_version)
                staleness = {"staleness": sum(found) / len(found), "staleness_max": float(max(found))}
                stats[policy_id] = update.stats | staleness
            algorithm.publish_weights(to=sample.worker_index)
    return stats
