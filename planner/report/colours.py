"""Colours of the ledger's lines, alike on the screen and in reports. Told apart without colour too: order, labels and hover."""

from __future__ import annotations

LEDGER: dict[str, str] = {
    "weights": "#47618c",
    "weights_given": "#47618c",
    "activation": "#7f9ac4",
    "cuda_graphs": "#a9bedb",
    "non_torch": "#8b95a5",
    "kv_rows": "#0f8a7a",
    "kv_rows_once": "#0f8a7a",
    "kv_scales": "#5cb8a8",
    "kv_blocks": "#e09f2d",
    "kv_free": "#a8d8cf",
    "kv_remainder": "#c7ced6",
    "outside_budget": "#b5bac2",
    "driver_gap": "#d3d7dc",
}
OTHER = "#c7ced6"
# Bar order: what is used before the pool, the pool, what lies outside.
ORDER = tuple(LEDGER)
# Heat map, low to high; cells that do not fit are grey.
HEAT = ("#e3f3f0", "#b5ddd5", "#7fc2b7", "#45a396", "#0f8a7a", "#0a6358")
NO_FIT = "#d9dce1"


def of(code: str) -> str:
    return LEDGER.get(code, OTHER)


# Cache kinds, alike in every chart; told apart by label and hover too.
KINDS: dict[str, str] = {
    "full": "#0f8a7a", "window": "#7fc2b7", "chunk": "#a8d8cf", "latent": "#47618c", "index": "#a9bedb", "state": "#e09f2d", "cross": "#b07aa1",
    "shared": "#c7ced6", "none": "#eceef1",
}  # fmt: skip
