"""Clients keep their names: what is asked for, recorded and echoed is the client that was meant."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tests_support import installed, sealed

from fuaudit import load_run, train, unlearn, verify
from fuaudit.audits.model_law.audit import ModelLaw
from fuaudit.audits.provenance.dealing import dealt_again
from fuaudit.commitments.contents import Opening
from fuaudit.data.dataset import Dataset
from fuaudit.data.partition import ByOwner
from fuaudit.data.partition import partition as deal
from fuaudit.draws import Keyed
from fuaudit.draws.seeds import Seeds
from fuaudit.errors import EvidenceError, UsageError
from fuaudit.formats.forms import tensor_bytes
from fuaudit.plans import Request
from fuaudit.runs.names import in_words, request_of, to_forget
from fuaudit.verification.case import Case
from fuaudit.verification.evidence import Evidence, Known
from fuaudit.workflow import begin
from fuaudit.workflow.prune import prune

SECRET = bytes(range(32))
TABLES = {
    "data": {"use": "tensors", "classes": 2},
    "partition": {"use": "by-owner"},
    "model": {"use": "linear"},
    "learner": {"use": "fats", "rounds": 3, "cohort": 2, "steps": 1, "batch": 2, "step_size": 0.1},
    "run": {"checkpoint_every": 1, "engine": "reference", "device": "cpu"},
}
OWNERS = [0, 1, 2, 4, 5]


def data(names=()):
    rows = torch.arange(60, dtype=torch.float32).reshape(20, 3) / 60
    owners = torch.tensor(OWNERS).repeat(4)
    return Dataset(rows, torch.arange(20) % 2, rows[:4], torch.arange(4) % 2, 2, owners=owners, owner_names=names)


NAMED = ("ann", "ben:1", "cay", "nobody", "eve", "4")


def trained(path, names=(), **tables):
    return train(TABLES | tables, path, data=data(names), secret=SECRET)


def test_the_client_that_was_named_is_forgotten(fuaudit, tmp_path, lean_file):
    """Owners 0, 1, 2, 4, 5: client 4 is owner 4, not the client at place 4."""
    given = data()
    tensors = {n: getattr(given, n) for n in ("inputs", "targets", "test_inputs", "test_targets", "owners")}
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, tmp_path / "data.safetensors")
    run = trained(tmp_path / "run")
    assert run.plan.retained.clients == (0, 1, 2, 4, 5)
    command = ("unlearn", run.path, "--with", "fats", "--client", "4", "--data", tmp_path, "--out", tmp_path / "child")
    code, out, _ = fuaudit(*command)
    assert code == 0
    assert "client 4, 4 rows" in out
    child = load_run(tmp_path / "child")
    gone = set(run.plan.retained.owner) - set(child.plan.retained.owner)
    assert given.owners[sorted(gone)].tolist() == [4, 4, 4, 4]
    asked = ("verify", child.path, "--spec", lean_file, "--data", tmp_path, "--budget", "0", "--client")
    code, out, _ = fuaudit(*asked, "4")
    assert code == 0, out
    assert "client 4, 4 rows" in out
    assert fuaudit(*asked, "5")[0] == 1
    code, _, err = fuaudit("unlearn", run.path, "--with", "fats", "--client", "3", "--data", tmp_path)
    assert code == 2
    assert "no client 3" in err


def test_no_name_looks_like_two_clients():
    row = {"client": 4, "name": "ann), 10 rows; client 5 (ben", "rows": 7}
    assert in_words(row) == "client 4 ('ann), 10 rows; client 5 (ben'), 7 rows"
    assert in_words({"sample": 9, "client": 4, "name": "a,b", "index": 1}) == "sample 9 ('a,b':1)"
    assert in_words(row | {"name": "4"}) == "client 4, 7 rows"
    assert in_words(row | {"name": "5"}) == "client 4 (5), 7 rows"


def test_names_are_recorded_used_and_echoed(fuaudit, tmp_path, quick):
    run = trained(tmp_path / "run", NAMED)
    assert [run.name(client) for client in OWNERS] == ["ann", "ben:1", "cay", "eve", "4"]
    request = request_of(run, ["eve"], [("ben:1", 2)])
    assert request.clients == (4,)
    child = unlearn(run, "fats", request, tmp_path / "child", data=data(NAMED))
    assert list(map(in_words, to_forget(child))) == ["client 4 (eve), 4 rows", "sample 11 (ben:1:2)"]
    result = verify(child, quick, data=data(NAMED), request=request, budget=0)
    assert result.verdict == "PASS"
    assert result.context["to_forget"][0] == {"client": 4, "name": "eve", "rows": 4}
    assert "to forget client 4 (eve), sample 11 (ben:1:2): evidence" in result.reason
    assert result.context["arguments"][:4] == ["--client", "eve", "--sample", "ben:1:2"]
    for form in ("html", "md"):
        code, out, _ = fuaudit("report", child.path, "--format", form)
        assert code == 0
        assert "client 4 (eve), 4 rows" in Path(out.strip()).read_text(), form
    assert "client 4 (eve), 4 rows" in fuaudit("show", child.path)[1]
    assert json.loads(fuaudit("show", child.path, "--json")[1])["clients"]["1"] == "ben:1"


def test_a_list_of_runs_says_clients_as_they_were_told(fuaudit, tmp_path, quick):
    """By name where one is left; in columns, whatever the length of folder names; and a tombstone by what it tells."""
    given, long = data(NAMED), "a-folder-with-a-name-of-more-than-24-characters"
    run = trained(tmp_path / "run", NAMED)
    unlearn(run, "fats", request_of(run, ["eve"], [("ben:1", 2)]), tmp_path / long, data=given)
    verify(run, quick, data=given, budget=0)
    lines = fuaudit("runs", tmp_path)[1].splitlines()
    wide = len(long) + 2
    assert [line[:wide].strip() for line in lines] == [long, "run"]
    assert [line[wide:].split()[0] for line in lines] == ["unlearning", "training"]
    assert lines[0].endswith("of run by fats: client 4 (eve), sample 11")
    assert lines[1].endswith("verified; nothing was asked yet")
    rows = json.loads(fuaudit("runs", tmp_path, "--json")[1])["runs"]
    assert [row["verdict"] for row in rows] == ["", "INCONCLUSIVE"]
    assert rows[0]["request"] == "client 4 and sample 11"
    later = unlearn(load_run(tmp_path / long), "retrain", Request.of([1]), tmp_path / "later", data=given)
    prune(later)
    told = {line.split()[0]: line for line in fuaudit("runs", tmp_path)[1].splitlines()}
    assert told[long].endswith("of run by fats  (tombstone)")
    assert told["later"].endswith("by retrain: client 1")  # a prune dropped the name


@pytest.mark.parametrize(("names", "told"), [(NAMED, True), ((), True), (NAMED, False)])
def test_test_rows_of_the_forgotten_are_counted_where_their_owners_are_known(tmp_path, quick, names, told):
    given = replace(data(names), test_owners=torch.tensor([4, 0, 4, 2]) if told else None)
    run = train(TABLES, tmp_path / "run", data=given, secret=SECRET)
    child = unlearn(run, "fats", Request.of(clients=[4, 0]), tmp_path / "child", data=given)
    result = verify(child, quick, data=given, budget=0, save=False)
    assert result.verdict == "PASS"
    lineage = next(finding for finding in result.findings if finding.audit == "lineage")
    assert "follow from the retained data and the test rows, byte for byte." in lineage.shows
    assert "test rows, which no request removes" in lineage.shows_not
    found = [copy.why for copy in lineage.copies if copy.place == "the test rows"]
    who = "client 0 (ann), client 4 (eve)" if names else "client 0, client 4"
    whose = f"3 of 4 test rows are of {who}, who were to be forgotten; figures are measured on them"
    assert found == ([whose] if told else [])


EDITOR = """
from dataclasses import dataclass
from typing import ClassVar

