"""Tianshou's SAC: steps per second once learning has started.

The two calls are those that its trainer makes, without the trainer's own bookkeeping.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from tianshou.algorithm import SAC
from tianshou.algorithm.modelfree.sac import AutoAlpha, SACPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.utils.net.common import Net
from tianshou.utils.net.continuous import ContinuousActorProbabilistic, ContinuousCritic
from tianshou.utils.torch_utils import policy_within_training_step

from benchmarks.peers.protocol import answer, arguments, measure

CALL_STEPS = 200


def algorithm(args: dict[str, Any], env: gym.Env[Any, Any]) -> SAC[Any]:
    """Return SAC at the settings that all peers share; everything else is the peer's default."""
    observations, actions = env.observation_space.shape, env.action_space.shape

    def critic() -> ContinuousCritic:
        layers = Net(state_shape=observations, action_shape=actions, hidden_sizes=args["hiddens"], concat=True)
        return ContinuousCritic(preprocess_net=layers)

    actor = ContinuousActorProbabilistic(
        preprocess_net=Net(state_shape=observations, hidden_sizes=args["hiddens"]),
        action_shape=actions,
        unbounded=True,
        conditioned_sigma=True,
    )
    adam = AdamOptimizerFactory(lr=3e-4)
    return SAC(
        policy=SACPolicy(actor=actor, action_space=env.action_space),
        policy_optim=adam,
        critic=critic(),
        critic_optim=adam,
        critic2=critic(),
        critic2_optim=adam,
        alpha=AutoAlpha(-float(actions[0]), 0.0, adam),
    )


if __name__ == "__main__":
    ARGS = arguments()
    torch.manual_seed(ARGS["seed"])
    ENVS = DummyVectorEnv([lambda: gym.make(ARGS["env"])] * ARGS["num_envs"])
    ENVS.seed(ARGS["seed"])
    SAC_OF_PEER = algorithm(ARGS, gym.make(ARGS["env"]))
    BUFFER = VectorReplayBuffer(ARGS["buffer"], ARGS["num_envs"])
    COLLECTOR = Collector(SAC_OF_PEER.policy, ENVS, BUFFER)
    COLLECTOR.reset()
    COLLECTOR.collect(n_step=ARGS["learning_starts"], random=True)

    def iteration() -> int:
        """Make some steps and learn from a batch after each."""
        with policy_within_training_step(SAC_OF_PEER.policy):
            for _ in range(CALL_STEPS):
                COLLECTOR.collect(n_step=ARGS["num_envs"])
                SAC_OF_PEER.update(BUFFER, ARGS["batch"])
        return CALL_STEPS * ARGS["num_envs"]

    answer(measure(iteration, ARGS["measure_s"], warmup=3), "tianshou", "torch", "gymnasium")
