"""The live page: the report of a store, served by uvicorn while its runs go on.

`LivePage` works out what the page shows when somebody asks and it is time to. The server has two routes that can be
read, and nothing else.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import json
import os
import re
import socket
import threading
import time
import webbrowser
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from headway.analysis.report import View, claims_of, make_view, update_view
from headway.analysis.report.rendering import Live, mark, policy, render_page, render_sections
from headway.analysis.results import ResultsReader
from headway.errors import HeadwayError, MissingExtraError, ServerError, import_extra
from headway.runs import State

INTERVAL = 2.0  # Seconds between two looks at the store
FULL_INTERVAL = 10.0  # Seconds between two new sets of figures and tables, at least ...
SHARE = 0.1  # ... and so many that making them takes at most this part of the time.


@dataclass(frozen=True)
class Snapshot:
    """What the page shows."""

    version: str  # changes when anything does
    figures_version: str  # changes when a figure does
    view: View  # what is shown
    sections: Mapping[str, str]  # the HTML of the sections

    def page(self) -> str:
        """The whole page."""
        return render_page(self.view, live=Live(INTERVAL, self.version, self.figures_version))

    def update(self, known_figures: str) -> str:
        """What a page needs to show this, as JSON; the figures only if it has others."""
        sections = {name: {"mark": mark(html), "html": html} for name, html in self.sections.items()}
        figures: Any = None if known_figures == self.figures_version else self.view.figures
        content = {"version": self.version, "figuresVersion": self.figures_version}
        return json.dumps({**content, "sections": sections, "figures": figures}, allow_nan=False)


class LivePage:
    """The page of a store. Any number of threads may ask for it."""

    def __init__(self, source: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._clock = clock
        self._reader = ResultsReader(source)
        self._lock = threading.Lock()
        self._snapshot: Snapshot | None = None
        self._due = self._full_due = float("-inf")
        self._content: object = None
        self._finished: object = None
        self._claims: Mapping[str, Any] = {}

    def snapshot(self) -> Snapshot:
        """What the page shows now; at most a few seconds old."""
        with self._lock:
            if self._snapshot is None or self._clock() >= self._due:
                self._snapshot = self._look()
                self._due = self._clock() + INTERVAL
            return self._snapshot

    def _look(self) -> Snapshot:
        results, now = self._reader.read(), datetime.now().astimezone()
        if not results.runs and not results.problems:
            ResultsReader(self._source)  # says so if there is nothing at all any more
        content = [(run.id, run.state, run.rows) for run in results if run.state is not State.PENDING]
        if self._snapshot is None or (content != self._content and self._clock() >= self._full_due):
            began = self._clock()
            finished = frozenset(run.id for run in results if run.finished)
            if finished != self._finished:  # claims rest on finished runs alone
                self._claims, self._finished = claims_of(results), finished
            view = make_view(self._source, results, now, live=True, claims=self._claims)
            figures_version = mark(json.dumps(view.figures))
            self._content = content
            cost = self._clock() - began
            self._full_due = self._clock() + max(FULL_INTERVAL, cost / SHARE)
        else:
            view = update_view(self._snapshot.view, results, now)
            figures_version = self._snapshot.figures_version
        sections = render_sections(view, live=True)
        return Snapshot(mark("\n".join((figures_version, *sections.values()))), figures_version, view, sections)


GRACE = 2  # Seconds that answers under way have after Ctrl-C
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})

_HOST = re.compile(r"(?:\[(?P<address>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))(?::[0-9]{0,5})?", re.ASCII)
"""What a Host header may be, as a whole: a name or an address, and perhaps a port."""

HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Sent with every answer, besides the policy of the page: nobody may embed, keep or guess at anything."""


