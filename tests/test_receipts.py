"""Receipts: made of a run, checked with the rows they are about, and used to look for those rows once more."""

import json
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from tests_support import sealed

from fuaudit import registry, train, unlearn, verify
from fuaudit.commitments.tree import root_over, tree_path, tree_root
from fuaudit.data.dataset import Dataset, erased_input
from fuaudit.draws import Keyed
from fuaudit.errors import EvidenceError, FuauditError, UsageError
from fuaudit.formats.forms import pretty_json, tensor_bytes
from fuaudit.runs.names import request_of
from fuaudit.runs.receipts import check, read_receipt, receipt_of
from fuaudit.runs.run import load_run
from fuaudit.verification.case import Case
from fuaudit.verification.evidence import Evidence
from fuaudit.workflow.prune import prune

SECRET = bytes(range(32))
TABLES = {
    "data": {"use": "tensors", "classes": 2},
    "partition": {"use": "by-owner"},
    "model": {"use": "linear"},
    "learner": {"use": "fats", "rounds": 3, "cohort": 2, "steps": 1, "batch": 2, "step_size": 0.1},
    "run": {"checkpoint_every": 1, "engine": "reference", "device": "cpu"},
}
FAILING = {"lineage": {"equal": "fail"}}
NAMES = ("ann", "ben", "cay", "dan", "eve")


def data():
    rows = torch.arange(60, dtype=torch.float32).reshape(20, 3) / 60
    owners = torch.arange(5).repeat_interleave(4)
    return Dataset(rows, torch.arange(20) % 2, rows[:4] + 1, torch.arange(4) % 2, 2, owners=owners, owner_names=NAMES)


def hers(client=1):
    """Ben's rows in his own folder's form: ids, inputs and targets."""
    ids = torch.arange(4) + 4 * client
    return {"ids": ids, "inputs": data().inputs[ids].clone(), "targets": data().targets[ids].clone()}


def folder(path, tensors):
    path.mkdir(exist_ok=True)
    tests = {"test_inputs": data().test_inputs.clone(), "test_targets": data().test_targets.clone()}
    save_file(tensors | tests, path / "data.safetensors")
    return path


@pytest.fixture
def run(tmp_path):
    return train(TABLES, tmp_path / "run", data=data(), secret=SECRET)


@pytest.fixture
def receipt(run):
    return receipt_of(run, run.client("ben"))


@given(st.integers(1, 40), st.data())
@settings(max_examples=60, deadline=None)
def test_paths_lead_to_the_root_and_nowhere_else(count, choose):
    digests = [bytes([n]) * 32 for n in range(count)]
    place = choose.draw(st.integers(0, count - 1))
    path = tree_path(digests, place)
    assert root_over(digests[place], place, count, path) == tree_root(digests)
    other = choose.draw(st.integers(0, count - 1))
    if other != place:
        with_other = [b"x" * 32 if n == other else d for n, d in enumerate(digests)]
        assert root_over(digests[place], place, count, path) != tree_root(with_other)
    for wrong in (path[:-1], [*path, bytes(32)]):
        if len(wrong) != len(path):
            with pytest.raises(EvidenceError, match="too"):
                root_over(digests[place], place, count, wrong)


