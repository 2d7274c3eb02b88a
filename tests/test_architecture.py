"""The rules of docs/architecture.md, held over the syntax trees of both packages; each rule is shown to fail."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = [  # a module imports only from its own row and the rows above
    {"errors", "logs", "types", "container", "allocator", "output", "endpoint"},
    {"batch", "spaces", "schedules", "trees", "callbacks", "models"},
    {"api"},
    {"config"},
    {"math"},
    {"nn"},
    {"envs"},
    {"replay", "offline", "storage"},
    {"rollout"},
    {"learn"},
    {"run"},
    {"sweep"},
    {"algorithms"},
    {"agents"},
    {"external"},
    {"serving"},
    {"distributed"},
    {"tune"},
    {"job"},
    {"cli", "__main__"},
]
OPERATOR_LAYERS = [  # likewise
    {"model", "names", "conditions"},
    {"reading"},
    {"builders"},
    {"phases", "status", "events", "cleanup", "reconcile"},
    {"connection"},
    {"options", "runtime", "lifecycle", "health", "main"},
]
COMPOSITION_ROOT = "reef.run.build"  # alone may name lower layers in strings: it puts a run together
# `PPOConfig().environment(...).build()` is how a person makes an algorithm, so that settings know who makes it of them
# and what it is.
BUILT_BY_SETTINGS = {"reef.config.algorithm_config": (COMPOSITION_ROOT, "reef.run.algorithm")}
LOADED = re.compile(r"reef(\.\w+)+:[\w.]+")
MAY_IMPORT_RAY = ("distributed", "tune", "job")
LIGHT = ("api", "config", "envs", "cli", "__main__")  # no torch, no ray when imported
VAGUE_NAMES = {"utils", "util", "common", "helpers", "helper", "base", "misc"}
CODE_FROM_DATA = {"pickle", "cloudpickle", "dill", "shelve", "marshal", "joblib"}
MODULE_LINES, FUNCTION_LINES, FOLDER_MODULES = 400, 60, 12
CATALOGUE = Path("trainer", "reef", "algorithms")  # one module per algorithm, as many as there are


@dataclass(frozen=True)
class Module:
    """One file of a package."""

    name: str  # dotted
    source: str

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.source)

    @property
    def folder(self) -> str:
        """The part below the package that decides the layer: "nn" for reef.nn.policy."""
        return self.name.split(".")[1] if "." in self.name else ""

    @property
    def is_operator(self) -> bool:
        return self.name.split(".")[0] == "reef_operator"


def modules(root: Path = ROOT) -> Iterator[Module]:
    for top in (root / "trainer", root / "operator"):
        for path in sorted(top.rglob("*.py")):
            parts = path.relative_to(top).with_suffix("").parts
            yield Module(".".join(parts[:-1] if parts[-1] == "__init__" else parts), path.read_text())


def imports(tree: ast.AST) -> Iterator[str]:
    """Dotted names of everything imported anywhere in the tree."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, "relative import"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imports_at_run_time(tree: ast.AST, *, in_functions: bool = True) -> Iterator[str]:
    """What is imported when the program runs, not for type checkers; without functions, when the module is loaded."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not in_functions:
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            waiting.extend(node.orelse)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from imports(node)
        else:
            waiting.extend(ast.iter_child_nodes(node))


def top_level(names: Iterator[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


def layer_of(folder: str, layers: list[set[str]]) -> int:
    return next((row for row, folders in enumerate(layers) if folder in folders), len(layers))


def named_in_strings(tree: ast.AST) -> Iterator[str]:
    """Dotted names of Reef's modules in strings that `load` takes, "reef.module:Name"."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and LOADED.fullmatch(node.value):
            yield node.value.partition(":")[0]


