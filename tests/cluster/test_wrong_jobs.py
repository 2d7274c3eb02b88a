"""What is wrong with a job is said where its owner looks, in one message that names the key, the value and the fix."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from typing import Any

import pytest
from installation import Installation, pool, small_job
from kube.cluster import Cluster
from kube.progress import ClusterError, wait_until

pytestmark = pytest.mark.timeout(600)
SAID_WITHIN_S = 15
GIVEN_UP_S = 300
LATE_S = 15  # for an end that a deadline brings
CLAIM = {"claimName": "results"}
GPU = {"count": 1}
Job = dict[str, Any]


def wrong(name: str, **spec: Any) -> Job:
    """A job with these fields in place of right ones; None leaves a field out."""
    job = small_job(name)
    job["spec"] = {key: value for key, value in (job["spec"] | spec).items() if value is not None}
    return job


REFUSED: dict[str, tuple[Job, list[str]]] = {  # by the types in the definition, on every server
    "missing": (wrong("missing", algorithm=None), ["spec.algorithm", "Required"]),
    "no-stop": (wrong("no-stop", stop={}), ["spec.stop", "at least 1"]),
    "stop-type": (wrong("stop-type", stop={"training_iteration": "five"}), ["spec.stop.training_iteration", "number"]),
    "negative": (wrong("negative", workers=[pool(replicas=-1)]), ["spec.workers", ".replicas", "-1", "equal to 0"]),
    "pool-name": (wrong("pool-name", workers=[pool("CPU_pool")]), ["spec.workers", ".name", "CPU_pool", "a-z"]),
    "choice": (wrong("choice", imagePullPolicy="Sometimes"), ["spec.imagePullPolicy", "Sometimes", "IfNotPresent"]),
    "twins": (wrong("twins", workers=[pool("a"), pool("a")]), ["spec.workers[1]", "Duplicate value", '"name":"a"']),
    "setting": (wrong("setting", config={"gamma": 2}), ["spec.config.gamma", "2", "less than or equal to 1"]),
    "quantity": (
        wrong("quantity", head={"resources": {"requests": {"memory": "lots"}}}),
        ["spec.head.resources.requests.memory", "lots"],
    ),
}
INVALID: dict[str, tuple[Job, list[str]]] = {  # by the operator, if the definition lets it pass
    "stop-key": (
        wrong("stop-key", stop={"episode_reward": 450}),
        ["stop", "'episode_reward'", "Did you mean 'episode_reward_mean"],
    ),
    "min-replicas": (
        wrong("min-replicas", workers=[pool(replicas=1, minReplicas=2)]),
        ["spec.workers[0]", "minReplicas 2", "replicas 1", "raise replicas"],
    ),
    "pool-head": (wrong("pool-head", workers=[pool("head")]), ["spec.workers[0]", "'head'", "another name"]),
    "no-pool": (wrong("no-pool", replicas=2), ["spec", "replicas", "add one or remove replicas"]),
    "two-places": (
        wrong("two-places", checkpoint={"storage": {"persistentVolumeClaim": CLAIM, "uri": "s3://a/b"}}),
        ["spec.checkpoint.storage", "exactly one of persistentVolumeClaim and uri"],
    ),
    "no-uri": (
        wrong("no-uri", checkpoint={"storage": {"persistentVolumeClaim": CLAIM, "secretRef": {"name": "s3"}}}),
        ["spec.checkpoint.storage", "secretRef", "needs no credentials"],
    ),
    "gpu-twice": (
        wrong("gpu-twice", workers=[pool(gpu=GPU) | {"resources": {"limits": {"nvidia.com/gpu": 1}}}]),
        ["spec.workers[0]", "nvidia.com/gpu", "remove it from resources"],
    ),
    "runtime-env": (
        wrong("runtime-env", runtimeEnv={"working_dir": "https://somewhere/code.zip"}),
        ["spec.runtimeEnv.working_dir", "'https://somewhere/code.zip'", "name its folder"],
    ),
    "ingress": (
        wrong("ingress", externalInput={"tokenSecretRef": {"name": "game"}, "ingress": {"host": "game.example.com"}}),
        ["spec.externalInput.ingress.host", "'game.example.com'", "ingress.enabled=true", "Service ingress-policy"],
    ),
    "misspelt": (
        wrong("misspelt", config={"trian_batch_size": 64, "model": {"fcnet_hidens": [8]}}),
        ["spec.config", "trian_batch_size: PPO has no such setting. Did you mean", "model.fcnet_hidens"],
    ),
    "l" * 60: (wrong("l" * 60), ["metadata.name", "65 characters", "shorten the job's name by 8"]),
}
RULES = {  # what the definition itself says to some of them, on servers that check CEL; it cannot name values
    "min-replicas": "minReplicas is larger than replicas (1 when not given): lower it or raise replicas",
    "pool-head": "name 'head' belongs to the head pod: give the pool another name",
    "two-places": "give exactly one of persistentVolumeClaim and uri: add one, or remove the other",
    "no-uri": "secretRef belongs to uri, and a persistentVolumeClaim needs no credentials: remove it",
    "l" * 60: "metadata.name is too long: shorten it to 52 characters",
}
FAILED: dict[str, tuple[Job, list[str]]] = {  # what only the trainer can know
    "environment": (wrong("environment", environment={"name": "CartPol-v1"}), ["env='CartPol-v1'", "'CartPole-v1'"]),
    "algorithm": (wrong("algorithm", algorithm="PPOO"), ["algorithm='PPOO'", "Did you mean 'PPO'?"]),
    "values": (
        wrong("values", config={"train_batch_size": 64, "sgd_minibatch_size": 128}),
        ["train_batch_size", "64", "sgd_minibatch_size", "128"],
    ),
}


def test_a_misspelt_field_is_named_by_kubectl(reef: Installation, cluster: Cluster, namespace: str) -> None:
    """Servers drop unknown fields without a word, but the definition's schema lets kubectl see them."""
    with pytest.raises(ClusterError, match=r"(?s)workers.*replica"):
        apply(cluster, wrong("misspelt", workers=[pool(replica=2)]), namespace, validate=True)


