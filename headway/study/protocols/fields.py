"""What protocols have in common: flat fields, which are read from text, written to specs and read back."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from headway.errors import MethodError, ProtocolError, did_you_mean
from headway.runs.spec import LATER

Own = TypeVar("Own", bound="Fields")


@dataclass(frozen=True)
class _Flat:
    """A flat field: where its value is kept, and of which type it is."""

    places: tuple[tuple[str, str], ...]  # (part, name) pairs; the part is empty for a field of the protocol itself
    kind: Any  # the type
    is_later: bool = False  # whether it is a setting of a part that specs hold only where it differs from the default


@dataclass(frozen=True, kw_only=True)
class Fields:
    """A frozen set of choices with presets by name.

    Specs and command lines see a flat set of fields. A field is a truth value, a number, one of some words, a tuple of
    whole numbers, or any of these or none. A part is a dataclass with settings of its own, whose fields are flat
    fields too; those that `parts` does not list came later, and are left out of specs where they have their default.
    """

    experiment: ClassVar[str] = ""  # the experiment whose protocols these are
    parts: ClassVar[Mapping[str, Mapping[str, str]]] = {}  # part -> {flat name: name in the part}
    derived: ClassVar[tuple[str, ...]] = ()  # names of fields of parts that follow from other fields
    order: ClassVar[tuple[str, ...]] = ()  # the order of flat fields; those that it does not name come last

    @classmethod
    def presets(cls: type[Own]) -> dict[str, Callable[[], Own]]:
        """What makes each preset, by its name."""
        raise NotImplementedError

    @classmethod
    def named(cls: type[Own], name: str) -> Own:
        """The preset of that name."""
        presets = cls.presets()
        if name not in presets:
            hint = did_you_mean(name, presets)
            raise ProtocolError(f"expected a protocol out of {', '.join(presets)}, got {name!r}{hint}")
        return presets[name]()

    def _check(self, names: Iterable[str], is_fine: Callable[[Any], bool], expected: str) -> None:
        """Refuse the values of some fields that are not what is expected."""
        for name in names:
            if not is_fine(getattr(self, name)):
                raise ProtocolError(f"{name}: expected {expected}, got {getattr(self, name)}")

    def replaced(self: Own, **values: Any) -> Own:
        """A copy with other values of some flat fields."""
        changes: dict[str, dict[str, Any]] = {part: {} for part in ("", *self.parts)}
        for name, value in values.items():
            for part, inner in self._flat()[name].places:
                changes[part][inner] = value
        own = changes.pop("")
        try:
            parts = {part: dataclasses.replace(getattr(self, part), **new) for part, new in changes.items() if new}
            return dataclasses.replace(self, **own, **parts)
        except MethodError as error:
            raise ProtocolError(str(error)) from error

    def override(self: Own, values: Mapping[str, Any]) -> Own:
        """A copy with other values of some flat fields: texts, as a command line has them, or plain values."""
        known = self._flat()
        for name in values:
            if name not in known:
                hint = did_you_mean(name, known)
                raise ProtocolError(
                    f"expected a field of the protocol, got {name!r}{hint or '; there are: ' + ', '.join(known)}"
                )
        return self.replaced(**{name: read(name, value, known[name].kind) for name, value in values.items()})

    def to_dict(self) -> dict[str, Any]:
        """All flat fields by name, without those of parts that came later and have their default."""
        values = {name: self._value(field) for name, field in self._flat().items()}
        later = [name for name, field in self._flat().items() if field.is_later]
        usual = type(self)() if later else self
        for name in later:
            if values[name] == usual._value(self._flat()[name]):
                del values[name]
        return values

    @classmethod
    def from_dict(cls: type[Own], values: Mapping[str, Any]) -> Own:
        """A protocol from what `to_dict` gave, or a spec holds; lists become tuples.

        A field that came after the spec was written has the value that it had in effect; see `headway.runs.spec`.
        """
        known = cls._flat()
        later = LATER.get(cls.experiment, {})
        values = {name: field.former for name, field in later.items() if field.is_new} | dict(values)
        required = {name for name, field in known.items() if not field.is_later}
        wrong = sorted((values.keys() - known.keys()) | (required - values.keys()))
        if wrong:
            raise ProtocolError(f"expected the fields of this version's protocol, got a difference in {wrong}")
        return cls().replaced(
            **{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        )

    @classmethod
    def _flat(cls) -> dict[str, _Flat]:
        """The flat fields by name, in their order."""
        kind: Any = cls  # a class is hashable, whatever its instances are
        return _flat_fields(kind)

    def _value(self, field: _Flat) -> Any:
        part, name = field.places[0]
        return getattr(getattr(self, part) if part else self, name)


@cache
def _flat_fields(protocol: Any) -> dict[str, _Flat]:
    hints = get_type_hints(protocol)
    own = [field.name for field in dataclasses.fields(protocol) if field.name not in protocol.parts]
    found = {name: _Flat((("", name),), hints[name]) for name in own}
    for part, names in protocol.parts.items():
        kinds = get_type_hints(hints[part])
        for name, inner in names.items():
            places = found[name].places if name in found else ()
            found[name] = _Flat((*places, (part, inner)), kinds[inner])
        for field in dataclasses.fields(hints[part]):
            if field.name not in (*names.values(), *protocol.derived):
                name = f"{part}_{field.name}" if field.name in found else field.name
                found[name] = _Flat(((part, field.name),), kinds[field.name], is_later=True)
    return {name: found[name] for name in dict.fromkeys((*protocol.order, *found))}


def whole_rollouts(steps: int, envs: int, rollout_steps: int) -> int:
    """Steps of all environments, rounded up to whole rollouts."""
    rollout = envs * rollout_steps
    return -(-steps // rollout) * rollout


def read(name: str, value: Any, kind: Any) -> Any:
    """Read one value of a field's type, from text or from a plain value such as TOML has."""
    if get_origin(kind) in (Union, types.UnionType):
        if value is None or (isinstance(value, str) and value.lower() == "none"):
            return None
        kind = next(option for option in get_args(kind) if option is not type(None))
    if get_origin(kind) is Literal:
        options = {str(option): option for option in get_args(kind)}
        if str(value) not in options or isinstance(value, bool):
            raise ProtocolError(f"{name}: expected one of {', '.join(options)}, got {str(value)!r}")
        return options[str(value)]
    if get_origin(kind) is tuple:
        return _read_tuple(name, value)
    if kind is bool:
        if str(value).lower() not in ("true", "false"):
            raise ProtocolError(f"{name}: expected true or false, got {value!r}")
        return str(value).lower() == "true"
    is_sensible = isinstance(value, str) or (kind is not str and type(value) in (int, kind))
    try:
        if is_sensible:
            return kind(value)
    except (ValueError, OverflowError):
        pass
    raise ProtocolError(f"{name}: expected a value of type {kind.__name__}, got {value!r}") from None


def _read_tuple(name: str, value: Any) -> tuple[int, ...]:
    """Whole numbers: a list, or a text with spaces or "x" between them, since commas part the values of a sweep."""
    try:
        if isinstance(value, (str, int)):
            return tuple(int(part) for part in str(value).replace("x", " ").split())
        if all(type(part) is int for part in value):
            return tuple(value)
    except (ValueError, TypeError):
        pass
    raise ProtocolError(f"{name}: expected whole numbers such as 32x64x64, got {value!r}") from None