def test_the_way_of_a_client_and_of_an_officer(fuaudit, tmp_path, run):
    file, commitment = tmp_path / "ben.json", run.commitment
    code, out, _ = fuaudit("receipt", run.path, "--client", "ben", "--out", file)
    assert code == 0
    assert "client 1 (ben), 4 rows" in out
    assert f"\nfuaudit receipt --check {file} --commitment HEX (and --data ROOT, where" in out
    assert file.stat().st_mode & 0o077 == 0
    assert read_receipt(file) == receipt_of(run, 1)
    root = folder(tmp_path / "hers", hers())
    code, out, _ = fuaudit("receipt", "--check", file, "--data", root, "--commitment", commitment)
    assert (code, "as committed: 4 of 4 rows of 'ben'" in out) == (0, True)
    code, out, _ = fuaudit("receipt", "--check", file, "--data", root, "--commitment", "0" * 64)
    assert (code, out.startswith("not as committed: the receipt is of another commitment")) == (1, True)
    code, out, _ = fuaudit("receipt", "--check", file, "--data", folder(tmp_path / "other", hers(2)))
    assert (code, "0 of 4 rows" in out, "4 rows, by ids of the training" in out) == (1, True, True)
    assert "4 rows at hand are in no leaf of the receipt: rows that were kept for tests are in none" in out
    (tmp_path / "mine.csv").write_text("x,y\n")
    code, _, err = fuaudit("receipt", "--check", file, "--data", tmp_path / "mine.csv")
    assert (code, f"fuaudit import {tmp_path / 'mine.csv'} --like SENT" in err) == (2, True)
    code, out, _ = fuaudit("receipt", "--check", file, "--data", root)
    assert code == 3
    assert out.startswith("consistent with the receipt's own commitment; not compared with one of yours: 4 of 4 rows")
    for content in ("", "[]", "no JSON at all", "{}\n", '{"format": 1}\n'):
        (tmp_path / "none.json").write_text(content)
        code, _, err = fuaudit("receipt", "--check", tmp_path / "none.json", "--data", root)
        assert (code, "this is no receipt" in err) == (4, True)
    assert fuaudit("receipt", run.path, "--client", "ben", "--out", file)[0] == 2
    assert fuaudit("receipt", run.path, "--client", "ben", "--out", tmp_path / "mistyped/ben.json")[0] == 2
    assert not (tmp_path / "mistyped").exists()
    assert fuaudit("receipt", run.path)[0] == 2
    code, _, err = fuaudit("receipt", run.path, "--client", "ben", "--data", root)
    assert (code, "a receipt is made from RUN alone: --data is for --check" in err) == (2, True)
    assert f"Leave it out: fuaudit receipt {run.path} --client ben" in err
    assert fuaudit("receipt", "--check", file, run.path)[0] == 2


def test_a_check_has_a_verdict_in_json_too(fuaudit, tmp_path, run):
    """The exit code alone said whether the rows were compared with a commitment of hers."""
    file, root, other = tmp_path / "ben.json", folder(tmp_path / "hers", hers()), folder(tmp_path / "other", hers(2))
    fuaudit("receipt", run.path, "--client", "ben", "--out", file)
    own = ("--commitment", run.commitment)
    for data, compared, expected in (
        (root, own, (0, "PASS")),
        (root, (), (3, "INCONCLUSIVE")),
        (other, own, (1, "FAIL")),
        (root, ("--commitment", "0" * 64), (1, "FAIL")),
    ):
        code, out, _ = fuaudit("receipt", "--check", file, "--data", data, *compared, "--json")
        assert (code, json.loads(out)["verdict"]) == expected


def test_a_receipt_that_another_program_wrote_anew_is_refused_as_what_it_is(fuaudit, tmp_path, run):
    file = tmp_path / "ben.json"
    fuaudit("receipt", run.path, "--client", "ben", "--out", file)
    file.write_text(json.dumps(json.loads(file.read_text())))
    code, _, err = fuaudit("receipt", "--check", file)
    assert code == 4
    assert f"this is no receipt: {file} is not in the form in which fuaudit writes it: another program" in err
    assert "a run is written" not in err


def test_what_is_no_commitment_is_told_with_where_to_find_one(fuaudit, run):
    code, _, err = fuaudit("receipt", run.path, "--client", "ben", "--commitment", "12")
    assert code == 2
    assert "as it was published before training; that of a run is told by: fuaudit show RUN" in err


def test_rows_are_found_in_any_order_and_under_other_ids(receipt):
    rows = hers()
    turned = check(receipt, rows["inputs"].flip(0), rows["targets"].flip(0))
    assert (turned.missing, turned.surplus) == ((), 0)
    changed = rows["inputs"].clone()
    changed[2, 1] += 1e-7
    assert check(receipt, changed, rows["targets"]).missing == (6,)
    assert check(receipt, rows["inputs"], 1 - rows["targets"]).missing == (4, 5, 6, 7)
    assert check(receipt, rows["inputs"].double(), rows["targets"]).missing == (4, 5, 6, 7)


def test_a_receipt_holds_for_children_and_not_after_a_prune(run, receipt, tmp_path):
    child = unlearn(run, "fats", request_of(run, ["ben"]), tmp_path / "child", data=data())
    assert [row.leaf for row in receipt_of(child, 1).rows] == [row.leaf for row in receipt.rows]
    pruned, _ = prune(child)
    with pytest.raises(UsageError, match="dropped by a prune"):
        receipt_of(pruned, 1)
    assert receipt_of(pruned, 2).name == "cay"


