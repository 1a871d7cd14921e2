"""Strict JSON: what a stored mapping may hold, how it is read, and its one canonical form."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Hashable, ItemsView, Iterator, Mapping, Sequence
from functools import cache
from types import UnionType
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast, get_args, get_origin, get_type_hints

from headway.errors import HeadwayError, NewerSchemaError, SpecError

Json: TypeAlias = bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"] | None

T = TypeVar("T")

MAX_DEPTH = 32
MAX_BYTES = 1 << 20
MAX_INTEGER = 2**64  # exclusive; wide enough for every seed and counter
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False, check_circular=False)


class FrozenDict(Mapping[str, Any]):
    """A mapping that cannot be changed, but can be pickled and copied (``MappingProxyType`` cannot)."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, Any]) -> None:
        self._items = dict(items)

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def items(self) -> ItemsView[str, Any]:
        """Return the pairs of keys and values."""
        return self._items.items()

    def __repr__(self) -> str:
        return repr(self._items)


def freeze(value: Any, where: str, depth: int = 0) -> Any:
    """Return an immutable copy of a JSON value: mappings become `FrozenDict`, lists become tuples."""
    if _is_plain(value):
        return value
    if isinstance(value, str):
        return _freeze_string(value, where)
    if isinstance(value, int):
        if not -MAX_INTEGER < value < MAX_INTEGER:
            raise SpecError(f"expected an integer between -2**64 and 2**64 at {where}, got one beyond")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise SpecError(f"expected a finite number at {where}, got {value}; leave it out or use null")
        return float(value)
    if depth >= MAX_DEPTH:
        raise SpecError(f"expected at most {MAX_DEPTH} levels of nesting, got more at {where}")
    if isinstance(value, (dict, Mapping)):
        items = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise SpecError(f"expected string keys in {where}, got {key!r}; JSON has no other keys")
            name = key if _is_plain(key) else _freeze_string(key, where)
            items[name] = item if _is_plain(item) else freeze(item, f"{where}.{name}", depth + 1)
        return FrozenDict(items)
    if isinstance(value, (list, tuple)):
        return tuple(
            item if _is_plain(item) else freeze(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(value)
        )
    raise SpecError(
        f"expected null, true, false, a number, a string, a list or a mapping at {where}, "
        f"got {type(value).__module__}.{type(value).__qualname__}; convert it first (.item(), .tolist())"
    )


def _is_plain(value: Any) -> bool:
    """Tell quickly whether a value can stay as it is; listings of many runs spend their time here."""
    kind = type(value)
    if kind is str:
        return bool(value.isascii())
    if kind is float:
        return math.isfinite(value)
    if kind is int:
        return bool(-MAX_INTEGER < value < MAX_INTEGER)
    return kind is bool or value is None


def _freeze_string(value: str, where: str) -> str:
    plain = str.__str__(value)
    try:
        plain.encode()
    except UnicodeEncodeError:
        raise SpecError(f"expected valid Unicode at {where}, got a lone surrogate in {value!r}") from None
    return plain


def thaw(value: Any) -> Any:
    """Return a frozen value as plain dicts and lists, which ``json.dumps`` takes."""
    if isinstance(value, FrozenDict):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [thaw(item) for item in value]
    return value


def canonical(value: Any) -> bytes:
    """Return the one text that stands for a frozen value.

    Keys are sorted, and a float that is a whole number within the range of integers is written as that
    integer, because a trip through another JSON library may turn 1.0 into 1 (and -0.0 into 0).
    """
    return _CANONICAL.encode(_whole_floats_as_integers(value)).encode()


def _whole_floats_as_integers(value: Any) -> Any:
    kind = type(value)
    if kind is float:
        return int(value) if value.is_integer() and abs(value) < MAX_INTEGER else value
    if kind is FrozenDict:
        return {key: _whole_floats_as_integers(item) for key, item in value.items()}
    if kind is tuple:
        return [_whole_floats_as_integers(item) for item in value]
    return value


def parse_object(text: str | bytes, what: str, error: type[HeadwayError]) -> dict[str, Any]:
    """Parse a JSON object strictly: no NaN, no repeated key, bounded size and nesting."""
    if len(text) > MAX_BYTES:
        raise error(f"{what}: expected at most {MAX_BYTES} bytes, got {len(text)}")
    try:
        value = _STRICT.decode(text.decode() if isinstance(text, bytes) else text)
    except RecursionError:
        raise error(f"{what}: expected at most {MAX_DEPTH} levels of nesting, got many more") from None
    except UnicodeDecodeError as exc:
        raise error(f"{what}: expected UTF-8 text, got byte {exc.object[exc.start]:#04x} at {exc.start}") from None
    except ValueError as exc:
        raise error(f"{what}: expected a JSON object, got {excerpt(text)} ({exc})") from None
    if not isinstance(value, dict):
        raise error(f"{what}: expected a JSON object, got {excerpt(text)}")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _refuse_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"key {next(k for k in keys if keys.count(k) > 1)!r} is given twice")
    return result


