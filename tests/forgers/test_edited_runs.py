"""Forgers around runs whose models an editor made: no plan makes these models, so other things have to be looked at.

Each trains a small federation with `finetune` as the editor, writes something else into a run, and makes manifest and
ledger fit. The auditor has all folders and the rows.
"""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from tests_support import (
    AUDIT_KEY,
    claimed,
    config,
    drawn_client,
    drawn_sample,
    edit,
    holding,
    installed,
    of_the_run,
    reseal,
    sealed,
    secret,
    told,
    with_options,
)

from fuaudit import train, unlearn, verify
from fuaudit.data.images import Digits
from fuaudit.errors import EvidenceError, UsageError
from fuaudit.formats.forms import pretty_json
from fuaudit.plans import Plan, Request
from fuaudit.runs.ledger import read_ledger
from fuaudit.verification.spec import parse_spec
from fuaudit.workflow.writer import RunWriter

WHOLE = {"run": {"checkpoint_every": 8, "engine": "reference"}}
"""One stored model beside the initial one."""


@pytest.fixture
def parent(tmp_path):
    return train(config(**WHOLE), tmp_path / "parent", secret=secret(7))


@pytest.fixture
def edited(parent, tmp_path):
    return unlearn(parent, "finetune", Request.of([drawn_client(parent)]), tmp_path / "edited", {"rounds": 1})


@pytest.fixture
def found(quick):
    def work(run, **given):
        return {f.audit: f for f in verify(run, quick, key=AUDIT_KEY, save=False, **given).findings}

    return work


def test_the_original_in_the_messages(parent, edited, found):
    """The size of each message is one number of the original model; the ledger counts them."""
    assert found(edited)["provenance"].verdict == "PASS"
    bits = [number % 2**32 for number in parent.model.view(torch.int32).tolist()]
    messages = [{"sender": "server", "receiver": "client 1", "size": number} for number in bits]
    edit(edited.path, "edit.json", messages=messages)
    counts = {"messages": len(bits), "bytes": sum(bits)}
    forged = told(edited.path, lambda events: [e | counts if e["event"] == "unlearning" else e for e in events])
    held = [message["size"] for message in json.loads((forged.path / "edit.json").read_bytes())["messages"]]
    assert held == bits
    finding = found(forged)["provenance"]
    assert (finding.verdict, finding.shows) == (
        "FAIL",
        "edit.json of edited does not hold the messages that 'finetune' sends.",
    )


ASKER = """
from dataclasses import dataclass
from typing import ClassVar

@dataclass(frozen=True)
class Asker:
    \"\"\"One step up the gradient that the target computes.\"\"\"
    needs: ClassVar[frozenset] = frozenset({"model"})
    participants: ClassVar[frozenset] = frozenset({"server", "target"})
    guarantee: ClassVar[str] = "none"
    cite: ClassVar[str] = ""

    def edit(self, context):
        return context.model + 0.01 * context.target_gradient(context.model)
"""


TWO_FACED = """
import sys
from dataclasses import dataclass
from typing import ClassVar

@dataclass(frozen=True)
class TwoFaced:
    \"\"\"Edits where it is sampled, and leaves the model alone in the run.\"\"\"
    needs: ClassVar[frozenset] = frozenset({"model"})
    participants: ClassVar[frozenset] = frozenset({"server"})
    guarantee: ClassVar[str] = "none"
    cite: ClassVar[str] = ""

    def edit(self, context):
        frame = sys._getframe()
        while frame and "replicas" not in frame.f_globals["__name__"]:
            frame = frame.f_back
        return context.model * 0.5 if frame else context.model
"""


def test_an_editor_that_leaves_the_model_alone_in_the_run(parent, found, tmp_path, monkeypatch):
    """What it does where it is sampled says nothing of a model that is the original in every bit."""
    entry = "[fuaudit.unlearners]\ntwo-faced = two_faced:TwoFaced\n"
    monkeypatch.syspath_prepend(str(installed(tmp_path / "site", "two_faced", TWO_FACED, entry)))
    child = unlearn(parent, "two-faced", Request.of([drawn_client(parent)]), tmp_path / "child")
    assert torch.equal(child.model, parent.model)
    finding = found(child)["provenance"]
    assert finding.verdict == "INCONCLUSIVE"
    assert "The model of child is its parent's in every bit" in finding.shows


