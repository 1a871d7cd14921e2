"""`UrlStorage`: runs behind a URL, with a working copy of each run under way on the local disk.

::

    store.json                          the version of the store
    <run_id>/spec.json                  what the run is
             claim.<n>                  the lock: who holds it
             <file>@<n>-<token>-<k>     a file that the n-th attempt wrote, never changed
             manifest.<n>-<token>.0, .1 which of them count, and the run's status
             end.<n>-<token>, reset.<n> what attempts that were stalled may not do any more

Object stores cannot rename, and some give no promise on two writers of one object. So an attempt writes new objects,
each under a name of its own, and then a manifest that names them. Killed at any instant it leaves the manifest before,
whose objects are removed only after the new one is there. Attempts share no name but that of the lock, which is
created exclusively where the store can; where it cannot, two processes may work on one run for a moment, both get the
same numbers, and neither spoils what the other writes.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from headway.errors import DamagedError, SpecError, StoreError, UsageError
from headway.runs import url_attempts
from headway.runs.bucket import Bucket
from headway.runs.checkpoints import CheckpointFound, find_newest
from headway.runs.files import FileSum, disk_errors, read_bytes, write_bytes
from headway.runs.folder import read_status
from headway.runs.jsonable import MAX_BYTES, parse_object
from headway.runs.locks import LeaseWatch, Lock, Owner, SeenLock, newest_number
from headway.runs.run import WorkingCopy
from headway.runs.spec import RunSpec
from headway.runs.status import (
    METRICS_FILE,
    RUN_ID,
    SPEC_FILE,
    STATUS_FILE,
    STORE_FILE,
    VERSION,
    RunRecord,
    State,
    Status,
    parse_spec,
    unknown_run,
)
from headway.runs.url_attempts import (
    Manifest,
    Publisher,
    UrlLock,
    attempt_of,
    manifest_names,
    manifests_first,
    newest,
    superfluous,
)

if TYPE_CHECKING:
    from headway.runs.store import RunStore

MOST_LOOKS = 5
"""How often a run is looked at again whose objects were replaced in the meantime."""
OWNER_FILE = "owner.json"
FETCHED_FILE = ".fetched.json"
"""The status that a run was copied with: another one beside it was written here."""


class UrlStorage:
    """Keeps runs behind a URL."""

    def __init__(self, url: str) -> None:
        self.bucket = Bucket(url)
        self._workdir: Path | None = None
        self._untidy: set[str] = set()

    def __reduce__(self) -> tuple[type[UrlStorage], tuple[str]]:
        """Pickle the URL; every process has working copies of its own."""
        return UrlStorage, (self.bucket.url,)

    @property
    def place(self) -> str:
        """The URL."""
        return self.bucket.url

    def read_version(self) -> bytes | None:
        """Return the content of store.json; None when there is no store."""
        return self.bucket.get(STORE_FILE)

    def make(self) -> None:
        """Make a store unless it is there."""
        if self.read_version() is None:
            self.bucket.put(STORE_FILE, VERSION)

    def add(self, specs: Sequence[RunSpec]) -> None:
        """Add runs that are not there, or not in full length."""
        known = self._names([spec.run_id for spec in specs])
        texts = {f"{spec.run_id}/{SPEC_FILE}": spec.to_json().encode() for spec in specs}
        self.bucket.put_all({name: text for name, text in texts.items() if known.get(name) != len(text)})

    def has(self, run_id: str) -> bool:
        """Tell whether a run was added."""
        return self.bucket.get(f"{run_id}/{SPEC_FILE}") is not None

    def _names(self, run_ids: Sequence[str]) -> dict[str, int]:
        """The objects of some runs, and perhaps of others besides."""
        if len(run_ids) != 1:
            return self.bucket.names() if run_ids else {}
        return {f"{run_ids[0]}/{name}": length for name, length in self.bucket.folder(run_ids[0]).names().items()}

    def records(self, run_ids: Iterable[str] | None = None) -> list[RunRecord]:
        """Return some runs, in the given order, or all."""
        if run_ids is None:
            return self._records(self.bucket.names())
        wanted = list(run_ids)
        found = {record.run_id: record for record in self._records(self._names(wanted), set(wanted))}
        for run_id in wanted:
            if run_id not in found:
                raise unknown_run(self.place, run_id)
        return [found[run_id] for run_id in wanted]

    def status(self, run_id: str) -> Status | None:
        """Return what a run last wrote; None when it never started."""
        manifest = self._manifest(run_id)
        if manifest is None:
            self._check_known(run_id)
        return manifest.status if manifest else None

    def has_metrics(self, run_id: str, status: Status) -> bool:
        """Tell whether the metrics of a run that is done are there: a manifest without its objects does not count."""
        return METRICS_FILE in status.files

    def try_lock(self, run_id: str, watch: LeaseWatch, lease: float) -> Lock | None:
        """Lock a run unless another process holds it."""
        self._check_known(run_id)
        workdir = self._work()  # before the lock: it may not be possible
        objects = self.bucket.folder(run_id)
        holder = url_attempts.try_lock(objects, watch, lease)
        if holder is None:
            return None
        folder = workdir / f"{run_id}-{holder.token}"
        return UrlLock(objects, holder, lease, folder, partial(self._dispose, folder))

    def look(self, run_id: str) -> SeenLock | None:
        """Return a run's newest lock as it is now."""
        return url_attempts.look(self.bucket.folder(run_id))

    def check_out(self, spec: RunSpec, lock: Lock) -> WorkingCopy:
        """Bring a working copy of a run to this machine; what is written there counts once it is published."""
        assert isinstance(lock, UrlLock)
        folder = lock.staging
        with disk_errors("make", folder):
            folder.mkdir(mode=0o700)
        status, gone = self.bring(spec.run_id, folder)
        write_bytes(folder / SPEC_FILE, spec.to_json().encode())
        note = f"expected the objects of {', '.join(gone)}, got none: the run goes on without" if gone else ""
        if status:
            status = replace(status, files={name: own for name, own in status.files.items() if name not in gone})
        return WorkingCopy(folder, status, note, Publisher(self.bucket.folder(spec.run_id), spec.run_id, folder, lock))

    def read(self, run_id: str, name: str, limit: int | None) -> tuple[Status | None, bytes | None]:
        """Return the status of a run and the content of a file that it names; None when there is no such object."""
        status, data = None, None
        for _ in range(MOST_LOOKS):
            manifest = self._manifest(run_id)
            if manifest is None or name not in manifest.status.files:
                return (manifest.status if manifest else None), None
            status, part = manifest.status, manifest.files.get(name)
            if limit is not None and status.files[name].length > limit:
                raise DamagedError(f"{self.place}/{run_id}/{name}: expected at most {limit} bytes, got more")
            data = self.bucket.get(f"{run_id}/{part.object}") if part else None
            if data is not None and FileSum.of(data) == status.files[name]:
                break
        return status, data

    def newest_checkpoint(
        self, run_id: str, with_payload: bool = True
    ) -> tuple[CheckpointFound | None, tuple[str, ...]]:
        """Return the newest whole checkpoint, and what is wrong with the others."""
        with tempfile.TemporaryDirectory(dir=self._work()) as folder:
            self.bring(run_id, Path(folder))
            return find_newest(Path(folder), run_id, with_payload=with_payload)

    def reset(self, run_id: str, lock: Lock) -> None:
        """Forget everything about a run but its spec."""
        objects = self.bucket.folder(run_id)
        objects.put(f"reset.{lock.number}", b"")  # manifests of attempts before this one do not count
        objects.remove(manifests_first(filter(attempt_of, objects.names())))

    def tidy(self, run_id: str, try_lock: Callable[[], Lock | None]) -> None:
        """Remove what a process left that was killed when its run was done but its checkpoints not yet removed."""
        if run_id in self._untidy:
            self._untidy.discard(run_id)
            objects = self.bucket.folder(run_id)
            names, manifest = objects.names(), self._manifest(run_id)
            if manifest and manifest.is_done:
                objects.remove(superfluous(manifest, names))

    def _check_known(self, run_id: str) -> None:
        if not RUN_ID.fullmatch(run_id) or not self.has(run_id):
            raise unknown_run(self.place, run_id)

    def _manifest(self, run_id: str) -> Manifest | None:
        """The manifest that counts; None when the run has stored nothing yet."""
        objects = self.bucket.folder(run_id)
        names = objects.names()
        return self._newest(run_id, objects.get_all(manifest_names(names)), names)

    def _newest(self, run_id: str, data: Mapping[str, bytes], names: Mapping[str, int]) -> Manifest | None:
        manifests = []
        for name, content in data.items():
            with contextlib.suppress(DamagedError):  # cut short; its twin is whole
                manifests.append(Manifest.from_bytes(content, run_id, f"{self.place}/{run_id}/{name}"))
        return newest(manifests, names)

    def bring(self, run_id: str, folder: Path) -> tuple[Status | None, list[str]]:
        """Copy all that a run has stored into a folder; return the status that goes with it, and which files are gone.

        It looks again if some were replaced meanwhile. Nothing is checked: whoever reads the files compares them with
        their sums, and passes over what is damaged.
        """
        objects = self.bucket.folder(run_id)
        before, manifest = None, self._manifest(run_id)
        gone: list[str] = []
        while manifest is not None and manifest != before:
            parts = manifest.files.items()
            gone = [name for name, part in parts if not objects.get_file(part.object, folder / name)]
            if not gone:
                break
            before, manifest = manifest, self._manifest(run_id)
        return (manifest.status, gone) if manifest else (None, [])

    def _records(self, names: Mapping[str, int], wanted: set[str] | None = None) -> list[RunRecord]:
        """Records of all runs among the names of objects, read at once."""
        runs: dict[str, dict[str, int]] = {}
        for name, length in names.items():
            run_id, _, own = name.partition("/")
            if RUN_ID.fullmatch(run_id) and (wanted is None or run_id in wanted):
                runs.setdefault(run_id, {})[own] = length
        read = self.bucket.get_all([f"{run_id}/{name}" for run_id, own in runs.items() for name in _telling(own)])
        data: dict[str, dict[str, bytes]] = {run_id: {} for run_id in runs}
        for name, content in read.items():
            run_id, _, own = name.partition("/")
            data[run_id][own] = content
        return [self._record(run_id, own, data[run_id]) for run_id, own in runs.items()]

    def _record(self, run_id: str, names: Mapping[str, int], data: Mapping[str, bytes]) -> RunRecord:
        spec = None
        try:
            spec = parse_spec(data.get(SPEC_FILE), run_id, f"{self.place}/{run_id}/{SPEC_FILE}")
            manifests = {name: data[name] for name in manifest_names(names) if name in data}
            manifest = self._newest(run_id, manifests, names)
            if manifest is None and manifests:
                raise DamagedError(f"{self.place}/{run_id}: expected the objects of its manifest, got some of them")
        except (SpecError, StoreError) as error:
            return RunRecord(run_id, State.CORRUPT, spec, reason=str(error))
        status = manifest.status if manifest else None
        if manifest and manifest.is_done and superfluous(manifest, names):
            self._untidy.add(run_id)
        if status and status.state is not State.RUNNING:
            return RunRecord(run_id, status.state, spec, status)
        number = newest_number(names)
        seen = url_attempts.parse_lock(data.get(f"claim.{number}"))
        if number > 0 and not seen.released and seen.is_alive() is not False:
            return RunRecord(run_id, State.RUNNING, spec, status)
        return RunRecord(run_id, State.INTERRUPTED if status else State.PENDING, spec, status)

    def _work(self) -> Path:
        """Where the working copies of this process are; removed with this object."""
        if self._workdir is None:
            self._workdir = make_workdir()
            weakref.finalize(self, shutil.rmtree, self._workdir, ignore_errors=True)
        return self._workdir

    def _dispose(self, folder: Path) -> None:
        """Remove a working copy; a method, so that whoever is to call it keeps this object, and with it the folder."""
        shutil.rmtree(folder, ignore_errors=True)


