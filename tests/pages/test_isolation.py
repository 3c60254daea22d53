"""Two people on one server: what one gives or makes is never seen by the other. Both sessions run in this process, one after the other, in turns."""

from __future__ import annotations

import csv
import io
import json
import logging
import traceback
from collections.abc import Iterator
from typing import Any

import openpyxl
import pytest
from markdown_it import MarkdownIt
from streamlit.testing.v1 import AppTest

from gpu_probe.client import InvalidInput, start, start_suite
from gpu_probe.result import ProbeRequest
from planner.errors import SourceError
from planner.report import write
from planner.report.csv import safe
from planner.sources import load
from tests.conftest import ROOT
from tests.fake_hub import GOOD_TOKEN, FakeHub, sample_hub
from tests.pages.conftest import fresh, shown, upload, values
from tests.pages.hostile import BASE, changed

MARK = "Zmarkerzz"


def everything(at: AppTest) -> str:
    """All that a session shows and keeps."""
    texts = [str(e.proto) for e in at.main] + [str(e) for e in at.main]
    return "\n".join(texts) + str(at.session_state) + str(dict(at.query_params))


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    with sample_hub() as started:
        monkeypatch.setenv("HF_ENDPOINT", started.url)
        monkeypatch.setenv("HF_TOKEN", "hf_servers_own_token_never_sent")
        yield started
        assert "servers_own" not in str(started.authorizations)


def test_an_upload_and_a_paste_stay_with_their_session() -> None:
    a, b = fresh(), fresh()
    upload(a, (f"{MARK}.json", changed(num_hidden_layers=16, _name_or_path=MARK)))
    b.run()
    assert values(a)["KV cache of the load"] == "8.00 GiB"
    assert values(b)["KV cache of the load"] == "16.00 GiB"
    assert MARK not in everything(b)
    a.text_area(key="paste").set_value(changed(num_hidden_layers=8, _name_or_path=MARK).decode()).run()
    b.run()
    assert MARK not in everything(b)
    assert MARK not in everything(fresh())


def test_a_gated_config_is_not_handed_on(hub: FakeHub) -> None:
    """With a token, then without one, then with it again: no shared cache in either direction."""
    a = fresh(model="acme/gated-llama")
    a.text_input(key="hub_token").set_value(GOOD_TOKEN).run()
    assert not a.error
    assert values(a)
    sent = len(hub.log)
    b = fresh(model="acme/gated-llama")
    assert "gated" in shown(b)
    assert len(hub.log) > sent, "it was asked for anew"
    assert set(hub.authorizations) == {f"Bearer {GOOD_TOKEN}"}
    assert GOOD_TOKEN not in everything(b)
    a.run()
    assert not a.error


def test_a_token_is_in_nothing_that_leaves_the_session(hub: FakeHub, caplog: pytest.LogCaptureFixture) -> None:
    """Address, pages, report, error text, log at its most talkative."""
    caplog.set_level(logging.DEBUG)
    token = "hf_" + MARK * 3
    for model in ("acme/gated-llama", "acme/tiny-llama", "acme/broken", "Llama-3.1-8B"):
        at = fresh(model=model)
        at.text_input(key="hub_token").set_value(token).run()
        at.switch_page("report.py").run()
        visible = "\n".join(str(e.proto) for e in at.main if getattr(e, "key", None) != "hub_token")
        assert token not in visible.replace(f'value: "{token}"', ""), model
        assert token not in str(dict(at.query_params))
        assert token not in shown(at)
    assert token not in caplog.text
    for source in ("acme/tiny-llama", "acme/gated-llama"):
        try:
            load(source, token=token, endpoint=hub.url)
            raise AssertionError("a token that nobody knows was taken")
        except SourceError:
            assert token not in traceback.format_exc()


def test_a_token_in_a_models_name_is_refused() -> None:
    at = fresh(model="https://huggingface.co/acme/x?token=hf_abcdefghijklmnop")
    assert "token" in shown(at)
    assert "hf_abcdefghijklmnop" not in shown(at)


def test_choices_and_columns_stay() -> None:
    a, b = fresh(), fresh()
    a.number_input(key="sequences").set_value(98_765).run()
    a.switch_page("compare.py").run()
    b.switch_page("compare.py").run()
    assert b.number_input(key="sequences").value == 16
    kept = str(b.session_state)
    a.button(key="column_add").click().run()
    assert "98765" in str(a.session_state)
    assert len(a.session_state["_columns"]) == 2
    b.run()
    assert "98765" not in str(b.session_state)
    assert len(str(b.session_state)) == len(kept)


def test_a_log_stays() -> None:
    a, b = fresh().switch_page("reconcile.py").run(), fresh().switch_page("reconcile.py").run()
    area = next((t for t in a.text_area if t.key != "paste"), None)
    assert area is not None
    area.set_value(f"INFO 11-29 10:00:00 [core.py:1] {MARK} GPU KV cache size: 123,456 tokens").run()
    b.run()
    assert MARK not in everything(b)
    assert "123,456" not in everything(b)


def test_probe_results_and_jobs_are_a_sessions_own() -> None:
    from pages.parts import jobs

    a, b = fresh(), fresh()
    a.session_state[jobs.RESULTS] = [MARK]
    b.switch_page("validate.py").run()
    assert MARK not in everything(b)
    assert jobs.RESULTS not in b.session_state


