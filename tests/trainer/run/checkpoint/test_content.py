"""Checkpoints whose checksums are right and whose content is not: each is a `CheckpointError` and nothing else.

It tests reef.run.checkpoint.fit too.
"""

from __future__ import annotations

import hashlib
import json
import resource
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from reef.algorithms.dqn import DQNConfig
from reef.algorithms.ppo import PPOConfig
from reef.errors import CheckpointError, ConfigError
from reef.run.algorithm import Algorithm
from reef.run.checkpoint import CheckpointStore
from reef.run.experiment import restored
from reef.run.folders import given_start, newest_start

SMALL = {"fcnet_hiddens": [4]}
CONFIGS = {
    "PPO": PPOConfig()
    .environment("CartPole-v1")
    .rollouts(observation_filter="MeanStdFilter", rollout_fragment_length=64)
    .training(train_batch_size=64, sgd_minibatch_size=32, num_sgd_iter=1, model=SMALL),
    "DQN": DQNConfig().environment("CartPole-v1").training(model=SMALL, hiddens=[4], n_step=3),
}
WORKER, POLICY = "workers/local", "learners/default_policy"
RUNNER = f"{WORKER}/runners/default_policy"
OPTIMIZER = f"{POLICY}/optimizers/policy"
BUFFER = "memory/buffers/default_policy"


