"""`reef-operator`: builds the parts of the operator, runs them, and exits when one of them fails."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from functools import partial
from typing import Any

import kopf

from reef.endpoint import Endpoint
from reef.errors import ReefError
from reef_operator import names
from reef_operator.connection.client import ApiError, Client
from reef_operator.connection.credentials import Credentials, kubeconfig_login, service_account_login
from reef_operator.connection.limits import Backoff
from reef_operator.health import Health, fault_of, nothing_wrong
from reef_operator.lifecycle import kopf_settings, registry
from reef_operator.model import Object, Server
from reef_operator.options import Options, parse
from reef_operator.reconcile import reconcile
from reef_operator.runtime.controller import Controller
from reef_operator.runtime.event_recorder import EventRecorder
from reef_operator.runtime.leases import Canary, LeaderElection, WatchProof
from reef_operator.runtime.logs import configure
from reef_operator.runtime.metrics import Metrics
from reef_operator.runtime.observer import Observer
from reef_operator.runtime.poller import Poller
from reef_operator.runtime.queue import SHARE, Key, Urgency, WorkQueue
from reef_operator.runtime.upkeep import Upkeep
from reef_operator.runtime.watch import (
    Store,
    Stores,
    Watch,
    job_of_label,
    key_of,
    trim_job,
    trim_lease,
    trim_owner_of_pods,
    trim_pod,
)

RELEASE_S = 5.0  # to give back the Lease; after that, another operator has to wait until it expires
CLOSED_S = 5.0  # until a job in an inaccessible namespace is tried again

logger = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the operator until a signal stops it.

    Returns:
        The exit code: 0 after SIGTERM or SIGINT, 1 when a part failed, 2 for a wrong flag or variable.
    """
    try:
        options = parse(sys.argv[1:] if arguments is None else arguments)
    except ReefError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    configure(options.log_format, level=options.log_level)
    try:
        asyncio.run(run(options))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 0
    except kopf.LoginError as error:
        logger.error("%s", error)
        return 2
    except Exception:
        logger.exception("the operator ends")
        return 1
    return 0


async def run(options: Options) -> None:
    """Wait for the CRD and for leadership, then work until SIGTERM.

    Raises:
        asyncio.CancelledError: SIGTERM came while it waited.
    """
    end_by_sigterm()
    metrics = Metrics()
    login = kubeconfig_login if options.dev else service_account_login
    health = Health()
    Endpoint(options.listen, options.metrics_port, metrics.answer)
    Endpoint(options.listen, options.health_port, health.answer)
    async with connected(options, Credentials(login), metrics) as (election, client):
        waiting = asyncio.create_task(health.run(nothing_wrong))
        await definition_is_served(client)
        if options.leader_election:
            await election.acquire()
        waiting.cancel()
        operator = Operator(options, client, metrics)
        operator.parts.append(("health", health.run(operator.fault)))
        if options.leader_election:
            operator.parts.append(("leader election", end_when_lost(election)))
        await operator.run(login)
        if options.leader_election:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RELEASE_S):
                    await election.release()


@contextlib.asynccontextmanager
async def connected(
    options: Options, credentials: Credentials, metrics: Metrics
) -> AsyncIterator[tuple[LeaderElection, Client]]:
    """Yield the election and a client that writes only while this operator leads; the election has its own client."""
    made = partial(
        Client,
        credentials,
        rate=options.api_rate,
        burst=options.api_burst,
        observe=metrics.request,
        skipped=metrics.skipped,
    )
    async with made() as lease_client:
        election = LeaderElection(lease_client, options.own_namespace, f"{options.name}-leader", options.identity)
        async with made(may_write=election.leads if options.leader_election else lambda: True) as client:
            yield election, client


