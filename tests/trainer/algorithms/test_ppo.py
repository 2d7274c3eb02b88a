from __future__ import annotations

from typing import Any

import pytest
import torch
from gymnasium import spaces

from reef.algorithms.ppo import PPOConfig, PPOLearner
from reef.learn.learner import Learner

BOX = spaces.Box(-1.0, 1.0, (3,))


def learner(action_space: spaces.Space[Any], **settings: Any) -> PPOLearner:
    config = PPOConfig().training(model={"fcnet_hiddens": [8], **settings.pop("model", {})}, **settings)
    return PPOLearner(config.debugging(seed=1), BOX, action_space)


@pytest.mark.parametrize(
    ("action_space", "settings"),
    [
        (spaces.Discrete(4), {}),
        (spaces.Discrete(4), {"entropy_coeff": 0.5, "kl_coeff": 0.0, "vf_clip_param": None}),
        (spaces.Box(-1.0, 1.0, (2,)), {"entropy_coeff": 0.5, "vf_loss_coeff": 0.3}),
        (spaces.Box(-1.0, 1.0, (2,)), {"model": {"free_log_std": True, "vf_share_layers": True}}),
    ],
)
def test_the_gradient_written_out_is_that_of_the_loss(
    action_space: spaces.Space[Any], settings: dict[str, Any]
) -> None:
    each = learner(action_space, **settings)
    assert each.policy.dist_class.closed_form
    each.begin(timestep=0)
    generator = torch.Generator().manual_seed(0)
    for parameter in each.policy.parameters():
        parameter.data.normal_(generator=generator)
    old = each.policy.dist_class(torch.randn(64, each.policy.dist_class.num_inputs, generator=generator))
    actions = old.sample(generator)
    minibatch = {
        "obs": torch.randn(64, 3, generator=generator),
        "actions": actions,
        "action_logp": old.logp(actions),
        "action_dist_inputs": old.inputs,
        "advantages": torch.randn(64, generator=generator),
        "value_targets": 3 * torch.randn(64, generator=generator),
    }
    gradients = []
    for differentiate in (each.differentiate, lambda rows: Learner.differentiate(each, rows)):
        each.policy.flat.gradient.zero_()
        loss, stats = differentiate(minibatch)
        gradients.append([each.policy.flat.gradient.clone(), loss, stats["policy_loss"], stats["vf_loss"]])
    assert gradients[0][0].norm() > 0.1
    for by_hand, by_autograd in zip(*gradients, strict=True):
        torch.testing.assert_close(by_hand, by_autograd, rtol=1e-4, atol=1e-5)


def test_joint_actions_are_left_to_autograd() -> None:
    assert not learner(spaces.MultiDiscrete([2, 3])).policy.dist_class.closed_form
    assert not learner(spaces.Box(-1.0, 1.0, (2, 2))).policy.dist_class.closed_form
    assert not learner(spaces.Box(-1.0, 1.0, ())).policy.dist_class.closed_form
