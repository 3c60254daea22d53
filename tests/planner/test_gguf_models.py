"""What a GGUF says of the model: the same as its config.json, by llama.cpp's rules, held against its own tensor table."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.answers import kind_json, kv_json, plan_json
from planner.api import answer
from planner.cache import Rows
from planner.capacity import plan
from planner.errors import ConfigError, MissingField, NotAConfig, PlannerError, UnsupportedModel, UnsupportedValue
from planner.footprint import measure
from planner.hardware import find
from planner.model import ModelSpec
from planner.parallel import Parallel
from planner.readers import READERS, read_config
from planner.readers.gguf.table import ARCHITECTURES, NO_CACHE
from planner.scenario import Scenario
from planner.sources import load_bytes
from planner.weights import all_weights, bytes_on_rank, parameters, weight_format
from tests import gguf_file as make
from tests.conftest import CONFIGS

TOKENS = (1, 17, 4096, 131_072)
# llama.cpp keeps something else than the model asks for: see the tests below.
OTHERWISE = {"minicpm3", "phi3", "gemma3n_text"}
AS_CONFIG = [n for n in make.names() if n not in OTHERWISE]


def bytes_at(spec: ModelSpec, tokens: int) -> int:
    s = Scenario(engine="architecture", sequences=1, tokens=tokens, dtype="bf16")
    found = kv_json(measure(spec, None, s), s)["architecture_bytes"]
    assert isinstance(found, int)
    return found


def rows_of(spec: ModelSpec, layer: int) -> Rows:
    (kind,) = spec.layers[layer].caches
    assert isinstance(kind, Rows)
    return kind


def config(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CONFIGS / f"{name}.json").read_text())
    return found


# -- the same model twice ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", AS_CONFIG)
def test_the_same_model_as_config_and_as_gguf(name: str) -> None:
    """Headers by llama.cpp's converter from the models of tests/configs: the same bytes, the same caches, the same active weights."""
    gguf, hf = read_config(make.head(name)), read_config(config(name))
    assert [[kind_json(k) for k in layer.caches] for layer in gguf.layers] == [[kind_json(k) for k in layer.caches] for layer in hf.layers]
    assert [bytes_at(gguf, t) for t in TOKENS] == [bytes_at(hf, t) for t in TOKENS]
    assert [layer.shares_with for layer in gguf.layers] == [layer.shares_with for layer in hf.layers]


def test_many_architectures_were_compared() -> None:
    assert len({make.head(n)["metadata"]["general.architecture"] for n in AS_CONFIG}) >= 45


@pytest.mark.parametrize("name", make.names())
def test_weights_are_the_tables(name: str) -> None:
    """Every tensor is counted once, to the element; the config's count may leave out a router's bias, say."""
    raw = make.head(name)
    elements = sum(_product(shape) for _, _, shape in make.table(raw["tensors"]))
    spec = read_config(raw)
    count = parameters(spec)
    assert count.total == elements == sum(w.elements * n for w, n in all_weights(spec))
    assert count.exact
    other = parameters(read_config(config(name)))
    assert abs(count.active - other.active) <= 0.01 * other.active or not other.exact


@pytest.mark.parametrize("name", make.names())
def test_bytes_of_the_weights_are_the_tables(name: str) -> None:
    """Each tensor as it is stored, so that a plan without the file's own figure has the same bytes."""
    loaded = load_bytes(make.of(make.head(name)), "x.gguf")
    spec = read_config(loaded.raw)
    assert bytes_on_rank(spec, weight_format(spec, None, spec.dtype), Parallel()) == loaded.provenance["weight_bytes"]


def test_mixed_types_are_counted_each_by_its_own() -> None:
    loaded = load_bytes(make.of(make.llama()), "x.gguf")
    spec = read_config(loaded.raw)
    fmt = weight_format(spec, None, spec.dtype)
    matrices = 2 * (144 * 4 * (2 * 1024 + 256) + 210 * 4 * 256 + 144 * (2 * 4 * 2816 + 11 * 1024)) + 4 * 1024 * (2 + 1)
    assert bytes_on_rank(spec, fmt, Parallel()) == matrices + 2 * 1024 * 32_000 + 210 * 4 * 32_000
    assert (fmt.kind, spec.quantization) == ("derived", "Q6_K, Q4_K")


def _product(shape: tuple[int, ...]) -> int:
    total = 1
    for n in shape:
        total *= n
    return total


