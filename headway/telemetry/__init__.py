"""Telemetry: what a model gets out of each of its data sources, over time."""

from typing import TYPE_CHECKING, Any

from headway.telemetry.states import State, Thresholds
from headway.telemetry.writers import CsvWriter, TensorBoardWriter, WandbWriter, Writer, write_parquet

if TYPE_CHECKING:
    from headway.telemetry.monitor import SourceMonitor, chance_losses

__all__ = [
    "CsvWriter",
    "SourceMonitor",
    "State",
    "TensorBoardWriter",
    "Thresholds",
    "WandbWriter",
    "Writer",
    "chance_losses",
    "write_parquet",
]


def __getattr__(name: str) -> Any:
    """Import the monitor when it is asked for: it needs torch, and readers of its rows do not."""
    if name not in ("SourceMonitor", "chance_losses"):
        raise AttributeError(f"module 'headway.telemetry' has no attribute {name!r}")
    from headway.telemetry import monitor

    return getattr(monitor, name)


def __dir__() -> list[str]:
    """The public names."""
    return __all__
