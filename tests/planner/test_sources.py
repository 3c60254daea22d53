"""From a string to a config: which kind of source it is, what is kept of where it came from, and what is refused."""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import os
import string
import subprocess
import sys
from pathlib import Path

import pytest

from planner.errors import NotAConfig, PlannerError, SourceError, UnknownName
from planner.messages import en_sources
from planner.scenario import Scenario
from planner.sources import catalog, hub, hub_address, load, load_bytes

CONFIG = {"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096}
BYTES = json.dumps(CONFIG).encode()
PLANNER = Path(hub.__file__).parent.parent
QUANTIZATION = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "My-Model"
    path.mkdir()
    (path / "config.json").write_bytes(BYTES)
    return path


# -- files and folders -------------------------------------------------------------------------------------------------


def test_file_keeps_its_path_as_given_and_its_hash(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    for given in ("config.json", "./config.json", str(folder / "config.json")):
        found = load(given)
        assert found.raw == CONFIG
        assert found.name == "My-Model"
        assert found.provenance == {"path": given, "kind": "file", "bytes": len(BYTES), "sha256": hashlib.sha256(BYTES).hexdigest()}
        json.dumps(found.provenance)


def test_any_json_file_is_named_after_itself(tmp_path: Path) -> None:
    (tmp_path / "meta-llama__Llama.json").write_bytes(BYTES)
    assert load(str(tmp_path / "meta-llama__Llama.json")).name == "meta-llama__Llama"


def test_folder(folder: Path) -> None:
    found = load(f" {folder} ")
    assert (found.name, found.raw, found.provenance["kind"]) == ("My-Model", CONFIG, "folder")


def test_folder_takes_modelopt_quantization_from_the_file_beside(folder: Path) -> None:
    (folder / "hf_quant_config.json").write_text(json.dumps(QUANTIZATION))
    found = load(str(folder))
    assert found.raw["quantization_config"] == {"quant_method": "modelopt", **QUANTIZATION["quantization"]}
    assert found.provenance["hf_quant_config"] == QUANTIZATION
    assert [n.code for n in found.notes] == ["quantization_from_beside"]

    own = {**CONFIG, "quantization_config": {"quant_method": "fp8"}}
    (folder / "config.json").write_text(json.dumps(own))
    assert load(str(folder)).raw == own
    assert load(str(folder)).notes == ()


def test_folder_of_the_hubs_cache_is_named_after_the_model(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--acme--tiny" / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_bytes(BYTES)
    assert load(str(snapshot)).name == load(str(snapshot / "config.json")).name == "acme/tiny"


def test_a_path_wins_over_a_hub_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "meta-llama" / "Llama-3.1-8B").mkdir(parents=True)
    (tmp_path / "meta-llama" / "Llama-3.1-8B" / "config.json").write_bytes(BYTES)
    assert load("meta-llama/Llama-3.1-8B").provenance["kind"] == "folder"


FOLDERS = [
    ("no config", {"README.md": b""}, "folder_no_config"),
    ("only a projector", {"mmproj-model-f16.gguf": b"GGUF"}, "folder_no_config"),
    ("several", {"a.gguf": b"GGUF", "b.gguf": b"GGUF"}, "folder_several_gguf"),
    ("adapter", {"adapter_config.json": b"{}"}, "folder_adapter"),
]


@pytest.mark.parametrize(("files", "code"), [row[1:] for row in FOLDERS], ids=[row[0] for row in FOLDERS])
def test_folder_without_config(tmp_path: Path, files: dict[str, bytes], code: str) -> None:
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    refused(str(tmp_path), SourceError, code)


def test_odd_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    refused(str(tmp_path / "pipe.json"), SourceError, "not_a_file")
    refused("/dev/zero", SourceError, "not_a_file")
    (tmp_path / "broken-link.json").symlink_to(tmp_path / "nowhere")
    refused(str(tmp_path / "broken-link.json"), SourceError, "cannot_read")
    with (tmp_path / "large.json").open("wb") as file:
        file.truncate(50 * 2**30)
    refused(str(tmp_path / "large.json"), NotAConfig, "too_large", field="")
    (tmp_path / "model.bin").write_bytes(b"GGUF" + bytes(5 << 20))
    refused(str(tmp_path / "model.bin"), NotAConfig, "gguf_version", field="")


# -- strings -----------------------------------------------------------------------------------------------------------


def refused(source: str, kind: type[PlannerError], code: str, field: str = "source", **options: bool) -> PlannerError:
    with pytest.raises(kind) as caught:
        load(source, **options)  # type: ignore[arg-type]
    assert (type(caught.value), caught.value.code, caught.value.field) == (kind, code, field)
    assert caught.value.message
    assert caught.value.hint
    return caught.value


def test_pasted_text() -> None:
    found = load("\n " + json.dumps({**CONFIG, "_name_or_path": "acme/tiny"}))
    assert found.name == "acme/tiny"
    assert found.provenance["kind"] == "paste"
    assert len(found.provenance["sha256"]) == 64
    assert load('"' + json.dumps(CONFIG) + '"').name == "llama"
    refused("[1]", NotAConfig, "not_an_object", field="")
    refused('{"a": 1', NotAConfig, "is_truncated", field="")
    refused('{"a": "\ud800"}', NotAConfig, "bad_encoding", field="")


def test_upload() -> None:
    found = load_bytes(BYTES, "C:\\Users\\me\\tiny.json")
    assert found.name == "tiny"
    sha256 = hashlib.sha256(BYTES).hexdigest()
    assert found.provenance == {"kind": "upload", "bytes": len(BYTES), "sha256": sha256, "file_name": "tiny.json"}
    assert load_bytes(BYTES, "config.json").name == "llama"
    assert "\n" not in load_bytes(BYTES, "a\nb" + "c" * 500).name
    assert len(load_bytes(BYTES, "c" * 500).name) <= 120


STRINGS = [
    ("", SourceError, "source_empty"),
    ("  ", SourceError, "source_empty"),
    ('""', SourceError, "source_empty"),
    ("./nothing-here", SourceError, "no_such_file"),
    ("/nothing/here", SourceError, "no_such_file"),
    ("~/nothing-here-either", SourceError, "no_such_file"),
    ("missing.json", SourceError, "no_such_file"),
    ("folder/missing.json", SourceError, "no_such_file"),
    ("model.gguf", SourceError, "no_such_file"),
    ("C:\\models\\config.json", SourceError, "no_such_file"),
    ("../etc/passwd", SourceError, "no_such_file"),
    ("x" * 300, SourceError, "source_unreadable"),
    ("a/b/c", SourceError, "source_unreadable"),
    ("org/model@", SourceError, "source_unreadable"),
    ("org/model@a b", SourceError, "source_unreadable"),
    ("org/mo..del", SourceError, "source_unreadable"),
    ("org/model\0", SourceError, "source_unreadable"),
    ("what is a KV cache?", SourceError, "source_unreadable"),
    ("llama-3.1-9b", UnknownName, "unknown_source"),
    ("-", UnknownName, "unknown_source"),
    ("catalog:", UnknownName, "unknown_catalog_name"),
    ("catalog:Llama-9", UnknownName, "unknown_catalog_name"),
    ("https://example.com/config.json", SourceError, "address_elsewhere"),
    ("https://huggingface.co.evil.example/org/model", SourceError, "address_elsewhere"),
    ("https://huggingface.co@evil.example/org/model", SourceError, "address_elsewhere"),
    ("file:///etc/passwd", SourceError, "address_elsewhere"),
    ("http://127.0.0.1:9/org/model", SourceError, "address_elsewhere"),
    ("https://huggingface.co/", SourceError, "address_not_a_model"),
    ("https://huggingface.co/datasets/org/data", SourceError, "address_not_a_model"),
    ("https://huggingface.co/org/..", SourceError, "address_not_a_model"),
    ("https://[bad/org/model", SourceError, "address_unreadable"),
]


@pytest.mark.parametrize(("source", "kind", "code"), STRINGS)
def test_no_source(source: str, kind: type[PlannerError], code: str) -> None:
    refused(source, kind, code)


def test_near_names_are_offered() -> None:
    assert "Llama-3.1-8B" in refused("lama-3.1-8b", UnknownName, "unknown_source").hint
    assert "Qwen3-8B" in refused("qwen3", UnknownName, "unknown_source").hint


def test_a_server_opens_no_paths(folder: Path) -> None:
    refused(str(folder), SourceError, "paths_not_allowed", allow_paths=False)
    refused(str(folder / "config.json"), SourceError, "paths_not_allowed", allow_paths=False)
    assert load("Llama-3.1-8B", allow_paths=False).name == "Llama-3.1-8B"


# -- catalog -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("Llama-3.1-8B", "Llama-3.1-8B"),
        ("llama 3.1 8b", "Llama-3.1-8B"),
        ("catalog:meta-llama/Llama-3.1-8B", "Llama-3.1-8B"),
        ("CATALOG:meta-llama/Meta-Llama-3.1-8B-Instruct", "Llama-3.1-8B"),
        ("gpt2", "GPT-2"),
        ("DeepSeek-R1", "DeepSeek-V3"),
        ("bloom", "BLOOM-176B"),
        ("gpt-oss-120b", "gpt-oss-120b"),
    ],
)
def test_catalog_name(given: str, name: str) -> None:
    found = load(given)
    assert found.name == name
    assert found.provenance["kind"] == "catalog"
    assert found.provenance["source"]
    assert [n.code for n in found.notes] == ["from_catalog"]
    assert found.notes[0].text


