"""Each gradient that is written out is that of autograd.

It tests reef.nn.fast.actor_critic, reef.nn.fast.imitation, reef.nn.fast.layers, reef.nn.fast.q_network and
reef.nn.fast.recurrent too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from reef.algorithms.bc import BCConfig, BCLearner
from reef.algorithms.dqn import DQNConfig, DQNLearner
from reef.algorithms.marwil import MARWILConfig, MARWILLearner
from reef.algorithms.ppo import PPOConfig, PPOLearner
from reef.config import AlgorithmConfig
from reef.learn.learner import Learner
from reef.nn.fast import fast_gradient
from reef.nn.fast.choice import LOSSES, NETWORKS, loss_of_outputs
from reef.nn.gradients import Columns, Loss, by_autograd, loss_by_autograd
from reef.nn.policies import ActorCritic
from reef.nn.queries.policy import PREV_REWARDS
from reef.nn.recurrent import BEGINS, VALID, RecurrentPolicy

VECTOR, ACTIONS = spaces.Box(-9, 9, (3,)), spaces.Discrete(4)
GAUSSIAN = spaces.Box(-1.0, 1.0, (2,))
ONE = spaces.Box(-1.0, 1.0, (1,))
IMAGE = spaces.Box(0, 255, (16, 16, 1), np.uint8)
LSTM = {"fcnet_hiddens": [8], "use_lstm": True, "lstm_cell_size": 6}
LENGTH = 7  # steps of a sequence
NESTED = spaces.Dict(a=spaces.Discrete(3), b=spaces.Tuple([spaces.Box(-1.0, 1.0, (2, 2)), spaces.MultiBinary(2)]))


class Custom(nn.Module):
    def __init__(self, observation_space: Any, action_space: Any, outputs: int) -> None:
        super().__init__()
        self.body = nn.Linear(3, outputs + 1)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        out = self.body(obs)
        return out[:, :-1], out[:, -1]


def ppo(**training: Any) -> AlgorithmConfig:
    return PPOConfig().training(**({"model": {"fcnet_hiddens": [8, 5]}} | training)).debugging(seed=3)


def dqn(model: dict[str, Any] | None = None, **training: Any) -> AlgorithmConfig:
    return DQNConfig().training(model=model or {"fcnet_hiddens": [8, 6]}, **training).debugging(seed=3)


def marwil(**training: Any) -> AlgorithmConfig:
    return MARWILConfig().training(model={"fcnet_hiddens": [8, 5]}, vf_coeff=0.3, **training).debugging(seed=3)


def bc(**model: Any) -> AlgorithmConfig:
    return BCConfig().training(model={"fcnet_hiddens": [8, 5]} | model).debugging(seed=3)


LEARNERS = {"BC": BCLearner, "DQN": DQNLearner, "MARWIL": MARWILLearner, "PPO": PPOLearner}
# name: (settings, observation space, action space)
CASES: dict[str, tuple[AlgorithmConfig, spaces.Space[Any], spaces.Space[Any]]] = {
    "PPO": (ppo(), VECTOR, ACTIONS),
    "no KL": (ppo(entropy_coeff=0.5, kl_coeff=0.0, vf_clip_param=None), VECTOR, ACTIONS),
    "no critic": (ppo(use_critic=False), VECTOR, ACTIONS),
    "Gaussian": (ppo(entropy_coeff=0.5, vf_loss_coeff=0.3), VECTOR, GAUSSIAN),
    "free log std": (
        ppo(model={"free_log_std": True, "vf_share_layers": True, "fcnet_hiddens": [8]}),
        VECTOR,
        GAUSSIAN,
    ),
    "relu": (ppo(model={"fcnet_activation": "relu", "fcnet_hiddens": [8, 5, 6]}), VECTOR, ACTIONS),
    "linear": (ppo(model={"fcnet_activation": "linear", "fcnet_hiddens": [8]}), VECTOR, ACTIONS),
    "silu": (ppo(model={"fcnet_activation": "silu"}), VECTOR, ACTIONS),
    "no layers": (ppo(model={"fcnet_hiddens": []}), VECTOR, ACTIONS),
    "custom": (ppo(model={"custom_model": Custom}), VECTOR, ACTIONS),
    "image": (ppo(model={"conv_filters": [[2, 4, 2]]}), IMAGE, ACTIONS),
    "index": (ppo(), spaces.Discrete(3, start=1), ACTIONS),
    "bytes": (ppo(), spaces.Box(0, 255, (3,), np.uint8), ACTIONS),
    "nested": (ppo(), NESTED, ACTIONS),
    "joint actions": (ppo(), VECTOR, spaces.MultiDiscrete([2, 3])),
    "bits": (ppo(), VECTOR, spaces.MultiBinary(3)),
    "actions of rank 2": (ppo(), VECTOR, spaces.Box(-1.0, 1.0, (2, 2))),
    "actions of rank 0": (ppo(), VECTOR, spaces.Box(-1.0, 1.0, ())),
    "LSTM": (ppo(model=LSTM), VECTOR, ACTIONS),
    "LSTM, nested": (ppo(model=LSTM | {"fcnet_activation": "relu"}), NESTED, GAUSSIAN),
    "LSTM, reads more": (ppo(model=LSTM | {"lstm_use_prev_reward": True}), VECTOR, ACTIONS),
    "GRU": (ppo(model=LSTM | {"recurrent_cell": "gru"}), VECTOR, ACTIONS),
    "DQN": (dqn(), VECTOR, ACTIONS),
    "DQN, relu": (dqn({"fcnet_hiddens": [4], "fcnet_activation": "relu"}, hiddens=[7, 5]), VECTOR, ACTIONS),
    "one stream": (dqn(dueling=False, hiddens=[]), VECTOR, ACTIONS),
    "C51": (dqn(num_atoms=5), NESTED, ACTIONS),
    "C51, one stream": (dqn(num_atoms=5, dueling=False, hiddens=[7]), VECTOR, ACTIONS),
    "noisy": (dqn(noisy=True), VECTOR, ACTIONS),
    "DQN, silu": (dqn({"fcnet_activation": "silu"}), VECTOR, ACTIONS),
    "BC": (bc(), VECTOR, ACTIONS),
    "BC, free log std": (bc(free_log_std=True), VECTOR, GAUSSIAN),
    "BC, joint actions": (bc(fcnet_activation="relu"), NESTED, spaces.MultiDiscrete([2, 3])),
    "MARWIL": (marwil(beta=0.7), VECTOR, ACTIONS),
    "MARWIL, numbers": (marwil(), VECTOR, GAUSSIAN),
    "MARWIL, all alike": (marwil(beta=0.0), VECTOR, ACTIONS),
}


def learner(config: AlgorithmConfig, observation_space: Any, action_space: Any) -> Learner[Any]:
    kind: Any = LEARNERS[config.algorithm]
    made: Learner[Any] = kind(config, observation_space, action_space)
    generator = torch.Generator().manual_seed(0)
    made.policy.flat.vector.copy_(0.3 * torch.randn(made.policy.flat.vector.shape, generator=generator))
    made.begin(timestep=0)
    return made


def observed(policy: Any, rows: int, generator: torch.Generator) -> Columns:
    """What the network reads: of a recurrent one so many sequences, in which episodes begin and not all steps count."""
    layout, recurrent = policy.observation_layout, isinstance(policy, RecurrentPolicy)
    count = rows * LENGTH if recurrent else rows
    obs = torch.from_numpy(np.stack([layout.flatten(layout.space.sample()) for _ in range(count)]))
    if not recurrent:
        return {"obs": obs}
    shape = rows, LENGTH
    valid = (torch.rand(count, generator=generator) < 0.8).nonzero().squeeze(1)
    begins = torch.rand(shape, generator=generator) < 0.1
    begins[:, 3] = False  # nowhere, with one of the steps
    state = {n: 0.5 * torch.randn(rows, *s, generator=generator) for n, s in policy.memory_shapes.items()}
    previous = {PREV_REWARDS: torch.randn(*shape, 1, generator=generator)} if policy.prev_rewards else {}
    return {"obs": obs.unflatten(0, shape), BEGINS: begins, VALID: valid, **previous, **state}


def steps(each: Learner[Any], rows: int, seed: int) -> Columns:
    """Random columns of any minibatch."""
    generator, draw = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
    layout, action_layout = each.policy.observation_layout, each.policy.action_layout
    layout.space.seed(seed)
    action_layout.space.seed(seed)
    columns = observed(each.policy, rows, generator)
    rows = len(columns[VALID]) if VALID in columns else rows
    columns |= {
        "actions": torch.from_numpy(
            np.stack([action_layout.flatten(action_layout.space.sample()) for _ in range(rows)])
        ),
    }
    if isinstance(each, DQNLearner):
        atoms = each.config.num_atoms
        targets = torch.randn(rows, generator=generator) if atoms == 1 else torch.rand(rows, atoms, generator=generator)
        weights = {"weights": torch.rand(rows, generator=generator)} if seed % 2 else {}
        return columns | {"targets": targets if atoms == 1 else targets / targets.sum(-1, keepdim=True)} | weights
    with torch.no_grad():
        outputs: Any = each.policy(*(columns[name] for name in each.policy.inputs))
    inputs: Tensor = outputs[0] if isinstance(outputs, tuple) else outputs
    inputs = inputs + 0.3 * torch.randn(inputs.shape, generator=generator)
    logp = each.policy.dist_class(inputs).logp(columns["actions"])
    return columns | {
        "action_dist_inputs": inputs,
        "action_logp": logp + 0.3 * torch.from_numpy(draw.standard_normal(rows).astype(np.float32)),
        "advantages": torch.randn(rows, generator=generator),
        "value_targets": 4 * torch.randn(rows, generator=generator),
        "returns": 4 * torch.randn(rows, generator=generator),
    }


def gradient_of(each: Learner[Any], gradient: Any, minibatch: Columns) -> tuple[Tensor, Loss]:
    each.policy.flat.gradient.zero_()
    loss = gradient(minibatch)
    return each.policy.flat.gradient.clone(), loss


@pytest.mark.parametrize("name", CASES)
def test_a_gradient_written_out_is_that_of_autograd(name: str) -> None:
    each = learner(*CASES[name])
    fast = fast_gradient(each.policy, each.policy.flat, each.policy.inputs, each.loss)
    ordinary = by_autograd(each.policy, each.policy.inputs, each.loss)
    assert fast is not None
    for seed, (rows, frozen) in enumerate(((1, False), (64, False), (64, True))):
        next(each.policy.parameters()).requires_grad_(not frozen)
        minibatch = steps(each, rows, seed)
        mine, loss = gradient_of(each, fast, minibatch)
        reference, expected = gradient_of(each, ordinary, minibatch)
        assert reference.norm() > 0
        torch.testing.assert_close(mine, reference, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(loss.value, expected.value, rtol=1e-4, atol=1e-5)
        for found, other in ((loss.stats, expected.stats), (loss.rows, expected.rows)):
            assert found.keys() == other.keys()
            for key, value in found.items():
                assert not value.is_inference()
                torch.testing.assert_close(value, other[key], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["BC", "MARWIL", "MARWIL, all alike"])
@pytest.mark.parametrize("rows", [1, 7, 64, 333, 2000])
def test_the_gradient_of_imitation_is_that_of_autograd_to_the_last_bit(name: str, rows: int) -> None:
    each = learner(*CASES[name])
    minibatch = steps(each, rows, seed=0)
    fast = loss_of_outputs(each.policy, each.loss)
    assert fast is not None
    with torch.inference_mode():
        outputs = each.policy(minibatch["obs"])
        found, expected = (of(outputs, minibatch) for of in (fast, loss_by_autograd(each.loss)))
    for mine, reference in zip(found[1], expected[1], strict=True):
        torch.testing.assert_close(mine, reference, rtol=0, atol=0)
    assert found[0].value == expected[0].value
    assert found[0].stats == expected[0].stats


def test_all_entries_are_compared() -> None:
    """With one of the two tables alone, and with both."""
    made = [learner(*case) for case in CASES.values()]
    assert {type(each.policy) for each in made} >= NETWORKS.keys()
    assert {f"{each.loss.__func__.__module__}.{each.loss.__func__.__qualname__}" for each in made} == LOSSES.keys()


@pytest.mark.parametrize("name", ["PPO", "DQN"])
def test_what_is_frozen_later_is_not_trained(name: str) -> None:
    each = learner(*CASES[name])
    each.step(steps(each, 8, 0))
    each.policy.get_submodule("encoder").requires_grad_(False)
    before = each.policy.get_weights()
    each.step(steps(each, 8, 1))
    moved = {key for key, weights in each.policy.get_weights().items() if (weights != before[key]).any()}
    assert moved and not any(key.startswith("encoder.") for key in moved)


class OtherLoss(PPOLearner):
    def loss(self, outputs: tuple[Tensor, Tensor], minibatch: Columns) -> Loss:
        return Loss(outputs[1].mean(), {})


class OtherForward(ActorCritic):
    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        inputs, values = super().forward(obs)
        return inputs, 0 * values


class OtherCritic(ActorCritic):
    """Its `vf` is no linear layer."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.vf = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 1))  # type: ignore[assignment]

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        actor, critic = self.encoder(obs).unbind()
        return self.pi(actor), self.vf(critic).squeeze(-1)


def test_a_loss_of_a_subclass_is_what_is_learned_from() -> None:
    each = OtherLoss(*CASES["PPO"])
    each.parameters.gradient(steps(each, 8, 0))
    policy: Any = each.policy
    assert policy.pi.weight.grad.count_nonzero() == 0
    assert policy.vf.weight.grad.count_nonzero() > 0


@pytest.mark.parametrize(("kind", "critic_learns"), [(OtherForward, False), (OtherCritic, True)])
def test_a_network_of_a_subclass_is_what_is_learned_from(
    kind: type[ActorCritic], critic_learns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PPOConfig, "policy_class", f"{__name__}:{kind.__name__}")
    monkeypatch.setitem(__import__("sys").modules, __name__, __import__("types").SimpleNamespace(**globals()))
    each = PPOLearner(*CASES["PPO"])
    assert type(each.policy) is kind
    each.step(steps(each, 8, 0))
    changed = sum(parameter.grad.count_nonzero() for parameter in each.policy.vf.parameters())  # type: ignore[misc]
    assert bool(changed) == critic_learns
    assert each.policy.flat.gradient.count_nonzero() > 0
