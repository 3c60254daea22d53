"""How fast: TTFT, the time of a step and the mean ITL under load, each with a range. Never a bare figure.

`served` gathers what the times of a plan are computed from: work of each stage, speeds of the device, the load. `figures` computes them, with
ints for a plan and arrays for a sweep; `latency` is its answer for one load, `estimate` both steps at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planner.budget import weights_counted
from planner.capacity import CapacityPlan
from planner.engines import engine
from planner.fan import copies
from planner.latency.load import Load, Times, times
from planner.latency.speeds import SOURCE, Speeds, missing, scaled, speeds
from planner.latency.work import Work, work_of
from planner.messages import Word
from planner.notes import Note, note
from planner.scale import Scale, from_text
from planner.scenario import Scenario
from planner.weights import weight_format

OUTPUT_SHARE = 8
"""Where nothing is said of the output, one token in so many of a sequence is taken as generated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Seconds. `itl_s`: mean TPOT at that load, other requests' prefills included. `bound`: weights | cache | compute | launches | links |
    prefill, the part of the ITL that takes most. Ranges are (low, high)."""

    ttft_s: float
    step_s: float
    itl_s: float
    itl_p99_s: float
    ttft_range_s: tuple[float, float]
    itl_range_s: tuple[float, float]
    bound: str
    parts_s: dict[str, float]
    prompt_tokens: int
    output_tokens: int
    sequences: int
    chunk_tokens: int
    output_tokens_per_s: float
    floor_s: float
    measured: bool
    scale: Scale | None = None
    source: str = SOURCE
    notes: tuple[Note, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "ttft_s": self.ttft_s, "step_s": self.step_s, "itl_s": self.itl_s, "itl_p99_s": self.itl_p99_s, "ttft_range_s": list(self.ttft_range_s),
            "itl_range_s": list(self.itl_range_s), "bound": self.bound, "parts_s": self.parts_s, "floor_s": self.floor_s, "prompt": self.prompt_tokens,
            "output": self.output_tokens, "sequences": self.sequences, "chunk": self.chunk_tokens, "output_tokens_per_s": self.output_tokens_per_s,
            "measured": self.measured, "source": self.source,
            "calibration": None if self.scale is None else calibration_json(self.scale),
        }  # fmt: skip


def calibration_json(s: Scale) -> dict[str, Any]:
    first = None if s.first is None else {"factor": s.first.factor, "residual": s.first.residual, "points": s.first.points, "applied": s.first.usable}
    return {"factor": s.factor, "residual": s.residual, "points": s.points, "of": s.of, "ttft": first}


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What the times of a plan are computed from. `most`: sequences that the engine runs at once (None: all)."""

    stages: tuple[Work, ...]
    speeds: Speeds
    load: Load
    bandwidth_bytes_per_s: float
    most: int | None
    scale: Scale | None = None
    notes: tuple[Note, ...] = ()

    def at(self, sequences: Any) -> Load:
        """The same load with another number of sequences (int or array)."""
        return replace(self.load, sequences=sequences)


