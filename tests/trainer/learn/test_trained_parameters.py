"""One gradient step of a loss on a flat vector of parameters."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from reef.algorithms.ppo import PPOConfig
from reef.errors import TrainingError
from reef.learn.trained_parameters import TrainedParameters, clip_gradient
from reef.nn.flat import FlatParameters
from reef.nn.gradients import Columns, Loss


def trained(size: int = 2, lr: Any = 0.1, **settings: Any) -> TrainedParameters:
    """Weights of 1 under the loss sum(x weights), whose gradient is x; by plain gradient descent."""
    parameter = nn.Parameter(torch.ones(size))
    flat = FlatParameters([parameter])

    def gradient(minibatch: Columns) -> Loss:
        flat.gradient += minibatch["x"]
        return Loss((minibatch["x"] * flat.vector).sum(), {})

    config = PPOConfig().training(optimizer={"type": "SGD"}, **settings)
    return TrainedParameters(flat, gradient, config, lr=lr)


def x(*values: float) -> dict[str, Tensor]:
    return {"x": torch.tensor(values)}


def test_a_step_descends() -> None:
    one = trained()
    loss = one.descend(x(3.0, 4.0))
    assert one.flat.vector.tolist() == pytest.approx([0.7, 0.6])
    assert loss.stats["total_loss"].item() == pytest.approx(7.0)
    assert loss.stats["grad_gnorm"].item() == pytest.approx(5.0)


def test_a_second_step_begins_with_a_gradient_of_zero() -> None:
    one = trained()
    one.descend(x(1.0, 0.0))
    one.descend(x(1.0, 0.0))
    assert one.flat.vector.tolist() == pytest.approx([0.8, 1.0])


def test_the_reported_norm_is_that_before_clipping() -> None:
    one = trained(grad_clip=1.0)
    loss = one.descend(x(3.0, 4.0))
    assert one.flat.vector.tolist() == pytest.approx([1 - 0.06, 1 - 0.08], abs=1e-5)
    assert loss.stats["grad_gnorm"].item() == pytest.approx(5.0)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_is_no_step(bad: float) -> None:
    one = trained()
    with pytest.raises(TrainingError, match=r"columns \['x'\] hold NaN or infinite.*Lower lr"):
        one.descend(x(bad, 1.0))
    assert one.flat.vector.tolist() == [1.0, 1.0]


def test_what_is_frozen_stays() -> None:
    one = trained()
    one.flat.parameters[0].requires_grad_(False)
    one.descend(x(3.0, 4.0))
    assert one.flat.vector.tolist() == [1.0, 1.0]


def test_the_learning_rate_follows_its_schedule() -> None:
    one = trained(lr=[[0, 0.1], [100, 0.0]])
    one.begin(50)
    one.descend(x(1.0, 1.0))
    assert one.flat.vector.tolist() == pytest.approx([0.95, 0.95])


def test_several_learners_take_the_mean_gradient() -> None:
    one = trained()
    one.reduce = lambda gradient: gradient.mul_(0.5)
    one.descend(x(2.0, 2.0))
    assert one.flat.vector.tolist() == pytest.approx([0.9, 0.9])


def clipped(limit: float | None, by: str) -> FlatParameters:
    flat = FlatParameters([nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))])
    flat.gradient.copy_(torch.tensor([3.0, 4.0, -12.0]))
    clip_gradient(flat, flat.gradient.norm().item(), limit, by)
    return flat


def test_clipping_by_value_bounds_each_entry() -> None:
    assert clipped(3.5, "value").gradient.tolist() == [3, 3.5, -3.5]


def test_clipping_by_norm_bounds_each_tensor() -> None:
    assert clipped(5.0, "norm").gradient.tolist() == pytest.approx([3, 4, -5], rel=1e-4)


def test_clipping_by_global_norm_bounds_all_together() -> None:
    assert clipped(6.5, "global_norm").gradient.tolist() == pytest.approx([1.5, 2, -6], rel=1e-4)


@pytest.mark.parametrize("by", ["value", "norm", "global_norm"])
def test_no_limit_and_a_wide_limit_change_nothing(by: str) -> None:
    assert clipped(None, by).gradient.tolist() == [3, 4, -12]
    assert clipped(100.0, by).gradient.tolist() == [3, 4, -12]
