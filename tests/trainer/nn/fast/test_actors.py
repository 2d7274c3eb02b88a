"""Acting in NumPy is acting in torch."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from reef.algorithms.bc import BCConfig
from reef.algorithms.dqn import DQNConfig
from reef.algorithms.ppo import PPOConfig
from reef.config import AlgorithmConfig
from reef.nn.fast import fast_actor
from reef.nn.fast.actor_critic import ArrayActor
from reef.nn.fast.recurrent import ArrayRecurrentActorCritic
from reef.nn.make import make_policy
from reef.nn.policies import ActorCritic, ActorPolicy, Policy

OBS, ACTIONS = spaces.Box(-1, 1, (4,)), spaces.Discrete(3)


def made(config: AlgorithmConfig, action_space: spaces.Space[Any]) -> ActorPolicy:
    policy = make_policy(config, OBS, action_space)
    assert isinstance(policy, ActorPolicy)
    return policy


class Halved(ActorCritic):
    def dist_inputs(self, obs: Tensor) -> Tensor:
        return super().dist_inputs(obs) / 2


class OwnActor(ActorCritic):
    """A layer may have any name."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.actor = nn.Linear(4, 3)

    def dist_inputs(self, obs: Tensor) -> Tensor:
        return self.actor(obs)


def by_torch(policy: Policy, obs: np.ndarray) -> np.ndarray:
    with torch.inference_mode():
        return policy.dist_inputs(torch.from_numpy(obs)).numpy()


@pytest.mark.parametrize(
    ("model", "arrays"),
    [
        ({"fcnet_activation": "tanh"}, True),
        ({"fcnet_activation": "relu"}, True),
        ({"fcnet_activation": "linear"}, True),
        ({"vf_share_layers": True}, True),
        ({"free_log_std": True}, True),
        ({"fcnet_hiddens": []}, True),
        ({"fcnet_activation": "gelu"}, False),
        ({"fcnet_hiddens": [600, 600]}, True),
    ],
    ids=str,
)
@pytest.mark.parametrize("config", [PPOConfig, BCConfig])
def test_acting_in_numpy_is_acting_in_torch(config: type[AlgorithmConfig], model: dict[str, Any], arrays: bool) -> None:
    given = {"fcnet_hiddens": [8, 9], **model}
    policy = made(config().training(model=given), spaces.Box(-1, 1, (2,)))
    assert (policy.fast_actor is not None) == arrays
    for size in (1.0, 5.0):  # weights that were published later are acted by
        policy.flat.load(size * np.random.default_rng(0).standard_normal(policy.flat.vector.shape, np.float32))
        for rows in (1, 5):
            obs = np.random.default_rng(rows).standard_normal((rows, 4), np.float32)
            before = obs.copy()
            np.testing.assert_allclose(policy.act(obs, {})[0].inputs, by_torch(policy, obs), rtol=1e-4, atol=1e-4)
            np.testing.assert_array_equal(obs, before)


@pytest.mark.parametrize(
    ("settings", "arrays"),
    [
        ({}, True),
        ({"dueling": False, "hiddens": []}, True),
        ({"hiddens": [7, 5], "model": {"fcnet_activation": "relu", "fcnet_hiddens": [8]}}, True),
        ({"num_atoms": 5}, True),
        ({"num_atoms": 5, "dueling": False}, True),
        ({"model": {"fcnet_hiddens": []}}, True),
        ({"noisy": True}, False),
        ({"model": {"fcnet_activation": "silu"}}, False),
    ],
    ids=str,
)
def test_q_values_in_numpy_are_those_of_torch(settings: dict[str, Any], arrays: bool) -> None:
    config = DQNConfig().training(**({"model": {"fcnet_hiddens": [8, 9]}} | settings))
    policy = make_policy(config, OBS, ACTIONS)
    assert (policy.fast_actor is not None) == arrays
    for rows in (1, 5):
        obs = np.random.default_rng(rows).standard_normal((rows, 4), np.float32)
        np.testing.assert_allclose(policy.act(obs, {})[0].inputs, by_torch(policy, obs), rtol=1e-4, atol=1e-5)


def test_many_rows_are_left_to_torch() -> None:
    policy = made(PPOConfig().training(model={"fcnet_hiddens": [64, 64]}), ACTIONS)
    actor = policy.fast_actor
    assert isinstance(actor, ArrayActor)
    assert (actor.mlp.block, actor.mlp.few_rows) == (64, 128)
    obs = np.random.default_rng(0).standard_normal((129, 4), np.float32)
    for rows in (50, 128, 129):
        np.testing.assert_allclose(
            policy.act(obs[:rows], {})[0].inputs, by_torch(policy, obs[:rows]), rtol=1e-4, atol=1e-6
        )
    actor.mlp.arrays.clear()  # would be seen
    np.testing.assert_array_equal(policy.act(obs, {})[0].inputs, by_torch(policy, obs))


