"""SimpleQ: its targets and its loss."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from transitions import OBS, batch

from reef.algorithms.simple_q import SimpleQConfig, SimpleQLearner
from reef.batch import Transitions
from reef.errors import ConfigError

Q_VALUES = torch.tensor([1.0, 4.0, 2.0])


def learner() -> SimpleQLearner:
    """Its Q-values and those of its target are `Q_VALUES` for every observation."""
    config = SimpleQConfig().training(model={"fcnet_hiddens": [4]}, train_batch_size=4).debugging(seed=0)
    one = SimpleQLearner(config, OBS, spaces.Discrete(3))
    for network in (one.policy, one.target.network):
        network.flat.vector.zero_()
        network.advantage.output.bias.data[:] = Q_VALUES
    return one


def indices(**extras: Any) -> Transitions:
    return replace(batch(**extras), actions=np.array([0, 1, 2, 0]))


def test_targets_and_loss_by_hand() -> None:
    """Reward 1, discount 0.5: the target is 1 + 0.5 * 4 = 3, and 1 where the episode terminated."""
    one = learner()
    columns = one.prepare(indices())
    assert columns["targets"].tolist() == [3.0, 3.0, 3.0, 1.0]
    loss = one.loss(one.policy(columns["obs"]), columns)
    assert loss.rows["td_errors"].tolist() == [-2.0, 1.0, -1.0, 0.0]
    assert float(loss.value.detach()) == pytest.approx((1.5 + 0.5 + 0.5 + 0.0) / 4), "Huber: beyond 1 it is linear"
    assert float(loss.stats["mean_q"]) == pytest.approx((1 + 4 + 2 + 1) / 4)


def test_importance_weights_scale_the_loss_of_each_row() -> None:
    one = learner()
    columns = one.prepare(indices(weights=np.array([0.0, 1.0, 0.0, 0.0], np.float32)))
    assert float(one.loss(one.policy(columns["obs"]), columns).value.detach()) == pytest.approx(0.5 / 4)


def test_a_frozen_target_does_not_follow_until_it_is_due() -> None:
    config = SimpleQConfig().training(target_network_update_freq=3, train_batch_size=4, model={"fcnet_hiddens": [4]})
    one = SimpleQLearner(config.debugging(seed=0), OBS, spaces.Discrete(3))
    moved = []
    for timestep in range(5):
        before = one.target.network.flat.vector.clone()
        one.update(indices(), timestep)
        moved += [timestep] if not torch.equal(before, one.target.network.flat.vector) else []
    assert moved == [3]


@pytest.mark.parametrize("name", ["double_q", "dueling", "hiddens", "num_atoms", "noisy"])
def test_what_dqn_adds_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"{name}: SimpleQ has no such setting"):
        SimpleQConfig.from_dict({name: 1})


@pytest.mark.parametrize(("given", "others"), [({}, "PPO"), ({"input_": "episodes"}, "BC or MARWIL")])
def test_it_needs_discrete_actions(given: dict[str, Any], others: str) -> None:
    with pytest.raises(ConfigError, match=rf"algorithm='SimpleQ' needs a Discrete action space, .* Use {others}\."):
        SimpleQLearner(SimpleQConfig.from_dict(given), OBS, spaces.Box(-1.0, 1.0, (1,)))
