"""Workers whose environments answer apart, beside workers that step the same environments together."""

import numpy as np
import pytest
from tests.trainer.envs.remote.remote_envs import Walk

from reef import DQNConfig, PPOConfig
from reef.callbacks import DefaultCallbacks
from reef.offline.episode_files import recorded_in
from reef.offline.places import files_of
from reef.rollout.worker import RolloutWorker
from reef.types import DEFAULT_POLICY

ALL = 60_000.0
COLUMNS = ("obs", "actions", "rewards", "next_obs", "terminated", "truncated", "mask")


def config(*, remote: bool, wait: float = ALL, env_config=None, **settings):
    made = PPOConfig().environment(Walk, env_config=env_config or {}).debugging(seed=4)
    made.rollouts(num_envs_per_worker=3, rollout_fragment_length=5).training(model={"fcnet_hiddens": [4]})
    if remote:
        made.rollouts(remote_worker_envs=True, remote_env_batch_wait_ms=wait)
    return made.update_from_dict(settings)


@pytest.fixture
def workers():
    """A worker whose environments are in its process and one with the same weights whose are not."""
    made = []

    def build(**settings):
        made.extend(RolloutWorker(config(remote=remote, **settings)) for remote in (False, True))
        here, there = made[-2:]
        there.set_weights(here.get_weights())
        return here, there

    yield build
    for worker in made:
        worker.stop()


def check_same(one, other):
    mine, others = one.rollouts[DEFAULT_POLICY], other.rollouts[DEFAULT_POLICY]
    np.testing.assert_array_equal(mine.mask, others.mask)
    for name in COLUMNS:
        valid = mine.mask if name != "mask" else np.ones_like(mine.mask)
        np.testing.assert_array_equal(getattr(mine, name)[valid], getattr(others, name)[valid], err_msg=name)
    for name, values in mine.extras.items():
        np.testing.assert_allclose(values[mine.mask], others.extras[name][mine.mask], rtol=1e-5, err_msg=name)
    for name, values in mine.state_in.items():
        np.testing.assert_array_equal(values, others.state_in[name])
    assert one.episodes == other.episodes
    assert (one.env_steps, one.progress) == (other.env_steps, other.progress)


@pytest.mark.parametrize(
    "settings",
    [
        {"observation_filter": "MeanStdFilter"},
        {"model": {"use_lstm": True, "lstm_cell_size": 4, "fcnet_hiddens": [4]}},
        {"batch_mode": "complete_episodes"},
        {"batch_mode": "complete_episodes", "rollout_fragment_length": 1},
        {"env_config": {"raise_at": 3, "env": 1}, "restart_failed_sub_environments": True},
        {
            "env_config": {"raise_at": 5, "env": 1},
            "restart_failed_sub_environments": True,
            "batch_mode": "complete_episodes",
        },
    ],
)
def test_where_all_are_waited_for_samples_are_the_same(workers, settings):
    here, there = workers(**settings)
    for _ in range(4):
        check_same(here.sample(), there.sample())


def test_episodes_by_their_number_are_the_same(workers):
    here, there = workers()
    check_same(here.sample_episodes(5), there.sample_episodes(5))
    check_same(here.sample(), there.sample())


def test_a_state_goes_on_in_a_worker_of_the_other_kind(workers):
    here, there = workers(observation_filter="MeanStdFilter")
    for worker in (here, there):
        worker.sample()
    other_here, other_there = workers(observation_filter="MeanStdFilter")
    for worker, state in ((other_here, there.state()), (other_there, here.state())):
        worker.set_weights(here.get_weights())
        worker.set_state(state)
    expected = here.sample()
    for worker in (there, other_here, other_there):
        check_same(expected, worker.sample())


class Steps(DefaultCallbacks):
    """Counts what it hears of each environment."""

    heard: dict[str, int] = {}  # noqa: RUF012

    def on_episode_step(self, *, env_index, episode, **kwargs):
        episode.custom_metrics["steps"] = episode.length
        assert "pid" in episode.last_info_for()

    def on_episode_created(self, *, episode, env_index, **kwargs):
        episode.options = {"from": "hook"}


def test_hooks_hear_the_same(workers):
    here, there = workers(callbacks=Steps, rollout_fragment_length=12)
    one, other = here.sample(), there.sample()
    check_same(one, other)
    assert [episode.custom_metrics for episode in other.episodes] == [{"steps": e.length} for e in one.episodes]


def recorded(worker, samples):
    """Actions and likelihoods of the whole episodes of some samples, by the first observation of each."""
    for _ in range(samples):
        worker.sample()
    worker.stop()
    episodes = [steps() for file in files_of(worker.config.output) for _, steps in recorded_in(file)]
    return {tuple(steps[0]["obs"]): [[*step["action"], step["action_logp"]] for step in steps] for steps in episodes}