def test_infinite_observations_are_acted_on_in_silence(recwarn: pytest.WarningsRecorder) -> None:
    """Who checks the fragment says where they came from; a word of NumPy's before would be about something else."""
    policy = made(PPOConfig().training(model={"fcnet_hiddens": [8]}), ACTIONS)
    assert policy.fast_actor is not None
    policy.act(np.full((2, 4), np.inf, np.float32), {})
    assert [str(warning.message) for warning in recwarn] == []


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda policy: pickle.loads(pickle.dumps(policy))])
def test_a_copy_acts_by_its_own_weights(copied: Callable[[ActorPolicy], ActorPolicy]) -> None:
    policy = made(PPOConfig().training(model={"fcnet_hiddens": [8]}), ACTIONS)
    obs = np.ones((2, 4), np.float32)
    before = policy.act(obs, {})[0].inputs
    other = copied(policy)
    other.flat.load(np.ones(other.flat.vector.shape, np.float32))
    np.testing.assert_allclose(other.act(obs, {})[0].inputs, by_torch(other, obs), rtol=1e-5)
    assert not np.allclose(other.act(obs, {})[0].inputs, before)
    np.testing.assert_array_equal(policy.act(obs, {})[0].inputs, before)


@pytest.mark.parametrize(
    ("make", "space"),
    [
        (Halved, OBS),
        (OwnActor, OBS),
        (ActorCritic, spaces.Discrete(5)),
        (ActorCritic, spaces.Box(0, 255, (10, 10, 3), np.uint8)),
    ],
)
def test_what_numpy_does_not_know_is_left_to_torch(make: type[ActorCritic], space: spaces.Space[Any]) -> None:
    policy = make(PPOConfig(), space, ACTIONS)
    policy.bind_parameters()
    assert fast_actor(policy) is None
    obs = np.stack([np.asarray(space.sample(), policy.observation_layout.dtype) for _ in range(3)])
    np.testing.assert_array_equal(policy.act(obs, {})[0].inputs, by_torch(policy, obs))


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize(("cell_size", "in_numpy"), [(7, True), (256, False)])
def test_a_step_of_a_memory_in_numpy_is_one_in_torch(cell: str, cell_size: int, in_numpy: bool) -> None:
    model = {"fcnet_hiddens": [8], "use_lstm": True, "recurrent_cell": cell, "lstm_cell_size": cell_size}
    policy = make_policy(PPOConfig().training(model=model), OBS, ACTIONS)
    assert isinstance(policy.fast_actor, ArrayRecurrentActorCritic)
    # of a wide memory, NumPy would compute in several threads, which wait for each other on a busy machine
    assert (policy.fast_actor.of_hidden.few_rows >= 5) == in_numpy
    torch_alone = copy.deepcopy(policy)
    assert torch_alone.fast_actor is None
    for size in (1.0, 5.0):  # weights that were published later are acted by
        weights = np.random.default_rng(0).standard_normal(policy.flat.vector.shape, np.float32)
        weights *= size * (7 / cell_size) ** 0.5
        states = [policy.initial_state(5)] * 2
        for each in (policy, torch_alone):
            each.flat.load(weights)
        for step in range(4):
            obs = np.random.default_rng(step).standard_normal((5, 4), np.float32)
            found = [each.act(obs, state) for each, state in zip((policy, torch_alone), states, strict=True)]
            np.testing.assert_allclose(found[0][0].inputs, found[1][0].inputs, rtol=1e-4, atol=1e-4)
            states = [state for _, state in found]
            assert states[0].keys() == states[1].keys()
            for name, values in states[0].items():
                assert values.dtype == np.float32
                np.testing.assert_allclose(values, states[1][name], rtol=1e-4, atol=1e-4)


def test_a_memory_that_reads_actions_acts_in_torch() -> None:
    model = {"fcnet_hiddens": [8], "use_lstm": True, "lstm_use_prev_action": True}
    assert make_policy(PPOConfig().training(model=model), OBS, ACTIONS).fast_actor is None
    assert make_policy(PPOConfig().training(model={"use_attention": True}), OBS, ACTIONS).fast_actor is None
