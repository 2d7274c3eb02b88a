"""Puts a run together: the one place that makes workers and learners and hands them to an algorithm.

The command line, Python, the trials of a sweep and the head of a cluster's job all come here. It is the only module
that names lower layers, by string, so that Ray and the algorithms load when they are used.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from reef.allocator import keep_freed_memory
from reef.config import AlgorithmConfig
from reef.config.ignored import ignored_beside_others
from reef.config.loading import load
from reef.errors import ConfigError
from reef.learn.learner import Learner
from reef.learn.learners import Learners, local_learners
from reef.nn.policies import Policy
from reef.replay.settings import ReplayBufferConfig
from reef.replay.shards import LocalShards, ReplayShards
from reef.rollout.local_workers import LocalWorkers
from reef.rollout.seams import Workers
from reef.rollout.worker import RolloutWorker
from reef.run.algorithm import Algorithm, Parts
from reef.run.checkpoint import CheckpointStore, find_checkpoint, read_algorithm, read_metadata, restoring
from reef.run.checkpoint.policies import policies_of
from reef.run.evaluation import Evaluation
from reef.run.events import CheckpointSaved, Events, ResultReported, RunEnded, RunStarted
from reef.run.experiment import AT_END, CheckpointSettings, Experiment, Gate, check_settings, restore_start
from reef.run.folders import DEFAULT_FOLDER, choose_folder, places_of, require_place_of_output, with_output_in
from reef.run.process.deadline import BackgroundDeadline, Deadline
from reef.run.process.identity import Claim
from reef.run.process.watchdog import ReportEnd, Watchdog
from reef.run.remote.mirror import Mirror
from reef.run.reporters.batches import summarize_batches
from reef.run.reporters.console import Console
from reef.run.reporters.files import ResultFiles
from reef.run.reporters.own import own_reporters
from reef.run.reporters.reporter import Reporter, Summary
from reef.run.reporters.tensorboard import TensorBoardEvents
from reef.run.reporters.videos import keep_videos
from reef.run.signals import StopSignals
from reef.run.stopping import StopConditions
from reef.spaces import PolicySpaces
from reef.types import PolicyId, State

if TYPE_CHECKING:
    from reef.run.prometheus import RunState

log = logging.getLogger(__name__)
A = TypeVar("A", bound=Algorithm)
EXTERNAL = "reef.external.worker:ExternalWorker"  # a rollout worker that samples what applications play
READING = "reef.run.recorded.worker:ReadingWorker"  # one that reads recorded episodes
RANK = "reef.distributed.ranks.rank:Rank"  # a rollout worker that is a learner too


def run_experiment(
    config: AlgorithmConfig,
    *,
    stop: Mapping[str, float],
    checkpoint: CheckpointSettings = AT_END,
    name: str = "default",
    storage_path: str | Path = DEFAULT_FOLDER,
    local_folder: str | Path = DEFAULT_FOLDER,
    resume: bool = False,
    restore_from: str | None = None,
    metrics_port: int | None = None,
    run_state: RunState | None = None,
    signals: StopSignals | None = None,
    say: ReportEnd | None = None,
    local: RolloutWorker | None = None,
    gate: Gate = lambda workers: None,
    verbosity: int = 0,
    reporters: Sequence[Reporter] | None = None,
) -> Summary:
    """Train until a stop condition is met, in the folder `<storage_path>/<name>/<algorithm>_<environment>_<id>`.

    An object store as storage path gets a copy of what is below `local_folder`. `resume` goes on from the newest valid
    checkpoint there, `restore_from` of another. A signal ends it. `gate` is for before iterations, `say` for hangs.

    Raises:
        ConfigError: settings, stop keys or names are wrong; with all problems.
        StorageError: the storage path cannot be written (later a WriteError: a retry goes on), or uploads are missing.
        CheckpointError: the checkpoint to start from is missing, damaged or of another algorithm.
        Overdue: SIGTERM came, and workers that are not there were waited for before the first iteration.
    """
    config = check_settings(config, stop, checkpoint, name)
    parent, remote = places_of(storage_path, local_folder, name)
    folder, start = choose_folder(config, parent, resume, restore_from, remote)
    config, claim = with_output_in(config, folder), Claim()
    store = CheckpointStore(folder, checkpoint.keep, checkpoint.score_attribute)
    with ExitStack() as stack:
        signals = stack.enter_context(signals or StopSignals())
        run_state = run_state or serve_metrics(stack, metrics_port)

        def make(algorithm: Algorithm) -> Experiment:
            own, result = restore_start(algorithm, store, start, claim)
            return Experiment(
                algorithm=algorithm,
                name=name,
                folder=folder,
                stop=StopConditions(stop),
                settings=checkpoint,
                store=store,
                signals=signals,
                gate=gate,
                writing=lambda: claim.held(folder),
                checkpoint=own,
                result=result,
            )

        experiment = begin(stack, config, make, signals, reporting(config, run_state, reporters, verbosity), say, local)
        start = None  # what it held may be large
        mirror = Mirror(remote / folder.name, store, run_state, signals.deadline) if remote else None
        publish_checkpoints(stack, experiment, mirror, run_state)
        return experiment.run()


def begin(
    stack: ExitStack,
    config: AlgorithmConfig,
    make: Callable[[Algorithm], Experiment],
    signals: StopSignals,
    reporters: Sequence[Reporter],
    say: ReportEnd | None = None,
    local: RolloutWorker | None = None,
) -> Experiment:
    """A run of checked settings, watched for hangs, whose processes end with `stack`.

    `make` has the new algorithm go on from where it is to start, and makes the run of it.
    """
    watchdog = stack.enter_context(Watchdog(config, signals.patience_s, say))
    experiment = make(stack.enter_context(build_algorithm(config, local, signals.deadline)))
    for reporter in reporters:
        subscribe(reporter, experiment.events)
    watchdog.begin(experiment.algorithm.progress, experiment.rescue)
    return experiment


def reporting(
    config: AlgorithmConfig, run_state: RunState | None, shown: Sequence[Reporter] | None, verbosity: int
) -> list[Reporter]:
    """The reporters of a run: its files, `run_state`, those that show it (default: the console), and the user's own."""
    own = own_reporters(config.logger_creator, config.logger_config)
    shown = [Console(lines=verbosity > 0)] if shown is None else shown
    return [ResultFiles(), TensorBoardEvents(), *([run_state] if run_state else []), *shown, *own]