def test_catalog_hands_out_copies() -> None:
    catalog.row("Llama-3.1-8B")[1].clear()
    assert catalog.row("Llama-3.1-8B")[1]["num_hidden_layers"] == 32


def test_catalog_rows_are_whole() -> None:
    entries = catalog.entries()
    assert len(entries) == 40 == len({e.name for e in entries}) == len({e.repo_id for e in entries})
    assert catalog.names()[0] == Scenario().model
    for entry in entries:
        assert entry.repo_id.count("/") == 1, entry
        assert entry.kind, entry
        assert len(entry.source) > 20, entry
        _, raw = catalog.row(entry.name)
        text = raw.get("text_config", raw)
        assert raw["model_type"]
        assert raw["architectures"]
        assert any(key in text for key in ("num_hidden_layers", "n_layer")), entry
        assert any(key in text for key in ("hidden_size", "n_embd")), entry
        assert any(key in text for key in ("num_attention_heads", "n_head")), entry


# Layers, query heads, KV heads, head size (None: hidden / heads), as the models' papers and cards give them.
SHAPES = {
    "Llama-2-7B": (32, 32, 32, None), "Llama-2-13B": (40, 40, 40, None), "Llama-2-70B": (80, 64, 8, None),
    "Llama-3.1-8B": (32, 32, 8, None), "Llama-3.1-70B": (80, 64, 8, None), "Llama-3.1-405B": (126, 128, 8, None),
    "Llama-3.2-1B": (16, 32, 8, 64), "Llama-3.2-3B": (28, 24, 8, 128), "Llama-4-Scout": (48, 40, 8, 128),
    "Mistral-7B-v0.1": (32, 32, 8, None), "Mistral-7B-v0.3": (32, 32, 8, None), "Mistral-Nemo": (40, 32, 8, 128),
    "Mixtral-8x7B": (32, 32, 8, None), "Mixtral-8x22B": (56, 48, 8, None), "Qwen2.5-7B": (28, 28, 4, None),
    "Qwen2.5-72B": (80, 64, 8, None), "Qwen3-8B": (36, 32, 8, 128), "Qwen3-32B": (64, 64, 8, 128), "Qwen3-30B-A3B": (48, 32, 4, 128),
    "Qwen3-235B-A22B": (94, 64, 4, 128), "Qwen3-Next-80B-A3B": (48, 16, 2, 256), "Gemma-2-9B": (42, 16, 8, 256),
    "Gemma-2-27B": (46, 32, 16, 128), "Gemma-3-1B": (26, 4, 1, 256), "Gemma-3-27B": (62, 32, 16, 128),
    "Phi-3-mini-4k": (32, 32, 32, None), "Phi-4": (40, 40, 10, None), "gpt-oss-20b": (24, 64, 8, 64), "gpt-oss-120b": (36, 64, 8, 64),
    "DeepSeek-V2-Lite": (27, 16, 16, None), "DeepSeek-V3": (61, 128, 128, None), "Kimi-K2": (61, 64, 64, None),
    "MiniCPM3-4B": (62, 40, 40, None), "Falcon-7B": (32, 71, None, None), "Falcon-40B": (60, 128, 8, None), "GPT-2": (12, 12, None, None),
    "GPT-NeoX-20B": (44, 64, None, None), "BLOOM-176B": (70, 112, None, None), "OPT-13B": (40, 40, None, None),
    "StarCoder": (40, 48, None, None),
}  # fmt: skip


