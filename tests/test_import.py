"""`fuaudit import`: a CSV file becomes a folder that trains; what cannot be used is refused by line and column."""

import json
import shutil
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import load_file

from fuaudit import load_run
from fuaudit.cli.commands import cli
from fuaudit.data.tensors import Tensors
from fuaudit.errors import StorageError, UsageError
from fuaudit.formats.files import write_folder
from fuaudit.importing import csv_table
from fuaudit.importing.import_csv import Source, chosen, import_csv, step_size
from fuaudit.importing.own_rows import import_own

NINES = Path(__file__).parents[1] / "examples/nines.toml"
HEADER = "hospital,age,dose,label"
ROWS = [f"h{row % 3},{20 + row},{row / 8},{'sick' if row % 2 else 'healthy'}" for row in range(12)]


def written(tmp_path, *rows, header=HEADER, name="data.csv", encoding="utf-8", end="\n"):
    path = tmp_path / name
    path.write_bytes((end.join([header, *rows]) + end).encode(encoding))
    return path


def imported(path, out="out", **options):
    made = import_csv(Source(path, "hospital", "label", **options), path.parent / out)
    return made, load_file(made.folder / "data.safetensors"), json.loads((made.folder / "import.json").read_text())


def refused(path, **options):
    with pytest.raises(UsageError) as found:
        imported(path, **options)
    assert [item for item in path.parent.iterdir() if item.is_dir()] == []
    return str(found.value)


def test_rows_classes_and_owners(tmp_path):
    made, tensors, record = imported(written(tmp_path, *ROWS))
    assert made.classes == ("healthy", "sick")
    assert made.owners == ("h0", "h1", "h2")
    assert json.loads((made.folder / "classes.json").read_text()) == ["healthy", "sick"]
    assert record["rows"] == 9
    assert record["test_rows"] == 3
    assert record["sha256"] == sha256((tmp_path / "data.csv").read_bytes()).hexdigest()
    assert tensors["inputs"].dtype == np.float64
    for part in ("", "test_"):
        for line, numbers, target in zip(*(tensors[part + n] for n in ("lines", "inputs", "targets")), strict=True):
            cells = ROWS[line - 2].split(",")
            assert [*numbers] == [*map(float, cells[1:3])]
            assert made.classes[target] == cells[3]
    assert [made.owners[owner] for owner in tensors["owners"]] == [ROWS[n - 2][:2] for n in tensors["lines"]]
    data = Tensors(2).load(made.folder)
    assert data.owner_names == made.owners
    assert [made.owners[owner] for owner in data.test_owners] == [ROWS[n - 2][:2] for n in tensors["test_lines"]]
    assert any(note.endswith("; no request removes them") for note in made.notes)


def test_the_choice_of_test_rows_is_a_rule(tmp_path):
    owner = np.array([0, 1, 0, 0, 1, 2])
    found = chosen(owner, 0.5, 7)
    assert found.tolist() == chosen(owner, 0.5, 7).tolist()
    assert not found[5]  # a client's only row stays
    places = sorted([0, 2, 3], key=lambda place: sha256(f"7:{place}".encode()).digest())
    assert [place for place in (0, 2, 3) if found[place]] == sorted(places[:2])
    assert any(chosen(owner, 0.5, seed).tolist() != found.tolist() for seed in range(5))
    with pytest.raises(UsageError, match="no client has enough rows"):
        chosen(np.array([0, 1]), 0.5, 0)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_forms_of_files(tmp_path, delimiter, encoding, end):
    rows = [row.replace(",", delimiter).replace("h0", '"h ""0""\u00e9"') for row in ROWS]
    path = written(tmp_path, *rows, "", header=HEADER.replace(",", delimiter), encoding=encoding, end=end)
    made, _, record = imported(path)
    assert made.owners == ('h "0"\u00e9', "h1", "h2")
    assert record["inputs"] == ["age", "dose"]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("h1,,1,sick", "line 14, column 'age': the cell is empty"),
        (" ,1,1,sick", "line 14, column 'hospital': the cell is empty"),
        ("h1,1,1,", "line 14, column 'label': the cell is empty"),
        ("h1,1,nan,sick", "line 14, column 'dose': 'nan' is no number"),
        ("h1,1,inf,sick", "line 14, column 'dose': 'inf' is no number"),
        ("h1,1,1_0,sick", "line 14, column 'dose': '1_0' is no number"),
        ("h1,1,\u0661,sick", "column 'dose'"),
        ('h1,1,"1,5",sick', "Write decimals with a point"),
        ("h1,1,1e999,sick", "line 14, column 'dose': 1e999 is too large for float64"),
        (f"{'1' * 5_000},1,1,sick", "line 14, column 'hospital'"),
        (f"h1,{'0' * 5_000}9007199254740993,1,sick", "exactly"),
        ("h1,9007199254740993,1,sick", "line 14, column 'age': float64 cannot hold 9007199254740993 exactly"),
        ("h1,1,sick", "line 14 has 3 cells, and the header names 4 columns"),
        ("h1,1,1,sick,1", "line 14 has 5 cells"),
        ('h1,"1"1,1,sick', "line 14 cannot be read"),
        ('h1,"1,1,sick', "line 14 cannot be read"),
        ("h\x071,1,1,sick", "line 14, column 'hospital'"),
        ("h1,1,1,1.5", "line 14, column 'label': 1.5 is no class"),
        ("\nh1,1,1,sick", "line 14 is empty, and rows follow"),
    ],
)
def test_a_bad_line_is_refused_by_number_and_column(tmp_path, row, said):
    assert said in refused(written(tmp_path, *ROWS, row))


