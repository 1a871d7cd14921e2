"""Claims: no two processes, on one machine or on several that share a file system, run the same run.

A run's folder holds numbered claim files, ``claim.1``, ``claim.2`` and so on. The highest number is the one
that counts, and whoever creates it holds the run. A claim that is over is not deleted and made again, because
two processes that both find it over would then both succeed: the second deletes the first one's new claim.
Instead the next number is created, exclusively, which only one process can do. A hard link does the creation,
so a claim appears with its content in one step, over NFS too; file systems without links get ``O_EXCL``.

A claim is over when

- its holder released it, which overwrites its first bytes in place (that works on a full disk),
- its holder is dead. On the same machine (same boot, same space of process ids) that is known at once from
  the process id and the process's start time: a run whose process was killed can be taken up immediately, and
  one whose process lives is never taken away, however slow it is,
- its holder is on another machine and has been silent for its lease. A holder touches its claim several times
  per lease. The waiting process does not compare clocks: it looks for a *change* of the claim and measures
  the silence with its own monotonic clock. No clock needs to be right, and one that jumps back does no harm.
  The price is that a process has to watch a foreign claim for one lease before it takes it over,
- its holder's machine was started anew. A machine of the same name in another boot may be this one before a restart,
  or another one altogether. So the claim must also have been silent for longer than its lease and for longer than
  this machine has been up: a live namesake would have shown a sign of life since. That silence lies between the
  times of two files in the run's folder, its claim and one that is written for this, so that no clocks are compared.

Claims from another space of process ids, as of a container that was started again, are watched like foreign ones: the
other container may still be there. A listing only looks once. It takes a foreign claim for over when its
time is many leases past, which a wrong clock can get wrong, but nobody takes a run over because of it.

An advisory lock (``flock``) would do on one machine, but many NFS mounts keep such locks local to a client.

A holder that was suspended for longer than its lease may find its run taken over. It checks before each write
(`Claim.check`) and stops; if it was suspended between the two, `fence` makes the write fail. Claims are not synced to
disk: they speak of live processes, and a crash of the machine ends those too.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from headway.errors import ClaimLostError, DamagedError, StoreError
from headway.runs.fence import make_staging, shut_out
from headway.runs.files import open_regular, store_error
from headway.runs.jsonable import parse_object
from headway.runs.owner import Owner, uptime

T = TypeVar("T")

DEFAULT_LEASE = 90.0
MAX_LEASE = 3600.0
BEATS_PER_LEASE = 6
LEASES_TO_LIST = 20
"""For how many leases, but half an hour at least, a foreign claim is listed as held after its last sign of life."""
_RELEASED = b"released"
_NAME = re.compile(r"claim\.([1-9][0-9]{0,8})", re.ASCII)
_NO_LINKS = {errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


@dataclass(frozen=True)
class Sighting:
    """A claim as it was found: who holds it and a value that changes with every sign of life.

    In a folder, that begins with the file's time, in nanoseconds.
    """

    owner: Owner | None
    """None when the claim's content is not readable."""
    released: bool
    beat: tuple[int, int, int]

    def is_alive(self) -> bool | None:
        """Tell whether the holder lives, see `Owner.is_alive`; None also when it is not known who that is."""
        return self.owner.is_alive() if self.owner else None

    def lease(self, default: float) -> float:
        """Seconds of silence after which the claim is over; ``default`` holds for one that does not name any."""
        return min(self.owner.lease if self.owner else default, MAX_LEASE)


