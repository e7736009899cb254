"""Input made to hurt: sizes, counts, depths and names that no honest file has. Words in bounded time, never a crash."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tests_support import sealed, told

from fuaudit import load_run, train, unlearn
from fuaudit.config import resolve
from fuaudit.data.tensors import Tensors
from fuaudit.errors import EvidenceError, UsageError
from fuaudit.formats.forms import MAX_JSON_BYTES, pretty_json, toml_bytes
from fuaudit.models.dense import Mlp
from fuaudit.plans import Request
from fuaudit.runs.layout import form_of
from fuaudit.text import command as proposed
from fuaudit.text import counted, is_printable, printable

SECONDS = 60
"""Generous: this machine may be shared. Before, these took minutes, or the memory."""


@contextmanager
def in_time():
    """Bounds what happens inside, not what a test prepares or clears away."""

    def late(number, frame):
        raise TimeoutError("it took too long")

    handler = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)


@pytest.fixture(scope="module")
def family(tiny, tmp_path_factory):
    root = tmp_path_factory.mktemp("honest")
    unlearn(tiny(root / "parent"), "fats", Request.of([1]), root / "child", data=tiny.dataset)
    return root


@pytest.fixture
def child(family, tmp_path):
    return shutil.copytree(family / "child", tmp_path / "child")


def refused(path, fuaudit):
    """Every command that opens a run says so in words, with exit code 4."""
    for command in ("show", "verify"):
        with in_time():
            code, out, err = fuaudit(command, path)
        assert (code, out) == (4, ""), (command, code, out, err)
        assert err.startswith("error: ")
        assert "Traceback" not in err
        assert all(is_printable(line) for line in err.splitlines())


def reconfigured(path, table, **options):
    """Other options in config.toml, in the form of the format."""
    tables = load_run(path).config.tables()
    tables[table] |= options
    (path / "config.toml").write_bytes(toml_bytes(tables))


def changed(path, name, **fields):
    table = json.loads((path / name).read_bytes())
    (path / name).write_bytes(pretty_json(table | fields))


def test_a_sparse_file_of_40_gib(child, fuaudit):
    with (child / "model.safetensors").open("r+b") as file:
        file.truncate(40 * 2**30)
    manifest = json.loads((child / "manifest.json").read_bytes())
    manifest["files"]["model.safetensors"]["size"] = 40 * 2**30
    (child / "manifest.json").write_bytes(pretty_json(manifest))
    refused(child, fuaudit)


@pytest.mark.parametrize("name", ["plan.json", "config.toml", "ledger.jsonl", "manifest.json"])
def test_a_sparse_text(child, fuaudit, name):
    with (child / name).open("r+b") as file:
        file.truncate(MAX_JSON_BYTES + 1)
    refused(child, fuaudit)


@pytest.mark.parametrize("option", ["rounds", "steps", "cohort", "batch"])
def test_counts_as_large_as_they_can_be(child, fuaudit, option):
    reconfigured(child, "learner", **{option: 2**31 - 1})
    if option == "rounds":
        changed(child, "run.json", rounds_executed=2**31 - 1)
    sealed(child)
    refused(child, fuaudit)


@pytest.mark.parametrize("kept", [2**31 - 2, 2**31 - 1, 2**52])
def test_kept_rounds_as_many_as_there_can_be(child, fuaudit, kept):
    reconfigured(child, "learner", rounds=2**31 - 1)
    changed(child, "run.json", rounds_executed=2**31 - 1, first_change=[2**31 - 1, 0])

    def edit(events):
        kinds = {"unlearning": {"kept_rounds": kept, "first_change": [2**31 - 1, 0]}}
        return [event | kinds.get(event["event"], {}) for event in events if event["event"] != "round"]

    with pytest.raises(EvidenceError):
        told(child, edit)
    refused(child, fuaudit)


def test_training_refuses_what_opening_refuses(tiny, tmp_path):
    for option in ("rounds", "steps"):
        tables = tiny.tables | {"learner": tiny.tables["learner"] | {option: 2**31 - 1}}
        with pytest.raises(UsageError, match="cannot be executed"):
            train(tables, tmp_path / "run", data=tiny.dataset)
    assert not (tmp_path / "run").exists()


def test_twenty_thousand_layers(child, fuaudit):
    with pytest.raises(UsageError, match="20,000 layers"):
        Mlp(hidden=(1,) * 20_000)
    tables = load_run(child).config.tables()
    tables["model"] = {"use": "mlp", "hidden": [1] * 20_000}
    (child / "config.toml").write_bytes(toml_bytes(tables))
    sealed(child)
    refused(child, fuaudit)


def test_three_thousand_nested_folders(child, fuaudit):
    here = os.getcwd()
    os.chdir(child)
    try:
        for _ in range(3000):
            os.mkdir("d")
            os.chdir("d")
    finally:
        os.chdir(here)
    try:
        refused(child, fuaudit)
    finally:
        subprocess.run(["rm", "-rf", str(child / "d")], check=True)


def test_deep_json(child, fuaudit):
    (child / "plan.json").write_bytes(b"[" * 100_000 + b"]" * 100_000)
    manifest_fits(child, "plan.json")
    refused(child, fuaudit)


def manifest_fits(path, name):
    from fuaudit.runs.manifest import entry_of

    manifest = json.loads((path / "manifest.json").read_bytes())
    manifest["files"][name] = entry_of((path / name).read_bytes())
    (path / "manifest.json").write_bytes(pretty_json(manifest))


@pytest.mark.parametrize("name", ["metrics.json", "ledger.jsonl", "manifest.json", "checkpoints/000001.safetensors"])
def test_a_pipe_in_a_run(child, fuaudit, name):
    (child / name).unlink()
    os.mkfifo(child / name)
    refused(child, fuaudit)


def test_memory_that_is_not_there(child, fuaudit, monkeypatch):
    def too_much(*arguments):
        raise MemoryError

    monkeypatch.setattr("fuaudit.runs.run.check_files", too_much)
    refused(child, fuaudit)


def test_a_header_that_claims_everything(child, fuaudit):
    """Names and shapes are compared with the size of the file before anything is made of them."""
    text = json.dumps({"vector": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}).encode()
    path = child / "checkpoints" / "000002.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    sealed(child)
    refused(child, fuaudit)


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_data_that_is_no_regular_file(child, fuaudit, tmp_path, kind):
    root = tmp_path / "data"
    root.mkdir()
    path = root / "data.safetensors"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    with in_time():
        code, out, err = fuaudit("verify", child, "--data", root)
    assert (code, out) == (2, ""), err
    assert "no regular file" in err
    with pytest.raises(UsageError, match="no regular file"):
        Tensors(classes=2).load(root)


@pytest.mark.parametrize("ids", [10**7, 2**40, 2**62])
def test_few_bytes_that_claim_many_rows(tmp_path, ids):
    one = {"inputs": torch.zeros(1, 3), "targets": torch.zeros(1, dtype=torch.int64)}
    tests = {"test_inputs": torch.zeros(1, 3), "test_targets": torch.zeros(1, dtype=torch.int64)}
    save_file(one | tests | {"ids": torch.tensor([ids])}, tmp_path / "data.safetensors")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UsageError, match="missing beside"):
        Tensors(classes=2).load(tmp_path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024


def test_devices_are_a_closed_list(tiny):
    for device in ("meta", "cuda:7", "mps", "nonsense"):
        with pytest.raises(UsageError, match="'auto' or 'cpu' or 'cuda'"):
            resolve(tiny.tables | {"run": {"device": device}})


# --- what reaches a terminal

CLEAR = "\x1b[2J\x1b[HPASS: all is well\x07\u202e"


def test_text_that_can_be_seen():
    assert printable("a\x1b[2Jb\n\u202e\ud800\U000e0041é") == "a\\x1b[2Jb\\x0a\\u202e\\ud800\\U000e0041é"
    assert is_printable("naïve 名前 ok")
    for hidden in ("\x00", "\x7f", "\x9b", "\n", "\u200b", "\u2028", "\ufeff", "\udc80"):
        assert not is_printable(f"a{hidden}b")


def test_counts_have_separators_and_nouns():
    assert [counted(1, "round"), counted(2_000, "round")] == ["1 round", "2,000 rounds"]
    assert [counted(1, "class", "classes"), counted(0, "class", "classes")] == ["1 class", "0 classes"]


def test_proposed_commands_name_what_they_mean():
    """Spaces, quotes, commands, flags, line ends, bytes that are no characters: a shell gives back every word."""
    assert proposed("verify", "a", client=("b", "-c"), sample=()) == "fuaudit verify a --client b --client=-c"
    words = ["a b", "it's", "$(id)`id`;id|*?!", "-x", "--out=y", "", "a\nb\\", "\x1b[2J\u202eé'", "\udc80名"]
    for word in words:
        line = proposed("verify", f"{word}/", word or "x", client=word, commitment=None)
        assert is_printable(line)
        shell = 'fuaudit() { printf "%s\\0" "$@"; }; ' + line
        found = os.fsdecode(subprocess.run(["bash", "-c", shell], capture_output=True, check=True).stdout).split("\0")
        path, flag = (f"./{word}", [f"--client={word}"]) if word.startswith("-") else (word, ["--client", word])
        assert found == ["verify", f"{path}/", path or "x", *flag, ""]


def test_what_went_wrong_is_not_longer_than_can_be_read(fuaudit, tmp_path):
    (tmp_path / "a.csv").write_text(f"h,a,label\nx,{'9' * 100_000},1\n")
    code, _, err = fuaudit("import", tmp_path / "a.csv", "--client", "h", "--label", "label", "--out", tmp_path / "out")
    assert code == 2
    assert len(err) < 5_000


def test_names_of_folders_cannot_write_to_a_terminal(family, fuaudit, lean_file, tmp_path):
    path = shutil.copytree(family / "child", tmp_path / CLEAR)
    verified = ("verify", path, "--spec", lean_file, "--budget", 0)
    for arguments in (("show", path), ("show", path, "-q"), verified, ("show", tmp_path / f"no{CLEAR}")):
        code, out, err = fuaudit(*arguments)
        for line in (out + err).split("\n"):
            assert is_printable(line), (code, line)


def test_a_newline_in_a_name_begins_no_line(fuaudit, tmp_path):
    _, out, err = fuaudit("show", tmp_path / "x\nPASS: all is well")
    assert not any(line.startswith("PASS") for line in (out + err).split("\n"))


def test_json_of_commands_holds_no_control_character(family, fuaudit, tmp_path):
    path = shutil.copytree(family / "child", tmp_path / "a\x7fb")
    code, out, _ = fuaudit("show", path, "--json")
    assert code == 0
    assert "\x7f" not in out
    assert json.loads(out)["run"] == str(path)


@pytest.mark.parametrize("way", [("parent", "name"), ("unlearner", "guarantee"), ("unlearner", "cite"), ("doubts",)])
def test_names_inside_a_run_can_be_seen(child, fuaudit, way):
    table = json.loads((child / "run.json").read_bytes())
    inner = table
    for step in way[:-1]:
        inner = inner[step]
    inner[way[-1]] = [CLEAR] if way == ("doubts",) else CLEAR
    (child / "run.json").write_bytes(pretty_json(table))
    sealed(child)
    refused(child, fuaudit)


# --- what is imported


def test_nothing_is_imported_from_the_working_folder(tmp_path):
    """Started as a module, Python puts the working folder first: a prepared one could bring libraries of its own."""
    for name in ("click", "typing", "torch", "importlib", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported from the working folder')\n")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-m", "fuaudit.cli", "show", "nothing"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 4, done.stderr
    assert "there is no run at nothing" in done.stderr


def test_a_learner_may_conclude_more_but_what_all_runs_tell_has_its_shape():
    told = {"gaps": {}, "largest_gap": 0, "cohorts": [], "uploads": 0, "own_accuracy": {}, "more": 3}
    with pytest.raises(EvidenceError, match=r"missing, wrong or unknown: 'uploads'$"):
        form_of("participation.json").parse(pretty_json(told), Path("participation.json"))
    kept = told | {"uploads": []}
    assert form_of("participation.json").parse(pretty_json(kept), Path("participation.json")) == kept
