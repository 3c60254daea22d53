"""Which engines have which option. One that an engine does not have is refused by name, never passed over."""

from __future__ import annotations

from dataclasses import replace

from planner.errors import InvalidInput
from planner.scenario import Scenario

ONLY: dict[str, tuple[str, ...]] = {
    "window_pools": ("trtllm",),
    "cross_kv_cache_fraction": ("trtllm",),
    "cache_implementation": ("transformers",),
    "cache_backend": ("transformers",),
    "cache_nbits": ("transformers",),
    "cache_residual": ("transformers",),
    "samples": ("architecture", "vllm", "sglang", "trtllm", "transformers"),
    "beams": ("architecture", "vllm", "trtllm", "transformers"),
    "kv_offload": ("vllm", "sglang", "trtllm"),
    "max_loras": ("vllm",),
    "max_lora_rank": ("vllm",),
    "draft": ("architecture", "vllm"),
}
_DEFAULTS = Scenario()


def for_engine(s: Scenario, engine: str) -> Scenario:
    """The same choices for another engine: options that it does not have take their defaults, and no draft model runs."""
    rest = {name: getattr(_DEFAULTS, name) for name, engines in ONLY.items() if engine not in engines}
    return replace(
        s, engine=engine, draft=None, num_speculative_tokens=0 if s.draft else s.num_speculative_tokens, **{k: v for k, v in rest.items() if k != "draft"}
    )


def check(s: Scenario) -> None:
    """Raises InvalidInput for the first option that was chosen and that the engine does not have."""
    for name, engines in ONLY.items():
        if s.engine not in engines and getattr(s, name) != getattr(_DEFAULTS, name):
            raise InvalidInput("option_not_in_engine", field=name, engine=s.engine, engines=", ".join(engines))
