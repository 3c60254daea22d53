"""Sweeps: every point is plan()'s and latency()'s own, to the last bit; nothing is dropped; grids have bounds."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from planner.__main__ import main
from planner.capacity import plan
from planner.draft import attach
from planner.errors import InvalidInput, PlannerError, UnknownName
from planner.hardware import find
from planner.latency import Latency, estimate
from planner.model import ModelSpec
from planner.readers import read_config
from planner.scenario import Scenario
from planner.sources import Loaded, load
from planner.sweep import run
from planner.sweep.files import write_csv
from planner.sweep.grid import from_file, from_mapping, prices, read
from planner.sweep.points import ARRAYS
from planner.sweep.table import FIGURES, Point, Table
from planner.throughput import MARGIN
from tests.conftest import refused, small_configs

GRIDS = (
    "model=Llama-3.1-8B,Gemma-3-27B,gpt-oss-20b;gpu=H100 SXM,H200 SXM,L4;tp=1,2,3,8;kv_dtype=auto,fp8;tokens=512..131072*2,1000,200000;"
    "sequences=1..512*2,7,100",
    "model=DeepSeek-V3,Qwen3-Next-80B-A3B;gpu=H200 SXM;tp=8;dp_attention=1,2,8;engine=vllm,sglang,trtllm;prompt=1..100000*10;"
    "output=1,100,900;sequences=1,3,64,999,5000",
    "model=Llama-3.1-8B,Gemma-3-27B;gpu=H100 SXM,A10;gpus=8;pp=1,2;tp=1,2;engine=vllm,architecture,sglang;shared_prefix=0,500;tokens=300,500..40000*3;"
    "sequences=1,2,17,5000",
    "model=Llama-3.1-8B,Qwen3-Next-80B-A3B;gpu=RTX 4090,Apple M2 Ultra,own:My card 48GiB 960GB/s 181TFLOPS;"
    "engine=transformers,llamacpp,architecture;tokens=100,2048,9000;sequences=1,5,40",
    "model=Llama-3.1-8B;gpu=H100 SXM;engine=vllm;samples=1,4;prompt=300,5000;output=16,700;sequences=1,8,300;enforce_eager=true,false;block_size=16,32",
    "model=Llama-3.1-8B;engine=vllm,trtllm,sglang;max_model_len=4096,200000;tokens=1000,8192,100000000;sequences=1,1000000;memory_fraction=0.5,0.92",
    "model=Llama-3.1-8B;engine=vllm;prefix_hit_rate=0.01,0.37,1;prefill_policy=chunked,whole;num_speculative_tokens=0;tokens=100..20000*3;sequences=1,9,200",
    "model=Llama-3.1-8B;engine=vllm,sglang;max_num_seqs=8,64;used_memory_bytes=1GiB,60GiB;weight_dtype=auto,fp8;tokens=1000,8192;sequences=1,9,200",
)  # fmt: skip


@cache
def model_of(name: str) -> ModelSpec:
    loaded = load(name, allow_paths=False)
    return read_config(loaded.raw, loaded.name)


def opened(name: str) -> tuple[ModelSpec, Mapping[str, Any]]:
    return model_of(name), load(name, allow_paths=False).provenance


def draft(name: str) -> Loaded:
    return load(name, allow_paths=False)


def sweep(grid: str, base: Scenario | None = None, **more: Any) -> Table:
    return run(read(grid, allow_paths=False), base or Scenario(target_itl=0.03, target_ttft=1.0), opened, draft, **more)


def scalar(table: Table, at: Point) -> dict[str, Any]:
    """The same point by plan() and latency() alone."""
    b, length = table.blocks[at.block], table.lengths[at.length]
    s = replace(b.scenario, tokens=length.tokens, prompt=length.prompt, output=length.output, sequences=table.sequences[at.sequences])
    model, provenance = opened(s.model)
    hardware = find(s.gpu)
    try:
        model, s = attach(model, s, provenance, draft)
        p = plan(model, hardware, s)
        times = estimate(p)
    except PlannerError as e:
        return dict.fromkeys(FIGURES) | {"reason": e.message, "limited_by": None, "state": "refused"}
    out: dict[str, Any] = {
        "limited_by": p.limited_by, "state": "fits" if p.fits else "no", "kv_bytes": p.footprint.engine_bytes * p.replicas,
        "max_sequences": p.max_sequences * p.replicas, "kv_tokens": p.kv_tokens, "usd_per_gpu_hour": hardware.price_usd_per_hour,
    }  # fmt: skip
    if not isinstance(times, Latency):
        names = ("ttft_s", "ttft_low_s", "ttft_high_s", "itl_s", "itl_low_s", "itl_high_s", "tokens_per_s", "usd_per_million_tokens")
        return out | dict.fromkeys(names) | {"meets_targets": p.fits and s.target_itl is None and s.target_ttft is None, "times_measured": None}
    rate = times.output_tokens_per_s * (s.sequences / p.sequences_per_replica)
    price = hardware.price_usd_per_hour
    cost = price * p.replicas * p.setting.parallel.ranks / 3600 / rate * 1e6 if p.fits and price is not None else None
    met = all(target is None or time * MARGIN <= target for time, target in ((times.itl_s, s.target_itl), (times.ttft_s, s.target_ttft)))
    return out | {
        "ttft_s": times.ttft_s, "ttft_low_s": times.ttft_range_s[0], "ttft_high_s": times.ttft_range_s[1], "itl_s": times.itl_s,
        "itl_low_s": times.itl_range_s[0], "itl_high_s": times.itl_range_s[1], "tokens_per_s": rate, "usd_per_million_tokens": cost,
        "meets_targets": p.fits and met, "times_measured": times.measured,
    }  # fmt: skip


def points(table: Table, count: int, seed: int) -> list[Point]:
    every = [Point(i, j, k) for i, b in enumerate(table.blocks) for j in range(b.shape[0]) for k in range(b.shape[1])]
    return random.Random(seed).sample(every, min(count, len(every)))


@pytest.mark.parametrize("which", range(len(GRIDS)))
def test_random_points_are_the_plans_own(which: int) -> None:
    """More than 1,000 points over all grids. Equal, not near: floats included."""
    table = sweep(GRIDS[which])
    assert table.points == read(GRIDS[which], allow_paths=False).points
    for at in points(table, 220, seed=which):
        row, truth = table.row(at), scalar(table, at)
        assert {name: row[name] for name in truth if name != "reason"} == {name: v for name, v in truth.items() if name != "reason"}, row
        if truth["state"] == "refused":
            assert row["reason"] == truth["reason"]


def test_every_family_swept_is_every_family_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """One combination of each small config, drawn at random: windows, latents, states, encoders and models without a limit among them."""
    draw = random.Random(7)
    for name, raw in small_configs():
        try:
            model = read_config(raw, name)
        except PlannerError:
            continue
        monkeypatch.setitem(globals(), "opened", lambda _, model=model: (model, {}))
        engine, tp, pp, prefix = draw.choice(ARRAYS), draw.choice((1, 2)), draw.choice((1, 1, 2)), draw.choice((0, 0, 9))
        grid = f"engine={engine};tp={tp};pp={pp};shared_prefix={prefix};tokens=1,10,700,300000;sequences=1,3,3000"
        table = run(read(grid, allow_paths=False), Scenario(model=name, target_itl=0.05), opened, draft)
        for at in points(table, 3, seed=draw.randrange(10**6)):
            row, truth = table.row(at), scalar(table, at)
            assert {k: row[k] for k in FIGURES} == {k: truth[k] for k in FIGURES}, (name, grid)


def test_points_under_a_measured_scale_are_the_plans_own() -> None:
    scale = "1.3000;0.0500;3;points;H100 SXM;vllm;Llama-3.1-8B"
    table = sweep("gpu=H100 SXM,H200 SXM;tokens=1000,8000;sequences=1,16", Scenario(calibration=scale))
    plain = sweep("gpu=H100 SXM,H200 SXM;tokens=1000,8000;sequences=1,16", Scenario())
    assert table.row(Point(0, 0, 0))["itl_s"] != plain.row(Point(0, 0, 0))["itl_s"]
    for at in points(table, 8, seed=1):
        row, truth = table.row(at), scalar(table, at)
        assert {name: row[name] for name in FIGURES} == {name: truth[name] for name in FIGURES}


def test_a_planted_fault_is_seen() -> None:
    """One token more, or one sequence, and the comparison above fails."""
    table = sweep("tokens=1000,1016;sequences=3,4")
    assert table.row(Point(0, 0, 0))["kv_bytes"] != scalar(table, Point(0, 1, 0))["kv_bytes"]
    assert table.row(Point(0, 0, 0))["itl_s"] != scalar(table, Point(0, 0, 1))["itl_s"]


# -- what follows from the points ----------------------------------------------------------------------------------------


def test_refused_combinations_stand_as_rows_with_the_reason() -> None:
    table = sweep("tp=1,3;tokens=100,200;sequences=1,2,3")
    rows = list(table.rows())
    assert len(rows) == table.points == 12
    bad = [r for r in rows if r["state"] == "refused"]
    assert len(bad) == table.count("refused") == 6
    assert all(r["tp"] == 3 and "14,336" in r["reason"] and r["kv_bytes"] is None for r in bad)
    assert [(r["tp"], r["tokens"], r["sequences"]) for r in rows[:4]] == [(1, 100, 1), (1, 100, 2), (1, 100, 3), (1, 200, 1)]
    assert rows == [table.row(Point(i, j, k)) for i in range(2) for j in range(2) for k in range(3)]


def test_one_length_that_is_refused_spoils_no_other() -> None:
    rows = list(sweep("shared_prefix=500;tokens=300,900;sequences=2,3").rows())
    assert [r["state"] for r in rows] == ["refused", "refused", "fits", "fits"]


def test_the_cheapest_and_the_front_are_those_of_a_search_by_hand() -> None:
    table = sweep("gpu=H100 SXM,H200 SXM,L4,A10;tp=1,2,4;tokens=1000,6000;sequences=1..256*2", Scenario(target_itl=0.025))
    for j in range(2):
        rows = [r for r in table.rows() if r["tokens"] == table.lengths[j].tokens]
        priced = [r for r in rows if r["meets_targets"] and r["usd_per_million_tokens"] is not None]
        best = table.row(table.cheapest(j)[0])
        assert best["usd_per_million_tokens"] == min(r["usd_per_million_tokens"] for r in priced)
        costs = [table.row(at)["usd_per_million_tokens"] for at in table.cheapest(j)]
        known = [c for c in costs if c is not None]
        assert known == sorted(known)
        assert costs[: len(known)] == known
        fit = [r for r in rows if r["state"] == "fits" and r["usd_per_million_tokens"] is not None]
        front_rows = [table.row(at) for at in table.pareto(j)]
        xy = {(r["usd_per_million_tokens"], r["itl_s"]) for r in front_rows}
        every = {(r["usd_per_million_tokens"], r["itl_s"]) for r in fit}
        assert xy == {a for a in every if not any(b[0] <= a[0] and b[1] <= a[1] for b in every - {a})}
        rates = [r["tokens_per_s"] for r in map(table.row, table.pareto(j, "gpus", "tokens_per_s"))]
        assert rates == sorted(rates)


def test_prices_are_the_users_or_the_tables_or_none() -> None:
    table = sweep("gpu=H100 SXM,L20;sequences=4")
    mine = run(replace(read("gpu=H100 SXM,L20;sequences=4", allow_paths=False), prices=prices("L20=1.5; nvidia h100 80gb hbm3=5")), Scenario(), opened, draft)
    own, unpriced = table.rows()
    first, second = mine.rows()
    assert own["usd_per_gpu_hour"] == find("H100 SXM").price_usd_per_hour
    assert first["usd_per_million_tokens"] == pytest.approx(own["usd_per_million_tokens"] * 5 / own["usd_per_gpu_hour"], rel=1e-12)
    assert (unpriced["usd_per_gpu_hour"], unpriced["usd_per_million_tokens"]) == (None, None)
    assert second["usd_per_gpu_hour"] == 1.5
    by_option = sweep("gpu=L20;sequences=4", Scenario(price_per_gpu_hour=3.0))
    assert by_option.blocks[0].price == 3.0


def test_a_load_that_does_not_fit_has_no_cost_and_meets_nothing() -> None:
    (row,) = sweep("gpu=L4;tokens=8000;sequences=500", Scenario()).rows()
    assert row["limited_by"] == "pool"
    assert (row["meets_targets"], row["usd_per_million_tokens"]) == (False, None)


def test_progress_and_cancel() -> None:
    seen: list[tuple[int, int]] = []

    def step(done: int, total: int) -> bool:
        seen.append((done, total))
        return done < 150

    table = sweep("gpu=H100 SXM,H200 SXM,L4;tokens=1..50;sequences=1,2", step=step)
    assert not table.complete
    assert table.points == 100
    assert seen[-1] == (200, 300)
    whole = []
    assert sweep("tp=1,3;engine=vllm,llamacpp;tokens=1..5;sequences=1,2", step=lambda done, total: whole.append((done, total)) or True).complete  # type: ignore[func-returns-value]
    assert [d for d, _ in whole] == sorted(d for d, _ in whole)
    assert whole[-1][0] <= 40


# -- grids ------------------------------------------------------------------------------------------------------------------


def test_texts_and_files_are_the_same_grid(tmp_path: Path) -> None:
    given = read("gpu=h100 sxm, H200 SXM;tp=auto,1;batch=1..8*2,5;tokens=100..300:100,100;target-itl=50ms")
    assert dict(given.axes) == {
        "gpu": ("H100 SXM", "H200 SXM"),
        "tp": (None, 1),
        "sequences": (1, 2, 4, 8, 5),
        "tokens": (100, 200, 300),
        "target_itl": (0.05,),
    }
    toml = tmp_path / "g.toml"
    toml.write_text('gpu = ["h100 sxm", "H200 SXM"]\ntp = ["auto", 1]\nbatch = ["1..8*2", 5]\ntokens = "100..300:100"\ntarget_itl = 0.05\n[price]\nL4 = 0.5\n')
    assert from_file(toml) == replace(given, prices=(("L4", 0.5),))
    js = tmp_path / "g.json"
    js.write_text('{"gpu": ["h100 sxm", "H200 SXM"], "tp": ["auto", 1], "batch": ["1..8*2", 5], "tokens": ["100..300:100"], "target_itl": 0.05}')
    assert read(str(js)) == given
    assert given.points == 2 * 2 * 5 * 3
    prompts = read("prompt=100,200;output=10")
    assert [(s.tokens, s.prompt, s.output) for s in prompts.loads(Scenario())[0]] == [(110, 100, 10), (210, 200, 10)]


BAD = (
    ("tokens=1..2000001:200;sequences=1..201", "tokens"), ("tokens=1..99999999", "tokens"), ("sequences=0", "sequences"), ("tokens=5..1", "tokens"),
    ("tokens=1..8*1", "tokens"), ("nonsense=1", "nonsense"), ("lengths=1+1", "lengths"), ("target_itl=1,2", "target_itl"), ("tp=", "tp"), ("tp", "grid"),
    ("tp=1;tp=2", "grid"), ("batch=1;sequences=2", "sequences"), ("kv_dtype=fp7", "kv_dtype"), ("tp=nan", "tp"), ("memory_fraction=nan", "memory_fraction"),
    ("tp=1..75;pp=1..75", "tp"), ("engine=llamacpp;gpu=RTX 4090;tokens=1..200;sequences=1..101", "engine"), ("=1", "grid"), ("tokens=1..2..3", "tokens"),
    ("tp=" + "9" * 5000, "tp"), ("sequences=1" * 200_000, "grid"),
)  # fmt: skip


@pytest.mark.parametrize(("grid", "field"), BAD)
def test_what_cannot_be_is_refused_with_its_field(grid: str, field: str) -> None:
    with refused(InvalidInput, field):
        sweep(grid)


def test_hostile_mappings_and_prices(tmp_path: Path) -> None:
    for raw, field in (({"tp": [[1]]}, "tp"), ({"tp": {"a": 1}}, "tp"), ({"tp": None}, "tp"), ({"tp": True}, "tp"), ({"price": [1]}, "price"),
                       ({"price": {"L4": "nan"}}, "price"), ({"price": {"L4": -1}}, "price"), ({"price": {"L4": True}}, "price"),
                       ({"price": {"L4": [1]}}, "price"), ({"tokens": [1.5]}, "tokens"), ({"gpu": [3]}, "gpu")):  # fmt: skip
        with refused(InvalidInput, field):
            from_mapping(raw)
    with refused(UnknownName, "gpu"):
        read("gpu=no such thing")
    with refused(UnknownName, "gpu"):
        prices("no such thing=3")
    for name, data in (("a.toml", b"\xff\xfe"), ("b.toml", b"tp = ["), ("c.toml", b"a = " + b"[" * 50_000), ("d.toml", b"x" * 1_100_000), ("e.toml", None)):
        path = tmp_path / name
        if data is not None:
            path.write_bytes(data)
        with refused(InvalidInput, "grid"):
            from_file(path)
    bad = tmp_path / "f.json"
    bad.write_text("[" * 5000)
    with pytest.raises(PlannerError):
        from_file(bad)


def test_a_model_that_cannot_be_read_spoils_no_other() -> None:
    table = sweep("model=Llama-3.1-8B,no-such-model;sequences=1")
    assert [r["state"] for r in table.rows()] == ["fits", "refused"]
    with pytest.raises(PlannerError):
        sweep("model=no-such-model;sequences=1")


# -- the command line -----------------------------------------------------------------------------------------------------


def test_the_command_writes_every_point(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "points.csv"
    words = "sweep Llama-3.1-8B --grid tp=1,3;gpu=L40S,L4 --grid sequences=1,8 --target-itl 50ms --price L4=0.5".split() + ["-o", str(out)]
    assert main([*words, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    rows = list(csv.DictReader(io.StringIO(out.read_text(encoding="utf-8-sig"))))
    assert (answer["points"], answer["refused"], answer["written"]) == (len(rows), 4, str(out)) == (8, 4, str(out))
    assert answer["by_length"][0]["cheapest"][0]["meets_targets"]
    assert {r["state"] for r in rows} == {"fits", "no", "refused"}
    assert {r["usd_per_gpu_hour"] for r in rows if r["gpu"] == "L4" and r["state"] != "refused"} == {"0.5"}
    assert main(words) == 0
    assert "Cheapest at 8,192 tokens" in capsys.readouterr().out
    assert main(["sweep", "Llama-3.1-8B", "--grid", "tp=3", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["refusals"][0]["field"] == "tp"
    for wrong in (["sweep", "--grid", "tp=1"], ["sweep", "Llama-3.1-8B"], ["sweep", "Llama-3.1-8B", "--grid", str(tmp_path / "none.toml")]):
        assert main(wrong) == 2
        assert json.loads(capsys.readouterr().out)["error"]["hint"]


def test_texts_that_a_spreadsheet_would_run_are_quoted() -> None:
    def harmless(name: str) -> tuple[ModelSpec, Mapping[str, Any]]:
        return opened("Llama-3.1-8B")

    table = run(read("sequences=1", allow_paths=False), Scenario(model="=HYPERLINK(1)"), harmless, draft)
    out = io.StringIO()
    assert write_csv(table, out) == 1
    assert out.getvalue().splitlines()[1].startswith("'=HYPERLINK(1),")
