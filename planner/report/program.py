"""Which program made a report: its name, version and commit, read from the files beside it. No command is run."""

from __future__ import annotations

import re
import tomllib
from functools import lru_cache
from pathlib import Path

NAME = "KVLedger"
ROOT = Path(__file__).resolve().parents[2]
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


@lru_cache(maxsize=1)
def program() -> dict[str, str | None]:
    """`version` and `commit` are None where the files around the program do not tell. Changes that were not committed do not show."""
    try:
        version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    except (OSError, ValueError, KeyError):
        version = None
    return {"name": NAME, "version": version, "commit": commit_of(ROOT)}


def commit_of(folder: Path) -> str | None:
    """The commit that git has checked out in `folder`: HEAD, a branch's own file, or the packed list of branches."""
    try:
        git = folder / ".git"
        if git.is_file():  # a second working tree names its folder
            git = folder / git.read_text(encoding="utf-8").removeprefix("gitdir:").strip()
        head = (git / "HEAD").read_text(encoding="utf-8").strip()
        if head.startswith("ref: "):
            common = git / "commondir"
            shared = git / common.read_text(encoding="utf-8").strip() if common.is_file() else git
            head = _branch(shared, head[5:])
    except (OSError, ValueError):
        return None
    return head if _COMMIT.fullmatch(head) else None


def _branch(git: Path, name: str) -> str:
    own = git / name
    if own.is_file():
        return own.read_text(encoding="utf-8").strip()
    packed = (git / "packed-refs").read_text(encoding="utf-8")
    return next((line.split()[0] for line in packed.splitlines() if line.endswith(f" {name}")), "")
