"""Action distributions of a person's own: the contract, what breaks it, and training with one."""

from __future__ import annotations

from itertools import product
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from reef.algorithms.dqn import DQNConfig
from reef.algorithms.ppo import PPOConfig
from reef.algorithms.registry import config_class
from reef.algorithms.sac import SACConfig
from reef.config import ModelConfig
from reef.errors import ConfigError
from reef.nn.distributions import ActionDistribution, Categorical, CustomDistribution, distribution_maker
from reef.nn.make import make_policy
from reef.spaces import Layout, Space
from reef.types import Array

FIRST, SECOND = 2, 3
PAIR = spaces.Tuple([spaces.Discrete(FIRST), spaces.Discrete(SECOND)])


class SecondFollowsFirst(CustomDistribution):
    """Autoregressive: logits of the first choice, and for each first choice those of the second."""

    def __init__(self, inputs: Tensor) -> None:
        super().__init__(inputs)
        self.first = Categorical(inputs[:, :FIRST])
        self.second = Categorical(inputs[:, FIRST:].reshape(-1, FIRST, SECOND))

    @staticmethod
    def required_model_output_shape(action_space: Space, model_config: ModelConfig) -> int:
        return FIRST + FIRST * SECOND

    @staticmethod
    def draw(inputs: Array, generator: np.random.Generator) -> Array:
        first = Categorical.draw(inputs[:, :FIRST], generator)
        return np.stack([first, Categorical.draw(second_logits(inputs, first), generator)], 1)

    @staticmethod
    def mode(inputs: Array) -> Array:
        first = Categorical.mode(inputs[:, :FIRST])
        return np.stack([first, Categorical.mode(second_logits(inputs, first))], 1)

    def logp(self, actions: Tensor) -> Tensor:
        first, second = actions.long().unbind(1)
        given = self.second.log_probs[torch.arange(len(first)), first, second]
        return self.first.logp(first) + given

    def entropy(self) -> Tensor:
        return self.first.entropy() + (self.first.probs * self.second.entropy()).sum(1)

    def kl(self, other: Any) -> Tensor:
        return self.first.kl(other.first) + (self.first.probs * self.second.kl(other.second)).sum(1)


def second_logits(inputs: Array, first: Array) -> Array:
    found: Array = inputs[:, FIRST:].reshape(-1, FIRST, SECOND)[np.arange(len(first)), first]
    return found


class Matching(gym.Env[Any, Any]):
    """Worth 1 where the second choice is the first, which should not always be the same."""

    observation_space = spaces.Box(-1.0, 1.0, (2,))
    action_space = PAIR

    def __init__(self, _: Any = None) -> None:
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.observation_space.sample() * 0, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        self.steps += 1
        return self.observation_space.sample() * 0, float(action[0] == action[1]), self.steps % 10 == 0, False, {}


def maker_of(kind: Any, space: Space = PAIR) -> Any:
    return distribution_maker(ModelConfig(custom_action_dist=kind), Layout.of(space))


def test_the_example_is_the_distribution_that_it_says() -> None:
    maker, inputs = maker_of(SecondFollowsFirst), torch.randn(1, 8, generator=torch.Generator().manual_seed(0))
    pairs = torch.tensor(list(product(range(FIRST), range(SECOND))), dtype=torch.float32)
    logp = maker(inputs.expand(len(pairs), -1)).logp(pairs)
    probabilities = logp.exp()
    assert float(probabilities.sum()) == pytest.approx(1.0, abs=1e-5)
    assert maker(inputs).entropy().item() == pytest.approx(-float((probabilities * logp).sum()), abs=1e-5)
    others = maker(inputs.flip(1).expand(len(pairs), -1)).logp(pairs)
    kl = maker(inputs).kl(maker(inputs.flip(1)))
    assert kl.item() == pytest.approx(float((probabilities * (logp - others)).sum()), abs=1e-4)
    acting = ActionDistribution(maker, inputs.expand(20_000, -1).numpy())
    drawn = acting.sample(np.random.default_rng(0))
    assert drawn.shape == (20_000, 2) and drawn.dtype == np.float32
    shares = [float((drawn == pair.numpy()).all(1).mean()) for pair in pairs]
    assert shares == pytest.approx(probabilities.tolist(), abs=0.02)
    best = acting.deterministic()[0]
    assert best[0] == inputs[0, :FIRST].argmax()


def config(**more: Any) -> PPOConfig:
    made = PPOConfig().environment(Matching).debugging(seed=1).training(train_batch_size=200, num_sgd_iter=6, lr=0.02)
    model = {"custom_action_dist": SecondFollowsFirst, "fcnet_hiddens": [8]}
    return made.training(sgd_minibatch_size=100, entropy_coeff=0.02, model=model, **more)


def test_ppo_learns_what_independent_choices_cannot() -> None:
    with config().build() as algorithm:
        for _ in range(12):
            result = algorithm.train()
        assert result["episode_reward_mean"] > 9.0
        policy, obs = algorithm.get_policy(), np.zeros((500, 2), np.float32)
        actions, _, extras = policy.compute_actions(obs, explore=True)
        assert extras["action_dist_inputs"].shape == (500, 8)
        assert np.mean([first == second for first, second in actions]) > 0.9
        logits, _ = policy.model({"obs": obs[:1]})
        distribution = policy.dist_class(logits, policy.model)
        assert distribution.sample().shape == (1, 2) and distribution.entropy().shape == (1,)
        assert algorithm.compute_single_action(obs[0], explore=False) in [(0, 0), (1, 1)]


