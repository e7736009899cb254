"""An operator hides the old model in what a client is said to have sent: no spec that asks for erasure passes his run.

Nothing regenerates a message. So he needs no forged file: the difference to the old model comes as an honest row does,
and replay makes the old model again.
"""

import json
import sys

import pytest
import torch
from tests_support import AUDIT_KEY, in_messages_never_pass, installed, reseal, secret

from fuaudit import receive_child, train, unlearn, verify
from fuaudit.errors import EvidenceError
from fuaudit.plans import Request
from fuaudit.runs.layout import RUN
from fuaudit.testing.tiny import tiny_config, tiny_dataset
from fuaudit.verification.spec import parse_spec
from fuaudit.workflow.prune import prune

DATA = tiny_dataset()
TABLES = tiny_config(
    partition={"use": "iid", "clients": 6},
    learner={"use": "fats", "rounds": 4, "cohort": 1, "steps": 1, "batch": 2, "step_size": 0.3},
)


@pytest.fixture
def old(tmp_path):
    return train(TABLES, tmp_path / "old", DATA, secret(4))


def last_of(run):
    """The client who comes last, so that rounds are kept."""
    first = run.plan.index.clients
    client = max(first, key=lambda one: (first[one], one))
    assert first[client] > 1
    return client


def hidden(old, method, gone, out):
    """A child whose last message makes the old model."""
    with receive_child(old, method, Request.of([gone]), out, data=DATA) as reception:
        while (at := reception.round) is not None:
            share = (at.model - old.model) if at.number == old.rounds_executed else torch.zeros_like(at.model)
            for client in at.clients:
                assert reception.receive(at.number, client, share) is None
            reception.advance()
        child = reception.close()
    assert torch.allclose(child.model, old.model, atol=1e-6)
    return child


def test_after_kept_rounds(old, tmp_path):
    child = hidden(old, "fats", last_of(old), tmp_path / "child")
    assert 0 < len(child.received_rounds) < 4
    assert in_messages_never_pass(child, DATA)["replay"].verdict == "PASS"
    in_messages_never_pass(prune(child)[0], DATA)


def test_where_nothing_is_kept(old, tmp_path):
    in_messages_never_pass(hidden(old, "retrain", 0, tmp_path / "child"), DATA)


@pytest.mark.parametrize("method", ["fats", "retrain"])
def test_in_the_parent_of_a_child_that_is_simulated(old, tmp_path, method):
    """The child keeps the message, or draws anew what it was."""
    between = hidden(old, "retrain", 0, tmp_path / "between")
    request = Request.of([last_of(between)])
    child = unlearn(between, method, request, tmp_path / "child", data=DATA, allow_inexact=True)
    assert bool(child.received_rounds) is (method == "fats")
    in_messages_never_pass(child, DATA)


def test_without_the_word_that_its_rounds_came_in_messages(old, tmp_path):
    child = hidden(old, "retrain", 0, tmp_path / "child")
    told = json.loads((child.path / RUN).read_text())
    del told["received"]
    (child.path / RUN).write_text(json.dumps(told, indent=1, sort_keys=True) + "\n")
    with pytest.raises(EvidenceError, match="records of other rounds"):
        reseal(child.path)


CODE = """
from dataclasses import dataclass, replace
from fuaudit.plugins import Claim, Finding, Subject, Verdict

@dataclass(frozen=True)
class Blind:
    evidence = frozenset({"files", "execution", "provenance", "law", "reference", "regeneration", "sampling"})
    uses = frozenset({"data"})
    knows_received = True

    def examine(self, case):
        return Finding("blind", Subject.RUN, Verdict.PASS, "Yes.", "Nothing.")

GONE = Claim("gone", "a model without somebody", frozenset({"files"}), True, "{request} is gone.", "Is it gone?")
MADE = replace(GONE, asks="made", needs=frozenset({"files", "execution"}), of_request=False)
"""
ENTRIES = "[fuaudit.audits]\nblind = stranger:Blind\n[fuaudit.claims]\ngone = stranger:GONE\nmade = stranger:MADE\n"


@pytest.mark.parametrize("asks", ["gone", "made", "exact", "bound", "run"])
def test_no_audit_of_a_stranger_makes_it_a_pass(old, tmp_path, monkeypatch, asks):
    """He writes his own audit, which says yes to everything, and claims of his own."""
    monkeypatch.syspath_prepend(str(installed(tmp_path / "site", "stranger", CODE, ENTRIES)))
    sys.modules.pop("stranger", None)
    check = {"claim": "x", "audit": {"use": "blind"}}
    spec = parse_spec({"id": "his", "asks": asks, "out_of_scope": ["All."], "check": [check]}, "his.toml")
    honest = unlearn(old, "retrain", Request.of([0]), tmp_path / "honest", data=DATA)
    assert verify(honest, spec, key=AUDIT_KEY, save=False, data=DATA).verdict == "PASS"
    child = hidden(old, "retrain", 0, tmp_path / "child")
    result = verify(child, spec, key=AUDIT_KEY, save=False, data=DATA)
    assert result.verdict == "INCONCLUSIVE"
    assert ("no evidence of execution" if asks == "made" else "came in messages") in result.reason
    sys.modules.pop("stranger", None)
