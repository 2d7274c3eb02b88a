"""`reef evaluate`: the episodes of a checkpoint's policy, on the screen and as JSON lines.

It tests reef.run.reporters.episodes too.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import weakref
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from imageio_ffmpeg import read_frames

from reef.algorithms.ppo import PPOConfig
from reef.algorithms.registry import config_class
from reef.cli.main import main
from reef.config import AlgorithmConfig
from reef.envs.vector import VectorEnv
from reef.errors import EXIT_WRONG_USE
from reef.rollout.policy_runner import PolicyRunner
from reef.rollout.videos import encoder

BROKEN: dict[str, Any] = {  # the second step of an environment that returns something else
    "three values": lambda obs, reward, ended, cut, info: (obs, reward, ended),
    "no reward": lambda obs, reward, ended, cut, info: (obs, None, ended, cut, info),
    "infinite reward": lambda obs, reward, ended, cut, info: (obs, float("inf"), ended, cut, info),
    "nan": lambda obs, reward, ended, cut, info: (np.array([0.0, np.nan]), reward, ended, cut, info),
    "shape": lambda obs, reward, ended, cut, info: (np.zeros(3), reward, ended, cut, info),
}
SEEN: list[list[str]] = []  # what the watched files held when each episode began
INFOS_ALIVE: list[int] = []  # then, too


class Info:
    """Counts how many of its kind somebody holds."""

    alive: ClassVar[weakref.WeakSet[Info]] = weakref.WeakSet()

    def __init__(self) -> None:
        self.alive.add(self)

    def __str__(self) -> str:
        return "info"


class Counting(gym.Env[np.ndarray, int]):
    """Ends after `length` steps; every step is worth 1."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 10}
    render_mode = "rgb_array"
    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, config: dict[str, Any]) -> None:
        self.length = config.get("length", 3)
        self.fail_at = config.get("fail_at")
        self.broken = config.get("broken")
        self.watched = [Path(path) for path in config.get("watched", ())]
        self.steps = 0

    def reset(self, **_: Any) -> tuple[np.ndarray, dict[str, Any]]:  # type: ignore[override]
        self.steps = 0
        SEEN.append([path.read_text() if path.exists() else "" for path in self.watched])
        INFOS_ALIVE.append(len(Info.alive))
        return np.zeros(2, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self.steps == self.fail_at:
            raise ZeroDivisionError("no floor")
        self.steps += 1
        info = {"where": {1, 2}, "info": Info(), (3, 4): float("nan")}
        result = np.zeros(2, np.float32), 1.0, self.steps >= self.length, False, info
        return BROKEN[self.broken](*result) if self.broken and self.steps == 2 else result

    def render(self) -> np.ndarray:  # type: ignore[override]
        return np.full((32, 48, 3), 80 * self.steps, np.uint8)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("evaluate") / "checkpoint"
    with config_class("PPO").from_dict({"env": Counting, "model": {"fcnet_hiddens": [4]}}).build() as algorithm:
        return str(algorithm.save(path))


@pytest.fixture(autouse=True)
def _counting_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test file is no importable module: let the checkpoint's environment lead here."""
    from reef.envs import make

    original = make._creator
    monkeypatch.setattr(make, "_creator", lambda env: Counting if str(env).endswith(":Counting") else original(env))


def summary(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    assert main(["evaluate", *argv, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_episodes_are_counted_exactly(checkpoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert summary(capsys, checkpoint, "--episodes", "4") == {
        "episodes": 4,
        "steps": 12,
        "episode_reward_mean": 3.0,
        "episode_reward_min": 3.0,
        "episode_reward_max": 3.0,
        "episode_len_mean": 3.0,
        "episode_rewards": [3.0] * 4,
    }


def test_steps_and_episodes_whichever_comes_first(checkpoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    cut = summary(capsys, checkpoint, "--steps", "7", "--episodes", "9")
    assert (cut["steps"], cut["episodes"]) == (7, 2)  # the third episode was cut and does not count
    assert summary(capsys, checkpoint, "--steps", "7", "--episodes", "1")["steps"] == 3


def test_text_says_each_episode_and_the_mean(checkpoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rollout", checkpoint, "--steps", "4"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "Episode #1: reward: 3 (3 steps)",
        "Episode #2: reward: 1 (1 steps, cut by the step limit)",
        "1 complete episode: mean reward 3 (3 to 3), mean length 3",
    ]
    assert main(["rollout", checkpoint, "--steps", "2"]) == 0
    assert "No episode was complete" in capsys.readouterr().out


def test_settings_change_the_environment_of_the_evaluation(checkpoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    config = json.dumps({"env_config": {"length": 5}})
    assert summary(capsys, checkpoint, "--episodes", "1", "--config", config)["steps"] == 5
    config = json.dumps({"evaluation_config": {"env_config": {"length": 6}}, "horizon": 4})
    assert summary(capsys, checkpoint, "--episodes", "2", "--config", config)["steps"] == 8


def test_settings_count_more_than_those_of_the_checkpoints_own_evaluation(tmp_path: Path, monkeypatch) -> None:
    seen: list[dict[str, Any]] = []

    class BuiltError(Exception):
        """Far enough."""

    def build(config: AlgorithmConfig) -> None:
        settings = config.evaluation_settings()
        seen.append({"explore": settings.explore, "env_config": settings.env_config, "gamma": settings.gamma})
        raise BuiltError

    trained = PPOConfig().environment(Counting, env_config={"a": 1, "b": 1})
    own = {"explore": True, "env_config": {"b": 2, "c": 2}}
    with trained.evaluation(evaluation_config=own).training(train_batch_size=64, sgd_minibatch_size=32).build() as made:
        path = str(made.save(tmp_path / "checkpoint"))
    monkeypatch.setattr(AlgorithmConfig, "build", build)
    greedy = {"explore": False}
    more = {"evaluation_config": {"env_config": {"c": 3}}}
    for config in ({}, {**greedy, "env_config": {"c": 3}, "gamma": 0.5}, {"evaluation_config": greedy}, more):
        with pytest.raises(BuiltError):
            main(["evaluate", path, "--config", json.dumps(config)])
    a_b_c = {"a": 1, "b": 2, "c": 2}
    assert seen == [
        {"explore": True, "env_config": a_b_c, "gamma": 0.99},
        {"explore": False, "env_config": a_b_c | {"c": 3}, "gamma": 0.5},
        {"explore": False, "env_config": a_b_c, "gamma": 0.99},
        {"explore": True, "env_config": a_b_c | {"c": 3}, "gamma": 0.99},
    ]


def seen_as_it_acts(monkeypatch: pytest.MonkeyPatch, name: str) -> list[bool]:
    """What runners have under a name, each time that they act; it grows."""
    seen: list[bool] = []
    act = PolicyRunner.act

    def watched(self: PolicyRunner, *given: Any) -> Any:
        seen.append(getattr(self, name))
        return act(self, *given)

    monkeypatch.setattr(PolicyRunner, "act", watched)
    return seen


def test_a_flag_lets_the_policy_explore(
    checkpoint: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen = seen_as_it_acts(monkeypatch, "explores")
    for flags, explored, warnings in (([], False, 1), (["--explore"], True, 0), (["--no-explore"], False, 0)):
        seen.clear()
        caplog.clear()
        assert main(["evaluate", checkpoint, "--episodes", "1", *flags]) == 0
        assert set(seen) == {explored}
        assert caplog.text.count("takes the most likely action") == warnings
    assert main(["evaluate", checkpoint, "--explore", "--config", '{"explore": false}']) == EXIT_WRONG_USE


def test_an_evaluation_explores_as_training_could_not_learn_from(monkeypatch: pytest.MonkeyPatch) -> None:
    likelihoods = seen_as_it_acts(monkeypatch, "own_logp")
    random = json.dumps({"exploration_config": {"type": "Random"}})
    assert main(["evaluate", "--algo", "PG", "--env", "CartPole-v1", "--steps", "3", "--explore", "-c", random]) == 0
    assert set(likelihoods) == {True}


@pytest.mark.parametrize("workers", [0, 1])
def test_what_training_was_in_the_middle_of_is_not_played_again(tmp_path: Path, monkeypatch, workers: int) -> None:
    trained = PPOConfig().environment(Counting).training(train_batch_size=64, sgd_minibatch_size=32)
    with trained.rollouts(num_rollout_workers=workers).build() as made:
        made.train()
        path = str(made.save(tmp_path / "checkpoint"))
    monkeypatch.setattr(VectorEnv, "set_state", None)
    assert main(["evaluate", path, "--episodes", "1"]) == 0


def test_out_holds_one_episode_per_line(checkpoint: str, tmp_path: Path) -> None:
    out = tmp_path / "episodes.json"
    assert main(["evaluate", checkpoint, "--episodes", "2", "--out", str(out), "--save-info"]) == 0
    first, second = (json.loads(line) for line in out.read_text().splitlines())
    assert (first["number"], second["number"], first["reward"], first["length"]) == (1, 2, 3.0, 3)
    step = first["steps"][-1]
    assert step.keys() == {"obs", "action", "next_obs", "reward", "terminated", "truncated", "info"}
    assert (step["obs"], step["terminated"], step["action"] in (0, 1)) == ([0.0, 0.0], True, True)
    assert step["info"] == {"where": [1, 2], "info": "info", "(3, 4)": None}  # whatever JSON has no form for


def test_out_may_be_a_pipe(checkpoint: str) -> None:
    read, write = os.pipe()
    assert main(["evaluate", checkpoint, "--episodes", "2", "--out", f"/dev/fd/{write}"]) == 0
    os.close(write)
    with os.fdopen(read) as lines:
        assert [json.loads(line)["number"] for line in lines] == [1, 2]


@pytest.mark.parametrize(
    "settings",
    [
        {"num_rollout_workers": 2, "sample_async": True},
        {"num_learner_workers": 4, "train_batch_size_per_learner": 64, "sgd_minibatch_size": 128},
    ],
)
def test_what_many_processes_trained_is_evaluated_in_one(
    settings: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with config_class("PPO").from_dict({"env": Counting, "model": {"fcnet_hiddens": [4]}}).build() as algorithm:
        algorithm.config = algorithm.config.copy().update_from_dict(settings).validate()
        path = algorithm.save(tmp_path / "checkpoint")
    assert summary(capsys, path, "--episodes", "1")["steps"] == 3


def test_what_an_evaluation_does_itself_may_be_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with config_class("PPO").from_dict({"env": Counting, "model": {"fcnet_hiddens": [4]}}).build() as algorithm:
        algorithm.config = algorithm.config.copy().update_from_dict({"num_rollout_workers": 2, "num_gpus": 1})
        path = algorithm.save(tmp_path / "checkpoint")
    alone = {"num_workers": 0, "num_gpus": 0, "record_env": False, "evaluation_config": {"num_rollout_workers": 0}}
    assert summary(capsys, path, "--episodes", "1", "--config", json.dumps(alone))["steps"] == 3
    assert main(["evaluate", path, "--config", '{"num_workers": 1}']) == EXIT_WRONG_USE
    assert "--config num_rollout_workers=1: has no effect here" in capsys.readouterr().err


def watching(*paths: Path) -> list[str]:
    SEEN.clear()
    INFOS_ALIVE.clear()
    return ["--config", json.dumps({"env_config": {"watched": list(map(str, paths))}})]


def test_episodes_are_written_as_they_end_and_then_forgotten(checkpoint: str, tmp_path: Path) -> None:
    out = tmp_path / "episodes.json"
    flags = ["--episodes", "20", "--out", str(out), "--save-info", *watching(out)]
    assert main(["evaluate", checkpoint, *flags]) == 0
    assert [text.count("\n") for (text,) in SEEN[-20:]] == list(range(20))
    assert max(INFOS_ALIVE) <= 3, "the infos of one episode"


def test_progress_is_a_file_beside_out(checkpoint: str, tmp_path: Path) -> None:
    out, progress = tmp_path / "episodes.json", tmp_path / "__progress_episodes.json"
    flags = ["--steps", "8", "--out", str(out), "--track-progress", *watching(progress)]
    assert main(["evaluate", checkpoint, *flags]) == 0
    assert [text for (text,) in SEEN[-3:]] == [f"episodes {n}\nsteps {3 * n}\n" for n in range(3)]
    assert progress.read_text() == "episodes 2\nsteps 8\n"  # the third was cut
    assert {path.name for path in tmp_path.iterdir()} == {out.name, progress.name}


def test_progress_that_cannot_be_written_is_said_at_once(
    checkpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "__progress_x").mkdir()
    flags = ["--out", str(tmp_path / "x"), "--track-progress", *watching()]
    assert main(["evaluate", checkpoint, *flags]) == 2
    assert "__progress_x cannot be written" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_local_mode_is_accepted_with_one_notice(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "--algo", "PPO", "--env", "CartPole-v1", "--steps", "20", "--local-mode"]) == 0
    assert capsys.readouterr().err.count("--local-mode has no effect: an evaluation is one process anyway.") == 1


def test_use_shelve_is_accepted_with_one_notice(
    checkpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, shelved = tmp_path / "plain", tmp_path / "shelved"
    assert main(["evaluate", checkpoint, "--episodes", "2", "--config", '{"explore": false}', "--out", str(plain)]) == 0
    capsys.readouterr()
    flags = ["--episodes", "2", "--config", '{"explore": false}', "--out", str(shelved), "--use-shelve"]
    assert main(["evaluate", checkpoint, *flags]) == 0
    assert capsys.readouterr().err.count("--use-shelve has no effect") == 1
    assert shelved.read_text() == plain.read_text()
    assert len(list(tmp_path.iterdir())) == 2


def test_an_untrained_policy_needs_algorithm_and_environment(capsys: pytest.CaptureFixture[str]) -> None:
    assert summary(capsys, "--algo", "PPO", "--env", "x:Counting", "--episodes", "1")["steps"] == 3
    assert main(["evaluate", "--algo", "PPO"]) == 2
    assert "--algo and --env" in capsys.readouterr().err


class OldCounting(Counting):
    """Of the old Gym API."""

    def reset(self) -> np.ndarray:  # type: ignore[override]
        return super().reset()[0]

    def step(self, action: int) -> tuple[np.ndarray, float, bool, dict[str, Any]]:  # type: ignore[override]
        obs, reward, terminated, _, info = super().step(action)
        return obs, reward, terminated, info


class CountingColumns(gym.vector.VectorEnv[Any, Any, Any]):
    """The same for many columns."""

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self, num_envs: int, render_mode: str | None = None) -> None:
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = Counting.observation_space, Counting.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(self, **_: Any) -> tuple[np.ndarray, dict[str, Any]]:  # type: ignore[override]
        self.steps = 0
        return np.zeros((self.num_envs, 2), np.float32), {}

    def step(self, actions: np.ndarray) -> tuple[Any, ...]:  # type: ignore[override]
        self.steps = self.steps % 3 + 1
        ended, never = np.full(self.num_envs, self.steps == 3), np.zeros(self.num_envs, np.bool_)
        obs = np.zeros((self.num_envs, 2), np.float32)
        return obs, np.ones(self.num_envs), ended, never, {"final_obs": obs + 1} if self.steps == 3 else {}


@pytest.mark.parametrize("env", ["old_environments:OldCounting", "VectorCounting-v0"])
def test_what_can_be_trained_can_be_evaluated(env: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "old_environments", sys.modules[__name__])
    spec = gym.envs.registration.EnvSpec("VectorCounting-v0", vector_entry_point=CountingColumns)
    monkeypatch.setitem(gym.registry, "VectorCounting-v0", spec)
    out = tmp_path / "out"
    flags = ["--env", env, "--episodes", "2", "--out", str(out)]
    assert main(["evaluate", "--algo", "PPO", "--config", '{"model": {"fcnet_hiddens": [4]}}', *flags]) == 0
    episodes = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(episode["reward"], episode["length"], episode["complete"]) for episode in episodes] == [(3.0, 3, True)] * 2
    assert episodes[0]["steps"][-1]["next_obs"] == ([1.0, 1.0] if "Vector" in env else [0.0, 0.0])


def broken(how: str) -> list[str]:
    return ["--config", json.dumps({"env_config": {"broken": how}})]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--out", "/no/such/folder/x.json"], "--out /no/such/folder/x.json: cannot be written"),
        (["--algo", "PPPO"], "Did you mean 'PPO'?"),
        (["--env", "CartPol-v1"], "Did you mean 'CartPole-v1'?"),
        (["--config", '{"lrr": 1}'], "Did you mean 'lr'?"),
        (["--config", "{"], "is no JSON"),
        (["--episodes", "-1"], "expected a whole number"),
        (["--render", "--video-dir", "x"], "exclude each other"),
        (["--use-shelve", "--track-progress"], "--track-progress, --use-shelve: is about the file"),
        (["--save-info"], "--save-info: is about the file"),
        (["--config", '{"env_config": {"fail_at": 2}, "disable_env_checking": true}'], "no floor"),
        (broken("three values"), "in step() after 1 steps of episode 1: ValueError: not enough values to unpack"),
        (broken("three values"), "step() returns (obs, reward, terminated, truncated, info)"),
        (broken("no reward"), "breaks the Gymnasium API in step() after 1 steps of episode 1: TypeError: float()"),
        (broken("infinite reward"), "reward is inf, expected a finite number"),
        (broken("nan"), "obs has nan at index [1], expected finite numbers"),
        (broken("shape"), "obs has the shape (3,), expected (2,)"),
    ],
)
def test_wrong_use_is_one_message_and_exit_code_2(
    flags: list[str], expected: str, checkpoint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", checkpoint, *flags]) == 2
    captured = capsys.readouterr()
    assert expected in captured.err
    assert captured.out == ""


def test_a_missing_checkpoint_is_named_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "checkpoint_000009"
    assert main(["evaluate", str(missing), "--json"]) == 2
    assert str(missing) in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wrong", [["checkpoint_000009"], ["--algo", "PPO", "--env", "CartPol-v1"]])
def test_an_older_file_is_kept_until_there_is_something_to_play(wrong: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("older")
    assert main(["evaluate", *wrong, "--out", str(out)]) == 2
    assert out.read_text() == "older"


@pytest.mark.parametrize("older", ["older", None])
def test_what_fails_before_an_episode_ends_leaves_the_file_as_it_was(
    older: str | None, checkpoint: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    if older:
        out.write_text(older)
    assert main(["evaluate", checkpoint, *broken("nan"), "--out", str(out)]) == 2
    assert (out.read_text() if out.exists() else None) == older


class Alternating(torch.nn.Module):
    """Prefers action 0 in the first, third, ... step of an episode and action 1 in the others."""

    state_shapes: ClassVar[dict[str, tuple[int, ...]]] = {"steps": ()}

    def __init__(self, observation_space: Any, action_space: Any, num_outputs: int) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1))

    def forward(self, obs: Any, begins: Any, state: Any) -> Any:
        steps = [state["steps"]]
        for t in range(obs.shape[1]):
            steps.append(torch.where(begins[:, t], 0.0, steps[-1]) + 1)
        odd = torch.stack(steps[1:], 1) % 2
        return self.scale * torch.stack([odd, 1 - odd], -1), self.scale * odd, {"steps": steps[-1]}


def test_a_policy_remembers_its_episode(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = {"env": Counting, "env_config": {"length": 5}, "model": {"custom_model": Alternating}}
    with config_class("PPO").from_dict(settings).build() as algorithm:
        checkpoint = algorithm.save(tmp_path / "checkpoint")
    out = tmp_path / "out.json"
    assert main(["evaluate", checkpoint, "--episodes", "2", "--no-explore", "--out", str(out)]) == 0
    played = [[step["action"] for step in json.loads(line)["steps"]] for line in out.read_text().splitlines()]
    assert played == [[0, 1, 0, 1, 0]] * 2


def test_no_folder_for_videos_is_made_without_a_checkpoint(tmp_path: Path) -> None:
    assert main(["evaluate", str(tmp_path / "missing"), "--video-dir", str(tmp_path / "videos")]) == 2
    assert list(tmp_path.iterdir()) == []


def test_every_episode_becomes_a_video(checkpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    videos = tmp_path / "videos"
    assert main(["evaluate", checkpoint, "--episodes", "2", "--video-dir", str(videos)]) == 0
    assert capsys.readouterr().err == ""
    files = sorted(videos.glob("*.mp4"))
    assert [file.stem for file in files] == [f"evaluation_iteration_000000_episode_00000{number}" for number in (1, 2)]
    about = [json.loads(file.with_suffix(".json").read_text()) for file in files]
    assert [(each["return"], each["length"], each["iteration"]) for each in about] == [(3.0, 3, 0)] * 2
    for file in files:
        frames = [np.frombuffer(frame, np.uint8) for frame in itertools.islice(read_frames(file), 1, None)]
        assert len(frames) == 4  # the first observation's and one for each step
        assert [int(frame.mean().round(-1)) for frame in frames] == [0, 80, 160, 240]


def test_videos_without_an_encoder_say_what_to_install(
    checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(encoder, "find_spec", lambda name: None)
    assert main(["evaluate", checkpoint, "--video-dir", str(tmp_path / "videos")]) == 2
    assert "mp4 files: pip install imageio-ffmpeg, or Reef with its extra 'video'." in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
