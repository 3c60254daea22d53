"""What can be asked of `python -m gpu_probe`. No torch."""

from __future__ import annotations

import argparse
from typing import NoReturn

from gpu_probe.result import ProbeRequest
from planner.errors import InvalidInput
from planner.messages import render
from planner.units import parse_bytes


class Parser(argparse.ArgumentParser):
    """A wrong option is an error like any other: JSON on stdout, exit 2."""

    def error(self, message: str) -> NoReturn:
        raise InvalidInput("probe_job", field="options", reason=message[:200])


def build_parser() -> Parser:
    parser = Parser(prog="python -m gpu_probe", description=render("help.probe"))
    commands = parser.add_subparsers(dest="command", required=True, parser_class=Parser)
    command = commands.add_parser("run", help=render("help.probe.run"))
    command.add_argument("source", metavar="SOURCE", help=render("help.probe.source"))
    command.add_argument("--name", default="", help=render("help.probe.name"))
    command.add_argument("--device", default="auto", help=render("help.probe.device"))
    for option, default in (("batch", 2), ("prompt", 128), ("output", 16), ("layers", None), ("block-size", 16), ("seed", 0), ("shared-prefix", 0)):
        command.add_argument(f"--{option}", type=int, default=default)
    command.add_argument("--kv-dtype", default="auto")
    command.add_argument("--backend", default="auto", help=render("help.probe.backend"))
    command.add_argument("--harmless", action="append", default=[], metavar="KEY", help=render("help.probe.harmless"))
    command.add_argument("--time-limit", type=float, default=120.0, metavar="SECONDS")
    command.add_argument("--memory-cap", default=None, metavar="BYTES", help=render("help.probe.memory_cap"))
    command.add_argument("--runner", choices=("auto", "lean", "injected"), default="auto", help=render("help.probe.runner"))
    command.add_argument("--weights", default="", metavar="FOLDER", help=render("help.probe.weights"))
    command.add_argument("--calibration", action="store_true", help=render("help.probe.suite.calibration"))
    command.add_argument("--json", action="store_true")
    command.add_argument("--parent", type=int, default=0, help=argparse.SUPPRESS)
    sweep = commands.add_parser("sweep", help=render("help.probe.sweep"))
    sweep.add_argument("--families", default="", metavar="TYPE,...", help=render("help.probe.sweep.families"))
    sweep.add_argument("--seed", type=int, default=0)
    sweep.add_argument("--time-limit", type=float, default=600.0, metavar="SECONDS")
    sweep.add_argument("--json", action="store_true")
    bench = commands.add_parser("bench", help=render("help.probe.bench"))
    bench.add_argument("--device", default="cpu", help=render("help.probe.bench.device"))
    bench.add_argument("--seed", type=int, default=0)
    bench.add_argument("--time-limit", type=float, default=270.0, metavar="SECONDS")
    bench.add_argument("--json", action="store_true")
    gpu = commands.add_parser("gpu-check", help=render("help.probe.gpu_check"))
    gpu.add_argument("--dry", action="store_true", help=render("help.probe.gpu_check.dry"))
    gpu.add_argument("--out", default="", metavar="FILE", help=render("help.probe.gpu_check.out"))
    gpu.add_argument("--json", action="store_true")
    suite = commands.add_parser("suite", help=render("help.probe.suite"))
    suite.add_argument("--device", default="auto", help=render("help.probe.device"))
    suite.add_argument("--only", default="", metavar="ITEM,...", help=render("help.probe.suite.only"))
    suite.add_argument("--seed", type=int, default=0)
    suite.add_argument("--out", default="", metavar="DIR", help=render("help.probe.suite.out"))
    suite.add_argument("--calibration", action="store_true", help=render("help.probe.suite.calibration"))
    suite.add_argument("--time-limit", type=float, default=600.0, metavar="SECONDS")
    suite.add_argument("--memory-cap", default=None, metavar="BYTES", help=render("help.probe.memory_cap"))
    suite.add_argument("--json", action="store_true")
    suite.add_argument("--parent", type=int, default=0, help=argparse.SUPPRESS)
    ranks = commands.add_parser("dist", help=render("help.probe.dist"))
    ranks.add_argument("--ranks", type=int, default=2, help=render("help.probe.dist.ranks"))
    ranks.add_argument("--seed", type=int, default=0)
    ranks.add_argument("--time-limit", type=float, default=120.0, metavar="SECONDS")
    ranks.add_argument("--json", action="store_true")
    return parser


def request_of(options: argparse.Namespace) -> ProbeRequest:
    """The checked request of `run`. Raises InvalidInput or UnsupportedValue with the field."""
    return ProbeRequest(
        device=options.device, batch=options.batch, prompt=options.prompt, output=options.output, layers=options.layers,
        block_size=options.block_size, kv_dtype=options.kv_dtype, backend=options.backend, seed=options.seed,
        shared_prefix=options.shared_prefix, time_limit_s=options.time_limit,
        memory_cap_bytes=cap_of(options),
    ).checked()  # fmt: skip


def cap_of(options: argparse.Namespace) -> int | None:
    """The cap on memory in bytes, None where none is asked for. Raises InvalidInput."""
    return None if options.memory_cap is None else parse_bytes(options.memory_cap, "memory_cap")
