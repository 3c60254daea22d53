"""Reports: every format reads back, says the same figures, calls nothing outside, and is the same bytes for the same plan and date."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from planner.api import SWITCHES, answer
from planner.capacity import CapacityPlan, plan
from planner.errors import InvalidInput, PlannerError
from planner.hardware import find
from planner.heatmap import heat_map
from planner.readers import read_config
from planner.report import FORMATS, file_name, render, write
from planner.report.csv import safe
from planner.report.text import text
from planner.saved import is_report, read_back
from planner.scenario import Scenario
from planner.sources import load
from tests.conftest import ROOT, refused

PROVENANCE = {"kind": "hub", "repo_id": "org/model", "commit": "a" * 40, "sha256": "b" * 64}
HOSTILE = '=HYPERLINK("http://example.com","x")<script>alert(1)</script>|![x](http://example.com/x.png)'


def made(name: str = "Llama-3.1-8B", model_name: str = "", **choices: object) -> CapacityPlan:
    raw = load(f"catalog:{name}").raw
    s = Scenario(model=name, **choices)  # type: ignore[arg-type]
    return plan(read_config(raw, model_name or name), find(s.gpu), s)


class Links(HTMLParser):
    """Collects every attribute that could fetch, and all text."""

    def __init__(self) -> None:
        super().__init__()
        self.fetches: list[str] = []
        self.tags: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetches += [f"{tag} {k}={v}" for k, v in attrs if k in ("src", "href", "srcset", "action", "data", "xlink:href") or "url(" in (v or "")]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.mark.parametrize("fmt", FORMATS)
def test_the_same_plan_and_date_are_the_same_bytes(fmt: str) -> None:
    first, second = (render(made(), fmt, PROVENANCE, created="2026-01-02") for _ in range(2))
    assert first == second
    assert first != render(made(sequences=17), fmt, PROVENANCE, created="2026-01-02")
    other = render(made(), fmt, PROVENANCE, created="2026-01-03")
    if fmt in ("xlsx", "pdf"):  # packed
        assert other != first
    else:
        assert first.replace(b"2026-01-02", b"2026-01-03") == other


@pytest.mark.parametrize("fmt", [f for f in FORMATS if f not in ("xlsx", "pdf")])
def test_every_format_holds_what_a_reader_needs(fmt: str) -> None:
    body = render(made(), fmt, PROVENANCE, created="2026-01-02").decode()
    for part in ("2 x 32 layers x 8 KV heads x 128", "16.00 GiB", "a" * 40, "b" * 64, "vLLM 0.33 v1/worker/utils.py", "org/model"):
        assert part in body.replace("\\", ""), part
    assert "17179869184" in body.replace(",", "")


def test_json_reads_back_to_the_same_plan() -> None:
    raw = load("catalog:Gemma-3-27B").raw
    p = made("Gemma-3-27B", tokens=5000, sequences=3, kv_dtype="bf16", prefix_caching=False)
    body = json.loads(render(p, "json", PROVENANCE, config=raw, created="2026-01-02"))
    assert is_report(body)
    saved = read_back(body)
    again = plan(read_config(saved.config or {}, saved.name), find(saved.scenario.gpu), saved.scenario)
    assert again == p
    assert body["kv_pool_bytes"] == p.kv_pool_bytes
    assert all(i["holds"] for i in body["identities"])
    h = heat_map(p)
    assert body["heat_map"]["bytes_per_rank"] == [list(row) for row in h.rank_bytes]


@pytest.mark.parametrize(
    ("change", "field"),
    [({"scenario": None}, "scenario"), ({"config": []}, "config"), ({"provenance": 1}, "provenance"), ({"scenario": {"tokens": "x"}}, "tokens"),
     ({"scenario": {"speed": 1}}, "speed")],
)  # fmt: skip
def test_a_damaged_saved_plan_names_its_part(change: dict[str, object], field: str) -> None:
    body = json.loads(render(made(), "json", PROVENANCE, config={}, created="2026-01-02"))
    with refused(PlannerError, field):
        read_back({**body, **change})


def test_html_is_one_file_and_user_text_stays_text() -> None:
    p = made(model_name=HOSTILE)
    found = Links()
    found.feed(render(p, "html", {**PROVENANCE, "file_name": HOSTILE}, created="2026-01-02").decode())
    assert found.fetches == []
    assert not {"script", "img", "link", "iframe", "object"} & set(found.tags)
    assert {"svg", "table"} <= set(found.tags)
    assert HOSTILE in "".join(found.text)


def test_the_bars_of_the_html_are_the_ledger() -> None:
    p = made(sequences=64)
    body = render(p, "html", PROVENANCE, created="2026-01-02").decode()
    lines = [line for line in p.ledgers[0] if line.bytes > 0]
    widths = [float(w) for w in re.findall(r'<rect [^>]*width="([\d.]+)"', body)]
    assert len(widths) == len(lines)
    whole = sum(line.bytes for line in lines)
    assert sorted(widths) == pytest.approx(sorted(900 * line.bytes / whole for line in lines), abs=0.01)


def test_csv_is_safe_in_a_spreadsheet_and_its_ledger_sums_to_the_device() -> None:
    p = made(model_name=HOSTILE, gpus=2)
    body = render(p, "csv", {"name": HOSTILE}, created="2026-01-02").decode("utf-8-sig")
    rows = list(csv.reader(io.StringIO(body)))
    assert not [c for row in rows for c in row if c.startswith(("=", "+", "@", "\t", "\r"))]
    assert any("'=HYPERLINK" in c for row in rows for c in row)
    ledger = [row for row in rows if row[0] == "ledger"][1:]
    assert sum(int(row[4]) for row in ledger) == p.hardware.memory_bytes  # type: ignore[union-attr]
    heat = [r for r in rows if r[0] == "heat_map"]
    assert heat[0][1:] == ["Tokens of a sequence", "Sequences", "Bytes"]
    assert len(heat) == 1 + len(heat_map(p).tokens) * len(heat_map(p).sequences)


@pytest.mark.parametrize(
    ("cell", "kept"),
    [("=1", "'=1"), ("+1", "'+1"), ("@x", "'@x"), ("-x", "'-x"), ("-1+2", "'-1+2"), ("-12", "-12"), ("-", "-"), ("", ""), ("a", "a")],
)
def test_cells_that_would_run_get_an_apostrophe(cell: str, kept: str) -> None:
    assert safe(cell) == kept


def test_markdown_tables_hold_and_user_text_is_no_markup() -> None:
    body = render(made(model_name=HOSTILE), "md", PROVENANCE, created="2026-01-02").decode()
    assert "![x](" not in body
    assert "<script>" not in body
    for block in re.findall(r"(?:^\|.*\n)+", body, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1


def test_the_ledger_of_unequal_ranks_is_told_apart() -> None:
    p = made("DeepSeek-V3", gpus=16, tp=8, pp=2)
    body = render(p, "md", PROVENANCE, created="2026-01-02").decode().replace("\\", "")
    assert "8 equal ranks (0 to 7)" in body
    assert "8 equal ranks (8 to 15)" in body


def test_a_probe_goes_in() -> None:
    row = {"name": "KV bytes held", "predicted": 10, "measured": 10, "how": "storage", "unit": "bytes"}
    probe = {"rows": [row], "itl_s": {"p50": 0.01, "p90": 0.02, "p99": 0.03},
             "ttft_s": 0.5, "tokens_per_s": 9.5, "backend": "b", "device": "cpu"}  # fmt: skip
    assert "10.0 ms" in render(made(), "html", PROVENANCE, probe, created="2026-01-02").decode()
    assert json.loads(render(made(), "json", PROVENANCE, probe, created="2026-01-02"))["probe"] == probe


def test_what_does_not_fit_says_why_in_every_state() -> None:
    for choices, said in (
        ({"sequences": 64}, "need 9.61 GiB more"),
        ({"gpu": "T4"}, "leave no pool"),
        ({"tokens": 200_000}, "beyond the limit of 131,072"),
        ({"gpu": "L4", "tokens": 1000, "sequences": 1}, "Does not start"),
        ({"sequences": 54}, "Fits tightly"),
    ):
        assert said in render(made(**choices), "md", PROVENANCE, created="2026-01-02").decode(), choices


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(InvalidInput) as caught:
        render(made(), "docx", PROVENANCE)
    assert caught.value.field == "format"


def test_file_names_are_safe() -> None:
    assert file_name(made(model_name="org/../a b=c"), "json") == "kv-plan_org-..-a-b-c.json"


def test_the_command_line_writes_the_same_plan(tmp_path: Path) -> None:
    out = tmp_path / "r.json"
    words = ["report", "catalog:Llama-3.1-8B", "--gpu", "H100 SXM", "--tokens", "8192", "--concurrency", "16", "--format", "json", "-o", str(out)]
    subprocess.run([sys.executable, "-m", "planner", *words], cwd=ROOT, check=True, timeout=60)
    body = json.loads(out.read_text())
    same = answer("plan", "catalog:Llama-3.1-8B", {"gpu": "H100 SXM", "tokens": 8192, "sequences": 16})
    assert all(body[k] == same[k] for k in ("kv_pool_bytes", "rank_ledgers", "scenario", "num_blocks"))
    assert body["config"]["num_hidden_layers"] == 32
    assert write("catalog:Llama-3.1-8B", {"gpu": "L4", "tokens": 1000}, "md").startswith(b"# Capacity report")


@pytest.mark.parametrize(
    ("command", "options", "said"),
    [
        ("read", {}, "32 layers, 8,030,261,248 parameters"),
        ("kv", {"tokens": 8192}, "1.00 GiB (1,073,741,824 bytes)"),
        ("plan", {"tokens": 8192, "sequences": 16}, "Fits: 38.39 GiB free"),
        ("plan", {"tokens": 8192, "sequences": 64, "remedies": True}, "KV cache in fp8: fits"),
    ],
)
def test_readable_output(command: str, options: dict[str, object], said: str) -> None:
    assert said in text(command, answer(command, "catalog:Llama-3.1-8B", options))


SMALL = {"prompt": 256, "output": 16, "sequences": 2}


@pytest.mark.parametrize("name", [*SWITCHES, "trace", "request_rate", "price_per_gpu_hour", "acceptance_rate", "target_itl"])
def test_what_is_asked_beside_a_plan_is_printed(name: str, tmp_path: Path) -> None:
    """A switch that only --json shows would be silence to a reader."""
    file = tmp_path / "trace.csv"
    file.write_text("prompt,output\n100,20\n")
    given = {"trace": str(file), "request_rate": 1.0, "price_per_gpu_hour": 2.0, "acceptance_rate": 0.7, "target_itl": "1ms"}
    base: dict[str, object] = {"tokens": 8192, "sequences": 64} if name == "remedies" else SMALL
    base = base | ({"request_rate": 1.0} if name == "price_per_gpu_hour" else {})
    plain, asked = (text("plan", answer("plan", "catalog:Llama-3.1-8B", base | more)) for more in ({}, {name: given.get(name, True)}))
    assert set(plain.splitlines()) != set(asked.splitlines())


def test_the_ledger_is_printed_to_the_byte() -> None:
    out = answer("plan", "catalog:Llama-3.1-8B", {"gpu": "H100 SXM", "tokens": 8192, "sequences": 16})
    printed = [int(m.replace(",", "")) for m in re.findall(r"^ +([\d,]+) bytes .*GiB", text("plan", out), re.MULTILINE)]
    assert printed == [line["bytes"] for line in out["rank_ledgers"][0]]


@pytest.mark.parametrize("options", [{"target_itl": "30ms", "target_ttft": "1s"}, {"request_rate": 2.0, "prefix_hit_rate": 0.5, "price_per_gpu_hour": 2.5},
                                     {"calibration": "1.2500;0.0300;3;points;H100 SXM;vllm;Llama-3.1-8B", "prefill_policy": "whole"}])  # fmt: skip
def test_choices_that_have_no_input_of_their_own_are_named_too(options: dict[str, object]) -> None:
    said = write("catalog:Llama-3.1-8B", options, "csv").decode("utf-8-sig")
    assert all(name in said for name in options)
