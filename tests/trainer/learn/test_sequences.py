"""Recurrent policies learn from what they acted on: the same state before every step, in sequences of any length."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from short_episodes import Short

from reef.algorithms.ppo import PPOConfig, PPOLearner
from reef.batch import Rollout, cut_ends
from reef.callbacks import DefaultCallbacks
from reef.envs.multi_agent import MultiAgentEnv
from reef.learn.learners import learners_of
from reef.learn.sequences import Sequences
from reef.nn.recurrent import VALID
from reef.rollout.worker import RolloutWorker
from reef.types import DEFAULT_POLICY

LSTM = {"use_lstm": True, "lstm_cell_size": 6}
MODELS: dict[str, dict[str, Any]] = {
    "LSTM": LSTM,
    "GRU": LSTM | {"recurrent_cell": "gru"},
    "LSTM with actions and rewards": LSTM | {"lstm_use_prev_action": True, "lstm_use_prev_reward": True},
    "GTrXL": {
        "use_attention": True,
        "attention_num_transformer_units": 2,
        "attention_dim": 6,
        "attention_num_heads": 2,
        "attention_head_dim": 3,
        "attention_memory_inference": 5,
        "attention_memory_training": 5,
        "attention_use_n_prev_actions": 3,
        "attention_use_n_prev_rewards": 2,
    },
}


def config(model: str, **rollouts: Any) -> PPOConfig:
    settings = PPOConfig().environment(Short).rollouts(num_envs_per_worker=3, rollout_fragment_length=11, **rollouts)
    settings = settings.training(model={"fcnet_hiddens": [4], **MODELS[model]}, train_batch_size=33)
    return settings.training(sgd_minibatch_size=33).debugging(seed=3)


def learner_and_rollouts(model: str, count: int = 2, **rollouts: Any) -> tuple[PPOLearner, list[Rollout]]:
    settings = config(model, **rollouts).freeze()
    worker = RolloutWorker(settings)
    spaces = worker.runners[DEFAULT_POLICY].columns
    learner = PPOLearner(settings, spaces.observation_space, spaces.action_space)
    generator = torch.Generator().manual_seed(0)
    learner.policy.flat.vector.copy_(0.7 * torch.randn(learner.policy.flat.vector.shape, generator=generator))
    worker.set_weights({DEFAULT_POLICY: learner.weights()})
    return learner, [worker.sample().rollouts[DEFAULT_POLICY] for _ in range(count)]


def sequences(learner: PPOLearner, length: int) -> Sequences:
    layout: Any = learner.layout
    layout.length = length
    return layout


@pytest.mark.parametrize("mode", ["truncate_episodes", "complete_episodes"])
@pytest.mark.parametrize("length", [1, 4, 11, 50])
@pytest.mark.parametrize("model", MODELS)
def test_what_is_learned_from_is_what_was_acted_on(model: str, length: int, mode: str) -> None:
    learner, rollouts = learner_and_rollouts(model, batch_mode=mode)
    layout = sequences(learner, length)
    for rollout in rollouts:
        inputs = layout.read(rollout).inputs
        told = layout.columns(rollout.mask, {"acted": rollout.extras["action_dist_inputs"]})
        parts = [*layout.minibatches(inputs | told, 10**6, 1, torch.Generator())]
        assert sum(len(part[VALID]) for part in parts) == len(rollout)
        for part in parts:
            outputs, _ = learner.policy(*(part[name] for name in learner.policy.inputs))
            torch.testing.assert_close(outputs, part["acted"], rtol=1e-4, atol=1e-5)


def hundredfold(batch: Any) -> Any:
    batch["rewards"] *= 100
    return batch


class WhenLearning(DefaultCallbacks):
    def on_learn_on_batch(self, *, train_batch: Any, **_: Any) -> None:
        hundredfold(train_batch)


class InEpisodes(DefaultCallbacks):
    def on_postprocess_trajectory(self, *, postprocessed_batch: Any, **_: Any) -> None:
        hundredfold(postprocessed_batch)


class InSamples(DefaultCallbacks):
    def on_sample_end(self, *, samples: Any, **_: Any) -> None:
        samples.rollouts[DEFAULT_POLICY].rewards[:] *= 100


@pytest.mark.parametrize("model", ["LSTM with actions and rewards", "GTrXL"])
@pytest.mark.parametrize(
    "changed",
    [*({"callbacks": each} for each in (WhenLearning, InEpisodes, InSamples)), {"learner_connector": hundredfold}],
)
def test_a_memory_reads_the_rewards_that_it_acted_on_whatever_is_learned_from(
    model: str, changed: dict[str, Any]
) -> None:
    settings = config(model).training(num_sgd_iter=1, vf_clip_param=None).assign(changed).freeze()
    worker = RolloutWorker(settings)
    (learner,) = learners_of(PPOLearner, settings, worker.spaces).values()
    with torch.no_grad():
        learner.policy.pi.weight *= 100  # so that what a memory holds changes much
    worker.set_weights({DEFAULT_POLICY: learner.weights()})
    worker.sample()
    stats = learner.update(worker.sample().rollouts[DEFAULT_POLICY], 0).stats
    assert stats["vf_loss"] > 100, "these are not the rewards that are learned from"
    assert stats["kl"] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("model", MODELS)
def test_values_do_not_depend_on_the_length_of_the_sequences(model: str) -> None:
    learner, (_, rollout) = learner_and_rollouts(model)
    ones, whole = (sequences(learner, length).read(rollout) for length in (2, 50))
    np.testing.assert_allclose(ones.values, whole.values, rtol=1e-4, atol=1e-5)
    goes_on = ~rollout.terminated
    np.testing.assert_allclose(ones.next_values[goes_on], whole.next_values[goes_on], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("model", MODELS)
def test_the_successor_of_a_cut_step_is_valued_with_the_state_after_it(model: str) -> None:
    """As if the episode had gone on: the value of the next step of a fragment that is one step longer."""
    learner, (rollout, after) = learner_and_rollouts(model)
    found = sequences(learner, 4).read(rollout).next_values[-1]
    goes_on = ~rollout.done[-1]
    assert goes_on.any()
    np.testing.assert_allclose(found[goes_on], learner.layout.read(after).values[0][goes_on], rtol=1e-4, atol=1e-5)
    cut = rollout.truncated.copy()
    cut[-1] = False
    assert cut.any()
    for t, column in np.argwhere(cut):
        row = slice(column, column + 1)
        kept = {name: values[row] for name, values in rollout.state_in.items()}
        truncated = rollout.truncated[: t + 2, row].copy()
        truncated[t] = False  # the same column, whose episode goes on with its own last observation
        obs = np.concatenate([rollout.obs[: t + 1, row], rollout.next_obs[t : t + 1, row]])
        same = {name: getattr(rollout, name)[: t + 2, row] for name in ("actions", "rewards", "terminated", "mask")}
        alone = Rollout(obs=obs, next_obs=obs, truncated=truncated, state_in=kept, **same)
        expected = learner.layout.read(alone).values[t + 1, 0]
        found_here = learner.layout.read(rollout).next_values[t, column]
        np.testing.assert_allclose(found_here, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("model", MODELS)
def test_a_restored_worker_remembers(model: str) -> None:
    settings = config(model).freeze()
    one, two = RolloutWorker(settings), RolloutWorker(settings.copy().debugging(seed=4).freeze())
    one.sample()
    two.set_weights(one.get_weights())
    two.set_state(one.state())
    first, second = (each.sample().rollouts[DEFAULT_POLICY] for each in (one, two))
    assert any(values.any() for values in first.state_in.values())
    for name, values in first.state_in.items():
        np.testing.assert_array_equal(values, second.state_in[name])
    np.testing.assert_array_equal(first.actions, second.actions)


def test_steps_that_do_not_count_are_not_learned_from() -> None:
    learner, (rollout, _) = learner_and_rollouts("LSTM", batch_mode="complete_episodes")
    assert not rollout.mask.all()
    columns = learner.prepare(rollout)
    steps = sum(len(part["actions"]) for part in sequences(learner, 4).minibatches(columns, 4, 1, torch.Generator()))
    assert steps == len(rollout)


def gradients(learner: PPOLearner, rollout: Rollout, size: int, world_size: int) -> list[torch.Tensor]:
    """What several learners of this policy would step by, for each minibatch of an even number of sequences."""
    layout = sequences(learner, 4)
    columns = learner.prepare(rollout)
    even = len(columns["mask"]) // 2 * 2
    columns = {name: column[: max(even, 1)] for name, column in columns.items()}
    found: list[list[torch.Tensor]] = []
    for rank in range(world_size):
        generator = torch.Generator().manual_seed(5)
        parts = layout.minibatches(columns, size, 1, generator, rank, world_size)
        found.append([])
        for part in parts:
            learner.policy.flat.gradient.zero_()
            learner.parameters.gradient(part)
            found[-1].append(learner.policy.flat.gradient * part.get("share", 1.0))
    return [sum(each) / world_size for each in zip(*found, strict=True)]  # type: ignore[misc]


@pytest.mark.parametrize("size", [8, 24, 10**6])
def test_two_learners_compute_the_gradient_of_one(size: int) -> None:
    """Though they have unequal numbers of steps that count."""
    learner, (rollout, _) = learner_and_rollouts("LSTM", batch_mode="complete_episodes")
    one, two = (gradients(learner, rollout, size, world_size) for world_size in (1, 2))
    assert len(one) == len(two)
    for alone, together in zip(one, two, strict=True):
        torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-6)


def test_no_sequence_is_left_out_between_learners() -> None:
    """Three sequences in a minibatch of two learners would be two: each has as many."""
    learner, (rollout, _) = learner_and_rollouts("LSTM")
    layout = sequences(learner, 11)
    columns = learner.prepare(rollout)
    steps = [
        sum(len(part[VALID]) for part in layout.minibatches(columns, 33, 1, torch.Generator().manual_seed(0), rank, 2))
        for rank in range(2)
    ]
    assert len(columns["mask"]) == 3
    assert steps == [11, 11], "the third has no partner in this pass"


def test_one_sequence_is_enough_for_two_learners() -> None:
    learner, (rollout, _) = learner_and_rollouts("LSTM")
    column = {
        name: getattr(rollout, name)[:, :1]
        for name in ("obs", "actions", "rewards", "next_obs", "terminated", "truncated", "mask")
    }
    extras = {name: values[:, :1] for name, values in rollout.extras.items()}
    alone = Rollout(**column, extras=extras, state_in={name: values[:1] for name, values in rollout.state_in.items()})
    assert len(gradients(learner, alone, 10**6, 2)) == 1


def test_whole_episodes_begin_with_nothing_remembered() -> None:
    _, rollouts = learner_and_rollouts("LSTM", batch_mode="complete_episodes")
    for rollout in rollouts:
        assert not any(values.any() for values in rollout.state_in.values())


def test_dead_steps_are_not_read_again() -> None:
    learner, (rollout, _) = learner_and_rollouts("LSTM")
    mask = rollout.mask.copy()
    mask[2:, 0] = False
    terminated = rollout.terminated.copy()
    terminated[1, 0] = True
    some = {name: getattr(rollout, name) for name in ("obs", "actions", "rewards", "next_obs", "truncated", "state_in")}
    found = learner.layout.read(Rollout(**some, terminated=terminated, mask=mask, extras=rollout.extras))
    assert np.isfinite(found.next_values).all()
    assert not cut_ends(Rollout(**some, terminated=terminated, mask=mask))[2:, 0].any()


class Late(MultiAgentEnv):
    """Agent 1 comes with the third step of each episode, which has 5 steps."""

    possible_agents = (0, 1)

    def __init__(self, context: Any) -> None:
        self.observation_spaces = dict.fromkeys(self.possible_agents, gym.spaces.Box(-1, 1, (2,)))
        self.action_spaces = dict.fromkeys(self.possible_agents, gym.spaces.Discrete(3))

    def seen(self) -> dict[Any, Any]:
        there = self.possible_agents if self.steps >= 2 else (0,)
        return {agent: self.random.uniform(-1, 1, 2).astype(np.float32) for agent in there}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.random, self.steps = np.random.default_rng(seed), 0
        return self.seen(), {}

    def step(self, actions: dict[Any, Any]) -> Any:
        self.steps += 1
        return self.seen(), dict.fromkeys(actions, float(self.random.normal())), {"__all__": self.steps == 5}, {}, {}


@pytest.mark.parametrize("model", MODELS)
def test_an_agent_that_comes_later_begins_with_nothing(model: str) -> None:
    settings = config(model).environment(Late).freeze()
    worker = RolloutWorker(settings)
    learner = PPOLearner(settings, *worker.spaces[DEFAULT_POLICY])
    generator = torch.Generator().manual_seed(0)
    learner.policy.flat.vector.copy_(0.7 * torch.randn(learner.policy.flat.vector.shape, generator=generator))
    worker.set_weights({DEFAULT_POLICY: learner.weights()})
    for _ in range(2):
        rollout = worker.sample().rollouts[DEFAULT_POLICY]
        assert not rollout.mask.all()
        for length in (4, 50):
            layout = sequences(learner, length)
            acted = layout.columns(rollout.mask, {"acted": rollout.extras["action_dist_inputs"]})
            for part in layout.minibatches(layout.read(rollout).inputs | acted, 10**6, 1, torch.Generator()):
                outputs, _ = learner.policy(*(part[name] for name in learner.policy.inputs))
                torch.testing.assert_close(outputs, part["acted"], rtol=1e-4, atol=1e-5)
