import io

import pytest

from headway.data.progress import PlainLines, progress_display


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_lines_come_at_each_quarter() -> None:
    stream = io.StringIO()
    lines = PlainLines(stream)
    for done in range(0, 2_000_001, 100_000):
        lines("f.gz", done, 2_000_000)
    assert stream.getvalue().splitlines() == [
        f"downloading f.gz: {percent}% of 2.0 MB" for percent in (0, 25, 50, 75, 100)
    ]


def test_each_file_has_its_own_lines() -> None:
    stream = io.StringIO()
    lines = PlainLines(stream)
    for name in ("a", "b"):
        lines(name, 0, 10)
        lines(name, 10, 10)
    assert stream.getvalue().count("\n") == 4


def test_what_is_no_terminal_gets_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_display() as show:
        show("f.gz", 0, 1_000_000)
    assert capsys.readouterr().err == "downloading f.gz: 0% of 1.0 MB\n"


def test_a_terminal_without_rich_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    stream = Terminal()
    with progress_display(stream) as show:
        show("f.gz", 0, 1_000_000)
    assert stream.getvalue() == "downloading f.gz: 0% of 1.0 MB\n"


def test_a_terminal_with_rich_gets_a_bar() -> None:
    pytest.importorskip("rich", reason="shows the bar of rich")
    stream = Terminal()
    with progress_display(stream) as show:
        for done in (0, 500_000, 1_000_000):
            show("f.gz", done, 1_000_000)
    assert "f.gz" in stream.getvalue()
    assert "1.0/1.0 MB" in stream.getvalue()
