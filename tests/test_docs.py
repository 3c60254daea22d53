"""What the documents say about the project is held against it."""

from __future__ import annotations

import re

import pytest

from planner.api import answer
from planner.engines import ENGINES
from planner.readers import READERS
from planner.report.text import text as printed
from tests.conftest import ROOT

DOCS = ("README.md", "docs/guide.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")


def text(name: str) -> str:
    return (ROOT / name).read_text()


@pytest.mark.parametrize("name", DOCS)
def test_every_path_exists(name: str) -> None:
    for word in re.findall(r"`([\w./-]+)`|\]\(([\w./-]+)\)", text(name)):
        path = word[0] or word[1]
        if "/" in path or path.endswith((".py", ".md", ".txt", ".toml", ".png")):
            places = [ROOT / room / path for room in ("", "planner", "planner/readers", "planner/engines", "pages", "tests")]
            elsewhere = path.startswith(("../", "/usr", "org/", "config"))
            assert elsewhere or any(p.exists() for p in places), f"{name} names {path}"


def test_every_file_that_code_names_exists() -> None:
    gone = []
    for folder in ("planner", "pages", "gpu_probe", "tests"):
        for path in sorted(p for p in (ROOT / folder).rglob("*") if p.suffix in (".py", ".toml", ".md")):
            named = re.findall(r"(?<![\w/.-])(?:planner|pages|gpu_probe|tests)/[\w/]+\.(?:py|toml|md|json)\b", path.read_text())
            gone += [f"{path.relative_to(ROOT)} names {n}" for n in named if not (ROOT / n).exists()]
    assert not gone


def test_the_number_followed_is_the_products() -> None:
    figure = 1_073_741_824
    assert f"{figure:,}" in text("ARCHITECTURE.md")
    assert answer("kv", "catalog:Llama-3.1-8B", {"tokens": 8192})["architecture_bytes"] == figure


def test_the_latent_followed_is_the_products() -> None:
    base = {"gpu": "H200 SXM", "gpus": 8, "tp": 8, "tokens": 8192, "sequences": 16}
    plain, apart = (answer("plan", "catalog:DeepSeek-V3", base | more) for more in ({}, {"dp_attention": 8}))
    for figure in (plain["architecture_bytes"], plain["engine_bytes"], apart["engine_bytes"]):
        assert f"{figure:,} bytes" in " ".join(text("ARCHITECTURE.md").split())


def test_the_readmes_ledger_is_the_products() -> None:
    out = answer("plan", "catalog:Llama-3.1-8B", {"gpu": "H100 SXM", "tokens": 8192, "sequences": 16})
    readme = text("README.md")
    for line in printed("plan", out).splitlines():
        if line.startswith(("Fits", "  ")):
            assert line in readme.splitlines(), line
    for line in out["rank_ledgers"][0]:
        assert f"{line['bytes']:,}" in readme, line["name"]
    for figure in (out["num_blocks"], out["kv_tokens"], sum(line["bytes"] for line in out["rank_ledgers"][0])):
        assert f"{figure:,}" in readme
    assert f"{out['max_sequences']} sequences of 8,192 tokens" in readme


def test_every_engine_and_the_number_of_readers_are_documented() -> None:
    for name in ENGINES:
        assert name in text("README.md")
    assert f"{len(READERS)} model types" in text("CHANGELOG.md")
    assert f"{len(READERS)} model types" in text("README.md")


def test_the_commands_of_the_readme_are_targets() -> None:
    targets = set(re.findall(r"^([a-z-]+):", text("Makefile"), re.MULTILINE))
    for name in DOCS:
        assert set(re.findall(r"make ([a-z-]+)", text(name))) - {"sure"} <= targets | {"lint"}


def test_the_readme_says_what_the_table_of_times_says() -> None:
    """docs/latency.md is held against the measured rows by tests/test_latency_table.py; the README against it here."""

    def row(name: str) -> list[float]:
        line = next(x for x in (ROOT / "docs" / "latency.md").read_text().splitlines() if x.startswith(f"| {name} |"))
        return [float(m) for m in re.findall(r"(?<![\w.])\d+(?:\.\d+)?", line.removeprefix(f"| {name} |"))]

    text = " ".join((ROOT / "README.md").read_text().split())
    dense, experts, aside, everything = (row(f"**{n}**") for n in ("dense", "experts", "all held out", "all"))
    said = re.search(r"ITL error (\d+) % on dense models, (\d+) % with experts, (\d+) % on families that had no part in the fit", text)
    assert said
    assert [int(x) for x in said.groups()] == [round(x[1]) for x in (dense, experts, aside)]
    assert "nineteen in twenty inside the printed range" in text
    assert everything[3] >= 95
    first = re.search(r"TTFT: (\d+) % inside the range, of which the median spans a factor of ([\d.]+); with a family left out of the fit (\d+) %", text)
    assert first
    assert [float(x) for x in first.groups()] == [round(everything[5]), everything[6], round(row("**each family in turn**")[-2])]
    after = re.search(r"After three measured points of a deployment: ITL error (\d+) % mean, (\d+) % median", text)
    assert after
    assert [int(x) for x in after.groups()] == [round(x) for x in row("ITL calibrated")[:2]]
