"""Forgeries by an operator who controls every byte and can make manifests and ledgers fit again."""

import contextlib
import json
import os
import shutil
from pathlib import Path

import pytest
from tests_support import audits, config, drawn_client, drawn_sample, fitting, of_the_run, reseal, secret, stored, told

from fuaudit import load_run, train, unlearn
from fuaudit.errors import EvidenceError, StorageError
from fuaudit.formats.files import append_line, sha256, write_bytes
from fuaudit.formats.forms import parse_json, pretty_json, tensor_bytes, toml_bytes
from fuaudit.plans import Request
from fuaudit.runs.encoding import population_tensors
from fuaudit.runs.layout import CHECKPOINT, LEDGER, of_round
from fuaudit.runs.ledger import Ledger, read_ledger
from fuaudit.runs.manifest import digest_of_files
from fuaudit.verification.store import findings_name
from fuaudit.workflow.append import append
from fuaudit.workflow.prune import prune


@pytest.fixture
def lineage(tmp_path):
    """A training run, a child by FATS, and the commitment that an auditor holds."""
    run = train(config(), tmp_path / "parent", secret=secret(7))
    child = unlearn(run, "fats", Request.of(clients=[drawn_client(run)]), tmp_path / "child")
    return run, child, run.ledger.events[0]["commitment"]


def change(path, name, edit):
    """Edit one JSON file of a run."""
    table = json.loads((path / name).read_text())
    edit(table)
    (path / name).write_bytes(pretty_json(table))


def test_honest_lineage_passes(lineage):
    _, child, commitment = lineage
    result, _ = audits(child, commitment=commitment, request=child.request)
    assert result.verdict == "PASS"


def going_on_from(round_number, event):
    """An event of a child, as if it kept so many rounds, or its own number if that is smaller."""
    fields = {"unlearning": "kept_rounds", "platform": "since"}
    name = fields.get(event["event"])
    return event if name is None else {**event, name: min(event[name], round_number)}


def test_fewer_rounds_than_the_law(lineage, tmp_path, quick):
    _, child, commitment = lineage
    change(child.path, "run.json", lambda t: t.update(rounds_executed=2))
    change(child.path, "participation.json", lambda t: t.update(cohorts=t["cohorts"][:2], uploads=t["uploads"][:2]))
    for round_number in (4, 6, 8):
        (child.path / of_round(CHECKPOINT, round_number)).unlink()

    def shorter(events):
        kept = [event for event in events if event["event"] != "round"]
        return [going_on_from(2, event) for event in kept]

    result, found = audits(told(child.path, shorter), commitment=commitment, spec=of_the_run())
    assert result.verdict == "FAIL"
    assert "stopped after round 2" in " ".join(found["provenance"].details)
    # that no request was waiting for the rounds left out is seen after a prune too
    later = unlearn(child.path, "fats", Request.of([drawn_client(load_run(child.path))]), tmp_path / "later")
    _, found = audits(prune(later)[0], spec=quick)
    assert (found["replay"].verdict, found["provenance"].verdict) == ("PASS", "FAIL")
    assert "child was stopped after round 2 of 8" in found["provenance"].shows


def test_more_rounds_than_the_law_are_no_run(lineage):
    _, child, _ = lineage
    change(child.path, "run.json", lambda t: t.update(rounds_executed=3_000_000))
    with pytest.raises(EvidenceError, match="claims 3,000,000 rounds"):
        reseal(child.path)


def test_another_config_breaks_the_commitment(lineage):
    run, child, commitment = lineage
    for path in (run.path, child.path):
        text = (path / "config.toml").read_text()
        (path / "config.toml").write_text(text.replace("step_size = 0.1\n", "step_size = 0.1000000000000001\n"))
    change(child.path, "run.json", lambda t: t["parent"].update(digest=reseal(run.path).digest))
    result, found = audits(reseal(child.path), commitment=commitment, spec=of_the_run())
    assert result.verdict == "FAIL"
    assert "committed to" in found["provenance"].shows


