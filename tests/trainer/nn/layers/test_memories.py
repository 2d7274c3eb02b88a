"""LSTM, GRU and GTrXL over sequences: as step by step, and nothing passes from one episode to the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from reef.nn.layers.attention import Gate, GatedTransformer
from reef.nn.layers.recurrent import RecurrentCell

SIZES: dict[str, int] = {"blocks": 2, "size": 6, "heads": 2, "head_size": 3, "mlp": 5}
MEMORIES: dict[str, Callable[[], Any]] = {
    "LSTM": lambda: RecurrentCell("lstm", 4, 6),
    "GRU": lambda: RecurrentCell("gru", 4, 6),
    "GTrXL": lambda: GatedTransformer(4, acting_reach=3, training_reach=3, bias=2.0, **SIZES),
}


def memory(name: str) -> Any:
    torch.manual_seed(0)
    return MEMORIES[name]()


def nothing(module: Any, count: int) -> dict[str, Tensor]:
    return {name: torch.zeros(count, *shape) for name, shape in module.state_shapes.items()}


def noise(count: int = 2, steps: int = 9) -> Tensor:
    return torch.randn(count, steps, 4, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", MEMORIES)
def test_a_sequence_is_what_its_steps_are_one_by_one(name: str) -> None:
    module, x = memory(name), noise()
    whole, after = module(x, None, nothing(module, 2), acting=True)
    state, steps = nothing(module, 2), []
    for t in range(x.shape[1]):
        output, state = module(x[:, t : t + 1], None, state, acting=True)
        steps.append(output)
    torch.testing.assert_close(torch.cat(steps, 1), whole)
    assert whole.shape == (2, 9, module.out_features)
    for key, value in state.items():
        torch.testing.assert_close(after[key], value)


@pytest.mark.parametrize("name", MEMORIES)
def test_an_episode_inside_a_sequence_begins_with_nothing(name: str) -> None:
    module, x = memory(name), noise()
    begins = torch.zeros(2, 9, dtype=torch.bool)
    begins[0, 4] = begins[1, [0, 7]] = True
    _, before = module(noise(steps=5), None, nothing(module, 2), acting=False)
    found, after = module(x, begins, before, acting=False)
    going_on, _ = module(x[:1, :4], None, {key: value[:1] for key, value in before.items()}, acting=False)
    torch.testing.assert_close(found[:1, :4], going_on)
    for row, start, stop in ((0, 4, 9), (1, 0, 7), (1, 7, 9)):
        alone, state = module(x[row : row + 1, start:stop], None, nothing(module, 1), acting=False)
        torch.testing.assert_close(found[row : row + 1, start:stop], alone)
        if stop == 9:
            more = noise(1, 1)
            expected, _ = module(more, None, state, acting=False)
            goes_on, _ = module(more, None, {k: v[row : row + 1] for k, v in after.items()}, acting=False)
            torch.testing.assert_close(goes_on, expected)


@pytest.mark.parametrize("name", MEMORIES)
def test_the_future_does_not_leak(name: str) -> None:
    module, x = memory(name), noise()
    changed = x.clone()
    changed[:, 5:] += 1
    before, after = (module(each, None, nothing(module, 2), acting=False)[0] for each in (x, changed))
    torch.testing.assert_close(before[:, :5], after[:, :5])
    assert (before[:, 5:] != after[:, 5:]).any(-1).all()


@pytest.mark.parametrize("acting", [True, False])
def test_attention_reaches_as_far_as_set(acting: bool) -> None:
    """One block: an output depends on the step itself and exactly `reach` steps before."""
    torch.manual_seed(0)
    module = GatedTransformer(4, acting_reach=2, training_reach=4, bias=0.0, **(SIZES | {"blocks": 1}))
    x = noise(1).requires_grad_()
    module(x, None, nothing(module, 1), acting=acting)[0][0, -1].sum().backward()
    assert x.grad is not None
    seen = x.grad[0].abs().sum(-1) > 0
    assert seen.tolist() == [False] * (6 if acting else 4) + [True] * (3 if acting else 5)


def test_a_gate_with_a_large_bias_lets_its_input_pass() -> None:
    torch.manual_seed(0)
    old, new = torch.randn(2, 3, 6)
    torch.testing.assert_close(Gate(6, bias=50.0)(old, new), old)
    assert not torch.allclose(Gate(6, bias=0.0)(old, new), old, atol=0.1)
