"""Where the model comes from: catalog, hub, uploads, paste. Errors stand in place and name the field; sessions share nothing."""

from __future__ import annotations

import json
import time
import tracemalloc

import pytest
from streamlit.testing.v1 import AppTest

from tests import gguf_file as make
from tests.fake_hub import GOOD_TOKEN, FakeHub
from tests.pages.conftest import fresh, shown, upload, values
from tests.pages.hostile import CASES, changed


@pytest.fixture(scope="module")
def one_session() -> AppTest:
    return fresh()


@pytest.mark.parametrize("name", CASES)
def test_a_broken_upload_is_refused_in_words(one_session: AppTest, name: str) -> None:
    data, field = CASES[name]
    at = one_session
    start = time.perf_counter()
    upload(at, (f"{name}.json", data))
    took = time.perf_counter() - start
    assert not at.exception
    assert len(at.error) == 1
    assert field in shown(at)
    assert "Traceback" not in shown(at)
    assert "![" not in at.error[0].value.replace("\\!\\[", "")
    assert values(at)["KV cache of the load"] == "16.00 GiB"
    assert took < 10


def test_the_deepest_and_longest_take_bounded_memory(at: AppTest) -> None:
    tracemalloc.start()
    upload(at, ("deep.json", CASES["deep_object"][0]), ("long.json", b"[" + b"1," * 8_000_000 + b"1]"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert not at.exception
    assert at.dataframe[0].value["error"].str.len().min() > 0
    assert peak < 100 * 10**6


def test_an_upload_becomes_the_model_and_can_be_left(at: AppTest) -> None:
    upload(at, ("config.json", changed(num_hidden_layers=16)))
    assert values(at)["KV cache of the load"] == "8.00 GiB"
    assert "config" in at.info[0].value
    at.button(key="leave_own").click().run()
    assert values(at)["KV cache of the load"] == "16.00 GiB"
    upload(at, ("config.json", changed(num_hidden_layers=8)))
    at.selectbox(key="model").set_value("Qwen3-8B").run()
    assert values(at)["KV cache of the load"] == "18.00 GiB"


def test_several_uploads_are_one_table_with_errors_in_place(at: AppTest) -> None:
    good = {"half.json": 16, "double.json": 64}
    files = [(name, changed(num_hidden_layers=n)) for name, n in good.items()] + [(f"{k}.json", v[0]) for k, v in CASES.items()]
    upload(at, *files)
    assert not at.exception
    table = at.dataframe[0].value.set_index("file")
    assert len(table) == len(files)
    assert list(table.loc[list(good), "load_gib"].round(2)) == [8.0, 32.0]
    assert list(table.loc[list(good), "token_bytes"]) == [65_536, 262_144]
    for name, (_, field) in CASES.items():
        assert field in table.loc[f"{name}.json", "error"], name
        assert table.loc[f"{name}.json", "error"]
    assert values(at)["KV cache of the load"] == "8.00 GiB"
    at.selectbox(key="file_choice").set_value(next(i for i, u in at.session_state["_uploads"].items() if u.name == "double.json")).run()
    assert values(at)["KV cache of the load"] == "32.00 GiB"


def test_the_beginning_of_a_gguf_is_a_model(at: AppTest) -> None:
    """Quantized weights by the table of the file, a cache of f16 all the same; a cut header says so."""
    raw = make.llama(16)
    upload(at, ("tiny-Q4_K_M.gguf", make.of(raw) + bytes(1 << 20)))
    assert not at.exception
    assert not at.error
    assert values(at)["KV cache of the load"] == "2.00 GiB"  # 2 x 16 layers x 4 x 64 x 8,192 x 16 x 2 bytes
    assert "tiny-Q4_K_M" in at.info[0].value.replace("\\", "")
    upload(at, ("cut.gguf", make.of(raw)[:500]))
    assert not at.exception
    assert "ends inside its header" in shown(at) + str(at.dataframe[0].value if at.dataframe else "")


def test_a_paste_becomes_the_model(at: AppTest) -> None:
    at.text_area(key="paste").set_value(changed(num_hidden_layers=16).decode()).run()
    assert values(at)["KV cache of the load"] == "8.00 GiB"
    at.text_area(key="paste").set_value('{"model_type": "llama"}').run()
    assert not at.exception
    assert "num_hidden_layers" in shown(at) or "hidden_size" in shown(at)


@pytest.mark.parametrize("asked", ["/etc/hosts", "./config.json", "~/.netrc"])
def test_a_server_opens_no_file_of_its_own(asked: str) -> None:
    at = fresh(model=asked)
    assert not at.exception
    assert "opens no file" in shown(at)


def test_a_hub_model_is_asked_for_once_and_its_token_stays_in_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeHub() as hub:
        hub.add("acme/half", {"config.json": changed(num_hidden_layers=16)}, gated="auto")
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        at = fresh(model="acme/half")
        assert "acme/half" in shown(at)
        assert not at.metric
        at.text_input(key="hub_token").set_value(GOOD_TOKEN).run()
        assert values(at)["KV cache of the load"] == "8.00 GiB"
        asked = len(hub.log)
        at.number_input(key="sequences").set_value(32).run()
        assert values(at)["KV cache of the load"] == "16.00 GiB"
        assert len(hub.log) == asked
        assert GOOD_TOKEN not in json.dumps(dict(at.query_params))
        stranger = fresh(model="acme/half")
        assert not stranger.metric


def test_sessions_share_nothing(at: AppTest) -> None:
    upload(at, ("mine.json", changed(num_hidden_layers=16)))
    at.number_input(key="sequences").set_value(2).run()
    other = fresh()
    assert values(other)["KV cache of the load"] == "16.00 GiB"
    assert not other.info
    assert not other.session_state["_uploads"]
