"""

It tests reef.envs.failures too.
"""

import logging

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from reef.envs import make_vector_env
from reef.errors import EnvironmentError

ONES = np.ones(2, np.int64)


def copied(result):
    """What of a step the next one would overwrite."""
    live = None if result.live is None else result.live.tolist()
    final = {column: obs.tolist() for column, obs in result.final_obs.items()}
    return [a.tolist() for a in (result.obs, result.rewards, result.terminated, result.truncated)], final, live


def play(env, actions):
    return [copied(env.step(row)) for row in actions]


def test_an_ended_column_begins_its_next_episode_within_the_step(counter, settings):
    env = make_vector_env(settings(counter, {"length": 2}), 0, 2)
    assert env.reset([10, 20]).tolist() == [[10, 0], [20, 0]]
    first = copied(env.step(np.array([0, 1])))
    assert first == ([[[10, 1], [20, 1]], [1.0, 2.0], [False, False], [False, False]], {}, None)
    arrays, final, live = copied(env.step(np.array([0, 1])))
    assert arrays[1:] == [[2.0, 3.0], [True, True], [False, False]]
    assert final == {0: [10, 2], 1: [20, 2]} and live is None
    assert [row[1] for row in arrays[0]] == [0, 0] and arrays[0][0][0] not in (10, 20)


def test_terminated_and_truncated_stay_apart(counter, settings):
    for config, expected in (({"limit": 2}, (False, True)), ({"length": 2, "limit": 2}, (True, True))):
        env = make_vector_env(settings(counter, config), 0, 2)
        env.reset()
        env.step(ONES)
        result = env.step(ONES)
        assert (result.terminated[0], result.truncated[0]) == expected


@pytest.mark.parametrize(
    ("keys", "ends", "restarted"),
    [  # episodes of 3 steps by themselves, cut after 2
        ({"horizon": 2}, [(0, 0), (0, 1), (0, 0), (0, 1)], True),
        ({"horizon": 2, "soft_horizon": True}, [(0, 0), (0, 1), (1, 0), (0, 0)], False),
        ({"no_done_at_end": True}, [(0, 0), (0, 0), (0, 1), (0, 0)], True),
        ({"horizon": 2, "no_done_at_end": True}, [(0, 0), (0, 1), (0, 0), (0, 1)], True),
    ],
)
def test_horizon(counter, settings, keys, ends, restarted):
    env = make_vector_env(settings(counter, **keys), 0, 1)
    env.reset([1])
    seen = []
    for step in range(4):
        result = env.step(ONES[:1])
        seen.append((int(result.terminated[0]), int(result.truncated[0])))
        if step == 1 and "horizon" in keys:
            assert (result.obs[0, 1] == 0) == restarted
            assert result.final_obs[0].tolist() == [1, 2]
    assert seen == ends


def test_rewards_are_clipped_for_training_and_reported_as_they_are(counter, settings):
    env = make_vector_env(settings(counter, clip_rewards=1.0), 0, 2)
    env.reset()
    result = env.step(ONES)
    assert (result.rewards.tolist(), result.raw_rewards.tolist()) == ([1.0, 1.0], [2.0, 2.0])


class Sink(gym.Env):
    """Observes the action it got, and spoils it."""

    def __init__(self, context):
        self.action_space = self.observation_space = context["space"]

    def reset(self, *, seed=None, options=None):
        self.action_space.seed(0)
        return self.action_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        obs = action.copy() if isinstance(action, np.ndarray) else action
        if isinstance(action, np.ndarray):
            action *= 0
        return obs, 0.0, False, False, {}


