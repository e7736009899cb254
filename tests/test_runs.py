"""The run store: every byte accounted for, nothing executed, parents never edited, prune, and the written format."""

import copy
import hashlib
import json
import math
import os
import pickle
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import weakref
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import datetime
from itertools import accumulate, product
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import SECRET
from tests_support import lean, left_alone

from fuaudit import registry
from fuaudit.audits.lineage.regenerated import follow_from_models
from fuaudit.commitments.keys import Keys
from fuaudit.data.dataset import scaling_constants
from fuaudit.data.images import Digits
from fuaudit.draws import END, START, Address, Keyed, Position, Purpose, Stream
from fuaudit.errors import EvidenceError, FuauditError, UsageError
from fuaudit.formats.files import claimed, sha256, write_bytes
from fuaudit.formats.forms import MAX_JSON_BYTES, parse_json, tensor_bytes
from fuaudit.formats.schema import PARTICIPATION
from fuaudit.plans import Request, Segment
from fuaudit.plans.expanded import expand
from fuaudit.reporting import write_report
from fuaudit.reporting.contents import read_contents
from fuaudit.reporting.words import copies, person
from fuaudit.runs import load_run
from fuaudit.runs.derived_files import WRITTEN
from fuaudit.runs.drawn import drawn_plan
from fuaudit.runs.encoding import files_of_round, model_and_state
from fuaudit.runs.layout import AUDIT, BEFORE_PRUNE, BESIDE, PRUNING
from fuaudit.runs.names import request_of
from fuaudit.runs.planned import _require_present
from fuaudit.training import measuring
from fuaudit.training.rounds import StateShape
from fuaudit.training.setup import load_dataset
from fuaudit.verification.case import Case
from fuaudit.verification.evidence import Evidence
from fuaudit.verification.verify import audit_folder, verify
from fuaudit.workflow.prune import prune
from fuaudit.workflow.resume import resume
from fuaudit.workflow.swap import recover
from fuaudit.workflow.train import train
from fuaudit.workflow.unlearn import unlearn
from fuaudit.workflow.writer import recorded_bytes

ROOT = Path(__file__).parents[1]


@pytest.fixture
def spoiled(trained, tmp_path):
    """A copy of the trained run, to be spoiled."""
    shutil.copytree(trained.path, tmp_path / "run")
    return tmp_path / "run"


# --- round trip and digests


def test_round_trip(trained):
    again = load_run(trained.path)
    assert again == trained
    assert again.digest == trained.digest
    assert again.plan.history() == trained.plan.history()
    assert again.plan.retained.samples == trained.plan.retained.samples
    assert torch.equal(again.model, trained.model)
    assert again.checkpoints == (0, 2, 4, 6)
    assert again.keys == Keys.of_secret(SECRET, (1 + 5 + 6 * 3) * 33)
    for shown in (again.keys, again.plan, again.sources, again.keys.seeds):
        assert "x" + again.keys.seeds.parts[0].seed.hex()[:4] not in repr(shown)
        assert str(again.keys.seeds.parts[0].seed) not in repr(shown)
        assert str(again.keys.partition) not in repr(shown)


def test_one_secret_one_digest(trained, small_config, tmp_path):
    same = train(small_config(), tmp_path / "same", secret=SECRET)
    other = train(small_config(), tmp_path / "other", secret=SECRET[::-1])
    assert same.digest == trained.digest != other.digest


def test_keys_are_for_the_eyes_of_their_owner(trained, child):
    for run in (trained, child):
        assert (run.path / "keys.json").stat().st_mode & 0o077 == 0


# --- every byte


@pytest.mark.thorough
def test_every_changed_byte_is_rejected(tiny, tmp_path):
    """Every third byte of every file, and its ends, manifest and ledger included."""
    run = tiny(tmp_path / "run")
    changed = 0
    for path in sorted(p for p in run.path.rglob("*") if p.is_file()):
        content = path.read_bytes()
        for place in sorted({*range(0, len(content), 3), len(content) - 1}):
            mask = (0x01, 0x20, 0xFF)[changed % 3]
            path.write_bytes(content[:place] + bytes([content[place] ^ mask]) + content[place + 1 :])
            with pytest.raises(EvidenceError):
                load_run(run.path)
            changed += 1
        for wrong in (b"", content[:-1], content + b"\n", content + content, b"\n" + content):
            path.write_bytes(wrong)
            with pytest.raises(EvidenceError):
                load_run(run.path)
        path.write_bytes(content)
    assert changed > 1700
    assert load_run(run.path).digest == run.digest


@pytest.mark.thorough
def test_every_changed_byte_of_a_pruned_child_is_rejected(tiny, tmp_path):
    """A sample of offsets: every seventh byte of every file."""
    run = tiny(tmp_path / "run")
    child, _ = prune(unlearn(run, "fats", Request.of([1]), tmp_path / "child", data=tiny.dataset))
    for path in sorted(p for p in child.path.rglob("*") if p.is_file()):
        content = path.read_bytes()
        for place in range(0, len(content), 7):
            path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
            with pytest.raises(EvidenceError):
                load_run(child.path)
        path.write_bytes(content)
    assert load_run(child.path).digest == child.digest


def drop(lines):
    del lines[2]


def insert(lines):
    lines.insert(2, lines[2])


def reorder(lines):
    lines[2], lines[3] = lines[3], lines[2]


def change(lines):
    lines[3] = lines[3].replace(b'"round":2', b'"round":9')


def forget_the_end(lines):
    del lines[-1]


def forget_the_beginning(lines):
    del lines[0]


@pytest.mark.parametrize("edit", [drop, insert, reorder, change, forget_the_end, forget_the_beginning])
def test_a_broken_chain_is_rejected(spoiled, edit):
    path = spoiled / "ledger.jsonl"
    lines = path.read_bytes().splitlines()
    edit(lines)
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    with pytest.raises(EvidenceError):
        load_run(spoiled)


def missing(run):
    (run / "plan.json").unlink()


def surplus(run):
    (run / "notes.txt").write_text("mine")


def renamed(run):
    (run / "metrics.json").rename(run / "metric.json")


def link(run):
    shutil.copy(run / "plan.json", run.parent / "plan.json")
    (run / "plan.json").unlink()
    (run / "plan.json").symlink_to(run.parent / "plan.json")


def linked_folder(run):
    shutil.move(run / "checkpoints", run.parent / "elsewhere")
    (run / "checkpoints").symlink_to(run.parent / "elsewhere")


def pipe(run):
    os.mkfifo(run / "pipe")


def torn(run):
    (run / "model.safetensors.partial").write_bytes(b"half")


def pickled(run):
    (run / "model.pkl").write_bytes(pickle.dumps(Bomb()))


def no_manifest(run):
    (run / "manifest.json").unlink()


def no_ledger(run):
    (run / "ledger.jsonl").unlink()


def other_format(run):
    path = run / "manifest.json"
    path.write_text(path.read_text().replace("fuaudit run 2", "fuaudit run 3"))


class Bomb:
    """A pickle of it writes a file when it is loaded."""

    def __reduce__(self):
        return Path.touch, (Path("exploded"),)


@pytest.mark.parametrize(
    "spoil",
    [missing, surplus, renamed, link, linked_folder, pipe, torn, pickled, no_manifest, no_ledger, other_format],
)
def test_a_spoiled_folder_is_rejected(spoiled, spoil, monkeypatch):
    monkeypatch.chdir(spoiled.parent)
    spoil(spoiled)
    with pytest.raises(EvidenceError) as caught:
        load_run(spoiled)
    assert str(spoiled) in str(caught.value)
    assert not (spoiled.parent / "exploded").exists()


