"""One account for a family: a round counts for every run that drew it anew, and for no other."""

import hashlib
import json
import os
import re
import shutil
from contextlib import contextmanager
from fractions import Fraction

import matplotlib
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests_support import edit, secret, told

from fuaudit import load_run, train, unlearn
from fuaudit.audits.provenance import Provenance
from fuaudit.budgets.conspar.account import account
from fuaudit.budgets.conspar.law import ConSpar
from fuaudit.budgets.family import Family, Member, Release, spent_towards_public, spent_towards_server
from fuaudit.budgets.growth import ends, growth
from fuaudit.budgets.spent import OTHERWISE, TWICE, Terms, accounts
from fuaudit.draws import Keyed
from fuaudit.errors import PluginError, UsageError
from fuaudit.formats.forms import pretty_json
from fuaudit.plans import Request
from fuaudit.runs.account import account_of, account_of_lineage
from fuaudit.runs.kin import ONE_DIGEST, OTHER_TALE, UNFINISHED, kinship
from fuaudit.runs.ledger import Ledger, read_ledger
from fuaudit.runs.manifest import digest_of_files
from fuaudit.runs.released import EDITED, _drawn_from
from fuaudit.runs.tombstone import read_tombstone
from fuaudit.testing.tiny import tiny_config, tiny_dataset
from fuaudit.training.releases import BEHIND, NO_WORD
from fuaudit.verification.case import Case
from fuaudit.verification.evidence import Evidence
from fuaudit.workflow.append import append
from fuaudit.workflow.prune import prune
from fuaudit.workflow.redact import redact

DIM = 12
"""Coordinates of the model of these tests: weights of 3 numbers in 3 classes, and 3 biases."""
LEARNS = {"use": "fedrep", "cohort": 2, "steps": 3, "batch": 2, "step_size": 0.2, "rounds": 8}
PROPOSES = {"use": "consensus", "per_client": 2, "alpha": 0.99}
TABLES = tiny_config(
    learner=LEARNS,
    partition={"use": "iid", "clients": 6},
    client=[{"use": "error-feedback"}, PROPOSES],
    server=[{"use": "mean"}],
    run={"checkpoint_every": 3, "engine": "reference", "device": "cpu", "requests": 4},
)


def trained(folder, number=3, **tables):
    return train(TABLES | tables, folder, tiny_dataset(), secret(number))


def forget(parent, name, folder, options=None, **asked):
    return unlearn(parent, name, Request.of(**asked), folder, options, data=tiny_dataset())


def root_and_child(folder):
    root = trained(folder / "root")
    return root, forget(root, "fats", folder / "child", clients=[3])


def epsilon(rounds, delta=0.0, differ=1):
    return account(ConSpar(DIM, 2, Fraction("0.99"), differ), rounds, delta).total


def spent(run, **asked):
    found = account_of(load_run(run.path), **asked)
    return {name: towards.spent.rounds for name, towards in found.towards.items()}


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    """Six runs. Client 3 is drawn from round 5 on, sample 8 from step 2 of round 4, client 5 from round 4."""
    home = tmp_path_factory.mktemp("family")
    root = trained(home / "root")
    sibling = forget(root, "fats", home / "sibling", clients=[5])
    between = forget(root, "fats", home / "between", clients=[3])
    inside = forget(between, "fats", home / "inside", samples=[8])
    pruned, _ = prune(inside, allow_orphans=True)
    kept = forget(pruned, "noop", home / "kept", clients=[0])
    anew = forget(pruned, "retrain", home / "anew", clients=[0])
    return {run.path.name: load_run(run.path) for run in (sibling, pruned, kept, anew)}


HAND = {
    "root": [1, 8],  # the training: all that it executed
    "between": [5, 8],  # the model of round 3 is kept; round 4 is executed again with the draws that it had
    "inside": [4, 8],  # round 4 is cut behind its first step: it was executed with two noises
    "kept": [],
    "anew": [1, 8],
    "sibling": [4, 8],
}


def test_the_account_of_six_runs_is_the_count_by_hand(family):
    assert family["inside"].info["first_change"] == [4, 2]
    found = account_of(family["kept"]).as_json()
    server, public = found["towards"]["server"], found["towards"]["public"]
    assert server["runs"] == HAND
    assert server["rounds"] == 8 + 4 + 5 + 0 + 8 + 5
    (one,) = server["accounts"]
    assert (one["part"], one["rounds"], one["reason"]) == ("client.1", 30, None)
    assert one["mechanism"] == [{"name": "conspar", "parameters": {"alpha": 0.99, "dim": DIM, "per_client": 2}}]
    assert one["epsilon_total"] == epsilon(30)
    assert public["runs"] == {name: HAND[name] for name in ("root", "between", "inside", "kept")}
    assert found["published"] == sorted(public["runs"])  # an ancestor was in use before
    assert public["accounts"][0]["epsilon_total"] == epsilon(17)


def test_kept_rounds_that_are_executed_again_are_told_twice_and_count_once(family):
    """What is summed here are lines of ledgers: with those of kept rounds there are more."""
    runs = [family[name] for name in ("sibling", "inside")]
    assert [run.ledger.of_kind("round")[0]["round"] for run in runs] == [4, 4]
    found = account_of(family["kept"])
    between = next(charge for charge in found.towards["server"].spent.charges if charge.name == "between")
    assert between.rounds == range(5, 9)
    ledger = (family["kept"].path.parent / "between" / "ledger.jsonl").read_text().splitlines()
    lines = map(json.loads, ledger)
    assert [line["round"] for line in lines if line["event"] == "round"] == [4, 5, 6, 7, 8]


def test_from_wherever_it_is_asked_the_server_has_seen_the_same(family):
    server = {spent(run)["server"] for run in family.values()}
    assert server == {30}
    assert spent(family["sibling"]) == {"server": 30, "public": 8 + 5}
    assert spent(family["sibling"], published=["anew"]) == {"server": 30, "public": 8 + 5 + 4 + 5 + 8}
    assert spent(family["kept"], published=["sibling"]) == {"server": 30, "public": 17 + 5}
    with pytest.raises(UsageError, match="is called 'sibbling'"):
        spent(family["kept"], published=["sibbling"])


def test_a_prune_changes_no_account(tmp_path):
    root = trained(tmp_path / "root")
    child = forget(root, "fats", tmp_path / "child", clients=[3])
    last = forget(child, "fats", tmp_path / "last", samples=[8])
    before = account_of(load_run(last.path))
    prune(last)
    after = account_of(load_run(last.path))
    for reader in ("server", "public"):
        one, other = (found.towards[reader] for found in (before, after))
        assert one.spent.rounds == other.spent.rounds == 17
        assert one.accounts[0].epsilon == other.accounts[0].epsilon
    stated = after.towards["server"].accounts[0].statement.rounds_covered
    assert "Of child, root there is the ledger alone, which is taken as told" in stated


