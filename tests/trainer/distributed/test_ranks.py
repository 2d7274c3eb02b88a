"""DD-PPO on Ray: ranks that hold the same weights, and the loss of one of them."""

import os
import signal
import time
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from reef.algorithms.ddppo import DDPPOConfig
from reef.algorithms.ppo import PPOConfig
from reef.distributed import ray_learners
from reef.distributed.ranks.rank import Rank
from reef.distributed.ranks.ray_ranks import RayRanks
from reef.errors import ResourceError, TrainingError, WorkerError
from reef.rollout.worker import RolloutWorker
from reef.run.algorithm import Algorithm

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster"), pytest.mark.timeout(300)]


def settings(kind: type[PPOConfig] = DDPPOConfig, **given: Any) -> PPOConfig:
    base = {
        "num_rollout_workers": 2,
        "num_cpus_per_worker": 0.5,
        "num_gpus_per_worker": 0,
        "num_envs_per_worker": 2,
        "train_batch_size": 80,
        "sgd_minibatch_size": 40,
        "num_sgd_iter": 2,
        "kl_coeff": 0.2,
        "lr": 0.01,
        "model": {"fcnet_hiddens": [8]},
        "delay_between_worker_restarts_s": 0.0,
        "seed": 3,
    }
    return kind.from_dict(base | given).environment("CartPole-v1")


def learned(worker: RolloutWorker) -> Any:
    """Process id, weights of the learner and of the policy that acts; nothing for the worker that is no rank."""
    if not hasattr(worker, "learners"):
        return None
    return os.getpid(), worker.learners.weights()["default_policy"], worker.get_weights()["default_policy"]


def ranks_of(algorithm: Algorithm) -> list[Any]:
    return [found for found in algorithm.workers.foreach_worker(learned) if found is not None]


def stats_of(result: dict[str, Any]) -> dict[str, float]:
    return result["info"]["learner"]["default_policy"]["learner_stats"]


def test_two_ranks_learn_what_ppo_learns_from_two_workers() -> None:
    """A minibatch is the whole batch, so that it does not matter which steps each minibatch has."""
    whole = {"sgd_minibatch_size": 80, "lr": [[0, 0.003], [240, 0.001]], "entropy_coeff": [[0, 0.1], [160, 0.01]]}
    with settings(PPOConfig, **whole).build() as ppo, settings(**whole).build() as ddppo:
        for _ in range(3):
            expected, found = ppo.train(), ddppo.train()
            for key in ("num_env_steps_sampled", "num_env_steps_trained", "num_agent_steps_trained"):
                assert found[key] == expected[key]
            assert found["episodes_total"] == expected["episodes_total"]
            assert stats_of(found) == pytest.approx(stats_of(expected), rel=1e-2, abs=1e-4)
            own, joint = (each.learners.weights()["default_policy"] for each in (ddppo, ppo))
            np.testing.assert_allclose(own, joint, rtol=1e-3, atol=1e-4)
        for _, weights, acting in ranks_of(ddppo):
            np.testing.assert_array_equal(weights, own)
            np.testing.assert_array_equal(acting, own)
        np.testing.assert_array_equal(ddppo.workers.local_worker().get_weights()["default_policy"], own)
        assert ddppo.policy_version == 4


@pytest.mark.parametrize(("flag", "lost"), [("recreate_failed_workers", 2), ("ignore_worker_failures", 1)])
def test_after_the_loss_of_a_rank_the_others_go_on_from_what_they_have_learned(flag: str, lost: int) -> None:
    with settings(**{flag: True, "observation_filter": "MeanStdFilter"}).build() as algorithm:
        for _ in range(3):
            algorithm.train()
        before = algorithm.learners.weights()["default_policy"]
        optimizer = algorithm.learners.state()["default_policy"]["optimizers"]["policy"]
        os.kill(ranks_of(algorithm)[lost - 1][0], signal.SIGKILL)
        started = time.monotonic()
        result = algorithm.train()
        assert time.monotonic() - started < 60.0
        after = algorithm.learners.weights()["default_policy"]
        assert 0.0 < np.abs(after - before).max() < 0.2, "one update of what was learned, and not of new weights"
        assert algorithm.learners.state()["default_policy"]["optimizers"]["policy"]["step"] > optimizer["step"]
        assert np.isfinite(stats_of(result)["total_loss"])
        deadline = time.monotonic() + 90.0
        while flag == "recreate_failed_workers" and len(algorithm.learners._ranks_in_group) < 2:  # type: ignore[attr-defined]
            assert time.monotonic() < deadline
            time.sleep(0.5)
            algorithm.train()
        sampled = algorithm.timestep
        assert algorithm.train()["num_env_steps_sampled"] == sampled + 80, "one that is left alone samples all"
        found = ranks_of(algorithm)
        assert len(found) == (2 if flag == "recreate_failed_workers" else 1)
        newest = algorithm.learners.weights()["default_policy"]
        for _, weights, acting in found:
            np.testing.assert_array_equal(weights, newest)
            np.testing.assert_array_equal(acting, newest)


