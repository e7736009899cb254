"""A forger trains in private first, and writes what he wants to keep into what the run itself will be committed to.

He has the rows, and can train on them before anything is published. Nothing regenerates a config, a name or a secret,
so a byte of it can say anything. What no config means is refused, also in a
run that was written without fuaudit; what is left is named, with its size.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests_support import AUDIT_KEY, config, reseal, secret

from fuaudit import train, unlearn, verify
from fuaudit.data.dataset import Dataset
from fuaudit.errors import EvidenceError, UsageError
from fuaudit.plans import Request
from fuaudit.workflow import begin
from fuaudit.workflow import unlearn as unlearning
from fuaudit.workflow.prune import prune

TARGET = 0


@pytest.fixture(scope="module")
def private(tmp_path_factory):
    """A model that was trained on everybody's rows, in private."""
    return train(config(), tmp_path_factory.mktemp("private") / "run", secret=secret(4)).model.numpy()


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


@pytest.mark.thorough
@pytest.mark.parametrize("part", [("client", "bit-flip"), ("adversary", "label-flip")])
@pytest.mark.parametrize("how", REFUSED)
def test_a_model_in_a_list_of_clients(how, part, private, forged, tmp_path):
    (key, name), (clients, words) = part, REFUSED[how]
    stages = {key: [{"use": name, "clients": clients(private)}]}
    with pytest.raises(UsageError, match=words):
        train(honest(stages), tmp_path / "asked", secret=secret(3))
    with pytest.raises(EvidenceError, match=words):
        forged(stages)


GROUPS = {
    "clients named over and over": ([[1, 2, 1, 1]], "each in one group at most"),
    "clients that are not there": ([[1, 2**60]], "lists of clients 0 to 9"),
    "clients in an order of his": ([[2, 1]], "ascending order"),
    "groups in an order of his": ([[2], [1]], "by their first clients"),
}


@pytest.mark.parametrize("how", GROUPS)
def test_a_text_in_groups_of_a_partition(how, tmp_path):
    """He prunes the run that he has dealt by a script: nothing deals its rows again, but its config is opened."""
    groups, words = GROUPS[how]
    dealt = config(partition={"use": "two-level", "clients": 10, "groups": [[1, 2]]})
    run = train(dealt, tmp_path / "run", secret=secret(3))
    child, _ = prune(unlearn(run, "fats", Request.of([TARGET]), tmp_path / "child"))
    path = child.path / "config.toml"
    path.write_text(path.read_text().replace("groups = [[1, 2]]", f"groups = {groups}"))
    with pytest.raises(EvidenceError, match=words):
        reseal(child.path)


