"""Rollout workers in real processes."""

import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from reef.algorithms.dqn import DQNConfig
from reef.algorithms.ppo import PPOConfig
from reef.distributed.node_settings import ELASTIC, OF_HEAD, OF_POOL, WORKERS_LABEL
from reef.distributed.ray_workers import RayWorkers
from reef.distributed.resources import lacking_room
from reef.errors import ResourceError, WorkerError
from reef.rollout.worker import RolloutWorker
from reef.run.signals import StopSignals
from reef.types import DEFAULT_POLICY

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster"), pytest.mark.timeout(120)]


def config(**settings: Any) -> PPOConfig:
    made = PPOConfig().environment("CartPole-v1").debugging(seed=3)
    made.update_from_dict(
        {
            "num_rollout_workers": 2,
            "num_envs_per_worker": 2,
            "rollout_fragment_length": 16,
            "train_batch_size": 64,
            "sgd_minibatch_size": 32,
            "model": {"fcnet_hiddens": [8]},
            "observation_filter": "MeanStdFilter",
            "num_cpus_per_worker": 0.5,
            "delay_between_worker_restarts_s": 0.0,
        }
        | settings
    )
    return made.validate().freeze()


@pytest.fixture(scope="module")
def workers(ray_cluster) -> Iterator[RayWorkers]:
    """Two workers that all tests of this file share; starting one costs seconds."""
    made = RayWorkers(config(recreate_failed_workers=True), 2)
    yield made
    made.stop()


def pids(workers: RayWorkers) -> list[int]:
    return workers.foreach_worker(lambda worker: os.getpid())[1:]


def until_healthy(workers: RayWorkers, count: int) -> None:
    deadline = time.monotonic() + 60.0
    while workers.num_healthy < count:
        assert time.monotonic() < deadline
        workers._group.heal()
        time.sleep(0.05)


def test_two_workers_sample_with_the_published_weights(workers):
    local = workers.local_worker()
    weights = {name: vector * 0.0 + 0.25 for name, vector in local.get_weights().items()}
    workers.set_weights(weights, 7, 123)
    samples = workers.sample()
    assert [sample.worker_index for sample in samples] == [1, 2]
    assert all(sample.env_steps == 32 for sample in samples)
    assert {sample.rollouts["default_policy"].policy_version for sample in samples} == {7}
    assert not np.array_equal(samples[0].rollouts["default_policy"].obs, samples[1].rollouts["default_policy"].obs)
    everywhere = workers.foreach_worker(lambda worker: (worker.acting_weights()["default_policy"], worker.timestep))
    assert len(everywhere) == 3
    assert np.array_equal(local.get_weights()["default_policy"], weights["default_policy"])
    for vector, timestep in everywhere:
        assert vector.size == local.acting_weights()["default_policy"].size and (vector == 0.25).all()
        assert timestep == 123
    assert workers.foreach_worker_with_index(lambda worker, index: index) == [0, 1, 2]
    assert workers.foreach_worker_with_index(lambda index, worker: (index, worker.worker_index))[2] == (2, 2)
    assert len(set(pids(workers)) - {os.getpid()}) == 2
    assert workers.foreach_worker(lambda worker: os.environ["OMP_NUM_THREADS"])[1:] == ["1", "1"]

    workers.synchronize_filters()
    stats = workers.foreach_worker(lambda worker: worker.filters["default_policy"].stat.state())
    assert stats[0]["count"] > 64
    for stat in stats[1:]:
        assert stat["count"] == stats[0]["count"]
        assert np.allclose(stat["mean"], stats[0]["mean"])
    episodes = workers.sample_episodes(3)
    assert sum(len(sample.episodes) for sample in episodes) == 3


def test_a_function_that_raises_in_a_worker_costs_no_worker(workers):
    def raising(worker: RolloutWorker) -> Any:
        return worker.worker_index != 2 or worker.no_such_thing

    before = pids(workers)
    with pytest.raises(WorkerError, match=r"(?s)rollout worker 2.*no_such_thing"):
        workers.foreach_worker(raising)
    with pytest.raises(WorkerError, match=r"(?s)rollout worker 1.*pickle"):
        workers.foreach_worker(lambda worker: worker.worker_index != 1 or threading.Lock())
    assert pids(workers) == before and workers.num_restarts == 0


