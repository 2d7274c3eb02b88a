from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from reef.algorithms.ppo import PPOConfig, PPOLearner
from reef.batch import Rollout
from reef.learn.learner import Columns
from reef.nn.distributions import ActionDistribution, Categorical
from reef.nn.policies import ActorCritic

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
    make: type[PPOLearner] = PPOLearner,
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


@pytest.mark.parametrize(
    ("action_space", "settings"),
    [
        (spaces.Discrete(4), {}),
        (spaces.Discrete(4), {"entropy_coeff": 0.5, "kl_coeff": 0.0, "vf_clip_param": None}),
        (spaces.Box(-1.0, 1.0, (2,)), {"entropy_coeff": 0.5, "vf_loss_coeff": 0.3}),
        (spaces.Box(-1.0, 1.0, (2,)), {"model": {"free_log_std": True, "vf_share_layers": True}}),
        (spaces.Discrete(4), {"model": {"fcnet_activation": "relu", "fcnet_hiddens": [8, 5, 6]}}),
        (spaces.Discrete(4), {"model": {"fcnet_activation": "silu"}}),
        (spaces.Discrete(4), {"model": {"fcnet_hiddens": []}}),
        (spaces.Discrete(4), {"model": {"custom_model": Custom}}),
    ],
)
def test_the_gradient_written_out_is_that_of_the_loss(
    compare_with_autograd: Callable[..., None],
    action_space: spaces.Space[Any],
    settings: dict[str, Any],
) -> None:
    each = learner(action_space, **settings)
    assert each.policy.dist_class.closed_form
    if isinstance(each.policy, ActorCritic):
        model = settings.get("model", {})
        assert each.policy.by_hand == (model.get("fcnet_activation") != "silu" and model.get("fcnet_hiddens") != [])
    minibatch = some_steps(each)
    each.begin(timestep=0)
    compare_with_autograd(each, minibatch, "policy_loss", "vf_loss")


class OtherLoss(PPOLearner):
    def loss(self, minibatch: Columns) -> tuple[Tensor, dict[str, Tensor]]:
        _, values = self.policy(minibatch["obs"])
        return values.mean(), {}


class OtherForward(ActorCritic):
    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        inputs, values = super().forward(obs)
        return inputs, 0 * values


class Frozen(ActorCritic):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.vf.requires_grad_(False)


def test_a_loss_of_a_subclass_is_what_is_learned_from() -> None:
    each = learner(spaces.Discrete(4), OtherLoss)
    each.backward(some_steps(each))
    assert each.policy.get_submodule("pi").weight.grad.count_nonzero() == 0  # type: ignore[union-attr]
    assert each.policy.get_submodule("vf").weight.grad.count_nonzero() > 0  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", [OtherForward, Frozen])
def test_a_network_of_a_subclass_is_what_is_learned_from(kind: type[ActorCritic]) -> None:
    each = learner(spaces.Discrete(4))
    minibatch = some_steps(each)
    each.policy = kind(each.config, BOX, spaces.Discrete(4))
    each.policy.finish()
    each.policy.flat.gradient.fill_(7.0)
    each.backward(minibatch)
    assert each.policy.vf.weight.grad is not None
    assert each.policy.vf.weight.grad.count_nonzero() == 0
    assert each.policy.flat.gradient.count_nonzero() > 0
    assert each.policy.flat.gradient.max() < 7.0


def test_what_is_frozen_later_is_not_trained() -> None:
    each = learner(spaces.Discrete(4))
    minibatch, policy = some_steps(each), each.policy
    assert isinstance(policy, ActorCritic) and policy.by_hand
    each.step(minibatch)
    policy.encoder.requires_grad_(False)
    before = policy.get_weights()
    each.step(minibatch)
    moved = {name for name, weights in policy.get_weights().items() if (weights != before[name]).any()}
    assert moved == {"pi.weight", "pi.bias", "vf.weight", "vf.bias"}


def test_a_critic_may_be_a_constant() -> None:
    class NoCritic(Custom):
        def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
            return super().forward(obs)[0], torch.zeros(len(obs))

    each = learner(spaces.Discrete(4), model={"custom_model": NoCritic}, use_critic=False)
    each.backward(some_steps(each))
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
        losses = [each.step(steps)["total_loss"] for _ in range(2)]
        assert torch.equal(torch.get_rng_state(), before) and losses[0] != losses[1]
        weights.append(each.policy.flat.numpy())
    np.testing.assert_array_equal(*weights)


