"""The manifest: a run is evidence only when every byte of it is accounted for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuaudit.errors import EvidenceError
from fuaudit.formats.files import TEMPORARY, read_bytes, sha256
from fuaudit.formats.forms import MAX_TENSOR_BYTES, canonical_json, pretty_json
from fuaudit.runs.forms import Json, Tensors, kind_of
from fuaudit.runs.layout import (
    FORMAT,
    MANIFEST,
    VIEW,
    file_of,
    form_of,
    is_clients_own,
    is_listed,
    is_withheld,
    names_in,
)
from fuaudit.runs.ledger import Ledger, read_ledger
from fuaudit.text import WITH_DATA, command, some_of

Files = dict[str, dict[str, Any]]
"""Path -> digest and size."""


def digest_of_files(files: Files) -> str:
    """The identity of a run: SHA-256 of the canonical list of its files."""
    return sha256(canonical_json(files))


def limit_of(name: str) -> int:
    """The most bytes that a file of a run can have."""
    file = file_of(name)
    return file.form.limit if file else MAX_TENSOR_BYTES


def read_form(folder: Path, name: str) -> Any:
    """What a file in a folder holds, of whatever run; EvidenceError where it cannot be read, or is in another form."""
    return form_of(name).parse(read_bytes(folder / name, limit_of(name)), folder / name)


def entry_of(content: bytes) -> dict[str, Any]:
    """What a manifest lists of a file."""
    return {"sha256": sha256(content), "size": len(content)}


def files_of(path: Path) -> Files:
    """Digest and size of every file of a run but the manifest and the ledger.

    Raises:
        EvidenceError: a link, or a file that no run has, which would make the whole folder no run.
    """
    names = [*filter(is_listed, names_in(path))]
    if strange := next((name for name in names if file_of(name) is None), None):
        again = f"Move it out of the folder. A run that is not finished goes on with: {command('resume', path)}"
        raise EvidenceError(f"{path / strange} is a file that no run has", again + WITH_DATA)
    return {name: entry_of(read_bytes(path / name, limit_of(name))) for name in names}


def manifest_bytes(digest: str, files: Files, head: str) -> bytes:
    """The manifest: the list of files, its digest, and the last line of the ledger. It has one form only."""
    return pretty_json({"format": FORMAT, "digest": digest, "files": files, "ledger": head})


def read_listed(folder: Path, name: str, entry: dict[str, Any]) -> bytes:
    """The content of a file, which has the size and the digest that its manifest lists.

    Raises:
        EvidenceError: it does not, or it cannot be read.
    """
    path = folder / name
    right = not path.is_file() or path.stat().st_size == entry["size"]  # before anything is read
    content = read_bytes(path, limit_of(name)) if right else b""
    if not right or entry_of(content) != entry:
        raise EvidenceError(f"the files of {folder} do not match its manifest; altered: {name}")
    return content


Tensor = tuple[str, tuple[int, ...]]
"""The kind of its numbers, and its shape."""


@dataclass(frozen=True)
class Checked:
    """The files of a run whose bytes are accounted for.

    Attributes:
        files: path -> digest and size.
        documents: what its JSON files hold.
        tensors: path -> name -> kind and shape of every tensor of the others.
        redacted: whether all that is the clients' own was left out, and nothing else, or what a sealed view lacks.
        sealed: whether it is a sealed view: all that the server may not be given, and nothing else, was left out.
    """

    files: Files
    ledger: Ledger
    documents: dict[str, Any]
    tensors: dict[str, dict[str, Tensor]]
    redacted: bool
    sealed: bool = False


def check_files(folder: Path) -> Checked:
    """The files of a run after comparing every byte with the manifest.

    Every file is parsed and must be in its form (:mod:`fuaudit.runs.layout`). One is read at a time, and of tensors
    nothing is kept.

    Raises:
        EvidenceError: a file is missing, surplus, altered or in another form, or manifest and ledger name different
            runs.
    """
    manifest = read_form(folder, MANIFEST)
    listed: Files = manifest["files"]
    found = set(filter(is_listed, names_in(folder)))
    clients_own, sealed = set(filter(is_clients_own, listed)), (folder / VIEW).exists()
    redacted = not sealed and bool(clients_own) and not clients_own & found
    lacking = set(filter(is_withheld, listed)) if sealed else clients_own if redacted else set[str]()
    if surplus := sorted(lacking & found):
        raise EvidenceError(
            f"{folder} is a sealed view and holds {some_of(surplus)}, which the server may not be given",
            "Whoever wrote it gave away more than a view. Make another one of the run: fuaudit seal.",
        )
    _compare(folder, listed, found | lacking)
    documents, tensors = dict[str, Any](), dict[str, dict[str, Tensor]]()
    if sealed:
        documents[VIEW] = read_form(folder, VIEW)
    for name, entry in listed.items():
        if name in lacking:
            continue
        form = form_of(name)
        value = form.parse(read_listed(folder, name, entry), folder / name)
        if isinstance(form, Tensors):
            tensors[name] = {key: (kind_of(tensor), tuple(tensor.shape)) for key, tensor in value.items()}
        elif isinstance(form, Json):
            documents[name] = value
    digest = digest_of_files(listed)
    ledger = read_ledger(folder)
    last = ledger.events[-1]
    if last["event"] not in ("sealed", "pruned") or last.get("digest") != digest:
        raise EvidenceError(f"the ledger of {folder} does not end with the digest of its files")
    if (manifest["digest"], manifest["ledger"]) != (digest, ledger.head):
        raise EvidenceError(f"the manifest and the ledger of {folder} name different runs")
    return Checked(listed, ledger, documents, tensors, redacted or sealed, sealed)


def _compare(folder: Path, listed: Files, found: set[str]) -> None:
    missing, surplus = sorted(listed.keys() - found), sorted(found - listed.keys())
    strange = sorted(name for name in listed if not is_listed(name))
    words = {"missing": missing, "not listed": surplus, "listed though they cannot be": strange}
    problems = [f"{word}: {some_of(names)}" for word, names in words.items() if names]
    if problems:
        torn = (
            " Files ending in " + TEMPORARY + " are torn writes." if any(s.endswith(TEMPORARY) for s in surplus) else ""
        )
        raise EvidenceError(f"the files of {folder} do not match its manifest; {'; '.join(problems)}.{torn}")
