import numpy as np
import pytest
from gymnasium import spaces

from reef.errors import EnvironmentError
from reef.spaces import Layout

NESTED = spaces.Dict(
    {
        "camera": spaces.Box(0, 255, (2, 2, 3), np.uint8),
        "gear": spaces.Discrete(5, start=-1),
        "pair": spaces.Tuple((spaces.MultiBinary(3), spaces.MultiDiscrete([2, 4]))),
        "speed": spaces.Box(-1.0, 1.0, (), np.float64),
    }
)
SPACES = [
    spaces.Box(-1.0, 1.0, (3,)),
    spaces.Box(0, 255, (4, 4, 3), np.uint8),
    spaces.Box(-1.0, 1.0, (2, 2), np.float64),
    spaces.Discrete(4),
    spaces.Discrete(4, start=7),
    spaces.MultiDiscrete([2, 3]),
    spaces.MultiDiscrete([2, 3], start=[1, -4]),
    spaces.MultiBinary(4),
    spaces.Tuple((spaces.Discrete(2), spaces.Box(-1.0, 1.0, (2,)))),
    NESTED,
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_any_sample_comes_back_from_its_array(space):
    layout = Layout.of(space)
    space.seed(0)
    for _ in range(20):
        value = space.sample()
        array = layout.flatten(value)
        assert array.shape == layout.shape and array.dtype == layout.dtype and array.size == layout.size
        back = layout.unflatten(array)
        assert space.contains(back)
        np.testing.assert_array_equal(layout.flatten(back), array)
        if not layout.composite:
            np.testing.assert_array_equal(back, value)


def test_simple_spaces_keep_shape_and_dtype():
    assert (Layout.of(spaces.Box(0, 255, (4, 4, 3), np.uint8)).dtype, Layout.of(spaces.Discrete(3)).shape) == (
        np.uint8,
        (),
    )
    assert Layout.of(spaces.Discrete(3)).dtype == np.int64


def test_spaces_fit_whatever_their_bounds_and_starts_are():
    def fits(one, other):
        return Layout.of(one).fits(Layout.of(other))

    assert fits(spaces.Box(-1.0, 1.0, (3,)), spaces.Box(0.0, 9.0, (3,)))
    assert fits(spaces.Discrete(4), spaces.Discrete(4, start=7)) and fits(NESTED, NESTED)
    assert not fits(spaces.Box(-1.0, 1.0, (3,)), spaces.Box(-1.0, 1.0, (4,)))
    assert not fits(spaces.Discrete(4), spaces.Discrete(5))
    assert not fits(spaces.Discrete(4), spaces.Box(0.0, 4.0, ()))
    assert not fits(spaces.Dict(a=spaces.Discrete(4)), spaces.Dict(b=spaces.Discrete(4)))


def test_a_box_is_not_copied():
    value = np.zeros(3, np.float32)
    assert np.shares_memory(Layout.of(spaces.Box(-1.0, 1.0, (3,))).flatten(value), value)


def test_discrete_values_are_held_as_indices_from_zero():
    layout = Layout.of(spaces.Discrete(4, start=7))
    assert layout.flatten(9) == 2
    assert layout.unflatten(np.array(2)) == 9


def test_leaves_say_where_their_values_lie():
    layout = Layout.of(NESTED)
    assert [(leaf.path, leaf.offset, leaf.size) for leaf in layout.leaves] == [
        (("camera",), 0, 12),
        (("gear",), 12, 1),
        (("pair", 0), 13, 3),
        (("pair", 1), 16, 2),
        (("speed",), 18, 1),
    ]
    assert layout.shape == (19,) and layout.dtype == np.float32


def test_flat_values_by_hand():
    layout = Layout.of(spaces.Tuple((spaces.Discrete(5, start=2), spaces.Box(-9.0, 9.0, (2, 1)))))
    assert layout.flatten((4, np.array([[1.5], [-2.0]]))).tolist() == [2.0, 1.5, -2.0]


def test_a_space_without_fixed_size_is_named():
    with pytest.raises(EnvironmentError, match=r"space\['note'\]\[1\] is Text"):
        Layout.of(spaces.Dict({"note": spaces.Tuple((spaces.Discrete(2), spaces.Text(5)))}))
