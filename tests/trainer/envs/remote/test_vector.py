"""Environments in processes of their own beside the same ones in this process.

It tests reef.envs.remote.channel, reef.envs.remote.messages and reef.envs.remote.server too.
"""

import os
import time

import gymnasium as gym
import numpy as np
import pytest
from tests.trainer.envs.remote.remote_envs import Large, NoSpace, Old, Pair, Parts, Task, Walk

from reef.envs import make_vector_env
from reef.envs.make import make_envs
from reef.errors import ConfigError, EnvironmentError, LostProcessError

ALL = 60_000.0  # milliseconds to wait: for all


@pytest.fixture
def remote(settings):
    """Make environments in processes, which are ended after the test."""
    made = []

    def build(env, env_config=None, num_envs=3, wait=ALL, **keys):
        config = settings(env, env_config, remote_worker_envs=True, remote_env_batch_wait_ms=wait, **keys)
        made.append(make_vector_env(config, 0, num_envs))
        return made[-1]

    yield build
    for env in made:
        env.close()


def actions_for(env, steps):
    """Actions [steps, B, *act] of this kind of environments."""
    layout = env.action_layout
    draw = np.random.default_rng(0).uniform(-1.0, 1.0, (steps, env.num_envs, *layout.shape))
    return (draw > 0).astype(layout.action_dtype) if layout.action_dtype.kind == "i" else draw.astype(np.float32)


def step(env, actions):
    """What of a step the next one would overwrite; all columns are live where nothing is said."""
    result = env.step(actions)
    live = np.ones(env.num_envs, bool) if result.live is None else result.live.copy()
    final = {column: obs.tolist() for column, obs in sorted(result.final_obs.items())}
    arrays = result.obs, result.rewards, result.terminated, result.truncated, result.raw_rewards
    return [array.tolist() for array in arrays], final, live.tolist()


@pytest.mark.parametrize(
    ("env", "keys"),
    [
        (Walk, {}),
        (Walk, {"horizon": 2}),
        (Walk, {"horizon": 2, "soft_horizon": True}),
        (Walk, {"no_done_at_end": True, "clip_rewards": True, "clip_actions": True}),
        (Parts, {}),
        (Old, {}),
        (Task, {}),
        (Walk, {"env_config": {"raise_at": 2, "env": 1}, "restart_failed_sub_environments": True, "horizon": 4}),
        ("MountainCarContinuous-v0", {"horizon": 5}),
    ],
)
@pytest.mark.filterwarnings("ignore:environment 'Old' is of the old Gym API")
def test_they_do_what_the_same_environments_do_in_this_process(remote, settings, env, keys):
    here, there = make_vector_env(settings(env, **keys), 0, 3), remote(env, **keys)
    assert here.observation_space == there.observation_space
    for _ in range(2):
        assert here.reset().tolist() == there.reset().tolist()
        for actions in actions_for(here, 9):
            assert step(here, actions) == step(there, actions)
    assert here.restarts == there.restarts
    assert here.seeds.episodes == there.seeds.episodes


def test_episodes_in_progress_go_on_from_their_state_in_both_directions(remote, settings):
    here, there = make_vector_env(settings(Walk), 0, 3), remote(Walk)
    actions = actions_for(here, 12)
    for env in (here, there):
        env.reset()
        for row in actions[:7]:
            env.step(row)
    state, same = here.state(), there.state()
    assert [column["length"] for column in state["columns"]] == [column["length"] for column in same["columns"]]
    other_here, other_there = make_vector_env(settings(Walk), 0, 3), remote(Walk)
    assert other_here.set_state(same).tolist() == other_there.set_state(state).tolist()
    assert other_there.resumed.all()
    for row in actions[7:]:
        assert step(here, row) == step(there, row) == step(other_here, row) == step(other_there, row)


def test_each_has_a_process_and_its_context(remote):
    env = remote(Walk)
    pids = [one.pid() for one in env.envs]
    assert len({*pids, os.getpid()}) == 4
    assert [(one.index, one.made_remotely, one.recreated) for one in env.envs] == [(i, True, False) for i in range(3)]


def test_random_numbers_of_the_processes_are_not_the_same(remote):
    class Global(Walk):
        def draw(self):
            return float(np.random.random())

    first, again = ([one.draw() for one in remote(Global, seed=5).envs] for _ in range(2))
    assert len({*first}) == 3
    assert first == again, "they depend on the seed of the run"


