"""Settings of training from applications: what does not go with them, and where documents say so."""

from __future__ import annotations

from typing import Any

import pytest
from applications import OBSERVATIONS, settings

from reef import APPOConfig, BCConfig, DDPPOConfig, DQNConfig, IMPALAConfig, PPOConfig
from reef.api import job_from_document
from reef.callbacks import DefaultCallbacks
from reef.cli.document.experiments import document_of
from reef.config.applications import as_sent, comes_from_applications, named_in_document
from reef.errors import ConfigError
from reef.job.settings import config_of


class OfEpisodes(DefaultCallbacks):
    def on_episode_end(self, **_: Any) -> None:
        """Never called."""


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"env": "CartPole-v1"}, "env='CartPole-v1': input_='policy_server' has no environment: applications bring"),
        ({"observation_space": None}, "observation_space: input_='policy_server' has no environment to read it from"),
        ({"action_space": None}, "action_space: input_='policy_server' has no environment to read it from. Give it."),
        (
            {"policies": {"a": {"observation_space": OBSERVATIONS}, "b": {}}, "observation_space": None},
            "observation_space of b: input_='policy_server' has no environment to read it from",
        ),
        ({"horizon": 10}, "horizon=10: has no effect with input_='policy_server', which steps no environment"),
        ({"num_envs_per_worker": 2}, "num_envs_per_worker=2: has no effect with input_='policy_server'"),
        ({"env_config": {"a": 1}}, "env_config={'a': 1}: has no effect"),
        ({"output": "folder"}, "output='folder': has no effect"),
        ({"sample_async": True}, "input_='policy_server': not available with sample_async=True"),
        ({"callbacks": OfEpisodes}, "callbacks: on_episode_end: not called with input_='policy_server'"),
        ({"input_": "no.module:function"}, "input_ 'no.module:function': there is no module 'no'"),
        ({"input_": lambda: None}, "too many positional arguments. It is called with .ioctx.: take these"),
        (
            {"input_": "episodes.json", "input_config": {}},
            "input_='episodes.json': PPO learns from what its own policy has just played",
        ),
        ({"input_": print, "env": "CartPole-v1"}, "A function that makes a PolicyServerInput goes with env=None"),
        ({"input_": "sampler"}, r"input_config={'port': 0.*}: nothing is read. Set input_ beside it"),
        ({"shuffle_buffer_size": 9}, "shuffle_buffer_size=9: has no effect with input_='policy_server'"),
        ({"input_": 3}, "input_=3: expected text or list of text or mapping or function"),
    ],
)
def test_what_does_not_go_together_is_refused(given: dict[str, Any], problem: str) -> None:
    config = settings()
    with pytest.raises(ConfigError, match=problem):
        config.update_from_dict(given).checked()


def test_steps_that_applications_play_are_no_whole_ones_of_an_environment() -> None:
    with pytest.raises(ConfigError, match="replay_mode='lockstep': input_='policy_server' has no whole steps of an"):
        settings("DQN", replay_mode="lockstep").checked()


@pytest.mark.parametrize("kind", [APPOConfig, DDPPOConfig, IMPALAConfig])
def test_an_algorithm_whose_workers_do_not_wait_is_refused(kind: type[Any]) -> None:
    config = kind().update_from_dict({key: getattr(settings(), key) for key in ("input_", "input_config")})
    with pytest.raises(ConfigError, match=f"input_='policy_server': not available with {kind.algorithm}. Use PPO, A2C"):
        config.checked()


def test_recorded_episodes_take_no_arguments() -> None:
    config = BCConfig().environment("CartPole-v1").offline_data(input_="a.json", input_config={"port": 1})
    with pytest.raises(ConfigError, match="input_config={'port': 1}: 'port' is for a reader of your own"):
        config.checked()
    assert not BCConfig().offline_data(input_="s3://bucket:80/a.json").uses_policy_server


@pytest.mark.parametrize(
    ("value", "served"),
    [
        ("sampler", False),
        ("policy_server", True),
        ("mine:function", True),
        (print, True),
        ("a.json", False),
        ([], False),
    ],
)
def test_which_inputs_are_servers(value: Any, served: bool) -> None:
    assert comes_from_applications(value) == served
    assert named_in_document(None, {"input_": value}) == ("external" if served else None)
    assert named_in_document("CartPole-v1", {"input": value}) == "CartPole-v1"


def test_a_function_reads_where_there_is_an_environment_and_serves_where_there_is_none() -> None:
    reading = DQNConfig().environment("CartPole-v1").offline_data(input_=print)
    assert (reading.reads_records, reading.uses_policy_server) == (True, False)
    serving = reading.copy().environment(None)
    assert (serving.reads_records, serving.uses_policy_server) == (False, True)


def test_evaluation_samples() -> None:
    evaluated = settings(evaluation_config={"env": "CartPole-v1"}).evaluation_settings()
    assert (evaluated.input_, evaluated.input_config, evaluated.env) == ("sampler", {}, "CartPole-v1")


SPACES = {
    "observation_space": {"type": "Box", "low": -1, "high": 1, "shape": [3]},
    "action_space": {"type": "Discrete", "n": 2},
}
CONFIG = {**SPACES, "input_": "policy_server", "input_config": {"port": 9901}}


def test_a_document_names_the_environment_of_applications() -> None:
    document = {
        "apiVersion": "reef.dev/v1",
        "kind": "RLTrainingJob",
        "metadata": {"name": "external"},
        "spec": {
            "algorithm": "PPO",
            "environment": {"name": "external"},
            "config": CONFIG,
            "stop": {"time_total_s": 1},
        },
    }
    config = config_of(job_from_document(document, "a test"))
    assert config.env is None
    assert config.uses_policy_server
    document["spec"]["environment"]["name"] = "CartPole-v1"
    with pytest.raises(ConfigError, match="Set env to null, in a job document environment.name to 'external'"):
        config_of(job_from_document(document, "a test"))


def test_an_experiment_without_an_environment_is_one_of_applications() -> None:
    experiment = {
        "run": "PPO",
        "env": None,
        "config": {**SPACES, "input": "policy_server"},
        "stop": {"time_total_s": 1},
    }
    assert document_of(experiment, "one", "a test")["spec"]["environment"]["name"] == "external"
    del experiment["config"]["input"]
    with pytest.raises(ConfigError, match="a test: it has no env"):
        document_of(experiment, "one", "a test")


def test_a_client_gets_what_makes_the_policy_and_nothing_else() -> None:
    config = settings(
        model={"fcnet_hiddens": [8]}, exploration_config={"random_timesteps": 5}, logger_config={"project": "p"}
    )
    sent = as_sent(config)
    assert sent["model"]["fcnet_hiddens"] == [8]
    assert sent["exploration_config"] == {"random_timesteps": 5}
    assert sent["observation_space"]["type"] == "Box"
    assert not sent.keys() & {"input_", "input_config", "logger_config", "seed", "callbacks"}
    assert PPOConfig.from_dict(sent).model == config.model
