"""`reef evaluate CHECKPOINT`: runs the learnt policy and says how well it does."""

from __future__ import annotations

import argparse
import json
import math
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reef.cli.run import named
from reef.cli.train import json_mapping
from reef.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from reef.config import AlgorithmConfig
    from reef.run.algorithm import Algorithm
    from reef.run.reporters.episodes import EpisodeReporter
    from reef.run.reporters.videos import VideoFolder

DEFAULT_STEPS = 10_000
ALONE = {  # the settings of an algorithm without other processes and GPUs
    "num_rollout_workers": 0,
    "num_learner_workers": 0,
    "num_gpus": 0,
    "num_gpus_per_learner_worker": 0,
    "sample_async": False,
    "train_batch_size_per_learner": None,
    "record_env": False,
    "render_env": False,
    "output": None,
    "evaluation_interval": 1,  # an environment of evaluation's own is compared with that of training
}

BY_FLAG = {  # what else says so, for settings that --config would change without an effect
    "off_policy_estimation_methods": "give --estimate METHODS and --input PATH",
    "input_": "give --estimate METHODS and --input PATH",
    "evaluation_duration": "give --episodes N or --steps N",
    "evaluation_duration_unit": "give --episodes N or --steps N",
    "custom_evaluation_function": "episodes are played here. Call algorithm.evaluate() in Python",
    "record_env": "give --video-dir DIR",
    "render_env": "give --render",
    "output": "give --out FILE",
} | dict.fromkeys(
    ("num_rollout_workers", "num_learner_workers", "evaluation_num_workers", "num_gpus"),
    "an evaluation is one process without a GPU. Leave it out",
)


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], verbosity: argparse.ArgumentParser
) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "evaluate",
        aliases=["rollout"],
        parents=[verbosity],
        help="run the policy of a checkpoint and report its rewards",
    )
    parser.add_argument("checkpoint", nargs="?", help="checkpoint (a folder or a URI); without it, an untrained policy")
    parser.add_argument("--algo", "--run", "-a", "-r", metavar="NAME", help="algorithm, where no checkpoint names it")
    parser.add_argument("--env", "-e", metavar="ID", help="another environment than the checkpoint's")
    parser.add_argument("--config", "-c", type=json_mapping, default={}, metavar="JSON", help="settings to change")
    parser.add_argument(
        "--explore",
        action=argparse.BooleanOptionalAction,
        help="draw actions as in training instead of taking the best one; default: the checkpoint's evaluation_config, "
        "else the best one",
    )
    parser.add_argument("--episodes", type=_count, default=0, metavar="N", help="stop after N episodes (0: no limit)")
    parser.add_argument(
        "--steps",
        type=_count,
        metavar="N",
        help=f"stop after N steps (0: no limit); {DEFAULT_STEPS} when --episodes is not given",
    )
    parser.add_argument("--render", action=argparse.BooleanOptionalAction, default=False, help="show the environment")
    parser.add_argument(
        "--video-dir", type=named, metavar="DIR", help="record every episode as a video (needs imageio-ffmpeg)"
    )
    parser.add_argument(
        "--out",
        type=named,
        metavar="FILE",
        help="write every episode: as a line of JSON, or, where FILE ends with .parquet, a row for each step",
    )
    parser.add_argument("--save-info", action="store_true", help="with --out, also the environment's infos")
    parser.add_argument(
        "--track-progress",
        action="store_true",
        help="with --out, keep the numbers of episodes and steps so far in __progress_FILE beside it",
    )
    parser.add_argument(
        "--use-shelve", action="store_true", help="no effect: --out writes each episode when it ends, memory stays flat"
    )
    parser.add_argument("--local-mode", action="store_true", help="no effect: an evaluation is one process anyway")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON, and nothing else")
    _add_estimates(parser)
    parser.set_defaults(action=_command)


def _add_estimates(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--estimate",
        type=_methods,
        metavar="METHODS",
        help="play nothing, and estimate the policy's value from the episodes of --input, by is, wis, dm or dr, or by "
        "several with commas between them",
    )
    parser.add_argument(
        "--input",
        action="append",
        metavar="PATH",
        help="recorded episodes for --estimate: a file, a folder or a pattern",
    )


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number, 0 or more")
    return int(text)


def _methods(text: str) -> list[str]:
    names = text.split(",")
    if not all(names) or len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(f"{text!r}: expected methods such as is,wis, each once")
    return names