@pytest.mark.parametrize("there", ["nothing", "a file", "an empty folder"])
def test_no_run_at_all(tmp_path, there):
    if there == "a file":
        (tmp_path / "run").write_text("")
    if there == "an empty folder":
        (tmp_path / "run").mkdir()
    with pytest.raises(EvidenceError, match="run"):
        load_run(tmp_path / "run")


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 1}',
        '{"a": NaN}',
        '{"a": -Infinity}',
        "[" * 100_000,
        "9" * 100_000,
        "\udcff",
        "",
        "{",
        '{"a": 1} {}',
    ],
)
def test_json_is_read_strictly(spoiled, text, monkeypatch):
    content = text.encode(errors="surrogateescape")
    with pytest.raises(EvidenceError):
        parse_json(content, Path("some.json"))
    (spoiled / "manifest.json").write_bytes(content)
    with pytest.raises(EvidenceError):
        load_run(spoiled)


def test_json_has_a_largest_size():
    with pytest.raises(EvidenceError, match="larger"):
        parse_json(b" " * (MAX_JSON_BYTES + 1), Path("some.json"))


# --- a forger who seals the run again: still no way in, and never anything but a clear error


def look_at_everything(path):
    """All that audits read of a run."""
    run = load_run(path)
    _ = (
        run.plan,
        run.keys,
        run.commitment,
        run.requests,
        run.metrics,
        run.contents,
        run.opening,
        run.rounds_executed,
        run.pruned,
    )
    _ = run.checkpoints, run.model, run.plan.first_involvement(Request.of([0]))
    if run.is_child:
        _ = run.before
    return run


def places(document, at=()):
    if isinstance(document, dict | list):
        for key, value in document.items() if isinstance(document, dict) else enumerate(document):
            yield (*at, key)
            yield from places(value, (*at, key))


