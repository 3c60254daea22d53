"""The Triton kernels as a backend of paged decode attention (CUDA and ROCm; on a CPU only interpreted, for tests)."""

from __future__ import annotations

import torch
from torch import Tensor

from gpu_probe.backends import triton_decode
from gpu_probe.backends.base import Job, Reads
from planner.messages import render

COMPUTES = (torch.float32, torch.bfloat16, torch.float16)
STORES = (*COMPUTES, torch.float8_e4m3fn, torch.float8_e5m2)


class TritonBackend:
    """Keeps the last step's token ranges on the device: all layers of a step share one `Reads`."""

    name = triton_decode.NAME

    def __init__(self) -> None:
        self._step: tuple[Reads, Tensor, Tensor] | None = None

    def supports(self, job: Job, device: torch.device) -> str | None:
        if job.compute not in COMPUTES or job.storage not in STORES:
            return f"{job.storage}, {job.compute}"
        layout = triton_decode.Layout(job.q_heads // job.kv_heads, job.k_dim, job.v_dim, job.latent, job.block_size, job.compute.itemsize)
        reason = triton_decode.supports(device, layout)
        return None if reason is None else render(f"backend.triton.{reason}")

    def decode(self, q: Tensor, keys: Tensor, values: Tensor | None, reads: Reads, v_dim: int) -> Tensor:
        """See `base.Backend`."""
        batch, kv_heads, group, dim = q.shape
        begins, ends = self._ranges(reads, q.device)
        flat = q.reshape(batch, kv_heads * group, dim)
        sinks = None if reads.sinks is None else reads.sinks.flatten()
        if values is None:
            out = triton_decode.mla_decode(
                flat, keys, reads.table, ends, rank=v_dim, scale=reads.scale, softcap=reads.softcap or 0.0, sinks=sinks, begins=begins
            )
        else:
            out = triton_decode.gqa_decode(flat, keys, values, reads.table, ends, scale=reads.scale, softcap=reads.softcap or 0.0, sinks=sinks, begins=begins)
        return out.view(batch, kv_heads, group, v_dim)

    def _ranges(self, reads: Reads, device: torch.device) -> tuple[Tensor, Tensor]:
        if self._step is None or self._step[0] is not reads:
            begins, ends = torch.tensor([reads.begins, reads.ends], dtype=torch.int32).to(device)
            self._step = reads, begins, ends
        return self._step[1], self._step[2]
