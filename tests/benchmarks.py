"""Timings, printed and never asserted: `make bench`. Ratios are against starting python with numpy on the same machine.

python -m tests.benchmarks
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

from planner.answers import plan_json
from planner.capacity import plan
from planner.hardware import find
from planner.heatmap import heat_map
from planner.readers import read_config
from planner.remedies import remedies
from planner.report import FORMATS, render
from planner.scenario import Scenario
from planner.sources import load
from tests.conftest import CONFIGS, ROOT


def best(work: Callable[[], object], rounds: int) -> float:
    """Fastest of `rounds`, seconds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def process(*words: str) -> float:
    return best(lambda: subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, check=True), 7)


def main() -> None:
    base = process("-c", "import numpy, json")
    for name, words in (
        ("python -m planner kv", ("-m", "planner", "kv", str(CONFIGS / "llama.json"), "--tokens", "8192", "--json")),
        ("python -m planner plan", ("-m", "planner", "plan", "Llama-3.1-8B", "--json")),
    ):
        took = process(*words)
        print(f"{name:34s} {took * 1e3:8.1f} ms   {took / base:.2f} x python with numpy")
    for name in ("Llama-3.1-8B", "Gemma-3-27B", "DeepSeek-V3", "Qwen3-Next-80B-A3B"):
        model = read_config(load(f"catalog:{name}").raw, name)
        gpu, s = find("H100 SXM"), Scenario(tp=8, gpus=8)
        p = plan(model, gpu, s)
        too_much = plan(model, gpu, Scenario(tp=8, gpus=8, sequences=100_000))
        print(f"plan() {name:27s} {best(lambda: plan(model, gpu, s), 50) * 1e3:8.2f} ms")  # noqa: B023
        print(f"  read_config                      {best(lambda: read_config(load(f'catalog:{name}').raw), 20) * 1e3:8.2f} ms")  # noqa: B023
        print(f"  plan_json                        {best(lambda: plan_json(p), 20) * 1e3:8.2f} ms")  # noqa: B023
        print(f"  heat map                         {best(lambda: heat_map(p), 20) * 1e3:8.2f} ms")  # noqa: B023
        print(f"  remedies                         {best(lambda: remedies(too_much), 5) * 1e3:8.2f} ms")  # noqa: B023
    sweep()
    reports()
    page()


def sweep() -> None:
    """A million scenarios of one model in a process of its own: CPU seconds (all threads) and the peak of its memory, imports counted in the latter."""
    code = (
        "import resource, time\n"
        "from planner.api import model_of\n"
        "from planner.scenario import Scenario\n"
        "from planner.sources import load\n"
        "from planner.sweep import run\n"
        "from planner.sweep.grid import read\n"
        "import sys\n"
        "loaded = load('catalog:' + sys.argv[1])\n"
        "model = model_of(loaded)\n"
        "start, wall = time.process_time(), time.perf_counter()\n"
        "found = run(read('tokens=64..64000:64;sequences=1..1000;tp=8'), Scenario(model=loaded.name, target_itl=0.05), lambda name: (model, {}), load)\n"
        "used, passed = time.process_time() - start, time.perf_counter() - wall\n"
        "peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024\n"
        "print(f'{found.points:,} points  {used:5.2f} s of CPU, {passed:5.2f} s passed, peak {peak:.0f} MiB')\n"
    )
    for name in ("Llama-3.1-8B", "Gemma-3-27B", "DeepSeek-V3", "Qwen3-Next-80B-A3B"):
        done = subprocess.run([sys.executable, "-c", code, name], cwd=ROOT, capture_output=True, check=True, text=True)
        print(f"sweep of {name:25s} {done.stdout.strip()}")


def reports() -> None:
    """One report a format, its libraries loaded."""
    loaded = load("catalog:Llama-3.1-8B")
    p = plan(read_config(loaded.raw, loaded.name), find("H100 SXM"), Scenario())
    for fmt in FORMATS:
        took = best(lambda: render(p, fmt, loaded.provenance, config=loaded.raw, notes=loaded.notes), 5)  # noqa: B023
        print(f"report as {fmt:24s} {took * 1e3:8.1f} ms")


def page() -> None:
    """The server's rerun of the Plan page, a choice changed each time."""
    from streamlit.testing.v1 import AppTest

    at = AppTest.from_file(str(ROOT / "pages" / "router.py"), default_timeout=60).run()
    times = []
    for n in range(2, 22):
        at.number_input(key="sequences").set_value(n)
        start = time.perf_counter()
        at.run()
        times.append(time.perf_counter() - start)
    print(f"rerun of the Plan page, 20 times      median {sorted(times)[10] * 1e3:.0f} ms, longest {max(times) * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
