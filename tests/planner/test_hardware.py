"""The accelerator table: every row whole and in bounds, names found as people and drivers write them, literal figures of known devices."""

from __future__ import annotations

import math
import time
import tomllib
from pathlib import Path

import pytest

from planner import hardware
from planner.errors import InvalidInput, UnknownName
from planner.hardware import Hardware, custom, everything, find, names
from planner.units import GIB, MIB
from tests.conftest import refused

TABLE = Path(hardware.__file__).parent / "data" / "hardware.toml"


def test_rows_are_whole() -> None:
    rows = everything()
    assert len(rows) == len(set(names())) == 102
    printed = [row.name_as_printed for row in rows if row.name_as_printed]
    assert len(printed) == len(set(printed))
    for row in rows:
        assert 7 * 10**9 < row.memory_bytes < 600 * 10**9, row.name
        assert row.source, row.name
        assert row.vendor, row.name
        assert row.visible_bytes is None or 0.9 * row.memory_bytes < row.visible_bytes <= row.memory_bytes, row.name
        assert row.bandwidth_bytes_per_s is None or 5e10 < row.bandwidth_bytes_per_s < 3e13, row.name
        assert all(1e12 < rate < 5e16 for rate in row.flops_per_s.values()), row.name
        assert set(row.flops_per_s) <= set(hardware.FLOP_DTYPES), row.name
        assert row.flops_per_s.get("fp8", math.inf) >= row.flops_per_s.get("bf16", 0), row.name
        assert row.link_bytes_per_s is None or 1e11 <= row.link_bytes_per_s <= 4e12, row.name
        assert (row.vendor == "NVIDIA" and "announced" not in row.name) == (row.compute_capability is not None), row.name
        assert (row.price_usd_per_hour is None) == (not row.price_source), row.name
        assert [n.code for n in row.notes] == (["memory_is_marketed"] if row.memory_is_marketed else [])
        assert not row.notes or row.notes[0].text


def test_cutting_the_table_gives_what_parsing_it_gives() -> None:
    whole = tomllib.loads(TABLE.read_text(encoding="utf-8"))["gpu"]
    assert [(row["name"], row.get("printed", "")) for row in whole] == [(name, printed) for name, printed, _ in hardware._blocks()]
    assert [tomllib.loads(part) for _, _, part in hardware._blocks()] == whole


def test_every_name_finds_its_own_row() -> None:
    for row in everything():
        assert find(row.name).name == row.name
        if row.name_as_printed:
            assert find(row.name_as_printed).name == row.name
            assert find(row.name_as_printed.upper()).name == row.name


@pytest.mark.parametrize(
    ("name", "memory_bytes", "visible_bytes", "bandwidth", "bf16", "capability"),
    [
        ("H100 SXM", 81559 * MIB, round(79.19 * GIB), 3.35e12, 989e12, (9, 0)),
        ("A100 SXM 80GB", 81920 * MIB, round(79.2 * GIB), 2.039e12, 312e12, (8, 0)),
        ("A10", 23028 * MIB, None, 6e11, 125e12, (8, 6)),
        ("L4", 23034 * MIB, round(22.04 * GIB), 3e11, 121e12, (8, 9)),
        ("T4", 15360 * MIB, round(14.56 * GIB), 3.2e11, None, (7, 5)),
        ("B200 SXM", 183359 * MIB, None, 8e12, 2250e12, (10, 0)),
        ("GB300 (per GPU)", 284208 * MIB, None, 8e12, 2500e12, (10, 3)),
        ("RTX 5090", 32607 * MIB, round(31.36 * GIB), 1.792e12, 209e12, (12, 0)),
        ("DGX Spark GB10", round(119.7 * GIB), round(119.7 * GIB), 2.73e11, None, (12, 1)),
        ("Jetson AGX Thor (T5000)", 125790 * MIB, None, None, 258.5e12, (11, 0)),
        ("Jetson AGX Orin 64GB", 64 * 10**9, None, 2.048e11, None, (8, 7)),
        ("V100 SXM2 32GB", 32768 * MIB, None, 9e11, None, (7, 0)),
        ("MI300X", 196592 * MIB, round(191.69 * GIB), 5.3e12, 1307e12, None),
        ("TPU v5e", 16 * 10**9, None, 8.19e11, 197e12, None),
    ],
)
def test_known_devices(
    name: str, memory_bytes: int, visible_bytes: int | None, bandwidth: float | None, bf16: float | None, capability: tuple[int, int] | None
) -> None:
    row = find(name)
    assert (row.memory_bytes, row.visible_bytes, row.compute_capability) == (memory_bytes, visible_bytes, capability)
    assert (row.bandwidth_bytes_per_s, row.flops_per_s.get("bf16")) == (bandwidth, bf16)


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("h100 sxm", "H100 SXM"), ("H100-SXM", "H100 SXM"), ("h100sxm", "H100 SXM"), ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("nvidia h100 pcie", "H100 PCIe"), ("NVIDIA H200", "H200 SXM"), ("4090", "RTX 4090"), ("GeForce RTX 4090", "RTX 4090"),
        ("rtx 3090", "RTX 3090"), ("3090 ti", "RTX 3090 Ti"), ("NVIDIA A100-SXM4-80GB", "A100 SXM 80GB"),
        ("A100-SXM4-40GB", "A100 SXM 40GB"), ("l4", "L4"), ("L40", "L40"), ("l40s", "L40S"), ("A10", "A10"), ("a10g", "A10G"),
        ("a6000", "RTX A6000"), ("mi300x", "MI300X"), ("AMD Instinct MI300X", "MI300X"), ("gb10", "DGX Spark GB10"), ("b200", "B200 SXM"),
        ("gb200", "GB200 (per GPU)"), ("m3 max", "Apple M3 Max"),
    ],
)  # fmt: skip
def test_names_as_people_write_them(asked: str, name: str) -> None:
    assert find(asked).name == name