@dataclass(frozen=True)
class Reader:
    \"\"\"Trains on test rows, as far as anybody knows.\"\"\"
    needs: ClassVar[frozenset] = frozenset({"model", "server data"})
    participants: ClassVar[frozenset] = frozenset({"server"})
    guarantee: ClassVar[str] = "none"
    cite: ClassVar[str] = ""

    def edit(self, context):
        return context.model + context.server_data[0].mean()
"""


@pytest.mark.parametrize("told", [True, False])
def test_an_editor_that_reads_test_rows_is_said_to(tmp_path, monkeypatch, quick, told):
    monkeypatch.syspath_prepend(
        str(installed(tmp_path / "site", "reader", EDITOR, "[fuaudit.unlearners]\nreader = reader:Reader\n"))
    )
    given = replace(data(NAMED), test_owners=torch.tensor([4, 0, 1, 2]) if told else None)
    run = train(TABLES, tmp_path / "run", data=given, secret=SECRET)
    child = unlearn(run, "reader", Request.of(clients=[4]), tmp_path / "child", data=given)
    result = verify(child, quick, data=given, budget=0, save=False)
    lineage = next(finding for finding in result.findings if finding.audit == "lineage")
    whose = "1 of 4 test rows is of client 4 (eve), who was to be forgotten" if told else "whose they are is not known"
    assert f"The method read the test rows (server data): {whose}." in lineage.details


def test_nobody_is_guessed(tmp_path):
    """A number is no name where clients have names, and a name that is a number is that name."""
    run = trained(tmp_path / "run", NAMED)
    with pytest.raises(UsageError, match="number 0 is called 'ann'"):
        run.client("0")
    assert run.client("4") == 5
    with pytest.raises(UsageError, match="no client is called 'Eve'"):
        run.client("Eve")
    with pytest.raises(UsageError, match="no client is called"):
        run.client("04")
    numbered = trained(tmp_path / "numbered")
    assert numbered.client("4") == 4
    for text in ("3", "04", "+4", "\u0664", "four", ""):
        with pytest.raises(UsageError, match="has no client"):
            numbered.client(text)


def test_a_dropped_name_is_no_longer_known(tmp_path):
    run = trained(tmp_path / "run", NAMED)
    child, _ = prune(unlearn(run, "fats", request_of(run, ["eve"]), tmp_path / "child", data=data(NAMED)))
    assert list(map(in_words, to_forget(child))) == ["client 4 (name dropped), 4 rows"]
    assert child.client("ann") == 0
    found = ModelLaw().examine(Case(Evidence(child, None, data(NAMED)), Keyed(SECRET)))
    assert found.shows.startswith("A prune dropped which rows were to be forgotten")
    with pytest.raises(UsageError, match="no client is called 'eve'") as refused:
        child.client("eve")
    assert "--client 4" in refused.value.hint
    assert not any(name in str(refused.value) + refused.value.hint for name in ("ann", "ben", "cay"))
    with pytest.raises(UsageError, match="name of client 5, and the number of one whose name a prune dropped"):
        child.client("4")


@pytest.mark.parametrize("name", ["a", " b", "b\x1b[2J", "", "\ud800", "x" * 201, None])
def test_names_that_are_none_are_refused(tmp_path, name):
    """Twice the same, space, what a terminal obeys, nothing, half a character, too long, and none at all."""
    with pytest.raises(UsageError, match="name"):
        trained(tmp_path / "run", ("a", "b", "c", "d", "e") if name is None else ("a", "b", "c", "d", "e", name))
    assert not (tmp_path / "run").exists()


def test_names_of_owners_that_no_client_has_do_not_matter(tmp_path):
    assert trained(tmp_path / "run", (*NAMED[:3], "\x00", *NAMED[4:])).client("cay") == 2


def test_where_clients_are_no_owners_they_have_numbers(tmp_path):
    run = trained(tmp_path / "run", NAMED, partition={"use": "iid", "clients": 4})
    assert run.opening.names is None
    assert run.client("3") == 3


def test_an_owner_beyond_all_tables_is_refused():
    owners = torch.tensor([0, 2**20])
    rows = torch.zeros(2, 1)
    with pytest.raises(UsageError, match="numbers end at"):
        deal(
            ByOwner(),
            Dataset(rows, torch.zeros(2).long(), rows, torch.zeros(2).long(), 2, owners=owners),
            Keyed(SECRET),
        )


def test_a_name_that_was_exchanged_is_no_evidence(tmp_path, reseal):
    run = trained(tmp_path / "run", NAMED)
    table = json.loads((run.path / "clients.json").read_bytes())
    table["names"]["0"], table["names"]["2"] = table["names"]["2"], table["names"]["0"]
    reseal(run.path, clients=table)
    with pytest.raises(EvidenceError, match="is not the name that client 0 was committed to under"):
        _ = load_run(run.path).opening


def prised(run, names, reseal, drop=()):
    """A run whose ``clients.json`` has these names, and no salts of the names that are to be dropped; sealed again."""
    contents = run.contents
    kept = [contents.salts_of(client)[client in drop :] for client in contents.clients]
    salts = run.opening.salts.keeping([*kept, contents.salts_of_tests]).bare
    return reseal(run.path, clients=Opening(names, salts).table())


@pytest.mark.parametrize("which", ["two", "all", "none"])
def test_a_run_holds_all_names_until_a_prune(tmp_path, reseal, which):
    """A name that is missing would make its client's number stand for another; null would make all numbers names."""
    run = trained(tmp_path / "run", NAMED)
    drop = {"two": (4, 5), "all": OWNERS, "none": ()}[which]
    names = None if which != "two" else {c: n for c, n in run.opening.names.items() if c not in drop}
    prised(run, names, reseal, drop)
    with pytest.raises(EvidenceError, match=r"lacks names or salts|is not the name"):
        load_run(run.path)


