from __future__ import annotations

import pytest
import torch
from torch import nn

from reef.learn.clipping import clip_gradient
from reef.nn.flat import FlatParameters


def clipped(limit: float | None, by: str) -> FlatParameters:
    flat = FlatParameters([nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))])
    flat.gradient.copy_(torch.tensor([3.0, 4.0, -12.0]))
    clip_gradient(flat, flat.gradient.norm().item(), limit, by)
    return flat


def test_value_bounds_each_entry() -> None:
    assert clipped(3.5, "value").gradient.tolist() == [3, 3.5, -3.5]


def test_norm_bounds_each_tensor() -> None:
    assert clipped(5.0, "norm").gradient.tolist() == pytest.approx([3, 4, -5], rel=1e-4)


def test_global_norm_bounds_all_together() -> None:
    assert clipped(6.5, "global_norm").gradient.tolist() == pytest.approx([1.5, 2, -6], rel=1e-4)


@pytest.mark.parametrize("by", ["value", "norm", "global_norm"])
def test_no_limit_and_a_wide_limit_change_nothing(by: str) -> None:
    assert clipped(None, by).gradient.tolist() == [3, 4, -12]
    assert clipped(100.0, by).gradient.tolist() == [3, 4, -12]
