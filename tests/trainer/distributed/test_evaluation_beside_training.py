"""Evaluation while training goes on, by reef.run.evaluation in processes of its own."""

import logging
import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group

from reef.algorithms.ppo import PPOConfig
from reef.callbacks import DefaultCallbacks
from reef.errors import CallbackError, WorkerError
from reef.run.algorithm import Algorithm
from reef.run.process.deadline import BackgroundDeadline, Deadline, Overdue

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster"), pytest.mark.timeout(120)]

PARALLEL = {"evaluation_parallel_to_training": True}
ASYNC = {"enable_async_evaluation": True}
AUTO = PARALLEL | {"evaluation_duration": "auto"}


class Paced(gym.Env[Any, Any]):
    """Episodes of `length` steps that take `step_s` seconds each.

    Worker 1 kills its own process in the episode `dies_in`, unless it was started again. A file `hangs` stops a step,
    in other processes than the driver.
    """

    observation_space, action_space = gym.spaces.Box(0.0, 1.0, (2,)), gym.spaces.Discrete(2)

    def __init__(self, context: Any) -> None:
        self.context, self.steps, self.episodes = context, 0, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.steps, self.episodes = 0, self.episodes + 1
        first = self.context.worker_index == 1 and not self.context.recreated_worker
        if first and os.getpid() != self.context["driver"] and self.episodes == self.context.get("dies_in"):
            os.kill(os.getpid(), signal.SIGKILL)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        time.sleep(self.context.get("step_s", 0.0))
        while os.getpid() != self.context["driver"] and Path(self.context.get("hangs", "/no such file")).exists():
            time.sleep(0.1)
        self.steps += 1
        return np.zeros(2, np.float32), 1.0, self.steps >= self.context.get("length", 4), False, {}


def config(*, train_s: float = 0.0, evaluated: dict[str, Any] | None = None, **evaluation: Any) -> PPOConfig:
    """An iteration of 32 steps takes `train_s` seconds; `evaluated`: the environments of evaluation."""
    usual = {"evaluation_num_workers": 1, "evaluation_duration": 3, "evaluation_interval": 1}
    return (
        PPOConfig()
        .environment(Paced, env_config={"step_s": train_s / 32, "driver": os.getpid()}, disable_env_checking=True)
        .resources(num_cpus_per_worker=0.5)
        .training(train_batch_size=32, sgd_minibatch_size=32, num_sgd_iter=1, model={"fcnet_hiddens": [8]})
        .evaluation(**usual | evaluation, evaluation_config={"env_config": {"step_s": 0.0} | (evaluated or {})})
        .debugging(seed=0)
    )


def waited_s(result: dict[str, Any]) -> float:
    return float(result["timers"]["evaluation_time_ms"]) / 1000.0


def until_evaluated(algorithm: Algorithm, within_s: float = 60.0) -> dict[str, Any]:
    deadline = time.monotonic() + within_s
    while (evaluation := algorithm.train().get("evaluation")) is None:
        assert time.monotonic() < deadline
    return dict(evaluation)


def test_training_and_evaluation_take_the_same_time_and_results_are_one_iteration_behind() -> None:
    # three episodes of 0.4 s beside 2 s of training
    with config(train_s=2.0, evaluated={"step_s": 0.1}, **PARALLEL).build() as algorithm:
        first, second = algorithm.train(), algorithm.train()
    assert [result["evaluation"]["training_iteration"] for result in (first, second)] == [0, 1]
    assert second["evaluation"]["episodes_this_iter"] == 3
    assert second["time_this_iter_s"] >= 2.0 and waited_s(second) < 1.0


def test_the_weights_from_before_the_iteration_are_evaluated() -> None:
    with config(**PARALLEL).build() as algorithm:
        algorithm.train()
        before = algorithm.learners.weights()["default_policy"].copy()
        algorithm.train()
        evaluated = algorithm.evaluation.workers.local_worker().get_weights()["default_policy"]
        assert np.array_equal(evaluated, before)
        assert not np.array_equal(evaluated, algorithm.learners.weights()["default_policy"])


def test_every_second_iteration_has_an_evaluation_beside_it() -> None:
    with config(evaluation_interval=2, **PARALLEL).build() as algorithm:
        results = [algorithm.train() for _ in range(4)]
    assert ["evaluation" in result for result in results] == [False, True, False, True]
    assert [results[number]["evaluation"]["training_iteration"] for number in (1, 3)] == [1, 3]


def test_training_waits_for_an_evaluation_of_a_fixed_length_beside_it() -> None:
    with config(evaluated={"step_s": 0.1}, **PARALLEL).build() as algorithm:
        algorithm.train()
        result = algorithm.train()
    assert result["evaluation"]["episodes_this_iter"] == 3 and waited_s(result) > 0.6


