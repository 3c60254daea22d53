"""How the matrices of a checkpoint are stored, from its `quantization_config`: each Weight of a model gets its `stored` value.

The KV cache does not follow: its dtype has keys of its own (readers/build.py: quantization). A file that cannot be understood never stops
a plan: its matrices are counted unquantized, an upper bound, and a note says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from planner.model import LayerSpec, ModelSpec, Weight
from planner.notes import Note, note
from planner.quantization.methods import method_of, read
from planner.quantization.names import modules_of
from planner.quantization.scheme import NotKnown, Scheme

_NAMES_SHOWN = 12
_KEPT_ROLES = ("embedding", "lm_head", "router")


def as_stored(model: ModelSpec, raw: dict[str, Any], family: str) -> ModelSpec:
    """`model` with its weights as `raw`, a quantization_config, says that they are stored. `family`: whose module names to use."""
    field = "quantization_config"
    method = method_of(raw)
    try:
        scheme = read(raw)
    except (NotKnown, RecursionError) as e:
        key = f"{field}.{e.key}" if isinstance(e, NotKnown) else field
        said = note("warning", "weights_size_unknown", field=key[:120], method=method, key=key[:120])
        return replace(model, storage="unknown", notes=(*model.notes, said))
    found = _Assigned(scheme, family, len(model.layers))
    layers = found.layers(model.layers)
    model = replace(model, layers=layers, draft_layers=found.layers(model.draft_layers, len(layers)), weights=found.weights(model.weights, None))
    exact = scheme.listed and scheme.simple and not found.refused()
    notes: list[Note] = [note("derived" if exact else "assumed", "weights_stored", field=field, method=method, **summary(model))]
    if not scheme.listed:
        notes.append(note("assumed", "weights_list_missing", field=f"{field}.modules_to_not_convert", method=method))
    if not scheme.simple:
        notes.append(note("assumed", "weights_layout_near", field=field, method=method))
    if refused := found.refused():
        notes.append(note("warning", "weights_list_unread", field=field, count=len(refused), entry=_plain(refused[0])))
    return replace(model, storage="exact" if exact else "assumed", notes=(*model.notes, *notes))


class _Assigned:
    """One scheme asked for many weights. Equal layers whose weights are stored alike stay one object, so that plans stay fast."""

    def __init__(self, scheme: Scheme, family: str, stack: int) -> None:
        self.scheme, self.family, self.stack = scheme, family, stack

        self.lists = [scheme.skip, *(r.only for r in scheme.rules if r.only is not None)]
        for one in self.lists:
            one.budget = scheme.skip.budget

    def refused(self) -> list[str]:
        return [entry for one in self.lists for entry in one.refused]

    def layers(self, layers: tuple[LayerSpec, ...], first: int = 0) -> tuple[LayerSpec, ...]:
        made: dict[tuple[int, tuple[Weight, ...]], LayerSpec] = {}
        known: dict[tuple[object, ...], tuple[Weight, ...]] = {}
        out = []
        for i, layer in enumerate(layers, first):
            alike = (id(layer), i if i >= self.stack else -1, *(one.told_apart(i) for one in self.lists))
            if alike not in known:
                known[alike] = self.weights(layer.weights, i)
            weights = known[alike]
            key = (id(layer), weights)
            if key not in made:
                made[key] = replace(layer, weights=weights)
            out.append(made[key])
        return tuple(out)

    def weights(self, weights: Iterable[Weight], layer: int | None) -> tuple[Weight, ...]:
        return tuple(part for w in weights for part in self._of(w, layer))

    def _of(self, w: Weight, layer: int | None) -> tuple[Weight, ...]:
        """`w` as it is stored; where single experts are named apart, one Weight for each way."""
        head = w.role == "lm_head" and self.scheme.head and len(w.shape) == 2
        if not (head or (w.quantizable and w.role not in _KEPT_ROLES)):
            return (w,)
        paths = modules_of(w.name, w.role, self.family)
        kept = self.scheme.skip.count(paths, layer, w.copies)
        if layer is not None and layer >= self.stack and not kept:  # draft layers are numbered on, or stand in a module of their own
            kept = self.scheme.skip.count(tuple(f"mtp.layers.{layer - self.stack}.{p}" for p in paths), None, w.copies)
        left, parts = w.copies - kept, []
        for rule in self.scheme.rules:
            if not left:
                break
            if rule.roles is not None and w.role not in rule.roles:
                continue
            here = left if rule.only is None else min(left, rule.only.count(paths, layer, w.copies))
            if here and rule.stored is not None:
                parts.append((here, rule.stored))
            elif here:
                kept += here
            left -= here
        kept += left
        if not parts:
            return (w,)
        if len(parts) == 1 and not kept:
            return (replace(w, stored=parts[0][1]),)
        split = tuple(replace(w, copies=n, stored=stored) for n, stored in parts)
        return (*split, replace(w, copies=kept)) if kept else split


def summary(model: ModelSpec) -> dict[str, str]:
    """`stored`: the layouts that occur, with the share of the elements; `kept`: names of matrices that stay, and in how many layers."""
    total, by_name = 0, dict[str, int]()
    kept: dict[str, int] = {}
    quantized: set[str] = set()
    groups = [(w, 1) for w in model.weights] + [(w, len(where)) for layer, where in model.layer_groups() for w in layer.weights]
    for w, n in groups:
        total += w.elements * n
        if w.stored is not None:
            by_name[w.stored.name] = by_name.get(w.stored.name, 0) + w.elements * n
            quantized.add(w.name)
        elif len(w.shape) > 1 and w.role not in ("norm", "position"):
            kept[w.name] = kept.get(w.name, 0) + n
    layouts = sorted(by_name.items(), key=lambda item: -item[1])
    names = [f"{name} ({n})" if name in quantized else name for name, n in kept.items()]
    more = f" +{len(names) - _NAMES_SHOWN}" if len(names) > _NAMES_SHOWN else ""
    return {
        "stored": ", ".join(f"{name} {100 * n // max(1, total)} %" for name, n in layouts) or "-",
        "kept": ", ".join(names[:_NAMES_SHOWN]) + more or "-",
    }


def _plain(entry: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in entry[:60])


__all__ = ["as_stored", "summary"]
