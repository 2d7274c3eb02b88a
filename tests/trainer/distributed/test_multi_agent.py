"""Several policies with workers and learners in processes of their own."""

from __future__ import annotations

from typing import Any

import pytest

from reef.algorithms.ppo import PPOConfig
from reef.envs.multi_agent import IndependentAgents

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster"), pytest.mark.timeout(120)]


@pytest.mark.parametrize("memory", [{}, {"use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 8}], ids=str)
def test_two_workers_and_two_learners_train_two_policies(memory: dict[str, Any]) -> None:
    config = PPOConfig().environment(IndependentAgents, env_config={"env": "CartPole-v1", "num_agents": 2})
    config = config.multi_agent(policies=["left", "right"], policy_mapping_fn={"0": "left", "1": "right"})
    config = config.training(
        model={"fcnet_hiddens": [4], **memory}, train_batch_size=64, sgd_minibatch_size=32, num_sgd_iter=2
    )
    config = config.rollouts(num_rollout_workers=2, observation_filter="MeanStdFilter").debugging(seed=1)
    with config.resources(num_learner_workers=2).build() as algorithm:
        before = algorithm.get_weights()
        assert (before["left"]["pi.weight"] != before["right"]["pi.weight"]).any()
        result = algorithm.train()
        after = algorithm.get_weights()
        assert result["info"]["learner"].keys() == {"left", "right"}
        for name in before:
            assert any((before[name][key] != after[name][key]).any() for key in before[name])
        seen = algorithm.workers.foreach_worker(lambda worker: worker.acting_weights())
        for weights in seen[1:]:
            assert all((weights[name] == seen[0][name]).all() for name in before)
