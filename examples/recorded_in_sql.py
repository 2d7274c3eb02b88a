"""Learn from steps in the tables of a database: `python examples/recorded_in_sql.py`.

A shop has tried prices, some too low and some too high, and has a row of SQL for each day. A function reads these rows
as episodes; any database with a module for Python works in the same way. CQL finds better prices than the shop had.
"""

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import gymnasium as gym
import numpy as np

from reef import CQLConfig

DAYS = 14  # of an episode
QUERY = "SELECT season, demand, price, profit FROM days WHERE season = ? ORDER BY day"


class Shop(gym.Env):
    """One price a day. High prices earn more from each customer, and drive customers away for the next days."""

    observation_space = gym.spaces.Box(0.0, 2.0, (2,), np.float32)  # demand, and the share of the days that are over
    action_space = gym.spaces.Box(0.0, 2.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        """Begin a season."""
        super().reset(seed=seed)
        self.day, self.demand = 0, float(self.np_random.uniform(0.5, 1.5))
        return self.seen(), {}

    def step(self, action):
        """Sell for a day at the price in `action`."""
        price = float(action[0])
        profit = self.demand * price * (2.0 - price)
        self.demand = float(np.clip(self.demand + 0.3 * (0.7 - price), 0.1, 2.0))
        self.day += 1
        return self.seen(), profit, self.day == DAYS, False, {}

    def seen(self):
        """What the shop knows before it chooses a price."""
        return np.array([self.demand, self.day / DAYS], np.float32)


def fill(path, seasons=200):
    """Write what the shop did, at prices around one that it chose for the season; return the mean profit of these."""
    shop, draws, profits = Shop(), np.random.default_rng(0), []
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE days (season INT, day INT, demand REAL, price REAL, profit REAL)")
        for season in range(seasons):
            usual, total = draws.uniform(0.0, 2.0), 0.0
            shop.reset(seed=season)
            for day in range(DAYS):
                demand, price = shop.demand, float(np.clip(draws.normal(usual, 0.3), 0.0, 2.0))
                _, profit, *_ = shop.step([price])
                database.execute("INSERT INTO days VALUES (?, ?, ?, ?, ?)", (season, day, demand, price, profit))
                total += profit
            profits.append(total)
    return float(np.mean(profits))


def seasons_of(context):
    """What `input_` calls: the steps of each season, in the order of its days."""
    with closing(sqlite3.connect(context.input_config["database"])) as database:
        for (season,) in database.execute("SELECT DISTINCT season FROM days").fetchall():
            rows = database.execute(QUERY, (season,)).fetchall()
            seen = [[demand, day / DAYS] for day, (_, demand, _, _) in enumerate(rows)]
            seen.append([seen[-1][0], 1.0])  # nothing is done with what comes after the last day
            yield [
                {
                    "obs": seen[day],
                    "action": [price],
                    "next_obs": seen[day + 1],
                    "reward": profit,
                    "terminated": day + 1 == len(rows),
                    "truncated": False,
                }
                for day, (_, _, price, profit) in enumerate(rows)
            ]


def settings(database):
    """CQL on the rows of the database."""
    config = CQLConfig().environment(lambda env_config: Shop()).debugging(seed=0)
    config.offline_data(input_=seasons_of, input_config={"database": str(database)})
    config.training(lr=1e-3, gamma=0.95, train_batch_size=128, bc_iters=200, min_q_weight=0.2, num_actions=4)
    config.training(model={"fcnet_hiddens": [64, 64]})
    config.evaluation(evaluation_interval=1, evaluation_duration=50)
    return config.reporting(min_train_timesteps_per_iteration=128 * 500)


def train(config, iterations):
    """Return the mean profit of a season after each iteration."""
    profits = []
    with config.build() as algorithm:
        for _ in range(iterations):
            profits.append(algorithm.train()["evaluation"]["episode_reward_mean"])
            print(f"after {algorithm.iteration * 500} updates: {profits[-1]:.1f}")
    return profits


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "shop.db"
        print(f"the shop: {fill(database):.1f}")
        train(settings(database), 6)
