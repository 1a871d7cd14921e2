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
import stat
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from headway.errors import DamagedError, SpecError, StoreError
from headway.runs import url_locks
from headway.runs.bucket import Bucket
from headway.runs.checkpoints import Found, find_newest
from headway.runs.files import FileSum, store_error, write_bytes
from headway.runs.jsonable import parse_object
from headway.runs.locks import LeaseWatch, Lock, Owner, Sighting
from headway.runs.run import WorkingCopy
from headway.runs.spec import RunSpec
from headway.runs.status import (
    METRICS_FILE,
    RUN_ID,
    SPEC_FILE,
    STORE_FILE,
    VERSION,
    RunRecord,
    State,
    Status,
    parse_spec,
    unknown_run,
)
from headway.runs.url_locks import UrlLock
from headway.runs.url_manifest import (
    NAME,
    Manifest,
    Publisher,
    attempt_of,
    manifest_names,
    newest,
    reset_name,
    superfluous,
)

MOST_LOOKS = 5
"""How often a run is looked at again whose objects were replaced in the meantime."""
OWNER_FILE = "owner.json"


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
        known = self.bucket.names() if len(specs) > 1 else self.bucket.names(specs[0].run_id) if specs else {}
        texts = {f"{spec.run_id}/{SPEC_FILE}": spec.to_json().encode() for spec in specs}
        self.bucket.put_all({name: text for name, text in texts.items() if known.get(name) != len(text)})

    def has(self, run_id: str) -> bool:
        """Tell whether a run was added."""
        return self.bucket.get(f"{run_id}/{SPEC_FILE}") is not None

    def all_records(self) -> list[RunRecord]:
        """Return all runs, in any order."""
        return self._records(self.bucket.names())

    def records(self, run_ids: Iterable[str]) -> list[RunRecord]:
        """Return some runs, in the given order."""
        wanted = list(run_ids)
        names = self.bucket.names(wanted[0]) if len(wanted) == 1 else self.bucket.names()
        found = {record.run_id: record for record in self._records(names, set(wanted))}
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
        holder = url_locks.try_lock(self.bucket, run_id, watch, lease)
        if holder is None:
            return None
        folder = workdir / f"{run_id}-{holder.token}"
        return UrlLock(self.bucket, run_id, holder, lease, folder, partial(self._dispose, folder))

    def look(self, run_id: str) -> Sighting | None:
        """Return a run's newest lock as it is now."""
        return url_locks.look(self.bucket, run_id)

    def check_out(self, spec: RunSpec, lock: Lock) -> WorkingCopy:
        """Bring a working copy of a run to this machine; what is written there counts once it is published."""
        assert isinstance(lock, UrlLock)
        folder = lock.staging
        try:
            folder.mkdir(mode=0o700)
        except OSError as error:
            raise store_error("make", folder, error) from error
        status, gone = self.bring(spec.run_id, folder)
        write_bytes(folder / SPEC_FILE, spec.to_json().encode())
        note = f"expected the objects of {', '.join(gone)}, got none: the run goes on without" if gone else ""
        if status:
            status = replace(status, files={name: own for name, own in status.files.items() if name not in gone})
        return WorkingCopy(folder, status, note, Publisher(self.bucket, spec.run_id, folder, lock))

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

    def newest_checkpoint(self, run_id: str, with_payload: bool = True) -> tuple[Found | None, tuple[str, ...]]:
        """Return the newest whole checkpoint, and what is wrong with the others."""
        with tempfile.TemporaryDirectory(dir=self._work()) as folder:
            self.bring(run_id, Path(folder))
            return find_newest(Path(folder), run_id, with_payload=with_payload)

    def reset(self, run_id: str, lock: Lock) -> None:
        """Forget everything about a run but its spec."""
        self.bucket.put(f"{run_id}/{reset_name(lock.number)}", b"")
        owned = [name for name in self.bucket.names_in(run_id) if attempt_of(name)]
        manifests_first = sorted(owned, key=lambda name: not NAME.fullmatch(name))
        self.bucket.remove([f"{run_id}/{name}" for name in manifests_first])

    def tidy(self, run_id: str, try_lock: Callable[[], Lock | None]) -> None:
        """Remove what a process left that was killed when its run was done but its checkpoints not yet removed."""
        if run_id in self._untidy:
            self._untidy.discard(run_id)
            names = self.bucket.names_in(run_id)
            manifest = self._manifest(run_id)
            if manifest and manifest.is_done:
                self.bucket.remove([f"{run_id}/{name}" for name in superfluous(manifest, names)])

    def _check_known(self, run_id: str) -> None:
        if not RUN_ID.fullmatch(run_id) or not self.has(run_id):
            raise unknown_run(self.place, run_id)

    def _manifest(self, run_id: str) -> Manifest | None:
        """The manifest that counts; None when the run has stored nothing yet."""
        names = self.bucket.names_in(run_id)
        wanted = [f"{run_id}/{name}" for name in manifest_names(names)]
        return self._newest(run_id, self.bucket.get_all(wanted), names)

    def _newest(self, run_id: str, data: Mapping[str, bytes], names: Mapping[str, int]) -> Manifest | None:
        manifests = []
        for name, content in data.items():
            with contextlib.suppress(DamagedError):  # cut short; its twin is whole
                manifests.append(Manifest.from_bytes(content, run_id, f"{self.place}/{name}"))
        return newest(manifests, names)

    def bring(self, run_id: str, folder: Path) -> tuple[Status | None, list[str]]:
        """Copy all that a run has stored into a folder; return the status that goes with it, and which files are gone.

        It looks again if some were replaced meanwhile. Nothing is checked: whoever reads the files compares them with
        their sums, and passes over what is damaged.
        """
        before, manifest = None, self._manifest(run_id)
        gone: list[str] = []
        while manifest is not None and manifest != before:
            parts = {name: f"{run_id}/{part.object}" for name, part in manifest.files.items()}
            gone = [name for name, source in parts.items() if not self.bucket.get_file(source, folder / name)]
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
        number = url_locks.newest_number(names)
        seen = url_locks.sighting(data.get(f"claim.{number}"))
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
    number = url_locks.newest_number(names)
    return [name for name in names if name in (SPEC_FILE, f"claim.{number}")] + manifest_names(names)


