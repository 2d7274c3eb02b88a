"""Workers that sample and a learner that learns, neither waiting for the other."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import TYPE_CHECKING

from reef.learn.learner import Update
from reef.learn.learner_queue import LearnerQueue, TrainBatch
from reef.run.events import BatchLearned
from reef.run.flows.recipients import Recipients
from reef.types import PolicyId, Stats

if TYPE_CHECKING:
    from reef.run.algorithm import Algorithm

# How long to wait for fragments while an update is computed elsewhere, before looking at it.
LOOK_AGAIN_S = 0.02
# Fragments to take in before the learner is looked at again: it would wait while many are there.
MOST_FRAGMENTS = 16


def async_rollouts(
    algorithm: Algorithm, queue: LearnerQueue, recipients: Recipients, broadcast_interval: int
) -> dict[PolicyId, Stats]:
    """Wait for one update, while workers sample without waiting for it or for each other.

    The next batch of the queue is learned from; whenever none is there, or learners in other processes are at work,
    fragments are collected, and every worker is asked for as many as it may have in flight.
    """
    learning: TrainBatch | None = None
    while True:
        algorithm.deadline.end_if_over()
        with algorithm.timer("learn"):
            if learning is None and (learning := _next_batch(algorithm, queue)) is not None:
                batches = learning.rollouts()
                learned = {policy_id: batches[policy_id] for policy_id in algorithm.policies_to_learn(batches)}
                algorithm.learners.submit(learned, algorithm.timestep)
            updates = algorithm.learners.results(timeout_s=0.0)
        if learning is not None and updates:
            return _after_update(algorithm, queue, recipients, broadcast_interval, learning, updates[0])
        with algorithm.timer("sample"):
            for index in algorithm.workers.healthy:
                while algorithm.workers.request(index):
                    pass
            for sample in algorithm.workers.ready(LOOK_AGAIN_S if learning else None, MOST_FRAGMENTS):
                if sample.worker_index:  # the one in this process samples when it is asked, with what it was given
                    recipients.arrived(sample, time.monotonic())
                algorithm.count_sampled(sample)
                algorithm.counters["num_batches_dropped"] += queue.add(sample)


def _next_batch(algorithm: Algorithm, queue: LearnerQueue) -> TrainBatch | None:
    """Take a batch; if some were too old, count them, and give all workers the weights that they lack."""
    if dropped := queue.drop_stale(algorithm.policy_version + queue.unpublished):
        algorithm.counters["num_batches_dropped"] += dropped
        _publish(algorithm, queue, algorithm.workers.healthy)
    return queue.pop()


def _publish(algorithm: Algorithm, queue: LearnerQueue, to: Collection[int]) -> None:
    """Publish the weights. A version is an update, so staleness does not depend on how often that happens."""
    algorithm.policy_version += max(queue.unpublished - 1, 0)
    algorithm.publish_weights(to=to, is_new=queue.unpublished > 0)
    queue.unpublished = 0


def _after_update(
    algorithm: Algorithm,
    queue: LearnerQueue,
    recipients: Recipients,
    broadcast_interval: int,
    batch: TrainBatch,
    updates: dict[PolicyId, Update],
) -> dict[PolicyId, Stats]:
    """Count what was learned from, and publish the weights every `broadcast_interval` updates."""
    algorithm.events.emit(BatchLearned, updates, batch.fragments)
    steps = {policy_id: sum(map(len, parts)) for policy_id, parts in batch.fragments.items()}
    algorithm.count_trained(batch.env_steps, sum(steps[policy_id] for policy_id in updates))
    staleness = batch.staleness(algorithm.policy_version + queue.unpublished)
    queue.unpublished += 1
    if queue.unpublished >= broadcast_interval:
        _publish(algorithm, queue, recipients.of_publication(algorithm.workers.healthy, time.monotonic()))
    waiting = {"batches_waiting": len(queue)}
    return {policy_id: update.stats | staleness[policy_id] | waiting for policy_id, update in updates.items()}
