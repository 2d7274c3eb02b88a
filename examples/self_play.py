"""Learn connect four against a league of one's own past: `python examples/self_play.py`.

"main" learns. The others are what main was at some time, and stay so: each time main wins most of its games, another
one joins, and the oldest leaves a full league. At first the only opponent is main before it has learned.
"""

import gymnasium as gym
import numpy as np

from reef import PPOConfig
from reef.callbacks import DefaultCallbacks
from reef.envs.multi_agent import MultiAgentEnv

ROWS, COLUMNS = 6, 7
LEAGUE = 5  # opponents at most
ENOUGH = 0.7  # share of games, with a draw as half of one, after which another opponent joins
DIRECTIONS = ((0, 1), (1, 0), (1, 1), (1, -1))


class ConnectFour(MultiAgentEnv):
    """Two players drop stones into columns in turns; four in a row win, a stone in a full column loses.

    An observation has two parts: 1 where there is a stone of one's own, and 1 where there is one of the other.
    """

    possible_agents = (0, 1)
    agents_take_turns = True

    def __init__(self, env_config):
        self.observation_spaces = dict.fromkeys(self.possible_agents, gym.spaces.Box(0, 1, (2 * ROWS * COLUMNS,)))
        self.action_spaces = dict.fromkeys(self.possible_agents, gym.spaces.Discrete(COLUMNS))

    def reset(self, *, seed=None, options=None):
        """Empty the board; player 0 begins."""
        self.board = np.full((ROWS, COLUMNS), -1)
        self.moves = 0
        return {0: self.seen_by(0)}, {}

    def step(self, actions):
        """Drop the stone of the player whose turn it is."""
        ((player, column),) = actions.items()
        self.moves += 1
        other = 1 - player
        free = np.flatnonzero(self.board[:, column] < 0)
        if not len(free):
            return self.result(winner=other)
        row = free[0]
        self.board[row, column] = player
        if self.wins(row, column):
            return self.result(winner=player)
        if self.moves == ROWS * COLUMNS:
            return self.result(winner=None)
        return {other: self.seen_by(other)}, {}, {}, {}, {}

    def result(self, winner):
        """The step that ends a game."""
        rewards = {} if winner is None else {winner: 1.0, 1 - winner: -1.0}
        return {}, rewards, {"__all__": True}, {}, {}

    def seen_by(self, player):
        """The board, with the stones of `player` first."""
        return np.stack([self.board == player, self.board == 1 - player]).astype(np.float32).ravel()

    def wins(self, row, column):
        """Whether the stone there is one of four in a row."""
        return any(1 + self.length(row, column, r, c) + self.length(row, column, -r, -c) > 3 for r, c in DIRECTIONS)

    def length(self, row, column, down, right):
        """How many stones of the same player follow in a direction."""
        player, count = self.board[row, column], 0
        row, column = row + down, column + right
        while 0 <= row < ROWS and 0 <= column < COLUMNS and self.board[row, column] == player:
            row, column, count = row + down, column + right, count + 1
        return count


def opponents(agent_id, episode):
    """Main plays both sides in turn, and each opponent equally often."""
    past = [policy_id for policy_id in episode.policies if policy_id != "main"]
    if not past or agent_id == episode.episode_id % 2:
        return "main"
    return past[episode.episode_id // 2 % len(past)]


class SelfPlay(DefaultCallbacks):
    """Has what main is now join the league once it wins."""

    def on_algorithm_init(self, *, algorithm, **kwargs):
        """The first opponent; an algorithm from a checkpoint has some already."""
        if list(algorithm.config.policies) == ["main"]:
            algorithm.add_policy("past_0", policy=algorithm.get_policy("main"))

    def on_train_result(self, *, algorithm, result, **kwargs):
        """Look at the games of this iteration."""
        rewards = result["hist_stats"]["policy_main_reward"][-result["episodes_this_iter"] :]
        won = (np.mean(rewards) + 1) / 2
        past = [policy_id for policy_id in algorithm.config.policies if policy_id != "main"]
        if won > ENOUGH:
            newest = int(past[-1].removeprefix("past_")) + 1
            algorithm.add_policy(f"past_{newest}", policy=algorithm.get_policy("main"))
            if len(past) == LEAGUE:
                algorithm.remove_policy(past[0])
        result["custom_metrics"].update(won=float(won), opponents=len(algorithm.config.policies) - 1)


def settings():
    """PPO; only main learns."""
    return (
        PPOConfig()
        .environment(ConnectFour)
        .multi_agent(policies=["main"], policy_mapping_fn=opponents, policies_to_train=["main"])
        .rollouts(num_envs_per_worker=16)
        .training(train_batch_size=4000, sgd_minibatch_size=250, num_sgd_iter=6, lr=1e-3, lambda_=0.95)
        .training(entropy_coeff=0.01, model={"fcnet_hiddens": [128, 128], "fcnet_activation": "relu"})
        .callbacks(SelfPlay)
        .debugging(seed=1)
    )


def train(config, iterations):
    """Return the results of so many iterations."""
    results = []
    with config.build() as algorithm:
        for _ in range(iterations):
            results.append(algorithm.train())
            metrics = results[-1]["custom_metrics"]
            print(
                f"iteration {algorithm.iteration}: {results[-1]['episodes_this_iter']} games against "
                f"{metrics['opponents']} opponents, {metrics['won']:.0%} won"
            )
    return results


if __name__ == "__main__":
    train(settings(), iterations=60)
