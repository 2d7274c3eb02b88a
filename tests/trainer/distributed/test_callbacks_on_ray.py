"""Hooks in rollout workers on Ray: they run there, survive a restart, and end the run by what they raise."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from reef import PPOConfig
from reef.callbacks import DefaultCallbacks
from reef.errors import CallbackError, ReefError

HERE = "tests.trainer.distributed.test_callbacks_on_ray"


class InWorkers(DefaultCallbacks):
    def __init__(self) -> None:
        self.made: list[Any] = []
        self.recreated: list[list[int]] = []

    def on_sub_environment_created(self, *, env_context, env_index, **kwargs):
        self.made.append((env_context.worker_index, env_index, env_context.recreated_worker))

    def on_episode_end(self, *, episode, worker, **kwargs):
        is_again = float(any(again for _, _, again in self.made))
        episode.custom_metrics |= {"worker": worker.worker_index, "pid": os.getpid(), "made": len(self.made)}
        episode.custom_metrics["recreated"] = is_again

    def on_workers_recreated(self, *, worker_ids, is_evaluation, **kwargs):
        assert not is_evaluation
        self.recreated.append(worker_ids)

    def on_train_result(self, *, result, **kwargs):
        result["recreated"] = self.recreated


class RaisesLate(DefaultCallbacks):
    def on_episode_end(self, *, worker, **kwargs):
        if worker.worker_index == 2:
            raise ValueError("no good")


def on_ray(name: str) -> PPOConfig:
    sizes = {"train_batch_size": 200, "sgd_minibatch_size": 100, "num_sgd_iter": 1, "num_envs_per_worker": 2}
    faults = {"recreate_failed_workers": True, "ignore_worker_failures": False, "num_rollout_workers": 2}
    config = PPOConfig().environment("CartPole-v1").callbacks(f"{HERE}:{name}").debugging(seed=1)
    return config.update_from_dict({**sizes, **faults})


def test_hooks_run_in_workers_and_again_in_those_that_are_started_again():
    with on_ray("InWorkers").build() as algorithm:
        first = algorithm.train()["custom_metrics"]
        assert (first["worker_min"], first["worker_max"]) == (1, 2)
        assert (first["made_min"], first["made_max"], first["recreated_max"]) == (2, 2, 0)
        assert first["pid_min"] != os.getpid()
        os.kill(algorithm.workers._group.process(1).pid, signal.SIGKILL)
        result = algorithm.train()
        while not result["recreated"]:  # the test's time limit ends it
            result = algorithm.train()
        assert result["recreated"] == [[1]]
        while not result["custom_metrics"]["recreated_max"]:
            result = algorithm.train()
        assert result["custom_metrics"]["made_max"] == 2


def test_what_a_hook_raises_in_a_worker_ends_the_run_though_workers_may_be_started_again():
    with on_ray("RaisesLate").build() as algorithm, pytest.raises(ReefError) as found:
        algorithm.train()
    assert found.value.exit_code == CallbackError.exit_code == 2
    assert "callbacks RaisesLate.on_episode_end raised ValueError: no good" in str(found.value)
    assert 'raise ValueError("no good")' in str(found.value)
    assert algorithm.workers.num_restarts == 0
