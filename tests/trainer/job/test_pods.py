"""Heads and workers as real processes, with real Ray, real signals and real losses."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import sys
from pathlib import Path

import pytest

from reef.api import job_from_document
from reef.errors import ReefError
from reef.job.cluster import Node
from reef.job.head import checked_process
from reef.run.checkpoint import find_checkpoint, read_metadata

pytestmark = [pytest.mark.ray, pytest.mark.timeout(480)]


def test_pods_come_together_train_to_the_end_and_leave_a_message(job, document):
    pools = [{"name": "cpu", "replicas": 2, "minReplicas": 2}]
    first = job.worker(1)  # before its head
    head = job.head(document(workers=pools, stop={"training_iteration": 6}), REEF_LINGER_SECONDS="60")
    starting = job.wait_for("the first answer", lambda progress: True)
    assert starting["state"] in ("starting", "waiting")
    assert "training" not in starting
    waiting = job.wait_for("one pod", lambda progress: "1 of 2 pods" in progress["message"])
    assert (waiting["state"], waiting["message"]) == (
        "waiting",
        "waiting for workers, pool cpu: 1 of 2 pods have joined",
    )
    stranger = job.worker(3, RAY_AUTH_TOKEN="f" * 64)
    while "the Ray token was refused" not in stranger.said:
        assert stranger.process.poll() is None
        assert job.progress()["state"] == "waiting"
    assert not job.joined(3).exists()
    stranger.process.send_signal(signal.SIGTERM)
    second = job.worker(2)
    assert job.helpers() == []
    done = job.wait_for("the end", lambda progress: progress["state"] == "done")
    assert done["exitCode"] == 0
    assert job.joined(1).exists()
    assert job.joined(2).exists()
    assert "reef_training_iterations_total 6.0" in job.get("/metrics")
    head.process.send_signal(signal.SIGTERM)  # ends the lingering, not more
    assert head.ends() == 0
    ending = head.ending()
    assert (ending["exitCode"], ending["reason"], ending["message"]) == (0, "Completed", "training_iteration 6 >= 6")
    assert (ending["training"]["iteration"], ending["checkpoint"]["iteration"]) == (6, 6)
    assert Path(ending["checkpoint"]["path"]).is_relative_to(job.folder / "storage/team/cart-u1")
    assert stranger.ends() == 0
    for worker in (first, second):
        assert worker.process.poll() is None, "a worker outlives its head"
        worker.process.send_signal(signal.SIGTERM)
        assert worker.ends() == 0
    assert not job.joined(1).exists()
    everything = "".join(pod.said for pod in job.pods)
    assert job._token not in everything
    assert "f" * 64 not in everything


def test_fewer_pods_train_too_and_a_new_head_goes_on_with_the_same_workers(job, document):
    asked = document(workers=[{"name": "cpu", "replicas": 2, "minReplicas": 1}])
    head, first = job.head(asked, REEF_CPUS="0"), job.worker(1)
    job.wait_for("training with one pod", lambda progress: progress["workersHealthy"] == 1)
    job.worker(2)
    job.wait_for("both at work", lambda progress: progress["workersHealthy"] == 2)
    before = job.wait_for("a checkpoint", lambda progress: progress.get("checkpoint"))["checkpoint"]["iteration"]

    head.kill()
    head = job.head(asked, REEF_CPUS="0")
    after = job.wait_for("training again", lambda progress: progress["workersHealthy"] == 2)
    assert after["training"]["iteration"] >= before
    assert "continuing after iteration" in head.said
    assert first.process.poll() is None, "a worker joins again in place"
    storage = job.folder / "storage/team"
    assert [path.name for path in storage.iterdir()] == ["cart-u1"]

    job.pods[1].kill()
    job.wait_for("one left", lambda progress: progress["workersHealthy"] == 1)
    job.worker(1)
    job.wait_for("the lost one replaced", lambda p: p["workersHealthy"] == 2 and p["workersRecreated"] >= 1)

    noticed = head.said.count(" died: ")
    for pod in job.pods:  # a job that is deleted loses its workers before its head has ended
        if pod is not head and pod.process.poll() is None:
            pod.kill()
    job.wait_until("the loss of both", lambda: head.said.count(" died: ") >= noticed + 2)
    head.process.send_signal(signal.SIGTERM)
    assert head.ends(60.0) == 143, head.said[-3000:]
    ending = head.ending()
    assert (ending["exitCode"], ending["reason"], ending["message"]) == (143, "Terminated", "SIGTERM")
    saved = read_metadata(find_checkpoint(next(storage.glob("cart-u1/*"))))["iteration"]
    assert saved == ending["checkpoint"]["iteration"] == ending["training"]["iteration"] > before


def test_rollout_workers_follow_pods_that_are_scaled(job, document):
    job.head(document(workers=[{"name": "cpu"}]), REEF_CPUS="0")
    job.worker(1)
    job.wait_for("training with one pod", lambda progress: progress["workersHealthy"] == 1)
    second = job.worker(2)  # the document may not say so yet: the pod itself counts
    job.wait_for("both at work", lambda progress: progress["workersHealthy"] == 2)
    second.process.send_signal(signal.SIGTERM)
    assert second.ends() == 0
    before = job.wait_for("one left", lambda progress: progress["workersHealthy"] == 1)["training"]["iteration"]
    job.wait_until("nobody to be missing", lambda: "reef_training_workers_lost 0.0" in job.get("/metrics"))
    after = job.wait_for("training on", lambda progress: progress["training"]["iteration"] > before + 5)
    assert after["workersRecreated"] == 0
    job.wait_until("nobody to be waited for", lambda: "reef_training_workers_waiting 0.0" in job.get("/metrics"))


OWN_ENVIRONMENT = """
import os
import gymnasium as gym

