"""`python -m gpu_probe run SOURCE`: the command line, and the child process behind the Validate page.

With --json every line on stdout is a JSON object: events first, the result (or the error) last. Whatever a library prints goes to
stderr. SOURCE - reads a config.json from standard input. Exit codes: 0 done, 2 refused, 3 memory, 4 time limit, 1 a fault.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from collections.abc import Collection
from typing import Any, NoReturn

from gpu_probe.errors import EXIT_FAULT, EXIT_TIME, ProbeFault, ProbeTimeLimit, exit_code
from gpu_probe.result import ProbeRequest
from planner.errors import InvalidInput, PlannerError
from planner.messages import render
from planner.model import ModelSpec
from planner.units import MIB, parse_bytes

MAX_CONFIG_BYTES = 16 * MIB


class Out:
    """The only writer on stdout: one JSON object a line, whole lines even when the watchdog writes too."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.phase = "start"
        self._lock = threading.Lock()
        self._closed = False
        self._stream = os.fdopen(os.dup(1), "w", encoding="utf-8")

    def take_over(self) -> None:
        """From here on a stray print of a library lands on stderr."""
        sys.stdout.flush()
        os.dup2(2, 1)

    def event(self, event: dict[str, Any]) -> None:
        if event["ev"] == "phase":
            self.phase = event["name"]
        if self.as_json:
            self._write(event)
        elif event["ev"] == "phase" and event["done"] == event["total"]:
            print(f"{event['name']}: {event['done']} / {event['total']}", file=sys.stderr, flush=True)

    def last(self, data: dict[str, Any], text: str) -> None:
        """The result or the error; nothing is written after it."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._stream.write((json.dumps(data) if self.as_json else text) + "\n")
                self._stream.flush()

    def _write(self, data: dict[str, Any]) -> None:
        with self._lock:
            if not self._closed:
                self._stream.write(json.dumps(data) + "\n")
                self._stream.flush()


class Parser(argparse.ArgumentParser):
    """A wrong option is an error like any other: JSON on stdout, exit 2."""

    def error(self, message: str) -> NoReturn:
        raise InvalidInput("probe_job", field="options", reason=message[:200])


def build_parser() -> Parser:
    parser = Parser(prog="python -m gpu_probe", description=render("help.probe"))
    command = parser.add_subparsers(dest="command", required=True, parser_class=Parser).add_parser("run", help=render("help.probe.run"))
    command.add_argument("source", metavar="SOURCE", help=render("help.probe.source"))
    command.add_argument("--name", default="", help=render("help.probe.name"))
    command.add_argument("--device", default="auto", help=render("help.probe.device"))
    for option, default in (("batch", 2), ("prompt", 128), ("output", 16), ("layers", None), ("block-size", 16), ("seed", 0)):
        command.add_argument(f"--{option}", type=int, default=default)
    command.add_argument("--kv-dtype", default="auto")
    command.add_argument("--harmless", action="append", default=[], metavar="KEY", help=render("help.probe.harmless"))
    command.add_argument("--time-limit", type=float, default=120.0, metavar="SECONDS")
    command.add_argument("--memory-cap", default=None, metavar="BYTES", help=render("help.probe.memory_cap"))
    command.add_argument("--json", action="store_true")
    return parser


def main(argv: list[str]) -> int:
    out = Out("--json" in argv)
    try:
        options = build_parser().parse_args(argv)
        out.take_over()
        request = ProbeRequest(
            device=options.device, batch=options.batch, prompt=options.prompt, output=options.output, layers=options.layers,
            block_size=options.block_size, kv_dtype=options.kv_dtype, seed=options.seed, time_limit_s=options.time_limit,
            memory_cap_bytes=None if options.memory_cap is None else parse_bytes(options.memory_cap, "memory_cap"),
        ).checked()  # fmt: skip
        _watch(out, request.time_limit_s)
        model = load_model(options.source, options.name, options.harmless)
        from gpu_probe import device, run

        device.offer_to_oom_killer()
        result = run.run(model, request, out.event)
        out.event({"ev": "bye"})
        out.last(result.to_json(), table(result.to_json()))
        return 0
    except PlannerError as e:
        return _failed(out, e)
    except Exception as e:
        import traceback

        traceback.print_exc()
        return _failed(out, ProbeFault("probe_fault", reason=f"{type(e).__name__}: {e}"[:300]))


def load_model(source: str, name: str, harmless: Collection[str] = ()) -> ModelSpec:
    """The model of a SOURCE; ``-``: the config on standard input."""
    from planner.readers import read_config

    if source != "-":
        from planner.sources import load

        loaded = load(source)
        return read_config(loaded.raw, name or loaded.name, harmless=harmless)
    text = sys.stdin.buffer.read(MAX_CONFIG_BYTES + 1)
    try:
        raw = json.loads(text) if len(text) <= MAX_CONFIG_BYTES else None
    except ValueError as e:
        raise InvalidInput("probe_job", field="source", reason=str(e)[:200]) from e
    if not isinstance(raw, dict):
        raise InvalidInput("probe_job", field="source", reason="not a JSON object")
    return read_config(raw, name, harmless=harmless)


def table(result: dict[str, Any]) -> str:
    """The result for a terminal."""
    lines = [f"{'':58} {'predicted':>18} {'measured':>18}"]
    for row in result["rows"]:
        predicted, measured = ("-" if v is None else f"{v:,}" if isinstance(v, int) else f"{v:.4f}" for v in (row["predicted"], row["measured"]))
        lines.append(f"{row['name']:58} {predicted:>18} {measured:>18} {row['unit']}")
    itl = result["itl_s"]
    waits = " ".join(f"{name} {value:.4f}" for name, value in itl.items())
    lines.append(f"ttft {result['ttft_s']:.4f} s, itl {waits} s, {result['tokens_per_s']:.1f} tokens/s on {result['device']}")
    lines.append(f"logits differ by {result['logits_max_rel_error']:.1e}; {result['layers_run']} / {result['layers_total']} layers")
    return "\n".join(lines + [f"{n['level']}: {n['text']}" for n in result["notes"]])


def _failed(out: Out, error: PlannerError) -> int:
    data, code = error.to_json(), exit_code(error)
    out.event({"ev": "oom" if code == 3 else "error", **data})
    out.last({"error": data}, f"error: {data['message']}\n{data['hint']}")
    return code


def _watch(out: Out, limit_s: float) -> None:
    """Ends the process at its time limit, whatever the main thread is busy with."""

    def end() -> None:
        if _failed(out, ProbeTimeLimit("probe_time", field="time_limit", limit=f"{limit_s:g}", where=out.phase)) == EXIT_TIME:
            os._exit(EXIT_TIME)
        os._exit(EXIT_FAULT)

    timer = threading.Timer(limit_s, end)
    timer.daemon = True
    timer.start()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
