"""The time of one decode step and of one prefill on a rank, as a sum over operators of ``max(bytes / rate, FLOP / rate)`` plus fixed times.

Ints or numpy arrays alike: a single plan and a sweep run the same lines. All times are in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.latency.speeds import Speeds
from planner.latency.work import Work, touched


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Where the time goes. `weights`, `cache`: operators bound by reading; `compute`: operators bound by products."""

    weights: Any = 0.0
    cache: Any = 0.0
    compute: Any = 0.0
    launches: Any = 0.0
    links: Any = 0.0

    @property
    def total(self) -> Any:
        return self.weights + self.cache + self.compute + self.launches + self.links

    def __add__(self, o: Parts) -> Parts:
        return Parts(weights=self.weights + o.weights, cache=self.cache + o.cache, compute=self.compute + o.compute, launches=self.launches + o.launches,
                     links=self.links + o.links)  # fmt: skip

    def scaled(self, by: Any) -> Parts:
        return Parts(weights=self.weights * by, cache=self.cache * by, compute=self.compute * by, launches=self.launches * by, links=self.links * by)


def products(w: Work, v: Speeds, tokens: Any, head_tokens: Any) -> Parts:
    """All matrices for `tokens` tokens of one attention group, the output matrix for `head_tokens` positions."""
    read: Any = 0.0
    bound: Any = 0.0
    for m, n in [(m, tokens) for m in w.matrices] + ([(w.head, head_tokens)] if w.head else []):
        by_read, by_product = m.bytes / v.read[m.form], 2.0 * m.elements * n / v.multiply[m.form]
        read, bound = read + np.where(by_product > by_read, 0.0, by_read), bound + np.where(by_product > by_read, by_product, 0.0)
    for e in w.experts:
        all_tokens = tokens * w.attention_data
        by_read = e.bytes * (touched(e.experts, e.top_k, all_tokens) / e.experts) / v.read_experts[e.form]
        by_product = 2.0 * e.elements * (e.top_k / e.experts) * all_tokens / v.multiply_experts[e.form]
        read, bound = read + np.where(by_product > by_read, 0.0, by_read), bound + np.where(by_product > by_read, by_product, 0.0)
    return Parts(weights=read, compute=bound)


def attention(w: Work, v: Speeds, sequences: Any, context: Any, new: Any = 1) -> Parts:
    """Decode attention of `sequences` sequences that hold `context` tokens each, and their states. `new`: tokens of each that a step computes
    (a verification of drafted ones has more than one): the cache is read once for all of them."""
    read: Any = sequences * (2.0 * w.state_bytes / v.read_state + w.cross_bytes / v.read_cache)
    bound: Any = 0.0
    mine = -(-context // w.context_ranks)
    for a in w.attends:
        rows = a.rows(mine)
        by_read = sequences * (a.layers * a.row_bytes * 1.0) * rows / (v.read_latent if a.latent else v.read_cache)
        by_product = sequences * new * (a.layers * a.decode_flops * 1.0) * rows / v.attend_decode
        read, bound = read + np.where(by_product > by_read, 0.0, by_read), bound + np.where(by_product > by_read, by_product, 0.0)
    return Parts(cache=read, compute=bound)


def launches(w: Work, v: Speeds) -> float:
    """Fixed time of the layers of one step."""
    return (w.attentions * v.attention_layer_s + w.latents * v.latent_layer_s + w.states * v.state_layer_s + w.mlps * v.mlp_layer_s
            + w.moes * v.moe_layer_s)  # fmt: skip


def links(w: Work, v: Speeds, tokens: Any) -> Any:
    """All-reduces (a ring moves ``2 (n - 1) / n`` of the message) and, with data-parallel attention, dispatch and combine of the experts'
    tokens: a token goes to ``ranks (1 - (1 - 1 / ranks)^k)`` distinct ranks, of which its own is free."""
    out: Any = 0.0 * tokens
    if w.reduces:
        n = w.reduce_ranks
        out = out + w.reduces * (v.reduce_s + 2.0 * (n - 1) / n * tokens * w.token_bytes / v.link)
    if w.exchanges:
        n = w.exchange_ranks
        away = n * (1.0 - (1.0 - 1.0 / n) ** w.top_k) * (n - 1) / n
        out = out + w.exchanges * (v.reduce_s + tokens * away * w.token_bytes / v.link)
    return out


def decode(w: Work, v: Speeds, sequences: Any, context: Any, new: Any = 1) -> Parts:
    """One decode step of one rank: `sequences` of its attention group, at `context` tokens each. The step's own fixed time is not in it."""
    tokens = sequences * new
    return products(w, v, tokens, tokens) + attention(w, v, sequences, context, new) + Parts(launches=launches(w, v), links=links(w, v, tokens))


def prefill(w: Work, v: Speeds, tokens: Any, chunks: Any = 1, cached: Any = 0, beside: Any = 0) -> Parts:
    """A prefill of one request of `tokens` new tokens on `cached` ones, in `chunks` steps that also decode `beside` sequences: only what it
    adds to those steps, with `beside` 0 the whole. Fewer than one step: several such prompts share it.

    Chunks read the weights again, and the cache of the chunks before them (``row_bytes x tokens x (chunks - 1) / 2``; MLA also expands it
    again). Never below reading the weights once.
    """
    each = tokens / chunks
    linear = products(w, v, each + beside, 1)
    already = products(w, v, beside, 1) if _any(beside) else Parts()
    more = np.maximum(linear.total - already.total, 0.0) * chunks
    again = tokens * np.maximum(chunks - 1, 0) / 2.0 + cached * chunks
    ratio = np.where(linear.total > 0, linear.weights / np.where(linear.total > 0, linear.total, 1.0), 0.0)
    return attention_prefill(w, v, tokens, cached, again) + Parts(
        weights=more * ratio, compute=more * (1.0 - ratio), launches=w.layers * v.prefill_layer_s * chunks, links=links(w, v, each) * chunks
    )


def attention_prefill(w: Work, v: Speeds, tokens: Any, cached: Any, again: Any) -> Parts:
    """Attention and states of a prefill of `tokens` new tokens on `cached` ones; `again`: cached tokens that are read (MLA: expanded too),
    once for each chunk that sees them."""
    pairs: Any = 0.0
    reread: Any = 0.0
    for a in w.attends:
        pairs = pairs + a.layers * (a.prefill_flops * 1.0 * a.pairs(tokens, cached) + a.expand_flops * 1.0 * again) / v.attend_prefill
        reread = reread + a.layers * a.row_bytes * 1.0 * again / (v.read_latent if a.latent else v.read_cache)
    return Parts(cache=reread, compute=pairs + 4.0 * w.state_elements * tokens / v.attend_prefill)


def _any(value: Any) -> bool:
    return bool(np.any(value))
