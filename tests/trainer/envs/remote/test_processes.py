"""No process of an environment outlives its worker."""

import fcntl
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.trainer.envs.remote.remote_envs import HangingClose, HangingPair, Walk

from reef.config import AlgorithmConfig
from reef.envs import make_vector_env
from reef.envs.make import make_envs
from reef.envs.remote import processes
from reef.envs.remote.channel import Channel

ACTIONS = np.zeros((2, 2), np.float32)
WORKER = f"""
import sys, time
sys.path.insert(0, {str(Path(__file__).parents[4])!r})
from tests.trainer.envs.remote.remote_envs import Walk
from reef.config import AlgorithmConfig
from reef.envs import make_vector_env
config = AlgorithmConfig().environment(Walk, env_config={{"hang_at": 1, "env": 1}}).rollouts(remote_worker_envs=True)
env = make_vector_env(config, 0, 2)
env.reset()
print(*[one.pid() for one in env.envs], env._processes._server.pid, flush=True)
env.step(env._rewards[:, None].repeat(2, 1))
env.step(env._rewards[:, None].repeat(2, 1))
time.sleep(1000)
"""


def made(num_envs=2, **env_config):
    config = AlgorithmConfig().environment(Walk, env_config=env_config)
    return make_vector_env(config.rollouts(remote_worker_envs=True, remote_env_batch_wait_ms=0.0), 0, num_envs)


def alive(pid):
    try:
        return "(zombie)" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def all_end(pids, within_s=10.0):
    deadline = time.monotonic() + within_s
    while any(map(alive, pids)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def pids_of(env):
    return [*(one.process.begun.pid for one in env.envs), env._processes._server.pid]


def test_closed_environments_leave_no_process():
    env = made()
    pids = pids_of(env)
    assert all(map(alive, pids))
    env.close()
    assert all_end(pids)


@pytest.mark.timeout(60)
def test_one_that_hangs_is_ended(monkeypatch):
    monkeypatch.setattr("reef.envs.remote.env.CLOSE_S", 0.2)
    env = made(hang_at=1, env=1)
    pids = pids_of(env)
    env.reset()
    env.step(ACTIONS)  # environment 0 answers, 1 hangs
    env.close()
    assert all_end(pids)


@pytest.mark.timeout(60)
def test_they_end_with_a_worker_that_is_killed_even_those_that_hang():
    worker = subprocess.Popen([sys.executable, "-c", WORKER], stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    pids = [*map(int, worker.stdout.readline().split())]
    assert len(pids) == 3 and all(map(alive, pids))
    time.sleep(0.2)
    worker.kill()
    worker.wait()
    worker.stdout.close()
    assert all_end(pids)


def test_without_the_program_that_starts_them_they_end_and_are_started_again():
    config = AlgorithmConfig().environment(Walk).fault_tolerance(restart_failed_sub_environments=True)
    env = make_vector_env(config.rollouts(remote_worker_envs=True, remote_env_batch_wait_ms=60_000.0), 0, 2)
    env.reset()
    pids = pids_of(env)
    os.kill(pids[-1], signal.SIGKILL)
    assert all_end(pids[:-1])
    assert env.step(ACTIONS).live.tolist() == [False, False]
    assert env.step(ACTIONS).live.tolist() == [True, True]
    assert env.restarts == 2
    env.close()


def test_what_fails_in_the_making_leaves_no_process(monkeypatch):
    ended = []
    end = processes.EnvProcesses.end
    monkeypatch.setattr(processes.EnvProcesses, "end", lambda self: ended.append(self._server.pid) or end(self))
    from tests.trainer.envs.remote.remote_envs import NoSpace

    config = AlgorithmConfig().environment(NoSpace, env_config={"broken": 1}).rollouts(remote_worker_envs=True)
    with pytest.raises(Exception, match="no licence"):
        make_vector_env(config, 0, 3)
    assert len(ended) == 1 and all_end(ended)


def closed_within(env, limit_s):
    started = time.monotonic()
    env.close()
    return time.monotonic() - started < limit_s


@pytest.mark.timeout(60)
@pytest.mark.parametrize("env", [HangingClose, HangingPair])
def test_those_that_hang_are_waited_for_together(monkeypatch, env):
    monkeypatch.setattr("reef.envs.remote.env.CLOSE_S", 1.0)
    envs = make_envs(AlgorithmConfig().environment(env).rollouts(remote_worker_envs=True), 0, 5)
    pids = [one.process.begun.pid for one in envs.envs]
    assert closed_within(envs, 3.0)
    assert all_end(pids)


@pytest.fixture
def one_more():
    """Start the process of one more environment, whose first message is not read yet."""
    started = []

    def start(env, /, **env_config):
        config = AlgorithmConfig().environment(env, env_config=env_config).rollouts(remote_worker_envs=True)
        started.append(processes.EnvProcesses(config, 0, False, None))
        started[0].first()
        return started[0](1)

    yield start
    started[0].end()


@pytest.mark.timeout(60)
def test_one_that_is_never_made_is_not_waited_for_without_limit(monkeypatch, one_more):
    monkeypatch.setattr("reef.envs.remote.env.CLOSE_S", 0.2)
    assert closed_within(one_more(Walk, make_s=1000.0, env=1), 2.0)


@pytest.mark.timeout(60)
def test_one_that_was_not_used_and_hangs_is_killed(monkeypatch, one_more):
    monkeypatch.setattr("reef.envs.remote.env.CLOSE_S", 1.0)
    unused = one_more(HangingClose)
    assert closed_within(unused, 3.0)
    assert all_end([unused.process.begun.pid])


def test_what_is_closed_twice_writes_to_no_file_that_was_opened_since(tmp_path):
    env = made(num_envs=1)
    process = env.envs[0].process
    descriptor = process.fileno()
    process.close()
    file = os.open(tmp_path / "file", os.O_CREAT | os.O_WRONLY)
    os.dup2(file, descriptor)
    process.close()
    for each in {file, descriptor}:
        os.close(each)
    assert (tmp_path / "file").read_bytes() == b""
    env.close()


def test_a_channel_may_have_a_large_descriptor():
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 1100), limits[1]))
    one, other = socket.socketpair()
    channel = Channel(socket.socket(fileno=fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, 1050)))
    assert not channel.has_message(0.0)
    Channel(other).send("here")
    assert channel.has_message(1.0) and channel.receive() == "here"
    for each in (channel, one, other):
        each.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