def test_delta_and_differing_elements_are_those_of_the_config_or_those_given(tmp_path):
    root = trained(tmp_path / "root", budget={"epsilon": 9.0, "delta": 1e-3, "differ": 2})
    of_config, given = account_of(root), account_of(root, 0.0, 1)
    assert of_config.towards["server"].accounts[0].epsilon == epsilon(8, 1e-3, 2)
    assert given.towards["server"].accounts[0].epsilon == epsilon(8)
    with pytest.raises(UsageError, match="cannot differ in 3"):
        account_of(root, differ=3)


def test_a_law_that_draws_a_client_several_times_charges_all_of_them(tmp_path):
    root = trained(tmp_path / "root", client=[PROPOSES], learner=LEARNS | {"use": "fats"})
    (one,) = account_of(root).towards["public"].accounts
    assert (one.rounds, one.epsilon) == (8, epsilon(16))
    assert "up to 2 times" in one.statement.rounds_covered


def test_a_run_that_goes_on_where_training_was_stopped_charges_what_was_never_executed(tmp_path):
    """Nothing that was executed changes, so the first change lies behind it; the rounds after that are new."""
    root = train(TABLES, tmp_path / "root", tiny_dataset(), secret(3), stop_after=4)
    child = forget(root, "noop", tmp_path / "child", clients=[3])
    assert spent(child)["server"] == 4 + 4
    assert spent(root) == {"server": 8, "public": 4}


# gaps


def reasons(run, reader="server", **asked):
    found = account_of(load_run(run.path), **asked).towards[reader]
    assert found.reasons
    assert all(one.epsilon == float("inf") for one in found.accounts)
    assert all(one.as_json()["epsilon_total"] is None and one.reason for one in found.accounts)
    return "; ".join(found.reasons)


@pytest.fixture
def as_nobody(tmp_path):
    """Without the rights of the superuser, who can read everything."""

    @contextmanager
    def changed():
        if os.geteuid():
            yield
            return
        for path in (tmp_path, *tmp_path.rglob("*")):
            os.chown(path, 65534, 65534, follow_symlinks=False)
        for path in (tmp_path, *tmp_path.parents):
            path.chmod(path.stat().st_mode | 0o711) if path.stat().st_uid == 0 else None
        os.seteuid(65534)
        try:
            yield
        finally:
            os.seteuid(0)

    return changed


@pytest.fixture
def two(tmp_path):
    return root_and_child(tmp_path)


def test_a_missing_ancestor_leaves_no_guarantee(two, tmp_path):
    root, child = two
    (tmp_path / "elsewhere").mkdir()
    shutil.move(root.path, tmp_path / "elsewhere" / "root")
    for reader in ("server", "public"):
        assert "the parent of child is not at hand" in reasons(child, reader)
    assert spent(child, also=[tmp_path / "elsewhere"]) == {"server": 12, "public": 12}


@pytest.mark.parametrize("broken", ["unfinished", "altered", "torn", "without a ledger"])
def test_a_relative_that_cannot_be_opened_is_a_gap_towards_the_server(two, broken):
    root, child = two
    if broken == "unfinished":
        (child.path / "manifest.json").unlink()
    elif broken == "altered":
        edit(child.path, "run.json", kind="training")
    elif broken == "torn":
        (child.path / "ledger.jsonl").write_bytes(b"{")
    else:
        (child.path / "ledger.jsonl").unlink()
    assert "child: " in reasons(root)
    assert (UNFINISHED in reasons(root)) == (broken == "unfinished")
    assert account_of(load_run(root.path)).towards["public"].accounts[0].epsilon == epsilon(8)
    assert "child: " in reasons(root, "public", published=["child"])


@pytest.mark.parametrize("form", ["tombstone", "unfinished"])
def test_a_relative_without_its_ledger_is_a_gap_in_whatever_form(two, tmp_path, form):
    root, child = two
    if form == "tombstone":
        shutil.copytree(root.path, tmp_path / "a" / "root")
        shutil.copytree(child.path, tmp_path / "a" / "child")
        prune(forget(load_run(tmp_path / "a" / "child"), "retrain", tmp_path / "a" / "last", clients=[0]))
        shutil.rmtree(child.path)
        shutil.copytree(tmp_path / "a" / "child", child.path)
        assert (child.path / "tombstone.json").exists()
    else:
        (child.path / "manifest.json").unlink()
    (child.path / "ledger.jsonl").unlink()
    assert "child: " in reasons(root)


def test_another_training_is_no_relative_and_a_copy_is_no_second_run(two, tmp_path):
    root, _ = two
    trained(tmp_path / "other", 4)
    redact(root, tmp_path / "redacted")
    shutil.copytree(root.path, tmp_path / "copy")
    assert spent(root) == {"server": 12, "public": 8}


def test_a_pruned_run_and_its_copy_of_before_are_one(two, tmp_path):
    _, child = two
    shutil.copytree(child.path, tmp_path / "before")
    prune(child)
    assert spent(child) == {"server": 12, "public": 12}


def test_children_of_before_a_prune_find_their_parent(two, tmp_path):
    _, child = two
    last = forget(child, "noop", tmp_path / "last", clients=[0])
    prune(child, allow_orphans=True)
    assert spent(last) == {"server": 12, "public": 12}


def was_another(folder, digest):
    """Write the ledger of a pruned run, or of a tombstone, anew: before the prune it was a run of this digest."""
    events, ledger = read_ledger(folder).events, Ledger()
    (folder / "ledger.jsonl").unlink()
    for event in events:
        facts = {name: value for name, value in event.items() if name not in ("event", "previous")}
        facts |= {"sealed": {"digest": digest}, "pruned": {"before": digest}}.get(event["event"], {})
        ledger = append(folder, ledger, event["event"], **facts)
    if (manifest := folder / "manifest.json").exists():
        manifest.write_bytes(pretty_json(json.loads(manifest.read_text()) | {"ledger": ledger.head}))


def test_a_tombstone_that_was_another_run_before_a_prune_is_a_gap(two, tmp_path):
    """It tells what it was sealed as. Nothing has that digest any more: as its parent's, it would hide its rounds."""
    root, child = two
    pruned = prune(child)[0]
    last = prune(forget(pruned, "retrain", tmp_path / "last", clients=[2]))[0]
    assert spent(last) == {"server": 20, "public": 20}
    was_another(pruned.path, json.loads((root.path / "tombstone.json").read_text())["digest"])
    assert f"child: {ONE_DIGEST}" in reasons(last)
    assert "the parent of last is not at hand" in reasons(last, "public")
    chain = [read_tombstone(run.path, last.config) for run in (pruned, root)]
    (lineage,) = account_of_lineage(load_run(last.path), chain).towards.values()
    assert f"child: {ONE_DIGEST}" in "; ".join(lineage.reasons)


def test_a_pruned_run_that_says_it_was_another_one_hides_nobody(two, tmp_path):
    """No manifest of before says so: it would have stood for the training run as its copy."""
    root, _ = two
    last = forget(root, "retrain", tmp_path / "last", clients=[2])
    honest = spent(last)
    (tmp_path / "away").mkdir()
    shutil.copytree(root.path, tmp_path / "away" / "root")
    pruned = prune(forget(load_run(tmp_path / "away" / "root"), "fats", tmp_path / "away" / "a", clients=[5]))[0]
    shutil.copytree(pruned.path, tmp_path / "a")
    was_another(tmp_path / "a", root.digest)
    assert f"a: {ONE_DIGEST}" in reasons(last)
    assert spent(last) == honest


