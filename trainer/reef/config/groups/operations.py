"""How a run is carried out: resources, PyTorch, failures, results, logs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from reef.callbacks.hooks import Hooks
from reef.config.applications import application_problems
from reef.config.callback_classes import callback_classes, problems_of
from reef.config.declaration import setting
from reef.config.groups.group import GroupSetter
from reef.config.groups.inputs import POLICY_SERVER, SAMPLER, InputUse, is_function
from reef.config.groups.logger import logger_problems
from reef.config.groups.recorded import folder_problems, recorded_problems
from reef.config.settings import Settings


class ResourceSettings(Settings):
    """What driver, workers and learners may use. Fractions of a GPU share it."""

    resources = GroupSetter()

    num_gpus: float = setting(
        0.0,
        "GPU of the learner in the algorithm's process, 1 or a fraction, on which a large network also acts where "
        "num_rollout_workers is 0; 0 uses the CPU even where there are GPUs.",
        minimum=0.0,
        unit="GPUs",
    )
    _fake_gpus: bool = setting(False, "Run the code paths of GPUs on the CPU.")
    num_cpus_per_worker: float = setting(1.0, "CPUs that each rollout worker reserves.", minimum=0.0, unit="CPUs")
    num_gpus_per_worker: float = setting(
        0.0,
        "GPUs reserved for each worker: for its environments, and for acting where the network is large.",
        minimum=0.0,
        unit="GPUs",
    )
    custom_resources_per_worker: dict[str, float] = setting(
        {}, "Further Ray resources that each rollout worker reserves.", minimum=0.0
    )
    num_cpus_for_local_worker: float = setting(
        1.0, "CPUs that the algorithm's own process reserves in a trial of a sweep.", minimum=0.0, unit="CPUs"
    )
    num_learner_workers: int = setting(
        0,
        "Learners in processes of their own that average their gradients; 0 learns in the algorithm's process.",
        minimum=0,
    )
    num_cpus_per_learner_worker: float = setting(1.0, "CPUs that each learner reserves.", minimum=0.0, unit="CPUs")
    num_gpus_per_learner_worker: float = setting(
        0.0, "The GPU that each learner reserves, 1 or a fraction.", minimum=0.0, unit="GPUs"
    )
    local_gpu_idx: int = setting(0, "Which of the visible GPUs the learner in the algorithm's process uses.", minimum=0)
    placement_strategy: str = setting(
        "PACK",
        "How processes are laid out over nodes: together, apart, and strictly so or refused.",
        choices=("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"),
    )

    def problems(self) -> Iterator[str]:
        """A learner computes on one GPU, more than one GPU cannot be divided, and only one place holds the learner."""
        yield from super().problems()
        for key, learners in (("num_gpus", 1), ("num_gpus_per_learner_worker", max(self.num_learner_workers, 1))):
            if (count := getattr(self, key)) > 1:
                fix = f"num_learner_workers={math.ceil(count) * learners}, num_gpus_per_learner_worker=1"
                yield f"{key}={count:g}: one learner uses one GPU. Set {fix}{', num_gpus=0' * (key == 'num_gpus')}."
        if (count := self.num_gpus_per_worker) > 1 and not count.is_integer():
            yield (
                f"num_gpus_per_worker={count}: above 1 only whole GPUs can be had. Give a whole number, or a fraction "
                "below 1."
            )
        if self.num_gpus and self.num_learner_workers:
            yield (
                f"num_gpus={self.num_gpus:g}, num_learner_workers={self.num_learner_workers}: num_gpus is for a "
                "learner in the algorithm's process. Set num_gpus_per_learner_worker instead."
            )
        if self.num_gpus_per_learner_worker and not self.num_learner_workers:
            yield (
                f"num_gpus_per_learner_worker={self.num_gpus_per_learner_worker:g}, num_learner_workers=0: it is for "
                "learners in processes of their own. Set num_gpus for the one in the algorithm's process."
            )


class PythonEnvironmentSettings(Settings):
    """The processes' environment variables."""

    python_environment = GroupSetter()

    extra_python_environs_for_driver: dict[str, str] = setting({}, "Environment variables of the algorithm's process.")
    extra_python_environs_for_worker: dict[str, str] = setting({}, "Environment variables of rollout workers.")

    def problems(self) -> Iterator[str]:
        """Names that no environment variable can have."""
        yield from super().problems()
        for key in ("extra_python_environs_for_driver", "extra_python_environs_for_worker"):
            for name, value in getattr(self, key).items():
                if not name or "=" in name or "\0" in name + value:
                    yield f"{key}: {name!r}={value!r} is no environment variable. Give a name without '=' and a text."


