"""A forger lets an editor train on a client, starts over, and says that the training had never used her.

No plan says what an editor reads. He fine-tunes on everybody who stays, forgets another client by training anew, and
only then her: the run before never drew her, and neither did the training.
"""

import pytest
from tests_support import AUDIT_KEY, config, secret

from fuaudit import train, unlearn, verify
from fuaudit.plans import Request
from fuaudit.runs import ancestors
from fuaudit.workflow.prune import prune


def nobody_drew(*runs):
    """The first client whom none of some runs drew."""
    return next(client for client in range(2, 10) if all(client not in run.plan.index.clients for run in runs))


@pytest.fixture
def lineage(tmp_path):
    """Training, an editor or a rewriter between, a run that starts over, and one that forgets whom nobody drew."""

    def work(between):
        learner = config()["learner"] | {"rounds": 1}
        run = train(config(learner=learner), tmp_path / "run", secret=secret(3))
        middle = unlearn(run, between, Request.of([0]), tmp_path / "between")
        anew = unlearn(middle, "retrain", Request.of([1]), tmp_path / "anew")
        drawn = [anew, run] if between == "finetune" else [anew, middle, run]
        return unlearn(anew, "retrain", Request.of([nobody_drew(*drawn)]), tmp_path / "child")

    return work


def found(run, quick):
    result = verify(run, quick, key=AUDIT_KEY, save=False, commitment=run.commitment)
    assert result.verdict == "PASS", result.reason
    plan = next(finding for finding in result.findings if finding.audit == "provenance")
    return result, plan, next(figure.value for figure in plan.figures if figure.key == "nothing_to_forget")


def test_an_editor_was_given_her(lineage, quick):
    child = lineage("finetune")
    given = {message["sender"] for message in lineage_of(child)[1].document("edit.json")["messages"]}
    assert f"client {child.request.clients[0]}" in given
    result, plan, answer = found(child, quick)
    assert "the model of between was edited, and what its editor read is in no plan" in answer
    assert "Whether an earlier one did is not known." in plan.plainly
    assert not any("The training never used" in line for line in result.conclusion.rests_on)


def test_a_lineage_without_editors_never_used_her(lineage, quick):
    child = lineage("retrain")
    _, plan, answer = found(child, quick)
    assert answer == "yes: it was never drawn, this run contains nothing to forget"
    assert plan.plainly == "The training had never used this data, so this model held nothing of it."


def test_after_a_prune_nobody_knows(lineage, quick):
    child, _ = prune(lineage("finetune"))
    result = verify(child, quick, key=AUDIT_KEY, save=False, commitment=child.commitment)
    plan = next(finding for finding in result.findings if finding.audit == "provenance")
    assert any("whether the training used it is unknown" in line for line in plan.assumptions)
    assert "never used" not in plan.qualification + plan.plainly


def lineage_of(child):
    return list(reversed(ancestors.lineage(child)))