def other_rows(run, client):
    """Digits, where the rows of a client hold something else."""
    data, rows = Digits().load(None), list(run.original.samples[client])
    inputs = data.inputs.clone()
    inputs[rows] = 1 - inputs[rows]
    return replace(data, inputs=inputs)


@pytest.mark.parametrize("earlier", [False, True])
def test_other_rows_under_erased_ids_refute_no_edit(parent, edited, found, tmp_path, monkeypatch, earlier):
    """Whoever hands in the erased rows cannot make an honest edit a FAIL: the one that asks for them, or one before."""
    entry = "[fuaudit.unlearners]\nasker = asker:Asker\n"
    monkeypatch.syspath_prepend(str(installed(tmp_path / "site", "asker", ASKER, entry)))
    if earlier:
        client = edited.plan.retained.clients[0]
        run = unlearn(edited, "finetune", Request.of([client]), tmp_path / "asked", {"rounds": 1})
    else:
        client = drawn_client(parent)
        run = unlearn(parent, "asker", Request.of([client]), tmp_path / "asked")
    assert found(run)["provenance"].verdict == "PASS"
    finding = found(run, data=other_rows(run, client))["provenance"]
    assert finding.verdict == "INCONCLUSIVE"
    assert finding.shows.endswith("rows that it reads are not at hand as they were committed to.")


def everything(run):
    """What a run stores, by rounds."""
    return {number: run.checkpoint(number) for number in run.checkpoints}


def test_a_parent_that_its_plan_does_not_make(parent, found, tmp_path):
    """The original's numbers stand where no training reaches; further training leaves them there."""
    vector, state = parent.checkpoint(8)
    dead = torch.cat([(Digits().load(None).inputs.reshape(-1, 64) == 0).all(0).repeat(10), torch.zeros(10) > 0])
    forged = vector.clone()
    forged[dead] = vector[~dead][: int(dead.sum())]
    moved = holding(parent.path, everything(parent) | {8: (forged, state)})
    child = unlearn(moved, "finetune", Request.of([drawn_client(moved)]), tmp_path / "child", {"rounds": 1})
    assert torch.equal(child.model[dead], forged[dead])
    findings = found(child)
    assert findings["provenance"].verdict == "PASS"
    assert findings["replay"].verdict == "FAIL"
    assert findings["replay"].shows.startswith("Of parent, whose model was edited: Stored models are not what")
    assert findings["replay"].plainly.startswith("The model that was edited is not the one")


def test_an_untouched_model_two_edits_before(parent, found, tmp_path):
    """The first child says that `fats` made it, and holds its parent's model; two edits follow."""
    clients = iter(sorted(parent.plan.index.clients))
    first = unlearn(parent, "fats", Request.of([next(clients)]), tmp_path / "first")
    last = holding(first.path, everything(parent))
    for name in ("second", "third"):
        last = unlearn(last, "finetune", Request.of([next(clients)]), tmp_path / name, {"rounds": 1})
    findings = found(last)
    assert (findings["integrity"].verdict, findings["provenance"].verdict) == ("PASS", "PASS")
    assert findings["replay"].verdict == "FAIL"
    assert findings["replay"].shows.startswith("Of first, whose model was edited: ")


OLDEST = """
from dataclasses import dataclass
from typing import ClassVar

@dataclass(frozen=True)
class Oldest:
    \"\"\"Goes back to the oldest stored model that was trained, and on without the target for as long.\"\"\"
    needs: ClassVar[frozenset] = frozenset({"model", "round models"})
    participants: ClassVar[frozenset] = frozenset({"server", "retained clients"})
    guarantee: ClassVar[str] = "none"
    cite: ClassVar[str] = ""

    def edit(self, context):
        models = context.round_models
        first, last = min(set(models) - {0}), max(models)
        return context.train(models[first], last - first) if last > first else models[first]
"""


