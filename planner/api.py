"""One request read and answered: what the command line, a batch line and an HTTP route all call. No printing, no files written.

The answers themselves, values as JSON, are made in planner/answers.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from planner.answers import kv_json, notes_json, plan_json, read_json, simulation_json
from planner.capacity import CapacityPlan, plan
from planner.draft import attach
from planner.errors import InvalidInput, NotAConfig
from planner.footprint import measure
from planner.hardware import find
from planner.mix import Mix, read
from planner.model import ModelSpec
from planner.notes import Note
from planner.readers import read_config
from planner.saved import Saved, is_report, read_back
from planner.scenario import Scenario, flag, from_options
from planner.sources import Loaded, load
from planner.weights import parameters

# Options of a request that are not part of a Scenario.
SWITCHES = ("remedies", "backwards", "sensitivity", "simulate")
"""What else a plan can be asked for, beside its figures."""
_REQUEST_ONLY = ("command", "source", *SWITCHES, "harmless", "saved", "trace")
MAX_HARMLESS = 200
COMMANDS = ("read", "kv", "plan")
"""What `answer` answers, one request of a batch too."""


def model_of(loaded: Loaded, harmless: tuple[str, ...] = ()) -> ModelSpec:
    return read_config(loaded.raw, loaded.name, harmless=harmless)


def answer(command: str, source: str, options: Mapping[str, Any], *, token: str | None = None, allow_paths: bool = True,
           simulate_s: float | None = None) -> dict[str, Any]:  # fmt: skip
    """One request of the contract: read, kv or plan of one source. Raises PlannerError.

    `token` is the caller's own for the hub, `allow_paths` False keeps a server from opening its own files (see planner.sources).
    `simulate_s`: seconds of this host that a simulation may take, its usual limit if None.
    """
    if command == "plan":
        a = asked(source, options, token=token, allow_paths=allow_paths)
        on = {name: flag(name, options.get(name) or False) for name in SWITCHES}
        made = a.plan()
        out = plan_json(made, remedies=on["remedies"], backwards=on["backwards"], mix=a.mix)
        if on["simulate"] or options.get("trace"):
            out["simulation"] = simulation_json(made, a.mix, options.get("trace"), allow_paths=allow_paths, seconds=simulate_s)
        if on["sensitivity"]:
            from planner.sensitivity import sensitivity

            knobs = sensitivity(made)
            out["sensitivity"] = None if isinstance(knobs, Note) else knobs.to_json()
        return _with_source(out, a.loaded)
    loaded, _, harmless = _opened(source, options, token=token, allow_paths=allow_paths)
    model = model_of(loaded, harmless)
    if command == "read":
        unknown = [k for k in options if k not in _REQUEST_ONLY]
        if unknown:
            raise InvalidInput("unknown_option", field=str(unknown[0])[:60], known="harmless")
        out = read_json(model)
    elif command == "kv":
        chosen = {k: v for k, v in options.items() if k not in _REQUEST_ONLY}
        s = from_options(chosen, Scenario(model=_named(source), engine="architecture", sequences=1))
        if "tokens" not in chosen:
            raise InvalidInput("option_missing", field="tokens")
        if s.lengths:
            raise InvalidInput("lengths_plan_only", field="lengths")
        drafted, _ = attach(model, s, {}, _opener(token, allow_paths))
        out = kv_json(measure(drafted, find(s.gpu), s), s) | {"parameters": parameters(model).to_json()}
    else:
        raise InvalidInput("unknown_command", field="command", value=str(command)[:40], known=", ".join(COMMANDS))
    return _with_source(out, loaded)


def _with_source(out: dict[str, Any], loaded: Loaded) -> dict[str, Any]:
    out["notes"] = notes_json(loaded.notes) + out.get("notes", [])
    out["source"] = dict(loaded.provenance)
    return out


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One plan, asked for and read but not made yet. `saved`: the report that it was taken from; `changed`: other choices were given too."""

    loaded: Loaded
    model: ModelSpec
    scenario: Scenario
    mix: Mix | None
    harmless: tuple[str, ...]
    saved: Saved | None
    changed: bool

    def plan(self) -> CapacityPlan:
        """Raises InvalidInput for combinations that no engine runs."""
        return plan(self.model, find(self.scenario.gpu) if self.scenario.gpu else None, self.scenario)