def test_a_prune_names_the_receipts_beside_it_that_open_what_it_dropped(fuaudit, run, tmp_path):
    for name in ("ben", "cay"):
        assert fuaudit("receipt", run.path, "--client", name)[0] == 0
    other = train(TABLES, tmp_path / "other", data=data(), secret=bytes(32))
    written(tmp_path / "other.json", receipt_of(other, 1))
    (tmp_path / "torn.json").write_text("{")
    for method in ("noop", "fats"):
        unlearn(run, method, request_of(run, ["ben"]), tmp_path / method, data=data())
    code, out, err = fuaudit("prune", tmp_path / "fats", "--yes", "--allow-orphans")
    assert code == 0, err
    assert [line for line in out.splitlines() if " is a receipt " in line] == [
        f"left alone: {tmp_path / 'receipt-run-1.json'} is a receipt that opens erased rows; remove your copies of it"
    ]
    assert "without their parent now: noop" in out
    (tmp_path / "receipt-run-1.json").unlink()
    assert json.loads(fuaudit("prune", tmp_path / "fats", "--yes", "--json")[1])["receipts"] == []


def test_every_change_of_a_receipt_is_noticed(receipt, tmp_path):
    """Each field spoiled, each digit of a digest exchanged: exit 4 in words, never a receipt."""
    table = receipt.table()
    spoiled = [{**table, name: value} for name in table for value in (None, 7, "x", [], {}, -1, 2**60)]
    spoiled += [{k: v for k, v in table.items() if k != name} for name in table] + [table | {"more": 1}]
    spoiled += [{**table, "rows": table["rows"][::-1]}, {**table, "rows": table["rows"][:-1]}]
    spoiled += [{**table, "path": table["path"][:-1]}, {**table, "path": [*table["path"], "0" * 64]}]
    spoiled += [{**table, "name": "eve"}, {**table, "client": 2}, {**table, "place": 2}, {**table, "tests": 5}]
    for name in ("commitment", "salt", "test_root"):
        spoiled.append({**table, name: table[name][:-1] + ("0" if table[name][-1] != "0" else "1")})
    for other in spoiled:
        if other == table:
            continue
        (tmp_path / "receipt.json").write_bytes(pretty_json(other))
        with pytest.raises(EvidenceError):
            read_receipt(tmp_path / "receipt.json")
    (tmp_path / "receipt.json").write_bytes(pretty_json(table))
    assert read_receipt(tmp_path / "receipt.json") == receipt


def with_copy(labels=False, change=0.0):
    """Dan holds a copy of one of Ben's rows before training begins."""
    given = data()
    inputs, targets = given.inputs.clone(), given.targets.clone()
    inputs[13] = inputs[6] + change
    targets[13] = 1 - targets[6] if labels else targets[6]
    return replace(given, inputs=inputs, targets=targets)


def without_ben(given):
    inputs, targets = given.inputs.clone(), given.targets.clone()
    inputs[4:8], targets[4:8] = erased_input(inputs.dtype), 0
    return replace(given, inputs=inputs, targets=targets, absent=frozenset(range(4, 8)))


def lineage_of(run, quick, given, **options):
    result = verify(run, quick, data=given, save=False, **options)
    return next(finding for finding in result.findings if finding.audit == "lineage"), result


@pytest.mark.parametrize("pruned", [False, True])
@pytest.mark.parametrize("asked", [(["ben"], []), ([], [("ben", 2)])], ids=["client", "sample"])
def test_a_copy_with_another_client_is_found_by_a_receipt(tmp_path, quick, asked, pruned):
    given = with_copy()
    run = train(TABLES, tmp_path / "run", data=given, secret=SECRET)
    file = tmp_path / "ben.json"
    file.write_bytes(receipt_of(run, 1).content())
    child = unlearn(run, "retrain", request_of(run, *asked), tmp_path / "child", data=given)
    if pruned:
        child, _ = prune(child)
    at_hand = without_ben(given)
    if not asked[0]:
        rows = [4, 5, 7]
        inputs, targets = at_hand.inputs.clone(), at_hand.targets.clone()
        inputs[rows], targets[rows] = given.inputs[rows], given.targets[rows]
        at_hand = replace(at_hand, inputs=inputs, targets=targets, absent=frozenset({6}))
    blind, result = lineage_of(child, quick, at_hand)
    assert blind.verdict == "PASS"
    assert any("neither at hand under their ids nor opened" in line for line in blind.assumptions)
    found, result = lineage_of(child, quick, at_hand, receipts=[file])
    assert result.verdict == found.verdict == "PASS"
    assert found.qualification.startswith("1 retained row equals rows that were to be forgotten.")
    assert found.qualification in result.reason
    assert "row 13 of client 3 (dan) equals the erased row 6" in found.details
    assert any("Near copies are not looked for" in line for line in found.details)
    assert result.context["arguments"] == ["--receipt", "RECEIPT-1"]


