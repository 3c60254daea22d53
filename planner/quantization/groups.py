"""compressed-tensors and ModelOpt: groups of targets, each with its own layout, and a list of what is ignored.

Sources: compressed-tensors quantization/lifecycle/initialize.py (shapes of scales) and compressors/*; ModelOpt torch/export
(convert_hf_config.py: the algorithms' names; quant_utils.py: weight_scale, weight_scale_2, input_scale, pre_quant_scale).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from planner.dtypes import DType
from planner.quantization import formats
from planner.quantization.formats import BYTE, FLOAT, HALF, one, packed
from planner.quantization.patterns import Patterns
from planner.quantization.scheme import NotKnown, Rule, Scheme, Section, scheme
from planner.stored import Grid, Stored

MAX_GROUPS = 64
_SCALE_DTYPES: dict[str, DType] = {"float8_e4m3fn": BYTE, "uint8": BYTE, "float8_e8m0fnu": BYTE, "float32": FLOAT, "float16": HALF, "bfloat16": HALF}


def compressed_tensors(s: Section) -> Scheme:
    sparsity = s.part("sparsity_config")
    if sparsity is not None and sparsity.text("format", "dense") != "dense":
        raise NotKnown("sparsity_config")
    groups = s.part("config_groups")
    if groups is None:
        raise NotKnown("config_groups")
    inner = s.text("format")
    return scheme(s, *_rules(groups, lambda g: _layout(g, inner)), head=True, complete=s.names("ignore") is not None)


def _rules(groups: Section, layout: Callable[[Section], Stored | None]) -> tuple[Rule, ...]:
    """A rule a group; those that name modules go before those that name a class (compressed-tensors utils/match.py: match_targets)."""
    if len(groups.raw) > MAX_GROUPS:
        raise NotKnown("config_groups")
    rules = []
    for key in groups.raw:
        group = groups.part(key)
        if group is None:
            continue
        targets = group.names("targets")
        named = [t for t in targets or () if not _is_class(t)]
        whole = targets is None or len(named) < len(targets)
        stored = layout(group)
        if named:
            rules.append(Rule(stored=stored, only=Patterns(named)))
        if whole:
            rules.append(Rule(stored=stored))
    if not rules:
        raise NotKnown("config_groups")
    return tuple(sorted(rules, key=lambda r: r.only is None))


def _is_class(target: Any) -> bool:
    """ "Linear" and the like: a class of modules, which here are all matrices."""
    return isinstance(target, str) and target.isidentifier() and target[:1].isupper()


def _layout(group: Section, inner: str) -> Stored | None:
    """One group of compressed-tensors."""
    w = group.part("weights")
    if w is None:
        return None
    layout = group.text("format") or inner
    bits, kind = w.bits("num_bits", default=8), w.text("type", "int")
    inputs = group.part("input_activations")
    symmetric = w.flag("symmetric", True)
    if layout == "dense":
        return None
    if not layout:
        layout = "pack-quantized" if kind == "int" and inputs is None else "naive-quantized" if bits == 8 else ""
    size = w.integer("group_size", default=0, low=-1)
    strategy = w.text("strategy") or ("group" if size > 0 else "channel" if size == -1 else "tensor")
    scale = _SCALE_DTYPES.get(w.text("scale_dtype").removeprefix("torch."), HALF)
    still = inputs is not None and inputs.raw.get("dynamic") is False
    if "nvfp4" in layout:
        return formats.nvfp4(max(1, size or 16), *((one(4),) if inputs is not None else ()))
    if "mxfp4" in layout:
        return formats.mxfp4(size or 32)
    if "mxfp8" in layout:
        return formats.mxfp8(size or 32)
    rows, cols = _blocks(w, strategy, size)
    if layout == "pack-quantized" and kind == "int":
        ordered = w.raw.get("actorder") in ("group", "dynamic") or w.raw.get("actorder") is True
        return formats.pack_quantized(bits, rows, cols, scale=scale, symmetric=symmetric, ordered=ordered)
    if layout in ("int-quantized", "float-quantized", "naive-quantized") and bits == 8:
        grids = [Grid(rows=rows, cols=cols, element=scale)]
        if not symmetric:
            grids.append(Grid(rows=rows, cols=cols, element=BYTE))
        if still:
            grids.append(one(2))
        return Stored(name="fp8" if kind == "float" else "int8", element=BYTE, grids=tuple(grids))
    raise NotKnown("format")


def _blocks(w: Section, strategy: str, size: int) -> tuple[int, int]:
    """(rows, columns) that share a scale; 0 is all of them."""
    if strategy == "tensor":
        return 0, 0
    if strategy == "channel":
        return 1, 0
    if strategy in ("group", "tensor_group") and size > 0:
        return 1, size
    if strategy == "block":
        shape = w.raw.get("block_structure")
        if isinstance(shape, str):
            shape = [int(p) for p in shape.split("x") if p.isdecimal()]
        if isinstance(shape, list) and len(shape) == 2 and all(isinstance(n, int) and not isinstance(n, bool) and 0 < n <= 1_000_000 for n in shape):
            return shape[0], shape[1]
    raise NotKnown("strategy")


# -- ModelOpt ------------------------------------------------------------------------------------------------------------

_INPUT = one(4)


def _awq_columns() -> Grid:
    return Grid(rows=0, cols=1, element=HALF)


# The algorithm's name -> its layout for a group size (0: the algorithm's own), as ModelOpt exports it.
ALGORITHMS: dict[str, Callable[[int], Stored]] = {
    "FP8": lambda g: formats.fp8(one(4), _INPUT),
    "FP8_PER_CHANNEL_PER_TOKEN": lambda g: formats.fp8(Grid(rows=1, cols=0, element=FLOAT)),
    "FP8_PB_WO": lambda g: formats.fp8_blocks(128, 128),
    "FP8_PB_REAL": lambda g: formats.fp8_blocks(128, 128),
    "NVFP4": lambda g: formats.nvfp4(g or 16, _INPUT),
    "NVFP4_AWQ": lambda g: formats.nvfp4(g or 16, _INPUT, _awq_columns()),
    "W4A16_NVFP4": lambda g: formats.nvfp4(g or 16),
    "W4A8_NVFP4_FP8": lambda g: formats.nvfp4(g or 16, _INPUT),
    "W4A8_MXFP4_FP8": lambda g: formats.mxfp4(g or 32),
    "MXFP4": lambda g: formats.mxfp4(g or 32),
    "MXFP8": lambda g: formats.mxfp8(g or 32),
    "W4A16_AWQ": lambda g: Stored(name="int4", element=packed(2, 1), packed="out", grids=(Grid(rows=1, cols=g or 128, element=HALF), _awq_columns())),
    "W4A8_AWQ": lambda g: Stored(name="int4", element=packed(2, 1), packed="out",
                                 grids=(Grid(rows=1, cols=g or 128, element=HALF), _awq_columns(), one(4), _INPUT)),
    "W8A16": lambda g: formats.int8_rows(4),
    "W8A8_SQ_PER_CHANNEL": lambda g: formats.int8_rows(4, _INPUT, _awq_columns()),
}  # fmt: skip


def modelopt(s: Section) -> Scheme:
    """hf_quant_config.json's object "quantization", or the same as config.json carries it."""
    inner = s.part("quantization") if isinstance(s.raw.get("quantization"), dict) else None
    s = inner or s
    algo = s.text("quant_algo").upper()
    layers = s.part("quantized_layers")
    if layers is not None and (algo == "MIXED_PRECISION" or not algo):
        return scheme(s, *layer_rules(layers), head=True, complete=True)
    if algo in ALGORITHMS:
        groups = s.part("config_groups")
        stored = ALGORITHMS[algo](s.group("group_size", default=0))
        rules = _rules(groups, lambda g: stored) if groups is not None else (Rule(stored=stored),)
        listed = s.skipped()
        return scheme(s, *rules, head=listed is not None)
    groups = s.part("config_groups")
    if groups is None:
        raise NotKnown("quant_algo")
    return scheme(s, *_rules(groups, _by_numbers), head=True)


