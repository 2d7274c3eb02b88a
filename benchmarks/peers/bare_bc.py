"""Behaviour cloning with nothing around: PyTorch's autograd and its Adam on drawn batches, rows learned per second."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

from benchmarks.peers.protocol import answer, arguments, measure
from benchmarks.peers.recorded_cartpole import DRAWN, drawn

if __name__ == "__main__":
    ARGS = arguments()
    torch.manual_seed(ARGS["seed"])
    SIZES = [4, *ARGS["hiddens"]]
    LAYERS = [part for before, size in pairwise(SIZES) for part in (nn.Linear(before, size), nn.Tanh())]
    ACTOR = nn.Sequential(*LAYERS, nn.Linear(SIZES[-1], 2))
    OPTIMIZER = torch.optim.Adam(ACTOR.parameters(), lr=1e-4)
    BATCHES = [tuple(map(torch.from_numpy, batch)) for batch in drawn(ARGS["seed"], ARGS["batch"])]

    def iteration() -> int:
        """Make `updates` gradient steps."""
        for index in range(ARGS["updates"]):
            obs, actions = BATCHES[index % DRAWN]
            OPTIMIZER.zero_grad()
            nn.functional.cross_entropy(ACTOR(obs), actions).backward()
            OPTIMIZER.step()
        return int(ARGS["updates"] * ARGS["batch"])

    answer(measure(iteration, ARGS["measure_s"]), "torch")
