"""llama.cpp: which layers the device holds, plans and what is asked of them, the launch line and the command line."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from typing import Any

import pytest

from planner.__main__ import main
from planner.answers import plan_json
from planner.api import answer
from planner.cache import Slots, max_sequences, max_tokens
from planner.capacity import CapacityPlan, plan
from planner.engines import llamacpp
from planner.errors import InvalidInput, PlannerError
from planner.hardware import find
from planner.heatmap import heat_map
from planner.launch import launch
from planner.model import LayerSpec
from planner.readers import read_config
from planner.remedies import remedies
from planner.report.content import facts, verdict
from planner.scenario import Scenario
from tests import gguf_file
from tests.conftest import small_configs
from tests.planner.llamacpp_cases import ROW, catalog, config, held, planned, rows_model

# -- layers on the device ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "device"), [(None, range(8)), (9, range(8)), (100, range(8)), (8, range(1, 8)), (3, range(6, 8)), (1, range(8, 8)),
                                           (0, range(8, 8))])  # fmt: skip
def test_the_last_layers_go_to_the_device_the_output_first(n: int | None, device: range) -> None:
    model = read_config(config("qwen3"))
    f = held(model, n_gpu_layers=n)
    row = 8 * 4096 * 4 * 128 * 2 * 2
    assert f.allocation.device_layers == device
    assert (f.per_rank_bytes[0], f.host_bytes) == (row * len(device) // 8, row * (8 - len(device)) // 8)


def test_draft_blocks_of_a_gguf_take_the_first_places() -> None:
    gguf = read_config(gguf_file.head("glm4_moe"))
    device = held(gguf, n_gpu_layers=3).allocation.device_layers
    assert device is not None
    assert len(device) == 1  # the output, one MTP block, one layer


@pytest.mark.parametrize("tied", [True, False])
def test_weights_follow_their_layers(tied: bool) -> None:
    """Llama of 8 layers: what is on the device are its layers, the last norm, and the output, which is the embedding again where it is tied."""
    model = read_config(config("llama", tie_word_embeddings=tied))
    layer = sum(w.elements for w in model.layers[0].weights) * 2
    outer = {w.role: w.elements * 2 for w in model.weights}
    output = outer["norm"] + outer["embedding" if tied else "lm_head"]
    for n, expected in ((None, 8 * layer + output), (3, 2 * layer + output), (1, output), (0, 0)):
        p = planned(model, n_gpu_layers=n)
        assert p.weights_bytes_per_rank == (expected,)
        assert next(line.bytes for line in p.ledgers[0] if line.code == "weights") == expected


# -- plans -------------------------------------------------------------------------------------------------------------

CHOICES: list[dict[str, Any]] = [
    {}, {"parallel": 4, "max_model_len": 4096}, {"parallel": 4, "max_model_len": 4096, "kv_unified": True, "n_gpu_layers": 4},
    {"flash_attn": "off", "sequences": 3, "tokens": 700}, {"swa_full": True, "kv_dtype": "bf16", "sequences": 2}, {"kv_memory": 2**30, "tokens": 300},
]  # fmt: skip


@pytest.mark.parametrize("options", CHOICES, ids=str)
def test_identities_hold_for_every_family(options: dict[str, Any]) -> None:
    answered = 0
    for name, raw in small_configs():
        try:
            p = planned(read_config(raw, name), **{"tokens": 500, **options})
        except PlannerError:
            continue
        answered += 1
        assert all(i["holds"] for i in plan_json(p)["identities"]), name
        assert p.footprint.engine_bytes == p.footprint.architecture_bytes + sum(g.bytes for g in p.gap), name
    assert answered > 90


def gap(p: CapacityPlan) -> dict[str, int]:
    return {line.code: line.bytes for line in p.gap if line.bytes}


def test_the_gap_is_told_apart() -> None:
    """Four slots of 1,024 cells, two of them with 300 tokens of Gemma-like windows of 128: cells for 512 are the sequence's own."""
    p = planned(rows_model(), parallel=4, max_model_len=4096, sequences=2, tokens=300)
    assert gap(p) == {"last_block": 2 * 212 * ROW, "empty_cells": (4096 - 1024) * ROW}
    near = planned(rows_model("gemma3", window=128), sequences=2, tokens=4096)
    assert gap(near) == {"window_slack": 2 * (768 - 128) * ROW}  # 128 + 512 cells, padded
    unused = planned(rows_model("llama", window=1024), tokens=4096)
    assert gap(unused) == {"window_slack": 3072 * ROW}
    f32 = planned(rows_model(), max_model_len=256, tokens=256, kv_dtype="q8_0")
    assert gap(f32) == {}
    deci = replace(rows_model("deci"), layers=(*rows_model().layers, LayerSpec(caches=())))
    assert gap(planned(deci, tokens=256, flash_attn="off")) == {"padding": 256 * 2048}


