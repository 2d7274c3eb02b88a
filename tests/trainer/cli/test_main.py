"""The command line as a whole: help without weight, one message per error, exit codes.

It tests reef.__main__, reef.cli.describe, reef.cli.run and reef.cli.schema too.
"""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
import warnings

import gymnasium
import pytest

from reef.cli import catalog, main
from reef.cli.main import build_parser
from reef.errors import ConfigError, WorkerError


def run(*argv: str) -> int:
    return main.main(list(argv))


def replace_list(monkeypatch: pytest.MonkeyPatch, action: object) -> None:
    monkeypatch.setattr(catalog, "_list_algorithms", action)


def test_help_answers_without_importing_anything_heavy() -> None:
    code = (
        "import sys; from reef.cli.main import main; main(['--help']);"
        "heavy = {'torch', 'ray', 'gymnasium', 'pydantic', 'numpy', 'yaml'} & sys.modules.keys();"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    for command in ("run", "train", "evaluate", "validate", "describe", "list", "example", "schema"):
        assert f"\n    {command} " in done.stdout


def test_help_answers_within_half_a_second() -> None:
    def seconds() -> float:
        before = os.times()
        subprocess.run([sys.executable, "-m", "reef", "--help"], capture_output=True, timeout=60, check=True)
        after = os.times()  # what it computed: how long it waited for others' work says nothing of it
        return after.children_user + after.children_system - before.children_user - before.children_system

    assert min(seconds() for _ in range(3)) < 0.5


@pytest.mark.parametrize(
    "command", ["run --help", "validate --help", "describe --help", "describe", "list", "example list"]
)
def test_what_answers_at_once_imports_neither_torch_nor_ray(command: str) -> None:
    code = (
        f"import sys; from reef.cli.main import main; main({command.split()});"
        "sys.exit(', '.join({'torch', 'ray', 'gymnasium'} & sys.modules.keys()) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_algorithm_is_described_with_all_that_explores(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("describe", "DQN") == 0
    text = capsys.readouterr().out
    for part in ("EpsilonGreedy", "OrnsteinUhlenbeckNoise", "temperature = 1.0", "epsilon_timesteps = 100000"):
        assert part in text


@pytest.mark.parametrize(
    "command", ["run", "train", "train file", "evaluate", "rollout", "validate", "describe", "list", "schema"]
)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*command.split(), "--help") == 0
    assert "usage: reef" in capsys.readouterr().out


def test_ctrl_c_during_the_imports_ends_it_without_a_traceback() -> None:
    program = """
import sys
from reef.__main__ import main

class Interrupt:
    def find_spec(self, name, *_):
        if name == "reef.cli.main":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
sys.exit(main())
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stderr) == (130, "")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out.startswith("reef ")


@pytest.mark.parametrize("argv", [(), ("trian",), ("run",), ("run", "a", "b")])
def test_wrong_arguments_exit_with_2(argv: tuple[str, ...]) -> None:
    assert run(*argv) == 2


@pytest.mark.parametrize(("error", "code"), [(ConfigError("lr=x: no"), 2), (WorkerError("gone"), 1)])
def test_a_reef_error_is_one_message_and_its_exit_code(
    error: Exception, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def action(args: argparse.Namespace) -> int:
        raise error

    replace_list(monkeypatch, action)
    assert run("list") == code
    assert capsys.readouterr().err == f"reef list: {error}\n"
    assert run("list", "-vv") == code
    assert "Traceback" in capsys.readouterr().err


def test_verbosity_is_ours_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, bool]] = []

    def action(args: argparse.Namespace) -> int:
        library = logging.getLogger("matplotlib").isEnabledFor(logging.DEBUG)
        seen.append((logging.getLogger("reef.run").getEffectiveLevel(), library))
        return 0

    replace_list(monkeypatch, action)
    assert [run("list", *flags) for flags in ((), ("-v",), ("-vv",), ())] == [0] * 4
    assert [level for level, _ in seen] == [logging.WARNING, logging.INFO, logging.DEBUG, logging.WARNING]
    assert not any(library for _, library in seen)


@pytest.mark.parametrize(
    ("flags", "number"), [([], 0), (["-v"], 1), (["--log-info"], 1), (["-vv"], 2), (["--log-debug"], 2)]
)
def test_levels_can_be_named_too(flags: list[str], number: int) -> None:
    assert build_parser().parse_args(["run", "job.yaml", *flags]).verbose == number


@pytest.mark.parametrize("flag", ["--storage-path", "--local-dir", "--upload-dir"])
def test_where_results_go_has_three_spellings(flag: str) -> None:
    assert build_parser().parse_args(["train", flag, "s3://bucket/folder"]).storage_path == "s3://bucket/folder"


@pytest.mark.parametrize(("flags", "shown"), [([], False), (["--render"], True), (["--no-render"], False)])
def test_an_evaluation_renders_only_when_asked(flags: list[str], shown: bool) -> None:
    assert build_parser().parse_args(["evaluate", "folder", *flags]).render is shown


def test_ctrl_c_exits_with_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def action(args: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    replace_list(monkeypatch, action)
    assert run("list") == 130
    assert "Ctrl-C" in capsys.readouterr().err


def test_warnings_are_sentences(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def action(args: argparse.Namespace) -> int:
        warnings.warn("setting 'num_workers' is now called 'num_rollout_workers'.", FutureWarning, stacklevel=1)
        gymnasium.logger.warn("The environment %s is out of date.", "CartPole-v0")
        return 0

    replace_list(monkeypatch, action)
    before = warnings.showwarning
    assert run("list") == 0
    assert capsys.readouterr().err.splitlines() == [
        "reef: warning: setting 'num_workers' is now called 'num_rollout_workers'.",
        "reef: warning: WARN: The environment CartPole-v0 is out of date.",  # without Gymnasium's colours
    ]
    assert warnings.showwarning is before


def test_every_option_says_what_it_does() -> None:
    for parser in parsers(build_parser()):
        assert [action.dest for action in parser._actions if not action.help] == []


def parsers(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    found = [parser]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            action.help = action.help or "commands"
            found += [inner for choice in action.choices.values() for inner in parsers(choice)]
    return found


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_shell_completes_commands_and_flags(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("shtab")
    assert main.main(["--print-completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(word in script for word in ("train", "plot", "--num-samples", "--storage-path"))


def test_a_missing_package_for_completion_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main.main(["--print-completion", "bash"]) == 2
    assert "--print-completion needs the package shtab: pip install 'reef[completion]'" in capsys.readouterr().err
