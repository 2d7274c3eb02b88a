"""Networks of your own for the actor and the critics of SAC, TQC, DDPG, TD3, CQL and IQL, and sizes of their own.

It tests reef.algorithms.q_critics, reef.nn.q_critics and reef.nn.custom.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from recorded import recorded
from test_every_algorithm import APEX_SMALL, CONTINUOUS, OFFLINE
from torch import Tensor, nn
from transitions import ACTIONS, OBS, batch

from reef import Algorithm
from reef.algorithms.registry import algorithm_class, config_class
from reef.errors import ConfigError

HERE = "test_custom_critics"


class Torso(nn.Module):
    """Reads the observations, and the actions where it gets them."""

    def __init__(
        self, obs: spaces.Space[Any], actions: spaces.Space[Any], outputs: int, read: int = 0, drop: float = 0
    ):
        super().__init__()
        size = spaces.flatdim(obs) + read
        self.body = nn.Sequential(nn.Linear(size, 6), nn.Tanh(), nn.Dropout(drop), nn.Linear(6, outputs))

    def forward(self, obs: Tensor, *actions: Tensor) -> tuple[Tensor, None]:
        return self.body(torch.cat([obs.flatten(1), *actions], 1)), None


class Bare(Torso):
    """Its only parameter has a name of its own."""

    def __init__(self, obs: spaces.Space[Any], actions: spaces.Space[Any], outputs: int):
        super().__init__(obs, actions, outputs)
        self.body = nn.Identity()
        self.scale = nn.Parameter(torch.ones(spaces.flatdim(obs), outputs))

    def forward(self, obs: Tensor, *actions: Tensor) -> tuple[Tensor, None]:
        return obs.flatten(1) @ self.scale, None


class WithLoss(Torso):
    def custom_loss(self, policy_loss: Tensor, loss_inputs: Any) -> Tensor:
        return policy_loss


class Deaf(Torso):
    """Does not listen to the actions."""

    def forward(self, obs: Tensor, *actions: Tensor) -> tuple[Tensor, None]:
        return self.body(obs), None


def parts(read: int, **given: Any) -> dict[str, Any]:
    return {
        "policy_model_config": {"custom_model": Torso, "custom_model_config": given},
        "q_model_config": {"custom_model": Torso, "custom_model_config": given | {"read": read}},
    }


def learner(name: str, actions: spaces.Space[Any] = ACTIONS, **given: Any) -> Any:
    kind, own = algorithm_class(name), {"input_": "unread.json"} if name in OFFLINE else {}
    small = {"train_batch_size": 8, "lr": 0.01, "seed": 0}
    return kind.learner_class(kind.config_class.from_dict(small | own | given), OBS, actions)


CASES = [
    *((name, "CartPole-v1", 0) for name in ("CQL", "IQL", "SAC")),
    *((name, "Pendulum-v1", 1) for name in sorted(CONTINUOUS)),
]


@pytest.mark.parametrize(("name", "env", "read"), CASES)
def test_a_run_with_networks_of_your_own_resumes_bit_for_bit(name: str, env: str, read: int, tmp_path: Path) -> None:
    given = parts(read) | {"train_batch_size": 8, "lr": 0.01, "seed": 3}
    for settings in given.values():
        if isinstance(settings, dict):
            settings["custom_model"] = f"{HERE}:Torso"
    if name in OFFLINE:
        given |= {"input_": recorded(env, episodes=2), "min_train_timesteps_per_iteration": 64}
    else:
        given |= {"num_steps_sampled_before_learning_starts": 16, "min_sample_timesteps_per_iteration": 40}
    if name == "APEX_DDPG":
        given |= APEX_SMALL | {"min_sample_timesteps_per_iteration": 128}
    with config_class(name).from_dict(given).environment(env).build() as one:
        before = one.get_policy().get_weights()
        one.train()
        after = one.get_policy().get_weights()
        assert [key for key in before if key != "temperature.log_alpha" and (before[key] == after[key]).all()] == []
        with Algorithm.from_checkpoint(one.save(tmp_path / "checkpoint")) as two:
            for each in (one, two):
                each.train()
            np.testing.assert_array_equal(*(each.learners.weights()["default_policy"] for each in (one, two)))
            observation = np.zeros(one.get_policy().observation_layout.shape, np.float32)
            acted = (each.compute_single_action(observation, explore=False) for each in (one, two))
            np.testing.assert_array_equal(*acted)


@pytest.mark.parametrize("twin_q", [True, False])
def test_each_critic_is_an_instance_of_its_own(twin_q: bool) -> None:
    one = learner("SAC", twin_q=twin_q, **parts(read=ACTIONS.shape[0]))
    critics = one.policy.critics.critics
    assert len({id(critic) for critic in critics}) == len(critics) == 1 + twin_q
    first = [critic.body[0].weight.detach().numpy().copy() for critic in critics]
    assert not twin_q or (first[0] != first[1]).any()
    rows = one.prepare(batch(8))
    values = one.policy.critics(rows["obs"], rows["actions"])
    assert values.shape == (len(critics), 8)
    torch.testing.assert_close(values[0], one.policy.critics.first(rows["obs"], rows["actions"]))


def test_layers_such_as_dropout_are_active_in_training_alone() -> None:
    rows = batch(8)
    for drop, same in ((0.0, True), (0.5, False)):
        one = learner("TD3", **parts(read=ACTIONS.shape[0], drop=drop))
        columns = one.prepare(rows)
        obs, actions = columns["obs"], columns["actions"]
        plain = [one.policy.critics(obs, actions) for _ in range(2)]
        torch.testing.assert_close(*plain)
        found = one.critics.gradient(columns | {"targets": torch.zeros(8)}).stats["mean_q"]
        assert torch.allclose(found, plain[0].mean()) == same


def test_one_of_them_may_be_of_the_usual_kind_and_have_sizes_of_its_own() -> None:
    custom = {"custom_model": Torso, "custom_model_config": {"read": ACTIONS.shape[0]}}
    one = learner("DDPG", policy_model_config={"fcnet_hiddens": [3], "fcnet_activation": "tanh"}, q_model_config=custom)
    usual = learner("DDPG", model={"fcnet_hiddens": [5]}, q_model_config={"post_fcnet_hiddens": [7]})
    shapes = [{name: tuple(w.shape) for name, w in each.policy.get_weights().items()} for each in (one, usual)]
    assert shapes[0]["actor.out.weight"][-1] == 3 and "critics.critics.0.body.0.weight" in shapes[0]
    assert shapes[1]["actor.out.weight"][-1] == 5 and shapes[1]["critics.out.weight"][-2:].count(7) == 1
    one.update(batch(8), 0)
    assert one.policy.architecture()["settings"]["policy_model_config.fcnet_hiddens"] == [3]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"model": {"custom_model": Torso}}, "Set policy_model_config.custom_model and q_model_config.custom_model."),
        (parts(read=0), "q_model_config.custom_model=.*fails on observations of shape.*with actions of shape"),
        ({"q_model_config": {"custom_model": Deaf}}, "its outputs do not depend on the actions"),
        ({"policy_model_config": {"custom_model": WithLoss}}, "policy_model_config.custom_model=WithLoss has custom_l"),
        ({"policy_model_config": {"custom_model": "no_such_module:Net"}}, "policy_model_config.custom_model"),
        (
            {"policy_model_config": {"custom_model": lambda obs, actions, outputs: Torso(obs, actions, 1)}},
            r"policy_model_config.custom_model=.* returns \(shape \[2, 1\], NoneType\) for 2 observations",
        ),
    ],
)
def test_networks_that_do_not_fit_are_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        learner("SAC", **given)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"q_model_config": {"custom_modle": Torso}}, "Did you mean 'custom_model'"),
        ({"q_model_config": {"fcnet_hiddens": [0]}}, "q_model_config.fcnet_hiddens"),
        ({"q_model_config": {"fcnet_activation": "sigmoidal"}}, "q_model_config.fcnet_activation='sigmoidal'"),
        (
            {"q_model_config": {"custom_model": Torso, "fcnet_hiddens": [4]}},
            "beside q_model_config.custom_model, which is the whole network",
        ),
        ({"policy_model_config": {"custom_model_config": {"a": 1}}}, "there is no policy_model_config.custom_model"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        config_class("SAC").from_dict(given).environment("Pendulum-v1").build()


def test_settings_of_model_that_nothing_reads_are_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    kind = config_class("SAC")
    given = parts(read=1) | {"model": {"fcnet_hiddens": [4]}}
    kind.from_dict(given).environment("Pendulum-v1").build().stop()
    assert any(text.startswith("model.fcnet_hiddens=[4] has no effect beside policy_m") for text in caplog.messages)
    caplog.clear()
    sizes = {"model": {"fcnet_hiddens": [4]}}
    both = {key: {"fcnet_hiddens": [5]} for key in ("policy_model_config", "q_model_config")}
    kind.from_dict(sizes | both).environment("Pendulum-v1").build().stop()
    assert any(text.startswith("model.fcnet_hiddens=[4] has no effect beside policy_m") for text in caplog.messages)
    caplog.clear()
    kind.from_dict(sizes | {"q_model_config": {"fcnet_hiddens": [5]}}).environment("Pendulum-v1").build().stop()
    assert caplog.messages == []


def test_a_network_without_a_weight_of_that_name_has_none_to_shrink() -> None:
    one = learner("DDPG", l2_reg=0.1, policy_model_config={"custom_model": Bare})
    assert one.squared_weights(one.policy.actor) == 0.0
    one.actor.descend(one.prepare(batch()))
