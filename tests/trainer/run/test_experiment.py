from __future__ import annotations

import json
import logging
import re
import signal
import socket
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from reef.algorithms.ppo import PPO, PPOConfig
from reef.batch import Episode, Sample
from reef.config import AlgorithmConfig
from reef.errors import EXIT_FAILED, CheckpointError, ConfigError, EnvironmentError, ResourceError, StorageError
from reef.run.algorithm import Algorithm
from reef.run.build import build_algorithm, run_experiment
from reef.run.checkpoint import CheckpointStore, read_checkpoint
from reef.run.events import Events
from reef.run.experiment import CheckpointSettings, Experiment
from reef.run.metrics import IterationMetrics
from reef.run.reporters.files import read_results
from reef.run.reporters.reporter import Reporter, Summary
from reef.run.signals import StopSignals
from reef.run.stopping import StopConditions


class FakeAlgorithm:
    """Its reward is its iteration number; `hook` runs in each train()."""

    def __init__(self, config: FakeConfig) -> None:
        self.config = config
        self.metrics = IterationMetrics(config)
        self.events = Events()
        self.iteration = 0
        self.counters = {"num_env_steps_sampled": 0}
        self.stopped = False
        self.workers, self.evaluation = SimpleNamespace(problem=""), SimpleNamespace(problem="no evaluation")
        type(self).latest = self

    latest: ClassVar[FakeAlgorithm]
    hook: ClassVar[Callable[[int], None]] = staticmethod(lambda iteration: None)

    def train(self) -> dict[str, Any]:
        self.iteration += 1
        type(self).hook(self.iteration)
        self.counters["num_env_steps_sampled"] += 10
        self.metrics.samples.add(Sample({}, [Episode(float(self.iteration), 10)], 10, 10))
        return self.metrics.result(self.iteration, elapsed_s=0.1, counters=self.counters, learner_stats={})

    def metadata(self) -> dict[str, Any]:
        return {"algorithm": self.config.algorithm, "config": self.config.to_dict(), "iteration": self.iteration}

    def state(self) -> dict[str, Any]:
        return {"iteration": self.iteration, "counters": dict(self.counters), "metrics": self.metrics.state()}

    def take_over(self, state: dict[str, Any]) -> None:
        self.iteration, self.counters = state["iteration"], dict(state["counters"])
        self.metrics.set_state(state["metrics"], iteration=self.iteration)

    def progress(self) -> list[tuple[int, float]]:
        return []

    def __enter__(self) -> FakeAlgorithm:
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped = True


class FakeConfig(AlgorithmConfig):
    algorithm: ClassVar[str] = "FAKE"

    def build(self, env: Any = None) -> FakeAlgorithm:  # type: ignore[override]
        return FakeAlgorithm(self)


class OtherConfig(FakeConfig):
    algorithm: ClassVar[str] = "OTHER"


def run(storage: Path, config: AlgorithmConfig | None = None, **options: Any) -> Summary:
    options = {"stop": {"training_iteration": 3}, "name": "test", "reporters": [], **options}
    config = config or FakeConfig().environment("CartPole-v1", env_config={})
    return run_experiment(config, storage_path=storage, **options)


@pytest.fixture(autouse=True)
def fake_algorithms(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(config: AlgorithmConfig, *rest: Any) -> Any:
        return config.build() if isinstance(config, FakeConfig) else build_algorithm(config, *rest)

    monkeypatch.setattr("reef.run.build.build_algorithm", build)


@pytest.fixture(autouse=True)
def no_picture(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "picture" not in request.node.name:  # matplotlib takes most of a second
        monkeypatch.setattr("reef.run.experiment.draw_learning_curve", lambda folder, title: None)


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], None]], None]:
    return lambda function: monkeypatch.setattr(FakeAlgorithm, "hook", staticmethod(function))


def at(iteration: int, action: Callable[[], object]) -> Callable[[int], None]:
    return lambda current: action() if current == iteration else None  # type: ignore[return-value]


def fail() -> None:
    raise EnvironmentError("step raised")


def checkpoints(folder: Path) -> list[int]:
    return [int(path.name[-6:]) for path in CheckpointStore(folder).paths()]


def test_a_worker_of_the_evaluation_that_has_a_problem_is_reported_too(tmp_path: Path) -> None:
    class Kept(Reporter):
        def report(self, result: dict[str, Any]) -> None:
            told.append(self.run.worker_problem())

    told: list[str] = []
    run(tmp_path, stop={"training_iteration": 1}, reporters=[Kept()])
    assert told == ["no evaluation"]