@pytest.mark.parametrize("labels", [False, True])
def test_a_copy_is_found_where_the_erased_rows_are_at_hand(tmp_path, quick, labels):
    """Whatever its label."""
    given = with_copy(labels)
    run = train(TABLES, tmp_path / "run", data=given, secret=SECRET)
    child = unlearn(run, "retrain", request_of(run, ["ben"]), tmp_path / "child", data=given)
    found, result = lineage_of(child, quick, given)
    assert result.verdict == found.verdict == "PASS"
    assert found.values["equal_rows"] == 1
    assert "1 retained row equals rows that were to be forgotten. Their owners did not ask" in result.reason
    checks = [replace(c, audit={**c.audit, **FAILING.get(c.audit["use"], {})}) for c in quick.checks]
    failing = replace(quick, checks=tuple(checks))
    found, result = lineage_of(child, failing, given)
    assert result.verdict == found.verdict == "FAIL"
    assert found.shows == "1 retained row equals rows that were to be forgotten."


def junk(given, rows=range(4, 8)):
    """Other inputs under some ids."""
    inputs, rows = given.inputs.clone(), list(rows)
    inputs[rows] = inputs[rows] / 2 + 3
    return replace(given, inputs=inputs)


def written(path, receipt, **changes):
    path.write_bytes(replace(receipt, **changes).content())
    return path


@pytest.fixture
def forgotten(tmp_path):
    """Data in which Dan has one of Ben's rows, his receipt, and a run that forgot him."""
    given = with_copy()
    run = train(TABLES, tmp_path / "run", data=given, secret=SECRET)
    child = unlearn(run, "retrain", request_of(run, ["ben"]), tmp_path / "child", data=given)
    return given, receipt_of(run, 1), child


def test_other_rows_under_erased_ids_are_not_compared_and_hide_no_receipt(tmp_path, quick, forgotten):
    given, receipt, child = forgotten
    found, _ = lineage_of(child, quick, junk(given))
    assert found.values["compared_rows"] == found.values["equal_rows"] == 0
    assert any("4 rows at hand under erased ids open no leaf" in line for line in found.details)
    assert any(line.startswith("No retained row equals one of 4 erased rows") for line in found.assumptions)
    found, _ = lineage_of(child, quick, junk(given, [6]))
    assert (found.values["compared_rows"], found.values["equal_rows"]) == (3, 0)
    assert any(line.endswith("not compared: 6 to 6") for line in found.details)
    for at_hand in (junk(given), given):
        found, _ = lineage_of(child, quick, at_hand, receipts=[written(tmp_path / "ben.json", receipt)])
        assert (found.values["compared_rows"], found.values["equal_rows"]) == (4, 1)
        assert "row 13 of client 3 (dan) equals the erased row 6" in found.details
        assert any("Salts and ids of the receipts" in line for line in found.assumptions)


def test_a_forged_receipt_displaces_no_other(tmp_path, quick, forgotten):
    """Salts open nothing but with the row: a receipt with other ones is read, and finds nothing."""
    given, receipt, child = forgotten
    right = written(tmp_path / "right.json", receipt)
    salts = written(tmp_path / "salts.json", receipt, rows=tuple(replace(r, salt=bytes(32)) for r in receipt.rows))
    for files in ([right, salts], [salts, right]):
        found, _ = lineage_of(child, quick, without_ben(given), receipts=files)
        assert (found.values["compared_rows"], found.values["equal_rows"]) == (4, 1)
    ids = written(tmp_path / "ids.json", receipt, rows=tuple(replace(r, id=r.id + 4) for r in receipt.rows))
    with pytest.raises(EvidenceError, match="other ids than the partition"):
        verify(child, quick, data=without_ben(given), receipts=[right, ids], save=False)


