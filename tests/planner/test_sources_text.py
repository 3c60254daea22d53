"""Bytes to a dict: what is read, what is refused, with which code and field, and how long hostile bytes may take."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from planner.errors import NotAConfig
from planner.sources import load_bytes
from planner.sources.text import MAX_BYTES, MAX_DEPTH, parse

BASE: dict[str, Any] = {"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "torch_dtype": "bfloat16"}
GOOD = json.dumps(BASE)


def nested(depth: int) -> str:
    """A config that is `depth` objects and lists deep."""
    return '{"a": ' + "[" * (depth - 1) + "]" * (depth - 1) + "}"


READ = [
    ("plain", GOOD.encode(), []),
    ("blanks around it", b"\r\n  " + GOOD.encode() + b"\n\n", []),
    ("utf-8 with bom", b"\xef\xbb\xbf" + GOOD.encode(), ["decoded_as"]),
    ("utf-16 with bom", GOOD.encode("utf-16"), ["decoded_as"]),
    ("utf-16-le without bom", GOOD.encode("utf-16-le"), ["decoded_as"]),
    ("utf-16-be without bom", GOOD.encode("utf-16-be"), ["decoded_as"]),
    ("utf-32", GOOD.encode("utf-32"), ["decoded_as"]),
    ("a repeated key: the last counts", (GOOD[:-1] + ', "num_hidden_layers": 32}').encode().replace(b"32,", b"31,", 1), ["repeated_key"]),
]


@pytest.mark.parametrize(("data", "codes"), [row[1:] for row in READ], ids=[row[0] for row in READ])
def test_read(data: bytes, codes: list[str]) -> None:
    raw, notes = parse(data)
    assert raw == BASE
    assert [n.code for n in notes] == codes


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1e-400}', 0.0),
        ('{"a": 1e308}', 1e308),
        ('{"a": %s}' % ("9" * 40), int("9" * 40)),
        ('{"a": "[[[[{{{{ \\" ]"}', '[[[[{{{{ " ]'),
        ('{"a": "\\ud83d\\ude00"}', "\U0001f600"),
        ('{"a": "NaN Infinity"}', "NaN Infinity"),
    ],
)
def test_value_is_kept(text: str, value: object) -> None:
    assert parse(text.encode())[0]["a"] == value


def test_nesting_at_the_limit_is_read() -> None:
    assert "a" in parse(nested(MAX_DEPTH).encode())[0]


BAD: list[tuple[str, bytes | str, str, str]] = [
    ("empty", b"", "is_empty", ""),
    ("blank", b" \n\t ", "is_empty", ""),
    ("bom alone", b"\xef\xbb\xbf", "is_empty", ""),
    ("list", "[]", "not_an_object", ""),
    ("null", "null", "not_an_object", ""),
    ("number", "7", "not_an_object", ""),
    ("not a number at all", "NaN", "not_an_object", ""),
    ("string", '"x"', "not_an_object", ""),
    ("true", "true", "not_an_object", ""),
    ("jpeg", b"\xff\xd8\xff\xe0" + b"\0" * 500, "is_binary", ""),
    ("png", b"\x89PNG\r\n\x1a\n", "is_binary", ""),
    ("zip", b"PK\x03\x04" + b"\0" * 30, "is_binary", ""),
    ("pickle", b"\x80\x04\x95", "is_binary", ""),
    ("gguf", b"GGUF\x03\0\0\0", "gguf_cut", ""),
    ("safetensors", (200).to_bytes(8, "little") + b'{"__metadata__":{}}', "is_safetensors", ""),
    ("zero bytes", b'{"a": "\0"}', "has_zero_bytes", ""),
    ("latin-1", '{"a": "é"}'.encode("latin-1"), "bad_encoding", ""),
    ("utf-16 cut in a character", GOOD.encode("utf-16")[:-1], "bad_encoding", ""),
    ("web page", b"<!doctype html><html></html>", "is_html", ""),
    ("lfs pointer", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "is_lfs_pointer", ""),
    ("deep lists", "[" * 100_000 + "]" * 100_000, "too_deep", ""),
    ("deep objects", '{"a":' * 50_000 + "1" + "}" * 50_000, "too_deep", ""),
    ("one too deep", nested(MAX_DEPTH + 1), "too_deep", ""),
    ("deep behind a string", '{"s": "' + "]" * 500 + '", "a": ' + "[" * 100 + "]" * 100 + "}", "too_deep", ""),
    ("deep behind an escaped quote", '{"s": "\\"' + "]" * 500 + '", "a": ' + "[" * 100 + "]" * 100 + "}", "too_deep", ""),
    ("truncated after a comma", GOOD[:30], "is_truncated", ""),
    ("truncated in a string", GOOD[:-5], "is_truncated", ""),
    ("trailing text", GOOD + "garbage", "has_trailing_text", ""),
    ("two objects", GOOD + "\n" + GOOD, "has_trailing_text", ""),
    ("python dict", str(BASE), "not_json", ""),
    ("comment", '{"a": 1 // one\n}', "not_json", ""),
    ("trailing comma", '{"a": 1,}', "not_json", ""),
    ("yaml", "model_type: llama\nhidden_size: 4096\n", "not_json", ""),
    ("nan", GOOD.replace("4096", "NaN"), "not_finite", "hidden_size"),
    ("infinity", GOOD.replace("4096", "-Infinity"), "not_finite", "hidden_size"),
    ("huge float", GOOD.replace("4096", "1e400"), "not_finite", "hidden_size"),
    ("nan in a section", '{"text_config": {"layers": [1, {"w": NaN}]}}', "not_finite", "text_config.layers[1].w"),
    ("a number of 5000 digits", GOOD.replace("4096", "9" * 5000), "number_too_long", "hidden_size"),
    ("half a character", '{"model_type": "\\ud800"}', "bad_character", "model_type"),
    ("half a character in a key", '{"x\\udfffy": 1}', "bad_character", "x?y"),
    ("weight index", '{"metadata": {}, "weight_map": {}}', "is_weight_index", "weight_map"),
    ("adapter", '{"peft_type": "LORA", "r": 8}', "is_adapter", "peft_type"),
    ("quantization file", '{"producer": {}, "quantization": {}}', "is_quantization_file", "producer"),
    ("diffusers", '{"_class_name": "Flux", "_diffusers_version": "0.30"}', "is_diffusion_model", "_diffusers_version"),
    ("too large", b"[" + b"1," * 8_000_000 + b"1]", "too_large", ""),
]


@pytest.mark.parametrize(("data", "code", "field"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_refused(data: bytes | str, code: str, field: str) -> None:
    with pytest.raises(NotAConfig) as caught:
        load_bytes(data if isinstance(data, bytes) else data.encode(), "config.json")
    assert (caught.value.code, caught.value.field) == (code, field)
    assert caught.value.message
    assert caught.value.hint
    assert "Traceback" not in caught.value.message
    assert len(caught.value.message) < 400


def test_messages_say_where_and_what() -> None:
    with pytest.raises(NotAConfig) as caught:
        parse(b'{\n "a": 1,\n "b": True\n}')
    assert "line 3, column 7" in caught.value.message
    assert "True" in caught.value.message
    with pytest.raises(NotAConfig) as caught:
        parse(b"null")
    assert "null" in caught.value.message


HOSTILE = [
    ("brackets to the limit", b"[]" * (MAX_BYTES // 2)),
    ("escaped quotes, never closed", b'{"a": "' + b'\\"' * (MAX_BYTES // 2 - 10)),
    ("quotes", b'"' * MAX_BYTES),
    ("backslashes", b'["' + b"\\" * (MAX_BYTES - 10)),
    ("open brackets in strings", b'["[","' + b"[" * (MAX_BYTES - 10)),
    ("one long number", b'{"a": ' + b"9" * (MAX_BYTES - 10) + b"}"),
    ("many keys", b"{" + b'"a":0,' * (MAX_BYTES // 6 - 10) + b'"a":0}'),
    ("many empty objects", b'{"a":[' + b"{}," * (MAX_BYTES // 6) + b"{}]}"),
]


@pytest.mark.parametrize("data", [row[1] for row in HOSTILE], ids=[row[0] for row in HOSTILE])
def test_hostile_bytes_end_soon(data: bytes) -> None:
    assert len(data) <= MAX_BYTES
    started = time.process_time()
    try:
        raw, notes = parse(data)
    except NotAConfig:
        pass
    else:
        assert raw
        assert len(notes) <= 20
    assert time.process_time() - started < 4


def test_too_large_is_refused_without_parsing() -> None:
    started = time.process_time()
    with pytest.raises(NotAConfig):
        parse(b"[" * 8_000_000)
    assert time.process_time() - started < 0.05
