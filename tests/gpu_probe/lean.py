"""The probe as it runs where torch and numpy alone were installed: every other distribution of this environment is made unfindable.

python -m tests.gpu_probe.lean run config.json --json
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from typing import Any

ROOTS = ("torch", "numpy")


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def needed() -> set[str]:
    """Distributions that an install of ROOTS brings along."""
    todo, found = list(ROOTS), set()
    while todo:
        name = plain(todo.pop())
        if name in found:
            continue
        found.add(name)
        try:
            wants = distribution(name).requires or ()
        except PackageNotFoundError:
            continue
        todo += [m[0] for want in wants if "extra ==" not in want and (m := re.match(r"[\w.-]+", want))]
    return found


def absent() -> frozenset[str]:
    """Top-level modules of all other distributions."""
    kept = needed()
    return frozenset(top for top, owners in packages_distributions().items() if not {plain(o) for o in owners} & kept)


class Without:
    """A finder that does not find these: what it does for a module that is not installed."""

    def __init__(self, finder: Any, names: frozenset[str]) -> None:
        self.finder, self.names = finder, names

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return None if name.partition(".")[0] in self.names else self.finder.find_spec(name, path, target)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.finder, name)


if __name__ == "__main__":
    gone = absent()
    sys.meta_path[:] = [Without(finder, gone) for finder in sys.meta_path]
    from gpu_probe.__main__ import main

    sys.exit(main(sys.argv[1:]))
