"""Values as JSON: what `read`, `kv` and `plan` print, the API answers and a report keeps. Requests are read in planner/api.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planner.cache import Cross, Kind, Rows, State
from planner.capacity import CapacityPlan
from planner.errors import InvalidInput
from planner.footprint import Footprint
from planner.mix import Mix, from_text, read_bytes
from planner.model import ModelSpec
from planner.notes import Note
from planner.scenario import Scenario
from planner.weights import parameters

# -- read ----------------------------------------------------------------------------------------------------------------


def read_json(model: ModelSpec) -> dict[str, Any]:
    return {
        "name": model.name,
        "model_type": model.model_type,
        "architecture": model.architecture,
        "verified": model.verified,
        "weight_dtype": model.dtype.name,
        "quantization": model.quantization,
        "hidden_size": model.hidden_size,
        "vocab_size": model.vocab_size,
        "max_context_tokens": model.max_context_tokens,
        "tied_embeddings": model.tied_embeddings,
        "parameters": parameters(model).to_json(),
        "draft_layers": [[kind_json(k) for k in layer.caches] for layer in model.draft_layers],
        "layers": [{"index": i, "caches": [kind_json(k) for k in layer.caches], "shares_with": layer.shares_with} for i, layer in enumerate(model.layers)],
        "groups": [{**kind_json(k), "layers": len(where), "indices": list(where)} for k, where in model.cache_groups()],
        "notes": notes_json(model.notes),
    }


def kind_json(kind: Kind) -> dict[str, Any]:
    if isinstance(kind, Rows):
        out: dict[str, Any] = {"kind": kind.kind, "heads": kind.heads, "k_dim": kind.k_dim, "v_dim": kind.v_dim, "shard": kind.shard}
        if kind.limit_tokens is not None:
            out["window_tokens"] = kind.limit_tokens
        return out | ({"ratio": kind.ratio} if kind.ratio != 1 else {})
    if isinstance(kind, State):
        tensors = [{"name": t.name, "elements": t.elements, "dtype": t.dtype.name if t.dtype else "model"} for t in kind.tensors]
        return {"kind": kind.kind, "shard": kind.shard, "tensors": tensors}
    assert isinstance(kind, Cross)
    return {"kind": kind.kind, "heads": kind.heads, "k_dim": kind.k_dim, "v_dim": kind.v_dim, "source_tokens": kind.source_tokens}


def notes_json(notes: tuple[Note, ...]) -> list[dict[str, str]]:
    return [n.to_json() for n in notes]


# -- kv ------------------------------------------------------------------------------------------------------------------


def kv_json(f: Footprint, s: Scenario) -> dict[str, Any]:
    return {
        "architecture_bytes": f.architecture_bytes,
        "engine": f.setting.engine,
        "engine_version": f.setting.version,
        "engine_bytes": f.engine_bytes,
        "per_rank_bytes": list(f.per_rank_bytes),
        "host_bytes": f.host_bytes,
        "offload": f.offload.to_json() if f.offload else None,
        "admission_bytes": f.admission_bytes,
        "resident_bytes": f.engine_bytes,
        "shared_prefix_bytes_saved": f.prefix_bytes_saved,
        "bytes_per_token_unbounded": f.bytes_per_token_unbounded,
        "windowed": list(f.windowed),
        "state_bytes_per_sequence": f.state_bytes_per_sequence,
        "cross_bytes_per_encoder_token": f.cross_bytes_per_encoder_token,
        "cross_bytes": f.cross_bytes,
        "kv_dtype": f.setting.kv.name,
        "tokens": s.tokens,
        "batch": s.sequences,
        "formula": [line.text for line in f.formula],
        "notes": notes_json(f.notes),
    }


# -- plan ----------------------------------------------------------------------------------------------------------------


def plan_json(p: CapacityPlan, *, remedies: bool = False, backwards: bool = False, mix: Mix | None = None) -> dict[str, Any]:
    """`mix`: lengths that the scenario's text cannot hold; None: those of the text, if it has any."""
    from planner.latency import latency, served
    from planner.launch import launch  # not for `kv`, whose start is short
    from planner.load import load_of
    from planner.mix_capacity import mix_capacity
    from planner.throughput import batch_limit

    if mix is None and p.scenario.lengths:
        mix = from_text(p.scenario.lengths)
    own = served(p)
    times = own if isinstance(own, Note) else latency(own)
    limit = own if isinstance(own, Note) else batch_limit(p, own)
    load = None if isinstance(own, Note) or isinstance(limit, Note) else load_of(p, own, limit)
    out = {
        "model": p.model.name,
        "engine": p.setting.engine,
        "engine_version": p.setting.version,
        "gpu": p.hardware.name if p.hardware else None,
        "fits": p.fits,
        "limited_by": p.limited_by,
        "shortfall_bytes": p.shortfall_bytes,
        "rank_ledgers": [[line.to_json() for line in rank] for rank in p.ledgers],
        "binding_rank": p.binding_rank,
        "replicas": p.replicas,
        "kv_pool_bytes": p.kv_pool_bytes,
        "kv_free_bytes": p.free_bytes,
        "bytes_per_block": p.bytes_per_block,
        "num_blocks": p.num_blocks,
        "block_size": p.pools[0].block_size if len(p.pools) == 1 else None,
        "blocks_per_request": p.blocks_per_request,
        "max_concurrency": p.max_concurrency,
        "kv_tokens": p.kv_tokens,
        "printed": dict(p.sizes.printed) if p.sizes else {},
        "max_sequences": p.max_sequences,
        "longest_context_tokens": p.longest_context_tokens(),
        "longest_context_limited_by": p.longest_context_by,
        "pools": [pool_json(p, i) for i in range(len(p.pools))],
        "weights_bytes_per_rank": list(p.weights_bytes_per_rank),
        "architecture_bytes": p.footprint.architecture_bytes,
        "engine_bytes": p.footprint.engine_bytes,
        "admission_bytes": p.footprint.admission_bytes,
        "shared_prefix_bytes_saved": p.footprint.prefix_bytes_saved,
        "per_rank_bytes": list(p.footprint.per_rank_bytes),
        "host_bytes": p.footprint.host_bytes,
        "offload": p.footprint.offload.to_json() if p.footprint.offload else None,
        "gap": [{"name": g.name, "code": g.code, "bytes": g.bytes} for g in p.gap],
        "kv_dtype": p.setting.kv.name,
        "formula": [line.text for line in p.footprint.formula],
        "mix": mix_capacity(p, mix).to_json() if mix else None,
        "latency": None if isinstance(times, Note) else times.to_json(),
        "batch_limit": None if isinstance(limit, Note) else limit.to_json(),
        "load": None if load is None or isinstance(load, Note) else load.to_json(),
        "launch": launch(p),
        "tokens": p.scenario.tokens,
        "scenario": p.asked.to_json(),
        "identities": identities(p),
        "notes": notes_json((*p.notes, *(mix.notes if mix else ()), *((times,) if isinstance(times, Note) else times.notes),
                              *(load.notes if load and not isinstance(load, Note) else ()))),
    }  # fmt: skip
    if backwards:
        from planner.backwards import smallest

        out["backwards"] = smallest(p).to_json()
    if remedies:
        from planner.remedies import remedies as find_remedies

        out["remedies"] = [r.to_json() for r in find_remedies(p)]
    return out


