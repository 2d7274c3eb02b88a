"""Each optimizer steps as torch's does. It tests reef.learn.adam too."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

from reef.algorithms.ppo import PPO, PPOLearner
from reef.config.groups.training import TAKEN_BY, OptimizerConfig
from reef.errors import ConfigError
from reef.learn.optimizers import OPTIMIZERS, TorchOptimizers, make_optimizer
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


def two_parameters() -> FlatParameters:
    return FlatParameters([nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(2))])


def two_optimizers(flat: FlatParameters, rate: Any = 0.5) -> TorchOptimizers:
    first, second = flat.parameters
    made = {"adam": torch.optim.Adam([first]), "sgd": (torch.optim.SGD([second], 9.0, momentum=0.9), rate)}
    return TorchOptimizers(flat, 0.1, made)


def test_each_part_has_its_optimizer_and_rate() -> None:
    flat = two_parameters()
    one = two_optimizers(flat, [[0, 0.5], [100, 0.0]])
    flat.gradient.fill_(1.0)
    one.step()
    torch.testing.assert_close(flat.vector, torch.tensor([0.9] * 3 + [0.5] * 2))
    one.lr = 0.2
    one.begin(100)
    one.step()
    torch.testing.assert_close(flat.vector, torch.tensor([0.7] * 3 + [0.5] * 2))
    assert one.lr == 0.2


def test_several_optimizers_go_on_from_their_state() -> None:
    flats = [two_parameters() for _ in range(2)]
    one, two = map(two_optimizers, flats)
    for flat in flats:
        flat.gradient.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]))
    one.step()
    flats[1].vector.copy_(flats[0].vector)
    two.set_state(one.state())
    flats[0].gradient.mul_(-1)
    flats[1].gradient.mul_(-1)
    one.step()
    two.step()
    assert flats[0].vector.equal(flats[1].vector)
    assert one.state().keys() == two.state().keys() >= {"type", "adam.0.exp_avg", "sgd.0.momentum_buffer"}


def test_a_parameter_without_an_optimizer_or_with_two_is_refused() -> None:
    flat = two_parameters()
    for parameters in (flat.parameters[:1], [*flat.parameters, flat.parameters[0]]):
        made = {str(i): torch.optim.SGD([each], 0.1) for i, each in enumerate(parameters)}
        with pytest.raises(ConfigError, match=r"expected each of the 2 of the policy in exactly one of them"):
            TorchOptimizers(flat, 0.1, made)


def test_groups_with_rates_of_their_own_are_refused() -> None:
    flat = two_parameters()
    groups = [{"params": [one], "lr": rate} for one, rate in zip(flat.parameters, (0.1, 0.2), strict=True)]
    with pytest.raises(ConfigError, match=r"the groups of 'all' have the rates \[0.1, 0.2\].* an optimizer of each"):
        TorchOptimizers(flat, 0.1, {"all": torch.optim.SGD(groups, 0.1)})


class OwnLearner(PPOLearner):
    def configure_optimizer(self, name: str, flat: FlatParameters, lr: float) -> TorchOptimizers:
        critic = [*self.policy.vf.parameters()]
        rest = [each for each in flat.parameters if all(each is not other for other in critic)]
        return TorchOptimizers(flat, lr, {"critic": (torch.optim.SGD(critic), 0.0), "rest": torch.optim.AdamW(rest)})


class Own(PPO):
    learner_class = OwnLearner


def test_a_learner_may_have_optimizers_of_its_own(tmp_path: Any) -> None:
    settings = {"env": "CartPole-v1", "train_batch_size": 64, "sgd_minibatch_size": 32, "num_sgd_iter": 2, "seed": 1}
    with Own(settings | {"model": {"fcnet_hiddens": [4]}}) as one:
        before = one.get_weights()["default_policy"]
        one.train()
        after = one.get_weights()["default_policy"]
        assert (before["vf.weight"] == after["vf.weight"]).all()
        assert (before["pi.weight"] != after["pi.weight"]).any()
        with Own.from_checkpoint(one.save(tmp_path / "checkpoint")) as two:
            one.train()
            two.train()
            for name, values in one.get_weights()["default_policy"].items():
                assert (two.get_weights()["default_policy"][name] == values).all()
