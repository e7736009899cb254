"""Adversaries: rows are turned after they were dealt and before anything is committed to, and nowhere else."""

import json
import random
import shutil
from dataclasses import dataclass, replace

import pytest
import torch
from click.testing import CliRunner
from fuaudit_plugins.label_flip import LabelFlip
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from tests_support import AUDIT_KEY, changed, of_the_run, secret

from fuaudit import registry, train, unlearn, verify
from fuaudit.cli.commands import cli
from fuaudit.config import resolve
from fuaudit.data.adversaries import turned
from fuaudit.data.dataset import Dataset, padded, retained_rows
from fuaudit.errors import EvidenceError, PluginError, UsageError
from fuaudit.formats.files import write_bytes
from fuaudit.plans import Population, Request
from fuaudit.reporting.contents import read_contents
from fuaudit.reporting.markdown import render
from fuaudit.runs.receipts import check_dataset, read_receipt, receipt_of
from fuaudit.runs.run import load_run
from fuaudit.testing import check_adversary
from fuaudit.testing.tiny import tiny_config, tiny_dataset
from fuaudit.verification.case import Case
from fuaudit.verification.gather import gather
from fuaudit.verification.given import Given
from fuaudit.workflow.prune import prune
from fuaudit.workflow.resume import resume
from fuaudit.workflow.writer import RunWriter

BAD, HONEST = 2, 1
FLIP = {"use": "label-flip", "clients": [BAD]}
FINE = dict.fromkeys(("integrity", "replay", "provenance", "lineage"), "PASS")


def table(*adversaries, **changes):
    return tiny_config(adversary=list(adversaries), **changes)


def verdicts(run, data, **given):
    result = verify(run, of_the_run(), data=data, key=AUDIT_KEY, save=False, **given)
    return {finding.audit: str(finding.verdict) for finding in result.findings}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return train(table(FLIP), tmp_path_factory.mktemp("flipped") / "run", data=tiny_dataset(), secret=secret(1)).path


@pytest.fixture
def flipped(made, tmp_path):
    """A copy, whose children may be pruned."""
    return load_run(shutil.copytree(made, tmp_path / "flipped"))


# what is turned


@given(st.sets(st.integers(0, 3)), st.integers(0, 2**32))
@settings(deadline=None, max_examples=40)
def test_rows_of_named_clients_are_turned_and_no_others(named, seed):
    data, draws = tiny_dataset(), random.Random(seed)
    owner = {row: draws.randrange(4) for row in range(data.size) if draws.random() < 0.9}
    found = turned(data, [{"use": "label-flip", "clients": sorted(named)}], owner)
    for row in range(data.size):
        before = int(data.targets[row])
        assert int(found.targets[row]) == (data.classes - 1 - before if owner.get(row) in named else before)
    assert torch.equal(found.inputs, data.inputs)
    assert torch.equal(found.test_targets, data.test_targets)
    assert torch.equal(found.labels, data.targets)
    assert torch.equal(data.targets, tiny_dataset().targets)


@given(st.sets(st.integers(0, 23)))
@settings(deadline=None, max_examples=40)
def test_a_row_is_turned_alike_whichever_others_are_at_hand(gone):
    data, owner = tiny_dataset(), dict.fromkeys(range(24), BAD)
    whole = turned(data, [FLIP], owner)
    lacking = replace(data, absent=frozenset(gone) if len(gone) < 24 else frozenset())
    found = turned(lacking, [FLIP], owner)
    left = [row for row in range(24) if row not in lacking.absent]
    assert torch.equal(found.targets[left], whole.targets[left])
    assert torch.equal(found.targets[sorted(lacking.absent)], data.targets[sorted(lacking.absent)])


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=3, unique_by=lambda pair: pair[0]))
@settings(deadline=None)
def test_pairs_are_turned_once(pairs):
    """Also where one names what another makes: 0 to 1 and 1 to 2 are no way from 0 to 2."""
    flip = LabelFlip((0,), tuple(sorted(pairs)))
    expected = dict(pairs) if pairs else {0: 2, 2: 0}
    assert [flip.turn(torch.zeros(3), target, 3)[1] for target in range(3)] == [expected.get(t, t) for t in range(3)]