def test_a_receipt_of_another_stands_for_no_row_of_hers(tmp_path, quick):
    """Cay's receipt with the id of Ben's sample, which was to be forgotten; also after a prune."""
    given = with_copy()
    run = train(TABLES, tmp_path / "run", data=given, secret=SECRET)
    cays = receipt_of(run, 2)
    forged = written(tmp_path / "cay.json", cays, rows=(replace(cays.rows[0], id=6), *cays.rows[1:]))
    child = unlearn(run, "retrain", request_of(run, [], [("ben", 2)]), tmp_path / "child", data=given)
    for one in (child, prune(child)[0]):
        with pytest.raises(EvidenceError, match="other ids than the partition"):
            verify(one, quick, data=given, receipts=[forged], save=False)


def test_after_a_prune_rows_at_hand_count_where_a_receipt_opens_them(tmp_path, quick):
    """Whatever the label of the copy, which a receipt alone does not see."""
    given = with_copy(labels=True)
    run = train(TABLES, tmp_path / "run", data=given, secret=SECRET)
    file = written(tmp_path / "ben.json", receipt_of(run, 1))
    child = unlearn(run, "retrain", request_of(run, [], [("ben", 2)]), tmp_path / "child", data=given)
    pruned, _ = prune(child)
    found, _ = lineage_of(pruned, quick, given)
    assert (found.values["compared_rows"], found.values["equal_rows"]) == (0, 0)
    assert any("cannot be told from other rows" in line for line in found.details)
    found, _ = lineage_of(pruned, quick, given, receipts=[file])
    assert (found.values["compared_rows"], found.values["equal_rows"]) == (1, 1)
    found, _ = lineage_of(pruned, quick, junk(given, [6]), receipts=[file])
    assert (found.values["compared_rows"], found.values["equal_rows"]) == (1, 0)


def test_rows_equal_as_numbers_are_equal(tmp_path, quick):
    given = with_copy()
    inputs = given.inputs.clone()
    inputs[6, 0], inputs[13, 0] = 0.0, -0.0
    given = replace(given, inputs=inputs)
    run = train(TABLES, tmp_path / "run", data=given, secret=SECRET)
    child = unlearn(run, "retrain", request_of(run, ["ben"]), tmp_path / "child", data=given)
    found, _ = lineage_of(child, quick, given)
    assert found.values["equal_rows"] == 1
    file = written(tmp_path / "ben.json", receipt_of(run, 1))
    found, _ = lineage_of(child, quick, without_ben(given), receipts=[file])
    assert found.values["equal_rows"] == 0
    assert any("by receipts only equal bits are found" in line for line in found.details)


def test_ids_of_an_erased_client_that_were_exchanged_are_not_believed(tmp_path, quick, forgotten):
    """The partition names rows of nobody; the commitment does not cover it, and leaves of such rows do not open."""
    given, receipt, child = forgotten
    more = replace(
        given,
        inputs=torch.cat([given.inputs, given.inputs[:4] + 5]),
        targets=torch.cat([given.targets, given.targets[:4]]),
        owners=torch.cat([given.owners, torch.full((4,), -1)]),
    )
    tensors = child.tensors("partition.safetensors")
    place = (tensors["samples"] == 4).nonzero().item()
    tensors["samples"][place : place + 4] = torch.arange(20, 24)
    case = Case(Evidence(child, None, more), Keyed(SECRET))
    assert (sorted(case.evidence.at_hand.places), case.evidence.unopened(child.before)) == ([4, 5, 6, 7], ())
    (child.path / "partition.safetensors").write_bytes(tensor_bytes(tensors))
    sealed(child.path)
    case = Case(Evidence(load_run(child.path), None, more), Keyed(SECRET))
    assert (case.evidence.at_hand.places, case.evidence.at_hand.other) == ({}, (20, 21, 22, 23))
    with pytest.raises(EvidenceError, match="other ids than the partition"):
        verify(child.path, quick, data=more, receipts=[written(tmp_path / "ben.json", receipt)], save=False)


@pytest.mark.parametrize("audit", ["stress", "model-law"])
def test_computing_with_erased_rows_that_open_no_leaf(audit, tmp_path):
    """Level 3 says what it takes on trust; level 6 trains no originals with other rows than those."""
    given = with_copy()
    run = train(TABLES, tmp_path / "run", data=given, secret=SECRET)
    child = unlearn(run, "fats", request_of(run, ["ben"]), tmp_path / "child", data=given)
    tables = {"stress": {"plans": 1, "candidates": 100}, "model-law": {"pairs": 2}}
    examined = registry.build("audits", {"use": audit, **tables[audit]})
    found = examined.examine(Case(Evidence(child, None, junk(given)), Keyed(SECRET)))
    said = [found.shows, *found.assumptions]
    honest = examined.examine(Case(Evidence(child, None, given), Keyed(SECRET)))
    if audit == "model-law":
        assert found.verdict == "INCONCLUSIVE"
        assert "4 erased rows at hand are not those that were committed to" in found.shows
    else:
        assert any("4 erased rows at hand are the ones" in line for line in said)
    assert not any("erased rows at hand are" in line for line in (honest.shows, *honest.assumptions))


