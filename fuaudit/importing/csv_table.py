"""A CSV file as columns of numbers and words. Nothing is dropped, filled in or guessed: a bad cell is refused by name.

Lines are counted as an editor counts them, from 1, the header included; a row with a line break in quotes has the
number of its first line.
"""

from __future__ import annotations

import csv
import io
import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuaudit.errors import UsageError, nearest, nearest_beside
from fuaudit.reading import require_regular

DELIMITERS = (",", ";", "\t")
"""What may stand between cells. The one under which the header names what was asked for is taken."""

ROWS_AT_ONCE = 20_000
"""Rows are turned into arrays in parts, for texts take many times the memory of numbers."""

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NUMERALS = frozenset("0123456789+-.eE")
_COMMA = re.compile(r"[+-]?[0-9.]*,[0-9]+")
_WHOLE = re.compile(r"[+-]?[0-9]+")


def is_number(text: str) -> bool:
    """Whether a text is a finite number as files have them."""
    return _NUMBER.fullmatch(text) is not None


@dataclass(frozen=True)
class Words:
    """A column of words: for every row the place of its word among ``names``, which stand in order of appearance.

    ``lines`` holds the line in which each name came first.
    """

    codes: NDArray[np.int64]
    names: tuple[str, ...]
    lines: tuple[int, ...]


@dataclass(frozen=True)
class CsvTable:
    """The rows of a file, in their order.

    Attributes:
        inputs: ``(n, d)``, a column for each of ``columns``.
        label, client: columns of words; client is None where it was not asked for.
        lines: ``(n,)``, the line of every row.
        ignored: the columns that were left out, as asked.
        rounded: how many numbers are not held exactly.
        sha256: of the file.
    """

    columns: tuple[str, ...]
    inputs: NDArray[Any]
    label: Words
    client: Words | None
    lines: NDArray[np.int64]
    ignored: tuple[str, ...]
    rounded: int
    sha256: str


@dataclass(frozen=True)
class Wanted:
    """What is asked of a file.

    Attributes:
        label, client: columns of words; client is None where it is not needed.
        ignored: columns that are left out, and must be there.
        spare: columns that are left out where they are there.
        dtype: of the inputs.
        columns: the inputs in their order; None for all that are left over.
    """

    label: str
    client: str | None
    ignored: tuple[str, ...] = ()
    spare: tuple[str, ...] = ()
    dtype: str = "float64"
    columns: tuple[str, ...] | None = None


@dataclass
class _Coded:
    """Words as they come in."""

    codes: array[int] = field(default_factory=lambda: array("q"))
    places: dict[str, int] = field(default_factory=dict)
    lines: list[int] = field(default_factory=list)

    def add(self, word: str, line: int) -> None:
        place = self.places.setdefault(word, len(self.places))
        if place == len(self.lines):
            self.lines.append(line)
        self.codes.append(place)

    def words(self) -> Words:
        return Words(np.array(self.codes, dtype=np.int64), tuple(self.places), tuple(self.lines))


@dataclass(frozen=True)
class _Bad:
    """A cell that is refused: the place of its row and of its column, and why."""

    row: int
    column: int
    why: str
    hint: str


def columns_of(path: Path) -> list[str]:
    """The names of the columns of a file, as its first line has them. UsageError where it cannot be read."""
    return _header(_decoded(_bytes(path), path), path, Wanted("", None))[1]


def read_table(path: Path, wanted: Wanted) -> CsvTable:
    """Read a CSV file with a header, in UTF-8 with or without a mark at its beginning.

    Raises:
        UsageError: it cannot be read; columns are missing, unnamed, named twice or left over; a row has too few or too
            many cells; a cell is empty, or no number where a number must be. The first such lines are named.
    """
    content = _bytes(path)
    text = _decoded(content, path)
    delimiter, header = _header(text, path, wanted)
    columns, ignored = _columns(header, path, wanted)
    places = [header.index(name) for name in columns]
    label, client = _Coded(), _Coded() if wanted.client is not None else None
    coded = [(header.index(wanted.label), label)]
    coded += [] if client is None else [(header.index(str(wanted.client)), client)]
    parts: list[NDArray[Any]] = []
    lines, rounded = array("q"), 0
    for numbers, rows in _parts(text, delimiter, path, len(header)):
        cells = [[cell.strip() for cell in column] for column in zip(*rows, strict=True)]
        block, inexact, bad = _block([cells[place] for place in places], places, header, wanted.dtype)
        _refuse(_empty(cells, [place for place, _ in coded]) + bad, header, numbers, path)
        for place, words in coded:
            for word, line in zip(cells[place], numbers, strict=True):
                words.add(word, line)
        parts.append(block)
        lines.extend(numbers)
        rounded += inexact
    if not parts:
        raise UsageError(f"{path} has a header and no rows", "Check what it is.")
    return CsvTable(
        tuple(columns),
        np.concatenate(parts),
        label.words(),
        None if client is None else client.words(),
        np.array(lines, dtype=np.int64),
        ignored,
        rounded,
        sha256(content).hexdigest(),
    )


