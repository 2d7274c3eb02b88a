"""The head pod, `python -m reef.job.head`: Ray's head and the driver of the training, which resumes by itself.

Exit codes: 0 trained to the end, 2 the job is wrong, 143 ended by SIGTERM with a checkpoint, anything else a fault.
Code 0 without a result, as of `os._exit(0)` in an environment, is a fault as well (supervisor.py). In every ending a
termination message says how it was.
"""

from __future__ import annotations

if __name__ == "__main__":  # the rest takes a second to load, and SIGTERM waits for it
    import signal

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    from reef.job.supervisor import go_on_in_child

    report_to_parent = go_on_in_child()  # before there are threads, and while there is little memory to share

import contextlib
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from reef.api import RLTrainingJob, load_job
from reef.distributed.node_settings import address_of
from reef.errors import EXIT_FAILED, EXIT_OK, EXIT_TERMINATED, ConfigError, ReefError, ResourceError
from reef.job.capacity import Pods
from reef.job.cluster import Node, RayProcess, number, required
from reef.job.progress import HeadState, TerminationMessage
from reef.job.settings import check_training, checkpoint_settings, cluster_config_of
from reef.job.supervisor import termination_log
from reef.logs import WITH_TIME, log_to_stderr
from reef.output import named_stdout, output_shown
from reef.run.prometheus import MetricsServer
from reef.run.signals import StopSignals, Terminated, raise_on_sigterm
from reef.storage.object_store import MARKER, RemoteFolder, is_uri

if TYPE_CHECKING:
    from reef.api.pods import RuntimeEnv
    from reef.config import AlgorithmConfig
    from reef.rollout.worker import RolloutWorker
    from reef.run.reporters.reporter import Summary
    from reef.sweep.plan import Plan
    from reef.sweep.progress import SweepSummary

log = logging.getLogger(__name__)
START_S = 120.0  # how long Ray's head may take to start
WATCH_S, LOOKS_PER_PREPARE = 0.5, 10


@dataclass(frozen=True, kw_only=True)
class Pod:
    """What the head's environment says."""

    node: Node
    job_file: Path
    storage: str
    namespace: str
    name: str  # of the job
    uid: str  # of the job
    gcs_port: int
    patience_s: float  # how long training waits for the rest of the pods when there are enough
    linger_s: float  # how long a finished head goes on answering

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Pod:
        """Read the environment; ConfigError names what is missing or wrong."""
        return cls(
            node=Node.of(environment),
            job_file=Path(required(environment, "REEF_JOB_FILE")),
            storage=required(environment, "REEF_STORAGE_PATH"),
            namespace=required(environment, "REEF_NAMESPACE"),
            name=required(environment, "REEF_JOB_NAME"),
            uid=required(environment, "REEF_JOB_UID"),
            gcs_port=int(number(environment, "REEF_GCS_PORT", 6379)),
            patience_s=number(environment, "REEF_START_PATIENCE_SECONDS", 30),
            linger_s=number(environment, "REEF_LINGER_SECONDS", 0),
        )

    def results_of(self, job: RLTrainingJob) -> tuple[str, str]:
        """Place and name for the results; the uid keeps a job that is created again from resuming the old one."""
        storage = job.spec.checkpoint.storage
        place = storage.uri if storage and storage.uri else self.storage
        return f"{place.rstrip('/')}/{self.namespace}", f"{self.name}-{self.uid}"


def main() -> int:
    """Run the head and return its exit code."""
    log_to_stderr(WITH_TIME, logging.INFO)
    head_state = HeadState()
    termination, signals = TerminationMessage(termination_log(os.environ), head_state), StopSignals()
    with contextlib.ExitStack() as stack:
        # What user code prints in this process; Reef itself writes to stderr
        stack.enter_context(contextlib.redirect_stdout(stack.enter_context(named_stdout("head"))))
        try:
            raise_on_sigterm()
            termination.prepare()
            code, message = head(os.environ, head_state, stack, termination, signals)
        except Terminated:
            code, message = EXIT_TERMINATED, "ended by SIGTERM before the first iteration"
        except ReefError as error:
            code, message = error.exit_code, str(error)
            head_state.refused(error.statistics)
        except BaseException as error:  # also SystemExit of a user's environment: the message is owed in every ending
            traceback.print_exc()
            code, message = EXIT_FAILED, "".join(traceback.format_exception(error)).strip()
        if code != EXIT_OK:
            log.error("ends with exit code %d: %s", code, message)
        # Ray may have left it to the default, which ends without a message
        signal.signal(signal.SIGTERM, signals.note_sigterm)
        termination.write(code, message)
        with contextlib.suppress(Terminated):
            raise_on_sigterm()
            head_state.enter("done", message, exit_code=code)
            linger(code, head_state, signals)
    return code


