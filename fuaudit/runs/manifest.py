"""The manifest: a run is evidence only when every byte of it is accounted for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fuaudit.errors import EvidenceError
from fuaudit.runs.files import TEMPORARY, canonical_json, pretty_json, read_bytes, read_json, sha256
from fuaudit.runs.ledger import NAME as LEDGER
from fuaudit.runs.ledger import Ledger, read_ledger

FORMAT = "fuaudit run 1"
MANIFEST = "manifest.json"
Files = dict[str, dict[str, Any]]
"""Path -> digest and size."""


def digest_of_files(files: Files) -> str:
    """The identity of a run: SHA-256 of the canonical list of its files."""
    return sha256(canonical_json(files))


def files_of(path: Path) -> Files:
    """Digest and size of every file of a run but the manifest and the ledger; EvidenceError for links."""
    found = {}
    for item in sorted(path.rglob("*")):
        if item.is_symlink() or not (item.is_file() or item.is_dir()):
            raise EvidenceError(f"{item} is a link or a device; a run holds regular files only")
        name = item.relative_to(path).as_posix()
        if item.is_file() and name not in (MANIFEST, LEDGER):
            content = read_bytes(item)
            found[name] = {"sha256": sha256(content), "size": len(content)}
    return found


def manifest_bytes(digest: str, files: Files, head: str) -> bytes:
    """The manifest: the list of files, its digest, and the last line of the ledger. It has one form only."""
    return pretty_json({"format": FORMAT, "digest": digest, "files": files, "ledger": head})


def check_files(folder: Path) -> tuple[Files, Ledger]:
    """The files of a run and its ledger, after comparing every byte with the manifest.

    Raises:
        EvidenceError: a file is missing, surplus or altered, or manifest and ledger name different runs.
    """
    manifest = read_json(folder / MANIFEST)
    if (
        not isinstance(manifest, dict)
        or manifest.get("format") != FORMAT
        or not isinstance(manifest.get("files"), dict)
    ):
        raise EvidenceError(f"{folder / MANIFEST} is not a manifest of the format {FORMAT!r}")
    found = files_of(folder)
    _compare(folder, manifest["files"], found)
    digest = digest_of_files(found)
    ledger = read_ledger(folder)
    last = ledger.events[-1]
    if last["event"] not in ("sealed", "pruned") or last.get("digest") != digest:
        raise EvidenceError(f"the ledger of {folder} does not end with the digest of its files")
    if read_bytes(folder / MANIFEST) != manifest_bytes(digest, found, ledger.head):
        raise EvidenceError(f"the manifest and the ledger of {folder} name different runs")
    return found, ledger


def _compare(folder: Path, listed: dict[str, Any], found: dict[str, Any]) -> None:
    missing, surplus = sorted(listed.keys() - found.keys()), sorted(found.keys() - listed.keys())
    changed = sorted(name for name in listed.keys() & found.keys() if listed[name] != found[name])
    problems = [f"missing: {', '.join(missing)}"] if missing else []
    problems += [f"not listed: {', '.join(surplus)}"] if surplus else []
    problems += [f"altered: {', '.join(changed)}"] if changed else []
    if problems:
        torn = (
            " Files ending in " + TEMPORARY + " are torn writes." if any(s.endswith(TEMPORARY) for s in surplus) else ""
        )
        raise EvidenceError(f"the files of {folder} do not match its manifest; {'; '.join(problems)}.{torn}")