@pytest.mark.parametrize(
    ("space", "action", "obs"),
    [
        (spaces.Box(0.0, 10.0, (2,)), [0.0, 9.0], [5.0, 10.0]),
        (spaces.Discrete(3, start=5), 2, 2),
        (spaces.MultiDiscrete([3, 3]), [1, 2], [1, 2]),
        (spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Box(0.0, 2.0, (1,))}), [2.0, -1.0], [2.0, 0.0]),
    ],
    ids=str,
)
def test_the_environment_gets_an_action_of_its_own_space_and_may_spoil_it(settings, space, action, obs):
    env = make_vector_env(settings(Sink, {"space": space}), 0, 2)
    env.reset()
    actions = np.array([action, action], env.action_layout.dtype)
    kept = actions.copy()
    result = env.step(actions)
    np.testing.assert_array_equal(result.obs, np.array([obs, obs]))
    np.testing.assert_array_equal(actions, kept)
    assert env.state()["columns"][0]["actions"].tolist() == [action]


def test_a_raising_environment_is_named_with_its_own_traceback(counter, settings):
    env = make_vector_env(settings(counter, {"fail_at": (1, 2)}), 4, 2)
    env.reset()
    env.step(ONES)
    with pytest.raises(EnvironmentError) as caught:
        env.step(ONES)
    text = str(caught.value)
    assert "'Counter' raised in step() at column 1 of worker 4, step 2 of its episode" in text
    assert "RuntimeError: the simulator crashed" in text and "in step\n" in text
    assert "restart_failed_sub_environments" in text


def test_only_the_failed_environment_is_made_anew(counter, settings):
    actions = np.random.default_rng(0).integers(0, 2, (12, 3))
    whole = make_vector_env(settings(counter, {"length": 4}), 0, 3)
    failing = make_vector_env(
        settings(counter, {"length": 4, "fail_at": (1, 3)}, restart_failed_sub_environments=True), 0, 3
    )
    whole.reset(), failing.reset()
    broken, siblings = failing.envs[1], [failing.envs[0], failing.envs[2]]
    for row in actions:
        expected, result = whole.step(row), failing.step(row)
        for column in (0, 2):  # bit-identical
            for name in ("obs", "rewards", "terminated", "truncated"):
                assert (getattr(expected, name)[column] == getattr(result, name)[column]).all()
    assert failing.restarts == 4  # steps 3, 6, 9 and 12
    assert broken.closed and failing.envs[1] is not broken
    assert [failing.envs[0], failing.envs[2]] == siblings


def test_the_step_that_failed_is_dead_and_cuts_the_episode(counter, settings):
    env = make_vector_env(settings(counter, {"fail_at": (1, 2)}, restart_failed_sub_environments=True), 0, 2)
    env.reset([5, 6])
    env.step(ONES)
    arrays, final, live = copied(env.step(ONES))
    assert live == [True, False]
    assert arrays[1][1] == 0.0 and (arrays[2][1], arrays[3][1]) == (False, True)
    assert final == {1: [6, 1]}  # the last observation before the failure
    assert arrays[0][1][1] == 0  # a new episode
    assert env.step(ONES).live is None


def test_an_environment_that_never_resets_is_given_up(counter, settings, caplog):
    config = settings(counter, {"fail_reset": 1}, restart_failed_sub_environments=True)
    env = make_vector_env(config, 0, 2)
    with pytest.raises(EnvironmentError, match=r"raised in reset\(\) at column 1"):
        env.reset()
    assert env.restarts == 5


def test_an_environment_whose_every_step_raises_is_given_up(counter, settings):
    env = make_vector_env(settings(counter, {"fail_at": (1, 1)}, restart_failed_sub_environments=True), 0, 2)
    env.reset()
    with pytest.raises(EnvironmentError, match=r"raised in step\(\) at column 1") as caught:
        for _ in range(10):
            env.step(ONES)
    assert env.restarts == 5
    assert "made again 5 times" in str(caught.value) and "simulator crashed" in str(caught.value)


def test_state_goes_on_with_the_episodes_in_progress(settings):
    actions = np.random.default_rng(1).uniform(-1.0, 1.0, (60, 2, 1)).astype(np.float32)
    config = settings("Pendulum-v1", horizon=25)
    whole = make_vector_env(config, 0, 2)
    whole.reset()
    play(whole, actions[:35])
    resumed = make_vector_env(config, 3, 2)  # another worker index: all seeds come from the state
    state = whole.state()
    assert [len(column["actions"]) for column in state["columns"]] == [10, 10]
    np.testing.assert_array_equal(resumed.set_state(state), whole._obs)
    assert play(resumed, actions[35:]) == play(whole, actions[35:])