def head(
    environment: Mapping[str, str],
    head_state: HeadState,
    stack: contextlib.ExitStack,
    termination: TerminationMessage,
    signals: StopSignals,
) -> tuple[int, str]:
    """Train as the job document says; returns the exit code and why it ended."""
    port = int(number(environment, "REEF_METRICS_PORT", 8080))
    server = MetricsServer(head_state, port, required(environment, "POD_IP"))
    stack.callback(server.stop)
    pod = Pod.of(environment)
    job = load_job(pod.job_file)
    head_state.final_codes = (EXIT_OK, *job.spec.fault_tolerance.no_retry_exit_codes)
    signals.patience_s = job.spec.fault_tolerance.termination_grace_period_seconds / 2
    take_runtime_env(job.spec.runtime_env)
    begun = has_begun(*pod.results_of(job))  # which asks the object store too, before anything waits for workers
    local = checked_process(job, pod.node, termination.write, begun=begun)
    plan = checked_sweep(job, local.config, pod.node, begun=begun)
    stack.enter_context(output_shown())
    from reef.distributed.resources import demands

    takes_workers = pods_of(job, pod.node).head_takes_workers(local.config)
    if takes_workers and job.spec.workers and plan is None and any(demand.in_pools for demand in demands(local.config)):
        log.info("rollout and evaluation workers that have no room in the pools may start in the head")
    stack.enter_context(ray_head(pod, termination, takes_workers=takes_workers))
    from reef.distributed.start import start

    with start(address_of(pod.node.ip, pod.gcs_port), runtime_env=job.spec.runtime_env):
        if plan is None:
            summary: Summary | SweepSummary = train(job, local, pod, head_state, signals, termination.write)
        else:
            summary = sweep(job, plan, pod, head_state, signals)
        signal.signal(signal.SIGTERM, signals.note_sigterm)  # how it ended is decided
    return summary.exit_code, summary.reason


def take_runtime_env(runtime_env: RuntimeEnv) -> None:
    """Give this process, which makes the environment too, the variables and local folders of the workers' processes."""
    for key, folder in runtime_env.folders.items():
        if not Path(folder).is_dir():
            raise ConfigError(
                f"spec.runtimeEnv.{key}: {folder!r} is no folder of the head pod. Mount it with spec.head.template, or "
                "build it into spec.image."
            )
    os.environ.update(runtime_env.env_vars)
    sys.path[:0] = runtime_env.import_path


def has_begun(storage_path: str, name: str) -> bool:
    """Whether an earlier head left results in this place; StorageError for an object store that cannot be used."""
    if not is_uri(storage_path):
        return (Path(storage_path) / name).is_dir()
    folder = (RemoteFolder(storage_path) / name).check()
    return bool(folder.folders() or folder.own_files().keys() - {MARKER})


def checked_process(
    job: RLTrainingJob, node: Node, say: Callable[[int, str], None] | None = None, *, begun: bool = False
) -> RolloutWorker:
    """The worker of this process, with the job's settings, which are checked against its pods.

    Everything that is wrong is said here, a hang to `say`. Pods that are too few are not wrong once the job has
    `begun`: they were scaled away, and may come again.
    """
    config = cluster_config_of(job, node.ip)
    if not job.spec.tune:
        with scaled_away_is_no_fault(begun):
            config = with_rollout_workers_that_fit(config, job, node)
    return check_training(job, config, job.spec.stop, say, here=not job.spec.tune)


@contextlib.contextmanager
def scaled_away_is_no_fault(begun: bool) -> Iterator[None]:
    """Say only what pods have no room for, where an earlier head had them."""
    try:
        yield
    except ResourceError as error:
        if not begun:
            raise
        log.warning("the job goes on when there are more pods: %s", error)


def checked_sweep(job: RLTrainingJob, config: AlgorithmConfig, node: Node, *, begun: bool = False) -> Plan | None:
    """The trials of the job, each checked against its pods as in `checked_process`; None without `spec.tune`."""
    from reef.sweep.plan import Plan

    if job.spec.tune is None:
        return None
    plan = Plan(job.spec.tune, config, job.spec.stop)
    with scaled_away_is_no_fault(begun):
        pods_of(job, node).check_trials(plan)
    return plan


def pods_of(job: RLTrainingJob, node: Node) -> Pods:
    """The pods of the job, with this one as its head."""
    return Pods(job.spec, node.cpus, node.gpus)


def with_rollout_workers_that_fit(config: AlgorithmConfig, job: RLTrainingJob, node: Node) -> AlgorithmConfig:
    """Say how many of the job's rollout workers have room in its pods; those that cannot wait for it are left out."""
    from reef.distributed.resources import may_wait_for_room

    asked = config.num_rollout_workers
    fitting = pods_of(job, node).rollout_workers_that_fit(config)
    if fitting == asked:
        return config
    room = f"num_rollout_workers={asked}: the job's pods have room for {fitting}"
    if may_wait_for_room(config):
        log.info("%s, the others start when there are more pods", room)
        return config
    log.warning("%s, which are used", room)
    return config.copy().rollouts(num_rollout_workers=fitting).checked()


