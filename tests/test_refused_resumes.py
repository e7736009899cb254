"""A resume that is refused writes nothing: once what was wrong is mended, a run has the digest of one that never broke.

Each folder is one that a kill left, with torn lines besides, so that a resume has something to cut.
"""

import re
import shutil
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from test_killed_resumes import begun, elsewhere, files
from test_secured_runs import FEDREP, NOISY, trained

from fuaudit import load_run, unlearn
from fuaudit.errors import EvidenceError, RedactedError, UsageError
from fuaudit.formats import files as storage
from fuaudit.formats.forms import parse_arrays, parse_json, pretty_json, tensor_bytes
from fuaudit.plans import Request
from fuaudit.runs.layout import (
    BEGUN,
    BODIES,
    CHAIN,
    CHECKPOINT,
    CONFIG,
    CONTENTS,
    KEYS,
    LEDGER,
    MANIFEST,
    MEMORIES,
    METRICS,
    PARTITION,
    PLAN,
    RUN,
    SECRETS,
    of_round,
    rounds_in,
)
from fuaudit.runs.platforms import platforms_of, versions
from fuaudit.runs.transcripts import chain_of
from fuaudit.secure import bfv
from fuaudit.secure.transcript import read_chain
from fuaudit.testing.tiny import tiny_config, tiny_dataset
from fuaudit.workflow.redact import redact
from fuaudit.workflow.resume import resume
from fuaudit.workflow.seal import seal

train_module = sys.modules["fuaudit.workflow.train"]
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


def other_segments(content):
    """From round 2 on cohorts are drawn anew from the same source: the plan is one, and not that of a training."""
    table = parse_json(content, Path(PLAN))
    table["streams"]["cohorts"].append([2, 0, 0, 0])
    return pretty_json(table)


def other_secret(content):
    table = parse_json(content, Path(SECRETS))
    table["generations"][0]["1"] = "0" * 64
    return pretty_json(table)


def last_bit(content):
    """The last bit of the last float of a file; behind it a salt of 32 bytes may lie."""
    start, table = tensors_in(content)
    return flipped(content, start + max(at["data_offsets"][1] for at in table.values() if at["dtype"] == "F32") - 4)


def tensors_in(content):
    """Where its tensors start in a file, and what its header says of each."""
    start = 8 + int.from_bytes(content[:8], "little")
    return start, parse_json(content[8:start].rstrip(b" "), Path("tensors"))


def in_rows(content):
    """Where the leaf of the first row lies."""
    start, table = tensors_in(content)
    return start + table["rows"]["data_offsets"][0]


def other_owners(content):
    """The last sample of the first client and the first one of the second have changed places."""
    arrays = parse_arrays(content, Path(PARTITION))
    end = int(arrays["ends"][0])
    arrays["samples"][[end - 1, end]] = arrays["samples"][[end, end - 1]]
    return tensor_bytes(arrays)


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
    "the ledger is empty": (LEDGER, lambda c: b"", f"{LEDGER} does not begin with a commitment"),
    "the ledger ends before its suite": (LEDGER, lambda c: c[: c.index(b"\n") + 1], f"{LEDGER} names no suite, and"),
    "a size in its last line is another": (
        LEDGER,
        lambda c: re.sub(rb'"size":(\d+)(?=.*\n[^\n]*$)', lambda size: b'"size":1' + size[1], c, count=1),
        f"{LEDGER} tells of round 1 what its stages do not tell",
    ),
    "a model is another": (of_round(CHECKPOINT, 1), None, "is not the model that the ledger names"),
    "what clients keep is not there": (of_round(MEMORIES, 1), lambda c: b"", "is no"),
    "a secret is another": (SECRETS, other_secret, "the secret of client 1 is not the one"),
    "a key is another": (KEYS, lambda c: b"{}", "is not"),
    "the config is another": (
        CONFIG,
        lambda c: c.replace(b"checkpoint_every = 1", b"checkpoint_every = 2"),
        f"{CONFIG} was altered: the commitment",
    ),
    "a step size is another": (
        CONFIG,
        lambda c: c.replace(b"step_size = 0.2", b"step_size = 0.3"),
        f"{CONFIG} was altered",
    ),
    "a leaf of a row is another": (
        CONTENTS,
        lambda c: flipped(c, in_rows(c)),
        f"{CONTENTS} was altered: the commitment",
    ),
    "a sample has another id": (PARTITION, lambda c: flipped(c, len(c) - 34), f"{PARTITION} (is not a|was altered)"),
    "a sample has an id beyond all rows": (PARTITION, lambda c: flipped(c, len(c) - 33), f"{PARTITION} was altered"),
    "a sample is another client's": (PARTITION, other_owners, f"{PARTITION} was altered"),
    "the plan is another": (PLAN, other_segments, f"{PLAN} was altered"),
    "the machine is another": (RUN, lambda c: c.replace(b'"engine": "reference"', b'"engine": "threads"'), "engine"),
    "the first model is another": (of_round(CHECKPOINT, 0), last_bit, f"{of_round(CHECKPOINT, 0)} was altered"),
    "what clients keep at first is another": (of_round(MEMORIES, 0), last_bit, f"{of_round(MEMORIES, 0)} was altered"),
    "what clients keep is another": (of_round(MEMORIES, 1), last_bit, f"{of_round(MEMORIES, 1)} was altered"),
    "the salt is another": (of_round(MEMORIES, 1), lambda c: flipped(c, len(c) - 1), "another salt"),
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


