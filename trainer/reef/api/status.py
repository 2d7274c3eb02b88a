"""What the operator reports: `status` of the job document."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from reef.api.fields import DocumentModel

Phase = Literal[
    "Pending", "Provisioning", "Running", "Retrying", "Suspending", "Suspended", "Succeeded", "Failed", "Invalid"
]


class StatusModel(DocumentModel):
    """A part of the status: written by the operator, so that a newer one's fields are passed over."""

    model_config = ConfigDict(extra="ignore")


class Condition(StatusModel):
    """One observation about the job, as Kubernetes writes conditions."""

    type: str = Field(description="What is observed, for example HeadReady.")
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it holds: True, False or Unknown.")
    reason: str = Field(description="Why, in one word for programs.")
    message: str = Field(default="", description="Why, in a sentence for people.")
    last_transition_time: str = Field(description="When the status last changed (RFC 3339).")
    observed_generation: int | None = Field(default=None, description="Generation of the document that was looked at.")


class WorkersStatus(StatusModel):
    """Worker pods."""

    desired: int = Field(default=0, description="Worker pods that the document asks for.")
    ready: int = Field(default=0, description="Worker pods that have joined.")
    scaled: int = Field(
        default=0,
        description="Those of the first pool, which `kubectl scale` and autoscalers change, that have joined.",
    )
    recreated: int = Field(default=0, description="Rollout workers that were replaced, for example with their pod.")
    selector: str = Field(default="", description="Label selector of the first pool's pods, for autoscalers.")


class TrainingStatus(StatusModel):
    """The newest training result."""

    iteration: int = Field(default=0, description="Training iterations done.")
    timesteps: int = Field(default=0, description="Environment steps sampled.")
    episodes: int = Field(default=0, description="Episodes finished.")
    reward_mean: float | None = Field(
        default=None, description="Mean episode reward; none before the first episode ends."
    )
    reward_min: float | None = Field(default=None, description="Smallest episode reward.")
    reward_max: float | None = Field(default=None, description="Largest episode reward.")
    steps_per_second: float | None = Field(
        default=None, description="Environment steps per second of the newest iteration."
    )


class EvaluationStatus(StatusModel):
    """The newest evaluation."""

    iteration: int = Field(default=0, description="Training iteration after which it ran.")
    episodes: int = Field(default=0, description="Episodes of this evaluation.")
    reward_mean: float | None = Field(default=None, description="Mean episode reward without exploration.")
    reward_min: float | None = Field(default=None, description="Smallest episode reward.")
    reward_max: float | None = Field(default=None, description="Largest episode reward.")


class CheckpointStatus(StatusModel):
    """The newest valid checkpoint."""

    path: str = Field(description="Where it is: a path in the volume or a URI.")
    iteration: int = Field(description="Training iteration at which it was written.")
    time: str = Field(description="When it was written (RFC 3339).")


class TrialStatus(StatusModel):
    """The best trial of a sweep."""

    name: str = Field(description="Name of the trial.")
    config: dict[str, object] = Field(
        default_factory=dict, description="The settings that varied, with this trial's values."
    )
    metric: float | None = Field(default=None, description="The sweep's metric after its newest iteration.")
    iteration: int = Field(default=0, description="Training iterations that it has done.")
    checkpoint: str | None = Field(default=None, description="Its newest checkpoint: a path in the volume or a URI.")


class TrialsStatus(StatusModel):
    """The trials of a sweep; those that are in none of the other counts wait."""

    total: int = Field(default=0, description="Trials of the sweep.")
    running: int = Field(default=0, description="Trials under way.")
    finished: int = Field(default=0, description="Trials that reached spec.stop or were ended by the scheduler.")
    failed: int = Field(default=0, description="Trials that failed; why, is in trials.json and the head's log.")


class HeadStatus(StatusModel):
    """The newest head pod: what distinguishes the next one from it."""

    pod: str = Field(description="Name of the newest head pod.")
    uid: str = Field(description="Uid of the newest head pod.")
    start_time: str = Field(description="When it was created (RFC 3339).")
    recreated_before: int = Field(default=0, description="Rollout workers that were replaced under earlier heads.")


class JobStatus(StatusModel):
    """The job as the operator sees it."""

    phase: Phase | None = Field(default=None, description="Where the job is in its life, in one word.")
    message: str = Field(default="", description="What the phase means for this job, in a sentence.")
    conditions: list[Condition] = Field(default_factory=list, description="Observations about the job.")
    observed_generation: int | None = Field(
        default=None, description="Generation of the document that this status belongs to."
    )
    attempts: int = Field(default=0, description="Heads that were started.")
    head: HeadStatus | None = Field(default=None, description="The newest head pod.")
    workers: WorkersStatus = Field(default_factory=WorkersStatus, description="Worker pods.")
    training: TrainingStatus | None = Field(default=None, description="The newest training result.")
    evaluation: EvaluationStatus | None = Field(default=None, description="The newest evaluation.")
    checkpoint: CheckpointStatus | None = Field(default=None, description="The newest valid checkpoint.")
    best_trial: TrialStatus | None = Field(default=None, description="The best trial of a sweep.")
    trials: TrialsStatus | None = Field(default=None, description="Numbers of a sweep's trials, by state.")
    start_time: str | None = Field(default=None, description="When the operator took the job up (RFC 3339).")
    running_time: str | None = Field(default=None, description="When training began (RFC 3339).")
    active_since: str | None = Field(
        default=None, description="Since when the training has been under way without a suspension (RFC 3339)."
    )
    active_seconds: int = Field(
        default=0, description="Seconds of training before activeSince, which count towards activeDeadlineSeconds."
    )
    completion_time: str | None = Field(default=None, description="When the job ended (RFC 3339).")
