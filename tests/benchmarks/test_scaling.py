"""The simulation of a driver with many workers, and the costs that it takes from measurements."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from benchmarks.speed.measurements import ACTORS
from benchmarks.speed.numbers import Numbers
from benchmarks.speed.scaling import measured_costs
from benchmarks.speed.simulation import BATCH, FRAGMENT, Costs, Simulation

FREE = Costs(fragment=0.0, request=0.0, look=0.0, update=1e-6, version=0.0, post=0.0)
FRAGMENT_S = 0.25


def rate(workers: int, costs: Costs, interval: int = 1, *, apart: bool = False) -> float:
    simulation = Simulation(workers, costs, FRAGMENT_S, interval, apart=apart)
    simulation.run()
    return simulation.rate


@pytest.mark.parametrize("workers", [32, 1000])
def test_without_costs_all_workers_count(workers: int):
    assert rate(workers, FREE) == pytest.approx(workers * FRAGMENT / FRAGMENT_S, rel=0.05)


def test_the_driver_ends_where_its_costs_fill_its_time():
    assert rate(10_000, replace(FREE, fragment=1e-3)) == pytest.approx(FRAGMENT / 1e-3, rel=0.02)
    assert rate(10_000, replace(FREE, update=5e-3)) == pytest.approx(BATCH / 5e-3, rel=0.02)


def test_weights_are_sent_a_few_times_for_each_fragment_whatever_the_number_of_workers():
    costly = replace(FREE, post=1e-3)
    each, tenth = rate(10_000, costly), rate(10_000, costly, interval=10)
    assert FRAGMENT / 4e-3 < each < FRAGMENT / 1e-3
    assert tenth > 0.9 * each


def test_a_learner_of_its_own_works_beside_the_driver():
    busy = replace(FREE, fragment=1e-4, update=1e-3)
    together = rate(2000, busy)
    assert together == pytest.approx(BATCH / 2e-3, rel=0.05)
    assert rate(2000, busy, apart=True) > 1.5 * together, "it is looked at after some fragments, not after all"


def test_costs_are_those_that_explain_the_measurements():
    wanted = Costs(fragment=3e-4, request=1e-4, look=2e-6, update=4e-3, version=2e-4, post=8e-5)

    def run(workers: int) -> dict[str, Any]:
        fragments, looks, updates = 400 + workers, 300, 40
        whole = wanted.fragment * fragments + wanted.look * looks * workers
        request = wanted.request * fragments
        seconds = {
            "fragment: request": request,
            "fragment: receive": whole - request,
            "fragment: count": 0.0,
            "update": wanted.update * updates,
            "version": updates * (wanted.version + wanted.post * workers),
        }
        calls = {"fragment: count": fragments, "fragment: receive": looks}
        calls |= {"update": updates, "version": updates, "post": updates * workers}
        return {"cost_s": seconds, "calls": calls}

    cases = {f"{workers} workers": {"runs": [run(workers)]} for workers in ACTORS}
    found = measured_costs(Numbers({"parts": {"scaling": {"cases": cases}}}))
    assert found is not None
    assert vars(found) == pytest.approx(vars(wanted))
    assert measured_costs(Numbers({"parts": {}})) is None
