"""A forger keeps the untouched model inside the audited run, where nothing regenerates it.

He unlearns honestly, so every file that audits compute again is right. Then he puts the old model into a place that the
format leaves free, and makes manifest and ledger fit. Every such place is one test; the run must not open.
"""

import inspect
import json
import os
import shutil
from contextlib import nullcontext
from functools import partial
from hashlib import sha256
from importlib.metadata import entry_points

import pytest
import torch
from tests_support import parse_tensors, sealed, told

from fuaudit import load_run, train, unlearn, verify
from fuaudit.errors import EvidenceError
from fuaudit.formats.forms import canonical_json, pretty_json, tensor_bytes
from fuaudit.plans import Request
from fuaudit.runs.ledger import Ledger, read_ledger
from fuaudit.workflow.append import append

LAST = "checkpoints/000002.safetensors"


@pytest.fixture(scope="module")
def family(tiny, tmp_path_factory):
    """A training run, and a child that honestly forgot client 1."""
    root = tmp_path_factory.mktemp("honest")
    parent = tiny(root / "parent")
    unlearn(parent, "fats", Request.of([1]), root / "child", data=tiny.dataset)
    unlearn(parent, "finetune", Request.of([1]), root / "edited", data=tiny.dataset)
    return root


@pytest.fixture
def child(family, tmp_path):
    return shutil.copytree(family / "child", tmp_path / "child")


@pytest.fixture
def old(family):
    """What is to be hidden: the parent's last model."""
    return load_run(family / "parent").model


def word(old):
    return old.numpy().tobytes().hex()


def with_field(name, *way):
    """A field of a JSON file, at some place inside."""

    def work(path, old):
        table = json.loads((path / name).read_bytes())
        inner = table
        for step in way:
            inner = inner[step]
        inner["kept"] = word(old)
        (path / name).write_bytes(pretty_json(table))

    return work


def with_value(name, *way):
    """The value of a free text."""

    def work(path, old):
        table = json.loads((path / name).read_bytes())
        inner = table
        for step in way[:-1]:
            inner = inner[step]
        inner[way[-1]] = word(old)
        (path / name).write_bytes(pretty_json(table))

    return work


def with_tensor(name, key):
    def work(path, old):
        tensors = parse_tensors((path / name).read_bytes(), path)
        (path / name).write_bytes(tensor_bytes(tensors | {key: old}))

    return work


def metadata(path, old):
    content = (path / LAST).read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    text = json.dumps({"__metadata__": {"kept": word(old)}, **header}).encode()
    (path / LAST).write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])


def a_gap_between_tensors(path, old):
    content = (path / "model.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")
    text = content[8 : 8 + length] + b" " * 8 * old.numel()
    (path / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])


def an_empty_folder(path, old):
    (path / word(old)[:100]).mkdir()


def an_empty_folder_of_models(path, old):
    (path / "checkpoints" / word(old)[:100]).mkdir()


def a_folder(path, old):
    (path / "old").mkdir()
    (path / "old" / "model.safetensors").write_bytes(tensor_bytes({"vector": old}))


def a_closed_folder(path, old):
    a_folder(path, old)
    os.chmod(path / "old", 0)


def a_comment(path, old):
    with (path / "config.toml").open("a") as file:
        file.write(f"# {word(old)}\n")


def the_order_of_options(path, old):
    text = (path / "config.toml").read_text()
    assert "rounds = 2\ncohort = 2\n" in text
    (path / "config.toml").write_text(text.replace("rounds = 2\ncohort = 2\n", "cohort = 2\nrounds = 2\n"))


def spaces(path, old):
    with (path / "metrics.json").open("a") as file:
        file.write(" " * int(word(old)[:2], 16))


def a_number_written_otherwise(path, old):
    text = (path / "metrics.json").read_text()
    (path / "metrics.json").write_text(text.replace('"test_accuracy": 0.', '"test_accuracy": 0.0e0', 1))


def surplus_recorded_draws(path, old):
    numbers = old.view(torch.int32).long()
    tensors = {"addresses": torch.tensor([[7, 0, 1, 0, -1, 0]]), "ends": torch.tensor([len(numbers)]), "ids": numbers}
    (path / "recorded.safetensors").write_bytes(tensor_bytes(tensors))


