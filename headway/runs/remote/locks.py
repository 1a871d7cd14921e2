"""Claims on runs behind a URL: numbered objects, of which the highest counts, as in `headway.runs.locks`.

There are no links and no times of change here. A claim is created exclusively where the store can do that; its holder
rewrites it with a count that goes up, and whoever waits looks for a change of that count.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from headway.errors import ClaimLostError, StoreError
from headway.runs.jsonable import parse_object
from headway.runs.locks import BEATS_PER_LEASE, MAX_LEASE, LeaseWatch, Sighting
from headway.runs.owner import Owner
from headway.runs.remote.bucket import Bucket
from headway.runs.remote.manifest import Holder

NAME = re.compile(r"claim\.([1-9][0-9]{0,8})", re.ASCII)


class RemoteClaim:
    """A run that this process holds; a thread shows signs of life meanwhile.

    Args:
        bucket: where the run is.
        run_id: the run.
        holder: the claim's number and token.
        lease: seconds of silence after which others may take over.
        staging: a folder of this process's own, on the file system of its working copy.
        ended: called when the run is given back.
    """

    def __init__(
        self,
        bucket: Bucket,
        run_id: str,
        holder: Holder,
        lease: float,
        staging: Path,
        ended: Callable[[], object] = lambda: None,
    ) -> None:
        """Hold a claim that this process has just created."""
        self.holder = holder
        self.staging = staging
        self._bucket = bucket
        self._run_id = run_id
        self._lease = lease
        self._ended = ended
        self._count = 0
        self._lost = False
        self._lock = (
            threading.RLock()
        )  # where objects are not replaced in one step, a look would see half a sign of life
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat_until_stopped, name="headway-remote-claim", daemon=True)
        self._thread.start()

    @property
    def number(self) -> int:
        """How many times the run has been claimed."""
        return self.holder.number

    def check(self) -> None:
        """Make sure that the run is still this process's, as far as its last sign of life has shown.

        Raises:
            ClaimLostError: another process holds it now, or it was released.
        """
        if self._lost or self._stop.is_set():
            raise ClaimLostError(
                f"expected to hold {_name(self._run_id, self.number)} in {self._bucket.url}, got a claim of another "
                f"process in its place, which goes on with the run; nothing of it is lost"
            )

    def verify(self) -> None:
        """Look whether the run is still this process's.

        Raises:
            ClaimLostError: as `check`.
            StoreError: the store cannot be read.
        """
        with self._lock:
            number, data = _newest(self._bucket, self._run_id)
        if number != self.number or _token(data) != self.holder.token:
            self._lost = True
        self.check()

    def beat(self) -> None:
        """Show a sign of life; a store that is away for a moment is no trouble.

        Raises:
            ClaimLostError: as `check`.
        """
        try:
            with self._lock:
                self.verify()
                self._count += 1
                self._bucket.put(_name(self._run_id, self.number), _content(self.holder, self._lease, self._count))
        except ClaimLostError:
            raise
        except StoreError:
            pass  # the next sign of life tries again

    def release(self) -> None:
        """Give the run back; does nothing when it is not held any more."""
        if self._stop.is_set():
            return
        self._stop.set()
        self._thread.join()
        with contextlib.suppress(StoreError):  # the lease ends some time, and then the claim is over too
            if not self._lost:
                released = _content(self.holder, self._lease, self._count, is_released=True)
                self._bucket.put(_name(self._run_id, self.number), released)
        self._ended()

    def _beat_until_stopped(self) -> None:
        while not self._stop.wait(min(self._lease, MAX_LEASE) / BEATS_PER_LEASE):
            try:
                self.beat()
            except ClaimLostError:
                return


def try_claim(bucket: Bucket, run_id: str, watch: LeaseWatch, lease: float) -> Holder | None:
    """Create the next claim on a run if its newest is over; None when another process holds it.

    Raises:
        StoreError: the store cannot be read or written.
    """
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
    """The newest claim on a run; None when there is none.

    Raises:
        StoreError: the store cannot be read.
    """
    number, data = _newest(bucket, run_id)
    return sighting(data) if number else None


def sighting(data: bytes | None) -> Sighting:
    """A claim as its content shows it."""
    try:
        fields = parse_object(data or b"", "claim", StoreError)
        count = fields.get("count")
        beat = (count if isinstance(count, int) else 0, len(data or b""), hash(str(fields.get("token"))))
        return Sighting(Owner.from_dict(fields), fields.get("released") is True, beat)
    except StoreError:
        return Sighting(None, False, (0, len(data or b""), 0))


def is_over(path: str, seen: Sighting, watch: LeaseWatch) -> bool:
    """Tell whether nobody holds a claim any more."""
    if seen.released:
        return True
    alive = seen.is_alive()
    return watch.is_silent(Path(path), seen) if alive is None else not alive


def newest_number(names: Iterable[str]) -> int:
    """The highest claim among the names of a run's objects; 0 when there is none."""
    matches = (NAME.fullmatch(name) for name in names)
    return max((int(match[1]) for match in matches if match), default=0)


def _newest(bucket: Bucket, run_id: str) -> tuple[int, bytes | None]:
    start = len(run_id) + 1
    number = newest_number(name[start:] for name in bucket.names(run_id))
    return number, bucket.get(_name(run_id, number)) if number else None


def _name(run_id: str, number: int) -> str:
    return f"{run_id}/claim.{number}"


def _content(holder: Holder, lease: float, count: int, is_released: bool = False) -> bytes:
    fields = {**Owner.this_process(lease).to_dict(), "token": holder.token, "count": count, "released": is_released}
    return json.dumps(fields).encode()


def _token(data: bytes | None) -> str:
    try:
        return str(parse_object(data or b"", "claim", StoreError).get("token"))
    except StoreError:
        return ""