def subscribe(reporter: Reporter, events: Events) -> None:
    """Have a reporter called with what it shows."""
    events.subscribe(RunStarted, lambda event: reporter.start(event.run))
    events.subscribe(ResultReported, lambda event: reporter.report(event.result))
    events.subscribe(RunEnded, lambda event: reporter.finish(event.summary))


def publish_checkpoints(
    stack: ExitStack, experiment: Experiment, mirror: Mirror | None, run_state: RunState | None
) -> None:
    """Have `run_state` show new checkpoints; those that go to an object store once the mirror has them there."""
    if mirror is not None:
        experiment.mirror = stack.enter_context(mirror)
        experiment.events.subscribe(CheckpointSaved, lambda _: mirror.changed())
    elif run_state is not None:

        def show(saved: CheckpointSaved) -> None:
            run_state.saved(saved.path, saved.iteration, read_metadata(saved.path)["time"], saved.seconds)

        experiment.events.subscribe(CheckpointSaved, show)


def serve_metrics(stack: ExitStack, port: int | None) -> RunState | None:
    """A run state that is served on this machine until `stack` is closed, or None without a port."""
    if port is None:
        return None
    from reef.run.prometheus import MetricsServer, RunState  # start-up pays for it only where it is used

    run_state = RunState()
    server = MetricsServer(run_state, port)
    stack.callback(server.stop)
    log.info("metrics on http://127.0.0.1:%s/metrics", server.port)
    return run_state


