"""RLlib's PPO, DQN, SAC, IMPALA and APPO (new stack): steps per second of whole training.

In process or with runner actors.
"""

from __future__ import annotations

import logging
import os
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.sac import SACConfig
from ray.rllib.core import ALL_MODULES
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.env.multi_agent_env import make_multi_agent
from ray.rllib.utils.metrics import (
    ENV_RUNNER_RESULTS,
    LEARNER_RESULTS,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    NUM_ENV_STEPS_TRAINED_LIFETIME,
)

from benchmarks.peers.protocol import answer, arguments, measure


def ppo(args: dict[str, Any]) -> AlgorithmConfig:
    """Return PPO at the settings that all peers share; everything else is the peer's default."""
    model = DefaultModelConfig(
        fcnet_hiddens=args.get("hiddens", [64, 64]),
        fcnet_activation="tanh",
        head_fcnet_hiddens=[],
        vf_share_layers="lstm" in args,  # as Reef's recurrent networks do
    )
    if "lstm" in args:
        model.use_lstm, model.lstm_cell_size, model.max_seq_len = True, args["lstm"], args["sequence"]
    return (
        PPOConfig()
        .training(
            lr=3e-4,
            train_batch_size_per_learner=args["batch"],
            minibatch_size=args["minibatch"],
            num_epochs=args["epochs"],
        )
        .rl_module(model_config=model)
    )


def dqn(args: dict[str, Any]) -> AlgorithmConfig:
    """Return plain DQN: uniform replay, one gradient step per `steps_per_update` environment steps."""
    return (
        DQNConfig()
        .env_runners(rollout_fragment_length=1)
        .training(
            lr=5e-4,
            train_batch_size_per_learner=args["batch"],
            training_intensity=args["batch"] / args["steps_per_update"],
            replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": args["buffer"]},
            num_steps_sampled_before_learning_starts=args["learning_starts"],
            double_q=False,
            dueling=False,
        )
        .rl_module(
            model_config=DefaultModelConfig(
                fcnet_hiddens=args["hiddens"], fcnet_activation="relu", head_fcnet_hiddens=[]
            )
        )
    )


def sac(args: dict[str, Any]) -> AlgorithmConfig:
    """Return SAC with one gradient step per environment step."""
    return (
        SACConfig()
        .env_runners(rollout_fragment_length=1)
        .training(
            actor_lr=3e-4,
            critic_lr=3e-4,
            alpha_lr=3e-4,
            train_batch_size_per_learner=args["batch"],
            training_intensity=args["batch"],
            replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": args["buffer"]},
            num_steps_sampled_before_learning_starts=args["learning_starts"],
        )
        .rl_module(
            model_config=DefaultModelConfig(
                fcnet_hiddens=args["hiddens"], fcnet_activation="relu", head_fcnet_hiddens=[]
            )
        )
        .reporting(min_sample_timesteps_per_iteration=200, min_time_s_per_iteration=0)
    )


def impala(args: dict[str, Any]) -> AlgorithmConfig:
    """Return IMPALA, or APPO, at the settings at which they are fastest; everything else is the peer's default.

    The learner is in the driver, as Reef's is. The driver waits up to 0.05 s for fragments: by default it polls without
    a pause, which takes a processor from the runners. APPO learns from each batch once, as Reef's does; by default the
    learner trains on a batch twice, and its counter of trained steps misses some of that.
    """
    model = DefaultModelConfig(
        fcnet_hiddens=args["hiddens"], fcnet_activation="tanh", head_fcnet_hiddens=[], vf_share_layers=True
    )
    config = {"impala": IMPALAConfig, "appo": APPOConfig}[args["algorithm"]]()
    config.training(train_batch_size_per_learner=args["batch"]).rl_module(model_config=model)
    config.env_runners(rollout_fragment_length=args["fragment"]).learners(num_learners=0)
    config.training(timeout_s_sampler_manager=0.05)
    if isinstance(config, APPOConfig):
        config.training(use_circular_buffer=False)
    return config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=4000)


def build(args: dict[str, Any]) -> Any:
    """Return the algorithm, ready to train."""
    config = {"ppo": ppo, "dqn": dqn, "sac": sac, "impala": impala, "appo": impala}[args["algorithm"]](args)
    if "agents" in args:
        policies = [str(agent) for agent in range(args["agents"])]
        config.environment(make_multi_agent(args["env"]), env_config={"num_agents": len(policies)})
        config.multi_agent(policies=set(policies), policy_mapping_fn=lambda agent, episode, **_: str(agent))
    else:
        config.environment(args["env"])
    config.env_runners(num_env_runners=args["workers"], num_envs_per_env_runner=args["num_envs"])
    config.debugging(seed=args["seed"], log_level="ERROR")
    # Ray books one CPU for each runner and each learner, and waits without end for one that the machine does not have.
    ray.init(num_cpus=max(os.cpu_count() or 1, config.num_env_runners + config.num_learners))
    return config.build_algo()


if __name__ == "__main__":
    ARGS = arguments()
    logging.disable(logging.WARNING)
    ALGORITHM = build(ARGS)
    STEPS = [0]

    def iteration() -> int:
        """Call `train` once; an asynchronous algorithm counts what was learned from."""
        before, results = STEPS[0], ALGORITHM.train()
        if ARGS["algorithm"] in ("impala", "appo"):
            STEPS[0] = int(results[LEARNER_RESULTS].get(ALL_MODULES, {}).get(NUM_ENV_STEPS_TRAINED_LIFETIME, STEPS[0]))
        else:
            STEPS[0] = int(results[ENV_RUNNER_RESULTS][NUM_ENV_STEPS_SAMPLED_LIFETIME])
        return STEPS[0] - before

    WARMUP = 3 if ARGS["algorithm"] in ("dqn", "sac") else 1
    answer(measure(iteration, ARGS["measure_s"], WARMUP), "ray", "torch", "gymnasium")
    ALGORITHM.stop()
    ray.shutdown()
