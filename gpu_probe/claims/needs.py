"""How much memory each entry of the suite takes, known before it allocates: the sum of the decoders and caches that it makes, by the same
models and counts, and an estimate of its working memory on the safe side. Bytes."""

from __future__ import annotations

from collections.abc import Callable

from gpu_probe.claims import kinds, ranks, sizes, speed
from gpu_probe.claims.runs import lean_bytes, pass_bytes, pool_bytes
from gpu_probe.figures.ceilings import ceiling_bytes
from gpu_probe.fit import FIXED_BYTES
from planner.model import ModelSpec
from planner.units import MIB

RANK_BYTES = 256 * MIB
"""A process of ranks with its torch; 242 MiB were resident at most (4 ranks on CPUs, torch 2.13). An assumption, shared pages counted for each."""


def rows_bytes(model: ModelSpec, tokens: int) -> int:
    """Rows that are made in float32 and written in another format: twice, the second time as they are stored."""
    return 2 * pool_bytes(model, -(-tokens // sizes.BLOCK_SIZE))


def cache(device: str) -> int:
    held = sum(lean_bytes(speed.CACHED, context=n) for n in speed.CONTEXTS) + lean_bytes(speed.AGREEING, sequences=2, room=80)
    return held + pass_bytes(speed.CACHED, speed.CONTEXTS[-1])


def prompt(device: str) -> int:
    return lean_bytes(speed.PROMPTED, room=speed.PROMPTS[-1]) + pass_bytes(speed.PROMPTED, speed.PROMPTS[-1])


def itl(device: str) -> int:
    """The ceilings take turns with the steps."""
    held = sum(lean_bytes(speed.STEPPED, sequences=b, context=n, weights=False) for b in speed.BATCHES for n in speed.LENGTHS)
    return held + lean_bytes(speed.STEPPED, room=speed.PROMPT) + pass_bytes(speed.STEPPED, speed.PROMPT) + ceiling_bytes(device)


def side_by_side(device: str) -> int:
    counts = [(kind, kinds.BATCH) for kind in kinds.KINDS] + list(kinds.ROOM.items())
    held = sum(lean_bytes(kinds.decoder(kind), sequences=n, context=kinds.TOKENS) for kind, n in counts)
    return held + max(pass_bytes(kinds.decoder(kind), 1, n) for kind, n in counts)


def absorbed(device: str) -> int:
    """K and V of every head, and once more where they are put together."""
    a, model = kinds.LATENT, kinds.latent_decoder()
    expanded = (kinds.LATENT_TOKENS + 1) * a.q_heads * (a.qk_dim + a.v_dim) * 4
    return lean_bytes(model, context=kinds.LATENT_TOKENS) + pass_bytes(model, 1) + 2 * expanded


def unchanged(device: str) -> int:
    """The rows are copied before and after."""
    tokens, steps = sizes.UNCHANGED
    return 3 * lean_bytes(sizes.SMALL, context=tokens, room=tokens + steps + 1) + pass_bytes(sizes.SMALL, 1)


def paged(device: str) -> int:
    return pool_bytes(sizes.SMALL, sizes.PAGED_BLOCKS) + rows_bytes(sizes.SMALL, sizes.LONGEST)


def prefix(device: str) -> int:
    """The second cache is made while the first is still there."""
    return 2 * pool_bytes(sizes.SMALL, sizes.PREFIX_BLOCKS) + rows_bytes(sizes.SMALL, sizes.SHARING[1])


def kv_dtype(device: str) -> int:
    return sum(pool_bytes(sizes.SMALL, sizes.FORMAT_BLOCKS, name) for name in sizes.FORMATS) + rows_bytes(sizes.SMALL, sizes.TOKENS)


def llama(device: str) -> int:
    return pool_bytes(sizes.LLAMA_LAYER, sizes.LLAMA_BLOCKS, "fp16") + rows_bytes(sizes.LLAMA_LAYER, sizes.LLAMA_TOKENS)


def processes(device: str) -> int:
    """torchrun and its ranks, each with a torch of its own."""
    return (1 + max(ranks.COUNTS)) * RANK_BYTES


NEEDS: dict[str, Callable[[str], int]] = {
    "ceilings": ceiling_bytes, "cache": cache, "prompt": prompt, "itl": itl, "kinds": side_by_side, "absorbed": absorbed, "unchanged": unchanged,
    "paged": paged, "prefix": prefix, "kv_dtype": kv_dtype, "llama": llama, "ranks": processes,
}  # fmt: skip
"""By entry of `gpu_probe.suite.ITEMS`, and the ceilings before and after them."""


def needed(name: str, device: str) -> int:
    """What an entry takes on a device of this type (`cpu`, `cuda`), libraries' workspaces included."""
    return NEEDS[name](device) + FIXED_BYTES
