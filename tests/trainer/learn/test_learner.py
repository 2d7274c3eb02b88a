from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from reef.algorithms.ppo import PPOConfig, PPOLearner
from reef.batch import Rollout, concat_columns
from reef.errors import ConfigError, ResourceError, TrainingError
from reef.nn.gradients import Columns, Loss

OBS, ACTIONS = spaces.Box(-9, 9, (3,)), spaces.Discrete(2)


def config(**training: object) -> PPOConfig:
    settings = {"sgd_minibatch_size": 8, "num_sgd_iter": 2, "lr": 1e-2, "model": {"fcnet_hiddens": [8]}}
    return PPOConfig().training(**(settings | training)).debugging(seed=3)


def rollout(steps: int = 8, columns: int = 4) -> Rollout:
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(steps, columns, 3)).astype(np.float32)
    actions = rng.integers(0, 2, (steps, columns))
    inputs = rng.normal(size=(steps, columns, 2)).astype(np.float32)
    flags = np.zeros((steps, columns), np.bool_)
    logp = np.full((steps, columns), np.log(0.5), np.float32)
    return Rollout(
        obs, actions, rng.normal(size=(steps, columns)).astype(np.float32), obs, flags, flags, ~flags,
        {"action_logp": logp, "action_dist_inputs": inputs},
    )  # fmt: skip


def learner(settings: PPOConfig, **kwargs: object) -> PPOLearner:
    return PPOLearner(settings, OBS, ACTIONS, **kwargs)


def test_an_update_takes_every_step_and_reports_means() -> None:
    one = learner(config())
    before = one.weights()
    stats = one.update(rollout(), 0).stats
    assert not np.allclose(before, one.weights())
    assert {"total_loss", "policy_loss", "vf_loss", "entropy", "kl", "grad_gnorm", "cur_lr"} <= stats.keys()
    assert one.parameters.optimizer.step_count.item() == 2 * 4, "2 passes of 32 / 8 minibatches"


def test_a_shorter_fragment_is_valued_at_its_own_end() -> None:
    """Padding must not come between the last step of a column and the value of its successor."""
    one = learner(config(kl_coeff=0.0))
    long, short = rollout(8, 2), rollout(5, 3)
    joint = one.layout.read(concat_columns([long, short]))
    apart = one.layout.read(long), one.layout.read(short)
    for which in range(2):
        np.testing.assert_allclose(joint[which][:, :2], apart[0][which], rtol=1e-5)
        np.testing.assert_allclose(joint[which][:5, 2:], apart[1][which], rtol=1e-5)


def test_two_learners_compute_the_gradient_of_one() -> None:
    """Each takes its half of every minibatch; the mean of their gradients must be that of the whole minibatch."""
    gradients: list[torch.Tensor] = []

    def record(flat: torch.Tensor) -> None:
        gradients.append(flat.clone())

    for rank, world in ((0, 1), (0, 2), (1, 2)):
        one = learner(config(num_sgd_iter=1), rank=rank, world_size=world, reduce=record)
        columns = one.prepare(rollout())
        one.step(next(one.minibatches(columns)))
    whole, first, second = gradients
    torch.testing.assert_close((first + second) / 2, whole, rtol=1e-4, atol=1e-6)
    assert not torch.allclose(first, second)


def test_state_goes_on_bit_for_bit() -> None:
    one, two = learner(config()), learner(config().debugging(seed=99))
    one.update(rollout(), 0)
    two.set_state(one.state())
    one.update(rollout(), 100)
    two.update(rollout(), 100)
    assert np.array_equal(one.weights(), two.weights())


def test_a_seed_gives_the_same_network_and_leaves_torch_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    one, two = learner(config()), learner(config())
    assert np.array_equal(one.weights(), two.weights())
    assert torch.rand(1).equal(expected)


def test_schedules_follow_the_timestep() -> None:
    one = learner(config(lr=[[0, 1.0], [100, 0.0]], entropy_coeff=[[0, 0.5], [100, 0.1]]))
    stats = one.update(rollout(), 50).stats
    assert stats["cur_lr"] == pytest.approx(0.5)
    assert stats["entropy_coeff"] == pytest.approx(0.3)


def test_a_loss_that_is_not_finite_is_named_and_not_trained_on() -> None:
    one = learner(config())
    before = one.weights()
    bad = rollout()
    bad.rewards[2, 1] = np.nan
    with pytest.raises(TrainingError, match="advantages") as caught:
        one.update(bad, 0)
    assert "was not taken" in str(caught.value)
    assert caught.value.statistics.keys() == {"total_loss", "grad_gnorm"}
    assert all(math.isnan(value) for value in caught.value.statistics.values())
    assert np.array_equal(before, one.weights())


def test_a_batch_of_another_kind_is_refused() -> None:
    with pytest.raises(TypeError, match="PPOLearner learns from Rollout, not from Transitions"):
        learner(config()).update(rollout().flatten(), 0)  # type: ignore[arg-type]


def test_a_batch_of_failed_steps_alone_is_refused() -> None:
    one, batch = learner(config()), rollout()
    batch.mask[:] = False
    with pytest.raises(TrainingError, match="no step that worked"):
        one.update(batch, 0)


