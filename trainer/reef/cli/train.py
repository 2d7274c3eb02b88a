"""`reef train --algo PPO --env CartPole-v1 ...`: a training from flags, and `reef train file PATH`."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from reef.cli.document.experiments import KEYS, document_of, documents_of, experiments_in, label
from reef.cli.document.overrides import apply_overrides
from reef.cli.document.source import KINDS, kind_of, read_source
from reef.cli.experiment import run_job
from reef.cli.run import add_options, add_override, options_of
from reef.errors import EXIT_INTERRUPTED, EXIT_TERMINATED, ConfigError

if TYPE_CHECKING:
    from reef.api import RLTrainingJob

REFUSED = {  # by flag: what to do in its place
    "--export-formats": "is a command of its own: reef export CHECKPOINT --onnx FILE, --torchscript or --safetensors",
    "--sync-on-checkpoint": "is always so: with --storage-path in an object store each checkpoint is copied there",
    "--resources-per-trial": "cannot be given: the resources of a trial have been automatically set by its settings, "
    "such as num_rollout_workers, num_cpus_per_worker and num_gpus in --config",
}
INSTEAD_OF_FILE = (
    "--algo", "--env", "--config", "--stop", "--restore", "--experiment-name", "--checkpoint-freq",
    "--[no-]checkpoint-at-end", "--keep-checkpoints-num", "--checkpoint-score-attr", "--framework", "--num-samples",
    "--scheduler", "--scheduler-config", "--max-failures",
)  # fmt: skip
SETTING_OF = {"--eager": "enable_tf1_exec_eagerly", "--trace": "eager_tracing"}  # says what there is in their place
FLAG_OF = {  # where a person wrote what the job document calls by this path
    "spec.algorithm": "--algo",
    "spec.environment.name": "--env",
    "spec.config": "--config",
    "spec.stop": "--stop",
    "spec.checkpoint.frequency": "--checkpoint-freq",
    "spec.checkpoint.keep": "--keep-checkpoints-num",
    "spec.checkpoint.scoreAttribute": "--checkpoint-score-attr",
    "spec.restoreFrom": "--restore",
    "metadata.name": "--experiment-name",
    "spec.tune.numSamples": "--num-samples",
    "spec.tune.scheduler": "--scheduler-config",
    "spec.tune.parameters": "--config",
    "spec.faultTolerance.backoffLimit": "--max-failures",
}
PYTHON_NAME_OF = {"spec.stop": "stop", "spec.environment.name": "config.env", "spec.config": "config"}
# A job document must say when it ends; a training from flags or Python may go on until Ctrl-C: run_job gets {}.
UNTIL_STOPPED = {"training_iteration": 1}


class _Refused(argparse.Action):
    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        from reef.config.refusals import REFUSALS

        flag = option_string or ""
        parser.error(f"{flag} {REFUSED.get(flag) or REFUSALS[SETTING_OF[flag]].advice}")


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], verbosity: argparse.ArgumentParser
) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser("train", parents=[verbosity], help="train from flags, or `train file PATH`")
    parser.add_argument("--algo", "--run", "-a", "-r", metavar="NAME", help="algorithm, see `reef list`")
    parser.add_argument("--env", "-e", metavar="ID", help="Gymnasium id, or package.module:Class")
    parser.add_argument(
        "--config",
        "-c",
        type=json_mapping,
        metavar="JSON",
        help='settings of the algorithm; a value {"grid_search": [...]} makes a sweep',
    )
    parser.add_argument(
        "--stop",
        "-s",
        type=json_mapping,
        metavar="JSON",
        help="result fields and values that end training; default never",
    )
    parser.add_argument("--experiment-name", "-n", metavar="NAME", help="name of the results' folder")
    parser.add_argument("--restore", metavar="CHECKPOINT", help="start from this checkpoint")
    parser.add_argument("--framework", help="torch")
    parser.add_argument(
        "--torch", action="store_const", const="torch", dest="framework", help="same as --framework torch"
    )
    _add_checkpoints(parser)
    _add_trials(parser)
    _add_wandb(parser)
    add_options(parser)
    parser.add_argument(*REFUSED, *SETTING_OF, action=_Refused, nargs="?", help=argparse.SUPPRESS)
    parser.add_argument(
        "source",
        nargs="*",
        metavar="file PATH",
        help="train what PATH says, without flags: a job document or experiments of RLlib (YAML) in a file or at an "
        "http(s) address, or a Python file with `config`, an AlgorithmConfig or a dict, and optionally the dict `stop`",
    )
    parser.add_argument("--config-file", "-f", metavar="PATH", help="same as `file PATH`")
    parser.add_argument("--type", choices=KINDS, help="what the file is; default python for *.py, else yaml")
    add_override(parser)
    parser.set_defaults(action=_command)


def _add_checkpoints(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--checkpoint-freq", type=int, metavar="N", help="iterations between checkpoints (default 0: none)"
    )
    parser.add_argument(
        "--checkpoint-at-end",
        action=argparse.BooleanOptionalAction,
        help="a checkpoint when training ends (default)",
    )
    parser.add_argument("--keep-checkpoints-num", type=int, metavar="N", help="checkpoints to keep (default all)")
    parser.add_argument(
        "--checkpoint-score-attr",
        metavar="FIELD",
        help="result field that ranks checkpoints; 'min-' in front: the smallest is best (default training_iteration)",
    )


def _add_trials(parser: argparse.ArgumentParser) -> None:
    trials = parser.add_argument_group("several trials")
    trials.add_argument(
        "--num-samples", type=int, metavar="N", help="repetitions of each trial, with other seeds (default 1)"
    )
    trials.add_argument(
        "--scheduler",
        metavar="NAME",
        help="which trials end early: FIFO (default, none), ASHA, HyperBand, MedianStopping, or PBT",
    )
    trials.add_argument(
        "--scheduler-config", type=json_mapping, metavar="JSON", help='its fields, such as {"grace_period": 5}'
    )
    trials.add_argument(
        "--max-failures", type=int, metavar="N", help="how often a trial that is lost starts again (default 3)"
    )


def _add_wandb(parser: argparse.ArgumentParser) -> None:
    wandb = parser.add_argument_group("Weights & Biases", "with one of these, results are logged there too")
    wandb.add_argument("--wandb-key", metavar="KEY", help="API key; by default WANDB_API_KEY or that of `wandb login`")
    wandb.add_argument("--wandb-project", metavar="NAME", help="project (default reef)")
    wandb.add_argument("--wandb-run-name", metavar="NAME", help="name of the run (default that of its folder)")


def _with_wandb(args: argparse.Namespace, document: Any) -> Any:
    """The document of a job, which reports to Weights & Biases where a flag says so; the key is in no document."""
    named = {"project": args.wandb_project, "name": args.wandb_run_name}
    named = {key: value for key, value in named.items() if value is not None}
    if args.wandb_key is None and not named:
        return document
    if args.wandb_key is not None:
        os.environ["WANDB_API_KEY"] = args.wandb_key
    spec = document.get("spec") if isinstance(document, dict) else None
    if not isinstance(spec, dict):  # the document is wrong, as its check says
        return document
    config = {} if spec.get("config") is None else spec["config"]
    own = config.get("logger_config", {}) if isinstance(config, dict) else None
    if not isinstance(own, dict):  # so here
        return document
    if (given := config.get("logger_creator")) not in (None, "wandb"):
        raise ConfigError(f"logger_creator={given!r}: --wandb-... asks for another one. Leave one of them out.")
    config = {**config, "logger_creator": "wandb", "logger_config": {**own, **named}}
    return {**document, "spec": {**spec, "config": config}}


def json_mapping(text: str) -> dict[str, Any]:
    """Read a flag's value as a JSON object; argparse says so when it is none."""
    from reef.api.limits import check_counts, check_limits

    try:
        check_counts(len(text), 0, "the value")
        value = json.loads(text, object_pairs_hook=_without_repeats)
        check_limits(value, "the value")
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    except (ValueError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"{text[:60]!r} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON object, expected {{...}}")
    return value


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"key {twice!r} is given twice")
    return found


