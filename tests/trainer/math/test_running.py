import numpy as np
import pytest

from reef.math.running import RunningStat


def test_hand_numbers():
    stat = RunningStat()
    stat.push(np.array([2.0, 4.0]))
    stat.push(np.array([9.0]))
    assert (stat.count, stat.mean, stat.m2) == (3, pytest.approx(5.0), pytest.approx(26.0))
    assert stat.variance == pytest.approx(13.0)


@pytest.mark.parametrize("seed", range(5))
def test_batches_of_any_size_give_numpys_mean_and_variance(seed):
    rng = np.random.default_rng(seed)
    values = rng.normal(1e6, 3.0, (200, 2, 3))  # far from zero: the naive sum of squares loses all digits here
    stat = RunningStat((2, 3))
    for batch in np.split(values, np.sort(rng.integers(0, 200, 7))):  # some are empty
        stat.push(batch)
    np.testing.assert_allclose(stat.mean, values.mean(0), rtol=1e-12)
    np.testing.assert_allclose(stat.variance, values.var(0, ddof=1), rtol=1e-9)


def test_merging_is_pushing_everything():
    values = np.random.default_rng(0).normal(5.0, 2.0, (60, 3))
    parts = []
    for batch in (values[:7], values[7:7], values[7:]):
        part = RunningStat((3,))
        part.push(batch)
        parts.append(part)
    merged = RunningStat((3,))
    for part in parts:
        merged.merge(part)
    np.testing.assert_allclose(merged.mean, values.mean(0))
    np.testing.assert_allclose(merged.std, values.std(0, ddof=1))
    assert merged.count == 60


def test_one_value_has_variance_one():
    stat = RunningStat((2,))
    stat.push(np.array([[3.0, 4.0]]))
    assert stat.variance.tolist() == [1.0, 1.0]


def test_a_copy_and_a_restored_state_are_independent():
    stat = RunningStat((1,))
    stat.push(np.array([[1.0], [2.0]]))
    copy, restored = stat.copy(), RunningStat.of(stat.state())
    stat.push(np.array([[100.0]]))
    assert (copy.count, copy.mean.tolist()) == (restored.count, restored.mean.tolist()) == (2, [1.5])


def test_integers_do_not_overflow():
    stat = RunningStat((1,))
    stat.push(np.array([[0], [250], [250]], np.uint8))
    assert stat.mean[0] == pytest.approx(500 / 3)


def test_other_shapes_do_not_merge():
    with pytest.raises(ValueError, match=r"\(3,\)"):
        RunningStat((2,)).merge(RunningStat((3,)))