def test_a_request_in_other_words_gives_no_other_key(lineage):
    _, child, _ = lineage
    change(child.path, "plan.json", lambda t: t["requests"][0].update(clients=[float(t["requests"][0]["clients"][0])]))
    with pytest.raises(EvidenceError, match="requests"):
        audits(reseal(child.path))


def test_another_request_than_asked_for(lineage):
    _, child, _ = lineage
    other = next(c for c in child.original.clients if c not in child.request.clients)
    result, found = audits(child, request=Request.of(clients=[other]), spec=of_the_run())
    assert result.verdict == "FAIL"
    assert "asked for was" in " ".join(found["provenance"].details)


def test_a_published_commitment_pasted_into_another_run(tmp_path, lineage):
    _, _, commitment = lineage
    run = train(config(), tmp_path / "other", secret=secret(9))
    ledger = read_ledger(run.path)
    (run.path / LEDGER).unlink()
    (run.path / "manifest.json").unlink()
    from fuaudit.runs.ledger import Ledger

    forged = append(run.path, Ledger(), "commitment", commitment=commitment)
    for event in ledger.events[1:-1]:
        facts = {k: v for k, v in event.items() if k not in ("event", "previous", "time")}
        forged = append(run.path, forged, event["event"], **facts)
    child = unlearn(reseal(run.path), "fats", Request.of(clients=[0]), tmp_path / "other-child")
    result, found = audits(child, commitment=commitment, spec=of_the_run())
    assert result.verdict == "FAIL"
    assert found["provenance"].verdict == "FAIL"


def test_a_flawed_method_earlier_in_the_lineage(tmp_path):
    run = train(config(), tmp_path / "parent", secret=secret(7))
    first = unlearn(
        run, "fats-as-printed", Request.of(samples=[drawn_sample(run)]), tmp_path / "first", allow_inexact=True
    )
    request = Request.of(clients=[drawn_client(first)])
    second = unlearn(first, "fats", request, tmp_path / "second", allow_inexact=True)
    result, found = audits(second)
    assert found["enumeration"].verdict == "FAIL"
    assert result.verdict == "FAIL"


def test_a_prune_takes_no_doubt_away(tmp_path):
    """What the flawed method kept is what the right one would have kept here; that it would have cannot be seen."""
    run = train(config(), tmp_path / "parent", secret=secret(7))
    late = sorted(run.plan.index.samples.items(), key=lambda item: item[1])
    sample = next(s for s, at in late if at.round > 3 and at.step == 2)
    first = unlearn(run, "fats-as-printed", Request.of(samples=[sample]), tmp_path / "first")
    last = max(first.plan.index.samples, key=first.plan.index.samples.get)
    second = unlearn(first, "fats", Request.of(samples=[last]), tmp_path / "second", allow_inexact=True)
    result, found = audits(prune(second)[0])
    assert {f.verdict for f in found.values() if f.audit != "model-law"} == {"PASS"}
    (doubt,) = second.info["doubts"]
    assert (result.verdict, doubt in result.reason) == ("INCONCLUSIVE", True)
    assert any(doubt in line for line in found["provenance"].assumptions)


def test_two_honest_requests_pass_with_the_first_commitment(tmp_path, lineage):
    run, child, commitment = lineage
    second = unlearn(child, "fats", Request.of(clients=[drawn_client(child)]), run.path.parent / "second")
    result, _ = audits(second, commitment=commitment)
    assert result.verdict == "PASS"


def test_a_forged_index_convinces_nobody(lineage):
    """The parent's index of first involvements is a convenience; audits read the draws."""
    from fuaudit.formats.forms import tensor_bytes
    from fuaudit.runs.encoding import involvement_tensors

    run, child, _ = lineage
    index = run.plan.index
    index.clients.pop(child.request.clients[0])
    (run.path / "involvement.safetensors").write_bytes(tensor_bytes(involvement_tensors(index)))
    change(child.path, "run.json", lambda t: t["parent"].update(digest=reseal(run.path).digest))
    _, found = audits(reseal(child.path), spec=of_the_run())
    assert found["provenance"].values["nothing_to_forget"] == "no: it was drawn"
    assert found["provenance"].verdict == "PASS"


