"""What the documents say of Kubernetes is what chart, operator and head do: nothing is missing, nothing is invented."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml

from reef.errors import EXIT_FAILED, EXIT_OK, EXIT_TERMINATED, EXIT_WRONG_USE
from reef_operator import names
from reef_operator.conditions import ConditionType, Reason
from reef_operator.runtime.metrics import JOB_GAUGES

ROOT = Path(__file__).parents[1]
CHART = ROOT / "charts" / "reef"
KUBERNETES, OPERATIONS, MONITORING, SECURITY = (
    (ROOT / "docs" / f"{name}.md").read_text() for name in ("kubernetes", "operations", "monitoring", "security")
)
RULES = [
    rule for group in yaml.safe_load((CHART / "rules" / "reef.yaml").read_text())["groups"] for rule in group["rules"]
]


def section(text: str, heading: str) -> str:
    """The part of a document under a heading, up to the next of its level."""
    level = heading.partition(" ")[0]
    _, found, rest = f"\n{text}".partition(f"\n{heading}\n")
    assert found, f"there is no section {heading!r}"
    return re.split(rf"^#{{1,{len(level)}}} ", rest, maxsplit=1, flags=re.MULTILINE)[0]


def first_cells(text: str) -> list[str]:
    """What stands in code in the first column of the tables."""
    rows = re.findall(r"^\| ([^|]*) \|", text, re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


def test_every_alert_has_its_runbook_with_steps_and_its_row():
    alerts = [rule["alert"] for rule in RULES]
    assert re.findall(r"^### (Reef\w+)$", OPERATIONS, re.MULTILINE) == alerts
    for alert in alerts:
        assert section(OPERATIONS, f"### {alert}").count("\n- ") >= 2, f"the runbook of {alert} says nothing to do"
    rows = re.findall(r"^\| \[(\w+)\]\(operations\.md#(\w+)\) \|", MONITORING, re.MULTILINE)
    assert rows == [(alert, alert.lower()) for alert in alerts]


def test_every_condition_and_reason_is_explained_once():
    assert sorted(first_cells(section(OPERATIONS, "## Conditions"))) == sorted(ConditionType)
    assert sorted(first_cells(section(OPERATIONS, "## Reasons"))) == sorted(Reason)


def test_every_exit_code_of_the_head_is_explained():
    rows = re.findall(r"^\| (\d+) \|", section(OPERATIONS, "## On Kubernetes: exit codes of the head"), re.MULTILINE)
    assert {EXIT_OK, EXIT_FAILED, EXIT_WRONG_USE, EXIT_TERMINATED} <= set(map(int, rows))


def test_the_termination_message_is_asked_of_the_container_that_trains():
    command = re.search(r"`kubectl get pod (\w+) -o jsonpath='([^']*terminated.message})'`", OPERATIONS)
    assert command is not None and command[1] == "POD"
    assert f'[?(@.name=="{names.CONTAINER}")]' in command[2]


def test_every_install_says_where_its_images_are_and_one_alone_installs_the_definition():
    scripts = "".join(re.findall(r"^```sh\n(.*?)^```$", KUBERNETES, re.MULTILINE | re.DOTALL)).replace("\\\n", "")
    installs = [line for line in scripts.splitlines() if line.startswith("helm install")]
    assert ["--set crds.install=false" in line for line in installs] == [False, True]
    for line in installs:
        assert "--set image.repository=" in line and "--set trainerImage.repository=" in line


def test_what_the_gpu_example_needs_is_named_before_it_is_applied():
    text = (ROOT / "examples" / "kubernetes-gpu.yaml").read_text()
    example = yaml.safe_load(text)
    spec = example["spec"]
    before = KUBERNETES.partition("kubectl apply -f examples/kubernetes-gpu.yaml")[0].split("\n\n")[-2]
    needed = [
        example["metadata"]["namespace"],
        spec["checkpoint"]["storage"]["persistentVolumeClaim"]["claimName"],
        *spec["imagePullSecrets"],
        spec["head"]["priorityClassName"],
    ]
    assert [name for name in needed if f"`{name}`" not in before] == []
    assert f"-n {needed[0]} " in text.partition("apiVersion")[0]


def test_the_extras_of_the_trainers_image_are_those_of_the_package():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    example = (ROOT / "examples" / "kubernetes-gpu.yaml").read_text()
    for text in (KUBERNETES, example):
        (named,) = re.findall(r"TRAINER_EXTRAS=([\w,]+)", text)
        assert "box2d" in named.split(",") and set(named.split(",")) <= extras.keys()
    assert "ARG TRAINER_EXTRAS=" in (ROOT / "Dockerfile").read_text()


def asked(expression: str) -> str:
    """A panel's query as the document shows it."""
    filters = r'(namespace=~?"\$namespace"|job_name="\$job_name")(, )?'
    return re.sub(filters, "", expression).replace("{}", "").replace("|", "\\|")


def row(panel: dict[str, Any]) -> str:
    queries = "<br>".join(f"`{asked(target['expr'])}`" for target in panel["targets"])
    return f"| {panel['title']} | {queries} |"


@pytest.mark.parametrize("name", ["fleet", "job", "operator"])
def test_every_panel_is_there_with_what_it_asks(name: str):
    dashboard: dict[str, Any] = json.loads((CHART / "dashboards" / f"{name}.json").read_text())
    rows = [row(panel) for panel in dashboard["panels"] if panel["type"] != "row"]
    lines = section(MONITORING, f"### {dashboard['title']}").splitlines()
    found = [line for line in lines if line.startswith("|")][2:]  # without the header
    assert found == rows, "\n".join(rows)


def test_every_metric_of_jobs_and_of_the_operator_is_named():
    named = [name.partition("{")[0] for name in first_cells(MONITORING)]
    assert {f"reef_job_{name}" for name in JOB_GAUGES} <= set(named)
    everything = "".join(path.read_text() for path in (CHART / "dashboards").iterdir())
    everything += "".join(rule["expr"] for rule in RULES)
    used = {re.sub(r"_(bucket|count|sum)$", "", name) for name in re.findall(r"reef_(?:job|operator)_\w+", everything)}
    assert used <= set(named)


def test_rights_are_listed_verb_by_verb():
    with helm_python.Chart.load(CHART) as chart:
        everything = {"ingress": {"enabled": True, "from": [{"podSelector": {}}]}}
        texts = chart.render(everything, name="reef", namespace="reef-system")
    roles = yaml.safe_load_all(texts["reef/templates/rbac/clusterrole.yaml"])
    (rules,) = [role["rules"] for role in roles if role["kind"] == "ClusterRole"]
    granted = {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}
    rows = re.findall(r"^\| (`[^|]*) \| ([^|]*) \|", section(SECURITY, "## What the operator may do"), re.MULTILINE)
    listed = {
        (resource, verb)
        for resources, verbs in rows
        for resource in re.findall(r"`([a-z/]+)`", resources)
        for verb in verbs.split(", ")
    }
    assert listed == granted
