"""A forger writes the original model into what stages told of an ancestor's rounds: nothing can compare it there.

Of rounds that a child kept replay compares it. Of those that the child executed again, before its first change too,
it does not, whether the ancestor is a tombstone or a run. The PASS says how many bytes are as told.
"""

import json

import pytest
from tests_support import AUDIT_KEY, of_the_run, secret, told

from fuaudit import load_run, train, unlearn, verify
from fuaudit.formats.forms import canonical_json
from fuaudit.plans import Request
from fuaudit.runs.ledger import Ledger, read_ledger
from fuaudit.testing.tiny import tiny_config, tiny_dataset
from fuaudit.workflow.append import append
from fuaudit.workflow.prune import prune

ROUNDS = 8
TABLES = tiny_config(
    partition={"use": "iid", "clients": 6},
    learner={"use": "fats", "cohort": 1, "steps": 1, "batch": 2, "step_size": 0.2, "rounds": ROUNDS},
    client=[{"use": "gaussian-noise", "norm": 0.5, "noise": 2.0}],
    server=[{"use": "mean"}],
    run={"checkpoint_every": ROUNDS, "engine": "reference", "device": "cpu", "requests": 4},
)


@pytest.fixture
def root(tmp_path):
    return train(TABLES, tmp_path / "root", tiny_dataset(), secret(3))


@pytest.fixture
def late(root):
    """The client who comes last, in a round of the only stored stretch: the child executes that from its start."""
    first = root.plan.index.clients
    client = max(first, key=lambda client: (first[client], client))
    assert 2 < first[client] <= ROUNDS
    return client


def rests_on(run):
    """What the PASS of a run says of what stages told."""
    options = {"data": tiny_dataset(), "commitment": run.commitment, "request": run.request}
    result = verify(run, of_the_run(), key=AUDIT_KEY, save=False, budget=0, **options)
    assert result.verdict == "PASS", result.reason
    return [line for line in result.conclusion.rests_on if line.startswith("What stages told of ")]


def line(ledger):
    texts = [canonical_json(event["told"]) for event in ledger.of_kind("round") if "told" in event]
    room = f"{sum(map(len, texts)):,} bytes"
    what = f"What stages told of {len(texts)} rounds of ancestors is as told: {room}"
    return [f"{what}, with which nothing here was compared."]


def test_a_tombstone_tells_of_rounds_that_were_executed_again(root, late):
    old = [float(number) for number in root.model]
    child = prune(unlearn(root, "fats", Request.of([late]), root.path.parent / "child", data=tiny_dataset()))[0]
    assert child.info["first_change"][0] > 2
    assert rests_on(child) == line(read_ledger(root.path))
    events, ledger = read_ledger(root.path).events, Ledger()
    (root.path / "ledger.jsonl").unlink()
    for event in events:
        facts = {name: value for name, value in event.items() if name not in ("event", "previous")}
        if event["event"] == "round" and event["round"] == 1:
            facts["told"][0]["parameters"]["model"] = old
        ledger = append(root.path, ledger, event["event"], **facts)
    assert json.dumps(old)[1:-1].replace(" ", "") in (root.path / "ledger.jsonl").read_text()
    assert rests_on(load_run(child.path)) == line(ledger)


def test_a_run_above_tells_of_rounds_that_were_executed_again(root, late):
    """The ancestor is a whole run; its own verification compares this, and that of its child does not."""
    old = [float(number) for number in root.model]
    forged = told(root.path, lambda events: [_with(event, old) for event in events])
    child = unlearn(forged, "fats", Request.of([late]), root.path.parent / "child", data=tiny_dataset())
    assert rests_on(child) == line(read_ledger(forged.path))


def _with(event, numbers):
    if event["event"] != "round" or event["round"] != 1:
        return event
    return event | {"told": [event["told"][0] | {"parameters": {"model": numbers}}]}
