"""The matcher for patterns of strangers against Python's own, on patterns that both know."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.quantization.regex import MAX_CHARS, Regex, Unsupported

NAMES = ["", "ab", "model.layers.3.mlp.gate_proj", "model.layers.12.self_attn.q_proj", "lm_head", "aab", "aaab", "a_b.zz", "]b", "q.12", "abcd"]
PATTERNS = [
    r".*mlp\.(gate|up|gate_up|down)_proj.*", r".*self_attn.*", r"model\.layers\.\d+\.mlp", r".*gate$", r"^lm_head$", r"a{2,3}b", r"(a|b)*c",
    r"[a-c_]+\.[^0-9]*z", r"(ab|a)(bc|c)?d", r".*layers\.(?:[0-9]|1[0-9])\..*", r"(a{1,2}){2}b", r"", r"a*?b", r"(|a)b", r"a{2}", r"[]a]b", r"[^]a]b",
    r"\w+\.\d{2,}", r"\W", r"[\d.]+", r"\.", r"a|^b", r"(^a|b$)",
]  # fmt: skip

part = st.recursive(
    st.sampled_from(["a", "b", ".", "c", r"\.", "[ab]", r"\d"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda p: f"({p[0]}|{p[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{1,2}", "{2}", "{1,}"])).map(lambda p: f"(?:{p[0]}){p[1]}"),
    ),
    max_leaves=6,
)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_as_python_reads_it(pattern: str) -> None:
    for name in NAMES:
        assert Regex(pattern).match(name) == (re.match(pattern, name) is not None), name


@given(part, st.booleans(), st.text("abc.1", max_size=8))
def test_random_patterns(pattern: str, whole: bool, name: str) -> None:
    pattern += "$" if whole else ""
    assert Regex(pattern).match(name) == (re.match(pattern, name) is not None)


def test_at_a_dot() -> None:
    gate = Regex(r"mlp\.gate")
    assert gate.match("mlp.gate_proj")
    assert not gate.match("mlp.gate_proj", boundary=True)
    assert gate.match("mlp.gate.weight", boundary=True)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(.*)*x", ".*a.*a.*a.*a.*a.*a.*a$", "(a?){50}a{50}$"])
def test_time_is_bounded(pattern: str) -> None:
    started = time.monotonic()
    assert not Regex(pattern).match("a" * 400 + "b")
    assert time.monotonic() - started < 1


UNKNOWN = [
    "(?=a)", "(?!a)b", r"(a)\1", "(a", "a)", "*a", "a**", "a*+", "(?P<x>a)", "(?i)a", "[a", "\\", "a{3,1}", "a{1", r"\b", "x" * (MAX_CHARS + 1),
    "(" * 30 + "a" + ")" * 30, "((a{99}){99}){99}",
]  # fmt: skip


@pytest.mark.parametrize("pattern", UNKNOWN)
def test_what_it_does_not_know_is_refused(pattern: str) -> None:
    with pytest.raises(Unsupported):
        Regex(pattern)
