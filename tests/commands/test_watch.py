"""Waiting for a store that is made later; serving is tested with the live page."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.commands.watch import wait_for_files


def test_it_waits_for_a_store_that_does_not_exist_yet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "runs"
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 1:
            store.mkdir()
        else:
            (store / "store.json").touch()

    wait_for_files(store, pause)
    assert len(pauses) == 2
    assert f"waiting for runs in {store}" in capsys.readouterr().out
    wait_for_files(store, pause)
    assert len(pauses) == 2
