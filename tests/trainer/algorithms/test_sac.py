"""SAC: its losses, its target networks and its temperature.

It tests reef.nn.q_critics too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from transitions import ACTIONS, OBS, batch

from reef.algorithms.sac import SACConfig, SACLearner
from reef.batch import Transitions
from reef.errors import ConfigError
from reef.nn.make import make_policy


def learner(**training: Any) -> SACLearner:
    small = {"model": {"fcnet_hiddens": [4]}, "train_batch_size": 4}
    return SACLearner(SACConfig().training(**(small | training)).debugging(seed=0), OBS, ACTIONS)


class Bits(gym.Env[Any, Any]):
    observation_space, action_space = OBS, spaces.MultiBinary(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(2, np.float32), 0.0, True, False, {}


def discrete(**training: Any) -> SACLearner:
    small = {"model": {"fcnet_hiddens": [4]}, "train_batch_size": 4}
    config = SACConfig().training(**(small | training)).debugging(seed=0)
    return SACLearner(config, OBS, spaces.Discrete(3))


def indices(rows: int = 4, **extras: Any) -> Transitions:
    """The replayed transitions with actions 0, 1, 2, 0, ..."""
    return replace(batch(rows, **extras), actions=np.arange(rows) % 3)


def test_targets_by_hand() -> None:
    """With zero weights but in the last layers: Q' = min(3, 2), and the actor's standard deviation is 1 around 0."""
    one = learner(initial_alpha=0.2)
    for network in (one.policy, one.target.network):
        network.flat.vector.zero_()
    one.policy.temperature.log_alpha.data.fill_(np.log(0.2))
    one.target.network.critics.out.bias.data[:, 0, 0] = torch.tensor([3.0, 2.0])
    columns = one.prepare(batch())
    targets = one.targets(columns)
    noise = torch.randn(4, 1, generator=torch.Generator().manual_seed(0))
    before = torch.distributions.Normal(0.0, 1.0)
    logp = (before.log_prob(noise) - torch.log(1 - torch.tanh(noise) ** 2)).squeeze(1)
    expected = 1 + 0.5 * (2.0 - 0.2 * logp)
    expected[-1] = 1.0  # neither value nor entropy beyond an end
    torch.testing.assert_close(targets, expected)


def test_each_loss_moves_its_own_part_alone() -> None:
    one = learner()
    columns = one.prepare(batch())

    def moved_by(step: Any) -> set[str]:
        before = one.policy.get_weights()
        step()
        after = one.policy.get_weights()
        return {name.partition(".")[0] for name in after if (after[name] != before[name]).any()}

    assert moved_by(lambda: one.critics.descend(columns | {"targets": one.targets(columns)})) == {"critics"}
    assert moved_by(lambda: one.actor.descend(columns)) == {"actor"}
    assert moved_by(lambda: one.temperature.descend({"excess": torch.ones(4)})) == {"temperature"}


def test_with_discrete_actions_expectations_are_sums_over_the_actions() -> None:
    """With zero weights but in the last layers: Q' = min((3, 2, 1), (2, 4, 0)) and probabilities of 1/2, 1/4, 1/4."""
    one = discrete(initial_alpha=0.2)
    for network in (one.policy, one.target.network):
        network.flat.vector.zero_()
        network.actor.out.bias.data[:] = torch.log(torch.tensor([0.5, 0.25, 0.25]))
    one.policy.temperature.log_alpha.data.fill_(np.log(0.2))
    one.target.network.critics.out.bias.data[:, 0] = torch.tensor([[3.0, 2.0, 1.0], [2.0, 4.0, 0.0]])
    entropy = 1.5 * np.log(2)
    expected = torch.full((4,), 1 + 0.5 * (0.5 * 2 + 0.25 * 2 + 0.25 * 0 + 0.2 * entropy))
    expected[-1] = 1.0
    columns = one.prepare(indices())
    torch.testing.assert_close(one.targets(columns), expected)
    outputs = one.policy.actor(columns["obs"])
    one.policy.critics.out.bias.data[:, 0] = torch.tensor([[3.0, 2.0, 1.0], [2.0, 4.0, 0.0]])
    loss = one.actor_loss(outputs, columns)
    assert float(loss.value.detach()) == pytest.approx(-0.2 * entropy - 1.5)
    assert float(loss.stats["entropy"]) == pytest.approx(entropy)
    q_values = one.policy.critics(columns["obs"], columns["actions"])
    assert q_values.tolist() == [[3.0, 2.0, 1.0, 3.0], [2.0, 4.0, 0.0, 2.0]], "those of the actions taken"