def test_a_gate_holds_before_each_iteration_and_what_was_saved_is_saved_by_then(tmp_path: Path) -> None:
    seen: list[tuple[object, int, list[int]]] = []

    def gate(workers: object) -> None:
        saved = [number for folder in (tmp_path / "test").glob("*") for number in checkpoints(folder)]
        seen.append((workers, FakeAlgorithm.latest.iteration, saved[-1:]))

    run(tmp_path, gate=gate, checkpoint=CheckpointSettings(frequency=1))
    workers = FakeAlgorithm.latest.workers
    assert seen == [(workers, 0, []), (workers, 1, [1]), (workers, 2, [2])], "not after the last"


def test_a_run_leaves_results_checkpoint_and_picture(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.folder.parent == tmp_path / "test"
    assert result.folder.name.startswith("FAKE_CartPole-v1_")
    assert {path.name for path in result.folder.iterdir() if "tfevents" not in path.name} == {
        ".owner",
        "checkpoint_000003",
        "learning_curve.png",
        "params.json",
        "progress.csv",
        "result.json",
    }
    lines = list(read_results(result.folder))
    assert [line["done"] for line in lines] == [False, False, True]
    assert lines[-1] == result.result
    assert lines[-1]["trial_id"] == result.folder.name.rpartition("_")[2]
    assert lines[-1]["experiment_tag"] == "test"
    assert result.checkpoint == result.folder / "checkpoint_000003"
    assert (result.exit_code, result.reason) == (0, "training_iteration 3 >= 3")
    assert FakeAlgorithm.latest.stopped
    assert json.loads((result.folder / "params.json").read_text())["env"] == "CartPole-v1"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [5]),
        ({"at_end": False}, []),
        ({"frequency": 2}, [2, 4, 5]),
        ({"frequency": 2, "at_end": False}, [2, 4]),
        ({"frequency": 5, "at_end": False}, [5]),
        ({"frequency": 1, "keep": 2}, [4, 5]),
        ({"frequency": 1, "keep": 1, "score_attribute": "min-episode_reward_mean"}, [1, 5]),
    ],
)
def test_which_checkpoints_there_are(tmp_path: Path, settings: dict[str, Any], expected: list[int]) -> None:
    result = run(tmp_path, stop={"training_iteration": 5}, checkpoint=CheckpointSettings(**settings))
    assert checkpoints(result.folder) == expected


def test_a_resumed_run_keeps_the_best_checkpoint_of_before(tmp_path: Path) -> None:
    settings = CheckpointSettings(frequency=1, keep=1, score_attribute="min-episode_reward_mean")
    assert checkpoints(run(tmp_path, checkpoint=settings).folder) == [1, 3]
    resumed = run(tmp_path, stop={"training_iteration": 5}, checkpoint=settings, resume=True)
    assert checkpoints(resumed.folder) == [1, 5]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_run_with_a_checkpoint(
    tmp_path: Path, hook: Callable[..., None], number: signal.Signals, code: int
) -> None:
    before = signal.getsignal(number)
    hook(at(2, lambda: signal.raise_signal(number)))
    result = run(tmp_path, checkpoint=CheckpointSettings(at_end=False))
    assert (result.exit_code, result.reason) == (code, number.name)
    assert result.checkpoint == result.folder / "checkpoint_000002"
    assert signal.getsignal(number) is before


