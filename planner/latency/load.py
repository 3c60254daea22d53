"""TTFT and mean ITL of a load: continuous batching, chunked prefill, every finished request replaced (a closed loop).

    ITL(B) = t_step(B, c) + share (B - 1) t_prefill / output,   share = output ITL / (output ITL + TTFT)

since each of the other B - 1 sequences puts one prefill in front of a token once in `output` steps; a fixed point, a few rounds. With
chunks no step takes more prompt tokens than its budget, so that ITL <= t_step + t_chunk(budget): beyond it prompts wait instead.

    TTFT(B) = factor x (serve + t_prefill + t_step / 2 + (B - 1) (wait_share t_gpu + request))

`t_gpu` is the prefill without fixed times, `factor` 1 unless a TTFT was measured (planner/calibrate.py); with data-parallel attention B is
that of one group, and a step of chunks carries no more prompt tokens than its budget here too. The term in B - 1: a closed loop sends its
first B requests together, and what waits in that wave, (B - 1) / 2 prefills, is spread over all that it sends: with ten a client a share of
1/20, which is what the fit finds for vLLM and TensorRT-LLM.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.latency.speeds import STAGE_S, Speeds
from planner.latency.steps import Parts, decode, launches, prefill
from planner.latency.work import Work

ROUNDS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Per replica. `prompt`, `output`: mean tokens of a request; `sequences`: at once; `chunk`: tokens of a step's budget; `policy`:
    chunked, or whole: a prompt is one step. `cached`: prompt tokens that need no prefill. `fan`: sequences that each of them decodes, its
    samples or beams; `prompts`: of those, how many compute the prompt (1: they share it). Ints or arrays that broadcast."""

    prompt: Any
    output: Any
    sequences: Any
    chunk: Any = 8192
    policy: str = "chunked"
    cached: Any = 0
    fan: int = 1
    prompts: int = 1

    @property
    def context(self) -> Any:
        """Mean tokens held over the life of a request: the prompt and half the output."""
        return self.prompt + self.output // 2

    @property
    def chunks(self) -> Any:
        """Steps that a prompt takes, at least one: every decoding sequence takes one token of the budget. A last part of a step counts as
        such, since other prompts share that step."""
        if self.policy == "whole":
            return 1.0 + 0 * self.prompt
        return np.maximum(self.new / np.maximum(self.chunk - self.sequences * self.fan, 1), 1.0)

    @property
    def new(self) -> Any:
        """Prompt tokens that must be computed."""
        return np.maximum(self.prompt - self.cached, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds. `step_s`: one decode step of the whole batch; `prefill_s`: one prompt alone, without the way to the engine; `itl_p99_s`: a
    step that carries a chunk, where more than one in a hundred does, and never below the mean; `parts`: of the step; `others_s`: what
    prefills of others add to the mean; `beside_s`: what one prompt's prefill adds to the steps that decode beside it; `wait_s`: the part of
    the TTFT that others add."""

    ttft_s: Any
    wait_s: Any
    step_s: Any
    itl_s: Any
    itl_p99_s: Any
    prefill_s: Any
    chunk_share: Any
    parts: Parts
    others_s: Any
    beside_s: Any


def times(stages: tuple[Work, ...], v: Speeds, load: Load) -> Times:
    """Of `load` on the pipeline stages of one replica."""
    data, pipes = stages[0].attention_data, len(stages)
    batch = load.sequences * load.prompts  # that prefill
    mine = -(-load.sequences * load.fan // (data * pipes))  # that decode, of one attention group in one micro-batch
    step = Parts(launches=v.step_s + STAGE_S * (pipes - 1))
    alone, beside, full_s = Parts(), Parts(), 0.0 if load.policy == "chunked" else np.inf
    steps = load.new / load.chunk  # that its tokens fill
    for w in stages:
        step = step + decode(w, v, mine, load.context)
        alone = alone + prefill(w, v, load.new, load.chunks, load.cached)
        beside = beside + prefill(w, v, load.new, load.chunks, load.cached, beside=mine)
        if load.policy == "chunked":
            full_s = full_s + prefill(w, v, load.new, steps, load.cached, beside=mine).total / steps
    layers = sum(w.layers for w in stages)
    gpu_s = alone.total - alone.launches
    fixed_s = sum(launches(w, v) for w in stages) + v.step_s
    prefill_s = gpu_s + fixed_s * load.chunks + v.first_layer_s * layers * load.chunks
    step_s = step.total
    others = np.maximum(batch - 1, 0) * beside.total / (data * pipes)
    itl_s = step_s + 0.0 * others
    for _ in range(ROUNDS):
        share = load.output * itl_s / (load.output * itl_s + prefill_s)
        itl_s = step_s + np.minimum(share * others / load.output, full_s)
    wait_s = (v.wait_share * gpu_s + v.request_s) * np.maximum(batch / data - 1, 0)
    alone_s = v.serve_s + prefill_s + np.where(load.sequences > 1, step_s / 2, 0.0)
    if load.policy == "chunked":  # a step takes `chunk` prompt tokens at most: sequences / (TTFT + output ITL) <= chunk / (prompt ITL)
        wait_s = np.maximum(wait_s, itl_s * (batch / data * steps - load.output) - alone_s)
    chunk_share = np.minimum(1.0, batch * load.chunks / (load.output * 1.0 * data))
    chunk_s = beside.total / load.chunks
    return Times(
        ttft_s=v.ttft_factor * (alone_s + wait_s),
        wait_s=v.ttft_factor * wait_s,
        step_s=step_s,
        itl_s=itl_s,
        itl_p99_s=np.maximum(step_s + np.where(chunk_share > 0.01, np.where(batch > 1, chunk_s, 0.0), 0.0), itl_s),
        prefill_s=prefill_s,
        chunk_share=chunk_share,
        parts=step,
        others_s=itl_s - step_s,
        beside_s=beside.total,
    )
