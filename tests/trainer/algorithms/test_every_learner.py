"""What holds for the learner of every algorithm: two are one, and what no learner may learn from changes nothing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from ranks import Average
from rollouts import ACTIONS, LSTM, OBS, rollout
from transitions import ACTIONS as REAL
from transitions import batch

from reef.algorithms.registry import ALGORITHMS, algorithm_class
from reef.batch import FragmentGradient, Rollout, Transitions
from reef.replay.n_step import NStep, to_the_end

Case = tuple[str, spaces.Space[Any], dict[str, Any]]

ROWS = 8
RECURRENT = {"model": LSTM | {"fcnet_hiddens": [4]}}
MINIBATCHES = {"sgd_minibatch_size": ROWS, "num_sgd_iter": 2, "train_batch_size": 18}
OLD_TARGET = {"use_kl_loss": True, "num_sgd_iter": 2, "target_update_frequency": 3}
ON_CPU = {"num_gpus": 0.0, "num_rollout_workers": 0}
RECORDED = {"input_": "unread.json"}
FROM_ROLLOUTS: list[Case] = [
    *((name, ACTIONS, {}) for name in ("A2C", "A3C", "APPO", "IMPALA")),
    *((name, REAL, {}) for name in ("A2C", "A3C", "APPO", "IMPALA")),
    *((name, ACTIONS, RECURRENT) for name in ("A2C", "A3C", "APPO", "IMPALA")),
    *(("PG", actions, {"use_critic": critic}) for actions in (ACTIONS, REAL) for critic in (True, False)),
    *((name, actions, MINIBATCHES) for name in ("DDPPO", "PPO") for actions in (ACTIONS, REAL)),
    *((name, ACTIONS, MINIBATCHES | RECURRENT) for name in ("DDPPO", "PPO")),
    ("A2C", ACTIONS, {"use_gae": False, "normalize_advantages": True}),
    ("APPO", ACTIONS, RECURRENT | {"vtrace": False}),
    *(("APPO", actions, OLD_TARGET) for actions in (ACTIONS, REAL)),
    ("IMPALA", ACTIONS, {"vtrace": False}),
]
PRIORITIZED: list[Case] = [
    ("APEX", ACTIONS, ON_CPU),
    ("DQN", ACTIONS, {}),
    ("DQN", ACTIONS, {"num_atoms": 5, "v_min": -2.0, "v_max": 2.0}),
    ("SimpleQ", ACTIONS, {}),
    ("SAC", ACTIONS, {}),
    ("SAC", REAL, {}),
    ("APEX_DDPG", REAL, ON_CPU),
    ("DDPG", REAL, {"use_huber": True}),
    ("TD3", REAL, {}),
    ("TQC", REAL, {"n_critics": 3}),
]
FROM_RECORDINGS: list[Case] = [
    ("CQL", ACTIONS, RECORDED | {"bc_iters": 1}),
    ("CQL", REAL, RECORDED | {"bc_iters": 1, "num_actions": 3}),
    ("IQL", ACTIONS, RECORDED),
    ("IQL", REAL, RECORDED),
    *((name, actions, RECORDED) for name in ("BC", "MARWIL") for actions in (ACTIONS, REAL)),
]
WITH_TARGET = [*PRIORITIZED, *FROM_RECORDINGS[:4], ("APPO", ACTIONS, {})]
SCHEDULES: dict[str, list[list[float]]] = {  # over 100 steps; those of them that an algorithm has
    "lr": [[0, 0.01], [60, 0.002], [100, 0.0005]],
    "actor_lr": [[0, 0.001], [80, 0.005]],
    "entropy_coeff": [[0, 0.1], [50, 0.01]],
}
# The weight of a penalty that is adapted would grow without an end, as the batch stays.
KL = {"kl_coeff": 0.0}
# A3C and ES refuse more learners than one; those of DD-PPO have batches of their own, see test_ddppo.py.
ALONE = {"A3C", "DDPPO", "ES"}
TOGETHER = [case for case in (*FROM_ROLLOUTS, *PRIORITIZED, *FROM_RECORDINGS) if case[0] not in ALONE]
ONE_OF_EACH = [*{name: (name, actions, given) for name, actions, given in TOGETHER}.values()]


def each(cases: list[Case]) -> Any:
    names = [f"{name}-{type(actions).__name__}-{','.join(given)}" for name, actions, given in cases]
    return pytest.mark.parametrize(("name", "actions", "given"), cases, ids=names)


def learner(name: str, actions: spaces.Space[Any], given: dict[str, Any], **ranks: Any) -> Any:
    small = {"model": {"fcnet_hiddens": [4]}, "train_batch_size": ROWS, "lr": 0.01, "seed": 0}
    kind = algorithm_class(name)
    return kind.learner_class(kind.config_class.from_dict(small | given), OBS, actions, **ranks)


def update(one: Any, given: Rollout | Transitions, timestep: int = 0) -> Any:
    if one.learns_from is FragmentGradient:
        given = one.gradient_of(given, timestep)
    return one.update(given, timestep)


def played(one: Any, steps: int = 6) -> Rollout:
    """Steps in three columns, with actions of the learner's policy."""
    drawn = rollout(steps, 3)
    obs, next_obs = drawn.obs.copy(), drawn.next_obs.copy()
    actions = drawn.actions
    if one.policy.action_layout.space == REAL:
        actions = np.random.default_rng(1).uniform(-1, 1, (steps, 3, 1)).astype(np.float32)
    return replace(drawn, obs=obs, next_obs=next_obs, actions=actions, state_in=one.policy.initial_state(3))