class LeaseWatch:
    """Remembers since when each foreign claim has not changed, on this process's monotonic clock."""

    def __init__(self, lease: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with no observations; ``lease`` holds for claims that do not name one."""
        self._lease = lease
        self._clock = clock
        self._seen: dict[Path, tuple[tuple[int, int, int], float]] = {}

    def is_silent(self, path: Path, sighting: Sighting) -> bool:
        """Tell whether the claim at ``path`` has been watched for its lease without a change."""
        now = self._clock()
        beat, since = self._seen.get(path, (None, now))
        if beat != sighting.beat:
            self._seen[path] = (sighting.beat, now)
            return False
        return now - since >= sighting.lease(self._lease)


class Claim:
    """A run that this process holds, until `release`; a thread shows signs of life meanwhile."""

    def __init__(self, folder: Path, number: int, lease: float, staging: Path) -> None:
        """Hold claim ``number`` of ``folder``, which this process has just created, with its staging folder."""
        self.number = number
        self.staging = staging
        self._folder = folder
        self._path = _path(folder, number)
        self._interval = min(lease, MAX_LEASE) / BEATS_PER_LEASE
        self._stop = threading.Event()
        self._lost = False
        self._thread = threading.Thread(target=self._beat_until_stopped, name="headway-claim", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Make sure that the run is still this process's.

        Raises:
            ClaimLostError: another process holds it now, or it was released.
            DamagedError: the run's folder was deleted.
        """
        try:
            number = newest(self._folder)
        except StoreError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            got = f"none at {self._folder}: somebody has deleted it; the same command starts the run again"
            raise DamagedError(f"expected the folder of a run under way, got {got}") from None
        if self._lost or self._stop.is_set() or number != self.number:
            self._lost = True
            raise ClaimLostError(
                f"expected to hold {self._path}, got a newer claim in its place: this process was silent for "
                "longer than its lease and another one goes on with the run; nothing of it is lost"
            )

    def beat(self) -> None:
        """Show a sign of life."""
        try:
            os.utime(self._path)
        except FileNotFoundError:
            self._lost = True
        except OSError:
            pass  # the file system may be away for a moment; the next beat tries again

    def release(self) -> None:
        """Give the run back; does nothing when it is not held any more."""
        if self._stop.is_set():
            return
        self._stop.set()
        self._thread.join()
        shutil.rmtree(self.staging, ignore_errors=True)
        with contextlib.suppress(OSError):  # this process ends some time, and then the claim is over too
            descriptor = os.open(self._path, os.O_WRONLY)
            try:
                os.write(descriptor, _RELEASED)
            finally:
                os.close(descriptor)

    def _beat_until_stopped(self) -> None:
        while not self._stop.wait(self._interval):
            self.beat()


def newest(folder: str | Path) -> int:
    """Return the highest claim number in a run's folder; 0 when it was never claimed.

    Raises:
        StoreError: the folder cannot be read.
    """
    try:
        with os.scandir(folder) as entries:
            matches = [_NAME.fullmatch(entry.name) for entry in entries]
    except OSError as exc:
        raise store_error("read", folder, exc) from exc
    return max((int(match[1]) for match in matches if match), default=0)


def look(folder: str | Path, number: int) -> Sighting | None:
    """Read a claim; None when it is not there (any more)."""
    path = _path(Path(folder), number)
    try:
        # Opening it, rather than asking for its times, makes an NFS client fetch them anew.
        descriptor = open_regular(path)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise store_error("read", path, exc) from exc
    with os.fdopen(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        content = file.read(4096)
    beat = (info.st_mtime_ns, info.st_size, info.st_ino)
    try:
        owner = Owner.from_dict(parse_object(content, str(path), StoreError))
    except StoreError:
        owner = None
    return Sighting(owner, content.startswith(_RELEASED), beat)


def look_at_newest(folder: str | Path) -> Sighting | None:
    """Read the claim that counts; None when the run was never claimed."""
    seen = 0
    while (number := newest(folder)) != seen:
        if sighting := look(folder, number):
            return sighting
        seen = number  # another process has taken the run over since, and removed it
    return None


def is_held(folder: str | Path) -> bool:
    """Tell whether a live process holds the run, as far as one look can tell: for listings only.

    A foreign claim counts until it was silent for many leases by the clock of this machine, which need not be right.
    """
    sighting = look_at_newest(folder)
    if sighting is None or sighting.released:
        return False
    alive = sighting.is_alive()
    if alive is not None:
        return alive
    patience = LEASES_TO_LIST * max(sighting.lease(DEFAULT_LEASE), DEFAULT_LEASE)
    return _silence(sighting, time.time()) < patience and not _is_of_an_earlier_boot(sighting, time.time)


def try_claim(folder: Path, watch: LeaseWatch, lease: float) -> Claim | None:
    """Claim a run if its newest claim is over.

    Args:
        folder: the run's folder.
        watch: what this process has seen of foreign claims.
        lease: how long this process may be silent before other machines take over.

    Returns:
        the claim, or None when another process holds the run.

    Raises:
        StoreError: the folder cannot be read or written.
    """
    number = newest(folder)
    if number:
        sighting = look(folder, number)
        if sighting is None or not _is_over(_path(folder, number), sighting, watch):
            return None  # gone since it was listed: somebody else has claimed the run meanwhile
    staging = make_staging(folder, number + 1)
    try:
        is_ours = _create_next(folder, number + 1, lease)
    except StoreError:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    if not is_ours:
        shutil.rmtree(staging, ignore_errors=True)
        return None
    claim = Claim(folder, number + 1, lease, staging)
    with contextlib.ExitStack() as undo:
        undo.callback(claim.release)
        shut_out(folder, number + 1, staging)
        undo.pop_all()
    return claim


def wait_for_claim(attempt: Callable[[], T | None], look: Callable[[], Sighting | None], lease: float) -> T | None:
    """Claim a run, and watch a claim for its lease if only that can show whether its holder is gone.

    Args:
        attempt: tries to claim the run.
        look: tells its newest claim.
        lease: holds for a claim that does not name one.

    Returns:
        what ``attempt`` gave, or None as soon as it is clear that a live process holds the run.
    """
    first = look()
    while (claim := attempt()) is None:
        seen = look()
        if seen != first or (seen and seen.is_alive()):
            return None
        time.sleep(min(1.0, (seen.lease(lease) if seen else lease) / BEATS_PER_LEASE))
    return claim


def _path(folder: Path, number: int) -> Path:
    return folder / f"claim.{number}"


def _is_over(path: Path, sighting: Sighting, watch: LeaseWatch) -> bool:
    if sighting.released:
        return True
    alive = sighting.is_alive()
    if alive is not None:
        return not alive
    return watch.is_silent(path, sighting) or _is_of_an_earlier_boot(sighting, lambda: _now(path.parent))


def _is_of_an_earlier_boot(sighting: Sighting, now: Callable[[], float]) -> bool:
    """Tell whether a claim has been silent since before this machine was started.

    Args:
        sighting: the claim.
        now: gives the time on the clock that its file has its own from.
    """
    if sighting.owner is None or not sighting.owner.may_be_of_an_earlier_boot():
        return False
    return _silence(sighting, now()) > max(uptime(), sighting.owner.lease)


def _silence(sighting: Sighting, now: float) -> float:
    return now - sighting.beat[0] / 1e9


def _now(folder: Path) -> float:
    """The time that a sign of life would have if it were shown now; minus infinity when that cannot be known."""
    temporary = _temporary(folder)
    try:
        try:
            temporary.touch(exist_ok=False)
            os.utime(temporary)
            return temporary.stat().st_mtime
        finally:
            temporary.unlink(missing_ok=True)
    except FileNotFoundError:
        return float("-inf")  # whoever holds the run by now has cleared our temporary file away
    except OSError as exc:
        raise store_error("write", temporary, exc) from exc


def _create_next(folder: Path, number: int, lease: float) -> bool:
    """Create a claim and clear away those before it; False when another process was quicker."""
    if not _create(folder, number, lease):
        return False
    if newest(folder) != number:
        # We were so slow that our number had come and gone. The higher one counts.
        _path(folder, number).unlink(missing_ok=True)
        return False
    for old in range(max(1, number - 2), number):
        with contextlib.suppress(OSError):
            _path(folder, old).unlink()
    return True


def _temporary(folder: Path) -> Path:
    return folder / f".claim.{secrets.token_hex(8)}.tmp"


def _create(folder: Path, number: int, lease: float) -> bool:
    """Create a claim file with its content in one step; False when it exists."""
    content = json.dumps(Owner.this_process(lease).to_dict()).encode()
    path = _path(folder, number)
    temporary = _temporary(folder)
    try:
        try:
            with temporary.open("xb") as file:
                file.write(content)
            return _link(temporary, path, content)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as exc:
        raise store_error("write", path, exc) from exc


def _link(temporary: Path, path: Path, content: bytes) -> bool:
    try:
        os.link(temporary, path)
    except FileExistsError:
        return _links(temporary) == 2  # over NFS a link can succeed and its reply be lost
    except FileNotFoundError:
        return False  # whoever holds the run by now has cleared our temporary file away
    except OSError as exc:
        if exc.errno not in _NO_LINKS:
            raise
        return _create_exclusively(path, content)
    return True


def _links(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_nlink
    return 0


def _create_exclusively(path: Path, content: bytes) -> bool:
    """Create a claim where there are no hard links; while it is empty, others treat it as held."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        return False
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    except OSError:
        path.unlink(missing_ok=True)
        raise
    return True
