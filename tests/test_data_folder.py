"""The auditor's folder of rows: what findings say of erased rows in it, and how it is kept without them."""

import json

import pytest
import torch
from conftest import SECRET
from safetensors.torch import load_file, save_file
from test_names import NAMED, OWNERS, TABLES, rows_of
from tests_support import drawn_client, of_the_run

from fuaudit.audits.stress import Stress
from fuaudit.data.tensors import Tensors
from fuaudit.draws import Keyed
from fuaudit.errors import UsageError
from fuaudit.importing.import_csv import Source, import_csv
from fuaudit.importing.left_out import leave_out
from fuaudit.plans import Request
from fuaudit.runs.names import request_of
from fuaudit.verification.case import Case
from fuaudit.verification.gather import gather
from fuaudit.verification.verify import verify
from fuaudit.workflow.prune import prune
from fuaudit.workflow.train import train
from fuaudit.workflow.unlearn import unlearn

EVE = 4
ALL = [*NAMED[:3], "", *NAMED[4:]]
KEPT = [*NAMED[:3], "", "", NAMED[5]]
STAY = [owner for owner in OWNERS if owner != EVE]


@pytest.fixture
def folder(tmp_path):
    return rows_of(tmp_path / "all", OWNERS, ALL)


@pytest.fixture
def child(tmp_path, folder):
    """Eve was forgotten; she is the only one called so."""
    run = train(TABLES, tmp_path / "run", folder, SECRET)
    return unlearn(run, "fats", request_of(run, ["eve"]), tmp_path / "child", data=folder)


def lineage_of(run, quick, data, **given):
    result = verify(run, quick, data=data, budget=0, save=False, **given)
    assert result.verdict == "PASS", result.reason
    return next(found for found in result.findings if found.audit == "lineage")


def in_data(found):
    return [copy.why for copy in found.copies if copy.place.startswith("the folder")]


def test_the_folder_of_rows_is_named_where_it_holds_erased_ones(child, quick, folder, tmp_path):
    assert in_data(lineage_of(child, quick, folder)) == [
        "holds 4 rows that a request erased, 1 name of whom no row is retained"
    ]
    kept = rows_of(tmp_path / "kept", STAY, KEPT)
    assert in_data(lineage_of(child, quick, kept)) == []
    found = lineage_of(child, quick, kept, erased=folder)
    assert in_data(found) == ["holds 4 rows that a request erased"]


def test_rows_of_nobody_are_counted(child, quick, folder, tmp_path, fuaudit):
    """They may be hers under other ids, whether or not hers are known: of an unused row nothing was committed to."""
    code, _, err = fuaudit("receipt", tmp_path / "run", "--client", "eve", "--out", tmp_path / "eve.json")
    assert code == 0, err
    rows_of(kept := tmp_path / "kept", STAY, KEPT)
    tensors = load_file(kept / "data.safetensors")
    assert not any("of no client of the run" in line for line in lineage_of(child, quick, kept).details)
    ids = torch.cat([tensors["ids"], tensors["ids"].max() + 1 + torch.arange(2)])
    more = {name: torch.cat([tensors[name], tensors[name][:2]]) for name in ("inputs", "targets", "owners")}
    save_file(tensors | more | {"ids": ids}, kept / "data.safetensors")
    found = lineage_of(child, quick, kept)
    assert in_data(found) == []
    told = "2 rows at hand are of no client of the run, and may hold anything: nothing was committed to of them"
    assert told in found.details
    assert told in lineage_of(child, quick, kept, receipts=[tmp_path / "eve.json"]).details
    whole = verify(child, quick, data=kept, erased=folder, budget=0, save=False)
    assert told in next(found for found in whole.findings if found.audit == "lineage").details


def test_hers_under_ids_beyond_the_run_are_named(child, quick, folder, tmp_path, fuaudit):
    """A salt opens her leaf with the row under whatever id: the run has it before a prune, and her receipt after it."""
    code, _, err = fuaudit("receipt", tmp_path / "run", "--client", "eve", "--out", tmp_path / "eve.json")
    assert code == 0, err
    whole = load_file(folder / "data.safetensors")
    tensors = load_file(rows_of(tmp_path / "kept", STAY, KEPT) / "data.safetensors")
    hers = (whole["owners"] == EVE).nonzero().flatten()[:3]
    end = len(whole["owners"])
    more = {name: torch.cat([tensors[name], whole[name][hers]]) for name in ("inputs", "targets")}
    more |= {"owners": torch.cat([tensors["owners"], torch.zeros(3, dtype=torch.int64)])}
    ids = {"ids": torch.cat([tensors["ids"], end + torch.arange(3)])}
    save_file(tensors | more | ids, tmp_path / "kept" / "data.safetensors")
    found = lineage_of(child, quick, tmp_path / "kept")
    named = ["holds 3 copies of erased rows under other ids"]
    assert in_data(found) == named
    line = f"3 copies of erased rows at hand under ids of no retained client: {end} to {end + 2}"
    assert line in found.details
    assert not any("of no client of the run" in line for line in found.details)
    pruned, _ = prune(child)
    assert in_data(lineage_of(pruned, quick, tmp_path / "kept")) == [
        "holds 3 rows of no retained client, which may be erased ones"
    ]
    assert in_data(lineage_of(pruned, quick, tmp_path / "kept", receipts=[tmp_path / "eve.json"])) == named


