"""Items on bytes alone. Every size is found in the tensors and compared with a formula that stands here."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import torch

from gpu_probe import measure
from gpu_probe.cache import PagedCache, Pages
from gpu_probe.claims import HOLDS, NOT, Item, item
from gpu_probe.claims.runs import BLOCK_SIZE, Lean, cache_of, decoder_of, heads
from gpu_probe.figures.ceilings import Host
from planner.units import GIB, gib

ROW = 2 * 2 * 4 * 32 * 4
"""Bytes a token of the small decoder here: K and V, 2 layers, 4 heads of 32 in fp32."""
SMALL = decoder_of(heads(4, 4, 32), layers=2, hidden=128, mlp=128)
LONGEST, SEQUENCES = 1024, 16
PAGED_BLOCKS = SEQUENCES * LONGEST // BLOCK_SIZE


def _held(cache: PagedCache) -> int:
    return sum(h.held_bytes for h in measure.held(cache))


def _fill(cache: PagedCache, sequence: int, start: int, end: int) -> None:
    """Rows of random numbers for the tokens start ... end - 1, through the block table."""
    views = cache.views([sequence], [start], end - start, prefill=True)
    for group, view in zip(cache.groups, views.values(), strict=True):
        for pages in group.layers.values():
            assert isinstance(pages, Pages)
            k = torch.randn(1, end - start, *pages.keys.shape[2:])
            pages.write(view.slots, k.to(cache.device), None if pages.values is None else torch.randn_like(k).to(cache.device))


def paged(host: Host, ceilings: Mapping[str, float]) -> Item:
    """Requests of mixed lengths: blocks as they are needed against room for the longest."""
    dice = random.Random(host.seed)
    lengths = [dice.randint(1, LONGEST) for _ in range(SEQUENCES)]
    _, cache = cache_of(SMALL, host, blocks=PAGED_BLOCKS)
    for s, n in enumerate(lengths):
        cache.add([s])
        _fill(cache, s, 0, n)
    found = _held(cache)
    (whole,) = measure.held(cache)
    expected = sum(-(-n // BLOCK_SIZE) * BLOCK_SIZE for n in lengths) * ROW
    stored, reserved = sum(lengths) * ROW, whole.allocated_bytes
    numbers = {"lengths": lengths, "paged_bytes": found, "expected_bytes": expected, "contiguous_bytes": reserved, "stored_bytes": stored,
               "paged_waste": 1 - stored / found, "contiguous_waste": 1 - stored / reserved, "unusable_blocks": whole.unusable_blocks}  # fmt: skip
    right = found == expected and reserved == SEQUENCES * LONGEST * ROW
    return item("paged", "C7 C15", HOLDS if found < reserved else NOT, numbers, bytes_right=right, sequences=SEQUENCES, longest=LONGEST, found=found,
                reserved=reserved, waste=f"{100 * (1 - stored / found):.1f}", lost=f"{100 * (1 - stored / reserved):.0f}")  # fmt: skip


SHARING = (8, 256, 64)
"""Sequences, tokens in common, tokens of each one's own."""
PREFIX_BLOCKS = SHARING[0] * (SHARING[1] + SHARING[2]) // BLOCK_SIZE + 4


def prefix(host: Host, ceilings: Mapping[str, float]) -> Item:
    """Eight requests that begin with the same 256 tokens and go on for 64 of their own: together, and each for itself."""
    n, common, own = SHARING
    sizes = {}
    for shared in (True, False):
        _, cache = cache_of(SMALL, host, blocks=PREFIX_BLOCKS)
        cache.add([0])
        _fill(cache, 0, 0, common)
        for s in range(1, n):
            if shared:
                cache.fork(0, [s], common)
            else:
                cache.add([s])
                _fill(cache, s, 0, common)
        for s in range(n):
            _fill(cache, s, common, common + own)
        sizes[shared] = _held(cache)
    expected = {True: (common + n * own) * ROW, False: n * (common + own) * ROW}
    numbers = {"sequences": n, "prefix_tokens": common, "own_tokens": own, "shared_bytes": sizes[True], "apart_bytes": sizes[False],
               "expected_shared_bytes": expected[True], "expected_apart_bytes": expected[False]}  # fmt: skip
    return item("prefix", "C7 C15", HOLDS if sizes[True] < sizes[False] else NOT, numbers, bytes_right=sizes == expected, sequences=n, common=common, own=own,
                shared=sizes[True], apart=sizes[False], ratio=f"{sizes[False] / sizes[True]:.2f}")  # fmt: skip


