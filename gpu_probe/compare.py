"""The table: what the planner predicts beside what the run found. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gpu_probe.result import ProbeRequest, ProbeRow
from planner.messages import kind_word, render

if TYPE_CHECKING:
    from gpu_probe.figures.count import Counted
    from gpu_probe.figures.pace import Pace


def row(
    code: str, predicted: float | int | None, measured: float | int | None, *, unit: str = "bytes", exact: bool = False, missing: str = "", **args: Any
) -> ProbeRow:
    """`missing`: the reason's code, for the column "how" where nothing was measured."""
    how = f"missing.{missing}" if missing and measured is None else f"row.{code}.how"
    return ProbeRow(name=render(f"row.{code}", args), predicted=predicted, measured=measured, how=render(how, args), unit=unit, exact=exact)


def layer_text(lines: Sequence[dict[str, Any]]) -> list[str]:
    """The lines for a terminal, equal neighbours as one."""
    runs: list[list[dict[str, Any]]] = []
    for line in lines:
        rest = {k: v for k, v in line.items() if k != "layer"}
        last = runs[-1][-1] if runs else None
        if last is not None and last["layer"] == line["layer"] - 1 and {k: v for k, v in last.items() if k != "layer"} == rest:
            runs[-1].append(line)
        else:
            runs.append([line])
    return [
        render("line.layer" if len(run) == 1 else "line.layers", {
            "first": run[0]["layer"], "last": run[-1]["layer"], "kind": kind_word(run[0]["kind"]),
            "predicted": f"{run[0]['predicted_bytes']:,}", "measured": f"{run[0]['measured_bytes']:,}",
        })
        for run in runs
    ]  # fmt: skip


def build_rows(
    counted: Counted, request: ProbeRequest, *, pace: Pace, room: dict[str, Any], memory: dict[str, int], accuracy: dict[str, Any] | None
) -> list[ProbeRow]:
    """Every line, also those that this device does not tell: they say why. `room`: of `capacity`. `memory`: what `device.memory_now`
    said at the end."""
    rows = [row("kv", *counted.kv, exact=True, tokens=request.tokens(), batch=request.batch)]
    if any(counted.scales):
        rows.append(row("scales", *counted.scales, exact=True))
    rows.append(row("tables", *counted.tables, exact=True))
    for g in counted.groups:
        rows += _group_rows(g, shared=request.shared_tokens() > 0)
    rows.append(row("internal", None, counted.waste["internal_bytes"]))
    rows.append(row("external", 0, counted.waste["external_bytes"], exact=True))
    if counted.waste["contiguous_bytes"] is not None:
        rows.append(row("contiguous", counted.waste["contiguous_bytes"], None, tokens=counted.waste["max_context_tokens"]))
    batch = {"tokens": room["tokens"], "pool": f"{room['pool_bytes']:,}"}
    rows.append(row("largest_batch", room["predicted"], room["found"], unit="sequences", exact=True, **batch))
    rows.append(row("unused", None, room["unused_fraction"], unit="fraction", batch=room["found"]))
    if accuracy is not None:
        rows.append(row("accuracy", accuracy["tolerance"], accuracy["error"], unit="fraction", kv=accuracy["kv_dtype"]))
    rows.append(row("weights", *counted.weights, exact=True))
    rows.append(row("read", *counted.read))
    rows += _memory_rows(counted, memory)
    return rows + _pace_rows(pace)


def _group_rows(g: dict[str, Any], *, shared: bool) -> list[ProbeRow]:
    words = {"kind": kind_word(g["kind"]), "layers": g["layers"]}
    rows = [row("kv_group", g["predicted_bytes"], g["measured_bytes"], exact=True, **words)]
    if g["kind"] != "state":
        rows.append(row("token", g["predicted_bytes_per_token"], g["bytes_per_token"], exact=True, **words))
    if shared:
        rows.append(row("shared_blocks", g["shared_blocks_predicted"], g["shared_blocks"], unit="blocks", exact=True, **words))
    return [
        *rows,
        row("blocks", g["predicted_blocks"], g["held_blocks"], unit="blocks", exact=True, **words),
        row("prefill_blocks", g["prefill_blocks_predicted"], g["prefill_blocks"], unit="blocks", exact=True, **words),
        row("pool", g["pool_blocks"] * g["bytes_per_block"], g["pool_bytes"], exact=True, **words),
        row("fragmentation", None, g["internal_fragmentation_fraction"], unit="fraction", **words),
    ]


def _memory_rows(counted: Counted, memory: dict[str, int]) -> list[ProbeRow]:
    rows = [row(f"peak_{name}", counted.working, counted.peaks[name], missing="peak") for name in ("prefill", "decode")]
    rows.append(row("workspace", None, counted.workspace))
    rows += [row(f"slack_{name}", None, value, missing=name) for name, value in counted.slack.items()]
    peaks = (("host_peak_rss_bytes", "host_peak"), ("device_peak_allocated_bytes", "device_peak"))
    rows += [row(code, None, memory[name]) for name, code in peaks if memory.get(name)]
    return rows + [row(f"level_{name}", None, value, missing="level") for name, value in counted.levels.items()]


def _pace_rows(pace: Pace) -> list[ProbeRow]:
    def best(name: str) -> float:
        return max(float(pace.ceilings[when][name]) for when in ("before", "after")) / 1e9

    found = pace.roofline
    rate = None if found["bytes_per_s"] is None else found["bytes_per_s"] / 1e9
    return [
        row("ceiling_read", None, best("read_bytes_per_s"), unit="GB/s"),
        row("ceiling_product", None, best("flop_per_s"), unit="GFLOP/s", dtype=pace.ceilings["dtype"]),
        row("decode_rate", None, rate, unit="GB/s", missing=found["reason"]),
        row("roofline", None, found["share"], unit="fraction", missing=found["reason"], bound=found["bound"]),
    ]