def test_the_first_bad_line_is_named(tmp_path):
    rows = [*ROWS]
    rows[5], rows[3] = "h1,x,1,sick", "h1,1,y,sick"
    assert "line 5, column 'dose'" in refused(written(tmp_path, *rows))


def test_bad_cells_are_told_at_once_up_to_ten(tmp_path):
    rows = [*ROWS, ",1,y,sick", "h1,,1,sick"]
    said = refused(written(tmp_path, *rows))
    assert all(f"line {place}" in said for place in ("14, column 'hospital'", "14, column 'dose'", "15, column 'age'"))
    assert "and 2 more" in refused(written(tmp_path, *ROWS, *["h1,,1,sick"] * 12))


def test_lines_are_counted_in_parts_and_over_breaks_in_quotes(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_table, "ROWS_AT_ONCE", 5)
    path = written(tmp_path, '"h\n0",1,1,sick', *ROWS, "h1,x,1,sick")
    assert "line 16, column 'age'" in refused(path)
    _, tensors, _ = imported(written(tmp_path, *ROWS), share=0.5)
    assert sorted([*tensors["lines"], *tensors["test_lines"]]) == [*range(2, 14)]


def test_a_column_of_words_is_refused_unless_it_is_left_out(tmp_path):
    path = written(tmp_path, *(f"{row},{'mf'[at % 2]}" for at, row in enumerate(ROWS)), header=HEADER + ",sex")
    said = refused(path)
    assert "line 2, column 'sex': the column holds words, here 'm'" in said
    assert "--ignore 'sex'" in said
    made, _, record = imported(path, ignored=("sex",))
    assert record["ignored"] == ["sex"]
    assert any("left out, as asked: 'sex'" in note for note in made.notes)


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("clinic,age,dose,label", "names no column 'hospital'"),
        ("hospital,age,age,label", "names two columns 'age'"),
        ("hospital,,dose,label", "column 2 has no name"),
    ],
)
def test_headers(tmp_path, header, said):
    assert said in refused(written(tmp_path, *ROWS, header=header))


def test_files_that_cannot_be_used(tmp_path):
    (tmp_path / "empty.csv").write_bytes(b"")
    assert "is empty" in refused(tmp_path / "empty.csv")
    assert "has a header and no rows" in refused(written(tmp_path))
    assert "line 3 is not in UTF-8" in refused(written(tmp_path, ROWS[0], "h\u00e9,1,1,sick", encoding="latin-1"))
    assert "there is no file" in refused(tmp_path / "dat.csv")
    assert "two clients" in refused(written(tmp_path, *(row.replace("h1", "h0").replace("h2", "h0") for row in ROWS)))
    assert "two classes" in refused(written(tmp_path, *(row.replace("sick", "healthy") for row in ROWS)))
    assert "are one number" in refused(written(tmp_path, *ROWS[:6], "h0,1,1,1", "h1,1,1,1.0"))


def test_names_that_are_numbers_are_in_the_order_of_numbers(tmp_path):
    rows = [f"{row % 4 * 5},{row},1,{10 - row % 2 * 7}" for row in range(24)]
    made, tensors, _ = imported(written(tmp_path, *rows))
    assert made.owners == ("0", "5", "10", "15")
    assert made.classes == ("3", "10")
    assert {*tensors["targets"].tolist()} == {0, 1}


