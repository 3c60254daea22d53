"""The report as PDF, one to three pages of A4: vector pictures, text that can be searched. Long tables are cut and say so."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from reportlab.graphics.shapes import Drawing, Line, Rect, String
from reportlab.lib.colors import HexColor
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.units import mm
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import CondPageBreak, KeepTogether, Paragraph, SimpleDocTemplate, Spacer, TableStyle
from reportlab.platypus import Table as Grid

from planner.messages import language, render
from planner.report import colours, fonts, pictures
from planner.report.content import Report, build
from planner.report.table import Table
from planner.units import count

if TYPE_CHECKING:
    from planner.report import Request

MAX_PAGES = 3
CUTS = (80, 40, 24, 16, 10, 6, 3)  # rows of a table, tried until the pages are few enough
ROOM = 130  # lines of tables on so many pages, beside the pictures: more never fit
MAX_RANKS = 6  # bars of ranks that differ
MARGIN = 15 * mm
FRAME = 6  # points that the page's frame keeps free on each side
WIDTH = A4[0] - 2 * MARGIN - 2 * FRAME
SMALL, PADDING, GAP = 7.2, 3, 14
START = 70  # points under which no table begins at the foot of a page
LONG = 8  # rows from which a narrow table is set in two halves
INK, QUIET, RULE, HEAD, RED = (HexColor(x) for x in ("#1C2430", "#5B6675", "#DDE2E8", "#F1F4F7", "#B3402A"))
STATES = {"fits": ("#0F8A7A", "#EEF7F5"), "tight": ("#B87A00", "#FCF5E6"), "no": ("#B3402A", "#FBEEEA")}


def _style(size: float, font: str = fonts.REGULAR, **choices: Any) -> ParagraphStyle:
    return ParagraphStyle(f"{font}{size}{sorted(choices.items())}", fontName=font, fontSize=size, leading=size * 1.25, textColor=INK, **choices)


TITLE = _style(15, fonts.BOLD)
DATE = ParagraphStyle("date", parent=_style(8), textColor=QUIET)
SECTION = _style(10, fonts.BOLD, spaceBefore=9, spaceAfter=3)
VERDICT = _style(10.5, fonts.BOLD)
TEXT = _style(8)
CODE = _style(7.5, fonts.MONO)
CELL = _style(SMALL, splitLongWords=1)
NUMBER = _style(SMALL, alignment=2)
HEADING = _style(SMALL, fonts.BOLD)
HEADING_NUMBER = _style(SMALL, fonts.BOLD, alignment=2)


def write(r: Request) -> bytes:
    c = build(r)
    likely = [cut for cut in CUTS if _lines(c, cut) <= ROOM] or CUTS[-1:]
    for cut in likely:
        data, pages = _set(c, cut)
        if pages <= MAX_PAGES:
            break
    return data


def _lines(c: Report, cut: int) -> int:
    """About how many lines the tables take, headings included: saves setting pages that will not do."""
    return sum(min(len(t.rows), cut) + 3 for t in _tables(c) if t.rows)


def _tables(c: Report) -> list[Table]:
    """The ledger of the rank that decides, without its name in every row; of identities by rank those that do not hold, and the first rank's."""
    yes = render("report.holds.yes")
    keep: dict[str, Callable[[tuple[str, ...]], bool]] = {
        "ledger": lambda row: row[0] == c.binding, "identities": lambda row: row[-1] != yes or row[1] in ("-", "0"),
    }  # fmt: skip
    kept = [replace(t, rows=tuple(row for row in t.rows if keep[t.key](row))) if t.key in keep else t for t in c.all_tables]
    return [_without_first(t) if t.key == "ledger" else t for t in kept]


def _without_first(t: Table) -> Table:
    return replace(t, columns=t.columns[1:], rows=tuple(row[1:] for row in t.rows), numeric=frozenset(i - 1 for i in t.numeric))


def _title(c: Report, t: Table) -> str:
    return f"{t.title}: {c.binding}" if t.key == "ledger" else t.title


