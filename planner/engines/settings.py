"""What an engine runs with once its defaults are filled in (Setting), what it allocates (Allocation), what it keeps (LedgerLine)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from planner.cache import Pool
from planner.dtypes import DTYPES, DType, KvLayout, dtype, kv_layout
from planner.errors import InvalidInput
from planner.model import ModelSpec
from planner.notes import Note
from planner.parallel import Parallel
from planner.scenario import Scenario

LineKind = Literal["measured", "documented", "derived", "assumed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """llama.cpp's context. `n_ctx`: cells in all, `n_ctx_seq`: cells of one sequence (all of them where `unified`), padded. `sequences`: n_seq_max.

    `given_sequences`, `given_cells`: whether they were asked for, so that a load beyond them does not fit. `batch`: tokens of one ubatch, as
    the context clamps it. `state_copies`: states kept of each sequence (one, and snapshots). `gpu_layers`: None: all, output layer counted.
    """

    n_ctx: int
    n_ctx_seq: int
    sequences: int
    unified: bool = False
    given_sequences: bool = False
    given_cells: bool = False
    batch: int = 512
    swa_full: bool = False
    flash_attention: bool = True
    state_copies: int = 1
    gpu_layers: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Everything that `allocate` may look at.

    `capability`: CUDA compute capability, None where unknown or not CUDA. `latent`: whether this release keeps MLA's latent.
    `draft_tokens`: tokens that a step drafts (speculation). `prints_concurrency`: the tokens that the engine prints are its concurrency
    x the largest length. `max_in_flight_tokens`: batched tokens of all batches that the scheduler may have running at once.
    `longest_possible`: the engine's own reading of the model's limit, where it differs. `own`: values that only this engine has.
    """

    engine: str
    version: str
    parallel: Parallel
    kv: KvLayout
    model_dtype: DType
    block_size: int | None = None
    max_model_len: int = 1
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    max_concurrent_batches: int = 1
    prefix_caching: bool = True
    hybrid_manager: bool = True
    memory_fraction: float = 1.0
    capability: tuple[int, int] | None = None
    encoder_tokens: int = 0
    draft_tokens: int = 0
    latent: bool = True
    asked_version: str | None = None
    prints_concurrency: bool = False
    context: Context | None = None
    longest_possible: int | None = None
    own: Any = None
    notes: tuple[Note, ...] = ()

    @property
    def context_ranks(self) -> int:
        return self.parallel.context

    @property
    def max_in_flight_tokens(self) -> int:
        return self.max_concurrent_batches * self.max_num_batched_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """Pools of one rank, for each pipeline stage; all tensor ranks of a stage hold alike. `host`: pools in the host's memory beside them;
    `device_layers`: the layers that the device has then (None: all of a stage)."""

    stages: tuple[tuple[Pool, ...], ...]
    notes: tuple[Note, ...] = ()
    host: tuple[Pool, ...] = ()
    device_layers: range | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How an engine cuts the bytes of a rank's cache into pools: `shares`, bytes of each pool in the order of the pools. `tokens`: the
    figure of its log; `printed`: all figures that it prints about its pools, by their names there."""

    shares: tuple[int, ...]
    tokens: int
    printed: tuple[tuple[str, int], ...] = ()
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLine:
    """Where some bytes of one device go. `code` names the line; `low_bytes`, `high_bytes`: its band where it is not exact."""

    code: str
    bytes: int
    kind: LineKind
    source: str = ""
    low_bytes: int | None = None
    high_bytes: int | None = None
    args: tuple[tuple[str, Any], ...] = field(default=())

    @property
    def name(self) -> str:
        from planner.messages import render

        return render(f"ledger.{self.code}", dict(self.args))

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {"code": self.code, "name": self.name, "bytes": self.bytes, "kind": self.kind, "source": self.source}
        if self.low_bytes is not None:
            out |= {"low_bytes": self.low_bytes, "high_bytes": self.high_bytes}
        return out


def parallel(s: Scenario) -> Parallel:
    """The degrees of one replica. ``gpus = tp x pp x replicas``; without --tp all GPUs of a stage form one tensor group."""
    if s.tp is None:
        if s.gpus % s.pp:
            raise InvalidInput("degree_not_dividing", field="pp", value=s.pp, whole=s.gpus, name="gpus")
        p = Parallel(tensor=s.gpus // s.pp, pipeline=s.pp, attention_data=s.dp_attention, expert=s.ep, context=s.dcp)
    else:
        p = Parallel(tensor=s.tp, pipeline=s.pp, attention_data=s.dp_attention, expert=s.ep, context=s.dcp)
    return p


def replicas(s: Scenario, p: Parallel) -> int:
    """How many copies of the model run on the GPUs; a remainder is refused. Fewer GPUs than one replica needs are raised to it."""
    if s.gpus == 1 and p.ranks > 1:
        return 1  # `--tp 8` alone says how many GPUs there are
    if s.gpus % p.ranks:
        raise InvalidInput("gpus_not_dividing", field="gpus", value=s.gpus, ranks=p.ranks)
    return s.gpus // p.ranks


def model_dtype(model: ModelSpec, s: Scenario) -> DType:
    """The dtype of what is kept in the model's own dtype: --dtype, else an explicit plain KV dtype, else the file's."""
    if s.dtype:
        return dtype(s.dtype, "dtype")
    if s.kv_dtype in ("bf16", "fp16", "fp32"):
        return DTYPES[s.kv_dtype]
    return model.dtype


def kv_dtype(model: ModelSpec, s: Scenario, *, follow_checkpoint: bool, own: DType) -> KvLayout:
    """--kv-dtype, else what the checkpoint asks for (engines that follow it), else `own`, the dtype the engine runs the model in."""
    if s.kv_dtype != "auto":
        return kv_layout(s.kv_dtype)
    if follow_checkpoint and model.kv_dtype_wish:
        return kv_layout(model.kv_dtype_wish)
    return kv_layout(own.name)
