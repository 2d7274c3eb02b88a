"""Reef works from its wheel and from any checkout: also where the path has a space, an umlaut or the package's name."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from distributions import needed
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
FOLDER = "Übung eins"
LEFT_OUT = (".git", ".venv", ".*_cache", ".hypothesis", "__pycache__", "build", "dist", "reef_results")
WHERE = "import reef, reef_operator; print(reef.__file__); print(reef_operator.__file__)"


def run(command: list[str | Path], folder: Path, timeout_s: float = 100) -> str:
    """Standard output of a command that succeeds, without what this process gives its own children."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "PYTHON"))}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def environment(folder: Path, *installed: str | Path, needs: Sequence[str]) -> Path:
    """A virtual environment with Reef, and of the one that runs these tests only what these requirements need."""
    venv.EnvBuilder(symlinks=True).create(folder)
    (packages,) = folder.glob("lib/python3*/site-packages")
    others = Path(sysconfig.get_path("purelib"))
    for name in set().union(*(needed(Requirement(requirement)) for requirement in needs)) - {"reef"}:
        files = importlib.metadata.files(name)
        assert files, f"{name} does not say which files it installed"
        for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            if not (packages / top).exists():
                (packages / top).symlink_to(others / top)
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    run([sys.executable, "-m", "pip", "--python", folder / "bin/python", "install", *options, *installed], folder)
    return folder / "bin"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this checkout with an editable install, as `make setup` makes it."""
    clone = tmp_path_factory.mktemp("any") / FOLDER / "reef"
    shutil.copytree(ROOT, clone, ignore=shutil.ignore_patterns(*LEFT_OUT))
    environment(clone / ".venv", "--editable", clone, needs=["reef[trainer,operator]", "hatchling"])
    for stamp in (".made", ".trainer", ".dev"):
        (clone / ".venv" / stamp).touch()
    return clone


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what `make dist` builds."""
    folder = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "hatchling", "build", "--directory", folder], ROOT)
    return folder


def test_a_script_beside_the_clone_finds_the_package_and_not_the_folder(clone: Path):
    script = clone.parent / "train.py"
    script.write_text(f"from reef import PPOConfig\nimport operator; operator.add\n{WHERE}")
    found = run([clone / ".venv/bin/python", script.name], clone.parent).split("\n")
    assert found[:2] == [
        str(clone / "trainer/reef/__init__.py"),
        str(clone / "operator/reef_operator/__init__.py"),
    ]


@pytest.mark.slow
def test_make_trains_where_the_path_has_a_space_and_an_umlaut(clone: Path, tmp_path: Path):
    arguments = f"--set stop.training_iteration=1 --storage-path {tmp_path}"
    said = run(["make", "run", f"RUN_ARGS={arguments}"], clone)
    assert "stopped: training_iteration 1 >= 1" in said
    assert f"'{clone.name}" not in said and "\n  .venv/bin/reef evaluate " in said


PROGRAM = """
import os, ray, reef
from reef.distributed.start import start

with start(num_cpus=1, object_store_memory=100 * 1024 * 1024):
    variable = ray.remote(runtime_env={"env_vars": {"A": "b"}})(lambda: os.environ["A"])
    print(ray.get(variable.remote(), timeout=50), reef.__file__)
"""


TUNE = """
import os, reef
from reef import tune

analysis = tune.run(lambda config: {"b": reef.__file__}, storage_path=os.getcwd(), verbose=0)
(trial,) = analysis.trials
print("b", trial.last_result["b"])
"""


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.parametrize("program", [PROGRAM, TUNE], ids=["variables", "Tune"])
def test_ray_s_workers_start_where_the_path_has_a_space_and_an_umlaut(program: str, clone: Path):
    """Each trial of a sweep has variables of its own, and Ray starts such workers by a shell."""
    said = run([clone / ".venv/bin/python", "-c", program], clone.parent)
    assert said.splitlines()[-1] == f"b {clone / 'trainer/reef/__init__.py'}"


def test_the_archives_hold_both_packages_the_examples_and_nothing_else(archives: Path):
    packages = (ROOT / "trainer/reef", ROOT / "operator/reef_operator")
    files = [path.relative_to(ROOT) for package in packages for path in package.rglob("*") if path.is_file()]
    listed = [str(path) for path in files if "__pycache__" not in path.parts]
    tuned = [path.name for path in (ROOT / "examples/tuned").iterdir()]
    (wheel,), (source,) = archives.glob("*.whl"), archives.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        (license_text,) = (archive.read(name) for name in archive.namelist() if name.endswith("/licenses/LICENSE"))
    assert names == {name.partition("/")[2] for name in listed} | {f"reef/tuned/{name}" for name in tuned}
    assert {"reef/py.typed", "reef_operator/py.typed"} <= names
    assert license_text == (ROOT / "LICENSE").read_bytes()
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    listed += [f"examples/tuned/{name}" for name in tuned]
    assert names == {*listed, "LICENSE", "README.md", "pyproject.toml", "PKG-INFO", ".gitignore"}


@pytest.mark.slow
def test_the_wheel_trains_in_an_environment_of_its_own(archives: Path, tmp_path: Path):
    """The command with a document and with an example by name, and the snippet of the README."""
    (wheel,) = archives.glob("*.whl")
    programs = environment(tmp_path / FOLDER / "own", wheel, needs=["reef[trainer]"])
    assert all(str(programs.parent) in line for line in run([programs / "python", "-c", WHERE], tmp_path).splitlines())
    example = ROOT / "examples" / "cartpole-ppo.yaml"
    said = run(
        [programs / "reef", "run", example, "--storage-path", tmp_path, "--set=stop.training_iteration=2"], tmp_path
    )
    assert "stopped: training_iteration 2 >= 2" in said
    document = run([programs / "reef", "example", "get", "pendulum-td3"], tmp_path)
    assert document == (ROOT / "examples/tuned/pendulum-td3.yaml").read_text()
    snippet = "\n".join(re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S))
    assert "import" in snippet
    run([programs / "python", "-c", snippet], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["wheel", "archive", "folder"])
def test_pip_installs_both_packages_from(what: str, archives: Path, clone: Path, tmp_path: Path):
    place = {"wheel": next(archives.glob("*.whl")), "archive": next(archives.glob("*.tar.gz")), "folder": clone}[what]
    programs = environment(tmp_path / "own", place, needs=["reef[operator]", "hatchling"])
    assert "usage: reef-operator" in run([programs / "reef-operator", "--help"], tmp_path)
    assert all(str(programs.parent) in line for line in run([programs / "python", "-c", WHERE], tmp_path).splitlines())
