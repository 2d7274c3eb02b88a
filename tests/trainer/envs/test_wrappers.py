import numpy as np
import pytest
from gymnasium import spaces

from reef.envs.wrappers import ActionTransform, RewardTransform
from reef.spaces import Layout

BOX = spaces.Box(np.array([0.0, -np.inf, -2.0], np.float32), np.array([10.0, 1.0, 2.0], np.float32))


def act(space, actions, *, normalize=False, clip=False):
    return ActionTransform(Layout.of(space), normalize=normalize, clip=clip)(np.asarray(actions))


def test_normalised_actions_are_stretched_where_both_bounds_are_finite_then_clipped():
    actions = act(BOX, [[-1.0, 0.5, 0.5], [0.0, 3.0, -5.0]], normalize=True)
    assert actions.tolist() == [[0.0, 0.5, 1.0], [5.0, 1.0, -2.0]]
    assert actions.dtype == np.float32


def test_clipped_actions_are_not_stretched():
    assert act(BOX, [[4.0, 0.5, 5.0]], clip=True).tolist() == [[4.0, 0.5, 2.0]]


def test_the_given_actions_are_not_changed():
    actions = np.full((1, 3), 7.0)
    act(BOX, actions, normalize=True)
    assert (actions == 7.0).all()


@pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.MultiDiscrete([3, 3]), spaces.MultiBinary(2)])
def test_discrete_actions_pass(space):
    actions = np.zeros((4, *space.shape), np.int64)
    assert act(space, actions, normalize=True, clip=True) is actions


def test_neither_passes_everything():
    actions = np.full((2, 3), 99.0)
    assert act(BOX, actions) is actions


def test_in_a_composite_space_only_boxes_are_bounded():
    space = spaces.Tuple((spaces.Discrete(5), spaces.Box(0.0, 4.0, (1,))))
    assert act(space, [[4.0, 0.5]], normalize=True).tolist() == [[4.0, 3.0]]


def test_integer_boxes_get_whole_numbers():
    actions = act(spaces.Box(0, 10, (2,), np.int32), [[0.13, -1.0]], normalize=True)
    assert actions.tolist() == [[6, 0]] and actions.dtype == np.int32


@pytest.mark.parametrize(
    ("clip_rewards", "atari", "expected"),
    [
        (None, False, [-3.0, 0.0, 0.5, 9.0]),
        (None, True, [-1.0, 0.0, 1.0, 1.0]),
        (True, False, [-1.0, 0.0, 1.0, 1.0]),
        (False, True, [-3.0, 0.0, 0.5, 9.0]),
        (2.0, False, [-2.0, 0.0, 0.5, 2.0]),
        (1, False, [-1.0, 0.0, 0.5, 1.0]),
        ([-1.0, 4.0], True, [-1.0, 0.0, 0.5, 4.0]),
    ],
)
def test_reward_clipping(clip_rewards, atari, expected):
    rewards = np.array([-3.0, 0.0, 0.5, 9.0], np.float32)
    clipped = RewardTransform(clip_rewards, atari=atari)(rewards)
    assert clipped.tolist() == expected and clipped.dtype == np.float32
    assert rewards[3] == 9.0
