from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from headway.analysis.watch import LivePage, allowed_hosts, host_name, is_loopback, make_app
from headway.runs import RunStore
from tests.analysis.stores import controlled_specs, finish_all
from tests.analysis.watch.client import ask

pytest.importorskip("starlette")


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    found = RunStore(tmp_path / "runs")
    finish_all(found, controlled_specs(conditions=["noise"], methods=("uniform", "gmc"), seeds=2, epochs=4))
    (tmp_path / "secret.txt").write_text("secret")
    return found


@pytest.fixture
def app(store: RunStore) -> Any:
    return make_app(LivePage(store.root), allowed_hosts("127.0.0.1"))


def test_the_page_and_its_updates(app: Any) -> None:
    page = ask(app, "/")
    assert page.status == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.text.startswith("<!doctype html>")
    view = ask(app, "/view.json")
    assert view.status == 200
    content = json.loads(view.text)
    assert content["figures"]
    assert "GMC" in content["sections"]["summary"]["html"]
    assert f'data-version="{content["version"]}"' in page.text
    same = ask(app, "/view.json", query=f"version={content['version']}")
    assert (same.status, same.body) == (204, b"")
    partly = json.loads(ask(app, "/view.json", query=f"version=old&figures={content['figuresVersion']}").text)
    assert partly["figures"] is None
    assert partly["sections"] == content["sections"]


@pytest.mark.parametrize(
    "path",
    [
        "/index.html",
        "/view.json/",
        "/../secret.txt",
        "/%2e%2e/secret.txt",
        "/runs",
        "/store.json",
        "/static/../../etc/passwd",
        "//",
        "/docs",
        "/openapi.json",
        "/favicon.ico",
    ],
)
def test_nothing_else_is_served(app: Any, store: RunStore, path: str) -> None:
    answer = ask(app, path)
    assert answer.status == 404
    assert answer.text == "Not Found"


def test_no_file_of_a_run_is_served(app: Any, store: RunStore) -> None:
    for folder in store.root.iterdir():
        for file in folder.iterdir() if folder.is_dir() else [folder]:
            assert ask(app, f"/{file.relative_to(store.root).as_posix()}").status == 404


@pytest.mark.slow
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
@pytest.mark.parametrize("path", ["/", "/view.json"])
def test_it_only_reads(app: Any, path: str, method: str) -> None:
    assert ask(app, path, method=method).status == 405
    assert ask(app, path, method="HEAD").status == 200


@pytest.mark.slow
@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:8787", "localhost:1", "LocalHost", "localhost.", "[::1]:8787", "[::1]"]
)
def test_its_own_names_are_answered(app: Any, host: str) -> None:
    assert ask(app, "/view.json", host).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8787",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "[::1]evil.com",
        "[::1].evil.com",
        "[::1]:1:evil.com",
        "127.0.0.1:8899, evil.com",
        "127.0.0.1:evil.com",
        "127.0.0.1 evil.com",
        "localhost:8787@evil.com",
        "10.0.0.1",
        "",
        None,
        "[::2]",
    ],
)
def test_other_names_are_not(app: Any, host: str | None) -> None:
    answer = ask(app, "/", host)
    assert answer.status == 400
    assert b"<" not in answer.body
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")


def test_two_names_are_no_name() -> None:
    assert host_name({"headers": [(b"host", b"localhost"), (b"host", b"localhost")]}) == ""


def test_an_address_that_was_opened_up_answers_to_any_name(store: RunStore) -> None:
    app = make_app(LivePage(store.root), allowed_hosts("0.0.0.0"))
    assert ask(app, "/view.json", "cluster.example").status == 200


@pytest.mark.parametrize("path", ["/", "/view.json", "/nothing"])
def test_every_answer_is_guarded(app: Any, path: str) -> None:
    headers = ask(app, path).headers
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert "access-control-allow-origin" not in headers


def test_a_store_that_goes_away_is_said_so(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.analysis.watch.INTERVAL", 0.0)
    app = make_app(LivePage(store.root), None)
    assert ask(app, "/view.json").status == 200
    shutil.rmtree(store.root)
    answer = ask(app, "/view.json")
    assert answer.status == 503
    assert "expected a run store" in json.loads(answer.text)["error"]


def test_what_is_no_request_is_ignored(app: Any) -> None:
    asyncio.run(app({"type": "websocket", "headers": []}, None, None))


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("example", False),
    ],
)
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
    assert (allowed_hosts(host) is not None) is expected
