import numpy as np
import pytest
from tests.trainer.envs.remote.remote_envs import Task, Walk

from reef.envs import make_vector_env

ACTIONS = np.zeros((2, 2), np.float32)


@pytest.fixture(scope="module")
def env():
    from reef.config import AlgorithmConfig

    config = AlgorithmConfig().environment(Task, env_config={"width": 3})
    config = config.rollouts(remote_worker_envs=True, remote_env_batch_wait_ms=60_000.0).debugging(seed=1)
    made = make_vector_env(config, 0, 2)
    yield made
    made.close()


def test_attributes_are_read_and_set_where_the_environment_is(env):
    one, other = env.envs
    assert (one.speed, one.context["width"]) == (1.0, 3)
    one.speed = 2.5
    assert (one.speed, other.speed) == (2.5, 1.0)
    assert one.unwrapped.get_task() == 0
    one.set_task(4)
    assert (one.get_task(), other.get_task()) == (4, 0)


def test_methods_get_their_arguments(env):
    one = env.envs[0]
    assert one.pid(twice=True) == 2 * one.pid() == one.pid(True)


def test_what_is_not_there_or_cannot_be_sent_is_said(env):
    one = env.envs[0]
    assert not hasattr(one, "missing")
    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        _ = one.missing
    with pytest.raises(AttributeError, match="runs in a process of its own"):
        _ = one._np_random
    one.speed = {"generator": None}
    with pytest.raises(Exception, match="missing 1 required"):
        one.set_task()


def test_a_call_between_asking_and_answering_loses_nothing(env):
    env.reset()
    one = env.envs[0]
    one.process.ask_step(np.ones(2, np.float32))
    assert one.steps == 1, "the answer to the step is kept"
    assert one.process.has_answer
    obs, reward, *_ = one.step(np.ones(2, np.float32))
    assert (obs[1], reward, one.steps) == (1.0, 2.0, 1)
    env.reset()


def test_a_reset_with_another_seed_or_options_is_one_of_its_own(env):
    one = env.envs[0]
    wanted = {seed: one.reset(seed=seed)[0].tolist() for seed in (1, 2)}
    one.process.ask_reset(1)
    assert one.reset(seed=2)[0].tolist() == wanted[2]
    one.process.ask_reset(1)
    assert one.reset(seed=1)[0].tolist() == wanted[1]
    one.process.ask_step(np.ones(2, np.float32), 1, cut=True)
    one.step(np.ones(2, np.float32))
    assert one.reset(seed=2)[0].tolist() == wanted[2]


def test_closing_twice_is_no_error():
    from reef.config import AlgorithmConfig

    config = AlgorithmConfig().environment(Walk).rollouts(remote_worker_envs=True)
    made = make_vector_env(config, 0, 1)
    made.close()
    made.close()
