"""A forger exchanges what rows hold between training and unlearning, and keeps their ids.

He trains on honest data and publishes the commitment. When client TARGET asks to be forgotten, he writes her images
into rows that other clients keep, and carries out the request to the letter: with the named method, on retained ids
alone. The child is an honest computation on data that still is hers. The auditor has the parent, the commitment, the
request, and the forger's data.
"""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from fuaudit import load_run, train, unlearn, verify
from fuaudit.commitments.contents import Opening, row_digests, row_leaf
from fuaudit.data.dataset import erased_input
from fuaudit.data.images import Digits
from fuaudit.errors import EvidenceError
from fuaudit.formats.forms import pretty_json, tensor_bytes
from fuaudit.plans import Request
from fuaudit.runs.layout import LEDGER, MANIFEST
from fuaudit.runs.ledger import Ledger, read_ledger
from fuaudit.workflow.append import append
from fuaudit.workflow.writer import RunWriter

TARGET = 0
SECRET = bytes(range(32))
TABLES = {
    "data": {"use": "digits"},
    "partition": {"use": "one-holder", "clients": 5},
    "model": {"use": "linear"},
    "learner": {"use": "fats", "rounds": 6, "cohort": 2, "steps": 15, "batch": 16, "step_size": 0.5},
    "run": {"checkpoint_every": 2, "engine": "reference", "device": "cpu"},
}


@pytest.fixture(scope="module")
def parent(tmp_path_factory):
    return train(TABLES, tmp_path_factory.mktemp("honest") / "parent", secret=SECRET)


@pytest.fixture
def forger(parent, tmp_path, monkeypatch):
    """Forged data, and the child that is computed of it; the forger's own copy of fuaudit looks at no leaf."""
    monkeypatch.setattr("fuaudit.workflow.unlearn.require_committed", lambda *anything: None)
    shutil.copytree(parent.path, tmp_path / "parent")

    def work(dataset):
        return unlearn(tmp_path / "parent", "fats", Request.of([TARGET]), tmp_path / "child", data=dataset)

    return work


@pytest.fixture
def asked(parent, quick):
    """What an auditor finds who holds commitment and request from outside."""

    def work(child, dataset, commitment=parent.commitment):
        request = Request.of([TARGET])
        result = verify(child, quick, data=dataset, commitment=commitment, request=request, save=False)
        return result, {finding.audit: finding for finding in result.findings}

    return work


