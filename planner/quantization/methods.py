"""quant_method -> the function that reads its keys. Everything here is arithmetic on the file; nothing is fetched.

Which matrices a method reaches when the file has no list is the rule of its own library: GPTQModel and AutoAWQ quantize the linear
layers inside the blocks and no router; transformers' replace functions every linear layer but the output head
(quantizers/base.py: get_keys_to_not_convert); embeddings and norms stay everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from planner.quantization import formats, groups
from planner.quantization.formats import FLOAT, one
from planner.quantization.patterns import Patterns
from planner.quantization.scheme import NotKnown, Rule, Scheme, Section, scheme
from planner.stored import Grid, Stored

EXPERTS = frozenset({"expert"})
MAX_DYNAMIC = 200
# DeepSeek's own fp8 checkpoints keep these small projections of the indexer and the compressors in a wider dtype.
_FP8_KEEPS = ("indexer.weights_proj", "compressor", "eh_proj")


def fp8(s: Section) -> Scheme:
    """DeepSeek's fp8 in blocks, per tensor without `weight_block_size`; an input scale where activations are static. ModelOpt's
    DeepSeek-V4 names the layers that it stores otherwise in `quantized_layers`, on top of this."""
    block = s.raw.get("weight_block_size")
    scale = 1 if s.raw.get("expert_dtype") == "fp4" else 4  # DeepSeek-V4 stores e8m0 scales
    static = (one(4),) if s.text("activation_scheme") == "static" else ()
    if block is None:
        stored = formats.fp8(one(4), *static)
    elif isinstance(block, list) and len(block) == 2 and all(isinstance(n, int) and not isinstance(n, bool) and 0 < n <= 1_000_000 for n in block):
        stored = formats.fp8_blocks(block[0], block[1], scale)
    else:
        raise NotKnown("weight_block_size")
    rules = [Rule(stored=stored)]
    layers = s.part("quantized_layers")
    if layers is not None:  # the list of what is ignored belongs to those layers: the rest stays as DeepSeek published it
        return Scheme(rules=(*groups.layer_rules(layers), *rules), skip=Patterns(_FP8_KEEPS), listed=True)
    if s.raw.get("expert_dtype") == "fp4":
        rules.insert(0, Rule(stored=formats.mxfp4(), roles=EXPERTS))
    return scheme(s, *rules, more_skip=_FP8_KEEPS if s.skipped() is None else ())


def fbgemm_fp8(s: Section) -> Scheme:
    """fp8 with an fp32 scale a row (transformers 5.24 integrations/fbgemm_fp8.py)."""
    return scheme(s, Rule(stored=formats.fp8(Grid(rows=1, cols=0, element=FLOAT))))


def gptq(s: Section) -> Scheme:
    """GPTQ by AutoGPTQ, GPTQModel or Optimum: `dynamic` rules (a leading -: excludes), `modules_in_block_to_quantize`, `lm_head`."""
    layout = s.text("checkpoint_format") or s.text("format") or "gptq"
    bits, group = s.bits("bits", "w_bit"), s.group("group_size", "q_group_size", default=128)
    rules = []
    dynamic = s.part("dynamic") or Section({})
    if len(dynamic.raw) > MAX_DYNAMIC:
        raise NotKnown("dynamic")
    for key in dynamic.raw:
        only = Patterns(["re:" + key.removeprefix("+:").removeprefix("-:").removeprefix("re:")])
        own = dynamic.part(key) or Section({})
        other = _gptq(own.bits("bits", default=bits), own.group("group_size", default=group))
        rules.append(Rule(stored=None if key.startswith("-:") else other, only=only))
    stored = _gptq(bits, group)
    inside = s.names("modules_in_block_to_quantize") or s.names("modules_in_block")
    only_those = Patterns([name for part in inside for name in (part if isinstance(part, list) else [part])]) if inside else None
    rules.append(Rule(stored=stored, only=only_those))
    return scheme(s, *rules, head=s.flag("lm_head"), complete=True, simple=layout in ("gptq", "gptq_v2"))


def _gptq(bits: int, group: int) -> Stored:
    if bits not in (2, 3, 4, 8):
        raise NotKnown("bits")
    return formats.gptq(bits, group)


def awq(s: Section) -> Scheme:
    """AutoAWQ; its gemv layouts pad the scales, which is not counted."""
    bits = s.bits("bits", "w_bit", default=4)
    if bits not in (2, 4, 8):
        raise NotKnown("bits")
    layout = s.text("version", "gemm").lower()
    return scheme(s, Rule(stored=formats.awq(bits, s.group("group_size", "q_group_size", default=128))), complete=True, simple=layout == "gemm")


def auto_round(s: Section) -> Scheme:
    """AutoRound packs as GPTQ or AWQ do (`packing_format`); `extra_config` gives single layers other bits, 16 for none."""
    form = s.text("packing_format", "auto_round:auto_gptq")
    layout = formats.awq if "awq" in form else formats.gptq
    bits, group = s.bits("bits"), s.group("group_size", default=128)
    if bits not in (2, 3, 4, 8) or s.text("data_type", "int") not in ("int", "int_asym"):
        raise NotKnown("bits")
    named: dict[tuple[int, int], list[str]] = {}
    extra = s.part("extra_config") or Section({})
    for name in extra.raw:
        own = extra.part(name) or Section({})
        named.setdefault((own.bits("bits", default=bits), own.group("group_size", default=group)), []).append(name)
    rules = [Rule(stored=layout(b, g) if b in (2, 3, 4, 8) else None, only=Patterns(names)) for (b, g), names in named.items()]
    return scheme(s, *rules, Rule(stored=layout(bits, group)), simple=False)


def bitsandbytes(s: Section) -> Scheme:
    """LLM.int8: int8, an fp32 scale a row, one byte for the layout. 4 bits: blocks of 64 (bitsandbytes nn/modules.py)."""
    if s.flag("load_in_4bit") or s.flag("_load_in_4bit"):
        kind = s.text("bnb_4bit_quant_type", "fp4")
        return scheme(s, Rule(stored=formats.bnb4(kind, s.flag("bnb_4bit_use_double_quant"))))
    if s.flag("load_in_8bit") or s.flag("_load_in_8bit"):
        return scheme(s, Rule(stored=formats.int8_rows(4, one(1))))
    raise NotKnown("load_in_4bit")


def mxfp4(s: Section) -> Scheme:
    """gpt-oss: the experts alone."""
    return scheme(s, Rule(stored=formats.mxfp4(), roles=EXPERTS), complete=True)


def mxfp8(s: Section) -> Scheme:
    return scheme(s, Rule(stored=formats.mxfp8()))


def int8_rows(s: Section) -> Scheme:
    """SGLang's w8a8_int8 and EETQ's int8: a scale a row."""
    return scheme(s, Rule(stored=formats.int8_rows(2 if s.text("quant_method") == "eetq" else 4)))


def int8_blocks(s: Section) -> Scheme:
    block = s.names("weight_block_size") or [128, 128]
    if len(block) != 2 or not all(isinstance(n, int) and not isinstance(n, bool) and 0 < n <= 1_000_000 for n in block):
        raise NotKnown("weight_block_size")
    return scheme(s, Rule(stored=Stored(name="int8", element=formats.BYTE, grids=(Grid(rows=block[0], cols=block[1], element=FLOAT),))))


def quanto(s: Section) -> Scheme:
    """optimum-quanto: int8 and float8 a scale a row, int4 and int2 in groups of 128 with a shift."""
    kind = s.text("weights", "int8")
    table = {"int8": formats.int8_rows(2), "float8": formats.fp8(Grid(rows=1, cols=0, element=formats.HALF)),
             "int4": formats.grouped(4, 128, 2, zero_bytes=2), "int2": formats.grouped(2, 128, 2, zero_bytes=2)}  # fmt: skip
    if kind not in table:
        raise NotKnown("weights")
    return scheme(s, Rule(stored=table[kind]), simple=False)


def hqq(s: Section) -> Scheme:
    """HQQ: W_q in bytes, a scale and a zero point of 2 bytes a group."""
    own = s.part("quant_config") or s
    own = own.part("weight_quant_params") or own
    return scheme(s, Rule(stored=formats.grouped(own.bits("nbits", "bits", default=4), own.group("group_size", default=64), 2, zero_bytes=2)), simple=False)


def torchao(s: Section) -> Scheme:
    """torchao's weight-only and dynamic configs, told by the name of their class."""
    kind: Any = s.raw.get("quant_type")
    data: Any = s.raw.get("quant_type_kwargs")
    while isinstance(kind, dict):
        inner = kind.get("default", kind)
        data, kind = inner.get("_data") if isinstance(inner, dict) else None, inner.get("_type") if isinstance(inner, dict) else None
    name = str(kind or "").lower().replace("_", "")
    kwargs = Section(data if isinstance(data, dict) else {})
    if "float8" in name:
        stored = formats.fp8(Grid(rows=1, cols=0, element=FLOAT))
    elif "int4" in name:
        stored = formats.grouped(4, kwargs.group("group_size", default=128), 2, zero_bytes=2)
    elif "int8" in name:
        stored = formats.int8_rows(2)
    else:
        raise NotKnown("quant_type")
    return scheme(s, Rule(stored=stored), simple=False)


