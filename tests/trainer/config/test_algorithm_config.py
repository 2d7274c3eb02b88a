"""The configuration of an algorithm: sentences, dictionaries, batch arithmetic, evaluation, build."""

import json
from collections.abc import Iterator
from typing import ClassVar

import pytest

from reef.algorithms.dqn import DQNConfig
from reef.algorithms.ppo import PPO, PPOConfig
from reef.callbacks import DefaultCallbacks
from reef.config import AlgorithmConfig, ModelConfig, Scheduled, default, setting
from reef.errors import ConfigError


class ExampleAlgorithm:
    def __init__(self, config):
        self.config = config


class ExampleConfig(AlgorithmConfig):
    algorithm: ClassVar[str] = "Example"

    lr: Scheduled = default(5e-5)
    train_batch_size = default(4000)
    model: ModelConfig = default({"vf_share_layers": False})
    clip_param: float = setting(0.3, "Clip.", above=0.0)

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        yield from self.batch_size_problems()


class ForAnother(PPOConfig):
    def __init__(self):
        super().__init__(algo_class=PPO)


def make_env(env_config):
    return env_config


def test_sentences_can_be_chained():
    config = (
        ExampleConfig()
        .training(gamma=0.9, lr=0.01, clip_param=0.2, model={"fcnet_hiddens": [8]})
        .environment("CartPole-v1", env_config={"level": 1})
        .resources(num_gpus=0)
        .rollouts(num_rollout_workers=2)
        .framework("torch")
        .callbacks()
        .debugging(seed=3)
    )
    assert (config.gamma, config.lr, config.clip_param, config.env, config.seed) == (0.9, 0.01, 0.2, "CartPole-v1", 3)
    assert config.model.fcnet_hiddens == [8]
    assert config.model.vf_share_layers is False
    assert config.validate() is config


def test_every_group_has_its_own_sentence():
    config = ExampleConfig()
    for key, group in ExampleConfig.groups.items():
        assert callable(getattr(config, group)), key


def test_a_key_of_another_group_is_sent_there():
    with pytest.raises(ConfigError, match=r"'num_gpus': belongs to resources. Write config.resources\(num_gpus=...\)"):
        ExampleConfig().training(num_gpus=1)
    with pytest.raises(ConfigError, match=r"'policies': belongs to multi_agent."):
        ExampleConfig().training(policies=["a"])


def test_only_the_first_setting_of_some_groups_goes_without_its_key():
    assert ExampleConfig().environment("Pendulum-v1").env == "Pendulum-v1"
    assert ExampleConfig.training(ExampleConfig(), gamma=0.5).gamma == 0.5
    with pytest.raises(TypeError, match=r"training\(\) takes its settings by their keys: training\(key=value\)"):
        ExampleConfig().training(0.5)
    with pytest.raises(TypeError, match="multiple values for keyword argument 'env'"):
        ExampleConfig().environment("Pendulum-v1", env="CartPole-v1")


def test_a_setting_may_be_given_by_the_name_of_its_attribute_too():
    assert ExampleConfig().callbacks(callbacks_class=DefaultCallbacks).callbacks_class is DefaultCallbacks
    with pytest.raises(ConfigError, match=r"callbacks\(callbacks, callbacks_class\): one setting by two names"):
        ExampleConfig().callbacks(callbacks=DefaultCallbacks, callbacks_class=None)
    with pytest.raises(TypeError, match="multiple values for keyword argument 'callbacks'"):
        ExampleConfig().callbacks(DefaultCallbacks, callbacks_class=None)


def test_the_settings_of_a_class_of_algorithms():
    config = AlgorithmConfig(algo_class=PPO, lr=0.5)
    assert (type(config), config.algorithm, config.lr, config.clip_param) == (PPOConfig, "PPO", 0.5, 0.3)
    assert config.copy() == config == PPOConfig(algo_class=PPO, lr=0.5)
    assert AlgorithmConfig(algo_class=None) == AlgorithmConfig()
    with config.environment("CartPole-v1").build() as algorithm:
        assert type(algorithm) is PPO


