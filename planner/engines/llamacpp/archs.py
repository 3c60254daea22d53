"""Which llama.cpp architecture runs a model, and what of its caches hangs on the architecture alone. Data, and four look-ups.

Sources: llama.cpp (library 0.5, ggml 0.25.3): conversion/*.py (which class becomes which architecture, and what the file then says),
src/llama-arch.cpp, src/models/*.cpp. Windows: planner/readers/gguf/table.py.
"""

from __future__ import annotations

from planner.errors import UnsupportedModel
from planner.model import ModelSpec
from planner.readers.gguf.table import ARCHITECTURES, LISTED, NO_CACHE, Windows

# model_type of a config.json -> architecture of the GGUF that the converter makes of it.
FAMILIES: dict[str, str] = {
    "RefinedWeb": "falcon", "RefinedWebModel": "falcon", "afmoe": "afmoe", "apertus": "apertus", "arcee": "arcee", "arctic": "arctic",
    "baichuan": "baichuan", "bailing_moe": "bailingmoe", "bamba": "granitehybrid", "bitnet": "bitnet", "bloom": "bloom", "chameleon": "chameleon",
    "chatglm": "chatglm", "codeshell": "codeshell", "cohere": "command-r", "cohere2": "cohere2", "cohere2_moe": "cohere2moe", "dbrx": "dbrx",
    "deci": "deci", "deepseek": "deepseek", "deepseek_v2": "deepseek2", "deepseek_v3": "deepseek2", "deepseek_v32": "deepseek32",
    "deepseek_v4": "deepseek4", "dots1": "dots1", "ernie4_5": "ernie4_5", "ernie4_5_moe": "ernie4_5-moe", "exaone": "exaone", "exaone4": "exaone4",
    "exaone_moe": "exaone-moe", "falcon": "falcon", "falcon_h1": "falcon-h1", "falcon_mamba": "mamba", "gemma": "gemma", "gemma2": "gemma2",
    "gemma3_text": "gemma3", "gemma3n_text": "gemma3n", "gemma4_text": "gemma4", "gemma4_unified_text": "gemma4", "glm": "chatglm", "glm4": "glm4",
    "glm4_moe": "glm4moe", "glm4_moe_lite": "deepseek2", "glm4v_text": "glm4", "glm_moe_dsa": "glm-dsa", "glm_ocr_text": "glm4", "gpt2": "gpt2",
    "gpt_bigcode": "starcoder", "gpt_neox": "gptneox", "gpt_oss": "gpt-oss", "gpt_refact": "refact", "granite": "granite", "granite_swa": "granite_swa",
    "granitemoe": "granitemoe", "granitemoe_swa": "granite_swa", "granitemoehybrid": "granitehybrid", "granitemoeshared": "granitemoe",
    "grok-1": "grok", "hrm_text": "hrm_text", "hunyuan": "hunyuan-moe", "hunyuan_v1_dense": "hunyuan-dense", "hunyuan_v1_moe": "hunyuan-moe",
    "hy_v3": "hy_v3", "hy_v4": "hy_v4", "internlm2": "internlm2", "internlm3": "llama", "iquestcoder": "llama", "jais": "jais", "jais2": "jais2",
    "jamba": "jamba", "kimi_k2": "deepseek2", "kimi_linear": "kimi-linear", "laguna": "laguna", "lfm2": "lfm2", "lfm2_moe": "lfm2moe", "llama": "llama",
    "llama4_text": "llama4", "mamba": "mamba", "mamba2": "mamba2", "mamba_ssm": "mamba", "mellum": "mellum", "mimo_v2_flash": "mimo2",
    "minicpm": "minicpm", "minicpm3": "minicpm3", "minimax_m1": "minimax-01", "minimax_m2": "minimax-m2", "minimax_m3": "minimax-m3",
    "minimax_m3_vl_text": "minimax-m3", "minimax_text_01": "minimax-01", "ministral3": "mistral3", "mistral": "llama", "mistral4": "mistral4",
    "mixtral": "llama", "mpt": "mpt", "mt5": "t5", "muse_glimmer_text": "muse-glimmer", "nemotron": "nemotron", "nemotron-nas": "deci",
    "nemotron_h": "nemotron_h", "olmo": "olmo", "olmo2": "olmo2", "olmo3": "olmo2", "olmoe": "olmoe", "openelm": "openelm", "orion": "orion",
    "phi": "phi2", "phi3": "phi3", "phimoe": "phimoe", "plamo3": "plamo3", "qwen": "qwen", "qwen2": "qwen2", "qwen2_moe": "qwen2moe",
    "qwen3": "qwen3", "qwen3_5_moe_text": "qwen35moe", "qwen3_5_text": "qwen35", "qwen3_moe": "qwen3moe", "qwen3_next": "qwen3next",
    "rwkv6": "rwkv6", "sarvam_moe": "bailingmoe2", "seed_oss": "seed_oss", "smollm3": "smollm3", "solar_open": "glm4moe", "stablelm": "stablelm",
    "stablelm_epoch": "stablelm", "starcoder2": "starcoder2", "step3p5": "step35", "step3p7": "step35", "t5": "t5", "umt5": "t5", "xverse": "xverse",
    "youtu": "deepseek2",
}  # fmt: skip
# Further architectures that a ModelSpec may name.
OTHERS = frozenset(("chameleon", "hrm_text", "muse-glimmer", "plamo2", "t5"))

