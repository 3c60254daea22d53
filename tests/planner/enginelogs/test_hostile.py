"""A log is input that nobody vouches for: bounded, linear, never run, never a traceback."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from planner.enginelogs import read_log, reconcile
from planner.enginelogs.masks import _RULES as MASKS
from planner.enginelogs.masks import masked
from planner.enginelogs.reader import AFTER, BEFORE, MAX_FIGURES, MAX_HITS
from planner.enginelogs.table import table
from planner.enginelogs.text import MAX_BYTES, MAX_LINES, log_text
from planner.errors import InvalidInput, PlannerError
from tests.planner.enginelogs import logs

MB = 10**6
KEYS = " ".join(row.key for row in table().rows)


def noise(size: int) -> str:
    """Lines as a busy server prints them, full of words that the engines' figures share."""
    words = "INFO request received throughput tokens/s GPU KV cache usage: 12.3% Running: 3 reqs Avg prompt memory 200 OK blocks n_ctx".split()
    rng, lines, n = random.Random(1), [], 0
    while n < size:
        lines.append("INFO 07-13 02:52:56 [loggers.py:111] " + " ".join(rng.choice(words) for _ in range(20)))
        n += len(lines[-1]) + 1
    return "\n".join(lines)


def best(run: Callable[[], object], tries: int = 3) -> float:
    """Processor time of the fastest of several runs: other work on the machine only adds."""
    times = []
    for _ in range(tries):
        at = time.process_time()
        run()
        times.append(time.process_time() - at)
    return min(times)


@pytest.mark.parametrize("name", ["VLLM_V1", "SGLANG", "LLAMACPP"])
def test_a_megabyte_of_noise_around_a_log_changes_nothing_and_takes_less_than_a_second(name: str) -> None:
    text, around = getattr(logs, name), noise(MB // 2)
    big = f"{around}\n{text}\n{around}"
    read_log("")  # the table is compiled
    assert {(f.name, f.value) for f in read_log(big).figures} == {(f.name, f.value) for f in read_log(text).figures}
    assert best(lambda: reconcile(big)) < 1.0


HOSTILE: tuple[tuple[str, bytes | str], ...] = (
    ("nothing", ""), ("zeros", b"\0" * (2 * MB)), ("random", random.Random(2).randbytes(2 * MB)), ("blanks", " " * (2 * MB)), ("lines", "\n" * (2 * MB)),
    ("digits", "1" * (2 * MB)), ("dots", "1." * MB), ("escapes", "\x1b[" * MB), ("titles", "\x1b]" * MB), ("braces", '{"log"' * 300_000),
    ("deep json", ("{\"log\":" + "[" * 18_000 + "\n") * 100), ("keys", (KEYS + "\n") * 300), ("one key", "GPU KV cache size: 1 tokens\n" * 70_000),
    ("endless arguments", "non-default args: {" + "'a': 1, " * 250_000), ("open quotes", ("vllm serve --max-model-len '" + "a" * 900 + "\n") * 2000),
    ("full width", "\uff11\uff12\uff1a" * 300_000), ("marks", "\u0301\u0323" * 500_000), ("surrogates", "\ud800 GPU KV cache size: 16 tokens \udfff"),
    ("huge figures", f"GPU KV cache size: {'9' * 400} tokens\nAvailable KV cache memory: {'9' * 300}.5 GiB\n# GPU blocks: 9999999999999999999999999"),
    ("nan", "Available KV cache memory: NaN GiB\nMaximum concurrency for inf tokens per request: nanx\nModel loading took 1e400 GiB"),
    ("negative", "GPU KV cache size: -16 tokens\nMaximum concurrency for 0 tokens per request: -1.00x\n# GPU blocks: -1, # CPU blocks: 0"),
    ("code", "non-default args: {'max_model_len': __import__('os').system('exit')}\nGPU KV cache size: 16 tokens"),
)  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE, ids=lambda c: c[0])
def test_hostile_logs_are_answered_or_refused_in_bounded_time(case: tuple[str, bytes | str]) -> None:
    at = time.process_time()
    log = read_log(case[1])
    assert len(log.figures) <= MAX_FIGURES + 10
    if log.engine is None and not log.figures:
        with pytest.raises(InvalidInput) as e:
            reconcile(log)
        assert e.value.code == "log_nothing"
        assert e.value.hint
    else:
        reconcile(log).to_json()
    assert time.process_time() - at < 5.0


