"""Environments: making them, stepping many at once, checking what they return."""

from reef.envs.context import EnvContext
from reef.envs.make import make_env, make_vector_env
from reef.envs.vector import StepResult, VectorEnv, check_finite

__all__ = ["EnvContext", "StepResult", "VectorEnv", "check_finite", "make_env", "make_vector_env"]
