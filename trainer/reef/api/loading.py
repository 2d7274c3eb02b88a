"""Reading a job document: YAML or a mapping in, `RLTrainingJob` or one `ConfigError` with every problem out."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from reef.api.fields import EXPLAINED, STORAGE_URI, shown
from reef.api.job import API_VERSION, KIND, RLTrainingJob
from reef.api.keys import SHOWN
from reef.api.limits import MAX_BYTES, MAX_DEPTH, check_counts, check_limits
from reef.errors import ConfigError, nearest, without_secrets

LONGEST = 1000  # characters of a problem: it may quote what a person wrote
SOURCE = "the text"
MAX_BITS = 1024  # of a whole number, as many as the largest float has


class _Loader(yaml.SafeLoader):
    """Safe YAML in which 1e-4 is a number, as in YAML 1.2 and on Kubernetes, and no key may be given twice.

    The limits of `check_limits` hold before anything is made of the text: merge keys would write its aliases out.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._sizes: dict[yaml.Node, tuple[int, int]] = {}  # bytes and levels of a node with its aliases written out

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """A node within the limits, which an alias inside of its own target is not."""
        self._depth += 1
        check_counts(0, self._depth, SOURCE)
        is_alias = self.check_event(yaml.AliasEvent)
        node = super().compose_node(parent, index)
        self._depth -= 1
        if node is not None:
            size = self._sizes.get(node, (0, MAX_DEPTH + 1)) if is_alias else self._size(node)
            check_counts(*size, SOURCE)
            self._sizes[node] = size
        return node

    def _size(self, node: yaml.Node) -> tuple[int, int]:
        if isinstance(node, yaml.ScalarNode):
            return 2 + len(node.value), 1
        inner = [part for item in node.value for part in (item if isinstance(item, tuple) else (item,))]
        found = [self._sizes[part] for part in inner]
        return 2 + sum(size for size, _ in found), 1 + max((depth for _, depth in found), default=0)

    def compose_mapping_node(self, anchor: dict[Any, yaml.Node]) -> yaml.MappingNode:
        """The mapping as it is written: what merge keys ("<<") bring may be given again."""
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                problem = "a key is a mapping or a list. Text that begins with { or [ needs quotes"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            if key.value in seen and key.tag != "tag:yaml.org,2002:merge":
                raise yaml.constructor.ConstructorError(None, None, f"key {key.value!r} is given twice", key.start_mark)
            seen.add(key.value)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """What a node means; one that Python refuses, such as the date 2020-13-45, is named with its line."""
        try:
            return super().construct_object(node, deep)
        except yaml.YAMLError:
            raise
        except Exception as error:
            shown = repr(node.value[:40]) if isinstance(node, yaml.ScalarNode) else "what is here"
            problem = f"{shown} is no {node.tag.rpartition(':')[2]}. Text needs quotes"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from error


def _whole_number(loader: _Loader, node: yaml.ScalarNode) -> int:
    """As YAML's; one with more digits than Python writes is refused."""
    value = int(loader.construct_yaml_int(node))
    if value.bit_length() > MAX_BITS:
        problem = f"a number has {len(node.value)} digits"
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
    return value


_Loader.add_constructor("tag:yaml.org,2002:int", _whole_number)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)[eE][-+]?[0-9]+$"),
    list("-+.0123456789"),
)


def load_job(source: str | Path) -> RLTrainingJob:
    """Read a job document from a file, or from a text of several lines.

    Raises:
        ConfigError: the file cannot be read, is no YAML, holds something else, or has wrong fields (all are named).
    """
    if isinstance(source, str) and "\n" in source:
        return job_from_document(parse_yaml(source, "the text"), "the text")
    return job_from_document(read_yaml(source), str(source))


def read_yaml(path: str | Path) -> Any:
    """Return the one YAML document in a file; ConfigError when it cannot be read."""
    try:
        with Path(path).open("rb") as stream:
            text = stream.read(MAX_BYTES + 1).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise ConfigError(f"{path}: cannot be read: {reason}.") from error
    return parse_yaml(text, str(path))


def parse_yaml(text: str, source: str) -> Any:
    """Return the one YAML document in `text`; `source` names it in the error."""
    check_counts(len(text.encode(errors="replace")), 0, source)
    try:
        found = (document for document in yaml.load_all(text, _Loader) if document is not None)
        documents = [*itertools.islice(found, 2)]  # the limits hold for each
    except ConfigError as error:
        raise ConfigError(str(error).replace(SOURCE, source, 1)) from error
    except Exception as error:  # a wrong tag ends in whatever PyYAML meets: `!!bool x` is a KeyError
        raise ConfigError(f"{source}: is no valid YAML: {_yaml_problem(error)}.") from error
    if len(documents) != 1:
        raise ConfigError(f"{source}: holds {'several' if documents else 'no'} documents, expected one {KIND}.")
    return documents[0]


