"""The paged run agrees with recomputation, for the right reasons: what breaks the cache breaks the agreement."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gpu_probe import proof, reference
from gpu_probe.attention import PagedAttention
from gpu_probe.shapes import LayerShape
from tests.gpu_probe.tiny import MODELS, paged

CAUGHT = 1e-2


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("sizes", [{}, {"prompt": 47, "output": 3, "block_size": 5}, {"prompt": 1, "output": 34, "batch": 3}])
def test_paged_equals_recomputed(name: str, sizes: dict[str, int]) -> None:
    decoder, attention, trace = paged(MODELS[name], dirt=1e4, **sizes)
    assert proof.logits_error(decoder, trace) < 1e-5
    assert len(trace.logits) == sizes.get("output", 20) + 1
    for group in attention.cache.groups:
        group.pool.check()


def test_the_reference_is_right_in_float64_too() -> None:
    """Float32 rounding explains all of the difference: against float64 it is no larger."""
    decoder, _, trace = paged(MODELS["mla"])
    exact = reference.full_logits(decoder.shape, decoder.weights, trace.tokens, dtype=torch.float64)[:, -len(trace.logits) :]
    assert proof.relative_error(torch.stack(trace.logits, 1).double(), exact) < 1e-5


def test_absorbed_equals_expanded_over_the_live_cache() -> None:
    decoder, attention, trace = paged(MODELS["mla"])
    tokens = trace.tokens.shape[1]
    error = proof.absorption_error(decoder, attention, tokens, seed=0)
    assert error is not None
    assert error < 1e-5
    decoder.weights.layers[1]["kv_b"][:16] *= 1.01  # both ways see the same weights: still equal
    assert proof.absorption_error(decoder, attention, tokens, seed=0) < 1e-5  # type: ignore[operator]
    assert proof.absorption_error(*paged(MODELS["gqa"])[:2], tokens, seed=0) is None


def test_each_step_consumes_the_token_of_the_step_before() -> None:
    _, _, trace = paged(MODELS["gqa"])
    decoded = torch.stack(trace.logits[:-1], 1).argmax(-1)
    assert torch.equal(trace.tokens[:, -20:], decoded)
    assert len({tuple(row.tolist()) for row in trace.tokens}) == 2


def test_pages_move_between_prefill_and_decode_and_are_not_in_order() -> None:
    trace = paged(MODELS["gqa"], prompt=120)[2]
    assert trace.blocks_moved >= 10
    assert trace.contiguous_fraction < 0.4


class NoWindow(PagedAttention):
    """Reads every row that is still there."""

    def begin(self, *args: object, **kw: bool) -> None:
        for group in self.cache.groups:
            if group.rows.window:
                group.rows = type(group.rows)(heads=group.rows.heads, k_dim=group.rows.k_dim, v_dim=group.rows.v_dim)
        super().begin(*args, **kw)  # type: ignore[arg-type]


class OtherRowsPage(PagedAttention):
    """Row 0 reads one page of row 1, in decode only."""

    def begin(self, *args: object, **kw: bool) -> None:
        super().begin(*args, **kw)  # type: ignore[arg-type]
        if not kw.get("prefill"):
            for view in self._views.values():
                view.table[0, 0] = view.table[1, 0]


class PageLeftBehind(PagedAttention):
    """Tables move to new blocks; the contents of the pages do not."""

    def begin(self, *args: object, **kw: bool) -> None:
        if not kw.get("prefill") and not getattr(self, "moved", False):
            self.moved = True
            for group in self.cache.groups:
                group.pool.relocate()
        super().begin(*args, **kw)  # type: ignore[arg-type]


class ValuesShuffled(PagedAttention):
    """Decode steps write the numbers of V in another order."""

    def heads(self, layer: LayerShape, q: Tensor, k: Tensor | None, v: Tensor | None) -> Tensor:
        if q.shape[1] == 1 and v is not None:
            v = v.roll(1, -1)
        return super().heads(layer, q, k, v)


class ScaleOff(PagedAttention):
    def read_latent(self, layer: LayerShape, q_nope: Tensor, q_rope: Tensor, kv_b: Tensor) -> Tensor:
        return super().read_latent(layer, q_nope, q_rope * 1.05, kv_b)


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("window", NoWindow), ("gqa", OtherRowsPage), ("mla", OtherRowsPage), ("window", PageLeftBehind), ("mla", PageLeftBehind),
        ("mha", ValuesShuffled), ("mla", ScaleOff),
    ],
)  # fmt: skip
def test_a_broken_cache_is_caught(name: str, broken: type[PagedAttention]) -> None:
    decoder, _, trace = paged(MODELS[name], attention=broken, prompt=64)
    assert proof.logits_error(decoder, trace) > CAUGHT


def test_a_wrong_position_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpu_probe.model import Decoder

    rotate = Decoder.rotate
    monkeypatch.setattr(Decoder, "rotate", lambda self, x, at: rotate(self, x, at + 1 if at.shape[1] == 1 else at))
    decoder, _, trace = paged(MODELS["gqa"])
    assert proof.logits_error(decoder, trace) > CAUGHT


def test_a_nan_is_no_agreement() -> None:
    assert proof.relative_error(torch.tensor([float("nan")]), torch.tensor([1.0])) == proof.WORST
    assert proof.relative_error(torch.tensor([float("inf")]), torch.tensor([1.0])) == proof.WORST
