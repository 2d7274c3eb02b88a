"""A target network follows what is trained."""

from __future__ import annotations

import pytest
import torch
from gymnasium import spaces

from reef.algorithms.ppo import PPOConfig
from reef.nn.make import make_policy
from reef.nn.policies import Policy
from reef.nn.targets import Target


def policy(seed: int = 0) -> Policy:
    torch.manual_seed(seed)
    return make_policy(PPOConfig(), spaces.Box(-1.0, 1.0, (3,)), spaces.Discrete(2))


@pytest.mark.parametrize(("tau", "expected"), [(1.0, 1.0), (0.25, 0.25)])
def test_it_moves_by_tau(tau: float, expected: float) -> None:
    source = policy()
    target = Target(source, tau=tau, period=1)
    before = source.flat.vector.clone()
    source.flat.vector += 1.0
    target.follow(1)
    torch.testing.assert_close(target.network.flat.vector, before + expected)
    torch.testing.assert_close(source.flat.vector, before + 1.0)


def test_it_moves_once_a_period() -> None:
    source = policy()
    target = Target(source, tau=1.0, period=10)
    moved = []
    for step in (4, 9, 12, 20, 22, 40):
        source.flat.vector += 1.0
        target.follow(step)
        if target.network.flat.vector.equal(source.flat.vector):
            moved.append(step)
    assert moved == [12, 22, 40]


def test_it_becomes_equal_at_once() -> None:
    source = policy()
    target = Target(source, tau=0.1, period=1)
    source.flat.vector += 1.0
    target.copy_source()
    assert target.network.flat.vector.equal(source.flat.vector)


def test_it_goes_on_from_its_state() -> None:
    target, other = Target(policy(), tau=1.0, period=10), Target(policy(seed=1), tau=1.0, period=10)
    target.follow(12)
    other.set_state(target.state())
    assert other.network.flat.vector.equal(target.network.flat.vector)
    before = other.network.flat.vector.clone()
    other.follow(21)  # 9 steps after it moved
    assert other.network.flat.vector.equal(before)
