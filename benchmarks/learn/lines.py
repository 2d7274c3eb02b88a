"""The lines of the table: what each job document has to reach."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from sys import modules
from typing import Any

import yaml

from benchmarks.learn.rule import Threshold
from reef.algorithms.registry import config_class
from reef.cli.catalog import NOT_MEASURED, REACHES
from reef.config.loading import load

TIMES_BC = "reef.dev/times-bc"  # annotation: how many times BC's reward on the same data to reach besides
FAILS_WITHOUT = "reef.dev/fails-without"  # annotation: setting of the model without which the line must not be met
QUICK, LONG = "reef.dev/quick", "reef.dev/long"  # labels
EVALUATIONS = 50  # in a run: one every 2 % of its steps
SEEDS = (1, 2, 3)
FOLDER = Path(__file__).parent
TUNED = FOLDER.parents[1] / "examples" / "tuned"  # those for users; here are those that need what only we have


def documents(folder: Path = FOLDER) -> list[Path]:
    """Return the job documents of a folder; that of the table has those of examples/tuned that are measured too."""
    tuned = TUNED.glob("*.yaml") if folder == FOLDER else ()
    measured = [path for path in tuned if NOT_MEASURED not in path.read_text()]
    return sorted([*folder.glob("*.yaml"), *measured], key=lambda path: path.name)


@dataclass(frozen=True)
class Line:
    """A job document and its promise."""

    document: Path
    algorithm: str
    environment: str
    reaches: str
    times_bc: float | None
    fails_without: str | None
    is_quick: bool
    is_long: bool
    fingerprint: str

    @classmethod
    def of(cls, document: Path) -> Line:
        """Read a job document."""
        job = yaml.safe_load(document.read_text())
        metadata, spec = job["metadata"], job["spec"]
        labels, annotations = metadata.get("labels", {}), metadata["annotations"]
        return cls(
            document=document,
            algorithm=spec["algorithm"],
            environment=spec["environment"]["name"],
            reaches=annotations[REACHES],
            times_bc=float(annotations[TIMES_BC]) if TIMES_BC in annotations else None,
            fails_without=annotations.get(FAILS_WITHOUT),
            is_quick=labels.get(QUICK) == "true",
            is_long=labels.get(LONG) == "true",
            fingerprint=_fingerprint(job),
        )

    @property
    def promise(self) -> str:
        """What has to be reached, in words."""
        return self.reaches if self.times_bc is None else f"{self.reaches}, {self.times_bc:g} x BC"

    @property
    def thresholds(self) -> list[Threshold]:
        """What has to be reached, by number of steps."""
        pairs = [text.split(" by ") for text in self.reaches.split(",")]
        return sorted((Threshold(int(steps), float(reward)) for reward, steps in pairs), key=lambda each: each.steps)

    @property
    def steps(self) -> int:
        """Environment steps of a run."""
        return self.thresholds[-1].steps

    @property
    def interval(self) -> int:
        """Environment steps between two evaluations."""
        return self.steps // EVALUATIONS


def _fingerprint(job: dict[str, Any]) -> str:
    """Changes with the document, but for its comments and its name, and with the code of its algorithm."""
    annotations = job["metadata"]["annotations"]
    promises = [annotations[key] for key in (REACHES, TIMES_BC, FAILS_WITHOUT) if key in annotations]
    digest = hashlib.sha256(json.dumps([*promises, job["spec"]], sort_keys=True).encode())
    for path in sorted(_algorithm_files(job["spec"]["algorithm"])):
        digest.update(what_runs(Path(path).read_text()).encode())
    return digest.hexdigest()[:16]


def what_runs(source: str) -> str:
    """This code without what is for readers alone: comments, docstrings and the texts of settings."""
    return repr(_values(_WithoutTexts().visit(ast.parse(source))))


def _values(node: Any) -> Any:
    """A tree as names and values: the same with every version of Python, which give new fields to old nodes."""
    if isinstance(node, list):
        return [_values(each) for each in node]
    if not isinstance(node, ast.AST):
        return node
    fields = [(name, _values(value)) for name, value in ast.iter_fields(node) if value not in (None, [])]
    return type(node).__name__, fields


class _WithoutTexts(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        return None if isinstance(node.value, ast.Constant) else node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        if isinstance(node.func, ast.Name) and node.func.id == "setting":
            node.args = node.args[:1]
        return node


def _algorithm_files(name: str) -> Iterator[str]:
    algorithm = load(config_class(name).algorithm_class)
    names = {each.__module__ for each in (*algorithm.__mro__, *algorithm.learner_class.__mro__)}
    yield from (str(modules[each].__file__) for each in names if each.startswith("reef.algorithms."))
