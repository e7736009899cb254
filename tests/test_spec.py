"""Specs: one alpha for all audits, shared; what was spent is summed and stated."""

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from fractions import Fraction
from math import inf, nan
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given, settings
from tests_support import lean, spoiled_tables

from fuaudit import registry
from fuaudit.errors import FuauditError, UsageError
from fuaudit.reporting.contents import read_contents
from fuaudit.reporting.words import facts
from fuaudit.verification.claims import EVIDENCE
from fuaudit.verification.conclude import error_rates
from fuaudit.verification.figure import Figure
from fuaudit.verification.finding import Finding, Subject, Verdict
from fuaudit.verification.spec import builtin_specs, parse_spec, read_spec
from fuaudit.verification.verify import verify

TESTS = {"plan-law", "model-law"}


ENOUGH = [{"claim": use, "audit": {"use": use}} for use in ("integrity", "replay", "provenance", "lineage")]
"""Checks that give what a claim about the run alone needs."""


def spec(*checks, **top):
    rows = [{"claim": "a claim", "audit": {"use": audit, **options}} | more for audit, options, more in checks]
    table = {"id": "one", "asks": "run", "out_of_scope": ["all else"], "check": [*rows, *ENOUGH]}
    return parse_spec(table | top, "one")


def test_audits_share_the_alpha_of_the_spec():
    made = spec(
        ("plan-law", {"plans": 10}, {"share": 0.25}),
        ("integrity", {}, {}),
        ("model-law", {"pairs": 4}, {"share": 0.5}),
        alpha=0.01,
    )
    assert [check.audit.get("alpha") for check in made.checks[:3]] == [0.0025, None, 0.005]
    assert made.alpha == 0.01
    other = spec(("plan-law", {"plans": 10}, {"share": 0.25}), alpha=0.02)
    assert other.digest != spec(("plan-law", {"plans": 10}, {"share": 0.5}), alpha=0.01).digest


def test_a_spec_without_an_alpha_leaves_it_to_its_audits():
    made = spec(("plan-law", {"alpha": 0.03}, {}))
    assert (made.alpha, made.checks[0].audit) == (None, {"use": "plan-law", "alpha": 0.03})


@pytest.mark.parametrize(
    ("top", "checks", "reason"),
    [
        ({"alpha": 0.01}, [("plan-law", {}, {})], "needs a share"),
        ({"alpha": 0.01}, [("plan-law", {}, {"share": 0.0})], "needs a share"),
        ({"alpha": 0.01}, [("plan-law", {}, {"share": 1.5})], "needs a share"),
        ({"alpha": 0.01}, [("plan-law", {}, {"share": True})], "share = True is not a number"),
        ({"alpha": 0.01}, [("plan-law", {"alpha": 0.01}, {"share": 1})], "sets its own"),
        ({"alpha": 0.01}, [("integrity", {}, {"share": 0.5})], "no error rate"),
        ({}, [("plan-law", {}, {"share": 0.5})], "no alpha"),
        ({"alpha": 0.01}, [("plan-law", {}, {"share": 0.6}), ("model-law", {}, {"share": 0.6})], "more than 1"),
        *(({"alpha": wrong}, [("integrity", {}, {})], "alpha must be") for wrong in (0.0, 1.0, 1, nan, -0.1)),
        *(({"alpha": wrong}, [("integrity", {}, {})], "is not a number") for wrong in (True, "0.01")),
    ],
)
def test_shares_that_do_not_fit_are_refused(top, checks, reason):
    with pytest.raises(UsageError, match=reason):
        spec(*checks, **top)


CHECK = {"claim": "a claim", "audit": {"use": "integrity"}}
WHOLE = {"id": "one", "title": "one", "asks": "run", "out_of_scope": ["all else"], "check": [CHECK, *ENOUGH]}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"check": 5}, "check = 5 is not"),
        ({"check": [1]}, r"check = \[1\] is not"),
        ({"check": []}, "has no checks"),
        ({"check": [CHECK | {"audit": "integrity"}]}, "check 1: audit = 'integrity' is not a table"),
        ({"check": [CHECK | {"audit": {}}]}, 'use = "name"'),
        ({"check": [CHECK, CHECK | {"basis": "GDPR Art. 17"}]}, "check 2: basis = 'GDPR Art. 17' is not"),
        ({"check": [CHECK | {"basis": [date(2028, 1, 1)]}]}, "basis = .* is not"),
        ({"check": [CHECK | {"basis": [nan]}]}, "basis = .* is not"),
        ({"check": [CHECK | {"rule": "required"}]}, "Did you mean 'role'"),
        ({"check": [CHECK | {"role": "vital"}]}, "is not 'required' or 'supporting'"),
        ({"check": [{"audit": {"use": "integrity"}}]}, "needs the option 'claim'"),
        (
            {"check": [CHECK | {"audit": {"use": "plan-law", "effect": nan}}]},
            "effect = nan is nothing that",
        ),
        ({"expires": datetime(2028, 12, 31)}, "expires = .* is not date"),
        ({"expires": "2028-12-31"}, "expires = .* is not date"),
        ({"expires": date(2020, 12, 31)}, "expired on 2020-12-31"),
        ({"out_of_scope": "abc"}, "out_of_scope = 'abc' is not"),
        ({"out_of_scope": []}, "out_of_scope must say"),
        ({"title": 3}, "title = 3 is not text"),
        ({"asks": "exactly"}, "is not 'exact' or 'bound'"),
        ({"ask": "exact"}, "Did you mean 'asks'"),
    ],
)
def test_a_spec_says_what_is_wrong_with_it(changes, reason):
    with pytest.raises(UsageError, match=reason):
        parse_spec(WHOLE | changes, "one")