def test_a_partition_that_no_key_dealt(tmp_path, lineage):
    """Rows moved to a neighbour before training: the commitment is to another partition, and the key deals another."""
    from fuaudit.formats.forms import tensor_bytes
    from fuaudit.runs.encoding import population_tensors

    run, _, _ = lineage
    samples = dict(run.original.samples)
    samples[1] = tuple(sorted(samples[1] + samples[0][1:]))
    samples[0] = samples[0][:1]
    forged = type(run.original)(samples)
    (run.path / "partition.safetensors").write_bytes(tensor_bytes(population_tensors(forged)))
    _, found = audits(reseal(run.path))
    assert found["provenance"].verdict == "FAIL"


def test_a_label_with_words_of_its_own(lineage):
    _, child, _ = lineage
    change(child.path, "run.json", lambda t: t["unlearner"].update(guarantee="certified by the regulator"))
    result, _ = audits(reseal(child.path), spec=of_the_run())
    assert result.verdict == "FAIL"
    assert "certified by the regulator" not in json.dumps(result.as_json())


def test_options_cannot_choose_another_method(lineage):
    _, child, _ = lineage
    change(child.path, "run.json", lambda t: t["unlearner"].update(options={"use": "noop"}))
    result, _ = audits(reseal(child.path), spec=of_the_run())
    assert result.verdict == "FAIL"


def test_destroyed_seeds_without_a_prune(lineage):
    run, _, _ = lineage
    seeds = run.keys.seeds
    change(run.path, "keys.json", lambda t: t.update(seeds=seeds.keeping([range(100, seeds.size)]).as_rows()))
    with pytest.raises(EvidenceError, match="destroyed"):
        audits(reseal(run.path))


def test_after_a_prune_the_old_model_is_no_initial_model(lineage, tmp_path):
    """The parent's final model posing as the initial one, with a step size that leaves it alone."""
    run, child, commitment = lineage
    final = (run.path / of_round(CHECKPOINT, run.checkpoints[-1])).read_bytes()
    pruned, _ = prune(child)
    config_of = pruned.config.tables()
    config_of["learner"]["step_size"] = 1e-30
    (pruned.path / "config.toml").write_bytes(toml_bytes(config_of))
    for round_number in pruned.checkpoints:
        (pruned.path / of_round(CHECKPOINT, round_number)).write_bytes(final)
    result, found = audits(reseal(pruned.path), commitment=commitment, spec=of_the_run())
    assert result.verdict == "FAIL"
    assert found["replay"].verdict == "FAIL"
    assert found["provenance"].verdict == "FAIL"


def test_pruning_after_retraining_keeps_the_evidence(tmp_path):
    run = train(config(), tmp_path / "parent", secret=secret(7))
    child = unlearn(run, "retrain", Request.of(clients=[drawn_client(run)]), tmp_path / "child")
    pruned, _ = prune(child)
    assert audits(pruned)[0].verdict == "PASS"


def test_the_untouched_model_under_a_right_plan_fails_every_spec(lineage):
    run, child, _ = lineage
    for round_number in run.checkpoints:
        shutil.copy(run.path / of_round(CHECKPOINT, round_number), child.path / of_round(CHECKPOINT, round_number))
    for name in ("model.safetensors", "metrics.json"):
        shutil.copy(run.path / name, child.path / name)
    forged = reseal(child.path)
    for spec in ("client-erasure", "sample-erasure", "bounded-difference"):
        assert audits(forged, spec=spec)[0].verdict == "FAIL"


# --- values that no honest run holds: evidence is rejected, with exit code 4, by every command that reads them


def edited(path, name, old, new):
    """One text file of a run, changed by hand, and the run sealed as a forger would."""
    text = (path / name).read_text()
    assert old in text
    (path / name).write_text(text.replace(old, new, 1))
    sealed(path)


def sealed(path):
    """Seal without opening: what is in the run may be refused."""
    with contextlib.suppress(EvidenceError):
        reseal(path)