def wrong_layer(module: Module) -> Iterator[str]:
    """An arrow is any import, also one for type checkers alone, and any name that is loaded from a string."""
    if not module.folder:
        return
    package, layers = ("reef_operator", OPERATOR_LAYERS) if module.is_operator else ("reef", LAYERS)
    own = layer_of(module.folder, layers)
    if own == len(layers):
        yield f"{module.name}: {module.folder!r} is in no layer"
    in_strings = [] if module.name == COMPOSITION_ROOT else named_in_strings(module.tree)
    for name in (*imports(module.tree), *in_strings):
        target = name.split(".")
        below = target[0] == package and len(target) > 1 and layer_of(target[1], layers) > own
        if below and not name.startswith(BUILT_BY_SETTINGS.get(module.name, ())):
            yield f"{module.name} names {name}, which is a layer below it"


def ray_outside_its_folder(module: Module) -> Iterator[str]:
    if module.folder not in MAY_IMPORT_RAY and "ray" in top_level(imports(module.tree)):
        yield f"{module.name} imports ray; only {', '.join(MAY_IMPORT_RAY)} may"


def heavy_import(module: Module) -> Iterator[str]:
    if module.is_operator or module.folder not in LIGHT:
        return
    for name in sorted(top_level(imports_at_run_time(module.tree, in_functions=False)) & {"torch", "ray"}):
        yield f"{module.name} imports {name} when loaded; import it in the function that needs it"


def heavy_api(module: Module) -> Iterator[str]:
    """The operator's image holds pydantic and PyYAML, not numpy."""
    if module.is_operator or module.folder not in ("api", "endpoint", "errors"):
        return
    for name in sorted(imports(module.tree)):
        first = name.split(".")[0]
        ours = name.startswith(("reef.api", "reef.errors"))
        if not ours and first not in sys.stdlib_module_names | {"pydantic", "pydantic_core", "yaml"}:
            yield f"{module.name} imports {name}, which the operator's image does not hold"


def operator_imports(module: Module) -> Iterator[str]:
    if not module.is_operator:
        return
    for name in sorted(imports(module.tree)):
        if name.split(".")[0] in {"torch", "ray", "gymnasium", "numpy"}:
            yield f"{module.name} imports {name}; the operator never does"
        if name.startswith("reef.") and not name.startswith(("reef.api", "reef.endpoint", "reef.errors")):
            yield f"{module.name} imports {name}; of the trainer the operator knows reef.api and reef.endpoint alone"


def code_from_data(module: Module) -> Iterator[str]:
    tree = module.tree
    for name in sorted(top_level(imports(tree)) & CODE_FROM_DATA):
        yield f"{module.name} imports {name}: data from outside must not become code"
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if called in {"eval", "exec", "compile", "torch.save", "__import__"}:
            yield f"{module.name}:{node.lineno} calls {called}"
        if called == "torch.load" and "weights_only=True" not in map(ast.unparse, node.keywords):
            yield f"{module.name}:{node.lineno} calls torch.load without weights_only=True"
        if any(word.arg == "allow_pickle" and ast.unparse(word.value) != "False" for word in node.keywords):
            yield f"{module.name}:{node.lineno} allows pickle"


def vague_name(module: Module) -> Iterator[str]:
    if VAGUE_NAMES & set(module.name.split(".")):
        yield f"{module.name}: name a module after what it does"


def too_long(module: Module) -> Iterator[str]:
    lines = len(module.source.splitlines())
    if lines > MODULE_LINES:
        yield f"{module.name} has {lines} lines, the limit is {MODULE_LINES}"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES:
                yield f"{module.name}.{node.name} has {length} lines, the limit is {FUNCTION_LINES}"


def full_folders(root: Path) -> Iterator[str]:
    for top in (root / "trainer", root / "operator"):
        for folder in sorted({path.parent for path in top.rglob("*.py")}):
            count = sum(path.name != "__init__.py" for path in folder.glob("*.py"))
            if count > FOLDER_MODULES and folder.relative_to(root) != CATALOGUE:
                yield f"{folder.relative_to(root)} holds {count} modules, the limit is {FOLDER_MODULES}"


