"""A report: one page that opens from disk, with its tables and figures beside it."""

from headway.analysis.report.writing import Written, write_report

__all__ = ["Written", "write_report"]
