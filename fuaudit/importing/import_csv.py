"""Import: from a CSV file to a folder that trains. What was done with the rows is recorded beside them."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuaudit.errors import UsageError, nearest
from fuaudit.formats.files import write_folder
from fuaudit.importing.csv_table import CsvTable, Wanted, Words, is_number, read_table
from fuaudit.runs.layout import CONFIG
from fuaudit.text import counted

FORMAT = "fuaudit import 1"
"""What the record names itself."""

RECORD, CLASSES = "import.json", "classes.json"
"""The files by which a client can read her rows in the same way."""

RULE = (
    "of each client's n rows the floor(share * n + 1/2) with the smallest SHA-256 of 'seed:place' are for testing, "
    "at most n - 1; the place of a row is its number among the rows of the file, from 0"
)
"""How test rows are chosen by a share."""

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Source:
    """What is imported, and how.

    Attributes:
        path: the file of rows.
        client, label: the columns that name a row's client and class.
        test: a file of test rows; None to take a share of the rows.
        share: which share of each client's rows is for testing, where there is no file.
        seed: what the choice of test rows follows from.
        ignored: columns that are left out.
        dtype: of the numbers that are stored.
        divided: constants by which columns of inputs are divided, as written.
    """

    path: Path
    client: str
    label: str
    test: Path | None = None
    share: float = 0.2
    seed: int = 0
    ignored: tuple[str, ...] = ()
    dtype: str = "float64"
    divided: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Imported:
    """What was written: rows, owners and classes by name, and what a reader should know of them."""

    folder: Path
    record: dict[str, Any]
    owners: tuple[str, ...]
    classes: tuple[str, ...]
    notes: tuple[str, ...]


def import_csv(source: Source, folder: Path) -> Imported:
    """Read a CSV file and write a folder for the data set ``tensors``, with a config that trains on it.

    The folder is written as a whole, or not at all.

    Raises:
        UsageError: a cell, line or column that cannot be used, by name; the folder is there and not empty.
        StorageError: the file system refused.
    """
    require_new(folder)
    wanted = Wanted(source.label, source.client, source.ignored, dtype=source.dtype)
    train = read_table(source.path, wanted)
    test = _test_table(source, train)
    train = replace(train, inputs=divided(train, source.divided))
    test = test and replace(test, inputs=divided(test, source.divided))
    assert train.client is not None
    owners, owner = in_order(train.client)
    classes, label, test_label = _classes(train.label, None if test is None else test.label, source)
    _require_names(train.client, source)
    if test is None:
        for_test = chosen(owner, source.share, source.seed)
        parts = _split(train, label, owner, for_test)
    else:
        parts = _joined(train, label, owner, test, test_label)
    repeated, elsewhere, leaked = _duplicates(parts)
    record = {
        "format": FORMAT,
        "file": source.path.name,
        "sha256": train.sha256,
        "client": source.client,
        "label": source.label,
        "inputs": list(train.columns),
        "ignored": list(train.ignored),
        "dtype": source.dtype,
        "divided": dict(source.divided),
        "rounded": train.rounded + (test.rounded if test else 0),
        "test": {"rule": RULE, "share": source.share, "seed": source.seed}
        if test is None or source.test is None
        else {"file": source.test.name, "sha256": test.sha256},
        "rows": len(parts["targets"]),
        "test_rows": len(parts["test_targets"]),
        "repeated": repeated,
        "repeated_elsewhere": elsewhere,
        "test_rows_in_training": leaked,
    }
    files = {
        "data.safetensors": tensors_file(parts),
        "owners.json": as_json(list(owners)),
        CLASSES: as_json(list(classes)),
        RECORD: as_json(record),
        CONFIG: _config(parts, len(classes)).encode(),
    }
    write_folder(folder, files)
    return Imported(folder, record, owners, classes, tuple(_notes(record, parts, owners, classes, train)))


def require_new(folder: Path) -> None:
    """Raises UsageError where a folder is there and not empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is there already, and is not overwritten", "Choose another folder for --out.")


def _test_table(source: Source, train: CsvTable) -> CsvTable | None:
    if source.test is None:
        if not 0 < source.share < 1:
            raise UsageError(f"the share of test rows must be above 0 and below 1, not {source.share}")
        return None
    # test rows belong to nobody: who they are of is left out, with what was left out of the training rows
    spare = (source.client, *source.ignored)
    return read_table(source.test, Wanted(source.label, None, (), spare, source.dtype, train.columns))


