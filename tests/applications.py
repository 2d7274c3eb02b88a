"""A policy server whose worker is not trained, and what plays at it."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from reef import DDPGConfig, DQNConfig, PGConfig, PolicyClient, PPOConfig, SACConfig
from reef.external.episodes.steps import ChosenAction
from reef.external.worker import ExternalWorker

OBSERVATIONS, ACTIONS = spaces.Box(-1.0, 1.0, (3,), np.float32), spaces.Discrete(2)
CONFIGS = {"PPO": PPOConfig, "DQN": DQNConfig, "PG": PGConfig, "SAC": SACConfig, "DDPG": DDPGConfig}


def settings(algorithm: str = "PPO", input_config: dict[str, Any] | None = None, **given: Any) -> Any:
    """Settings of a small policy that waits for applications at any free port."""
    config = CONFIGS[algorithm]().update_from_dict(
        {
            "observation_space": OBSERVATIONS,
            "action_space": ACTIONS,
            "input_": "policy_server",
            "input_config": {"port": 0, "idle_timeout": 0.2} | (input_config or {}),
            "rollout_fragment_length": 4,
            "model": {"fcnet_hiddens": [8]},
            "seed": 1,
        }
        | ({"train_batch_size": 8, "sgd_minibatch_size": 8} if algorithm == "PPO" else {})
    )
    return config.update_from_dict(given)


def address(worker: ExternalWorker) -> str:
    """Where its server listens."""
    assert worker.source is not None
    return f"http://127.0.0.1:{worker.source.port}"


def client_of(worker: ExternalWorker, mode: str = "remote", **given: Any) -> PolicyClient:
    """A client that does not wait long."""
    return PolicyClient(address(worker), mode, **{"timeout_s": 0.5} | given)


def observation(value: float = 0.0) -> Any:
    """An observation that says which one it is."""
    return np.full(3, value, np.float32)


def acted(action: int = 0, inputs: Any = None, version: int = 0) -> ChosenAction:
    """An action of a policy without a memory."""
    return ChosenAction(np.array(action), inputs, version, {}, {})


def opposite(actions: Any) -> Any:
    """An action connector."""
    return 1 - actions
