"""Processors, accelerators and their processes."""

from __future__ import annotations

import math
from collections.abc import Iterator

from reef.config.declaration import setting
from reef.config.groups.group import GroupSetter
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
