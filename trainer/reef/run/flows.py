"""How data flows between workers, replay and learners: one plain loop per kind of algorithm."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from reef.batch import KeptRollouts, Rollout, concat_columns
from reef.learn.learner import Update
from reef.learn.learner_queue import LearnerQueue, TrainBatch
from reef.learn.learners import Ranks
from reef.learn.pace import Pace
from reef.offline.recorded import RecordedSteps
from reef.replay.memory import ReplayMemory
from reef.replay.shards import Drawn, ReplayShards
from reef.run.events import BatchLearned
from reef.types import PolicyId, Stats

if TYPE_CHECKING:
    from reef.run.algorithm import Algorithm

# How long to wait for fragments while an update is computed elsewhere, before looking at it.
LOOK_AGAIN_S = 0.02


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


def replay(
    algorithm: Algorithm,
    memory: ReplayMemory,
    updates_due: Callable[[int, int], int],  # gradient steps to make between two counts of environment steps
) -> dict[PolicyId, Stats]:
    """Store one fragment of every worker, then learn from as many replayed batches as those steps call for.

    The batches of a round are drawn and learned from in one call: n times `train_batch_size` transitions, of which the
    learner makes n gradient steps. The TD errors come back as priorities.
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
    with algorithm.timer("learn"):
        batches = memory.sample(updates * algorithm.config.total_train_batch_size)
        learned = algorithm.learn(batches)
        for policy_id, update in learned.items():
            batch = batches[policy_id]
            if "indices" in batch.extras:
                memory.update_priorities(policy_id, batch.extras["indices"], update.rows["td_errors"].reshape(-1))
        steps = [len(batches[policy_id]) for policy_id in learned]
        algorithm.count_trained(max(steps), sum(steps))
    algorithm.publish_weights()
    algorithm.synchronize_filters()
    return {policy_id: update.stats for policy_id, update in learned.items()}


def async_rollouts(algorithm: Algorithm, queue: LearnerQueue, broadcast_interval: int) -> dict[PolicyId, Stats]:
    """Wait for one update, while workers sample without waiting for it or for each other.

    The oldest batch of the queue is learned from; whenever none is there, or learners in other processes are at work,
    fragments are collected, and every worker is asked for as many as it may have in flight.
    """
    learning: TrainBatch | None = None
    while True:
        algorithm.deadline.end_if_over()
        with algorithm.timer("learn"):
            if learning is None and (learning := queue.pop()) is not None:
                batches = learning.rollouts()
                learned = {policy_id: batches[policy_id] for policy_id in algorithm.policies_to_learn(batches)}
                algorithm.learners.submit(learned, algorithm.timestep)
            updates = algorithm.learners.results(timeout_s=0.0)
        if learning is not None and updates:
            return _after_update(algorithm, queue, broadcast_interval, learning, updates[0])
        with algorithm.timer("sample"):
            for index in algorithm.workers.healthy:
                while algorithm.workers.request(index):
                    pass
            for sample in algorithm.workers.ready(LOOK_AGAIN_S if learning else None):
                algorithm.count_sampled(sample)
                algorithm.counters["num_batches_dropped"] += queue.add(sample)


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


def _after_update(
    algorithm: Algorithm,
    queue: LearnerQueue,
    broadcast_interval: int,
    batch: TrainBatch,
    updates: dict[PolicyId, Update],
) -> dict[PolicyId, Stats]:
    """Count what was learned from, and publish the weights every `broadcast_interval` updates.

    A version is an update, so that staleness does not depend on how often the weights are published.
    """
    algorithm.events.emit(BatchLearned, updates)
    steps = {policy_id: sum(map(len, parts)) for policy_id, parts in batch.fragments.items()}
    algorithm.count_trained(batch.env_steps, sum(steps[policy_id] for policy_id in updates))
    staleness = batch.staleness(algorithm.policy_version + queue.unpublished)
    queue.unpublished += 1
    if queue.unpublished >= broadcast_interval:
        algorithm.policy_version += queue.unpublished - 1
        algorithm.publish_weights()
        queue.unpublished = 0
    return {policy_id: update.stats | staleness[policy_id] for policy_id, update in updates.items()}


