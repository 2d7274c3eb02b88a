"""What actor-critics share whose workers do not wait for the learner."""

from __future__ import annotations

from typing import ClassVar

from reef.algorithms.actor_critic import ActorCriticConfig
from reef.config import setting


class AsynchronousConfig(ActorCriticConfig):
    """Settings of learning from what older weights sampled."""

    asynchronous: ClassVar[bool] = True
    of_all_policies: ClassVar[tuple[str, ...]] = (*ActorCriticConfig.of_all_policies, "max_staleness")

    max_staleness: int | None = setting(
        None,
        "What weights sampled that are older than this many updates is dropped: train batches, or the gradients of "
        "A3C. null: no limit, in A3C 10 for each request that all workers may have in flight.",
        minimum=0,
        unit="updates",
    )
