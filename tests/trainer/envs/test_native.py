import gymnasium as gym
import numpy as np
import pytest

from reef.envs import make_vector_env
from reef.envs.loop import LoopVectorEnv
from reef.envs.native import CartPoleVector


@pytest.fixture
def cartpole(settings):
    def build(num_envs, name="CartPole-v1", **keys):
        env = make_vector_env(settings(name, **keys), 0, num_envs)
        assert isinstance(env, CartPoleVector)
        return env

    return build


def actions_for(steps, num_envs):
    return np.random.default_rng(0).integers(0, 2, (steps, num_envs))


def test_every_step_is_that_of_the_scalar_environment(cartpole):
    """Each column beside Gymnasium's own environment, put into the column's state once at the start of an episode."""
    env, scalars = cartpole(4), [gym.make("CartPole-v1") for _ in range(4)]
    env.reset()
    for scalar in scalars:
        scalar.reset()
        scalar.unwrapped.state = None
    ends = 0
    for actions in actions_for(300, 4):
        for column, scalar in enumerate(scalars):
            if scalar.unwrapped.state is None:
                scalar.unwrapped.state = env._env.state[:, column].copy()
        result = env.step(actions)
        for column, scalar in enumerate(scalars):
            obs, reward, terminated, truncated, _ = scalar.step(int(actions[column]))
            mine = result.final_obs.get(column, result.obs[column])
            np.testing.assert_allclose(mine, obs, rtol=1e-6, atol=1e-7)
            assert (result.rewards[column], result.terminated[column], result.truncated[column]) == (
                reward,
                terminated,
                truncated,
            )
            if terminated:
                ends += 1
                scalar.reset()
                scalar.unwrapped.state = None
    assert ends > 20


@pytest.mark.parametrize(("name", "limit"), [("CartPole-v1", 500), ("CartPole-v0", 200)])
def test_the_time_limit_truncates(cartpole, name, limit):
    env = cartpole(2, name)
    obs = env.reset()
    for _ in range(limit):
        result = env.step((obs @ np.array([0.0, 0.1, 1.0, 0.5]) > 0).astype(np.int64))  # keeps the pole up
        obs = result.obs
        ended = bool(result.truncated[0])
    assert ended and not result.terminated.any()
    assert abs(result.final_obs[0][2]) < 0.2095
    assert (env._env.steps == 0).all()


def test_ended_columns_begin_within_the_step_near_the_middle(cartpole):
    env = cartpole(64)
    env.reset()
    for actions in actions_for(60, 64):
        result = env.step(actions)
        ended = np.flatnonzero(result.terminated | result.truncated)
        assert set(result.final_obs) == set(ended)
        assert (np.abs(result.obs[ended]) <= 0.05).all()
        assert (env._env.steps[ended] == 0).all()
        assert all(abs(obs[0]) > 2.4 or abs(obs[2]) > 0.2094 for obs in result.final_obs.values())
    assert result.live is None


def test_equal_seeds_give_equal_runs_and_workers_differ(settings):
    runs = []
    for worker_index in (0, 0, 1):
        env = make_vector_env(settings("CartPole-v1"), worker_index, 8)
        env.reset()
        runs.append(np.array([env.step(actions).obs.copy() for actions in actions_for(50, 8)]))
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])


def test_a_second_reset_does_not_repeat_the_first(cartpole):
    env = cartpole(3)
    assert not np.array_equal(env.reset().copy(), env.reset())
    first = env.reset([1, 2, 3]).copy()
    np.testing.assert_array_equal(env.reset([1, 2, 3]), first)


def test_state_goes_on_bit_for_bit(cartpole):
    actions = actions_for(200, 8)
    whole, resumed = cartpole(8), cartpole(8)
    whole.reset()
    for row in actions[:77]:
        whole.step(row)
    np.testing.assert_array_equal(resumed.set_state(whole.state()), whole._obs)
    for row in actions[77:]:
        expected, result = whole.step(row), resumed.step(row)
        np.testing.assert_array_equal(expected.obs, result.obs)
        assert expected.final_obs.keys() == result.final_obs.keys()
    np.testing.assert_array_equal(whole.reset(), resumed.reset())


@pytest.mark.parametrize("columns", [2, 6])
def test_another_number_of_columns_takes_what_fits(cartpole, columns):
    whole, other = cartpole(4), cartpole(columns)
    obs = whole.reset().copy()
    taken = other.set_state(whole.state())
    assert other.resumed.tolist() == [True, True, True, True, False, False][:columns]
    np.testing.assert_array_equal(taken[:4], obs[:columns])
    assert (np.abs(taken[4:]) <= 0.05).all() and taken[4:].all()
    other.step(np.zeros(columns, np.int64))


def test_a_user_may_change_the_physics(cartpole):
    plain, heavy = cartpole(1), cartpole(1)
    heavy.envs[0].gravity = 20.0
    for env in (plain, heavy):
        env.reset([3])
        env.step(np.array([1]))
        env.step(np.array([1]))
    assert not np.array_equal(plain._obs, heavy._obs)


def test_what_the_native_form_cannot_do_runs_in_the_loop(settings):
    for env in (
        make_vector_env(settings("CartPole-v1", horizon=10), 0, 2),
        make_vector_env(settings("CartPole-v1", {"sutton_barto_reward": True}), 0, 2),
    ):
        assert isinstance(env, LoopVectorEnv)


def test_rewards_are_clipped_where_it_is_said_to_be_a_game_of_atari(cartpole):
    assert cartpole(2).reward_transform.identity
    assert not cartpole(2, is_atari=True).reward_transform.identity
