"""Learning in several processes that average their gradients: the `Learners` of `num_learner_workers` > 0."""

from __future__ import annotations

import fcntl
import math
import os
import socket
import struct
import time
from collections import deque
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
import torch.distributed
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from reef.config import AlgorithmConfig
from reef.distributed.actor_group import ActorGroup
from reef.distributed.failure_policy import FaultTolerance
from reef.distributed.resources import check_resources, learner_bundle, reserve
from reef.distributed.slot import ActorSpec
from reef.distributed.start import start
from reef.errors import WorkerError
from reef.learn.learner import Learner, Update
from reef.learn.learners import MOST_SUBMITTED, Batches, LocalLearners, learners_of
from reef.run.process.deadline import Deadline
from reef.spaces import PolicySpaces
from reef.types import PolicyId, State, Weights

ASK_ADDRESS = 0x8915  # SIOCGIFADDR
INET6_DEVICES = Path("/proc/net/if_inet6")
FIRST = 1  # the index of the learner that speaks for all: they hold the same weights


class LearnerProcess(LocalLearners):
    """One of several equal learners: the gradients of each step are averaged over all of them."""

    def __init__(
        self,
        learner_class: type[Learner[Any]],
        config: AlgorithmConfig,
        spaces: PolicySpaces,
        rank: int,
        world_size: int,
    ) -> None:
        """Make the learner; it can `update` after `join`."""
        self._rank, self._world_size = rank, world_size
        self._timeout = timedelta(seconds=config.worker_restore_timeout_s)
        self._store: Any = None  # of the first one: where all meet
        share: dict[str, Any] = {"rank": rank, "world_size": world_size, "reduce": self._average}
        # as many threads as its process was started with
        super().__init__(partial(learners_of, learner_class, **share), config, spaces)
        on_gpu = any(learner.device.type == "cuda" for learner in self.learners.values())
        # NCCL refuses two processes on one GPU; gloo lets them share it
        self._backend = "nccl" if on_gpu and config.num_gpus_per_learner_worker >= 1 else "gloo"

    def _average(self, gradient: torch.Tensor) -> None:
        torch.distributed.all_reduce(gradient)
        gradient /= self._world_size

    def open(self) -> tuple[str, int]:
        """Open the meeting point of all learners on a free port of this node's own address."""
        own = _own_address()
        listener = socket.create_server((own, 0), family=socket.AF_INET6 if ":" in own else socket.AF_INET)
        host, port = listener.getsockname()[:2]
        self._store = TCPStore(
            host,
            port,
            self._world_size,
            is_master=True,
            wait_for_workers=False,
            timeout=self._timeout,
            master_listen_fd=listener.detach(),
        )
        return host, port

    def join(self, host: str, port: int) -> None:
        """Meet the others there; returns when all have come."""
        if device := _network_device(_own_address()):
            for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
                os.environ.setdefault(name, device)
        store = self._store or TCPStore(host, port, self._world_size, timeout=self._timeout)
        torch.distributed.init_process_group(
            self._backend, store=store, rank=self._rank, world_size=self._world_size, timeout=self._timeout
        )

    def ping(self) -> None:
        """Answer a health probe."""

    def update_and_state(
        self, batches: Batches, timestep: int, with_state: bool
    ) -> tuple[dict[PolicyId, Update], State | None]:
        """As `update`; the first learner adds its state where the driver keeps one."""
        updates = self.update(batches, timestep)
        return updates, self.state() if with_state and self._rank == 0 else None


@dataclass(slots=True)
class Round:
    """A submitted update, which every learner has to make."""

    batches: Any  # in Ray's store
    timestep: int
    is_requested: bool = False
    answers: dict[int, tuple[dict[PolicyId, Update], State | None]] = field(default_factory=dict)  # by learner


