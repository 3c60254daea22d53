"""A lock of their own for the probes that these tests start: another run on this machine must not make them wait. And the long tests
only where they are asked for."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from gpu_probe import lock


@pytest.fixture(autouse=True, scope="session")
def _own_lock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(lock.PATH_VARIABLE, str(tmp_path_factory.mktemp("lock") / "probe.lock"))
        yield


@pytest.fixture(autouse=True)
def _small_ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a host reads and multiplies is of no interest to most tests, and takes longer than their models."""
    from gpu_probe.figures import ceilings, pace

    monkeypatch.setattr(ceilings, "READ_BYTES", {"cpu": 2**20})
    monkeypatch.setattr(pace, "READ_BYTES", {"cpu": 2**20, "cuda": 2**20})
    monkeypatch.setattr(ceilings, "PRODUCT_SIZE", {"cpu": 64})


@pytest.fixture(autouse=True)
def _no_watchdog_left() -> Iterator[None]:
    """A watchdog ends the process it runs in: one that outlived its run would end the tests."""
    yield
    left = [t for t in threading.enumerate() if isinstance(t, threading.Timer) and t.is_alive() and not t.finished.is_set()]
    deadly = [t for t in left if t.function.__module__ in ("gpu_probe.__main__", "gpu_probe.gpu_check")]
    for t in deadly:
        t.cancel()
    assert not deadly
