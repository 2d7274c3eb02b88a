"""Reef trains reinforcement-learning policies, on a laptop or on Kubernetes, from one job document."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reef.algorithms.a2c import A2CConfig
    from reef.algorithms.a3c import A3CConfig
    from reef.algorithms.apex import ApexDQNConfig
    from reef.algorithms.apex_ddpg import ApexDDPGConfig
    from reef.algorithms.appo import APPOConfig
    from reef.algorithms.bc import BCConfig
    from reef.algorithms.cql import CQLConfig
    from reef.algorithms.ddpg import DDPGConfig
    from reef.algorithms.ddppo import DDPPOConfig
    from reef.algorithms.dqn import DQNConfig
    from reef.algorithms.es import ESConfig
    from reef.algorithms.impala import IMPALAConfig
    from reef.algorithms.iql import IQLConfig
    from reef.algorithms.marwil import MARWILConfig
    from reef.algorithms.pg import PGConfig
    from reef.algorithms.ppo import PPOConfig
    from reef.algorithms.sac import SACConfig
    from reef.algorithms.simple_q import SimpleQConfig
    from reef.algorithms.td3 import TD3Config
    from reef.algorithms.tqc import TQCConfig
    from reef.config import AlgorithmConfig, PolicySpec
    from reef.envs.curriculum.tasks import TaskSettableEnv
    from reef.external.client import PolicyClient
    from reef.external.server_input import PolicyServerInput
    from reef.run.algorithm import Algorithm
    from reef.run.build import load_policies
    from reef.run.metrics import pretty_print

    __version__: str

__all__ = [
    "A2CConfig",
    "A3CConfig",
    "APPOConfig",
    "Algorithm",
    "AlgorithmConfig",
    "ApexDDPGConfig",
    "ApexDQNConfig",
    "BCConfig",
    "CQLConfig",
    "DDPGConfig",
    "DDPPOConfig",
    "DQNConfig",
    "ESConfig",
    "IMPALAConfig",
    "IQLConfig",
    "MARWILConfig",
    "PGConfig",
    "PPOConfig",
    "PolicyClient",
    "PolicyServerInput",
    "PolicySpec",
    "SACConfig",
    "SimpleQConfig",
    "TD3Config",
    "TQCConfig",
    "TaskSettableEnv",
    "__version__",
    "load_policies",
    "pretty_print",
]

# The operator imports reef.api and must not pay for torch: names resolve on first use (PEP 562).
_HOMES = {
    "Algorithm": "reef.run.algorithm",
    "AlgorithmConfig": "reef.config",
    "A2CConfig": "reef.algorithms.a2c",
    "A3CConfig": "reef.algorithms.a3c",
    "APPOConfig": "reef.algorithms.appo",
    "ApexDDPGConfig": "reef.algorithms.apex_ddpg",
    "ApexDQNConfig": "reef.algorithms.apex",
    "BCConfig": "reef.algorithms.bc",
    "CQLConfig": "reef.algorithms.cql",
    "DDPGConfig": "reef.algorithms.ddpg",
    "DDPPOConfig": "reef.algorithms.ddppo",
    "DQNConfig": "reef.algorithms.dqn",
    "ESConfig": "reef.algorithms.es",
    "IMPALAConfig": "reef.algorithms.impala",
    "IQLConfig": "reef.algorithms.iql",
    "MARWILConfig": "reef.algorithms.marwil",
    "PGConfig": "reef.algorithms.pg",
    "PPOConfig": "reef.algorithms.ppo",
    "PolicyClient": "reef.external.client",
    "PolicyServerInput": "reef.external.server_input",
    "PolicySpec": "reef.config",
    "SACConfig": "reef.algorithms.sac",
    "SimpleQConfig": "reef.algorithms.simple_q",
    "TD3Config": "reef.algorithms.td3",
    "TQCConfig": "reef.algorithms.tqc",
    "TaskSettableEnv": "reef.envs.curriculum.tasks",
    "load_policies": "reef.run.build",
    "pretty_print": "reef.run.metrics",
}


if not TYPE_CHECKING:  # where every name would be one of these

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            return _version()
        if name in _HOMES:
            return getattr(import_module(_HOMES[name]), name)
        raise AttributeError(f"module 'reef' has no attribute {name!r}")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("reef")
    except PackageNotFoundError:  # a source tree that was put on the path without being installed
        return "0+unknown"


def __dir__() -> list[str]:
    return __all__
