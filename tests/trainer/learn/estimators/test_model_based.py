"""Estimators with a model, and fitted Q evaluation, against exact values.

It tests reef.learn.estimators.estimator, reef.learn.estimators.logged and reef.learn.estimators.fitted_q too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from tabular import ACTED, GAMMA, NEXT, OBSERVED, TARGET, Table, exact_q, exact_value, logged, played

from reef.errors import ConfigError
from reef.learn.estimators import DirectMethod, DoublyRobust, FittedQ, ImportanceSampling, LoggedSteps
from reef.spaces import Layout
from reef.types import Array

# each action leads to one state or to the end
CERTAIN = np.zeros_like(NEXT)
for state, nexts in enumerate([(1, 2), (2, 3), (3, 3)]):
    CERTAIN[state, [0, 1], nexts] = 1


class Known:
    """A model that is right, but for an error that is added to each value."""

    def __init__(self, *layouts: Layout, gamma: float, seed: int | None, error: float = 0.0, certain: bool = False):
        self.table = exact_q(TARGET, gamma, CERTAIN if certain else NEXT) + error

    def fit(self, steps: LoggedSteps, target: Any) -> None:
        """Nothing to learn."""

    def q_values(self, obs: Array) -> Array:
        return self.table[obs.argmax(-1)]


def made(kind: type[DirectMethod], model: Any = Known, **arguments: Any) -> DirectMethod:
    config = {"type": model, **arguments}
    return kind(OBSERVED, ACTED, gamma=GAMMA, seed=0, q_model_config=config)


def test_the_direct_method_has_the_values_of_the_model() -> None:
    estimate = made(DirectMethod).estimate(logged(10), Table(TARGET))
    assert estimate["v_target"] == pytest.approx(exact_value(TARGET))
    assert estimate["v_target_low"] == pytest.approx(estimate["v_target_high"])


def test_doubly_robust_is_exact_in_each_episode_where_the_model_and_the_world_are_certain() -> None:
    steps = logged(20, transitions=CERTAIN)
    values = made(DoublyRobust, certain=True).values(steps, Table(TARGET))
    np.testing.assert_allclose(values, exact_value(TARGET, transitions=CERTAIN))


def test_doubly_robust_with_a_right_model_has_less_variance_than_importance_sampling() -> None:
    steps = logged(2000)
    robust = made(DoublyRobust).estimate(steps, Table(TARGET))
    sampled = ImportanceSampling(OBSERVED, ACTED, gamma=GAMMA).estimate(steps, Table(TARGET))
    assert robust["v_target"] == pytest.approx(exact_value(TARGET), abs=3 * robust["v_target_std"] / np.sqrt(2000))
    assert robust["v_target_std"] < sampled["v_target_std"] / 2


def test_doubly_robust_with_a_wrong_model_is_unbiased_and_the_direct_method_is_not() -> None:
    steps = logged(2000)
    robust, direct = (made(kind, error=1.0).estimate(steps, Table(TARGET)) for kind in (DoublyRobust, DirectMethod))
    assert robust["v_target"] == pytest.approx(exact_value(TARGET), abs=3 * robust["v_target_std"] / np.sqrt(2000))
    assert direct["v_target"] == pytest.approx(exact_value(TARGET) + 1.0)


def test_doubly_robust_with_a_model_of_nothing_is_importance_sampling() -> None:
    class Nothing(Known):
        def q_values(self, obs: Array) -> Array:
            return np.zeros((len(obs), 2))

    steps = logged(50)
    plain = ImportanceSampling(OBSERVED, ACTED, gamma=GAMMA).values(steps, Table(TARGET))
    np.testing.assert_allclose(made(DoublyRobust, Nothing).values(steps, Table(TARGET)), plain)


def test_an_episode_that_was_cut_goes_on_with_the_value_of_the_model() -> None:
    (episode,) = played(1, transitions=CERTAIN, policy=np.array([[1.0, 0.0]] * 3))
    whole = LoggedSteps.of([episode])
    first = {name: getattr(whole, name)[:1] for name in ("obs", "actions", "rewards", "next_obs", "behavior_logp")}
    cut = LoggedSteps(**first, terminated=np.array([False]), starts=np.array([0]))
    values = made(DoublyRobust, certain=True).values(cut, Table(TARGET))
    np.testing.assert_allclose(values, exact_value(TARGET, transitions=CERTAIN))


def test_fitted_q_evaluation_learns_the_exact_values() -> None:
    model = FittedQ(OBSERVED, ACTED, gamma=GAMMA, seed=0, n_iters=25, model_config={"fcnet_hiddens": [32]}, lr=0.02)
    model.fit(logged(400), Table(TARGET))
    learned = model.q_values(np.eye(3, dtype=np.float32))
    np.testing.assert_allclose(learned, exact_q(TARGET), atol=0.2)
    assert abs(exact_q(np.full((3, 2), 0.5)) - exact_q(TARGET)).max() > 0.3, "or another policy's would do"


def test_each_fit_begins_anew() -> None:
    model = FittedQ(OBSERVED, ACTED, gamma=GAMMA, seed=0, n_iters=1)
    found = []
    for _ in range(2):
        model.fit(logged(20), Table(TARGET))
        found.append(model.q_values(np.eye(3, dtype=np.float32)))
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"n_iter": 3},
            r"q_model_config.n_iter=3 is not an argument of FittedQ, which takes: model_config.*'n_iters'\?",
        ),
        ({"n_iters": 0}, "q_model_config.n_iters=0: expected a whole number of 1 or more"),
        ({"lr": 0.0}, "q_model_config.lr=0.0: expected a number above 0"),
        ({"lr": "x"}, "q_model_config.lr='x': expected a number above 0"),
        ({"polyak_coef": None}, "q_model_config.polyak_coef=None: expected a number above 0"),
        ({"n_iters": True}, "q_model_config.n_iters=True: expected a whole number of 1 or more"),
        ({"model_config": [64]}, r"q_model_config.model_config=\[64\]: expected a mapping"),
        ({"model_config": {"vf_share_layers": True}}, "model_config.vf_share_layers=True: the network reads fcnet_hid"),
        ({"model_config": {"use_lstm": True}}, "model_config.use_lstm=True: the network reads .* Leave it out"),
        (
            {"model_config": {"conv_activation": "tanh"}},
            "model_config: model.conv_activation='tanh' has no effect without an image .* Leave it out",
        ),
        ({"type": "nowhere"}, r"q_model_config.type='nowhere': expected one of fqe, or a path"),
        ({"model_config": {"fcnet_hidden": [3]}}, "model.fcnet_hidden"),
    ],
)
def test_wrong_arguments_of_the_model_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        made(DirectMethod, **{"type": FittedQ, **arguments})


def test_settings_of_the_model_are_a_mapping() -> None:
    with pytest.raises(ConfigError, match="q_model_config='fqe': expected a mapping"):
        DirectMethod(OBSERVED, ACTED, gamma=GAMMA, q_model_config="fqe")  # type: ignore[arg-type]


def test_actions_that_are_real_numbers_are_refused() -> None:
    box = Layout.of(spaces.Box(-1.0, 1.0, (1,)))
    with pytest.raises(ConfigError, match=r"DirectMethod sums over all actions, and Box.* is not Discrete\. Use Impor"):
        DirectMethod(OBSERVED, box, gamma=GAMMA)


class Remembers(Known):
    """A model whose value of everything is the number of the fit, which notes what it was fitted to."""

    def __init__(self, *layouts: Layout, gamma: float, seed: int | None) -> None:
        super().__init__(*layouts, gamma=gamma, seed=seed)
        self.fitted: list[list[float]] = []

    def fit(self, steps: LoggedSteps, target: Any) -> None:
        self.fitted.append(steps.behavior_logp[steps.starts].tolist())

    def q_values(self, obs: Array) -> Array:
        return np.full((len(obs), 2), float(len(self.fitted)))


@pytest.mark.parametrize("kind", [DirectMethod, DoublyRobust])
def test_episodes_of_a_fold_are_valued_by_a_model_of_the_others(kind: type[DirectMethod]) -> None:
    steps = logged(10)
    numbered = np.repeat(np.arange(10.0), steps.lengths)
    steps = LoggedSteps(**(vars(steps) | {"behavior_logp": numbered, "rewards": np.zeros(len(steps))}))
    estimator = kind(OBSERVED, ACTED, gamma=GAMMA, seed=0, q_model_config={"type": Remembers}, folds=3)
    values = estimator.values(steps, Table(TARGET))
    fitted = estimator.q_model.fitted  # type: ignore[attr-defined]
    assert sorted(map(len, fitted)) == [6, 7, 7]
    for number, others in enumerate(fitted):
        own = sorted(set(range(10)) - set(map(int, others)))
        if kind is DirectMethod:
            np.testing.assert_allclose(values[own], number + 1)
    assert sorted(each for others in fitted for each in others) == sorted([*range(10)] * 2), (
        "each is left out of one fit"
    )


@pytest.mark.parametrize("folds", [0, -1, 2.0, True, "5"])
def test_folds_are_a_whole_number(folds: Any) -> None:
    with pytest.raises(ConfigError, match="folds=.*: expected a whole number of parts of the episodes, at least 1"):
        DirectMethod(OBSERVED, ACTED, gamma=GAMMA, folds=folds)


def test_each_fold_has_an_episode() -> None:
    estimator = DirectMethod(OBSERVED, ACTED, gamma=GAMMA, folds=5)
    estimator.check(logged(5))
    with pytest.raises(ConfigError, match="folds=5: there are 4 recorded episodes. Give at most as many folds"):
        estimator.check(logged(4))
