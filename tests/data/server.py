"""A web server on the loopback address that answers from a table."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Answer(NamedTuple):
    """What to send; a length that is not the body's makes a connection that breaks off."""

    body: bytes = b""
    status: int = 200
    length: int | None = None
    location: str = ""


class Server:
    """The address, the table of answers by path, and the paths that were asked for."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.answers: dict[str, Answer] = {}
        self.asked: list[str] = []


@contextmanager
def serve() -> Iterator[Server]:
    """Run a server for as long as the context lasts."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            state.asked.append(self.path)
            answer = state.answers.get(self.path, Answer(status=404))
            self.send_response(answer.status)
            if answer.location:
                self.send_header("Location", answer.location)
            length = len(answer.body) if answer.length is None else answer.length
            if length >= 0:
                self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, *_: object) -> None:
            """Stay silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state = Server(f"http://127.0.0.1:{server.server_port}/")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join(timeout=10)
        server.server_close()
