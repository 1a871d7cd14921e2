"""The command line itself; each subcommand is tested beside its part."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType
from typing import cast

import pytest

import headway
from headway.commands import main as cli


class Fake:
    """A subcommand that does what the test says."""

    def __init__(self, work: Callable[[], int]) -> None:
        self.work = work

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--number", type=int, default=0)

    def execute(self, options: argparse.Namespace) -> int:
        return options.number + self.work()


@pytest.fixture
def add(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], int]], None]:
    """Adds a subcommand `fake`, and one `broken` that cannot be imported."""

    def adding(work: Callable[[], int]) -> None:
        monkeypatch.setitem(sys.modules, "fake_command", cast(ModuleType, Fake(work)))
        commands = {"fake": cli.Command("does something", "fake_command")}
        commands["broken"] = cli.Command("is never used", "no_such_module_at_all")
        monkeypatch.setattr(cli, "COMMANDS", commands)

    return adding


def fail(error: BaseException) -> Callable[[], int]:
    def work() -> int:
        raise error

    return work


def test_a_subcommand_gets_its_options_and_gives_the_exit_code(add: Callable[..., None]) -> None:
    add(lambda: 3)
    assert cli.main(["fake"]) == 3
    assert cli.main(["fake", "--number", "4"]) == 7


def test_an_explained_error_is_a_message_and_exit_code_1(
    add: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    add(fail(headway.HeadwayError("expected X, got Y")))
    assert cli.main(["fake"]) == 1
    assert capsys.readouterr().err == "headway: expected X, got Y\n"


def test_ctrl_c_is_exit_code_130(add: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    add(fail(KeyboardInterrupt()))
    assert cli.main(["fake"]) == 130
    assert capsys.readouterr().err == "headway: interrupted\n"


def test_other_errors_are_not_hidden(add: Callable[..., None]) -> None:
    add(fail(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        cli.main(["fake"])


def test_help_lists_the_commands_without_importing_them(
    add: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    add(lambda: 0)
    with pytest.raises(SystemExit) as stop:
        cli.main(["--help"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    assert "does something" in out
    assert "is never used" in out


@pytest.mark.parametrize("arguments", [[], ["unknown"], ["--unknown"], ["fake", "--number", "x"]])
def test_a_wrong_command_line_is_exit_code_2(
    arguments: list[str], add: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    add(lambda: 0)
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2
    assert "usage: headway" in capsys.readouterr().err


def test_without_a_command_all_are_listed(add: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    add(lambda: 0)
    with pytest.raises(SystemExit) as stop:
        cli.main([])
    assert stop.value.code == 2
    assert "does something" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "usage", "hint"),
    [
        (["claims", "--breif"], "usage: headway claims", "--breif; did you mean --brief?"),
        (["claims", "--protocl=all"], "usage: headway claims", "--protocl=all; did you mean --protocol?"),
        (["run", "controlled", "--dryrun"], "usage: headway run controlled", "--dryrun; did you mean --dry-run?"),
        (["run", "controlled", "--colour"], "usage: headway run controlled", "arguments: --colour"),
    ],
)
def test_an_unknown_option_is_told_by_its_command(
    arguments: list[str], usage: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert usage in error
    assert hint in error


def test_bench_without_the_repository_says_where_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "benchmarks", None)
    for name in [name for name in sys.modules if name.startswith("benchmarks.")]:
        monkeypatch.delitem(sys.modules, name)
    assert cli.main(["bench"]) == 2
    assert "clone the repository" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["f", "fak", "fake"])
def test_the_beginning_of_a_command_is_enough(name: str, add: Callable[..., None]) -> None:
    add(lambda: 3)
    assert cli.main([name, "--number", "4"]) == 7


def test_a_beginning_of_several_commands_names_them(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["f"])
    assert stop.value.code == 2
    assert "did you mean fetch or figures?" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "shown"), [(["help"], "does something"), (["help", "fake"], "--number")])
def test_help_is_a_command(
    words: list[str], shown: str, add: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    add(lambda: 0)
    with pytest.raises(SystemExit) as stop:
        cli.main(words)
    assert stop.value.code == 0
    assert shown in capsys.readouterr().out


def test_the_help_needs_no_torch() -> None:
    code = "import sys, headway.commands.main as cli; cli.make_parser(['--help']); print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


def test_the_module_runs_as_a_command() -> None:
    command = [sys.executable, "-m", "headway", "--version"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout == f"headway {headway.__version__}\n"
