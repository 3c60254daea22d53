"""Deployments whose bottleneck is known, and what their user would see: the latency model's own times, some of them with one part that is truly
slower than the table says, all of them off by a few per cent as measurements are."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from planner.api import model_of
from planner.capacity import CapacityPlan, plan
from planner.diagnose import Observed, of_load
from planner.hardware import find
from planner.latency import Served, parts_of, served
from planner.latency.load import Times, times
from planner.latency.speeds import FIXED, Speeds
from planner.model import ModelSpec
from planner.scenario import from_options
from planner.sources import load

LAYERS = tuple(n for n in FIXED if n.endswith("layer_s") and n not in ("prefill_layer_s", "first_layer_s"))


@dataclass(frozen=True, kw_only=True)
class Case:
    """`load`: what runs; `shown`: which of the true times the user gives (itl, ttft), at the load and at `other`; `slower`: a part of the true
    system that is so many times slower than the table says; `extra`: what is seen beside times; `off`: the error of the measurement."""

    name: str
    truth: str
    model: str = "Llama-3.1-8B"
    options: dict[str, Any] = field(default_factory=dict)
    load: dict[str, int] = field(default_factory=dict)
    shown: tuple[str, ...] = ("itl",)
    other: dict[str, int] = field(default_factory=dict)
    slower: dict[str, float] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    off: float = 1.0

    def plan(self) -> CapacityPlan:
        options = {"gpu": "H100 SXM", **self.options}
        return plan(model(self.model), find(options["gpu"]), from_options(options))

    def true_times(self, **load: int) -> tuple[Served, Times]:
        """Of the true system at a load."""
        p = of_load(self.plan(), Observed(**load))
        own = served(p)
        assert isinstance(own, Served)
        true = replace(own, speeds=slowed(own.speeds, self.slower))
        return true, times(true.stages, true.speeds, true.at(min(int(true.load.sequences), true.most or int(true.load.sequences))))

    def seen(self) -> Observed:
        _, t = self.true_times(**self.load)
        out: dict[str, Any] = dict(self.load)
        if "itl" in self.shown:
            out["itl_s"] = float(t.itl_s) * self.off
        if "ttft" in self.shown:
            out["ttft_s"] = float(t.ttft_s) * self.off
        if self.other:
            _, t = self.true_times(**{**self.load, **self.other})
            out |= {f"other_{k}": v for k, v in self.other.items()}
            out |= {f"other_{name}_s": float(getattr(t, f"{name}_s")) * (2 - self.off) for name in self.shown}
        return Observed(**{**out, **{k: v(out) if callable(v) else v for k, v in self.extra.items()}})

    def heaviest(self) -> str:
        """The part that the true system's token time goes to, by its own parts."""
        _, t = self.true_times(**self.load)
        parts = parts_of(t)
        return max(parts, key=lambda k: parts[k])


def slowed(v: Speeds, by: dict[str, float]) -> Speeds:
    changes: dict[str, Any] = {}
    for name, factor in by.items():
        names = {"launches": (*LAYERS, "step_s"), "links": ("reduce_s",), "cache": ("read_cache", "read_latent"), "weights": ("read", "read_experts")}[name]
        for n in names:
            value = getattr(v, n)
            changes[n] = {k: x / factor for k, x in value.items()} if isinstance(value, dict) else value * factor if n in FIXED else value / factor
    return replace(v, **changes)


@cache
def model(name: str) -> ModelSpec:
    return model_of(load(f"catalog:{name}"))


def at(sequences: int, prompt: int, output: int) -> dict[str, int]:
    return {"sequences": sequences, "prompt": prompt, "output": output}


