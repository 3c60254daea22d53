"""The app in a process of its own, as `make run` serves it, and the browser to look at it: for tests and measurements from outside."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT

START_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """`address`: http://127.0.0.1:PORT; `log`: the file that all it prints goes to."""

    address: str
    pid: int
    log: Path


@contextmanager
def served(*options: str, port: int = 0) -> Iterator[Server]:
    """A server that answers, ended afterwards. `options` of `streamlit run`; `port` 0: a free one. Raises RuntimeError with its last words
    where it ends or does not answer within a minute."""
    if not port:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("w") as out:
            command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port), *options]
            child = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out)
        try:
            server = Server(address=f"http://127.0.0.1:{port}", pid=child.pid, log=log)
            end = time.monotonic() + START_S
            while not _answers(server.address):
                if child.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"the server did not start: {log.read_text()[-2000:]}")
                time.sleep(0.1)
            yield server
        finally:
            child.terminate()
            child.wait(20)


def _answers(address: str) -> bool:
    try:
        urllib.request.urlopen(f"{address}/_stcore/health", timeout=2).close()
    except OSError:
        return False
    return True


def chromium_path() -> str | None:
    """`CHROMIUM`, or the one on this machine."""
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), "")
    return path if Path(path).is_file() else None
