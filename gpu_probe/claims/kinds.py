"""Items on the kinds of attention: MHA, GQA, MQA and MLA side by side, and absorbed against expanded MLA."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

import torch
import torch.nn.functional as nn

from gpu_probe.cache import gather
from gpu_probe.claims import HOLDS, NOT, UNDECIDED, Item, Spread, both, item
from gpu_probe.claims.runs import BLOCK_SIZE, Lean, decoder_of, heads, latent
from gpu_probe.claims.speed import TOLERANCE, ms
from gpu_probe.figures.ceilings import Host, interleaved
from gpu_probe.proof import relative_error
from planner.model import Attention, ModelSpec

Q_HEADS, DIM, LAYERS, HIDDEN, TOKENS, BATCH = 16, 64, 2, 1024, 2047, 4
RANK, ROPE = 128, 32
KINDS: dict[str, tuple[Attention, int]] = {
    "MHA": (heads(Q_HEADS, Q_HEADS, DIM), 2 * Q_HEADS * DIM),
    "GQA": (heads(Q_HEADS, 4, DIM), 2 * 4 * DIM),
    "MQA": (heads(Q_HEADS, 1, DIM), 2 * DIM),
    "MLA": (latent(Q_HEADS, DIM, RANK, ROPE), RANK + ROPE),
}
"""The attention, and the numbers that one token keeps in one layer by the articles' own formulas."""


ROOM = {"MHA": 1, "MQA": Q_HEADS}
"""As many sequences as the same bytes hold."""
LATENT = latent(16, 128, 512, 64)
LATENT_TOKENS = 2047


def decoder(kind: str) -> ModelSpec:
    return decoder_of(KINDS[kind][0], layers=LAYERS, hidden=HIDDEN, mlp=HIDDEN)


def latent_decoder() -> ModelSpec:
    return decoder_of(LATENT, layers=1, hidden=512, mlp=64)


def built(kind: str, host: Host, sequences: int) -> Lean:
    return Lean(decoder(kind), host, sequences=sequences, context=TOKENS)


def side_by_side(host: Host, ceilings: Mapping[str, float]) -> list[Item]:
    """Bytes and ITL at equal layers, query heads, head dim, dtype, tokens and batch; then tokens/s at equal bytes."""
    leans = {kind: built(kind, host, BATCH) for kind in KINDS}
    equal = {kind: built(kind, host, n) for kind, n in ROOM.items()}
    times = interleaved({kind: lean.step for kind, lean in leans.items()} | {f"equal {kind}": lean.step for kind, lean in equal.items()}, host)
    held = {kind: lean.kv_bytes() for kind, lean in leans.items()}
    expected = {kind: elements * LAYERS * BATCH * (TOKENS + 1) * 4 for kind, (_, elements) in KINDS.items()}
    faster = {kind: Spread.ratio(times["MHA"], times[kind]) for kind in KINDS}
    numbers: dict[str, Any] = {
        "layers": LAYERS, "q_heads": Q_HEADS, "head_dim": DIM, "tokens": TOKENS + 1, "batch": BATCH, "kv_dtype": "fp32", "rank": RANK, "rope": ROPE,
        "rows": [{"kind": kind, "bytes": held[kind], "expected_bytes": expected[kind], "of_mha": held[kind] / held["MHA"], "itl_s": median(times[kind]),
                  "mha_over_this": faster[kind].median, "backend": leans[kind].attention.backend} for kind in KINDS],
    }  # fmt: skip
    right = held == expected
    size = HOLDS if right else NOT
    smaller = {kind: f"{held['MHA'] / held[kind]:.3g}" for kind in KINDS}
    lower = Spread.ratio(times["MQA"], times["MHA"])
    gained = Spread.ratio([Q_HEADS * t for t in times["equal MHA"]], times["equal MQA"])
    same = equal["MHA"].kv_bytes() == equal["MQA"].kv_bytes()
    nearer = Spread.ratio([2 * t for t in times["GQA"]], [a + b for a, b in zip(times["MHA"], times["MQA"], strict=True)])
    between = both(faster["GQA"].at_least(1.0), Spread.ratio(times["GQA"], times["MQA"]).at_least(1.0), nearer.below(1.0))
    return [
        item("kinds_bytes", "C6 C8 C10 C21 C22", size, numbers, bytes_right=right, mha=held["MHA"], **{k.lower(): v for k, v in smaller.items() if k != "MHA"}),
        item("gqa_speed", "C8 C22", between, {"rows": numbers["rows"]},
             **{k.lower(): ms(median(times[k])) for k in KINDS}, gqa_faster=faster["GQA"], mqa_faster=faster["MQA"], mla_faster=faster["MLA"]),
        item("mqa_latency", "C21", lower.below(0.7), {"mqa_over_mha": lower.median, "claimed": 0.7}, reduction=f"{100 * (1 - lower.median):.0f}", ratio=lower),
        item("mqa_throughput", "C21", HOLDS if gained.low >= 11 else UNDECIDED,
             {"mha_tokens_per_s": 1 / median(times["equal MHA"]), "mqa_tokens_per_s": Q_HEADS / median(times["equal MQA"]), "ratio": gained.median,
              "claimed_up_to": 11, "mha_sequences": 1, "mqa_sequences": Q_HEADS}, bytes_right=same, gained=gained, sequences=Q_HEADS),
        item("quality", "C8 C21 C22", UNDECIDED, {}),
    ]  # fmt: skip


