"""Serving the live page with uvicorn, until Ctrl-C: two routes that can be read, and nothing else."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import re
import socket
import threading
import webbrowser
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from headway.analysis.report.rendering import live_policy
from headway.analysis.watch.page import LivePage
from headway.errors import HeadwayError, MissingExtraError, ServerError

GRACE = 2
"""Seconds that answers under way have after Ctrl-C."""
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
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise ServerError(f"expected an address of this machine, got {host!r} ({error.strerror})") from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise ServerError(
                f"expected a free port, got {port}, which another program uses (another headway watch?); "
                f"choose one with --port, or --port 0 for any that is free"
            ) from error
        raise ServerError(f"cannot listen at {host}, port {port}: {error.strerror}; choose another address") from error
    return listener


def url_of(listener: socket.socket) -> str:
    """Where a browser finds the server."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = socket.gethostname()
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def serve(
    source: Path,
    host: str,
    port: int,
    *,
    open_browser: bool = False,
    say: Callable[[str], object] = print,
) -> None:
    """Serve the live page of a store until Ctrl-C.

    Args:
        source: the store.
        host: the address to listen at.
        port: the port; 0 for any that is free.
        open_browser: open the page in a browser.
        say: told where the page is.

    Raises:
        StoreError: there are no runs at ``source``.
        ServerError: the address cannot be used.
        MissingExtraError: uvicorn or starlette is not installed.
    """
    uvicorn = _uvicorn()
    page = LivePage(source)
    app = make_app(page, allowed_hosts(host))
    with contextlib.closing(open_socket(host, port)) as listener:
        url = url_of(listener)
        say(f"{source}: {url}  (Ctrl-C ends)")
        if not is_loopback(host):
            say("Everybody who can reach this machine over the network can read the page.")
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=GRACE,
        )
        server = uvicorn.Server(config)
        if open_browser:
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
        with contextlib.suppress(KeyboardInterrupt):  # uvicorn hands Ctrl-C on when it has shut down
            server.run(sockets=[listener])


def _uvicorn() -> Any:
    try:
        import uvicorn
    except ImportError as error:
        raise MissingExtraError("uvicorn", "watch") from error
    return uvicorn


def make_app(page: LivePage, hosts: Collection[str] | None) -> Any:
    """The application.

    Args:
        page: what it serves, at "/" as HTML and at "/view.json" as an update for a page that is open.
        hosts: the names by which it may be called; None for any. A page of some other site, whose name was made to
            lead to this machine, calls it by that site's name, and gets nothing.

    Raises:
        MissingExtraError: starlette is not installed.
    """
    try:
        from starlette.applications import Starlette
        from starlette.concurrency import run_in_threadpool
        from starlette.middleware import Middleware
        from starlette.requests import Request
        from starlette.responses import HTMLResponse, JSONResponse, Response
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
        middleware=[Middleware(Guard, hosts=hosts)],
        exception_handlers={HeadwayError: explain},
    )
    app.router.redirect_slashes = False  # an address that is not there is not there
    return app


class Guard:
    """Answers only those who call the server by its own name, and adds `HEADERS` to every answer.

    Args:
        app: the application behind it.
        hosts: the names; None for any.
    """

    def __init__(self, app: Any, hosts: Collection[str] | None) -> None:
        """Stand before the application."""
        headers = {**HEADERS, "Content-Security-Policy": f"{live_policy()}; frame-ancestors 'none'"}
        self._app = app
        self._hosts = hosts
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
            await _refuse(send_with_headers)
        else:
            await self._app(scope, receive, send_with_headers)


async def _refuse(send: Any) -> None:
    text = b"expected to be called by the name of this machine, got another one\n"
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(text)).encode())]
    await send({"type": "http.response.start", "status": 400, "headers": headers})
    await send({"type": "http.response.body", "body": text})


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
