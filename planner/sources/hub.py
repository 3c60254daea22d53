"""One model's config and weight facts from a Hugging Face hub (or a mirror of it), made for a page that many people use.

Two requests: `model_info` (commit, sizes, gated) and one GET of config.json pinned to that commit; a GGUF's header comes in pieces
(planner/sources/hub_gguf.py). Not `hf_hub_download`: it retries for 23 s when the hub is down, and its cache on disk hands a gated file
that one user's token fetched to the next user who has none. Here every answer comes with its own time-out and the caller's own token,
nothing is written to disk, and no code of a repository is ever run.
The token that the machine may have saved is never sent. Tested with huggingface_hub 2.4 (imported inside the functions: it costs time).
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from planner.errors import NotAConfig, PlannerError, SourceError
from planner.sources import guard
from planner.sources import text as text_
from planner.sources.hub_address import Address, endpoint_of, host_of, is_gguf_path, is_repo_id

if TYPE_CHECKING:
    from planner.sources.gguf_files import GgufFile

TIMEOUT_S = 5.0  # to connect, and between two packets
DEADLINE_S = 20.0  # for the whole of one file
ALL_S = 90.0  # for all that one source needs
MAX_RESULTS = 50
_ASKED_FOR_ONE = 4
_WRITES_TEXT = ("text-generation", "image-text-to-text", "any-to-any", "video-text-to-text", "audio-text-to-text", None)  # None: the row does not say


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """The bytes of one config, or the header of one GGUF, with what the hub says about the repository.

    `commit` is the full hash behind the revision; `parameters` are stored elements by the safetensors dtype name, empty where unknown;
    then `weight_bytes` may tell their bytes. `beside`: hf_quant_config.json, where config.json says nothing of quantization.
    """

    address: Address
    commit: str
    data: bytes
    parameters: dict[str, int]
    gated: str | bool
    gguf: GgufFile | None = None
    weight_bytes: int | None = None
    beside: bytes = b""


def fetch(address: Address, *, token: str | None = None, endpoint: str | None = None, timeout_s: float = TIMEOUT_S) -> Fetched:
    """The config at `address`, or the header of the GGUF there; of a repository without a config the only GGUF's. `token` is the
    caller's own; without one the request is anonymous.

    Raises SourceError (hub_...) for everything that can go wrong on the way, NotAConfig where the file is too large or a broken GGUF.
    """
    sent = _checked_token(token)
    base = endpoint_of(endpoint)
    with _errors_told(address, bool(sent), base):
        from huggingface_hub import HfApi, hf_hub_url
        from huggingface_hub.errors import EntryNotFoundError

        from planner.sources import hub_gguf

        api = HfApi(endpoint=base, token=sent or False)
        info = api.model_info(address.repo_id, revision=address.revision, timeout=timeout_s, expand=["sha", "safetensors", "gated", "siblings"])
        commit = str(info.sha or "")
        if not re.fullmatch(r"[0-9a-f]{7,64}", commit):
            raise ValueError("no commit")
        data, gguf = b"", None
        if not is_gguf_path(address.file):
            try:
                data = _get(hf_hub_url(address.repo_id, address.file, revision=commit, endpoint=base), sent, timeout_s, address)
            except EntryNotFoundError:
                only = hub_gguf.only_model(api, address, commit, timeout_s) if address.file == "config.json" else None
                if only is None:
                    raise
                address = replace(address, file=only)
        if is_gguf_path(address.file):
            gguf = hub_gguf.fetch(address, commit, base, sent, timeout_s)
        known: dict[str, Any] = {}
        if gguf is None and address.file == "config.json":  # in here too: no request goes out unguarded
            known = _beyond(address, info, commit, base, data, sent, timeout_s)
    counts = info.safetensors.parameters if info.safetensors else {}
    return Fetched(
        address=address,
        commit=commit,
        data=data,
        parameters={str(k)[:20]: int(v) for k, v in list(counts.items())[:40] if isinstance(v, int) and v >= 0},
        gated=info.gated or False,
        gguf=gguf,
        **known,
    )


def _beyond(address: Address, info: Any, commit: str, base: str, data: bytes, token: str | None, timeout_s: float) -> dict[str, Any]:
    """What the summary leaves out: the weights' bytes, and the quantization that stands in a file of its own."""
    from huggingface_hub import hf_hub_url

    from planner.sources import hub_weights

    files = {str(file.rfilename) for file in info.siblings or ()}

    def url_of(name: str) -> str:
        return str(hf_hub_url(address.repo_id, name, revision=commit, endpoint=base))

    bytes_ = None if info.safetensors else hub_weights.stored(url_of, files, token, timeout_s)
    return {"weight_bytes": bytes_, "beside": hub_weights.beside(url_of, files, data, token, timeout_s)}


def search(text: str, limit: int = 10, *, token: str | None = None, endpoint: str | None = None, timeout_s: float = TIMEOUT_S) -> tuple[str, ...]:
    """Ids of models that write text and whose name holds `text`, most downloaded first; at most `limit` (1 to 50). Raises SourceError.

    The hub filters by one kind only, so that those which also read pictures would be missed: it is asked for more, and the kinds are told here."""
    from itertools import islice

    sent = _checked_token(token)
    limit = max(1, min(limit, MAX_RESULTS))
    base = endpoint_of(endpoint)
    address = Address(repo_id=text.strip()[:80])
    with _errors_told(address, bool(sent), base):
        from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

        response = get_session().get(
            f"{base}/api/models",
            params={"search": address.repo_id, "limit": limit * _ASKED_FOR_ONE, "sort": "downloads"},
            headers=build_hf_headers(token=sent or False),
            timeout=timeout_s,
        )
        hf_raise_for_status(response)
        rows = response.json()
        fitting = (str(row["id"]) for row in rows if row.get("pipeline_tag") in _WRITES_TEXT and is_repo_id(str(row["id"])))
        return tuple(islice(fitting, limit))


