"""What a person asks for: `spec` of the job document."""

from __future__ import annotations

import re
from itertools import islice
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from reef.api.external import ExternalInput
from reef.api.fields import (
    Count,
    DocumentModel,
    FreeMapping,
    Number,
    ObjectName,
    PositiveSeconds,
    Seconds,
    Text,
    refuse,
    server_rules,
)
from reef.api.keys import SHOWN, setting_problems, stop_key_problem, stop_value_problem
from reef.api.pods import Head, NodePool, RuntimeEnv
from reef.api.storage import Checkpoint
from reef.api.tune import Tune

UNCHANGEABLE = "spec.{} cannot be changed: set it back, or create another job"
IN_STORE = re.compile(r"\b(s3|gs|az|abfss?)://")  # begins an address in an object store
ExitCode = Annotated[int, Field(ge=1, le=255)]


def _immutable(path: str, parent: str = "") -> tuple[str, str]:
    """Return the CEL rule that keeps an optional field, with an optional parent, as it was created."""
    was, now = f"oldSelf.{path}", f"self.{path}"
    same = f"(has({now}) == has({was}) && (!has({now}) || {now} == {was}))"
    if parent:
        both = f"has(self.{parent}) && has(oldSelf.{parent})"
        alone = f"(!has(self.{parent}) || !has({now})) && (!has(oldSelf.{parent}) || !has({was}))"
        same = f"({both}) ? {same} : ({alone})"
    message = f"spec.{path} cannot be changed: delete the job and create it again, or create another one"
    return same, message


def _possible_stop(stop: dict[str, float], info: ValidationInfo) -> dict[str, float]:
    found = ((key, stop_key_problem(key) or stop_value_problem(key, value)) for key, value in stop.items())
    refuse(islice((f"key {key!r} {problem}" for key, problem in found if problem), SHOWN), "stop", info)
    return stop


def _known_settings(config: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
    refuse(setting_problems(info.data.get("algorithm", ""), config), "config", info)
    return config


def _unique_names(pools: list[NodePool]) -> list[NodePool]:
    names = [pool.name for pool in pools]
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"several pools are named {', '.join(twice)}: give each pool a name of its own")
    return pools


class Environment(DocumentModel):
    """The environment that is learnt."""

    name: Text = Field(
        description="Gymnasium id such as CartPole-v1, a registered name, or a class as package.module:Class; "
        "external for applications that bring their own loop (config.input_)."
    )
    config: FreeMapping = Field(default_factory=dict, description="Passed to the environment as its configuration.")


class FaultTolerance(DocumentModel):
    """What happens when a head pod fails; workers are always replaced."""

    backoff_limit: Count = Field(
        default=3, description="How often a failed head is started again, each time from the newest valid checkpoint."
    )
    no_retry_exit_codes: Annotated[list[ExitCode], Field(max_length=64)] = Field(
        default=[2],
        description="Exit codes of the head that end the job at once; 2 means that the job is wrong.",
    )
    termination_grace_period_seconds: PositiveSeconds = Field(
        default=60, description="Time that a stopped head has to write its checkpoint, in seconds."
    )


class Cleanup(DocumentModel):
    """When the pods of a finished job are removed: workers first, so that GPUs come free."""

    worker_delay_seconds: Seconds = Field(
        default=0, description="Seconds from the end of the training to the workers' removal."
    )
    head_delay_seconds: Seconds = Field(
        default=300,
        description="Seconds from the workers' removal to the head's, whose log can be read until then.",
    )


