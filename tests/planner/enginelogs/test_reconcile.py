"""A log beside a plan: exact from the printed pool, causes only where they close the difference, measured values back into the plan."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planner.__main__ import main
from planner.api import model_of
from planner.capacity import plan
from planner.enginelogs import Reconciliation, read_log, reconcile
from planner.enginelogs.assume import scenario_of
from planner.enginelogs.causes import CANDIDATES
from planner.enginelogs.compare import pool_figure
from planner.enginelogs.measured import measured_options
from planner.hardware import find
from planner.messages.en import TEXT
from planner.model import ModelSpec
from planner.scenario import Scenario, from_options
from planner.sources import load
from tests.conftest import CONFIGS
from tests.planner.enginelogs import logs

LLAMA = "catalog:Llama-3.1-8B"


def model(source: str) -> ModelSpec:
    return model_of(load(source))


def lines(found: Reconciliation) -> dict[str, Any]:
    return {line.name: line for line in found.lines if line.how != "log"}


# -- from the printed pool -------------------------------------------------------------------------------------------------


def test_the_pool_of_a_windowed_model_is_its_sum() -> None:
    """SGLang prints K and V of the window pool and of the full one, then both together."""
    pools = ("[TP0] KV Cache is allocated. #tokens: 774980, K size: 8.75 GB, V size: 8.75 GB\n[TP0] KV Cache is allocated. #tokens: 968726, "
             "K size: 11.0 GB, V size: 11.0 GB\n")  # fmt: skip
    whole = pool_figure(read_log(pools + "[TP0] SWAKVPool mem usage: 39.50 GB, swa size: 774980, full size: 968726"))
    assert whole is not None
    assert whole.value == round(39.5 * 2**30)


def test_tokens_blocks_and_concurrency_come_out_of_the_printed_pool() -> None:
    """54.02 GiB / 2 MiB = 27,658 blocks of 16 tokens; 442,528 / 8,192 = 54.02."""
    found = lines(reconcile(logs.VLLM_V1, model=model(LLAMA)))
    assert {name: (line.predicted, line.status, line.difference) for name, line in found.items() if line.how == "pool"} == {
        "kv_tokens": (442_528, "agrees", 0), "num_blocks": (27_658, "agrees", 0), "max_concurrency": (27_658 / 512, "agrees", 0)}  # fmt: skip
    assert found["weights_bytes"].status == "agrees"  # 14.96 GiB of weights, 15.0 printed
    assert found["weights_bytes"].predicted == 8_030_261_248 * 2


@pytest.mark.parametrize("change", [("442,528 tokens", "442,032 tokens", "kv_tokens"), ("is: 27658", "is: 27690", "num_blocks"),
                                    ("54.02x", "54.12x", "max_concurrency")])  # fmt: skip
def test_a_figure_off_by_more_than_rounding_differs(change: tuple[str, str, str]) -> None:
    text = logs.VLLM_V1.replace(change[0], change[1])
    found = lines(reconcile(text, model=model(LLAMA)))
    assert found[change[2]].status == "differs"
    assert found[change[2]].difference != 0
    assert found[change[2]].cause is None  # no change of the server gives this figure and keeps the others


def test_the_poorest_rank_decides() -> None:
    """39.5 GiB / (1 MiB a block of 16 tokens on each of two ranks) = 40,448 blocks, 647,168 tokens."""
    found = lines(reconcile(logs.VLLM_RANKS, model=model(LLAMA)))
    assert (found["kv_tokens"].predicted, found["kv_tokens"].status) == (647_168, "agrees")
    assert found["max_concurrency"].status == "agrees"


def test_a_refusals_needs_are_exact() -> None:
    """131,072 tokens x 131,072 bytes = 16 GiB; 8 GiB hold half of them, less the null block."""
    found = lines(reconcile(logs.VLLM_REFUSED, model=model(LLAMA)))
    assert (found["kv_needed_bytes"].predicted, found["kv_needed_bytes"].status) == (16 * 2**30, "agrees")
    assert found["estimated_max_len"].status == "agrees"
    short = lines(reconcile(logs.VLLM_REFUSED.replace("(16.0 GiB", "(17.0 GiB"), model=model(LLAMA)))
    assert short["kv_needed_bytes"].status == "differs"


def test_sglang_and_llamacpp_from_what_they_print() -> None:
    sglang = lines(reconcile(logs.SGLANG, model=model(LLAMA)))
    assert sglang["kv_tokens"].status == "agrees"
    cpp = lines(reconcile(logs.LLAMACPP, model=model(LLAMA)))
    assert (cpp["kv_pool_bytes"].predicted, cpp["kv_pool_bytes"].status) == (2**31, "agrees")  # 16,384 cells x 131,072 bytes
    assert cpp["n_ctx"].predicted == 16_384
    wrong = lines(reconcile(logs.LLAMACPP.replace("2048.00 MiB ( 16384", "2148.00 MiB ( 16384"), model=model(LLAMA)))
    assert wrong["kv_pool_bytes"].status == "differs"


# -- causes ----------------------------------------------------------------------------------------------------------------

V1 = (
    "INFO [gpu_worker.py:1] Available KV cache memory: {pool} GiB\nINFO GPU KV cache size: {tokens} tokens\n"
    "INFO Maximum concurrency for {length} tokens per request: {many}x\n"
)
# (why, log, config, the user's options, cause, option that it changes)
CAUSES: tuple[tuple[str, str, str, dict[str, Any], str, tuple[str, Any]], ...] = (
    # 20 GiB: 163,840 tokens in bf16, twice as many in fp8
    ("fp8 cache", V1.format(pool="20.0", tokens="327,680", length="8,192", many="40.00"), LLAMA, {}, "kv_dtype", ("kv_dtype", "fp8")),
    # planned with fp8, and the engine kept bf16
    ("bf16 cache", V1.format(pool="20.0", tokens="163,840", length="8,192", many="20.00"), LLAMA, {"kv_dtype": "fp8"}, "kv_dtype", ("kv_dtype", "bf16")),
    # planned for one rank; two ranks hold half of the heads each
    ("two ranks", "INFO Model loading took 7.6 GiB memory and 1 seconds\n" + V1.format(pool="20.0", tokens="327,680", length="8,192", many="40.00"), LLAMA, {},
     "ranks", ("tp", 2)),
    # the user's largest length is not the log's
    ("length", V1.format(pool="20.0", tokens="163,840", length="8,192", many="20.00"), LLAMA, {"max_model_len": 4096}, "max_model_len",
     ("max_model_len", 8192)),
)  # fmt: skip


@pytest.mark.parametrize("case", CAUSES, ids=lambda c: c[0])
def test_a_cause_is_named_where_it_closes_the_difference(case: tuple[str, str, str, dict[str, Any], str, tuple[str, Any]]) -> None:
    _, text, source, given, code, change = case
    found = reconcile(text, model=model(source), given=given)
    told = [line.to_json()["cause"] for line in found.lines if line.cause]
    assert told
    assert all(t["code"] == code and change in t["changes"].items() for t in told)
    for line in found.lines:
        if line.cause:
            closed = line.cause.to_json(line.name)
            assert abs(closed["difference"]) <= line.figure.off + 1e-3 * float(line.figure.value)  # the closed difference is shown
            assert abs(line.difference or 0) > abs(closed["difference"])


def test_mla_without_its_latent_is_seen() -> None:
    """DeepSeek-V2-Lite, 27 layers: 16 heads of 192, K and V, are 331,776 bytes a token, 10.7 times the latent's 31,104: 35 GiB hold
    7,079 blocks where the latent would have 75,500."""
    small = CONFIGS / "deepseek_v2.json"
    spec = model(str(small))
    s = Scenario(sequences=1, tokens=1024, max_model_len=1024, kv_memory=35 * 2**30)
    latent, expanded = plan(spec, None, s), plan(spec, None, replace(s, engine_version="0.7.0"))
    many = expanded.num_blocks or 0
    assert 0 < 5 * many < (latent.num_blocks or 0)
    text = (f"INFO model weights take 1.0GiB; the rest of the memory reserved for KV Cache is 35.00GiB.\nINFO # cuda blocks: {many}, # CPU blocks: 9\n"
            f"INFO Maximum concurrency for 1024 tokens per request: {many * 16 / 1024:.2f}x")  # fmt: skip
    found = lines(reconcile(text, model=spec))
    assert found["num_blocks"].cause is not None
    assert found["num_blocks"].cause.codes == ("latent_off",)


def test_a_difference_that_nothing_closes_has_no_cause() -> None:
    found = reconcile(V1.format(pool="20.0", tokens="170,000", length="8,192", many="20.75"), model=model(LLAMA))
    assert {line.status for line in lines(found).values()} == {"differs"}
    assert all(line.cause is None for line in found.lines)


def test_of_two_figures_that_do_not_fit_the_plan_clears_the_right_one() -> None:
    """20 GiB are 163,840 tokens: 20 requests of 8,192, not 25. The log alone cannot tell which of the two is wrong."""
    text = "INFO Initializing a V1 LLM engine (v0.30.0) with config: x\n" + V1.format(pool="20.0", tokens="163,840", length="8,192", many="25.00")
    alone = reconcile(text)
    assert {line.name for line in alone.flagged} == {"kv_tokens", "max_concurrency"}
    beside = reconcile(text, model=model(LLAMA))
    assert {line.name for line in beside.flagged} == {"max_concurrency"}


def test_another_model_is_no_cause() -> None:
    text = logs.VLLM_V1
    found = reconcile(text, model=model("catalog:Qwen3-8B"))
    assert lines(found)["kv_tokens"].status == "differs"
    assert all(line.cause is None for line in found.lines)


def test_every_candidate_has_its_words() -> None:
    assert all(f"log.cause.{c.code}" in TEXT for c in CANDIDATES)


# -- the device ------------------------------------------------------------------------------------------------------------


def test_with_a_device_the_budget_stands_beside_the_log() -> None:
    found = lines(reconcile(logs.VLLM_V1, model=model(LLAMA), hardware=find("H100 SXM")))
    assert {"activation_bytes", "non_torch_bytes", "available_kv_bytes", "total_memory_bytes"} <= set(found)
    pool = found["available_kv_bytes"]
    assert pool.how == "device"
    assert pool.low is not None
    assert pool.low < (pool.predicted or 0)
    assert pool.difference is not None


def test_the_users_options_win_over_the_logs_flags() -> None:
    found = reconcile(logs.VLLM_V1, model=model(LLAMA), given={"max_model_len": 4096, "tp": 2})
    assert found.scenario is not None
    assert (found.scenario.max_model_len, found.scenario.tp, found.scenario.memory_fraction) == (4096, 2, 0.9)
    assert "max_model_len" not in found.taken
    assert found.taken["prefix_caching"] is False


def test_an_engine_without_rules_is_held_against_itself_only() -> None:
    found = reconcile(logs.LMDEPLOY, model=model(LLAMA))
    assert found.lines == ()
    assert "log_engine_not_planned" in [n.code for n in found.notes]


def test_a_server_that_cannot_be_planned_is_a_note_with_what_would_fit() -> None:
    """Seven ranks divide no heads: nothing is predicted, and the number of ranks that gives every figure is named."""
    found = reconcile(logs.VLLM_V1.replace("tensor_parallel_size=1", "tensor_parallel_size=7"), model=model(LLAMA))
    assert "log_plan_refused" in [n.code for n in found.notes]
    told = lines(found)
    assert {line.predicted for line in told.values()} == {None}
    assert {line.cause.codes for line in told.values() if line.cause} == {("ranks",)}
    hopeless = reconcile(logs.VLLM_V1.replace("tensor_parallel_size=1", "tensor_parallel_size=7"), model=model("catalog:Qwen3-8B"))
    assert hopeless.flagged == ()


# -- measured values -------------------------------------------------------------------------------------------------------


def test_measured_values_go_into_the_plan() -> None:
    log = read_log(logs.VLLM_V1)
    assert {k: v for k, v in measured_options(log).items() if k in ("kv_memory", "weight_bytes", "used_memory_bytes")} == {
        "kv_memory": round(54.02 * 2**30), "weight_bytes": 15 * 2**30, "used_memory_bytes": round(79.19 * 2**30) - round(78.6 * 2**30)}  # fmt: skip
    s = from_options(measured_options(log), scenario_of(log, model(LLAMA), {})[0])
    assert (s.kv_memory, s.weight_bytes, s.max_model_len, s.engine) == (round(54.02 * 2**30), 15 * 2**30, 8192, "vllm")
    assert plan(model(LLAMA), None, s).kv_tokens == 442_528


def test_a_log_that_measured_nothing_gives_nothing() -> None:
    assert measured_options(read_log("INFO # GPU blocks: -1, # CPU blocks: 512")) == {}
    assert "kv_memory" not in measured_options(read_log("Available KV cache memory: -2.16 GiB"))


# -- the command line ------------------------------------------------------------------------------------------------------


def answers(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_the_command_answers_one_object_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "a.log", tmp_path / "b.log"
    good.write_text(logs.VLLM_V1)
    bad.write_text("nothing of an engine")
    assert main(["reconcile", str(good), str(bad), str(tmp_path / "none.log"), "--json"]) == 0
    first, second, third = answers(capsys)
    assert first["source"]["path"] == str(good)
    assert (first["engine"], first["engine_version"], first["found"]["kv_tokens"]["value"], first["found"]["kv_tokens"]["line"]) == (
        "vllm",
        "0.19.0",
        442_528,
        6,
    )
    assert first["flags"]["max_model_len"]["value"] == 8192
    assert all({"name", "predicted", "reported", "difference", "cause"} <= set(line) for line in first["lines"])
    assert (second["error"]["code"], second["error"]["field"]) == ("log_nothing", "log")
    assert (third["error"]["code"], third["source"]["path"]) == ("file_unreadable", str(tmp_path / "none.log"))
    assert main(["reconcile", str(bad), "--json"]) == 2


def test_a_log_may_come_from_standard_input(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(logs.SGLANG.encode())))
    assert main(["reconcile", "-", "--json"]) == 0
    (out,) = answers(capsys)
    assert (out["engine"], out["found"]["kv_tokens"]["value"], out["source"]["kind"]) == ("sglang", 327_680, "stdin")


def test_the_command_with_a_model_and_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.log"
    path.write_text(logs.VLLM_V1.replace("442,528", "452,528"))
    assert main(["reconcile", str(path), "--model", LLAMA, "--gpu", "H100 SXM", "--json"]) == 0
    (out,) = answers(capsys)
    told = {line["name"]: line for line in out["lines"] if line["how"] == "pool"}
    assert (told["kv_tokens"]["predicted"], told["kv_tokens"]["reported"], told["kv_tokens"]["difference"], told["kv_tokens"]["line"]) == (
        442_528,
        452_528,
        10_000,
        6,
    )
    assert 6 in out["flagged"]
    assert main(["reconcile", str(path)]) == 0
    assert "! line 6" in capsys.readouterr().out
    assert main(["reconcile", str(path), "--model", "catalog:no-such-model", "--json"]) == 2
    assert answers(capsys)[0]["error"]["field"] == "source"
    assert main(["reconcile", str(path), "--model", LLAMA, "--gpu", "no such GPU", "--json"]) == 2
