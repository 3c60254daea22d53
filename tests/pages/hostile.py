"""Broken and hostile configs, each with the field that its error must name ("" where no single field is at fault)."""

from __future__ import annotations

import json
from typing import Any

BASE: dict[str, Any] = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "intermediate_size": 14336, "torch_dtype": "bfloat16", "max_position_embeddings": 131072,
}  # fmt: skip


def changed(**keys: Any) -> bytes:
    return json.dumps({**BASE, **keys}).encode()


def without(*keys: str) -> bytes:
    return json.dumps({k: v for k, v in BASE.items() if k not in keys}).encode()


CASES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", ""),
    "list": (b"[]", ""),
    "null": (b"null", ""),
    "number": (b"7", ""),
    "string": (b'"x"', ""),
    "jpeg": (b"\xff\xd8\xff\xe0" + b"\0" * 500, ""),
    "gguf": (b"GGUF\x03\0\0\0" + b"\0" * 500, ""),
    "html": (b"<!DOCTYPE html><html><body>Sign in</body></html>", ""),
    "nan": (changed().replace(b"4096", b"NaN"), "hidden_size"),
    "inf": (changed().replace(b"4096", b"Infinity"), "hidden_size"),
    "huge_float": (changed().replace(b"4096", b"1e400"), "hidden_size"),
    "neg_layers": (changed(num_hidden_layers=-1), "num_hidden_layers"),
    "zero_layers": (changed(num_hidden_layers=0), "num_hidden_layers"),
    "tera_layers": (changed(num_hidden_layers=10**12), "num_hidden_layers"),
    "big_int": (changed(hidden_size=10**40), "hidden_size"),
    "bool_heads": (changed(num_attention_heads=True), "num_attention_heads"),
    "text_layers": (changed(num_hidden_layers="thirty-two"), "num_hidden_layers"),
    "fraction_heads": (changed(num_key_value_heads=7.5), "num_key_value_heads"),
    "list_heads": (changed(num_attention_heads=[32]), "num_attention_heads"),
    "object_hidden": (changed(hidden_size={}), "hidden_size"),
    "heads_odd": (changed(num_attention_heads=33), ""),
    "kv_above_q": (changed(num_key_value_heads=64), "num_key_value_heads"),
    "kv_not_dividing": (changed(num_key_value_heads=5), "num_key_value_heads"),
    "kv_zero": (changed(num_key_value_heads=0), "num_key_value_heads"),
    "no_layers": (without("num_hidden_layers"), "num_hidden_layers"),
    "no_heads": (without("num_attention_heads"), "num_attention_heads"),
    "no_hidden": (without("hidden_size"), "hidden_size"),
    "deep": (b"[" * 100_000 + b"]" * 100_000, ""),
    "deep_object": (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, ""),
    "truncated": (changed()[:-20], ""),
    "trailing": (changed() + b"garbage", ""),
    "unknown_key": (json.dumps({**BASE, "model_type": "brand_new_net", "kv_lora_rank": 512}).encode(), "kv_lora_rank"),
    "layer_types_short": (changed(layer_types=["full_attention"] * 3), "layer_types"),
    "window_text": (json.dumps({**BASE, "model_type": "mistral", "sliding_window": "wide"}).encode(), "sliding_window"),
    "weight_index": (b'{"weight_map": {}, "metadata": {}}', ""),
    "image_link": (changed(torch_dtype="![x](http://example.com/x.png)"), "torch_dtype"),
}