def rejected(fuaudit, path, *commands):
    """Every command ends in exit code 4, in words."""
    for command in commands:
        code, out, err = fuaudit(command, path, *(("-q", "--budget", "0") if command == "verify" else ()))
        assert (code, out) == (4, ""), (command, code, out, err)
        assert "Traceback" not in err
        assert err.startswith("error: ")


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    """A training run, and children by a rewriter and an editor; nobody may edit them."""
    root = tmp_path_factory.mktemp("forgeries")
    run = train(config(), root / "parent", secret=secret(7))
    request = Request.of(clients=[drawn_client(run)])
    unlearn(run, "fats", request, root / "child")
    unlearn(run, "finetune", request, root / "edited")
    return root


@pytest.fixture
def forged(family, tmp_path):
    """The family, free to be edited: its folder."""
    return Path(shutil.copytree(family, tmp_path / "family"))


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("metrics.json", '"test_loss": 2', '"test_loss": 1e999, "more": 2'),
        ("metrics.json", '"test_loss": 2', '"test_loss": [], "more": 2'),
        ("metrics.json", '"test_accuracy": 0', '"test_accuracy": "x", "more": 0'),
        ("metrics.json", '"test_accuracy": 0', '"test_accuracy": 7.5, "more": 0'),
        ("metrics.json", '"round": 0', '"round": true'),
        ("plan.json", '"requests"', '"pruned": true, "requests"'),
        ("plan.json", '"requests"', '"pruned": "x", "requests"'),
        ("plan.json", '"requests"', '"pruned": 1, "requests"'),
        ("run.json", '"beacon": null', '"beacon": "0"'),
        ("run.json", '"beacon": null', '"beacon": 5'),
        ("keys.json", '"partition": ', '"partition": 1, "more": '),
        ("keys.json", '"partition_digest": ', '"partition_digest": 1, "more": '),
        ("keys.json", '"seed",', '"sead",'),
    ],
)
def test_values_that_audits_and_show_read(fuaudit, forged, name, old, new):
    edited(forged / "child", name, old, new)
    rejected(fuaudit, forged / "child", "show", "verify")


@pytest.mark.parametrize(
    "changes",
    [
        {"first_change": ["x"]},
        {"first_change": ["x", 0]},
        {"first_change": [3]},
        {"first_change": [10**40, 0]},
        {"first_change": [-1, 0]},
        {"first_change": [True, 0]},
        {"versions": {"torch": 1}},
        {"plugins": [3]},
        {"plugins": [{"use": 3}]},
        {"rounds_executed": True},
        {"engine": "batched"},
        {"device": "cuda"},
        {"device": "tpu"},
        {"edited_by": "finetune"},
        {"edited_by": 5},
        {"parent": {"name": "x" * 300, "digest": "0" * 64}},
        {"parent": {"name": "é" * 200, "digest": "0" * 64}},
        {"parent": {"name": "a\0b", "digest": "0" * 64}},
        {"parent": {"name": "..", "digest": "0" * 64}},
        {"parent": {"name": "parent", "digest": 5}},
    ],
    ids=str,
)
def test_what_run_json_may_not_hold(fuaudit, forged, changes):
    change(forged / "child", "run.json", lambda t: t.update(changes))
    sealed(forged / "child")
    rejected(fuaudit, forged / "child", "show", "verify")


@pytest.mark.parametrize("changes", [{"guarantee": [1]}, {"cite": None}, {"kind": "other"}, {"kind": ["editor"]}])
def test_labels_are_words(fuaudit, forged, changes):
    change(forged / "child", "run.json", lambda t: t["unlearner"].update(changes))
    sealed(forged / "child")
    rejected(fuaudit, forged / "child", "show", "verify")


def test_an_editor_cannot_be_left_unsaid(fuaudit, forged):
    assert fuaudit("show", forged / "edited")[0] == 0
    change(forged / "edited", "run.json", lambda t: t.pop("edited_by"))
    sealed(forged / "edited")
    rejected(fuaudit, forged / "edited", "show")


