"""A hostile operator who owns the folders: forged partitions and records, sealed anew with every file that follows."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests_support import AUDIT_KEY, audits, config, drawn_client, edit, remade, secret
from tests_support import told as tell

from fuaudit import load_run, registry, train, unlearn, verify
from fuaudit.draws import START, Address, Purpose
from fuaudit.errors import EvidenceError, UsageError
from fuaudit.formats.forms import tensor_bytes
from fuaudit.plans import Plan, Population, Request
from fuaudit.runs.encoding import population_tensors, recorded_tensors
from fuaudit.training.setup import load_dataset
from fuaudit.unlearning.apply import unlearner_record
from fuaudit.workflow.prune import prune


@pytest.fixture
def parent(tmp_path):
    return train(config(run={"checkpoint_every": 1}), tmp_path / "parent", secret=secret(7))


@pytest.fixture
def commitment(parent):
    return parent.ledger.events[0]["commitment"]


def test_a_pruned_run_cannot_choose_where_it_is_cut(parent, commitment, tmp_path):
    """A round less is kept than the draws say: a way to choose among models."""
    target = drawn_client(parent)
    child = unlearn(parent, "fats", Request.of(clients=[target]), tmp_path / "child")
    cut = [child.info["first_change"][0] - 1, 0]
    streams = json.loads((child.path / "plan.json").read_text())["streams"]
    for name in ("cohorts", "batches"):
        streams[name] = [[0, 0, 0, 0], [*cut, 1, 1]]
    edit(child.path, "plan.json", streams=streams)
    edit(child.path, "run.json", first_change=cut)
    facts = {"event": "round", "round": cut[0]}

    def course(events):
        for event in events:
            if event["event"] == "unlearning":
                event = event | {"first_change": cut, "kept_rounds": cut[0] - 1}
            if event["event"] == "platform":
                event = event | {"since": min(event["since"], cut[0] - 1)}
            if event["event"] == "round" and event["round"] == cut[0] + 1:
                yield facts
            yield event

    remade(child.path, course)
    pruned, _ = prune(child.path)
    result, found = audits(pruned, commitment=commitment, request=Request.of(clients=[target]))
    assert found["replay"].verdict == found["integrity"].verdict == "PASS"
    assert result.verdict == found["provenance"].verdict == "INCONCLUSIVE"  # the seed of the true cut is gone
    assert "cannot be followed" in found["provenance"].shows


@pytest.mark.thorough
def test_an_honest_prune_stays_bound_to_the_commitment(parent, commitment, tmp_path):
    target = drawn_client(parent)
    sample = parent.plan.retained.samples[(target + 1) % 10][0]
    first = unlearn(parent, "fats", Request.of(samples=[sample]), tmp_path / "first")
    child, _ = prune(unlearn(first, "fats", Request.of(clients=[target]), tmp_path / "child"))
    assert child.commitment == parent.commitment
    later = unlearn(child, "fats", Request.of(clients=[(target + 2) % 10]), tmp_path / "later")
    assert later.commitment == parent.commitment
    for run in (child, later):
        result, found = audits(run, commitment=commitment)
        assert result.verdict == "PASS", {n: (f.verdict, f.shows, f.details) for n, f in found.items()}
    again, _ = prune(later)
    assert again.commitment == parent.commitment
    assert audits(again, commitment=commitment)[0].verdict == "PASS"


def test_a_child_that_says_it_is_pruned_is_still_compared(parent, commitment, tmp_path):
    target = drawn_client(parent)
    child = unlearn(parent, "fats", Request.of(clients=[target]), tmp_path / "child")
    clients = dict(parent.original.samples)
    heir = next(c for c in clients if c != target)
    gone = clients[target]
    clients[heir], clients[target] = tuple(sorted((*clients[heir], *gone[:-20]))), gone[-20:]
    (child.path / "partition.safetensors").write_bytes(tensor_bytes(population_tensors(Population(clients))))
    edit(child.path, "keys.json", partition=None)
    with pytest.raises(EvidenceError, match="lacks the key of its partition"):
        remade(child.path)


def test_an_interrupted_prune_is_no_forgery(parent, commitment, tmp_path):
    """The child is pruned already, the parent not yet: the two can still be compared."""
    target = drawn_client(parent)
    child = unlearn(parent, "fats", Request.of(clients=[target]), tmp_path / "child")
    kept = {path: path.read_bytes() for path in parent.path.rglob("*") if path.is_file()}
    prune(child)
    (parent.path / "tombstone.json").unlink()
    for path, content in kept.items():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    result, found = audits(load_run(child.path), commitment=commitment)
    assert result.verdict == "PASS", {n: (f.verdict, f.shows, f.details) for n, f in found.items()}


def test_a_planted_record_is_not_believed(parent, commitment, tmp_path):
    """Draws of an earlier key written down as recorded, after looking: every round goes to one favourite."""
    first = parent.plan.index.clients
    one = unlearn(parent, "fats", Request.of(clients=[min(first, key=first.get)]), tmp_path / "one")
    later = one.plan.index.clients
    second = Request.of(clients=[max(later, key=later.get)])
    two = unlearn(one, "fats", second, tmp_path / "two")
    favourite = two.plan.retained.clients[0]
    batch = two.plan.retained.samples[favourite][:8]
    answers = {Address(Purpose.COHORT, round_number): (favourite, favourite) for round_number in range(1, 9)}
    answers |= {
        Address(Purpose.BATCH, round_number, step, favourite, occurrence): batch
        for round_number in range(1, 9)
        for step in (1, 2)
        for occurrence in (0, 1)
    }
    (two.path / "recorded.safetensors").write_bytes(tensor_bytes(recorded_tensors({1: answers})))
    forged = remade(two.path)
    assert forged.plan.cohort(1) == (favourite, favourite)
    result, found = audits(forged, commitment=commitment, request=second)
    assert result.verdict == found["provenance"].verdict == "FAIL"


def test_a_partition_that_was_not_committed_to_is_seen_without_the_erased_rows(
    parent, commitment, tmp_path, monkeypatch
):
    """An honest copy of fuaudit does not unlearn from it; the forger's own looks at no leaf."""
    target = drawn_client(parent)
    clients = dict(parent.plan.retained.samples)
    a, b = [client for client in clients if client != target][:2]
    clients[a], clients[b] = clients[a][-8:], tuple(sorted((*clients[b], *clients[a][:-8])))
    (parent.path / "partition.safetensors").write_bytes(tensor_bytes(population_tensors(Population(clients))))
    forged = remade(parent.path)
    request = Request.of(clients=[target])
    with pytest.raises(UsageError, match=r"is not what .* committed to"):
        unlearn(forged, "fats", request, tmp_path / "refused")
    monkeypatch.setattr("fuaudit.workflow.unlearn.require_committed", lambda *anything: None)
    child = unlearn(forged, "fats", request, tmp_path / "child")
    data = replace(load_dataset(forged.config, None), absent=frozenset(clients[target]))
    for run, expected in ((forged, None), (child, request)):
        result, found = audits(run, commitment=commitment, data=data, request=expected)
        assert result.verdict == found["provenance"].verdict == "FAIL"


