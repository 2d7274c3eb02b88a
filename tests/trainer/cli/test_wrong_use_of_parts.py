"""Wrong use of each part through the command line: one message with key and fix, exit code 2, and nothing is left.

The commands run in this process. Nothing here trains: what is wrong is found before, or in the first iteration.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import reef
from reef.callbacks import DefaultCallbacks
from reef.cli.main import main

Refuse = Callable[..., str]
SMALL: dict[str, dict[str, Any]] = {
    "PPO": {"train_batch_size": 64, "sgd_minibatch_size": 64, "num_sgd_iter": 1},
    "DQN": {"train_batch_size": 8, "num_steps_sampled_before_learning_starts": 8},
    "SAC": {"train_batch_size": 8, "num_steps_sampled_before_learning_starts": 8},
}
AGENTS = "reef.envs.multi_agent:IndependentAgents"
TWO = {"env": "CartPole-v1", "num_agents": 2}
SPACES = {
    "observation_space": {"type": "Box", "low": -1, "high": 1, "shape": [2]},
    "action_space": {"type": "Discrete", "n": 2},
}


class Env(gym.Env[Any, Any]):
    """Five steps an episode."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space: gym.Space[Any] = gym.spaces.Discrete(2)

    def __init__(self, context: Any = None) -> None:
        self.steps, self.task = 0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return np.zeros(2, np.float32), 1.0, self.steps == 5, False, {}


class Continuous(Env):
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)


class Settable(Env):
    def get_task(self) -> Any:
        return self.task

    def set_task(self, task: Any) -> None:
        self.task = task


class NoSelf(DefaultCallbacks):
    def on_train_result(*, result: Any) -> None: ...  # type: ignore[misc,override]


class ResultAsSelf(DefaultCallbacks):
    def on_train_result(result: Any) -> None: ...  # type: ignore[misc,override]  # noqa: N805


class Coroutine(DefaultCallbacks):
    async def on_train_result(self, **_: Any) -> None: ...  # type: ignore[override]


class Generator(DefaultCallbacks):
    def on_train_result(self, **_: Any) -> Iterator[None]:  # type: ignore[override]
        yield


class Clears(DefaultCallbacks):
    def on_train_result(self, *, result: dict[str, Any], **_: Any) -> None:
        result.clear()


def no_arguments() -> None: ...


def unstorable(train_results: Any, task_settable_env: Any, env_ctx: Any) -> Any:
    return object()


def raises(agent_id: Any) -> str:
    raise LookupError(agent_id)


def a_list(agent_id: Any) -> Any:
    return ["a"]


def first(agent_id: Any) -> str:
    return "a"


@pytest.fixture(autouse=True)
def parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is above, importable as `parts`."""
    module = ModuleType("parts")
    own = {name: value for name, value in globals().items() if getattr(value, "__module__", None) == __name__}
    vars(module).update(own | {"number": 5})
    monkeypatch.setitem(sys.modules, "parts", module)


@pytest.fixture
def refuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Refuse:
    """Runs a command, which must be refused with one message of `texts` and leave nothing; returns that message."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))  # of the usual folder of results

    def run(command: list[str], *texts: str) -> str:
        before = sorted(tmp_path.rglob("*"))
        assert main(command) == 2
        error = capsys.readouterr().err
        messages = [line for line in error.splitlines() if line.startswith("reef") and ": warning: " not in line]
        assert len(messages) == 1, error
        assert [text for text in texts if text not in error] == [], error
        assert str(Path(reef.__file__).parent) not in error  # no lines of Reef's own
        assert sorted(tmp_path.rglob("*")) == before
        return error

    return run


