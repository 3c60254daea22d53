"""The header of a GGUF on a hub, by range requests: a megabyte at a time, until the header's end. The weights stay where they are.

Token, time-outs and redirects are as in planner/sources/hub.py, whose error readings also hold here. Tested with huggingface_hub 2.4.
"""

from __future__ import annotations

import time
from typing import Any

from planner.errors import SourceError
from planner.sources import gguf_files
from planner.sources.gguf import Read
from planner.sources.hub import told
from planner.sources.hub_address import Address

DEADLINE_S = 60.0  # for the headers of all parts
MAX_NAMES = 4  # that an error lists


def only_model(api: Any, address: Address, commit: str, timeout_s: float) -> str | None:
    """The repository's one GGUF model (the first part of a split one); None where it has none. Raises SourceError where it has several."""
    info = api.model_info(address.repo_id, revision=commit, timeout=timeout_s, expand=["siblings"])
    models = gguf_files.models_among(str(file.rfilename) for file in info.siblings or ())
    if len(models) > 1:
        names = ", ".join(models[:MAX_NAMES])[:300]
        first = f"{address.repo_id}/{models[0]}"[:300]
        raise SourceError("gguf_several", field="source", repo=address.repo_id, count=len(models), names=names, first=first)
    return models[0] if models else None


def fetch(address: Address, commit: str, base: str, token: str | None, timeout_s: float) -> gguf_files.GgufFile:
    """The header of the file at `address`, with those of the other parts where it is one of a split file's."""
    names = gguf_files.parts_of(address.file)
    until = time.monotonic() + DEADLINE_S

    def open_part(name: str) -> tuple[Read, None]:
        return _Ranges(address, name, len(names), commit, base, token, timeout_s, until).read, None

    return gguf_files.load_parts(names, open_part)


class _Ranges:
    """A file over HTTP, read from its start: each read is one request for the next bytes."""

    def __init__(self, address: Address, name: str, parts: int, commit: str, base: str, token: str | None, timeout_s: float, until: float) -> None:
        from huggingface_hub import hf_hub_url
        from huggingface_hub.utils import build_hf_headers

        self.url = hf_hub_url(address.repo_id, name, revision=commit, endpoint=base)
        self.headers = build_hf_headers(token=token or False)
        self.address, self.name, self.parts, self.base, self.timeout_s, self.until = address, name, parts, base, timeout_s, until
        self.at = 0

    def read(self, n: int) -> bytes:
        """At most `n` bytes; none behind the end. Raises what the hub's client raises, and SourceError."""
        from huggingface_hub.errors import EntryNotFoundError
        from huggingface_hub.utils import get_session, hf_raise_for_status

        data = bytearray()
        headers = {**self.headers, "Range": f"bytes={self.at}-{self.at + n - 1}"}
        with get_session().stream("GET", self.url, headers=headers, timeout=self.timeout_s, follow_redirects=True) as response:
            if response.status_code == 416:
                return b""
            if response.status_code >= 400:
                response.read()
            try:
                hf_raise_for_status(response)
            except EntryNotFoundError as e:
                if self.parts == 1:
                    raise
                raise SourceError("gguf_part_missing", field="source", part=self.name[:120], parts=self.parts) from e
            if response.status_code != 206 and self.at:
                raise told("hub_no_ranges", self.address, self.base)
            for chunk in response.iter_bytes(65_536):
                data += chunk
                if len(data) >= n:
                    break
                if time.monotonic() > self.until:
                    raise TimeoutError
        if time.monotonic() > self.until:
            raise TimeoutError
        self.at += min(len(data), n)
        return bytes(data[:n])
