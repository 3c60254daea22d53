"""The C++ kernel of native_cpu.cpp: compiled on this machine for this processor when it is first wanted, and kept per user.

A binary is never shipped and never taken from a folder that others may write to. The file's name is a hash of the source, the
compiler's options and the processor's flags: another processor (a home on a network disk, a moved image) compiles anew.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import torch
from torch import Tensor

from gpu_probe.backends.base import BackendFailed, Job, Reads

SOURCE = Path(__file__).with_suffix(".cpp")
# No -ffast-math: -infinity is the mask of the softmax, and -fno-finite-math-only says so whatever a compiler's default is.
OPTIONS = ("-O2", "-march=native", "-std=c++17", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-fno-finite-math-only",
           "-shared", "-fPIC", "-pthread")  # fmt: skip
BUILD_LIMIT_S = 60
ELEMENTS = {torch.float32: "float", torch.bfloat16: "uint16_t"}
"""Dtype of the pages -> the C++ type of a number. Each is a library of its own: half the time to compile."""


class NativeCpu:
    """Queries and answers pass in float32 whatever the pages' dtype: the kernel computes in it."""

    name = "native-cpu"

    def __init__(self) -> None:
        self._libraries: dict[torch.dtype, ctypes.CDLL] = {}

    def supports(self, job: Job, device: torch.device) -> str | None:
        if device.type != "cpu":
            return "host only"
        if job.storage not in ELEMENTS:
            return f"pages of {str(job.storage).removeprefix('torch.')}"
        width = self._load(job.storage).paged_width()
        return None if job.k_dim % width == 0 and job.v_dim % width == 0 else f"head sizes not a multiple of {width}"

    def decode(self, q: Tensor, keys: Tensor, values: Tensor | None, reads: Reads, v_dim: int) -> Tensor:
        """See `base.Backend`."""
        b, k_heads, g, d = q.shape
        wide = q.to(torch.float32).contiguous()
        out = torch.empty(b, k_heads, g, v_dim, dtype=torch.float32)
        table = reads.table.to(torch.int32).contiguous()
        begins, ends = (torch.tensor(x, dtype=torch.int32) for x in (reads.begins, reads.ends))
        sinks = None if reads.sinks is None else reads.sinks.to(torch.float32).contiguous()
        assert keys.is_contiguous()
        assert values is None or values.is_contiguous()
        sizes = (ctypes.c_int32 * 8)(b, k_heads, g, d, v_dim, keys.shape[1], table.shape[1], max(1, torch.get_num_threads()))
        at = [ctypes.c_void_p(None if x is None else x.data_ptr()) for x in (wide, keys, values, table, begins, ends, sinks)]
        self._load(keys.dtype).paged_decode(*at, sizes, ctypes.c_float(reads.scale), ctypes.c_float(reads.softcap or 0.0), ctypes.c_void_p(out.data_ptr()))
        return out.to(q.dtype)

    def _load(self, dtype: torch.dtype) -> ctypes.CDLL:
        if dtype not in self._libraries:
            self._libraries[dtype] = ctypes.CDLL(str(built(ELEMENTS[dtype])))
        return self._libraries[dtype]


def built(element: str) -> Path:
    """The shared library for this processor and this C++ type of the pages, compiled if it is not there yet. Raises BackendFailed with the reason."""
    compiler = shutil.which("g++")
    if compiler is None:
        raise BackendFailed("no g++")
    folder = _folder()
    target = folder / f"paged-{element}-{_fingerprint(compiler)}.so"
    if not target.exists():
        _clear(folder)
        with tempfile.TemporaryDirectory(dir=folder) as work:
            made = Path(work) / "paged.so"
            try:
                command = [compiler, *OPTIONS, f"-DELEMENT={element}", str(SOURCE), "-o", str(made)]
                done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_LIMIT_S, check=False)
            except (OSError, subprocess.TimeoutExpired) as e:
                raise BackendFailed(f"g++: {type(e).__name__}") from e
            if done.returncode:
                raise BackendFailed(f"g++: {(done.stderr.strip().splitlines() or ['?'])[0][:160]}")
            made.replace(target)  # in one step: two processes may build at once
    return target


def _clear(folder: Path) -> None:
    """Takes away what a build that was killed has left."""
    for left in folder.glob("tmp*"):
        with contextlib.suppress(OSError):  # another process took it away
            if time.time() - left.stat().st_mtime > 2 * BUILD_LIMIT_S:
                shutil.rmtree(left)


def _folder() -> Path:
    """A folder that only this user can write to. Raises BackendFailed where there is none."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kvledger" / "native"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = folder.stat()
    except OSError as e:
        raise BackendFailed(f"{folder}: {e.strerror}") from e
    if found.st_mode & 0o022 or (hasattr(os, "getuid") and found.st_uid != os.getuid()):
        raise BackendFailed(f"{folder}: writable by others")
    return folder


def _fingerprint(compiler: str) -> str:
    try:
        flags = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        flags = platform.machine() + platform.processor()
    text = "\0".join((flags, compiler, *OPTIONS)).encode() + SOURCE.read_bytes()
    return hashlib.sha256(text).hexdigest()[:20]
