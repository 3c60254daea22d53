"""Mixes of lengths: read exactly, or refused by row and column."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InvalidInput
from planner.mix import MAX_BYTES, MAX_POINTS, Mix, from_csv, from_text, mix

SHORT = "512+128:0.7,8192+1024:0.3"


def pairs(m: Mix) -> list[tuple[int, int, int]]:
    return [(p.prompt, p.output, p.weight) for p in m.points]


# -- reading -----------------------------------------------------------------------------------------------------------


def test_a_text() -> None:
    m = from_text(SHORT)
    assert pairs(m) == [(512, 128, 7), (8192, 1024, 3)]
    assert m.text() == "512+128:7,8192+1024:3"
    assert (m.mean_tokens, m.quantile_tokens(50), m.quantile_tokens(70), m.quantile_tokens(71), m.quantile_tokens(99)) == (3212.8, 640, 640, 9216, 9216)
    assert pairs(from_text(" 5 + 1 , 5+1:2,7+0 ")) == [(5, 1, 3), (7, 0, 1)]
    assert from_text("9+1:1000").text() == "9+1"


POINTS = st.lists(st.tuples(st.integers(0, 10**7), st.integers(1, 10**7), st.integers(1, 10**6)), min_size=1, max_size=15)


@given(POINTS)
def test_the_text_of_a_mix_reads_back_to_it(points: list[tuple[int, int, int]]) -> None:
    m = mix(points)
    text = m.text()
    if text is not None:
        assert len(text) <= 400
        assert from_text(text) == m
    else:
        assert len(m.points) > 10


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("512", "512"), ("512+128;8192+1", "512+128;8192+1"), ("a+b", "a+b"), ("1+1:-1", "1+1:-1"), ("1+1,", "not a length"), ("1+1:nan", "nan"),
        ("1+1:1e9", "1e9"), ("0+0", "0 tokens"), ("99999999+99999999", "199,999,998"), ("1234567890+1", "1234567890"), ("1+1:0", "no request"),
        ("=1+1", "=1+1"), ("1+1," * 101, "400"), ("\u0661+1", "not a length"), ("1.5+2", "1.5+2"),
    ],
)  # fmt: skip
def test_a_text_that_cannot_be_names_its_part(text: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        from_text(text)
    assert caught.value.field == "lengths"
    assert said in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("data", "want"),
    [
        ("prompt,output\n5,1\n5,1\n7,2\n", [(5, 1, 2), (7, 2, 1)]),
        ("input_length;output_length\r\n5;1\r\n", [(5, 1, 1)]),
        ("ISL\tOSL\tcount\n100\t10\t3\n9\t1\t6\n", [(9, 1, 2), (100, 10, 1)]),
        ("\ufefftime,ContextTokens,GeneratedTokens\n2024-01-01 00:00:00.5,374,44\n", [(374, 44, 1)]),
        ('"Request tokens","Response tokens","Total tokens","Log Type"\n"472","18","490","Conversation log"\n', [(472, 18, 1)]),
        ("output tokens,Prompt-Tokens,weight\n1,5,0.25\n0,6,0.75\n", [(5, 1, 1), (6, 0, 3)]),
        ("prompt,output,weight\n5,1,0\n6,1,2\n\n,,\n  \n", [(6, 1, 1)]),
        ("prompt,output\n5.0,1.00\n 6 , 1 \n", [(5, 1, 1), (6, 1, 1)]),
        ('prompt,output,text\n5,1,"many\nlines, and commas"\n', [(5, 1, 1)]),
    ],
)
def test_a_csv(data: str, want: list[tuple[int, int, int]]) -> None:
    assert pairs(from_csv(data.encode())) == want


@pytest.mark.parametrize(
    ("data", "row", "column"),
    [
        ("prompt,output\n5,1\nabc,2\n", "Row 3", "prompt"),
        ("prompt,output\n5,NaN\n", "Row 2", "output"),
        ("prompt,output\n-5,1\n", "Row 2", "prompt"),
        ("prompt,output\n5,1.5\n", "Row 2", "output"),
        ("prompt,output\n5,1e3\n", "Row 2", "output"),
        ("prompt,output\n5,inf\n", "Row 2", "output"),
        ("prompt,output\n5\n", "Row 2", "output"),
        ("prompt,output\n5,1\n\n5,\n", "Row 4", "output"),
        ("prompt,output\n=HYPERLINK(1),1\n", "Row 2", "prompt"),
        ("prompt,output\n+5,1\n", "Row 2", "prompt"),
        ("prompt,output\n12345678901,1\n", "Row 2", "prompt"),
        ("prompt,output,count\n5,1,many\n", "Row 2", "weight"),
        ("prompt,output,count\n5,1,-2\n", "Row 2", "weight"),
        ("prompt,output\n5,1\n0,0\n", "3", ""),
        ("prompt,output\n5,1\n99999999,99999999\n", "3", ""),
        ('prompt,output\n"5\x00",1\n', "Row 2", ""),
        ("a,b\n1,2\n", "a, b", "prompt"),
        ("prompt,total\n1,2\n", "total", "output"),
        ("5,1\n", "5, 1", "prompt"),
        ("", "", "prompt"),
        ("prompt,prompt_tokens,output\n1,1,1\n", "", "prompt"),
        ("prompt,output\n", "no request", ""),
        ("prompt,output,weight\n5,1,0\n", "no request", ""),
        ('prompt,output\n"' + "x" * 200_000 + '",1\n', "Row", ""),
        ("prompt,output" + "," * 2000 + "\n", "Row 1", ""),
    ],
)
def test_a_csv_that_cannot_be_names_row_and_column(data: str, row: str, column: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        from_csv(data.encode())
    assert caught.value.field == "lengths"
    assert row in caught.value.message
    assert column in caught.value.message
    assert len(caught.value.message) < 300
    assert caught.value.hint


@given(st.binary(max_size=400), st.sampled_from([b"", b"prompt,output\n", b"prompt,output,count\n"]))
def test_no_bytes_crash_the_reader(data: bytes, head: bytes) -> None:
    with contextlib.suppress(InvalidInput):
        assert from_csv(head + data).points


def test_bounds_of_a_csv() -> None:
    with pytest.raises(InvalidInput) as caught:
        from_csv(b"prompt,output\n" + b"1,1\n" * (MAX_BYTES // 4))
    assert "5,000,000 bytes" in caught.value.message
    start = time.perf_counter()
    with pytest.raises(InvalidInput) as caught:
        from_csv(b"prompt,output\n" + b"1,1\n" * 1_000_001)
    assert "1,000,000 rows" in caught.value.message
    assert time.perf_counter() - start < 60


def test_many_different_lengths_are_rounded_up_with_a_note() -> None:
    pick = random.Random(5)
    points = [(pick.randrange(1, 30_000), pick.randrange(0, 3_000)) for _ in range(40_000)]
    assert len(set(points)) > MAX_POINTS
    m = from_csv(("prompt,output\n" + "\n".join(f"{p},{o}" for p, o in points)).encode())
    assert len(m.points) <= MAX_POINTS
    step = dict(m.notes[0].args)["step"]
    assert [n.code for n in m.notes] == ["lengths_binned"]
    want = Counter((-(-p // step) * step, -(-o // step) * step) for p, o in points)
    unit = np.gcd.reduce(list(want.values()))
    assert {(p.prompt, p.output): p.weight for p in m.points} == {k: v // unit for k, v in want.items()}
    assert m.rows == 40_000
    assert from_csv(b"prompt,output\n" + b"\n".join(b"%d,0" % i for i in range(1, MAX_POINTS + 1))).notes == ()
