"""A pickle reader that cannot run anything, for the batches of CIFAR-10.

Unpickling calls whatever the file names. Here a small machine goes through the opcodes instead and knows only
those that a protocol 2 file of dictionaries, lists, numbers, strings and byte arrays is made of. It imports
nothing and calls nothing on the file's behalf: the four names that the official files and Python 3 copies of
them refer to stand for a step of the machine each, and an array is a record of what the file says about it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.data.files import bad_file
from headway.data.opcodes import Argument, RefusedError, read_opcodes

PROTOCOL = 2
# An official batch has 10,000 labels and 10,000 file names, some 40,000 opcodes.
MOST_OPCODES = 200_000
GLOBALS = {
    "numpy.core.multiarray _reconstruct": "reconstruct",
    "numpy._core.multiarray _reconstruct": "reconstruct",
    "numpy ndarray": "ndarray",
    "numpy dtype": "dtype",
    "_codecs encode": "encode",
}
CONSTANTS: dict[str, Callable[[], object]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
}
LITERALS = ("BININT", "BININT1", "BININT2", "LONG1", "BINUNICODE", "BINSTRING", "SHORT_BINSTRING")
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


@dataclass(frozen=True)
class _Global:
    step: str


@dataclass
class _DType:
    state: object = None


@dataclass
class _Array:
    state: object = None


def loads(data: bytes, where: Path | str) -> object:
    """Read a protocol 2 pickle of plain values; strings of Python 2 become bytes, uint8 arrays become arrays.

    Raises:
        DataError: damaged, or anything beyond plain values and uint8 arrays. Nothing has been executed.
    """
    expected = "a protocol 2 pickle of plain values and byte arrays, as in the official files"
    try:
        return _Machine(len(data)).run(data)
    except RefusedError as refused:
        raise bad_file(where, expected, str(refused)) from refused
    except (ValueError, IndexError, KeyError) as error:
        raise bad_file(where, expected, f"damaged data ({type(error).__name__}: {error})") from error


class _Machine:
    """The stack, the marks on it and the memo."""

    def __init__(self, budget: int) -> None:
        self._stack: list[Any] = []
        self._marks: list[list[Any]] = []
        self._memo: dict[int, Any] = {}
        self._budget = budget  # what may still be encoded: a file cannot make more text than it has bytes

    def run(self, data: bytes) -> object:
        end = 0
        for count, (name, argument, position) in enumerate(read_opcodes(data)):
            if count >= MOST_OPCODES:
                raise RefusedError(f"more than {MOST_OPCODES} opcodes")
            self._step(name, argument)
            end = position
        if end != len(data) or self._marks or len(self._stack) != 1:
            raise RefusedError("more or less than one value")
        return _finished(self._stack.pop())

    def _step(self, name: str, argument: Argument) -> None:
        if name in CONSTANTS:
            self._stack.append(CONSTANTS[name]())
        elif name in LITERALS:
            self._stack.append(argument)
        elif name in TUPLES:
            self._stack.append(tuple(self._pop(TUPLES[name])))
        else:
            getattr(self, f"_op_{name.lower()}")(argument)

    def _pop(self, count: int) -> list[Any]:
        if len(self._stack) < count:
            raise RefusedError("too few values on the stack")
        values = self._stack[-count:]
        del self._stack[-count:]
        return values

    def _pop_mark(self) -> list[Any]:
        values, self._stack = self._stack, self._marks.pop()
        return values

    def _op_proto(self, version: int) -> None:
        if version != PROTOCOL:
            raise RefusedError(f"protocol {version} (pickle.dump(..., protocol={PROTOCOL}) writes the right one)")

    def _op_stop(self, _: None) -> None:
        pass

    def _op_mark(self, _: None) -> None:
        self._marks.append(self._stack)
        self._stack = []

    def _op_tuple(self, _: None) -> None:
        values = self._pop_mark()
        self._stack.append(tuple(values))

    def _op_binput(self, index: int) -> None:
        self._memo[index] = self._stack[-1]

    _op_long_binput = _op_binput

    def _op_binget(self, index: int) -> None:
        self._stack.append(self._memo[index])

    _op_long_binget = _op_binget

    def _op_append(self, _: None) -> None:
        self._extend(self._pop(1))

    def _op_appends(self, _: None) -> None:
        self._extend(self._pop_mark())

    def _extend(self, values: list[Any]) -> None:
        target = self._stack[-1]
        if not isinstance(target, list):
            raise RefusedError(f"items for a {type(target).__name__}")
        target.extend(values)

    def _op_setitem(self, _: None) -> None:
        self._update(self._pop(2))

    def _op_setitems(self, _: None) -> None:
        self._update(self._pop_mark())

    def _update(self, values: list[Any]) -> None:
        target = self._stack[-1]
        if not isinstance(target, dict) or len(values) % 2:
            raise RefusedError(f"keys for a {type(target).__name__}")
        for key, value in zip(values[::2], values[1::2], strict=True):
            if not isinstance(key, str | bytes):
                raise RefusedError(f"a key of type {type(key).__name__}")
            target[key] = value

    def _op_global(self, name: str) -> None:
        if name not in GLOBALS:
            raise RefusedError(f"a reference to {name.replace(' ', '.', 1)[:100]!r}, which was not followed")
        self._stack.append(_Global(GLOBALS[name]))

    def _op_reduce(self, _: None) -> None:
        function, arguments = self._pop(2)
        step = function.step if isinstance(function, _Global) else None
        if step == "encode":
            self._stack.append(self._encode(arguments))
        elif step == "reconstruct":
            self._stack.append(_Array())
        elif step == "dtype":
            self._stack.append(_dtype(arguments))
        else:
            raise RefusedError(f"a call of a {type(function).__name__}")

    def _encode(self, arguments: object) -> bytes:
        match arguments:
            case (str(text), "latin1" | "latin-1"):
                self._budget -= len(text)
                if self._budget < 0:
                    raise RefusedError("the same text encoded over and over")
                return text.encode("latin-1")
        raise RefusedError("a call of encode without a text and latin1")

    def _op_build(self, _: None) -> None:
        target, state = self._pop(2)
        if not isinstance(target, _Array | _DType):
            raise RefusedError(f"a state for a {type(target).__name__}")
        target.state = state
        self._stack.append(target)


def _dtype(arguments: object) -> _DType:
    match arguments:
        case (str("u1") | bytes(b"u1"), *_):
            return _DType()
    raise RefusedError("an array of another type than uint8")


def _finished(value: object) -> object:
    """Turn the records of arrays among a dictionary's values into arrays."""
    if not isinstance(value, dict):
        return value
    return {key: _as_array(item) if isinstance(item, _Array) else item for key, item in value.items()}


def _as_array(record: _Array) -> NDArray[np.uint8]:
    match record.state:
        case (int(), (int(rows), int(columns)), _DType(), False | 0, bytes(values)):
            if rows < 0 or columns < 0 or rows * columns != len(values):
                raise RefusedError(f"an array of {rows}x{columns} with {len(values)} bytes")
            return np.frombuffer(values, dtype=np.uint8).reshape(rows, columns)
    raise RefusedError("an array that is not a plain matrix of uint8")
