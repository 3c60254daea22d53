"""The report as a workbook: a sheet a table, numbers as numbers, charts that Excel draws from the cells. No cell is ever a formula."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import xlsxwriter

from planner.messages import render
from planner.report import colours, pictures
from planner.report.content import Report, build
from planner.report.table import Figure, Table
from planner.units import gib_number

if TYPE_CHECKING:
    from planner.report import Request

EXACT = 2**53  # whole numbers beyond it lose digits in a cell's double: written as text
MAX_NAME, WIDEST, NARROWEST = 31, 70, 8
MOST_LINES = 6  # of the chart over context lengths
_UNIT = re.compile(r"[\w %/]{0,20}")  # goes into a number format between quotes
_FORBIDDEN = str.maketrans(dict.fromkeys("[]:*?/\\'", " "))
_SAFE = {"strings_to_formulas": False, "strings_to_urls": False, "strings_to_numbers": False, "in_memory": True, "nan_inf_to_errors": True}


def write(r: Request) -> bytes:
    c, out = build(r), io.BytesIO()
    book = xlsxwriter.Workbook(out, _SAFE)
    # A workbook carries the time of its making: the report's own date, so that the same plan is the same bytes.
    date = datetime.fromisoformat(r.created) if r.created else datetime(2000, 1, 1)
    book.set_properties({"title": c.title, "comments": c.verdict, "author": c.made_by, "created": date})
    w = _Writer(book)
    _summary(w, c)
    for t in c.all_tables:
        _sheet(w, t)
        if t.key == "ledger":
            _bars(w, c)
            _heat(w, c)
    book.close()
    return out.getvalue()


class _Writer:
    """One workbook: its formats, and cells that are a number or a text, nothing else."""

    def __init__(self, book: Any) -> None:
        self.book, self._formats, self._names = book, dict[tuple[tuple[str, Any], ...], Any](), set[str]()

    def format(self, **choices: Any) -> Any:
        """Each kind once."""
        key = tuple(sorted(choices.items()))
        if key not in self._formats:
            self._formats[key] = self.book.add_format({"font_name": "Arial", "font_size": 10, "valign": "top", **choices})
        return self._formats[key]

    def sheet(self, name: str) -> Any:
        plain = name.translate(_FORBIDDEN)[:MAX_NAME].strip() or "Sheet"
        while plain.lower() in self._names:
            plain = f"{plain[: MAX_NAME - 2]} 2"
        self._names.add(plain.lower())
        sheet = self.book.add_worksheet(plain)
        sheet.hide_gridlines(2)
        sheet.set_landscape()
        sheet.set_paper(9)
        sheet.fit_to_pages(1, 0)
        return sheet

    def cell(self, sheet: Any, row: int, column: int, cell: str, **choices: Any) -> None:
        if isinstance(cell, Figure) and abs(cell.value) <= EXACT and _UNIT.fullmatch(cell.unit):
            sheet.write_number(row, column, cell.value, self.format(num_format=_number_format(cell), align="right", **choices))
        elif cell:
            sheet.write_string(row, column, cell, self.format(**choices))

    def heading(self, sheet: Any, row: int, cells: Iterable[str], numeric: frozenset[int] = frozenset()) -> None:
        for i, cell in enumerate(cells):
            sheet.write_string(row, i, cell, self.format(bold=True, bottom=1, bg_color="#EEF1F4", text_wrap=True, align="right" if i in numeric else "left"))


def _number_format(f: Figure) -> str:
    unit = f' "{f.unit}"' if f.unit else ""
    return f"#,##0{'.' + '0' * f.digits if f.digits else ''}{unit}"


def _summary(w: _Writer, c: Report) -> None:
    s = w.sheet(render("report.sheet.summary"))
    s.set_column(0, 0, 52)
    s.set_column(1, 2, 26)
    s.write_string(0, 0, c.title, w.format(bold=True, font_size=16))
    if c.created:
        s.write_string(1, 0, render("report.created", {"date": c.created, "program": c.made_by}), w.format(font_color="#5B6675"))
    state = {"no": "#B3402A", "tight": "#8A5A00"}.get(c.state, "#0A6358")
    s.write_string(3, 0, c.verdict, w.format(bold=True, font_size=12, font_color=state))
    w.heading(s, 5, (render(f"report.column.{x}") for x in ("line", "value", "exact")), frozenset((1, 2)))
    at = 6
    for fact in c.facts:
        for i, cell in enumerate(fact):
            w.cell(s, at, i, cell)
        at += 1
    s.write_string(at + 1, 0, render("report.section.formula"), w.format(bold=True))
    for line in (*c.formula, c.gap):
        at += 1
        s.write_string(at + 1, 0, line, w.format(font_name="Consolas"))


def _sheet(w: _Writer, t: Table) -> None:
    s = w.sheet(render(f"report.sheet.{t.key}"))
    w.heading(s, 0, t.columns, t.numeric)
    s.freeze_panes(1, 0)
    for i, column in enumerate(t.columns):
        widest = max((len(row[i]) for row in t.rows), default=0)
        s.set_column(i, i, min(WIDEST, max(NARROWEST, widest + 2, min(len(column) + 2, 16))))
    for n, row in enumerate(t.rows, 1):
        for i, cell in enumerate(row):
            w.cell(s, n, i, cell, text_wrap=len(cell) > WIDEST)
    if not t.rows:
        s.write_string(1, 0, render("report.none"), w.format())


def _bars(w: _Writer, c: Report) -> None:
    """The ledger again as a matrix, ranks by lines, and the stacked bars over it: a chart needs its series side by side."""
    s = w.sheet(render("report.sheet.bars"))
    codes = sorted({code for _, lines in c.ranks for code, _, _ in lines}, key=colours.place)
    names = {code: name for _, lines in c.ranks for code, name, _ in lines}
    w.heading(s, 0, (render("report.column.rank"), *(names[code] for code in codes)), frozenset(range(1, len(codes) + 1)))
    s.set_column(0, 0, 26)
    s.set_column(1, len(codes), 16)
    for row, (label, lines) in enumerate(c.ranks, 1):
        s.write_string(row, 0, label, w.format())
        sizes: dict[str, int] = {}
        for code, _, size in lines:
            sizes[code] = sizes.get(code, 0) + size
        for i, code in enumerate(codes, 1):
            size = sizes.get(code, 0)
            s.write_number(row, i, gib_number(size), w.format(num_format='#,##0.00 "GiB"', align="right"))
    chart, last = w.book.add_chart({"type": "bar", "subtype": "stacked"}), len(c.ranks)
    for i, code in enumerate(codes, 1):
        if any(size > 0 for _, lines in c.ranks for line, _, size in lines if line == code):
            chart.add_series({"name": [s.name, 0, i], "categories": [s.name, 1, 0, last, 0], "values": [s.name, 1, i, last, i],
                              "fill": {"color": colours.of(code)}, "gap": 60})  # fmt: skip
    chart.set_title({"name": render("report.chart.ledger"), "name_font": {"size": 12}, "overlay": False})
    chart.set_x_axis({"name": render("report.axis.gib"), "num_format": "#,##0", "major_gridlines": {"visible": True, "line": {"color": "#E4E8ED"}}})
    chart.set_y_axis({"reverse": True, "crossing": "max"})  # the first rank on top, the scale below
    chart.set_legend({"position": "bottom"})
    chart.set_size({"width": 960, "height": 260 + 34 * last})
    s.insert_chart(last + 2, 0, chart, {"description": render("page.bar.alt")})


def _heat(w: _Writer, c: Report) -> None:
    """GiB a rank by context length and sequences, shaded as everywhere; the chart's dashed line is the pool: what lies above it does not fit."""
    s, h = w.sheet(render("report.sheet.heat")), c.heat
    s.write_string(0, 0, render("report.heat.legend"), w.format())
    w.heading(s, 2, (render("report.heat.corner_tokens"),))
    for i, n in enumerate(h.sequences, 1):
        s.write_number(2, i, n, w.format(bold=True, bottom=1, bg_color="#EEF1F4", num_format="#,##0", align="right"))
    pool, shades = len(h.sequences) + 1, dict(pictures.heat_rows(h))
    s.write_string(2, pool, render("report.series.pool"), w.format(bold=True, bottom=1, bg_color="#EEF1F4", align="right"))
    s.set_column(0, 0, 18)
    s.set_column(1, pool, 11)
    for row, length in enumerate(h.tokens):
        s.write_number(3 + row, 0, length, w.format(bold=True, num_format="#,##0", align="right"))
        for column, n in enumerate(h.sequences, 1):
            cell = shades[n][row]
            number = "#,##0.00" if cell.fits else '"("#,##0.00")"'
            look = {"bg_color": cell.colour, "italic": not cell.fits, "font_color": colours.PAPER if cell.dark else colours.INK}
            s.write_number(3 + row, column, gib_number(h.rank_bytes[column - 1][row]), w.format(num_format=number, align="right", **look))
        s.write_number(3 + row, pool, gib_number(max(0, c.pool_bytes)), w.format(num_format="#,##0.00", align="right"))
    last, step = 2 + len(h.tokens), max(1, -(-len(h.sequences) // MOST_LINES))
    chart = w.book.add_chart({"type": "scatter", "subtype": "straight_with_markers"})
    shown = range(1, 1 + len(h.sequences), step)
    for i, column in enumerate(shown):
        colour = colours.LINES[i % len(colours.LINES)]
        name = render("report.series.sequences", {"sequences": h.sequences[column - 1]})
        marker = {"type": "circle", "size": 5, "fill": {"color": colour}, "border": {"color": colour}}
        chart.add_series({"name": name, "categories": [s.name, 3, 0, last, 0], "values": [s.name, 3, column, last, column],
                          "line": {"color": colour, "width": 2}, "marker": marker})  # fmt: skip
    if c.pool_bytes > 0:
        chart.add_series({"name": [s.name, 2, pool], "categories": [s.name, 3, 0, last, 0], "values": [s.name, 3, pool, last, pool],
                          "line": {"color": "#B3402A", "width": 1.5, "dash_type": "dash"}, "marker": {"type": "none"}})  # fmt: skip
    chart.set_title({"name": render("report.chart.heat"), "name_font": {"size": 12}})
    ends = {"min": h.tokens[0], "max": h.tokens[-1]} if len(h.tokens) > 1 else {}
    chart.set_x_axis({"name": render("report.axis.tokens"), "log_base": 2, "num_format": "#,##0", "num_font": {"rotation": -45}, "crossing": "min", **ends})
    lines = {"visible": True, "line": {"color": "#E4E8ED"}}
    chart.set_y_axis({"name": render("report.axis.gib"), "log_base": 10, "num_format": "General", "major_gridlines": lines, "crossing": "min"})
    chart.set_legend({"position": "bottom"})
    chart.set_size({"width": 960, "height": 420})
    s.insert_chart(last + 2, 0, chart, {"description": render("page.heat.alt")})