def test_a_tombstone_is_not_believed_where_it_says_what_it_kept(tmp_path, quick, monkeypatch):
    """Rounds under MIFA depend on all clients: whoever kept some says, by another first change, that he kept none."""
    learner = {"use": "fedavg", "rounds": 8, "cohort": 2, "steps": 2, "batch": 8, "step_size": 0.1}
    parent = train(config(learner=learner, server=[{"use": "mifa"}]), tmp_path / "parent", secret=secret(7))
    target = drawn_client(parent)
    with monkeypatch.context() as patch:
        patch.setattr(Plan, "first_change", lambda plan, above: START)
        patch.setattr(Plan, "redrawn_from", lambda plan, change: change)
        first = unlearn(parent, "fats", Request.of([target]), tmp_path / "first")
    cut = first.plan.first_change(parent.plan)
    assert (first.info["first_change"], first.info["doubts"], cut.round > 2) == ([0, 0], [], True)
    sample = max(first.plan.index.samples, key=first.plan.index.samples.get)
    child = unlearn(first, "fats", Request.of(samples=[sample]), tmp_path / "child")
    assert child.plan.first_change(first.plan) > cut
    for run in (child, prune(child)[0]):
        found = {f.audit: f for f in verify(run, quick, key=AUDIT_KEY, save=False).findings}
        assert found["replay"].verdict == "PASS"
        assert found["provenance"].verdict == "FAIL"
    assert "first names another first change than the plan leaves it" in found["provenance"].shows