class _Numbered(Canvas):  # type: ignore[misc]
    """Knows the number of pages before it writes the first: pages are kept, then finished."""

    def __init__(self, *args: Any, made_by: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._made_by, self._kept = made_by, list[dict[str, Any]]()

    def showPage(self) -> None:  # noqa: N802 - reportlab's name
        self._kept.append(dict(self.__dict__))
        self._startPage()

    def save(self) -> None:
        for n, page in enumerate(self._kept, 1):
            self.__dict__.update(page)
            self.setFillColor(QUIET)
            said = render("report.page", {"program": self._made_by, "page": n, "pages": len(self._kept)})
            x = A4[0] - MARGIN - FRAME - fonts.width(said, 7)
            for font, part in fonts.runs(said):
                self.setFont(font, 7)
                self.drawString(x, 8 * mm, part)
                x += fonts.width(part, 7, font)
            super().showPage()
        super().save()


def _set(c: Report, cut: int) -> tuple[bytes, int]:
    """The file with tables of at most `cut` rows, and its number of pages."""
    out = io.BytesIO()
    document = SimpleDocTemplate(
        out, pagesize=A4, leftMargin=MARGIN, rightMargin=MARGIN, topMargin=13 * mm, bottomMargin=14 * mm, invariant=1, title=c.title, author=c.made_by,
        subject=c.verdict, lang=language(),
    )  # fmt: skip
    document.build(_story(c, cut), canvasmaker=partial(_Numbered, made_by=c.made_by))
    return out.getvalue(), int(document.page)


def _story(c: Report, cut: int) -> list[Any]:
    created = [Paragraph(fonts.marked(render("report.created", {"date": c.created, "program": c.made_by})), DATE)] if c.created else []
    story: list[Any] = [Paragraph(fonts.marked(c.title, fonts.BOLD), TITLE), *created, Spacer(0, 6), _verdict(c), Spacer(0, 6)]
    facts = Table(key="facts", columns=(), rows=c.facts, numeric=frozenset((1, 2)))
    story += _table(facts, cut)
    formula = [Paragraph(fonts.marked(line, fonts.MONO), CODE) for line in (*c.formula, c.gap)]
    story += [_section(render("report.section.formula"), _box(formula))]
    story += [_section(render("report.section.bars"), _bars(c), _legend(c))]
    story += [_section(render("report.table.heat"), Paragraph(fonts.marked(render("report.heat.legend")), TEXT), Spacer(0, 3), _heat(c))]
    whole = {t.key: len(t.rows) for t in c.all_tables}
    for t in _tables(c):
        if t.rows:
            story += _table(t, cut, Paragraph(fonts.marked(_title(c, t), fonts.BOLD), SECTION))
            hidden = whole[t.key] - min(len(t.rows), cut)
            story += [Paragraph(fonts.marked(render("report.more_rows", {"rows": hidden})), DATE)] if hidden else []
    return story


def _section(title: str, *parts: Any) -> KeepTogether:
    return KeepTogether([Paragraph(fonts.marked(title, fonts.BOLD), SECTION), *parts])


def _verdict(c: Report) -> Grid:
    line, ground = STATES[c.state]
    style = [("BACKGROUND", (0, 0), (-1, -1), HexColor(ground)), ("LINEBEFORE", (0, 0), (0, -1), 3, HexColor(line)), ("TOPPADDING", (0, 0), (-1, -1), 5),
             ("BOTTOMPADDING", (0, 0), (-1, -1), 6), ("LEFTPADDING", (0, 0), (-1, -1), 8)]  # fmt: skip
    return Grid([[Paragraph(fonts.marked(c.verdict, fonts.BOLD), VERDICT)]], colWidths=[WIDTH], hAlign="LEFT", style=TableStyle(style))


def _box(parts: list[Any]) -> Grid:
    style = [("BACKGROUND", (0, 0), (-1, -1), HEAD), ("TOPPADDING", (0, 0), (-1, -1), 1), ("BOTTOMPADDING", (0, 0), (-1, -1), 2)]
    return Grid([[part] for part in parts], colWidths=[WIDTH], hAlign="LEFT", style=TableStyle(style))


def _table(t: Table, cut: int, heading: Paragraph | None = None) -> list[Any]:
    """A table under its heading; a long narrow one in two halves side by side, its one long row, if it has one, below them."""
    rows = t.rows[:cut]
    above = [heading] if heading else []
    half = (WIDTH - GAP) / 2
    narrow = tuple(row for row in rows if sum(_natural(t, [row])) <= half)
    if len(rows) < LONG or len(rows[0]) > 2 or len(narrow) < len(rows) - 1:
        return [CondPageBreak(START), *above, _grid(t, rows, _widths(_natural(t, rows), t.numeric, WIDTH))]
    middle, widths = -(-len(narrow) // 2), _widths(_natural(t, narrow), t.numeric, half)
    parts = [_grid(t, part, widths) for part in (narrow[:middle], narrow[middle:])]
    flush = TableStyle([(f"{side}PADDING", (0, 0), (-1, -1), 0) for side in ("LEFT", "RIGHT", "TOP", "BOTTOM")] + [("VALIGN", (0, 0), (-1, -1), "TOP")])
    halves = Grid([[parts[0], "", parts[1]]], colWidths=[half, GAP, half], hAlign="LEFT", style=flush)
    wide, bare = tuple(row for row in rows if row not in narrow), replace(t, columns=(), numeric=frozenset())
    return [KeepTogether([*above, halves]), *([_grid(bare, wide, [widths[0], WIDTH - widths[0]])] if wide else [])]


def _natural(t: Table, rows: Iterable[tuple[str, ...]]) -> list[float]:
    """The width of each column on one line."""
    lines = [(t.columns, fonts.BOLD)] * bool(t.columns) + [(row, fonts.REGULAR) for row in rows]
    return [max(fonts.width(line[i], SMALL, font) for line, font in lines) + 2 * PADDING + 1 for i in range(len(lines[0][0]))]


def _grid(t: Table, rows: tuple[tuple[str, ...], ...], widths: list[float]) -> Grid:
    data = [[Paragraph(fonts.marked(x, fonts.BOLD), HEADING_NUMBER if i in t.numeric else HEADING) for i, x in enumerate(t.columns)]] if t.columns else []
    data += [[Paragraph(fonts.marked(x), NUMBER if i in t.numeric else CELL) for i, x in enumerate(row)] for row in rows]
    style = [("LINEBELOW", (0, 0), (-1, -1), 0.4, RULE), ("VALIGN", (0, 0), (-1, -1), "TOP"), ("LEFTPADDING", (0, 0), (-1, -1), PADDING),
             ("RIGHTPADDING", (0, 0), (-1, -1), PADDING), ("TOPPADDING", (0, 0), (-1, -1), 1.5), ("BOTTOMPADDING", (0, 0), (-1, -1), 2)]  # fmt: skip
    if t.columns:
        style.append(("BACKGROUND", (0, 0), (-1, 0), HEAD))
    return Grid(data, colWidths=widths, hAlign="LEFT", repeatRows=1 if t.columns else 0, style=TableStyle(style))


def _widths(natural: list[float], numeric: Iterable[int], most: float) -> list[float]:
    """Columns that need less than an even share of `most` points keep their width; the others share what is left by need. What nobody
    needs goes to the texts, up to half of their width again: numbers stay near their names."""
    out, left, open_ = list(natural), most, set(range(len(natural)))
    while fitting := {i for i in open_ if natural[i] <= left / len(open_)}:
        left -= sum(natural[i] for i in fitting)
        open_ -= fitting
    needed = sum(natural[i] for i in open_)
    for i in open_:
        out[i] = left * natural[i] / needed
    texts = [i for i in range(len(out)) if i not in numeric]
    for i in texts if not open_ else ():
        out[i] += min(left / len(texts), out[i] / 2)
    return out


def _text(x: float, y: float, text: str, size: float = 7, anchor: str = "start", **choices: Any) -> list[String]:
    """Strings of a drawing, one a font."""
    whole, out = fonts.width(text, size), []
    x -= whole if anchor == "end" else whole / 2 if anchor == "middle" else 0
    for font, part in fonts.runs(text):
        out.append(String(x, y, part, fontName=font, fontSize=size, **{"fillColor": INK, **choices}))
        x += fonts.width(part, size, font)
    return out


def _bars(c: Report) -> Drawing:
    """One bar a kind of rank, as in the HTML: the device's end is the dashed line."""
    ranks, scale, row = c.ranks[:MAX_RANKS], (WIDTH - 24) / pictures.WIDTH, 27.0
    height = row * len(ranks) + 14
    d = Drawing(WIDTH, height)

    def top(rank: int) -> float:
        return float(height - row * rank)

    for i, (label, _) in enumerate(ranks):
        for s in _text(0, top(i) - 8, label, fillColor=QUIET):
            d.add(s)
    for segment in pictures.segments(c):
        rank = segment.y // pictures.ROW
        if rank < len(ranks):
            d.add(Rect(segment.x * scale, top(rank) - 24, segment.width * scale, 13, fillColor=HexColor(segment.colour), strokeColor=None))
            if fonts.width(segment.label, 6.5) + 4 < segment.width * scale:
                d.add(String(segment.x * scale + 2, top(rank) - 20, segment.label, fontName=fonts.REGULAR, fontSize=6.5, fillColor=HexColor(segment.ink)))
    end = pictures.x_of(c.memory_bytes, pictures.scale(c)) * scale
    d.add(Line(end, 12, end, height - 2, strokeColor=RED, strokeWidth=0.8, strokeDashArray=[3, 2]))
    left = end > WIDTH / 2
    for s in _text(end - 3 if left else end + 3, height - 8, render("report.bar.end"), 6.5, "end" if left else "start", fillColor=RED):
        d.add(s)
    for x, label in pictures.ticks(c):
        for s in _text(x * scale, 2, label, 6.5, "middle" if x else "start", fillColor=QUIET):
            d.add(s)
    for s in _text(WIDTH, 2, render("report.axis.gib"), 6.5, "end", fillColor=QUIET):
        d.add(s)
    return d


def _legend(c: Report) -> Drawing:
    places, x, line = [], 0.0, 0
    for colour, name in pictures.legend(c):
        wide = fonts.width(name, 7) + 20
        if x and x + wide > WIDTH:
            x, line = 0.0, line + 1
        places.append((x, line, colour, name))
        x += wide
    d = Drawing(WIDTH, 10 * (line + 1) + 3)
    for x, n, colour, name in places:
        y = 10 * (line - n) + 2
        d.add(Rect(x, y, 7, 7, fillColor=HexColor(colour), strokeColor=None))
        for s in _text(x + 10, y + 0.7, name):
            d.add(s)
    return d


def _heat(c: Report) -> Grid:
    """GiB a rank: the same shades as on the screen, brackets where it does not fit."""
    lines = pictures.heat_rows(c.heat)
    first = 74.0
    columns = [first] + [(WIDTH - first) / len(c.heat.tokens)] * len(c.heat.tokens)
    size = min(6.6, columns[1] / 6)
    corner = Paragraph(fonts.marked(render("report.heat.corner"), fonts.BOLD), _style(size, fonts.BOLD, alignment=2))
    data: list[list[Any]] = [[corner, *(count(t) for t in c.heat.tokens)]]
    white = HexColor(colours.PAPER)
    style: list[tuple[Any, ...]] = [
        ("FONT", (0, 0), (-1, -1), fonts.REGULAR, size), ("FONT", (0, 0), (-1, 0), fonts.BOLD, size), ("FONT", (0, 0), (0, -1), fonts.BOLD, size),
        ("ALIGN", (0, 0), (-1, -1), "RIGHT"), ("INNERGRID", (0, 0), (-1, -1), 0.4, white),
        ("TOPPADDING", (0, 0), (-1, -1), 1), ("BOTTOMPADDING", (0, 0), (-1, -1), 2),
        ("LEFTPADDING", (0, 0), (-1, -1), 1), ("RIGHTPADDING", (0, 0), (-1, -1), 2), ("TEXTCOLOR", (0, 0), (-1, -1), INK),
    ]  # fmt: skip
    for y, (n, cells) in enumerate(lines, 1):
        data.append([count(n), *(cell.text if cell.fits else f"({cell.text})" for cell in cells)])
        for x, cell in enumerate(cells, 1):
            style.append(("BACKGROUND", (x, y), (x, y), HexColor(cell.colour)))
            if cell.dark or not cell.fits:
                style.append(("TEXTCOLOR", (x, y), (x, y), white if cell.dark else QUIET))
    return Grid(data, colWidths=columns, hAlign="LEFT", style=TableStyle(style))
