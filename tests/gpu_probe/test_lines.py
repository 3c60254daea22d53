"""The lines of the result: per group, layer and token, tables, fragmentation, levels."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gpu_probe import compare, device, measure
from gpu_probe.__main__ import table
from gpu_probe.pool import BlockPool
from gpu_probe.result import ProbeRequest, ProbeResult
from gpu_probe.run import run
from tests.gpu_probe.tiny import MODELS, paged


@pytest.fixture(autouse=True)
def _no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "limit_memory", lambda *a: None)


def probed(name: str, **asked: object) -> ProbeResult:
    return run(MODELS[name], ProbeRequest(device="cpu", prompt=60, output=10, **asked))  # type: ignore[arg-type]


def test_lines_of_layers_and_tokens_by_hand() -> None:
    """Two sequences of 70 tokens: 5 blocks of 16 each in the full layer, 3 in the sliding ones. A row: 2 heads x 32 numbers x 4 bytes."""
    result = probed("window")
    one = {"predicted_bytes_per_token": 256, "bytes_per_token": 256}
    assert list(result.lines) == [
        {"layer": 0, "kind": "window", "predicted_bytes": 96 * 256, "measured_bytes": 96 * 256, **one},
        {"layer": 1, "kind": "full", "predicted_bytes": 160 * 256, "measured_bytes": 160 * 256, **one},
        {"layer": 2, "kind": "window", "predicted_bytes": 96 * 256, "measured_bytes": 96 * 256, **one},
    ]
    assert sum(line["measured_bytes"] for line in result.lines) == result.measured_kv_bytes
    assert [(g["kind"], g["predicted_bytes_per_token"], g["bytes_per_token"]) for g in result.groups] == [("window", 512, 512), ("full", 256, 256)]


@pytest.mark.parametrize(("name", "entries"), [("gqa", 2 * 5), ("window", 2 * 5 + 2 * 3), ("mla", 2 * 5)])
def test_block_tables_are_counted(name: str, entries: int) -> None:
    result = probed(name)
    assert result.predicted_table_bytes == result.table_bytes == 4 * entries


def test_fragmentation_by_hand() -> None:
    """Held: 80 slots for 70 rows, three layers of 256 bytes a row. Contiguous: the model's 4,096 tokens for each sequence."""
    result = probed("gqa")
    found = result.fragmentation
    assert (found["internal_bytes"], found["external_bytes"]) == (2 * 10 * 256 * 3, 0)
    assert found["contiguous_bytes"] == 2 * 4096 * 256 * 3
    assert found["held_share_of_contiguous"] == pytest.approx(80 / 4096)
    sliding = probed("window").fragmentation
    assert sliding["contiguous_bytes"] == 2 * (4096 + 2 * 21) * 256


def test_without_a_maximal_context_nothing_is_compared() -> None:
    found = run(replace(MODELS["gqa"], max_context_tokens=None), ProbeRequest(device="cpu", prompt=9, output=1))
    assert (found.fragmentation["contiguous_bytes"], found.fragmentation["held_share_of_contiguous"]) == (None, None)


class Fragmented(BlockPool):
    """Hands out neighbours only: what a contiguous allocator does."""

    def extend(self, sequence: int, tokens: int, *, keep_all: bool = False) -> None:
        wanted = -(-tokens // self.block_size) - self.tables[sequence].end()
        free = sorted(self._free)
        run_ = next((free[i : i + wanted] for i in range(len(free) - wanted + 1) if free[i + wanted - 1] - free[i] == wanted - 1), None)
        if run_ is None:
            from gpu_probe.pool import PoolExhausted

            raise PoolExhausted(wanted, len(free), self.num_blocks)
        for block in run_:
            self._free.remove(block)
            self._references[block] = 1
            self.tables[sequence].blocks.append(block)


def test_external_fragmentation_is_really_looked_for() -> None:
    pool = BlockPool(12, 4)
    for s in range(3):
        pool.add(s)
        pool.extend(s, 12)
    pool.release(1)
    peak = pool.peak_used
    assert measure.unusable_blocks(pool) == 0
    assert (pool.free(), pool.peak_used, sorted(pool.tables)) == (6, peak, [0, 2])
    pool.check()
    broken = Fragmented(12, 4)
    for s in range(4):
        broken.add(s)
        broken.extend(s, 12)
    broken.release(0)
    broken.release(2)
    assert measure.unusable_blocks(broken) == 6


def test_levels_are_those_that_the_device_has() -> None:
    result = probed("gqa")
    assert set(result.levels) == {"tensor", "allocator", "reserved", "device"}
    assert result.levels["tensor"] is not None
    assert result.levels["tensor"] >= result.measured_kv_bytes
    assert device.levels(torch.device("cpu"), 7) == {"tensor": 7, "allocator": None, "reserved": None, "device": None}


def test_levels_of_a_cuda_device_come_from_torch_and_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda d: (10, 100))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda d: 50)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda d: 70)
    assert device.levels(torch.device("cuda"), 40) == {"tensor": 40, "allocator": 50, "reserved": 70, "device": 90}


def test_held_bytes_of_layers_sum_to_the_groups() -> None:
    _, attention, _ = paged(MODELS["shared"])
    for held in measure.held(attention.cache):
        assert sum(held.by_layer.values()) == held.held_bytes


def test_the_text_shows_them() -> None:
    said = table(probed("window").to_json())
    for words in (
        "Block tables",
        "KV bytes a token: window",
        "Free bytes that no request can get",
        "Empty bytes in held blocks",
        "Contiguous reservation of 4096",
    ):
        assert words in said
    assert "layer 0: window, 24,576 bytes predicted, 24,576 measured" in said
    assert "layers 0-2: full, 40,960 bytes predicted, 40,960 measured each" in table(probed("gqa").to_json())


def test_equal_neighbours_are_one_line() -> None:
    lines = [{"layer": i, "kind": "full", "predicted_bytes": 8, "measured_bytes": 8} for i in (0, 1, 2, 5)]
    assert len(compare.layer_text(lines)) == 2
    assert compare.layer_text([]) == []