@pytest.mark.parametrize("text", [b'"\\ud800"', b'{"a\\udfff": 1}', b'"\xed\xa0\x80"', b"[1e999]", b"[-1e400]"])
def test_json_has_finite_numbers_and_whole_characters(text):
    with pytest.raises(EvidenceError, match="valid JSON"):
        parse_json(text, Path("some.json"))


def test_escapes_of_whole_characters_are_read():
    assert (
        parse_json(b'"\\ud83d\\ude00 \\u00e9 \\\\ud800 1e308"', Path("some.json")) == "\U0001f600 \u00e9 \\ud800 1e308"
    )


def test_half_a_character_in_run_json(fuaudit, forged):
    edited(forged / "child", "run.json", '"python": "', '"python": "\\ud800')
    rejected(fuaudit, forged / "child", "show", "verify")


@pytest.mark.parametrize("round_number", [9, 2**31, 10**40, -1])
@pytest.mark.parametrize("stream", ["cohorts", "batches"])
def test_segments_that_draw_absent_clients(fuaudit, forged, stream, round_number):
    """One stream as before the request, the other over the retained population: refused before any plugin sees it.

    Batches as before the request are those of absent clients in no round, only another plan.
    """
    request, plan = load_run(forged / "child").request, load_run(forged / "parent").plan
    last = max(r for r in range(1, 9) if request.clients[0] in plan.cohort(r))  # shows an absent client

    def moved(table):
        streams = {name: [[0, 0, 0, 0], [last, 0, 1, 1]] for name in ("cohorts", "batches")}
        table["streams"].update(streams | {stream: [[0, 0, 0, 0], [round_number, 0, 1, 1]]})

    change(forged / "child", "plan.json", moved)
    sealed(forged / "child")
    if (stream, round_number) == ("batches", 9):
        assert audits(load_run(forged / "child"))[0].verdict == "FAIL"
    else:
        rejected(fuaudit, forged / "child", "show", "verify")


def without_rounds(events):
    return [event for event in events if event["event"] != "round"]


def with_event(**event):
    return lambda events: [*events, event]


def unlearning_says(**facts):
    return lambda events: [{**e, **facts} if e["event"] == "unlearning" else e for e in events]


@pytest.mark.parametrize(
    "edit",
    [
        with_event(event="round"),
        with_event(event="round", round=[1], model="0" * 64),
        with_event(event="round", round=8, model=3),
        with_event(event="round", round=8, model="0" * 64),
        with_event(event="round", round=9, model="0" * 64),
        with_event(event="commitment", commitment="0" * 64),
        with_event(event="request", clients=[0], samples=[], parent="0" * 64),
        with_event(event="unlearning", first_change=[1, 0], kept_rounds=0),
        with_event(event="blessing"),
        lambda events: events[1:],
        lambda events: [events[1], events[0], *events[2:]],
        lambda events: [{**e, "clients": 5} if e["event"] == "request" else e for e in events],
        lambda events: [{**e, "clients": [0.5]} if e["event"] == "request" else e for e in events],
        lambda events: [e for e in events if e["event"] != "request"],
        lambda events: [e for e in events if e["event"] != "unlearning"],
        without_rounds,
        lambda events: [*without_rounds(events), *[e for e in events if e["event"] == "round"][::-1]],
        unlearning_says(kept_rounds=0, first_change=[1, 0]),
        unlearning_says(kept_rounds=8),
        unlearning_says(kept_rounds="6"),
        lambda events: [
            {"event": "unlearning", "messages": 0, "bytes": 0} if e["event"] == "unlearning" else e for e in events
        ],
    ],
)
def test_ledgers_that_tell_another_story(fuaudit, forged, edit):
    with pytest.raises(EvidenceError):
        told(forged / "child", edit)
    rejected(fuaudit, forged / "child", "show", "verify")


@pytest.mark.parametrize("name", ["parent", "edited"])
def test_ledgers_of_training_and_of_editors(forged, name):
    kept = told(forged / name, lambda events: events)
    rounds = [event["round"] for event in kept.ledger.of_kind("round")]
    assert rounds == ([*range(1, 9)] if name == "parent" else [])
    edit = without_rounds if name == "parent" else with_event(event="round", round=8, model="0" * 64)
    with pytest.raises(EvidenceError, match="not that of such a run"):
        told(forged / name, edit)