def test_old_draws_over_a_new_population_make_no_run(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "mutants"))
    parent = train(config(), tmp_path / "parent", secret=secret(7))
    with pytest.raises(UsageError, match="uses draws of one request over the population of another"):
        unlearn(parent, "stranger-old-source", Request.of([drawn_client(parent)]), tmp_path / "child")
    assert not (tmp_path / "child").exists()


def test_a_method_that_goes_back_to_older_draws_is_no_liar(tmp_path, quick, monkeypatch):
    """What a request changed first shows no draw of its own then: it is repeated, or after a prune not known."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "mutants"))
    parent = train(config(), tmp_path / "parent", secret=secret(7))
    first = unlearn(parent, "fats", Request.of([drawn_client(parent)]), tmp_path / "first")
    never = min(set(first.plan.retained.clients) - set(first.plan.index.clients))
    child = unlearn(first, "stranger-goes-back", Request.of([never]), tmp_path / "child")
    assert child.info["first_change"] == [child.plan.law.rounds, 1]
    assert provenance_of(child, quick) == "PASS"
    assert provenance_of(prune(child)[0], quick) == "INCONCLUSIVE"


def provenance_of(run, spec):
    found = {f.audit: f.verdict for f in verify(run, spec, key=AUDIT_KEY, save=False).findings}
    assert found["replay"] == "PASS"
    return found["provenance"]


def test_nobody_goes_on_from_the_plan_of_an_edited_model(tmp_path, quick):
    """Each option of an editor that leaves nothing would give other noise to what comes after it."""
    parent = train(config(), tmp_path / "parent", secret=secret(7))
    drawn = parent.plan.index.clients
    last = max(drawn, key=drawn.__getitem__)
    edited = unlearn(parent, "finetune", Request.of([last]), tmp_path / "edited", {"rounds": 1})
    del edited.info["edited_by"]  # his own copy does not look at it
    other = next(c for c, r in drawn.items() if 1 < r < drawn[last])
    child = unlearn(edited, "fats", Request.of([other]), tmp_path / "child")
    assert child.info["first_change"] != list(START)
    for run in (child, prune(child)[0]):
        found = {f.audit: f for f in verify(run, quick, key=AUDIT_KEY, save=False).findings}
        assert found["integrity"].verdict == "FAIL"
        assert "child keeps draws of edited, which 'finetune' edited" in found["integrity"].details


def test_a_method_that_was_chosen_later_is_named_with_its_options(tmp_path, quick):
    parent = train(config(), tmp_path / "parent", secret=secret(7))
    edited = unlearn(parent, "finetune", Request.of([0]), tmp_path / "edited", {"rounds": 1})
    child = unlearn(edited, "retrain", Request.of([1]), tmp_path / "child")
    for run in (child, prune(child)[0]):
        result = verify(run, quick, key=AUDIT_KEY, save=False)
        words = (
            "The unlearner of edited, 'finetune' with rounds = 1, was chosen later: the committed config names none."
        )
        assert words in result.conclusion.rests_on


@pytest.mark.parametrize("told", ["retrain", "fats"])
def test_a_tombstone_is_not_believed_where_its_method_never_makes_its_first_change(told, tmp_path, quick, monkeypatch):
    """Another name, or another place of the cut, would be one more try of all noise that follows."""
    parent = train(config(client=[{"use": "quantise"}]), tmp_path / "parent", secret=secret(7))
    recorded = unlearner_record(registry.find("unlearners", told), registry.build("unlearners", told))
    with monkeypatch.context() as patch:
        patch.setattr("fuaudit.workflow.unlearn.unlearner_record", lambda *anything: recorded)
        first = unlearn(parent, "fats", Request.of([drawn_client(parent)]), tmp_path / "first")
    if told == "fats":
        batch = [first.info["first_change"][0], 1]
        edit(first.path, "run.json", first_change=batch)
        first = tell(
            first.path, lambda events: [e | {"first_change": batch} if "kept_rounds" in e else e for e in events]
        )
    rounds = first.plan.index.clients
    earlier = next(c for c, r in rounds.items() if 1 < r <= first.info["first_change"][0])
    child, _ = prune(unlearn(first, "fats", Request.of([earlier]), tmp_path / "child"))
    result = verify(child, quick, key=AUDIT_KEY, save=False)
    found = {finding.audit: finding for finding in result.findings}
    assert (found["replay"].verdict, found["provenance"].verdict) == ("PASS", "FAIL")
    assert f"FAIL: first names a first change that {told!r} never makes." in found["provenance"].details
