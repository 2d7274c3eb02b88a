"""Data sets that Minari wrote are read as what was played.

It tests reef.offline.minari.data_set and reef.offline.minari.values too.
"""

from __future__ import annotations

import json
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from pyarrow import parquet
from tests.trainer.offline.test_episodes import reader

from reef.algorithms.bc import BCConfig
from reef.cli.main import main
from reef.errors import ConfigError
from reef.offline.episode_files import recorded_in
from reef.offline.minari.values import values_of
from reef.offline.places import files_of

h5py = pytest.importorskip("h5py")
pytest.importorskip("minari")
from minari.data_collector.episode_buffer import EpisodeBuffer  # noqa: E402
from minari.dataset.minari_storage import MinariStorage  # noqa: E402

FORMATS = ["hdf5", "arrow", "parquet"]
BOX, IMAGE = spaces.Box(-1.0, 1.0, (2, 3)), spaces.Box(0, 255, (32, 40, 3), np.uint8)
NESTED = spaces.Dict({"0": BOX, "two": spaces.Tuple([spaces.Discrete(5), spaces.MultiBinary(2)])})
SPACES: dict[str, tuple[gym.Space[Any], gym.Space[Any]]] = {
    "box": (BOX, spaces.Discrete(3)),
    "discrete": (spaces.Discrete(9), spaces.MultiDiscrete([2, 3])),
    "nested": (NESTED, spaces.Tuple([spaces.Discrete(3), spaces.Box(-1.0, 1.0, (1,))])),
}


@dataclass
class Episode:
    """As it was played: observations [5], actions [4]. Both flags are set at its end if its number is odd."""

    number: int
    observations: list[Any]
    actions: list[Any]

    @property
    def truncations(self) -> list[bool]:
        return [False] * 3 + [self.number % 2 == 1]