@pytest.mark.parametrize(
    ("kind", "algo_class", "text"),
    [
        (DQNConfig, PPO, "its settings are PPOConfig, and not DQNConfig. Leave algo_class out."),
        (AlgorithmConfig, "PPO", "algo_class='PPO': expected a subclass of reef.Algorithm"),
        (AlgorithmConfig, ExampleAlgorithm, "ExampleAlgorithm'>: expected a subclass of reef.Algorithm"),
    ],
)
def test_a_class_that_has_other_settings(kind, algo_class, text):
    with pytest.raises(ConfigError, match=text):
        kind(algo_class=algo_class)
    with pytest.raises(ConfigError, match="its settings are PPOConfig, and not ForAnother"):
        ForAnother()


def test_a_refused_key_is_taken_by_its_sentence_and_refused_with_all_other_problems():
    config = (
        ExampleConfig()
        .rollouts(compress_observations=True)
        .multi_agent(policy_states_are_swappable=True)
        .training(gamma=2)
    )
    with pytest.raises(ConfigError) as refusal:
        config.validate()
    assert "compress_observations=True: batches are arrays that processes share" in str(refusal.value)
    assert "policy_states_are_swappable=True: beyond policy_map_capacity weights alone" in str(refusal.value)
    assert "gamma=2.0" in str(refusal.value)
    assert (
        ExampleConfig().callbacks(None).multi_agent(count_steps_by="env_steps", policies={"default_policy"}).validate()
        == ExampleConfig()
    )


def test_a_misspelt_key_is_answered_with_the_nearest_one_and_its_group():
    with pytest.raises(ConfigError, match=r"leraning_rate: Example has no such setting. Did you mean 'lr'.*'training'"):
        ExampleConfig().leraning_rate = 1
    with pytest.raises(ConfigError, match=r"num_envs_per_wrker: .*'num_envs_per_worker'.*'rollouts'"):
        ExampleConfig.from_dict({"num_envs_per_wrker": 1})


def test_dictionaries_go_around_unchanged():
    config = ExampleConfig().environment(make_env, env_config={"level": 1}).training(lr=[[0, 1.0], [5, 0.5]])
    data = json.loads(json.dumps(config.to_dict()))
    assert data["env"] == f"{__name__}:make_env"
    again = ExampleConfig.from_dict(data)
    assert again == config
    assert again.to_dict() == data


def test_paths_translate_and_reach_inside():
    config = ExampleConfig().set_path("model.fcnet_hiddens", [64]).set_path("env_config.level", 2)
    assert (config.model.fcnet_hiddens, config.env_config) == ([64], {"level": 2})
    with pytest.warns(FutureWarning, match="num_rollout_workers"):
        assert config.set_path("num_workers", 3).num_rollout_workers == 3


@pytest.mark.parametrize(
    ("batch", "workers", "envs", "expected"),
    [
        (2456, 4, 3, [205, 205, 205, 204, 204]),
        (4000, 3, 2, [667, 667, 667, 666]),
        (4096, 0, 8, [512]),
        (2000, 2, 2, [500, 500, 500]),
        (2, 4, 1, [1, 1, 1, 1, 1]),
    ],
)
def test_automatic_fragments_make_up_the_batch(batch, workers, envs, expected):
    config = ExampleConfig().training(train_batch_size=batch)
    config.rollouts(num_rollout_workers=workers, num_envs_per_worker=envs, rollout_fragment_length="auto")
    assert [config.fragment_length(index) for index in range(workers + 1)] == expected


def test_automatic_fragments_of_the_workers_add_up_exactly():
    config = ExampleConfig().rollouts(num_rollout_workers=3, num_envs_per_worker=2, rollout_fragment_length="auto")
    assert sum(2 * config.fragment_length(index) for index in (1, 2, 3)) == 4000


