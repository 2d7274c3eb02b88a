"""A checkpoint goes on with another number of workers and learners."""

from pathlib import Path

import numpy as np
import pytest

from reef.algorithms.registry import config_class
from reef.config import AlgorithmConfig
from reef.rollout.worker import RolloutWorker
from reef.types import DEFAULT_POLICY

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster"), pytest.mark.timeout(180)]

SMALL = {
    "PPO": {"train_batch_size": 64, "sgd_minibatch_size": 32, "num_sgd_iter": 1},
    "DQN": {"num_steps_sampled_before_learning_starts": 32, "train_batch_size": 16, "n_step": 2},
}


def config(name: str, workers: int, learners: int = 0) -> AlgorithmConfig:
    return (
        config_class(name)()
        .environment("CartPole-v1")
        .rollouts(num_rollout_workers=workers, num_envs_per_worker=2, observation_filter="MeanStdFilter")
        .resources(num_cpus_per_worker=0.25, num_learner_workers=learners, num_cpus_per_learner_worker=0.25)
        .reporting(min_sample_timesteps_per_iteration=64)
        .training(**SMALL[name], model={"fcnet_hiddens": [8]})
        .debugging(seed=5)
    )


def observations_seen(worker: RolloutWorker) -> float:
    return float(worker.filters[DEFAULT_POLICY].state()["stat"]["count"])


@pytest.mark.parametrize("name", SMALL)
def test_the_number_of_workers_and_learners_may_change(name: str, ray_cluster, tmp_path: Path) -> None:
    with config(name, workers=2).build() as remote, config(name, workers=0, learners=2).build() as local:
        remote.train()
        local.restore(remote.save(tmp_path / "from-two"))
        weights = remote.learners.weights()[DEFAULT_POLICY]
        assert np.array_equal(local.learners.weights()[DEFAULT_POLICY], weights)
        steps = remote.timestep
        assert local.train()["timesteps_total"] > steps
        remote.restore(local.save(tmp_path / "from-none"))
        assert np.array_equal(remote.learners.weights()[DEFAULT_POLICY], local.learners.weights()[DEFAULT_POLICY])
        seen = observations_seen(local.workers.local_worker())
        assert seen > 0
        assert remote.workers.foreach_worker(observations_seen) == [seen] * 3, "the filters of all go on from there"
        result = remote.train()
        assert result["training_iteration"] == 3
        seen_now = observations_seen(remote.workers.local_worker())
        assert seen < seen_now < 1.9 * seen, "what was seen in one process is not counted again"


def test_weights_set_in_a_policy_reach_all_workers_and_learners(ray_cluster, tmp_path: Path) -> None:
    with config("PPO", workers=2, learners=2).training(lr=1e-9).build() as algorithm:
        policy = algorithm.get_policy()
        policy.set_weights({name: np.full_like(value, 3.0) for name, value in policy.get_weights().items()})
        algorithm.train()
        everywhere = algorithm.workers.foreach_worker(lambda worker: worker.acting_weights()[DEFAULT_POLICY])
        assert len(everywhere) == 3
        assert np.allclose(everywhere, 3.0, atol=1e-4)
        state = algorithm.learners._group.call_all("weights", timeout_s=30.0)
        assert np.allclose([state[index][DEFAULT_POLICY] for index in (1, 2)], 3.0, atol=1e-4)
        path = algorithm.save(tmp_path / "set")
    with config("PPO", workers=0).build() as alone:
        alone.restore(path)
        assert np.allclose(alone.learners.weights()[DEFAULT_POLICY], 3.0, atol=1e-4)