def replayed(actions: spaces.Space[Any], **extras: Any) -> Transitions:
    """Rows with rewards of their own."""
    drawn = batch(ROWS, **extras)
    rewards = np.random.default_rng(2).standard_normal(ROWS).astype(np.float32)
    return replace(drawn, rewards=rewards, actions=drawn.actions if actions == REAL else np.arange(ROWS) % 2)


def importance() -> np.ndarray[Any, Any]:
    return np.linspace(0.1, 1.0, ROWS, dtype=np.float32)


def test_every_algorithm_has_a_case() -> None:
    assert {name for name, *_ in TOGETHER} | ALONE == set(ALGORITHMS)
    assert {name for name, *_ in (*FROM_ROLLOUTS, *PRIORITIZED, *FROM_RECORDINGS)} | {"ES"} == set(ALGORITHMS)


@each(TOGETHER)
def test_two_learners_come_to_the_weights_of_one_on_the_joint_batch(
    name: str, actions: spaces.Space[Any], given: dict[str, Any]
) -> None:
    average, shares = Average(), []
    one = learner(name, actions, given)

    def reduce(rank: int, tensor: torch.Tensor) -> None:
        average.of(rank)(tensor)
        shares.append(average.given[rank])

    both = [learner(name, actions, given, rank=rank, world_size=2, reduce=partial(reduce, rank)) for rank in range(2)]
    before = one.weights()
    weights = {"weights": importance()} if (name, actions, given) in PRIORITIZED else {}
    taken = played(one) if one.learns_from is Rollout else replayed(actions, **weights)
    with ThreadPoolExecutor(2) as pool:
        for timestep in range(3):
            update(one, taken, timestep)
            list(pool.map(lambda each, timestep=timestep: update(each, taken, timestep), both))
    assert np.abs(one.weights() - before).max() > 1e-3
    assert not torch.equal(*shares[:2]), "each has its own part of the batch"
    np.testing.assert_array_equal(both[0].weights(), both[1].weights())
    np.testing.assert_allclose(both[0].weights(), one.weights(), rtol=1e-4, atol=1e-5)


