"""Serving the live page with uvicorn, until Ctrl-C."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headway.analysis.watch.app import allowed_hosts, is_loopback, make_app
from headway.analysis.watch.page import LivePage
from headway.errors import MissingExtraError, ServerError

GRACE = 2
"""Seconds that answers under way have after Ctrl-C."""


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
