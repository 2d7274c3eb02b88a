"""Images are made again only when what they are made of changed, and hold nothing of the machine that made them."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from kube.cluster import OwnCluster
from kube.images import KEPT, ROOT, ImageStore, content_hash, copied_files, pip_mounts

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DOCKERFILE = """
ARG BASE_IMAGE=debian:bookworm-slim
FROM ${BASE_IMAGE} AS harness-test
ARG PIP_FIND_LINKS=
COPY pyproject.toml \\
     package/ /work/
RUN python3 -m venv /venv && /venv/bin/pip config list | grep global.timeout > /timeout
RUN /venv/bin/pip install --no-cache-dir pyyaml
FROM harness-test AS other
COPY --from=harness-test /venv /other
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a Dockerfile, two files that it copies, and one that it does not."""
    root = tmp_path / "project"
    (root / "package").mkdir(parents=True)
    (root / "Dockerfile").write_text(DOCKERFILE)
    (root / "pyproject.toml").write_text("[project]\n")
    (root / "package" / "code.py").write_text("x = 1\n")
    (root / "README.md").write_text("Read me\n")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    return root


def test_what_the_dockerfile_copies_counts(project: Path):
    names = [str(path.relative_to(project)) for path in copied_files(project / "Dockerfile")]
    assert names == ["package/code.py", "pyproject.toml"]


@pytest.mark.parametrize(
    ("file", "text", "same"),
    [
        ("README.md", "Other words\n", True),
        ("package/code.py", "x = 2\n", False),
        ("package/more.py", "", False),
        ("Dockerfile", DOCKERFILE + "ENV A=1\n", False),
    ],
)
def test_the_hash_changes_with_the_image(project: Path, file: str, text: str, same: bool):
    before = content_hash(project / "Dockerfile", "base")
    (project / file).write_text(text)
    assert (content_hash(project / "Dockerfile", "base") == before) is same


def test_the_hash_changes_with_the_base(project: Path):
    assert content_hash(project / "Dockerfile", "base:1") != content_hash(project / "Dockerfile", "base:2")


def test_pip_settings_and_what_they_name_are_mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    wheels, index = tmp_path / "wheels", tmp_path / "index" / "simple"
    wheels.mkdir()
    index.mkdir(parents=True)
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"file://{index} https://example.com/simple")
    mounts = pip_mounts(tmp_path)
    assert f"{wheels}:{wheels}:ro" in mounts
    assert f"{index.parent}:{index.parent}:ro" in mounts
    written = (tmp_path / "pip.conf").read_text()
    assert f"find-links = {wheels}\n" in written
    assert f"extra-index-url = file://{index}\n    https://example.com/simple\n" in written


def test_a_project_is_built_once_and_runs(
    own_cluster: OwnCluster, project: Path, namespace: str, monkeypatch: pytest.MonkeyPatch
):
    (project / "package" / "code.py").write_text(f"# {namespace}\n")  # nothing comes from an earlier run's layers
    monkeypatch.setenv("PIP_TIMEOUT", "77")
    store = ImageStore(project=project)
    image = store.project("harness-test")
    (project / "Dockerfile").touch()
    asked, ask = [], store._buildah

    def told(*arguments: Any, **options: Any) -> str:
        asked.append(arguments[0])
        return ask(*arguments, **options)

    monkeypatch.setattr(store, "_buildah", told)
    assert store.project("harness-test") == image
    assert "bud" not in asked, "looked up, not built"
    imported = "/venv/bin/python -c 'import yaml; print(yaml.__name__)'"
    look = f"cat /work/code.py /timeout /etc/pip.conf; env | grep -i pip; {imported}"
    own_cluster.load(image, store)
    arguments = ["--image-pull-policy=Never", "--restart=Never", "--command", "--", "sh", "-c", look]
    own_cluster.kubectl("run", "look", "-n", namespace, f"--image={image}", *arguments)
    own_cluster.wait_for_phase("look", "Succeeded", namespace=namespace)
    printed = own_cluster.kubectl("logs", "look", "-n", namespace)
    lines = [line for line in printed.splitlines() if "No such file" not in line]
    assert lines == [f"# {namespace}", "global.timeout='77'", "yaml"]


@pytest.mark.parametrize(("target", "most_mb"), [("operator", 250), ("trainer", 1_900)])
def test_our_images_are_small_say_what_they_are_and_are_nobody_s(
    own_cluster: OwnCluster, target: str, most_mb: float
) -> None:
    """The trainer's is PyTorch and Ray to nine tenths."""
    size, told = ImageStore().described(own_cluster.image(target))
    assert size <= most_mb
    assert told["User"] == "1000:1000"
    labels = {key.rpartition(".")[2]: value for key, value in told["Labels"].items()}
    assert (labels["title"], labels["licenses"], bool(labels["description"])) == (f"reef-{target}", "Apache-2.0", True)
    assert labels["version"] == PROJECT["version"] and "revision" in labels


def test_old_images_go_also_after_a_build_that_was_cut_off(own_cluster: OwnCluster, tmp_path: Path):
    """Such a build leaves a container, and that one's image cannot be removed. (The cluster brought buildah along.)"""
    store, numbers = ImageStore(tmp_path / "store"), range(KEPT + 2)
    for number in numbers:
        (tmp_path / "Dockerfile").write_text(f"FROM scratch\nLABEL number={number}\n")
        image = f"localhost/reef-old:{number}"
        assert not store.has(image)
        store._buildah("bud", "--isolation", "chroot", "-t", image, tmp_path)
    store._buildah("from", "localhost/reef-old:0")
    store._forget_old("localhost/reef-old")
    assert [store.has(f"localhost/reef-old:{number}") for number in numbers] == [False, False, True, True]
