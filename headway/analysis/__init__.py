"""From runs to answers: loading, statistics, claims, figures and reports. Needs no torch."""

from typing import TYPE_CHECKING, Any

from headway.errors import MissingExtraError

if TYPE_CHECKING:
    from headway.analysis.exports import write_export
    from headway.analysis.exports import write_export as write_lot

try:
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


def __getattr__(name: str) -> Any:
    """`write_export`, imported when it is used, also under its former name `write_lot`."""
    if name in ("write_export", "write_lot"):
        from headway.analysis.exports import write_export

        return write_export
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names."""
    return __all__