class Parts:
    """The files of a checkpoint, open to change."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state, self.metadata, self.manifest = (
            json.loads((path / name).read_text()) for name in ("state.json", "metadata.json", "manifest.json")
        )
        self.arrays = load_file(path / "arrays.safetensors")
        self.raw: dict[str, bytes] = {}

    def put(self, key: str, value: Any) -> None:
        """Give a key of the state another value; the arrays that stood there go."""
        *inner, last = key.split("/")
        holder = self.state
        for name in inner:
            holder = holder[int(name) if isinstance(holder, list) else name]
        holder[last] = value
        for name in [name for name in self.arrays if f"{name}/".startswith(f"/{key}/")]:
            del self.arrays[name]

    def drop(self, key: str) -> None:
        self.put(key, None)
        *inner, last = key.split("/")
        holder = self.state
        for name in inner:
            holder = holder[name]
        del holder[last]

    def write(self) -> None:
        save_file(self.arrays, self.path / "arrays.safetensors")
        (self.path / "state.json").write_text(json.dumps(self.state))
        (self.path / "metadata.json").write_text(json.dumps(self.metadata))
        for name, content in self.raw.items():
            (self.path / name).write_bytes(content)
        for name, about in self.manifest.get("files", {}).items() if isinstance(self.manifest, dict) else ():
            content = (self.path / name).read_bytes()
            about.update(bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
        (self.path / "manifest.json").write_text(json.dumps(self.manifest))


Mutation = Callable[[Parts], Any]


def state(key: str, *values: Any) -> dict[str, Mutation]:
    return {f"{key} is {value!r:.20}": lambda parts, value=value: parts.put(key, value) for value in values}


def gone(*keys: str) -> dict[str, Mutation]:
    return {f"{key} is gone": lambda parts, key=key: parts.drop(key) for key in keys}


def array(key: str, **changes: Callable[[Any], Any]) -> dict[str, Mutation]:
    def changed(parts: Parts, change: Callable[[Any], Any]) -> None:
        parts.arrays[f"/{key}"] = np.ascontiguousarray(change(parts.arrays[f"/{key}"]))

    return {f"{key} has {name}": lambda parts, c=change: changed(parts, c) for name, change in changes.items()}


def meta(key: str, *values: Any) -> dict[str, Mutation]:
    return {
        f"metadata {key}: {value!r:.20}": lambda p, value=value: p.metadata.update({key: value}) for value in values
    }


def raw(name: str, *contents: bytes) -> dict[str, Mutation]:
    return {f"{name} holds {c[:12]!r} ({len(c)})": lambda p, c=c: p.raw.update({name: c}) for c in contents}


SHAPES = {
    "another dtype": lambda a: a.astype(np.float16 if a.dtype.kind == "f" else np.float64),
    "one row less": lambda a: a[:-1],
    "one more axis": lambda a: a[None],
    "no rows": lambda a: a[:0],
}
NAN = {"NaN": lambda a: np.full_like(a, np.nan), "infinity": lambda a: np.full_like(a, np.inf)}
HUGE_HEADER = json.dumps({"/x": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}).encode()
BOTH: dict[str, Mutation] = {
    **state("iteration", -1, 1.5, float("nan"), "3", None, True, [], 10**30, 7),
    **state("policy_version", -1, float("inf"), {}),
    **state("counters", [], None, {}, {"num_env_steps_sampled": 1}),
    **state("counters/num_env_steps_sampled", -5, float("nan"), "many", 2**80),
    **state("counters/own", float("nan"), [1]),
    **state("metrics", None, [], "text"),
    **state("metrics/window/episodes", {}, [None], [{"reward": 1.0}], 5),
    **state("metrics/window/episodes/0/reward", "much", [1.0]),
    **state("metrics/window/episodes/0/policy_rewards", [1], {"default_policy": "x"}),
    **state("metrics/window/total", -1, None),
    **state("metrics/time_total_s", float("nan"), "long"),
    **state("metrics/sampler_perf/mean_s", {"sample": None}, []),
    **state("metrics/sampler_perf/steps", {}, None),
    **state("metrics/counters", None, {"num_env_steps_sampled": float("nan")}),
    **state("learners", [], None, {}, "x"),
    **state(POLICY, None, [], {}),
    **state(f"{POLICY}/weights", None, [1.0, 2.0], 3, "x"),
    **state(f"{POLICY}/optimizers", None, [1], {}),
    **state(OPTIMIZER, None, [1], {}),
    **state(f"{POLICY}/generator", {}, [1]),
    **state("workers", None, [], {}),
    **state("workers/remote", None, {}, ["x"], [{}]),
    **state(f"{RUNNER}/generator", None, {}, {"bit_generator": "MT19937"}, "PCG64"),
    **state(f"{RUNNER}/generator/state/state", -1, "x", 2**200),
    **state(f"{WORKER}/timestep", -1, float("nan")),
    **state(f"{WORKER}/filters", None, [], {}),
    **state(f"{WORKER}/env", [], 3),
    **state(f"{WORKER}/env/seeds", None, [], {"roots": "x", "episodes": []}),
    **state(f"{WORKER}/env/generator", None, {"state": []}),
    **state(f"{RUNNER}/obs", [], "x", {"a": 1}),
    **state(f"{WORKER}/fragment_index", None, 5),
    **state(f"{RUNNER}/exploration", None, [], 5),
    **state("evaluation", None, [], {"latest": 5, "workers": None}, {"latest": None, "workers": []}),
    **state("networks", None, [], {"default_policy": 5}, {"default_policy": {"shapes": []}}),
    **gone("iteration", "counters", "metrics", "learners", "workers", "evaluation", f"{RUNNER}/generator"),
    **gone(f"{POLICY}/weights", f"{OPTIMIZER}/exp_avg", f"{RUNNER}/obs"),
    **array(f"{POLICY}/weights", **SHAPES, **NAN),
    **array(f"{OPTIMIZER}/exp_avg_sq", **SHAPES, **NAN),
    **array(f"{POLICY}/generator", **SHAPES, zeros=lambda a: np.full_like(a, 255)),
    **array(
        f"{WORKER}/episodes/rewards/default_policy",
        **{k: v for k, v in SHAPES.items() if "rows" not in k and "row" not in k},
    ),
    **array(f"{RUNNER}/obs", **SHAPES),
    **array(f"{WORKER}/env/state", **{k: v for k, v in SHAPES.items() if k != "no rows"}),
    **raw("state.json", b"", b"null", b"[]", b"\xff", b"{", b"[" * 100_000, b"9" * 5000,
          b'{"a":' * 900 + b"1" + b"}" * 900),
    **raw("metadata.json", b"", b"null", b"[]", b"[" * 100_000),
    **raw("arrays.safetensors", b"", b"\xff" * 8, struct.pack("<Q", 2**60), struct.pack("<Q", 50) + b"{",
          struct.pack("<Q", len(HUGE_HEADER)) + HUGE_HEADER),
    **meta("algorithm", None, 5, [], "SAC"),
    **meta("iteration", None, -1, "x", 3.5, 99),
    **meta("score", "best", {}, float("nan")),
    **meta("config", None, [], 5),
    **meta("time", None, 5),
    "an array is gone": lambda parts: parts.arrays.pop(f"/{POLICY}/weights"),
    "an array belongs nowhere": lambda parts: parts.arrays.update({"/own": np.zeros(3, np.float32)}),
    "an array has another's place": lambda parts: parts.state["learners"]["default_policy"]["weights"].update(
        {"$array": f"/{OPTIMIZER}/exp_avg"}
    ),
    "arrays of bfloat16": lambda parts: parts.raw.update({"arrays.safetensors": bfloat16()}),
    "the manifest is a list": lambda parts: setattr(parts, "manifest", []),
    "the manifest lists no arrays": lambda parts: parts.manifest["files"].pop("arrays.safetensors"),
    "the manifest lists nothing": lambda parts: parts.manifest.update(files={}),
    "the manifest says no kind": lambda parts: parts.manifest.update(kind=5),
    "the manifest is of another kind": lambda parts: parts.manifest.update(kind="policy"),
    "the manifest is of another version": lambda parts: parts.manifest.update(version=[2]),
}  # fmt: skip
REPLAY: dict[str, Mutation] = {
    **state("memory", None, [], {}),
    **state("memory/rng", None, {}, [1]),
    **state("memory/buffers", None, [], {"nobody": {}}, {"default_policy": 1}),
    **state(f"{BUFFER}/added", -1, 10**18, float("nan"), "x"),
    **state(f"{BUFFER}/capacity", 0, -5, None),
    **state(f"{BUFFER}/columns", {}, None, []),
    **state(f"{BUFFER}/largest", float("nan"), -1.0, None),
    **state(f"{POLICY}/target/updated_at", -1, float("nan"), "x"),
    **state("memory/n_steps", None, {"default_policy/0": 3}, {"nobody/0": {"obs": 1}}),
    **gone(f"{BUFFER}/columns/discounts", f"{BUFFER}/columns/obs", f"{POLICY}/target"),
    **array(f"{BUFFER}/columns/obs", **SHAPES),
    **array(f"{BUFFER}/columns/actions", **SHAPES),
    **array(f"{BUFFER}/columns/terminated", **SHAPES),
    **array(f"{BUFFER}/priorities", **SHAPES, **NAN, negative=lambda a: a - 10.0),
    **array("memory/n_steps/default_policy~10/rewards", **SHAPES),
    **array(f"{POLICY}/target/weights", **SHAPES, **NAN),
}
CASES = [(name, mutation) for name in CONFIGS for mutation in (BOTH | REPLAY if name == "DQN" else BOTH)]


def bfloat16() -> bytes:
    header = json.dumps({"/x": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}}).encode()
    return struct.pack("<Q", len(header)) + header + b"\0\0"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[Algorithm, Path]]]:
    """Each algorithm after an iteration, and the folder with its two checkpoints."""
    folder = tmp_path_factory.mktemp("trained")
    made = {name: config.build() for name, config in CONFIGS.items()}
    for name, algorithm in made.items():
        store = CheckpointStore(folder / name)
        for _ in range(2):
            algorithm.train()
            store.save(algorithm.state(), algorithm.metadata())
    yield {name: (algorithm, folder / name) for name, algorithm in made.items()}
    for algorithm in made.values():
        algorithm.stop()


@pytest.fixture(autouse=True, scope="module")
def _bounded_memory() -> Iterator[None]:
    """What a checkpoint says of its size is not allocated before it is checked."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 4 * 2**30, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize(("name", "mutation"), CASES)
