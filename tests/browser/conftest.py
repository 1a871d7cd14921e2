"""A real browser, pages to look at, and a record of everything that a page asks for or complains about."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headway.runs import RunStore
from tests.analysis.conftest import quick_disk
from tests.analysis.stores import write_mixed_store
from tests.browser.chromium import find_chromium

__all__ = ["quick_disk"]

MISSING = "no Chromium is installed (with Playwright): the pages are not tested in a browser; apt-get install chromium"
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is in this folder, and skip it where there is no browser."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)
            if find_chromium() is None:
                item.add_marker(pytest.mark.skip(reason=MISSING))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say in a line if the browser tests were left out, which a letter "s" does not."""
    skipped = [report for report in terminalreporter.stats.get("skipped", ()) if MISSING in str(report.longrepr)]
    if skipped:
        terminalreporter.write_line(f"{len(skipped)} browser tests skipped: {MISSING}")


@dataclass
class Visit:
    """A page in a tab, and what happened there.

    Attributes:
        page: Playwright's page.
        requests: addresses that it asked for and did not get, because they are not its own.
        complaints: errors and warnings of its console.
    """

    page: Any
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def draw_all(self) -> None:
        """Draw all figures, also those that are out of view."""
        self.page.evaluate("Charts.drawAll()")

    def figure(self, name: str) -> Any:
        """A figure, scrolled into view and drawn."""
        found = self.page.locator(f'[data-figure="{name}"]')
        found.scroll_into_view_if_needed()
        found.locator("canvas").first.wait_for()
        return found

    def is_narrow_enough(self) -> bool:
        """Whether the page needs no sideways scrolling."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


Open = Callable[..., Visit]


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """Started for this folder alone: Playwright keeps an event loop running that other tests would stumble over."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Open]:
    """Opens addresses, in any size and colour scheme; nothing but the address's own place can be reached."""
    contexts = []

    def open_(address: str, size: dict[str, int] = DESKTOP, scheme: str = "light", touch: bool = False) -> Visit:
        context = browser.new_context(viewport=size, color_scheme=scheme, has_touch=touch)
        contexts.append(context)
        page = context.new_page()
        found = Visit(page)
        own = address.split("#")[0] if address.startswith("file:") else "/".join(address.split("/")[:3])

        def filter_(route: Any) -> None:
            if route.request.url.split("#")[0].startswith(own):
                route.continue_()
            else:
                found.requests.append(route.request.url)
                route.abort()

        context.route("**/*", filter_)
        page.on("console", lambda message: found.complaints.append(message.text) if message.type != "log" else None)
        page.on("pageerror", lambda error: found.complaints.append(str(error)))
        page.set_default_timeout(60_000)
        page.goto(address)
        return found

    yield open_
    for context in contexts:
        context.close()


@pytest.fixture(scope="package")
def mixed_store(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    """Runs of both experiments, and some of everything that can go wrong. Only to be read."""
    return write_mixed_store(tmp_path_factory.mktemp("mixed") / "runs", epochs=12)


@pytest.fixture(scope="package")
def report(mixed_store: RunStore, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a report on them."""
    from headway.analysis.report import write_report

    return write_report(mixed_store.root, tmp_path_factory.mktemp("report"), formats=()).index.as_uri()


@contextmanager
def serving(store: Path) -> Iterator[str]:
    """Serve the live page of a store in a thread; gives its address."""
    import uvicorn

    from headway.analysis.watch import LivePage, allowed_hosts, make_app, open_socket, url_of

    listener = open_socket("127.0.0.1", 0)
    app = make_app(LivePage(store), allowed_hosts("127.0.0.1"))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield url_of(listener)
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
