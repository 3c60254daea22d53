"""Hostile uploads, sources and bodies by kind: name -> what is sent. Made here, so that a new kind is a line."""

from __future__ import annotations

import json
import random
import struct
import zlib
from collections.abc import Iterator
from typing import Any

from tests.pages.hostile import BASE, CASES, changed

MARKER = "hf_MARKERmarkerMARKERmarker0123456789"
BAD_TEXTS = (
    "", " ", "\0", "\r\n", "a\r\nSet-Cookie: x=1", "\ud800", "\udfff\ud800", "\ufeff", "\u202egnp.exe", "x" * 100_000, "=1+1", "=cmd|' /C calc'!A0", "+1", "-1",
    "@SUM(A1)", "\t=1", "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "](http://evil.test)", "{{7*7}}", "${7*7}", "%00", "%s%s%n", "{0}",
    "{field.__class__}", "' OR 1=1 --", "$(id)", "`id`", "; ls", "nan", "NaN", "inf", "-inf", "1e308", "1e309", "-1e308", "9" * 400, "9" * 5000, "0x10", "1_0",
    "\u0661\u0662", "\uff11\uff12", "true", "null", "None", "[]", "{}",
)  # fmt: skip
BAD_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    -(10**18),
    10**18,
    10**200,
    0.5,
    -0.0,
    1e308,
    -1e308,
    1e-308,
    [],
    [1],
    {},
    {"a": 1},
    [[[]]],
    "",
    "9" * 400,
    ["x"] * 1000,
)
BAD_SOURCES = (
    "file:///etc/passwd",
    "FILE:///etc/passwd",
    "http://169.254.169.254",
    "http://169.254.169.254/latest/meta-data/",
    "http://127.0.0.1:22",
    "http://[::1]/",
    "http://2130706433/",
    "http://0x7f.1/",
    "https://hf.co@evil.test/acme/tiny-llama",
    "https://huggingface.co@evil.test/acme/tiny-llama",
    "https://huggingface.co.evil.test/acme/tiny-llama",
    "https://evil.test/huggingface.co/acme/tiny-llama",
    "https://huggingface.co:99999/acme/tiny-llama",
    "https://huggingface.co/../../etc/passwd",
    "https://huggingface.co/%2e%2e/%2e%2e/etc",
    "https://huggingface.co/acme%2Ftiny",
    "https://huggingface.co/api/whoami",
    "https://huggingface.co/settings/tokens",
    "https://huggingface.co/acme/tiny-llama/resolve/main/..%2f..%2fx.json",
    "https://[::1",
    "https://",
    "//evil.test/acme/tiny",
    "hf.co\\@evil.test/a/b",
    "https://huggingface.co\\@evil.test/a/b",
    "https://huggingf\u0430ce.co/acme/tiny-llama",
    "https://huggingface\u3002co/acme/tiny-llama",
    "https://\uff48\uff55\uff47gingface.co/a/b",
    "gopher://127.0.0.1:6379/_FLUSHALL",
    "ftp://evil.test/a/b",
    "data:text/html,<b>",
    "javascript:alert(1)",
    "../../../etc/passwd",
    "..\\..\\boot.ini",
    "/etc/passwd",
    "/proc/self/environ",
    "~root/.ssh/id_rsa",
    "\\\\evil\\share\\x.json",
    "C:/windows/win.ini",
    "acme/../secret",
    "acme/tiny-llama@../../x",
    "acme/tiny-llama@" + "a/" * 50,
    "acme/tiny--llama",
    "acme/.git",
    "a/b/c/d.gguf",
    "acme/x/../../y.gguf",
    "acme/tiny-llama\r\nX: y",
    "acme/tiny-llama\0",
    "acme/tiny llama",
    "\u0430cme/tiny-llama",
    "acme/" + "a" * 5000,
    "a" * 5000,
    "catalog:",
    "catalog:../x",
    "catalog:" + "x" * 5000,
    "CATALOG:\0",
    "{",
    "[",
    '{"a":',
    "{" * 500,
    "[" * 60_000,
    '"',
    "https://huggingface.co/" + "a/" * 3000,
    "https://user:pass@huggingface.co/acme/tiny-llama",
    "acme/no-config",
    "acme/huge",
    "acme/broken",
    "acme/list",
    "acme/pictures",
    "acme/secret",
    "acme/gated-llama",
    f"https://huggingface.co/acme/tiny-llama?token={MARKER}",
)


