"""Notes: remarks that travel with a value to the screen (what was read, derived, assumed or is worth a warning)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Level = Literal["info", "derived", "assumed", "warning"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A message code with its arguments. `field` is a config key or option, `source` a citation."""

    level: Level
    code: str
    args: tuple[tuple[str, Any], ...] = ()
    field: str = ""
    source: str = ""

    @property
    def text(self) -> str:
        from planner.messages import render

        return render(f"note.{self.code}", dict(self.args))

    def to_json(self) -> dict[str, str]:
        return {"level": self.level, "code": self.code, "text": self.text, "field": self.field, "source": self.source}


def note(level: Level, code: str, field: str = "", source: str = "", **args: Any) -> Note:
    return Note(level=level, code=code, args=tuple(args.items()), field=field, source=source)


def cite(source: str) -> str:
    """Marks a citation (engine version and file, paper, table): data, not a sentence of ours."""
    return source