def test_a_ledger_that_keeps_fewer_rounds_than_the_plan(forged):
    """With made-up lines for the rounds between; only the parent shows it."""
    child = load_run(forged / "child")
    (kept,) = (event["kept_rounds"] for event in child.ledger.of_kind("unlearning"))
    assert kept > 1

    def fewer(events):
        told_rounds = [{"event": "round", "round": r} for r in range(2, kept + 1)]
        first = [going_on_from(1, e) for e in events if e["event"] != "round"]
        return fitting(forged / "child", [*first, *told_rounds, *[e for e in events if e["event"] == "round"]])

    result, found = audits(told(forged / "child", fewer), spec=of_the_run())
    assert result.verdict == "FAIL"
    assert f"keeps 1 round, its plan {kept} that are stored" in " ".join(found["integrity"].details)


def test_a_request_to_another_parent_in_the_ledger(forged):
    def elsewhere(events):
        return [{**e, "parent": "0" * 64} if e["event"] == "request" else e for e in events]

    _, found = audits(told(forged / "child", elsewhere))
    assert found["integrity"].verdict == "FAIL"
    assert "names another parent" in " ".join(found["integrity"].details)


@pytest.mark.parametrize(
    "info",
    [
        {"kind": "unlearning"},
        {"kind": [1]},
        {"rounds_executed": "8"},
        {"kind": "unlearning", "parent": {"name": "x" * 300, "digest": "0"}},
        {"kind": "unlearning", "parent": {"name": "x\0", "digest": "0"}},
    ],
    ids=str,
)
def test_tombstones_of_what_was_no_run(fuaudit, forged, info):
    prune(forged / "child")
    path = forged / "parent" / "tombstone.json"
    stone = json.loads(path.read_text())
    stone["info"].update(info)
    stone["files"]["run.json"] = {"sha256": sha256(pretty_json(stone["info"])), "size": 1}
    stone["digest"] = digest_of_files(stone["files"])
    path.write_bytes(pretty_json(stone))
    change(forged / "child", "run.json", lambda t: t["parent"].update(digest=stone["digest"]))
    sealed(forged / "child")
    rejected(fuaudit, forged / "child", "verify")


def test_ledgers_of_tombstones_that_tell_another_story(forged, quick):
    """No digest of a run covers its ledger, so whoever holds the folder may write that of a tombstone anew."""
    child = load_run(forged / "child")
    last = prune(unlearn(child, "fats", Request.of([drawn_client(child)]), forged / "last"))[0]
    honest = (child.path / LEDGER).read_bytes()

    def kept(event):
        """All rounds but one, as if they had been executed here."""
        return going_on_from(1, event)

    cases = {
        "names another parent": {"request": lambda e: {**e, "parent": "0" * 64}},
        "names another request": {"request": lambda e: {**e, "clients": [child.request.clients[0] ^ 1]}},
        "names other platforms": {"platform": lambda e: e if e["since"] else {**e, "canary": "0" * 64}},
        "keeps 1 round, its plan": {"unlearning": kept, "platform": kept},
    }
    for words, edits in cases.items():
        (child.path / LEDGER).write_bytes(honest)
        events, ledger = list(read_ledger(child.path).events), Ledger()
        if "unlearning" in edits:
            at = next(place for place, e in enumerate(events) if e["event"] == "round")
            events[at:at] = [
                {"event": "round", "round": n} | ({"model": "0" * 64} if n in child.checkpoints else {})
                for n in range(2, events[at]["round"])
            ]
        (child.path / LEDGER).unlink()
        for event in events:
            facts = edits.get(event["event"], dict)(event).items()
            told_of = {name: value for name, value in facts if name not in ("event", "previous")}
            ledger = append(child.path, ledger, event["event"], **told_of)
        _, found = audits(load_run(last.path), spec=quick)
        assert found["integrity"].verdict == "FAIL", words
        assert f"child {words}" in " ".join(found["integrity"].details)


