"""What the command line prints without --json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planner.messages import Word, kind_word, known_word, render
from planner.units import count, gib, memory, milliseconds, money, percent, rate, seconds, short_count


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
            "tokens": count(out["tokens"])}  # fmt: skip
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
    lines += _ledger(out["rank_ledgers"][out["binding_rank"]])
    back = out.get("backwards")
    if back:
        fraction, pool = back["smallest_memory_fraction"], back["smallest_kv_memory"]
        exact = "-" if pool is None else f"{gib(pool)}, {render('report.bytes', {'bytes': count(pool)})}"
        lines.append(render("text.backwards", {"fraction": "-" if fraction is None else fraction, "pool": exact}))
        lines += [render("text.backwards.flags", {"flags": "; ".join(back["flags"])})] if back["flags"] else []
    for r in out.get("remedies", ()):
        after = render("text.after_fits") if r["fits"] else render("text.after_short", {"short": gib(r["shortfall_bytes"])})
        lines += [render("text.remedy", {"text": r["text"], "after": after})]
    return [*lines, *_simulated(out), *_knobs(out)]


def _ledger(rank: Sequence[Mapping[str, Any]]) -> list[str]:
    """Where each byte of a device goes: exactly, and in GiB for the eye."""
    exact = [render("report.bytes", {"bytes": count(line["bytes"])}) for line in rank]
    wide = max(map(len, exact), default=0)
    return [
        render("text.ledger", {"bytes": number.rjust(wide), "gib": gib(line["bytes"]).rjust(10), "name": line["name"], "kind": known_word(line["kind"])})
        for line, number in zip(rank, exact, strict=True)
    ]


def _times(out: Mapping[str, Any]) -> list[str]:
    """Times with their ranges, and the batch with what binds it; nothing where the device lacks a figure."""
    t, batch = out["latency"], out["batch_limit"]
    if t is None:
        return []
    bounds = {f"{name}_{end}": seconds(t[f"{name}_range_s"][i]) for name in ("ttft", "itl") for i, end in enumerate(("low", "high"))}
    args = {"ttft": seconds(t["ttft_s"]), "itl": seconds(t["itl_s"]), "sequences": count(t["sequences"]), "bound": render(f"page.serve.part.{t['bound']}")}
    limit = {"best": count(batch["best"]), "binding": render(f"page.serve.binds.{batch['binding']}")}
    return [render("text.latency", args | bounds), render("text.batch", limit), *_load(out), *_speculation(out)]


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
    lines.append(render("text.fleet", {"least": fleet["least"], "spare": fleet["with_headroom"], "lost": fleet["one_lost"]}))
    if fleet["cost_a_day"] is not None and fleet["cost_per_million_output_tokens"] is not None:
        lines.append(render("page.load.cost", {"lost": count(fleet["one_lost"]), "day": money(fleet["cost_a_day"]),
                                               "million": money(fleet["cost_per_million_output_tokens"])}))  # fmt: skip
    return lines


def _speculation(out: Mapping[str, Any]) -> list[str]:
    """What drafted tokens give, where an acceptance rate was given."""
    s = (out.get("load") or {}).get("speculation")
    if not s:
        return []
    even = s["break_even"]
    helps = render("page.load.speculation.never") if even is None else render("page.load.speculation.from", {"even": percent(even)})
    args = {"drafted": count(s["drafted"]), "rate": percent(s["acceptance_rate"]), "tokens": rate(s["tokens_per_step"]), "itl": seconds(s["itl_s"]),
            "plain": seconds(s["plain_itl_s"]), "gain": rate(s["gain"]), "sequences": count(s["sequences"]), "even": helps}  # fmt: skip
    return [render(f"page.load.speculation.{s['drafter']}", args)]


def _simulated(out: Mapping[str, Any]) -> list[str]:
    """What `--simulate` or `--trace` found: rates, times with percentiles, the closed form beside them."""
    s = out.get("simulation")
    if not s:
        return []
    if "note" in s:
        return _notes({"notes": [s["note"]]})
    itl = s["itl_s"]
    args = {"requests": count(s["requests"]), "rate": count(s["output_tokens_per_s"]), "itl": seconds(itl["mean"]) if itl else "-",
            "running": rate(s["mean_running"])}  # fmt: skip
    about = {"requests": count(s["finished"]), "seed": count(s["seed"]), "steps": count(s["steps"]), "span": seconds(s["simulated_s"]),
             "used": percent(s["most_used"]), "preemptions": count(s["preemptions"])}  # fmt: skip
    lines = [render("text.simulated", args), render("page.load.simulated.about", about)]
    found = {name: s[f"{name}_s"] for name in ("ttft", "itl") if s[f"{name}_s"]}
    lines += [render("text.simulated.times", {"what": render(f"page.load.row.{n}"), **{k: seconds(v) for k, v in t.items()}}) for n, t in found.items()]
    if form := s["closed_form"]:
        lines.append(render("page.load.simulated.form", {"itl": seconds(form["itl_s"]), "rate": count(form["output_tokens_per_s"])}))
    return lines + _notes(s)


def _knobs(out: Mapping[str, Any]) -> list[str]:
    """What `--sensitivity` found: a line a knob, most sequences gained first."""
    found = out.get("sensitivity")
    if not found:
        return []
    lines = [render("text.knobs", {"most": count(found["before"]["best"])})]
    for r in found["rows"]:
        args = {"text": r["text"], "gained": f"{r['gained']:+,}", "most": count(r["best"]), "gpus": count(r["gpus"]), "itl": seconds(r["itl_s"]),
                "added": f"{milliseconds(r['itl_added_s']):+.2f} ms", "cost": r["cost"]}  # fmt: skip
        lines.append(render("text.knob", args))
    return lines


def _total(p: Mapping[str, Any]) -> str:
    """All digits where the count is exact, else the count and its band."""
    if not p["estimated"]:
        return count(p["total"])
    return render("text.parameters.about", {"short": short_count(p["total"]), "low": short_count(p["low"]), "high": short_count(p["high"])})


def _both(value: int) -> str:
    return render("text.both", {"short": memory(value), "bytes": count(value)})


def _notes(out: Mapping[str, Any]) -> list[str]:
    return [render("text.note", {"level": Word(n["level"], f"word.level.{n['level']}"), "text": n["text"]}) for n in out.get("notes", ())]