class JobSpec(DocumentModel):
    """What is trained, until when, on which pods, and what happens when something fails."""

    model_config = server_rules(
        ("self.algorithm == oldSelf.algorithm", UNCHANGEABLE.format("algorithm")),
        ("self.environment.name == oldSelf.environment.name", UNCHANGEABLE.format("environment.name")),
        _immutable("restoreFrom"),
        _immutable("checkpoint.storage", parent="checkpoint"),
        _immutable("externalInput"),
    )

    algorithm: Text = Field(description="Algorithm, for example PPO or DQN; `reef list` prints all.")
    environment: Environment = Field(description="The environment that is learnt.")
    config: Annotated[FreeMapping, AfterValidator(_known_settings)] = Field(
        default_factory=dict,
        description="Settings of the algorithm; `reef describe ALGORITHM` prints them with their defaults.",
    )
    stop: Annotated[dict[str, Number], Field(min_length=1, max_length=64), AfterValidator(_possible_stop)] = Field(
        description="Result fields and the values at which training ends, whichever is reached first, for example "
        "episode_reward_mean: 450. A nested field is written evaluation/episode_reward_mean."
    )
    checkpoint: Checkpoint = Field(
        default_factory=Checkpoint, description="When checkpoints are written, and where they are kept."
    )
    external_input: ExternalInput | None = Field(
        default=None,
        description="Lets applications outside of the job play at the policy server of its head, which config.input_: "
        "policy_server makes; none keeps others out.",
    )
    restore_from: Text | None = Field(
        default=None,
        description="Checkpoint (a path or a URI) from which training starts; none starts with a fresh policy.",
    )
    image: Text | None = Field(
        default=None, description="Container image of head and workers; none means the operator's default."
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        default=None, description="When the image is pulled; none leaves it to Kubernetes."
    )
    image_pull_secrets: Annotated[list[ObjectName], Field(max_length=32)] = Field(
        default_factory=list, description="Names of the Secrets with which the image is pulled."
    )
    runtime_env: RuntimeEnv = Field(
        default_factory=RuntimeEnv,
        description="Ray's runtime environment for user code: env_vars, working_dir, py_modules. Packages belong into "
        "the image.",
    )
    head: Head = Field(default_factory=Head, description="The head pod: Ray's head and the driver of the training.")
    workers: Annotated[list[NodePool], Field(max_length=32), AfterValidator(_unique_names)] = Field(
        default_factory=list,
        description="Pools of worker pods; none trains in the head alone. Without config.num_rollout_workers there are "
        "rolloutWorkers rollout workers for each pod, also for those that come later.",
    )
    replicas: Count | None = Field(
        default=None,
        description="Pods of the first pool, in place of its own replicas: what `kubectl scale` writes, and what an "
        "autoscaler must find.",
    )
    fault_tolerance: FaultTolerance = Field(
        default_factory=FaultTolerance, description="What happens when the head fails."
    )
    tune: Tune | None = Field(default=None, description="A sweep over settings; none trains once.")
    suspend: bool = Field(
        default=False, description="Whether the job holds still: a checkpoint is written and all pods are removed."
    )
    active_deadline_seconds: PositiveSeconds | None = Field(
        default=None,
        description="Seconds of training after which an unfinished job fails: from when it first runs, retries "
        "included, suspensions not; none means no limit.",
    )
    pre_running_deadline_seconds: PositiveSeconds | None = Field(
        default=None,
        description="Seconds that the job may wait for its head to run before it fails; none means no limit.",
    )
    ttl_seconds_after_finished: Seconds | None = Field(
        default=None, description="Seconds after which a finished job is deleted; none keeps it."
    )
    cleanup: Cleanup = Field(default_factory=Cleanup, description="When a finished job's pods are removed.")

    @model_validator(mode="after")
    def _replicas_of_a_pool(self) -> Self:
        if self.replicas is not None and not self.workers:
            raise ValueError(
                f"replicas {self.replicas} sets the first pool's pods, but workers has no pool: add one or remove "
                "replicas"
            )
        return self

    @model_validator(mode="after")
    def _one_policy_server(self) -> Self:
        if self.tune and self.external_input:
            raise ValueError(
                "externalInput leads to one policy server, and each trial of tune would have one: remove one of them"
            )
        return self

    @model_validator(mode="after")
    def _checkpoints_of_a_population(self) -> Self:
        if self.tune is None or self.tune.scheduler.kind != "pbt":
            return self
        interval, frequency = self.tune.scheduler.perturbation_interval, self.checkpoint.frequency
        if not frequency or interval % frequency:
            raise ValueError(
                f"tune.scheduler.perturbationInterval {interval}: trials go on from each other's checkpoints, and "
                f"checkpoint.frequency is {frequency}: set it to {interval} or a divisor of it"
            )
        return self

    @property
    def pool_replicas(self) -> dict[str, int]:
        """Pods wanted of each pool, with `replicas` in place of the first pool's own."""
        wanted = {pool.name: pool.replicas for pool in self.workers}
        if self.replicas is not None:
            wanted[self.workers[0].name] = self.replicas
        return wanted

    @property
    def worker_secret(self) -> str | None:
        """Secret of the object store that worker pods need too; None if only the head uses a store.

        Rollout workers write the episodes of `config.output` and read those of `config.input_`.
        """
        storage = self.checkpoint.storage
        if storage is None or storage.secret_ref is None:
            return None
        # `input` is an older name, which the head translates.
        settings = [self.config, self.config.get("evaluation_config"), self.tune and self.tune.parameters]
        used = [each.get(name) for each in settings if isinstance(each, dict) for name in ("output", "input_", "input")]
        return storage.secret_ref.name if IN_STORE.search(str(used)) else None

    @property
    def num_rollout_workers(self) -> int:
        """Rollout workers that the pools hold: `config.num_rollout_workers` when it is not given."""
        return sum(self.pool_replicas[pool.name] * pool.rollout_workers for pool in self.workers)
