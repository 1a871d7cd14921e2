"""Manifests: which objects make up a run. Objects are written first and never changed; a manifest makes them count.

An attempt at a run writes its manifests in turn under two names of its own, so that a manifest that was cut short
leaves the one before it whole. Nobody else writes under these names: a process that lost its claim without noticing
cannot spoil what its successor writes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headway.errors import DamagedError
from headway.runs.checkpoints import SLOTS
from headway.runs.files import FileSum
from headway.runs.jsonable import check_schema, parse_object
from headway.runs.status import METRICS_FILE, State, Status, is_file_name

MANIFEST_SCHEMA = 1
NAME = re.compile(r"manifest\.([1-9][0-9]{0,8})-([0-9a-f]{16})\.([01])", re.ASCII)
_OBJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}@([1-9][0-9]{0,8})-[0-9a-f]{16}-[0-9]{1,12}", re.ASCII)


@dataclass(frozen=True)
class Holder:
    """An attempt at a run: the number of its claim, and a token that tells it apart from any other."""

    number: int
    token: str

    def object_name(self, file: str, count: int) -> str:
        """The name of the count-th object that it writes."""
        return f"{file}@{self.number}-{self.token}-{count}"

    def manifest_name(self, generation: int) -> str:
        """The name of one of its manifests."""
        return f"manifest.{self.number}-{self.token}.{generation % 2}"


@dataclass(frozen=True)
class Part:
    """A file of a run: the object that holds it, and its length and sum."""

    object: str
    sum: FileSum


@dataclass(frozen=True)
class Manifest:
    """The state of a run.

    Attributes:
        run_id: the run.
        holder: who wrote it.
        generation: how many manifests the holder had written.
        status: the run's status.
        files: its other files by name.
    """

    run_id: str
    holder: Holder
    generation: int
    status: Status
    files: Mapping[str, Part] = field(default_factory=dict)

    @property
    def is_done(self) -> bool:
        """Whether the run is done."""
        return self.status.state is State.DONE

    @property
    def order(self) -> tuple[bool, int, int]:
        """The greater counts: done before anything else, then the later claim, then the later manifest."""
        return self.is_done, self.holder.number, self.generation

    def to_bytes(self) -> bytes:
        """The content of an object: a SHA-256, and JSON that it belongs to."""
        files = {name: {"object": part.object, **vars(part.sum)} for name, part in self.files.items()}
        body = json.dumps(
            {
                "schema": MANIFEST_SCHEMA,
                "run_id": self.run_id,
                "number": self.holder.number,
                "token": self.holder.token,
                "generation": self.generation,
                "status": self.status.to_json(),
                "files": files,
            }
        ).encode()
        return hashlib.sha256(body).hexdigest().encode() + b"\n" + body

    @classmethod
    def from_bytes(cls, data: bytes, run_id: str, what: str) -> Manifest:
        """Read what `to_bytes` gives.

        Raises:
            DamagedError: it is something else, or of another run.
            NewerSchemaError: a newer version of headway wrote it.
        """
        digest, _, body = data.partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != digest:
            raise DamagedError(f"{what}: expected a whole manifest, got {len(data)} bytes that do not add up")
        fields = parse_object(body, what, DamagedError)
        check_schema(fields, MANIFEST_SCHEMA, what, DamagedError)
        number, generation, token = fields.get("number"), fields.get("generation"), fields.get("token")
        files, status = fields.get("files"), fields.get("status")
        is_whole = isinstance(number, int) and isinstance(generation, int) and isinstance(token, str)
        if not (is_whole and isinstance(files, dict) and isinstance(status, str)):
            raise DamagedError(f"{what}: expected the fields of a manifest, got others")
        if fields.get("run_id") != run_id:
            raise DamagedError(
                f"{what}: expected a manifest of run {run_id}, got one of {str(fields.get('run_id'))[:40]!r}"
            )
        parts = {str(name): _part(name, value, what) for name, value in files.items()}
        holder = Holder(int(fields["number"]), str(token))
        return cls(run_id, holder, int(fields["generation"]), Status.from_json(status, f"{what}: status"), parts)


def attempt_of(name: str) -> int:
    """The number of the attempt that wrote a manifest or an object of this name; 0 for names of another kind."""
    match = NAME.fullmatch(name) or _OBJECT.fullmatch(name)
    return int(match[1]) if match else 0


def _part(name: str, value: Any, what: str) -> Part:
    if name not in (METRICS_FILE, *SLOTS) and not is_file_name(name):
        raise DamagedError(f"{what}: expected names of files that a run writes, got {name[:40]!r}")
    named = value.get("object") if isinstance(value, dict) else None
    if not isinstance(named, str) or not _OBJECT.fullmatch(named) or named.partition("@")[0] != name:
        raise DamagedError(f"{what}: expected the object of {name[:40]!r}, got {str(named)[:40]!r}")
    return Part(named, FileSum.from_json(value, what))


def newest(manifests: Iterable[Manifest], objects: Mapping[str, int]) -> Manifest | None:
    """The manifest that counts: the greatest whose objects are all there, or else the greatest of a run not done.

    Objects that are missing were damaged since: a run that was done has to be run again, one that was under way goes
    on with what there is.
    """
    found = sorted(manifests, key=lambda manifest: manifest.order, reverse=True)
    whole = [manifest for manifest in found if not missing(manifest, objects)]
    under_way = [manifest for manifest in found if not manifest.is_done]
    return next(iter(whole or under_way), None)


def missing(manifest: Manifest, objects: Mapping[str, int]) -> list[str]:
    """The files of a manifest whose objects are not there, or not with their full length."""
    return [name for name, part in manifest.files.items() if objects.get(part.object) != part.sum.length]
