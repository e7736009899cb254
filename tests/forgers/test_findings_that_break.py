"""Findings that break verify instead of one check, and keywords that are ignored or misread in silence."""

import json
import os
import shutil
import sys
from dataclasses import replace

import pytest
from tests_support import AUDIT_KEY, installed

from fuaudit import unlearn, verify
from fuaudit.errors import FuauditError, UsageError
from fuaudit.plans import Request
from fuaudit.verification.spec import Check

CODE = """
from dataclasses import dataclass
from typing import ClassVar

from fuaudit.plugins import Figure, Finding, Subject, Verdict


@dataclass(frozen=True)
class Mine:
    evidence: ClassVar[frozenset[str]] = frozenset()
    uses: ClassVar[frozenset[str]] = frozenset()

    def examine(self, case):
        return Finding("mine", Subject.RUN, Verdict.PASS, "It shows.", "Not that.", MORE)
"""


@pytest.fixture
def kid(tiny, tmp_path):
    return unlearn(tiny(tmp_path / "p"), "fats", Request.of([0]), tmp_path / "c", data=tiny.dataset)


@pytest.mark.parametrize(
    "more",
    [
        "(Figure('a', 'A', 10**400, 'how'),)",
        "(Figure('a', 'A', 1, 'how', interval=(0, 10**400)),)",
        "error_rate=10**400",
        "series={'a': [10**400]}",
        "(Figure('a', '\\ud800', 1, 'how'),)",
        "detectable='\\udcff'",
    ],
)
def test_a_finding_that_cannot_be_written_is_an_error_of_its_check_alone(more, kid, tiny, quick, tmp_path, monkeypatch):
    """docs/plugin-guide.md: it makes an ERROR of its check and exit code 5; the findings of the others are kept."""
    site = installed(
        tmp_path / "site", "stranger", CODE.replace("MORE", more), "[fuaudit.audits]\nmine = stranger:Mine\n"
    )
    monkeypatch.syspath_prepend(str(site))
    sys.modules.pop("stranger", None)
    spec = replace(quick, checks=(*quick.checks, Check("Mine", {"use": "mine"}, "supporting")))
    try:
        found = verify(kid, spec, key=AUDIT_KEY, data=tiny.dataset)
    finally:
        sys.modules.pop("stranger", None)
    assert (found.verdict, found.exit_code) == ("ERROR", 5)
    assert json.loads(found.path.read_text())


def test_a_folder_whose_name_is_no_text(kid, tiny, quick, tmp_path):
    there = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    shutil.move(str(kid.path), there)
    with pytest.raises(FuauditError, match="no text"):
        verify(there, quick, key=AUDIT_KEY, data=tiny.dataset, parent=tmp_path / "p")


@pytest.mark.parametrize(
    "given",
    [
        {"stopping": "decide"},  # taken for "fixed"
        {"stopping": None},
        {"budget": -5},
        {"budget": "3"},
        {"budget": 2.5},
        {"spot_check": 2.7},
        {"spot_check": "2"},  # TypeError
        {"receipts": None},  # TypeError, though every keyword may be None
        {"workers": None},
        {"commitment": ""},  # a FAIL of the operator's for a mistake of the auditor's
        {"commitment": b"x"},
        {"commitment": 3},
        {"erased": "/nonexistent"},  # without data: never opened, yet findings say --erased ROWS
    ],
    ids=str,
)
def test_a_keyword_that_cannot_be_meant(given, kid, quick):
    sampling = Check("x", {"use": "model-law", "pairs": 8}, "supporting")
    spec = replace(quick, checks=(*quick.checks, sampling)) if {"stopping", "budget"} & given.keys() else quick
    with pytest.raises(UsageError):
        verify(kid, spec, key=AUDIT_KEY, save=False, **given)


def test_a_commitment_in_capitals_is_the_same_number(kid, tiny, quick):
    found = verify(kid, quick, key=AUDIT_KEY, save=False, data=tiny.dataset, commitment=kid.commitment.upper())
    assert found.verdict == "PASS", found.reason
