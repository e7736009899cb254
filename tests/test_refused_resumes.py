"""A resume that is refused writes nothing: once what was wrong is mended, a run has the digest of one that never broke.

Each folder is one that a kill left, with torn lines besides, so that a resume has something to cut.
"""

import shutil
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from test_killed_resumes import begun, elsewhere, files
from test_secured_runs import FEDREP, NOISY, trained

from fuaudit import unlearn
from fuaudit.errors import EvidenceError, RedactedError, UsageError
from fuaudit.formats import files as storage
from fuaudit.formats.forms import parse_json, pretty_json
from fuaudit.plans import Request
from fuaudit.runs.layout import (
    BEGUN,
    BODIES,
    CHAIN,
    CHECKPOINT,
    CONFIG,
    KEYS,
    LEDGER,
    MEMORIES,
    RUN,
    SECRETS,
    of_round,
)
from fuaudit.runs.platforms import platforms_of, versions
from fuaudit.runs.transcripts import chain_of
from fuaudit.secure import bfv
from fuaudit.secure.transcript import read_chain
from fuaudit.testing.tiny import tiny_config, tiny_dataset
from fuaudit.workflow.redact import redact
from fuaudit.workflow.resume import resume
from fuaudit.workflow.seal import seal

FIRST, SECOND = of_round(BODIES, 1), of_round(BODIES, 2)
NOISY_ONE = NOISY | {"learner": NOISY["learner"] | {"rounds": 1}}


def torn(folder):
    """The folder of a run that broke off, with what a kill leaves in the middle of writing."""
    for name in (LEDGER, CHAIN, SECOND):
        if (path := folder / name).exists():
            path.write_bytes(path.read_bytes() + b'{"torn"')
    (folder / (LEDGER + storage.TEMPORARY)).write_bytes(b"torn")
    return folder


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    """Suite -> a folder and the whole run: round 1 is stored; of round 2 a buffer has ended, and one is begun."""
    found = {}
    for suite, step in (("mask", "share"), ("bfv+mask", "send")):
        home = tmp_path_factory.mktemp(suite)
        folder, run, _ = begun(home, ("behind", step, 2, 1), lambda: trained(home / "run", FEDREP, suite))  # noqa: B023
        found[suite] = torn(folder), run
    return found


@pytest.fixture(scope="module")
def left_child(tmp_path_factory):
    """A folder of a child that broke off in its first round, the whole child, and its parent."""
    home = tmp_path_factory.mktemp("child")
    parent = trained(home / "parent", NOISY_ONE, "plain")

    def make():
        return unlearn(parent, "retrain", Request.of([0]), home / "run", data=tiny_dataset())

    folder, run, _ = begun(home, ("behind", "send", 1, 0), make)
    return torn(folder), run, parent


def require_untouched(folder, error, match, **given):
    """A resume is refused, and no byte of the folder is another one."""
    before = files(folder)
    with pytest.raises(error, match=match):
        resume(folder, **{"data": tiny_dataset()} | given)
    assert files(folder) == before


def changed(path, change):
    """Writes a file anew; returns what it was."""
    before = path.read_bytes()
    path.write_bytes(change(before))
    return before


def flipped(content, at):
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def whole_lines(content):
    return content[: content.rfind(b"\n") + 1]


def begun_terms(content):
    """Where in the body of round 2 the terms of its last buffer have their body's first byte."""
    at, found = 0, 0
    for entry in read_chain(whole_lines(content), Path(CHAIN)).of_round(2):
        found = at + entry.size - 1 if entry.step == "terms" else found
        at += entry.size
    return found


def first_round(content):
    return b"".join(entry.line + b"\n" for entry in read_chain(whole_lines(content), Path(CHAIN)).of_round(1))


def other_secret(content):
    table = parse_json(content, Path(SECRETS))
    table["generations"][0]["1"] = "0" * 64
    return pretty_json(table)


