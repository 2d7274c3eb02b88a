"""The least code that steps, acts and learns like PPO: no framework, no metrics, no checkpoints, no checks.

It is the yardstick for what a framework costs. Same environments (Gymnasium's vectorised CartPole where there is
one), networks, minibatches and loss as the others, in plain eager torch.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from torch import Tensor, nn

from benchmarks.peers.protocol import answer, arguments, measure

GAMMA, GAE_LAMBDA, CLIP, VALUE_COEFF, MAX_GRAD_NORM, LR = 0.99, 0.95, 0.2, 0.5, 0.5, 3e-4


def make_envs(name: str, count: int) -> tuple[VectorEnv[Any, Any, Any], bool]:
    """Return the environments, and whether a column's step after its end is a dead one (autoreset NEXT_STEP)."""
    if gym.spec(name).vector_entry_point is not None:
        envs = gym.make_vec(name, count, vectorization_mode="vector_entry_point")
        return envs, envs.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP
    return gym.make_vec(name, count, vectorization_mode="sync"), True


def network(observations: int, outputs: int) -> nn.Sequential:
    """Return an MLP of 64x64 tanh."""
    return nn.Sequential(nn.Linear(observations, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))


class Bare:
    """`sample` fills the arrays, `learn` trains on them; an iteration is both."""

    def __init__(self, args: dict[str, Any]) -> None:
        torch.set_num_threads(1)  # faster than more at these sizes
        torch.manual_seed(args["seed"])
        self.rng = np.random.default_rng(args["seed"])
        self.epochs, self.minibatch = args["epochs"], args["minibatch"]
        count, steps = args["num_envs"], args["batch"] // args["num_envs"]
        self.envs, self.has_dead_steps = make_envs(args["env"], count)
        size, actions = self.envs.single_observation_space.shape[0], self.envs.single_action_space.n
        self.actor, self.critic = network(size, int(actions)), network(size, 1)
        self.parameters = [*self.actor.parameters(), *self.critic.parameters()]
        self.optimizer = torch.optim.Adam(self.parameters, lr=LR)
        self.obs = np.zeros((steps + 1, count, size), np.float32)
        self.values = np.zeros((steps + 1, count), np.float32)
        self.live = np.ones((steps + 1, count), bool)
        self.actions = np.zeros((steps, count), np.int64)
        self.log_probs, self.rewards = (np.zeros((steps, count), np.float32) for _ in range(2))
        self.terminated, self.done = (np.zeros((steps, count), bool) for _ in range(2))
        self.obs[-1] = self.envs.reset(seed=args["seed"])[0]

    def forward(self, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return action, log probability and value, [B] each, of `obs` [B, size]."""
        with torch.inference_mode():
            batch = torch.from_numpy(obs)
            log_probs = torch.log_softmax(self.actor(batch), -1)
            action = torch.multinomial(log_probs.exp(), 1)
            chosen = log_probs.gather(-1, action)
            return action[:, 0].numpy(), chosen[:, 0].numpy(), self.critic(batch)[:, 0].numpy()

    def sample(self) -> int:
        """Fill the arrays; return the number of environment steps, dead ones not counted."""
        self.obs[0], self.live[0] = self.obs[-1], self.live[-1]
        for step in range(len(self.rewards)):
            action, self.log_probs[step], self.values[step] = self.forward(self.obs[step])
            self.actions[step] = action
            self.obs[step + 1], self.rewards[step], terminated, truncated, _ = self.envs.step(action)
            self.terminated[step], self.done[step] = terminated, terminated | truncated
            if self.has_dead_steps:
                np.logical_not(self.done[step], out=self.live[step + 1])
        self.values[-1] = self.forward(self.obs[-1])[2]
        return int(self.live[:-1].sum())

    def advantages(self) -> np.ndarray:
        """[T, B] generalised advantage estimates: after an end the next row still holds the true successor."""
        deltas = self.rewards + GAMMA * self.values[1:] * ~self.terminated - self.values[:-1]
        advantages, running = np.empty_like(deltas), np.zeros_like(deltas[0])
        for step in reversed(range(len(deltas))):
            running = deltas[step] + GAMMA * GAE_LAMBDA * ~self.done[step] * running
            advantages[step] = running
        return advantages

    def learn(self) -> None:
        """Make `epochs` passes of minibatches over the live rows."""
        live, advantages = self.live[:-1], self.advantages()
        targets = advantages + self.values[:-1]
        arrays = (self.obs[:-1], self.actions, self.log_probs, advantages, targets)
        obs, actions, log_probs, advantages, targets = (torch.from_numpy(array[live]) for array in arrays)
        for _ in range(self.epochs):
            order = torch.from_numpy(self.rng.permutation(len(obs)))
            for index in order.split(self.minibatch):
                loss = self.loss(obs[index], actions[index], log_probs[index], advantages[index], targets[index])
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.parameters, MAX_GRAD_NORM)
                self.optimizer.step()

    def loss(self, obs: Tensor, actions: Tensor, log_probs: Tensor, advantages: Tensor, targets: Tensor) -> Tensor:
        """Return the clipped surrogate (https://arxiv.org/abs/1707.06347, eq. 7) plus the value error."""
        chosen = torch.log_softmax(self.actor(obs), -1).gather(-1, actions[:, None])[:, 0]
        ratio = (chosen - log_probs).exp()
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        surrogate = torch.min(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages).mean()
        return VALUE_COEFF * (self.critic(obs)[:, 0] - targets).square().mean() - surrogate

    def iteration(self) -> int:
        """Sample and learn; return the number of environment steps."""
        steps = self.sample()
        self.learn()
        return steps


if __name__ == "__main__":
    ARGS = arguments()
    BARE = Bare(ARGS)
    ITERATION = BARE.sample if ARGS.get("sampling_only") else BARE.iteration
    answer(measure(ITERATION, ARGS["measure_s"]), "torch", "gymnasium")