def test_that_clients_have_no_names_is_committed_to(tmp_path, reseal):
    run = trained(tmp_path / "run")
    prised(run, {client: str(client) for client in OWNERS}, reseal)
    with pytest.raises(EvidenceError, match="'0' is not the name that client 0 was committed to under"):
        load_run(run.path)
    named = trained(tmp_path / "named", tuple(map(str, range(6))))
    prised(named, None, reseal)
    with pytest.raises(EvidenceError, match="None is not the name that client 0 was committed to under"):
        load_run(named.path)


@pytest.mark.parametrize("client", [[], [{"use": "quantise"}]])
def test_a_file_with_names_has_salts_so_its_digest_confirms_no_guess(tmp_path, client):
    run = trained(tmp_path / "run", NAMED, client=client)
    (holding,) = (run.path / name for name in run.files if b'"eve"' in (run.path / name).read_bytes())
    assert json.loads(holding.read_bytes())["salts"] == run.opening.salts.as_rows()
    request = request_of(run, ["eve"])
    child, _ = prune(unlearn(run, "fats", request, tmp_path / "child", data=data(NAMED)))
    assert [child.name(client) for client in OWNERS] == ["ann", "ben:1", "cay", None, "4"]
    assert not [p for p in tmp_path.rglob("*.json") if b'"eve"' in p.read_bytes()]


