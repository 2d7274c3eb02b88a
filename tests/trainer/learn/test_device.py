from __future__ import annotations

import os
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
import torch

from reef.algorithms.ppo import PPOConfig, PPOLearner
from reef.learn import device
from reef.learn.device import available_cpus, learner_threads, to_device, using_threads
from reef.learn.learners import local_learners

MANY = 2_000_000 * 128


def test_read_only_arrays_are_copied() -> None:
    array = np.zeros(2, np.float32)
    assert to_device(array, torch.device("cpu")).data_ptr() == array.ctypes.data
    array.flags.writeable = False
    to_device(array, torch.device("cpu")).add_(1)
    assert array.tolist() == [0, 0]


@pytest.fixture
def four_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "cpu_quota", lambda: None)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


@pytest.mark.usefixtures("four_cpus")
def test_a_minibatch_gets_the_threads_that_it_has_work_for() -> None:
    assert learner_threads(PPOConfig(), multiply_adds=9_000 * 1024) == 1
    assert learner_threads(PPOConfig(), multiply_adds=140_000 * 256) == 2
    assert learner_threads(PPOConfig(), multiply_adds=MANY) == 4
    for busy, expected in ((1, 3), (8, 1)):  # rollout workers on this machine need CPUs of their own
        assert learner_threads(PPOConfig(), multiply_adds=MANY, busy=busy) == expected
    elsewhere = PPOConfig().rollouts(num_rollout_workers=8)
    assert learner_threads(elsewhere, multiply_adds=MANY) == 4
    assert learner_threads(PPOConfig().framework(torch_threads_per_learner=3), multiply_adds=0) == 3


@pytest.mark.parametrize(("quota", "expected"), [(2.0, 2), (0.5, 1), (None, 4)])
@pytest.mark.usefixtures("four_cpus")
def test_a_container_s_quota_and_openmp_s_own_limit_count(
    quota: float | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "cpu_quota", lambda: quota)
    assert available_cpus() == expected
    assert available_cpus(busy=1) == max(expected - 1, 1), "the quota is shared"
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert available_cpus() == 1


def test_threads_are_put_back() -> None:
    before = torch.get_num_threads()
    with pytest.raises(RuntimeError), using_threads(before + 1):
        assert torch.get_num_threads() == before + 1
        raise RuntimeError
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(("ahead", "expected"), [(True, 1), (False, 2)])
@pytest.mark.usefixtures("four_cpus")
def test_rollout_workers_that_wait_leave_their_cpus_to_the_learner(ahead: bool, expected: int) -> None:
    config = PPOConfig().rollouts(num_rollout_workers=3, sample_async=ahead)
    config = config.training(sgd_minibatch_size=256, model={"fcnet_hiddens": [256, 256]}).freeze()
    env = gym.make("CartPole-v1")
    before = torch.get_num_threads()
    learners = local_learners(
        PPOLearner, config, {"default_policy": (env.observation_space, env.action_space)}, neighbours=lambda: 3
    )
    torch.set_num_threads(before)
    assert learners.threads() == expected


def test_moments_of_dead_units_do_not_decay_into_denormals() -> None:
    """With which some processors are many times slower. In a process of its own: each thread has to be told."""
    code = """
import gymnasium as gym, numpy as np, torch
from reef.algorithms.dqn import DQNConfig, DQNLearner
from reef.batch import Transitions
from reef.learn.learners import local_learners

config = DQNConfig().framework(torch_threads_per_learner=2).training(model={"fcnet_hiddens": [512, 512]}).freeze()
env = gym.make("CartPole-v1")
learners = local_learners(DQNLearner, config, {"default_policy": (env.observation_space, env.action_space)})
moments = learners.learners["default_policy"].parameters.optimizer.exp_avg
least = torch.finfo(torch.float32).tiny
moments.fill_(least)
rows = config.train_batch_size
obs, numbers, flags = np.zeros((rows, 4), np.float32), np.ones(rows, np.float32), np.ones(rows, bool)
batch = Transitions(obs, numbers.astype(np.int64), numbers, obs, flags, flags, {"discounts": numbers})
learners.update({"default_policy": batch}, 0)
denormal = int(((moments != 0) & (moments.abs() < least)).sum())
assert denormal == 0, f"{denormal} of {len(moments)} moments are denormal"
assert moments.any(), "those of the output layer's biases"
assert torch.tensor(least) / 2 > 0, "denormal numbers are for others to use"
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
