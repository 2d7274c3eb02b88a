from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from reef.output import to_stderr
from reef.run.reporters.console import Console, describe, time_left
from reef.run.reporters.reporter import Run, Summary
from reef.run.stopping import StopConditions


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def result(iteration: int, **more: Any) -> dict[str, Any]:
    return {
        "training_iteration": iteration,
        "timesteps_total": 4000 * iteration,
        "episode_reward_mean": 20.5,
        "num_env_steps_sampled_throughput_per_sec": 12345.6,
        "time_total_s": 10.0 * iteration,
        "done": False,
        **more,
    }


def show(stream: io.StringIO, *results: dict[str, Any], lines: bool = False) -> str:
    console = Console(stream, lines=lines)
    stop = StopConditions({"training_iteration": 10})
    console.start(Run(folder=Path("/r"), algorithm="PPO", environment="CartPole-v1", config={}, stop=stop))
    for one in results:
        console.report(one)
    console.finish(
        Summary(
            folder=Path("/r"),
            checkpoint=Path("/r/checkpoint_000003"),
            result=results[-1],
            exit_code=0,
            reason="training_iteration 3 >= 3",
            picture=Path("/r/learning_curve.png"),
        )
    )
    return stream.getvalue()


def test_plain_lines_are_rare_but_the_last_one_is_shown() -> None:
    text = show(io.StringIO(), result(1), result(2), result(3, done=True))
    assert "iteration 1, 4,000 steps, reward 20.50, 12,346 steps/s, 1:30 left" in text
    assert "iteration 2" not in text
    assert "iteration 3" in text
    assert "\x1b" not in text


def test_the_end_says_why() -> None:
    assert show(io.StringIO(), result(3, done=True)).endswith("stopped: training_iteration 3 >= 3\n")


def test_a_terminal_gets_a_bar_and_keeps_the_last_result() -> None:
    text = show(Terminal(), result(1), result(3))
    assert "\x1b" in text
    assert "iteration 3, 12,000 steps" in text
    assert "\x1b" not in show(Terminal(), result(1), lines=True)


@pytest.mark.parametrize("on_terminal", [True, False])
def test_what_is_written_to_stderr_beside_a_bar_stays_whole(monkeypatch: pytest.MonkeyPatch, on_terminal: bool) -> None:
    """Above the bar where both are one terminal, else where stderr goes."""
    terminal, stderr = Terminal(), Terminal() if on_terminal else io.StringIO()
    monkeypatch.setattr("sys.stderr", stderr)
    console = Console(terminal)
    console.start(Run(folder=Path("/r"), algorithm="PPO", environment="e", config={}, stop=StopConditions({})))
    console.report(result(1))
    to_stderr("(worker 1) text\n")
    console.finish(None)
    assert ("(worker 1) text\n" in terminal.getvalue(), stderr.getvalue()) == (
        (True, "") if on_terminal else (False, "(worker 1) text\n")
    )


def test_a_failed_run_ends_without_a_reason() -> None:
    stream = io.StringIO()
    console = Console(stream)
    console.start(Run(folder=Path("/r"), algorithm="PPO", environment="e", config={}, stop=StopConditions({})))
    console.finish(None)
    assert "stopped" not in stream.getvalue()


def test_description_before_an_episode_and_with_an_evaluation() -> None:
    assert "no episode ended yet" in describe(result(1, episode_reward_mean=None))
    assert describe(result(1, evaluation={"episode_reward_mean": 30.0})).endswith("evaluation 30.00")
    assert "evaluation" not in describe(result(1, evaluation=None))


def test_time_left() -> None:
    assert time_left(result(1), 0.5) == "0:10"
    assert time_left(result(1, time_total_s=3600.0), 0.25) == "3:00:00"
    assert time_left(result(1), 0.0) == time_left(result(1), 1.0) == ""
