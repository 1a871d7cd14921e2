"""Locks: no two processes, on one machine or on several that share a store, carry out the same run.

A run has numbered lock files, ``claim.1``, ``claim.2`` and so on. The highest number is the one that counts, and
whoever creates it holds the run. A lock that is over is not deleted and made again, because two processes that both
find it over would then both succeed: the second deletes the first one's new lock. Instead the next number is created,
exclusively, which only one process can do. `folder_locks` does that in a folder, `url_attempts` behind a URL.

A lock is over when

- its holder released it,
- its holder is dead. On the same machine (same boot, same space of process ids) that is known at once from
  the process id and the process's start time: a run whose process was killed can be taken up immediately, and
  one whose process lives is never taken away, however slow it is,
- its holder is on another machine and has been silent for its lease. A holder shows several signs of life per lease.
  The waiting process does not compare clocks: it looks for a *change* of the lock and measures the silence with its
  own monotonic clock. No clock needs to be right, and one that jumps back does no harm. The price is that a process
  has to watch a foreign lock for one lease before it takes it over.

Locks from another space of process ids, as of a container that was started again, are watched like foreign ones: the
other container may still be there. Locks are not synced to disk: they speak of live processes, and a crash of the
machine ends those too.
"""

from __future__ import annotations

import os
import re
import socket
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from headway.errors import LockLostError, StoreError
from headway.runs.jsonable import read_record

DEFAULT_LEASE = 90.0
MAX_LEASE = 3600.0
BEATS_PER_LEASE = 6
_NAME = re.compile(r"claim\.([1-9][0-9]{0,8})", re.ASCII)
_MACHINE = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}) pid:\[[0-9]+\]", re.ASCII)
"""What `_this_machine` gives where the system tells; the group is the boot."""


@dataclass(frozen=True)
class Owner:
    """A process, named so that another one can tell whether it is still there."""

    host: str
    """The host's name; two machines may have the same."""
    machine: str
    """Boot and process-id space: only processes that share them can judge each other by process id."""
    pid: int
    """The process id."""
    started: str
    """When the process started, in ticks since boot: tells a reused id apart. Empty where unknown."""
    lease: float
    """Seconds of silence after which processes on other machines may take the run over."""

    @classmethod
    def this_process(cls, lease: float) -> Owner:
        """Describe the calling process."""
        pid = os.getpid()
        state = _process_state(pid)
        return cls(socket.gethostname(), _this_machine(), pid, state[1] if state else "", lease)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Owner:
        """Make an owner from what `to_dict` gives."""
        owner = read_record(cls, data, "lock", StoreError)
        if not 0 < owner.lease < 1e9:
            raise StoreError(f"lock: expected a lease in seconds, got {owner.lease}")
        return owner

    def is_alive(self) -> bool | None:
        """Tell whether the process lives; None when this process cannot know, being on another machine."""
        if self.machine != _this_machine() or os.name == "nt":
            return None
        if not 0 < self.pid < 2**31:
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        state = _process_state(self.pid)
        if state is None:
            return True
        dead = state[0] in "ZX"  # killed, but not yet collected by its parent
        return not dead and (not self.started or state[1] == self.started)

    def may_be_of_an_earlier_boot(self) -> bool:
        """Tell whether the process ran on a machine of this one's name, in another boot.

        That alone says nothing: another machine may have the same name, and some containers have boots of their own.
        """
        boots = [match and match[1] for match in map(_MACHINE.fullmatch, (self.machine, _this_machine()))]
        return self.host == socket.gethostname() and None not in boots and boots[0] != boots[1]


@lru_cache(maxsize=1)
def _this_machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return f"{socket.gethostname()} {uuid.getnode():x}"


