"""A forger gives clients who stay numbers of his choice, and a model that was trained with everybody lies in these.

A prune destroys the key of the partition, so nothing deals it again. Numbers of clients were as told then: a thousand
of them, under a config of ten, held 650 numbers bit for bit, and a PASS named no room. How many clients there are
follows from the config, and so do their numbers, where they are not those of owners. Those of owners are named.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests_support import AUDIT_KEY, config, secret

from fuaudit import request_of, train, unlearn, verify
from fuaudit.data.dataset import Dataset
from fuaudit.errors import EvidenceError, UsageError
from fuaudit.plans import Population, Request
from fuaudit.workflow import begin
from fuaudit.workflow.prune import prune

BITS = 20


@pytest.fixture(scope="module")
def private(tmp_path_factory):
    """A model that was trained on everybody's rows, in private."""
    return train(config(), tmp_path_factory.mktemp("private") / "run", secret=secret(4)).model.numpy()


def numbers_of(model, bits=BITS):
    """A model in the gaps between ascending numbers."""
    text = "".join(map(str, np.unpackbits(model.view(np.uint8))))
    gaps = [int(text[at : at + bits].ljust(bits, "0"), 2) + 1 for at in range(0, len(text), bits)]
    return tuple((np.cumsum(gaps) - 1).tolist())


def read_back(numbers, model, bits=BITS):
    gaps = np.diff([-1, *numbers])[: -(-8 * model.nbytes // bits)] - 1
    text = "".join(format(gap, f"0{bits}b") for gap in gaps.tolist())[: 8 * model.nbytes]
    return np.packbits([int(bit) for bit in text]).view(model.dtype)


@pytest.fixture
def pruned(tmp_path, monkeypatch):
    """The pruned child of a federation whose clients have numbers of his choice."""

    def work(numbers, **changes):
        def dealt(dealer, data, key):
            return Population({c: tuple(range(k, data.size, len(numbers))) for k, c in enumerate(numbers)})

        with monkeypatch.context() as forger:
            forger.setattr(begin, "partition", dealt)
            forger.setattr(begin, "require_federation", lambda *given: None)
            run = train(config(**changes), tmp_path / "run", secret=secret(3))
        return prune(unlearn(run, "fats", Request.of([numbers[0]]), tmp_path / "child"))[0]

    return work


@pytest.mark.thorough
def test_a_tenth_of_a_model_in_the_numbers_of_a_hundred(private, pruned):
    some = private[:65]
    numbers = numbers_of(some)
    assert len(numbers) > 100
    assert (read_back(numbers, some) == some).all()
    with pytest.raises(EvidenceError, match=r"cannot be a run: the config deals rows to 10 clients, and there are 10"):
        pruned(numbers)


DEALERS = {
    "dirichlet": {},
    "dirichlet-by-class": {},
    "iid": {},
    "k-classes": {},
    "one-holder": {},
    "shards": {},
    "two-level": {"groups": [[1, 2]]},
}


@pytest.mark.parametrize("dealer", DEALERS)
@pytest.mark.parametrize(
    ("numbers", "words"),
    [((*range(9), 12), "other ids than 0 to 9"), (range(12), "to 10 clients, and there are 12")],
    ids=["numbers of his", "more clients"],
)
def test_clients_are_those_of_the_config(dealer, numbers, words, pruned):
    with pytest.raises(EvidenceError, match=words):
        pruned(numbers, partition={"use": dealer, "clients": 10} | DEALERS[dealer])


def test_training_asks_it_too(tmp_path, monkeypatch):
    """So a run that trained is one that opens."""
    monkeypatch.setattr(begin, "partition", lambda *given: Population({3 * c: (c,) for c in range(10)}))
    with pytest.raises(UsageError, match="other ids than 0 to 9"):
        train(config(), tmp_path / "run", secret=secret(3))


@pytest.mark.parametrize(
    ("numbers", "options", "words"),
    [((*range(9), 2**20), {}, "numbers end at 1048575"), (range(12), {"clients": 10}, "and there are 12")],
    ids=["too large", "more than are drawn"],
)
def test_owners_have_a_limit(numbers, options, words, pruned):
    with pytest.raises(EvidenceError, match=words):
        pruned(numbers, partition={"use": "by-owner"} | options)


OWNERS = (1, 4, 5, 9)


def rows(numbers=OWNERS):
    owners = torch.tensor(numbers).repeat_interleave(6)
    inputs = torch.arange(3.0 * len(owners)).reshape(-1, 3) / (3 * len(owners))
    return Dataset(inputs, torch.arange(len(owners)) % 2, inputs[:4], torch.arange(4) % 2, 2, owners=owners)


@pytest.mark.parametrize("pruned_too", [False, True])
@pytest.mark.parametrize(
    ("at_hand", "left"),
    [(rows(), (0, 1)), (rows((0, 1, 2, 3)), (4, 4)), (replace(rows(), owners=None), (4, 4))],
    ids=["owners", "other numbers", "nobody's"],
)
def test_numbers_of_owners_are_named(at_hand, left, pruned_too, quick, tmp_path):
    """Whom the data at hand calls so is shown. After a prune nothing shows it of who was erased."""
    tables = config(data={"use": "tensors", "classes": 2}, partition={"use": "by-owner"})
    run = train(tables, tmp_path / "run", data=rows(), secret=secret(3))
    child = unlearn(run, "fats", request_of(run, ["4"]), tmp_path / "child", data=rows())
    child = prune(child)[0] if pruned_too else child
    result = verify(child, quick, data=at_hand, key=AUDIT_KEY, save=False)
    told = [line for line in result.conclusion.rests_on if line.startswith("The numbers of ")]
    if at_hand.owners is not None and not pruned_too and left[0]:
        assert result.verdict == "FAIL"  # the key deals other numbers
        return
    assert result.verdict == "PASS", result.reason
    count = left[pruned_too]
    assert told == [
        f"The numbers of {count} client{'s' * (count != 1)} are taken from the commitment: no row at hand is of an "
        f"owner with such a number. Whoever wrote them had room for {-(-20 * count // 8)} bytes."
    ] * bool(count)


def test_numbers_that_follow_on_each_other_leave_no_room(quick, tmp_path):
    tables = config(data={"use": "tensors", "classes": 2}, partition={"use": "by-owner"})
    run = train(tables, tmp_path / "run", data=rows((0, 1, 2, 3)), secret=secret(3))
    child = prune(unlearn(run, "fats", request_of(run, ["2"]), tmp_path / "child", data=rows((0, 1, 2, 3))))[0]
    result = verify(child, quick, data=replace(rows(), owners=None), key=AUDIT_KEY, save=False)
    assert result.verdict == "PASS", result.reason
    assert not any(line.startswith("The numbers of ") for line in result.conclusion.rests_on)