def test_catalog_shapes() -> None:
    found = {}
    for name in catalog.names():
        raw = catalog.row(name)[1]
        c = raw.get("text_config", raw)
        layers, heads = c.get("num_hidden_layers", c.get("n_layer")), c.get("num_attention_heads", c.get("n_head"))
        found[name] = (layers, heads, c.get("num_key_value_heads", c.get("num_kv_heads")), c.get("head_dim"))
    assert found == SHAPES


# -- hub addresses -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "repo_id", "revision", "file"),
    [
        ("acme/tiny", "acme/tiny", "main", "config.json"),
        ("acme/tiny@v1.0", "acme/tiny", "v1.0", "config.json"),
        ("acme/tiny@refs/pr/7", "acme/tiny", "refs/pr/7", "config.json"),
        (" https://huggingface.co/acme/tiny/ ", "acme/tiny", "main", "config.json"),
        ("https://huggingface.co/gpt-old", "gpt-old", "main", "config.json"),
        ("https://huggingface.co/acme/tiny/blob/main/config.json?x=1#L3", "acme/tiny", "main", "config.json"),
        ("https://huggingface.co/acme/tiny/resolve/v1.0/config.json", "acme/tiny", "v1.0", "config.json"),
        ("https://huggingface.co/acme/tiny/raw/main/text_encoder/config.json", "acme/tiny", "main", "text_encoder/config.json"),
        ("https://huggingface.co/acme/tiny/blob/main/README.md", "acme/tiny", "main", "config.json"),
        ("https://huggingface.co/acme/tiny/tree/v1.0", "acme/tiny", "v1.0", "config.json"),
        ("https://huggingface.co/acme/tiny/tree/refs%2Fpr%2F7", "acme/tiny", "refs/pr/7", "config.json"),
        ("https://huggingface.co/acme/tiny/blob/refs/pr/7/config.json", "acme/tiny", "refs/pr/7", "config.json"),
        ("https://huggingface.co/acme/tiny/commit/" + "a" * 40, "acme/tiny", "a" * 40, "config.json"),
        ("https://huggingface.co/acme/tiny/discussions/3", "acme/tiny", "main", "config.json"),
        ("https://huggingface.co/api/models/acme/tiny", "acme/tiny", "main", "config.json"),
        ("huggingface.co/acme/tiny", "acme/tiny", "main", "config.json"),
        ("hf.co/acme/tiny", "acme/tiny", "main", "config.json"),
        ("https://mirror.example/hub/acme/tiny/blob/main/config.json", "acme/tiny", "main", "config.json"),
    ],
)
def test_address(text: str, repo_id: str, revision: str, file: str) -> None:
    found = hub_address.address_of(text, "https://mirror.example/hub/")
    assert found == hub_address.Address(repo_id=repo_id, revision=revision, file=file)


