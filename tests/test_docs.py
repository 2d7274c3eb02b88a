"""The documents are true: their commands and snippets run, their manifests are valid, their links lead somewhere.

The `sh` blocks of a document run as one script in an empty folder with a copy of examples/; those of `bash`, which need
more time or another machine, are trainings whose settings are checked. `reef` is this checkout's
there, `make` only has to know its targets (it is make that runs these tests), and helm, kubectl, docker and pip are
those of tests/stand_ins.py.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml
from jsonschema import Draft7Validator

from reef.algorithms.registry import config_class
from reef.api import job_from_document, load_job

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
# Commands that take minutes. Their files and options are checked, and the named place runs the same for real.
LONG = {
    "reef run examples/cartpole-ppo.yaml": "tests/test_quickstart.py",
    "reef run examples/cartpole-sweep.yaml": "tests/test_quickstart.py",
}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def name_of(document: Path) -> str:
    return str(document.relative_to(ROOT))


def blocks(document: Path, language: str) -> list[str]:
    return [body for found, body in FENCE.findall(document.read_text()) if found == language]


def with_block(language: str) -> list[Path]:
    return [document for document in DOCUMENTS if blocks(document, language)]


def shortened(script: str) -> str:
    """The script with every command of LONG replaced by a check of its document."""
    for command in LONG:
        script = re.sub(rf"^{re.escape(command)}.*$", command.replace("reef run", "reef validate"), script, flags=re.M)
    return script


@pytest.fixture
def desk(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A folder to work in, and the environment in which its commands run."""
    commands = tmp_path / "bin"
    commands.mkdir()
    work = tmp_path / "work"
    work.mkdir()
    for folder in ("examples", "charts"):
        if (ROOT / folder).exists():
            shutil.copytree(ROOT / folder, work / folder)
    stand_ins = f"exec {shlex.quote(sys.executable)} {shlex.quote(str(ROOT / 'tests' / 'stand_ins.py'))}"
    for name, line in {
        **{tool: f'{stand_ins} {tool} "$@"' for tool in ("docker", "helm", "kubectl", "pip")},
        "reef": f'exec {shlex.quote(sys.executable)} -m reef "$@"',
        "make": f'exec {shutil.which("make")} --dry-run --directory {shlex.quote(str(ROOT))} "$@" >/dev/null',
    }.items():
        (commands / name).write_text(f"#!/bin/sh\n{line}\n")
        (commands / name).chmod(0o755)
    environment = os.environ | {
        "HOME": str(tmp_path),
        "PATH": f"{commands}:{os.environ['PATH']}",
        "PYTHONPATH": f"{ROOT / 'trainer'}:{ROOT / 'operator'}",
    }
    for name in [name for name in environment if name.startswith("MAKE")]:
        del environment[name]
    return work, environment


