"""What is read, and from where the rule is: docs/models.md from the table of readers and the expectations of the tests.

python -m tests.models_table          writes it; a test fails where it is stale.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections import defaultdict
from types import ModuleType

from planner.readers import READERS, read_config
from tests.conftest import ROOT, small_configs

TARGET = ROOT / "docs" / "models.md"


def table() -> str:
    """One row a model_type: what its layers keep in the tests' configs, the reader, and what the reader says of its rule."""
    tested: dict[str, list[str]] = defaultdict(list)
    kinds: dict[str, set[str]] = defaultdict(set)
    for name, config in small_configs():
        spec = read_config(config, name)
        inner = next((v for k, v in config.items() if k.endswith("_config") and isinstance(v, dict) and v.get("model_type") in READERS), {})
        for model_type in {config.get("model_type"), inner.get("model_type")} & set(READERS):
            tested[model_type].append(name)
            kinds[model_type] |= {k.kind for k, _ in spec.cache_groups()}
    head = f"{len(READERS)} model types are read by a rule of their own."
    lines = ["# Models", "", f"{head} Written by `python -m tests.models_table`; a test fails where it is stale.", "",
             "Any other type is read only if every key of its config is known to leave the cache alone, and is then marked unverified.", "",
             "| model_type | keeps | reader | rule | tested configs |", "|---|---|---|---|---|"]  # fmt: skip
    for model_type, reader in sorted(READERS.items()):
        module, name = _place(reader)
        where = f"{module.__name__.rsplit('.', 1)[-1]}.{name}"
        keeps, configs = ", ".join(sorted(kinds[model_type])), ", ".join(tested[model_type])
        lines.append(f"| {model_type} | {keeps} | `{where}` | {_rule(reader, module)} | {configs} |")
    return "\n".join(lines) + "\n"


def _place(reader: object) -> tuple[ModuleType, str]:
    """The module that holds the reader, and its name there: a function, or a family's record made into one."""
    for name, module in sorted(sys.modules.items()):
        if name.startswith("planner.readers."):
            for attribute, value in vars(module).items():
                if value is reader and getattr(value, "__module__", name) in (name, "functools"):
                    return module, attribute
    raise LookupError(reader)


def _rule(reader: object, module: ModuleType) -> str:
    """The first sentence of the reader's docstring, else of its module's."""
    text = (inspect.getdoc(reader) if inspect.isfunction(reader) else "") or inspect.getdoc(module) or ""
    first = re.split(r"(?<=[.])\s", " ".join(text.split()), maxsplit=1)[0]
    return first.replace("|", "\\|")


if __name__ == "__main__":
    TARGET.write_text(table())
    print(len(READERS), "model types")
