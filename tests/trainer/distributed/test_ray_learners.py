"""Learners in several processes: the result of one, and the loss of one."""

import math
import os
import signal
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from ray.util import placement_group_table
from recorded import recorded
from torch.distributed import TCPStore

from reef.algorithms.dqn import DQNConfig, DQNLearner
from reef.algorithms.offline import OfflineAlgorithm
from reef.algorithms.ppo import PPOConfig, PPOLearner
from reef.algorithms.q_critics import QCriticsConfig
from reef.algorithms.registry import ALGORITHMS, algorithm_class
from reef.batch import Rollout, Transitions
from reef.distributed import ray_learners
from reef.distributed.node_settings import ELASTIC, OF_POOL, WORKERS_LABEL
from reef.distributed.ray_learners import LearnerProcess, RayLearners
from reef.distributed.resources import reserve
from reef.errors import EXIT_WRONG_USE, ResourceError, WorkerError
from reef.learn.learners import local_learners
from reef.run.process.deadline import Deadline, Overdue

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster"), pytest.mark.timeout(120)]
SPACES = {"default_policy": (gym.spaces.Box(-1.0, 1.0, (3,), np.float32), gym.spaces.Discrete(2))}

# algorithms that learn from recorded episodes
RECORDED = [name for name in ALGORITHMS if issubclass(algorithm_class(name), OfflineAlgorithm)]


def config(**settings: Any) -> PPOConfig:
    made = PPOConfig().environment("CartPole-v1").debugging(seed=5)
    made.update_from_dict(
        {
            "train_batch_size": 64,
            "sgd_minibatch_size": 16,
            "num_sgd_iter": 2,
            "lr": [[0, 0.01], [6400, 0.001]],
            "entropy_coeff": [[0, 0.1], [3200, 0.01]],
            "grad_clip": 0.5,
            "model": {"fcnet_hiddens": [8]},
            "num_learner_workers": 2,
            "num_cpus_per_learner_worker": 0.5,
            "delay_between_worker_restarts_s": 0.0,
        }
        | settings
    )
    return made.validate().freeze()


def test_rollout_workers_leave_room_where_a_learner_alone_fits(ray_cluster: Any) -> None:
    """Ray places an actor on any node that has room for it."""
    nodes = [ray_cluster.add_node(num_cpus=0, resources={ELASTIC: 1})]
    nodes += [ray_cluster.add_node(num_cpus=cpus, labels={WORKERS_LABEL: OF_POOL}) for cpus in (4, 5)]
    asked = {"num_rollout_workers": 4, "num_learner_workers": 1, "num_cpus_per_learner_worker": 5}
    more = {"recreate_failed_workers": True, "worker_restore_timeout_s": 20.0}
    try:
        with config(**asked, **more, num_cpus_per_worker=1).build() as algorithm:
            assert algorithm.train()["num_env_steps_trained"] == 64
    finally:
        for node in reversed(nodes):
            ray_cluster.remove_node(node)


def test_learners_are_in_the_pods_for_them_though_others_have_more_room(ray_cluster: Any) -> None:
    nodes = [ray_cluster.add_node(num_cpus=0, resources={ELASTIC: 1})]
    nodes += [ray_cluster.add_node(num_cpus=16, labels={WORKERS_LABEL: OF_POOL}), ray_cluster.add_node(num_cpus=2)]
    settings = config(worker_restore_timeout_s=20.0)
    try:
        for count, apart in ((2, True), (8, False)):
            placed = reserve(settings, [{"CPU": 1.0}] * count, 1, for_learners=True)
            where = placement_group_table(placed._group)["bundles_to_node_id"].values()
            placed.remove()
            assert (nodes[1].node_id not in where) is apart
    finally:
        for node in reversed(nodes):
            ray_cluster.remove_node(node)


