"""A forger writes a model into digests of what a prune took away: nothing is there that could have another digest.

A tombstone lists the files of a run and tells the models of its rounds; a pruned run keeps the manifest of before. He
writes the chain anew, and all of it fits. The docs said that there is room; the PASS of the run did not.
"""

import json

import numpy as np
import pytest
from tests_support import AUDIT_KEY, config, edit, secret, told

from fuaudit import load_run, train, unlearn, verify
from fuaudit.formats.files import sha256
from fuaudit.formats.forms import pretty_json
from fuaudit.plans import Request
from fuaudit.runs.encoding import digest_of_vector
from fuaudit.runs.layout import FORMER
from fuaudit.runs.ledger import Ledger, read_ledger
from fuaudit.runs.manifest import digest_of_files, manifest_bytes
from fuaudit.workflow.append import append
from fuaudit.workflow.prune import prune
from fuaudit.workflow.writer import RunWriter

TARGET = 0
DIGEST, TENSORS, JSON = 32, 5, 4
"""Bytes of a digest, and of the largest size of a file of tensors and of JSON."""


def named(run, quick):
    """What the PASS of a run says of what is gone."""
    options = {"commitment": run.commitment, "request": run.request}
    result = verify(run, quick, key=AUDIT_KEY, save=False, **options)
    assert result.verdict == "PASS", result.reason
    return [line for line in result.conclusion.rests_on if line.startswith("Digests ")]


def line(files, models, room):
    of_models = f", and digests of {models} model{'s' * (models != 1)}," if models else ""
    what = f"{files} file{'s' * (files != 1)}{of_models} that {'is' if files + models == 1 else 'are'} gone"
    return f"Digests and sizes of {what} are as told: {room:,} bytes, with which nothing here was compared."


@pytest.fixture
def parent(tmp_path):
    learner = config()["learner"] | {"rounds": 45, "batch": 8}
    return train(config(learner=learner, run={"checkpoint_every": 1}), tmp_path / "parent", secret=secret(3))


def buried(parent, method="retrain"):
    child = unlearn(parent, method, Request.of([TARGET]), parent.path.parent / "child")
    return prune(child)[0]


def told_anew(child, folder, files, models):
    """The chain with other entries in the tombstone, by file, and other models told in its ledger, in order."""
    stone = folder / "tombstone.json"
    table, left = json.loads(stone.read_text()), list(models)
    table["files"] |= files
    table["digest"] = digest_of_files(table["files"])
    stone.write_bytes(pretty_json(table))
    events, ledger = read_ledger(folder).events, Ledger()
    (folder / "ledger.jsonl").unlink()
    for event in events:
        facts = {name: value for name, value in event.items() if name not in ("event", "previous", "time")}
        facts |= {"model": left.pop(0)} if "model" in facts and left else {}
        facts |= {"digest": table["digest"]} if "digest" in facts else {}
        ledger = append(folder, ledger, event["event"], **facts)
    assert not left
    edit(child.path, "run.json", parent=child.info["parent"] | {"digest": table["digest"]})
    at_last = {"parent": table["digest"]}
    return told(child.path, lambda found: [e | (at_last if e["event"] == "request" else {}) for e in found])


def test_a_model_in_digests_of_a_tombstone(parent, quick):
    """All numbers of the original model, bit for bit, under the built-in audits of the run."""
    old = parent.model.numpy().copy()
    child, stone = buried(parent), parent.path / "tombstone.json"
    entries, bits = json.loads(stone.read_text())["files"], old.tobytes()
    words = [bits[at : at + DIGEST].ljust(DIGEST, b"\0").hex() for at in range(0, len(bits), DIGEST)]
    stored = sorted(name for name in entries if name.startswith("checkpoints/"))
    in_files = dict(zip(stored, words + ["0" * 64] * len(stored), strict=False))
    files = {name: entries[name] | {"sha256": word} for name, word in in_files.items()}
    forged = told_anew(child, parent.path, files, words[len(stored) :])

    held = json.loads(stone.read_text())["files"]
    read = [held[name]["sha256"] for name in sorted(held) if name.startswith("checkpoints/")]
    read += [event["model"] for event in read_ledger(parent.path).events if "model" in event]
    assert (np.frombuffer(bytes.fromhex("".join(read))[: old.nbytes], old.dtype) == old).all()

    (found,) = named(forged, quick)
    gone = [(name, e) for name, e in held.items() if name != "run.json" and e not in forged.files.values()]
    models = {e["model"] for e in read_ledger(parent.path).events if "model" in e}
    former = json.loads((forged.path / FORMER).read_text())["files"]
    gone += [(name, e) for name, e in former.items() if e not in forged.files.values()]
    sizes = sum(JSON if name.endswith(".json") else TENSORS for name, _ in gone if name != "run.json")
    assert found == line(len(gone), len(models), DIGEST * (len(gone) + len(models)) + sizes)
    assert DIGEST * len(words) <= int(found.split("told: ")[1].split(" bytes")[0].replace(",", ""))


