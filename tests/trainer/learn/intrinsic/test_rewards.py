"""Intrinsic rewards: what is added where a batch is learned from, by networks that learn from it.

It tests reef.learn.intrinsic.curiosity, reef.learn.intrinsic.make, reef.learn.intrinsic.random_encoder,
reef.learn.intrinsic.rewards and reef.rollout.exploration.intrinsic.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from corridor import Corridor
from gymnasium import spaces

from reef.algorithms.a3c import A3CConfig
from reef.algorithms.bc import BCConfig
from reef.algorithms.ddppo import DDPPOConfig
from reef.algorithms.dqn import DQNConfig, DQNLearner
from reef.algorithms.ppo import PPOConfig, PPOLearner
from reef.batch import Rollout, Transitions
from reef.config import AlgorithmConfig
from reef.errors import ConfigError
from reef.learn.intrinsic.random_encoder import neighbour_distances
from reef.learn.learners import learners_of
from reef.rollout.exploration import make_exploration
from reef.rollout.worker import RolloutWorker
from reef.spaces import Layout
from reef.types import DEFAULT_POLICY

OBS, THREE = spaces.Box(-9, 9, (3,)), spaces.Discrete(3)
CURIOUS: dict[str, Any] = {"type": "Curiosity", "feature_dim": 8}
RANDOM: dict[str, Any] = {"type": "RE3", "embeds_dim": 4, "k_nn": 3}


def settings(kind: type[AlgorithmConfig] = PPOConfig, exploration: dict[str, Any] = CURIOUS, **training: Any) -> Any:
    config = kind().training(model={"fcnet_hiddens": [8]}, **training).debugging(seed=3)
    return config.exploration(exploration_config=exploration)


@pytest.mark.parametrize("exploration", [CURIOUS | {"eta": 100.0}, RANDOM | {"beta": 100.0}])
def test_a_memory_reads_the_rewards_that_it_read_when_it_acted(exploration: dict[str, Any]) -> None:
    model = {"use_lstm": True, "lstm_cell_size": 8, "lstm_use_prev_reward": True, "fcnet_hiddens": [8]}
    config = settings(exploration=exploration, train_batch_size=100, sgd_minibatch_size=100, num_sgd_iter=1)
    config.training(model=model).environment("CartPole-v1").rollouts(rollout_fragment_length=100)
    worker = RolloutWorker(config.freeze())
    (learner,) = learners_of(PPOLearner, config, worker.spaces).values()
    with torch.no_grad():
        learner.policy.pi.weight *= 100  # so that what a memory holds changes much
    worker.set_weights({DEFAULT_POLICY: learner.weights()})
    stats = learner.update(worker.sample().rollouts[DEFAULT_POLICY], 0).stats
    assert stats["intrinsic_reward"] > 0.1 and stats["kl"] == pytest.approx(0, abs=1e-6)


def rollout(steps: int = 8, columns: int = 4) -> Rollout:
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(steps + 1, columns, 3)).astype(np.float32)
    actions, inputs = rng.integers(0, 3, (steps, columns)), np.zeros((steps, columns, 3), np.float32)
    flags, logp = np.zeros((steps, columns), np.bool_), np.full((steps, columns), np.log(1 / 3), np.float32)
    rewards = rng.normal(size=(steps, columns)).astype(np.float32)
    extras = {"action_logp": logp, "action_dist_inputs": inputs}
    return Rollout(obs[:-1], actions, rewards, obs[1:], flags, flags, ~flags, extras)


def learner(exploration: dict[str, Any] = CURIOUS, actions: spaces.Space[Any] = THREE, **arguments: Any) -> PPOLearner:
    small = {"sgd_minibatch_size": 8, "num_sgd_iter": 1, "train_batch_size": 32}
    return PPOLearner(settings(exploration=exploration, **small), OBS, actions, **arguments)


def added(exploration: dict[str, Any], batch: Rollout) -> np.ndarray:
    intrinsic = learner(exploration).intrinsic
    assert intrinsic is not None
    return intrinsic.add(batch)[0].rewards - batch.rewards


def test_curiosity_rewards_half_the_squared_error_of_the_forward_model_times_eta() -> None:
    batch, one = rollout(), learner(CURIOUS | {"eta": 3.0})
    network: Any = one.intrinsic.network  # type: ignore[union-attr]
    with torch.no_grad():
        before, after = (network.features(torch.from_numpy(each[2, 1][None])) for each in (batch.obs, batch.next_obs))
        action = torch.eye(3)[batch.actions[2, 1]][None]
        error = (network.forward_model(torch.cat([before, action], 1)) - after).square().sum().item()
    assert added(CURIOUS | {"eta": 3.0}, batch)[2, 1] == pytest.approx(3.0 * 0.5 * error, rel=1e-4)


@pytest.mark.parametrize("exploration", [CURIOUS, RANDOM], ids=["Curiosity", "RE3"])
def test_padding_changes_nothing_and_true_successors_count(exploration: dict[str, Any]) -> None:
    whole = rollout()
    mask = np.ones(whole.shape, np.bool_)
    mask[5:, 2] = False
    obs, next_obs = whole.obs.copy(), whole.next_obs.copy()
    obs[5:, 2], next_obs[5:, 2] = 99.0, np.nan
    first, second = replace(whole, mask=mask), replace(whole, mask=mask, obs=obs, next_obs=next_obs)
    found = added(exploration, first)
    np.testing.assert_array_equal(found, added(exploration, second))
    assert (found[~mask] == 0).all()
    assert (found[mask] > 0).all()
    successors = whole.next_obs.copy()
    successors[3, 0] = 5.0  # an episode ended there
    changed = added(exploration, replace(whole, next_obs=successors)) != added(exploration, whole)
    assert changed.nonzero()[0].tolist() == ([3] if exploration is CURIOUS else [])


def test_learning_adds_them_before_the_advantages_and_reports_them() -> None:
    class Noting(PPOLearner):
        def prepare(self, batch: Rollout) -> Any:
            self.noted = batch.rewards
            return super().prepare(batch)

    batch, config = rollout(), settings(sgd_minibatch_size=8, num_sgd_iter=1, train_batch_size=32)
    one = Noting(config, OBS, THREE)
    given = batch.rewards.copy()
    stats = one.update(batch, 0).stats
    np.testing.assert_allclose(one.noted - given, added(CURIOUS, batch), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(batch.rewards, given, "the batch itself stays what it is")
    assert stats["intrinsic_reward"] == pytest.approx(float(added(CURIOUS, batch).mean()), rel=1e-4)
    assert {"curiosity_forward_loss", "curiosity_inverse_loss", "curiosity_loss"} <= stats.keys()


def test_what_was_seen_often_is_rewarded_less() -> None:
    one, batch = learner(CURIOUS | {"lr": 0.01}), rollout()
    rewards = [one.intrinsic.add(batch)[1]["intrinsic_reward"] for _ in range(100)]  # type: ignore[union-attr]
    assert rewards[-1] < 0.3 * rewards[0]


@pytest.mark.parametrize(
    "actions", [spaces.MultiDiscrete([2, 3]), spaces.Box(-1, 1, (2,)), spaces.MultiBinary(2)], ids=str
)
def test_curiosity_predicts_actions_of_other_spaces(actions: spaces.Space[Any]) -> None:
    one = learner(CURIOUS | {"lr": 0.01}, actions)
    layout, batch = Layout.of(actions), rollout()
    # the action can be read off the observations
    chosen = (batch.next_obs[..., :2] > batch.obs[..., :2]).astype(layout.action_dtype)
    batch = replace(batch, actions=chosen)
    found = [one.intrinsic.add(batch)[1]["curiosity_inverse_loss"] for _ in range(150)]  # type: ignore[union-attr]
    assert found[-1] < 0.5 * found[0]


@pytest.mark.parametrize("exploration", [CURIOUS, RANDOM | {"beta_schedule": "linear_decay"}], ids=["Curiosity", "RE3"])
def test_a_restored_learner_goes_on_to_the_last_bit(exploration: dict[str, Any]) -> None:
    one, other, batch = learner(exploration), learner(exploration), rollout()
    one.update(batch, 0)
    other.set_state(one.state())
    assert one.update(batch, 0).stats == other.update(batch, 0).stats
    plain = learner({"type": "StochasticSampling"})
    assert plain.intrinsic is None
    other.set_state(plain.state())  # a checkpoint without them


def test_two_learners_compute_what_one_does() -> None:
    batch, found = rollout(), []
    for rank, world_size in ((0, 1), (0, 2), (1, 2)):
        one = learner(rank=rank, world_size=world_size, reduce=lambda gradient: None)
        assert one.intrinsic is not None
        for _ in range(3):
            rewarded, _ = one.intrinsic.add(batch)
        found.append(rewarded.rewards)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_re3_rewards_the_logarithm_of_the_distance_to_a_neighbour() -> None:
    points = torch.tensor([[0.0], [1.0], [3.0], [3.0]])
    assert neighbour_distances(points, 1).tolist() == [1.0, 1.0, 0.0, 0.0]
    assert neighbour_distances(points, 2).tolist() == [3.0, 2.0, 2.0, 2.0]
    assert neighbour_distances(points, 9).tolist() == [3.0, 2.0, 3.0, 3.0], "the farthest"
    assert neighbour_distances(points[:1], 2).tolist() == [0.0]
    one, batch = learner(RANDOM | {"beta": 0.5}), rollout()
    encoder: Any = one.intrinsic.encoder  # type: ignore[union-attr]
    before = one.intrinsic.state()["weights"]  # type: ignore[union-attr]
    with torch.no_grad():
        expected = 0.5 * torch.log1p(neighbour_distances(encoder(torch.from_numpy(batch.obs.reshape(-1, 3))), 3))
    np.testing.assert_allclose(added(RANDOM | {"beta": 0.5}, batch).reshape(-1), expected.numpy(), atol=1e-6)
    one.update(batch, 0)
    np.testing.assert_array_equal(one.intrinsic.state()["weights"], before)  # type: ignore[union-attr]


def test_the_weight_of_re3_decays() -> None:
    for schedule, expected in (("constant", [0.2, 0.2, 0.2]), ("linear_decay", [0.2, 0.1, 0.05])):
        one = learner(RANDOM | {"beta_schedule": schedule, "rho": 0.5})
        weights = [one.intrinsic.add(rollout())[1]["re3_beta"] for _ in range(3)]  # type: ignore[union-attr]
        assert weights == pytest.approx(expected)


@pytest.mark.parametrize("exploration", [CURIOUS, RANDOM], ids=["Curiosity", "RE3"])
def test_replayed_transitions_are_rewarded_when_they_are_learned_from(exploration: dict[str, Any]) -> None:
    config = settings(DQNConfig, exploration, train_batch_size=8, hiddens=[8])
    one, flat = DQNLearner(config, OBS, THREE), rollout(2).flatten()
    discounts = {"discounts": np.ones(8, np.float32)}
    batch = Transitions(flat.obs, flat.actions, flat.rewards, flat.next_obs, flat.terminated, flat.truncated, discounts)
    first, second = (one.update(batch, 0).stats["intrinsic_reward"] for _ in range(2))
    assert first > 0
    assert (first == second) == (exploration is RANDOM), "curiosity is rewarded by the networks of that time"


def test_acting_is_left_to_the_algorithms_own_exploration_or_another() -> None:
    def sub(kind: type[AlgorithmConfig], **given: Any) -> tuple[str, dict[str, float]]:
        made: Any = make_exploration(settings(kind, CURIOUS | given), Layout.of(THREE))
        return type(made.sub).__name__, made.info(10**6)

    assert sub(PPOConfig) == ("StochasticSampling", {})
    assert sub(DQNConfig) == ("EpsilonGreedy", {"cur_epsilon": 0.02})
    assert sub(DQNConfig, sub_exploration={"final_epsilon": 0.3}) == ("EpsilonGreedy", {"cur_epsilon": 0.3})
    assert sub(DQNConfig, sub_exploration={"type": "SoftQ", "temperature": 2.0})[0] == "SoftQ"


@pytest.mark.parametrize(
    ("kind", "exploration", "words"),
    [
        (A3CConfig, CURIOUS, ["'Curiosity': not available with A3C", "Use PPO"]),
        (DDPPOConfig, RANDOM, ["'RE3': not available with DDPPO"]),
        (BCConfig, RANDOM, ["BC learns from recorded episodes"]),
        (PPOConfig, CURIOUS | {"beta": 2.0}, ["beta=2.0", "from 0.0 to 1.0"]),
        (PPOConfig, CURIOUS | {"feature_dim": 0}, ["feature_dim: 0", "1 or more"]),
        (PPOConfig, CURIOUS | {"forward_net_hiddens": 256}, ["forward_net_hiddens=256", "a list"]),
        (PPOConfig, CURIOUS | {"inverse_net_activation": "sine"}, ["inverse_net_activation='sine'", "relu"]),
        (PPOConfig, CURIOUS | {"feature_net_config": {"use_lstm": True}}, ["feature_net_config", "use_lstm"]),
        (PPOConfig, CURIOUS | {"feature_net_config": {"hiddens": [3]}}, ["feature_net_config.hiddens"]),
        (PPOConfig, RANDOM | {"beta_schedule": "cosine"}, ["beta_schedule='cosine'", "linear_decay"]),
        (PPOConfig, RANDOM | {"sub_exploration": {"type": "EpsilonGredy"}}, ["sub_exploration.type='EpsilonGredy'"]),
    ],
)
def test_wrong_settings_name_key_and_fix(kind: Any, exploration: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        make_exploration(settings(kind, exploration), Layout.of(THREE))
    assert all(word in str(error.value) for word in words), str(error.value)


def test_sums_of_rewards_are_refused() -> None:
    with pytest.raises(ConfigError, match="n_step=3 stores sums of rewards.*Set n_step to 1"):
        make_exploration(settings(DQNConfig, n_step=3), Layout.of(THREE))


def test_parts_of_an_action_are_refused() -> None:
    with pytest.raises(ConfigError, match="'Curiosity' needs a Discrete.*Use 'RE3'"):
        make_exploration(settings(), Layout.of(spaces.Tuple((THREE, THREE))))


def corridor(**exploration: Any) -> PPOConfig:
    config = PPOConfig().environment(Corridor).debugging(seed=0).rollouts(num_envs_per_worker=8)
    config.training(train_batch_size=640, sgd_minibatch_size=160, num_sgd_iter=6, lr=5e-3, lambda_=0.95, kl_coeff=0.0)
    config.training(clip_param=0.2, entropy_coeff=0.01, model={"fcnet_hiddens": [32]})
    return config.exploration(exploration_config=exploration) if exploration else config


def best_of_corridor(config: PPOConfig, iterations: int = 100) -> float:
    best = 0.0
    with config.build() as algorithm:
        for _ in range(iterations):
            best = max(best, algorithm.train()["episode_reward_mean"] or 0.0)
            if best > 0.9:
                break
    return best


def test_a_corridor_is_solved_with_intrinsic_rewards_and_not_without() -> None:
    assert best_of_corridor(corridor()) < 0.1
    assert best_of_corridor(corridor(type="Curiosity", feature_dim=32, eta=0.1)) > 0.9
    assert best_of_corridor(corridor(type="RE3", embeds_dim=16, k_nn=10, beta=0.1)) > 0.9


def test_training_is_saved_and_restored(tmp_path: Path) -> None:
    config = corridor(**CURIOUS)
    with config.copy().build() as one, config.copy().build() as other:
        one.train()
        other.restore(one.save(tmp_path / "checkpoint"))
        stats = [each.train()["info"]["learner"]["default_policy"] for each in (one, other)]
        assert stats[0] == stats[1]
