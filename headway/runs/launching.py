"""Launchers by name, and what a command asks of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from headway.errors import UsageError, did_you_mean
from headway.runs.campaign import cores
from headway.runs.launchers import InProcess, Launcher
from headway.runs.processes import LocalProcesses
from headway.runs.stopping import STALL_SECONDS


@dataclass(frozen=True)
class Request:
    """How runs are to be carried out; None leaves a choice to the launcher.

    Attributes:
        workers: how many runs go on at once, at most; 0 runs in the calling process.
        device: where the tensors live.
        address: of the cluster.
        cpus_per_run: cores that a run gets.
        gpus_per_run: GPUs that a run gets; a part of one, such as 0.25, lets several runs share it.
        runs_per_gpu: how many runs share a GPU.
        stall_seconds: after so many without progress, a campaign says that a run stands still.
    """

    workers: int | None = None
    device: str = "cpu"
    address: str | None = None
    cpus_per_run: float | None = None
    gpus_per_run: float | None = None
    runs_per_gpu: int | None = None
    stall_seconds: float = STALL_SECONDS


Maker: TypeAlias = Callable[[Request], Launcher]
_MAKERS: dict[str, Maker] = {}


def register_launcher(name: str, make: Maker) -> None:
    """Add a launcher, or the same one again.

    Args:
        name: what `--launcher` calls it.
        make: makes it of a request; it should import what it needs only then.

    Raises:
        UsageError: the name belongs to another launcher.
    """
    if _MAKERS.get(name, make) is not make:
        raise UsageError(f"expected a new name for a launcher, got {name!r} twice")
    _MAKERS[name] = make


def known_launchers() -> list[str]:
    """The names of all launchers."""
    return list(_MAKERS)


def make_named_launcher(name: str, request: Request) -> Launcher:
    """Make a launcher.

    Raises:
        UsageError: there is none of this name, or it cannot do what it is asked for.
        MissingExtraError: it needs a package that is not installed.
    """
    if name not in _MAKERS:
        hint = did_you_mean(name, _MAKERS)
        raise UsageError(f"expected a launcher out of {', '.join(_MAKERS)}, got {name!r}{hint}")
    return _MAKERS[name](request)


def make_local(request: Request) -> Launcher:
    """The launcher for processes of this machine, one for each core unless told otherwise; 0 is this process.

    Raises:
        UsageError: the request is about a cluster, or about GPUs that are not there.
    """
    for option in ("address", "cpus_per_run", "gpus_per_run"):
        if getattr(request, option) is not None:
            words = option.replace("_", "-")
            raise UsageError(f"expected --{words} with a cluster's launcher, got the local one; add --launcher ray")
    devices = gpus_for(request.device) if request.runs_per_gpu is not None else ()
    room = len(devices) * (request.runs_per_gpu or 0)
    if request.workers == 0:
        return InProcess()
    if devices:
        return LocalProcesses(min(request.workers or room, room), devices, request.stall_seconds)
    return LocalProcesses(request.workers or cores(), stall_seconds=request.stall_seconds)


def gpus_for(device: str, count: Callable[[], int] | None = None) -> tuple[str, ...]:
    """The GPUs that a device's name stands for: "cuda" for all of this machine, "cuda:1" for one.

    Args:
        device: the name.
        count: how many GPUs there are; torch knows by default.

    Raises:
        UsageError: it is no GPU, or there is none.
    """
    kind, _, number = device.partition(":")
    if kind == "cpu":
        raise UsageError("expected --runs-per-gpu with a GPU, got --device cpu; --device cuda uses all of them")
    if number:
        return (device,)
    found = (count or _accelerators)()
    if not found:
        raise UsageError(f"expected a GPU for --device {device}, got none on this machine")
    return tuple(f"{kind}:{index}" for index in range(found))


def _accelerators() -> int:
    import torch

    return torch.accelerator.device_count() if torch.accelerator.is_available() else 0


def make_ray(request: Request) -> Launcher:
    """The launcher for a Ray cluster; Ray is imported only here."""
    from headway.runs.ray import make_ray as make

    return make(request)


register_launcher("local", make_local)
register_launcher("ray", make_ray)
