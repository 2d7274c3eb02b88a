"""Guesses at what a misspelt name meant."""

import subprocess
import sys

import pytest

from reef.errors import ConfigError, nearest, sentence


@pytest.mark.parametrize(
    ("name", "choices", "meant"),
    [
        ("ppo", ["DQN", "PPO"], "PPO"),
        ("cartpole-v1", ["Acrobot-v1", "CartPole-v1"], "CartPole-v1"),
        ("episode_reward", ["episode_reward_min", "episode_reward_mean"], "episode_reward_mean"),
        ("Traning_Iteration", ["timesteps_total", "training_iteration"], "training_iteration"),
    ],
)
def test_the_nearest_name_is_meant_whatever_its_case(name: str, choices: list[str], meant: str) -> None:
    assert nearest(name, choices) == f" Did you mean {meant!r}?"


@pytest.mark.parametrize("text", ["no such file", "no such file.", "no such file.\n"])
def test_a_sentence_ends_with_one_full_stop(text: str) -> None:
    assert sentence(ValueError(text)) == "no such file."


def test_nothing_is_guessed_from_afar() -> None:
    assert nearest("xyz", ["PPO", "DQN"]) == ""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://u:SECRET@host/a?x=1: is cut off", "https://...@host/a?...: is cut off"),
        ("https://me:SEC'RET@host/x: is cut off", "https://...@host/x: is cut off"),
        ("see http://host/a?sig=SECRET, then", "see http://host/a?..., then"),
        ("see http://host/a#SECRET.", "see http://host/a?...."),
        ("storage 's3://key:SECRET@bucket/x' is wrong", "storage 's3://...@bucket/x' is wrong"),
        ("abfs://container@account.dfs.core.windows.net/x: no", "abfs://container@account.dfs.core.windows.net/x: no"),
        ("s3://bucket/a: cannot write a?b", "s3://bucket/a: cannot write a?b"),
        ("a@b.c, reef.dev/v1, C:/x", "a@b.c, reef.dev/v1, C:/x"),
    ],
)
def test_errors_and_logs_show_addresses_without_their_secrets(text: str, shown: str) -> None:
    assert str(ConfigError(text)) == shown
    code = f"import logging; from reef.logs import *; log_to_stderr(); logging.getLogger('x').warning('%s', {text!r})"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert said.stderr.rstrip("\n") == f"WARNING x: {shown}"
