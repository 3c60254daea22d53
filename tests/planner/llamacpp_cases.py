"""What the tests of llama.cpp plan: small models and configs, and the cases of the executed table as models (real attention shapes, layer by
layer as the column `facts` tells them)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from planner.cache import Kind, Rows, State, StateTensor
from planner.capacity import CapacityPlan, plan
from planner.dtypes import DTYPES
from planner.footprint import Footprint, measure
from planner.hardware import find
from planner.model import Attention, LayerSpec, ModelSpec
from planner.readers import read_config
from planner.scenario import Scenario
from planner.sources import load
from tests.conftest import CONFIGS

FILE_WINDOW = {"smallthinker_2048": 2048}  # what the file says where the column shows what was used
# Architectures whose file has a window on every layer that llama.cpp does not use (column `window`, layers F).
IGNORING = ("llama", "phi3", "exaone4", "qwen2", "starcoder2", "phimoe", "mistral3", "qwen2moe", "qwen3moe")
LENDING = ("gemma3n", "gemma4")
REASONS = {  # what llama.cpp said -> our code
    "n_seq_max must be <=": "llamacpp_sequences",
    "requires flash_attn": "llamacpp_v_needs_flash",
    "requires Flash Attention": "llamacpp_v_needs_flash",
    "different K": "llamacpp_types_differ",
    "does not divide": "llamacpp_block",
    "GGML_ASSERT": "llamacpp_abort",
}
INDEX = Rows(heads=1, k_dim=128, v_dim=0, shard="copy", format="index")
MIB = 2**20
ROW = 4 * 8 * 256 * 2  # bytes of a cell in all layers of rows_model


def config(name: str, **changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CONFIGS / f"{name}.json").read_text())
    return {k: v for k, v in (found | changes).items() if v is not None}


def catalog(name: str) -> ModelSpec:
    return read_config(load(f"catalog:{name}").raw, name)


def held(model: ModelSpec, **options: Any) -> Footprint:
    return measure(model, None, Scenario(**{"engine": "llamacpp", "sequences": 1, "tokens": 4096, **options}))


def planned(model: ModelSpec, **options: Any) -> CapacityPlan:
    return plan(model, find("H100 SXM"), Scenario(**{"engine": "llamacpp", "sequences": 1, "tokens": 4096, **options}))


def rows_model(architecture: str = "llama", **row: Any) -> ModelSpec:
    """Four equal layers of one cache."""
    rows = Rows(**{"heads": 8, "k_dim": 128, "v_dim": 128, **row})
    a = Attention(q_heads=32, kv_heads=rows.heads, qk_dim=rows.k_dim, v_dim=rows.v_dim)
    return ModelSpec(name="x", model_type="", architecture=architecture, hidden_size=1024, vocab_size=32000, max_context_tokens=None, weights=(),
                     layers=(LayerSpec(caches=(rows,), attention=a),) * 4, dtype=DTYPES["bf16"], tied_embeddings=True)  # fmt: skip


def by_kind(f: Footprint, sequences: int = 1) -> dict[str, str]:
    """MiB of each kind of cache, as the log prints them."""
    out: dict[str, int] = {}
    for pools in (*f.allocation.stages, f.allocation.host):
        for pool in pools:
            for g in pool.groups:
                out[g.kind] = out.get(g.kind, 0) + pool.group_bytes(g, sequences, 1)
    return {kind: f"{size / MIB:.2f}" for kind, size in out.items()}


def model_of(row: Mapping[str, str]) -> ModelSpec:
    arch = row["arch"]
    layers = stack(row)
    decoder = re.search(r"decoder (\d+) layers", row["note"])
    depth = len(layers) if arch == "t5" else 0
    if decoder:  # the column counts the layers of the cache: the encoder's
        layers = layers[: int(decoder[1])]
    return ModelSpec(name=row["case"], model_type=arch, architecture=arch, hidden_size=64, vocab_size=256, max_context_tokens=None, layers=layers,
                     weights=(), dtype=DTYPES["bf16"], tied_embeddings=True, encoder_layers=depth)  # fmt: skip


def scenario_of(row: Mapping[str, str]) -> Scenario:
    return Scenario(engine="llamacpp", tokens=1, sequences=1, max_model_len=int(row["n_ctx_asked"]), parallel=int(row["n_seq_max"]),
                    kv_unified=row["kv_unified"] == "1", max_num_batched_tokens=int(row["n_batch"]), n_ubatch=int(row["n_ubatch"]),
                    n_rs_seq=int(row["n_rs_seq"]), cache_type_k=row["type_k"], cache_type_v=row["type_v"], flash_attn=row["flash_attn"],
                    swa_full=row["swa_full"] == "1")  # fmt: skip


def reason_of(row: Mapping[str, str]) -> str:
    return next(code for said, code in REASONS.items() if said in row["note"])


def stack(row: Mapping[str, str]) -> tuple[LayerSpec, ...]:
    """F full, W windowed, B rows and a state, R a state, N nothing of its own."""
    facts, arch = json.loads(row["facts"]), row["arch"]
    window, state = facts.get("window"), _state(facts)
    window = FILE_WINDOW.get(row["case"].split("#")[0], window)
    out: list[LayerSpec] = []
    for count, kind, heads, k, v in re.findall(r"(\d+)x([FWBRN])\(kv(\d+),k(\d+),v(\d+)\)", " ".join(facts["layers"])):
        here = window if kind == "W" or arch in IGNORING else None
        a = Attention(q_heads=facts["heads"] or 1, kv_heads=int(heads), qk_dim=int(k), v_dim=int(v), kv_rank=int(v) if facts.get("mla") else None)
        for _ in range(int(count)):
            if kind in "FWB":
                rows: tuple[Kind, ...] = (Rows(heads=int(heads), k_dim=int(k), v_dim=int(v), window=here),)
                if facts.get("mla"):
                    rows = (Rows(heads=1, k_dim=int(k), v_dim=0, shard="copy", window=window if arch == "deepseek4" else None),)
                out.append(LayerSpec(caches=(*rows, state) if kind == "B" and state else rows, attention=a))
            elif kind == "R" and state:
                out.append(LayerSpec(caches=(state,)))
            elif arch in LENDING:
                out.append(LayerSpec(caches=(), attention=a, shares_with=0))
            elif "MTP" not in row["note"]:
                out.append(LayerSpec(caches=()))
    return tuple(_with_index(row, out))


def _state(facts: Mapping[str, int]) -> State | None:
    if "conv_elems" not in facts:
        return None
    conv = StateTensor(name="conv", role="conv", elements=facts["conv_elems"] // 3 * 4, columns=4)  # as its K columns: one is dropped
    if facts["conv_elems"] % 3:
        conv = StateTensor(name="conv", role="recurrent", elements=facts["conv_elems"])
    return State(tensors=(conv, StateTensor(name="matrix", role="recurrent", elements=facts["state_elems"], dtype=DTYPES["bf16"])))


def _with_index(row: Mapping[str, str], layers: list[LayerSpec]) -> list[LayerSpec]:
    """DeepSeek-V4's compressed rows by the ratios of the note, or index keys on as many layers (the last ones) as the log shows."""
    ratios = re.search(r"ratios ([\d,]+)", row["note"])
    if ratios:
        return [_compressed(layer, int(n)) for layer, n in zip(layers, ratios[1].split(","), strict=True)]
    owners = re.search(r"indexer: .*?(\d+) layers", row["other_caches"])
    first = len(layers) - int(owners[1]) if owners else len(layers)
    return [*layers[:first], *(LayerSpec(caches=(*x.caches, INDEX), attention=x.attention) for x in layers[first:])]


def _compressed(layer: LayerSpec, ratio: int) -> LayerSpec:
    if not ratio:
        return layer
    a = layer.attention
    assert a is not None
    more: tuple[Kind, ...] = (Rows(heads=1, k_dim=a.qk_dim, v_dim=0, shard="copy", ratio=ratio),)
    if ratio == 4:
        more += (Rows(heads=1, k_dim=128, v_dim=0, shard="copy", format="index", ratio=ratio),)
    return LayerSpec(caches=(*layer.caches, *more), attention=a)
