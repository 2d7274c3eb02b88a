"""DDPG and TD3: their losses, targets, delays and what they refuse.

It tests reef.algorithms.q_critics, reef.algorithms.td3 and reef.nn.q_critics too.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from transitions import ACTIONS, OBS, batch

from reef.algorithms.ddpg import DDPGConfig, DDPGLearner
from reef.algorithms.sac import SACConfig
from reef.algorithms.td3 import TD3Config
from reef.errors import ConfigError


def learner(kind: type[DDPGConfig] = DDPGConfig, **training: Any) -> DDPGLearner:
    small = {"model": {"fcnet_hiddens": [4]}, "train_batch_size": 4}
    return DDPGLearner(kind().training(**(small | training)).debugging(seed=0), OBS, ACTIONS)


@pytest.mark.parametrize(("twin_q", "value"), [(False, 3.0), (True, 2.0)])
def test_targets_by_hand(twin_q: bool, value: float) -> None:
    """The critics put out 3 and 2 wherever they look; nothing follows an end, and something does a truncation."""
    one = learner(twin_q=twin_q)
    one.target.network.flat.vector.zero_()
    one.target.network.critics.out.bias.data[:, 0, 0] = torch.tensor([3.0, 2.0])[: 1 + twin_q]
    targets = one.targets(one.prepare(batch()))
    torch.testing.assert_close(targets, torch.tensor([1 + value / 2, 1 + value / 2, 1 + value / 2, 1.0]))


def test_the_noise_of_the_targets_is_clipped_and_actions_stay_in_their_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    one, seen = learner(TD3Config, target_noise=100.0, target_noise_clip=0.5), []
    critics = one.target.network.critics

    def watched(obs: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        seen.append(actions)
        return torch.zeros(2, len(obs))

    monkeypatch.setattr(critics, "forward", watched)
    one.target.network.actor.out.weight.data.zero_()
    for bias, expected in ((0.0, {-0.5, 0.5}), (5.0, {1.0, float(np.float32(np.tanh(5.0)) - 0.5)})):
        one.target.network.actor.out.bias.data.fill_(bias)
        one.targets(one.prepare(batch(64)))
        assert {round(float(action), 4) for action in seen[-1]} == {round(each, 4) for each in expected}


@pytest.mark.parametrize(("delay", "moved_at"), [(1, [1, 2, 3, 4]), (2, [2, 4]), (3, [3])])
def test_actor_and_targets_wait_for_the_critics(delay: int, moved_at: list[int]) -> None:
    one, moved = learner(policy_delay=delay), []
    for step in range(1, 5):
        before = one.policy.get_weights(), one.target.network.flat.vector.clone()
        one.update(batch(), 0)
        after = one.policy.get_weights()
        changed = {name.partition(".")[0] for name in after if (after[name] != before[0][name]).any()}
        assert changed == ({"actor", "critics"} if step in moved_at else {"critics"})
        if not torch.equal(before[1], one.target.network.flat.vector):
            moved.append(step)
    assert moved == moved_at


def test_the_delay_goes_on_after_a_restart() -> None:
    one, two = learner(policy_delay=2), learner(policy_delay=2)
    one.update(batch(), 0)
    two.set_state(one.state())
    stats = [each.update(batch(), 0).stats for each in (one, two)]
    assert stats[0] == stats[1] and "actor_loss" in stats[0]


def test_the_actor_climbs_the_first_critic() -> None:
    one = learner(l2_reg=0.0)
    columns = one.prepare(batch())

    def value() -> float:
        with torch.no_grad():
            actions = torch.tanh(one.policy.actor(columns["obs"]))
            return float(one.policy.critics(columns["obs"], actions)[0].mean())

    before = value()
    for _ in range(20):
        one.actor.descend(columns)
    assert value() > before


def test_the_first_critic_alone_is_the_first_of_both() -> None:
    one = learner(TD3Config)
    columns = one.prepare(batch())
    both = one.policy.critics(columns["obs"], columns["actions"])
    torch.testing.assert_close(one.policy.critics.first(columns["obs"], columns["actions"]), both[0])


@pytest.mark.parametrize(("settings", "loss"), [({}, 4.5), ({"use_huber": True}, 2.5), ({"l2_reg": 1.0}, 4.5 + 8.0)])
def test_critic_loss_by_hand(settings: dict[str, Any], loss: float) -> None:
    """An error of 3 in every row; of 16 weights of 1 half the squares sum to 8, and biases count for nothing."""
    one = learner(**({"l2_reg": 0.0} | settings))
    one.policy.flat.vector.zero_()
    for name, parameter in one.policy.critics.named_parameters():
        if name.endswith("weight"):
            parameter.data.fill_(1.0)
    assert sum(p.numel() for n, p in one.policy.critics.named_parameters() if n.endswith("weight")) == 16
    found = one.critic_loss(torch.full((1, 4), 3.0), {"targets": torch.zeros(4)})
    assert found.value.item() == pytest.approx(loss)
    assert found.rows["td_errors"].tolist() == [3.0] * 4


class Narrow(gym.Env[Any, Any]):
    """Bounds that are no whole numbers, and not symmetric."""

    observation_space, action_space = OBS, gym.spaces.Box(np.float32(-0.4), np.float32(0.1), (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(2, np.float32), 0.0, True, False, {}


@pytest.mark.parametrize("kind", [DDPGConfig, TD3Config, SACConfig])
@pytest.mark.parametrize(("output", "action"), [(20.0, 0.1), (-20.0, -0.4), (0.0, -0.15)])
def test_an_actor_reaches_bounds_that_are_no_whole_numbers(kind: Any, output: float, action: float) -> None:
    with kind().environment(Narrow).training(model={"fcnet_hiddens": [4]}).build() as algorithm:
        weights = algorithm.get_policy().get_weights()
        weights["actor.out.weight"][:], weights["actor.out.bias"][:] = 0.0, output
        algorithm.get_policy().set_weights(weights)
        found = algorithm.compute_single_action(np.zeros(2, np.float32), explore=False)
    np.testing.assert_allclose(found, [action], rtol=1e-6)


def test_exploration_adds_noise_to_the_one_action() -> None:
    config = TD3Config().environment("Pendulum-v1").training(model={"fcnet_hiddens": [4]}).debugging(seed=0)
    config.exploration(exploration_config={"type": "GaussianNoise", "random_timesteps": 0, "stddev": 0.1})
    with config.build() as algorithm:
        obs = np.array([1.0, 0.0, 0.0], np.float32)
        best = algorithm.compute_single_action(obs, explore=False)
        assert algorithm.compute_single_action(obs, explore=False) == best
        noisy = np.array([algorithm.compute_single_action(obs, explore=True) for _ in range(200)])
    assert (np.abs(noisy) <= 2.0).all()
    assert 0.1 < noisy.std() < 0.3  # 0.1 of half the range of 4
    assert abs(noisy.mean() - best).item() < 0.1


@pytest.mark.parametrize("kind", [DDPGConfig, TD3Config])
@pytest.mark.parametrize(
    ("env", "settings", "problem"),
    [
        ("CartPole-v1", {}, r"needs a Box action space with finite bounds, .* Discrete\(2\)"),
        ("Pendulum-v1", {"normalize_actions": False}, "normalize_actions=False: the actor's actions lie between"),
        ("Pendulum-v1", {"policy_delay": 0}, "policy_delay=0: must be at least 1"),
        ("Pendulum-v1", {"target_noise_clip": -1.0}, "target_noise_clip=-1.0: must be at least 0"),
        (
            "Pendulum-v1",
            {"model": {"custom_model": "torch.nn:Linear"}},
            "has an actor and critics.* Set policy_model_config",
        ),
        ("Pendulum-v1", {"initial_alpha": 1.0}, "initial_alpha"),
    ],
)
def test_what_they_cannot_do_is_refused(kind: Any, env: str, settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        kind.from_dict(settings).environment(env).build()


def test_a_rate_that_nothing_uses_is_named() -> None:
    given = {"lr": 0.1, "actor_lr": 0.2, "critic_lr": 0.3}
    told = list(DDPGConfig.from_dict(given).ignored_settings(learner().policy))
    assert told == ["lr=0.1 has no effect beside actor_lr, critic_lr, which are all given."]
    assert not list(DDPGConfig.from_dict(given | {"actor_lr": None}).ignored_settings(learner().policy))


def test_settings_of_noise_and_loss_that_are_not_used_are_named() -> None:
    given = {"target_noise": 0.3, "target_noise_clip": 0.6, "huber_threshold": 2.0}
    told = list(DDPGConfig.from_dict(given).ignored_settings(learner().policy))
    assert [text.partition("=")[0] for text in told] == [*given]
    used = {"smooth_target_policy": True, "use_huber": True}
    assert not list(DDPGConfig.from_dict(given | used).ignored_settings(learner().policy))
