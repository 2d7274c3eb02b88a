"""Environments of several agents in processes of their own, beside the same ones in this process.

It tests reef.envs.context too.
"""

import os

import numpy as np
import pytest
from tests.trainer.run.policies.test_changes import Duel, against_the_past

from reef import PPOConfig
from reef.envs.multi_agent import IndependentAgents
from reef.errors import LostProcessError
from reef.rollout.worker import RolloutWorker


def for_each(agent):
    return "even" if agent == 0 else "odd"


CASES = {
    "at the same time": {
        "env": IndependentAgents,
        "env_config": {"env": "CartPole-v1", "num_agents": 2},
        "policies": ["even", "odd"],
        "policy_mapping_fn": for_each,
    },
    "cut off": {
        "env": IndependentAgents,
        "env_config": {"env": "CartPole-v1", "num_agents": 2},
        "horizon": 7,
    },
    "in turns": {"env": Duel, "policies": ["main", "past"], "policy_mapping_fn": against_the_past},
}


def config(case, *, remote):
    made = PPOConfig().rollouts(num_envs_per_worker=3, rollout_fragment_length=30, remote_worker_envs=remote)
    return made.training(model={"fcnet_hiddens": [4]}).debugging(seed=2).update_from_dict(CASES[case])


@pytest.fixture
def workers():
    made = []

    def build(case):
        made.extend(RolloutWorker(config(case, remote=remote)) for remote in (False, True))
        made[-1].set_weights(made[-2].get_weights())
        return made[-2:]

    yield build
    for worker in made:
        worker.stop()


def check_same(one, other):
    assert one.episodes == other.episodes
    assert one.env_steps == other.env_steps
    for name, rollout in one.rollouts.items():
        for column in ("obs", "actions", "rewards", "next_obs", "terminated", "truncated", "mask"):
            np.testing.assert_array_equal(getattr(rollout, column), getattr(other.rollouts[name], column), column)


@pytest.mark.parametrize("case", CASES)
def test_they_do_what_the_same_environments_do_in_this_process(workers, case):
    here, there = workers(case)
    for _ in range(3):
        check_same(here.sample(), there.sample())
    other_here, other_there = workers(case)
    for worker, state in ((other_here, there.state()), (other_there, here.state())):
        worker.set_weights(here.get_weights())
        worker.set_state(state)
    expected = here.sample()
    for worker in (there, other_here, other_there):
        check_same(expected, worker.sample())


def test_each_environment_has_a_process_and_is_named_when_it_is_lost(workers):
    _, there = workers("at the same time")
    pids = [env.process.begun.pid for env in there.env.envs]
    assert len({*pids, os.getpid()}) == 4
    there.sample()
    os.kill(pids[2], 9)
    with pytest.raises(LostProcessError, match="process of environment 2 of worker 0 .pid [0-9]+. has ended"):
        there.sample()
