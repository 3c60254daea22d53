"""llama.cpp (library 0.5, ggml 0.25.3): a context takes its whole cache when it is created, on the devices where its layers lie.

Settings -> the padded context (`settle`) -> what each layer keeps (llamacpp/rows.py) -> one pool on the device, one in the host's memory.
Nothing is added to the tensors: on the CPU backend the bytes are exact to the byte. Sources: src/llama-context.cpp, src/llama-kv-cache.cpp,
src/llama-kv-cache-iswa.cpp, src/llama-memory-recurrent.cpp, src/llama-model.cpp (load_tensors); defaults of llama-server: common/common.h.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from planner.cache import Group, Pool, Slots, Term
from planner.dtypes import KvLayout, kv_layout
from planner.engines.llamacpp import archs
from planner.engines.llamacpp.rows import Kept, kept_by_layer
from planner.engines.settings import Allocation, Context, Setting, model_dtype, replicas
from planner.errors import InvalidInput, UnsupportedValue
from planner.hardware import Hardware
from planner.model import ModelSpec
from planner.notes import Note, cite, note
from planner.parallel import Parallel
from planner.scenario import Scenario

NAME, VERSION = "llamacpp", "0.5"
PAD = 256  # cells: n_ctx, n_ctx_seq, and a window's cells (GGML_PAD)
MAX_SEQUENCES = 256  # LLAMA_MAX_SEQ
N_BATCH, N_UBATCH = 2048, 512
TYPES = ("fp32", "fp16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")  # common/arg.cpp kv_cache_types
SOURCE = cite("llama.cpp src/llama-context.cpp, src/llama-kv-cache.cpp")
SERVER = cite("llama.cpp common/common.h, tools/server")


def padded(cells: int) -> int:
    """Rounded up to whole 256 cells.

    >>> padded(500), padded(4096 // 3)
    (512, 1536)
    """
    return -(-cells // PAD) * PAD


# -- defaults ----------------------------------------------------------------------------------------------------------


def settle(model: ModelSpec, hardware: Hardware | None, s: Scenario) -> Setting:
    """llama-server's defaults, with the slots and the context that the load needs where they are not given: `--parallel` (or the
    sequences of the load) sequences, `--max-model-len` cells in all, which they share out evenly unless the context is unified."""
    for name in ("tp", "pp", "dp_attention", "ep", "dcp"):
        if (getattr(s, name) or 1) > 1:
            raise InvalidInput("one_device_only", field=name, engine=NAME)
    if s.num_speculative_tokens:
        raise InvalidInput("llamacpp_speculation", field="num_speculative_tokens")
    arch = archs.architecture(model)
    notes: list[Note] = []
    flash = s.flash_attn != "off" and arch not in archs.NO_FLASH_ATTENTION
    if s.flash_attn != "off" and not flash:
        notes.append(note("derived", "llamacpp_no_flash", field="flash_attn", architecture=arch, source=SOURCE))
    context = context_of(arch, s, notes)
    own = model_dtype(model, s)
    return Setting(
        engine=NAME,
        version=VERSION,
        parallel=Parallel(),
        kv=_layout(s),
        model_dtype=own,
        max_model_len=context.n_ctx_seq,
        max_num_seqs=context.sequences,
        max_num_batched_tokens=s.max_num_batched_tokens or N_BATCH,
        asked_version=s.engine_version,
        context=replace(context, flash_attention=flash),
        notes=tuple(notes),
    )


def context_of(arch: str, s: Scenario, notes: list[Note]) -> Context:
    """n_ctx, n_ctx_seq and n_ubatch as llama_context sets them: padded, and the ubatch clamped by the batch (0: the batch)."""
    load = max(1, -(-s.sequences // replicas(s, Parallel())))
    given = s.parallel or s.max_num_seqs
    sequences = given or load
    if given and given > MAX_SEQUENCES:
        raise InvalidInput("llamacpp_sequences", field="parallel" if s.parallel else "max_num_seqs", value=given, most=MAX_SEQUENCES)
    apart = arch == "deepseek4"  # its streams stay apart in a unified context too, each with all of its cells
    asked = s.max_model_len
    if asked is None:
        asked = padded(s.tokens) if s.kv_unified and apart else load * s.tokens if s.kv_unified else sequences * padded(s.tokens)
        notes.append(note("assumed", "llamacpp_context", field="max_model_len", cells=padded(asked), sequences=sequences, source=SERVER))
    n_ctx = padded(asked)
    n_ctx_seq = n_ctx if s.kv_unified else padded(n_ctx // sequences)
    if not s.kv_unified:
        if n_ctx_seq * sequences != n_ctx:
            notes.append(note("info", "llamacpp_rounded", field="max_model_len", asked=asked, cells=n_ctx_seq * sequences, source=SOURCE))
        n_ctx = n_ctx_seq * sequences
    if s.max_model_len and sequences > 1 and not s.kv_unified:
        notes.append(note("info", "llamacpp_shared_out", field="max_model_len", each=n_ctx_seq, sequences=sequences, source=SOURCE))
    n_batch = s.max_num_batched_tokens or N_BATCH  # a context smaller than the batch clamps it too, which never changes the padded cells
    n_ubatch = N_UBATCH if s.n_ubatch is None else s.n_ubatch
    copies = 1 + (s.n_rs_seq if arch in archs.ROLLBACK else 0)
    return Context(n_ctx=n_ctx, n_ctx_seq=n_ctx_seq, sequences=sequences, unified=s.kv_unified and not apart, given_sequences=given is not None,
                   given_cells=s.max_model_len is not None, batch=min(n_batch, n_ubatch or n_batch),
                   swa_full=s.swa_full, state_copies=copies, gpu_layers=s.n_gpu_layers)  # fmt: skip


def _layout(s: Scenario) -> KvLayout:
    """--cache-type-k and --cache-type-v, else --kv-dtype for both, else f16, whatever the model's dtype."""
    both = "fp16" if s.kv_dtype == "auto" else s.kv_dtype
    k, v = (kv_layout(asked or both, field) for asked, field in ((s.cache_type_k, "cache_type_k"), (s.cache_type_v, "cache_type_v")))
    for found in (k, v):
        if found.name not in TYPES:
            raise UnsupportedValue("kv_dtype_not_in_engine", field="kv_dtype", value=found.name, engine=NAME, known=", ".join(TYPES))
    return k if k == v else KvLayout(name=f"{k.name}/{v.name}", element=k.element, v_element=v.element)


