"""Items on time: with against without a cache, doubling the prompt, and what one step's time is spent on."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpu_probe.claims import HOLDS, NOT, UNDECIDED, Item, Spread, both, item
from gpu_probe.claims.runs import BLOCK_SIZE, Clocked, Lean, Recompute, decoder_of, heads
from gpu_probe.figures.ceilings import Host, interleaved, product, reading
from gpu_probe.proof import relative_error
from gpu_probe.session import generate

CACHED = decoder_of(heads(8, 8, 32), layers=4, hidden=256, mlp=704)
AGREEING = decoder_of(heads(8, 2, 32), layers=2, hidden=256, mlp=704)
PROMPTED = decoder_of(heads(8, 8, 64), layers=2, hidden=512, mlp=1408)
STEPPED = decoder_of(heads(16, 8, 64), layers=4, hidden=1024, mlp=2816)
CONTEXTS = (128, 256, 512, 1024)
PROMPTS = (256, 512, 1024)
FLAT, GROWN = 1.5, 2.0
"""Over eight times the context, a step with a cache may grow by the first and counts as roughly constant; one without must grow by the
second."""
TOLERANCE = 1e-4


def blocks_of(tokens: int) -> int:
    return -(-tokens // BLOCK_SIZE)


def ms(seconds: float) -> str:
    return f"{1000 * seconds:.3g}"


def with_and_without_cache(host: Host, ceilings: Mapping[str, float]) -> Item:
    """Milliseconds a token over the context, both ways, and that both say the same."""
    paged = {n: Lean(CACHED, host, context=n) for n in CONTEXTS}
    decoder = paged[CONTEXTS[-1]].decoder
    times = interleaved(
        {f"with {n}": paged[n].step for n in CONTEXTS} | {f"without {n}": lambda n=n: whole(decoder, n) for n in CONTEXTS}, host, min(host.rounds, 5)
    )
    slopes = {way: float(np.polyfit(CONTEXTS, [median(times[f"{way} {n}"]) for n in CONTEXTS], 1)[0]) for way in ("with", "without")}
    growth = {way: Spread.ratio(times[f"{way} {CONTEXTS[-1]}"], times[f"{way} {CONTEXTS[0]}"]) for way in ("with", "without")}
    error = agreement(host)
    sizes = [lean.kv_bytes() for lean in paged.values()]
    expected = [blocks_of(n + 1) * BLOCK_SIZE * 2 * 4 * 8 * 32 * 4 for n in CONTEXTS]  # K and V, 4 layers, 8 heads of 32, fp32
    numbers: dict[str, Any] = {
        "contexts": list(CONTEXTS), "with_s": [median(times[f"with {n}"]) for n in CONTEXTS], "without_s": [median(times[f"without {n}"]) for n in CONTEXTS],
        "slope_with_s_per_token": slopes["with"], "slope_without_s_per_token": slopes["without"], "growth_with": growth["with"].median,
        "growth_without": growth["without"].median, "max_rel_error": error, "kv_bytes": sizes, "expected_bytes": expected,
    }  # fmt: skip
    verdict = both(growth["with"].below(FLAT), growth["without"].at_least(GROWN), HOLDS if error <= TOLERANCE else NOT)
    return item(
        "cache", "C4 C5 C19", verdict, numbers, bytes_right=sizes == expected,
        first=CONTEXTS[0], last=CONTEXTS[-1], with_slope=f"{1e6 * slopes['with']:.3g}", without_slope=f"{1e6 * slopes['without']:.3g}",
        with_growth=growth["with"], without_growth=growth["without"], error=f"{error:.0e}",
    )  # fmt: skip


@torch.no_grad()
def whole(decoder: Any, tokens: int, ids: Tensor | None = None, *, last_only: bool = True) -> Tensor:
    """One token without a cache: the whole text through every layer."""
    if ids is None:
        ids = torch.arange(tokens, device=decoder.device).remainder(decoder.shape.vocab)[None]
    return decoder.forward(ids, torch.arange(tokens, device=decoder.device).expand(len(ids), -1), Recompute(), last_only=last_only)


def agreement(host: Host) -> float:
    """Logits of 16 steps over the cache against those of the whole text without one, relative to the largest."""
    lean = Lean(AGREEING, host, sequences=2, room=80)
    generator = torch.Generator().manual_seed(host.seed + 1)
    prompt = torch.randint(0, 512, (2, 50), generator=generator).to(host.device)
    trace = generate(lean.decoder, lean.attention, prompt, 16, keep_logits=True)
    expected = whole(lean.decoder, trace.tokens.shape[1], trace.tokens, last_only=False)
    return relative_error(torch.stack(trace.logits, 1), expected[:, -len(trace.logits) :])


def doubling_the_prompt(host: Host, ceilings: Mapping[str, float]) -> Item:
    """Score work (counted), the attention and the whole prefill (timed), each time the prompt doubles."""
    lean = Lean(PROMPTED, host, room=PROMPTS[-1])
    inner: dict[int, list[float]] = {n: [] for n in PROMPTS}

    def prefill(n: int) -> None:
        clock = Clocked(lean.attention, host.device)
        lean.prefill(n, clock)
        inner[n].append(clock.seconds)

    found = interleaved({str(n): lambda n=n: prefill(n) for n in PROMPTS}, host, min(host.rounds, 3))
    times = {n: found[str(n)] for n in PROMPTS}
    attention = {n: s[1:] for n, s in inner.items()}  # the first round does not count
    pairs = [(n, 2 * n) for n in PROMPTS[:-1]]
    grown = [Spread.ratio(times[b], times[a]) for a, b in pairs]
    inside = [Spread.ratio(attention[b], attention[a]) for a, b in pairs]
    numbers = {
        "prompts": list(PROMPTS), "score_products": [n * n * 8 * 64 * 2 for n in PROMPTS], "causal_score_pairs": [n * (n + 1) // 2 for n in PROMPTS],
        "prefill_s": [median(times[n]) for n in PROMPTS], "attention_s": [median(attention[n]) for n in PROMPTS],
        "score_work_ratio": 4.0, "causal_ratio": [b * (b + 1) / (a * (a + 1)) for a, b in pairs],
        "prefill_ratio": [g.median for g in grown], "attention_ratio": [g.median for g in inside],
    }  # fmt: skip
    return item(
        "prompt", "C1 C2", grown[-1].below(4.0), numbers, last=PROMPTS[-1], before=PROMPTS[-2],
        prefill=grown[-1], attention=inside[-1], share=f"{100 * median(attention[PROMPTS[-1]]) / median(times[PROMPTS[-1]]):.0f}",
    )  # fmt: skip


BATCHES, LENGTHS, PROMPT = (1, 4), (256, 1024, 4096), 128


def step_time(host: Host, ceilings: Mapping[str, float]) -> list[Item]:
    """ITL over batch and context, and its parts by least squares: fixed (the weights are read in it), a sequence, a cached token.
    Then one prefill beside it: which ceiling each of the two phases is near. The ceilings take turns with the steps."""
    points = [(b, n) for b in BATCHES for n in LENGTHS]
    cold = Lean(STEPPED, host, room=PROMPT)
    leans = {p: Lean(STEPPED, host, sequences=p[0], context=p[1], weights=cold.decoder.weights) for p in points}
    read, multiply = reading(host), product(host)
    calls = {f"{b} {n}": leans[b, n].step for b, n in points}
    times = interleaved({**calls, "prefill": lambda: cold.prefill(PROMPT), "read": read.call, "product": multiply.call}, host, min(host.rounds, 5))
    steps = {p: times[f"{p[0]} {p[1]}"] for p in points}
    itl = {p: median(s) for p, s in steps.items()}
    table = np.array([[1.0, b, b * n] for b, n in points])
    fixed, sequence, token = (float(x) for x in np.linalg.lstsq(table, np.array([itl[p] for p in points]), rcond=None)[0])
    left = float(np.abs(table @ np.array([fixed, sequence, token]) / np.array([itl[p] for p in points]) - 1).max())
    token_bytes, weights = 2 * 4 * 8 * 64 * 4, cold.weight_bytes()
    kv = {p: lean.kv_bytes() for p, lean in leans.items()}
    predicted = {(b, n): b * blocks_of(n + 1) * BLOCK_SIZE * token_bytes for b, n in points}
    one, many, short, long = BATCHES[0], BATCHES[-1], LENGTHS[0], LENGTHS[-1]
    longer, longer_all = Spread.ratio(steps[one, long], steps[one, short]), Spread.ratio(steps[many, long], steps[many, short])
    wider = Spread.ratio(steps[many, long], steps[one, long])

    def share(work: float, ceiling: str, most: float, spent: list[float]) -> Spread:
        """Of a ceiling whose `most` bytes or products took the times of `ceiling`, round by round."""
        return Spread.of([work / t / (most / c) for t, c in zip(spent, times[ceiling], strict=True)])

    of_read = {p: share(weights + kv[p], "read", read.work, steps[p]) for p in points}
    numbers: dict[str, Any] = {
        "points": [{"batch": b, "context": n, "itl_s": itl[b, n], "kv_bytes": kv[b, n], "share_of_read_ceiling": of_read[b, n].median} for b, n in points],
        "weight_bytes": weights, "kv_bytes_per_token": token_bytes, "fixed_s": fixed, "per_sequence_s": sequence, "per_token_s": token, "worst_fit": left,
        "grown_by_context": [longer.median, longer_all.median], "grown_by_batch": wider.median, "layers": 4,
        "backend": leans[points[0]].attention.backend,
    }  # fmt: skip
    more = item(
        "itl", "C5 C14", both(longer.at_least(1.0), wider.at_least(1.0)), numbers, bytes_right=kv == predicted,
        fixed=ms(fixed), sequence=ms(sequence), token=f"{1e6 * token:.3g}", worst=f"{100 * left:.0f}",
        context=longer, batch=wider, last=long, first=short, most=many,
    )  # fmt: skip
    flop, first = 2 * sum(layer.elements() for layer in cold.plan.shape.layers), points[0]
    shares = {
        "prefill_of_matmul": share(flop * PROMPT, "product", multiply.work, times["prefill"]),
        "prefill_of_read": share(weights, "read", read.work, times["prefill"]),
        "decode_of_matmul": share(flop, "product", multiply.work, steps[first]),
        "decode_of_read": of_read[first],
        "largest_of_read": of_read[points[-1]],
    }
    apart = shares["decode_of_read"].low > shares["prefill_of_read"].high and shares["prefill_of_matmul"].low > shares["decode_of_matmul"].high
    near = shares["decode_of_read"]
    bound = HOLDS if near.low >= 0.5 else NOT if near.high < 0.25 else UNDECIDED
    ttft = median(times["prefill"])
    phases = item(
        "phases", "C1 C3", both(HOLDS if apart else NOT, bound),
        {**{k: v.median for k, v in shares.items()}, "ttft_s": ttft, "prompt": PROMPT, "itl_s": itl[first]},
        ttft=ms(ttft), prompt=PROMPT, itl=ms(itl[first]), **{k: f"{100 * v.median:.0f}" for k, v in shares.items()},
    )  # fmt: skip
    return [phases, more]
