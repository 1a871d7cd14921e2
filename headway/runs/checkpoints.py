"""Checkpoints: one file holds a run's state and the metrics rows up to it, so the two cannot disagree.

A run has two slots, ``checkpoint.0`` and ``checkpoint.1``. A new checkpoint replaces, in one rename, the slot
that does not hold the newest whole one, so that the newest has a whole predecessor to fall back to. A file
is made of

    title | rows | payload | footer (JSON) | the footer's length (8 bytes) | the footer's SHA-256

The footer comes last because only then the lengths and sums are known. Any lost or changed byte is detected.
The payload is opaque bytes; whoever loads it must not execute it (``torch.load(..., weights_only=True)``).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar

from headway.errors import DamagedError
from headway.runs.files import FileSum, SummingWriter, Write, Writer, open_regular, store_error, write_atomic
from headway.runs.jsonable import parse_object, read_record

T = TypeVar("T")

CHECKPOINT_SCHEMA = 1
SLOTS = ("checkpoint.0", "checkpoint.1")
_MAGIC = b"headway checkpoint\n"
_TAIL = 8 + 32
_MAX_FOOTER = 4096


@dataclass(frozen=True)
class Checkpoint:
    """What a run resumes from."""

    step: int
    """How far the run had come."""
    payload: bytes
    """The bytes that the run's write callback wrote."""


@dataclass(frozen=True)
class CheckpointFound:
    """The newest whole checkpoint of a run: the slot that it is in, and its parts."""

    slot: str
    step: int
    rows: bytes
    payload: bytes


@dataclass(frozen=True)
class _Footer:
    run_id: str
    step: int
    rows: FileSum
    payload: FileSum


def write_checkpoint(
    path: Path, run_id: str, step: int, rows: bytes, write: Write, staging: Path | None = None
) -> None:
    """Write a checkpoint atomically."""

    def write_all(file: Writer) -> None:
        file.write(_MAGIC)
        file.write(rows)
        payload = SummingWriter(file)
        write(payload)
        sums = {"rows": vars(FileSum.of(rows)), "payload": vars(payload.sum())}
        footer = json.dumps({"schema": CHECKPOINT_SCHEMA, "run_id": run_id, "step": step, **sums}).encode()
        file.write(footer + len(footer).to_bytes(8, "little") + hashlib.sha256(footer).digest())

    write_atomic(path, write_all, staging)


def find_newest(
    folder: Path, run_id: str, *, with_payload: bool = True
) -> tuple[CheckpointFound | None, tuple[str, ...]]:
    """Return the newest whole checkpoint in a run's folder (or None) and what is wrong with the others."""
    problems: list[str] = []

    def read(slot: str, act: Callable[[BinaryIO, Path, str], T]) -> T | None:
        try:
            with _reading(folder / slot) as file:
                return act(file, folder / slot, run_id)
        except FileNotFoundError:  # it was never written, or its run has just ended
            return None
        except DamagedError as exc:
            problems.append(str(exc))
            return None

    footers = {slot: footer for slot in SLOTS if (footer := read(slot, _read_footer))}
    for slot in sorted(footers, key=lambda slot: footers[slot].step, reverse=True):
        if found := read(slot, partial(_read_all, with_payload=with_payload)):
            return found, tuple(problems)
    return None, tuple(problems)


def _read_all(file: BinaryIO, path: Path, run_id: str, with_payload: bool) -> CheckpointFound:
    footer = _read_footer(file, path, run_id)
    file.seek(len(_MAGIC))
    rows = _read_section(file, footer.rows, f"{path}: metrics rows")
    payload = _read_section(file, footer.payload, f"{path}: payload") if with_payload else b""
    return CheckpointFound(path.name, footer.step, rows, payload)


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[BinaryIO]:
    """Open a checkpoint; the disk's errors become `StoreError`, but a missing file stays one."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            yield file
    except FileNotFoundError:
        raise
    except OSError as exc:
        raise store_error("read", path, exc) from exc


def _read_section(file: BinaryIO, expected: FileSum, what: str) -> bytes:
    data = file.read(expected.length)
    if FileSum.of(data) != expected:
        raise DamagedError(f"{what}: expected SHA-256 {expected.sha256[:12]}..., got other bytes; it is damaged")
    return data


def _read_footer(file: BinaryIO, path: Path, run_id: str) -> _Footer:
    size = os.fstat(file.fileno()).st_size
    file.seek(max(0, size - _TAIL - _MAX_FOOTER))
    end = file.read()
    footer, tail = end[:-_TAIL], end[-_TAIL:]
    length = int.from_bytes(tail[:8], "little")
    footer = footer[len(footer) - length :] if length <= len(footer) else b""
    if len(end) <= _TAIL or hashlib.sha256(footer).digest() != tail[8:]:
        raise DamagedError(f"{path}: expected a whole checkpoint, got {size} bytes without a valid end")
    data = parse_object(footer, str(path), DamagedError)
    found = read_record(_Footer, data, str(path), DamagedError, CHECKPOINT_SCHEMA)
    if len(_MAGIC) + found.rows.length + found.payload.length + length + _TAIL != size:
        raise DamagedError(f"{path}: expected a whole checkpoint, got {size} bytes, which do not add up")
    file.seek(0)
    if file.read(len(_MAGIC)) != _MAGIC:
        raise DamagedError(f"{path}: expected a headway checkpoint, got something else")
    if found.run_id != run_id:
        raise DamagedError(f"{path}: expected a checkpoint of run {run_id}, got one of run {found.run_id!r}")
    return found