def aqlm(s: Section) -> Scheme:
    sizes = [s.integer(key, default=d, high=top) for key, d, top in
             (("in_group_size", 8, 64), ("out_group_size", 1, 64), ("num_codebooks", 1, 16), ("nbits_per_codebook", 16, 16))]  # fmt: skip
    return scheme(s, Rule(stored=formats.aqlm(*sizes)))


def bitnet(s: Section) -> Scheme:
    if s.text("linear_class", "bitlinear") == "autobitlinear" and s.text("quantization_mode", "offline") == "online":
        return scheme(s, Rule(stored=None))
    return scheme(s, Rule(stored=formats.bitnet()))


def higgs(s: Section) -> Scheme:
    bits = s.bits("bits", default=4)
    if bits not in (2, 3, 4):
        raise NotKnown("bits")
    return scheme(s, Rule(stored=formats.higgs(bits, s.group("group_size", default=256))))


def quark(s: Section) -> Scheme:
    """AMD Quark: a global config, others for layers by name, and `exclude`."""

    def layout(part: Section | None) -> Stored | None:
        w = part.part("weight") if part is not None else None
        if w is None:
            return None
        kind, per, group = w.text("dtype"), w.text("qscheme"), w.group("group_size", default=32)
        if kind == "fp8_e4m3" and per in ("per_tensor", "per_channel"):
            return formats.fp8(Grid(rows=1, cols=0, element=FLOAT) if per == "per_channel" else one(4), *((one(4),) if _still(part) else ()))
        if kind == "fp4" and per == "per_group":
            return formats.mxfp4(group)
        if kind in ("int8", "uint8") and per in ("per_channel", "per_tensor"):
            return formats.int8_rows(4)
        if kind in ("int4", "uint4") and per == "per_group":
            return formats.grouped(4, group, 4)
        raise NotKnown("global_quant_config")

    def _still(part: Section | None) -> bool:
        inputs = part.part("input_tensors") if part is not None else None
        return inputs is not None and inputs.raw.get("is_dynamic") is False

    single = s.part("layer_quant_config") or Section({})
    if len(single.raw) > groups.MAX_GROUPS:
        raise NotKnown("layer_quant_config")
    rules = [Rule(stored=layout(single.part(name)), only=Patterns([name])) for name in single.raw]
    return scheme(s, *rules, Rule(stored=layout(s.part("global_quant_config"))), head=s.names("exclude") is not None)


