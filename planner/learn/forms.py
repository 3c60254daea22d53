"""MHA, GQA, MQA and MLA in this model's shape, and what absorption does to a latent (claims C8 to C10, C21 to C23)."""

from __future__ import annotations

from typing import Any

from planner.dtypes import KvLayout
from planner.errors import PlannerError
from planner.learn import Chart, Figures, Lesson
from planner.learn.words import columns, exactly, row, said, times, work
from planner.messages import render
from planner.model import Attention
from planner.readers.shapes import rows_of
from planner.units import count, memory
from planner.whatif import MLA_RANK, MLA_ROPE, variants


def forms(f: Figures) -> Lesson:
    """The same layers, query heads, element type and tokens as each form."""
    s, a = f.scenario, f.attention
    try:
        found = variants(f.model, f.kv, s.tokens, s.sequences)
    except PlannerError:
        return Lesson(code="forms", texts=(render("learn.forms.none"),))
    assert a is not None
    shared = a.kv_rank is not None
    args = {"q_heads": a.q_heads, "kv_heads": 1 if shared else a.kv_heads, "share": a.q_heads if shared else a.q_heads // max(1, a.kv_heads),
            "layers": f.attention_layers, "tokens": s.tokens, "sequences": s.sequences, "mha": memory(found[0].bytes),
            "mqa": memory(next(v.bytes for v in found if v.code == "mqa" or a.q_heads == 1)),
            "own": memory(next((v.bytes for v in found if v.own), f.kept(s.tokens, s.sequences)))}  # fmt: skip
    code = "forms.mla" if shared else "forms.mha" if args["share"] == 1 else "forms.share"
    rows = tuple((render("page.layers.own", {"name": v.name}) if v.own else v.name, count(v.elements), exactly(v.bytes), f"{v.ratio:.3f}") for v in found)
    chart = Chart(kind="bars", title=said("forms.chart", {**args, "ratio": times(found[0].bytes, found[-1].bytes)}), x_title="", x=tuple(v.name for v in found),
                  series=((render("learn.series.load"), "kv_rows", tuple(float(v.bytes) for v in found)),))  # fmt: skip
    return Lesson(code="forms", texts=(said(code, args),), columns=columns("form", "elements", "load", "ratio"), rows=rows,
                  chart=chart)  # fmt: skip


def absorption(f: Figures) -> Lesson:
    """One latent row for all heads, read as it is or expanded. For a model without a latent: what one of its shape would be."""
    a, own = f.latent or _would_be(f), f.latent is not None
    if a is None or a.kv_rank is None:
        return Lesson(code="absorption", texts=(render("learn.absorption.none"),))
    tokens = f.scenario.tokens
    layers = sum(any(k.kind == "latent" for k in x.caches) for x in f.model.layers) if own else f.attention_layers
    latent, full = rows_of(a), a.q_heads * (a.qk_dim + a.v_dim)
    row_bytes, full_bytes = latent.row_bytes(f.kv), _expanded_bytes(a, f.kv)
    # per pair of a new and a kept token, all heads: DeepSeek-V2 (arXiv 2405.04434), section 2.1
    absorbed, expanded = 2 * a.q_heads * (2 * a.kv_rank + a.rope_dim), 2 * a.q_heads * (a.qk_dim + a.v_dim)
    restore = 2 * a.kv_rank * a.q_heads * (a.nope_dim + a.v_dim)
    args: dict[str, Any] = {
        "rank": a.kv_rank, "rope": a.rope_dim, "q_heads": a.q_heads, "nope": a.nope_dim, "v_dim": a.v_dim, "row": latent.k_dim, "full": full, "k_dim": a.qk_dim,
        "ratio": times(full, latent.k_dim), "layers": layers, "tokens": tokens, "restore": work(restore), "moved": a.q_heads * a.kv_rank,
    }  # fmt: skip
    rows = (
        row("elements", count(latent.k_dim), count(full)),
        row("bytes_read", exactly(layers * tokens * row_bytes), exactly(layers * tokens * full_bytes)),
        row("flop_pair", count(absorbed), count(expanded)),
        row("flop_step", work(layers * tokens * absorbed), work(layers * tokens * (expanded + restore))),
    )
    error = f.probe.get("absorbed_vs_expanded_max_rel_error")
    measured = ((render("learn.measured.absorbed"), f"{error:.1e}"),) if isinstance(error, float) and own else ()
    texts = (said("absorption.own" if own else "absorption.other", args), said("absorption.how", args), said("absorption.rope", args))
    return Lesson(code="absorption", texts=texts, columns=columns("what", "absorbed", "expanded"), rows=rows, measured=measured)


def _would_be(f: Figures) -> Attention | None:
    """The latent of the what-if table in the shape of this model's heads."""
    a = f.attention
    if a is None:
        return None
    rank, rope = (a.kv_rank, a.rope_dim) if a.kv_rank is not None else (MLA_RANK, MLA_ROPE)
    return Attention(q_heads=a.q_heads, kv_heads=a.q_heads, qk_dim=a.v_dim + rope, v_dim=a.v_dim, kv_rank=rank, nope_dim=a.v_dim, rope_dim=rope)


def _expanded_bytes(a: Attention, kv: KvLayout) -> int:
    return kv.row_bytes(a.q_heads, a.qk_dim, a.v_dim)
