"""What the Dockerfile promises, as far as its text shows it; the cluster's tests build both images and run them."""

from __future__ import annotations

import fnmatch
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
STAGES = {part.splitlines()[0].split(" AS ")[1]: part for part in re.split(r"^FROM ", TEXT, flags=re.MULTILINE)[1:]}


def test_both_images_run_as_a_plain_user_without_what_built_them():
    for target in ("operator", "trainer"):
        stage = STAGES[target]
        assert stage.startswith("runtime ")
        assert "USER 1000:1000" in stage
        assert not re.search(r"^RUN|apt-get|pip", stage, re.MULTILINE)
        assert re.findall(r"COPY --from=(\S+)", stage) == [f"{target}-packages", "reef"]


def test_everything_is_pinned_and_nothing_is_cached():
    for command in re.findall(r"pip install.*", TEXT):
        assert re.search(
            r"--require-hashes --requirement locks/\w+\.txt|--constraint constraints\.txt|--no-index", command
        )
    for command in re.findall(r"apt-get install.*", TEXT):
        assert "--no-install-recommends" in command
        assert "rm -rf /var/lib/apt/lists/*" in command
    assert "PIP_NO_CACHE_DIR=1" in STAGES["build"]


def test_only_the_trainer_s_pytorch_and_its_extras_come_without_hashes():
    assert [stage for stage, text in STAGES.items() if "--constraint" in text] == ["trainer-packages"]
    for stage, lock in (("build", "build"), ("operator-packages", "operator"), ("trainer-packages", "trainer")):
        assert f"--require-hashes --requirement locks/{lock}.txt" in STAGES[stage]


def test_the_base_is_named_by_its_digest():
    (base,) = re.findall(r"^ARG BASE_IMAGE=(.*)$", TEXT, re.MULTILINE)
    assert re.fullmatch(r"debian:bookworm-\d{8}-slim@sha256:[0-9a-f]{64}", base)


def test_labels_carry_the_project_s_version_and_license():
    for target in ("operator", "trainer"):
        assert f"ARG VERSION={PROJECT['version']}\n" in STAGES[target]
        assert f'licenses="{PROJECT["license"]}"' in STAGES[target]
        assert 'version="${VERSION}"' in STAGES[target]


def test_nothing_belongs_to_one_processor():
    assert not re.search(r"amd64|x86_64|arm64|aarch64|--platform", "\n".join(STAGES.values()))


def test_whatever_is_copied_may_be_seen_by_the_build():
    lines = (ROOT / ".dockerignore").read_text().split()
    assert lines[0] == "*", "everything is left out but what is named"
    seen = [line[1:] for line in lines if line.startswith("!")]
    copied = {word for words in re.findall(r"^COPY (?!--from)(.+) \S+$", TEXT, re.MULTILINE) for word in words.split()}
    assert sorted(copied) == sorted(seen)
    assert all((ROOT / name).exists() for name in seen)
    assert any(fnmatch.fnmatch("trainer/reef/__pycache__", line) for line in lines)