def open_socket(host: str, port: int) -> socket.socket:
    """Listen at an address.

    Raises:
        ServerError: the port is taken, or the address is not this machine's.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    except OSError as error:
        raise ServerError(f"expected an address of this machine, got {host!r} ({error.strerror})") from error
    try:
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        why, way_out = os.strerror(error.errno or 0), "choose another address"
        if error.errno == errno.EADDRINUSE:
            way_out = "choose another port with --port, or --port 0 for any that is free"
        raise ServerError(f"cannot listen at {host}, port {port}: {why}; {way_out}") from error


def url_of(listener: socket.socket) -> str:
    """Where a browser finds the server."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = socket.gethostname()
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def serve(
    source: Path, host: str, port: int, *, open_browser: bool = False, say: Callable[[str], object] = print
) -> None:
    """Serve the live page of a store at an address until Ctrl-C, and say where it is; port 0 is any that is free.

    Raises:
        StoreError: there are no runs at ``source``.
        ServerError: the address cannot be used.
        MissingExtraError: uvicorn or starlette is not installed.
    """
    uvicorn = import_extra("uvicorn", "watch")
    app = make_app(LivePage(source), allowed_hosts(host))
    with contextlib.closing(open_socket(host, port)) as listener:
        url = url_of(listener)
        say(f"{source}: {url}  (Ctrl-C ends)")
        if not is_loopback(host):
            say("Everybody who can reach this machine over the network can read the page.")
        options: dict[str, Any] = {"log_level": "warning", "access_log": False, "server_header": False}
        options |= {"lifespan": "off", "ws": "none", "timeout_graceful_shutdown": GRACE}
        server = uvicorn.Server(uvicorn.Config(app, **options))
        if open_browser:
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
        with contextlib.suppress(KeyboardInterrupt):  # uvicorn hands Ctrl-C on when it has shut down
            server.run(sockets=[listener])


def make_app(page: LivePage, hosts: Collection[str] | None) -> Any:
    """The application: a page at "/" as HTML, and at "/view.json" as an update for a page that is open.

    It may be called by the names of the hosts; None stands for any. A page of some other site, whose name was made to
    lead to this machine, calls it by that site's name, and gets nothing.
    """
    try:
        from starlette.applications import Starlette
        from starlette.concurrency import run_in_threadpool
        from starlette.middleware import Middleware
        from starlette.requests import Request
        from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
        from starlette.routing import Route
    except ImportError as error:
        raise MissingExtraError("starlette", "watch") from error

    async def index(request: Request) -> Response:
        return HTMLResponse(await run_in_threadpool(lambda: page.snapshot().page()))

    async def view(request: Request) -> Response:
        snapshot = await run_in_threadpool(page.snapshot)
        if request.query_params.get("version") == snapshot.version:
            return Response(status_code=204)
        known = request.query_params.get("figures", "")
        text = await run_in_threadpool(snapshot.update, known)
        return Response(text, media_type="application/json")

    async def explain(request: Request, error: Exception) -> Response:
        return JSONResponse({"error": str(error)}, status_code=503)

    app = Starlette(
        routes=[Route("/", index), Route("/view.json", view)],
        middleware=[Middleware(Guard, hosts=hosts, refuse=PlainTextResponse)],
        exception_handlers={HeadwayError: explain},
    )
    app.router.redirect_slashes = False  # an address that is not there is not there
    return app


class Guard:
    """Answers only those who call the server by its own name, and adds `HEADERS` to every answer."""

    def __init__(self, app: Any, hosts: Collection[str] | None, refuse: Callable[[str, int], Any]) -> None:
        headers = {**HEADERS, "Content-Security-Policy": f"{policy(live=True)}; frame-ancestors 'none'"}
        self._app, self._hosts, self._refuse = app, hosts, refuse
        self._headers = [(name.lower().encode(), value.encode()) for name, value in headers.items()]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *self._headers]}
            await send(message)

        if self._hosts is not None and host_name(scope) not in self._hosts:
            text = "expected a Host header that names this machine, got another one\n"
            await self._refuse(text, 400)(scope, receive, send_with_headers)
        else:
            await self._app(scope, receive, send_with_headers)


def host_name(scope: Any) -> str:
    """The name by which a request calls the server, without the port; empty if it has none, several, or no such."""
    values = [value for name, value in scope["headers"] if name == b"host"]
    if len(values) != 1:
        return ""
    match = _HOST.fullmatch(values[0].decode("latin-1").strip().lower())
    return (match["address"] or match["name"].rstrip(".")) if match else ""


def is_loopback(host: str) -> bool:
    """Whether only this machine itself can call a server at this address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def allowed_hosts(host: str) -> Collection[str] | None:
    """The names by which a server at this address may be called: those of the loopback, or any if it was opened up."""
    return LOOPBACK_NAMES | {host} if is_loopback(host) else None
