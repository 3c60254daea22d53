"""A log against itself: consistent logs stay unflagged, and a wrong figure is flagged at its line."""

from __future__ import annotations

import pytest

from planner.enginelogs import read_log, reconcile
from planner.enginelogs.intervals import Interval
from planner.enginelogs.rules import RULES
from planner.messages.en import TEXT
from tests.planner.enginelogs import logs

CONSISTENT = [name for name in dir(logs) if name.isupper()]
# how many figures of each log another one determines
DETERMINED = {
    "VLLM_V1": 12,
    "VLLM_V0": 3,
    "VLLM_REFUSED": 2,
    "SGLANG": 5,
    "TRTLLM": 2,
    "TRTLLM_TORCH": 2,
    "LLAMACPP": 4,
    "LLAMACPP_WINDOWS": 8,
    "TGI": 1,
    "MLC": 1,
}


@pytest.mark.parametrize("name", CONSISTENT)
def test_consistent_logs_are_not_flagged(name: str) -> None:
    found = reconcile(getattr(logs, name))
    assert [(line.name, line.rule) for line in found.lines if line.status != "agrees"] == []
    assert len(found.lines) >= DETERMINED.get(name, 0)


# (log, printed, planted, the line that must be flagged, the figure, what it should have been)
PLANTED = (
    (logs.VLLM_V1, "442,528 tokens", "452,528 tokens", 6, "kv_tokens", 442_528),
    (logs.VLLM_V1, "request: 54.02x", "request: 57.02x", 7, "max_concurrency", 54.0195),
    (logs.VLLM_V1, "memory: 54.02 GiB", "memory: 57.02 GiB", 5, "available_kv_bytes", round(54.02 * 2**30)),
    (logs.VLLM_V1, "is (0.9, 71.27 GiB)", "is (0.9, 75.27 GiB)", 9, "requested_bytes", None),
    (logs.VLLM_V1, "memory: 17.25GiB", "memory: 18.25GiB", 4, "non_kv_bytes", round(17.25 * 2**30)),
    (logs.VLLM_V1, "56876104417", "66876104417", 9, "kv_to_fit_bytes", None),
    (logs.VLLM_V1, "took 0.90 GiB", "took 1.90 GiB", 8, "cuda_graphs_bytes", round(0.9 * 2**30)),
    (logs.VLLM_V1, "num_gpu_blocks is: 27658", "num_gpu_blocks is: 27958", 10, "num_blocks", None),
    (logs.VLLM_V0, "# cuda blocks: 2560", "# cuda blocks: 2460", 5, "num_blocks", 2560),
    (logs.VLLM_V0, "request: 10.00x", "request: 11.00x", 6, "max_concurrency", 10.0),
    (logs.VLLM_V0, "KV Cache is 5.00GiB", "KV Cache is 6.00GiB", 4, "available_kv_bytes", None),
    ("INFO # GPU blocks: 229, # CPU blocks: 512\nValueError: The model's max seq len (4096) is larger than the maximum number of tokens that can be stored "
     "in KV cache (3664).", "# GPU blocks: 229", "# GPU blocks: 470", 1, "num_blocks", 229),
    (logs.VLLM_REFUSED, "length is 65536", "length is 85536", 1, "estimated_max_len", None),
    (logs.SGLANG, "mem usage=16.00 GB", "mem usage=19.00 GB", 3, "weights_bytes", 16 * 2**30),
    (logs.SGLANG, "V size: 20.00 GB", "V size: 25.00 GB", 4, "v_bytes", 20 * 2**30),
    (logs.SGLANG, "max_total_num_tokens=327680", "max_total_num_tokens=427680", 8, "kv_tokens", 327_680),
    (logs.SGLANG, "mem usage=0.80 GB", "mem usage=1.80 GB", 7, "cuda_graphs_bytes", round(0.8 * 2**30)),
    (logs.TRTLLM, "cache (220480)", "cache (230480)", 7, "kv_tokens", 220_480),
    (logs.TRTLLM_TORCH, "non-torch): 91.46 GiB", "non-torch): 95.46 GiB", 4, "non_kv_bytes", round(91.46 * 2**30)),
    (logs.LLAMACPP, "size = 2048.00 MiB", "size = 2148.00 MiB", 16, "kv_pool_bytes", 2048 * 2**20),
    (logs.LLAMACPP, "K (f16): 1024.00 MiB", "K (f16): 1124.00 MiB", 16, "k_bytes", 1024 * 2**20),
    (logs.LLAMACPP, "CPU KV buffer size =   768.00", "CPU KV buffer size =   868.00", 16, "kv_pool_bytes", None),
    (logs.LLAMACPP_WINDOWS, "4.25 MiB (  1024 cells", "4.25 MiB (  2048 cells", 4, "cells", 1024),
    (logs.TGI, "tokens to 123449", "tokens to 133449", 2, "kv_tokens", 123_449),
    (logs.MLC, "usage: 5736.325 MB", "usage: 6736.325 MB", 2, "non_kv_bytes", None),
)  # fmt: skip