def test_float32_says_what_it_rounds(tmp_path):
    path = written(tmp_path, *ROWS, "h0,0.1,1,sick")
    _, tensors, record = imported(path, dtype="float32")
    assert tensors["inputs"].dtype == np.float32
    assert record["rounded"] == 1
    assert "float32 cannot hold 16777217" in refused(written(tmp_path / "out", "h0,16777217,1,sick"), dtype="float32")


def test_clients_whose_names_look_alike_are_told(tmp_path):
    """One hospital under two names is two clients, and forgetting one leaves the other."""
    names = ["Caf\u00e9 1", "Cafe\u0301 1", "caf\u00e9  1", "Cafe 1"]
    rows = [f"{name},{at},1,{'ab'[at % 2]}" for name in names for at in range(4)]
    (note,) = (note for note in imported(written(tmp_path, *rows))[0].notes if "look alike" in note)
    assert note.endswith("are different clients: 'Cafe\\u0301 1', 'Caf\\xe9 1', 'caf\\xe9  1'")
    assert not any("look alike" in note for note in imported(written(tmp_path, *ROWS), "other")[0].notes)


def test_no_name_that_looks_alike_is_left_out_in_silence(tmp_path):
    names = [f"{'a' * place}{'A' * (25 - place)}" for place in range(25)]
    rows = [f"{name},{at},1,{'ab'[at % 2]}" for name in names for at in range(4)]
    (note,) = (note for note in imported(written(tmp_path, *rows))[0].notes if "look alike" in note)
    assert note.count("'") == 40
    assert note.endswith(" and 5 more")


def test_how_many_rows_a_client_has(tmp_path):
    assert (
        imported(written(tmp_path, *ROWS))[0].notes[0].startswith("9 training rows of 3 clients (3 each), 3 test rows")
    )
    made, _, _ = imported(written(tmp_path, *ROWS, *ROWS[:1] * 4), "more")
    assert "3 clients (3 to 6 each; h1 has the fewest)" in made.notes[0]


def test_rows_that_repeat_are_counted_and_kept(tmp_path):
    path = written(tmp_path, *ROWS, "h0,1,1,sick", "h0,1,1,sick", "h1,1,1,sick")
    test = written(tmp_path, "1,1,sick", "2,2,sick", header="age,dose,label", name="test.csv")
    made, tensors, record = imported(path, test=test)
    assert len(tensors["inputs"]) == 15
    assert (record["repeated"], record["repeated_elsewhere"], record["test_rows_in_training"]) == (2, 1, 1)
    assert any("2 training rows repeat an earlier one" in note for note in made.notes)


@pytest.mark.parametrize(("repeats", "words"), [("h0", "; it"), ("h1", ", of another client; it")])
def test_one_row_that_repeats_is_one(tmp_path, repeats, words):
    path = written(tmp_path, *ROWS, f"{repeats},20,0,healthy")
    test = written(tmp_path, "20,0,healthy", header="age,dose,label", name="test.csv")
    made, _, _ = imported(path, test=test)
    assert f"1 training row repeats an earlier one{words} is kept" in made.notes
    assert "1 test row equals a training row; it is kept" in made.notes
    assert ", 1 test row, " in made.notes[0]


def test_a_file_of_test_rows_needs_the_same_columns(tmp_path):
    path = written(tmp_path, *ROWS)
    test = written(tmp_path, "sick,2,1,h9", header="label,dose,age,hospital", name="test.csv")
    _, tensors, _ = imported(path, test=test)
    assert tensors["test_inputs"].tolist() == [[1, 2]]
    with pytest.raises(UsageError, match="lacks the column 'dose'"):
        imported(path, "other", test=written(tmp_path, "1,sick", header="age,label", name="less.csv"))
    more = written(tmp_path, "1,1,1,sick", header="age,dose,more,label", name="more.csv")
    with pytest.raises(UsageError, match="has a column 'more'"):
        imported(path, "other", test=more)


