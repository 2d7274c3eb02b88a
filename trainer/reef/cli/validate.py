"""`reef validate FILE`: checks a job document and everything it names, and trains nothing."""

from __future__ import annotations

import argparse

from reef.cli.experiment import kubernetes_notice
from reef.cli.overrides import apply_overrides
from reef.cli.run import add_override
from reef.job.settings import check_environment, config_of


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], verbosity: argparse.ArgumentParser
) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser("validate", parents=[verbosity], help="check a job document without training")
    parser.add_argument("file", help="the job document")
    add_override(parser)
    parser.set_defaults(action=_command)


def _command(args: argparse.Namespace) -> int:
    from reef.api.loading import job_from_document, read_yaml

    job = job_from_document(apply_overrides(read_yaml(args.file), args.overrides), args.file)
    config = config_of(job)
    check_environment(config)
    stop = ", ".join(f"{key} {value:g}" for key, value in job.spec.stop.items())
    workers = config.num_rollout_workers
    where = f"{workers} rollout worker{'s' * (workers != 1)}" if workers else "sampling in the head"
    print(f"{args.file}: valid. {config.algorithm} on {job.spec.environment.name}, {where}, until {stop}.")
    notice = kubernetes_notice(job)
    if notice:
        print(f"With `reef run`: {notice}")
    return 0
