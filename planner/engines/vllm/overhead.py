"""What vLLM holds beside weights, activations and pool: communicators, CUDA graphs, tables that its layers build. Constants by release, each
with the logs that it is from."""

from __future__ import annotations

from planner.cache import Rows
from planner.engines.settings import LedgerLine, Setting
from planner.model import ModelSpec
from planner.notes import cite
from planner.units import GIB, MIB
from planner.weights import WeightFormat, elements_on_rank

# GiB by release and tensor ranks: (seen low, used, seen high). `fused`: from 0.18 on, with the all-reduce that is fused on NVLink devices of
# compute capability 9 and 10; `snapshot`: 0.11 to 0.17; `early`: before, with the communicators' own buffers (one log with four ranks).
NON_TORCH_GIB = {
    "fused": {1: (0.07, 0.25, 0.30), 2: (0.34, 2.08, 2.20), 4: (0.39, 2.19, 2.60)},
    "snapshot": {1: (0.04, 0.13, 0.30), 2: (0.25, 0.55, 0.80), 4: (0.30, 0.80, 1.80)},
    "early": {1: (0.04, 0.25, 1.79), 2: (0.25, 0.60, 3.58), 4: (0.40, 2.36, 3.60)},
    "plain": {1: (0.04, 0.25, 0.40), 2: (0.05, 0.20, 1.20), 4: (0.05, 0.15, 1.80)},  # devices without that all-reduce
}
PIPELINE_GIB = (0.05, 0.07, 0.30)  # a pipeline of single ranks, from 0.18 on
FUSED_ON = ((9, 0), (10, 0), (10, 3))
# What the all-reduce of those devices adds to "model loading took", MiB: two logs with two ranks, one with four.
FUSED_BUFFERS_MIB = {2: 80, 4: 123}
NON_TORCH_SOURCE = cite("start-up logs of vLLM 0.11 to 0.23 by tensor ranks and device")

# CUDA graphs: one set for mixed batches, one for decoding. MiB a layer and graph, MiB a graph of a model with experts, and what the largest
# decoding graph's own memory takes (0.39 GiB at 512 sequences). From 18 logs of 0.19; four of 0.22 to 0.23 with fewer graphs follow it.
GRAPH_LAYER_MIB, GRAPH_EXPERTS_MIB, GRAPH_LARGEST_GIB, LARGEST = 0.159, 3.0, 0.39, 512
GRAPH_SOURCE = cite("18 start-up logs of vLLM 0.19 on H100, four of 0.22 and 0.23; sizes by config/vllm.py _set_cudagraph_sizes")

CONTEXT_GIB = (0.30, 0.55, 0.80)  # CUDA context of a process, before vLLM looks at what is free

FP32_TABLES = 4  # bytes an angle
HIDDEN_PAD, WIDTH_PAD = 256, 128  # of MXFP4 experts (mxfp4.py)


def non_torch(setting: Setting, comms: str) -> LedgerLine:
    """Communicators and other memory that torch does not hand out, by tensor ranks, release and device."""
    p = setting.parallel
    ranks = 1 if p.tensor == 1 else 2 if p.tensor < 4 else 4
    fused = setting.capability is None or setting.capability in FUSED_ON
    table = NON_TORCH_GIB[comms if comms != "fused" or fused or ranks == 1 else "plain"]
    low, used, high = PIPELINE_GIB if p.pipeline > 1 and ranks == 1 and comms == "fused" else table[ranks]
    return LedgerLine(code="non_torch", bytes=round(used * GIB), kind="documented", source=NON_TORCH_SOURCE, low_bytes=round(low * GIB),
                      high_bytes=round(high * GIB))  # fmt: skip


def fused_buffers(setting: Setting, comms: str) -> int:
    ranks = setting.parallel.tensor
    if comms != "fused" or ranks == 1 or setting.capability not in FUSED_ON:
        return 0
    return FUSED_BUFFERS_MIB[2 if ranks < 4 else 4] * MIB


def graph_sizes(sequences: int) -> tuple[int, int]:
    """(graphs captured, sequences of the largest decoding one): 1, 2, 4, then steps of 8 to 256 and of 16 to the smaller of 512 and twice the
    sequences, for mixed batches; those up to the sequences again for decoding.

    >>> graph_sizes(256), graph_sizes(128), graph_sizes(1024)
    ((86, 256), (54, 128), (102, 512))
    """
    sizes = [n for n in (1, 2, 4, *range(8, 256, 8), *range(256, LARGEST + 1, 16)) if n <= 2 * sequences]
    return len(sizes) + sum(n <= sequences for n in sizes), min(LARGEST, sequences)


def cuda_graphs(model: ModelSpec, setting: Setting) -> LedgerLine:
    """Grows with layers x graphs, and with the largest decoding graph."""
    graphs, largest = graph_sizes(setting.max_num_seqs)
    mib = graphs * (GRAPH_LAYER_MIB * len(model.layers) / setting.parallel.pipeline + (GRAPH_EXPERTS_MIB if model.has_experts() else 0))
    used = round(mib * MIB + GRAPH_LARGEST_GIB * GIB * largest / LARGEST)
    return LedgerLine(code="cuda_graphs", bytes=used, kind="documented", source=GRAPH_SOURCE, low_bytes=used * 7 // 10, high_bytes=used * 13 // 10)


def beside_weights(model: ModelSpec, setting: Setting, fmt: WeightFormat, comms: str) -> int:
    """What "model loading took" counts beside the file's weights: tables of rotary angles (largest length times a linear factor, for each base),
    MLA's expansion kept a second time by heads, MXFP4 experts padded, buffers of the fused all-reduce."""
    e, ranks = setting.model_dtype.nbytes(1), setting.parallel.attention_ranks
    lengths = model.max_context_tokens or setting.max_model_len
    tables: set[tuple[int, int, bool]] = set()  # bytes a position, positions, whether of the windowed layers
    absorbed = padding = 0
    for layer, where in model.layer_groups():
        a = layer.attention
        if a is not None and lengths:
            windowed = model.model_type.startswith(("gemma3", "gemma4")) and any(isinstance(k, Rows) and k.window for k in layer.caches)
            wide = FP32_TABLES if a.kv_rank else e  # DeepSeek's scaled angles stay in fp32 for the kernel that applies them
            tables.add((wide * (a.rope_dim if a.kv_rank else a.qk_dim), lengths * (1 if windowed else model.server.rope_factor), windowed))
        if a is not None and a.kv_rank and setting.latent:
            absorbed += len(where) * a.kv_rank * (a.q_heads // ranks) * (a.nope_dim + a.v_dim) * e
        if model.model_type == "gpt_oss" and model.quantization == "mxfp4":
            held = sum(fmt.bytes_held(w, elements_on_rank(w, setting.parallel)) for w in layer.weights if w.role == "expert")
            padding += round(len(where) * held * (_padded(model, setting) - 1))
    return sum(width * positions for width, positions, _ in tables) + absorbed + padding + fused_buffers(setting, comms)


def _padded(model: ModelSpec, setting: Setting) -> float:
    """How much larger MXFP4 experts are once padded: on Hopper the hidden width, elsewhere both widths."""
    hidden = -(-model.hidden_size // HIDDEN_PAD) * HIDDEN_PAD / model.hidden_size
    width = max((m.expert_width for layer, _ in model.layer_groups() if (m := layer.mlp)), default=0) // setting.parallel.tensor
    if (setting.capability is not None and setting.capability[0] == 9) or not width:
        return hidden
    return hidden * (-(-width // WIDTH_PAD) * WIDTH_PAD) / width
