"""Runs: what a run is (`RunSpec`), and where it is kept (`RunStore`). Needs no torch."""

from headway.runs.checkpoints import Checkpoint
from headway.runs.files import FileSum, Write, Writer
from headway.runs.jsonable import Json
from headway.runs.metrics import Columns
from headway.runs.run import Run
from headway.runs.spec import RunSpec
from headway.runs.status import RunRecord, State, Status
from headway.runs.store import RunStore

__all__ = [
    "Checkpoint",
    "Columns",
    "FileSum",
    "Json",
    "Run",
    "RunRecord",
    "RunSpec",
    "RunStore",
    "State",
    "Status",
    "Write",
    "Writer",
]
