"""One numbered place of an actor group: the actor that fills it now, and what became of those before."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import ray

from reef.distributed.actor_process import ActorProcess
from reef.distributed.failure_policy import History
from reef.distributed.failures import PROBE, START
from reef.output import full_name
from reef.run.process.deadline import Deadline, Overdue

SLICE_S = 1.0  # longest wait without a look at whether the run is to end
NEVER = -math.inf
# Ray's name for the thread in which calls overtake those of the main thread.
MAILBOX = "mailbox"
# Pause between starts after two quick ends in a row; each further one doubles it.
FIRST_PAUSE_S = 1.0


class Process(NamedTuple):
    """A process of the cluster; each pod counts its own from 1, so that the number alone names several."""

    node: str  # Ray's id of it
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorSpec:
    """How the actors of a group are made."""

    name: str  # in messages: "rollout worker"
    target: str | type  # the class, or "package.module:Class", with `ping` and `stop`
    arguments: Callable[[int, bool], dict[str, Any]]  # of the class, from (index, recreated)
    options: Callable[[int], dict[str, Any]] = lambda _: {}  # Ray's, from index: resources and placement
    threads: int = 1  # of torch in each actor
    environment: dict[str, str] = field(default_factory=dict)  # variables of each process
    # whether calls may overtake others, as weights and pings do; such actors work in a thread of their process
    has_mailbox: bool = False
    # the methods that the actors are there for, each with the setting that limits its time
    work: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Slot:
    """One index of a group; its actor changes when it is replaced."""

    index: int
    actor: Any = None  # None: failed, perhaps to be replaced, or without room
    starting: Any = None  # the answer to `start`, while it is not in
    entered: bool = False  # the owner has prepared it: calls may go to it
    pid: int = 0  # of the last process that came up
    node: str = ""  # Ray's id of the node where the actor is; unknown before it is up
    started_at: float = NEVER
    due: float = 0.0  # when a replacement may start
    quick_ends: int = 0  # actors in a row that did not last as long as the delay between restarts
    history: History = field(default_factory=History)
    in_flight: dict[Any, str] = field(default_factory=dict)  # method of each request, oldest first
    busy_since: float = 0.0
    sent: dict[Any, str] = field(default_factory=dict)  # method of each call whose value is not waited for
    sign: Any = None  # the answer to the last ping in the mailbox, while it is not in
    asked_at: float = NEVER  # when that ping was sent

    @property
    def recreated(self) -> bool:
        """Whether there was a process before the present one."""
        return self.history.restarts > 0 or self.pid > 0

    @property
    def is_up(self) -> bool:
        """Whether there is an actor that has made its object."""
        return self.actor is not None and self.starting is None

    @property
    def process(self) -> Process:
        """That of an actor that is up."""
        return Process(self.node, self.pid)

    def is_silent(self, limit_s: float) -> bool:
        """Whether a ping beside its work has had no answer for `limit_s` seconds; the next follows each answer."""
        if self.sign is None or ray.wait([self.sign], timeout=0)[0]:
            self.sign = self.actor.call.options(concurrency_group=MAILBOX).remote(PROBE)
            self.asked_at = time.monotonic()
        return time.monotonic() - self.asked_at >= limit_s

    def start(self, spec: ActorSpec) -> None:
        """Start an actor; the answer to `starting` says that it is up."""
        name = full_name(f"{spec.name.removeprefix('rollout ')} {self.index}")
        options = {"max_restarts": 0, "max_task_retries": 0} | spec.options(self.index)
        if spec.has_mailbox:
            options["concurrency_groups"] = {MAILBOX: 1}
        self.actor = ray.remote(**options)(ActorProcess).remote(self.index, name, logging.getLogger().level)
        arguments = spec.arguments(self.index, self.recreated)
        self.starting = self.actor.start.remote(spec.target, arguments, spec.threads, spec.environment)
        self.started_at = time.monotonic()

    def take_down(self, delay_s: float) -> None:
        """End the actor. The next may start at once, and after quick ends in a row with ever longer pauses.

        The pauses are counted from one start to the next and grow up to `delay_s` seconds.
        """
        if self.actor is not None:
            ray.kill(self.actor, no_restart=True)
            lasted = time.monotonic() - self.started_at
            self.quick_ends = self.quick_ends + 1 if lasted < delay_s else 0
            # A run may restart an actor thousands of times, and 2.0**1024 is no float.
            doublings = min(self.quick_ends - 2, 99)
            pause = min(FIRST_PAUSE_S * 2.0**doublings, delay_s) if self.quick_ends > 1 else 0.0
            self.due = self.started_at + pause
        self.actor = self.starting = None
        self.entered, self.node = False, ""
        self.in_flight, self.sent, self.sign = {}, {}, None

    def let_go(self) -> None:
        """End an actor that did no wrong: the next one is no restart."""
        self.take_down(0.0)
        self.started_at = NEVER

    def withdraw(self) -> None:
        """End an actor that has not come up, as if it had never been started."""
        self.take_down(0.0)
        if self.history.restarts:
            self.history.restarts -= 1
        else:
            self.started_at = NEVER


def startable(slots: Collection[Slot], *, together: bool) -> list[Slot]:
    """Those without an actor that may start one now.

    Pauses are for a group that goes on meanwhile. Where no actor is left the next to be due starts at once, or all in a
    group that works `together`; unless it could not even come up, as another try would most likely fail like the last.
    """
    missing = [slot for slot in slots if slot.actor is None and not slot.history.dropped]
    due = [slot for slot in missing if slot.due <= time.monotonic()]
    if due or any(slot.actor is not None for slot in slots):
        return due
    came_up = [slot for slot in missing if slot.history.failure is None or slot.history.failure.method != START]
    return came_up if together else sorted(came_up, key=lambda slot: slot.due)[:1]


def problem_of(name: str, slots: Sequence[Slot], room: float) -> str:
    """Why the first failed actor of `slots` stopped, if it may still be restarted; `room` actors fit."""
    incomplete = sum(slot.actor is not None for slot in slots) < room
    for slot in slots:
        failure = slot.history.failure
        if failure is not None and not slot.history.works and (incomplete or slot.actor is not None):
            return f"{name} {failure.index} failed in {failure.method}(): {failure.error}"
    return ""


def first_done(busy: Mapping[Any, Slot], timeout_s: float | None, end: Deadline) -> list[Any]:
    """Wait until a `busy` actor has answered; returns nothing when time runs out.

    Those that keep an ending run waiting are taken down: they would not return their state in time either.
    """
    deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
    while True:
        try:
            end.end_if_over()
        except Overdue:
            for slot in busy.values():
                slot.take_down(0.0)
            raise
        left = max(deadline - time.monotonic(), 0.0)
        done, _ = ray.wait(list(busy), timeout=min(left, SLICE_S))
        if done or left <= SLICE_S:
            return list(done)
