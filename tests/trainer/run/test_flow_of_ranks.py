"""When ranks sample, and what counts as trained: reef.run.flows.ranks."""

from __future__ import annotations

from typing import Any

import pytest

from reef.algorithms.ppo import PPOConfig
from reef.batch import Sample
from reef.learn.learner import Update
from reef.rollout.worker import RolloutWorker
from reef.run.flows.ranks import in_ranks


class OneRank:
    """The worker of this process as the only rank, which is lost before each of the first `losses` updates."""

    def __init__(self, worker: RolloutWorker, losses: int) -> None:
        self.worker, self.losses, self.rounds = worker, losses, 0
        self.updated: list[int] = []

    def sample(self) -> list[Sample]:
        self.rounds += 1
        assert self.rounds <= 3, "it would never end"
        return [self.worker.sample(20).without_rollouts()]

    def update(self, batches: Any, timestep: int) -> dict[str, Any]:
        self.updated = [] if self.rounds <= self.losses else [self.worker.worker_index]
        return {policy_id: Update({}, {}) for policy_id in batches} if self.updated else {}

    def stop(self) -> None:
        """No process runs."""


@pytest.mark.parametrize(("trains", "losses"), [(True, 0), (True, 1), (False, 0), (False, 1)])
def test_ranks_sample_again_where_all_were_lost_and_not_where_no_policy_learns(
    trains: bool, losses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = PPOConfig.from_dict({"policies": ["0"], "policies_to_train": lambda *_: trains, "seed": 0})
    config.environment("reef.envs.multi_agent:IndependentAgents", env_config={"env": "CartPole-v1", "num_agents": 1})
    with config.training(model={"fcnet_hiddens": [8]}).build() as algorithm:
        ranks: Any = OneRank(algorithm.workers.local_worker(), losses)
        monkeypatch.setattr(algorithm, "learners", ranks)
        assert in_ranks(algorithm, ranks).keys() == ({"0"} if trains else set())
        assert ranks.rounds == losses + 1
        for steps in ("env_steps", "agent_steps"):
            assert algorithm.counters[f"num_{steps}_sampled"] == 20 * (losses + 1)
            assert algorithm.counters[f"num_{steps}_trained"] == (20 if trains else 0)