@pytest.mark.parametrize("form", ["run", "tombstone"])
def test_nobody_takes_the_place_of_a_parent_that_is_gone(two, tmp_path, form):
    """A sibling of fewer rounds says that it was the parent, by its own ledger or by that of a tombstone beside it."""
    root, _ = two
    parent = forget(root, "retrain", tmp_path / "parent", clients=[3])
    last = forget(parent, "fats", tmp_path / "last", clients=[5])
    (tmp_path / "away").mkdir()
    shutil.copytree(root.path, tmp_path / "away" / "root")
    sibling = forget(load_run(tmp_path / "away" / "root"), "fats", tmp_path / "away" / "sibling", clients=[0])
    if form == "run":
        shutil.copytree(prune(sibling)[0].path, liar := tmp_path / "sibling")
    else:
        shutil.copytree(sibling.path, tmp_path / "sibling")
        prune(forget(sibling, "retrain", tmp_path / "away" / "below", clients=[1]))
        shutil.copytree(sibling.path, liar := tmp_path / "stone")
    was_another(liar, parent.digest)
    shutil.rmtree(parent.path)
    for reader in ("server", "public"):
        assert "the parent of last is not at hand" in reasons(last, reader)


def test_a_tombstone_that_says_it_was_an_ancestor_that_is_gone_is_none(tmp_path):
    """As a verification, which finds that its digest is not that of the parent; it had fewer rounds to count."""
    root = trained(tmp_path / "root", learner=LEARNS | {"rounds": 4})
    last = forget(forget(root, "retrain", tmp_path / "a", clients=[3]), "noop", tmp_path / "last", clients=[5])
    (tmp_path / "away").mkdir()
    shutil.copytree(root.path, tmp_path / "away" / "root")
    stone = forget(load_run(tmp_path / "away" / "root"), "fats", tmp_path / "away" / "stone", clients=[0])
    prune(forget(prune(stone)[0], "retrain", tmp_path / "away" / "below", clients=[1]))
    shutil.copytree(stone.path, tmp_path / "stone")
    was_another(tmp_path / "stone", load_run(tmp_path / "a").digest)
    shutil.rmtree(tmp_path / "a")
    for reader in ("server", "public"):
        assert "the parent of last is not at hand" in reasons(last, reader)


def test_a_copy_of_before_a_prune_does_not_take_the_place_of_the_run(two, tmp_path):
    """Whatever it is called: children name the pruned run by its digest of now."""
    _, child = two
    for name in ("a-copy", "z-copy"):
        shutil.copytree(child.path, tmp_path / name)
    pruned = prune(child)[0]
    last = forget(pruned, "retrain", tmp_path / "last", clients=[2])
    assert spent(last)["public"] == 20


def test_the_run_that_is_asked_about_was_no_other_one_either(two):
    """Its manifest of before says what it was, and not what its ledger says."""
    root, child = two
    pruned = prune(child)[0]
    assert spent(pruned)["server"] == 12
    was_another(pruned.path, json.loads((root.path / "tombstone.json").read_text())["digest"])
    for reader in ("server", "public"):
        assert f"child: {ONE_DIGEST}" in reasons(pruned, reader)


def test_one_who_says_that_he_is_an_ancestor_is_in_the_way_towards_everybody(two, tmp_path):
    """Which of two tombstones the parent is, nobody knows: the one that counts may be the one with fewer rounds."""
    _, child = two
    pruned = prune(child)[0]
    last = prune(forget(pruned, "retrain", tmp_path / "last", clients=[2]))[0]
    assert spent(last) == {"server": 20, "public": 20}
    shutil.copytree(tmp_path / "root", tmp_path / "a-root")
    stone = json.loads((tmp_path / "a-root" / "tombstone.json").read_text())
    stone["files"]["former-manifest.json"] = {"sha256": "0" * 64, "size": 1000}
    stone["digest"] = digest_of_files(stone["files"])
    (tmp_path / "a-root" / "tombstone.json").write_bytes(pretty_json(stone))
    was_another(tmp_path / "a-root", before := last.info["parent"]["digest"])
    append(tmp_path / "a-root", read_ledger(tmp_path / "a-root"), "pruned", digest=stone["digest"], before=before)
    for reader in ("server", "public"):
        assert ONE_DIGEST in reasons(last, reader)


def test_a_copy_whose_ledger_tells_of_other_rounds_is_in_the_way(two, tmp_path):
    """Its digest is that of the run: files of rounds are covered by it, and the ledger is not."""
    root, child = two
    shutil.copytree(root.path, tmp_path / "a-root")
    told(tmp_path / "a-root", lambda events: [{n: v for n, v in event.items() if n != "told"} for event in events])
    for name in ("server", "public"):
        assert f"root: {OTHER_TALE.format('a-root')}" in reasons(child, name)


def test_a_copy_whose_ledger_names_another_platform_is_in_the_way(two, tmp_path):
    """It would say that kept rounds were executed again where they were executed first."""
    _, child = two
    shutil.copytree(child.path, tmp_path / "a-child")
    platform(load_run(tmp_path / "a-child"), canary="0" * 64)
    assert "its ledger tells otherwise" in reasons(two[0])


def test_a_copy_of_an_edited_run_is_no_second_one(two, tmp_path):
    root, _ = two
    edited = forget(root, "finetune", tmp_path / "edited", {"rounds": 1}, clients=[3])
    shutil.copytree(edited.path, tmp_path / "copy")
    assert f"copy: {EDITED}" in reasons(root)
    assert "edited: " not in reasons(root)


@pytest.mark.parametrize(
    "files",
    [
        {"manifest.json": "{}"},
        {"manifest.json": "{}", "config.toml": "a = 1"},
        {"run.json": "{}", "config.toml": "a = 1", "ledger.jsonl": '{"event":"x"}\n'},
        {"ledger.jsonl": "a line\n"},
    ],
)
def test_what_is_no_run_is_no_gap(two, tmp_path, files):
    """Other programs have files of these names too."""
    (tmp_path / "website").mkdir()
    for name, content in files.items():
        (tmp_path / "website" / name).write_text(content)
        (tmp_path / "its-copy").mkdir(exist_ok=True)
        (tmp_path / "its-copy" / name).symlink_to(tmp_path / "website" / name)
    assert account_of(load_run(two[1].path)).towards["server"].accounts[0].epsilon == epsilon(12)


def test_what_a_prune_leaves_of_another_training_is_no_gap(two, tmp_path):
    other = trained(tmp_path / "other", 4)
    (tmp_path / "redacted").mkdir()
    redact(other, tmp_path / "redacted" / "other")
    prune(forget(other, "fats", tmp_path / "other-child", clients=[3]))
    account = account_of(load_run(two[1].path), also=[tmp_path / "redacted"]).towards["server"]
    assert account.accounts[0].epsilon == epsilon(12)


