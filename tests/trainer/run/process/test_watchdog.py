"""Real runs whose environment hangs: what they say, save and end with."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reef.run.checkpoint import find_checkpoint, read_checkpoint

PROGRAM = """
import ctypes, sys, threading, time
from pathlib import Path
import gymnasium as gym
import reef.run.process.watchdog
from reef import PPOConfig
from reef.run.build import run_experiment
from reef.run.experiment import CheckpointSettings
from reef.run.signals import StopSignals

how, where, marker = sys.argv[1], sys.argv[2], Path(sys.argv[3])
reef.run.process.watchdog.TICK_S = 60.0 if (how, where) == ("holding", "make") else 0.2  # 60: no look before the hang
reef.run.process.watchdog.PATIENCE_S, reef.run.process.watchdog.MARGIN_S = 1.0, 1.0

def hang_here():
    marker.write_text("now")
    if how == "sleeping":
        time.sleep(600)
    elif how == "waiting":
        threading.Event().wait(600)
    elif how == "spinning":
        while True:
            pass
    else:
        ctypes.PyDLL(None).sleep(600)  # lets no other thread run

class Maze(gym.Env):
    observation_space, action_space = gym.spaces.Box(-1, 1, (2,)), gym.spaces.Discrete(2)
    steps = own_steps = 0
    def __init__(self, settings):
        self.evaluated = settings.get("evaluated", False)
        if where == "make":
            hang_here()
        if where == "start":  # it looks once more while this is made, and then not before the hang
            reef.run.process.watchdog.TICK_S = 60.0
            time.sleep(0.5)
    def reset(self, seed=None, options=None):
        return self.observation_space.sample(), {}
    def step(self, action):
        Maze.steps += 1
        self.own_steps += 1
        if where == "evaluate" and self.evaluated and self.own_steps == 5:
            hang_here()
        if where == "train" and Maze.steps == 300 and how != "slow" or where == "start" and Maze.steps == 20:
            hang_here()
        if how == "slow" and Maze.steps >= 300:
            marker.write_text("now")
            time.sleep(1.0)
        return self.observation_space.sample(), 0.0, Maze.steps % 10 == 0, False, {}

config = (
    PPOConfig().environment(Maze).debugging(seed=1)
    .training(train_batch_size=64, sgd_minibatch_size=64, num_sgd_iter=1, model={"fcnet_hiddens": [4]})
    .fault_tolerance(sample_timeout_s=float(sys.argv[5]), worker_restore_timeout_s=float(sys.argv[5]))
)
if where == "evaluate":
    config.evaluation(evaluation_interval=3, evaluation_sample_timeout_s=2.0,
                      evaluation_config={"env_config": {"evaluated": True}})
run_experiment(
    config, stop={"training_iteration": 99}, storage_path=sys.argv[4], name="hangs",
    checkpoint=CheckpointSettings(frequency=2), signals=StopSignals(float(sys.argv[6]) or None),
    say=lambda code, text: print("LAST WORDS", code, text),
)
"""


@contextmanager
def started(
    tmp_path: Path, how: str, where: str, limit_s: float, patience_s: float = 0.0
) -> Iterator[subprocess.Popen[str]]:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    arguments = [how, where, tmp_path / "hangs-now", tmp_path / "results", limit_s, patience_s]
    command = [sys.executable, str(program), *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield process
        finally:
            process.kill()  # one that was not ended


def saved(tmp_path: Path) -> int:
    (folder,) = (tmp_path / "results/hangs").glob("*")
    _, metadata = read_checkpoint(find_checkpoint(folder))
    iteration: int = metadata["iteration"]
    return iteration


@pytest.mark.parametrize(
    ("how", "where", "limit_s", "said"),
    [
        ("sleeping", "train", 2.0, "sampling hangs: no step for sample_timeout_s=2 s"),
        ("spinning", "train", 2.0, "sampling hangs: no step for sample_timeout_s=2 s"),
        ("sleeping", "evaluate", 300.0, "evaluation hangs: no step for evaluation_sample_timeout_s=2 s"),
    ],
)
def test_a_hang_ends_the_process_for_another_try_with_all_that_was_learned(
    tmp_path: Path, how: str, where: str, limit_s: float, said: str
) -> None:
    with started(tmp_path, how, where, limit_s) as process:
        output, _ = process.communicate(timeout=120)
    assert process.returncode == 1, output
    assert f"LAST WORDS 1 {said}; what was learned is in" in output
    assert "in hang_here" in output, "it says where"
    assert saved(tmp_path) == (4 if where == "train" else 3), "the checkpoint on the way was of an even iteration"


EVALUATION = """
import json, sys, time
import gymnasium as gym
import reef.run.process.watchdog
from reef.cli.main import main