def test_only_those_that_have_answered_step(remote):
    env = remote(Walk, {"slow_s": 0.5, "env": 1}, wait=0.0)
    env.reset()
    actions = actions_for(env, 1)[0]
    lengths = np.zeros(3, np.int64)
    started = time.monotonic()
    while not lengths[1]:
        result = env.step(actions)
        lengths += result.live
        assert result.live.tolist() == env.present.tolist()
        assert not result.rewards[~result.live].any()
    assert time.monotonic() - started < 20.0
    assert lengths[0] > 5 and lengths[2] > 5, "the others went on"


def test_the_wait_is_for_further_answers(remote):
    env = remote(Walk, {"slow_s": 0.3, "env": 1}, wait=ALL)
    env.reset()
    assert env.step(actions_for(env, 1)[0]).live.all()


def test_large_observations(remote):
    env = remote(Large, num_envs=2)
    env.reset()
    actions = np.full((2, 2), 0.5, np.float32)
    for steps in (1, 2):
        obs = env.step(actions).obs
        assert (obs == 1.0 + steps).all()


def test_what_is_registered_here_is_known_there(remote):
    gym.register("Walk-v7", lambda **keys: Walk(EnvWith(keys)))
    try:
        env = remote("Walk-v7", {"length": 3}, horizon=3)
        assert env.reset().shape == (3, 3)
    finally:
        del gym.registry["Walk-v7"]


class EnvWith(dict):
    """Arguments as a context."""

    vector_index, remote, recreated_worker = 0, True, False


@pytest.mark.parametrize("error", ["ValueError", "FileNotFoundError"])
def test_an_environment_that_raises_shows_its_own_traceback(remote, error):
    env = remote(Walk, {"raise_at": 2, "env": 2, "of_files": error == "FileNotFoundError"})
    env.reset()
    env.step(actions_for(env, 1)[0])
    with pytest.raises(EnvironmentError) as raised:
        env.step(actions_for(env, 1)[0])
    text = str(raised.value)
    assert f"'Walk' raised in step() at column 2 of worker 0, step 2 of its episode: {error}: the motor" in text
    assert '("the motor is hot")' in text and "reef/envs/remote" not in text


@pytest.mark.parametrize("broken", [0, 1])
def test_an_environment_that_cannot_be_made_says_why(remote, broken):
    with pytest.raises(EnvironmentError, match=r"'NoSpace' cannot be made .*: OSError: no licence is free") as error:
        remote(NoSpace, {"broken": broken})
    assert "remote_envs.py" in str(error.value)


def test_a_killed_process_ends_the_run_or_is_replaced(remote, tmp_path, caplog):
    env = remote(Walk, {"die_at": 2, "env": 1, "marks": str(tmp_path)})
    env.reset()
    actions = actions_for(env, 1)[0]
    env.step(actions)
    with pytest.raises(LostProcessError, match=r"process of environment 1 of worker 0 \(pid \d+\) has ended") as error:
        env.step(actions)
    assert "restart_failed_sub_environments=True" in str(error.value)
    (tmp_path / "died").unlink()
    env = remote(
        Walk, {"die_at": 2, "env": 1, "marks": str(tmp_path)}, restart_failed_sub_environments=True, horizon=20
    )
    env.reset()
    pids = [one.pid() for one in env.envs]
    results = [step(env, actions) for _ in range(3)]
    assert [live for *_, live in results] == [[True] * 3, [True, False, True], [True] * 3]
    assert results[1][0][3][1], "the episode is truncated where it broke"
    assert [one.pid() != old for one, old in zip(env.envs, pids, strict=True)] == [False, True, False]
    assert "has ended: it was killed, ran out of memory or crashed. It is made again" in caplog.text


def test_what_cannot_be_used_is_refused(remote, settings):
    gym.register("OnlyVector-v0", vector_entry_point="gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv")
    try:
        with pytest.raises(ConfigError, match="'OnlyVector-v0' is registered in its vectorised form alone"):
            remote("OnlyVector-v0")
    finally:
        del gym.registry["OnlyVector-v0"]
    with pytest.raises(ConfigError, match="remote_env_batch_wait_ms=5.0: has no effect with an env"):
        make_envs(settings(Pair, remote_worker_envs=True, remote_env_batch_wait_ms=5.0), 0, 1)
    with pytest.raises(ConfigError, match="observation_fn=.*has one agent. Leave it out"):
        make_envs(settings(Walk, remote_worker_envs=True, observation_fn=dict), 0, 1)
    with pytest.raises(ConfigError, match=r"remote_worker_envs=True: environment 'Walk' cannot go to a process"):
        remote(Walk, {"lock": __import__("threading").Lock()})
    with pytest.raises(ConfigError, match="model.dim=42: for Atari games"):
        make_envs(settings(Walk, remote_worker_envs=True).training(model={"dim": 42}), 0, 1)