def test_a_plan_on_several_ranks_adds_up() -> None:
    raw = make.head("mixtral")
    loaded = load_bytes(make.of(raw), "mixtral.gguf")
    spec = read_config(loaded.raw)
    told = loaded.provenance["weight_bytes"]
    ledgers = (plan_json(plan(spec, find("H100 SXM"), Scenario(tokens=512, sequences=1, tp=n, gpus=n, weight_bytes=told)))["rank_ledgers"][0] for n in (1, 2))
    one, two = (next(line["bytes"] for line in ledger if line["name"].startswith("Weights")) for ledger in ledgers)
    assert one == told
    assert told // 2 <= two < told


# -- by llama.cpp's rules ----------------------------------------------------------------------------------------------


def test_a_latent_row_that_llama_cpp_does_not_know() -> None:
    """MiniCPM3: K of nope + rope and V of hidden / heads for every head (run: kv-cache facts)."""
    raw = make.head("minicpm3")
    spec, m = read_config(raw), raw["metadata"]
    heads, k = m["minicpm3.attention.head_count"], m["minicpm3.attention.key_length"]
    assert {rows_of(spec, i) for i in range(len(spec.layers))} == {Rows(heads=heads, k_dim=k, v_dim=m["minicpm3.embedding_length"] // heads)}
    assert "gguf_expanded" in [n.code for n in spec.notes]


def old_deepseek() -> dict[str, Any]:
    """DeepSeek-V3 as it was converted before latent rows: no head sizes of MLA, kv_b whole, as many KV heads as heads."""
    raw = make.head("deepseek_v3")
    m = raw["metadata"]
    del m["deepseek2.attention.key_length_mla"], m["deepseek2.attention.value_length_mla"]
    m |= {"deepseek2.attention.head_count_kv": 16, "deepseek2.attention.key_length": 192, "deepseek2.attention.value_length": 128}
    return raw


def test_an_old_conversion_keeps_k_and_v_of_every_head() -> None:
    spec = read_config(old_deepseek())
    assert rows_of(spec, 0) == Rows(heads=16, k_dim=192, v_dim=128)
    assert bytes_at(spec, 1000) == 1000 * 8 * 16 * (192 + 128) * 2
    assert rows_of(read_config(make.head("deepseek_v3")), 0) == Rows(heads=1, k_dim=576, v_dim=0, shard="copy")


def test_a_window_that_llama_cpp_does_not_use() -> None:
    spec = read_config(make.head("phi3"))
    assert rows_of(spec, 0).window is None
    assert [n.args for n in spec.notes if n.code == "gguf_window_unused"] == [(("window", 2047), ("architecture", "phi3"))]
    assert rows_of(read_config(make.llama(attention__sliding_window=4096)), 0).window is None


def with_(name: str, **changes: Any) -> ModelSpec:
    raw = make.head(name)
    arch = raw["metadata"]["general.architecture"]
    for key, value in changes.items():
        raw["metadata"][f"{arch}.{key.replace('__', '.')}"] = value
    return read_config({**raw, "metadata": {k: v for k, v in raw["metadata"].items() if v is not None}})


def windows(spec: ModelSpec) -> list[int | None]:
    return [k.limit_tokens if isinstance(k, Rows) else None for layer in spec.layers for k in layer.caches[:1]]


WINDOWS = [  # name, changes, the window of each layer (executed: kv-cache facts, corrections 2)
    ("gemma2", {}, [1024, None] * 4),
    ("gemma2", {"attention__sliding_window": None}, [4096, None] * 4),
    ("gemma3", {"attention__sliding_window": None}, [None] * 14),
    ("gemma3", {"attention__sliding_window": 0}, [None] * 14),
    ("gemma3", {"attention__sliding_window_pattern": 2}, [1024, None] * 7),
    ("gemma3", {"attention__sliding_window_pattern": [True] + [False] * 13}, [1024] + [None] * 13),
    ("gpt_oss", {}, [128, None] * 4),
    ("cohere2", {}, [1024, 1024, 1024, None] * 2),
    ("llama4", {}, [8192, 8192, 8192, None] * 2),
    ("llama4", {"attention__sliding_window": 4096}, [8192, 8192, 8192, None] * 2),
    ("llama4", {"attention__sliding_window": 0}, [None] * 8),
    ("olmo2", {}, [None] * 8),
    ("olmo2", {"attention__sliding_window": 64}, [64, 64, 64, None] * 2),
    ("lfm2", {"attention__sliding_window": 64}, None),
]


@pytest.mark.parametrize(("name", "changes", "expected"), WINDOWS)
def test_windows(name: str, changes: dict[str, Any], expected: list[int | None] | None) -> None:
    spec = with_(name, **changes)
    if expected is None:  # every attention layer, no state layer
        assert {k.window for layer in spec.layers for k in layer.caches if isinstance(k, Rows)} == {64}
        return
    assert windows(spec) == expected


def test_sixty_four_layers_of_exaone_have_windows() -> None:
    metadata = make.head("llama")["metadata"]
    for layers, expected in ((64, 4096), (32, None)):
        m = {k.replace("llama.", "exaone4."): v for k, v in metadata.items()} | {"general.architecture": "exaone4", "exaone4.block_count": layers,
             "exaone4.attention.sliding_window": 4096, "exaone4.vocab_size": 10}  # fmt: skip
        spec = read_config({"model_type": "gguf", "metadata": m, "tensors": {}})
        assert windows(spec) == [expected, expected, expected, None] * (layers // 4)


def test_a_missing_window_is_named() -> None:
    with pytest.raises(MissingField) as caught:
        with_("gpt_oss", attention__sliding_window=None)
    assert caught.value.field == "gpt-oss.attention.sliding_window"


def test_shared_caches_of_gemma_3n() -> None:
    """The first 20 layers own a cache, whatever the file says (read in llama.cpp, run with 20 of 30)."""
    spec = read_config(make.head("gemma3n_text"))
    assert sum(layer.shares_with is None for layer in spec.layers) == min(20, len(spec.layers))


# -- layer by layer ----------------------------------------------------------------------------------------------------


def uneven() -> dict[str, Any]:
    """A pruned Llama of four layers: 4 and 2 KV heads, one layer without attention, one without anything."""
    raw = make.llama(4)
    m = {k.replace("llama.", "deci."): v for k, v in raw["metadata"].items()} | {
        "general.architecture": "deci", "deci.attention.head_count": [16, 16, 0, 0], "deci.attention.head_count_kv": [4, 2, 0, 0],
        "deci.feed_forward_length": [2816, 1024, 2816, 0]}  # fmt: skip
    rows = {
        "token_embd.weight": "F16 1024x32000", "output.weight": "Q6_K 1024x32000", "output_norm.weight": "F32 1024", "blk.0-1.attn_q.weight": "Q4_K 1024x1024",
        "blk.0.attn_k.weight": "Q4_K 1024x256", "blk.1.attn_k.weight": "Q4_K 1024x128", "blk.0.attn_v.weight": "Q6_K 1024x256",
        "blk.1.attn_v.weight": "Q4_K 1024x128", "blk.0-1.attn_output.weight": "Q4_K 1024x1024", "blk.0,2.ffn_down.weight": "Q4_K 2816x1024",
        "blk.0,2.ffn_up.weight": "Q4_K 1024x2816", "blk.1.ffn_down.weight": "Q4_K 1024x1024", "blk.1.ffn_up.weight": "Q4_K 1024x1024",
    }  # fmt: skip
    return {"model_type": "gguf", "metadata": m, "tensors": rows}


def test_heads_layer_by_layer() -> None:
    spec = read_config(load_bytes(make.of(uneven()), "x.gguf").raw)
    assert [layer.caches for layer in spec.layers] == [(Rows(heads=4, k_dim=64, v_dim=64),), (Rows(heads=2, k_dim=64, v_dim=64),), (), ()]
    assert [layer.mlp.width if layer.mlp else 0 for layer in spec.layers] == [2816, 1024, 2816, 0]
    assert bytes_at(spec, 100) == 100 * 6 * 64 * 2 * 2


def test_experts_in_tensors_of_their_own() -> None:
    """Mixtral as it was first converted: one tensor an expert."""
    raw = make.llama(expert_count=4, expert_used_count=2)
    del raw["tensors"]["blk.0-1.ffn_gate.weight"], raw["tensors"]["blk.0-1.ffn_up.weight"], raw["tensors"]["blk.0-1.ffn_down.weight"]
    for i in range(4):
        raw["tensors"] |= {f"blk.0-1.ffn_{n}.{i}.weight": "Q4_0 2816x1024" if n == "down" else "Q4_0 1024x2816" for n in ("gate", "up", "down")}
    spec = read_config(raw)
    count = parameters(spec)
    assert spec.model_type == "mixtral"
    assert count.routed_experts == 2 * 4 * 3 * 1024 * 2816
    assert count.total - count.active == count.routed_experts // 2


def test_draft_layers_cache_nothing_and_are_counted() -> None:
    raw = make.head("glm4_moe")
    drafts, blocks = raw["metadata"]["glm4moe.nextn_predict_layers"], raw["metadata"]["glm4moe.block_count"]
    raw["tensors"][f"blk.{blocks - 1}.nextn.eh_proj.weight"] = "BF16 2048x1024"
    spec = read_config(raw)
    assert (drafts, len(spec.layers)) == (1, blocks - 1)
    assert parameters(spec).total - parameters(read_config(make.head("glm4_moe"))).total == 2048 * 1024
    assert any(w.name.startswith("nextn.") for w in spec.weights)


# -- dtypes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "expected", "noted"), [("Q4_K", "fp16", True), ("Q8_0", "fp16", True), ("BF16", "bf16", False), ("F16", "fp16", False), ("F32", "fp32", False)]
)
def test_the_cache_does_not_follow_the_weights(kind: str, expected: str, noted: bool) -> None:
    raw = make.llama(4, kind)
    raw["tensors"] = {k: (v if v.startswith("F32") else f"{kind} {v.split()[1]}") for k, v in raw["tensors"].items()}
    spec = read_config(raw)
    assert spec.dtype.name == expected
    assert ("gguf_dtype" in [n.code for n in spec.notes]) is noted
    assert spec.kv_dtype_wish is None
    assert spec.quantization == (kind if noted else None)


# -- the metadata against the table ------------------------------------------------------------------------------------

PLANTED = [
    ("llama", {"attention__head_count_kv": 2}, "llama.attention.head_count_kv", "blk.0.attn_k.weight", 128, 256),
    ("llama", {"attention__head_count_kv": 8}, "llama.attention.head_count_kv", "blk.0.attn_k.weight", 512, 256),
    ("llama", {"attention__head_count_kv": [4, 4, 4, 4, 4, 4, 4, 2]}, "llama.attention.head_count_kv", "blk.7.attn_k.weight", 128, 256),
    ("llama", {"attention__head_count_kv": [4, 4, 4, 0, 4, 4, 4, 4]}, "llama.attention.head_count_kv", "blk.3.attn_k.weight", 0, 256),
    ("llama", {"attention__key_length": 128}, "llama.attention.head_count_kv", "blk.0.attn_k.weight", 512, 256),
    ("llama", {"attention__value_length": 32}, "llama.attention.head_count_kv", "blk.0.attn_v.weight", 128, 256),
    ("llama", {"embedding_length": 2048}, "llama.embedding_length", "token_embd.weight", 2048, 1024),
    ("gpt2", {"attention__head_count_kv": 4}, "gpt2.attention.head_count_kv", "blk.0.attn_qkv.weight", 1536, 3072),
    ("phi3", {"attention__head_count_kv": 8}, "phi3.attention.head_count_kv", "blk.0.attn_qkv.weight", 2048, 3072),
    ("deepseek_v3", {"attention__kv_lora_rank": 256}, "deepseek2.attention.key_length", "attn_kv_a_mqa", 576, 320),
    ("deepseek_v3", {"attention__kv_lora_rank": 256, "attention__key_length": 320}, "deepseek2.attention.head_count_kv", "blk.0.attn_kv_a_mqa.weight",
     320, 576),
    ("mamba", {"ssm__conv_kernel": 8}, "ssm.conv_kernel", "blk.0.ssm_conv1d.weight", None, None),
    ("jamba", {"attention__head_count_kv": [0] * 8}, "ssm.conv_kernel", None, None, None),
    ("lfm2", {"shortconv__l_cache": 4}, "ssm.conv_kernel", "blk.0.shortconv.conv.weight", 4096, 3072),
    ("gemma4_text", {"attention__key_length": 64}, "gemma4.attention.head_count_kv", "blk.5.attn_k.weight", 128, 256),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changes", "field", "tensor", "header", "table"), PLANTED)
def test_a_planted_contradiction_is_caught(name: str, changes: dict[str, Any], field: str, tensor: str | None, header: int | None, table: int | None) -> None:
    with pytest.raises(ConfigError) as caught:
        with_(name, **changes)
    e = caught.value
    assert (e.code, e.field) == ("gguf_contradiction", field)
    if header is not None:
        assert (e.args_by_name["tensor"], e.args_by_name["header"], e.args_by_name["table"]) == (tensor, header, table)
        assert f"{header:,}" in e.message or str(header) in e.message


def test_more_blocks_than_the_metadata_counts() -> None:
    with pytest.raises(UnsupportedValue) as caught:
        with_("llama", block_count=7)
    assert (caught.value.code, caught.value.field) == ("gguf_blocks", "llama.block_count")


def test_a_layer_that_is_not_there() -> None:
    with pytest.raises(UnsupportedValue) as caught:
        with_("llama", block_count=9)
    assert caught.value.code == "gguf_contradiction"


# -- what is refused ---------------------------------------------------------------------------------------------------

REFUSED: list[tuple[str, dict[str, Any], type[PlannerError], str, str]] = [
    ("no architecture", {"general.architecture": None}, NotAConfig, "gguf_no_architecture", "general.architecture"),
    ("a number as architecture", {"general.architecture": 3}, UnsupportedValue, "not_a_text", "general.architecture"),
    ("unknown", {"general.architecture": "llama9"}, UnsupportedModel, "gguf_architecture", "general.architecture"),
    ("encoder", {"general.architecture": "bert"}, UnsupportedModel, "gguf_no_cache", "general.architecture"),
    ("not causal", {"llama.attention.causal": False}, UnsupportedModel, "gguf_no_cache", "general.architecture"),
    ("projector", {"general.architecture": "clip"}, UnsupportedModel, "gguf_not_a_model", "general.type"),
    ("adapter", {"general.type": "adapter"}, UnsupportedModel, "gguf_not_a_model", "general.type"),
    ("later part", {"general.architecture": None, "split.no": 2}, NotAConfig, "gguf_later_part", "general.architecture"),
    ("no layers", {"llama.block_count": None}, MissingField, "missing_field", "llama.block_count"),
    ("0 layers", {"llama.block_count": 0}, UnsupportedValue, "out_of_range", "llama.block_count"),
    ("a million layers", {"llama.block_count": 10**6}, UnsupportedValue, "out_of_range", "llama.block_count"),
    ("negative layers", {"llama.block_count": -1}, UnsupportedValue, "out_of_range", "llama.block_count"),
    ("layers as text", {"llama.block_count": "32"}, UnsupportedValue, "not_an_integer", "llama.block_count"),
    ("layers as a flag", {"llama.block_count": True}, UnsupportedValue, "not_an_integer", "llama.block_count"),
    ("layers not a number", {"llama.block_count": "nan"}, UnsupportedValue, "not_an_integer", "llama.block_count"),
    ("half a layer", {"llama.block_count": 2.5}, UnsupportedValue, "not_an_integer", "llama.block_count"),
    ("only drafts", {"llama.nextn_predict_layers": 2}, UnsupportedValue, "gguf_only_drafts", "llama.block_count"),
    ("no width", {"llama.embedding_length": None}, MissingField, "missing_field", "llama.embedding_length"),
    ("no heads", {"llama.attention.head_count": None}, MissingField, "missing_field", "llama.attention.head_count"),
    ("0 heads", {"llama.attention.head_count": 0}, MissingField, "missing_field", "llama.attention.head_count"),
    ("KV heads that do not divide", {"llama.attention.head_count_kv": 3}, UnsupportedValue, "kv_heads_not_dividing", "llama.attention.head_count_kv"),
    ("a short list", {"llama.attention.head_count_kv": [4]}, UnsupportedValue, "list_length", "llama.attention.head_count_kv"),
    ("a negative entry", {"llama.attention.head_count_kv": [4, -4]}, UnsupportedValue, "out_of_range", "llama.attention.head_count_kv"),
    ("a list of flags", {"llama.attention.head_count_kv": [True, True]}, UnsupportedValue, "not_a_list", "llama.attention.head_count_kv"),
    ("heads of no size", {"llama.attention.key_length": 0}, UnsupportedValue, "out_of_range", "llama.attention.key_length"),
    ("a key of tomorrow", {"llama.attention.memory_slots": 4}, UnsupportedModel, "gguf_unknown_key", "llama.attention.memory_slots"),
    ("a list of tomorrow", {"llama.cache_ratio": [2, 4]}, UnsupportedModel, "gguf_unknown_key", "llama.cache_ratio"),
    ("a state in a family without", {"llama.ssm.state_size": 16}, UnsupportedModel, "gguf_unknown_key", "llama.ssm.state_size"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "kind", "code", "field"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_refused(changes: dict[str, Any], kind: type[PlannerError], code: str, field: str) -> None:
    raw = make.llama()
    raw["metadata"] = {k: v for k, v in (raw["metadata"] | changes).items() if v is not None}
    with pytest.raises(kind) as caught:
        read_config(raw)
    assert (caught.value.code, caught.value.field) == (code, field)
    assert caught.value.message
    assert caught.value.hint


def test_keys_that_leave_the_cache_alone_pass() -> None:
    raw = make.llama(rope__scaling__new_factor=8, attention__layer_norm_rms_epsilon=1e-5, expert_weights_norm=True, rope__dimension_count=64, vocab_size=32000)
    raw["metadata"] |= {"quantize.imatrix.entries_count": 200, "tokenizer.ggml.new_list": [1, 2]}
    assert [layer.caches for layer in read_config(raw).layers] == [layer.caches for layer in read_config(make.llama()).layers]


ROWS: list[tuple[str, Any]] = [
    ("blk.0-9999999.attn_k.weight", "F16 8x8"), ("blk.5-2.attn_k.weight", "F16 8x8"), ("blk.0,,1.attn_k.weight", "F16 8x8"), ("blk.9999.x", "F16 8x8"),
    ("blk.0.x", 7), ("blk.0.x", "F16 8x"), ("blk.0.x", "F16 " + "9" * 400), ("blk.0.x", "F16 1x1x1x1x1"), ("blk.0.x", None), ("blk.0.x", ["F16"]),
    ("blk." + ",".join(["0-511"] * 400) + ".x", "F16 8x8"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "row"), ROWS)
def test_rows_that_are_none(key: str, row: Any) -> None:
    """A pasted config may hold anything."""
    raw = make.llama()
    raw["tensors"][key] = row
    with pytest.raises(UnsupportedValue) as caught:
        read_config(raw)
    assert caught.value.code == "gguf_row"


def test_a_table_without_end() -> None:
    raw = make.llama()
    raw["tensors"] |= {f"blk.0-511.t{i}": "F16 8x8" for i in range(300)}
    with pytest.raises(UnsupportedValue) as caught:
        read_config(raw)
    assert caught.value.code == "gguf_row"


@pytest.mark.parametrize("part", ["metadata", "tensors"])
@pytest.mark.parametrize("value", [None, [], 3, "x"])
def test_sections_that_are_none(part: str, value: Any) -> None:
    raw = {**make.llama(), part: value}
    if part == "tensors" and value is None:
        assert not read_config(raw).parameters_exact
        return
    with pytest.raises(ConfigError):
        read_config(raw)


# -- the table of architectures ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", sorted(ARCHITECTURES))
def test_every_row_names_a_reader(arch: str) -> None:
    from planner.readers.gguf import parts as gguf_parts

    row = ARCHITECTURES[arch]
    assert row.reader in READERS
    assert all(callable(getattr(gguf_parts, name)) for name in row.also)
    assert arch not in NO_CACHE


def test_the_config_reads_back_from_a_report() -> None:
    raw = json.loads(json.dumps(make.head("gemma4_text")))
    assert read_config(raw).layers == read_config(deepcopy(raw)).layers
    assert answer("read", json.dumps(raw), {})["model_type"] == "gemma4_text"


ODD = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 20), st.sampled_from([64, 4096, 2**31, 2**63, 10**30, 1.5, "", "nan"]),
    st.sampled_from([[], {}, {"length": 5}, [[1]], ["a"], [None] * 8]),
    st.lists(st.integers(-1, 9), min_size=8, max_size=8), st.lists(st.booleans(), min_size=8, max_size=8),
)  # fmt: skip


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_odd_metadata_gives_an_error_or_a_model(data: st.DataObject) -> None:
    raw = make.head(data.draw(st.sampled_from(make.names())))
    for key in data.draw(st.lists(st.sampled_from(sorted(raw["metadata"])), min_size=1, max_size=3)):
        raw["metadata"][key] = data.draw(ODD)
    for key in data.draw(st.lists(st.sampled_from(sorted(raw["tensors"])), max_size=2, unique=True)):
        del raw["tensors"][key]
    try:
        read_config(raw)
    except PlannerError as e:
        told = e.message, e.hint
        assert all(told)
