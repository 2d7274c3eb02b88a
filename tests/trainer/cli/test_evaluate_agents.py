"""`reef evaluate` with several agents, which come and leave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest

from reef.algorithms.ppo import PPOConfig
from reef.cli.main import main
from reef.config import AlgorithmConfig
from reef.envs.multi_agent import IndependentAgents, MultiAgentEnv
from reef.errors import EXIT_WRONG_USE

BROKEN: dict[str, Any] = {  # the second step of an environment that returns something else
    "three values": lambda obs, rewards, ended, cut, infos: (obs, rewards, ended),
    "no reward": lambda obs, rewards, ended, cut, infos: (obs, {"short": None}, ended, cut, infos),
    "nan": lambda obs, rewards, ended, cut, infos: (obs | {"long": np.array([np.nan])}, rewards, ended, cut, infos),
}
RESETS: list[int | None] = []


class Leaving(MultiAgentEnv):
    """Agent "short" leaves after 2 steps, "late" comes with the first one and is there to the end, after 4."""

    possible_agents = ("short", "long", "late")
    observation_spaces: ClassVar[dict[Any, Any]] = dict.fromkeys(possible_agents, gym.spaces.Box(0.0, 9.0, (1,)))
    action_spaces: ClassVar[dict[Any, Any]] = dict.fromkeys(possible_agents, gym.spaces.Discrete(2))

    def __init__(self, env_config: dict[str, Any]) -> None:
        self.broken = env_config.get("broken")

    def _observe(self, agents: Any) -> dict[Any, Any]:
        return {agent: np.array([self.steps], np.float32) for agent in agents}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        RESETS.append(seed)
        self.steps = 0
        return self._observe(("short", "long")), {}

    def step(self, actions: dict[Any, Any]) -> Any:
        self.steps += 1
        ended = {agent: self.steps == (2 if agent == "short" else 4) for agent in actions}
        result = self._observe([*actions, "late"]), dict.fromkeys(actions, 1.0), ended, {}, {}
        return BROKEN[self.broken](*result) if self.broken and self.steps == 2 else result


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    policies = {"short": "short", "long": "others", "late": "others"}
    config = PPOConfig().environment(Leaving).training(model={"fcnet_hiddens": [4]}).debugging(seed=7)
    with config.multi_agent(policies=["short", "others"], policy_mapping_fn=policies).build() as algorithm:
        return str(algorithm.save(tmp_path_factory.mktemp("evaluate") / "checkpoint"))


@pytest.fixture(autouse=True)
def _leaving_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test file is no importable module: let the checkpoint's environment lead here."""
    from reef.envs import make

    original = make._creator
    monkeypatch.setattr(make, "_creator", lambda env: Leaving if str(env).endswith(":Leaving") else original(env))


def played(checkpoint: str, tmp_path: Path, *flags: str) -> list[dict[str, Any]]:
    out = tmp_path / "out"
    assert main(["evaluate", checkpoint, "--out", str(out), *flags]) == 0
    return [json.loads(line) for line in out.read_text().splitlines()]


def test_an_episode_is_that_of_all_its_agents(checkpoint: str, tmp_path: Path) -> None:
    episodes = played(checkpoint, tmp_path, "--episodes", "2")
    each = {"reward": 2.0 + 4.0 + 3.0, "length": 4, "complete": True}
    assert [{key: episode[key] for key in each} for episode in episodes] == [each, each]
    first, second, _, last = episodes[0]["steps"]
    assert first["action"].keys() == first["reward"].keys() == {"short", "long"}
    assert first["next_obs"] == {"short": [1.0], "long": [1.0], "late": [1.0]}
    assert second["obs"] == first["next_obs"] and second["terminated"]["short"] is True
    assert last["action"].keys() == {"long", "late"} and last["terminated"] == {"long": True, "late": True}


def test_every_episode_begins_once(checkpoint: str, tmp_path: Path) -> None:
    RESETS.clear()
    played(checkpoint, tmp_path, "--episodes", "3")
    assert RESETS[-3:] == [7, None, None], "the seed is that of the first one"
    assert len(RESETS) == 3


@pytest.mark.parametrize(("steps", "expected"), [(5, [(4, True), (1, False)]), (8, [(4, True), (4, True)])])
def test_the_step_limit_cuts_the_episode_of_all(
    checkpoint: str, tmp_path: Path, steps: int, expected: list[tuple[int, bool]]
) -> None:
    episodes = played(checkpoint, tmp_path, "--steps", str(steps))
    assert [(episode["length"], episode["complete"]) for episode in episodes] == expected
    assert episodes[-1]["steps"][-1]["truncated"] == {}, "as the environment said"


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        ("three values", "in step() after 1 steps of episode 1: ValueError: not enough values to unpack"),
        ("three values", "step() returns ({agent: obs}, {agent: reward}"),
        ("no reward", "in step() after 1 steps of episode 1: TypeError: float()"),
        ("nan", "returned observations with nan"),
    ],
)
def test_what_breaks_is_one_message(
    broken: str, expected: str, checkpoint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", checkpoint, "--config", json.dumps({"env_config": {"broken": broken}})]) == EXIT_WRONG_USE
    captured = capsys.readouterr()
    assert expected in captured.err
    assert captured.out == ""


def test_what_cannot_draw_has_no_videos(checkpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", checkpoint, "--video-dir", str(tmp_path / "videos")]) == EXIT_WRONG_USE
    assert "in render() after a reset" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_agents_with_environments_of_their_own(tmp_path: Path) -> None:
    config = PPOConfig().environment(IndependentAgents, env_config={"env": "CartPole-v1"})
    with config.training(model={"fcnet_hiddens": [4], "use_lstm": True, "max_seq_len": 4}).build() as algorithm:
        checkpoint = str(algorithm.save(tmp_path / "checkpoint"))
    (episode,) = played(checkpoint, tmp_path, "--episodes", "1")
    assert episode["length"] < episode["reward"] <= 2 * episode["length"], "each is paid for every step"


def test_evaluation_in_an_environment_of_other_spaces_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config: AlgorithmConfig = PPOConfig().environment("CartPole-v1").training(model={"fcnet_hiddens": [4]})
    with config.evaluation(evaluation_config={"env": "MountainCar-v0"}).build() as algorithm:
        checkpoint = str(algorithm.save(tmp_path / "checkpoint"))
    assert main(["evaluate", checkpoint]) == EXIT_WRONG_USE
    assert "Evaluate in an environment with the same spaces" in capsys.readouterr().err