def test_adversaries_follow_each_other():
    first, second = ({"use": "label-flip", "clients": [0], "pairs": [pair]} for pair in ([0, 1], [1, 2]))
    found = turned(tiny_dataset(), [first, second], dict.fromkeys(range(24), 0))
    assert found.targets.unique().tolist() == [2]


@pytest.mark.parametrize("pairs", [((0, 1), (0, 2)), ((-1, 0),), ((1, 0), (0, 1))])
def test_pairs_must_say_what_becomes_of_a_class(pairs):
    with pytest.raises(UsageError, match="label-flip needs pairs of classes"):
        LabelFlip((0,), pairs)


def test_a_class_that_there_is_not(tmp_path):
    flip = FLIP | {"pairs": [[0, 3]]}
    with pytest.raises(UsageError, match="names class 3, but classes are 0 to 2"):
        train(table(flip), tmp_path / "run", data=tiny_dataset(), secret=secret(1))


def test_rows_are_turned_once():
    once = turned(tiny_dataset(), [FLIP], {})
    with pytest.raises(UsageError, match="turned by adversaries before"):
        turned(once, [FLIP], {})
    assert turned(once, [], {}) is once


def test_labels_of_erased_rows_are_overwritten_as_well():
    once = turned(tiny_dataset(), [FLIP], dict.fromkeys(range(24), BAD))
    assert padded(once, 30).labels[24:].tolist() == [0] * 6
    kept = retained_rows(once, Population({0: (0, 1)}))
    assert kept.dealt_by is None
    assert kept.labels[2:].unique().tolist() == [0]


# configs


def test_the_config_of_others_keeps_its_bytes():
    plain = resolve(tiny_config()).tables()
    assert "adversary" not in plain
    assert resolve(table()).tables() == plain
    whole = resolve(table(FLIP))
    assert whole.tables()["adversary"] == [FLIP | {"pairs": []}]
    assert ("adversaries", "label-flip") in whole.plugins


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (FLIP, r"adversary must be a list of tables, \[\[adversary\]\], not one table"),
        ([{"use": "label-flip"}], "needs the option 'clients'"),
        ([{"use": "alie", "clients": [0]}], r"Byzantine client 'alie' does not belong under \[\[adversary\]\]"),
        ([{"use": "flip", "clients": [0]}], "there is no adversary called 'flip'"),
        ([FLIP | {"pairs": [[0, 1, 2]]}], "pairs = .* is not"),
    ],
)
def test_a_wrong_table_is_refused(given, said):
    with pytest.raises(UsageError, match=said):
        resolve(tiny_config(adversary=given))


def test_an_adversary_is_no_stage():
    with pytest.raises(UsageError, match=r"adversary 'label-flip' does not belong under \[\[client\]\]"):
        resolve(tiny_config(client=[FLIP]))


def test_a_client_that_there_is_not(tmp_path):
    with pytest.raises(UsageError, match=r"\[\[adversary\]\] use = 'label-flip' names client 7"):
        train(table(FLIP | {"clients": [7]}), tmp_path / "run", data=tiny_dataset(), secret=secret(1))


# from the commitment to a prune


def test_what_is_turned_is_what_is_committed_to(flipped, tmp_path):
    """The same run as of data that somebody turned before: contents, models and all, but for the config."""
    owner = flipped.original.owner
    by_hand = replace(turned(tiny_dataset(), [FLIP], owner), dealt_by=None)
    plain = train(tiny_config(), tmp_path / "plain", data=tiny_dataset(), secret=secret(1))
    assert plain.original == flipped.original  # dealt by the true labels
    assert plain.contents.root != flipped.contents.root
    assert not flipped.differences(by_hand)
    assert flipped.differences(tiny_dataset()).rows.keys() == {BAD}
    assert not torch.equal(plain.model, flipped.model)
    # a data set that is dealt by other labels may come out otherwise; iid does not look at them
    hand = train(tiny_config(), tmp_path / "hand", data=by_hand, secret=secret(1))
    assert hand.contents.root == flipped.contents.root
    assert torch.equal(hand.model, flipped.model)


