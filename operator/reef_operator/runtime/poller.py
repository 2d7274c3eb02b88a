"""Asks heads for their progress in the background, within limits, so that a silent head delays no reconcile."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import aiohttp

from reef_operator.connection.client import NETWORK_ERRORS
from reef_operator.model import Object, Progress
from reef_operator.names import COMPONENT_LABEL, HEAD, JOB_LABEL, METRICS_PORT
from reef_operator.runtime.queue import Key, Turns
from reef_operator.runtime.watch import job_of_label

LARGEST_REPORT = 64 * 1024  # bytes
TICK_S = 0.5
# Requests per second to heads that train; each answer causes a write of the status.
TRAINING_PER_S = 40.0

logger = logging.getLogger(__name__)


class Poller:
    """Keeps the last report of every running head, or since when the head has not answered.

    Each head has its own schedule, so that the load is even. A head that does not train yet is asked every `interval_s`
    seconds. Heads that train are asked less often if there are many, because each answer causes a write of the status.
    Namespaces share the rate and take turns, so a namespace with many or silent heads slows down only its own heads.

    Args:
        pods: returns the pods among which heads are searched.
        changed: called with the job when the state of its head changes.
        progressed: called with the job when its head has made progress in the same state.
        interval_s: pause between two requests to a head.
        timeout_s: limit for one answer.
        concurrency: maximum number of simultaneous requests.
        port: port of the heads.
        clock: monotonic time in seconds.
    """

    def __init__(
        self,
        pods: Callable[[], Iterable[Object]],
        changed: Callable[[Key], None],
        progressed: Callable[[Key], None],
        *,
        interval_s: float = 5.0,
        timeout_s: float = 3.0,
        concurrency: int = 64,
        port: int = METRICS_PORT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pods = pods
        self._changed = changed
        self._progressed = progressed
        self._interval_s = interval_s
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._free = concurrency
        self._turns = Turns()
        self._asked: dict[Key, Object] = {}  # heads that wait for a request
        self._pauses: dict[str, float] = {}  # by namespace: seconds between two requests to a head that trains
        self._port = port
        self._clock = clock
        self._reports: dict[Key, Progress] = {}
        self._due: dict[str, float] = {}  # by uid of the pod: time of the next request; infinite during a request

    def get(self, key: Key) -> Progress | None:
        """Return the last report of a job's head, or since when it has not answered; None without a running head."""
        return self._reports.get(key)

    async def run(self) -> None:
        """Ask all heads repeatedly until cancelled."""
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        session = aiohttp.ClientSession(connector=connector, timeout=self._timeout)
        async with session, asyncio.TaskGroup() as rounds:
            while True:
                # Rounds overlap: one that waits for a silent head does not delay the others.
                rounds.create_task(self.round(session))
                await asyncio.sleep(min(TICK_S, self._interval_s))

    async def round(self, session: aiohttp.ClientSession) -> None:
        """Ask every running head that is due."""
        running = sorted((pod for pod in self._pods() if is_running_head(pod)), key=seniority)
        # Of two heads of a job, the newest one that is not terminating is kept.
        heads = {job_of_label(pod): pod for pod in running}
        for gone in self._reports.keys() - heads.keys():
            del self._reports[gone]
        uids = {pod["metadata"]["uid"] for pod in heads.values()}
        self._due = {uid: due for uid, due in self._due.items() if uid in uids}
        now = self._clock()
        ready = {key: pod for key, pod in heads.items() if self._due.get(pod["metadata"]["uid"], now) <= now}
        self._due |= {pod["metadata"]["uid"]: math.inf for pod in ready.values()}
        self._pauses = pauses(Counter(namespace for namespace, _ in heads), self._interval_s)
        self._asked |= ready
        for key in ready:
            self._turns.add(key)
        await asyncio.gather(*(self._work(session) for _ in range(min(self._free, len(ready)))))

    async def _work(self, session: aiohttp.ClientSession) -> None:
        """Ask heads one after the other until none is waiting."""
        self._free -= 1
        try:
            while (key := self._turns.pop()) is not None:
                await self._ask(session, key, self._asked.pop(key))
        finally:
            self._free += 1

    async def _ask(self, session: aiohttp.ClientSession, key: Key, pod: Object) -> None:
        uid, asked = pod["metadata"]["uid"], datetime.now(UTC)
        report = None
        try:
            report = await read_report(session, url_of(pod, self._port))
        except (ValueError, *NETWORK_ERRORS) as error:
            logger.debug("no progress: %s", error or type(error).__name__, extra={"namespace": key[0], "job": key[1]})
        if uid not in self._due:  # another pod is the head now
            return
        before = self._reports.get(key)
        if report is None:
            self._due[uid] = self._clock() + self._interval_s
            if before is None or before.pod_uid != uid:
                self._reports[key] = Progress(pod_uid=uid, time=asked, report=None)
                self._changed(key)
            return
        self._reports[key] = Progress(pod_uid=uid, time=datetime.now(UTC), report=report)
        training = report.get("state") == "training"
        self._due[uid] = self._clock() + (self._pauses.get(key[0], 0.0) if training else self._interval_s)
        known = before.report if before and before.pod_uid == uid else None
        if known is None or known.get("state") != report.get("state"):
            self._changed(key)
        elif without_time(known) != without_time(report):
            self._progressed(key)


