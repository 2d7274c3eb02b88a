"""What `make run` shows a newcomer, cut short: train an example, look into its folder, go on as the last line says."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]


def reef(*arguments: str) -> str:
    """The standard output of a `reef` command that succeeds."""
    outcome = subprocess.run(
        [sys.executable, "-m", "reef", *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / "trainer")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    return outcome.stdout


@pytest.mark.slow
@pytest.mark.parametrize("example", ["cartpole-ppo", "cartpole-dqn"])
def test_an_example_trains_and_ends_with_what_to_do_next(example: str, tmp_path: Path):
    run = ["run", f"examples/{example}.yaml", "--storage-path", str(tmp_path), "--set"]
    said = reef(*run, "stop.training_iteration=2")

    (folder,) = (tmp_path / example).iterdir()
    names = {path.name for path in folder.iterdir()}
    assert {"params.json", "result.json", "progress.csv", "learning_curve.png", "checkpoint_000002"} <= names
    assert any(name.startswith("events.out.tfevents.") for name in names)
    assert str(folder / "learning_curve.png") in said

    (command,) = re.findall(r"^ *reef (evaluate .*)$", said, re.MULTILINE)
    assert "complete episodes: mean reward" in reef(*shlex.split(command))

    reef(*run, "stop.training_iteration=3", "--resume")
    lines = (folder / "result.json").read_text().splitlines()
    assert [json.loads(line)["training_iteration"] for line in lines] == [1, 2, 3]


@pytest.mark.slow
@pytest.mark.ray
def test_the_pools_of_a_document_become_workers_of_a_local_ray(tmp_path: Path):
    document = yaml.safe_load((ROOT / "examples/cartpole-ppo.yaml").read_text())
    document["spec"] |= {"stop": {"training_iteration": 2}, "ttlSecondsAfterFinished": 60}
    document["spec"]["workers"] = [{"name": "cpu", "replicas": 2, "resources": {"requests": {"cpu": "500m"}}}]
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(document))
    said = reef("run", str(tmp_path / "job.yaml"), "--storage-path", str(tmp_path / "results"))
    assert len(re.findall("no effect here: ttlSecondsAfterFinished", said)) == 1
    (result,) = (tmp_path / "results").glob("*/*/result.json")
    lines = [json.loads(line) for line in result.read_text().splitlines()]
    assert [line["num_healthy_workers"] for line in lines] == [2, 2]


@pytest.mark.slow
@pytest.mark.ray
def test_the_sweep_names_its_best_trial_and_goes_on_where_it_was(tmp_path: Path):
    small = ("tune.numSamples=1", "tune.scheduler.gracePeriod=1", "stop.training_iteration=2")
    run = ["run", "examples/cartpole-sweep.yaml", "--storage-path", str(tmp_path), *(f"--set={one}" for one in small)]
    said = reef(*run)

    (folder,) = (tmp_path / "cartpole-sweep").iterdir()
    trials = json.loads((folder / "trials.json").read_text())["trials"]
    assert [trial["state"] for trial in trials] == ["finished", "finished"]
    best = r"^Best trial      trial_000[12] \(lr=.*, model.fcnet_hiddens=.*\), iteration [12]$"
    assert re.search(best, said, re.MULTILINE)
    (command,) = re.findall(r"^ *reef (evaluate .*)$", said, re.MULTILINE)
    assert "complete episodes: mean reward" in reef(*shlex.split(command))

    assert "continuing: 2 trials have ended already" in reef(*run, "--resume")
