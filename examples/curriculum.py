"""Grow a frozen lake as the policy learns, up to a size that it cannot learn at once: `python examples/curriculum.py`.

The goal stays in one corner and the start moves away from it. The only reward is 1 at the goal, and beside the way
are holes: from the far corner of the full lake, chance practically never finds the goal.
"""

import gymnasium as gym
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv

from reef import PPOConfig, TaskSettableEnv

LARGEST = 10


class GrowingLake(TaskSettableEnv):
    """The last `size` rows and columns of a lake of LARGEST x LARGEST; observations are cells of the full lake."""

    observation_space = gym.spaces.Discrete(LARGEST * LARGEST)
    action_space = gym.spaces.Discrete(4)

    def __init__(self, env_config):
        self.size = env_config.get("size", 2)
        self.lake = None

    def get_task(self):
        """The size."""
        return self.size

    def set_task(self, task):
        """Have another size from the next episode on."""
        self.size = task

    def reset(self, *, seed=None, options=None):
        """Begin in the corner opposite to the goal."""
        if self.lake is None or self.lake.nrow != self.size:
            self.lake = FrozenLakeEnv(desc=lake_of(self.size), is_slippery=False)
        state, info = self.lake.reset(seed=seed)
        return self.cell(state), info

    def step(self, action):
        """Move by one cell; a hole ends the episode."""
        state, reward, terminated, truncated, info = self.lake.step(int(action))
        return self.cell(state), reward, terminated, truncated, info

    def cell(self, state):
        """The place in the full lake."""
        row, column = divmod(int(state), self.size)
        missing = LARGEST - self.size
        return (row + missing) * LARGEST + column + missing


def lake_of(size):
    """Rows of a lake: start, goal, and a way of ice along the diagonal between holes."""
    last = size - 1
    rows = [["F" if row - column in (0, 1) else "H" for column in range(size)] for row in range(size)]
    rows[0][0], rows[last][last] = "S", "G"
    return ["".join(row) for row in rows]


def grow(train_results, task_settable_env, env_ctx):
    """The next size: one more once nearly all episodes reach the goal."""
    reached = train_results["episode_reward_mean"] or 0.0
    return min(task_settable_env.get_task() + (reached > 0.9), LARGEST)


def settings(**environment):
    """PPO, evaluated on the full lake."""
    return (
        PPOConfig()
        .environment(GrowingLake, horizon=4 * LARGEST, **environment)
        .rollouts(num_envs_per_worker=4)
        .training(train_batch_size=800, sgd_minibatch_size=200, num_sgd_iter=10, lr=0.01, entropy_coeff=0.01)
        .training(model={"fcnet_hiddens": []})
        .evaluation(evaluation_duration=1, evaluation_config={"env_config": {"size": LARGEST}, "explore": False})
        .debugging(seed=1)
    )


def train(config, iterations):
    """Return the reward on the full lake, 0 or 1, after so many iterations at most."""
    with config.build() as algorithm:
        for _ in range(iterations):
            algorithm.train()
            reward = algorithm.evaluate()["evaluation"]["episode_reward_mean"]
            if reward == 1:
                break
        print(f"after {algorithm.iteration} iterations: reward {reward:g} on the full lake")
    return reward


if __name__ == "__main__":
    train(settings(env_task_fn=grow), iterations=100)
    train(settings(env_config={"size": LARGEST}), iterations=100)