def test_after_a_prune_rows_that_may_be_hers_are_not_said_to_be_elsewhere(child, quick, folder, tmp_path):
    pruned, _ = prune(child)
    found = lineage_of(pruned, quick, folder)
    words = "No retained row equals one of 4 erased rows, which nothing opens: 4 rows at hand may be of them."
    assert words in found.assumptions
    assert in_data(found) == [
        "holds 4 rows of no retained client, which may be erased ones, 1 name of whom no row is retained"
    ]
    kept = rows_of(tmp_path / "kept", STAY, KEPT)
    found = lineage_of(pruned, quick, kept)
    assert (
        "No retained row equals one of 4 erased rows, which are neither at hand under their ids nor opened."
        in found.assumptions
    )
    assert in_data(found) == []


def test_names_that_are_of_no_client_are_counted(tmp_path, quick):
    """Where a partition does not deal by owners nothing compares them, and they have room for rows."""
    tables = TABLES | {"partition": {"use": "iid", "clients": 4}}
    whole, folder = rows_of(tmp_path / "all", OWNERS), tmp_path / "kept"
    run = train(tables, tmp_path / "run", whole, SECRET)
    child, _ = prune(unlearn(run, "fats", Request.of([drawn_client(run, 1)]), tmp_path / "child", data=whole))
    kept = sorted(child.plan.retained.owner)
    folder.mkdir()
    tensors = load_file(whole / "data.safetensors")
    tensors |= {name: tensors[name][kept] for name in ("inputs", "targets", "ids")}
    save_file(tensors | {"owners": torch.arange(len(kept))}, folder / "data.safetensors")
    (folder / "owners.json").write_text(json.dumps([f"{row:030}" for row in kept], indent=4) + "\n")
    assert in_data(lineage_of(child, quick, folder)) == [
        f"holds {len(kept)} names of no client, which nothing compares"
    ]


@pytest.mark.parametrize("where", ["behind", "between"])
def test_spaces_in_the_file_of_names_are_refused(tmp_path, where):
    folder = rows_of(tmp_path / "all", OWNERS, ALL)
    path = folder / "owners.json"
    text = path.read_text()
    path.write_text(text + " \t" * 40 if where == "behind" else text.replace(",", "," + " \t" * 40, 1))
    with pytest.raises(UsageError, match="is longer than its names"):
        Tensors(2).load(folder)


CLIENTS = ["ann", "ben", "cay", "dan"]
LINES = [(name, (line * 7 + place) % 11, line % 2) for place, name in enumerate(CLIENTS) for line in range(10)]
TRAINS = TABLES | {"learner": TABLES["learner"] | {"step_size": 0.01}}


def imported(path, lines, out, test=()):
    """The folder of an import of some lines."""
    for name, rows in (("rows.csv", lines), ("test.csv", test)):
        text = "\n".join(["client,x,z,y", *(f"{c},{x},{x * x},{y}" for c, x, y in rows)])
        (path / name).write_text(text + "\n")
    import_csv(Source(path / "rows.csv", "client", "y", path / "test.csv" if test else None), path / out)
    return path / out


@pytest.fixture(params=[False, True], ids=["share", "file"])
def own(request, tmp_path):
    """An imported folder and a run that forgot Ann. Test rows are a share of all rows, or a file of nobody's."""
    test = [("zoe", 3, 0), ("zoe", 4, 1)] if request.param else []
    whole = imported(tmp_path, LINES, "own", test)
    run = train(TRAINS, tmp_path / "run", whole, SECRET)
    return whole, unlearn(run, "fats", request_of(run, ["ann"]), tmp_path / "child", data=whole), test


@pytest.mark.parametrize(("rows", "words"), [(5, "1 test row of theirs stays: "), (10, "2 test rows of theirs stay: ")])
def test_one_test_row_of_hers_stays(tmp_path, rows, words):
    whole = imported(tmp_path, LINES[:rows] + LINES[10:], "own")
    notes = leave_out(whole, ["ann"], tmp_path / "left").notes
    assert any(note.startswith(words) for note in notes), notes


