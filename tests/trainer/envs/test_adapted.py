import json

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from reef import PPOConfig
from reef.envs import make_vector_env
from reef.envs.adapted import AdaptedVector
from reef.errors import ConfigError, EnvironmentError
from reef.trees import put_arrays_back, take_arrays_out


class VectorCounter(gym.vector.VectorEnv):
    """Column i observes its steps and ends after i + 2 of them."""

    mode = AutoresetMode.NEXT_STEP

    def __init__(self, num_envs=2, fail=False):
        self.num_envs, self.fail = num_envs, fail
        self.metadata = {"autoreset_mode": self.mode}
        self.single_observation_space, self.single_action_space = spaces.Box(0.0, 9.0, (1,)), spaces.Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.length = np.arange(num_envs) + 2

    def obs(self):
        return self.steps[:, None].astype(np.float32)

    def reset(self, *, seed=None, options=None):
        self.steps, self.done = np.zeros(self.num_envs, int), np.zeros(self.num_envs, bool)
        return self.obs(), {}

    def step(self, actions):
        if self.fail:
            raise RuntimeError("no simulator")
        rewards = np.where(self.done, 5.0, 1.0)  # 5: what a dead step says is not to be believed
        self.steps = np.where(self.done, 0, self.steps + 1)
        self.done, infos = self.steps >= self.length, {}
        obs, done = self.obs(), self.done.copy()
        if self.mode == AutoresetMode.SAME_STEP:
            infos["final_obs"] = [row if end else None for row, end in zip(obs, done, strict=True)]
            self.steps[done] = 0
            self.done[:] = False
        return self.obs(), rewards, done, np.zeros_like(done), infos


class SameStepCounter(VectorCounter):
    mode = AutoresetMode.SAME_STEP


class DisabledCounter(VectorCounter):
    mode = AutoresetMode.DISABLED


@pytest.fixture
def adapted(settings):
    def build(env_class, env_config=None, **keys):
        gym.register("VectorOnly-v0", vector_entry_point=env_class)
        try:
            env = make_vector_env(settings("VectorOnly-v0", env_config, **keys), 0, 2)
        finally:
            del gym.registry["VectorOnly-v0"]
        assert isinstance(env, AdaptedVector)
        return env

    return build


def play(env, steps):
    env.reset()
    for _ in range(steps):
        result = env.step(np.zeros(2, np.int64))
        live = [True, True] if result.live is None else result.live.tolist()
        final = {column: obs[0] for column, obs in result.final_obs.items()}
        yield result.obs[:, 0].tolist(), result.rewards.tolist(), result.terminated.tolist(), final, live


def test_next_step_resets_become_dead_steps(adapted):
    assert list(play(adapted(VectorCounter), 4)) == [
        ([1, 1], [1, 1], [False, False], {}, [True, True]),
        ([2, 2], [1, 1], [True, False], {0: 2}, [True, True]),
        ([0, 3], [0, 1], [False, True], {1: 3}, [False, True]),
        ([1, 0], [1, 0], [False, False], {}, [True, False]),
    ]


def test_same_step_resets_have_no_dead_steps(adapted):
    assert list(play(adapted(SameStepCounter), 3)) == [
        ([1, 1], [1, 1], [False, False], {}, [True, True]),
        ([0, 2], [1, 1], [True, False], {0: 2}, [True, True]),
        ([1, 0], [1, 1], [False, True], {1: 3}, [True, True]),
    ]


def test_an_environment_that_never_resets_itself_is_refused(adapted):
    with pytest.raises(EnvironmentError, match="NEXT_STEP and SAME_STEP"):
        adapted(DisabledCounter)


def test_a_raising_environment_is_named(adapted):
    env = adapted(VectorCounter, {"fail": True}, disable_env_checking=True)
    env.reset()
    with pytest.raises(EnvironmentError, match=r"(?s)'VectorOnly-v0' raised in step\(\).*no simulator.*in step\n"):
        env.step(np.zeros(2, np.int64))