CASES = (
    Case(name="70B alone, short context", truth="weights", model="Llama-3.1-70B", options={"tp": 4, "gpus": 4}, load=at(1, 128, 512), off=1.06),
    Case(name="8B, four short requests", truth="weights", load=at(4, 256, 256), options={"gpu": "A100 SXM 80GB"}, off=0.93),
    Case(name="8B on an L40S, one request", truth="weights", load=at(1, 200, 400), options={"gpu": "L40S"}, off=1.1),
    Case(name="70B in fp8, one GPU", truth="weights", model="Llama-3.1-70B",
         options={"gpu": "H200 SXM", "weight_dtype": "fp8"}, load=at(2, 500, 500), off=0.95),
    Case(name="8B, 32 long contexts", truth="cache", load=at(32, 12_000, 4_000), off=1.05),
    Case(name="8B, three very long contexts", truth="cache", load=at(3, 100_000, 9_000), options={"max_model_len": 131_072}, off=1.0),
    Case(name="70B, 64 long contexts", truth="cache", model="Llama-3.1-70B", options={"tp": 8, "gpus": 8}, load=at(64, 14_000, 12_000), off=0.95),
    Case(name="8B, 128 of 4k, long answers", truth="cache", load=at(128, 1_000, 6_000), options={"gpu": "H200 SXM"}, off=1.07),
    Case(name="8B, slow cache kernel, two batches", truth="cache", load=at(16, 4_000, 2_000), other={"sequences": 4}, slower={"cache": 3.0}, off=1.01),
    Case(name="Mixtral, eight short requests", truth="weights", model="Mixtral-8x7B", options={"tp": 2, "gpus": 2}, load=at(8, 300, 600), off=1.08),
    Case(name="70B over PCIe, many short requests", truth="links", model="Llama-3.1-70B", options={"gpu": "L40S", "tp": 8, "gpus": 8},
         load=at(128, 200, 1_500), off=0.97),
    Case(name="70B over PCIe, a large batch", truth="links", model="Llama-3.1-70B", options={"gpu": "L40S", "tp": 8, "gpus": 8},
         load=at(512, 100, 500), off=1.03),
    Case(name="405B with SGLang", truth="weights", model="Llama-3.1-405B",
         options={"tp": 8, "gpus": 8, "engine": "sglang", "gpu": "H200 SXM", "weight_dtype": "fp8"}, load=at(4, 1_000, 1_000), off=1.05),
    Case(name="8B without graphs, as its flags say", truth="launches", options={"enforce_eager": True, "tp": 4, "gpus": 4}, load=at(1, 200, 300), off=1.05),
    Case(name="1B, one request", truth="launches", model="Llama-3.2-1B", options={"tp": 2, "gpus": 2}, load=at(1, 100, 200), off=0.96),
    Case(name="short answers to long prompts", truth="prefill", load=at(32, 8_000, 100), off=1.04),
    Case(name="first token of a 100k prompt", truth="prefill", load=at(1, 100_000, 200), shown=("ttft", "itl"), options={"max_model_len": 131_072}, off=1.1),
    Case(name="first token beside others", truth="prefill", load=at(8, 16_000, 400), shown=("ttft",), extra={"waiting": 0}, off=0.95),
    Case(name="a long queue", truth="queueing", load=at(64, 1_000, 300), shown=("ttft", "itl"),
         extra={"waiting": 400, "kv_usage": 0.4, "ttft_s": lambda seen: 12 * seen["ttft_s"]}),
    Case(name="most of the first token is queue", truth="queueing", load=at(32, 2_000, 200), shown=("ttft",),
         extra={"queue_s": lambda seen: 5 * seen["ttft_s"], "ttft_s": lambda seen: 6 * seen["ttft_s"]}),
    Case(name="preempted", truth="pool", load=at(60, 6_000, 2_192), shown=("ttft", "itl"), extra={"preemptions": 37, "kv_usage": 0.99, "waiting": 12}),
    Case(name="out of memory with 200 long requests", truth="pool", load=at(200, 12_000, 4_000), shown=(), extra={"oom": "run"}),
)  # fmt: skip
OPEN = (
    Case(name="a rate alone", truth="undecided", load={"prompt": 1_000, "output": 200}, shown=(), extra={"tokens_per_s": 900.0}),
    Case(name="weights and cache alike", truth="undecided", load=at(1, 120_000, 2_000), options={"max_model_len": 131_072}),
    Case(name="slow weights or slow launches", truth="undecided", load=at(8, 4_000, 2_000), other={"prompt": 500}, slower={"weights": 2.0}),
    Case(name="late first token, queue unknown", truth="undecided", load=at(16, 1_000, 300), shown=("ttft",),
         extra={"ttft_s": lambda seen: 10 * seen["ttft_s"]}),
    Case(name="faster than memory can be read", truth="undecided", load=at(1, 1_000, 300), extra={"itl_s": 0.001}),
    Case(name="out of memory that the plan does not see", truth="undecided", load=at(2, 1_000, 300), shown=(), extra={"oom": "run"}),
)  # fmt: skip
