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
from fuaudit.formats.files import locked, storage, sync_folder
from fuaudit.runs.layout import MANIFEST
from fuaudit.runs.run import load_run


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
    return home.with_name(home.name + ".pruning"), home.with_name(home.name + ".before-prune")


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
        EvidenceError: there is no run at the path after that, or it is not the one whose former self lies beside it;
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
    with storage(path):
        for rest in (staging, old):
            if rest.is_dir():
                shutil.rmtree(rest)
