"""What a user does, in a real browser: plan, upload, share, report, validate; on a desk and on a phone."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.conftest import Visit
from tests.pages.hostile import changed

pytestmark = pytest.mark.browser
Make = Callable[..., Visit]


def give(v: Visit, *files: tuple[str, bytes]) -> None:
    payload = [{"name": name, "mimeType": "application/json", "buffer": data} for name, data in files]
    v.page.locator('.st-key-uploads input[type="file"]').set_input_files(payload)


def fill(v: Visit, key: str, value: object) -> None:
    box = v.page.locator(f".st-key-{key} input").first
    box.fill(str(value))
    box.press("Enter")


def test_plan_upload_share_and_report(visit: Make) -> None:
    v = visit()
    page = v.open()
    assert v.metric("KV cache of the load") == "16.00 GiB"
    assert "2 x 32 layers" in page.inner_text('[data-testid="stMain"]')
    page.locator(".js-plotly-plot .main-svg").first.wait_for()
    v.shot("plan")

    # a link, opened by someone else, is the same plan; a reload keeps it
    fill(v, "sequences", 32)
    v.wait_metric("KV cache of the load", "32.00 GiB")
    fill(v, "tokens", 16384)
    v.wait_metric("KV cache of the load", "64.00 GiB")
    assert v.metric("This plan") == "DOES NOT FIT"
    page.locator(".st-key-advanced summary").click()
    page.get_by_text("Prefix caching", exact=True).click()
    page.wait_for_url("**prefix_caching=false**")
    v.settle()
    query = page.url.split("?")[1]
    other = visit()
    other.open(f"/?{query}")
    assert {k: other.metric(k) for k in ("This plan", "KV cache of the load", "Most sequences")} == {
        k: v.metric(k) for k in ("This plan", "KV cache of the load", "Most sequences")
    }
    assert other.page.locator(".st-key-prefix_caching input").first.is_checked() is False
    page.reload()
    v.wait_metric("KV cache of the load", "64.00 GiB")
    fill(v, "tokens", 8192)
    v.wait_metric("KV cache of the load", "32.00 GiB")

    # an upload changes the figure, in this session only
    give(v, ("config.json", changed(num_hidden_layers=16)))
    v.wait_metric("KV cache of the load", "16.00 GiB")
    assert "2 x 16 layers" in page.inner_text('[data-testid="stMain"]')
    stranger = visit()
    stranger.open("/?sequences=32")
    assert stranger.metric("KV cache of the load") == "32.00 GiB"
    assert "Planned from the upload" not in stranger.page.inner_text("body")

    # the report, downloaded and read back, says what the screen says
    page.get_by_role("link", name="Report").click()
    page.get_by_text("Show it to someone").wait_for()
    v.settle()
    with page.expect_download() as d:
        page.get_by_role("button", name="JSON", exact=True).click()
    body = json.loads(d.value.path().read_text())
    assert body["architecture_bytes"] == 2 * 16 * 8 * 128 * 8192 * 32 * 2 == 16 * 1024**3
    assert body["config"]["num_hidden_layers"] == 16
    assert body["provenance"]["kind"] == "upload"
    for name, start in (("Markdown", b"# Capacity report"), ("HTML", b"<!DOCTYPE html>"), ("CSV", b"\xef\xbb\xbfplan,"), ("XLSX", b"PK"), ("PDF", b"%PDF")):
        with page.expect_download() as d:
            page.get_by_role("button", name=name, exact=True).click()
        assert d.value.path().read_bytes().startswith(start), name
    v.shot("report")
    page.get_by_role("link", name="Plan").click()
    v.wait_metric("KV cache of the load", "16.00 GiB")


def test_a_click_on_the_heat_map_takes_its_values(visit: Make) -> None:
    v = visit()
    page = v.open()
    plot = page.locator(".st-key-heat .js-plotly-plot")
    plot.scroll_into_view_if_needed()
    box = plot.locator(".nsewdrag").first.bounding_box()
    # columns 512 ... 131,072 and rows 1 ... 256: the middle of 4,096 and 32
    page.mouse.click(box["x"] + box["width"] * 3.5 / 9, box["y"] + box["height"] * 3.5 / 9)
    v.wait_metric("Most sequences", "108")
    assert page.locator(".st-key-tokens input").first.input_value() == "4096"
    assert page.locator(".st-key-sequences input").first.input_value() == "32"


def test_what_does_not_fit_finds_its_way(visit: Make) -> None:
    v = visit()
    page = v.open("/?sequences=64")
    page.get_by_role("button", name="What would make it fit?").click()
    page.get_by_role("button", name="Take these values").first.wait_for()
    v.settle()
    v.shot("remedies")
    page.get_by_role("button", name="Take these values").nth(2).click()
    v.wait_metric("This plan", "FITS")
    assert "kv_dtype=fp8" in page.url


def test_uploads_that_are_broken_say_so_on_the_page(visit: Make) -> None:
    v = visit()
    page = v.open()
    give(v, ("a.json", changed(num_hidden_layers=-1)), ("b.json", b"[" * 100_000), ("c.json", changed()))
    page.get_by_text("1 of 3 files read").wait_for()
    v.settle()
    page.locator(".st-key-own_models summary").click()
    v.settle()
    v.shot("uploads")
    assert v.metric("KV cache of the load") == "16.00 GiB"
    assert page.locator('[data-testid="stException"]').count() == 0


def test_the_dark_theme(visit: Make) -> None:
    v = visit(color_scheme="dark")
    v.open("/?model=Gemma-3-27B&gpus=2")
    assert v.page.evaluate("getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor") == "rgb(18, 23, 29)"
    v.shot("dark")


def test_the_probe_runs_to_its_end(visit: Make) -> None:
    pytest.importorskip("torch", reason="the probe needs torch")
    v = visit()
    page = v.open("/validate?model=GPT-2")
    for key, value in (("probe_prompt", 16), ("probe_output", 2), ("probe_layers", 1), ("probe_batch", 1)):
        fill(v, key, value)
        v.settle()
    v.wait_metric("Predicted for this run", "96.00 KiB")
    page.get_by_role("button", name="Run the probe").click()
    page.locator('[data-testid="stProgress"]').wait_for(timeout=10_000)
    page.get_by_text("Predicted and measured agree to the byte: 98,304 bytes").wait_for(timeout=110_000)
    v.settle()
    v.shot("validate")
    with page.expect_download() as d:
        page.get_by_role("button", name="Download result (JSON)").click()
    assert json.loads(d.value.path().read_text())["measured_kv_bytes"] == 98_304


def api(base: str, path: str, body: bytes | None = None) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(urllib.request.Request(base + path, data=body, headers={"Content-Type": "application/json"}), timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as e:
        return e.code, json.load(e)


def test_the_json_api_answers_as_the_command_line_does(base: str) -> None:
    status, out = api(base, "/api/plan?model=catalog:Llama-3.1-8B&gpu=H100%20SXM&tokens=8192&concurrency=16")
    assert (status, out["architecture_bytes"], out["fits"]) == (200, 16 * 1024**3, True)
    status, out = api(base, "/api/kv", b'{"source": "catalog:Llama-2-13B", "tokens": 4000}')
    assert (status, out["bytes_per_token_unbounded"]) == (200, 819_200)
    for path, body, field in (
        ("/api/plan?source=/etc/hosts", None, "source"),
        ("/api/kv", b'{"source": "catalog:Llama-2-13B", "tokens": -1}', "tokens"),
        ("/api/kv", b"[" * 70_000, "body"),
        ("/api/kv", b"[1]", "body"),
        ("/api/melt", b'{"source": "catalog:Llama-2-13B"}', "command"),
    ):
        status, out = api(base, path, body)
        assert (status in (400, 404, 413), out["error"]["field"]) == (True, field), path