def test_the_actor_of_discrete_actions_moves_towards_the_softmax_of_the_q_values() -> None:
    one = discrete(actor_lr=0.05, initial_alpha=0.5)
    one.policy.critics.out.weight.data.zero_()
    one.policy.critics.out.bias.data[:, 0] = torch.tensor([1.0, 0.5, 0.0])
    columns = one.prepare(indices())
    for _ in range(300):
        one.actor.descend(columns)
    expected = torch.softmax(torch.tensor([1.0, 0.5, 0.0]) / 0.5, 0)
    probabilities = torch.softmax(one.policy.actor(columns["obs"]), -1)
    torch.testing.assert_close(probabilities, expected.expand(4, -1), atol=0.01, rtol=0)


def test_the_entropy_that_discrete_actions_steer_to_can_be_reached() -> None:
    obs = torch.zeros(1, 3)
    assert discrete().target_entropy(obs) == pytest.approx(0.5 * np.log(3))
    assert discrete(target_entropy=0.1).target_entropy(obs) == 0.1


def test_the_entropy_to_steer_to_is_of_the_allowed_actions() -> None:
    space = spaces.Dict({"action_mask": spaces.MultiBinary(3), "z": spaces.Box(-1, 1, (1,))})
    policy = make_policy(SACConfig(), space, spaces.Discrete(3))
    rows = torch.tensor([[1.0, 1.0, 0.0, 0.5], [0.0, 1.0, 0.0, 0.5], [0.0, 0.0, 0.0, 0.5]])
    expected = np.array([np.log(2), 0.0, np.log(3)])
    assert policy.target_entropy("auto", rows).tolist() == pytest.approx(0.5 * expected)
    given = policy.target_entropy(0.9 * np.log(3), rows).tolist()
    assert given == pytest.approx(0.9 * expected), "none of which is beyond what allowed actions can have"


@pytest.mark.parametrize(("logp", "grows"), [(5.0, True), (-5.0, False)])
def test_too_little_entropy_raises_the_temperature(logp: float, grows: bool) -> None:
    one = learner()
    assert one.target_entropy(torch.zeros(1, 3)) == -1.0, "minus the number of action elements"
    before = float(one.alpha)
    one.temperature.descend({"excess": torch.full((4,), logp - 1.0)})
    assert (float(one.alpha) > before) == grows


def test_an_update_reports_statistics_and_td_errors() -> None:
    one = learner(actor_lr=1e-4, target_entropy=-2.5)
    stats, rows = one.update(batch(12), 0)
    names = {
        "critic_loss",
        "actor_loss",
        "alpha_loss",
        "mean_q",
        "entropy",
        "alpha",
        "critic_lr",
        "actor_lr",
        "alpha_lr",
    }
    assert names <= stats.keys()
    assert (stats["actor_lr"], stats["critic_lr"]) == (1e-4, 3e-4)
    assert one.target_entropy(torch.zeros(1, 3)) == -2.5
    assert rows["td_errors"].shape == (3, 4) and (rows["td_errors"] > 0).all()


@pytest.mark.parametrize("key", ["actor_lr", "critic_lr", "alpha_lr"])
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (-1.0, "=-1.0: must be larger than 0"),
        ([[0, -0.001], [10, 0.01]], "must be larger than 0"),
        ([[0, 0.001], [0, 0.01]], ": schedule .* every timestep must be larger"),
    ],
)
def test_rates_of_its_own_have_the_limits_of_lr(key: str, value: object, message: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}.*{message}"):
        SACConfig.from_dict({key: value}).environment("Pendulum-v1").validate()


def test_a_rate_that_nothing_uses_is_named() -> None:
    given = {"lr": 0.1, "actor_lr": 0.2, "critic_lr": 0.3}
    assert not list(SACConfig.from_dict(given).ignored_settings(learner().policy))
    told = list(SACConfig.from_dict(given | {"alpha_lr": 0.4}).ignored_settings(learner().policy))
    assert told == ["lr=0.1 has no effect beside actor_lr, critic_lr, alpha_lr, which are all given."]