def test_after_a_prune_the_names_of_the_erased_are_missing_and_no_others(tmp_path, reseal):
    run = trained(tmp_path / "run", NAMED)
    child, _ = prune(unlearn(run, "fats", request_of(run, ["eve"]), tmp_path / "child", data=data(NAMED)))
    further = unlearn(child, "fats", request_of(child, ["ann"]), tmp_path / "further", data=data(NAMED))
    assert further.name(0) == "ann"
    names = {c: n for c, n in child.opening.names.items() if c != 5}
    prised(child, names, reseal, drop=(5,))
    with pytest.raises(EvidenceError, match="lacks names or salts of what is retained"):
        load_run(child.path)
    names = {c: n for c, n in further.opening.names.items() if c != 0}
    prised(further, names, reseal, drop=(0,))
    with pytest.raises(EvidenceError, match="lacks names or salts of what is retained"):
        load_run(further.path)


def lines_of(result):
    return next(f for f in result.findings if f.audit == "provenance")


def test_names_are_those_of_the_owners_at_hand(tmp_path, quick):
    """Who swaps two names before the commitment is told by the data, whole or in part; what is not told is said."""
    swapped = ("cay", "ben:1", "ann", *NAMED[3:])
    run = trained(tmp_path / "run", swapped)
    child = unlearn(run, "fats", request_of(run, ["eve"]), tmp_path / "child", data=data(swapped))
    found = lines_of(verify(child, quick, data=data(NAMED), budget=0))
    assert found.verdict == "FAIL"
    assert any("are those of 'ann' in the data at hand" in line for line in found.details)
    rows = frozenset(row for row in range(20) if OWNERS[row % 5] == 4)
    found = lines_of(verify(child, quick, data=replace(data(NAMED), absent=rows), budget=0))
    assert found.verdict == "FAIL"
    assert any("are those of 'ann' in the data at hand" in line for line in found.details)
    result = verify(child, quick, data=replace(data(swapped), absent=rows), budget=0)
    assert result.verdict == "PASS", result.reason
    assert any("not dealt again, but taken from the commitment: 4 rows" in line for line in result.conclusion.rests_on)
    assert any("The name of client 4 (eve) is taken from the commitment" in line for line in result.conclusion.rests_on)