def test_wrong_content_is_an_error_and_a_resume_goes_on_from_the_one_before(
    tmp_path: Path, trained: dict[str, tuple[Algorithm, Path]], name: str, mutation: str
) -> None:
    algorithm, folder = trained[name]
    shutil.copytree(folder, tmp_path / "run")
    newest = tmp_path / "run" / "checkpoint_000002"
    parts = Parts(newest)
    (BOTH | REPLAY)[mutation](parts)
    parts.write()
    with pytest.raises(CheckpointError, match="checkpoint_000002"):
        algorithm.restore(newest)
    store = CheckpointStore(tmp_path / "run")
    try:
        start = restored(algorithm, store, newest_start(store, name))
    except CheckpointError as error:
        assert "checkpoint_000002" in str(error)
    else:
        assert start is not None
        assert start.checkpoint.name == "checkpoint_000001"
        assert algorithm.iteration == 1


def test_wrong_content_of_a_checkpoint_that_was_given_is_an_error_whatever_its_name(
    tmp_path: Path, trained: dict[str, tuple[Algorithm, Path]]
) -> None:
    algorithm, folder = trained["PPO"]
    given = shutil.copytree(folder / "checkpoint_000002", tmp_path / "best")
    parts = Parts(given)
    BOTH[f"{POLICY}/weights has NaN"](parts)
    parts.write()
    store = CheckpointStore(tmp_path / "run")
    with pytest.raises(CheckpointError, match="best"):
        restored(algorithm, store, given_start(str(given), "PPO"))


