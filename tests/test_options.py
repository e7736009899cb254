"""Options of plugins: what a file gives back as it is, and nothing else; only their types are evaluated."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import date
from enum import Enum, StrEnum
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
from tests_support import config

from fuaudit.cli.options import options_of
from fuaudit.config import parse_toml, resolve
from fuaudit.errors import PluginError, UsageError
from fuaudit.options import option_values, options
from fuaudit.registry import Entry, blaming, build, entries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


class Pace(StrEnum):
    """A choice of words, as ordinary Python writes it."""

    SLOW = "slow"


class Side(Enum):
    """Another one."""

    LEFT = 1


@dataclass(frozen=True)
class Option:
    """A plugin with one option of any kind."""

    value: Any = 1


@dataclass(frozen=True)
class Remembers:
    """Types beside the options are for type checkers alone."""

    _last: ClassVar[Tensor | None] = None
    size: int = 3
    table: tuple[tuple[int, ...], ...] = ((1, 2), (3,))
    made: Sequence[int] = field(init=False, default=())


@dataclass(frozen=True)
class Missing:
    """The type of the option itself is not there."""

    value: Sequence[int] = ()


def test_types_beside_the_options_are_not_evaluated():
    assert options(Remembers, "it", {"size": 4, "table": [[1], [2]]}) == {"size": 4, "table": ((1,), (2,))}


def test_options_are_what_a_table_can_set():
    assert option_values(Remembers()) == {"size": 3, "table": [[1, 2], [3]]}


def test_an_option_whose_type_is_not_there_is_told():
    with pytest.raises(PluginError, match=r"Missing cannot be read.*Sequence") as told:
        options(Missing, "it", {"value": ()})
    assert "TYPE_CHECKING" in told.value.hint


@pytest.mark.parametrize(
    "value",
    [
        *(Pace.SLOW, Side.LEFT, [1, 2], (1, [2]), {"a": {1}}, frozenset({1}), math.inf, math.nan, (1.0, -math.inf)),
        *(Fraction(1, 3), Path("x"), np.float64(0.5), np.int64(1), np.zeros(2), b"x", 1j, range(3)),
        *(2**63, -(2**63) - 1, (2**70,), date(2020, 1, 1), (None, 1)),
    ],
    ids=repr,
)
def test_what_no_file_gives_back_is_no_option(value):
    with pytest.raises(PluginError, match="the option 'value' of Option is"):
        option_values(Option(value))


@pytest.mark.parametrize(
    "value", [None, True, 3, 2**63 - 1, -(2**63), 0.5, "a", (1, ("b", 2.0)), {"a": (1,)}], ids=repr
)
def test_what_a_file_gives_back_is_an_option(value):
    assert list(option_values(Option(value))) == ["value"]


@pytest.mark.parametrize("typed", ["inf", "-inf", "nan", "1e400"])
@pytest.mark.parametrize(
    ("where", "stage"),
    [
        ("[[server]]: aggregator 'centered-clipping': radius = ", 'use = "centered-clipping"\nradius = '),
        ("[[server]]: stage 'norm-clipping': norm = ", 'use = "norm-clipping"\nnorm = '),
    ],
)
def test_a_number_that_is_not_finite_is_told_with_its_table(typed, where, stage):
    given = parse_toml(f"[[server]]\n{stage}{typed}\n")
    with pytest.raises(UsageError) as told:
        resolve(config(server=given["server"]))
    assert f"the config, {where}{float(typed)} is nothing that a run can hold" in str(told.value)


@pytest.fixture
def any_option(monkeypatch):
    """An unlearner that takes any option."""
    entry = next(iter(entries("unlearners").values()))
    monkeypatch.setattr(Entry, "load", lambda found: Option)
    return entry.name


@pytest.mark.parametrize("typed", ["inf", "1e400", "2020-01-01", "2020-01-01T00:00:00", "[1, [nan]]", "12:00:00"])
def test_what_no_run_can_hold_is_told_with_its_option(typed, any_option):
    with pytest.raises(UsageError, match=f"unlearner '{any_option}': value = .* is nothing that a run can hold"):
        build("unlearners", {"use": any_option, **options_of((f"value={typed}",))})


def test_a_whole_number_of_more_than_64_bits_is_told_with_its_option(any_option):
    with pytest.raises(UsageError, match=r"value=1180591620717411303424.*\n.*more than 64 bits"):
        options_of((f"value={2**70}",))
    with pytest.raises(UsageError, match=f"unlearner '{any_option}': value = {2**70} is nothing"):
        build("unlearners", {"use": any_option, "value": 2**70})


def test_a_file_that_a_reader_misses_is_named():
    with pytest.raises(PluginError, match=r"raised FileNotFoundError: .*'rows.npz'"), blaming(Option(), "load"):
        Path("rows.npz").read_bytes()


@pytest.mark.parametrize(
    "table", [{"a": [1, [2.5]]}, {"a": {"b": ["c"]}}, {}, {"b": 1, "a": {"d": 1, "c": 2}}], ids=repr
)
def test_tables_come_back_as_they_are(table):
    """Lists are tuples in the process, in tables too, so that a default and what a file holds are one value."""
    built = Option(**options(Option, "it", {"value": table}))
    assert Option(**options(Option, "it", option_values(built))) == built
    assert option_values(built) == {"value": table}


@dataclass(frozen=True)
class Rules:
    """Options with tables."""

    rules: dict[str, int]
    any: dict = field(default_factory=dict)


@pytest.mark.parametrize("wrong", [{"rules": {"a": "x"}}, {"rules": {1: 2, "a": 3}}, {"rules": {}, "any": 3}], ids=repr)
def test_tables_are_held_to_their_types(wrong):
    with pytest.raises(UsageError, match=f"it: {[*wrong][-1]} = .* is not a table"):
        options(Rules, "it", wrong)
    assert options(Rules, "it", {"rules": {"a": 1}, "any": {"b": "c"}}) == {"rules": {"a": 1}, "any": {"b": "c"}}


def test_tables_have_their_keys_in_the_order_of_files():
    """Who goes by the first entry of a table finds the one that whoever reads the run finds."""
    built = options(Option, "it", {"value": {"b": 1, "a": ({"d": 1, "c": 2},)}})["value"]
    assert repr(built) == repr({"a": ({"c": 2, "d": 1},), "b": 1})
    assert list(option_values(Option(built))["value"]) == ["a", "b"]


@pytest.mark.parametrize(
    "table", [{1: 0.5}, {"a": [1]}, {None: 1}, {"a": {2: "b"}}, {"b": 1, "a": 0}, {"a": None}], ids=repr
)
def test_tables_that_a_file_changes_are_none(table):
    with pytest.raises(PluginError, match="the option 'value' of Option is"):
        option_values(Option(table))
