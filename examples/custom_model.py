"""Collect coins with a network of your own that treats all coins alike: `python examples/custom_model.py`.

What is seen is a list of coins whose order means nothing. A fully connected network has to learn that; this one passes
each coin through the same layers and keeps the largest of each feature (Zaheer et al. 2017, "Deep Sets").
"""

import gymnasium as gym
import numpy as np
import torch

from reef import PPOConfig

COINS, STEPS, REACH = 8, 30, 0.12
MOVES = 0.1 * np.array([[1, 0], [-1, 0], [0, 1], [0, -1]], np.float32)


class Coins(gym.Env):
    """A plane with coins; a coin that is near enough is collected, for a reward of 1."""

    observation_space = gym.spaces.Box(-3.0, 3.0, (COINS, 3), np.float32)  # where it is from here, whether it is there
    action_space = gym.spaces.Discrete(len(MOVES))

    def __init__(self, env_config):
        self.place = np.zeros(2, np.float32)

    def reset(self, *, seed=None, options=None):
        """Begin in the middle, with the coins anywhere."""
        super().reset(seed=seed)
        self.place[:] = 0
        self.coins = self.np_random.uniform(-1, 1, (COINS, 2)).astype(np.float32)
        self.there = np.ones(COINS, bool)
        self.steps = 0
        return self.observation(), {}

    def step(self, action):
        """Move; the episode ends by time, or with the last coin."""
        self.place = np.clip(self.place + MOVES[action], -1, 1)
        taken = self.there & (np.linalg.norm(self.coins - self.place, axis=1) < REACH)
        self.there &= ~taken
        self.steps += 1
        return self.observation(), float(taken.sum()), not self.there.any(), self.steps >= STEPS, {}

    def observation(self):
        """Coins that are gone are zeros."""
        seen = np.column_stack([self.coins - self.place, self.there])
        return (seen * self.there[:, None]).astype(np.float32)


class SetNetwork(torch.nn.Module):
    """Logits [B, num_outputs] and values [B] of coins [B, COINS, 3]."""

    def __init__(self, observation_space, action_space, num_outputs, size=64):
        super().__init__()
        features = observation_space.shape[-1]
        self.each = torch.nn.Sequential(
            torch.nn.Linear(features, size), torch.nn.ReLU(), torch.nn.Linear(size, size), torch.nn.ReLU()
        )
        self.all = torch.nn.Sequential(torch.nn.Linear(size, size), torch.nn.ReLU())
        self.logits = torch.nn.Linear(size, num_outputs)
        self.value = torch.nn.Linear(size, 1)

    def forward(self, obs):
        """Each coin alone, then what is largest among them."""
        known = self.all(self.each(obs).amax(dim=1))
        return self.logits(known), self.value(known).squeeze(-1)


def settings(**model):
    """PPO; `model`: settings of the network."""
    return (
        PPOConfig()
        .environment(Coins)
        .rollouts(num_envs_per_worker=16)
        .training(train_batch_size=2048, sgd_minibatch_size=256, num_sgd_iter=8, lr=1e-3, gamma=0.95, model=model)
        .debugging(seed=1)
    )


def train(config, iterations):
    """Return the mean number of coins after so many iterations."""
    with config.build() as algorithm:
        for _ in range(iterations):
            result = algorithm.train()
            print(f"{result['timesteps_total']} steps: {result['episode_reward_mean']:.2f} coins")
    return result["episode_reward_mean"]


if __name__ == "__main__":
    print("fully connected")
    plain = train(settings(fcnet_hiddens=[64, 64]), 60)
    print("of its own")
    own = train(settings(custom_model=SetNetwork, custom_model_config={"size": 64}), 60)
    print(f"coins: {plain:.2f} with a fully connected network, {own:.2f} with one that treats them alike")