def test_nothing_shared_is_keyed_by_what_a_user_gives() -> None:
    """Streamlit's caches are shared by all sessions unless they say so; of Python's, those that keep a user's words are bounded and pure."""
    judged = {
        "planner/quantization/names.py": "names of weights and a model type -> paths of our own table",
        "planner/quantization/patterns.py": "paths of our own table -> their parts",
    }
    for path in (*(ROOT / "pages").rglob("*.py"), *(ROOT / "planner").rglob("*.py"), *(ROOT / "gpu_probe").rglob("*.py")):
        text, name = path.read_text(), path.relative_to(ROOT).as_posix()
        assert "cache_data" not in text, name
        if name != "pages/parts/history.py":  # the one database, whose rows have owners: tests/planner/test_store.py
            assert text.count("@st.cache_resource") == text.count('@st.cache_resource(scope="session"'), name
        if "@lru_cache(maxsize=" in text and name not in judged:
            assert "@lru_cache(maxsize=1)" in text or "@lru_cache(maxsize=2)" in text, name
        assert "@lru_cache(maxsize=None)" not in text, name


# -- runs on the server's own machine ----------------------------------------------------------------------------------------


def test_probes_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the page, and in the function behind it."""
    at = fresh().switch_page("validate.py").run()
    assert {"probe_start", "suite_start"} <= {b.key for b in at.button}
    monkeypatch.setenv("KVLEDGER_PROBE", "off")
    at = fresh().switch_page("validate.py").run()
    assert not at.exception
    assert not {"probe_start", "probe_cancel", "suite_start", "suite_cancel"} & {b.key for b in at.button}
    assert any("upload its result" in i.value for i in at.info)
    for ask in (lambda: start(json.loads(changed()), ProbeRequest()), start_suite):
        with pytest.raises(InvalidInput) as caught:
            ask()
        assert caught.value.code == "probe_off"


def test_probes_are_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpu_probe import client

    made: list[Any] = []

    class Fake:
        def __init__(self, command: list[str], *_: Any) -> None:
            self.command, self.living = command, True
            made.append(self)

        def alive(self) -> bool:
            return self.living

    monkeypatch.setattr(client, "ProbeRun", Fake)
    monkeypatch.setattr(client, "_torch", lambda: None)
    monkeypatch.setattr(client, "_CHILDREN", client.WeakSet())
    monkeypatch.setenv("KVLEDGER_PROBE_CHILDREN", "2")
    monkeypatch.setenv("KVLEDGER_PROBE_MEMORY", "1GiB")
    monkeypatch.setenv("KVLEDGER_PROBE_SECONDS", "60")
    config = json.loads(changed())
    start(config, ProbeRequest(time_limit_s=60))
    assert f"--memory-cap={2**30}" in made[0].command
    start(config, ProbeRequest(time_limit_s=60, memory_cap_bytes=2**29))
    with pytest.raises(InvalidInput) as caught:
        start(config, ProbeRequest(time_limit_s=60))
    assert caught.value.code == "probe_children"
    made[0].living = False
    start(config, ProbeRequest(time_limit_s=60))
    for wrong, field in ((ProbeRequest(time_limit_s=61), "time_limit"), (ProbeRequest(time_limit_s=60, memory_cap_bytes=2**30 + 1), "memory_cap")):
        with pytest.raises(InvalidInput) as caught:
            start(config, wrong)
        assert caught.value.field == field
    with pytest.raises(InvalidInput) as caught:
        start_suite(time_limit_s=61)
    assert caught.value.field == "time_limit"


def test_a_suite_is_capped_as_a_probe_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing else can be started from here: each command that the parent's side makes carries the cap."""
    from gpu_probe import client

    made: list[list[str]] = []
    monkeypatch.setattr(client, "SuiteRun", lambda command, *_: made.append(command) or Suite())
    monkeypatch.setattr(client, "_torch", lambda: None)
    monkeypatch.setattr(client, "_CHILDREN", client.WeakSet())
    monkeypatch.setenv("KVLEDGER_PROBE_MEMORY", "512MiB")
    start_suite()
    assert f"--memory-cap={2**29}" in made[0]
    source = (ROOT / "gpu_probe" / "client.py").read_text()
    assert source.count("*PROGRAM") == 2


class Suite:
    def alive(self) -> bool:
        return False


def test_a_probe_knows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpu_probe import client

    for name in ("HF_TOKEN", "KVLEDGER_DATABASE"):
        monkeypatch.setenv(name, MARK)
    assert MARK not in str(client._environment(None))


def test_a_formula_in_a_cell_is_quoted() -> None:
    for text in ("=1+1", "+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1"):
        assert safe(text).startswith("'"), text


NAMES = ("=cmd|' /C calc'!A0", "@SUM(1+1)*cmd|' /C calc'!A0", "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "![x](http://evil.test/x.png)",
         "[x](javascript:alert(1))", "a|b|c", "{{7*7}}", "x\n# Heading", "&lt;b&gt;")  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_no_markup_in_any_report(name: str) -> None:
    """The model's name and a declared key, as the file gives them."""
    config = {**BASE, "_name_or_path": name, "model_type": "llama"}
    options = {"tokens": 4096, "harmless": [name]}

    def made(fmt: str) -> bytes:
        return write(json.dumps(config), options, fmt)

    page = made("html").decode()
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    assert 'javascript:alert(1)"' not in page
    for cells in csv.reader(io.StringIO(made("csv").decode("utf-8-sig"))):
        assert not any(c.startswith(("=", "@", "\t", "\r")) for c in cells)
    book = openpyxl.load_workbook(io.BytesIO(made("xlsx")))
    assert not any(cell.data_type == "f" or cell.hyperlink for sheet in book for row in sheet for cell in row)
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(made("md").decode())
    inner = [t for token in tokens for t in (token, *(token.children or ()))]
    assert not [t for t in inner if t.type in ("html_block", "html_inline", "image")]
    assert not [t for t in inner if t.type == "link_open" and "javascript" in str(t.attrs.get("href"))]
    assert not [t for t in inner if t.type == "inline" and t.content == "Heading"]
