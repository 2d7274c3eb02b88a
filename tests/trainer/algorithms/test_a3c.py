"""A3C: the gradient of a worker and the step along it, whichever networks and spaces there are, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rollouts import LSTM, NESTED, Nested, learner, rollout

from reef.algorithms.a2c import A2CConfig, A2CLearner
from reef.algorithms.a3c import A3C, A3CConfig, A3CLearner, A3CWorker
from reef.batch import FragmentGradient
from reef.errors import ConfigError, TrainingError
from reef.run.algorithm import Algorithm


def small(**settings: Any) -> A3CConfig:
    base = {"rollout_fragment_length": 5, "num_envs_per_worker": 2, "model": {"fcnet_hiddens": [8]}, "seed": 5}
    config = A3CConfig.from_dict(base | settings).environment("CartPole-v1")
    return config.reporting(min_sample_timesteps_per_iteration=settings.get("min_sample_timesteps_per_iteration", 40))


def test_the_defaults_are_those_of_rllib() -> None:
    config = A3CConfig()
    assert (config.rollout_fragment_length, config.grad_clip, config.lr) == (10, 40.0, 1e-4)
    assert (config.vf_loss_coeff, config.entropy_coeff, config.lambda_) == (0.5, 0.01, 1.0)
    assert not config.normalize_advantages and config.asynchronous


@pytest.mark.parametrize("grad_clip", [None, 0.05])
def test_a_gradient_of_one_learner_applied_by_another_is_a_step_of_a2c(grad_clip: float | None) -> None:
    settings = {"lr": 1e-2, "grad_clip": grad_clip}
    worker, driver = (learner(A3CLearner, A3CConfig(), **settings) for _ in range(2))
    a2c = learner(A2CLearner, A2CConfig(), **settings)
    np.testing.assert_array_equal(driver.weights(), a2c.weights())
    for seed in range(3):
        gradient = worker.gradient_of(rollout(seed=seed), 0)
        np.testing.assert_array_equal(worker.weights(), driver.weights(), "it is computed and not followed")
        found, expected = driver.update(gradient, 0).stats, a2c.update(rollout(seed=seed), 0).stats
        np.testing.assert_allclose(driver.weights(), a2c.weights(), rtol=1e-5, atol=1e-7)
        assert found == pytest.approx(expected, rel=1e-5)
        worker.set_weights(driver.weights())


def test_a_gradient_that_is_not_finite_ends_the_run_and_leaves_the_weights() -> None:
    one = learner(A3CLearner, A3CConfig())
    before, broken = one.weights(), one.gradient_of(rollout(), 0)
    broken.vector[3] = np.nan
    with pytest.raises(TrainingError, match=r"the columns \['gradient'\] hold NaN"):
        one.update(broken, 0)
    np.testing.assert_array_equal(one.weights(), before)


def test_a_worker_computes_the_gradient_of_the_weights_that_it_has_the_critic_s_too() -> None:
    config = small(model={"fcnet_hiddens": [8], "vf_share_layers": False}).freeze()
    one, two = A3CWorker(config), A3CWorker(config, 1)
    weights = {name: np.full_like(vector, 0.25) for name, vector in one.get_weights().items()}
    one.set_weights(weights, 3, 7)
    two.post_weights(one.acting_weights(), 3, 7)
    sample = two.sample()
    np.testing.assert_array_equal(two.get_weights()["default_policy"], weights["default_policy"])
    gradient = sample.gradients["default_policy"]
    assert (len(gradient), gradient.policy_version, sample.rollouts) == (10, 3, {})
    assert sample.agent_steps == {"default_policy": sample.env_steps}
    assert gradient.vector.shape == weights["default_policy"].shape and gradient.vector.any()


def test_only_a_worker_that_samples_has_learners() -> None:
    config = small().freeze()
    assert A3CWorker(config).learners.keys() == {"default_policy"}
    assert A3CWorker(config, with_env=False).learners == {}


@pytest.mark.parametrize(("in_flight", "ages"), [(1, [0, 0, 0]), (2, [0.5, 0.5, 0.5])])
def test_in_process_the_weights_are_as_old_as_the_requests_are_many(in_flight: int, ages: list[float]) -> None:
    config = small(max_requests_in_flight_per_sampler_worker=in_flight, min_sample_timesteps_per_iteration=0)
    with config.build() as algorithm:
        for step, age in enumerate(ages, 1):
            result = algorithm.train()
            stats = result["info"]["learner"]["default_policy"]["learner_stats"]
            assert (stats["staleness"], stats["staleness_max"]) == (age, float(in_flight - 1))
            assert result["num_env_steps_sampled"] == result["num_env_steps_trained"] == 10 * in_flight * step
            assert result["num_agent_steps_sampled"] == result["num_agent_steps_trained"] == 10 * in_flight * step
            assert algorithm.policy_version == 1 + in_flight * step
        newest, acting = algorithm.learners.weights(), algorithm.workers.local_worker().get_weights()
        np.testing.assert_array_equal(newest["default_policy"], acting["default_policy"])


def train_with_old_gradient(max_staleness: int, monkeypatch: pytest.MonkeyPatch) -> tuple[A3C, Any, list[int]]:
    """A fifth iteration with a gradient of before the first: its result, and the versions that the worker got in it."""
    algorithm = small(min_sample_timesteps_per_iteration=0, max_staleness=max_staleness).build()
    workers, versions = algorithm.workers, []
    (late,), ready, publish = workers.sample(), workers.ready, workers.set_weights

    def set_weights(weights: Any, version: int, timestep: int, to: list[int] | None = None) -> None:
        assert to == [late.worker_index]
        versions.append(version)
        publish(weights, version, timestep, to)

    for _ in range(4):
        algorithm.train()
    monkeypatch.setattr(workers, "ready", lambda: [late, *ready()])
    monkeypatch.setattr(workers, "set_weights", set_weights)
    result = algorithm.train()
    return algorithm, result, versions  # type: ignore[return-value]


def test_a_gradient_that_is_too_old_is_dropped_and_its_worker_gets_the_newest_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    algorithm, result, versions = train_with_old_gradient(3, monkeypatch)
    assert result["counters"]["num_gradients_dropped"] == 1
    assert (result["num_env_steps_sampled"], result["num_env_steps_trained"]) == (60, 50)
    assert versions == [5, 6], "what is dropped makes no new version"
    assert result["info"]["learner"]["default_policy"]["learner_stats"]["staleness_max"] == 0.0
    with small(min_sample_timesteps_per_iteration=0).build() as other:
        other.workers.sample()
        for _ in range(5):
            other.train()
        expected = other.learners.weights()["default_policy"]
    np.testing.assert_array_equal(algorithm.learners.weights()["default_policy"], expected)
    algorithm.stop()


def test_an_old_gradient_is_applied_as_long_as_the_limit_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm, result, versions = train_with_old_gradient(4, monkeypatch)
    assert result["counters"]["num_gradients_dropped"] == 0
    assert result["info"]["learner"]["default_policy"]["learner_stats"]["staleness_max"] == 4.0
    assert versions == [6, 7]
    algorithm.stop()


def test_the_limit_of_staleness_grows_with_the_requests_in_flight() -> None:
    config = A3CConfig().rollouts(num_rollout_workers=8)
    assert config.staleness_limit == 80
    assert config.training(max_requests_in_flight_per_sampler_worker=2).staleness_limit == 160
    assert config.training(max_staleness=0).staleness_limit == 0
    assert A3CConfig().staleness_limit == 10


@pytest.mark.parametrize("model", [LSTM, {"use_attention": True, "attention_dim": 8}])
def test_a_memory_is_trained_on_whole_sequences_and_resumes(model: dict[str, Any], tmp_path: Path) -> None:
    with small(model=model | {"fcnet_hiddens": [4]}, rollout_fragment_length=9).build() as one:
        before = one.get_policy().get_weights()
        one.train()
        after = one.get_policy().get_weights()
        with Algorithm.from_checkpoint(one.save(tmp_path / "checkpoint")) as two:
            assert one.train()["info"]["learner"] == two.train()["info"]["learner"]
    assert any(name.startswith("memory.") and (after[name] != before[name]).any() for name in after)


def test_nested_spaces_are_trained_on() -> None:
    with small().environment(Nested).build() as algorithm:
        stats = algorithm.train()["info"]["learner"]["default_policy"]["learner_stats"]
        assert None not in stats.values()
        assert Nested.action_space.contains(algorithm.compute_single_action(NESTED.sample()))


def test_of_two_policies_only_the_one_that_learns_has_gradients() -> None:
    config = small(policies=["0", "1"], policies_to_train=["0"])
    config.environment("reef.envs.multi_agent:IndependentAgents", env_config={"env": "CartPole-v1", "num_agents": 2})
    with config.build() as algorithm:
        before = algorithm.learners.weights() | algorithm.fixed_weights()
        result = algorithm.train()
        after = algorithm.learners.weights() | algorithm.fixed_weights()
    assert result["info"]["learner"].keys() == {"0"}
    assert (before["0"] != after["0"]).any() and (before["1"] == after["1"]).all()
    assert result["num_agent_steps_sampled"] > result["num_agent_steps_trained"] > 0


@pytest.mark.timeout(60)
def test_whether_a_policy_learns_is_asked_where_its_rollout_is() -> None:
    with small(policies_to_train=lambda policy_id, batch: batch.rewards.sum() > 0).build() as algorithm:
        assert algorithm.train()["num_env_steps_trained"] >= 40


def test_weights_that_are_set_by_hand_are_those_of_the_next_gradient() -> None:
    with small().build() as algorithm:
        algorithm.train()
        policy = algorithm.get_policy()
        policy.set_weights({name: values + 1.0 for name, values in policy.get_weights().items()})
        wanted = policy.get_weights()["pi.bias"]
        algorithm.train()
        assert abs(algorithm.get_policy().get_weights()["pi.bias"] - wanted).max() < 0.1


class Doubled(A3CLearner):
    def loss(self, outputs: Any, minibatch: Any) -> Any:
        found = super().loss(outputs, minibatch)
        return found._replace(value=2.0 * found.value)


class Own(A3C):
    learner_class = Doubled


def test_a_loss_of_your_own_is_that_of_the_workers() -> None:
    norms = []
    for kind in (A3C, Own):
        config = kind.config_class.from_dict(small().to_dict())
        with config.build() as algorithm:
            norms.append(algorithm.workers.sample()[0].gradients["default_policy"].vector)
    np.testing.assert_allclose(norms[1], 2.0 * norms[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("num_learner_workers", 2, "are computed by the rollout workers, and applied one at a time. Leave it at 0."),
        ("rollout_fragment_length", "auto", "A3C has no train batch to divide. Give a number of steps."),
        ("sample_async", True, "workers always sample ahead of the learner here"),
        ("use_critic", False, "use_critic=False cannot bootstrap"),
        ("vtrace", True, "A3C has no such setting"),
        ("learner_queue_size", 4, "A3C has no such setting"),
        ("sgd_minibatch_size", 4, "A3C has no such setting"),
    ],
)
def test_what_cannot_have_an_effect_is_refused_by_name(key: str, value: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=key) as refusal:
        small(**{key: value}).build()
    assert problem in str(refusal.value)
    assert str(refusal.value).count("\n- ") <= 1, "one message"


def test_a_train_batch_that_is_not_made_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    small(train_batch_size=200).build().stop()
    assert "train_batch_size=200 has no effect with A3C, where every fragment is a batch." in caplog.messages


def test_a_gradient_is_as_long_as_its_steps() -> None:
    assert len(FragmentGradient(np.zeros(3), 7, 0, {})) == 7
