"""A hostile operator who owns the folders: forged partitions and records, sealed anew with every file that follows."""

import json
from dataclasses import replace

import pytest
from tests_support import audits, config, drawn_client, reseal, secret

from fuaudit import load_run, train, unlearn
from fuaudit.draws import Address, Keyed, Purpose
from fuaudit.plans import Population, Request
from fuaudit.plans.plan import occurrences
from fuaudit.runs.files import pretty_json, tensor_bytes
from fuaudit.runs.ledger import NAME, Ledger, append, read_ledger
from fuaudit.runs.manifest import MANIFEST
from fuaudit.runs.prune import prune
from fuaudit.runs.tables import population_tensors, recorded_tensors
from fuaudit.runs.writer import digest_of_vector
from fuaudit.training.setup import load_dataset
from fuaudit.verification.case import Case


def edit(path, name, **changes):
    table = json.loads((path / name).read_text())
    (path / name).write_bytes(pretty_json(table | changes))


def sealed(path):
    """Every file that follows from the forged plan and partition, and a ledger that fits, under a new seal."""
    (path / "involvement.safetensors").unlink()
    forged = reseal(path)
    case = Case(forged, None, load_dataset(forged.config, None), Keyed(bytes(32)))
    for name, content in case.regenerated.items():
        (path / name).write_bytes(content)
    models = {round: digest_of_vector(vector) for round, (vector, _) in case.replayed.items()}
    old, grown = read_ledger(path), Ledger()
    (path / NAME).unlink()
    for event in old.events:
        facts = {k: v for k, v in event.items() if k not in ("event", "previous", "time")}
        if event["event"] == "round":
            facts["model"] = models.get(event["round"], facts["model"])
        if event["event"] not in ("sealed", "pruned"):
            grown = append(path, grown, event["event"], **facts)
    (path / MANIFEST).unlink()
    return reseal(path)


@pytest.fixture
def parent(tmp_path):
    return train(config(run={"checkpoint_every": 1}), tmp_path / "parent", secret=secret(7))


@pytest.fixture
def commitment(parent):
    return parent.ledger.events[0]["commitment"]


def test_a_pruned_run_cannot_give_erased_rows_to_a_client_it_invents(parent, commitment, tmp_path):
    """The untouched model, with another name for the client that asked to be forgotten."""
    target, invented, untouched = drawn_client(parent), 10, parent.model
    name = {target: invented}
    answers = {}
    for round in range(1, 9):
        cohort = parent.plan.cohort(round)
        answers[Address(Purpose.COHORT, round)] = tuple(name.get(client, client) for client in cohort)
        for client, occurrence in occurrences(cohort):
            for step in (1, 2):
                at = Address(Purpose.BATCH, round, step, name.get(client, client), occurrence)
                answers[at] = parent.plan.batch(round, step, client, occurrence)
    child, _ = prune(unlearn(parent, "fats", Request.of(clients=[target]), tmp_path / "child"))
    before = parent.plan.populations[0].samples
    clients = {client: samples for client, samples in before.items() if client != target}
    read = {s for at, batch in answers.items() if at.client == invented for s in batch}
    clients[invented] = tuple(sorted(read.union(before[target][:8])))
    (child.path / "partition.safetensors").write_bytes(tensor_bytes(population_tensors(Population(clients))))
    (child.path / "recorded.safetensors").write_bytes(tensor_bytes(recorded_tensors({0: answers})))
    streams = {stream: [[0, 0, 0, 1]] for stream in ("initial", "cohorts", "batches")}
    edit(child.path, "plan.json", streams=streams, erased_sizes={str(target): 20})
    forged = sealed(child.path)
    assert (forged.model == untouched).all()
    result, found = audits(forged, commitment=commitment, expected=Request.of(clients=[target]))
    assert result.verdict == found["plan"].verdict == "FAIL"


def test_an_honest_prune_stays_bound_to_the_commitment(parent, commitment, tmp_path):
    target = drawn_client(parent)
    sample = parent.plan.retained.samples[(target + 1) % 10][0]
    first = unlearn(parent, "fats", Request.of(samples=[sample]), tmp_path / "first")
    child, _ = prune(unlearn(first, "fats", Request.of(clients=[target]), tmp_path / "child"))
    assert child.committed_partition == parent.committed_partition
    later = unlearn(child, "fats", Request.of(clients=[(target + 2) % 10]), tmp_path / "later")
    assert later.committed_partition == parent.committed_partition
    for run in (child, later):
        result, found = audits(run, commitment=commitment)
        assert result.verdict == "PASS", {n: (f.verdict, f.shows, f.details) for n, f in found.items()}
    again, _ = prune(later)
    assert again.committed_partition == parent.committed_partition
    assert audits(again, commitment=commitment)[0].verdict == "PASS"


def test_a_child_that_says_it_is_pruned_is_still_compared(parent, commitment, tmp_path):
    target = drawn_client(parent)
    child = unlearn(parent, "fats", Request.of(clients=[target]), tmp_path / "child")
    clients = dict(child.plan.retained.samples)
    heir = next(iter(clients))
    gone = parent.plan.retained.samples[target]
    clients[heir] = tuple(sorted((*clients[heir], *gone[:-20])))
    (child.path / "partition.safetensors").write_bytes(tensor_bytes(population_tensors(Population(clients))))
    edit(child.path, "plan.json", pruned=1, erased_sizes={str(target): 20}, erased_owners={})
    edit(child.path, "keys.json", partition={str(target): "0" * 64})
    forged = sealed(child.path)
    result, found = audits(forged, commitment=commitment, expected=Request.of(clients=[target]))
    assert result.verdict == found["plan"].verdict == "FAIL"


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
    answers = {Address(Purpose.COHORT, round): (favourite, favourite) for round in range(1, 9)}
    answers |= {
        Address(Purpose.BATCH, round, step, favourite, occurrence): batch
        for round in range(1, 9)
        for step in (1, 2)
        for occurrence in (0, 1)
    }
    (two.path / "recorded.safetensors").write_bytes(tensor_bytes(recorded_tensors({1: answers})))
    forged = sealed(two.path)
    assert forged.plan.cohort(1) == (favourite, favourite)
    result, found = audits(forged, commitment=commitment, expected=second)
    assert result.verdict == found["plan"].verdict == "FAIL"


def test_a_partition_that_was_not_committed_to_is_seen_without_the_erased_rows(parent, commitment, tmp_path):
    target = drawn_client(parent)
    clients = dict(parent.plan.retained.samples)
    a, b = [client for client in clients if client != target][:2]
    clients[a], clients[b] = clients[a][-8:], tuple(sorted((*clients[b], *clients[a][:-8])))
    (parent.path / "partition.safetensors").write_bytes(tensor_bytes(population_tensors(Population(clients))))
    child = unlearn(sealed(parent.path), "fats", Request.of(clients=[target]), tmp_path / "child")
    whole = load_dataset(child.config, None)
    data = replace(whole, absent=frozenset(clients[target]))
    result, found = audits(child, commitment=commitment, expected=Request.of(clients=[target]), dataset=data)
    assert result.verdict == found["plan"].verdict == "FAIL"
