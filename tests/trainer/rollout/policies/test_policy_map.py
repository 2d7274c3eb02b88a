"""Policies beyond the capacity of a worker: their weights are in files, and the same when they come back."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from tests.trainer.run.policies.test_changes import Duel, against_the_past

from reef.algorithms.ppo import PPOConfig
from reef.errors import ConfigError, WriteError
from reef.nn.make import make_policy
from reef.rollout.policies.policy_map import PolicyMap
from reef.run.algorithm import Algorithm

OBSERVATIONS, ACTIONS = gym.spaces.Box(0, 1, (3,)), gym.spaces.Discrete(2)
ONE = np.ones((1, 3), np.float32)


def policies(count: int) -> dict[str, Any]:
    made = PPOConfig().training(model={"fcnet_hiddens": [4]})
    return {f"p/{n}": make_policy(made, OBSERVATIONS, ACTIONS, seed=n) for n in range(count)}


def held(capacity: int, count: int, *learning: str) -> tuple[PolicyMap, dict[str, Any]]:
    made = policies(count)
    found = PolicyMap(capacity, lambda policy_id: policy_id in learning)
    found.change_to(made, lambda policy_id: policy_id in learning)
    return found, made


def away(made: dict[str, Any]) -> list[str]:
    return [name for name, policy in made.items() if released(policy)]


def released(policy: Any) -> bool:
    return all(parameter.untyped_storage().nbytes() == 4 for parameter in policy.parameters())


def test_those_used_longest_ago_are_away_and_come_back_as_they_were() -> None:
    expected = {name: policy.flat.numpy() for name, policy in policies(4).items()}
    acted = {name: policy.act(ONE, {})[0].inputs for name, policy in policies(4).items()}
    found, made = held(2, 4)
    assert away(made) == ["p/0", "p/1"]
    for name in ("p/0", "p/3", "p/1", "p/0", "p/2"):
        assert found[name] is made[name], "the policy stays what it is"
        np.testing.assert_array_equal(made[name].flat.numpy(), expected[name])
        np.testing.assert_array_equal(made[name].act(ONE, {})[0].inputs, acted[name])
        assert made[name].acts_fast == (made[name].fast_actor is not None) is True
        assert len(away(made)) == 2 and name not in away(made)
    assert away(made) == ["p/1", "p/3"]
    assert found.num_read == 4, "p/3 was in memory"


def test_changed_weights_are_kept() -> None:
    found, made = held(1, 2)
    found["p/0"].flat.load(np.full_like(made["p/0"].flat.numpy(), 0.5))
    assert away(made) == ["p/0"] or found["p/1"] is made["p/1"]
    assert away(made) == ["p/0"]
    assert (found["p/0"].flat.numpy() == 0.5).all()


def test_those_that_learn_stay() -> None:
    _, made = held(2, 4, "p/0", "p/1")
    assert away(made) == ["p/2"], "one more is there: it acts"


def test_a_policy_that_a_person_holds_reads_its_weights_back() -> None:
    expected = {name: policy.get_weights() for name, policy in policies(2).items()}
    _, made = held(1, 2)
    assert away(made) == ["p/0"]
    found = made["p/0"].get_weights()
    assert {name: values.tolist() for name, values in found.items()} == {
        name: values.tolist() for name, values in expected["p/0"].items()
    }
    made["p/1"].set_weights(found)
    assert away(made) == ["p/0"]
    assert made["p/0"].architecture() == made["p/1"].architecture(), "shapes are known without weights"


def test_without_weights_nothing_is_computed_unnoticed() -> None:
    _, made = held(1, 2)
    assert np.isnan(made["p/0"].act(ONE, {})[0].inputs).all()
    with pytest.raises(RuntimeError):
        made["p/0"].flat.load(made["p/1"].flat.numpy())


def test_policies_that_go_take_their_place_along() -> None:
    found, made = held(2, 3)
    found.change_to({name: made[name] for name in ("p/0", "p/1")}, lambda policy_id: False)
    assert list(found) == ["p/0", "p/1"] and made["p/2"].recall is None
    assert found.get("p/0") is made["p/0"] and found.get("p/2") is None
    with pytest.raises(KeyError):
        found["p/2"]


def test_a_full_disk_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("reef.rollout.policies.policy_map.save_file", full)
    with pytest.raises(WriteError, match=r"policy_map_capacity=1: the weights of policy 'p/0' cannot be kept .*No spa"):
        held(1, 2)


def test_files_end_with_the_map() -> None:
    found, made = held(1, 2)
    folder = Path(found._folder)
    assert [path.name for path in folder.iterdir()] == ["p%2F0.safetensors"]
    del found, made
    gc.collect()
    assert not folder.exists()


def league(capacity: int) -> Any:
    made = PPOConfig().environment(Duel).debugging(seed=1).rollouts(num_envs_per_worker=2)
    made.multi_agent(policies=["main"], policy_mapping_fn=against_the_past, policies_to_train=["main"])
    made.multi_agent(policy_map_capacity=capacity).evaluation(evaluation_interval=1, evaluation_duration=6)
    return made.training(model={"fcnet_hiddens": [4]}, train_batch_size=64, sgd_minibatch_size=32, num_sgd_iter=2)


def play(algorithm: Algorithm, iterations: int) -> list[Any]:
    results = []
    for _ in range(iterations):
        name = f"past{len(algorithm.config.policies)}"
        algorithm.add_policy(name, policy=algorithm.get_policy("main"))
        result = algorithm.train()
        results.append((result["hist_stats"], result["evaluation"]["policy_reward_mean"], result["info"]["learner"]))
    return results


def in_memory(algorithm: Algorithm) -> int:
    runners = algorithm.workers.local_worker().runners.values()
    return sum(not released(runner.policy) for runner in runners)


def test_a_league_with_files_learns_and_resumes_as_one_without(tmp_path: Path) -> None:
    with league(2).build() as small, league(100).build() as large:
        assert play(small, 4) == play(large, 4)
        assert (in_memory(small), in_memory(large)) == (2, 5)
        assert small.workers.local_worker().policy_map.num_read > 4
        for name, weights in large.workers.local_worker().get_weights().items():
            np.testing.assert_array_equal(small.workers.local_worker().get_weights()[name], weights)
        checkpoint = small.save(tmp_path / "checkpoint")
        with Algorithm.from_checkpoint(checkpoint) as resumed:
            assert in_memory(resumed) == 2
            assert play(resumed, 2) == play(large, 2)
            removed = next(name for name in resumed.config.policies if name != "main")
            resumed.remove_policy(removed)
            resumed.train()


def test_it_is_refused_where_all_policies_act() -> None:
    made = PPOConfig().environment("CartPole-v1").multi_agent(policy_map_capacity=3)
    with pytest.raises(ConfigError, match="policy_map_capacity=3 has no effect: policy_mapping_fn is not asked"):
        made.validate()
