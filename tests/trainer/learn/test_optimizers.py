"""Each optimizer steps as torch's does. It tests reef.learn.adam too."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

from reef.config.groups.training import TAKEN_BY, OptimizerConfig
from reef.learn.optimizers import OPTIMIZERS, make_optimizer
from reef.nn.flat import FlatParameters


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("Adam", {}),
        ("Adam", {"betas": [0.8, 0.95], "eps": 1e-3, "weight_decay": 0.1}),
        ("Adam", {"amsgrad": True}),
        ("AdamW", {}),
        ("AdamW", {"weight_decay": 0.1, "amsgrad": True}),
        ("RMSprop", {}),
        ("RMSprop", {"alpha": 0.9, "eps": 1e-3, "weight_decay": 0.1, "momentum": 0.8, "centered": True}),
        ("SGD", {}),
        ("SGD", {"momentum": 0.9, "weight_decay": 0.1}),
        ("SGD", {"momentum": 0.9, "dampening": 0.3}),
        ("SGD", {"momentum": 0.9, "nesterov": True}),
    ],
)
def test_steps_are_those_of_torch(kind: str, arguments: dict[str, Any]) -> None:
    torch.manual_seed(0)
    parameter = nn.Parameter(torch.randn(5))
    flat = FlatParameters([nn.Parameter(parameter.detach().clone())])
    mine = make_optimizer(flat, 1e-2, OptimizerConfig(type=kind, **arguments))
    theirs = getattr(torch.optim, kind)([parameter], 1e-2, **arguments)
    for step in range(4):
        parameter.grad = torch.randn(5)
        flat.gradient.copy_(parameter.grad)
        mine.lr = theirs.param_groups[0]["lr"] = 1e-2 / (1 + step)
        mine.step()
        theirs.step()
    torch.testing.assert_close(flat.vector, parameter.detach())


def test_rmsprop_of_tensorflow_by_hand() -> None:
    """Two steps with gradient 2: squares 0.9 + 0.1 * 4 = 1.3 and 0.9 * 1.3 + 0.4 = 1.57; eps 0.01 is under the root."""
    flat = FlatParameters([nn.Parameter(torch.zeros(1))])
    one = make_optimizer(flat, 0.1, OptimizerConfig(type="RMSpropTF", alpha=0.9, eps=0.01, momentum=0.5))
    flat.gradient.fill_(2.0)
    one.step()
    first = 0.1 * 2 / 1.31**0.5
    assert flat.vector.item() == pytest.approx(-first)
    one.lr = 0.2
    one.step()
    assert flat.vector.item() == pytest.approx(-first - (0.5 * first + 0.2 * 2 / 1.58**0.5))


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_state_goes_on(kind: str) -> None:
    vectors = [FlatParameters([nn.Parameter(torch.ones(3))]) for _ in range(2)]
    arguments = {"momentum": 0.5} if "Adam" not in kind else {}
    one, two = (make_optimizer(flat, 0.1, OptimizerConfig(type=kind, **arguments)) for flat in vectors)
    for flat in vectors:
        flat.gradient.fill_(0.5)
    one.step()
    vectors[1].vector.copy_(vectors[0].vector)
    two.set_state(one.state())
    one.step()
    two.step()
    assert vectors[0].vector.equal(vectors[1].vector)


def test_what_can_be_set_is_what_there_is() -> None:
    assert set(OptimizerConfig.declared["type"].choices or ()) == OPTIMIZERS.keys()
    for kind, make in OPTIMIZERS.items():
        signatures = [inspect.signature(one.__init__).parameters for one in make.__mro__[:-2]]
        taken = {name for parameters in signatures for name in parameters} - {"self", "flat", "lr", "arguments"}
        assert {name for name, kinds in TAKEN_BY.items() if kind in kinds} == taken


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
