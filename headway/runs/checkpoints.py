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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from headway.errors import DamagedError
from headway.runs.files import FileSum, SummingWriter, Write, Writer, open_regular, store_error, write_atomic
from headway.runs.jsonable import COUNT, MAPPING, TEXT, parse_object, take_fields

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
class Found:
    """The newest whole checkpoint of a run: the slot that it is in, and its parts."""

    slot: str
    step: int
    rows: bytes
    payload: bytes


@dataclass(frozen=True)
class _Footer:
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


def find_newest(folder: Path, run_id: str, *, with_payload: bool = True) -> tuple[Found | None, tuple[str, ...]]:
    """Return the newest whole checkpoint in a run's folder (or None) and what is wrong with the others."""
    problems: list[str] = []
    steps = {slot: _step_of(folder / slot, run_id, problems) for slot in SLOTS}
    for slot in sorted(SLOTS, key=lambda slot: steps[slot], reverse=True):
        if steps[slot] >= 0:
            try:
                return _load(folder / slot, run_id, with_payload), tuple(problems)
            except FileNotFoundError:
                continue  # its run has just ended
            except DamagedError as exc:
                problems.append(str(exc))
    return None, tuple(problems)


def _step_of(path: Path, run_id: str, problems: list[str]) -> int:
    """Return the step of the checkpoint at ``path``; -1 when there is none or its footer is damaged."""
    try:
        with _reading(path) as file:
            return _read_footer(file, path, run_id).step
    except FileNotFoundError:
        pass
    except DamagedError as exc:
        problems.append(str(exc))
    return -1


def _load(path: Path, run_id: str, with_payload: bool) -> Found:
    with _reading(path) as file:
        footer = _read_footer(file, path, run_id)
        file.seek(len(_MAGIC))
        rows = _read_section(file, footer.rows, f"{path}: metrics rows")
        payload = _read_section(file, footer.payload, f"{path}: payload") if with_payload else b""
    return Found(path.name, footer.step, rows, payload)


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
    kinds = {"run_id": TEXT, "step": COUNT, "rows": MAPPING, "payload": MAPPING}
    data = parse_object(footer, str(path), DamagedError)
    fields = take_fields(data, kinds, str(path), DamagedError, CHECKPOINT_SCHEMA)
    rows, payload = (FileSum.from_json(fields[name], str(path)) for name in ("rows", "payload"))
    if len(_MAGIC) + rows.length + payload.length + length + _TAIL != size:
        raise DamagedError(f"{path}: expected a whole checkpoint, got {size} bytes, which do not add up")
    file.seek(0)
    if file.read(len(_MAGIC)) != _MAGIC:
        raise DamagedError(f"{path}: expected a headway checkpoint, got something else")
    if fields["run_id"] != run_id:
        raise DamagedError(f"{path}: expected a checkpoint of run {run_id}, got one of run {fields['run_id']!r}")
    return _Footer(fields["step"], rows, payload)
