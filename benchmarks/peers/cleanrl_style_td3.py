"""TD3 in one file, in the manner of CleanRL; with the loop, the replay and the networks of the file beside it for SAC.

Written from Fujimoto et al. 2018 (https://arxiv.org/abs/1802.09477) and CleanRL's published settings.
"""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from benchmarks.peers.cleanrl_style_sac import OffPolicy, descend, network
from benchmarks.peers.protocol import answer, arguments, measure

GAMMA, TAU, LR, DELAY = 0.99, 0.005, 1e-3, 2
NOISE, TARGET_NOISE, TARGET_CLIP = 0.1, 0.2, 0.5  # of actions between -1 and 1


class Actor(nn.Module):
    """A perceptron with tanh, scaled to the bounds of the actions."""

    def __init__(self, observations: int, space: gym.spaces.Box, hiddens: list[int]) -> None:
        super().__init__()
        self.layers = network(observations, hiddens, space.shape[0])
        self.scale = torch.tensor((space.high - space.low) / 2)
        self.middle = torch.tensor((space.high + space.low) / 2)

    def forward(self, obs: Tensor) -> Tensor:
        """[N, observation] -> [N, action]."""
        return torch.tanh(self.layers(obs)) * self.scale + self.middle


class Trainer(OffPolicy):
    """One gradient step of the critics per environment step, of the actor per two."""

    def __init__(self, args: dict[str, Any]) -> None:
        super().__init__(args)
        observations, actions = self.sizes
        space = self.env.action_space
        self.low, self.high = torch.tensor(space.low), torch.tensor(space.high)
        self.actor = Actor(observations, space, args["hiddens"])
        self.critics = nn.ModuleList(network(observations + actions, args["hiddens"], 1) for _ in range(2))
        self.target_actor, self.target_critics = copy.deepcopy(self.actor), copy.deepcopy(self.critics)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=LR)
        self.critic_optimizer = torch.optim.Adam(self.critics.parameters(), lr=LR)
        self.updates = 0

    def action(self, obs: Tensor) -> Tensor:
        """The actor's action with noise."""
        return self.noisy(self.actor(obs), NOISE, torch.inf)

    def noisy(self, actions: Tensor, stddev: float, bound: float) -> Tensor:
        """Return actions with normal noise, within their bounds."""
        noise = (torch.randn_like(actions) * stddev).clamp(-bound, bound) * self.actor.scale
        return (actions + noise).clamp(self.low, self.high)

    def learn(self) -> None:
        """Make one gradient step of the critics, and every second time one of the actor and the targets."""
        obs, actions, rewards, next_obs, terminated = self.replay.sample(self.batch)
        with torch.no_grad():
            next_inputs = torch.cat([next_obs, self.noisy(self.target_actor(next_obs), TARGET_NOISE, TARGET_CLIP)], 1)
            next_values = torch.min(*(critic(next_inputs) for critic in self.target_critics))
            wanted = rewards + (1 - terminated) * GAMMA * next_values
        inputs = torch.cat([obs, actions], 1)
        descend(self.critic_optimizer, sum(nn.functional.mse_loss(critic(inputs), wanted) for critic in self.critics))
        self.updates += 1
        if self.updates % DELAY:
            return
        descend(self.actor_optimizer, -self.critics[0](torch.cat([obs, self.actor(obs)], 1)).mean())
        with torch.no_grad():
            for moved, source in ((self.target_actor, self.actor), (self.target_critics, self.critics)):
                for target, parameter in zip(moved.parameters(), source.parameters(), strict=True):
                    target.copy_(TAU * parameter + (1 - TAU) * target)


if __name__ == "__main__":
    ARGS = arguments()
    TRAINER = Trainer(ARGS)
    answer(measure(TRAINER.iteration, ARGS["measure_s"], warmup=3), "torch", "gymnasium")
