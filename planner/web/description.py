"""The OpenAPI 3.1 description of the API: parameters, bodies and answers, made from the tables that the command line is made from."""

from __future__ import annotations

from typing import Any

from planner.api import MAX_HARMLESS
from planner.messages import render
from planner.report.program import NAME, program
from planner.scenario import ALIASES, OPTIONS, Option
from planner.sweep.grid import MAX_TEXT
from planner.web.asked import OWN, SOURCES, known, negations

_NULL: dict[str, Any] = {"type": "null"}
_INT = {"type": "integer"}
_TEXT = {"type": "string"}
_FLAG = {"type": "boolean"}
_NUMBER = {"type": "number"}
_OBJECT = {"type": "object"}
_FLAG_TEXTS = ("1", "0", "true", "false", "yes", "no", "on", "off")


def _list(of: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": of}


def _maybe(of: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [of, _NULL]}


ANSWERS: dict[str, dict[str, dict[str, Any]]] = {
    "read": {
        "name": _TEXT, "model_type": _TEXT, "architecture": _TEXT, "verified": _FLAG, "weight_dtype": _TEXT, "max_context_tokens": _maybe(_INT),
        "parameters": _OBJECT, "layers": _list(_OBJECT), "groups": _list(_OBJECT), "notes": _list(_OBJECT), "source": _OBJECT,
    },
    "kv": {
        "architecture_bytes": _INT, "engine": _TEXT, "engine_version": _maybe(_TEXT), "engine_bytes": _INT, "per_rank_bytes": _list(_INT),
        "bytes_per_token_unbounded": _maybe({"anyOf": [_INT, _NUMBER]}), "windowed": _list(_OBJECT), "state_bytes_per_sequence": _INT,
        "cross_bytes_per_encoder_token": _maybe(_INT), "cross_bytes": _INT, "admission_bytes": _INT, "resident_bytes": _INT, "kv_dtype": _TEXT,
        "formula": _list(_TEXT), "notes": _list(_OBJECT), "source": _OBJECT,
    },
    "plan": {
        "fits": _FLAG, "limited_by": _maybe(_TEXT), "shortfall_bytes": _INT, "rank_ledgers": _list(_list(_OBJECT)), "binding_rank": _INT,
        "kv_pool_bytes": _INT, "bytes_per_block": _maybe(_INT), "num_blocks": _maybe(_INT), "blocks_per_request": _maybe(_INT),
        "max_concurrency": _maybe(_NUMBER), "kv_tokens": _maybe(_INT), "longest_context_tokens": _maybe(_INT), "pools": _list(_OBJECT),
        "weights_bytes_per_rank": _list(_INT), "latency": _maybe(_OBJECT), "launch": _OBJECT, "tokens": _INT, "scenario": _OBJECT, "identities": _list(_OBJECT),
        "notes": _list(_OBJECT), "source": _OBJECT,
    },
    "sweep": {
        "points": _INT, "complete": _FLAG, "fits": _INT, "meets_targets": _INT, "refused": _INT, "lengths": _INT, "by_length": _list(_OBJECT),
        "refusals": _list(_OBJECT),
    },
}  # fmt: skip
"""What is always in an answer; there may be more."""
ERROR = {"type": _TEXT, "code": _TEXT, "message": _TEXT, "field": _TEXT, "hint": _TEXT}
STATUSES = (200, 400, 408, 413, 415, 429, 500, 503, 504)
OF_BODIES = (408, 413, 415)


def schema(o: Option, *, text: bool = False) -> dict[str, Any]:
    """Of one option's value; `text`: as a query has it."""
    if o.kind == "int":
        return {"type": "integer", "minimum": int(o.low), "maximum": int(o.high)}
    if o.kind == "flag":
        return {"type": "string", "enum": list(_FLAG_TEXTS)} if text else _FLAG
    if o.kind == "choice":
        return {"type": "string", "enum": list(o.choices)}
    if o.kind == "fraction":
        return {"type": "number", "minimum": 0.01, "maximum": 1.0}
    if o.kind == "number":
        return {"type": "number", "minimum": o.low, "maximum": o.high}
    if o.kind == "bytes":
        return {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*[a-zA-Z]*\s*$"}]}
    if o.kind == "seconds":
        return {"anyOf": [{"type": "number", "minimum": o.low, "maximum": o.high}, {"type": "string", "pattern": r"^[0-9.eE+-]+(ms|s)?$"}]}
    return {"type": "string", "minLength": 1, "maxLength": int(o.high)}


def properties(command: str, *, text: bool = False) -> dict[str, dict[str, Any]]:
    """Every name that the command takes -> its schema with a line of description."""
    own: dict[str, dict[str, Any]] = {
        "harmless": _TEXT if text else {"anyOf": [{**_list(_TEXT), "maxItems": MAX_HARMLESS}, _TEXT]},
        "grid": {"type": "string", "maxLength": MAX_TEXT} if text else {"anyOf": [_TEXT, _OBJECT]},
        "price": _TEXT if text else {"anyOf": [_TEXT, _OBJECT]},
    }
    source = _TEXT if text else {"anyOf": [_TEXT, _OBJECT]}
    out = {name: {**source, "description": render(f"api.{name}")} for name in SOURCES}
    negated = dict(zip(negations(), (n.removeprefix("no_") for n in negations()), strict=True))
    for name in known(command):
        if name in OWN[command]:
            code = f"cli.{name}" if f"api.{name}" not in _API else f"api.{name}"
            out[name] = {**own.get(name, schema(Option(kind="flag"), text=text)), "description": render(code)}
        elif name in ALIASES:
            out[name] = {**schema(OPTIONS[ALIASES[name]], text=text), "description": render("api.same_as", {"name": ALIASES[name]})}
        elif name in negated:
            out[name] = {**schema(OPTIONS[negated[name]], text=text), "description": render("api.negation", {"name": negated[name]})}
        else:
            out[name] = {**schema(OPTIONS[name], text=text), "description": render(f"option.{name}")}
    return out


_API = ("api.harmless", "api.saved", "api.grid", "api.price", "api.rows")


def description(base: str, *, points: int, body_bytes: int) -> dict[str, Any]:
    """The whole document. `base`: the path that the pages are served under."""
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {
        "Error": {"type": "object", "required": ["error"], "properties": {"error": {**_OBJECT, "required": list(ERROR), "properties": ERROR}}},
    }
    for command in OWN:
        schemas[f"{command}Request"] = {**_OBJECT, "properties": properties(command), "additionalProperties": False}
        schemas[f"{command}Answer"] = {**_OBJECT, "required": list(ANSWERS[command]), "properties": ANSWERS[command]}
        said = {"summary": render(f"api.{command}", {"limit": points}), "responses": _responses(command)}
        query = [{"name": name, "in": "query", "description": s.pop("description"), "schema": s} for name, s in properties(command, text=True).items()]
        body = {"required": True, "content": _json(f"{command}Request")}
        paths[f"/api/{command}"] = {
            "get": {**said, "operationId": f"{command}_get", "parameters": query, "responses": _responses(command, OF_BODIES)},
            "post": {**said, "operationId": f"{command}_post", "requestBody": body, "x-max-bytes": body_bytes},
        }
    for name in ("health", "openapi"):
        path = f"/api/{name}" + (".json" if name == "openapi" else "")
        answer = {"200": {"description": render("api.ok"), "content": {"application/json": {"schema": _OBJECT}}}}
        paths[path] = {"get": {"summary": render(f"api.{name}"), "operationId": name, "responses": answer}}
    return {
        "openapi": "3.1.0",
        "info": {"title": NAME, "version": program()["version"] or "0", "description": render("api.about")},
        "servers": [{"url": base or "/"}],
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _responses(command: str, without: tuple[int, ...] = ()) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for status in STATUSES:
        if status not in without:
            code, name = ("api.ok", f"{command}Answer") if status == 200 else ("api.error", "Error")
            out[str(status)] = {"description": render(code), "content": _json(name)}
            if status in (429, 503):
                out[str(status)]["headers"] = {"Retry-After": {"schema": _INT}}
    return out


def _json(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}