def messages_of_an_editor(path, old):
    rows = [{"sender": "server", "receiver": "0", "size": number} for number in old.view(torch.int32).abs().tolist()]
    (path / "edit.json").write_bytes(pretty_json({"messages": rows}))


def an_earlier_manifest(path, old):
    shutil.copyfile(path / "manifest.json", path / "former-manifest.json")


PLACES = {
    "a tensor beside a model": with_tensor(LAST, "old"),
    "a memory that no stage keeps": with_tensor(LAST, "state.server.0.old"),
    "a parameter that the model does not have": with_tensor("model.safetensors", "old"),
    "a tensor of the partition": with_tensor("partition.safetensors", "old"),
    "a tensor of the index": with_tensor("involvement.safetensors", "old"),
    "a tensor of the contents": with_tensor("contents.safetensors", "old"),
    "run.json": with_field("run.json"),
    "run.json, parent": with_field("run.json", "parent"),
    "run.json, unlearner": with_field("run.json", "unlearner"),
    "run.json, versions": with_field("run.json", "versions"),
    "run.json, a plugin": with_field("run.json", "plugins", 0),
    "run.json, a version": with_value("run.json", "versions", "torch"),
    "run.json, the version of a plugin": with_value("run.json", "plugins", 0, "version"),
    "run.json, another plugin": with_value("run.json", "plugins", 0, "use"),
    "the number of a round in another script": lambda path, old: shutil.copyfile(
        path / LAST, path / LAST.replace("2", "\u0662")
    ),
    "plan.json": with_field("plan.json"),
    "plan.json, streams": with_field("plan.json", "streams"),
    "plan.json, a request": with_field("plan.json", "requests", 0),
    "keys.json": with_field("keys.json"),
    "clients.json": with_field("clients.json"),
    "metrics.json": with_field("metrics.json", 0),
    "participation.json": with_field("participation.json"),
    **{
        place.__name__.replace("_", " "): place
        for place in (
            metadata,
            a_gap_between_tensors,
            an_empty_folder,
            an_empty_folder_of_models,
            a_folder,
            a_closed_folder,
            a_comment,
            the_order_of_options,
            spaces,
            a_number_written_otherwise,
            surplus_recorded_draws,
            messages_of_an_editor,
            an_earlier_manifest,
        )
    },
}


@pytest.mark.parametrize("place", PLACES)
def test_a_file_has_one_form(child, old, place, fuaudit, request):
    PLACES[place](child, old)
    if place == "a closed folder":
        request.addfinalizer(lambda: os.chmod(child / "old", 0o700))
    else:
        sealed_blindly(child)
    with pytest.raises(EvidenceError):
        load_run(child)
    code, out, err = fuaudit("verify", child)
    assert (code, out) == (4, ""), err
    assert word(old) not in err


def sealed_blindly(path):
    """Make manifest and ledger fit; a writer of today would refuse to list some of these."""
    try:
        sealed(path)
    except EvidenceError:
        assert not (path / "manifest.json").exists()


EVENTS = {
    "of a kind that there is not": {"event": "note"},
    "a second seal": {"event": "sealed", "digest": "0" * 64},
    "with a field of its own": None,
    "a second request": {"event": "request", "clients": [1], "samples": [], "parent": "0" * 64},
    "a second platform": {},
}


@pytest.mark.parametrize("kind", EVENTS)
def test_the_ledger_tells_what_it_must_and_nothing_else(child, old, kind):
    def edit(events):
        events = list(events)
        if kind == "with a field of its own":
            return [event | ({"kept": word(old)} if event["event"] == "commitment" else {}) for event in events]
        if kind == "a second platform":
            first = next(event for event in events if event["event"] == "platform")
            return [e for event in events for e in ([event] * 2 if event is first else [event])]
        added = EVENTS[kind] | ({"kept": word(old)} if kind == "of a kind that there is not" else {})
        return [events[0], added, *events[1:]]

    with pytest.raises(EvidenceError):
        told(child, edit)