def _command(args: argparse.Namespace) -> int:
    if args.render and args.video_dir:
        raise ConfigError("--render and --video-dir exclude each other: an environment renders in one way.")
    if args.video_dir:
        _require_encoder()
    needy = [f"--{key.replace('_', '-')}" for key in ("save_info", "track_progress", "use_shelve") if vars(args)[key]]
    if needy and not args.out:
        raise ConfigError(f"{', '.join(needy)}: is about the file that --out names. Give --out FILE.")
    if args.use_shelve:
        warnings.warn(
            "--use-shelve has no effect: --out holds JSON lines and takes each episode as it ends.", stacklevel=1
        )
    if args.local_mode:
        warnings.warn("--local-mode has no effect: an evaluation is one process anyway.", stacklevel=1)
    if args.estimate or args.input:
        return _estimate(args)
    with ExitStack() as stack:
        reporter = _play(args, stack)
    reporter.summarize()
    return 0


def _estimate(args: argparse.Namespace) -> int:
    """Print estimates from recorded episodes."""
    if not (args.estimate and args.input):
        raise ConfigError("--estimate METHODS and --input PATH belong together. Give both.")
    played = ("episodes", "steps", "render", "video_dir", "out", "explore")
    if given := [f"--{key.replace('_', '-')}" for key in played if vars(args)[key]]:
        raise ConfigError(f"{', '.join(given)}: --estimate plays nothing. Leave it out.")
    config, build = _settings(args, methods={name: {"type": name} for name in args.estimate})
    with build() as algorithm:
        estimates = algorithm.evaluation.estimates(algorithm.workers.local_worker())
    if args.json:
        print(json.dumps(estimates))
        return 0
    print(f"mean return, discounted by gamma={config.gamma:g}, of recorded episodes and as estimated of the policy")
    for name, found in estimates.items():
        interval = f"{found['v_target_low']:.3f} to {found['v_target_high']:.3f} in 95 %"
        print(f"{name}: recorded {found['v_behavior']:.3f}, policy {found['v_target']:.3f} ({interval})")
    return 0


def _play(args: argparse.Namespace, stack: ExitStack) -> EpisodeReporter:
    """Play the episodes and report each; `stack` closes what that takes."""
    from reef.envs.check import check_display
    from reef.envs.context import env_context
    from reef.envs.failures import env_name
    from reef.envs.make import make_env
    from reef.offline.steps import STEP_KEYS
    from reef.rollout.recording import recording_worker
    from reef.rollout.videos.drawing import take_videos
    from reef.run.evaluation import tell_of_greedy
    from reef.run.process.watchdog import Watchdog
    from reef.run.reporters.episodes import EpisodeReporter

    config, build = _settings(args)
    drawn = {"record_env": args.video_dir or False, "render_env": args.render}
    settings = config.evaluation_settings().assign(drawn)
    watchdog = stack.enter_context(Watchdog(settings))
    algorithm = stack.enter_context(build())
    trained = algorithm.workers.local_worker()
    tell_of_greedy(config, trained)
    if args.render:
        check_display(env_name(settings.env))
    env = make_env(settings, env_context(settings, 0, recreated=False))
    stack.callback(env.close)
    worker, recorded = recording_worker(settings, trained, env, STEP_KEYS[: 6 + args.save_info] if args.out else ())
    reporter = stack.enter_context(EpisodeReporter(args.out, track_progress=args.track_progress, as_json=args.json))
    videos = _video_folder(args.video_dir) if args.video_dir else None
    watchdog.begin(lambda: worker.progress, lambda: "every episode that ended was reported.")
    limit = (DEFAULT_STEPS if args.steps is None and not args.episodes else args.steps) or math.inf
    while reporter.episodes < (args.episodes or math.inf) and reporter.steps < limit:
        recorded.begin(reporter.episodes + 1, limit - reporter.steps)
        worker.sample_episodes(1)
        if videos is not None:
            videos.write_all(take_videos(worker), algorithm.iteration)
        reporter.report(recorded.episode)
    return reporter