def test_resuming_goes_on_in_the_same_folder_as_if_nothing_had_happened(
    tmp_path: Path, hook: Callable[..., None]
) -> None:
    hook(at(4, fail))
    with pytest.raises(EnvironmentError):
        run(tmp_path, stop={"training_iteration": 6}, checkpoint=CheckpointSettings(frequency=2))
    (folder,) = (tmp_path / "test").iterdir()
    assert (checkpoints(folder), len(list(read_results(folder)))) == ([2], 3)
    hook(lambda iteration: None)
    result = run(tmp_path, stop={"training_iteration": 6}, resume=True)
    assert result.folder == folder
    lines = list(read_results(folder))
    assert [line["training_iteration"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert [line["timesteps_total"] for line in lines] == [10, 20, 30, 40, 50, 60]
    assert lines[2]["episode_reward_mean"] == 2.0
    assert lines[2]["iterations_since_restore"] == 1


def test_debug_says_what_phases_took_and_how_large_checkpoints_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, logger="reef"):
        run(tmp_path)
    assert "iteration 1 took, by phase: " in caplog.text
    assert re.search(r"checkpoint \S+/checkpoint_\d+: [1-9]\d* bytes, written in ", caplog.text)


def test_resuming_skips_a_damaged_checkpoint(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = run(tmp_path, checkpoint=CheckpointSettings(frequency=1))
    (first.folder / "checkpoint_000003" / "state.json").write_text("{}")
    with caplog.at_level(logging.WARNING):
        result = run(tmp_path, stop={"training_iteration": 4}, resume=True)
    assert "checkpoint_000003/state.json is cut off" in caplog.text
    assert [line["training_iteration"] for line in read_results(result.folder)] == [1, 2, 3, 4]


def test_a_stop_key_that_nothing_answers_to_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(tmp_path, stop={"training_iteration": 3, "custom_metrics/heigth_mean": 1})
    (told,) = [record.getMessage() for record in caplog.records if "heigth_mean" in record.getMessage()]
    assert "is no number in the result of iteration 1" in told


def test_a_stop_key_of_a_group_ends_the_run_with_what_was_learned(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'info/learner' is a group of results"):
        run(tmp_path, stop={"training_iteration": 3, "info/learner": 1})
    assert [path.name for path in tmp_path.rglob("checkpoint_*")] == ["checkpoint_000001"]


def test_resuming_a_finished_run_trains_no_further(tmp_path: Path) -> None:
    first = run(tmp_path)
    second = run(tmp_path, resume=True)
    assert second.exit_code == 0
    assert (second.folder, second.checkpoint, second.result) == (first.folder, first.checkpoint, first.result)
    assert FakeAlgorithm.latest.iteration == 3
    assert len(list(read_results(first.folder))) == 3


def test_resume_takes_the_newest_run_of_this_name_or_starts_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert run(tmp_path, resume=True).reason.startswith("training_iteration")
    assert "nothing to resume" in caplog.text
    (old,) = (tmp_path / "test").iterdir()
    new = old.rename(old.with_name("FAKE_CartPole-v1_29990101-000000-abcdef"))
    run(tmp_path)
    assert run(tmp_path, resume=True, stop={"training_iteration": 4}).folder == new


def test_a_resumed_run_that_cannot_begin_does_not_end_the_one_that_is_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Misfit(FakeConfig):
        def build(self, env: Any = None) -> FakeAlgorithm:
            raise CheckpointError("the checkpoint does not fit")

    def meanwhile(iteration: int) -> None:
        if iteration == 2:
            with pytest.raises(CheckpointError, match="does not fit"):
                run(tmp_path, Misfit().environment("CartPole-v1"), resume=True)

    monkeypatch.setattr(FakeAlgorithm, "hook", staticmethod(meanwhile))
    result = run(tmp_path, checkpoint=CheckpointSettings(frequency=1))
    assert (result.exit_code, result.checkpoint.name) == (0, "checkpoint_000003")


def test_a_resumed_run_takes_over_what_the_other_one_wrote_while_it_was_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(tmp_path)

    class Slow(FakeConfig):
        def build(self, env: Any = None) -> FakeAlgorithm:
            state, metadata = read_checkpoint(first.checkpoint)
            metadata["iteration"] = state["iteration"] = 4
            CheckpointStore(first.folder).save(state, metadata)
            return FakeAlgorithm(self)

    result = run(tmp_path, Slow().environment("CartPole-v1"), resume=True, stop={"training_iteration": 5})
    assert [line["training_iteration"] for line in read_results(result.folder)] == [1, 2, 3, 5]


def test_restoring_starts_a_new_folder_from_a_checkpoint_or_a_run(tmp_path: Path) -> None:
    first = run(tmp_path)
    for source in (first.checkpoint, first.folder):
        result = run(tmp_path, restore_from=str(source), stop={"training_iteration": 4})
        assert result.folder != first.folder
        assert [line["training_iteration"] for line in read_results(result.folder)] == [4]
        assert read_checkpoint(result.folder / "checkpoint_000004")[0]["counters"] == {"num_env_steps_sampled": 40}


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"stop": {"training_iteratoin": 1}}, ConfigError, "Did you mean 'training_iteration'"),
        ({"name": "../elsewhere"}, ConfigError, "name='../elsewhere'"),
        ({"name": ".."}, ConfigError, "name='..'"),
        ({"checkpoint": CheckpointSettings(score_attribute="min-episode_reward_meen")}, ConfigError, "Did you mean"),
        ({"checkpoint": CheckpointSettings(frequency=-1)}, ConfigError, "frequency=-1"),
        ({"config": FakeConfig().environment("CartPole-v1").training(lr="fast")}, ConfigError, "lr"),
        ({"restore_from": "/nowhere"}, CheckpointError, "/nowhere"),
        ({"storage_path": "ftp://bucket/folder"}, ConfigError, "ftp://bucket/folder"),
        ({"storage_path": "/proc/results"}, StorageError, "/proc/results"),
        ({"storage_path": "/etc/passwd/results"}, StorageError, "/etc/passwd/results"),
    ],
)
def test_wrong_use_writes_nothing(tmp_path: Path, options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error) as raised:
        run(options.pop("storage_path", tmp_path), options.pop("config", None), **options)
    assert text in str(raised.value)
    assert not list(tmp_path.iterdir())