@pytest.mark.parametrize("name", REFUSED)
def test_the_definition_refuses(reef: Installation, cluster: Cluster, crowd: str, name: str) -> None:
    job, parts = REFUSED[name]
    with pytest.raises(ClusterError) as refusal:
        apply(cluster, job, crowd)
    said = str(refusal.value)
    assert all(part in said for part in parts), said


@pytest.mark.parametrize("name", RULES)
def test_the_definitions_rules_refuse(reef: Installation, cluster: Cluster, crowd: str, name: str) -> None:
    if not cluster.checks_rules:
        pytest.skip(f"Kubernetes {cluster.crd_version} checks no CEL rules")
    job, parts = INVALID[name]
    with pytest.raises(ClusterError) as refusal:
        apply(cluster, job, crowd)
    said = str(refusal.value)
    assert all(part in said for part in ("Invalid value", parts[0], RULES[name])), said


def test_the_operator_finds_contradictions_itself(reef: Installation, cluster: Cluster, crowd: str) -> None:
    """All of them, as on servers that check no rules; others refuse some before."""
    with reef.without_rules():
        cluster.apply([job for job, _ in INVALID.values()], namespace=crowd)
        for name, (_, parts) in INVALID.items():
            status = reef.wait_for_phase(name, "Invalid", "Failed", "Running", namespace=crowd, timeout_s=SAID_WITHIN_S)
            assert status["phase"] == "Invalid", name
            assert all(part in status["message"] for part in parts), status["message"]
            assert condition(status, "DocumentAccepted") == ("False", "InvalidDocument", status["message"])
            told = partial(reef.events, name, crowd)
            event = ("InvalidDocument", status["message"])
            wait_until(f"the Event of {name}", lambda told=told, event=event: event in told())
            assert not reef.pods(name, crowd)