@pytest.mark.parametrize("name", CONFIGS)
def test_what_was_not_changed_is_restored(trained: dict[str, tuple[Algorithm, Path]], name: str) -> None:
    algorithm, folder = trained[name]
    algorithm.restore(folder / "checkpoint_000002")
    assert algorithm.train()["training_iteration"] == 3
    algorithm.restore(folder / "checkpoint_000001")
    assert algorithm.iteration == 1


@pytest.mark.parametrize("name", ["arrays.safetensors", "state.json", "metadata.json", "manifest.json"])
def test_files_outside_are_not_read(tmp_path: Path, trained: dict[str, tuple[Algorithm, Path]], name: str) -> None:
    algorithm, folder = trained["PPO"]
    path = tmp_path / "checkpoint_000001"
    shutil.copytree(folder / path.name, path)
    (path / name).rename(tmp_path / name)
    (path / name).symlink_to(tmp_path / name)
    with pytest.raises(CheckpointError, match=f"{name} is no file of its own"):
        algorithm.restore(path)
    (path / name).unlink()
    (path / name).symlink_to("/dev/zero")
    with pytest.raises(CheckpointError, match=f"{name} is no file of its own"):
        algorithm.restore(path)


@pytest.mark.parametrize("listed_name", ["../elsewhere", "/etc/hostname", "more.json"])
def test_a_manifest_lists_the_files_of_the_checkpoint_and_no_others(
    tmp_path: Path, trained: dict[str, tuple[Algorithm, Path]], listed_name: str
) -> None:
    algorithm, folder = trained["PPO"]
    path = tmp_path / "checkpoint_000001"
    shutil.copytree(folder / path.name, path)
    (tmp_path / "elsewhere").write_text("x")
    parts = Parts(path)
    parts.manifest["files"][listed_name] = {"bytes": 1, "sha256": hashlib.sha256(b"x").hexdigest()}
    (path / "manifest.json").write_text(json.dumps(parts.manifest))
    with pytest.raises(CheckpointError, match="it lists"):
        algorithm.restore(path)


@pytest.mark.parametrize("key", ["algorithm_class", "config", "iteration"])
def test_building_from_wrong_metadata_is_an_error_for_people(
    tmp_path: Path, trained: dict[str, tuple[Algorithm, Path]], key: str
) -> None:
    path = tmp_path / "checkpoint_000001"
    shutil.copytree(trained["PPO"][1] / path.name, path)
    for wrong in ([], 5, {"lr": {}}, {"model": []}, "x", {"env": 3}):
        parts = Parts(path)
        parts.metadata[key] = wrong
        parts.write()
        with pytest.raises((CheckpointError, ConfigError)):
            Algorithm.from_checkpoint(path)
