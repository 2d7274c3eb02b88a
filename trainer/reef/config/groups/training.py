"""The learning itself: what all algorithms share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from reef.config.declaration import setting
from reef.config.groups.group import GroupSetter
from reef.config.model import ModelConfig
from reef.config.optimizer import OptimizerConfig
from reef.config.settings import Settings
from reef.schedules import Scheduled


class TrainingSettings(Settings):
    """Batch, step size, network. An algorithm's own settings belong to this group too."""

    training = GroupSetter()
    # whether the algorithm learns from sequences too
    may_be_recurrent: ClassVar[bool] = False
    torch_compile_learner: bool

    gamma: float = setting(0.99, "Discount of future rewards.", minimum=0.0, maximum=1.0)
    lr: Scheduled = setting(
        1e-3,
        "Learning rate: a number, or [[timestep, value], ...] to interpolate between, starting at timestep 0.",
        above=0.0,
    )
    grad_clip: float | None = setting(
        None, "Limit of the gradients, in the sense of grad_clip_by; null clips nothing.", above=0.0
    )
    grad_clip_by: str = setting(
        "global_norm",
        "'value' clips each element, 'norm' the L2 norm of each tensor, 'global_norm' the L2 norm of all together.",
        choices=("value", "norm", "global_norm"),
    )
    train_batch_size: int = setting(32, "Environment steps in one train batch.", minimum=1, unit="steps")
    train_batch_size_per_learner: int | None = setting(
        None,
        "Train batch of each learner; the whole batch is this times the learners. null uses train_batch_size.",
        minimum=1,
        unit="steps",
    )
    model: ModelConfig = setting({}, "The network; see the model settings.")
    optimizer: OptimizerConfig = setting({}, "What moves the parameters; see its settings.")
    max_requests_in_flight_per_sampler_worker: int = setting(
        2,
        "Fragments that one worker may be ahead of the learner with sample_async: its weights are at most that many "
        "versions older. In IMPALA and APPO: fragments that are requested from one worker at a time.",
        minimum=1,
    )

    def problems(self) -> Iterator[str]:
        """The optimizer takes only its own arguments; a memory needs an algorithm that learns from sequences."""
        yield from super().problems()
        yield from self.optimizer.problems()
        yield from self.model.problems()
        for key in self.model.memories:
            if not self.may_be_recurrent:
                yield f"model.{key}=True: this algorithm has no network with a memory. Leave it at False, or use PPO."
            elif self.torch_compile_learner:
                yield f"torch_compile_learner=True: not available with model.{key}=True. Leave it at False."
