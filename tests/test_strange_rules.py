"""Rules of other packages behind sums: what they say of rows and clients is asked early, and told by its part."""

from pathlib import Path

import pytest
from test_secured_runs import FEDAVG, NOISY
from tests_support import broken, installed

from fuaudit import train, unlearn
from fuaudit.audits.transcript.audit import _checked
from fuaudit.audits.transcript.known import known_of
from fuaudit.audits.transcript.served import served
from fuaudit.errors import PluginError, UsageError
from fuaudit.plans import Request
from fuaudit.registry import build
from fuaudit.testing import check_aggregator
from fuaudit.testing.tiny import tiny_dataset
from fuaudit.workflow.seal import seal

RULES = """
from dataclasses import dataclass
from typing import ClassVar

from fuaudit.plugins import Stateless, mean


@dataclass(frozen=True)
class ByMembers(Stateless):
    '''The mean, times a number that follows from how many clients there are in all.'''

    depends_on: ClassVar[frozenset[str]] = frozenset({"clients"})

    def apply(self, updates, context, state):
        return mean(updates[context.cohort.present]) * (context.cohort.members / 16), state


@dataclass(frozen=True)
class Bears(Stateless):
    '''The mean, which says that it bears some rows: as many as the option is, of however many.'''

    most: float = 0.0

    def apply(self, updates, context, state):
        return mean(updates[context.cohort.present]), state

    def bears(self, rows):
        if self.most < 0:
            raise KeyError(rows)
        return int(self.most) if self.most == int(self.most) else self.most


@dataclass(frozen=True)
class Publishes(Stateless):
    '''The mean, which says by a word what it publishes.'''

    word: str = ""

    def apply(self, updates, context, state):
        return mean(updates[context.cohort.present]), state

    def publishes(self, rows):
        return self.word
"""
ENTRIES = (
    "[fuaudit.aggregators]\nby-members = strange_rules:ByMembers\nbears = strange_rules:Bears\n"
    "publishes = strange_rules:Publishes\n"
)
WRONG = {3.0: "returned int 3, and not a whole number from 0 to 1", 0.5: "returned float 0.5", -1.0: "raised KeyError"}
"""What a rule bears -> what is wrong with it."""


@pytest.fixture(autouse=True)
def rules(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(installed(tmp_path / "site", "strange_rules", RULES, ENTRIES)))


def trained(path, server, secure=None, tables=FEDAVG):
    return train(tables | {"server": [server]}, path, tiny_dataset(), bytes(32), secure=secure)


@pytest.mark.parametrize("most", WRONG)
def test_what_a_rule_bears_is_asked_before_anything_is_trained(tmp_path, most):
    with pytest.raises(PluginError, match=f"^aggregator 'bears', bears.* {WRONG[most]}"):
        trained(tmp_path / "run", {"use": "bears", "most": most})
    assert not Path(tmp_path / "run").exists()


@pytest.mark.parametrize("most", WRONG)
def test_what_a_rule_bears_is_a_number_of_rows(most):
    broken(check_aggregator, build("aggregators", {"use": "bears", "most": most}), "what it bears", WRONG[most])


THREE = FEDAVG | {"transport": {"use": "secure-sum", "size": 3}}


@pytest.mark.parametrize(("tables", "secure"), [(FEDAVG, "plain"), (THREE, "plain"), (THREE, None)])
def test_what_a_rule_publishes_is_asked_before_anything_is_trained(tmp_path, tables, secure):
    """Also where a sum has three clients or more, and one alone comes: the word would be believed elsewhere."""
    with pytest.raises(PluginError, match=r"^aggregator 'publishes', publishes, returned str, and not one of"):
        trained(tmp_path / "run", {"use": "publishes", "word": "rows"}, secure, tables)
    assert not Path(tmp_path / "run").exists()
    trained(tmp_path / "run", {"use": "publishes"}, secure, tables)


def test_a_rule_that_bears_rows_is_trained(tmp_path):
    check_aggregator(build("aggregators", "bears"))
    trained(tmp_path / "run", {"use": "bears"})


def test_how_many_clients_there_are_is_known_behind_sums(tmp_path):
    """It is public, and a sum tells nothing of it: the server's half is executed with it, in a sealed view too."""
    check_aggregator(build("aggregators", "by-members"))
    parent = trained(tmp_path / "parent", {"use": "by-members"}, "plain", NOISY)
    child = unlearn(parent, "retrain", Request.of([0]), tmp_path / "child", data=tiny_dataset())
    for run in (parent, child, seal(parent, tmp_path / "view"), seal(child, tmp_path / "childs-view")):
        found = served(run, _checked(run, known_of(run)))
        assert (found.others, found.missing) == ((), "")


def test_who_keeps_rounds_is_told_which_rule_knows_how_many_clients_there_were(tmp_path):
    parent = trained(tmp_path / "parent", {"use": "by-members"})
    with pytest.raises(UsageError, match="; the aggregator 'by-members' depends on how many clients there are\n"):
        unlearn(parent, "fats", Request.of([0]), tmp_path / "child", data=tiny_dataset())
    unlearn(parent, "retrain", Request.of([0]), tmp_path / "child", data=tiny_dataset())
