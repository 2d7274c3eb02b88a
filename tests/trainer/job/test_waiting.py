"""Waiting for pods; the pods themselves are in test_pods.py, here they are counted by hand."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reef.api import JobSpec, job_from_document
from reef.errors import EXIT_TERMINATED, ConfigError
from reef.job import waiting
from reef.job.progress import HeadState
from reef.job.settings import cluster_config_of
from reef.job.waiting import LatestSpec, PoolGate, lacking, wait_for_pools
from reef.run.build import run_experiment
from reef.run.checkpoint import read_metadata
from reef.run.process.deadline import Overdue
from reef.run.signals import StopSignals

POOLS = [{"name": "a", "replicas": 3, "minReplicas": 2}, {"name": "b", "replicas": 1}]
WORKERS: Any = SimpleNamespace(resize=lambda count: None)


@pytest.fixture
def spec(document: Any) -> JobSpec:
    return job_from_document(document(workers=POOLS)).spec


class Cluster:
    """Counts of pods, the next at each look, the last for ever."""

    def __init__(self, *counts: dict[str, int]) -> None:
        self.counts = list(counts)
        self.looks = 0

    def joined(self) -> Counter[str]:
        self.looks += 1
        return Counter(self.counts.pop(0) if len(self.counts) > 1 else self.counts[0])


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Any:
    def made(*counts: dict[str, int]) -> Cluster:
        found = Cluster(*counts)
        monkeypatch.setattr(waiting, "joined", found.joined)
        monkeypatch.setattr(waiting, "LOOK_AGAIN_S", 0.01)
        monkeypatch.setattr(waiting, "LOOK_RARELY_S", 0.0)
        return found

    return made


class Record(HeadState):
    """Keeps the states that it entered."""

    def __init__(self) -> None:
        super().__init__()
        self.entered: list[tuple[str, str]] = []

    def enter(self, state: Any, message: str = "") -> None:
        self.entered.append((state, message))


def test_what_is_missing_is_said_by_pool(spec: JobSpec, document: Any) -> None:
    assert list(lacking(spec, Counter(a=1), all_of_them=True)) == [
        "pool a: 1 of 3 pods have joined",
        "pool b: 0 of 1 pods have joined",
    ]
    assert list(lacking(spec, Counter(a=1, b=1), all_of_them=False)) == ["pool a: 1 of 3 pods have joined (at least 2)"]
    assert list(lacking(spec, Counter(a=2, b=1), all_of_them=False)) == []
    fewer = job_from_document(document(workers=POOLS, replicas=1)).spec
    assert list(lacking(fewer, Counter(a=1, b=1), all_of_them=True)) == []


def test_the_wait_ends_when_all_are_there_or_patience_with_the_rest_does(spec: JobSpec, cluster: Any) -> None:
    full = cluster({}, {"a": 3}, {"a": 3, "b": 1})
    wait_for_pools(lambda: spec, Record(), patience_s=600)
    assert full.looks == 3
    some = cluster({"a": 2}, {"a": 2, "b": 1})
    head_state = Record()
    wait_for_pools(lambda: spec, head_state, patience_s=0.05)
    assert some.looks > 3
    assert {state for state, _ in head_state.entered} == {"waiting"}


def test_patience_begins_anew_when_too_few_are_left(spec: JobSpec, cluster: Any) -> None:
    enough = {"a": 2, "b": 1}
    found = cluster(enough, {"a": 1, "b": 1}, enough, {"a": 3, "b": 1})
    wait_for_pools(lambda: spec, Record(), patience_s=0.0)
    assert found.looks == 4


def edited(spec: JobSpec, answers: list[Any]) -> LatestSpec:
    """A document of which each look finds the next version, or that it cannot be read."""

    def read() -> JobSpec:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return LatestSpec(spec, read)


@pytest.mark.parametrize(
    "change",
    [
        {"workers": POOLS, "replicas": 1},
        {"workers": [{"name": "a", "replicas": 1}, POOLS[1]]},
        {"workers": [{"name": "c", "replicas": 2}, POOLS[1]]},
        {"workers": [POOLS[1]]},
    ],
    ids=["scaled", "edited", "renamed", "removed"],
)
def test_a_head_that_waits_goes_by_the_document_as_it_is_now(
    spec: JobSpec, cluster: Any, document: Any, caplog: Any, change: dict[str, Any]
) -> None:
    after = job_from_document(document(**change)).spec
    few = {"a": 1, "b": 1, "c": 2}
    found = cluster(*[few] * 5, {"a": 3, "b": 1})
    head_state = Record()
    wrong = [ConfigError("half-written"), ConfigError("half-written")]
    wait_for_pools(edited(spec, [spec, *wrong, after]), head_state, patience_s=600)
    assert found.looks == 4
    assert head_state.entered == [("waiting", "waiting for workers, pool a: 1 of 3 pods have joined")] * 3
    assert caplog.text.count("half-written") == 1, "it is said once"


def test_fewer_pods_suffice_once_the_document_says_so(spec: JobSpec, cluster: Any, document: Any) -> None:
    lower = job_from_document(document(workers=[POOLS[0] | {"minReplicas": 1}, POOLS[1]])).spec
    found = cluster(*[{"a": 1, "b": 1}] * 5, {"a": 3, "b": 1})
    wait_for_pools(edited(spec, [spec, lower, lower]), Record(), patience_s=0.0)
    assert found.looks == 3


@pytest.mark.parametrize("patience_s", [0.0, 600.0])
def test_a_pause_in_training_ends_when_a_signal_comes(spec: JobSpec, cluster: Any, patience_s: float) -> None:
    cluster({"a": 1, "b": 1}, {"a": 2, "b": 1})
    with StopSignals(patience_s) as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Overdue):
            PoolGate(lambda: spec, Record(), signals.deadline)(WORKERS)
        signals.deadline.end_if_over()  # the checkpoint is written undisturbed


def test_a_pause_that_a_signal_ends_leaves_a_checkpoint_of_the_newest_iteration(
    spec: JobSpec, cluster: Any, document: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Signalled(Record):
        def enter(self, state: Any, message: str = "") -> None:
            super().enter(state, message)
            if state == "waiting":
                os.kill(os.getpid(), signal.SIGTERM)

    head_state, signals = Signalled(), StopSignals(patience_s=600)
    monkeypatch.setattr("reef.job.waiting.LOOK_RARELY_S", 0.0)
    cluster({"a": 3, "b": 1}, *[{"a": 1, "b": 1}] * 3, {"a": 3, "b": 1})
    summary = run_experiment(
        cluster_config_of(job_from_document(document(config={"num_rollout_workers": 0}))),
        stop={"training_iteration": 3},
        storage_path=tmp_path,
        signals=signals,
        run_state=head_state,
        gate=PoolGate(lambda: spec, head_state, signals.deadline),
        reporters=[],
    )
    assert (summary.exit_code, summary.reason) == (EXIT_TERMINATED, "SIGTERM")
    assert summary.checkpoint is not None and read_metadata(summary.checkpoint)["iteration"] == 1
    assert [state for state, _ in head_state.entered] == ["training", "waiting"]


def test_training_does_not_begin_without_the_pods_that_it_needs(
    spec: JobSpec, cluster: Any, document: Any, tmp_path: Path
) -> None:
    cluster({"a": 1, "b": 1}, {"a": 3, "b": 1})  # one was lost since the head waited for them
    head_state = Record()
    run_experiment(
        cluster_config_of(job_from_document(document(config={"num_rollout_workers": 0}))),
        stop={"training_iteration": 1},
        storage_path=tmp_path,
        run_state=head_state,
        gate=PoolGate(lambda: spec, head_state),
        reporters=[],
    )
    assert [state for state, _ in head_state.entered] == ["waiting", "training"]


def test_training_pauses_while_a_pool_is_too_small(spec: JobSpec, cluster: Any) -> None:
    head_state = Record()
    gate = PoolGate(lambda: spec, head_state)
    cluster({"a": 1, "b": 1}, {"a": 1, "b": 1}, {"a": 2, "b": 1})
    gate(WORKERS)
    assert head_state.entered == [("waiting", "training pauses, pool a: 1 of 3 pods have joined (at least 2)")] * 2 + [
        ("training", "")
    ]


def test_training_pauses_while_what_it_needs_has_no_room(cluster: Any, document: Any) -> None:
    scaled_away = job_from_document(document(workers=POOLS[:1], replicas=0)).spec
    back = job_from_document(document(workers=POOLS[:1], replicas=2)).spec
    specs, head_state, lacking_room = [scaled_away, back, back], Record(), [["no pod has joined"], []]
    cluster({"head": 1}, {"head": 1}, {"head": 1, "a": 2})
    PoolGate(lambda: specs.pop(0), head_state, lacking_room=lambda: lacking_room.pop(0))(WORKERS)
    assert head_state.entered == [
        ("waiting", "training pauses, no pod has joined"),
        ("waiting", "training pauses, pool a: 0 of 2 pods have joined"),
        ("training", ""),
    ]
    partly, lacking_room = Record(), [["no room"], []]
    cluster({"a": 2}, {"a": 3})
    three = job_from_document(document(workers=POOLS[:1])).spec
    PoolGate(lambda: three, partly, lacking_room=lambda: lacking_room.pop(0))(WORKERS)
    assert partly.entered[0] == ("waiting", "training pauses, pool a: 2 of 3 pods have joined; no room")
    alone = Record()
    cluster({"head": 1})
    PoolGate(lambda: scaled_away, alone)(WORKERS)
    assert alone.entered == [("training", "")]


def test_rollout_workers_follow_the_pools_unless_the_settings_name_a_number(cluster: Any, document: Any) -> None:
    pools = [*POOLS, {"name": "c", "replicas": 2, "rolloutWorkers": 3}]
    steps = [  # pods that the document wants of pool a, pods that are there, rollout workers of all pools
        (3, {"a": 2, "b": 1, "c": 1}, 3 + 1 + 6),  # some are late
        (3, {"a": 4, "b": 1, "c": 2}, 4 + 1 + 6),  # one is there before the document says so
        (2, {"a": 4, "b": 1, "c": 2}, 4 + 1 + 6),  # two are to go
        (2, {"a": 2, "b": 1, "c": 2}, 2 + 1 + 6),  # and have gone
    ]
    for config, expected in (({}, [count for *_, count in steps]), ({"num_rollout_workers": 5}, [])):
        specs = [job_from_document(document(workers=pools, replicas=one, config=config)).spec for one, *_ in steps]
        gate, sizes = PoolGate(lambda specs=specs: specs[0], Record()), []  # type: ignore[misc]
        workers: Any = SimpleNamespace(resize=sizes.append)
        for _, there, _ in steps:
            cluster(there)
            gate(workers)
            specs.pop(0)
        assert sizes == expected


def test_a_pool_that_is_scaled_down_holds_nothing_up(spec: JobSpec, cluster: Any, document: Any) -> None:
    smaller = job_from_document(document(workers=POOLS, replicas=1)).spec
    answers = [spec, ConfigError("half-written"), smaller]
    gate = PoolGate(edited(spec, answers), Record())
    cluster({"a": 1, "b": 1})
    gate(WORKERS)
    assert answers == []
