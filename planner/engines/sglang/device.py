"""SGLang 0.5.23: what it takes from the device: tokens a prefill chunk, CUDA graphs, page size, and its default share of the memory.

Sources (sglang 0.5.23 wheel): srt/arg_groups/memory_hook.py, cuda_graph_hook.py, overrides.py, model_overrides/*.py. Run for H100, A100,
L4 and B200; other devices follow the same lines and say so in a note.
"""

from __future__ import annotations

from planner.cache import Rows
from planner.engines.sglang.models import BLACKWELL_BACKEND, GRAPHS_WITH_IMAGES, MINIMAX_SPARSE, QWEN_HYBRID, class_of, is_multimodal
from planner.engines.sglang.rows import has_states, is_latent, is_packed, is_sparse
from planner.model import ModelSpec
from planner.parallel import Parallel
from planner.units import GIB, MIB

RUN_ON = ((8, 0), (8, 9), (9, 0), (10, 0))  # compute capabilities of the devices on which the rules were run
# (device memory below, MiB; chunk of prefill; decode graphs' largest batch with tp < 4 and from tp 4 on)
STEPS = (
    (20 * 1024, 2048, 8, 8),
    (35 * 1024, 4096, 48, 160),
    (60 * 1024, 4096, 32, 160),
    (160 * 1024, 8192, 256, 512),
)
LARGEST = (16384, 512, 512)
FLOOR_ABOVE, FLOOR = 60 * 1024, 10 * 1024  # MiB reserved at least on devices above it
PAGES = {"trtllm_mla": 64, "trtllm_mha": 64, "fa4": 128}
V4_PAGE, SPARSE_PAGE, MINIMAX_PAGE = 256, 64, 128
VIT_L = (24, 1024)  # layers and hidden size to which a vision part is compared
QWEN3_VL = frozenset(("Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration"))


def capacity(memory_mib: int, tensor: int) -> tuple[int, int]:
    """(tokens a prefill chunk, largest batch of the decode graphs). memory_hook.py handle_gpu_memory_settings."""
    for below, chunk, few, many in STEPS:
        if memory_mib < below:
            return chunk, few if tensor < 4 else many
    return LARGEST[0], LARGEST[1] if tensor < 4 else LARGEST[2]


def prefill_buckets(largest: int) -> int:
    """How many token counts up to `largest` get a prefill graph (cuda_graph_hook.py generate_prefill_cuda_graph_batch_sizes).

    >>> prefill_buckets(8192), prefill_buckets(4096)
    (58, 50)
    """
    sizes = (range(4, 33, 4), range(48, 257, 16), range(288, 513, 32), range(576, 1025, 64), range(1280, 4097, 256), range(4608, largest + 1, 512))
    return sum(1 for sequence in sizes for size in sequence if size <= largest)


def prefill_graphs(model: ModelSpec, backend: str, p: Parallel) -> bool:
    """Whether memory is reserved for prefill in CUDA graphs: not with images but for some classes, nor for DeepSeek-V4, KDA and pipelines."""
    name = class_of(model)
    if p.pipeline > 1 or backend == "dsv4" or (is_multimodal(model) and name not in GRAPHS_WITH_IMAGES):
        return False
    return name == "Glm5NextForConditionalGeneration" or not any(getattr(k, "mechanism", "") == "kda" for k, _ in model.cache_groups())


def backend_of(model: ModelSpec, capability: tuple[int, int] | None, *, prefix_caching: bool = True, drafting: bool = False) -> str:
    """The attention backend by default, as far as the page size hangs on it; "" for those that take pages of one token."""
    name, generation = class_of(model), capability[0] if capability else 9
    if is_packed(model):
        return "dsv4"
    if is_sparse(model):
        return "dsa"
    if generation != 10:
        return "fa3_minimax" if name in MINIMAX_SPARSE and generation == 9 else ""
    if name in MINIMAX_SPARSE:
        return "fa4"
    if name in QWEN_HYBRID:
        return "trtllm_mha" if drafting or not prefix_caching else "triton"
    if name in BLACKWELL_BACKEND:
        return BLACKWELL_BACKEND[name]
    if is_latent(model):
        return "flashinfer"
    if name == "GraniteMoeHybridForCausalLM" and has_states(model):
        return "flashinfer"
    uneven = any(isinstance(k, Rows) and k.format == "kv" and k.k_dim != k.v_dim for k, _ in model.cache_groups())
    return "fa4" if uneven else "trtllm_mha"


def page_size(model: ModelSpec, backend: str) -> int:
    """Tokens a page where the user gives none. Of sparse attention and DeepSeek-V4 whatever the user gives."""
    if backend == "dsv4":
        return V4_PAGE
    if backend == "dsa":
        return SPARSE_PAGE * max((k.ratio for k, _ in model.cache_groups() if isinstance(k, Rows) and k.format == "index"), default=1)
    return MINIMAX_PAGE if backend == "fa3_minimax" else PAGES.get(backend, 1)


def memory_fraction(model: ModelSpec, memory_bytes: int, p: Parallel, backend: str, chunk: int, asked_sequences: int | None) -> tuple[float, bool]:
    """(mem_fraction_static by default, whether it is exact): what is left of the device beside 512 MiB, 1.5 MiB a token of the chunk, the
    ranks and the graphs, to three digits; with images a share of that by the vision part's size. `chunk`: of one replica, undivided."""
    memory = memory_bytes // MIB
    _, graphs = capacity(memory, p.tensor)
    if asked_sequences is not None:
        graphs = min(graphs, asked_sequences)
    reserved = 512 + 1.5 * max(chunk, 2048) + p.tensor * p.pipeline / 8 * 1024 + 2 * graphs
    if p.attention_data > 1:
        reserved += graphs * p.attention_data * (4.5 if graphs > 300 else 3)
    if prefill_graphs(model, backend, p):
        reserved += 1536 if is_latent(model) else 8 * prefill_buckets(chunk)
    if memory > FLOOR_ABOVE:
        reserved = max(reserved, FLOOR)
    fraction = round((memory - reserved) / memory, 3)
    if not is_multimodal(model) or model.server.vision is None:
        return fraction, not is_multimodal(model)
    layers, hidden = model.server.vision
    size = (layers or VIT_L[0]) * (hidden or VIT_L[1]) ** 2 / (VIT_L[0] * VIT_L[1] ** 2)
    return fraction * 0.95 * max(0.8, min(1.05, 1.0 - 0.1 * (size - 1.0))), layers is not None and hidden is not None


def image_reserve(model: ModelSpec, capability: tuple[int, int] | None, memory_bytes: int) -> int:
    """Bytes kept back for what images take after the pool is sized: a cache of 100 MiB; for Qwen3-VL on large Hopper devices 1 GiB of
    transport instead (srt/mem_cache/kv_cache_configurator.py mm_runtime_reservation_gb, model_overrides/qwen3_vl.py)."""
    if not is_multimodal(model):
        return 0
    large_hopper = capability is not None and capability[0] == 9 and memory_bytes >= 60 * GIB
    return GIB if class_of(model) in QWEN3_VL and large_hopper else 100 * MIB