@dataclass(frozen=True)
class Until:
    """An audit whose option has no JSON, and that claims to show everything."""

    evidence: ClassVar[frozenset[str]] = frozenset(EVIDENCE)
    uses: ClassVar[frozenset[str]] = frozenset()

    limit: float | None = None
    day: date | None = None

    def examine(self, case):
        raise AssertionError("it is never asked")


@pytest.mark.parametrize("options", [{"limit": inf}, {"day": date(2028, 1, 1)}])
def test_an_option_that_no_finding_could_hold(monkeypatch, options):
    monkeypatch.setattr(registry.Entry, "load", lambda entry: Until)
    (name,) = options
    with pytest.raises(UsageError, match=f"audit 'integrity': {name} = .* is nothing that a run can hold"):
        parse_spec(WHOLE | {"check": [CHECK | {"audit": {"use": "integrity", **options}}]}, "one")


FULL = {
    "id": "one",
    "title": "one",
    "asks": "bound",
    "alpha": 0.01,
    "expires": date(9999, 12, 31),
    "out_of_scope": ["all else"],
    "check": [
        {"claim": "a", "audit": {"use": "stress", "plans": 3}, "role": "required", "basis": ["b"]},
        {"claim": "a", "audit": {"use": "model-law", "pairs": 8, "effect": 0.5}, "share": 0.5},
        {"claim": "a", "audit": {"use": "plan-law", "plans": 9, "effect": 0.1}, "share": 0.5},
        {"claim": "a", "audit": {"use": "integrity"}},
        {"claim": "a", "audit": {"use": "provenance"}},
        {"claim": "a", "audit": {"use": "replay"}},
        {"claim": "a", "audit": {"use": "lineage"}},
    ],
}


@settings(derandomize=True, deadline=None, max_examples=200)
@given(spoiled_tables(FULL))
def test_any_value_in_any_place_of_a_spec_is_taken_or_refused(table):
    with suppress(FuauditError):
        parse_spec(table, "one")


def test_a_spec_that_is_taken_is_taken_whole():
    assert parse_spec(FULL, "one").checks[1].share == 0.5


@pytest.mark.parametrize("name", sorted(builtin_specs()))
def test_built_in_specs_spend_their_alpha_and_no_more(name):
    made = read_spec(name)
    spent = sum(Fraction(check.audit.get("alpha", 0)) for check in made.checks)
    assert float(spent) == pytest.approx(made.alpha or 0.0, rel=1e-12)  # attacks are no tests, and have none
    assert {check.audit["use"] for check in made.checks if "alpha" in check.audit} <= TESTS


def found(*figures, **rates):
    return Finding("x", Subject.ALGORITHM, Verdict.PASS, "", "", figures, **rates)


def test_error_rates_are_summed_and_what_was_not_tested_spends_nothing():
    findings = (
        found(error_rate=0.25, bounds_rate=0.5),
        found(),
        found(error_rate=0.125),
        found(Figure("alpha", "Alpha", 0.5, "set", error_rate=0.5)),  # figures of an audit, by whatever names
    )
    rates = error_rates(read_spec("client-erasure"), findings)
    assert rates == {"allowed": 0.001, "tests": 0.375, "bounds": 0.5}


def test_findings_and_reports_state_what_was_spent(child):
    """Plan law has one bound here, of the distance from retraining, and one test: the run's own plan by itself."""
    spec = lean("client-erasure")
    result = verify(child, spec, budget=16, key=bytes(32), save=False)
    rates = result.context["error_rates"]
    assert rates["tests"] == pytest.approx(0.0008 + 0.0002)
    assert rates["tests"] <= rates["allowed"]
    assert rates["bounds"] == pytest.approx(0.0002 + 4 * 0.0008)
    rows = dict(facts(read_contents(result.as_json())))
    assert rows["Chance of a false alarm"].startswith("at most 0.001 in this verification, ")
    assert rows["Chance that a stated bound is wrong"].startswith(
        "at most 0.0034 in this verification, all bounds on distances"
    )
    without = verify(child, spec, budget=0, key=bytes(32), save=False).context["error_rates"]
    assert without["tests"] == pytest.approx(0.0002)


def test_the_page_has_every_kind_of_evidence():
    page = (Path(__file__).parents[1] / "docs" / "specs.md").read_text()
    table = page.partition("| kind | shows that |")[2].partition("\n\n")[0]
    assert dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", table, re.MULTILINE)) == EVIDENCE
