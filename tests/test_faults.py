"""Kills, full disks, Ctrl-C: nothing half-written, nothing lost; a resumed run has the bytes of an undisturbed one."""

import contextlib
import errno
import itertools
import json
import multiprocessing
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tomli_w
from conftest import SECRET
from safetensors.torch import save_file

from fuaudit.errors import EvidenceError, StorageError, UsageError
from fuaudit.formats.files import write_bytes
from fuaudit.formats.forms import pretty_json
from fuaudit.plans import Request
from fuaudit.runs import load_run
from fuaudit.workflow.prune import prune
from fuaudit.workflow.resume import resume
from fuaudit.workflow.swap import standing
from fuaudit.workflow.train import train
from fuaudit.workflow.unlearn import unlearn

COMMAND = Path(sys.executable).parent / "fuaudit"
CALLS = ("write", "fsync", "replace", "rename", "unlink", "rmdir", "mkdir")
"""The calls of the operating system that change what is on the disk."""

APART = 4
"""Of so many calls one fails in each case; another case of the same kind begins at another one."""


class Faults:
    """Counts calls, and lets the one with number ``at`` fail."""

    def __init__(self, monkeypatch, at=None, fault=None):
        self.count = 0
        for name in CALLS:
            monkeypatch.setattr(os, name, self.wrapped(name, getattr(os, name), at, fault))

    def wrapped(self, name, original, at, fault):
        def call(*arguments, **options):
            self.count += 1
            if self.count == at:
                fault(name, original, arguments)
            return None if name == "fsync" else original(*arguments, **options)

        return call


