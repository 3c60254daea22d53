"""Counts of weights against the models that transformers builds from the same files on torch's meta device: as they are, with the
vocabulary, the experts, the layers and the hidden size doubled, and with each switch of the class turned."""

from __future__ import annotations

import copy
import gc
import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from planner.errors import PlannerError
from planner.footprint import measure
from planner.readers import READERS, read_config
from planner.readers.defaults import DEFAULTS, EXPERTS, QUERY_RANK
from planner.scenario import Scenario
from planner.weights import Parameters, parameters
from tests import meta_device as md
from tests.conftest import small_configs

Config = dict[str, Any]
# Counts that are estimates by their nature, not for want of reading: the class makes room for experts that compute nothing, reads the
# other heads of windowed layers in its own way, or has encoders beside that are bounded and not counted.
ESTIMATED = {"chameleon", "idefics", "longcat_flash", "phi4_multimodal", "step3p5"}

LONG = Scenario(engine="transformers", tokens=9000, sequences=1)  # beyond every class's own window


@pytest.fixture(scope="module")
def hf() -> Iterator[SimpleNamespace]:
    found = md.load()
    threads = found.torch.get_num_threads()
    found.torch.set_num_threads(1)
    yield found
    found.torch.set_num_threads(threads)
    gc.collect()


def compared(hf: SimpleNamespace) -> Iterator[tuple[str, Config]]:
    yield from ((name, raw) for name, raw in small_configs() if md.known(hf, raw))


def fault(p: Parameters, c: md.Counts, *, embedding: bool = True) -> str:
    """What differs; "" where nothing does. An exact count equals the language part, or the whole model where one class is both."""
    if not p.exact:
        return "" if p.low <= c.total <= p.high else f"{c.total} is not in {p.low} to {p.high}"
    pairs = {
        "total": (p.total, c.whole if p.total == c.whole else c.total),
        "embedding": (p.embedding, c.embedding if embedding else p.embedding),
        "routed_experts": (p.routed_experts, c.routed_experts),
        "active": (p.active, p.total - c.routed_experts + c.used_experts),
    }
    return ", ".join(f"{name} {ours} and not {theirs}" for name, (ours, theirs) in pairs.items() if ours != theirs)


def test_the_counts_equal_the_built_model(hf: SimpleNamespace) -> None:
    wrong, exact = [], 0
    types, estimated = set(md.FLATTENED), set()
    for name, raw in compared(hf):
        p = parameters(read_config(copy.deepcopy(raw)))
        c, refusal = md.built(hf, raw)
        said = fault(p, c) if c else refusal
        wrong += [f"{name}: {said}"] if said else []
        exact += p.exact
        estimated |= set() if p.exact else {name}
        types |= {raw["model_type"], md.section(raw).get("model_type")}
    assert not wrong
    assert estimated == ESTIMATED
    assert exact >= 180
    missing = sorted(t for t in READERS if t in hf.configs and t not in types)
    assert not missing, "rows of the table that transformers knows and no file compares"


def test_what_is_not_compared_cannot_be(hf: SimpleNamespace) -> None:
    """The classes pass over every size of the flat files: another vocabulary makes no other model."""
    flat = {raw["model_type"]: raw for _, raw in small_configs() if raw.get("model_type") in hf.configs and not md.known(hf, raw)}
    assert set(flat) == set(md.FLATTENED)
    for raw in flat.values():
        twice = md.doubled(raw, ("vocab_size",))
        assert twice is not None
        assert parameters(read_config(raw)).total < parameters(read_config(copy.deepcopy(twice))).total
        assert md.counts(md.build(hf, raw)) == md.counts(md.build(hf, twice))


DOUBLED: dict[str, tuple[Callable[[Config], Config | None], int]] = {
    "vocabulary": (lambda raw: md.doubled(raw, ("vocab_size",)), 180),
    "experts": (lambda raw: md.doubled(raw, md.EXPERT_COUNTS), 55),
    "layers": (md.twice_the_layers, 180),
    "hidden": (lambda raw: md.doubled(raw, md.HIDDEN), 170),
}


