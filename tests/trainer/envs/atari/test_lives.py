"""Lives of Atari games: an end for the learner, within one episode."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from games import LEFT, NOOP, RIGHT, Game

from reef.algorithms.ppo import PPOConfig
from reef.envs.atari.frames import wrap_deepmind
from reef.envs.atari.lives import GamesVectorEnv, lives_of
from reef.envs.by_policy import SingleAgentEnvs
from reef.envs.make import make_vector_env
from reef.rollout.worker import RolloutWorker


@pytest.fixture
def games(settings):
    def make(count=2, **keys):
        return make_vector_env(settings(lambda context: Game(**context), **keys), 0, count)

    return make


def step(env, *actions):
    result = env.step(np.array(actions))
    return result.terminated.tolist(), result.truncated.tolist(), sorted(result.final_obs)


def test_a_lost_life_is_an_end_for_the_learner_and_the_game_goes_on(games):
    env = games()
    env.reset()
    assert isinstance(env, GamesVectorEnv)
    assert step(env, LEFT, RIGHT) == ([True, False], [False, False], [])
    assert step(env, RIGHT, RIGHT) == ([False, False], [False, False], [])
    assert env.envs[0].unwrapped.lives == 2
    assert step(env, LEFT, RIGHT) == ([True, False], [False, False], [])
    assert step(env, LEFT, RIGHT) == ([True, False], [False, False], [0]), "the game is over"
    assert env.envs[0].unwrapped.lives == 3


def test_an_environment_has_ended_only_where_its_game_is_over(games):
    envs = SingleAgentEnvs(games())
    envs.reset()
    for actions, ended in (([LEFT, RIGHT], None), ([LEFT, RIGHT], None), ([LEFT, LEFT], [True, False])):
        step = envs.step({"default_policy": np.array(actions)})
        assert (step.ended if step.ended is None else step.ended.tolist()) == ended
    assert step.results["default_policy"].terminated.tolist() == [True, True]


def test_lives_are_known_below_other_wrappers(settings):
    env = make_vector_env(settings(lambda context: gym.wrappers.TimeLimit(wrap_deepmind(Game()), 3)), 0, 1)
    env.reset()
    assert step(env, LEFT) == ([True], [False], [])
    assert step(env, RIGHT) == ([False], [False], [])
    assert step(env, LEFT) == ([False], [True], [0]), "the time is over"
    assert lives_of(gym.wrappers.TimeLimit(Game(), 3)) is None


def test_no_done_at_end_marks_no_lives(games):
    env = games(1, no_done_at_end=True)
    env.reset()
    assert step(env, LEFT) == ([False], [False], [])


def test_at_the_horizon_an_episode_is_cut_whatever_is_lost(games):
    env = games(1, horizon=1)
    env.reset()
    assert step(env, LEFT) == ([False], [True], [0])


def test_rewards_of_a_game_are_clipped_though_it_comes_from_a_function(games):
    env = games(1)
    env.reset()
    result = env.step(np.array([RIGHT]))
    assert (result.rewards.tolist(), result.raw_rewards.tolist()) == ([1.0], [8.0])
    unclipped = games(1, clip_rewards=False)
    unclipped.reset()
    assert unclipped.step(np.array([RIGHT])).rewards.tolist() == [8.0]


def test_a_game_resumes_in_the_middle_of_its_lives(games):
    env, other = games(), games()
    env.reset()
    for actions in ((LEFT, RIGHT), (RIGHT, NOOP), (RIGHT, LEFT)):
        env.step(np.array(actions))
    other.set_state(env.state())
    assert other.resumed.tolist() == [True, True]
    np.testing.assert_array_equal(other.observations, env.observations)
    for actions in ((LEFT, LEFT), (LEFT, RIGHT), (RIGHT, RIGHT)):
        ours, theirs = env.step(np.array(actions)), other.step(np.array(actions))
        np.testing.assert_array_equal(ours.obs, theirs.obs)
        np.testing.assert_array_equal(ours.terminated, theirs.terminated)


def test_episodes_that_are_reported_are_whole_games():
    config = PPOConfig().environment(lambda context: Game()).rollouts(rollout_fragment_length=60).debugging(seed=1)
    config.training(model={"conv_filters": [[2, 8, 8]], "post_fcnet_hiddens": [4]})
    worker = RolloutWorker(config.checked())
    sample = worker.sample()
    rollout = sample.rollouts["default_policy"]
    assert rollout.obs.dtype == np.uint8
    assert len(sample.episodes) >= 1
    assert rollout.terminated.sum() >= 3 * len(sample.episodes)
    worker.stop()