def test_a_copy_of_a_ledger_is_no_gap(two, tmp_path):
    """Whoever publishes one may keep it beside the runs."""
    root, child = two
    last = forget(child, "retrain", tmp_path / "last", clients=[2])
    prune(last)
    for run in (root, last):
        (tmp_path / f"a-ledger-of-{run.path.name}").mkdir()
        shutil.copy(run.path / "ledger.jsonl", tmp_path / f"a-ledger-of-{run.path.name}")
    assert account_of(load_run(last.path)).towards["server"].accounts[0].epsilon == epsilon(20)


def test_another_training_that_was_broken_off_is_no_gap(two, tmp_path):
    other = trained(tmp_path / "other", 4)
    with (other.path / "ledger.jsonl").open("ab") as ledger:
        ledger.write(b'{"event":')
    (other.path / "manifest.json").unlink()
    assert account_of(load_run(two[1].path)).towards["server"].accounts[0].epsilon == epsilon(12)


@pytest.mark.parametrize(
    "left",
    [
        {"ledger.jsonl"},
        {"ledger.jsonl", "model.safetensors"},
        {"run.json", "model.safetensors"},
        {"manifest.json", "model.safetensors"},
    ],
)
def test_what_is_left_of_a_relative_is_a_gap(two, left):
    root, child = two
    for item in child.path.iterdir():
        if item.is_file() and item.name not in left:
            item.unlink()
    assert "child: " in reasons(root)


def as_links(path):
    for name in ("manifest.json", "run.json", "ledger.jsonl"):
        shutil.move(path / name, aside := path.parent / f"aside-{name}")
        (path / name).symlink_to(aside)


def too_large(path):
    for name in ("manifest.json", "run.json", "ledger.jsonl"):
        os.truncate(path / name, 70 * 2**20)


def closed(path):
    for name in ("manifest.json", "run.json", "ledger.jsonl"):
        (path / name).chmod(0)


@pytest.mark.parametrize("hidden", [as_links, too_large, closed])
def test_a_relative_that_cannot_be_read_is_a_gap(two, hidden, as_nobody):
    """What it holds nobody knows: it was taken for a folder of another program, and its rounds were left out."""
    root, child = two
    hidden(child.path)
    with as_nobody():
        assert "child: " in reasons(root)


def test_a_folder_that_nobody_can_look_into_is_a_gap_and_a_row(two, tmp_path, as_nobody, fuaudit):
    root, _ = two
    (tmp_path / "closed").mkdir(mode=0o700)
    (tmp_path / "closed").chmod(0)
    with as_nobody():
        assert "closed: cannot look into" in reasons(root)
        assert account_of(load_run(root.path)).towards["public"].accounts[0].epsilon == epsilon(8)
        code, out, _ = fuaudit("runs", tmp_path)
    assert (code, "closed" in out, "child" in out) == (0, True, True)


@pytest.mark.parametrize("written", [b"\r\n", b" ", b"\n"])
def test_a_ledger_that_names_the_commitment_elsewhere_is_a_gap(two, written):
    """As git writes it with other ends of lines, or with something in front; nothing else may be left of it."""
    root, child = two
    path = child.path / "ledger.jsonl"
    lines = path.read_bytes()
    path.write_bytes(lines.replace(b"\n", written) if written == b"\r\n" else written + lines)
    for name in ("manifest.json", "run.json"):
        (child.path / name).unlink()
    assert "child: " in reasons(root)


@pytest.mark.parametrize("chained", [False, True])
def test_a_relative_that_names_another_commitment_is_a_gap(two, chained):
    """Its hash chain does not follow from that, or its manifest names another ledger."""
    root, child = two
    path, mine = child.path / "ledger.jsonl", root.ledger.events[0]["commitment"]
    if chained:
        events, ledger = read_ledger(child.path).events, Ledger()
        path.unlink()
        for event in (events[0] | {"commitment": "f" * 64}, *events[1:]):
            facts = {name: value for name, value in event.items() if name not in ("event", "previous")}
            ledger = append(child.path, ledger, event["event"], **facts)
    else:
        path.write_bytes(path.read_bytes().replace(mine.encode(), b"f" * 64, 1))
    assert "begins with another commitment" in reasons(root)


@pytest.mark.parametrize("lines", [1, None])
@pytest.mark.parametrize("manifest", [False, True])
def test_a_relative_with_the_ledger_of_another_training_is_a_gap(two, tmp_path, lines, manifest):
    """Its run.json names a parent of which such a ledger does not tell."""
    root, child = two
    other = forget(trained(tmp_path / "away" / "root", 4), "fats", tmp_path / "away" / "other", clients=[3])
    theirs = b"".join((other.path / "ledger.jsonl").read_bytes().splitlines(keepends=True)[:lines])
    (child.path / "ledger.jsonl").write_bytes(theirs)
    at = child.path / "manifest.json"
    if manifest:
        table = json.loads(at.read_text())
        at.write_bytes(pretty_json(table | {"ledger": hashlib.sha256(theirs.splitlines()[-1]).hexdigest()}))
    else:
        at.unlink()
    assert "child: " in reasons(root)


@pytest.mark.parametrize("lines", [1, None])
def test_a_tombstone_with_the_ledger_of_another_training_is_a_gap(two, tmp_path, lines):
    root, child = two
    sibling = forget(root, "retrain", root.path.parent / "sibling", clients=[2])
    last = forget(child, "retrain", root.path.parent / "last", clients=[2])
    prune(last)
    shutil.rmtree(last.path)
    assert account_of(sibling).towards["server"].reasons == ()
    other = trained(tmp_path / "away" / "root", 4)
    theirs = b"".join((other.path / "ledger.jsonl").read_bytes().splitlines(keepends=True)[:lines])
    (child.path / "ledger.jsonl").write_bytes(theirs)
    assert "child: " in reasons(sibling)


def test_runs_beside_a_link_to_the_run_count(two, tmp_path):
    root, child = two
    store = tmp_path / "store"
    store.mkdir()
    shutil.move(child.path, store / "child")
    shutil.copytree(root.path, store / "root")
    sibling = forget(root, "retrain", root.path.parent / "sibling", clients=[2])
    child.path.symlink_to(store / "child")
    assert account_of(load_run(store / "child")).towards["server"].spent.rounds == 12
    assert account_of(load_run(child.path)).towards["server"].spent.rounds == spent(sibling)["server"] == 20


def test_tombstones_that_say_that_they_are_in_a_circle(two):
    """One says that before a prune it was its own parent, of which nothing is left."""
    root, child = two
    pruned = prune(child)[0]
    last = prune(forget(pruned, "retrain", root.path.parent / "last", clients=[2]))[0]
    was_another(pruned.path, json.loads((pruned.path / "tombstone.json").read_text())["info"]["parent"]["digest"])
    shutil.rmtree(root.path)
    for reader in ("server", "public"):
        assert "the parent of child is not at hand" in reasons(last, reader)
    circle = Family("1", (member("0", "1", 1, 8), member("1", "0", 1, 8)))
    assert "the ancestors of 1 go in a circle" in "; ".join(spent_towards_public(circle).reasons)


