"""What Reef brings: `reef list` names the algorithms, `reef example` tuned job documents, by name."""

from __future__ import annotations

import argparse
import ast
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path

import reef
from reef.cli.document.overrides import apply_overrides
from reef.cli.experiment import run_job
from reef.cli.run import add_options, add_override, options_of
from reef.errors import ConfigError

REACHES = "reef.dev/reaches"  # annotation of an example: "475 by 100000", reward by environment steps
NOT_MEASURED = "not measured"  # in place of that


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], verbosity: argparse.ArgumentParser
) -> None:
    """Add the commands to the command line."""
    algorithms = commands.add_parser("list", parents=[verbosity], help="list the algorithms")
    algorithms.set_defaults(action=_list_algorithms)
    parser = commands.add_parser(
        "example",
        help="list, print or run job documents with tuned settings",
        description="Job documents with tuned settings. What they reach is measured in benchmarks/learn.",
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    listing = actions.add_parser("list", parents=[verbosity], help="list the examples and what they reach")
    listing.add_argument("-f", "--filter", default="", metavar="TEXT", help="only those with this text in their line")
    listing.set_defaults(action=_list_examples)
    printing = actions.add_parser("get", parents=[verbosity], help="print the document of an example")
    running = actions.add_parser("run", parents=[verbosity], help="train an example here, as `reef run` does")
    for each in (printing, running):
        each.add_argument("name", help="of the example, for instance cartpole-ppo")
    add_override(running)
    add_options(running)
    printing.set_defaults(action=_print_example)
    running.set_defaults(action=_run_example)


def _list_algorithms(args: argparse.Namespace) -> int:
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


def _list_examples(args: argparse.Namespace) -> int:
    from reef.api.loading import read_yaml

    rows = [("NAME", "ALGORITHM", "ENVIRONMENT", "REWARD BY STEPS")]
    for path in _examples().values():
        document = read_yaml(path)
        spec, annotations = document["spec"], document["metadata"]["annotations"]
        row = (path.stem, spec["algorithm"], spec["environment"]["name"], annotations[REACHES])
        if args.filter.lower() in " ".join(row).lower():
            rows.append(row)
    if len(rows) == 1:
        raise ConfigError(f"--filter {args.filter}: no example has this text. `reef example list` shows all.")
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return 0


def _print_example(args: argparse.Namespace) -> int:
    print(_find(args.name).read_text(encoding="utf-8"), end="")
    return 0


def _run_example(args: argparse.Namespace) -> int:
    from reef.api.loading import job_from_document, read_yaml

    document = apply_overrides(read_yaml(_find(args.name)), args.overrides)
    return run_job(job_from_document(document, args.name), options_of(args))


def _examples() -> dict[str, Path]:
    """The documents by name: in the package where it was installed, in examples/ of the source tree."""
    package = Path(reef.__file__).parent
    for folder in (package / "tuned", package.parents[1] / "examples" / "tuned"):
        if folder.is_dir():
            return {path.stem: path for path in sorted(folder.glob("*.yaml"), key=lambda path: path.stem)}
    raise ConfigError(f"{package / 'tuned'}: the examples are missing. Install Reef again.")


def _find(name: str) -> Path:
    examples = _examples()
    if name not in examples:
        in_any_order = {_sorted_words(each): each for each in examples}
        close = [in_any_order[each] for each in get_close_matches(_sorted_words(name), in_any_order)]
        advice = f" Did you mean {' or '.join(close)}?" if close else ""
        raise ConfigError(f"{name}: is no example.{advice} `reef example list` shows all.")
    return examples[name]


def _sorted_words(name: str) -> str:
    return "-".join(sorted(name.lower().split("-")))
