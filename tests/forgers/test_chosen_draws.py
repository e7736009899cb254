"""A forger chooses before, between and after: a commitment whose draws he likes, a method, an audit.

Nothing that he shows is wrong. He tries secrets until client DISLIKED is never drawn, and publishes that commitment; or
looks at the draws before he chooses how to unlearn; or verifies under new keys until it passes, and deletes what was
before. No run can show it; findings say what there was to choose, and a beacon, a method named in the config and a log
take it away.
"""

import shutil

import pytest
from tests_support import AUDIT_KEY, config, secret

from fuaudit import commit, train, unlearn, verify
from fuaudit.errors import UsageError
from fuaudit.plans import Request
from fuaudit.reporting import write_report
from fuaudit.verification.store import audit_folder

TARGET, DISLIKED, BEACON = 0, 5, "5a" * 32
TRIALS = (11, 10, 9, 8, 3)
"""The secrets that he tries; the last is the one that he likes."""


def of_plan(result):
    return next(finding for finding in result.findings if finding.audit == "provenance")


def asked(run, quick, **options):
    expected = {"commitment": run.commitment, "request": run.request}
    return verify(run, quick, key=AUDIT_KEY, save=False, **{**expected, **options})


@pytest.fixture
def liked(tmp_path):
    for number in TRIALS:
        run = train(config(), tmp_path / str(number) / "parent", secret=secret(number))
        if DISLIKED not in run.plan.index.clients:
            return run
    raise AssertionError("he likes none of them")


def test_a_commitment_that_was_tried_is_named(liked, quick):
    child = unlearn(liked, "fats", Request.of([TARGET]), liked.path.parent / "child")
    result = asked(child, quick)
    assert result.verdict == "PASS"
    words = (
        "No beacon was mixed into the draws: secrets could be tried until their draws were liked, before the "
        "commitment was published."
    )
    assert words in result.conclusion.rests_on
    assert asked(child, quick, beacon=BEACON).verdict == "FAIL", "who expects a beacon is not content"


def test_a_beacon_takes_the_choice_away(tmp_path, quick):
    """He commits to the secret that he likes; what is published then draws the disliked one, and tells of it."""
    promise = commit(config(), tmp_path / "promise.json", secret=secret(3))
    run = train(config(), tmp_path / "parent", promise=tmp_path / "promise.json", beacon=BEACON)
    assert DISLIKED in run.plan.index.clients
    child = unlearn(run, "fats", Request.of([TARGET]), tmp_path / "child")
    result = asked(child, quick, commitment=promise.commitment, beacon=BEACON)
    assert result.verdict == "PASS"
    (told,) = [line for line in result.conclusion.rests_on if "beacon" in line]
    assert "it is the one given by --beacon" in told
    assert "only if it was published after the commitment" in told
    with pytest.raises(UsageError, match="committed to before"):
        train(config(), tmp_path / "again", secret=secret(8), beacon=BEACON)


@pytest.mark.parametrize("named", [None, {"use": "fats"}], ids=["no method", "another method"])
def test_a_method_that_was_chosen_later_is_named(named, tmp_path, quick):
    run = train(config(**({"unlearner": named} if named else {})), tmp_path / "parent", secret=secret(3))
    child = unlearn(run, "retrain", Request.of([TARGET]), tmp_path / "child")
    result = asked(child, quick)
    assert result.verdict == "PASS"
    was = "names 'fats'" if named else "names none"
    words = f"The unlearner of child, 'retrain', was chosen later: the committed config {was}."
    assert words in result.conclusion.rests_on


def test_audits_are_counted_as_far_as_the_log_was_left(tmp_path, quick):
    run = train(config(), tmp_path / "parent", secret=secret(3))
    child = unlearn(run, "fats", Request.of([TARGET]), tmp_path / "child")
    wrong = verify(child, quick, request=Request.of([DISLIKED]))
    right = verify(child, quick, request=Request.of([TARGET]))
    assert [wrong.verdict, right.verdict] == ["FAIL", "PASS"]
    assert (
        right.standing == "This is verification 2 of 2 by the log beside the findings; the others: by this spec 1 FAIL."
    )
    shutil.rmtree(audit_folder(child.path))
    again = verify(child, quick, request=Request.of([TARGET]))
    assert again.standing == "This is verification 1 of 1 by the log beside the findings."
    page = write_report(child.path, "md").read_text(encoding="utf-8")
    assert "by the log beside the findings" in page
