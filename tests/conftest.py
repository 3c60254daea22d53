"""Shared by all tests: the network is closed but for loopback, the corpus is found or its absence is said."""

from __future__ import annotations

import csv
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from planner.errors import PlannerError

# The same examples on every machine; `make check-all` looks for new ones.
hypothesis.settings.register_profile("same", derandomize=True)
hypothesis.settings.register_profile("search", max_examples=1000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

ROOT = Path(__file__).resolve().parents[1]
CORPUS = Path(os.environ.get("KVLEDGER_CORPUS") or ROOT.parent / "shared" / "corpus")
CONFIGS = Path(__file__).parent / "configs"
MEASURING = (
    "test_bench",
    "test_client",
    "test_dist",
    "test_gpu_check",
    "test_measure",
    "test_pace",
    "test_run",
    "test_safety",
    "test_suite",
    "test_suite_client",
)
LOOPBACK = ("127.0.0.1", "::1", "localhost")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What measures this host runs alone (`make test` runs the others side by side, those with a browser two at a time); what takes minutes
    runs where it is asked for (`make check-all`)."""
    if os.environ.get("KVLEDGER_CHECK_ALL") != "1":
        long = [item for item in items if item.get_closest_marker("check_all")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]
    for item in items:
        if item.path.parent.name == "gpu_probe" and item.path.stem in MEASURING:
            item.add_marker(pytest.mark.alone)


@pytest.fixture(autouse=True, scope="session")
def _history_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Kept plans go to a file of this run, also those of a server that it starts: never to the history of whoever runs the tests."""
    os.environ["KVLEDGER_DATABASE"] = f"sqlite:///{tmp_path_factory.mktemp('history') / 'kept.sqlite3'}"


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any connection that leaves this machine is a fault of the test or of the product."""
    real = socket.socket.connect

    def connect(self: socket.socket, address: Any) -> Any:
        if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in LOOPBACK:
            raise AssertionError(f"a test tried to reach {address[0]}")
        return real(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect)


def corpus_file(name: str) -> Path:
    """A file of the corpus; without it the test is skipped with the reason, or fails where the corpus is required."""
    path = CORPUS / name
    if not path.exists():
        reason = f"the corpus has no {name} at {CORPUS} (set KVLEDGER_CORPUS)"
        if os.environ.get("KVLEDGER_REQUIRE_CORPUS"):
            pytest.fail(reason)
        pytest.skip(reason)
    return path


def corpus_rows(name: str) -> list[dict[str, str]]:
    with corpus_file(name).open(newline="") as f:
        return list(csv.DictReader(f))


def small_configs() -> Iterator[tuple[str, dict[str, Any]]]:
    """One hand-written config a family: (name, config)."""
    for path in sorted(CONFIGS.glob("*.json")):
        yield path.stem, json.loads(path.read_text())


@contextmanager
def refused(error: type[PlannerError], field: str) -> Iterator[None]:
    """The block must raise `error` for `field`, in words and with a way out."""
    with pytest.raises(error) as caught:
        yield
    assert caught.value.field == field
    assert caught.value.message
    assert caught.value.hint
