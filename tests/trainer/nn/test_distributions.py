"""Action distributions against those of torch.

It tests reef.nn.distributions.continuous, reef.nn.distributions.discrete, reef.nn.distributions.distribution and
reef.nn.distributions.of_spaces too.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from reef.errors import ConfigError
from reef.nn.distributions import (
    ActionDistribution,
    Categorical,
    DiagonalGaussian,
    DistributionMaker,
    Joint,
    SquashedGaussian,
)
from reef.spaces import Layout

SPACES = [
    spaces.Discrete(4),
    spaces.MultiDiscrete([3, 2]),
    spaces.MultiDiscrete([[3, 2], [2, 4]]),
    spaces.MultiBinary(3),
    spaces.Box(-1, 1, (2,)),
    spaces.Box(-1, 1, ()),
    spaces.Box(0, 10, (2,), np.int64),
    spaces.Box(-1, 1, (2, 2)),
    spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, (2,))]),
    spaces.Dict({"a": spaces.Discrete(2), "b": spaces.MultiDiscrete([2, 3])}),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_every_action_space_has_a_distribution_with_actions_of_its_layout(space: spaces.Space) -> None:
    layout = Layout.of(space)
    make = DistributionMaker(layout)
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(5, make.num_inputs, generator=generator)
    dist = make(inputs)
    acting = ActionDistribution(make, inputs.numpy())
    best, drawn = acting.deterministic(), acting.sample(np.random.default_rng(0))
    for actions in (best, drawn):
        assert actions.shape == (5, *layout.shape)
        assert actions.dtype == layout.action_dtype
        assert torch.isfinite(dist.logp(torch.from_numpy(actions))).all()
        assert dist.logp(torch.from_numpy(actions)).shape == (5,)
    assert dist.entropy().shape == (5,)
    torch.testing.assert_close(dist.kl(dist), torch.zeros(5), atol=1e-5, rtol=0)
    assert (dist.kl(make(torch.randn(5, make.num_inputs, generator=generator))) > 0).all()
    assert (dist.logp(torch.from_numpy(best)) >= dist.logp(torch.from_numpy(drawn)) - 1e-5).all()


def drawn(space: spaces.Space, inputs: list[float], rows: int = 20_000) -> np.ndarray:
    acting = ActionDistribution(DistributionMaker(Layout.of(space)), np.full((rows, len(inputs)), inputs, np.float32))
    return acting.sample(np.random.default_rng(1))


def test_drawn_bits_are_set_with_their_probabilities() -> None:
    bits = drawn(spaces.MultiBinary(2), [math.log(0.2 / 0.8), math.log(0.9 / 0.1)])
    assert bits.mean(0) == pytest.approx([0.2, 0.9], abs=0.015)


def test_drawn_numbers_have_their_mean_and_deviation() -> None:
    numbers = drawn(spaces.Box(-1, 1, (2,)), [3.0, -1.0, math.log(0.5), math.log(2.0)])
    assert numbers.mean(0) == pytest.approx([3.0, -1.0], abs=0.05)
    assert numbers.std(0) == pytest.approx([0.5, 2.0], rel=0.03)
    assert abs(np.corrcoef(numbers.T)[0, 1]) < 0.03


class Noiseless:
    def standard_exponential(self, shape: tuple[int, ...], dtype: type) -> np.ndarray:
        noise = np.ones(shape, dtype)
        noise[..., 0] = 0  # as one in ten million is
        return noise


def test_noise_of_zero_does_not_choose_what_is_next_to_impossible() -> None:
    generator: Any = Noiseless()
    with np.errstate(all="raise"):
        assert Categorical.draw(np.array([[-40.0, 0.0]], np.float32), generator) == [1]


def test_the_parts_of_a_joint_action_are_drawn_apart() -> None:
    pairs = drawn(spaces.MultiDiscrete([2, 2]), [0.0, 0.0, 0.0, 0.0])
    assert np.bincount(2 * pairs[:, 0] + pairs[:, 1]) / len(pairs) == pytest.approx(0.25, abs=0.015)


def test_categorical_samples_with_its_probabilities() -> None:
    probabilities = torch.tensor([0.1, 0.2, 0.7])
    dist = DistributionMaker(Layout.of(spaces.Discrete(3)))(probabilities.log().expand(20_000, 3))
    counts = np.bincount(drawn(spaces.Discrete(3), probabilities.log().tolist()), minlength=3) / 20_000
    assert counts == pytest.approx(probabilities.numpy(), abs=0.015)
    assert dist.logp(torch.full((20_000,), 2))[0].item() == pytest.approx(math.log(0.7))
    assert dist.entropy()[0].item() == pytest.approx(-sum(p * math.log(p) for p in (0.1, 0.2, 0.7)), rel=1e-5)


def test_gaussian_hand_numbers() -> None:
    dist = DiagonalGaussian(torch.tensor([[1.0, math.log(2.0)]]))
    assert dist.logp(torch.tensor([[3.0]])).item() == pytest.approx(-0.5 - math.log(2) - 0.5 * math.log(2 * math.pi))
    assert dist.entropy().item() == pytest.approx(math.log(2) + 0.5 * math.log(2 * math.pi * math.e))
    other = DiagonalGaussian(torch.tensor([[0.0, 0.0]]))
    assert dist.kl(other).item() == pytest.approx(-math.log(2) + (4 + 1) / 2 - 0.5)


def test_joint_adds_up_its_parts() -> None:
    layout = Layout.of(spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, (2,))]))
    dist = DistributionMaker(layout)(torch.zeros(1, 7))
    assert isinstance(dist, Joint)
    action = torch.tensor([[2.0, 0.0, 0.0]])
    assert dist.logp(action).item() == pytest.approx(-math.log(3) - math.log(2 * math.pi))
    value = layout.unflatten(np.asarray(action[0]))
    assert value[0] == 2


def test_a_space_without_distribution_is_named() -> None:
    layout = Layout.of(spaces.Discrete(2))
    odd = Layout(spaces.Text(3), (), np.dtype(np.int64), layout.leaves[:0], direct=True)
    maker = DistributionMaker(odd)
    with pytest.raises(ConfigError, match="no action distribution"):
        maker._add(spaces.Text(3), 0)


def test_a_squashed_gaussian_is_a_normal_behind_a_tanh() -> None:
    generator = torch.Generator().manual_seed(0)

    def some(*shape: int) -> torch.Tensor:
        return 0.5 * torch.randn(shape, generator=generator, dtype=torch.float64)

    inputs, noise = some(5, 4), some(5, 2)
    dist = SquashedGaussian(inputs)
    normal = torch.distributions.Normal(inputs[:, :2], inputs[:, 2:].exp())
    squashed = torch.distributions.TransformedDistribution(normal, torch.distributions.TanhTransform(cache_size=1))
    actions, logp = dist.sample(noise)
    torch.testing.assert_close(actions, torch.tanh(normal.mean + normal.stddev * noise))
    torch.testing.assert_close(logp, squashed.log_prob(actions).sum(-1))
    torch.testing.assert_close(dist.logp(actions), logp)
    assert torch.isfinite(dist.logp(torch.ones(5, 2))).all(), "at the bounds too"
    np.testing.assert_allclose(SquashedGaussian.mode(inputs.numpy()), np.tanh(inputs[:, :2].numpy()))
    drawn = SquashedGaussian.draw(np.tile(inputs[:1].numpy(), (20_000, 1)), np.random.default_rng(0))
    normals = np.random.default_rng(1).standard_normal((20_000, 2))
    expected = np.tanh(normal.mean[0].numpy() + normal.stddev[0].numpy() * normals)
    np.testing.assert_allclose(drawn.mean(0), expected.mean(0), atol=0.03)
    np.testing.assert_allclose(drawn.std(0), expected.std(0), atol=0.03)
    other = SquashedGaussian(some(5, 4))
    torch.testing.assert_close(dist.kl(other), DiagonalGaussian(inputs).kl(DiagonalGaussian(other.inputs)))
    with pytest.raises(NotImplementedError, match="no closed form"):
        dist.entropy()


def test_the_deviation_of_a_squashed_gaussian_is_bounded() -> None:
    inputs = np.array([[0.0, 0.0, 9.0, -99.0]], np.float32)
    assert SquashedGaussian(torch.from_numpy(inputs)).log_std.tolist() == [[2.0, -20.0]]
    drawn = SquashedGaussian.draw(np.tile(inputs, (100, 1)), np.random.default_rng(0))
    noise = np.random.default_rng(0).standard_normal((100, 2), np.float32)
    np.testing.assert_allclose(drawn, np.tanh(noise * np.exp([2.0, -20.0])), rtol=1e-5)


def test_the_gradient_of_a_squashed_sample_is_finite_far_out() -> None:
    inputs = torch.tensor([[30.0, 5.0], [-30.0, -30.0]], requires_grad=True)
    actions, logp = SquashedGaussian(inputs).sample(torch.ones(2, 1))
    (actions.sum() + logp.sum()).backward()
    assert inputs.grad is not None and torch.isfinite(inputs.grad).all()
