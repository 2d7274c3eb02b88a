from __future__ import annotations

import pytest
import torch

from reef.math.surrogate import KLPenalty, clipped_error, clipped_surrogate


def test_the_ratio_counts_up_to_the_clip_where_more_would_be_gained() -> None:
    ratios = torch.tensor([2.0, 2.0, 0.5, 0.5, 1.1])
    advantages = torch.tensor([1.0, -1.0, 1.0, -1.0, 3.0])
    logp = ratios.log().requires_grad_()
    surrogate = clipped_surrogate(logp, torch.zeros(5), advantages, clip=0.2)
    surrogate.sum().backward()
    torch.testing.assert_close(surrogate, torch.tensor([1.2, -2.0, 0.5, -0.8, 3.3]))
    torch.testing.assert_close(logp.grad, torch.tensor([0.0, -2.0, 0.5, 0.0, 3.3]))


@pytest.mark.parametrize("limit", [None, 4.0])
def test_errors_beyond_the_limit_have_no_gradient(limit: float | None) -> None:
    values = torch.tensor([1.0, -1.0, 3.0], requires_grad=True)
    error = clipped_error(values, torch.zeros(3), limit)
    error.sum().backward()
    assert error.tolist() == [1.0, 1.0, 9.0 if limit is None else 4.0]
    assert values.grad is not None and values.grad.tolist() == [2.0, -2.0, 6.0 if limit is None else 0.0]


@pytest.mark.parametrize(("kl", "weight"), [(0.021, 3.0), (0.019, 2.0), (0.006, 2.0), (0.004, 1.0)])
def test_the_weight_steers_the_divergence_to_the_target(kl: float, weight: float) -> None:
    penalty = KLPenalty(2.0, 0.01, torch.device("cpu"))
    assert penalty.adapt({"kl": kl, "entropy": 1.0}) == {"kl": kl, "entropy": 1.0, "cur_kl_coeff": weight}
    assert penalty.coeff.item() == penalty.value == weight


def test_an_update_without_a_divergence_leaves_the_weight() -> None:
    penalty = KLPenalty(2.0, 0.01, torch.device("cpu"))
    assert penalty.adapt({}) == {"cur_kl_coeff": 2.0}
