"""general.architecture of a GGUF file -> the family that reads it, the names of its keys there, and its windows. Data, no code.

Keys, windows and quirks: llama.cpp (library 0.5, ggml 0.25.3), src/models/*.cpp `load_arch_hparams`, and conversion/*.py. A window counts
only for the architectures that llama.cpp windows (seen when run for most of them, see tests).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """Every `step`-th layer is full, the last of each step or the `first`; 0: only by the file's list. A list or number in the file wins.

    `always`: the window's size whatever the file says, `default` where it says nothing. `need`: without a size the file is broken.
    `only`: just for stacks of so many layers. `every`: no layer is full. `chunk`: tokens of the present chunk count, not the newest."""

    step: int
    first: bool = False
    always: int | None = None
    default: int | None = None
    need: bool = True
    only: int | None = None
    every: bool = False
    chunk: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Arch:
    """`reader`: a row of READERS; `type`: the family's own name where it is read as another's block. `keys`: integer keys after the
    architecture's prefix -> the family's. `fixed`: what the family's reader must hear. `also`: functions in gguf/parts.py for the rest.
    `zero`: what a layer without KV heads is: nothing, or a state."""

    reader: str
    type: str = ""
    keys: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, object] = field(default_factory=dict)
    windows: Windows | None = None
    also: tuple[str, ...] = ()
    zero: str = "nothing"


USED, WIDTH, SHARED, DENSE = "expert_used_count", "expert_feed_forward_length", "expert_shared_count", "leading_dense_block_count"
SHARED_WIDTH = "expert_shared_feed_forward_length"
_TOP = {USED: "num_experts_per_tok"}
LOCAL = {"expert_count": "num_local_experts", **_TOP, WIDTH: "moe_intermediate_size"}
QWEN = {"expert_count": "num_experts", **_TOP, WIDTH: "moe_intermediate_size"}
QWEN_SHARED = {**QWEN, SHARED_WIDTH: "shared_expert_intermediate_size"}
ROUTED = {"expert_count": "n_routed_experts", **_TOP, WIDTH: "moe_intermediate_size", SHARED: "n_shared_experts", DENSE: "first_k_dense_replace"}
WIDE = {"expert_count": "num_local_experts", **_TOP, WIDTH: "intermediate_size"}
MAMBA = {"ssm.state_size": "mamba_d_state", "ssm.conv_kernel": "mamba_d_conv", "ssm.group_count": "mamba_n_groups", "ssm.time_step_rank": "mamba_n_heads"}
UNUSED_STATE = dict.fromkeys(("ssm.conv_kernel", "ssm.state_size", "ssm.group_count", "ssm.inner_size", "ssm.time_step_rank"), "")
INDEX = {"attention.indexer.head_count": "index_n_heads", "attention.indexer.key_length": "index_head_dim"}

EVERY_FOURTH = Windows(step=4)
LISTED = Windows(step=0)


def llama_like(type: str, keys: Mapping[str, str] = LOCAL, windows: Windows | None = None, also: tuple[str, ...] = ()) -> Arch:
    """Grouped K and V on every layer, read as Llama's block; the weights come from the tensor table in any case."""
    return Arch(reader="llama", type=type, keys=keys, windows=windows, also=also)