def filter_of(worker: RolloutWorker) -> tuple[float, list[float]]:
    """Number and mean of the observations that its filter knows."""
    known = worker.filters["default_policy"].state()["stat"]
    return float(known["count"]), known["mean"].tolist()


def test_after_an_iteration_all_ranks_filter_by_what_all_have_seen() -> None:
    with settings(observation_filter="MeanStdFilter").build() as algorithm:
        for iteration in (1, 2):
            algorithm.train()
            first, *others = algorithm.workers.foreach_worker(filter_of)
            assert others and all(other == first for other in others)
            assert first[0] >= 80 * iteration


def die_in_the_second_step(worker: RolloutWorker) -> None:
    """End worker 2 in the next update, when the others have one average, and wait for the next."""
    if not isinstance(worker, Rank) or worker.worker_index != 2:
        return
    parameters = worker.learners.learners["default_policy"].parameters
    average, calls = parameters.reduce, []

    def reduce(gradient: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        average(gradient)

    parameters.reduce = reduce


def test_a_rank_that_is_lost_in_an_update_leaves_the_others_as_they_were_before() -> None:
    with settings(ignore_worker_failures=True).build() as algorithm:
        algorithm.train()
        ranks = algorithm.learners
        assert isinstance(ranks, RayRanks)
        algorithm.workers.foreach_worker(die_in_the_second_step)
        before = ranks.state()["default_policy"]["optimizers"]["policy"]["step"]
        result = algorithm.train()
        after = ranks.state()["default_policy"]["optimizers"]["policy"]["step"]
        assert after - before == 2, "two passes over the 40 steps that are left, and not the one that was begun"
        assert algorithm.workers.num_healthy == 1
        assert (result["num_env_steps_sampled"], result["num_agent_steps_sampled"]) == (160, 160)
        assert (result["num_env_steps_trained"], result["num_agent_steps_trained"]) == (120, 120), "without the lost"


def test_a_replacement_is_another_rank_though_its_pod_gives_it_the_same_process_id() -> None:
    with settings(recreate_failed_workers=True).build() as algorithm:
        algorithm.train()
        group = algorithm.workers._group  # type: ignore[attr-defined]
        lost, deadline = group.process(2), time.monotonic() + 90.0
        os.kill(lost.pid, signal.SIGKILL)
        while not group.num_restarts or len(group.healthy) < 2:
            assert time.monotonic() < deadline
            algorithm.workers.foreach_worker(learned)
        group._slots[2].pid, group._slots[2].node = lost.pid, "another"
        algorithm.train()
        assert len(ranks_of(algorithm)) == 2 and group.num_restarts == 1


def stand_still(*_: Any) -> None:
    """Stop this process, as `kill -STOP` does: it is there, and does nothing any more."""
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(60.0)  # another thread may take the signal, and this one go on for a moment


def stop_in_a_fragment(worker: RolloutWorker) -> None:
    if worker.worker_index == 2:
        worker.sample = stand_still  # type: ignore[method-assign]


def stop_in_an_update(worker: RolloutWorker) -> None:
    """Stop worker 2 while the others wait for its part of the first average."""
    if isinstance(worker, Rank) and worker.worker_index == 2:
        worker.learners.learners["default_policy"].parameters.reduce = stand_still


def stop_after_an_update(worker: RolloutWorker) -> None:
    """Stop the rank whose weights the driver takes."""
    if isinstance(worker, Rank) and worker.worker_index == 1:
        worker.learned_weights = stand_still  # type: ignore[method-assign, assignment]


@pytest.mark.parametrize("stop", [stop_in_a_fragment, stop_in_an_update, stop_after_an_update])
def test_a_rank_whose_process_stands_still_is_replaced_though_others_work_for_longer(stop: Any) -> None:
    given = {"recreate_failed_workers": True, "worker_health_probe_timeout_s": 8.0}
    with settings(**given).build() as algorithm:
        algorithm.train()
        before = {process for process, *_ in ranks_of(algorithm)}
        algorithm.workers.foreach_worker(stop)
        started = time.monotonic()
        assert np.isfinite(stats_of(algorithm.train())["total_loss"])
        assert 8.0 <= time.monotonic() - started < 60.0
        deadline = time.monotonic() + 90.0
        while len(ranks_of(algorithm)) < 2:
            assert time.monotonic() < deadline
            algorithm.train()
        after = {process for process, *_ in ranks_of(algorithm)}
        assert len(before & after) == 1, "the other one stays"
        assert algorithm.workers.num_restarts == 1


def test_a_rank_whose_process_stands_still_ends_the_run_where_nothing_covers_it() -> None:
    with settings(worker_health_probe_timeout_s=8.0).build() as algorithm:
        algorithm.workers.foreach_worker(stop_in_an_update)
        limit = r"no answer within 8 s \(worker_health_probe_timeout_s\)"
        with pytest.raises(WorkerError, match=rf"rollout worker 2 failed in ping\(\): .*{limit}"):
            algorithm.train()


class Sleeping(gym.Wrapper[Any, Any, Any, Any]):
    """Has worker 2 sleep in its 50th step, unless it was recreated."""

    def __init__(self, env_config: Any) -> None:
        super().__init__(gym.make("CartPole-v1"))
        self.left = 50 if env_config.worker_index == 2 and not env_config.recreated_worker else 10**9

    def step(self, action: Any) -> Any:
        self.left -= 1
        time.sleep(0 if self.left else 600)
        return self.env.step(action)


def test_a_rank_whose_environment_sleeps_is_replaced_after_the_limit_of_a_sample() -> None:
    given = {"recreate_failed_workers": True, "sample_timeout_s": 5.0}
    with settings(**given).environment(Sleeping).build() as algorithm:
        while not algorithm.workers.num_restarts:  # in the third iteration
            result = algorithm.train()
        assert np.isfinite(stats_of(result)["total_loss"])
        failure = algorithm.workers._group.first_failure  # type: ignore[attr-defined]
        assert "no answer within 5 s (sample_timeout_s)" in failure.error


class Apart(gym.Wrapper[Any, Any, Any, Any]):
    """Has worker 2 look for the other ranks on a network device that is not there."""

    def __init__(self, env_config: Any) -> None:
        super().__init__(gym.make("CartPole-v1"))
        if env_config.worker_index == 2:
            os.environ["GLOO_SOCKET_IFNAME"] = "nowhere0"


def test_ranks_that_cannot_reach_each_other_end_the_run_and_say_why(caplog: pytest.LogCaptureFixture) -> None:
    config = settings(recreate_failed_workers=True, worker_health_probe_timeout_s=4.0).environment(Apart)
    with pytest.raises(
        WorkerError, match="3 times in a row the ranks could not meet.* none of them was lost"
    ) as failure:
        config.build()
    assert "Rollout worker 1: " in str(failure.value) and "Rollout worker 2: " in str(failure.value)
    for text in (
        "nowhere0",
        "NetworkPolicy",
        "GLOO_SOCKET_IFNAME",
        "4 s for another one (worker_health_probe_timeout_s)",
    ):
        assert text in str(failure.value)
    (warning,) = [text for text in caplog.messages if "try again" in text]
    assert "nowhere0" in warning


class LateNetwork(gym.Wrapper[Any, Any, Any, Any]):
    """Refuses the first connection that worker 2 makes to the first rank."""

    def __init__(self, env_config: Any) -> None:
        super().__init__(gym.make("CartPole-v1"))
        store: Any = ray_learners.TCPStore

        def refuse(*_: Any, **__: Any) -> None:
            ray_learners.TCPStore = store
            raise torch.distributed.DistNetworkError("connection refused")

        if env_config.worker_index == 2 and env_config.vector_index == 0:
            ray_learners.TCPStore = refuse


def test_ranks_of_which_one_was_late_meet_in_the_next_try(caplog: pytest.LogCaptureFixture) -> None:
    with settings(worker_health_probe_timeout_s=4.0).environment(LateNetwork).build() as algorithm:
        (warning,) = [text for text in caplog.messages if "try again" in text]
        assert "connection refused" in warning
        algorithm.train()
        assert len(ranks_of(algorithm)) == 2 and algorithm.workers.num_restarts == 0


def fail_to_average(worker: RolloutWorker, times: int) -> None:
    """Have the next averages of worker 2 fail."""
    average, left = torch.distributed.all_reduce, iter(range(times))

    def all_reduce(tensor: torch.Tensor) -> None:
        if next(left, None) is not None:
            raise torch.OutOfMemoryError("CUDA out of memory")
        average(tensor)

    if worker.worker_index == 2:
        torch.distributed.all_reduce = all_reduce


def test_an_average_that_fails_is_made_again_and_one_that_always_fails_ends_the_run() -> None:
    with settings(recreate_failed_workers=True, worker_health_probe_timeout_s=4.0).build() as algorithm:
        for _ in range(2):
            algorithm.workers.foreach_worker(partial(fail_to_average, times=2))
            before = algorithm.learners.state()["default_policy"]["optimizers"]["policy"]["step"]
            algorithm.train()
            after = algorithm.learners.state()["default_policy"]["optimizers"]["policy"]["step"]
            assert after - before == 4, "one update"
        algorithm.workers.foreach_worker(partial(fail_to_average, times=99))
        with pytest.raises(WorkerError, match="Rollout worker 2: OutOfMemoryError: CUDA out of memory"):
            algorithm.train()
        assert algorithm.workers.num_restarts == 0


def average_slowly(worker: RolloutWorker) -> None:
    """Have each average of a rank take a second longer."""
    average = torch.distributed.all_reduce

    def all_reduce(tensor: torch.Tensor) -> None:
        time.sleep(1.0)
        average(tensor)

    if isinstance(worker, Rank):
        torch.distributed.all_reduce = all_reduce


def test_an_update_may_take_longer_than_a_sample() -> None:
    with settings(sample_timeout_s=3.0).build() as algorithm:
        algorithm.workers.foreach_worker(average_slowly)
        started = time.monotonic()
        algorithm.train()
        assert time.monotonic() - started > 4.0, "one average in each of four steps"


def test_all_that_are_lost_take_the_weights_with_them() -> None:
    with settings(recreate_failed_workers=True).build() as algorithm:
        algorithm.train()
        for process, *_ in ranks_of(algorithm):
            os.kill(process, signal.SIGKILL)
        with pytest.raises(WorkerError, match="every rank was lost.*Restore the newest checkpoint"):
            for _ in range(3):
                algorithm.train()


def test_a_checkpoint_goes_from_ranks_to_one_process_and_back(tmp_path: Any) -> None:
    config = settings(keep_local_weights_in_sync=False, evaluation_interval=1, evaluation_duration=2)
    with config.build() as ranks:
        first = ranks.train()
        assert first["evaluation"]["episodes_this_iter"] == 2
        path = ranks.save(tmp_path / "one")
        weights = ranks.learners.weights()["default_policy"]
        assert (ranks.workers.local_worker().get_weights()["default_policy"] != weights).any(), "as it was asked for"
    with settings(num_rollout_workers=0).build() as here:
        here.restore(path)
        np.testing.assert_array_equal(here.learners.weights()["default_policy"], weights)
        here.train()
        back = here.save(tmp_path / "two")
        weights = here.learners.weights()["default_policy"]
    with settings().build() as again:
        again.restore(back)
        for _, own, acting in ranks_of(again):
            np.testing.assert_array_equal(own, weights)
            np.testing.assert_array_equal(acting, weights)
        policy = again.get_policy()
        policy.set_weights({name: values * 0.0 for name, values in policy.get_weights().items()})
        again.train()
        assert np.abs(again.learners.weights()["default_policy"]).max() < 0.2, "what was set by hand is gone on from"


def test_what_is_not_finite_ends_the_run_as_it_does_with_one_learner() -> None:
    with settings(recreate_failed_workers=True, lr=1e30, vf_clip_param=None).build() as algorithm:
        with pytest.raises(TrainingError, match="is not finite"):
            for _ in range(4):
                algorithm.train()
        assert algorithm.workers.num_restarts == 0


def test_two_policies_of_two_agents_learn_in_all_ranks() -> None:
    config = settings(policies=["0", "1"], policies_to_train=["0"], batch_mode="complete_episodes")
    config.environment("reef.envs.multi_agent:IndependentAgents", env_config={"env": "CartPole-v1", "num_agents": 2})
    with config.build() as algorithm:
        result = algorithm.train()
        assert result["info"]["learner"].keys() == {"0"}
        assert result["num_agent_steps_sampled"] > result["num_agent_steps_trained"] > 0


def test_ranks_without_a_policy_in_common_end_the_run_and_are_named() -> None:
    config = settings(policies=["0", "1"], policy_mapping_fn=lambda _, episode: str(episode.worker_index % 2))
    config.environment("reef.envs.multi_agent:IndependentAgents", env_config={"env": "CartPole-v1", "num_agents": 1})
    with config.build() as algorithm, pytest.raises(TrainingError, match="are rollout worker 1 of '0', .* 2 of '1'"):
        algorithm.train()


def test_a_gpu_that_is_not_there_is_named() -> None:
    config = DDPPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=2)
    with pytest.raises(ResourceError, match=r"num_rollout_workers 2 x num_gpus_per_worker 1 = 2 GPUs"):
        config.build()