def _settings(
    args: argparse.Namespace, methods: dict[str, dict[str, Any]] | None = None
) -> tuple[AlgorithmConfig, Callable[[], Algorithm]]:
    """The settings, and what makes their algorithm in this process alone, whatever workers and GPUs trained it.

    `methods`: by which to estimate from `--input`.
    """
    from reef.algorithms.registry import config_class, stored_config
    from reef.config.groups.inputs import SAMPLER
    from reef.rollout.local_workers import without_episodes
    from reef.run.build import build_restored
    from reef.run.checkpoint import find_checkpoint, read_algorithm, restoring

    state = None
    if args.checkpoint:
        state, metadata = read_algorithm(find_checkpoint(args.checkpoint))
        config = stored_config(metadata)
        if args.algo and config_class(args.algo) is not type(config):
            raise ConfigError(f"--algo {args.algo}: the checkpoint is of {config.algorithm}. Leave --algo out.")
    elif not (args.algo and args.env):
        raise ConfigError("give a checkpoint, or --algo and --env for an untrained policy.")
    else:
        config = config_class(args.algo)()
    config.train_batch_size = config.total_train_batch_size
    _forget_estimates(config, keep_split=bool(methods))
    _change(config, args)
    if config.uses_policy_server:
        _in_an_environment(config)
    config.off_policy_estimation_methods, before = methods or {}, config.evaluation_config
    config.evaluation_config = {**before, "input_": args.input if methods else SAMPLER}
    config = config.update_from_dict(ALONE).checked()
    # an evaluation may explore as training could not learn from
    built = config.copy().assign({"explore": False}).checked()
    if state is None:
        return config, built.build
    with restoring(args.checkpoint):  # episodes that training was in need not be played again
        state |= {"workers": without_episodes(state["workers"])}
    return config, partial(build_restored, built, args.checkpoint, state)


def _forget_estimates(config: AlgorithmConfig, *, keep_split: bool) -> None:
    """Leave out how to read the recorded episodes of training, which says nothing of other files.

    `keep_split`: keep whether episodes or steps are compared, as there are methods.
    """
    from reef.config.groups.inputs import FOR_INPUT

    own = config.evaluation_config
    config.evaluation_config = {key: own[key] for key in own if key not in FOR_INPUT}
    if not keep_split:
        config.ope_split_batch_by_episode = True


def _in_an_environment(config: AlgorithmConfig) -> None:
    """Have a policy that was trained by applications play in an environment, with no server that waits for them."""
    from reef.config.groups.inputs import FOR_INPUT, SAMPLER

    env = config.env or config.evaluation_config.get("env")
    if env is None:
        raise ConfigError(
            "this policy was trained by applications with their own loop: give --env, an environment with its spaces."
        )
    config.update_from_dict({"input_": SAMPLER, **FOR_INPUT, "env": env})


def _change(config: AlgorithmConfig, args: argparse.Namespace) -> None:
    """Let the command line count more than the checkpoint's settings, and than its settings of evaluation."""
    from reef.config.aliases import translate

    given = translate(args.config) | ({"env": args.env} if args.env else {})
    if args.explore is not None:
        if given.get("explore", args.explore) != args.explore:
            raise ConfigError(f"--explore and --config explore={given['explore']}: they differ. Give one of them.")
        given["explore"] = args.explore
    before, own = config.evaluation_config, given.get("evaluation_config", {})
    _refuse_without_effect(config, given, "")
    if isinstance(own, dict):
        _refuse_without_effect(config, own, "evaluation_config.")
    over = {key: given[key] for key in given.keys() & {"explore", *before} if key != "evaluation_config"}
    if isinstance(changed := given.get("env_config"), dict):
        given["env_config"] = {**config.env_config, **changed}
        over["env_config"] = {**before.get("env_config", {}), **changed}
    config.update_from_dict(given)
    if isinstance(own, dict):  # else it is refused as it is
        config.evaluation_config = {**before, **over, **(config.evaluation_config if own else {})}
        if isinstance(own.get("env_config"), dict):
            settings = before.get("env_config", {}) | over.get("env_config", {}) | own["env_config"]
            config.evaluation_config["env_config"] = settings


def _refuse_without_effect(config: AlgorithmConfig, given: Mapping[str, Any], prefix: str) -> None:
    """Raise ConfigError for a setting that a flag says, unless it stays what it is, or becomes what it is here."""
    for key in given.keys() & BY_FLAG.keys():
        before = getattr(config, key)
        if given[key] not in (before, ALONE.get(key, before)):
            raise ConfigError(f"--config {prefix}{key}={given[key]!r}: has no effect here: {BY_FLAG[key]}.")


def _require_encoder() -> None:
    from reef.rollout.videos.encoder import INSTALL, has_encoder

    if not has_encoder():
        raise ConfigError(f"--video-dir needs imageio-ffmpeg to write mp4 files: {INSTALL}.")


def _video_folder(path: str) -> VideoFolder:
    """The folder for videos, which is made; StorageError where that fails."""
    from reef.run.reporters.videos import VideoFolder

    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"--video-dir {path}: cannot be written: {error.strerror}.") from error
    return VideoFolder(path)