class Own(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (1,))
    action_space = gym.spaces.Discrete(2)
    def __init__(self, config=None):
        self.limit = int(os.environ["OWN_LIMIT"])
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observation_space.sample(), {}
    def step(self, action):
        self.steps += 1
        return self.observation_space.sample(), 1.0, self.steps >= self.limit, False, {}
"""


def test_the_runtime_environment_is_everywhere_and_when_ray_ends_so_does_the_head(job, document):
    """What an environment prints is in the log of the pod that runs it."""
    job.python = sys.executable  # a worker finds that log by its parent, the raylet
    folder = job.folder / "code"
    folder.mkdir()
    printing = OWN_ENVIRONMENT.replace("self.limit = ", "print('made in', os.getpid()); self.limit = ")
    (folder / "own_env.py").write_text(printing)
    asked = document(
        environment={"name": "own_env:Own"},
        runtimeEnv={"working_dir": str(folder), "env_vars": {"OWN_LIMIT": "5"}},
        config={"num_rollout_workers": 1, "recreate_failed_workers": True},
        workers=[{"name": "cpu"}],
    )
    head, pod = job.head(asked, REEF_CPUS="0"), job.worker(1)
    line = re.compile(r"^\(worker 1\) made in (\d+)$", re.MULTILINE)
    first = job.wait_until("the worker's line", lambda: line.findall(pod.said))[0]
    job.wait_for("training", lambda progress: progress.get("training", {}).get("rewardMax") == 5.0)
    os.kill(int(first), signal.SIGKILL)
    job.wait_until("the next worker's line", lambda: set(line.findall(pod.said)) - {first})
    assert "(worker 1)" not in head.said
    assert re.search(r"^\(head\) made in \d+$", head.said, re.MULTILINE)
    (server,) = [
        pid
        for pid in map(int, filter(str.isdigit, os.listdir("/proc")))
        if (b"gcs_server" in (command := cmdline(pid)) and str(job.gcs_port).encode() in command)
    ]
    os.kill(server, signal.SIGKILL)
    assert head.ends(60.0) == 1
    ending = head.ending()
    assert ending["reason"] == "Failed"
    assert "Ray's" in ending["message"], "the driver may abort before Ray's end is noticed: words were ready for that"


@pytest.mark.parametrize(("role", "code"), [("head", 143), ("worker", 0)])
def test_sigterm_while_a_pod_is_still_loading_counts(job, document, role, code):
    pod = job.head(document()) if role == "head" else job.worker(1)
    job.wait_until("SIGTERM to be held back", lambda: cmdline(pod.process.pid) and handles_sigterm(pod.process.pid))
    pod.process.send_signal(signal.SIGTERM)
    assert pod.ends(60.0) == code, pod.said
    assert "Ray runtime started" not in pod.said
    if role == "head":
        assert (pod.ending()["exitCode"], pod.ending()["reason"]) == (143, "Terminated")


def handles_sigterm(pid: int) -> bool:
    """Whether SIGTERM would not just end the process: it is blocked or has a handler."""
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return bool((int(status["SigBlk"], 16) | int(status["SigCgt"], 16)) >> (signal.SIGTERM - 1) & 1)


def test_a_head_that_waits_ends_at_once(job, document):
    head = job.head(document(workers=[{"name": "cpu"}]))
    job.wait_for("the wait", lambda progress: "0 of 1 pods" in progress["message"])
    head.process.send_signal(signal.SIGTERM)
    assert head.ends(60.0) == 143
    assert head.ending()["message"] == "ended by SIGTERM before the first iteration"


EXITING_ENVIRONMENT = """
import os
from pathlib import Path
from own_env import Own

