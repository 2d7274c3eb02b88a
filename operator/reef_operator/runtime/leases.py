"""Leases: a canary that proves that watches deliver changes, and leader election between operators."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from reef_operator.connection.client import ApiError, Client
from reef_operator.model import Object
from reef_operator.runtime.watch import key_of

BEAT_S = 30.0
# A silent stream is noticed after 70 s, and after 70 s more if the API server restarts.
PATIENCE_S = 150.0
WATCHED = ("RLTrainingJob", "Lease")  # kinds whose watches are checked this way
LEASE_S, RENEW_WITHIN_S, RETRY_S = 15.0, 10.0, 2.0
# This clock goes on while the machine is suspended, if the system has such a clock.
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

logger = logging.getLogger(__name__)


class WatchProof:
    """Checks that watches deliver the states that are known to have been written.

    A watch may deliver nothing although its connection is alive. So every state that is known from elsewhere must also
    arrive on the watch.
    """

    def __init__(self, patience_s: float = PATIENCE_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience_s = patience_s
        self._clock = clock
        self._seen: dict[str, int] = {}  # by uid: newest delivered version
        self._expected: dict[str, tuple[float, Object]] = {}  # by uid: deadline and expected state
        self.delivered = dict.fromkeys(WATCHED, 0)  # by kind: changes delivered by the watch, without its lists

    def expect(self, found: Object) -> None:
        """Expect this state, or a later one, on the watch."""
        uid = found["metadata"]["uid"]
        if self._seen.get(uid, -1) < version_of(found) and uid not in self._expected:
            self._expected[uid] = (self._clock() + self._patience_s, identity_of(found))

    def saw(self, found: Object, how: str = "MODIFIED") -> None:
        """Record a delivered state: LISTED at the start of a watch, or ADDED, MODIFIED or DELETED."""
        uid, version = found["metadata"]["uid"], version_of(found)
        self.delivered[kind_of(found)] += how != "LISTED"
        if how == "DELETED":
            self.drop(uid)
            return
        self._seen[uid] = version
        if uid in self._expected and version >= version_of(self._expected[uid][1]):
            del self._expected[uid]

    def drop(self, uid: str) -> None:
        """Expect nothing more of a deleted object."""
        self._expected.pop(uid, None)
        self._seen.pop(uid, None)

    def overdue(self) -> list[Object]:
        """Return the expected states whose deadline has passed."""
        now = self._clock()
        return [found for until, found in self._expected.values() if now > until]

    def ages(self) -> dict[str, float]:
        """Return the age of the oldest overdue state by kind, in seconds; 0 where none is: silence is not a fault."""
        now, ages = self._clock(), dict.fromkeys(WATCHED, 0.0)
        for until, found in list(self._expected.values()):
            if now > until:
                ages[found["kind"]] = max(ages.get(found["kind"], 0.0), now - until + self._patience_s)
        return ages

    async def fault(self, client: Client) -> str:
        """Return which state a watch has missed; empty when all is well.

        A watch can miss a deletion while it lists again, so a deleted object does not count as missed. Nothing is
        reported while the API server does not answer, or about an inaccessible namespace.
        """
        for found in self.overdue():
            kind, key = found["kind"], key_of(found)
            try:
                now = await client.listed(kind, *key)
            except ApiError as error:
                if error.status != 403:
                    return ""
                now = None
            if now is not None and now["metadata"]["uid"] == found["metadata"]["uid"]:
                return f"the watch did not deliver {kind} {'/'.join(key)} within {self._patience_s:.0f} s"
            self.drop(found["metadata"]["uid"])
        return ""


def identity_of(found: Object) -> Object:
    """Return the fields that identify an object and its state."""
    metadata = {key: found["metadata"].get(key, "") for key in ("namespace", "name", "uid", "resourceVersion")}
    return {"kind": kind_of(found), "metadata": metadata}


def kind_of(found: Object) -> str:
    """Return the kind of an object; the items in a list of jobs do not contain it."""
    return found.get("kind") or "RLTrainingJob"


def version_of(found: Object) -> int:
    """Return an object's resource version as a number; 0 if it is not a number, so that any state is accepted."""
    version = found["metadata"].get("resourceVersion", "")
    return int(version) if version.isdecimal() else 0


class Canary:
    """Updates its own Lease regularly, for a watch to deliver.

    Args:
        client: sends requests.
        namespace: namespace of the Lease.
        name: name of the Lease.
        proof: called with every written state.
    """

    def __init__(self, client: Client, namespace: str, name: str, proof: WatchProof) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._proof = proof

    async def run(self) -> None:
        """Update the Lease until cancelled; an unavailable API server is not a sign of a dead watch."""
        while True:
            try:
                self._proof.expect(await self.beat())
            except ApiError as error:
                logger.debug("canary: %s", error)
            await asyncio.sleep(BEAT_S)

    async def beat(self) -> Object:
        """Update the Lease, or create it; return it."""
        spec = {"renewTime": micro_time()}
        try:
            return await self._client.patch("Lease", self._namespace, self._name, {"spec": spec})
        except ApiError as error:
            if error.status != 404:
                raise
        made = await self._client.create("Lease", self._namespace, lease(self._name, spec))
        return made or await self.beat()


