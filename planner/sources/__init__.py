"""From what a user gives to a raw config with its provenance: file, folder, upload, paste, catalog name, hub id or page address.

A GGUF file, whole or its beginning, is a source like a config.json: its header is read, never its weights.
`load` takes one string and finds out which of these it is; `load_bytes` takes an upload or a paste. What comes out has not been read
for meaning yet: that is `planner.readers`. Importing this package loads neither the hub's client nor numpy.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PureWindowsPath
from typing import Any

from planner.errors import NotAConfig, SourceError, UnknownName
from planner.notes import Note, note
from planner.sources import catalog, text

_HEAD_BYTES = 64
_SECRET = re.compile(r"\bhf_[A-Za-z0-9]{16,}|://[^/?#@:]*:[^/?#]*@")  # a token of the hub, or a password in an address


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """One config as it was found.

    `raw` is the JSON object, untouched except where a note says so. `provenance` is JSON-able: `kind` (file, folder, upload, paste, catalog
    or hub) and what makes the reading repeatable: `path`, `sha256` of the bytes read, `repo_id`, `revision`, `commit`, `source`. Of a GGUF
    also `weight_bytes`, the stored bytes of all its tensors.
    """

    name: str
    raw: dict[str, Any]
    provenance: dict[str, Any]
    notes: tuple[Note, ...] = ()


def load(source: str, *, token: str | None = None, endpoint: str | None = None, allow_paths: bool = True) -> Loaded:
    """The config that `source` points at, tried in this order:

    JSON text (starts with a bracket); `catalog:NAME`; a web address of the hub; an existing file or folder; a catalog name without a slash;
    `org/model` or `org/model@revision` on the hub. A path wins over a hub id of the same spelling, the hub over the catalog.
    `allow_paths=False` is for a server that many people use: it then opens no file of the machine. `token` goes to the hub, nowhere else.

    Raises NotAConfig, SourceError (field "source" or "token") or UnknownName.
    """
    wanted = source.strip()
    if len(wanted) > 1 and wanted[0] == wanted[-1] and wanted[0] in "\"'":
        wanted = wanted[1:-1].strip()
    if not wanted:
        raise SourceError("source_empty", field="source")
    if wanted[0] in "{[":
        return load_bytes(_encode(wanted), "")
    if _SECRET.search(wanted):  # it would stand in the address of the page, in saved plans and in reports
        raise SourceError("source_with_secret", field="source")
    if wanted[:8].lower() == "catalog:":
        return _from_catalog(wanted[8:].strip())

    is_page = "://" in wanted or wanted.split("/")[0].lower() in ("huggingface.co", "www.huggingface.co", "hf.co")
    if not is_page:
        found = _from_path(source, wanted) if allow_paths else None
        if found is not None:
            return found
        if _looks_like_path(wanted) and not _is_gguf_on_the_hub(wanted):
            raise SourceError("no_such_file" if allow_paths else "paths_not_allowed", field="source", path=_short(wanted))
        if "/" not in wanted and catalog.name_of(wanted) is not None:
            return _from_catalog(wanted)

    from planner.sources import hub_address

    address = hub_address.address_of(wanted, endpoint)
    if address is not None:
        return _from_hub(address, token, endpoint)
    if "/" in wanted or len(wanted) > 100 or any(c.isspace() for c in wanted):
        raise SourceError("source_unreadable", field="source", source=_short(wanted))
    raise UnknownName("unknown_source", field="source", name=_short(wanted), near=", ".join(catalog.near(wanted)))


def load_bytes(data: bytes, name: str = "") -> Loaded:
    """The config in an upload (`name` is its file name) or in pasted text (no name). Raises NotAConfig.

    A GGUF may be cut off behind its header; of a split one the first part is enough for the caches."""
    shown = _short(PureWindowsPath(name).name)
    if data[:4] == b"GGUF":
        return _from_gguf_bytes(data, shown)
    raw, notes = text.parse(data, shown)
    provenance: dict[str, Any] = {"kind": "upload" if name else "paste", "bytes": len(data), "sha256": _sha256(data)}
    if shown:
        provenance["file_name"] = shown
    return Loaded(name=_name_of(raw, _stem(shown)), raw=raw, provenance=provenance, notes=notes)


# -- one function a kind of source -------------------------------------------------------------------------------------


def _from_catalog(name: str) -> Loaded:
    entry, raw = catalog.row(name)
    provenance = {"kind": "catalog", "name": entry.name, "repo_id": entry.repo_id, "source": entry.source}
    remark = note("info", "from_catalog", source=entry.source, name=entry.name)
    return Loaded(name=entry.name, raw=raw, provenance=provenance, notes=(remark,))


def _from_hub(address: Any, token: str | None, endpoint: str | None) -> Loaded:
    from planner.sources import hub, hub_address

    fetched = hub.fetch(address, token=token, endpoint=endpoint)
    if fetched.gguf is not None:
        return _from_hub_gguf(fetched, endpoint)
    raw, notes = text.parse(fetched.data, address.file)
    provenance: dict[str, Any] = {
        "kind": "hub",
        "repo_id": address.repo_id,
        "revision": address.revision,
        "commit": fetched.commit,
        "file": address.file,
        "bytes": len(fetched.data),
        "sha256": _sha256(fetched.data),
        "gated": fetched.gated,
    }
    base = hub_address.endpoint_of(endpoint)
    if base != hub_address.DEFAULT_ENDPOINT:
        provenance["hub"] = hub_address.host_of(base)
    if fetched.parameters:
        provenance["safetensors_parameters"] = fetched.parameters
    if fetched.weight_bytes:
        provenance["weight_bytes"] = fetched.weight_bytes
    if fetched.beside:
        try:
            notes += _quantization_beside(raw, provenance, fetched.beside)
        except NotAConfig:  # the config itself was read
            notes += (note("warning", "quantization_beside_unread", field="hf_quant_config.json"),)
    return Loaded(name=address.repo_id, raw=raw, provenance=provenance, notes=notes)


def _from_path(given: str, wanted: str) -> Loaded | None:
    """The config at a path of this machine; None where nothing is there."""
    try:
        path = Path(wanted).expanduser()
        if path.is_dir():
            return _from_folder(given, path)
        if not os.path.lexists(path):
            return None
    except (OSError, ValueError, RuntimeError):  # a name too long, a zero byte, ~ of nobody
        return None
    if _is_gguf(path):
        return _from_gguf(given, path, "file")
    data = _read(path, given)
    raw, notes = text.parse(data, path.name)
    provenance = {"path": given, "kind": "file", "bytes": len(data), "sha256": _sha256(data)}
    return Loaded(name=_name_of(raw, _stem(path.name) or _folder_name(path.parent)), raw=raw, provenance=provenance, notes=notes)


def _from_folder(given: str, path: Path) -> Loaded:
    """A folder's config.json, with the ModelOpt quantization that some folders keep in a file of its own."""
    config = path / "config.json"
    if not os.path.lexists(config):
        return _from_gguf(given, path / _only_gguf(given, path), "folder")
    data = _read(config, given)
    raw, notes = text.parse(data, "config.json")
    provenance: dict[str, Any] = {"path": given, "kind": "folder", "file": "config.json", "bytes": len(data), "sha256": _sha256(data)}
    beside = path / "hf_quant_config.json"
    if os.path.lexists(beside):
        notes += _quantization_beside(raw, provenance, _read(beside, given))
    from planner.sources import safetensors

    facts, said = safetensors.folder_facts(path)
    provenance |= facts
    notes += said
    return Loaded(name=_name_of(raw, _folder_name(path)), raw=raw, provenance=provenance, notes=notes)