def test_mirror_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "https://mirror.example")
    assert hub_address.address_of("https://mirror.example/acme/tiny") == hub_address.Address(repo_id="acme/tiny")
    assert hub_address.host_of("https://me:secret@mirror.example") == "mirror.example"


# -- the package -------------------------------------------------------------------------------------------------------


def test_import_is_light() -> None:
    script = (
        "import sys, planner.sources, planner.hardware; planner.sources.load('Llama-3.1-8B');"
        "print([m for m in sys.modules if m.split('.')[0] in "
        "('huggingface_hub', 'numpy', 'torch', 'streamlit', 'pandas', 'httpx2', 'httpx', 'requests', 'tomllib')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=PLANNER.parent)
    assert done.stdout.strip() == "[]"


@functools.cache
def codes_used() -> dict[str, set[str]]:
    """Message code -> the argument names given with it, from the calls in the source; strings that look like hub codes count too."""
    used: dict[str, set[str]] = {}
    for path in [*(PLANNER / "sources").glob("*.py"), PLANNER / "hardware.py"]:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
                name, first = node.func.id, node.args[0]
                if name in ("NotAConfig", "SourceError", "UnknownName", "InvalidInput", "DataError") and isinstance(first, ast.Constant):
                    used.setdefault(f"error.{first.value}", set()).update(k.arg or "" for k in node.keywords)
                if name == "note" and isinstance(node.args[1], ast.Constant):
                    used.setdefault(f"note.{node.args[1].value}", set()).update(k.arg or "" for k in node.keywords)
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                prefixes = ("hub_", "folder_", "is_", "address_")
                if node.value.startswith(prefixes) and node.value.replace("_", "").isalpha() and f"error.{node.value}" not in used:
                    used[f"error.{node.value}"] = set()
    return used


def test_every_code_has_a_text_and_a_way_out() -> None:
    used = {code for code in codes_used() if code != "error.out_of_range"}
    wanted = used | {code + ".hint" for code in used if code.startswith("error.")}
    missing = wanted - en_sources.TEXT.keys()
    assert not missing
    texts = {key.removesuffix(".hint").removesuffix("_listed") for key in en_sources.TEXT}
    assert (
        not {key for key in texts if key not in used and key.startswith("error.")}
        - {"error.not_finite", "error.number_too_long"}
        - {"error." + code for code in ("has_trailing_text", "not_json", "no_such_file", "paths_not_allowed")}
    ), "texts that nothing uses"


def test_texts_ask_only_for_arguments_that_are_given() -> None:
    hub_args = {"repo", "revision", "file", "hub", "status", "catalog"}
    for key, text in en_sources.TEXT.items():
        asked = {name for _, name, _, _ in string.Formatter().parse(text) if name} - {"field"}
        code = key.removesuffix(".hint").removesuffix("_listed")
        given = codes_used().get(code, set()) if not code.startswith("error.hub_") else hub_args
        if given:
            assert asked <= given, key
