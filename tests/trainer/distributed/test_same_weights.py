"""What PPO and DQN learn stays the same to the last bit while the engine is rebuilt.

Processors and their libraries round differently, so digests are kept for each kind of arithmetic that was met:
`python tests/trainer/distributed/test_same_weights.py` adds those of this machine to same_weights.json.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from reef.algorithms.dqn import DQNConfig
from reef.algorithms.ppo import PPOConfig
from reef.config import AlgorithmConfig

RECORDED = Path(__file__).with_suffix("").with_name("same_weights.json")
ITERATIONS = 20


def ppo(env: str = "CartPole-v1", **training: Any) -> AlgorithmConfig:
    small: dict[str, Any] = {"train_batch_size": 128, "sgd_minibatch_size": 32, "num_sgd_iter": 2, "lr": 1e-3}
    model = {"fcnet_hiddens": [16, 16]}
    return PPOConfig().environment(env).debugging(seed=3).rollouts(num_envs_per_worker=2).training(
        **(small | {"model": model} | training)
    )  # fmt: skip


def dqn(**training: Any) -> AlgorithmConfig:
    small: dict[str, Any] = {"hiddens": [16], "num_steps_sampled_before_learning_starts": 64, "n_step": 3}
    model = {"fcnet_hiddens": [16, 16]}
    return (
        DQNConfig()
        .environment("CartPole-v1")
        .debugging(seed=3)
        .reporting(min_sample_timesteps_per_iteration=64)
        .training(**(small | {"target_network_update_freq": 128, "model": model} | training))
    )


def shared(config: AlgorithmConfig, **resources: int) -> AlgorithmConfig:
    workers = resources.pop("workers", 0)
    return config.rollouts(num_rollout_workers=workers).resources(**resources)


CASES: dict[str, Any] = {
    "PPO": ppo,
    "PPO, Gaussian": lambda: ppo("Pendulum-v1", entropy_coeff=0.01, vf_clip_param=None),
    "PPO, free standard deviation": lambda: ppo("Pendulum-v1", model={"fcnet_hiddens": [16], "free_log_std": True}),
    "PPO, shared layers, relu": lambda: ppo(
        kl_coeff=0.0, model={"fcnet_hiddens": [16], "vf_share_layers": True, "fcnet_activation": "relu"}
    ),
    "PPO, silu": lambda: ppo(grad_clip=0.5, model={"fcnet_hiddens": [16], "fcnet_activation": "silu"}),
    "DQN": lambda: dqn(replay_buffer_config={"capacity": 1000}),
    "DQN, noisy C51": lambda: dqn(num_atoms=11, noisy=True, v_min=0.0, v_max=60.0),
    "DQN, plain": lambda: dqn(
        dueling=False, double_q=False, n_step=1, replay_buffer_config={"prioritized_replay": False}
    ),
}
WITH_RAY: dict[str, Any] = {
    "PPO, 2 workers": lambda: shared(ppo(), workers=2),
    "PPO, 2 workers, 2 learners": lambda: shared(ppo(), workers=2, num_learner_workers=2),
    "DQN, 2 workers": lambda: shared(dqn(), workers=2),
    "DQN, 2 learners": lambda: shared(dqn(), num_learner_workers=2),
}


def arithmetic() -> str:
    """A name for how this machine rounds."""
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal((64, 64)).astype(np.float32) for _ in range(2))
    x, y = torch.from_numpy(a), torch.from_numpy(b)
    found: list[Any] = [a @ b, a[:8] @ b, np.exp(a), np.tanh(a), np.log(np.abs(a)), a.sum(0)]
    found += [each.numpy() for each in (x @ y, x[:8] @ y, x.exp(), x.tanh(), x.sigmoid(), x.log_softmax(-1), x.sum(0))]
    found += [torch.baddbmm(y, x.expand(2, 64, 64), y.expand(2, 64, 64)).numpy(), x.norm().numpy(), x.mean(0).numpy()]
    return hashlib.sha256(b"".join(np.ascontiguousarray(each).tobytes() for each in found)).hexdigest()[:16]


def digest(config: AlgorithmConfig) -> str:
    with config.build() as algorithm:
        for _ in range(ITERATIONS):
            algorithm.train()
        weights = algorithm.learners.weights()
    return hashlib.sha256(b"".join(weights[name].tobytes() for name in sorted(weights))).hexdigest()[:16]


def recorded(name: str) -> str:
    known = json.loads(RECORDED.read_text()).get(arithmetic())
    if known is None:
        pytest.skip(f"no digests are recorded for arithmetic that rounds as here ({arithmetic()})")
    return str(known[name])


@pytest.mark.parametrize("name", CASES)
def test_the_same_weights_are_learned(name: str) -> None:
    assert digest(CASES[name]()) == recorded(name)


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("name", WITH_RAY)
def test_the_same_weights_are_learned_with_ray(name: str) -> None:
    assert digest(WITH_RAY[name]()) == recorded(name)


if __name__ == "__main__":
    import ray

    torch.set_num_threads(1)
    ray.init(num_cpus=4, include_dashboard=False)
    digests = {name: digest(make()) for name, make in (CASES | WITH_RAY).items()}
    before = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    RECORDED.write_text(json.dumps(before | {arithmetic(): digests}, indent=1) + "\n")