FORMATS = ("json", "parquet")  # of files of recorded episodes
COLUMNS = {
    "obs": "obs",
    "new_obs": "next_obs",
    "actions": "action",
    "rewards": "reward",
}  # of Parquet, by their settings
COMPILE_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


class FrameworkSettings(Settings):
    """How PyTorch runs in workers and learners."""

    framework = GroupSetter("framework")

    framework_str: str = setting(
        "torch", "The tensor library. Only 'torch' exists here.", choices=("torch",), key="framework"
    )
    torch_threads_per_worker: int = setting(1, "CPU threads of torch in each rollout worker process.", minimum=1)
    torch_threads_per_learner: int | None = setting(
        None,
        "CPU threads of torch in each learner process; null: as many as have work and a CPU of their own.",
        minimum=1,
    )
    torch_compile_learner: bool = setting(
        False, "Compile the learner with torch.compile: slower start, faster updates."
    )
    torch_compile_learner_what_to_compile: str = setting(
        "forward_train", "What of the learner is compiled.", choices=("forward_train", "complete_update")
    )
    torch_compile_learner_dynamo_backend: str = setting(
        "inductor",
        "Backend of torch.compile in the learner. Inductor needs a C++ compiler, and PyTorch in a path without spaces.",
    )
    torch_compile_learner_dynamo_mode: str | None = setting(
        None, "Mode of torch.compile in the learner; null is torch's default.", choices=(None, *COMPILE_MODES)
    )
    torch_compile_worker: bool = setting(False, "Compile the policy of rollout workers with torch.compile.")
    torch_compile_worker_dynamo_backend: str = setting(
        "inductor",
        "Backend of torch.compile in workers. Inductor needs a C++ compiler, and PyTorch in a path without spaces.",
    )
    torch_compile_worker_dynamo_mode: str | None = setting(
        None, "Mode of torch.compile in workers; null is torch's default.", choices=(None, *COMPILE_MODES)
    )


class FaultToleranceSettings(Settings):
    """Failures of workers and environments. By default the first failure of a worker ends the run with its error."""

    fault_tolerance = GroupSetter()

    ignore_worker_failures: bool = setting(False, "Go on without failed workers as long as one is left.")
    recreate_failed_workers: bool = setting(False, "Start a failed worker again, with the same index.")
    restart_failed_sub_environments: bool = setting(
        False,
        "Make only a failed environment again, up to 5 times without a step that works; the other environments of the "
        "worker keep their episodes.",
    )
    num_consecutive_worker_failures_tolerance: int = setting(
        100, "Failures in a row, over all workers, after which the run ends.", minimum=0, unit="failures"
    )
    max_num_worker_restarts: int = setting(
        1000, "How often one worker may be started again.", minimum=0, unit="restarts"
    )
    delay_between_worker_restarts_s: float = setting(
        60.0,
        "Longest pause between two starts of one worker. The first restart comes at once; a worker that is lost again "
        "within this time waits for 1, 2, 4, ... seconds after its last start, unless no other worker is left.",
        minimum=0.0,
        unit="seconds",
    )
    worker_health_probe_timeout_s: float = setting(
        60.0,
        "How long a worker has to answer whether it is alive; after it the worker counts as failed. Idle workers are "
        "asked before the first round and after each failure of one, those of DD-PPO while they work, too; a "
        "replacement has as long to take the weights.",
        above=0.0,
        unit="seconds",
    )
    worker_restore_timeout_s: float = setting(
        1800.0, "How long the restart of a worker, or an update of learners, may take.", above=0.0, unit="seconds"
    )
    sample_timeout_s: float = setting(
        300.0,
        "How long one sample of a worker may take; after it the worker counts as failed. Raise it for environments so "
        "slow that rollout_fragment_length steps take longer. Without workers: how long one step or reset of all its "
        "environments may take in this process, which then ends with exit code 1.",
        above=0.0,
        unit="seconds",
    )

    def problems(self) -> Iterator[str]:
        """Ignoring and recreating exclude each other."""
        yield from super().problems()
        if self.ignore_worker_failures and self.recreate_failed_workers:
            yield (
                "ignore_worker_failures=True, recreate_failed_workers=True: they exclude each other. Keep "
                "recreate_failed_workers to replace failed workers, or ignore_worker_failures to go on without them."
            )


