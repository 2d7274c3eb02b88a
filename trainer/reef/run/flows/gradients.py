"""Workers that compute gradients, and a driver that applies each as it comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reef.run.events import BatchLearned
from reef.types import PolicyId, Stats

if TYPE_CHECKING:
    from reef.run.algorithm import Algorithm


def gradients(algorithm: Algorithm, max_staleness: int) -> dict[PolicyId, Stats]:
    """Apply the gradients that workers have computed, one after the other, each as soon as it comes.

    Every worker has as many fragments requested as it may have, and gets the newest weights for each that it delivers.
    Staleness is the number of gradients that were applied since the weights of a gradient were published. A gradient
    with more than `max_staleness` is dropped and counted. A round whose fragments hold no gradient ends: no policy
    learns.
    """
    stats: dict[PolicyId, Stats] = {}
    ages: dict[PolicyId, list[int]] = {}
    computed = True
    while computed and not stats:
        algorithm.deadline.end_if_over()
        with algorithm.timer("sample"):
            for index in algorithm.workers.healthy:
                while algorithm.workers.request(index):
                    pass
            samples = algorithm.workers.ready()
        computed = not samples or any(sample.gradients for sample in samples)
        for sample in samples:
            algorithm.count_sampled(sample)
            staleness = {name: algorithm.policy_version - one.policy_version for name, one in sample.gradients.items()}
            fresh = {name: one for name, one in sample.gradients.items() if staleness[name] <= max_staleness}
            algorithm.counters["num_gradients_dropped"] += len(sample.gradients) - len(fresh)
            with algorithm.timer("learn"):  # the workers have decided which policies learn
                updates = algorithm.learners.update(fresh, algorithm.timestep) if fresh else {}
            if updates:
                algorithm.events.emit(BatchLearned, updates, fresh)
            algorithm.count_trained(sample.env_steps, sum(len(fresh[policy_id]) for policy_id in updates))
            for policy_id, update in updates.items():
                found = ages.setdefault(policy_id, [])
                found.append(staleness[policy_id])
                of_all = {"staleness": sum(found) / len(found), "staleness_max": float(max(found))}
                stats[policy_id] = update.stats | of_all
            algorithm.publish_weights(to=[sample.worker_index], is_new=bool(updates))
    algorithm.none_learns = not computed
    return stats