def test_a_dropped_name_is_not_shown_and_that_is_said(tmp_path, quick):
    run = trained(tmp_path / "run", NAMED)
    child, _ = prune(unlearn(run, "fats", request_of(run, ["eve"]), tmp_path / "child", data=data(NAMED)))
    found = lines_of(verify(child, quick, data=data(NAMED), request=child.request, budget=0))
    assert any("The name of client 4 was not shown" in line for line in found.assumptions)
    assert any("client 4 (name dropped), 4 rows" in line for line in found.details)


NEEDED = ("integrity", "replay", "provenance", "lineage")


def of_the_run(path):
    """A spec that asks about the run alone, and nothing of its method."""
    checks = [f'[[check]]\nclaim = "x"\naudit = {{ use = "{name}" }}' for name in NEEDED]
    path.write_text("\n".join(['id = "run"', 'asks = "run"', 'out_of_scope = ["x"]', *checks]))
    return path


def test_after_a_prune_a_receipt_tells_who_is_meant(fuaudit, tmp_path):
    """Also one whose number is another's name; the receipt shows the name, so none is taken on trust."""
    run = train(TABLES, tmp_path / "run", rows_of(tmp_path / "all", OWNERS, NAMED), SECRET)
    assert fuaudit("receipt", run.path, "--client", "eve", "--out", tmp_path / "eve.json")[0] == 0
    child, _ = prune(unlearn(run, "fats", request_of(run, ["eve"]), tmp_path / "child", data=tmp_path / "all"))
    shown = (
        "--receipt",
        tmp_path / "eve.json",
        "--data",
        tmp_path / "all",
        "--spec",
        of_the_run(tmp_path / "run.toml"),
    )
    code, out, err = fuaudit("verify", child.path, "--client", "eve", *shown)
    assert (code, "was not shown" in out) == (0, False), err
    code, out, _ = fuaudit("verify", child.path, "--client", "ann", *shown)
    assert (code, "asked for was client 0 (ann)" in out) == (1, True)
    assert "\n      The run forgets client 4; asked for was client 0 (ann)." in fuaudit("history", child.path)[1]
    assert fuaudit("verify", child.path, "--client", "eve", *shown[2:])[0] == 2


def test_owners_of_the_erased_rows_are_at_hand_too(tmp_path, quick):
    """The rows of the erased lie in a folder of their own; the commitment says whose they were."""
    given = data()
    for name, owners in (("all", OWNERS), ("kept", [0, 1, 2, 5])):
        rows = [row for row in range(20) if OWNERS[row % 5] in owners]
        tensors = {n: getattr(given, n)[rows].clone() for n in ("inputs", "targets", "owners")}
        tensors |= {n: getattr(given, n).clone() for n in ("test_inputs", "test_targets")} | {"ids": torch.tensor(rows)}
        (tmp_path / name).mkdir()
        save_file(tensors, tmp_path / name / "data.safetensors")
    run = train(TABLES, tmp_path / "run", tmp_path / "all", secret=SECRET)
    child = unlearn(run, "fats", request_of(run, ["4"]), tmp_path / "child", data=tmp_path / "all")
    result = verify(child, quick, data=tmp_path / "kept", erased=tmp_path / "all", budget=0)
    assert any("the partition follows from its key" in line for line in lines_of(result).details)
    assert result.verdict == "PASS", result.reason


