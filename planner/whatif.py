"""What if the attention were another: the same layers, query heads, head dim, dtype and tokens as MHA, GQA, MQA and MLA, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.dtypes import KvLayout
from planner.errors import UnsupportedModel
from planner.model import Attention, ModelSpec
from planner.parallel import Parallel
from planner.readers.shapes import rows_of

GROUPS = (8, 4, 2)
MLA_RANK, MLA_ROPE = 512, 64  # DeepSeek-V2 and V3 (arXiv 2405.04434)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """`elements`: what one token keeps in one layer; `bytes`: the whole load, one copy; `rank_bytes`: what the fullest rank holds of it."""

    code: str
    args: tuple[tuple[str, Any], ...]
    elements: int
    bytes: int
    rank_bytes: int
    ratio: float
    own: bool

    @property
    def name(self) -> str:
        from planner.messages import render

        return render(f"whatif.{self.code}", dict(self.args))

    @property
    def caution(self) -> str:
        from planner.messages import render

        return render(f"whatif.{self.code}.caution", dict(self.args))


def variants(model: ModelSpec, kv: KvLayout, tokens: int, sequences: int, parallel: Parallel | None = None, replicas: int = 1, rank: int = MLA_RANK,
             rope: int = MLA_ROPE) -> tuple[Variant, ...]:  # fmt: skip
    """Every attention layer taken as full attention of the model's largest attention shape. `sequences`: over all `replicas`, each of which is
    spread as `parallel` says. Raises UnsupportedModel for models that have no attention, InvalidInput for more stages than layers. `ratio`:
    against MHA."""
    shapes = [layer.attention for layer in model.layers if layer.attention is not None]
    if not shapes:
        raise UnsupportedModel("no_attention", field="layers", model_type=model.model_type)
    a = max(shapes, key=lambda s: (s.q_heads, s.qk_dim))
    # MLA's query/key size is not a head size of the others: its value size is what the heads would have.
    dim = a.v_dim if a.kv_rank is not None else a.qk_dim
    own_heads = None if a.kv_rank is not None else a.kv_heads
    heads = sorted({a.q_heads, 1, *(g for g in GROUPS if a.q_heads % g == 0 and g < a.q_heads), *((own_heads,) if own_heads else ())}, reverse=True)
    forms: list[tuple[str, dict[str, Any], Attention]] = []
    for n in heads:
        code = "mha" if n == a.q_heads else "mqa" if n == 1 else "gqa"
        forms.append((code, {"heads": n, "share": a.q_heads // n, "q_heads": a.q_heads}, Attention(q_heads=a.q_heads, kv_heads=n, qk_dim=dim, v_dim=dim)))
    if a.kv_rank is not None:
        rank, rope = a.kv_rank, a.rope_dim
    latent = Attention(q_heads=a.q_heads, kv_heads=a.q_heads, qk_dim=dim + rope, v_dim=dim, kv_rank=rank, nope_dim=dim, rope_dim=rope)
    forms.append(("mla", {"rank": rank, "rope": rope}, latent))
    p, layers = parallel or Parallel(), len(shapes)
    here = max(sum(model.layers[i].attention is not None for i in stage) for stage in p.stage_layers(len(model.layers)))
    there = p.spread(-(-sequences // replicas))[0] * -(-tokens // p.context)  # rows of the rank with the most sequences
    out, most = [], 0
    for code, args, form in forms:
        rows = rows_of(form)
        held = rows.heads if rows.shard == "copy" else p.heads_on_rank(rows.heads)
        total = layers * tokens * sequences * rows.row_bytes(kv)
        most = most or total
        own = a.kv_rank is not None if code == "mla" else own_heads == form.kv_heads
        out.append(Variant(code=code, args=tuple(args.items()), elements=rows.heads * (rows.k_dim + rows.v_dim), bytes=total,
                           rank_bytes=here * there * kv.row_bytes(held, rows.k_dim, rows.v_dim), ratio=total / most, own=own))  # fmt: skip
    return tuple(out)
