"""A worker pod, `python -m reef.job.worker`: a node of the head's Ray cluster, and of the next head's when it changes.

It does not end when the head does: it takes its node down and joins the head that comes next, also at another address.
SIGTERM ends it with 0. It ends with 137 when the kernel has killed one of its processes for its memory, as newer
Kubernetes has the kernel do to the whole container: so that the pod's status shows what would else look like a fault.
"""

from __future__ import annotations

if __name__ == "__main__":  # SIGTERM waits until the rest is loaded
    import signal

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

import http.client
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from reef.container import memory_kills
from reef.distributed.node_settings import address_of, host_and_port
from reef.errors import EXIT_OK, ReefError
from reef.job.cluster import Node, RayProcess, number, reap_orphans, required
from reef.logs import WITH_TIME, log_to_stderr
from reef.output import output_shown
from reef.run.process.identity import IDENTITY

log = logging.getLogger(__name__)
LOOK_AGAIN_S = 2.0
ANSWER_S = 1.5  # the head's time for one answer
MISSES = 2  # looks in a row without a sign of the head, after which it counts as gone: within 10 seconds
UNNAMED = 2  # looks in a row at a name that has lost the head: copies of a cluster's DNS may differ for a while
JOIN_S = 60.0
REFUSALS = 5
SAY_AGAIN_S = 30.0  # between two lines about the same wait
EXIT_OUT_OF_MEMORY = 137  # as of a container whose first process was the one to be killed


class OutOfMemoryError(ReefError):
    """A process of this container used more memory than there is."""

    exit_code = EXIT_OUT_OF_MEMORY


@dataclass(frozen=True, kw_only=True)
class Pod:
    """What the worker's environment says."""

    node: Node
    pool: str
    host: str  # the head's name or address
    gcs_port: int
    http_port: int
    takes_workers: bool  # rollout and evaluation workers, or only learners
    joined_file: Path  # exists while this pod is part of the cluster: its readiness

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Pod:
        """Read the environment; ConfigError names what is missing or wrong."""
        host, port = host_and_port(required(environment, "REEF_HEAD_ADDRESS"))
        return cls(
            node=Node.of(environment),
            pool=required(environment, "REEF_POOL"),
            host=host,
            gcs_port=port,
            http_port=int(number(environment, "REEF_METRICS_PORT", 8080)),
            takes_workers=number(environment, "REEF_TAKES_WORKERS", 1) > 0,
            joined_file=Path(environment.get("REEF_JOINED_FILE", "/tmp/reef/joined")),  # noqa: S108 - a pod's own
        )


@dataclass(frozen=True)
class Head:
    """One life of a head: its address now, and the identity that distinguishes it from the next."""

    ip: str
    identity: str


