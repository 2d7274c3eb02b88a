"""Workers that learn together from what each of them sampled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reef.batch import KeptRollouts
from reef.learn.learner import Update
from reef.learn.learners import Ranks
from reef.types import PolicyId, Stats

if TYPE_CHECKING:
    from reef.run.algorithm import Algorithm


def in_ranks(algorithm: Algorithm, ranks: Ranks) -> dict[PolicyId, Stats]:
    """Let every rank sample its share of a train batch, and all make the update together; then merge the filters.

    What was sampled stays in the ranks. It is sampled again if all that had any were lost before the update.
    """
    updates: dict[PolicyId, Update] = {}
    while not updates:
        algorithm.deadline.end_if_over()
        steps: dict[PolicyId, dict[int, int]] = {}
        env_steps = 0
        with algorithm.timer("sample"):
            for sample in ranks.sample():
                algorithm.count_sampled(sample)
                env_steps += sample.env_steps
                for policy_id, count in sample.agent_steps.items():
                    own = steps.setdefault(policy_id, {})
                    own[sample.worker_index] = own.get(sample.worker_index, 0) + count
        with algorithm.timer("learn"):
            kept = {policy_id: KeptRollouts(own) for policy_id, own in steps.items()}
            updates = algorithm.learn(kept)
    algorithm.count_trained(env_steps, sum(len(kept[policy_id]) for policy_id in updates))
    algorithm.policy_version += 1
    algorithm.synchronize_filters()
    return {policy_id: update.stats for policy_id, update in updates.items()}
