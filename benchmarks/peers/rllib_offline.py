"""RLlib's learner of BC and MARWIL (new stack) alone, on drawn batches: rows learned from per second."""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import torch
from ray.rllib.algorithms.bc import BCConfig
from ray.rllib.algorithms.marwil import MARWILConfig
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.evaluation.postprocessing import Postprocessing
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch

from benchmarks.peers.protocol import answer, arguments, measure
from benchmarks.peers.recorded_cartpole import DRAWN, drawn


def build(args: dict[str, Any]) -> Any:
    """Return the learner at the settings at which Reef learns too; everything else is RLlib's default."""
    model = DefaultModelConfig(fcnet_hiddens=args["hiddens"], fcnet_activation="tanh", vf_share_layers=False)
    config = {"bc": BCConfig, "marwil": MARWILConfig}[args["algorithm"]]().environment("CartPole-v1")
    config.training(lr=1e-4, train_batch_size_per_learner=args["batch"]).rl_module(model_config=model)
    config.debugging(seed=args["seed"], log_level="ERROR")
    learner = config.build_learner(env=None, spaces=spaces())
    learner.build()
    return learner


def spaces() -> dict[str, Any]:
    """Return CartPole's spaces, as RLlib's builder takes them."""
    import gymnasium

    env = gymnasium.make("CartPole-v1")
    return {DEFAULT_MODULE_ID: (env.observation_space, env.action_space)}


def batches(args: dict[str, Any]) -> list[MultiAgentBatch]:
    """Return batches with the targets of the critic, which stand for the returns that RLlib's pipeline adds."""
    found = []
    for obs, actions in drawn(args["seed"], args["batch"]):
        columns = {Columns.OBS: torch.from_numpy(obs), Columns.ACTIONS: torch.from_numpy(actions)}
        columns[Postprocessing.VALUE_TARGETS] = torch.ones(len(obs))
        found.append(MultiAgentBatch({DEFAULT_MODULE_ID: SampleBatch(columns)}, env_steps=len(obs)))
    return found


if __name__ == "__main__":
    ARGS = arguments()
    LEARNER, BATCHES = build(ARGS), batches(ARGS)

    def iteration() -> int:
        """Make `updates` gradient steps."""
        for index in range(ARGS["updates"]):
            LEARNER.update(batch=BATCHES[index % DRAWN])
        return int(ARGS["updates"] * ARGS["batch"])

    answer(measure(iteration, ARGS["measure_s"]), "ray", "torch")
