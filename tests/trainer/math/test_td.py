from __future__ import annotations

import torch
from torch import tensor

from reef.math.td import huber, quantile_huber, td_targets


def test_targets_by_hand() -> None:
    targets = td_targets(
        rewards=tensor([1.0, 2.0]),
        discounts=tensor([0.5, 0.25]),
        terminated=tensor([False, True]),
        next_values=tensor([10.0, 1e6]),
    )
    assert targets.tolist() == [6.0, 2.0]


def test_huber_by_hand() -> None:
    assert huber(tensor([0.5, 1.0]), tensor([0.0, 3.0])).tolist() == [0.125, 1.5]
    assert huber(tensor([-3.0]), tensor([0.0]), delta=2.0).tolist() == [4.0]


def test_the_slope_of_huber_is_bounded() -> None:
    values = tensor([-10.0, 0.3, 10.0], requires_grad=True)
    huber(values, torch.zeros(3)).sum().backward()
    torch.testing.assert_close(values.grad, tensor([-1.0, 0.3, 1.0]))


def test_quantile_huber_is_the_loop_of_the_paper() -> None:
    generator = torch.Generator().manual_seed(0)
    critics, rows, count, samples = 2, 3, 4, 5
    quantiles = 2.0 * torch.randn(critics, rows, count, generator=generator)
    targets = 2.0 * torch.randn(rows, samples, generator=generator)
    found = quantile_huber(quantiles, targets)
    assert found.shape == (critics, rows)
    for critic in range(critics):
        for row in range(rows):
            total = 0.0
            for i in range(count):
                for target in targets[row].tolist():
                    error = target - float(quantiles[critic, row, i])
                    loss = 0.5 * error**2 if abs(error) <= 1.0 else abs(error) - 0.5
                    total += abs((i + 0.5) / count - (error < 0)) * loss
            torch.testing.assert_close(found[critic, row], tensor(total / (count * samples)))


def test_descending_quantile_huber_finds_the_quantiles() -> None:
    targets = torch.linspace(0.0, 100.0, 101).unsqueeze(0)
    quantiles = torch.full((1, 2), 50.0, requires_grad=True)
    optimizer = torch.optim.SGD([quantiles], lr=20.0)
    for _ in range(400):
        optimizer.zero_grad()
        quantile_huber(quantiles, targets).sum().backward()
        optimizer.step()
    torch.testing.assert_close(quantiles.detach(), tensor([[25.0, 75.0]]), atol=1.0, rtol=0.0)
