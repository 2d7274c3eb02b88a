"""sb3-contrib's ARS, augmented random search: environment steps per second of whole training."""

from __future__ import annotations

from sb3_contrib import ARS
from stable_baselines3.common.env_util import make_vec_env

from benchmarks.peers.protocol import answer, arguments, learning, measure

CALL_STEPS = 4000

if __name__ == "__main__":
    ARGS = arguments()
    # With several environments it plays the one episode of a direction in one of them, and counts the steps of all.
    MODEL = ARS(
        "MlpPolicy",
        make_vec_env(ARGS["env"], n_envs=1, seed=ARGS["seed"]),
        n_delta=ARGS["episodes"] // 2,  # each direction is played in both signs
        policy_kwargs={"net_arch": ARGS["hiddens"]},
        device="cpu",
        seed=ARGS["seed"],
    )
    versions = "stable-baselines3", "sb3-contrib", "torch", "gymnasium"
    answer(measure(learning(MODEL, CALL_STEPS), ARGS["measure_s"]), *versions)
