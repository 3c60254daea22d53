"""The command line: read, kv, plan, batch, report, reconcile, diagnose, sweep. One JSON object on stdout with --json; a user's error is exit 2."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from planner.api import SWITCHES, answer
from planner.errors import InvalidInput, PlannerError
from planner.messages import render
from planner.report import FORMATS
from planner.scenario import ALIASES, OPTIONS, Scenario

FLAGS = [name for name, o in OPTIONS.items() if o.kind == "flag"]
MAX_BATCH_LINE = 1_000_000
DEFAULTS = Scenario()


def parser(words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """`words`: what was typed; the seventy options of a scenario are made for its command alone."""
    top = _Parser(prog="python -m planner", description=render("cli.about"))
    commands = top.add_subparsers(dest="command", required=True, parser_class=_Parser)
    for name, many in (("read", True), ("kv", True), ("plan", True), ("report", False)):
        sub = commands.add_parser(name, help=render(f"cli.{name}"))
        kept = name in ("plan", "report")
        count = ("*" if kept else "+") if many else "?"
        sub.add_argument("source", nargs=count, metavar="SOURCE", help=render("cli.source"))
        if kept:
            sub.add_argument("--from", dest="saved", metavar="FILE", help=render("cli.from"))
        sub.add_argument("--json", action="store_true", help=render("cli.json"))
        sub.add_argument("--harmless", action="append", metavar="KEY", help=render("cli.harmless"))
        if name != "read":
            _scenario_options(sub, words)
        if name == "plan":
            for switch in SWITCHES:
                sub.add_argument(f"--{switch}", action="store_true", help=render(f"cli.{switch}"))
            sub.add_argument("--trace", metavar="FILE", help=render("cli.trace"))
        if name == "report":
            sub.add_argument("--format", choices=FORMATS, default="md", help=render("cli.format"))
            sub.add_argument("--with", dest="results", action="append", metavar="FILE", help=render("cli.with"))
            sub.add_argument("-o", "--out", metavar="FILE", help=render("cli.out"))
    reconcile = commands.add_parser("reconcile", help=render("cli.reconcile"))
    reconcile.add_argument("source", nargs="+", metavar="LOG", help=render("cli.log"))
    reconcile.add_argument("--model", metavar="SOURCE", help=render("cli.reconcile_model"))
    reconcile.add_argument("--json", action="store_true", help=render("cli.json"))
    reconcile.add_argument("--harmless", action="append", metavar="KEY", help=render("cli.harmless"))
    _scenario_options(reconcile, words)
    sweep = commands.add_parser("sweep", help=render("cli.sweep"))
    sweep.add_argument("source", nargs="?", metavar="SOURCE", help=render("cli.sweep.source"))
    sweep.add_argument("--grid", action="append", required=True, metavar="GRID", help=render("cli.sweep.grid"))
    sweep.add_argument("--price", metavar="GPU=USD", help=render("cli.sweep.price"))
    sweep.add_argument("-o", "--out", metavar="FILE", help=render("cli.sweep.out"))
    sweep.add_argument("--json", action="store_true", help=render("cli.json"))
    sweep.add_argument("--harmless", action="append", metavar="KEY", help=render("cli.harmless"))
    _scenario_options(sweep, words)
    diagnose = commands.add_parser("diagnose", help=render("cli.diagnose"))
    diagnose.add_argument("source", metavar="SOURCE", help=render("cli.source"))
    diagnose.add_argument("--seen", action="append", metavar="NAME=VALUE", default=[], help=render("cli.seen"))
    diagnose.add_argument("--paste", metavar="FILE", help=render("cli.paste"))
    diagnose.add_argument("--json", action="store_true", help=render("cli.json"))
    diagnose.add_argument("--harmless", action="append", metavar="KEY", help=render("cli.harmless"))
    _scenario_options(diagnose, words)
    batch = commands.add_parser("batch", help=render("cli.batch"))
    batch.add_argument("file", metavar="FILE", help=render("cli.batch_file"))
    batch.add_argument("--json", action="store_true", help=render("cli.json"))
    return top


def _scenario_options(sub: argparse.ArgumentParser, words: Sequence[str]) -> None:
    if words and sub.prog.rsplit(" ", 1)[-1] != words[0]:
        return
    for name, o in OPTIONS.items():
        if name == "model":
            continue
        flag = name.replace("_", "-")
        text = render(f"option.{name}")
        if o.kind == "flag":
            on = bool(getattr(DEFAULTS, name))
            sub.add_argument(f"--no-{flag}" if on else f"--{flag}", dest=name, action="store_const", const=not on, default=None, help=text)
        else:
            names = [f"--{flag}", *(f"--{other.replace('_', '-')}" for other, meant in ALIASES.items() if meant == name)]
            sub.add_argument(*names, dest=name, metavar=(o.kind if o.kind != "choice" else flag).upper(), help=text)


class _Parser(argparse.ArgumentParser):
    """Usage errors become our own, so that --json callers get their object."""

    def error(self, message: str) -> Any:
        raise InvalidInput("usage", field="command", detail=message[:300])


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        args = parser(words).parse_args(words)
        if args.command == "batch":
            return _batch(args.file)
        options = {name: getattr(args, name, None) for name in OPTIONS if name != "model"}
        options = {k: v for k, v in options.items() if v is not None}
        if args.harmless:
            options["harmless"] = args.harmless
        for name in (*SWITCHES, "trace"):
            if getattr(args, name, None):
                options[name] = getattr(args, name)
        if args.command in ("plan", "report"):
            _take_saved(args, options)
        if args.command == "report":
            return _report(args, options)
        if args.command == "reconcile":
            return _reconcile(args.source, args.model, options, args.json)
        if args.command == "diagnose":
            from planner.diagnose.command import command

            return command(args.source, args.seen, args.paste, options, as_json=args.json, token=os.environ.get("HF_TOKEN"))
        if args.command == "sweep":
            from planner.sweep.command import sweep

            return sweep(args.source, args.grid, options, price=args.price, out=args.out, as_json=args.json)
        return _several(args.command, args.source, options, args.json)
    except PlannerError as e:
        return _failed(e)


def _take_saved(args: argparse.Namespace, options: dict[str, Any]) -> None:
    """`--from FILE` stands for SOURCE, and must be a saved plan. Raises InvalidInput where neither or both are given."""
    if bool(args.saved) == bool(args.source):
        raise InvalidInput("source_or_saved", field="source")
    if args.saved:
        args.source = [args.saved] if args.command == "plan" else args.saved
        options["saved"] = True


def _several(command: str, sources: Sequence[str], options: dict[str, Any], as_json: bool) -> int:
    """One object a source; exit 0 if at least one succeeded, 2 if none."""
    good = 0
    for source in sources:
        out = _answer(command, source, options)
        good += "error" not in out
        if as_json or "error" in out:
            print(json.dumps(out))
        else:
            from planner.report.text import text

            print(text(command, out))
    return 0 if good else 2


def _answer(command: str, source: str, options: dict[str, Any]) -> dict[str, Any]:
    try:
        return answer(command, source, options, token=os.environ.get("HF_TOKEN"))  # the caller of a command line is the token's owner
    except PlannerError as e:
        return {"error": e.to_json(), "source": {"path": source[:400]} if Path(source[:400]).suffix == ".json" else {"asked": source[:400]}}


def _reconcile(logs: Sequence[str], model: str | None, options: dict[str, Any], as_json: bool) -> int:
    """One object a log; exit 0 if at least one was read, 2 if none. The model is read once; what is wrong with it is said once."""
    from planner.enginelogs.answer import answer_log, for_model, text

    read, hardware, given = for_model(model, options, token=os.environ.get("HF_TOKEN"))
    good = 0
    for name in logs:
        try:
            out = answer_log(name, read, hardware, given)
        except PlannerError as e:
            out = {"error": e.to_json(), "source": {"path": name[:400]}}
        good += "error" not in out
        print(json.dumps(out) if as_json or "error" in out else text(out))
    return 0 if good else 2


def _batch(name: str) -> int:
    """One request a line, one answer a line, in order; a bad line is answered in its place."""
    answered = 0
    for line in _lines(name):
        if not line.strip():
            continue
        try:
            request = json.loads(line) if len(line) <= MAX_BATCH_LINE else None
        except (ValueError, RecursionError):
            request = None
        if not isinstance(request, dict) or not isinstance(request.get("source"), str) or not isinstance(request.get("command"), str):
            out: dict[str, Any] = {"error": InvalidInput("batch_line", field="command").to_json()}
        else:
            options = {k: v for k, v in request.items() if k not in ("command", "source")}
            out = _answer(request["command"], request["source"], options)
        answered += 1
        print(json.dumps(out))
    return 0 if answered else 2


def _lines(name: str) -> Iterator[str]:
    if name == "-":
        yield from sys.stdin
        return
    try:
        with Path(name).open(encoding="utf-8-sig", errors="replace") as f:
            yield from f
    except OSError as e:
        raise InvalidInput("file_unreadable", field="file", value=name[:200], detail=e.strerror or "") from None


def _report(args: argparse.Namespace, options: dict[str, Any]) -> int:
    from planner.report import write

    data = write(args.source, options, args.format, results=args.results or ())
    if args.out:
        try:
            Path(args.out).write_bytes(data)
        except OSError as e:
            raise InvalidInput("file_unreadable", field="out", value=args.out[:200], detail=e.strerror or "") from None
        if args.json:
            print(json.dumps({"written": args.out, "bytes": len(data), "format": args.format}))
    else:
        sys.stdout.buffer.write(data)
    return 0


def _failed(e: PlannerError) -> int:
    print(json.dumps({"error": e.to_json()}))
    return 2


if __name__ == "__main__":
    sys.exit(main())
