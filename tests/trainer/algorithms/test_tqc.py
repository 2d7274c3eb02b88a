"""TQC: its targets, its losses, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from test_custom_critics import parts
from transitions import ACTIONS, OBS, batch

from reef.algorithms.tqc import TQCConfig, TQCLearner, truncated
from reef.errors import ConfigError
from reef.math.td import quantile_huber

ROWS = 8


def learner(action_space: spaces.Space[Any] = ACTIONS, **settings: Any) -> TQCLearner:
    given = {"train_batch_size": ROWS, "model": {"fcnet_hiddens": [4]}, "n_quantiles": 3, "lr": 0.01}
    given |= {"top_quantiles_to_drop_per_net": 1}
    config = TQCConfig.from_dict(given | settings).environment("Pendulum-v1").debugging(seed=0)
    return TQCLearner(config.validate().freeze(), OBS, action_space)


def test_the_largest_quantiles_of_all_critics_are_left_out() -> None:
    quantiles = torch.tensor([[[1.0, 5.0, 9.0], [0.0, 0.0, 0.0]], [[8.0, 2.0, 7.0], [3.0, 1.0, 2.0]]])
    assert truncated(quantiles, 1).tolist() == [[1.0, 2.0, 5.0, 7.0], [0.0, 0.0, 0.0, 1.0]]
    assert truncated(quantiles, 2).tolist() == [[1.0, 2.0], [0.0, 0.0]]
    assert truncated(quantiles, 0).shape == (2, 6)


def test_targets_by_hand() -> None:
    """With zero weights but in the last layer: the actor's standard deviation is 1 around 0."""
    one = learner()
    for network in (one.policy, one.target.network):
        network.flat.vector.zero_()
    one.policy.temperature.log_alpha.data.fill_(np.log(0.2))
    one.target.network.critics.out.bias.data[:, 0] = torch.tensor([[1.0, 5.0, 9.0], [8.0, 2.0, 7.0]])
    columns = one.prepare(batch(ROWS))
    targets = one.targets(columns)
    noise = torch.randn(ROWS, 1, generator=torch.Generator().manual_seed(0))
    logp = torch.distributions.Normal(0.0, 1.0).log_prob(noise) - torch.log(1.0 - torch.tanh(noise) ** 2)
    expected = 1.0 + 0.5 * (torch.tensor([1.0, 2.0, 5.0, 7.0]) - 0.2 * logp)
    expected[-1] = 1.0  # terminated
    torch.testing.assert_close(targets, expected, rtol=1e-4, atol=1e-4)


def test_critics_learn_by_the_quantile_huber_loss_with_the_weights_of_replay() -> None:
    one = learner()
    columns = one.critic_columns(one.prepare(batch(ROWS)))
    outputs = one.policy.critics(columns["obs"], columns["actions"])
    assert outputs.shape == (2, ROWS, 3)
    weights = torch.linspace(0.1, 1.0, ROWS)
    losses = quantile_huber(outputs, columns["targets"]).sum(0)
    torch.testing.assert_close(one.critic_loss(outputs, columns).value, losses.mean())
    weighted = one.critic_loss(outputs, columns | {"weights": weights})
    torch.testing.assert_close(weighted.value, (losses * weights).mean())
    errors = (outputs.mean(-1) - columns["targets"].mean(-1)).abs().mean(0)
    torch.testing.assert_close(weighted.rows["td_errors"], errors.detach())


def test_the_actor_climbs_the_mean_of_all_quantiles() -> None:
    one = learner(n_critics=3)
    columns = one.prepare(batch(ROWS))
    values = one.policy.joint_values(one.policy.critics, columns["obs"], columns["actions"])
    torch.testing.assert_close(values, one.policy.critics(columns["obs"], columns["actions"]).mean((0, 2)))
    assert one.policy.state_values(columns["obs"]).shape == (ROWS,)


def test_an_update_moves_every_part_and_the_target() -> None:
    one = learner(tau=0.5)
    before, target = one.policy.get_weights(), one.target.network.flat.numpy().copy()
    stats = one.update(batch(ROWS), 0).stats
    after = one.policy.get_weights()
    assert {name.partition(".")[0] for name in before if (after[name] != before[name]).any()} == {
        "actor",
        "critics",
        "temperature",
    }
    assert (one.target.network.flat.numpy() != target).any()
    assert {"actor_loss", "critic_loss", "alpha_loss", "alpha", "entropy", "mean_q", "mean_td_error"} <= stats.keys()


@pytest.mark.parametrize("count", [1, 3])
def test_networks_of_your_own_return_all_quantiles(count: int) -> None:
    one = learner(n_critics=count, **parts(read=1))
    columns = one.prepare(batch(ROWS))
    assert one.policy.critics(columns["obs"], columns["actions"]).shape == (count, ROWS, 3)
    assert np.isfinite(one.update(batch(ROWS), 0).stats["critic_loss"])


def test_a_single_quantile_is_a_mean() -> None:
    one = learner(n_quantiles=1, n_critics=1, top_quantiles_to_drop_per_net=0)
    columns = one.prepare(batch(ROWS))
    assert one.policy.critics(columns["obs"], columns["actions"]).shape == (1, ROWS, 1)
    assert one.targets(columns).shape == (ROWS, 1)
    one.update(batch(ROWS), 0)


def test_the_architecture_names_critics_and_quantiles() -> None:
    settings = learner(n_critics=4).policy.architecture()["settings"]
    assert (settings["n_critics"], settings["n_quantiles"]) == (4, 3)
    assert "twin_q" not in settings


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"twin_q": False}, "twin_q=False: TQC has n_critics for it. Leave it at True, and set n_critics=1."),
        ({"top_quantiles_to_drop_per_net": 3}, "top_quantiles_to_drop_per_net=3, n_quantiles=3: .*Drop fewer"),
        ({"top_quantiles_to_drop_per_net": -1}, "top_quantiles_to_drop_per_net=-1: must be"),
        ({"n_quantiles": 0}, "n_quantiles=0: must be"),
        ({"n_critics": 0}, "n_critics=0: must be"),
        ({"action_space": spaces.Discrete(3)}, "algorithm='TQC' needs a Box action space .* Use PPO, or DQN or SAC"),
        ({"action_space": spaces.Discrete(3), "input_": "episodes"}, "finite bounds, .* Use BC or MARWIL\\."),
    ],
)
def test_what_cannot_be_trained_is_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        learner(**given)
