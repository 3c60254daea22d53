"""Every kind of thing that one gives or makes, against everybody else's pages: A acts, B, whose session is older, looks.

A kind has marks: strings that show on A's pages once A has acted, and that must stand in no text, no state and no address of B.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from streamlit.runtime.caching import cache_resource_api
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.local_script_runner import LocalScriptRunner

from pages.parts import sweep_view
from planner import messages
from planner.sweep import run as sweep
from tests.conftest import ROOT
from tests.pages.conftest import fresh, upload
from tests.pages.hostile import changed
from tests.pages.test_diagnose_page import planned
from tests.pages.test_history_page import A, B, save, session
from tests.pages.test_load_page import TRACE
from tests.pages.test_mix import LONG
from tests.pages.test_probe_results import RAW
from tests.pages.test_suite_upload import SUITE
from tests.pages.texts import texts
from tests.planner.test_calibrate import csv_of, measured
from tests.planner.test_diagnose import METRICS

MARK = "Zmarkerzz"
LOG = "INFO 11-29 10:00:00 [core.py:1] GPU KV cache size: 123,457 tokens"
COMPARISON = {"format": "kvledger-comparison", "columns": [{"scenario": {}}, {"scenario": {"gpu": f"own:{MARK} 48GiB"}}]}
RANDOM = re.compile(r"0x[0-9a-f]+|[0-9a-f]{8}-[0-9a-f-]{27}")  # addresses and ids, which may hold any digits
FIRST_POINTS, ALL_POINTS = 7, 9973


@pytest.fixture(autouse=True)
def _a_session_each(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The harness gives all its sessions one name, and with it one job: here each has its own, as on a server."""
    real, names = LocalScriptRunner.__init__, set()

    def init(self: LocalScriptRunner, path: str, state: Any, *more: Any, **others: Any) -> None:
        real(self, path, state, *more, **others)
        self._session_id = f"session {id(state)}"
        names.add(self._session_id)

    monkeypatch.setattr(LocalScriptRunner, "__init__", init)
    yield
    for name in names:
        cache_resource_api.clear_session_cache(name)


def seen(at: AppTest) -> str:
    """All texts of the page that it is on, all that its session keeps, and its address."""
    assert not at.exception
    return "\n".join(t for _, t in texts(at)) + RANDOM.sub("", str(at.session_state)) + str(dict(at.query_params))


def at_page(at: AppTest, page: str) -> AppTest:
    return at.switch_page(page).run()


def file(at: AppTest, key: str, name: str, data: Any, mime: str = "application/json") -> AppTest:
    body = data if isinstance(data, bytes) else (data if isinstance(data, str) else json.dumps(data)).encode()
    return at.file_uploader(key=key).set_value((name, body, mime)).run()


def opened(at: AppTest, key: str) -> AppTest:
    at.session_state[key] = True
    return at.run()


# -- what A does, and where -----------------------------------------------------------------------------------------------------


def _upload(a: AppTest) -> AppTest:
    return upload(a, (f"{MARK}.json", changed(num_hidden_layers=16, _name_or_path=MARK)))


def _several(a: AppTest) -> AppTest:
    return upload(a, (f"{MARK}.json", changed()), (f"{MARK}2.json", b"["))


def _paste(a: AppTest) -> AppTest:
    return a.text_area(key="paste").set_value(changed(num_hidden_layers=8, _name_or_path=MARK).decode()).run()


def _rows(a: AppTest) -> AppTest:
    at_page(a, "layers.py").number_input(key="rule_window").set_value(77773).run()
    a.button(key="use_rule").click().run()
    return a.button(key="apply_layers").click().run()


def _own_gpu(a: AppTest) -> AppTest:
    opened(a, "own_gpu").number_input(key="own_gpu_memory").set_value(48.5)
    a.text_input(key="own_gpu_name").set_value(MARK)
    return a.button(key="own_gpu_take").click().run()


def _advanced(a: AppTest) -> AppTest:
    opened(a, "advanced").number_input(key="max_num_seqs").set_value(77773)
    return a.number_input(key="sequences").set_value(98_765).run()


def _calibration(a: AppTest) -> AppTest:
    at_page(a, "serve.py").text_area(key="calibrate_points").set_value(csv_of(measured(planned(), 1.737)).decode()).run()
    return a.button(key="calibrate_use").click().run()


