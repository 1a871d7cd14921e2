"""Telemetry: what a model gets out of each of its data sources, over time."""

from typing import TYPE_CHECKING, Any

from headway.telemetry.states import State, Thresholds
from headway.telemetry.writers import CsvWriter, TensorBoardWriter, WandbWriter, Writer, write_parquet

if TYPE_CHECKING:
    from headway.telemetry.monitor import SourceMonitor

__all__ = [
    "CsvWriter",
    "SourceMonitor",
    "State",
    "TensorBoardWriter",
    "Thresholds",
    "WandbWriter",
    "Writer",
    "write_parquet",
]


def __getattr__(name: str) -> Any:
    """Import the monitor when it is asked for: it needs torch, and readers of its rows do not."""
    if name != "SourceMonitor":
        raise AttributeError(f"module 'headway.telemetry' has no attribute {name!r}")
    from headway.telemetry.monitor import SourceMonitor

    return SourceMonitor


def __dir__() -> list[str]:
    """The public names."""
    return __all__
