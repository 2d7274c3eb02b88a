from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from reef.algorithms.dqn import DQNConfig, DQNLearner
from reef.batch import Transitions
from reef.errors import ConfigError
from reef.learn.learner import Update

OBS, ACTIONS = spaces.Box(-1, 1, (2,)), spaces.Discrete(2)


def settings(**training: Any) -> DQNConfig:
    plain = {"hiddens": [], "dueling": False, "train_batch_size": 4, "lr": 0.1, "model": {"fcnet_hiddens": []}}
    return DQNConfig().training(**(plain | training)).debugging(seed=0)


def learner(**training: Any) -> DQNLearner:
    """A linear Q-network, Q(s) = W s + b; the online one prefers action 1, the target network values 3 and 2."""
    made = DQNLearner(settings(**training), OBS, ACTIONS)
    for network, biases in ((made.policy, [0.0, 1.0]), (made.target.network, [3.0, 2.0])):
        network.flat.vector.zero_()
        network.advantage.output.bias.data.copy_(torch.tensor(biases))
    return made


def batch(rows: int = 4, **extras: Any) -> Transitions:
    """Action 0, reward 1, discount 0.5; the last row terminates."""
    obs = np.zeros((rows, 2), np.float32)
    none = np.zeros(rows, np.bool_)
    last = none.copy()
    last[-1] = True
    discounts = np.full(rows, 0.5, np.float32)
    return Transitions(
        obs, np.zeros(rows, np.int64), np.ones(rows, np.float32), obs, last, none, {"discounts": discounts} | extras
    )


@pytest.mark.parametrize(
    ("double_q", "target"),
    [(True, 1 + 0.5 * 2.0), (False, 1 + 0.5 * 3.0)],  # double: the online network's choice, action 1, is worth 2
)
def test_td_errors_by_hand(double_q: bool, target: float) -> None:
    stats, rows = learner(double_q=double_q).update(batch(), 0)
    np.testing.assert_allclose(rows["td_errors"], [[-target, -target, -target, -1.0]])
    assert stats["mean_td_error"] == pytest.approx(-(3 * target + 1) / 4)


def test_weights_of_a_buffer_of_ones_own_may_be_of_double_precision() -> None:
    narrow, wide = (learner(grad_clip=None) for _ in range(2))
    narrow.update(batch(weights=np.full(4, 0.25, np.float32)), 0)
    wide.update(batch(weights=np.full(4, 0.25)), 0)
    torch.testing.assert_close(wide.policy.flat.gradient, narrow.policy.flat.gradient)


def test_importance_weights_scale_the_gradient() -> None:
    plain, weighted = learner(grad_clip=None), learner(grad_clip=None)
    plain.update(batch(), 0)
    weighted.update(batch(weights=np.full(4, 0.25, np.float32)), 0)
    torch.testing.assert_close(weighted.policy.flat.gradient, 0.25 * plain.policy.flat.gradient)


def test_every_train_batch_is_one_step() -> None:
    one = learner()
    one.update(batch(12), 0)
    assert one.parameters.optimizer.step_count.item() == 3


def test_the_target_network_follows_when_due() -> None:
    one = learner(target_network_update_freq=100, tau=0.5)
    before = one.target.network.flat.vector.clone()
    one.update(batch(), 99)
    assert torch.equal(one.target.network.flat.vector, before)
    online = one.policy.flat.vector.clone()
    one.update(batch(), 100)
    torch.testing.assert_close(one.target.network.flat.vector, (before + online) / 2)
    after = one.target.network.flat.vector.clone()
    one.update(batch(), 199)
    assert torch.equal(one.target.network.flat.vector, after)


def test_distributions_by_hand() -> None:
    one = DQNLearner(settings(num_atoms=3, v_min=0.0, v_max=2.0, double_q=False), OBS, ACTIONS)
    one.policy.flat.vector.zero_()
    one.target.network.flat.vector.zero_()
    # the target network is sure of return 2 for action 1: 1 + 0.5 * 2 = 2 is the last atom
    one.target.network.advantage.output.bias.data.copy_(torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, 50.0]))
    columns = one.prepare(batch())
    loss = one.loss(one.policy(columns["obs"]), columns)
    torch.testing.assert_close(loss.rows["td_errors"], torch.full((4,), np.log(3.0), dtype=torch.float32))
    loss.value.backward()
    gradient = one.policy.advantage.output.bias.grad
    assert gradient is not None
    # rows 0 to 2 pull to the last atom, the terminated one to its reward, 1: (1/3 - p) on average
    torch.testing.assert_close(gradient, torch.tensor([1 / 3, 1 / 3 - 1 / 4, 1 / 3 - 3 / 4, 0.0, 0.0, 0.0]))


def test_two_learners_compute_what_one_does() -> None:
    whole = learner(train_batch_size=4)
    halves = [DQNLearner(settings(), OBS, ACTIONS, rank=rank, world_size=2) for rank in (0, 1)]
    expected = whole.update(batch(), 0)
    found: list[Update] = []
    for half in halves:
        half.policy.flat.vector.copy_(learner().policy.flat.vector)
        half.target.network.flat.vector.copy_(learner().target.network.flat.vector)
        found.append(half.update(batch(), 0))
    for name in ("mean_td_error", "mean_q"):
        np.testing.assert_allclose(sum(one.stats[name] for one in found) / 2, expected.stats[name])
    td_errors = np.concatenate([one.rows["td_errors"] for one in found], axis=1)
    np.testing.assert_allclose(td_errors, expected.rows["td_errors"])


def test_state_holds_the_target_network() -> None:
    one, two = learner(), learner()
    one.update(batch(), 700)
    one.update(batch(), 800)
    two.set_state(one.state())
    first, second = (each.update(batch(), 1000) for each in (one, two))
    assert first.stats == second.stats
    assert two.target.updated_at == 700


def test_atoms_need_a_range() -> None:
    with pytest.raises(ConfigError, match="v_min below v_max"):
        settings(num_atoms=51, v_min=1.0, v_max=1.0).environment("CartPole-v1").validate()


def test_soft_q_explores_by_value() -> None:
    config = settings(model={"fcnet_hiddens": [4]}).environment("CartPole-v1")
    config = config.exploration(exploration_config={"type": "SoftQ", "temperature": 1e6})
    with config.build() as algorithm:
        actions = [algorithm.compute_single_action(np.zeros(4, np.float32)) for _ in range(40)]
        assert set(actions) == {0, 1}
        assert len({algorithm.compute_single_action(np.zeros(4, np.float32), explore=False) for _ in range(9)}) == 1


def test_the_result_says_how_it_explores() -> None:
    config = settings(model={"fcnet_hiddens": [4]}).environment("CartPole-v1").rollouts(rollout_fragment_length=25)
    config = config.exploration(
        exploration_config={"type": "EpsilonGreedy", "final_epsilon": 0.0, "epsilon_timesteps": 100}
    )
    with config.reporting(min_sample_timesteps_per_iteration=50).build() as algorithm:
        told = [algorithm.train()["info"]["exploration"]["default_policy"]["cur_epsilon"] for _ in range(3)]
    assert told == pytest.approx([0.5, 0.0, 0.0])
    with config.exploration(explore=False).build() as algorithm:
        assert algorithm.train()["info"]["exploration"] == {}


def test_layers_need_units() -> None:
    with pytest.raises(ConfigError, match=r"hiddens=\[-5\]: each must be at least 1"):
        DQNConfig().training(hiddens=[-5]).validate()