def test_a_log_is_cut_at_its_bounds_and_says_so() -> None:
    long = read_log(logs.VLLM_V1.encode() + b"x " * (MAX_BYTES // 2))
    assert [n.code for n in long.notes] == ["log_cut"]
    assert long.value("kv_tokens") == 442_528
    lines = read_log(logs.VLLM_V1 + "\n" * (MAX_LINES + 5))
    assert [n.code for n in lines.notes] == ["log_lines_cut"]
    assert lines.lines == MAX_LINES
    often = read_log("GPU KV cache size: 16 tokens\n" * (MAX_HITS + 50))
    assert len(often.all("kv_tokens")) == MAX_HITS
    assert [n.code for n in often.notes] == ["log_many_hits"]


def test_line_numbers_are_those_of_the_file() -> None:
    text = "a\r\n\r\nb\rc\nGPU KV cache size: 16 tokens"
    assert read_log(text).all("kv_tokens")[0].line == 5
    assert log_text(text).line(5) == "GPU KV cache size: 16 tokens"


FILLERS = ("1,", " ", "1 ", "a", "(", "= ", "1.", "a.", "KV ", "\t", "-", "{", "'", "x=", "1\n")


def test_no_pattern_takes_more_than_linear_time() -> None:
    """Each pattern over its window filled with what it almost matches: four times the text may take at most about four times as long.
    A window is short, so even the whole cost is bounded: hits x patterns x this."""
    slow = []
    for row in table().rows:
        for filler in FILLERS:
            short, long = ((filler * size)[: size // 2] + row.key + (filler * size)[:size] for size in (BEFORE + AFTER, 4 * (BEFORE + AFTER)))
            if best(lambda t=short, r=row: list(r.regex.finditer(t)), 1) > 0.002:
                a, b = (best(lambda t=t, r=row: list(r.regex.finditer(t)), 5) for t in (short, long))
                slow += [(row.key, filler, a, b)] if b > 8 * a else []
    assert not slow


@pytest.mark.parametrize("filler", [*FILLERS, "a@", "://", "a:", "/home/", "eyJa", "-----BEGIN ", "password=", "1.1.", "ab-", "ip-1-"])
def test_no_mask_takes_more_than_linear_time(filler: str) -> None:
    text = (filler * 20_000)[:20_000]
    assert best(lambda: masked(text)) < 0.5
    assert len(MASKS) > 15


def test_options_that_are_none_are_the_users_error() -> None:
    from planner.api import model_of
    from planner.sources import load

    with pytest.raises(PlannerError) as e:
        reconcile(logs.VLLM_V1, model=model_of(load("catalog:Llama-3.1-8B")), given={"tp": "many"})
    assert e.value.field == "tp"


@pytest.mark.parametrize("flags", [
    "'max_model_len': 99999999999999, ", "'tensor_parallel_size': 7, ", "'gpu_memory_utilization': 77.0, ", "'kv_cache_dtype': 'turbo', ",
    "'block_size': 0, ", "'tensor_parallel_size': 0, ", "'max_num_seqs': 0, ", "'pipeline_parallel_size': 4096, ",
])  # fmt: skip
def test_flags_that_cannot_be_are_noted_not_raised(flags: str) -> None:
    from planner.api import model_of
    from planner.sources import load

    text = logs.VLLM_V1.replace("non-default args: {", "non-default args: {" + flags).replace("'max_model_len': 8192, 'gpu_memory_utilization': 0.9, ", "")
    text = "\n".join(line for line in text.splitlines() if "Initializing" not in line)
    found = reconcile(text, model=model_of(load("catalog:Llama-3.1-8B")))
    assert found.log.value("kv_tokens") == 442_528
    found.to_json()