def make_workdir() -> Path:
    """Make a temporary folder of this process's own, and remove those of processes that are gone."""
    try:
        # the user's number, since in a container the user may have no name
        user = str(os.getuid()) if hasattr(os, "getuid") else getpass.getuser()
        common = Path(tempfile.gettempdir()) / f"headway-{user}"
        with contextlib.suppress(FileExistsError):
            common.mkdir(mode=0o700)
        _check_private(common)
        _sweep(common)
        folder = Path(tempfile.mkdtemp(prefix="work-", dir=common))
        try:
            (folder / OWNER_FILE).write_text(json.dumps(Owner.this_process(1.0).to_dict()))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    except OSError as error:
        raise store_error("make", "a folder for working copies; set TMPDIR to one that is writable", error) from error
    return folder


def _sweep(common: Path) -> None:
    """Remove the folders of processes that are gone."""
    for folder in common.glob("work-*"):
        with contextlib.suppress(OSError, StoreError):  # being made, or being removed by somebody else
            owner = Owner.from_dict(parse_object((folder / OWNER_FILE).read_bytes(), OWNER_FILE, StoreError))
            if owner.is_alive() is False:
                shutil.rmtree(folder, ignore_errors=True)


def _check_private(folder: Path) -> None:
    """Make sure that nobody else can put anything into a folder; anybody can make one of its name beforehand."""
    if not hasattr(os, "getuid"):
        return
    info = folder.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid() or info.st_mode & 0o077:
        raise StoreError(
            f"expected a folder of user {os.getuid()} that is closed to others, got mode {stat.filemode(info.st_mode)} "
            f"of user {info.st_uid} at {folder}; remove it or set TMPDIR to another folder"
        )
