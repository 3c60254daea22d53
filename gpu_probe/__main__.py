"""`python -m gpu_probe run SOURCE`: the command line, and the child process behind the Validate page.

With --json every line on stdout is a JSON object: events first, the result (or the error) last. Whatever a library prints goes to
stderr. SOURCE - reads a config.json from standard input. Exit codes: 0 done, 2 refused, 3 memory, 4 time limit, 1 a fault.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from gpu_probe import lock, orphan
from gpu_probe.compare import layer_text
from gpu_probe.errors import EXIT_FAULT, EXIT_MEMORY, EXIT_TIME, ProbeFault, ProbeTimeLimit, exit_code, installed, require
from gpu_probe.lines import Out
from gpu_probe.options import build_parser, cap_of, request_of
from gpu_probe.result import ProbeRequest, ProbeResult
from planner.errors import InvalidInput, PlannerError, UnsupportedModel
from planner.messages import phase_word
from planner.model import ModelSpec
from planner.units import MIB

MAX_CONFIG_BYTES = 16 * MIB


def main(argv: list[str]) -> int:
    out = Out("--json" in argv)
    try:
        options = build_parser().parse_args(argv)
        orphan.watch(getattr(options, "parent", 0))
        out.take_over()
        command, watched = COMMANDS[options.command]
        if options.command == "run":
            options.request = request_of(options)  # a request out of range waits for nobody
        elif options.command == "suite":
            options.memory_cap_bytes = cap_of(options)
        if watched:
            _watch(out, options.time_limit)
        with lock.held(waiting=lambda: out.event({"ev": "phase", "name": "wait", "done": 0, "total": 1}), for_children=True):
            return command(options, out)
    except PlannerError as e:
        return _failed(out, e)
    except Exception as e:
        import traceback

        traceback.print_exc()
        return _failed(out, ProbeFault("probe_fault", reason=f"{type(e).__name__}: {e}"[:300]))


def _probe(options: argparse.Namespace, out: Out) -> int:
    from gpu_probe import calibration, device

    device.offer_to_oom_killer()
    result = _run(options, options.request, out).to_json()
    out.event({"ev": "bye"})
    if options.calibration:
        found = calibration.of(result).to_json()
        out.last(found, json.dumps(found, indent=1))
    else:
        out.last(result, table(result))
    return 0


def _gpu_check(options: argparse.Namespace, out: Out) -> int:
    """One JSON line a step, with --json or without: what a killed session leaves behind must be readable."""
    from gpu_probe import gpu_check
    from planner.readers import read_config

    out.as_json = True
    target = Path(options.out) if options.out else None if options.dry else gpu_check.FOLDER
    result = gpu_check.check(read_config, out.event, dry=options.dry, out=target)
    out.as_json = options.json
    out.last(result, gpu_check.markdown(result))
    return 0 if result["complete"] else EXIT_FAULT


def _bench(options: argparse.Namespace, out: Out) -> int:
    """Two thirds of the time limit go to the rounds: the rest is for the set-up and for a machine that is busy."""
    from gpu_probe import bench, device

    device.offer_to_oom_killer()
    result = bench.bench(
        device=options.device, seed=options.seed, budget_s=options.time_limit * 0.6,
        progress=lambda name, done, total: out.event({"ev": "phase", "name": name, "done": done, "total": total}),
    )  # fmt: skip
    out.last(result, bench.table(result))
    return 0


def _suite(options: argparse.Namespace, out: Out) -> int:
    """Exit code 1 where a size differs from its prediction; never for a time."""
    _unwind_on_sigterm()
    from gpu_probe import calibration, device, suite

    device.offer_to_oom_killer()
    only = [name for name in options.only.split(",") if name]
    if options.calibration:
        only = only or ["itl"]
    result = suite.run(
        device=options.device, seed=options.seed, only=only, memory_cap_bytes=options.memory_cap_bytes,
        progress=lambda n, d, t: out.event({"ev": "phase", "name": n, "done": d, "total": t}),
        found=lambda head, items: out.event({"ev": "items", "head": head, "items": [i.to_json() for i in items]}),
    )  # fmt: skip
    if options.out:
        suite.save(result, Path(options.out))
    if options.calibration:
        found = calibration.of(result).to_json()
        out.last(found, json.dumps(found, indent=1))
    else:
        out.last(result, suite.markdown(result))
    return 0 if result["bytes_right"] else EXIT_FAULT


def _dist(options: argparse.Namespace, out: Out) -> int:
    """Starts torchrun itself. Exit code 1 where bytes or outputs differ."""
    from gpu_probe import dist

    _unwind_on_sigterm()
    result = dist.launch(options.ranks, seed=options.seed, limit_s=options.time_limit)
    out.last(result, dist.table(result))
    return 0 if result["right"] else EXIT_FAULT


def _sweep(options: argparse.Namespace, out: Out) -> int:
    """Exit code 1 where something failed; the failures are in the result."""
    require("transformers")
    from gpu_probe import sweep
    from planner.readers import read_config

    only = [name for name in options.families.split(",") if name]
    result = sweep.run(
        read_config, seed=options.seed, only=only, progress=lambda name, done, total: out.event({"ev": "phase", "name": name, "done": done, "total": total})
    )
    out.last(result, sweep.table(result))
    return EXIT_FAULT if result["failures"] or not result["rows"] else 0


COMMANDS: dict[str, tuple[Callable[[argparse.Namespace, Out], int], bool]] = {
    "run": (_probe, True), "sweep": (_sweep, True), "bench": (_bench, True), "suite": (_suite, True), "dist": (_dist, False),
    "gpu-check": (_gpu_check, False),
}  # fmt: skip
"""What each command does, and whether the watchdog ends it: dist and gpu-check see to their own end. One of them at a time on a host."""


def _run(options: argparse.Namespace, request: ProbeRequest, out: Out) -> ProbeResult:
    """By the runner asked for; auto: the lean one, and transformers' model code for what that one refuses, where it is installed."""
    raw, name = load_raw(options.source, options.name)
    refused: UnsupportedModel | None = None
    if options.runner != "injected" and not options.weights:
        from gpu_probe import run

        try:
            return run.run(read_model(raw, name, options.harmless), request, out.event)
        except UnsupportedModel as e:
            if options.runner == "lean" or not installed("transformers"):
                raise
            refused = e
    require("transformers")
    from gpu_probe.injected import hosted
    from gpu_probe.injected import run as injected_run
    from planner.notes import note

    if options.weights:
        raw = hosted.config_in(options.weights)
    notes = [note("warning", "probe_runner_fallback", reason=refused.message.rstrip("."))] if refused else []

    def read(config: dict[str, Any]) -> ModelSpec:
        return read_model(config, name, options.harmless)

    try:
        return injected_run.run(raw, read, request, out.event, weights=options.weights, notes=notes)
    except UnsupportedModel as e:
        raise (refused or e) from e  # what the default runner said comes first