@pytest.mark.parametrize(
    "name",
    [".DS_Store", "notes.txt", "checkpoints/.DS_Store", "clients/a.partial", "transcript/notes.txt", "edit.json"],
)
def test_a_file_that_such_a_run_has_not_is_named_before_anything_is_written(left, tmp_path, name):
    (whole, run), folder = left["mask"], tmp_path / "run"
    shutil.copytree(whole, folder)
    (folder / name).write_bytes(b"")
    require_untouched(folder, EvidenceError, f"{name} is a file that such a run has not")
    (folder / name).unlink()
    assert resume(folder, tiny_dataset()).digest == run.digest


def test_a_round_that_is_gone_is_missed(left, tmp_path):
    (whole, run), folder = left["mask"], tmp_path / "run"
    shutil.copytree(whole, folder)
    name = of_round(CHECKPOINT, 0)
    before = (folder / name).read_bytes()
    (folder / name).unlink()
    require_untouched(folder, EvidenceError, f"{name} is gone")
    (folder / name).write_bytes(before)
    assert resume(folder, tiny_dataset()).digest == run.digest


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("suite", "point"),
    [("mask", ("behind", "unmask", 1, 1)), (None, ("checkpoint", "", 0, -1))],
    ids=["opened", "clear"],
)
def test_a_run_that_was_killed_in_its_first_round_goes_on_from_the_model_that_it_began_with(tmp_path, suite, point):
    """Behind a suite a sum of that round was opened: the others would be of rows that another model gave."""
    folder, run, _ = begun(tmp_path, point, lambda: trained(tmp_path / "run", FEDREP, suite))
    for name in (of_round(CHECKPOINT, 0), of_round(MEMORIES, 0)):
        before = changed(folder / name, last_bit)
        require_untouched(folder, EvidenceError, f"{name} was altered")
        (folder / name).write_bytes(before)
    assert resume(folder, tiny_dataset()).digest == run.digest


def test_what_the_server_remembers_is_compared_over_rounds_that_are_not_stored(tmp_path):
    run = tiny_config()["run"] | {"checkpoint_every": 2}
    tables = tiny_config(server=[{"use": "mean"}, {"use": "momentum", "beta": 0.5}], run=run)
    tables["learner"] |= {"rounds": 5}
    folder, run, _ = begun(tmp_path, ("ledger", "round", 3, -1), lambda: trained(tmp_path / "run", tables, None))
    name = of_round(CHECKPOINT, 2)
    assert "state." in str((folder / name).read_bytes())
    for change in (remembered_bit, last_bit):
        before = changed(folder / name, change)
        require_untouched(folder, EvidenceError, f"{name} (was altered|is not the model)")
        (folder / name).write_bytes(before)
    assert resume(folder, tiny_dataset()).digest == run.digest


def test_what_the_last_round_was_made_of_is_named_where_its_model_is_right(tmp_path):
    folder, run, _ = begun(tmp_path, ("checkpoint", "", 2, -1), lambda: trained(tmp_path / "run", FEDREP, "mask"))
    name = of_round(MEMORIES, 1)
    before = changed(folder / name, other_signs)
    require_untouched(folder, EvidenceError, f"/{name} or .* was altered: round 2 does not follow from")
    (folder / name).write_bytes(before)
    assert resume(folder, tiny_dataset()).digest == run.digest


def other_signs(content):
    """All that clients keep with the other sign, so that the next model shows it."""
    arrays = parse_arrays(content, Path(MEMORIES))
    return tensor_bytes({name: -one if one.dtype.kind == "f" else one for name, one in arrays.items()})


def remembered_bit(content):
    """The first bit of the first thing that is remembered."""
    start, table = tensors_in(content)
    return flipped(content, start + next(at["data_offsets"][0] for name, at in table.items() if name != "vector"))


