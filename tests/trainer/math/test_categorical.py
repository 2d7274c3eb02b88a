from __future__ import annotations

import torch
from torch import tensor

from reef.math.categorical import project

ATOMS = tensor([-1.0, 0.0, 1.0, 2.0])


def row(probabilities: list[float], reward: float, discount: float) -> list[float]:
    return project(tensor([probabilities], dtype=torch.float32), tensor([reward]), tensor([discount]), ATOMS)[
        0
    ].tolist()


def test_between_two_atoms_the_nearer_one_gets_more() -> None:
    # 0.75 lies three quarters of the way from 0 to 1
    torch.testing.assert_close(tensor(row([0, 1, 0, 0], 0.75, 1.0)), tensor([0.0, 0.25, 0.75, 0.0]))


def test_on_an_atom_nothing_is_lost() -> None:
    assert row([0, 0, 1, 0], 1.0, 1.0) == [0, 0, 0, 1]


def test_beyond_the_ends_all_falls_on_the_last_atom() -> None:
    assert row([0.5, 0, 0, 0.5], 7.0, 1.0) == [0, 0, 0, 1]
    assert row([0.5, 0, 0, 0.5], -7.0, 1.0) == [1, 0, 0, 0]


def test_a_terminated_step_puts_everything_on_the_reward() -> None:
    torch.testing.assert_close(tensor(row([0.1, 0.2, 0.3, 0.4], 0.5, 0.0)), tensor([0.0, 0.5, 0.5, 0.0]))


def test_every_atom_moves_by_itself() -> None:
    # 0.5 + 0.5 z: -1 -> 0, 0 -> 0.5, 1 -> 1, 2 -> 1.5
    moved = tensor(row([0.1, 0.2, 0.3, 0.4], 0.5, 0.5))
    torch.testing.assert_close(moved, tensor([0.0, 0.1 + 0.1, 0.1 + 0.3 + 0.2, 0.2]))


def test_mass_and_mean_are_kept_inside_the_support() -> None:
    generator = torch.Generator().manual_seed(0)
    probabilities = torch.softmax(torch.randn(32, 51, generator=generator), -1)
    atoms = torch.linspace(-10, 10, 51)
    rewards = torch.rand(32, generator=generator)
    discounts = torch.full((32,), 0.9)
    projected = project(probabilities, rewards, discounts, atoms)
    torch.testing.assert_close(projected.sum(-1), torch.ones(32))
    torch.testing.assert_close(projected @ atoms, rewards + discounts * (probabilities @ atoms))