def divided(table: CsvTable, divisors: Mapping[str, str]) -> NDArray[Any]:
    """The inputs ``(n, d)`` with some columns divided by constants, in the type of the inputs.

    Raises:
        UsageError: no such column of inputs; a constant that is no finite number above 0; a quotient too large, or
            too small to keep its digits.
    """
    inputs = table.inputs.copy()
    for name, text in divisors.items():
        if name not in table.columns:
            raise UsageError(f"there is no column {name!r} of inputs to divide", nearest(name, table.columns))
        with np.errstate(over="ignore"):
            constant = inputs.dtype.type(text) if is_number(text) else inputs.dtype.type(0)
            if not 0 < constant < np.inf:
                raise UsageError(f"a column is divided by a finite number above 0, not by {text!r}", "As in: age=100.")
            inputs[:, table.columns.index(name)] /= constant
    if not np.isfinite(inputs).all():
        raise UsageError(f"a quotient is too large for {inputs.dtype}", "Divide by a larger number.")
    if ((np.abs(inputs) < np.finfo(inputs.dtype).tiny) & (inputs != table.inputs)).any():
        raise UsageError(f"a quotient is too small for {inputs.dtype}", "Divide by a smaller number.")
    return inputs


def in_order(words: Words) -> tuple[tuple[str, ...], Integers]:
    """The names in their order, and the number of every row's name: whole numbers by size, other names as texts."""
    names = _sorted(words.names)
    return names, _numbered(words, names)


def _numbered(words: Words, names: tuple[str, ...]) -> Integers:
    """The place among names of what each row holds."""
    places = {name: place for place, name in enumerate(names)}
    return np.array([places[name] for name in words.names], dtype=np.int64)[words.codes]


def _sorted(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(names, key=int)) if all(map(_is_whole, names)) else tuple(sorted(names))


def _is_whole(text: str) -> bool:
    """Whether a text is a whole number as it is usually written, so that no two texts are one number."""
    return text == "0" or re.fullmatch("-?[1-9][0-9]{0,999}", text) is not None


def _classes(label: Words, test: Words | None, source: Source) -> tuple[tuple[str, ...], Integers, Integers | None]:
    """The classes in their order, and the class of every training and of every test row."""
    lines = dict(zip(label.names, label.lines, strict=True))
    named = (*label.names, *(name for name in (test.names if test else ()) if name not in lines))
    _require_classes(named, lines, source)
    names = _sorted(named)
    return names, _numbered(label, names), None if test is None else _numbered(test, names)


def _require_classes(names: tuple[str, ...], lines: dict[str, int], source: Source) -> None:
    """Raises UsageError where labels are no classes: real numbers, one number written in two ways, one class only."""
    values: dict[float, str] = {}
    for name in names:
        where = f"{source.path}: line {lines[name]}" if name in lines else f"{source.test}"
        if not name.isprintable():
            raise UsageError(f"{where}, column {source.label!r}: {name!r} cannot be the name of a class")
        try:
            value = float(name)
        except ValueError:
            continue
        if value != value or value in (float("inf"), -float("inf")):
            raise UsageError(f"{where}, column {source.label!r}: {name!r} is no class", "Name the class of the row.")
        if value != int(value):
            raise UsageError(
                f"{where}, column {source.label!r}: {name} is no class", "Classes are whole numbers or words."
            )
        if value in values:
            raise UsageError(
                f"{where}, column {source.label!r}: {name!r} and {values[value]!r} are one number",
                "Write each class in one way.",
            )
        values[value] = name
    if len(names) < 2:
        raise UsageError(
            f"{source.path}: every row has the class {names[0]!r} in the column {source.label!r}",
            "Learning needs two classes.",
        )


def _require_names(client: Words, source: Source) -> None:
    from fuaudit.data.partition import MOST_OF_A_NAME, is_name

    for name, line in zip(client.names, client.lines, strict=True):
        if not is_name(name):
            raise UsageError(
                f"{source.path}: line {line}, column {source.client!r}: {name[:40]!r} cannot be the name of a client",
                f"Names are printable and have 1 to {MOST_OF_A_NAME} characters.",
            )
    if len(client.names) < 2:
        raise UsageError(
            f"{source.path}: every row has the client {client.names[0]!r} in the column {source.client!r}",
            "A federation needs two clients.",
        )