@pytest.mark.parametrize("unit", ["episodes", "timesteps"])
def test_an_automatic_duration_is_that_of_the_training(unit: str) -> None:
    settings = config(train_s=2.0, evaluated={"step_s": 0.02}, evaluation_duration_unit=unit, **AUTO)
    settings.evaluation_config |= {"rollout_fragment_length": 5}
    with settings.build() as algorithm:
        algorithm.train()
        result = algorithm.train()
        steps = result["evaluation"]["timesteps_this_iter"]
        assert 5 < steps <= result["time_this_iter_s"] / 0.02 + 5, "more than a round, and at most a round too many"
        assert waited_s(result) < 1.0, "what is left of a round"
        alone = algorithm.evaluate()["evaluation"]
    assert alone["timesteps_this_iter"] == (4 if unit == "episodes" else 5), "one round where nothing is beside it"


def test_training_does_not_wait_for_an_asynchronous_evaluation() -> None:
    with config(train_s=0.1, evaluated={"step_s": 0.4}, **ASYNC).build() as algorithm:
        algorithm.train()
        assert until_evaluated(algorithm)["training_iteration"] == 0
        begun_after = algorithm.iteration
        results = [algorithm.train() for _ in range(3)]
        assert not any("evaluation" in result for result in results), "it takes 4.8 s"
        assert max(waited_s(result) for result in results[1:]) < 1.0
        assert until_evaluated(algorithm) | {"hist_stats": None} == {
            **algorithm.evaluation.latest,
            "training_iteration": begun_after,
            "hist_stats": None,
        }


# How it is when training waits is in test_evaluation_workers.py.
MODES = {"parallel": PARALLEL, "auto": AUTO, "async": ASYNC}
COVERED = [
    ("parallel", "recreate_failed_workers"),
    ("auto", "ignore_worker_failures"),
    ("async", "recreate_failed_workers"),
    ("async", "ignore_worker_failures"),
]


@pytest.mark.parametrize(("mode", "covered"), COVERED)
def test_a_worker_that_kills_itself_costs_no_episode(mode: str, covered: str) -> None:
    evaluated = {"dies_in": 3, "step_s": 0.01}
    settings = config(train_s=0.3, evaluated=evaluated, evaluation_num_workers=2, **MODES[mode])
    with settings.fault_tolerance(**{covered: True}).build() as algorithm:
        evaluations = [until_evaluated(algorithm) for _ in range(3)]
        assert all(each["episodes_this_iter"] for each in evaluations)
        if mode != "auto":
            assert [each["episodes_this_iter"] for each in evaluations] == [3, 3, 3]
        assert algorithm.evaluation.workers.num_restarts == (covered == "recreate_failed_workers")


@pytest.mark.parametrize("mode", ["parallel", "async"])
def test_a_worker_that_kills_itself_ends_the_run_by_default(mode: str) -> None:
    with (
        config(evaluated={"dies_in": 3, "step_s": 0.01}, **MODES[mode]).build() as algorithm,
        pytest.raises(WorkerError, match=r"evaluation worker 1 failed in sample_episodes\(\): its process \d+ died"),
    ):
        for _ in range(3):
            until_evaluated(algorithm)


