"""What tests of several algorithms compare."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from reef.learn.learner import Columns, Learner


@pytest.fixture
def compare_with_autograd() -> Callable[..., None]:
    """`compare(learner, minibatch, *stats)`: the gradient that is written out is autograd's, with loss and `stats`."""

    def compare(each: Learner, minibatch: Columns, *reported: str) -> None:
        found = []
        for differentiate in (each.backward, lambda rows: Learner.differentiate(each, rows)):
            each.policy.flat.gradient.fill_(7.0 if differentiate is each.backward else 0.0)
            loss, stats = differentiate(minibatch)
            found.append([each.policy.flat.gradient.clone(), loss, *(stats[name] for name in reported)])
        assert found[0][0].norm() > 0.1
        for by_hand, by_autograd in zip(*found, strict=True):
            assert not by_hand.is_inference()
            torch.testing.assert_close(by_hand, by_autograd, rtol=1e-4, atol=1e-5)

    return compare
