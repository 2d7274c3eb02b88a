"""`reef COMMAND ...`: reads the command line, runs one command, and turns errors into one message and an exit code."""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn, TextIO

import reef
from reef.cli import catalog, describe, evaluate, plot, run, schema, train, validate
from reef.cli.looking import data, stack
from reef.cli.policies import export, serve
from reef.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_TERMINATED, EXIT_WRONG_USE, ReefError, redacted
from reef.logs import log_to_stderr
from reef.run.signals import Terminated, sigterm_raises

COMMANDS = (run, train, evaluate, serve, export, data, plot, stack, validate, describe, catalog, schema)
COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # what Gymnasium puts around its warnings, also in a file
SHELLS = ("bash", "zsh")
LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"reef {reef.__version__}")
        parser.exit()


class _Completion(argparse.Action):
    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        try:
            import shtab
        except ImportError:
            parser.error(f"{option_string} needs the package shtab: pip install 'reef[completion]'")
        print(shtab.complete(parser, str(values)))
        parser.exit()


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        super().error(redacted(message))


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = _Parser(prog="reef", description=reef.__doc__)
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    parser.add_argument(
        "--print-completion",
        choices=SHELLS,
        action=_Completion,
        help="print what completes commands and flags",
    )
    verbosity = argparse.ArgumentParser(add_help=False)
    verbosity.add_argument(
        "-v", "--verbose", action="count", default=0, help="say more: -v is INFO, -vv is DEBUG and tracebacks of errors"
    )
    for number, level in enumerate(("info", "debug"), 1):
        same = f"same as -{'v' * number}"
        verbosity.add_argument(f"--log-{level}", action="store_const", const=number, dest="verbose", help=same)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_parser(commands, verbosity)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command in `argv` (default: the process' arguments) and return its exit code."""
    try:
        args = build_parser().parse_args(argv)
    except SystemExit as stop:  # argparse has said everything, so that the code is left
        return stop.code if isinstance(stop.code, int) else 2
    log_to_stderr()
    logging.getLogger("reef").setLevel(LEVELS[min(args.verbose, 2)])  # the root's would show what libraries debug
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    try:
        with sigterm_raises():
            return int(args.action(args))
    except Terminated:
        code, text = EXIT_TERMINATED, "stopped by SIGTERM"
    except ReefError as error:
        if args.verbose > 1:
            print(redacted(traceback.format_exc()), end="", file=sys.stderr)
        code, text = error.exit_code, str(error)
    except KeyboardInterrupt:
        code, text = EXIT_INTERRUPTED, "stopped by Ctrl-C"
    except SystemExit as stop:  # or a job whose environment gives up would count as done
        where = "".join(traceback.format_tb(stop.__traceback__)[-1:])
        code, text = EXIT_WRONG_USE, f"sys.exit({stop.code!r}) was called, raise an error instead:\n{where}"
    except BrokenPipeError:  # `reef describe PPO | head`: Python would complain again at its exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    print(f"reef {args.command}: {text}", file=sys.stderr)
    return code


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Show a warning as a sentence: the line of our code that noticed it does not help a person."""
    print(f"reef: warning: {redacted(COLOUR.sub('', str(message)))}", file=file or sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