def _checked_token(token: str | None) -> str | None:
    """The token without blanks around it; one that cannot stand in a header is refused here. It is in no message."""
    if token is None or not token.strip():
        return None
    if not re.fullmatch(r"[\x21-\x7e]{1,400}", token.strip()):
        raise SourceError("hub_token_malformed", field="token")
    return token.strip()


def _get(url: str, token: str | None, timeout_s: float, address: Address) -> bytes:
    """One file, at most text.MAX_BYTES of it. Redirects are followed; the HTTP library drops the token when the host changes."""
    from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

    started, data = time.monotonic(), bytearray()
    headers = build_hf_headers(token=token or False)
    with get_session().stream("GET", url, headers=headers, timeout=timeout_s, follow_redirects=True) as response:
        if response.status_code >= 400:
            response.read()
        hf_raise_for_status(response)
        for chunk in response.iter_bytes(65536):
            data += chunk
            if len(data) > text_.MAX_BYTES:
                raise NotAConfig("too_large", name=address.file, size_bytes=len(data), limit_bytes=text_.MAX_BYTES)
            if time.monotonic() - started > DEADLINE_S:
                raise TimeoutError
    return bytes(data)


@contextmanager
def _errors_told(address: Address, with_token: bool, base: str) -> Iterator[None]:
    """Turns every exception of the hub's client into a SourceError with the reading that helps the user.

    Every one: what comes back is another machine's answer (a proxy's page, a mirror's own idea of the protocol), never our data.
    """
    try:
        with guard.guarded(base, ALL_S):
            yield
    except PlannerError:
        raise
    except guard.Forbidden as e:
        raise told("hub_private" if str(e) == "private" else "hub_odd_answer", address, base, status=200) from e
    except Exception as e:
        code, status = _reading(e, address, with_token)
        if code == "hub_no_config":
            with guard.guarded(base, TIMEOUT_S):
                code = _what_instead(address, base)
        raise told(code, address, base, status=status) from e


def _reading(error: Exception, address: Address, with_token: bool) -> tuple[str, int]:
    """The message code and the HTTP status (0: there was none). The most special exception first."""
    try:
        from huggingface_hub import errors as hub
    except ImportError:
        return "hub_client_missing", 0

    readings: tuple[tuple[type[Exception] | tuple[type[Exception], ...], str], ...] = (
        (hub.GatedRepoError, "hub_gated_for_token" if with_token else "hub_gated"),  # before its parent, RepositoryNotFoundError
        (hub.DisabledRepoError, "hub_disabled"),
        (hub.RepositoryNotFoundError, "hub_not_found_with_token" if with_token else "hub_not_found"),
        (hub.RevisionNotFoundError, "hub_no_revision"),
        (hub.EntryNotFoundError, "hub_no_config" if address.file == "config.json" else "hub_no_file"),
        (hub.HFValidationError, "hub_bad_id"),
        (hub.OfflineModeIsEnabled, "hub_offline"),
    )
    for kinds, code in readings:
        if isinstance(error, kinds):
            return code, 0
    if isinstance(error, hub.HfHubHTTPError):
        status = error.response.status_code
        unseen = "hub_not_found_with_token" if with_token else "hub_not_found"
        by_status = {401: "hub_bad_token" if with_token else unseen, 403: "hub_forbidden", 404: unseen, 429: "hub_rate_limit"}
        return by_status.get(status, "hub_failed" if status >= 500 else "hub_odd_answer"), status
    if isinstance(error, (hub.HTTPError, OSError)):  # the HTTP library's own: no connection, time-out, redirects without end
        return "hub_unreachable", 0
    return "hub_odd_answer", 200


def _what_instead(address: Address, base: str) -> str:
    """The code for a repository that answers but has no config: one more request says what it holds instead."""
    try:
        from huggingface_hub import HfApi

        api = HfApi(endpoint=base, token=False)
        info = api.model_info(address.repo_id, revision=address.revision, timeout=TIMEOUT_S, expand=["siblings"])
        files = {str(file.rfilename).lower() for file in info.siblings or ()}
    except Exception:  # it only refines an error that is told anyway
        return "hub_no_config"
    for name, code in (("adapter_config.json", "hub_adapter"), ("model_index.json", "hub_diffusers"), ("params.json", "hub_params_json")):
        if name in files:
            return code
    return "hub_no_config"


# Failures after which the same model from the catalog would still help.
_CATALOG_HELPS = frozenset(
    ("hub_gated", "hub_gated_for_token", "hub_not_found", "hub_not_found_with_token", "hub_forbidden", "hub_offline", "hub_rate_limit",
     "hub_failed", "hub_unreachable", "hub_odd_answer", "hub_client_missing", "hub_bad_token")
)  # fmt: skip


def told(code: str, address: Address, base: str, **args: Any) -> SourceError:
    """The SourceError for `code`; where the catalog has this model, its hint names the row (code with `_listed`)."""
    from planner.sources import catalog

    row = catalog.name_of(address.repo_id) if code in _CATALOG_HELPS and "/" in address.repo_id else None
    given: dict[str, Any] = {"repo": address.repo_id, "revision": address.revision, "file": address.file, "hub": host_of(base), **args}
    field = "token" if code in ("hub_bad_token", "hub_gated_for_token") else "source"
    return SourceError(code + "_listed" if row else code, field=field, catalog=row or "", **given)
