"""Policies of a checkpoint without the algorithm, and their files: reef.run.checkpoint.policies and .models."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from safetensors.torch import load_file

from reef import Algorithm, load_policies
from reef.algorithms.dqn import DQNConfig
from reef.algorithms.ppo import PPOConfig
from reef.algorithms.sac import SACConfig
from reef.config import AlgorithmConfig
from reef.envs.multi_agent import IndependentAgents
from reef.errors import CheckpointError, DamagedCheckpointError
from reef.run.checkpoint import read_checkpoint, write_checkpoint
from reef.run.checkpoint.fit import check_fit, is_left_out
from reef.run.checkpoint.models import model_file

LSTM = {"use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 4, "fcnet_hiddens": [4]}


def ppo(**settings: Any) -> PPOConfig:
    small = {"train_batch_size": 16, "sgd_minibatch_size": 16, "num_sgd_iter": 1, "model": {"fcnet_hiddens": [4]}}
    return PPOConfig.from_dict({"env": "CartPole-v1", "seed": 1, **small, **settings})


def one_hot(cells: Any) -> Any:
    return np.eye(16, dtype=np.float32)[cells]


def two_policies(**settings: Any) -> PPOConfig:
    env = {"env": IndependentAgents, "env_config": {"env": "CartPole-v1", "num_agents": 2}}
    return ppo(**env, policies=["0", "1"], policies_to_train=["0"], **settings)


@pytest.mark.parametrize(
    "config",
    [
        ppo(observation_filter="MeanStdFilter"),
        ppo(model=LSTM),
        ppo(env="FrozenLake-v1", env_to_module_connector=one_hot),
        DQNConfig.from_dict({"env": "CartPole-v1", "seed": 1, "noisy": True}),
        SACConfig.from_dict({"env": "Pendulum-v1", "seed": 1}),
    ],
    ids=["filter", "LSTM", "connector", "DQN", "SAC"],
)
def test_it_acts_as_that_of_the_algorithm(config: AlgorithmConfig, tmp_path: Path) -> None:
    with config.build() as algorithm:
        algorithm.train()
        algorithm.save(tmp_path / "checkpoint")
        observation, _ = gym.make(config.env).reset(seed=3)
        expected = algorithm.compute_single_action(observation, explore=False, full_fetch=True)
    policy = load_policies(tmp_path / "checkpoint")["default_policy"]
    found = policy.compute_single_action(policy.observed(observation), explore=False)
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[2]["action_dist_inputs"], expected[2]["action_dist_inputs"])


def test_no_environment_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ppo().build() as algorithm:
        algorithm.save(tmp_path / "checkpoint")
    monkeypatch.setattr(gym, "make", None)
    monkeypatch.setattr("reef.rollout.worker.make_envs", None)
    assert list(load_policies(tmp_path / "checkpoint")) == ["default_policy"]


def test_some_of_several_are_loaded(tmp_path: Path) -> None:
    with two_policies().build() as algorithm:
        algorithm.save(tmp_path / "checkpoint")
        weights = algorithm.get_policy("1").get_weights()
    assert list(load_policies(tmp_path / "checkpoint")) == ["0", "1"]
    (found,) = load_policies(tmp_path / "checkpoint", ["1"]).values()
    assert all((found.get_weights()[name] == values).all() for name, values in weights.items())
    with pytest.raises(CheckpointError, match=re.escape("PolicyID 'x' not found; there is ['0', '1']")):
        load_policies(tmp_path / "checkpoint", ["x"])


def test_an_older_checkpoint_says_what_to_do(tmp_path: Path) -> None:
    with ppo().build() as algorithm:
        state, metadata = algorithm.state(), algorithm.metadata()
    write_checkpoint(tmp_path / "checkpoint", {key: value for key, value in state.items() if key != "spaces"}, metadata)
    with pytest.raises(CheckpointError, match="does not say what policy 'default_policy' observes"):
        load_policies(tmp_path / "checkpoint")


def test_policies_that_do_not_learn_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = two_policies(checkpoint_trainable_policies_only=True)
    with config.build() as algorithm:
        learned = algorithm.get_policy("0").get_weights()["pi.bias"] + 1
        for name in ("0", "1"):
            weights = algorithm.get_policy(name).get_weights()
            weights["pi.bias"] = learned
            algorithm.get_policy(name).set_weights(weights)
        path = algorithm.save(tmp_path / "checkpoint")
    state, _ = read_checkpoint(path)
    assert (list(state["learners"]), state["fixed"], is_left_out(state, "1")) == (["0"], {}, True)
    with Algorithm.from_checkpoint(path) as algorithm:
        first, second = (algorithm.get_policy(name).get_weights()["pi.bias"] for name in ("0", "1"))
        assert (first == learned).all()
        assert (second != learned).all()
        assert "no weights of policies that do not learn: 1; checkpoint_trainable_policies_only left" in caplog.text
        algorithm.train()
    with pytest.raises(CheckpointError, match="policy '1' is not in it: checkpoint_trainable_policies_only left it"):
        load_policies(path)
    assert list(load_policies(path, ["0"])) == ["0"]
    expected = pytest.raises(CheckpointError, match="policy '1' is to learn and is not in the checkpoint")
    with config.copy().multi_agent(policies_to_train=None).build() as algorithm, expected:
        check_fit(state, algorithm.learners, algorithm.workers.local_worker())


def test_files_hold_the_parameters_of_each_policy(tmp_path: Path) -> None:
    with two_policies(export_native_model_files=True).build() as algorithm:
        path = Path(algorithm.save(tmp_path / "checkpoint"))
        for name in ("0", "1"):
            found = load_file(path / f"model_{name}.safetensors")
            own = algorithm.get_policy(name).get_weights()
            assert {key: value.tolist() for key, value in found.items()} == {k: v.tolist() for k, v in own.items()}
        assert algorithm.get_policy("1").load_state_dict(found)
        algorithm.import_model(path / "model_0.safetensors", policy_id="1")
        algorithm.restore(path)
        (path / "model_0.safetensors").write_bytes(b"another")
        with pytest.raises(DamagedCheckpointError, match=r"model_0\.safetensors is cut off"):
            algorithm.restore(path)


def test_files_of_other_names_are_refused(tmp_path: Path) -> None:
    with ppo().build() as algorithm:
        path = Path(algorithm.save(tmp_path / "checkpoint"))
    assert sorted(file.name for file in path.iterdir()) == [
        "arrays.safetensors", "manifest.json", "metadata.json", "state.json",
    ]  # fmt: skip
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["files"]["../model_0.safetensors"] = manifest["files"]["state.json"]
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DamagedCheckpointError, match="it lists"):
        read_checkpoint(path)


def test_any_id_makes_a_file_name() -> None:
    assert model_file("../a b") == "model_..%2Fa%20b.safetensors"
