"""What tensor ranks hold of the cache, and what data-parallel attention does to copies (claims C10, C11)."""

from __future__ import annotations

from planner.learn import Chart, Figures, Lesson
from planner.learn.words import columns, exactly, said, times
from planner.messages import render
from planner.parallel import Parallel
from planner.units import count, memory

DEGREES = (1, 2, 4, 8, 16)


def ranks(f: Figures) -> Lesson:
    """The load on each of N ranks: heads shared out over them, or requests."""
    s = f.scenario
    alone = f.kept(s.tokens, s.sequences)
    shared = {n: f.kept(s.tokens, s.sequences, Parallel(tensor=n)) for n in DEGREES}
    spread = {n: [f.kept(s.tokens, mine, Parallel(tensor=n, attention_data=n)) for mine in _spread(n, s.sequences)] for n in DEGREES}
    rows = tuple((count(n), exactly(shared[n]), exactly(n * shared[n]), exactly(max(spread[n])), exactly(sum(spread[n]))) for n in DEGREES)
    most = DEGREES[-1]
    a = f.attention
    args = {"degree": most, "copies": times(most * shared[most], alone), "rank": memory(shared[most]), "whole": memory(most * shared[most]),
            "alone": memory(alone),
            "heads": a.kv_heads if a and a.kv_rank is None else 1, "data_rank": memory(max(spread[most])), "data_whole": memory(sum(spread[most])),
            "sequences": s.sequences}  # fmt: skip
    code = "ranks.latent" if f.latent else "ranks.copied" if most * shared[most] > alone else "ranks.even"
    chart = Chart(kind="bars", title=said("ranks.chart", args), x_title=render("learn.axis.ranks"), x=tuple(count(n) for n in DEGREES), series=(
        (render("learn.series.tensor"), "kv_blocks", tuple(float(n * shared[n]) for n in DEGREES)),
        (render("learn.series.data"), "kv_rows", tuple(float(sum(spread[n])) for n in DEGREES)),
    ))  # fmt: skip
    return Lesson(code="ranks", texts=(said(code, args), said("ranks.data", args)),
                  columns=columns("ranks", "tensor_rank", "tensor_all", "data_rank", "data_all"), rows=rows, chart=chart)  # fmt: skip


def _spread(groups: int, sequences: int) -> list[int]:
    return Parallel(tensor=groups, attention_data=groups).spread(sequences)
