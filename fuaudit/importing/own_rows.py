"""Own rows: one client's CSV file, read as the file of the whole federation was. She checks her receipt with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuaudit.data.documents import parse
from fuaudit.errors import UsageError, nearest
from fuaudit.formats.files import write_folder
from fuaudit.importing.csv_table import Wanted, Words, read_table
from fuaudit.importing.import_csv import (
    CLASSES,
    FORMAT,
    RECORD,
    Imported,
    as_json,
    changes,
    divided,
    require_new,
    tensors_file,
)
from fuaudit.reading import require_regular
from fuaudit.text import counted

AS_SENT = "as the record says that was sent"


def import_own(path: Path, like: Path, folder: Path) -> Imported:
    """Read a client's rows as an import has read those of all, and write a folder without test rows and owners.

    Columns, their order, the type of numbers, divisors and the numbers of classes are those of ``like``, a folder with
    the files ``import.json`` and ``classes.json`` of that import. The column of clients may be missing.

    Raises:
        UsageError: ``like`` holds no such files; a cell, line or column that cannot be used, by name; a word that was
            no class then; the folder is there and not empty.
        StorageError: the file system refused.
    """
    require_new(folder)
    record, classes = _record(like / RECORD), _classes(like / CLASSES)
    spare = (record["client"], *record["ignored"])
    table = read_table(path, Wanted(record["label"], None, (), spare, record["dtype"], tuple(record["inputs"])))
    parts = {
        "inputs": divided(table, record["divided"]),
        "targets": _targets(table.label, classes, f"{path}: line {{line}}, column {record['label']!r}"),
        "lines": table.lines,
        "test_inputs": table.inputs[:0],
        "test_targets": np.zeros(0, dtype=np.int64),
    }
    told = {"file": path.name, "sha256": table.sha256, "like": record["sha256"], "rows": len(table.lines)}
    told |= {name: record[name] for name in ("ignored", "divided")}
    files = {RECORD: as_json({"format": FORMAT, **told}), CLASSES: as_json(list(classes))}
    write_folder(folder, {"data.safetensors": tensors_file(parts), **files})
    notes = (
        f"{counted(told['rows'], 'row')}, read as those of {record['file']} were",
        *changes(record["ignored"], record["divided"], AS_SENT),
        "whoever imported that file kept some rows for tests: no receipt covers them",
    )
    return Imported(folder, told, (), classes, notes)


def done_to_own(folder: Path | None) -> list[str]:
    """What :func:`import_own` did to columns of the rows in a folder; nothing where the folder has no record of it.

    Raises:
        UsageError: the record cannot be read.
    """
    told = _document(folder / RECORD) if folder is not None and (folder / RECORD).is_file() else {}
    if not isinstance(told, dict) or not {"like", "ignored", "divided"} <= told.keys():
        return []
    return changes(told["ignored"], told["divided"], AS_SENT)


def _document(path: Path) -> Any:
    if not path.is_file():
        raise UsageError(f"there is no file {path}", "Ask for it whoever imported the rows of all clients.")
    require_regular(path)
    return parse(path.read_bytes(), path)


def _record(path: Path) -> dict[str, Any]:
    """How rows were read, from the record of an import."""
    record = _document(path)
    forms: dict[str, type] = {"file": str, "sha256": str, "client": str, "label": str, "dtype": str}
    forms |= {"inputs": list, "ignored": list, "divided": dict}
    if (
        not isinstance(record, dict)
        or record.get("format") != FORMAT
        or not all(isinstance(record.get(name), form) for name, form in forms.items())
        or not record["inputs"]
        or record["dtype"] not in ("float32", "float64")
        or not all(isinstance(text, str) for key in ("inputs", "ignored") for text in record[key])
        or not all(isinstance(text, str) for text in record["divided"].values())
    ):
        raise UsageError(f"{path} is no record of an import of all clients' rows", "Give the folder of such an import.")
    return record


def _classes(path: Path) -> tuple[str, ...]:
    names = _document(path)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"{path} is no list of names", "Give the folder of an import.")
    return tuple(names)


def _targets(label: Words, classes: tuple[str, ...], where: str) -> NDArray[np.int64]:
    """The class of every row, by the given table."""
    for name, line in zip(label.names, label.lines, strict=True):
        if name not in classes:
            raise UsageError(f"{where.format(line=line)}: {name!r} is no class there", nearest(name, classes))
    return np.array([classes.index(name) for name in label.names], dtype=np.int64)[label.codes]
