"""Which backend runs paged decode attention: a fixed order, a self-test at first use, and the reasons of those that do not.

`select` never falls through silently: what was refused, and why, travels with the choice into the result. A backend that is forced and
cannot run is an error.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass

import torch

from gpu_probe.backends.base import Backend, BackendFailed, Job
from gpu_probe.backends.selftest import failure
from gpu_probe.device import is_out_of_memory
from planner.errors import UnsupportedValue

FACTORIES: dict[str, tuple[str, str]] = {
    "triton": ("gpu_probe.backends.triton_backend", "TritonBackend"),
    "native-cpu": ("gpu_probe.backends.native_cpu", "NativeCpu"),
    "torch-chunked": ("gpu_probe.backends.torch_chunked", "TorchChunked"),
    "torch-gather": ("gpu_probe.backends.torch_gather", "TorchGather"),
}
"""Name -> module and class, imported when it is asked for: Triton, say, need not be installed."""
ORDER = {"cuda": ("triton", "torch-gather"), "cpu": ("native-cpu", "torch-chunked", "torch-gather")}
ANYWHERE = ("torch-gather",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The backend that runs, and who did not: ``{"name", "reason"}`` in the order in which they were asked."""

    backend: Backend
    refused: tuple[dict[str, str], ...]

    @property
    def name(self) -> str:
        return self.backend.name


_made: dict[str, Backend | str] = {}
_tested: dict[tuple[str, str, Job], str | None] = {}


def select(device: torch.device, job: Job, forced: str | None = None) -> Choice:
    """The first backend of the device's order that takes the job and passes its self-test. `forced`: this one or an error.

    Raises UnsupportedValue for a forced name that is unknown, refuses or fails, with its reason.
    """
    if forced is not None and forced not in FACTORIES:
        raise UnsupportedValue("probe_backend_unknown", field="backend", value=forced[:40], known=", ".join(FACTORIES))
    refused: list[dict[str, str]] = []
    for name in (forced,) if forced else ORDER.get(device.type, ANYWHERE):
        reason = _reason(name, device, job)
        made = _made[name]
        if reason is None and not isinstance(made, str):
            return Choice(backend=made, refused=tuple(refused))
        refused.append({"name": name, "reason": str(reason)})
    raise UnsupportedValue("probe_backend", field="backend", value=refused[-1]["name"], reason=refused[-1]["reason"])


def forget() -> None:
    """Drops what was made and tested in this process."""
    _made.clear()
    _tested.clear()


def _reason(name: str, device: torch.device, job: Job) -> str | None:
    """None: `name` can run the job here. The self-test runs once a process, backend, device and job."""
    if name not in _made:
        module, kind = FACTORIES[name]
        try:
            factory: Callable[[], Backend] = getattr(importlib.import_module(module), kind)
            _made[name] = factory()
        except Exception as e:  # whatever a missing or broken optional library raises: it is the reason
            _made[name] = f"{type(e).__name__}: {e}"[:200]
    backend = _made[name]
    if isinstance(backend, str):
        return backend
    key = (name, str(device), job)
    if key not in _tested:
        try:
            _tested[key] = backend.supports(job, device) or failure(backend, job, device)
        except BackendFailed as e:
            _tested[key] = str(e)
        except Exception as e:  # a backend that cannot even be asked is one that does not run
            if is_out_of_memory(e):  # that says nothing of the backend: the next one would not run either
                raise
            _tested[key] = f"{type(e).__name__}: {e}"[:200]
    return _tested[key]
