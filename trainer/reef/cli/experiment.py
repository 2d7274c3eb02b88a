"""From a job document to a training in this process: settings, resources, and what only Kubernetes does."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reef.errors import ConfigError
from reef.job.capacity import Pods
from reef.job.settings import check_training, checkpoint_settings, config_of

if TYPE_CHECKING:
    from reef.api import RLTrainingJob
    from reef.api.pods import PodSettings
    from reef.config import AlgorithmConfig
    from reef.distributed.start import RaySession
    from reef.rollout.worker import RolloutWorker

DEFAULT_STORAGE_PATH = "~/reef_results"
WORKER_COUNTS = ("num_rollout_workers", "num_learner_workers", "evaluation_num_workers")
_LOG_LEVELS = ("", "INFO", "DEBUG")
_POD_FIELDS = ("node_selector", "tolerations", "affinity", "priority_class_name", "scheduler_name", "template")
_SPEC_FIELDS = (
    "external_input", "image", "image_pull_policy", "image_pull_secrets", "runtime_env", "fault_tolerance", "suspend",
    "active_deadline_seconds", "pre_running_deadline_seconds", "ttl_seconds_after_finished", "cleanup",
)  # fmt: skip


@dataclass(frozen=True)
class Options:
    """What a person decides for this run and not in the job document."""

    storage_path: str | Path | None = None  # None: what the document says, else DEFAULT_STORAGE_PATH
    resume: bool = False
    metrics_port: int | None = None
    verbosity: int = 0
    ray_address: str | None = None  # a running cluster, in place of a local Ray
    ray_num_cpus: float | None = None
    ray_num_gpus: float | None = None
    ray_object_store_memory: int | None = None  # bytes
    ray_num_nodes: int | None = None
    ray_ui: bool = False
    local_mode: bool = False  # everything in this process


def run_job(job: RLTrainingJob, options: Options, *, stop: Mapping[str, float] | None = None) -> int:
    """Train a job in this process and return the exit code; `stop` takes the place of the job's own conditions."""
    also = {"log_level": _LOG_LEVELS[min(options.verbosity, 2)]} if options.verbosity else {}
    config = config_of(job, **also)
    if options.local_mode:
        config = in_this_process(job, config)
    notice = kubernetes_notice(job)
    if notice:
        print(notice)
    conditions = dict(job.spec.stop if stop is None else stop)
    if job.spec.tune:
        return _sweep(job, config, options, conditions)
    if not any(getattr(config, key) for key in WORKER_COUNTS):
        return _train(job, config, options, conditions)
    return _train_with_ray(job, config, options, conditions)


def in_this_process(job: RLTrainingJob, config: AlgorithmConfig) -> AlgorithmConfig:
    """The settings without other processes; raises ConfigError for a sweep, whose trials are processes."""
    if job.spec.tune:
        raise ConfigError(
            "--local-mode: the trials of a sweep are processes. Train with one set of values to debug it."
        )
    counts = {key: 0 for key in WORKER_COUNTS if getattr(config, key)}
    return config.copy().assign(counts).checked() if counts else config


def _train_with_ray(job: RLTrainingJob, config: AlgorithmConfig, options: Options, stop: dict[str, float]) -> int:
    """Have Ray for the length of the training: a local one as large as the job's pools."""
    pods = local_pods(job) if options.ray_address is None else None
    if pods and options.ray_num_cpus is None and options.ray_num_gpus is None:
        config = with_workers_that_fit(config, pods)
    local = _checked_process(job, config, stop)
    from reef.distributed.resources import check_resources

    with _session(options, pods):
        check_resources(config)  # now, also for workers that only a later evaluation starts
        return _train(job, config, options, stop, local)


def _session(options: Options, pods: Pods | None) -> RaySession:
    """Join the cluster that was named, or start a local Ray as large as these pods, or as this machine."""
    from reef.distributed.start import start

    return start(
        options.ray_address,
        num_cpus=_total(pods, "CPU") if options.ray_num_cpus is None else options.ray_num_cpus,
        num_gpus=_total(pods, "GPU") if options.ray_num_gpus is None else options.ray_num_gpus,
        object_store_memory=options.ray_object_store_memory,
        num_nodes=options.ray_num_nodes,
        dashboard=options.ray_ui,
        show_output=options.verbosity > 1,
    )


def _checked_process(
    job: RLTrainingJob, config: AlgorithmConfig, stop: Mapping[str, float], *, here: bool = True
) -> RolloutWorker:
    """As `check_training`: finds in seconds what would else be found over Ray, in a minute and in a worker."""
    from reef.learn.device import learner_device

    local = check_training(job, config, stop, here=here)
    if not config.num_learner_workers:
        learner_device(config)
    return local


def local_pods(job: RLTrainingJob) -> Pods | None:
    """The pods of which a local Ray is made; None for a job without pools: it is as large as this machine."""
    return Pods.wanted_by(job.spec) if job.spec.workers else None


def with_workers_that_fit(config: AlgorithmConfig, pods: Pods) -> AlgorithmConfig:
    """The settings without the rollout workers that have no room in the job's pods, of which a local Ray is made."""
    asked = config.num_rollout_workers
    fitting = pods.rollout_workers_that_fit(config, on_one_machine=True)
    if fitting == asked:
        return config
    warnings.warn(f"num_rollout_workers={asked}: the job's pods have room for {fitting}, which are used.", stacklevel=1)
    return config.copy().rollouts(num_rollout_workers=fitting).checked()


def _total(pods: Pods | None, resource: str) -> float | None:
    return (pods and pods.total(resource)) or None