def shadowing_folders(root: Path) -> Iterator[str]:
    for top in ("operator", "trainer"):
        if (root / top / "__init__.py").exists():
            yield f"{top}/ must not be a package"


def untested_modules(root: Path) -> Iterator[str]:
    """A module has a test file in the same place, or a test names it: an import, or a word in its docstring."""
    tests = {path: path.read_text() for path in (root / "tests").rglob("*.py")}
    named = set(re.findall(r"\breef(?:_operator)?(?:\.\w+)+", "\n".join(tests.values())))
    for top, package in (("trainer", "reef"), ("operator", "reef_operator")):
        for path in sorted((root / top / package).rglob("*.py")):
            own = path.relative_to(root / top / package)
            name = ".".join((package, *own.with_suffix("").parts))
            mirrored = Path("tests", top, own.with_name(f"test_{own.name}"))
            if own.stem != "__init__" and root / mirrored not in tests and name not in named:
                yield f"{name}: write {mirrored}, or name it in the test of another"


MODULE_RULES = [
    wrong_layer,
    ray_outside_its_folder,
    heavy_import,
    heavy_api,
    operator_imports,
    code_from_data,
    vague_name,
    too_long,
]
TREE_RULES = [full_folders, shadowing_folders, untested_modules]


@pytest.mark.parametrize("rule", MODULE_RULES, ids=lambda rule: rule.__name__)
def test_every_module_keeps(rule: Callable[[Module], Iterator[str]]):
    found = list(modules())
    assert {"reef.errors", "reef_operator"} <= {module.name for module in found}
    assert [violation for module in found for violation in rule(module)] == []


@pytest.mark.parametrize("rule", TREE_RULES, ids=lambda rule: rule.__name__)
def test_the_tree_keeps(rule: Callable[[Path], Iterator[str]]):
    assert list(rule(ROOT)) == []


@pytest.mark.parametrize(
    ("rule", "name", "source"),
    [
        (wrong_layer, "reef.nn.policy", "from reef.rollout.worker import RolloutWorker"),
        (wrong_layer, "reef.batch", "def f():\n    import reef.run.algorithm"),
        (wrong_layer, "reef.config.loading", "from reef import algorithms"),
        (wrong_layer, "reef.config.loading", "if not TYPE_CHECKING:\n    import reef.run.algorithm"),
        (wrong_layer, "reef.config.groups", "if TYPE_CHECKING:\n    from reef.run.algorithm import Algorithm"),
        (wrong_layer, "reef.config.algorithm_config", "from reef.run.experiment import Experiment"),
        (wrong_layer, "reef.run.algorithm", "load('reef.distributed.ray_workers:RayWorkers')"),
        (wrong_layer, "reef.run.build", "if TYPE_CHECKING:\n    from reef.job.head import Pod"),
        (wrong_layer, "reef.newcomer", ""),
        (wrong_layer, "reef_operator.newcomer", ""),
        (wrong_layer, "reef_operator.reading.readiness", "from reef_operator.builders.parts import Blueprint"),
        (wrong_layer, "reef_operator.reading.pods", "from reef_operator import builders"),
        (ray_outside_its_folder, "reef.rollout.worker", "import ray"),
        (ray_outside_its_folder, "reef.cli.main", "def f():\n    from ray.util import placement_group"),
        (ray_outside_its_folder, "reef_operator.main", "import ray"),
        (heavy_import, "reef.cli.main", "import torch.nn"),
        (heavy_import, "reef.config.groups", "try:\n    import torch\nexcept ImportError:\n    pass"),
        (heavy_import, "reef.envs.make", "class A:\n    from ray import get"),
        (heavy_api, "reef.api.job", "import numpy as np"),
        (heavy_api, "reef.api.job", "from reef.types import Array"),
        (operator_imports, "reef_operator.main", "def f():\n    import gymnasium"),
        (operator_imports, "reef_operator.main", "from reef.config import AlgorithmConfig"),
        (code_from_data, "reef.run.checkpoint", "import pickle"),
        (code_from_data, "reef.run.checkpoint", "state = torch.load(path)"),
        (code_from_data, "reef.run.checkpoint", "state = torch.load(path, weights_only=safe)"),
        (code_from_data, "reef.run.checkpoint", "np.load(path, allow_pickle=True)"),
        (code_from_data, "reef.api.job", "eval('1')"),
        (vague_name, "reef.nn.utils", ""),
        (vague_name, "reef.common.spaces", ""),
        (too_long, "reef.batch", "x = 1\n" * (MODULE_LINES + 1)),
        (too_long, "reef.batch", "def f():\n" + "    x = 1\n" * FUNCTION_LINES),
    ],
)
def test_rule_finds(rule: Callable[[Module], Iterator[str]], name: str, source: str):
    assert list(rule(Module(name, source)))


