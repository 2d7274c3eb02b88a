"""Exported files act as their policy: reef.serving.export, with reef.serving.network and reef.serving.comparison."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from any_spaces import with_spaces
from finished import MEMORY, finished, ppo
from gymnasium import spaces
from masked import Allowed
from safetensors.numpy import load_file

from reef.algorithms.registry import config_class
from reef.config import AlgorithmConfig
from reef.errors import ConfigError, StorageError
from reef.nn.distributions.continuous import DiagonalGaussian, Squashed, SquashedGaussian
from reef.nn.distributions.discrete import Bernoulli, Categorical
from reef.serving import network
from reef.serving.export import export_policy
from reef.serving.finished import ActionResponse, FinishedPolicy
from reef.serving.network import MODES, ActingNetwork, parts_of

GTRXL = {"use_attention": True, "attention_dim": 8, "attention_num_heads": 1, "attention_head_dim": 4, "max_seq_len": 4}
COMPOSITE = with_spaces(
    spaces.Dict({"a": spaces.Box(-1, 1, (2, 3)), "b": spaces.Discrete(3, start=2), "c": spaces.MultiBinary(2)}),
    spaces.Dict({"d": spaces.Discrete(2, start=5), "e": spaces.Box(-3, 1, (2,)), "f": spaces.MultiDiscrete([2, 3])}),
)
BYTES = with_spaces(spaces.Box(0, 255, (8, 8, 1), np.uint8), spaces.MultiDiscrete([2, 3], start=[1, -1]))


def of(algorithm: str, env: str = "CartPole-v1", **settings: Any) -> AlgorithmConfig:
    return config_class(algorithm).from_dict({"env": env, "seed": 1, **settings})


CONFIGS = {
    "discrete, filter": ppo(observation_filter="MeanStdFilter"),
    "box, bounds": ppo(env="Pendulum-v1", normalize_actions=True),
    "box, clipped": ppo(env="Pendulum-v1", normalize_actions=False, clip_actions=True),
    "whole numbers": ppo(**with_spaces(spaces.Discrete(5, start=-2), spaces.Box(0, 9, (2, 2), np.int64))),
    "bits": ppo(**with_spaces(spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(3))),
    "image, indices": ppo(**BYTES, model={"conv_filters": [[4, 3, 2]]}),
    "composite": ppo(**COMPOSITE, observation_filter="MeanStdFilter"),
    "mask": ppo(env=Allowed, action_mask_key=Allowed.key),
    "memory": ppo(model=MEMORY),
    "memory, box": ppo(env="Pendulum-v1", model=MEMORY | {"recurrent_cell": "gru"}),
    "attention": ppo(model=GTRXL | {"attention_num_transformer_units": 1}),
    "DQN": of("DQN", noisy=True, num_atoms=5, v_min=0.0, v_max=10.0),
    "DQN with a memory": of("DQN", model={"use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 4}),
    "SAC": of("SAC", "Pendulum-v1"),
    "ES": of("ES", model={"fcnet_hiddens": [8]}),
    "TD3": of("TD3", "Pendulum-v1"),
    "TQC": of("TQC", "Pendulum-v1"),
}


def acted(policy: FinishedPolicy, observations: list[Any]) -> ActionResponse:
    (found,) = policy.act([policy.read(observations)])
    assert isinstance(found, ActionResponse)
    return found


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_torchscript_acts_as_the_policy(config: AlgorithmConfig, tmp_path: Path) -> None:
    policy = finished(config, tmp_path / "c", explore=False)
    export_policy(policy, tmp_path / "policy.pt", "torchscript")
    loaded = torch.jit.load(tmp_path / "policy.pt")
    policy.observation_space.seed(7)
    observations = [policy.observation_space.sample() for _ in range(5)]
    state = [torch.from_numpy(part) for part in policy.policy.initial_state(5).values()]
    parts = parts_of(policy.chooser.preprocessor.layout, observations)
    outputs = [each.numpy() for each in loaded(*map(torch.from_numpy, parts), *state)]
    assert_same(policy, outputs, observations)


def assert_same(policy: FinishedPolicy, outputs: list[Any], observations: list[Any]) -> None:
    expected, leaves = acted(policy, observations), policy.policy.action_layout.leaves
    for output, part in zip(outputs, parts_of(policy.policy.action_layout, expected.actions), strict=False):
        assert output.dtype == part.dtype
        np.testing.assert_allclose(output, part, rtol=1e-4, atol=1e-4)
    for output, *after in zip(outputs[len(leaves) :], *expected.states, strict=True):
        np.testing.assert_allclose(output, np.stack(after), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["composite", "mask", "memory", "image, indices"])
def test_onnx_acts_as_the_policy(name: str, tmp_path: Path) -> None:
    import onnxruntime

    policy = finished(CONFIGS[name], tmp_path / "c", explore=False)
    export_policy(policy, tmp_path / "policy.onnx", "onnx")
    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
    policy.observation_space.seed(7)
    observations = [policy.observation_space.sample() for _ in range(5)]
    inputs = [*parts_of(policy.chooser.preprocessor.layout, observations), *policy.policy.initial_state(5).values()]
    names = [each.name for each in session.get_inputs()]
    assert_same(policy, session.run(None, dict(zip(names, inputs, strict=True))), observations)
    own = ActingNetwork(policy)
    assert (tuple(names), tuple(each.name for each in session.get_outputs())) == (own.input_names, own.output_names)
    assert sorted(os.listdir(tmp_path)) == ["c", "policy.onnx"]


def test_inputs_and_outputs_are_named_by_their_parts(tmp_path: Path) -> None:
    own = ActingNetwork(finished(ppo(**COMPOSITE), tmp_path / "c", explore=False))
    assert own.input_names == ("observation.a", "observation.b", "observation.c")
    assert own.output_names == ("action.d", "action.e", "action.f")
    own = ActingNetwork(finished(ppo(model=MEMORY), tmp_path / "m", explore=False))
    assert own.input_names == ("observation", "state.h", "state.c", "state.prev_actions", "state.prev_rewards")
    assert own.output_names[:2] == ("action", "next_state.h")


def test_safetensors_hold_the_weights(tmp_path: Path) -> None:
    policy = finished(ppo(), tmp_path / "c", explore=False)
    export_policy(policy, tmp_path / "policy.safetensors", "safetensors")
    found = load_file(tmp_path / "policy.safetensors")
    assert all((found[name] == values).all() for name, values in policy.policy.get_weights().items())


@pytest.mark.parametrize(("env", "kind"), [("CartPole-v1", Categorical), ("Pendulum-v1", DiagonalGaussian)])
def test_a_file_that_acts_otherwise_is_an_error_and_what_was_there_stays(
    env: str, kind: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = finished(ppo(env=env), tmp_path / "c", explore=False)
    policy.policy.set_weights(
        {name: np.random.default_rng(0).normal(size=w.shape) for name, w in policy.policy.get_weights().items()}
    )
    right = MODES[kind]
    monkeypatch.setitem(network.MODES, kind, lambda inputs: right(-inputs))
    (tmp_path / "policy.pt").write_text("before")
    with pytest.raises(ConfigError, match="the file acts otherwise than the policy: .* Use reef serve"):
        export_policy(policy, tmp_path / "policy.pt", "torchscript")
    assert (tmp_path / "policy.pt").read_text() == "before"
    assert sorted(os.listdir(tmp_path)) == ["c", "policy.pt"]


def test_a_file_that_remembers_otherwise_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = finished(ppo(model=MEMORY), tmp_path / "c", explore=False)
    monkeypatch.setattr(ActingNetwork, "_previous", lambda self, state, actions: {})
    with pytest.raises(ConfigError, match="the file remembers another 'prev_actions' than the policy"):
        export_policy(policy, tmp_path / "policy.pt", "torchscript")


@pytest.mark.parametrize("make", MODES)
def test_the_most_likely_action_is_that_of_the_distribution(make: Any) -> None:
    inputs = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    np.testing.assert_allclose(MODES[make](torch.from_numpy(inputs)).numpy(), make.mode(inputs), rtol=1e-5)
    assert {Categorical, Bernoulli, DiagonalGaussian, SquashedGaussian, Squashed} == set(MODES)


def doubled(observations: Any) -> Any:
    return 2 * observations


def test_functions_of_a_person_s_own_are_refused(tmp_path: Path) -> None:
    policy = finished(ppo(env_to_module_connector=doubled), tmp_path / "c", explore=False)
    with pytest.raises(
        ConfigError, match="env_to_module_connector: a file holds no function of Python.*Use reef serve"
    ):
        export_policy(policy, tmp_path / "policy.pt", "torchscript")


class Branching(torch.nn.Module):
    """What cannot be recorded: whether a branch is taken depends on the values."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, outputs + 1)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = self.layer(obs)
        if obs.numpy(force=True).sum() > 1000:
            found = -found
        return found[:, :-1], found[:, -1]


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = finished(ppo(), tmp_path / "c", explore=False)
    monkeypatch.setattr("reef.serving.export.find_spec", lambda name: None if name == "onnxscript" else name)
    with pytest.raises(ConfigError, match=r"ONNX needs onnxscript, not installed here: pip install 'reef\[onnx\]'"):
        export_policy(policy, tmp_path / "policy.onnx", "onnx")


@pytest.mark.parametrize(
    ("file", "problem"), [("", "is a folder. Give a file"), ("nowhere/policy.st", "cannot be written: No such file")]
)
def test_a_place_that_cannot_be_written_is_named(file: str, problem: str, tmp_path: Path) -> None:
    policy = finished(ppo(), tmp_path / "c", explore=False)
    for form in ("safetensors", "torchscript"):
        with pytest.raises(StorageError, match=problem):
            export_policy(policy, tmp_path / file, form)