def test_a_long_lineage_has_an_account(tmp_path):
    """What its draws follow from does not grow with the requests."""
    run = trained(tmp_path / "run", partition={"use": "iid", "clients": 12}, run=TABLES["run"] | {"requests": 10})
    for client in range(10):
        run = forget(run, "noop", tmp_path / f"after-{client}", clients=[client])
    kin = kinship(run)
    by_digest = {digest: one for one in kin.kin for digest in one.digests}
    assert {len(_drawn_from(one, by_digest)) for one in kin.kin} == {0, 64}


def test_a_run_that_was_published_goes_by_the_name_of_any_copy(two, tmp_path):
    root, child = two
    shutil.copytree(child.path, tmp_path / "a-copy")
    assert spent(root, published=["child"]) == spent(root, published=["a-copy"]) == {"server": 12, "public": 12}


def test_a_copy_of_before_a_prune_has_the_children_of_the_pruned_run(two, tmp_path):
    _, child = two
    shutil.copytree(child.path, tmp_path / "before")
    last = forget(prune(child)[0], "retrain", tmp_path / "last", clients=[2])
    for run in (load_run(tmp_path / "before"), last):
        assert spent(run)["server"] == 20


@pytest.mark.parametrize("tells", ["conspar", "gaussian"])
def test_what_no_stage_of_the_config_has_is_no_mechanism(tmp_path, tells):
    """Rows of this run are clipped and have no noise, whatever a ledger tells of them."""
    root = trained(tmp_path / "root", client=[{"use": "clip", "norm": 0.5}])
    child = forget(root, "retrain", tmp_path / "child", clients=[3])
    parameters = {"dim": DIM, "per_client": 2, "alpha": 0.999999} if tells == "conspar" else {"noise": 500.0}
    released = {"kind": "released", "part": "client.0", "mechanism": tells, "parameters": parameters}
    told(root.path, lambda events: [e | ({"told": [released]} if e["event"] == "round" else {}) for e in events])
    account = account_of(load_run(child.path), delta=1e-5)
    for one in account.towards.values():
        assert [(part.epsilon, part.reason) for part in one.accounts] in ([(float("inf"), OTHERWISE)], [])
    assert next(one.where for one in account.unlimited["root"]) == "rounds"


def platform(run, **changes):
    """A ledger that names another platform for what the run computed itself."""
    kept = run.ledger.of_kind("unlearning")[0]["kept_rounds"] if run.is_child else 0

    def course(events):
        return [
            event | changes if event["event"] == "platform" and event["since"] == kept else event for event in events
        ]

    return told(run.path, course)


def test_kept_rounds_that_another_platform_executed_again_may_have_one_noise_over_two_rows(two):
    _, child = two
    platform(child, canary="0" * 64)
    assert "executed what it keeps, round 4, again on another platform" in reasons(child)


def went_on(run, since, **changes):
    """A ledger in which another platform goes on behind a stored round."""

    def course(events):
        (first,) = [event for event in events if event["event"] == "platform" and event["since"] < since][-1:]
        at = next(number for number, event in enumerate(events) if event.get("round", 0) > since)
        return [*events[:at], first | changes | {"since": since}, *events[at:]]

    return told(run.path, course)


def test_rounds_that_were_lost_on_another_platform_may_have_one_noise_over_two_rows(tmp_path):
    """Whoever goes on there executes them again; how many were lost, no ledger tells."""
    root = trained(tmp_path / "root", budget={"epsilon": 9.0, "delta": 0.0})
    python = root.info["versions"] | {"python": "3.99.0"}
    went_on(root, 3, versions=python)
    assert spent(root) == {"server": 8, "public": 8}  # it computes alike
    untold = Provenance().examine(Case(Evidence(load_run(root.path), None, tiny_dataset()), Keyed(bytes(32))))
    assert any("lost in a break, where no model of their platform was stored" in line for line in untold.assumptions)
    assert account_of(load_run(root.path)).towards["public"].accounts[0].epsilon == epsilon(8)
    went_on(load_run(root.path), 6, canary="0" * 64)
    for reader in ("server", "public"):
        assert "root: it was broken off and went on behind round 6 on another platform" in reasons(root, reader)
    found = Provenance().examine(Case(Evidence(load_run(root.path), None, tiny_dataset()), Keyed(bytes(32))))
    assert any("went on behind round 6 on another platform" in line for line in found.assumptions)


def test_it_is_said_of_the_run_that_was_broken_off_and_not_of_its_child(tmp_path):
    root = trained(tmp_path / "root")
    went_on(root, 3, canary="0" * 64)
    child = forget(load_run(root.path), "fats", tmp_path / "child", clients=[3])
    assert [reason.partition(":")[0] for reason in reasons(child).split("; ") if "broken off" in reason] == ["root"]


def test_one_request_carried_out_on_two_platforms_has_one_noise(two, tmp_path):
    root, _ = two
    again = forget(root, "fats", tmp_path / "again", clients=[3])
    assert spent(root)["server"] == 12  # the same bytes are one run
    versions = again.info["versions"] | {"processor": "another"}
    edit(again.path, "run.json", versions=versions)
    platform(again, versions=versions)
    assert "again and child have the same draws" in reasons(root)
    assert account_of(load_run(root.path)).towards["public"].accounts[0].epsilon == epsilon(8)


def test_it_has_one_noise_too_where_the_trainings_differ_in_no_more_than_a_platform(tmp_path):
    """Their digests differ, and their draws do not."""
    root, other = trained(tmp_path / "root"), trained(tmp_path / "other")
    versions = other.info["versions"] | {"python": "3.99.0"}
    edit(other.path, "run.json", versions=versions)
    other = platform(other, versions=versions)
    one, again = (forget(run, "fats", tmp_path / name, clients=[3]) for run, name in ((root, "one"), (other, "again")))
    versions = again.info["versions"] | {"processor": "another"}
    edit(again.path, "run.json", versions=versions)
    platform(again, versions=versions)
    assert "again and one have the same draws" in reasons(one)


@pytest.mark.parametrize("stones", [False, True])
def test_one_request_by_two_versions_of_a_method_has_one_noise_over_other_rows(tmp_path, monkeypatch, stones):
    """What a client's noise follows from is the name of a method, and not what it does: one model minus the other."""
    every = {"run": TABLES["run"] | {"checkpoint_every": 1}, "learner": LEARNS | {"use": "fedavg"}}
    root = with_parts(tmp_path / "root", monkeypatch, **every)
    first = forget(root, "test-changes", tmp_path / "first", clients=[4])
    if stones:
        prune(forget(first, "retrain", tmp_path / "last", clients=[2]))
        assert (tmp_path / "first" / "tombstone.json").exists()
    else:
        assert account_of(root, delta=1e-5).towards["server"].reasons == ()
    monkeypatch.setattr("fuaudit_stages.FROM_THE_START", True)
    away = with_parts(tmp_path / "away" / "root", monkeypatch, **every)
    second = forget(away, "test-changes", tmp_path / "away" / "second", clients=[4])
    shutil.copytree(second.path, tmp_path / "second")
    why = reasons(load_run(tmp_path / "second"))
    assert "first and second have the same draws, and other plans" in why
    if not stones:  # the noise of each round is hundreds of such lengths
        steps = [(run.models[8] - run.models[7]).norm() for run in (first, second)]
        apart = ((first.models[8] - first.models[7]) - (second.models[8] - second.models[7])).norm()
        assert apart < min(steps) / 10


