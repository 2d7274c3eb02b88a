"""Policies: how they are made, act and exchange weights.

It tests reef.config.ignored, reef.nn.architecture and reef.nn.custom too.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from reef.algorithms.dqn import DQNConfig
from reef.algorithms.ppo import PPOConfig
from reef.algorithms.sac import SACConfig
from reef.config import AlgorithmConfig
from reef.errors import ConfigError
from reef.nn.custom import CustomActorCritic
from reef.nn.dueling import NoisyLinear
from reef.nn.make import make_policy
from reef.nn.policies import ActorCritic

OBS, ACTIONS = spaces.Box(-1, 1, (4,)), spaces.Discrete(3)


class Tiny(nn.Module):
    def __init__(self, observation_space: Any, action_space: Any, num_outputs: int, width: int = 4) -> None:
        super().__init__()
        self.body = nn.Linear(observation_space.shape[0], width)
        self.heads = nn.Linear(width, num_outputs + 1)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        out = self.heads(self.body(obs))
        return out[:, :-1], out[:, -1]


class TinyAndNoisy(Tiny):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.body = NoisyLinear(4, 4, sigma0=0.5)


class OneValue(Tiny):
    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        return super().forward(obs)[0], torch.zeros(1)


class TwoValues(Tiny):
    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        return super().forward(obs)[0], torch.zeros(len(obs), 2)


class OneRow(Tiny):
    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        outputs, values = super().forward(obs)
        return outputs[:1], values


@pytest.mark.parametrize("share", [True, False])
def test_acting_and_training_see_the_same_network(share: bool) -> None:
    config = PPOConfig().training(model={"fcnet_hiddens": [8, 8], "vf_share_layers": share})
    policy = make_policy(config, OBS, ACTIONS)
    assert isinstance(policy, ActorCritic)
    obs = torch.randn(5, 4)
    dist_inputs, values = policy(obs)
    torch.testing.assert_close(policy.dist_inputs(obs), dist_inputs)
    torch.testing.assert_close(policy.values(obs), values)
    assert values.shape == (5,)


def test_free_log_std_does_not_depend_on_the_observation() -> None:
    config = PPOConfig().training(model={"free_log_std": True})
    policy = make_policy(config, OBS, spaces.Box(-1, 1, (2,)))
    inputs = policy.dist_inputs(torch.randn(5, 4))
    assert inputs.shape == (5, 4)
    assert (inputs[:, 2:] == 0).all()
    with pytest.raises(ConfigError, match="free_log_std=True needs a Box"):
        make_policy(config, OBS, ACTIONS)


def test_acting_that_is_compiled_is_what_acts() -> None:
    policy = make_policy(PPOConfig().training(model={"fcnet_hiddens": [8]}), OBS, ACTIONS)
    calls: list[int] = []

    def backend(graph: torch.fx.GraphModule, _: list[Tensor]) -> Any:
        def run(*inputs: Tensor) -> Any:
            calls.append(1)
            return graph.forward(*inputs)

        return run

    policy.compile_acting(backend=backend)
    policy.act(np.zeros((2, 4), np.float32), {})
    assert calls


def test_a_custom_module_by_its_path() -> None:
    config = PPOConfig().training(model={"custom_model": Tiny, "custom_model_config": {"width": 6}})
    policy = make_policy(config, OBS, ACTIONS)
    assert isinstance(policy, CustomActorCritic)
    assert policy(torch.zeros(2, 4))[0].shape == (2, 3)
    distribution, _ = policy.act(np.zeros((2, 4), np.float32), {})
    assert distribution.deterministic().shape == (2,)
    assert distribution.inputs.shape == (2, 3)


@pytest.mark.parametrize("module", [OneValue, TwoValues, OneRow])
def test_a_custom_module_has_a_row_and_a_value_for_each_observation(module: type[nn.Module]) -> None:
    with pytest.raises(
        ConfigError, match=r"returns \(shape .*\) for 2 observations, expected \(outputs of shape \[2, 3\]"
    ):
        make_policy(PPOConfig().training(model={"custom_model": module}), OBS, ACTIONS)


class OneOutput(Tiny):
    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        return super().forward(obs)[0][:, :1], torch.zeros(len(obs))


class NoPair(Tiny):
    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        return super().forward(obs)[0]  # type: ignore[return-value]


class NoActor(Tiny):
    """As for a critic that is to learn first."""

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        outputs, _ = super().forward(obs)
        return outputs.detach(), outputs[:, 0]


def test_a_custom_module_may_train_its_critic_alone_and_be_loaded_to_act() -> None:
    config = PPOConfig().training(model={"custom_model": NoActor})
    make_policy(config, OBS, ACTIONS)
    with torch.inference_mode():
        make_policy(config, OBS, ACTIONS)


class NoGradient(Tiny):
    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            return super().forward(obs)


class Fails(Tiny):
    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        raise KeyError("no such layer")


class Indexed(nn.Module):
    """Takes whole numbers from 1 on, gives a row for each action."""

    def __init__(self, observation_space: Any, action_space: Any, num_outputs: int) -> None:
        super().__init__()
        self.table = nn.Embedding(10, num_outputs)

    def forward(self, obs: Tensor) -> tuple[Tensor, None]:
        return self.table(obs[:, 0] - 1).view(len(obs), 3, -1), None


def test_a_custom_module_is_tried_on_observations_of_the_space() -> None:
    config = DQNConfig().training(model={"custom_model": Indexed}, num_atoms=5)
    policy = make_policy(config, spaces.Box(1, 10, (1,), np.int64), ACTIONS)
    assert policy.dist_inputs(torch.full((4, 1), 10)).shape == (4, 3)


def test_products_count_a_convolution_at_every_place() -> None:
    image = make_policy(PPOConfig(), spaces.Box(0, 255, (84, 84, 4), np.uint8), ACTIONS)
    image.bind_parameters()
    assert image.multiply_adds > 3 * image.flat.vector.numel()
    vector = make_policy(PPOConfig(), OBS, ACTIONS)
    vector.bind_parameters()
    assert vector.multiply_adds == vector.flat.vector.numel()


@pytest.mark.parametrize("kind", [PPOConfig, DQNConfig])
@pytest.mark.parametrize(
    ("module", "words"),
    [
        (OneOutput, r"returns \(shape \[2, 1\], shape \[2\]\) for 2 observations"),
        (NoPair, r"returns shape \[2, 3\] for 2 observations"),
        (NoGradient, "no gradient flows from its outputs to parameters"),
        (
            Fails,
            r"(?s)fails on observations of shape \[2, 4\] and type torch.float32: KeyError: 'no such layer'.*"
            r"Its own traceback:.*test_policies.py.*raise KeyError",
        ),
    ],
)
def test_a_custom_module_is_tried_before_it_is_trained(
    kind: type[AlgorithmConfig], module: type[nn.Module], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        make_policy(kind().training(model={"custom_model": module}), OBS, ACTIONS)


@pytest.mark.parametrize("kind", [PPOConfig, DQNConfig])
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("builtins:slice", "model.custom_model='builtins:slice' must make a torch.nn.Module"),
        ("builtins:dict", "cannot be made with the two spaces, .* TypeError: dict expected at most 1 argument, got 3"),
    ],
)
def test_a_custom_model_that_makes_no_module_is_refused(kind: type[AlgorithmConfig], path: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        make_policy(kind().training(model={"custom_model": path}), OBS, ACTIONS)


IMAGE = spaces.Box(0, 255, (42, 42, 3), np.uint8)


@pytest.mark.parametrize(
    ("kind", "settings", "obs", "expected"),
    [
        (PPOConfig, {"model": {"fcnet_hiddens": [8]}}, IMAGE, ["model.fcnet_hiddens=[8] has no effect with an image"]),
        (
            PPOConfig,
            {"model": {"fcnet_activation": "relu", "fcnet_hiddens": [8], "conv_activation": "elu"}},
            IMAGE,
            ["model.fcnet_hiddens=[8] has no effect", "model.fcnet_activation='relu' has no effect"],
        ),
        (DQNConfig, {"model": {"fcnet_hiddens": [8], "fcnet_activation": "relu"}}, IMAGE, ["model.fcnet_hiddens=[8]"]),
        (PPOConfig, {"model": {"conv_activation": "elu"}}, OBS, ["conv_activation='elu' has no effect without an"]),
        (DQNConfig, {"model": {"conv_filters": [[8, 4, 2]]}}, OBS, ["model.conv_filters="]),
        (DQNConfig, {"model": {"vf_share_layers": False}}, OBS, ["model.vf_share_layers=False has no effect on Q"]),
        (
            DQNConfig,
            {"model": {"custom_model": Tiny}, "hiddens": [8], "noisy": True},
            OBS,
            ["hiddens=[8] has no", "noisy=True has no effect beside"],
        ),
        (DQNConfig, {"model": {"custom_model": TinyAndNoisy}, "noisy": True}, OBS, []),
        (PPOConfig, {"lambda_": 0.9, "kl_target": 0.02, "vf_clip_param": 1.0, "vf_loss_coeff": 0.3}, OBS, []),
        (PPOConfig, {"lambda_": 0.9, "use_gae": False}, OBS, ["lambda_=0.9 has no effect without use_gae"]),
        (PPOConfig, {"kl_target": 0.02, "kl_coeff": 0.0}, OBS, ["kl_target=0.02 has no effect with kl_coeff=0"]),
        (
            PPOConfig,
            {"vf_clip_param": 1.0, "vf_loss_coeff": 0.3, "use_critic": False},
            OBS,
            ["vf_loss_coeff=0.3 has no effect without use_critic", "vf_clip_param=1.0 has no effect without"],
        ),
        (DQNConfig, {"sigma0": 1.0, "v_max": 5.0}, OBS, ["sigma0=1.0 has no effect without noisy", "v_max=5.0 has no"]),
        (DQNConfig, {"sigma0": 1.0, "v_max": 5.0, "noisy": True, "num_atoms": 3}, OBS, []),
        (PPOConfig, {"model": {"custom_model": Tiny, "vf_share_layers": True}}, OBS, ["model.vf_share_layers=True"]),
        (PPOConfig, {"model": {"fcnet_hiddens": [8], "vf_share_layers": True}}, OBS, []),
    ],
)
def test_settings_that_a_network_does_not_read_are_told(
    kind: type[AlgorithmConfig], settings: dict[str, Any], obs: spaces.Space[Any], expected: list[str]
) -> None:
    config = kind.from_dict(settings)
    told = list(config.ignored_settings(make_policy(config, obs, ACTIONS)))
    assert len(told) == len(expected)
    assert all(part in text for part, text in zip(expected, told, strict=True)), told


class Normalised(Tiny):
    def __init__(self, *arguments: Any, persistent: bool) -> None:
        super().__init__(*arguments)
        self.body.register_buffer("scale", torch.ones(4), persistent=persistent)


@pytest.mark.parametrize("kind", [PPOConfig, DQNConfig])
def test_a_custom_module_keeps_nothing_that_changes_outside_its_parameters(kind: type[AlgorithmConfig]) -> None:
    model = {"custom_model": Normalised, "custom_model_config": {"persistent": True}}
    with pytest.raises(ConfigError, match=r"Normalised.*: the buffers body.scale .* persistent=False"):
        make_policy(kind().training(model=model), OBS, ACTIONS)
    model["custom_model_config"] = {"persistent": False}
    make_policy(kind().training(model=model), OBS, ACTIONS)


def test_weights_go_out_and_in_by_name() -> None:
    one, two = (make_policy(PPOConfig(), OBS, ACTIONS) for _ in range(2))
    two.set_weights(one.get_weights())
    obs = torch.randn(3, 4)
    torch.testing.assert_close(one.dist_inputs(obs), two.dist_inputs(obs))


def test_weights_that_do_not_fit_are_told_by_name_and_change_nothing() -> None:
    policy = make_policy(PPOConfig(), OBS, ACTIONS)
    before = policy.get_weights()
    weights = policy.get_weights() | {"vf.bias": np.zeros(3), "vf.weight": before["vf.weight"] * np.nan}
    weights["pi.biases"] = weights.pop("pi.bias")
    with pytest.raises(ConfigError) as caught:
        policy.set_weights(weights)
    told = str(caught.value)
    assert "pi.bias: is missing, expected shape [3]. Did you mean 'pi.biases'?" in told
    assert "vf.bias: has shape [3], expected shape [1]. Give weights of the same spaces" in told
    assert "vf.weight: has values that are NaN" in told
    assert "pi.biases: is not a parameter of this policy, leave it out. Did you mean 'pi.bias'?" in told
    assert all(np.array_equal(policy.get_weights()[name], value) for name, value in before.items())


def test_weights_of_a_file_are_found_by_the_names_of_a_module_that_is_wrapped() -> None:
    policy = make_policy(PPOConfig(), OBS, ACTIONS)
    ones = {name: np.ones_like(value) for name, value in policy.get_weights().items()}
    policy.import_weights({f"_orig_mod.{name}": value for name, value in ones.items()})
    assert (policy.get_weights()["pi.bias"] == 1).all()
    policy.import_weights({f"module.{name}": value * 2 for name, value in ones.items()})
    assert (policy.get_weights()["pi.bias"] == 2).all()
    other = {("actor" if name == "pi.bias" else name): value * 3 for name, value in ones.items()}
    policy.import_weights(other, {"actor": "pi.bias"})
    assert (policy.get_weights()["pi.bias"] == 3).all()
    with pytest.raises(ConfigError, match=r"names: \['critic'\] are not among the weights"):
        policy.import_weights(other, {"critic": "vf.bias"})


BOX = spaces.Box(-1, 1, (2,))
IMAGE = spaces.Dict({"image": spaces.Box(0, 255, (16, 16, 1), np.uint8), "place": OBS})
SMALL = {"fcnet_hiddens": [8, 8], "post_fcnet_hiddens": [8]}
OF_LSTM = 4 * 4 * (8 + 4 + 2)
OF_PLACE = 4 * 8 + 8 + 2 * (8 * 8 + 8)


@pytest.mark.parametrize(
    ("config", "model", "observed", "acted", "acting"),
    [
        (PPOConfig(), SMALL, OBS, ACTIONS, OF_PLACE + 8 * 3 + 3),
        (PPOConfig(), SMALL, OBS, BOX, OF_PLACE + 8 * 4 + 4),
        (PPOConfig(), SMALL | {"free_log_std": True}, OBS, BOX, OF_PLACE + 8 * 2 + 2 + 2),
        (PPOConfig(), SMALL | {"vf_share_layers": True}, OBS, ACTIONS, OF_PLACE + 8 * 3 + 3),
        (PPOConfig(), SMALL | {"conv_filters": [[2, 4, 4]]}, IMAGE, ACTIONS, 2 * 4 * 4 + 2 + 36 * 8 + 8 + 8 * 3 + 3),
        (PPOConfig(), SMALL | {"use_lstm": True, "lstm_cell_size": 4}, OBS, ACTIONS, OF_PLACE + OF_LSTM + 4 * 3 + 3),
        (PPOConfig(), {"custom_model": Tiny}, OBS, ACTIONS, None),
        (DQNConfig(), SMALL, OBS, ACTIONS, None),
        (SACConfig(), SMALL, OBS, BOX, OF_PLACE + 8 * 4 + 4),
    ],
)
def test_the_acting_weights_are_all_that_acting_needs(
    config: AlgorithmConfig, model: dict[str, Any], observed: Any, acted: Any, acting: int | None
) -> None:
    """`acting`: how many there are; None: all of the policy's."""
    one, two = (make_policy(config.copy().training(model=model), observed, acted) for _ in range(2))
    before, weights = two.flat.numpy(), one.acting_weights()
    assert len(weights) == (acting or len(before))
    weights.setflags(write=False)  # as those that came through Ray's object store
    two.load_acting_weights(weights)
    assert np.array_equal(two.acting_weights(), weights)
    assert (two.flat.numpy() == before).sum() >= len(before) - len(weights), "the others stay"
    rows = np.stack([one.observation_layout.flatten(observed.sample()) for _ in range(5)])
    acts = [policy.act(rows, policy.initial_state(5), None)[0].inputs for policy in (one, two)]
    np.testing.assert_array_equal(*acts)


def test_a_copy_acts_with_its_own_weights() -> None:
    """Remembered slices must follow a deep copy, or a target network would act like the network it was copied from."""
    policy = make_policy(PPOConfig(), OBS, ACTIONS)
    twin = copy.deepcopy(policy)
    obs = torch.randn(3, 4)
    with torch.inference_mode():
        before = policy.dist_inputs(obs)
        twin.flat.load(np.zeros_like(twin.flat.numpy()))
        assert (twin.dist_inputs(obs) == 0).all() and (twin.encoder.forward_branch(0, obs) == 0).all()
        assert policy.dist_inputs(obs).equal(before)
    torch.testing.assert_close(policy.dist_inputs(obs), before)
