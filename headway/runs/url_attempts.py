"""Attempts at runs behind a URL: the lock that each has, and the manifests that say which objects make up the run.

There are no links and no times of change here. A lock is created exclusively where the store can do that; its holder
rewrites it with a count that goes up, and whoever waits looks for a change of that count.

Objects are written first and never changed; a manifest makes them count. An attempt at a run writes its manifests in
turn under two names of its own, so that a manifest that was cut short leaves the one before it whole. Nobody else
writes under these names: a process that lost its lock without noticing cannot spoil what its successor writes.

Two more objects settle what a stalled process may still do. ``end.<n>-<token>`` is created exclusively, either by the
attempt before it says that the run is done, or by a successor before it removes what that attempt has written: whoever
comes second gives way. ``reset.<n>`` says that manifests of attempts before the n-th do not count any more.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from headway.errors import DamagedError, LockLostError, StoreError
from headway.runs.bucket import Bucket
from headway.runs.checkpoints import SLOTS
from headway.runs.files import FileSum
from headway.runs.folder import read_status
from headway.runs.jsonable import parse_object, read_record
from headway.runs.locks import LeaseWatch, Lock, Owner, SeenLock, is_over, newest_number
from headway.runs.status import METRICS_FILE, State, Status, is_file_name

MANIFEST_SCHEMA = 1
_CHUNK = 1 << 20
NAME = re.compile(r"manifest\.([1-9][0-9]{0,8})-([0-9a-f]{16})\.([01])", re.ASCII)
_END = re.compile(r"end\.([1-9][0-9]{0,8})-([0-9a-f]{16})", re.ASCII)
_RESET = re.compile(r"reset\.([1-9][0-9]{0,8})", re.ASCII)
_OBJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}@([1-9][0-9]{0,8})-([0-9a-f]{16})-[0-9]{1,12}", re.ASCII)


@dataclass(frozen=True)
class Holder:
    """An attempt at a run: the number of its lock, and a token that tells it apart from any other."""

    number: int
    token: str

    @property
    def lock_name(self) -> str:
        """The name of its lock."""
        return f"claim.{self.number}"

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


class UrlLock(Lock):
    """A lock that this process has just created."""

    def __init__(
        self,
        objects: Bucket,
        holder: Holder,
        lease: float,
        staging: Path,
        ended: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(holder.number, lease, staging, f"{objects.url}/{holder.lock_name}")
        self.holder = holder
        self._objects = objects
        self._lease = lease
        self._ended = ended
        self._count = 0
        # where objects are not replaced in one step, a look would see half a sign of life
        self._access = threading.RLock()
        self._thread.start()

    def verify(self) -> None:
        """Look whether the run is still this process's; `check` knows only what the last sign of life has shown."""
        with self._access:
            number, data = _newest_lock(self._objects)
        if number != self.number or _fields(data).get("token") != self.holder.token:
            self._lost = True
        self.check()

    def beat(self) -> None:
        """Show a sign of life."""
        try:
            with self._access:
                self.verify()
                self._count += 1
                self._write()
        except LockLostError:
            raise
        except StoreError:
            pass  # the store may be away for a moment

    def _give_back(self) -> None:
        with contextlib.suppress(StoreError):
            if not self._lost:
                self._write(is_released=True)
        self._ended()

    def _write(self, is_released: bool = False) -> None:
        self._objects.put(self.holder.lock_name, _content(self.holder, self._lease, self._count, is_released))


def try_lock(objects: Bucket, watch: LeaseWatch, lease: float) -> Holder | None:
    """Create the next lock on a run if its newest is over; None when another process holds it."""
    number, data = _newest_lock(objects)
    if number and not is_over(f"{objects.url}/claim.{number}", parse_lock(data), watch):
        return None
    holder = Holder(number + 1, secrets.token_hex(8))
    if not objects.create(holder.lock_name, _content(holder, lease, 0)):
        return None
    if _newest_lock(objects)[0] != holder.number:
        objects.remove([holder.lock_name])  # we were so slow that our number had come and gone
        return None
    if number:
        with contextlib.suppress(StoreError):
            objects.remove([f"claim.{number}"])
    return holder


def look(objects: Bucket) -> SeenLock | None:
    """The newest lock on a run; None when there is none."""
    number, data = _newest_lock(objects)
    return parse_lock(data) if number else None


