"""Workers that sample, shards that draw and a learner that learns, none waiting for another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reef.learn.learner import Update
from reef.learn.pace import Pace
from reef.replay.shards import Drawn, ReplayShards
from reef.run.events import BatchLearned
from reef.run.flows.async_rollouts import LOOK_AGAIN_S
from reef.types import PolicyId, Stats

if TYPE_CHECKING:
    from reef.run.algorithm import Algorithm


def async_replay(algorithm: Algorithm, shards: ReplayShards, pace: Pace) -> dict[PolicyId, Stats]:
    """Wait for one update, while workers sample and shards draw batches without waiting for each other.

    `pace` says how many updates the sampled steps call for, and when sampling has to wait for them. While shards hold
    less than learning starts with, and where a batch has nothing to learn from, a round ends with the first fragments.
    """
    learning: Drawn | None = None
    drew_nothing = False  # that a trained policy can learn from: sampling does not wait then
    while True:
        algorithm.deadline.end_if_over()
        sampled, trained = algorithm.timestep, algorithm.counters["num_env_steps_trained"]
        due = pace.updates_due(sampled, trained) if shards.holds(pace.starts) else 0
        while shards.num_requested + (learning is not None) < due and shards.request():
            pass
        is_busy = learning is not None or shards.num_requested > 0
        with algorithm.timer("sample"):
            for index in algorithm.workers.healthy if drew_nothing or due <= pace.due_before_sampling_waits else ():
                while algorithm.workers.request(index):
                    pass
            samples = algorithm.workers.ready(0.0 if is_busy else None)
            for sample in samples:
                algorithm.count_sampled(sample)
                shards.add(sample)
                pace.add(sample)
        with algorithm.timer("learn"):
            if learning is None and (drawn := shards.take(LOOK_AGAIN_S)) is not None:
                policies = algorithm.policies_to_learn(drawn.batches)
                drew_nothing = not policies
                if policies:
                    learning = drawn
                    algorithm.learners.submit({name: drawn.batches[name] for name in policies}, algorithm.timestep)
            updates = algorithm.learners.results(LOOK_AGAIN_S)
        if learning is not None and updates:
            return _after_replay(algorithm, shards, pace, learning, updates[0])
        if (samples and drew_nothing) or not (is_busy or _learning_has_begun(algorithm, shards, pace)):
            _send_weights(algorithm, pace)  # exploration schedules follow the steps that go with them
            return {}


def _learning_has_begun(algorithm: Algorithm, shards: ReplayShards, pace: Pace) -> bool:
    """Both are asked: the shards may be full before as many steps are sampled, or lose what they held."""
    return algorithm.timestep >= pace.starts and shards.holds(pace.starts)


def _after_replay(
    algorithm: Algorithm, shards: ReplayShards, pace: Pace, drawn: Drawn, updates: dict[PolicyId, Update]
) -> dict[PolicyId, Stats]:
    """Count what was learned from, return priorities to the shard, and send weights to the workers they are due to."""
    algorithm.events.emit(BatchLearned, updates, drawn.batches)
    steps = [len(drawn.batches[policy_id]) for policy_id in updates]
    algorithm.count_trained(max(steps), sum(steps))
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
            algorithm.workers.set_weights(weights, algorithm.policy_version, algorithm.timestep, to=outdated)