def _columns(a: AppTest) -> AppTest:
    at_page(a, "compare.py").selectbox(key="column_field").set_value("sequences").run()
    a.number_input(key="column_to_sequences_0").set_value(98_765)
    return a.button(key="column_add").click().run()


def _comparison(a: AppTest) -> AppTest:
    return file(at_page(a, "compare.py"), "column_file", "kv-compare.json", COMPARISON)


def _trace(a: AppTest) -> AppTest:
    at_page(a, "serve.py").toggle(key="serve_simulate").set_value(True).run()
    return file(a, "serve_trace", f"{MARK}.csv", TRACE, "text/csv")


def _mix(a: AppTest) -> AppTest:
    return file(opened(a, "mix"), "mix_csv", f"{MARK}.csv", LONG, "text/csv")


def _log(a: AppTest) -> AppTest:
    return at_page(a, "reconcile.py").text_area(key="log_paste_0").set_value(LOG).run()


def _log_file(a: AppTest) -> AppTest:
    return file(at_page(a, "reconcile.py"), "log_upload_0", "x.log", LOG, "text/plain")


def _diagnosis(a: AppTest) -> AppTest:
    return at_page(a, "diagnose.py").text_area(key="diagnose_paste").set_value(f"{METRICS}\n# {MARK}").run()


def _probe(a: AppTest) -> AppTest:
    return file(at_page(a, "validate.py"), "probe_upload", "r.json", {**RAW, "device_name": MARK})


def _suite(a: AppTest) -> AppTest:
    return file(at_page(a, "validate.py"), "probe_upload", "s.json", {**SUITE, "device_name": MARK})


def _language(a: AppTest) -> AppTest:
    return a.selectbox(key="lang").set_value("ko").run()


def _search(a: AppTest) -> AppTest:
    return a.text_input(key="hub_search").set_value(MARK).run()


def _harmless(a: AppTest) -> AppTest:
    return a.text_input(key="harmless").set_value(MARK).run()


@dataclass(frozen=True)
class Kind:
    """What A does, what shows of it, on which pages B could see it, and which of the widgets that take a text or a file it fills."""

    act: Callable[[AppTest], AppTest]
    marks: tuple[str, ...]
    pages: tuple[str, ...]
    fills: tuple[str, ...] = ()