ARCHITECTURES: dict[str, Arch] = {
    "afmoe": Arch(reader="afmoe", keys={**QWEN, SHARED: "num_shared_experts", DENSE: "num_dense_layers"}, windows=Windows(step=4, need=False)),
    "apertus": Arch(reader="apertus"),
    "arcee": Arch(reader="arcee"),
    "arctic": llama_like("arctic"),
    "baichuan": llama_like("baichuan"),
    "bailingmoe": llama_like("bailing_moe"),
    "bailingmoe2": llama_like("bailing_moe_v2"),
    "bitnet": Arch(reader="bitnet"),
    "bloom": llama_like("bloom"),
    "chatglm": llama_like("chatglm"),
    "codeshell": llama_like("codeshell"),
    "cohere2": Arch(reader="cohere2", windows=EVERY_FOURTH),
    "cohere2moe": Arch(reader="cohere2_moe", keys={"expert_count": "num_experts", **_TOP, WIDTH: "intermediate_size", SHARED: "num_shared_experts",
                                                   DENSE: "first_k_dense_replace", "feed_forward_length": "prefix_dense_intermediate_size"},
                       windows=Windows(step=4, first=True)),
    "command-r": Arch(reader="cohere"),
    "dbrx": llama_like("dbrx"),
    "deci": llama_like("nemotron-nas"),
    "deepseek": Arch(reader="deepseek", keys=ROUTED),
    "deepseek2": Arch(reader="deepseek_v3", keys=ROUTED, also=("latent", "deepseek_version")),
    "deepseek2-ocr": Arch(reader="deepseek", keys=ROUTED),
    "deepseek32": Arch(reader="deepseek_v32", keys=ROUTED | INDEX, also=("latent",)),
    "deepseek4": Arch(reader="deepseek_v4", keys=ROUTED | INDEX | {
        "attention.q_lora_rank": "q_lora_rank", "attention.output_group_count": "o_groups", "attention.output_lora_rank": "o_lora_rank",
        "hyper_connection.count": "hc_mult"}, windows=Windows(step=0, every=True), also=("compressed",)),
    "dots1": Arch(reader="dots1", keys=ROUTED),
    "ernie4_5": Arch(reader="ernie4_5"),
    "ernie4_5-moe": Arch(reader="ernie4_5_moe", keys={"expert_count": "moe_num_experts", USED: "moe_k", WIDTH: "moe_intermediate_size",
                                                      SHARED: "moe_num_shared_experts", DENSE: "moe_layer_start_index",
                                                      "interleave_moe_layer_step": "moe_layer_interval", SHARED_WIDTH: ""}),
    "exaone": Arch(reader="exaone"),
    "exaone-moe": Arch(reader="exaone_moe", keys={**ROUTED, SHARED: "num_shared_experts", SHARED_WIDTH: ""}, windows=Windows(step=4, default=128)),
    "exaone4": Arch(reader="exaone4", windows=Windows(step=4, default=4096, only=64)),
    "falcon": Arch(reader="falcon", fixed={"new_decoder_architecture": True}, also=("falcon",)),
    "falcon-h1": Arch(reader="falcon_h1", keys={**MAMBA, "ssm.inner_size": "mamba_d_ssm"}, also=("mamba_heads",)),
    "gemma": Arch(reader="gemma"),
    "gemma2": Arch(reader="gemma2", windows=Windows(step=2, default=4096)),
    "gemma3": Arch(reader="gemma3_text", windows=Windows(step=6, need=False)),
    "gemma3n": Arch(reader="gemma3n_text", windows=Windows(step=5), also=("gemma3n",)),
    "gemma4": Arch(reader="gemma4_text", keys={"expert_count": "num_experts", USED: "top_k_experts", WIDTH: "moe_intermediate_size"},
                   windows=LISTED, also=("gemma4",)),
    "glm-dsa": Arch(reader="glm_moe_dsa", keys=ROUTED | INDEX, also=("latent", "indexers")),
    "glm4": Arch(reader="glm4"),
    "glm4moe": Arch(reader="glm4_moe", keys=ROUTED),
    "gpt-oss": Arch(reader="gpt_oss", keys=WIDE, windows=Windows(step=2)),
    "gpt2": Arch(reader="gpt2"),
    "gptj": Arch(reader="gptj"),
    "gptneox": Arch(reader="gpt_neox"),
    "granite": Arch(reader="granite", keys=UNUSED_STATE),  # dense Granite 4 carries the keys of states that it has not
    "granite_swa": Arch(reader="granitemoe_swa", keys={**WIDE, SHARED_WIDTH: "shared_intermediate_size"}, windows=LISTED, also=("granite_swa",)),
    "granitehybrid": Arch(reader="granitemoehybrid", keys={**MAMBA, "expert_count": "num_local_experts", **_TOP}, also=("mamba_heads", "granite_hybrid"),
                          zero="mamba"),
    "granitemoe": Arch(reader="granitemoeshared", keys={"expert_count": "num_local_experts", **_TOP, SHARED_WIDTH: "shared_intermediate_size"}),
    "grok": llama_like("grok"),
    "grovemoe": llama_like("grove_moe", {**LOCAL, "expert_chunk_feed_forward_length": ""}),
    "hunyuan-dense": Arch(reader="hunyuan_v1_dense"),
    "hunyuan-moe": Arch(reader="hunyuan_v1_moe", keys={"expert_count": "num_experts", USED: "moe_topk", WIDTH: "moe_intermediate_size", SHARED_WIDTH: ""}),
    "hunyuan_vl": Arch(reader="hunyuan_v1_dense"),
    "hy_v3": Arch(reader="hy_v3", keys={**QWEN, SHARED: "num_shared_experts", SHARED_WIDTH: ""}),
    "hy_v4": Arch(reader="hy_v4", keys=ROUTED | INDEX | {"hyper_connection.count": "hc_mult"}, also=("latent", "indexers")),
    "internlm2": Arch(reader="internlm2"),
    "jais": llama_like("jais"),
    "jais2": Arch(reader="jais2"),
    "jamba": Arch(reader="jamba", keys={**MAMBA, "ssm.time_step_rank": "mamba_dt_rank", "expert_count": "num_experts", **_TOP}, also=("mamba_inner",),
                  zero="mamba"),
    "kimi-linear": Arch(reader="kimi_linear", keys=ROUTED, also=("latent", "kda"), zero="linear_attention"),
    "laguna": Arch(reader="laguna", keys=QWEN_SHARED | {SHARED: "", DENSE: ""}, windows=Windows(step=4, first=True, need=False)),
    "lfm2": Arch(reader="lfm2", keys={"shortconv.l_cache": "conv_L_cache"}, fixed={"block_auto_adjust_ff_dim": False}, also=("lfm2",), zero="conv"),
    "lfm2moe": Arch(reader="lfm2_moe", keys={"shortconv.l_cache": "conv_L_cache", **QWEN, DENSE: "num_dense_layers"}, also=("lfm2",), zero="conv"),
    "llama": llama_like("", {"expert_count": "num_local_experts", **_TOP}, also=("mixtral",)),
    "llama4": Arch(reader="llama4_text", keys={**WIDE, "interleave_moe_layer_step": "interleave_moe_layer_step",
                                               "feed_forward_length": "intermediate_size_mlp", SHARED: ""},
                   windows=Windows(step=4, always=8192, default=8192, need=False, chunk=True), also=("llama4",)),
    "maincoder": llama_like("maincoder"),
    "mamba": Arch(reader="mamba", keys={"ssm.inner_size": "intermediate_size", "ssm.state_size": "state_size", "ssm.conv_kernel": "conv_kernel",
                                        "ssm.time_step_rank": "time_step_rank"}, zero="all"),
    "mamba2": Arch(reader="mamba2", keys={"ssm.state_size": "state_size", "ssm.conv_kernel": "conv_kernel", "ssm.group_count": "n_groups",
                                          "ssm.time_step_rank": "num_heads"}, also=("mamba2",), zero="all"),
    "mellum": Arch(reader="mellum", keys=QWEN, windows=Windows(step=4, need=False)),
    "mimo2": Arch(reader="mimo_v2_flash", keys=ROUTED, windows=LISTED, also=("mimo2",)),
    "minicpm": Arch(reader="minicpm", keys=WIDE),
    "minicpm3": Arch(reader="minicpm3", also=("latent",)),
    "minimax-01": Arch(reader="minimax", keys=WIDE, also=("recurrent",)),
    "minimax-m2": Arch(reader="minimax_m2", keys=WIDE),
    "minimax-m3": Arch(reader="minimax_m3", keys={**WIDE, **INDEX, SHARED: ""}, also=("minimax_m3",)),
    "mistral3": Arch(reader="ministral3"),
    "mistral4": Arch(reader="mistral4", keys=ROUTED, also=("latent",)),
    "mpt": llama_like("mpt"),
    "nemotron": Arch(reader="nemotron"),
    "nemotron_h": Arch(reader="nemotron_h", also=("nemotron_h",), zero="mamba"),
    "nemotron_h_moe": Arch(reader="nemotron_h", keys={"expert_count": "n_routed_experts", **_TOP, WIDTH: "moe_intermediate_size",
                                                      SHARED_WIDTH: "moe_shared_expert_intermediate_size", SHARED: "n_shared_experts",
                                                      "moe_latent_size": "moe_latent_size"}, also=("nemotron_h",), zero="mamba"),
    "olmo": Arch(reader="olmo"),
    "olmo2": Arch(reader="olmo3", windows=Windows(step=4, need=False), also=("olmo2",)),
    "olmoe": Arch(reader="olmoe", keys={"expert_count": "num_experts", **_TOP}),
    "openelm": llama_like("openelm"),
    "orion": Arch(reader="orion"),
    "paddleocr": Arch(reader="ernie4_5"),
    "pangu-embedded": llama_like("pangu_embedded"),
    "phi2": Arch(reader="phi"),
    "phi3": Arch(reader="phi3"),
    "phimoe": Arch(reader="phimoe", keys={"expert_count": "num_local_experts", **_TOP}),
    "plamo": llama_like("plamo"),
    "plamo3": llama_like("plamo3", windows=Windows(step=8, need=False)),
    "plm": llama_like("plm", {"attention.kv_lora_rank": ""}),
    "qwen": llama_like("qwen"),
    "qwen2": Arch(reader="qwen2"),
    "qwen2moe": Arch(reader="qwen2_moe", keys=QWEN_SHARED),
    "qwen2vl": Arch(reader="qwen2"),
    "qwen3": Arch(reader="qwen3"),
    "qwen35": Arch(reader="qwen3_5_text", also=("delta", "recurrent")),
    "qwen35moe": Arch(reader="qwen3_5_moe_text", keys=QWEN_SHARED, also=("delta", "recurrent")),
    "qwen3moe": Arch(reader="qwen3_moe", keys=QWEN),
    "qwen3next": Arch(reader="qwen3_next", keys=QWEN_SHARED, also=("delta", "recurrent")),
    "qwen3vl": Arch(reader="qwen3"),
    "qwen3vlmoe": Arch(reader="qwen3_moe", keys=QWEN),
    "refact": llama_like("refact"),
    "rwkv6": Arch(reader="rwkv6", keys={"wkv.head_size": "head_size"}, also=("token_shift",), zero="all"),
    "rwkv7": Arch(reader="rwkv6", type="rwkv7", keys={"wkv.head_size": "head_size"}, also=("token_shift",), zero="all"),
    "seed_oss": Arch(reader="seed_oss"),
    "smallthinker": llama_like("smallthinker", windows=Windows(step=4, first=True, always=4096, need=False)),
    "smollm3": Arch(reader="smollm3"),
    "stablelm": Arch(reader="stablelm"),
    "starcoder": llama_like("gpt_bigcode"),
    "starcoder2": Arch(reader="starcoder2"),
    "step35": Arch(reader="step3p5", keys={"expert_count": "moe_num_experts", USED: "moe_top_k", WIDTH: "moe_intermediate_size",
                                           SHARED_WIDTH: "share_expert_dim", DENSE: "first_k_dense_replace"}, windows=LISTED),
    "xverse": Arch(reader="xverse"),
}  # fmt: skip