def test_digests_of_rounds_that_are_not_stored(tiny, old, tmp_path):
    """The forger writes 32 bytes of the old model into the line of every round whose model nobody stores."""
    more = {"learner": tiny.tables["learner"] | {"rounds": 9}, "run": tiny.tables["run"] | {"checkpoint_every": 9}}
    parent = train(tiny.tables | more, tmp_path / "parent", data=tiny.dataset, secret=bytes(32))
    child = unlearn(parent, "retrain", Request.of([1]), tmp_path / "child", data=tiny.dataset)
    assert [event["round"] for event in child.ledger.of_kind("round") if "model" in event] == [9]
    content = iter([word(old)[place : place + 64].ljust(64, "0") for place in range(0, 8 * 64, 64)])

    def edit(events):
        for event in events:
            yield event | ({"model": next(content)} if event["event"] == "round" and event["round"] < 9 else {})

    with pytest.raises(EvidenceError, match="other rounds than those whose models are stored"):
        told(child.path, edit)


def test_a_stored_round_names_its_model(child):
    """The forger leaves the digest of a stored model out, so that another one could stand there."""

    def edit(events):
        return [{name: value for name, value in event.items() if name != "model"} for event in events]

    with pytest.raises(EvidenceError, match="other rounds than those whose models are stored"):
        told(child, edit)


def _platform(events):
    return next(event for event in events if event["event"] == "platform")


def test_platforms_whose_work_was_lost(child, old):
    """The forger writes the old model into the names of platforms that went on and, he says, stored nothing."""

    def edit(events):
        for event in events:
            yield event
            if event["event"] == "platform":
                yield event | {"versions": event["versions"] | {"processor": word(old)[:100]}}
                yield event | {"versions": event["versions"] | {"platform": word(old)[:100]}}

    with pytest.raises(EvidenceError, match="several of its platforms went on from one round"):
        told(child, edit)


def test_a_platform_between_seal_and_prune(family, old, tmp_path):
    """The forger adds a platform after the seal, in a pruned run and in a tombstone: refused in words."""
    from fuaudit.runs.ancestors import parent_of
    from fuaudit.workflow.prune import prune

    root = shutil.copytree(family, tmp_path / "family")
    pruned, (stone,) = prune(root / "child")
    for path in (pruned.path, stone):
        events = list(read_ledger(path).events)
        end = next(place for place, event in enumerate(events) if event["event"] == "sealed") + 1
        seal, late = events[end - 1], _platform(events) | {"since": 2, "canary": word(old)[:64].ljust(64, "0")}
        pruning = {"event": "pruned", "digest": seal["digest"], "before": seal["digest"]}
        (path / "ledger.jsonl").unlink()
        ledger = Ledger()
        for event in [*events[:end], late, *(events[end:] or [pruning])]:
            facts = {name: value for name, value in event.items() if name not in ("event", "previous")}
            ledger = append(path, ledger, event["event"], **facts)
    with pytest.raises(EvidenceError, match="is not that of the run that its tombstone names"):
        parent_of(pruned)
    sealed_blindly(pruned.path)
    with pytest.raises(EvidenceError, match="a platform went on with it after its seal"):
        load_run(pruned.path)