def stacked(space: gym.Space[Any], values: list[Any]) -> Any:
    """As Minari collects them."""
    if isinstance(space, spaces.Dict):
        return {key: stacked(part, [value[key] for value in values]) for key, part in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(stacked(part, [value[index] for value in values]) for index, part in enumerate(space))
    return list(values)


def played(root: Path, form: str, observed: gym.Space[Any], acted: gym.Space[Any], *, jpeg: bool = False) -> Any:
    """Three episodes in a data set `test/set-v0` in the folder, which Minari writes."""
    observed.seed(0)
    acted.seed(0)
    episodes = [
        Episode(number, [observed.sample() for _ in range(5)], [acted.sample() for _ in range(4)])
        for number in range(3)
    ]
    folder = root / "test" / "set-v0" / "data"
    folder.mkdir(parents=True)
    storage = MinariStorage.new(folder, observed, acted, data_format=form, jpeg_encoding=jpeg)
    storage.update_episodes(
        EpisodeBuffer(
            id=episode.number,
            seed=episode.number,
            observations=stacked(observed, episode.observations),
            actions=stacked(acted, episode.actions),
            rewards=[0.5, 1.0, 1.5, 2.0],
            terminations=[False] * 3 + [True],
            truncations=episode.truncations,
            infos={"step": np.arange(5)[:, None]},
        )
        for episode in episodes
    )
    return episodes


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", SPACES)
def test_what_was_played_is_read(form: str, kind: str, root: Path) -> None:
    expected = played(root, form, *SPACES[kind])
    for place in ("minari://test/set-v0", str(root / "test" / "set-v0"), str(root / "test" / "set-v0" / "data")):
        (folder,) = files_of(place)
    reads = reader(*SPACES[kind])
    episodes = list(reads.read([folder]))
    assert len(episodes) == 3
    for episode, given in zip(episodes, expected, strict=True):
        obs = [reads._observations.flatten(value) for value in given.observations]
        actions = [reads._actions.flatten(value) for value in given.actions]
        np.testing.assert_allclose(episode.obs[:, 0], obs[:-1], atol=1e-6)
        np.testing.assert_allclose(episode.next_obs[:, 0], obs[1:], atol=1e-6)
        np.testing.assert_allclose(episode.actions[:, 0], actions, atol=1e-6)
        assert episode.rewards[:, 0].tolist() == [0.5, 1.0, 1.5, 2.0]
        assert episode.terminated[:, 0].tolist() == [False] * 3 + [True]
        assert episode.truncated[:, 0].tolist() == given.truncations
    assert [episode.truncated[-1, 0] for episode in episodes] == [False, True, False], "both may be set"


@pytest.mark.parametrize("form", FORMATS)
def test_images_that_are_packed_are_unpacked(form: str, root: Path) -> None:
    played(root, form, IMAGE, spaces.Discrete(2), jpeg=True)
    (expected,) = MinariStorage.read(root / "test" / "set-v0" / "data").get_episodes([1])
    episodes = list(reader(IMAGE, spaces.Discrete(2)).read(files_of("minari://test/set-v0")))
    np.testing.assert_array_equal(episodes[1].next_obs[:, 0], expected["observations"][1:])


def test_all_packed_images_of_a_file_count_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played(root, "parquet", IMAGE, spaces.Discrete(2), jpeg=True)
    (file,) = (root / "test" / "set-v0" / "data" / "0").glob("*.parquet")
    size = parquet.read_table(file).nbytes
    for limit, expected in ((size * 2, 3), (size // 2, 0)):
        for module in ("minari.reader", "parquet_reader"):
            monkeypatch.setattr(f"reef.offline.{module}.EPISODE_BYTES", limit)
        episodes = reader(IMAGE, spaces.Discrete(2)).read(files_of("minari://test/set-v0"))
        if expected:
            assert len(list(episodes)) == expected
        else:
            with pytest.raises(ConfigError, match="it takes more than the .* MiB that are read"):
                list(episodes)


@pytest.mark.parametrize("form", FORMATS)
def test_an_algorithm_and_the_command_line_read_it(form: str, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cart = spaces.Box(-1.0, 1.0, (4,), np.float32)
    played(root, form, cart, spaces.Discrete(2))
    config = BCConfig().environment("CartPole-v1").training(train_batch_size=20)
    config.offline_data(input_="minari://test/set-v0").reporting(min_train_timesteps_per_iteration=20)
    with config.build() as algorithm:
        assert len(algorithm.recorded) == 12  # type: ignore[attr-defined]
        algorithm.train()
    assert main(["data", "stats", "minari://test/set-v0", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["episodes"], found["reward_mean"], found["terminated"]) == (3, 5.0, 3)
    assert main(["data", "inspect", str(root / "test" / "set-v0")]) == 0
    shown = capsys.readouterr().out
    assert "obs            float[4], in 12 of 12 steps" in shown
    assert "info           {step: " in shown
    assert main(["data", "convert", "minari://test/set-v0", str(root / "all.json")]) == 0
    (first, *_) = [steps() for _, steps in recorded_in(root / "all.json")]
    assert [step["info"] for step in first] == [{"step": [n]} for n in (1, 2, 3, 4)]


def test_a_name_that_leads_nowhere_says_where_it_was_looked_for(root: Path) -> None:
    with pytest.raises(
        ConfigError, match=f"input_='minari://x/y-v0': there is no such data set in {root}. Get it with"
    ):
        files_of("minari://x/y-v0")


def change_metadata(root: Path, **changed: Any) -> None:
    path = root / "test" / "set-v0" / "data" / "metadata.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"data_format": "zarr"}, "metadata.json has data_format='zarr', expected one of hdf5, arrow, parquet"),
        ({"observation_space": "{"}, "metadata.json is none of Minari's"),
        ({"observation_space": '{"type": "Text"}'}, "observations: it is of the space Text, which no array can hold"),
        ({"observation_space": '{"type": "Box", "shape": [9]}'}, "observations: cannot reshape"),
        (
            {"observation_space": '{"type": "Dict", "subspaces": {"a": {}}}'},
            "it does not have the parts a of its space",
        ),
        ({"observation_space": "[]"}, "observations: "),
    ],
)
@pytest.mark.parametrize("form", FORMATS)
def test_metadata_that_are_wrong(form: str, changed: dict[str, str], reason: str, root: Path) -> None:
    played(root, form, BOX, spaces.Discrete(3))
    change_metadata(root, **changed)
    with pytest.raises(ConfigError, match=reason):
        list(reader(BOX, spaces.Discrete(3)).read(files_of("minari://test/set-v0")))


def test_values_elsewhere_are_not_read(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A link, or a data set in another file, would show what lies on this machine."""
    played(root, "hdf5", BOX, spaces.Discrete(3))
    (root / "secret").write_bytes(b"\1" * 160)
    with h5py.File(root / "test" / "set-v0" / "data" / "main_data.hdf5", "a") as file:
        del file["episode_0/rewards"], file["episode_1/rewards"]
        file["episode_0/rewards"] = h5py.ExternalLink("other.hdf5", "/x")
        file["episode_1"].create_dataset("rewards", (4,), "f8", external=str(root / "secret"))
    assert len(list(reader(BOX, spaces.Discrete(3)).read(files_of("minari://test/set-v0")))) == 1
    assert "episode_0: rewards is a link to another place, which is not read" in caplog.text
    assert "episode_1: rewards has its values in another file, which is not read" in caplog.text


def test_groups_in_circles_and_values_that_grow(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    played(root, "hdf5", BOX, spaces.Discrete(3))
    with h5py.File(root / "test" / "set-v0" / "data" / "main_data.hdf5", "a") as file:
        del file["episode_0/observations"], file["episode_1/observations"]
        file["episode_0"].create_group("observations")["a"] = file["episode_0"]
        file["episode_1"].create_dataset("observations", (2**40,), "f8", compression="gzip", chunks=(1000,))
    assert len(list(reader(BOX, spaces.Discrete(3)).read(files_of("minari://test/set-v0")))) == 1
    assert "episode_0: it has more than 8 groups in each other" in caplog.text
    assert "episode_1: observations takes more than the 4096 MiB that are read" in caplog.text


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("form", FORMATS)
def test_damaged_files_are_left_out(form: str, seed: int, root: Path, caplog: pytest.LogCaptureFixture) -> None:
    played(root, form, BOX, spaces.Discrete(3))
    draw = random.Random(seed)
    for path in sorted((root / "test" / "set-v0" / "data").rglob(f"*.{form}")):
        content = bytearray(path.read_bytes())
        for _ in range(4):
            content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        path.write_bytes(content[: draw.randrange(len(content)) if draw.random() < 0.3 else None])
    (root / "good.json").write_text(json.dumps({"steps": [GOOD]}) + "\n")
    files = files_of(["minari://test/set-v0", str(root / "good.json")])
    episodes = list(reader(BOX, spaces.Discrete(3)).read(files))
    assert len(episodes) >= 1
    assert all(np.isfinite(episode.obs).all() for episode in episodes)


GOOD = {"obs": np.zeros((2, 3)).tolist(), "action": 1, "next_obs": np.zeros((2, 3)).tolist(), "reward": 1.0}
GOOD |= {"terminated": True, "truncated": False}


def test_an_image_that_is_none() -> None:
    space = {"type": "Box", "dtype": "uint8", "shape": [32, 40, 3], "low": 0, "high": 255}
    with pytest.raises(ValueError, match="an image is no JPEG"):
        values_of(space, [b"no image"], jpeg=True)
    with pytest.raises(ValueError, match="an image is no JPEG"):
        values_of(space, [None], jpeg=True)


@pytest.mark.parametrize(
    ("module", "form", "reason"),
    [
        ("h5py", "hdf5", "has HDF5, which `pip install 'reef.minari.'` can read"),
        ("PIL", "parquet", "observations: it has images packed as JPEG, which `pip install 'reef.minari.'` can read"),
    ],
)
def test_without_its_package_a_data_set_is_refused(
    module: str, form: str, reason: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played(root, form, IMAGE, spaces.Discrete(2), jpeg=True)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=reason):
        list(reader(IMAGE, spaces.Discrete(2)).read(files_of("minari://test/set-v0")))
