"""MARWIL and BC: the loss by hand, its scale, and what goes together.

It tests reef.algorithms.bc and reef.algorithms.offline too.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv
from recorded import recorded
from torch import Tensor, nn

from reef.algorithms.bc import BCConfig, BCLearner
from reef.algorithms.marwil import MARWIL, MOST_WEIGHT, MARWILConfig, MARWILLearner
from reef.batch import Transitions
from reef.errors import ConfigError

OBS, ACTIONS = spaces.Box(-1.0, 1.0, (3,)), spaces.Discrete(2)
COUNT = 20


def learner(**settings: Any) -> MARWILLearner:
    return made(MARWILLearner, MARWILConfig, ACTIONS, **settings)


def made(
    kind: type[MARWILLearner], config_class: type[MARWILConfig], action_space: spaces.Space[Any], **settings: Any
) -> MARWILLearner:
    given = {"train_batch_size": COUNT, "model": {"fcnet_hiddens": [8]}, "input_": "unread.json"} | settings
    config = config_class.from_dict(given).environment("CartPole-v1").debugging(seed=0)
    return kind(config.validate().freeze(), OBS, action_space)


def batch(scale: float = 1.0) -> Transitions:
    draw = np.random.default_rng(0)
    return Transitions(
        obs=draw.uniform(-1, 1, (COUNT, 3)).astype(np.float32),
        actions=draw.integers(0, 2, COUNT),
        rewards=(scale * draw.normal(size=COUNT)).astype(np.float32),
        next_obs=draw.uniform(-1, 1, (COUNT, 3)).astype(np.float32),
        terminated=draw.random(COUNT) < 0.5,
        truncated=np.zeros(COUNT, np.bool_),
        extras={"discounts": draw.choice([0.9, 0.5], COUNT).astype(np.float32)},
    )


def outputs(one: MARWILLearner, columns: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    found: tuple[Tensor, Tensor] = one.policy(columns["obs"])
    return found


def test_returns_go_on_with_the_critics_value_where_the_recording_was_cut() -> None:
    one, recording = learner(), batch()
    columns = one.prepare(recording)
    values = one.policy.values(torch.from_numpy(recording.next_obs)).detach().numpy()
    rest = np.where(recording.terminated, 0.0, recording.extras["discounts"] * values)
    np.testing.assert_allclose(columns["returns"], recording.rewards + rest, rtol=1e-6)


def test_the_loss_is_that_of_the_paper() -> None:
    one = learner(beta=2.0, vf_coeff=0.25, moving_average_sqd_adv_norm_start=9.0)
    columns = one.prepare(batch())
    dist_inputs, values = outputs(one, columns)
    found = one.loss((dist_inputs, values), columns)
    logp = torch.log_softmax(dist_inputs, -1).gather(1, columns["actions"][:, None])[:, 0]
    errors = columns["returns"] - values
    weights = torch.exp(2.0 * errors / 3.0).detach()
    expected = -(weights * logp).mean() + 0.25 * 0.5 * (errors**2).mean()
    assert found.value.item() == pytest.approx(expected.item(), rel=1e-5)
    ours, theirs = (torch.autograd.grad(loss, values, retain_graph=True)[0] for loss in (found.value, expected))
    torch.testing.assert_close(ours, theirs)


def test_one_lucky_return_does_not_outweigh_all_others() -> None:
    one = learner(moving_average_sqd_adv_norm_start=1.0)
    columns = one.prepare(batch(scale=1e6))
    dist_inputs, values = outputs(one, columns)
    found = one.loss((dist_inputs, values), columns)
    logp = torch.log_softmax(dist_inputs, -1).gather(1, columns["actions"][:, None])[:, 0]
    assert 0 < found.stats["policy_loss"].item() <= -MOST_WEIGHT * logp.mean().item() * 2


def test_the_scale_follows_the_advantages_and_is_saved() -> None:
    one = learner(moving_average_sqd_adv_norm_start=100.0, moving_average_sqd_adv_norm_update_rate=0.25)
    stats = one.update(batch(), 0).stats
    assert one.mean_square.item() == pytest.approx(75.0 + 0.25 * stats["mean_square_advantage"])
    two = learner()
    two.set_state(one.state())
    assert two.mean_square.item() == one.mean_square.item()


def test_the_scale_moves_at_the_rate_that_is_given_by_default() -> None:
    one = learner()
    stats = one.update(batch(), 0).stats
    moved = 1e-8 * (stats["mean_square_advantage"] - 100.0)
    assert one.mean_square.item() - 100.0 == pytest.approx(moved, rel=1e-3)
    assert one.loss(outputs(one, one.prepare(batch())), one.prepare(batch())).value.dtype == torch.float32


def test_imitation_alone_reads_no_returns() -> None:
    one = learner(beta=0.0)
    columns = one.prepare(batch())
    dist_inputs, values = outputs(one, columns)
    found = one.loss((dist_inputs, values), columns)
    logp = torch.log_softmax(dist_inputs, -1).gather(1, columns["actions"][:, None])[:, 0]
    assert found.value.item() == pytest.approx(-logp.mean().item())
    assert found.stats.keys() == {"policy_loss"}
    before = one.mean_square.item()
    one.update(batch(), 0)
    assert one.mean_square.item() == before


@pytest.mark.parametrize("action_space", [ACTIONS, spaces.Box(-1.0, 1.0, (2,))], ids=["index", "numbers"])
@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("hiddens", [[8, 16], [128, 256]], ids=str)
def test_bc_is_marwil_with_beta_0_without_the_critic(
    action_space: spaces.Space[Any], share: bool, hiddens: list[int]
) -> None:
    # Adam rounds the last few entries of its vector differently: here the end of the actor, or that of the critic
    given = {"lr": 0.05, "optimizer": {"type": "SGD"}}
    model = {"fcnet_hiddens": hiddens, "vf_share_layers": share}
    with_critic = made(MARWILLearner, MARWILConfig, action_space, beta=0.0, model=model, **given)
    alone = made(BCLearner, BCConfig, action_space, model={"fcnet_hiddens": hiddens}, **given)
    alone.policy.load_acting_weights(with_critic.policy.acting_weights())
    before = alone.weights()
    one = batch()
    if isinstance(action_space, spaces.Box):
        one = replace(one, actions=np.random.default_rng(1).normal(size=(COUNT, 2)).astype(np.float32))
    for _ in range(20):
        stats = [each.update(one, 0).stats for each in (with_critic, alone)]
        # the norm is summed in another order
        norms = [each.pop("grad_gnorm") for each in stats]
        assert norms[0] == pytest.approx(norms[1], rel=1e-5)
        assert stats[0] == stats[1]
    np.testing.assert_array_equal(alone.policy.acting_weights(), with_critic.policy.acting_weights())
    assert (alone.weights() != before).any()
    assert alone.policy.acting_weights().size == alone.weights().size < with_critic.weights().size


class TwoHeads(nn.Module):
    def __init__(self, observation_space: Any, action_space: Any, outputs: int) -> None:
        super().__init__()
        self.pi, self.vf = nn.Linear(3, outputs), nn.Linear(3, 1)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        return self.pi(obs), self.vf(obs)[:, 0]


def test_bc_trains_the_actor_of_a_custom_model() -> None:
    one = made(BCLearner, BCConfig, ACTIONS, model={"custom_model": TwoHeads})
    before = one.policy.get_weights()
    losses = [one.update(batch(), 0).stats["policy_loss"] for _ in range(2)]
    moved = {name for name, weights in one.policy.get_weights().items() if (weights != before[name]).any()}
    assert losses[1] < losses[0]
    assert moved == {"module.pi.weight", "module.pi.bias"}


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"input_": ""}, r"input_='': BC learns from recorded episodes.*reef evaluate CHECKPOINT --out FILE"),
        ({"num_rollout_workers": 2}, "num_rollout_workers=2: without shuffle_buffer_size BC reads everything before"),
        (
            {"num_rollout_workers": 2, "shuffle_buffer_size": 9, "input_": {"a": 1, "b": 2}},
            "num_rollout_workers=2: workers read one source, and input_ is a mapping",
        ),
        ({"num_rollout_workers": 2, "shuffle_buffer_size": 9}, "num_rollout_workers=2: input_ has 1 files, and each w"),
        ({"sample_async": True}, "sample_async=True: BC samples nothing"),
        ({"observation_filter": "MeanStdFilter"}, "observation_filter='MeanStdFilter': BC reads observations as they"),
        ({"policies": ["a", "b"]}, r"policies=\['a', 'b'\]: BC learns a single policy"),
        ({"beta": 1.0, "postprocess_inputs": False}, "postprocess_inputs=False: beta=1 needs returns"),
        ({"beta": 0.5}, "beta=0.5: BC has no critic to weigh actions by. Leave it at 0, or train with MARWIL"),
        ({"input_": {"a": 0.5, "sampler": 0.5}}, "input_: 'sampler': BC samples nothing. Leave it out."),
        ({"input_": {"a": 0.0, "b": 1.0}}, r"input_=\{'a': 0.0\}: expected weights above 0"),
        ({"input_": {"a": "much"}}, "input_.*expected"),
        ({"input_": "nowhere/at-all.json"}, "input_='nowhere/at-all.json': there is no such file"),
    ],
)
def test_what_does_not_go_together_is_refused(settings: dict[str, Any], problem: str) -> None:
    config = BCConfig.from_dict({"input_": recorded("CartPole-v1")} | settings).environment("CartPole-v1")
    with pytest.raises(ConfigError, match=problem):
        config.build()


@pytest.mark.parametrize(("unit", "told"), [("episodes", True), ("timesteps", False)])
def test_fragments_are_sampled_by_an_evaluation_of_steps_alone(unit: str, told: bool) -> None:
    given = {"batch_mode": "complete_episodes", "rollout_fragment_length": 7, "evaluation_duration_unit": unit}
    config = BCConfig.from_dict({"input_": recorded("CartPole-v1")} | given).environment("CartPole-v1")
    with config.build() as algorithm:
        texts = list(config.ignored_settings(algorithm.get_policy()))
    expected = ["batch_mode='complete_episodes' has no effect", "rollout_fragment_length=7 has no effect"]
    assert [text.partition(" with BC")[0] for text in texts] == (expected if told else [])


def read_rewards(**settings: Any) -> np.ndarray[Any, Any]:
    given = {"env": CartPoleEnv, "input_": recorded("CartPole-v1", episodes=2), "gamma": 1.0} | settings
    with MARWILConfig.from_dict(given).build() as algorithm:
        assert isinstance(algorithm, MARWIL)
        return algorithm.recorded.buffer.take(np.arange(len(algorithm.recorded))).rewards


def test_rewards_are_summed_only_where_returns_are_read() -> None:
    assert read_rewards(beta=0.0).max() == 1.0
    assert read_rewards(beta=1.0).max() > 5.0


@pytest.mark.parametrize(
    ("settings", "reward"), [({"clip_rewards": 0.5}, 0.5), ({"is_atari": True, "clip_rewards": None}, 1.0), ({}, 2.0)]
)
def test_recorded_rewards_are_clipped_as_sampled_ones(settings: dict[str, Any], reward: float, tmp_path: Path) -> None:
    path = tmp_path / "doubled.json"
    text = Path(recorded("CartPole-v1", episodes=2)).read_text()
    path.write_text(text.replace('"reward": 1.0', '"reward": 2.0'))
    assert (read_rewards(input_=str(path), beta=0.0, **settings) == reward).all()


def test_weights_say_how_often_the_steps_of_a_place_are_drawn(tmp_path: Path) -> None:
    doubled = tmp_path / "doubled.json"
    text = Path(recorded("CartPole-v1", episodes=2)).read_text()
    doubled.write_text(text.replace('"reward": 1.0', '"reward": 2.0'))
    places = {str(doubled): 9, recorded("CartPole-v1", episodes=2): 1}
    config = BCConfig().environment("CartPole-v1").offline_data(input_=places).debugging(seed=1)
    with config.build() as algorithm:
        assert algorithm.recorded.sample(1000).rewards.mean() == pytest.approx(1.9, abs=0.05)


def test_settings_that_imitation_does_not_read_are_told(caplog: pytest.LogCaptureFixture) -> None:
    config = BCConfig().environment("CartPole-v1").offline_data(input_=recorded("CartPole-v1"))
    with config.training(vf_coeff=0.5, gamma=0.9, model={"vf_share_layers": False}).build():
        assert "vf_coeff=0.5 has no effect with beta=0." in caplog.text
        assert "gamma=0.9 has no effect with beta=0." in caplog.text
        assert "model.vf_share_layers=False has no effect on an actor without a critic." in caplog.text


def test_steps_that_are_read_count_as_sampled() -> None:
    config = BCConfig().environment("CartPole-v1").offline_data(input_=recorded("CartPole-v1"))
    config.training(train_batch_size=100).reporting(min_train_timesteps_per_iteration=250)
    with config.build() as algorithm:
        result = algorithm.train()
    assert result["timesteps_total"] == 300
    assert result["num_env_steps_trained"] == 300
    assert result["episode_reward_mean"] is None, "nothing was played"