def test_a_load_beyond_the_context_does_not_fit() -> None:
    model = rows_model()
    assert planned(model, parallel=4, max_model_len=4096, sequences=4, tokens=1024).fits
    more = planned(model, parallel=4, max_model_len=4096, sequences=5, tokens=1024)
    assert (more.fits, more.limited_by, more.shortfall_bytes, more.max_sequences) == (False, "slots", 0, 4)
    longer = planned(model, parallel=4, max_model_len=4096, sequences=4, tokens=1025)
    assert (longer.fits, longer.limited_by, longer.max_sequences) == (False, "model", 0)
    together = planned(model, parallel=4, max_model_len=4096, kv_unified=True, sequences=3, tokens=1400)
    assert (together.limited_by, together.max_sequences) == ("slots", 2)
    assert planned(model, sequences=257, tokens=16).limited_by == "slots"
    fewer = [r for r in remedies(more) if r.code == "fewer_sequences"]
    assert [dict(r.changes) for r in fewer] == [{"sequences": 4}]
    assert any("do not go into" in n["text"] for n in plan_json(more)["notes"])


def test_longest_and_most_by_bisection() -> None:
    p = planned(rows_model(), kv_memory=10_000 * ROW, tokens=1000, sequences=1)
    assert p.max_sequences == 9  # 1,024 cells each
    assert p.longest_context_tokens() == 39 * 256
    fixed = planned(rows_model(), kv_memory=10_000 * ROW, tokens=1000, sequences=1, parallel=2, max_model_len=4096)
    assert (fixed.max_sequences, fixed.longest_context_tokens(), fixed.kv_tokens) == (2, 2048, 4096)
    tight = planned(rows_model(), kv_memory=4095 * ROW, tokens=1000, sequences=1, parallel=2, max_model_len=4096)
    assert (tight.fits, tight.limited_by, tight.shortfall_bytes, tight.max_sequences) == (False, "pool", ROW, 0)


def test_slots_as_a_value() -> None:
    pools = llamacpp.allocate(rows_model(), llamacpp.settle(rows_model(), None, Scenario(engine="llamacpp"))).stages[0]
    assert pools[0].slots == Slots(most=256)
    assert max_sequences(pools, 256, 10**15) == 256
    assert max_tokens(pools, 2, 2 * 512 * ROW, 10**6) == 512


@pytest.mark.parametrize("options", [{}, {"parallel": 8, "max_model_len": 65536}, {"kv_unified": True}, {"n_gpu_layers": 4}])
def test_the_heat_map_is_made_of_plans(options: dict[str, Any]) -> None:
    model = read_config(config("gemma3"))
    base = Scenario(engine="llamacpp", gpu="T4", tokens=4096, sequences=2, **options)
    p = plan(model, find("T4"), base)
    m = heat_map(p)
    for j, tokens in enumerate(m.tokens):
        for i in range(0, len(m.sequences), 3):
            cell = plan(model, find("T4"), replace(base, tokens=tokens, sequences=m.sequences[i]))
            assert m.rank_bytes[i][j] == cell.footprint.per_rank_bytes[0]
            if cell.limited_by != "model":
                assert m.fits[i][j] == cell.fits


def test_remedies_of_llamacpp() -> None:
    p = plan(catalog("Llama-3.1-8B"), find("RTX 4090"), Scenario(engine="llamacpp", gpu="RTX 4090", tokens=131072, sequences=1))
    assert p.limited_by == "pool"
    found = {r.code: r for r in remedies(p)}
    assert set(found) >= {"shorter", "q8_cache", "fewer_gpu_layers", "int4_weights"}
    assert "fp8_cache" not in found
    best = dict(found["fewer_gpu_layers"].changes)["n_gpu_layers"]
    assert found["fewer_gpu_layers"].after.fits
    assert not plan(p.model, p.hardware, replace(p.scenario, n_gpu_layers=best + 1)).fits