def exchanged(run, labels=True):
    """The data, with the target's rows in the place of as many rows of others."""
    data = Digits().load(None)
    inputs, targets = data.inputs.clone(), data.targets.clone()
    mine = list(run.plan.retained.samples[TARGET])
    kept = [row for client in run.plan.retained.clients[1:] for row in run.plan.retained.samples[client]]
    others = kept[:: len(kept) // len(mine)][: len(mine)]
    inputs[others] = data.inputs[mine]
    if labels:
        targets[others] = data.targets[mine]
    return replace(data, inputs=inputs, targets=targets), others


def without_target(data, run):
    """Retained rows alone are at hand."""
    mine = list(run.plan.retained.samples[TARGET])
    inputs, targets = data.inputs.clone(), data.targets.clone()
    inputs[mine], targets[mine] = erased_input(inputs.dtype), 0
    return replace(data, inputs=inputs, targets=targets, absent=frozenset(mine))


def sealed(path, commitment=None, above=None):
    """Manifest and ledger that fit changed files; with another commitment or parent where one is given."""
    events = read_ledger(path).events
    (path / MANIFEST).unlink()
    (path / LEDGER).unlink()
    ledger = Ledger()
    for event in events[:-1]:
        facts = {name: value for name, value in event.items() if name not in ("event", "previous")}
        if event["event"] == "commitment" and commitment:
            facts["commitment"] = commitment
        if event["event"] == "request" and above:
            facts["parent"] = above
        ledger = append(path, ledger, event["event"], **facts)
    RunWriter(path, ledger).close("sealed")
    return load_run(path)


def with_other_leaves(path, data, rows, commitment=None):
    """Leaves of the exchanged rows, under the salts that are there."""
    run = load_run(path)
    digests = dict(zip(rows, row_digests(data.inputs[rows], data.targets[rows]), strict=True))
    leaves, place = run.contents.rows.copy(), 0
    for client in run.contents.clients:
        for row, salt in zip(run.numbered(client), run.contents.salts_of(client)[1:], strict=True):
            if row in digests:
                leaf = row_leaf(run.opening.salts.leaf(salt), row, digests[row])
                leaves[place] = np.frombuffer(leaf, dtype=np.uint8)
            place += 1
    (path / "contents.safetensors").write_bytes(tensor_bytes(replace(run.contents, rows=leaves).tensors()))
    return sealed(path, commitment)


@pytest.mark.parametrize("all_at_hand", [True, False])
def test_other_images_under_the_same_ids(forger, asked, parent, all_at_hand):
    data, rows = exchanged(parent)
    child = forger(data)
    nines = Digits().load(None).targets == 9
    logits = Digits().load(None).inputs[nines] @ child.model[:640].view(10, 64).T + child.model[640:]
    assert (logits.argmax(1) == 9).float().mean() > 0.3  # it has not forgotten
    result, found = asked(child, data if all_at_hand else without_target(data, parent))
    assert result.verdict == "FAIL"
    assert found["replay"].verdict == "FAIL"
    assert "not what was committed to" in found["replay"].shows
    assert found["replay"].values["other_rows"] == len(rows)
    assert any(f"client 1: rows {rows[0]}, " in line for line in found["replay"].details)


def test_an_honest_child_passes(forger, asked, parent):
    honest = Digits().load(None)
    child = forger(honest)
    for data in (honest, without_target(honest, parent)):
        assert asked(child, data)[0].verdict == "PASS"


def test_the_images_under_their_old_labels(forger, asked, parent):
    """A relative: inputs alone are exchanged."""
    data, rows = exchanged(parent, labels=False)
    result, found = asked(forger(data), data)
    assert result.verdict == found["replay"].verdict == "FAIL"
    assert found["replay"].values["other_rows"] == len(rows)


def test_labels_alone(forger, asked, parent):
    """A relative: no image moves, but a client's rows are called nines."""
    data = Digits().load(None)
    rows = list(parent.plan.retained.samples[1])
    targets = data.targets.clone()
    targets[rows] = 9
    data = replace(data, targets=targets)
    result, found = asked(forger(data), data)
    assert result.verdict == found["replay"].verdict == "FAIL"
    assert found["replay"].values["other_rows"] == len(rows)


def test_rows_in_another_type(forger, asked, parent):
    """A relative: the same numbers as float64, in whose low bits there is room for a message."""
    data = Digits().load(None)
    data = replace(data, inputs=data.inputs.double(), test_inputs=data.test_inputs.double())
    result, found = asked(forger(data), data)
    assert result.verdict == found["replay"].verdict == "FAIL"


@pytest.mark.parametrize("fewer", [0, 1])
def test_other_test_rows(forger, asked, parent, fewer):
    """Figures look better on other test rows, or without the hard ones."""
    data = Digits().load(None)
    test_inputs = data.test_inputs[: len(data.test_inputs) - fewer].clone()
    test_inputs[7] = data.inputs[parent.plan.retained.samples[TARGET][0]]
    data = replace(data, test_inputs=test_inputs, test_targets=data.test_targets[: len(test_inputs)])
    result, found = asked(forger(data), data)
    assert result.verdict == found["replay"].verdict == "FAIL"
    assert "test row" in found["replay"].shows


def test_leaves_rewritten_in_parent_and_child_under_the_old_commitment(forger, asked, parent, tmp_path):
    """All rows then open their leaves, but the leaves are not those that were committed to."""
    data, rows = exchanged(parent)
    child = forger(data)
    above = with_other_leaves(tmp_path / "parent", data, rows)
    child = with_other_leaves(child.path, data, rows)
    table = json.loads((child.path / "run.json").read_bytes())
    table["parent"]["digest"] = above.digest
    (child.path / "run.json").write_bytes(pretty_json(table))
    child = sealed(child.path, above=above.digest)
    for commitment in (parent.commitment, None):
        result, found = asked(child, data, commitment)
        assert found["replay"].verdict == "PASS"
        assert result.verdict == found["provenance"].verdict == "FAIL"


def test_leaves_rewritten_in_the_child_alone(forger, asked, parent):
    """The child's own ledger names the commitment that fits; without --commitment its parent speaks against it."""
    data, rows = exchanged(parent)
    child = with_other_leaves(forger(data).path, data, rows)
    child = sealed(child.path, load_run(child.path).commitment)
    for commitment in (parent.commitment, None):
        result, found = asked(child, data, commitment)
        assert found["replay"].verdict == "PASS"
        assert result.verdict == found["provenance"].verdict == "FAIL"


def test_salts_that_are_lost(forger, parent):
    """A relative: what cannot be compared, because the salts of exchanged rows were destroyed, is no evidence."""
    data, rows = exchanged(parent)
    child = forger(data)
    contents, salts = child.contents, child.opening.salts
    gone = set()
    for client in child.plan.retained.clients:
        places = contents.salts_of(client)[1:]
        gone |= {place for place, row in zip(places, child.numbered(client), strict=True) if row in rows}
    kept = [range(place, place + 1) for place in range(salts.size) if place not in gone]
    table = Opening(child.opening.names, salts.keeping(kept).bare).table()
    (child.path / "clients.json").write_bytes(pretty_json(table))
    with pytest.raises(EvidenceError, match="lacks names or salts of what is retained"):
        sealed(child.path)
