"""Reef's PPO, DQN, SAC and IMPALA: steps per second of whole training, or of sampling alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.peers.protocol import answer, arguments, measure
from reef.config import AlgorithmConfig


def ppo(args: dict[str, Any]) -> AlgorithmConfig:
    """Return PPO at the settings that all peers share; everything else is Reef's default."""
    from reef.algorithms.ppo import PPOConfig

    model = {"fcnet_hiddens": args.get("hiddens", [64, 64]), "fcnet_activation": "tanh"}
    if "lstm" in args:
        model |= {"use_lstm": True, "lstm_cell_size": args["lstm"], "max_seq_len": args["sequence"]}
    return PPOConfig().training(
        lr=3e-4,
        train_batch_size=args["batch"],
        sgd_minibatch_size=args["minibatch"],
        num_sgd_iter=args["epochs"],
        model=model,
    )


def dqn(args: dict[str, Any]) -> AlgorithmConfig:
    """Return plain DQN: uniform replay, one gradient step per `steps_per_update` environment steps."""
    from reef.algorithms.dqn import DQNConfig

    return (
        DQNConfig()
        .training(
            lr=5e-4,
            train_batch_size=args["batch"],
            training_intensity=args["batch"] / args["steps_per_update"],
            replay_buffer_config={"capacity": args["buffer"], "prioritized_replay": False},
            num_steps_sampled_before_learning_starts=args["learning_starts"],
            double_q=False,
            dueling=False,
            hiddens=[],
            model={"fcnet_hiddens": args["hiddens"], "fcnet_activation": "relu"},
        )
        .reporting(min_sample_timesteps_per_iteration=1000)
    )


def sac(args: dict[str, Any]) -> AlgorithmConfig:
    """Return SAC with one gradient step per environment step."""
    from reef.algorithms.sac import SACConfig

    return (
        SACConfig()
        .training(
            lr=3e-4,
            train_batch_size=args["batch"],
            training_intensity=args["batch"],
            replay_buffer_config={"capacity": args["buffer"]},
            num_steps_sampled_before_learning_starts=args["learning_starts"],
            model={"fcnet_hiddens": args["hiddens"]},
        )
        .reporting(min_sample_timesteps_per_iteration=200)
    )


def impala(args: dict[str, Any]) -> AlgorithmConfig:
    """Return IMPALA; a batch is one fragment of every environment."""
    from reef.algorithms.impala import IMPALAConfig

    config = IMPALAConfig().training(train_batch_size=args["batch"], model={"fcnet_hiddens": args["hiddens"]})
    return config.rollouts(rollout_fragment_length="auto")


def configuration(args: dict[str, Any]) -> AlgorithmConfig:
    """Return the settings that `args` describe."""
    config = {"ppo": ppo, "dqn": dqn, "sac": sac, "impala": impala}[args["algorithm"]](args)
    config.debugging(seed=args["seed"])
    if "agents" in args:
        together = {"env": args["env"], "num_agents": args["agents"]}
        config.environment("reef.envs.multi_agent:IndependentAgents", env_config=together)
        config.multi_agent(policies=[str(agent) for agent in range(args["agents"])])
    else:
        config.environment(args["env"])
    config.rollouts(num_rollout_workers=args["workers"], num_envs_per_worker=args["num_envs"])
    config.rollouts(sample_async=args.get("sample_async", False))
    if args["workers"] > 2:
        config.resources(num_cpus_per_worker=0.01)  # more processes than cores
    if "learners" in args:
        config.resources(num_learner_workers=args["learners"], num_gpus_per_learner_worker=args["gpus"])
    else:
        config.resources(num_gpus=args.get("gpus", 0))
    if args.get("compiled"):
        config.framework(torch_compile_learner=True, torch_compile_learner_what_to_compile="complete_update")
    return config


def training(algorithm: Any) -> Callable[[], int]:
    """Return a function that trains one iteration and returns its number of environment steps."""

    def iteration() -> int:
        return int(algorithm.train()["timesteps_this_iter"])

    return iteration


def sampling(algorithm: Any) -> Callable[[], int]:
    """Return a function that samples one fragment without learning."""
    worker = algorithm.workers.local_worker()

    def iteration() -> int:
        return int(worker.sample().env_steps)

    return iteration


if __name__ == "__main__":
    ARGS = arguments()
    with configuration(ARGS).build() as ALGORITHM:
        ITERATION = sampling(ALGORITHM) if ARGS.get("sampling_only") else training(ALGORITHM)
        WARMUP = 3 if ARGS["algorithm"] in ("dqn", "sac") or ARGS.get("compiled") else 1
        answer(measure(ITERATION, ARGS["measure_s"], WARMUP), "reef", "ray", "torch", "gymnasium")
