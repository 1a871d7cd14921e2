"""A connection to a Ray cluster: finding or starting it, what it has room for, and whether it still answers."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from headway.errors import LauncherError, UsageError, import_extra
from headway.runs.launchers import LaunchOptions, cores, restored_signal_handlers

PATIENCE = 45.0
"""Seconds without an answer of the head after which a campaign gives up; Ray itself ends the process after 60."""
BEAT = 2.0
"""Seconds between two questions to the head."""
IGNORED_MESSAGES = ("A worker died or was killed while executing a task", "Task EventQueue.")
"""Remarks of Ray on what a campaign reports itself, or on what harms no run: an event queue away for a moment."""


def import_ray() -> Any:
    """Ray, imported when it is first needed."""
    return import_extra("ray", "ray")


@dataclass(frozen=True)
class Resources:
    """What a run takes up on a node: cores, and GPUs, less than one for runs that share a GPU."""

    cpus: float = 1.0
    gpus: float = 0.0

    @classmethod
    def of(cls, options: LaunchOptions) -> Resources:
        """What the options mean."""
        on_gpu = options.device != "cpu"
        if ":" in options.device:
            raise UsageError(
                f"expected a device without a number, got {options.device}: Ray chooses which; --device cuda"
            )
        if options.gpus_per_run is not None and options.runs_per_gpu is not None:
            raise UsageError("expected --gpus-per-run or --runs-per-gpu, got both")
        if not on_gpu and (options.gpus_per_run is not None or options.runs_per_gpu is not None):
            raise UsageError("expected --device cuda with GPUs for each run, got --device cpu")
        share = 1.0 / options.runs_per_gpu if options.runs_per_gpu else options.gpus_per_run or 1.0
        if share > 1 and share != int(share):
            raise UsageError(f"expected a part of a GPU or whole GPUs for each run, got {share:g}")
        return cls(options.cpus_per_run or 1.0, share if on_gpu else 0.0)

    def room_on(self, node: Mapping[str, float]) -> int:
        """How many runs a node of these resources has room for."""
        rooms = [node.get("CPU", 0.0) / self.cpus]
        if self.gpus:
            rooms.append(node.get("GPU", 0.0) / self.gpus)
        return int(min(rooms) + 1e-6)

    def __str__(self) -> str:
        """In words."""
        return f"{self.cpus:g} CPU" + (f" and {self.gpus:g} GPU" if self.gpus else "")


class Cluster:
    """A Ray cluster that this process is connected to."""

    def __init__(self, address: str, ray: Any) -> None:
        self.address = address
        self.ray = ray

    def nodes(self) -> list[Mapping[str, Any]]:
        """The nodes that are alive."""
        return [node for node in self.ray.nodes() if node["Alive"]]

    def check_room(self, resources: Resources) -> None:
        """Refuse runs that no node could ever take."""
        nodes = self.nodes()
        if not any(resources.room_on(node["Resources"]) for node in nodes):
            most = [max((n["Resources"].get(name, 0.0) for n in nodes), default=0.0) for name in ("CPU", "GPU")]
            raise LauncherError(
                f"expected a node with {resources} in the cluster {self.address}, got nodes with at most "
                f"{most[0]:g} CPU and {most[1]:g} GPU; ask for less (--cpus-per-run, --gpus-per-run, --runs-per-gpu) "
                f"or let such a node join first"
            )

    def here(self) -> str:
        """The id of the node that this process is connected through."""
        return str(self.ray.get_runtime_context().get_node_id())


@contextlib.contextmanager
def connected(address: str | None, workers: int | None) -> Iterator[Cluster]:
    """Be connected to a cluster; what was connected before stays so."""
    ray = import_ray()
    with contextlib.redirect_stdout(Remarks(sys.stderr)):
        if ray.is_initialized():
            yield Cluster(address or "of this process", ray)
            return
        name = _connect(ray, address, workers)
        try:
            yield Cluster(name, ray)
        finally:
            shutdown = threading.Thread(target=ray.shutdown, name="headway-ray-shutdown", daemon=True)
            shutdown.start()
            shutdown.join(PATIENCE / 3)  # without a head, it may wait for one


class Remarks(io.TextIOBase):
    """What Ray prints while a campaign goes on: passed on, but for what is no news."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._begun = ""

    def write(self, text: str) -> int:
        """Pass on whole lines."""
        *lines, self._begun = (self._begun + text).split("\n")
        kept = [line for line in lines if line.strip() and not any(remark in line for remark in IGNORED_MESSAGES)]
        if kept:
            self._stream.write("\n".join(kept) + "\n")
        return len(text)

    def flush(self) -> None:
        """Pass it on at once."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()


def _connect(ray: Any, address: str | None, workers: int | None) -> str:
    with restored_signal_handlers(), warnings.catch_warnings():
        # Ray replaces the handlers by its own when it starts, and warns about what will change in it
        warnings.simplefilter("ignore")
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        try:
            if address is None and _start(ray, {**options, "num_cpus": workers or cores(), "include_dashboard": False}):
                return "of this machine"
            info = ray.init(address=address, **options) if address else ray.init(**options)
        except Exception as error:  # Ray and gRPC raise errors of many kinds
            what = f"at {address}" if address else "on this machine, or to start one"
            got = ": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]])
            raise LauncherError(
                f"expected a Ray cluster {what}, got {got}; `ray status` shows what is there, and --launcher local "
                f"does without Ray"
            ) from error
    found = getattr(info, "address_info", None) or {}
    return str(found.get("gcs_address", address or "auto"))


def _start(ray: Any, options: Mapping[str, Any], has_another_try: bool = True) -> bool:
    """Start a cluster of this process's own; False if $RAY_ADDRESS or `ray start` offers one."""
    try:
        ray.init(**options)
    except ValueError:  # there is a cluster, which has its own idea of its cores
        return False
    except Exception:
        ray.shutdown()
        if not has_another_try:  # Ray gives up after half a minute, which a busy machine may take
            raise
        return _start(ray, options, has_another_try=False)
    return True


class HeadMonitor:
    """Asks the head again and again which nodes are alive, in a thread, since the answer may never come."""

    def __init__(self, cluster: Cluster, patience: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._cluster = cluster
        self._patience = patience
        self._clock = clock
        self._heard = clock()
        self._nodes: Sequence[Mapping[str, Any]] = cluster.nodes()
        self._here = cluster.here()
        self._over = threading.Event()
        threading.Thread(target=self._ask, name="headway-ray-monitor", daemon=True).start()

    def room(self, resources: Resources) -> int:
        """How many runs had room at once when the head last answered."""
        return sum(resources.room_on(node["Resources"]) for node in self._nodes)

    def problem(self) -> str:
        """What is wrong with the cluster; empty when all is well."""
        silence = self._clock() - self._heard
        if silence > self._patience:
            return f"the head of the Ray cluster {self._cluster.address} has not answered for {silence:.0f} s"
        if not any(node["NodeID"] == self._here for node in self._nodes):
            return f"the Ray node of this process has dropped out of the cluster {self._cluster.address}"
        return ""

    def stop(self) -> None:
        """Ask no more."""
        self._over.set()

    def _ask(self) -> None:
        while not self._over.wait(BEAT):
            with contextlib.suppress(Exception):  # no answer is what is noticed
                self._nodes = self._cluster.nodes()
                self._heard = self._clock()
