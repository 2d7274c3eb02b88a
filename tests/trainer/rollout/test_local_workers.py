from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reef.algorithms.ppo import PPOConfig
from reef.errors import ConfigError
from reef.rollout.local_workers import LocalWorkers


def test_a_state_with_failed_remote_workers_goes_on_in_process() -> None:
    config = PPOConfig().environment("CartPole-v1").rollouts(rollout_fragment_length=3).debugging(seed=1)
    one, two = LocalWorkers(config), LocalWorkers(config)
    one.sample()
    sampled = one.state()["local"]
    idle = sampled | {"env": None, "obs": None}
    for remote in ([None], [None, sampled]):
        two.set_state({"local": idle, "remote": remote})
        two.sample()


def test_what_is_requested_in_process_is_sampled_at_once_and_held() -> None:
    config = PPOConfig().environment("CartPole-v1").rollouts(rollout_fragment_length=3).debugging(seed=1)
    config = config.training(max_requests_in_flight_per_sampler_worker=2)
    workers, plain = LocalWorkers(config), LocalWorkers(config)
    weights = plain.local_worker().get_weights()
    (index,) = workers.healthy
    assert not workers.request(index + 1), "there is no other worker"
    assert workers.ready() == []
    versions = []
    for version in (1, 2, 3):
        workers.set_weights(weights, version, timestep=0, to=[index])
        versions.append(workers.request(index))
    assert versions == [True, True, False], "as many as with Ray"
    rollouts = [sample.rollouts["default_policy"] for sample in workers.ready(timeout_s=0.0)]
    assert [rollout.policy_version for rollout in rollouts] == [1, 2], "the weights of the time of the request"
    plain.set_weights(weights, 1, timestep=0)
    for rollout in rollouts:
        assert np.array_equal(rollout.obs, plain.sample()[0].rollouts["default_policy"].obs)
    assert workers.ready() == []
    assert workers.request(index)
    workers.set_state(workers.state())
    assert workers.ready() == [], "a fragment from before the state that is restored"


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (lambda worker, index: (worker, index), "worker first"),
        (lambda worker, _: (worker, _), "worker first"),
        (lambda ev, i: (ev, i), "worker first"),
        (lambda a, b: (a, b), "worker first"),
        (lambda worker, worker_index: (worker, worker_index), "worker first"),
        (lambda id, worker: (id, worker), "index first"),
        (lambda _id, worker: (_id, worker), "index first"),
        (lambda i, ev: (i, ev), "index first"),
        (lambda worker_index, worker: (worker_index, worker), "index first"),
    ],
)
def test_a_function_gets_worker_and_index_in_the_order_that_it_names_them(fn: Any, expected: str) -> None:
    config = PPOConfig().environment("CartPole-v1").training(model={"fcnet_hiddens": [4]})
    workers = LocalWorkers(config)
    pair = (workers.local_worker(), 0)
    assert workers.foreach_worker_with_index(fn) == [pair if expected == "worker first" else pair[::-1]]


def test_a_function_that_takes_no_two_arguments_is_refused() -> None:
    workers = LocalWorkers(PPOConfig().environment("CartPole-v1").training(model={"fcnet_hiddens": [4]}))
    with pytest.raises(ConfigError, match=r"foreach_worker_with_index=.* It is called with \(worker, index\): take"):
        workers.foreach_worker_with_index(lambda worker: worker)