def _quantization_beside(raw: dict[str, Any], provenance: dict[str, Any], data: bytes) -> tuple[Note, ...]:
    """ModelOpt's own file, put into a config that says nothing of quantization. Raises NotAConfig where it is no JSON object."""
    quantization, _ = text.parse(data, "hf_quant_config.json", config=False)
    provenance["hf_quant_config"] = quantization
    section = quantization.get("quantization")
    if raw.get("quantization_config") is not None or not isinstance(section, dict):
        return ()
    raw["quantization_config"] = {"quant_method": "modelopt", **section}
    return (note("info", "quantization_from_beside", field="quantization_config", source="hf_quant_config.json"),)


def _only_gguf(given: str, path: Path) -> str:
    """The one GGUF model (its first part) of a folder without config.json. Raises SourceError saying what the folder holds instead."""
    from planner.sources.gguf_files import models_among

    shown = _short(given)
    try:
        with os.scandir(path) as entries:
            names = [entry.name for entry in islice(entries, 10_000)]
    except OSError as e:
        raise SourceError("folder_unreadable", field="source", path=shown) from e
    models = models_among(names)
    if len(models) == 1:
        return models[0]
    if models:
        raise SourceError("folder_several_gguf", field="source", path=shown, count=len(models), names=_short(", ".join(models[:4])))
    code = "folder_adapter" if "adapter_config.json" in names else "folder_no_config"
    raise SourceError(code, field="source", path=shown)


# -- GGUF --------------------------------------------------------------------------------------------------------------


def _is_gguf(path: Path) -> bool:
    """By its first bytes; what cannot be opened is told by `_read`, which looks closer."""
    import stat

    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return False
        with path.open("rb") as file:
            return file.read(4) == b"GGUF"
    except OSError:
        return False


