from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from gymnasium import spaces

from reef.config import ModelConfig
from reef.errors import ConfigError
from reef.nn.layers.encoders import Encoder, Features
from reef.nn.layers.leaf_encoders import ImageEncoder
from reef.spaces import Layout

SPACES = [
    spaces.Box(-1, 1, (4,)),
    spaces.Box(-1, 1, (3, 2)),
    spaces.Box(-1, 1, ()),
    spaces.Discrete(5),
    spaces.MultiDiscrete([3, 2]),
    spaces.MultiBinary(4),
    spaces.Box(0, 255, (84, 84, 4), np.uint8),
    spaces.Box(0, 1, (16, 16, 3)),
    spaces.Dict({"pixels": spaces.Box(0, 255, (12, 12, 1), np.uint8), "id": spaces.Discrete(3)}),
    spaces.Tuple([spaces.Box(-1, 1, (2,)), spaces.Dict({"x": spaces.MultiDiscrete([2, 2])})]),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_every_observation_space_is_encoded_branch_by_branch(space: spaces.Space) -> None:
    space.seed(0)
    layout = Layout.of(space)
    encoder = Encoder(layout, ModelConfig(fcnet_hiddens=[16]), branches=2)
    obs = torch.from_numpy(np.stack([layout.flatten(space.sample()) for _ in range(3)]))
    features = encoder(obs)
    assert features.shape == (2, 3, encoder.out_features)
    for branch in range(2):
        torch.testing.assert_close(encoder.forward_branch(branch, obs), features[branch])
    assert not torch.allclose(features[0], features[1])
    features.sum().backward()
    assert all(parameter.grad is not None for parameter in encoder.parameters())


def test_choices_become_one_hot_rows() -> None:
    layout = Layout.of(spaces.MultiDiscrete([3, 2]))
    assert Features(layout, ModelConfig())(torch.tensor([[2, 0]])).tolist() == [[0, 0, 1, 1, 0]]


def test_leaves_of_a_dict_keep_their_values() -> None:
    layout = Layout.of(spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(-9, 9, (2,))}))
    flat = layout.flatten({"a": 1, "b": np.array([5.0, -3.0], np.float32)})
    assert Features(layout, ModelConfig())(torch.from_numpy(flat)[None]).tolist() == [[0, 1, 5, -3]]


def test_bytes_are_scaled() -> None:
    space = spaces.Box(0, 255, (8, 8, 1), np.uint8)
    encoder = ImageEncoder(space, [[1, 8, 1]], "linear")
    torch.nn.init.ones_(encoder.layers[0].weight)
    assert encoder(torch.full((1, 8, 8, 1), 255, dtype=torch.uint8)).item() == pytest.approx(64.0, rel=1e-5)


def test_layers_after_convolutions_have_their_activation() -> None:
    encoder = Encoder(Layout.of(spaces.Box(0, 1, (16, 16, 3))), ModelConfig(conv_activation="tanh"))
    assert encoder(torch.rand(5, 16, 16, 3)).min() < 0, "which a ReLU never is"


def test_a_kernel_may_have_two_sizes() -> None:
    space = spaces.Box(0, 1, (9, 12, 2), np.float32)
    filters = ModelConfig(conv_filters=[[4, [3, 6], 2], [8, (2, 2), 1]]).conv_filters
    encoder = ImageEncoder(space, filters, "relu")
    assert [tuple(layer.weight.shape) for layer in encoder.layers] == [(4, 2, 3, 6), (8, 4, 2, 2)]
    assert encoder(torch.zeros(5, 9, 12, 2)).shape == (5, encoder.out_features) == (5, 3 * 3 * 8)
    one_size = ImageEncoder(space, [[4, 3, 2]], "relu")
    assert one_size.out_features == ImageEncoder(space, [[4, [3, 3], 2]], "relu").out_features


def test_filters_that_shrink_an_image_to_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"conv_filters=\[\[8, 9, 1\]\]"):
        ImageEncoder(spaces.Box(0, 1, (8, 8, 1)), [[8, 9, 1]], "relu")


@pytest.mark.parametrize(
    ("shape", "to_last"),
    [
        ((4, 16, 12), lambda frames: np.moveaxis(frames, 0, -1)),
        ((16, 12), lambda frames: frames[..., None]),
        ((4, 16, 12, 3), lambda frames: np.concatenate(frames, -1)),
        ((2, 3, 16, 12), lambda frames: np.moveaxis(frames.reshape(6, 16, 12), 0, -1)),
    ],
    ids=["channels first", "grey", "frames of channels last", "frames of channels first"],
)
def test_bytes_are_an_image_in_whatever_order(shape: tuple[int, ...], to_last: Callable[..., np.ndarray]) -> None:
    space = spaces.Box(0, 255, shape, np.uint8)
    space.seed(0)
    images = np.stack([space.sample() for _ in range(2)])
    last = np.stack([to_last(image) for image in images])
    encoder = ImageEncoder(space, [[2, 3, 2]], "linear")
    same = ImageEncoder(spaces.Box(0, 255, last.shape[1:], np.uint8), [[2, 3, 2]], "linear")
    same.load_state_dict(encoder.state_dict())
    torch.testing.assert_close(encoder(torch.from_numpy(images)), same(torch.from_numpy(last)))


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(0, 255, (128,), np.uint8),
        spaces.Box(0, 255, (3, 9), np.uint8),
        spaces.Box(0, 255, (9, 3, 9), np.uint8),
        spaces.Box(0.0, 1.0, (3, 16, 16)),
        spaces.Box(0.0, 1.0, (16, 16)),
    ],
    ids=str,
)
def test_what_is_no_image_stays_numbers(space: spaces.Box) -> None:
    features = Features(Layout.of(space), ModelConfig())
    assert not features.has_image
    high = torch.from_numpy(space.high)[None]
    assert torch.equal(features(high), torch.ones(1, space.high.size)), "bytes are scaled, other numbers are not"


def test_small_integers_are_not_scaled() -> None:
    features = Features(Layout.of(spaces.Box(0, 9, (2,), np.uint8)), ModelConfig())
    assert features(torch.tensor([[9, 0]], dtype=torch.uint8)).tolist() == [[9.0, 0.0]]