# just beyond what printing rounds, and just within it
ROUNDING = (
    (logs.VLLM_V1, "request: 54.02x", "request: 54.04x", "request: 54.020x"),
    (logs.VLLM_V1, "is (0.9, 71.27 GiB)", "is (0.9, 71.29 GiB)", "is (0.9, 71.271 GiB)"),
    (logs.VLLM_V0, "request: 10.00x", "request: 10.02x", "request: 10.0x"),
    (logs.LLAMACPP, "K (f16): 1024.00 MiB", "K (f16): 1024.05 MiB", "K (f16): 1024.0 MiB"),
    (logs.TRTLLM_TORCH, "max tokens: 41.10 GiB", "max tokens: 41.14 GiB", "max tokens: 41.1 GiB"),
)


@pytest.mark.parametrize("case", ROUNDING, ids=lambda c: c[2])
def test_rounding_is_allowed_and_no_more(case: tuple[str, str, str, str]) -> None:
    text, printed, beyond, within = case
    assert reconcile(text.replace(printed, within)).flagged == ()
    assert reconcile(text.replace(printed, beyond)).flagged


@pytest.mark.parametrize("case", PLANTED, ids=lambda c: c[2][:36])
def test_a_wrong_figure_is_flagged_at_its_line(case: tuple[str, str, str, int, str, float | None]) -> None:
    text, printed, planted, line, name, expected = case
    assert text.count(printed) == 1
    found = reconcile(text.replace(printed, planted))
    flagged = [(x.figure.line, x.name) for x in found.flagged] + [(f.line, f.name) for x in found.flagged for f in x.alike]
    assert (line, name) in flagged
    assert line in found.to_json()["flagged"] or line in [f.line for x in found.flagged for f in x.alike]
    if expected is not None:
        told = [x.predicted for x in found.flagged if (x.figure.line, x.name) == (line, name)]
        assert told
        assert told[0] == pytest.approx(expected, rel=1e-3)


def test_an_older_vllms_figure_of_one_group_stays_open() -> None:
    """tokens x 4 = concurrency x length: four groups of layers would print so before 0.22, and the log does not say which release it is."""
    found = reconcile("INFO GPU KV cache size: 129,472 tokens\nINFO Maximum concurrency for 262,144 tokens per request: 1.97x")
    assert [(line.status, line.name) for line in found.lines] == [("open", "kv_tokens"), ("open", "max_concurrency")]
    newer = reconcile("INFO Initializing a V1 LLM engine (v0.25.0) with config: x\nINFO GPU KV cache size: 129,472 tokens\n"
                      "INFO Maximum concurrency for 262,144 tokens per request: 1.97x")  # fmt: skip
    assert [(line.status, line.name, line.figure.line) for line in newer.lines] == [("differs", "kv_tokens", 2), ("differs", "max_concurrency", 3)]
    assert [f.name for line in newer.lines for f in line.alike if f.line != line.figure.line] == ["max_concurrency", "concurrency_tokens", "kv_tokens"]


def test_two_starts_in_one_log_are_not_mixed() -> None:
    second = logs.VLLM_V0.replace("15.00", "16.00").replace("5.00GiB", "4.00GiB").replace("2560", "2048").replace("10.00x", "8.00x")
    assert reconcile(logs.VLLM_V0 + second).flagged == ()


PASTED_TWICE = (
    # before and after, as people paste them: no sentence of the weights between
    "(EngineCore pid=1) INFO [gpu_worker.py:1] Available KV cache memory: 8.0 GiB\n(EngineCore pid=1) INFO GPU KV cache size: 65,536 tokens\n"
    "(EngineCore pid=1) INFO Maximum concurrency for 8,192 tokens per request: 8.00x\nand with fp8:\n"
    "(EngineCore pid=1) INFO [gpu_worker.py:1] Available KV cache memory: 9.0 GiB\n(EngineCore pid=1) INFO GPU KV cache size: 147,456 tokens\n"
    "(EngineCore pid=1) INFO Maximum concurrency for 8,192 tokens per request: 18.00x",
    "INFO # GPU blocks: 1000, # CPU blocks: 512\nINFO Maximum concurrency for 4000 tokens per request: 4.00x\n"
    "INFO # GPU blocks: 2000, # CPU blocks: 512\nINFO Maximum concurrency for 4000 tokens per request: 8.00x",
    "Available KV cache memory: 8.0 GiB\nbut then\nAvailable KV cache memory: 6.0 GiB",
    # two models, each with its own context; and the same all in one line
    *(joint.join((
        "llama_context: n_ctx = 4096", "llama_kv_cache: CUDA0 KV buffer size =   448.00 MiB",
        "llama_kv_cache: size =  448.00 MiB ( 4096 cells,  28 layers,  1/1 seqs), K (f16):  224.00 MiB, V (f16):  224.00 MiB",
        "llama_context: n_ctx = 8192", "llama_kv_cache: CUDA0 KV buffer size =   768.00 MiB",
        "llama_kv_cache: size =  768.00 MiB ( 8192 cells,  24 layers,  1/1 seqs), K (f16):  384.00 MiB, V (f16):  384.00 MiB")) for joint in ("\n", " ")),
)  # fmt: skip


