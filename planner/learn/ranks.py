"""What tensor ranks hold of the cache, and what data-parallel attention does to copies (claims C10, C11)."""

from __future__ import annotations

from planner.learn import Chart, Figures, Lesson
from planner.learn.words import columns, exactly, said, times
from planner.messages import render
from planner.model import ModelSpec
from planner.parallel import Parallel
from planner.units import count, memory

DEGREES = (1, 2, 4, 8, 16)
NOT = "-"


def ranks(f: Figures) -> Lesson:
    """The load on each of N ranks: heads shared out over them, or requests. A dash where this model's heads do not go over so many ranks."""
    s = f.scenario
    alone = f.kept(s.tokens, s.sequences)
    possible = _possible(f.model)
    degrees = tuple(sorted({*DEGREES, possible[-1]}))
    shared = {n: f.kept(s.tokens, s.sequences, Parallel(tensor=n)) for n in degrees if n in possible}
    spread = {n: [f.kept(s.tokens, mine, Parallel(tensor=n, attention_data=n)) for mine in _spread(n, s.sequences)] for n in degrees}
    rows = tuple((count(n), exactly(shared[n]) if n in shared else NOT, exactly(n * shared[n]) if n in shared else NOT, exactly(max(spread[n])),
                  exactly(sum(spread[n]))) for n in degrees)  # fmt: skip
    only = len(shared) == 1
    most = degrees[-1] if only else max(shared)
    held = shared[max(shared)]
    a = f.attention
    args = {"degree": most, "copies": times(most * held, alone), "rank": memory(held), "whole": memory(most * held), "alone": memory(alone),
            "heads": a.kv_heads if a and a.kv_rank is None else 1, "q_heads": a.q_heads if a else 0,
            "data_rank": memory(max(spread[most])), "data_whole": memory(sum(spread[most])), "sequences": s.sequences}  # fmt: skip
    copied = "ranks.copied" if a else "ranks.copied.state"
    code = "ranks.alone" if only else "ranks.latent" if f.latent else copied if most * held > alone else "ranks.even"
    chart = Chart(kind="bars", title=said("ranks.chart", args), x_title=render("learn.axis.ranks"), x=tuple(count(n) for n in shared), series=(
        (render("learn.series.tensor"), "kv_blocks", tuple(float(n * shared[n]) for n in shared)),
        (render("learn.series.data"), "kv_rows", tuple(float(sum(spread[n])) for n in shared)),
    ))  # fmt: skip
    texts = [said(code, args), said("ranks.data", args)]
    if not only and len(shared) < len(degrees):
        texts.append(said("ranks.not.latent" if f.latent else "ranks.not", args))
    return Lesson(code="ranks", texts=tuple(texts), columns=columns("ranks", "tensor_rank", "tensor_all", "data_rank", "data_all"), rows=rows,
                  chart=None if only else chart)  # fmt: skip


def _possible(model: ModelSpec) -> tuple[int, ...]:
    """Degrees over which the heads of every layer go: query heads divide, KV heads divide or are divided (vLLM 0.33 config/model.py
    verify_with_parallel_config; num_key_value_heads of its attention layers)."""
    shapes = {(a.q_heads, a.kv_heads if a.kv_rank is None else a.q_heads) for a in (layer.attention for layer in model.layers) if a is not None}
    return tuple(n for n in range(1, DEGREES[-1] + 1) if all(q % n == 0 and max(kv, n) % min(kv, n) == 0 for q, kv in shapes))


def _spread(groups: int, sequences: int) -> list[int]:
    return Parallel(tensor=groups, attention_data=groups).spread(sequences)
