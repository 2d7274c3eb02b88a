"""Numbered actors and what happens when one fails: the one place of fault tolerance."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import ray
from ray.exceptions import RayError

from reef.distributed.failure_policy import FailurePolicy, FaultTolerance
from reef.distributed.failures import LIMITS, PROBE, START, Failure, died, error_of, late
from reef.distributed.slot import MAILBOX, NEVER, SLICE_S, ActorSpec, Process, Slot, first_done, problem_of, startable
from reef.errors import WorkerError
from reef.run.process.deadline import Deadline

log = logging.getLogger(__name__)
OVER = "That ended the run: no actor is started again, and none takes calls."
LOOK_AGAIN_S = 0.2  # how often to look for replacements while nothing else can be done
ROOM_S = 1.0  # how often to look for room
CLOSE_S = 2.0  # how long idle actors have to close their environments


class ActorGroup:
    """Actors with the indices 1..count.

    A failed call is a `Failure` inside and never an exception of Ray; a `FailurePolicy` decides whether it ends the run
    (WorkerError with the worker's own traceback), drops the actor or replaces it. Replacements start in the background
    while the others go on, and are handed to `on_entered` before the first call goes to them.
    """

    def __init__(
        self,
        spec: ActorSpec,
        count: int,
        settings: FaultTolerance,
        *,
        on_entered: Callable[[ActorGroup, list[int]], None] = lambda *_: None,
        together: bool = False,
        wait_s: float = math.inf,
        patience_s: float | None = None,
        room: Callable[[int], int] | None = None,
        deadline: Deadline | None = None,
    ) -> None:
        """Start `count` actors; return when each is up or has failed, and after `wait_s` seconds if none is up.

        `patience_s`: how long actors that are up wait for the others, which then join later; None: without a limit.
        `room(count)` says how many of `count` actors fit now, where nodes come and go; the others wait for room, which
        is no failure. Neither is the first loss of an actor that then comes back.
        `on_entered(group, indices)` prepares actors that came up, the first time and after a restart. In a group that
        works `together` (one all-reduce) a failure takes all down, and ignoring failures means replacing.
        """
        self._spec, self._settings, self._deadline = spec, settings, deadline or Deadline()
        self._on_entered, self._together = on_entered, together
        self._policy = FailurePolicy(settings=settings, together=together, elastic=room is not None)
        self._slots: dict[int, Slot] = {}
        self.first_failure: Failure | None = None
        self._over: WorkerError | None = None  # why no call is taken any more: a failure, or `stop`
        self._in_doubt = wait_s > 0.0  # whether idle actors are asked for a sign of life before the next call
        self._room, self._capacity = room, math.inf
        self._may_join_later = patience_s is not None
        self._looked_at, self._crowded = NEVER, False
        self.has_mailbox = spec.has_mailbox  # whether calls may be sent `at_once`
        self.size = 0  # actors that are wanted
        self.resize(count)
        try:
            self._look_for_room()
            self._start_those_due()
            if wait_s > 0.0:
                self._await_first_start(wait_s, patience_s)
        except BaseException:
            self.stop()
            raise

    @property
    def healthy(self) -> list[int]:
        """Indices of the actors that take calls."""
        return [index for index, slot in self._slots.items() if slot.entered]

    @property
    def idle(self) -> list[int]:
        """Indices of the actors that take calls and work on no request."""
        return [index for index, slot in self._slots.items() if slot.entered and not slot.in_flight]

    def num_on(self, node: str) -> int:
        """Actors that are on this node, or may come up there."""
        return sum(slot.actor is not None and slot.node in (node, "") for slot in self._slots.values())

    def num_in_flight(self, index: int) -> int:
        """Requests that an actor has not answered yet, as far as `ready` has looked."""
        return len(self._slots[index].in_flight)

    @property
    def num_waiting(self) -> int:
        """Actors that wait for room."""
        not_lost = sum(not slot.history.dropped for slot in self._slots.values())
        return max(min(not_lost, self.size) - int(min(self._capacity, self.size)), 0)

    @property
    def num_restarts(self) -> int:
        """Replacements started so far, over all actors."""
        return sum(slot.history.restarts for slot in self._slots.values())

    @property
    def problem(self) -> str:
        """Why the first failed actor stopped, until it works again; empty while all is well. Safe from any thread."""
        return problem_of(self._spec.name, list(self._slots.values()), min(self._capacity, self.size))

    def resize(self, count: int) -> None:
        """Want `count` actors: more start when they have room; where nodes come and go, those too many are let go."""
        for index in range(len(self._slots) + 1, count + 1):
            self._slots[index] = Slot(index)
        if count != self.size:
            self.size, self._looked_at = count, NEVER

    def process(self, index: int) -> Process:
        """That of an actor that takes calls."""
        return self._slots[index].process

    def call_all(self, method: str, *args: Any, timeout_s: float | None) -> dict[int, Any]:
        """What `method(*args)` returns in every healthy actor, by index; those that fail are left out.

        Waits for a replacement when no actor is healthy. Raises WorkerError when the settings do not cover a failure.
        """
        while True:
            results = self.call_some(method, dict.fromkeys(self.await_healthy(), args), timeout_s=timeout_s)
            if results:
                return results

    def call_some(
        self, method: str, arguments: Mapping[int, tuple[Any, ...]], *, timeout_s: float | None
    ) -> dict[int, Any]:
        """As `call_all` for some actors, each with its own arguments; does not wait for others.

        Actors that have failed are left out; when one of a group that works together fails, the result is empty.
        Those with a mailbox fail also if their process gives no sign of life beside its work.
        """
        slots = [self._slots[index] for index in arguments if self._slots[index].actor is not None]
        pending = {slot.actor.call.remote(method, *arguments[slot.index]): slot for slot in slots}
        deadline = time.monotonic() + (math.inf if timeout_s is None else timeout_s)
        pause_s = SLICE_S if self._spec.has_mailbox else math.inf
        results: dict[int, Any] = {}
        while pending:
            done = first_done(pending, min(deadline - time.monotonic(), pause_s), self._deadline)
            if not done and time.monotonic() >= deadline:
                self._fail_late(pending.values(), method, timeout_s)
            elif not done and self._spec.has_mailbox:
                limit = self._settings.worker_health_probe_timeout_s
                self._fail_late([slot for slot in pending.values() if slot.is_silent(limit)], PROBE, limit)
            for ref in done:
                slot = pending.pop(ref)
                value = self._fetch(slot, method, ref)
                if slot.actor is not None:
                    results[slot.index] = value
            if any(slot.actor is None for slot in slots) and self._together:
                return {}
            pending = {ref: slot for ref, slot in pending.items() if slot.actor is not None}
        return dict(sorted(results.items()))

    def states(self) -> dict[int, Any]:
        """The `state` of every healthy actor, by index; those that fail are left out.

        Where the process is to end, half of the time is for writing: late ones are left out too, and nothing follows.
        """
        if (left := self._deadline.time_left()) == math.inf:
            limit = self._settings.worker_restore_timeout_s
            return self.call_some("state", dict.fromkeys(self.healthy, ()), timeout_s=limit)
        asked = {slot.actor.call.remote("state"): index for index, slot in self._slots.items() if slot.entered}
        answers: dict[int, Any] = {}
        for ref in ray.wait(list(asked), num_returns=len(asked), timeout=left / 2)[0] if asked else []:
            with contextlib.suppress(RayError):
                answers[asked[ref]] = ray.get(ref)
        return {index: value for index, value in sorted(answers.items()) if not isinstance(value, Failure)}

    def send(self, method: str, *args: Any, to: Collection[int] | None = None, at_once: bool = False) -> None:
        """Call every healthy actor, or those `to`, without waiting; each runs its calls in order.

        Those with a mailbox run it `at_once`, beside whatever they are working on. Failures show up with later calls.
        """
        self.heal()
        for index in self.healthy:
            if to is None or index in to:
                slot = self._slots[index]
                call = slot.actor.call.options(concurrency_group=MAILBOX) if at_once else slot.actor.call
                slot.sent[call.remote(method, *args)] = method

    def request(self, index: int, method: str, *args: Any) -> bool:
        """Start a call whose value `ready` will return; False when the actor has failed or has enough to do."""
        slot = self._slots[index]
        if not slot.entered or len(slot.in_flight) >= self._settings.max_requests_in_flight:
            return False
        if not slot.in_flight:
            slot.busy_since = time.monotonic()
        slot.in_flight[slot.actor.call.remote(method, *args)] = method
        return True

    def ready(self, timeout_s: float | None = None, most: int | None = None) -> list[tuple[int, Any]]:
        """(index, value) of the requests that are done, at least one unless time runs out or none is under way.

        Those of one actor come in the order of its requests, one a call: a later value may have a shorter way to here.
        No more than `most` are returned; then those come first that were asked for first.
        """
        self.await_healthy()
        slots = [slot for slot in self._slots.values() if slot.in_flight]
        if not slots:
            return []
        if most is not None and most < len(slots):
            slots.sort(key=lambda slot: slot.busy_since)
        waiting = {next(iter(slot.in_flight)): slot for slot in slots}
        done = first_done(waiting, self._patience(timeout_s, waiting.values()), self._deadline)
        if done:
            done, _ = ray.wait(list(waiting), num_returns=len(waiting), timeout=0)
        values: list[tuple[int, Any]] = []
        for ref in done[:most]:
            slot = waiting[ref]
            if ref not in slot.in_flight:
                continue  # its actor was just taken down, as another of its group failed
            slot.busy_since = time.monotonic()
            value = self._fetch(slot, slot.in_flight.pop(ref), ref)
            if slot.actor is not None:
                values.append((slot.index, value))
        self._cut_off_late(waiting.values())
        return values

    def drop_requests(self) -> None:
        """Wait until no request is under way; values are dropped."""
        while self.idle != self.healthy:
            self.ready()

    def _patience(self, timeout_s: float | None, slots: Iterable[Slot]) -> float | None:
        limits = [] if timeout_s is None else [timeout_s]
        if self._settings.request_timeout_s is not None:
            oldest = min(slot.busy_since for slot in slots)
            limits.append(max(oldest + self._settings.request_timeout_s - time.monotonic(), 0.0))
        return min(limits, default=None)

    def _cut_off_late(self, slots: Iterable[Slot]) -> None:
        limit = self._settings.request_timeout_s
        for slot in slots:
            if limit is not None and slot.in_flight and time.monotonic() - slot.busy_since >= limit:
                self._fail_late([slot], next(iter(slot.in_flight.values())), limit)

    def _fetch(self, slot: Slot, method: str, ref: Any) -> Any:
        """The value of a finished call; a failure is dealt with here and leaves the slot without an actor."""
        try:
            value = ray.get(ref)
        except RayError as error:
            value = died(slot.index, slot.pid if slot.node else 0, method, error)
        if isinstance(value, Failure):
            self._fail(slot, value)
        else:
            slot.history.succeed(method, is_work=method in self._spec.work)
        return value

    def heal(self) -> None:
        """Take in actors that came up and start those that are due and have room; never waits."""
        sent = {ref: slot for slot in self._slots.values() for ref in slot.sent}
        for ref in ray.wait(list(sent), num_returns=len(sent), timeout=0)[0] if sent else []:
            slot = sent[ref]
            if ref in slot.sent:  # not cleared by the failure of an earlier one
                self._fetch(slot, slot.sent.pop(ref), ref)
        self._look_for_room()
        self._start_those_due()
        for slot in self._slots.values():
            if slot.starting is not None:
                self._look_at_start(slot)
        up = [slot for slot in self._slots.values() if slot.is_up and not slot.entered]
        if up and not (self._together and len(up) < len(self._slots)):
            for slot in up:
                slot.entered = True
            self._on_entered(self, [slot.index for slot in up])

    def await_healthy(self) -> list[int]:
        """Wait until an actor takes calls and return the indices; raises WorkerError when none can."""
        if self._over:
            raise self._over
        self.heal()
        self._probe()
        while not self.healthy:
            self._rest()
            self.heal()
        return self.healthy

    def _probe(self) -> None:
        """Where one failed the others may hang: idle actors that give no sign of life in time have failed as well.

        Busy ones would answer after their work, which has a limit of its own.
        """
        if self._in_doubt:
            limit = self._settings.worker_health_probe_timeout_s
            self.call_some(PROBE, dict.fromkeys(self.idle, ()), timeout_s=limit)
            self._in_doubt = False

    def _look_for_room(self) -> None:
        """See how many may be up; those that are too many are let go, which is no failure."""
        if self._room is None or time.monotonic() < self._looked_at + ROOM_S:
            return
        before = self.num_waiting
        self._capacity = min(self._room(self.size), self.size)
        up = [slot for slot in self._slots.values() if slot.actor is not None]
        too_many = len(up) - self._capacity
        for slot in sorted(up, key=lambda one: (one.entered, -one.index)):
            if too_many > 0 and not slot.entered:
                slot.withdraw()
                too_many -= 1
            elif too_many > 0 and self._crowded:
                log.info("%s %d is let go, as %d have room", self._spec.name, slot.index, self._capacity)
                slot.let_go()
                too_many -= 1
        # some may be gone with their nodes, as yet unnoticed: they are asked, and only at the next look the living go
        self._crowded = too_many > 0
        self._in_doubt = self._in_doubt or self._crowded
        if self.num_waiting != before:
            text = "%ss: %d of %d have room, the others start when nodes come"
            log.info(text, self._spec.name, self.size - self.num_waiting, self.size)
        self._looked_at = time.monotonic()

    def _start_those_due(self) -> None:
        free = 0 if self._over else self._capacity - sum(slot.actor is not None for slot in self._slots.values())
        for slot in startable(self._slots.values(), together=self._together):
            if free > 0:
                if slot.started_at != NEVER:
                    slot.history.restarts += 1
                    log.warning("%s %d is started again", self._spec.name, slot.index)
                slot.start(self._spec)
                free -= 1

    def _look_at_start(self, slot: Slot) -> None:
        limit = self._settings.worker_restore_timeout_s
        if ray.wait([slot.starting], timeout=0)[0]:
            value = self._fetch(slot, START, slot.starting)
            slot.starting = None
            if slot.actor is not None:
                slot.pid, slot.node = value
        elif time.monotonic() - slot.started_at > limit and self._may_join_later and self.healthy:
            text = "%s %d did not find room within %g s: it is tried again"
            log.warning(text, self._spec.name, slot.index, limit)
            slot.withdraw()
        elif time.monotonic() - slot.started_at > limit:
            self._fail_late([slot], START, limit)

    def _await_first_start(self, wait_s: float, patience_s: float | None) -> None:
        end = deadline = time.monotonic() + wait_s
        while any(slot.starting is not None and not slot.history.restarts for slot in self._slots.values()):
            if time.monotonic() >= (deadline if self.healthy else end):
                return
            if not self.healthy:
                deadline = time.monotonic() + (math.inf if patience_s is None else patience_s)
            self._rest()
            self.heal()
        if self.first_failure is not None and not self.healthy:
            reason = f"None of the {len(self._slots)} came up."
            raise error_of(self._spec.name, self.first_failure, self.first_failure, reason)

    def _rest(self) -> None:
        """Wait until something comes up, or a moment."""
        self._deadline.end_if_over()
        starting = [slot.starting for slot in self._slots.values() if slot.starting is not None]
        if starting:
            ray.wait(starting, timeout=LOOK_AGAIN_S)
        else:
            time.sleep(LOOK_AGAIN_S)

    def _fail_late(self, slots: Iterable[Slot], method: str, limit_s: float | None) -> None:
        for slot in slots:
            self._fail(slot, late(slot.index, method, limit_s, LIMITS.get(method) or self._spec.work.get(method)))

    def _fail(self, slot: Slot, failure: Failure) -> None:
        """Take the slot's actor down and do what the policy decides; raises WorkerError where it ends the run."""
        if slot.actor is None:
            return
        self.first_failure = self.first_failure or failure
        self._in_doubt = True
        slot.history.fail(failure)
        for each in self._slots.values() if self._together else [slot]:
            each.take_down(self._settings.delay_between_worker_restarts_s)
        decision = self._policy.decide(failure, slot.history, [each.history for each in self._slots.values()])
        if decision.action == "end":
            self._over = error_of(self._spec.name, failure, self.first_failure, OVER)
            raise error_of(self._spec.name, failure, self.first_failure, decision.reason)
        slot.history.dropped = decision.action == "drop"
        log.warning("%s %d failed in %s(): %s", self._spec.name, failure.index, failure.method, failure.error)

    def stop(self) -> None:
        """End all actors; idle ones may close their environments first."""
        self._over = self._over or WorkerError(f"{self._spec.name}s were stopped and take no calls any more.")
        if not ray.is_initialized():
            return
        closing = [self._slots[index].actor.call.remote("stop") for index in self.idle]
        if closing:
            ray.wait(closing, num_returns=len(closing), timeout=CLOSE_S)
        for slot in self._slots.values():
            slot.take_down(0.0)
            slot.history.dropped = True
