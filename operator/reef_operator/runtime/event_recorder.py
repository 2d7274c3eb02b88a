"""Writes Events for a job's owner. Equal Events become one with a count; a failed write is only logged."""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from datetime import UTC, datetime

from reef_operator.conditions import shortened
from reef_operator.connection.client import ApiError, Client
from reef_operator.model import Event, Object
from reef_operator.runtime.queue import log_fields
from reef_operator.runtime.watch import key_of

REMEMBERED = 4096

logger = logging.getLogger(__name__)


class EventRecorder:
    """Writes Events.

    Args:
        client: sends requests.
        component: name of the reporting program.
        instance: name of the operator's process.
    """

    def __init__(self, client: Client, component: str = "reef-operator", instance: str = "") -> None:
        self._client = client
        self._component = component
        self._instance = instance
        self._counts: OrderedDict[tuple[str, str], int] = OrderedDict()

    async def record(self, job: Object, event: Event) -> None:
        """Write an Event about a job, or raise the count of an equal one."""
        namespace, _ = key_of(job)
        name = name_of(job, event)
        log = logger.warning if event.type == "Warning" else logger.info
        log("%s: %s", event.reason, event.message, extra=log_fields(key_of(job)))
        try:
            if not await self._repeat(namespace, name):
                await self._first(namespace, name, job, event)
        except ApiError as error:
            logger.warning("event not written: %s", error, extra=log_fields(key_of(job)))

    async def _repeat(self, namespace: str, name: str) -> bool:
        """Raise the count; return False if this Event is unknown here or has expired."""
        count = self._counts.get((namespace, name))
        if count is None:
            return False
        try:
            await self._client.patch("Event", namespace, name, {"count": count + 1, "lastTimestamp": now()})
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        self._remember(namespace, name, count + 1)
        return True

    async def _first(self, namespace: str, name: str, job: Object, event: Event) -> None:
        metadata, time = job["metadata"], now()
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {
                "apiVersion": job.get("apiVersion", "reef.dev/v1"),
                "kind": job.get("kind", "RLTrainingJob"),
                "name": metadata["name"],
                "namespace": namespace,
                "uid": metadata["uid"],
                "resourceVersion": metadata.get("resourceVersion", ""),
            },
            "type": event.type,
            "reason": event.reason,
            "message": shortened(event.message),
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
            "firstTimestamp": time,
            "lastTimestamp": time,
            "count": 1,
        }
        if await self._client.create("Event", namespace, body) is None:  # written before this process started
            await self._client.patch("Event", namespace, name, {"lastTimestamp": time})
        self._remember(namespace, name, 1)

    def _remember(self, namespace: str, name: str, count: int) -> None:
        self._counts[namespace, name] = count
        self._counts.move_to_end((namespace, name))
        if len(self._counts) > REMEMBERED:
            self._counts.popitem(last=False)


def name_of(job: Object, event: Event) -> str:
    """Return a name that is the same for equal Events of one job."""
    content = "\0".join((job["metadata"]["uid"], event.type, event.reason, event.message))
    digest = hashlib.sha256(content.encode(errors="replace")).hexdigest()
    return f"{job['metadata']['name']}.{digest[:16]}"


def now() -> str:
    """Return the current time in the format of Events."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