def test_a_state_goes_on_exactly_and_fits_another_number_of_workers(workers):
    workers.sample()
    stored = workers.state()
    expected = [sample.rollouts["default_policy"] for sample in workers.sample()]
    workers.set_state(stored)
    again = [sample.rollouts["default_policy"] for sample in workers.sample()]
    for one, other in zip(again, expected, strict=True):
        assert np.array_equal(one.obs, other.obs) and np.array_equal(one.actions, other.actions)

    settings = config(num_rollout_workers=1, rollout_fragment_length=32)
    single = RayWorkers(settings, 1)
    try:
        single.set_weights(workers.local_worker().get_weights(), 0, 0)
        single.set_state(stored)
        (rollout,) = [sample.rollouts["default_policy"] for sample in single.sample(16)]
        assert np.array_equal(rollout.actions, expected[0].actions)
    finally:
        single.stop()


def test_fragments_on_request(workers):
    assert [workers.request(1) for _ in range(3)] == [True, True, False]
    assert workers.request(2)
    samples: list[int] = []
    while len(samples) < 3:
        samples += [sample.worker_index for sample in workers.ready(30.0)]
    assert sorted(samples) == [1, 1, 2]


def test_weights_for_one_worker_leave_the_others_and_all_filters_as_they_are(workers):
    def seen() -> list[tuple[float, int, int]]:
        return workers.foreach_worker(lambda worker: (worker.get_weights()["default_policy"][0], worker.policy_version))

    def filters() -> list[float]:
        return workers.foreach_worker(lambda worker: worker.filters["default_policy"].stat.state()["count"])

    weights = {name: vector * 0.0 + 0.125 for name, vector in workers.local_worker().get_weights().items()}
    newer = {name: vector * 2.0 for name, vector in weights.items()}
    workers.set_weights(weights, 11, 0)
    workers.sample()
    before = filters()
    workers.set_weights(newer, 12, 0, to=[2])
    assert seen() == [(0.25, 12), (0.125, 11), (0.25, 12)], "the local worker has the newest"
    assert filters() == before, "they are merged by an act of their own"
    stored = workers._stored
    workers.set_weights(newer, 12, 0, to=[1])
    assert seen() == [(0.25, 12)] * 3
    assert workers._stored is stored, "one copy for all workers"
    assert workers.healthy == [1, 2]


def test_a_replaced_worker_knows_weights_and_filters(workers):
    weights = {name: vector * 0.0 + 0.5 for name, vector in workers.local_worker().get_weights().items()}
    workers.set_weights(weights, 4, 99)
    workers.sample()
    workers.synchronize_filters()
    os.kill(pids(workers)[1], signal.SIGKILL)
    started = time.monotonic()
    assert [sample.worker_index for sample in workers.sample()] == [1]
    assert time.monotonic() - started < 10.0
    assert workers.num_healthy == 1
    until_healthy(workers, 2)
    assert workers.num_restarts == 1
    seen = workers.foreach_worker_with_index(
        lambda worker, index: (index, worker.get_weights()["default_policy"][0], worker.timestep, worker.policy_version)
    )
    assert seen[2] == (2, 0.5, 99, 4)
    assert workers.foreach_worker(lambda w: w.filters["default_policy"].stat.state()["count"])[2] > 60
    assert [sample.worker_index for sample in workers.sample()] == [1, 2]


def test_a_worker_that_hangs_is_cut_off_by_the_sample_timeout():
    made = RayWorkers(config(sample_timeout_s=1.0, ignore_worker_failures=True), 2)
    try:
        assert [sample.worker_index for sample in made.sample()] == [1, 2]

        def hang(worker: RolloutWorker) -> None:
            if worker.worker_index == 2:
                worker.sample = lambda *_: time.sleep(600)  # type: ignore[method-assign]

        made.foreach_worker(hang)
        started = time.monotonic()
        assert [sample.worker_index for sample in made.sample()] == [1]
        assert 1.0 <= time.monotonic() - started < 30.0 and made.num_healthy == 1
    finally:
        made.stop()


def test_filter_statistics_move_only_as_the_settings_say():
    made = RayWorkers(config(), 2)
    try:
        for rounds, (use, update) in enumerate([(False, False), (False, True), (True, False)], start=1):
            made._config = config(use_worker_filter_stats=use, update_worker_filter_stats=update)
            made.sample()
            made.synchronize_filters()
            central, *own = made.foreach_worker(lambda worker: worker.filters["default_policy"].stat.state())
            counts = [stat["count"] for stat in own]
            assert min(counts) > 32 * rounds, "each knows at least what it saw itself"
            assert central["count"] == (sum(counts) if use else 0)
            assert not np.allclose(own[0]["mean"], own[1]["mean"]), "nobody knows what the other saw"
    finally:
        made.stop()