def train(config: dict[str, Any], env: str = "parts:Env", algo: str = "PPO", *flags: str) -> list[str]:
    stop = ["--stop", '{"training_iteration": 1}', "--storage-path", "results"]
    return ["train", "--algo", algo, "--env", env, "--config", json.dumps(SMALL[algo] | config), *stop, *flags]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("", "callbacks '': expected the form 'package.module:Name'"),
        ("parts:NoSelf", "NoSelf.on_train_result has no place for the object that it belongs to. Take self first"),
        ("parts:ResultAsSelf", "ResultAsSelf.on_train_result has no place for the object"),
        ("parts:Coroutine", "Coroutine.on_train_result is a coroutine or a generator"),
        ("parts:Generator", "Generator.on_train_result is a coroutine or a generator"),
        ("parts:Clears", "callbacks: on_train_result took episode_reward_max"),
        ({"on_episode_start": "parts:no_arguments"}, "It is called with (info): take these"),
        ([["parts:Clears"]], "expected text or class or list of text or class or mapping or null"),
        ([None], "callbacks=[None]: expected text or class"),
    ],
)
def test_callbacks(given: Any, text: str, refuse: Refuse) -> None:
    refuse(train({"callbacks": given}), text)


LEARNS_NOTHING = "has no effect, as evaluation learns nothing. Remove it"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"evaluation_interval": -1}, "evaluation_interval=-1: must be at least 0 iterations"),
        ({"evaluation_interval": True}, "evaluation_interval=True: expected whole number or null"),
        ({"evaluation_duration": "auto"}, "evaluation_duration='auto': needs evaluation_parallel_to_training=True"),
        ({"evaluation_duration": 0}, "evaluation_duration=0: must be at least 1"),
        ({"evaluation_duration_unit": "epsiodes"}, "Did you mean 'episodes'?"),
        ({"evaluation_config": {"lr": 0.1}}, f"evaluation_config.lr=0.1: {LEARNS_NOTHING}"),
        ({"evaluation_config": {"optimizer": {"type": "SGD"}}}, LEARNS_NOTHING),
        (
            {"evaluation_config": {"num_learner_workers": 2}},
            LEARNS_NOTHING,
        ),
        ({"evaluation_config": {"policies_to_train": ["x"]}}, "evaluation_config.policies_to_train=['x']: has no eff"),
        ({"evaluation_config": {"num_workers": 2}}, "evaluation_num_workers says how many workers evaluate. Remove it"),
        ({"evaluation_config": {"custom_evaluation_function": "parts:first"}}, "has no effect in evaluation_config"),
        ({"evaluation_config": {"explor": True}}, "Did you mean 'explore'?"),
        ({"evaluation_config": {"action_space": {"type": "Box"}}}, "evaluation_config.action_space: space {'type': 'B"),
        ({"custom_evaluation_function": "parts:first"}, "It is called with (algorithm, evaluation_workers): take the"),
    ],
)
def test_evaluation(given: dict[str, Any], text: str, refuse: Refuse) -> None:
    refuse(train({"evaluation_interval": 1} | given), text)


@pytest.mark.parametrize(
    ("algo", "given", "text"),
    [
        ("DQN", {"epsilon_schedule": [[0, 2.0], [10, 0.1]]}, "epsilon_schedule=2.0 must be a number, from 0.0 to 1.0"),
        ("DQN", {"epsilon_schedule": 2}, "exploration_config.epsilon_schedule=2 must be a number, from 0.0 to 1.0"),
        ("DQN", {"epsilon_schedule": [[10, 1.0]]}, "epsilon_schedule=[[10, 1.0]]: expected a number, or points"),
        (
            "DQN",
            {"epsilon_schedule": "linear"},
            "exploration_config.epsilon_schedule='linear': expected a number, or points",
        ),
        ("DQN", {"epsilon_schedule": []}, "exploration_config.epsilon_schedule=[]: expected a number, or points"),
        (
            "DQN",
            {"epsilon_schedule": [[0, None]]},
            "exploration_config.epsilon_schedule=[[0, None]]: expected a number, or points",
        ),
        ("DQN", {"epsilon_timesteps": True}, "exploration_config.epsilon_timesteps=True must be a number"),
        ("DQN", {"type": "RE3", "k_nn": 0}, "exploration_config.k_nn: 0 must be a whole number, 1 or more"),
        ("SAC", {"type": "OrnsteinUhlenbeckNoise", "ou_theta": -1}, "exploration_config.ou_theta=-1 must be a number"),
        ("SAC", {"type": "OrnsteinUhlenbeckNoise", "ou_sigma": "x"}, "exploration_config.ou_sigma='x' must be a num"),
        ("SAC", {"type": "EpsilonGreedy"}, "needs a Discrete action space"),
    ],
)
def test_exploration(algo: str, given: dict[str, Any], text: str, refuse: Refuse) -> None:
    refuse(train({"exploration_config": given}, {"DQN": "parts:Env", "SAC": "parts:Continuous"}[algo], algo), text)