def rows_of(path, whose, names=(), **changes):
    """A folder of the rows of some owners, and what their owners are called there; ``changes`` of its tensors."""
    given, rows = data(), [row for row in range(20) if OWNERS[row % 5] in whose]
    tensors = {n: getattr(given, n)[rows].clone() for n in ("inputs", "targets", "owners")}
    tensors |= {n: getattr(given, n).clone() for n in ("test_inputs", "test_targets")} | {"ids": torch.tensor(rows)}
    path.mkdir()
    save_file({n: t for n, t in (tensors | changes).items() if t is not None}, path / "data.safetensors")
    if names:
        (path / "owners.json").write_text(json.dumps(names))
    return path


HERS = {
    "otherwise": (["", "", "", "", "Eve"], {}),
    "by-another": (["", "", "", "", "ann"], {}),
    "unowned": ([], {"owners": None}),
    "unnamed": ([], {}),
    "junk": (["", "", "", "", "eve"], {"inputs": torch.ones(4, 3)}),
}


@pytest.mark.parametrize("kept", [NAMED, ("ben:1", "ann", "cay", "", "", "4")], ids=["as in training", "renumbered"])
def test_whoever_gives_erased_rows_cannot_say_whose_they_were(tmp_path, quick, kept):
    """The commitment says so: other names in their folder, or none, are no evidence against the run."""
    run = trained(tmp_path / "run", NAMED)
    child = unlearn(run, "fats", request_of(run, ["eve"]), tmp_path / "child", data=data(NAMED))
    owners = data().owners[[row for row in range(20) if OWNERS[row % 5] != 4]]
    there = owners if kept is NAMED else torch.where(owners < 2, 1 - owners, owners)
    at_hand = rows_of(tmp_path / "kept", [0, 1, 2, 5], kept, owners=there)
    for name, (names, changes) in HERS.items():
        folder = rows_of(tmp_path / name, [4], names, **changes)
        result = verify(child, quick, data=at_hand, erased=folder, budget=0, save=False)
        assert result.verdict == "PASS", (name, result.reason)
        taken = "The name of client 4 (eve) is taken from the commitment" in " ".join(result.conclusion.rests_on)
        assert taken
        dealt = any("the partition follows from its key" in line for line in lines_of(result).details)
        assert dealt == (name != "junk")
    assert any("4 rows at hand under erased ids are not known" in line for line in result.conclusion.rests_on)


@pytest.mark.parametrize("name", ["zo\u00e9\u3164", "zoe\u0301", "\ufe0fzo\u00e9", "zo\u00e9\u2800"])
def test_names_that_look_the_same_are_one(name, tmp_path):
    with pytest.raises(UsageError, match="'zo\u00e9' is that of several clients"):
        trained(tmp_path / "run", ("zo\u00e9", name, "cy", "", "dan", "eve"))
    salts = Seeds.of(bytes(32), 8).as_rows()
    with pytest.raises(EvidenceError, match="two clients have one name"):
        Opening.of_table({"names": {"0": "zo\u00e9", "1": name}, "salts": salts}, tmp_path)


@pytest.mark.parametrize(("own", "typed"), [("Jos\u00e9", "Jose\u0301"), ("Jose\u0301", "Jos\u00e9")])
def test_a_client_is_found_by_any_spelling_of_a_name(fuaudit, own, typed, tmp_path):
    """Keyboards and file systems write an accent in one character or in two."""
    run = train(
        TABLES, tmp_path / "run", rows_of(tmp_path / "all", OWNERS, ("ann", own, "cy", "", "dan", "eve")), SECRET
    )
    assert run.client(own) == run.client(typed) == 1
    where = ("--data", tmp_path / "all")
    code, out, err = fuaudit("unlearn", run.path, "--with", "fats", "--client", typed, "--out", tmp_path / "c", *where)
    assert (code, f"client 1 ({own})" in out) == (0, True), err
    receipt = ("--receipt", tmp_path / "one.json")
    assert fuaudit("receipt", run.path, "--client", typed, "--out", receipt[1])[0] == 0
    prune(load_run(tmp_path / "c"))
    spec = ("--spec", of_the_run(tmp_path / "run.toml"))
    for name in (own, typed):  # by the receipt alone: the prune dropped the name
        code, _, err = fuaudit("verify", tmp_path / "c", "--client", name, *receipt, *where, *spec)
        assert code == 0, err