def test_learners_that_work_together_drop_out_each_its_own() -> None:
    losses = []
    for rank in (0, 1):
        each = learner(spaces.Discrete(4), model={"custom_model": Dropping})
        each.rank = rank
        losses.append(float(each.backward(some_steps(each))[0]))
    assert losses[0] != losses[1]


@pytest.mark.parametrize("by_hand", [True, False])
def test_without_critic_none_is_trained(by_hand: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not by_hand:
        monkeypatch.setattr(Categorical, "closed_form", False)
    each = learner(spaces.Discrete(4), use_critic=False)
    each.backward(some_steps(each))
    assert each.policy.vf.weight.grad.count_nonzero() == 0
    assert each.policy.pi.weight.grad.count_nonzero() > 0


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(3, start=1),
        spaces.Box(0, 255, (3,), np.uint8),
        spaces.Dict(a=spaces.Discrete(3), b=spaces.Tuple([spaces.Box(-1.0, 1.0, (2, 2)), spaces.MultiBinary(2)])),
    ],
)
def test_observations_of_any_kind_have_their_gradient_written_out(
    compare_with_autograd: Callable[..., None], space: spaces.Space[Any]
) -> None:
    each = learner(spaces.Discrete(4), observation_space=space)
    assert isinstance(each.policy, ActorCritic)
    assert each.policy.by_hand
    layout = each.policy.observation_layout
    space.seed(1)
    obs = torch.from_numpy(np.stack([layout.flatten(space.sample()) for _ in range(64)]))
    minibatch = {**some_steps(each), "obs": obs}
    each.begin(timestep=0)
    compare_with_autograd(each, minibatch, "policy_loss", "vf_loss")


def test_joint_actions_are_left_to_autograd() -> None:
    assert not learner(spaces.MultiDiscrete([2, 3])).policy.dist_class.closed_form
    assert not learner(spaces.Box(-1.0, 1.0, (2, 2))).policy.dist_class.closed_form
    assert not learner(spaces.Box(-1.0, 1.0, ())).policy.dist_class.closed_form


def rollout(rewards: list[float]) -> Rollout:
    """One episode in one column."""
    steps = len(rewards)
    obs = np.linspace(-1.0, 1.0, 3 * (steps + 1), dtype=np.float32).reshape(steps + 1, 1, 3)
    ends = np.zeros((steps, 1), np.bool_)
    ends[-1] = True
    return Rollout(
        obs=obs[:-1],
        actions=np.zeros((steps, 1), np.int64),
        rewards=np.array(rewards, np.float32)[:, None],
        next_obs=obs[1:],
        terminated=ends,
        truncated=np.zeros_like(ends),
        mask=np.ones_like(ends),
        extras={
            "action_logp": np.zeros((steps, 1), np.float32),
            "action_dist_inputs": np.zeros((steps, 1, 2), np.float32),
        },
    )


def prepared(**settings: Any) -> dict[str, torch.Tensor]:
    return learner(spaces.Discrete(2), gamma=0.5, **settings).prepare(rollout([1.0, 2.0, 4.0]))


def test_without_gae_the_targets_are_the_returns() -> None:
    returns = torch.tensor([3.0, 4.0, 4.0])  # 1 + (2 + 4 / 2) / 2, 2 + 4 / 2, 4
    torch.testing.assert_close(prepared(use_gae=False, lambda_=0.5)["value_targets"], returns)
    assert not torch.allclose(prepared(lambda_=0.5)["value_targets"], returns)


def test_advantages_are_normalized_unless_switched_off() -> None:
    normal, raw = (prepared(normalize_advantages=flag)["advantages"] for flag in (True, False))
    assert normal.mean().item() == pytest.approx(0.0, abs=1e-6)
    assert normal.std(correction=0).item() == pytest.approx(1.0, rel=1e-5)
    torch.testing.assert_close(normal, (raw - raw.mean()) / raw.std(correction=0))
    assert raw.mean().abs().item() > 0.1
