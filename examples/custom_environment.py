"""Heat a house at low cost, with an environment of your own: `python examples/custom_environment.py`.

A step is a quarter of an hour, an episode is a day. People are at home in the morning and in the evening, and power is
dear at daytime. A thermostat heats whenever it is cold; PPO learns to heat before people come, while power is cheap.
"""

import gymnasium as gym
import numpy as np

from reef import PPOConfig

HOURS = 0.25  # of a step
WANTED = 20.0  # degrees Celsius


class House(gym.Env):
    """A room that loses heat; the action is the share of the heater's power."""

    observation_space = gym.spaces.Box(-10.0, 10.0, (5,), np.float32)
    action_space = gym.spaces.Box(0.0, 1.0, (1,), np.float32)

    def __init__(self, env_config):
        self.heater = env_config.get("heater", 4.0)  # degrees per hour at full power
        self.insulation = env_config.get("insulation", 10.0)  # hours until two thirds of a difference are gone

    def reset(self, *, seed=None, options=None):
        """Begin at midnight, with weather by chance."""
        super().reset(seed=seed)
        self.hour = 0.0
        self.inside = self.np_random.uniform(14.0, 18.0)
        self.weather = self.np_random.uniform(-5.0, 8.0)
        return self.observation(), {}

    def step(self, action):
        """Heat for a quarter of an hour; the reward is minus what power and discomfort cost."""
        power = float(np.clip(action[0], 0.0, 1.0))
        self.inside += HOURS * (self.heater * power + (self.outside() - self.inside) / self.insulation)
        discomfort = max(WANTED - self.inside, 0.0) if self.at_home() else 0.0
        reward = -(self.price() * power + 0.3 * discomfort)
        self.hour += HOURS
        return self.observation(), reward, False, self.hour >= 24, {"inside": self.inside}

    def observation(self):
        """Temperatures, time of day and price, each of the size of 1."""
        angle = 2 * np.pi * self.hour / 24
        values = [(self.inside - WANTED) / 5, self.outside() / 10, np.sin(angle), np.cos(angle), self.price()]
        return np.array(values, np.float32)

    def outside(self):
        """Degrees; warmest in the afternoon."""
        return self.weather - 4 * np.cos(2 * np.pi * (self.hour - 3) / 24)

    def at_home(self):
        """Whether anybody feels the temperature."""
        return 6 <= self.hour < 9 or 17 <= self.hour < 23

    def price(self):
        """Of a quarter of an hour at full power."""
        return 1.0 if 6 <= self.hour < 22 else 0.3


def settings():
    """PPO with normalised observations and returns of a few hours."""
    return (
        PPOConfig()
        .environment(House)
        .rollouts(num_envs_per_worker=8, observation_filter="MeanStdFilter")
        .training(train_batch_size=1536, sgd_minibatch_size=256, num_sgd_iter=10, lr=1e-3, gamma=0.98, lambda_=0.95)
        .training(vf_clip_param=None, entropy_coeff=0.0, model={"fcnet_hiddens": [64, 64]})
        .evaluation(evaluation_duration=20, evaluation_config={"explore": False})
        .debugging(seed=1)
    )


def thermostat(days):
    """The mean reward of heating whenever it is too cold."""
    house, rewards = House({}), []
    for day in range(days):
        house.reset(seed=day)
        over = False
        while not over:
            _, reward, _, over, _ = house.step([1.0 if house.inside < WANTED else 0.0])
            rewards.append(reward)
    return sum(rewards) / days


def train(config, iterations):
    """Return the mean reward of a day after so many iterations."""
    with config.build() as algorithm:
        for _ in range(iterations):
            result = algorithm.train()
            print(f"{result['timesteps_total']} steps: {result['episode_reward_mean']:.1f}")
        return algorithm.evaluate()["evaluation"]["episode_reward_mean"]


if __name__ == "__main__":
    print(f"the thermostat: {thermostat(20):.1f}")
    print(f"what was learned: {train(settings(), 60):.1f}")