def parse_lock(data: bytes | None) -> SeenLock:
    """A lock as its content shows it."""
    fields = _fields(data)
    count = fields.get("count")
    beat = (count if isinstance(count, int) else 0, len(data or b""), hash(str(fields.get("token"))))
    try:
        return SeenLock(Owner.from_dict(fields), fields.get("released") is True, beat)
    except StoreError:
        return SeenLock(None, False, (0, len(data or b""), 0))


def _newest_lock(objects: Bucket) -> tuple[int, bytes | None]:
    number = newest_number(objects.names())
    return number, objects.get(f"claim.{number}") if number else None


def _content(holder: Holder, lease: float, count: int, is_released: bool = False) -> bytes:
    fields = {**Owner.this_process(lease).to_dict(), "token": holder.token, "count": count, "released": is_released}
    return json.dumps(fields).encode()


def _fields(data: bytes | None) -> dict[str, Any]:
    """What a lock says; nothing if it cannot be read."""
    try:
        return parse_object(data or b"", "lock", StoreError)
    except StoreError:
        return {}


@dataclass(frozen=True)
class Part(FileSum):
    """A file of a run: its length and sum, and the object that holds it."""

    object: str


@dataclass(frozen=True)
class Manifest:
    """The state of a run: its status and its other files by name, and the attempt that wrote it.

    The generation counts the manifests of an attempt.
    """

    run_id: str
    number: int
    token: str
    generation: int
    status: Status
    files: Mapping[str, Part] = field(default_factory=dict)

    @property
    def holder(self) -> Holder:
        """Who wrote it."""
        return Holder(self.number, self.token)

    @property
    def is_done(self) -> bool:
        """Whether the run is done."""
        return self.status.state is State.DONE

    def is_whole(self, objects: Mapping[str, int]) -> bool:
        """Whether all of its objects are there with their full lengths."""
        return all(objects.get(part.object) == part.length for part in self.files.values())

    @property
    def order(self) -> tuple[bool, int, int]:
        """The greater counts: done before anything else, then the later lock, then the later manifest."""
        return self.is_done, self.holder.number, self.generation

    def to_bytes(self) -> bytes:
        """The content of an object: a SHA-256, and JSON that it belongs to."""
        files = {name: vars(part) for name, part in self.files.items()}
        data = {"schema": MANIFEST_SCHEMA, **vars(self), "status": self.status.to_json(), "files": files}
        body = json.dumps(data).encode()
        return hashlib.sha256(body).hexdigest().encode() + b"\n" + body

    @classmethod
    def from_bytes(cls, data: bytes, run_id: str, what: str) -> Manifest:
        """Read what `to_bytes` gives."""
        digest, _, body = data.partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != digest:
            raise DamagedError(f"{what}: expected a whole manifest, got {len(data)} bytes that do not add up")
        status = partial(Status.from_json, what=f"{what}: status")
        manifest = read_record(
            cls, parse_object(body, what, DamagedError), what, DamagedError, MANIFEST_SCHEMA, status=status
        )
        if manifest.run_id != run_id:
            raise DamagedError(f"{what}: expected a manifest of run {run_id}, got one of {manifest.run_id[:40]!r}")
        for name, part in manifest.files.items():
            if name not in (METRICS_FILE, *SLOTS) and not is_file_name(name):
                raise DamagedError(f"{what}: expected names of files that a run writes, got {name[:40]!r}")
            if not _OBJECT.fullmatch(part.object) or part.object.partition("@")[0] != name:
                raise DamagedError(f"{what}: expected the object of {name[:40]!r}, got {part.object[:40]!r}")
        return manifest


def attempt_of(name: str) -> Holder | None:
    """The attempt that a manifest or an object of this name belongs to; None for names of another kind."""
    match = NAME.fullmatch(name) or _OBJECT.fullmatch(name) or _END.fullmatch(name)
    return Holder(int(match[1]), match[2]) if match else None


def manifest_names(names: Iterable[str]) -> list[str]:
    """The manifests that count among the names of a run's objects."""
    names = list(names)
    first = max((int(match[1]) for match in map(_RESET.fullmatch, names) if match), default=0)
    return [name for name in names if (match := NAME.fullmatch(name)) and int(match[1]) >= first]


def manifests_first(names: Iterable[str]) -> list[str]:
    """The order in which objects are removed, so that no manifest names what is gone."""
    return sorted(names, key=lambda name: not NAME.fullmatch(name))


