"""`policy.model`: calls with dicts, values, Q-values, parts and their tables.

It tests reef.nn.queries.q_model, reef.nn.queries.summary and reef.nn.distributions.queried too.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from reef.algorithms.ddpg import DDPGConfig
from reef.algorithms.dqn import DQNConfig
from reef.algorithms.es import ESConfig
from reef.algorithms.ppo import PPOConfig
from reef.algorithms.sac import SACConfig
from reef.config import AlgorithmConfig
from reef.errors import ConfigError
from reef.nn.make import make_policy

OBS, ACTIONS = spaces.Box(-1, 1, (4,)), spaces.Discrete(2)
ROW = np.array([[0.1, 0.2, 0.3, 0.4]])


def policy_of(kind: type[AlgorithmConfig], action_space: Any = ACTIONS, obs: Any = OBS, **settings: Any) -> Any:
    return make_policy(kind.from_dict(settings), obs, action_space)


class Tiny(nn.Module):
    def __init__(self, observation_space: Any, action_space: Any, num_outputs: int) -> None:
        super().__init__()
        self.head = nn.Linear(observation_space.shape[0], num_outputs + 1)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        out = self.head(obs)
        return out[:, :-1], out[:, -1]


@pytest.mark.parametrize("model", [{}, {"vf_share_layers": True}, {"custom_model": Tiny}])
@pytest.mark.parametrize("obs", [ROW, ROW.tolist(), torch.tensor(ROW)])
def test_a_call_gives_logits_and_then_values(model: dict[str, Any], obs: Any) -> None:
    policy = policy_of(PPOConfig, model=model)
    logits, state = policy.model({"obs": obs})
    assert state == []
    tensor = torch.tensor(ROW, dtype=torch.float32)
    torch.testing.assert_close(logits, policy.dist_inputs(tensor))
    torch.testing.assert_close(policy.model.value_function(), policy.values(tensor))
    torch.testing.assert_close(policy.model.from_batch({"obs": obs, "actions": [1]})[0], logits)


def test_gradients_flow_to_the_parameters_of_the_policy() -> None:
    policy = policy_of(PPOConfig)
    policy.model({"obs": ROW})[0].sum().backward()
    assert policy.pi.bias.grad.abs().sum() > 0
    assert policy.model.pi is policy.pi


def test_the_table_counts_each_layer() -> None:
    policy = policy_of(PPOConfig)
    text = str(policy.model)
    assert text.splitlines()[0] == "ActorCritic"
    rows = {line.split()[0]: line.split()[-1] for line in text.splitlines()[1:]}
    assert rows["obs"] == "0"
    assert rows["encoder.mlp.layers.0"] == "2,560"
    assert rows["encoder.mlp.layers.1"] == "131,584"
    assert (rows["pi"], rows["vf"]) == ("514", "257")
    (pi,) = [line for line in text.splitlines() if line.startswith("pi (Linear) ")]
    assert "  [2, 256], [2]  " in pi
    assert text.splitlines()[-3:] == ["Total params: 134,915", "Trainable params: 134,915", "Non-trainable params: 0"]


def test_summary_prints_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    policy = policy_of(PPOConfig, model={"custom_model": Tiny})
    policy.model.module.head.bias.requires_grad_(False)
    assert policy.model.base_model.summary() is None
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "Total params: 15", "Trainable params: 12", "Non-trainable params: 3"
    ]  # fmt: skip
    assert [tuple(each.shape) for each in policy.model.trainable_variables()] == [(3, 4)]


def test_parameters_outside_of_layers_have_rows() -> None:
    policy = policy_of(PPOConfig, spaces.Box(-1, 1, (2,)), model={"free_log_std": True})
    assert "log_std (Parameter)" in str(policy.model)


def test_variables_are_the_parameters_by_their_own_names() -> None:
    policy = policy_of(PPOConfig)
    assert (
        policy.model.variables(as_dict=True).keys() == policy.get_weights().keys() == policy.model.state_dict().keys()
    )
    assert all(one is other for one, other in zip(policy.model.variables(), policy.parameters(), strict=True))
    assert "model" not in dict(policy.named_modules())


def test_a_copy_of_a_policy_that_was_asked_has_a_model_of_its_own() -> None:
    policy = policy_of(PPOConfig)
    policy.model({"obs": ROW})
    copied = copy.deepcopy(policy)
    assert copied.model.policy is copied
    with pytest.raises(ConfigError, match="is of the last call"):
        copied.model.value_function()


@pytest.mark.parametrize("model", [{"use_lstm": True, "lstm_use_prev_action": True}, {"use_attention": True}])
def test_a_memory_goes_from_call_to_call(model: dict[str, Any]) -> None:
    policy = policy_of(PPOConfig, model=model)
    first, state = policy.model({"obs": ROW})
    second, _ = policy.model({"obs": ROW}, state)
    assert [tuple(each.shape) for each in state] == [each.shape for each in policy.initial_state(1).values()]
    assert (first - second).abs().max() > 0
    assert policy.model.value_function().shape == (1,)
    with pytest.raises(ConfigError, match=r"state has arrays of the shapes \[\(3,\)\], expected"):
        policy.model({"obs": ROW}, [np.zeros((1, 3))])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (ROW, r'called with a dict {"obs": observations}, not with ndarray'),
        ({"observations": ROW}, r"not with the keys \['observations'\]"),
        ({"obs": ROW[0]}, r"have shape \(4,\), expected \('N', 4\): a batch"),
        ({"obs": np.zeros((2, 3))}, r"have shape \(2, 3\), expected \('N', 4\)"),
        ({"obs": torch.zeros(2, 3)}, r"have shape \(2, 3\), expected \('N', 4\)"),
    ],
)
def test_what_is_no_batch_of_observations_is_refused(given: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        policy_of(PPOConfig).model(given)


@pytest.mark.parametrize(("kind", "action_space"), [(SACConfig, ACTIONS), (DDPGConfig, OBS), (ESConfig, ACTIONS)])
def test_a_network_without_state_values_says_so(kind: type[AlgorithmConfig], action_space: Any) -> None:
    policy = policy_of(kind, action_space)
    logits, _ = policy.model({"obs": ROW})
    assert logits.shape == (1, policy.dist_class.num_inputs)
    with pytest.raises(ConfigError, match="estimates no values of states"):
        policy.model.value_function()


@pytest.mark.parametrize("settings", [{}, {"num_atoms": 5}, {"noisy": True}, {"hiddens": []}])
def test_q_values_are_those_that_the_policy_acts_by(settings: dict[str, Any]) -> None:
    policy = policy_of(DQNConfig, **settings)
    model, atoms = policy.model, settings.get("num_atoms", 1)
    model_out = model({"obs": ROW})
    assert model_out[0].shape == (1, 256)
    values, logits = model.get_q_value_distributions(model_out)
    torch.testing.assert_close(values, policy.q_values(torch.tensor(ROW, dtype=torch.float32)))
    assert logits.shape == (1, 2, atoms)
    torch.testing.assert_close(model.get_q_value_distributions(model_out[0])[0], values)
    assert model.get_state_value(model_out).shape == (1, atoms)
    torch.testing.assert_close(model.value_function(), values.amax(-1))


def test_the_parts_of_a_q_network_are_counted() -> None:
    model = policy_of(DQNConfig).model
    counts = {
        name: sum(each.numel() for each in getattr(model, name).variables())
        for name in ("base_model", "q_value_head", "state_value_head")
    }
    assert counts == {"base_model": 67_072, "q_value_head": 66_306, "state_value_head": 66_049}
    assert "features [N, 256]" in str(model.q_value_head)
    assert sum(counts.values()) == sum(each.numel() for each in model.variables())


def test_a_q_network_with_a_memory_has_features_too() -> None:
    model = policy_of(DQNConfig, model={"use_lstm": True, "lstm_cell_size": 8}).model
    features, state = model({"obs": ROW})
    assert features.shape == (1, 8)
    assert (model({"obs": ROW}, state)[0] - features).abs().max() > 0
    assert "memory.cell" in str(model.base_model)


def test_parts_that_a_q_network_has_not_are_named() -> None:
    plain = policy_of(DQNConfig, dueling=False).model
    with pytest.raises(ConfigError, match="dueling=False has no state values"):
        plain.get_state_value(plain({"obs": ROW}))
    custom = policy_of(DQNConfig, model={"custom_model": Tiny}).model
    with pytest.raises(ConfigError, match="a custom model is the whole network, with no head"):
        custom.q_value_head  # noqa: B018
    assert custom.get_q_value_distributions(custom({"obs": ROW}))[0].shape == (1, 2)
    assert "head (Linear)" in str(custom.base_model)
    for wrong in (torch.zeros(1, 3), None):
        with pytest.raises(ConfigError, match=r"model_out has .* expected what the model returns .* \('N', 256\)"):
            plain.get_q_value_distributions(wrong)


def test_a_distribution_takes_lists_arrays_and_tensors() -> None:
    policy = policy_of(PPOConfig)
    logits, _ = policy.model({"obs": np.repeat(ROW, 3, 0)})
    dist = policy.dist_class(logits, policy.model)
    expected = torch.log_softmax(logits, 1)[torch.arange(3), torch.tensor([1, 0, 1])]
    for actions in ([1, 0, 1], np.array([1, 0, 1]), torch.tensor([1, 0, 1])):
        torch.testing.assert_close(dist.logp(actions), expected)
    assert dist.deterministic_sample().tolist() == logits.argmax(1).tolist()
    torch.testing.assert_close(dist.kl(dist), torch.zeros(3))
    assert dist.entropy().shape == (3,)


def test_samples_are_tensors_that_the_seed_decides() -> None:
    policy = policy_of(PPOConfig, spaces.Box(-1, 1, (2, 3)))
    dist = policy.dist_class(policy.model({"obs": ROW})[0], policy.model)
    torch.manual_seed(0)
    one = dist.sample()
    assert (one.shape, dist.logp(one).shape) == ((1, 2, 3), (1,))
    assert (dist.sample() != one).any()
    torch.manual_seed(0)
    assert (dist.sample() == one).all()


def test_a_distribution_of_another_shape_is_refused() -> None:
    policy = policy_of(PPOConfig)
    with pytest.raises(ConfigError, match=r"inputs have shape \(1, 3\), expected \('N', 2\)"):
        policy.dist_class(torch.zeros(1, 3), policy.model)
    with pytest.raises(ConfigError, match=r"the second argument is policy\.model"):
        policy.dist_class(torch.zeros(1, 2), "model")
    dist = policy.dist_class(torch.zeros(1, 2), policy.model)
    with pytest.raises(ConfigError, match=r"actions have shape \(2,\), expected \(1,\): one for each row"):
        dist.logp([0, 1])


def test_what_a_distribution_has_not_is_named() -> None:
    sac, ddpg = (policy_of(kind, OBS) for kind in (SACConfig, DDPGConfig))
    squashed, single = (each.dist_class(each.model({"obs": ROW})[0], each.model) for each in (sac, ddpg))
    assert squashed.logp(squashed.sample()).shape == (1,)
    with pytest.raises(ConfigError, match="entropy of a squashed Gaussian has no closed form"):
        squashed.entropy()
    with pytest.raises(ConfigError, match="a deterministic action has no likelihood"):
        single.logp(single.sample())
    with pytest.raises(ConfigError, match="of another policy"):
        squashed.kl(single)