_STRICT = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_refuse_repeats)


def excerpt(text: str | bytes, limit: int = 40) -> str:
    """Return the beginning of a text, for an error message."""
    if not text:
        return "nothing"
    return repr(text[:limit]) + ("..." if len(text) > limit else "")


_KINDS: Mapping[type, tuple[str, Callable[[Any], bool]]] = {
    str: ("a string", lambda value: type(value) is str),
    int: ("an integer from 0 to 2**63", lambda value: type(value) is int and 0 <= value < 2**63),
    float: ("a finite number", lambda value: type(value) in (int, float) and abs(value) < 1e300),
}


def read_record(
    kind: type[T],
    data: object,
    what: str,
    error: type[HeadwayError],
    schema: int | None = None,
    **readers: Callable[[Any], Any],
) -> T:
    """Make a dataclass of a parsed JSON object, which may have other fields besides.

    Its fields are strings, counts, finite numbers, records, mappings of such by name, or one of these or None.
    `readers` read fields of their names in another way; `schema` is the newest that can be read, if it has a number.
    """
    forms = _forms(cast(Hashable, kind))
    if not isinstance(data, Mapping):
        raise error(f"{what}: expected the fields {', '.join(forms)}, got {excerpt(str(data))}")
    if schema is not None:
        check_schema(data, schema, what, error)
    fields = {}
    for name, form in forms.items():
        value = data.get(name)
        fields[name] = readers[name](value) if name in readers else _read(form, value, name, what, error)
    return kind(**fields)


class _Form(NamedTuple):
    """What a field holds: the kind of its value or of the items of its mapping."""

    kind: Any
    is_mapping: bool
    may_be_none: bool


@cache
def _forms(kind: Hashable) -> dict[str, _Form]:
    """The fields of a dataclass; kept, because listings of many runs would spend most of their time here."""
    forms = {}
    for name, hint in get_type_hints(kind).items():
        is_mapping, may_be_none = get_origin(hint) is Mapping, get_origin(hint) is UnionType
        item = get_args(hint)[1] if is_mapping else get_args(hint)[0] if may_be_none else hint
        forms[name] = _Form(item, is_mapping, may_be_none)
    return forms


def _read(form: _Form, value: Any, name: str, what: str, error: type[HeadwayError]) -> Any:
    """Read a field of a record, or an item of one."""
    if value is None and form.may_be_none:
        return None
    if form.is_mapping:
        if type(value) is not dict:
            raise error(f"{what}: expected a mapping for {name}, got {excerpt(repr(value))}")
        item = form._replace(is_mapping=False)
        return FrozenDict({key: _read(item, each, f"{name}.{key}", what, error) for key, each in value.items()})
    if form.kind not in _KINDS:
        return read_record(form.kind, value, f"{what}: {name}", error)
    words, accepts = _KINDS[form.kind]
    if not accepts(value):
        raise error(f"{what}: expected {words} for {name}, got {excerpt(repr(value))}")
    return float(value) if form.kind is float else value


def check_schema(data: Mapping[str, Any], readable: int, what: str, error: type[HeadwayError]) -> None:
    """Check that a parsed file's ``schema`` number is one that this version reads."""
    found = data.get("schema")
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise error(f"{what}: expected a schema number (1 or more), got {excerpt(repr(found))}")
    if found > readable:
        raise NewerSchemaError(
            f"{what} was written by a newer headway: schema {found}, this version reads up to {readable}; "
            "upgrade headway to use it"
        )
