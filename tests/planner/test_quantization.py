"""How quantized checkpoints store their matrices: one matrix of each method by hand, lists of modules, and files that lie."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from planner.api import answer
from planner.model import ModelSpec
from planner.parallel import Parallel
from planner.quantization.methods import METHODS, method_of, read
from planner.quantization.names import MODULES, modules_of
from planner.quantization.patterns import Patterns
from planner.quantization.scheme import NotKnown
from planner.readers import read_config
from planner.weights import bytes_on_rank, parameters, weight_format
from tests.conftest import corpus_file, small_configs

OUT, IN = 256, 512  # 131,072 elements
INT8 = {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}
FP8 = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}
INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}


def ct(layout: str, weights: dict[str, Any], inputs: dict[str, Any] | None = None) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    return {"quant_method": "compressed-tensors", "format": layout, "config_groups": {"group_0": group}, "ignore": ["lm_head"]}


ONE_MATRIX: list[tuple[str, dict[str, Any], int]] = [
    # 2 x 4 blocks of 128 x 128, an fp32 scale each
    ("fp8 blocks", {"quant_method": "fp8", "weight_block_size": [128, 128]}, 131_072 + 8 * 4),
    ("fp8 odd blocks", {"quant_method": "fp8", "weight_block_size": [100, 200]}, 131_072 + 3 * 3 * 4),
    ("fp8 per tensor", {"quant_method": "fp8"}, 131_072 + 4),
    ("fp8 static", {"quant_method": "fp8", "activation_scheme": "static"}, 131_072 + 4 + 4),
    ("fbgemm", {"quant_method": "fbgemm_fp8"}, 131_072 + 256 * 4),
    # words: 512 / 8 x 256 x 4; scales fp16: 4 groups x 256 x 2; zeros: 4 x 256 / 8 x 4; g_idx: 512 x 4
    ("gptq 4", {"quant_method": "gptq", "bits": 4, "group_size": 128}, 65_536 + 2_048 + 512 + 2_048),
    ("gptq 8", {"quant_method": "gptq", "bits": 8, "group_size": 128}, 131_072 + 2_048 + 1_024 + 2_048),
    ("gptq 3", {"quant_method": "gptq", "bits": 3, "group_size": 128}, 512 // 32 * 3 * 256 * 4 + 2_048 + 4 * (256 // 32 * 3) * 4 + 2_048),
    ("gptq 2", {"quant_method": "gptq", "bits": 2, "group_size": 128}, 32_768 + 2_048 + 256 + 2_048),
    ("gptq one group", {"quant_method": "gptq", "bits": 4, "group_size": -1}, 65_536 + 512 + 128 + 2_048),
    ("awq", {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}, 65_536 + 2_048 + 512),
    ("awq 64", {"quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemm"}, 65_536 + 4_096 + 1_024),
    ("auto-round", {"quant_method": "auto-round", "bits": 4, "group_size": 128, "packing_format": "auto_round:auto_awq"}, 65_536 + 2_048 + 512),
    # compressed-tensors: scales in the model's 2 bytes
    ("int8 channel", ct("int-quantized", INT8, {"num_bits": 8, "dynamic": True}), 131_072 + 512),
    ("int8 asymmetric", ct("int-quantized", {**INT8, "symmetric": False}), 131_072 + 512 + 256),
    ("fp8 channel", ct("float-quantized", FP8, {"num_bits": 8, "dynamic": True}), 131_072 + 512),
    ("fp8 tensor, static input", ct("float-quantized", {**FP8, "strategy": "tensor"}, {"num_bits": 8, "dynamic": False}), 131_072 + 2 + 2),
    ("fp8 block", ct("float-quantized", {**FP8, "strategy": "block", "block_structure": [128, 128]}), 131_072 + 8 * 2),
    ("fp8 block as text", ct("naive-quantized", {**FP8, "strategy": "block", "block_structure": "128x128"}), 131_072 + 8 * 2),
    ("w4a16", ct("pack-quantized", INT4), 65_536 + 2_048 + 16),  # weight_shape: two int64
    ("w4a16 asymmetric", ct("pack-quantized", {**INT4, "symmetric": False}), 65_536 + 2_048 + 16 + 512),
    ("w4a16 ordered", ct("pack-quantized", {**INT4, "actorder": "group"}), 65_536 + 2_048 + 16 + 2_048),
    ("w3a16", ct("pack-quantized", {**INT4, "num_bits": 3}), 256 * 52 * 4 + 2_048 + 16),  # ten to a word: 52 words a row
    ("nvfp4", ct("nvfp4-pack-quantized", {"num_bits": 4, "type": "float", "group_size": 16}, {"num_bits": 4}), 65_536 + 256 * 32 + 4 + 4),
    ("nvfp4 weights alone", ct("nvfp4-pack-quantized", {"num_bits": 4, "type": "float", "group_size": 16}), 65_536 + 256 * 32 + 4),
    ("mxfp4 packed", ct("mxfp4-pack-quantized", {"num_bits": 4, "type": "float", "group_size": 32}), 65_536 + 256 * 16),
    # bitsandbytes: 2,048 blocks of 64; with double quantization a byte each and an fp32 for 256 of them
    ("nf4", {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, 65_536 + 2_048 * 4 + 64),
    ("nf4 twice", {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True},
     65_536 + 2_048 + 8 * 4 + 64 + 1_024),
    ("llm.int8", {"quant_method": "bitsandbytes", "load_in_8bit": True}, 131_072 + 1_024 + 1),
    ("mxfp4", {"quant_method": "mxfp4"}, 65_536 + 256 * 16),
    ("modelopt fp8", {"quant_method": "modelopt", "quant_algo": "FP8"}, 131_072 + 4 + 4),
    ("modelopt nvfp4", {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}, 65_536 + 8_192 + 4 + 4),
    ("modelopt nested", {"quantization": {"quant_algo": "W4A16_NVFP4"}, "producer": {}}, 65_536 + 8_192 + 4),
    ("modelopt w4a8", {"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}, 65_536 + 2_048 + 1_024 + 4 + 4),
    ("modelopt by numbers", {"quant_method": "modelopt", "config_groups": {"a": {"weights": {"num_bits": 8, "type": "float"}}}}, 131_072 + 8),
    ("mxfp8", {"quant_method": "mxfp8"}, 131_072 + 4_096),
    ("eetq", {"quant_method": "eetq"}, 131_072 + 512),
    ("w8a8_int8", {"quant_method": "w8a8_int8"}, 131_072 + 1_024),
    ("int8 blocks", {"quant_method": "blockwise_int8", "weight_block_size": [128, 128]}, 131_072 + 32),
    ("quanto", {"quant_method": "quanto", "weights": "int8"}, 131_072 + 512),
    ("hqq", {"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}}}, 65_536 + 2_048 * 4),
    ("torchao", {"quant_method": "torchao", "quant_type": "int4_weight_only", "quant_type_kwargs": {"group_size": 128}}, 65_536 + 1_024 * 4),
    ("torchao by class", {"quant_method": "torchao", "quant_type": {"default": {"_type": "Int8WeightOnlyConfig", "_data": {}}}}, 131_072 + 512),
    # a code of 16 bits for 8 inputs, a codebook of 65,536 x 8 in fp16, a scale a row
    ("aqlm", {"quant_method": "aqlm", "in_group_size": 8, "nbits_per_codebook": 16, "num_codebooks": 1}, 256 * 64 * 2 + 65_536 * 8 * 2 + 512),
    ("bitnet", {"quant_method": "bitnet"}, 32_768 + 2),
    ("higgs", {"quant_method": "higgs", "bits": 4, "group_size": 256}, 65_536 + 1_024 + 2 * (16 + 512)),
    ("quark", {"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32}}}, 65_536 + 4_096),
    ("exl2", {"quant_method": "exl2", "bits": 4.25}, 131_072 * 425 // 800 + 1),  # 69,632 bytes in whole lots of 800
]  # fmt: skip


@pytest.mark.parametrize(("config", "bytes_"), [row[1:] for row in ONE_MATRIX], ids=[row[0] for row in ONE_MATRIX])
def test_bytes_of_one_matrix(config: dict[str, Any], bytes_: int) -> None:
    stored = read(config).rules[-1].stored
    assert stored is not None
    got = stored.nbytes((OUT, IN))
    assert got == bytes_ or (config["quant_method"] == "exl2" and bytes_ - 1 <= got <= bytes_ + 424)


def test_every_method_has_a_matrix() -> None:
    tried = {METHODS[method_of(config)] for _, config, _ in ONE_MATRIX}
    assert tried == set(METHODS.values())


# -- whole models ------------------------------------------------------------------------------------------------------

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2,
    "vocab_size": 1000, "max_position_embeddings": 4096, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
}  # fmt: skip
# A layer: q and o 512 x 512, k and v 128 x 512, gate, up and down 512 x 1024
ATTENTION, MLP = 2 * 512 * 512 + 2 * 128 * 512, 3 * 512 * 1024
MOE = {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2, **{k: v for k, v in LLAMA.items() if k != "model_type"}}
REST = 2 * (2 * 1000 * 512 + 9 * 512)  # embedding, head, norms


def of(config: dict[str, Any], quantization: dict[str, Any] | None) -> ModelSpec:
    return read_config(config | ({"quantization_config": quantization} if quantization is not None else {}))


def total(model: ModelSpec, p: Parallel | None = None) -> int:
    return bytes_on_rank(model, weight_format(model, None, model.dtype), p or Parallel())


def fp8(*skip: Any, key: str = "modules_to_not_convert") -> dict[str, Any]:
    """Per tensor, so that a matrix is its elements and 4 bytes."""
    return {"quant_method": "fp8", key: list(skip)}


def test_unquantized() -> None:
    assert total(of(LLAMA, None)) == REST + 2 * 4 * (ATTENTION + MLP)


@pytest.mark.parametrize(
    ("skip", "bytes_"),
    [
        (("lm_head",), 4 * (ATTENTION + MLP) + 28 * 4),
        (("lm_head", "self_attn"), 4 * (2 * ATTENTION + MLP) + 12 * 4),
        (("lm_head", "model.layers.1.self_attn"), 4 * (ATTENTION + MLP) + ATTENTION + 24 * 4),
        (("lm_head", "model.layers.1"), 4 * (ATTENTION + MLP) + ATTENTION + MLP + 21 * 4),
        (("lm_head", "language_model.model.layers.1.self_attn.q_proj"), 4 * (ATTENTION + MLP) + 512 * 512 + 27 * 4),
        (("model.layers.*.mlp",), 4 * (ATTENTION + 2 * MLP) + 16 * 4),
        (("*.mlp.*",), 4 * (ATTENTION + 2 * MLP) + 16 * 4),
        (("model.layers.2.mlp*",), 4 * (ATTENTION + MLP) + MLP + 25 * 4),
        (("model.layers.2*",), 4 * (ATTENTION + MLP) + ATTENTION + MLP + 21 * 4),
        (("re:.*self_attn.*",), 4 * (2 * ATTENTION + MLP) + 12 * 4),
        ((r"re:.*mlp\.(gate|up|gate_up|down)_proj.*",), 4 * (ATTENTION + 2 * MLP) + 16 * 4),
        ((r"re:model\.layers\.(0|3)\..*",), 4 * (ATTENTION + MLP) + 2 * (ATTENTION + MLP) + 14 * 4),
        ((r"re:model.layers.[12].self_attn",), 4 * (ATTENTION + MLP) + 2 * ATTENTION + 20 * 4),
        ((r".*\.o_proj$",), 4 * (ATTENTION + MLP) + 4 * 512 * 512 + 24 * 4),
        (("qkv_proj",), 4 * (ATTENTION + MLP) + 4 * (512 * 512 + 2 * 128 * 512) + 16 * 4),  # the fused name of three
        # of a vision tower, of draft layers, of no layer that there is: nothing
        (
            ("visual", "visual.blocks.0.attn.qkv", "mtp.layers.0.mlp", "model.layers.9.mlp", "vision_tower.encoder.layers.1.self_attn"),
            4 * (ATTENTION + MLP) + 28 * 4,
        ),
        ((r"re:visual\.blocks\.0\..*", "mtp*", "model.vision*"), 4 * (ATTENTION + MLP) + 28 * 4),
    ],
)
def test_lists_of_what_stays(skip: tuple[str, ...], bytes_: int) -> None:
    model = of(LLAMA, fp8(*skip))
    assert total(model) == REST + bytes_
    assert model.storage == "exact"


def test_other_keys_for_the_same_list() -> None:
    for key in ("ignored_layers", "exclude_modules", "ignore", "llm_int8_skip_modules"):
        assert total(of(LLAMA, fp8("self_attn", key=key))) == total(of(LLAMA, fp8("self_attn")))


def test_only_layers_that_differ_are_told_apart() -> None:
    assert len(of(LLAMA, fp8("lm_head")).layer_groups()) == 1
    assert [where for _, where in of(LLAMA, fp8("model.layers.2.mlp")).layer_groups()] == [(0, 1, 3), (2,)]


def test_without_a_list_the_result_is_assumed() -> None:
    model = of(LLAMA, {"quant_method": "fp8"})
    assert total(model) == total(of(LLAMA, fp8("lm_head")))
    assert model.storage == "assumed"
    assert {n.code for n in model.notes} >= {"weights_stored", "weights_list_missing"}
    assert of(LLAMA, {"quant_method": "awq", "bits": 4}).storage == "exact"  # its library reaches every matrix of the blocks


def test_routers_stay_and_single_experts_can() -> None:
    model = of(MOE, fp8("lm_head"))
    routers = 4 * 2 * 4 * 512
    assert total(model) == REST + routers + 4 * (ATTENTION + 4 * MLP) + 4 * (4 + 12) * 4
    kept = of(MOE, fp8("lm_head", *(f"model.layers.1.block_sparse_moe.experts.{e}.w1" for e in (0, 3))))
    assert total(kept) - total(model) == 2 * 512 * 1024 - 2 * 4  # two matrices at two bytes an element, without their scales
    assert parameters(kept).total == parameters(model).total


def test_mxfp4_reaches_the_experts_alone() -> None:
    model = of(MOE, {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]})
    assert total(model) == REST + 4 * 2 * 4 * 512 + 4 * (2 * ATTENTION + 4 * MLP * 17 // 32)


def test_heads_that_are_quantized() -> None:
    plain = ct("int-quantized", INT8)
    head = 1000 * 512
    assert total(of(LLAMA, {**plain, "ignore": []})) - total(of(LLAMA, plain)) == head + 1000 * 2 - 2 * head
    lines = {"quant_method": "gptq", "bits": 8, "group_size": -1}
    extra = total(of(LLAMA, {**lines, "lm_head": True})) - total(of(LLAMA, lines))
    assert extra == head + 1000 * 2 + 1000 + 512 * 4 - 2 * head


def test_two_groups() -> None:
    groups = {"a": {"targets": ["re:.*mlp.*"], "weights": INT4}, "b": {"targets": ["Linear"], "weights": INT8}}
    mixed = {"quant_method": "compressed-tensors", "format": "mixed-precision", "ignore": ["lm_head"],
             "config_groups": {"b": {**groups["b"], "format": "int-quantized"}, "a": {**groups["a"], "format": "pack-quantized"}}}  # fmt: skip
    attention = ATTENTION + 2 * (512 + 512 + 128 + 128)
    mlp = MLP // 2 + (2 * 1024 * 4 + 512 * 8) * 2 + 3 * 16  # scales: gate and up 1024 x 4, down 512 x 8
    assert total(of(LLAMA, mixed)) == REST + 4 * (attention + mlp)


def test_gptq_rules() -> None:
    base = {"quant_method": "gptq", "bits": 4, "group_size": 128}
    plain = total(of(LLAMA, base))
    without = total(of(LLAMA, {**base, "dynamic": {r"-:.*self_attn.*": {}}}))
    assert without == REST + 4 * 2 * ATTENTION + 4 * _gptq_mlp(4)
    eight = total(of(LLAMA, {**base, "dynamic": {r"+:.*mlp.*": {"bits": 8}}}))
    assert eight - plain == 4 * (_gptq_mlp(8) - _gptq_mlp(4))
    listed = {**base, "modules_in_block_to_quantize": [["self_attn.k_proj", "self_attn.v_proj", "self_attn.q_proj"], ["self_attn.o_proj"]]}
    assert total(of(LLAMA, listed)) == plain + 4 * (2 * MLP - _gptq_mlp(4))


def _gptq_mlp(bits: int) -> int:
    """gate and up [1024, 512], down [512, 1024], groups of 128: words, scales, zeros, g_idx."""
    return MLP * bits // 8 + 3 * 1024 * 4 * 2 + 3 * 1024 * 4 * bits // 8 + (512 + 512 + 1024) * 4


def test_modelopt_names_layers() -> None:
    layers = {f"model.layers.{i}.mlp": {"quant_algo": "FP8"} for i in range(4)} | {"lm_head": {"quant_algo": "W4A16_NVFP4", "group_size": 16}}
    model = of(LLAMA, {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers})
    head = 1000 * 512
    assert total(model) == REST - 2 * head + head // 2 + head // 16 + 4 + 4 * (2 * ATTENTION + MLP + 3 * 8)
    assert model.storage == "exact"


def test_ranks_hold_their_share_of_the_scales() -> None:
    model = of(LLAMA, {"quant_method": "fp8", "weight_block_size": [128, 128]})
    plain = of(LLAMA, None)
    one, two = total(model), total(model, Parallel(tensor=2))
    scales = 4 * 4 * (2 * 16 + 2 * 4 + 3 * 32)
    assert one == REST + 4 * (ATTENTION + MLP) + scales
    # norms are on both ranks, the vocabulary is padded to 1,024 rows
    assert two == 2 * (2 * 512 * 512 + 9 * 512) + 2 * (ATTENTION + MLP) + scales // 2
    assert total(plain, Parallel(tensor=2)) == 2 * (2 * 512 * 512 + 9 * 512) + 4 * (ATTENTION + MLP)


def test_what_the_user_asks_for_wins() -> None:
    model = of(LLAMA, {"quant_method": "awq", "bits": 4})
    asked = weight_format(model, "fp8", model.dtype)
    assert bytes_on_rank(model, asked, Parallel()) == REST + 4 * (ATTENTION + MLP)
    assert asked.name == "fp8, bf16"


def test_the_ledger_says_where_the_bytes_come_from() -> None:
    source = json.dumps(LLAMA | {"quantization_config": fp8("lm_head")})
    line = next(x for x in answer("plan", source, {"gpu": "H100 SXM"})["rank_ledgers"][0] if x["code"] == "weights")
    assert (line["kind"], line["name"]) == ("derived", "Weights (fp8, bf16)")
    assert "quantization_config" in line["source"]


def test_files_far_from_the_shapes_are_told() -> None:
    source = json.dumps(LLAMA)
    near, far = (REST + 2 * 4 * (ATTENTION + MLP)) * 101 // 100, (REST + 2 * 4 * (ATTENTION + MLP)) * 105 // 100
    for given, said in ((near, False), (far, True)):
        notes = {n["code"] for n in answer("plan", source, {"gpu": "H100 SXM", "weight_bytes": given})["notes"]}
        assert ("weights_files_differ" in notes) is said


# -- the cache does not follow the weights -----------------------------------------------------------------------------


@pytest.mark.parametrize("config", [row[1] for row in ONE_MATRIX], ids=[row[0] for row in ONE_MATRIX])
def test_the_kv_dtype_is_not_the_weights(config: dict[str, Any]) -> None:
    model = of(LLAMA, config)
    assert (model.dtype.name, model.kv_dtype_wish) == ("bf16", None)
    caches = [layer.caches for layer in model.layers]
    assert caches == [layer.caches for layer in of(LLAMA, None).layers]


def test_only_its_own_key_asks_for_another_cache() -> None:
    asks = {**ct("float-quantized", FP8), "kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": False}}
    assert of(LLAMA, asks).kv_dtype_wish == "fp8"
    assert of(LLAMA, {**asks, "kv_cache_scheme": None}).kv_dtype_wish is None


# -- what does not follow from the file --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"quant_method": "vptq"}, "quant_method"),
        ({"quant_method": "spqr", "bits": 3}, "quant_method"),
        ({"quant_method": "gptq"}, "bits"),
        ({"quant_method": "gptq", "bits": 5}, "bits"),
        ({"quant_method": "gptq", "bits": "4"}, "bits"),
        ({"quant_method": "gptq", "bits": True}, "bits"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 1.5}, "group_size"),
        ({"quant_method": "gptq", "bits": 4, "dynamic": []}, "dynamic"),
        ({"quant_method": "fp8", "weight_block_size": [128, 0]}, "weight_block_size"),
        ({"quant_method": "fp8", "weight_block_size": "128"}, "weight_block_size"),
        ({"quant_method": "fp8", "modules_to_not_convert": "lm_head"}, "modules_to_not_convert"),
        ({"quant_method": "compressed-tensors"}, "config_groups"),
        ({"quant_method": "compressed-tensors", "config_groups": {}}, "config_groups"),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": 3}}, "a"),
        (ct("marlin-24", INT4), "format"),
        (ct("pack-quantized", {**INT4, "strategy": "spiral"}), "strategy"),
        ({**ct("pack-quantized", INT4), "sparsity_config": {"format": "sparse-24-bitmask"}}, "sparsity_config"),
        ({"quant_method": "modelopt", "quant_algo": "W2A2"}, "quant_algo"),
        ({"quant_method": "bitsandbytes"}, "load_in_4bit"),
        ({"quant_method": "torchao", "quant_type": {"default": {"_type": "Sparse"}}}, "quant_type"),
        ({"quant_method": ["fp8"]}, "quant_method"),
        ({}, "quant_method"),
    ],
)
def test_unknown_sizes_are_a_bound(config: dict[str, Any], key: str) -> None:
    with pytest.raises(NotKnown) as caught:
        read(config)
    assert caught.value.key == key
    model = of(LLAMA, config)
    assert model.storage == "unknown"
    assert total(model) == total(of(LLAMA, None))
    said = next(n for n in model.notes if n.code == "weights_size_unknown")
    assert key in said.text
    assert "--weight-bytes" in said.text
    line = answer("plan", json.dumps(LLAMA | {"quantization_config": config}), {"gpu": "H100 SXM"})["rank_ledgers"][0]
    weights = next(x for x in line if x["code"] == "weights_bound")
    assert weights["kind"] == "assumed"
    assert 0 < weights["low_bytes"] < weights["bytes"] == weights["high_bytes"]


@pytest.mark.parametrize(
    "pattern", [r"re:.*(a+)+$", r"re:(.*)*mlp(.*)*$", "*a*" * 80, r"re:(?=.*mlp).*", r"re:(((((a{99}){99}){99}", "re:" + "(" * 500, "a" * 5000]
)
def test_patterns_that_would_run_away(pattern: str) -> None:
    started = time.process_time()
    model = of(LLAMA, fp8("lm_head", pattern))
    assert time.process_time() - started < 2
    assert total(model) > 0
    assert [n.level for n in model.notes if n.code == "weights_list_unread"] in ([], ["warning"])


def test_the_work_of_all_lists_together_is_bounded() -> None:
    """200 rules of 900 characters each, all tried on all names: given up after a while, with a note."""
    heavy = {rf"+:.*layers\.\d+\.({'|'.join(f'(.?{c}{i}.*)*x' for c in 'abcdefgh' for i in range(9))}).*{i}": {"bits": 8} for i in range(200)}
    started = time.process_time()
    model = of({**LLAMA, "num_hidden_layers": 90}, {"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": heavy})
    assert time.process_time() - started < 20
    assert {n.code for n in model.notes} >= {"weights_list_unread"}


def test_look_around_is_refused_aloud() -> None:
    model = of(LLAMA, fp8("lm_head", r"re:^(?!.*mlp).*"))
    said = next(n for n in model.notes if n.code == "weights_list_unread")
    assert "(?!" in said.text
    assert model.storage == "assumed"


def test_long_lists_are_fast_and_endless_ones_are_cut() -> None:
    every = [f"model.layers.{i}.mlp.experts.{e}.{p}_proj" for i in range(60) for e in range(128) for p in ("gate", "up", "down")]
    started = time.process_time()
    of(LLAMA, fp8(*every))
    endless = of(LLAMA, fp8(*(f"module.{i}" for i in range(150_000))))
    patterns = of(LLAMA, fp8(*(rf"re:.*layers\.\d+\.m{i}.*" for i in range(5_000))))
    assert time.process_time() - started < 5
    assert {n.code for n in endless.notes} >= {"weights_list_unread"}
    assert {n.code for n in patterns.notes} >= {"weights_list_unread"}


@pytest.mark.parametrize("entry", [None, 3, [], {}, float("nan"), {"a": "b"}, ["lm_head"]])
def test_entries_of_other_kinds(entry: Any) -> None:
    model = of(LLAMA, fp8("self_attn", entry))
    assert total(model) == total(of(LLAMA, fp8("self_attn")))
    assert model.storage == "assumed"


# -- names -------------------------------------------------------------------------------------------------------------


def test_every_matrix_of_every_family_has_a_name() -> None:
    """A weight without a row would be matched by its own name alone: each common one has one."""
    unknown: dict[str, set[str]] = {}
    for name, config in small_configs():
        model = read_config(config)
        for layer, _ in model.layer_groups():
            for w in layer.weights:
                if w.quantizable and w.name not in MODULES:
                    unknown.setdefault(w.name, set()).add(name)
    assert not {w: names for w, names in unknown.items() if len(names) > 6}


def test_a_pattern_does_not_hit_a_name_that_only_begins_alike() -> None:
    gate = Patterns(["model.layers.0.mlp.gate", "mlp.gate", "gate"])
    assert not gate.count(modules_of("mlp.gate", "mlp", "llama"), 0)
    assert not gate.count(modules_of("experts.gate", "expert", "qwen3_moe"), 0)
    assert Patterns(["mlp.gate_proj"]).count(modules_of("mlp.gate", "mlp", "llama"), 0)
    assert Patterns(["model.layers.1*"]).count(("mlp.up_proj",), 12)
    assert not Patterns(["model.layers.1.*"]).count(("mlp.up_proj",), 12)
    assert not Patterns(["model.layers.1"]).count(("mlp.up_proj",), 12)


# -- against what was printed and published ----------------------------------------------------------------------------


def _llama(hidden: int, layers: int, heads: int, kv: int, width: int) -> dict[str, Any]:
    return {**LLAMA, "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv,
            "intermediate_size": width, "vocab_size": 128_256}  # fmt: skip


def test_what_engines_printed() -> None:
    """Start-up lines of vLLM: "model weights take" of vllm-project/vllm#12569 (one GPU) and of an llm-d log of 0.11 (two)."""
    w8a8 = total(of(_llama(8192, 80, 64, 8, 28_672), ct("int-quantized", INT8, {"num_bits": 8, "dynamic": True})))
    assert w8a8 / 2**30 == pytest.approx(67.7229, rel=0.001)
    fp8_two = total(of(_llama(8192, 80, 64, 8, 28_672), ct("float-quantized", FP8, {"num_bits": 8, "dynamic": True})), Parallel(tensor=2))
    assert fp8_two / 2**30 == pytest.approx(33.88, rel=0.002)


@pytest.mark.corpus
def test_the_published_size_of_deepseek_v3() -> None:
    """The weight files of huggingface.co/deepseek-ai/DeepSeek-V3 at commit afb92e1fa402 hold 688,586,727,753 bytes. They are the 61
    layers, the MTP layer with a second embedding and head, and the JSON headers of 163 files: below 20 MB."""
    model = read_config(json.loads(corpus_file("configs/deepseek-ai__DeepSeek-V3.json").read_text())).speculating()
    rest = 688_586_727_753 - total(model) - 2 * 2 * 129_280 * 7168
    assert 0 < rest < 20_000_000


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("name", "tensor", "printed"),
    [("Qwen__Qwen3-235B-A22B-FP8", 4, 55.19), ("zai-org__GLM-5-FP8", 8, 89.34), ("deepseek-ai__DeepSeek-V4-Flash", 2, 74.08)],
)
def test_ranks_that_engines_printed(name: str, tensor: int, printed: float) -> None:
    """engine_logs.csv; engines add copies of their own for latent attention, which are no weights of the checkpoint."""
    model = read_config(json.loads(corpus_file(f"configs/{name}.json").read_text()))
    assert 0.985 < total(model, Parallel(tensor=tensor)) / 2**30 / printed < 1.0005
