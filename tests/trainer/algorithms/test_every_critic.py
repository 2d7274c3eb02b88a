"""What holds for every critic: an episode that is cut off is worth what would follow, and not only what was paid."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gymnasium import spaces
from recorded import recorded
from rollouts import CutOff
from test_every_algorithm import IN_PROCESS, OFFLINE

from reef.algorithms.registry import ALGORITHMS, config_class
from reef.nn.q_critics import SoftDiscrete


class CutOffAngle(CutOff):
    """Takes a real number."""

    action_space = spaces.Box(-1.0, 1.0, (1,))  # type: ignore[assignment]


ROLLOUTS = {"lr": 0.03, "rollout_fragment_length": 7, "entropy_coeff": 0.0}
BATCHES = ROLLOUTS | {"train_batch_size": 28}
PASSES = BATCHES | {"sgd_minibatch_size": 28, "num_sgd_iter": 4, "vf_clip_param": None, "kl_coeff": 0.0}
REPLAY = {"lr": 0.02, "num_steps_sampled_before_learning_starts": 70, "train_batch_size": 32, "training_intensity": 8.0}
Q_VALUES = REPLAY | {"target_network_update_freq": 10}
CRITICS = REPLAY | {"tau": 0.5, "rollout_fragment_length": 7}
# its values are of returns without the bonus for entropy
NO_ENTROPY = {"initial_alpha": 1e-6, "target_entropy": -100.0}
# both critics of discrete actions take longer
SLOWER = {"lr": 0.01, "tau": 0.05, "train_batch_size": 64, "training_intensity": 32.0}
SLOWER |= {"min_sample_timesteps_per_iteration": 2800}
SHARDS = IN_PROCESS | {"rollout_fragment_length": 7}
CASES: list[tuple[str, type[CutOff], dict[str, Any]]] = [
    ("A2C", CutOff, BATCHES),
    ("A3C", CutOff, ROLLOUTS),
    ("APEX", CutOff, Q_VALUES | SHARDS | {"hiddens": [8]}),
    ("APEX_DDPG", CutOffAngle, CRITICS | SHARDS),
    ("APPO", CutOff, BATCHES),
    ("CQL", CutOffAngle, {"lr": 0.02, "train_batch_size": 32, "tau": 0.5, "min_q_weight": 0.0} | NO_ENTROPY),
    ("DDPG", CutOffAngle, CRITICS),
    ("DDPPO", CutOff, PASSES | {"num_envs_per_worker": 1}),
    ("DQN", CutOff, Q_VALUES | {"hiddens": [8], "n_step": 3}),
    ("DQN", CutOff, Q_VALUES | {"hiddens": [8], "num_atoms": 21, "v_min": 0.0, "v_max": 20.0}),
    ("IMPALA", CutOff, BATCHES),
    *(("IQL", env, {"lr": 0.02, "train_batch_size": 16, "tau": 0.5}) for env in (CutOff, CutOffAngle)),
    ("MARWIL", CutOff, {"lr": 0.03, "train_batch_size": 40}),
    ("PG", CutOff, BATCHES | {"use_critic": True, "batch_mode": "truncate_episodes"}),
    ("PPO", CutOff, PASSES),
    ("SAC", CutOff, CRITICS | NO_ENTROPY | SLOWER),
    ("SAC", CutOffAngle, CRITICS | NO_ENTROPY),
    ("SimpleQ", CutOff, Q_VALUES),
    ("TD3", CutOffAngle, CRITICS),
    ("TQC", CutOffAngle, CRITICS | NO_ENTROPY | {"n_quantiles": 5, "top_quantiles_to_drop_per_net": 0}),
]


def value(policy: Any, obs: torch.Tensor) -> float:
    if isinstance(policy, SoftDiscrete):  # by its own actions; it hardly learns about those that it no longer takes
        return float(policy.expected(policy.critics, obs, policy.dist_inputs(obs), torch.zeros)[0])
    return float(policy.values(obs) if hasattr(policy, "values") else policy.state_values(obs))


def test_every_algorithm_with_a_critic_has_a_case() -> None:
    assert {name for name, *_ in CASES} | {"BC", "ES"} == set(ALGORITHMS)


@pytest.mark.parametrize(
    ("name", "env", "given"), CASES, ids=[f"{name}-{env.__name__}-{given.get('n_step')}" for name, env, given in CASES]
)
def test_an_episode_that_is_only_ever_cut_off_is_worth_one_without_an_end(
    name: str, env: type[CutOff], given: dict[str, Any]
) -> None:
    """Ten with gamma 0.9; between 4 and 7 where a step that is cut off counts as the last."""
    config = config_class(name).from_dict({"gamma": 0.9, "seed": 0, "model": {"fcnet_hiddens": [8]}} | given)
    if name in OFFLINE:
        config.update_from_dict({"input_": recorded(env), "min_train_timesteps_per_iteration": 10_000})
    else:
        config.reporting(min_sample_timesteps_per_iteration=given.get("min_sample_timesteps_per_iteration", 1400))
    with config.environment(env).build() as algorithm:
        for _ in range(2):
            algorithm.train()
        policy = algorithm.learners.learners["default_policy"].policy  # type: ignore[attr-defined]
        with torch.inference_mode():
            assert value(policy, torch.ones(1, 1)) == pytest.approx(10.0, abs=0.5)
