"""What the command line says: one JSON object a line, or text at the end. No torch."""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any


class Out:
    """The only writer on stdout: one JSON object a line, whole lines even when the watchdog writes too."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.phase = "start"
        self._lock = threading.Lock()
        self._closed = False
        self.watchdog: threading.Timer | None = None
        self._stream = os.fdopen(os.dup(1), "w", encoding="utf-8")

    def take_over(self) -> None:
        """From here on a stray print of a library lands on stderr."""
        sys.stdout.flush()
        os.dup2(2, 1)

    def event(self, event: dict[str, Any]) -> None:
        if event["ev"] == "phase":
            self.phase = event["name"]
        if self.as_json:
            self._write(event)
        elif event["ev"] == "phase" and event["done"] == event["total"]:
            print(f"{event['name']}: {event['done']} / {event['total']}", file=sys.stderr, flush=True)

    def last(self, data: dict[str, Any], text: str) -> None:
        """The result or the error; nothing is written after it, and the watchdog may rest."""
        if self.watchdog is not None:
            self.watchdog.cancel()
        with self._lock:
            if not self._closed:
                self._closed = True
                self._stream.write((json.dumps(data) if self.as_json else text) + "\n")
                self._stream.close()

    def _write(self, data: dict[str, Any]) -> None:
        with self._lock:
            if not self._closed:
                self._stream.write(json.dumps(data) + "\n")
                self._stream.flush()
