"""What llama.cpp puts on the device beside the cache: its share of the weights, compute buffers, and what llama-server leaves free itself."""

from __future__ import annotations

from dataclasses import replace

from planner.engines.llamacpp import device_layers, padded
from planner.engines.settings import LedgerLine, Setting
from planner.engines.shared import used_memory
from planner.hardware import Hardware
from planner.model import ModelSpec
from planner.notes import cite
from planner.scenario import Scenario
from planner.units import GIB
from planner.weights import bytes_on_rank, weight_format

MARGIN = cite("llama.cpp common/common.h fit_params_target: 1 GiB a device")
COMPUTE = cite("4 bytes x ubatch x (vocabulary + cells x (1 + heads without flash attention)); 5 % below to 33 % above four public logs of 220 to 9,240 MiB")


def lines(model: ModelSpec, hardware: Hardware, s: Scenario, setting: Setting, weights: LedgerLine) -> tuple[LedgerLine, ...]:
    """Weights of the layers on the device, the compute buffers (assumed: the graph is not run here), and the margin that llama-server's own
    fit keeps for the driver, its context and scratch memory. That fit looks at what is free, so what others hold comes off first."""
    margin = LedgerLine(code="llamacpp_margin", bytes=GIB, kind="documented", source=MARGIN)
    return (*used_memory(s), on_device(model, s, setting, weights), compute(model, s, setting), margin)


def on_device(model: ModelSpec, s: Scenario, setting: Setting, weights: LedgerLine) -> LedgerLine:
    """The layers' weights go with the layers; the head and the last norm with the output layer, which is offloaded first; the token
    embedding stays on the host, and is there twice where the head is tied to it (src/llama-model.cpp load_tensors)."""
    context = setting.context
    assert context is not None
    fmt = weight_format(model, s.weight_dtype, setting.model_dtype)
    here, output = device_layers(model, context), context.gpu_layers != 0
    held = 0
    for layer, where in model.layer_groups():
        held += sum(i in here for i in where) * sum(fmt.bytes_held(w, w.elements) for w in layer.weights)
    for w in model.weights:
        size = fmt.bytes_held(w, w.elements)
        if w.role in ("lm_head", "norm") or (w.role == "embedding" and model.tied_embeddings):
            held += size if output else 0
        elif w.role not in ("embedding", "position"):  # an encoder's layers lie with the decoder's of the same number
            held += size * len(here) // max(1, here.stop)
    whole = bytes_on_rank(model, fmt, setting.parallel)
    return replace(weights, **{k: n * held // whole for k in ("bytes", "low_bytes", "high_bytes") if whole and (n := getattr(weights, k)) is not None})


def compute(model: ModelSpec, s: Scenario, setting: Setting) -> LedgerLine:
    """Logits of one ubatch in fp32 and the mask over the cells; without flash attention the scores of one layer. Assumed."""
    context = setting.context
    assert context is not None
    cells = context.n_ctx_seq if context.given_cells else padded(s.tokens * (s.sequences if context.unified else 1))
    mask = 4 * context.batch * cells
    heads = max((layer.attention.q_heads for layer, _ in model.layer_groups() if layer.attention), default=0)
    scores = 0 if context.flash_attention else mask * heads
    logits = 4 * context.batch * model.vocab_size
    size = logits + scores + mask
    low = (max(logits, scores) + mask) // 2
    return LedgerLine(code="llamacpp_compute", bytes=size, kind="assumed", source=COMPUTE, low_bytes=low, high_bytes=size * 5 // 4)
