"""Masks: what they exclude, what is left of the observation, and what does not fit."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from reef.algorithms.ddpg import DDPGConfig
from reef.algorithms.dqn import DQNConfig
from reef.algorithms.ppo import PPOConfig
from reef.algorithms.sac import SACConfig
from reef.config import AlgorithmConfig
from reef.errors import ConfigError, EnvironmentError
from reef.nn.distributions import DistributionMaker
from reef.nn.distributions.discrete import EXCLUDED
from reef.nn.layers.action_mask import ActionMask, action_mask, without_mask
from reef.nn.make import make_policy
from reef.nn.policies import Policy
from reef.spaces import Layout

VECTOR = spaces.Box(-1.0, 1.0, (2,))
THREE, SEVERAL = spaces.Discrete(3), spaces.MultiDiscrete([2, 3])


def observed(size: int = 3, **more: spaces.Space[Any]) -> spaces.Dict:
    return spaces.Dict({"action_mask": spaces.MultiBinary(size), "z": VECTOR, **more})


def mask_of(space: spaces.Space[Any], actions: spaces.Space[Any] = THREE) -> ActionMask:
    found = action_mask("action_mask", Layout.of(space), DistributionMaker(Layout.of(actions)))
    assert found is not None
    return found


def row(*mask: int, rest: tuple[float, ...] = (0.5, -0.5)) -> Tensor:
    return torch.tensor([[*map(float, mask), *rest]])


def test_excluded_logits_have_no_probability_and_no_gradient() -> None:
    logits = torch.zeros(1, 3, requires_grad=True)
    found = mask_of(observed())(row(1, 0, 1), logits)
    assert found.tolist() == [[0.0, pytest.approx(EXCLUDED), 0.0]]
    assert found.softmax(-1).tolist() == [[0.5, 0.0, 0.5]]
    found.log_softmax(-1)[0, 0].backward()
    assert logits.grad is not None and logits.grad[0, 1] == 0.0 and logits.grad[0, 0] > 0.0


def test_a_mask_of_several_elements_has_a_number_for_each_choice() -> None:
    found = mask_of(observed(5), SEVERAL)(row(0, 1, 0, 0, 0), torch.zeros(1, 5))
    assert (found > EXCLUDED).tolist() == [[False, True, True, True, True]], "of the second element nothing: all"


def test_a_mask_that_excludes_all_allows_all_in_networks_and_is_an_error_where_somebody_acted() -> None:
    mask, nothing = mask_of(observed()), row(0, 0, 0)
    assert mask(nothing, torch.ones(1, 3)).tolist() == [[1.0, 1.0, 1.0]]
    assert mask.count(torch.cat([nothing, row(0, 1, 1)])).tolist() == [3, 2]
    obs, valid = np.stack([row(1, 0, 0).numpy(), nothing.numpy()]), np.ones((2, 1), np.bool_)
    with pytest.raises(EnvironmentError, match="'Game': 'action_mask' excludes every action in step 1 .*environment 0"):
        mask.check(obs, valid, "Game")
    valid[1] = False
    mask.check(obs, valid, "Game")


@pytest.mark.parametrize(
    ("space", "expected", "value"),
    [
        (observed(), VECTOR, [0.5, -0.5]),
        (observed(a=spaces.Discrete(4)), spaces.Dict({"a": spaces.Discrete(4), "z": VECTOR}), [3.0, 0.5, -0.5]),
        (spaces.Dict({"action_mask": spaces.MultiBinary(3), "z": spaces.Discrete(9)}), spaces.Discrete(9), 4),
    ],
)
def test_a_custom_model_gets_the_rest(space: spaces.Dict, expected: spaces.Space[Any], value: Any) -> None:
    assert without_mask("action_mask", space) == expected
    flat = Layout.of(expected)
    rest = torch.tensor(value, dtype=torch.float32).reshape(-1).tolist()
    layout = Layout.of(space)
    obs = torch.zeros(1, layout.size)
    own = mask_of(space).place
    obs[0, [i for i in range(layout.size) if not own.start <= i < own.stop]] = torch.tensor(rest)
    found = mask_of(space).without(obs)
    assert found.tolist() == [value] and found.shape[1:] == flat.shape
    assert found.numpy().dtype == flat.dtype


class Counted(nn.Module):
    """A custom model that says what it is made of."""

    def __init__(self, observation_space: Any, action_space: Any, num_outputs: int) -> None:
        super().__init__()
        assert observation_space == VECTOR
        self.layer = nn.Linear(2, num_outputs + 1)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        out = self.layer(obs)
        return out[..., :-1], out[..., -1]


class Remembering(Counted):
    state_shapes: ClassVar = {"memory": (1,)}

    def forward(self, obs: Tensor, begins: Tensor, state: dict[str, Tensor]) -> Any:
        return *super().forward(obs), state


POLICIES: dict[str, AlgorithmConfig] = {
    "actor-critic": PPOConfig(),
    "shared": PPOConfig().training(model={"vf_share_layers": True}),
    "lstm": PPOConfig().training(model={"use_lstm": True, "lstm_cell_size": 4}),
    "custom": PPOConfig().training(model={"custom_model": Counted}),
    "custom memory": PPOConfig().training(model={"custom_model": Remembering}),
    "q": DQNConfig(),
    "atoms": DQNConfig().training(num_atoms=3, noisy=True),
    "q custom": DQNConfig().training(model={"custom_model": Counted}),
    "q lstm": DQNConfig().training(model={"use_lstm": True, "lstm_cell_size": 4}),
    "sac": SACConfig(),
}


def made(config: AlgorithmConfig, space: spaces.Space[Any], actions: spaces.Space[Any] = THREE) -> Policy:
    config = config.copy()
    if not config.model.custom_model:
        config.training(model={"fcnet_hiddens": [8]})
    return make_policy(config, space, actions, seed=0)


@pytest.mark.parametrize("name", POLICIES)
def test_every_network_obeys_the_mask_and_does_not_read_it(name: str) -> None:
    policy = made(POLICIES[name], observed())
    plain = made(POLICIES[name], VECTOR)
    assert [p.shape for p in policy.parameters()] == [p.shape for p in plain.parameters()], "no inputs for the mask"
    assert policy.fast_actor is None
    values = np.random.default_rng(0).uniform(-1, 1, (64, 2)).astype(np.float32)
    rows = np.concatenate([np.tile([[1, 0, 1]], (64, 1)), values], 1).astype(np.float32)
    generator = np.random.default_rng(0)
    distribution, _ = policy.act(rows, policy.initial_state(64), generator)
    assert set(distribution.sample(generator).tolist()) <= {0, 2}
    assert set(distribution.deterministic().tolist()) <= {0, 2}
    expected, _ = plain.act(values, plain.initial_state(64))
    found, _ = policy.act(rows, policy.initial_state(64))
    np.testing.assert_allclose(found.inputs[:, [0, 2]], expected.inputs[:, [0, 2]], rtol=1e-4, atol=1e-5)
    state = {part: torch.from_numpy(values) for part, values in policy.initial_state(64).items()}
    outputs, best, _ = policy.outputs(torch.from_numpy(rows), state)
    if isinstance(POLICIES[name], DQNConfig):
        assert best is not None
        np.testing.assert_allclose(best.detach(), found.inputs.max(-1), rtol=1e-4, atol=1e-5)
    else:
        assert (outputs[:, 1] == EXCLUDED).all()


@pytest.mark.parametrize(
    ("config", "space", "actions", "texts"),
    [
        (PPOConfig(), observed(), VECTOR, ("actions Box", "masks are for Discrete and MultiDiscrete", "null")),
        (DDPGConfig(), observed(), VECTOR, ("are not all indices",)),
        (PPOConfig(), observed(4), THREE, ("MultiBinary(4)", "need 3 numbers, one for each, such as MultiBinary(3)")),
        (PPOConfig(), observed(3), SEVERAL, ("need 5 numbers",)),
        (PPOConfig(), spaces.Dict({"action_mask": spaces.MultiBinary(3)}), THREE, ("nothing else",)),
        (PPOConfig().environment(action_mask_key="mask"), VECTOR, THREE, ("no such key: it must be a Dict",)),
        (
            PPOConfig().environment(action_mask_key="action_msk"), observed(), THREE,
            ("action_mask_key='action_msk'", "Did you mean 'action_mask'?"),
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(config: Any, space: Any, actions: Any, texts: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as refusal:
        made(config, space, actions)
    for text in texts:
        assert text in str(refusal.value)


def test_null_makes_it_an_observation_like_any_other() -> None:
    policy = made(PPOConfig().environment(action_mask_key=None), observed(), VECTOR)
    assert policy.action_mask is None
    assert next(policy.parameters()).shape[-2] == 5 or 5 in next(policy.parameters()).shape
    assert made(PPOConfig(), spaces.Dict({"mask": spaces.MultiBinary(3), "z": VECTOR})).action_mask is None


def test_which_actions_it_excludes() -> None:
    one, several = mask_of(observed()), mask_of(observed(5), SEVERAL)
    obs = np.array([[1, 0, 1, 0, 0]] * 2, np.float32)
    assert one.excludes(obs, np.array([1, 2])).tolist() == [True, False]
    # of the last row's first element nothing is allowed, so all is
    obs = np.array([[[1, 0, 0, 1, 1, 0, 0]] * 3, [[0, 0, 0, 1, 1, 0, 0]] * 3], np.float32)
    chosen = np.array([[[0, 0], [0, 1], [1, 1]], [[0, 0], [1, 2], [1, 1]]])
    assert several.excludes(obs, chosen).tolist() == [[True, False, True], [True, False, False]]
