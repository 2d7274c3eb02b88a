"""The base class that reads, checks and writes a set of settings."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_type_hints

from reef.config.aliases import MOVED, RENAMED
from reef.config.declaration import NewDefault, Setting
from reef.config.refusals import Refusal
from reef.config.values import plain
from reef.errors import ConfigError, nearest


class Settings:
    """A set of settings. Subclasses declare `name: type = setting(default, doc)`; no decorator is needed."""

    group: ClassVar[str] = ""  # the group of the settings that this class declares
    label: ClassVar[str] = ""  # what messages call it
    prefix: ClassVar[str] = ""  # what comes before its keys in messages
    declared: ClassVar[dict[str, Setting]] = {}  # by attribute, in the order of the groups
    by_key: ClassVar[dict[str, Setting]] = {}  # by the name that dictionaries and documents use
    # by key: what must stay at its default; few of them are declared
    refusals: ClassVar[Mapping[str, Refusal]] = {}
    # the group of every key, declared or refused
    groups: ClassVar[dict[str, str]] = {}
    _frozen: bool
    # what was given for refused keys that are not declared
    _refused: dict[str, Any]

    def __init_subclass__(cls) -> None:
        for name, item in list(vars(cls).items()):
            if isinstance(item, NewDefault):
                bases = (base for base in cls.__mro__[1:] if issubclass(base, Settings))
                inherited = next((base.declared[name] for base in bases if name in base.declared), None)
                if inherited is None:
                    raise TypeError(f"{cls.__name__}.{name} = default(...): there is no inherited setting {name!r}.")
                setattr(cls, name, replace(inherited, default=item.value))
        cls.declared = _collect(cls)
        cls.by_key = {item.key: item for item in cls.declared.values()}
        if "refusals" not in vars(cls):
            own = {item.key or name for name, item in vars(cls).items() if isinstance(item, Setting)}
            cls.refusals = {key: refusal for key, refusal in cls.refusals.items() if key not in own}
        refused = {key: refusal.group for key, refusal in cls.refusals.items()}
        cls.groups = refused | {key: item.group for key, item in cls.by_key.items()}

    def __init__(self, **settings: Any) -> None:
        vars(self).update(_frozen=False, _refused={})
        for item in self.declared.values():
            vars(self)[item.name] = item.fresh()
        self.assign(settings)

    def __setattr__(self, name: str, value: Any) -> None:
        if self._frozen:
            raise ConfigError(
                f"{self.prefix}{name}={value!r}: the configuration is frozen. Change a copy: config.copy()."
            )
        item = self.declared.get(name)
        if item is None and name in self.refusals:
            self._refused[name] = value
            return
        if item is None:
            raise ConfigError(self._unknown(name))
        current = getattr(self, name)
        if isinstance(current, Settings) and isinstance(value, Mapping):
            value = current.copy().assign(value)
        vars(self)[name] = item.accept(value)

    if not TYPE_CHECKING:  # mypy would take every name as known

        def __getattr__(self, name: str) -> Any:
            if name in type(self).refusals:
                return self._value(name)
            return super().__getattribute__(name)  # which raises what it did, perhaps inside a property

    def _value(self, key: str) -> Any:
        """The value of a key, declared or refused."""
        if key in self.by_key:
            return getattr(self, self.by_key[key].name)
        return self._refused[key] if key in self._refused else copy.deepcopy(self.refusals[key].default)

    def assign(self, settings: Mapping[str, Any]) -> Self:
        """Set many settings at once, by key.

        Raises:
            ConfigError: naming every key that is no setting, with the nearest one and its group, and beside them what
                is wrong with the other values.
        """
        known = {key: value for key, value in settings.items() if key in self.groups}
        if len(known) < len(settings):
            others = self.copy().assign(known)
            unknown = [self._unknown(key) for key in settings if key not in known]
            raise ConfigError("\n".join([*unknown, *(wrong for key in known for wrong in others.wrong_value(key))]))
        for key, value in settings.items():
            setattr(self, self.by_key[key].name if key in self.by_key else key, value)
        return self

    def set_path(self, path: str, value: Any) -> Self:
        """Set one setting by its dotted path, such as "model.fcnet_hiddens" or "env_config.length".

        Raises:
            ConfigError: there is no such setting, or it has nothing inside.
        """
        key, dot, rest = path.partition(".")
        if not dot:
            return self.assign({key: value})
        self.check_keys([key])
        current = self._value(key)
        if isinstance(current, Settings):
            current.set_path(rest, value)
            return self
        if not isinstance(current, Mapping):
            raise ConfigError(f"{path}={value!r}: {key} has nothing inside. Set {key} itself.")
        return self.assign({key: _with_path(current, rest.split("."), value)})

    @classmethod
    def check_keys(cls, keys: Iterable[str]) -> None:
        """Refuse keys that are no settings.

        Raises:
            ConfigError: naming each with the nearest setting and its group.
        """
        unknown = [cls._unknown(key) for key in keys if key not in cls.groups]
        if unknown:
            raise ConfigError("\n".join(unknown))

    @classmethod
    def _unknown(cls, key: str) -> str:
        known = cls.groups
        now = RENAMED.get(key) or MOVED.get(key, "")
        if now.partition(".")[0] in known:
            return f"{cls.prefix}{key}: this setting is called {now!r} now."
        old = {name: new for name, new in RENAMED.items() if new in known}
        hint = nearest(key, [*known, *old])
        found = next((name for name in [*known, *old] if hint.endswith(f"{name!r}?")), None)
        if found is None:
            return f"{cls.prefix}{key}: {cls.label} has no such setting."
        meant = old.get(found, found)
        group = f" It belongs to {known[meant]!r}." if known[meant] else ""
        return f"{cls.prefix}{key}: {cls.label} has no such setting. Did you mean {meant!r}?{group}"

    def wrong_values(self) -> Iterator[str]:
        """Say which values are wrong by themselves, one text per problem: key, value, fix."""
        for key in (*self.by_key, *self._refused):
            yield from self.wrong_value(key)

    def wrong_value(self, key: str) -> Iterator[str]:
        """Say what is wrong with the value of one key by itself."""
        value, refusal = self._value(key), self.refusals.get(key)
        if refusal is not None:
            if refusal.refuses(value):
                yield f"{self.prefix}{key}={value!r}: {refusal.advice}. Leave it at {refusal.default!r}."
            return
        wrong = value.wrong_values() if isinstance(value, Settings) else self.by_key[key].problems(value)
        yield from (f"{self.prefix}{problem}" for problem in wrong)

    def problems(self) -> Iterator[str]:
        """Say what is wrong between the values; asked only when each is fine by itself.

        Overrides first yield what super() does.
        """
        yield from ()

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
        """All settings by key, as JSON data; classes and functions as "module:Name"."""
        return {key: plain(value) for key, value in self._values()}

    def changed(self) -> dict[str, Any]:
        """The settings that differ from the defaults, by key, as they are."""
        usual = {key: item.fresh() for key, item in self.by_key.items()}
        return {key: value for key, value in self._values() if key not in usual or value != usual[key]}

    def _values(self) -> Iterator[tuple[str, Any]]:
        """All settings, and the values of refused keys that are not their defaults."""
        yield from ((key, getattr(self, item.name)) for key, item in self.by_key.items())
        yield from ((key, value) for key, value in self._refused.items() if self.refusals[key].refuses(value))

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, Settings) and self.to_dict() == other.to_dict()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in self.changed().items())})"


def _collect(cls: type[Settings]) -> dict[str, Setting]:
    hints = get_type_hints(cls)
    found: dict[str, Setting] = {}
    owners = [owner for owner in cls.__mro__ if issubclass(owner, Settings)]
    for owner in reversed(owners):
        for name, item in vars(owner).items():
            if isinstance(item, Setting):
                group = found[name].group if name in found else item.group or owner.group
                kind = item.type if item.name else hints[name]  # one with a new default keeps its type
                found[name] = replace(item, name=name, key=item.key or name, group=group, type=kind)
    groups = [owner.group for owner in owners]
    return dict(sorted(found.items(), key=lambda named: groups.index(named[1].group)))


def _with_path(current: Any, keys: list[str], value: Any) -> dict[str, Any]:
    """Return the mapping `current` with one inner value changed; what is missing on the way there is made."""
    key, *rest = keys
    current = current.to_dict() if isinstance(current, Settings) else current
    inner = dict(current) if isinstance(current, Mapping) else {}
    inner[key] = _with_path(inner.get(key), rest, value) if rest else value
    return inner