class LeaderElection:
    """Holds a Lease, so that only one of several operators works.

    Args:
        client: sends requests.
        namespace: namespace of the Lease.
        name: name of the Lease.
        identity: unique name of this operator.
    """

    def __init__(self, client: Client, namespace: str, name: str, identity: str) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._last: tuple[str, float] = ("", 0.0)  # version of another operator's Lease, and when it last changed
        self._renewed = -math.inf  # time of the request of the last successful renewal

    def leads(self) -> bool:
        """Whether no other operator can hold the Lease yet; False also after this process was paused for long."""
        return time.clock_gettime(CLOCK) - self._renewed < RENEW_WITHIN_S

    async def acquire(self) -> None:
        """Wait until this operator leads."""
        logged = False
        while True:
            try:
                if await self._attempt():
                    if self.leads():
                        break
                    logger.warning("lease: written only after %.0f s, so that it is renewed first", RENEW_WITHIN_S)
                elif not logged:
                    logger.info("another operator leads; waiting for the Lease %s/%s", self._namespace, self._name)
                    logged = True
            except ApiError as error:
                logger.warning("lease: %s", error)
            await asyncio.sleep(RETRY_S)
        logger.info("this operator leads: %s", self._identity)

    async def hold(self) -> None:
        """Renew the Lease after `acquire`, until another operator leads or renewals fail for almost the lease time.

        Then this operator must exit at once.
        """
        while self.leads():
            try:
                async with asyncio.timeout(max(0.1, self._renewed + RENEW_WITHIN_S - time.clock_gettime(CLOCK))):
                    if not await self._attempt(take=False):
                        break
            except TimeoutError:
                break
            except ApiError as error:  # another operator cannot take the Lease yet
                logger.warning("lease: %s", error)
            await asyncio.sleep(RETRY_S)
        logger.error("the Lease %s/%s is lost", self._namespace, self._name)

    async def release(self) -> None:
        """Release the Lease, so that the next operator leads at once."""
        try:
            found = await self._client.get("Lease", self._namespace, self._name)
            if found is not None and found["spec"].get("holderIdentity") == self._identity:
                await self._write(found, {"holderIdentity": "", "leaseDurationSeconds": 1})
        except ApiError as error:
            logger.debug("lease not released: %s", error)

    async def _attempt(self, *, take: bool = True) -> bool:
        """Renew the Lease, or `take` it; False if another operator holds it or, without `take`, has held it.

        Raises:
            ApiError: the request failed, or the Lease changed in the meantime.
        """
        found = await self._client.get("Lease", self._namespace, self._name)
        # Others measure the lease time from when they see what is written now.
        asked = time.clock_gettime(CLOCK)
        if found is None:
            spec = self._spec() | {"acquireTime": micro_time(), "leaseTransitions": 0}
            if await self._client.create("Lease", self._namespace, lease(self._name, spec)) is None:
                return False
        else:
            spec, own = found.get("spec") or {}, self._spec()
            if spec.get("holderIdentity") != self._identity:
                if not take or not self._expired(found, spec):
                    return False
                own |= {"acquireTime": micro_time(), "leaseTransitions": (spec.get("leaseTransitions") or 0) + 1}
            await self._write(found, own)
        self._renewed = asked
        return True

    def _expired(self, found: Object, spec: Mapping[str, Any]) -> bool:
        """Whether the holder has not renewed the Lease for the lease time, measured with our own clock."""
        if not spec.get("holderIdentity"):
            return True
        version = found["metadata"]["resourceVersion"]
        if self._last[0] != version:
            self._last = (version, time.monotonic())
        return time.monotonic() - self._last[1] > (spec.get("leaseDurationSeconds") or LEASE_S)

    async def _write(self, found: Object, spec: Mapping[str, Any]) -> None:
        body = {"metadata": {"resourceVersion": found["metadata"]["resourceVersion"]}, "spec": spec}
        await self._client.patch("Lease", self._namespace, self._name, body)

    def _spec(self) -> dict[str, Any]:
        return {"holderIdentity": self._identity, "leaseDurationSeconds": int(LEASE_S), "renewTime": micro_time()}


def lease(name: str, spec: Mapping[str, Any]) -> Object:
    """A Lease."""
    labels = {"app.kubernetes.io/name": "reef", "app.kubernetes.io/component": "operator"}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "labels": labels},
        "spec": dict(spec),
    }


def micro_time() -> str:
    """Return the current time in the format of Leases."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