@pytest.mark.parametrize("method", ["fats", "retrain"])
@pytest.mark.parametrize("gone", [BAD, HONEST])
def test_replayed_unlearned_pruned(flipped, tmp_path, method, gone):
    data = tiny_dataset()
    assert verdicts(flipped, data) == FINE
    child = unlearn(flipped, method, Request.of([gone]), tmp_path / "child", data=data, allow_inexact=True)
    parent = {"parent": flipped.path}
    assert verdicts(child, data, **parent) == FINE
    retained = replace(data, absent=frozenset(flipped.original.samples[gone]))
    assert verdicts(child, retained, **parent) == FINE
    left = child.model
    pruned, _ = prune(child, allow_orphans=True)
    assert verdicts(pruned, data) == FINE
    assert torch.equal(pruned.model, left)
    again = unlearn(pruned, "retrain", Request.of([0]), tmp_path / "again", data=data)
    assert verdicts(again, data, parent=pruned.path) == FINE


def test_a_partition_by_labels_is_dealt_by_the_true_ones(tmp_path):
    """An audit deals it again: from turned labels it would come out otherwise, and convict an honest run."""
    data = tiny_dataset()
    by_class = table(FLIP, partition={"use": "dirichlet-by-class", "clients": 4, "concentration": 0.3})
    run = train(by_class, tmp_path / "run", data=data, secret=secret(2))
    assert verdicts(run, data) == FINE
    case = Case(gather(run, Given({"data": data})), bytes(32))
    wrong = changed(case, dataset=replace(case.dataset, dealt_by=None))
    audit = registry.build("audits", "provenance")
    assert str(audit.examine(case).verdict) == "PASS"
    assert str(audit.examine(wrong).verdict) == "FAIL"


def test_a_run_that_was_trained_on_true_rows_is_refuted(flipped, tmp_path):
    """Its config says that rows were turned, and they were not: from the rows at hand other models come out."""
    data = tiny_dataset()
    honest = replace(data, targets=data.targets.clone())
    for row in flipped.original.samples[BAD]:  # turned twice is not at all, so this run saw true labels
        honest.targets[row] = data.classes - 1 - data.targets[row]
    run = train(table(FLIP), tmp_path / "run", data=honest, secret=secret(1))
    assert run.original == flipped.original
    assert not run.differences(data)
    found = verdicts(run, data)
    assert found["replay"] == "FAIL"


def test_interrupted_and_resumed(flipped, tmp_path, monkeypatch):
    whole, path = RunWriter.checkpoint, tmp_path / "run"

    def killed(self, number, *rest):
        if number == 2:
            raise KeyboardInterrupt
        whole(self, number, *rest)

    monkeypatch.setattr(RunWriter, "checkpoint", killed)
    with pytest.raises(KeyboardInterrupt):
        train(table(FLIP), path, data=tiny_dataset(), secret=secret(1))
    monkeypatch.undo()
    assert resume(path, tiny_dataset()).digest == flipped.digest


# receipts


def test_a_receipt_is_about_the_turned_rows(flipped, tmp_path):
    data = tiny_dataset()
    for client in (BAD, HONEST):
        made = receipt_of(flipped, client)
        assert bool(made.adversaries) == (client == BAD)
        rows = list(flipped.original.samples[client])
        own = Dataset(data.inputs[rows], data.targets[rows], data.test_inputs, data.test_targets, data.classes)
        assert not check_dataset(made, own).missing
        other = replace(own, targets=(own.targets + 1) % 3)
        assert len(check_dataset(made, other).missing) == len(rows)


def test_after_a_prune_a_receipt_says_whose_a_row_was(flipped, tmp_path):
    """Nothing else does, so only with it are the rows at hand turned, and found to be hers."""
    data = tiny_dataset()
    child = unlearn(flipped, "retrain", Request.of([BAD]), tmp_path / "child", data=data)
    path = tmp_path / "receipt.json"
    write_bytes(path, receipt_of(flipped, BAD).content())
    pruned, _ = prune(child, allow_orphans=True)
    without = gather(pruned, Given({"data": data}))
    opened = gather(pruned, Given({"data": data, "receipts": [path]}))
    assert not without.at_hand.places
    assert {opened.at_hand.places[row][0] for row in flipped.original.samples[BAD]} == {BAD}
    assert verdicts(pruned, data, receipts=[path]) == FINE


