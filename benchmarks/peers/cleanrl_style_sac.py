"""SAC in one file, in the manner of CleanRL: two separate critics, one plain loop, nothing around it.

Written from Haarnoja et al. 2018 (https://arxiv.org/abs/1812.05905) and CleanRL's published settings, except that
the actor learns with every update of the critics, and all three at the same rate.
"""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.peers.protocol import answer, arguments, measure

GAMMA, TAU, LR = 0.99, 0.005, 3e-4
LOG_STD_MIN, LOG_STD_MAX = -5.0, 2.0
CALL_STEPS = 200  # of an iteration


def network(inputs: int, hiddens: list[int], outputs: int) -> nn.Sequential:
    """Return a perceptron with relu."""
    sizes = [inputs, *hiddens]
    layers = [part for pair in zip(sizes, hiddens, strict=False) for part in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], outputs))


class Actor(nn.Module):
    """A squashed Gaussian, scaled to the bounds of the actions."""

    def __init__(self, observations: int, space: gym.spaces.Box, hiddens: list[int]) -> None:
        super().__init__()
        self.layers = network(observations, hiddens, 2 * space.shape[0])
        self.scale = torch.tensor((space.high - space.low) / 2)
        self.middle = torch.tensor((space.high + space.low) / 2)

    def act(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return actions [N, n] and their log probability [N, 1]."""
        mean, log_std = self.layers(obs).chunk(2, dim=-1)
        log_std = LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (torch.tanh(log_std) + 1)
        normal = torch.distributions.Normal(mean, log_std.exp())
        drawn = normal.rsample()
        squashed = torch.tanh(drawn)
        log_prob = normal.log_prob(drawn) - torch.log(self.scale * (1 - squashed.pow(2)) + 1e-6)
        return squashed * self.scale + self.middle, log_prob.sum(1, keepdim=True)


class Replay:
    """Uniform replay in numpy arrays; the oldest transition makes room."""

    def __init__(self, capacity: int, observations: int, actions: int, rng: np.random.Generator) -> None:
        self.obs, self.next_obs = np.zeros((2, capacity, observations), np.float32)
        self.actions = np.zeros((capacity, actions), np.float32)
        self.rewards, self.terminated = np.zeros((2, capacity, 1), np.float32)
        self.capacity, self.count, self.rng = capacity, 0, rng

    def add(self, obs: Any, action: Any, reward: float, next_obs: Any, terminated: bool) -> None:
        """Store one transition."""
        at = self.count % self.capacity
        self.obs[at], self.actions[at], self.next_obs[at] = obs, action, next_obs
        self.rewards[at], self.terminated[at] = reward, terminated
        self.count += 1

    def sample(self, batch: int) -> list[Tensor]:
        """Return obs, actions, rewards, next_obs and terminated of a batch."""
        index = self.rng.integers(min(self.count, self.capacity), size=batch)
        columns = self.obs, self.actions, self.rewards, self.next_obs, self.terminated
        return [torch.from_numpy(column[index]) for column in columns]


class OffPolicy:
    """A loop of one environment step and one gradient step; a subclass has the networks."""

    def __init__(self, args: dict[str, Any]) -> None:
        torch.manual_seed(args["seed"])
        self.batch, self.learning_starts = args["batch"], args["learning_starts"]
        self.env = gym.make(args["env"])
        self.env.action_space.seed(args["seed"])
        self.sizes = self.env.observation_space.shape[0], self.env.action_space.shape[0]
        self.replay = Replay(args["buffer"], *self.sizes, np.random.default_rng(args["seed"]))
        self.obs, _ = self.env.reset(seed=args["seed"])

    def iteration(self) -> int:
        """Make some steps and learn from a batch after each; return their number."""
        for _ in range(CALL_STEPS):
            self.step()
            if self.replay.count > self.learning_starts:
                self.learn()
        return CALL_STEPS

    def step(self) -> None:
        """Step the environment once."""
        if self.replay.count < self.learning_starts:
            action = self.env.action_space.sample()
        else:
            with torch.no_grad():
                action = self.action(torch.from_numpy(self.obs)[None])[0].numpy()
        next_obs, reward, terminated, truncated, _ = self.env.step(action)
        self.replay.add(self.obs, action, float(reward), next_obs, terminated)
        self.obs = self.env.reset()[0] if terminated or truncated else next_obs

    def action(self, obs: Tensor) -> Tensor:
        """Return what the actor does [1, n], with its exploration."""
        raise NotImplementedError

    def learn(self) -> None:
        """Learn from a batch."""
        raise NotImplementedError


class Trainer(OffPolicy):
    """One gradient step of everything per environment step."""

    def __init__(self, args: dict[str, Any]) -> None:
        super().__init__(args)
        observations, actions = self.sizes
        hiddens = args["hiddens"]
        self.actor = Actor(observations, self.env.action_space, hiddens)
        self.critics = nn.ModuleList(network(observations + actions, hiddens, 1) for _ in range(2))
        self.targets = copy.deepcopy(self.critics)
        self.log_alpha = torch.zeros(1, requires_grad=True)
        self.target_entropy = -float(actions)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=LR)
        self.critic_optimizer = torch.optim.Adam(self.critics.parameters(), lr=LR)
        self.alpha_optimizer = torch.optim.Adam([self.log_alpha], lr=LR)

    def action(self, obs: Tensor) -> Tensor:
        """Draw an action."""
        return self.actor.act(obs)[0]

    def learn(self) -> None:
        """Make one gradient step each of critics, actor and temperature, and move the targets."""
        obs, actions, rewards, next_obs, terminated = self.replay.sample(self.batch)
        alpha = self.log_alpha.exp().item()
        with torch.no_grad():
            next_actions, next_log_prob = self.actor.act(next_obs)
            next_values = self.values(self.targets, next_obs, next_actions) - alpha * next_log_prob
            wanted = rewards + (1 - terminated) * GAMMA * next_values
        inputs = torch.cat([obs, actions], 1)
        descend(self.critic_optimizer, sum(nn.functional.mse_loss(critic(inputs), wanted) for critic in self.critics))
        drawn, log_prob = self.actor.act(obs)
        descend(self.actor_optimizer, (alpha * log_prob - self.values(self.critics, obs, drawn)).mean())
        surplus = log_prob.detach() + self.target_entropy
        descend(self.alpha_optimizer, (-self.log_alpha.exp() * surplus).mean())
        with torch.no_grad():
            for target, source in zip(self.targets.parameters(), self.critics.parameters(), strict=True):
                target.copy_(TAU * source + (1 - TAU) * target)

    @staticmethod
    def values(critics: nn.ModuleList, obs: Tensor, actions: Tensor) -> Tensor:
        """Return the smaller value [N, 1] of the two critics."""
        inputs = torch.cat([obs, actions], 1)
        return torch.min(*(critic(inputs) for critic in critics))


def descend(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """Make one gradient step."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


if __name__ == "__main__":
    ARGS = arguments()
    TRAINER = Trainer(ARGS)
    answer(measure(TRAINER.iteration, ARGS["measure_s"], warmup=3), "torch", "gymnasium")