@pytest.mark.parametrize("name", FAILED)
def test_what_only_the_trainer_knows_fails_at_once(reef: Installation, cluster: Cluster, crowd: str, name: str) -> None:
    _, parts = FAILED[name]
    status = reef.wait_for_phase(name, "Failed", "Running", namespace=crowd, timeout_s=GIVEN_UP_S)
    assert all(part in status["message"] for part in parts), status["message"]
    assert "exit code 2 is not retried" in status["message"]
    assert condition(status, "Failed")[:2] == ("True", "JobWrong")
    told = reef.events(name, crowd)
    assert "Running" not in {reason for reason, _ in told}
    # A machine under load may kill a head that is slow to start, and such a head is retried.
    retried = [message for reason, message in told if reason == "Retrying" and "exit code 2" in message]
    assert not retried, "servers before 1.26 start a second head, which is ended at once"


# -- what is right in itself, but does not work here -----------------------------------------------------------------

USER_CODE = """
import os
import gymnasium as gym

class Crash(gym.Env):
    def __init__(self, config):
        os._exit(3)

class Eater(gym.Wrapper):
    def __init__(self, config):
        super().__init__(gym.make("CartPole-v1"))
        self.steps = 0 if config.worker_index else -1_000_000
    def step(self, action):
        self.steps += 1
        if self.steps > 100:
            bytearray(b"x") * (4 << 30)
        return super().step(action)

class HeadEater(Eater):
    def __init__(self, config):
        super().__init__(config)
        self.steps = 0

class Broken(gym.Wrapper):
    good_steps = 10  # more than are tried before training
    def __init__(self, config):
        super().__init__(gym.make("CartPole-v1"))
        self.left = self.good_steps if config.worker_index else 1_000_000
    def step(self, action):
        self.left -= 1
        if self.left < 0:
            raise ValueError("no such level")
        return super().step(action)

class Flaky(Broken):
    good_steps = 200
"""
CODE = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "code"}, "data": {"mine.py": USER_CODE}}
WITH_CODE = {
    "template": {
        "spec": {
            "volumes": [{"name": "code", "configMap": {"name": "code"}}],
            "containers": [
                {
                    "name": "reef",
                    "env": [{"name": "PYTHONPATH", "value": "/code"}],
                    "volumeMounts": [{"name": "code", "mountPath": "/code"}],
                }
            ],
        }
    }
}
NOWHERE = "127.0.0.1:1/nothing:here"
LIMIT, HEAD_LIMIT = "900Mi", "1800Mi"
EATEN = {"resources": {"requests": {"cpu": "50m", "memory": "300Mi"}, "limits": {"memory": LIMIT}}}
LONG = {"stop": {"training_iteration": 100_000}}
KEPT = {"cleanup": {"workerDelaySeconds": 600}}  # pods stay as evidence
UNSTARTED = {"preRunningDeadlineSeconds": 60} | KEPT
FAULTY = [
    small_job(
        "eater",
        environment={"name": "mine:Eater"},
        head=WITH_CODE,
        workers=[pool() | WITH_CODE | EATEN],
        activeDeadlineSeconds=150,
        **LONG,
    ),
    small_job(
        "head-eater",
        environment={"name": "mine:HeadEater"},
        head=WITH_CODE
        | {"resources": {"requests": {"cpu": "50m", "memory": "300Mi"}, "limits": {"memory": HEAD_LIMIT}}},
        workers=[],
        faultTolerance={"backoffLimit": 1},  # on a machine that is busy Ray's own start may be what fails at first
        **LONG,
    ),
    small_job("image", image=NOWHERE, imagePullPolicy="IfNotPresent", **UNSTARTED),
    small_job(
        "lonely",
        workers=[pool("far", nodeSelector={"reef.dev/no-such": "node"})],
        preRunningDeadlineSeconds=120,  # the head is there by then
        **KEPT,
    ),
    small_job(
        "looper",
        workers=[
            pool() | {"template": {"spec": {"containers": [{"name": "reef", "command": ["sh", "-c", "exit 7"]}]}}}
        ],
        preRunningDeadlineSeconds=120,
        **KEPT,
    ),
    small_job("crash", environment={"name": "mine:Crash"}, head=WITH_CODE, faultTolerance={"backoffLimit": 1}, **KEPT),
]


