"""What is fuzzed: functions that take any bytes, and raise only where there is a bug.

Readers may refuse what they are given with an error of headway's own, and nothing else.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import gzip
import io
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from unittest import mock

from headway.commands.campaign_file import read_campaign_file
from headway.commands.main import main
from headway.commands.options import Shard, parse_place
from headway.data.catalogue import CATALOGUE
from headway.data.cifar import iter_members, parse_batch, unpickle
from headway.data.files import read_bounded
from headway.data.idx import parse_images, parse_labels
from headway.errors import DataError, HeadwayError, ProtocolError, SpecError, StoreError, UsageError
from headway.runs import FileSum, RunSpec, RunStore, State, Status
from headway.runs.metrics import RowLog, from_parquet, to_parquet
from headway.runs.url_attempts import Holder, Manifest, Part, parse_lock
from headway.study.protocols.classification import Protocol
from headway.study.requests import seeds, settings, sweeps
from tests.data.formats import colour_rows, grey_images, idx_bytes, labels_for, python2_batch
from tests.runs.helpers import checkpointed, finish, spec_of

FILES = ("spec.json", "status.json", "metrics.parquet", "checkpoint.0", "checkpoint.1", "claim.1", "store.json")


@dataclass(frozen=True)
class Target:
    """A function to feed with bytes.

    Attributes:
        feed: the function.
        seeds: inputs to begin with.
    """

    feed: Callable[[bytes], object]
    seeds: Callable[[], list[bytes]]


def feed_spec(data: bytes) -> None:
    """A spec that is accepted is the same when it is written and read again."""
    try:
        spec = RunSpec.from_json(data)
    except SpecError:
        return
    again = RunSpec.from_json(spec.to_json())
    assert again == spec
    assert again.run_id == spec.run_id
    assert RunSpec.from_dict(spec.to_dict()).run_id == spec.run_id


def feed_status(data: bytes) -> None:
    with contextlib.suppress(StoreError):
        status = Status.from_json(data)
        assert Status.from_json(status.to_json()).run_id == status.run_id


def feed_manifest(data: bytes) -> None:
    assert parse_lock(data).beat is not None
    with contextlib.suppress(StoreError):
        manifest = Manifest.from_bytes(data, "x", "manifest")
        assert Manifest.from_bytes(manifest.to_bytes(), "x", "manifest") == manifest
        for name, part in manifest.files.items():
            assert "/" not in name + part.object  # it cannot lead out of the run's folder


@cache
def example() -> RunStore:
    """A store with a run that is done and one that is not."""
    folder = tempfile.mkdtemp(prefix="headway-fuzz-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    store = RunStore(folder)
    finish(store, spec_of(0))
    checkpointed(store, spec_of(1), 1, 2).interrupt()
    return store


def feed_store(data: bytes) -> None:
    """Put the bytes in the place of a file, and read everything; then carry on with the run."""
    whole = example()
    seed, name = (data[0] % 2, FILES[data[0] // 2 % len(FILES)]) if data else (0, FILES[0])
    run_id = spec_of(seed).run_id
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "store"
        shutil.copytree(whole.root, root)
        (root / name if name == "store.json" else root / run_id / name).write_bytes(data[1:])
        store = RunStore(root)
        with contextlib.suppress(StoreError):
            assert len(store.status()) == 2
            store.problems(run_id)
        with contextlib.suppress(StoreError):
            assert store.metrics(run_id).get("step", []) in ([], [1], [1, 2], [1, 2, 3])
        with contextlib.suppress(HeadwayError):
            carry_on(store, seed)


def carry_on(store: RunStore, seed: int) -> None:
    run = store.lock(spec_of(seed))
    if run is None:
        return
    with run:
        checkpoint = run.restore()
        assert checkpoint is None or checkpoint.payload == b"state %d" % checkpoint.step
        run.finish()
    assert store.record(spec_of(seed).run_id).state is State.DONE


def feed_parquet(data: bytes) -> None:
    with contextlib.suppress(StoreError):
        from_parquet(data, "file")


def feed_idx(data: bytes) -> None:
    with contextlib.suppress(DataError):
        images = parse_images(data, (28, 28), 100, "file")
        assert images.shape[1:] == (1, 28, 28)
    with contextlib.suppress(DataError):
        labels = parse_labels(data, 10, 100, "file")
        assert labels.max() < 10


def feed_pickle(data: bytes) -> None:
    with contextlib.suppress(DataError):
        value = unpickle(data, "file")
        assert isinstance(value, dict | list | tuple | int | str | bytes | type(None))
    with contextlib.suppress(DataError):
        split = parse_batch(data, CATALOGUE["cifar10"], "file")
        assert len(split.images) == len(split.labels)


def feed_archive(data: bytes) -> None:
    """Nothing is ever written beside the archive, whatever its names say."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "archive"
        path.write_bytes(data)
        with contextlib.suppress(DataError):
            for name, content in iter_members(path, {"folder/wanted", "../escaped"}, 10_000, 100_000):
                assert name in ("folder/wanted", "../escaped")
                assert len(content) <= 10_000
        with contextlib.suppress(DataError):
            assert len(read_bounded(path, 10_000)) <= 10_000
        assert [item.name for item in Path(folder).iterdir()] == ["archive"]
        assert not (Path(folder).parent / "escaped").exists()


