"""A child whose parent is gone ends, and with it all that it started: a server that was killed can end nobody. No torch.

The parent's own death is asked for, not told by the kernel (PR_SET_PDEATHSIG): that would tell of the thread that started the child, and
a session's threads come and go.
"""

from __future__ import annotations

import os
import signal
import threading
import time

POLL_S = 0.5
GRACE_S = 8.0
"""For the way out of a suite, which ends its ranks: they are in a process group of their own."""


def watch(parent: int) -> None:
    """From here on this process ends soon after `parent` (a process id) is no longer its parent; 0: it has none to watch."""
    if parent:
        threading.Thread(target=_watch, args=(parent,), name="parent", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_S)
    _end(signal.SIGTERM)
    time.sleep(GRACE_S)
    _end(getattr(signal, "SIGKILL", signal.SIGTERM))
    os._exit(1)


def _end(number: int) -> None:
    """The whole group, where it is this process's own; else this process alone."""
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), number)
    else:
        os.kill(os.getpid(), number)
