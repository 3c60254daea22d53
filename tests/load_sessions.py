"""Many sessions at once through the real server, over Streamlit's own WebSocket protocol; no browsers.

    python -m tests.load_sessions --sessions 50 --seconds 300

Each session opens a page, then changes the number of sequences or tokens of its plan again and again. Printed: errors, the time from a change
to the end of its run (median, p95), memory of the server, and how it grows after the warm-up (the first quarter).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.asyncio.client import connect

from tests.served import served

CHANGES = {"sequences": (1, 8, 16, 32, 64, 128), "tokens": (1024, 2048, 4096, 8192, 16_384, 32_768)}
MIB = 2**20


@dataclass
class Seen:
    """What all sessions saw."""

    times: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    memory: list[tuple[float, int]] = field(default_factory=list)


def widget_ids(message: ForwardMsg, found: dict[str, str]) -> None:
    """Ids of the number inputs, by the key that ends them (``$$ID-hash-key``)."""
    if message.WhichOneof("type") == "delta" and message.delta.WhichOneof("type") == "new_element":
        element = message.delta.new_element
        if element.WhichOneof("type") == "number_input":
            for name in CHANGES:
                if element.number_input.id.endswith(f"-{name}"):
                    found[name] = element.number_input.id
        elif element.WhichOneof("type") == "exception":
            found["exception"] = element.exception.type


async def finished(ws: Any, found: dict[str, str]) -> None:
    """Reads until the script has ended."""
    while True:
        message = ForwardMsg.FromString(await asyncio.wait_for(ws.recv(), 60))
        widget_ids(message, found)
        if message.WhichOneof("type") == "script_finished" and message.script_finished != ForwardMsg.FINISHED_EARLY_FOR_RERUN:
            return


async def session(url: str, seen: Seen, until: float, pause: float, rng: random.Random) -> None:
    try:
        async with connect(url, subprotocols=["streamlit"], max_size=64 * MIB, ping_interval=None, compression=None) as ws:
            found: dict[str, str] = {}
            began = time.monotonic()
            await ws.send(BackMsg(rerun_script={"query_string": ""}).SerializeToString())
            await finished(ws, found)
            seen.first.append(time.monotonic() - began)
            if set(CHANGES) - set(found):
                raise RuntimeError("the page has no number inputs")
            values: dict[str, int] = {}
            while time.monotonic() < until:
                await asyncio.sleep(rng.uniform(0.5, 1.5) * pause)
                name = rng.choice(list(CHANGES))
                values[name] = rng.choice(CHANGES[name])
                message = BackMsg()
                for key, value in values.items():
                    message.rerun_script.widget_states.widgets.add(id=found[key], double_value=float(value))
                began = time.monotonic()
                await ws.send(message.SerializeToString())
                await finished(ws, found)
                seen.times.append(time.monotonic() - began)
                if "exception" in found:
                    raise RuntimeError(found.pop("exception"))
    except Exception as e:
        seen.errors.append(f"{type(e).__name__}: {e}"[:200])


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def computed(pid: int) -> float:
    """Seconds of processor time that the server has taken: what a busy machine does not change."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def watch(pid: int, seen: Seen, began: float) -> None:
    while True:
        seen.memory.append((time.monotonic() - began, resident(pid)))
        await asyncio.sleep(1)


async def run(url: str, pid: int, sessions: int, seconds: float, pause: float) -> Seen:
    seen, began = Seen(), time.monotonic()
    watcher = asyncio.create_task(watch(pid, seen, began))
    rng = random.Random(1)
    tasks = []
    for _ in range(sessions):
        tasks.append(asyncio.create_task(session(url, seen, began + seconds, pause, random.Random(rng.random()))))
        await asyncio.sleep(min(0.2, seconds / 4 / sessions))
    await asyncio.gather(*tasks)
    watcher.cancel()
    return seen


def slope(points: list[tuple[float, int]]) -> float:
    """Bytes a second by least squares."""
    if len(points) < 3:
        return 0.0
    return statistics.linear_regression([t for t, _ in points], [m for _, m in points]).slope


def figures(seen: Seen, sessions: int, seconds: float, idle: int) -> dict[str, Any]:
    times = sorted(seen.times)
    late = [p for p in seen.memory if p[0] > seconds / 4]
    return {
        "sessions": sessions,
        "seconds": seconds,
        "errors": len(seen.errors),
        "reruns": len(times),
        "first_run_median_s": round(statistics.median(seen.first), 3) if seen.first else None,
        "rerun_median_s": round(statistics.median(times), 3) if times else None,
        "rerun_p95_s": round(times[int(0.95 * (len(times) - 1))], 3) if times else None,
        "idle_mib": round(idle / MIB),
        "most_mib": round(max(m for _, m in seen.memory) / MIB),
        "mib_a_session": round((max(m for _, m in seen.memory) - idle) / MIB / sessions, 2),
        "slope_mib_a_minute": round(slope(late) * 60 / MIB, 2),
        "cores": os.cpu_count(),
        "first_errors": seen.errors[:3],
    }


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--sessions", type=int, default=50)
    options.add_argument("--seconds", type=float, default=300)
    options.add_argument("--pause", type=float, default=20.0, help="mean seconds between two changes of one session")
    options.add_argument("--port", type=int, default=0)
    given = options.parse_args()
    with served("--server.fileWatcherType", "none", port=given.port) as server:
        url = f"{server.address.replace('http', 'ws')}/_stcore/stream"
        asyncio.run(run(url, server.pid, 1, 1.0, 0.2))  # imports, tables
        idle, load, cpu = resident(server.pid), os.getloadavg()[0], computed(server.pid)
        seen = asyncio.run(run(url, server.pid, given.sessions, given.seconds, given.pause))
        found = figures(seen, given.sessions, given.seconds, idle) | {"pause_s": given.pause, "load_before": round(load, 1)}
        found["cpu_s_a_run"] = round((computed(server.pid) - cpu) / max(1, found["reruns"] + given.sessions), 3)
    print(json.dumps(found, indent=1))
    return 1 if found["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