@pytest.mark.parametrize(
    ("env", "function", "text"),
    [
        ("parts:Env", "parts:unstorable", "environment 'parts:Env' has no get_task and set_task"),
        ("parts:Settable", "parts:unstorable", "env_task_fn returned <object object"),
        ("parts:Settable", "parts:first", "It is called with (train_results, task_settable_env, env_ctx)"),
        ("parts:Settable", "", "env_task_fn '': expected the form 'package.module:Name'"),
    ],
)
def test_curriculum(env: str, function: str, text: str, refuse: Refuse) -> None:
    refuse(train({"env_task_fn": function}, env), text)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"policy_mapping_fn": "parts:raises"}, "policy_mapping_fn raised LookupError: 0"),
        (
            {"policy_mapping_fn": "parts:a_list"},
            "policy_mapping_fn: PolicyID ['a'], which agent 0 acts with, not fou",
        ),
        ({"policy_mapping_fn": "parts:number"}, "policy_mapping_fn='parts:number' is 5: expected a function of (agent"),
        ({"policy_mapping_fn": "a"}, "policy_mapping_fn 'a': expected the form 'package.module:Name'"),
        ({"policy_mapping_fn": {"0": "a", "1": "b", "7": "a"}}, "policy_mapping_fn: '7' is no agent of environment"),
        ({"policy_mapping_fn": "parts:first"}, "policies=['a', 'b']: no agent acts with 'b'"),
        ({"policies": {"a": {"config": 5}}}, "policies: 'a': config=5: expected mapping"),
        ({"policies": {"a": {"observation_space": 5}}}, "policies: 'a': observation_space=5: expected a space"),
        ({"policies": {"a": {"action_space": {"type": "Boxx"}}}}, "policies: 'a': action_space: space type 'Boxx'"),
        ({"policies": [""]}, "policies=['']: expected at least one id, and none that is empty"),
        ({"policies_to_train": ["nobody"]}, "policies_to_train: 'nobody' is not among policies=['a', 'b']"),
        ({"policies_to_train": []}, "policies_to_train=[]: nothing would learn"),
        ({"env_config": TWO | {"num_agents": True}}, "num_agents, at least 1, for example {env: CartPole-v1"),
        ({"env_config": TWO | {"env": 5}}, "expected env, the name of an environment"),
    ],
)
def test_multi_agent(given: dict[str, Any], text: str, refuse: Refuse) -> None:
    refuse(train({"policies": ["a", "b"], "env_config": TWO} | given, AGENTS), text)