@pytest.mark.parametrize("pruned", [False, True])
def test_rows_are_left_out_and_the_run_still_passes(own, fuaudit, quick, tmp_path, pruned):
    whole, child, test = own
    child = prune(child)[0] if pruned else child
    code, out, err = fuaudit("import", whole, "--without", "ann", "--out", tmp_path / "left")
    assert code == 0, err
    assert ("test rows of theirs stay" in out) is not bool(test)
    found = lineage_of(child, quick, tmp_path / "left")
    assert all("row" not in line for line in in_data(found))
    tensors, before = load_file(tmp_path / "left" / "data.safetensors"), load_file(whole / "data.safetensors")
    gone = before["owners"] == 0
    assert tensors["ids"].tolist() == (~gone).nonzero().flatten().tolist()
    assert tensors["lines"].tolist() == before["lines"][~gone].tolist()
    assert json.loads((tmp_path / "left" / "owners.json").read_text()) == ["", "ben", "cay", "dan"]
    # once more, of what is left
    assert fuaudit("import", tmp_path / "left", "--without", "cay", "--out", tmp_path / "less")[0] == 0
    assert set(load_file(tmp_path / "less" / "data.safetensors")["ids"].tolist()) < set(tensors["ids"].tolist())


def test_what_is_imported_again_without_her_lines_is_told_what_to_do(own, quick, tmp_path):
    """Rows move: that is a FAIL, for nothing tells it from rows dealt to others, but it says what may have happened."""
    _, child, test = own
    again = imported(tmp_path, [line for line in LINES if line[0] != "ann"], "again", test)
    result = verify(child, quick, data=again, budget=0, save=False)
    assert result.verdict == "FAIL"
    assert "Rows have moved: what the run has as row" in result.reason
    assert "fuaudit import FOLDER --without NAME" in result.reason
    replay = next(found for found in result.findings if found.audit == "replay")
    assert replay.details[0].startswith("Rows have moved")
    assert any("Test rows have no ids" in line for line in replay.details) is not bool(test)


@pytest.mark.parametrize("method", ["fats", "retrain"])
@pytest.mark.parametrize("pruned", [False, True])
def test_a_stream_of_requests_passes_with_what_is_left(own, fuaudit, quick, tmp_path, pruned, method):
    """Each time the folder is handed over without who was forgotten: the third request has two folders behind it."""
    whole, child, test = own
    spec, left = of_the_run("stress"), [whole]
    for name, asked in (("ann", None), ("cay", ["cay"]), ("ben", ["ben"])):
        if asked:
            child = unlearn(child, method, request_of(child, asked), tmp_path / f"{name}-gone", data=left[-1])
        left.append(tmp_path / f"without-{name}")
        code, _, err = fuaudit("import", left[-2], "--without", name, "--out", left[-1])
        assert code == 0, err
    child = prune(child)[0] if pruned else child
    result = verify(child, spec, data=left[-1], budget=0, key=SECRET, save=False)
    assert result.verdict == "PASS", result.reason
    hers, both = ((10, 20) if test else (8, 16)) if method == "fats" else (0, 0)
    said = [line for line in result.conclusion.rests_on if "that later requests took" in line]
    assert said == [
        f"Kept rounds of request {number} know no more beside {rows} rows that later requests took: as they are not at "
        "hand, it was tried with retained rows in their place."
        for number, rows in ((2, hers), (1, both))
        if rows
    ]
    whole_again = verify(child, spec, data=whole, budget=0, key=SECRET, save=False)
    assert whole_again.verdict == "PASS"
    assert not any("that later requests took" in line for line in whole_again.conclusion.rests_on)


def test_rows_that_are_lost_do_not_overflow(own, tmp_path):
    """The plans of stress train with rows that are not at hand: that is said, and no overflow."""
    _, child, test = own
    fewer = Tensors(classes=2).load(imported(tmp_path, LINES[:12], "fewer", test))
    found = Stress().examine(Case(gather(child, {"data": fewer}), Keyed(bytes(32))))
    assert found.verdict == "INCONCLUSIVE"
    lost = sum(row >= fewer.size for row in child.plan.retained.owner)
    assert found.shows == f"Nothing was compared of request 1: {lost} rows that it retained are not at hand."
    assert not any("overflow" in line for line in found.details)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["own", "--without", "Ann"], "Did you mean 'ann'"),
        (["own", "--without", "ann", "--seed", "3"], "--seed"),
        (["rows.csv", "--without", "ann"], "is no folder"),
        (["own", *(word for name in CLIENTS for word in ("--without", name))], "nobody is left"),
    ],
)
def test_what_cannot_be_left_out_is_refused(fuaudit, tmp_path, arguments, words):
    imported(tmp_path, LINES, "own")
    code, _, err = fuaudit("import", tmp_path / arguments[0], *arguments[1:], "--out", tmp_path / "left")
    assert (code, words in err) == (2, True), err
    assert not (tmp_path / "left").exists()


def test_a_line_of_the_file_is_found_by_its_index(tmp_path):
    """As docs/data-and-models.md has it: training rows of a client, in the order of the file."""
    whole = imported(tmp_path, LINES[::-1], "own")
    run = train(TRAINS, tmp_path / "run", whole, SECRET)
    rows, names = load_file(whole / "data.safetensors"), json.loads((whole / "owners.json").read_text())
    lines = rows["lines"][rows["owners"] == names.index("cay")].tolist()
    assert lines == sorted(lines)
    for index, line in enumerate(lines):
        (row,) = request_of(run, samples=[("cay", index)]).samples
        assert rows["lines"][row] == line
