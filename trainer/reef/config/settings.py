"""One declaration per setting, and the base class that reads, checks and writes groups of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar, Self, dataclass_transform, get_type_hints

from reef.config.aliases import RENAMED
from reef.config.values import MisfitError, fit, plain, type_text
from reef.errors import ConfigError, nearest
from reef.schedules import Schedule, Scheduled

NOT_GIVEN: Any = object()


@dataclass(frozen=True)
class Setting:
    """What is known of one setting."""

    default: Any
    doc: str
    choices: tuple[Any, ...] | None = None
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    available: bool | str = True  # False: not yet; text: never, and what to use instead
    unit: str | None = None
    key: str = ""  # its name in dictionaries; the attribute differs where a group's method has that name
    convert: Callable[[Any], Any] | None = None
    name: str = ""
    group: str = ""
    type: Any = Any

    def fresh(self) -> Any:  # noqa: ANN401
        """The default, as an object of its own."""
        return fit(copy.deepcopy(self.default), self.type)

    def accept(self, value: Any) -> Any:  # noqa: ANN401
        """Return `value` in the declared form, or as it is where it does not fit: `problems` then says so."""
        try:
            return fit(self.convert(value) if self.convert else value, self.type)
        except MisfitError:
            return value

    def problems(self, value: Any) -> Iterator[str]:  # noqa: ANN401
        """Say what is wrong with `value`."""
        if isinstance(value, Settings):
            yield from (f"{self.key}.{problem}" for problem in value.problems())
            return
        shown = f"{self.key}={value!r}"
        try:
            fit(value, self.type)
            plain(value)
        except MisfitError as error:
            yield f"{shown}: expected {type_text(self.type)}{f'; {error}' if str(error) else ''}."
            return
        if self.available is not True and value != self.fresh():
            reason = self.available or "not available yet"
            yield f"{shown}: {reason}. Leave it at {self.default!r}."
        elif self.choices is not None and value not in self.choices:
            options = ", ".join(repr(choice) for choice in self.choices)
            yield f"{shown}: expected one of {options}.{nearest(value, map(str, self.choices))}"
        yield from self._limit_problems(shown, value)

    def _limit_problems(self, shown: str, value: Any) -> Iterator[str]:  # noqa: ANN401
        if self.type == Scheduled and isinstance(value, list):
            try:
                Schedule(value)
            except ConfigError as error:
                yield f"{self.key}: {error}"
                return
            numbers = [point[1] for point in value]
        else:
            numbers = [value] if isinstance(value, int | float) else []
        unit = f" {self.unit}" if self.unit else ""
        for number in numbers:
            if self.minimum is not None and number < self.minimum:
                yield f"{shown}: must be at least {self.minimum}{unit}."
            if self.maximum is not None and number > self.maximum:
                yield f"{shown}: must be at most {self.maximum}{unit}."
            if self.above is not None and number <= self.above:
                yield f"{shown}: must be larger than {self.above}{unit}."


def setting(
    default: Any,  # noqa: ANN401
    doc: str,
    *,
    choices: Iterable[Any] | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
    above: float | None = None,
    available: bool | str = True,
    unit: str | None = None,
    key: str = "",
    convert: Callable[[Any], Any] | None = None,
) -> Any:  # noqa: ANN401 - stands where the annotation promises the setting's own type
    """Declare a setting: its default, its meaning and what it may be.

    `available=False` declares a setting whose working is still to be written: any other value than the default is
    refused. A text says that the setting will never work and what to use instead.
    """
    options = tuple(choices) if choices is not None else None
    return Setting(default, doc, options, minimum, maximum, above, available, unit, key, convert)


@dataclass(frozen=True)
class _NewDefault:
    value: Any


def default(value: Any) -> Any:  # noqa: ANN401 - stands where the inherited annotation promises its type
    """Give an inherited setting another default; meaning, type and limits stay."""
    return _NewDefault(value)


@cache
def declared(cls: type[Settings]) -> dict[str, Setting]:
    """The settings of a class by attribute, in the order of declaration."""
    hints = get_type_hints(cls)
    found: dict[str, Setting] = {}
    for owner in reversed(cls.__mro__):
        for name, item in vars(owner).items():
            if isinstance(item, Setting):
                group = found[name].group if name in found else getattr(owner, "group", "")
                found[name] = replace(item, name=name, key=item.key or name, group=group, type=hints[name])
    return found


@cache
def by_key(cls: type[Settings]) -> dict[str, Setting]:
    """The settings of a class by the name that dictionaries and documents use."""
    return {item.key: item for item in declared(cls).values()}


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(setting, default))
class Settings:
    """A set of settings. Subclasses declare `name: type = setting(default, doc)`; no decorator is needed."""

    group: ClassVar[str] = ""
    label: ClassVar[str] = "settings"  # what messages call it

    def __init_subclass__(cls) -> None:
        for name, item in list(vars(cls).items()):
            if isinstance(item, _NewDefault):
                inherited = next((vars(base)[name] for base in cls.__mro__[1:] if name in vars(base)), None)
                if not isinstance(inherited, Setting):
                    raise TypeError(f"{cls.__name__}.{name} = default(...): there is no inherited setting {name!r}.")
                setattr(cls, name, replace(inherited, default=item.value))

    def __init__(self, **settings: Any) -> None:
        vars(self)["_frozen"] = False
        for item in declared(type(self)).values():
            vars(self)[item.name] = item.fresh()
        self._assign(settings)

    @classmethod
    def from_mapping(cls, settings: Mapping[str, Any]) -> Self:
        """Make one with these settings over the defaults."""
        return cls(**settings)

    @classmethod
    def unknown(cls, keys: Iterable[str]) -> list[str]:
        """One message for each of `keys` that is no setting."""
        known = by_key(cls)
        return [cls._unknown(key) for key in keys if key not in known]

    @classmethod
    def _unknown(cls, key: str) -> str:
        known = by_key(cls)
        if RENAMED.get(key) in known:
            return f"{key!r}: this setting is now called {RENAMED[key]!r}."
        close = nearest(key, known)
        match = next((item for item in known.values() if close == f" Did you mean {item.key!r}?"), None)
        where = f" It belongs to {match.group}." if match and match.group else ""
        return f"{key!r}: {cls.label} has no such setting.{close}{where}"

    def __setattr__(self, name: str, value: Any) -> None:
        if self._frozen:
            raise ConfigError(f"{name}={value!r}: this configuration is frozen. Change a copy: config.copy().")
        item = declared(type(self)).get(name)
        if item is None:
            raise ConfigError(self._unknown(name))
        current = getattr(self, name)
        if isinstance(current, Settings) and isinstance(value, Mapping):
            value = current.copy().update_from_dict(value)
        vars(self)[name] = item.accept(value)

    def _assign(self, settings: Mapping[str, Any]) -> Self:
        problems = self.unknown(settings)
        if problems:
            raise ConfigError("\n".join(problems))
        for key, value in settings.items():
            setattr(self, by_key(type(self))[key].name, value)
        return self

    def update_from_dict(self, settings: Mapping[str, Any]) -> Self:
        """Set many settings at once, by key."""
        return self._assign(settings)

    def problems(self) -> Iterator[str]:
        """Say what is wrong, one sentence or two per problem: key, value, fix."""
        for item in declared(type(self)).values():
            yield from item.problems(getattr(self, item.name))

    def copy(self) -> Self:
        """An independent copy that can be changed."""
        duplicate = copy.deepcopy(self)
        duplicate._freeze(False)
        return duplicate

    def freeze(self) -> Self:
        """Refuse every later change."""
        self._freeze(True)
        return self

    def _freeze(self, frozen: bool) -> None:
        vars(self)["_frozen"] = frozen
        for value in vars(self).values():
            if isinstance(value, Settings):
                value._freeze(frozen)

    def to_dict(self) -> dict[str, Any]:
        """All settings by key, as JSON data."""
        return {item.key: plain(getattr(self, item.name)) for item in declared(type(self)).values()}

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, Settings) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment] - it can change

    def __repr__(self) -> str:
        items = declared(type(self)).values()
        changed = {item.key: plain(getattr(self, item.name)) for item in items if getattr(self, item.name) != item.fresh()}
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in changed.items())})"
