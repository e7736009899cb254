"""Left out: a folder of rows without those of some owners, under the ids that all other rows have.

Ids are places in the file that was imported. Whoever deletes lines there and imports again moves the rows that follow,
and no run fits them any more. So rows are taken out of the folder, which keeps the ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuaudit.data.tensors import Tensors
from fuaudit.errors import UsageError, nearest
from fuaudit.formats.files import write_folder
from fuaudit.importing.import_csv import CLASSES, RECORD, Imported, as_json, require_new, tensors_file
from fuaudit.runs.layout import CONFIG
from fuaudit.text import counted

OF_A_ROW = ("inputs", "targets", "owners", "lines")
"""The tensors of training rows, beside their ids."""


def leave_out(folder: Path, names: Sequence[str], out: Path) -> Imported:
    """Write a folder of rows once more, without the training rows and names of some owners. Ids stay.

    Test rows stay as well, for runs committed to all of them.

    Raises:
        UsageError: the folder holds no rows with named owners, nobody has a name or nobody is left; ``out`` is there
            and not empty.
        StorageError: the file system refused.
    """
    require_new(out)
    owners, parts = _read(folder)
    gone = [_place(owners, name) for name in names]
    stay = ~np.isin(parts["owners"], gone)
    if not stay.any():
        raise UsageError(f"nobody is left in {folder}", "Remove the folder instead.")
    ids = parts.get("ids", np.arange(len(stay)))
    kept = {name: values[stay] if name in OF_A_ROW else values for name, values in parts.items()}
    left = tuple("" if number in gone else name for number, name in enumerate(owners))
    beside = {name: (folder / name).read_bytes() for name in (CLASSES, RECORD, CONFIG) if (folder / name).is_file()}
    files = {Tensors.file: tensors_file(kept | {"ids": ids[stay]}), Tensors.names: as_json(list(left))}
    write_folder(out, files | beside)
    tests = int(np.isin(parts.get("test_owners", np.zeros(0)), gone).sum())
    record = {"rows": int(stay.sum()), "left_out": int((~stay).sum()), "test_rows_of_theirs": tests}
    return Imported(out, record, left, (), tuple(_notes(folder, record, names)))


def _read(folder: Path) -> tuple[tuple[str, ...], dict[str, NDArray[Any]]]:
    """The names of owners, and the tensors of a folder as they lie there."""
    from safetensors.numpy import load_file

    if not folder.is_dir():
        raise UsageError(
            f"{folder} is no folder: rows are left out of a folder that import has made",
            "The file itself cannot be shortened: ids are the places of rows in it.",
        )
    owners = Tensors(classes=2).load(folder).owner_names  # asks for the form of the folder
    if not owners:
        raise UsageError(f"{folder} does not say by name whose its rows are", f"It needs owners and {Tensors.names}.")
    return owners, load_file(folder / Tensors.file)


def _place(owners: Sequence[str], name: str) -> int:
    """The number of the owner with a name; UsageError for none."""
    if not name or name not in owners:
        raise UsageError(f"no rows are of {name!r}", nearest(name, [one for one in owners if one]))
    return owners.index(name)


def _notes(folder: Path, record: dict[str, Any], names: Sequence[str]) -> list[str]:
    """What a reader should know, one sentence each."""
    rows = counted(record["left_out"], "training row")
    notes = [
        f"{rows} of {', '.join(map(repr, names))} left out; the other {record['rows']:,} keep their ids",
        f"{folder} still holds what was left out, and so does the file that was imported: remove both yourself",
    ]
    if tests := record["test_rows_of_theirs"]:
        stay = "stays" if tests == 1 else "stay"
        notes.append(
            f"{counted(tests, 'test row')} of theirs {stay}: a run committed to all test rows, figures are measured on "
            "them, and without them no audit passes (import --test FILE takes test rows of nobody's)"
        )
    return notes