def run(arguments: list[str], desk: tuple[Path, dict[str, str]]) -> None:
    work, environment = desk
    outcome = subprocess.run(
        arguments,
        cwd=work,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert outcome.returncode == 0, f"{outcome.stdout[-3000:]}\n{outcome.stderr[-3000:]}"


@pytest.mark.slow
@pytest.mark.parametrize("document", with_block("sh"), ids=name_of)
def test_commands_run(document: Path, desk: tuple[Path, dict[str, str]]):
    script = shortened("\n".join(blocks(document, "sh")))
    run(["bash", "-xeuo", "pipefail", "-c", script], desk)


@pytest.mark.parametrize("document", with_block("bash"), ids=name_of)
def test_trainings_have_valid_settings(document: Path):
    for block in blocks(document, "bash"):
        reef, train, *arguments = shlex.split(block.replace("\\\n", " "))
        given = dict(zip(arguments[::2], arguments[1::2], strict=True))
        assert (reef, train, given.keys()) == ("reef", "train", {"--algo", "--env", "--config", "--stop"})
        config_class(given["--algo"]).from_dict(json.loads(given["--config"])).environment(given["--env"]).checked()
        assert json.loads(given["--stop"])


@pytest.mark.slow
@pytest.mark.parametrize("document", with_block("python"), ids=name_of)
def test_snippets_run(document: Path, desk: tuple[Path, dict[str, str]]):
    """All snippets of a document are one program, from top to bottom."""
    run([sys.executable, "-c", "\n".join(blocks(document, "python"))], desk)


@pytest.mark.parametrize("document", with_block("yaml"), ids=name_of)
def test_manifests_are_valid(document: Path):
    for block in blocks(document, "yaml"):
        content = yaml.safe_load(block)
        if content.get("kind") == "RLTrainingJob":
            load_job(block)
        elif content.keys() == {"spec"}:  # a part of one
            spec = {"algorithm": "PPO", "environment": {"name": "CartPole-v1"}, "stop": {"training_iteration": 1}}
            job_from_document(
                {"apiVersion": "reef.dev/v1", "kind": "RLTrainingJob", "metadata": {"name": "any"}}
                | {"spec": spec | content["spec"]}
            )
        elif "scrape_configs" in content:  # of Prometheus, which tests/charts starts with the same one
            assert f"```yaml\n{block}```" in (ROOT / "charts" / "reef" / "README.md").read_text()
        elif "kind" not in content:
            schema = yaml.safe_load((ROOT / "charts" / "reef" / "values.schema.json").read_text())
            assert [error.message for error in Draft7Validator(schema).iter_errors(content)] == []
        else:
            assert {"apiVersion", "metadata"} <= content.keys()


def test_the_readme_shows_the_example_that_make_run_trains():
    example = (ROOT / "examples" / "cartpole-ppo.yaml").read_text()
    (manifest,) = blocks(ROOT / "README.md", "yaml")
    assert manifest == example.partition("\n")[2]  # without the comment on its first line


def test_the_job_reference_is_what_make_docs_generates():
    from reef.cli.reference import job_reference

    assert (ROOT / "docs" / "job-reference.md").read_text() == job_reference() + "\n", "run `make docs`"


def test_the_results_document_names_every_field_and_no_other():
    from reef import PPOConfig

    config = PPOConfig().environment("CartPole-v1").training(train_batch_size=64, sgd_minibatch_size=64, num_sgd_iter=1)
    with config.evaluation(evaluation_interval=1, evaluation_duration=1).build() as algorithm:
        result = algorithm.train()
    rows = re.findall(r"^\| (`.*?) \|", (ROOT / "docs" / "results.md").read_text(), re.MULTILINE)
    assert {name.partition("/")[0] for row in rows for name in re.findall(r"`([^`]+)`", row)} == result.keys()


def test_the_operations_document_names_every_metric():
    from reef.run import prometheus
    from reef.run.reporters.reporter import Applications

    text = (ROOT / "docs" / "operations.md").read_text()
    names = [f"training_{field.name}_total" for field in prometheus.TRAINING_COUNTERS]
    names += [f"training_{field.name}" for field in prometheus.TRAINING_GAUGES]
    names += [f"training_{name}" for name, _ in prometheus.LEARNER_GAUGES.values()]
    names += [f"evaluation_{field.name}" for field in prometheus.EVALUATION_GAUGES]
    played = Applications(open_episodes=0, queued_steps=0, refused={401: 1})
    names += [each.name.removeprefix("reef_") for each in prometheus.application_metrics(played)]
    missing = [name for name in names if f"reef_{name}" not in text and not name.endswith(("reward_min", "reward_max"))]
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(document: Path):
    for target in LINK.findall(document.read_text()):
        path, _, anchor = unquote(target).partition("#")
        if re.match(r"[a-z]+:", path):
            continue
        linked = (document.parent / path).resolve() if path else document
        assert linked.exists(), f"{name_of(document)} links to {target}"
        if anchor and linked.suffix == ".md":
            assert anchor in anchors(linked), f"{name_of(document)} links to {target}"


def anchors(document: Path) -> set[str]:
    """Anchors as GitHub makes them from headings."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", document.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_block_has_a_language_that_is_looked_at(document: Path):
    known = {"sh", "bash", "python", "yaml", "text"}
    assert {language for language, _ in FENCE.findall(document.read_text())} <= known


def test_the_architecture_is_read_in_ten_minutes():
    assert len((ROOT / "docs" / "architecture.md").read_text().split()) <= 1800


def test_long_commands_are_still_in_the_documents():
    everything = "\n".join(document.read_text() for document in DOCUMENTS)
    for command, test in LONG.items():
        assert command in everything
        assert Path(command.split()[-1]).stem in (ROOT / test).read_text()
    assert (
        shortened("reef run examples/cartpole-ppo.yaml --set a=1\nls") == "reef validate examples/cartpole-ppo.yaml\nls"
    )
