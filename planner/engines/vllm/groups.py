"""vLLM 0.33: layer specs -> page unification -> groups, so that one pool's block ids can serve any group.

Source: v1/core/kv_cache_planning.py of the vllm 0.33.0 wheel; checked against that code run on real configs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.cache import Group
from planner.engines.settings import Setting
from planner.engines.vllm.specs import Member, Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecGroup:
    """Caches that share a block table: each member is a layer's page. `spec` says how many blocks a request takes of it."""

    spec: Spec
    members: tuple[Member, ...]

    def page_bytes(self, layers: range) -> int:
        """Bytes that one block id costs in this group for a stage's layers."""
        return sum(spec.page_bytes for spec, layer in self.members if layer in layers)

    def on(self, layers: range, setting: Setting) -> Group:
        """The group as it stands on a pipeline stage. A unit's bytes are a layer's, index keys and rows together."""
        here = tuple(dict.fromkeys(layer for _, layer in self.members if layer in layers))
        one = self.page_bytes(layers) // len(here) if here else self.spec.page_bytes
        admission, resident = (replace(term, unit_bytes=one) for term in (self.spec.admission(setting), self.spec.resident()))
        content = sum(spec.content_bytes for spec, layer in self.members if layer in layers)
        return Group(kind=self.spec.kind, layers=here, admission=admission, resident=resident, content_bytes=content,
                     limit_tokens=self.spec.window or self.spec.chunk)  # fmt: skip


def group(specs: list[Member]) -> list[SpecGroup]:
    """Equal specs in one bucket; every bucket is cut into groups of one size, so that any block id can serve any group.

    Group size: the fewest layers of any bucket, or the most where that is less than 1.5 times as many. Caches of one type make one group
    whatever their pages (the pages are summed): all full, or all of one window.
    """
    first = specs[0][0]
    if all(
        s.type == first.type and (s.type == "full" or (s.type == "window" and s.window == first.window)) and s.block_size == first.block_size for s, _ in specs
    ):
        return [SpecGroup(spec=first, members=tuple(specs))]
    buckets: dict[Spec, list[int]] = {}
    for spec, layer in unify_pages(specs):
        buckets.setdefault(spec, []).append(layer)
    counts = [len(where) for where in buckets.values()]
    size = max(counts) if max(counts) < 1.5 * min(counts) else min(counts)
    out = []
    for spec, where in buckets.items():
        number = -(-len(where) // size)
        # Layers are dealt out in turn, so that every pipeline stage gets its share of each group.
        out += [SpecGroup(spec=spec, members=tuple((spec, i) for i in where[k::number])) for k in range(number)]
    return out


def unify_pages(specs: list[Member]) -> list[Member]:
    """All pages as large as the largest: a smaller one takes that many times more tokens where it divides, else it is padded."""
    largest = max(spec.page_bytes for spec, _ in specs)
    out = []
    for spec, layer in specs:
        factor, rest = divmod(largest, spec.page_bytes)
        if spec.type == "state" or rest:
            spec = replace(spec, page_bytes=largest)
        elif factor > 1:
            spec = replace(spec, page_bytes=largest, block_size=spec.block_size * factor, content_bytes=spec.content_bytes * factor)
        out.append((spec, layer))
    return out
