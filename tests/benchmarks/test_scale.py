"""What `make bench-scale` makes of moments: how late something was, and whether that is what was wanted."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.scale.lags import (
    Change,
    lags,
    percentile,
    progress_lags,
    reaction_lags,
    remade_lags,
    replacement_lags,
    status_lags,
    summary,
)
from benchmarks.scale.report import scale_targets
from benchmarks.speed.numbers import Numbers
from benchmarks.speed.report import report


def change(time: float, kind: str, name: str, *, gone: bool = False, **facts: Any) -> Change:
    return Change(time=time, clock=time, kind=kind, name=name, uid=name, job="j", gone=gone, facts=facts)


def pod(time: float, name: str, component: str = "worker", *, phase: str = "Running", **more: Any) -> Change:
    return change(time, "Pod", name, component=component, phase=phase, **{"ready": phase == "Running"} | more)


def status(time: float, ready: int = 0, head: str | None = None, iteration: int = 0) -> Change:
    return change(time, "RLTrainingJob", "j", ready=ready, head=head, iteration=iteration)


def test_percentiles_are_values_that_occurred():
    assert summary(range(1, 101)) == {"count": 100, "p50": 50, "p99": 99, "max": 100}
    assert percentile([7.0], 0.99) == 7.0
    assert summary([]) == {"count": 0}


def test_a_change_is_late_until_it_is_shown():
    assert lags([(1, "a"), (5, "b")], [(2, "a"), (9, "b")]) == [1, 4]


def test_what_was_passed_over_is_late_until_its_successor_is_shown():
    assert lags([(1, "a"), (2, "b"), (3, "c")], [(6, "c")]) == [5, 4, 3]


def test_a_change_back_before_it_was_shown_is_shown_at_that_moment():
    assert lags([(1, 1), (5, 0), (7, 1)], [(2, 1)]) == [1, 2, 0]


def test_what_is_never_shown_has_no_end():
    assert lags([(1, "a"), (4, "b")], [(2, "a")]) == [1, None]


def test_a_value_that_was_shown_long_before_is_not_shown_now():
    assert lags([(5, 2)], [(1, 2), (3, 1), (8, 2)]) == [3]


def test_statuses_are_compared_with_pods():
    changes = [
        pod(1.0, "h", "head", phase="Pending"),
        status(1.5, head="h"),
        pod(2.0, "w", phase="Pending"),
        pod(3.0, "w"),
        status(5.0, ready=1, head="h"),
    ]
    assert sorted(filter(None, status_lags(changes))) == [0.5, 2.0]


def test_progress_is_as_old_as_the_first_iteration_that_was_not_shown():
    changes = [status(10.2, iteration=10), status(15.4, iteration=15), status(15.9, iteration=15)]
    assert progress_lags(changes, iteration_s=1.0) == pytest.approx([4.4])


def test_replacements_are_of_the_same_part_and_younger():
    changes = [pod(1, "w1"), pod(1, "h1", "head"), pod(4, "w1", phase="Failed"), pod(4.5, "h2", "head"), pod(6, "w2")]
    assert replacement_lags(changes, "worker") == [2]
    assert replacement_lags([*changes, pod(9, "h2", "head", phase="Failed")], "head") == [None]


def test_an_object_made_again_has_the_same_name():
    changes = [change(1, "Deployment", "d"), change(2, "Deployment", "d", gone=True), change(5, "Deployment", "d")]
    assert remade_lags(changes, "Deployment") == [3]
    assert remade_lags(changes[:2], "Deployment") == [None]


def test_a_reaction_is_the_first_that_the_operator_does_for_what_was_asked():
    def told(time: float, generation: int) -> Change:
        return change(time, "RLTrainingJob", "j", generation=generation)

    asked = {"j": (10.0, 2)}
    progress = [change(9, "ConfigMap", "before"), told(11, 1), change(12, "Pod", "p")]
    assert reaction_lags([*progress, told(13, 2), change(14, "Deployment", "d")], asked) == [3]
    assert reaction_lags([*progress, change(12.5, "Deployment", "d"), told(13, 2)], asked) == [2.5]
    assert reaction_lags(progress, asked) == [None]


def results(**changes: Any) -> dict[str, Any]:
    late = {"count": 9, "p50": 0.1, "p99": 0.5, "max": 1.0, "missing": 0}
    each = {key: 10.0 for key in ("complete_s", "running_s", "deleted_s", "operator_cpu_s", "load")}
    each |= {"jobs_per_s": 8.0, "peak_mb": 120.0, "rest_mb": 100.0, "status_lag_s": late, "requests": {"create": 9.0}}
    run = {
        "jobs": 300,
        "rounds": [each | changes.get("first", {}), each, each | changes.get("last", {})],
        "status_lag_s": late,
        "replaced_s": {key: late for key in ("worker pod", "head pod", "Deployment")} | changes.get("replaced", {}),
        "reactions": {
            "300": {"edit": late, "suspension": late, "new job": late} | changes.get("few", {}),
            "1000": {"edit": late, "suspension": late, "new job": late} | changes.get("many", {}),
        },
        "steady": {"progress_lag_s": late, "requests_per_s": {"patch": 40.0}, "operator_cpus": 0.3},
        "finish": {"requests": {"patch": 1.0}},
    }
    part = {"date": "2026-01-01", "commit": "abc", "load_before": "0.1", "quick": False, "machine": {"cores": "2"}}
    return {"parts": {"scale": part | {"cases": {"reef": {"args": {"workers": 1}, "runs": [run]}}}}}


def missed(found: dict[str, Any]) -> list[str]:
    return [target.what for target in scale_targets(Numbers(found)) if not target.met]


def test_all_targets_can_be_met():
    assert missed(results()) == []
    assert "| 1 | 10.0 | 8.0 |" in report(results())


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"first": {"jobs_per_s": 3.9}}, "all objects made"),
        ({"last": {"peak_mb": 301.0}}, "memory"),
        ({"last": {"rest_mb": 106.0}}, "last round"),
        ({"last": {"status_lag_s": {"count": 9, "p99": 11.0}}}, "pod changed to status"),
        ({"replaced": {"head pod": {"count": 9, "p99": 2.1}}}, "a head pod fails"),
        ({"few": {"edit": {"count": 9, "p99": 1.1}}}, "300 jobs train: edit"),
        ({"many": {"new job": {"count": 9, "p99": 2.1}}}, "1000 jobs train: new job"),
        ({"many": {"suspension": {"count": 9, "p99": 0.1, "missing": 1}}}, "1000 jobs train: suspension"),
        ({"replaced": {"Deployment": {"count": 9, "p99": 0.1, "missing": 1}}}, "Deployment is deleted"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_target_can_be_missed(changes: dict[str, Any], what: str):
    (found,) = missed(results(**changes))
    assert what in found


def test_what_was_not_measured_is_no_target():
    assert list(scale_targets(Numbers({"parts": {}}))) == []