@pytest.mark.parametrize("way", ["a round", "recorded draws", "a ledger", "a size", "another engine"])
def test_files_of_a_tombstone_that_never_were(way, family, old, tmp_path):
    """The forger lists files in a tombstone whose digests are the old model, and makes its child name the tombstone."""
    from fuaudit.runs.ancestors import parent_of
    from fuaudit.runs.manifest import digest_of_files
    from fuaudit.workflow.prune import prune

    root = shutil.copytree(family, tmp_path / "family")
    pruned, _ = prune(root / "child")
    stone = json.loads((root / "parent" / "tombstone.json").read_bytes())
    files, entry = stone["files"], {"sha256": word(old)[:64].ljust(64, "0"), "size": 1}
    names = {"a round": "checkpoints/000003.safetensors", "recorded draws": "recorded.safetensors"}
    if way == "a size":
        files["metrics.json"]["size"] = 2**52
    elif way == "another engine":
        stone["info"]["engine"] = "batched"
        content = pretty_json(stone["info"])
        files["run.json"] = {"sha256": sha256(content).hexdigest(), "size": len(content)}
    else:
        files[names.get(way, "ledger.jsonl")] = entry
    stone["digest"] = digest_of_files(files)
    (root / "parent" / "tombstone.json").write_bytes(pretty_json(stone))
    ledger, events = Ledger(), read_ledger(root / "parent").events
    (root / "parent" / "ledger.jsonl").unlink()
    for event in events:
        facts = {name: value for name, value in event.items() if name not in ("event", "previous")}
        facts |= {"digest": stone["digest"]} if event["event"] == "sealed" else {}
        ledger = append(root / "parent", ledger, event["event"], **facts)
    with pytest.raises(EvidenceError, match="is not that of a run"):
        parent_of(pruned)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("recorded.safetensors", "of which a prune leaves the file"),
        ("ledger.jsonl", "names other files than are here"),
    ],
)
def test_files_of_before_a_prune_that_never_were(name, told, family, old, tmp_path):
    """The forger lists a file in the manifest of before the prune, whose digest is a part of the old model."""
    from fuaudit.runs.manifest import digest_of_files
    from fuaudit.runs.pruned_contents import former_of
    from fuaudit.workflow.prune import prune

    root = shutil.copytree(family, tmp_path / "family")
    run, _ = prune(root / "child")
    assert former_of(run)
    table = run.document("former-manifest.json")
    table["files"][name] = {"sha256": word(old)[:64].ljust(64, "0"), "size": 1}
    table["digest"] = run.ledger.events[-1]["before"] = digest_of_files(table["files"])
    with pytest.raises(EvidenceError, match=told):
        former_of(run)


def retold(stone, course):
    """The ledger of a tombstone, with other events at the times that it tells."""
    head, written = "0" * 64, b""
    for event in course(read_ledger(stone).events):
        line = canonical_json(event | {"previous": head})
        head, written = sha256(line).hexdigest(), written + line + b"\n"
    (stone / "ledger.jsonl").write_bytes(written)


@pytest.fixture
def buried(family, tmp_path):
    """A pruned run, and how the ledger of its parent, of which a tombstone is left, is written anew."""
    from fuaudit.workflow.prune import prune

    root = shutil.copytree(family, tmp_path / "family")
    pruned, (stone,) = prune(root / "child")

    return pruned, partial(retold, stone)


@pytest.mark.parametrize("part", ["server.0", "transport", "client.0", "exchange"])
def test_what_a_tombstone_lets_silent_parts_tell(buried, old, part):
    """The forger lets a part of a buried round tell the old model, in a config none of whose parts tells anything."""
    from fuaudit.runs.ancestors import parent_of

    pruned, retold = buried
    tale = {"kind": "released", "part": part, "mechanism": "none", "parameters": {"kept": word(old)}}
    if part == "exchange":
        tale = {"kind": "rejected", "part": part, "client": 1, "why": word(old)[:64]}
    retold(lambda events: [event | ({"told": [tale]} if event["event"] == "round" else {}) for event in events])
    with pytest.raises(EvidenceError, match=f"what {part} told of round 1, and that tells nothing"):
        parent_of(pruned)