def test_ids_are_missing_of_erased_clients_only(forged):
    pruned, _ = prune(forged / "child")
    erased = pruned.request.clients[0]
    assert pruned.before.size == pruned.original.size > pruned.plan.retained.size
    assert set(pruned.before.samples[erased]) == pruned.stand_ins
    path = pruned.path / "partition.safetensors"
    other = next(c for c in pruned.original.clients if c != erased)
    unknown = pruned.stand_ins | {pruned.original.samples[other][0]}
    path.write_bytes(tensor_bytes(population_tensors(pruned.original, unknown)))
    with pytest.raises(EvidenceError, match="lacks ids of clients that were never erased"):
        _ = reseal(pruned.path).original


# --- findings, and the folder that they lie in


@pytest.fixture
def audited(fuaudit, forged):
    """The family, the child verified by an auditor; no sampling."""
    assert fuaudit("verify", forged / "child", "-q", "--budget", "0", "--spec", "bounded-difference")[0] in (0, 3)
    return forged


def test_findings_of_another_run_make_no_report(fuaudit, audited):
    assert fuaudit("report", audited / "child", "--format", "md")[0] == 0
    shutil.copytree(audited / "child.audit", audited / "edited.audit")
    for form in ("md", "json", "junit"):
        code, out, err = fuaudit("report", audited / "edited", "--format", form)
        assert (code, out) == (4, "")
        assert "of another run" in err
        assert "fuaudit verify" in err


def test_findings_changed_by_hand_make_no_report(fuaudit, audited):
    path = stored(audited / "child")
    found = json.loads(path.read_text())
    found["reason"] = "All is well."
    write_bytes(path, pretty_json(found))
    code, _, err = fuaudit("report", audited / "child", "--format", "md")
    assert code == 4
    assert "its name is made of" in err
    renamed = path.rename(path.with_name(findings_name(1, pretty_json(found))))
    code, _, err = fuaudit("report", audited / "child", "--format", "md", "--findings", renamed)
    assert code == 4
    assert "log.jsonl" in err
    (audited / "child.audit" / "log.jsonl").unlink()  # findings alone can be carried elsewhere
    assert fuaudit("report", audited / "child", "--format", "md")[0] == 0


@pytest.mark.parametrize("name", ["log.jsonl", "log.jsonl.partial", ""])
def test_nothing_is_written_through_links(fuaudit, forged, tmp_path, name):
    elsewhere = tmp_path / "elsewhere"
    folder = forged / "child.audit"
    if name:
        elsewhere.write_text("precious\n")
        folder.mkdir()
        (folder / name).symlink_to(elsewhere)
    else:
        elsewhere.mkdir()
        folder.symlink_to(elsewhere)
    code, _, err = fuaudit("verify", forged / "child", "-q", "--budget", "0", "--spec", "bounded-difference")
    assert code == 70
    assert "is a link" in err
    assert "Traceback" not in err
    if name:
        assert elsewhere.read_text() == "precious\n"
        assert (folder / name).is_symlink()  # left for whoever looks into it
    else:
        assert not list(elsewhere.iterdir())


def test_a_report_is_not_written_through_a_link(fuaudit, audited, tmp_path):
    (tmp_path / "precious").write_text("precious\n")
    name = stored(audited / "child").name.replace("findings", "report")[:-4] + "md.partial"
    (audited / "child.audit" / name).symlink_to(tmp_path / "precious")
    assert fuaudit("report", audited / "child", "--format", "md")[0] == 70
    assert (tmp_path / "precious").read_text() == "precious\n"


def test_a_pipe_in_the_place_of_the_log_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "log.jsonl")
    with pytest.raises(StorageError):
        append_line(tmp_path / "log.jsonl", b"{}")


def test_what_a_crash_left_is_overwritten(tmp_path):
    (tmp_path / "file.partial").write_bytes(b"torn, and longer than what follows")
    write_bytes(tmp_path / "file", b"whole")
    assert (tmp_path / "file").read_bytes() == b"whole"
    assert not (tmp_path / "file.partial").exists()