def _from_gguf(given: str, path: Path, kind: str) -> Loaded:
    """A GGUF file of this machine, with the other parts where it is one of a split file's."""
    from contextlib import ExitStack

    from planner.sources import gguf_files
    from planner.sources.gguf import Read

    names = gguf_files.parts_of(path.name)
    with ExitStack() as stack:

        def open_part(name: str) -> tuple[Read, int | None]:
            part = path.with_name(name)
            if not part.is_file():
                raise SourceError("gguf_part_missing", field="source", part=_short(name), parts=len(names))
            try:
                file = stack.enter_context(part.open("rb"))
                return file.read, os.fstat(file.fileno()).st_size
            except PermissionError as e:
                raise SourceError("no_permission", field="source", path=_short(given)) from e

        try:
            found = gguf_files.load_parts(names, open_part)
        except OSError as e:
            raise SourceError("cannot_read", field="source", path=_short(given), reason=_reason(e)) from e
    provenance = {"path": given, "kind": kind, "file": names[0], **found.facts}
    return Loaded(name=_short(gguf_files.name_of(found.raw, path.name)), raw=found.raw, provenance=provenance, notes=found.notes)


def _from_gguf_bytes(data: bytes, shown: str) -> Loaded:
    import io

    from planner.sources import gguf_files

    found = gguf_files.load_stream(io.BytesIO(data).read, shown, size=len(data))
    provenance: dict[str, Any] = {"kind": "upload", "bytes": len(data), **found.facts}
    if shown:
        provenance["file_name"] = shown
    return Loaded(name=_short(gguf_files.name_of(found.raw, shown)), raw=found.raw, provenance=provenance, notes=found.notes)


def _from_hub_gguf(fetched: Any, endpoint: str | None) -> Loaded:
    from planner.sources import hub_address

    address, found = fetched.address, fetched.gguf
    provenance: dict[str, Any] = {
        "kind": "hub", "repo_id": address.repo_id, "revision": address.revision, "commit": fetched.commit, "file": address.file,
        "gated": fetched.gated, **found.facts,
    }  # fmt: skip
    base = hub_address.endpoint_of(endpoint)
    if base != hub_address.DEFAULT_ENDPOINT:
        provenance["hub"] = hub_address.host_of(base)
    return Loaded(name=address.repo_id, raw=found.raw, provenance=provenance, notes=found.notes)


def known_weight_bytes(provenance: Mapping[str, Any]) -> int | None:
    """The stored bytes of all weights, where the source told them: a GGUF's tensor table, or the safetensors headers by the hub."""
    told = provenance.get("weight_bytes")
    if isinstance(told, int) and not isinstance(told, bool) and told > 0:
        return told
    from planner.weights import stored_bytes

    return stored_bytes(provenance.get("safetensors_parameters"))


# -- small things ------------------------------------------------------------------------------------------------------


def _read(path: Path, given: str) -> bytes:
    """The bytes of an ordinary file, its size and kind checked before it is read."""
    import stat

    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise SourceError("not_a_file", field="source", path=_short(given))
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
            text.refuse_format(head, path.name, status.st_size)
            return head + file.read(text.MAX_BYTES + 1)
    except PermissionError as e:
        raise SourceError("no_permission", field="source", path=_short(given)) from e
    except OSError as e:
        raise SourceError("cannot_read", field="source", path=_short(given), reason=_reason(e)) from e


def _reason(e: OSError) -> str:
    import errno

    return errno.errorcode.get(e.errno or 0, "EIO")


def _looks_like_path(wanted: str) -> bool:
    tail = wanted.lower()
    return wanted[0] in "/~.\\" or "\\" in wanted or tail.endswith((".json", ".gguf", ".safetensors", ".bin", ".txt", "/"))


def _is_gguf_on_the_hub(wanted: str) -> bool:
    """`org/model/file.gguf`, and nothing of that name lies here."""
    return wanted.lower().endswith(".gguf") and wanted.count("/") >= 2 and wanted[0] not in "/~.\\" and "\\" not in wanted


def _stem(file_name: str) -> str:
    """A file's name without .json; empty for a config.json, whose name says nothing."""
    stem = file_name.removesuffix(".json")
    return "" if stem.lower() == "config" else stem


def _folder_name(path: Path) -> str:
    """The folder's own name; in the hub's cache (models--org--name/snapshots/COMMIT) the model's."""
    path = path.resolve()
    cached = next((part for part in path.parts if part.startswith("models--")), "")
    return cached[8:].replace("--", "/") or path.name


def _name_of(raw: dict[str, Any], given: str) -> str:
    """What to call the model: `given`, else what the config calls itself."""
    for name in (given, raw.get("_name_or_path"), raw.get("model_type")):
        if isinstance(name, str) and name.strip():
            return _short(name.strip())
    return "config"


def _short(value: str) -> str:
    """For messages and names: at most 120 printable characters."""
    return "".join(c if c.isprintable() else "?" for c in value[:120])


def _encode(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError as e:
        raise NotAConfig("bad_encoding", name="", encoding="UTF-8", position=e.start) from e


def _sha256(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


__all__ = ["Loaded", "catalog", "known_weight_bytes", "load", "load_bytes"]
