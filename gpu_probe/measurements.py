"""Which devices were measured with this version of the probe: the files beside the code. No torch."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "measurements"


@cache
def of_gpus(folder: Path = FOLDER) -> tuple[str, ...]:
    """Names of the measured GPUs, from what `gpu-check` wrote; dry runs do not count. Read once a process."""
    found = set()
    for path in sorted(folder.glob("*.json")):
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(data, dict) and data.get("dry") is False and isinstance(data.get("device_name"), str):
            found.add(data["device_name"])
    return tuple(sorted(found))
