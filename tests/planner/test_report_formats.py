"""Each format read back by another program: the same figures, nothing that runs, the same bytes in another process."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import openpyxl
import pandas
import pypdf
import pytest
from markdown_it import MarkdownIt

from planner.errors import NotAConfig
from planner.messages import en
from planner.report import FORMATS, MIME, colours, extras, fonts, pdf, program, render
from planner.report.table import Figure, cleaned, printable
from planner.scenario import ENGINE_NAMES
from tests.conftest import ROOT
from tests.planner.test_report import HOSTILE, PROVENANCE, made
from tests.planner.test_saved import LOG, PROBE, SUITE

DATE = "2026-01-02"
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("Llama-3.1-8B", {}),
    "ranks": ("DeepSeek-V3", {"gpus": 32, "tp": 8, "pp": 4}),
    "no fit": ("Llama-3.1-8B", {"gpu": "L4", "sequences": 64, "lengths": "64+64:3,100+1"}),
    "pools": ("Gemma-3-27B", {"engine": "sglang", "gpus": 2, "tp": 2}),
}
Rows = list[list[str]]


def html_rows(data: bytes) -> Rows:
    class Reader(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.rows: Rows = []

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag == "tr":
                self.rows = [*self.rows, []]
            if tag in ("td", "th"):
                self.rows[-1].append("")

        def handle_data(self, text: str) -> None:
            if self.rows and self.rows[-1]:
                self.rows[-1][-1] += text

    reader = Reader()
    reader.feed(data.decode())
    return reader.rows


def md_rows(data: bytes) -> Rows:
    rows: Rows = []
    for token in MarkdownIt("commonmark").enable("table").parse(data.decode()):
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline" and rows:
            rows[-1].append("".join(child.content for child in token.children or ()))
    return rows


def csv_rows(data: bytes) -> Rows:
    frame = pandas.read_csv(io.BytesIO(data), header=None, names=range(12), dtype=str, keep_default_na=False, encoding="utf-8-sig")
    return [list(row[1:]) for row in frame.values.tolist()]


def xlsx_rows(data: bytes) -> Rows:
    book = openpyxl.load_workbook(io.BytesIO(data))
    return [["" if cell is None else str(cell) for cell in row] for sheet in book for row in sheet.iter_rows(values_only=True)]


def pdf_rows(data: bytes) -> Rows:
    """Cells in the order of the page; a row is what follows a label."""
    cells = [line.strip() for page in pypdf.PdfReader(io.BytesIO(data)).pages for line in page.extract_text().splitlines()]
    return [cells[i : i + 4] for i in range(len(cells))]


READERS: dict[str, Callable[[bytes], Rows]] = {"md": md_rows, "html": html_rows, "csv": csv_rows, "xlsx": xlsx_rows, "pdf": pdf_rows}


def numbers(cells: list[str]) -> set[int]:
    return {int(x) for cell in cells for x in re.findall(r"-?\d+", cell.replace(",", "").removesuffix(".0"))}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("fmt", sorted(READERS))
def test_five_numbers_are_those_of_the_json(fmt: str, case: str) -> None:
    name, choices = CASES[case]
    p = made(name, **choices)
    body = json.loads(render(p, "json", PROVENANCE, created=DATE))
    rows = READERS[fmt](render(p, fmt, PROVENANCE, created=DATE))
    weights = next(line for line in body["rank_ledgers"][body["binding_rank"]] if line["code"].startswith("weights"))
    wanted = {
        en.TEXT["report.fact.kv_load"]: body["engine_bytes"] * body["replicas"],
        en.TEXT["report.fact.kv_architecture"]: body["architecture_bytes"] * body["replicas"],
        en.TEXT["report.fact.kv_pool"]: body["kv_pool_bytes"],
        en.TEXT["report.fact.max_sequences"]: body["max_sequences"] * body["replicas"],
        en.TEXT["report.fact.longest_context"]: body["longest_context_tokens"],
        weights["name"]: weights["bytes"],
    }
    for label, number in wanted.items():
        found = [row for row in rows if label in row]
        assert found, label
        assert any(number in numbers(row[row.index(label) + 1 :]) for row in found), (label, number, found)


@pytest.mark.parametrize("fmt", sorted(READERS))
def test_every_section_is_in_every_format(fmt: str) -> None:
    data = render(made(lengths="64+64:3,100+1"), fmt, PROVENANCE, PROBE, suite=SUITE, reconciliation=LOG, created=DATE, config={"a": 1})
    said = " ".join(cell for row in READERS[fmt](data) for cell in row)
    sha = hashlib.sha256(b'{"a":1}').hexdigest()
    wanted = ("2 x 32 layers", "Weights (bf16)", "Ledger lines sum", "v1/worker/utils.py", "KV bytes held", "printed per group", "a" * 40, "b" * 64, sha,
              program.program()["commit"] or "KVLedger", "H100 SXM", "--max-num-seqs", "C1", "Time to first token", "all at full length")  # fmt: skip
    text = said.replace(" ", "")
    if fmt in ("md", "html"):
        text += data.decode().replace("\\", "").replace(" ", "")
    for part in wanted:
        assert part.replace(" ", "") in text, part


def test_a_changed_number_is_seen_by_the_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison above can fail: a writer that drops a digit is found in every format."""
    real = made()
    body = json.loads(render(real, "json", PROVENANCE, created=DATE))
    monkeypatch.setattr("planner.report.content.exact", lambda size: Figure(f"{int(size) // 10:,} bytes", int(size) // 10, "bytes"))
    for fmt, read in READERS.items():
        rows = [row for row in read(render(real, fmt, PROVENANCE, created=DATE)) if en.TEXT["report.fact.kv_load"] in row]
        assert rows
        assert not any(body["engine_bytes"] in numbers(row) for row in rows), fmt


# -- nothing runs ------------------------------------------------------------------------------------------------------

EVIL = {**PROBE, "rows": [{"name": HOSTILE, "predicted": 1, "measured": 2, "how": "=1+1", "unit": '";@"'}, {"name": "-1+cmd|' /C calc'!A0", "predicted": None}]}


@pytest.mark.parametrize("fmt", FORMATS)
def test_names_of_users_stay_text(fmt: str) -> None:
    provenance = {**PROVENANCE, "path": "\udcff\x00\x1b[31m=1+1", "name": HOSTILE, HOSTILE: "\u202eabc"}
    data = render(made(model_name=HOSTILE), fmt, provenance, EVIL, created=DATE, config={"a": HOSTILE}, harmless=(HOSTILE,))
    if fmt == "xlsx":
        book = openpyxl.load_workbook(io.BytesIO(data))
        cells = [cell for sheet in book for row in sheet.iter_rows() for cell in row if cell.value is not None]
        assert not [cell for cell in cells if cell.data_type == "f" or cell.hyperlink]
        assert any(HOSTILE in str(cell.value) for cell in cells)
        for name in zipfile.ZipFile(io.BytesIO(data)).namelist():
            part = zipfile.ZipFile(io.BytesIO(data)).read(name)
            assert b"<f>" not in part.replace(b"<c:f>", b"")
            assert b"hyperlink" not in part
            assert b'TargetMode="External"' not in part
    elif fmt == "pdf":
        reader = pypdf.PdfReader(io.BytesIO(data))
        assert not [a for page in reader.pages for a in page.get("/Annots") or ()]
        assert not {"/OpenAction", "/AA", "/Names"} & set(reader.trailer["/Root"])
        assert "<script>alert(1)</script>" in reader.pages[0].extract_text().replace("\n", "")
    elif fmt == "csv":
        rows = list(csv.reader(io.StringIO(data.decode("utf-8-sig"))))
        assert not [c for row in rows for c in row if c.startswith(("=", "+", "@", "\t", "\r")) or re.match(r"-[^\d]", c)]
        assert any(c == "'=1+1" for row in rows for c in row)
    elif fmt == "html":
        assert b"<script" not in data
        assert b"&lt;script&gt;" in data
    elif fmt == "json":
        assert json.loads(data)["model"] == HOSTILE
    else:
        html = MarkdownIt("commonmark").enable("table").render(data.decode())
        assert not re.search(r"<(script|img|a)\b", html)
    assert b"\x1b[31m" not in data


def test_cells_are_typed_and_charts_draw_from_them() -> None:
    data = render(made(gpus=2, tp=1, pp=2), "xlsx", PROVENANCE, created=DATE)
    book = openpyxl.load_workbook(io.BytesIO(data))
    assert len(book.sheetnames) == len({n.lower() for n in book.sheetnames})
    ledger = book["Ledger"]
    heads = [cell.value for cell in ledger[1]]
    for row in ledger.iter_rows(min_row=2):
        assert isinstance(row[heads.index("Bytes")].value, int)
        assert isinstance(row[heads.index("GiB")].value, (int, float))
        assert row[heads.index("GiB")].number_format == '#,##0.00 "GiB"'
    assert {sheet.title: len(sheet._charts) for sheet in book if sheet._charts} == {"Bars": 1, "Heat map": 1}
    files = zipfile.ZipFile(io.BytesIO(data))
    for name in [n for n in files.namelist() if n.startswith("xl/charts/")]:
        chart = files.read(name).decode()
        values = re.findall(r"<c:(?:val|yVal)><c:numRef><c:f>([^<]+)</c:f>", chart)
        assert len(values) >= 5
        for reference in values:
            sheet, cells = reference.replace("'", "").split("!")
            for row in book[sheet][cells.replace("$", "")] if ":" in cells else ((book[sheet][cells.replace("$", "")],),):
                assert isinstance(row[0].value, (int, float)), reference
    assert MIME["xlsx"].endswith("spreadsheetml.sheet")


def test_numbers_beyond_a_double_keep_their_digits() -> None:
    size = 2**60 + 1
    probe = {**PROBE, "rows": [{"name": "huge", "predicted": size, "measured": size, "unit": "bytes"}]}
    rows = xlsx_rows(render(made(), "xlsx", PROVENANCE, probe, created=DATE))
    assert next(row for row in rows if "huge" in row)[1] == f"{size:,} bytes"


# -- the PDF -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "choices"),
    [("Llama-3.1-8B", {}), ("DeepSeek-V3", {"gpus": 488, "tp": 8, "pp": 61}), ("Gemma-3-27B", {"engine": "sglang"}), ("Qwen3-Next-80B-A3B", {"gpus": 4})],
)  # fmt: skip
def test_a_pdf_has_one_to_three_pages_and_is_soon_there(name: str, choices: dict[str, Any]) -> None:
    p = made(name, **choices)
    many = {**PROBE, "rows": PROBE["rows"] * 300}
    suite = {**SUITE, "items": SUITE["items"] * 90}
    for extra in ({}, {"probe": many, "suite": suite}):
        began = time.process_time()
        data = render(p, "pdf", PROVENANCE, created=DATE, **extra)
        assert time.process_time() - began < 2
        reader = pypdf.PdfReader(io.BytesIO(data))
        assert 1 <= len(reader.pages) <= 3
        assert reader.trailer["/Root"]["/Lang"] == "en"
        assert reader.metadata is not None
        assert reader.metadata.title == f"Capacity report: {name}"
        assert f"page 1 of {len(reader.pages)}" in reader.pages[0].extract_text()
    assert "more rows: in the other formats" in "".join(page.extract_text() for page in reader.pages)


@pytest.fixture
def no_fonts(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(fonts, "folders", lambda: ())
    monkeypatch.delenv("KVLEDGER_FONT", raising=False)
    fonts.hangul.cache_clear()
    yield monkeypatch
    fonts.hangul.cache_clear()


KOREAN = "한국어 모델 模型 Łódź \N{ABACUS}"


def test_without_a_korean_font_hangul_is_text_that_readers_draw_in_theirs(no_fonts: pytest.MonkeyPatch) -> None:
    data = render(made(model_name=KOREAN), "pdf", PROVENANCE, created=DATE)
    reader = pypdf.PdfReader(io.BytesIO(data))
    assert "한국어 모델 模型 ?ód? ?" in reader.pages[0].extract_text()
    used = {str(font["/BaseFont"]) for page in reader.pages for font in (f.get_object() for f in page["/Resources"]["/Font"].values())}
    assert any(fonts.BY_NAME in name for name in used)


def test_a_font_of_the_machine_goes_into_the_file(no_fonts: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import reportlab

    (tmp_path / "NanumGothic.ttf").write_bytes((Path(reportlab.__file__).parent / "fonts" / "Vera.ttf").read_bytes())
    (tmp_path / "malgun.ttf").write_bytes(b"OTTO and no font")
    no_fonts.setattr(fonts, "folders", lambda: (tmp_path,))
    data = render(made(model_name=KOREAN), "pdf", PROVENANCE, created=DATE)
    reader = pypdf.PdfReader(io.BytesIO(data))
    assert "Łód" in reader.pages[0].extract_text()  # Vera has no Hangul
    assert b"/FontFile2" in data
    no_fonts.setenv("KVLEDGER_FONT", str(tmp_path / "malgun.ttf"))
    assert fonts.candidates()[0].name == "malgun.ttf"
    (tmp_path / "NanumGothic.ttf").unlink()
    fonts.hangul.cache_clear()
    assert fonts.hangul() == (fonts.BY_NAME, None)  # a damaged file is passed over


def test_columns_fill_the_page_and_no_more() -> None:
    for natural in ([100.0, 900.0, 40.0], [3000.0, 3000.0], [10.0, 10.0], [10.0] * 20):
        assert sum(pdf._widths(natural, {1}, pdf.WIDTH)) <= pdf.WIDTH + 1e-6
    assert pdf._widths([100.0, 900.0, 40.0], {2}, 500.0) == [100.0, 360.0, 40.0]


# -- the same everywhere -----------------------------------------------------------------------------------------------


def test_another_process_writes_the_same_bytes() -> None:
    code = (
        "import hashlib\nfrom planner.report import FORMATS, render\nfrom tests.planner.test_report import made, PROVENANCE\n"
        "p = made('DeepSeek-V3', gpus=32, tp=8, pp=4)\n"
        "print([hashlib.sha256(render(p, f, PROVENANCE, created='2026-01-02')).hexdigest() for f in FORMATS])"
    )
    said = {
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, env={"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin", "TZ": zone}, capture_output=True,
                       text=True, check=True, timeout=120).stdout
        for seed, zone in (("1", "Asia/Seoul"), ("2", "America/New_York"))
    }  # fmt: skip
    assert len(said) == 1
    assert said.pop().count("'") == 2 * len(FORMATS)


def test_writers_are_loaded_when_they_are_asked_for() -> None:
    code = (
        "import sys\nfrom planner.__main__ import main\nassert main(['kv', 'catalog:Llama-3.1-8B', '--tokens', '64']) == 0\n"
        "assert not {'reportlab', 'xlsxwriter', 'jinja2', 'openpyxl', 'pypdf'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, timeout=60, check=False).returncode == 0


def test_every_format_and_engine_without_a_device_or_a_date() -> None:
    for engine in ENGINE_NAMES:
        p = made("Llama-3.1-8B", engine=engine, kv_memory=2**34, tokens=64, sequences=1)
        for fmt in FORMATS:
            assert render(p, fmt, {}, created=""), (engine, fmt)


def test_a_part_that_is_no_result_is_refused_in_every_format() -> None:
    for fmt in FORMATS:
        with pytest.raises(NotAConfig) as caught:
            render(made(), fmt, PROVENANCE, {"rows": "x"}, created=DATE)
        assert caught.value.field == "probe"


# -- small things ------------------------------------------------------------------------------------------------------


def test_the_commit_is_read_from_the_files_of_git(tmp_path: Path) -> None:
    a, b = "a" * 40, "b" * 40
    git = tmp_path / "one" / ".git"
    (git / "refs/heads").mkdir(parents=True)
    assert program.commit_of(tmp_path / "one") is None
    (git / "HEAD").write_text(f"{a}\n")
    assert program.commit_of(tmp_path / "one") == a
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "packed-refs").write_text(f"# pack-refs\n{b} refs/heads/main\n")
    assert program.commit_of(tmp_path / "one") == b
    (git / "refs/heads/main").write_text(f"{a}\n")
    assert program.commit_of(tmp_path / "one") == a
    (git / "refs/heads/main").write_text("no commit\n")
    assert program.commit_of(tmp_path / "one") is None
    second = git / "worktrees/two"
    second.mkdir(parents=True)
    (second / "HEAD").write_text("ref: refs/heads/other\n")
    (second / "commondir").write_text("../..\n")
    (git / "refs/heads/other").write_text(f"{b}\n")
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / ".git").write_text(f"gitdir: {second}\n")
    assert program.commit_of(tmp_path / "two") == b
    assert program.commit_of(tmp_path / "three") is None


def test_texts_are_made_printable_and_encodable() -> None:
    assert printable("a\tb\x00c\u202e\udcff") == "a b?c??"
    assert len(printable("x" * 9_000)) == 2_000
    figure = Figure("1 GiB", 1.0, "GiB")
    assert printable(figure) is figure
    assert cleaned({"a\udcff": ["\udcff", 1, None, {"b": "é"}]}) == {"a?": ["?", 1, None, {"b": "é"}]}


@pytest.mark.parametrize("colour", sorted({*colours.LEDGER.values(), *colours.HEAT}))
def test_numbers_on_colours_can_be_read(colour: str) -> None:
    def luminance(c: str) -> float:
        parts = [int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        r, g, b = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    light, dark = sorted((luminance(colour), luminance(colours.ink_on(colour))), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 4.1


def test_a_log_that_agrees_within_rounding_says_so_beside_figures_that_differ() -> None:
    line = {"name": "num_blocks", "label": "Blocks", "predicted": 8_506, "reported": 8_505, "difference": 0, "cause": None}
    same = {**line, "reported": 8_506}
    found = extras.reconciliation_table({"lines": [line, same, {**line, "difference": -1}]})
    assert [row[3] for row in found.rows] == ["within rounding", "0", "-1"]


def test_a_probes_times_come_before_its_lesser_figures() -> None:
    """A PDF shows the first rows of a table."""
    row = {"name": "KV bytes held", "predicted": 8, "measured": 8, "unit": "bytes", "how": "counted"}
    probe = {"rows": [row, {**row, "name": "Block tables"}], "itl_s": {"p50": 0.1, "p90": 0.2, "p99": 0.3}, "backend": "b", "device": "cpu", "ttft_s": 0.5,
             "tokens_per_s": 9.0}  # fmt: skip
    names = [r[0] for r in extras.probe_rows(probe)]
    assert names[0] == "KV bytes held"
    assert names[-1] == "Block tables"
    assert len(names) == 7