# -- the cache ---------------------------------------------------------------------------------------------------------


def allocate(model: ModelSpec, setting: Setting) -> Allocation:
    """The whole cache, split by where its layers lie. Raises what llama.cpp itself refuses."""
    context = setting.context
    assert context is not None
    kept = kept_by_layer(model, setting)
    on_device = device_layers(model, context)
    slots = Slots(most=MAX_SEQUENCES, sequences=context.sequences if context.given_sequences else 0,
                  tokens=(context.n_ctx if context.unified else context.n_ctx_seq) if context.given_cells else 0, unified=context.unified)  # fmt: skip
    device = Pool(name="kv", groups=_groups([(k, i) for k, i in kept if i in on_device], context), slots=slots)
    host = Pool(name="host", groups=_groups([(k, i) for k, i in kept if i not in on_device], context), slots=slots)
    notes: tuple[Note, ...] = ()
    unused = {k.limit for k, _ in kept if k.limit and not k.capped}
    if unused and not context.swa_full:
        notes += (note("warning", "llamacpp_window_unused", field="sliding_window", window=max(unused), architecture=archs.architecture(model), source=SOURCE),)
    if context.gpu_layers is not None and model.draft_layers:
        notes += (note("assumed", "llamacpp_file_drafts", field="n_gpu_layers", layers=len(model.draft_layers), source=SOURCE),)
    if host.groups:
        notes += (note("derived", "llamacpp_host", field="n_gpu_layers", layers=on_device.start, of=len(model.layers)),)
    return Allocation(stages=((device,),), notes=notes, host=(host,) if host.groups else (), device_layers=on_device)


def device_layers(model: ModelSpec, context: Context) -> range:
    """The layers on the device: the last ones, the output layer counted first (``i_gpu_start = n_layer + 1 - n_gpu_layers``)."""
    count = max(len(model.layers), model.encoder_layers)
    blocks = count + file_drafts(model)
    first = 0 if context.gpu_layers is None else max(0, blocks + 1 - context.gpu_layers)
    return range(min(first, count), count)


def file_drafts(model: ModelSpec) -> int:
    """MTP blocks behind the stack of a GGUF: they take the first places on the device and cache nothing in a normal context."""
    return next((int(dict(n.args)["layers"]) for n in model.notes if n.code == "gguf_drafts"), 0)


def _groups(kept: Iterable[tuple[Kept, int]], context: Context) -> tuple[Group, ...]:
    members: dict[Kept, list[int]] = {}
    for k, i in kept:
        members.setdefault(k, []).append(i)
    return tuple(_group(k, tuple(where), context) for k, where in members.items())


def _group(k: Kept, layers: tuple[int, ...], context: Context) -> Group:
    if k.state_bytes:
        term = Term(unit_bytes=k.state_bytes, unit_tokens=None, extra_units=context.state_copies)
        return Group(kind=k.kind, layers=layers, admission=term, resident=term, content_bytes=len(layers) * k.state_bytes)
    cap = k.limit + context.batch if k.capped and k.limit else None
    term = Term(unit_bytes=PAD * k.cell_bytes, unit_tokens=PAD * k.ratio, cap_tokens=cap)
    return Group(kind=k.kind, layers=layers, admission=term, resident=term, content_bytes=len(layers) * PAD * k.content_bytes, limit_tokens=k.limit)


def printed_tokens(setting: Setting, pool: Pool, blocks: int, blocks_per_request: int) -> int:
    """Cells of all streams together: N x T of "size = ... (N cells, L layers, S/T seqs)"."""
    assert setting.context is not None
    return setting.context.n_ctx