@pytest.mark.parametrize(
    ("name", "source"),
    [
        (
            "reef.rollout.worker",
            "from reef.nn.policy import Policy\nfrom reef.rollout.seams import Workers\nimport torch",
        ),
        ("reef.distributed.actors", "import ray"),
        ("reef.cli.main", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch"),
        ("reef.cli.main", "def f():\n    import torch\n    torch.set_num_threads(1)"),
        ("reef.config.algorithm_config", "if TYPE_CHECKING:\n    from reef.run.algorithm import Algorithm"),
        ("reef.run.build", "load('reef.distributed.ray_workers:RayWorkers')"),
        ("reef.sweep.plan", "load('reef.run.remote.fetch:copied_checkpoint')"),
        ("reef.api.job", "import pydantic\nfrom reef.errors import ConfigError\nmodel.eval()"),
        ("reef_operator.main", "import kopf\nfrom reef.api.job import RLTrainingJob"),
        ("reef_operator.builders.parts", "from reef_operator.reading.situation import Situation"),
        ("reef.replay.buffer", "np.load(path, allow_pickle=False)"),
        ("reef.batch", "x = 1\n" * MODULE_LINES),
        ("reef.batch", "def f():\n" + "    x = 1\n" * (FUNCTION_LINES - 1)),
    ],
)
def test_rules_allow(name: str, source: str):
    assert [violation for rule in MODULE_RULES for violation in rule(Module(name, source))] == []


def test_tree_rules_find(tmp_path: Path):
    folder = tmp_path / "trainer" / "reef"
    folder.mkdir(parents=True)
    for number in range(FOLDER_MODULES + 1):
        (folder / f"m{number}.py").touch()
    (tmp_path / "operator").mkdir()
    (tmp_path / "operator" / "__init__.py").touch()
    assert list(full_folders(tmp_path)) == ["trainer/reef holds 13 modules, the limit is 12"]
    assert list(shadowing_folders(tmp_path)) == ["operator/ must not be a package"]
    (tmp_path / "tests" / "trainer").mkdir(parents=True)
    (tmp_path / "tests" / "trainer" / "test_m0.py").write_text("from reef.m2 import x")
    assert [found.partition(":")[0] for found in untested_modules(tmp_path)] == [
        f"reef.m{number}" for number in sorted(set(range(FOLDER_MODULES + 1)) - {0, 2}, key=str)
    ]


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("reef.cli.main", {"torch", "ray", "gymnasium", "matplotlib"}),
        ("reef.api.job", {"torch", "ray", "gymnasium", "numpy"}),
        ("reef.api.keys", {"pydantic"}),  # in every worker
        ("reef_operator", {"torch", "ray", "gymnasium", "numpy"}),
    ],
)
def test_importing_stays_light(module: str, forbidden: set[str]):
    """The rules above look at one file each; this looks at everything a real import brings along."""
    program = f"import sys, {module}; print(*{{name.split('.')[0] for name in sys.modules}})"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert set(loaded.stdout.split()) & forbidden == set()
