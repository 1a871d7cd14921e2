from __future__ import annotations

import contextlib
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from headway.analysis.watch import open_socket, url_of
from headway.commands.main import main
from headway.errors import ServerError
from headway.runs import RunStore
from tests.analysis.stores import controlled_specs, finish_all

pytest.importorskip("uvicorn")


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    found = RunStore(tmp_path / "runs")
    finish_all(found, controlled_specs(conditions=["noise"], methods=("gmc",), seeds=2, epochs=3))
    return found


def test_a_port_that_is_taken_is_said_so() -> None:
    with contextlib.closing(open_socket("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServerError, match=rf"cannot listen at 127\.0\.0\.1, port {port}: .*--port 0"):
            open_socket("127.0.0.1", port)


def test_an_address_of_another_machine_is_said_so() -> None:
    with pytest.raises(ServerError, match=r"cannot listen at 192\.0\.2\.1"):
        open_socket("192.0.2.1", 0)
    with pytest.raises(ServerError, match="got 'no such host'"):
        open_socket("no such host", 0)


def test_addresses_for_browsers() -> None:
    with contextlib.closing(open_socket("127.0.0.1", 0)) as listener:
        assert url_of(listener) == f"http://127.0.0.1:{listener.getsockname()[1]}/"
    with contextlib.closing(open_socket("0.0.0.0", 0)) as listener:
        assert url_of(listener).startswith(f"http://{socket.gethostname()}:")


@pytest.mark.slow
def test_the_command_serves_until_ctrl_c(store: RunStore) -> None:
    command = [sys.executable, "-W", "error", "-m", "headway", "watch", str(store.root), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            url = re.search(r"http://\S+", process.stdout.readline())[0]
            with urllib.request.urlopen(url) as answer:
                assert b"Live: runs" in answer.read()
        finally:
            process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert process.returncode == 0
    assert err == ""
    assert out == ""


def test_mistakes_have_their_messages(store: RunStore, capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.closing(open_socket("127.0.0.1", 0)) as taken:
        assert main(["watch", str(store.root), "--port", str(taken.getsockname()[1])]) == 1
    assert "choose another port with --port" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["watch", str(store.root), "--port", "70000"])
    assert "expected a port from 0 to 65535, got '70000'" in capsys.readouterr().err
