from __future__ import annotations

import numpy as np

from reef.algorithms.ppo import PPOConfig
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
