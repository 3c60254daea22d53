"""A report in JSON is its plan again, to the byte: through the file, the command line and damage."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from planner.__main__ import main
from planner.api import answer
from planner.capacity import CapacityPlan, plan
from planner.draft import joined
from planner.engines.options import ONLY
from planner.errors import InvalidInput, NotAConfig, PlannerError
from planner.hardware import find
from planner.mix import from_csv
from planner.model import ModelSpec
from planner.notes import note
from planner.readers import read_config
from planner.report import render, write
from planner.saved import read_back
from planner.scenario import ENGINE_NAMES, OPTIONS, Scenario, from_options
from planner.sources import load, load_bytes
from tests.conftest import refused, small_configs

CONFIGS = dict(small_configs())
SEEING = {"gemma3 with images": {**CONFIGS["gemma3"], "mm_tokens_per_image": 256}, "llava with images": {**CONFIGS["llava_nested"], "image_seq_length": 576}}
"""Models whose files tell the tokens of an image: those of the small ones leave them open."""
CONFIGS |= SEEING
DATE = "2026-01-02"
DEFAULTS = Scenario()
NOTES = (note("warning", "repeated_key", field="vocab_size", key="vocab_size"), note("info", "decoded_as", encoding="UTF-16"))
SEEN: Counter[str] = Counter()
# What else a plan may have, a few at a time, with values that many models and engines take.
MORE: dict[str, tuple[Any, ...]] = {
    "num_speculative_tokens": (1, 3), "samples": (2, 4), "beams": (2,), "images": (1, 5), "max_loras": (2,), "max_lora_rank": (8, 64), "draft": ("org/draft",),
    "prompt": (100,), "output": (50,), "pp": (2,), "dp_attention": (2,), "ep": (2,), "dcp": (2,), "dtype": ("fp16", "fp32"), "engine_version": ("0.10.0",),
    "block_size": (32, 64), "swa_full_tokens_ratio": (0.5,), "mamba_full_memory_ratio": (0.5,), "cross_kv_cache_fraction": (0.3,), "window_pools": (True,),
    "weight_bytes": (10**9,), "used_memory_bytes": (2**30,), "max_num_seqs": (8, 256), "max_num_batched_tokens": (2048, 16_384), "encoder_tokens": (1500,),
    "kv_offload": (2**32,), "cache_implementation": ("static", "quantized"), "cache_backend": ("hqq",), "cache_nbits": (2, 8), "cache_residual": (64,),
    "parallel": (2,), "cache_type_k": ("q8_0",), "cache_type_v": ("q8_0",), "n_gpu_layers": (4,), "n_ubatch": (256,), "n_rs_seq": (1,), "flash_attn": ("on",),
    "kv_unified": (True,), "swa_full": (True,), "hybrid_kv_cache_manager": (False,), "async_scheduling": (False,), "enforce_eager": (True,),
    "target_ttft": (0.5, 2.0), "target_itl": (0.05,), "prefill_policy": ("whole",), "request_rate": (2.5,), "prefix_hit_rate": (0.5,),
    "acceptance_rate": (0.7,), "price_per_gpu_hour": (2.2,), "calibration": ("1.2500;0.0300;3;points;H100 SXM;vllm;Llama-3.1-8B",),
}  # fmt: skip
CHOSEN: Counter[str] = Counter()


@st.composite
def choices(draw: st.DrawFn) -> tuple[str, Scenario]:
    """(name of the config, choices for it): engines, devices, ranks, types and loads varied."""
    name = draw(st.sampled_from((*sorted(CONFIGS), *sorted(SEEING) * 8)))
    gpus = draw(st.sampled_from((1, 1, 2, 4, 8)))
    engine = draw(st.sampled_from(ENGINE_NAMES))
    had = sorted(o for o in MORE if engine in ONLY.get(o, ENGINE_NAMES))  # the others are refused by name
    more = draw(st.dictionaries(st.sampled_from(had), st.integers(0, 9), max_size=3)) | ({"images": draw(st.integers(0, 1))} if name in SEEING else {})
    return name, Scenario(
        **{option: MORE[option][pick % len(MORE[option])] for option, pick in more.items()},
        model=draw(st.sampled_from((name, "org/model@main", "한글 이름"))),
        engine=engine,
        gpu=draw(st.sampled_from(("H100 SXM", "L4", "MI300X", "B200", "RTX 4090", "own:My card 48GiB 960GB/s 181TFLOPS"))),
        gpus=gpus,
        tp=draw(st.sampled_from((None, None, 1, gpus))),
        tokens=draw(st.integers(1, 5000)),
        sequences=draw(st.integers(1, 40)),
        kv_dtype=draw(st.sampled_from(("auto", "auto", "bf16", "fp8"))),
        weight_dtype=draw(st.sampled_from((None, None, "fp8"))),
        memory_fraction=draw(st.one_of(st.none(), st.floats(0.3, 0.99))),
        kv_memory=draw(st.one_of(st.none(), st.none(), st.integers(2**20, 2**36))),
        max_model_len=draw(st.one_of(st.none(), st.integers(64, 20_000))),
        shared_prefix=draw(st.sampled_from((0, 0, 32))),
        lengths=draw(st.sampled_from((None, None, "512+128:7,100+20:3", "64+64"))),
        prefix_caching=draw(st.booleans()),
    )


def rendered(name: str, s: Scenario) -> tuple[CapacityPlan, bytes]:
    """A plan and its file. Raises PlannerError for what no engine runs."""
    p = plan(with_draft(read_config(CONFIGS[name], name), s), find(s.gpu), s)
    return p, render(p, "json", {"kind": "file", "path": name}, config=CONFIGS[name], notes=NOTES, created=DATE)


def same_again(data: bytes) -> CapacityPlan:
    """The plan that the file holds, planned from the file alone."""
    saved = read_back(load_bytes(data, "plan.json").raw)
    loaded = saved.loaded()
    return plan(with_draft(read_config(loaded.raw, loaded.name), saved.scenario), find(saved.scenario.gpu), saved.scenario)


def with_draft(model: ModelSpec, s: Scenario) -> ModelSpec:
    return joined(model, read_config(CONFIGS["llama"], "draft")) if s.draft else model


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(choices())
def test_plan_to_json_to_plan_is_the_same(chosen: tuple[str, Scenario]) -> None:
    try:
        p, data = rendered(*chosen)
    except PlannerError:
        assume(False)  # what no engine runs is no plan
        raise
    again = same_again(data)
    assert again == p
    linked = from_options(dict(parse_qsl(urlencode(chosen[1].to_query()))))  # as an address holds it
    assert linked == chosen[1]
    assert p.asked == read_back(load_bytes(data, "plan.json").raw).scenario == chosen[1]
    CHOSEN.update(o for o, value in linked.to_json().items() if value != getattr(DEFAULTS, o))
    name, saved = chosen[0], read_back(load_bytes(data, "plan.json").raw)
    loaded = saved.loaded()
    SEEN.update((name, p.setting.engine))
    if SEEN.total() % 10 == 0:  # the writer sees nothing but what was read back
        same = render(again, "json", loaded.provenance, config=loaded.raw, notes=loaded.notes, mix=saved.mix, created=saved.created, **saved.parts)
        assert same == data


def test_the_generated_plans_were_many_and_varied() -> None:
    """Runs after the one above: what its figure 500 stands for."""
    if not SEEN:
        pytest.skip("the generated plans did not run")
    assert SEEN.total() >= 2 * 500
    assert set(ENGINE_NAMES) <= set(SEEN)
    assert len(set(SEEN) - set(ENGINE_NAMES)) > 40
    assert len(CHOSEN) > 45
    assert {"lengths", "samples", "beams", "calibration", "prompt", "output", "kv_offload", "images", "max_loras"} <= set(CHOSEN)


@pytest.mark.parametrize(
    ("name", "added", "chosen"),
    [
        ("deepseek_v3", {}, {"num_speculative_tokens": 1, "kv_dtype": "bf16"}), ("glm4_moe", {}, {"num_speculative_tokens": 3}),
        ("gemma3", {"mm_tokens_per_image": 256}, {"images": 5, "samples": 2}),
    ],
)  # fmt: skip
def test_what_few_models_take_is_the_same_too(name: str, added: dict[str, Any], chosen: dict[str, Any]) -> None:
    raw = {**CONFIGS[name], **added}
    s = from_options({"model": name, "gpus": 8, "tokens": 4096, "sequences": 4, **chosen})
    p = plan(read_config(raw, name), find(s.gpu), s)
    again = same_again(render(p, "json", {"kind": "file", "path": name}, config=raw, created=DATE))
    assert again == p
    assert again.asked == s
    assert sum(n.code == "images_added" for n in again.notes) == ("images" in chosen)


WITH: dict[str, dict[str, Any]] = {"draft": {"num_speculative_tokens": 2}, "max_lora_rank": {"max_loras": 2}}
"""What an option cannot be without."""


@pytest.mark.parametrize("option", sorted(MORE))
def test_each_field_is_in_a_plan_that_comes_back(option: str) -> None:
    """Each of its values, with the first engine, model and number of devices that take it."""
    names = (*SEEING, "llama", "mixtral", "deepseek_v3", *sorted(CONFIGS))
    for value in MORE[option]:
        for engine, name, gpus in product(ONLY.get(option, ENGINE_NAMES), names, (1, 8)):
            s = Scenario(**{"model": name, "engine": engine, "gpus": gpus, "tokens": 700, "sequences": 2, **WITH.get(option, {}), option: value})
            try:
                p, data = rendered(name, s)
            except PlannerError:
                continue
            assert same_again(data) == p
            assert read_back(load_bytes(data, "plan.json").raw).scenario == s
            assert from_options(dict(parse_qsl(urlencode(s.to_query())))) == s
            break
        else:
            pytest.fail(f"no plan has {option} = {value}")


def test_every_field_of_a_plan_is_generated() -> None:
    """A field that is added later must be added here too; how any value of it goes through an address is in test_scenario.py."""
    drawn = {"model", "engine", "gpu", "gpus", "tp", "tokens", "sequences", "kv_dtype", "weight_dtype", "memory_fraction", "kv_memory", "max_model_len",
             "shared_prefix", "lengths", "prefix_caching"}  # fmt: skip
    assert drawn | set(MORE) == set(OPTIONS)


def saved_file(tmp_path: Path, source: str, options: dict[str, Any]) -> Path:
    path = tmp_path / "plan.json"
    path.write_bytes(write(source, options, "json"))
    return path


CSV = "prompt,output,count\n" + "".join(f"{100 + i},{i % 7 + 1},{i % 5 + 1}\n" for i in range(200))


@pytest.mark.parametrize(
    "options",
    [{}, {"gpu": "L4", "tokens": 1000}, {"engine": "sglang", "sequences": 4, "tokens": 500}, {"prompt": 100, "output": 20, "lengths": "64+64:3,100+1"},
     {"lengths": "CSV", "tokens": 1000}, {"engine": "llamacpp", "parallel": 2, "max_model_len": 4096},
     {"draft": "Llama-3.2-1B", "num_speculative_tokens": 2, "tokens": 500}],
)  # fmt: skip
def test_the_command_line_makes_the_same_files_from_a_saved_plan(options: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if options.get("lengths") == "CSV":
        mix = tmp_path / "mix.csv"
        mix.write_text(CSV)
        options = {**options, "lengths": str(mix)}
        assert from_csv(CSV.encode()).text() is None  # no text could bring it back
    path = saved_file(tmp_path, "Llama-3.1-8B", options)
    for fmt in ("json", "md", "xlsx"):
        assert write(str(path), {}, fmt) == write("Llama-3.1-8B", options, fmt), fmt
    asked = [x for k, v in options.items() for x in (f"--{k.replace('_', '-')}", str(v))]
    assert main(["plan", "Llama-3.1-8B", *asked, "--json"]) == 0
    first = capsys.readouterr().out
    for words in (["--from", str(path)], [str(path)]):
        assert main(["plan", *words, "--json"]) == 0
        assert capsys.readouterr().out == first, words


def test_images_come_back_as_images(tmp_path: Path) -> None:
    path = saved_file(tmp_path, "Gemma-3-27B", {"gpus": 2, "images": 3, "prompt": 1000, "output": 24, "samples": 2})
    assert write(str(path), {}, "json") == path.read_bytes()
    body = json.loads(path.read_text())
    assert (body["tokens"], [body["scenario"][k] for k in ("images", "prompt", "output", "tokens")]) == (1024 + 3 * 256, [3, 1000, 24, 1024])
    fewer = answer("plan", str(path), {"images": 1})
    assert (fewer["tokens"], fewer["scenario"]["images"]) == (1024 + 256, 1)


def test_other_options_go_over_a_saved_plan(tmp_path: Path) -> None:
    path = saved_file(tmp_path, "Llama-3.1-8B", {"gpu": "L4", "prompt": 100, "output": 20, "kv_dtype": "fp8", "lengths": "64+64:3,100+1"})
    out = answer("plan", str(path), {"tokens": 2048})
    assert (out["scenario"]["tokens"], out["scenario"]["prompt"], out["scenario"]["gpu"], out["kv_dtype"]) == (2048, None, "L4", "fp8")
    assert out["mix"]["points"] == 2
    assert answer("plan", str(path), {"lengths": "1+1"})["mix"]["points"] == 1
    old = json.loads(path.read_text()) | {"created": "2020-02-02"}
    path.write_text(json.dumps(old))
    assert json.loads(write(str(path), {}, "json"))["created"] == "2020-02-02"
    assert json.loads(write(str(path), {"tokens": 5}, "json"))["created"] != "2020-02-02"


def test_a_saved_plan_is_a_model_for_the_other_commands(tmp_path: Path) -> None:
    path = saved_file(tmp_path, "Gemma-3-27B", {})
    assert answer("read", str(path), {})["parameters"] == answer("read", "Gemma-3-27B", {})["parameters"]
    assert answer("kv", str(path), {"tokens": 5000})["engine_bytes"] == answer("kv", "Gemma-3-27B", {"tokens": 5000})["engine_bytes"]


def test_keys_declared_harmless_stay_declared(tmp_path: Path) -> None:
    config = {"model_type": "newtype", "architectures": ["NewForCausalLM"], "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2,
              "hidden_size": 512, "intermediate_size": 1024, "vocab_size": 1000, "odd_setting": 3, "max_position_embeddings": 4096}  # fmt: skip
    source = tmp_path / "config.json"
    source.write_text(json.dumps(config))
    with pytest.raises(PlannerError):
        write(str(source), {"tokens": 64}, "json")
    path = saved_file(tmp_path, str(source), {"tokens": 64, "harmless": ["odd_setting"]})
    assert write(str(path), {}, "json") == path.read_bytes()
    body = json.loads(path.read_text())
    assert body["inputs"]["harmless"] == ["odd_setting"]
    body["inputs"]["harmless"] = []
    path.write_text(json.dumps(body))
    with pytest.raises(PlannerError):
        write(str(path), {}, "json")


def test_a_plan_without_its_config_takes_the_catalogs(tmp_path: Path) -> None:
    raw = load("catalog:Llama-3.1-8B").raw
    p = plan(read_config(raw, "Llama-3.1-8B"), find("H100 SXM"), Scenario())
    path = tmp_path / "plan.json"
    path.write_bytes(render(p, "json", {"kind": "catalog"}, created=DATE))
    assert answer("plan", str(path), {})["kv_pool_bytes"] == p.kv_pool_bytes
    path.write_bytes(render(replace(p, asked=replace(p.asked, model=str(tmp_path / "config.json"))), "json", {"kind": "file"}, created=DATE))
    (tmp_path / "config.json").write_text(json.dumps(raw))
    with refused(PlannerError, "source"):  # a file from elsewhere does not open files here
        answer("plan", str(path), {})


DEEP: Any = {"a": 1}
for _ in range(30):
    DEEP = {"a": DEEP}


@pytest.mark.parametrize(
    ("part", "value", "field"),
    [
        ("scenario", None, "scenario"), ("scenario", {}, "scenario"), ("scenario", {"tokens": "x"}, "tokens"), ("scenario", {"tokens": 10**30}, "tokens"),
        ("scenario", {"speed": 1}, "speed"), ("scenario", {"engine": ["vllm"]}, "engine"), ("scenario", DEEP, "a"), ("scenario", {"gpu": "H9000"}, "gpu"),
        ("config", [], "config"), ("config", "x", "config"), ("provenance", 1, "provenance"), ("provenance", None, "provenance"),
        ("inputs", 3, "inputs"), ("inputs", {"harmless": "x"}, "inputs.harmless"), ("inputs", {"harmless": [1]}, "inputs.harmless"),
        ("inputs", {"harmless": ["a"] * 10_000}, "inputs.harmless"), ("inputs", {"source_notes": [1]}, "inputs.source_notes"),
        ("inputs", {"source_notes": [{"level": "info", "code": "nothing", "args": {}, "field": "", "source": ""}]}, "inputs.source_notes"),
        ("inputs", {"source_notes": [{"level": "info", "code": "decoded_as", "args": {}, "field": "", "source": ""}]}, "inputs.source_notes"),
        ("inputs", {"source_notes": [{"level": "loud", "code": "decoded_as", "args": {"encoding": "x"}, "field": "", "source": ""}]}, "inputs.source_notes"),
        ("inputs", {"source_notes": [{"level": "info", "code": "decoded_as", "args": {"encoding": [1]}, "field": "", "source": ""}]}, "inputs.source_notes"),
        ("inputs", {"lengths": {"points": "1+1:1;", "rows": 1}}, "inputs.lengths.points"), ("inputs", {"lengths": {"points": 5, "rows": 1}}, "inputs.lengths"),
        ("inputs", {"lengths": {"points": "0+0:1", "rows": 1}}, "inputs.lengths.points"),
        ("inputs", {"lengths": {"points": "999999999+999999999:1", "rows": 1}}, "inputs.lengths.points"),
        ("inputs", {"lengths": {"points": "1+1:1", "rows": -1}}, "inputs.lengths"), ("inputs", {"lengths": {"points": "1+1:0", "rows": 1}}, "lengths"),
        ("probe", [1], "probe"), ("probe", {"rows": 1}, "probe"), ("probe", {"rows": [{"name": "a", "predicted": "b", "unit": "bytes"}]}, "probe"),
        ("suite", {"items": [{"claims": [], "verdict": "maybe", "name": "", "says": "", "measured": ""}]}, "suite"), ("suite", DEEP, "suite"),
        ("reconciliation", {"lines": [[]]}, "reconciliation"), ("reconciliation", {"lines": [{"name": "a_bytes", "predicted": 1e300}]}, "reconciliation"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("fmt", ["json", "md"])
def test_a_damaged_or_hostile_file_names_its_part(part: str, value: Any, field: str, fmt: str, tmp_path: Path) -> None:
    path = saved_file(tmp_path, "Llama-3.1-8B", {"tokens": 64})
    path.write_text(json.dumps(json.loads(path.read_text()) | {part: value}))
    with refused(PlannerError, field):
        write(str(path), {}, fmt)


def test_names_from_the_file_are_made_printable(tmp_path: Path) -> None:
    path = saved_file(tmp_path, "Llama-3.1-8B", {"tokens": 64})
    body = json.loads(path.read_text()) | {"model": "a\x1b[31m\u202e" + "x" * 500, "created": "<b>now"}
    saved = read_back(body)
    assert saved.name.isprintable()
    assert len(saved.name) == 120
    assert saved.created == ""


def test_from_needs_a_saved_plan_and_stands_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(CONFIGS["llama"]))
    for words, code in (
        (["plan"], "source_or_saved"),
        (["plan", str(config), "--from", str(config)], "source_or_saved"),
        (["report"], "source_or_saved"),
        (["plan", "--from", str(config)], "not_a_saved_plan"),
        (["report", "--from", str(config)], "not_a_saved_plan"),
        (["plan", "--from", str(tmp_path / "none.json")], "no_such_file"),
    ):
        assert main(words) == 2
        assert json.loads(capsys.readouterr().out)["error"]["code"] == code, words


PROBE = {"rows": [{"name": "KV bytes held", "predicted": 10, "measured": 10, "how": "storage", "unit": "bytes"}],
         "itl_s": {"p50": 0.01, "p90": 0.02, "p99": 0.03}, "ttft_s": 0.5, "tokens_per_s": 9.5, "backend": "b", "device": "cpu"}  # fmt: skip
SUITE = {"form": "kvledger-suite-1", "ceilings": {}, "items": [{"name": "cache", "claims": ["C1"], "says": "s", "measured": "m", "verdict": "holds"}]}
LOG = {"engine": "vllm", "lines": [{"name": "kv_tokens", "label": "Tokens in the KV cache", "predicted": 445_552, "reported": 445_600, "difference": 48,
                                    "cause": {"code": "x", "text": "printed per group"}}]}  # fmt: skip


def test_results_of_other_commands_go_in_and_come_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = []
    for name, part in (("probe", PROBE), ("suite", SUITE), ("log", LOG)):
        files.append(tmp_path / f"{name}.json")
        files[-1].write_text(('{"event": "progress"}\n' if name == "probe" else "") + json.dumps(part))
    path = tmp_path / "all.json"
    words = ["report", "Llama-3.1-8B", *(x for f in files for x in ("--with", str(f))), "-o", str(path), "--format", "json"]
    assert main(words) == 0
    body = json.loads(path.read_text())
    assert (body["probe"], body["suite"], body["reconciliation"]) == (PROBE, SUITE, LOG)
    assert write(str(path), {}, "json") == path.read_bytes()
    text = write(str(path), {}, "md").decode()
    for said in ("KV bytes held | 10 bytes | 10 bytes", "| C1 | cache | s | m |", "445,552 | 445,600 | 48 | printed per group"):
        assert said in text
    files[0].write_text("{}")
    assert main(["report", "Llama-3.1-8B", "--with", str(files[0])]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "no_result"
    for wrong in (tmp_path, tmp_path / "none"):
        with pytest.raises(InvalidInput):
            write("Llama-3.1-8B", {}, "md", results=[str(wrong)])
    files[0].write_text(json.dumps(PROBE | {"ttft_s": "soon"}))
    with pytest.raises(NotAConfig):
        write("Llama-3.1-8B", {}, "md", results=[str(files[0])])
