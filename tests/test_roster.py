"""Lists of parties and keys, where clients have numbers as names, or the words of parties, or no names any more."""

import shutil
from dataclasses import replace

import pytest
import torch
from test_secured_runs import NOISY, trained
from tests_support import AUDIT_KEY, secret

from fuaudit import load_run, train, unlearn, verify
from fuaudit.plans import Request
from fuaudit.runs.roster import committed_keys, compared, lines_of, read_roster
from fuaudit.testing.tiny import tiny_dataset
from fuaudit.verification.spec import read_spec
from fuaudit.workflow.prune import prune
from fuaudit.workflow.redact import redact
from fuaudit.workflow.seal import seal

QUANTISE = {"use": "quantise", "clip": 1.0, "bits": 12}
LOUD = NOISY | {
    "client": [{"use": "gaussian-noise", "norm": 0.5, "noise": 1.0}, QUANTISE],
    "partition": {"use": "by-owner"},
    "transport": {"use": "secure-sum", "size": 3},
}
NUMBERS = "1", "0", "Ann", "Bob"
"""Clients 0 and 1 are called as the other one is numbered."""


def owned_by(names):
    owners = torch.tensor([0] * 6 + [1] * 6 + [2] * 6 + [3] * 6)
    return replace(tiny_dataset(), owners=owners, owner_names=names)


def run_of(path, names):
    return train(LOUD, path, owned_by(names), secret(1), secure="plain")


def pruned_of(parent, folder, clients, names):
    """The child of a copy of a run that forgot clients, pruned."""
    shutil.copytree(parent.path, folder / "parent")
    return prune(unlearn(folder / "parent", "retrain", Request.of(clients), folder / "child", data=owned_by(names)))[0]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return run_of(tmp_path_factory.mktemp("whole") / "run", NUMBERS)


@pytest.fixture(scope="module")
def kin(whole, tmp_path_factory):
    """The run, and what holds fewer of its names: by the words of those who may have it."""
    folder = tmp_path_factory.mktemp("kin")
    (folder / "two").mkdir()
    return {
        "whole": whole,
        "view": seal(whole, folder / "view"),
        "redacted": redact(whole, folder / "redacted"),
        "pruned": pruned_of(whole, folder, [0], NUMBERS),
        "pruned of two": pruned_of(whole, folder / "two", [0, 1], NUMBERS),
    }


NAMED = {"whole": {0, 1, 2, 3}, "view": set(), "redacted": set(), "pruned": {1, 2, 3}, "pruned of two": {2, 3}}
"""Whose names are there."""


def listed(tmp_path, lines):
    (tmp_path / "roster").write_text("\n".join(lines) + "\n")
    return read_roster(tmp_path / "roster")


def outside(run, names):
    """The list of a run as the parties make it, who know each other by name."""
    keys = committed_keys(run)
    return {**{name: keys[client] for client, name in enumerate(names)}, **{one: keys[one] for one in list(keys)[-2:]}}


def as_lines(keys):
    return [f"{name} {key}" for name, key in keys.items()]


def swapped(keys, one, other):
    return keys | {one: keys[other], other: keys[one]}


@pytest.mark.parametrize("name", NAMED)
def test_a_run_is_not_accused_by_the_list_of_its_parties(kin, tmp_path, name):
    """A number of which nobody is known to be called so is nobody's key: who lacks a name is found by hers."""
    run = kin[name]
    assert {client for client in range(4) if run.name(client) is not None} == NAMED[name]
    found = compared(run, listed(tmp_path, as_lines(outside(kin["whole"], NUMBERS))))
    assert (found.differences, found.nameless) == ((), 4 - len(NAMED[name]))
    # where the names of both are gone, "1" beside the key of client 0 may be her name, and may be an exchange
    assert len(found.doubts) == (0 if {0, 1} & NAMED[name] else 2)


@pytest.mark.parametrize(("name", "verdict"), [("whole", "PASS"), ("view", "INCONCLUSIVE"), ("pruned", "PASS")])
def test_provenance_says_how_far_a_list_was_compared(kin, tmp_path, name, verdict):
    listed(tmp_path, lines_of(kin["whole"]))
    spec = read_spec("sealed-view" if name == "view" else "secure-aggregation")
    spec = replace(spec, checks=tuple(one for one in spec.checks if one.audit["use"] == "provenance"), origin="")
    given = {} if name == "view" else {"data": owned_by(NUMBERS)}
    result = verify(kin[name], spec, key=AUDIT_KEY, save=False, roster=tmp_path / "roster", **given)
    (found,) = result.findings
    told = " ".join([found.shows, *found.details])
    assert found.verdict == verdict, told
    assert ("her name nor that of client" in told) == (name == "view")
    assert ("1 client are not here" in told or "1 client is not here" in told) == (name == "pruned")


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("other", NAMED)
def test_a_printed_list_has_each_name_once_and_is_read_as_it_was_meant(kin, tmp_path, name, other):
    """That of each of them, beside each of them."""
    found = compared(kin[other], listed(tmp_path, lines_of(kin[name])))
    assert found.differences == ()
    assert name != other or not found.doubts