def test_columns_at_different_points_of_their_episodes_are_restored(counter, settings):
    actions = np.random.default_rng(1).integers(0, 2, (40, 3))
    config = settings(counter, {"length": 5, "fail_at": (1, 4)}, restart_failed_sub_environments=True)
    whole = make_vector_env(config, 0, 3)
    whole.reset()
    for step in range(20):
        whole.step(actions[step])
        resumed = make_vector_env(config, 0, 3)
        resumed.set_state(whole.state())
        twice = make_vector_env(config, 0, 3)
        twice.set_state(resumed.state())
        ahead = play(twice, actions[step + 1 : step + 8])
        assert play(resumed, actions[step + 1 : step + 8]) == ahead
    assert play(whole, actions[20:27]) == ahead


@pytest.mark.parametrize("columns", [1, 5])
def test_another_number_of_columns_takes_what_fits(counter, settings, columns):
    config = settings(counter, {"length": 9})
    whole = make_vector_env(config, 0, 3)
    whole.reset([1, 2, 3])
    whole.step(np.ones(3, np.int64))
    other = make_vector_env(config, 0, columns)
    obs = other.set_state(whole.state())
    assert other.resumed.tolist() == [True, True, True, False, False][:columns]
    assert obs[:3].tolist() == [[1, 1], [2, 1], [3, 1]][:columns]
    assert (obs[3:, 1] == 0).all()
    other.step(np.ones(columns, np.int64))


class Moody(gym.Env):
    """Not deterministic for a seed: every environment object observes its own number."""

    observation_space, action_space, made = spaces.Box(0.0, 99.0, (1,)), spaces.Discrete(2), 0

    def __init__(self, context):
        Moody.made += 1
        self.number = np.array([Moody.made], np.float32)

    def reset(self, *, seed=None, options=None):
        return self.number, {}

    def step(self, action):
        return self.number, 0.0, False, False, {}


def test_a_replay_that_ends_elsewhere_is_warned_of(settings, caplog):
    config = settings(Moody)
    env, other = make_vector_env(config, 0, 1), make_vector_env(config, 0, 1)
    env.reset()
    with caplog.at_level(logging.WARNING):
        other.set_state(env.state())
    assert "not deterministic" in caplog.text and not other.resumed.any()
    other.step(ONES[:1])


def test_what_was_never_begun_is_not_replayed(settings, caplog):
    config = settings("Acrobot-v1")
    env, other = make_vector_env(config, 0, 2), make_vector_env(config, 0, 2)
    with caplog.at_level(logging.WARNING):
        obs = other.set_state(env.state())
    assert caplog.text == ""
    np.testing.assert_array_equal(obs, env.reset())


def test_a_column_whose_replay_ends_elsewhere_begins_anew(settings):
    config = settings(Moody)
    env, other = make_vector_env(config, 0, 1), make_vector_env(config, 0, 1)
    env.reset()
    for _ in range(3):
        env.step(ONES[:1])
    other.set_state(env.state())
    assert other.state()["columns"][0]["length"] == 0, "what is left of an episode is no episode"


def test_an_episode_too_long_to_replay_starts_afresh(counter, settings, caplog, monkeypatch):
    monkeypatch.setattr("reef.envs.loop.REPLAY_LIMIT", 4)
    config = settings(counter, {"length": 99})
    env, other = make_vector_env(config, 0, 2), make_vector_env(config, 0, 2)
    env.reset()
    for _ in range(5):
        env.step(ONES)
    with caplog.at_level(logging.WARNING):
        obs = other.set_state(env.state())
    assert obs[:, 1].tolist() == [0, 0] and "starts a new one" in caplog.text and not other.resumed.any()
    other.step(ONES)