class ReportingSettings(Settings):
    """What a result covers."""

    reporting = GroupSetter()

    keep_per_episode_custom_metrics: bool = setting(
        False, "Report custom metrics as lists of all episodes instead of mean, minimum and maximum."
    )
    metrics_num_episodes_for_smoothing: int = setting(
        100,
        "Newest episodes that the reported means cover; all of an iteration where it had more.",
        minimum=1,
        unit="episodes",
    )
    min_time_s_per_iteration: float | None = setting(
        None, "Repeat the training step until an iteration took this long.", minimum=0.0, unit="seconds"
    )
    min_train_timesteps_per_iteration: int | None = setting(
        0, "Repeat the training step until this many steps were trained on.", minimum=0, unit="steps"
    )
    min_sample_timesteps_per_iteration: int | None = setting(
        0, "Repeat the training step until this many steps were sampled.", minimum=0, unit="steps"
    )


class CheckpointingSettings(Settings):
    """What a checkpoint holds beside the state needed to go on."""

    checkpointing = GroupSetter()

    export_native_model_files: bool = setting(
        False,
        "Write into each checkpoint model_<policy>.safetensors for each policy: the state_dict of its network.",
    )
    checkpoint_trainable_policies_only: bool = setting(
        False, "Leave the weights of policies that do not learn out of checkpoints."
    )


class DebuggingSettings(Settings):
    """Logs and reproducibility."""

    debugging = GroupSetter()

    log_level: str | None = setting(
        None,
        "How much Reef writes to the log, in the algorithm's process and in its workers; null leaves it to -v and to "
        "Python's logging.",
        choices=(None, "DEBUG", "INFO", "WARN", "ERROR"),
    )
    logger_creator: str | type | Callable[..., Any] | None = setting(
        None,
        "A reporter of your own beside the result files: 'wandb', 'mlflow', or a class derived from "
        "reef.run.reporters.reporter.Reporter, a function that returns one, or a path 'package.module:Class'. It is "
        "for runs with a result folder.",
    )
    logger_config: dict[str, Any] = setting(
        {}, "Arguments by name of logger_creator. Without keys or passwords: it is in params.json and in checkpoints."
    )
    log_sys_usage: bool = setting(
        True, "Report use of CPU, memory and the GPU of the algorithm's process in every result."
    )
    seed: int | None = setting(
        None,
        "Seed of everything random; workers and environments derive theirs from it. null draws one.",
        minimum=0,
        maximum=2**53,
    )

    def problems(self) -> Iterator[str]:
        """What is wrong with the logger."""
        yield from super().problems()
        yield from logger_problems(self.logger_creator, self.logger_config)


class CallbackSettings(Settings):
    """Your own code at certain moments of training."""

    callbacks = GroupSetter("callbacks")

    callbacks_class: str | type | list[str | type] | dict[str, str | Callable[..., Any]] | None = setting(
        None,
        "A class with hooks (see reef.callbacks.DefaultCallbacks) as 'package.module:Class', a list of such, or a "
        "mapping of events to functions. See docs/callbacks.md.",
        key="callbacks",
    )

    def wrong_value(self, key: str) -> Iterator[str]:
        """Also what is wrong with the classes, as nothing else looks at them before the run."""
        wrong = list(super().wrong_value(key))
        if key == "callbacks" and not wrong:
            wrong = list(problems_of(self.callbacks_class))
        yield from wrong

    def hooks(self, *names: str, worker: Any = None) -> Hooks:
        """Make the objects of the classes that have one of these hooks; CallbackError where that raises."""
        return Hooks(callback_classes(self.callbacks_class), names, worker)