def _process_state(pid: int) -> tuple[str, str] | None:
    """Return a process's state letter and start time, or None where the system does not tell."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may hold spaces and brackets
    return (fields[0], fields[19]) if len(fields) > 19 else None


@dataclass(frozen=True)
class SeenLock:
    """A lock as it was found."""

    owner: Owner | None
    """Who holds it; None when the lock's content is not readable."""
    released: bool
    """Whether its holder has given the run back."""
    beat: tuple[int, int, int]
    """A value that changes with every sign of life; in a folder it begins with the file's time in nanoseconds."""

    @property
    def time(self) -> float:
        """When the holder of a lock in a folder last showed a sign of life, in seconds."""
        return self.beat[0] / 1e9

    def is_alive(self) -> bool | None:
        """Tell whether the holder lives, see `Owner.is_alive`; None also when it is not known who that is."""
        return self.owner.is_alive() if self.owner else None

    def lease(self, default: float) -> float:
        """Seconds of silence after which the lock is over; ``default`` holds for one that does not name any."""
        return min(self.owner.lease if self.owner else default, MAX_LEASE)


def newest_number(names: Iterable[str]) -> int:
    """The highest lock among the names of a run's files; 0 when there is none."""
    return max((int(match[1]) for match in map(_NAME.fullmatch, names) if match), default=0)


class LeaseWatch:
    """Remembers since when each foreign lock has not changed, on this process's monotonic clock."""

    def __init__(self, lease: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._lease = lease
        self._clock = clock
        self._seen: dict[str, tuple[tuple[int, int, int], float]] = {}

    def is_silent(self, name: str, seen_lock: SeenLock) -> bool:
        """Tell whether the lock of this name has been watched for its lease without a change."""
        now = self._clock()
        beat, since = self._seen.get(name, (None, now))
        if beat != seen_lock.beat:
            self._seen[name] = (seen_lock.beat, now)
            return False
        return now - since >= seen_lock.lease(self._lease)


def is_over(name: str, seen_lock: SeenLock, watch: LeaseWatch) -> bool:
    """Tell whether nobody holds a lock any more."""
    if seen_lock.released:
        return True
    alive = seen_lock.is_alive()
    return watch.is_silent(name, seen_lock) if alive is None else not alive


class Lock(ABC):
    """A run that this process holds, until `release`; a thread shows signs of life meanwhile.

    A holder that was suspended for longer than its lease may find its run taken over. It checks before each write and
    stops. If it was suspended between the two, what it writes does not count: see `folder_locks`, `url_attempts`.

    Attributes:
        number: how many times the run has been locked.
        staging: where the holder puts files together; in a folder, gone when another process has taken the run over.
        name: what the lock is called in messages.
    """

    def __init__(self, number: int, lease: float, staging: Path, name: str) -> None:
        self.number = number
        self.staging = staging
        self.name = name
        self._interval = min(lease, MAX_LEASE) / BEATS_PER_LEASE
        self._stop = threading.Event()
        self._lost = False
        self._thread = threading.Thread(target=self._beat_until_stopped, name="headway-lock", daemon=True)

    def check(self) -> None:
        """Make sure that the run is still this process's."""
        if self._lost or self._stop.is_set():
            self._lost = True
            raise LockLostError(
                f"expected to hold {self.name}, got a newer lock in its place: this process sent no sign of life for "
                "longer than its lease and another one goes on with the run; nothing of it is lost"
            )

    @abstractmethod
    def beat(self) -> None:
        """Show a sign of life; a store that is away for a moment does not matter, the next one tries again."""

    def release(self) -> None:
        """Give the run back; does nothing when it is not held any more."""
        if self._stop.is_set():
            return
        self._stop.set()
        self._thread.join()
        self._give_back()

    @abstractmethod
    def _give_back(self) -> None:
        """Mark the lock as released, as far as that is possible: it is over when this process ends, at the latest."""

    def _beat_until_stopped(self) -> None:
        while not self._stop.wait(self._interval):
            try:
                self.beat()
            except LockLostError:
                return


def wait_for_lock(attempt: Callable[[], Lock | None], look: Callable[[], SeenLock | None], lease: float) -> Lock | None:
    """Lock a run, and watch its lock for the lease if only that can show whether the holder is gone."""
    first = look()
    while (lock := attempt()) is None:
        seen = look()
        if seen != first or (seen and seen.is_alive()):
            return None
        time.sleep(min(1.0, (seen.lease(lease) if seen else lease) / BEATS_PER_LEASE))
    return lock