def superfluous(manifest: Manifest, names: Iterable[str]) -> list[str]:
    """What attempts up to that of a done run's manifest have left beside what it needs."""
    own = manifest.holder
    kept = {own.manifest_name(manifest.generation), own.end_name, *(part.object for part in manifest.files.values())}
    owned = ((name, attempt_of(name)) for name in names if name not in kept)
    return [name for name, holder in owned if holder and holder.number <= own.number]


def newest(manifests: Iterable[Manifest], objects: Mapping[str, int]) -> Manifest | None:
    """The manifest that counts: the greatest whose objects are all there, or else the greatest of a run not done.

    Objects that are missing were damaged since: a run that was done has to be run again, one that was under way goes
    on with what there is.
    """
    found = sorted(manifests, key=lambda manifest: manifest.order, reverse=True)
    whole = [manifest for manifest in found if manifest.is_whole(objects)]
    under_way = [manifest for manifest in found if not manifest.is_done]
    return next(iter(whole or under_way), None)


class Publisher:
    """Writes a run's working copy behind the URL: the objects, then the manifest; then removes what is superfluous."""

    def __init__(self, objects: Bucket, run_id: str, folder: Path, lock: UrlLock) -> None:
        self._objects = objects
        self._run_id = run_id
        self._folder = folder
        self._lock = lock
        self._holder = lock.holder
        self._generation = 0
        self._count = 0
        self._written: dict[str, tuple[Part, tuple[int, int, int]]] = {}

    def __call__(self, with_checkpoints: bool) -> None:
        """Make the working copy's state the one that counts."""
        self._lock.verify()
        status = read_status(self._folder, self._run_id)
        assert status is not None  # the run has begun
        slots = [slot for slot in SLOTS if (self._folder / slot).is_file()] if with_checkpoints else []
        before = {part.object for part, _ in self._written.values()}
        self._written = {name: self._part(name) for name in (*status.files, *slots)}
        files = {name: part for name, (part, _) in self._written.items()}
        self._generation += 1
        manifest = Manifest(self._run_id, **vars(self._holder), generation=self._generation, status=status, files=files)
        self._lock.verify()
        if manifest.is_done and not self._objects.create(self._holder.end_name, self._holder.end_mark):
            raise LockLostError(
                f"expected to end {self._objects.url}, got shut out by another process, which goes on with the run; "
                "nothing of it is lost"
            )
        # from here on no successor removes what an attempt that ends the run has written
        self._objects.put(self._holder.manifest_name(self._generation), manifest.to_bytes())
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
        self._count += 1
        part = Part(**vars(_sum_of(path)), object=self._holder.object_name(name, self._count))
        self._objects.put_file(part.object, path)
        return part, state

    def _tidy(self, manifest: Manifest, before: set[str]) -> None:
        """Remove what this attempt has replaced; at first and at the end also what attempts before it have left."""
        needed = {part.object for part in manifest.files.values()}
        if replaced := sorted(before - needed):
            # The other of the two manifests may still name what was replaced; it must not seem whole.
            self._objects.remove([self._holder.manifest_name(manifest.generation + 1), *replaced])
        if manifest.generation > 1 and not manifest.is_done:
            return
        names = list(self._objects.names())
        # Only what earlier attempts have left: a later one may have taken the run over since this one looked.
        owners = {holder for name in names if (holder := attempt_of(name)) and holder.number < manifest.number}
        lost = {holder for holder in owners if manifest.is_done or self._shuts_out(holder)}
        kept = needed | self._of_done(names)
        if not manifest.is_done:
            kept |= {holder.end_name for holder in lost}
        self._objects.remove(manifests_first(name for name in names if attempt_of(name) in lost and name not in kept))

    def _shuts_out(self, holder: Holder) -> bool:
        """Keep an earlier attempt from ending the run; False if it is about to."""
        mark = f"shut out by the attempt {self._holder.number}-{self._holder.token}".encode()
        return self._objects.create(holder.end_name, mark) or self._objects.get(holder.end_name) != holder.end_mark

    def _of_done(self, names: list[str]) -> set[str]:
        """The names that belong to manifests of others which say that the run is done: those are left alone."""
        kept: set[str] = set()
        for name in filter(NAME.fullmatch, names):
            with contextlib.suppress(StoreError):
                other = Manifest.from_bytes(self._objects.get(name) or b"", self._run_id, name)
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
