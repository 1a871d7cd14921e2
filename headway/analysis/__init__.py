"""From runs to answers: loading, statistics, claims, figures and reports. Needs no torch."""

from headway.errors import MissingExtraError

try:
    from headway.analysis.exports import write_export
    from headway.analysis.results import (
        Failure,
        Group,
        Problem,
        Progress,
        Results,
        ResultsReader,
        RunData,
        load_results,
    )
except ModuleNotFoundError as error:
    if error.name != "numpy":
        raise
    raise MissingExtraError("numpy", "report") from error

write_lot = write_export  #: The former name of `write_export`

__all__ = [
    "Failure",
    "Group",
    "Problem",
    "Progress",
    "Results",
    "ResultsReader",
    "RunData",
    "load_results",
    "write_export",
    "write_lot",
]