def layer_rules(layers: Section) -> tuple[Rule, ...]:
    """`quantized_layers`: module -> algorithm. One rule a layout, naming its modules."""
    named: dict[Stored, list[str]] = {}
    known: dict[tuple[str, int], Stored] = {}
    for name in layers.raw:
        one_layer = layers.part(name)
        if one_layer is None:
            continue
        key = (one_layer.text("quant_algo").upper(), one_layer.group("group_size", default=0))
        if key not in known:
            if key[0] not in ALGORITHMS:
                raise NotKnown("quant_algo")
            known[key] = ALGORITHMS[key[0]](key[1])
        named.setdefault(known[key], []).append(name)
    if not named:
        raise NotKnown("quantized_layers")
    return tuple(Rule(stored=stored, only=Patterns(names)) for stored, names in named.items())


def _by_numbers(group: Section) -> Stored | None:
    """A group of ModelOpt's without the algorithm's name: told by bits and type."""
    w = group.part("weights")
    if w is None:
        return None
    bits, kind, size = w.bits("num_bits"), w.text("type", "int"), w.group("group_size", default=0)
    inputs = group.part("input_activations")
    if kind == "float" and bits == 4:
        return formats.mxfp4(32) if size == 32 else formats.nvfp4(size or 16, *((_INPUT,) if inputs is not None else ()))
    if kind == "float" and bits == 8:
        return formats.mxfp8(32) if size == 32 else ALGORITHMS["FP8_PER_CHANNEL_PER_TOKEN" if w.text("strategy") == "channel" else "FP8"](0)
    if kind == "int" and bits in (4, 8):
        return ALGORITHMS["W4A16_AWQ" if bits == 4 else "W8A16"](size)
    raise NotKnown("num_bits")
