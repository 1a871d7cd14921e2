"""Manifests: which objects make up a run. Objects are written first and never changed; a manifest makes them count.

An attempt at a run writes its manifests in turn under two names of its own, so that a manifest that was cut short
leaves the one before it whole. Nobody else writes under these names: a process that lost its lock without noticing
cannot spoil what its successor writes.

Two more objects settle what a stalled process may still do. ``end.<n>-<token>`` is created exclusively, either by the
attempt before it says that the run is done, or by a successor before it removes what that attempt has written: whoever
comes second gives way. ``reset.<n>`` says that manifests of attempts before the n-th do not count any more.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.errors import DamagedError, LockLostError, StoreError
from headway.runs.bucket import Bucket
from headway.runs.checkpoints import SLOTS
from headway.runs.files import FileSum
from headway.runs.folder import read_status
from headway.runs.jsonable import INTEGER, MAPPING, TEXT, parse_object, take_fields
from headway.runs.status import METRICS_FILE, State, Status, is_file_name
from headway.runs.url_locks import Holder, UrlLock

MANIFEST_SCHEMA = 1
_CHUNK = 1 << 20
NAME = re.compile(r"manifest\.([1-9][0-9]{0,8})-([0-9a-f]{16})\.([01])", re.ASCII)
_END = re.compile(r"end\.([1-9][0-9]{0,8})-([0-9a-f]{16})", re.ASCII)
_RESET = re.compile(r"reset\.([1-9][0-9]{0,8})", re.ASCII)
_OBJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}@([1-9][0-9]{0,8})-([0-9a-f]{16})-[0-9]{1,12}", re.ASCII)


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
        """The greater counts: done before anything else, then the later lock, then the later manifest."""
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
        """Read what `to_bytes` gives."""
        digest, _, body = data.partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != digest:
            raise DamagedError(f"{what}: expected a whole manifest, got {len(data)} bytes that do not add up")
        fields = take_fields(parse_object(body, what, DamagedError), _KINDS, what, DamagedError, MANIFEST_SCHEMA)
        if fields["run_id"] != run_id:
            raise DamagedError(f"{what}: expected a manifest of run {run_id}, got one of {fields['run_id'][:40]!r}")
        parts = {name: _part(name, value, what) for name, value in fields["files"].items()}
        status = Status.from_json(fields["status"], f"{what}: status")
        return cls(run_id, Holder(fields["number"], fields["token"]), fields["generation"], status, parts)


_KINDS = {
    "run_id": TEXT,
    "number": INTEGER,
    "token": TEXT,
    "generation": INTEGER,
    "status": TEXT,
    "files": MAPPING,
}


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


class Publisher:
    """Writes a run's working copy behind the URL: the objects, then the manifest; then removes what is superfluous."""

    def __init__(self, bucket: Bucket, run_id: str, folder: Path, lock: UrlLock) -> None:
        self._bucket = bucket
        self._run_id = run_id
        self._folder = folder
        self._lock = lock
        self._generation = 0
        self._objects = 0
        self._written: dict[str, tuple[Part, tuple[int, int, int]]] = {}

    def __call__(self, with_checkpoints: bool) -> None:
        """Make the working copy's state the one that counts."""
        lock = self._lock
        lock.verify()
        status = read_status(self._folder, self._run_id)
        assert status is not None  # the run has begun
        slots = [slot for slot in SLOTS if (self._folder / slot).is_file()] if with_checkpoints else []
        before = {part.object for part, _ in self._written.values()}
        self._written = {name: self._part(name) for name in (*status.files, *slots)}
        files = {name: part for name, (part, _) in self._written.items()}
        self._generation += 1
        manifest = Manifest(self._run_id, lock.holder, self._generation, status, files)
        lock.verify()
        if manifest.is_done and not self._bucket.create(f"{self._run_id}/{lock.holder.end_name}", lock.holder.end_mark):
            raise LockLostError(
                f"expected to end {self._run_id} in {self._bucket.url}, got shut out by another process, which goes "
                "on with the run; nothing of it is lost"
            )
        # from here on no successor removes what an attempt that ends the run has written
        self._bucket.put(f"{self._run_id}/{lock.holder.manifest_name(self._generation)}", manifest.to_bytes())
        with contextlib.suppress(StoreError):  # it only takes up room
            self._tidy(manifest, before)

    def _part(self, name: str) -> tuple[Part, tuple[int, int, int]]:
        """Write a file, unless that was done before."""
        path = self._folder / name
        info = path.stat()
        state = (info.st_mtime_ns, info.st_size, info.st_ino)
        known = self._written.get(name)
        if known and known[1] == state:
            return known
        self._objects += 1
        part = Part(self._lock.holder.object_name(name, self._objects), _sum_of(path))
        self._bucket.put_file(f"{self._run_id}/{part.object}", path)
        return part, state

    def _tidy(self, manifest: Manifest, before: set[str]) -> None:
        """Remove what this attempt has replaced; at first and at the end also what attempts before it have left."""
        needed = {part.object for part in manifest.files.values()}
        if replaced := sorted(before - needed):
            # The other of the two manifests may still name what was replaced; it must not seem whole.
            other = manifest.holder.manifest_name(manifest.generation + 1)
            self._bucket.remove([f"{self._run_id}/{name}" for name in (other, *replaced)])
        if manifest.generation > 1 and not manifest.is_done:
            return
        names = list(self._bucket.names_in(self._run_id))
        # Only what earlier attempts have left: a later one may have taken the run over since this one looked.
        owners = {holder for name in names if (holder := attempt_of(name)) and holder.number < manifest.holder.number}
        lost = {holder for holder in owners if manifest.is_done or self._shuts_out(holder, manifest.holder)}
        kept = needed | self._of_done(names)
        if not manifest.is_done:
            kept |= {holder.end_name for holder in lost}
        earlier = [name for name in names if attempt_of(name) in lost and name not in kept]
        manifests_first = sorted(earlier, key=lambda name: not NAME.fullmatch(name))
        self._bucket.remove([f"{self._run_id}/{name}" for name in manifests_first])

    def _shuts_out(self, holder: Holder, by: Holder) -> bool:
        """Keep an earlier attempt from ending the run; False if it is about to."""
        name = f"{self._run_id}/{holder.end_name}"
        return (
            self._bucket.create(name, f"shut out by the attempt {by.number}-{by.token}".encode())
            or self._bucket.get(name) != holder.end_mark
        )

    def _of_done(self, names: list[str]) -> set[str]:
        """The names that belong to manifests of others which say that the run is done: those are left alone."""
        kept: set[str] = set()
        for name in filter(NAME.fullmatch, names):
            with contextlib.suppress(StoreError):
                data = self._bucket.get(f"{self._run_id}/{name}")
                other = Manifest.from_bytes(data or b"", self._run_id, name)
                if other.is_done:
                    kept |= {name, *(part.object for part in other.files.values())}
        return kept


def _sum_of(path: Path) -> FileSum:
    """The sum of a file, read piece by piece."""
    digest, length = hashlib.sha256(), 0
    with path.open("rb") as file:
        while piece := file.read(_CHUNK):
            digest.update(piece)
            length += len(piece)
    return FileSum(length, digest.hexdigest())
