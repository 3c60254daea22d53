"""The flags of an engine as its log shows them: a command line, a Namespace, a dict of arguments, the repr of a config."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from planner.enginelogs.masks import masked
from planner.enginelogs.numbers import MAX_VALUE, real, whole
from planner.enginelogs.table import Flag, table
from planner.enginelogs.text import LogText
from planner.units import KIB, MIB

# Where flags stand; what follows it to the end of its paragraph is searched.
PLACES = ("non-default args", "Namespace(", "ServerArgs(", "server_args", " with config: ", "engine_config", "engine_args", "engine args", "EngineArgs(",
          "Args {", "vllm serve", "vllm.entrypoints", "sglang.launch_server", "sglang serve", "llama-server", "llama-cli", "trtllm-serve",
          "text-generation-launcher", "lmdeploy serve", "LLM Args", "KvCacheConfig(", "cache_config_info", "[CMD]", "TurbomindEngineConfig(",
          "PytorchEngineConfig(", "vllm bench", "trtllm-bench", "args: {", "docker run", "podman run", "vllm-openai", "lmsysorg/sglang", "command:",
          "args: [", "args: -", "starting llama server")  # fmt: skip
MAX_PLACES = 24
MAX_REACH = 12_000

_PAIR = re.compile(
    r"""(?<![\w.-])(?P<dash>--)?['"]?(?P<name>[A-Za-z][\w-]{1,47})['"]?(?P<sep>\s{0,2}[=:]\s{0,2}|\s(?:\\\s{1,8})?"""
    r"""|(?(dash)(?:,\s{0,4}|\s{1,4}-\s{1,4})|(?!)))"""  # lists of arguments: of JSON, and of YAML one a line
    r"""(?:Some\(\s{0,12})?(?:(?P<quote>['"])(?P<quoted>[^'"\n]{0,300})(?P=quote)|(?P<bare>-?[\w.+/@~][\w.+/@~-]{0,299}))"""
)
_BARE = re.compile(r"(?<![\w-])--(?P<name>[A-Za-z][\w-]{1,47})(?=\s+(?:\\\s+)?--|\s*\\?\s*$|['\"\\\]])")
_SERVED = re.compile(r"(?:vllm serve|vllm-openai:\S{1,80}|trtllm-serve(?: serve)?|lmdeploy serve api_server)\s+(?:\\\s+)?['\"]?"
                     r"(?P<model>(?=[\w.~-]{0,100}[/\d])[\w.~/][\w./~@+-]{1,200})(?![\w:./])")  # fmt: skip
_SHORT = re.compile(r"(?<![\w-])-(?P<name>c|ngl|np|b|ub|ctk|ctv|tp|dp|pp|m|fa)\s+(?P<bare>[\w./-]{1,300})")
_SHORT_NAMES = {"c": "ctx_size", "ngl": "n_gpu_layers", "np": "parallel", "b": "batch_size", "ub": "ubatch_size", "ctk": "cache_type_k",
                "ctv": "cache_type_v", "tp": "tp", "dp": "dp", "pp": "pp", "m": "model"}  # fmt: skip
_NOTHING = ("none", "null", "auto", "", "-1", "unset", "default")


@dataclass(frozen=True, slots=True)
class FlagFound:
    """`value` in its own type, `text` as printed (masked), `line` where it stands."""

    value: Any
    text: str
    line: int

    def to_json(self) -> dict[str, Any]:
        return {"value": self.value, "text": self.text, "line": self.line}


def read_flags(log: LogText) -> dict[str, FlagFound]:
    """Canonical name -> flag. The last place that gives a value counts: an engine prints what was asked for, then what it settled on."""
    found: dict[str, FlagFound] = {}
    places: list[int] = []
    for word in PLACES:
        at = log.flat.find(word)
        while at >= 0 and len(places) < MAX_PLACES * 4:
            places.append(at)
            at = log.flat.find(word, at + len(word))
    done = -1
    for at in sorted(places)[:MAX_PLACES]:
        if at < done:  # inside what was searched already
            continue
        text = log.paragraph(at, MAX_REACH)
        done = at + len(text)
        for flag, value, offset in _pairs(text):
            read = _value(flag, value)
            if read is not None:
                found[flag.name] = FlagFound(read, masked(value)[:120], log.line_at(at + offset))
    return found


def _pairs(text: str) -> list[tuple[Flag, str, int]]:
    """(flag, its text, where) in the order of the text; the first of each spelling in a piece counts."""
    known = table().flags
    out: list[tuple[Flag, str, int]] = []
    seen: set[str] = set()
    for m in _PAIR.finditer(text):
        if not m["dash"] and m["sep"].strip() not in ("=", ":"):  # "word word" is no flag
            continue
        name = m["name"].lower().replace("-", "_")
        flag = known.get(name) or known.get(name.removeprefix("no_"))
        if flag is None or name in seen:
            continue
        seen.add(name)
        value = m["quoted"] if m["quoted"] is not None else m["bare"]
        if m["dash"] and value.startswith("--"):
            value = "true"
        out.append((flag, value, m.start()))
    model = known.get("model")
    if model is not None and "model" not in seen and (served := _SERVED.search(text)):
        out.append((model, served["model"], served.start("model")))
    for m in _BARE.finditer(text):
        flag = known.get(m["name"].lower().replace("-", "_"))
        if flag is not None and flag.kind == "flag":
            out.append((flag, "true", m.start()))
    if text.startswith(("llama", "vllm", "sglang", "[CMD]", "trtllm", "lmdeploy", "text-gen")):
        for m in _SHORT.finditer(text):
            name = _SHORT_NAMES.get(m["name"])
            flag = known.get(name) if name else None
            if flag is not None:
                out.append((flag, m["bare"], m.start()))
    return out


def _count(text: str) -> int | None:
    """A count as vLLM takes it: 32K is 32,768 and 32k is 32,000, 25.6k is 25,600; None where it is none."""
    scale = {"k": 1000, "m": 1000**2, "K": KIB, "M": MIB}.get(text[-1:], 1)
    if scale == 1:
        count = whole(text)
    else:
        number = real(text[:-1])
        count = round(number[0] * scale) if number else None
    return count if count is not None and 0 <= count < MAX_VALUE else None


def _value(flag: Flag, text: str) -> Any:
    """The text in the flag's type; None where it says nothing or is no such value."""
    plain = text.strip().rstrip(",)}];\\")
    if plain.lower() in _NOTHING and not (flag.name == "kv_dtype" and plain == "auto"):
        return None
    if flag.kind == "flag":
        return {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}.get(plain.lower())
    if flag.kind == "int":
        return _count(plain)
    if flag.kind == "float":
        read = real(plain)
        return read[0] if read else None
    return masked(plain)[:160]