class Watched:
    """When each reason of a condition was first seen in the jobs of a namespace, by looking twice a second."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster, self.namespace = cluster, namespace
        self._seen: dict[tuple[str, str, str], float] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        path = f"/apis/reef.dev/v1/namespaces/{self.namespace}/rltrainingjobs"
        while not self._end.wait(0.5):
            jobs: list[Job] = []
            with contextlib.suppress(ClusterError, OSError):  # the next look may succeed
                jobs = self._cluster.api.request("GET", path)["items"]
            for job in jobs:
                for each in (job.get("status") or {}).get("conditions") or []:
                    key = job["metadata"]["name"], each["type"], each["reason"]
                    self._seen.setdefault(key, time.time())

    def at(self, job: str, kind: str, reason: str) -> float:
        """When it was seen; waits for it."""
        wait_until(f"{reason} in {kind} of {job}", lambda: (job, kind, reason) in self._seen, timeout_s=GIVEN_UP_S)
        return self._seen[job, kind, reason]

    def stop(self) -> None:
        """Look no more."""
        self._end.set()
        self._thread.join(timeout=60)


@pytest.fixture(scope="module")
def watched(reef: Installation, cluster: Cluster) -> Iterator[Watched]:
    """A namespace with all jobs whose pods must start to show what is wrong: they do so side by side."""
    with cluster.namespace("wrong") as name:
        watched = Watched(cluster, name)
        cluster.apply([CODE, *FAULTY, *(job for job, _ in FAILED.values())], namespace=name)
        yield watched
        watched.stop()


@pytest.fixture(scope="module")
def crowd(watched: Watched) -> str:
    """That namespace's name."""
    return watched.namespace


def test_a_worker_without_enough_memory_is_named_while_it_happens(
    reef: Installation, cluster: Cluster, crowd: str
) -> None:
    def was_killed() -> bool:
        worker = reef.pods("eater", crowd, "worker")[0]
        container = worker["status"]["containerStatuses"][0]
        return not container["ready"] and bool(container["lastState"]["terminated"]["reason"] == "OOMKilled")

    wait_until("the worker to be killed for its memory", was_killed, timeout_s=GIVEN_UP_S)
    status = reef.wait(
        "eater",
        lambda now: condition(now, "WorkersReady")[1] == "OutOfMemory",
        namespace=crowd,
        timeout_s=SAID_WITHIN_S,
    )
    message = condition(status, "WorkersReady")[2]
    assert all(part in message for part in ("pool cpu: 0 of 1 ready", "OOMKilled", LIMIT, "raise the limit")), message


def test_a_head_without_enough_memory_ends_the_job_with_that_word(
    reef: Installation, cluster: Cluster, crowd: str
) -> None:
    status = reef.wait_for_phase("head-eater", "Failed", namespace=crowd, timeout_s=GIVEN_UP_S)
    assert condition(status, "Failed")[:2] == ("True", "BackoffLimitExceeded")
    assert all(part in status["message"] for part in ("given up", "OOMKilled", HEAD_LIMIT, "raise the limit")), status


def test_an_image_that_cannot_be_pulled(reef: Installation, cluster: Cluster, crowd: str, watched: Watched) -> None:
    event, *_ = since(cluster, crowd, "image", "ImagePullFailed")
    refused = kubelet_events(cluster, crowd, "image-head-", "Failed")
    assert event - refused[0] <= SAID_WITHIN_S
    assert watched.at("image", "HeadReady", "ImagePullFailed") - refused[0] <= SAID_WITHIN_S
    status = reef.wait_for_phase("image", "Failed", "Running", namespace=crowd, timeout_s=GIVEN_UP_S)
    assert condition(status, "Failed")[:2] == ("True", "PreRunningDeadlineExceeded")
    assert all(part in status["message"] for part in ("preRunningDeadlineSeconds: 60", NOWHERE)), status["message"]
    assert 60 <= lasted(status, "startTime") <= 60 + LATE_S