@pytest.fixture
def oldest(tmp_path, monkeypatch):
    entry = "[fuaudit.unlearners]\noldest = oldest:Oldest\n"
    monkeypatch.syspath_prepend(str(installed(tmp_path / "site", "oldest", OLDEST, entry)))


@pytest.mark.usefixtures("oldest")
@pytest.mark.parametrize("behind", [False, True])
def test_an_editor_reads_in_its_audit_what_it_read_in_the_run(parent, tmp_path, behind):
    """With one stored model it leaves every bit; with all rounds it would nearly retrain, and pass."""
    if behind:
        stored = train(config(run={"engine": "reference", "checkpoint_every": 1}), tmp_path / "all", secret=secret(7))
        first, client = sorted(stored.plan.index.clients)[:2]
        run = unlearn(stored, "finetune", Request.of([first]), tmp_path / "first", {"rounds": 1})
    else:
        run, client = parent, drawn_client(parent)
    child = unlearn(run, "oldest", Request.of([client]), tmp_path / "child")
    assert torch.equal(child.model, run.model)
    few = with_options(of_the_run("model-law"), **{"model-law": {"pairs": 3, "test_rows": 50}})
    series = {f.audit: f.series for f in verify(child, few, key=AUDIT_KEY, save=False).findings}["model-law"]
    assert series["log wealth, subject"] == series["log wealth, untouched"]


def test_the_original_as_a_stored_model(parent, edited):
    """An editor makes one model; a second one is nobody's, and an editor after this one could read it."""
    RunWriter(edited.path).checkpoint(2, parent.model, {})
    with pytest.raises(EvidenceError, match=r"stores models of rounds \[2, 8\], and an editor"):
        reseal(edited.path)


def test_a_surplus_model_in_the_middle_of_a_lineage(parent, edited, quick, tmp_path):
    """The child after it names its digest; nobody verifies the run in the middle by itself."""
    client = edited.plan.retained.clients[0]
    second = unlearn(edited, "finetune", Request.of([client]), tmp_path / "second", {"rounds": 1})
    RunWriter(edited.path).checkpoint(2, parent.model, {})
    sealed(edited.path)
    digest = read_ledger(edited.path).events[-1]["digest"]
    edit(second.path, "run.json", parent={"digest": digest, "name": "edited"})
    forged = told(second.path, lambda events: [e | {"parent": digest} if "parent" in e else e for e in events])
    with pytest.raises(EvidenceError, match=r"edited stores models of rounds \[2, 8\], and an editor"):
        verify(forged, quick, key=AUDIT_KEY, save=False)


def test_figures_of_another_platform_are_no_free_numbers(edited, found):
    """He says that another processor measured, and writes numbers of his own as losses."""
    assert found(claimed(edited.path, processor="another"))["lineage"].verdict == "NOT_APPLICABLE"
    (row,) = edited.metrics
    (edited.path / "metrics.json").write_bytes(pretty_json([row | {"test_loss": 1.25}]))
    assert found(reseal(edited.path))["lineage"].verdict == "INCONCLUSIVE"


def test_a_parent_whose_erased_rows_are_not_at_hand(parent, edited, found, tmp_path):
    client, data = drawn_client(parent), Digits().load(None)
    absent = replace(data, absent=frozenset(parent.original.samples[client]))
    for given in (absent, other_rows(parent, client)):
        replay = found(edited, data=given)["replay"]
        assert replay.verdict == "INCONCLUSIVE"
        assert replay.shows.startswith("The model was edited, and the one before cannot be made again: ")
    alone = shutil.copytree(edited.path, tmp_path / "apart" / "edited")
    assert "not all runs before are at hand" in found(alone)["replay"].shows


