"""DD-PPO: in process it is PPO, several ranks are one on the joint batch, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from ranks import Average
from rollouts import ACTIONS, LSTM, NESTED, OBS, Nested, rollout

from reef.algorithms.ddppo import DDPPOConfig, DDPPOLearner
from reef.algorithms.ppo import PPOConfig, PPOLearner
from reef.batch import Rollout, concat_columns
from reef.errors import ConfigError
from reef.learn.learner import Update
from reef.nn.gradients import SHARE, Columns

SMALL = {"lr": 0.01, "sgd_minibatch_size": 8, "num_sgd_iter": 3, "kl_coeff": 0.2, "entropy_coeff": 0.01}


def two_ranks(batches: list[Rollout], updates: int = 1, **training: Any) -> tuple[list[DDPPOLearner], list[Update]]:
    """Two learners that have made so many updates on a batch each."""
    average = Average()
    ranks = [
        DDPPOLearner(settings(DDPPOConfig, **training), OBS, ACTIONS, rank=r, world_size=2, reduce=average.of(r))
        for r in range(2)
    ]
    with ThreadPoolExecutor(2) as pool:
        for timestep in range(updates):
            found = list(pool.map(lambda one, batch, t=timestep: one.update(batch, t), ranks, batches))
    return ranks, found


def settings(kind: type[PPOConfig], **training: Any) -> Any:
    config = kind().training(**(SMALL | {"train_batch_size": 36, "model": {"fcnet_hiddens": [4]}} | training))
    return config.debugging(seed=0).freeze()


class OnUnions(PPOLearner):
    """PPO on minibatches that are made of those that two ranks had."""

    cut: list[list[Columns]]

    def minibatches(self, columns: Columns) -> Iterator[Columns]:
        for parts in zip(*self.cut, strict=True):
            yield {name: torch.cat([part[name] for part in parts]) for name in parts[0] if name != SHARE}


@pytest.mark.parametrize("columns", [(3, 3), (3, 1)])
@pytest.mark.parametrize("normalize", [True, False])
def test_two_ranks_come_to_the_weights_of_one_on_the_joint_batch(columns: tuple[int, int], normalize: bool) -> None:
    """With a minibatch as large as the batch it does not matter which steps each minibatch has."""
    batches = [rollout(6, count, seed=seed) for seed, count in enumerate(columns)]
    size = 6 * sum(columns)
    # where one rank has fewer steps, all of them have no more than it has times two
    shared = {"sgd_minibatch_size": size, "train_batch_size": size, "normalize_advantages": normalize}
    alone = PPOLearner(settings(PPOConfig, **shared), OBS, ACTIONS)
    updates = 4
    ranks, found = two_ranks(batches, updates, **(shared | {"sgd_minibatch_size": 36, "train_batch_size": 36}))
    for _ in range(updates):
        expected = alone.update(concat_columns(batches), 0).stats
    np.testing.assert_array_equal(ranks[0].weights(), ranks[1].weights())
    np.testing.assert_allclose(ranks[0].weights(), alone.weights(), rtol=1e-4, atol=1e-5)
    assert found[0].stats == found[1].stats
    if columns == (3, 3):
        assert found[0].stats == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_two_ranks_follow_schedules_as_one_does_over_100_updates() -> None:
    batches = [rollout(6, 3, seed=seed) for seed in range(2)]
    schedules = {"lr": [[0, 0.01], [60, 0.002], [100, 0.0005]], "entropy_coeff": [[0, 0.1], [50, 0.01]]}
    shared = schedules | {"sgd_minibatch_size": 36, "train_batch_size": 36, "kl_coeff": 0.0}
    alone = PPOLearner(settings(PPOConfig, **shared), OBS, ACTIONS)
    ranks, found = two_ranks(batches, 100, **shared)
    for timestep in range(100):
        expected = alone.update(concat_columns(batches), timestep).stats
    np.testing.assert_array_equal(ranks[0].weights(), ranks[1].weights())
    np.testing.assert_allclose(ranks[0].weights(), alone.weights(), rtol=1e-4, atol=1e-4)
    assert found[0].stats == found[1].stats == pytest.approx(expected, rel=1e-3, abs=1e-5)
    assert 0.0005 < expected["cur_lr"] < 0.002


def test_minibatches_of_two_ranks_are_those_of_one_that_are_their_unions() -> None:
    batches = [rollout(6, 3, seed=seed) for seed in range(2)]
    cut: list[list[Columns]] = [[], []]

    class Noting(DDPPOLearner):
        def step(self, minibatch: Columns) -> Any:
            cut[self.rank].append(dict(minibatch))
            return super().step(minibatch)

    average = Average()
    ranks = [Noting(settings(DDPPOConfig), OBS, ACTIONS, rank=r, world_size=2, reduce=average.of(r)) for r in range(2)]
    alone = OnUnions(settings(PPOConfig), OBS, ACTIONS)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda one, batch: one.update(batch, 0), ranks, batches))
    assert [len(steps) for steps in cut] == [3 * (36 // 8)] * 2
    alone.cut = cut
    expected = alone.update(concat_columns(batches), 0)
    np.testing.assert_allclose(ranks[0].weights(), alone.weights(), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(ranks[0].weights(), ranks[1].weights())
    assert found[0].stats == pytest.approx(expected.stats, rel=1e-3, abs=1e-5)


def test_a_gradient_step_has_one_average_of_the_whole_gradient() -> None:
    average = Average()
    sizes: list[list[int]] = [[], []]

    def reduce(tensor: torch.Tensor, rank: int) -> None:
        sizes[rank].append(tensor.numel())
        average.of(rank)(tensor)

    ranks = [
        DDPPOLearner(settings(DDPPOConfig), OBS, ACTIONS, rank=r, world_size=2, reduce=partial(reduce, rank=r))
        for r in range(2)
    ]

    def step_once(one: DDPPOLearner, batch: Rollout) -> None:
        one.begin(0)
        minibatch, *_ = one.minibatches(one.prepare(batch))
        assert SHARE not in minibatch
        sizes[one.rank].clear()
        one.step(minibatch)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(step_once, ranks, [rollout(6, 3, seed=seed) for seed in range(2)]))
    assert sizes == [[len(ranks[0].weights())]] * 2


def test_ranks_with_different_numbers_of_steps_make_as_many_gradient_steps_as_the_shortest_can() -> None:
    short = rollout(6, 3, seed=1)
    mask = short.mask.copy()
    mask[2:, 1:] = False
    batches = [rollout(6, 3, seed=0), replace(short, mask=mask)]  # 18 and 10 steps
    ranks, _ = two_ranks(batches)
    np.testing.assert_array_equal(ranks[0].weights(), ranks[1].weights())
    before = DDPPOLearner(settings(DDPPOConfig), OBS, ACTIONS).weights()
    assert (ranks[0].weights() != before).any()


def test_sequences_are_weighted_by_their_steps() -> None:
    model = LSTM | {"fcnet_hiddens": [4]}
    small = {"model": model, "sgd_minibatch_size": 16, "num_sgd_iter": 2}
    config = DDPPOConfig.from_dict(SMALL | small | {"train_batch_size": 40, "num_envs_per_worker": 3, "seed": 1})
    with config.environment("CartPole-v1").build() as algorithm:
        batches = [algorithm.workers.sample()[0].rollouts["default_policy"] for _ in range(2)]
        spaces = algorithm.workers.local_worker().spaces["default_policy"]
    average = Average()
    ranks = [DDPPOLearner(config, *spaces, rank=r, world_size=2, reduce=average.of(r)) for r in range(2)]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda one, batch: one.update(batch, 0), ranks, batches))
    np.testing.assert_array_equal(ranks[0].weights(), ranks[1].weights())
    assert np.isfinite(list(found[0].stats.values())).all()


@pytest.mark.parametrize("lengths", [(6, 4), (4, 6)])
def test_ranks_with_sequences_of_different_lengths_make_as_many_gradient_steps(lengths: tuple[int, int]) -> None:
    """A minibatch of 24 steps has for each rank two sequences of 6 steps, or three of 4."""
    model = LSTM | {"fcnet_hiddens": [4], "max_seq_len": 8}
    small = {"model": model, "sgd_minibatch_size": 24, "num_sgd_iter": 2}
    config = DDPPOConfig.from_dict(SMALL | small | {"train_batch_size": 60, "num_envs_per_worker": 6, "seed": 1})
    with config.environment("CartPole-v1").build() as algorithm:
        batches = [algorithm.workers.sample(length)[0].rollouts["default_policy"] for length in lengths]
        spaces = algorithm.workers.local_worker().spaces["default_policy"]
    average = Average()
    ranks = [DDPPOLearner(config, *spaces, rank=r, world_size=2, reduce=average.of(r)) for r in range(2)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda one, batch: one.update(batch, 0), ranks, batches))
    np.testing.assert_array_equal(ranks[0].weights(), ranks[1].weights())
    steps = [rank.state()["optimizers"]["policy"]["step"] for rank in ranks]
    assert steps == [2 * 3] * 2, "two of the six sequences in each step, in two passes"


@pytest.mark.parametrize("model", [{}, LSTM])
def test_in_process_it_is_ppo(model: dict[str, Any]) -> None:
    results = []
    given = {"train_batch_size": 40, "num_sgd_iter": 2, "sgd_minibatch_size": 20, "kl_coeff": 0.1, "seed": 4}
    for kind in (PPOConfig, DDPPOConfig):
        config = kind.from_dict(given | {"num_envs_per_worker": 2, "model": model | {"fcnet_hiddens": [8]}})
        with config.environment("CartPole-v1").build() as algorithm:
            results.append([algorithm.train()["info"]["learner"] for _ in range(3)])
            weights = algorithm.learners.weights()["default_policy"]
            acting = algorithm.get_policy().get_weights()
            assert sum(values.size for values in acting.values()) == weights.size
    assert results[0] == results[1]


def test_nested_spaces_are_trained_on() -> None:
    config = DDPPOConfig.from_dict({"train_batch_size": 20, "sgd_minibatch_size": 10, "model": {"fcnet_hiddens": [4]}})
    with config.environment(Nested).build() as algorithm:
        assert None not in algorithm.train()["info"]["learner"]["default_policy"]["learner_stats"].values()
        assert Nested.action_space.contains(algorithm.compute_single_action(NESTED.sample()))


def test_the_defaults_are_those_of_rllib() -> None:
    config = DDPPOConfig()
    assert (config.num_gpus_per_worker, config.num_envs_per_worker, config.kl_coeff) == (1, 5, 0.0)
    assert (config.num_sgd_iter, config.torch_distributed_backend) == (10, "gloo")
    assert config.keep_local_weights_in_sync


@pytest.mark.parametrize(
    ("key", "given", "problem"),
    [
        ("num_learner_workers", {"num_learner_workers": 2}, "the rollout workers of DD-PPO are its learners"),
        (
            "sample_async",
            {"sample_async": True, "num_rollout_workers": 2},
            "DD-PPO are its learners. Leave it at False",
        ),
        ("torch_distributed_backend", {"torch_distributed_backend": "nccl"}, "averaged by NCCL where each worker has"),
        ("sgd_minibatch_size", {"num_rollout_workers": 3}, "cannot be shared evenly by num_rollout_workers=3"),
        (
            "sgd_minibatch_size",
            {"num_rollout_workers": 2, "model": {"use_lstm": True, "max_seq_len": 60}},
            "holds no sequence of model.max_seq_len=60 steps for each rollout worker",
        ),
        ("vtrace", {"vtrace": True}, "DDPPO has no such setting"),
    ],
)
def test_what_cannot_be_is_refused_by_name(key: str, given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=key) as refusal:
        DDPPOConfig.from_dict(given).environment("CartPole-v1").build()
    assert problem in str(refusal.value)


def test_settings_of_it_are_refused_by_others() -> None:
    with pytest.raises(ConfigError, match="keep_local_weights_in_sync"):
        PPOConfig.from_dict({"keep_local_weights_in_sync": False})
