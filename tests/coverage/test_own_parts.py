"""Parts of the engine that a person replaces: connectors, the class of the workers, the learner."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

from reef.algorithms.a3c import A3CConfig
from reef.algorithms.dqn import DQNConfig
from reef.algorithms.es import ESConfig
from reef.algorithms.marwil import MARWILConfig
from reef.algorithms.ppo import PPO, PPOConfig, PPOLearner
from reef.batch import Sample
from reef.callbacks import DefaultCallbacks
from reef.config import AlgorithmConfig
from reef.errors import ConfigError
from reef.rollout.worker import RolloutWorker

HERE = "tests.coverage.test_own_parts"
SMALL = {"env": "CartPole-v1", "train_batch_size": 16, "seed": 1, "model": {"fcnet_hiddens": [4]}}
PPO_SMALL = {**SMALL, "sgd_minibatch_size": 16, "num_sgd_iter": 1}


def unrewarded(batch: Any) -> Any:
    """The train batch with rewards of 0 (learner_connector)."""
    batch["rewards"] = np.zeros_like(batch["rewards"])
    return batch


class Seen(DefaultCallbacks):
    rewards: ClassVar[list[float]] = []

    def on_learn_on_batch(self, *, train_batch: Any, **kwargs: Any) -> None:
        self.rewards.append(float(np.abs(train_batch["rewards"]).max()))


@pytest.mark.parametrize(
    "config",
    [
        PPOConfig.from_dict(PPO_SMALL),
        A3CConfig.from_dict(SMALL),
        DQNConfig.from_dict({**SMALL, "num_steps_sampled_before_learning_starts": 16}),
    ],
    ids=["PPO", "A3C", "DQN"],
)
def test_a_learner_connector_changes_what_is_learned_from(config: AlgorithmConfig) -> None:
    Seen.rewards.clear()
    config.callbacks(Seen).training(learner_connector=f"{HERE}:unrewarded")
    with config.build() as algorithm:
        result = algorithm.train()
        for _ in range(3):
            algorithm.train()
    assert set(Seen.rewards) == {0.0}
    assert result["episode_reward_mean"] != 0


def test_connectors_that_would_have_no_effect_are_refused() -> None:
    with pytest.raises(ConfigError, match="learner_connector=.*: ES learns from returns of episodes"):
        ESConfig.from_dict({"env": "CartPole-v1", "learner_connector": unrewarded}).validate()
    given = {"env": "CartPole-v1", "input_": "data", "env_to_module_connector": np.square}
    with pytest.raises(ConfigError, match="env_to_module_connector=.*: MARWIL learns from observations and actions as"):
        MARWILConfig.from_dict(given).validate()


class CountingWorker(RolloutWorker):
    """Samples as ever, and counts how often."""

    samples = 0

    def sample(self, *args: Any, **kwargs: Any) -> Sample:
        self.samples += 1
        return super().sample(*args, **kwargs)


class MildLearner(PPOLearner):
    """Reports what it was made for."""

    def adapt(self, stats: dict[str, float]) -> dict[str, float]:
        return super().adapt(stats) | {"mild": 1.0}


class MineConfig(PPOConfig):
    worker_class = f"{HERE}:CountingWorker"


class Mine(PPO):
    config_class = MineConfig
    learner_class = MildLearner


def test_an_algorithm_of_your_own_names_the_class_of_its_workers_and_its_learner() -> None:
    """What env_runner_cls, sample_collector and learner_class do elsewhere."""
    with Mine.config_class.from_dict(PPO_SMALL).build() as algorithm:
        result = algorithm.train()
        assert algorithm.workers.foreach_worker(lambda worker: worker.samples) == [1]
    assert result["info"]["learner"]["default_policy"]["learner_stats"]["mild"] == 1.0


@pytest.mark.ray
def test_its_workers_are_of_that_class_in_other_processes_too(ray_cluster: Any) -> None:
    with Mine.config_class.from_dict({**PPO_SMALL, "num_rollout_workers": 1}).build() as algorithm:
        algorithm.train()
        assert algorithm.workers.foreach_worker(lambda worker: worker.samples)[-1] == 1


@pytest.mark.parametrize(
    ("key", "fix"),
    [
        ("learner_class", "whose learner_class it is"),
        ("env_runner_cls", "whose settings name their worker_class"),
        ("sample_collector", "whose settings name their worker_class"),
        ("enable_connectors", "set env_to_module_connector or module_to_env_connector"),
        ("episode_lookback_horizon", "what a policy remembers is its recurrent state"),
    ],
)
def test_settings_with_classes_say_what_to_do_instead(key: str, fix: str) -> None:
    with pytest.raises(ConfigError, match=fix):
        PPOConfig.from_dict({"env": "CartPole-v1", key: 3}).validate()
