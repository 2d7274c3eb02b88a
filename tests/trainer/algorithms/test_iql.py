"""IQL: its three losses by hand, and what is not read."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from recorded import recorded
from transitions import ACTIONS, OBS, batch

from reef.algorithms.iql import MOST_WEIGHT, IQLConfig, IQLLearner
from reef.errors import ConfigError

ROWS = 8


def learner(action_space: spaces.Space[Any] = ACTIONS, **settings: Any) -> IQLLearner:
    given = {"train_batch_size": ROWS, "model": {"fcnet_hiddens": [8]}, "input_": "unread.json"}
    config = IQLConfig.from_dict(given | settings).environment("Pendulum-v1").debugging(seed=0)
    return IQLLearner(config.validate().freeze(), OBS, action_space)


def test_the_value_of_a_state_is_an_expectile_of_those_of_its_actions() -> None:
    q_values = torch.tensor([0.0, 0.0, 0.0, 10.0])
    for expectile, expected in ((0.5, 2.5), (0.9, 7.5)):
        one, value = learner(expectile=expectile), torch.zeros(1, requires_grad=True)
        optimizer = torch.optim.SGD([value], lr=1.0)
        for _ in range(300):
            optimizer.zero_grad()
            one.value_loss(value.expand(4).unsqueeze(-1), {"q_values": q_values}).value.backward()
            optimizer.step()
        assert value.item() == pytest.approx(expected, abs=1e-3)


def test_the_value_loss_weighs_errors_by_their_sign() -> None:
    found = learner(expectile=0.8).value_loss(torch.tensor([[1.0], [1.0]]), {"q_values": torch.tensor([3.0, 0.0])})
    assert found.value.item() == pytest.approx((0.8 * 4 + 0.2 * 1) / 2)
    assert found.stats["mean_v"].item() == 1.0


def test_critics_learn_the_reward_and_the_value_of_the_next_state() -> None:
    one = learner()
    minibatch = one.prepare(batch(ROWS))
    values = one.policy.state_values(minibatch["next_obs"])
    goes_on = 1.0 - minibatch["terminated"].float()
    expected = minibatch["rewards"] + minibatch["discounts"] * goes_on * values
    torch.testing.assert_close(one.targets(minibatch), expected.detach())


def test_better_actions_weigh_more_and_none_without_end() -> None:
    one = learner(beta=2.0)
    minibatch = one.prepare(batch(ROWS))
    values = one.policy.state_values(minibatch["obs"]).detach()
    advantages = torch.tensor([-1.0, 0.0, 0.5, 1.0, 2.0, 100.0, -100.0, 0.0])
    weights = one.action_weights(minibatch | {"q_values": values + advantages})
    expected = [min(math.exp(2.0 * float(each)), MOST_WEIGHT) for each in advantages]
    np.testing.assert_allclose(weights.numpy(), expected, rtol=1e-4)
    outputs = one.policy.actor(minibatch["obs"])
    logp = one.policy.dist_class(outputs).logp(minibatch["actions"])
    loss = one.actor_loss(outputs, minibatch | {"action_weights": weights})
    assert loss.value.item() == pytest.approx(-(weights * logp).mean().item(), rel=1e-5)


def test_values_of_recorded_actions_are_those_of_the_smaller_target() -> None:
    one = learner()
    minibatch = one.prepare(batch(ROWS))
    with torch.no_grad():
        one.policy.flat.vector.add_(1.0)  # which the target does not follow
        values = one.target.network.critics(minibatch["obs"], minibatch["actions"])
    torch.testing.assert_close(one.recorded_values(minibatch), torch.minimum(*values))


def test_an_update_moves_every_part_and_the_target() -> None:
    one = learner(tau=0.5)
    before, target = one.policy.get_weights(), one.target.network.flat.numpy().copy()
    stats = one.update(batch(ROWS), 0).stats
    moved = {name.partition(".")[0] for name, weights in one.policy.get_weights().items() if (weights != before[name]).any()}
    assert moved == {"actor", "critics", "state_value"}
    assert (one.target.network.flat.numpy() != target).any()
    assert {"actor_loss", "critic_loss", "value_loss", "mean_v", "mean_q", "mean_action_weight"} <= stats.keys()


def test_recorded_actions_at_the_bounds_are_imitated_too() -> None:
    stats = learner().update(replace(batch(ROWS), actions=np.ones((ROWS, 1), np.float32)), 0).stats
    assert all(math.isfinite(value) for value in stats.values())


def test_actions_are_real_numbers() -> None:
    with pytest.raises(ConfigError, match="algorithm='IQL' needs a Box action space with finite bounds"):
        learner(spaces.Discrete(3))


@pytest.mark.parametrize("expectile", [0.0, 1.0])
def test_no_state_has_the_least_or_the_largest_value(expectile: float) -> None:
    with pytest.raises(ConfigError, match=f"expectile={expectile}: must be"):
        learner(expectile=expectile)


def test_what_is_not_read_is_told(caplog: pytest.LogCaptureFixture) -> None:
    config = IQLConfig().environment("Pendulum-v1").offline_data(input_=recorded("Pendulum-v1", episodes=2))
    config.training(training_intensity=2.0, model={"fcnet_hiddens": [8]})
    with config.build():
        assert "training_intensity=2.0 has no effect with IQL, which learns from recorded steps." in caplog.text
