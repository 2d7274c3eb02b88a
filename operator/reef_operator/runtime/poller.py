"""Asks heads for their progress, in the background and within limits: a silent head delays nobody's reconcile."""

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
TRAINING_PER_S = 40.0  # heads that train and are asked a second: each answer is a status that is written

logger = logging.getLogger(__name__)


class Poller:
    """The last report of every running head, or since when it is asked in vain.

    Each head has its own clock, so that the load is even. A head that does not train yet is asked every `interval_s`;
    those that train are asked less often when they are many, as each of their answers is written to a status. One
    namespace with many heads, or silent ones, slows down its own alone: namespaces share the questions and take turns.

    Args:
        pods: the pods to look through for heads.
        changed: told the job whose head does something else than before.
        progressed: told the job whose head does the same, and is further.
        interval_s: pause between two questions to a head.
        timeout_s: limit for one answer.
        concurrency: heads that are asked at a time.
        port: where heads answer.
        clock: seconds, monotonic.
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
        self._asked: dict[Key, Object] = {}  # heads that wait for their turn
        self._pauses: dict[str, float] = {}  # by namespace: between two questions to a head that trains
        self._port = port
        self._clock = clock
        self._reports: dict[Key, Progress] = {}
        self._due: dict[str, float] = {}  # by uid of the pod: when to ask it next; never while it is being asked

    def get(self, key: Key) -> Progress | None:
        """What the head of a job said last, or since when it is asked in vain; None when it has no running head."""
        return self._reports.get(key)

    async def run(self) -> None:
        """Ask all heads, again and again, until cancelled."""
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        session = aiohttp.ClientSession(connector=connector, timeout=self._timeout)
        async with session, asyncio.TaskGroup() as rounds:
            while True:
                rounds.create_task(self.round(session))  # one that waits for a silent head delays no other
                await asyncio.sleep(min(TICK_S, self._interval_s))

    async def round(self, session: aiohttp.ClientSession) -> None:
        """Ask every running head whose time has come."""
        running = sorted((pod for pod in self._pods() if is_running_head(pod)), key=seniority)
        heads = {job_of_label(pod): pod for pod in running}  # of two of a job the newest that stays
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
        """Ask heads one after the other until none waits."""
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
        if uid not in self._due:  # another pod is the head by now
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
        elif telling(known) != telling(report):
            self._progressed(key)


def pauses(heads: Mapping[str, int], interval_s: float) -> dict[str, float]:
    """Seconds between two questions to a head that trains, by namespace.

    All together are asked `TRAINING_PER_S` times a second. No namespace gets more of that than another one that would
    like to have more; what those with few heads leave goes to the others.

    Args:
        heads: how many there are, by namespace.
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
    """Where a head tells its progress."""
    address = pod["status"]["podIP"]
    host = f"[{address}]" if ":" in address else address
    return f"http://{host}:{port}/progress"


async def read_report(session: aiohttp.ClientSession, url: str) -> dict[str, Any]:
    """The JSON object at a URL, which a user's code wrote: nothing of it is trusted.

    Raises:
        ValueError: not a JSON object, too long, or not answered with 200.
        aiohttp.ClientError, OSError, TimeoutError: not reached in time.
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
        report = json.loads(content, parse_constant=lambda name: None)  # NaN is no JSON for the API server
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(report, dict):
        raise ValueError("not a JSON object")
    return report


def telling(report: Mapping[str, Any]) -> dict[str, Any]:
    """A report without its time, which always changes."""
    return {key: value for key, value in report.items() if key != "time"}


def seniority(pod: Object) -> tuple[bool, str]:
    """What pods are ordered by, so that the one in charge is last: those that end, then by age."""
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