def test_a_mix_of_lengths_is_refused() -> None:
    with pytest.raises(InvalidInput) as caught:
        answer("plan", "catalog:Llama-3.1-8B", {"engine": "llamacpp", "lengths": "512+128:0.5,4096+256:0.5"})
    assert (caught.value.code, caught.value.field) == ("lengths_equal_slots", "lengths")


def test_reports_name_the_hosts_part() -> None:
    """17 layers counted with the output: 16 of 32 on the GPU."""
    p = planned(catalog("Llama-3.1-8B"), max_model_len=8192, n_gpu_layers=17)
    found = {label: exact for label, _, exact in facts(p)}
    assert found["KV cache in the host's memory"].startswith("536,870,912")
    slots = planned(rows_model(), parallel=1, sequences=2)
    assert "do not go into the engine's slots" in verdict(slots)


# -- the launch line, the command line ---------------------------------------------------------------------------------


def test_the_launch_line() -> None:
    p = planned(rows_model("gemma3", window=512), parallel=4, max_model_len=4096, sequences=4, tokens=1024, cache_type_k="q8_0", n_gpu_layers=3,
                n_ubatch=256, swa_full=True)  # fmt: skip
    words = shlex.split(launch(p, "org/My model")["llamacpp"])
    assert words == ["llama-server", "-m", "My model.gguf", "-c", "4096", "-np", "4", "-ctk", "q8_0", "-ctv", "f16", "-ngl", "3", "-b", "2048", "-ub", "256",
                     "-fa", "auto", "--no-kv-unified", "--swa-full"]  # fmt: skip
    line = launch(planned(rows_model(), kv_unified=True), "x.GGUF")["llamacpp"]
    assert "-m x.GGUF" in line
    assert "-ngl all" in line
    assert "--kv-unified" in line
    assert launch(planned(rows_model(), sequences=300, tokens=8), "x") == {}


def test_answers_of_the_command_line() -> None:
    kv = answer("kv", "catalog:Llama-3.1-8B", {"engine": "llamacpp", "tokens": 4096, "batch": 2, "cache-type-k": "q8_0", "cache-type-v": "q8_0"})
    assert kv["engine_bytes"] == 2 * 4096 * 32 * 2 * 1024 * 34 // 32
    assert (kv["host_bytes"], kv["per_rank_bytes"]) == (0, [kv["engine_bytes"]])
    out = answer("plan", "catalog:Llama-3.1-8B", {"engine": "llamacpp", "max_model_len": 8192, "parallel": 4, "n_gpu_layers": 17})
    assert (out["fits"], out["kv_tokens"], out["scenario"]["sequences"], out["scenario"]["tokens"]) == (True, 8192, 4, 2048)
    assert out["per_rank_bytes"] == [out["host_bytes"]] == [16 * 8192 * 4096]
    assert out["launch"]["llamacpp"].startswith("llama-server -m ")
    whole = answer("plan", "catalog:Llama-3.1-8B", {"engine": "llamacpp", "max-model-len": "8192", "parallel": "4", "kv-unified": "true"})
    assert (whole["fits"], whole["scenario"]["sequences"], whole["scenario"]["tokens"]) == (True, 1, 8192)
    with pytest.raises(InvalidInput) as caught:
        answer("plan", "catalog:Llama-3.1-8B", {"engine": "llamacpp", "parallel": "many"})
    assert caught.value.field == "parallel"


def test_flags_of_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["kv", "Llama-3.1-8B", "--engine", "llamacpp", "--tokens", "1000", "--batch", "3", "--json"]
    sizes = []
    for more in ([], ["--kv-unified"], ["--cache-type-k", "q8_0"], ["--parallel", "4"]):
        assert main([*words, *more]) == 0
        sizes.append(json.loads(capsys.readouterr().out)["engine_bytes"] // (32 * 2048))
    assert sizes == [3072 * 2, 3072 * 2, 3072 * 17 // 32 + 3072, 4096 * 2]
    assert main([*words, "--cache-type-k", "f8"]) == 2