def build_algorithm(
    config: AlgorithmConfig, local: RolloutWorker | None = None, deadline: Deadline | None = None
) -> Algorithm:
    """The algorithm of settings that were checked; `AlgorithmConfig.build` does so first.

    `local`: the worker of this process with these settings, where it is there already. `deadline`: of the run.

    Raises:
        ConfigError, EnvironmentError: environment, network or algorithm cannot be made.
        ResourceError, WorkerError: the cluster is too small, or none of the workers can be made.
    """
    if not config.algorithm_class:
        raise ConfigError(f"{config.label} names no algorithm. Use the configuration of one, such as PPOConfig.")
    require_place_of_output(config)
    algorithm_class: type[Algorithm] = load(config.algorithm_class, "algorithm")
    config, deadline, events = with_registered_envs(config), deadline or Deadline(), Events()
    evaluation = make_evaluation(config, deadline)
    with ExitStack() as on_failure:  # or their processes would stay behind
        if local is not None and local.config.output != config.output:
            local.stop()  # it tried the settings before there was a folder
            local = None
        if local is None:
            local = make_local_worker(config, with_env=samples_here(config))
        spaces = local.spaces
        learners = make_ray_learners(algorithm_class.learner_class, config, spaces, deadline)
        if learners is not None:
            on_failure.callback(learners.stop)
        workers = make_workers(config, config.num_rollout_workers, deadline, local, ask_for_room=evaluation.give_way)
        on_failure.callback(workers.stop)
        evaluation.check_spaces(spaces)
        evaluation.read_recorded(local)
        by_policy = [config.for_policy(name).ignored_settings(policy) for name, policy in local.policy_map.items()]
        for text in chain(ignored_beside_others(config), *by_policy):
            log.warning("%s", text)
        if learners is None:
            learners = make_learners(algorithm_class.learner_class, config, spaces, workers)
            on_failure.callback(learners.stop)
        parts = Parts(workers=workers, learners=learners, evaluation=evaluation, deadline=deadline, events=events)
        summarize_batches(events)
        algorithm = algorithm_class(config, parts=parts)
        keep_videos(algorithm)
        on_failure.pop_all()
    return algorithm


def build_alone(config: AlgorithmConfig) -> Algorithm:
    """As `build_algorithm`, for a loop of the caller's, whose results go nowhere."""
    if config.logger_creator is not None:
        log.warning(
            "logger_creator has no effect here, as config.build() makes no run with a result folder. Use reef train, "
            "or log in the hook on_train_result."
        )
    return build_algorithm(config)


def settings_of(kind: type[Algorithm], given: AlgorithmConfig | Mapping[str, Any]) -> AlgorithmConfig:
    """The settings of an algorithm of this class; a mapping has them by key, of which defaults count as not given.

    Raises:
        ConfigError: these are the settings of another algorithm, or a key is unknown.
    """
    settings = kind.config_class
    if isinstance(given, Mapping):
        usual = settings().to_dict()
        changed = {key: value for key, value in given.items() if not (key in usual and _same(value, usual[key]))}
        return settings.from_dict(changed)
    if not issubclass(settings, type(given)):
        raise ConfigError(
            f"{kind.__name__} got a {type(given).__name__}: give a {settings.__qualname__}, or a dict of its settings."
        )
    return given if type(given) is settings else settings().assign(given.changed())


def build_of_settings(kind: type[A], given: AlgorithmConfig | Mapping[str, Any], env: Any = None) -> A:
    """An algorithm of this class, with settings as `settings_of` takes them; ConfigError where they are wrong."""
    algorithm: Any = settings_of(kind, given).build(env)
    return algorithm  # type: ignore[no-any-return]


def _same(one: object, other: object) -> bool:
    return type(one) is type(other) and bool(one == other)


def build_from_checkpoint(path: str | Path) -> Algorithm:
    """The algorithm that wrote a checkpoint, with its settings, and restored."""
    path = find_checkpoint(path)
    state, metadata = read_algorithm(path)
    config: AlgorithmConfig = load("reef.algorithms.registry:stored_config")(metadata)
    return build_restored(config, path, state)


def load_policies(
    path: str | Path, policy_ids: Collection[PolicyId] | None = None, *, in_evaluation: bool = False
) -> dict[PolicyId, Policy]:
    """The policies of a checkpoint by id, or some of them, to act with; no environment is made, and they do not learn.

    `policy.compute_single_action(policy.observed(observation))` returns the action for an observation of the
    environment, of which `observed` makes what the network reads, by connector and filter. `in_evaluation`: they act as
    `reef evaluate` does, by `evaluation_config` and without exploration unless that asks for it.

    Raises CheckpointError for a checkpoint that cannot be read, is older than this, or lacks a policy.
    """
    path = find_checkpoint(path)
    state, metadata = read_algorithm(path)
    config: AlgorithmConfig = load("reef.algorithms.registry:stored_config")(metadata).checked()
    with restoring(path):
        return policies_of(config.evaluation_settings() if in_evaluation else config, state, policy_ids)


