"""Lists of modules as the quantization libraries write them: exact names, wildcards, and regular expressions after ``re:``.

How they are read, one rule for all libraries (transformers 5.24 quantizers/quantizers_utils.py, compressed-tensors utils/match.py,
ModelOpt exclude_modules, AutoAWQ utils/module.py):

- ``lm_head``, ``self_attn``, ``mlp.gate``: a module of that name or path anywhere, and everything inside it;
- ``model.layers.3.mlp.down_proj``: that module of layer 3, and everything inside it; under any root that holds a language model's layers;
- ``*.attn.*``, ``model.layers.0.mlp*``: wildcards over the whole name, of the module or of one that holds it;
- ``re:.*self_attn.*``: a regular expression from the start of the name; in other lists one that has ``\\ ( | ^ $ +`` in it.

Layers are told apart only by entries that name a number, so that most answers are shared by all equal layers. Entries that cannot be
followed safely are counted in `refused`, and whoever uses the list says so.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from fnmatch import translate
from functools import lru_cache

from planner.quantization.names import ROOTS
from planner.quantization.regex import Regex, Unsupported

MAX_ENTRIES = 100_000
MAX_GENERAL = 100  # entries that must be tried one by one on every name
MAX_WORK = 1_500_000  # steps of their matching over a whole model: a second or two
TRY = 20  # steps that one try costs at least
MAX_CHARS = 1_000
_LAYER = re.compile(r"^(.*?(?:layers|\bh|blocks)\.)(\d{1,5})(\.|\*?$)")
_LAYER_IN_REGEX = re.compile(r"^([\w.*^\\]{0,60}?(?:layers|h|blocks)\\?\.)(\d{1,5})\\?\.")
_ANY_ROOT = frozenset(f"{head}{word}." for head in ("*", "*.", ".*", ".*.") for word in ("layers", "h", "blocks"))
_EXPERT = re.compile(r"experts\.(\d{1,6})\b")
_REGEX_SIGNS = frozenset("\\(|^$+")


_General = tuple[Regex | re.Pattern[str], bool, tuple[str, ...]]  # the matcher, whether it must end at a dot, roots to try it under


class Patterns:
    """`count` says how many of a weight's copies (experts) a list reaches."""

    def __init__(self, entries: Iterable[object]) -> None:
        self.refused: list[str] = []
        self._paths: set[str] = set()  # exact, no layer named
        self._of_layer: dict[int, set[str]] = {}  # exact paths below a layer; "" is the whole layer
        self._heads: dict[int, list[str]] = {}  # "mlp*" below a layer
        self._numbers: list[str] = []  # layers by how their number begins
        self._experts: dict[tuple[int, str], set[int]] = {}  # single experts that are named
        self._general: list[_General] = []
        self._below: dict[int, list[_General]] = {}  # the same below one layer
        self._experts_of: dict[int, set[tuple[str, frozenset[int]]]] = {}  # the same by layer, for `told_apart`
        self._known: dict[tuple[tuple[str, ...], int], bool] = {}
        self._by_number = False  # some general entry may tell one layer's number from another's
        self.budget = [MAX_WORK]  # what is left; the lists of one model share it
        self.size = 0
        for entry in entries:
            self.size += 1
            if not isinstance(entry, str) or len(entry) > MAX_CHARS or self.size > MAX_ENTRIES:
                self.refused.append(str(entry)[:60])
            elif entry.strip():
                self._add(entry.strip())
            if len(self.refused) > 20:
                break

    def _add(self, entry: str) -> None:
        is_regex = entry.startswith("re:")
        if is_regex or _REGEX_SIGNS & set(entry):
            return self._add_regex(entry.removeprefix("re:"), not is_regex)
        entry = entry.rstrip(".").removesuffix(".weight")
        found = _LAYER.match(entry)
        if found is not None and not (found[1] in ROOTS or found[1] in _ANY_ROOT):
            found = None  # of a vision tower or of draft layers: not the stack
        wild = any(c in entry for c in "*?[")
        if found is None:
            return self._keep(re.compile(translate(entry)), None, False, entry) if wild else self._paths.add(entry)
        layer, path = int(found[2]), entry[found.end() :]
        if found[3] == "*":
            self._numbers.append(found[2])
        elif not any(c in path for c in "*?["):
            expert = _EXPERT.search(path)
            if expert is None:
                self._of_layer.setdefault(layer, set()).add(path)
            else:
                key = path[: expert.start(1)] + "0" + path[expert.end(1) :]
                self._experts.setdefault((layer, key), set()).add(int(expert[1]))
        elif path.endswith("*") and not any(c in path[:-1] for c in "*?["):
            self._heads.setdefault(layer, []).append(path[:-1])
        else:
            self._keep(re.compile(translate(path)), layer, False, path)
        return None

    def _add_regex(self, text: str, boundary: bool) -> None:
        found = _LAYER_IN_REGEX.match(text)
        root = found[1].replace("\\.", ".").removeprefix("^") if found is not None else ""
        try:
            if found is not None and (root in ROOTS or root in _ANY_ROOT):
                return self._keep(Regex(text[found.end() :]), int(found[2]), boundary, text)
            return self._keep(Regex(text), None, boundary, text)
        except Unsupported:
            self.refused.append(text[:60])

    def _keep(self, matcher: Regex | re.Pattern[str], layer: int | None, boundary: bool, text: str) -> None:
        """Wildcards of `fnmatch` are possessive since Python 3.9: they cost at most stars x length."""
        kept: list[_General] = self._general if layer is None else self._below.setdefault(layer, [])
        if len(kept) >= MAX_GENERAL:
            self.refused.append(text[:60])
            return
        roots = _roots_under(text, isinstance(matcher, Regex))
        kept.append((matcher, boundary, roots))
        self._by_number |= layer is None and bool(roots) and any(c.isdigit() for c in text)

    # -- asking --------------------------------------------------------------------------------------------------------------
    def count(self, paths: tuple[str, ...], layer: int | None, copies: int = 1) -> int:
        """How many of `copies` equal weights are reached. `paths`: names below the layer (whole names where `layer` is None)."""
        if not self.size:
            return 0
        if self._hits(paths, layer):
            return copies
        if layer is None or not self._experts:
            return 0
        reached: set[int] = set()
        for path in paths:
            for part in _parents(path):
                reached |= self._experts.get((layer, part), set())
        return sum(e < copies for e in reached)

    def told_apart(self, layer: int) -> Hashable:
        """Equal for two layers of which this list says the same."""
        if layer in self._below:
            return layer
        if self._experts and not self._experts_of:
            for (i, key), experts in self._experts.items():
                self._experts_of.setdefault(i, set()).add((key, frozenset(experts)))
        return (
            layer if self._by_number else len(str(layer)),
            frozenset(self._of_layer.get(layer, ())),
            frozenset(self._heads.get(layer, ())),
            any(str(layer).startswith(n) for n in self._numbers),
            frozenset(self._experts_of.get(layer, ())),
        )

    def _hits(self, paths: tuple[str, ...], layer: int | None) -> bool:
        """Answers that do not depend on the layer's number are kept by its number of digits."""
        key = (paths, -1 if layer is None else layer if self._by_number else len(str(layer)))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = not self._paths.isdisjoint(_all_parts(paths)) or self._whole(paths, layer)
        return found or (layer is not None and self._in_layer(paths, layer))

    def _whole(self, paths: tuple[str, ...], layer: int | None) -> bool:
        """Tried on whole names, under every root; an entry that begins with a wildcard does not see the root."""
        for general in self._general:
            if self._spent():
                return False
            names = paths if layer is None else tuple(f"{root}{layer}.{p}" for root in general[2] for p in paths)
            if self._any(general, names):
                return True
        return False

    def _in_layer(self, paths: tuple[str, ...], layer: int) -> bool:
        exact, heads = self._of_layer.get(layer), self._heads.get(layer)
        if exact and ("" in exact or any(part in exact for p in paths for part in _parents(p))):
            return True
        if (heads and any(p.startswith(h) for p in paths for h in heads)) or any(str(layer).startswith(n) for n in self._numbers):
            return True
        return any(self._any(general, paths) for general in self._below.get(layer, ()))

    def _spent(self) -> bool:
        if self.budget[0] <= 0 and "..." not in self.refused:
            self.refused.append("...")
        return self.budget[0] <= 0

    def _any(self, general: _General, names: tuple[str, ...]) -> bool:
        """Any name matches. When the budget is spent the list is given up, and says so."""
        matcher, boundary, _ = general
        for name in names:
            if self._spent():
                return False
            if isinstance(matcher, Regex):
                before = matcher.work
                hit = matcher.match(name, boundary)
                self.budget[0] -= TRY + len(name) + matcher.work - before
            else:
                hit = any(matcher.match(part) for part in _parents(name))
                self.budget[0] -= 4 * TRY
            if hit:
                return True
        return False


