"""Episodes that a worker samples go to the folder of the setting `output`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from pyarrow import parquet
from s3_server import S3

from reef.algorithms.bc import BCConfig
from reef.algorithms.ppo import PPOConfig
from reef.callbacks import DefaultCallbacks
from reef.config import AlgorithmConfig
from reef.envs.multi_agent import MultiAgentEnv
from reef.errors import ConfigError, StorageError
from reef.offline.episode_files import recorded_in
from reef.offline.places import files_of
from reef.offline.steps import one_by_one
from reef.rollout.worker import RolloutWorker
from reef.run.build import run_experiment

broken: list[int] = []


class Line(gym.Env[np.ndarray, int]):
    """Walks to `end`; observes its place in the same array each time, and may break at a step."""

    observation_space = spaces.Box(0.0, 9.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, config: dict[str, Any]) -> None:
        self.end, self.breaks_at = config.get("end", 3), config.get("breaks_at")
        self.place = np.zeros(1, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.place[:] = 0
        return self.place, {}

    def step(self, action: int) -> Any:
        self.place += 1
        if self.place == self.breaks_at and not broken:
            broken.append(1)
            raise ZeroDivisionError("no floor")
        return self.place, float(self.place[0]), bool(self.place == self.end), False, {}


class Two(MultiAgentEnv):
    """Two agents, of which b leaves after its first step."""

    possible_agents = ("a", "b")
    observation_spaces = dict.fromkeys("ab", spaces.Box(0.0, 9.0, (1,), np.float32))
    action_spaces = dict.fromkeys("ab", spaces.Discrete(2))

    def __init__(self, config: dict[str, Any]) -> None:
        self.t = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.t = 0
        return dict.fromkeys("ab", np.zeros(1, np.float32)), {}

    def step(self, actions: dict[str, Any]) -> Any:
        self.t += 1
        there = "ab" if self.t == 1 else "a"
        obs = dict.fromkeys(there, np.full(1, self.t, np.float32))
        return obs, dict.fromkeys(actions, 1.0), {"b": self.t == 1, "__all__": self.t == 3}, {}, {}


def config_of(env: Any, folder: Path, **settings: Any) -> AlgorithmConfig:
    config = PPOConfig().environment(env).training(model={"fcnet_hiddens": [4]}).debugging(seed=1)
    return config.update_from_dict({"output": str(folder), **settings})


def recorded(folder: Path) -> list[list[dict[str, Any]]]:
    return [steps() for file in files_of(str(folder)) for _, steps in one_by_one(recorded_in(file))]


def sampled(folder: Path, steps: int, env: Any = Line, **settings: Any) -> list[list[dict[str, Any]]]:
    worker = RolloutWorker(config_of(env, folder, **settings).freeze())
    worker.sample(steps)
    worker.stop()
    return recorded(folder)


def places(episode: list[dict[str, Any]]) -> list[tuple[Any, Any]]:
    return [(*step["obs"], *step["next_obs"]) for step in episode]


def test_whole_episodes_are_written_as_the_environment_played_them(tmp_path: Path) -> None:
    first, second = sampled(tmp_path, 7)
    assert places(first) == places(second) == [(0.0, 1.0), (1.0, 2.0), (2.0, 3.0)]
    assert [step["reward"] for step in first] == [1.0, 2.0, 3.0]
    assert [step["terminated"] for step in first] == [False, False, True]
    assert first[0].keys() == {"obs", "action", "next_obs", "reward", "terminated", "truncated", "action_logp"}


def test_an_episode_goes_on_in_the_next_sample(tmp_path: Path) -> None:
    worker = RolloutWorker(config_of(Line, tmp_path, num_envs_per_worker=2).freeze())
    for _ in range(3):
        worker.sample(2)
    worker.stop()
    assert [len(episode) for episode in recorded(tmp_path)] == [3, 3, 3, 3]


def test_what_the_horizon_cuts_is_truncated(tmp_path: Path) -> None:
    episode, *_ = sampled(tmp_path, 4, horizon=2)
    assert [(step["terminated"], step["truncated"]) for step in episode] == [(False, False), (False, True)]


def test_an_episode_that_breaks_is_left_out(tmp_path: Path) -> None:
    broken.clear()
    settings = {"env_config": {"breaks_at": 2}, "restart_failed_sub_environments": True}
    (episode,) = sampled(tmp_path, 5, **settings)
    assert places(episode) == [(0.0, 1.0), (1.0, 2.0), (2.0, 3.0)]


def test_hooks_of_episodes_are_called_too(tmp_path: Path) -> None:
    class Counting(DefaultCallbacks):
        def on_episode_end(self, *, episode: Any, **kwargs: Any) -> None:
            episode.custom_metrics["length"] = episode.length

    worker = RolloutWorker(config_of(Line, tmp_path, callbacks=Counting).freeze())
    assert [episode.custom_metrics for episode in worker.sample(7).episodes] == [{"length": 3}] * 2
    assert len(recorded(tmp_path)) == 2


def test_values_of_several_agents_are_written_by_agent(tmp_path: Path) -> None:
    (episode,) = sampled(tmp_path, 4, Two, policies=["p"], policy_mapping_fn=lambda agent: "p")
    assert [step["next_obs"] for step in episode] == [{"a": [1.0], "b": [1.0]}, {"a": [2.0]}, {"a": [3.0]}]
    assert [list(step["action"]) for step in episode] == [["a", "b"], ["a"], ["a"]]
    assert episode[-1]["terminated"]["__all__"] is True


def test_evaluation_writes_only_what_it_asks_for(tmp_path: Path) -> None:
    config = config_of(Line, tmp_path / "trained", evaluation_config={"env_config": {"end": 5}})
    assert config.evaluation_settings().output is None
    config = config.evaluation(evaluation_config={"output": str(tmp_path / "evaluated")})
    worker = RolloutWorker(config.evaluation_settings().freeze())
    worker.sample_episodes(2)
    assert len(recorded(tmp_path / "evaluated")) == 2


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_another_algorithm_learns_from_what_one_sampled(form: str, tmp_path: Path) -> None:
    settings = {"output_config": {"format": form}, "train_batch_size": 200, "sgd_minibatch_size": 100}
    with config_of("CartPole-v1", tmp_path, **settings).build() as algorithm:
        episodes = algorithm.train()["episodes_this_iter"]
    assert len(recorded(tmp_path)) == episodes > 3
    config = BCConfig().environment("CartPole-v1").offline_data(input_=str(tmp_path)).training(train_batch_size=50)
    with config.reporting(min_train_timesteps_per_iteration=50).build() as algorithm:
        assert algorithm.train()["num_env_steps_trained"] == 50


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"output": "http://host/x"}, r"output='http://host/x': expected a folder, or an object store and a folder"),
        ({"output": "s3://me:secret@bucket/x"}, r"output='s3://...@bucket/x': expected a folder, or"),
        ({"output": "s3://bucket/x\n"}, r"output='s3://bucket/x\\n': expected a folder, or"),
        ({"output_config": {"format": "csv"}}, r"output_config=\{'format': 'csv'\}: expected \{'format': 'json'\} or"),
        ({"output_config": {}}, r"output_config=\{\}: expected \{'format': 'json'\} or"),
        ({"output_max_file_size": 0}, r"output_max_file_size=0: must be at least 1 bytes"),
        ({"output_compress_columns": ["observations"]}, r"no column is called 'observations'. There are obs, new_obs"),
        ({"output_compress_columns": ["rewards"]}, r"lines of JSON are plain text. Set output_config="),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        config_of(Line, tmp_path, **settings).validate()


def test_columns_that_are_to_be_compressed_are_so(tmp_path: Path) -> None:
    settings = {"output_config": {"format": "parquet"}, "output_compress_columns": ["new_obs", "rewards"]}
    with config_of(
        "CartPole-v1", tmp_path, train_batch_size=200, sgd_minibatch_size=100, **settings
    ).build() as algorithm:
        algorithm.train()
    (file,) = tmp_path.glob("*.parquet")
    group = parquet.ParquetFile(file).metadata.row_group(0)
    columns = [group.column(index) for index in range(group.num_columns)]
    assert {column.path_in_schema for column in columns if column.compression == "LZ4"} == {
        "next_obs.list.element", "reward"
    }  # fmt: skip


def test_what_one_samples_into_an_object_store_another_learns_from(s3: S3) -> None:
    settings = {"train_batch_size": 200, "sgd_minibatch_size": 100, "output": "s3://bucket/episodes"}
    config = PPOConfig().environment("CartPole-v1").update_from_dict(settings)
    with config.build() as algorithm:
        episodes = algorithm.train()["episodes_this_iter"]
    assert len(s3.files()) == 1
    given = {"env": "CartPole-v1", "input_": "s3://bucket/episodes", "train_batch_size": 50}
    with BCConfig.from_dict({**given, "min_train_timesteps_per_iteration": 50}).build() as algorithm:
        assert algorithm.train()["num_env_steps_trained"] == 50
        assert len(algorithm.recorded.buffer) >= 2 * episodes  # type: ignore[attr-defined]


def test_logdir_is_a_folder_in_that_of_the_run(tmp_path: Path) -> None:
    settings = {"train_batch_size": 60, "sgd_minibatch_size": 60, "num_sgd_iter": 1}
    settings |= {"evaluation_interval": 1, "evaluation_duration": 2, "evaluation_config": {"output": "logdir"}}
    config = config_of(Line, "logdir", **settings).checked()  # type: ignore[arg-type]
    tried = RolloutWorker(config)
    summary = run_experiment(config, stop={"training_iteration": 1}, storage_path=tmp_path, local=tried, reporters=[])
    assert len(recorded(summary.folder / "episodes")) == 20
    assert len(recorded(summary.folder / "evaluation_episodes")) == 2
    assert not (tmp_path / "logdir").exists()
    with pytest.raises(ConfigError, match=r"output='logdir': config.build\(\) makes no run with a folder. Give a path"):
        config.build()


def test_what_samples_nothing_refuses_a_folder(tmp_path: Path) -> None:
    config = BCConfig().environment("CartPole-v1").offline_data(input_="a.json", output=str(tmp_path))
    with pytest.raises(ConfigError, match=r"output='.*': BC samples no episodes to write\. Leave it out\."):
        config.validate()


def test_a_folder_that_cannot_be_made_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="the folder cannot be made"):
        RolloutWorker(config_of(Line, tmp_path / "file" / "x").freeze())