# Architectures that keep no KV cache at all, and files that are no language model.
NO_CACHE = frozenset((
    "bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "jina-bert-v2", "jina-bert-v3", "eurobert", "gemma-embedding", "t5encoder",
    "llama-embed", "dream", "llada", "llada-moe", "rnd1", "wavtokenizer-dec",
))  # fmt: skip

# Keys after the prefix that leave the caches alone: whole, or up to a dot.
HARMLESS = frozenset(
    """
    rope activation activation_sparsity_scale adapters attn_res classifier xielu altup
    attention.layer_norm_epsilon attention.layer_norm_rms_epsilon attention.group_norm_epsilon attention.group_norm_groups attention.scale
    attention.output_scale attention.value_scale attention.temperature_length attention.temperature_scale attention.clamp_kqv
    attention.max_alibi_bias attention.relative_buckets_count attention.rope_pattern attention.indexer.top_k attention.indexer.block_size
    attention.indexer.local_blocks attention.decay_lora_rank attention.iclr_lora_rank attention.gate_lora_rank
    attention.value_residual_mix_lora_rank attention.compress_rope_freq_base hyper_connection.sinkhorn_iterations hyper_connection.epsilon
    hyper_connection.magnitude expert_weights_scale expert_weights_norm expert_gating_func expert_group_count expert_group_used_count
    expert_group_scale experts_per_group moe_every_n_layers ssm.dt_b_c_rms kda.safe_gate kda.gate_lower_bound embedding_length_out
    embedding_length_per_layer_input n_deepstack_layers deepstack_mapping hash_layer_count swiglu_clamp_exp swiglu_clamp_shexp
    rescale_every_n_layers time_mix_extra_dim time_decay_extra_dim interleave_moe_layer_step leading_dense_block_count pooling_type
    decoder_start_token_id tensor_data_layout use_parallel_residual
    """.split()
)
