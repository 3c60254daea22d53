"""What is asked of the probe and what it answers. No torch: the web process reads these."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from planner.dtypes import dtype
from planner.errors import InvalidInput, UnsupportedValue

# fp8 alone has the scale 1; per_token_head formats keep a float32 scale beside each head's K and V. Others are refused by name.
KV_DTYPES = ("auto", "fp32", "bf16", "fp16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_per_token_head", "int8_per_token_head")
LIMITS: dict[str, tuple[int, int]] = {
    "batch": (1, 1024),
    "prompt": (1, 1_000_000),
    "output": (1, 100_000),
    "block_size": (1, 4096),
    "seed": (0, 2**31),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRequest:
    """One run: `batch` sequences of `prompt` tokens each, `output` tokens decoded. `layers` None: as many as memory and time allow.
    `shared_prefix`: so many first tokens are the same in all sequences, and their whole blocks are kept once."""

    device: str = "auto"
    batch: int = 2
    prompt: int = 128
    output: int = 16
    layers: int | None = None
    block_size: int = 16
    kv_dtype: str = "auto"
    backend: str = "auto"
    seed: int = 0
    time_limit_s: float = 120.0
    memory_cap_bytes: int | None = None
    shared_prefix: int = 0

    def checked(self) -> ProbeRequest:
        """The same request with the usual aliases of the KV dtype resolved. Raises InvalidInput or UnsupportedValue with the field."""
        for name, (low, high) in LIMITS.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise InvalidInput("out_of_range", field=name, value=value, low=low, high=high)
        shared = self.shared_prefix
        if isinstance(shared, bool) or not isinstance(shared, int) or not 0 <= shared <= self.prompt:
            raise InvalidInput("out_of_range", field="shared_prefix", value=shared, low=0, high=self.prompt)
        if not 0 < self.time_limit_s <= 86_400:
            raise InvalidInput("out_of_range", field="time_limit", value=self.time_limit_s, low=1, high=86_400)
        name = self.kv_dtype if self.kv_dtype in KV_DTYPES or self.kv_dtype.endswith("_per_token_head") else dtype(self.kv_dtype, "kv_dtype").name
        if name not in KV_DTYPES:
            raise UnsupportedValue("probe_kv_dtype", field="kv_dtype", value=name, known=", ".join(KV_DTYPES))
        return ProbeRequest(**{**asdict(self), "kv_dtype": name})

    def tokens(self) -> int:
        """Tokens that each sequence holds at the end. The last one decoded is fed through once more, so that it has its row too."""
        return self.prompt + self.output

    def shared_tokens(self) -> int:
        """Tokens in the blocks that sequences share: whole blocks, and never the prompt's last token, which each computes itself."""
        return min(self.shared_prefix, self.prompt - 1) // self.block_size * self.block_size if self.batch > 1 else 0

    def to_args(self) -> list[str]:
        """The options of `python -m gpu_probe run` that ask for this; with "=", so that no value can pass for an option."""
        options = {
            "device": self.device, "batch": self.batch, "prompt": self.prompt, "output": self.output, "layers": self.layers,
            "block-size": self.block_size, "kv-dtype": self.kv_dtype, "backend": self.backend, "seed": self.seed, "time-limit": self.time_limit_s,
            "memory-cap": self.memory_cap_bytes, "shared-prefix": self.shared_prefix or None,
        }  # fmt: skip
        return [f"--{option}={value}" for option, value in options.items() if value is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRow:
    """One line of the table: what the planner predicts, what the run found, and how it was found. None: no such figure."""

    name: str
    predicted: float | int | None
    measured: float | int | None
    how: str
    unit: str = "bytes"
    exact: bool = False
    """True: the two must be equal, to the byte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """The answer. Times in seconds, sizes in bytes, `tokens_per_s` over the whole batch, prefill included.

    `measured_kv_bytes` includes `scale_bytes`. `lines`: a dict a layer. `levels`: bytes in tensors, in the allocator's blocks, reserved
    by it and used on the device; None where the device does not tell. `kv_accuracy`: a narrow cache against bf16, with its tolerance.
    `ceilings`, `overhead`: as `calibration.of` takes them. `roofline`: of `timing.roofline`, `capacity`: of `capacity.capacity`.
    `memory`: peaks of prefill and decode, workspace, what lies between the levels, and the process's own memory.
    """

    predicted_kv_bytes: int
    measured_kv_bytes: int
    ttft_s: float
    itl_s: dict[str, float]
    tokens_per_s: float
    prefill_tokens_per_s: float
    decode_tokens_per_s: float
    logits_max_rel_error: float | None
    absorbed_vs_expanded_max_rel_error: float | None
    device: str
    device_name: str
    backend: str
    layers_run: int
    layers_total: int
    predicted_kv_bytes_all_layers: int
    kv_dtype: str
    compute_dtype: str
    model: dict[str, Any]
    request: dict[str, Any]
    cuts: dict[str, Any]
    groups: tuple[dict[str, Any], ...]
    proof: dict[str, Any]
    step_s: tuple[float, ...]
    versions: dict[str, str]
    rows: tuple[ProbeRow, ...]
    backends_refused: tuple[dict[str, str], ...] = ()
    notes: tuple[dict[str, str], ...] = ()
    predicted_scale_bytes: int = 0
    scale_bytes: int = 0
    predicted_table_bytes: int = 0
    table_bytes: int = 0
    lines: tuple[dict[str, Any], ...] = ()
    fragmentation: dict[str, Any] = field(default_factory=dict)
    levels: dict[str, int | None] = field(default_factory=dict)
    kv_accuracy: dict[str, Any] | None = None
    ceilings: dict[str, Any] = field(default_factory=dict)
    overhead: dict[str, Any] = field(default_factory=dict)
    roofline: dict[str, Any] = field(default_factory=dict)
    capacity: dict[str, Any] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)
    wall_s: float = 0.0
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def bytes_agree(self) -> bool:
        return self.predicted_kv_bytes == self.measured_kv_bytes

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ProbeResult:
        """Reads what `to_json` wrote, after a trip through JSON. Keys of a newer version are kept in `extra`."""
        known = {f.name for f in fields(cls)}
        values = {k: v for k, v in data.items() if k in known}
        values["rows"] = tuple(ProbeRow(**r) for r in data["rows"])
        for name in ("groups", "step_s", "notes", "lines", "backends_refused"):
            values[name] = tuple(data.get(name, ()))
        values["extra"] = {**data.get("extra", {}), **{k: v for k, v in data.items() if k not in known}}
        return cls(**values)
