"""transformers models for the injected runner: built from a config with random weights, or read from a folder. Nothing is downloaded."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from transformers import AutoConfig, AutoModelForCausalLM, __version__

from planner.errors import InvalidInput, UnsupportedModel

VERSION = __version__
ALIBI = ("bloom", "mpt")


def config_of(raw: dict[str, Any]) -> Any:
    """The configuration object of a raw config; raises UnsupportedModel where transformers has none, or where our pages cannot serve it."""
    model_type = str(raw.get("model_type"))
    try:
        config = AutoConfig.for_model(model_type, **{k: v for k, v in raw.items() if k != "model_type"})
    except Exception as e:  # a config class raises whatever its checks raise
        raise UnsupportedModel("probe_injected", field="model_type", reason=_words(e)) from e
    if model_type in ALIBI or getattr(config, "alibi", False):
        raise UnsupportedModel("probe_injected", field="alibi", reason="ALiBi")
    text = config.get_text_config()
    if isinstance(text.pad_token_id, int) and text.pad_token_id >= text.vocab_size:  # a class default beyond the vocabulary
        text.pad_token_id = None
    return config


def build(config: Any, *, seed: int, dtype: torch.dtype, device: torch.device) -> Any:
    """Random weights. Norms, biases, sinks and router corrections are random too: at their usual ones and zeros a mistake in them would
    not show."""
    torch.manual_seed(seed)
    model = untouched(config, dtype=dtype, device=device)
    randomize(model, seed)
    return model


def untouched(config: Any, *, dtype: torch.dtype, device: torch.device) -> Any:
    """A model as its class makes it; on the meta device it allocates nothing. UnsupportedModel where transformers has no decoder."""
    try:
        with device:
            return AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=dtype).eval()
    except (ValueError, KeyError, AttributeError, TypeError, AssertionError) as e:
        raise UnsupportedModel("probe_injected", field="model_type", reason=_words(e)) from e


@torch.no_grad()
def randomize(model: torch.nn.Module, seed: int) -> None:
    generator = torch.Generator(device=next(model.parameters()).device).manual_seed(seed)
    for name, tensor in [*model.named_parameters(), *((n, b) for n, b in model.named_buffers() if "correction" in n)]:
        if tensor.dim() > 1:
            tensor.normal_(0.0, 1.0 if "embed" in name or "wte" in name or "wpe" in name else tensor.shape[-1] ** -0.5, generator=generator)
        else:
            noise = torch.empty_like(tensor, dtype=torch.float32).normal_(generator=generator)
            tensor.add_((noise * (1.0 if "sink" in name else 0.2)).to(tensor.dtype))


def load(folder: str, config: Any, *, dtype: torch.dtype, device: torch.device) -> Any:
    """The model of a checkpoint folder; `config` may have fewer layers than the folder. Code in the folder is never run."""
    model = AutoModelForCausalLM.from_pretrained(
        folder, config=config, attn_implementation="eager", dtype=dtype, local_files_only=True, use_safetensors=True, trust_remote_code=False
    )
    return model.eval().to(device)


def config_in(folder: str) -> dict[str, Any]:
    """The raw config of a checkpoint folder; raises InvalidInput where it or the safetensors are missing."""
    path = Path(folder) / "config.json"
    try:
        raw = json.loads(path.read_text()) if list(Path(folder).glob("*.safetensors")) else None
    except (OSError, ValueError):
        raw = None
    if not isinstance(raw, dict):
        raise InvalidInput("probe_weights", field="weights", value=folder[:200])
    return raw


def _words(error: Exception) -> str:
    """The first sentence of what a library said."""
    return f"{type(error).__name__}: {error}".splitlines()[0].split(". ")[0][:120].rstrip(".")
