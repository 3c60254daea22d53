"""Sequences that share their first blocks: counted once, read by all, and copied before anyone writes into them."""

from __future__ import annotations

import pytest
import torch

from gpu_probe import device, measure, proof, reference
from gpu_probe.attention import PagedAttention
from gpu_probe.cache import PagedCache
from gpu_probe.model import Decoder
from gpu_probe.pool import BlockPool
from gpu_probe.result import ProbeRequest, ProbeResult
from gpu_probe.run import run
from gpu_probe.weights import random_weights
from planner.dtypes import kv_layout
from planner.engines.probe import allocate, held_blocks, predicted_kv_bytes, shared_blocks
from planner.errors import InvalidInput
from tests.gpu_probe.tiny import MODELS, heads, model, plan


@pytest.fixture(autouse=True)
def _no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "limit_memory", lambda *a: None)


def probed(name: str, **asked: object) -> ProbeResult:
    return run(MODELS[name], ProbeRequest(device="cpu", **asked))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["gqa", "mla", "window", "chunk", "shared"])
@pytest.mark.parametrize("prefix", [16, 50, 64])
def test_a_shared_prefix_meets_its_prediction_and_the_recomputation(name: str, prefix: int) -> None:
    result = probed(name, batch=3, prompt=64, output=9, shared_prefix=prefix)
    assert result.bytes_agree
    assert all(row.predicted == row.measured for row in result.rows if row.exact)
    assert result.logits_max_rel_error is not None
    assert result.logits_max_rel_error < 1e-5
    alone = probed(name, batch=3, prompt=64, output=9)
    assert result.measured_kv_bytes < alone.measured_kv_bytes or all(g["shared_blocks"] == 0 for g in result.groups)


def test_bytes_of_a_shared_prefix_by_hand() -> None:
    """Three sequences of 73 tokens hold 5 blocks each; 48 of the 50 tokens fill 3 blocks, which are there once."""
    result = probed("gqa", batch=3, prompt=64, output=9, shared_prefix=50)
    assert result.measured_kv_bytes == (3 * 5 - 2 * 3) * 16 * 2 * 32 * 4 * 3
    assert result.groups[0]["shared_blocks"] == 3
    assert "probe_shared" in {n["code"] for n in result.notes}


def test_the_whole_prompt_is_never_shared_whole() -> None:
    """Its last token must be computed by every sequence, so that its block cannot be shared."""
    assert ProbeRequest(prompt=64, shared_prefix=64).shared_tokens() == 48
    assert ProbeRequest(prompt=64, shared_prefix=63).shared_tokens() == 48
    assert ProbeRequest(prompt=65, shared_prefix=64).shared_tokens() == 64
    assert ProbeRequest(batch=1, prompt=64, shared_prefix=64).shared_tokens() == 0
    result = probed("mqa", prompt=15, output=2, shared_prefix=15)
    assert result.bytes_agree
    assert "probe_shared_short" in {n["code"] for n in result.notes}


@pytest.mark.parametrize("value", [-1, 65, True, 1.5])
def test_a_prefix_out_of_range_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput) as refused:
        ProbeRequest(prompt=64, shared_prefix=value).checked()  # type: ignore[arg-type]
    assert refused.value.field == "shared_prefix"


@pytest.mark.parametrize("keep", [None, 1, 3, 7])
@pytest.mark.parametrize(("tokens", "prefix"), [(t, p) for t in (16, 17, 40, 64, 65, 160) for p in (0, 4, 16, 32) if p < t])
def test_the_prediction_is_what_pools_do(keep: int | None, tokens: int, prefix: int) -> None:
    pool = BlockPool(200, 4, keep_blocks=keep)
    pool.add(0)
    pool.extend(0, max(prefix, 1), keep_all=True)
    for child in (1, 2):
        pool.fork(0, child, prefix) if prefix else pool.add(child)
    for who in (0, 1, 2):
        pool.extend(who, tokens, keep_all=True)
        pool.make_writable(who, prefix, tokens)
    for who in (0, 1, 2):
        pool.trim(who)
    limit = None if keep is None else (keep - 1) * 4 + 1
    spec = MODELS["gqa"] if limit is None else model(heads(window=limit))
    (group,) = allocate(spec, kv=kv_layout("fp32"), block_size=4)[0].groups
    assert pool.used() == held_blocks(group, 3, tokens, prefix)
    assert pool.shared() == shared_blocks(group, tokens, prefix)


class NoCopy(PagedCache):
    """Tables get their own block; the contents are not copied."""

    def _copy(self, group: object, copies: object) -> None:
        return


@pytest.mark.parametrize(("kind", "right"), [(PagedCache, True), (NoCopy, False)])
def test_a_fork_within_a_block_is_copied_on_write(kind: type[PagedCache], right: bool) -> None:
    """Two sequences part in the middle of a block. Each then reads its own rows, and both the ones they share."""
    made, _ = plan(MODELS["gqa"], prompt=24, output=8)
    cpu = torch.device("cpu")
    decoder = Decoder(made.shape, random_weights(made.shape, seed=1, dtype=torch.float32, device=cpu), max_tokens=64)
    cache = kind.build(made.shape, made, dtype=torch.float32, device=cpu, block_size=16, seed=0)
    attention = PagedAttention(cache)
    ids = torch.randint(0, made.shape.vocab, (2, 32), generator=torch.Generator().manual_seed(3))
    ids[1, :20] = ids[0, :20]

    def step(sequences: list[int], start: int, end: int) -> torch.Tensor:
        attention.begin(sequences, [start] * len(sequences), end - start, prefill=True)
        return decoder.forward(ids[sequences, start:end], torch.arange(start, end).expand(len(sequences), -1), attention, last_only=False)

    cache.add([0])
    step([0], 0, 20)
    cache.fork(0, [1], 20)
    held = [group.pool.used() for group in cache.groups]
    got = step([0, 1], 20, 32)
    assert held == [2]
    assert cache.blocks_copied == (len(held) if right else 0)
    error = proof.relative_error(got, reference.full_logits(made.shape, decoder.weights, ids)[:, 20:])
    assert (error < 1e-5) == right
    for group in cache.groups:
        group.pool.check()
    assert sum(h.shared_blocks for h in measure.held(cache)) == 1
    cache.release([0, 1])
    assert cache.groups[0].pool.free() == cache.groups[0].pool.num_blocks


def test_a_prediction_that_forgets_the_prefix_is_caught() -> None:
    result = probed("gqa", batch=2, prompt=64, output=9, shared_prefix=32)
    pools = allocate(MODELS["gqa"], kv=kv_layout("fp32"), block_size=16)
    assert predicted_kv_bytes(pools, 2, 73) != result.measured_kv_bytes == predicted_kv_bytes(pools, 2, 73, 32)
