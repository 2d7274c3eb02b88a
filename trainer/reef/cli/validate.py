"""`reef validate FILE ...`: checks job documents and everything they name, and trains nothing."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from reef.cli.document.overrides import apply_overrides
from reef.cli.experiment import kubernetes_notice, local_pods
from reef.cli.run import add_override
from reef.errors import EXIT_OK, EXIT_WRONG_USE, ConfigError, ReefError, ResourceError
from reef.job.capacity import Pods
from reef.job.settings import check_training, cluster_config_of, config_of

if TYPE_CHECKING:
    from reef.api import RLTrainingJob
    from reef.config import AlgorithmConfig
    from reef.sweep.plan import Plan


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], verbosity: argparse.ArgumentParser
) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser("validate", parents=[verbosity], help="check job documents without training")
    parser.add_argument("files", nargs="+", metavar="FILE", help="job documents")
    add_override(parser)
    parser.set_defaults(action=_command)


def _command(args: argparse.Namespace) -> int:
    """Check every document before the exit code says whether any is wrong."""
    code = EXIT_OK
    for file in args.files:
        try:
            print("\n".join(_checked(file, args.overrides)))
        except ReefError as error:
            code = EXIT_WRONG_USE
            text = str(error)
            print(f"reef validate: {text if text.startswith(file) else f'{file}: {text}'}", file=sys.stderr)
    return code


def _checked(file: str, overrides: Sequence[str]) -> Iterator[str]:
    """Yield what a document would do in both places; raises a ReefError for one that is wrong."""
    from reef.api.loading import job_from_document, read_yaml
    from reef.config.ignored import ignored_beside_others
    from reef.sweep.plan import Plan

    job = job_from_document(apply_overrides(read_yaml(file), overrides), file)
    config = config_of(job)
    plan = Plan(job.spec.tune, config, job.spec.stop) if job.spec.tune else None
    policies = check_training(job, config, job.spec.stop, here=False).policy_map.items()
    of_policies = (text for name, policy in policies for text in config.for_policy(name).ignored_settings(policy))
    ignored = [*ignored_beside_others(config), *of_policies]
    here, cluster = _with_reef_run(job, config, plan), _on_kubernetes(job, plan)
    stop = ", ".join(f"{key} {value:.12g}" for key, value in job.spec.stop.items())
    what = f", a sweep of {len(plan.trials)} trials" if plan else ""
    yield f"{file}: valid. {config.algorithm} on {job.spec.environment.name}{what}, until {stop}."
    yield from (f"  But {text}" for text in ignored)
    yield f"  With `reef run`: {here}."
    if notice := kubernetes_notice(job):
        yield f"    {notice}"
    yield f"  On Kubernetes: {cluster}."


def _with_reef_run(job: RLTrainingJob, config: AlgorithmConfig, plan: Plan | None) -> str:
    if plan:
        return "as many trials at a time as this machine has room for"
    pods = local_pods(job)
    fitting = pods.rollout_workers_that_fit(config, on_one_machine=True) if pods else config.num_rollout_workers
    if not config.num_rollout_workers:
        return "it samples in its own process"
    size = f", taken as one of {pods.total('CPU'):g} CPUs" if pods else ""
    return f"{_workers(fitting)} on this machine{size}"


def _on_kubernetes(job: RLTrainingJob, plan: Plan | None) -> str:
    pods = Pods.wanted_by(job.spec)
    beside = len(pods.offers()) - 1
    others = f"{beside} pod{'s' * (beside > 1)}"
    everywhere = f"the head and {others}" if beside else "the head"
    try:
        config = cluster_config_of(job)
        if plan:
            pods.check_trials(plan)
            return f"its trials share {everywhere}"
        fitting = pods.rollout_workers_that_fit(config)
    except (ConfigError, ResourceError) as error:  # some of which `reef run` refuses too
        return f"it would be refused: {str(error).rstrip('.')}"
    if not config.num_rollout_workers:
        return "it samples in the head"
    return f"{_workers(fitting)} in {everywhere if pods.head_takes_workers(config) else others}"


def _workers(count: int) -> str:
    return f"{count} rollout worker{'s' * (count != 1)}"
