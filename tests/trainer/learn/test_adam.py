from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

from reef.learn.adam import Adam
from reef.nn.flat import FlatParameters


@pytest.mark.parametrize("arguments", [{}, {"betas": [0.8, 0.95], "eps": 1e-3, "weight_decay": 0.1}, {"amsgrad": True}])
def test_steps_are_those_of_torch(arguments: dict[str, Any]) -> None:
    torch.manual_seed(0)
    parameter = nn.Parameter(torch.randn(5))
    flat = FlatParameters([nn.Parameter(parameter.detach().clone())])
    mine, theirs = Adam(flat, 1e-2, **arguments), torch.optim.Adam([parameter], 1e-2, **arguments)
    for step in range(4):
        parameter.grad = torch.randn(5)
        flat.gradient.copy_(parameter.grad)
        mine.lr = theirs.param_groups[0]["lr"] = 1e-2 / (1 + step)
        mine.step()
        theirs.step()
    torch.testing.assert_close(flat.vector, parameter.detach())


def test_state_goes_on() -> None:
    vectors = [FlatParameters([nn.Parameter(torch.ones(3))]) for _ in range(2)]
    one, two = (Adam(flat, 0.1) for flat in vectors)
    for flat in vectors:
        flat.gradient.fill_(0.5)
    one.step()
    vectors[1].vector.copy_(vectors[0].vector)
    two.set_state(one.state())
    one.step()
    two.step()
    assert vectors[0].vector.equal(vectors[1].vector)


def test_training_does_not_load_the_compiler() -> None:
    """Which costs a second of start-up and 80 MB."""
    code = (
        "import sys\n"
        "from reef.algorithms.ppo import PPOConfig\n"
        "PPOConfig().environment('CartPole-v1').training(train_batch_size=128, num_sgd_iter=1).build().train()\n"
        "loaded = [name for name in ('torch._dynamo', 'torch._inductor', 'ray') if name in sys.modules]\n"
        "sys.exit(f'loaded: {loaded}' if loaded else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