@each(ONE_OF_EACH)
def test_two_learners_follow_schedules_as_one_does_over_100_updates(
    name: str, actions: spaces.Space[Any], given: dict[str, Any]
) -> None:
    average = Average()
    known = algorithm_class(name).config_class.by_key.keys()
    given = given | {key: value for key, value in (SCHEDULES | KL).items() if key in known}
    one = learner(name, actions, given)
    both = [learner(name, actions, given, rank=rank, world_size=2, reduce=average.of(rank)) for rank in range(2)]
    taken = played(one) if one.learns_from is Rollout else replayed(actions, weights=importance())
    with ThreadPoolExecutor(2) as pool:
        for timestep in range(100):
            steps = replace(taken, rewards=np.roll(taken.rewards, timestep, axis=0))
            expected = update(one, steps, timestep).stats
            for found in pool.map(lambda each, *made: update(each, *made).stats, both, [steps] * 2, [timestep] * 2):
                rates = {key for key in found if key.endswith("lr") or key in SCHEDULES}
                assert rates and {key: found[key] for key in rates} == {key: expected[key] for key in rates}
    np.testing.assert_array_equal(both[0].weights(), both[1].weights())
    np.testing.assert_allclose(both[0].weights(), one.weights(), rtol=1e-4, atol=1e-4)


def with_dead_steps(steps: Rollout, garbage: float) -> Rollout:
    """Five dead steps that hold `garbage`: alone, two in a row, first and last ones, before and after an end."""
    mask, truncated, terminated = steps.mask.copy(), steps.truncated.copy(), steps.terminated.copy()
    truncated[2, 0] = truncated[5, 2] = terminated[6, 1] = True
    for at in ((3, 0), (7, 1), (0, 2), (6, 2), (7, 2)):
        mask[at] = False
        for column in (steps.obs, steps.next_obs, steps.rewards, *steps.extras.values()):
            column[at] = garbage
        steps.actions[at] = garbage if steps.actions.dtype == np.float32 else garbage > 0.0
    return replace(steps, mask=mask, truncated=truncated, terminated=terminated)


def learnt_beside(garbage: float, name: str, actions: spaces.Space[Any], given: dict[str, Any]) -> Any:
    """The weights after three updates on steps of which some are dead."""
    one = learner(name, actions, given)
    before = one.weights()
    taken: Any = with_dead_steps(played(one, 8), garbage)
    if one.learns_from is Transitions:
        whole = name in ("BC", "MARWIL")
        taken = to_the_end(taken, 0.9) if whole else NStep(3, 0.9).add(taken)
    for timestep in range(3):
        update(one, taken, timestep)
    assert (one.weights() != before).any()
    return one.weights()


@each([*FROM_ROLLOUTS, *PRIORITIZED, *FROM_RECORDINGS])
def test_what_dead_steps_hold_changes_no_bit(name: str, actions: spaces.Space[Any], given: dict[str, Any]) -> None:
    weights, *others = (learnt_beside(garbage, name, actions, given) for garbage in (0.0, 5.0, -1e6))
    assert np.isfinite(weights).all()
    for other in others:
        np.testing.assert_array_equal(other, weights)


@each(PRIORITIZED)
def test_new_priorities_are_errors_without_the_weights_of_the_rows(
    name: str, actions: spaces.Space[Any], given: dict[str, Any]
) -> None:
    plain, weighted = learner(name, actions, given), learner(name, actions, given)
    errors = [
        update(one, replayed(actions, weights=weights)).rows["td_errors"]
        for one, weights in ((plain, np.ones(ROWS, np.float32)), (weighted, importance()))
    ]
    assert errors[0].shape == (1, ROWS) and errors[0].all()
    np.testing.assert_array_equal(*errors)
    assert (plain.weights() != weighted.weights()).any(), "of the loss they are a part"


@each(WITH_TARGET)
def test_the_optimizer_has_all_parameters_of_the_online_network_and_none_of_the_target(
    name: str, actions: spaces.Space[Any], given: dict[str, Any]
) -> None:
    one = learner(name, actions, given)
    trained = [parameter.data_ptr() for each in one.trained.values() for parameter in each.optimizer.flat.parameters]
    assert len(trained) == len(set(trained)), "each is trained by one loss"
    assert set(trained) == {parameter.data_ptr() for parameter in one.policy.parameters()}
    assert not set(trained) & {parameter.data_ptr() for parameter in one.target.network.parameters()}
    assert not one.target.network.training, "layers such as dropout do nothing in it"
