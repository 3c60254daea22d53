"""DeepSeek-V4 token by token: window rows, compressed rows and index keys in the architecture; buffers and overlaps in transformers.

The lengths straddle the edges of both ratios (4 and 128) and of the window (128). transformers 5.24 was run on a small model of this
shape at 3, 9, 70, 302 and 512 tokens and held exactly these tensors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner.cache import Term
from planner.errors import UnsupportedValue
from planner.footprint import measure
from planner.readers import read_config
from planner.scenario import Scenario
from tests.conftest import small_configs

V4 = dict(small_configs())["deepseek_v4"]
ROW, KEY = 512 * 2, 128 * 2  # bytes of a row and of an index key


def measured(config: dict[str, Any], engine: str, tokens: int) -> int:
    return measure(read_config(config), None, Scenario(engine=engine, tokens=tokens, sequences=1)).engine_bytes


@pytest.mark.parametrize(
    ("tokens", "rows", "fine", "coarse"),
    [(1, 1, 0, 0), (3, 3, 0, 0), (4, 4, 1, 0), (127, 127, 31, 0), (128, 128, 32, 1), (129, 128, 32, 1), (3000, 128, 750, 23)],
)
def test_the_architecture_keeps_whole_rows(tokens: int, rows: int, fine: int, coarse: int) -> None:
    assert measured(V4, "architecture", tokens) == 6 * rows * ROW + 2 * fine * (ROW + KEY) + 2 * coarse * ROW


@pytest.mark.parametrize(
    ("tokens", "rows", "fine", "fine_rest", "coarse", "coarse_rest"),
    [
        (1, 1, 0, 1, 0, 1),
        (3, 3, 0, 3, 0, 3),
        (4, 4, 1, 0, 0, 4),
        (127, 127, 31, 3, 0, 127),
        (128, 127, 32, 0, 1, 0),
        (129, 127, 32, 1, 1, 1),
        (3002, 127, 750, 2, 23, 58),
    ],
)
def test_transformers_buffers_what_is_no_whole_row_yet(tokens: int, rows: int, fine: int, fine_rest: int, coarse: int, coarse_rest: int) -> None:
    windows = (4 + 2 * 2) * rows * ROW  # the two layers without a compressor hold their row as K and as V
    compressed = 2 * fine * (ROW + KEY) + 2 * coarse * ROW
    buffers = 2 * fine_rest * 2 * 2 * (ROW + KEY) + 2 * coarse_rest * 2 * ROW  # key and gate; twice as wide where chunks overlap
    overlap = 2 * 4 * (512 + 128) * (2 + 4) if fine else 0  # the last chunk: keys in bf16, gates in fp32
    assert measured(V4, "transformers", tokens) == windows + compressed + buffers + overlap


def test_ratios_may_be_longer_than_the_stack_and_never_shorter() -> None:
    assert len(V4["compress_ratios"]) == len(read_config(V4).layers) + 1  # the tail belongs to the MTP layer
    for ratios in ([0, 4], [0, 8, 4, 4, 4, 4]):
        with pytest.raises(UnsupportedValue) as caught:
            read_config({**V4, "compress_ratios": ratios})
        assert caught.value.field == "compress_ratios"


def test_the_reference_files_read_like_the_published_ones() -> None:
    names = {"hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads", "moe_intermediate_size": "moe_inter_dim",
             "num_experts_per_tok": "n_activated_experts", "sliding_window": "window_size"}  # fmt: skip
    inference = {names.get(k, k): v for k, v in V4.items() if k not in ("model_type", "architectures")}
    assert read_config(inference).layers == read_config(V4).layers
    assert read_config({**V4, "model_type": "deepseek_ref"}).layers == read_config(V4).layers


def test_a_sawtooth_counts_ints_and_arrays_alike() -> None:
    term = Term(unit_bytes=1, unit_tokens=4, rounding="rest")
    assert [term.units(n) for n in (0, 1, 3, 4, 7)] == [0, 1, 3, 0, 3]
    assert term.units(np.array([0, 1, 3, 4, 7])).tolist() == [0, 1, 3, 0, 3]
