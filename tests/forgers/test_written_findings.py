"""A forger prunes a run whose draws nobody can follow any more, and writes the findings that vouch for it himself.

Under round robin a client's period decides when it is there; a prune destroys the period of whom it erased, so whether
the kept rounds end where she came first is not shown any more, unless findings from before the prune showed it. The
forger hands over findings: of another run, of the same run with another verdict, or written by hand.
"""

import json
from dataclasses import replace

import pytest
from tests_support import AUDIT_KEY, config, drawn_client, secret

from fuaudit import train, unlearn, verify
from fuaudit.audits.provenance.answers import BEFORE, holds
from fuaudit.audits.provenance.pruned import FINDINGS_ARE_OURS
from fuaudit.audits.provenance.trusted import all_well
from fuaudit.draws import Keyed
from fuaudit.plans import Request
from fuaudit.verification.case import Case
from fuaudit.verification.evidence import Evidence
from fuaudit.workflow.prune import prune

LEARNER = {
    "use": "dropouts",
    **{"scenario": "round-robin", "tau_max": 4, "phase": "drawn", "first_all": False},
    **{"rounds": 8, "steps": 2, "batch": 4, "step_size": 0.1, "decay": 0.9},
}


@pytest.fixture
def child(tmp_path):
    run = train(config(learner=LEARNER), tmp_path / "run", secret=secret(4))
    return unlearn(run, "fats", Request.of([drawn_client(run, 1)]), tmp_path / "child")


@pytest.fixture
def asked(quick):
    def work(run, before=None):
        expected = {"commitment": run.commitment, "request": run.request}
        result = verify(run, quick, before=before, key=AUDIT_KEY, save=False, **expected)
        return result, {finding.audit: finding for finding in result.findings}

    return work


@pytest.mark.thorough
def test_findings_of_before(child, asked, tmp_path):
    result, _ = asked(child)
    assert result.verdict == "PASS"
    honest = result.as_json()
    # few plans are compared here; the audit of the stated size says this
    bound = {"audit": "plan-law", "verdict": "PASS", "figures": [{"key": "differs_below", "value": 0.001}]}
    bound["error_rate"] = 0.001
    others = [check for check in honest["checks"] if check["finding"]["audit"] != "plan-law"]
    honest = honest | {"checks": [*others, {"finding": bound}]}
    digest = child.digest
    pruned, _ = prune(child)
    bare, found = asked(pruned)
    assert bare.verdict == found["provenance"].verdict == "INCONCLUSIVE"

    def given(document):
        (tmp_path / "findings.json").write_text(json.dumps(document))
        return asked(pruned, tmp_path / "findings.json")

    # of another run, of this run as it is now, without the audit of plans, or one that did not pass
    plan = next(check for check in honest["checks"] if check["finding"]["audit"] == "provenance")
    failed = plan | {"finding": plan["finding"] | {"verdict": "FAIL"}}
    for document in (
        honest | {"run": "5a" * 32},
        honest | {"run": pruned.digest},
        honest | {"ledger": pruned.ledger.head},
        honest | {"checks": [check for check in honest["checks"] if check is not plan]},
        honest | {"checks": [failed]},
        honest | {"checks": [plan, {"finding": bound | {"error_rate": 0.999}}]},
    ):
        result, found = given(document)
        assert result.verdict == found["provenance"].verdict == "INCONCLUSIVE"
        assert "It was not shown before the prune" in found["provenance"].shows
        assert not any("answers all that this audit asks" in line for line in found["provenance"].assumptions)
    # the auditor's own pass; and so do those that the forger writes by hand, which nothing tells apart: it is named
    by_hand = {
        "format": honest["format"],
        "run": digest,
        "ledger": honest["ledger"],
        "checks": [{"finding": {"audit": "provenance", "verdict": "PASS"}}, {"finding": bound}],
        "context": {"arguments": ["--commitment", pruned.commitment, "--client", "0"]},
    }
    for document in (honest, by_hand):
        result, found = given(document)
        assert result.verdict == found["provenance"].verdict == "PASS", found["provenance"].shows
        assert FINDINGS_ARE_OURS in result.conclusion.rests_on
    assert "anybody can write such a file" in FINDINGS_ARE_OURS


def test_no_wording_says_what_was_shown_before(child):
    case, said = Case(Evidence(child, None, None), Keyed(AUDIT_KEY)), holds(f"Somebody wrote: it was shown {BEFORE}.")
    assert BEFORE not in all_well(case, [said])
    assert BEFORE in all_well(case, [replace(said, text="In other words.", before=True)])
