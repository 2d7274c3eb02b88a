"""From a job document to the settings of its training: for `reef run` and for the head of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from reef.errors import ConfigError

if TYPE_CHECKING:
    from reef.api import JobSpec, RLTrainingJob
    from reef.config import AlgorithmConfig
    from reef.rollout.worker import RolloutWorker
    from reef.run.experiment import CheckpointSettings
    from reef.run.process.watchdog import ReportEnd

RESTART_DELAY_S = 5.0  # between two restarts of one worker of a cluster's job


def config_of(job: RLTrainingJob, **also: Any) -> AlgorithmConfig:
    """Return the checked settings of a job's algorithm, and those in `also`, frozen.

    Raises:
        ConfigError: the algorithm is unknown, or settings are unknown, wrong or contradict each other.
    """
    from reef.algorithms.registry import config_class
    from reef.config.applications import EXTERNAL
    from reef.job.external_input import check_external_input

    spec = job.spec
    for key, field in (("env", "name"), ("env_config", "config")):
        if key in spec.config:
            raise ConfigError(f"spec.config.{key}: belongs to spec.environment.{field}. Move it there.")
    config = config_class(spec.algorithm).from_dict(spec.config).assign(also)
    if pools_decide(spec):
        config.num_rollout_workers = spec.num_rollout_workers
    name = None if spec.environment.name == EXTERNAL else spec.environment.name
    config = config.environment(name, env_config=dict(spec.environment.config)).checked()
    if spec.external_input:
        check_external_input(config)
    return config


def pools_decide(spec: JobSpec) -> bool:
    """Whether there are as many rollout workers as the pools say: the settings name no number.

    Not in a sweep, whose trials share the pools: there each samples in its own process unless the settings say more.
    """
    from reef.config.aliases import RENAMED

    spellings = {"num_rollout_workers", *(old for old, new in RENAMED.items() if new == "num_rollout_workers")}
    return not spec.tune and not spellings & spec.config.keys()


def cluster_config_of(job: RLTrainingJob, pod_ip: str = "") -> AlgorithmConfig:
    """As `config_of`, with failed workers replaced, and soon, unless the document says otherwise.

    A policy server that others reach has a token.
    """
    from reef.config.aliases import translate
    from reef.job.external_input import check_guarded, open_to_applications

    given, also = translate(job.spec.config).keys(), dict[str, Any]()
    if not given & {"recreate_failed_workers", "ignore_worker_failures"}:
        also["recreate_failed_workers"] = True
    if "delay_between_worker_restarts_s" not in given:
        also["delay_between_worker_restarts_s"] = RESTART_DELAY_S
    config = config_of(job, **also)
    if job.spec.external_input:
        return open_to_applications(config, pod_ip)
    check_guarded(config)
    return config


def checkpoint_settings(job: RLTrainingJob) -> CheckpointSettings:
    """When the document wants checkpoints, and which are kept."""
    from reef.run.experiment import CheckpointSettings

    return CheckpointSettings(**job.spec.checkpoint.model_dump(exclude={"storage"}))


def check_training(
    job: RLTrainingJob,
    config: AlgorithmConfig,
    stop: Mapping[str, float],
    say: ReportEnd | None = None,
    *,
    here: bool = True,
) -> RolloutWorker:
    """Say what is wrong before anything is written or waited for; returns the worker of this process, to train with.

    Makes what a rollout worker has: environment, network, observation filter and exploration. A process that hangs in
    it is ended; `say` gets exit code and message. Where no training follows `here`, one environment is made and closed.

    Raises:
        ConfigError, EnvironmentError: one of them cannot be made, or what the run is asked to do is wrong.
    """
    from reef.run.build import make_evaluation, make_local_worker, samples_here
    from reef.run.experiment import check_settings
    from reef.run.process.watchdog import Watchdog

    config = check_settings(config, stop, checkpoint_settings(job), job.metadata.name)
    with Watchdog(config, say=say):
        local = make_local_worker(config, with_env=here and samples_here(config))
        if not here:  # else it is checked when the algorithm is made
            make_evaluation(config).check_spaces(local.spaces)
        return local