@pytest.mark.parametrize(
    ("given", "texts"),
    [
        ({"policy_mapping_fn": "parts:first"}, ("environment 'parts:Env' has one agent. Leave it out",)),
        ({"observation_space": 5}, ("observation_space=5: expected a space of Gymnasium",)),
        ({"action_space": {"type": "Box"}}, ("action_space: space {'type': 'Box'}: low and high is missing",)),
        ({"action_space": {"type": "Discrete", "n": 0}}, ("action_space: space {'type': 'Discrete', 'n': 0}:",)),
        (
            {"model": {"custom_model_config": {"a": 1}}},
            ("model.custom_model_config={'a': 1}: there is no model.cust",),
        ),
        ({"model": {"framestack": 4}}, ("model.framestack=4: expected true or false",)),
        ({"extra_python_environs_for_driver": {"A=B": "x"}}, ("'A=B'='x' is no environment variable",)),
        ({"extra_python_environs_for_worker": {"": "x"}}, ("extra_python_environs_for_worker: ''='x' is no env",)),
        ({"output": ""}, ("output='': expected the path of a folder, or 'logdir'",)),
        ({"input_": "policy_serverr"}, ("Did you mean 'policy_server'?",)),
        ({"logger_creator": "wandbb"}, ("logger_creator 'wandbb'", "Did you mean 'wandb'?")),
        ({"logger_config": {"a": 1}}, ("there is no logger_creator that takes it",)),
        ({"lr": float("nan"), "gamma": True, "seed": -1}, ("3 problems", "lr=nan", "gamma=True", "seed=-1")),
    ],
)
def test_environments_models_and_reporters(given: dict[str, Any], texts: tuple[str, ...], refuse: Refuse) -> None:
    refuse(train(given), *texts)


def test_recorded_episodes_of_no_file(refuse: Refuse) -> None:
    refuse(train({"input_": []}, "parts:Env", "DQN"), "input_=[]: DQN learns from recorded episodes. Set it to a file")


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--storage-path", ""], "--storage-path/--local-dir: it is empty. Name a place, or leave the flag out"),
        (["--experiment-name", ""], "--experiment-name: '' does not fit, expected lower-case letters"),
        (["--config", '{"lr": 1, "lr": 2}'], "is no JSON: key 'lr' is given twice"),
        (["--stop", '{"training_iteration": 1, "training_iteration": 9}'], "key 'training_iteration' is given twice"),
        (["--scheduler", "ASHAA", "--num-samples", "2"], "scheduler='ASHAA' is unknown. Did you mean"),
        (["--restore", "nowhere"], "there is no checkpoint at nowhere"),
    ],
)
def test_flags_of_training(flags: list[str], text: str, refuse: Refuse) -> None:
    refuse(train({}, "parts:Env", "PPO", *flags), text)


