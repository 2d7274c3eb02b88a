"""Intrinsic rewards: what a learner adds to the rewards of a batch, for exploration."""

from reef.learn.intrinsic.make import make_intrinsic_rewards
from reef.learn.intrinsic.rewards import IntrinsicRewards

__all__ = ["IntrinsicRewards", "make_intrinsic_rewards"]
