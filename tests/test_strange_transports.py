"""Transports of other packages whose sums a suite makes: what they have to say, and what is shown without it."""

import pytest
from fuaudit_plugins.secure_sum import SecureSum
from test_sealed import looked_at
from test_secured_runs import FEDAVG, exchange_by, trained

from fuaudit.errors import UsageError
from fuaudit.workflow.seal import seal


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