def _bytes(path: Path) -> bytes:
    require_regular(path)
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        near = nearest_beside(path, lambda item: item.is_file() and item.suffix == path.suffix)
        raise UsageError(f"there is no file {path}", near or "Check the path.") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None


def _decoded(content: bytes, path: Path) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path}: line {line} is not in UTF-8", "Save it as CSV in UTF-8.") from None


def _records(text: str, delimiter: str, path: Path) -> Iterator[tuple[int, list[str]]]:
    """Rows of cells with the numbers of their first lines; a line without anything is an empty row."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    line = 1
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise UsageError(
                f"{path}: line {line} cannot be read: {error}",
                "A cell in quotes ends with a quote, and a quote inside it is written twice.",
            ) from None
        yield line, row
        line = reader.line_num + 1


def _header(text: str, path: Path, wanted: Wanted) -> tuple[str, list[str]]:
    """The delimiter, and the names of the columns."""
    if not text.strip():
        raise UsageError(f"{path} is empty", "The first line must name the columns.")
    asked = {wanted.label, wanted.client} - {None}
    found: list[tuple[str, list[str]]] = []
    for delimiter in DELIMITERS:
        try:
            found.append((delimiter, [cell.strip() for cell in next(_records(text, delimiter, path))[1]]))
        except UsageError:
            continue  # quotes that fit another delimiter only
    if not found:
        next(_records(text, DELIMITERS[0], path))  # raises, and says what is wrong
    fitting = [(delimiter, names) for delimiter, names in found if asked <= {*names}]
    return (fitting or sorted(found, key=lambda each: -len(each[1])))[0]


def _columns(header: list[str], path: Path, wanted: Wanted) -> tuple[Sequence[str], tuple[str, ...]]:
    """The names of the inputs, and of what is left out."""
    special = [name for name in (wanted.label, wanted.client) if name is not None]
    if missing := [name for name in (*special, *wanted.ignored) if name not in header]:
        raise UsageError(
            f"{path}: line 1 names no column {missing[0]!r}", f"{nearest(missing[0], header)} A header is required."
        )
    if len({*special, *wanted.ignored}) != len(special) + len({*wanted.ignored}):
        raise UsageError("one column cannot be two of client, label and what is left out", "Name three columns.")
    if twice := next((name for name in header if name and header.count(name) > 1), None):
        raise UsageError(f"{path}: line 1 names two columns {twice!r}", "Give every column a name of its own.")
    out = {*wanted.ignored, *wanted.spare}
    left = [name for name in header if name not in special and name not in out]
    if "" in left:
        raise UsageError(
            f"{path}: line 1: column {header.index('') + 1} has no name", "Name it, or leave it out with --ignore ''."
        )
    ignored = tuple(name for name in header if name in out)
    if wanted.columns is None:
        if not left:
            raise UsageError(f"{path} has no column for inputs", "Inputs are all columns but client and label.")
        return left, ignored
    if other := sorted({*left} ^ {*wanted.columns}):
        held = "has a" if other[0] in left else "lacks the"
        raise UsageError(f"{path} {held} column {other[0]!r}", "Both files need the same columns of inputs.")
    return wanted.columns, ignored


def _parts(text: str, delimiter: str, path: Path, width: int) -> Iterator[tuple[list[int], list[list[str]]]]:
    """Lines and rows below the header, in parts; every row has ``width`` cells."""
    numbers: list[int] = []
    rows: list[list[str]] = []
    empty = 0
    records = _records(text, delimiter, path)
    next(records)
    for line, row in records:
        if not row:
            empty = empty or line  # lines at the end of a file may be empty
            continue
        if empty:
            raise UsageError(f"{path}: line {empty} is empty, and rows follow", "Take the line out, or fill it.")
        if len(row) != width:
            raise UsageError(
                f"{path}: line {line} has {len(row)} cells, and the header names {width} columns",
                "A cell that holds the delimiter needs quotes.",
            )
        numbers.append(line)
        rows.append(row)
        if len(rows) == ROWS_AT_ONCE:
            yield numbers, rows
            numbers, rows = [], []
    if rows:
        yield numbers, rows


def _refuse(bad: list[_Bad], header: list[str], lines: list[int], path: Path) -> None:
    """Raises UsageError about some bad cells, the first ones by name; nothing where there is none."""
    if not bad:
        return
    ordered = sorted(bad, key=lambda each: (each.row, each.column))
    told = [f"line {lines[each.row]}, column {header[each.column]!r}: {each.why}" for each in ordered[:MOST_TOLD]]
    told += [f"and {len(bad) - MOST_TOLD:,} more"] if len(bad) > MOST_TOLD else []
    raise UsageError(f"{path}: {told[0]}", "\n  ".join([ordered[0].hint, *told[1:]]))


MOST_TOLD = 10
"""Bad cells that are named at once."""


EMPTY = "the cell is empty", "Nothing is filled in: fill the cell, or take the line out."


def _empty(cells: list[list[str]], places: list[int]) -> list[_Bad]:
    """Empty cells of some columns."""
    return [_Bad(row, place, *EMPTY) for place in places for row, cell in enumerate(cells[place]) if not cell]


def _block(
    columns: list[list[str]], places: list[int], header: list[str], dtype: str
) -> tuple[NDArray[Any], int, list[_Bad]]:
    """Columns of cells as numbers ``(n, d)``, how many of them are rounded, and the cells that cannot be used."""
    block, rounded, bad = np.empty((len(columns[0]), len(columns)), dtype=dtype), 0, list[_Bad]()
    for at, (cells, place) in enumerate(zip(columns, places, strict=True)):
        exact = _numbers(cells, place, header[place])
        if isinstance(exact, list):
            bad += exact
            continue
        with np.errstate(over="ignore"):
            block[:, at] = exact
        if changed := _changed(cells, exact, block[:, at], place):
            bad.append(changed)
        rounded += int(np.count_nonzero(block[:, at] != exact))
    return block, rounded, bad


def _numbers(cells: list[str], place: int, name: str) -> NDArray[np.float64] | list[_Bad]:
    """A column as float64; or its cells that are no numbers, the first alone where it holds words."""
    try:
        values = np.array([*map(float, cells)])
        if not {*"".join(cells)} - _NUMERALS:  # float takes more, such as nan, 1_000, and digits of other scripts
            return values
    except ValueError:
        pass
    wrong = [row for row, cell in enumerate(cells) if not _NUMBER.fullmatch(cell)]
    first = cells[wrong[0]]
    if 2 * len(wrong) > len(cells) and first and not _COMMA.fullmatch(first):
        hint = f"Inputs are numbers: write words as numbers, or leave the column out with --ignore {name!r}."
        return [_Bad(wrong[0], place, f"the column holds words, here {first!r}", hint)]
    return [_Bad(row, place, *_why(cells[row])) for row in wrong]


def _why(cell: str) -> tuple[str, str]:
    """Why a cell is no number, and what to do."""
    if not cell:
        return EMPTY
    hint = (
        "Write decimals with a point, and thousands without a separator."
        if _COMMA.fullmatch(cell)
        else "Write a finite number, or take the line out."
    )
    return f"{cell!r} is no number", hint


def _changed(cells: list[str], exact: NDArray[np.float64], kept: NDArray[Any], place: int) -> _Bad | None:
    """The first cell whose number is too large, or is whole and would become another one; None where there is none.

    Decimals are rounded to the nearest number there is, as every reader does.
    """
    mantissa = 2 ** (np.finfo(kept.dtype).nmant + 1)
    for row in np.flatnonzero(~np.isfinite(kept) | (np.abs(exact) >= mantissa)).tolist():
        if not np.isfinite(kept[row]):
            return _Bad(row, place, f"{cells[row]} is too large for {kept.dtype}", "Scale the column.")
        if _WHOLE.fullmatch(cells[row]) and Decimal(cells[row]) != int(kept[row]):
            hint = "A number that names something is no input: leave the column out with --ignore."
            return _Bad(row, place, f"{kept.dtype} cannot hold {cells[row]} exactly", hint)
    return None