def test_nothing_is_overwritten(tmp_path):
    path = written(tmp_path, *ROWS)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/kept").write_text("kept")
    with pytest.raises(UsageError, match="is not overwritten"):
        imported(path, "full")
    with pytest.raises(UsageError, match="is not overwritten"):
        import_own(path, imported(path)[0].folder, tmp_path / "full")
    shutil.rmtree(tmp_path / "out")
    with pytest.raises(StorageError):
        write_folder(tmp_path / "full", {"new": b""})
    assert sorted(item.name for item in tmp_path.iterdir()) == ["data.csv", "full"]
    assert [item.name for item in (tmp_path / "full").iterdir()] == ["kept"]


def test_step_sizes_follow_the_size_of_inputs():
    assert step_size(np.zeros((3, 2))) == 0.1
    assert step_size(np.full((3, 2), 10.0)) == 0.001
    assert step_size(np.full((3, 2), 1e300)) == 1e-12


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ('["a"]', "lacks the name of an owner"),
        ('["a", ""]', "lacks the name of an owner"),
        ('["a", "a"]', "has the name 'a' twice"),
        ('{"a": 1}', "is no list of names"),
        ('["a", " b"]', "is no list of names"),
        ("[", "is no JSON"),
    ],
)
def test_names_of_owners_must_fit(tmp_path, names, said):
    made, _, _ = imported(written(tmp_path, *(row for row in ROWS if "h2" not in row)))
    (made.folder / "owners.json").write_text(names)
    with pytest.raises(UsageError, match=said):
        Tensors(2).load(made.folder)


def test_what_is_printed_works(tmp_path, monkeypatch):
    written(tmp_path, *ROWS * 3)
    monkeypatch.chdir(tmp_path)
    arguments = ["import", "data.csv", "--client", "hospital", "--label", "label", "--out", "own", "--json"]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert "training rows of" in told["notes"][0]
    train, *after = told["next"]
    done = CliRunner().invoke(cli, [*train.split()[1:], "--json"])
    trained = json.loads(done.stdout)
    assert load_run(tmp_path / "runs/own").client("h0") == 0
    assert trained["next"] == [command.replace("HEX", trained["commitment"]) for command in after]
    unlearn, verify, report = trained["next"]
    assert verify == f"fuaudit verify runs/own-fats --data own --commitment {trained['commitment']} --client h0"
    assert report == "fuaudit report runs/own-fats"
    said = CliRunner().invoke(cli, ["verify", "runs/own", "--data", "own", "--budget", "0"]).stdout
    assert f"unlearn first: {unlearn}\n" in said
    done = CliRunner().invoke(cli, unlearn.split()[1:])
    assert done.exit_code == 0, done.output
    assert load_run(tmp_path / "runs/own-fats").request.clients == (0,)


def test_training_says_when_a_constant_answer_is_as_good(tmp_path, monkeypatch):
    written(tmp_path, *(f"h{at % 3},{at % 7},1,{'sick' if at % 4 else 'healthy'}" for at in range(60)))
    monkeypatch.chdir(tmp_path)
    arguments = ["import", "data.csv", "--client", "hospital", "--label", "label", "--out", "own"]
    assert CliRunner().invoke(cli, arguments).exit_code == 0
    secret = ["--secret", "07" * 32]  # few rows: under other secrets training may do better by luck
    said = CliRunner().invoke(cli, ["train", "own/config.toml", "--data", "own", "--out", "run", *secret]).output
    targets = load_file("own/data.safetensors")["test_targets"]
    share = max(np.bincount(targets)) / len(targets)
    assert load_run(tmp_path / "run").metrics[-1]["test_accuracy"] <= share
    assert f"no better on test rows than always answering class 1, which is right in {share:.4f}" in said
    assert "no better" not in CliRunner().invoke(cli, ["train", str(NINES), "--out", "nines"]).output


def test_columns_are_divided_as_asked_and_it_is_recorded(tmp_path):
    path = written(tmp_path, *ROWS)
    _, plain, _ = imported(path, "plain")
    made, tensors, record = imported(path, divided={"age": "100"})
    assert record["divided"] == {"age": "100"}
    assert "divided, as asked: 'age' by 100" in made.notes
    for part in ("inputs", "test_inputs"):
        assert np.array_equal(tensors[part], plain[part] / [100, 1])
    for name, constant, said in (
        ("aeg", "2", "Did you mean 'age'"),
        *(("age", text, "above 0") for text in ("0", "x", "", "-1", "nan", "1e309")),
        *(("dose", text, "above 0") for text in ("1e39", "1e-46")),
        ("age", "1e-38", "a quotient is too large"),
        ("dose", "3e38", "a quotient is too small"),
    ):
        with pytest.raises(UsageError, match=said):
            imported(path, "other", divided={name: constant}, dtype="float32")