def pauses(heads: Mapping[str, int], interval_s: float) -> dict[str, float]:
    """Return the seconds between two requests to a head that trains, by namespace.

    The total rate is at most `TRAINING_PER_S`. Namespaces share it fairly: what those with few heads do not use goes to
    the others.

    Args:
        heads: number of heads by namespace.
        interval_s: the shortest pause.
    """
    left, share = TRAINING_PER_S, math.inf
    wanted = sorted(count / interval_s if interval_s else math.inf for count in heads.values())
    for before, each in enumerate(wanted):
        fair = left / (len(wanted) - before)
        if each > fair:
            share = fair
            break
        left -= each
    return {namespace: max(interval_s, count / share) for namespace, count in heads.items()}


def url_of(pod: Object, port: int) -> str:
    """Return the URL of a head's progress report."""
    address = pod["status"]["podIP"]
    host = f"[{address}]" if ":" in address else address
    return f"http://{host}:{port}/progress"


async def read_report(session: aiohttp.ClientSession, url: str) -> dict[str, Any]:
    """Read a JSON object from a URL. Users' code may have written it, so it is validated.

    Raises:
        ValueError: the answer is not a JSON object, is too long, or does not have the status 200.
        aiohttp.ClientError, OSError, TimeoutError: the head was not reached in time.
    """
    async with session.get(url, allow_redirects=False) as answer:
        if answer.status != 200:
            raise ValueError(f"HTTP {answer.status}")
        content = b""
        async for chunk in answer.content.iter_any():
            content += chunk
            if len(content) > LARGEST_REPORT:
                raise ValueError(f"more than {LARGEST_REPORT} bytes")
    try:
        report = json.loads(content, parse_constant=lambda name: None)  # NaN is not valid JSON for the API server
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(report, dict):
        raise ValueError("not a JSON object")
    return report


def without_time(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return a report without its time, which always changes."""
    return {key: value for key, value in report.items() if key != "time"}


def seniority(pod: Object) -> tuple[bool, str]:
    """Return the sort key of pods that puts the current head last: terminating pods first, then by age."""
    metadata = pod["metadata"]
    return not metadata.get("deletionTimestamp"), metadata.get("creationTimestamp") or ""


def is_running_head(pod: Object) -> bool:
    """Whether a pod is a head that can be asked."""
    labels, status = pod["metadata"].get("labels") or {}, pod["status"]
    return (
        labels.get(COMPONENT_LABEL) == HEAD
        and bool(labels.get(JOB_LABEL))
        and status.get("phase") == "Running"
        and bool(status.get("podIP"))
    )