def test_a_lost_node_is_survived_and_its_worker_moves(ray_cluster):
    nodes = [ray_cluster.add_node(num_cpus=1, resources={"pool": 1}) for _ in range(2)]
    settings = config(custom_resources_per_worker={"pool": 1}, recreate_failed_workers=True)
    made = RayWorkers(settings, 2)
    try:
        weights = {name: vector * 0.0 + 0.75 for name, vector in made.local_worker().get_weights().items()}
        made.set_weights(weights, 5, 64)
        assert [sample.worker_index for sample in made.sample()] == [1, 2]
        ray_cluster.remove_node(nodes.pop(), allow_graceful=False)
        started = time.monotonic()
        while len(samples := made.sample()) == 2:  # its process outlives the node's end by a moment
            assert time.monotonic() - started < 25.0
        assert samples[0].env_steps == 32 and time.monotonic() - started < 25.0
        nodes.append(ray_cluster.add_node(num_cpus=1, resources={"pool": 1}))
        until_healthy(made, 2)
        assert made.num_restarts == 1
        assert [sample.worker_index for sample in made.sample()] == [1, 2]
        seen = made.foreach_worker(lambda worker: (worker.get_weights()["default_policy"][0], worker.policy_version))
        assert seen == [(0.75, 5)] * 3
    finally:
        made.stop()
        for node in nodes:
            ray_cluster.remove_node(node)


def test_a_hanging_worker_does_not_cost_the_last_checkpoint():
    """By default the first failure of a worker is an error; not when the process is asked to end."""
    signals = StopSignals(patience_s=1.0)
    made = RayWorkers(config(), 2, deadline=signals.deadline)
    try:
        made.sample()
        os.kill(made._group.process(2).pid, signal.SIGSTOP)
        with signals:
            os.kill(os.getpid(), signal.SIGTERM)
            started = time.monotonic()
            first, second = made.state()["remote"]
            assert time.monotonic() - started < 5.0
        assert first["env"] is not None and second is None
    finally:
        os.kill(made._group.process(2).pid, signal.SIGCONT)
        made.stop()


def test_the_learner_knows_which_workers_share_its_machine(ray_cluster):
    node = ray_cluster.add_node(num_cpus=1, resources={"pool": 1})
    near, far = RayWorkers(config(num_rollout_workers=1), 1), None
    try:
        far = RayWorkers(config(num_rollout_workers=1, custom_resources_per_worker={"pool": 1}), 1)
        assert (near.num_here, far.num_here) == (1, 0)
    finally:
        near.stop()
        if far is not None:
            far.stop()
        ray_cluster.remove_node(node)