def test_learners_multiply_their_own_batch():
    config = ExampleConfig().training(train_batch_size_per_learner=100)
    assert config.total_train_batch_size == 100
    assert config.resources(num_learner_workers=4).total_train_batch_size == 400
    assert config.rollouts(num_envs_per_worker=4, rollout_fragment_length="auto").fragment_length() == 100


def test_fragments_that_miss_the_batch_by_a_tenth_are_refused_with_all_numbers():
    config = ExampleConfig().rollouts(num_rollout_workers=3, num_envs_per_worker=4, rollout_fragment_length=200)
    with pytest.raises(ConfigError) as refusal:
        config.validate()
    for text in (
        "rollout_fragment_length=200",
        "num_rollout_workers=3",
        "num_envs_per_worker=4",
        "train_batch_size=4000",
        "4800 steps",
        "to 334 or 'auto'",
    ):
        assert text in str(refusal.value)
    config.rollouts(rollout_fragment_length=334).validate()
    config.rollouts(rollout_fragment_length=183).validate()  # twice 2196 is 9.8 % over


def test_evaluation_changes_a_copy():
    config = ExampleConfig().environment("CartPole-v1", env_config={"level": 1, "map": "a"})
    config.rollouts(num_rollout_workers=4).evaluation(
        evaluation_num_workers=1, evaluation_config={"env_config": {"level": 2}, "num_envs_per_worker": 3}
    )
    settings = config.freeze().evaluation_settings()
    assert settings.env_config == {"level": 2, "map": "a"}
    assert (settings.num_rollout_workers, settings.num_envs_per_worker) == (1, 3)
    assert (settings.explore, settings.in_evaluation, settings.sample_timeout_s) == (False, True, 180.0)
    assert (config.explore, config.in_evaluation, config.env_config["level"]) == (True, False, 1)


def test_evaluation_explores_when_asked_to():
    config = ExampleConfig().evaluation(evaluation_config=ExampleConfig.overrides(explore=True))
    assert config.evaluation_settings().explore is True
    with pytest.raises(ConfigError, match="Did you mean 'explore'"):
        ExampleConfig.overrides(explor=True)


@pytest.mark.parametrize("changed", [{"observation_filter": "MeanStdFilter"}, {"model": {"fcnet_hiddens": [3]}}])
def test_what_the_policy_was_trained_with_cannot_differ_in_evaluation(changed):
    (key,) = changed
    with pytest.raises(ConfigError, match=rf"evaluation_config\.{key}=.*Remove {key} from evaluation_config"):
        ExampleConfig().evaluation(evaluation_config=changed).validate()
    ExampleConfig().evaluation(evaluation_config={key: getattr(ExampleConfig(), key)}).validate()


def test_what_was_checked_is_not_checked_again_unless_it_is_changed():
    config = ExampleConfig()
    checked = config.checked()
    assert checked == config
    assert checked is not config
    assert checked.checked() is checked
    with pytest.raises(ConfigError, match="frozen"):
        checked.lr = 1.0
    assert config.freeze().checked() is not config, "frozen, and checked by nobody"
    with pytest.raises(ConfigError, match=r"gamma=-1.0"):
        checked.copy().training(gamma=-1).checked()


def test_build_checks_and_freezes_a_copy(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("reef.run.build.build_algorithm", ExampleAlgorithm)
    config = ExampleConfig()
    built = config.build(env="CartPole-v1").config
    assert (built.env, config.env) == ("CartPole-v1", None)
    with pytest.raises(ConfigError, match="frozen"):
        built.lr = 1.0
    config.lr = 1.0
    with pytest.raises(ConfigError, match=r"gamma=-1.0"):
        config.training(gamma=-1).build()
    monkeypatch.undo()
    with pytest.raises(ConfigError, match="names no algorithm"):
        AlgorithmConfig().build()
