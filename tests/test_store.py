"""Findings that last: a file and two lines for every verification, whatever comes in between; reports name theirs."""

import errno
import json
import os
import shutil
import threading
from pathlib import Path

import pytest
from safetensors.torch import save_file
from tests_support import AUDIT_KEY

from fuaudit import load_run, unlearn, verify
from fuaudit.errors import EvidenceError, StorageError
from fuaudit.formats.files import sha256, storage
from fuaudit.formats.forms import canonical_json
from fuaudit.plans import Request
from fuaudit.reporting import write_report
from fuaudit.runs.ancestors import parent_of
from fuaudit.runs.layout import LEDGER, MANIFEST
from fuaudit.runs.manifest import manifest_bytes
from fuaudit.verification.finding import FORMAT
from fuaudit.verification.store import LOG, begin, finish, history, latest, standing
from fuaudit.workflow.prune import prune

SPEC = {"id": "ours", "origin": "ours.toml", "digest": "c" * 64}


@pytest.fixture
def run(tiny, tmp_path):
    """A small child, with its data in a folder."""
    names = ("inputs", "targets", "test_inputs", "test_targets")
    (tmp_path / "data").mkdir()
    save_file({name: getattr(tiny.dataset, name).clone() for name in names}, tmp_path / "data" / "data.safetensors")
    parent = tiny(tmp_path / "parent")
    return unlearn(parent, "fats", Request.of([parent.plan.cohort(2)[0]]), tmp_path / "child", data=tiny.dataset)


@pytest.fixture
def folder(run):
    return run.path.with_name("child.audit")


def lines(folder):
    return [json.loads(line) for line in (folder / LOG).read_text().splitlines()]


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_no_verification_overwrites_another(run, folder, tiny, quick):
    made, before = [], {}
    for options in ({}, {"spot_check": 1}, {"key": bytes(32)}, {}):
        result = verify(run, quick, data=tiny.dataset, **{"key": AUDIT_KEY} | options)
        made.append(result.path.name)
        after = contents(folder)
        assert {name: after[name] for name in before if name != LOG} == {n: b for n, b in before.items() if n != LOG}
        assert after[LOG].startswith(before.get(LOG, b""))
        before = after
    assert len(set(made)) == 4
    assert [name[:14] for name in made] == [f"findings-{number:04d}-" for number in (1, 2, 3, 4)]
    assert made[0][14:] == made[3][14:] != made[1][14:]  # equal findings, told apart by their number
    entries = history(folder)
    assert [entry.findings for entry in entries] == made
    assert all(entry.kept and entry.key_given for entry in entries)
    assert [entry.arguments for entry in entries] == [(), ("--spot-check", "1"), (), ()]


def test_a_read_only_medium_is_told_what_to_copy(tmp_path):
    """An auditor is handed a run on one, and findings lie beside it."""
    with pytest.raises(StorageError) as told, storage(tmp_path / "log"):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))
    assert "copy what lies there, a run with its parents" in str(told.value)
    with pytest.raises(StorageError, match="permissions"), storage(tmp_path / "log"):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))


def test_findings_hold_no_times(run, tiny, quick):
    first, second = (verify(run, quick, data=tiny.dataset, key=AUDIT_KEY) for _ in range(2))
    assert first.path.read_bytes() == second.path.read_bytes()
    assert first.standing == "This is verification 1 of 1 by the log beside the findings."
    assert (
        second.standing
        == "This is verification 2 of 2 by the log beside the findings; the others: by this spec 1 PASS."
    )
    log = second.path.parent / "log.jsonl"
    left = [line for line in log.read_bytes().splitlines(True) if json.loads(line)["number"] == 2]
    log.unlink()
    log.write_bytes(b"".join(left))
    told = standing(history(log.parent), 2)
    assert told.endswith("by the log beside the findings. Missing there: 1 of verifications 1 to 2.")


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, EvidenceError("altered meanwhile")])
def test_what_is_broken_off_leaves_a_line(run, folder, tiny, quick, error):
    def stops(*progress):
        raise error

    if error is MemoryError:  # an audit that breaks is an ERROR, and ends
        assert verify(run, quick, data=tiny.dataset, progress=stops).exit_code == 70
        assert [line["event"] for line in lines(folder)] == ["begun", "done"]
        return
    with pytest.raises(type(error) if isinstance(error, Exception) else error):
        verify(run, quick, data=tiny.dataset, progress=stops)
    (line,) = lines(folder)
    assert (line["event"], line["number"], line["key_given"]) == ("begun", 1, False)
    (entry,) = history(folder)
    assert (entry.verdict, entry.findings) == ("", "")
    with pytest.raises(EvidenceError, match="has no findings yet"):
        latest(run.path)
    again = verify(run, quick, data=tiny.dataset)
    assert again.standing.endswith("the others: by this spec 1 not finished.")


