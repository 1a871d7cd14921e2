"""Finding a run by what a user types: its folder, its id, or how its id begins."""

from __future__ import annotations

from pathlib import Path

from headway.errors import UsageError
from headway.runs import RunRecord, RunStore

_SHOWN = 5


def find_run(text: str, store: Path) -> tuple[RunStore, RunRecord]:
    """The run that is meant, and the store that it is in.

    Args:
        text: the folder of a run, or an id or its beginning.
        store: the folder of the store that ids are looked up in.

    Raises:
        UsageError: there is no such run, or there are several.
        StoreError: there is no store.
    """
    folder = Path(text)
    if (folder / "spec.json").is_file():
        home = RunStore(folder.resolve().parent)
        return home, home.record(folder.resolve().name)
    home = RunStore(store)
    records = home.status()
    found = [record for record in records if record.run_id.startswith(text)] if text else []
    if len(found) == 1:
        return home, found[0]
    if not found:
        raise UsageError(
            f"expected the folder of a run, or an id in {store} or its beginning, got {text!r}; "
            f"the runs: headway status {store}"
        )
    names = ", ".join(f"{record.run_id} ({record.spec})" for record in found[:_SHOWN])
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    raise UsageError(f"expected an id of one run in {store}, got {text!r}, which begins {len(found)}: {names}{more}")