@pytest.mark.parametrize("name", ["A2C", "PG", "IMPALA", "APPO", "ES", "DDPPO"])
def test_other_algorithms_take_it_by_its_path(name: str) -> None:
    given = {"train_batch_size": 40, "rollout_fragment_length": 40}
    if name == "ES":
        given = {"train_batch_size": 16, "episodes_per_batch": 4, "noise_size": 100_000}
    if name == "DDPPO":
        given = {"train_batch_size": 40, "sgd_minibatch_size": 20, "num_sgd_iter": 1}
    model = {"custom_action_dist": f"{__name__}:SecondFollowsFirst", "fcnet_hiddens": [8]}
    settings = {"env": Matching, "seed": 1, "model": model, **given}
    with config_class(name)().update_from_dict(settings).reporting(min_time_s_per_iteration=None).build() as algorithm:
        assert algorithm.train()["timesteps_total"] > 0


class NoLogp(CustomDistribution):
    pass


class OneAction(SecondFollowsFirst):
    @staticmethod
    def draw(inputs: Array, generator: np.random.Generator) -> Array:
        return np.zeros((1, 2))


class TooLarge(SecondFollowsFirst):
    @staticmethod
    def mode(inputs: Array) -> Array:
        return np.full((len(inputs), 2), 7)


class OneEntropy(SecondFollowsFirst):
    def entropy(self) -> Tensor:
        return super().entropy().mean()


class Detached(SecondFollowsFirst):
    def logp(self, actions: Tensor) -> Tensor:
        return super().logp(actions).detach()


class NoSize(SecondFollowsFirst):
    @staticmethod
    def required_model_output_shape(action_space: Space, model_config: ModelConfig) -> int:
        return 0


class WantsModel(SecondFollowsFirst):
    def __init__(self, inputs: Tensor, model: Any) -> None:
        super().__init__(inputs)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Categorical, "must be a subclass of reef.nn.distributions.CustomDistribution"),
        ("nowhere:Thing", "there is no module 'nowhere'"),
        (NoLogp, "has no draw, no entropy, no kl, no logp, no mode, no required_model_output_shape. Define them."),
        (OneAction, r"draw returned shape \(1, 2\) for 2 rows, expected \(2, 2\)"),
        (TooLarge, "mode returned the value 7, which may be 0 to 1 of Discrete"),
        (OneEntropy, r"entropy returned \(\) for 2 rows, expected a tensor of the shape \(2,\)"),
        (Detached, "logp returned a tensor without a gradient"),
        (NoSize, "required_model_output_shape returned 0, expected a whole number, 1 or more"),
        (WantsModel, "TypeError: .*missing 1 required positional argument: 'model'"),
    ],
)
def test_what_breaks_the_contract_is_named(kind: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text) as refusal:
        maker_of(kind)
    assert "model.custom_action_dist" in str(refusal.value)


@pytest.mark.parametrize("kind", [DQNConfig, SACConfig])
def test_algorithms_with_q_values_refuse_it(kind: Any) -> None:
    settings = kind().environment("CartPole-v1").training(model={"custom_action_dist": SecondFollowsFirst})
    with pytest.raises(ConfigError, match="model.custom_action_dist=.* learns from Q-values .* such as PPO"):
        settings.validate()


def test_what_cannot_go_with_it_is_refused() -> None:
    with pytest.raises(ConfigError, match="model.free_log_std=True beside model.custom_action_dist"):
        PPOConfig().training(model={"custom_action_dist": SecondFollowsFirst, "free_log_std": True}).validate()
    masked = spaces.Dict({"action_mask": spaces.MultiBinary(5), "z": spaces.Box(0, 1, (1,))})
    with pytest.raises(ConfigError, match="model.custom_action_dist knows no masks"):
        make_policy(config(), masked, PAIR)
    one = PPOConfig().environment("CartPole-v1").training(model={"custom_action_dist": OfOneIndex})
    with pytest.raises(ConfigError, match="exploration_config.type='SoftQ' reads the network's outputs as Q-values"):
        one.exploration(exploration_config={"type": "SoftQ"}).build()


class OfOneIndex(CustomDistribution):
    """A categorical distribution as one's own."""

    @staticmethod
    def required_model_output_shape(action_space: Space, model_config: ModelConfig) -> int:
        return int(action_space.n)  # type: ignore[attr-defined]

    draw, mode = staticmethod(Categorical.draw), staticmethod(Categorical.mode)

    def logp(self, actions: Tensor) -> Tensor:
        return Categorical(self.inputs).logp(actions)

    def entropy(self) -> Tensor:
        return Categorical(self.inputs).entropy()

    def kl(self, other: Any) -> Tensor:
        return Categorical(self.inputs).kl(Categorical(other.inputs))


def test_the_same_distribution_as_ones_own_learns_the_same() -> None:
    found = []
    for model in ({}, {"custom_action_dist": OfOneIndex}):
        made = PPOConfig().environment("CartPole-v1").debugging(seed=3).training(train_batch_size=256, num_sgd_iter=2)
        with made.training(model={"fcnet_hiddens": [16], **model}).build() as algorithm:
            algorithm.train()
            found.append(np.concatenate([w.ravel() for w in algorithm.get_policy().get_weights().values()]))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-3, atol=1e-5)
