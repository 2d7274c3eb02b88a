from reef.envs.seeding import EpisodeSeeds, column_seeds


def test_every_column_of_every_worker_has_its_own_seed():
    seeds = [seed for worker in range(4) for seed in column_seeds(7, worker, 8)]
    assert len(set(seeds)) == 32
    assert column_seeds(7, 2, 8) == seeds[16:24]
    assert column_seeds(7, 2, 4) == seeds[16:20]  # more columns do not change the first ones


def test_without_a_seed_two_runs_differ():
    assert column_seeds(None, 0, 2) != column_seeds(None, 0, 2)


def test_the_first_episode_uses_the_root_and_later_ones_do_not_repeat():
    seeds = EpisodeSeeds([5, 6])
    first = [seeds.next(0) for _ in range(20)]
    assert first[0] == 5 and len(set(first)) == 20
    assert seeds.next(1) == 6  # whatever its sibling did


def test_restored_columns_go_on_and_further_ones_keep_their_own():
    seeds, other = EpisodeSeeds([5, 6]), EpisodeSeeds([1, 2, 3])
    seeds.next(0), seeds.next(0)
    other.restore(seeds.state())
    assert other.current(0) == seeds.current(0)
    assert other.next(0) == seeds.next(0)
    assert other.next(2) == 3
