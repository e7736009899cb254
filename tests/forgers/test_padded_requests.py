"""A forger asks for a client, and for samples of hers besides: one wish in 2^144 words, and other draws for each.

Without --client nothing compared them with what was asked for. A request names a client or her samples.
"""

import pytest
from tests_support import AUDIT_KEY, config, edit, secret, told

from fuaudit import request_of, train, unlearn, verify
from fuaudit.errors import EvidenceError, UsageError
from fuaudit.plans import Request
from fuaudit.runs.run import load_run

TARGET = 0


@pytest.fixture
def parent(tmp_path):
    return train(config(), tmp_path / "parent", secret=secret(3))


@pytest.fixture
def padded(parent):
    return Request.of([TARGET], parent.original.samples[TARGET][:2])


@pytest.mark.parametrize("method", ["fats", "retrain", "noop"])
def test_it_is_refused(parent, padded, method, tmp_path):
    with pytest.raises(UsageError, match=r"names client 0, and sample \d+ of hers besides"):
        unlearn(parent, method, padded, tmp_path / "child")
    assert not (tmp_path / "child").exists()
    with pytest.raises(UsageError, match="of hers besides"):
        request_of(parent, [TARGET], [(TARGET, 5)])


@pytest.mark.parametrize("further", [False, True], ids=["last", "earlier"])
def test_a_run_that_says_so_does_not_open(parent, padded, further, quick, tmp_path):
    """He writes the padded request into a child, as its own or as that of its parent."""
    child = unlearn(parent, "fats", Request.of([TARGET]), tmp_path / "child")
    if further:
        child = unlearn(child, "fats", Request.of([5]), tmp_path / "further")
    rows = [{"clients": list(one.clients), "samples": list(one.samples)} for one in (padded, *child.requests[1:])]
    edit(child.path, "plan.json", requests=rows)
    with pytest.raises(EvidenceError, match="of hers besides"):
        told(child.path, lambda events: [e | rows[-1] if e["event"] == "request" else e for e in events])
    with pytest.raises(EvidenceError, match="of hers besides"):
        verify(child.path, quick, key=AUDIT_KEY, save=False)


def test_samples_first_and_their_client_later_are_two_wishes(parent, padded, quick, tmp_path):
    first = unlearn(parent, "fats", Request.of(samples=padded.samples), tmp_path / "first")
    then = unlearn(first, "fats", Request.of([TARGET]), tmp_path / "then")
    beside = unlearn(parent, "fats", Request.of([TARGET], parent.original.samples[1][:1]), tmp_path / "beside")
    for run in (then, beside):
        assert verify(load_run(run.path), quick, key=AUDIT_KEY, save=False).verdict == "PASS"
