"""A forger changes one field of one file at a time, seals the run again, and looks whether anybody notices.

What nobody notices is a place in which he can keep something: an old model, in the end. Every field of every document,
every event of the ledger and every tensor is changed in turn, lists grow by one more, and the auditor has the
commitment, the request and the data. The fields that may differ stand in FREE, each with what bounds it.
"""

import copy
import json
import shutil

import pytest
from safetensors.torch import load
from tests_support import AUDIT_KEY, config, drawn_client, reseal, secret, told

from fuaudit import load_run, train, unlearn, verify
from fuaudit.errors import FuauditError
from fuaudit.formats.files import sha256
from fuaudit.formats.forms import pretty_json, tensor_bytes
from fuaudit.plans import Request
from fuaudit.runs.ledger import Ledger, read_ledger
from fuaudit.runs.manifest import digest_of_files
from fuaudit.workflow.append import append
from fuaudit.workflow.prune import prune

FREE = {
    "ledger/*/time": "a time, to the second, of an event that is no round; it is not before the last one",
    "ledger/*/versions/*": "a platform: on another one models are judged within a tolerance, which a PASS names",
    "ledger/*/plugins/*/version": "the same",
    "ledger/*/canary": "the same",
    "ledger/*/before": "the digest of the run before a prune: its manifest must have it",
    "run.json/versions/*": "a platform",
    "run.json/parent/name": "the name of the parent's folder, which must lie there",
    "tombstone/files/*": "a digest and a size of a file that is gone: 32 bytes and a number for each that a run has",
    "tombstone/info/versions/*": "a platform",
    "tombstone/info/engine": "a word of a closed list",
    "tombstone/info/device": "the same",
}
DOCUMENTS = ("run.json", "plan.json", "keys.json", "clients.json", "metrics.json", "participation.json")
TENSORS = ("partition", "involvement", "contents", "model", "checkpoints/000000", "checkpoints/000008")


def leaves(value, path=()):
    """Every field below a value, and every list: path -> what is there."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, (*path, name))
        return
    yield path, value
    if isinstance(value, list):
        for place, inner in enumerate(value):
            yield from leaves(inner, (*path, place))


def other(value):
    """Another value of the same shape."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, list):
        return [*value, copy.deepcopy(value[-1])] if value else ["more"]
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value + 0.5
    if isinstance(value, str) and value:
        return value[:-1] + ("1" if value[-1] != "1" else "2")
    return "more"


def changed(document, path):
    """A document with one field changed."""
    result = copy.deepcopy(document)
    at = result
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = other(at[path[-1]])
    return result


def pattern(name, path):
    return "/".join([name, *("*" if isinstance(step, int) or str(step).isdigit() else step for step in path)])


def one_of_each(name, document):
    """The first path of every pattern, and the last."""
    found = {}
    for path, _ in leaves(document):
        if path:
            found.setdefault(pattern(name, path), []).append(path)
    for words, paths in found.items():
        for path in dict.fromkeys((paths[0], paths[-1])):
            yield words, path


def is_free(words):
    return any(words == free or (free.endswith("/*") and words.startswith(free[:-1])) for free in FREE)


@pytest.fixture(scope="module", params=["child", "pruned"])
def honest(request, tmp_path_factory):
    root = tmp_path_factory.mktemp(request.param)
    parent = train(config(run={"checkpoint_every": 4}), root / "parent", secret=secret(3))
    child = unlearn(parent, "fats", Request.of([drawn_client(parent)]), root / "child")
    return prune(child)[0] if request.param == "pruned" else child


@pytest.fixture
def noticed(honest, quick, tmp_path):
    """Whether a change of a copy is refused, or is no PASS."""
    given = {"commitment": honest.commitment, "request": honest.request, "key": AUDIT_KEY, "save": False}

    def work(change):
        root = tmp_path / "copy"
        shutil.copytree(honest.path.parent, root)
        try:
            change(root / "child")
            return verify(load_run(root / "child"), quick, **given).verdict != "PASS"
        except FuauditError:
            return True
        finally:
            shutil.rmtree(root)

    assert not work(lambda path: None), "the honest run passes"
    return work


def sealed_again(path):
    return told(path, lambda events: events) if (path / "former-manifest.json").exists() else reseal(path)


@pytest.mark.thorough
@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents(name, honest, noticed):
    document = json.loads((honest.path / name).read_bytes())
    missed = []
    for words, path in one_of_each(name, document):

        def change(run, path=path):
            (run / name).write_bytes(pretty_json(changed(document, path)))
            sealed_again(run)

        if not is_free(words) and not noticed(change):
            missed.append((words, path))
    assert not missed, [words for words, _ in missed]


def test_events_of_the_ledger(honest, noticed):
    events = [event for event in honest.ledger.events if event["event"] not in ("sealed", "pruned")]
    missed = []
    for words, path in one_of_each("ledger", events):
        if path[-1] in ("previous", "event") or len(path) == 1:
            continue

        def course(found, path=path):
            return changed(found, path)

        if not is_free(words) and not noticed(lambda run, course=course: told(run, course)):
            missed.append((words, path))
    assert not missed, [words for words, _ in missed]


@pytest.mark.parametrize("name", TENSORS)
def test_tensors(name, honest, noticed):
    file = f"{name}.safetensors"
    tensors = load((honest.path / file).read_bytes())
    missed = []
    for key, tensor in tensors.items():

        def change(run, key=key, tensor=tensor):
            flat = tensor.clone().reshape(-1)
            flat[-1] = flat[-1] + 1
            (run / file).write_bytes(tensor_bytes(tensors | {key: flat.reshape(tensor.shape)}))
            sealed_again(run)

        if tensor.numel() and not noticed(change):
            missed.append(key)
    assert not missed, [words for words, _ in missed]


def sealed_below(child, stone):
    """Write a tombstone, its ledger, and the child that names it, so that all of it fits."""
    above = child.with_name("parent")
    info = pretty_json(stone["info"])
    stone["files"]["run.json"] = {"sha256": sha256(info), "size": len(info)}
    digest = stone["digest"] = digest_of_files(stone["files"])
    (above / "tombstone.json").write_bytes(pretty_json(stone))
    events = read_ledger(above).events
    (above / "ledger.jsonl").unlink()
    ledger = Ledger()
    for event in events:
        facts = {name: value for name, value in event.items() if name not in ("event", "previous")}
        ledger = append(above, ledger, event["event"], **(facts | ({"digest": digest} if "digest" in facts else {})))
    run = json.loads((child / "run.json").read_bytes())
    (child / "run.json").write_bytes(pretty_json(run | {"parent": run["parent"] | {"digest": digest}}))
    told(child, lambda found: [e | ({"parent": digest} if e["event"] == "request" else {}) for e in found])


def test_tombstones(honest, noticed):
    if not honest.pruned:
        return  # its parent is a run, which is compared as one
    stone = json.loads((honest.path.with_name("parent") / "tombstone.json").read_bytes())
    assert not noticed(lambda run: sealed_below(run, copy.deepcopy(stone))), "written again, it passes"
    missed = []
    for words, path in one_of_each("tombstone", stone):
        if path == ("digest",) or is_free(words):
            continue
        if not noticed(lambda run, path=path: sealed_below(run, changed(stone, path))):
            missed.append((words, path))
    assert not missed, [words for words, _ in missed]


def test_another_value_is_another_value():
    for value in (True, 3, 0.5, "abc1", "abc2", None, [], [1]):
        assert other(value) != value