def _train(
    job: RLTrainingJob,
    config: AlgorithmConfig,
    options: Options,
    stop: dict[str, float],
    local: RolloutWorker | None = None,
) -> int:
    from reef.run.build import run_experiment

    result = run_experiment(
        config,
        stop=stop,
        checkpoint=checkpoint_settings(job),
        name=job.metadata.name,
        storage_path=storage_path_of(job, options),
        resume=options.resume,
        restore_from=job.spec.restore_from,
        metrics_port=options.metrics_port,
        verbosity=options.verbosity,
        local=local,
    )
    exit_code: int = result.exit_code
    print()
    if result.result is None:
        print("No iteration ended, nothing was written.")
        return exit_code
    _print_results(result.folder, result.uri)
    if result.picture:
        print(f"Learning curve  {result.picture}")
    _print_checkpoint(
        f"{result.uri}/{result.checkpoint.name}" if result.uri and result.checkpoint else result.checkpoint
    )
    return exit_code


def _sweep(job: RLTrainingJob, config: AlgorithmConfig, options: Options, stop: dict[str, float]) -> int:
    from reef.run.build import serve_metrics
    from reef.sweep.plan import Plan, described

    assert job.spec.tune is not None, "a sweep was asked for"
    plan = Plan(job.spec.tune, config, stop)
    _checked_process(job, config, stop, here=False)
    with ExitStack() as stack:
        run_state = serve_metrics(stack, options.metrics_port)
        stack.enter_context(_session(options, local_pods(job) if options.ray_address is None else None))
        from reef.distributed.resources import check_resources
        from reef.tune.sweep import run_sweep

        for trial in plan.trials:
            check_resources(plan.config(trial), with_driver=True)
        result = run_sweep(
            plan,
            stop=stop,
            checkpoint=checkpoint_settings(job),
            name=job.metadata.name,
            storage_path=storage_path_of(job, options),
            resume=options.resume,
            restore_from=job.spec.restore_from,
            run_state=run_state,
            max_failures=job.spec.fault_tolerance.backoff_limit,
        )
    print(f"\n{result.reason}")
    _print_results(result.folder, result.uri)
    if (best := result.best) is not None:
        print(f"Best trial      {best.name} ({described(best.parameters)}), iteration {best.iteration}")
        _print_checkpoint(result.checkpoint)
    exit_code: int = result.exit_code
    return exit_code


def _print_results(folder: Path, uri: str | None) -> None:
    print(f"Results         {uri or folder}")
    if uri:
        print(f"Copy of them    {folder}")


def _print_checkpoint(checkpoint: str | Path | None) -> None:
    from reef.config.loading import LAST_FOLDER

    if checkpoint:
        print(f"Checkpoint      {checkpoint}")
        folders = [folder for folder in (os.environ.get("PYTHONPATH"), os.environ.get(LAST_FOLDER)) if folder]
        path = f"PYTHONPATH={shlex.quote(':'.join(folders))} " if LAST_FOLDER in os.environ else ""
        print(f"\nSee what it learnt:\n  {path}{_command()} evaluate {shlex.quote(str(checkpoint))} --episodes 10")
    else:
        print("Checkpoint      none was written: checkpoint.atEnd is false and checkpoint.frequency was not reached")


def _command() -> str:
    """How a person calls this program: by its path where the shell would not find it, or find another one."""
    called, found = Path(sys.argv[0]), shutil.which("reef")
    if called.name != "reef" or (found and Path(found).resolve() == called.resolve()):
        return "reef"
    return shlex.quote(str(called))


def storage_path_of(job: RLTrainingJob, options: Options) -> str | Path:
    """Where results go: what the command line says, else the document's object store, else the usual folder."""
    storage = job.spec.checkpoint.storage
    return options.storage_path or (storage and storage.uri) or DEFAULT_STORAGE_PATH


def kubernetes_notice(job: RLTrainingJob) -> str:
    """Say in one sentence which given fields have no effect outside a cluster; "" when there is none."""
    fields = list(_kubernetes_fields(job))
    return f"Only Kubernetes acts on these, they have no effect here: {', '.join(fields)}." if fields else ""


def _kubernetes_fields(job: RLTrainingJob) -> Iterator[str]:
    spec = job.spec
    if spec.tune:
        yield from _given("faultTolerance", spec.fault_tolerance, but="backoff_limit")  # how often a trial may be lost
    given = spec.model_fields_set - ({"fault_tolerance"} if spec.tune else set())
    yield from (_alias(spec, field) for field in _SPEC_FIELDS if field in given)
    if spec.checkpoint.storage:
        yield from _given("checkpoint.storage", spec.checkpoint.storage, but="uri")
    pods: list[tuple[str, PodSettings]] = [("head", spec.head)]
    pods += [(f"workers[{index}]", pool) for index, pool in enumerate(spec.workers)]
    for place, pod in pods:
        for field in (*_POD_FIELDS, "min_replicas"):
            if field in pod.model_fields_set:
                yield f"{place}.{_alias(pod, field)}"
        for kind in ("requests", "limits"):
            yield from (f"{place}.resources.{kind}.{name}" for name in getattr(pod.resources, kind) if name != "cpu")
        for field in ("product", "resource_name"):
            if pod.gpu and field in pod.gpu.model_fields_set:
                yield f"{place}.gpu.{_alias(pod.gpu, field)}"


def _given(place: str, model: Any, *, but: str) -> Iterator[str]:
    """The paths of a model's given fields, except one."""
    yield from (f"{place}.{_alias(model, field)}" for field in sorted(model.model_fields_set - {but}))


def _alias(model: Any, field: str) -> str:
    return type(model).model_fields[field].alias or field
