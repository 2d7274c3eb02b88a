"""A2C in one file, in the manner of CleanRL: PPO's loop beside it, with one step on the whole batch by A2C's loss."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.peers import cleanrl_style_ppo
from benchmarks.peers.protocol import answer, arguments, measure

VALUE_COEFF, ENTROPY_COEFF, LR, CALLS = 0.5, 0.01, 7e-4, 100


class Trainer(cleanrl_style_ppo.Trainer):
    """One gradient step for each rollout."""

    def __init__(self, args: dict) -> None:
        super().__init__({**args, "batch": args["steps"] * args["num_envs"], "minibatch": 0, "epochs": 1})
        self.optimizer = torch.optim.RMSprop(self.agent.parameters(), lr=LR, alpha=0.99, eps=1e-5)

    def train(self, advantages: Tensor) -> None:
        """Make one step along A2C's gradient."""
        flat = (self.actions, advantages, advantages + self.values)
        actions, advantages, targets = (tensor.reshape(-1) for tensor in flat)
        obs = self.obs.reshape(len(actions), -1)
        _, log_prob, entropy, value = self.agent.act(obs, actions.long())
        value_loss = (value - targets).pow(2).mean()
        loss = -(advantages * log_prob).mean() + VALUE_COEFF * value_loss - ENTROPY_COEFF * entropy.mean()
        self.descend(loss)


if __name__ == "__main__":
    ARGS = arguments()
    TRAINER = Trainer(ARGS)

    def iteration() -> int:
        """Make many of its short iterations."""
        return sum(TRAINER.iteration() for _ in range(CALLS))

    answer(measure(iteration, ARGS["measure_s"]), "torch", "gymnasium")
