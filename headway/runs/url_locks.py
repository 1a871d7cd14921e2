"""Locks on runs behind a URL: numbered objects, of which the highest counts, as in `headway.runs.locks`.

There are no links and no times of change here. A lock is created exclusively where the store can do that; its holder
rewrites it with a count that goes up, and whoever waits looks for a change of that count.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.errors import LockLostError, StoreError
from headway.runs.bucket import Bucket
from headway.runs.jsonable import parse_object
from headway.runs.locks import NAME, LeaseWatch, Lock, Owner, Sighting, is_over


@dataclass(frozen=True)
class Holder:
    """An attempt at a run: the number of its lock, and a token that tells it apart from any other."""

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


class UrlLock(Lock):
    """A lock that this process has just created."""

    def __init__(
        self,
        bucket: Bucket,
        run_id: str,
        holder: Holder,
        lease: float,
        staging: Path,
        ended: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(holder.number, lease, staging, f"{bucket.url}/{_name(run_id, holder.number)}")
        self.holder = holder
        self._bucket = bucket
        self._run_id = run_id
        self._lease = lease
        self._ended = ended
        self._count = 0
        # where objects are not replaced in one step, a look would see half a sign of life
        self._access = threading.RLock()
        self._thread.start()

    def verify(self) -> None:
        """Look whether the run is still this process's; `check` knows only what the last sign of life has shown."""
        with self._access:
            number, data = _newest(self._bucket, self._run_id)
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
        content = _content(self.holder, self._lease, self._count, is_released)
        self._bucket.put(_name(self._run_id, self.number), content)


def try_lock(bucket: Bucket, run_id: str, watch: LeaseWatch, lease: float) -> Holder | None:
    """Create the next lock on a run if its newest is over; None when another process holds it."""
    number, data = _newest(bucket, run_id)
    if number and not is_over(f"{bucket.url}/{_name(run_id, number)}", sighting(data), watch):
        return None
    holder = Holder(number + 1, secrets.token_hex(8))
    if not bucket.create(_name(run_id, holder.number), _content(holder, lease, 0)):
        return None
    if _newest(bucket, run_id)[0] != holder.number:
        bucket.remove([_name(run_id, holder.number)])  # we were so slow that our number had come and gone
        return None
    if number:
        with contextlib.suppress(StoreError):
            bucket.remove([_name(run_id, number)])
    return holder


def look(bucket: Bucket, run_id: str) -> Sighting | None:
    """The newest lock on a run; None when there is none."""
    number, data = _newest(bucket, run_id)
    return sighting(data) if number else None


def sighting(data: bytes | None) -> Sighting:
    """A lock as its content shows it."""
    fields = _fields(data)
    count = fields.get("count")
    beat = (count if isinstance(count, int) else 0, len(data or b""), hash(str(fields.get("token"))))
    try:
        return Sighting(Owner.from_dict(fields), fields.get("released") is True, beat)
    except StoreError:
        return Sighting(None, False, (0, len(data or b""), 0))


def newest_number(names: Iterable[str]) -> int:
    """The highest lock among the names of a run's objects; 0 when there is none."""
    matches = (NAME.fullmatch(name) for name in names)
    return max((int(match[1]) for match in matches if match), default=0)


def _newest(bucket: Bucket, run_id: str) -> tuple[int, bytes | None]:
    number = newest_number(bucket.names_in(run_id))
    return number, bucket.get(_name(run_id, number)) if number else None


def _name(run_id: str, number: int) -> str:
    return f"{run_id}/claim.{number}"


def _content(holder: Holder, lease: float, count: int, is_released: bool = False) -> bytes:
    fields = {**Owner.this_process(lease).to_dict(), "token": holder.token, "count": count, "released": is_released}
    return json.dumps(fields).encode()


def _fields(data: bytes | None) -> dict[str, Any]:
    """What a lock says; nothing if it cannot be read."""
    try:
        return parse_object(data or b"", "lock", StoreError)
    except StoreError:
        return {}
