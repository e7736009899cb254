"""The public face: the verbs as functions, what they take, and errors that say what is expected and how to make it."""

import importlib
import json
import os
import subprocess
from dataclasses import replace

import pytest
import torch
from click.shell_completion import BashComplete

import fuaudit
from fuaudit import load_run, prove, report, train, unlearn, verify
from fuaudit.cli.commands import cli
from fuaudit.errors import EvidenceError, UsageError
from fuaudit.plans import Request
from fuaudit.runs.listing import runs_in
from fuaudit.verification.spec import Check, read_spec

FILES = Check("the files are whole", {"use": "integrity"})


def files_only():
    """A spec that looks at files alone."""
    return replace(read_spec("client-erasure"), id="files-only", asks="run", alpha=None, checks=(FILES,), origin="")


@pytest.fixture(scope="module")
def made(tiny, tmp_path_factory):
    """A folder with a training run and its child by noop."""
    folder = tmp_path_factory.mktemp("face")
    run = tiny(folder / "parent")
    unlearn(run, "noop", Request.of([1]), folder / "child", data=tiny.dataset)
    return folder


@pytest.fixture
def verified(made, tiny, tmp_path):
    """Findings in a folder of their own."""
    return verify(made / "child", files_only(), key=bytes(32), data=tiny.dataset)


def test_the_face_is_what_it_says():
    """Each name is there, is a function of its own module, and the docstring tells of it."""
    assert fuaudit.__all__ == sorted(fuaudit._HOME)
    for name, home in fuaudit._HOME.items():
        assert getattr(fuaudit, name) is getattr(importlib.import_module(home), name)
        assert f"``{name}``" in fuaudit.__doc__
        assert name in dir(fuaudit)
    with pytest.raises(AttributeError, match="no attribute 'retrain'"):
        _ = fuaudit.retrain


# reports


def test_a_report_is_made_of_whatever_has_findings(made, verified, tmp_path):
    beside = report(verified, "md")
    assert beside.parent == made / "child.audit"
    content = beside.read_bytes()
    assert b"files-only" in content
    for of in (made / "child", str(made / "child"), load_run(made / "child"), verified.path, str(verified.path)):
        written = report(of, "md", tmp_path / "report.md")
        assert written == tmp_path / "report.md"
        assert written.read_bytes() == content
        written.unlink()


def test_findings_that_were_not_stored_need_a_place(made, tiny, tmp_path):
    loose = verify(made / "child", files_only(), save=False, data=tiny.dataset)
    with pytest.raises(UsageError, match="were not stored"):
        report(loose, "md")
    assert b"files-only" in report(loose, "md", tmp_path / "loose.md").read_bytes()


def test_findings_in_a_strange_place_name_no_run(verified, tmp_path):
    away = tmp_path / verified.path.name
    away.write_bytes(verified.path.read_bytes())
    with pytest.raises(UsageError, match=r"lies in no folder RUN\.audit"):
        report(away, "md")


def test_a_run_without_findings_says_how_to_make_them(made):
    with pytest.raises(EvidenceError, match="no findings yet"):
        report(made / "parent", "md")


def test_the_command_writes_elsewhere_too(made, verified, fuaudit, tmp_path):
    code, out, _ = fuaudit("report", made / "child", "--format", "md", "--out", tmp_path / "here.md")
    assert (code, out.strip()) == (0, str(tmp_path / "here.md"))
    assert (tmp_path / "here.md").is_file()


# what the verbs take


def test_the_folder_of_the_data_may_be_text(tiny, tmp_path):
    data = tiny.dataset
    torch_file = {"inputs": data.inputs, "targets": data.targets, "test_inputs": data.test_inputs}
    from fuaudit.data.tensors import Tensors
    from fuaudit.formats.forms import tensor_bytes

    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / Tensors.file).write_bytes(tensor_bytes(torch_file | {"test_targets": data.test_targets}))
    run = train(tiny.tables, str(tmp_path / "run"), data=str(tmp_path / "rows"), secret=bytes(32))
    assert run.rounds_executed == 2
    child = unlearn(str(run.path), "fats", Request.of([0]), str(tmp_path / "child"), data=str(tmp_path / "rows"))
    assert child.is_child


@pytest.mark.parametrize("rows", [torch.utils.data.TensorDataset(torch.zeros(3, 2)), {"inputs": []}, [1]])
def test_rows_of_another_type_are_told_how_to_be_made(tiny, tmp_path, rows):
    with pytest.raises(UsageError, match=r"neither a folder nor rows.*\n.*Dataset\(inputs, targets"):
        train(tiny.tables, tmp_path / "run", data=rows)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("request_", [{"clients": [0]}, (0,), "client 0", None])
def test_a_request_of_another_type_is_told_how_to_be_made(made, tmp_path, request_):
    with pytest.raises(UsageError, match=r"not a Request\n.*fuaudit\.request_of\(run, clients="):
        unlearn(made / "parent", "fats", request_, tmp_path / "child")


def test_a_verification_is_shown_on_one_line(verified):
    assert len(repr(verified)) < 500
    assert "\n" not in repr(verified)
    assert "child" in repr(verified)


# proofs


def test_a_proof_is_what_the_command_prints(fuaudit):
    found = prove("fats-as-printed")
    assert found.exact is False
    assert [str(proof.result.total_variation) for proof in found.proofs] == ["0", "1/8"]
    printed = json.loads(fuaudit("prove", "fats-as-printed", "--json")[1])
    assert printed["not_asked"] == ["mixed"]  # what it left out where nothing was asked
    assert printed == json.loads(json.dumps(found.as_json()))
    assert prove("fats", "sample", rounds=2).exact is True


