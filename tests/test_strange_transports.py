"""Transports of other packages whose sums a suite makes: what they have to say, and what is shown without it."""

import numpy as np
import pytest
from fuaudit_plugins.secure_sum import SecureSum
from test_sealed import looked_at
from test_secured_runs import FEDAVG, FEDREP, exchange_by, trained

from fuaudit.errors import PluginError, UsageError
from fuaudit.secure.suites import Suite
from fuaudit.workflow.seal import seal

MEMBERS = SecureSum.members


@pytest.mark.parametrize("method", ["buffers", "members"])
def test_who_is_with_whom_has_to_be_told(method):
    """Else a sealed view has no word against an operator who groups clients as it likes, or leaves a buffer out."""
    silent = type("Silent", (SecureSum,), {method: None})(3)
    for asked in (lambda one: one.summation("mask"), lambda one: one.secured("mask", None)):
        with pytest.raises(UsageError, match=f"Silent has no {method}: which clients are summed together") as caught:
            asked(exchange_by(silent))
        assert f"A transport with the method secured has {method} too." in str(caught.value)


@pytest.mark.parametrize("method", ["buffers", "members"])
def test_a_run_whose_transport_does_not_tell_it_was_made_by_no_suite(tmp_path, monkeypatch, method):
    """Training refuses it, so only who forges a run has one."""
    view = seal(trained(tmp_path / "run", FEDAVG, "plain"), tmp_path / "view")
    assert looked_at(view).verdict == "PASS"
    monkeypatch.setattr(SecureSum, method, None)
    found = looked_at(view)
    assert (found.verdict, f"has no {method}" in found.shows) == ("FAIL", True)


def test_clients_have_to_cast_lots():
    """Whoever chooses the clients of a round chooses who is with whom, where neighbours are together."""
    neighbours = type("Neighbours", (SecureSum,), {"draws": False})(3)
    with pytest.raises(UsageError, match="Neighbours casts no lots: an operator who chooses clients chooses"):
        exchange_by(neighbours).summation("mask")


@pytest.mark.parametrize("suite", ["plain", "mask"])
def test_training_stops_where_members_are_others_than_those_of_a_sum(tmp_path, monkeypatch, suite):
    """An audit finds it, and blames the clients; nothing of the first sum is sent."""
    monkeypatch.setattr(SecureSum, "members", lambda self, places, lot: MEMBERS(self, sorted(places), lot)[::-1])
    words = r"^transport 'secure-sum', deliver in round 1, says: transport 'secure-sum', members, says that buffer 0"
    with pytest.raises(PluginError, match=words) as caught:
        trained(tmp_path / "run", FEDREP, suite)
    assert "Draw in members as in deliver, and say at=(context.number, n)" in caught.value.hint
    chain = (tmp_path / "run" / "transcript" / "chain.jsonl").read_bytes()
    assert [one in chain for one in (b'"step":"lot"', b'"step":"terms"', b'"step":"send"')] == [True, False, False]


def test_members_may_be_said_in_any_order(tmp_path, monkeypatch):
    """Terms name them ascending, and whoever reads a run compares them so."""
    descending = lambda self, places, lot: [some[::-1] for some in MEMBERS(self, places, lot)]  # noqa: E731
    monkeypatch.setattr(SecureSum, "members", descending)
    assert looked_at(seal(trained(tmp_path / "run", FEDREP, "plain"), tmp_path / "view")).verdict == "PASS"


def test_a_round_of_one_has_a_suite_that_opens_nothing():
    """A transport that takes the largest buffer of each round need not ask whether it can be opened."""
    alone = Suite("plain", most=1)
    alone.start(12)
    with pytest.raises(UsageError, match="two clients or more"):
        alone.opened(np.zeros((1, 2), dtype=np.int64), 12)