def simulation_json(p: CapacityPlan, mix: Mix | None, trace_file: Any = None, *, allow_paths: bool = True, seconds: float | None = None) -> dict[str, Any]:
    """The plan's load served step by step, or a trace's requests; {"note": ...} where nothing can be simulated. Raises InvalidInput."""
    from planner.simulator import USUAL, simulate
    from planner.simulator.requests import trace

    requests = None
    if trace_file:
        if not allow_paths or not isinstance(trace_file, str):
            raise InvalidInput("simulate_trace", field="trace")
        requests = trace(read_bytes(trace_file, "trace"), p.sequences_per_replica)
    found = simulate(p, requests=requests, mix=mix, rate=p.scenario.request_rate,
                     limits=USUAL if seconds is None else replace(USUAL, clock_s=seconds))  # fmt: skip
    return {"note": found.to_json()} if isinstance(found, Note) else found.to_json()


def pool_json(p: CapacityPlan, index: int) -> dict[str, Any]:
    pool = p.pools[index]
    return {
        "name": pool.name,
        "bytes": p.sizes.shares[index] if p.sizes else p.kv_pool_bytes,
        "block_bytes": pool.block_bytes,
        "blocks": p.num_blocks,
        "tokens": p.sizes.shares[index] // pool.block_bytes * (pool.block_size or 0) if p.sizes and pool.block_bytes else p.kv_tokens,
        "groups": [
            {
                "kind": g.kind,
                "layers": len(g.layers),
                "indices": list(g.layers),
                "block_size": g.resident.unit_tokens,
                "page_bytes": g.resident.unit_bytes,
                "admission_blocks": g.admission.units(p.setting.max_model_len),
                "resident_blocks": g.resident.units(p.scenario.tokens),
            }
            for g in pool.groups
        ],
    }


def identities(p: CapacityPlan) -> list[dict[str, Any]]:
    """What must hold in every plan; printed in the report, asserted in the tests."""
    out = []
    if p.num_blocks is not None and p.bytes_per_block:
        out.append({"name": "blocks_within_pool", "left": p.num_blocks * p.bytes_per_block, "right": max(0, p.kv_pool_bytes),
                    "holds": p.num_blocks * p.bytes_per_block <= max(0, p.kv_pool_bytes)})  # fmt: skip
    whole = p.scenario.kv_memory if p.scenario.kv_memory is not None else p.hardware.memory_bytes if p.hardware else 0
    for rank, lines in enumerate(p.ledgers):
        total = sum(line.bytes for line in lines)
        out.append({"name": "ledger_sums_to_memory", "rank": rank, "left": total, "right": whole, "holds": total == whole})
    if p.num_blocks is not None and p.blocks_per_request and p.setting.prints_concurrency:
        right = p.num_blocks * p.setting.max_model_len // p.blocks_per_request
        out.append({"name": "tokens_agree_with_concurrency", "left": p.kv_tokens, "right": right, "holds": abs((p.kv_tokens or 0) - right) <= 1})
    copies = sum(g.bytes for g in p.gap if g.code == "copies")
    out.append({"name": "ranks_hold_every_row", "left": p.footprint.architecture_bytes + copies, "right": p.footprint.architecture_bytes, "holds": copies >= 0})
    gap = p.footprint.architecture_bytes + sum(g.bytes for g in p.gap)
    out.append({"name": "gap_explains_engine", "left": gap, "right": p.footprint.engine_bytes, "holds": gap == p.footprint.engine_bytes})
    return out