class Exiting(Own):
    def step(self, action):
        if Path(os.environ["OWN_SIGN"]).exists():
            os._exit(0)
        return super().step(action)
"""


def test_an_environment_that_calls_exit_ends_the_head_as_a_fault(job, document):
    folder, sign = job.folder / "code", job.folder / "sign"
    folder.mkdir()
    (folder / "own_env.py").write_text(OWN_ENVIRONMENT)
    (folder / "exiting_env.py").write_text(EXITING_ENVIRONMENT)
    variables = {"OWN_LIMIT": "5", "OWN_SIGN": str(sign)}
    head = job.head(
        document(
            environment={"name": "exiting_env:Exiting"},
            runtimeEnv={"working_dir": str(folder), "env_vars": variables},
        )
    )
    job.wait_for("a checkpoint", lambda progress: progress.get("checkpoint"))
    left = job.descendants(head.process.pid)
    sign.touch()
    assert head.ends(60.0) == 1
    ending = head.ending()
    assert (ending["exitCode"], ending["reason"]) == (None, "Failed")
    assert "ended without a result: exit(0) was called" in ending["message"]
    for pid in left:  # a container's processes end with its first one
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_an_environment_that_hangs_while_it_is_made_ends_the_head_before_anything_waits_for_it(job, document):
    folder = job.folder / "code"
    folder.mkdir()
    (folder / "own_env.py").write_text(OWN_ENVIRONMENT.replace("self.limit = ", "import time; time.sleep(600)  # "))
    head = job.head(
        document(
            environment={"name": "own_env:Own"},
            runtimeEnv={"working_dir": str(folder)},
            config={"worker_restore_timeout_s": 2.0},
        )
    )
    assert head.ends(60.0) == 1, head.said
    ending = head.ending()
    assert (ending["exitCode"], ending["reason"]) == (1, "Failed")
    assert "making or restoring environments hangs: no step for worker_restore_timeout_s=2 s" in ending["message"]
    assert "own_env.py" in ending["message"]


def own_ipv6() -> str | None:
    """An address of this machine, as Ray takes another in place of ::1."""
    table = Path("/proc/net/if_inet6")
    for line in table.read_text().splitlines() if table.exists() else ():
        digits, _, _, scope, *_ = line.split()
        if scope == "00":  # of the whole network, neither of the loopback device nor of a link
            return socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits))
    return None


@pytest.mark.skipif(own_ipv6() is None, reason="a machine without an IPv6 address")
def test_pods_of_ipv6_train_together(job, document):
    job.on(own_ipv6())
    worker = job.worker(1)
    head = job.head(document(workers=[{"name": "cpu"}], stop={"training_iteration": 3}), REEF_CPUS="0")
    job.wait_for("training in the worker", lambda progress: progress["workersHealthy"] == 1)
    assert head.ends() == 0, head.said[-3000:]
    assert head.ending()["training"]["iteration"] == 3
    worker.process.send_signal(signal.SIGTERM)
    assert worker.ends() == 0


def cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize(
    ("changes", "environment", "expected"),
    [
        ({"workers": [{"name": "cpu"}], "config": {"num_cpus_per_worker": 4}}, {}, "num_cpus_per_worker 4"),
        ({}, {"RAY_AUTH_TOKEN": ""}, "RAY_AUTH_TOKEN: is not set"),
    ],
)
def test_a_wrong_job_ends_with_2_and_its_error(job, document, changes, environment, expected):
    head = job.head(document(**changes), **environment)
    assert head.ends() == 2
    ending = head.ending()
    assert (ending["exitCode"], ending["reason"]) == (2, "WrongJob")
    assert expected in ending["message"]
    assert "Ray runtime started" not in head.said
    assert not (job.folder / "storage").exists()


def test_a_loss_that_is_not_finite_can_be_seen_before_the_head_ends_for_good(job, document):
    head = job.head(document(config={"lr": 1e38, "num_sgd_iter": 9}), REEF_LINGER_SECONDS="60")
    done = job.wait_for("the end", lambda progress: progress["state"] == "done")
    assert (done["exitCode"], "is not finite" in done["message"]) == (2, True)
    assert 'reef_training_loss{policy="default_policy",term="total"} NaN' in job.get("/metrics")
    head.process.send_signal(signal.SIGTERM)  # ends the lingering, not more
    assert head.ends() == 2
    assert (head.ending()["exitCode"], head.ending()["reason"]) == (2, "WrongJob")


STORED = {"frequency": 5, "storage": {"uri": "s3://bucket/reef", "secretRef": {"name": "s3"}}}


def test_a_new_head_goes_on_from_the_object_store(job, document, s3):
    asked = document(checkpoint=STORED)
    head = job.head(asked, REEF_STORAGE_PATH=str(job.folder / "first"))
    before = job.wait_for("a checkpoint in the store", lambda progress: progress.get("checkpoint"))["checkpoint"]
    assert before["path"].startswith("s3://bucket/reef/team/cart-u1/PPO_CartPole-v1_")
    head.kill()

    head = job.head(asked, REEF_STORAGE_PATH=str(job.folder / "second"))  # on another node: an empty volume
    after = job.wait_for(
        "training again, and the checkpoint that was there",
        lambda progress: (
            progress.get("checkpoint") and progress.get("training", {}).get("iteration", 0) > before["iteration"] + 1
        ),
    )
    assert "continuing after iteration" in head.said
    assert after["checkpoint"]["iteration"] >= before["iteration"]
    head.process.send_signal(signal.SIGTERM)
    assert head.ends(60.0) == 143, head.said[-3000:]
    ending = head.ending()
    saved = ending["checkpoint"]
    assert saved["iteration"] == ending["training"]["iteration"]
    assert (s3.folder / saved["path"].removeprefix("s3://") / "manifest.json").exists()
    assert s3.environment["AWS_SECRET_ACCESS_KEY"] not in head.said


def test_an_object_store_that_refuses_ends_the_job_before_ray_starts(job, document, s3):
    head = job.head(document(checkpoint=STORED), AWS_SECRET_ACCESS_KEY="wrong-and-hidden")
    assert head.ends() == 2
    message = head.ending()["message"]
    for part in ("s3://bucket/reef/team/cart-u1", "SignatureDoesNotMatch", "AWS_SECRET_ACCESS_KEY", "secretRef"):
        assert part in message
    assert "Ray runtime started" not in head.said
    assert "wrong-and-hidden" not in head.said + message


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"config": {"lrr": 1}}, "'lr'"),
        ({"environment": {"name": "CartPol-v1"}}, "'CartPole-v1'"),
        ({"environment": {"name": "no_such_module:Env"}}, "no_such_module"),
        ({"config": {"exploration_config": {"type": "Nothing"}}}, "exploration_config.type='Nothing' is unknown"),
        ({"stop": {"evaluation/episode_reward_mean": 1}}, "Set config.evaluation_interval"),
    ],
)
def test_everything_wrong_is_found_before_ray_starts(document, changes, expected):
    node = Node(ip="127.0.0.1", cpus=1, gpus=0, object_store=None)
    with pytest.raises(ReefError, match=expected) as caught:
        checked_process(job_from_document(document(**changes)), node)
    assert caught.value.exit_code == 2