def test_actions_of_ended_episodes_are_let_go(counter, settings):
    env = make_vector_env(settings(counter), 0, 2)
    env.reset()
    for _ in range(50):
        env.step(ONES)
    assert len(env._history) < 3


def test_seeds_must_fit_the_columns(counter, settings):
    with pytest.raises(ValueError, match="3 seeds for 2"):
        make_vector_env(settings(counter), 0, 2).reset([1, 2, 3])


def test_close_reaches_every_environment(counter, settings):
    env = make_vector_env(settings(counter), 0, 2)
    env.close()
    assert all(sub.closed for sub in env.envs)


def test_what_raises_when_it_is_closed_is_logged(counter, settings, caplog):
    class Clinging(counter):
        def close(self):
            super().close()
            raise RuntimeError("the window is gone")

    env = make_vector_env(settings(Clinging), 0, 2)
    with caplog.at_level(logging.WARNING):
        env.close()
    assert all(sub.closed for sub in env.envs)
    assert "'Clinging' raised in close() at the end: RuntimeError: the window is gone" in caplog.text


PAIR = spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Box(-1.0, 1.0, (2,))})


@pytest.mark.parametrize(
    ("space", "good", "bad", "message"),
    [
        (spaces.Box(-1.0, 1.0, (2,)), np.zeros(2, np.float32), 0.5, r"a float of shape \(\), expected \(2,\) of Box"),
        (spaces.Box(-1.0, 1.0, (2,)), [0.0, 0.0], [0.5], r"a list of shape \(1,\), expected \(2,\) of Box"),
        (spaces.Box(-1.0, 1.0, (2,)), np.zeros(2), None, r"a NoneType of shape \(\), expected \(2,\)"),
        (spaces.Box(-1.0, 1.0, (2, 2)), np.zeros((2, 2)), np.ones(2), r"shape \(2,\), expected \(2, 2\)"),
        (spaces.MultiDiscrete([3, 3]), np.array([0, 0]), np.array([1]), r"shape \(1,\), expected \(2,\) of MultiDi"),
        (spaces.MultiDiscrete([3, 3], start=[1, 1]), np.array([1, 1]), 2, r"shape \(\), expected \(2,\)"),
        (spaces.Discrete(3), 0, np.array([1]), r"a ndarray of shape \(1,\), expected \(\) of Discrete\(3\)"),
        (PAIR, {"a": 0, "b": np.zeros(2)}, {"a": 0, "b": 0.5}, r"value\['b'\] has the shape \(\), expected \(2,\) of"),
    ],
    ids=str,
)
def test_an_observation_of_another_shape_is_not_broadcast(settings, space, good, bad, message):
    class Shifting(gym.Env):
        observation_space, action_space, steps = space, spaces.Discrete(2), 0

        def reset(self, *, seed=None, options=None):
            return good, {}

        def step(self, action):
            self.steps += 1
            return good if self.steps < 4 else bad, 0.0, False, False, {}

    env = make_vector_env(settings(lambda context: Shifting()), 0, 1)
    env.reset()
    env.step(ONES[:1])
    with pytest.raises(EnvironmentError, match=rf"(?s)breaks the Gymnasium API in step\(\) at column 0.*{message}"):
        env.step(ONES[:1])


@pytest.mark.parametrize("key", ["terminated", "truncated"])
def test_an_end_told_by_an_array_is_named(counter, settings, key):
    class Plural(counter):
        def step(self, action):
            obs, reward, *_, info = super().step(action)
            ends = {"terminated": False, "truncated": False}
            if self.steps > 1:
                ends[key] = np.array([False, False])
            return obs, reward, *ends.values(), info

    env = make_vector_env(settings(Plural), 0, 2)
    env.reset()
    env.step(ONES)
    with pytest.raises(
        EnvironmentError, match=rf"'Plural' breaks.*{key} is an array of shape \(2,\), expected True or"
    ):
        env.step(ONES)