class RayLearners:
    """`num_learner_workers` learners whose result is that of one learner on the whole batch.

    Every learner gets the whole batch through Ray's store and computes its part of every minibatch. When one is lost
    and the settings cover it, all are made again from the state after the last update, and what was under way is
    repeated.
    """

    def __init__(
        self,
        learner_class: type[Learner[Any]],
        config: AlgorithmConfig,
        spaces: PolicySpaces,
        deadline: Deadline | None = None,
    ) -> None:
        """Raises ResourceError when the cluster is too small, WorkerError when learners cannot be made."""
        start()
        check_resources(config)
        count = config.num_learner_workers
        self._limit_s = config.worker_restore_timeout_s
        self._config, self._spaces = config, spaces
        self._may_lose = config.recreate_failed_workers or config.ignore_worker_failures
        self._last: State | None = None
        self._rounds: deque[Round] = deque()  # under way, oldest first
        self._updates: list[dict[PolicyId, Update]] = []  # that `results` owes
        limits = {"request_timeout_s": self._limit_s, "max_requests_in_flight": MOST_SUBMITTED}
        settings = FaultTolerance.of(config, **limits)
        first = 1 + config.evaluation_num_workers + config.num_rollout_workers  # as in `trial_bundles`
        self._placement = reserve(config, [learner_bundle(config)] * count, first, deadline, for_learners=True)
        spec = ActorSpec(
            name="learner",
            target=LearnerProcess,
            arguments=lambda index, _: {
                "learner_class": learner_class,
                "config": self._config,
                "spaces": self._spaces,
                "rank": index - 1,
                "world_size": count,
            },
            options=self._placement.options,
            threads=config.torch_threads_per_learner or max(int(config.num_cpus_per_learner_worker), 1),
            work={"update_and_state": "worker_restore_timeout_s"},
        )
        try:
            self._group = ActorGroup(spec, count, settings, on_entered=self._unite, together=True, deadline=deadline)
        except BaseException:
            self._placement.remove()
            raise

    def _unite(self, group: ActorGroup, indices: list[int]) -> None:
        """Let the learners meet and start from one state; a failure on the way leaves the group down."""
        limit = self._limit_s
        for each in self._rounds:  # what others began is lost
            each.is_requested = False
            each.answers.clear()
        if not (opened := group.call_some("open", {FIRST: ()}, timeout_s=limit)):
            return
        group.call_some("join", dict.fromkeys(indices, opened[FIRST]), timeout_s=limit)
        state = self._last or group.call_some("state", {FIRST: ()}, timeout_s=limit).get(FIRST)
        if self._may_lose:
            self._last = state  # what a learner lost in the first update is made again from
        group.call_some("set_state", dict.fromkeys(indices, (state,)), timeout_s=limit)

    def update(self, batches: Batches, timestep: int) -> dict[PolicyId, Update]:
        """Improve each policy on its batch; statistics are averaged over the learners."""
        assert not self._rounds and not self._updates, "nothing is submitted beside an update that is waited for"
        self.submit(batches, timestep)
        (update,) = self.results()
        return update

    def submit(self, batches: Batches, timestep: int) -> bool:
        """As `update` without waiting for it, unless the learners have to be started again."""
        if len(self._rounds) + len(self._updates) >= MOST_SUBMITTED:
            return False
        self._rounds.append(Round(ray.put(batches), timestep))
        self._collect(0.0)
        return True

    def results(self, timeout_s: float | None = None) -> list[dict[PolicyId, Update]]:
        """What submitted updates report, oldest first: at least one, unless time runs out or none was submitted."""
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while self._rounds and not self._updates:
            self._collect(None if timeout_s is None else deadline - time.monotonic())
            if time.monotonic() >= deadline:
                break
        updates, self._updates = self._updates, []
        return updates

    def _collect(self, timeout_s: float | None) -> None:
        """Wait for an answer to what was submitted. An error ends all of it, as does a run that is cut short."""
        try:
            healthy = self._group.await_healthy()
            for each in self._rounds:
                if not each.is_requested:
                    for index in healthy:
                        self._group.request(index, "update_and_state", each.batches, each.timestep, self._may_lose)
                    each.is_requested = True
            for index, answer in self._group.ready(timeout_s):
                next(each for each in self._rounds if index not in each.answers).answers[index] = answer
        except BaseException:
            self._rounds.clear()
            raise
        while self._rounds and len(self._rounds[0].answers) == self._group.size:
            answers = self._rounds.popleft().answers
            self._last = answers[FIRST][1]
            updates = [answers[index][0] for index in sorted(answers)]
            self._updates.append({name: _joined([update[name] for update in updates]) for name in updates[0]})

    def _finish(self) -> None:
        """Wait until nothing is under way."""
        while self._rounds:
            self._collect(None)

    def set_policies(self, config: AlgorithmConfig, spaces: PolicySpaces) -> None:
        """Change the policies in all learners."""
        self._finish()
        self._config, self._spaces = config, spaces  # of replacements too
        self._group.call_all("set_policies", config, spaces, timeout_s=self._limit_s)
        self._last = self._ask_first("state") if self._may_lose else None

    def _ask_first(self, method: str) -> Any:
        if self._last is None and FIRST not in self._group.healthy:  # another one would begin with untrained weights
            raise WorkerError(
                "the learners have ended, and no state was kept: recreate_failed_workers=True keeps one of each update."
            )
        while True:
            self._group.await_healthy()
            if answer := self._group.call_some(method, {FIRST: ()}, timeout_s=self._limit_s):
                return answer[FIRST]

    def weights(self) -> Weights:
        """The parameters of every policy."""
        weights: Weights = self._ask_first("weights")
        return weights

    def set_weights(self, weights: Weights) -> None:
        """Overwrite the parameters in all learners."""
        self._finish()
        self._group.call_all("set_weights", weights, timeout_s=self._limit_s)
        self._last = self._ask_first("state") if self._may_lose else None

    def state(self) -> State:
        """The state of each learner by policy; the kept one, where there is one, needs no learner."""
        self._finish()
        state: State = self._last or self._ask_first("state")
        return state

    def set_state(self, state: State) -> None:
        """The reverse of `state`."""
        self._finish()
        self._updates.clear()
        self._last = state
        self._group.call_all("set_state", state, timeout_s=self._limit_s)

    def stop(self) -> None:
        """End the learners and give their room back."""
        self._group.stop()
        self._placement.remove()


def _joined(updates: list[Update]) -> Update:
    """What several learners report as that of one: each has computed its part of every minibatch."""
    reported: dict[str, list[float]] = {}
    for update in updates:
        for name, value in update.stats.items():
            reported.setdefault(name, []).append(value)
    rows = {name: np.concatenate([update.rows[name] for update in updates], axis=1) for name in updates[0].rows}
    return Update({name: sum(values) / len(values) for name, values in reported.items()}, rows)


def _own_address() -> str:
    return str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]


def _network_device(address: str) -> str | None:
    """The network device with this address: gloo and NCCL would guess one from the host's name."""
    if ":" in address:
        digits = socket.inet_pton(socket.AF_INET6, address).hex()
        devices = INET6_DEVICES.read_text().splitlines()  # address, index, prefix, scope, flags, name
        return next((line.split()[5] for line in devices if line.startswith(digits)), None)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe.fileno(), ASK_ADDRESS, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue  # a device without an address
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    return None
