"""Which process holds a claim, and whether it still lives."""

from __future__ import annotations

import os
import re
import socket
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from headway.errors import StoreError

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
        """Make an owner from what `to_dict` gives.

        Raises:
            StoreError: a field is missing or has the wrong type.
        """
        texts = [data.get(name) for name in ("host", "machine", "started")]
        pid, lease = data.get("pid"), data.get("lease")
        numbers = isinstance(pid, int) and isinstance(lease, (int, float)) and 0 < lease < 1e9
        if not numbers or not all(isinstance(text, str) for text in texts):
            raise StoreError(f"expected the fields of a claim, got {str(dict(data))[:100]}")
        return cls(str(texts[0]), str(texts[1]), int(data["pid"]), str(texts[2]), float(data["lease"]))

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


def uptime() -> float:
    """Seconds since this machine was started; infinite where the system does not tell."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return float("inf") if clock is None else time.clock_gettime(clock)


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