def test_ids_are_told_from_names(kin):
    """Client 1 is called "0", so the number alone would be hers."""
    called = {name: [line.rsplit(" ", 1)[0] for line in lines_of(run)] for name, run in kin.items()}
    assert called["whole"] == [*NUMBERS, "witness", "key holder"]
    assert called["pruned"] == ["client 0", *NUMBERS[1:], "witness", "key holder"]
    assert called["view"] == [*(f"client {client}" for client in range(4)), "witness", "key holder"]


ODD = "witness", "0", "client 0", "1"
"""One has a party's word, and her number is another's name, and so is what would be printed in its place."""


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    return run_of(tmp_path_factory.mktemp("odd") / "run", ODD)


def test_who_has_the_word_of_a_party_is_told_by_id(odd, tmp_path):
    lines = lines_of(odd)
    assert [line.rsplit(" ", 1)[0] for line in lines] == [
        "client client 0", "0", "client 0", "1", "witness", "key holder",
    ]  # fmt: skip
    assert compared(odd, listed(tmp_path, lines)).differences == ()
    other = {name: key for name, key in (line.rsplit(" ", 1) for line in lines)}
    for one in ("0", "client 0", "1", "witness"):
        found = compared(odd, listed(tmp_path, as_lines(swapped(other, "client client 0", one))))
        assert len(found.differences) == 2, one
    view = seal(odd, tmp_path / "view")
    assert compared(view, listed(tmp_path, lines)).differences == ()


# what an attacker does


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("one", range(4))
@pytest.mark.parametrize("other", range(4))
def test_exchanged_keys(kin, tmp_path, name, one, other):
    """Between clients of whom one has her name there it is a difference; where both lack theirs, a key is as told."""
    if one >= other:
        return
    keys = swapped(outside(kin["whole"], NUMBERS), NUMBERS[one], NUMBERS[other])
    found = compared(kin[name], listed(tmp_path, as_lines(keys)))
    assert bool(found.differences) == bool({one, other} & NAMED[name])
    assert found.nameless == 4 - len(NAMED[name]) or found.differences


@pytest.mark.parametrize("party", ["witness", "key holder"])
@pytest.mark.parametrize("name", NAMED)
def test_keys_exchanged_with_a_party(kin, tmp_path, name, party):
    keys = outside(kin["whole"], NUMBERS)
    for client in NUMBERS:
        assert compared(kin[name], listed(tmp_path, as_lines(swapped(keys, client, party)))).differences


@pytest.mark.parametrize("name", NAMED)
def test_another_key_one_left_out_and_one_too_many(kin, tmp_path, name):
    keys, stranger = outside(kin["whole"], NUMBERS), "ab" * 32
    for client in keys:
        others = {one: key for one, key in keys.items() if one != client}
        for wrong in (keys | {client: stranger}, others, others | {"Zoe": stranger}, others | {"7": stranger}):
            assert compared(kin[name], listed(tmp_path, as_lines(wrong))).differences, (client, wrong)
        for extra in ("Zoe", "2", "client 2", "client 0"):
            found = compared(kin[name], listed(tmp_path, as_lines(keys | {extra: keys[client]})))
            assert found.differences, (client, extra)


@pytest.mark.parametrize("name", NAMED)
def test_the_key_of_a_client_given_to_another_name(kin, tmp_path, name):
    """Two names with one key leave somebody out, or put somebody in twice."""
    keys = outside(kin["whole"], NUMBERS)
    for one in NUMBERS:
        for other in {*NUMBERS} - {one}:
            found = compared(kin[name], listed(tmp_path, as_lines(keys | {one: keys[other]})))
            assert found.differences, (one, other)


def test_where_ids_are_the_names_a_view_compares_them(tmp_path):
    """Nobody has another name there: whoever is numbered otherwise, or called by a name, is a difference."""
    run = trained(tmp_path / "run", LOUD | {"partition": {"use": "iid", "clients": 4}}, "plain")
    keys = outside(run, ("0", "1", "2", "3"))
    for one in (run, seal(run, tmp_path / "view"), redact(run, tmp_path / "redacted")):
        assert lines_of(one) == as_lines(keys)
        found = compared(one, listed(tmp_path, as_lines(keys)))
        assert (found.differences, found.doubts, found.nameless) == ((), (), 0)
        named = {("Ann" if name == "2" else name): key for name, key in keys.items()}
        for wrong in (swapped(keys, "0", "1"), named):
            assert len(compared(one, listed(tmp_path, as_lines(wrong))).differences) == 2


def test_a_run_whose_clients_exchanged_keys_is_found_by_the_list(whole, tmp_path):
    """Another training, of which the parties of the first made the list."""
    other = train(LOUD, tmp_path / "run", owned_by(NUMBERS), secret(2), secure="plain")
    keys, there = outside(whole, NUMBERS), load_run(other.path)
    assert len(compared(there, listed(tmp_path, as_lines(keys))).differences) >= 6
    view = seal(other, tmp_path / "view")
    assert len(compared(view, listed(tmp_path, as_lines(keys))).differences) >= 6