def test_likelihoods_that_are_recorded_are_the_same(tmp_path):
    made = [config(remote=remote, output=str(tmp_path / str(remote))) for remote in (False, True)]
    here, there = (RolloutWorker(each.freeze()) for each in made)
    there.set_weights(here.get_weights())
    wanted, found = recorded(here, 4), recorded(there, 4)
    assert wanted.keys() == found.keys() and len(found) > 6
    for first, steps in wanted.items():
        np.testing.assert_allclose(found[first], steps, rtol=1e-4)


def test_likelihoods_that_are_recorded_are_those_of_the_batch_where_one_is_slow(tmp_path):
    settings = {"output": str(tmp_path), "rollout_fragment_length": 14}
    worker = RolloutWorker(config(remote=True, wait=0.0, env_config={"slow_s": 0.02, "env": 1}, **settings).freeze())
    rollout = worker.sample().rollouts[DEFAULT_POLICY]
    logp = rollout.extras["action_logp"][rollout.mask]
    in_batch = dict(zip(map(tuple, rollout.obs[rollout.mask]), logp, strict=True))
    worker.stop()
    steps = [step for file in files_of(str(tmp_path)) for _, read in recorded_in(file) for step in read()]
    assert len(steps) > 14
    found = [step["action_logp"] for step in steps]
    np.testing.assert_allclose(found, [in_batch[tuple(step["obs"])] for step in steps], rtol=1e-4)


def shifted(observations):
    return observations + 1.0


@pytest.mark.parametrize("settings", [{"env_to_module_connector": shifted}, {"observation_filter": "MeanStdFilter"}])
def test_a_column_that_waits_keeps_what_it_acts_on_next(settings):
    """Columns that are full wait for a slow one."""
    slow = {"slow_s": 0.03, "env": 1}
    worker = RolloutWorker(config(remote=True, wait=0.0, env_config=slow, **settings))
    try:
        last = worker.sample().rollouts[DEFAULT_POLICY]
        for _ in range(2):
            rollout = worker.sample().rollouts[DEFAULT_POLICY]
            goes_on = ~last.done[-1]
            assert goes_on.any()
            np.testing.assert_array_equal(rollout.obs[0][goes_on], last.next_obs[-1][goes_on])
            assert rollout.obs[0].any(axis=-1).all()
            last = rollout
    finally:
        worker.stop()


@pytest.mark.parametrize("slow", [0, 2])
def test_a_fragment_is_full_whoever_is_slow(slow):
    worker = RolloutWorker(config(remote=True, wait=0.0, env_config={"slow_s": 0.03, "env": slow}))
    try:
        last = None
        for _ in range(3):
            sample = worker.sample()
            rollout = sample.rollouts[DEFAULT_POLICY]
            assert rollout.mask.all() and rollout.shape == (5, 3) and sample.env_steps == 15
            follows = ~rollout.done[:-1]
            np.testing.assert_array_equal(rollout.next_obs[:-1][follows], rollout.obs[1:][follows])
            if last is not None:
                np.testing.assert_array_equal(last.next_obs[-1][~last.done[-1]], rollout.obs[0][~last.done[-1]])
            steps = rollout.obs[..., 2]
            np.testing.assert_array_equal(steps[1:][follows], steps[:-1][follows] + 1)
            assert not steps[1:][rollout.done[:-1]].any(), "an episode begins with its first observation"
            np.testing.assert_allclose(rollout.next_obs[..., 1], np.clip(rollout.actions, -1, 1)[..., 0] * 2, rtol=1e-5)
            last = rollout
        assert all(e.length in (3, 4, 5, 6) for e in worker.sample_episodes(6).episodes)
    finally:
        worker.stop()


def test_algorithms_learn_and_resume_with_them(tmp_path):
    settings = config(remote=True, train_batch_size=30, sgd_minibatch_size=15, num_sgd_iter=1, evaluation_interval=1)
    with settings.copy().build() as algorithm:
        algorithm.train()
        saved = algorithm.save(str(tmp_path))
        expected = algorithm.train()
    with settings.build() as algorithm:
        algorithm.restore(saved)
        result = algorithm.train()
    assert result["episode_reward_mean"] == expected["episode_reward_mean"]
    assert result["evaluation"]["episode_reward_mean"] == expected["evaluation"]["episode_reward_mean"]


def test_replaying_algorithms_learn_with_them():
    made = DQNConfig().environment("CartPole-v1").rollouts(num_envs_per_worker=2, remote_worker_envs=True)
    made.training(train_batch_size=8, num_steps_sampled_before_learning_starts=8, model={"fcnet_hiddens": [4]})
    with made.build() as algorithm:
        for _ in range(3):
            result = algorithm.train()
        assert result["num_env_steps_trained"] > 0