def absorbed(host: Host, ceilings: Mapping[str, float]) -> Item:
    """One MLA layer of DeepSeek-V2-Lite's attention: a decode step's reading half absorbed, and with K and V expanded for every head."""
    a = LATENT
    lean = Lean(latent_decoder(), host, context=LATENT_TOKENS)
    lean.step()
    (layer,), (w,) = lean.plan.shape.layers, lean.decoder.weights.layers
    assert a.kv_rank is not None
    group = lean.cache.group_of[0]
    pages: Any = group.layers[0]
    table = torch.tensor([group.pool.tables[0].blocks], device=host.device)
    generator = torch.Generator(device=host.device).manual_seed(host.seed)
    q = torch.empty(1, 1, a.q_heads, a.qk_dim, device=host.device).normal_(generator=generator)
    kv_b = w["kv_b"].view(a.q_heads, a.nope_dim + a.v_dim, a.kv_rank)
    rank, nope = a.kv_rank, a.nope_dim

    @torch.no_grad()
    def short() -> torch.Tensor:
        return lean.attention.read_latent(layer, q[..., :nope], q[..., nope:], kv_b)

    @torch.no_grad()
    def long() -> torch.Tensor:
        rows = gather(pages.keys, table, torch.float32)[0, :, 0]
        wide = (rows[:, :rank] @ w["kv_b"].T).view(len(rows), a.q_heads, -1)
        k = torch.cat([wide[..., :nope], rows[:, None, rank:].expand(-1, a.q_heads, -1)], -1)
        out = nn.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(0, 1)[None], wide[..., nope:].transpose(0, 1)[None])
        return out.transpose(1, 2)

    error = relative_error(short(), long())
    times = interleaved({"absorbed": short, "expanded": long}, host)
    ratio = Spread.ratio(times["expanded"], times["absorbed"])
    held, expected = lean.kv_bytes(), 2048 * (rank + a.rope_dim) * 4
    numbers = {
        "tokens": 2048, "heads": a.q_heads, "absorbed_s": median(times["absorbed"]), "expanded_s": median(times["expanded"]), "ratio": ratio.median,
        "max_rel_error": error, "kv_bytes": held, "expected_bytes": expected, "expanded_bytes": 2048 * a.q_heads * (a.qk_dim + a.v_dim) * 4,
        "block_size": BLOCK_SIZE, "backend": lean.attention.backend,
    }  # fmt: skip
    verdict = both(HOLDS if error <= TOLERANCE else NOT, ratio.at_least(1.0))
    return item("absorbed", "C9", verdict, numbers, bytes_right=held == expected, error=f"{error:.0e}", ratio=ratio,
                fast=ms(median(times["absorbed"])), slow=ms(median(times["expanded"])))  # fmt: skip