def test_a_sweep_is_what_the_command_prints(fuaudit):
    found = prove("fats-as-printed", "sample", up_to=2, leaves=2000)
    assert found.exact is False
    said = fuaudit("prove", "fats-as-printed", "--request", "sample", "--up-to", 2, "--leaves", 2000, "--json")
    assert (said[0], json.loads(said[1])) == (1, found.as_json())
    assert prove("fats", up_to=2, leaves=1).exact is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"unlearner": "finetune"}, "edits models"),
        ({"unlearner": "fats", "up_to": 2, "rounds": 1}, "rounds would say which one"),
        ({"unlearner": "fats", "round": 1}, "takes no round"),
        ({"unlearner": "fatz"}, "Did you mean 'fats'"),
    ],
)
def test_what_cannot_be_proved_is_said(given, said):
    with pytest.raises(UsageError, match=said):
        prove(**given)


# a list of runs


def test_runs_are_listed_as_their_files_tell(made, verified, fuaudit):
    code, out, _ = fuaudit("runs", made)
    assert code == 0
    first, second = out.splitlines()
    assert first.split()[:2] == ["child", "unlearning"]
    assert "of parent by noop: client 1" in first
    assert str(verified.verdict) in first
    assert second.split() == ["parent", "training"]
    assert fuaudit("runs", made, "--quiet")[1].split() == ["child", "parent"]
    assert fuaudit("history", made / "parent", "--quiet")[1] == f"{made / 'parent'} was never verified\n"


def test_a_list_names_what_cannot_be_read(tiny, tmp_path):
    for name in ("interrupted", "strange", "old", "whole"):
        tiny(tmp_path / name)
    (tmp_path / "interrupted" / "manifest.json").unlink()
    (tmp_path / "strange" / "run.json").write_text("{")
    manifest = tmp_path / "old" / "manifest.json"
    manifest.write_text(manifest.read_text().replace("fuaudit run 2", "fuaudit run 1"))
    (tmp_path / "nothing").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "whole")
    found = {row.name: row.state for row in runs_in(tmp_path)}
    assert list(found) == ["interrupted", "old", "strange", "whole"]
    assert (found["interrupted"], found["whole"]) == ("interrupted", "complete")
    assert "is in the format 'fuaudit run 1', and fuaudit " in found["old"]
    assert "not valid JSON" in found["strange"]


def test_a_list_of_nothing_says_so(fuaudit, tmp_path):
    assert fuaudit("runs", tmp_path)[:2] == (0, f"no run in {tmp_path}\n")
    code, _, err = fuaudit("runs", tmp_path / "missing")
    assert (code, "Give the folder that holds runs" in err) == (4, True)


# completion


def offered(*words):
    *arguments, begun = map(str, words)
    return [
        item.value for item in BashComplete(cli, {}, "fuaudit", "_FUAUDIT_COMPLETE").get_completions(arguments, begun)
    ]


def test_runs_are_offered_to_a_shell(made, monkeypatch):
    (made / "others").mkdir(exist_ok=True)
    assert offered("show", f"{made}{os.sep}") == [str(made / "child"), f"{made / 'others'}/", str(made / "parent")]
    assert offered("verify", f"{made / 'pa'}") == [str(made / "parent")]
    monkeypatch.chdir(made)
    assert offered("prune", "ch") == ["child"]
    assert offered("prune", "no such/") == []


def test_names_are_offered_to_a_shell(made):
    assert offered("prove", "fats") == ["fats", "fats-as-printed"]
    assert offered("unlearn", made / "parent", "--with", "no") == ["noop"]
    assert "scaffold" in offered("plugins", "sc")
    assert offered("verify", made / "child", "--spec", "client") == ["client-erasure"]
    assert "runs" in offered("ru")


def test_clients_are_offered_where_they_have_names(tmp_path):
    (tmp_path / "clients.json").write_text('{"names": {"0": "ann", "1": "bob"}, "salts": []}')
    assert offered("unlearn", tmp_path, "--client", "a") == ["ann"]
    (tmp_path / "clients").mkdir()
    (tmp_path / "clients" / "secrets.json").write_text((tmp_path / "clients.json").read_text())
    (tmp_path / "clients.json").write_text('{"names": null, "salts": null}')
    assert offered("unlearn", tmp_path, "--client", "b") == ["bob"]
    (tmp_path / "clients.json").write_text('{"names": {"0": "a\\n$(id)", "1": "a\\u001b[2J"}}')
    assert offered("unlearn", tmp_path, "--client", "a") == []
    (tmp_path / "clients.json").write_text("[")
    assert offered("unlearn", tmp_path, "--client", "a") == []


@pytest.mark.parametrize("name", ["x y", "x$(id)`id`;id|*?!#~", "x'\"\\ \\\\", "x\u00e9,z=(1)[a]{b,c}<>&"])
def test_bash_gets_names_as_one_word_each(tmp_path, monkeypatch, name):
    """By click's own script: what it puts on the line is read as a command is."""
    (tmp_path / "clients.json").write_text(json.dumps({"names": {"0": name}}))
    found = BashComplete(cli, {}, "fuaudit", "_FUAUDIT_COMPLETE")
    words = {"COMP_WORDS": f"fuaudit unlearn {tmp_path} --client x", "COMP_CWORD": "4"}
    for key, value in (words | {"_FUAUDIT_COMPLETE": "bash_complete"}).items():
        monkeypatch.setenv(key, value)
    script = found.source().partition("_fuaudit_completion_setup()")[0]
    script += """env() { printf '%s\\n' "$RESPONSE"; }; _fuaudit_completion; eval "printf '[%s]' ${COMPREPLY[*]}\""""
    given = os.environ | {"RESPONSE": found.complete()}
    done = subprocess.run(["bash", "-c", script], env=given, capture_output=True, check=True)
    assert done.stdout.decode() == f"[{name}]"
