"""A3C with workers in processes of their own."""

import time
from typing import Any

import gymnasium as gym
import pytest

from reef.algorithms.a3c import A3CConfig
from reef.distributed.ray_workers import RayWorkers

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster"), pytest.mark.timeout(300)]


def settings(**given: Any) -> A3CConfig:
    base = {
        "num_rollout_workers": 2,
        "num_cpus_per_worker": 0.5,
        "rollout_fragment_length": 10,
        "min_sample_timesteps_per_iteration": 0,
        "model": {"fcnet_hiddens": [8], "vf_share_layers": False},
        "delay_between_worker_restarts_s": 0.0,
        "seed": 3,
    }
    return A3CConfig.from_dict(base | given).environment("CartPole-v1")


def stats_of(result: dict[str, Any]) -> dict[str, float]:
    return result["info"]["learner"]["default_policy"]["learner_stats"]


@pytest.mark.parametrize("in_flight", [1, 2])
def test_gradients_are_applied_as_they_come_and_are_behind_by_those_of_the_others(in_flight: int) -> None:
    def version_and_weights(worker: Any) -> tuple[int, Any]:
        """Of what it has got; it takes them when the next fragment begins."""
        for weights, version, _ in worker._posted:
            return version, weights
        return worker.policy_version, worker.get_weights()

    with settings(max_requests_in_flight_per_sampler_worker=in_flight).build() as algorithm:
        seen = [algorithm.train() for _ in range(8)]
        while max(stats_of(result)["staleness_max"] for result in seen) < 1 and len(seen) < 500:
            seen.append(algorithm.train())  # one of the two is late
        assert all(len({index for index in algorithm.workers.healthy}) == 2 for _ in seen)
        ages = [stats_of(result)["staleness_max"] for result in seen]
        # those of the other, who may make several while the process of this one waits for its turn
        assert max(ages) <= 20 * in_flight, "older gradients are dropped"
        assert max(ages) >= 1.0, "nobody waits for the other"
        workers = algorithm.workers
        assert isinstance(workers, RayWorkers)
        assert all(workers._group.num_in_flight(index) <= in_flight for index in workers.healthy)
        deadline, everywhere = time.monotonic() + 60.0, workers.foreach_worker(version_and_weights)
        newest, trained = everywhere[0]
        assert newest == algorithm.policy_version == 1 + seen[-1]["num_env_steps_trained"] // 10
        while max(version for version, _ in everywhere[1:]) != newest:  # weights are on their way, beside other calls
            assert time.monotonic() < deadline, "the worker that delivered last gets the newest"
            everywhere = workers.foreach_worker(version_and_weights)
        size = trained["default_policy"].size
        assert all(weights["default_policy"].size == size for _, weights in everywhere), "the critic's weights too"
        newest_of = [weights["default_policy"] for version, weights in everywhere if version == newest]
        assert all((weights == trained["default_policy"]).all() for weights in newest_of)


class SlowInWorker2(gym.Wrapper[Any, Any, Any, Any]):
    def __init__(self, env_config: Any) -> None:
        super().__init__(gym.make("CartPole-v1"))
        self.pause_s = 0.3 if env_config.worker_index == 2 else 0.0

    def step(self, action: Any) -> Any:
        time.sleep(self.pause_s)
        return super().step(action)


def test_the_gradients_of_a_worker_that_is_far_behind_are_dropped() -> None:
    with settings().environment(SlowInWorker2).build() as algorithm:
        deadline, dropped = time.monotonic() + 90.0, 0
        while not dropped:
            assert time.monotonic() < deadline
            result = algorithm.train()
            dropped = result["counters"]["num_gradients_dropped"]
            assert stats_of(result)["staleness_max"] <= 20
        assert result["num_env_steps_sampled"] - result["num_env_steps_trained"] == 10 * dropped
        assert algorithm.policy_version == 1 + result["num_env_steps_trained"] // 10


def test_a_run_on_workers_resumes_from_its_checkpoint_with_another_number_of_them(tmp_path: Any) -> None:
    with settings().build() as one:
        one.train()
        path = one.save(tmp_path / "checkpoint")
        weights = one.learners.weights()["default_policy"]
    with settings(num_rollout_workers=1).build() as two, settings(num_rollout_workers=0).build() as here:
        for each in (two, here):
            each.restore(path)
            assert (each.learners.weights()["default_policy"] == weights).all()
            assert each.train()["num_env_steps_trained"] > 10
