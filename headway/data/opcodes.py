"""The opcodes of a protocol 2 pickle that holds plain values and arrays, and how to read their arguments.

An opcode is a byte, followed by its argument if it takes one. Those that are not listed here are refused.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Iterator

Argument = int | str | bytes | None
Reader = Callable[[bytes, int], tuple[Argument, int]]


class RefusedError(Exception):
    """What a pickle has that it must not have."""


def read_opcodes(data: bytes) -> Iterator[tuple[str, Argument, int]]:
    """Yield the name and the argument of each opcode up to STOP, and the position behind it.

    Raises:
        RefusedError: an opcode that is not listed, or data that ends too early.
        UnicodeDecodeError: text that is none.
    """
    position, name = 0, ""
    while name != "STOP":
        code = _slice(data, position, 1)[0]
        if code not in TABLE:
            raise RefusedError(f"the opcode {_describe(code)}")
        name, read = TABLE[code]
        argument, position = read(data, position + 1)
        yield name, argument, position


def _describe(code: int) -> str:
    names = {ord(opcode.code): opcode.name for opcode in pickletools.opcodes}
    return names.get(code, f"0x{code:02x}, which does not exist")


def _slice(data: bytes, start: int, length: int) -> bytes:
    if length < 0 or start + length > len(data):
        raise RefusedError(f"an end within an opcode at byte {start}")
    return data[start : start + length]


def _nothing(data: bytes, start: int) -> tuple[None, int]:
    return None, start


def _number(length: int, signed: bool = False) -> Reader:
    def read(data: bytes, start: int) -> tuple[int, int]:
        return int.from_bytes(_slice(data, start, length), "little", signed=signed), start + length

    return read


def _counted(length: int) -> Callable[[bytes, int], tuple[bytes, int]]:
    """Make a reader of bytes behind their number, which has `length` bytes itself."""

    def read(data: bytes, start: int) -> tuple[bytes, int]:
        start, count = start + length, int.from_bytes(_slice(data, start, length), "little")
        return _slice(data, start, count), start + count

    return read


def _text(data: bytes, start: int) -> tuple[str, int]:
    raw, end = _counted(4)(data, start)
    return str(raw, "utf-8", "surrogatepass"), end


def _long(data: bytes, start: int) -> tuple[int, int]:
    raw, end = _counted(1)(data, start)
    return int.from_bytes(raw, "little", signed=True), end


def _two_lines(data: bytes, start: int) -> tuple[str, int]:
    """Read a module and a name within it, a line each, as "module name"."""
    middle = data.find(b"\n", start)
    end = data.find(b"\n", middle + 1)
    if middle < 0 or end < 0:
        raise RefusedError(f"an end within an opcode at byte {start}")
    return f"{str(data[start:middle], 'utf-8')} {str(data[middle + 1 : end], 'utf-8')}", end + 1


TABLE: dict[int, tuple[str, Reader]] = {
    ord(code): (name, read)
    for code, name, read in [
        ("\x80", "PROTO", _number(1)),
        (".", "STOP", _nothing),
        ("(", "MARK", _nothing),
        ("N", "NONE", _nothing),
        ("\x88", "NEWTRUE", _nothing),
        ("\x89", "NEWFALSE", _nothing),
        ("K", "BININT1", _number(1)),
        ("M", "BININT2", _number(2)),
        ("J", "BININT", _number(4, signed=True)),
        ("\x8a", "LONG1", _long),
        ("X", "BINUNICODE", _text),
        ("U", "SHORT_BINSTRING", _counted(1)),
        ("T", "BINSTRING", _counted(4)),
        ("}", "EMPTY_DICT", _nothing),
        ("]", "EMPTY_LIST", _nothing),
        (")", "EMPTY_TUPLE", _nothing),
        ("t", "TUPLE", _nothing),
        ("\x85", "TUPLE1", _nothing),
        ("\x86", "TUPLE2", _nothing),
        ("\x87", "TUPLE3", _nothing),
        ("a", "APPEND", _nothing),
        ("e", "APPENDS", _nothing),
        ("s", "SETITEM", _nothing),
        ("u", "SETITEMS", _nothing),
        ("q", "BINPUT", _number(1)),
        ("r", "LONG_BINPUT", _number(4)),
        ("h", "BINGET", _number(1)),
        ("j", "LONG_BINGET", _number(4)),
        ("c", "GLOBAL", _two_lines),
        ("R", "REDUCE", _nothing),
        ("b", "BUILD", _nothing),
    ]
}