def test_the_log_is_never_written_through_a_hard_link(run, folder, tiny, quick, tmp_path):
    """What else has this content keeps it: the log is another file from then on."""
    verify(run, quick, data=tiny.dataset)
    os.link(folder / LOG, tmp_path / "precious")
    before = (tmp_path / "precious").read_bytes()
    verify(run, quick, data=tiny.dataset)
    assert (tmp_path / "precious").read_bytes() == before
    assert (folder / LOG).read_bytes().startswith(before)


@pytest.mark.parametrize(
    "prepared", ["log a folder", "log a pipe", "folder a file", "half a log a folder", "folder shut"]
)
def test_what_cannot_be_written_is_found_out_before_the_audits(run, folder, tiny, quick, prepared):
    def never(*progress):
        raise AssertionError("an audit has begun")

    if prepared == "folder a file":
        folder.write_text("mine")
    else:
        folder.mkdir()
    if prepared == "log a folder":
        (folder / LOG).mkdir()
    elif prepared == "log a pipe":
        os.mkfifo(folder / LOG)
    elif prepared == "half a log a folder":
        (folder / f"{LOG}.partial").mkdir()
    elif prepared == "folder shut":
        if os.geteuid() == 0:
            pytest.skip("whoever may do everything is not stopped by permissions")
        folder.chmod(0o555)
    with pytest.raises(StorageError):
        verify(run, quick, data=tiny.dataset, progress=never)
    folder.chmod(0o755)


@pytest.mark.parametrize(
    "content",
    [
        b"no json\n",
        b"{}\n",
        b'{"event":"done","number":1,"time":"","verdict":"PASS","findings":"../../x","sha256":""}\n',
        b'{"event":"begun","number":true,"time":"","run":"","ledger":"","spec":{},"key_given":true,"arguments":[]}\n',
        b"[" * 5000,
    ],
)
def test_what_is_no_log_is_left_alone(run, folder, tiny, quick, content):
    folder.mkdir()
    (folder / LOG).write_bytes(content)
    with pytest.raises(EvidenceError):
        verify(run, quick, data=tiny.dataset)
    assert contents(folder) == {LOG: content}


def test_lines_out_of_order_are_no_log(tmp_path):
    begin(tmp_path, "a" * 64, "b" * 64, SPEC, True, [])
    finish(tmp_path, 1, "PASS", {})
    first, second = (tmp_path / LOG).read_bytes().splitlines(keepends=True)
    for wrong in (second, second + first, first + first, first + second + second):
        (tmp_path / LOG).write_bytes(wrong)
        with pytest.raises(EvidenceError, match="no log of verifications"):
            history(tmp_path)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda line: {word: line[word] for word in line if word != "ledger"}, "an earlier version than fuaudit 0."),
        (lambda line: line | {"machine": "x"}, "a later version than fuaudit 0."),
    ],
)
def test_a_log_of_another_version_says_so_and_what_to_do(fuaudit, run, change, told):
    """Version 0.1.0 did not name the ledger; it is no log that somebody spoilt."""
    folder = Path(f"{run.path}.audit")
    begin(folder, "a" * 64, "b" * 64, SPEC, True, [])
    (folder / LOG).write_bytes(b"".join(canonical_json(change(line)) + b"\n" for line in lines(folder)))
    code, _, err = fuaudit("history", run.path)
    assert code == 4
    assert f"{folder / LOG} was written by {told}" in err
    assert ("do not say ledger" in err, "say machine too" in err) == ("earlier" in told, "later" in told)
    assert ("fuaudit 0.1.0" in err) == ("earlier" in told)
    assert f"rename the folder {folder}" in err
    folder.rename(folder.with_name("before"))
    assert fuaudit("history", run.path)[0] == 0


def test_numbers_go_on_without_the_log(tmp_path):
    """Who deletes the log deletes what it tells; the findings that are left are still not overwritten."""
    begin(tmp_path, "a" * 64, "b" * 64, SPEC, True, [])
    first = finish(tmp_path, 1, "FAIL", {"verdict": "FAIL"})
    (tmp_path / LOG).unlink()
    assert begin(tmp_path, "a" * 64, "b" * 64, SPEC, True, []) == 2
    finish(tmp_path, 2, "PASS", {"verdict": "PASS"})
    assert json.loads(first.read_text()) == {"verdict": "FAIL"}


