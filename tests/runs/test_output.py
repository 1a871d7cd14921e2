"""What commands print, to readers of all kinds."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from headway.runs.text import complain, emit, plain, write_line


class Unwritable(io.StringIO):
    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error

    def flush(self) -> None:
        raise self.error


def test_text_is_printed_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert emit("one")
    assert emit()
    assert capsys.readouterr().out == "one\n\n"


def test_a_reader_that_has_gone_does_no_harm(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", Unwritable(BrokenPipeError()))
    assert emit("text")
    monkeypatch.setattr(sys, "stdout", None)
    assert emit("text")
    assert capsys.readouterr().err == ""


def test_a_full_disk_is_told_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert not emit("text")
        assert emit("more")  # which goes nowhere, as closing it does
    assert capsys.readouterr().err == "headway: cannot write to the standard output: No space left on device\n"


def test_characters_that_a_stream_does_not_have_are_replaced() -> None:
    inner = io.BytesIO()
    stream = io.TextIOWrapper(inner, encoding="ascii")
    write_line(stream, "loss … 0.5")
    write_line(stream, "plain")
    assert inner.getvalue() == b"loss ? 0.5\nplain\n"


def test_control_characters_are_shown_and_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    emit("a\x1b[31mred\x07\r\x9b2J\x7f\u202etxt\tb\nc")
    complain("\x1b]0;title\x07")
    out, err = capsys.readouterr()
    assert out == "a\\x1b[31mred\\x07\\r\\x9b2J\\x7f\\u202etxt\tb\nc\n"
    assert err == "\\x1b]0;title\\x07\n"
    assert plain("a\nb", "") == "a\\nb"