@pytest.mark.parametrize(
    ("asked", "code", "offered"),
    [
        ("h100", "gpu_ambiguous", "H100 SXM"),
        ("A100", "gpu_ambiguous", "A100 PCIe 80GB"),
        ("nvidia", "gpu_ambiguous", "A10"),
        ("", "gpu_unknown", ""),
        ("  ", "gpu_unknown", ""),
        ("h1000", "gpu_unknown", "H100"),
        ("MI300", "gpu_unknown", "MI300X"),
        ("RTX 4091", "gpu_unknown", "RTX 4090"),
        ("\u2603" * 1000, "gpu_unknown", ""),
    ],
)
def test_no_such_name(asked: str, code: str, offered: str) -> None:
    with pytest.raises(UnknownName) as caught:
        find(asked)
    assert (caught.value.code, caught.value.field) == (code, "gpu")
    assert offered in caught.value.hint
    assert len(caught.value.message) < 200


def test_rows_are_not_shared() -> None:
    find("H100 SXM").flops_per_s.clear()
    assert find("H100 SXM").flops_per_s["bf16"] == 989e12
    assert find("H100 SXM") == find("h100-sxm")
    assert len({find("H100 SXM"), find("H100 SXM")}) == 1


def test_custom() -> None:
    mine = custom("My card", 48 * GIB, bandwidth_bytes_per_s=1e12, flops_per_s={"bf16": 1e14}, compute_capability=(8, 9))
    assert isinstance(mine, Hardware)
    assert mine.memory_bytes == 48 * GIB
    assert mine.source == "user"
    assert mine.notes == ()
    assert "My card" not in names()


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"name": " "}, "name"),
        ({"memory_bytes": 0}, "memory_bytes"),
        ({"memory_bytes": -1}, "memory_bytes"),
        ({"memory_bytes": True}, "memory_bytes"),
        ({"memory_bytes": 1.5}, "memory_bytes"),
        ({"memory_bytes": 2**63}, "memory_bytes"),
        ({"visible_bytes": 2 * GIB}, "visible_bytes"),
        ({"bandwidth_bytes_per_s": math.nan}, "bandwidth_bytes_per_s"),
        ({"bandwidth_bytes_per_s": math.inf}, "bandwidth_bytes_per_s"),
        ({"flops_per_s": {"bf16": 0}}, "flops_per_s.bf16"),
        ({"flops_per_s": {"fp12": 1e12}}, "flops_per_s.fp12"),
        ({"compute_capability": (-1, 0)}, "compute_capability"),
        ({"price_usd_per_hour": -2.0}, "price_usd_per_hour"),
    ],
)
def test_custom_refused(given: dict[str, object], field: str) -> None:
    with refused(InvalidInput, field):
        custom(**{"name": "x", "memory_bytes": GIB, **given})  # type: ignore[arg-type]


def test_finding_parses_one_row_only() -> None:
    find("H100 SXM")
    started = time.process_time()
    for _ in range(20):
        find("H100 SXM")
    assert (time.process_time() - started) / 20 < 0.015
