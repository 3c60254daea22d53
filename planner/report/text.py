"""What the command line prints without --json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.messages import Word, kind_word, known_word, render
from planner.units import count, gib, memory, percent, rate, seconds, short_count


def text(command: str, out: Mapping[str, Any]) -> str:
    """Readable lines of one answer of `read`, `kv` or `plan`."""
    return "\n".join({"read": _read, "kv": _kv, "plan": _plan}[command](out) + _notes(out))


def _read(out: Mapping[str, Any]) -> list[str]:
    p = out["parameters"]
    lines = [
        render("text.read", {"name": out["name"], "model_type": out["model_type"], "layers": len(out["layers"]), "total": _total(p),
                             "active": count(p["active"]), "dtype": out["weight_dtype"]}),
        render("text.limit", {"tokens": count(out["max_context_tokens"])}) if out["max_context_tokens"] else render("text.no_limit"),
    ]  # fmt: skip
    for g in out["groups"]:
        shape = ", ".join(f"{k} {v}" for k, v in g.items() if k not in ("kind", "layers", "indices", "tensors", "shard") and v is not None)
        lines.append(render("text.group", {"layers": g["layers"], "kind": kind_word(g["kind"]), "shape": shape}).rstrip(": "))
    return lines


def _kv(out: Mapping[str, Any]) -> list[str]:
    lines = list(out["formula"])
    lines.append(render("text.kv", {"architecture": _both(out["architecture_bytes"]), "engine": out["engine"], "held": _both(out["engine_bytes"])}))
    each = out["bytes_per_token_unbounded"]
    lines.append(render("text.token", {"bytes": count(each), "kv_dtype": out["kv_dtype"]}))
    return lines


def _plan(out: Mapping[str, Any]) -> list[str]:
    args = {"free": gib(out["kv_free_bytes"]), "short": gib(out["shortfall_bytes"]), "sequences": count(out["scenario"]["sequences"]),
            "tokens": count(out["scenario"]["tokens"])}  # fmt: skip
    lines = [
        render(
            "text.plan",
            {"model": out["model"], "gpus": out["scenario"]["gpus"], "gpu": out["gpu"] or "-", "engine": out["engine"], "version": out["engine_version"]},
        ),
        render(f"text.{'fits' if out['fits'] else 'no_' + out['limited_by']}", args),
        *out["formula"],
        render(
            "text.pool",
            {
                "pool": _both(out["kv_pool_bytes"]),
                "most": count(out["max_sequences"]),
                "longest": count(out["longest_context_tokens"]),
                "by": render(f"longest.by.{out['longest_context_limited_by']}"),
                **args,
            },
        ),
    ]
    if out["shared_prefix_bytes_saved"]:
        lines.append(render("text.prefix", {"tokens": count(out["scenario"]["shared_prefix"]), "saved": _both(out["shared_prefix_bytes_saved"])}))
    if out["mix"]:
        m = out["mix"]
        lines.append(
            render(
                "text.mix",
                {"points": m["points"], "guaranteed": count(m["sequences_guaranteed"]), "typical": count(m["sequences_typical"]),
                 "mean": count(m["mean_tokens"]), "p99": count(m["p99_tokens"])},
            )
        )  # fmt: skip
        lines += [render(f"mix.limited.{m['limited_by']}")] if m["limited_by"] else []
    lines += _times(out)
    for line in out["rank_ledgers"][out["binding_rank"]]:
        lines += [render("text.ledger", {"gib": gib(line["bytes"]).rjust(14), "name": line["name"], "kind": known_word(line["kind"])})]
    back = out.get("backwards")
    if back:
        fraction, pool = back["smallest_memory_fraction"], back["smallest_kv_memory"]
        exact = "-" if pool is None else f"{gib(pool)}, {render('report.bytes', {'bytes': count(pool)})}"
        lines.append(render("text.backwards", {"fraction": "-" if fraction is None else fraction, "pool": exact}))
        lines += [render("text.backwards.flags", {"flags": "; ".join(back["flags"])})] if back["flags"] else []
    for r in out.get("remedies", ()):
        after = render("text.after_fits") if r["fits"] else render("text.after_short", {"short": gib(r["shortfall_bytes"])})
        lines += [render("text.remedy", {"text": r["text"], "after": after})]
    return lines


def _times(out: Mapping[str, Any]) -> list[str]:
    """Times with their ranges, and the batch with what binds it; nothing where the device lacks a figure."""
    t, batch = out["latency"], out["batch_limit"]
    if t is None:
        return []
    bounds = {f"{name}_{end}": seconds(t[f"{name}_range_s"][i]) for name in ("ttft", "itl") for i, end in enumerate(("low", "high"))}
    args = {"ttft": seconds(t["ttft_s"]), "itl": seconds(t["itl_s"]), "sequences": count(t["sequences"]), "bound": render(f"page.serve.part.{t['bound']}")}
    limit = {"best": count(batch["best"]), "binding": render(f"page.serve.binds.{batch['binding']}")}
    return [render("text.latency", args | bounds), render("text.batch", limit), *_load(out)]


def _load(out: Mapping[str, Any]) -> list[str]:
    """Arrivals and replicas, where a request rate was given."""
    a, fleet = ((out.get("load") or {}).get(k) for k in ("arrivals", "fleet"))
    if not a or not fleet:
        return []
    rates = {"rate": rate(a["rate"]), "capacity": rate(a["capacity"])}
    if a["overloaded"]:
        lines = [render("text.load_overload", rates)]
    else:
        bounds = {f"{name}_{end}": seconds(a[f"{name}_range_s"][i]) for name in ("ttft", "itl") for i, end in enumerate(("low", "high"))}
        args = {"load": percent(a["load"]), "sequences": rate(a["sequences"]), "ttft": seconds(a["ttft_s"]), "itl": seconds(a["itl_s"])}
        lines = [render("text.load", rates | args | bounds)]
    return [*lines, render("text.fleet", {"least": fleet["least"], "spare": fleet["with_headroom"], "lost": fleet["one_lost"]})]


def _total(p: Mapping[str, Any]) -> str:
    """All digits where the count is exact, else the count and its band."""
    if not p["estimated"]:
        return count(p["total"])
    return render("text.parameters.about", {"short": short_count(p["total"]), "low": short_count(p["low"]), "high": short_count(p["high"])})


def _both(value: int) -> str:
    return render("text.both", {"short": memory(value), "bytes": count(value)})


def _notes(out: Mapping[str, Any]) -> list[str]:
    return [render("text.note", {"level": Word(n["level"], f"word.level.{n['level']}"), "text": n["text"]}) for n in out.get("notes", ())]
