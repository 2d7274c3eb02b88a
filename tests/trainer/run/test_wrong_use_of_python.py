"""Wrong use of the Python API: an error that a person can read, and an algorithm that is as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reef import Algorithm, PPOConfig, load_policies
from reef.errors import ConfigError, ReefError


@pytest.fixture(scope="module")
def algorithm() -> Iterator[Algorithm]:
    with PPOConfig().environment("CartPole-v1").training(model={"fcnet_hiddens": [4]}).build() as made:
        yield made


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda a: a.compute_single_action(np.zeros(3)), "the observation has shape (3,), expected (4,)"),
        (lambda a: a.compute_single_action("x"), "the observation is no value of Box"),
        (lambda a: a.compute_single_action(np.full(4, np.nan)), "values that are NaN or infinite"),
        (lambda a: a.compute_single_action(np.zeros(4), state=[1]), "give what the call before returned"),
        (lambda a: a.compute_actions([np.zeros(4)]), "Use compute_single_action for one observation"),
        (lambda a: a.set_weights([1]), "set_weights: list is no mapping {policy id: {name: array}}."),
        (lambda a: a.set_weights({"default_policy": np.zeros(3)}), "ndarray is no mapping {name: array} of one policy"),
        (lambda a: a.get_policy().set_weights(None), "set_weights: NoneType is no mapping {name: array}"),
        (lambda a: a.get_policy().set_weights({"a": np.zeros(3)}), "weights do not fit this policy"),
        (lambda a: a.get_policy().learn_on_batch({}), "dict is not what worker.sample() returns"),
        (lambda a: a.import_model("nowhere"), "cannot read the weights nowhere"),
        (lambda a: a.restore("nowhere"), "there is no checkpoint at nowhere"),
        (lambda a: a.save("/dev/null"), "exists and is no checkpoint: it is left alone. Name another directory"),
        (lambda a: a.add_policy("default_policy"), "there is a policy 'default_policy' already"),
        (lambda a: a.config.training(lr=1), "lr=1: the configuration is frozen. Change a copy"),
        (lambda _: Algorithm.from_checkpoint("."), ". has no manifest.json"),
        (lambda _: load_policies("nowhere"), "there is no checkpoint at nowhere"),
        (lambda _: PPOConfig.from_dict(5), "5: expected a mapping of settings, such as {'lr': 0.001}"),  # type: ignore[arg-type]
        (lambda _: PPOConfig.from_dict([("lr", 1)]), "expected a mapping of settings"),  # type: ignore[arg-type]
        (lambda _: PPOConfig().set_path("model.", 1), "model.: model has no such setting"),
        (lambda _: PPOConfig().training(lrr=1), "lrr: PPO has no such setting. Did you mean 'lr'?"),
        (lambda _: PPOConfig().training(env="x"), "Write config.environment(env=...)"),
        (lambda _: PPOConfig().environment(lambda _: None).build(), "which has no reset() and no step()"),
    ],
)
def test_is_refused(
    call: Callable[[Algorithm], Any],
    text: str,
    algorithm: Algorithm,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    before = algorithm.get_weights()
    with pytest.raises(ReefError) as refusal:
        call(algorithm)
    assert text in str(refusal.value)
    after = algorithm.get_weights()
    assert all((after[policy][name] == value).all() for policy, own in before.items() for name, value in own.items())
    assert list(tmp_path.iterdir()) == []


def test_all_problems_come_in_one_message() -> None:
    with pytest.raises(ConfigError, match="2 problems") as refusal:
        PPOConfig().environment("CartPole-v1").training(lr=float("inf"), gamma=None).build()
    assert [key for key in ("lr=inf", "gamma=None") if key not in str(refusal.value)] == []