def offline(algorithm: Algorithm, recorded: RecordedSteps, policy_id: PolicyId) -> dict[PolicyId, Stats]:
    """Learn from a batch of recorded steps, which count as sampled."""
    size = algorithm.config.total_train_batch_size
    algorithm.deadline.end_if_over()
    with algorithm.timer("sample"):
        batch = recorded.sample(size)
        for counter in ("num_env_steps_sampled", "num_agent_steps_sampled"):
            algorithm.counters[counter] += size
    with algorithm.timer("learn"):
        updates = algorithm.learn({policy_id: batch})
        algorithm.count_trained(size, size)
    algorithm.publish_weights()
    return {policy_id: update.stats for policy_id, update in updates.items()}


def async_replay(algorithm: Algorithm, shards: ReplayShards, pace: Pace) -> dict[PolicyId, Stats]:
    """Wait for one update, while workers sample and shards draw batches without waiting for each other.

    `pace` says how many updates the sampled steps call for, and when sampling has to wait for them. Before learning
    starts, a round ends with the first fragments.
    """
    learning: Drawn | None = None
    while True:
        algorithm.deadline.end_if_over()
        sampled, trained = algorithm.timestep, algorithm.counters["num_env_steps_trained"]
        due = pace.updates_due(sampled, trained, stored=shards.stored)
        while shards.num_requested + (learning is not None) < due and shards.request():
            pass
        is_busy = learning is not None or shards.num_requested > 0
        with algorithm.timer("sample"):
            for index in algorithm.workers.healthy if due <= pace.most_due else ():
                while algorithm.workers.request(index):
                    pass
            for sample in algorithm.workers.ready(0.0 if is_busy else None):
                algorithm.count_sampled(sample)
                shards.add(sample)
                pace.add(sample)
        with algorithm.timer("learn"):
            if learning is None and (learning := shards.take(LOOK_AGAIN_S)) is not None:
                batches = learning.batches
                learned = {policy_id: batches[policy_id] for policy_id in algorithm.policies_to_learn(batches)}
                algorithm.learners.submit(learned, algorithm.timestep)
            updates = algorithm.learners.results(LOOK_AGAIN_S)
        if learning is not None and updates:
            return _after_replay(algorithm, shards, pace, learning, updates[0])
        if not is_busy and shards.stored < pace.least_stored:
            _send_weights(algorithm, pace)  # exploration schedules follow the steps that go with them
            return {}


def _after_replay(
    algorithm: Algorithm, shards: ReplayShards, pace: Pace, drawn: Drawn, updates: dict[PolicyId, Update]
) -> dict[PolicyId, Stats]:
    """Count what was learned from, return priorities to the shard, and send weights to the workers they are due to."""
    algorithm.events.emit(BatchLearned, updates)
    steps = [len(drawn.batches[policy_id]) for policy_id in updates]
    algorithm.count_trained(max(steps, default=0), sum(steps))
    errors = {policy_id: update.rows["td_errors"].reshape(-1) for policy_id, update in updates.items()}
    shards.reprioritize(drawn, errors)
    stats = pace.staleness(algorithm.policy_version, algorithm.workers.healthy)
    algorithm.policy_version += 1
    _send_weights(algorithm, pace)
    stats |= {
        "samples_per_insert": pace.samples_per_insert(algorithm.timestep, algorithm.counters["num_env_steps_trained"]),
        "batches_waiting": shards.num_requested,
        "replay_size": shards.stored,
        "smallest_shard": min((shards.sizes[shard] for shard in shards.healthy), default=0),
    }
    return {policy_id: update.stats | stats for policy_id, update in updates.items()}


def _send_weights(algorithm: Algorithm, pace: Pace) -> None:
    if outdated := pace.take_outdated(algorithm.workers.healthy):
        with algorithm.timer("synch_weights"):
            weights = algorithm.learners.weights()
            for index in outdated:
                algorithm.workers.set_weights(weights, algorithm.policy_version, algorithm.timestep, to=index)
