"""RLlib's BC and MARWIL (new stack): recorded rows learned from per second, by the learner alone or by training."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import msgpack
import msgpack_numpy
import numpy as np
import pyarrow
import ray
import torch
from pyarrow import parquet
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.bc import BCConfig
from ray.rllib.algorithms.marwil import MARWILConfig
from ray.rllib.core import ALL_MODULES, DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.evaluation.postprocessing import Postprocessing
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from ray.rllib.utils.metrics import LEARNER_RESULTS, NUM_ENV_STEPS_TRAINED_LIFETIME

from benchmarks.peers.protocol import answer, arguments, measure
from benchmarks.peers.recorded_cartpole import DRAWN, EPISODES, drawn, episodes

# Batches of one pass: for each episode a batch is drawn, to each row of which an artificial one is added (and masked).
PASS = 2 * EPISODES


def configuration(args: dict[str, Any]) -> AlgorithmConfig:
    """Return the settings at which Reef learns too; everything else is RLlib's default."""
    model = DefaultModelConfig(
        fcnet_hiddens=args["hiddens"], fcnet_activation="tanh", head_fcnet_hiddens=[], vf_share_layers=False
    )
    config = {"bc": BCConfig, "marwil": MARWILConfig}[args["algorithm"]]().environment("CartPole-v1")
    config.training(lr=1e-4, train_batch_size_per_learner=args["batch"]).rl_module(model_config=model)
    return config.debugging(seed=args["seed"], log_level="ERROR")


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


def learning(args: dict[str, Any]) -> Callable[[], int]:
    """Return `updates` of the learner alone, on batches that were drawn before."""
    learner = configuration(args).build_learner(env=None, spaces=spaces())
    learner.build()
    found = batches(args)

    def iteration() -> int:
        for index in range(args["updates"]):
            learner.update(batch=found[index % DRAWN])
        return int(args["updates"] * args["batch"])

    return iteration


def record(seed: int, folder: Path) -> None:
    """Write the episodes as RLlib records them: one row of packed state for each."""
    rows = [msgpack.packb(_episode(steps).get_state(), default=msgpack_numpy.encode) for steps in episodes(seed)]
    parquet.write_table(pyarrow.table({"item": rows}), folder / "episodes.parquet")


def _episode(steps: list[dict[str, Any]]) -> SingleAgentEpisode:
    observations = [np.array(obs, np.float32) for obs in (*(step["obs"] for step in steps), steps[-1]["next_obs"])]
    episode = SingleAgentEpisode(
        observations=observations,
        actions=[step["action"] for step in steps],
        rewards=[step["reward"] for step in steps],
        terminated=steps[-1]["terminated"],
        truncated=steps[-1]["truncated"],
        len_lookback_buffer=0,
    )
    return episode.to_numpy()


def training(args: dict[str, Any], folder: Path) -> Callable[[], int]:
    """Return whole training, with a learner in this process, for one pass of RLlib's pipeline over the episodes.

    The pipeline starts again for each pass, and hands over all batches of a pass at its end: calls of `train` take
    milliseconds or all the time of a pass. It draws from the episodes each time that it reads one.
    """
    record(args["seed"], folder)
    config = configuration(args).learners(num_learners=0)
    observation_space, action_space = spaces()[DEFAULT_MODULE_ID]
    config.environment(observation_space=observation_space, action_space=action_space)
    config.offline_data(input_=[str(folder)], input_read_episodes=True, input_read_batch_size=1)
    config.offline_data(dataset_num_iters_per_learner=1)
    config.reporting(min_time_s_per_iteration=0)
    ray.init(num_cpus=max(os.cpu_count() or 1, 4))  # for the actors of the pipeline beside the driver
    algorithm = config.build_algo()
    trained = [0]

    def iteration() -> int:
        before = trained[0]
        for _ in range(PASS):
            results = algorithm.train()
        trained[0] = int(results[LEARNER_RESULTS][ALL_MODULES][NUM_ENV_STEPS_TRAINED_LIFETIME])
        return trained[0] - before

    return iteration


if __name__ == "__main__":
    ARGS = arguments()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as FOLDER:
        ITERATION = learning(ARGS) if ARGS["learner_alone"] else training(ARGS, Path(FOLDER))
        answer(measure(ITERATION, ARGS["measure_s"]), "ray", "torch")
    ray.shutdown()
