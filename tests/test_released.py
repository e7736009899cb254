"""The account of a lineage in findings: what a run and its ancestors released, and what an epsilon is about."""

import json
import sys
from dataclasses import fields, replace
from fractions import Fraction

import pytest
from test_budget_family import DIM, LEARNS, PROPOSES, forget, root_and_child, trained
from tests_support import AUDIT_KEY, of_the_run

from fuaudit import load_run, verify
from fuaudit.budgets.conspar.account import account
from fuaudit.budgets.conspar.law import ConSpar
from fuaudit.draws.keyed import Keyed
from fuaudit.errors import UsageError
from fuaudit.plans.law import UniformLaw
from fuaudit.reporting import write_report
from fuaudit.reporting.contents import read_contents
from fuaudit.reporting.repeat import commands
from fuaudit.runs.account import account_of, account_of_lineage, told_anything
from fuaudit.statistics.rounding import up
from fuaudit.testing.tiny import tiny_dataset
from fuaudit.verification.case import Case
from fuaudit.verification.effort import Effort
from fuaudit.verification.gather import gather
from fuaudit.verification.released import released as released_by

NOISE = {"use": "gaussian-noise", "norm": 0.5, "noise": 20.0}


def released(run):
    result = verify(run, of_the_run(), key=AUDIT_KEY, data=tiny_dataset())
    return result.as_json()["context"]["released"]


def epsilon(rounds, delta=0.0):
    return up(account(ConSpar(DIM, 2, Fraction("0.99")), rounds, delta).total, 5)


@pytest.fixture
def two(tmp_path):
    return root_and_child(tmp_path)


def test_findings_have_the_account_of_run_and_ancestors_and_of_no_sibling(two, tmp_path):
    root, child = two
    (one,) = released(root)["accounts"]
    assert (one["part"], one["rounds"], one["epsilon"]) == ("client.1", 8, epsilon(8))
    found = released(child)
    (one,) = found["accounts"]
    assert found["covered"] == "12 rounds of 2 runs: root rounds 1 to 8; child rounds 5 to 8"
    assert (one["rounds"], one["epsilon"], one["reason"]) == (12, epsilon(12), "")
    assert {"delta", "unit", "adjacency", "adversary", "trust model", "sampling assumption", "accountant"} < set(
        one["statement"]
    )
    assert one["statement"]["outside it"].startswith("runs beside this lineage, such as siblings")
    forget(root, "retrain", tmp_path / "sibling", clients=[3])
    assert released(child) == found
    assert account_of(child).towards["server"].spent.rounds == 20
    assert {row["where"] for row in found["without_noise"]["child"]} >= {"rounds", "metrics.json", "participation.json"}
    json.dumps(found)


def test_ancestors_of_one_name_are_told_apart(two, tmp_path):
    root, child = two
    (tmp_path / "other").mkdir()
    moved = root.path.rename(tmp_path / "other" / "child")
    found = account_of_lineage(child, [load_run(moved)])
    assert sorted(found.unlimited) == sorted(f"child ({run.digest[:8]})" for run in two)


def test_without_the_parent_there_is_no_guarantee(two, tmp_path):
    root, child = two
    (tmp_path / "elsewhere").mkdir()
    root.path.rename(tmp_path / "elsewhere" / "root")
    found = released(child)
    assert found["reasons"] == ["the parent of child is not at hand, so what it released is not known"]
    assert [one["epsilon"] for one in found["accounts"]] == [None]


def test_where_nothing_was_told_there_is_nothing_to_account_for(tmp_path):
    silent = trained(tmp_path / "silent", client=[])
    assert not told_anything([silent])
    assert released(silent) is None
    report = write_report(silent.path, "md").read_text()
    assert "No event does not mean private." in report


@pytest.mark.parametrize("budget", [True, False])
def test_the_delta_is_that_of_the_config(tmp_path, budget):
    tables = {"budget": {"epsilon": 9.0, "delta": 1e-5}} if budget else {}
    run = trained(tmp_path / "run", client=[NOISE], **tables)
    (one,) = released(run)["accounts"]
    assert one["delta"] == ("1e-05" if budget else "0")
    assert (one["epsilon"] is None) == (not budget)
    assert one["under"] == "gaussian (noise 20.0, norm 0.5)"
    assert bool(one["reason"]) == (not budget)


def test_what_cannot_be_composed_here_is_a_reason_and_breaks_no_verification(tmp_path, monkeypatch):
    run = trained(tmp_path / "run", budget={"epsilon": 9.0, "delta": 1e-5})
    monkeypatch.setitem(sys.modules, "dp_accounting.pld.common", None)
    found = released(run)
    assert found["accounts"] == []
    assert "fuaudit[budgets]" in found["reasons"][0] or "dp-accounting" in found["reasons"][0]
    assert "No guarantee: " in write_report(run.path, "md").read_text()


class Breaks(UniformLaw):
    """A law that cannot say how often it draws a client."""

    def places(self, population):
        raise SystemExit(0)


def test_a_law_that_breaks_leaves_no_guarantee_and_ends_nothing(tmp_path):
    run = trained(tmp_path / "run", learner=LEARNS | {"use": "fats"}, client=[PROPOSES])
    law = Breaks(**{field.name: getattr(run.plan.law, field.name) for field in fields(run.plan.law)})
    vars(run)["plan"] = replace(run.plan, law=law)
    found = released_by(Case(gather(run, {}), Keyed(AUDIT_KEY), Effort()))
    assert found["accounts"] == []
    assert found["reasons"] == ["the account could not be made: SystemExit(0)"]


def at(run, **given):
    return verify(run, of_the_run(), key=AUDIT_KEY, data=tiny_dataset(), **given).as_json()


@pytest.mark.parametrize("budget", [True, False])
def test_an_auditor_may_choose_the_delta(tmp_path, budget):
    tables = {"budget": {"epsilon": 9.0, "delta": 1e-5}} if budget else {}
    run = trained(tmp_path / "run", client=[NOISE], **tables)
    found = at(run, delta=1e-6)
    (one,) = found["context"]["released"]["accounts"]
    assert one["delta"] == one["statement"]["delta"] == "1e-06"
    assert one["epsilon"] == up(account_of_lineage(run, [], 1e-6).towards["lineage"].accounts[0].epsilon, 5)
    assert any(line.endswith("--delta 1e-06") for line in commands(read_contents(found)))
    assert found["checks"] == at(run)["checks"]  # no audit looks at it


def test_a_delta_that_nothing_is_at_is_refused(tmp_path):
    silent = trained(tmp_path / "silent", client=[])
    with pytest.raises(UsageError, match="no round of silent and of its ancestors at hand told of a mechanism"):
        at(silent, delta=1e-6)
    for wrong in (-1e-6, 1.0, float("nan"), 1e-301, "1e-6", True):
        with pytest.raises(UsageError, match="delta"):
            at(silent, delta=wrong)
    at(silent, delta=None)


def test_the_command_line_chooses_a_delta_and_the_report_has_it(tmp_path, fuaudit):
    run = trained(tmp_path / "run", client=[NOISE])
    without = at(run)["context"]["released"]["accounts"][0]["reason"]
    assert "--delta" in without  # whoever reads that there is none at delta 0 is told what to do
    fuaudit("verify", run.path, "--delta", "1e-6")
    text = write_report(run.path, "md").read_text()
    assert "at delta 1e-06" in text
    assert "--delta 1e-06" in text