class Worker:
    """Keeps one node of this pod in the cluster of whatever head there is."""

    def __init__(self, pod: Pod, stopping: threading.Event) -> None:
        self._pod = pod
        self.stopping = stopping
        self._said, self._said_at = "", 0.0
        self._refusals = 0  # in a row, of the token
        self._refused_by = set[str]()  # addresses where joining failed: perhaps other jobs' heads by now
        self._kills = memory_kills()

    def run(self) -> None:
        """Join, watch, and join again, until `stopping` is set.

        Raises:
            OutOfMemoryError: a process of this pod was killed for its memory.
            ReefError: the token is refused, by whatever head is found.
        """
        self._pod.joined_file.unlink(missing_ok=True)  # of a container before this one, which was killed
        while not self.stopping.is_set():
            head = self.find_head()
            if head is None:
                self.say(f"waiting for the head at {self._pod.host}:{self._pod.gcs_port}")
                self.stopping.wait(LOOK_AGAIN_S)
                continue
            address = address_of(head.ip, self._pod.gcs_port)
            command = self._pod.node.worker_command(address, self._pod.pool, takes_workers=self._pod.takes_workers)
            ray = RayProcess(command)
            try:
                if self.join(ray):
                    self._refused_by.clear()
                    self._refusals = 0
                    log.info("joined the head at %s", head.ip)
                    self.stay(ray, head)
                else:
                    self._refused_by.add(head.ip)
                    self._count_refusal(ray)
            finally:
                self._pod.joined_file.unlink(missing_ok=True)
                ray.stop()
                reap_orphans()
            self.stopping.wait(LOOK_AGAIN_S)

    def _count_refusal(self, ray: RayProcess) -> None:
        self._refusals = self._refusals + 1 if ray.refused else 0
        if self._refusals >= REFUSALS:
            raise ReefError(
                f"the Ray token was refused {REFUSALS} times in a row: this container ends, as the next one reads the "
                "Secret of the job again."
            )

    def say(self, line: str) -> None:
        """Log a line, the same one only now and then."""
        if line != self._said or time.monotonic() - self._said_at >= SAY_AGAIN_S:
            log.info("%s", line)
            self._said, self._said_at = line, time.monotonic()

    def find_head(self) -> Head | None:
        """The head that answers now, on both of its ports.

        Its name may have more addresses than one: servers before 1.25 also name heads that were killed.
        """
        addresses = addresses_of(self._pod.host)
        if addresses and self._refused_by.issuperset(addresses):
            self._refused_by.clear()
        return self.head_among(sorted(addresses, key=self._refused_by.__contains__))

    def head_among(self, addresses: Sequence[str]) -> Head | None:
        """The first of them that answers on both ports."""
        for ip in addresses:
            identity = identity_at(ip, self._pod.http_port)
            if identity and is_open(ip, self._pod.gcs_port):
                return Head(ip, identity)
        return None

    def join(self, ray: RayProcess) -> bool:
        """Whether the node became part of the cluster."""
        deadline = time.monotonic() + JOIN_S
        while not ray.changed.wait(0.2) and not self.stopping.is_set() and time.monotonic() < deadline:
            pass
        if ray.ready:
            self._pod.joined_file.parent.mkdir(parents=True, exist_ok=True)
            self._pod.joined_file.touch()
        elif ray.refused:
            log.error(
                "the Ray token was refused by the head at %s: RAY_AUTH_TOKEN is not the one of this job's head",
                self._pod.host,
            )
        elif not self.stopping.is_set():
            log.error("cannot join %s: the Ray token was refused or the head is not reachable", self._pod.host)
        return ray.ready

    def stay(self, ray: RayProcess, head: Head) -> None:
        """Return when the node has ended, or the head is gone or is another one.

        Raises:
            OutOfMemoryError: a process of this pod was killed for its memory.
        """
        misses = unnamed = 0
        while not self.stopping.wait(LOOK_AGAIN_S):
            if memory_kills() > self._kills:
                raise OutOfMemoryError(
                    "a process of this pod was killed, as the pod used more memory than its limit. Raise "
                    "resources.limits.memory of its pool, or let the environment use less."
                )
            reap_orphans(ray.pid)
            if ray.exit_code is not None:
                log.warning("this pod's Ray node ended with exit code %s: it joins again", ray.exit_code)
                return
            named = addresses_of(self._pod.host)  # a resolver that fails says nothing about the head
            unnamed = unnamed + 1 if named and head.ip not in named else 0
            now = self.head_among(named if unnamed >= UNNAMED else [head.ip])
            if now is not None and now != head:
                log.warning("the head was replaced: this pod joins the new one at %s", now.ip)
                return
            misses = 0 if now or is_open(head.ip, self._pod.gcs_port) else misses + 1  # it may be slow to answer
            if misses >= MISSES:
                log.warning("the head at %s is gone", head.ip)
                return


def addresses_of(host: str) -> list[str]:
    """The addresses of a name; none while it is not known."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def is_open(ip: str, port: int) -> bool:
    """Whether a process listens there."""
    try:
        socket.create_connection((ip, port), ANSWER_S).close()
    except OSError:
        return False
    return True


def identity_at(ip: str, port: int) -> str | None:
    """The identity of the head that answers there; None when none does in time."""
    connection = http.client.HTTPConnection(ip, port, timeout=ANSWER_S)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().getheader(IDENTITY)
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def main() -> int:
    """Run the worker and return its exit code."""
    stopping = threading.Event()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, lambda *_: stopping.set())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    log_to_stderr(WITH_TIME, logging.INFO)
    try:
        with output_shown():
            Worker(Pod.of(os.environ), stopping).run()
    except ReefError as error:
        log.error("%s", error)
        return error.exit_code
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
