"""Stand-ins for helm, kubectl, docker and pip in the documents' commands: they refuse what the real ones would refuse.

The chart is rendered by Helm's own library, jobs are validated, and names are looked up in the definition. What they do
on a cluster is tested by tests/cluster.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import yaml

from reef.api import job_from_document
from reef.api.status import Phase
from reef_operator import names
from reef_operator.conditions import ConditionType

ROOT = Path(__file__).parents[1]
JOBS = {"rlj", "rltrainingjob", "rltrainingjobs"}
RESOURCES = JOBS | {
    *("configmap", "customresourcedefinition", "deployment", "events", "job", "jobs", "namespace", "networkpolicy"),
    *("node", "nodes", "persistentvolumeclaim", "pod", "pods", "resourcequota", "secret"),
}
LABELS = {names.JOB_LABEL, names.COMPONENT_LABEL, names.POOL_LABEL, names.NAME_LABEL, "app.kubernetes.io/component"}


def docker(arguments: list[str]) -> None:
    """`docker build` of a target that the Dockerfile has, and `docker push`."""
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(required=True)
    build = commands.add_parser("build")
    build.add_argument("--target", required=True)
    build.add_argument("--file")
    build.add_argument("--build-arg", action="append")
    build.add_argument("-t", dest="tag", required=True)
    build.add_argument("folder")
    commands.add_parser("push").add_argument("tag")
    target = getattr(parser.parse_args(arguments), "target", None)
    assert target is None or f" AS {target}\n" in (ROOT / "Dockerfile").read_text(), f"no target {target}"


def pip(arguments: list[str]) -> None:
    """`pip install` of this project or its wheel, with extras and constraints that there are."""
    parser = argparse.ArgumentParser()
    install = parser.add_subparsers(required=True).add_parser("install")
    install.add_argument("--constraint", type=Path)
    install.add_argument("project")
    given = parser.parse_args(arguments)
    assert (ROOT / given.constraint).is_file()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wheel = f"dist/reef-{project['version']}-py3-none-any.whl"
    name, extras = re.fullmatch(r"(.*)\[(.*)\]", given.project).groups()
    assert name in (".", wheel), f"no project {name}"
    assert set(extras.split(",")) <= project["optional-dependencies"].keys()


def helm(arguments: list[str]) -> None:
    """Values that the chart has, and templates that render with them."""
    import helm_python

    parser = argparse.ArgumentParser()
    parser.add_argument("--namespace", default="default")
    commands = parser.add_subparsers(required=True)
    for name in ("install", "upgrade", "uninstall"):
        command = commands.add_parser(name)
        command.add_argument("--namespace", default="default")
        command.add_argument("release")
        if name != "uninstall":
            command.add_argument("chart", type=Path)
            command.add_argument("--set", action="append", default=[])
            command.add_argument("--set-json", action="append", default=[])
            for flag in ("--create-namespace", "--reset-then-reuse-values", "--install"):
                command.add_argument(flag, action="store_true")
    given = parser.parse_args(arguments)
    if "chart" not in given:
        return
    values: dict[str, Any] = {}
    for assignment in [*given.set, *given.set_json]:  # JSON is YAML
        key, _, text = assignment.partition("=")
        *path, last = re.split(r"(?<!\\)\.", key)
        inner = values
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last.replace("\\.", ".")] = text[1:-1].split(",") if text.startswith("{") else yaml.safe_load(text)
    with helm_python.Chart.load(given.chart) as chart:
        chart.render(values, name=given.release, namespace=given.namespace)


def kubectl(arguments: list[str]) -> None:
    """Resources, fields, labels and conditions that there are, and documents that are valid."""
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=VERBS)
    parser.add_argument("words", nargs="*")
    for option in ("-n", "-f", "-l", "-o", "-p", "--for", "--field-selector", "--replicas", "--tail", "--timeout"):
        parser.add_argument(option, {"-n": "--namespace", "-p": "--patch"}.get(option, option))
    parser.add_argument("--type", choices=["merge", "json"])
    for flag in ("-A", "--watch", "--force", "--server-side", "--force-conflicts", "--previous"):
        parser.add_argument(flag, {"-A": "--all-namespaces"}.get(flag, flag), action="store_true")
    parser.add_argument("--grace-period", type=int)
    given = parser.parse_intermixed_args(arguments)
    for pair in (given.l or "").split(",") if given.l else []:
        assert pair.partition("=")[0] in LABELS, f"no label {pair}"
    VERBS[given.verb](given)


def about_objects(given: argparse.Namespace) -> None:
    kinds = given.words[0].partition("/")[0].split(",") if given.words else []
    assert kinds or given.f, "no resource"
    assert set(kinds) <= RESOURCES, f"no resource {kinds}"
    if given.o and given.o.startswith("jsonpath=") and set(kinds) <= JOBS:
        for path in re.findall(r"\{\.([^}]+)\}", given.o):
            look_up(path)
    if getattr(given, "for", None):
        condition, _, value = getattr(given, "for").removeprefix("jsonpath=").partition("=")
        if condition == "condition":
            assert set(kinds) & {"pod", "deployment"} or value in set(ConditionType), f"no condition {value}"
        else:
            look_up(condition.strip("{}.'"))
            assert value in get_args(Phase), f"no phase {value}"
    if given.patch and set(kinds) <= JOBS:
        for path in paths(json.loads(given.patch)):
            look_up(path)
    if given.verb == "scale":
        assert given.replicas is not None and int(given.replicas) >= 0


def apply(given: argparse.Namespace) -> None:
    assert given.f, "nothing to apply"
    path = Path(given.f)
    files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    texts = [sys.stdin.read()] if given.f == "-" else [file.read_text() for file in files]
    documents = [document for text in texts for document in yaml.safe_load_all(text)]
    assert documents, f"nothing in {given.f}"
    for document in documents:
        assert {"apiVersion", "kind", "metadata"} <= document.keys()
        if document["kind"] == "RLTrainingJob":
            job_from_document(document)


def explain(given: argparse.Namespace) -> None:
    kind, _, path = given.words[0].partition(".")
    assert kind in JOBS, f"no resource {kind}"
    if path:
        look_up(path)


def rollout(given: argparse.Namespace) -> None:
    assert given.words[0] in ("status", "restart")
    assert given.words[1].startswith("deployment/")


def about_pods(given: argparse.Namespace) -> None:
    assert given.words, "no name"


VERBS = {
    **dict.fromkeys(("get", "describe", "delete", "wait", "patch", "scale"), about_objects),
    **dict.fromkeys(("apply", "create", "replace"), apply),
    **dict.fromkeys(("logs", "exec"), about_pods),
    "explain": explain,
    "rollout": rollout,
}


def look_up(path: str) -> None:
    """Raise AssertionError unless the definition has the field; indices of lists are passed over."""
    definition = yaml.safe_load((ROOT / "crds" / "rltrainingjobs.reef.dev.yaml").read_text())
    schema: Mapping[str, Any] = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for part in re.sub(r"\[[^]]*\]", "", path).split("."):
        schema = schema.get("items", schema)
        if schema.get("x-kubernetes-preserve-unknown-fields") and part not in schema.get("properties", {}):
            return
        assert part in schema.get("properties", {}), f"there is no field {path}"
        schema = schema["properties"][part]


def paths(document: Any, before: str = "") -> Iterator[str]:
    """Every key of a nested document, as a path."""
    for key, value in document.items() if isinstance(document, Mapping) else ():
        yield f"{before}{key}"
        yield from paths(value, f"{before}{key}.")


if __name__ == "__main__":
    {"docker": docker, "helm": helm, "kubectl": kubectl, "pip": pip}[sys.argv[1]](sys.argv[2:])
