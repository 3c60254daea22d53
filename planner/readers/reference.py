"""Files that carry no Hugging Face names: DeepSeek's inference configs (V3, V3.2, V4) and Mistral's params.json with latent attention."""

from __future__ import annotations

from dataclasses import replace

from planner.dtypes import DTYPES
from planner.model import ModelSpec
from planner.notes import note
from planner.readers.compressed import deepseek_v4
from planner.readers.deepseek import Variant, read
from planner.readers.fields import Fields


def reference(f: Fields) -> ModelSpec:
    """V4 has compress_ratios, V3.2 an indexer. A `dtype` of fp8 names the weights' format: computing and caching are in bf16."""
    fp8 = f.text("dtype") == "fp8"
    moe = f.section("moe")  # Mistral nests what its experts are
    inner = f.variant({**{k: v for k, v in f.raw.items() if not (fp8 and k == "dtype")}, **(moe.raw if moe else {})})
    spec = deepseek_v4(inner) if f.has("compress_ratios") else read(inner, Variant(indexer=f.has("index_head_dim"), exact=moe is None))
    if not fp8:
        return spec
    notes = tuple(n for n in spec.notes if n.code != "no_dtype")
    return replace(spec, dtype=DTYPES["bf16"], quantization="fp8", notes=(*notes, note("info", "weights_quantized", field="dtype", method="fp8")))
