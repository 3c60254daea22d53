"""Where the time of a token is expected to go, part by part: the figures of the Diagnose page's picture."""

from __future__ import annotations

from dataclasses import dataclass

from planner.latency import Latency
from planner.messages import render
from planner.units import percent, seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """`time_s`: seconds of the mean time between tokens; `share`: of all parts together, as a text; `text`: name, time and share."""

    code: str
    name: str
    time_s: float
    share: str
    text: str


def parts(found: Latency) -> tuple[Part, ...]:
    """The largest first; a part that takes nothing (products that reading hides, links of one device) is left out."""
    whole = sum(found.parts_s.values())
    out = []
    for code, value in sorted(found.parts_s.items(), key=lambda item: -item[1]):
        if value > 0:
            name, share = render(f"diagnose.part.{code}"), percent(value / whole)
            text = render("page.diagnose.part", {"name": name, "time": seconds(value), "share": share})
            out.append(Part(code=code, name=name, time_s=value, share=share, text=text))
    return tuple(out)