def test_workers_come_and_go_with_nodes(ray_cluster, caplog):
    """In a cluster whose head says that nodes come and go; none goes elsewhere. Batches stay as large."""
    caplog.set_level(logging.INFO, "reef")  # by its name: the command line has set that one
    nodes = [ray_cluster.add_node(num_cpus=0, resources={ELASTIC: 1})]

    def come() -> None:
        nodes.append(ray_cluster.add_node(num_cpus=1, labels={WORKERS_LABEL: OF_POOL}))

    def steps(made: RayWorkers) -> dict[int, int]:
        return {sample.worker_index: sample.env_steps for sample in made.sample()}

    def counts(made: RayWorkers) -> tuple[int, int, int]:
        return made.num_healthy, made.num_waiting, made.num_lost

    settings = config(
        num_rollout_workers=3,
        rollout_fragment_length="auto",
        num_cpus_per_worker=1,
        recreate_failed_workers=True,
    )
    made = RayWorkers(settings, 3)
    try:
        assert counts(made) == (0, 3, 0)
        assert list(lacking_room(settings)) == ["no pod that takes rollout workers has joined: scale a pool up"]
        come()
        until_healthy(made, 1)
        assert list(lacking_room(settings)) == []
        beside = settings.copy().evaluation(evaluation_num_workers=2, evaluation_interval=1)
        assert list(lacking_room(beside)) == [
            "the pods that have joined have no room for 1 of num_rollout_workers=3 (num_cpus_per_worker 1) and "
            "1 of evaluation_num_workers=2 (num_cpus_per_worker 1) at once: scale a pool up"
        ]
        assert counts(made) == (1, 2, 0)
        assert steps(made) == {1: 64}
        for _ in range(2):
            come()
        assert list(lacking_room(beside)) == [], "one evaluation worker plays on"
        learning = beside.copy().resources(num_learner_workers=20)
        assert list(lacking_room(learning)) == [], "where the learners are is not known"
        (before,) = lacking_room(learning, has_learners=False)
        assert "20 of num_learner_workers=20 (num_cpus_per_learner_worker 1) at once" in before
        until_healthy(made, 3)
        assert steps(made) == {1: 22, 2: 22, 3: 20}
        assert (counts(made), made.num_restarts) == ((3, 0, 0), 0)
        ray_cluster.remove_node(nodes.pop(), allow_graceful=True)  # as a pod that is scaled away
        ray_cluster.remove_node(nodes.pop(), allow_graceful=False)  # as a machine that is lost
        deadline = time.monotonic() + 60.0
        while counts(made) != (1, 2, 0):
            made.sample()
            assert time.monotonic() < deadline, counts(made)
        assert list(steps(made).values()) == [64]
        tried = made.num_restarts  # where a worker's end was noticed before that of its node
        assert tried <= 2
        come()
        until_healthy(made, 2)
        assert sum(steps(made).values()) == 64
        assert counts(made) == (2, 1, 0)
        assert made.num_restarts <= tried + 1
        made.resize(4)
        made.sample()
        assert counts(made) == (2, 2, 0)
        first, second = made._group.healthy
        os.kill(made._group.process(first).pid, signal.SIGKILL)
        made.resize(1)
        deadline = time.monotonic() + 60.0
        while made._group.healthy != [second]:
            made.sample()
            assert time.monotonic() < deadline, made._group.healthy
        state = made.state()["remote"]
        assert [one is not None for one in state] == [index == second for index in range(1, second + 1)]
        made.set_state({"local": made.local_worker().state(), "remote": state})
        assert steps(made) == {second: 64} and counts(made) == (1, 0, 0)
        assert "rollout workers: 1 of 3 have room, the others start when nodes come" in caplog.text
        assert caplog.text.count("have room") < 8
    finally:
        made.stop()
        for node in nodes:
            ray_cluster.remove_node(node)


def test_a_head_that_takes_workers_gets_those_without_room_in_a_pool(ray_cluster):
    head = ray_cluster.add_node(num_cpus=2, resources={ELASTIC: 1}, labels={WORKERS_LABEL: OF_HEAD})
    pool = ray_cluster.add_node(num_cpus=1, labels={WORKERS_LABEL: OF_POOL})
    made = RayWorkers(config(num_cpus_per_worker=1, recreate_failed_workers=True), 2)
    try:
        until_healthy(made, 2)
        assert [made._group.process(index).node for index in (1, 2)] == [pool.node_id, head.node_id]
    finally:
        made.stop()
        for node in (pool, head):
            ray_cluster.remove_node(node)


def test_an_environment_that_raises_ends_the_run_with_its_own_traceback():
    settings = config(env="ray_broken_env:BrokenCartPole", num_rollout_workers=1, rollout_fragment_length=32)
    broken = RayWorkers(settings, 1)
    try:
        with pytest.raises(WorkerError) as caught:
            broken.sample()
    finally:
        broken.stop()
    assert "rollout worker 1 failed in sample()" in str(caught.value) and "the pole is broken" in str(caught.value)
    assert "ray_broken_env.py" in str(caught.value)
    assert caught.value.exit_code == 2


def test_more_cpus_than_there_are_is_refused_at_once():
    started = time.monotonic()
    settings = config(num_rollout_workers=20, rollout_fragment_length="auto")
    with pytest.raises(ResourceError) as caught:
        RayWorkers(settings, 20)
    assert "num_rollout_workers 20 x num_cpus_per_worker 0.5 = 10 CPUs, the cluster has 4" in str(caught.value)
    assert time.monotonic() - started < 10.0
    expected = "num_rollout_workers 2 x num_gpus_per_worker 1 = 2 GPUs, the cluster has 0"
    with pytest.raises(ResourceError, match=expected):
        RayWorkers(config(num_gpus_per_worker=1), 2)


