"""A forger lets a second client own the rows of the first, before training begins.

Ben asks to be forgotten, and is, to the letter: but Dan holds what Ben held. Plan and models are right. Rows that equal
erased ones are found where the erased rows or Ben's receipt are at hand; honest federations hold equal rows too, so a
PASS counts them, and a spec may refuse them. One changed number makes another row, and nothing looks for that: then a
PASS says so.
"""

import json
from dataclasses import replace

import pytest
import torch
from tests_support import AUDIT_KEY, reseal, with_options

from fuaudit import load_run, train, unlearn, verify
from fuaudit.data.dataset import Dataset, erased_input
from fuaudit.errors import EvidenceError
from fuaudit.formats.forms import pretty_json
from fuaudit.plans import Request
from fuaudit.runs.receipts import receipt_of

BEN, DAN = 1, 3
TABLES = {
    "data": {"use": "tensors", "classes": 2},
    "partition": {"use": "by-owner"},
    "model": {"use": "linear"},
    "learner": {"use": "fats", "rounds": 3, "cohort": 2, "steps": 1, "batch": 2, "step_size": 0.1},
    "run": {"checkpoint_every": 1, "engine": "reference", "device": "cpu"},
}


def copied(change=0.0):
    """Four rows a client; Dan's are Ben's."""
    rows = torch.arange(60, dtype=torch.float32).reshape(20, 3) / 60
    targets, owners = torch.arange(20) % 2, torch.arange(5).repeat_interleave(4)
    tests = rows[:4] + 1, targets[:4].clone()
    rows[12:16], targets[12:16] = rows[4:8] + change, targets[4:8]
    return Dataset(rows, targets, *tests, 2, owners=owners, owner_names=("ann", "ben", "cay", "dan", "eve"))


def without_ben(data):
    inputs, targets = data.inputs.clone(), data.targets.clone()
    inputs[4:8], targets[4:8] = erased_input(inputs.dtype), 0
    return replace(data, inputs=inputs, targets=targets, absent=frozenset(range(4, 8)))


@pytest.fixture
def forger(tmp_path):
    """The run that has forgotten Ben, and the receipt that Ben was given."""

    def work(data):
        run = train(TABLES, tmp_path / "run", data=data, secret=bytes(range(32)))
        (tmp_path / "ben.json").write_bytes(receipt_of(run, BEN).content())
        return unlearn(run, "retrain", Request.of([BEN]), tmp_path / "child", data=data), tmp_path / "ben.json"

    return work


@pytest.fixture
def asked(quick):
    def work(run, data, receipts=(), spec=quick):
        expected = {"commitment": run.commitment, "request": Request.of([BEN])}
        return verify(run, spec, data=data, receipts=receipts, key=AUDIT_KEY, save=False, **expected)

    return work


EQUAL = "4 retained rows equal rows that were to be forgotten."


@pytest.mark.parametrize("by", ["rows", "receipt"])
def test_equal_rows_are_counted_or_refused(forger, asked, quick, by):
    run, receipt = forger(copied())
    at_hand = (copied(), ()) if by == "rows" else (without_ben(copied()), [receipt])
    result = asked(run, *at_hand)
    assert result.verdict == "PASS"
    assert f"{EQUAL} Their owners did not ask, and models follow from them." in result.reason
    result = asked(run, *at_hand, spec=with_options(quick, lineage={"equal": "fail"}))
    assert (result.verdict, result.reason) == ("FAIL", EQUAL)


def test_who_refuses_equal_rows_has_to_see_that_there_are_none(forger, asked, quick):
    """He lets nobody open the erased leaves, by other salts or other ids for them: nothing was compared then."""
    run, _ = forger(copied())
    strict = with_options(quick, lineage={"equal": "fail"})
    result = asked(run, without_ben(copied()), spec=strict)
    assert result.verdict == "INCONCLUSIVE"
    assert (
        "4 rows that were to be forgotten are neither at hand under their ids nor opened: none was compared."
        in result.reason
    )
    path = run.path.with_name("run")
    table = json.loads((path / "clients.json").read_bytes())
    whole = load_run(path).opening.salts
    values = [seed.hex() for seed in whole.between(0, whole.size)]
    for leaf in load_run(path).contents.salts_of(BEN):
        values[leaf] = "00" * 32
    other = pretty_json(table | {"salts": [[i, i + 1, "seed", value] for i, value in enumerate(values)]})
    try:
        for folder in (path, run.path):
            (folder / "clients.json").write_bytes(other)
            reseal(folder)
        verdict = asked(load_run(run.path), copied(), spec=strict).verdict
    except EvidenceError:
        return  # the form of the tree of salts is looked at first
    assert verdict != "PASS"


def test_without_either_it_is_named(forger, asked):
    run, _ = forger(copied())
    result = asked(run, without_ben(copied()))
    assert result.verdict == "PASS"
    words = "No retained row equals one of 4 erased rows, which are neither at hand under their ids nor opened."
    assert words in result.conclusion.rests_on


def test_near_copies_are_named(forger, asked):
    run, receipt = forger(copied(1e-6))
    result = asked(run, copied(1e-6), [receipt])
    assert result.verdict == "PASS"
    words = "No retained row is a near copy of an erased one: they are not looked for."
    assert words in result.conclusion.rests_on
