"""Asks heads for their progress, in the background and within limits: a silent head delays nobody's reconcile."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import aiohttp

from reef_operator.model import Object, Progress
from reef_operator.names import COMPONENT_LABEL, HEAD, JOB_LABEL, METRICS_PORT
from reef_operator.runtime.client import NETWORK_ERRORS
from reef_operator.runtime.queue import Key
from reef_operator.runtime.watch import job_of_label

LARGEST_REPORT = 64 * 1024  # bytes

logger = logging.getLogger(__name__)


class Poller:
    """The last report of every running head.

    Args:
        pods: the pods to look through for heads.
        changed: told the job whose head reports something else than before.
        interval_s: pause between two rounds.
        timeout_s: limit for one answer.
        concurrency: heads that are asked at a time.
        port: where heads answer.
    """

    def __init__(
        self,
        pods: Callable[[], Iterable[Object]],
        changed: Callable[[Key], None],
        *,
        interval_s: float = 5.0,
        timeout_s: float = 3.0,
        concurrency: int = 64,
        port: int = METRICS_PORT,
    ) -> None:
        self._pods = pods
        self._changed = changed
        self._interval_s = interval_s
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._concurrency = concurrency
        self._port = port
        self._reports: dict[Key, Progress] = {}

    def get(self, key: Key) -> Progress | None:
        """What the head of a job said last; None when it has no running head, or one that never answered."""
        return self._reports.get(key)

    async def run(self) -> None:
        """Ask all heads, again and again, until cancelled."""
        connector = aiohttp.TCPConnector(limit=self._concurrency, force_close=True)
        async with aiohttp.ClientSession(connector=connector, timeout=self._timeout) as session:
            while True:
                await self.round(session)
                await asyncio.sleep(self._interval_s)

    async def round(self, session: aiohttp.ClientSession) -> None:
        """Ask every running head once."""
        heads = {job_of_label(pod): pod for pod in self._pods() if is_running_head(pod)}
        for gone in self._reports.keys() - heads.keys():
            del self._reports[gone]
        free = asyncio.Semaphore(self._concurrency)

        async def ask(key: Key, pod: Object) -> None:
            async with free:
                await self._ask(session, key, pod)

        await asyncio.gather(*(ask(key, pod) for key, pod in heads.items()))

    async def _ask(self, session: aiohttp.ClientSession, key: Key, pod: Object) -> None:
        uid, address = pod["metadata"]["uid"], pod["status"]["podIP"]
        host = f"[{address}]" if ":" in address else address
        try:
            report = await read_report(session, f"http://{host}:{self._port}/progress")
        except (ValueError, *NETWORK_ERRORS) as error:
            logger.debug("no progress: %s", error or type(error).__name__, extra={"namespace": key[0], "job": key[1]})
            return
        before = self._reports.get(key)
        self._reports[key] = Progress(pod_uid=uid, time=datetime.now(UTC), report=report)
        if before is None or before.pod_uid != uid or telling(before.report) != telling(report):
            self._changed(key)


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


def is_running_head(pod: Object) -> bool:
    """Whether a pod is a head that can be asked."""
    labels, status = pod["metadata"].get("labels") or {}, pod["status"]
    return (
        labels.get(COMPONENT_LABEL) == HEAD
        and bool(labels.get(JOB_LABEL))
        and status.get("phase") == "Running"
        and bool(status.get("podIP"))
    )