@pytest.mark.parametrize("what", DOUBLED)
def test_the_counts_follow_the_shape_keys(hf: SimpleNamespace, what: str) -> None:
    """Nothing is fitted to one size: a size doubled in the file changes our count as it changes the model."""
    double, at_least = DOUBLED[what]
    wrong, right, moved = [], 0, 0
    for name, raw in compared(hf):
        twice = double(raw)
        if twice is None:
            continue
        c, _ = md.built(hf, twice)
        try:
            p = parameters(read_config(copy.deepcopy(twice)))
        except PlannerError:
            continue
        if c is None:
            continue  # sizes that no longer fit each other: the class, or the reader, says so
        said = fault(p, c)
        wrong += [f"{name}: {said}"] if said else []
        right += not said
        moved += p.total > parameters(read_config(copy.deepcopy(raw))).total
    assert not wrong
    assert right >= at_least
    assert moved >= at_least - 5


# Switches that may be part of a model's shape, by their names: of a hundred switches the others never changed a count.
SHAPE = re.compile(
    r"bias|norm|tie|embed|gate|glu|adapter|shared?_|prompt|enable_|concat|affine|sink|task|learned|moe|sandwich|conv|qk|multi_query|parallel_attn|new_dec"
)
NO_SHAPE = {"norm_topk_prob", "scale_embedding", "tie_encoder_decoder"}


def test_each_switch_of_the_class_is_read_or_marked(hf: SimpleNamespace) -> None:
    """Biases, norms, gates, ties: what a switch of the class changes is in our count, or in its band, or the file is refused."""
    wrong, right, changed = [], 0, 0
    for name, raw in compared(hf):
        config = md.config(hf, raw).get_text_config()
        before = parameters(read_config(copy.deepcopy(raw))).total
        for key, value in config.to_dict().items():
            if not isinstance(value, bool) or key in NO_SHAPE or not SHAPE.search(key):
                continue
            turned = copy.deepcopy(raw)
            md.section(turned)[key] = not value
            try:
                p = parameters(read_config(copy.deepcopy(turned)))
            except PlannerError:
                continue
            c, _ = md.built(hf, turned)
            if c is None:
                continue
            said = fault(p, c, embedding=False)
            wrong += [f"{name}.{key}: {said}"] if said else []
            right += not said
            changed += p.total != before
    assert not wrong
    assert right >= 400
    assert changed >= 100


# Keys by which a cache's size hangs on a class default. Dory's published files count blocks where its class counts layers.
OF_CACHE = re.compile(r"window|chunk_size|local_attention|head_dim|kv_heads|key_value_heads|layer_types|pattern|num_decoder_layers|offset|period|interval")


def test_a_key_left_out_is_read_as_the_class_fills_it_in(hf: SimpleNamespace) -> None:
    """A file without a key keeps what a file keeps that says the class's own value: both by this project alone, the value by the class."""
    wrong, right = [], 0
    for name, raw in compared(hf):
        for key in md.section(raw):
            if not OF_CACHE.search(key):
                continue
            less, told = copy.deepcopy(raw), copy.deepcopy(raw)
            del md.section(less)[key]
            try:
                own = hf.configs[less["model_type"]].from_dict(copy.deepcopy(less)).get_text_config(decoder=True)
                md.section(told)[key] = getattr(own, key)
                ours = [measure(read_config(copy.deepcopy(c)), None, LONG).engine_bytes for c in (less, told)]
            except Exception:  # the class or the reader refuses the file without the key, or the class computes it elsewhere
                continue
            right += ours[0] == ours[1]
            wrong += [f"{name}.{key}: {ours[0]}, with {str(md.section(told)[key])[:40]} {ours[1]}"] if ours[0] != ours[1] else []
    assert not wrong
    assert right >= 150


def test_the_defaults_are_those_of_the_classes(hf: SimpleNamespace) -> None:
    """Each size that is read in place of an absent key is the class's own default."""
    wrong, checked = [], 0
    open_keys = {f"{t} experts": (t, {key: n, "moe_intermediate_size": width}) for t, (key, n, width) in EXPERTS.items()}
    open_keys |= {f"{t} rank": (t, {"q_lora_rank": rank}) for t, rank in QUERY_RANK.items()}
    for model_type, keys in (*DEFAULTS.items(), *open_keys.values()):
        if model_type not in hf.configs:
            continue
        for key, value in keys.items():
            own = md.class_default(hf, model_type, key)
            wrong += [f"{model_type}.{key}: {value} and not {own}"] if value is not None and own != value else []
            checked += 1
    assert not wrong
    assert checked >= 120
