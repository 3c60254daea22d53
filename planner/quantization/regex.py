"""A small regular-expression matcher that cannot run away: patterns come from files of strangers.

Python's own engine backtracks, so ``(a+)+$`` in a config could hold a server for hours. This one follows all readings at once (Thompson,
1968): time is at most (size of the pattern) x (length of the name). It knows what published `ignore` and `targets` lists use: literals,
``.``, classes, ``\\d \\w \\s``, groups, ``|``, ``* + ? {m,n}``, ``^`` and ``$``. Look-around, back-references and flags raise Unsupported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

MAX_CHARS = 1_000
MAX_NODES = 2_000
MAX_DEPTH = 20
_CLASSES: dict[str, Callable[[str], bool]] = {"d": str.isdigit, "w": lambda c: c.isalnum() or c == "_", "s": str.isspace}
_CONTROL = {"n": "\n", "t": "\t", "r": "\r"}
Test = Callable[[str], bool]
# A node: (what it does, its test, where it goes on). Kinds: "one" reads a character, "split" goes both ways, "start" and "end" are anchors.
Node = tuple[str, Test | None, list[int]]


MAX_TAME_REPEATS, MAX_TAME_NAME = 3, 400  # backtracking then costs at most name ** repeats
BOUNDARY = r"(?:\Z|(?=\.)|(?<=\.))"


def _is_tame(pattern: str) -> bool:
    """No repeated group, and at most three repeats in all: signs inside classes and after a backslash are counted too, to be safe."""
    return pattern.isascii() and not re.search(r"\)[*+?{]", pattern) and sum(c in "*+{" for c in pattern) <= MAX_TAME_REPEATS


class Unsupported(ValueError):
    """The pattern uses something that this matcher does not know, or is too large."""


class Regex:
    """``Regex(p).match(name)`` is true where ``re.match(p, name)`` finds something: from the start, not to the end."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > MAX_CHARS:
            raise Unsupported
        self._text, self._at, self._nodes = pattern, 0, list[Node]()
        first, ends = self._alternatives(0)
        if self._at < len(pattern):
            raise Unsupported
        self._accept = self._add("accept", None)
        self._join(ends, self._accept)
        self._first = first
        self.work = 0  # nodes that were looked at
        self._steps: dict[tuple[frozenset[int], str], frozenset[int]] = {}
        # A pattern with few repeats, none of a group, cannot run away: the engine of the standard library is ten times as fast.
        self._fast = tuple(re.compile(f"(?:{pattern}){end}") for end in ("", BOUNDARY)) if _is_tame(pattern) else None

    def match(self, name: str, boundary: bool = False) -> bool:
        """`boundary`: what is read must end where a module's name does, before a dot or at the end."""
        if self._fast is not None and len(name) <= MAX_TAME_NAME:
            self.work += len(name)
            return self._fast[boundary].match(name) is not None
        states = self._closed([self._first], True, not name)
        for i in range(len(name) + 1):
            if self._accept in states and (not boundary or i == len(name) or name[i] == "." or (i and name[i - 1] == ".")):
                return True
            if i == len(name) or not states:
                return False
            states = self._next(states, name[i], i + 1 == len(name))
        return False

    # -- following ---------------------------------------------------------------------------------------------------------
    def _next(self, states: frozenset[int], char: str, last: bool) -> frozenset[int]:
        key = (states, "\0" + char if last else char)
        found = self._steps.get(key)
        if found is None:
            self.work += 3 * len(states)
            reached = [g for s in states if (node := self._nodes[s])[0] == "one" and node[1] is not None and node[1](char) for g in node[2]]
            found = self._closed(reached, False, last)
            if len(self._steps) < 20_000:
                self._steps[key] = found
        return found

    def _closed(self, states: list[int], at_start: bool, at_end: bool) -> frozenset[int]:
        seen, todo = set[int](), list(states)
        while todo:
            s = todo.pop()
            if s in seen:
                continue
            seen.add(s)
            kind, _, goes = self._nodes[s]
            if kind == "split" or (kind == "start" and at_start) or (kind == "end" and at_end):
                todo += goes
        self.work += 3 * len(seen)
        return frozenset(seen)

    # -- building: every part gives its first node and the nodes whose way on is still open ------------------------------------
    def _add(self, kind: str, test: Test | None, goes: Iterator[int] | tuple[int, ...] = ()) -> int:
        if len(self._nodes) >= MAX_NODES:
            raise Unsupported
        self._nodes.append((kind, test, list(goes)))
        return len(self._nodes) - 1

    def _join(self, ends: list[int], to: int) -> None:
        for e in ends:
            self._nodes[e][2].append(to)

    def _peek(self) -> str:
        return self._text[self._at] if self._at < len(self._text) else ""

    def _take(self) -> str:
        char = self._peek()
        if not char:
            raise Unsupported
        self._at += 1
        return char

    def _alternatives(self, depth: int) -> tuple[int, list[int]]:
        if depth > MAX_DEPTH:
            raise Unsupported
        branches = [self._sequence(depth)]
        while self._peek() == "|":
            self._at += 1
            branches.append(self._sequence(depth))
        if len(branches) == 1:
            return branches[0]
        return self._add("split", None, tuple(b[0] for b in branches)), [e for b in branches for e in b[1]]

    def _sequence(self, depth: int) -> tuple[int, list[int]]:
        first = self._add("split", None)
        ends = [first]
        while self._peek() not in ("", "|", ")"):
            start, more = self._repeated(depth)
            self._join(ends, start)
            ends = more
        return first, ends

    def _repeated(self, depth: int) -> tuple[int, list[int]]:
        begin = self._at
        part = self._one(depth)
        stop = self._at
        low, high = self._count()
        if (low, high) == (1, 1):
            return part
        if self._peek() in ("*", "+", "?", "{") and self._take() != "?":  # a lazy one matches the same names, the others are refused
            raise Unsupported
        after = self._at
        if (low, high) == (0, 1):
            return self._add("split", None, (part[0],)), self._last_and(part[1])
        first = self._add("split", None)
        ends, copies = [first], 0
        while copies < (low if high is None else high):
            if copies:
                self._at = begin
                part = self._one(depth)
                self._at = stop
            here = self._add("split", None, (part[0],)) if copies >= low else part[0]
            self._join(ends, here)
            ends = part[1] + ([here] if copies >= low else [])
            copies += 1
        if high is None:  # then as often as it likes: a loop over one more copy
            self._at = begin
            part = self._one(depth)
            loop = self._add("split", None, (part[0],))
            self._join(part[1], loop)
            self._join(ends, loop)
            ends = [loop]
        self._at = after
        return first, ends

    def _last_and(self, ends: list[int]) -> list[int]:
        """Open ends of a part and the split just made around it."""
        return [*ends, len(self._nodes) - 1]

    def _count(self) -> tuple[int, int | None]:
        char = self._peek()
        if char in ("*", "+", "?"):
            self._at += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        if char != "{":
            return 1, 1
        close = self._text.find("}", self._at)
        low, comma, high = self._text[self._at + 1 : close].partition(",")
        if close < 0 or not low.isdecimal() or (high and not high.isdecimal()) or len(low) > 3 or len(high) > 3:
            raise Unsupported
        self._at = close + 1
        top = (int(high) if high else None) if comma else int(low)
        if top is not None and top < int(low):
            raise Unsupported
        return int(low), top

    def _one(self, depth: int) -> tuple[int, list[int]]:
        char = self._take()
        if char == "(":
            if self._peek() == "?":
                self._at += 1
                if self._take() != ":":
                    raise Unsupported  # look-around, names, flags
            part = self._alternatives(depth + 1)
            if self._take() != ")":
                raise Unsupported
            return part
        if char in "*+?{)":
            raise Unsupported
        if char in "^$":
            node = self._add("start" if char == "^" else "end", None)
            return node, [node]
        node = self._add("one", self._class() if char == "[" else self._escape() if char == "\\" else _any if char == "." else char.__eq__)
        return node, [node]

    def _escape(self) -> Test:
        char = self._take()
        if char.lower() in _CLASSES:
            test = _CLASSES[char.lower()]
            return test if char.islower() else lambda c: not test(c)
        if char.isalnum() and char not in _CONTROL:
            raise Unsupported  # back-references, \\b, \\A, \\x..
        return _CONTROL.get(char, char).__eq__

    def _class(self) -> Test:
        negated = self._peek() == "^"
        self._at += negated
        tests: list[Test] = []
        first = True
        while (char := self._take()) != "]" or first:
            first = False
            if char == "\\":
                tests.append(self._escape())
            elif self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                last = self._take()
                if last == "\\" or last < char:
                    raise Unsupported
                tests.append(lambda c, a=char, b=last: a <= c <= b)  # type: ignore[misc]
            else:
                tests.append(char.__eq__)
        return lambda c: any(t(c) for t in tests) != negated


def _any(char: str) -> bool:
    return char != "\n"
