"""Stable-Baselines3's SAC, TD3 and DDPG: steps per second once learning has started."""

from __future__ import annotations

from stable_baselines3 import DDPG, SAC, TD3
from stable_baselines3.common.env_util import make_vec_env

from benchmarks.peers.protocol import answer, arguments, learning, measure

CALL_STEPS = 200
ALGORITHMS = {"sac": (SAC, 3e-4), "td3": (TD3, 1e-3), "ddpg": (DDPG, 1e-3)}  # with their learning rates

if __name__ == "__main__":
    ARGS = arguments()
    ALGORITHM, LR = ALGORITHMS[ARGS["algorithm"]]
    MODEL = ALGORITHM(
        "MlpPolicy",
        make_vec_env(ARGS["env"], n_envs=ARGS["num_envs"], seed=ARGS["seed"]),
        learning_rate=LR,
        buffer_size=ARGS["buffer"],
        learning_starts=ARGS["learning_starts"],
        batch_size=ARGS["batch"],
        train_freq=(1, "step"),
        gradient_steps=1,
        policy_kwargs={"net_arch": ARGS["hiddens"]},
        device="cpu",
        seed=ARGS["seed"],
    )
    answer(measure(learning(MODEL, CALL_STEPS), ARGS["measure_s"], warmup=3), "stable-baselines3", "torch", "gymnasium")