@pytest.mark.parametrize(
    ("device", "gpus", "backend"), [("cuda", 1, "nccl"), ("cuda", 0.5, "gloo"), ("cpu", 0, "gloo")]
)
def test_gradients_are_averaged_by_what_the_device_has(device: str, gpus: float, backend: str) -> None:
    settings = PPOConfig().resources(num_learner_workers=2, num_gpus_per_learner_worker=gpus)

    def on_device(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(device=torch.device(device))

    assert LearnerProcess(on_device, settings, SPACES, rank=0, world_size=2)._backend == backend  # type: ignore[arg-type]


def rollout(seed: int, T: int = 32, B: int = 2) -> Rollout:
    draw = np.random.default_rng(seed)
    obs = draw.uniform(-1, 1, (T + 1, B, 3)).astype(np.float32)
    logits = draw.normal(size=(T, B, 2)).astype(np.float32)
    actions = draw.integers(0, 2, (T, B))
    logp = np.take_along_axis(logits - np.log(np.exp(logits).sum(-1, keepdims=True)), actions[..., None], -1)[..., 0]
    return Rollout(
        obs=obs[:-1],
        actions=actions,
        rewards=draw.normal(size=(T, B)).astype(np.float32),
        next_obs=obs[1:],
        terminated=draw.random((T, B)) < 0.1,
        truncated=np.zeros((T, B), np.bool_),
        mask=np.ones((T, B), np.bool_),
        extras={"action_logp": logp, "action_dist_inputs": logits},
    )


def transitions(seed: int, count: int) -> Transitions:
    draw = np.random.default_rng(seed)
    return Transitions(
        obs=draw.uniform(-1, 1, (count, 3)).astype(np.float32),
        actions=draw.integers(0, 2, count),
        rewards=draw.normal(size=count).astype(np.float32),
        next_obs=draw.uniform(-1, 1, (count, 3)).astype(np.float32),
        terminated=draw.random(count) < 0.1,
        truncated=np.zeros(count, np.bool_),
        extras={
            "discounts": draw.choice([0.99, 0.98], count).astype(np.float32),
            "weights": draw.uniform(0.2, 1.0, count).astype(np.float32),
        },
    )


@pytest.fixture(scope="module")
def learners(ray_cluster) -> Iterator[RayLearners]:
    """Two learners that all tests of this file share."""
    made = RayLearners(PPOLearner, config(recreate_failed_workers=True), SPACES)
    yield made
    made.stop()


def test_two_learners_follow_schedules_as_one_does_over_100_updates_even_when_one_is_killed(learners):
    alone = local_learners(PPOLearner, config(num_learner_workers=0), SPACES)
    learners.set_state(alone.state())
    for step in range(100):
        batch = {"default_policy": rollout(step)}
        if step == 3:
            os.kill(learners._group.process(2).pid, signal.SIGKILL)
        expected = alone.update(batch, step * 64)["default_policy"].stats
        stats = learners.update(batch, step * 64)["default_policy"].stats
        assert stats.keys() == expected.keys()
        assert stats["total_loss"] == pytest.approx(expected["total_loss"], rel=1e-4)
        for name in ("cur_kl_coeff", "cur_lr", "entropy_coeff"):
            assert stats[name] == expected[name]
        own = learners.weights()["default_policy"]
        assert np.allclose(own, alone.weights()["default_policy"], rtol=1e-4, atol=1e-5)
    assert learners._group.num_restarts == 2  # both: the survivor cannot go on alone


@pytest.mark.parametrize(("form", "lost"), [("in process", False), ("with Ray", False), ("with Ray", True)])
def test_submitted_updates_are_those_that_are_waited_for(learners, form: str, lost: bool) -> None:
    alone = local_learners(PPOLearner, config(num_learner_workers=0), SPACES)
    asked = learners if form == "with Ray" else local_learners(PPOLearner, config(num_learner_workers=0), SPACES)
    asked.set_state(alone.state())
    batches = [{"default_policy": rollout(seed)} for seed in range(3)]
    expected = [alone.update(batch, 64 * step)["default_policy"].stats for step, batch in enumerate(batches)]
    assert asked.results() == [], "nothing was submitted"
    if lost:
        os.kill(learners._group.process(2).pid, signal.SIGKILL)
    accepted = [asked.submit(batch, 64 * step) for step, batch in enumerate(batches)]
    assert accepted == [True, True, False], "what is under way is bounded"
    found = asked.results(0.0) if form == "with Ray" else []
    while len(found) < 2:
        found += asked.results(30.0)
    assert asked.submit(batches[2], 128), "there is room again"
    assert np.allclose(asked.weights()["default_policy"], alone.weights()["default_policy"], atol=1e-6)
    found += asked.results()
    assert [update["default_policy"].stats["total_loss"] for update in found] == pytest.approx(
        [stats["total_loss"] for stats in expected], rel=1e-4
    )
    assert asked.results() == []


@pytest.mark.parametrize("form", ["in process", "with Ray"])
def test_a_state_is_that_after_what_was_submitted_and_restoring_one_forgets_that(learners, form: str) -> None:
    alone = local_learners(PPOLearner, config(num_learner_workers=0), SPACES)
    asked = learners if form == "with Ray" else local_learners(PPOLearner, config(num_learner_workers=0), SPACES)
    asked.set_state(before := alone.state())
    alone.update({"default_policy": rollout(1)}, 0)
    assert asked.submit({"default_policy": rollout(1)}, 0)
    after = asked.state()["default_policy"]["weights"]
    assert np.allclose(after, alone.weights()["default_policy"], atol=1e-6)
    asked.set_state(before)
    assert asked.results() == []
    assert np.array_equal(asked.weights()["default_policy"], before["default_policy"]["weights"])


def test_all_learners_hold_the_same_state(learners):
    learners.update({"default_policy": rollout(9)}, 0)
    states = learners._group.call_all("state", timeout_s=30.0)
    one, other = states[1]["default_policy"], states[2]["default_policy"]
    assert np.array_equal(one["weights"], other["weights"])
    assert np.array_equal(one["generator"], other["generator"])
    weights = {"default_policy": np.full_like(one["weights"], 0.5)}
    learners.set_weights(weights)
    assert np.array_equal(learners.weights()["default_policy"], weights["default_policy"])


def test_two_learners_of_dqn_and_one_come_to_the_same_weights_and_td_errors() -> None:
    def made(count: int) -> DQNConfig:
        settings = DQNConfig().environment("CartPole-v1").debugging(seed=5)
        settings.training(train_batch_size=16, lr=0.01, target_network_update_freq=64)
        settings.training(model={"fcnet_hiddens": [8]}, hiddens=[8])
        return settings.resources(num_learner_workers=count, num_cpus_per_learner_worker=0.5).validate().freeze()

    alone = local_learners(DQNLearner, made(0), SPACES)
    two = RayLearners(DQNLearner, made(2), SPACES)
    try:
        for step in range(4):  # the target network follows from the second on
            batch = {"default_policy": transitions(step, count=48)}  # three gradient steps
            expected = alone.update(batch, step * 64)["default_policy"]
            found = two.update(batch, step * 64)["default_policy"]
            assert np.allclose(found.rows["td_errors"], expected.rows["td_errors"], atol=1e-5)
            assert found.stats == pytest.approx(expected.stats, rel=1e-4, abs=1e-6)
            assert np.allclose(two.weights()["default_policy"], alone.weights()["default_policy"], atol=1e-6)
        states = two._group.call_all("state", timeout_s=30.0)
        target = alone.state()["default_policy"]["target"]["weights"]
        assert not np.allclose(target, alone.weights()["default_policy"], atol=1e-4)
        others = [state["default_policy"]["target"]["weights"] for state in states.values()]
        assert all(np.allclose(other, target, atol=1e-6) for other in others)
    finally:
        two.stop()


def test_what_is_not_finite_in_another_process_ends_the_run_at_once() -> None:
    two = RayLearners(PPOLearner, config(recreate_failed_workers=True), SPACES)
    try:
        # a round that went well does not make this one worth repeating
        two.update({"default_policy": rollout(1)}, 0)
        batch = rollout(0)
        batch.rewards[2, 1] = np.nan
        with pytest.raises(WorkerError, match="is not finite") as caught:
            two.update({"default_policy": batch}, 0)
    finally:
        two.stop()
    assert caught.value.exit_code == EXIT_WRONG_USE
    assert math.isnan(caught.value.statistics["grad_gnorm"])
    assert two._group.num_restarts == 0


def test_learners_that_are_cut_off_in_an_update_are_not_mistaken_for_new_ones() -> None:
    """Else the checkpoint of a run that ends in the midst of an update would hold untrained weights."""
    deadline = Deadline()
    two = RayLearners(PPOLearner, config(), SPACES, deadline=deadline)
    try:
        two.update({"default_policy": rollout(1)}, 0)
        deadline.set(0.0)  # the run is to end at once
        with pytest.raises(Overdue):
            two.update({"default_policy": rollout(2)}, 64)
        with pytest.raises(WorkerError, match="no state was kept"):
            two.state()
    finally:
        two.stop()


def test_a_gpu_that_is_not_there_is_named():
    with pytest.raises(ResourceError, match=r"num_learner_workers 2 x num_gpus_per_learner_worker 0\.5 = 1 GPUs"):
        RayLearners(PPOLearner, config(num_gpus_per_learner_worker=0.5), SPACES)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_learners_meet_at_an_address_of_either_kind(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    if ":" in address and not ray_learners.INET6_DEVICES.exists():
        pytest.skip("a kernel without IPv6")
    monkeypatch.setattr(ray_learners, "_own_address", lambda: address)
    first = LearnerProcess(PPOLearner, config(), SPACES, rank=0, world_size=2)
    host, port = first.open()
    other = TCPStore(host, port, 2, timeout=timedelta(seconds=20))
    other.set("key", "value")
    assert (host, first._store.get("key")) == (address, b"value")


@pytest.mark.parametrize(("address", "device"), [("127.0.0.1", "lo"), ("::1", "lo"), ("2001:db8::1", None)])
def test_the_network_device_of_an_address_is_found(address: str, device: str | None) -> None:
    if ":" in address and not ray_learners.INET6_DEVICES.exists():
        pytest.skip("a kernel without IPv6")
    assert ray_learners._network_device(address) == device


@pytest.mark.parametrize("name", RECORDED)
def test_two_learners_of_recorded_episodes_come_to_the_weights_of_one_though_one_is_killed(name: str) -> None:
    kind = algorithm_class(name).config_class
    env = "Pendulum-v1" if issubclass(kind, QCriticsConfig) else "CartPole-v1"
    given: dict[str, Any] = {
        "env": env,
        "input_": recorded(env, episodes=10),
        "min_train_timesteps_per_iteration": 40,
        "train_batch_size": 20,
        "lr": 0.01,
        "model": {"fcnet_hiddens": [4]},
        "seed": 3,
    }
    on_ray: dict[str, Any] = {
        "num_learner_workers": 2,
        "num_cpus_per_learner_worker": 0.5,
        "recreate_failed_workers": True,
        "delay_between_worker_restarts_s": 0.0,
    }
    with kind.from_dict(given).build() as alone, kind.from_dict(given | on_ray).build() as algorithm:
        before = alone.learners.weights()["default_policy"].copy()
        for iteration in range(3):
            if iteration == 1:
                os.kill(algorithm.learners._group.process(2).pid, signal.SIGKILL)  # type: ignore[attr-defined]
            expected, found = alone.train(), algorithm.train()
            assert found["num_env_steps_trained"] == expected["num_env_steps_trained"]
            one, two = (each.learners.weights()["default_policy"] for each in (alone, algorithm))
            np.testing.assert_allclose(two, one, rtol=1e-4, atol=1e-5)
        assert np.abs(one - before).max() > 0.02
        assert algorithm.learners._group.num_restarts == 2, "both"  # type: ignore[attr-defined]
