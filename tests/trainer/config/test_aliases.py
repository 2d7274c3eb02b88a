"""Older spellings are translated where dictionaries come in, and nowhere else."""

import pytest

from reef.algorithms.ppo import PPOConfig
from reef.algorithms.replaying import OffPolicyConfig
from reef.config import AlgorithmConfig, setting
from reef.config.aliases import GROUPS, IN_REPLAY, MOVED, RENAMED
from reef.errors import ConfigError
from reef.replay.settings import ReplayBufferConfig


class ExampleConfig(OffPolicyConfig):
    lambda_: float = setting(1.0, "Decay.")
    entropy_coeff: float = setting(0.0, "Weight.")
    sgd_minibatch_size: int = setting(1, "Steps.")
    num_sgd_iter: int = setting(1, "Passes.")
    max_staleness: int = setting(1, "Updates.")


def test_every_older_spelling_leads_to_a_setting():
    assert set(RENAMED.values()) <= ExampleConfig.groups.keys()
    assert not (RENAMED | MOVED).keys() & ExampleConfig.groups.keys()
    assert set(MOVED.values()) <= {f"replay_buffer_config.{key}" for key in ReplayBufferConfig.by_key}
    assert set(IN_REPLAY.values()) <= ReplayBufferConfig.by_key.keys()
    assert IN_REPLAY.keys() <= ReplayBufferConfig.refusals.keys()


@pytest.mark.parametrize(
    ("old", "value", "new", "expected"),
    [
        ("num_workers", 3, "num_rollout_workers", 3),
        ("lambda", 0.9, "lambda_", 0.9),
        ("monitor", True, "record_env", True),
        ("min_iter_time_s", 5, "min_time_s_per_iteration", 5.0),
        ("timesteps_per_iteration", 500, "min_sample_timesteps_per_iteration", 500),
        ("learning_starts", 9, "num_steps_sampled_before_learning_starts", 9),
        ("minibatch_size", 64, "sgd_minibatch_size", 64),
        ("num_epochs", 4, "num_sgd_iter", 4),
        ("max_gradient_staleness", 4, "max_staleness", 4),
        ("num_cpus_for_driver", 2, "num_cpus_for_local_worker", 2.0),
        ("lr_schedule", [[0, 1], [10, 0]], "lr", [[0.0, 1.0], [10.0, 0.0]]),
    ],
)
def test_one_warning_names_the_new_key(old, value, new, expected):
    with pytest.warns(FutureWarning, match=f"{old!r} is now called {new!r}") as warnings:
        config = ExampleConfig.from_dict({old: value})
    assert len(warnings) == 1
    assert getattr(config, new) == expected


def test_a_number_of_evaluation_episodes_is_a_duration_in_episodes():
    with pytest.warns(FutureWarning):
        config = AlgorithmConfig().evaluation(evaluation_duration_unit="timesteps")
        config.update_from_dict({"evaluation_num_episodes": 7})
    assert (config.evaluation_duration, config.evaluation_duration_unit) == (7, "episodes")


def test_inside_evaluation_config_too():
    with pytest.warns(FutureWarning, match="num_envs_per_worker"):
        config = AlgorithmConfig.from_dict({"evaluation_config": {"num_envs_per_env_runner": 2}})
    assert config.evaluation_settings().num_envs_per_worker == 2


def test_an_absent_schedule_leaves_the_value_alone():
    with pytest.warns(FutureWarning):
        config = AlgorithmConfig.from_dict({"lr": 0.5, "lr_schedule": None})
    assert config.lr == 0.5


def test_both_spellings_at_once_are_refused():
    with pytest.raises(ConfigError, match="num_workers=2: an older spelling of 'num_rollout_workers'"):
        AlgorithmConfig.from_dict({"num_workers": 2, "num_rollout_workers": 4})


def test_two_older_spellings_of_one_setting_are_refused():
    with pytest.raises(ConfigError) as refusal:
        AlgorithmConfig.from_dict({"num_workers": 2, "num_env_runners": 4})
    assert str(refusal.value).splitlines() == [
        "num_workers=2: an older spelling of 'num_rollout_workers', which is given too. Leave one out.",
        "num_env_runners=4: an older spelling of 'num_rollout_workers', which is given too. Leave one out.",
    ]


def test_a_setting_without_effect_says_so():
    with pytest.warns(FutureWarning, match="'simple_optimizer' has no effect"):
        assert AlgorithmConfig.from_dict({"simple_optimizer": True}) == AlgorithmConfig()


def test_in_sentences_only_the_new_name_is_taken():
    with pytest.raises(ConfigError, match="num_workers: this setting is called 'num_rollout_workers' now"):
        AlgorithmConfig().rollouts(num_workers=2)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("env_runners", r"write config\.rollouts\(num_rollout_workers"),
        ("learners", "config.resources"),
    ],
)
def test_a_group_of_rllibs_newer_releases_is_told_as_it_is_called_here(name, told):
    with pytest.raises(AttributeError, match=f"PPOConfig has no '{name}'.*{told}"):
        getattr(PPOConfig(), name)


