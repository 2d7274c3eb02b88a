"""DQN with a memory: what it replays is what it acted on, and what it learns by hand and in small tasks."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from rollouts import CutOff
from short_episodes import Short

from reef.algorithms.apex import ApexDQNConfig
from reef.algorithms.dqn import DQNConfig, DQNLearner
from reef.algorithms.simple_q import SimpleQConfig
from reef.batch import Transitions
from reef.errors import CheckpointError, ConfigError
from reef.learn.replayed import LARGEST
from reef.nn.dueling import RecurrentQPolicy
from reef.nn.recurrent import BEGINS, VALID
from reef.replay.sequences import SequenceCutter, count_steps
from reef.rollout.worker import RolloutWorker
from reef.run.algorithm import Algorithm
from reef.types import DEFAULT_POLICY

LSTM = {"use_lstm": True, "lstm_cell_size": 6, "max_seq_len": 8, "fcnet_hiddens": [4]}
PREVIOUS = {"lstm_use_prev_action": True, "lstm_use_prev_reward": True}
BURN_IN = 3
MODELS: dict[str, dict[str, Any]] = {
    "LSTM": {"model": LSTM},
    "GRU": {"model": LSTM | {"recurrent_cell": "gru"}},
    "LSTM with actions and rewards": {"model": LSTM | PREVIOUS},
    "LSTM with atoms": {"model": LSTM, "num_atoms": 5, "v_min": -2.0, "v_max": 2.0},
    "LSTM without dueling": {"model": LSTM, "dueling": False},
}


def settings(buffer: dict[str, Any] | None = None, **training: Any) -> DQNConfig:
    config = DQNConfig().environment(Short).rollouts(num_envs_per_worker=3).debugging(seed=3)
    config = config.exploration(exploration_config={"type": "EpsilonGreedy", "epsilon_schedule": [[0, 0.3]]})
    usual = {"model": LSTM, "hiddens": [5], "train_batch_size": 24, "grad_clip": None, "gamma": 0.9}
    return config.training(replay_buffer_config={"replay_burn_in": BURN_IN} | (buffer or {}), **(usual | training))


def shaken(network: Any, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    network.flat.vector.copy_(0.7 * torch.randn(network.flat.vector.shape, generator=generator))


def played(config: DQNConfig, fragments: int = 6) -> tuple[DQNLearner, Transitions, np.ndarray]:
    """A learner, the sequences of a worker with its weights, and the Q-values [T, B, A] with which it acted."""
    config = config.copy().freeze()
    worker = RolloutWorker(config)
    worker.policy_map[DEFAULT_POLICY].acting_extras = ("action_dist_inputs",)
    columns = worker.runners[DEFAULT_POLICY].columns
    learner = DQNLearner(config, columns.observation_space, columns.action_space)
    shaken(learner.policy, 0)
    shaken(learner.target.network, 1)
    worker.set_weights({DEFAULT_POLICY: learner.weights()})
    assert config.sequences is not None
    cutter, found, acted = SequenceCutter(config.sequences), [], []
    for _ in range(fragments):
        sample = worker.sample()
        rollout = sample.rollouts[DEFAULT_POLICY]
        acted.append(rollout.extras["action_dist_inputs"].copy())
        found.append(cutter.add(rollout, sample.fragment_index[DEFAULT_POLICY]))
    return learner, joined([one for one in found if one is not None]), np.concatenate(acted)


def joined(parts: list[Transitions]) -> Transitions:
    names = ("obs", "actions", "rewards", "next_obs", "terminated", "truncated")
    extras = {name: np.concatenate([part.extras[name] for part in parts]) for name in parts[0].extras}
    return Transitions(
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in names}, extras=extras
    )


@pytest.mark.parametrize("burn_in", [0, BURN_IN])
@pytest.mark.parametrize("model", MODELS)
def test_what_is_learned_from_is_what_was_acted_on(model: str, burn_in: int) -> None:
    learner, batch, acted = played(settings({"replay_burn_in": burn_in}, **MODELS[model]))
    policy: Any = learner.policy
    assert isinstance(policy, RecurrentQPolicy)
    columns = learner.prepare(batch)
    assert columns["obs"].shape[1] == 8
    shown = {name: columns[name] for name in policy.inputs if name != VALID}
    found = policy.unroll(shown).dist_inputs.detach().numpy()
    # 3 columns, whose sequences begin every 8 steps
    assert len(found) == len(batch) >= 6
    for row, values in enumerate(found):
        first, column = 8 * (row // 3) + burn_in, row % 3
        np.testing.assert_allclose(values, acted[first : first + 8, column], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("model", ["LSTM", "GRU", "LSTM with actions and rewards"])
@pytest.mark.parametrize("double_q", [True, False])
@pytest.mark.parametrize("n_step", [1, 3])
def test_targets_are_those_of_unrolling_step_by_step(model: str, double_q: bool, n_step: int) -> None:
    """Both networks begin with the stored state, one step at a time, and see the true successor of a step."""
    learner, batch, _ = played(settings(n_step=n_step, double_q=double_q, **MODELS[model]))
    targets = learner.prepare(batch)["targets"].numpy()
    networks = [learner.policy, learner.target.network]
    for row in range(len(batch)):
        states = [{n: batch.extras[n][row : row + 1] for n in net.initial_state(1)} for net in networks]
        values = []  # of the successor of each step, by the target network
        for t in range(BURN_IN + 8):
            choosing = []
            for index, network in enumerate(networks):
                _, after = network.act(batch.obs[row, t][None], states[index])
                goes_on = network.after_step(
                    after, batch.actions[row, t][None], batch.rewards[row, t][None], np.zeros(1, np.bool_)
                )
                choosing.append(network.act(batch.next_obs[row, t][None], goes_on)[0].inputs[0])
                done = np.array([batch.terminated[row, t] or batch.truncated[row, t]])
                states[index] = network.after_step(
                    after, batch.actions[row, t][None], batch.rewards[row, t][None], done
                )
            values.append(choosing[1][(choosing[0] if double_q else choosing[1]).argmax()])
        for t in range(BURN_IN, BURN_IN + 8):
            target, discount = 0.0, 1.0
            for last in range(t, min(t + n_step, BURN_IN + 8)):
                target, discount = target + discount * batch.rewards[row, last], discount * 0.9
                if batch.terminated[row, last] or batch.truncated[row, last]:
                    break
            target += discount * values[last] * (not batch.terminated[row, last])
            assert targets[row, t - BURN_IN] == pytest.approx(target, rel=1e-4, abs=1e-5)
    ends = batch.truncated[:, BURN_IN:-1] | batch.terminated[:, BURN_IN:-1]
    assert ends.any() and batch.truncated[:, BURN_IN:-1].any()


def test_the_burn_in_has_no_gradient_and_is_not_learned_from() -> None:
    learner, batch, _ = played(settings())
    columns = learner.prepare(batch)
    assert not any(columns[name].requires_grad for name in ("h", "c"))
    assert columns["h"].abs().max() > 0 and columns["actions"].shape == (len(batch), 8)
    learner.update(batch, 0)
    gradient = learner.policy.flat.gradient.clone()
    # the same sequences without the burnt-in steps, from the state after them
    alone, _, _ = played(settings({"replay_burn_in": 0}))
    parts = {name: getattr(batch, name)[:, BURN_IN:] for name in ("obs", "actions", "rewards", "next_obs")}
    parts |= {name: getattr(batch, name)[:, BURN_IN:] for name in ("terminated", "truncated")}
    extras = {"mask": batch.extras["mask"][:, BURN_IN:], "h": columns["h"].numpy(), "c": columns["c"].numpy()}
    rest = alone.prepare(Transitions(**parts, extras=extras)) | {"targets": columns["targets"]}
    # a burn-in that ends with an episode is reset by the first step that is learned from
    rest[BEGINS] = columns[BEGINS]
    [alone.step(minibatch) for minibatch in alone.minibatches(rest)]
    torch.testing.assert_close(alone.policy.flat.gradient, gradient)


def test_sequences_may_begin_with_zeros() -> None:
    learner, batch, _ = played(settings({"replay_burn_in": 0, "zero_init_states": True}))
    columns = learner.prepare(batch)
    for name in ("h", "c"):
        assert columns[name].shape == (len(batch), 6) and (columns[name] == 0).all()
    assert any(batch.extras[name].any() for name in ("h", "c"))


def test_steps_that_were_not_recorded_change_no_bit() -> None:
    weights = []
    for garbage in (0.0, np.nan, 1e30):
        config = settings(n_step=3, model=LSTM | PREVIOUS).copy().freeze()
        worker = RolloutWorker(config)
        learner = DQNLearner(config, Short.observation_space, Short.action_space)
        worker.set_weights({DEFAULT_POLICY: learner.weights()})
        assert config.sequences is not None
        cutter, found = SequenceCutter(config.sequences), []
        for index in range(6):
            rollout = copy.deepcopy(worker.sample().rollouts[DEFAULT_POLICY])
            # columns that are away for some steps, also right after the burn-in and at the end of a sequence
            for t, column in ((index % 4, 0), (3, 1), (0, 2)):
                rollout.mask[t, column] = False
                rollout.obs[t, column] = rollout.next_obs[t, column] = garbage
                rollout.rewards[t, column] = garbage
                rollout.actions[t, column] = 0 if garbage == 0.0 else 2
            found.append(cutter.add(rollout))
        batch = joined([one for one in found if one is not None])
        assert count_steps(batch) < batch.rewards.size
        learner.update(batch, 0)
        weights.append(learner.weights())
        assert np.isfinite(weights[0]).all()
    assert np.array_equal(weights[0], weights[1]) and np.array_equal(weights[0], weights[2])


def test_priorities_are_nine_parts_of_the_largest_error_and_one_of_the_mean() -> None:
    learner, batch, _ = played(settings(train_batch_size=8))
    batch.extras["mask"][1, -2:] = False
    columns = learner.prepare(batch)
    parts = [*learner.minibatches(columns)]
    assert [len(part[VALID]) for part in parts] == [8, 6, *[8] * (len(batch) - 2)]
    outputs = learner.policy(*(parts[0][name] for name in learner.policy.inputs))
    errors = learner.loss(outputs, parts[0]).rows["td_errors"].abs()
    stats, rows = learner.update(batch, 0)
    assert rows["td_errors"].shape == (len(batch), 1)
    assert LARGEST == 0.9
    assert rows["td_errors"][0, 0] == pytest.approx(float(0.9 * errors.max() + 0.1 * errors.mean()), rel=1e-4)
    assert stats["mean_td_error"] < rows["td_errors"].mean(), "errors of the steps, of either sign"


@pytest.mark.parametrize("variant", [{}, {"num_atoms": 5, "v_min": -2.0, "v_max": 2.0}])
def test_two_learners_compute_what_one_does(variant: dict[str, Any]) -> None:
    config = settings(train_batch_size=48, **variant)
    whole, batch, _ = played(config)
    batch.extras["mask"][0, -4:] = False
    batch.extras["weights"] = np.linspace(0.1, 1.0, len(batch)).astype(np.float32)
    assert config.rows_per_update == 6
    halves = []
    shares = config.copy().resources(num_learner_workers=2).freeze()
    for rank in (0, 1):
        half = DQNLearner(shares, Short.observation_space, Short.action_space, rank=rank, world_size=2)
        half.set_state(whole.state())
        halves.append(half)
    columns = whole.prepare(batch)
    first = next(iter(whole.minibatches(columns)))
    whole.policy.flat.gradient.zero_()
    whole.parameters.gradient(first)
    total = torch.zeros_like(whole.policy.flat.gradient)
    for half in halves:
        part = next(iter(half.minibatches(half.prepare(batch))))
        half.policy.flat.gradient.zero_()
        half.parameters.gradient(part)
        total += half.policy.flat.gradient * part["share"] / 2
    torch.testing.assert_close(total, whole.policy.flat.gradient)


class Recall(gym.Env[np.ndarray, int]):
    """The first observation shows which action is rewarded at the end of four steps; the others show the time."""

    observation_space, action_space = spaces.Box(-1, 1, (3,)), spaces.Discrete(2)

    def __init__(self, **_: Any) -> None:
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps, self.wanted = 0, int(self.np_random.integers(2))
        return np.array([2 * self.wanted - 1, 0, 0], np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        over = self.steps == 4
        obs = np.array([0, self.steps / 4, self.steps == 3], np.float32)
        return obs, float(over and action == self.wanted), over, False, {}


def recalled(model: dict[str, Any], **training: Any) -> float:
    """The mean greedy return after 6000 steps of `Recall`."""
    config = DQNConfig().environment(Recall).rollouts(num_envs_per_worker=8).debugging(seed=1)
    config = config.exploration(exploration_config={"type": "EpsilonGreedy", "epsilon_timesteps": 3000})
    config = config.training(gamma=0.9, lr=0.005, hiddens=[16], train_batch_size=128, training_intensity=8.0)
    config = config.training(num_steps_sampled_before_learning_starts=200, target_network_update_freq=200)
    config = config.training(model={"fcnet_hiddens": [16]} | model, **training)
    config = config.evaluation(evaluation_duration=40).reporting(min_sample_timesteps_per_iteration=6000)
    with config.build() as algorithm:
        algorithm.train()
        return float(algorithm.evaluate()["evaluation"]["episode_reward_mean"])


@pytest.mark.parametrize(
    "buffer",
    [{"replay_burn_in": 4}, {"prioritized_replay": False}, {"replay_burn_in": 4, "zero_init_states": True}],
)
def test_a_memory_learns_what_is_shown_first(buffer: dict[str, Any]) -> None:
    memory = {"use_lstm": True, "lstm_cell_size": 16, "max_seq_len": 8}
    assert recalled(memory, replay_buffer_config=buffer) == 1.0


def test_without_a_memory_it_cannot_be_learnt() -> None:
    assert recalled({}) < 0.8


def test_a_truncated_episode_is_worth_what_would_follow() -> None:
    config = DQNConfig().environment(CutOff).rollouts(num_envs_per_worker=4).debugging(seed=1)
    config = config.training(gamma=0.9, lr=0.01, hiddens=[8], train_batch_size=128, training_intensity=16.0, n_step=3)
    config = config.training(num_steps_sampled_before_learning_starts=200, target_network_update_freq=50)
    config = config.training(model={"fcnet_hiddens": [8], "use_lstm": True, "lstm_cell_size": 8, "max_seq_len": 16})
    config = config.training(replay_buffer_config={"replay_burn_in": 4})
    with config.reporting(min_sample_timesteps_per_iteration=4000).build() as algorithm:
        algorithm.train()
        _, _, extras = algorithm.compute_single_action(np.ones(1, np.float32), full_fetch=True, explore=False)
    np.testing.assert_allclose(extras["action_dist_inputs"], 10.0, atol=0.7)


def full(**training: Any) -> DQNConfig:
    config = settings(**({"model": LSTM | PREVIOUS, "n_step": 2} | training)).environment("CartPole-v1")
    config = config.rollouts(observation_filter="MeanStdFilter").training(num_steps_sampled_before_learning_starts=64)
    return config.reporting(min_sample_timesteps_per_iteration=130).evaluation(evaluation_duration=2)


@pytest.mark.parametrize("training", [{}, {"noisy": True}, {"num_atoms": 5, "v_max": 50.0}])
def test_resumed_is_uninterrupted_bit_for_bit(training: dict[str, Any], tmp_path: Path) -> None:
    with full(**training).build() as one:
        for _ in range(3):
            one.train()
        path = one.save(tmp_path / "checkpoint")
        with Algorithm.from_checkpoint(path) as two:
            for _ in range(2):
                expected, found = (algorithm.train() for algorithm in (one, two))
                assert found["info"]["learner"] == expected["info"]["learner"]
                assert found["episode_reward_mean"] == expected["episode_reward_mean"]
            for policy, weights in one.learners.weights().items():
                assert np.array_equal(weights, two.learners.weights()[policy])
            state: Any = None
            for _ in range(3):
                (action, after, first), (same, _, second) = (
                    algorithm.compute_single_action(np.ones(4, np.float32), state, explore=False, full_fetch=True)
                    for algorithm in (one, two)
                )
                assert action == same and np.array_equal(first["action_dist_inputs"], second["action_dist_inputs"])
                assert len(after) == 4 and (state is None or (after[0] != state[0]).any())
                state = after


def test_a_memory_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    with full().build() as one:
        one.train()
        path = one.save(tmp_path / "checkpoint")
    other = full().training(replay_buffer_config={"replay_burn_in": 5})
    text = "columns/obs is an array of float32 with shape"
    with other.build() as two, pytest.raises(CheckpointError, match=text):
        two.restore(path)


def test_train_batches_and_capacity_are_in_steps() -> None:
    config = full(train_batch_size=40, training_intensity=1.0).rollouts(num_envs_per_worker=1)
    assert config.rows_per_update == 5
    with config.training(replay_buffer_config={"capacity": 70}).build() as algorithm:
        result = algorithm.train()
        trained = result["num_env_steps_trained"]
        assert result["num_env_steps_sampled"] == 132
        assert algorithm.memory.buffers[DEFAULT_POLICY].capacity == 70 // (BURN_IN + 8)  # type: ignore[attr-defined]
        assert trained == 2 * 5 * 8, "steps of 2 updates, at 80 and at 120 steps, without those of a burn-in"


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (DQNConfig().training(model={"use_attention": True}), "or set model.use_lstm"),
        (SimpleQConfig().training(model={"use_lstm": True}), "this algorithm has no network with a memory"),
        (ApexDQNConfig().training(model={"use_lstm": True}), "this algorithm has no network with a memory"),
        (settings(model={"use_lstm": False}), "replay_buffer_config.replay_burn_in=3: there is no memory"),
        (
            settings({"replay_burn_in": 0, "zero_init_states": True}, model={"use_lstm": False}),
            "replay_buffer_config.zero_init_states=True: there is no memory",
        ),
        (settings({"replay_burn_in": -1}), "replay_burn_in=-1"),
        (settings({"capacity": 10}), "replay_buffer_config.capacity=10: it holds no sequence of 11 steps"),
        (
            settings().rollouts(rollout_fragment_length=9),
            "rollout_fragment_length=9: the sequences of model.max_seq_len=8 steps",
        ),
        (settings().rollouts(batch_mode="complete_episodes"), "Set it to 'truncate_episodes'"),
    ],
)
def test_what_does_not_go_together_is_refused(config: Any, text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        config.environment("CartPole-v1").validate()
    assert text in str(raised.value)
