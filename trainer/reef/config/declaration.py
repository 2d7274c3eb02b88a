"""One declaration per setting: its default, type, meaning and limits."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from reef.config.loading import load_function
from reef.config.values import MisfitError, fit, plain, type_text
from reef.errors import ConfigError, nearest
from reef.schedules import Schedule, Scheduled


@dataclass(frozen=True)
class Setting:
    """What is known of one setting."""

    default: Any
    doc: str
    choices: tuple[Any, ...] | None = None
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    unit: str | None = None
    called_with: tuple[str, ...] = ()  # of a function or its path: the names of its arguments
    key: str = ""  # its name in dictionaries; the attribute differs where a group's method has that name
    convert: Callable[[Any], Any] | None = None
    name: str = ""
    group: str = ""
    type: Any = Any

    @property
    def holds_many(self) -> bool:
        """Whether it is a list or mapping (or null), of which each number keeps the limits."""
        kinds = set(get_args(self.type)) - {NoneType} if get_origin(self.type) in (Union, UnionType) else {self.type}
        return all(get_origin(kind) in (list, dict) for kind in kinds)

    def fresh(self) -> Any:
        """The default, as an object of its own."""
        return fit(copy.deepcopy(self.default), self.type)

    def accept(self, value: Any) -> Any:
        """Return `value` in the declared form, or as it is where it does not fit: `problems` then says so."""
        try:
            return fit(self.convert(value) if self.convert else value, self.type)
        except MisfitError:
            return value

    def problems(self, value: Any) -> Iterator[str]:
        """Say what is wrong with `value`: key, value, fix."""
        shown = f"{self.key}={value!r}"
        try:
            fit(value, self.type)
            plain(value)
        except MisfitError as error:
            yield f"{shown}: expected {type_text(self.type)}{f', and {error}' if str(error) else ''}."
            return
        if self.called_with and value is not None:
            try:
                load_function(value, self.key, *self.called_with)
            except ConfigError as error:
                yield str(error)
        elif self.choices is not None and value not in self.choices:
            one_of = "one of " if len(self.choices) > 1 else ""
            options = ", ".join(repr(choice) for choice in self.choices)
            yield f"{shown}: expected {one_of}{options}.{nearest(value, map(str, self.choices))}"
        else:
            yield from self._limit_problems(value)

    def _limit_problems(self, value: Any) -> Iterator[str]:
        each = "each " if self.holds_many and value is not None else ""
        numbers = _numbers_in(value) if each else [value] if isinstance(value, int | float) else []
        if self.type in (Scheduled, Scheduled | None) and isinstance(value, list):
            try:
                Schedule(value)
            except ConfigError as error:
                yield f"{self.key}: {error}"
                return
            numbers = [level for _, level in value]
        for index, number in enumerate(numbers):
            if self.minimum is not None and number < self.minimum:
                yield f"{self.key}={value!r}: {each}must be at least {self._with_unit(self.minimum)}."
            if self.maximum is not None and number > self.maximum:
                yield f"{self.key}={value!r}: {each}must be at most {self._with_unit(self.maximum)}."
            if self.above is not None and number <= self.above and not (index and number == self.above):
                wanted = "at least" if index else "larger than"  # a schedule may fall to the limit
                yield f"{self.key}={value!r}: must be {wanted} {self._with_unit(self.above)}."

    def _with_unit(self, limit: float) -> str:
        return f"{limit:g} {self.unit}" if self.unit else f"{limit:g}"


def _numbers_in(value: Any) -> list[float]:
    if isinstance(value, list | Mapping):
        items = value.values() if isinstance(value, Mapping) else value
        return [number for item in items for number in _numbers_in(item)]
    return [value] if isinstance(value, int | float) else []


def setting(default: Any, doc: str, **limits: Any) -> Any:
    """Declare a setting: its default, its meaning and what it may be, by the names of `Setting`.

    Limits hold for the number itself, for every value of a schedule, which may fall to what a number must be above, and
    for each number of a setting that is always a list or mapping. `key` is its name in dictionaries where a method of
    the class has that name; `convert` builds the value from its plain form; `group`, where it is not that of its class.
    """
    return Setting(default, doc, **limits)


@dataclass(frozen=True)
class NewDefault:
    """Takes the place of a setting in a class body until the inherited one is found."""

    value: Any


def default(value: Any) -> Any:
    """Give an inherited setting another default; meaning, type and limits stay."""
    return NewDefault(value)