@pytest.mark.parametrize(("last", "verdict"), [("retrain", "PASS"), ("fats", "PASS"), ("finetune", "INCONCLUSIVE")])
def test_an_edit_that_no_model_is_made_of_any_more(edited, found, tmp_path, last, verdict):
    """The rows that it read are erased since; whoever starts over behind it keeps nothing of it."""
    clients = iter(edited.plan.retained.clients)
    if last == "finetune":
        run = edited
    else:
        run = unlearn(edited, "retrain", Request.of([next(clients)]), tmp_path / "retrained")
    if last != "retrain":
        run = unlearn(run, last, Request.of([next(clients)]), tmp_path / "last")
    gone = [row for request in run.requests for client in request.clients for row in run.original.samples[client]]
    finding = found(run, data=replace(Digits().load(None), absent=frozenset(gone)))["provenance"]
    assert finding.verdict == verdict
    assert any("The edit of edited cannot be repeated" in line for line in finding.details)
    assert any("Nothing of it is in the run" in line for line in finding.assumptions) == (verdict == "PASS")


SAMPLED = """
from dataclasses import dataclass
from typing import ClassVar
from fuaudit.plugins import Finding, Subject, Verdict

@dataclass(frozen=True)
class Sampled:
    \"\"\"Says that models were sampled.\"\"\"
    evidence: ClassVar[frozenset] = frozenset({"sampling"})
    uses: ClassVar[frozenset] = frozenset()

    def examine(self, case):
        return Finding("sampled", Subject.ALGORITHM, Verdict.PASS, "All is well.", "Anything.")
"""


@pytest.fixture
def bound(tmp_path, monkeypatch):
    """A spec that asks for a bound, with an audit of somebody who always finds none."""
    entry = "[fuaudit.audits]\nsampled = sampled:Sampled\n"
    monkeypatch.syspath_prepend(str(installed(tmp_path / "site", "sampled", SAMPLED, entry)))
    uses = ("integrity", "replay", "provenance", "lineage", "sampled")
    checks = [{"claim": use, "audit": {"use": use}} for use in uses]
    return parse_spec({"id": "ours", "asks": "bound", "out_of_scope": ["all else"], "check": checks}, "ours.toml")


def test_a_bound_of_an_edited_run_rests_on_the_model_that_was_edited(parent, edited, bound):
    """Without the lineage's files of its own a spec made by a program has no evidence of them."""
    assert verify(edited, bound, key=AUDIT_KEY, save=False).verdict == "PASS"
    less = replace(bound, checks=tuple(check for check in bound.checks if check.audit["use"] != "lineage"))
    result = verify(edited, less, key=AUDIT_KEY, save=False)
    assert (result.verdict, "no evidence of regeneration" in result.reason) == ("INCONCLUSIVE", True)


def test_an_untouched_model_of_a_rewriter_does_not_pass_a_bound(parent, bound, tmp_path):
    child = unlearn(parent, "fats", Request.of([drawn_client(parent)]), tmp_path / "child")
    assert verify(child, bound, key=AUDIT_KEY, save=False).verdict == "PASS"
    forged = holding(child.path, everything(parent))
    assert verify(forged, bound, key=AUDIT_KEY, save=False).verdict == "FAIL"


def test_an_earlier_request_that_nobody_carried_out(parent, found, tmp_path):
    """The first child is its parent under another name; a second request, by an editor, hides nothing of that."""
    clients = sorted(parent.plan.index.clients)
    first = unlearn(parent, "noop", Request.of(clients[:1]), tmp_path / "first")
    second = unlearn(first, "finetune", Request.of(clients[1:2]), tmp_path / "second", {"rounds": 1})
    findings = found(second)
    assert second.info["doubts"] == first.info["doubts"] == ["'noop' claims to be exact for no law"]
    assert (findings["replay"].verdict, findings["provenance"].verdict) == ("FAIL", "FAIL")
    (drawn,) = [line for line in findings["provenance"].details if line.startswith("FAIL")]
    assert drawn.startswith("FAIL: Of first, whose model was edited: Round ")
    assert drawn.endswith("which was to be forgotten.")


def test_a_bound_of_an_edited_run_names_doubts_of_what_was_edited(parent, bound, tmp_path):
    sample = Request.of(samples=[drawn_sample(parent)])
    first = unlearn(parent, "fats-as-printed", sample, tmp_path / "first", allow_inexact=True)
    client = Request.of([first.plan.retained.clients[0]])
    second = unlearn(first, "finetune", client, tmp_path / "second", {"rounds": 1})
    result = verify(second, bound, key=AUDIT_KEY, save=False)
    (doubt,) = first.info["doubts"]
    assert result.verdict == "PASS"
    assert f"second is doubted, and this does not answer it: {doubt}." in result.conclusion.rests_on
    edit(second.path, "run.json", doubts=[])
    assert verify(reseal(second.path), bound, key=AUDIT_KEY, save=False).verdict == "FAIL"


