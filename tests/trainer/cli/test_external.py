"""A job that is played by an application, from its document to the evaluation of what it learnt."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import urllib.request
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from reef import PolicyClient
from reef.cli.main import main


def document(port: int) -> dict[str, Any]:
    config = {
        "observation_space": {"type": "Box", "low": -5, "high": 5, "shape": [4]},
        "action_space": {"type": "Discrete", "n": 2},
        "input_": "policy_server",
        "input_config": {"port": port, "idle_timeout": 60.0},
        "train_batch_size": 50,
        "sgd_minibatch_size": 50,
        "model": {"fcnet_hiddens": [4]},
    }
    spec = {"algorithm": "PPO", "environment": {"name": "external"}, "config": config, "stop": {"timesteps_total": 100}}
    return {"apiVersion": "reef.dev/v1", "kind": "RLTrainingJob", "metadata": {"name": "game"}, "spec": spec}


def play(port: int, over: threading.Event) -> None:
    env = gym.make("CartPole-v1")
    client = PolicyClient(f"127.0.0.1:{port}", "remote", timeout_s=60.0)
    while not over.is_set():
        episode, (obs, _), ended = client.start_episode(), env.reset(), False
        while not ended and not over.is_set():
            obs, reward, ended, _, _ = env.step(client.get_action(episode, obs))
            client.log_returns(episode, reward)
        if ended:
            client.end_episode(episode, obs)


def test_a_document_is_trained_by_an_application_and_evaluated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free, socket.create_server(("127.0.0.1", 0)) as other:
        port, metrics = free.getsockname()[1], other.getsockname()[1]
    (tmp_path / "job.yaml").write_text(json.dumps(document(port)))
    over, seen = threading.Event(), list[str]()
    for target, arguments in ((quietly, (port, over)), (watch, (metrics, over, seen))):
        threading.Thread(target=target, args=arguments, daemon=True).start()
    run = ["run", str(tmp_path / "job.yaml"), "--storage-path", str(tmp_path / "results")]
    assert main([*run, "--metrics-port", str(metrics)]) == 0
    over.set()
    assert any("reef_training_external_open_episodes 1.0" in text for text in seen)
    (checkpoint,) = tmp_path.glob("results/game/PPO_external_*/checkpoint_*")
    assert main(["evaluate", str(checkpoint)]) == 2
    assert "give --env, an environment with its spaces" in capsys.readouterr().err
    assert main(["evaluate", str(checkpoint), "--env", "CartPole-v1", "--episodes", "2", "--json"]) == 0


def quietly(port: int, over: threading.Event) -> None:
    """Play until the server is gone."""
    try:
        play(port, over)
    except Exception:
        assert over.wait(60)


def watch(port: int, over: threading.Event, seen: list[str]) -> None:
    """Read the metrics until the run is over."""
    address = f"http://127.0.0.1:{port}/metrics"
    while not over.wait(0.02):
        with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=5) as answer:
            seen.append(answer.read().decode())


def test_a_document_without_spaces_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = document(0)
    del given["spec"]["config"]["action_space"]
    (tmp_path / "job.yaml").write_text(json.dumps(given))
    assert main(["validate", str(tmp_path / "job.yaml")]) == 2
    assert "action_space: input_='policy_server' has no environment to read it from" in capsys.readouterr().err
