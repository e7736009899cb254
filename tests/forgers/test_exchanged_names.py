"""A forger forgets the wrong client and lets her have the right name.

Ben asks to be forgotten, whom the forger wants to keep. He erases Cay instead, and exchanges the two names wherever a
run tells them: the request that the auditor gives by name then fits. Names stand under the commitment, salted, each at
the number of its client, so the exchange shows where the run is opened; with the salts exchanged too, or made up.
"""

import json

import pytest
import torch
from tests_support import AUDIT_KEY, reseal

from fuaudit import train, unlearn, verify
from fuaudit.commitments.contents import Opening
from fuaudit.data.dataset import Dataset
from fuaudit.draws.seeds import Seeds
from fuaudit.errors import EvidenceError
from fuaudit.formats.forms import pretty_json
from fuaudit.plans import Request
from fuaudit.runs.names import request_of
from fuaudit.runs.receipts import receipt_of
from fuaudit.workflow import begin
from fuaudit.workflow.prune import prune

BEN, CAY = 1, 2
TABLES = {
    "data": {"use": "tensors", "classes": 2},
    "partition": {"use": "by-owner"},
    "model": {"use": "linear"},
    "learner": {"use": "fats", "rounds": 3, "cohort": 2, "steps": 1, "batch": 2, "step_size": 0.1},
    "run": {"checkpoint_every": 1, "engine": "reference", "device": "cpu"},
}
NAMES = ("ann", "ben", "cay", "dan", "eve")


def data(names=NAMES):
    rows = torch.arange(60, dtype=torch.float32).reshape(20, 3) / 60
    targets, owners = torch.arange(20) % 2, torch.arange(5).repeat_interleave(4)
    return Dataset(rows, targets, rows[:4] + 1, targets[:4].clone(), 2, owners=owners, owner_names=names)


@pytest.fixture
def run(tmp_path):
    return train(TABLES, tmp_path / "run", data=data(), secret=bytes(range(32)))


@pytest.fixture
def wrong(run, tmp_path):
    """The run that has forgotten Cay."""
    return unlearn(run, "retrain", request_of(run, ["cay"]), tmp_path / "child", data=data())


def test_names_that_were_exchanged(run, wrong, quick):
    for path in (wrong.path, run.path):
        table = json.loads((path / "clients.json").read_bytes())
        names = table["names"]
        names[str(BEN)], names[str(CAY)] = names[str(CAY)], names[str(BEN)]
        (path / "clients.json").write_bytes(pretty_json(table))
    with pytest.raises(EvidenceError, match="is not the name that client 1 was committed to under"):
        verify(reseal(wrong.path), quick, data=data(), key=AUDIT_KEY, save=False)


def test_salts_that_were_made_up(wrong, quick):
    table = json.loads((wrong.path / "clients.json").read_bytes())
    names = table["names"]
    names[str(BEN)], names[str(CAY)] = names[str(CAY)], names[str(BEN)]
    size = wrong.opening.salts.size
    table["salts"] = Seeds.of(bytes(32), size).as_rows()
    (wrong.path / "clients.json").write_bytes(pretty_json(table))
    with pytest.raises(EvidenceError):
        verify(reseal(wrong.path), quick, data=data(), key=AUDIT_KEY, save=False)


def test_two_clients_under_one_name(tmp_path, quick, monkeypatch):
    """Ben's rows are divided among two clients of his name. One is forgotten; after a prune the other has it alone."""
    names, salts = begin.names_of, Seeds.of_rows
    with monkeypatch.context() as forger:
        forger.setattr(begin, "names_of", lambda *given: names(*given) | {CAY: "ben"})
        unread = classmethod(lambda cls, t, _: cls({int(c): n for c, n in t["names"].items()}, salts(t["salts"])))
        forger.setattr(Opening, "of_table", unread)
        run = train(TABLES, tmp_path / "run", data=data(), secret=bytes(range(32)))
        (tmp_path / "ben.json").write_bytes(receipt_of(run, BEN).content())
        child = unlearn(run, "retrain", Request.of([BEN]), tmp_path / "child", data=data())
        prune(child)
    known = {"receipts": [tmp_path / "ben.json"], "request": Request.of([BEN]), "commitment": run.commitment}
    owned = data(("ann", "zoe", "ben", "dan", "eve"))
    result = verify(child.path, quick, data=owned, key=AUDIT_KEY, save=False, **known)
    assert result.verdict == "FAIL"
    assert "clients 1 and 2 were committed to under one name, 'ben'" in result.reason.lower()


def test_the_request_by_its_right_name(run, wrong, quick):
    ben = request_of(run, ["ben"])
    result = verify(wrong, quick, data=data(), request=ben, key=AUDIT_KEY, save=False)
    assert result.verdict == "FAIL"


def test_names_exchanged_before_the_commitment_are_for_receipts(tmp_path, quick):
    """From the first day on Ben is called Cay. All passes; Ben, who holds his receipt and rows, sees another's."""
    swapped = data(("ann", "cay", "ben", "dan", "eve"))
    run = train(TABLES, tmp_path / "run", data=swapped, secret=bytes(range(32)))
    child = unlearn(run, "retrain", request_of(run, ["ben"]), tmp_path / "child", data=swapped)
    result = verify(child, quick, data=swapped, request=request_of(run, ["ben"]), key=AUDIT_KEY, save=False)
    assert result.verdict == "PASS"
    from fuaudit.runs.receipts import check

    rows = list(range(4, 8))
    receipt = receipt_of(run, run.client("ben"))
    assert check(receipt, data().inputs[rows], data().targets[rows]).missing == (8, 9, 10, 11)