def build_restored(config: AlgorithmConfig, path: str | Path, state: State) -> Algorithm:
    """The algorithm of these settings with the `state` of the checkpoint at `path`; nothing is left of a failure."""
    with ExitStack() as on_failure:
        algorithm = config.build()
        on_failure.callback(algorithm.stop)
        with restoring(path):
            algorithm.take_over(state)
        on_failure.pop_all()
    return algorithm


def samples_here(config: AlgorithmConfig) -> bool:
    """Whether the worker of this process has environments, and does not only hold the policy."""
    return config.num_rollout_workers == 0 or config.create_env_on_local_worker


def make_local_worker(config: AlgorithmConfig, *, with_env: bool) -> RolloutWorker:
    """The worker of this process; its environment may read the variables that are set for the driver."""
    os.environ.update(config.extra_python_environs_for_driver)
    keep_freed_memory()  # within limits that those variables may set
    local: RolloutWorker = load(sampling_class(config))(with_registered_envs(config), with_env=with_env)
    with ExitStack() as on_failure:
        on_failure.callback(local.stop)
        local.require_likelihoods()
        on_failure.pop_all()
    return local


def sampling_class(config: AlgorithmConfig) -> str:
    """The path of the class of the workers that sample."""
    own = READING if config.reads_records and config.num_rollout_workers else config.worker_class
    return EXTERNAL if config.uses_policy_server else own or "reef.rollout.worker:RolloutWorker"


def with_registered_envs(config: AlgorithmConfig) -> AlgorithmConfig:
    """The settings, with what makes an environment that `ray.tune.register_env` knows in place of its name."""
    if "ray.tune.registry" not in sys.modules:  # nothing was registered
        return config
    found: AlgorithmConfig = load("reef.distributed.registered_envs:with_registered_envs")(config)
    return found


def make_workers(
    config: AlgorithmConfig, count: int, deadline: Deadline, local: RolloutWorker | None = None, **arguments: Any
) -> Workers:
    """The worker of this process, and `count` as Ray actors that sample in its place; `arguments`: of `RayWorkers`."""
    if count == 0:
        return LocalWorkers(config, local)
    ray_workers = load("reef.distributed.ray_workers:RayWorkers")
    own_class = RANK if config.decentralized else sampling_class(config)
    worker_class = RolloutWorker if arguments.get("evaluation") else own_class
    workers: Workers = ray_workers(config, count, local, worker_class=worker_class, deadline=deadline, **arguments)
    return workers


def make_evaluation(config: AlgorithmConfig, deadline: Deadline | None = None) -> Evaluation:
    """Evaluation, whose environment is tried, and whose workers are made when they are first needed."""
    own = BackgroundDeadline(deadline or Deadline())
    return Evaluation(config, partial(make_workers, deadline=own, evaluation=True), own)


def make_ray_learners(
    learner_class: type[Learner[Any]], config: AlgorithmConfig, spaces: PolicySpaces, deadline: Deadline
) -> Learners | None:
    """The learners as Ray actors; None where they are elsewhere.

    They come before rollout workers, which may else be where a learner alone has room, and do with less.
    """
    if config.num_learner_workers == 0:
        return None
    ray_learners = load("reef.distributed.ray_learners:RayLearners")
    learners: Learners = ray_learners(learner_class, config, spaces, deadline)
    return learners


def make_learners(
    learner_class: type[Learner[Any]], config: AlgorithmConfig, spaces: PolicySpaces, workers: Workers
) -> Learners:
    """The learner in this process, or the rollout `workers` themselves."""
    if config.decentralized and config.num_rollout_workers:
        ranks: Learners = load("reef.distributed.ranks.ray_ranks:RayRanks")(config, workers)
        return ranks
    return local_learners(learner_class, config, spaces, lambda: workers.num_here)


def make_shards(
    config: AlgorithmConfig, deadline: Deadline, settings: ReplayBufferConfig, *, most: int, **arguments: Any
) -> ReplayShards:
    """Replay shards, beside rollout workers as Ray actors; `arguments`: of `ReplayShards`, `most`: of `RayShards`."""
    if config.num_rollout_workers == 0:
        return LocalShards(settings, **arguments)
    ray_shards = load("reef.distributed.replay.ray_shards:RayShards")
    shards: ReplayShards = ray_shards(settings, config=config, deadline=deadline, most=most, **arguments)
    return shards
