"""What some architectures of a GGUF say in a way of their own, put into the words of their family's config. One function a part.

A function adds keys to the config that the family's reader gets; where llama.cpp keeps something else than that reader says, it returns
what to do with the model that was read. Rules: llama.cpp src/models/*.cpp, conversion/*.py; seen when run where kv-cache tests say so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from planner.cache import Rows
from planner.errors import UnsupportedValue
from planner.model import ModelSpec
from planner.notes import note
from planner.readers import shapes
from planner.readers.gguf.head import SOURCE, Head

Config = dict[str, Any]
After = Callable[[ModelSpec], ModelSpec]
GLM_52_CONTEXT = 1024 * 1024  # GLM-5.2 is told by it
FULL, LINEAR = "full_attention", "linear_attention"


# -- latent attention --------------------------------------------------------------------------------------------------


def latent(h: Head, config: Config) -> After | None:
    """MLA. With the head sizes of MLA in the file one latent row of key_length is kept; llama.cpp knows no latent row without them (older
    conversions, and MiniCPM3 always), and keeps K and V of every head."""
    rank, rope = h.need("attention.kv_lora_rank"), h.need("rope.dimension_count", low=0)
    sizes = h.maybe("attention.key_length_mla"), h.maybe("attention.value_length_mla")
    k, v = (sizes[0] or h.full[0]), (sizes[1] or h.full[1])
    if h.arch == "minicpm3":  # no value_length in its files: hidden / heads, as in its class
        v = h.hidden // h.some(h.q)
    if k <= rope:
        raise UnsupportedValue("out_of_range", field=h.key("attention.key_length_mla"), value=k, low=rope + 1, high=65_536)
    config |= {"kv_lora_rank": rank, "q_lora_rank": h.maybe("attention.q_lora_rank") or None, "qk_rope_head_dim": rope, "qk_nope_head_dim": k - rope,
               "v_head_dim": v}  # fmt: skip
    config.pop("head_dim", None)
    if all(sizes):
        row = h.full[0] * h.some(h.kv)
        if row != rank + rope:
            raise UnsupportedValue("gguf_contradiction", field=h.key("attention.key_length"), tensor="attn_kv_a_mqa", header=row, table=rank + rope)
        return None
    return lambda spec: _expanded(spec, h, k, v)


def _expanded(spec: ModelSpec, h: Head, k: int, v: int) -> ModelSpec:
    def kept(i: int) -> Any:
        layer = spec.layers[i]
        rows = tuple(Rows(heads=h.kv[i], k_dim=k, v_dim=v) if isinstance(c, Rows) and c.format == "kv" else c for c in layer.caches)
        return replace(layer, caches=rows)

    said = note("warning", "gguf_expanded", field=h.key("attention.key_length_mla"), architecture=h.arch, source=SOURCE)
    return replace(spec, layers=shapes.stack(len(spec.layers), kept), notes=(*spec.notes, said))


def deepseek_version(h: Head, config: Config) -> After | None:
    """V3's router is a sigmoid (2), V2's a softmax."""
    config["model_type"] = "deepseek_v3" if h.maybe("expert_gating_func") == 2 else "deepseek_v2"
    return None


def indexers(h: Head, config: Config) -> After | None:
    """Which layers own an indexer; files of GLM-5 and 5.1 (contexts below a million) carry no list: all of them."""
    owners = h.marks("attention.indexer.types")
    if owners is None and h.arch == "glm-dsa" and (h.maybe("context_length", high=10**9) or 0) >= GLM_52_CONTEXT:
        h.need("attention.indexer.types")
    config["indexer_types"] = ["full" if owner else "shared" for owner in (owners or [True] * h.layers)]
    return None


def compressed(h: Head, config: Config) -> After | None:
    """DeepSeek-V4: tokens a compressed row, layer by layer; every layer has the window."""
    config["compress_ratios"] = h.meta.list_of(h.key("attention.compress_ratios"), int)
    del config["layer_types"]
    return None


# -- states ------------------------------------------------------------------------------------------------------------


def _inner(h: Head) -> tuple[int, int]:
    """(inner width, its head size); llama.cpp keeps the number of state heads in the time step's rank."""
    inner, heads = h.need("ssm.inner_size"), h.need("ssm.time_step_rank")
    if inner % heads:
        raise UnsupportedValue("state_heads_not_dividing", field=h.key("ssm.time_step_rank"), heads=heads, head_dim=inner // heads, inner=inner)
    return inner, inner // heads


def _expand(h: Head, inner: int) -> int:
    if inner % h.hidden:
        raise UnsupportedValue("state_heads_not_dividing", field=h.key("ssm.inner_size"), heads=h.hidden, head_dim=inner // h.hidden, inner=inner)
    return inner // h.hidden


def mamba_heads(h: Head, config: Config) -> After | None:
    inner, dim = _inner(h)
    config |= {"mamba_d_head": dim} if "mamba_d_ssm" in config else {"mamba_d_head": dim, "mamba_expand": _expand(h, inner)}
    return None


def mamba_inner(h: Head, config: Config) -> After | None:
    config["mamba_expand"] = _expand(h, h.need("ssm.inner_size"))
    return None


def mamba2(h: Head, config: Config) -> After | None:
    inner, dim = _inner(h)
    config |= {"head_dim": dim, "expand": _expand(h, inner)}
    return None


def granite_hybrid(h: Head, config: Config) -> After | None:
    config["shared_intermediate_size"] = h.maybe("expert_shared_feed_forward_length") or h.some(h.ff) or 1
    config.setdefault("num_local_experts", 0)
    return None


def nemotron_h(h: Head, config: Config) -> After | None:
    """A layer is one block: attention where it has KV heads, feed-forward where it has a width, else a state."""
    _, dim = _inner(h)
    sparse = "moe" if h.maybe("expert_count") else "mlp"
    config |= {"layers_block_type": ["attention" if kv else sparse if ff else "mamba" for kv, ff in zip(h.kv, h.ff, strict=True)],
               "mamba_num_heads": h.need("ssm.time_step_rank"), "mamba_head_dim": dim, "n_groups": h.need("ssm.group_count"),
               "ssm_state_size": h.need("ssm.state_size"), "conv_kernel": h.need("ssm.conv_kernel")}  # fmt: skip
    config.pop("layer_types", None)
    return None


def delta(h: Head, config: Config) -> After | None:
    """Qwen's gated delta nets in the words of Mamba: state_size is the key head, group_count the key heads."""
    _, dim = _inner(h)
    config |= {"linear_num_key_heads": h.need("ssm.group_count"), "linear_num_value_heads": h.need("ssm.time_step_rank"),
               "linear_key_head_dim": h.need("ssm.state_size"), "linear_value_head_dim": dim, "linear_conv_kernel_dim": h.need("ssm.conv_kernel")}  # fmt: skip
    if h.arch == "qwen3next":
        config.setdefault("intermediate_size", 1)  # experts on every layer: no dense width in the file
    return None


def recurrent(h: Head, config: Config) -> After | None:
    """Which layers keep a state: the file's list, else all but every n-th."""
    listed = h.marks("attention.recurrent_layers")
    every = h.maybe("full_attention_interval", low=1) or (8 if h.arch == "minimax-01" else 4)
    states = listed or [(i + 1) % every != 0 for i in range(h.layers)]
    config["layer_types"] = [LINEAR if state else FULL for state in states]
    if listed is None:
        said = note("derived", "gguf_interval", field=h.key("full_attention_interval"), every=every, layers=sum(states), source=SOURCE)
        return lambda spec: replace(spec, notes=(*spec.notes, said))
    return None


def kda(h: Head, config: Config) -> After | None:
    config["linear_attn_config"] = {"num_heads": h.some(h.q), "head_dim": h.need("kda.head_dim"), "short_conv_kernel_size": h.need("ssm.conv_kernel")}
    return None


def lfm2(h: Head, config: Config) -> After | None:
    """A window, where the file has one, holds on every attention layer."""
    window = h.maybe("attention.sliding_window", high=10**9)
    if not window or h.arch != "lfm2":
        return None

    def kept(spec: ModelSpec) -> ModelSpec:
        def layer(i: int) -> Any:
            caches = tuple(replace(c, window=window) if isinstance(c, Rows) else c for c in spec.layers[i].caches)
            return replace(spec.layers[i], caches=caches)

        return replace(spec, layers=shapes.stack(len(spec.layers), layer), notes=tuple(n for n in spec.notes if n.code != "gguf_window_unused"))

    return kept


def token_shift(h: Head, config: Config) -> After | None:
    shifts = h.maybe("token_shift_count")
    if shifts not in (None, 2):
        raise UnsupportedValue("only_value", field=h.key("token_shift_count"), value=shifts, want=2)
    return None


# -- Gemma, and families with sections ---------------------------------------------------------------------------------


def gemma3n(h: Head, config: Config) -> After | None:
    """llama.cpp keeps the caches of the first 20 layers, whatever the file says."""
    given = h.maybe("attention.shared_kv_layers")
    shared = max(h.layers - 20, 0)
    config["num_kv_shared_layers"] = shared
    if given in (None, shared):
        return None
    said = note("derived", "gguf_shared_fixed", field=h.key("attention.shared_kv_layers"), given=given or 0, layers=shared, source=SOURCE)
    return lambda spec: replace(spec, notes=(*spec.notes, said))


def gemma4(h: Head, config: Config) -> After | None:
    config |= {"head_dim": h.near[0], "global_head_dim": h.full[0], "num_kv_shared_layers": h.maybe("attention.shared_kv_layers") or 0}
    config["enable_moe_block"] = bool(h.maybe("expert_count"))
    return None


def olmo2(h: Head, config: Config) -> After | None:
    config["model_type"] = "olmo3" if h.window else "olmo2"
    return None


def mixtral(h: Head, config: Config) -> After | None:
    config["model_type"] = "mixtral" if h.maybe("expert_count") else "llama"
    return None


def llama4(h: Head, config: Config) -> After | None:
    if not h.maybe("expert_count"):
        config |= {"model_type": "llama", "intermediate_size": h.some(h.ff)}
    return None


def falcon(h: Head, config: Config) -> After | None:
    config["num_kv_heads"] = h.some(h.kv)
    return None


def granite_swa(h: Head, config: Config) -> After | None:
    if not h.maybe("expert_count"):
        config |= {"model_type": "granite_swa", "intermediate_size": h.some(h.ff)}
    return None


def mimo2(h: Head, config: Config) -> After | None:
    """K and V heads of different sizes; windowed layers have KV heads of their own."""
    near = next((kv for kv, w in zip(h.kv, h.windowed, strict=True) if w and kv), h.some(h.kv))
    config |= {"v_head_dim": h.full[1], "swa_num_key_value_heads": near}
    return None


def minimax_m3(h: Head, config: Config) -> After | None:
    """Index keys on the layers behind the leading dense ones."""
    dense = h.maybe("leading_dense_block_count") or 0
    config["layer_types"] = [FULL if i < dense else "minimax_m3_sparse" for i in range(h.layers)]
    config |= {"dense_intermediate_size": h.some(h.ff) or 1, "shared_intermediate_size": h.maybe("expert_shared_feed_forward_length") or 1}
    return None
