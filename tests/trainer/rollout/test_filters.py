import numpy as np
import pytest
from gymnasium import spaces

from reef.errors import ConfigError
from reef.rollout.filters import MeanStdFilter, make_filter
from reef.spaces import Layout

VECTOR = Layout.of(spaces.Box(-np.inf, np.inf, (2,)))


def batches(count, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal([5.0, -3.0], [2.0, 0.5], (8, 2)).astype(np.float32) for _ in range(count)]


def test_hand_numbers():
    filtered = MeanStdFilter(VECTOR)(np.array([[0.0, 10.0], [2.0, 10.0]], np.float32))
    np.testing.assert_allclose(filtered, [[-(0.5**0.5), 0.0], [0.5**0.5, 0.0]], rtol=1e-6)
    assert filtered.dtype == np.float32


def test_filtered_observations_are_standardised():
    mean_std = MeanStdFilter(VECTOR)
    for batch in batches(50):
        mean_std(batch)
    everything = mean_std(np.concatenate(batches(50)), update=False)
    np.testing.assert_allclose(everything.mean(0), 0.0, atol=1e-4)
    np.testing.assert_allclose(everything.std(0, ddof=1), 1.0, atol=1e-4)


def test_without_update_nothing_is_counted_and_the_input_stays():
    mean_std, batch = MeanStdFilter(VECTOR), batches(1)[0]
    kept = batch.copy()
    mean_std(batch, update=False)
    assert mean_std.stat.count == 0
    np.testing.assert_array_equal(batch, kept)


def test_workers_together_know_what_one_filter_would():
    alone, central = MeanStdFilter(VECTOR), MeanStdFilter(VECTOR)
    workers = [MeanStdFilter(VECTOR) for _ in range(3)]
    for round_ in range(2):
        for worker, batch in zip(workers, batches(3, seed=round_), strict=True):
            worker(batch)
            alone(batch)
        for worker in workers:
            central.merge(worker.delta())
        for worker in workers:
            worker.sync(central)
    for f in (central, *workers):
        assert f.stat.count == alone.stat.count == 48  # counted once, though there were two rounds
        np.testing.assert_allclose(f.stat.mean, alone.stat.mean)
        np.testing.assert_allclose(f.stat.std, alone.stat.std)


def test_what_was_seen_after_the_delta_survives_a_sync():
    central, worker = MeanStdFilter(VECTOR), MeanStdFilter(VECTOR)
    first, second = batches(2)
    worker(first)
    central.merge(worker.delta())
    worker(second)  # sampled while the driver merged
    worker.sync(central)
    assert worker.stat.count == 16
    central.merge(worker.delta())
    assert central.stat.count == 16
    np.testing.assert_allclose(central.stat.mean, np.concatenate([first, second]).mean(0, np.float64))


def test_state_restores_statistics_and_delta():
    first, second = MeanStdFilter(VECTOR), MeanStdFilter(VECTOR)
    first(batches(1)[0])
    second.set_state(first.state())
    probe = batches(1, seed=9)[0]
    np.testing.assert_array_equal(first(probe), second(probe))
    assert second.delta().count == 16


def test_indices_of_discrete_parts_are_left_alone():
    layout = Layout.of(spaces.Tuple((spaces.Discrete(9), spaces.Box(-9.0, 9.0, (1,)))))
    filtered = make_filter("MeanStdFilter", layout)(np.array([[3.0, 0.0], [8.0, 2.0]], np.float32))
    assert filtered[:, 0].tolist() == [3.0, 8.0]
    assert filtered[:, 1] == pytest.approx([-(0.5**0.5), 0.5**0.5])


def test_bytes_are_left_to_the_networks_that_scale_them():
    space = spaces.Dict({"pixels": spaces.Box(0, 255, (2,), np.uint8), "x": spaces.Box(-9.0, 9.0, (1,))})
    filtered = make_filter("MeanStdFilter", Layout.of(space))(np.array([[3, 255, 0], [8, 0, 2]], np.float32))
    assert filtered[:, :2].tolist() == [[3, 255], [8, 0]]
    assert filtered[:, 2] == pytest.approx([-(0.5**0.5), 0.5**0.5])


def test_names():
    assert make_filter("MeanStdFilter", Layout.of(spaces.Discrete(3))) is None
    assert make_filter("NoFilter", VECTOR) is None
    with pytest.raises(ConfigError, match="Did you mean 'MeanStdFilter'"):
        make_filter("MeanStdFiltr", VECTOR)
    with pytest.raises(ConfigError, match="floating-point"):
        make_filter("MeanStdFilter", Layout.of(spaces.Box(0, 255, (8, 8, 3), np.uint8)))


def test_the_first_other_value_of_an_element_that_was_constant_is_not_magnified():
    """Such as a flag of the last observation, which never enters the statistics."""
    mean_std = MeanStdFilter(VECTOR)
    for batch in batches(20):
        mean_std(batch * np.array([1.0, 0.0], np.float32))
    np.testing.assert_allclose(mean_std(np.array([[5.0, 1.0]], np.float32), update=False)[:, 1], [1.0])