def parse_value(text: str) -> Any:
    """Return one value as YAML reads it: a number, true, null, a text, `[1, 2]` or `{a: 1}`."""
    check_counts(len(text.encode(errors="replace")), 0, "a value")
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - safe
    except ConfigError:
        raise
    except Exception as error:  # a wrong tag ends in whatever PyYAML meets: `!!bool x` is a KeyError
        raise ConfigError(f"{text!r} is no value: {_yaml_problem(error)}.") from error


def job_from_document(
    document: Any, source: str = "the job", names: Mapping[str, str] | None = None, *, accepted: Collection[str] = ()
) -> RLTrainingJob:
    """Validate a job document.

    Args:
        document: the mapping that the YAML or JSON text held.
        source: where it came from, for the error.
        names: what the person called a field, by its path; the path itself when it is not there.
        accepted: of config, stop and tune, those that were accepted once, maybe by another version.

    Raises:
        ConfigError: with every problem on a line of its own.
    """
    check_limits(document, source)
    if not isinstance(document, Mapping):
        raise ConfigError(f"{source}: holds a {type(document).__name__}, expected a mapping with kind {KIND}.")
    if (document.get("apiVersion"), document.get("kind")) != (API_VERSION, KIND):
        raise ConfigError(
            f"{source}: is of apiVersion {document.get('apiVersion')!r} and kind {document.get('kind')!r}, "
            f"expected apiVersion {API_VERSION!r} and kind {KIND!r}.{_from_rllib(document)}"
        )
    try:
        context = {"accepted": accepted}
        return RLTrainingJob.model_validate(document, by_alias=True, by_name=False, context=context)
    except ValidationError as error:
        problems = list(_problems(error, names or {}))
        if (more := error.error_count() - SHOWN) > 0:
            problems.append(f"and {more} more")
        count = "1 problem" if len(problems) == 1 else f"{max(len(problems), error.error_count())} problems"
        raise ConfigError(f"{source}: {count}\n" + "\n".join(f"  - {problem}" for problem in problems)) from error


def _from_rllib(document: Mapping[Any, Any]) -> str:
    """How to go on with a file of RLlib's, "" for any other: its experiments are keyed by their names."""
    names = [name for name, found in document.items() if isinstance(found, Mapping) and {"run", "env"} <= found.keys()]
    if not names:
        return ""
    return (
        f" {names[0]!r} is an experiment of RLlib: make it a job, with its `run` as spec.algorithm, `env` as "
        "spec.environment.name, `stop` as spec.stop and `config` as spec.config."
    )


def _yaml_problem(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        return f"{error.problem} (line {error.problem_mark.line + 1})"
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _problems(error: ValidationError, names: Mapping[str, str]) -> Iterator[str]:
    """Yield the first `SHOWN` problems, each as a line that a person can still read."""
    for detail in error.errors(include_url=False)[:SHOWN]:
        location = detail["loc"]
        path = re.sub(r"\.(\d+)", r"[\1]", ".".join(map(str, location)))
        for given, name in names.items():
            if path == given or path.startswith((f"{given}.", f"{given}[")):
                path = name + path[len(given) :]
        for line in _messages(detail["type"], detail, location):
            problem = f"{path}: {line}" if path else line
            yield problem if len(problem) <= LONGEST else f"{problem[:LONGEST]}..."


def _messages(kind: str, detail: Mapping[str, Any], location: tuple[int | str, ...]) -> list[str]:
    given = detail["input"]
    match kind:
        case "extra_forbidden":
            fields = _fields_at(location[:-1])
            guess = nearest(str(location[-1]), fields)
            return [f"is no field.{guess or ' Fields here: ' + ', '.join(fields) + '.'}"]
        case "missing":
            return ["is missing"]
        case "value_error":
            return str(detail["ctx"]["error"]).splitlines()
        case "string_pattern_mismatch":
            pattern = detail["ctx"]["pattern"]
            text = without_secrets(given) if pattern == STORAGE_URI else given
            return [f"{text!r} does not fit, expected {EXPLAINED[pattern]}"]
        case "string_too_long":
            return [f"has {len(given)} characters, at most {detail['ctx']['max_length']} fit"]
        case "too_short":
            return [f"is {given!r}, expected at least {detail['ctx']['min_length']} in it"]
        case "too_long":
            return [f"has {len(given)} entries, at most {detail['ctx']['max_length']} fit"]
        case "model_type":
            return [f"should be a mapping, not {shown(given)}. Fields here: {', '.join(_fields_at(location))}."]
    return [f"{detail['msg'].removeprefix('Input ').replace('dictionary', 'mapping')}, not {shown(given)}"]


def _fields_at(location: tuple[int | str, ...]) -> list[str]:
    return sorted(field.alias or name for name, field in _model_at(location).model_fields.items())


def _model_at(location: tuple[int | str, ...]) -> type[BaseModel]:
    """Return the model whose fields are at `location` of a job document."""
    model: type[BaseModel] = RLTrainingJob
    for step in location:
        for name, field in model.model_fields.items():
            if step == (field.alias or name):
                model = next(_models_in(field.annotation), model)
    return model


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)