def _telling(names: Iterable[str]) -> list[str]:
    """The objects of a run that say where it stands."""
    names = list(names)
    number = newest_number(names)
    return [name for name in names if name in (SPEC_FILE, f"claim.{number}")] + manifest_names(names)


def make_workdir() -> Path:
    """Make a temporary folder of this process's own, and remove those of this user's processes that are gone."""
    # the user's number, since in a container the user may have no name
    prefix = f"headway-{os.getuid() if hasattr(os, 'getuid') else getpass.getuser()}-"
    with disk_errors("make", "a folder for working copies; set TMPDIR to one that is writable"):
        for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
            with contextlib.suppress(OSError, StoreError):  # being made, or being removed by somebody else
                owner = Owner.from_dict(
                    parse_object(read_bytes(folder / OWNER_FILE, MAX_BYTES) or b"", OWNER_FILE, StoreError)
                )
                if owner.is_alive() is False:
                    shutil.rmtree(folder, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=prefix))
        try:
            (folder / OWNER_FILE).write_text(json.dumps(Owner.this_process(1.0).to_dict()))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    return folder


def fetch(
    remote: RunStore, local: RunStore, report: Callable[[RunRecord, bool], object] = lambda record, is_new: None
) -> int:
    """Copy the runs that are new or have changed; return how many.

    A run appears in the folder only with all of its files. Checkpoints of runs that are not done come along, so that
    a run can be resumed from the copy. One that was, and has come as far here, is left alone.
    """
    if not isinstance(remote.storage, UrlStorage):
        raise UsageError(f"expected a run store behind a URL, got {remote.place}, which can be used as it is")
    records = [record for record in remote.status() if record.state is not State.CORRUPT]
    local.add_all(record.spec for record in records if record.spec)
    copied = 0
    for record in records:
        is_new = record.status is not None and _is_wanted(local, record.run_id, record.status)
        if is_new:
            is_new = _copy(remote.storage, local, record.run_id)
            copied += is_new
        report(record, is_new)
    return copied


