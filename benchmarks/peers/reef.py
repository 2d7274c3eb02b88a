"""Reef's algorithms: steps per second of whole training, or of sampling alone."""

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


def td3(args: dict[str, Any]) -> AlgorithmConfig:
    """Return TD3, or DDPG, with one gradient step per environment step and uniform replay."""
    from reef.algorithms.ddpg import DDPGConfig
    from reef.algorithms.td3 import TD3Config

    noise = {"type": "GaussianNoise", "random_timesteps": args["learning_starts"], "scale_timesteps": 1}
    return (
        {"td3": TD3Config, "ddpg": DDPGConfig}[args["algorithm"]]()
        .training(
            lr=1e-3,
            train_batch_size=args["batch"],
            training_intensity=args["batch"],
            tau=0.005,
            replay_buffer_config={"capacity": args["buffer"], "prioritized_replay": False},
            num_steps_sampled_before_learning_starts=args["learning_starts"],
            model={"fcnet_hiddens": args["hiddens"]},
        )
        .exploration(exploration_config=noise)
        .reporting(min_sample_timesteps_per_iteration=200)
    )


def a2c(args: dict[str, Any]) -> AlgorithmConfig:
    """Return A2C with rollouts of `steps` steps."""
    from reef.algorithms.a2c import A2CConfig

    model = {"fcnet_hiddens": [64, 64], "fcnet_activation": "tanh"}
    config = A2CConfig().training(lr=7e-4, train_batch_size=args["steps"] * args["num_envs"], model=model)
    config.training(optimizer={"type": "RMSprop"}, grad_clip=0.5)
    return config.rollouts(rollout_fragment_length="auto").reporting(min_sample_timesteps_per_iteration=4000)


def impala(args: dict[str, Any]) -> AlgorithmConfig:
    """Return IMPALA, or APPO; without a length of fragments a batch is one fragment of every environment."""
    from reef.algorithms.appo import APPOConfig
    from reef.algorithms.impala import IMPALAConfig

    config = {"impala": IMPALAConfig, "appo": APPOConfig}[args["algorithm"]]()
    config.training(train_batch_size=args["batch"], model={"fcnet_hiddens": args["hiddens"]})
    return config.rollouts(rollout_fragment_length=args.get("fragment", "auto"))


def apex(args: dict[str, Any]) -> AlgorithmConfig:
    """Return Ape-X DQN with one worker, whose learner works on the CPU."""
    from reef.algorithms.apex import ApexDQNConfig

    return (
        ApexDQNConfig()
        .training(
            num_steps_sampled_before_learning_starts=args["learning_starts"],
            replay_buffer_config={"capacity": args["buffer"]},
            model={"fcnet_hiddens": args["hiddens"], "fcnet_activation": "relu"},
            hiddens=[],
        )
        .reporting(min_sample_timesteps_per_iteration=1000)
    )


def es(args: dict[str, Any]) -> AlgorithmConfig:
    """Return ES with `episodes` perturbed episodes for an update."""
    from reef.algorithms.es import ESConfig

    config = ESConfig().training(
        episodes_per_batch=args["episodes"], train_batch_size=1, model={"fcnet_hiddens": args["hiddens"]}
    )
    return config.reporting(min_sample_timesteps_per_iteration=4000)


MAKERS = {"ppo": ppo, "dqn": dqn, "sac": sac, "td3": td3, "ddpg": td3, "a2c": a2c, "es": es}
MAKERS |= {"apex": apex, "impala": impala, "appo": impala}


def configuration(args: dict[str, Any]) -> AlgorithmConfig:
    """Return the settings that `args` describe."""
    config = MAKERS[args["algorithm"]](args)
    config.debugging(seed=args["seed"])
    if "agents" in args:
        together = {"env": args["env"], "num_agents": args["agents"]}
        config.environment("reef.envs.multi_agent:IndependentAgents", env_config=together)
        config.multi_agent(policies=[str(agent) for agent in range(args["agents"])])
    else:
        config.environment(args["env"], env_config=args.get("env_config", {}))
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
    """Return a function that trains one iteration and returns the environment steps that were learned from.

    An asynchronous algorithm may drop steps; others learn from all, or, with replay, from some several times.
    """
    replays = hasattr(algorithm.config, "replay_buffer_config")

    def iteration() -> int:
        before = algorithm.counters["num_env_steps_trained"]
        steps: int = algorithm.train()["timesteps_this_iter"]
        learned = algorithm.counters["num_env_steps_trained"] - before
        return int(learned if algorithm.config.asynchronous and not replays else steps)

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
        WARMUP = 3 if ARGS["algorithm"] in ("dqn", "sac", "td3", "ddpg", "apex") or ARGS.get("compiled") else 1
        answer(measure(ITERATION, ARGS["measure_s"], WARMUP), "reef", "ray", "torch", "gymnasium")
