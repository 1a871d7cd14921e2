"""Results on the screen and in the docs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from benchmarks.cost.results import Result
from benchmarks.cost.tables import Table, legend, notes, provenance, tables
from headway.errors import HeadwayError

BEGIN = "<!-- numbers: written by `headway bench --docs`, do not edit -->"
END = "<!-- end of numbers -->"


def show(result: Result, stream: TextIO | None = None) -> None:
    """Print the tables, with rich where it is installed."""
    stream = stream or sys.stdout
    for line in (provenance(result.machine), *legend(result)):
        print(line, file=stream)
    for table in tables(result):
        print(file=stream)
        if not _rich(table, stream):
            print(table.text(), file=stream)
    if found := list(notes(result)):
        print("", *found, sep="\n", file=stream)


def _rich(table: Table, stream: TextIO) -> bool:
    """Print a table with rich on a terminal; False where that is not possible."""
    if not stream.isatty():
        return False
    try:
        from rich import box
        from rich.console import Console
        from rich.table import Table as RichTable
    except ImportError:
        return False
    print(table.title, file=stream)
    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for number, column in enumerate(table.columns):
        drawn.add_column(column, justify="left" if number == 0 else "right", overflow="fold")
    for row in table.rows:
        drawn.add_row(*(_coloured(cell) for cell in row))
    Console(file=stream).print(drawn)
    return True


def _coloured(cell: str) -> str:
    return cell.replace(": met", ": [green]met[/]").replace(": missed", ": [red]missed[/]")


def markdown(result: Result) -> str:
    """The tables for the docs."""
    return "\n".join(_markdown(result))


def _markdown(result: Result) -> Iterator[str]:
    yield f"Measured on {provenance(result.machine)}\n"
    yield from (f"- {line}" for line in legend(result))
    for table in tables(result):
        yield f"\n{table.title}:\n"
        yield table.markdown()
    left_out = list(notes(result))
    if left_out:
        yield "\nNotes:\n"
        yield from (f"- {note}" for note in left_out)


def insert(page: str, numbers: str) -> str:
    """A docs page with other numbers between its markers.

    Raises:
        HeadwayError: the page does not have both markers.
    """
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise HeadwayError(f"expected a page with the lines {BEGIN!r} and {END!r}, got one without")
    return f"{head}{BEGIN}\n\n{numbers}\n\n{END}{tail}"


def numbers_of(page: str) -> str:
    """What stands between the markers of a docs page."""
    return page.partition(BEGIN)[2].partition(END)[0].strip()


def write_docs(result: Result, page: Path) -> None:
    """Put the tables into a docs page."""
    page.write_text(insert(page.read_text("utf-8"), markdown(result)), "utf-8")