@pytest.mark.parametrize("needs", [False, True], ids=["nothing kept", "memory, and a rule that needs rows"])
def test_what_clients_that_deviate_are_said_to_have_sent(tiny, tmp_path, needs):
    """Rows of clients 1 and 2 may be rejected. Other clients, an order or a number of times would be room for numbers.

    Memories are emptied, and rounds fail, where there are memories and rules that need rows.
    """
    from fuaudit.runs.ancestors import parent_of
    from fuaudit.workflow.prune import prune

    tables = tiny.tables | {"client": [{"use": "bit-flip", "clients": [1, 2]}]}
    rule = {"use": "norm-thresholding", "trim": 1} if needs else {"use": "mean"}
    learner = {"use": "fedavg", "rounds": 2, "cohort": 3, "steps": 1, "batch": 2, "step_size": 0.2}
    client = [*tables["client"], *[{"use": "error-feedback"}] * needs]
    tables |= {"client": client, "server": [rule], "learner": learner}
    run = train(tables, tmp_path / "run", data=tiny.dataset, secret=bytes(32))
    child = unlearn(run, "retrain", Request.of([0]), tmp_path / "child", data=tiny.dataset)
    pruned, (stone,) = prune(child)

    def tell(*clients, more=()):
        tales = [{"kind": "rejected", "part": "exchange", "client": one, "why": "not finite"} for one in clients]
        tales += more
        retold(stone, lambda events: [e | ({"told": tales} if e["event"] == "round" else {}) for e in events])
        return parent_of(pruned)

    assert tell(1, 1, 2).path == stone
    for clients in ([7], [2, 1], [1, 5, 2]):
        with pytest.raises(EvidenceError, match="what exchange told of round 1, and that tells nothing"):
            tell(*clients)
    failed = {"kind": "failed", "part": "exchange", "why": "too few rows"}
    first, second = (
        {"kind": "rejected", "part": "exchange", "client": client, "why": "a memory that is not finite"}
        for client in (1, 2)
    )
    for more, in_order in (
        ([failed], True),
        ([failed, first, second], True),
        ([failed, failed], False),
        ([first, first], False),
        ([first, failed], False),
        ([second, first], False),
        ([failed | {"why": "not finite"}], False),
    ):
        with nullcontext() if needs and in_order else pytest.raises(EvidenceError, match="and that tells nothing"):
            tell(1, more=more)


@pytest.mark.parametrize("group", ["aggregators", "stages", "client_stages", "transports"])
def test_parts_of_fuaudit_itself_tell_nothing(group):
    """What a tombstone is refused for; whoever lets one of them tell changes that."""
    entries = [entry for entry in entry_points(group=f"fuaudit.{group}") if entry.module.startswith("fuaudit.")]
    written = (inspect.getsource(base) for entry in entries for base in entry.load().__mro__[:-1])
    assert entries or group == "client_stages"
    assert not any(".tell(" in code for code in written)


def test_another_commitment_of_a_tombstone(buried, old, tiny, quick):
    """The forger writes 32 bytes of the old model where the ledger of a tombstone names its commitment."""
    pruned, retold = buried
    fitting = {"data": tiny.dataset, "commitment": pruned.commitment, "save": False}
    assert verify(pruned, quick, **fitting).verdict == "PASS"
    retold(
        lambda events: [event | ({"commitment": word(old)[:64]} if "commitment" in event else {}) for event in events]
    )
    result = verify(pruned, quick, **fitting)
    assert (result.verdict, "parent has another commitment than child" in result.reason) == ("FAIL", True)


def test_what_the_request_in_the_ledger_names(child, old):
    def edit(events):
        numbers = sorted(set(old.view(torch.int32).abs().tolist()))
        return [event | ({"samples": numbers} if event["event"] == "request" else {}) for event in events]

    with pytest.raises(EvidenceError, match="was asked for something else"):
        told(child, edit)


def test_a_tombstone_has_one_form_too(family, old, tmp_path, tiny):
    from fuaudit.workflow.prune import prune

    root = shutil.copytree(family, tmp_path / "family")
    pruned, _ = prune(root / "child")
    stone = root / "parent" / "tombstone.json"
    content = stone.read_bytes()
    for change in (
        lambda: stone.write_bytes(content + b" "),
        lambda: stone.write_bytes(pretty_json(json.loads(content) | {"kept": word(old)})),
        lambda: (root / "parent" / "old").mkdir(),
        lambda: (root / "parent" / "old.txt").write_text(word(old)),
    ):
        change()
        from fuaudit.runs.ancestors import parent_of

        with pytest.raises(EvidenceError):
            parent_of(load_run(pruned.path))
        stone.write_bytes(content)
        shutil.rmtree(root / "parent" / "old", ignore_errors=True)
    (root / "parent" / "old.txt").unlink()
    assert parent_of(load_run(pruned.path)).digest == json.loads(content)["digest"]


def test_an_editor_keeps_no_memories(family, old, tmp_path):
    path = shutil.copytree(family / "edited", tmp_path / "edited")
    assert load_run(path).checkpoints == (2,)
    with_tensor(LAST, "state.server.0.velocity")(path, old)
    sealed(path)
    with pytest.raises(EvidenceError, match="memories"):
        load_run(path)
