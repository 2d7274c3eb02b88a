"""A perturbed policy acts in NumPy as in torch, with the weights of each column."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from reef.algorithms.es import ESConfig
from reef.nn.make import make_policy
from reef.nn.perturbed import PerturbedPolicy

OBS, ACTIONS = spaces.Box(-1, 1, (4,)), spaces.Discrete(3)


def made(observed: spaces.Space[Any] = OBS, **model: Any) -> PerturbedPolicy:
    settings = {"fcnet_hiddens": [8, 9], **model}
    policy = make_policy(ESConfig().training(noise_size=10_000, model=settings), observed, ACTIONS)
    assert isinstance(policy, PerturbedPolicy)
    return policy


def agrees(policy: PerturbedPolicy, rows: int) -> np.ndarray:
    obs = np.random.default_rng(rows).standard_normal((rows, 4), np.float32)
    before = obs.copy()
    found = policy.act(obs, {})[0].inputs
    with torch.inference_mode():
        expected = policy.dist_inputs(torch.from_numpy(obs)).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(obs, before)
    return found


@pytest.mark.parametrize(
    "model", [{}, {"fcnet_activation": "relu"}, {"fcnet_hiddens": []}, {"fcnet_activation": "linear"}], ids=str
)
def test_every_column_acts_by_its_own_weights(model: dict[str, Any]) -> None:
    policy = made(**model)
    assert policy.fast_actor is not None
    plain = agrees(policy, 5)
    for factor in (0.5, -0.5):  # the weights of one perturbation are not those of the next
        policy.perturb(np.float32(factor) * policy.noise(np.array([0, 7, 7, 100, 3])))
        assert not np.allclose(agrees(policy, 5), plain, atol=1e-2)
    policy.flat.load(policy.flat.numpy() + np.float32(0.1))
    policy.perturb(None)
    assert not np.array_equal(agrees(policy, 5), plain)  # and those that are published later are acted by


@pytest.mark.parametrize(
    ("observed", "model"),
    [(OBS, {"fcnet_activation": "gelu"}), (spaces.Discrete(4), {}), (spaces.Dict({"x": OBS}), {})],
    ids=str,
)
def test_other_networks_act_in_torch(observed: spaces.Space[Any], model: dict[str, Any]) -> None:
    assert made(observed, **model).fast_actor is None
