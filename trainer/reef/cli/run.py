"""`reef run FILE`: trains a job document in this process."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from reef.cli.document.overrides import apply_overrides
from reef.cli.experiment import DEFAULT_STORAGE_PATH, Options, run_job

MOST_NODES = 16  # each is a Ray of its own on this machine


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], verbosity: argparse.ArgumentParser
) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser("run", parents=[verbosity], help="train a job document (RLTrainingJob, YAML) here")
    parser.add_argument("file", help="the job document")
    add_override(parser)
    add_options(parser)
    parser.set_defaults(action=_command)


def add_override(parser: argparse.ArgumentParser) -> None:
    """Add `--set`."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="overrides",
        metavar="PATH=VALUE",
        help="change the document first: config.lr=0.001, stop.training_iteration=5 (may be given several times)",
    )


class _UploadDir(argparse.Action):
    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        print(f"reef: warning: {option_string} is now called --storage-path.", file=sys.stderr)
        namespace.storage_path = values


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what a person decides for one run: where results go, resuming, metrics."""
    storage = parser.add_mutually_exclusive_group()
    storage.add_argument(
        "--storage-path",
        "--local-dir",
        type=named,
        metavar="DIR",
        help="where results go: a folder, or an object store such as s3://bucket/folder (default: the document's "
        f"checkpoint.storage.uri, or {DEFAULT_STORAGE_PATH})",
    )
    storage.add_argument(
        "--upload-dir", type=named, metavar="URI", action=_UploadDir, help="an older name of --storage-path"
    )
    parser.add_argument("--resume", action="store_true", help="go on from the newest checkpoint of the earlier run")
    parser.add_argument(
        "--metrics-port", type=int, metavar="N", help="serve Prometheus metrics, /progress and /healthz"
    )
    ray = parser.add_argument_group("Ray, where the job has workers or learners in processes of their own")
    ray.add_argument("--ray-address", metavar="ADDRESS", help="join this cluster; default: start a local Ray")
    ray.add_argument("--ray-num-cpus", type=_amount, metavar="N", help="CPUs that a local Ray counts on")
    ray.add_argument("--ray-num-gpus", type=_amount, metavar="N", help="GPUs that a local Ray counts on")
    ray.add_argument(
        "--ray-num-nodes",
        type=_nodes,
        metavar="N",
        help="nodes that a local Ray has, each with the CPUs and GPUs above: a cluster on this machine, for debugging",
    )
    ray.add_argument(
        "--ray-ui", action=argparse.BooleanOptionalAction, default=False, help="serve the dashboard of a local Ray"
    )
    ray.add_argument(
        "--local-mode",
        action="store_true",
        help="sample, learn and evaluate in this process, for debugging: no Ray, and breakpoints work",
    )
    ray.add_argument(
        "--ray-object-store-memory", type=_store_memory, metavar="BYTES", help="memory of a local Ray's object store"
    )


def named(text: str) -> str:
    """The text of a flag that names a place; argparse says so where it is empty, as an unset variable is."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty. Name a place, or leave the flag out")
    return text


def _amount(text: str) -> float:
    try:
        amount = float(text)
    except ValueError:
        amount = math.nan
    if not 0 <= amount < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number, from 0 on")
    return amount


def _nodes(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_NODES:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of nodes, from 1 to {MOST_NODES}")
    return int(text)


def _store_memory(text: str) -> int:
    least = 75 * 2**20  # of Ray
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of bytes, from {least} on")
    return int(text)


def options_of(args: argparse.Namespace) -> Options:
    """Return what `add_options` read."""
    given = {each.name for each in fields(Options)} & vars(args).keys()
    return Options(verbosity=args.verbose, **{name: getattr(args, name) for name in given})


def _command(args: argparse.Namespace) -> int:
    from reef.api.loading import job_from_document, read_yaml

    job = job_from_document(apply_overrides(read_yaml(args.file), args.overrides), args.file)
    return run_job(job, options_of(args))
