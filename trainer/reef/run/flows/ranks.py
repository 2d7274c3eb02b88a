"""Workers that learn together from what each of them sampled."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from reef.batch import KeptRollouts
from reef.learn.learners import Ranks
from reef.types import PolicyId, Stats

if TYPE_CHECKING:
    from reef.run.algorithm import Algorithm


def in_ranks(algorithm: Algorithm, ranks: Ranks) -> dict[PolicyId, Stats]:
    """Let every rank sample its share of a train batch, and all make the update together; then merge the filters.

    What was sampled stays in the ranks. It is sampled again if all that had any were lost before the update, and not if
    no policy is to learn from it. The steps of a rank that was lost before the update count as sampled, and not as
    trained.
    """
    while True:
        algorithm.deadline.end_if_over()
        steps: dict[PolicyId, Counter[int]] = {}
        env_steps: Counter[int] = Counter()
        with algorithm.timer("sample"):
            for sample in ranks.sample():
                algorithm.count_sampled(sample)
                env_steps[sample.worker_index] += sample.env_steps
                for policy_id, count in sample.agent_steps.items():
                    steps.setdefault(policy_id, Counter())[sample.worker_index] += count
        with algorithm.timer("learn"):
            updates = algorithm.learn({policy_id: KeptRollouts(own) for policy_id, own in steps.items()})
        if ranks.updated:
            break
    agent_steps = sum(steps[policy_id][rank] for policy_id in updates for rank in ranks.updated)
    algorithm.count_trained(sum(env_steps[rank] for rank in ranks.updated), agent_steps)
    algorithm.policy_version += 1
    algorithm.synchronize_filters()
    return {policy_id: update.stats for policy_id, update in updates.items()}
