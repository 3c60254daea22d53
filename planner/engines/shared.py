"""What several engines do alike: the memory that a framework sees of a device, and the reading of a version."""

from __future__ import annotations

import re

from planner.engines.settings import LedgerLine
from planner.errors import InvalidInput
from planner.hardware import Hardware
from planner.notes import Note, cite, note
from planner.scenario import Scenario
from planner.units import GIB

# torch sees 0.3 to 0.65 GiB less than the driver reports (torch and vLLM logs of nine cards).
DRIVER_GAP_GIB = (0.30, 0.45, 0.65)


def visible_memory(hardware: Hardware) -> tuple[int, LedgerLine]:
    """(bytes that the framework sees, the line of what it does not see)."""
    if hardware.visible_bytes:
        gap = hardware.memory_bytes - hardware.visible_bytes
        return hardware.visible_bytes, LedgerLine(code="driver_gap", bytes=gap, kind="measured", source=hardware.memory_source or hardware.source)
    low, used, high = (round(g * GIB) for g in DRIVER_GAP_GIB)
    line = LedgerLine(code="driver_gap", bytes=used, kind="documented", source=cite("torch and vLLM logs of nine cards"), low_bytes=low, high_bytes=high)
    return hardware.memory_bytes - used, line


def used_memory(s: Scenario) -> tuple[LedgerLine, ...]:
    """The line of what other processes hold on each device, as the user says; none where nothing is said."""
    return (LedgerLine(code="used_memory", bytes=s.used_memory_bytes, kind="measured", source=cite("--used-memory")),) if s.used_memory_bytes else ()


def nearest(asked: str, used: str, older: int = 0) -> Note:
    """Which rules stand for a release that has none of its own here, and how many older ones hold for it."""
    if older:
        return note("warning", "engine_version_older", asked=asked[:40], used=used, changed=older)
    return note("warning", "engine_version_nearest", asked=asked[:40], used=used)


def version_tuple(text: str) -> tuple[int, ...]:
    """The first three numbers of a version; raises InvalidInput where there is none."""
    match = re.match(r"v?(\d{1,6})(?:\.(\d{1,6}))?(?:\.(\d{1,6}))?", text.strip())
    if not match:
        raise InvalidInput("version_unreadable", field="engine_version", value=text[:40])
    return tuple(int(p or 0) for p in match.groups())