def lengths(s: Scenario) -> tuple[int, int, bool]:
    """(prompt, output, whether one of them was assumed): what was given, the means of a mix, else shares of a sequence's tokens."""
    if s.lengths:
        from planner.mix import from_text

        mix = from_text(s.lengths)
        return max(1, round(mix.mean_prompt_tokens)), max(1, round(mix.mean_tokens - mix.mean_prompt_tokens)), False
    if s.prompt and s.output:
        return s.prompt, s.output, False
    if s.output:
        return max(1, s.tokens - s.output), s.output, False
    if s.prompt and s.tokens > s.prompt:
        return s.prompt, s.tokens - s.prompt, False
    output = max(1, s.tokens // OUTPUT_SHARE)
    return (s.prompt, output, True) if s.prompt else (max(1, s.tokens - output), output, True)


def cached_tokens(p: CapacityPlan, prompt: int) -> int:
    """Tokens of a prompt that need no prefill: the shared prefix, or the share that is found cached; never the last token."""
    return min(max(p.footprint.prefix_tokens, int((p.scenario.prefix_hit_rate or 0.0) * prompt)), prompt - 1)


def _prefill(policy: str) -> Word:
    return Word(policy, f"word.prefill.{policy}")


def served(p: CapacityPlan) -> Served | Note:
    """The work and the speeds of a plan; a note where the device lacks a figure."""
    h, s, setting = p.hardware, p.scenario, p.setting
    if h is None:
        return note("info", "latency_no_device", field="gpu")
    if (lacking := missing(h)) is not None:
        return note("warning", "latency_unknown", field="gpu", name=h.name, lacking=Word(lacking, f"word.device.{lacking}"))
    fmt = weight_format(p.model, s.weight_dtype, setting.model_dtype)
    scale = weights_counted(p.model, s, setting)
    stages = tuple(
        work_of(p.model, fmt, setting.kv, setting.parallel, model_bytes=setting.model_dtype.nbytes(1), encoder_tokens=setting.encoder_tokens, stage=i,
                weight_bytes=scale, latent=setting.latent)
        for i in range(setting.parallel.pipeline)
    )  # fmt: skip
    measured, measured_notes = _scale(p, h.name)
    prompt, output, assumed = lengths(s)
    notes: tuple[Note, ...] = (note("assumed", "latency_lengths", field="output", prompt=prompt, output=output),) if assumed else ()
    element = setting.kv.element
    v = speeds(h, setting.engine, element.block_bytes / element.block_elements, eager=s.enforce_eager)
    fan, brought = _brought(p)
    load = Load(prompt=prompt, output=output, sequences=p.sequences_per_replica, chunk=setting.max_num_batched_tokens, policy=s.prefill_policy or v.prefill,
                cached=cached_tokens(p, prompt), fan=fan, prompts=1 if any(q.prompt for q in p.pools) else fan)  # fmt: skip
    notes += measured_notes
    if not p.fits:
        notes += (note("warning", "latency_as_if", field="sequences"),)
    if s.prefill_policy not in (None, v.prefill):
        notes += (note("assumed", "latency_policy", field="prefill_policy", policy=_prefill(s.prefill_policy), engine=setting.engine, own=_prefill(v.prefill)),)
    notes += brought
    if not v.measured and measured is None:
        notes += (note("assumed", "latency_unmeasured", field="gpu", source=SOURCE, name=h.name, engine=setting.engine),)
    reserves = engine(setting.engine).reserves
    most = max(1, setting.max_num_seqs * setting.parallel.attention_data // fan) if reserves else None
    v = v if measured is None else scaled(v, measured)
    return Served(stages=stages, speeds=v, load=load, scale=measured, bandwidth_bytes_per_s=float(h.bandwidth_bytes_per_s or 0), most=most, notes=notes)


BEAMS_TOGETHER = ("trtllm", "transformers")
"""Engines that decode the beams of a request as sequences of one batch. vLLM sends each of its tokens as new requests."""


def _brought(p: CapacityPlan) -> tuple[int, tuple[Note, ...]]:
    """(sequences that each request decodes, what is said of that and of what the times leave out)."""
    s, setting = p.scenario, p.setting
    together = s.samples > 1 or (s.beams > 1 and setting.engine in BEAMS_TOGETHER)
    fan = copies(s) if together else 1
    notes: tuple[Note, ...] = ()
    if fan > 1:
        shared = "shared" if any(q.prompt for q in p.pools) else "apart"
        notes += (note("derived", f"latency_fan_{shared}", field="samples" if s.samples > 1 else "beams", copies=fan),)
    if s.num_speculative_tokens:
        which = "latency_speculation" if s.acceptance_rate is None else "latency_speculation_apart"
        notes += (note("assumed", which, field="num_speculative_tokens", tokens=s.num_speculative_tokens),)
    if any(n.code == "images_added" for n in p.notes):
        notes += (note("assumed", "latency_images", field="images"),)
    left = {"beams": s.beams > 1 and not together, "kv_offload": s.kv_offload is not None,
            "n_gpu_layers": setting.context is not None and setting.context.gpu_layers is not None}  # fmt: skip
    plain = [name for name, on in left.items() if on]
    if plain:
        notes += (note("assumed", "latency_plain", field=plain[0], what=", ".join(plain)),)
    return fan, notes


def _scale(p: CapacityPlan, gpu: str) -> tuple[Scale | None, tuple[Note, ...]]:
    """The scenario's measured scale, said in a note; one of another device, engine or model is said and left out."""
    if p.scenario.calibration is None:
        return None, ()
    found = from_text(p.scenario.calibration)
    args: dict[str, Any] = {"factor": f"{found.factor:.3f}", "residual": f"{100 * found.residual:.1f} %", "points": found.points}
    if found.belongs(gpu, p.setting.engine, p.model.name):
        notes = (note("derived", f"calibrated_{found.of}", field="calibration", **args),)
        return found, notes + _first_said(found)
    return None, (note("warning", "calibration_elsewhere", field="calibration", gpu=found.gpu, engine=found.engine, model=found.model),)


def _first_said(s: Scale) -> tuple[Note, ...]:
    """What became of a measured TTFT."""
    if s.first is None:
        return ()
    args: dict[str, Any] = {"factor": f"{s.first.factor:.3f}", "residual": f"{100 * s.first.residual:.1f} %", "points": s.first.points}
    if s.first.usable:
        return (note("derived", "calibrated_first", field="calibration", **args),)
    return (note("warning", "calibrated_first_not", field="calibration", **args),)


def estimate(p: CapacityPlan) -> Latency | Note:
    """The latency of a plan's own load, also where it does not fit; a note where the device lacks a figure."""
    own = served(p)
    return own if isinstance(own, Note) else latency(own)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of a load, ints or arrays: what runs at once, its times, and in `ttft_s` the wait of the rest by Little's law. Ranges are (low, high)."""

    load: Load
    times: Times
    ttft_s: Any
    itl_s: Any
    floor_s: Any
    ttft_range_s: tuple[Any, Any]
    itl_range_s: tuple[Any, Any]


def figures(own: Served) -> Figures:
    """The times of `own.load`, whose lengths and sequences may be arrays that broadcast: a plan and a sweep run the same lines."""
    asked = own.load.sequences
    running = np.minimum(asked, own.most) if own.most else asked
    load = own.at(running)
    t = times(own.stages, own.speeds, load)
    wait_s = (asked - running) * (t.ttft_s + load.output * t.itl_s) / running
    ttft, floor = t.ttft_s + wait_s, floor_s(own, load)
    down, up = own.speeds.range_itl
    first = own.speeds.range_ttft.of(t.ttft_s - t.wait_s, t.wait_s + wait_s, load.prompt + load.output)
    return Figures(load=load, times=t, ttft_s=ttft, itl_s=t.itl_s, floor_s=floor, ttft_range_s=first,
                   itl_range_s=(np.maximum(t.itl_s / down, floor), t.itl_s * up))  # fmt: skip


def latency(own: Served) -> Latency:
    """Of one load. Sequences beyond what the engine runs at once wait, by Little's law."""
    found = figures(own)
    load, t, notes = found.load, found.times, own.notes
    asked, running = int(own.load.sequences), int(load.sequences)
    if running < asked:
        notes += (note("warning", "latency_waits", field="max_num_seqs", running=running, asked=asked),)
    parts = parts_of(t)
    return Latency(
        ttft_s=float(found.ttft_s),
        step_s=float(t.step_s),
        itl_s=float(found.itl_s),
        itl_p99_s=float(t.itl_p99_s),
        ttft_range_s=(float(found.ttft_range_s[0]), float(found.ttft_range_s[1])),
        itl_range_s=(float(found.itl_range_s[0]), float(found.itl_range_s[1])),
        bound=max(parts, key=lambda k: parts[k]),
        parts_s=parts,
        prompt_tokens=int(load.prompt),
        output_tokens=int(load.output),
        sequences=running,
        chunk_tokens=int(load.chunk),
        output_tokens_per_s=float(tokens_per_s(t, load)),
        floor_s=float(found.floor_s),
        measured=own.speeds.measured,
        scale=own.scale,
        notes=notes,
    )


def parts_of(t: Times) -> dict[str, float]:
    """Where the mean ITL goes, in seconds."""
    p = t.parts
    return {"weights": float(p.weights), "cache": float(p.cache), "compute": float(p.compute), "launches": float(p.launches), "links": float(p.links),
            "prefill": float(t.others_s)}  # fmt: skip


def tokens_per_s(t: Times, load: Load) -> Any:
    """Output tokens a second of one replica: each sequence gives `output` of them in TTFT and output x ITL, all samples counted."""
    return load.sequences * load.fan * load.output / (t.ttft_s + load.output * t.itl_s)


def floor_s(own: Served, load: Load) -> Any:
    """No step is faster: each byte read once at the nominal bandwidth, of experts those of a single token."""
    data, pipes = own.stages[0].attention_data, len(own.stages)
    mine = -(-load.sequences * load.fan // (data * pipes))
    read = sum(float(w.weight_bytes_read(1)) + mine * 1.0 * w.cache_bytes_read(load.context) for w in own.stages)
    return read / own.bandwidth_bytes_per_s
