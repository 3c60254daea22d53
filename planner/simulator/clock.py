"""The time of one step: decoding sequences at their own contexts, and pieces of prompts beside them.

The same operators as planner/latency/steps.py, for one attention group and one micro-batch: what is simulated is one such stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from planner.latency.speeds import STAGE_S, Speeds
from planner.latency.steps import attention, attention_prefill, launches, links, products
from planner.latency.work import Work

KEPT = 1 << 16


class Clock:
    """Step times in seconds. Products depend on counts only and are kept by them; attention is summed over the sequences."""

    def __init__(self, stages: tuple[Work, ...], v: Speeds) -> None:
        self._stages, self._v = stages, v
        self._fixed_s = v.step_s + STAGE_S * (len(stages) - 1) + sum(launches(w, v) for w in stages)
        self._layers = sum(w.layers for w in stages)
        self._products: dict[tuple[int, int], float] = {}
        # Attention without limit or choice is linear in the context: such layers need one sum instead of an array each.
        self._linear = tuple(all(a.limit is None and a.chosen is None and a.ratio == 1 for a in w.attends) and w.context_ranks == 1 for w in stages)
        self._one = tuple(self._line(w) for w in stages)

    def _line(self, w: Work) -> tuple[float, float]:
        """(seconds of a sequence, seconds of each further cached token)."""
        zero = float(attention(w, self._v, 1, 0).total)
        return zero, float(attention(w, self._v, 1, 1).total) - zero

    def step_s(self, contexts: np.ndarray, pieces: Sequence[tuple[int, int]], heads: int) -> float:
        """`contexts`: tokens that each decoding sequence attends to, its new one included; `pieces`: (new tokens, tokens before them) of
        prompts; `heads`: sequences that get a token."""
        tokens = len(contexts) + sum(n for n, _ in pieces)
        out = self._fixed_s + self._matrices_s(tokens, heads)
        for w, linear, (zero, each) in zip(self._stages, self._linear, self._one, strict=True):
            if len(contexts):
                if linear:
                    out += zero * len(contexts) + each * float(contexts.sum())
                else:
                    out += float(np.sum(attention(w, self._v, 1, contexts).total))
            for n, before in pieces:
                out += float(attention_prefill(w, self._v, n, before, before).total)
        return out + (self._layers * self._v.prefill_layer_s if pieces else 0.0)

    def delay_s(self, new: np.ndarray, chunk: int) -> np.ndarray:
        """From a request's arrival until its prompt of `new` tokens can run: the way to the engine, and the host's work for a prefill that
        the device does not wait for (first_layer_s beyond what each step pays)."""
        v = self._v
        return v.serve_s + self._layers * max(0.0, v.first_layer_s - v.prefill_layer_s) * np.maximum(1.0, new / chunk)

    def _matrices_s(self, tokens: int, heads: int) -> float:
        key = tokens, heads
        if (known := self._products.get(key)) is not None:
            return known
        out: Any = 0.0
        for w in self._stages:
            body = products(replace(w, head=None), self._v, tokens, 0).total
            head = products(replace(w, matrices=(), experts=()), self._v, 0, heads).total if w.head and heads else 0.0
            out = out + body + head + links(w, self._v, tokens)
        if len(self._products) < KEPT:
            self._products[key] = float(out)
        return float(out)