def test_importance_weights_scale_the_gradient_of_the_critics() -> None:
    plain, weighted = learner(), learner()
    for one, extras in ((plain, {}), (weighted, {"weights": np.full(4, 0.25, np.float32)})):
        columns = one.prepare(batch(**extras))
        one.critics.descend(columns | {"targets": torch.zeros(4)})
    torch.testing.assert_close(weighted.critics.flat.gradient, 0.25 * plain.critics.flat.gradient)


@pytest.mark.parametrize(("frequency", "moved_at"), [(0, [0, 1, 2]), (2, [2])])
def test_targets_follow_gradient_steps_or_environment_steps(frequency: int, moved_at: list[int]) -> None:
    one, moved = learner(target_network_update_freq=frequency, tau=0.5), []
    for timestep in range(3):
        before = one.target.network.flat.vector.clone()
        one.update(batch(), timestep)
        if not torch.equal(before, one.target.network.flat.vector):
            moved.append(timestep)
    assert moved == moved_at


def test_all_losses_of_a_step_weigh_the_entropy_by_the_alpha_from_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    one, seen = learner(alpha_lr=0.5), list[float]()
    alpha = SACLearner.alpha.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(SACLearner, "alpha", property(lambda self: seen.append(alpha(self).item()) or alpha(self)))
    before = one.policy.temperature.log_alpha.exp().item()
    one.step(one.prepare(batch()))
    assert seen == [before, before], "of the targets and of the actor's loss"
    assert one.policy.temperature.log_alpha.exp().item() != before


def test_actions_are_scaled_to_the_bounds_of_the_environment() -> None:
    config = SACConfig().environment("Pendulum-v1").training(model={"fcnet_hiddens": [4]}).debugging(seed=0)
    with config.build() as algorithm:
        obs = np.zeros(3, np.float32)
        actions = np.array([algorithm.compute_single_action(obs) for _ in range(200)])
    assert (np.abs(actions) <= 2.0).all() and actions.max() > 1.5 and actions.min() < -1.5


@pytest.mark.parametrize(
    ("env", "settings", "problem"),
    [
        (Bits, {}, r"'SAC' needs a Box action space with finite bounds, .* MultiBinary\(2\)"),
        (
            "CartPole-v1",
            {"model": {"custom_model": "torch.nn:Linear"}},
            "SAC has an actor and critics.* Set policy_model_config",
        ),
        ("Pendulum-v1", {"normalize_actions": False}, "normalize_actions=False: the actor's actions lie between"),
        ("Pendulum-v1", {"torch_compile_learner": True}, "torch_compile_learner=True: not available yet with SAC"),
        ("Pendulum-v1", {"initial_alpha": 0.0}, "initial_alpha=0.0: must be larger than 0"),
        ("Pendulum-v1", {"target_entropy": "much"}, "target_entropy='much'"),
        ("CartPole-v1", {"target_entropy": 0.7}, "target_entropy=0.7: random actions among 2 have an entropy of 0.693"),
        (
            "Pendulum-v1",
            {"model": {"custom_model": "torch.nn:Linear"}},
            "SAC has an actor and critics.* Set policy_model_config",
        ),
    ],
)
def test_what_it_cannot_do_is_refused(env: Any, settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        SACConfig.from_dict(settings).environment(env).build()


def test_a_state_from_before_steps_were_counted_is_restored() -> None:
    config = SACConfig().environment("Pendulum-v1").training(model={"fcnet_hiddens": [4]}).debugging(seed=0)
    with config.build() as algorithm:
        state = algorithm.state()
        del state["learners"]["default_policy"]["steps"]
        algorithm.set_state(state)
        assert algorithm.state()["learners"]["default_policy"]["steps"] == 0


def test_the_value_of_a_state_is_that_of_the_likeliest_action() -> None:
    policy: Any = learner().policy
    obs = torch.from_numpy(batch().obs)
    actions = policy.act(batch().obs, {})[0].deterministic()
    with torch.no_grad():
        torch.testing.assert_close(policy.state_values(obs), policy.critics(obs, torch.from_numpy(actions)).amin(0))
