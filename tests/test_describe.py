"""What a plugin says of itself: options with types, defaults and sentences, and `fuaudit plugins NAME`."""

import importlib.util
import json
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType
from typing import Any, Literal

import pytest
from click.testing import CliRunner

from fuaudit import registry
from fuaudit.cli.commands import cli
from fuaudit.config import RunOptions
from fuaudit.declared import AGREEMENT, METHODS, wrong
from fuaudit.describe import Option, description, in_words, options_of, toml
from fuaudit.errors import UsageError
from fuaudit.training.stages import Mean
from fuaudit.verification.spec import Check, SpecKeys

DOCS = Path(__file__).parents[1] / "docs"

OWN = [entry for kind in registry.KINDS for entry in registry.entries(kind).values() if entry.own]


@dataclass(frozen=True)
class Base:
    """Something.

    Attributes:
        one, two: both of them,
            on two lines, as :class:`~fuaudit.plans.Plan` is.
        three: of the base.

    Raises:
        ValueError: never.
    """

    one: int
    two: tuple[float, ...] = (0.5,)
    three: Literal["a", "b"] | None = None


@dataclass(frozen=True)
class Derived(Base):
    """Something else.

    Attributes:
        three: of ``Derived``.
    """

    four: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Silent:
    option: bool = False


def test_options_have_type_default_and_sentence():
    assert options_of(Derived) == (
        Option("one", "whole number", True, None, "both of them, on two lines, as Plan is."),
        Option("two", "list of numbers", False, (0.5,), "both of them, on two lines, as Plan is."),
        Option("three", "'a' or 'b'", False, None, "of `Derived`."),
        Option("four", "table", False, {}, ""),
    )
    assert options_of(Silent) == (Option("option", "true or false", False, False, ""),)


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (int | None, "whole number"),
        (tuple[tuple[int, ...], ...], "list of lists of whole numbers"),
        (tuple[dict[str, Any], ...], "list of tables"),
        (tuple[int, str], "list: whole number, text"),
    ],
)
def test_types_in_words(hint, words):
    assert in_words(hint) == words


def test_defaults_are_toml():
    assert [toml(value) for value in (True, (1, 2), "a", 0.5)] == ["true", "[1, 2]", '"a"', "0.5"]


@pytest.mark.parametrize("entry", OWN, ids=str)
def test_every_option_of_our_own_plugins_has_a_sentence(entry):
    told = description(entry)
    assert told.doc
    assert not [option.name for option in told.options if not option.doc]


@pytest.mark.parametrize("table", [RunOptions, SpecKeys, Check])
def test_every_key_of_configs_and_specs_has_a_sentence(table):
    assert not [option.name for option in options_of(table) if not option.doc]


def asked(*arguments):
    done = CliRunner().invoke(cli, ["plugins", *arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_a_name_of_several_kinds_shows_all():
    seen = json.loads(asked("fedprox", "--json"))["plugins"]
    assert [each["kind"] for each in seen] == ["learner", "solver"]
    assert [option["name"] for option in seen[1]["options"]] == ["mu"]
    assert seen[1]["options"][0]["default"] == 0.01
    assert seen[0]["distribution"] == "fuaudit"
    assert seen[0]["exact_for"] is None


def test_a_mutant_is_marked_and_says_what_it_is_exact_for():
    (seen,) = json.loads(asked("fats-as-printed", "--json"))["plugins"]
    assert seen["mutant"] is True
    assert seen["exact_for"]["uniform with replacement"] == ["client"]
    text = asked("fats-as-printed")
    assert "mutant: wrong on purpose" in text
    assert "uniform with replacement (client)" in text
    assert "arXiv 2401.11018" in text
    assert "exact for  nothing" in asked("noop")


def test_what_a_rule_publishes_is_told_by_its_words_or_by_numbers_of_rows(monkeypatch):
    """The docstring of the method where it has one; else what it answers with default options."""
    told = description(registry.entries("aggregators")["krum"]).declares["publishes"]
    assert told == "A row, of any number."
    entry, least = registry.entries("aggregators")["mean"], {"least_rows": 3, "guarantee": "none", "cite": "a page"}
    for publishes, expected in (
        (
            lambda self, rows: "coordinates" if rows % 2 else "row" * (rows == 4),
            "coordinates of 3, 5, 7, 9 rows; row of 4 rows",
        ),
        (lambda self, rows: "", "nothing of 2 to 9 rows"),
        (lambda self, rows: 1 / 0, "a method"),
    ):
        rule = dataclass(frozen=True)(type("Rule", (Mean,), {"__doc__": "One.", "publishes": publishes} | least))
        monkeypatch.setattr(type(entry), "load", lambda self, rule=rule: rule)
        found = description(entry)
        assert (found.declares["publishes"], found.guarantee, found.cite) == (expected, "none", "a page")
        assert not wrong(rule, "aggregators")
        assert not wrong(rule, "stages")


def test_in_words():
    text = asked("mlp")
    assert "hidden: list of whole numbers, default [32]" in text
    assert "units of each hidden layer." in text
    assert asked("mlp", "--quiet").count("\n") == 1


def test_an_unknown_name_offers_a_near_one():
    done = CliRunner().invoke(cli, ["plugins", "retrian"])
    assert isinstance(done.exception, UsageError)
    assert "Did you mean 'retrain'?" in str(done.exception)


@pytest.fixture(scope="module")
def reference():
    """The program that makes the reference."""
    spec = importlib.util.spec_from_file_location("make_reference", DOCS / "make_reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("kind", METHODS)
def test_the_methods_that_are_asked_for_are_those_of_the_protocols(kind, reference):
    found = [
        name
        for name, method in reference.methods_of(kind).items()
        if isinstance(method, FunctionType) and name[0] != "_"
    ]
    wanted = METHODS[kind] + (("settle", *AGREEMENT) if kind == "client_stages" else ())
    assert tuple(found) == wanted


def test_the_committed_reference_is_what_the_code_says(reference):
    assert (DOCS / "reference.md").read_text(encoding="utf-8") == reference.page(), "run python docs/make_reference.py"