@pytest.mark.parametrize("text", PASTED_TWICE, ids=lambda t: t[:24])
def test_one_paste_of_two_starts_is_no_contradiction(text: str) -> None:
    assert reconcile(text).flagged == ()


CONSISTENT_LINES = (
    # a draft model is loaded after the target, and its own beginning stands nearer to the target's end
    "[x TP0] Load weight begin. avail mem=110.00 GB\n[x TP0] Load weight end. elapsed=540.0 s, type=SomeForCausalLM, quant=fp8, avail mem=17.00 GB, mem "
    "usage=93.00 GB.\n[x TP0] Load weight begin. avail mem=17.10 GB\n[x TP0] Load weight end. elapsed=7.0 s, type=SomeForCausalLMNextN, quant=fp8, "
    "avail mem=14.10 GB, mem usage=3.00 GB.",
    # devices over the network hold their parts
    "llama_kv_cache: RPC[127.0.0.1:50052] KV buffer size =   800.00 MiB\nllama_kv_cache: RPC[127.0.0.2:50052] KV buffer size =   784.00 MiB\n"
    "llama_kv_cache: CPU KV buffer size =   432.00 MiB\nllama_kv_cache: size = 2016.00 MiB (  4096 cells, 126 layers,  1/1 seqs), "
    "K (f16): 1008.00 MiB, V (f16): 1008.00 MiB",
    # each slot has its share of the context
    "llama_context: n_seq_max = 4\nllama_context: n_ctx = 16384\nllama_kv_cache: size = 2048.00 MiB ( 4096 cells, 32 layers, 4/4 seqs), K (f16): "
    "1024.00 MiB, V (f16): 1024.00 MiB\nslot load_model: id 0 | new slot, n_ctx = 4096",
    # blocks of a device that holds a whole request in one
    "INFO # neuron blocks: 4, # CPU blocks: 0\nINFO Maximum concurrency for 1024 tokens per request: 4.00x",
)  # fmt: skip


@pytest.mark.parametrize("text", CONSISTENT_LINES, ids=lambda t: t[:24])
def test_lines_that_fit_are_not_flagged(text: str) -> None:
    assert [(line.name, line.rule) for line in reconcile(text).lines if line.status == "differs"] == []


def test_the_drafts_weights_do_not_stand_for_the_targets() -> None:
    assert read_log(CONSISTENT_LINES[0]).value("weights_bytes") == 93 * 2**30


def test_an_excerpt_that_begins_among_the_buffers_leaves_their_sum_open() -> None:
    rest = ("llama_kv_cache_init:     CUDA14 KV buffer size =   180.00 MiB\nllama_new_context_with_model: KV self size  = 2196.00 MiB, "
            "c^KV (f16): 2196.00 MiB, kv^T: not used")  # fmt: skip
    assert [line.status for line in reconcile(rest).lines if line.rule == "buffers"] == ["open"]
    whole = "llama_new_context_with_model: n_ctx = 4096\n" + rest
    assert [line.status for line in reconcile(whole).lines if line.rule == "buffers"] == ["differs"]


def test_ranks_are_not_mixed() -> None:
    """Each rank's own sum: the second rank holds more, and has less left."""
    rank = ("(Worker_TP{n} pid={n}) DEBUG [gpu_worker.py:1] Total non KV cache memory: {w}.25GiB; torch peak memory increase: 2.0GiB; non-torch forward "
            "increase memory: 0.25GiB; weights memory: {v}.0GiB.\n(Worker_TP{n} pid={n}) INFO [gpu_worker.py:2] Requested memory: 0.9 (util), 71.27 GiB\n"
            "(Worker_TP{n} pid={n}) INFO [gpu_worker.py:2] Available KV cache memory: {k} GiB\n")  # fmt: skip
    good = rank.format(n=0, w=17, v=15, k=54.02) + rank.format(n=1, w=18, v=16, k=53.02)
    assert reconcile(good).flagged == ()
    flagged = {x.figure.line for x in reconcile(good.replace("53.02", "54.02")).flagged}
    assert 6 in flagged
    assert not flagged & {1, 2, 3}


def test_every_rule_has_its_words_and_source() -> None:
    assert all(f"log.rule.{rule.code}" in TEXT and rule.source for rule in RULES)


def test_intervals() -> None:
    a, b = Interval(1, 2), Interval(3, 5)
    assert (a + b, b - a, a * b) == (Interval(4, 7), Interval(1, 4), Interval(3, 10))
    assert (b / Interval(2, 4)) == Interval(0.75, 2.5)
    assert (a / Interval(0, 1)).high == float("inf")
    assert a.meets(Interval(2, 9))
    assert not a.meets(Interval(2.1, 9))
