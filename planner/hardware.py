"""Accelerators: what a device has (memory, bandwidth, rates, link), each row with its source. The table is `data/hardware.toml`.

Parsing the whole table takes 20 ms, so it is cut at its `[[gpu]]` lines and only the rows asked for are parsed. No row is shared: every
call builds its own `Hardware`, and a user's own device (`custom`) is a value like any other, kept nowhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from planner.errors import DataError, InvalidInput, UnknownName
from planner.notes import Note, note
from planner.units import GIB, MAX_BYTES, MIB

FLOP_DTYPES = ("fp16", "bf16", "fp8", "fp4", "int8")
_FILE = Path(__file__).parent / "data" / "hardware.toml"

# CUDA compute capability (NVIDIA, CUDA C++ programming guide, table of compute capabilities): by the first words of the name, then by
# architecture. None for other vendors, and where the device is only announced.
_SM_BY_NAME = (
    ("A100", (8, 0)), ("A800", (8, 0)), ("A30", (8, 0)), ("Jetson AGX Orin", (8, 7)), ("Jetson Orin", (8, 7)), ("Jetson AGX Thor", (11, 0)),
    ("DGX Spark GB10", (12, 1)),
)  # fmt: skip
_SM_BY_ARCHITECTURE = {
    "Volta": (7, 0), "Turing": (7, 5), "Ampere": (8, 6), "Ada Lovelace": (8, 9), "Hopper": (9, 0), "Blackwell": (10, 0),
    "Blackwell Ultra": (10, 3), "Blackwell 2.0": (12, 0),
}  # fmt: skip
OWN = "own:"
# Words that say who made it, not which device it is.
_GENERIC = frozenset(("nvidia", "amd", "intel", "apple", "geforce", "tesla", "instinct", "radeon", "quadro", "rtx", "gtx", "gpu", "the"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """One device. Rates are dense peaks (no sparsity) in FLOP/s by dtype name; a missing figure was not seen in a source.

    `memory_bytes` is what the driver reports; `memory_is_marketed` says that only the marketed figure is known. `visible_bytes` is what a
    framework sees, None where no log showed it. `link_bytes_per_s` adds up both directions of one device.
    """

    name: str
    memory_bytes: int
    source: str
    name_as_printed: str = ""
    vendor: str = ""
    architecture: str = ""
    compute_capability: tuple[int, int] | None = None
    memory_is_marketed: bool = False
    memory_source: str = ""
    visible_bytes: int | None = None
    bandwidth_bytes_per_s: float | None = None
    flops_per_s: dict[str, float] = field(default_factory=dict, hash=False)
    link: str = ""
    link_bytes_per_s: float | None = None
    pcie_gen: int | None = None
    tdp_w: float | None = None
    year: int | None = None
    price_usd_per_hour: float | None = None
    price_source: str = ""
    note: str = ""

    own_text: str = field(default="", compare=False)

    @property
    def key(self) -> str:
        """What `find` finds this very device by: its name, or the whole text of a device of the user's own."""
        return self.own_text or self.name

    @property
    def notes(self) -> tuple[Note, ...]:
        """What a plan on this device must say about its figures."""
        return (note("warning", "memory_is_marketed", field="gpu", source=self.source, name=self.name),) if self.memory_is_marketed else ()


# -- the table ---------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _parts() -> tuple[str, ...]:
    """The file's head, then the TOML text of every row."""
    try:
        return tuple(re.split(r"^\[\[gpu\]\]$", _FILE.read_text(encoding="utf-8"), flags=re.MULTILINE))
    except OSError as e:
        raise DataError("bad_table", field="hardware", table=_FILE.name) from e


def as_of() -> str:
    """The day (ISO 8601) on which the table was last changed."""
    match = re.search(r"as of (\d{4}-\d{2}-\d{2})", _parts()[0])
    if match is None:
        raise DataError("bad_table", field="hardware", table=_FILE.name)
    return match[1]


