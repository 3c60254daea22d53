"""SGLang 0.5.23: what it decides by the name of a model's class: who has a window pool, who keeps further state slots, which backend.

Tables of the sglang 0.5.23 wheel (srt/configs/model_config.py, srt/arg_groups/overrides.py, srt/arg_groups/model_overrides/*.py); the long
ones lie in planner/data/sglang.toml.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from planner.errors import DataError
from planner.model import ModelSpec

_FILE = Path(__file__).parents[2] / "data" / "sglang.toml"
# srt/configs/olmo3.py; the other two files name classes that no release has, and were run under these.
RENAMED = {"Olmo3ForCausalLM": "Olmo2ForCausalLM", "MiniMaxM3ForCausalLM": "MiniMaxM3SparseForCausalLM",
           "Step3p7FlashForCausalLM": "Step3p7ForConditionalGeneration"}  # fmt: skip
BY_TYPE = {"multi_modality": "MultiModalityCausalLM"}  # files that name no class

# is_hybrid_swa_model: only these have a pool of their own for windowed layers; the others keep every token on every layer.
WINDOWED = frozenset(
    """BeamForCausalLM Llama4ForConditionalGeneration GptOssForCausalLM GraniteSWAForCausalLM GraniteMoeSWAForCausalLM IQuestQ1ForCausalLM
    MiMoV2ForCausalLM MiMoV2FlashForCausalLM Step3p5ForCausalLM Step3p7ForConditionalGeneration Gemma4ForCausalLM Gemma4ForConditionalGeneration
    Gemma4UnifiedForConditionalGeneration LagunaForCausalLM MellumForCausalLM MuseGlimmerForCausalLM MuseGlimmerForConditionalGeneration
    UnlimitedOCRForCausalLM""".split()
)
# Theirs are pools of another kind beside windows, or were not sized here: refused.
NOT_COVERED = frozenset(
    "InklingForConditionalGeneration MuseSparkForConditionalGeneration DiffusionGemmaForBlockDiffusion EmbeddingGemma2Model Dots3NoteForCausalLM".split()
)
# get_attention_sliding_window_size of the class: one less than the file's window (the present token apart).
WINDOW_LESS_ONE = frozenset(
    """GptOssForCausalLM Gemma4ForCausalLM Gemma4ForConditionalGeneration Gemma4UnifiedForConditionalGeneration MellumForCausalLM
    MuseGlimmerForCausalLM MuseGlimmerForConditionalGeneration BeamForCausalLM""".split()
)
# _MAMBA_EXTRA_BUFFER_ARCHS: two more slots a running request, for tracking beside overlap.
EXTRA_BUFFER = frozenset(
    """KimiLinearForCausalLM Qwen3_5ForConditionalGeneration Qwen3_5MoeForConditionalGeneration Qwen3_5MoeForCausalLM Qwen3_5ForCausalLM
    Qwen3NextForCausalLM InternS2PreviewForConditionalGeneration MiniCPMV4_6ForConditionalGeneration MiniCPMV4_7ForConditionalGeneration
    BailingMoeV2_5ForCausalLM BailingMoeV3ForCausalLM BailingMoeV3VLForConditionalGeneration FalconH1ForCausalLM GraniteMoeHybridForCausalLM
    Glm5NextForConditionalGeneration NemotronHForCausalLM NemotronHPuzzleForCausalLM NemotronH_Omni_Reasoning_V3
    KimiK3ForConditionalGeneration""".split()
)
# disable_radix_cache by the model: MiniCPM's sparse or lightning layers, Whisper's padded encoder.
NO_RADIX = frozenset(("MiniCPMSALAForCausalLM", "WhisperForConditionalGeneration"))
NO_DP_ATTENTION = frozenset(("MiniCPMForCausalLM", "MiniCPMSALAForCausalLM"))
# On SM10.x: backends other than the default of plain attention (trtllm_mha) and of MLA (flashinfer).
BLACKWELL_BACKEND = {
    **dict.fromkeys(("DeepseekV3ForCausalLM", "KimiK25ForConditionalGeneration", "MistralLarge3ForCausalLM", "KimiK3ForConditionalGeneration"), "trtllm_mla"),
    **dict.fromkeys(("MiMoV2ForCausalLM", "MiMoV2FlashForCausalLM", "Step3p5ForCausalLM", "Step3p7ForConditionalGeneration"), "fa4"),
    **dict.fromkeys(("FalconH1ForCausalLM", "JetNemotronForCausalLM", "MiniCPMV4_6ForConditionalGeneration", "MiniCPMV4_7ForConditionalGeneration"), "triton"),
    **dict.fromkeys(("Lfm2ForCausalLM", "Lfm2MoeForCausalLM", "WhisperForConditionalGeneration"), "flashinfer"),
}
QWEN_HYBRID = frozenset(
    """Qwen3NextForCausalLM Qwen3_5MoeForConditionalGeneration InternS2PreviewForConditionalGeneration InternS2MobiusForConditionalGeneration
    Qwen3_5ForConditionalGeneration""".split()
)
MINIMAX_SPARSE = frozenset(("MiniMaxM3SparseForCausalLM", "MiniMaxM3SparseForConditionalGeneration"))
BF16_SPARSE = frozenset(("HYV4ForCausalLM",))  # attention sinks: no fp8 rows (srt/arg_groups/overrides.py)
# Multimodal classes that are started for text alone, and those whose prefill runs in graphs all the same.
TEXT_BY_DEFAULT = frozenset(
    "Gemma3ForConditionalGeneration Llama4ForConditionalGeneration Step3VLForConditionalGeneration InklingForConditionalGeneration".split()
)
GRAPHS_WITH_IMAGES = frozenset(
    """MiniMaxM3SparseForConditionalGeneration Cohere2VisionForConditionalGeneration Glm5NextForConditionalGeneration InternS2MobiusForConditionalGeneration
    PaddleOCRVLForConditionalGeneration Qwen3_5ForConditionalGeneration Qwen3_5MoeForConditionalGeneration Qwen4ExpForConditionalGeneration
    MuseGlimmerForConditionalGeneration MuseSparkForConditionalGeneration KimiK3ForConditionalGeneration KimiK25ForConditionalGeneration""".split()
)


def class_of(model: ModelSpec) -> str:
    """The class that SGLang builds for this file, by name."""
    return RENAMED.get(model.architecture, model.architecture) or BY_TYPE.get(model.model_type, "")


@lru_cache(maxsize=1)
def _names() -> dict[str, frozenset[str]]:
    import tomllib

    try:
        return {key: frozenset(text.split()) for key, text in tomllib.loads(_FILE.read_text(encoding="utf-8")).items()}
    except (OSError, ValueError, AttributeError) as e:
        raise DataError("bad_table", field="engine", table=_FILE.name) from e


def is_native(model: ModelSpec) -> bool:
    """Whether SGLang has a class of this name; a file that names none is taken by its layers."""
    return not class_of(model) or class_of(model) in _names()["native"]


def is_multimodal(model: ModelSpec) -> bool:
    """Whether it is started with its images or sound (--enable-multimodal left alone)."""
    name = class_of(model)
    if name == "MiMoV2ForCausalLM":
        return model.server.vision is not None
    return (name in _names()["multimodal"] or model.server.nested) and name not in TEXT_BY_DEFAULT