def test_equal_draws_of_two_versions_of_a_model_have_one_noise_over_other_rows(tmp_path, monkeypatch):
    """The version has one number, and the platform's measure does not see what it does to one row."""
    every = {"run": TABLES["run"] | {"checkpoint_every": 1}, "model": {"use": "test-turns"}}
    one = with_parts(tmp_path / "one", monkeypatch, **every)
    again = with_parts(tmp_path / "again", monkeypatch, **every)
    assert again.model.equal(one.model)
    assert account_of(one, delta=1e-5).towards["server"].reasons == ()
    shutil.rmtree(again.path)
    monkeypatch.setattr("fuaudit_stages.TURN", -1.0)
    two = with_parts(tmp_path / "two", monkeypatch, **every)
    assert not two.model.equal(one.model)
    assert "one and two have the same draws, and other models after round " in reasons(one)


def test_what_an_editor_asks_of_clients_has_no_account(tmp_path):
    root = trained(tmp_path / "root")
    edited = forget(root, "finetune", tmp_path / "edited", {"rounds": 1}, clients=[3])
    assert f"edited: {EDITED}" in reasons(edited)
    assert account_of(load_run(root.path)).towards["public"].accounts[0].epsilon == epsilon(8)


def test_where_nothing_is_told_nothing_is_limited(tmp_path):
    root = trained(tmp_path / "root", client=[])
    assert "no run told of a mechanism" in reasons(root)


def test_no_agreement_behind_another_one_has_an_account(tmp_path):
    root = trained(tmp_path / "root", client=[PROPOSES, PROPOSES | {"per_client": 1, "alpha": 0.5}])
    first, second = account_of(root).towards["server"].accounts
    assert (first.part, first.epsilon) == ("client.0", epsilon(8))
    assert (second.part, second.epsilon, second.reason) == ("client.1", float("inf"), BEHIND)


def test_a_byzantine_client_in_front_may_send_the_row_of_another(tmp_path):
    """Each of its copies gets noise of its own: together they tell more of that row than one."""
    noise = {"use": "gaussian-noise", "norm": 0.5, "noise": 2.0}
    clients = [{"use": "mimic", "clients": [1, 2]}, noise]
    root = trained(tmp_path / "root", client=clients, learner=LEARNS | {"use": "fedavg"})
    (one,) = account_of(root, delta=1e-5).towards["server"].accounts
    assert (one.epsilon, "'mimic' sees rows of others as they were before it" in one.reason) == (float("inf"), True)
    behind = trained(tmp_path / "behind", client=clients[::-1], learner=LEARNS | {"use": "fedavg"})
    (one,) = account_of(behind, delta=1e-5, also=()).towards["server"].accounts
    assert one.epsilon < float("inf")


def test_no_account_is_of_clients_who_send_what_they_like(tmp_path):
    """One who proposes her own smallest coordinates draws none of them."""
    attack = {"use": "coordinate-attack", "clients": [4, 5], "proposes": "smallest"}
    root = trained(tmp_path / "root", client=[PROPOSES, attack], budget={"epsilon": 9.0, "delta": 0.0})
    (one,) = account_of(root).towards["server"].accounts
    assert one.epsilon == epsilon(8)
    assert one.statement.unit.endswith(
        "she is in all of these runs, and is none of those who are Byzantine by the config: 4, 5"
    )
    found = Provenance().examine(Case(Evidence(load_run(root.path), None, tiny_dataset()), Keyed(bytes(32))))
    assert any(
        line.endswith("Clients who are Byzantine by the config are not covered: 4, 5.") for line in found.assumptions
    )


def test_noise_limits_nothing_where_rows_are_scaled_by_all_rows(tmp_path):
    """One client less, and the rows of all others are other rows."""
    noise = [{"use": "gaussian-noise", "norm": 0.5, "noise": 2.0}]
    tables = {"client": noise, "learner": LEARNS | {"use": "fedavg"}, "scaling": "standardise"}
    (one,) = account_of(trained(tmp_path / "run", **tables), delta=1e-5).towards["server"].accounts
    assert (one.epsilon, "constants of all rows" in one.reason) == (float("inf"), True)
    with pytest.raises(UsageError, match="scaled by constants of all rows"):
        trained(tmp_path / "refused", **tables, budget={"epsilon": 99.0, "delta": 1e-5})