def test_a_hospital_checks_its_receipt_with_its_own_file(tmp_path, monkeypatch):
    """Her file has one client, one class, other places of rows and columns, and a column that was left out."""
    rows = [f"h{at % 3},{20 + at},{at / 8},{'sick' if at % 3 else 'healthy'},m" for at in range(36)]
    written(tmp_path, *rows, header=HEADER + ",sex")
    own = [row.split(",") for row in rows if row.startswith("h1")][::-1]
    written(
        tmp_path, *(f"{label},{dose},{age}" for _, age, dose, label, _ in own), header="label,dose,age", name="1.csv"
    )
    monkeypatch.chdir(tmp_path)

    def fuaudit(*arguments, expected=0):
        done = CliRunner().invoke(cli, list(arguments))
        assert done.exit_code == expected, done.output
        return done.output

    columns = ("--client", "hospital", "--label", "label", "--ignore", "sex", "--divide", "age=100")
    fuaudit("import", "data.csv", *columns, "--dtype", "float32", "--out", "all")
    fuaudit("train", "all/config.toml", "--data", "all", "--out", "run", "--quiet")
    commitment = load_run(tmp_path / "run").commitment
    fuaudit("receipt", "run", "--client", "h1", "--out", "h1.json")
    (tmp_path / "sent").mkdir()
    for name in ("import.json", "classes.json"):
        (tmp_path / "sent" / name).write_bytes((tmp_path / "all" / name).read_bytes())
    said = fuaudit("import", "1.csv", "--like", "sent", "--out", "own")
    assert "fuaudit receipt --check" in said
    done = [
        f"{what}, as the record says that was sent: {to}"
        for what, to in (("left out", "'sex'"), ("divided", "'age' by 100"))
    ]
    assert "\n  ".join(done) in said
    check = ("receipt", "--data", "own", "--commitment", commitment, "--check", "h1.json")
    said = fuaudit(*check)
    assert "as committed: 10 of 10 rows of 'h1'" in said
    assert all(f"  {what}; nothing binds that record" in said for what in done)  # who sends it says what her rows are
    assert "2 rows at hand are in no leaf" in said
    fuaudit("receipt", "run", "--client", "h2", "--out", "h2.json")
    assert "not found at hand" in fuaudit(*check[:-1], "h2.json", expected=1)


def test_own_rows_are_read_as_recorded_or_refused(tmp_path):
    imported(written(tmp_path, *ROWS), "all")
    for row, header, said in (
        ("h0,1,1,well", HEADER, "line 2, column 'label': 'well' is no class there"),
        ("h0,1,sick", "hospital,age,label", "lacks the column 'dose'"),
    ):
        own = written(tmp_path, row, header=header, name="own.csv")
        with pytest.raises(UsageError, match=said):
            import_own(own, tmp_path / "all", tmp_path / "own")
    own = written(tmp_path, ROWS[0], name="own.csv")
    with pytest.raises(UsageError, match="there is no file"):
        import_own(own, tmp_path, tmp_path / "own")
    made = import_own(own, tmp_path / "all", tmp_path / "own")
    with pytest.raises(UsageError, match="no record of an import of all"):
        import_own(own, made.folder, tmp_path / "other")
    record = json.loads((tmp_path / "all/import.json").read_text())
    for wrong in ({"divided": {"age": 100}}, {"ignored": [1]}, {"dtype": "int64"}, {"inputs": []}):
        (tmp_path / "all/import.json").write_text(json.dumps(record | wrong))
        with pytest.raises(UsageError, match="no record of an import of all"):
            import_own(own, tmp_path / "all", tmp_path / "other")
    done = CliRunner().invoke(
        cli, ["import", str(own), "--like", str(made.folder), "--out", "x", "--test-share", "0.5"]
    )
    assert "--test-share would say it too" in str(done.exception)


def test_a_choice_that_nothing_follows_from_is_refused(tmp_path):
    path = str(written(tmp_path, *ROWS))
    arguments = [
        "--client",
        "hospital",
        "--label",
        "label",
        "--out",
        str(tmp_path / "x"),
        "--test",
        path,
        "--seed",
        "1",
    ]
    done = CliRunner().invoke(cli, ["import", path, *arguments])
    assert isinstance(done.exception, UsageError)
