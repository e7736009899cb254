"""A rule that leaves a row, or some of it, and does not say so is found by its check; one that mixes rows passes."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from fuaudit_plugins.clipping import CenteredClipping
from fuaudit_plugins.medians import GeometricMedian
from tests_support import broken

from fuaudit.plugins import Stateless, mean
from fuaudit.testing import check_aggregator

ROW = r"leaves a row as it is, or times a number, and publishes"
ALONE = r"leaves what follows from one row alone"
COLUMNS = r"leaves columns that follow from one row each"


@dataclass(frozen=True)
class Rule(Stateless):
    """Publishes as it says, and leaves what ``of`` makes."""

    said: str = ""
    per_client_state: ClassVar[frozenset[str]] = frozenset()

    def publishes(self, rows):
        return self.said

    def apply(self, updates, context, state):
        return self.of(updates[context.cohort.present], context), state


def rule(made, said="", **body):
    body |= {"of": lambda self, rows, context: made(rows, context), "__doc__": "A rule."}
    return dataclass(frozen=True)(type("Wrong", (Rule,), body))(said)


def longest(rows):
    return rows[(rows * rows).sum(dim=1).argmax()][None]


def some_columns(rows, context):
    half = torch.arange(rows.shape[1]) % 2 == 0
    return torch.where(half, longest(rows), mean(rows))


def with_the_model(rows, context):
    return longest(rows) + context.vectors


def turned(rows, context):
    return longest(rows).flip(1)


def behind_sums_alone(rows, context):
    return mean(rows) if bool((context.cohort.clients >= 0).any()) else longest(rows)


def where_one_is_short(rows, context):
    lengths = rows.norm(dim=1)
    return rows[lengths.argmin()][None] if lengths.min() < lengths.median() / 3 else mean(rows)


def from_the_second_round_on(rows, context):
    return mean(rows) if context.number < 2 else longest(rows)


WRONG = {
    "some columns": (some_columns, COLUMNS),
    "a row beside what everybody knows": (with_the_model, ALONE),
    "a row in another order": (turned, ALONE),
    "behind sums alone": (behind_sums_alone, ROW),
    "where one row is short": (where_one_is_short, ROW),
    "from the second round on": (from_the_second_round_on, ROW),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_rule_that_leaves_a_row_unsaid_is_found(name):
    made, words = WRONG[name]
    broken(check_aggregator, rule(made), words)
    check_aggregator(rule(made, "row"))


def test_a_rule_that_keeps_what_it_had_publishes_too():
    """The first round has a mean; each later one the row that is nearest to what was left before."""

    def apply(self, updates, context, state):
        rows = updates[context.cohort.present]
        near = (rows - state["last"]).norm(dim=1).argmin()
        made = rows[near][None] if state["last"].any() else mean(rows)
        return made, {"last": context.on_all(made)}

    body = {"apply": apply, "init": lambda self, shape: {"last": shape.zeros(1, shape.dimension)}}
    broken(check_aggregator, rule(None, **body), ROW)
    check_aggregator(rule(None, "row", **body))


def rounded(rows, context):
    return mean((rows * 64).round() / 64)


def signs(rows, context):
    return mean(rows.sign())


def weighed(rows, context):
    lengths = rows.norm(dim=1, keepdim=True)
    return (rows / (1 + lengths)).sum(dim=0, keepdim=True)


@pytest.mark.parametrize("made", [lambda rows, context: mean(rows), rounded, signs, weighed])
def test_a_rule_that_mixes_rows_need_not_say_anything(made):
    check_aggregator(rule(made))


def test_rules_of_fuaudit_that_mix_rows():
    check_aggregator(GeometricMedian())
    check_aggregator(CenteredClipping(radius=1.0))