def test_which_of_the_digests_at_hand_is_told(parent, quick):
    """Each is the digest of something at hand, so all that is told is which: five bits and more a stored round."""
    child = buried(parent)
    (honest,) = named(child, quick)
    entries = json.loads((parent.path / "tombstone.json").read_text())["files"]
    stored = sorted(name for name in entries if name.startswith("checkpoints/"))
    files = {name: child.files[other] for name, other in zip(stored, reversed(stored), strict=True)}
    models = [digest_of_vector(child.checkpoint(number)[0]) for number in range(45, 0, -1)]
    (found,) = named(told_anew(child, parent.path, files, models), quick)
    before_the_prune = 3  # a run that is sealed anew was never pruned
    assert files_in(found) == files_in(honest) - before_the_prune
    assert " of 45 models" in found


def test_whose_model_is_told_where_two_runs_are_at_hand(parent, quick):
    """Each round has a model of the child and one of the grandchild: to tell the one or the other is a bit."""
    child = buried(parent)
    grandchild = unlearn(child, "retrain", Request.of([1]), parent.path.parent / "grandchild")
    (honest,) = named(grandchild, quick)
    entries = json.loads((parent.path / "tombstone.json").read_text())["files"]
    stored = sorted(name for name in entries if name.startswith("checkpoints/"))
    files = {name: (child, grandchild)[number % 2].files[name] for number, name in enumerate(stored)}
    models = [digest_of_vector((child, grandchild)[number % 2].checkpoint(number)[0]) for number in range(1, 46)]
    told_child = told_anew(child, parent.path, files, models)
    edit(grandchild.path, "run.json", parent=grandchild.info["parent"] | {"digest": told_child.digest})
    above = {"parent": told_child.digest}
    forged = told(grandchild.path, lambda found: [e | (above if e["event"] == "request" else {}) for e in found])
    (found,) = named(forged, quick)
    assert files_in(found) >= files_in(honest) - 3
    assert " of 45 models" in found


def test_an_honest_prune_keeps_what_it_names(parent, quick):
    """Kept rounds have models of which the digests are compared; only of others is something as told."""
    kept = prune(unlearn(parent, "fats", Request.of([9]), parent.path.parent / "child"))[0]
    first = kept.info["first_change"][0]
    assert first > 1
    models = {digest_of_vector(kept.checkpoint(number)[0]) for number in range(1, first)}
    (found,) = named(kept, quick)
    told_of = {e["model"] for e in read_ledger(parent.path).events if "model" in e}
    assert models <= told_of
    assert f" of {len(told_of - models)} models, that are gone are as told" in found


def test_where_every_model_was_kept_none_is_named(tmp_path, quick):
    """Who was never drawn: the child has all models, and "digests of 0 models" would say nothing."""
    run = train(config(learner=config()["learner"] | {"rounds": 1}), tmp_path / "parent", secret=secret(3))
    (target, *_) = [client for client in run.plan.retained.clients if client not in run.plan.cohort(1)]
    child = prune(unlearn(run, "fats", Request.of([target]), tmp_path / "child"))[0]
    (found,) = named(child, quick)
    assert "model" not in found
    assert found.startswith(f"Digests and sizes of {files_in(found)} files that are gone are as told: ")


def test_the_manifest_of_before_a_prune(parent, quick):
    """Three files were written anew by the prune: what is told of them is counted, whatever it is."""
    child = buried(parent)
    (before,) = named(child, quick)
    files = json.loads((child.path / FORMER).read_text())["files"]
    replaced = [name for name, entry in files.items() if entry != child.files[name]]
    assert replaced == ["clients.json", "keys.json", "partition.safetensors"]
    for name in replaced:
        files[name]["sha256"] = sha256(name.encode())
    events, ledger = read_ledger(child.path).events[:-2], Ledger()
    (child.path / "ledger.jsonl").unlink()
    (child.path / "manifest.json").unlink()
    for event in events:
        facts = {name: value for name, value in event.items() if name not in ("event", "previous", "time")}
        ledger = append(child.path, ledger, event["event"], **facts)
    ledger = append(child.path, ledger, "sealed", digest=digest_of_files(files))
    (child.path / FORMER).write_bytes(manifest_bytes(digest_of_files(files), files, ledger.head))
    RunWriter(child.path, ledger).close("pruned", before=digest_of_files(files))
    (after,) = named(load_run(child.path), quick)
    assert files_in(after) == files_in(before)


def files_in(words):
    return int(words.split("sizes of ")[1].split(" file")[0])


def test_what_a_tombstone_was_before_a_prune_is_counted(parent, quick):
    """A pruned run names the digest of before. Once it is a tombstone, nothing is left that had it."""
    child = buried(parent)
    last = prune(unlearn(child, "retrain", Request.of([1]), parent.path.parent / "last"))[0]
    stones = [json.loads((run.path / "tombstone.json").read_text())["files"] for run in (parent, child)]
    former = json.loads((last.path / FORMER).read_text())["files"]

    def gone(files, kept):
        return sum(entry != kept.get(name) or "/" in name for name, entry in files.items() if name != "run.json")

    expected = gone(stones[0], stones[1]) + gone(stones[1], last.files)
    expected += sum(entry != last.files[name] for name, entry in former.items())
    (found,) = named(last, quick)
    assert files_in(found) == expected + 1


def test_without_a_prune_nothing_is_gone(parent, quick):
    child = unlearn(parent, "fats", Request.of([TARGET]), parent.path.parent / "child")
    assert named(child, quick) == []
