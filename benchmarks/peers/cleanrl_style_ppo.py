"""PPO in one file, in the manner of CleanRL: separate actor and critic, one plain loop, nothing around it.

Written from Schulman et al. 2017 (https://arxiv.org/abs/1707.06347) and CleanRL's published settings.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from torch import Tensor, nn
from torch.distributions import Categorical

from benchmarks.peers.protocol import answer, arguments, measure

GAMMA, GAE_LAMBDA, CLIP, VALUE_COEFF, ENTROPY_COEFF, MAX_GRAD_NORM, LR = 0.99, 0.95, 0.2, 0.5, 0.01, 0.5, 3e-4


def dense(inputs: int, outputs: int, gain: float = 2**0.5) -> nn.Linear:
    """Return a linear layer with orthogonal weights and zero bias."""
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


class Agent(nn.Module):
    """Two networks of 64x64 tanh: the actor's logits and the critic's value."""

    def __init__(self, observations: int, actions: int) -> None:
        super().__init__()

        def network(outputs: int, gain: float) -> nn.Sequential:
            return nn.Sequential(dense(observations, 64), nn.Tanh(), dense(64, 64), nn.Tanh(), dense(64, outputs, gain))

        self.critic = network(1, 1.0)
        self.actor = network(actions, 0.01)

    def value(self, obs: Tensor) -> Tensor:
        """[N] value of each observation."""
        return self.critic(obs).squeeze(-1)

    def act(self, obs: Tensor, action: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return action, its log probability, the entropy and the value, [N] each."""
        distribution = Categorical(logits=self.actor(obs))
        action = distribution.sample() if action is None else action
        return action, distribution.log_prob(action), distribution.entropy(), self.value(obs)


class Trainer:
    """One iteration is `steps` steps of every environment and `epochs` passes over them."""

    def __init__(self, args: dict[str, Any]) -> None:
        torch.manual_seed(args["seed"])
        self.rng = np.random.default_rng(args["seed"])
        self.epochs, self.minibatch = args["epochs"], args["minibatch"]
        self.count, self.steps = args["num_envs"], args["batch"] // args["num_envs"]
        self.envs = gym.vector.SyncVectorEnv(
            [lambda: gym.wrappers.RecordEpisodeStatistics(gym.make(args["env"])) for _ in range(self.count)],
            autoreset_mode=AutoresetMode.SAME_STEP,
        )
        observations = self.envs.single_observation_space.shape
        self.agent = Agent(int(np.prod(observations)), int(self.envs.single_action_space.n))
        self.optimizer = torch.optim.Adam(self.agent.parameters(), lr=LR, eps=1e-5)
        self.obs = torch.zeros((self.steps, self.count, *observations))
        self.actions = torch.zeros((self.steps, self.count))
        self.log_probs, self.rewards, self.dones, self.values = (
            torch.zeros((self.steps, self.count)) for _ in range(4)
        )
        self.next_obs = torch.tensor(self.envs.reset(seed=args["seed"])[0])
        self.next_done = torch.zeros(self.count)
        self.returns: list[float] = []

    def iteration(self) -> int:
        """Collect one batch and train on it; return its number of environment steps."""
        for step in range(self.steps):
            self.obs[step], self.dones[step] = self.next_obs, self.next_done
            with torch.no_grad():
                action, log_prob, _, value = self.agent.act(self.next_obs)
            self.actions[step], self.log_probs[step], self.values[step] = action, log_prob, value
            obs, reward, terminated, truncated, info = self.envs.step(action.numpy())
            self.rewards[step] = torch.tensor(reward)
            self.next_obs = torch.tensor(obs)
            self.next_done = torch.tensor(np.logical_or(terminated, truncated), dtype=torch.float32)
            if "final_info" in info:
                ended = info["final_info"]["_episode"]
                self.returns.extend(info["final_info"]["episode"]["r"][ended].tolist())
        self.train(self.advantages())
        return self.steps * self.count

    def advantages(self) -> Tensor:
        """[T, B] generalised advantage estimates (https://arxiv.org/abs/1506.02438, eq. 16)."""
        with torch.no_grad():
            next_value = self.agent.value(self.next_obs)
        advantages, running = torch.zeros_like(self.rewards), torch.zeros(self.count)
        for step in reversed(range(self.steps)):
            last = step == self.steps - 1
            alive = 1.0 - (self.next_done if last else self.dones[step + 1])
            following = next_value if last else self.values[step + 1]
            delta = self.rewards[step] + GAMMA * following * alive - self.values[step]
            running = delta + GAMMA * GAE_LAMBDA * alive * running
            advantages[step] = running
        return advantages

    def train(self, advantages: Tensor) -> None:
        """Make `epochs` passes of minibatches."""
        rows = self.steps * self.count
        obs = self.obs.reshape(rows, -1)
        flat = (self.actions, self.log_probs, self.values, advantages, advantages + self.values)
        actions, log_probs, values, advantages, targets = (tensor.reshape(-1) for tensor in flat)
        order = np.arange(rows)
        for _ in range(self.epochs):
            self.rng.shuffle(order)
            for start in range(0, rows, self.minibatch):
                index = order[start : start + self.minibatch]
                _, new_log_prob, entropy, value = self.agent.act(obs[index], actions.long()[index])
                log_ratio = new_log_prob - log_probs[index]
                ratio = log_ratio.exp()
                with torch.no_grad():
                    (ratio - 1 - log_ratio).mean()  # the approximate KL divergence that CleanRL logs
                    ((ratio - 1.0).abs() > CLIP).float().mean().item()
                advantage = advantages[index]
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                surrogate = torch.max(-advantage * ratio, -advantage * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
                clipped = values[index] + (value - values[index]).clamp(-CLIP, CLIP)
                errors = torch.max((value - targets[index]) ** 2, (clipped - targets[index]) ** 2)
                loss = surrogate - ENTROPY_COEFF * entropy.mean() + VALUE_COEFF * 0.5 * errors.mean()
                self.descend(loss)

    def descend(self, loss: Tensor) -> None:
        """Make one gradient step."""
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.agent.parameters(), MAX_GRAD_NORM)
        self.optimizer.step()


if __name__ == "__main__":
    ARGS = arguments()
    TRAINER = Trainer(ARGS)
    answer(measure(TRAINER.iteration, ARGS["measure_s"]), "torch", "gymnasium")