@pytest.mark.parametrize("forged", [False, True])
def test_a_child_that_holds_the_key_deals_the_partition_again(forged, tmp_path, quick, monkeypatch):
    """A sibling was pruned, so the parent is a tombstone. The key that the child keeps is asked all the same."""
    with monkeypatch.context() as forger:
        if forged:
            forger.setattr(begin, "partition", lambda dealer, rows, _: deal(dealer, rows, Keyed(bytes(32))))
        run = trained(tmp_path / "run", partition={"use": "iid", "clients": 3})
    child, sibling = (
        unlearn(run, "fats", request_of(run, ["0"]), tmp_path / name, data=data()) for name in ("child", "sibling")
    )
    prune(sibling)
    result = verify(child, quick, data=data(), key=SECRET, save=False)
    assert result.verdict == ("FAIL" if forged else "PASS"), result.reason
    assert forged == ("not the one that its key deals" in result.reason)
    assert not any("a prune destroyed its key" in line for line in result.conclusion.rests_on)


def test_rows_that_open_no_leaf_do_not_deal_a_partition(tmp_path, quick):
    """Dealt by labels: other rows under erased ids, with other labels, show nothing of the run; true rows do."""
    tables = {"partition": {"use": "shards", "clients": 3, "shards": 2}}
    run = trained(tmp_path / "run", **tables)
    child = unlearn(run, "fats", request_of(run, ["0"]), tmp_path / "child", data=data())
    gone, nobodys = list(run.original.samples[0]), max(set(range(20)) - set(run.original.owner))
    targets = data().targets.clone()
    targets[gone] = 1 - targets[gone]
    result = verify(child, quick, data=replace(data(), targets=targets), budget=0, save=False)
    assert result.verdict == "PASS", result.reason
    assert any(f"{len(gone)} rows at hand under erased ids" in line for line in result.conclusion.rests_on)
    assert dealt_again(Case(Evidence(child, run, data()), Keyed(SECRET)), run, bytes(32)).verdict == "FAIL"
    for one in (child, run):  # both tell another id of an erased row: the true rows, dealt again, open all leaves
        tensors = one.tensors("partition.safetensors")
        tensors["samples"][tensors["samples"] == gone[-1]] = nobodys
        (one.path / "partition.safetensors").write_bytes(tensor_bytes(tensors))
        sealed(one.path)
    case = Case(Evidence(load_run(child.path), load_run(run.path), data()), Keyed(SECRET))
    assert case.evidence.at_hand.other
    assert dealt_again(case, case.evidence.parent, run.keys.partition).verdict == "FAIL"


def test_rows_that_no_client_had_may_be_missing_beside_the_erased_ones(tmp_path, quick):
    """The last two rows are dealt to nobody: without them the key deals otherwise, which shows nothing of the run."""
    given, tables = (
        replace(data(), targets=(torch.arange(20) >= 17).long()),
        {"use": "shards", "clients": 3, "shards": 2},
    )
    run = train(TABLES | {"partition": tables}, tmp_path / "run", data=given, secret=bytes([2]) * 32)
    assert sorted(run.original.owner) == list(range(18))
    child = unlearn(run, "fats", request_of(run, ["0"]), tmp_path / "child", data=given)
    hers, left = set(run.original.samples[0]), set(child.plan.retained.owner)
    for name, ids in (("hers", hers), ("left", left)):
        rows_of(
            tmp_path / name,
            [],
            ids=torch.tensor(sorted(ids)),
            **{n: getattr(given, n)[sorted(ids)].clone() for n in ("inputs", "targets", "owners")},
        )
    found = verify(child, quick, data=tmp_path / "left", erased=tmp_path / "hers", budget=0, save=False)
    assert (found.verdict, "give the whole data" in found.reason) == ("INCONCLUSIVE", True)
    case = Case(Evidence(child, run, given, Known(erased=True)), Keyed(SECRET))
    assert dealt_again(case, run, bytes(32)).verdict == "INCONCLUSIVE"
    assert dealt_again(case, run, run.keys.partition).verdict == "PASS"
