"""Every exception that headway raises on purpose, and the message for a missing extra.

A message reads "expected X, got Y" and then the way out.
"""

from __future__ import annotations


class HeadwayError(Exception):
    """Base of all errors that headway raises on purpose."""


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
        super().__init__(f"{package} is not installed; run: pip install 'headway[{extra}]'")


class SpecError(HeadwayError):
    """A run's description is not valid: a wrong type, a value that JSON cannot hold, broken text."""


class StoreError(HeadwayError):
    """A run store cannot be read or written; what was stored before is still whole."""


class DamagedError(StoreError):
    """A stored file is not as it was written: cut short, changed, or unreadable on the disk."""


class NewerSchemaError(SpecError, StoreError):
    """A file was written by a newer version of headway than this one."""


class ClaimLostError(StoreError):
    """Another process has taken this run over, so this one must stop writing to it."""


class UsageError(HeadwayError):
    """A command was given an option that makes no sense; the command line ends with exit code 2."""


class ExperimentError(HeadwayError):
    """There is no such experiment, or it did not keep its part of the agreement with the runner."""


class LauncherError(HeadwayError):
    """A campaign cannot go on: its processes do not start, or something is wrong that concerns every run."""


class WorkerLostError(HeadwayError):
    """The process that worked on a run is gone, and the run did not end."""