def test_the_word_of_a_strangers_stage_is_not_taken(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend("tests/stages")
    root = trained(tmp_path / "root", client=[PROPOSES, {"use": "test-clip-and-noise"}])
    sets, noise = account_of(root).towards["server"].accounts
    assert (noise.part, noise.epsilon) == ("client.1", float("inf"))
    assert NO_WORD in noise.reason
    assert "nobody accounts for the mechanism 'gaussian'" in noise.reason
    assert sets.epsilon == epsilon(8)


NOISE = {"use": "gaussian-noise", "norm": 0.5, "noise": 20.0}


def with_parts(folder, monkeypatch, **parts):
    monkeypatch.syspath_prepend("tests/stages")
    return trained(folder, **{"client": [NOISE], "learner": LEARNS | {"use": "fedavg"}} | parts)


def test_a_part_in_front_of_the_noise_and_one_behind_it_can_undo_it(tmp_path, monkeypatch):
    """The one keeps the rows, and the other puts them back: the model is that without noise."""
    chain = [{"use": "test-keeps"}, NOISE, {"use": "test-puts-back"}]
    root = with_parts(tmp_path / "run", monkeypatch, client=chain, budget={"epsilon": 5.0, "delta": 1e-5})
    plain = with_parts(tmp_path / "plain", monkeypatch, client=[])
    assert root.model.equal(plain.model)
    account = account_of(root)
    for reader in account.towards.values():
        (one,) = reader.accounts
        assert (one.epsilon, "'test-keeps' is not fuaudit's own" in one.reason) == (float("inf"), True)
    assert "model.safetensors" in {one.where for one in account.unlimited["run"]}
    found = Provenance().examine(Case(Evidence(load_run(root.path), None, tiny_dataset()), Keyed(bytes(32))))
    assert any("'test-keeps' is not fuaudit's own" in line for line in found.assumptions)


def epsilon_of(run, part):
    (one,) = [one for one in account_of(run, delta=1e-5).towards["server"].accounts if one.part == part]
    return one.epsilon, one.reason


@pytest.mark.parametrize(
    ("part", "parts", "named"),
    [
        ("client.1", {"client": [{"use": "test-one-for-all"}, NOISE]}, ["test-one-for-all"]),
        ("client.1", {"client": [{"use": "test-flip-unseen"}, NOISE]}, ["test-flip-unseen"]),
        ("client.0", {"client": [PROPOSES, {"use": "test-flip-unseen"}]}, ["test-flip-unseen"]),
        ("client.0", {"solver": {"use": "test-momentum"}}, ["test-momentum"]),
        ("client.0", {"model": {"use": "test-keeping"}}, ["test-keeping"]),
        ("client.0", {"adversary": [{"use": "test-other-way", "clients": [1]}]}, ["test-other-way"]),
        (
            "client.0",
            {"partition": {"use": "test-deals", "clients": 4}, "server": [{"use": "test-tells"}, {"use": "mean"}]},
            ["test-deals", "test-tells"],
        ),
    ],
)
def test_no_account_where_parts_of_other_packages_can_undo_it(tmp_path, monkeypatch, part, parts, named):
    found, why = epsilon_of(with_parts(tmp_path / "run", monkeypatch, **parts), part)
    assert (found, [name for name in named if repr(name) in why]) == (float("inf"), named)


@pytest.mark.parametrize(
    ("part", "parts"),
    [
        ("client.0", {"partition": {"use": "test-deals", "clients": 4}}),
        ("client.0", {"server": [{"use": "test-tells"}, {"use": "test-median"}]}),
        ("client.0", {"client": [NOISE, {"use": "test-neighbour"}]}),
        ("client.0", {"client": [NOISE, {"use": "test-flip"}]}),
        ("client.2", {"client": [{"use": "error-feedback"}, {"use": "clip", "norm": 1.0}, NOISE]}),
    ],
)
def test_the_account_stays_where_what_parts_are_given_cannot_undo_it(tmp_path, monkeypatch, part, parts):
    assert epsilon_of(with_parts(tmp_path / "run", monkeypatch, **parts), part)[0] < float("inf")


def test_of_a_child_that_keeps_rounds_no_more_left_than_of_its_parent(tmp_path, monkeypatch):
    """Its model is its parent's, of whose rows all had noise; what an editor makes of it is another matter."""
    root = with_parts(tmp_path / "root", monkeypatch)
    kept = forget(root, "noop", tmp_path / "kept", clients=[3])
    forget(root, "finetune", tmp_path / "edited", {"rounds": 1}, clients=[3])
    left = account_of(root, delta=1e-5).unlimited
    assert kept.ledger.of_kind("round") == []
    assert left["kept"] == left["root"]
    assert {one.where for one in left["edited"]} - {one.where for one in left["root"]} >= {"model.safetensors"}


def test_a_model_is_made_of_rounds_that_are_kept_too(tmp_path, monkeypatch):
    """What a parent released without noise is in the models of a child whose own rounds all had some."""
    root = with_parts(tmp_path / "root", monkeypatch)
    child = forget(root, "fats", tmp_path / "child", clients=[3])
    assert child.ledger.of_kind("round")[0]["round"] > 1
    told(root.path, lambda events: [{n: v for n, v in event.items() if n != "told"} for event in events])
    left = account_of(child, delta=1e-5).unlimited["child"]
    assert "model.safetensors" in {one.where for one in left}


def test_a_law_that_draws_a_client_more_often_than_it_says_is_refused_in_every_round(tmp_path, monkeypatch):
    """An account charges a round once, by its word: here from round 3 on the first client has both places."""
    with pytest.raises(PluginError, match=r"(?s)cohort of round 3, returned .*replacement = True"):
        with_parts(tmp_path / "run", monkeypatch, learner={"use": "test-often-later"})


def test_a_law_may_have_more_places_where_samples_are_gone(tmp_path, monkeypatch):
    """Its places are those of the population that a round is drawn over, and not of that before the request."""
    root = with_parts(tmp_path / "root", monkeypatch, client=[], learner={"use": "test-until-enough", "enough": 7})
    own = root.plan.retained.samples
    gone = Request.of(samples=[ids[0] for ids in own.values()])
    child = unlearn(root, "retrain", gone, tmp_path / "c", data=tiny_dataset(), allow_inexact=True)
    places = child.plan.law.places
    assert places(child.plan.retained) > places(root.original)
    assert max(len(child.plan.cohort(number)) for number in (1, 2, 3)) > places(root.original)


def test_the_most_participations_are_those_of_any_population(tmp_path, monkeypatch):
    """Where samples are gone such a law draws more places, and a client can have all of them."""
    learner = {"use": "test-until-enough", "enough": 7, "replacement": True}
    root = with_parts(tmp_path / "root", monkeypatch, learner=learner, budget={"epsilon": 9.0, "delta": 1e-5})
    places = root.plan.law.places(root.original)
    assert f"up to {places} times" in account_of(root).towards["server"].accounts[0].statement.rounds_covered
    gone = Request.of(samples=[ids[0] for ids in root.plan.retained.samples.values()])
    child = unlearn(root, "retrain", gone, tmp_path / "c", data=tiny_dataset(), allow_inexact=True)
    more = child.plan.law.places(child.plan.retained)
    assert more > places
    for run in (root, child):
        assert f"up to {more} times" in account_of(run).towards["server"].accounts[0].statement.rounds_covered
    found = Provenance().examine(Case(Evidence(load_run(child.path), None, tiny_dataset()), Keyed(bytes(32))))
    assert any("more often in a round than the budget charges" in line for line in found.details)


# what is said


def test_the_statement_says_all_and_what_left_without_noise_is_listed(family, fuaudit):
    code, out, err = fuaudit("budget", "run", family["kept"].path, "--json", "--delta", "1e-3")
    assert code == 0, err
    found = json.loads(out)
    assert found["towards"]["server"]["accounts"][0]["epsilon_total"] == epsilon(30, 1e-3)
    (one,) = found["towards"]["public"]["accounts"]
    stated = one["statement"]
    assert {
        "delta", "unit", "adjacency", "adversary", "trust model", "sampling assumption", "accountant",
        "rounds covered", "outside it", "no data-level guarantee",
    } == set(stated)  # fmt: skip
    assert stated["rounds covered"].startswith("17 rounds of 4 runs: root rounds 1 to 8; between rounds 5")
    assert stated["trust model"].startswith("simulation only: the clients' secrets lie with inside, kept, and whoever")
    assert "runs of this training that lie elsewhere" in stated["outside it"]
    assert set(found["without_noise"]) == set(HAND)
    listed = {row["where"]: row["rounds"] for row in found["without_noise"]["root"]}
    assert listed["metrics.json"] == []
    assert listed["rounds"] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert listed["checkpoints/NNNNNN.safetensors"] == [0, 3, 6, 8]
    assert {"participation.json", "model.safetensors", "clients/NNNNNN.safetensors", "ledger.jsonl"} < set(listed)


def test_the_words_of_the_command(family, fuaudit):
    code, out, _ = fuaudit("budget", "run", family["kept"].path)
    assert code == 0
    for words in (
        "Towards the server: 30 rounds of 6 runs: ",
        "Towards the public: 17 rounds of 4 runs: ",
        "kept none",
        "client.1, conspar (alpha 0.99, dim 12, per_client 2), 30 rounds: epsilon ",
        "Released without noise, in rounds as they were executed:",
        "    rounds 4 to 8: what clients send",
        "A kept round that was executed again, as no model after it was kept, counts only in the run that drew it.",
        "participation.json: the accuracy of the final model on every client's own rows; may go to: auditor",
    ):
        assert words in out, out
    code, out, _ = fuaudit("budget", "run", family["kept"].path, "-q")
    assert [line.partition(":")[0] for line in out.splitlines()] == ["server", "public"]


# the count itself


TELLS = Release("client.0", "conspar", (("alpha", 0.5), ("dim", 9), ("per_client", 2)))


def test_the_account_grows_run_by_run_to_what_is_told(family):
    found = account_of(family["kept"])
    server = found.towards["server"]
    assert [charge.name for charge in server.spent.charges] == ["root", "between", "sibling", "inside", "anew", "kept"]
    assert ends(server.spent.charges) == [8, 12, 17, 22, 30, 30]
    points = growth(server.spent, server.terms, server.accounts[0])
    assert points == [(0, 0.0), *((number, epsilon(number)) for number in range(1, 31))]
    assert points[-1][1] == server.accounts[0].epsilon


def test_of_many_rounds_the_last_of_each_run_is_drawn(monkeypatch, family):
    monkeypatch.setattr("fuaudit.budgets.growth.POINTS", 3)
    found = account_of(family["kept"])
    server = found.towards["server"]
    numbers = [number for number, _ in growth(server.spent, server.terms, server.accounts[0])]
    assert numbers == [0, 8, 10, 12, 17, 20, 22, 30]


def test_a_plot_names_the_runs_and_is_refused_where_there_is_nothing(family, fuaudit, tmp_path):
    def said(run, name):
        return fuaudit("budget", "run", run.path, "--plot", tmp_path / name, "-q")

    with matplotlib.rc_context({"svg.fonttype": "none"}):
        assert said(family["kept"], "curve.svg")[0] == 0
    text = (tmp_path / "curve.svg").read_text()
    drawn = [f">{name}<" for name, rounds in HAND.items() if rounds]
    for words in (">towards the server<", ">towards the public<", "nothing is added by kept<", *drawn):
        assert words in text
    code, _, err = said(family["kept"], "curve.txt")
    assert (code, "--plot writes" in err) == (2, True)
    assert said(family["kept"], "nowhere/curve.svg")[0] == 70
    silent = trained(tmp_path / "alone" / "$plain$", client=[])
    code, _, err = said(silent, "none.svg")
    assert (code, "no account to plot" in err, "no run told of a mechanism" in err) == (2, True, True)
    assert not (tmp_path / "none.svg").exists()


def test_a_reader_without_a_guarantee_is_told_why(two, fuaudit, tmp_path):
    """Towards the server a gap is in the way; the public has an account. Names of folders are no formulas."""
    (two[1].path / "manifest.json").unlink()
    two[1].path.rename(two[1].path.parent / "$gap$")
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        code, _, err = fuaudit("budget", "run", two[0].path, "--plot", tmp_path / "curve.svg", "-q")
    assert code == 0, err
    text = (tmp_path / "curve.svg").read_text()
    assert "no guarantee: $gap$: it was begun and not finished" in re.sub(r"</?tspan[^>]*>", "", text)


def member(name, parent="", first=1, executed=4, told=None, **more):
    rounds = {number: (TELLS,) for number in range(1, executed + 1)} if told is None else told
    return Member(name, frozenset({name}), parent, first, executed, rounds, **more)


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 12)), max_size=7))
def test_by_a_plain_walk(steps):
    """A table of which run drew which round anew, row by row."""
    members = [member("0", executed=9)]
    for number, (parent, first) in enumerate(steps, 1):
        members.append(member(str(number), str(parent % number), first, 9))
    whole = Family("0", tuple(members))
    counted = {"0": 9}
    for number, (_, first) in enumerate(steps, 1):
        counted[str(number)] = sum(1 for round_number in range(1, 10) if round_number >= first)
    server = spent_towards_server(whole)
    assert {charge.name: len(charge.rounds) for charge in server.charges} == counted
    assert (server.rounds, server.reasons) == (sum(counted.values()), ())
    last = str(len(steps))
    path = {last}
    while (parent := whole.named(min(path, key=int)).parent) and parent not in path:
        path.add(parent)
    assert spent_towards_public(whole, [last]).rounds == sum(counted[name] for name in path | {"0"})


