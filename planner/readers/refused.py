"""Families whose cache no config can tell: it hangs on how the text is cut, written or asked for. Refused with that reason."""

from __future__ import annotations

from planner.errors import UnsupportedModel

# Blocks of text appear by denoising: what is kept, and for how long, is the sampler's choice.
DENOISING = frozenset(
    "diffusion_gemma diffusion_gemma_text dream fast_dllm llada llada_moe llada2_moe nemotron_labs_diffusion open_dllm sdar sdar_moe trado".split()
)
PATCHED = frozenset({"blt"})  # bytes are cut into patches where the text surprises (transformers 5.24 models/blt)
PROMPT_KEPT = frozenset({"unlimited_ocr", "unlimited_ocr_text", "unlimited-ocr"})  # every row of the prompt, a window of the answer


def refuse_by_nature(model_type: str | None) -> None:
    """Raises UnsupportedModel where the type alone says that bytes do not follow from the config."""
    name = (model_type or "").lower()
    if name in DENOISING:
        raise UnsupportedModel("denoising", field="model_type", model_type=name)
    if name in PATCHED:
        raise UnsupportedModel("patched", field="model_type", model_type=name)
    if name in PROMPT_KEPT:
        raise UnsupportedModel("prompt_kept", field="model_type", model_type=name)
