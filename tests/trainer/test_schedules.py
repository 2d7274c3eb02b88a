"""Piecewise-linear values."""

import pytest

from reef.errors import ConfigError
from reef.schedules import Schedule


def test_a_number_is_the_same_at_all_times():
    assert [Schedule(0.5)(t) for t in (0, 10, 10**9)] == [0.5, 0.5, 0.5]


def test_values_lie_on_the_lines_between_points_and_stay_after_the_last():
    schedule = Schedule([[0, 1.0], [100, 0.0], [300, 2.0]])
    expected = {0: 1.0, 25: 0.75, 100: 0.0, 200: 1.0, 300: 2.0, 1000: 2.0}
    assert {t: schedule(t) for t in expected} == pytest.approx(expected)


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([[10, 1.0], [20, 0.0]], "first timestep must be 0, not 10"),
        ([[0, 1.0], [20, 0.0], [20, 1.0]], "larger than the one before"),
        ([[0, 1.0, 2.0]], "expected points"),
        ([], "expected points"),
    ],
)
def test_malformed_points_are_refused(points, message):
    with pytest.raises(ConfigError, match=message):
        Schedule(points)
