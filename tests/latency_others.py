"""A published planner on the measured rows: aiconfigurator's TPOT. Literals of one run of tests/latency_peers.py, which says what each row got."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from statistics import mean, median

from tests.latency_rows import Row

DATE = "2026-11-30"
COMMAND = "cli_estimate(model, system, backend_name=, isl=, osl=, batch_size=, tp_size=, moe_tp_size=, moe_ep_size=, gemm_quant_mode=, moe_quant_mode=)"
AICONFIGURATOR = ("aiconfigurator 0.12.0, plain", "aiconfigurator 0.12.0, checkpoint")
Key = tuple[str, str, str, str, int, int, int, int, int]


@cache
def answers() -> dict[Key, tuple[float | None, float | None]]:
    """(model, GPU, engine, precision, ranks, ranks of experts, prompt, output, sequences) -> seconds of the two askings; None: it refused."""
    out: dict[Key, tuple[float | None, float | None]] = {}
    for line in ANSWERS.strip().splitlines():
        group, cells = line.split(" = ")
        model, gpu, engine, precision, *sizes = group.split(", ")
        tp, ep, prompt, output = map(int, sizes)
        for cell in cells.split():
            sequences, said = cell.split(":")
            plain, _, told = said.partition("/")
            out[model, gpu, engine, precision, tp, ep, prompt, output, int(sequences)] = _seconds(plain), _seconds(told or plain)
    return out


def _seconds(text: str) -> float | None:
    return None if text == "-" else float(text.rstrip("b")) / 1e3


def aiconfigurator(rows: Sequence[Row]) -> dict[str, list[float | None]]:
    got = [answers().get((r.model, r.gpu, r.engine, r.precision, r.tp, r.ep, r.prompt, r.output, r.sequences), (None, None)) for r in rows]
    return {name: [x[i] for x in got] for i, name in enumerate(AICONFIGURATOR)}


def ratios(rows: Sequence[Row], predicted: Sequence[float | None]) -> list[float]:
    """Predicted over measured of the rows that have both."""
    return [p / r.itl_s for r, p in zip(rows, predicted, strict=True) if r.itl_s and p]


def error(rows: Sequence[Row], predicted: Sequence[float | None]) -> float:
    return mean(abs(x - 1) for x in ratios(rows, predicted))


def side_by_side(rows: Sequence[Row], ours: Mapping[str, Sequence[float]]) -> list[str]:
    """`ours`: method -> ITL of each row in seconds. The figures of all methods on the rows that every one answered, with the families apart."""
    predicted: dict[str, Sequence[float | None]] = {**ours, **aiconfigurator(rows)}
    shared = [i for i in range(len(rows)) if all(values[i] is not None for values in predicted.values())]
    families = sorted({r.model for r in rows})
    out = ["## Peers on the same rows", "",
           f"ITL of every method on the {len(shared)} rows that all of them answer. The two bare forms have our own counts of bytes and FLOPs. "
           f"aiconfigurator's answers are of one run on {DATE}, redone by `python -m tests.latency_peers PYTHON`: `{COMMAND}`, mode agg, "
           "its newest tables (vllm 0.24.0, sglang 0.5.14, trtllm 1.3.0rc20); the other arguments as they default. *Plain*: the model's plain config and "
           "the quantization modes of its own labels, as the other methods got it. *Checkpoint*: for the fp8 and fp4 rows of Llama 3.1, Qwen3-32B (fp8), "
           "Qwen3.5 (fp4) and MiniMax (fp4) the quantized checkpoint that it carries, so with an fp8 cache too, which the others were not told of.", "",
           "What to bear in mind: aiconfigurator adds up kernels that were measured on these GPUs, and these rows are from its own package, which "
           "ships them as whole-engine runs. Its tables are of newer engines than those that the rows name. KVLedger's constants were "
           "fitted on three of the five families, of these same rows. What aiconfigurator did not answer, it said does not fit the memory, though it was "
           "served. MiniMax's fp8 rows on B300 and H100 are answered with experts in fp8 blocks, since its tables lack the kernels of the label.", "",
           f"| method | answered of {len(rows)} | ITL error (mean) | (median) | predicted / measured (median) | {' | '.join(_headings(rows, families))} |",
           f"|---|{'---:|' * (4 + len(families))}"]  # fmt: skip
    for name, values in predicted.items():
        some, theirs = [rows[i] for i in shared], [values[i] for i in shared]
        each = ratios(some, theirs)
        apart = [error([r for r in some if r.model == f], [p for r, p in zip(some, theirs, strict=True) if r.model == f]) for f in families]
        figures = [mean(abs(x - 1) for x in each), median(abs(x - 1) for x in each)]
        out.append(f"| {name} | {sum(x is not None for x in values)} | {' | '.join(map(percent, figures))} | {median(each):.2f} | "
                   f"{' | '.join(map(percent, apart))} |")  # fmt: skip
    return out


def _headings(rows: Sequence[Row], families: Sequence[str]) -> list[str]:
    fitted = {r.model for r in rows if r.fitted}
    return [f"{name.split('/')[-1]} ({'fitted' if name in fitted else 'held out'})" for name in families]


def percent(x: float) -> str:
    return f"{100 * x:.1f} %"


# model, GPU, engine, precision, ranks, ranks of experts, prompt, output = sequences:ms plain[/ms checkpoint]; - refused; b experts in fp8 blocks.
ANSWERS = """
MiniMaxAI/MiniMax-M2.5, B200 SXM, vllm, fp4, 1, 1, 1024, 1024 = 4:6.229/6.229 8:8.224/8.224
MiniMaxAI/MiniMax-M2.5, B200 SXM, vllm, fp4, 1, 1, 8192, 1024 = 4:6.882/6.882 8:10.15/10.15 16:14.34/14.34 32:20.85/20.85
MiniMaxAI/MiniMax-M2.5, B200 SXM, vllm, fp4, 2, 1, 1024, 1024 = 4:5.807/5.807 8:6.808/6.808 16:8.199/8.199 32:9.74/9.74 64:13.5/13.5 128:17.02/17.02 256:23.29/23.29 512:33.76/33.76
MiniMaxAI/MiniMax-M2.5, B200 SXM, vllm, fp4, 2, 1, 8192, 1024 = 4:6.323/6.323 8:7.655/7.655 16:10.52/10.52 32:14.23/14.23
MiniMaxAI/MiniMax-M2.5, B200 SXM, vllm, fp4, 4, 1, 1024, 1024 = 4:4.994/4.994 8:5.614/5.614 16:6.512/6.512 32:7.778/7.778 64:10.24/10.24 128:12.94/12.94 256:16.68/16.68
MiniMaxAI/MiniMax-M2.5, B200 SXM, vllm, fp4, 4, 1, 8192, 1024 = 4:5.322/5.322 8:6.263/6.263 16:7.565/7.565 32:10.59/10.59 64:15.7/15.7 128:23.65/23.65 256:38.3/38.3 512:67.04/67.04
MiniMaxAI/MiniMax-M2.5, B200 SXM, vllm, fp4, 8, 1, 1024, 1024 = 4:4.669/4.669
MiniMaxAI/MiniMax-M2.5, B200 SXM, vllm, fp4, 8, 1, 8192, 1024 = 4:4.913/4.913
MiniMaxAI/MiniMax-M2.5, B200 SXM, vllm, fp8, 2, 1, 1024, 1024 = 8:9.513 16:12.06 32:14.85 64:23.83 128:27.49 512:48.11
MiniMaxAI/MiniMax-M2.5, B200 SXM, vllm, fp8, 2, 1, 1024, 8192 = 4:7.794 8:9.389 16:12.03 32:15.31
MiniMaxAI/MiniMax-M2.5, B200 SXM, vllm, fp8, 2, 1, 8192, 1024 = 4:8.437 8:10.68 64:34.88
MiniMaxAI/MiniMax-M2.5, B200 SXM, vllm, fp8, 2, 2, 1024, 1024 = 4:8.48 128:28.41
MiniMaxAI/MiniMax-M2.5, B200 SXM, vllm, fp8, 4, 1, 1024, 1024 = 4:6.011 32:11.15 64:16.82 128:19.64 256:24.49 512:34.2
MiniMaxAI/MiniMax-M2.5, B200 SXM, vllm, fp8, 4, 1, 1024, 8192 = 8:7.283 32:10.96 64:17.14
MiniMaxAI/MiniMax-M2.5, B200 SXM, vllm, fp8, 4, 1, 8192, 1024 = 4:6.449 8:8.179 32:14.84 64:24.04 128:33.85
MiniMaxAI/MiniMax-M2.5, B200 SXM, vllm, fp8, 4, 4, 1024, 1024 = 32:11.15
MiniMaxAI/MiniMax-M2.5, B300 SXM, vllm, fp4, 1, 1, 1024, 1024 = 4:6.154/6.154 8:8.068/8.068
MiniMaxAI/MiniMax-M2.5, B300 SXM, vllm, fp4, 1, 1, 8192, 1024 = 8:9.899/9.899 32:20.18/20.18 64:32.6/32.6 128:50.47/50.47
MiniMaxAI/MiniMax-M2.5, B300 SXM, vllm, fp4, 2, 1, 1024, 1024 = 8:6.733/6.733 32:9.593/9.593 64:13.47/13.47 256:22.5/22.5 512:32.76/32.76
MiniMaxAI/MiniMax-M2.5, B300 SXM, vllm, fp4, 2, 1, 8192, 1024 = 4:6.164/6.164 8:7.491/7.491 128:31.84/31.84 256:53.1/53.1
MiniMaxAI/MiniMax-M2.5, B300 SXM, vllm, fp4, 4, 1, 1024, 1024 = 4:4.74/4.74 8:5.565/5.565 32:7.606/7.606 64:9.986/9.986 128:12.69/12.69 256:16.58/16.58 512:23.57/23.57
MiniMaxAI/MiniMax-M2.5, B300 SXM, vllm, fp4, 4, 1, 8192, 1024 = 4:5.085/5.085 8:6.146/6.146 16:7.465/7.465 32:10.28/10.28 64:15.19/15.19 128:22.81/22.81 256:37.07/37.07 512:64.87/64.87
MiniMaxAI/MiniMax-M2.5, B300 SXM, vllm, fp4, 8, 1, 1024, 1024 = 4:4.459/4.459 8:5.086/5.086
MiniMaxAI/MiniMax-M2.5, B300 SXM, vllm, fp4, 8, 1, 8192, 1024 = 4:4.772/4.772
MiniMaxAI/MiniMax-M2.5, B300 SXM, vllm, fp8, 1, 1, 8192, 1024 = 4:9.654b 8:14.6b 16:21.21b
MiniMaxAI/MiniMax-M2.5, B300 SXM, vllm, fp8, 2, 1, 1024, 1024 = 4:7.072b 8:8.794b 32:13.9b 64:19.99b 128:24.95b 256:34.47b 512:50.57b
MiniMaxAI/MiniMax-M2.5, B300 SXM, vllm, fp8, 2, 1, 8192, 1024 = 4:7.728b 8:9.914b 32:19.48b 64:30.7b 128:46.04b 256:77.42b
MiniMaxAI/MiniMax-M2.5, B300 SXM, vllm, fp8, 4, 1, 1024, 1024 = 4:5.983b 8:6.998b 16:8.104b 32:9.938b 64:13.27b 128:16.83b 256:22.78b 512:33.02b
MiniMaxAI/MiniMax-M2.5, B300 SXM, vllm, fp8, 4, 1, 8192, 1024 = 4:6.426b 8:7.776b 32:13.4b 64:20.08b 256:49.94b 512:88.22b
MiniMaxAI/MiniMax-M2.5, H100 SXM, vllm, fp8, 4, 4, 1024, 1024 = 4:8.867b 8:10.87b 16:13.28b 32:17.6b 64:24.33b
MiniMaxAI/MiniMax-M2.5, H100 SXM, vllm, fp8, 4, 4, 1024, 8192 = 8:10.91b 16:13.53b 32:18.3b
MiniMaxAI/MiniMax-M2.5, H100 SXM, vllm, fp8, 4, 4, 8192, 1024 = 4:9.747b 32:25.28b
MiniMaxAI/MiniMax-M2.5, H200 SXM, vllm, fp8, 4, 1, 1024, 1024 = 8:8.188 16:10.72 32:13.43 64:19.6
MiniMaxAI/MiniMax-M2.5, H200 SXM, vllm, fp8, 4, 1, 1024, 8192 = 4:6.555 8:8.27 32:14.01
MiniMaxAI/MiniMax-M2.5, H200 SXM, vllm, fp8, 4, 1, 8192, 1024 = 4:7.262 8:9.674 16:13.88 32:19.53 64:31.25
MiniMaxAI/MiniMax-M2.5, H200 SXM, vllm, fp8, 8, 1, 1024, 1024 = 4:5.743 8:6.838 16:8.526 64:15.02 128:17.32
MiniMaxAI/MiniMax-M2.5, H200 SXM, vllm, fp8, 8, 1, 1024, 8192 = 4:5.786 8:6.819 16:8.472 32:10.81 64:15.27 128:17.54
MiniMaxAI/MiniMax-M2.5, H200 SXM, vllm, fp8, 8, 1, 8192, 1024 = 4:6.313 8:7.847 16:10.51 64:23.15 128:33.37
Qwen/Qwen3-32B, H100 SXM, trtllm, fp8, 1, 1, 1024, 128 = 8:20.65/17.48 32:35.53/29.81 64:54.59/45.89 128:93.69/78.5
Qwen/Qwen3-32B, H100 SXM, trtllm, fp8, 1, 1, 1024, 256 = 8:19.5/16.41 16:23.79/19.63 128:62.95/50.6
Qwen/Qwen3-32B, H100 SXM, trtllm, fp8, 1, 1, 1024, 512 = 16:22.42/18.36 32:25.42/20.55 128:-/37.46
Qwen/Qwen3-32B, H100 SXM, trtllm, fp8, 1, 1, 2048, 128 = 8:23.96/19.79 16:34.15/28.46 32:51.46/42.82 64:88.64/73.33 128:-/135.3
Qwen/Qwen3-32B, H100 SXM, trtllm, fp8, 1, 1, 2048, 256 = 8:21.63/17.71 16:28.06/23.06 32:37.71/30.61 64:59.53/47.49 128:-/81.84
Qwen/Qwen3-32B, H100 SXM, trtllm, fp8, 1, 1, 2048, 512 = 8:20.56/16.74 32:31.21/24.75 64:45.76/35.05 128:-/55.86
Qwen/Qwen3-32B, H100 SXM, trtllm, fp8, 1, 1, 4000, 1000 = 32:37.57/27.91
Qwen/Qwen3-32B, H100 SXM, trtllm, fp8, 1, 1, 4096, 128 = 8:30.88/25.33 16:50.28/41.13 32:87.63/71.04 64:-/133.3
Qwen/Qwen3-32B, H100 SXM, trtllm, fp8, 1, 1, 4096, 256 = 8:25.87/21.04 16:37.25/29.97 64:-/79.88
Qwen/Qwen3-32B, H100 SXM, trtllm, fp8, 1, 1, 4096, 512 = 32:44.24/33.74 64:-/53.96
Qwen/Qwen3-32B, H100 SXM, trtllm, fp8, 2, 1, 1024, 128 = 8:13.49/10.75 16:16.88/13.65 32:23.69/19.35 64:36.19/30.55 128:61.68/53.07
Qwen/Qwen3-32B, H100 SXM, trtllm, fp8, 2, 1, 1024, 256 = 8:12.71/10 32:19.05/14.98 64:26.3/21.26 128:40.87/33.53
Qwen/Qwen3-32B, H100 SXM, trtllm, fp8, 2, 1, 1024, 512 = 8:12.36/9.648 32:16.88/12.9 64:21.67/16.83
Qwen/Qwen3-32B, H100 SXM, trtllm, fp8, 2, 1, 2048, 128 = 8:15.43/12.22 16:21.73/17.38 32:33.66/27.78 128:105.6/89.62
Qwen/Qwen3-32B, H100 SXM, trtllm, fp8, 2, 1, 2048, 256 = 8:13.9/10.81 16:17.71/13.71 32:24.61/19.53 64:37.86/30.59 128:65.37/52.98
Qwen/Qwen3-32B, H100 SXM, trtllm, fp8, 2, 1, 2048, 512 = 8:13.2/10.14 16:15.83/11.96 32:20.28/15.55
Qwen/Qwen3-32B, H100 SXM, trtllm, fp8, 2, 1, 4000, 1000 = 64:34.76/25.02
Qwen/Qwen3-32B, H100 SXM, trtllm, fp8, 2, 1, 4096, 128 = 16:31.88/25.71 32:54.82/45.19 64:101.9/84.74 128:-/165.2
Qwen/Qwen3-32B, H100 SXM, trtllm, fp8, 2, 1, 4096, 256 = 8:16.58/12.67 16:23.62/18.39 64:62.81/50.08 128:-/93.3
Qwen/Qwen3-32B, H100 SXM, trtllm, fp8, 2, 1, 4096, 512 = 8:15.06/11.31 16:19.62/14.84
Qwen/Qwen3-32B, H100 SXM, trtllm, fp8, 4, 1, 1024, 128 = 8:9.411/7.002 64:25.84/21.4 128:43.21/37.5
Qwen/Qwen3-32B, H100 SXM, trtllm, fp8, 4, 1, 1024, 256 = 8:8.841/6.45 16:10.37/7.59 64:18.78/14.64 128:28.77/23.68
Qwen/Qwen3-32B, H100 SXM, trtllm, fp8, 4, 1, 1024, 512 = 8:8.596/6.194 16:9.678/6.895 32:11.72/8.529 64:15.43/11.41 128:21.92/17.04
Qwen/Qwen3-32B, H100 SXM, trtllm, fp8, 4, 1, 2048, 128 = 8:10.66/7.984 16:14.73/11.4 32:22.96/18.51 128:69.93/60.8
Qwen/Qwen3-32B, H100 SXM, trtllm, fp8, 4, 1, 2048, 256 = 16:12.02/8.853 32:16.89/12.81
Qwen/Qwen3-32B, H100 SXM, trtllm, fp8, 4, 1, 2048, 512 = 8:9.122/6.527 32:13.99/10.07 64:19.52/14.81
Qwen/Qwen3-32B, H100 SXM, trtllm, fp8, 4, 1, 4000, 1000 = 128:36.44/26.3
Qwen/Qwen3-32B, H100 SXM, trtllm, fp8, 4, 1, 4096, 128 = 8:13.09/9.957 16:21.39/16.75 32:37.12/30.45 64:67.52/57.05
Qwen/Qwen3-32B, H100 SXM, trtllm, fp8, 4, 1, 4096, 256 = 8:10.97/8.038 16:15.86/11.76 32:24.72/19.29 64:41.24/33.36 128:76.06/62.32
Qwen/Qwen3-32B, H100 SXM, trtllm, fp8, 4, 1, 4096, 512 = 16:13.18/9.327 32:18.7/13.84 64:28.45/21.79 128:49.56/38.3
Qwen/Qwen3-32B, H100 SXM, trtllm, fp8, 8, 1, 1024, 128 = 8:7.773/5.388 16:9.703/7.254 32:13.9/10.98 64:21.53/18.02 128:35.86/31.01
Qwen/Qwen3-32B, H100 SXM, trtllm, fp8, 8, 1, 1024, 256 = 8:7.263/4.906 16:8.411/6.007 32:11.07/8.253
Qwen/Qwen3-32B, H100 SXM, trtllm, fp8, 8, 1, 1024, 512 = 8:7.022/4.677 16:7.815/5.409 32:9.719/6.929 64:12.99/9.713 128:18.6/14.42
Qwen/Qwen3-32B, H100 SXM, trtllm, fp8, 8, 1, 2048, 128 = 8:8.524/6.106 32:18.36/14.88 64:30.97/26.2 128:54.75/48.18
Qwen/Qwen3-32B, H100 SXM, trtllm, fp8, 8, 1, 2048, 256 = 8:7.671/5.299 16:9.637/6.957 64:20.89/16.65 128:34.17/28.72
Qwen/Qwen3-32B, H100 SXM, trtllm, fp8, 8, 1, 2048, 512 = 64:16.03/12.01 128:24.19/19.25
Qwen/Qwen3-32B, H100 SXM, trtllm, fp8, 8, 1, 4000, 1000 = 224:40.94/31.21
Qwen/Qwen3-32B, H100 SXM, trtllm, fp8, 8, 1, 4096, 128 = 8:10.06/7.466 16:15.9/12.48 32:27.9/22.77 128:94.02/81.63
Qwen/Qwen3-32B, H100 SXM, trtllm, fp8, 8, 1, 4096, 256 = 8:8.472/6.014 16:11.78/8.717 64:31.38/25.49 128:54.81/45.92
Qwen/Qwen3-32B, H100 SXM, trtllm, fp8, 8, 1, 4096, 512 = 8:7.703/5.306 64:22.05/16.96 128:35.71/28.47
Qwen/Qwen3-32B, H100 SXM, vllm, fp8, 2, 1, 4000, 1000 = 48:27.74/23.17
Qwen/Qwen3.5-397B-A17B, B200 SXM, sglang, bf16, 8, 1, 1024, 1024 = 4:5.32 8:6.898 16:8.507 32:10.89 64:15.95
Qwen/Qwen3.5-397B-A17B, B200 SXM, sglang, bf16, 8, 1, 1024, 8192 = 4:5.781 8:7.273 16:8.953 32:11.43 64:15.98
Qwen/Qwen3.5-397B-A17B, B200 SXM, sglang, bf16, 8, 1, 8192, 1024 = 4:6.413 8:8.564 16:11.72 32:15.68 64:23.77
Qwen/Qwen3.5-397B-A17B, B200 SXM, sglang, fp4, 4, 1, 1024, 1024 = 4:4.742/5.298 8:5.958/6.313 16:7.39/7.763 32:9.366/9.68 128:18.07/17.96
Qwen/Qwen3.5-397B-A17B, B200 SXM, sglang, fp4, 4, 1, 8192, 1024 = 4:5.854/6.076 16:10.68/9.878 32:14.2/14.09 128:33.74/34.94
Qwen/Qwen3.5-397B-A17B, B200 SXM, sglang, fp8, 4, 1, 1024, 1024 = 4:6.812 16:10.06 32:12.84 64:17.92 128:23.46 256:32.83
Qwen/Qwen3.5-397B-A17B, B200 SXM, sglang, fp8, 4, 1, 1024, 8192 = 8:8.681 16:10.47 32:13.23 64:17.56 128:22.83 256:32.01
Qwen/Qwen3.5-397B-A17B, B200 SXM, sglang, fp8, 4, 1, 8192, 1024 = 4:7.953 8:10.09 16:13.72 32:18.5 64:27.51 128:42.66
Qwen/Qwen3.5-397B-A17B, B200 SXM, sglang, fp8, 4, 4, 1024, 1024 = 4:6.792 8:8.422 16:10.18 32:12.85 64:17.77 128:22.58
Qwen/Qwen3.5-397B-A17B, B200 SXM, sglang, fp8, 4, 4, 1024, 8192 = 32:13.38 128:22.64
Qwen/Qwen3.5-397B-A17B, B200 SXM, sglang, fp8, 4, 4, 8192, 1024 = 16:14 32:18.88 64:28.16 128:43.5
Qwen/Qwen3.5-397B-A17B, B200 SXM, sglang, fp8, 8, 1, 1024, 1024 = 4:5.34 8:6.675 16:7.999
Qwen/Qwen3.5-397B-A17B, B200 SXM, sglang, fp8, 8, 1, 1024, 8192 = 4:5.801 8:7.051 16:8.443
Qwen/Qwen3.5-397B-A17B, B200 SXM, sglang, fp8, 8, 1, 8192, 1024 = 4:6.439 8:8.369 16:11.28
Qwen/Qwen3.5-397B-A17B, B300 SXM, sglang, bf16, 4, 1, 1024, 1024 = 4:6.861 8:9.079 16:12.25 32:16.21 64:24.59
Qwen/Qwen3.5-397B-A17B, B300 SXM, sglang, bf16, 4, 1, 8192, 1024 = 4:7.967 8:10.81
Qwen/Qwen3.5-397B-A17B, B300 SXM, sglang, bf16, 8, 1, 1024, 1024 = 16:8.543 32:10.89 64:15.87
Qwen/Qwen3.5-397B-A17B, B300 SXM, sglang, bf16, 8, 1, 8192, 1024 = 4:6.26 8:8.36 32:15.57 64:23.52
Qwen/Qwen3.5-397B-A17B, B300 SXM, sglang, fp4, 4, 1, 1024, 1024 = 4:4.57/5.016 16:7.28/7.569 64:13.05/13.28
Qwen/Qwen3.5-397B-A17B, B300 SXM, sglang, fp4, 4, 1, 8192, 1024 = 4:5.656/5.79 16:10.42/9.625 64:20.79/22.23 128:33.39/34.47
Qwen/Qwen3.5-397B-A17B, B300 SXM, sglang, fp4, 4, 2, 1024, 1024 = 4:4.433/4.879 8:5.706/5.999 32:8.772/8.966 64:12.07/12.31 128:16.4/16.24
Qwen/Qwen3.5-397B-A17B, B300 SXM, sglang, fp4, 4, 2, 8192, 1024 = 4:5.516/5.65 8:7.314/7.165 16:10.04/9.247 32:13.39/13.21 64:19.58/21.02 128:31.4/32.47
Qwen/Qwen3.5-397B-A17B, B300 SXM, sglang, fp8, 4, 1, 1024, 1024 = 4:6.801 8:8.122 16:10.14 32:12.93 64:18 128:23.7 256:32.46
Qwen/Qwen3.5-397B-A17B, B300 SXM, sglang, fp8, 4, 1, 8192, 1024 = 4:7.914 8:9.882 16:13.62 32:18.43 64:27.33 128:42.38
Qwen/Qwen3.5-397B-A17B, B300 SXM, sglang, fp8, 4, 4, 1024, 1024 = 16:10.42 32:12.78 64:17.87 128:22.39
Qwen/Qwen3.5-397B-A17B, B300 SXM, sglang, fp8, 4, 4, 8192, 1024 = 64:27.86
Qwen/Qwen3.5-397B-A17B, B300 SXM, sglang, fp8, 8, 1, 1024, 1024 = 4:5.209 16:7.875
Qwen/Qwen3.5-397B-A17B, B300 SXM, sglang, fp8, 8, 1, 8192, 1024 = 4:6.303 8:8.302 16:11.11
Qwen/Qwen3.5-397B-A17B, H200 SXM, sglang, fp8, 8, 8, 1024, 1024 = 4:6.514 8:7.544 16:10.7 32:13.29 64:18.56
Qwen/Qwen3.5-397B-A17B, H200 SXM, sglang, fp8, 8, 8, 1024, 8192 = 4:6.543 8:7.529 16:10.65 32:13.05 64:18.27
Qwen/Qwen3.5-397B-A17B, H200 SXM, sglang, fp8, 8, 8, 8192, 1024 = 4:6.79 8:8.524 16:12.99 32:18.09 64:28.85
deepseek-ai/DeepSeek-R1, B200 SXM, sglang, fp4, 4, 1, 1024, 1024 = 8:9.004 16:11.14 32:13.99 128:23.4
deepseek-ai/DeepSeek-R1, B200 SXM, sglang, fp4, 4, 1, 1024, 8192 = 4:8.345 16:11.22 32:14.44 64:19.59
deepseek-ai/DeepSeek-R1, B200 SXM, sglang, fp4, 4, 1, 8192, 1024 = 8:10.12 16:13.57 32:19.38
deepseek-ai/DeepSeek-R1, B200 SXM, sglang, fp4, 4, 4, 1024, 1024 = 128:24.73
deepseek-ai/DeepSeek-R1, B200 SXM, sglang, fp4, 4, 4, 1024, 8192 = 4:8.853 8:10.54 16:12.84 32:16.09
deepseek-ai/DeepSeek-R1, B200 SXM, sglang, fp4, 4, 4, 8192, 1024 = 4:9.117 32:21.3 64:31.46
deepseek-ai/DeepSeek-R1, B200 SXM, sglang, fp4, 8, 1, 1024, 1024 = 4:6.899 8:7.733 16:9.048 32:10.93 128:18.11
deepseek-ai/DeepSeek-R1, B200 SXM, sglang, fp4, 8, 1, 1024, 8192 = 4:6.913 8:7.781 16:8.999 32:10.94 64:14.97 128:18.8
deepseek-ai/DeepSeek-R1, B200 SXM, sglang, fp4, 8, 1, 8192, 1024 = 4:7.137 16:10.86 64:23 128:34.69
deepseek-ai/DeepSeek-R1, B200 SXM, sglang, fp4, 8, 8, 1024, 1024 = 16:9.412 32:11.68 64:14.93
deepseek-ai/DeepSeek-R1, B200 SXM, sglang, fp4, 8, 8, 1024, 8192 = 64:15.75 128:18.37
deepseek-ai/DeepSeek-R1, B200 SXM, sglang, fp4, 8, 8, 8192, 1024 = 16:11.33
deepseek-ai/DeepSeek-R1, B200 SXM, sglang, fp8, 4, 1, 8192, 1024 = 4:10.65 8:14.09 16:- 32:-
deepseek-ai/DeepSeek-R1, B200 SXM, sglang, fp8, 8, 1, 1024, 1024 = 16:12.05 32:14.58 128:23.9 256:32.53 512:47.25
deepseek-ai/DeepSeek-R1, B200 SXM, sglang, fp8, 8, 1, 1024, 8192 = 128:23.59 256:32.4
deepseek-ai/DeepSeek-R1, B200 SXM, sglang, fp8, 8, 1, 8192, 1024 = 16:14.35 32:19.96 128:45.26 256:74.37
deepseek-ai/DeepSeek-R1, B300 SXM, sglang, fp8, 4, 1, 8192, 1024 = 4:10.19 8:13 32:27.19
deepseek-ai/DeepSeek-R1, B300 SXM, sglang, fp8, 8, 1, 1024, 1024 = 4:7.876 8:9.505 64:19.15
deepseek-ai/DeepSeek-R1, H200 SXM, sglang, fp8, 8, 1, 1024, 1024 = 8:13.48 16:20.83 32:28.66
deepseek-ai/DeepSeek-R1, H200 SXM, sglang, fp8, 8, 1, 1024, 8192 = 16:27.45 32:41.49 64:65.8
deepseek-ai/DeepSeek-R1, H200 SXM, sglang, fp8, 8, 1, 8192, 1024 = 4:14.76 8:22.2 16:38.48 64:109.2
meta-llama/Llama-3.1-70B, B200 SXM, trtllm, fp4, 1, 1, 1024, 1024 = 4:16.34/16.2 8:16.69/16.68 16:17.76/17.04 64:23.29/21.09 128:30.79/26.54
meta-llama/Llama-3.1-70B, B200 SXM, trtllm, fp4, 1, 1, 1024, 8192 = 4:16.74/16.46 16:20.2/18.44 64:-/24.5
meta-llama/Llama-3.1-70B, B200 SXM, trtllm, fp4, 1, 1, 8192, 1024 = 4:18.19/17.04 8:21.42/19.95 16:27.56/24.35 32:39.86/33.43 64:-/52.2
meta-llama/Llama-3.1-70B, B200 SXM, trtllm, fp4, 2, 1, 1024, 1024 = 4:11.65/11.49 8:11.87/11.82 16:12.17/12.17 64:15.93/14.59
meta-llama/Llama-3.1-70B, B200 SXM, trtllm, fp4, 2, 1, 1024, 8192 = 8:12.23/11.88 16:13.72/12.4 32:15.55/13.83 64:19.57/15.98
meta-llama/Llama-3.1-70B, B200 SXM, trtllm, fp4, 2, 1, 8192, 1024 = 4:12.28/12.04 8:14.57/13.34 16:18.25/16.64 64:40.41/33.46
meta-llama/Llama-3.1-70B, B200 SXM, trtllm, fp4, 4, 1, 1024, 1024 = 4:8.686/8.665 8:8.867/8.844 16:9.209/9.177 32:9.924/9.835 64:11.88/11.18 128:15.87/14.5
meta-llama/Llama-3.1-70B, B200 SXM, trtllm, fp4, 4, 1, 1024, 8192 = 4:8.759/8.748 8:8.971/8.912 16:9.471/9.059 128:18.34/14.77
meta-llama/Llama-3.1-70B, B200 SXM, trtllm, fp4, 4, 1, 8192, 1024 = 4:9.076/9.043 8:10.04/9.802 16:12.74/11.51 64:26.56/23.21 128:45.13/38.5
meta-llama/Llama-3.1-70B, B200 SXM, trtllm, fp4, 8, 1, 1024, 1024 = 8:8.108/8.039 16:8.544/8.49 32:9.467/9.377 64:11.32/11.23 128:15.5/14.74
meta-llama/Llama-3.1-70B, B200 SXM, trtllm, fp4, 8, 1, 1024, 8192 = 4:7.958/7.924 32:9.43/9.068 128:16.26/14.45
meta-llama/Llama-3.1-70B, B200 SXM, trtllm, fp4, 8, 1, 8192, 1024 = 4:8.182/8.078 8:8.859/8.827 64:21.13/19.64 128:34.73/31.51
meta-llama/Llama-3.1-70B, B200 SXM, trtllm, fp8, 1, 1, 1024, 1024 = 16:20.39/16.49 32:23.74/18.88 64:28.48/22.21 128:38.33/29.61
meta-llama/Llama-3.1-70B, B200 SXM, trtllm, fp8, 1, 1, 1024, 8192 = 4:19.02/15.75 16:22.62/17.72
meta-llama/Llama-3.1-70B, B200 SXM, trtllm, fp8, 1, 1, 8192, 1024 = 4:20.6/16.41 16:31.62/24.82 32:47.01/36.19
meta-llama/Llama-3.1-70B, B200 SXM, trtllm, fp8, 2, 1, 1024, 1024 = 4:13.5/10.34 8:13.87/10.74 32:15.97/11.85 64:19.17/14.13 128:25.3/19.12
meta-llama/Llama-3.1-70B, B200 SXM, trtllm, fp8, 2, 1, 1024, 8192 = 4:13.66/10.62 8:14.19/10.77 16:15.65/11.19 32:17.87/12.82 64:22.34/15.15 128:-/20.67
meta-llama/Llama-3.1-70B, B200 SXM, trtllm, fp8, 2, 1, 8192, 1024 = 8:16.87/12.47 16:21.05/16.03 128:-/62.46
meta-llama/Llama-3.1-70B, B200 SXM, trtllm, fp8, 4, 1, 1024, 1024 = 4:10.38/7.375 8:10.57/7.493 16:11.2/7.946 32:12.13/8.838 64:14.22/9.846
meta-llama/Llama-3.1-70B, B200 SXM, trtllm, fp8, 4, 1, 1024, 8192 = 4:10.45/7.455 8:10.65/7.544 16:11.4/7.784 32:13.24/8.789 128:21.02/13.73
meta-llama/Llama-3.1-70B, B200 SXM, trtllm, fp8, 4, 1, 8192, 1024 = 4:10.8/7.769 8:11.89/8.527 16:15.09/10.47 64:30.6/22.82 128:51.86/39.8
meta-llama/Llama-3.1-70B, B200 SXM, trtllm, fp8, 8, 1, 1024, 1024 = 4:8.885/5.881 8:9.048/5.994 32:10.78/7.424 64:12.88/9.201 128:17.54/13.15
meta-llama/Llama-3.1-70B, B200 SXM, trtllm, fp8, 8, 1, 1024, 8192 = 8:8.985/6.002 16:9.653/6.518 32:10.67/7.069 64:13.44/8.664
meta-llama/Llama-3.1-70B, B200 SXM, trtllm, fp8, 8, 1, 8192, 1024 = 4:9.181/6.099 8:9.94/6.88 16:11.98/8.537 32:16.39/11.66 64:24.42/18.79 128:40.3/32.35
meta-llama/Llama-3.1-70B, B200 SXM, vllm, fp4, 1, 1, 1024, 1024 = 4:11.52/11.43 8:11.91/11.9 16:12.41/11.8 32:14.86/13.63
meta-llama/Llama-3.1-70B, B200 SXM, vllm, fp4, 1, 1, 1024, 8192 = 4:11.9/11.51 32:18.93/15.4 64:-/19.76
meta-llama/Llama-3.1-70B, B200 SXM, vllm, fp4, 1, 1, 8192, 1024 = 4:14.3/13.09 8:17.51/16.02 16:22.81/19.75 32:35.31/28.98 64:-/47.34
meta-llama/Llama-3.1-70B, B200 SXM, vllm, fp4, 2, 1, 1024, 1024 = 8:9.057/8.982 16:9.292/9.142 32:10.81/10.22 64:13.85/12.6
meta-llama/Llama-3.1-70B, B200 SXM, vllm, fp4, 2, 1, 1024, 8192 = 4:8.884/8.856 8:9.392/8.969 16:10.5/9.29 32:12.85/11.16 64:17.33/13.84
meta-llama/Llama-3.1-70B, B200 SXM, vllm, fp4, 2, 1, 8192, 1024 = 4:10.04/9.916 8:12.18/11.04 16:15.44/13.99 64:37.32/31.12
meta-llama/Llama-3.1-70B, B200 SXM, vllm, fp4, 4, 1, 1024, 1024 = 4:6.824/6.835 8:7.245/7.264 16:7.675/7.595 32:9.399/9.297 64:10.88/10.31
meta-llama/Llama-3.1-70B, B200 SXM, vllm, fp4, 4, 1, 1024, 8192 = 8:7.33/7.293 16:7.884/7.477 32:10.53/9.285 64:12.55/10.84
meta-llama/Llama-3.1-70B, B200 SXM, vllm, fp4, 4, 1, 8192, 1024 = 4:7.718/7.587 8:8.854/8.705 16:11.45/10.26 64:25.39/22.32
meta-llama/Llama-3.1-70B, B200 SXM, vllm, fp4, 8, 1, 1024, 1024 = 4:6.503/6.466 8:6.537/6.538 16:9.431/9.435 32:9.716/9.638 64:9.03/8.983
meta-llama/Llama-3.1-70B, B200 SXM, vllm, fp4, 8, 1, 1024, 8192 = 4:6.495/6.447 8:6.502/6.457 16:9.467/9.43
meta-llama/Llama-3.1-70B, B200 SXM, vllm, fp4, 8, 1, 8192, 1024 = 8:7.8/7.656 16:11.85/11.63 32:15.05/13.8 64:19.71/18.09
meta-llama/Llama-3.1-70B, B200 SXM, vllm, fp8, 1, 1, 1024, 1024 = 8:16.26/15.15 16:18.81/17.13 32:20.18/17.76 64:27.64/24.24
meta-llama/Llama-3.1-70B, B200 SXM, vllm, fp8, 1, 1, 1024, 8192 = 4:16.56/15.07 8:17.65/15.34 16:21.26/18.14 32:23.71/19.07 64:-/26.71
meta-llama/Llama-3.1-70B, B200 SXM, vllm, fp8, 1, 1, 8192, 1024 = 8:23.25/20.51 16:31.99/27.57 32:46.19/38.1 64:-/65.06
meta-llama/Llama-3.1-70B, B200 SXM, vllm, fp8, 2, 1, 1024, 1024 = 32:13.66/12.2
meta-llama/Llama-3.1-70B, B200 SXM, vllm, fp8, 2, 1, 1024, 8192 = 8:12.25/11.03 16:14.18/12.19 64:22/17.69
meta-llama/Llama-3.1-70B, B200 SXM, vllm, fp8, 2, 1, 8192, 1024 = 4:13.67/12.67 16:20.77/18.34 32:28.6/24.37 64:48.57/40.75
meta-llama/Llama-3.1-70B, B200 SXM, vllm, fp8, 4, 1, 1024, 1024 = 4:11.76/11.05 8:8.748/8.029 16:9.473/8.686
meta-llama/Llama-3.1-70B, B200 SXM, vllm, fp8, 4, 1, 1024, 8192 = 4:11.76/11.01 8:8.78/8.011 64:14.01/11.56
meta-llama/Llama-3.1-70B, B200 SXM, vllm, fp8, 4, 1, 8192, 1024 = 4:12.85/11.97 16:14.06/12.02 32:20.15/17.67 64:30.51/26.11
meta-llama/Llama-3.1-70B, B200 SXM, vllm, fp8, 8, 1, 1024, 1024 = 4:7.043/6.354 16:9.883/9.248 32:10.42/9.661
meta-llama/Llama-3.1-70B, B200 SXM, vllm, fp8, 8, 1, 1024, 8192 = 8:6.929/6.242 16:9.839/9.174 32:10.4/9.311 64:10.54/8.523
meta-llama/Llama-3.1-70B, B200 SXM, vllm, fp8, 8, 1, 8192, 1024 = 4:7.837/7.023 8:8.566/7.726 16:12.9/11.94 32:16.95/14.82 64:23.02/20.28
meta-llama/Llama-3.1-70B, H100 SXM, vllm, fp8, 2, 1, 1024, 1024 = 4:18.37/17.67 8:18.35/17.66 32:23.48/21.6
meta-llama/Llama-3.1-70B, H100 SXM, vllm, fp8, 2, 1, 1024, 8192 = 4:18.64/17.7 8:19.7/17.99 16:21.84/19.41 32:-/22.47
meta-llama/Llama-3.1-70B, H100 SXM, vllm, fp8, 2, 1, 8192, 1024 = 4:22.14/20.39 8:25.82/23.63 16:34/30.05 32:-/43.83
meta-llama/Llama-3.1-70B, H100 SXM, vllm, fp8, 4, 1, 1024, 1024 = 4:11.33/10.72 8:11.55/10.95 32:15.52/14.43 64:19.34/17.54
meta-llama/Llama-3.1-70B, H100 SXM, vllm, fp8, 4, 1, 1024, 8192 = 4:11.29/10.73 8:11.72/10.88 16:13.6/11.93 32:17.24/14.9 64:21.85/17.72
meta-llama/Llama-3.1-70B, H100 SXM, vllm, fp8, 4, 1, 8192, 1024 = 8:15.92/14.24 32:32.07/28.35 64:51.62/44.58
meta-llama/Llama-3.1-70B, H100 SXM, vllm, fp8, 8, 1, 1024, 1024 = 16:9.885/9.398 32:10.91/10.39 64:13.8/12.8
meta-llama/Llama-3.1-70B, H100 SXM, vllm, fp8, 8, 1, 1024, 8192 = 4:8.334/7.864 32:11.74/10.16 64:14.72/12.55
meta-llama/Llama-3.1-70B, H100 SXM, vllm, fp8, 8, 1, 8192, 1024 = 4:9.463/8.998 16:15.19/13.72 32:21.53/19.6 64:34.31/30.73
meta-llama/Llama-3.1-70B, H200 SXM, trtllm, fp8, 1, 1, 1024, 1024 = 8:26.22/22.16 16:29.04/23.98 32:32.86/26.97 64:41.23/33.24 128:-/45.69
meta-llama/Llama-3.1-70B, H200 SXM, trtllm, fp8, 1, 1, 1024, 8192 = 8:28.83/23.35 16:31.54/25.09 32:-/28.54
meta-llama/Llama-3.1-70B, H200 SXM, trtllm, fp8, 1, 1, 8192, 1024 = 4:28.61/23.62 8:35.54/28.91 16:48.67/38.89
meta-llama/Llama-3.1-70B, H200 SXM, trtllm, fp8, 2, 1, 1024, 1024 = 4:15.64/12.56 8:16.61/13.06 16:18.33/14.28 64:26.39/20.42 128:36.12/28.18
meta-llama/Llama-3.1-70B, H200 SXM, trtllm, fp8, 2, 1, 1024, 8192 = 8:18.23/13.71 16:20.63/15.19 32:23.55/17.08 64:30.48/21.16 128:-/29.49
meta-llama/Llama-3.1-70B, H200 SXM, trtllm, fp8, 2, 1, 8192, 1024 = 4:17.96/13.72 8:22.36/17.1 32:44.93/34.67 64:75.49/58.27 128:-/105.9
meta-llama/Llama-3.1-70B, H200 SXM, trtllm, fp8, 4, 1, 1024, 1024 = 8:11.55/8.53 16:12.77/9.302 32:15.08/11 128:26.28/20.14
meta-llama/Llama-3.1-70B, H200 SXM, trtllm, fp8, 4, 1, 1024, 8192 = 4:11.32/8.338 8:12.13/8.672 16:14.12/9.729 32:16.93/11.55
meta-llama/Llama-3.1-70B, H200 SXM, trtllm, fp8, 4, 1, 8192, 1024 = 4:12.27/8.913 8:15.02/10.72 32:29.59/22.45 64:47.86/37.11 128:85/66.53
meta-llama/Llama-3.1-70B, H200 SXM, trtllm, fp8, 8, 1, 1024, 1024 = 4:9.138/6.098 16:10.76/7.747 32:13.02/9.541 64:16.77/12.65 128:22.24/16.93
meta-llama/Llama-3.1-70B, H200 SXM, trtllm, fp8, 8, 1, 1024, 8192 = 4:9.107/6.251 8:9.686/6.733 16:11.14/7.649 32:14.07/9.568 64:17.9/12.46 128:21.98/15.31
meta-llama/Llama-3.1-70B, H200 SXM, trtllm, fp8, 8, 1, 8192, 1024 = 4:9.58/6.617 8:11.55/8.105 64:35.02/27.22 128:57.6/45.65
meta-llama/Llama-3.1-70B, H200 SXM, vllm, fp8, 1, 1, 1024, 1024 = 4:23.01/22.01 16:26.4/24.61 32:35.02/32.95
meta-llama/Llama-3.1-70B, H200 SXM, vllm, fp8, 1, 1, 1024, 8192 = 4:24.06/22.31 8:26.01/24.12 16:29.09/25.55
meta-llama/Llama-3.1-70B, H200 SXM, vllm, fp8, 1, 1, 8192, 1024 = 4:28.99/26.99 8:35.89/32.83 32:-/69.68
meta-llama/Llama-3.1-70B, H200 SXM, vllm, fp8, 2, 1, 1024, 1024 = 4:14.67/13.95 8:15.01/14.29 64:24.93/23.25
meta-llama/Llama-3.1-70B, H200 SXM, vllm, fp8, 2, 1, 1024, 8192 = 8:15.76/14.53 16:17.28/15.77 32:22.93/20.46 64:28.22/24.12
meta-llama/Llama-3.1-70B, H200 SXM, vllm, fp8, 2, 1, 8192, 1024 = 4:17.84/16.53 8:21.28/19.87 16:28.24/26.01 64:72.32/65.21
meta-llama/Llama-3.1-70B, H200 SXM, vllm, fp8, 4, 1, 1024, 1024 = 4:9.694/9.101 8:10.18/9.603 16:10.83/10.26 32:14.3/13.42 64:16.85/15.62
meta-llama/Llama-3.1-70B, H200 SXM, vllm, fp8, 4, 1, 1024, 8192 = 8:10.25/9.532 16:11.43/10.28 32:15.01/13.64 64:17.87/15.47
meta-llama/Llama-3.1-70B, H200 SXM, vllm, fp8, 4, 1, 8192, 1024 = 4:11.33/10.75 8:13.9/12.75 32:28.56/26.43 64:45.07/41.24
meta-llama/Llama-3.1-70B, H200 SXM, vllm, fp8, 8, 1, 1024, 1024 = 8:8.034/7.549 16:8.756/8.248 32:10.25/9.754 64:12.39/11.61
meta-llama/Llama-3.1-70B, H200 SXM, vllm, fp8, 8, 1, 1024, 8192 = 4:7.47/7.03 8:7.956/7.49 64:12.58/11.14
meta-llama/Llama-3.1-70B, H200 SXM, vllm, fp8, 8, 1, 8192, 1024 = 8:10.16/9.65 16:13.41/12.35 32:19.6/18.32 64:30.61/28.34
"""  # noqa: E501