def average(s: Section) -> Scheme:
    """EXL2 and EXL3 name the mean of their bits: the sum is near, single matrices are not."""
    bits = s.raw.get("bits")
    if isinstance(bits, bool) or not isinstance(bits, int | float) or not 1 <= bits <= 16:
        raise NotKnown("bits")
    return scheme(s, Rule(stored=Stored(name=f"{bits:g} bits", element=formats.packed(800, round(bits * 100)))), simple=False)


METHODS: dict[str, Callable[[Section], Scheme]] = {
    "fp8": fp8, "finegrained_fp8": fp8, "deepseek_v4_fp8": fp8, "fbgemm_fp8": fbgemm_fp8, "ptpc_fp8": fbgemm_fp8, "w8a8_fp8": fbgemm_fp8,
    "gptq": gptq, "gptqmodel": gptq, "gptq_marlin": gptq, "awq": awq, "awq_marlin": awq,
    "auto-round": auto_round, "auto_round": auto_round, "intel/auto-round": auto_round, "inc": auto_round,
    "compressed-tensors": groups.compressed_tensors, "compressed_tensors": groups.compressed_tensors, "sparseml": groups.compressed_tensors,
    "modelopt": groups.modelopt, "modelopt_fp4": groups.modelopt, "modelopt_fp8": groups.modelopt, "modelopt_mixed": groups.modelopt,
    "modelopt_mxfp8": groups.modelopt, "nvfp4": groups.modelopt, "petit_nvfp4": groups.modelopt,
    "bitsandbytes": bitsandbytes, "mxfp4": mxfp4, "mxfp8": mxfp8, "w8a8_int8": int8_rows, "eetq": int8_rows, "blockwise_int8": int8_blocks,
    "quanto": quanto, "hqq": hqq, "torchao": torchao, "aqlm": aqlm, "bitnet": bitnet, "higgs": higgs, "quark": quark, "exl2": average, "exl3": average,
}  # fmt: skip


def read(raw: dict[str, Any]) -> Scheme:
    """The scheme of a raw `quantization_config`. Raises NotKnown with the key, `quant_method` where the method has no row."""
    s = Section(raw)
    method = method_of(raw)
    if method not in METHODS:
        raise NotKnown("quant_method")
    return METHODS[method](s)


def method_of(raw: dict[str, Any]) -> str:
    """`quant_method`; files of single tools leave it out, and are told by their keys."""
    named = raw.get("quant_method")
    if isinstance(named, str) and named:
        return named.lower()[:40]
    if "config_groups" in raw and "quant_algo" not in raw:
        return "compressed-tensors"
    if raw.get("quant_algo") or isinstance(raw.get("quantization"), dict):
        return "modelopt"
    if "load_in_4bit" in raw or "load_in_8bit" in raw:
        return "bitsandbytes"
    return str(raw.get("quantization") or "unknown").lower()[:40]