def test_an_id_that_stands_in_for_an_erased_one_is_nobodys(flipped, tmp_path):
    """After a prune it stands among her rows, and a row of somebody else lies under it."""
    data, original = tiny_dataset(), flipped.original.samples
    gone = {*original[BAD], *original[HONEST]}
    child = unlearn(flipped, "retrain", Request.of([BAD, HONEST]), tmp_path / "child", data=data)
    pruned, _ = prune(child, allow_orphans=True)
    assert pruned.stand_ins == gone
    assert pruned.original.samples[BAD] != original[BAD]
    found = gather(pruned, Given({"data": data})).rows
    assert torch.equal(found.targets[sorted(gone)], data.targets[sorted(gone)])
    assert verdicts(pruned, data) == FINE


def test_a_receipt_with_odd_adversaries_is_none(flipped, tmp_path):
    made = receipt_of(flipped, BAD).table()
    made["config"] = made["config"].replace("[[adversary]]", "[adversary]")
    path = tmp_path / "receipt.json"
    path.write_text(json.dumps(made, indent=1, sort_keys=True) + "\n")
    with pytest.raises(EvidenceError, match="this is no receipt"):
        read_receipt(path)


def test_a_client_is_told_that_the_config_calls_her_an_adversary(tmp_path):
    """Whoever runs the federation can name anybody: she must not read "as committed" of rows that were never hers."""
    folder = tmp_path / "data"
    data = tiny_dataset()
    tensors = {"inputs": data.inputs, "targets": data.targets}
    tensors |= {"test_inputs": data.test_inputs, "test_targets": data.test_targets}
    folder.mkdir()
    save_file(tensors, folder / "data.safetensors")
    run = train(table(FLIP), tmp_path / "run", data=folder, secret=secret(1))
    for client, code, said in ((BAD, 3, "the config names client 2 as an adversary"), (HONEST, 0, "as committed: ")):
        path = tmp_path / f"{client}.json"
        write_bytes(path, receipt_of(run, client).content())
        asked = ["receipt", "--check", str(path), "--data", str(folder), "--commitment", run.commitment]
        done = CliRunner().invoke(cli, asked)
        assert (done.exit_code, said in done.output) == (code, True), done.output
        assert ("'label-flip' turned rows of hers before the commitment" in done.output) == (client == BAD)
        assert len(json.loads(CliRunner().invoke(cli, [*asked, "--json"]).output)["adversaries"]) == (client == BAD)
    assert verdicts(run, folder) == FINE


# what is said


def test_what_show_and_reports_say(flipped, tmp_path):
    said = CliRunner().invoke(cli, ["show", str(flipped.path)]).output
    assert "adversary     label-flip (client 2): their rows were turned before the commitment" in said
    told = json.loads(CliRunner().invoke(cli, ["show", str(flipped.path), "--json"]).output)
    assert told["adversaries"] == ["label-flip (client 2)"]
    result = verify(flipped, of_the_run(), data=tiny_dataset(), key=AUDIT_KEY, save=False)
    contents = read_contents(result.as_json())
    assert contents.adversaries == ("label-flip (client 2)",)
    assert "They turned rows of theirs before the commitment" in render(contents)


# the contract


@pytest.mark.parametrize("name", sorted(registry.entries("adversaries")))
def test_registered_adversaries(name):
    check_adversary(registry.build("adversaries", {"use": name, "clients": [0]}))


COUNT = [0]


