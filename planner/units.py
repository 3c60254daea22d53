"""Byte, count and time formatting and parsing: the only place that knows what a GiB is.

Everything else carries bytes as ``int``. No arithmetic of the planner lives here.
"""

from __future__ import annotations

import re

from planner.errors import InvalidInput

KIB, MIB, GIB, TIB = 1024, 1024**2, 1024**3, 1024**4
_FACTORS = {
    "": 1, "b": 1, "bytes": 1,
    "kib": KIB, "mib": MIB, "gib": GIB, "tib": TIB,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "k": KIB, "m": MIB, "g": GIB, "t": TIB,
}  # fmt: skip
MAX_BYTES = 2**62


def parse_bytes(text: str | int, field: str) -> int:
    """``40GiB``, ``40 GB``, ``4096`` -> bytes. Raises InvalidInput naming `field`.

    >>> parse_bytes("40GiB", "kv_memory")
    42949672960
    """
    if isinstance(text, int) and not isinstance(text, bool):
        value = text
    else:
        match = re.fullmatch(r"\s*([0-9]{1,30}(?:\.[0-9]{1,30})?)\s*([a-zA-Z]*)\s*", str(text))
        if not match or match[2].lower() not in _FACTORS:
            raise InvalidInput("bytes_unreadable", field=field, value=str(text)[:60])
        value = round(float(match[1]) * _FACTORS[match[2].lower()]) if "." in match[1] else int(match[1]) * _FACTORS[match[2].lower()]
    if not 0 < value <= MAX_BYTES:
        raise InvalidInput("out_of_range", field=field, value=value, low=1, high=MAX_BYTES)
    return value


def gib(value: float, digits: int = 2) -> str:
    """Bytes as GiB with its unit; 16 GiB is ``16.00 GiB``."""
    return f"{value / GIB:,.{digits}f} GiB"


def gib_number(value: float) -> float:
    """Bytes as a float of GiB, for chart axes and table columns that print their unit themselves."""
    return value / GIB


def from_gib(value: float) -> int:
    """A figure in GiB, as a form gives it, in bytes."""
    return round(value * GIB)


def whole_bytes(value: int) -> str:
    """Bytes without a rest, in the largest unit that leaves none and as `parse_bytes` reads them: ``48GiB``, ``24564MiB``, ``1000B``."""
    for factor, unit in ((GIB, "GiB"), (MIB, "MiB")):
        if value % factor == 0:
            return f"{value // factor}{unit}"
    return f"{value}B"


def memory(value: float) -> str:
    """Bytes in the unit that leaves a readable figure: bytes, KiB, MiB or GiB."""
    for factor, unit in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if abs(value) >= factor:
            return f"{value / factor:,.2f} {unit}"
    return f"{value:,.0f} bytes"


def count(value: int | float) -> str:
    """A whole number with thousands separators; a float is rounded to the nearest."""
    return f"{value:,.0f}" if isinstance(value, float) else f"{value:,}"


def short_count(value: int) -> str:
    """A number of elements in billions or millions: ``15.71 B``, ``505.4 M``; below a million all its digits."""
    if value >= 10**9:
        return f"{value / 10**9:,.2f} B"
    return f"{value / 10**6:.1f} M" if value >= 10**6 else f"{value:,}"


def seconds(value: float) -> str:
    """A time with a unit that suits its size."""
    if value >= 1:
        return f"{value:,.2f} s"
    return f"{value * 1e3:,.1f} ms" if value >= 1e-3 else f"{value * 1e6:,.0f} us"


def milliseconds(value: float) -> float:
    """A time as a float of ms, for chart axes and table columns that print their unit themselves."""
    return value * 1e3


def percent(value: float) -> str:
    return f"{value * 100:.1f} %"


def rate(value: float) -> str:
    """A rate or a ratio with three digits: ``12.7``, ``0.084``, ``1,230``."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def money(value: float) -> str:
    """An amount without its currency, which is the user's."""
    return f"{value:,.2f}"