def chosen(owner: Integers, share: float, seed: int) -> NDArray[np.bool_]:
    """Which rows are for testing, by :data:`RULE`.

    Raises:
        UsageError: none is.
    """
    digests = [sha256(f"{seed}:{place}".encode()).digest() for place in range(len(owner))]
    exact, found = Fraction(str(share)), np.zeros(len(owner), dtype=np.bool_)
    grouped = np.argsort(owner, kind="stable")
    for rows in np.split(grouped, np.flatnonzero(np.diff(owner[grouped])) + 1):
        count = min(int(exact * len(rows) + Fraction(1, 2)), len(rows) - 1)
        found[sorted(rows.tolist(), key=digests.__getitem__)[:count]] = True
    if not found.any():
        raise UsageError(
            f"no client has enough rows to give the share {share} of them for testing",
            "Give a larger --test-share, or a file of test rows with --test.",
        )
    return found


def _split(train: CsvTable, label: Integers, owner: Integers, for_test: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
    """The tensors of the folder, from one file."""
    stay = ~for_test
    return {
        "inputs": train.inputs[stay],
        "targets": label[stay],
        "owners": owner[stay],
        "lines": train.lines[stay],
        "test_inputs": train.inputs[for_test],
        "test_targets": label[for_test],
        "test_lines": train.lines[for_test],
        "test_owners": owner[for_test],
    }


def _joined(
    train: CsvTable, label: Integers, owner: Integers, test: CsvTable, test_label: Integers | None
) -> dict[str, NDArray[Any]]:
    """The tensors of the folder, from two files."""
    assert test_label is not None
    return {
        "inputs": train.inputs,
        "targets": label,
        "owners": owner,
        "lines": train.lines,
        "test_inputs": test.inputs,
        "test_targets": test_label,
        "test_lines": test.lines,
    }


def _duplicates(parts: dict[str, NDArray[Any]]) -> tuple[int, int, int]:
    """How many training rows repeat an earlier one, how many of these another client's, and how many test rows do."""
    first: dict[bytes, int] = {}
    repeated = elsewhere = 0
    for row, owner in zip(_keys(parts["inputs"], parts["targets"]), parts["owners"].tolist(), strict=True):
        repeated += row in first
        elsewhere += first.setdefault(row, owner) != owner
    leaked = sum(row in first for row in _keys(parts["test_inputs"], parts["test_targets"]))
    return repeated, elsewhere, leaked


def _keys(inputs: NDArray[Any], targets: Integers) -> list[bytes]:
    """Rows as bytes, inputs and class."""
    together = np.concatenate([inputs.astype(np.float64), targets[:, None].astype(np.float64)], axis=1)
    return [row.tobytes() for row in together]


def _repeated(rows: int, elsewhere: int) -> str:
    """In words: how many training rows repeat an earlier one, and how many of these one of another client."""
    if rows == 1:
        return f"1 training row repeats an earlier one{', of another client' * elsewhere}; it is kept"
    return (
        f"{rows:,} training rows repeat an earlier one, {elsewhere:,} of them one "
        "that another client held first; all are kept"
    )


def _notes(
    record: dict[str, Any],
    parts: dict[str, NDArray[Any]],
    owners: tuple[str, ...],
    classes: tuple[str, ...],
    train: CsvTable,
) -> list[str]:
    """What a reader should know of the rows, one sentence each."""
    counts = np.bincount(parts["owners"], minlength=len(owners))
    fewest, most = int(counts.argmin()), counts.max()
    spread = f"{counts[fewest]:,} to {most:,} each; {owners[fewest]} has the fewest"
    each = f"{most:,} each" if counts[fewest] == most else spread
    notes = [
        f"{counted(record['rows'], 'training row')} of {counted(len(owners), 'client')} "
        f"({each}), {counted(record['test_rows'], 'test row')}, "
        f"{counted(len(train.columns), 'input')} a row"
    ]
    shown = ", ".join(f"{number} is {name}" for number, name in enumerate(classes[:10]))
    notes.append(
        f"{counted(len(classes), 'class', 'classes')}: {shown}{', ...' if len(classes) > 10 else ''} (classes.json)"
    )
    if "share" in record["test"]:
        notes.append(
            f"test rows are the share {record['test']['share']} of each client's rows, by SHA-256 under the seed "
            f"{record['test']['seed']} (the rule is in import.json); no request removes them"
        )
        notes.append(
            "a run can be verified only with all its test rows, also with those of clients who are forgotten: "
            "--test FILE takes rows of nobody's instead"
        )
    notes += changes(record["ignored"], record["divided"])
    if record["repeated"]:
        notes.append(_repeated(record["repeated"], record["repeated_elsewhere"]))
    if equal := record["test_rows_in_training"]:
        one = equal == 1
        words = ("equals", "it is") if one else ("equal", "all are")
        notes.append(f"{counted(equal, 'test row')} {words[0]} a training row; {words[1]} kept")
    if record["rounded"]:
        are = "is" if record["rounded"] == 1 else "are"
        notes.append(
            f"{counted(record['rounded'], 'number')} {are} rounded to {record['dtype']}; float64 would keep more"
        )
    if unseen := sorted({*parts["test_targets"].tolist()} - {*parts["targets"].tolist()}):
        notes.append(f"no training row has the class {', '.join(classes[number] for number in unseen)}")
    alike = Counter(map(_look, owners))
    if twins := [name for name in owners if alike[_look(name)] > 1]:
        more = f" and {len(twins) - MOST_TWINS:,} more" if len(twins) > MOST_TWINS else ""
        notes.append(
            "names of clients that look alike (capitals, spaces, accents of one or of two characters) are different "
            f"clients: {', '.join(map(ascii, twins[:MOST_TWINS]))}{more}"
        )
    highest = np.abs(parts["inputs"]).max(axis=0)
    if highest.max() > LARGE:
        widest = int(highest.argmax())
        notes.append(
            f"inputs reach {highest[widest]:g} in {train.columns[widest]!r}, and a model learns slowly from such: "
            "divide columns by constants that are known beforehand, as in --divide COLUMN=100"
        )
    return notes


def _look(name: str) -> str:
    """What two names have in common that a reader could take for one."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def changes(ignored: Iterable[str], divisors: Mapping[str, str], why: str = "as asked") -> list[str]:
    """What was done to columns, and why, one sentence each."""
    by = ", ".join(f"{name!r} by {constant}" for name, constant in divisors.items())
    left = ", ".join(map(repr, ignored))
    return [f"{what}, {why}: {which}" for what, which in (("left out", left), ("divided", by)) if which]


MOST_TWINS = 20
"""How many names that look alike are listed."""

LARGE = 100.0
"""Inputs beyond this are said to be large."""

STEPS = tuple(float(f"1e-{power}") for power in range(1, 13))
"""Step sizes that a config can begin with, largest first."""


def step_size(inputs: NDArray[Any]) -> float:
    """The largest of some step sizes with which gradient descent on a linear model does not overshoot such inputs."""
    with np.errstate(over="ignore"):
        curvature = float(np.mean(np.sum(np.square(inputs, dtype=np.float64), axis=1) + 1))
    return next((size for size in STEPS if size * curvature <= 2), STEPS[-1])


TEMPLATE = """\
# Trains on the rows beside it: fuaudit train FOLDER/config.toml --data FOLDER
#
# Inputs are used as they were imported. Large ones are best divided by constants that are known beforehand (a unit, the
# range of a sensor), column by column: fuaudit import --divide COLUMN=N. scaling = "standardise" subtracts one mean
# from all inputs and divides by one standard deviation; both follow from all rows, so kept rounds would tell of erased
# ones, and `unlearn` then refuses methods that keep rounds.
scaling = "none"

[data]
use = "tensors"
classes = {classes}

[partition]
use = "by-owner"

[model]
use = "linear"

[learner]
use = "fats"
rounds = 20
cohort = {cohort}
steps = 5
batch = {batch}
# Chosen by the size of the inputs, so that the first training does not run away. Try others.
step_size = {step_size}

[run]
checkpoint_every = 5
"""
"""A config to begin with. ``fuaudit plugins NAME`` shows the options of what it names."""


def _config(parts: dict[str, NDArray[Any]], classes: int) -> str:
    counts = np.bincount(parts["owners"])
    cohort, batch = max(1, min(4, len(counts) // 5)), min(8, int(counts.min()))
    return TEMPLATE.format(classes=classes, cohort=cohort, batch=batch, step_size=step_size(parts["inputs"]))


def tensors_file(parts: Mapping[str, NDArray[Any]]) -> bytes:
    """The file of tensors of a folder."""
    from safetensors.numpy import save

    return save({name: np.ascontiguousarray(values) for name, values in parts.items()})


def as_json(value: object) -> bytes:
    """A document that people read too."""
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()