RAW_BODIES = {
    "empty": b"",
    "not json": b"hello",
    "list": b"[1]",
    "deep": b"[" * 100_000,
    "deep object": b'{"a":' * 50_000,
    "nan": b'{"tokens": NaN}',
    "twice": b'{"source": "a", "source": "b"}',
    "digits": b'{"tokens": ' + b"9" * 5000 + b"}",
    "utf-16": '{"source": "x"}'.encode("utf-16"),
    "bad utf-8": b'{"source": "\xff"}',
    "bom": b"\xef\xbb\xbf{}",
    "beyond": b"{" + b" " * 1_100_000 + b"}",
    "nothing but zeros": b"\0" * 1000,
    "proto": b'{"__proto__": {"x": 1}, "constructor": 1, "__class__": "x"}',
    "smuggled": b"{}\r\n\r\nGET /api/kv HTTP/1.1\r\n",
    "escaped twice": b'{"source": "catalog:GPT-2", "tokens": 1, "\\u0074okens": 2}',
    "beyond a float": b'{"source": "catalog:GPT-2", "memory_fraction": 1e400}',
    "minus nothing": b'{"source": "catalog:GPT-2", "tokens": -0}',
    "half a character as a key": b'{"source": "catalog:GPT-2", "\\udfff": 1}',
    "half a character in a card": b'{"source": "catalog:GPT-2", "gpu": "own:\\ud800 48GiB"}',
    "half a character in a version": b'{"source": "catalog:GPT-2", "engine_version": "\\udc00"}',
    "a card of nothing": b'{"source": "catalog:GPT-2", "gpu": "own:x 1TiB 1e400GB/s 0TFLOPS"}',
    "only commas": b'{"source": "catalog:GPT-2", "tokens": "' + b"," * 100_000 + b'5"}',
    "utf-7": '{"source": "catalog:GPT-2"}'.encode("utf-7"),
    "ebcdic": '{"source": "catalog:GPT-2"}'.encode("cp037"),
    "all ranks": b'{"source": "catalog:GPT-2", "gpus": 4096, "tp": 4096, "pp": 4096, "dp_attention": 4096, "ep": 4096, "dcp": 4096}',
    "all at most": b'{"source": "catalog:GPT-2", "sequences": 1000000, "tokens": 100000000, "samples": 1024, "prompt": 1, "output": 99999999}',
    "two objects": b'{"source": "catalog:GPT-2"}{"source": "catalog:GPT-2"}',
    "jsonp": b'x({"source": "catalog:GPT-2"})',
}


def gguf(kv: int, tensors: int, rest: bytes = b"", version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, kv) + rest


def _string(text: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(text) if length is None else length) + text


