"""`reef describe [ALGORITHM]`: every setting with its type, default and meaning."""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from reef.errors import ConfigError

if TYPE_CHECKING:
    from reef.config import AlgorithmConfig
    from reef.config.declaration import Setting
    from reef.config.refusals import Refusal

SHOWN = ("name", "group", "type", "default", "doc", "choices", "minimum", "maximum", "above", "unit")


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], verbosity: argparse.ArgumentParser
) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser("describe", parents=[verbosity], help="print all settings of an algorithm")
    parser.add_argument("algorithm", nargs="?", help="algorithm; without it, the settings that all of them share")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument(
        "--markdown", action="store_true", help="print the whole job reference: document and all algorithms"
    )
    parser.set_defaults(action=_command)


def _command(args: argparse.Namespace) -> int:
    if args.markdown and args.algorithm:
        raise ConfigError(f"--markdown prints the whole job reference: leave {args.algorithm} out.")
    if args.markdown:
        from reef.cli.reference import job_reference

        print(job_reference())
        return 0
    from reef.algorithms.registry import config_class
    from reef.config import AlgorithmConfig
    from reef.config.describe import settings_of

    described = config_class(args.algorithm) if args.algorithm else AlgorithmConfig
    settings = settings_of(described)
    if args.json:
        print(json.dumps([{key: getattr(info, key) for key in SHOWN} for info in settings], indent=2, default=str))
        return 0
    print("\n".join(_text(settings)))
    print("\n".join(_refusals_text(described)))
    if args.algorithm:  # explorations need PyTorch, as algorithms do
        print("\n".join(_explorations_text()))
    return 0


def own_refusals(config_class: type[AlgorithmConfig]) -> dict[str, Refusal]:
    """The refused settings that an algorithm adds to those of all."""
    from reef.config import AlgorithmConfig

    shared = AlgorithmConfig.refusals
    return {key: refusal for key, refusal in config_class.refusals.items() if key not in shared}


def in_groups(settings: Iterable[Setting]) -> Iterator[tuple[str, list[Setting]]]:
    """Yield each group of settings with its name, in the order of the groups' first setting."""
    order: dict[str, list[Setting]] = {}
    for info in settings:
        order.setdefault(info.group, []).append(info)
    yield from order.items()


def meaning_of(info: Setting) -> str:
    """Return what a setting means, and what it may be beyond its type."""
    parts = [f"in {info.unit}"] if info.unit else []
    if info.choices:
        parts.append("one of " + ", ".join(map(repr, info.choices)))
    if info.minimum is not None:
        parts.append(f"at least {info.minimum:g}")
    if info.maximum is not None:
        parts.append(f"at most {info.maximum:g}")
    if info.above is not None:
        parts.append(f"more than {info.above:g}")
    return f"{info.doc} ({'; '.join(parts)})" if parts else info.doc


def explorations() -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield the name, the arguments with their defaults, and the meaning of everything that explores."""
    from reef.rollout.exploration import EXPLORATIONS, PER_WORKER

    for name, kind in (EXPLORATIONS | PER_WORKER).items():
        arguments = {each.name: each.default for each in fields(kind) if each.init and each.name != "actions"}
        if name in PER_WORKER:
            del arguments["per_worker"]
            yield name, arguments, f"{kind.__name__} with per_worker = true."
        else:
            yield name, arguments, " ".join((kind.__doc__ or "").split())


def _text(settings: Iterable[Setting]) -> Iterator[str]:
    for group, members in in_groups(settings):
        yield f"\n{group.replace('_', ' ').upper()}"
        for info in members:
            yield f"  {info.name}: {info.type} = {json.dumps(info.default, default=str)}"
            yield _indented(meaning_of(info))


def _refusals_text(described: type[AlgorithmConfig]) -> Iterator[str]:
    from reef.config.refusals import REFUSALS

    yield "\nREFUSED WITH ANOTHER VALUE"
    for key, refusal in {**REFUSALS, **own_refusals(described)}.items():
        if key in described.by_key and key not in described.refusals:
            continue  # the algorithm has it
        yield f"  {key} = {json.dumps(refusal.default)}"
        yield _indented(refusal.advice)


def _explorations_text() -> Iterator[str]:
    yield "\nTYPES OF exploration_config"
    for name, arguments, meaning in explorations():
        yield f"  {name}"
        yield _indented(meaning)
        if arguments:
            yield _indented(", ".join(f"{key} = {json.dumps(value)}" for key, value in arguments.items()))


def _indented(text: str) -> str:
    return textwrap.fill(text, width=100, initial_indent="      ", subsequent_indent="      ")