def full_disk(name, original, arguments):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def broken_disk(name, original, arguments):
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def half_a_write(name, original, arguments):
    if name == "write":
        handle, content = arguments
        original(handle, bytes(content)[: len(content) // 2])
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def kill(name, original, arguments):
    os.kill(os.getpid(), signal.SIGKILL)


def killed_half_way(name, original, arguments):
    if name == "write":
        handle, content = arguments
        original(handle, bytes(content)[: len(content) // 2])
    os.kill(os.getpid(), signal.SIGKILL)


def finished(path, begin, tiny, **options):
    """What a user would do with a folder that something happened to; says what was found there."""
    reason = refusal(path)
    if reason is None:
        return load_run(path), "complete"
    if "resume" in reason:
        return resume(path, data=tiny.dataset, **options), "resumed"
    if path.exists():
        assert "Remove the folder" in reason
        shutil.rmtree(path)
    return begin(), "nothing begun"


def refusal(path):
    """Why a folder cannot be opened as a run; None when it can."""
    try:
        load_run(path)
    except EvidenceError as error:
        return str(error)
    return None


def train_tiny(tiny, path):
    return lambda: tiny(path)


def unlearn_tiny(tiny, path):
    return lambda: unlearn(path.parent / "parent", "fats", Request.of([1]), path, data=tiny.dataset)


def edit_tiny(tiny, path):
    return lambda: unlearn(path.parent / "parent", "finetune", Request.of([1]), path, data=tiny.dataset)


def test_a_resumed_run_is_finished_by_the_unlearner_that_it_names(tiny, tmp_path):
    """Options in a folder that somebody wrote to do not choose another one."""
    tiny(tmp_path / "parent")
    path = unlearn_tiny(tiny, tmp_path / "run")().path
    info = json.loads((path / "run.json").read_text())
    info["unlearner"]["options"] = {"use": "finetune"}
    (path / "run.json").write_bytes(pretty_json(info))
    (path / "manifest.json").unlink()
    resume(path, data=tiny.dataset)
    assert not (path / "edit.json").exists()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("work", "fault", "offset"),
    [
        (train_tiny, full_disk, 1),
        (train_tiny, half_a_write, 2),
        (unlearn_tiny, half_a_write, 3),
        (edit_tiny, half_a_write, 4),
    ],
)
def test_a_disk_that_fails_at_many_calls(tiny, tmp_path, monkeypatch, work, fault, offset):
    tiny(tmp_path / "parent")
    expected = work(tiny, tmp_path / "undisturbed")()
    path = tmp_path / "run"
    begin = work(tiny, path)
    seen = set()
    for at in itertools.count(offset, APART):
        with monkeypatch.context() as patch:
            faults = Faults(patch, at, fault)
            try:
                begin()
                break
            except StorageError as error:
                refused = error
        assert refused.exit_code == 70
        assert refused.hint
        assert faults.count >= at
        assert not list(path.rglob("*.partial"))
        run, found = finished(path, begin, tiny)
        seen.add(found)
        assert run.digest == expected.digest, at
        shutil.rmtree(path)
    assert at > 40
    assert seen >= {"resumed", "nothing begun"}


@pytest.mark.thorough
@pytest.mark.parametrize(("fault", "offset"), [(full_disk, 1), (half_a_write, 2)])
def test_a_disk_that_fails_while_resuming(tiny, tmp_path, monkeypatch, fault, offset):
    """Interrupted twice: in training, and at many calls of the resumption."""
    expected = tiny(tmp_path / "undisturbed")
    broken = tmp_path / "broken"
    with monkeypatch.context() as patch:
        Faults(patch, 45, half_a_write)
        with pytest.raises(StorageError):
            tiny(broken)
    for at in itertools.count(offset, APART):
        path = tmp_path / "run"
        shutil.copytree(broken, path)
        with monkeypatch.context() as patch:
            Faults(patch, at, fault)
            try:
                assert resume(path, data=tiny.dataset).digest == expected.digest
                break
            except StorageError:
                pass
        run, found = finished(path, None, tiny)
        assert run.digest == expected.digest
        assert found in ("complete", "resumed")
        shutil.rmtree(path)
    assert at > 10


@pytest.mark.thorough
@pytest.mark.parametrize(("fault", "offset"), [(full_disk, 1), (kill, 3)])
def test_prune_fails_at_many_calls(tiny, tmp_path, monkeypatch, fault, offset):
    """Whatever happens, the run is there before or after, and pruning again finishes."""
    original = tiny(tmp_path / "whole" / "parent")
    child = unlearn(original, "fats", Request.of([1]), tmp_path / "whole" / "child", data=tiny.dataset)
    shutil.copytree(tmp_path / "whole", tmp_path / "undisturbed")
    expected, _ = prune(tmp_path / "undisturbed" / "child")
    for at in itertools.count(offset, APART):
        folder = tmp_path / "family"
        shutil.copytree(tmp_path / "whole", folder)
        done = attempt(monkeypatch, lambda folder=folder: prune(folder / "child"), at, fault)
        if done:
            break
        assert load_run(standing(folder / "child")).digest in (child.digest, expected.digest)
        pruned, _ = prune(folder / "child")
        assert pruned.digest == expected.digest
        assert sorted(p.name for p in (folder / "parent").iterdir()) == ["ledger.jsonl", "tombstone.json"]
        assert sorted(p.name for p in folder.iterdir()) == ["child", "parent"]
        old = original.keys.seeds.parts[0].seed.hex().encode()
        assert not [p for p in folder.rglob("*") if p.is_file() and old in p.read_bytes()]
        shutil.rmtree(folder)
    assert at > 60


def attempt(monkeypatch, work, at, fault):
    """Whether some work, disturbed at its call number ``at``, came through; killed ones run in a fork."""
    if fault not in (kill, killed_half_way):
        with monkeypatch.context() as patch:
            Faults(patch, at, fault)
            try:
                work()
            except StorageError:
                return False
            return True
    child = os.fork()
    if child == 0:
        try:
            with monkeypatch.context() as patch:
                Faults(patch, at, fault)
                work()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFEXITED(status) or os.WTERMSIG(status) == signal.SIGKILL
    return os.WIFEXITED(status)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("work", "offset"),
    [(train_tiny, 1), (unlearn_tiny, 2), (edit_tiny, 3)],
)
def test_killed_at_many_calls(tiny, tmp_path, monkeypatch, work, offset):
    tiny(tmp_path / "parent")
    expected = work(tiny, tmp_path / "undisturbed")()
    path = tmp_path / "run"
    begin = work(tiny, path)
    seen = set()
    for at in itertools.count(offset, APART):
        if attempt(monkeypatch, begin, at, killed_half_way):
            break
        run, found = finished(path, begin, tiny)
        seen.add(found)
        assert run.digest == expected.digest, at
        shutil.rmtree(path)
    assert at > 40
    assert seen >= {"resumed", "nothing begun"}


# --- kills at random instants


def long_training(tables, path):
    train(tables, path, secret=SECRET)


def long_unlearning(parent, path):
    unlearn(parent, "retrain", Request.of([0]), path)


@pytest.fixture(scope="module")
def server():
    """Processes that have everything imported, so that a kill lands in the work and not in the imports."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fuaudit.workflow.unlearn", "sklearn.datasets", "test_faults"])
    return context


@pytest.fixture(scope="module")
def long_run(small_config, tmp_path_factory):
    """A run of about a second, and how to make it."""
    return timed(small_config(150), tmp_path_factory.mktemp("long") / "parent")


@pytest.fixture(scope="module")
def half_as_long(small_config, tmp_path_factory):
    """Instants are shares of its length, so the same many lie in it."""
    return timed(small_config(75), tmp_path_factory.mktemp("half") / "parent")


def timed(tables, path):
    begin = time.monotonic()
    run = train(tables, path, secret=SECRET)
    return run, tables, time.monotonic() - begin


@pytest.mark.thorough
@pytest.mark.parametrize("what", ["train", "unlearn"])
def test_kill_9_at_many_instants(server, half_as_long, tmp_path, what):
    parent, tables, seconds = half_as_long
    if what == "train":
        target, arguments, expected = long_training, (tables,), parent
        begin = lambda path: train(tables, path, secret=SECRET)  # noqa: E731
    else:
        target, arguments = long_unlearning, (parent.path,)
        expected = unlearn(parent, "retrain", Request.of([0]), tmp_path / "undisturbed")
        begin = lambda path: unlearn(parent, "retrain", Request.of([0]), path)  # noqa: E731
    found = []
    kills = 5
    for number in range(kills):
        path = tmp_path / f"run-{number}"
        process = server.Process(target=target, args=(*arguments, path))
        process.start()
        while number and not path.exists() and process.is_alive():
            time.sleep(0.001)
        time.sleep(1.1 * seconds * number / kills)
        process.kill()
        process.join()
        if not path.exists():
            found.append("absent")
            continue
        reason = refusal(path)
        if reason is None:
            run = load_run(path)
            found.append("complete")
        elif "resume" in reason:
            run = resume(path, parent=parent.path if what == "unlearn" else None)
            found.append("resumed")
        else:
            assert "Remove the folder" in reason
            shutil.rmtree(path)
            run = begin(path)
            found.append("nothing begun")
        assert run.digest == expected.digest
        assert run.plan.history() == expected.plan.history()
        shutil.rmtree(path)
    assert found.count("resumed") >= kills // 4, found


@pytest.fixture
def config_file(long_run, tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(tomli_w.dumps(long_run[1]))
    return path


def started(*arguments, **options):
    return subprocess.Popen(
        [COMMAND, *map(str, arguments)], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
    )


def wait_for(path, process):
    while not path.exists() and process.poll() is None:
        time.sleep(0.01)


@pytest.mark.thorough
def test_the_command_is_stopped_and_resumed(config_file, long_run, tmp_path, fuaudit):
    out = tmp_path / "a run"
    process = started("train", config_file, "--out", out, "--secret", SECRET.hex())
    wait_for(out / "checkpoints" / "000010.safetensors", process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    command = f"fuaudit resume {shlex.quote(str(out))}"
    assert process.returncode == 130
    assert command in err
    assert "Traceback" not in err
    with pytest.raises(EvidenceError, match="fuaudit resume"):
        load_run(out)
    code, told, err = fuaudit(*shlex.split(command)[1:])
    assert code == 0, err
    assert f"fuaudit unlearn {shlex.quote(str(out))} --with " in told
    assert load_run(out).digest == long_run[0].digest
    with pytest.raises(UsageError, match="complete"):
        resume(out)


@pytest.mark.thorough
def test_unlearning_elsewhere_is_resumed_with_its_parent(long_run, tmp_path, fuaudit):
    out = tmp_path / "child"
    process = started("unlearn", long_run[0].path, "--with", "retrain", "--client", "0", "--out", out)
    wait_for(out / "checkpoints" / "000010.safetensors", process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    command = next(line for line in err.splitlines() if "fuaudit resume" in line).partition("fuaudit ")[2]
    assert "--parent" in command
    code, told, err = fuaudit(*shlex.split(command))
    assert code == 0, err
    assert "fuaudit unlearn" not in told
    assert load_run(out).is_child


def test_interrupted_before_anything_was_begun(config_file, tmp_path):
    process = started("train", config_file, "--out", tmp_path / "run")
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode in (130, -signal.SIGINT)
    assert "resume" not in err
    assert not (tmp_path / "run").exists()


@pytest.mark.thorough
def test_files_may_not_grow(tiny, tmp_path):
    """A limit on the size of files is a full disk with another name. With few rows the ledger meets it first."""
    rows = {"inputs": tiny.dataset.inputs, "targets": tiny.dataset.targets}
    tests = {"test_inputs": tiny.dataset.test_inputs.clone(), "test_targets": tiny.dataset.test_targets}
    save_file(rows | tests, tmp_path / "data.safetensors")
    tables = tiny.tables | {"learner": tiny.tables["learner"] | {"rounds": 150}, "run": {"checkpoint_every": 50}}
    (tmp_path / "config.toml").write_text(tomli_w.dumps(tables))
    out, limit = tmp_path / "run", 12_500
    process = started(
        "train", tmp_path / "config.toml", "--data", tmp_path, "--out", out, "--secret", SECRET.hex(),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )  # fmt: skip
    _, err = process.communicate()
    assert process.returncode == 70
    assert "ledger.jsonl" in err
    assert f"fuaudit resume {out} --data {tmp_path}" in err
    assert "Traceback" not in err
    whole = train(tables, tmp_path / "whole", data=tmp_path, secret=SECRET)
    assert resume(out, data=tmp_path).digest == whole.digest


# --- folders that cannot be written


def test_a_run_is_never_overwritten(tiny, tmp_path, bytes_of):
    run = tiny(tmp_path / "run")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    before = bytes_of(tmp_path)
    for out in (run.path, tmp_path / "mine", tmp_path / "file"):
        with pytest.raises(UsageError, match="never overwritten"):
            tiny(out)
        with pytest.raises(UsageError, match="never overwritten"):
            unlearn(run, "fats", Request.of([1]), out, data=tiny.dataset)
    assert bytes_of(tmp_path) == before
    (tmp_path / "empty").mkdir()
    assert tiny(tmp_path / "empty").digest == run.digest


@pytest.mark.parametrize("where", ["/proc/fuaudit/run", "file/run", "readonly/run"])
def test_places_that_refuse(tiny, tmp_path, where):
    (tmp_path / "file").write_text("")
    (tmp_path / "readonly").mkdir(mode=0o500)
    if where.startswith("readonly") and os.access(tmp_path / "readonly", os.W_OK):
        where = "file/below/run"  # root may write everywhere
    out = tmp_path / where
    with pytest.raises(StorageError) as caught:
        tiny(out)
    assert caught.value.hint
    assert caught.value.exit_code == 70


def test_a_disk_without_room(tiny, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(StorageError, match="the run needs about"):
        tiny(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_write_is_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_bytes(path, b"old")
    for fault in (full_disk, broken_disk, half_a_write):
        for at in range(1, 5):
            with monkeypatch.context() as patch:
                Faults(patch, at, fault)
                with contextlib.suppress(StorageError):
                    write_bytes(path, b"new content")
            assert path.read_bytes() in (b"old", b"new content")
            assert not list(tmp_path.glob("*.partial"))
            write_bytes(path, b"old")
