"""Which explorations an algorithm learns from, and which it refuses because its gradient would be wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from reef.algorithms.registry import config_class
from reef.config import AlgorithmConfig
from reef.envs.multi_agent import IndependentAgents
from reef.errors import ConfigError
from reef.rollout.exploration import Exploration, make_exploration
from reef.rollout.exploration.likelihoods import require_likelihoods
from reef.run.build import make_local_worker
from reef.spaces import Layout
from reef.types import Array

THREE, BOX = spaces.Discrete(3), spaces.Box(-1.0, 1.0, (2,))
CURIOUS = {"type": "Curiosity", "feature_dim": 4}
OWN = ("A2C", "A3C", "PG")
WEIGHING = ("PPO", "DDPPO", "IMPALA", "APPO")


@dataclass
class Own(Exploration):
    """Without a likelihood."""

    def explore(self, distribution: Any, timestep: int, generator: np.random.Generator) -> Array:
        return np.zeros(len(distribution), np.int64)


@dataclass
class OwnWithLikelihood(Own):
    """With one."""

    @property
    def has_logp(self) -> bool:
        return True

    def logp(self, distribution: Any, actions: Array, timestep: int) -> Array:
        return np.zeros(len(distribution))


def require(name: str, exploration: dict[str, Any], space: Any = THREE, **settings: Any) -> None:
    config = config_class(name)().exploration(exploration_config=exploration).assign(settings)
    require_likelihoods(config, make_exploration(config, Layout.of(space)))


@pytest.mark.parametrize("name", [*OWN, *WEIGHING])
@pytest.mark.parametrize(
    "exploration", [{}, {"random_timesteps": 0}, {"type": "SoftQ"}, CURIOUS, CURIOUS | {"sub_exploration": {}}]
)
def test_every_algorithm_learns_from_actions_of_its_policy(name: str, exploration: dict[str, Any]) -> None:
    if exploration.get("type") != "Curiosity" or name not in ("A3C", "DDPPO"):
        require(name, exploration)


@pytest.mark.parametrize("name", WEIGHING)
@pytest.mark.parametrize(
    "exploration",
    [
        {"type": "Random"},
        {"type": "EpsilonGreedy"},
        {"type": "PerWorkerEpsilonGreedy"},
        {"type": "SoftQ", "temperature": 2.0},
        {"random_timesteps": 100},
        {"type": OwnWithLikelihood},
    ],
)
def test_a_known_likelihood_is_weighed(name: str, exploration: dict[str, Any]) -> None:
    require(name, exploration)


@pytest.mark.parametrize("name", ["DQN", "SAC", "TD3", "ES", "BC", "MARWIL", "CQL"])
def test_algorithms_that_learn_from_any_action_take_any_exploration(name: str) -> None:
    require(name, {"type": "Random"})
    require(name, {"type": "GaussianNoise"}, BOX)


INSTEAD = "use PPO, or IMPALA or APPO with vtrace, which weigh each action by how likely it was"


@pytest.mark.parametrize(
    ("name", "settings", "label"),
    [
        *((name, {}, name) for name in OWN),
        ("IMPALA", {"vtrace": False}, "IMPALA with vtrace=False"),
        ("APPO", {"vtrace": False}, "APPO with vtrace=False"),
    ],
)
@pytest.mark.parametrize(
    ("exploration", "begins", "ends"),
    [
        ({"type": "Random"}, "exploration_config.type='Random': {}", "Use 'StochasticSampling', or "),
        ({"type": "EpsilonGreedy"}, "exploration_config.type='EpsilonGreedy': {}", "Use 'StochasticSampling', or "),
        ({"type": "SoftQ", "temperature": 2.0}, "exploration_config.type='SoftQ': {}", "Use 'StochasticSampling', or "),
        ({"type": Own}, "exploration_config.type='Own': {}", "Use 'StochasticSampling', or "),
        ({"random_timesteps": 100}, "exploration_config.random_timesteps=100: {}", "Set it to 0, or "),
    ],
)
def test_an_unweighed_gradient_refuses_the_actions_of_others(
    name: str, settings: dict[str, Any], label: str, exploration: dict[str, Any], begins: str, ends: str
) -> None:
    with pytest.raises(ConfigError) as error:
        require(name, exploration, **settings)
    assert str(error.value).startswith(begins.format(label))
    assert str(error.value).endswith(f"{ends}{INSTEAD}.")


@pytest.mark.parametrize("name", WEIGHING)
@pytest.mark.parametrize(
    ("exploration", "space", "path"),
    [
        ({"type": "GaussianNoise"}, BOX, "exploration_config.type='GaussianNoise'"),
        ({"type": "PerWorkerOrnsteinUhlenbeckNoise"}, BOX, "exploration_config.type='OrnsteinUhlenbeckNoise'"),
        ({"type": Own}, THREE, "exploration_config.type='Own'"),
        (
            {"type": "ParameterNoise", "sub_exploration": {"type": "EpsilonGreedy"}},
            THREE,
            "exploration_config.type='ParameterNoise'",
        ),
    ],
)
def test_a_weighed_gradient_refuses_an_unknown_likelihood(
    name: str, exploration: dict[str, Any], space: Any, path: str
) -> None:
    with pytest.raises(ConfigError, match=r"weighs each action.*'SoftQ'\. A class of your own needs has_logp") as error:
        require(name, exploration, space)
    assert str(error.value).startswith(f"{path}: {name} weighs each action")


def test_of_a_sub_exploration_its_place_is_named() -> None:
    given = CURIOUS | {"sub_exploration": {"type": "StochasticSampling", "random_timesteps": 3}}
    with pytest.raises(ConfigError, match=r"^exploration_config\.sub_exploration\.random_timesteps=3: A2C would learn"):
        require("A2C", given)


def made(config: AlgorithmConfig, env: Any = "CartPole-v1") -> None:
    config.environment(env, env_config={"env": "CartPole-v1", "num_agents": 2} if env is IndependentAgents else {})
    make_local_worker(config.training(model={"fcnet_hiddens": [4]}).checked(), with_env=True)


def test_what_does_not_learn_may_explore_in_any_way() -> None:
    """No exploration, evaluation, and policies that do not train."""
    random = {"type": "Random"}
    made(config_class("PG")().exploration(explore=False, exploration_config=random))
    made(config_class("PG")().evaluation(evaluation_config={"explore": True, "exploration_config": random}))
    played = config_class("PG")().multi_agent(
        policies={"main": None, "other": {"config": {"exploration_config": random}}}
    )
    played.multi_agent(policy_mapping_fn={"0": "main", "1": "other"}, policies_to_train=["main"])
    made(played, IndependentAgents)
    with pytest.raises(ConfigError, match="PG learns from each action"):
        made(played.multi_agent(policies_to_train=["main", "other"]), IndependentAgents)


def test_a_worker_that_is_refused_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[bool] = []
    monkeypatch.setattr("reef.rollout.worker.RolloutWorker.stop", lambda self: stopped.append(True))
    with pytest.raises(ConfigError, match="Random"):
        made(config_class("PG")().exploration(exploration_config={"type": "Random"}))
    assert stopped == [True]
