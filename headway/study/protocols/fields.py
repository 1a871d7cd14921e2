"""What protocols have in common: flat fields, which are read from text, written to specs and read back."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from headway.errors import MethodError, ProtocolError, check_known, did_you_mean
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
    fields too; those that `order` does not list came later, and are left out of specs where they have their default.
    A name in `order` stands for the field of that name in every part.
    """

    experiment: ClassVar[str] = ""  # the experiment whose protocols these are
    parts: ClassVar[Mapping[str, Mapping[str, str]]] = {}  # part -> {name in the part: flat name}, where they differ
    derived: ClassVar[tuple[str, ...]] = ()  # names of fields of parts that follow from other fields
    order: ClassVar[str] = ""  # the names of flat fields in their order; those that came later follow

    @classmethod
    def presets(cls: type[Own]) -> dict[str, Callable[[], Own]]:
        """What makes each preset, by its name."""
        raise NotImplementedError

    @classmethod
    def named(cls: type[Own], name: str) -> Own:
        """The preset of that name."""
        presets = cls.presets()
        check_known("a protocol", [name], presets, ProtocolError)
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
                hint = did_you_mean(name, known) or f"; there are: {', '.join(known)}"
                raise ProtocolError(f"expected a field of the protocol, got {name!r}{hint}")
        return self.replaced(**{name: read(name, value, known[name].kind) for name, value in values.items()})

    def to_dict(self) -> dict[str, Any]:
        """All flat fields by name, without those of parts that came later and have their default."""
        usual, known = type(self)(), self._flat()
        values = {name: self._value(field) for name, field in known.items()}
        return {
            name: value
            for name, value in values.items()
            if not known[name].is_later or value != usual._value(known[name])
        }

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
        lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
        return cls().replaced(**values | lists)

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
    order = protocol.order.split()
    for part, names in protocol.parts.items():
        kinds = get_type_hints(hints[part])
        for inner in (field.name for field in dataclasses.fields(hints[part]) if field.name not in protocol.derived):
            name = names.get(inner, inner)
            is_later = name not in order
            if is_later and name in found:
                name = f"{part}_{name}"
            places = found[name].places if name in found else ()
            found[name] = _Flat((*places, (part, inner)), kinds[inner], is_later)
    return {name: found[name] for name in dict.fromkeys((*order, *found))}


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
    try:
        if get_origin(kind) is tuple:  # in a text there are spaces or "x", since commas part the values of a sweep
            expected = "whole numbers such as 32x64x64"
            if isinstance(value, (str, int)):
                return tuple(int(part) for part in str(value).replace("x", " ").split())
            if all(type(part) is int for part in value):
                return tuple(value)
        elif kind is bool:
            expected = "true or false"
            return {"true": True, "false": False}[str(value).lower()]
        else:
            expected = f"a value of type {kind.__name__}"
            if isinstance(value, str) or (kind is not str and type(value) in (int, kind)):
                return kind(value)
    except (KeyError, ValueError, TypeError, OverflowError):
        pass
    raise ProtocolError(f"{name}: expected {expected}, got {value!r}")