PLANNED = ("plan.py", "layers.py", "compare.py", "report.py", "learn.py")
KINDS = {
    "upload": Kind(_upload, (MARK,), (*PLANNED, "serve.py", "validate.py"), ("uploads",)),
    "several uploads": Kind(_several, (MARK,), ("plan.py",)),
    "paste": Kind(_paste, (MARK,), (*PLANNED, "sweep.py"), ("paste",)),
    "layer rows": Kind(_rows, ("77773", "77,773"), ("layers.py", "plan.py"), ("layer_editor",)),
    "own GPU": Kind(_own_gpu, (MARK,), (*PLANNED, "sweep.py", "reconcile.py")),
    "choices": Kind(_advanced, ("98765", "98,765", "77773", "77,773"), (*PLANNED, "serve.py", "diagnose.py")),
    "calibration": Kind(_calibration, ("1.737", "1.7370"), ("serve.py", "plan.py", "report.py"), ("calibrate_points",)),
    "columns": Kind(_columns, ("98765", "98,765"), ("compare.py", "report.py")),
    "comparison's file": Kind(_comparison, (MARK,), ("compare.py", "plan.py"), ("column_file",)),
    "trace": Kind(_trace, (MARK,), ("serve.py", "report.py"), ("serve_trace",)),
    "mix": Kind(_mix, (MARK,), ("plan.py", "serve.py", "report.py"), ("mix_csv",)),
    "log": Kind(_log, ("123457", "123,457"), ("reconcile.py", "report.py", "plan.py"), ("log_paste_",)),
    "log's file": Kind(_log_file, ("123457", "123,457"), ("reconcile.py",), ("log_upload_",)),
    "diagnosis": Kind(_diagnosis, (MARK,), ("diagnose.py", "report.py"), ("diagnose_paste",)),
    "probe's result": Kind(_probe, (MARK,), ("validate.py", "report.py"), ("probe_upload",)),
    "suite's result": Kind(_suite, (MARK,), ("validate.py", "report.py")),
    "hub's search": Kind(_search, (MARK,), ("plan.py",)),
    "harmless keys": Kind(_harmless, (MARK,), ("plan.py", "layers.py")),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_does_b_never_sees(kind: str) -> None:
    k = KINDS[kind]
    b, a = fresh(), k.act(fresh())
    here = [mark for mark in k.marks if mark in seen(a)]
    assert here, "A sees nothing of it: the test could not fail"
    if kind == "trace":  # B simulates too
        at_page(b, "serve.py").toggle(key="serve_simulate").set_value(True)
    for page in k.pages:
        found = seen(at_page(b, page))
        assert [m for m in k.marks if m in found] == [], page
    assert [m for m in here if m in seen(a.run())] == here, "and A still has it"
    newcomer = seen(at_page(fresh(), k.pages[0]))
    assert [m for m in k.marks if m in newcomer] == []


def test_every_text_and_file_that_a_page_takes_is_in_the_matrix() -> None:
    """A new field without a row here fails."""
    source = "\n".join(p.read_text() for p in (ROOT / "pages").rglob("*.py"))
    calls = re.findall(r"st\.(?:file_uploader|text_area|data_editor)\(.*?key=f?\"(\w+)", source, re.DOTALL)
    assert len(calls) == len(re.findall(r"st\.(?:file_uploader|text_area|data_editor|chat_input|camera_input|audio_input)\(", source))
    assert sorted(calls) == sorted(f for k in KINDS.values() for f in k.fills)


def test_a_language_is_a_sessions_own() -> None:
    """Both speak in turns, and each is answered in its own."""
    b, a = fresh(), _language(fresh())
    english, korean = messages.table("en"), messages.table("ko")
    for page in ("plan.py", "serve.py", "report.py"):
        name = f"page.{page.removesuffix('.py')}.question"
        assert at_page(a, page).header[0].value == korean[name]
        assert at_page(b, page).header[0].value == english[name]
        assert not [t for where, t in texts(b) if re.search("[\uac00-\ud7a3]", t) and t != korean["language.name"] and "options" not in where]
    assert "lang" not in b.query_params


def test_a_history_is_its_owners_on_every_page(kept: Any) -> None:
    a, b = session(A), session(B)
    save(a, MARK)
    assert MARK in seen(at_page(a, "history.py"))
    for at in (b, session(None)):
        for page in ("history.py", "plan.py", "validate.py", "compare.py", "report.py"):
            assert MARK not in seen(at_page(at, page)), page
    assert [k.name for k in kept.list(A)] == [MARK]
    assert kept.list(B) == ()


def test_a_running_sweep_is_one_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """B sees neither progress nor results of A's; B's own is another one, and cancelling it leaves A's."""
    go, totals = threading.Event(), iter((ALL_POINTS, 4321))

    def slow(*args: Any, step: Callable[[int, int], bool], **more: Any) -> Any:
        total = next(totals)
        while step(FIRST_POINTS, total) and not go.wait(0.01):
            pass
        return sweep(*args, step=step, **more)

    monkeypatch.setattr(sweep_view, "run", slow)
    monkeypatch.setattr(sweep_view, "FIRST_WAIT_S", 0.1)
    a = at_page(fresh(tokens="77777"), "sweep.py")
    b = fresh()
    assert str(ALL_POINTS) in seen(a).replace(",", "")
    mine = seen(at_page(b, "sweep.py")).replace(",", "")
    assert "4321" in mine
    assert [m for m in (str(ALL_POINTS), "77777") if m in mine] == []
    b.button(key="sweep_cancel").click().run()
    for _ in range(50):
        if "sweep_cancel" not in {x.key for x in b.button}:
            break
        b.run()
    assert any(messages.table("en")["page.sweep.nothing"] == i.value or messages.table("en")["page.sweep.cancelled"] == i.value for i in b.info)
    assert str(ALL_POINTS) in seen(a.run()).replace(",", ""), "A's still runs"
    go.set()
    for _ in range(50):
        if a.metric:
            break
        a.run()
    assert "77777" in seen(a).replace(",", "")
    for page in ("sweep.py", "report.py", "plan.py"):
        assert "77777" not in seen(at_page(b, page)).replace(",", "")
