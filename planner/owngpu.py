"""A device of the user's own as one short text, so that an address, a saved plan and a command line can name it like any other.

``own:My card 48GiB 960GB/s 181TFLOPS fp8=362TFLOPS``: a name, then its memory, and what else is known of it. Nothing is kept anywhere.
"""

from __future__ import annotations

import re
from dataclasses import replace

from planner.errors import InvalidInput, UnknownName
from planner.hardware import FLOP_DTYPES, OWN, Hardware, custom, find, is_own
from planner.units import parse_bytes, whole_bytes

MAX_TEXT = 120
_NUMBER = r"([0-9]{1,15}(?:\.[0-9]{1,9})?)"
_MEMORY = re.compile(_NUMBER + r"([kmgt]i?b|b)", re.IGNORECASE)
_BANDWIDTH = re.compile(_NUMBER + r"([gt])b/s", re.IGNORECASE)
_RATE = re.compile(r"(?:(\w{3,4})=)?" + _NUMBER + r"tflops", re.IGNORECASE)
_PER_S = {"g": 10**9, "t": 10**12}
_PLAIN_RATE = ("fp16", "bf16")  # what a peak without a type stands for: two types of 16 bits, alike on every device of the table


def from_text(text: str) -> Hardware:
    """The device. Memory in bytes as `parse_bytes` reads it, bandwidth in GB/s or TB/s (10^9, 10^12), peaks in dense TFLOPS (10^12).

    Raises InvalidInput (field "gpu") where the memory is missing, something is said twice, or a figure is out of range.
    >>> from_text("own:My card 48GiB 960GB/s").memory_bytes
    51539607552
    """
    if len(text) > MAX_TEXT:
        raise InvalidInput("own_gpu_unreadable", field="gpu", value=text[:60])
    words = text.strip()[len(OWN) :].split()
    memory, bandwidth, rates = [], [], {}
    while words:
        word = words[-1]
        if m := _MEMORY.fullmatch(word):
            memory.append(parse_bytes(m[1] + m[2], "gpu"))
        elif m := _BANDWIDTH.fullmatch(word):
            bandwidth.append(float(m[1]) * _PER_S[m[2].lower()])
        elif m := _RATE.fullmatch(word):
            for dtype in (m[1].lower(),) if m[1] else _PLAIN_RATE:
                if dtype in rates:
                    raise InvalidInput("own_gpu_unreadable", field="gpu", value=text[:60])
                rates[dtype] = float(m[2]) * 10**12
        else:
            break
        words.pop()
    if len(memory) != 1 or len(bandwidth) > 1:
        raise InvalidInput("own_gpu_unreadable", field="gpu", value=text[:60])
    name = " ".join(words) or "own"
    found = custom(name, memory[0], bandwidth_bytes_per_s=bandwidth[0] if bandwidth else None, flops_per_s=rates)
    return replace(found, own_text=text)


def as_text(name: str, memory_bytes: int, *, bandwidth_bytes_per_s: float | None = None, flops_per_s: dict[str, float] | None = None) -> str:
    """The text of a device; `from_text` gives the same memory back to the byte. Peaks of fp16 and bf16 that are equal are said once.

    Raises InvalidInput for what `custom` refuses."""
    made = custom(name, memory_bytes, bandwidth_bytes_per_s=bandwidth_bytes_per_s, flops_per_s=flops_per_s)
    words = [" ".join(made.name.split())[:40], whole_bytes(memory_bytes)]
    if made.bandwidth_bytes_per_s is not None:
        words.append(f"{_short(made.bandwidth_bytes_per_s / 10**9)}GB/s")
    rates = dict(made.flops_per_s)
    if len({rates.get(dtype) for dtype in _PLAIN_RATE}) == 1 and "bf16" in rates:
        words.append(f"{_short(rates['bf16'] / 10**12)}TFLOPS")
        rates = {dtype: rate for dtype, rate in rates.items() if dtype not in _PLAIN_RATE}
    words += [f"{dtype}={_short(rates[dtype] / 10**12)}TFLOPS" for dtype in FLOP_DTYPES if dtype in rates]
    text = OWN + " ".join(words)
    from_text(text)  # a name that reads like a figure, or a text too long, is refused here
    return text


def _short(value: float) -> str:
    """At most six digits behind the point, none that say nothing."""
    return f"{value:.6f}".rstrip("0").rstrip(".")


def named(printed: str, memory_bytes: int) -> str:
    """What to call a device that a driver names so and gives so much memory: a row of the table, or the text of an own one.

    The row's rates are kept where only the memory differs by more than 1 % (a chip that is sold with several sizes)."""
    try:
        row = find(printed)
    except UnknownName:
        return as_text(printed, memory_bytes)
    if abs(row.memory_bytes - memory_bytes) * 100 <= memory_bytes:
        return row.name
    return as_text(printed, memory_bytes, bandwidth_bytes_per_s=row.bandwidth_bytes_per_s, flops_per_s=row.flops_per_s)


def shown_name(text: str) -> str:
    """What to call the device in a sentence: an own one by its name alone."""
    try:
        return from_text(text).name if is_own(text) else text
    except InvalidInput:
        return text