def test_a_pool_without_a_node(reef: Installation, cluster: Cluster, crowd: str, watched: Watched) -> None:
    event, *_ = since(cluster, crowd, "lonely", "Unschedulable")
    (pod,) = reef.pods("lonely", crowd, "worker")
    assert event - created(pod) <= SAID_WITHIN_S
    assert watched.at("lonely", "WorkersReady", "Unschedulable") - created(pod) <= SAID_WITHIN_S
    status = reef.wait_for_phase("lonely", "Failed", "Running", namespace=crowd, timeout_s=GIVEN_UP_S)
    assert condition(status, "Failed")[:2] == ("True", "PreRunningDeadlineExceeded")
    assert all(part in status["message"] for part in ("pool far: 0 of 1", "Unschedulable", "node")), status["message"]
    assert 120 <= lasted(status, "startTime") <= 120 + LATE_S


def test_a_worker_that_crashes_again_and_again(
    reef: Installation, cluster: Cluster, crowd: str, watched: Watched
) -> None:
    said = watched.at("looper", "WorkersReady", "CrashLoop")
    waits = kubelet_events(cluster, crowd, "looper-cpu-", "BackOff")
    assert said - waits[0] <= SAID_WITHIN_S
    status = reef.wait_for_phase("looper", "Failed", "Running", namespace=crowd, timeout_s=GIVEN_UP_S)
    assert condition(status, "Failed")[:2] == ("True", "PreRunningDeadlineExceeded")
    assert all(part in status["message"] for part in ("pool cpu: 0 of 1", "exit code 7")), status["message"]
    assert 120 <= lasted(status, "startTime") <= 120 + LATE_S


def test_user_code_that_crashes(reef: Installation, cluster: Cluster, crowd: str) -> None:
    status = reef.wait_for_phase("crash", "Failed", "Running", namespace=crowd, timeout_s=GIVEN_UP_S)
    assert condition(status, "Failed")[:2] == ("True", "BackoffLimitExceeded")
    assert "given up after 2 attempts" in status["message"]
    assert status["attempts"] == 2
    ends = [moment(ended(pod)["finishedAt"]) for pod in reef.pods("crash", crowd, "head")]
    assert len(ends) == 2
    event, *_ = since(cluster, crowd, "crash", "Retrying")
    assert event - min(ends) <= SAID_WITHIN_S
    said = next(message for reason, message in reef.events("crash", crowd) if reason == "Retrying")
    assert "exit code 3" in said


def in_workers(name: str, env: str) -> Job:
    """A job whose environment is one of the module above, in a worker's pod."""
    return small_job(name, environment={"name": f"mine:{env}"}, head=WITH_CODE, workers=[pool() | WITH_CODE], **LONG)


def test_user_code_that_never_works_in_the_workers(reef: Installation, cluster: Cluster, crowd: str) -> None:
    """The head can make the environment; that no worker can step it is not tried for ever."""
    cluster.apply(in_workers("broken", "Broken"), namespace=crowd)  # alone: many heads at once are slow to start
    status = reef.wait_for_phase("broken", "Failed", namespace=crowd, timeout_s=GIVEN_UP_S)
    assert condition(status, "Failed")[:2] == ("True", "JobWrong")
    told = "podFailurePolicy" in cluster.get("job", "broken-head", namespace=crowd)["spec"]  # servers before 1.26: not
    assert status["attempts"] == 1 or (status["attempts"] == 2 and not told), status
    assert all(part in status["message"] for part in ("ValueError: no such level", "failed again")), status["message"]


