from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from reef.algorithms.ppo import PPOConfig, PPOLearner
from reef.nn.distributions import ActionDistribution
from reef.nn.gradients import Columns

BOX = spaces.Box(-1.0, 1.0, (3,))


class Custom(nn.Module):
    def __init__(self, observation_space: Any, action_space: Any, num_outputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(3, num_outputs + 1)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        out = torch.tanh(self.layer(obs))
        return out[:, :-1], out[:, -1]


def learner(
    action_space: spaces.Space[Any],
    make: Callable[..., PPOLearner] = PPOLearner,
    observation_space: spaces.Space[Any] = BOX,
    **settings: Any,
) -> PPOLearner:
    model = {"fcnet_hiddens": [8]} | settings.pop("model", {})
    config = PPOConfig().training(model=model, **settings)
    return make(config.debugging(seed=1), observation_space, action_space)


def some_steps(each: PPOLearner) -> Columns:
    """Put other weights into the policy, and make up a minibatch."""
    generator = torch.Generator().manual_seed(0)
    for parameter in each.policy.parameters():
        parameter.data.normal_(generator=generator)
    old = each.policy.dist_class(torch.randn(64, each.policy.dist_class.num_inputs, generator=generator))
    acting = ActionDistribution(each.policy.dist_class, old.inputs.numpy())
    actions = torch.from_numpy(acting.sample(np.random.default_rng(0)))
    return {
        "obs": torch.randn(64, 3, generator=generator),
        "actions": actions,
        "action_logp": old.logp(actions),
        "action_dist_inputs": old.inputs,
        "advantages": torch.randn(64, generator=generator),
        "value_targets": 3 * torch.randn(64, generator=generator),
    }


def test_a_critic_may_be_a_constant() -> None:
    class NoCritic(Custom):
        def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
            return super().forward(obs)[0], torch.zeros(len(obs))

    each = learner(spaces.Discrete(4), model={"custom_model": NoCritic}, use_critic=False)
    each.parameters.gradient(some_steps(each))
    assert each.policy.flat.gradient.count_nonzero() > 0


class Dropping(Custom):
    """Without a layer that says so."""

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        return super().forward(nn.functional.dropout(obs, 0.5, self.training))


def test_dropout_disturbs_gradient_steps_alone_and_by_the_learners_own_draws() -> None:
    weights = []
    for seed in (1, 2):  # of torch's own generator, which is not the learner's
        torch.manual_seed(seed)
        each = learner(spaces.Discrete(4), model={"custom_model": Dropping})
        steps = some_steps(each)
        first, second = (each.policy(steps["obs"])[1] for _ in range(2))
        assert torch.equal(first, second)
        before = torch.get_rng_state()
        losses = [each.step(steps).stats["total_loss"] for _ in range(2)]
        assert torch.equal(torch.get_rng_state(), before) and losses[0] != losses[1]
        weights.append(each.policy.flat.numpy())
    np.testing.assert_array_equal(*weights)


def test_learners_that_work_together_drop_out_each_its_own() -> None:
    losses = []
    for rank in (0, 1):
        each = learner(spaces.Discrete(4), partial(PPOLearner, rank=rank), model={"custom_model": Dropping})
        losses.append(float(each.parameters.gradient(some_steps(each)).value))
    assert losses[0] != losses[1]


def test_without_critic_none_is_trained() -> None:
    each = learner(spaces.Discrete(4), use_critic=False)
    each.parameters.gradient(some_steps(each))
    policy: Any = each.policy
    assert policy.vf.weight.grad.count_nonzero() == 0
    assert policy.pi.weight.grad.count_nonzero() > 0
