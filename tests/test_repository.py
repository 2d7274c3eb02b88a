"""What a newcomer relies on: exact versions, make targets that say what they do, checks that need no network."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from distributions import needed
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[1].split()


def constraints() -> dict[str, Requirement]:
    lines = (line.strip() for line in (ROOT / "constraints.txt").read_text().splitlines())
    requirements = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(requirement.name): requirement for requirement in requirements}


def make(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    of_this_make = re.compile("MAKE|PYTHON$|VENV$")  # `make test PYTHON=... VENV=...` hands both to the tests
    clean = {name: value for name, value in os.environ.items() if not of_this_make.match(name)}
    return subprocess.run(
        [shutil.which("make"), "-C", str(ROOT), "--no-print-directory", *arguments],
        env=clean | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_every_constraint_is_one_exact_public_version():
    for requirement in constraints().values():
        (specifier,) = requirement.specifier
        assert specifier.operator == "==", requirement
        assert "+" not in specifier.version, f"{requirement} names a local build"


@pytest.mark.parametrize("extra", ["", *PROJECT["optional-dependencies"]])
def test_every_dependency_is_constrained_to_a_version_it_allows(extra: str):
    wanted = PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]
    pinned = constraints()
    for requirement in map(Requirement, wanted):
        if requirement.name == "reef":
            continue
        (exact,) = pinned[canonicalize_name(requirement.name)].specifier
        assert requirement.specifier.contains(exact.version), f"{requirement} is pinned to {exact.version}"


def test_what_builds_the_packages_is_pinned_to_the_version_of_the_constraints():
    """Pip builds in an environment of its own, where constraints need not count."""
    pinned = constraints()
    for requirement in map(Requirement, PYPROJECT["build-system"]["requires"]):
        assert requirement.specifier == pinned[canonicalize_name(requirement.name)].specifier, requirement


def locked(name: str) -> dict[str, Requirement]:
    """Requirements of a file that `make locks` generates; every one has hashes."""
    entries = re.findall(r"^(\w.*?) \\\n((?: +--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", lock_text(name), re.MULTILINE)
    assert len(entries) == len(re.findall(r"^\w", lock_text(name), re.MULTILINE)), "an entry without a hash"
    requirements = [Requirement(line) for line, _ in entries]
    return {canonicalize_name(requirement.name): requirement for requirement in requirements}


def lock_text(name: str) -> str:
    return (ROOT / "locks" / f"{name}.txt").read_text()


@pytest.mark.parametrize("name", ["operator", "trainer", "build"])
def test_what_is_locked_has_the_version_of_the_constraints(name: str):
    pinned = constraints()
    assert locked(name)
    for distribution, requirement in locked(name).items():
        assert distribution in pinned, f"run `make locks`: {requirement} is not in constraints.txt"
        assert requirement.specifier == pinned[distribution].specifier, f"run `make locks`: {requirement}"


@pytest.mark.parametrize("extra", ["operator", "trainer"])
def test_everything_that_an_image_needs_is_locked_but_pytorch_s_build(extra: str):
    left_out = set(re.search(r"^NOT_LOCKED := ((?:.*\\\n)*.*)", MAKEFILE, re.MULTILINE)[1].replace("\\", "").split())
    wanted = set().union(*(needed(Requirement(line)) for line in extras_of(extra)))
    everywhere = {name for name, requirement in locked(extra).items() if requirement.marker is None}
    assert everywhere <= wanted and wanted - left_out <= locked(extra).keys(), "run `make locks`"
    assert all(re.match("torch$|triton$|cuda-|nvidia-", name) for name in left_out)
    assert not [name for name in locked(extra) if re.match("torch$|triton$|cuda-|nvidia-", name)]


def extras_of(extra: str) -> list[str]:
    return [*PROJECT["dependencies"], *PROJECT["optional-dependencies"][extra]]


def test_what_builds_the_images_is_locked():
    names = {canonicalize_name(Requirement(line).name) for line in PYPROJECT["build-system"]["requires"]}
    assert locked("build").keys() == names, "run `make locks`"


def test_no_file_names_a_package_index():
    for name in ("pyproject.toml", "constraints.txt", "Makefile", ".ci/run", ".pre-commit-config.yaml"):
        assert not re.search(r"index-url|find-links|trusted-host|--proxy", (ROOT / name).read_text()), name


def test_plain_make_lists_every_target():
    listed = make()
    assert listed.returncode == 0
    assert re.findall(r"^  make ([a-z-]+) +\S", listed.stdout, re.MULTILINE) == TARGETS


def test_make_knows_every_target_it_lists():
    for target in TARGETS:
        assert make("--dry-run", target).returncode == 0, target


def test_make_says_what_is_missing_when_python_is(tmp_path: Path):
    outcome = make("setup", f"VENV={tmp_path}/venv", "PYTHON=no-such-python")
    assert outcome.returncode != 0
    assert "apt-get install python3 python3-venv" in outcome.stdout


def test_make_says_what_is_missing_when_venv_is(tmp_path: Path):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\ncase "$2" in *ensurepip*) exit 1;; esac\nexit 0\n')
    python.chmod(0o755)
    outcome = make("setup", f"VENV={tmp_path}/venv", f"PYTHON={python}")
    assert outcome.returncode != 0
    assert "apt-get install python3-venv" in outcome.stdout


def test_make_installs_venv_where_it_may(tmp_path: Path):
    there = tmp_path / "installed"
    programs = {
        "python3": f'[ -e {there} ] || case "$2" in *ensurepip*) exit 1;; esac; [ "$1" != -m ] || mkdir "$3"',
        "apt-get": f'case "$*" in *python3-venv) touch {there};; esac',
        "id": "echo 0",
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    outcome = make(f"{tmp_path}/venv/.made", f"VENV={tmp_path}/venv", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert outcome.returncode == 0, outcome.stdout
    assert "Installing python3-venv with apt-get" in outcome.stdout
    assert there.exists() and (tmp_path / "venv").exists()


def test_ci_passes_the_same_tests_as_a_person():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert "set -euo pipefail" in script.read_text()
    assert "make test" in script.read_text()


@pytest.mark.parametrize("name", ["reef", "Klon 1"])
def test_ci_runs_in_a_folder_called_reef_and_leaves_nothing_behind(name: str, tmp_path: Path):
    checkout, scratch, programs = tmp_path / name, tmp_path / "tmp", tmp_path / "bin"
    shutil.copytree(ROOT / ".ci", checkout / ".ci")
    (checkout / ".venv").mkdir()
    (checkout / ".git").mkdir()
    for folder in (scratch, programs):
        folder.mkdir()
    (programs / "make").write_text('#!/bin/sh\ncat\npwd\nls -A\necho "$@"\nexit 7\n')
    (programs / "make").chmod(0o755)
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "TMPDIR": str(scratch)}
    command = [checkout / ".ci" / "run"]
    done = subprocess.run(
        command, env=environment, input="y\n", capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stderr) == (7, "")
    folder, *listed, called = done.stdout.splitlines()
    assert Path(folder).name == "reef"
    assert listed == [".ci", ".git", *([".venv"] if name == "reef" else [])]
    optimised = "import sys; sys.exit(sys.version_info < (3, 11))"
    is_there = (
        Path("/usr/bin/python3").exists() and subprocess.run(["/usr/bin/python3", "-c", optimised]).returncode == 0
    )
    assert called == f"test PYTHON={'/usr/bin/python3' if is_there else 'python3'}"
    assert list(scratch.iterdir()) == []


def test_hooks_need_no_network():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert [repository["repo"] for repository in hooks["repos"]] == ["local"]
    assert {hook["language"] for repository in hooks["repos"] for hook in repository["hooks"]} == {"system"}


def test_the_license_is_apache_2():
    assert PROJECT["license"] == "Apache-2.0"
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