@contextlib.contextmanager
def ray_head(pod: Pod, termination: TerminationMessage, *, takes_workers: bool) -> Iterator[None]:
    """Have Ray's head as a child process; when it ends by itself, so does this process, as a fault."""
    ray = RayProcess(pod.node.head_command(pod.gcs_port, takes_workers=takes_workers))
    try:
        if not ray.changed.wait(START_S) or not ray.ready:
            how = f"within {START_S:g} s" if ray.exit_code is None else f"and ended with exit code {ray.exit_code}"
            raise ReefError(f"Ray's head did not start {how}. Its last lines:\n{ray.last_lines}")
        watch = threading.Thread(target=watch_ray, args=(ray, termination), name="ray-watch", daemon=True)
        watch.start()
        yield
    finally:
        ray.stop()


def watch_ray(ray: RayProcess, termination: TerminationMessage) -> None:
    """End this process when Ray's head has ended: the driver would wait for it for a minute and then abort."""
    looks = 0
    while ray.exit_code is None:
        if looks % LOOKS_PER_PREPARE == 0:
            termination.prepare()
        looks += 1
        time.sleep(WATCH_S)
    if not ray.expected_to_end:
        message = f"Ray's head ended with exit code {ray.exit_code}. Its last lines:\n{ray.last_lines}"
        log.error("%s", message)
        termination.write(EXIT_FAILED, message)
        os._exit(EXIT_FAILED)


def train(
    job: RLTrainingJob,
    local: RolloutWorker,
    pod: Pod,
    head_state: HeadState,
    signals: StopSignals,
    say: Callable[[int, str], None] | None = None,
) -> Summary:
    """Wait for the pods and train, from the newest checkpoint where there is one."""
    from reef.distributed.resources import lacking_room
    from reef.job.waiting import LatestSpec, PoolGate, wait_for_pools
    from reef.run.build import run_experiment
    from reef.run.process.deadline import Overdue
    from reef.run.reporters.console import Console

    read_spec = LatestSpec(job.spec, lambda: load_job(pod.job_file).spec)
    wait_for_pools(read_spec, head_state, pod.patience_s)
    begins = partial(lacking_room, local.config, has_learners=False)
    PoolGate(read_spec, head_state, signals.deadline, lacking_room=begins).wait()
    head_state.enter("starting", "starting the rollout workers")
    storage_path, name = pod.results_of(job)
    try:
        return run_experiment(
            local.config,
            local=local,
            stop=job.spec.stop,
            checkpoint=checkpoint_settings(job),
            name=name,
            storage_path=storage_path,
            local_folder=pod.storage,
            resume=True,
            restore_from=job.spec.restore_from,
            run_state=head_state,
            signals=signals,
            say=say,
            gate=PoolGate(read_spec, head_state, signals.deadline, lacking_room=partial(lacking_room, local.config)),
            reporters=[Console(sys.stderr, lines=True)],
        )
    except Overdue as overdue:
        raise Terminated from overdue


def sweep(job: RLTrainingJob, plan: Plan, pod: Pod, head_state: HeadState, signals: StopSignals) -> SweepSummary:
    """Wait for the pods and run the trials; those that an earlier head ended are not run again."""
    from reef.job.waiting import LatestSpec, wait_for_pools
    from reef.tune.sweep import run_sweep

    wait_for_pools(LatestSpec(job.spec, lambda: load_job(pod.job_file).spec), head_state, pod.patience_s)
    head_state.enter("training")
    storage_path, name = pod.results_of(job)
    return run_sweep(
        plan,
        stop=job.spec.stop,
        checkpoint=checkpoint_settings(job),
        name=name,
        storage_path=storage_path,
        local_folder=pod.storage,
        resume=True,
        restore_from=job.spec.restore_from,
        run_state=head_state,
        signals=signals,
        max_failures=job.spec.fault_tolerance.backoff_limit,
        stream=sys.stderr,
    )


def linger(code: int, head_state: HeadState, signals: StopSignals) -> None:
    """Go on answering for a while after an end that is final, for clients that look every now and then.

    Not where SIGTERM came on the way to it: the pod is about to be killed.
    """
    if code in head_state.final_codes and head_state.has_begun and not signals.terminated:
        time.sleep(number(os.environ, "REEF_LINGER_SECONDS", 0))


if __name__ == "__main__":
    exit_code = main()
    report_to_parent(exit_code)
    sys.exit(exit_code)