@pytest.mark.parametrize("mode", MODES)
def test_an_evaluation_that_hangs_is_a_warning_and_the_next_one_has_new_workers(
    mode: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hangs = tmp_path / "hangs"
    settings = config(train_s=0.1, evaluated={"hangs": str(hangs)}, evaluation_sample_timeout_s=2.0, **MODES[mode])
    with settings.build() as algorithm:
        first = until_evaluated(algorithm)
        hangs.touch()
        # an asynchronous one may have ended before
        again = [until_evaluated(algorithm) for _ in range(1 + (mode == "async"))][-1]
        assert again["training_iteration"] in (first["training_iteration"], first["training_iteration"] + 1)
        assert "evaluation took longer than evaluation_sample_timeout_s=2" in caplog.text
        for remedy in ("(1) raise evaluation_sample_timeout_s", "(2) lower", "(3) raise evaluation_num_workers"):
            assert remedy in caplog.text
        hangs.unlink()
        assert until_evaluated(algorithm)["training_iteration"] > again["training_iteration"]


def test_what_is_under_way_is_no_part_of_a_checkpoint_and_stops_nothing(tmp_path: Path) -> None:
    hangs = tmp_path / "hangs"
    hangs.touch()
    settings = config(evaluated={"hangs": str(hangs)}, **ASYNC)
    with settings.build() as algorithm:
        algorithm.train()
        assert algorithm.evaluation.is_under_way
        path = algorithm.save(tmp_path / "checkpoint")
        algorithm.train()
        began = time.monotonic()
        algorithm.restore(path)
        assert not algorithm.evaluation.is_under_way and algorithm.iteration == 1
        assert time.monotonic() - began < 20.0
        algorithm.train()
        assert algorithm.evaluation.is_under_way
        began = time.monotonic()
    assert time.monotonic() - began < 20.0
    assert not any(thread.name == "evaluation" for thread in threading.enumerate())


@pytest.fixture
def no_room(ray_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlacementGroup]:
    """What holds all CPUs, while training and evaluation wait for workers half a second each."""
    monkeypatch.setattr("reef.distributed.ray_workers.BESIDE_TRAINING_S", 0.5)
    monkeypatch.setattr("reef.run.evaluation.PATIENCE_S", 0.5)
    taken = placement_group([{"CPU": 1}] * int(ray.cluster_resources()["CPU"]), strategy="PACK")
    try:
        assert taken.wait(30)
        yield taken
    finally:
        remove_placement_group(taken)


@pytest.mark.parametrize("mode", ["parallel", "async"])
def test_training_does_not_wait_for_evaluation_workers_that_have_no_room(
    mode: str, no_room: PlacementGroup, caplog: pytest.LogCaptureFixture
) -> None:
    with config(train_s=0.2, **MODES[mode]).build() as algorithm:
        began = time.monotonic()
        results = [algorithm.train() for _ in range(5)]
        assert not any("evaluation" in result for result in results) and time.monotonic() - began < 20.0
        assert "waits for room: none of evaluation_num_workers=1 is up" in algorithm.evaluation.problem
        assert caplog.text.count("evaluation waits for room") == 1
        remove_placement_group(no_room)
        assert until_evaluated(algorithm)["training_iteration"] == 0
        assert algorithm.evaluation.problem == ""
        assert until_evaluated(algorithm)["training_iteration"] >= 5


def test_an_evaluation_that_is_asked_for_takes_the_place_of_one_that_waits_for_room(no_room: PlacementGroup) -> None:
    with config(train_s=1.0, **ASYNC).build() as algorithm:
        algorithm.train()
        algorithm.train()
        assert algorithm.evaluation.is_under_way and algorithm.evaluation.problem
        remove_placement_group(no_room)
        assert algorithm.evaluate()["evaluation"]["training_iteration"] == 2


def test_an_evaluation_that_is_asked_for_comes_after_the_one_under_way() -> None:
    class Counted(DefaultCallbacks):
        def on_evaluate_start(self, *, algorithm: Any, **kwargs: Any) -> None:
            events.append("start")

        def on_evaluate_end(self, *, evaluation_metrics: Any, **kwargs: Any) -> None:
            events.append(evaluation_metrics["training_iteration"])

    events: list[Any] = []
    with config(evaluated={"step_s": 0.05}, **ASYNC).callbacks(Counted).build() as algorithm:
        algorithm.train()
        assert algorithm.evaluate()["evaluation"]["training_iteration"] == 1
    assert events == ["start", 0, "start", 1]


def test_a_signal_does_not_wait_for_an_evaluation(tmp_path: Path) -> None:
    hangs = tmp_path / "hangs"
    hangs.touch()
    with config(evaluated={"hangs": str(hangs)}, **PARALLEL).build() as algorithm:
        threading.Timer(1.0, algorithm.deadline.set, [0.5]).start()
        began = time.monotonic()
        with pytest.raises(Overdue):
            algorithm.train()
        algorithm.save(tmp_path / "checkpoint")
    assert time.monotonic() - began < 30.0


def test_a_custom_function_runs_beside_training_too(caplog: pytest.LogCaptureFixture) -> None:
    def evaluate(algorithm: Algorithm, workers: Any) -> Any:
        return {"thread": threading.current_thread().name} if algorithm.iteration < 1 else None

    with config(custom_evaluation_function=evaluate, **PARALLEL).build() as algorithm:
        assert algorithm.train()["evaluation"] == {"training_iteration": 0, "thread": "evaluation"}
        with pytest.raises(ValueError, match="custom_evaluation_function returned None"):
            algorithm.train()
    with config(custom_evaluation_function=lambda *_: 1 / 0, **PARALLEL).build() as algorithm:
        logging.getLogger("reef").setLevel(logging.INFO)
        with pytest.raises(CallbackError, match="custom_evaluation_function raised ZeroDivisionError"):
            algorithm.train()


def test_a_thread_does_not_take_the_end_of_a_run_from_the_run() -> None:
    run = Deadline()
    beside = BackgroundDeadline(run)
    assert beside.time_left() == math.inf
    seen: list[type[BaseException] | None] = []

    def look() -> None:
        try:
            beside.end_if_over()
            seen.append(None)
        except Overdue:
            seen.append(Overdue)

    def look_in_a_thread() -> None:
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()

    look_in_a_thread()
    run.set(0.0)
    look_in_a_thread()
    look_in_a_thread()
    look()  # in the main thread, as the run itself: once
    look()
    beside.cancel()
    look_in_a_thread()
    beside.clear()
    look_in_a_thread()
    assert seen == [None, Overdue, Overdue, Overdue, None, Overdue, None]