@lru_cache(maxsize=1)
def _blocks() -> tuple[tuple[str, str, str], ...]:
    """(name, printed name, TOML text) of every row, in the order of the file."""
    parts = _parts()[1:]
    return tuple((_line(part, "name"), _line(part, "printed"), part) for part in parts)


def _line(part: str, key: str) -> str:
    match = re.search(rf'^{key} = "([^"\\]*)"$', part, re.MULTILINE)
    return match[1] if match else ""


def _build(part: str) -> Hardware:
    import tomllib

    try:
        row = tomllib.loads(part)
        return _from_row(row)
    except (tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as e:
        raise DataError("bad_table", field="hardware", table=_FILE.name) from e


def _from_row(row: dict[str, Any]) -> Hardware:
    mib, visible_gib = row.get("memory_mib"), row.get("cuda_visible_gib")
    visible = None if visible_gib is None else round(visible_gib * GIB)
    memory = visible if visible is not None else round(row["memory_gb"] * 10**9)
    if mib is not None:
        memory = mib * MIB
    return Hardware(
        name=row["name"],
        name_as_printed=row.get("printed", ""),
        vendor=row["vendor"],
        architecture=row.get("architecture", ""),
        compute_capability=_capability(row["name"], row["vendor"], row.get("architecture", "")),
        memory_bytes=memory,
        memory_is_marketed=mib is None and visible is None,
        memory_source=row.get("memory_checked", ""),
        visible_bytes=visible,
        bandwidth_bytes_per_s=_number(row, "bandwidth"),
        flops_per_s={dtype: float(row[dtype]) for dtype in FLOP_DTYPES if dtype in row},
        link=row.get("link", ""),
        link_bytes_per_s=_number(row, "link_gb_s", 10**9),
        pcie_gen=row.get("pcie"),
        tdp_w=_number(row, "tdp_w"),
        year=row.get("year"),
        price_usd_per_hour=_number(row, "price_usd_h"),
        price_source=row.get("price_source", ""),
        source=row["source"],
        note=row.get("note", ""),
    )


def _number(row: dict[str, Any], key: str, factor: int = 1) -> float | None:
    value = row.get(key)
    return None if value is None else float(value) * factor


def _capability(name: str, vendor: str, architecture: str) -> tuple[int, int] | None:
    if vendor != "NVIDIA":
        return None
    for start, capability in _SM_BY_NAME:
        if name == start or name.startswith(start + " "):
            return capability
    return _SM_BY_ARCHITECTURE.get(architecture)


# -- asking ------------------------------------------------------------------------------------------------------------


def names() -> tuple[str, ...]:
    """The names of all devices, in the order of the table."""
    return tuple(name for name, _, _ in _blocks())


def everything() -> tuple[Hardware, ...]:
    """All devices: parses the whole table (20 ms)."""
    return tuple(_build(part) for _, _, part in _blocks())


def find(name: str) -> Hardware:
    """The device called `name`: our name, or the one that the driver prints; case, punctuation and the maker's name do not matter.

    A part of a name is enough where only one device has it (`4090`, `mi300x`); `own:...` is a device of the user's own (planner/owngpu.py).
    Raises UnknownName (field "gpu") with near names otherwise.
    >>> find("nvidia h100 80gb hbm3").name
    'H100 SXM'
    """
    if is_own(name):
        from planner.owngpu import from_text

        return from_text(name)
    blocks = _blocks()
    wanted = _words(name)
    if not wanted:
        raise UnknownName("gpu_unknown", field="gpu", name=name.strip()[:60], near=", ".join(names()[:4]))
    core = wanted - _GENERIC or wanted
    steps = (
        lambda own, words, cores: "".join(own.split()).casefold() == "".join(name.split()).casefold(),
        lambda own, words, cores: _squeeze(own) == _squeeze(name),
        lambda own, words, cores: words == wanted,
        lambda own, words, cores: cores == core,
    )
    for same in steps:
        for ours, printed, part in blocks:
            for own in filter(None, (ours, printed)):
                words = _words(own)
                if same(own, words, words - _GENERIC or words):
                    return _build(part)
    holding = [(ours, part) for ours, printed, part in blocks if core <= _words(ours) | _words(printed)]
    if len(holding) == 1:
        return _build(holding[0][1])
    shown = name.strip()[:60]
    if holding:
        raise UnknownName("gpu_ambiguous", field="gpu", name=shown, near=", ".join(ours for ours, _ in holding[:8]))
    raise UnknownName("gpu_unknown", field="gpu", name=shown, near=", ".join(near(name)))


def is_own(text: str) -> bool:
    """Whether the text describes a device of the user's own (planner/owngpu.py)."""
    return text.lstrip()[: len(OWN)].casefold() == OWN


def near(name: str, count: int = 5) -> tuple[str, ...]:
    """Names of the table closest to `name`, best first; the first rows where nothing is close."""
    from difflib import get_close_matches

    by_key: dict[str, str] = {}
    for ours, printed, _ in _blocks():
        for own in filter(None, (ours, printed)):
            by_key.setdefault(_squeeze(own), ours)
            by_key.setdefault("".join(sorted(_words(own) - _GENERIC)), ours)
    wanted = _squeeze(name)[:60]
    keys = [key for key in by_key if len(wanted) > 1 and wanted in key] + get_close_matches(wanted, by_key, n=4 * count, cutoff=0.5)
    return tuple(dict.fromkeys(by_key[key] for key in keys))[:count] or names()[:count]


def custom(
    name: str,
    memory_bytes: int,
    *,
    bandwidth_bytes_per_s: float | None = None,
    flops_per_s: dict[str, float] | None = None,
    compute_capability: tuple[int, int] | None = None,
    link_bytes_per_s: float | None = None,
    visible_bytes: int | None = None,
    price_usd_per_hour: float | None = None,
) -> Hardware:
    """A device of the user's own, checked: bytes and rates are positive and finite. Raises InvalidInput naming the argument."""
    shown = "".join(c for c in name.strip()[:80] if c.isprintable())
    if not shown:
        raise InvalidInput("gpu_without_name", field="name")
    _bounded(memory_bytes, "memory_bytes", MAX_BYTES, whole=True)
    if visible_bytes is not None:
        _bounded(visible_bytes, "visible_bytes", memory_bytes, whole=True)
    for part in compute_capability or ():
        _bounded(part + 1, "compute_capability", 99, whole=True)
    for value, key in (
        (bandwidth_bytes_per_s, "bandwidth_bytes_per_s"),
        (link_bytes_per_s, "link_bytes_per_s"),
        (price_usd_per_hour, "price_usd_per_hour"),
        *((rate, f"flops_per_s.{dtype}") for dtype, rate in (flops_per_s or {}).items()),
    ):
        if value is not None:
            _bounded(value, key, 10**21)
    for dtype in flops_per_s or {}:
        if dtype not in FLOP_DTYPES:
            raise InvalidInput("gpu_rate_dtype", field=f"flops_per_s.{dtype}"[:60], known=", ".join(FLOP_DTYPES))
    return Hardware(
        name=shown,
        memory_bytes=memory_bytes,
        visible_bytes=visible_bytes,
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        flops_per_s=dict(flops_per_s or {}),
        compute_capability=compute_capability,
        link_bytes_per_s=link_bytes_per_s,
        price_usd_per_hour=price_usd_per_hour,
        source="user",
    )


def _bounded(value: float, key: str, high: int, *, whole: bool = False) -> None:
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)) or not 0 < value <= high:
        raise InvalidInput("out_of_range", field=key, value=value, low=1, high=high)


def _words(text: str) -> frozenset[str]:
    """Runs of letters and digits, small."""
    return frozenset(re.findall(r"[a-z0-9]+", text.casefold()))


def _squeeze(text: str) -> str:
    return "".join(re.findall(r"[a-z0-9]+", text.casefold()))
