"""Between a run's working copy on this machine's disk and its objects behind the URL."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

from headway.errors import ClaimLostError, StoreError
from headway.runs.checkpoints import SLOTS
from headway.runs.files import FileSum
from headway.runs.records import read_status
from headway.runs.remote.bucket import Bucket
from headway.runs.remote.locks import RemoteClaim
from headway.runs.remote.manifest import NAME, Holder, Manifest, Part, attempt_of
from headway.runs.status import Status

CHUNK = 1 << 20


class Publisher:
    """Writes what a run's working copy holds behind the URL: the objects, then the manifest, then what is superfluous.

    Args:
        bucket: where to.
        run_id: the run.
        folder: the working copy.
        claim: gives the claim on the run.
    """

    def __init__(self, bucket: Bucket, run_id: str, folder: Path, claim: Callable[[], RemoteClaim]) -> None:
        """Write nothing yet."""
        self._bucket = bucket
        self._run_id = run_id
        self._folder = folder
        self._claim = claim
        self._generation = 0
        self._objects = 0
        self._written: dict[str, tuple[Part, tuple[int, int, int]]] = {}

    def __call__(self, with_checkpoints: bool) -> None:
        """Make the working copy's state the one that counts.

        Args:
            with_checkpoints: False for a run whose checkpoints are about to be removed.

        Raises:
            ClaimLostError: another process holds the run now.
            StoreError: it cannot be written; what was written before still counts.
        """
        claim = self._claim()
        claim.verify()
        status = read_status(self._folder, self._run_id)
        assert status is not None  # the run has begun
        slots = [slot for slot in SLOTS if (self._folder / slot).is_file()] if with_checkpoints else []
        before = {part.object for part, _ in self._written.values()}
        self._written = {name: self._part(name) for name in (*status.files, *slots)}
        files = {name: part for name, (part, _) in self._written.items()}
        self._generation += 1
        manifest = Manifest(self._run_id, claim.holder, self._generation, status, files)
        claim.verify()
        if manifest.is_done:
            self._begin_to_end(claim)
        self._bucket.put(f"{self._run_id}/{claim.holder.manifest_name(self._generation)}", manifest.to_bytes())
        with contextlib.suppress(StoreError):  # it only takes up room
            self._tidy(manifest, before)

    def _begin_to_end(self, claim: RemoteClaim) -> None:
        """Make sure that no successor removes what this attempt has written, from now on.

        Raises:
            ClaimLostError: a successor may have done so already.
        """
        holder = claim.holder
        if not self._bucket.create(f"{self._run_id}/{holder.end_name}", holder.end_mark):
            raise ClaimLostError(
                f"expected to end {self._run_id} in {self._bucket.url}, got shut out by another process, which goes "
                "on with the run; nothing of it is lost"
            )

    def _part(self, name: str) -> tuple[Part, tuple[int, int, int]]:
        """Write a file, unless that was done before."""
        path = self._folder / name
        info = path.stat()
        state = (info.st_mtime_ns, info.st_size, info.st_ino)
        known = self._written.get(name)
        if known and known[1] == state:
            return known
        self._objects += 1
        part = Part(self._claim().holder.object_name(name, self._objects), sum_of(path))
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
        start = len(self._run_id) + 1
        names = [name[start:] for name in self._bucket.names(self._run_id)]
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


def bring(bucket: Bucket, manifest: Manifest, folder: Path) -> list[str]:
    """Copy a run's files into a folder; return the names of those whose objects are gone.

    Nothing is checked here: whoever reads the files compares them with their sums, and passes over what is damaged.

    Raises:
        StoreError: the store cannot be read.
    """
    return [
        name
        for name, part in manifest.files.items()
        if not bucket.get_file(f"{manifest.run_id}/{part.object}", folder / name)
    ]


def without(status: Status, gone: Collection[str]) -> Status:
    """A status that does not speak of files which are gone."""
    return replace(status, files={name: sum for name, sum in status.files.items() if name not in gone})


def sum_of(path: Path) -> FileSum:
    """The sum of a file, read piece by piece."""
    digest, length = hashlib.sha256(), 0
    with path.open("rb") as file:
        while piece := file.read(CHUNK):
            digest.update(piece)
            length += len(piece)
    return FileSum(length, digest.hexdigest())