def _command(args: argparse.Namespace) -> int:
    if args.config_file:
        args.source = ["file", args.config_file, *args.source]
    if not args.source:
        return _train_flags(args)
    if len(args.source) != 2 or args.source[0] != "file":
        raise ConfigError(f"{' '.join(args.source)!r} is no argument. Give flags, or `file PATH`.")
    if given := [flag for flag in INSTEAD_OF_FILE if getattr(args, _attribute(flag)) is not None]:
        raise ConfigError(f"{', '.join(given)}: the file says this. Change what it says with --set PATH=VALUE.")
    return _train_source(args, args.source[1])


def _attribute(flag: str) -> str:
    return flag.replace("[no-]", "").removeprefix("--").replace("-", "_")


def _train_source(args: argparse.Namespace, source: str) -> int:
    kind = args.type or kind_of(source)
    found = read_source(source, kind)
    if experiments := experiments_in(found):
        documents = [
            _with_wandb(args, apply_overrides(each, args.overrides)) for each in documents_of(experiments, source)
        ]
        jobs = [_job(document, source) for document in documents]
        codes: list[int] = []
        for job, stop in jobs:
            codes.append(run_job(job, options_of(args), stop=stop))
            if codes[-1] in (EXIT_INTERRUPTED, EXIT_TERMINATED):  # a signal ends all
                break
        return max(codes)
    document = _with_wandb(args, apply_overrides(found, args.overrides))
    if kind == "python":
        _check_environment(document["spec"]["environment"], source)
        job, stop = _job(document, source, PYTHON_NAME_OF)
        return run_job(job, options_of(args), stop=stop)
    from reef.api.loading import job_from_document

    return run_job(job_from_document(document, source), options_of(args))