def test_on_another_platform_the_first_round_is_not_made_again(tmp_path):
    """Other bits may come out there, and that is no damage: a run in the clear may go on anywhere."""
    begun(tmp_path, ("ledger", "round", 2, -1), lambda: trained(tmp_path / "run", FEDREP, None))
    for name in (of_round(MEMORIES, 1), of_round(MEMORIES, 0)):
        folder = shutil.copytree(tmp_path / "begun", tmp_path / name.replace("/", " "))
        changed(folder / name, last_bit)
        with other_machine():
            assert resume(folder, tiny_dataset()).ledger.kinds.count("platform") == 2


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


@pytest.fixture(scope="module", params=[("unlearning", 0), ("round", 3)], ids=["kept", "own"])
def left_with_kept_rounds(tmp_path_factory, request):
    """A folder of a child that keeps rounds and broke off in its first own one, or behind it; the child; its parent."""
    home = tmp_path_factory.mktemp("kept")
    learner = {"use": "fedavg", "rounds": 3, "cohort": 2, "steps": 2, "batch": 2, "step_size": 0.2}
    tables = tiny_config(
        learner=learner, client=[{"use": "error-feedback"}, {"use": "quantise", "clip": 1.0, "bits": 8}]
    )
    parent = trained(home / "parent", tables, None)
    (later, *_) = (client for client in parent.original.clients if client not in parent.plan.cohort(1))

    def make():
        return unlearn(parent, "fats", Request.of([later]), home / "run", data=tiny_dataset(), allow_inexact=True)

    folder, run, _ = begun(home, ("ledger", *request.param, -1), make)
    assert run.ledger.of_kind("unlearning")[0]["kept_rounds"] > 0
    return torn(folder), run, parent


@pytest.mark.parametrize("name", [of_round(CHECKPOINT, 0), of_round(MEMORIES, 0), of_round(MEMORIES, 1)])
def test_a_child_goes_on_from_what_its_parent_stores(left_with_kept_rounds, tmp_path, name):
    (whole, run, parent), folder = left_with_kept_rounds, tmp_path / "run"
    shutil.copytree(whole, folder)
    last = of_round(MEMORIES, max(rounds_in(map(str, files(folder)))))  # of an own round, or a kept one too
    for one in (name, last):
        before = changed(folder / one, last_bit)
        require_untouched(folder, EvidenceError, f"/{one} (or .* )?was altered", parent=parent.path)
        (folder / one).write_bytes(before)
    assert resume(folder, tiny_dataset(), parent=parent.path).digest == run.digest


@pytest.mark.parametrize("name", [CONFIG, CONTENTS, KEYS, PARTITION])
def test_a_child_has_what_its_parent_was_committed_to(left_with_kept_rounds, tmp_path, name):
    (whole, run, parent), folder = left_with_kept_rounds, tmp_path / "run"
    shutil.copytree(whole, folder)
    change = {
        CONFIG: lambda c: c.replace(b"step_size = 0.2", b"step_size = 0.3"),
        CONTENTS: lambda c: flipped(c, in_rows(c)),
        KEYS: lambda c: c.replace(b"seed", b"digest", 1),
        PARTITION: other_owners,
    }
    before = changed(folder / name, change[name])
    require_untouched(folder, EvidenceError, name, parent=parent.path)
    (folder / name).write_bytes(before)
    assert resume(folder, tiny_dataset(), parent=parent.path).digest == run.digest


# files of others


def test_no_manifest_lists_a_file_that_no_run_has(tmp_path, monkeypatch):
    """One that came while it trained is named, and once it is away the run is finished."""
    measure = train_module.derived

    def measured(*args):
        (tmp_path / "run" / "notes.txt").write_bytes(b"")
        return measure(*args)

    with monkeypatch.context() as patch:
        patch.setattr(train_module, "derived", measured)
        with pytest.raises(EvidenceError, match=r"notes\.txt is a file that no run has"):
            trained(tmp_path / "run", FEDREP, None)
    assert not (tmp_path / "run" / MANIFEST).exists()
    (tmp_path / "run" / "notes.txt").unlink()
    assert resume(tmp_path / "run", tiny_dataset()).digest == trained(tmp_path / "other", FEDREP, None).digest


def test_a_manifest_that_lists_such_a_file_is_refused_by_its_name(tmp_path):
    folder = trained(tmp_path / "run", FEDREP, None).path
    table = parse_json((folder / MANIFEST).read_bytes(), folder)
    table["files"]["notes.txt"] = table["files"][METRICS]
    (folder / MANIFEST).write_bytes(pretty_json(table))
    with pytest.raises(EvidenceError, match=r"'files\.notes\.txt'"):
        load_run(folder)


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