def test_a_name_that_is_none_and_a_property_that_fails_say_what_they_always_do():
    with pytest.raises(AttributeError, match="'PPOConfig' object has no attribute 'rolouts'"):
        _ = PPOConfig().rolouts
    failing = type("Failing", (PPOConfig,), {"wrong": property(lambda self: self.rolouts)})
    with pytest.raises(AttributeError, match="has no attribute '(wrong|rolouts)'"):
        _ = failing().wrong


@pytest.mark.parametrize("group", GROUPS.values())
def test_what_is_told_instead_of_such_a_group_is_there(group):
    method, _, key = group.removesuffix("=...)").partition("(")
    getattr(PPOConfig(), method)(**{key: PPOConfig().to_dict()[key]})


def test_the_keys_of_multiagent_are_settings():
    with pytest.warns(FutureWarning, match="'multiagent' are now settings of their own"):
        config = OffPolicyConfig.from_dict({"multiagent": {"policies": ["default_policy"]}, "gamma": 0.5})
    assert (list(config.policies), config.gamma) == (["default_policy"], 0.5)
    with pytest.warns(FutureWarning), pytest.raises(ConfigError, match="multiagent: gamma is given beside it too"):
        OffPolicyConfig.from_dict({"multiagent": {"gamma": 0.9}, "gamma": 0.5})


def test_what_has_moved_into_another_setting_is_found_there():
    with pytest.warns(FutureWarning, match="now called 'replay_buffer_config") as warnings:
        config = ExampleConfig.from_dict(
            {"buffer_size": 9, "prioritized_replay": False, "replay_buffer_config": {"prioritized_replay_eps": 0.5}}
        )
    assert len(warnings) == 2
    replay = config.replay_buffer_config
    assert (replay.capacity, replay.prioritized_replay, replay.prioritized_replay_eps) == (9, False, 0.5)
    with pytest.raises(ConfigError, match="buffer_size=9: an older spelling of 'replay_buffer_config.capacity'"):
        ExampleConfig.from_dict({"buffer_size": 9, "replay_buffer_config": {"capacity": 8}})
    with pytest.raises(ConfigError, match=r"buffer_size: this setting is called 'replay_buffer_config.capacity' now"):
        ExampleConfig().training(buffer_size=9)


def test_rllibs_keys_of_the_replay_buffer_are_translated():
    given = {
        "type": "ray.rllib.utils.replay_buffers.MultiAgentPrioritizedReplayBuffer",
        "storage_unit": "timesteps",
        "learning_starts": 7,
        "alpha": 0.3,
        "replay_zero_init_states": False,
    }
    with pytest.warns(FutureWarning, match="setting 'replay_buffer_config") as warnings:
        config = OffPolicyConfig.from_dict({"replay_buffer_config": given}).validate()
    assert len(warnings) == 4
    assert config.num_steps_sampled_before_learning_starts == 7
    replay = config.replay_buffer_config
    assert (replay.prioritized_replay, replay.prioritized_replay_alpha, replay.zero_init_states) == (True, 0.3, False)
    with pytest.warns(FutureWarning):
        config = OffPolicyConfig.from_dict({"replay_buffer_config": {"type": "MultiAgentReplayBuffer"}})
    assert config.replay_buffer_config.prioritized_replay is False


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"replay_buffer_config": {"alpha": 1, "prioritized_replay_alpha": 1}},
            "replay_buffer_config.alpha=1: an older",
        ),
        (
            {"replay_buffer_config": {"learning_starts": 1}, "num_steps_sampled_before_learning_starts": 2},
            "replay_buffer_config.learning_starts=1: an older spelling of 'num_steps_sampled_before_learning_starts'",
        ),
        (
            {"replay_buffer_config": {"type": "ReplayBuffer", "prioritized_replay": True}},
            "replay_buffer_config.type='ReplayBuffer': prioritized_replay=True says otherwise",
        ),
    ],
)
def test_what_the_replay_buffer_is_given_twice_is_refused(settings, told):
    with pytest.raises(ConfigError, match=told):
        OffPolicyConfig.from_dict(settings)


@pytest.mark.parametrize(
    ("key", "value", "advice"),
    [
        ("type", "MyBuffer", r"use prioritized_replay=True or False"),
        ("storage_unit", "episodes", "is chosen by model.use_lstm"),
        ("replay_sequence_length", 20, "use model.max_seq_len"),
        ("learning_starts", 9, "use num_steps_sampled_before_learning_starts"),
        ("replay_mode", "lockstep", "every policy has a replay buffer of its own"),
    ],
)
def test_other_keys_of_rllibs_replay_buffers_are_refused_with_what_to_use(key, value, advice):
    with pytest.raises(ConfigError, match=rf"replay_buffer_config\.{key}={value!r}: {advice}"):
        OffPolicyConfig().training(replay_buffer_config={key: value}).validate()
