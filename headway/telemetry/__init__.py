"""Telemetry: what a model gets out of each of its data sources, over time."""

from headway.telemetry.monitor import SourceMonitor
from headway.telemetry.states import State, Thresholds
from headway.telemetry.writers import CsvWriter, TensorBoardWriter, WandbWriter, Writer, write_parquet

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
