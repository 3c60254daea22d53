"""What a hub knows of a checkpoint beyond its own summary: the total of the weight index, the header of a single file, and ModelOpt's
hf_quant_config.json. Small ranges only, and nothing here can spoil the reading of the config: what fails is left out.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

from planner.sources import safetensors

DEADLINE_S = 15.0
INDEX_HEAD = 65_536  # bytes: the total stands before the map of tensors
SINGLE = "model.safetensors"
QUANTIZATION = "hf_quant_config.json"
MAX_QUANTIZATION = 4_000_000


def stored(url_of: Any, files: Collection[str], token: str | None, timeout_s: float) -> int | None:
    """Bytes of all tensors where the hub itself does not tell them: by the index's total, else by the header of the only file."""
    until = time.monotonic() + DEADLINE_S
    try:
        if safetensors.INDEX in files:
            head = _range(url_of(safetensors.INDEX), 0, INDEX_HEAD, token, timeout_s, until)
            return safetensors.total_size(head)
        if SINGLE in files:
            at = 0

            def read(n: int) -> bytes:
                nonlocal at
                data = _range(url_of(SINGLE), at, n, token, timeout_s, until)
                at += len(data)
                return data

            return safetensors.header_elements(read, None)[1] or None
    except Exception:  # another machine's answer: whatever it is, the config was read
        return None
    return None


def beside(url_of: Any, files: Collection[str], data: bytes, token: str | None, timeout_s: float) -> bytes:
    """hf_quant_config.json of a repository whose config.json says nothing of quantization; empty where there is none."""
    if QUANTIZATION not in files or b'"quantization_config"' in data:
        return b""
    try:
        return _range(url_of(QUANTIZATION), 0, MAX_QUANTIZATION, token, timeout_s, time.monotonic() + DEADLINE_S)
    except Exception:  # as above
        return b""


def _range(url: str, start: int, n: int, token: str | None, timeout_s: float, until: float) -> bytes:
    """At most `n` bytes from `start`. A hub that gives the whole file instead is cut off behind them."""
    from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

    headers = {**build_hf_headers(token=token or False), "Range": f"bytes={start}-{start + n - 1}"}
    data = bytearray()
    with get_session().stream("GET", url, headers=headers, timeout=timeout_s, follow_redirects=True) as response:
        hf_raise_for_status(response)
        skip = start if response.status_code != 206 else 0
        if skip > INDEX_HEAD:
            raise ValueError("no ranges")
        for chunk in response.iter_bytes(65_536):
            data += chunk
            if len(data) >= skip + n:
                break
            if time.monotonic() > until:
                raise TimeoutError
    return bytes(data[skip : skip + n])
