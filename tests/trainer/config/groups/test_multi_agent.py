"""Policies with settings of their own, which of them learn, and what is wrong with either."""

from __future__ import annotations

import json
from typing import Any

import gymnasium as gym
import pytest

from reef.algorithms.apex import ApexDQNConfig
from reef.algorithms.dqn import DQNConfig
from reef.algorithms.ppo import PPOConfig
from reef.config import PolicySpec
from reef.config.describe import json_schema
from reef.errors import ConfigError

BOX = gym.spaces.Box(0, 1, (1,))


def with_policies(policies: Any, **settings: Any) -> PPOConfig:
    return PPOConfig().environment("CartPole-v1").multi_agent(policies=policies, **settings)


@pytest.mark.parametrize(
    "policies",
    [
        ["a", "b"],
        ("a", "b"),
        {"b", "a"},
        {"a": None, "b": {}},
        {"a": PolicySpec(), "b": (None, None, None, {})},
        {"a": (None, None, None, None), "b": PolicySpec(config={})},
    ],
)
def test_policies_have_one_form(policies: Any) -> None:
    config = with_policies(policies)
    assert config.policies == {"a": PolicySpec(), "b": PolicySpec()}
    assert list(config.policies) == ["a", "b"]
    assert config.to_dict()["policies"] == {"a": {}, "b": {}}


@pytest.mark.parametrize(
    "given",
    [
        {"a": PolicySpec(config={"lr": 0.5, "model": {"fcnet_hiddens": [7]}}), "b": None},
        {"a": (None, None, None, {"lr": 0.5, "model": {"fcnet_hiddens": [7]}}), "b": None},
        {"a": {"config": {"lr": 0.5, "model": {"fcnet_hiddens": [7]}}}, "b": None},
        {"a": PolicySpec(config=PPOConfig().training(lr=0.5, model={"fcnet_hiddens": [7]})), "b": None},
    ],
)
def test_a_policy_has_settings_of_its_own(given: Any) -> None:
    config = with_policies(given).validate()
    assert (config.for_policy("a").lr, config.for_policy("a").model.fcnet_hiddens) == (0.5, [7])
    assert (config.for_policy("b").lr, config.for_policy("b").model.fcnet_hiddens) == (5e-5, [256, 256])
    assert config.for_policy("a").model.vf_share_layers is False, "what is not given stays as it is"


def test_overrides_per_module_are_the_same() -> None:
    config = with_policies({"a": PolicySpec(config={"lr": 0.5, "gamma": 0.9}), "b": None})
    config.multi_agent(algorithm_config_overrides_per_module={"a": {"gamma": 0.8}, "b": {"lambda": 0.7}})
    config.validate()
    assert (config.for_policy("a").lr, config.for_policy("a").gamma) == (0.5, 0.8)
    assert config.for_policy("b").lambda_ == 0.7, "an older spelling"


def test_they_come_back_from_a_document() -> None:
    given = {"a": PolicySpec(config={"lr": 0.5}, action_space=BOX), "b": None}
    stored = json.loads(json.dumps(with_policies(given).to_dict()))
    assert PPOConfig.from_dict(stored) == with_policies(given)


def test_a_path_leads_to_a_setting_of_one_policy() -> None:
    config = with_policies({"a": {"config": {"gamma": 0.5}}, "b": None}).set_path("policies.a.config.lr", 0.25)
    assert config.own_settings("a") == {"gamma": 0.5, "lr": 0.25}