def end_by_sigterm() -> None:
    """Let SIGTERM cancel the current task: as process 1 it would ignore the signal. Kopf takes over later."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


class Operator:
    """All parts of a running operator, connected."""

    def __init__(self, options: Options, client: Client, metrics: Metrics) -> None:
        self.options = options
        self.client = client
        self.queue = WorkQueue()
        self.proof = WatchProof()
        self.stores = Stores(
            jobs=Store(key_of),
            pods=Store(job_of_label),
            owned={"Job": Store(job_of_label), "Deployment": Store(job_of_label)},
        )
        self.canary = (options.canary_namespace, f"{options.name}-canary")
        self.watches = [watch for namespace in options.scopes for watch in self._watches(namespace)]
        self.canary_watch = Watch(
            client,
            "Lease",
            self.canary[0],
            name=self.canary[1],
            store=Store(key_of),
            trim=trim_lease,
            changed=lambda lease: None,
            delivered=self.proof.saw,
        )
        poller = Poller(
            self.stores.pods.all,
            self.queue.add,
            partial(self.queue.add, urgency=Urgency.PROGRESS),
            interval_s=options.poll_seconds,
        )
        self.observer = Observer(client, self.stores, poller.get, options.settings, reread_s=options.resync_seconds)
        self.controller = Controller(
            client,
            self.stores,
            self.observer,
            decide=reconcile,
            queue=self.queue,
            recorder=EventRecorder(client, instance=options.identity),
            metrics=metrics,
            written=self.proof.expect,
        )
        upkeep = Upkeep(
            client,
            options.scopes,
            self.stores,
            queue=self.queue,
            metrics=metrics,
            begun=self.observer.renew,
            listed=self.proof.expect,
            ingresses=options.settings.ingress is not None,
            interval_s=options.resync_seconds,
        )
        self.parts: list[tuple[str, Coroutine[Any, Any, None]]] = [
            *(
                (f"watch {watch.kind} {watch.namespace or '*'}", watch.run())
                for watch in (*self.watches, self.canary_watch)
            ),
            ("poller", poller.run()),
            ("canary", Canary(client, *self.canary, self.proof).run()),
            ("work", self._work(upkeep)),
        ]
        self._show(metrics)

    async def run(self, login: Any) -> None:
        """Run all parts and Kopf; end when Kopf ends by a signal.

        Raises:
            Exception: the failure of a part; no part ends without one.
        """
        tasks = [asyncio.create_task(part, name=name) for name, part in self.parts]
        stop = asyncio.Event()
        for task in tasks:
            task.add_done_callback(lambda _: stop.set())

        async def end() -> None:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        try:
            await kopf.operator(
                registry=registry(login, end),
                settings=kopf_settings(),
                clusterwide=not self.options.namespaces,
                namespaces=self.options.namespaces,
                standalone=True,
                stop_flag=stop,
            )
        finally:
            await end()
        for task in tasks:
            if not task.cancelled():
                task.result()

    async def fault(self) -> str:
        """Return what is wrong with the watches; empty when all is well."""
        return await fault_of(self.proof, self.client, self.canary, self._watch_ages(closed=False))

    async def _work(self, upkeep: Upkeep) -> None:
        """Reconcile jobs once the caches are filled; before that, every object would seem to be missing."""
        await asyncio.gather(*(watch.answered.wait() for watch in self.watches))
        logger.info("caches are filled; working on jobs")
        # The objects of a job depend on it, and some of them never change later.
        self.observer.renew(await self._server())
        async with asyncio.TaskGroup() as group:
            group.create_task(upkeep.run())
            for number in range(self.options.workers):
                group.create_task(self.queue.work(self._handle, patient=number % SHARE == 0))

    async def _handle(self, key: Key) -> None:
        """Reconcile a job if the operator has access to its namespace; try again later if not."""
        if any(watch.is_closed for watch in self.watches if watch.namespace == key[0]):
            self.queue.add_after(key, CLOSED_S)
        else:
            await self.controller.handle(key)

    async def _server(self) -> Server:
        """Return the capabilities of the API server, asking until it answers."""
        delays = iter(Backoff(first=1.0, limit=15.0))
        while True:
            try:
                return await self.client.server()
            except ApiError as error:
                logger.warning("asking for the API server's version: %s", error)
                await asyncio.sleep(next(delays))

    def _watches(self, namespace: str | None) -> list[Watch]:
        def made(kind: str, selector: str, store: Store, trim: Any) -> Watch:
            return Watch(
                self.client, kind, namespace, selector=selector, store=store, trim=trim, changed=self._child_changed
            )

        jobs = Watch(
            self.client,
            "RLTrainingJob",
            namespace,
            store=self.stores.jobs,
            trim=trim_job,
            changed=self._job_changed,
            delivered=self.proof.saw,
        )
        return [
            jobs,
            made("Pod", names.POD_SELECTOR, self.stores.pods, trim_pod),
            *(
                made(kind, names.MANAGED_SELECTOR, store, trim_owner_of_pods)
                for kind, store in self.stores.owned.items()
            ),
        ]

    def _job_changed(self, job: Object) -> None:
        key = key_of(job)
        self.queue.add(key, Urgency.CHANGED if self.controller.knows(key) else Urgency.NEW)

    def _child_changed(self, found: Object) -> None:
        key = job_of_label(found)
        if key[1] and self.stores.jobs.get(key) is not None:
            self.queue.add(key)

    def _show(self, metrics: Metrics) -> None:
        metrics.gauge("queue_depth", "Jobs that wait to be reconciled.", self.queue.depth)
        metrics.gauge("queue_age_seconds", "Waiting time of the oldest job in the queue.", self.queue.age)
        metrics.watches(self._ages, lambda: self.proof.delivered)
        metrics.jobs(self.stores.jobs.all, self.stores.pods.all)

    def _ages(self) -> dict[str, float]:
        """Return for how many seconds the watches have been silent, or have missed a known change, by kind."""
        ages, overdue = self._watch_ages(), self.proof.ages()
        return {kind: max(age, overdue.get(kind, 0.0)) for kind, age in ages.items()}

    def _watch_ages(self, *, closed: bool = True) -> dict[str, float]:
        """Return the seconds of silence of the watches by kind; inaccessible namespaces count if `closed`."""
        now, ages = time.monotonic(), dict[str, float]()
        for watch in (*self.watches, self.canary_watch):
            if closed or not watch.is_closed:
                ages[watch.kind] = max(ages.get(watch.kind, 0.0), now - watch.heard)
        return ages


async def definition_is_served(client: Client) -> None:
    """Wait until the API server serves RLTrainingJobs."""
    for delay in Backoff(first=1.0, limit=10.0):
        try:
            if await client.serves_jobs():
                return
            logger.warning(
                "this cluster does not know RLTrainingJobs yet: install the chart's CustomResourceDefinition"
            )
        except ApiError as error:
            logger.warning("waiting for the API server: %s", error)
        await asyncio.sleep(delay)


async def end_when_lost(election: LeaderElection) -> None:
    """Exit at once when the Lease is lost: another operator may be working already."""
    await election.hold()
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