def test_a_disk_that_is_full_in_the_midst_of_a_run_is_a_fault(tmp_path: Path, hook: Callable[..., None]) -> None:
    def fill() -> None:
        (results,) = tmp_path.glob("*/*/result.json")
        results.unlink()
        results.symlink_to("/dev/full")

    hook(at(2, fill))
    with pytest.raises(StorageError, match="No space left on device") as caught:
        run(tmp_path)
    assert caught.value.exit_code == EXIT_FAILED, "another attempt goes on"


def test_all_wrong_settings_are_named_together(tmp_path: Path) -> None:
    config = FakeConfig().environment("CartPole-v1").training(gamma=7.0)
    with pytest.raises(ConfigError) as raised:
        run(tmp_path, config, stop={"nonsense": 1}, name="a/b")
    assert all(word in str(raised.value) for word in ("gamma", "nonsense", "a/b"))


def test_a_first_iteration_that_fails_leaves_nothing(tmp_path: Path, hook: Callable[..., None]) -> None:
    hook(at(1, fail))
    with pytest.raises(EnvironmentError):
        run(tmp_path)
    assert FakeAlgorithm.latest.stopped
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_of_another_algorithm_is_refused(tmp_path: Path) -> None:
    first = run(tmp_path)
    other = OtherConfig().environment("CartPole-v1")
    with pytest.raises(CheckpointError, match="was written by FAKE, but OTHER"):
        run(tmp_path / "new", other, restore_from=str(first.checkpoint))
    assert not (tmp_path / "new").exists()


def test_metrics_are_served_while_it_runs(tmp_path: Path, hook: Callable[..., None]) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.listen()
        with pytest.raises(ResourceError, match="metrics-port"):
            run(tmp_path, metrics_port=port)
    seen = []

    def scrape() -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/progress", timeout=5) as response:
            seen.append(json.load(response))

    hook(at(3, scrape))
    run(tmp_path, metrics_port=port, checkpoint=CheckpointSettings(frequency=1))
    assert seen[0]["training"]["iteration"] == 2
    assert seen[0]["checkpoint"]["iteration"] == 2
    with pytest.raises(OSError, match="refused"):
        scrape()


def test_ppo_ended_by_a_signal_and_resumed_equals_ppo_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = PPOConfig().environment("CartPole-v1").debugging(seed=1)
    config.training(train_batch_size=128, num_sgd_iter=2)
    alone = run(tmp_path / "alone", config)

    train = PPO.train

    def interrupted(self: Any) -> Any:
        result = train(self)
        signal.raise_signal(signal.SIGTERM)
        return result

    with monkeypatch.context() as patch:
        patch.setattr(PPO, "train", interrupted)
        assert run(tmp_path / "twice", config).exit_code == 143
    resumed = run(tmp_path / "twice", config, resume=True)
    assert (resumed.exit_code, resumed.result["training_iteration"]) == (0, 3)
    for one, other in zip(read_results(alone.folder), read_results(resumed.folder), strict=True):
        for key in ("info", "hist_stats", "episodes_total", "counters", "episode_reward_mean"):
            assert one[key] == other[key], key
    left, right = ((result.checkpoint / "arrays.safetensors").read_bytes() for result in (alone, resumed))
    assert left == right


@pytest.mark.parametrize("ends", [True, False])
def test_what_is_being_saved_is_not_saved_by_another_thread_too(
    tmp_path: Path, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is overdue is rescued by its watchdog, maybe while its main thread writes a checkpoint."""
    begun, end = threading.Event(), threading.Event()
    saves: list[int] = []

    class Slow(CheckpointStore):
        def save(self, state: Any, metadata: dict[str, Any], score: float | None = None) -> Path:
            saves.append(metadata["iteration"])
            begun.set()
            assert end.wait(20)
            return super().save(state, metadata, score)

    monkeypatch.setattr("reef.run.experiment.SAVING_S", 20.0 if ends else 0.1)
    algorithm = FakeAlgorithm(FakeConfig().environment("CartPole-v1").freeze())
    experiment = Experiment(
        algorithm=cast(Algorithm, algorithm),
        name="x",
        folder=tmp_path,
        stop=StopConditions({}),
        settings=CheckpointSettings(frequency=1),
        store=Slow(tmp_path),
        signals=StopSignals(),
    )
    main = threading.Thread(target=experiment.iterate)
    main.start()
    assert begun.wait(20)
    if ends:
        threading.Timer(0.2, end.set).start()
    said = experiment.rescue()
    end.set()
    main.join(20)
    assert saves == [1]
    assert said is None if ends else "not whole" in str(said)