class Shrunk(VectorCounter):
    """Returns one number for all columns, from the second step on."""

    def obs(self):
        return super().obs() if self.steps[0] < 2 else np.zeros(1, np.float32)


def test_observations_of_another_shape_are_not_broadcast(adapted):
    env = adapted(Shrunk)
    env.reset()
    env.step(np.zeros(2, np.int64))
    with pytest.raises(EnvironmentError, match=r"(?s)'VectorOnly-v0' breaks.*step.*shape \(1,\), expected \(2, 1\)"):
        env.step(np.zeros(2, np.int64))


def test_it_is_checked_before_training_unless_switched_off(adapted):
    class Unbounded(VectorCounter):
        def obs(self):
            return super().obs() + 10.0

    with pytest.raises(
        EnvironmentError, match=r"(?s)'VectorOnly-v0' breaks the Gymnasium API.*outside of \[0.0, 9.0\]"
    ):
        adapted(Unbounded)
    adapted(Unbounded, disable_env_checking=True)


def test_rewards_are_clipped_as_for_other_games(adapted):
    assert adapted(VectorCounter).reward_transform.identity
    assert not adapted(VectorCounter, is_atari=True).reward_transform.identity


@pytest.mark.parametrize(
    "keys",
    [
        {"horizon": 2},
        {"horizon": 2, "soft_horizon": True},
        {"no_done_at_end": True},
        {"restart_failed_sub_environments": True},
    ],
    ids=str,
)
def test_settings_that_it_does_not_know_are_refused_by_name(adapted, keys):
    with pytest.raises(ConfigError, match=f"(?s){next(iter(keys))}=.*'VectorOnly-v0' is registered in its vectorised"):
        adapted(VectorCounter, **keys)


class Single(gym.Env):
    """The same as a single environment."""

    observation_space, action_space = spaces.Box(0.0, 9.0, (1,)), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.ones(1, np.float32), 1.0, False, False, {}


class Wider(Single):
    observation_space = spaces.Box(0.0, 10.0, (1,))


@pytest.mark.parametrize(
    ("single", "num_envs", "keys", "vectorised"),
    [
        (Single, 2, {}, True),
        (Single, 1, {}, False),
        (Single, 2, {"is_atari": True}, False),
        (Single, 2, {"horizon": 2}, False),
        (Single, 2, {"no_done_at_end": True}, False),
        (Single, 2, {"restart_failed_sub_environments": True}, False),
        (Wider, 2, {}, False),
    ],
)
def test_it_takes_the_place_of_single_ones_where_only_the_speed_changes(settings, single, num_envs, keys, vectorised):
    gym.register("Both-v0", entry_point=single, vector_entry_point=VectorCounter)
    try:
        env = make_vector_env(settings("Both-v0", **keys), 0, num_envs)
    finally:
        del gym.registry["Both-v0"]
    assert isinstance(env, AdaptedVector) == vectorised
    assert env.observation_space == single.observation_space
    env.reset()


def test_what_raises_while_it_is_made_is_named(adapted):
    with pytest.raises(
        EnvironmentError, match=r"'VectorOnly-v0' cannot be made with env_config=\{'size': 3\}: TypeError"
    ):
        adapted(VectorCounter, {"size": 3})


def test_after_a_restore_new_episodes_begin_with_new_seeds(adapted):
    env, other = adapted(VectorCounter), adapted(VectorCounter)
    list(play(env, 1))
    assert other.set_state(env.state()).tolist() == [[0], [0]]
    assert not other.resumed.any()
    assert other.seeds.current(0) != env.seeds.current(0)


class Stateful(VectorCounter):
    """Gives its state, of which a random generator is a part."""

    def reset(self, *, seed=None, options=None):
        self.random = np.random.default_rng(seed)
        return super().reset()

    def obs(self):
        return super().obs() + self.random.random((self.num_envs, 1), np.float32)

    def get_state(self):
        return {"steps": self.steps, "done": self.done, "random": self.random.bit_generator.state, "pair": (1, 2)}

    def set_state(self, state):
        assert state["pair"] == [1, 2]
        self.steps, self.done = state["steps"].copy(), state["done"].copy()
        self.random.bit_generator.state = state["random"]