def test_near_copies_are_not_looked_for_and_it_says_so(tmp_path, quick):
    given = with_copy(change=1e-6)
    run = train(TABLES, tmp_path / "run", data=given, secret=SECRET)
    child = unlearn(run, "retrain", request_of(run, ["ben"]), tmp_path / "child", data=given)
    found, _ = lineage_of(child, quick, given)
    assert found.verdict == "PASS"
    assert any("4 erased rows at hand and 0 by receipts. Near copies" in line for line in found.details)


def test_receipts_of_others(run, receipt, tmp_path, quick):
    """Of one of whom nothing was to be forgotten, and under another commitment."""
    child = unlearn(run, "retrain", request_of(run, ["cay"]), tmp_path / "child", data=data())
    file = tmp_path / "receipt.json"
    file.write_bytes(receipt.content())
    with pytest.raises(UsageError, match="whom no request names"):
        verify(child, quick, data=data(), receipts=[file], save=False)
    elsewhere = train(TABLES, tmp_path / "elsewhere", data=data(), secret=bytes(32))
    file.write_bytes(receipt_of(elsewhere, 2).content())
    for known in (None, run.commitment):
        with pytest.raises(EvidenceError, match="under another commitment than"):
            verify(child, quick, data=data(), receipts=[file], commitment=known)
    assert not child.path.with_name("child.audit").exists()
    wrong = verify(child, quick, data=data(), receipts=[file], commitment=elsewhere.commitment, save=False)
    assert wrong.verdict == "FAIL"
    assert wrong.reason.startswith("The lineage has another commitment")


def test_no_salt_or_name_of_an_erased_row_is_left_anywhere(tmp_path, bytes_of):
    """Two requests, one of a client and one of a sample; all bytes of all folders after the prune."""
    run = train(TABLES, tmp_path / "run", data=data(), secret=SECRET)
    first = unlearn(run, "fats", request_of(run, ["ben"]), tmp_path / "first", data=data())
    last = unlearn(first, "fats", request_of(first, [], [("dan", 1)]), tmp_path / "last", data=data())
    contents, salts = run.contents, run.opening.salts
    gone = [*contents.salts_of(1), contents.salts_of(3)[2]]
    secrets = [salts.leaf(leaf) for leaf in gone] + list(seeds_above(salts, gone))
    kept = [salts.leaf(leaf) for leaf in range(salts.size) if leaf not in gone]
    before = b"".join(bytes_of(tmp_path).values())
    assert salts.parts[0].seed.hex().encode() in before
    pruned, _ = prune(last)
    after = b"".join(bytes_of(tmp_path).values())
    assert not [s for s in secrets if s in after or s.hex().encode() in after]
    assert b"ben" not in after
    assert b"dan" in after
    opening = load_run(pruned.path).opening
    assert [opening.salts.leaf(leaf) for leaf in range(salts.size) if leaf not in gone] == kept
    assert len(opening.salts.parts) < 5 * (salts.size.bit_length())
    assert pruned.contents.root == contents.root
    assert json.loads((pruned.path / "clients.json").read_bytes())["names"].keys() == {"0", "2", "3", "4"}


def seeds_above(salts, gone):
    """The seeds of all subtrees that hold one of these leaves: from each of them it could be made again."""
    from fuaudit.draws.seeds import half, middle_of

    def walk(seed, first, last):
        if any(first <= leaf < last for leaf in gone):
            yield seed
            if last - first > 1:
                middle = middle_of(first, last)
                yield from walk(half(seed, False), first, middle)
                yield from walk(half(seed, True), middle, last)

    return walk(salts.parts[0].seed, 0, salts.size)


@given(st.binary(max_size=60))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_refused_in_words(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("bytes") / "receipt.json"
    path.write_bytes(content)
    with pytest.raises(FuauditError):
        read_receipt(path)