class OfflineDataSettings(Settings):
    """Where experience is read from and written to."""

    offline_data = GroupSetter()
    input_use: ClassVar[InputUse] = "none"  # whether the algorithm can learn from recorded episodes, or must

    input_: str | list[str] | dict[str, float] | Callable[..., Any] = setting(
        SAMPLER,
        "Where steps come from. 'sampler' plays the environment. Recorded episodes: a file, a folder, a pattern such "
        "as data/*.json, a list of these, a mapping of these to weights, by which steps are drawn, or a function of an "
        "IOContext that reads them, or its path 'package.module:function'; see docs/offline.md. 'policy_server': "
        "applications with a loop of their own ask a server for actions, as they do where env is null and the function "
        "returns a PolicyServerInput; see docs/external.md.",
    )
    input_config: dict[str, Any] = setting(
        {},
        "Arguments by name of the policy server, such as address, port and token_env; a function finds them in ioctx. "
        "Of Parquet that others wrote: 'columns' says which of them has obs, actions, rewards, terminateds and "
        "episode_id; see docs/recordings-of-others.md.",
    )
    actions_in_input_normalized: bool = setting(
        False, "The recorded actions are as the policy chose them; false: as the environment got them."
    )
    shuffle_buffer_size: int = setting(
        0,
        "Recorded steps that are held: steps to learn from are drawn from the newest this many. 0 holds all.",
        minimum=0,
        unit="steps",
    )
    output: str | None = setting(
        None,
        "Folder for the episodes that workers sample: each goes into a file of its worker when it ends, for input_. It "
        "may be an address such as s3://bucket/folder; 'logdir' is the folder episodes in that of the run; null writes "
        "none.",
    )
    output_config: dict[str, str] = setting(
        {"format": "json"}, "'format' of these files: json for JSON lines, parquet for Parquet."
    )
    output_max_file_size: int = setting(
        64 * 1024 * 1024, "Size from which on a file is complete and the next one begins.", minimum=1, unit="bytes"
    )

    output_compress_columns: list[str] = setting(
        ["obs", "new_obs"],
        f"Columns of Parquet that are compressed, by LZ4, of {', '.join(COLUMNS)}. Lines of JSON are plain text.",
    )

    @property
    def uses_policy_server(self) -> bool:
        """Whether applications play; a function that `input_` names makes a server where there is no environment."""
        config: Any = self
        if self.input_use == "needed":
            return False
        return self.input_ == POLICY_SERVER or (config.env is None and is_function(self.input_))

    @property
    def reads_records(self) -> bool:
        """Whether recorded episodes are all that is learned from."""
        return self.input_use == "needed" or not (self.input_ == SAMPLER or self.uses_policy_server)

    def problems(self) -> Iterator[str]:
        """What is read can be, and what is written is of a format that there is, and so are its columns."""
        yield from super().problems()
        config: Any = self
        yield from application_problems(config) if self.uses_policy_server else recorded_problems(config)
        yield from folder_problems(self.output)
        columns = self.output_compress_columns
        if unknown := [name for name in columns if name not in COLUMNS]:
            known = ", ".join(COLUMNS)
            yield f"output_compress_columns={columns}: no column is called {unknown[0]!r}. There are {known}."
        elif self.output_config.get("format") == "json" and columns not in ([], ["obs", "new_obs"]):
            yield (
                f"output_compress_columns={columns}: lines of JSON are plain text. Set output_config={{'format': "
                "'parquet'}, or leave it out."
            )
        if self.output_config not in [{"format": form} for form in FORMATS]:
            yield f"output_config={self.output_config!r}: expected {{'format': 'json'}} or {{'format': 'parquet'}}."


class ExperimentalSettings(Settings):
    """Switches that older configurations carry."""

    experimental = GroupSetter()
