"""The table of targets says met and not met from medians, and never guesses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.speed.algorithms import algorithm_targets
from benchmarks.speed.numbers import Numbers
from benchmarks.speed.processes import environment
from benchmarks.speed.report import report
from benchmarks.speed.targets import targets

FOLDER = Path(__file__).parents[2] / "benchmarks"


def rates(**median: float) -> dict[str, object]:
    return {
        name.replace("_", " "): {"runs": [{"steps": value * factor, "seconds": 1.0} for factor in (0.5, 1.0, 3.0)]}
        for name, value in median.items()
    }


def results(cases: dict[str, object], part: str = "sampling") -> dict[str, object]:
    head = {"date": "2026-01-01", "commit": "abc", "load_before": "0.1", "quick": False, "machine": {"cores": "2"}}
    return {"parts": {part: {**head, "cases": cases}}}


def verdict(found: dict[str, object], what: str) -> bool | None:
    numbers = Numbers(found)
    every = (*targets(numbers), *algorithm_targets(numbers))
    return next(target.met for target in every if target.what.startswith(what))


def test_a_target_is_met_or_not_by_the_ratio_of_medians():
    assert verdict(results(rates(reef=61.0, bare_loop=100.0)), "sampling alone") is True
    assert verdict(results(rates(reef=59.0, bare_loop=100.0)), "sampling alone") is False


def test_what_was_not_measured_is_neither():
    assert verdict(results(rates(reef=61.0)), "sampling alone") is None


def test_a_target_of_at_most():
    def runs(seconds: float) -> dict[str, object]:
        return {"runs": [{"seconds": seconds, "steps": 1, "reached": True}]}

    faster = results({"reef": runs(4.0), "sb3": runs(10.0)}, "reward")
    assert verdict(faster, "CartPole-v1 to mean reward 450") is True
    slower = results({"reef": runs(6.0), "sb3": runs(10.0)}, "reward")
    assert verdict(slower, "CartPole-v1 to mean reward 450") is False


def test_fastest_peer_is_the_yardstick():
    cases = {
        "reef, minibatch 128": 30.0,
        "rllib, minibatch 128": 5.0,
        "sb3, minibatch 128": 14.0,
        "cleanrl, minibatch 128": 16.0,
    }
    found = results(rates(**cases), "ppo")
    assert verdict(found, "PPO, minibatch 128: Reef / fastest peer") is False
    assert verdict(found, "PPO, minibatch 128: Reef / RLlib") is True


def test_sac_has_a_target_with_one_thread_and_one_with_the_threads_that_everyone_has():
    cases = {"reef, one thread": 14.0, "tianshou, one thread": 10.0, "reef": 14.0, "tianshou": 5.0, "torchrl": 10.0}
    found = results(rates(**cases), "sac")
    assert verdict(found, "SAC, one thread: Reef / fastest peer") is True
    assert verdict(found, "SAC, threads as everyone has them: Reef / fastest peer") is False
    assert "| TorchRL | - | 10 (5 - 30) |" in report(found)


def test_impala_is_compared_with_sample_factory_too_which_has_appo_alone():
    medians = {"impala, {}, reef": 26, "appo, {}, reef": 24, "appo, {}, sample_factory": 10}
    cases = {
        f"{case.format('CartPole-v1')}, 2 workers": {"runs": [{"steps": steps, "seconds": 1.0}]}
        for case, steps in medians.items()
    }
    found = results(cases, "asynchronous")
    assert verdict(found, "IMPALA, CartPole-v1, 2 workers: Reef / Sample Factory") is True
    assert verdict(found, "APPO, CartPole-v1, 2 workers: Reef / Sample Factory") is False
    assert verdict(found, "APPO, CartPole-v1, 0 workers: Reef / Sample Factory") is None


def test_marwil_is_compared_over_whole_training():
    found = results(rates(**{"marwil, reef, training": 51.0, "marwil, rllib, training": 10.0}), "offline")
    assert verdict(found, "MARWIL, training") is True
    found = results(rates(**{"marwil, reef, training": 49.0, "marwil, rllib, training": 10.0}), "offline")
    assert verdict(found, "MARWIL, training") is False


def test_memory_and_several_agents_are_compared_with_the_fastest_of_each_peers_cases():
    lstm = {"reef, minibatch 128, one thread": 61.0, "rllib, minibatch 128, one thread": 10.0}
    found = results(rates(**lstm, **{"sb3, minibatch 128, one thread": 3.0}), "recurrent")
    assert verdict(found, "PPO with an LSTM, minibatch 128, one thread") is True
    assert verdict(found, "PPO with an LSTM, minibatch 128: Reef") is None
    agents = {"reef, minibatch 128, 0 workers": 81.0, "rllib, minibatch 128, 0 workers": 8.0}
    assert verdict(results(rates(**agents), "agents"), "two agents, minibatch 128") is True
    found = results(rates(**agents, **{"rllib, minibatch 128, 2 workers": 11.0}), "agents")
    assert verdict(found, "two agents, minibatch 128") is False


def test_threads_are_those_of_the_case_or_left_to_each_library(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert environment(1)["OMP_NUM_THREADS"] == "1"
    assert "OMP_NUM_THREADS" not in environment(None)


def test_cases_are_compared_over_the_rounds_that_both_took_part_in():
    """The machine's own speed changes from round to round."""
    reef = {"runs": [{"steps": rate, "seconds": 1.0} for rate in (30, 30, 30, 90, 90, 90, 90)]}
    sb3 = {"runs": [{"steps": 16, "seconds": 1.0}] * 3}
    found = results({"reef, minibatch 128": reef, "sb3, minibatch 128": sb3}, "ppo")
    assert verdict(found, "PPO, minibatch 128: Reef / fastest peer") is False
    assert "| Reef | 30 (30 - 30)" in report(found)


def test_report_shows_median_and_spread_and_names_what_is_missed():
    text = report(results(rates(reef=59.0, bare_loop=1000.0)))
    assert "1,000 (500 - 3,000)" in text
    assert "Not met: sampling alone" in text


def test_a_seed_that_never_reaches_the_reward_is_a_miss():
    def runs(seconds: float, reached: bool) -> dict[str, object]:
        return {"runs": [{"seconds": seconds, "steps": 1, "reached": reached}]}

    found = results({"reef": runs(1.0, False), "sb3": runs(10.0, True)}, "reward")
    assert verdict(found, "CartPole-v1 to mean reward 450") is False


def test_the_report_is_that_of_the_numbers_beside_it():
    results = json.loads((FOLDER / "results.json").read_text())
    assert (FOLDER / "RESULTS.md").read_text() == report(results), "run `python -m benchmarks.speed --report`"
