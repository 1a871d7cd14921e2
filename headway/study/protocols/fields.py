"""What protocols have in common: fields that are read from text, written out and read back."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from headway.errors import ProtocolError, did_you_mean
from headway.runs.later import LATER

Own = TypeVar("Own", bound="Fields")


@dataclass(frozen=True, kw_only=True)
class Fields:
    """A frozen set of choices with presets by name.

    A field is a truth value, a number, one of some words, a tuple of whole numbers, or any of these or none.

    Attributes:
        experiment: the experiment whose protocols these are.
    """

    experiment: ClassVar[str] = ""

    @classmethod
    def presets(cls: type[Own]) -> dict[str, Callable[[], Own]]:
        """What makes each preset, by its name."""
        raise NotImplementedError

    @classmethod
    def named(cls: type[Own], name: str) -> Own:
        """The preset of that name.

        Raises:
            ProtocolError: there is none; the message lists them.
        """
        presets = cls.presets()
        if name not in presets:
            hint = did_you_mean(name, presets)
            raise ProtocolError(f"expected a protocol out of {', '.join(presets)}, got {name!r}{hint}")
        return presets[name]()

    def override(self: Own, values: Mapping[str, str]) -> Own:
        """A copy with some fields read from text, as a command line has them.

        Raises:
            ProtocolError: no such field, or no such value.
        """
        hints = get_type_hints(type(self))
        kinds = {field.name: hints[field.name] for field in dataclasses.fields(self)}
        for name in values:
            if name not in kinds:
                hint = did_you_mean(name, kinds)
                raise ProtocolError(
                    f"expected a field of the protocol, got {name!r}{hint or '; there are: ' + ', '.join(kinds)}"
                )
        parsed = {name: parse(name, text, kinds[name]) for name, text in values.items()}
        return dataclasses.replace(self, **parsed)

    def to_dict(self) -> dict[str, Any]:
        """All fields by name."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls: type[Own], values: Mapping[str, Any]) -> Own:
        """A protocol from what `to_dict` gave, or a spec holds; lists become tuples.

        A field that came after the spec was written has the value that it had in effect; see `headway.runs.later`.

        Raises:
            ProtocolError: fields are missing or unknown.
        """
        names = {field.name for field in dataclasses.fields(cls)}
        later = LATER.get(cls.experiment, {})
        values = {name: field.former for name, field in later.items() if field.is_new} | dict(values)
        if set(values) != names:
            wrong = sorted(set(values) ^ names)
            raise ProtocolError(f"expected the fields of this version's protocol, got a difference in {wrong}")
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


def parse(name: str, text: str, kind: Any) -> Any:
    """Read one value of a field's type from text.

    Raises:
        ProtocolError: it is none.
    """
    if get_origin(kind) in (Union, types.UnionType):
        if text.lower() == "none":
            return None
        kind = next(option for option in get_args(kind) if option is not type(None))
    if get_origin(kind) is Literal:
        options = {str(option): option for option in get_args(kind)}
        if text not in options:
            raise ProtocolError(f"{name}: expected one of {', '.join(options)}, got {text!r}")
        return options[text]
    if get_origin(kind) is tuple:
        return _parse_tuple(name, text)
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ProtocolError(f"{name}: expected true or false, got {text!r}")
        return text.lower() == "true"
    try:
        return kind(text)
    except ValueError:
        raise ProtocolError(f"{name}: expected a value of type {kind.__name__}, got {text!r}") from None


def _parse_tuple(name: str, text: str) -> tuple[int, ...]:
    """Whole numbers with spaces or "x" between them, such as "32x64x64": commas part the values of a sweep."""
    try:
        return tuple(int(part) for part in text.replace("x", " ").split())
    except ValueError:
        raise ProtocolError(f"{name}: expected whole numbers such as 32x64x64, got {text!r}") from None