class StatefulSameStep(Stateful):
    mode = AutoresetMode.SAME_STEP


@pytest.mark.parametrize("env_class", [Stateful, StatefulSameStep])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_episodes_go_on_where_the_environment_gives_its_state(adapted, env_class, steps):
    env, other = adapted(env_class), adapted(env_class)
    list(play(env, steps))
    state = json_and_back(env.state())
    assert other.set_state(state).tolist() == env.observations.tolist()
    assert other.resumed.all()
    for _ in range(6):
        here, there = (one.step(np.zeros(2, np.int64)) for one in (env, other))
        for name in ("obs", "rewards", "terminated", "truncated", "live"):
            np.testing.assert_array_equal(getattr(here, name), getattr(there, name))
        assert here.final_obs.keys() == there.final_obs.keys()
    assert other.seeds.state() == env.seeds.state()


def json_and_back(state):
    """A state as a checkpoint gives it back."""
    arrays = {}
    return put_arrays_back(json.loads(json.dumps(take_arrays_out(state, "", arrays))), arrays)


@pytest.mark.parametrize("env_class", [Stateful, StatefulSameStep])
def test_a_resumed_run_is_the_uninterrupted_one(env_class, tmp_path):
    gym.register("VectorOnly-v0", vector_entry_point=env_class)
    made = PPOConfig().environment("VectorOnly-v0").rollouts(num_envs_per_worker=3, rollout_fragment_length=7)
    made.training(train_batch_size=21, sgd_minibatch_size=7, num_sgd_iter=2, model={"fcnet_hiddens": [4]})
    try:
        with made.debugging(seed=1).build() as whole, made.build() as resumed:
            whole.train()
            resumed.train()
            resumed.train()  # it goes on elsewhere than it was
            checkpoint = whole.save(tmp_path / "checkpoint")
            resumed.restore(checkpoint)
            for _ in range(2):
                expected, found = whole.train(), resumed.train()
                assert found["hist_stats"] == expected["hist_stats"]
            weights = (one.get_policy().flat.numpy() for one in (whole, resumed))
            np.testing.assert_array_equal(*weights)
    finally:
        del gym.registry["VectorOnly-v0"]


def test_where_it_does_not_fit_new_episodes_begin(adapted):
    env, other = adapted(Stateful), adapted(VectorCounter)
    list(play(env, 1))
    state = env.state()
    other.set_state(state)
    assert not other.resumed.any()
    (episodes,) = state["episodes"]
    episodes["obs"] = episodes["obs"][:1]
    env.set_state(state)
    assert not env.resumed.any()


def test_a_state_that_a_checkpoint_cannot_hold_is_refused(adapted):
    class Odd(Stateful):
        def get_state(self):
            return {"generator": self.random}

    env = adapted(Odd)
    assert env.state()["episodes"] == [], "no episode has begun"
    env.reset()
    with pytest.raises(EnvironmentError, match=r"get_state\(\) returned .*, which a checkpoint cannot hold"):
        env.state()


def test_composite_actions_and_observations_pass_in_batches(settings):
    space = spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Box(-9.0, 9.0, (2,))})

    class Echo(VectorCounter):
        def __init__(self, num_envs):
            super().__init__(num_envs)
            self.single_observation_space = self.single_action_space = space
            self.observation_space = self.action_space = batch_space(space, num_envs)

        def reset(self, *, seed=None, options=None):
            self.action_space.seed(0)
            return self.action_space.sample(), {}

        def step(self, actions):
            none = np.zeros(self.num_envs, bool)
            return actions, np.zeros(self.num_envs), none, none, {}

    env = AdaptedVector(settings("x", normalize_actions=False), 0, Echo(2))
    env.reset()
    actions = np.array([[2, 0.5, 1.5], [1, -3.0, 4.0]], np.float32)
    assert env.step(actions).obs.tolist() == actions.tolist()
