"""sb3-contrib's PPO with an LSTM, the recurrent part of Stable-Baselines3: steps per second of whole training."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium.spaces import Box
from sb3_contrib import RecurrentPPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

from benchmarks.peers.protocol import answer, arguments, measure


class Perceptron(BaseFeaturesExtractor):
    """The layer before the LSTM, which RLlib and Reef have too."""

    def __init__(self, space: Box, size: int) -> None:
        super().__init__(space, size)
        self.layer = torch.nn.Linear(space.shape[0], size)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """[N, in] -> [N, size]."""
        return torch.tanh(self.layer(obs))


def make(args: dict[str, Any]) -> RecurrentPPO:
    """Build it at the settings that all peers share; everything else is the peer's default."""
    (size,) = args["hiddens"]
    return RecurrentPPO(
        "MlpLstmPolicy",
        make_vec_env(args["env"], n_envs=args["num_envs"], seed=args["seed"]),
        learning_rate=3e-4,
        n_steps=args["batch"] // args["num_envs"],
        batch_size=args["minibatch"],
        n_epochs=args["epochs"],
        policy_kwargs={
            "features_extractor_class": Perceptron,
            "features_extractor_kwargs": {"size": size},
            "net_arch": [],
            "lstm_hidden_size": args["lstm"],
            "shared_lstm": True,
            "enable_critic_lstm": False,
        },
        device="cpu",
        seed=args["seed"],
    )


if __name__ == "__main__":
    ARGS = arguments()
    MODEL = make(ARGS)

    def iteration() -> int:
        """Collect one batch and train on it."""
        before = MODEL.num_timesteps
        MODEL.learn(ARGS["batch"], reset_num_timesteps=False)
        return MODEL.num_timesteps - before

    answer(measure(iteration, ARGS["measure_s"]), "stable-baselines3", "sb3-contrib", "torch", "gymnasium")
