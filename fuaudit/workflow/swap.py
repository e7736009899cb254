"""Swap: a pruned run, written beside the run, takes its place. After a kill at any step it is finished or undone.

1. ``NAME.pruning`` is written, opened and compared; ``NAME`` is as it was.
2. ``NAME`` becomes ``NAME.before-prune``.
3. ``NAME.pruning`` becomes ``NAME``.
4. ``NAME.before-prune`` is removed.

A kill in step 1 is undone, one after it is finished: :func:`recover`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fuaudit.errors import EvidenceError
from fuaudit.formats.files import TEMPORARY, locked, read_bytes, storage, sync_folder
from fuaudit.formats.forms import MAX_JSON_BYTES
from fuaudit.runs.layout import BEFORE_PRUNE, CONFIG, CONTENTS, LEDGER, MANIFEST, PRUNING, file_of, names_in
from fuaudit.runs.run import Run, load_run


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Lock the folder in which a run and its ancestors lie: one prune works there at a time.

    The run's own folder is no place for a lock, as it is exchanged.

    Raises:
        UsageError: another prune is at work there.
        EvidenceError: there is no such folder.
    """
    folder = path.resolve().parent
    if not folder.is_dir():
        raise EvidenceError(f"there is no run at {path}")
    with locked(folder, f"another prune is at work in {folder}"):
        yield


def leftovers(path: Path) -> tuple[Path, Path]:
    """Where a prune that is at work, or was killed, has the run that it writes, and the one that was there before."""
    home = path.resolve()
    return home.with_name(home.name + PRUNING), home.with_name(home.name + BEFORE_PRUNE)


def standing(path: Path) -> Path:
    """Where a run can be read: at its path, or where a killed prune left it. Changes nothing."""
    staging, old = leftovers(path)
    if path.exists() or not old.is_dir():
        return path
    return staging if (staging / MANIFEST).exists() else old


def put_in_place(path: Path) -> None:
    """Steps 2 to 4: the pruned run, whole and compared, takes the place of the run at a path."""
    home, (staging, old) = path.resolve(), leftovers(path)
    with storage(path):
        os.rename(home, old)
        os.rename(staging, home)
        sync_folder(home.parent)
        shutil.rmtree(old)


def recover(path: Path) -> None:
    """Finish or undo the swap of a prune that was killed. The caller holds the lock of :func:`alone`.

    Raises:
        EvidenceError: there is no run at the path after that, or what lies beside it is not what its prune left;
            nothing was removed.
    """
    staging, old = leftovers(path)
    if (found := standing(path)) != path:
        with storage(path):
            os.rename(found, path.resolve())
            sync_folder(old.parent)
    if not staging.is_dir() and not old.is_dir():
        return
    here = load_run(path)  # what a prune left goes only where the run stands
    if old.is_dir() and not here.pruned:
        raise EvidenceError(
            f"{old} is what a killed prune left of a run, and {path} holds another one, which was never pruned",
            "Move one of the two away; a folder named .before-prune holds keys that should be destroyed.",
        )
    rests = [rest for rest in (staging, old) if rest.is_dir()]
    if others := [rest for rest in rests if not _is_of(rest, here)]:
        raise EvidenceError(
            f"{others[0]} is not what a prune of {path} left there, and would be removed", "Move it away first."
        )
    with storage(path):
        for rest in rests:
            shutil.rmtree(rest)


def _is_of(rest: Path, here: Run) -> bool:
    """Whether a folder holds what a prune of a run left: files of a run, and no other course than its own.

    Ledgers hold times and digests, so the course of no other run begins with the whole of this one, or ends within it.
    A prune begins with other files, and may have removed the ledger already. Then one of those that it leaves alone
    is the run's; a config may be that of several.
    """
    names = [*names_in(rest, torn=True)]
    if any(file_of(name.removesuffix(TEMPORARY)) is None for name in names):
        return False
    if LEDGER not in names:
        telling = [name for name in names if _is_left_alone(name)] or [name for name in names if name == CONFIG]
        return not telling or any(_is_the_same(rest / name, here.path / name) for name in telling)
    told, own = (read_bytes(folder / LEDGER, MAX_JSON_BYTES) for folder in (rest, here.path))
    return told.startswith(own) or own.startswith(told)


def _is_left_alone(name: str) -> bool:
    """Whether a prune changes no byte of a file, which no other run has."""
    file = file_of(name)
    return file is not None and not file.destroyed and (file.regenerated or name == CONTENTS)


def _is_the_same(file: Path, other: Path) -> bool:
    return other.is_file() and read_bytes(file) == read_bytes(other)
