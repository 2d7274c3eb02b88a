"""Sample, store, learn from what is drawn: the loop of algorithms with a replay memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from reef.replay.memory import ReplayMemory
from reef.replay.sequences import count_steps
from reef.types import PolicyId, Stats

if TYPE_CHECKING:
    from reef.run.algorithm import Algorithm


def replay(
    algorithm: Algorithm,
    memory: ReplayMemory,
    updates_due: Callable[[int, int], int],  # gradient steps to make between two counts of environment steps
    rows_per_update: int,
) -> dict[PolicyId, Stats]:
    """Store one fragment of every worker, then learn from as many replayed batches as those steps call for.

    The batches of a round are drawn and learned from in one call: n times `rows_per_update` transitions or
    sequences, of which the learner makes n gradient steps. The TD errors come back as priorities.
    """
    before = algorithm.timestep
    with algorithm.timer("sample"):
        for sample in algorithm.sample():
            memory.add(sample)
    updates = updates_due(before, algorithm.timestep)
    if updates == 0:
        algorithm.publish_weights()  # exploration schedules follow the steps that go with them
        algorithm.synchronize_filters()
        return {}
    stats = _learn(algorithm, memory, updates * rows_per_update)
    algorithm.synchronize_filters()
    return stats


def replay_recorded(algorithm: Algorithm, memory: ReplayMemory, rows_per_update: int) -> dict[PolicyId, Stats]:
    """Learn from a batch of a memory that recorded episodes have filled; its steps count as sampled."""
    algorithm.deadline.end_if_over()
    for counter in ("num_env_steps_sampled", "num_agent_steps_sampled"):
        algorithm.counters[counter] += rows_per_update
    return _learn(algorithm, memory, rows_per_update)


def _learn(algorithm: Algorithm, memory: ReplayMemory, rows: int) -> dict[PolicyId, Stats]:
    """Learn from replayed rows of each policy, and publish the weights."""
    with algorithm.timer("learn"):
        batches = memory.sample(rows)
        learned = algorithm.learn(batches)
        for policy_id, update in learned.items():
            batch = batches[policy_id]
            if "indices" in batch.extras:
                memory.update_priorities(policy_id, batch.extras["indices"], update.rows["td_errors"].reshape(-1))
        # a burn-in is read without a gradient
        burn_in = memory.sequences.burn_in if memory.sequences else 0
        steps = [count_steps(batches[policy_id], burn_in) for policy_id in learned]
        algorithm.count_trained(max(steps, default=0), sum(steps))
    algorithm.publish_weights()
    return {policy_id: update.stats for policy_id, update in learned.items()}
