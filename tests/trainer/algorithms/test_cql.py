"""CQL: the conservative loss by hand, imitation first, and what is not read."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from recorded import recorded
from torch import Tensor
from transitions import ACTIONS, OBS, batch

from reef.algorithms.cql import CQLConfig, CQLLearner
from reef.algorithms.sac import SACLearner
from reef.nn.distributions import SquashedGaussian

ROWS = 8


def learner(action_space: spaces.Space[Any] = ACTIONS, kind: type[SACLearner] = CQLLearner, **settings: Any) -> Any:
    given = {"train_batch_size": ROWS, "model": {"fcnet_hiddens": [8]}, "input_": "unread.json", "num_actions": 3}
    config = CQLConfig.from_dict(given | settings).environment("Pendulum-v1").debugging(seed=0)
    return kind(config.validate().freeze(), OBS, action_space)


def columns(one: CQLLearner, actions: np.ndarray[Any, Any] | None = None) -> dict[str, Tensor]:
    drawn = batch(ROWS)
    return one.prepare(drawn if actions is None else replace(drawn, actions=actions))


def test_other_actions_are_random_ones_and_the_actors_at_both_states_with_their_densities() -> None:
    one = learner()
    minibatch = columns(one)
    found = one.other_actions(minibatch)
    assert found["log_density"].shape == (9, ROWS)
    assert found["actions"].shape == (10 * ROWS, 1)
    torch.testing.assert_close(found["actions"][:ROWS], minibatch["actions"])
    torch.testing.assert_close(found["obs"], minibatch["obs"].repeat(10, 1))
    assert (found["log_density"][:3] == -math.log(2.0)).all()
    assert found["actions"].abs().max() <= 1
    for first, at in ((3, "obs"), (6, "next_obs")):
        inputs = one.policy.actor(minibatch[at]).repeat(3, 1)
        actions = found["actions"][(1 + first) * ROWS :][: 3 * ROWS]
        expected = SquashedGaussian(inputs).logp(actions).reshape(3, ROWS)
        torch.testing.assert_close(found["log_density"][first : first + 3], expected.detach(), rtol=1e-2, atol=1e-2)


def test_random_actions_are_uniform() -> None:
    one = learner(num_actions=2000)
    drawn = one.other_actions(columns(one))["actions"][ROWS : 2001 * ROWS]
    shares = torch.histc(drawn, 4, -1.0, 1.0) / drawn.numel()
    torch.testing.assert_close(shares, torch.full((4,), 0.25), atol=0.02, rtol=0.0)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_the_conservative_loss_is_that_of_the_paper(temperature: float) -> None:
    one = learner(min_q_weight=2.0, temperature=temperature)
    plain = learner(kind=SACLearner)
    minibatch = columns(one)
    minibatch |= {"targets": one.targets(minibatch)} | one.other_actions(minibatch)
    outputs = one.policy.critics(minibatch["obs"], minibatch["actions"])
    found = one.critic_loss(outputs, minibatch)
    recorded_rows = {"targets": minibatch["targets"]}
    expected = plain.critic_loss(outputs[:, :ROWS], recorded_rows).value
    for values in outputs:
        for row in range(ROWS):
            others = [values[(1 + k) * ROWS + row] - minibatch["log_density"][k, row] for k in range(9)]
            largest = temperature * torch.stack([each / temperature for each in others]).logsumexp(0)
            expected = expected + 2.0 * (largest - values[row]) / ROWS
    torch.testing.assert_close(found.value, expected, rtol=1e-4, atol=1e-5)
    assert found.rows["td_errors"].shape == (ROWS,)


def test_the_values_of_discrete_actions_are_summed_exactly() -> None:
    one = learner(spaces.Discrete(3))
    minibatch = columns(one, np.arange(ROWS) % 3)
    found = one.other_actions(minibatch)
    outputs = one.policy.critics(found["obs"], found["actions"])
    every = one.policy.critics.all(minibatch["obs"])
    for action in range(3):
        torch.testing.assert_close(outputs[:, (1 + action) * ROWS :][:, :ROWS], every[..., action])
    loss = one.critic_loss(outputs, found | {"targets": outputs[0, :ROWS].detach()})
    gap = (every.logsumexp(-1) - outputs[:, :ROWS]).mean(1).sum()
    assert loss.stats["cql_gap"].item() == pytest.approx(gap.item(), rel=1e-4)


def test_without_the_conservative_loss_it_is_sac() -> None:
    one, plain = learner(min_q_weight=0.0, bc_iters=0), learner(kind=SACLearner)
    for each in (one, plain):
        each.update(batch(ROWS), 0)
    np.testing.assert_array_equal(one.weights(), plain.weights())


def test_the_actor_imitates_first_and_the_count_is_saved() -> None:
    one = learner(bc_iters=2)
    outputs = one.policy.actor(columns(one)["obs"])
    generator = one.generator.get_state()
    imitated = one.actor_loss(outputs, columns(one)).value.item()
    one.generator.set_state(generator)
    logp = one.expected(one.policy.critics, columns(one)["obs"], outputs)[1]
    recorded_logp = one.policy.dist_class(outputs).logp(columns(one)["actions"])
    assert imitated == pytest.approx((one.alpha * logp - recorded_logp).mean().item(), rel=1e-5)
    for _ in range(2):
        one.update(batch(ROWS), 0)
    two = learner(bc_iters=2)
    two.set_state(one.state())
    assert two.steps == 2
    for each in (one, two):
        each.generator.set_state(generator)
    losses = [each.actor_loss(outputs, columns(each)).value.item() for each in (one, two)]
    assert losses[0] == losses[1] != imitated


def test_recorded_actions_at_the_bounds_are_imitated_too() -> None:
    one = learner()
    stats = one.update(replace(batch(ROWS), actions=np.ones((ROWS, 1), np.float32)), 0).stats
    assert all(math.isfinite(value) for value in stats.values())


def test_what_is_not_read_is_told(caplog: pytest.LogCaptureFixture) -> None:
    config = CQLConfig().environment("Pendulum-v1").offline_data(input_=recorded("Pendulum-v1", episodes=2))
    config.training(training_intensity=2.0, min_q_weight=0.0, num_actions=4, model={"fcnet_hiddens": [8]})
    config.rollouts(batch_mode="complete_episodes")
    with config.build():
        assert "batch_mode='complete_episodes' has no effect with CQL, which learns from recorded steps" in caplog.text
        assert "training_intensity=2.0 has no effect with CQL, which learns from recorded steps." in caplog.text
        assert "num_actions=4 has no effect with min_q_weight=0." in caplog.text
