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
    sequences, of which the learner makes n gradient steps. The TD errors come back as priorities. In lockstep each
    gradient step is a call of its own, because the agents that acted decide how many rows it has.
    """
    before = algorithm.timestep
    with algorithm.timer("sample"):
        for sample in algorithm.sample():
            memory.add(sample)
    updates = updates_due(before, algorithm.timestep)
    stats: dict[PolicyId, Stats] = {}
    updates_per_call = 1 if memory.lockstep_envs else max(updates, 1)
    for _ in range(0, updates, updates_per_call):
        stats |= _learn(algorithm, memory, updates_per_call * rows_per_update)
    # also without an update: exploration schedules follow the steps that go with the weights
    algorithm.publish_weights()
    algorithm.synchronize_filters()
    return stats


def replay_recorded(algorithm: Algorithm, memory: ReplayMemory, rows_per_update: int) -> dict[PolicyId, Stats]:
    """Learn from a batch of a memory that recorded episodes have filled; its steps count as sampled."""
    algorithm.deadline.end_if_over()
    for counter in ("num_env_steps_sampled", "num_agent_steps_sampled"):
        algorithm.counters[counter] += rows_per_update
    stats = _learn(algorithm, memory, rows_per_update)
    algorithm.publish_weights()
    return stats


def _learn(algorithm: Algorithm, memory: ReplayMemory, rows: int) -> dict[PolicyId, Stats]:
    """Learn from replayed rows of each policy; in lockstep from the transitions of its agents in these steps."""
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
        env_steps = rows if memory.lockstep_envs else max(steps, default=0)
        algorithm.count_trained(env_steps, sum(steps))
    return {policy_id: update.stats for policy_id, update in learned.items()}
