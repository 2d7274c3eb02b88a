"""`reef evaluate CHECKPOINT`: runs the learnt policy and says how well it does."""

from __future__ import annotations

import argparse
import json
import math
import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from reef.cli.train import json_mapping
from reef.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from reef.config import AlgorithmConfig
    from reef.run.algorithm import Algorithm
    from reef.spaces import Layout

DEFAULT_STEPS = 10_000
PROGRESS_PREFIX = "__progress_"
ALONE = {  # the settings of an algorithm without other processes and GPUs
    "num_rollout_workers": 0,
    "num_learner_workers": 0,
    "num_gpus": 0,
    "num_gpus_per_learner_worker": 0,
    "sample_async": False,
    "train_batch_size_per_learner": None,
}


@dataclass
class PlayedEpisode:
    """One episode as it was played."""

    number: int
    reward: float = 0.0
    length: int = 0
    complete: bool = False  # False: the step limit cut it
    steps: list[dict[str, Any]] = field(default_factory=list)  # filled only when somebody wants to keep them


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
    parser.add_argument("--render", action="store_true", help="show the environment")
    parser.add_argument("--video-dir", metavar="DIR", help="record every episode as a video (needs moviepy)")
    parser.add_argument("--out", metavar="FILE", help="write every episode as a line of JSON")
    parser.add_argument("--save-info", action="store_true", help="with --out, also the environment's infos")
    parser.add_argument(
        "--track-progress",
        action="store_true",
        help=f"with --out, keep the numbers of episodes and steps so far in {PROGRESS_PREFIX}FILE beside it",
    )
    parser.add_argument(
        "--use-shelve", action="store_true", help="no effect: --out writes each episode when it ends, memory stays flat"
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON, and nothing else")
    parser.set_defaults(action=_command)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number, 0 or more")
    return int(text)


def _command(args: argparse.Namespace) -> int:
    if args.render and args.video_dir:
        raise ConfigError("--render and --video-dir exclude each other: an environment renders in one way.")
    if args.video_dir and find_spec("moviepy") is None:
        raise ConfigError(
            "--video-dir needs moviepy to write mp4 files: pip install moviepy, or Reef with its extra 'video'."
        )
    about_out = ("save_info", "track_progress", "use_shelve")
    needy = [f"--{name.replace('_', '-')}" for name in about_out if vars(args)[name]]
    if needy and not args.out:
        raise ConfigError(f"{', '.join(needy)}: is about the file that --out names. Give --out FILE.")
    if args.use_shelve:
        warnings.warn(
            "--use-shelve has no effect: --out holds JSON lines and takes each episode as it ends.", stacklevel=1
        )
    from reef.run.evaluation import tell_of_greedy

    with ExitStack() as stack:
        algorithm = stack.enter_context(_algorithm(args))
        settings = algorithm.config.evaluation_settings()
        tell_of_greedy(algorithm.config, algorithm.workers.local_worker())
        env = _environment(settings, args)
        stack.callback(env.close)
        if args.track_progress:
            _write_progress(args.out, 0, 0)  # before any episode: here it turns out whether it can be written
        out = stack.enter_context(_appending(args.out)) if args.out else None
        finished: list[PlayedEpisode] = []
        complete = steps = 0
        for episode in _episodes(algorithm, env, settings, args):
            if out and not finished and os.path.isfile(args.out):  # which /dev/stdout need not be
                out.truncate(0)  # an older file stays until there is something to take its place
            finished.append(episode)
            _report(episode, args, out)
            episode.steps.clear()
            complete, steps = complete + episode.complete, steps + episode.length
            if args.track_progress:
                _write_progress(args.out, complete, steps)
    _summarize(finished, as_json=args.json)
    return 0


@contextmanager
def _appending(path: str) -> Iterator[TextIO]:
    """The file `path`; one that was not there before is removed again if nothing comes to be in it."""
    new = not os.path.lexists(path)
    with _opened(path) as out:
        try:
            yield out
        finally:
            if new and not out.tell():
                os.unlink(path)


def _opened(path: str) -> TextIO:
    try:
        return open(path, "a", encoding="utf-8")
    except OSError as error:
        raise StorageError(f"--out {path}: cannot be written: {error.strerror}.") from error


def _algorithm(args: argparse.Namespace) -> Algorithm:
    """Build the algorithm in this process alone, whatever workers and GPUs it was trained with."""
    from reef.algorithms.registry import config_class, stored_config
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
    _change(config, args)
    config.update_from_dict(ALONE)
    if state is None:
        return config.build()
    with restoring(args.checkpoint):  # episodes that training was in need not be played again
        state |= {"workers": without_episodes(state["workers"])}
    return build_restored(config, args.checkpoint, state)


def _change(config: AlgorithmConfig, args: argparse.Namespace) -> None:
    """Let the command line count more than the checkpoint's settings, and than its settings of evaluation."""
    from reef.config.aliases import translate

    given = translate(args.config) | ({"env": args.env} if args.env else {})
    if args.explore is not None:
        if given.get("explore", args.explore) != args.explore:
            raise ConfigError(f"--explore and --config explore={given['explore']}: they differ. Give one of them.")
        given["explore"] = args.explore
    before, own = config.evaluation_config, given.get("evaluation_config", {})
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


def _environment(settings: AlgorithmConfig, args: argparse.Namespace) -> Any:
    from reef.envs.make import EnvContext, make_env

    mode = "human" if args.render else "rgb_array" if args.video_dir else None
    env = make_env(settings, EnvContext(settings.env_config), render_mode=mode)
    if not args.video_dir:
        return env
    try:
        Path(args.video_dir).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        env.close()
        raise StorageError(f"--video-dir {args.video_dir}: cannot be written: {error.strerror}.") from error
    from gymnasium.wrappers import RecordVideo

    with warnings.catch_warnings():
        if not any(Path(args.video_dir).iterdir()):  # Gymnasium takes a folder that is there for one with videos
            warnings.filterwarnings("ignore", message=".*Overwriting existing videos")
        return RecordVideo(env, args.video_dir, episode_trigger=lambda number: True)


def _episodes(
    algorithm: Algorithm, env: Any, settings: AlgorithmConfig, args: argparse.Namespace
) -> Iterator[PlayedEpisode]:
    limit = args.steps if args.steps is not None else 0 if args.episodes else DEFAULT_STEPS
    number = steps = 0
    while (not args.episodes or number < args.episodes) and (not limit or steps < limit):
        number += 1
        seed = settings.seed if number == 1 else None
        episode = _play(algorithm, env, settings, PlayedEpisode(number), seed, limit - steps if limit else None, args)
        steps += episode.length
        yield episode


def _play(
    algorithm: Algorithm,
    env: Any,
    settings: AlgorithmConfig,
    episode: PlayedEpisode,
    seed: int | None,
    limit: int | None,
    args: argparse.Namespace,
) -> PlayedEpisode:
    from reef.envs.failures import env_name

    name, layout = env_name(settings.env), algorithm.get_policy().observation_layout
    with _guarded(name, "reset", episode):
        obs, _ = env.reset(seed=seed)
        _check_obs(obs, layout)
    state, reward = None, 0.0
    while not episode.complete and (limit is None or episode.length < limit):
        action, state, _ = algorithm.compute_single_action(
            obs, state, prev_reward=reward, explore=settings.explore, full_fetch=True
        )
        with _guarded(name, "step", episode):
            next_obs, reward, terminated, truncated, info = env.step(action)
            _check_obs(next_obs, layout)
            if not math.isfinite(reward := float(reward)):
                raise ValueError(f"reward is {reward}, expected a finite number")
            ended = bool(terminated or truncated)
        episode.reward += reward
        episode.length += 1
        episode.complete = ended or episode.length == settings.horizon
        if args.out:
            step = {"obs": obs, "action": action, "next_obs": next_obs, "reward": reward}
            step |= {"terminated": bool(terminated), "truncated": bool(truncated)}
            episode.steps.append(step | ({"info": info} if args.save_info else {}))
        obs = next_obs
    return episode


@contextmanager
def _guarded(name: str, call: str, episode: PlayedEpisode) -> Iterator[None]:
    """What the environment raises, or returns that cannot be used, becomes a message that says where."""
    try:
        yield
    except Exception as error:
        from reef.envs.failures import failure

        raise failure(name, call, f"after {episode.length} steps of episode {episode.number}", error) from error


def _check_obs(obs: Any, layout: Layout) -> None:
    import numpy as np

    values = layout.flatten(obs)
    if values.shape != layout.shape:
        raise ValueError(f"obs has the shape {values.shape}, expected {layout.shape}")
    if not np.isfinite(values).all():
        index = np.argwhere(~np.isfinite(values))[0]
        raise ValueError(f"obs has {values[tuple(index)]} at index {index.tolist()}, expected finite numbers")


def _report(episode: PlayedEpisode, args: argparse.Namespace, out: TextIO | None) -> None:
    from reef.run.metrics import json_safe

    if not args.json:
        cut = "" if episode.complete else ", cut by the step limit"
        print(f"Episode #{episode.number}: reward: {episode.reward:g} ({episode.length} steps{cut})")
    if out:
        out.write(json.dumps(json_safe(vars(episode))) + "\n")
        out.flush()  # a process that is killed leaves every episode that it finished


def _write_progress(out: str, episodes: int, steps: int) -> None:
    """Replace the progress file beside `out`, so that a reader never sees half of it."""
    path = Path(out).with_name(f"{PROGRESS_PREFIX}{Path(out).name}")
    new = path.with_name(f"{path.name}.tmp")
    try:
        new.write_text(f"episodes {episodes}\nsteps {steps}\n", encoding="utf-8")
        new.replace(path)
    except OSError as error:
        raise StorageError(f"--track-progress: {path} cannot be written: {error.strerror}.") from error


def _summarize(episodes: list[PlayedEpisode], *, as_json: bool) -> None:
    complete = [episode for episode in episodes if episode.complete]
    rewards = [episode.reward for episode in complete]
    count = len(complete)
    mean = sum(rewards) / count if count else None
    length = sum(episode.length for episode in complete) / count if count else None
    if as_json:
        summary = {
            "episodes": count,
            "steps": sum(episode.length for episode in episodes),
            "episode_reward_mean": mean,
            "episode_reward_min": min(rewards, default=None),
            "episode_reward_max": max(rewards, default=None),
            "episode_len_mean": length,
            "episode_rewards": rewards,
        }
        print(json.dumps(summary))
    elif count:
        spread = f"{min(rewards):g} to {max(rewards):g}"
        print(f"{count} complete episode{'s' * (count != 1)}: mean reward {mean:g} ({spread}), mean length {length:g}")
    else:
        print("No episode was complete: raise --steps.")
