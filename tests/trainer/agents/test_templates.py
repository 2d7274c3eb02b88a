"""Policies and trainers from functions, and batches that a policy learns from."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from reef.agents.templates import build_torch_policy, build_trainer
from reef.callbacks import SampleBatch
from reef.errors import CallbackError, ConfigError


class Bandit(gym.Env[Any, Any]):
    """One step: the observation, 0 or 1, is the action that is paid."""

    observation_space, action_space = spaces.Discrete(2), spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.shown = int(self.np_random.integers(2))
        return self.shown, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        return self.shown, float(action == self.shown) - 0.5, True, False, {}


def policy_gradient_loss(policy: Any, model: Any, dist_class: Any, train_batch: Any) -> torch.Tensor:
    logits, _ = model.from_batch(train_batch)
    action_dist = dist_class(logits, model)
    return -torch.mean(action_dist.logp(train_batch[SampleBatch.ACTIONS]) * train_batch["rewards"])


def entropy(policy: Any, train_batch: Any) -> dict[str, Any]:
    return {"entropy": policy.dist_class(policy.model(train_batch)[0], policy.model).entropy().mean(), "answer": 42}


MyTorchPolicy = build_torch_policy(name="MyTorchPolicy", loss_fn=policy_gradient_loss, stats_fn=entropy)
MyTrainer = build_trainer(name="MyTrainer", default_policy=MyTorchPolicy, default_config={"lr": 0.05})
SMALL = {"train_batch_size": 100, "num_envs_per_worker": 4, "seed": 1, "model": {"fcnet_hiddens": [8]}}


def test_a_trainer_learns_by_the_loss_function(tmp_path: Any) -> None:
    with MyTrainer(config=SMALL, env=Bandit) as trainer:
        assert trainer.config.lr == 0.05
        rewards = [trainer.train()["episode_reward_mean"] for _ in range(20)]
        stats = trainer.train()["info"]["learner"]["default_policy"]["learner_stats"]
        assert stats["answer"] == 42
        assert stats["entropy"] < 0.5
        path = trainer.save(tmp_path / "checkpoint")
        best = [trainer.compute_single_action(shown, explore=False) for shown in range(2)]
    assert abs(rewards[0]) < 0.2
    assert rewards[-1] > 0.4
    assert best == [0, 1]
    with MyTrainer.from_checkpoint(path) as restored:
        assert type(restored) is MyTrainer
        assert [restored.compute_single_action(shown, explore=False) for shown in range(2)] == best


def test_a_policy_alone_learns_from_samples_of_workers() -> None:
    with MyTrainer(config=SMALL, env=Bandit) as trainer:
        worker = trainer.workers.local_worker()
        policy = MyTorchPolicy(Bandit.observation_space, Bandit.action_space, {"lr": 0.05, "model": SMALL["model"]})
        for _ in range(20):
            policy.learn_on_batch(SampleBatch.concat_samples([worker.sample()]))
            worker.get_policy().set_weights(policy.get_weights())
        assert policy.compute_actions([0, 1], explore=False)[0].tolist() == [0, 1]
        zeros = {name: np.zeros_like(value) for name, value in policy.get_weights().items()}
        policy.set_weights(zeros)
        policy.learn_on_batch(worker.sample())
        assert max(np.abs(value).max() for value in policy.get_weights().values()) <= 0.05 * 1.01, "one step from zeros"


def returns(value: Any) -> Any:
    def loss(policy: Any, model: Any, dist_class: Any, train_batch: Any) -> Any:
        return value(model({"obs": train_batch["obs"]})[0], train_batch)

    return build_torch_policy("Wrong", loss_fn=loss)(spaces.Discrete(2), spaces.Discrete(2), SMALL)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda logits, batch: logits.sum(1), r"Wrong: loss_fn loss returned shape \[\d+\], expected a scalar tensor"),
        (lambda logits, batch: 1.0, "returned float, expected a scalar tensor"),
        (lambda logits, batch: logits.sum().detach(), "returned a tensor without a gradient"),
        (lambda logits, batch: batch["advantages"], r"loss_fn loss raised KeyError: 'advantages' \(.*test_templates"),
    ],
)
def test_a_loss_that_cannot_be_descended_is_named(value: Any, message: str) -> None:
    with MyTrainer(config=SMALL, env=Bandit) as trainer, pytest.raises(CallbackError, match=message):
        returns(value).learn_on_batch(trainer.workers.sample())


def test_statistics_are_numbers() -> None:
    wrong = build_torch_policy("Wrong", loss_fn=policy_gradient_loss, stats_fn=lambda policy, train_batch: {"a": "b"})
    policy = wrong(spaces.Discrete(2), spaces.Discrete(2), SMALL)
    with MyTrainer(config=SMALL, env=Bandit) as trainer, pytest.raises(CallbackError, match="expected numbers by name"):
        policy.learn_on_batch(trainer.workers.sample())


def test_functions_names_and_settings_are_checked_when_they_are_given() -> None:
    with pytest.raises(ConfigError, match=r"loss_fn=.*called with \(policy, model, dist_class, train_batch\)"):
        build_torch_policy("Mine", loss_fn=lambda policy, batch: 0)
    with pytest.raises(ConfigError, match="build_torch_policy: name='my policy': expected the name of a variable"):
        build_torch_policy("my policy", loss_fn=policy_gradient_loss)
    with pytest.raises(ConfigError, match="expected what build_torch_policy returns"):
        build_trainer("Mine", default_policy=policy_gradient_loss)
    with pytest.raises(ConfigError, match="default_config:\nlr='fast'"):
        build_trainer("Mine", default_policy=MyTorchPolicy, default_config={"lr": "fast"})
    with pytest.raises(ConfigError, match="torch_compile_learner=True: a loss function of your own is not compiled"):
        MyTrainer(config={"torch_compile_learner": True}, env=Bandit)
    with pytest.raises(ConfigError, match="has no 'Other'"):
        build_trainer("Other", default_policy=MyTorchPolicy)(env=Bandit)