DAMAGED = {
    "a body of a stored round is shorter": (FIRST, lambda c: c[:-1], f"{FIRST} has fewer bytes than"),
    "an envelope of a stored round is altered": (FIRST, lambda c: flipped(c, 300), f"{FIRST} was altered"),
    "a body is shorter than what was opened": (SECOND, lambda c: c[:300], f"{SECOND} has fewer bytes than"),
    "an envelope of what was opened is altered": (SECOND, lambda c: flipped(c, 300), f"{SECOND} was altered"),
    "a line of the chain is none": (CHAIN, lambda c: b"{}\n" + c, "line 1 is no line of a transcript"),
    "a line of the chain is altered": (CHAIN, lambda c: c.replace(b'"lot"', b'"row"', 1), "line 1 is no line"),
    "the chain ends before the ledger": (
        CHAIN,
        lambda c: b"".join(first_round(c).splitlines(keepends=True)[:-1]),
        "another head after round 1 than",
    ),
    "the chain is empty": (CHAIN, lambda c: b"", "another head after round 1 than"),
    "a line of the ledger is none": (LEDGER, lambda c: b"{}\n" + c, "line 1 does not follow"),
    "the ledger ends before what is stored": (
        LEDGER,
        lambda c: b"".join(whole_lines(c).splitlines(keepends=True)[:-1]),
        "does not tell of round 1, whose model is stored",
    ),
    "a model is another": (of_round(CHECKPOINT, 1), None, "is not the model that the ledger names"),
    "what clients keep is not there": (of_round(MEMORIES, 1), lambda c: b"", "is no"),
    "a secret is another": (SECRETS, other_secret, "the secret of client 1 is not the one"),
    "a key is another": (KEYS, lambda c: b"{}", "is not"),
    "rounds that are not stored": (
        CONFIG,
        lambda c: c.replace(b"checkpoint_every = 1", b"checkpoint_every = 2"),
        "need every round stored",
    ),
}
"""What is damaged, how, and what is said of it."""


@pytest.mark.parametrize("name", DAMAGED)
def test_what_does_not_fit_is_refused_before_anything_is_written(left, tmp_path, name):
    at, change, match = DAMAGED[name]
    (whole, run), folder = left["mask"], tmp_path / "run"
    shutil.copytree(whole, folder)
    other = (folder / of_round(CHECKPOINT, 0)).read_bytes()
    before = changed(folder / at, change or (lambda _: other))
    assert before != (folder / at).read_bytes()
    require_untouched(folder, (EvidenceError, UsageError), match)
    (folder / at).write_bytes(before)
    assert resume(folder, tiny_dataset()).digest == run.digest


@pytest.mark.parametrize("name", [FIRST, SECOND])
def test_a_body_that_is_gone_is_missed(left, tmp_path, name):
    """What was opened in it would be opened again."""
    (whole, run), folder = left["mask"], tmp_path / "run"
    shutil.copytree(whole, folder)
    before = (folder / name).read_bytes()
    (folder / name).unlink()
    require_untouched(folder, EvidenceError, f"{name} has fewer bytes than")
    (folder / name).write_bytes(before)
    assert resume(folder, tiny_dataset()).digest == run.digest


@pytest.mark.parametrize(
    "change",
    [lambda content, at: flipped(content, at), lambda content, at: content[:at]],
    ids=["altered", "shorter"],
)
def test_terms_of_what_was_begun_are_there_or_missed(left, tmp_path, change):
    """A buffer that may have been opened would be asked for as if nobody had begun it."""
    (whole, run), folder = left["mask"], tmp_path / "run"
    shutil.copytree(whole, folder)
    at = begun_terms((folder / CHAIN).read_bytes())
    before = changed(folder / SECOND, lambda content: change(content, at))
    require_untouched(folder, EvidenceError, SECOND)
    (folder / SECOND).write_bytes(before)
    assert resume(folder, tiny_dataset()).digest == run.digest


@pytest.mark.parametrize(
    ("content", "match"),
    [(b'[{"round":2}]', "holds no terms"), (b'{"torn', "is no"), (b"7", "holds no terms")],
    ids=["no terms", "no JSON", "no list"],
)
def test_what_lies_beside_the_chain_is_terms_or_nothing_is_cut(left, tmp_path, content, match):
    (whole, run), folder = left["mask"], tmp_path / "run"
    shutil.copytree(whole, folder)
    (folder / BEGUN).write_bytes(content)
    require_untouched(folder, EvidenceError, match)
    (folder / BEGUN).unlink()
    assert resume(folder, tiny_dataset()).digest == run.digest


@contextmanager
def no_library():
    """A machine without TenSEAL."""
    bfv.require_margin.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "tenseal", None)
        yield
    bfv.require_margin.cache_clear()


@contextmanager
def other_machine():
    with pytest.MonkeyPatch.context() as patch:
        elsewhere(patch)
        yield


@pytest.mark.parametrize(
    ("suite", "machine", "match"),
    [("bfv+mask", no_library, "cannot be loaded"), ("mask", other_machine, "may compute other rows")],
)
def test_a_machine_that_cannot_go_on_writes_nothing(left, tmp_path, suite, machine, match):
    (whole, run), folder = left[suite], tmp_path / "run"
    shutil.copytree(whole, folder)
    with machine():
        require_untouched(folder, UsageError, match)
    assert resume(folder, tiny_dataset()).digest == run.digest


def other_rows():
    """The data with one row that is another."""
    found = tiny_dataset()
    return replace(found, inputs=torch.cat([found.inputs[:1] + 1, found.inputs[1:]]))


