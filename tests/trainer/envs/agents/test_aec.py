"""Turn-based environments of PettingZoo, played as its own loop plays them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pettingzoo.butterfly.knights_archers_zombies import knights_archers_zombies
from pettingzoo.classic.connect_four import connect_four
from pettingzoo.classic.rps import rps
from pettingzoo.classic.tictactoe import tictactoe

from reef.algorithms.ppo import PPOConfig
from reef.envs.agents.aec import AECAgents

GAMES = {
    "connect_four": connect_four.env,
    "rps": lambda: rps.env(max_cycles=9),
    "tictactoe": tictactoe.env,
    "zombies": lambda: knights_archers_zombies.env(max_cycles=60, max_zombies=30),
}


def choose(env: Any, agent: Any, obs: Any, random: np.random.Generator) -> Any:
    mask = obs["action_mask"] if isinstance(obs, dict) else None
    return int(random.choice(np.flatnonzero(mask)) if mask is not None else random.integers(env.action_space(agent).n))


def by_their_loop(env: Any, seed: int) -> dict[Any, list[tuple[Any, float]]]:
    """By agent what it saw at each of its turns, and the reward it got since the one before."""
    random, found = np.random.default_rng(seed), {}
    env.reset(seed=seed)
    for agent in env.agent_iter():
        obs, reward, terminated, truncated, _ = env.last()
        found.setdefault(agent, []).append((obs, float(reward)))
        env.step(None if terminated or truncated else choose(env, agent, obs, random))
    return found


def by_ours(env: AECAgents, seed: int) -> dict[Any, list[tuple[Any, float]]]:
    random, found = np.random.default_rng(seed), {}
    obs, _ = env.reset(seed=seed)
    rewards: dict[Any, float] = dict.fromkeys(obs, 0.0)
    ended: set[Any] = set()
    while True:
        for agent, seen in obs.items():
            found.setdefault(agent, []).append((seen, rewards[agent]))
        acting = [agent for agent in obs if agent not in ended]
        if not acting:
            return found
        (agent,) = acting
        obs, rewards, *flags, _ = env.step({agent: choose(env.env, agent, obs[agent], random)})
        ended |= {agent for each in flags for agent, flag in each.items() if flag}


@pytest.mark.parametrize("game", GAMES)
def test_agents_see_and_get_what_they_do_in_its_own_loop(game: str) -> None:
    theirs, ours = by_their_loop(GAMES[game](), 3), by_ours(AECAgents(GAMES[game]()), 3)
    assert theirs.keys() == ours.keys()
    for agent, turns in theirs.items():
        assert [reward for _, reward in turns] == [reward for _, reward in ours[agent]]
        for (one, _), (other, _) in zip(turns, ours[agent], strict=True):
            np.testing.assert_equal(one, other)


def four(env_config: dict[str, Any]) -> Any:
    return connect_four.env()


def test_connect_four_is_trained() -> None:
    config = PPOConfig().environment(four).multi_agent(policies=["both"]).debugging(seed=1)
    config.training(model={"fcnet_hiddens": [16]}, train_batch_size=256, sgd_minibatch_size=64, num_sgd_iter=2)
    with config.build() as algorithm:
        result = algorithm.train()
    assert result["num_agent_steps_trained"] > 200
    assert result["episode_len_mean"] >= 7
