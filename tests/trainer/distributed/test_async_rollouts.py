"""IMPALA and APPO with workers and learners in processes of their own."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reef.algorithms.appo import APPOConfig
from reef.algorithms.impala import IMPALAConfig
from reef.distributed.ray_workers import RayWorkers

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster"), pytest.mark.timeout(300)]


def settings(kind: type[IMPALAConfig] = IMPALAConfig, **given: Any) -> IMPALAConfig:
    base = {
        "num_rollout_workers": 2,
        "num_cpus_per_worker": 0.5,
        "num_cpus_per_learner_worker": 0.5,
        "rollout_fragment_length": 10,
        "train_batch_size": 20,
        "min_sample_timesteps_per_iteration": 0,
        "model": {"fcnet_hiddens": [8]},
        "delay_between_worker_restarts_s": 0.0,
        "seed": 3,
    }
    return kind.from_dict(base | given).environment("eight_steps:Slow", env_config={"step_s": 0.01})


def stats_of(result: dict[str, Any]) -> dict[str, float]:
    return result["info"]["learner"]["default_policy"]["learner_stats"]


@pytest.mark.parametrize("to", [None, [1]])
def test_a_fragment_begins_with_the_newest_weights_whatever_was_requested_before(
    to: list[int] | None, tmp_path: Path
) -> None:
    config = settings(rollout_fragment_length=30, train_batch_size=30, max_requests_in_flight_per_sampler_worker=3)
    config.environment(env_config={"step_s": 0.05, "mark": str(tmp_path / "mark")})
    workers = RayWorkers(config.validate().freeze(), 1)
    try:
        local = workers.local_worker()
        weights = {name: vector * 0.0 + 0.5 for name, vector in local.get_weights().items()}
        workers.set_weights(weights, 1, 0)
        (tmp_path / "mark").unlink(missing_ok=True)  # the check of the environment has stepped it
        assert [workers.request(1) for _ in range(4)] == [True, True, True, False]
        while not (tmp_path / "mark").exists():
            time.sleep(0.01)
        workers.set_weights(weights, 2, 30, to=to)
        workers.set_weights({name: vector * 2.0 for name, vector in weights.items()}, 3, 60, to=to)
        samples = [*workers.ready(30.0), *workers.ready(30.0), *workers.ready(30.0)]
        assert [sample.rollouts["default_policy"].policy_version for sample in samples] == [1, 3, 3]
        acting = workers.foreach_worker(lambda worker: worker.acting_weights()["default_policy"])
        assert (acting[1] == 1.0).all()
    finally:
        workers.stop()


def test_several_learners_learn_while_workers_sample() -> None:
    config = settings(APPOConfig, num_learner_workers=2, target_update_frequency=2, num_sgd_iter=2)
    with config.build() as algorithm:
        before = algorithm.get_weights()["default_policy"]["pi.weight"].copy()
        results = [algorithm.train() for _ in range(6)]
        state = algorithm.state()
        assert results[-1]["num_env_steps_trained"] == 6 * 20
        assert algorithm.policy_version == 7
        # one update is under way, and three fragments of each worker are requested or in the batch
        assert all(stats_of(result)["staleness_max"] <= 6.0 for result in results)
        assert not np.array_equal(algorithm.get_weights()["default_policy"]["pi.weight"], before)
        algorithm.set_state(state)
        assert algorithm.train()["num_env_steps_trained"] == 7 * 20