# -- src/llama-arch.cpp, src/llama-model.cpp ---------------------------------------------------------------------------

STATES_ONLY = frozenset(("mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"))  # llm_arch_is_recurrent
HYBRID = frozenset((
    "jamba", "falcon-h1", "plamo2", "granitehybrid", "lfm2", "lfm2moe", "nemotron_h", "nemotron_h_moe", "qwen3next", "kimi-linear", "qwen35",
    "qwen35moe", "minimax-01",
))  # fmt: skip
ROLLBACK = frozenset(("qwen35", "qwen35moe", "deepseek4", "nemotron_h", "nemotron_h_moe", "lfm2", "lfm2moe"))  # llm_arch_supports_rs_rollback
LATENT = frozenset(("deepseek2", "deepseek32", "glm-dsa", "hy_v4", "kimi-linear", "mistral4"))  # whose loaders read the head sizes of MLA
EXPANDED = frozenset(("minicpm3", "plm"))  # MLA models that cache K and V of every head
INDEX_WITH_VALUES = frozenset(("minimax-m3",))  # llama-kv-cache-msa.cpp: the indexer's cache has V too
LENDING = frozenset(("gemma3n", "gemma4"))  # whose last layers read the cache of another
NO_FLASH_ATTENTION = frozenset(("grok",))  # llama_init_from_model switches it off
OWNING_LAYERS = {"gemma3n": 20}  # n_layer_kv_from_start, a constant
# The converter writes the window of these but no list of layers: the architecture's own step holds, whatever layer_types says.
STEP_ALONE = frozenset(("afmoe", "cohere2", "gemma2", "gemma3", "gpt-oss", "laguna", "llama4"))
_WINDOWED_BY_FILE = frozenset(("lfm2", "muse-glimmer"))


def architecture(model: ModelSpec) -> str:
    """The architecture of a GGUF, or the one that a config's family is converted to. Raises UnsupportedModel for others."""
    if is_gguf(model):
        return model.architecture
    part = next((dict(n.args).get("part") for n in model.notes if n.code == "language_part"), None)
    found = FAMILIES.get(model.model_type) or FAMILIES.get(str(part))
    if found is None:
        raise UnsupportedModel("llamacpp_architecture", field="model_type", model_type=str(part or model.model_type))
    return found


def is_gguf(model: ModelSpec) -> bool:
    """Whether the model names an architecture of llama.cpp itself: its windows then are what the file says."""
    return model.architecture in ARCHITECTURES or model.architecture in OTHERS or model.architecture in STATES_ONLY or model.architecture in NO_CACHE


def windows_of(arch: str, layers: int) -> Windows | None:
    """Where this architecture has windows at all; None: every layer is full, whatever the file says."""
    if arch in _WINDOWED_BY_FILE:
        return LISTED
    row = ARCHITECTURES.get(arch)
    found = row.windows if row else None
    return found if found is None or found.only in (None, layers) else None


def by_step(w: Windows, layers: int) -> list[bool]:
    """Which layers are windowed by the step alone (llama-hparams.cpp set_swa_pattern)."""
    return [i % w.step != 0 if w.first else i % w.step < w.step - 1 for i in range(layers)]
