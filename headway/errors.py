"""Every exception that headway raises on purpose, the message for a missing extra, and warnings.

A message reads "expected X, got Y" and then the way out.
"""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Collection, Iterable, Mapping
from importlib import import_module
from typing import Any


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: "; did you mean X?", or nothing if no known name is close."""
    close = difflib.get_close_matches(str(name), list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


class HeadwayError(Exception):
    """Base of all errors that headway raises on purpose."""


def check_known(what: str, names: Iterable[str], known: Collection[str], error: type[HeadwayError]) -> None:
    """Refuse the first name that is not known, and list those that are."""
    for name in names:
        if name not in known:
            raise error(f"expected {what} out of {', '.join(known)}, got {name!r}{did_you_mean(name, known)}")


class LossError(HeadwayError):
    """The losses cannot be scored: wrong shape, no samples, or no path to the model."""


class ModelError(HeadwayError):
    """The model cannot be metered, or has changed since the meter was attached."""


class LayoutError(HeadwayError):
    """A tensor does not show which of its rows belong to which sample."""


class RuleError(HeadwayError):
    """A module has no exact per-sample gradient, or the rule for it is unusable."""


class UnscoredGradientError(HeadwayError):
    """A parameter received gradient that no rule accounted for."""


class VerificationError(HeadwayError):
    """Scores differ from one-sample-at-a-time autograd by more than rounding."""


class SignalError(HeadwayError):
    """A signal was configured or used in a way that has no meaning."""


class SelectionError(HeadwayError):
    """An actor or a sampler was configured or used in a way that has no meaning."""


class EnvError(HeadwayError):
    """An environment is not one that exploration can work with: its spaces, or how it begins new episodes."""


class MethodError(HeadwayError):
    """There is no such exploration method, or it was configured in a way that has no meaning."""


class ProtocolError(HeadwayError):
    """A protocol has no such field, or the field no such value."""


class StateError(HeadwayError):
    """A state dict does not fit the object that it is loaded into."""


class DataError(HeadwayError):
    """A dataset is missing, damaged, or not what its name says."""


class MissingExtraError(HeadwayError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        """Name the package that is missing and the command that installs it."""
        super().__init__(f"{package} is not installed; run: {_install(extra)}")
        self.package = package


def import_extra(module: str, extra: str) -> Any:
    """Import a module of a package that an extra brings.

    Raises:
        MissingExtraError: the package is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(module.partition(".")[0], extra) from error


class WrongVersionError(HeadwayError, ImportError):
    """An optional dependency is installed in a version that headway does not work with."""

    def __init__(self, package: str, least: str, found: str, extra: str) -> None:
        """Name both versions and the command that installs a newer one."""
        super().__init__(f"expected {package} {least} or newer, got {found}; run: {_install(extra, '--upgrade ')}")


def _install(extra: str, option: str = "") -> str:
    return f"pip install {option}'headway-torch[{extra}]', or in a clone: pip install {option}'.[{extra}]'"


class IntegrationError(HeadwayError):
    """Another library is set up in a way that headway cannot work with."""


class SpecError(HeadwayError):
    """A run's description is not valid: a wrong type, a value that JSON cannot hold, broken text."""


class StoreError(HeadwayError):
    """A run store cannot be read or written; what was stored before is still whole."""


class DamagedError(StoreError):
    """A stored file is not as it was written: cut short, changed, or unreadable on the disk."""


class NewerSchemaError(SpecError, StoreError):
    """A file was written by a newer version of headway than this one."""


class LockLostError(StoreError):
    """Another process has taken this run over, so this one must stop writing to it."""


ClaimLostError = LockLostError
"""The former name."""


class FigureError(HeadwayError):
    """A figure cannot be drawn: values of the wrong shape, or no such format."""


class UsageError(HeadwayError):
    """A command was given an option that makes no sense; the command line ends with exit code 2."""


class ExperimentError(HeadwayError):
    """There is no such experiment, or it did not keep its part of the agreement with the runner."""


class LauncherError(HeadwayError):
    """A campaign cannot go on: its processes do not start, or something is wrong that concerns every run."""


class WorkerLostError(HeadwayError):
    """The process that worked on a run is gone, and the run did not end."""


class ServerError(HeadwayError):
    """The live page cannot be served: the port is taken, or the address is not this machine's."""


def warn(message: str) -> None:
    """Warn at the line of the user's code that led here: the innermost one that is neither ours nor torch's."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and _is_library(frame.f_globals):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)


def _is_library(module: Mapping[str, Any]) -> bool:
    return str(module.get("__name__", "")).partition(".")[0] in ("headway", "torch")
