"""Every exploration: what it chooses, and which arguments it refuses.

It tests reef.rollout.exploration.action_box, reef.rollout.exploration.arguments, reef.rollout.exploration.discrete,
reef.rollout.exploration.exploration, reef.rollout.exploration.levels, reef.rollout.exploration.make,
reef.rollout.exploration.noise and reef.rollout.exploration.sub_exploration too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from reef.algorithms.dqn import DQNConfig
from reef.algorithms.sac import SACConfig
from reef.config import AlgorithmConfig
from reef.errors import ConfigError
from reef.nn.distributions import ActionDistribution, DistributionMaker, Squashed
from reef.nn.distributions.discrete import EXCLUDED
from reef.rollout.exploration import EXPLORATIONS, PER_WORKER, EpsilonGreedy, Exploration, SoftQ, make_exploration
from reef.rollout.worker import RolloutWorker
from reef.spaces import Layout
from reef.types import DEFAULT_POLICY

THREE = spaces.Discrete(3, start=5)
BOX = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 10.0], np.float32))
Q = np.array([[0.0, 2.0, 1.0]], np.float32)
EPSILON: dict[str, Any] = {"sub_exploration": {"type": "EpsilonGreedy"}}


def make(
    space: spaces.Space[Any], worker_index: int = 0, workers: int = 0, normalize: bool = True, **options: Any
) -> Exploration:
    config = AlgorithmConfig().exploration(exploration_config=options)
    config.rollouts(num_rollout_workers=workers).environment(normalize_actions=normalize)
    return make_exploration(config, Layout.of(space), worker_index)


def test_what_is_not_given_stays_as_the_algorithm_has_it() -> None:
    def explore(**options: Any) -> Any:
        config = DQNConfig().exploration(exploration_config=options)
        return make_exploration(config, Layout.of(spaces.Discrete(2)))

    path = "reef.rollout.exploration:EpsilonGreedy"
    for kind in ({}, {"type": "EpsilonGreedy"}, {"type": EpsilonGreedy}, {"type": path}):
        same = explore(**kind, final_epsilon=0.5)
        assert (same.initial_epsilon, same.final_epsilon, same.epsilon_timesteps) == (1.0, 0.5, 10_000)
    assert isinstance(explore(type="SoftQ", temperature=2.0), SoftQ), "another type has arguments of its own"


def act(
    exploration: Exploration, inputs: np.ndarray, timestep: int = 0, explore: bool = True, rows: int = 3000
) -> np.ndarray:
    distribution = ActionDistribution(DistributionMaker(exploration.actions.layout), np.repeat(inputs, rows, 0))
    generator = np.random.default_rng(0)
    actions, logp = exploration.get_exploration_action(distribution, timestep, explore, generator)
    assert logp.shape == (rows,)
    return actions


def shares(actions: np.ndarray) -> list[float]:
    return (np.bincount(actions, minlength=3) / len(actions)).tolist()


@pytest.mark.parametrize("kind", [*EXPLORATIONS, *PER_WORKER])
def test_without_exploring_every_kind_takes_the_best_action(kind: str) -> None:
    noisy = "GaussianNoise" in kind or "UhlenbeckNoise" in kind
    exploration = make(BOX if noisy else THREE, type=kind, **(EPSILON if kind == "ParameterNoise" else {}))
    actions = act(exploration, np.array([[0.1, 0.2, 0.0, 0.0]]) if noisy else Q, explore=False)
    expected = [0.1, 0.2] if noisy else 1
    np.testing.assert_allclose(actions, np.broadcast_to(expected, actions.shape))


def test_epsilon_falls_after_the_warmup() -> None:
    greedy = make(
        THREE, type="EpsilonGreedy", initial_epsilon=0.8, final_epsilon=0.2, warmup_timesteps=10, epsilon_timesteps=100
    )
    epsilons = [greedy.info(t)["cur_epsilon"] for t in (0, 10, 60, 110, 1000)]
    assert epsilons == pytest.approx([0.8, 0.8, 0.5, 0.2, 0.2])
    assert shares(act(greedy, Q, timestep=60)) == pytest.approx([0.5 / 3, 0.5 + 0.5 / 3, 0.5 / 3], abs=0.03)


def test_epsilon_without_timesteps_is_the_final_one() -> None:
    assert make(THREE, type="EpsilonGreedy", epsilon_timesteps=0).info(0) == {"cur_epsilon": 0.05}


@pytest.mark.parametrize("warmup", [1, 2, 1000])
def test_epsilon_without_timesteps_falls_at_the_end_of_the_warmup(warmup: int) -> None:
    greedy = make(THREE, type="EpsilonGreedy", warmup_timesteps=warmup, epsilon_timesteps=0, final_epsilon=0.2)
    assert [greedy.info(t)["cur_epsilon"] for t in (0, warmup // 2, warmup - 1, warmup)] == [1.0, 1.0, 1.0, 0.2][-4:]


def test_an_epsilon_schedule_takes_the_place_of_the_ramp() -> None:
    greedy = make(THREE, type="EpsilonGreedy", epsilon_schedule=[[0, 1.0], [10, 0.0]])
    assert greedy.info(5) == {"cur_epsilon": 0.5}


@pytest.mark.parametrize("constant", [0.1, 0, 1])
def test_an_epsilon_schedule_may_be_a_constant(constant: float) -> None:
    greedy = make(THREE, type="EpsilonGreedy", epsilon_schedule=constant)
    assert [greedy.info(t)["cur_epsilon"] for t in (0, 10**6)] == [constant, constant]


@pytest.mark.parametrize("kind", ["EpsilonGreedy", "Random", "SoftQ", "StochasticSampling"])
def test_masked_actions_are_never_taken(kind: str) -> None:
    masked = np.array([[np.finfo(np.float32).min, 2.0, 1.0]], np.float32)
    found = shares(act(make(THREE, type=kind), masked))
    assert found[0] == 0.0
    assert found[2] > 0.2


def test_soft_q_follows_the_temperature() -> None:
    expected = (np.exp(Q[0] / 2.0) / np.exp(Q[0] / 2.0).sum()).tolist()
    assert shares(act(make(THREE, type="SoftQ", temperature=2.0), Q)) == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize("temperature", [0.1, 1e-50])
def test_soft_q_of_little_temperature_is_greedy_and_masks_hold(temperature: float) -> None:
    values = np.array([[10.0, 20.0, np.finfo(np.float32).min]], np.float32)
    with np.errstate(all="raise"):
        assert shares(act(make(THREE, type="SoftQ", temperature=temperature), values)) == [0, 1, 0]


def test_sampling_is_uniform_at_first() -> None:
    sampling = make(THREE, type="StochasticSampling", random_timesteps=100)
    assert shares(act(sampling, 100 * Q, timestep=99)) == pytest.approx([1 / 3] * 3, abs=0.03)
    assert shares(act(sampling, 100 * Q, timestep=100)) == [0, 1, 0]


@pytest.mark.parametrize(
    ("space", "normalize", "low", "high"),
    [
        (BOX, True, [-1, -1], [1, 1]),
        (BOX, False, [-2, 0], [2, 10]),
        (spaces.MultiDiscrete([2, 4]), True, [0, 0], [1, 3]),
        (spaces.MultiBinary(2), True, [0, 0], [1, 1]),
        (spaces.Box(0, 10, (2,), np.int64), True, [-1, -1], [1, 1]),
        (spaces.Tuple((spaces.Discrete(3), spaces.Box(0.0, 5.0, (1,)))), True, [0, -1], [2, 1]),
    ],
)
def test_random_actions_fill_the_space(
    space: spaces.Space[Any], normalize: bool, low: list[float], high: list[float]
) -> None:
    random = make(space, normalize=normalize, type="Random")
    actions = act(random, np.zeros((1, DistributionMaker(Layout.of(space)).num_inputs), np.float32))
    assert actions.dtype == Layout.of(space).action_dtype
    np.testing.assert_allclose(actions.min(0), low, atol=0.05)
    np.testing.assert_allclose(actions.max(0), high, atol=0.05)


def logp_of(exploration: Exploration, inputs: np.ndarray, timestep: int = 0, rows: int = 4) -> tuple[Any, Any, Any]:
    """Actions [rows], their log-likelihoods by the exploration, and by the distribution."""
    maker = DistributionMaker(exploration.actions.layout)
    distribution = ActionDistribution(maker, np.repeat(np.asarray(inputs, np.float32), rows, 0))
    actions = exploration.explore(distribution, timestep, np.random.default_rng(0))
    return actions, exploration.logp(distribution, actions, timestep), distribution.logp(actions)


@pytest.mark.parametrize(
    ("space", "inputs", "expected", "normalize"),
    [
        (THREE, [0, 9, 1], -np.log(3), True),
        (THREE, [0, EXCLUDED, 1], -np.log(2), True),
        (spaces.MultiDiscrete([2, 3]), [0, 1, 0, 1, 2], -np.log(6), True),
        (spaces.MultiDiscrete([2, 3]), [0, EXCLUDED, 0, 1, EXCLUDED], -np.log(2), True),
        (spaces.MultiBinary(2), [0, 9], -np.log(4), True),
        (BOX, [0, 0, 1, 1], -2 * np.log(2), True),
        (BOX, [0, 0, 1, 1], -np.log(4 * 10), False),
        (spaces.Tuple((spaces.Discrete(3), spaces.Box(0.0, 5.0, (1,)))), [0, 1, 0, 0, 0], -np.log(3 * 2), True),
    ],
)
def test_all_random_actions_are_as_likely(space: Any, inputs: list[float], expected: float, normalize: bool) -> None:
    for options in ({"type": "Random"}, {"type": "StochasticSampling", "random_timesteps": 5}):
        exploration = make(space, normalize=normalize, **options)
        assert exploration.has_logp and not exploration.follows_policy(0)
        assert logp_of(exploration, np.array([inputs]))[1] == pytest.approx([expected] * 4)


def test_after_the_random_timesteps_actions_are_as_likely_as_the_policy_says() -> None:
    sampling = make(THREE, type="StochasticSampling", random_timesteps=5)
    assert [sampling.follows_policy(timestep) for timestep in (0, 4, 5)] == [False, False, True]
    _, logp, by_policy = logp_of(sampling, Q, timestep=5)
    np.testing.assert_array_equal(logp, by_policy)
    assert make(THREE, type="StochasticSampling").follows_policy(0)


def test_epsilon_is_shared_by_the_valid_actions() -> None:
    greedy = make(THREE, type="EpsilonGreedy", epsilon_schedule=0.6)
    actions, logp, _ = logp_of(greedy, Q, rows=50)
    assert set(actions) == {0, 1, 2}
    assert logp == pytest.approx(np.log(0.2 + 0.4 * (actions == 1)))
    actions, logp, _ = logp_of(greedy, np.array([[EXCLUDED, 2.0, 1.0]]), rows=50)
    assert logp == pytest.approx(np.log(0.3 + 0.4 * (actions == 1)))


@pytest.mark.parametrize("temperature", [10.0, 1.0, 0.1, 1e-50])
def test_soft_q_knows_its_likelihoods(temperature: float) -> None:
    soft = make(THREE, type="SoftQ", temperature=temperature)
    assert soft.has_logp and soft.follows_policy(0) == (temperature == 1.0)
    actions, logp, _ = logp_of(soft, np.array([[0.0, 2.0, EXCLUDED]]), rows=20)
    with np.errstate(over="ignore"):
        assert logp == pytest.approx(-np.log1p(np.exp(np.where(actions == 1, -2.0, 2.0) / temperature)))


@pytest.mark.parametrize(
    ("space", "options"),
    [
        (THREE, {"type": "Random"}),
        (THREE, {"type": "EpsilonGreedy", "epsilon_schedule": 0.6}),
        (THREE, {"type": "SoftQ", "temperature": 10.0}),
        (THREE, {"type": "Curiosity", "sub_exploration": {"type": "Random"}}),
        (spaces.MultiDiscrete([2, 3]), {"type": "StochasticSampling", "random_timesteps": 5}),
    ],
)
def test_the_likelihood_ratio_is_one_on_average(space: Any, options: dict[str, Any]) -> None:
    """E[policy / behavior] = 1 over the actions of the behavior, which is what weighing them by the ratio relies on."""
    inputs = np.array([[0.0, 1.0, 0.5, 0.2, 0.1][: DistributionMaker(Layout.of(space)).num_inputs]])
    _, logp, by_policy = logp_of(make(space, **options), inputs, rows=20_000)
    assert np.exp(by_policy - logp).mean() == pytest.approx(1.0, abs=0.03)


def test_noise_has_no_likelihood() -> None:
    for noise in (
        make(BOX, type="GaussianNoise"),
        make(BOX, type="OrnsteinUhlenbeckNoise"),
        make(THREE, type="ParameterNoise", **EPSILON),
        make(BOX, type="RE3", sub_exploration={"type": "GaussianNoise"}),
    ):
        assert not (noise.has_logp or noise.follows_policy(10**9))


def test_gaussian_noise_shrinks_and_stays_in_bounds() -> None:
    noise = make(BOX, type="GaussianNoise", random_timesteps=0, stddev=0.1, scale_timesteps=100)
    mean = np.array([[0.2, 0.99, 0.0, 0.0]], np.float32)
    early, late = act(noise, mean, timestep=0), act(noise, mean, timestep=100)
    assert early[:, 0].std() == pytest.approx(0.1, rel=0.1)
    assert late[:, 0].std() == pytest.approx(0.002, rel=0.1)
    assert early.max() == 1.0


def test_ornstein_uhlenbeck_noise_remembers_and_is_restored() -> None:
    options = {"type": "OrnsteinUhlenbeckNoise", "random_timesteps": 0, "ou_base_scale": 0.5, "ou_sigma": 0.0}
    noise, restored = make(BOX, **options), make(BOX, **options)
    noise.set_state({"walk": np.array([[0.4, -0.4]], np.float32)})
    zero = np.zeros((1, 4), np.float32)
    np.testing.assert_allclose(act(noise, zero, rows=1), [[0.4 * 0.85, -0.4 * 0.85]], rtol=1e-5)
    restored.set_state(noise.state())
    np.testing.assert_allclose(act(restored, zero, rows=1), [[0.4 * 0.85**2, -0.4 * 0.85**2]], rtol=1e-5)


@pytest.mark.parametrize("kind", ["OrnsteinUhlenbeckNoise", "Curiosity"])
def test_correlated_noise_goes_on_in_the_columns_that_act(kind: str) -> None:
    correlated = {"type": "OrnsteinUhlenbeckNoise", "random_timesteps": 0, "ou_sigma": 0.0}
    given = correlated if kind == "OrnsteinUhlenbeckNoise" else {"type": kind, "sub_exploration": correlated}
    exploration = make_exploration(SACConfig().exploration(exploration_config=given), Layout.of(BOX))
    noise: Any = getattr(exploration, "sub_exploration", exploration)
    noise.set_state({"walk": np.ones((2, 2), np.float32)})
    exploration.acts_in(np.array([False, True]))
    act(exploration, np.zeros((1, 4), np.float32), rows=2)
    np.testing.assert_allclose(noise.walk, [[1.0, 1.0], [0.85, 0.85]])
    assert act(exploration.apart(), np.zeros((1, 4), np.float32), rows=3).shape == (3, 2), "of no column"


@pytest.mark.parametrize("kind", ["OrnsteinUhlenbeckNoise", "Curiosity"])
def test_correlated_noise_begins_again_with_each_episode_and_questions_leave_it_alone(kind: str) -> None:
    correlated = {"type": "OrnsteinUhlenbeckNoise", "random_timesteps": 0}
    given = correlated if kind == "OrnsteinUhlenbeckNoise" else {"type": kind, "sub_exploration": correlated}
    config = (
        SACConfig().environment("Pendulum-v1", horizon=4).rollouts(rollout_fragment_length=3, num_envs_per_worker=2)
    )
    worker = RolloutWorker(config.exploration(exploration_config=given).debugging(seed=1))
    exploration = worker.runners[DEFAULT_POLICY].exploration
    noise: Any = getattr(exploration, "sub_exploration", exploration)
    worker.sample()
    walk = noise.walk.copy()
    assert np.abs(walk).min() > 0.0, "three steps into episodes of four"
    obs = np.zeros(3, np.float32)
    asked = {float(worker.get_policy().compute_single_action(obs, explore=True)[0][0]) for _ in range(3)}
    assert len(asked) == 3
    np.testing.assert_array_equal(noise.walk, walk)
    begun = dict[int, bool]()
    for step in (6, 9, 12):
        worker.sample()
        begun[step] = bool((noise.walk == 0.0).all())
    assert begun == {6: False, 9: False, 12: True}, "an episode ends with step 12"


@pytest.mark.parametrize("options", [{"type": "PerWorkerEpsilonGreedy"}, {"type": "EpsilonGreedy", "per_worker": True}])
@pytest.mark.parametrize(
    ("worker", "workers", "epsilon"), [(0, 8, 0.0), (1, 8, 0.4), (8, 8, 0.4**8), (1, 1, 0.4), (0, 0, 1.0)]
)
def test_every_worker_has_its_own_epsilon(worker: int, workers: int, epsilon: float, options: dict[str, Any]) -> None:
    greedy = make(THREE, worker, workers, **options)
    assert isinstance(greedy, EpsilonGreedy)
    assert greedy.epsilon(0) == pytest.approx(epsilon)
    if worker or not workers:
        assert greedy.info(0)["cur_epsilon"] == pytest.approx(epsilon)


def test_without_workers_an_older_name_follows_the_schedule_of_its_type_and_not_the_algorithms() -> None:
    def epsilon(**options: Any) -> float:
        config = DQNConfig().exploration(exploration_config=options)
        return make_exploration(config, Layout.of(spaces.Discrete(2))).info(10**6)["cur_epsilon"]

    assert epsilon(type="PerWorkerEpsilonGreedy") == 0.05
    assert epsilon(type="PerWorkerEpsilonGreedy", final_epsilon=0.3) == 0.3
    assert epsilon(per_worker=True) == 0.02


def test_every_worker_has_its_own_noise() -> None:
    for kind in ("GaussianNoise", "OrnsteinUhlenbeckNoise"):
        assert make(BOX, 2, 2, type=kind, per_worker=True).info(9)["cur_scale"] == pytest.approx(0.4**8)
    assert make(BOX, 2, 2, type="PerWorkerGaussianNoise").info(9)["cur_scale"] == pytest.approx(0.4**8)
    assert make(BOX, 1, 2, type="PerWorkerOrnsteinUhlenbeckNoise").info(9)["cur_scale"] == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("space", "kind", "name"),
    [
        (THREE, "PerWorkerEpsilonGreedy", "cur_epsilon"),
        (BOX, "PerWorkerGaussianNoise", "cur_scale"),
        (BOX, "PerWorkerOrnsteinUhlenbeckNoise", "cur_scale"),
    ],
)
def test_the_local_worker_tells_the_mean_of_those_that_sample(space: spaces.Space, kind: str, name: str) -> None:
    assert make(space, 0, 2, type=kind).info(9) == {name: pytest.approx((0.4 + 0.4**8) / 2)}


@pytest.mark.parametrize(
    "kind",
    [
        "EpsilonGreedy",
        "reef.rollout.exploration:EpsilonGreedy",
        "reef.rollout.exploration.EpsilonGreedy",
        EpsilonGreedy,
    ],
)
def test_the_type_is_a_name_a_path_or_a_class(kind: Any) -> None:
    assert make(THREE, type=kind, final_epsilon=0.5).info(10**6) == {"cur_epsilon": 0.5}


@pytest.mark.parametrize(
    ("space", "options", "words"),
    [
        (THREE, {"type": "EpsilonGredy"}, ["EpsilonGredy", "Did you mean 'EpsilonGreedy'?"]),
        (
            THREE,
            {"type": "EpsilonGreedy", "final_epsilom": 0.1},
            ["final_epsilom=0.1", "Did you mean 'final_epsilon'?"],
        ),
        (THREE, {"type": "EpsilonGreedy", "initial_epsilon": 2}, ["initial_epsilon=2", "from 0.0 to 1.0"]),
        (THREE, {"type": "EpsilonGreedy", "epsilon_timesteps": "many"}, ["epsilon_timesteps='many'"]),
        (THREE, {"type": "EpsilonGreedy", "per_worker": 1}, ["per_worker=1", "true or false"]),
        (THREE, {"type": "PerWorkerEpsilonGredy"}, ["Did you mean 'PerWorkerEpsilonGreedy'?"]),
        (THREE, {"type": "SoftQ", "temperature": 0.0}, ["temperature", "above 0"]),
        (THREE, {"type": "Random", "seed": 1}, ["seed=1", "none"]),
        (THREE, {"type": dict}, ["subclass of Exploration"]),
        (THREE, {"type": "GaussianNoise"}, ["GaussianNoise", "Box action space"]),
        (BOX, {"type": "OrnsteinUhlenbeckNoise", "stddev": 0.3}, ["stddev=0.3 is not an argument", "ou_sigma"]),
        (BOX, {"type": "SoftQ"}, ["SoftQ", "Discrete action space"]),
        (THREE, {"type": "ParameterNoise"}, ["'StochasticSampling'", "Set sub_exploration.type to one of these"]),
        (THREE, {"type": "ParameterNoise", "initial_stddev": -1.0} | EPSILON, ["initial_stddev=-1.0", "at least 0"]),
        (THREE, {"type": "ParameterNoise", "sub_exploration": "SoftQ"}, ["sub_exploration='SoftQ'", "a mapping"]),
        (
            THREE,
            {"type": "ParameterNoise", "sub_exploration": {"type": "EpsilonGreedy", "final_epsilon": 2}},
            ["exploration_config.sub_exploration.final_epsilon=2"],
        ),
        (
            THREE,
            {"type": "ParameterNoise", "sub_exploration": {"type": "ParameterNoise"} | EPSILON},
            ["sub_exploration.type='ParameterNoise'", "such as 'EpsilonGreedy'"],
        ),
    ],
)
def test_wrong_settings_name_key_and_fix(space: spaces.Space[Any], options: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        make(space, **options)
    assert all(word in str(error.value) for word in words)


def test_the_contract_returns_actions_and_their_likelihood_by_the_distribution() -> None:
    for space, inputs in ((THREE, Q), (BOX, np.array([[0.1, 0.2, 0.0, 0.0]], np.float32))):
        distribution = ActionDistribution(DistributionMaker(Layout.of(space)), np.repeat(inputs, 4, 0))
        actions, logp = make(space).get_exploration_action(action_distribution=distribution, timestep=0, explore=True)
        assert len(actions) == 4
        expected = distribution.maker(torch.from_numpy(distribution.inputs)).logp(torch.from_numpy(actions))
        np.testing.assert_allclose(logp, expected.numpy(), rtol=1e-6)
    single = DistributionMaker(Layout.of(BOX), box=Squashed)
    distribution = ActionDistribution(single, np.zeros((2, 2), np.float32))
    _, logp = make(BOX, type="GaussianNoise").get_exploration_action(distribution, 0)
    assert logp.tolist() == [0.0, 0.0], "a single action has no likelihood"


class OfAnotherLibrary(Exploration):
    """Overrides what callers use, not what workers call."""

    def get_exploration_action(self, *arguments: Any, **settings: Any) -> Any:
        return None


def test_a_class_that_overrides_what_workers_do_not_call_is_refused() -> None:
    with pytest.raises(ConfigError, match="overrides get_exploration_action.*Override explore"):
        make(THREE, type=OfAnotherLibrary)