def feed_words(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    with contextlib.suppress(UsageError):
        found = seeds("seeds", text)
        assert len(set(found)) == len(found)
    with contextlib.suppress(UsageError, ProtocolError):
        Protocol.released().override(settings("set", text.splitlines()))
    with contextlib.suppress(UsageError):
        sweeps("sweep", text.splitlines())
    with contextlib.suppress(argparse.ArgumentTypeError):
        shard = Shard.parse(text)
        assert 1 <= shard.index <= shard.of
    with contextlib.suppress(ValueError, argparse.ArgumentTypeError):  # as argparse does
        parse_place(text)


def feed_campaign_file(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "campaign.toml"
        path.write_bytes(data)
        with contextlib.suppress(UsageError), mock.patch("headway.commands.campaign_file.load_plugins"):
            assert read_campaign_file(path).sections


def feed_command(data: bytes) -> None:
    """Any words on the command line end with an exit code and, if it is not 0, a message; nothing is carried out."""
    words = data.decode("utf-8", "replace").split("\0")
    command, *options = words if words[0] in ("status", "fetch") else ["run", *words]
    with tempfile.TemporaryDirectory() as folder:
        place = [folder] if command in ("status", "fetch") else ["--out", folder, "--print-jobs"]
        arguments = [command, *(option.replace("--campaign", "") for option in options), *place]
        output = io.StringIO(), io.StringIO()
        with (
            contextlib.redirect_stdout(output[0]),
            contextlib.redirect_stderr(output[1]),
            mock.patch("headway.commands.run.load"),  # nothing is to be downloaded ...
            mock.patch("headway.commands.run.load_plugins"),  # ... or imported
        ):
            try:
                code = main(arguments)
            except SystemExit as stop:
                code = stop.code if isinstance(stop.code, int) else 1
        assert code in (0, 1, 2), (arguments, code)
        assert code == 0 or output[1].getvalue(), arguments
        assert "Traceback" not in output[1].getvalue()


def batch() -> bytes:
    return python2_batch(colour_rows(3), [0, 1, 2])


def archive() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name in ("folder/other", "folder/wanted", "../escaped"):
            info = tarfile.TarInfo(name)
            info.size = 700
            tar.addfile(info, io.BytesIO(bytes(700)))
    return buffer.getvalue()


def stored() -> list[bytes]:
    store, found = example(), []
    for seed in range(2):
        for index, name in enumerate(FILES[:-1]):
            path = store.root / spec_of(seed).run_id / name
            if path.exists():
                found.append(bytes([2 * index + seed]) + path.read_bytes())
    return found


def parquet() -> bytes:
    log = RowLog()
    for step in range(5):
        log.append({"step": step, "loss": 0.5, "arms": [1, 2.5], "name": "x", "ok": True})
    return to_parquet(log.columns(), {"headway.run_id": "x"})


def manifest() -> bytes:
    status = Status("x", State.RUNNING, 1, "host", 1, 0.0, 0.0)
    holder = Holder(1, "0" * 16)
    part = Part(**vars(FileSum.of(b"weights")), object=holder.object_name("final.pt", 1))
    return Manifest("x", **vars(holder), generation=1, status=status, files={"final.pt": part}).to_bytes()


def spec_text() -> bytes:
    protocol = Protocol.released().to_dict()
    return (
        RunSpec(experiment="e", method="m", seed=1, params={"a": [1, 2.5, None]}, protocol=protocol).to_json().encode()
    )


def command_lines() -> list[bytes]:
    lines = [
        ["controlled", "--seeds", "0:3", "--signal", "gmc", "uniform", "--set", "beta=0.9"],
        ["ablation", "--dataset", "digits", "--epochs", "3", "--shard", "1/2"],
        ["sensitivity", "--sweep", "beta=0.9,0.99", "--launcher", "local", "--workers", "0"],
        ["controlled", "--only", "0" * 16, "--runs-per-gpu", "2", "--device", "cuda"],
        ["status", "--json"],
        ["fetch", "memory://x"],
    ]
    return ["\0".join(line).encode() for line in lines]


IMAGES, LABELS = idx_bytes(grey_images(3)), idx_bytes(labels_for(7))
TOO_LARGE = bytes.fromhex("00000803e800000000000000ffffa651")  # no entries of an impossible size; found by a search
SECTION = b"""[[section]]
name = "one"
experiment = "controlled"
seeds = "0:2"
set = { beta = 0.9 }
sweep = { floor = [1, 2] }
"""

TARGETS = {
    "spec": Target(feed_spec, lambda: [spec_text()]),
    "status": Target(feed_status, lambda: [row[1:] for row in stored() if b'"state"' in row]),
    "manifest": Target(feed_manifest, lambda: [manifest()]),
    "store": Target(feed_store, stored),
    "parquet": Target(feed_parquet, lambda: [parquet()]),
    "idx": Target(feed_idx, lambda: [IMAGES, LABELS, TOO_LARGE]),
    "pickle": Target(feed_pickle, lambda: [batch()]),
    "archive": Target(feed_archive, lambda: [archive(), gzip.compress(archive())]),
    "words": Target(feed_words, lambda: [b"0:20,5", b"beta=0.9\nfloor=1e-3", b"1/3"]),
    "campaign": Target(feed_campaign_file, lambda: [SECTION, SECTION.replace(b"section", b"lot")]),
    "command": Target(feed_command, command_lines),
}
