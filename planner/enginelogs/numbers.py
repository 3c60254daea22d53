"""Numbers as they were printed: their value, and how far the printing may have rounded it."""

from __future__ import annotations

import re

_GROUPED = re.compile(r"-?\d{1,3}(?:([.,'_ ])\d{3})(?:\1\d{3})*")
MAX_VALUE = 2**62
PRINTED_DIGITS = 2  # vLLM's format_gib and most others round to two digits, and drop a last 0


def whole(text: str) -> int | None:
    """A count as printed, thousands grouped or not; None where it is none or too large.

    >>> whole("1,277,184"), whole("324.976"), whole("8192.0"), whole("-561981")
    (1277184, 324976, 8192, -561981)
    """
    text = text.strip().strip(".,")
    if _GROUPED.fullmatch(text):
        text = re.sub(r"[.,'_ ]", "", text)
    elif re.fullmatch(r"-?\d+\.0+", text):
        text = text.partition(".")[0]
    return int(text) if re.fullmatch(r"-?\d{1,19}", text) and abs(int(text)) < MAX_VALUE else None


def real(text: str) -> tuple[float, int] | None:
    """(value, digits after the point) of a figure as printed; a decimal comma is a point.

    >>> real("79,19"), real("1,234.5"), real("13.1")
    ((79.19, 2), (1234.5, 1), (13.1, 1))
    """
    text = text.strip().strip(".,").replace("_", "").replace("'", "")
    if "," in text and "." in text:
        text = text.replace(",", "") if text.rfind(".") > text.rfind(",") else text.replace(".", "").replace(",", ".")
    elif text.count(",") == 1 and not re.fullmatch(r"-?\d{1,3},\d{3}", text):
        text = text.replace(",", ".")
    text = text.replace(",", "").replace(" ", "")
    if not re.fullmatch(r"-?\d{1,18}(?:\.\d{1,20})?", text):
        return None
    return float(text), len(text.partition(".")[2])


def half_step(digits: int) -> float:
    """Half of the last printed place, never finer than what the engines round to before printing."""
    return float(0.5 * 10.0 ** -max(digits, PRINTED_DIGITS))


def sized(text: str) -> tuple[str, str]:
    """(the number as printed, its unit as the table names it) of a size with its unit. A GB of an engine is a GiB.

    >>> sized("411.0 MiB"), sized("2.1 GB"), sized("0 B")
    (('411.0', 'MiB'), ('2.1', 'GiB'), ('0', 'bytes'))
    """
    number = text.rstrip("KMGTiBbytes ")
    unit = text[len(number) :].strip()[:1]
    return number, f"{unit}iB" if unit in ("K", "M", "G", "T") else "bytes"