def with_value(document, place, value):
    changed = copy.deepcopy(document)
    inner = changed
    for key in place[:-1]:
        inner = inner[key]
    if value is places:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return changed


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["run", "plan", "keys", "clients", "metrics"])
def test_forged_json_is_an_error_with_a_name(child, tmp_path, reseal, name, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    path = tmp_path / "child"
    shutil.copytree(child.path, path)
    document = json.loads((path / f"{name}.json").read_bytes())
    refused = 0
    for place in [*places(document), ()]:
        for value in (None, 10**30, "x", [], -1.5, places):
            changed = with_value(document, place, value) if place else (value if value is not places else [])
            reseal(path, **{name: changed})
            try:
                look_at_everything(path)
            except FuauditError:
                refused += 1
    assert refused > 10


@pytest.mark.parametrize(
    "tensors",
    [
        {"clients": [[0, 1]], "ends": [1, 2], "samples": [0, 1]},
        {"clients": [0, 1], "ends": [2, 1], "samples": [0]},
        {"clients": [0, 1], "ends": [1, 3], "samples": [0, 1]},
        {"clients": [0, 1], "ends": [1, 2], "samples": [0, 0]},
        {"clients": [0, 0], "ends": [1, 2], "samples": [0, 1]},
        {"clients": [0, 1], "ends": [1.0, 2.0], "samples": [0, 1]},
        {"clients": [0], "ends": [1]},
        {"clients": [], "ends": [], "samples": [1]},
    ],
)
def test_forged_partitions_are_rejected(spoiled, reseal, tensors):
    forged = {n: torch.tensor(v, dtype=None if v else torch.int64) for n, v in tensors.items()}
    (spoiled / "partition.safetensors").write_bytes(tensor_bytes(forged))
    reseal(spoiled)
    with pytest.raises(EvidenceError, match="partition"):
        look_at_everything(spoiled)


@pytest.mark.parametrize("name", ["partition", "involvement", "checkpoints/000006"])
@pytest.mark.parametrize("how", ["cut", "grown", "pickle", "empty", "nan", "huge header"])
def test_forged_safetensors_are_rejected(spoiled, reseal, name, how, monkeypatch):
    monkeypatch.chdir(spoiled.parent)
    path = spoiled / f"{name}.safetensors"
    content = path.read_bytes()
    path.write_bytes(
        {
            "cut": content[:-3],
            "grown": content + b"\0",
            "pickle": pickle.dumps(Bomb()),
            "empty": b"",
            "nan": tensor_bytes({"vector": torch.tensor([math.nan])}),
            "huge header": struct.pack("<Q", 2**62) + content[8:],
        }[how]
    )
    reseal(spoiled)
    with pytest.raises(EvidenceError):
        look_at_everything(spoiled)
    assert not (spoiled.parent / "exploded").exists()


def test_names_resolve_to_entry_points_only(child, spoiled, tmp_path, reseal, quick):
    """A run that names code by its import path opens nothing and imports nothing."""
    config = (spoiled / "config.toml").read_text()
    for name in ("os:system", "antigravity:geohash", "antigravity", "nobody-has-this"):
        (spoiled / "config.toml").write_text(config.replace('use = "fats"', f'use = "{name}"'))
        reseal(spoiled)
        with pytest.raises((UsageError, EvidenceError), match="there is no learner called"):
            load_run(spoiled)
        forged = tmp_path / f"child-{len(name)}"
        shutil.copytree(child.path, forged)
        info = copy.deepcopy(child.info)
        info["unlearner"]["use"] = name
        reseal(forged, run=info)
        with pytest.raises((UsageError, EvidenceError), match="there is no unlearner called"):
            verify(forged, quick, parent=child.path.parent / "parent", save=False)
        shutil.rmtree(forged)
    assert "antigravity" not in sys.modules


def test_nothing_here_can_execute_a_file():
    """No pickle, no torch.load, no eval, no YAML in the sources."""
    wrong = re.compile(
        r"\bpickle\b|\btorch\.(load|save)\b|\bnp\.load\b|\ballow_pickle|(?<![\w.])(eval|exec|compile|__import__)\(|\byaml\b"
        r"|\bmarshal\b|\bshelve\b|\bjoblib\b|\bimportlib\.import_module\b"
    )
    for path in [*ROOT.glob("fuaudit/**/*.py"), *ROOT.glob("plugins/**/*.py")]:
        found = wrong.search(path.read_text())
        assert not found, f"{path}: {found.group()}"


def test_a_wrong_parent_is_rejected(child, small_config, tmp_path):
    other = train(small_config(), tmp_path / "parent", secret=SECRET[::-1])
    with pytest.raises(EvidenceError, match="is not the parent"):
        verify(child, parent=other.path, budget=0, save=False)
    shutil.copytree(child.path, tmp_path / "fats")
    with pytest.raises(EvidenceError, match="is not the parent"):
        verify(tmp_path / "fats", budget=0, save=False)
    with pytest.raises(EvidenceError, match="no run at"):
        verify(child, parent=tmp_path / "nowhere", budget=0, save=False)


# --- children


@pytest.mark.thorough
def test_nothing_edits_a_parent(trained, child, untouched, bytes_of, tmp_path, quick):
    shutil.copytree(trained.path, tmp_path / "parent")
    times = {p: p.stat().st_mtime_ns for p in (tmp_path / "parent").rglob("*")}
    before = bytes_of(trained.path)
    parent = load_run(tmp_path / "parent")
    for name in ("fats", "noop", "retrain", "finetune"):
        made = unlearn(parent, name, Request.of([1]), tmp_path / name)
        whole = bytes_of(made.path)
        verify(made, quick)
        write_report(made.path, "html")
        assert bytes_of(made.path) == whole
    assert bytes_of(parent.path) == before
    assert {p: p.stat().st_mtime_ns for p in parent.path.rglob("*")} == times


def test_unlearning_twice_gives_one_digest(trained, child, target, tmp_path):
    again = unlearn(trained, "fats", Request.of([target]), tmp_path / "again")
    assert again.digest == child.digest
    other = unlearn(trained, "fats", Request.of([(target + 1) % 5]), tmp_path / "other")
    assert other.keys == child.keys == trained.keys
    assert other.commitment == child.commitment == trained.commitment
    at, clients = Address(Purpose.COHORT, 1, version=1), range(1000)
    drawn = [run.sources[1].sequence(at, clients, 4) for run in (child, again, other)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_the_commitment_has_room_for_so_many_requests(tiny, tmp_path):
    run = train(tiny.tables | {"run": {"requests": 1}}, tmp_path / "run", data=tiny.dataset)
    child = unlearn(run, "fats", Request.of([1]), tmp_path / "child", data=tiny.dataset)
    with pytest.raises(UsageError, match="room for 1 request,"):
        unlearn(child, "fats", Request.of([2]), tmp_path / "second", data=tiny.dataset)
    assert not (tmp_path / "second").exists()
    pruned, _ = prune(child)
    with pytest.raises(UsageError, match="room for 1 request,"):
        unlearn(pruned, "fats", Request.of([2]), tmp_path / "second", data=tiny.dataset)
    with pytest.raises(UsageError, match=r"134,217,728 is the most.*\n.*requests = N"):
        train(tiny.tables | {"run": {"requests": 10**8}}, tmp_path / "large", data=tiny.dataset)
    assert not (tmp_path / "large").exists()


def test_a_stream_of_requests(trained, child, target, tmp_path, quick):
    left = [c for c in range(5) if c != target]
    request = request_of(child, (), ((left[0], 0), (left[1], 3)))
    second = unlearn(child, "fats", request, tmp_path / "second")
    shutil.copytree(child.path, tmp_path / "fats")
    shutil.copytree(trained.path, tmp_path / "parent")
    third = unlearn(second, "retrain", Request.of([left[2]]), tmp_path / "third")
    assert [str(r) for r in third.requests] == [f"client {target}", str(request), f"client {left[2]}"]
    assert len(third.plan.populations) == 4
    assert third.plan.first_change(second.plan) == Position(0, 0)
    with pytest.raises(UsageError, match="no client"):
        unlearn(third, "fats", Request.of([target]), tmp_path / "fourth")
    assert not (tmp_path / "fourth").exists()
    result = verify(second, quick, save=False)
    assert result.verdict == "PASS", result.reason


@pytest.mark.thorough
@pytest.mark.parametrize("until", [2, 3])
def test_a_request_during_training(small_config, trained, tmp_path, until, quick):
    """Training stops, the request comes in, unlearning goes on to the last round."""
    run = train(small_config(), tmp_path / "parent", secret=SECRET, stop_after=until)
    assert run.rounds_executed == until
    shared = [r for r in run.checkpoints if r in trained.checkpoints]
    assert all(torch.equal(run.checkpoint(r)[0], trained.checkpoint(r)[0]) for r in shared)
    for client in range(5):
        drawn = trained.plan.index.clients.get(client, 99)
        child = unlearn(run, "fats", Request.of([client]), tmp_path / f"child-{client}")
        assert child.rounds_executed == 6
        assert child.plan.first_change(run.plan) == Position(min(drawn, until + 1), 0)
        result = verify(child, quick, save=False)
        assert result.verdict == "PASS", (client, result.reason)
        # what comes after the request is drawn from the new key, also where nothing was erased
        assert all(child.plan.segment(Stream.COHORTS, (r, 0)).source == 1 for r in range(until + 1, 7))
    with pytest.raises(UsageError, match="was stopped"):
        unlearn(run, "finetune", Request.of([0]), tmp_path / "edited")


def test_requests_that_do_not_fit(trained, tmp_path):
    for clients, samples in (((9,), ()), ((), ((9, 0),)), ((), ((0, 10**6),)), ((), ()), (tuple(range(5)), ())):
        with pytest.raises(UsageError):
            request_of(trained, clients, samples)


# --- prune


@pytest.fixture
def family(small_config, target, tmp_path):
    """Parent, child and grandchild: a client, then two samples, are forgotten."""
    parent = train(small_config(), tmp_path / "parent", secret=SECRET)
    child = unlearn(parent, "fats", Request.of([target]), tmp_path / "child")
    left = [c for c in range(5) if c != target]
    grandchild = unlearn(child, "fats", request_of(child, (), ((left[0], 1), (left[1], 2))), tmp_path / "grandchild")
    return parent, child, grandchild


def seeds_under(seed, first, last):
    """Range of leaves -> seed, for all subtrees under one, by the definition."""
    found = {(first, last): seed}
    if last - first > 1:
        middle = first + 2 ** math.ceil(math.log2(last - first) - 1)
        for bit, ends in ((b"\0", (first, middle)), (b"\1", (middle, last))):
            half = hashlib.blake2b(bit, key=seed, digest_size=32, person=b"fuaudit seeds").digest()
            found |= seeds_under(half, *ends)
    return found


def destroyed(run, pruned):
    """All from which a destroyed draw or the partition could be computed: every seed with a destroyed leaf below it."""
    ((first, last, _, text),) = run.keys.seeds.as_rows()
    gone = {leaf for leaf in range(last) if not pruned.keys.seeds.holds(leaf)}
    seeds = {seed for ends, seed in seeds_under(bytes.fromhex(text), first, last).items() if gone & set(range(*ends))}
    return {*seeds, run.keys.partition, SECRET}, gone


def holders(folder, secrets):
    """Files that hold one of some secrets of 32 bytes, as hexadecimal text or as bytes."""
    found = []
    for path in (path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        windows = {content[at : at + 32] for at in range(len(content) - 31)}
        windows |= {bytes.fromhex(text.decode()) for text in re.findall(rb"(?=([0-9a-fA-F]{64}))", content)}
        found += [path] if windows & secrets else []
    return found


def test_a_run_of_which_another_was_made_is_pruned_by_the_other(family, bytes_of):
    _, child, grandchild = family
    before = bytes_of(child.path)
    with pytest.raises(UsageError, match=r"grandchild was made of .*child, and could be neither verified nor pruned"):
        prune(child)
    assert bytes_of(child.path) == before
    _, buried = prune(grandchild)
    assert child.path in buried


@pytest.mark.thorough
def test_prune_a_child(family, tmp_path, bytes_of, target, quick):
    parent, child, grandchild = family
    root = {parent.keys.seeds.parts[0].seed}
    assert {p.parent.name for p in holders(tmp_path, root)} == {"parent", "child", "grandchild"}
    shutil.rmtree(grandchild.path)
    erased = set(parent.plan.retained.samples[target])
    history, manifest = child.plan.history(), (child.path / "manifest.json").read_bytes()
    before = verify(child, quick, save=False)

    pruned, buried = prune(child)

    assert buried == [parent.path]
    secrets, gone = destroyed(parent, pruned)
    assert gone
    assert not holders(tmp_path, secrets)
    assert not erased & (set(pruned.original.owner) - pruned.stand_ins)
    assert len(pruned.original.samples[target]) == len(erased)
    stored = safetensors(pruned.path / "partition.safetensors")["samples"].tolist()
    assert stored.count(-1) == len(erased)
    assert not erased & set(stored)
    assert sorted(p.name for p in parent.path.iterdir()) == ["ledger.jsonl", "tombstone.json"]
    assert json.loads((parent.path / "tombstone.json").read_bytes())["files"] == parent.files
    with pytest.raises(EvidenceError, match="pruned"):
        load_run(parent.path)
    assert not [p for p in tmp_path.iterdir() if "prun" in p.name]
    assert (pruned.path / "keys.json").stat().st_mode & 0o077 == 0
    # it still is the same run: the same draws, the same models
    assert pruned.pruned
    assert pruned.plan.history() == history
    kept = child.files.keys() - {"keys.json", "clients.json", "partition.safetensors"}
    assert all(pruned.files[name] == child.files[name] for name in kept)
    assert pruned.files.keys() == child.files.keys() | {"former-manifest.json"}
    assert sha256((pruned.path / "former-manifest.json").read_bytes()) == sha256(manifest)
    assert pruned.commitment == child.commitment
    after = verify(pruned, lean("client-erasure"), budget=0, save=False)
    assert before.verdict == after.verdict == "PASS"
    decided = [
        f.verdict for check, f in zip(after.spec.checks, after.findings, strict=True) if check.role == "required"
    ]
    assert len(decided) == 8
    assert set(decided) == {"PASS"}

    content = bytes_of(pruned.path)
    again, nothing = prune(pruned)
    assert (again.digest, nothing) == (pruned.digest, [])
    assert bytes_of(pruned.path) == content


def test_prune_a_chain(family, tmp_path, quick):
    parent, child, grandchild = family
    history = grandchild.plan.history()
    pruned, buried = prune(grandchild)
    assert set(buried) == {parent.path, child.path}
    secrets, gone = destroyed(parent, pruned)
    assert gone
    assert not holders(tmp_path, secrets)
    assert pruned.plan.history() == history
    result = verify(pruned, quick, save=False)
    assert result.verdict == "PASS", result.reason


def test_prune_after_every_request(family, tmp_path, quick):
    """A pruned run can be unlearned further, and pruned again; samples keep their numbers."""
    parent, child, grandchild = family
    request = grandchild.request
    shutil.rmtree(grandchild.path)
    pruned, _ = prune(child)
    second = unlearn(pruned, "fats", request, tmp_path / "second")
    assert verify(second, quick, save=False).verdict == "PASS"
    again, buried = prune(second)
    assert buried == [pruned.path]
    secrets, gone = destroyed(parent, again)
    assert len(gone) > len(destroyed(parent, pruned)[1])
    assert not holders(tmp_path, secrets)
    result = verify(again, quick, save=False)
    assert result.verdict == "PASS", result.reason
    owner = parent.plan.retained.owner[request.samples[0]]
    assert again.numbered(owner) == parent.plan.retained.samples[owner]
    third = unlearn(again, "retrain", request_of(again, (), ((owner, 7),)), tmp_path / "third")
    assert third.request.samples == (parent.plan.retained.samples[owner][7],)
    assert verify(third, quick, save=False).verdict == "PASS"
    with pytest.raises(UsageError):
        request_of(again, (), ((owner, parent.plan.retained.samples[owner].index(request.samples[0])),))
    with pytest.raises(UsageError, match="a prune took out the ids"):
        request_of(again, (), ((child.request.clients[0], 0),))


def test_copies_are_listed_in_every_ancestor_and_beside_the_run(family, tmp_path, quick, target):
    """What either request erased, in the run it was erased from and in older ones; keys of neighbours; a torn one."""
    parent, child, grandchild = family
    unlearn(parent, "noop", Request.of([target]), tmp_path / "noop")

    def listed(run):
        result = verify(run, quick, save=False)
        contents = read_contents(result.as_json())
        return list(map(str, copies(contents))), dict(person(contents))["What may still be there?"]

    lines, text = listed(grandchild)
    drawn = [drawn_plan(parent).first_involvement(request) for request in grandchild.requests]
    first = min(at.round for at in drawn if at)
    expected = {
        f"parent/checkpoints/{round_number:06d}.safetensors"
        for round_number in parent.checkpoints
        if round_number >= first
    }
    expected |= {"parent/model.safetensors", "parent/keys.json", "noop/keys.json"}
    found = {line.split(":")[0] for line in lines}
    assert {name for name in found if not name.startswith("child/")} == expected
    again = drawn_plan(child).first_involvement(grandchild.request)
    assert ("child/model.safetensors" in found) == (again is not None)
    assert "child/keys.json" in found
    assert f"of {len(found)} other places" in text

    write_bytes(tmp_path / "torn" / "keys.json", b"{")
    lines, _ = listed(grandchild)
    assert "torn/keys.json: cannot be read, and may give such draws back" in lines
    assert any(line.startswith("noop/keys.json: gives draws") for line in lines)
    shutil.rmtree(tmp_path / "torn")
    shutil.rmtree(tmp_path / "noop")
    shutil.move(parent.path, tmp_path / "elsewhere" / "parent")
    assert any(line.startswith("the parent ") and "of child: is not at hand" in line for line in listed(grandchild)[0])
    shutil.move(tmp_path / "elsewhere" / "parent", parent.path)
    shutil.copytree(grandchild.path, tmp_path / "kept")
    shutil.copytree(child.path, tmp_path / "old")
    write_bytes(tmp_path / "strange" / "keys.json", b'{"seeds": [1, "xyz", null]}')
    pruned, _ = prune(grandchild)
    lines, text = listed(pruned)
    buried = [f"{name}: was pruned; only run.json and its ledger are left" for name in ("child", "parent")]
    holding = "gives draws over an earlier population back; its models may hold the contribution"
    assert lines == [*buried, *(f"{name}/keys.json: {holding}" for name in ("kept", "old"))]
    assert "knows of 2 other places" in text
    (tmp_path / "old" / "keys.json").unlink()
    (tmp_path / "old" / "keys.json").symlink_to(tmp_path / "kept" / "keys.json")
    assert "old/keys.json: cannot be read, and may give such draws back" in listed(pruned)[0]
    for name in ("kept", "old"):
        shutil.rmtree(tmp_path / name)
    lines, text = listed(pruned)
    assert lines == buried
    assert "knows of no other copy" in text
    write_bytes(parent.path / "keys.json", b"{}")  # as a prune leaves it that is killed between two removals
    lines, text = listed(pruned)
    assert "parent: was pruned, but keys.json still lie there; call fuaudit prune again" in lines
    assert "knows of one other place" in text


def test_prune_refuses(family, tmp_path, bytes_of, target):
    parent, child, _ = family
    noop = unlearn(parent, "noop", Request.of([target]), tmp_path / "noop")
    edited = unlearn(parent, "finetune", Request.of([target]), tmp_path / "finetune")
    before = bytes_of(tmp_path)
    for run, reason in ((parent, "training run"), (noop, "still draws"), (edited, "was edited")):
        with pytest.raises(UsageError, match=reason):
            prune(run)
    assert left_alone(child) == (sorted(tmp_path / name for name in ("finetune", "grandchild", "noop")), [])
    shutil.move(parent.path, tmp_path / "elsewhere" / "parent")
    with pytest.raises(EvidenceError, match="not at hand"):
        prune(child, allow_orphans=True)
    shutil.move(tmp_path / "elsewhere" / "parent", parent.path)
    (tmp_path / "elsewhere").rmdir()
    assert bytes_of(tmp_path) == before


def test_a_second_prune_waits_for_the_first(tiny, tmp_path, monkeypatch, bytes_of):
    """Of the same run or of a sibling: refused while one is at work, and nothing is changed."""
    parent = tiny(tmp_path / "parent")
    child, sibling = (
        unlearn(parent, "fats", Request.of([1]), tmp_path / name, data=tiny.dataset) for name in ("child", "sibling")
    )
    history, refused = child.plan.history(), []

    def meanwhile(plan, salt):
        assert (tmp_path / "child.pruning").exists()
        before = bytes_of(tmp_path)
        for path in (child.path, sibling.path):
            with pytest.raises(UsageError, match="another prune is at work"):
                prune(path)
            refused.append(path)
        assert bytes_of(tmp_path) == before
        return recorded_bytes(plan, salt)

    monkeypatch.setattr("fuaudit.workflow.prune.recorded_bytes", meanwhile)
    pruned, buried = prune(child)
    assert len(refused) == 2
    assert buried == [parent.path]
    assert load_run(child.path).digest == pruned.digest
    assert pruned.plan.history() == history
    assert prune(child)[0].digest == pruned.digest  # opened before the first prune, and pruned since


def test_what_is_not_whole_does_not_take_the_place_of_a_run(tiny, tmp_path, monkeypatch, bytes_of):
    """Something else removes or changes a file of the run that a prune writes."""
    child = unlearn(tiny(tmp_path / "parent"), "fats", Request.of([1]), tmp_path / "child", data=tiny.dataset)
    before = bytes_of(tmp_path)
    staged = tmp_path / "child.pruning" / "checkpoints" / "000001.safetensors"

    def removed(plan, salt):
        staged.unlink()
        return recorded_bytes(plan, salt)

    def changed(plan, salt):
        staged.write_bytes(b"other")
        return recorded_bytes(plan, salt)

    for meanwhile in (removed, changed):
        with monkeypatch.context() as patch:
            patch.setattr("fuaudit.workflow.prune.recorded_bytes", meanwhile)
            with pytest.raises(EvidenceError, match=r"child\.pruning"):
                prune(child)
        recover(child.path)
        assert bytes_of(tmp_path) == before
    # what was there before a prune goes only where a run stands
    shutil.move(child.path, tmp_path / "child.before-prune")
    child.path.mkdir()
    with pytest.raises(EvidenceError, match="is empty"):
        recover(child.path)
    child.path.rmdir()
    recover(child.path)
    assert bytes_of(tmp_path) == before
    assert prune(child)[0].pruned


def test_what_a_killed_prune_left_goes_only_where_its_run_stands(tiny, tmp_path, bytes_of):
    """Another run was made under the name, or the run itself was taken away."""
    child = unlearn(tiny(tmp_path / "parent"), "fats", Request.of([1]), tmp_path / "child", data=tiny.dataset)
    shutil.move(child.path, tmp_path / "child.before-prune")
    tiny(child.path)
    before = bytes_of(tmp_path)
    with pytest.raises(EvidenceError, match="another one, which was never pruned"):
        prune(child.path)
    assert bytes_of(tmp_path) == before
    shutil.rmtree(child.path)
    shutil.move(tmp_path / "child.before-prune", tmp_path / "child.pruning")
    before = bytes_of(tmp_path)
    with pytest.raises(EvidenceError):
        prune(child.path)
    assert bytes_of(tmp_path) == before


@pytest.mark.parametrize("name", ["model.safetensors", "config.toml"])
def test_files_without_a_ledger_that_are_not_the_run_s_stay_beside_it(tiny, tmp_path, bytes_of, name):
    """Somebody keeps the model of another run, or a config, under a name that a prune uses."""
    child = unlearn(tiny(tmp_path / "parent"), "fats", Request.of([1]), tmp_path / "child", data=tiny.dataset)
    (tmp_path / "child.pruning").mkdir()
    (tmp_path / "child.pruning" / name).write_bytes(b"something else")
    before = bytes_of(tmp_path)
    with pytest.raises(EvidenceError, match="is not what a prune"):
        prune(child.path)
    assert bytes_of(tmp_path) == before


def test_a_run_has_no_name_that_is_used_beside_another(tiny, tmp_path):
    for end in BESIDE:
        with pytest.raises(UsageError, match="fuaudit's own"):
            tiny(tmp_path / f"child{end}")
    assert not list(tmp_path.iterdir())


def test_what_is_not_of_a_run_stays_beside_it(tiny, tmp_path, bytes_of, quick):
    """Another run of the same lineage, or somebody's notes, were moved to a name that fuaudit uses beside a run."""
    parent = tiny(tmp_path / "parent")
    child, other = (
        unlearn(parent, "fats", Request.of([client]), tmp_path / name, data=tiny.dataset)
        for client, name in enumerate(("child", "other"))
    )
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("mine")

    def stays(what, end, work, refused):
        there = shutil.move(what, tmp_path / f"child{end}")
        before = bytes_of(tmp_path)
        with pytest.raises(EvidenceError, match=refused):
            work(child.path)
        assert bytes_of(tmp_path) == before
        shutil.move(there, what)

    stays(other.path, AUDIT, lambda path: verify(path, quick, data=tiny.dataset), "findings would spoil it")
    for what in (other.path, tmp_path / "notes"):
        stays(what, PRUNING, prune, "is not what a prune")
    prune(child, allow_orphans=True)
    for what in (other.path, tmp_path / "notes"):
        stays(what, BEFORE_PRUNE, prune, "is not what a prune")


def test_nothing_lies_beside_the_root(tmp_path):
    for work in (prune, load_run, audit_folder):
        with pytest.raises(EvidenceError):
            work(Path("/"))


def test_runs_are_pruned_from_inside_and_through_links(tiny, tmp_path, monkeypatch):
    for number in range(3):
        child = unlearn(
            tiny(tmp_path / f"{number}" / "parent"), "fats", Request.of([1]), tmp_path / f"{number}" / "child",
            data=tiny.dataset,
        )  # fmt: skip
        (tmp_path / f"link-{number}").symlink_to(child.path)
        monkeypatch.chdir(child.path / "checkpoints" if number == 1 else child.path)
        pruned, buried = prune([Path("."), "..", tmp_path / "link-2"][number])
        monkeypatch.chdir(tmp_path)
        assert buried == [(tmp_path / f"{number}" / "parent").resolve()]
        assert sorted(path.name for path in (tmp_path / f"{number}").iterdir()) == ["child", "parent"]
        assert load_run(child.path).digest == pruned.digest


# --- docs/run-format.md, read as a third party would: hashlib, json, struct and NumPy's Philox only


def safetensors(path):
    """Name -> array, from the bytes: 8 bytes of length, a JSON header, the data."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    header.pop("__metadata__", None)
    kinds = {"I64": "<i8", "F32": "<f4", "F64": "<f8", "U8": "|u1"}
    return {
        name: np.frombuffer(content[8 + length :][a:b], dtype=kinds[entry["dtype"]]).reshape(entry["shape"])
        for name, entry in header.items()
        for a, b in [entry["data_offsets"]]
    }


def derived(key, *texts):
    data = b"".join(len(t.encode()).to_bytes(8, "little") + t.encode() for t in texts)
    return hashlib.blake2b(data, key=key, digest_size=32, person=b"fuaudit keys").digest()


def halves(seed, leaves):
    """Both halves of a tree of seeds: seed and number of leaves."""
    left = 2 ** ((leaves - 1).bit_length() - 1)
    both = (hashlib.blake2b(bit, key=seed, digest_size=32, person=b"fuaudit seeds").digest() for bit in (b"\0", b"\1"))
    return tuple(zip(both, (left, leaves - left), strict=True))


def leaf_of(seed, leaves, place):
    """One leaf of a tree of seeds."""
    if leaves == 1:
        return seed
    left, right = halves(seed, leaves)
    return leaf_of(*left, place) if place < left[1] else leaf_of(*right, place - left[1])


def digest_under(seed, leaves):
    """The digest of a tree of seeds."""
    if leaves == 1:
        return hashlib.sha256(b"\0" + seed).digest()
    return hashlib.sha256(b"\1" + b"".join(digest_under(*half) for half in halves(seed, leaves))).digest()


def words(secret, purpose, round_number, step, client, occurrence, version, count, attempt=0):
    """The first ``count`` words of one draw; NumPy's stream starts at the block after its counter."""
    digest = hashlib.blake2b(purpose.encode(), key=secret, digest_size=16, person=b"fuaudit draws").digest()
    counter = (
        attempt << 32 | (round_number << 32 | step) << 64 | (client + 1) << 128 | (occurrence << 32 | version) << 192
    )
    stream = np.random.Philox(counter=(counter - 1) % 2**256, key=int.from_bytes(digest, "little"))
    return [int(word) for word in stream.random_raw(count)]


def integer(word, bound):
    assert word < 2**64 - 2**64 % bound  # else: the same word of the next attempt
    return word % bound


def written_root(files, names):
    """The root of contents from digits and salts, by the page on the format; every stored leaf is compared."""

    def sha256(*parts):
        return hashlib.sha256(b"".join(parts)).digest()

    def root(level):
        while len(level) > 1:
            pairs = [sha256(b"\1", *level[i : i + 2]) for i in range(0, len(level) - 1, 2)]
            level = pairs + level[2 * len(pairs) :]
        return level[0]

    def leaf(seed, first, last, number):
        while last - first > 1:
            middle = first + 2 ** ((last - first - 1).bit_length() - 1)
            side, first, last = (b"\1", middle, last) if number >= middle else (b"\0", first, middle)
            seed = hashlib.blake2b(side, key=seed, digest_size=32, person=b"fuaudit seeds").digest()
        return seed

    def number(value):
        return value.to_bytes(8, "little")

    stored = safetensors(files["contents.safetensors"])
    assert set(stored) == {"clients", "ends", "names", "rows", "tests"}
    opened = json.loads(files["clients.json"].read_bytes())
    total = len(stored["names"]) + len(stored["rows"]) + len(stored["tests"])
    assert opened == {"names": names or None, "salts": [[0, total, "seed", derived(SECRET, "salts").hex()]]}
    salts = iter(leaf(derived(SECRET, "salts"), 0, total, salt) for salt in range(total))
    data = Digits().load(None)

    def row(id, inputs, targets):
        content = f"fuaudit row float32 64 {targets[id]}\n".encode() + inputs[id].numpy().tobytes()
        return sha256(b"\0", next(salts), number(id), sha256(content))

    dealt = {name: values.tolist() for name, values in safetensors(files["partition.safetensors"]).items()}
    nodes, named, rows = [], [], []
    for client, begin, end in zip(dealt["clients"], [0, *dealt["ends"]], dealt["ends"], strict=False):
        name, salt = names.get(str(client)), next(salts)
        named.append(sha256(b"\5", salt) if name is None else sha256(b"\2", salt, name.encode()))
        own = [row(id, data.inputs, data.targets) for id in dealt["samples"][begin:end]]
        nodes.append(sha256(b"\3", number(client), number(len(own)), named[-1], root(own)))
        rows += own
    tests = [row(id, data.test_inputs, data.test_targets) for id in range(len(data.test_targets))]
    assert stored["names"].tobytes() == b"".join(named)
    assert stored["rows"].tobytes() == b"".join(rows)
    assert stored["tests"].tobytes() == b"".join(tests)
    assert (stored["clients"].tolist(), stored["ends"].tolist()) == (dealt["clients"], dealt["ends"])
    return sha256(b"\4", number(len(nodes)), number(len(tests)), root(nodes), root(tests)).hex()


def test_the_written_format(trained, child, target):
    files = {p.relative_to(child.path).as_posix(): p for p in child.path.rglob("*") if p.is_file()}
    manifest = json.loads(files["manifest.json"].read_bytes())
    listed = {
        name: {"sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "size": path.stat().st_size}
        for name, path in files.items()
        if name not in ("manifest.json", "ledger.jsonl")
    }
    canonical = json.dumps(listed, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert manifest["files"] == listed
    assert manifest["digest"] == hashlib.sha256(canonical.encode()).hexdigest() == child.digest
    pretty = json.dumps(manifest, sort_keys=True, indent=1, ensure_ascii=False) + "\n"
    assert files["manifest.json"].read_text() == pretty

    head = "0" * 64
    events = []
    for line in files["ledger.jsonl"].read_bytes().splitlines():
        event = json.loads(line)
        assert event["previous"] == head
        assert ("time" in event) == (event["event"] != "round")
        assert line == json.dumps(event, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
        head = hashlib.sha256(line).hexdigest()
        events.append(event)
    times = [event["time"] for event in events if "time" in event]
    assert times == sorted(times)
    assert all(1970 <= datetime.strptime(time, "%Y-%m-%dT%H:%M:%S%z").year <= 2099 for time in times)
    assert manifest["ledger"] == head
    assert events[-1]["event"] == "sealed"
    assert events[-1]["digest"] == manifest["digest"]

    keys = json.loads(files["keys.json"].read_bytes())
    seeds, room = (1 + 5 + 6 * 3) * 33, derived(SECRET, "draws")
    partition = hashlib.sha256(b"fuaudit key" + derived(SECRET, "partition")).hexdigest()
    assert keys == {
        "seeds": [[0, seeds, "seed", room.hex()]],
        "partition": derived(SECRET, "partition").hex(),
        "partition_digest": partition,
    }
    parts = [partition, digest_under(room, seeds).hex(), listed["config.toml"]["sha256"], written_root(files, {})]
    assert json.loads(files["run.json"].read_bytes())["beacon"] is None
    parts.append("none")
    assert events[0]["commitment"] == hashlib.sha256(f"fuaudit commitment {' '.join(parts)}".encode()).hexdigest()

    plan = json.loads(files["plan.json"].read_bytes())
    tables = safetensors(files["partition.safetensors"])
    clients, ends, samples = (tables[name].tolist() for name in ("clients", "ends", "samples"))
    owned = {c: samples[a:b] for c, a, b in zip(clients, [0, *ends[:-1]], ends, strict=True)}
    first = {"clients": {}, "samples": {}}
    request = hashlib.sha256(f"clients {target} samples ".encode()).hexdigest()
    contexts = ["", hashlib.sha256(f"fuaudit context  {request}".encode()).hexdigest()]

    def key(generation, round_number, step):
        """Under which the draws of a position are made: 24 leaves a generation, the first six of no position."""
        place = generation * 24 + (6 + (round_number - 1) * 3 + step if round_number else 0)
        return derived(leaf_of(room, seeds, place), "draws", contexts[generation])

    for round_number in range(1, 7):
        *_, source, version = [s for s in plan["streams"]["cohorts"] if s[:2] <= [round_number, 0]][-1]
        population = {c: s for c, s in owned.items() if version == 0 or c != target}
        drawn = words(key(source, round_number, 0), "cohort", round_number, 0, -1, 0, version, 2)
        cohort = [sorted(population)[integer(word, len(population))] for word in drawn]
        for place, client in enumerate(cohort):
            first["clients"].setdefault(client, round_number)
            for step in (1, 2):
                *_, source, version = [s for s in plan["streams"]["batches"] if s[:2] <= [round_number, step]][-1]
                secret, size = key(source, round_number, step), len(owned[client])
                at = round_number, step, client, cohort[:place].count(client), version
                chosen = set()
                for index, word in enumerate(words(secret, "batch", *at, 4)):
                    last = size - 4 + index
                    rank = integer(word, last + 1)
                    chosen.add(last if rank in chosen else rank)
                for rank in chosen:
                    sample = owned[client][rank]
                    first["samples"][sample] = min(first["samples"].get(sample, (99, 0)), (round_number, step))
    recorded = safetensors(files["involvement.safetensors"])
    assert dict(recorded["clients"].tolist()) == first["clients"]
    assert {s: (r, e) for s, r, e in recorded["samples"].tolist()} == first["samples"]

    # weight (10, 64) and bias (10): uniform in [-1/8, 1/8)
    raw = np.array(words(key(0, 0, 0), "init", 0, 0, -1, 0, 0, 650), dtype=np.uint64)
    initial = ((2 * ((raw >> np.uint64(11)).astype(np.float64) * 2.0**-53) - 1) / 8).astype(np.float32)
    assert np.array_equal(safetensors(files["checkpoints/000000.safetensors"])["vector"], initial)
    final = safetensors(files["checkpoints/000006.safetensors"])["vector"]
    rounds = {e["round"]: e.get("model") for e in events if e["event"] == "round"}
    assert rounds[6] == hashlib.sha256(final.tobytes()).hexdigest()
    assert {r for r, model in rounds.items() if model} == {
        r for r in rounds if f"checkpoints/{r:06d}.safetensors" in files
    }
    model = safetensors(files["model.safetensors"])
    assert np.array_equal(np.concatenate([model["1.weight"].reshape(-1), model["1.bias"]]), final)


def by_weight(drawn, weights, count):
    """``count`` keys of a table of weights, one after another."""
    left, taken = dict(weights), []
    for word in drawn[:count]:
        ticket = integer(word, sum(left.values()))
        reached = dict(zip(left, accumulate(left.values()), strict=True))
        taken.append(next(member for member, total in reached.items() if total > ticket))
        del left[taken[-1]]
    return taken


def available(scenario, key, version, round_number, clients):
    """The cohort of a round by a scenario below: everybody in round 1 is for the caller.

    ``key`` gives that of a round, step and client.
    """

    def words_of(purpose, *at, count=1):
        return words(key(*at[:3]), purpose, *at, version, count)

    if scenario == "static":
        return [
            c for c in clients if by_weight(words_of("availability", round_number, 0, c, 0), {0: 5 - 2, 1: 2}, 1) == [1]
        ]
    if scenario == "time-varying":
        weights = {c: 1 + integer(*words_of("availability", round_number, 0, c, 0), 10) for c in clients}
        return sorted(
            by_weight(words_of("cohort", round_number, 0, -1, 0, count=2), weights, max(1, 5 * len(clients) // 10))
        )
    taus = {c: integer(*words_of("availability", 0, 0, c, 0), 3 + 1) for c in clients}
    phases = {c: integer(*words_of("availability", 0, 0, c, 1), tau) for c, tau in taus.items() if tau > 1}
    return [c for c, tau in taus.items() if tau < 2 or (round_number - 1) % tau == phases[c]]


SCENARIOS = {
    "static": {"probability": 0.4},
    "time-varying": {"share": 0.5},
    "round-robin": {"tau_max": 3, "phase": "drawn"},
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_written_format_of_availability_and_memories(scenario, small_config, tmp_path):
    work = {"epochs": 2, "batch": 120, "largest_client": 300, "step_size": 0.1, "rounds": 4}
    learner = {"use": "scaffold", "scenario": scenario, **SCENARIOS[scenario], **work}
    tables = small_config() | {"learner": learner, "server": [{"use": "mean"}, {"use": "momentum"}]}
    path = train(tables, tmp_path / "run", secret=SECRET).path
    steps, ((_, seeds, _, text),) = 2 * 3, json.loads((path / "keys.json").read_bytes())["seeds"]
    assert seeds == 33 * (1 + 5 + 4 * (steps + 1))

    def key(round_number, step, client):
        place = 1 + 5 + (round_number - 1) * (steps + 1) + step if round_number else 1 + client
        return derived(leaf_of(bytes.fromhex(text), seeds, place), "draws", "")

    dealt = {name: values.tolist() for name, values in safetensors(path / "partition.safetensors").items()}
    clients, ends = dealt["clients"], dealt["ends"]
    owned = {c: dealt["samples"][a:b] for c, a, b in zip(clients, [0, *ends[:-1]], ends, strict=True)}
    cohorts = [clients, *(available(scenario, key, 0, round_number, clients) for round_number in (2, 3, 4))]
    told = json.loads((path / "participation.json").read_bytes())
    assert told["cohorts"] == cohorts
    assert told["uploads"] == [2 * sum(map(len, cohorts[:round_number])) for round_number in (1, 2, 3, 4)]
    assert 0 < sum(map(len, cohorts[1:])) < 15

    first = {}
    for round_number, cohort in enumerate(cohorts, 1):
        for begin, client in product((1, 4), cohort):  # an epoch has room for ceil(300 / 120) steps
            drawn = words(
                key(round_number, begin, client), "permutation", round_number, begin, client, 0, 0, len(owned[client])
            )
            assert len(set(drawn)) == len(drawn)
            order = [owned[client][rank] for rank in sorted(range(len(drawn)), key=drawn.__getitem__)]
            for place, sample in enumerate(order):
                first.setdefault(sample, (round_number, begin + place // 120))
    recorded = safetensors(path / "involvement.safetensors")
    assert {s: (r, e) for s, r, e in recorded["samples"].tolist()} == first

    shapes = {name: values.shape for name, values in safetensors(path / "checkpoints" / "000004.safetensors").items()}
    assert shapes == {
        "vector": (650,),
        "state.server.1.velocity": (1, 650),
        "state.solver.control": (1, 650),
        "state.solver.controls": (5, 650),
    }


def test_the_written_format_names_every_purpose_field_and_memory():
    text = (ROOT / "docs" / "run-format.md").read_text()
    names = [*Purpose, "state.server.PLACE.NAME", "state.solver.NAME", "tests", *PARTICIPATION]
    shape = StateShape(3, 2, torch.float32, torch.device("cpu"))
    for kind in ("solvers", "stages", "aggregators"):
        for entry in registry.entries(kind).values():
            if entry.distribution == "fuaudit":
                with suppress(TypeError):  # it has an option without a default
                    names += entry.load()().init(shape)
    assert "controls" in names
    for name in names:
        assert f"`{name}`" in text, name


@pytest.mark.thorough
def test_two_writers_do_not_share_a_folder(small_config, tmp_path):
    with claimed(tmp_path / "run"):
        script = (
            "import sys, json; from fuaudit.workflow.train import train; "
            "train(json.loads(sys.argv[1]), sys.argv[2], secret=bytes(32))"
        )
        arguments = [sys.executable, "-c", script, json.dumps(small_config()), str(tmp_path / "run")]
        other = subprocess.run(arguments, capture_output=True, text=True, check=False)
        assert "another process is writing" in other.stderr
        assert not list((tmp_path / "run").iterdir())
    assert not (tmp_path / "run").exists()  # nothing was begun
    train(small_config(), tmp_path / "run", secret=SECRET)


def test_torch_threads_of_the_caller_are_put_back(tiny, tmp_path):
    """After training, after an interruption, its resumption, and unlearning."""

    def stop(what, number, total):
        raise KeyboardInterrupt

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(KeyboardInterrupt):
            tiny(tmp_path / "run", progress=stop)
        assert torch.get_num_threads() == 2
        resumed = resume(tmp_path / "run", data=tiny.dataset)
        assert torch.get_num_threads() == 2
        assert tiny(tmp_path / "again").digest == resumed.digest
        assert torch.get_num_threads() == 2
        unlearn(resumed, "fats", Request.of([1]), tmp_path / "child", data=tiny.dataset)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_stored_models_are_read_one_at_a_time(small_config, tmp_path, monkeypatch):
    """Neither sealing nor lineage holds more than one stored model besides the one it reads, or encodes one again."""
    alive, most, encoded = [], [], []

    def watched(tensors):
        alive[:] = [reference for reference in alive if reference() is not None]
        most.append(len(alive))
        vector, state = model_and_state(tensors)
        alive.append(weakref.ref(vector))
        return vector, state

    def counted(number, vector, state, salt):
        encoded.append(vector)
        return files_of_round(number, vector, state, salt)

    monkeypatch.setattr("fuaudit.runs.encoding.model_and_state", watched)
    monkeypatch.setattr("fuaudit.runs.models.model_and_state", watched)
    monkeypatch.setattr("fuaudit.workflow.writer.files_of_round", counted)
    monkeypatch.setattr("fuaudit.runs.derived_files.files_of_round", counted)
    run = train(small_config(run={"checkpoint_every": 1}), tmp_path / "run", secret=SECRET)
    assert len(most) > 6
    assert max(most) <= 1
    assert len(encoded) == len(run.checkpoints)
    most.clear()
    encoded.clear()
    case = Case(Evidence(run, None, load_dataset(run.config, None)), Keyed(SECRET))
    files = follow_from_models(case)
    assert {name: sha256(content) for name, content in files.items()} == {
        name: run.files[name]["sha256"] for name in files
    }
    assert files.keys() >= WRITTEN.keys()
    assert len(most) > 6
    assert max(most) <= 1
    assert not encoded


def test_a_plan_is_opened_without_a_look_at_every_round(tiny, tmp_path):
    """A config may name two thousand million rounds, of as many steps."""

    def late(number, frame):
        raise TimeoutError("every round was looked at")

    plan = tiny(tmp_path / "run").plan
    huge = replace(plan, law=replace(plan.law, rounds=END.round - 1, steps=END.round - 1))
    cohort = huge.cohort(3)
    absent = next(client for client in huge.retained.clients if client not in cohort)
    fresh = Keyed(bytes(32))
    handler = signal.signal(signal.SIGALRM, late)
    signal.alarm(30)
    try:
        _require_present(huge)
        _require_present(huge.erase(Request.of([absent]), fresh, Position(3, 1)))
        with pytest.raises(ValueError, match="round 3 draws batches of a client that is gone"):
            _require_present(huge.erase(Request.of([cohort[0]]), fresh, Position(3, END.round - 1)))
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)


def test_clients_that_are_gone_are_found_wherever_segments_start(tiny, tmp_path):
    """The check agrees with one that looks at every round and step, under segments that start anywhere."""
    plan = tiny(tmp_path / "run").plan
    plan = replace(plan, law=replace(plan.law, rounds=4, steps=2))
    plan = plan.erase(Request.of([1]), Keyed(bytes(32)), END).erase(Request.of([2]), Keyed(bytes(range(32))), END)
    places = [Position(round_number, step) for round_number in range(7) for step in range(5)]
    seen = random.Random(5)

    def segments():
        starts = sorted({START, *seen.sample(places, seen.randrange(3))})
        return tuple(Segment(start, (number := seen.randrange(3)), number) for start in starts)

    def gone(plan):
        for round_number in range(1, 5):
            cohort = set(plan.cohort(round_number))
            version = plan.segment(Stream.COHORTS, Position(round_number, 0)).version
            for step in range(3):
                other = plan.segment(Stream.BATCHES, Position(round_number, step)).version
                if other != version and not cohort <= plan.populations[other].samples.keys():
                    return True
        return False

    found = set()
    for _ in range(400):
        other = replace(plan, streams={**plan.streams, Stream.COHORTS: segments(), Stream.BATCHES: segments()})
        expected = gone(other)
        found.add(expected)
        with pytest.raises(ValueError, match="gone by then") if expected else nullcontext():
            _require_present(other)
    assert found == {True, False}


def test_the_plugins_of_a_run_are_on_record(trained):
    rows = {row["kind"]: row for row in trained.info["plugins"]}
    assert set(rows) == {"datasets", "partitions", "models", "learners", "solvers", "aggregators"}
    assert rows["learners"]["use"] == "fats"
    assert all(row["distribution"] == "fuaudit" and row["version"] for row in rows.values())


def test_the_written_format_names_every_file(family, bytes_of):
    text = (ROOT / "docs" / "run-format.md").read_text()
    pruned, _ = prune(family[2])
    names = set(bytes_of(pruned.path)) | set(bytes_of(family[0].path)) | {"edit.json"}
    for name in names:
        assert re.sub(r"\d{6}", "NNNNNN", name) in text, name
    stone = json.loads((family[0].path / "tombstone.json").read_bytes())
    tables = [json.loads((pruned.path / name).read_bytes()) for name in ("plan.json", "keys.json")]
    for field in {*tables[0], *tables[1], *pruned.info, *stone}:
        assert f"`{field}`" in text, field


def test_a_pruned_run_has_the_draws_that_it_had(family):
    schedule = expand(family[2].plan)
    pruned, _ = prune(family[2])
    assert np.array_equal(expand(pruned.plan).cohorts, schedule.cohorts)
    assert np.array_equal(expand(pruned.plan).batches, schedule.batches)
    assert pruned.plan.first_involvement(pruned.request) is None
    assert pruned.original.clients == family[0].original.clients


def test_inputs_are_scaled_by_constants_that_are_computed_once_a_run(tiny, tmp_path, monkeypatch):
    """They take a pass over all rows; before, every stored round and every client paid for one."""
    passes = []

    def counted(dataset, *arguments):
        if dataset is tiny.dataset:  # the canary has rows of its own
            passes.append(arguments)
        return scaling_constants(dataset, *arguments)

    monkeypatch.setattr(measuring, "scaling_constants", counted)
    learner = {"use": "scaffold", "scenario": "static", "probability": 0.5, "rounds": 2, "steps": 1, "batch": 2}
    tables = tiny.tables | {"learner": learner | {"step_size": 0.1}}
    run = train(tables, tmp_path / "run", data=tiny.dataset, secret=SECRET)
    assert len(run.metrics) == 3
    assert len(json.loads((run.path / "participation.json").read_text())["own_accuracy"]) == 3
    assert len(passes) == 1


def test_what_was_executed_again_is_told_as_it_was(small_config, tmp_path, fuaudit):
    """Models are stored every third round: execution goes on from one of these, before the first change."""
    run = train(small_config(9, run={"checkpoint_every": 3}), tmp_path / "run", secret=SECRET)
    drawn = {client: first for client, first in run.plan.index.clients.items() if first % 3 != 1}
    client = max(drawn, key=lambda one: drawn[one])
    child = unlearn(run, "fats", Request.of([client]), tmp_path / "child")
    executed = [line["round"] for line in child.ledger.of_kind("round")]
    again = [number for number in executed if number < child.info["first_change"][0]]
    assert again
    computed = json.loads(fuaudit("show", child.path, "--json")[1])["computed_anew"]
    steps = sum(len(cohort) for cohort in child.participation["cohorts"][executed[0] - 1 :]) * 2
    assert computed == {
        "from_round": executed[0],
        "rounds": len(executed),
        "client_steps": steps,
        "drawn_as_before": len(again),
    }
    told = f"computed anew from round {executed[0]} on: {len(executed)} rounds, {steps} client steps; round"
    assert told in fuaudit("show", child.path)[1]
    assert f"as drawn before, because no model after round {executed[0] - 1} was kept" in fuaudit("show", child.path)[1]