def uploads() -> Iterator[tuple[str, bytes]]:
    """Files that are no config, or that mean harm."""
    yield from ((name, data) for name, (data, _) in CASES.items())
    rng = random.Random(5)
    for n in (1, 7, 63, 64, 65, 1000, 100_000):
        yield f"random {n}", rng.randbytes(n)
    huge = 2**63 - 1
    yield "gguf kv count", gguf(huge, 1)
    yield "gguf tensor count", gguf(0, huge)
    yield "gguf version", gguf(1, 1, version=2**31)
    yield "gguf long key", gguf(1, 0, _string(b"a", huge))
    yield "gguf long text", gguf(1, 0, _string(b"general.name") + struct.pack("<I", 8) + _string(b"a", 2**40))
    yield "gguf array", gguf(1, 0, _string(b"a.b") + struct.pack("<IIQ", 9, 4, huge))
    yield "gguf nested arrays", gguf(1, 0, _string(b"a.b") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 5000)
    yield "gguf type", gguf(1, 0, _string(b"a.b") + struct.pack("<I", 99))
    yield "gguf cut", gguf(5, 5, _string(b"general.architecture"))
    yield "gguf many small", gguf(100_000, 0, b"".join(_string(str(i).encode()) + struct.pack("<IB", 0, 1) for i in range(100_000)))
    yield "gguf dims", gguf(0, 1, _string(b"t") + struct.pack("<I", 2**31))
    yield "zip", b"PK\x03\x04" + b"\0" * 200
    yield "gzip bomb", zlib.compress(b"\0" * 20_000_000)
    yield "gzip", b"\x1f\x8b" + zlib.compress(b"[" * 1_000_000)
    yield "pickle", b"\x80\x04cos\nsystem\n(S'id'\ntR."
    yield "safetensors", struct.pack("<Q", 2**30) + b'{"a":'
    yield "utf-16", json.dumps(BASE).encode("utf-16")
    yield "utf-16 half", json.dumps(BASE).encode("utf-16")[:-1]
    yield "utf-32 bomb", json.dumps(BASE).encode("utf-32") * 50
    yield "bom twice", b"\xef\xbb\xbf\xef\xbb\xbf{}"
    yield "latin-1", b'{"a": "\xe9"}'
    yield "overlong", b'{"a": "\xc0\xaf"}'
    yield "lone surrogate", b'{"model_type": "\\ud800"}'
    yield "surrogate key", b'{"\\udfff": 1}'
    yield "zero byte", b'{"a": "\\u0000", "model_type": "llama"}'
    yield "ten MB string", b'{"model_type": "' + b"x" * 10_000_000 + b'"}'
    yield "three MB string", b'{"model_type": "' + b"x" * 3_000_000 + b'"}'
    yield "many keys", b"{" + b",".join(b'"k%d":1' % i for i in range(200_000)) + b"}"
    yield "same keys", b"{" + b",".join(b'"k":1' for _ in range(200_000)) + b"}"
    yield "many small lists", b'{"a":[' + b",".join(b"[]" for _ in range(500_000)) + b"]}"
    yield "backslashes", b'{"a": "' + b"\\\\" * 1_000_000 + b'"}'
    yield "open string", b'{"a": "' + b"\\" * 1_000_001
    yield "quotes", b'"' * 1_000_001
    yield "digits", b'{"hidden_size": ' + b"9" * 1_000_000 + b"}"
    yield "exponent", b'{"hidden_size": 1e999999999}'
    yield "minus nan", b'{"hidden_size": -NaN}'
    yield "deep in list", changed(layer_types=[[[[[["x"]]]]]])
    yield "a million layers", changed(num_hidden_layers=1_000_000)
    yield "layer list", changed(layer_types=["full_attention"] * 300_000)
    yield "formula name", changed(_name_or_path="=cmd|' /C calc'!A0", model_type="llama")
    yield "script name", changed(_name_or_path="<script>alert(1)</script>")
    yield "regex bomb", changed(quantization_config={"quant_method": "compressed-tensors", "ignore": ["re:(a+)+$", "re:(.*)*x", "re:" + "(" * 500]})
    yield "long ignore list", changed(quantization_config={"quant_method": "awq", "modules_to_not_convert": ["a." * 400] * 5000})
    yield "report of nothing", b'{"format": "kvledger-plan"}'
    yield "report of lies", json.dumps({"format": "kvledger-plan", "scenario": {"model": "/etc/passwd"}, "provenance": {}, "inputs": {}}).encode()
    noted = {"level": "info", "code": "x", "args": {"__class__": "y"}, "field": "", "source": ""}
    mixed = {"points": ",".join(["1+1:1"] * 100_000), "rows": 1}
    for part, value in (("source_notes", [noted]), ("lengths", mixed)):
        report = {"format": "kvledger-plan", "scenario": {}, "provenance": {}, "config": BASE, "inputs": {part: value}}
        yield f"report of {part}", json.dumps(report).encode()
    for key in ("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "vocab_size", "intermediate_size", "max_position_embeddings"):
        for value in (-1, 0, 2**63, 10**100, 1e308, True, None, [], {}, "\ud800", "=1+1", "x" * 10_000):
            yield f"{key} {str(value)[:12]!r}", json.dumps({**BASE, key: value}).encode()


def bodies() -> Iterator[tuple[str, str, Any]]:
    """(name, path, body): an object, which is sent as JSON, or bytes, which are sent as they are."""
    llama = "catalog:Llama-3.1-8B"
    for text in BAD_TEXTS:
        for option in ("tokens", "kv_dtype", "kv_memory", "gpu", "lengths", "calibration", "target_ttft", "engine_version", "draft"):
            yield f"{option} {text[:12]!r}", "/api/plan", {"source": llama, option: text}
        yield f"grid {text[:12]!r}", "/api/sweep", {"source": llama, "grid": f"tp={text}"}
        yield f"grid text {text[:12]!r}", "/api/sweep", {"source": llama, "grid": text}
        yield f"unknown {text[:12]!r}", "/api/kv", {"source": llama, "tokens": 5, text or "x": 1}
    for value in BAD_VALUES:
        for option in (
            "source",
            "tokens",
            "sequences",
            "memory_fraction",
            "kv_memory",
            "harmless",
            "remedies",
            "prefix_caching",
            "request_rate",
            "saved",
            "gpus",
            "lengths",
        ):
            yield f"{option} {str(value)[:12]!r}", "/api/plan", {"source": llama, option: value}
        for option in ("grid", "price", "rows", "harmless"):
            yield f"sweep {option} {str(value)[:12]!r}", "/api/sweep", {"source": llama, "grid": "tp=1", option: value}
        yield f"grid value {str(value)[:12]!r}", "/api/sweep", {"source": llama, "grid": {"tokens": value}}
    for range_ in ("1..999999999999", "1..100000000*1", "0..5", "5..1", "1..9999999:0", "1..100*2,1..100*2", "1.." * 1000, ",".join(map(str, range(20_000)))):
        yield f"range {range_[:16]}", "/api/sweep", {"source": llama, "grid": f"tokens={range_}"}
    yield (
        "grid product",
        "/api/sweep",
        {"source": llama, "grid": "; ".join(f"{n}=1..60" for n in ("tokens", "sequences", "tp", "pp", "block_size", "max_num_seqs"))},
    )
    yield "grid of models", "/api/sweep", {"grid": {"model": [f"acme/m{i}" for i in range(2000)]}}
    yield "simulate much", "/api/plan", {"source": llama, "simulate": True, "sequences": 1_000_000, "tokens": 100_000_000}
    yield (
        "largest of all",
        "/api/plan",
        {"source": llama, "gpus": 4096, "tp": 8, "pp": 32, "sequences": 1_000_000, "tokens": 100_000_000, "remedies": True, "sensitivity": True},
    )
    for name, data in RAW_BODIES.items():
        yield name, "/api/plan", data
