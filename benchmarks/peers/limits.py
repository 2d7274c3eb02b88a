"""What no trainer can exceed on this machine: raw stepping, a forward pass, the bare SGD of one batch."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from benchmarks.bare_ppo import Bare, make_envs
from benchmarks.peers.protocol import answer, arguments


def per_second(work: Callable[[], int], seconds: float) -> float:
    """Return what `work` counts, per second, over about `seconds`."""
    work()
    count, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        count += work()
    return count / elapsed


def one_env(name: str) -> Callable[[], int]:
    """Return a function that steps a single environment a hundred times."""
    env = gym.make(name)
    env.reset(seed=0)
    actions = np.random.default_rng(0).integers(int(env.action_space.n), size=100).tolist()

    def work() -> int:
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        return len(actions)

    return work


def many_envs(name: str, count: int) -> Callable[[], int]:
    """Return a function that steps `count` environments as one, dead steps counted like the others."""
    envs, _ = make_envs(name, count)
    envs.reset(seed=0)
    actions = np.random.default_rng(0).integers(int(envs.single_action_space.n), size=(20, count))

    def work() -> int:
        for row in actions:
            envs.step(row)
        return int(actions.size)

    return work


def forward(size: int) -> Callable[[], int]:
    """Return a function that passes `size` observations through actor and critic once."""
    bare = Bare(settings(size, 8))
    obs = bare.obs[0]

    def work() -> int:
        bare.forward(obs)
        return 1

    return work


def sgd(minibatch: int) -> Callable[[], int]:
    """Return a function that makes all passes over one batch and returns its steps."""
    bare = Bare(settings(8, minibatch))
    steps = bare.sample()

    def work() -> int:
        bare.learn()
        return steps

    return work


def products(minibatch: int) -> Callable[[], int]:
    """Return a function that makes the matrix products and the tanh of that SGD, and nothing else, into given memory.

    Actor and critic are computed as one, and tanh as by sigmoid, which is its fastest form in eager torch.
    """
    torch.set_num_threads(1)
    sizes = (4, 64, 64)
    layers = [torch.randn(2, *pair) for pair in pairwise(sizes)]
    heads = torch.randn(2, 64, 2)  # the critic's one output beside the actor's two, as wide
    hidden = [torch.randn(2, minibatch, size) for size in sizes]
    outputs, gradients = torch.empty(2, minibatch, 2), [torch.empty_like(each) for each in hidden]
    of_layers, of_heads = [torch.empty_like(each) for each in layers], torch.empty_like(heads)
    count = 10 * (4096 // minibatch)

    def work() -> int:
        for _ in range(count):
            for layer, x, y in zip(layers, hidden, hidden[1:], strict=False):
                torch.bmm(x, layer, out=y).mul_(2).sigmoid_().mul_(2).sub_(1)
            torch.bmm(hidden[-1], heads, out=outputs)
            torch.bmm(hidden[-1].transpose(1, 2), outputs, out=of_heads)
            torch.bmm(outputs, heads.transpose(1, 2), out=gradients[-1])
            for index in (1, 0):
                gradient = torch.ops.aten.tanh_backward(gradients[index + 1], hidden[index + 1])
                torch.bmm(hidden[index].transpose(1, 2), gradient, out=of_layers[index])
                if index:
                    torch.bmm(gradient, layers[index].transpose(1, 2), out=gradients[index])
        return 4096

    return work


def actor_critics_products(*, critics: int = 2, critics_of_actor: int = 2, delay: int = 1) -> Callable[[], int]:
    """Return a function that makes the matrix products and the relu of one step of SAC, and nothing else.

    The critics and their targets as one product each, an actor: 2x256, batch 256. Forward: the actor and the targets
    for the next observations, the critics, the actor, the critics for its actions. Backward: critics; then the actor
    through the critics, whose own gradients nobody reads. TD3 asks one critic for the actor's actions, in every second
    step (`delay`); DDPG has one.
    """
    torch.set_num_threads(1)
    rows, width = 256, 256
    first, hidden, last = torch.randn(2, 4, width), torch.randn(2, width, width), torch.randn(2, width, 1)
    inputs, layer, outputs = torch.randn(2, rows, 4), torch.randn(2, 2, rows, width), torch.randn(2, rows, 1)
    of_weights, of_layer = [torch.empty_like(each) for each in (first, hidden, last)], torch.empty_like(layer)
    of_inputs, of_outputs = torch.empty_like(inputs), torch.randn(2, rows, 1)

    def forward(nets: int) -> None:
        torch.bmm(inputs[:nets], first[:nets], out=layer[0][:nets]).relu_()
        torch.bmm(layer[0][:nets], hidden[:nets], out=layer[1][:nets]).relu_()
        torch.bmm(layer[1][:nets], last[:nets], out=outputs[:nets])

    def backward(nets: int, *, weights: bool = True, inputs_too: bool = False) -> None:
        torch.bmm(of_outputs[:nets], last[:nets].transpose(1, 2), out=of_layer[1][:nets])
        torch.bmm(of_layer[1][:nets], hidden[:nets].transpose(1, 2), out=of_layer[0][:nets])
        if inputs_too:
            torch.bmm(of_layer[0][:nets], first[:nets].transpose(1, 2), out=of_inputs[:nets])
        if weights:
            torch.bmm(layer[1][:nets].transpose(1, 2), of_outputs[:nets], out=of_weights[2][:nets])
            torch.bmm(layer[0][:nets].transpose(1, 2), of_layer[1][:nets], out=of_weights[1][:nets])
            torch.bmm(inputs[:nets].transpose(1, 2), of_layer[0][:nets], out=of_weights[0][:nets])

    def work() -> int:
        for _ in range(delay):
            for nets in (1, critics, critics):  # the actor, the targets, the critics
                forward(nets)
            backward(critics)
        forward(1)
        forward(critics_of_actor)
        backward(critics_of_actor, weights=False, inputs_too=True)
        backward(1)
        return delay

    return work


def settings(num_envs: int, minibatch: int) -> dict[str, Any]:
    """Return the shared PPO settings."""
    return {"env": "CartPole-v1", "num_envs": num_envs, "batch": 4096, "minibatch": minibatch, "epochs": 10, "seed": 0}


if __name__ == "__main__":
    SECONDS = arguments()["measure_s"]
    WORK = {
        "CartPole-v1, 1 environment, steps/s": one_env("CartPole-v1"),
        "CartPole-v1, 8 as one, steps/s": many_envs("CartPole-v1", 8),
        "CartPole-v1, 128 as one, steps/s": many_envs("CartPole-v1", 128),
        "CartPole-v1, 4096 as one, steps/s": many_envs("CartPole-v1", 4096),
        "LunarLander-v3, 1 environment, steps/s": one_env("LunarLander-v3"),
        "forward, sampling and values of 8 observations, per s": forward(8),
        "forward, sampling and values of 128 observations, per s": forward(128),
        "bare SGD, minibatch 128, steps/s": sgd(128),
        "bare SGD, minibatch 1024, steps/s": sgd(1024),
        "products and tanh alone, minibatch 128, steps/s": products(128),
        "products and tanh alone, minibatch 1024, steps/s": products(1024),
        "SAC's products and relu alone, one thread, steps/s": actor_critics_products(),
        "TD3's products and relu alone, one thread, steps/s": actor_critics_products(critics_of_actor=1, delay=2),
        "DDPG's products and relu alone, one thread, steps/s": actor_critics_products(critics=1, critics_of_actor=1),
    }
    answer({"rates": {name: per_second(work, SECONDS) for name, work in WORK.items()}}, "torch", "gymnasium")
