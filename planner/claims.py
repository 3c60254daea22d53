"""Round figures that circulate for well-known models, beside what is exact: one row a claim."""

from __future__ import annotations

from planner.capacity import CapacityPlan
from planner.notes import Note, cite, note
from planner.units import count, gib

# catalog name -> (message code, source)
CLAIMS = {"Llama-2-13B": ("claim_llama_2_13b", cite("articles on LLM inference cost: about 1 MB a token"))}
CLAIMED_TOKENS = 4000


def claims(p: CapacityPlan) -> tuple[Note, ...]:
    """What is said about this very model, and which of the two figures is exact."""
    if p.model.name not in CLAIMS:
        return ()
    code, source = CLAIMS[p.model.name]
    each = p.footprint.bytes_per_token_unbounded
    return (note("info", code, source=source, exact=count(each), kv_dtype=p.setting.kv.name, tokens=count(CLAIMED_TOKENS), total=gib(each * CLAIMED_TOKENS)),)
