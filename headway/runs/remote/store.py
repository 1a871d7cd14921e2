"""`RemoteStore`: a run store behind a URL, with a working copy of each run under way on the local disk.

::

    store.json                          the version of the store
    <run_id>/spec.json                  what the run is
             claim.<n>                  who holds it
             <file>@<n>-<token>-<k>     a file that the n-th attempt wrote, never changed
             manifest.<n>-<token>.0, .1 which of them count, and the run's status
             end.<n>-<token>, reset.<n> what attempts that were stalled may not do any more

Object stores cannot rename, and some give no promise on two writers of one object. So an attempt writes new objects,
each under a name of its own, and then a manifest that names them. Killed at any instant it leaves the manifest before,
whose objects are removed only after the new one is there. Attempts share no name but that of the claim, which is
created exclusively where the store can; where it cannot, two processes may work on one run for a moment, both get the
same numbers, and neither spoils what the other writes.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from headway.errors import DamagedError, MissingExtraError, SpecError, StoreError
from headway.runs.adding import STORE_FILE, STORE_SCHEMA
from headway.runs.checkpoints import find_newest
from headway.runs.files import FileSum, write_bytes
from headway.runs.jsonable import MAX_BYTES, check_schema, parse_object
from headway.runs.locks import DEFAULT_LEASE, Sighting
from headway.runs.metrics import Columns, RowLog, metrics_of
from headway.runs.pages import MAX_PAGE_BYTES
from headway.runs.records import SPEC_FILE, RunRecord, spec_order
from headway.runs.remote import locks as claims
from headway.runs.remote.bucket import Bucket
from headway.runs.remote.copying import Publisher, bring, without
from headway.runs.remote.locks import RemoteClaim
from headway.runs.remote.manifest import (
    NAME,
    Manifest,
    attempt_of,
    manifest_names,
    newest,
    reset_name,
    superfluous,
)
from headway.runs.remote.workdir import make_folder, make_workshop
from headway.runs.run import Run
from headway.runs.spec import RunSpec
from headway.runs.status import METRICS_FILE, State
from headway.runs.store import RUN_ID, RunStore

MOST_LOOKS = 5
"""How often a run is looked at again whose objects were replaced in the meantime."""


class RemoteStore(RunStore):
    """Runs behind a URL. It does what a `RunStore` does; see the module for how.

    Args:
        url: what fsspec can open, such as s3://bucket/runs.
        lease: seconds without a sign of life after which other machines may take over the runs of this process.

    Raises:
        UsageError: fsspec cannot open the URL.
    """

    def __init__(self, url: str, lease: float = DEFAULT_LEASE) -> None:
        """Open the file system; nothing is written."""
        self._workshop: Path | None = None
        self._untidy: set[str] = set()
        super().__init__(Path(), lease)
        self._bucket = Bucket(url)

    def __reduce__(self) -> tuple[type[RemoteStore], tuple[str, float]]:  # type: ignore[override]
        """Pickle the URL; every process has working copies of its own."""
        return RemoteStore, (self._bucket.url, self.lease)

    @property
    def place(self) -> str:
        """The URL."""
        return self._bucket.url

    def exists(self) -> bool:
        """Tell whether there is a store yet."""
        return self._bucket.get(STORE_FILE) is not None

    def has(self, run_id: str) -> bool:
        """Tell whether a run was added."""
        return self._bucket.get(f"{run_id}/{SPEC_FILE}") is not None

    def add_all(self, specs: Iterable[RunSpec]) -> list[str]:
        """Add many runs; return their ids."""
        self._make()
        specs = list(specs)
        known = self._bucket.names() if len(specs) > 1 else self._bucket.names(specs[0].run_id) if specs else {}
        texts = {f"{spec.run_id}/{SPEC_FILE}": spec.to_json().encode() for spec in specs}
        self._bucket.put_all({name: text for name, text in texts.items() if known.get(name) != len(text)})
        return [spec.run_id for spec in specs]

    def claim(self, spec: RunSpec, *, retry_failed: bool = True) -> Run | None:
        """Hold a run and bring a working copy of it to this machine; see `RunStore.claim`."""
        if importlib.util.find_spec("pyarrow") is None:
            raise MissingExtraError("pyarrow", "experiments")
        run_id = self.add(spec)
        if self._is_over(self._manifest(run_id), retry_failed):
            return None
        work = self._work()
        holder = claims.try_claim(self._bucket, run_id, self._watch, self.lease)
        if holder is None:
            return None
        folder = work / f"{run_id}-{holder.token}"
        claim = RemoteClaim(self._bucket, run_id, holder, self.lease, folder, lambda: self._dispose(folder))
        try:
            make_folder(folder)
            manifest, gone = self._bring(run_id, folder)
            if self._is_over(manifest, retry_failed):  # it ended between the two looks
                claim.release()
                return None
            write_bytes(folder / SPEC_FILE, spec.to_json().encode())
            publish = Publisher(self._bucket, run_id, folder, lambda: claim)
            status = without(manifest.status, gone) if manifest else None
            note = f"expected the objects of {', '.join(gone)}, got none: the run goes on without" if gone else ""
            run = Run(folder, spec, claim, status, note, kept=publish)
            run.begin()
        except BaseException:
            claim.release()
            raise
        return run

    def reset(self, run_id: str) -> None:
        """Forget everything about a run but its spec, so that it is pending again."""
        with self.held(run_id) as claim:
            self._bucket.put(f"{run_id}/{reset_name(claim.number)}", b"")
            owned = [name for name in _inside(self._bucket.names(run_id), run_id) if attempt_of(name)]
            manifests_first = sorted(owned, key=lambda name: not NAME.fullmatch(name))
            self._bucket.remove([f"{run_id}/{name}" for name in manifests_first])

    def tidy(self, run_id: str) -> None:
        """Remove what a process left that was killed when its run was done but its checkpoints not yet removed."""
        if run_id in self._untidy:
            self._untidy.discard(run_id)
            names = _inside(self._bucket.names(run_id), run_id)
            manifest = self._manifest(run_id)
            if manifest and manifest.is_done:
                self._bucket.remove([f"{run_id}/{name}" for name in superfluous(manifest, names)])

    def folder(self, run_id: str) -> Path:
        """There is no folder here.

        Raises:
            StoreError: always; the message says what to do.
        """
        raise StoreError(
            f"expected a run store on a disk, got {self.place}; copy it: headway fetch {self.place} FOLDER"
        )

    def status(self) -> list[RunRecord]:
        """List all runs, in the order of their specs; corrupt ones come last, with the reason."""
        self._check()
        return sorted(self._records(self._bucket.names()), key=spec_order)

    def record(self, run_id: str) -> RunRecord:
        """Return one run as `status` lists it."""
        (record,) = self.records([run_id])
        return record

    def records(self, run_ids: Iterable[str]) -> list[RunRecord]:
        """Return some runs, in the given order."""
        wanted = list(run_ids)
        self._check()
        names = self._bucket.names(wanted[0]) if len(wanted) == 1 else self._bucket.names()
        found = {record.run_id: record for record in self._records(names, set(wanted))}
        for run_id in wanted:
            if run_id not in found:
                raise StoreError(f"expected the id of a run in {self.place}, got {run_id!r}; status() lists them")
        return [found[run_id] for run_id in wanted]

    def has_metrics(self, record: RunRecord) -> bool:
        """Tell whether the metrics of a run that is done are still there: a manifest without its objects is none."""
        return record.status is not None and METRICS_FILE in record.status.files

    def metrics(self, run_id: str) -> Columns:
        """Return a run's metrics; up to the last checkpoint while it is not done."""
        manifest = self._manifest(run_id)
        if manifest is None:
            self._check_known(run_id)
            return {}
        if not manifest.is_done:
            with tempfile.TemporaryDirectory(dir=self._work()) as folder:
                self.bring(run_id, Path(folder))
                found, _ = find_newest(Path(folder), run_id, with_payload=False)
                return RowLog(found.rows if found else b"").columns()
        return metrics_of(
            self.read_file(run_id, METRICS_FILE, MAX_PAGE_BYTES), run_id, f"{self.place}/{run_id}/{METRICS_FILE}"
        )

    def read_file(self, run_id: str, name: str, limit: int | None = None) -> bytes:
        """Return a file that a run has saved, after checking that it is whole."""
        for _ in range(MOST_LOOKS):
            manifest = self._manifest(run_id)
            if manifest is None or name not in manifest.status.files:
                known = ", ".join(manifest.status.files if manifest else ()) or "none"
                raise StoreError(f"expected a file that run {run_id} has saved ({known}), got {name!r}")
            part, expected = manifest.files.get(name), manifest.status.files[name]
            if limit is not None and expected.length > limit:
                raise DamagedError(f"{self.place}/{run_id}/{name}: expected at most {limit} bytes, got more")
            data = self._bucket.get(f"{run_id}/{part.object}") if part else None
            if data is not None and FileSum.of(data) == expected:
                return data
        problem = "no object" if data is None else f"{len(data)} other bytes"
        raise DamagedError(
            f"{self.place}/{run_id}/{name}: expected the {expected.length} bytes that the run wrote, got {problem}; "
            f"it was damaged since: reset() the run and run it again"
        )

    def problems(self, run_id: str) -> list[str]:
        """Read everything that a run has stored and say what is wrong with it; empty when all is well."""
        record = self.record(run_id)
        found = [record.reason] if record.reason else []
        try:
            with tempfile.TemporaryDirectory(dir=self._work()) as folder:
                if self.bring(run_id, Path(folder)):
                    found += find_newest(Path(folder), run_id)[1]
        except StoreError as error:
            found.append(str(error))
        return found + self._problems_of_files(record, bool(found))

    def manifest(self, run_id: str) -> Manifest | None:
        """The manifest that counts; None when the run has stored nothing yet."""
        return self._manifest(run_id)

    def bring(self, run_id: str, folder: Path) -> Manifest | None:
        """Copy all that a run has stored into a folder; return the manifest that it follows."""
        return self._bring(run_id, folder)[0]

    def _try_claim(self, run_id: str) -> RemoteClaim | None:
        self._check_known(run_id)
        holder = claims.try_claim(self._bucket, run_id, self._watch, self.lease)
        return RemoteClaim(self._bucket, run_id, holder, self.lease, self._work()) if holder else None

    def _look(self, run_id: str) -> Sighting | None:
        return claims.look(self._bucket, run_id)

    def _check(self) -> None:
        if self._checked:
            return
        text = self._bucket.get(STORE_FILE)
        what = f"{self.place}/{STORE_FILE}"
        if text is None:
            raise StoreError(f"expected a run store (with {STORE_FILE}) at {self.place}, got none")
        check_schema(parse_object(text[:MAX_BYTES], what, StoreError), STORE_SCHEMA, what, StoreError)
        self._checked = True

    def _make(self) -> None:
        if not self._checked and not self.exists():
            self._bucket.put(STORE_FILE, json.dumps({"schema": STORE_SCHEMA}).encode() + b"\n")
        self._check()

    def _check_known(self, run_id: str) -> None:
        self._check()
        if not RUN_ID.fullmatch(run_id) or not self.has(run_id):
            raise StoreError(f"expected the id of a run in {self.place}, got {run_id!r}; status() lists them")

    def _work(self) -> Path:
        """Where the working copies of this process are."""
        if self._workshop is None:
            self._workshop = make_workshop(self)
        return self._workshop

    def _dispose(self, folder: Path) -> None:
        """Remove a working copy; a method, so that whoever is to call it keeps the store, and with it the folder."""
        shutil.rmtree(folder, ignore_errors=True)

    def _manifest(self, run_id: str) -> Manifest | None:
        names = _inside(self._bucket.names(run_id), run_id)
        wanted = [f"{run_id}/{name}" for name in manifest_names(names)]
        return self._newest(run_id, self._bucket.get_all(wanted), names)

    def _newest(self, run_id: str, data: Mapping[str, bytes], names: Mapping[str, int]) -> Manifest | None:
        manifests = []
        for name, content in data.items():
            with contextlib.suppress(DamagedError):  # cut short; its twin is whole
                manifests.append(Manifest.from_bytes(content, run_id, f"{self.place}/{name}"))
        return newest(manifests, names)

    def _bring(self, run_id: str, folder: Path) -> tuple[Manifest | None, list[str]]:
        """Copy a run's files; look again if some were replaced meanwhile, and name those that are just gone."""
        before, manifest = None, self._manifest(run_id)
        gone: list[str] = []
        while manifest is not None and (gone := bring(self._bucket, manifest, folder)) and manifest != before:
            before, manifest = manifest, self._manifest(run_id)
        return manifest, gone if manifest else []

    def _is_over(self, manifest: Manifest | None, retry_failed: bool) -> bool:
        if manifest is None:
            return False
        return manifest.is_done or (manifest.status.state is State.FAILED and not retry_failed)

    def _records(self, names: Mapping[str, int], wanted: set[str] | None = None) -> list[RunRecord]:
        """Records of all runs among the names of objects, read at once."""
        runs: dict[str, dict[str, int]] = {}
        for name, length in names.items():
            run_id, _, own = name.partition("/")
            if RUN_ID.fullmatch(run_id) and (wanted is None or run_id in wanted):
                runs.setdefault(run_id, {})[own] = length
        read = self._bucket.get_all([f"{run_id}/{name}" for run_id, own in runs.items() for name in _telling(own)])
        data: dict[str, dict[str, bytes]] = {run_id: {} for run_id in runs}
        for name, content in read.items():
            run_id, _, own = name.partition("/")
            data[run_id][own] = content
        return [self._record(run_id, own, data[run_id]) for run_id, own in runs.items()]

    def _record(self, run_id: str, names: Mapping[str, int], data: Mapping[str, bytes]) -> RunRecord:
        spec = None
        try:
            spec = self._spec(run_id, data.get(SPEC_FILE))
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
        number = claims.newest_number(names)
        seen = claims.sighting(data.get(f"claim.{number}"))
        is_held = number > 0 and not seen.released and seen.is_alive() is not False
        if is_held:
            return RunRecord(run_id, State.RUNNING, spec, status)
        return RunRecord(run_id, State.INTERRUPTED if status else State.PENDING, spec, status)

    def _spec(self, run_id: str, text: bytes | None) -> RunSpec:
        what = f"{self.place}/{run_id}/{SPEC_FILE}"
        if text is None:
            raise DamagedError(f"expected {what}, got no such object")
        spec = RunSpec.from_json(text, what)
        if spec.run_id != run_id:
            raise DamagedError(f"{what}: expected the spec of run {run_id}, got that of run {spec.run_id}")
        return spec


def open_url(url: str) -> RunStore:
    """The store behind a URL; nothing is made yet.

    Raises:
        UsageError: fsspec cannot open it.
    """
    return RemoteStore(url)


def _inside(names: Mapping[str, int], run_id: str) -> dict[str, int]:
    """The names of a run's objects within it."""
    return {name[len(run_id) + 1 :]: length for name, length in names.items()}


def _telling(names: Iterable[str]) -> list[str]:
    """The objects of a run that tell where it stands."""
    names = list(names)
    number = claims.newest_number(names)
    return [name for name in names if name in (SPEC_FILE, f"claim.{number}")] + manifest_names(names)
