"""The self-test of a backend: the job's own shape over a few shuffled pages, against float64. About a millisecond of work.

Three ragged sequences, one of them of a single token; queries large enough that the softmax has peaks, so that a wrong scale, a
dropped softcap or sink, or a page of another sequence shows.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gpu_probe.backends.base import Backend, Job, Reads, reference

TOLERANCE = {4: 1e-5, 2: 1e-2, 1: 1e-2}
"""Largest difference over the largest number of the answer, by bytes of the wider of two dtypes that rounds: the compute dtype."""


def failure(backend: Backend, job: Job, device: torch.device) -> str | None:
    """None, or what the backend got wrong."""
    q, keys, values, reads = case(job, device)
    got = backend.decode(q, keys, values, reads, job.v_dim)
    want = reference(q, keys, values, reads, job.v_dim)
    if got.shape != want.shape:
        return f"self-test: shape {tuple(got.shape)}"
    error = ((got.cpu().double() - want).abs().max() / want.abs().max()).item()
    limit = TOLERANCE[job.compute.itemsize]
    return None if error <= limit else f"self-test: {error:.1e} > {limit:.0e}"  # a NaN is not <= either


def case(job: Job, device: torch.device, lengths: tuple[int, ...] = (37, 1, 22), seed: int = 0) -> tuple[Tensor, Tensor, Tensor | None, Reads]:
    """Random q, pages and reads of the job's shape. A limited job reads about half of the tokens."""
    g = torch.Generator().manual_seed(seed)
    columns = [max(1, -(-n // job.block_size)) for n in lengths]
    blocks = torch.randperm(sum(columns) + 2, generator=g).tolist()
    table = torch.zeros(len(lengths), max(columns), dtype=torch.int64)
    for row, count in enumerate(columns):
        table[row, :count] = torch.tensor([blocks.pop() for _ in range(count)])
    pages = (sum(columns) + 2, job.block_size, job.kv_heads)
    keys = torch.randn(*pages, job.k_dim, generator=g).to(job.storage).to(device)
    values = None if job.latent else torch.randn(*pages, job.v_dim, generator=g).to(job.storage).to(device)
    shape = (len(lengths), job.kv_heads, job.q_heads // job.kv_heads)
    q = (2 * torch.randn(*shape, job.k_dim, generator=g)).to(job.compute).to(device)
    begins = tuple(n - max(1, n // 2 - 1) if job.limited and n else 0 for n in lengths)
    sinks = torch.randn(shape[1:], generator=g).to(device) if job.sinks else None
    return q, keys, values, Reads(table=table.to(device), begins=begins, ends=lengths, scale=1 / math.sqrt(job.k_dim), softcap=3.0 if job.softcap else None,
                                  sinks=sinks)  # fmt: skip