def test_a_model_in_a_chain(private, tmp_path):
    """He clips at norms that no row reaches; each has room for six bytes of his."""
    words = np.frombuffer(private.tobytes()[: private.nbytes // 6 * 6], np.uint8).reshape(-1, 6)
    norms = [2.0**60 * (1 + int.from_bytes(bytes(word), "little") / 2**48) for word in words]
    stages = [{"use": "norm-clipping", "norm": norm} for norm in norms]
    with pytest.raises(UsageError, match=r"\[\[server\]\] has \d+ stages"):
        train(honest({"server": [*stages, {"use": "mean"}]}), tmp_path / "run", secret=secret(3))


def named(names, rows=6):
    """Rows of owners with some names, of three numbers each: a linear model has 32 bytes."""
    names = tuple(names)
    count = rows * len(names)
    inputs = torch.arange(3 * count, dtype=torch.float32).reshape(count, 3) / (3 * count)
    targets, owners = torch.arange(count) % 2, torch.arange(len(names)).repeat_interleave(rows)
    return Dataset(inputs, targets, inputs[:4], targets[:4].clone(), 2, owners=owners, owner_names=names)


def rests_on(run, quick, **options):
    """What a PASS of a run rests on, of what was written beforehand or is opened by nothing."""
    result = verify(run, quick, key=AUDIT_KEY, save=False, commitment=run.commitment, request=run.request, **options)
    assert result.verdict == "PASS", result.reason
    return [line for line in result.conclusion.rests_on if line.startswith("Nothing ")]


def test_three_hundred_names_are_no_lie(tmp_path, quick):
    """An honest federation with names: it passes, and the finding says how long they are."""
    data = named((f"hospital {number:03}" for number in range(300)), rows=2)
    tables = config(data={"use": "tensors", "classes": 2}, partition={"use": "by-owner"})
    run = train(tables, tmp_path / "run", data=data, secret=secret(3))
    child = unlearn(run, "fats", Request.of([TARGET]), tmp_path / "child", data=data)
    (line,) = rests_on(child, quick, data=data)
    size = child.files["config.toml"]["size"]
    assert line == (
        "Nothing is hidden in what was written before the commitment and nothing makes again: config.toml "
        f"({size:,} bytes), the names of 300 clients (3,600 bytes). Whoever wrote it had the rows, and could have "
        "trained on them in private."
    )


def test_a_model_in_a_name(tmp_path, quick):
    """He calls a client who stays by the model. Names are committed to, so it has to be there before."""
    tables = config(data={"use": "tensors", "classes": 2}, partition={"use": "by-owner"})
    kept = train(tables, tmp_path / "private", data=named(map(str, range(10))), secret=secret(4)).model
    data = named([*map(str, range(9)), kept.numpy().tobytes().hex()])
    run = train(tables, tmp_path / "run", data=data, secret=secret(3))
    child, _ = prune(unlearn(run, "fats", Request.of([TARGET]), tmp_path / "child", data=data))
    assert child.name(9) == kept.numpy().tobytes().hex()
    written, closed = rests_on(child, quick, data=data)
    assert f"the names of 9 clients ({8 + 2 * kept.nbytes} bytes)" in written
    assert "7 leaves of names and rows" in closed


@pytest.mark.parametrize("apart", [True, False])
def test_a_model_in_secrets(apart, tmp_path, quick, monkeypatch):
    """Clients draw nothing: a script gives one the model of before, and may say that all secrets follow from one."""
    keys = {"use": "mimic-at-clients", "scenario": "static", "probability": 0.5, "rounds": 2, "steps": 1, "batch": 2}
    tables = config(
        data={"use": "tensors", "classes": 2}, learner=keys | {"first_all": False, "step_size": 0.1, "decay": 1.0}
    )
    data = named(map(str, range(10)))
    kept = train(tables, tmp_path / "private", data=data).model
    chosen = {client: secret(7) for client in range(9)} | {9: kept.numpy().tobytes()}
    first = begin.first_secrets
    with monkeypatch.context() as forger:
        forger.setattr(begin, "first_secrets", lambda *given: replace(first(*given), generations=(chosen,)))
        run = train(tables, tmp_path / "run", data=data, secret=None if apart else secret(3))
    assert run.secrets.made == ("apart" if apart else "from one secret")
    child, _ = prune(unlearn(run, "retrain", Request.of([TARGET]), tmp_path / "child", data=data))
    assert child.secrets.generations[0][9] == kept.numpy().tobytes()
    written, closed = rests_on(child, quick, data=data)
    assert "8 leaves of names, rows and secrets" in closed
    assert "the secrets of 9 clients (288 bytes)" in written


def test_a_model_in_leaves_that_nothing_opens(tmp_path, quick, monkeypatch):
    """He commits to the model of before in the place of the target's leaves, whose rows nobody has any more."""
    tables, data = config(data={"use": "tensors", "classes": 2}), named(map(str, range(10)))
    kept = train(tables, tmp_path / "private", data=data, secret=secret(4)).model
    commit = begin.commit

    def chosen(*given):
        contents, opening = commit(*given)
        rows = contents.rows.copy()
        rows[0] = np.frombuffer(kept.numpy().tobytes(), np.uint8)
        return replace(contents, rows=rows), opening

    monkeypatch.setattr(begin, "commit", chosen)
    monkeypatch.setattr(unlearning, "require_committed", lambda *given: None)
    run = train(tables, tmp_path / "run", data=data, secret=secret(3))
    child = unlearn(run, "fats", Request.of([TARGET]), tmp_path / "child", data=data)
    gone = frozenset(run.original.samples[TARGET])
    left = replace(data, inputs=data.inputs.clone(), absent=gone)
    left.inputs[sorted(gone)] = float("nan")
    assert child.contents.leaves_of(TARGET)[0] == kept.numpy().tobytes()
    _, closed = rests_on(child, quick, data=left)
    assert closed == (
        "Nothing was hidden in 6 leaves of erased rows, which nothing at hand opens: each has room for 32 bytes."
    )
    (line,) = rests_on(prune(child)[0], quick, data=left)[1:]
    assert "7 leaves of names and rows" in line


def test_rows_at_hand_leave_no_room(tmp_path, quick):
    """Where the erased rows are at hand and open their leaves, nothing of the kind is said of an honest run."""
    tables, data = config(data={"use": "tensors", "classes": 2}), named(map(str, range(10)))
    run = train(tables, tmp_path / "run", data=data, secret=secret(3))
    child = unlearn(run, "fats", Request.of([TARGET]), tmp_path / "child", data=data)
    assert len(rests_on(child, quick, data=data)) == 1