@pytest.mark.parametrize("suite", ["mask", None])
def test_other_rows_than_were_committed_to_are_refused(left, tmp_path, suite):
    """Also where no suite makes sums: a run that went on with them would be refuted by its own audits."""
    folder = tmp_path / "run"
    if suite is None:
        begun(tmp_path, ("ledger", "round", 2, -1), lambda: trained(tmp_path / "whole", FEDREP, None))
        torn(shutil.copytree(tmp_path / "begun", folder))
    else:
        shutil.copytree(left[suite][0], folder)
    require_untouched(folder, UsageError, "is not what .* committed to: 1 row of 1 client", data=other_rows())
    assert resume(folder, tiny_dataset()).digest == left["mask"][1].digest


def test_parties_apart_of_a_run_without_a_suite_are_refused(left, tmp_path):
    begun(tmp_path, ("ledger", "round", 2, -1), lambda: trained(tmp_path / "whole", FEDREP, None))
    folder = torn(tmp_path / "begun")
    require_untouched(folder, UsageError, "none is named", apart=True)
    assert resume(folder, tiny_dataset()).digest == left["mask"][1].digest


# a child


def test_a_child_whose_parent_is_not_at_hand_or_not_whole_is_left_as_it_was(left_child, tmp_path):
    (whole, run, parent), folder = left_child, tmp_path / "lonely" / "run"
    shutil.copytree(whole, folder)
    require_untouched(folder, EvidenceError, "parent of .* is not at hand")
    require_untouched(folder, EvidenceError, "is not the parent of", parent=run.path)
    redacted, view = redact(parent, tmp_path / "redacted"), seal(parent, tmp_path / "view")
    for lacking in (redacted, view):
        require_untouched(folder, RedactedError, "lacks what is the clients' own", parent=lacking.path)
    assert resume(folder, tiny_dataset(), parent=parent.path).digest == run.digest


def test_a_child_whose_unlearner_is_not_installed_is_left_as_it_was(left_child, tmp_path):
    (whole, run, parent), folder = left_child, tmp_path / "run"
    shutil.copytree(whole, folder)

    def unknown(content):
        info = parse_json(content, Path(RUN))
        return pretty_json(info | {"unlearner": info["unlearner"] | {"use": "of-nobody"}})

    before = changed(folder / RUN, unknown)
    require_untouched(folder, EvidenceError, "of-nobody|do not follow", parent=parent.path)
    (folder / RUN).write_bytes(before)
    assert resume(folder, tiny_dataset(), parent=parent.path).digest == run.digest


# what kills leave


@pytest.mark.parametrize("suite", ["mask", None])
def test_a_run_that_was_killed_before_its_first_model_goes_on(left, tmp_path, monkeypatch, suite):
    """Only the folder for models is there, or a torn one in it."""
    write = storage.os.replace

    def killing(first, second):
        if str(second).endswith(of_round(CHECKPOINT, 0)):
            shutil.copytree(tmp_path / "run", tmp_path / "killed")
            raise KeyboardInterrupt
        write(first, second)

    with monkeypatch.context() as patch:
        patch.setattr(storage.os, "replace", killing)
        with pytest.raises(KeyboardInterrupt):
            trained(tmp_path / "run", FEDREP, suite)
    assert [path.suffix for path in (tmp_path / "killed" / "checkpoints").iterdir()] == [storage.TEMPORARY]
    assert [*(tmp_path / "run" / "checkpoints").iterdir()] == []
    for name in ("killed", "run"):
        run = resume(tmp_path / name, tiny_dataset())
        assert run.digest == left["mask"][1].digest
        assert suite is None or chain_of(run.path).rounds == (1, 2)


def test_an_edit_that_was_killed_is_made_again_as_a_whole(tmp_path, monkeypatch):
    """By whoever resumes it: nothing is left that tells of the platform which edited before."""
    parent = trained(tmp_path / "parent", tiny_config(), None)

    def edit(out):
        return unlearn(parent, "finetune", Request.of([0]), out, data=tiny_dataset())

    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("fuaudit.workflow.unlearn.complete", killed)
        with pytest.raises(KeyboardInterrupt):
            edit(tmp_path / "run")
    elsewhere(monkeypatch)
    monkeypatch.setattr("fuaudit.workflow.writer.versions", lambda device: versions(device) | {"numpy": "9"})
    run = resume(tmp_path / "run", tiny_dataset())
    assert [platform.versions["numpy"] for platform in platforms_of(run.ledger)] == ["9"]
    assert run.ledger.kinds == ["commitment", "request", "platform", "unlearning", "sealed"]
    assert run.digest == edit(tmp_path / "whole").digest
