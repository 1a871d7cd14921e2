"""Asks an application in this process, as a server would."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


def ask(app: Any, path: str, host: str | None = "127.0.0.1:8787", method: str = "GET", query: str = "") -> Answer:
    """Send a request; `host` is its Host header."""
    headers = [] if host is None else [(b"host", host.encode())]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": headers,
        "server": ("127.0.0.1", 8787),
        "client": ("127.0.0.1", 50000),
    }
    messages: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        messages.append(message)

    asyncio.run(app(scope, receive, send))
    start, *rest = messages
    body = b"".join(message.get("body", b"") for message in rest)
    return Answer(start["status"], {name.decode(): value.decode() for name, value in start["headers"]}, body)