def test_with_sample_async_the_next_fragments_begin_before_they_are_asked_for():
    settings = config(sample_async=True, recreate_failed_workers=True, max_requests_in_flight_per_sampler_worker=1)
    made = RayWorkers(settings, 2)
    try:
        weights = made.local_worker().get_weights()
        made.set_weights(weights, version=1, timestep=0)
        first = made.sample()
        made.set_weights(weights, version=2, timestep=64)
        second = made.sample()
        third = made.sample()
        assert [[sample.worker_index for sample in each] for each in (first, second, third)] == [[1, 2]] * 3
        versions = [{sample.rollouts["default_policy"].policy_version for sample in each} for each in (first, second)]
        assert versions == [{1}, {1}]  # the second was under way when version 2 came
        assert third[0].rollouts["default_policy"].policy_version == 2
        assert [sample.fragment_index[DEFAULT_POLICY].tolist() for sample in third] == [[2, 2]] * 2
        stored = made.state()  # behind the fragments under way, number 3, which a restored run never sees
        stored["remote"][1] = None
        made.set_state(stored)
        assert [sample.fragment_index[DEFAULT_POLICY].tolist() for sample in made.sample()] == [[4, 4], [0, 0]]
        os.kill(made._group.process(1).pid, signal.SIGKILL)
        after = [made.sample(), made.sample()]
        assert all(samples for samples in after)
        until_healthy(made, 2)
        made.sample()  # the replacement's first fragment begins
        assert [sample.worker_index for sample in made.sample()] == [1, 2]
    finally:
        made.stop()


def test_several_fragments_ahead_keep_workers_busy_and_are_taken_in_turns():
    made = RayWorkers(config(sample_async=True, max_requests_in_flight_per_sampler_worker=2), 2)
    try:
        weights = made.local_worker().get_weights()
        taken = []
        for version in range(1, 5):
            made.set_weights(weights, version=version, timestep=0)
            taken.append(made.sample())
        assert [[sample.worker_index for sample in each] for each in taken] == [[1, 2]] * 4
        assert [[sample.fragment_index[DEFAULT_POLICY].tolist() for sample in each] for each in taken] == [
            [[n, n]] * 2 for n in range(4)
        ]
        versions = [{sample.rollouts["default_policy"].policy_version for sample in each} for each in taken]
        assert versions == [{1}, {1}, {1}, {2}]  # two were under way when version 2 came
        assert [sample.env_steps for sample in made.sample(steps=3, reset_episodes=True)] == [6, 6]  # newly sampled
    finally:
        made.stop()


def test_nobody_waits_for_new_workers_where_validation_is_switched_off(workers) -> None:
    assert workers.num_healthy == 2, "as soon as there is a set of workers"
    eager = RayWorkers(config(validate_workers_after_construction=False, num_rollout_workers=1), 1)
    try:
        assert eager.num_healthy == 0
        assert len(eager.sample()) == 1
        assert eager.num_healthy == 1
    finally:
        eager.stop()


def test_a_worker_of_dqn_with_a_memory_is_replaced_and_its_sequences_begin_again() -> None:
    made = DQNConfig().environment("CartPole-v1").debugging(seed=3)
    made.update_from_dict(
        {
            "num_rollout_workers": 1,
            "num_cpus_per_worker": 0.5,
            "recreate_failed_workers": True,
            "delay_between_worker_restarts_s": 0.0,
            "num_steps_sampled_before_learning_starts": 50,
            "min_sample_timesteps_per_iteration": 100,
            "train_batch_size": 32,
            "n_step": 2,
            "hiddens": [8],
            "model": {"fcnet_hiddens": [8], "use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 8},
            "replay_buffer_config": {"replay_burn_in": 4},
            "exploration_config": {"type": "PerWorkerEpsilonGreedy"},
        }
    )
    with made.build() as algorithm:
        algorithm.train()
        group: Any = algorithm.workers
        os.kill(group._group.process(1).pid, signal.SIGKILL)
        deadline = time.monotonic() + 90.0
        result = algorithm.train()
        while not (result["num_worker_restarts"] == 1 and result["num_healthy_workers"] == 1):
            assert time.monotonic() < deadline
            result = algorithm.train()
        memory: Any = algorithm.memory  # type: ignore[attr-defined]
        before = memory.buffers["default_policy"].added
        result = algorithm.train()
        assert memory.buffers["default_policy"].added > before
        stored = memory.buffers["default_policy"].state()["columns"]
        goes_on = ~(stored["terminated"] | stored["truncated"])[:, :-1]
        successors, following = stored["next_obs"][:, :-1], stored["obs"][:, 1:]
        assert (successors[goes_on] == following[goes_on]).all(), "no sequence joins two workers' episodes"
        assert np.isfinite(result["info"]["learner"]["default_policy"]["learner_stats"]["total_loss"])
