"""What a page says: every text that a reader can see or hear, taken from the elements that Streamlit's test harness holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from google.protobuf.json_format import MessageToDict
from streamlit.testing.v1 import AppTest

# Names, kinds and looks; no words of ours.
UNSEEN = set(
    "id key formId elementId fragmentId queryParamKey url icon widgetId mimeType type fileName language deferredFileId elementType format align justify "
    "direction gapSize dataType autorange barmode categoryorder clickmode colorscale config dash fill fillcolor hoverinfo mode rangemode selectionMode "
    "symbol textposition theme tickmode traceorder xanchor yanchor xref yref rawValue anchor autocomplete color family template bgcolor line marker "
    "hoverlabel labelVisibility ticks hovermode orientation side gridcolor zerolinecolor".split()
)
FRAMES = ("arrow_data_frame", "dataframe", "table", "arrow_table")


def texts(at: AppTest) -> Iterator[tuple[str, str]]:
    """(where, text) of all elements. The tables' column names and cells are texts too."""
    yield from _walk(at._tree)


def _walk(node: Any) -> Iterator[tuple[str, str]]:
    if hasattr(node, "children"):
        if getattr(node, "proto", None) is not None:
            yield from _leaves(MessageToDict(node.proto), type(node).__name__)
        for child in node.children.values():
            yield from _walk(child)
    elif node.type in FRAMES:
        frame = getattr(node.value, "data", node.value)
        for c in frame.columns:
            yield f"{node.type}.column", str(c)
            for v in frame[c]:
                if isinstance(v, str):
                    yield f"{node.type}.cell", v
    else:
        yield from _leaves(MessageToDict(node.proto), node.type)


def _leaves(x: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(x, dict):
        for k, v in x.items():
            if k not in UNSEEN:
                yield from _leaves(v, f"{path}.{k}")
    elif isinstance(x, list):
        for v in x:
            yield from _leaves(v, path)
    elif isinstance(x, str):
        if x[:1] in "{[" and len(x) > 50:
            try:
                yield from _leaves(json.loads(x), path)
                return
            except ValueError:
                pass
        yield path, x