reef.run.process.watchdog.TICK_S = 0.2

class Maze(gym.Env):
    observation_space, action_space = gym.spaces.Box(-1, 1, (2,)), gym.spaces.Discrete(2)
    steps = 0
    def __init__(self, settings): ...
    def reset(self, seed=None, options=None):
        return self.observation_space.sample(), {}
    def step(self, action):
        Maze.steps += 1
        if Maze.steps > 15:
            time.sleep(600)
        return self.observation_space.sample(), 0.0, Maze.steps % 5 == 0, False, {}

config = {"evaluation_sample_timeout_s": 2.0, "sample_timeout_s": 300.0, "model": {"fcnet_hiddens": [4]}}
sys.exit(main(["evaluate", "--algo", "PPO", "--env", "__main__:Maze", "--config", json.dumps(config)]))
"""


def test_an_evaluation_of_a_checkpoint_that_hangs_ends_too() -> None:
    command = [sys.executable, "-c", EVALUATION]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 1, ended
    assert "evaluation hangs: no step for evaluation_sample_timeout_s=2 s; every episode that ended was" in ended.stderr
    assert "in step" in ended.stderr, "it says where"
    assert ended.stdout.splitlines()[-1].startswith("Episode #3"), "what ended before was printed"


def test_a_hang_that_lets_no_thread_run_ends_the_process_too(tmp_path: Path) -> None:
    with started(tmp_path, "holding", "train", 2.0) as process:
        output, _ = process.communicate(timeout=120)
    assert process.returncode == 1, output
    assert "Timeout (0:00:03)!" in output and "in hang_here" in output
    assert saved(tmp_path) == 4


@pytest.mark.parametrize("where", ["make", "start"])
def test_what_hangs_before_it_is_looked_at_has_a_limit_from_the_beginning(tmp_path: Path, where: str) -> None:
    with started(tmp_path, "holding", where, 2.0) as process:
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 1, output
    assert "Timeout (0:00:03)!" in output and "in hang_here" in output


@pytest.mark.parametrize(
    ("number", "code", "patience_s", "how"),
    [
        (signal.SIGTERM, 143, 1.5, "sleeping"),
        (signal.SIGTERM, 143, 1.5, "slow"),
        (signal.SIGTERM, 143, 0.0, "spinning"),
        (signal.SIGINT, 130, 0.0, "waiting"),
    ],
)
def test_a_signal_ends_a_hang_long_before_its_limit(
    tmp_path: Path, number: signal.Signals, code: int, patience_s: float, how: str
) -> None:
    with started(tmp_path, how, "train", 300.0, patience_s) as process:
        until_it_hangs(tmp_path, process)
        process.send_signal(number)
        output, _ = process.communicate(timeout=120)
    assert process.returncode == code, output
    assert f"LAST WORDS {code} {number.name} came and sampling did not end within" in output
    assert "program.py" in output.partition("It was in:")[2]
    assert saved(tmp_path) == 4


def test_a_signal_ends_a_process_that_hangs_before_there_is_anything_to_save(tmp_path: Path) -> None:
    with started(tmp_path, "sleeping", "make", 300.0, 1.5) as process:
        until_it_hangs(tmp_path, process)
        process.terminate()
        output, _ = process.communicate(timeout=120)
    assert process.returncode == 143, output
    assert "making or restoring environments did not end within" in output
    assert "there was nothing to save" in output and "in hang_here" in output
    assert not (tmp_path / "results").exists()


def until_it_hangs(tmp_path: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 90
    while not (tmp_path / "hangs-now").exists():
        assert time.monotonic() < deadline
        assert process.poll() is None, process.stdout and process.stdout.read()
        time.sleep(0.05)