def _roots_under(text: str, is_regex: bool) -> tuple[str, ...]:
    """The roots that a pattern may match under, by the letters it begins with; one that begins with a wildcard does not see the root."""
    text = text.removeprefix("^").replace("\\.", "\0") if is_regex else text.replace(".", "\0")
    plain = re.match(r"[\w\0-]*", text)
    head = plain[0] if plain is not None else ""
    if is_regex and text[len(head) : len(head) + 1] in ("*", "?", "{", "|"):
        head = "" if "|" in text else head[:-1]
    if not head:
        return ROOTS if text[:1] not in ("*", ".") else ROOTS[:1]
    head = head.replace("\0", ".")
    return tuple(r for r in ROOTS if r.startswith(head) or head.startswith(r))


@lru_cache(maxsize=8192)
def _parents(path: str) -> tuple[str, ...]:
    """The path and every module that holds it: a.b.c, a.b, a."""
    parts = path.split(".")
    return tuple(".".join(parts[:n]) for n in range(len(parts), 0, -1))


@lru_cache(maxsize=2048)
def _all_parts(paths: tuple[str, ...]) -> frozenset[str]:
    """Every run of names in the paths: a.b.c, a.b, a, b.c, b, c."""
    split = [p.split(".") for p in paths]
    return frozenset(".".join(parts[i:j]) for parts in split for i in range(len(parts)) for j in range(i + 1, len(parts) + 1))
