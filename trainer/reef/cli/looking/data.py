"""`reef data inspect|stats|convert PATH`: looks into recorded episodes, and writes them in another form."""

from __future__ import annotations

import argparse
import json
import math
import os
import reprlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reef.cli.train import json_mapping
from reef.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from reef.offline.parquet_reader import Names
    from reef.offline.steps import Found, LeftOut
    from reef.offline.stored_files import RecordedFile

Steps = Sequence[Mapping[str, Any]]
DEEPEST = 8  # lists and mappings in each other that are shown


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], verbosity: argparse.ArgumentParser
) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser("data", parents=[verbosity], help="look into recorded episodes, or convert them")
    parser.add_argument("what", choices=("inspect", "stats", "convert"), help="a step, numbers, another form")
    parser.add_argument("path", help="a file, a folder or a pattern, also s3://...")
    parser.add_argument("out", nargs="?", help="of convert: the file to write; one that ends with .parquet is Parquet")
    parser.add_argument(
        "--columns",
        type=json_mapping,
        metavar="JSON",
        help="what the columns of Parquet that others wrote hold, as in input_config.columns",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, and nothing else")
    parser.set_defaults(action=_command)


def _command(args: argparse.Namespace) -> int:
    if (args.what == "convert") != bool(args.out):
        raise ConfigError("reef data convert PATH OUT writes a file; inspect and stats take PATH alone.")
    if args.what == "convert" and args.json:
        raise ConfigError("--json: convert prints no numbers. Leave it out.")
    if args.what == "convert" and not args.out.endswith((".json", ".jsonl", ".parquet")):
        raise ConfigError(f"{args.out}: expected a file that ends with .json, .jsonl or .parquet.")
    from reef.offline.steps import LeftOut, one_by_one
    from reef.offline.stored_files import recorded_in_all

    wrong = LeftOut()
    names, files = _names(args.columns), _files(args.path)
    episodes = _episodes(args.path, one_by_one(recorded_in_all(files, names=names)), wrong)
    if args.what == "convert":
        _check_out(args.out, files)
        print(f"{_convert(episodes, args.out, wrong)} episodes written to {args.out}")
    else:
        found = (_inspected if args.what == "inspect" else _stats)(episodes)
        found["left_out"] = wrong.count
        print(json.dumps(found) if args.json else "\n".join(f"{key:<14} {value}" for key, value in found.items()))
    if wrong.count and not args.json:
        print(f"{wrong.count} left out, the first is {wrong.reasons[0]}")
    return 0


def _files(path: str) -> list[RecordedFile]:
    from reef.offline.stored_files import recorded_files

    try:
        return recorded_files(path)
    except (ConfigError, StorageError) as error:
        raise type(error)(str(error).removeprefix("input_=")) from error


def _names(columns: dict[str, Any] | None) -> Names | None:
    """By the key of a step its columns; ConfigError for a wrong `--columns`."""
    if columns is None:
        return None
    from reef.config.groups.columns import column_problems, named_columns

    given = {"columns": columns}
    if problems := list(column_problems(given)):
        raise ConfigError("\n".join(problem.replace("input_config.columns", "--columns") for problem in problems))
    return named_columns(given)


def _episodes(path: str, recorded: Iterable[Found], wrong: LeftOut) -> Iterator[Steps]:
    """The steps of each episode; what cannot be read is added to `wrong`. ConfigError where nothing can."""
    from reef.offline.steps import ColumnSteps, wrong_step

    count = 0
    for place, steps in recorded:
        try:
            found = steps()
            if not isinstance(found, list | ColumnSteps) or not found or not all("reward" in step for step in found):
                raise ValueError("it has no steps with rewards")
            for step in found:
                _number(step["reward"])  # which raises
        except (ValueError, TypeError, KeyError) as error:
            wrong.add(place, wrong_step(error))
            continue
        count += 1
        yield found
    if not count:
        raise ConfigError(
            f"{path}: no episode can be read. {wrong.reasons[0] if wrong.count else 'Every file is empty'}."
        )


def _inspected(episodes: Iterator[Steps]) -> dict[str, Any]:
    """By key, the shape of its value in the first step, and in how many steps it is."""
    counts: Counter[str] = Counter()
    shapes: dict[str, str] = {}
    steps = 0
    for episode in episodes:
        for step in episode:
            steps += 1
            known = {key: value for key, value in step.items() if value is not None}
            counts.update(known.keys())
            shapes = {key: _shape(value) for key, value in known.items()} | shapes
    return {key: f"{shape}, in {counts[key]} of {steps} steps" for key, shape in shapes.items()}


def _shape(value: Any, depth: int = 0) -> str:
    if isinstance(value, Mapping):
        inner = ((key, _shape(part, depth + 1) if depth < DEEPEST else "...") for key, part in value.items())
        return f"{{{', '.join(f'{key}: {shape}' for key, shape in inner)}}}"
    sizes = []
    while isinstance(value, list):
        sizes.append(len(value))
        value = value[0] if value else None
    return f"{type(value).__name__}{sizes or ''}"


def _stats(episodes: Iterator[Steps]) -> dict[str, Any]:
    """Of rewards and lengths of episodes, and how they ended."""
    rewards, lengths, terminated, likely = [], [], 0, 0
    for episode in episodes:
        rewards.append(sum(_number(step["reward"]) for step in episode))
        lengths.append(len(episode))
        end = episode[-1].get("terminated", False)
        terminated += bool(end.get("__all__") if isinstance(end, Mapping) else end)
        likely += all(step.get("action_logp", step.get("action_prob")) is not None for step in episode)
    return {
        "episodes": len(rewards),
        "steps": sum(lengths),
        "reward_mean": sum(rewards) / len(rewards),
        "reward_min": min(rewards),
        "reward_max": max(rewards),
        "length_mean": sum(lengths) / len(lengths),
        "length_min": min(lengths),
        "length_max": max(lengths),
        "terminated": terminated,
        "with_logp": likely,
    }


def _number(reward: Any) -> float:
    """A reward, or those of several agents together; ValueError where one is no number."""
    try:
        found = float(sum(reward.values())) if isinstance(reward, Mapping) else float(reward)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"the reward {reprlib.repr(reward)} is no number") from error
    if not math.isfinite(found):
        raise ValueError(f"the reward {reprlib.repr(reward)} is not finite")
    return found


def _check_out(out: str, files: Sequence[RecordedFile]) -> None:
    if os.path.exists(out) and any(isinstance(file, Path) and os.path.samefile(out, file) for file in files):
        raise ConfigError(f"{out}: it is among the files that are read. Name another one.")


def _convert(episodes: Iterator[Steps], out: str, wrong: LeftOut) -> int:
    """Write the episodes; returns how many."""
    from reef.offline.episode_files import PlayedEpisode, episode_file

    first = next(episodes)  # a path that leads nowhere is found before the file is made
    file, number, left_out = episode_file(out, flag=""), 0, 0
    try:
        for number, steps in enumerate(chain([first], episodes), 1):
            rewards = sum(_number(step["reward"]) for step in steps)
            episode = PlayedEpisode(number, rewards, len(steps), complete=True, steps=[dict(step) for step in steps])
            try:
                file.add(episode)
            except RecursionError:
                wrong.add(f"episode {number}", "it holds too many lists in each other")
                left_out += 1
    finally:
        file.close()
    return number - left_out