def asked(source: str, options: Mapping[str, Any], *, token: str | None = None, allow_paths: bool = True) -> Asked:
    """What `plan` and `report` answer: the command line's defaults, or the choices of the saved plan that `source` is, and the options over
    them. Raises PlannerError."""
    loaded, saved, harmless = _opened(source, options, token=token, allow_paths=allow_paths)
    model = model_of(loaded, harmless)
    given = {k: v for k, v in options.items() if k not in _REQUEST_ONLY}
    mix, chosen = take_lengths(given, allow_paths=allow_paths)
    measured = chosen.pop("calibration", None)
    base = saved.scenario if saved else _plan_base(source, model, chosen)
    if saved and "tokens" in chosen and not {"prompt", "output"} & set(chosen):
        base = replace(base, prompt=None, output=None)
    model, s = attach(model, from_options(chosen, base), loaded.provenance, _opener(token, allow_paths))
    if measured is not None:
        from planner.calibrate import take

        s = replace(s, calibration=take(measured, plan(model, find(s.gpu), replace(s, calibration=None)), allow_paths=allow_paths).text())
    keeps_lengths = saved is not None and "lengths" not in given
    return Asked(
        loaded=loaded, model=model, scenario=s, mix=saved.mix if saved and keeps_lengths else mix, harmless=harmless, saved=saved, changed=bool(given),
    )  # fmt: skip


def _opened(source: str, options: Mapping[str, Any], *, token: str | None, allow_paths: bool) -> tuple[Loaded, Saved | None, tuple[str, ...]]:
    """The config that `source` is or holds, the saved plan around it if there is one, the keys declared harmless. Raises PlannerError."""
    loaded = load(source, token=token, allow_paths=allow_paths)
    harmless = declared(options.get("harmless"))
    if not is_report(loaded.raw):
        if flag("saved", options.get("saved") or False):
            raise NotAConfig("not_a_saved_plan", field="from", value=source[:120])
        return loaded, None, harmless
    saved = read_back(loaded.raw)
    return saved.loaded(), saved, tuple(dict.fromkeys((*saved.harmless, *harmless)))


def declared(given: Any) -> tuple[str, ...]:
    """Keys declared harmless: a list of texts, or one text with commas. Raises InvalidInput."""
    if isinstance(given, str):
        return tuple(k.strip() for k in given.split(",") if k.strip())[:MAX_HARMLESS]
    keys = given if given is not None else ()
    if not isinstance(keys, (list, tuple)) or len(keys) > MAX_HARMLESS or not all(isinstance(k, str) for k in keys):
        raise InvalidInput("not_a_list_of_keys", field="harmless", value=repr(given)[:60], limit=MAX_HARMLESS)
    return tuple(keys)


def _named(source: str) -> str:
    """A source as a scenario names it, which must read back from text."""
    return source.strip()[:400].strip()


def take_lengths(chosen: Mapping[str, Any], *, allow_paths: bool) -> tuple[Mix | None, dict[str, Any]]:
    """(the mix of lengths, the options with its short text, or without it where it has none). Raises InvalidInput."""
    if chosen.get("lengths") is None:
        return None, dict(chosen)
    mix = read(chosen["lengths"], allow_paths=allow_paths)
    return mix, {**chosen, "lengths": mix.text()}


def _opener(token: str | None, allow_paths: bool) -> Callable[[str], Loaded]:
    return partial(load, token=token, allow_paths=allow_paths)


def _plan_base(source: str, model: ModelSpec, chosen: Mapping[str, Any]) -> Scenario:
    """Defaults of `plan` on the command line: one sequence of the largest length, unless a load is given."""
    longest = chosen.get("max_model_len") or chosen.get("max-model-len") or model.max_context_tokens or Scenario().tokens
    try:
        longest = min(int(longest), model.max_context_tokens or int(longest))
    except (TypeError, ValueError):
        longest = model.max_context_tokens or Scenario().tokens
    base = Scenario(model=_named(source), sequences=1, tokens=max(1, longest))
    given = from_options({k: v for k, v in chosen.items() if k.replace("-", "_") in ("engine", "parallel", "kv_unified", "max_model_len")})
    if given.engine == "llamacpp" and given.parallel and not given.kv_unified:  # its slots share out the context, and each is filled
        base = replace(base, sequences=given.parallel, tokens=max(1, base.tokens // given.parallel if given.max_model_len else base.tokens))
    return base