@pytest.mark.parametrize(
    ("given", "texts"),
    [
        ({"address": "256.1.1.1"}, ("address='256.1.1.1'", "Give one of this machine")),
        ({"port": True}, ("port=True: expected a whole number from 0 to 65535",)),
        ({"port": -1}, ("port=-1: expected a whole number",)),
        ({"prt": 1}, ("PolicyServerInput takes no 'prt'. Did you mean 'port'?",)),
    ],
)
def test_applications(given: dict[str, Any], texts: tuple[str, ...], refuse: Refuse, tmp_path: Path) -> None:
    config = SMALL["PPO"] | SPACES | {"input_": "policy_server", "input_config": given}
    spec = {"algorithm": "PPO", "environment": {"name": "external"}, "stop": {"training_iteration": 1}}
    document = {"apiVersion": "reef.dev/v1", "kind": "RLTrainingJob", "metadata": {"name": "job"}}
    (tmp_path / "job.json").write_text(json.dumps(document | {"spec": spec | {"config": config}}))
    refuse(["run", "job.json", "--storage-path", "results"], *texts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 2020-13-45\n", "'2020-13-45' is no timestamp. Text needs quotes (line 1)"),
        ("a: 1\nb: 2020-01-01 25:61:61\n", "is no timestamp. Text needs quotes (line 2)"),
        ("a: !!timestamp soon\n", "'soon' is no timestamp. Text needs quotes (line 1)"),
        (f"a: {'9' * 5000}\n", "is no int. Text needs quotes (line 1)"),
        ("a: !!float many\n", "'many' is no float. Text needs quotes (line 1)"),
        ("a: 1\na: 2\n", "key 'a' is given twice (line 2)"),
        ("spec:\n\tname: 1\n", "(line 2)"),
        ("a: *b\n", "found undefined alias 'b' (line 1)"),
        ("a: 1\n---\na: 2\n", "holds several documents"),
        ("", "holds no documents"),
        ("\x00", "is no valid YAML"),
    ],
)
@pytest.mark.parametrize("command", [["run"], ["train", "file"], ["validate"]])
def test_documents(command: list[str], text: str, expected: str, refuse: Refuse, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(text)
    refuse([*command, "job.yaml"], "job.yaml", expected)


@pytest.mark.parametrize("command", [["run"], ["validate"]])
def test_what_is_no_file(command: list[str], refuse: Refuse, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    refuse([*command, "folder"], "folder: cannot be read: Is a directory")
    refuse([*command, "binary"], "binary: cannot be read: it is no UTF-8 text")


UNTRAINED = ["evaluate", "--algo", "PPO", "--env", "parts:Env", "--episodes", "1"]


@pytest.mark.parametrize(
    ("command", "texts"),
    [
        (["evaluate", "."], (". has no manifest.json", "or give the folder of one run")),
        ([*UNTRAINED, "--out", ""], ("--out: it is empty",)),
        ([*UNTRAINED, "--estimate", "wis,"], ("'wis,': expected methods such as is,wis, each once",)),
        ([*UNTRAINED, "--estimate", "is,is"], ("'is,is': expected methods",)),
        (["plot", "."], (".: there is no result.json in it. Give the folder of a run",)),
        (["data", "stats", "."], ("'.': the folder has no .json, .jsonl or .parquet file",)),
        (["stack", "nothing"], ("nothing: there is no .owner in it",)),
        (["top", "99999999"], ("99999999: no process on this machine has this number",)),
        (["example", "get", "nothing"], ("nothing",)),
        (["describe", "PPOO"], ("Did you mean 'PPO'?",)),
        (["resume", "."], ("invalid choice: 'resume'",)),
    ],
)
def test_other_commands(command: list[str], texts: tuple[str, ...], refuse: Refuse) -> None:
    refuse(command, *texts)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"off_policy_estimation_methods": {"wis": {"type": "wis"}}}, "give --estimate METHODS and --input PATH"),
        ({"evaluation_config": {"input_": "x.json"}}, "--config evaluation_config.input_='x.json': has no effect here"),
        ({"evaluation_duration": 3}, "--config evaluation_duration=3: has no effect here: give --episodes N"),
        ({"custom_evaluation_function": "parts:first"}, "Call algorithm.evaluate() in Python"),
        ({"record_env": True}, "give --video-dir DIR"),
        ({"evaluation_config": {"render_env": True}}, "give --render"),
        ({"output": "episodes"}, "give --out FILE"),
        ({"num_workers": 3}, "--config num_rollout_workers=3: has no effect here: an evaluation is one process"),
    ],
)
def test_settings_that_reef_evaluate_decides_itself(given: dict[str, Any], text: str, refuse: Refuse) -> None:
    refuse([*UNTRAINED, "--config", json.dumps(given)], text)


def test_converted_episodes_do_not_replace_their_source(refuse: Refuse, tmp_path: Path) -> None:
    file = tmp_path / "episodes.json"
    file.write_text('{"steps": [{"reward": 1.0}]}\n')
    refuse(["data", "convert", "episodes.json", "./episodes.json"], "./episodes.json: it is among the files that are")
    refuse(["data", "convert", "episodes.json", "no/e.json"], "reef data: no/e.json: cannot be written")
    assert file.read_text() == '{"steps": [{"reward": 1.0}]}\n'


def test_a_field_that_is_misspelt_in_a_picture(refuse: Refuse, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "result.json").write_text('{"training_iteration": 1, "timesteps_total": 4}\n')
    refuse(["plot", "run", "--field", "episode_reward_men"], "Did you mean 'episode_reward_mean'? See docs/results.md")
