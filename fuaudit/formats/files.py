"""Files: durable writes, strict reads, digests. Nothing here, or in any format used here, can execute."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fuaudit.errors import EvidenceError, StorageError, UsageError
from fuaudit.formats.forms import MAX_JSON_BYTES, MAX_TENSOR_BYTES, parse_json
from fuaudit.reading import MOST

if sys.platform != "win32":
    import fcntl

_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)
"""A pipe in the place of a file would be waited for without end."""

TEMPORARY = ".partial"
"""Suffix of files being written; one that is found later is a torn write and is never read."""


@contextmanager
def storage(path: Path) -> Iterator[None]:
    """Turn refusals of the file system into a StorageError that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ELOOP:
            hint = "Nothing is written through links: see who made it, and remove it."
        elif error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            hint = "Free some space."
        elif error.errno == errno.EROFS:
            hint = "Nothing can be written there: copy what lies there, a run with its parents, to another folder."
        else:
            hint = "Check the path and its permissions."
        raise StorageError(f"cannot write {path}: {error.strerror or error}", hint) from error


def sync_folder(folder: Path) -> None:
    """Make renames inside a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def named(folder: Path) -> Path:
    """The folder by a path that ends in its name: ``.``, ``..`` and links do not, and others would lie beside them.

    Raises:
        EvidenceError: the root of a file system, which has no name.
    """
    found = Path(os.path.realpath(folder)) if folder.name in ("", "..") or folder.is_symlink() else folder
    if not found.name:
        raise EvidenceError(f"{found} is no run: nothing can be put beside it")
    return found


def homes(path: Path) -> tuple[Path, ...]:
    """The folders that a path lies in: by its own name first, and then by those to which links lead from there.

    What lies beside a run may lie beside a link to it. A path that ends in no name is that of the folder itself.
    """
    path = path.absolute() if path.name not in ("", "..") else Path(os.path.realpath(path))
    found = [path.parent.resolve()]
    while path.is_symlink():
        path = path.parent / path.readlink()
        found.append(path.parent.resolve())
    return tuple(dict.fromkeys(found))


def make_folder(folder: Path) -> None:
    """Make a folder and those above it; each is made durable in the one that holds it."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def require_name(path: Path) -> None:
    """Raises UsageError where a name to write to holds bytes that are no text: nothing could be opened by it later."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise UsageError(f"the name {str(path)!a} is no text", "Choose another one with --out.") from None


def require_new_file(path: Path) -> None:
    """Raises UsageError where a file, or a link, is there already, or no folder for it: a misspelt path makes none."""
    require_name(path)
    if path.is_symlink() or path.exists():
        raise UsageError(f"{path} exists already", "Choose another file with --out; files are never overwritten.")
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent} to write to", "Check the path, or make the folder.")


def _write_all(handle: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(handle, left) :]


def refuse_link(path: Path) -> None:
    """Raises StorageError where a link stands: what is written through it would land wherever its maker likes."""
    with storage(path):
        if path.is_symlink():
            raise OSError(errno.ELOOP, "it is a link")


def _open_new(path: Path, mode: int) -> int:
    """A file that nobody else has open. What a crash left there is removed; a link is refused, not removed."""
    if path.is_symlink():
        raise OSError(errno.ELOOP, f"{path.name} is a link")
    if path.exists():
        path.unlink()
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINKS, mode)


def write_bytes(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a whole file or nothing: a temporary file beside it, flushed to disk, then renamed over it.

    Raises:
        StorageError: the file system refused, or a link stands in the way; the old file, if any, is untouched.
    """
    partial = path.with_name(path.name + TEMPORARY)
    with storage(path):
        make_folder(path.parent)
        handle = _open_new(partial, mode)
        try:
            try:
                _write_all(handle, content)
                os.fsync(handle)
            finally:
                os.close(handle)
            os.replace(partial, path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a whole new folder or nothing; see :func:`new_folder`."""
    with new_folder(folder) as partial:
        for name, content in files.items():
            write_bytes(partial / name, content)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A whole new folder or nothing: a folder beside it, which is renamed after everything was written there.

    Raises:
        StorageError: the file system refused, or there is a folder of that name that is not empty.
    """
    with storage(folder):
        make_folder(folder.parent)
        partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=TEMPORARY, dir=folder.parent))
    try:
        yield partial
        with storage(folder):
            partial.chmod(0o755)
            if folder.is_dir():
                folder.rmdir()  # an empty one; any other is refused
            partial.rename(folder)
            sync_folder(folder.parent)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Hold a folder as its only writer, for as long as the context lasts; a folder left empty goes again.

    The claim is a lock of the operating system, so a killed writer leaves none behind. Windows has none on folders:
    there nothing is checked.

    Raises:
        UsageError: another process is writing there.
    """
    if not folder.is_dir():
        with storage(folder):
            folder.mkdir(parents=True)
    with locked(folder, f"another process is writing {folder}"):
        try:
            yield
        finally:
            with suppress(OSError):
                folder.rmdir()


@contextmanager
def locked(folder: Path, taken: str) -> Iterator[None]:
    """Hold the operating system's lock on a folder that is there; see :func:`claimed`.

    Raises:
        UsageError: it is held already; the error says ``taken``.
    """
    if sys.platform == "win32":
        yield
        return
    with storage(folder):
        handle = os.open(folder, os.O_RDONLY)
    try:
        with storage(folder):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(taken, "Wait until it has ended.") from None
        yield
    finally:
        os.close(handle)


def append_line(path: Path, line: bytes) -> None:
    """Append one line with one write, and flush it to disk; see :func:`append_bytes`."""
    append_bytes(path, line + b"\n")


def append_bytes(path: Path, content: bytes, durable: bool = True) -> None:
    """Append to a file with one write; a ``durable`` one flushes all of it to disk.

    Raises:
        StorageError: the file system refused, or there is something else than a regular file.
    """
    refuse_link(path)
    with storage(path):
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _NO_LINKS | _NO_WAIT, 0o644)
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise OSError(errno.EINVAL, "it is no regular file")
            if os.write(handle, content) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if durable:
                os.fsync(handle)
        finally:
            os.close(handle)


def read_bytes(path: Path, limit: int = MAX_TENSOR_BYTES) -> bytes:
    """A regular file's content; EvidenceError when it is missing, a link, or larger than the limit."""
    try:
        if path.is_symlink() or not path.is_file():
            raise EvidenceError(f"{path} is missing or is not a regular file")
        if path.stat().st_size > min(limit, MOST):
            raise EvidenceError(f"{path} is larger than {min(limit, MOST)} bytes")
        return path.read_bytes()
    except OSError as error:
        raise EvidenceError(f"cannot read {path}: {error.strerror or error}") from error


def read_json(path: Path) -> Any:
    """See :func:`parse_json`."""
    return parse_json(read_bytes(path, MAX_JSON_BYTES), path)


def sha256(content: bytes) -> str:
    """In hexadecimal."""
    return hashlib.sha256(content).hexdigest()
