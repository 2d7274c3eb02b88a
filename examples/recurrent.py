"""Remember a sign until the end of the way, with an LSTM: `python examples/recurrent.py`.

A sign is shown in the first step alone; in the last one the action has to be that of the sign. A network without a
memory can only guess, one time in four.
"""

import gymnasium as gym
import numpy as np

from reef import PPOConfig

SIGNS = 4


class Recall(gym.Env):
    """One-hot sign in the first observation, then nothing but how far the way is gone."""

    observation_space = gym.spaces.Box(0.0, 1.0, (SIGNS + 1,), np.float32)
    action_space = gym.spaces.Discrete(SIGNS)

    def __init__(self, env_config):
        self.length = env_config.get("length", 8)

    def reset(self, *, seed=None, options=None):
        """Show a sign."""
        super().reset(seed=seed)
        self.sign, self.place = int(self.np_random.integers(SIGNS)), 0
        return self.observation(), {}

    def step(self, action):
        """Go on; the last action alone counts."""
        self.place += 1
        over = self.place == self.length
        return self.observation(), float(over and action == self.sign), over, False, {}

    def observation(self):
        """The sign, if the way begins; the share of it that is gone."""
        seen = np.zeros(SIGNS + 1, np.float32)
        if self.place == 0:
            seen[self.sign] = 1
        seen[-1] = self.place / self.length
        return seen


def settings(**model):
    """PPO; `model`: settings of the network."""
    return (
        PPOConfig()
        .environment(Recall)
        .rollouts(num_envs_per_worker=16)
        .training(train_batch_size=2048, sgd_minibatch_size=512, num_sgd_iter=8, lr=3e-3, gamma=1.0, entropy_coeff=0.01)
        .training(model={"fcnet_hiddens": [32], **model})
        .debugging(seed=1)
    )


def train(config, iterations):
    """Return the share of signs that are remembered, at most after so many iterations."""
    with config.build() as algorithm:
        for _ in range(iterations):
            result = algorithm.train()
            print(f"{result['timesteps_total']} steps: {result['episode_reward_mean']:.2f}")
            if result["episode_reward_mean"] > 0.95:
                break
    return result["episode_reward_mean"]


if __name__ == "__main__":
    without = train(settings(), 20)
    remembered = train(settings(use_lstm=True, lstm_cell_size=32, max_seq_len=8), 60)
    print(f"right: {without:.2f} without a memory, {remembered:.2f} with an LSTM")
