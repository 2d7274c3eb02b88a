"""The loops between workers, replay and learners.

It tests reef.run.flows.on_policy, reef.run.flows.replay, reef.run.flows.async_rollouts, reef.run.flows.recipients,
reef.run.flows.async_replay, reef.run.flows.gradients and reef.run.flows.offline.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from reef.algorithms.apex import ApexDQN, ApexDQNConfig
from reef.algorithms.dqn import DQNConfig
from reef.algorithms.impala import IMPALAConfig
from reef.algorithms.ppo import PPOConfig
from reef.algorithms.replaying import OffPolicyConfig
from reef.algorithms.sac import SACConfig
from reef.batch import Sample
from reef.learn.learners import LocalLearners
from reef.replay.shards import LocalShards
from reef.rollout.worker import RolloutWorker
from reef.run.flows.recipients import Recipients


def test_a_batch_that_does_not_divide_evenly_is_sampled_in_one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = (
        PPOConfig()
        .environment("CartPole-v1")
        .rollouts(num_envs_per_worker=3, rollout_fragment_length="auto")
        .training(train_batch_size=40, sgd_minibatch_size=13, num_sgd_iter=1, model={"fcnet_hiddens": [8]})
        .debugging(seed=0)
    )
    shared = settings.copy().rollouts(num_rollout_workers=3).freeze()
    workers = [RolloutWorker(shared, index) for index in (1, 2, 3)]
    with settings.build() as algorithm:
        monkeypatch.setattr(algorithm.workers, "sample", lambda: [worker.sample() for worker in workers])
        assert algorithm.train()["num_env_steps_trained"] == 39  # 3 x (5 + 4 + 4)


def test_a_batch_smaller_than_the_environments_is_sampled() -> None:
    settings = PPOConfig().environment("CartPole-v1").rollouts(num_envs_per_worker=8)
    with settings.training(train_batch_size=4, sgd_minibatch_size=4, num_sgd_iter=1).build() as algorithm:
        assert algorithm.train()["num_env_steps_trained"] == 8


def asynchronous(**settings: Any) -> IMPALAConfig:
    base = {"train_batch_size": 20, "rollout_fragment_length": 10, "model": {"fcnet_hiddens": [8]}, "seed": 0}
    config = IMPALAConfig.from_dict(base | settings).environment("CartPole-v1")
    return config.reporting(min_sample_timesteps_per_iteration=0)


class Busy(LocalLearners):
    """Learners that take as many looks for an update as `looks` says, as if they were in other processes."""

    looks = 3

    def results(self, timeout_s: float | None = None) -> list[Any]:
        self.looked = getattr(self, "looked", 0) + bool(self._updates)
        if self.looked % self.looks:
            return []
        return super().results(timeout_s)


def stats_of(result: dict[str, Any]) -> dict[str, float]:
    return result["info"]["learner"]["default_policy"]["learner_stats"]


def test_an_asynchronous_round_is_one_update_and_its_weights_are_published() -> None:
    with asynchronous().build() as algorithm:
        for updates in (1, 2, 3):
            result = algorithm.train()
            assert (result["num_env_steps_sampled"], result["num_env_steps_trained"]) == (20 * updates,) * 2
            assert stats_of(result)["staleness"] == stats_of(result)["staleness_max"] == 0.0
            assert algorithm.policy_version == 1 + updates
            newest, acting = algorithm.learners.weights(), algorithm.workers.local_worker().get_weights()
            assert (newest["default_policy"] == acting["default_policy"]).all()
        assert result["counters"]["num_batches_dropped"] == 0


def test_weights_are_published_every_broadcast_interval_and_staleness_counts_updates() -> None:
    seen, published = [], []
    with asynchronous(broadcast_interval=3).build() as algorithm:
        before = algorithm.workers.local_worker().get_weights()["default_policy"]
        for _ in range(7):
            seen.append(stats_of(algorithm.train())["staleness"])
            now = algorithm.workers.local_worker().get_weights()["default_policy"]
            published.append(bool((now != before).any()))
            before = now
        assert algorithm.workers.local_worker().policy_version == algorithm.policy_version == 7
    assert seen == [0, 1, 2, 0, 1, 2, 0]
    assert published == [False, False, True, False, False, True, False]


def of_worker(index: int, sample_s: float) -> Sample:
    return Sample({}, [], 50, 50, worker_index=index, timers={"sample": sample_s})


def test_weights_go_to_the_workers_that_begin_a_fragment_with_them() -> None:
    recipients = Recipients()
    for second in range(100):  # a publication and two fragments in each
        recipients.arrived(of_worker(1, 3.9), now=float(second))
        recipients.arrived(of_worker(2, 0.5), now=float(second))
        recipients.of_publication([], float(second))
    assert recipients.of_publication([1, 2, 3], 100.0) == [3, 2], "one was never heard of, one is late"
    assert recipients.of_publication([1, 3], 101.0) == [3]
    assert recipients.of_publication([1], 102.0) == [1]


def test_the_first_publication_goes_to_all_that_sampled() -> None:
    recipients = Recipients()
    recipients.arrived(of_worker(1, 5.0), now=30.0)
    assert recipients.of_publication([1], 30.0) == [1], "the next one may be as far away"


def test_a_driver_that_cannot_keep_up_sends_weights_to_those_that_it_takes_fragments_from() -> None:
    recipients, workers = Recipients(), list(range(1, 101))
    for index in workers:
        recipients.arrived(of_worker(index, 0.1), now=index / 1000)
    sent = []
    for second in range(1, 30):
        sent.append(recipients.of_publication(workers, float(second)))
        for index in range(2 * second - 1, 2 * second + 1):
            recipients.arrived(of_worker(index, 0.1), now=second + 0.5)
    assert sent[-1] == [57, 58, 59], "two fragments arrive each second, which their workers sent long ago"


def test_each_worker_begins_with_weights_as_new_as_if_all_got_all() -> None:
    """Four workers of 4 s a fragment, one after the other, and an update of one fragment each second."""
    recipients, got, sent = Recipients(), dict.fromkeys(range(1, 5), 0), 0
    used: list[int] = []
    for version in range(40):
        worker = version % 4 + 1  # its fragment is here, and it has begun the next
        used.append(version - got[worker])
        recipients.arrived(of_worker(worker, 4.0), now=float(version))
        to = recipients.of_publication(list(got), version + 0.1)  # after the update
        sent += len(to)
        got |= dict.fromkeys(to, version + 1)
    assert used[20:] == [0] * 20
    assert sent < 2 * 40, "and few were sent in vain"


@pytest.mark.parametrize(("spread", "slow"), [(0.02, 0), (0.3, 0), (0.02, 2)])
def test_no_worker_is_left_behind_where_fragments_differ_in_length(spread: float, slow: int) -> None:
    """Eight workers, an update after each fragment; `slow` of them never end theirs."""
    generator, recipients = np.random.default_rng(0), Recipients()
    ends = {index: math.inf if index <= slow else generator.uniform(0, 1) for index in range(1, 9)}
    got, behind = dict.fromkeys(ends, 0), []
    for version in range(400):
        worker = min(ends, key=ends.__getitem__)
        now, took = ends[worker], 1 + spread * generator.uniform(-1, 1)
        behind.append(version - got[worker])
        ends[worker] = now + took
        recipients.arrived(of_worker(worker, took), now)
        got |= dict.fromkeys(recipients.of_publication(list(ends), now), version + 1)
    assert max(behind[50:]) <= 16, "those of two fragments of each worker"
    assert np.mean(behind[50:]) < 1


def test_a_publication_goes_only_to_some_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[list[int]] = []

    def sent_to(to: list[int], is_new: bool) -> None:
        assert is_new
        sent.append(to)
        algorithm.policy_version += 1

    with asynchronous(broadcast_interval=2).build() as algorithm:
        monkeypatch.setattr(type(algorithm.workers), "healthy", property(lambda _: [0, 7, 9]))
        monkeypatch.setattr(algorithm.workers, "request", lambda index, own=algorithm.workers.request: own(0))
        monkeypatch.setattr(algorithm, "publish_weights", sent_to)
        for _ in range(8):
            algorithm.training_step()
    assert sent == [[0]] * 4


def test_all_whole_batches_are_learned_from_before_more_is_sampled() -> None:
    settings = {"num_envs_per_worker": 4, "train_batch_size": 40, "max_requests_in_flight_per_sampler_worker": 3}
    with asynchronous(**settings).build() as algorithm:
        results = [algorithm.train() for _ in range(6)]
    assert [result["num_env_steps_sampled"] for result in results] == [120, 120, 120, 240, 240, 240]
    assert [stats_of(result)["staleness"] for result in results] == [0, 1, 2, 0, 1, 2]
    assert results[-1]["num_env_steps_trained"] == 240


def test_batches_of_older_weights_are_dropped_and_counted() -> None:
    settings = {"num_envs_per_worker": 4, "train_batch_size": 40, "max_requests_in_flight_per_sampler_worker": 3}
    with asynchronous(**settings, max_staleness=1).build() as algorithm:
        results = [algorithm.train() for _ in range(4)]
    assert [stats_of(result)["staleness_max"] for result in results] == [0, 1, 0, 1]
    assert [result["num_env_steps_sampled"] for result in results] == [120, 120, 240, 240]
    assert [result["counters"]["num_batches_dropped"] for result in results] == [0, 0, 1, 1]


def test_workers_whose_batches_are_too_old_get_the_newest_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reef.run.flows.recipients.Recipients.of_publication", lambda *_: [])
    with asynchronous(max_staleness=0).build() as algorithm:
        publish = algorithm.workers.set_weights
        monkeypatch.setattr(algorithm.workers, "set_weights", lambda *given: given[-1] != [] and publish(*given))
        results = [algorithm.train() for _ in range(3)]
        assert algorithm.policy_version == 4, "one for each update"
    assert [stats_of(result)["staleness_max"] for result in results] == [0, 0, 0]
    assert [result["counters"]["num_batches_dropped"] for result in results] == [0, 1, 2]


def test_every_batch_is_learned_from_in_num_sgd_iter_updates_in_turn_with_others() -> None:
    with asynchronous(num_sgd_iter=2, minibatch_buffer_size=2).build() as algorithm:
        results = [algorithm.train() for _ in range(8)]
    assert [result["num_env_steps_sampled"] // 20 for result in results] == [1, 2, 3, 3, 3, 4, 5, 5]
    assert [result["num_env_steps_trained"] // 20 for result in results] == [1, 2, 3, 4, 5, 6, 7, 8]
    # the second and third batch are there again, then the fourth and the fifth
    assert [stats_of(result)["staleness"] for result in results] == [0, 0, 0, 2, 2, 0, 0, 2]


def test_workers_sample_while_an_update_is_under_way_and_a_full_queue_drops_its_oldest_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("reef.learn.learners.LocalLearners", Busy)
    with asynchronous(learner_queue_size=2).build() as algorithm:
        assert isinstance(algorithm.learners, Busy)
        first = algorithm.train()
        assert first["num_env_steps_sampled"] == 60, "one round of two fragments for each look"
        assert first["num_env_steps_trained"] == 20 and len(algorithm.queue) == 2  # type: ignore[attr-defined]
        assert stats_of(first)["batches_waiting"] == 2
        second = algorithm.train()
        # two more batches came, and one had gone to the learner
        assert second["num_env_steps_sampled"] == 100
        assert second["counters"]["num_batches_dropped"] == 1
        assert stats_of(second)["staleness"] == 1.0, "it was sampled before the first update"
        third = algorithm.train()
        assert third["counters"]["num_batches_dropped"] == 2
        assert third["num_env_steps_trained"] == 60


def test_filters_of_an_asynchronous_run_are_merged_once_per_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    merged = []
    config = asynchronous(observation_filter="MeanStdFilter").reporting(min_sample_timesteps_per_iteration=100)
    with config.build() as algorithm:
        monkeypatch.setattr(algorithm.workers, "synchronize_filters", lambda: merged.append(algorithm.timestep))
        for _ in range(3):
            algorithm.train()
    assert merged == [100, 200, 300], "at its end, after five updates"


def test_a_policy_set_by_hand_goes_to_the_workers_of_an_asynchronous_run() -> None:
    with asynchronous(broadcast_interval=5).build() as algorithm:
        algorithm.train()
        policy = algorithm.get_policy()
        policy.set_weights({name: values + 1.0 for name, values in policy.get_weights().items()})
        wanted = policy.get_weights()["pi.bias"]
        algorithm.train()
        assert abs(algorithm.get_policy().get_weights()["pi.bias"] - wanted).max() < 0.1


@pytest.mark.parametrize(("config", "env"), [(SACConfig, "Pendulum-v1"), (DQNConfig, "CartPole-v1")])
def test_an_update_that_is_due_before_the_first_sum_of_rewards_is_left_out(
    config: type[OffPolicyConfig], env: str
) -> None:
    settings = {"train_batch_size": 8, "rollout_fragment_length": 1, "n_step": 3, "seed": 0}
    settings |= {"num_steps_sampled_before_learning_starts": 0, "min_sample_timesteps_per_iteration": 0}
    with config.from_dict(settings | {"model": {"fcnet_hiddens": [8]}}).environment(env).build() as algorithm:
        assert [algorithm.train()["num_env_steps_trained"] for _ in range(4)] == [0, 0, 8, 16]


def replaying(**settings: Any) -> ApexDQNConfig:
    base = {
        "num_rollout_workers": 0,
        "num_gpus": 0.0,
        "train_batch_size": 20,
        "rollout_fragment_length": 10,
        "num_steps_sampled_before_learning_starts": 40,
        "num_replay_buffer_shards": 2,
        "min_sample_timesteps_per_iteration": 0,
        "max_weight_sync_delay": 60,
        "model": {"fcnet_hiddens": [8]},
        "hiddens": [8],
        "seed": 0,
    }
    return ApexDQNConfig.from_dict(base | settings).environment("CartPole-v1")


def test_before_learning_starts_a_round_only_fills_the_shards() -> None:
    with replaying().build() as algorithm:
        result = algorithm.train()
        assert (result["num_env_steps_sampled"], result["num_env_steps_trained"]) == (20, 0), "two fragments"
        assert result["info"]["learner"] == {}
        assert isinstance(algorithm, ApexDQN) and algorithm.shards.sizes == [10, 10]
        result = algorithm.train()
        assert (result["num_env_steps_sampled"], result["num_env_steps_trained"]) == (60, 20), "it goes on to an update"


@pytest.mark.parametrize("intensity", [0.5, 1.0, 8.0])
def test_each_sampled_step_is_replayed_as_often_as_the_training_intensity_says(intensity: float) -> None:
    with replaying(training_intensity=intensity).build() as algorithm:
        while algorithm.timestep < 400:
            result = algorithm.train()
            sampled, trained = result["num_env_steps_sampled"] - 40, result["num_env_steps_trained"]
            # a round is two fragments, whose updates are made one after the other
            assert intensity * (sampled - 20) - 20 < trained <= max(intensity * sampled, 0)
        assert stats_of(result)["samples_per_insert"] == trained / sampled == pytest.approx(intensity, rel=0.15)
        assert stats_of(result)["replay_size"] == result["num_env_steps_sampled"]
        assert stats_of(result)["smallest_shard"] == result["num_env_steps_sampled"] / 2


def test_sampling_waits_for_a_learner_that_is_too_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Busy, "looks", 60)
    monkeypatch.setattr("reef.run.flows.async_replay.LOOK_AGAIN_S", 0.0)
    monkeypatch.setattr("reef.learn.learners.LocalLearners", Busy)
    with replaying(training_intensity=4.0).build() as algorithm:
        assert isinstance(algorithm, ApexDQN) and isinstance(algorithm.learners, Busy)
        assert algorithm.pace.due_before_sampling_waits == 0, "in one process all updates are made first"
        algorithm.pace.due_before_sampling_waits = 4
        for _ in range(3):
            algorithm.train()
        for _ in range(3):
            result = algorithm.train()
            behind = 4.0 * (result["num_env_steps_sampled"] - 40) - result["num_env_steps_trained"]
            assert 0 <= behind / 20 <= 4 + 2 * 2, "two fragments were requested at once"
            assert stats_of(result)["batches_waiting"] == 1.0, "the next batch was drawn meanwhile"


def test_sampling_goes_on_where_batches_hold_nothing_to_learn_from() -> None:
    with replaying(training_intensity=8.0).build() as algorithm:
        assert isinstance(algorithm, ApexDQN) and isinstance(algorithm.shards, LocalShards)
        while not algorithm.train()["info"]["learner"]:
            pass
        sampled, trained, version = algorithm.timestep, 20, algorithm.policy_version
        assert algorithm.pace.updates_due(sampled, trained) > 1, "sampling waits for them"
        for shard in algorithm.shards.shards:
            shard.set_state(None)
        result = algorithm.train()
        assert (result["num_env_steps_sampled"], result["num_env_steps_trained"]) == (sampled + 20, trained)
        assert algorithm.policy_version == version and result["info"]["learner"] == {}, "no update was made"
        assert algorithm.train()["num_env_steps_trained"] == trained + 20


def test_a_worker_gets_weights_after_its_steps_and_staleness_counts_updates() -> None:
    versions, staleness = [], []
    with replaying().build() as algorithm:
        worker = algorithm.workers.local_worker()
        while algorithm.counters["num_env_steps_trained"] < 200:
            result = algorithm.train()
            versions.append((algorithm.timestep, worker.policy_version))
            if result["info"]["learner"]:
                staleness.append(stats_of(result)["staleness"])
            newest = algorithm.learners.weights()["default_policy"]
            is_newest = bool(np.array_equal(newest, worker.get_weights()["default_policy"]))
            assert is_newest is (worker.policy_version == algorithm.policy_version)
    assert versions[:6] == [(20, 1), (60, 2), (80, 2), (100, 2), (120, 5), (140, 5)]
    assert staleness == [0, 0, 1, 2, 0, 1, 2, 0, 1, 2]


def test_a_policy_set_by_hand_goes_to_the_workers_of_a_replaying_run() -> None:
    with replaying(max_weight_sync_delay=10**6).build() as algorithm:
        algorithm.train()
        policy = algorithm.get_policy()
        policy.set_weights({name: values + 1.0 for name, values in policy.get_weights().items()})
        wanted = policy.get_weights()["advantage.output.bias"]
        for _ in range(3):
            algorithm.train()
        newest = algorithm.learners.weights()["default_policy"]
        assert (policy.get_weights()["advantage.output.bias"] == wanted).all()
        assert newest.mean() > 0.9
