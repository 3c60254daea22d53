"""History: what did I keep? Saved plans and probe runs of this browser or login, found and opened again."""

from __future__ import annotations

from pages.parts import history_view

history_view.draw()