def read_model(raw: dict[str, Any], name: str, harmless: Collection[str] = ()) -> ModelSpec:
    from planner.readers import read_config

    return read_config(raw, name, harmless=harmless)


def load_raw(source: str, name: str) -> tuple[dict[str, Any], str]:
    """The raw config of a SOURCE and the model's name."""
    if source != "-":
        from planner.sources import load

        loaded = load(source)
        return loaded.raw, name or loaded.name
    text = sys.stdin.buffer.read(MAX_CONFIG_BYTES + 1)
    try:
        raw = json.loads(text) if len(text) <= MAX_CONFIG_BYTES else None
    except ValueError as e:
        raise InvalidInput("probe_job", field="source", reason=str(e)[:200]) from e
    if not isinstance(raw, dict):
        raise InvalidInput("probe_job", field="source", reason="not a JSON object")
    return raw, name


def table(result: dict[str, Any]) -> str:
    """The result for a terminal."""
    lines = [f"{'':58} {'predicted':>18} {'measured':>18}"]
    for row in result["rows"]:
        predicted, measured = ("-" if v is None else f"{v:,}" if isinstance(v, int) else f"{v:.4f}" for v in (row["predicted"], row["measured"]))
        lines.append(f"{row['name']:58} {predicted:>18} {measured:>18} {row['unit']}")
    lines += layer_text(result.get("lines", ()))
    itl = result["itl_s"]
    waits = " ".join(f"{name} {value:.4f}" for name, value in itl.items())
    lines.append(f"ttft {result['ttft_s']:.4f} s, itl {waits} s, {result['tokens_per_s']:.1f} tokens/s on {result['device']}")
    lines.append(f"logits differ by {result['logits_max_rel_error']:.1e}; {result['layers_run']} / {result['layers_total']} layers")
    return "\n".join(lines + [f"{n['level']}: {n['text']}" for n in result["notes"]])


def _failed(out: Out, error: PlannerError) -> int:
    data, code = error.to_json(), exit_code(error)
    given = error.args_by_name
    amounts = {"asked": given.get("asked", given.get("needed")), "free": given.get("free", given.get("available"))} if code == EXIT_MEMORY else {}
    out.event({"ev": "oom" if code == EXIT_MEMORY else "error", **data, **amounts})
    out.last({"error": data}, f"error: {data['message']}\n{data['hint']}")
    return code


def _unwind_on_sigterm() -> None:
    """Ranks run in a process group of their own, which a signal to ours does not reach: `dist.launch` ends them on its way out."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


def _watch(out: Out, limit_s: float) -> None:
    """Ends the process at its time limit, whatever the main thread is busy with."""

    def end() -> None:
        if _failed(out, ProbeTimeLimit("probe_time", field="time_limit", limit=f"{limit_s:g}", where=phase_word(out.phase))) == EXIT_TIME:
            os._exit(EXIT_TIME)
        os._exit(EXIT_FAULT)

    out.watchdog = threading.Timer(limit_s, end)
    out.watchdog.daemon = True
    out.watchdog.start()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