def _is_wanted(local: RunStore, run_id: str, theirs: Status) -> bool:
    """Tell whether a run's copy is to be replaced."""
    folder = local.folder(run_id)
    try:
        ours = read_status(folder, run_id)
    except DamagedError:
        return True
    if ours is None:
        return True
    has_metrics = ours.state is State.DONE and local.has_metrics(local.record(run_id))
    if ours == theirs:
        is_whole = all((folder / name).is_file() for name in ours.files)
        return not is_whole or (ours.state is State.DONE and not has_metrics)
    if read_bytes(folder / STATUS_FILE, MAX_BYTES) == read_bytes(folder / FETCHED_FILE, MAX_BYTES):
        return True  # nobody has worked on it here
    if has_metrics:
        return False
    return theirs.state is State.DONE or theirs.step > ours.step


def _copy(remote: UrlStorage, local: RunStore, run_id: str) -> bool:
    """Bring a run's files beside its folder, then move them in; its status comes last. False when it need not be."""
    folder = local.folder(run_id)
    with local.held(run_id) as lock:
        staging = lock.staging
        theirs, _ = remote.bring(run_id, staging)
        if theirs is None or not _is_wanted(local, run_id, theirs):  # it was worked on here just now
            return False
        status = theirs.to_json().encode()
        with disk_errors("write", folder):
            for path in list(staging.iterdir()):
                lock.check()
                path.replace(folder / path.name)
        lock.check()
        write_bytes(folder / STATUS_FILE, status, staging)
        write_bytes(folder / FETCHED_FILE, status, staging)
    return True
