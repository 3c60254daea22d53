"""Colours of the ledger's lines, alike on the screen and in reports. Told apart without colour too: order, labels and hover."""

from __future__ import annotations

LEDGER: dict[str, str] = {
    "weights": "#47618c",
    "weights_given": "#47618c",
    "weights_bound": "#47618c",
    "weights_beside": "#566f99",
    "weights_vision": "#6580ab",
    "lora": "#7088b0",
    "activation": "#7f9ac4",
    "llamacpp_compute": "#7f9ac4",
    "sampler_state": "#94abcf",
    "cuda_graphs": "#a9bedb",
    "non_torch": "#8b95a5",
    "before_load": "#7a8391",
    "kv_rows": "#0f8a7a",
    "kv_rows_once": "#0f8a7a",
    "kv_scales": "#5cb8a8",
    "kv_blocks": "#e09f2d",
    "kv_free": "#a8d8cf",
    "kv_remainder": "#c7ced6",
    "cuda_graphs_after": "#b3c0d1",
    "image_reserve": "#b3c0d1",
    "used_memory": "#9c8f8f",
    "static_slack": "#b5bac2",
    "free_slack": "#b5bac2",
    "llamacpp_margin": "#b5bac2",
    "outside_budget": "#b5bac2",
    "driver_gap": "#d3d7dc",
}
OTHER = "#c7ced6"
# Bar order: what is used before the pool, the pool, what lies outside.
ORDER = tuple(LEDGER)
# Heat map, low to high; cells that do not fit are grey.
HEAT = ("#e3f3f0", "#b5ddd5", "#7fc2b7", "#45a396", "#0f8a7a", "#0a6358")
# Lines of a chart, few sequences to many: all of them dark enough on white.
LINES = ("#5cb8a8", "#0f8a7a", "#0a6358", "#7f9ac4", "#47618c", "#10161d")
NO_FIT = "#d9dce1"
INK, PAPER = "#10161d", "#ffffff"


def of(code: str) -> str:
    return LEDGER.get(code, OTHER)


def ink_on(colour: str) -> str:
    """Text colour with the better contrast on `colour` (#rrggbb), by WCAG 2's relative luminance."""
    r, g, b = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in (r, g, b)]
    return INK if 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] > 0.2 else PAPER


def place(code: str) -> tuple[int, str]:
    """A line's place in bars and legends, for sorting."""
    return (ORDER.index(code) if code in LEDGER else len(ORDER)), code


# Cache kinds, alike in every chart; told apart by label and hover too.
KINDS: dict[str, str] = {
    "full": "#0f8a7a", "window": "#7fc2b7", "chunk": "#a8d8cf", "latent": "#47618c", "index": "#a9bedb", "state": "#e09f2d", "cross": "#b07aa1",
    "shared": "#c7ced6", "none": "#eceef1",
}  # fmt: skip