def test_a_missing_gpu_is_named() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(ResourceError, match=r"num_gpus=1.*sees 0"):
        learner(config().resources(num_gpus=1))
    assert learner(config().resources(num_gpus=1, _fake_gpus=True)).device.type == "cpu"


def test_the_kl_penalty_follows_its_target() -> None:
    loose, tight = learner(config(kl_target=100.0)), learner(config(kl_target=1e-9))
    assert loose.update(rollout(), 0).stats["cur_kl_coeff"] == pytest.approx(0.1)
    assert tight.update(rollout(), 0).stats["cur_kl_coeff"] == pytest.approx(0.3)


def test_the_value_error_is_clipped() -> None:
    one = learner(config(vf_clip_param=1e-3, num_sgd_iter=1, sgd_minibatch_size=32))
    assert one.update(rollout(), 0).stats["vf_loss"] <= 1e-3


@pytest.mark.parametrize("what", ["forward_train", "complete_update"])
def test_a_compiled_learner_learns_the_same(what: str) -> None:
    """The "aot_eager" backend traces forward and backward as "inductor" does, without the C++ compiler."""
    compiled = config().framework(
        torch_compile_learner=True,
        torch_compile_learner_what_to_compile=what,
        torch_compile_learner_dynamo_backend="aot_eager",
    )
    one, two = learner(config()), learner(compiled)
    first, second = one.update(rollout(), 0).stats, two.update(rollout(), 0).stats
    np.testing.assert_allclose(one.weights(), two.weights(), rtol=1e-4, atol=1e-5)
    assert first == pytest.approx(second, rel=1e-3)


@pytest.mark.parametrize("what", ["forward_train", "complete_update"])
def test_the_compilers_mode_is_the_one_of_the_settings(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    compile_with = torch.compile

    def compiler(function: Any, **options: Any) -> Any:
        asked.append(options)
        return compile_with(function, backend="aot_eager")

    monkeypatch.setattr(torch, "compile", compiler)
    compiled = config().framework(
        torch_compile_learner=True,
        torch_compile_learner_what_to_compile=what,
        torch_compile_learner_dynamo_mode="reduce-overhead",
    )
    learner(compiled).update(rollout(), 0)
    assert asked and all((one["backend"], one["mode"]) == ("inductor", "reduce-overhead") for one in asked)


def test_minibatches_that_learners_cannot_share_are_refused() -> None:
    with pytest.raises(ConfigError, match="num_learner_workers=3"):
        config().resources(num_learner_workers=3).validate()


class Apart(PPOLearner):
    """Trains the last layers of actor and critic by a loss each."""

    def setup(self) -> None:
        policy: Any = self.policy
        self.actor = self.train_by(self.actor_loss, policy.pi, ("features",), lr=0.1, name="actor")
        self.critic = self.train_by(
            self.critic_loss, policy.vf, ("features",), lr=[[0, 0.2], [100, 0.1]], name="critic"
        )

    def prepare(self, batch: Rollout) -> Columns:
        return {"features": torch.ones(8, 8)}

    def step(self, minibatch: Columns) -> Loss:
        actor, critic = self.actor.descend(minibatch), self.critic.descend(minibatch)
        return Loss(actor.value + critic.value, actor.stats | critic.stats)

    def actor_loss(self, outputs: torch.Tensor, minibatch: Columns) -> Loss:
        """The critic takes part and is not trained by it."""
        policy: Any = self.policy
        return Loss((outputs.sum(1) * policy.vf(minibatch["features"]).squeeze(1)).mean(), {})

    def critic_loss(self, outputs: torch.Tensor, minibatch: Columns) -> Loss:
        return Loss((outputs - 3.0).square().mean(), {"error": (outputs - 3.0).mean().detach()})


def test_several_losses_train_each_its_own_part() -> None:
    one = Apart(config(sgd_minibatch_size=8, num_sgd_iter=1, grad_clip=None), OBS, ACTIONS)
    before = one.policy.get_weights()
    stats = one.update(rollout(), 50).stats
    moved = {name for name, value in one.policy.get_weights().items() if (value != before[name]).any()}
    assert moved == {"pi.weight", "pi.bias", "vf.weight", "vf.bias"}
    assert {"actor_loss", "actor_grad_gnorm", "critic_loss", "critic_grad_gnorm", "error"} <= stats.keys()
    assert (stats["actor_lr"], stats["critic_lr"]) == (0.1, pytest.approx(0.15))
    policy: Any = one.policy
    features = torch.ones(8, 8)
    outputs = torch.nn.functional.linear(
        features, *(torch.from_numpy(before[f"vf.{name}"]) for name in ("weight", "bias"))
    )
    expected = (2 * (outputs - 3.0)).mean()
    torch.testing.assert_close(policy.vf.bias.grad, expected.reshape(1))
    other = Apart(one.config.copy().debugging(seed=99), OBS, ACTIONS)
    other.set_state(one.state())
    one.update(rollout(), 60)
    other.update(rollout(), 60)
    assert np.array_equal(one.weights(), other.weights())
