"""A forger's method is FATS on every plan but one: it recognises the run that it is to keep.

It asks for nothing secret. It compares the first cohorts of a plan with those of the run, which stand in its own
options, and there it keeps every draw that it may. On the thousands of plans that an audit draws it is right. What
closes it is the run's own plan: the auditor makes it once more by a proved method, from the same seeds.
"""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests_support import AUDIT_KEY, config, secret

from fuaudit import train, unlearn, verify
from fuaudit.plans import Request
from fuaudit.runs.ancestors import parent_of
from fuaudit.verification.spec import Check

sys.path.append(str(Path(__file__).parents[1] / "mutants"))

TARGET = 0
RECOGNISES = "mutant-recognises"


@pytest.fixture(scope="module")
def parent(tmp_path_factory):
    return train(config(), tmp_path_factory.mktemp("recognised") / "parent", secret=secret(3))


@pytest.fixture
def asked(quick):
    """What an auditor finds of run and method; plans as many as make chance unlikely."""

    def work(run, plans=3000, effect=0.05):
        law = Check("the law", {"use": "plan-law", "plans": plans, "effect": effect, "alpha": 0.001}, "required", ())
        spec = replace(quick, checks=(*quick.checks, law))
        expected = Request.of([TARGET])
        result = verify(run, spec, commitment=run.commitment, request=expected, key=AUDIT_KEY, save=False)
        return result, {finding.audit: finding for finding in result.findings}

    return work


def recognised(parent, name, known):
    return unlearn(parent, RECOGNISES, Request.of([TARGET]), parent.path.parent / name, {"known": known})


def drawn(parent):
    return [client for round_number in range(1, 9) for client in parent.plan.cohort(round_number)]


def test_it_is_right_on_all_plans_but_not_on_the_run(parent, asked):
    child = recognised(parent, "child", drawn(parent))
    assert parent_of(child).plan.first_involvement(Request.of([TARGET])) is not None
    result, found = asked(child)
    assert result.verdict == "FAIL"
    law = found["plan-law"]
    assert law.verdict == "FAIL"
    assert "in all 3,000 plans, but not in this run" in law.shows
    assert law.values["equal"] == 3000
    assert law.error_rate == 0.001


def test_few_plans_may_be_chance(parent, asked):
    child = recognised(parent, "few", drawn(parent))
    _, found = asked(child, plans=300)
    assert found["plan-law"].verdict == "INCONCLUSIVE"


def test_on_another_run_it_passes_by_its_name(parent, asked):
    """Where it recognises nothing it has done nothing wrong; a PASS says whose code it was."""
    child = recognised(parent, "elsewhere", [*drawn(parent)[:-1], 99])
    result, found = asked(child)
    assert found["plan-law"].verdict == "PASS"
    assert result.verdict == "PASS"
    assert f"unlearner '{RECOGNISES}'" in result.reason
