"""sb3-contrib's PPO with an LSTM, the recurrent part of Stable-Baselines3: steps per second of whole training."""

from __future__ import annotations

import torch
from gymnasium.spaces import Box
from sb3_contrib import RecurrentPPO
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

from benchmarks.peers.protocol import answer, arguments, learning, measure
from benchmarks.peers.stable_baselines3_ppo import settings


class Perceptron(BaseFeaturesExtractor):
    """The layer before the LSTM, which RLlib and Reef have too."""

    def __init__(self, space: Box, size: int) -> None:
        super().__init__(space, size)
        self.layer = torch.nn.Linear(space.shape[0], size)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """[N, in] -> [N, size]."""
        return torch.tanh(self.layer(obs))


if __name__ == "__main__":
    ARGS = arguments()
    (SIZE,) = ARGS["hiddens"]
    NETWORK = {
        "features_extractor_class": Perceptron,
        "features_extractor_kwargs": {"size": SIZE},
        "net_arch": [],
        "lstm_hidden_size": ARGS["lstm"],
        "shared_lstm": True,
        "enable_critic_lstm": False,
    }
    MODEL = RecurrentPPO("MlpLstmPolicy", policy_kwargs=NETWORK, **settings(ARGS))
    answer(
        measure(learning(MODEL, ARGS["batch"]), ARGS["measure_s"]),
        "stable-baselines3",
        "sb3-contrib",
        "torch",
        "gymnasium",
    )