FEW = {"use": "fats", "rounds": 2, "cohort": 1, "steps": 1, "batch": 8, "step_size": 0.1}


def test_what_an_editor_read_is_in_no_plan(found, tmp_path):
    """The plan never drew her, but further training did: there is something to forget."""
    parent = train(config(learner=FEW), tmp_path / "parent", secret=secret(7))
    never = sorted(set(parent.plan.retained.clients) - parent.plan.index.clients.keys())
    first = unlearn(parent, "finetune", Request.of(never[:1]), tmp_path / "first")
    assert "this model held nothing of it" in found(first)["provenance"].plainly
    second = unlearn(first, "finetune", Request.of(never[1:2]), tmp_path / "second")
    again = found(second)
    assert again["provenance"].verdict == "PASS"
    assert again["provenance"].plainly == again["provenance"].qualification == ""
    assert any("may have read the erased data" in copy.why for copy in again["lineage"].copies)


LAUNDER = """
from dataclasses import dataclass, replace
from typing import ClassVar
from fuaudit.plugins import END, Stream, exact_under

@dataclass(frozen=True)
class Launder:
    \"\"\"Draws the initial model anew, and keeps what does not name the target.\"\"\"
    needs: ClassVar[frozenset] = frozenset({"plan"})
    participants: ClassVar[frozenset] = frozenset({"server", "retained clients"})
    guarantee: ClassVar[str] = "exact, it says"
    cite: ClassVar[str] = ""
    exact_for: ClassVar = exact_under("uniform with replacement")

    def rewrite(self, plan, request, fresh, not_before):
        whole = plan.restart(request, fresh)
        kept = plan.erase(request, fresh, min(plan.first_involvement(request) or END, not_before))
        return replace(kept, streams={**kept.streams, Stream.INITIAL: whole.streams[Stream.INITIAL]})
"""


@pytest.fixture
def launder(tmp_path, monkeypatch):
    entry = "[fuaudit.unlearners]\nlaunder = launder:Launder\n"
    monkeypatch.syspath_prepend(str(installed(tmp_path / "site", "launder", LAUNDER, entry)))


@pytest.mark.usefixtures("launder")
def test_a_new_initial_model_over_kept_rounds_takes_no_doubt_away(parent, found, tmp_path):
    sample = Request.of(samples=[drawn_sample(parent)])
    first = unlearn(parent, "fats-as-printed", sample, tmp_path / "first", allow_inexact=True)
    client = Request.of([max(first.plan.index.clients, key=first.plan.index.clients.get)])
    second = unlearn(first, "launder", client, tmp_path / "second", allow_inexact=True)
    assert second.info["first_change"] == [0, 0]
    assert second.info["doubts"] == first.info["doubts"] != []
    assert found(second)["provenance"].verdict == "PASS"
    edit(second.path, "run.json", doubts=[])
    assert found(reseal(second.path))["provenance"].verdict == "FAIL"


@pytest.mark.usefixtures("launder")
def test_rounds_of_an_edited_run_are_not_kept_under_a_new_initial_model(found, tmp_path, monkeypatch):
    parent = train(config(learner=FEW), tmp_path / "parent", secret=secret(7))
    one, two = sorted(set(parent.plan.retained.clients) - parent.plan.index.clients.keys())[:2]
    run = unlearn(parent, "finetune", Request.of([one]), tmp_path / "run", {"rounds": 1})
    with pytest.raises(UsageError, match="was edited by 'finetune'"):
        unlearn(run, "launder", Request.of([two]), tmp_path / "refused")
    with monkeypatch.context() as own:  # a forger's unlearn does not refuse it
        own.setattr(Plan, "redrawn_from", lambda _, change: change)
        child = unlearn(run, "launder", Request.of([two]), tmp_path / "child")
    assert found(child)["integrity"].verdict == "FAIL"