@dataclass(frozen=True)
class Wrong:
    """An adversary that breaks its contract in one way."""

    clients: tuple[int, ...] = (0,)
    how: str = "drawn"

    def turn(self, inputs, target, classes):
        COUNT[0] += 1
        return {
            "drawn": lambda: (inputs, random.randrange(classes)),
            "counted": lambda: (inputs, COUNT[0] % classes),
            "shape": lambda: (inputs[1:], target),
            "dtype": lambda: (inputs.double(), target),
            "class": lambda: (inputs, classes),
            "tensor": lambda: (inputs, torch.tensor(target)),
            "nan": lambda: (inputs * float("nan"), target),
            "nothing": lambda: None,
            "idle": lambda: (inputs, target),
            "fives": lambda: (inputs, 3 if target == 5 else target),
        }[self.how]()


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("drawn", "a global generator of random numbers was used"),
        ("counted", "it makes another row when it is asked again"),
        ("shape", "inputs that are not torch.float32 of shape"),
        ("dtype", "inputs that are not torch.float32 of shape"),
        ("class", "the target 3, not a whole number from 0 to 2"),
        ("tensor", "the target tensor"),
        ("nan", "inputs that are NaN"),
        ("nothing", "NoneType, not inputs and a target"),
        ("idle", "it leaves all of 24 rows, of classes 0 to 2, as they were: .* give it rows that it turns"),
    ],
)
def test_wrong_ones_are_caught(how, said):
    before = random.getstate()
    with pytest.raises(AssertionError, match=said):
        check_adversary(Wrong(how=how))
    random.setstate(before)


def test_a_wrong_row_stops_training(monkeypatch):
    monkeypatch.setattr("fuaudit.data.adversaries.build", lambda kind, table: Wrong(how="class"))
    with pytest.raises(PluginError, match="made of row 0 the target 3"):
        turned(tiny_dataset(), [FLIP], {0: 0})


def test_one_that_turns_other_classes_is_tried_on_rows_of_these():
    targeted = Wrong(how="fives")
    with pytest.raises(AssertionError, match=r"check_adversary\(adversary, dataset=...\)"):
        check_adversary(targeted)
    rows = tiny_dataset()
    check_adversary(targeted, replace(rows, targets=rows.targets + 3, test_targets=rows.test_targets + 3, classes=6))


@pytest.mark.parametrize("how", ["drawn", "counted"])
def test_what_is_no_function_of_a_row_is_refused_before_training(how, tmp_path, monkeypatch):
    """Else rows are committed to that nobody can make again, and every request and audit blames the data."""
    monkeypatch.setattr(random, "randrange", random.Random(1).randrange)
    monkeypatch.setattr("fuaudit.data.adversaries.build", lambda kind, table: Wrong(how=how))
    with pytest.raises(
        PluginError, match=r"adversary 'label-flip' made another row of row \d+ when it was asked again"
    ):
        train(table({"use": "label-flip", "clients": [0]}), tmp_path / "run", data=tiny_dataset(), secret=secret(1))
    assert not (tmp_path / "run").exists()


def test_rows_that_differ_at_clients_of_an_adversary_alone_name_it(flipped, tmp_path, monkeypatch):
    """Another process may make other rows, as with Python's salted hashes: no training can see that."""
    monkeypatch.setattr("fuaudit_plugins.label_flip.LabelFlip.turn", lambda self, inputs, target, classes: (inputs, 0))
    told = "All of these rows are turned by the adversary 'label-flip'"
    with pytest.raises(UsageError) as caught:
        unlearn(flipped, "retrain", Request.of(clients=[0]), tmp_path / "child", data=tiny_dataset())
    assert told in caught.value.hint
    found = verify(flipped, of_the_run(), data=tiny_dataset(), key=AUDIT_KEY, save=False).findings
    replayed = next(one for one in found if one.audit == "replay")
    assert replayed.verdict == "FAIL"
    assert any(told in detail for detail in replayed.details)
    moved = replace(tiny_dataset(), inputs=tiny_dataset().inputs + 1)
    with pytest.raises(UsageError) as caught:
        unlearn(flipped, "retrain", Request.of(clients=[0]), tmp_path / "child", data=moved)
    assert told not in caught.value.hint


@dataclass(frozen=True)
class Uphill:
    """Turns rows by a gradient, and leaves it on."""

    clients: tuple[int, ...] = (0,)

    def turn(self, inputs, target, classes):
        return inputs.requires_grad_() * 2, target


def test_rows_keep_no_gradient(monkeypatch):
    monkeypatch.setattr("fuaudit.data.adversaries.build", lambda kind, table: Uphill())
    found = turned(tiny_dataset(), [FLIP], {0: 0, 1: 0})
    assert not found.inputs.requires_grad
    assert found.inputs[1].equal(tiny_dataset().inputs[1] * 2)


def test_clients_must_be_named():
    with pytest.raises(AssertionError, match="it must name its clients"):
        check_adversary(Wrong(clients=("a",), how="idle"))