@pytest.mark.parametrize(
    ("policies", "message"),
    [
        ({"a": (None, BOX, BOX)}, r"policies: 'a': \(None, Box.* is no policy. Give a PolicySpec, a mapping"),
        ({"a": 3}, "policies: 'a': 3 is no policy"),
        ({"a": {"polcy_class": None}}, "policies: 'a': polcy_class: PolicySpec has no such.*mean 'policy_class'"),
        (["a", "b", "a"], "a is there twice"),
        ([], "policies=\\[\\]: expected at least one id"),
        ({3: None}, "policies=.*expected list of text or mapping"),
        ({"a": {"config": {"lrr": 1.0}}}, "policies: 'a': config.lrr: PPO has no such setting. Did you mean 'lr'"),
        ({"a": {"config": {"gamma": 2.0}}}, "policies: 'a': config.gamma=2.0: must be at most 1"),
        (
            {"a": {"config": {"model": {"use_lstm": True}, "sgd_minibatch_size": 8}}},
            "config.sgd_minibatch_size=8 holds",
        ),
        ({"a": {"config": {"train_batch_size": 9}}}, "config.train_batch_size=9 has no effect for one policy"),
        ({"a": {"config": {"num_rollout_workers": 2}}}, "config.num_rollout_workers=2 has no effect for one policy"),
        (
            {"a": {"config": {"model": {"dim": 42}}}},
            "config.model.dim=42 has no effect for one policy: all policies see the same frames. Set it for all",
        ),
        ({"a": {"config": {"explore": False}}}, "config.explore=False has no effect for one policy"),
    ],
)
def test_what_is_wrong_with_policies_is_named(policies: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        with_policies(policies).validate()


@pytest.mark.parametrize(
    "own",
    [
        {"config": {"model": {"custom_model": "models:Own"}}},
        {"policy_class": "models:make_policy"},
        {"policy_class": "models:make_policy", "config": {"lr": 0.5, "model": {"custom_model_config": {"width": 4}}}},
    ],
)
def test_arguments_of_a_custom_model_may_be_shared(own: dict[str, Any]) -> None:
    shared = {"custom_model_config": {"width": 3}}
    with_policies({"a": own, "b": {"config": {"lr": 0.5}}}).training(model=shared).validate()
    with_policies({"a": own, "b": None}).validate()


@pytest.mark.parametrize("own", [{}, {"config": {"lr": 0.5}}, {"config": {"model": {"custom_model": None}}}])
def test_arguments_of_a_custom_model_that_no_policy_has_are_refused(own: dict[str, Any]) -> None:
    wrong = (
        r"^1 problem in .*\n- model.custom_model_config=\{'width': 3\}: there is no model.custom_model that takes it"
    )
    with pytest.raises(ConfigError, match=wrong):
        with_policies({"a": own}).training(model={"custom_model_config": {"width": 3}}).validate()
    with pytest.raises(ConfigError, match=r"policies: 'a': config.model.custom_model_config=\{'width': 3\}: there is"):
        with_policies({"a": {"config": {"model": {"custom_model_config": {"width": 3}}}}}).validate()


def test_a_problem_of_all_is_told_once() -> None:
    config = with_policies({"a": {"config": {"lr": 0.5}}}).training(sgd_minibatch_size=5000)
    with pytest.raises(ConfigError, match="^1 problem "):
        config.validate()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"policies_to_train": []}, "policies_to_train=\\[\\]: nothing would learn"),
        ({"policies_to_train": ["c"]}, "policies_to_train: 'c' is not among policies=\\['a', 'b'\\]"),
        ({"policies_to_train": lambda policy_id: True}, "policies_to_train=.*It is called with \\(policy_id, batch\\)"),
        ({"policies_to_train": "a"}, "policies_to_train 'a': expected the form 'package.module:Name'"),
        ({"policy_mapping_fn": {"x": "c"}}, "policy_mapping_fn: 'x': 'c' is not among"),
        ({"algorithm_config_overrides_per_module": {"c": {}}}, "overrides_per_module: 'c' is not among"),
        ({"algorithm_config_overrides_per_module": 3}, "overrides_per_module=3: expected mapping"),
        ({"algorithm_config_overrides_per_module": {"a": {"seed": 1}}}, "'a': config.seed=1 has no effect for one"),
        ({"count_steps_by": "steps"}, "count_steps_by='steps': expected one of 'env_steps', 'agent_steps'"),
        ({"count_steps_by": "agent_steps"}, "rollout_fragment_length='auto': count_steps_by='agent_steps'"),
        ({"replay_mode": "lockstep"}, "replay_mode='lockstep' has no effect: PPO replays nothing"),
        ({"observation_fn": lambda: {}}, "observation_fn=.*It is called with \\(agent_obs\\)"),
    ],
)
def test_what_is_wrong_with_the_rest_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        with_policies(["a", "b"], **settings).validate()


@pytest.mark.parametrize("given", [["b"], ("b",), {"b"}, lambda policy_id, batch: policy_id == "b"])
def test_who_learns(given: Any) -> None:
    config = with_policies(["a", "b"], policies_to_train=given).validate()
    assert [config.trains(name, None) for name in ("a", "b", "gone")] == [False, True, False]
    assert config.may_train("a") is callable(given), "a function may still say so"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_step": 3}, "not available with n_step=3"),
        ({"replay_buffer_config": {"prioritized_replay": True}}, "with replay_buffer_config.prioritized_replay=True"),
        ({"model": {"use_lstm": True}}, "not available with model.use_lstm=True"),
    ],
)
def test_lockstep_replays_single_steps(settings: dict[str, Any], message: str) -> None:
    plain = {"replay_buffer_config": {"prioritized_replay": False}}
    config = DQNConfig().multi_agent(replay_mode="lockstep").training(**(plain | settings))
    with pytest.raises(ConfigError, match=message):
        config.validate()


def test_all_policies_replay_sequences_or_none() -> None:
    config = DQNConfig().multi_agent(policies={"a": {"config": {"model": {"use_lstm": True}}}, "b": None})
    with pytest.raises(ConfigError, match="policies: 'a': config.model has another memory than the rest"):
        config.validate()


@pytest.mark.parametrize("own", [{"gamma": 0.5}, {"num_atoms": 3}, {"worker_side_prioritization": False}])
def test_what_the_shards_of_apex_share_is_for_all(own: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="has no effect for one policy"):
        ApexDQNConfig().multi_agent(policies={"a": {"config": own}}).validate()


def test_the_schema_takes_both_forms() -> None:
    shape = json_schema(PPOConfig)["properties"]["policies"]["anyOf"]
    assert shape[0] == {"type": "array", "items": {"type": "string"}}
    assert shape[1]["additionalProperties"]["properties"].keys() >= {"policy_class", "config"}
    with pytest.raises(TypeError, match="PolicySpec takes policy_class"):
        PolicySpec(1, 2, 3, 4, 5)
