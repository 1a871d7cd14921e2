"""How much a Parquet file holds, by the headers of its pages, before anything of it is decoded.

A file of some kilobytes can declare more values than any memory has: repeated values take no room in it. What it says
about itself in one place need not agree with another, and pyarrow decodes a list as a whole. So the headers of all
pages are read here, as the decoder will read them, and their values and bytes are counted. The format is Thrift's
compact protocol: https://github.com/apache/parquet-format.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

MAX_PAGES = 100_000
MAX_PAGE_BYTES = 1 << 28
"""Bytes that all pages of a file may have when they are unpacked."""
_MAGIC = b"PAR1"
_MAX_DEPTH = 16
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
_ROW_GROUPS, _COLUMNS, _FILE_PATH, _META = 4, 1, 1, 3
_PACKED, _DATA_OFFSET, _DICTIONARY_OFFSET = 7, 9, 11
_UNPACKED_PAGE, _PACKED_PAGE, _HEADERS = 2, 3, (5, 8)


def check_pages(data: bytes, most_values: int, most_bytes: int = MAX_PAGE_BYTES) -> None:
    """Make sure that a Parquet file does not hold too much."""
    values = size = 0
    for pages, header in enumerate(_page_headers(data), start=1):
        size += header.get(_UNPACKED_PAGE, 0)
        # a dictionary has no values of rows, and its bytes are counted
        own = [header[kind].get(1, 0) for kind in _HEADERS if kind in header]
        if header.get(_UNPACKED_PAGE, 0) < 0 or min(own, default=0) < 0:
            raise ValueError("a page of a negative size")
        values += sum(own)
        if values > most_values:
            raise ValueError(f"{values} values or more, where {most_values} are the most")
        if size > most_bytes or pages > MAX_PAGES:
            raise ValueError(f"{pages} pages of {size} bytes or more, where {most_bytes} bytes are the most")


def _page_headers(data: bytes) -> Iterator[dict[int, Any]]:
    """The headers of all pages of all columns."""
    length = int.from_bytes(data[-8:-4], "little")
    if len(data) < 12 or data[:4] != _MAGIC or data[-4:] != _MAGIC or length > len(data) - 12:
        raise ValueError("no Parquet file")
    try:
        footer, _ = _read_struct(data, len(data) - 8 - length, 0)
        for group in footer.get(_ROW_GROUPS, ()):
            for column in group[_COLUMNS]:
                if _FILE_PATH in column:
                    raise ValueError("a column in another file")
                meta = column[_META]
                first, dictionary = meta[_DATA_OFFSET], meta.get(_DICTIONARY_OFFSET, 0)
                place = dictionary if 0 < dictionary < first else first
                end = place + meta[_PACKED]
                if not 4 <= place <= end <= len(data):
                    raise ValueError("a column outside of the file")
                while place < end:
                    header, place = _read_struct(data, place, 0)
                    sizes = [header.get(kind, {}).get(1, 0) for kind in _HEADERS]
                    if not all(type(size) is int for size in (*sizes, header.get(_UNPACKED_PAGE, 0))):
                        raise ValueError("a page of an unknown size")
                    if header[_PACKED_PAGE] < 0:
                        raise ValueError("a page of a negative size")
                    place += header[_PACKED_PAGE]
                    yield header
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"no Parquet file ({type(error).__name__} in its headers)") from None


def _read_struct(data: bytes, place: int, depth: int) -> tuple[dict[int, Any], int]:
    """Read a struct: its fields by number, and where it ends."""
    if depth > _MAX_DEPTH:
        raise ValueError("headers nested too deeply")
    fields: dict[int, Any] = {}
    number = 0
    while head := data[place]:
        place += 1
        if head >> 4:
            number += head >> 4
        else:
            number, place = _read_integer(data, place)
        kind = head & 15
        if kind in (_TRUE, _FALSE):
            fields[number] = kind == _TRUE
        else:
            fields[number], place = _read_value(data, place, kind, depth)
    return fields, place + 1


def _read_value(data: bytes, place: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (4, 5, 6):
        return _read_integer(data, place)
    if kind == _BINARY:
        length, place = _read_varint(data, place)
        return None, _skip(data, place, length)  # no text matters here
    if kind == _STRUCT:
        return _read_struct(data, place, depth + 1)
    if kind in (_LIST, _SET):
        return _read_list(data, place, depth)
    if kind in (_BYTE, _TRUE, _FALSE):  # truth values in a list take a byte each
        return data[place], place + 1
    if kind == _DOUBLE:
        return None, _skip(data, place, 8)
    raise ValueError(f"a header of an unknown kind ({kind})")


def _read_list(data: bytes, place: int, depth: int) -> tuple[list[Any], int]:
    if depth > _MAX_DEPTH:
        raise ValueError("headers nested too deeply")
    length, kind, place = data[place] >> 4, data[place] & 15, place + 1
    if length == 15:
        length, place = _read_varint(data, place)
    if length > len(data) - place:  # every item takes a byte at least
        raise ValueError("a list that is longer than the file")
    items = []
    for _ in range(length):
        item, place = _read_value(data, place, kind, depth + 1)
        items.append(item)
    return items, place


def _read_integer(data: bytes, place: int) -> tuple[int, int]:
    value, place = _read_varint(data, place)
    return (value >> 1) ^ -(value & 1), place


def _read_varint(data: bytes, place: int) -> tuple[int, int]:
    byte = data[place]
    if byte < 0x80:
        return byte, place + 1
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
        if shift > 63:
            raise ValueError("a number of too many bytes in its headers")


def _skip(data: bytes, place: int, length: int) -> int:
    if length > len(data) - place:
        raise ValueError("headers that end before they should")
    return place + length
