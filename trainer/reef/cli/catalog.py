"""`reef list`: the algorithms."""

from __future__ import annotations

import argparse
import ast
from importlib.util import find_spec
from pathlib import Path


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], verbosity: argparse.ArgumentParser
) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser("list", parents=[verbosity], help="list the algorithms")
    parser.set_defaults(action=_command)


def _command(args: argparse.Namespace) -> int:
    from reef.algorithms.registry import ALGORITHMS

    for name in sorted(ALGORITHMS):
        print(f"{name:10} {_summary(ALGORITHMS[name])}")
    print("\nSettings of one: reef describe NAME. One of your own: package.module:Class in its place.")
    return 0


def _summary(path: str) -> str:
    """Return the first line of an algorithm file's docstring, read without importing it (it imports torch)."""
    spec = find_spec(path.partition(":")[0])
    if spec is None or spec.origin is None:
        return f"cannot be found: {path}"
    docstring = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8")))
    return docstring.splitlines()[0] if docstring else path