def test_user_code_that_fails_in_the_workers_now_and_then(reef: Installation, cluster: Cluster, crowd: str) -> None:
    """Workers are started again and training goes on; pods are ready all the time, and yet it is said."""
    cluster.apply(in_workers("flaky", "Flaky"), namespace=crowd)
    status = reef.wait(
        "flaky",
        lambda now: condition(now, "WorkersReady")[1] == "WorkersFailing",
        namespace=crowd,
        timeout_s=GIVEN_UP_S,
    )
    message = condition(status, "WorkersReady")[2]
    assert all(part in message for part in ("rollout worker 1", "sample()", "ValueError: no such level")), message
    assert (status["phase"], status["attempts"]) == ("Running", 1)


def test_a_job_without_its_worker_ends_at_its_deadline(reef: Installation, cluster: Cluster, crowd: str) -> None:
    status = reef.wait_for_phase("eater", "Failed", "Succeeded", namespace=crowd, timeout_s=240)
    assert condition(status, "Failed")[:2] == ("True", "DeadlineExceeded")
    ran = moment(status["runningTime"])
    # A machine under load may kill a head that is slow to start; once it trains it lives on without its worker.
    retried = [message for at, message in job_events(cluster, crowd, "eater", "Retrying") if at >= ran]
    assert not retried, retried
    assert 150 <= lasted(status, "runningTime") <= 150 + LATE_S


# -- looking -----------------------------------------------------------------------------------------------------------


def apply(cluster: Cluster, job: Job, namespace: str, *, validate: bool = False) -> None:
    """As a person does; `validate` by kubectl's own look at the schema."""
    cluster.kubectl("apply", f"--validate={str(validate).lower()}", "-n", namespace, "-f", "-", stdin=json.dumps(job))


def condition(status: dict[str, Any], kind: str) -> tuple[str, str, str]:
    """(status, reason, message) of a condition; empty texts where it is not there."""
    found: dict[str, Any] = next((each for each in status.get("conditions", []) if each["type"] == kind), {})
    return found.get("status", ""), found.get("reason", ""), found.get("message", "")


def ended(pod: dict[str, Any]) -> dict[str, Any]:
    """How the pod's container ended."""
    return dict(pod["status"]["containerStatuses"][0]["state"]["terminated"])


def moment(timestamp: str) -> float:
    """Seconds of a timestamp of Kubernetes."""
    return datetime.fromisoformat(timestamp).timestamp()


def lasted(status: dict[str, Any], since: str) -> float:
    """Seconds from a time in a job's status until its end."""
    return moment(status["completionTime"]) - moment(status[since])


def created(made: dict[str, Any]) -> float:
    """When an object was created."""
    return moment(made["metadata"]["creationTimestamp"])


def kubelet_events(cluster: Cluster, namespace: str, prefix: str, reason: str) -> list[float]:
    """When Events of a reason were first written of pods whose names begin so, which may be gone by now."""
    selector = f"involvedObject.kind=Pod,reason={reason}"
    text = cluster.kubectl("get", "events", "-n", namespace, "--field-selector", selector, "-o", "json")
    events = [each for each in json.loads(text)["items"] if each["involvedObject"]["name"].startswith(prefix)]
    return sorted(moment(event["firstTimestamp"]) for event in events)


def job_events(cluster: Cluster, namespace: str, name: str, reason: str) -> list[tuple[float, str]]:
    """When Events of a reason were first written of a job, and their messages."""
    selector = f"involvedObject.name={name},involvedObject.kind=RLTrainingJob,reason={reason}"
    text = cluster.kubectl("get", "events", "-n", namespace, "--field-selector", selector, "-o", "json")
    return sorted((moment(event["firstTimestamp"]), event["message"]) for event in json.loads(text)["items"])


def since(cluster: Cluster, namespace: str, name: str, reason: str) -> list[float]:
    """When Events of a reason were first written of a job; waits for one."""
    found: list[float] = []

    def told() -> bool:
        found[:] = [at for at, _ in job_events(cluster, namespace, name, reason)]
        return bool(found)

    wait_until(f"an Event {reason} of {name}", told, timeout_s=GIVEN_UP_S)
    return found
