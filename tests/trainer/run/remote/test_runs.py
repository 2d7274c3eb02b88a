"""Whole runs that are kept in an object store: on another machine they go on as if nothing had been."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from s3_server import S3

from reef.algorithms.ppo import PPOConfig
from reef.errors import CheckpointError, StorageError, StoreUnavailableError
from reef.run.build import run_experiment
from reef.run.checkpoint import find_checkpoint, read_checkpoint
from reef.run.experiment import CheckpointSettings
from reef.run.remote import mirror as mirror_module
from reef.run.reporters.files import read_results
from reef.run.reporters.reporter import Summary
from reef.storage import object_store
from reef.types import State

STORE = "s3://bucket/results"
TIMES = ("timers", "perf", "sampler_perf", "time", "date", "throughput", "experiment_id", "pid", "trial_id", "done")


@pytest.fixture(autouse=True)
def no_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reef.run.experiment.draw_learning_curve", lambda folder, title: None)


def run(machine: Path, iterations: int, storage: str = STORE, **options: Any) -> Summary:
    config = PPOConfig().environment("CartPole-v1").training(train_batch_size=128, sgd_minibatch_size=64)
    config = config.debugging(seed=3)
    return run_experiment(
        config,
        stop={"training_iteration": iterations},
        checkpoint=CheckpointSettings(frequency=1, keep=2),
        name="cart",
        storage_path=storage,
        local_folder=machine,
        reporters=[],
        **options,
    )


def same(first: Any, second: Any) -> bool:
    if isinstance(first, dict):
        kept = [key for key in first if not any(word in key for word in TIMES)]
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in kept)
    if isinstance(first, list):
        return len(first) == len(second) and all(map(same, first, second))
    return bool(np.array_equal(first, second))


def state_of(place: str | Path) -> State:
    return read_checkpoint(find_checkpoint(place))[0]


def test_resumed_on_another_machine_it_is_the_uninterrupted_run(s3: S3, tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", 4, "s3://bucket/whole")
    first = run(tmp_path / "first", 2)
    second = run(tmp_path / "second", 4, resume=True)
    assert first.folder.name == second.folder.name
    assert (second.uri, second.exit_code) == (f"{STORE}/cart/{second.folder.name}", 0)
    assert whole.checkpoint is not None
    assert same(state_of(whole.checkpoint), state_of(f"{second.uri}/checkpoint_000004"))
    lines = list(read_results(s3.bucket / "results/cart" / second.folder.name))
    assert [line["training_iteration"] for line in lines] == [1, 2, 3, 4]
    assert not same(state_of(f"{second.uri}/checkpoint_000003"), state_of(f"{second.uri}/checkpoint_000004"))


def test_a_copy_that_was_cut_off_is_made_good_by_the_next(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it was that had been copied: the results before the checkpoint are not lost."""
    first = run(tmp_path / "first", 2)
    download, left = object_store.RemoteFolder.download, 0

    def cut_off(*arguments: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        download(*arguments)

    monkeypatch.setattr(object_store.RemoteFolder, "download", cut_off)
    for allowed in range(1, 50):
        left = allowed
        try:
            again = run(tmp_path / "second", 3, resume=True)
        except KeyboardInterrupt:
            continue
        break
    assert allowed > 4, "nothing was cut off"
    assert again.folder.name == first.folder.name
    assert [line["training_iteration"] for line in read_results(again.folder)] == [1, 2, 3]


def test_a_run_that_had_ended_is_not_trained_further_and_a_new_one_has_a_folder_of_its_own(
    s3: S3, tmp_path: Path
) -> None:
    first = run(tmp_path / "first", 2)
    again = run(tmp_path / "second", 2, resume=True)
    assert again.result is not None
    assert again.result["training_iteration"] == 2
    new = run(tmp_path / "second", 1)
    assert {path.name for path in (s3.bucket / "results/cart").iterdir()} == {first.folder.name, new.folder.name}


def test_a_checkpoint_in_the_store_is_one_to_start_from(s3: S3, tmp_path: Path) -> None:
    first = run(tmp_path / "first", 2)
    for place in (f"{first.uri}/checkpoint_000001", first.uri):
        assert place is not None
        goes_on = run(tmp_path / "second", 3, str(tmp_path / "here"), restore_from=place)
        assert goes_on.uri is None
        assert goes_on.result is not None
        assert goes_on.result["training_iteration"] == 3
        assert goes_on.result["iterations_since_restore"] == (1 if place == first.uri else 2)


@pytest.mark.parametrize("place", ["s3://bucket/nothing", "s3://nobucket/x"])
def test_a_checkpoint_that_is_not_there(place: str, s3: S3, tmp_path: Path) -> None:
    with pytest.raises((CheckpointError, StorageError), match=place) as caught:
        run(tmp_path, 1, str(tmp_path / "here"), restore_from=place)
    assert caught.value.exit_code == 2


def test_a_store_that_cannot_be_written_is_refused_before_anything_is_trained(s3: S3, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="NoSuchBucket"):
        run(tmp_path / "machine", 1, "s3://nobucket/results")
    assert not (tmp_path / "machine").exists()


def test_a_run_trains_on_without_its_store_and_its_end_says_so(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "RETRIES", 1)
    trained: list[int] = []

    class Away:
        def start(self, _: object) -> None: ...

        def report(self, result: dict[str, Any]) -> None:
            trained.append(result["training_iteration"])
            if trained == [1]:
                s3.stop()

        def finish(self, _: object) -> None: ...

    with monkeypatch.context() as brief, pytest.raises(StoreUnavailableError, match=STORE) as caught:
        brief.setattr(mirror_module, "END_S", 1.0)
        run_with(tmp_path / "first", Away())
    assert caught.value.exit_code == 1
    assert trained == [1, 2, 3]
    s3.start()
    healed = run(tmp_path / "first", 3, resume=True)
    assert healed.exit_code == 0
    assert same(state_of(f"{healed.uri}"), state_of(healed.folder))


def run_with(machine: Path, reporter: Any) -> Summary:
    config = PPOConfig().environment("CartPole-v1").training(train_batch_size=128, sgd_minibatch_size=64)
    return run_experiment(
        config.debugging(seed=3),
        stop={"training_iteration": 3},
        checkpoint=CheckpointSettings(frequency=1),
        name="cart",
        storage_path=STORE,
        local_folder=machine,
        reporters=[reporter],
    )