TOKENS = 256
FORMAT_BLOCKS = TOKENS // BLOCK_SIZE + 2
SCALE_BYTES = 2 * 2 * 4 * 4
"""A float32 beside each K and each V: 2 layers, 4 heads."""
FORMATS = {"fp32": ROW, "bf16": ROW // 2, "fp8": ROW // 4, "fp8_per_token_head": ROW // 4 + SCALE_BYTES, "int8_per_token_head": ROW // 4 + SCALE_BYTES}
"""Bytes a token in each format of the cache."""


def dtypes(host: Host, ceilings: Mapping[str, float]) -> Item:
    """The same tokens in every format. Formats with scales keep one float32 beside each K and V of a token and head."""
    sizes = {}
    for name in FORMATS:
        _, cache = cache_of(SMALL, host, blocks=FORMAT_BLOCKS, kv=name)
        cache.add([0])
        _fill(cache, 0, 0, TOKENS)
        sizes[name] = _held(cache)
    expected = {name: each * TOKENS for name, each in FORMATS.items()}
    said = ", ".join(f"{name} {sizes[name] / sizes['bf16']:.3g}" for name in FORMATS)
    numbers = {"tokens": TOKENS, "bytes": sizes, "expected_bytes": expected}
    return item("kv_dtype", "C6 C7 C14", HOLDS if sizes == expected else NOT, numbers, bytes_right=sizes == expected, ratios=said)


UNCHANGED = (100, 16)
"""Tokens before, and steps."""


def unchanged(host: Host, ceilings: Mapping[str, float]) -> Item:
    """Every row of the cache before and after 16 more steps: the old ones are the same, bit for bit, and each step adds one row."""
    tokens, steps = UNCHANGED
    lean = Lean(SMALL, host, context=tokens, room=tokens + steps + 1)
    before = _rows(lean, tokens)
    held_before = lean.kv_bytes()
    for i in range(steps):
        lean.context = tokens + i
        lean.position.fill_(tokens + i)
        lean.step()
    after, grown = _rows(lean, tokens + steps), lean.kv_bytes() - held_before
    same = all(torch.equal(a, b[:tokens]) for a, b in zip(before, after, strict=True))
    new = all(bool(b[tokens:].flatten(1).abs().sum(1).gt(0).all()) for b in after)
    expected = (-(-(tokens + steps) // BLOCK_SIZE) - -(-tokens // BLOCK_SIZE)) * BLOCK_SIZE * ROW
    numbers: dict[str, Any] = {"tokens": tokens, "steps": steps, "old_rows_equal": same, "grown_bytes": grown, "expected_bytes": expected, "row_bytes": ROW}
    return item("unchanged", "C4 C19", HOLDS if same and new else NOT, numbers, bytes_right=grown == expected, tokens=tokens, steps=steps, row=ROW)


def _rows(lean: Lean, tokens: int) -> list[torch.Tensor]:
    (group,) = lean.cache.groups
    blocks = torch.tensor(group.pool.tables[0].blocks, device=lean.host.device)
    return [t[blocks].flatten(0, 1)[:tokens].clone() for pages in group.layers.values() for t in pages.tensors()]


LLAMA_LAYER = decoder_of(heads(40, 40, 128), layers=1, hidden=64, mlp=16)
LLAMA_TOKENS = 4000
LLAMA_BLOCKS = LLAMA_TOKENS // BLOCK_SIZE + 1


def llama_2_13b(host: Host, ceilings: Mapping[str, float]) -> list[Item]:
    """One layer of Llama-2-13B (40 heads of 128, fp16) really held at 4,000 tokens, times its 40 layers; its weights by its shapes."""
    layers, hidden, width, vocab, tokens = 40, 5120, 13_824, 32_000, LLAMA_TOKENS
    _, cache = cache_of(LLAMA_LAYER, host, blocks=LLAMA_BLOCKS, kv="fp16")
    cache.add([0])
    _fill(cache, 0, 0, tokens)
    total = layers * _held(cache)
    weights = 2 * (layers * (4 * hidden**2 + 3 * hidden * width + 2 * hidden) + 2 * vocab * hidden + hidden)
    each = total // tokens
    numbers = {"bytes_per_token": each, "tokens": tokens, "bytes": total, "weight_bytes": weights, "tokens_as_large_as_weights": weights // each}
    about = HOLDS if 0.75 <= each / 1e6 <= 1.25 and 0.75 <= total / 4e9 <= 1.25 else NOT
    near = HOLDS if total >= weights / 2 else NOT
    return [
        item("llama_size", "C20", about, numbers, bytes_right=each == 819_200, each=each, total=total, gib=f"{total / GIB:.2f}"),
        item("llama_weights", "C20", near, numbers, share=f"{100 * total / weights:.1f}", weights=gib(weights), tokens=weights // each),
    ]
