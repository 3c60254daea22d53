"""Terms, groups and pools: literal units, and properties that must hold for every one of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cache import Group, Pool, Rows, State, StateTensor, Term, max_sequences, max_tokens
from planner.dtypes import DTYPES, KV_DTYPES, kv_layout
from planner.errors import UnsupportedValue

TERMS = st.builds(
    Term,
    unit_bytes=st.integers(1, 10**6),
    unit_tokens=st.one_of(st.none(), st.integers(1, 4096)),
    rounding=st.sampled_from(["ceil", "floor"]),
    cap_tokens=st.one_of(st.none(), st.integers(1, 10**6)),
    extra_units=st.integers(0, 5),
)


@pytest.mark.parametrize(
    ("term", "tokens", "units"),
    [
        (Term(unit_bytes=1, unit_tokens=16), 0, 0),
        (Term(unit_bytes=1, unit_tokens=16), 1, 1),
        (Term(unit_bytes=1, unit_tokens=16), 16, 1),
        (Term(unit_bytes=1, unit_tokens=16), 17, 2),
        (Term(unit_bytes=1, unit_tokens=4, rounding="floor"), 7, 1),
        (Term(unit_bytes=1, unit_tokens=16, cap_tokens=1023 + 16384, extra_units=1), 131072, 1089),  # Gemma-3's window group in vLLM
        (Term(unit_bytes=1, unit_tokens=None, extra_units=3), 10**9, 3),
    ],
)
def test_units(term: Term, tokens: int, units: int) -> None:
    assert term.units(tokens) == units
    assert term.units(np.array([tokens])).tolist() == [units]


@given(TERMS, st.integers(0, 10**7))
def test_a_term_is_monotone_and_the_same_for_arrays(term: Term, tokens: int) -> None:
    assert 0 <= term.units(tokens) <= term.units(tokens + 1)
    assert term.units(np.array([tokens, tokens + 1])).tolist() == [term.units(tokens), term.units(tokens + 1)]


@st.composite
def pools(draw: st.DrawFn) -> tuple[Pool, ...]:
    groups = tuple(
        Group(kind="full", layers=tuple(range(draw(st.integers(1, 8)))), admission=t, resident=t) for t in draw(st.lists(TERMS, min_size=1, max_size=3))
    )
    pooled = draw(st.booleans())
    block = max(len(g.layers) * g.resident.unit_bytes for g in groups)
    return (Pool(name="p", groups=groups, priced="pooled" if pooled else "own", block_bytes=block if pooled else 0, null_blocks=int(pooled)),)


@given(pools(), st.integers(1, 10**5), st.integers(0, 10**12))
def test_the_most_sequences_fit_and_one_more_does_not(p: tuple[Pool, ...], tokens: int, budget: int) -> None:
    n = max_sequences(p, tokens, budget)
    each = sum(q.bytes(1, tokens) - q.bytes(0, tokens) for q in p)
    if n:
        assert sum(q.bytes(n, tokens) for q in p) <= budget
    if each:
        assert sum(q.bytes(n + 1, tokens) for q in p) > budget


@given(pools(), st.integers(1, 50), st.integers(0, 10**12), st.integers(1, 10**6))
def test_the_longest_length_fits_and_one_more_does_not(p: tuple[Pool, ...], sequences: int, budget: int, limit: int) -> None:
    t = max_tokens(p, sequences, budget, limit)
    if t:
        assert sum(q.bytes(sequences, t) for q in p) <= budget
    if t < limit:
        assert sum(q.bytes(sequences, t + 1) for q in p) > budget


@given(st.integers(1, 64), st.integers(1, 512), st.integers(0, 512), st.integers(1, 10**5), st.integers(1, 10**5))
def test_a_window_never_reads_more_than_full_attention(heads: int, k: int, v: int, tokens: int, window: int) -> None:
    layout = kv_layout("bf16")
    full, cut = Rows(heads=heads, k_dim=k, v_dim=v), Rows(heads=heads, k_dim=k, v_dim=v, window=window)
    assert cut.bytes_read_per_step(tokens, layout) <= full.bytes_read_per_step(tokens, layout) == tokens * heads * (k + v) * 2


@pytest.mark.parametrize(
    ("dtype", "heads", "k", "v", "bytes_"),
    [
        ("bf16", 8, 128, 128, 4096),
        ("fp32", 8, 128, 128, 8192),
        ("fp8", 8, 128, 128, 2048),
        ("int8", 1, 128, 128, 256),
        ("fp8_per_token_head", 1, 128, 128, 264),  # 256 + two fp32 scales
        ("int4_per_token_head", 1, 128, 128, 136),
        ("nvfp4", 1, 128, 128, 144),  # 2 x (64 + 8)
        ("q8_0", 1, 128, 128, 272),  # 8 blocks of 34
        ("q4_0", 1, 64, 64, 72),
        ("bf16", 1, 576, 0, 1152),  # an MLA latent: no V
        ("fp8_per_token_head", 1, 576, 0, 580),
    ],
)
def test_row_bytes(dtype: str, heads: int, k: int, v: int, bytes_: int) -> None:
    assert kv_layout(dtype).row_bytes(heads, k, v) == bytes_


def test_every_kv_dtype_has_a_layout_and_others_are_refused() -> None:
    for name in KV_DTYPES[1:]:
        assert kv_layout(name).row_bytes(1, 64, 64) > 0
    for name in ("int32", "auto", "bf17"):
        with pytest.raises(UnsupportedValue):
            kv_layout(name)


def test_a_state_keeps_its_dtype_and_drops_columns_of_the_convolution_only() -> None:
    state = State(
        tensors=(
            StateTensor(name="conv", role="conv", elements=8192 * 4, columns=4),
            StateTensor(name="recurrent", role="recurrent", elements=32 * 128 * 128, dtype=DTYPES["fp32"]),
        )
    )
    assert state.bytes_per_sequence(DTYPES["bf16"]) == 8192 * 4 * 2 + 32 * 128 * 128 * 4
    assert state.bytes_per_sequence(DTYPES["bf16"], drop_conv_columns=1) == 8192 * 3 * 2 + 32 * 128 * 128 * 4
