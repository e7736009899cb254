"""A forger trains in private first, and writes what he wants to keep into what the run itself will be committed to.

Who has the secret knows all draws before the commitment is published, and whoever has the rows has them anyway. Nothing
regenerates a config, a name or a secret, so a byte of it can say anything. What no config means is refused, also in a
run that was written without fuaudit; what is left is named, with its size.
"""

import numpy as np
import pytest
from tests_support import AUDIT_KEY, config, secret

from fuaudit import train, unlearn, verify
from fuaudit.errors import EvidenceError, UsageError
from fuaudit.plans import Request
from fuaudit.workflow import begin
from fuaudit.workflow.prune import prune

TARGET = 0


@pytest.fixture(scope="module")
def private(tmp_path_factory):
    """The untouched model, trained in private."""
    return train(config(), tmp_path_factory.mktemp("private") / "run", secret=secret(3)).model.numpy()


def honest(stages):
    """The config of the run with Byzantine clients, or clipping, that change nothing of what is asked here."""
    return config(**stages)


@pytest.fixture
def forged(tmp_path, monkeypatch):
    """The pruned child of a run that was begun without asking whether its config fits."""

    def work(stages):
        with monkeypatch.context() as forger:
            forger.setattr(begin, "require_federation", lambda *given: None)
            run = train(honest(stages), tmp_path / "run", secret=secret(3))
        return prune(unlearn(run, "fats", Request.of([TARGET]), tmp_path / "child"))[0]

    return work


def bits(model, first):
    """A model as a list of two clients, over and over."""
    return (np.unpackbits(model.view(np.uint8)).astype(int) + first).tolist()


def whole(model, first):
    """A model as clients that nobody has."""
    return (model.view(np.uint32).astype(int) + first).tolist()


REFUSED = {
    "clients named over and over": (lambda model: [8, 9, *bits(model, 8)], "each client once"),
    "clients that are not there": (lambda model: whole(model, 100), "no such client"),
    "clients in an order of his": (lambda model: [9, 8], "ascending"),
}


@pytest.mark.parametrize("how", REFUSED)
def test_a_model_in_a_list_of_clients(how, private, forged, tmp_path):
    clients, words = REFUSED[how]
    stages = {"client": [{"use": "bit-flip", "clients": clients(private)}]}
    with pytest.raises(UsageError, match=words):
        train(honest(stages), tmp_path / "asked", secret=secret(3))
    with pytest.raises(EvidenceError, match=words):
        forged(stages)


def test_a_model_in_a_chain(private, tmp_path):
    """He clips at norms that no row reaches; each has room for six bytes of his."""
    words = np.frombuffer(private.tobytes()[: private.nbytes // 6 * 6], np.uint8).reshape(-1, 6)
    norms = [2.0**60 * (1 + int.from_bytes(bytes(word), "little") / 2**48) for word in words]
    stages = [{"use": "norm-clipping", "norm": norm} for norm in norms]
    with pytest.raises(UsageError, match=r"\[\[server\]\] has \d+ stages"):
        train(honest({"server": [*stages, {"use": "mean"}]}), tmp_path / "run", secret=secret(3))
