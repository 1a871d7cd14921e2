"""Manifests: which objects make up a run. Objects are written first and never changed; a manifest makes them count.

An attempt at a run writes its manifests in turn under two names of its own, so that a manifest that was cut short
leaves the one before it whole. Nobody else writes under these names: a process that lost its claim without noticing
cannot spoil what its successor writes.

Two more objects settle what a stalled process may still do. ``end.<n>-<token>`` is created exclusively, either by the
attempt before it says that the run is done, or by a successor before it removes what that attempt has written: whoever
comes second gives way. ``reset.<n>`` says that manifests of attempts before the n-th do not count any more.
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
_END = re.compile(r"end\.([1-9][0-9]{0,8})-([0-9a-f]{16})", re.ASCII)
_RESET = re.compile(r"reset\.([1-9][0-9]{0,8})", re.ASCII)
_OBJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}@([1-9][0-9]{0,8})-([0-9a-f]{16})-[0-9]{1,12}", re.ASCII)


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

    @property
    def end_name(self) -> str:
        """The name of the object that settles whether it may still end the run."""
        return f"end.{self.number}-{self.token}"

    @property
    def end_mark(self) -> bytes:
        """The content of that object if it may."""
        return f"the attempt {self.number}-{self.token} ends the run".encode()


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


def attempt_of(name: str) -> Holder | None:
    """The attempt that a manifest or an object of this name belongs to; None for names of another kind."""
    match = NAME.fullmatch(name) or _OBJECT.fullmatch(name) or _END.fullmatch(name)
    return Holder(int(match[1]), match[2]) if match else None


def reset_name(number: int) -> str:
    """The object that says that manifests of attempts before this one do not count."""
    return f"reset.{number}"


def manifest_names(names: Iterable[str]) -> list[str]:
    """The manifests that count among the names of a run's objects."""
    names = list(names)
    first = max((int(match[1]) for match in map(_RESET.fullmatch, names) if match), default=0)
    return [name for name in names if (match := NAME.fullmatch(name)) and int(match[1]) >= first]


def superfluous(manifest: Manifest, names: Iterable[str]) -> list[str]:
    """What attempts up to that of a done run's manifest have left beside what it needs."""
    own = manifest.holder
    kept = {own.manifest_name(manifest.generation), own.end_name, *(part.object for part in manifest.files.values())}
    owned = ((name, attempt_of(name)) for name in names if name not in kept)
    return [name for name, holder in owned if holder and holder.number <= own.number]


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
