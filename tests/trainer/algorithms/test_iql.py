"""IQL: its three losses by hand, and settings without effect."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from recorded import recorded
from test_custom_critics import Torso
from test_every_algorithm import Echo, answers
from transitions import ACTIONS, OBS, batch

from reef.algorithms.iql import MOST_WEIGHT, IQLConfig, IQLLearner
from reef.batch import Transitions
from reef.errors import ConfigError

ROWS = 8
DISCRETE = spaces.Discrete(3)
KINDS = pytest.mark.parametrize("actions", [ACTIONS, DISCRETE])


def learner(actions: spaces.Space[Any] = ACTIONS, **settings: Any) -> IQLLearner:
    given = {"train_batch_size": ROWS, "model": {"fcnet_hiddens": [8]}, "input_": "unread.json"}
    config = IQLConfig.from_dict(given | settings).environment("Pendulum-v1").debugging(seed=0)
    return IQLLearner(config.validate().freeze(), OBS, actions)


def steps(actions: spaces.Space[Any] = ACTIONS) -> Transitions:
    drawn = batch(ROWS)
    return replace(drawn, actions=np.arange(ROWS) % 3) if actions == DISCRETE else drawn


def test_the_value_of_a_state_is_an_expectile_of_the_values_of_its_actions() -> None:
    q_values = torch.tensor([0.0, 0.0, 0.0, 10.0])
    # where expectile * (10 - v) = 3 * (1 - expectile) * v
    for expectile, expected in ((0.5, 2.5), (0.9, 7.5)):
        one, value = learner(expectile=expectile), torch.zeros(1, requires_grad=True)
        optimizer = torch.optim.SGD([value], lr=1.0)
        for _ in range(300):
            optimizer.zero_grad()
            one.value_loss(value.expand(4).unsqueeze(-1), {"q_values": q_values}).value.backward()
            optimizer.step()
        assert value.item() == pytest.approx(expected, abs=1e-3)


def test_errors_of_the_value_are_weighted_by_their_sign() -> None:
    found = learner(expectile=0.8).value_loss(torch.tensor([[1.0], [1.0]]), {"q_values": torch.tensor([3.0, 0.0])})
    assert found.value.item() == pytest.approx((0.8 * 4 + 0.2 * 1) / 2)
    assert found.stats["mean_v"].item() == 1.0


@KINDS
def test_critics_learn_the_reward_and_the_value_of_the_next_state_unless_the_step_terminated(
    actions: spaces.Space[Any],
) -> None:
    one = learner(actions)
    minibatch = one.prepare(replace(steps(actions), next_obs=np.ones((ROWS, 2), np.float32)))
    value = one.policy.state_values(torch.ones(1, 2)).item()
    assert abs(value) > 0.01
    found = one.targets(minibatch)
    np.testing.assert_allclose(found[:-1], 1.0 + 0.5 * value, rtol=1e-5)  # the last of them is truncated
    assert found[-1].item() == 1.0


@KINDS
def test_values_of_recorded_actions_are_those_of_the_smaller_target(actions: spaces.Space[Any]) -> None:
    one = learner(actions)
    minibatch = one.prepare(steps(actions))
    both = one.target.network.critics(minibatch["obs"], minibatch["actions"]).detach()
    assert (both[0] < both[1]).any() and (both[1] < both[0]).any()
    with torch.no_grad():
        one.policy.flat.vector.add_(1.0)  # the target does not follow
    torch.testing.assert_close(one.recorded_values(minibatch), torch.minimum(*both))


@KINDS
def test_better_actions_weigh_more_and_none_more_than_a_limit(actions: spaces.Space[Any]) -> None:
    one = learner(actions, beta=2.0)
    minibatch = one.prepare(steps(actions))
    values = one.policy.state_values(minibatch["obs"]).detach()
    advantages = torch.tensor([-1.0, 0.0, 0.5, 1.0, 2.0, 100.0, -3.0, 0.0])
    weights = one.action_weights(minibatch | {"q_values": values + advantages})
    expected = [min(math.exp(2.0 * float(each)), MOST_WEIGHT) for each in advantages]
    np.testing.assert_allclose(weights.numpy(), expected, rtol=1e-4)
    outputs = one.policy.actor(minibatch["obs"])
    logp = one.policy.dist_class(outputs).logp(minibatch["actions"])
    loss = one.actor_loss(outputs, minibatch | {"action_weights": weights})
    assert loss.value.item() == pytest.approx(-(weights * logp).mean().item(), rel=1e-5)
    assert loss.stats["mean_action_weight"].item() == pytest.approx(np.mean(expected), rel=1e-4)


@KINDS
def test_an_update_moves_every_part_and_the_target(actions: spaces.Space[Any]) -> None:
    one = learner(actions, tau=0.5)
    before, target = one.policy.get_weights(), one.target.network.flat.numpy().copy()
    stats = one.update(steps(actions), 0).stats
    after = one.policy.get_weights()
    assert {name.partition(".")[0] for name in after if (after[name] != before[name]).any()} == {
        "actor",
        "critics",
        "state_value",
    }
    assert (one.target.network.flat.numpy() != target).any()
    assert {"actor_loss", "critic_loss", "value_loss", "mean_v", "mean_q", "mean_action_weight"} <= stats.keys()


def test_each_part_has_a_learning_rate_of_its_own() -> None:
    stats = learner(lr=0.1, actor_lr=0.2, value_lr=0.3).update(batch(ROWS), 0).stats
    assert (stats["critic_lr"], stats["actor_lr"], stats["value_lr"]) == pytest.approx((0.1, 0.2, 0.3))


def test_recorded_actions_at_the_bounds_are_imitated_too() -> None:
    stats = learner().update(replace(batch(ROWS), actions=np.ones((ROWS, 1), np.float32)), 0).stats
    assert all(math.isfinite(value) for value in stats.values())


def test_discrete_actions_are_learnt_from_those_of_a_random_policy() -> None:
    assert answers("IQL", {}, Echo) == [0, 1, 2]


@pytest.mark.parametrize("actions", [spaces.MultiDiscrete([2, 3]), spaces.Box(-np.inf, np.inf, (1,))])
def test_other_actions_are_refused(actions: spaces.Space[Any]) -> None:
    text = r"algorithm='IQL' needs a Box action space with finite bounds, .* Use BC or MARWIL\."
    with pytest.raises(ConfigError, match=text):
        learner(actions)


@pytest.mark.parametrize("expectile", [0.0, 1.0])
def test_the_worst_and_the_best_action_alone_are_no_expectiles(expectile: float) -> None:
    with pytest.raises(ConfigError, match=f"expectile={expectile}: must be"):
        learner(expectile=expectile)


def test_settings_without_effect_are_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    own = {f"{part}_model_config": {"custom_model": Torso} for part in ("policy", "q")}
    own["q_model_config"]["custom_model_config"] = {"read": 1}
    config = IQLConfig.from_dict(own | {"training_intensity": 2.0, "model": {"fcnet_hiddens": [8]}})
    config.environment("Pendulum-v1").offline_data(input_=recorded("Pendulum-v1", episodes=2))
    with config.build() as algorithm:
        # the network of the value of states reads `model`
        assert caplog.messages == [
            "training_intensity=2.0 has no effect with IQL, which learns from recorded steps.",
        ]
        assert algorithm.get_policy().get_weights()["state_value.out.weight"].shape[-1] == 8