def _job(
    document: dict[str, Any], source: str, names: dict[str, str] | None = None
) -> tuple[RLTrainingJob, dict[str, float] | None]:
    """The job of a document, and what takes the place of its stop conditions: {}, which is never, if it has none."""
    from reef.api.loading import job_from_document

    stop = document["spec"].get("stop")
    document["spec"]["stop"] = stop or UNTIL_STOPPED
    return job_from_document(document, source, names), None if stop else {}


def _check_environment(environment: Any, source: str) -> None:
    if isinstance(environment, dict) and environment.get("name") is None:
        raise ConfigError(
            f"{source}: its `config` has env=None, which is no environment. Give one, for example with "
            ".environment('CartPole-v1'), in a dict with 'env': 'CartPole-v1'."
        )


def _train_flags(args: argparse.Namespace) -> int:
    from reef.api.loading import job_from_document

    if "env" in (args.config or {}):
        env = args.config["env"]
        raise ConfigError(f"--config env={env!r}: the environment has a flag of its own. Give --env {env} instead.")
    missing = [flag for flag, value in (("--algo", args.algo), ("--env", args.env)) if not value]
    if missing:
        raise ConfigError(f"the following arguments are required: {', '.join(missing)}")
    if args.type:
        raise ConfigError(f"--type {args.type}: says what a file is. Give `file PATH`.")
    if args.overrides:
        raise ConfigError("--set changes a file: give --config or --stop.")
    if args.framework and (args.config or {}).get("framework", args.framework) != args.framework:
        raise ConfigError(
            f"--framework {args.framework}: --config says {args.config['framework']!r}. Give one of them."
        )
    job = job_from_document(_with_wandb(args, _document(args)), "the command line", FLAG_OF)
    return run_job(job, options_of(args), stop=args.stop or {})


def _document(args: argparse.Namespace) -> dict[str, Any]:
    experiment = {key: getattr(args, key) for key in KEYS if key != "run"} | {"run": args.algo}
    experiment["stop"] = UNTIL_STOPPED if args.stop is None else args.stop
    name = label(f"{args.algo}-{args.env}") if args.experiment_name is None else args.experiment_name
    return document_of(experiment, name, "the command line")
