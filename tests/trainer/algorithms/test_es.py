"""ES: perturbed policies, centered ranks, the estimated gradient, and how the noise is shared.

It tests reef.nn.fast.perturbed too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from reef.algorithms.es import ESConfig, ESLearner, centered_ranks, play
from reef.batch import Perturbations
from reef.errors import ConfigError
from reef.nn import perturbed
from reef.nn.make import make_policy
from reef.nn.perturbed import PerturbedPolicy, noise_table
from reef.rollout.worker import RolloutWorker

OBS, ACTIONS = spaces.Box(-1, 1, (3,)), spaces.Discrete(2)


def settings(**training: Any) -> ESConfig:
    small = {"model": {"fcnet_hiddens": [4]}, "noise_size": 10_000, "episodes_per_batch": 4, "train_batch_size": 1}
    config = ESConfig().environment("CartPole-v1").training(**(small | training)).debugging(seed=0)
    return config.rollouts(num_envs_per_worker=4).reporting(min_sample_timesteps_per_iteration=1)


class Custom(nn.Module):
    def __init__(self, observation_space: Any, action_space: Any, num_outputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(3, num_outputs)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.layer(obs), obs.sum(-1)


@pytest.mark.parametrize("model", [{"fcnet_hiddens": [4, 4]}, {"fcnet_hiddens": []}, {"custom_model": Custom}])
def test_each_column_acts_by_its_own_weights(model: dict[str, Any]) -> None:
    policy = make_policy(settings(model=model), OBS, ACTIONS)
    assert isinstance(policy, PerturbedPolicy)
    before, obs = policy.flat.vector.clone(), torch.randn(3, 3)
    noise = policy.noise(np.array([0, 5, 7])) * np.array([[1.0], [-1.0], [0.0]], np.float32)
    policy.perturb(noise)
    perturbed = policy.dist_inputs(obs)
    policy.perturb(None)
    for column in range(3):
        policy.flat.vector.copy_(before + torch.from_numpy(noise[column]))
        torch.testing.assert_close(perturbed[column], policy.dist_inputs(obs[column : column + 1])[0])
    assert torch.equal(policy.flat.vector, before + torch.from_numpy(noise[2]))


def test_an_index_is_the_same_noise_in_every_process() -> None:
    table = noise_table(100)
    assert table.tolist() == np.random.default_rng(0).standard_normal(100, np.float32).tolist()
    policy = make_policy(settings(), OBS, ACTIONS)
    assert isinstance(policy, PerturbedPolicy)
    assert policy.noise(np.array([3]))[0, :5].tolist() == noise_table(10_000)[3:8].tolist()


def test_processes_of_a_node_share_a_large_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perturbed, "SHARED_FROM", 100)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = tmp_path / "reef" / "noise-100.npy"
    expected = np.random.default_rng(0).standard_normal(100, np.float32)
    for damage in (None, lambda whole: b"", lambda whole: b"torn", lambda whole: whole[:-4]):
        if damage:
            path.write_bytes(damage(path.read_bytes()))
        noise_table.cache_clear()
        table = noise_table(100)
        assert isinstance(table, np.memmap)
        assert table.tolist() == expected.tolist() == np.load(path).tolist()
        assert [file.name for file in path.parent.iterdir()] == [path.name]
    noise_table.cache_clear()


def test_of_processes_that_write_a_table_at_once_the_first_writes_it_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perturbed, "SHARED_FROM", 100)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = tmp_path / "reef" / "noise-100.npy"

    def drawn(size: int) -> Any:
        np.save(path, np.full(size, 7.0, np.float32))  # as another process has it by now
        return np.zeros(size, np.float32)

    monkeypatch.setattr(perturbed, "_drawn", drawn)
    noise_table.cache_clear()
    assert noise_table(100).tolist() == [7.0] * 100
    noise_table.cache_clear()


def test_a_table_that_cannot_be_shared_is_one_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(perturbed, "SHARED_FROM", 100)
    (tmp_path / "reef").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    noise_table.cache_clear()
    assert noise_table(100).tolist() == np.random.default_rng(0).standard_normal(100, np.float32).tolist()
    assert "each process has a table of noise of its own" in caplog.text
    noise_table.cache_clear()


def test_ranks_are_centered_and_equal_returns_share_theirs() -> None:
    ranks = centered_ranks(np.array([[10.0, 30.0], [20.0, -1e9]]))
    np.testing.assert_allclose(ranks, [[-1 / 6, 0.5], [1 / 6, -0.5]])
    assert centered_ranks(np.array([[5.0, 5.0], [5.0, 5.0]])).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert centered_ranks(np.array([[1.0, 2.0], [2.0, 3.0]])).tolist() == [[-0.5, 0.0], [0.0, 0.5]]


def test_the_gradient_by_hand() -> None:
    """Ranks of ((4, 1), (2, 3)): (0.5, -0.5) and (-1/6, 1/6), so the first noise counts 1/4 and the second -1/12."""
    one = ESLearner(settings(l2_coeff=0.1), OBS, ACTIONS)
    weights, noise = one.policy.flat.vector.clone(), torch.from_numpy(one.policy.noise(np.array([8, 2])))
    one.update(Perturbations(np.array([8, 2]), np.array([[4.0, 1.0], [2.0, 3.0]])), 0)
    expected = 0.1 * weights - (noise[0] / 4 - noise[1] / 12)
    torch.testing.assert_close(one.policy.flat.gradient, expected)


def test_it_climbs_a_quadratic() -> None:
    """Returns are minus the squared distance to a target: 300 updates come near it."""
    one = ESLearner(settings(l2_coeff=0.0, lr=0.02, noise_stdev=0.05), OBS, ACTIONS)
    target, rng = torch.full_like(one.policy.flat.vector, 0.3), np.random.default_rng(0)

    def distance(vector: torch.Tensor) -> float:
        return float((vector - target).square().sum())

    start = distance(one.policy.flat.vector)
    for _ in range(300):
        indices = rng.integers(5000, size=16)
        noise = torch.from_numpy(one.policy.noise(indices)) * 0.05
        pairs = [[-distance(one.policy.flat.vector + sign * each) for sign in (1, -1)] for each in noise]
        one.update(Perturbations(indices, np.array(pairs)), 0)
    assert distance(one.policy.flat.vector) < 0.02 * start


def test_a_worker_plays_the_tasks_that_are_its_own() -> None:
    """With 4 environments 6 episodes are two rounds; a policy that always pushes to one side falls within 11 steps."""
    worker = RolloutWorker(settings())
    try:
        policy = worker.policy_map["default_policy"]
        policy.flat.vector.zero_()
        tasks = {0: (np.arange(6), np.array([0.0, 0.0, 0.0, 0.0, 1.0, -1.0], np.float32))}
        samples, returns = play(tasks, worker)
        assert len(samples) == 2 and [len(each.episodes) for each in samples] == [4, 2]
        assert len(returns) == 6 and max(returns[:4]) <= 11
        assert sorted(returns) == sorted(episode.reward for each in samples for episode in each.episodes)
        assert all(not each.rollouts for each in samples), "what was seen stays in the worker"
        assert play({1: tasks[0]}, worker) == ([], [])
        assert not policy.flat.vector.any(), "the weights themselves are not changed"
    finally:
        worker.stop()


def test_an_update_counts_its_episodes_and_reports_the_unperturbed_ones() -> None:
    with settings(eval_prob=1.0, episodes_per_batch=8).build() as algorithm:
        result = algorithm.train()
    stats = result["info"]["learner"]["default_policy"]["learner_stats"]
    assert stats["episodes"] == 8 and result["episodes_this_iter"] == 16, "one unperturbed for each"
    assert stats["eval_return_mean"] > 0 and stats["grad_gnorm"] > 0
    assert result["num_env_steps_trained"] == result["timesteps_total"] > 0
    assert result["num_agent_steps_sampled"] == result["num_agent_steps_trained"] == result["timesteps_total"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"noise_size": 10}, r"noise_size=10: the policy has \d+ weights"),
        (
            {"model": {"use_lstm": True}},
            "^1 problem.*\n- model.use_lstm=True: this algorithm has no network with a memory",
        ),
        ({"noise_stdev": 0.0}, "noise_stdev=0.0: must be larger than 0"),
    ],
)
def test_what_cannot_work_is_refused(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        settings(**change).build()


def test_several_policies_and_learners_are_refused() -> None:
    with pytest.raises(ConfigError, match="num_learner_workers=1: an update of ES is one sum"):
        settings().resources(num_learner_workers=1).build()
    with pytest.raises(ConfigError, match="policies=.*not available yet with ES"):
        settings().multi_agent(policies=["a", "b"]).build()


def test_agents_that_share_the_policy_are_refused() -> None:
    agents = {"env": "CartPole-v1", "num_agents": 2}
    config = settings().environment("reef.envs.multi_agent:IndependentAgents", env_config=agents)
    with pytest.raises(ConfigError, match="IndependentAgents' has several agents: not available yet with ES"):
        config.build()


@pytest.mark.parametrize(
    ("given", "named"), [({}, True), ({"explore": True}, False), ({"evaluation_config": {"explore": True}}, False)]
)
def test_an_exploration_without_exploring_is_named(given: dict[str, Any], named: bool) -> None:
    config = settings().update_from_dict({"exploration_config": {"type": "Random"}} | given)
    with config.build() as algorithm:
        texts = list(config.ignored_settings(algorithm.get_policy()))
    assert texts == ["exploration_config={'type': 'Random'} has no effect with explore=False."] * named


def test_settings_that_it_does_not_read_are_named(caplog: pytest.LogCaptureFixture) -> None:
    with settings(gamma=0.5).rollouts(rollout_fragment_length=7).build():
        pass
    assert "gamma=0.5 has no effect with ES" in caplog.text
    assert "rollout_fragment_length=7 has no effect with ES" in caplog.text


def test_steps_count_as_trained_only_if_the_policy_learns() -> None:
    with settings().multi_agent(policies_to_train=lambda *_: False).build() as algorithm:
        result = algorithm.train()
    assert result["num_env_steps_sampled"] > 0
    assert result["num_env_steps_trained"] == result["num_agent_steps_trained"] == 0
