"""What evaluation may change; contradictions of its settings are in test_contradictions.py."""

from __future__ import annotations

import pytest

from reef import DQNConfig, PPOConfig
from reef.config.declaration import setting
from reef.errors import ConfigError


class Warm(PPOConfig):
    warmth: float = setting(1.0, "Of a person's own policy.")


def test_a_whole_configuration_leaves_out_what_only_training_reads() -> None:
    other = PPOConfig().training(lr=0.5, train_batch_size=64).environment(horizon=9)
    config = PPOConfig().evaluation(evaluation_config=other).validate()
    assert config.evaluation_config == {"horizon": 9}


@pytest.mark.parametrize(
    "key",
    [
        "lr", "grad_clip", "num_learner_workers", "sample_async", "logger_creator", "n_step",
        "target_network_update_freq", "min_time_s_per_iteration", "torch_threads_per_learner",
    ],
)  # fmt: skip
def test_what_only_training_reads_is_refused_by_its_key(key: str) -> None:
    value = {"sample_async": True, "logger_creator": "wandb"}.get(key, 2)
    with pytest.raises(
        ConfigError, match=f"1 problem in .*\n- evaluation_config.{key}=.*: has no effect, as evaluatio"
    ):
        DQNConfig().evaluation(evaluation_config={key: value}).validate()


def test_a_value_of_training_itself_may_be_there() -> None:
    PPOConfig().training(lr=0.5).evaluation(evaluation_config={"lr": 0.5, "num_rollout_workers": 0}).validate()


def test_a_repeated_value_of_training_is_left_out_as_training_may_change_later() -> None:
    repeated = {"num_rollout_workers": 2, "sample_async": True, "num_learner_workers": 0, "lr": 0.5}
    config = PPOConfig().rollouts(num_rollout_workers=2, sample_async=True).training(lr=0.5)
    config = config.evaluation(evaluation_config={**repeated, "horizon": 9}).checked()
    assert config.evaluation_config == {"horizon": 9}
    evaluated = config.evaluation_settings()
    assert (evaluated.num_rollout_workers, evaluated.sample_async) == (0, False)
    fewer = config.copy().rollouts(num_rollout_workers=0, sample_async=False).checked()
    assert fewer.num_rollout_workers == 0


def test_settings_of_a_persons_own_algorithm_are_taken() -> None:
    config = Warm().evaluation(evaluation_config={"warmth": 3.0}).checked()
    assert config.evaluation_settings().warmth == 3.0  # its policy may read them when it acts