def test_verifications_at_once_have_numbers_of_their_own(tmp_path):
    def one():
        number = begin(tmp_path, "a" * 64, "b" * 64, SPEC, True, [])
        told = {"format": FORMAT, "run": "a" * 64, "ledger": "b" * 64, "spec": SPEC, "context": {"arguments": []}}
        finish(tmp_path, number, "PASS", told | {"verdict": "PASS", "key": f"{number}"})

    threads = [threading.Thread(target=one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    entries = history(tmp_path)
    assert [entry.number for entry in entries] == list(range(1, 9))
    assert all(entry.kept for entry in entries)


def test_a_log_says_what_the_findings_say(run, folder, tiny, quick, fuaudit):
    """One word of the log changed: no verdict is shown that the stored findings do not bear out."""
    assert verify(run, quick, data=tiny.dataset, key=AUDIT_KEY, commitment="0" * 64).verdict == "FAIL"
    told = lines(folder)

    def log(**changes):
        changed = [line | {word: value for word, value in changes.items() if word in line} for line in told]
        (folder / LOG).write_bytes(b"".join(canonical_json(line) + b"\n" for line in changed))

    spec = told[0]["spec"]
    for changes in (
        {"verdict": "PASS"},
        {"run": "a" * 64},
        {"ledger": "a" * 64},
        {"arguments": []},
        {"number": 2},
        {"spec": spec | {"id": "model-erasure"}},
    ):
        log(**changes)
        assert not history(folder)[0].kept
    log(verdict="PASS")
    for command in (("history", run.path), ("runs", run.path.parent)):
        out = fuaudit(*command)[1]
        assert ("PASS" in out, "missing or altered" in out) == (False, True)
    for changes in ({"verdict": "fine"}, {"time": "now"}):
        log(**changes)
        with pytest.raises(EvidenceError, match="no log of verifications"):
            history(folder)


def test_a_run_is_verified_and_unlearned_through_a_link(run, folder, tiny, quick, fuaudit, tmp_path):
    """What is made of a run lies beside it, whatever it was called by: its log counts, its child finds it."""
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "link"
    link.symlink_to(run.path)
    assert verify(link, quick, data=tiny.dataset).path.parent == folder
    assert len(history(folder)) == 1
    assert len(json.loads(fuaudit("history", link, "--json")[1])["verifications"]) == 1
    client = str(run.plan.retained.clients[0])
    code, _, err = fuaudit("unlearn", link, "--with", "retrain", "--client", client, "--data", tmp_path / "data")
    assert code == 0, err
    assert [path.name for path in link.parent.iterdir()] == ["link"]
    assert parent_of(load_run(tmp_path / "child-retrain")).digest == run.digest


def test_history_lists_them_all(run, folder, tiny, quick, fuaudit, tmp_path, lean_file):
    data = ("--data", tmp_path / "data")
    verify(run, quick, data=tiny.dataset, key=AUDIT_KEY)
    assert fuaudit("verify", run.path, *data, "--spec", lean_file, "--budget", "0", "-q")[0] in (0, 3)
    with pytest.raises(KeyboardInterrupt):
        verify(run, quick, data=tiny.dataset, progress=interrupts)
    altered = latest(run.path)
    altered.chmod(0o644)
    altered.write_bytes(altered.read_bytes() + b" ")
    code, out, err = fuaudit("history", run.path)
    assert code == 0, err
    head, first, stored, second, arguments, changed, third = out.splitlines()
    assert head.startswith("3 verifications by ")
    assert "PASS" in first
    assert "quick (" in first
    assert "key given" in first
    assert stored.endswith(": as stored")
    assert "lean (lean.toml, " in second
    assert "key drawn" in second
    assert arguments.endswith("--data DATA --budget 0")
    assert changed.endswith(": missing or altered")
    assert "not finished" in third
    rows = json.loads(fuaudit("history", run.path, "--json")[1])["verifications"]
    assert [row["number"] for row in rows] == [1, 2, 3]
    assert [row["kept"] for row in rows] == [True, False, False]
    assert all(row["this_run"] for row in rows)
    code, _, err = fuaudit("report", run.path)
    assert code == 4
    assert "its name is made of" in err
    path = write_report(run.path, "md", folder / history(folder)[0].findings)
    told = path.read_text()
    assert (
        "verification 1 of 3 by the log beside the findings; the others: by this spec 1 not finished; by 'lean' 1 "
        in told
    )


def interrupts(*progress):
    raise KeyboardInterrupt


def test_findings_from_before_a_prune_are_told_apart(run, folder, tiny, quick, fuaudit):
    verify(run, quick, data=tiny.dataset)
    shutil.copytree(run.path.with_name("parent"), run.path.with_name("other"))
    prune(run)
    listed = fuaudit("history", run.path)[1]
    assert listed.startswith("1 verification by ")
    assert "; of the run as it was before a prune" in listed
    shutil.copytree(folder, folder.with_name("other.audit"))
    listed = {row["name"]: row["verdict"] for row in json.loads(fuaudit("runs", folder.parent, "--json")[1])["runs"]}
    assert listed == {"child": "PASS before a prune", "other": "not verified as it is now", "parent": ""}
    code, _, err = fuaudit("report", run.path)
    assert code == 4
    assert "before it was pruned" in err
    result = verify(load_run(run.path), quick, data=tiny.dataset)
    others = "the others: by this spec of the run as it was 1 PASS."
    assert result.standing == f"This is verification 2 of 2 by the log beside the findings; {others}"
    assert Path(fuaudit("report", run.path, "--format", "md")[1].strip()).name.startswith("report-0002-")


def test_what_was_verified_can_be_read_when_a_tombstone_is_left(run, folder, tiny, quick, fuaudit):
    """A later prune takes the run and leaves its findings; they are still told apart from those of another."""
    known = verify(run, quick, data=tiny.dataset, key=AUDIT_KEY).path.name
    next_one = run.plan.retained.clients[0]
    later = unlearn(
        load_run(run.path), "retrain", Request.of([next_one]), run.path.with_name("later"), data=tiny.dataset
    )
    prune(later)
    assert not (run.path / MANIFEST).exists()
    code, out, err = fuaudit("history", run.path)
    assert code == 0, err
    head, first, stored = out.splitlines()
    assert head == f"1 verification by {folder / LOG}; the run is gone, and its tombstone says that a prune removed it"
    assert "PASS" in first
    assert "before a prune" not in first
    assert stored == f"      {known}: as stored"
    for verb in ("show", "verify"):
        code, _, err = fuaudit(verb, run.path)
        assert (code, f"  What was verified of it is listed by: fuaudit history {run.path}\n  Give a run" in err) == (
            4,
            True,
        )
    code, out, err = fuaudit("report", run.path, "--format", "md")
    assert code == 0, err
    told = Path(out.strip()).read_text()
    assert (
        "This is verification 1 of 1 by the log beside the findings. The run is not there any more: a tombstone" in told
    )
    shutil.copytree(folder, run.path.with_name("parent.audit"))
    code, _, err = fuaudit("report", run.path.with_name("parent"))
    assert code == 4
    assert "of another run" in err
    stone = json.loads((run.path / "tombstone.json").read_text())
    (run.path / "tombstone.json").write_bytes(canonical_json(stone | {"digest": "0" * 64}))
    assert fuaudit("history", run.path)[0] == 4


def test_findings_are_of_the_ledger_that_was_judged(run, tiny, quick, fuaudit):
    """The digest of a run does not cover its ledger: one that was written anew since was judged by nobody."""
    verify(run, quick, data=tiny.dataset)
    head, written = "0" * 64, b""
    for event in run.ledger.events:
        line = canonical_json(
            event | {"previous": head} | ({"time": "2026-01-01T00:00:00Z"} if "time" in event else {})
        )
        head, written = sha256(line), written + line + b"\n"
    (run.path / LEDGER).write_bytes(written)
    (run.path / MANIFEST).write_bytes(manifest_bytes(run.digest, run.files, head))
    assert load_run(run.path).digest == run.digest
    assert "; of this run with another ledger" in fuaudit("history", run.path)[1]
    assert "PASS" not in fuaudit("runs", run.path.parent)[1]
    code, _, err = fuaudit("report", run.path)
    assert code == 4
    assert "another ledger" in err


def test_without_data_it_is_said_how_to_give_it(run, lean_file, fuaudit):
    code, out, _ = fuaudit("verify", run.path, "--spec", lean_file, "--budget", "0", "-q")
    assert code == 3
    assert out.count("--data ROOT") == 1


@pytest.mark.parametrize("number", [0, -1, 10**9, 10**300])
def test_a_log_with_numbers_that_no_verification_has_is_none(tmp_path, number):
    begin(tmp_path / "run.audit", "d" * 64, "e" * 64, SPEC, True, [])
    line = lines(tmp_path / "run.audit")[0] | {"number": number}
    (tmp_path / "run.audit" / LOG).write_bytes(canonical_json(line) + b"\n")
    with pytest.raises(EvidenceError, match="is no log of verifications"):
        begin(tmp_path / "run.audit", "d" * 64, "e" * 64, SPEC, True, [])
