"""One probe at a time on this host, whoever started it: two at once would measure each other. No torch.

The lock is the operating system's on an open file, so it ends with the process that holds it, however that dies. A probe that starts
others (ranks, a run) holds it for them: they are told by the environment and do not wait for their own parent.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from planner import environment
from planner.errors import PlannerError

try:
    import fcntl
except ImportError:  # not a POSIX system: probes are not kept apart there
    fcntl = None  # type: ignore[assignment]

PATH_VARIABLE = "KVLEDGER_PROBE_LOCK"
HOLDER_VARIABLE = "KVLEDGER_PROBE_LOCK_HOLDER"
"""The process that holds the lock for its children, set in what they inherit."""
WAIT_S = 30.0
POLL_S = 0.05


class ProbeBusy(PlannerError):
    """Another probe held the lock for all of the waiting time."""


def path() -> Path:
    """The lock's file: one for each user of the system, unless KVLEDGER_PROBE_LOCK names another."""
    own = f"kvledger-probe-{os.getuid() if hasattr(os, 'getuid') else 'user'}.lock"
    return Path(environment.value(PATH_VARIABLE) or Path(tempfile.gettempdir(), own))


@contextlib.contextmanager
def held(wait_s: float | None = None, waiting: Callable[[], None] = lambda: None, *, for_children: bool = False) -> Iterator[None]:
    """Holds the lock inside the block. `waiting` is called once if another process has it. Raises ProbeBusy after `wait_s` seconds
    (None: `WAIT_S`).

    `for_children`: processes started inside the block run under this lock. A place where no such file can be made is no reason to refuse
    a run: then it is not kept apart.
    """
    if _parent_holds():
        yield
        return
    try:
        file = os.open(path(), os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0), 0o600)
    except OSError:
        yield
        return
    try:
        _take(file, WAIT_S if wait_s is None else wait_s, waiting)
        os.ftruncate(file, 0)
        os.pwrite(file, str(os.getpid()).encode(), 0)
        if for_children:
            os.environ[HOLDER_VARIABLE] = str(os.getpid())
        yield
    finally:
        if for_children:
            os.environ.pop(HOLDER_VARIABLE, None)
        os.close(file)  # and with it the lock


def _parent_holds() -> bool:
    """Whether the process that the environment names still lives and wrote the lock's file last."""
    named = environment.value(HOLDER_VARIABLE)
    try:
        if not named.isdecimal() or named == str(os.getpid()) or path().read_text() != named:
            return False
        os.kill(int(named), 0)
    except (OSError, OverflowError, ValueError):
        return False
    return True


def _take(file: int, wait_s: float, waiting: Callable[[], None]) -> None:
    deadline, told = time.monotonic() + wait_s, False
    while fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                holder = os.pread(file, 20, 0).decode("ascii", "replace").strip() or "unknown"
                raise ProbeBusy("probe_busy", field="device", pid=holder, waited=f"{wait_s:g}") from None
        if not told:
            told = True
            waiting()
        time.sleep(POLL_S)
