from __future__ import annotations

from reef.algorithms.ppo import PPOConfig
from reef.rollout.worker_set import LocalWorkers


def test_a_state_with_failed_remote_workers_goes_on_in_process() -> None:
    config = PPOConfig().environment("CartPole-v1").rollouts(rollout_fragment_length=3).debugging(seed=1)
    one, two = LocalWorkers(config), LocalWorkers(config)
    one.sample()
    sampled = one.state()["local"]
    idle = sampled | {"env": None, "obs": None}
    for remote in ([None], [None, sampled]):
        two.set_state({"local": idle, "remote": remote})
        two.sample()