@pytest.mark.parametrize(("first", "rounds"), [(2, range(2, 9)), (5, range(5, 9)), (7, range(5, 9)), (99, range(5, 9))])
def test_what_the_parent_had_not_executed_is_new_whatever_changed_first(first, rounds):
    """A method may keep draws of rounds that nobody executed: then nothing of them was released before."""
    stopped = Family("1", (member("0"), member("1", "0", first, 8)))
    assert spent_towards_public(stopped).charges[1].rounds == rounds


def test_what_is_told_twice_in_a_round_or_never_is_no_one_release():
    terms = Terms(0.0, 1, by_config=frozenset({TELLS}))
    twice = Family("0", (member("0", told={1: (TELLS, TELLS), 2: (TELLS,), 3: (TELLS,), 4: (TELLS,)}),))
    (one,) = accounts(spent_towards_server(twice), terms, "reads")
    assert (one.epsilon, one.reason) == (float("inf"), TWICE)
    silent = Family("0", (member("0", told={1: (TELLS,), 3: (TELLS,)}),))
    (one,) = accounts(spent_towards_server(silent), terms, "reads")
    assert (one.rounds, one.silent) == (4, 2)
    assert one.epsilon == account(ConSpar(9, 2, Fraction(1, 2)), 4).total
    assert "2 rounds told of nothing and count too" in one.statement.rounds_covered


@pytest.mark.parametrize(
    "parameters",
    [
        {"dim": DIM, "per_client": 2, "alpha": "1e-999999999"},
        {"dim": DIM, "per_client": 2, "alpha": [0.5]},
        {"dim": None, "per_client": 2, "alpha": 0.5},
        {"dim": True, "per_client": 2, "alpha": 0.5},
        {"dim": 10**13, "per_client": 2, "alpha": 0.5},
        {"dim": DIM, "per_client": {"two": 2}, "alpha": 0.5},
        {},
    ],
)
def test_what_a_ledger_may_tell_and_nobody_can_account_for_is_no_guarantee(two, parameters):
    root, child = two

    def other(one):
        return one | ({"parameters": parameters} if one["kind"] == "released" else {})

    def course(events):
        return [
            event | ({"told": list(map(other, event["told"]))} if event["event"] == "round" else {}) for event in events
        ]

    told(child.path, course)
    (one,) = account_of(load_run(root.path)).towards["server"].accounts
    assert (one.epsilon, OTHERWISE in one.reason) == (float("inf"), True)
    assert len(one.reason) < 1000
    assert account_of(load_run(root.path)).towards["public"].accounts[0].epsilon == epsilon(8)
    told(root.path, course)
    (one,) = account_of(load_run(root.path)).towards["public"].accounts
    assert (one.epsilon, OTHERWISE in one.reason) == (float("inf"), True)
