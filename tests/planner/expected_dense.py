"""What the readers of dense and MoE attention families must find in tests/configs; the form is that of expected.py."""

from __future__ import annotations

EXPECTED: dict[str, tuple[dict[str, int], int, int]] = {}
