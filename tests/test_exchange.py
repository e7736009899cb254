"""A round has places: client stages, a transport, private memory, draws of stages, events."""

import json
import shutil
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from fuaudit_plugins.medians import GeometricMedian
from fuaudit_plugins.quantise import Quantise
from fuaudit_plugins.secure_sum import SecureSum
from hypothesis import given
from hypothesis import strategies as st
from tests_support import (
    AUDIT_KEY,
    audits,
    drawn_client,
    drawn_sample,
    edit,
    of_the_run,
    remade,
    reseal,
    secret,
    told,
    with_options,
)

from fuaudit import load_run, train, unlearn, verify
from fuaudit.commitments.secrets import ClientSecrets, Renewal, first_secrets, secret_digest
from fuaudit.config import resolve
from fuaudit.draws import END, START, Address, Keyed, Position, Purpose, Stream
from fuaudit.errors import EvidenceError, PluginError, RedactedError, UsageError
from fuaudit.formats.files import sha256
from fuaudit.formats.forms import MAX_JSON_BYTES, canonical_json, pretty_json, tensor_bytes
from fuaudit.plans import Plan, Population, Request, UniformLaw
from fuaudit.plans.expanded import expand
from fuaudit.plans.plan import WHOLE, Segment
from fuaudit.plans.stacked import LazySchedule
from fuaudit.plans.stage_draws import Generation, Part, PlannedDraws, PublicDraws, keeps_draws
from fuaudit.plans.veil import veiled
from fuaudit.proofs.toys import federation
from fuaudit.runs.encoding import salted
from fuaudit.runs.layout import INVOLVEMENT, LEDGER, PARTITION, RECORDED, SECRETS
from fuaudit.runs.ledger import Ledger
from fuaudit.runs.procedure import in_words, parts_of
from fuaudit.runs.receipts import read_receipt, receipt_of
from fuaudit.testing.contexts import context_of, stacked, updates_of
from fuaudit.testing.tiny import tiny_config, tiny_dataset
from fuaudit.training.asking import a, asked, asking_twice
from fuaudit.training.contracts import Delivery
from fuaudit.training.events import Rejected, Released, Sent, Summed, Suspected
from fuaudit.training.exchange import Clear, Exchange, exchange_of, first_state
from fuaudit.training.execute import execute, initial_state
from fuaudit.training.one_round import client_half, delivered, exchanged, server_half
from fuaudit.training.rounds import RoundContext, StateShape
from fuaudit.training.setup import setup
from fuaudit.training.solvers import Sgd
from fuaudit.training.stages import Chain, Mean, Momentum, Stateless
from fuaudit.workflow.append import SPARE, append
from fuaudit.workflow.prune import prune
from fuaudit.workflow.redact import redact
from fuaudit.workflow.resume import resume
from fuaudit.workflow.writer import RunWriter

STAGES = Path(__file__).parent / "stages"


@pytest.fixture(autouse=True)
def _stages(monkeypatch):
    monkeypatch.syspath_prepend(str(STAGES))


def tables(client=(), transport=None, server=({"use": "mean"},), **more):
    learner = {"use": "fedavg", "rounds": 8, "cohort": 4, "steps": 2, "batch": 4, "step_size": 0.1}
    table = {
        "data": {"use": "digits"},
        "partition": {"use": "iid", "clients": 8},
        "model": {"use": "linear"},
        "learner": learner | more.pop("learner", {}),
        "server": list(server),
        "run": {"checkpoint_every": 2, "engine": "reference", "device": "cpu"},
    } | more
    return table | ({"client": list(client)} if client else {}) | ({"transport": transport} if transport else {})


EVERYTHING = tables(
    [
        {"use": "test-remembering", "clients": [3]},
        {"use": "test-memory"},
        {"use": "test-clip-and-noise"},
        {"use": "test-agreement"},
        {"use": "quantise"},
        {"use": "test-flip", "clients": [3]},
    ],
    {"use": "test-sums"},
    ({"use": "test-median"}, {"use": "momentum"}),
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(STAGES))
        return train(EVERYTHING, tmp_path_factory.mktemp("exchange") / "parent", secret=secret(1))


def looked_at(run, quick, **options):
    """Verdicts of the audits of one run."""
    found = verify(run, quick, key=AUDIT_KEY, save=False, **options).findings
    return {finding.audit: finding for finding in found}


def verdicts(found):
    return {name: str(finding.verdict) for name, finding in found.items()}


FINE = dict.fromkeys(("integrity", "replay", "provenance", "lineage"), "PASS")
REDACTED = FINE | dict.fromkeys(("replay", "provenance", "lineage"), "INCONCLUSIVE")


# configs


def test_nothing_is_written_of_what_is_left_out():
    config = resolve(tables())
    assert config.tables().keys().isdisjoint({"client", "transport"})
    assert resolve(tables(transport={"use": "clear"})) == config


def test_byzantine_clients_hide_nothing_from_a_solver_with_rows_of_clients():
    assert resolve(tables([{"use": "test-flip"}], solver={"use": "scaffold"})).solver["use"] == "scaffold"


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (tables([{"use": "no-such"}]), "there is no client stage or Byzantine client called 'no-such'"),
        (tables(transport={"use": "cleer"}), "Did you mean 'clear'"),
        (tables([{"use": "mean"}]), r"aggregator .mean. does not belong under \[\[client\]\]\n  Write \[\[server\]\]"),
        (tables(transport={"use": "test-sums"}, server=[{"use": "mifa"}]), "'mifa' keeps one a client"),
        (tables(transport={"use": "test-sums"}, solver={"use": "scaffold"}), "the solver 'scaffold' keeps one"),
        (tables([{"use": "test-agreement"}], server=[{"use": "mifa"}]), "'mifa' keeps whole ones"),
        (tables([{"use": "quantise"}], solver={"use": "scaffold"}), "'scaffold' .* as they are before 'quantise'"),
        (tables([{"use": "test-agreement"}], solver={"use": "scaffold"}), "as they are before 'test-agreement'"),
        (tables([{"use": "test-agreement"}, {"use": "test-memory"}]), "'test-memory' keeps whole ones"),
        (tables(transport={"use": "test-sums"}, server=[{"use": "size-weighted"}]), "asks how many samples"),
        (tables([{"use": "clear"}]), r"transport .clear. does not belong under .*\n  Write \[transport\]"),
        (tables([{"keep": 3}]), r"\[\[client\]\] must be a table with use"),
        (tables(transport=[{"use": "clear"}]), r"\[transport\] must be a table with use"),
        (tables([{"use": "quantise", "bits": 1}]), "bits from 2 to 24"),
        (tables() | {"client": 3}, r"client must be a list of tables, \[\[client\]\]"),
    ],
)
def test_what_cannot_be_is_refused(table, words):
    with pytest.raises(UsageError, match=words):
        resolve(table)


# one config with everything


@pytest.mark.thorough
def test_everything_at_once_is_trained_unlearned_and_verified(whole, tmp_path, quick, fuaudit):
    assert verdicts(looked_at(whole, quick)) == FINE
    own = {"clients/secrets.json", *(f"clients/{number:06}.safetensors" for number in (2, 4, 6, 8))}
    assert own <= whole.files.keys()
    assert {(whole.path / name).stat().st_mode & 0o777 for name in own} == {0o600}
    shutil.copytree(whole.path, tmp_path / "parent")
    request = Request.of(samples=[drawn_sample(whole)])
    child = unlearn(tmp_path / "parent", "fats", request, tmp_path / "child")
    assert child.plan.first_change(whole.plan).round > 1
    result, found = audits(child)
    assert result.verdict == "PASS", {n: (f.verdict, f.shows, f.details) for n, f in found.items()}
    assert looked_at(child, quick, spot_check=3)["replay"].verdict == "INCONCLUSIVE"  # three of four stretches
    redacted = redact(child, tmp_path / "redacted")
    with pytest.raises(RedactedError, match="Prune the whole run"):
        prune(redacted)
    assert not [*tmp_path.glob("*.pruning")]
    found = looked_at(redacted, of_the_run("stress", "model-law"), budget=0)
    assert not any(str(tmp_path) in one.shows for one in found.values())
    assert verdicts(found) == REDACTED | {"stress": "INCONCLUSIVE", "model-law": "INCONCLUSIVE"}
    noop = unlearn(tmp_path / "parent", "noop", request, tmp_path / "noop")
    found = looked_at(noop, quick)
    assert found["replay"].verdict == found["lineage"].verdict == "FAIL"
    # what a prune leaves alone can be pruned itself, or not
    again = unlearn(tmp_path / "parent", "retrain", request, tmp_path / "again")
    redact(again, tmp_path / "bare")
    _, out, _ = fuaudit("prune", child.path, "--yes", "--allow-orphans")
    assert f"{again.path.resolve()} holds a key that gives erased draws back; prune or remove it" in out
    assert f"{tmp_path.resolve() / 'bare'} holds a key that gives erased draws back; remove it: it cannot be" in out


def test_a_stream_of_two_requests_with_prunes(whole, tmp_path, quick):
    shutil.copytree(whole.path, tmp_path / "parent")
    client = drawn_client(whole)
    child = unlearn(tmp_path / "parent", "fats", Request.of([client]), tmp_path / "child")
    gone = [own[client].hex().encode() for own in child.secrets.generations if client in own]
    assert verdicts(looked_at(child, quick)) == FINE
    pruned, _ = prune(child)
    assert all(client not in own for own in pruned.secrets.generations)
    with pytest.raises(EvidenceError, match=f"the secret of client {client}, .* was destroyed by a prune"):
        pruned.stage_draws(pruned.plan)[0].own(1, PLACES[0], client, 0)
    assert not [p for p in tmp_path.rglob("*") if p.is_file() and any(text in p.read_bytes() for text in gone)]
    found = looked_at(pruned, quick)
    assert verdicts(found) == FINE
    left = [str(copy) for copy in found["lineage"].copies if copy.holds]
    assert left == ["parent/ledger.jsonl: holds what stages told of 8 rounds, also of erased clients"]
    # of rounds that were kept replay compares it, of the others nobody can
    kept = pruned.info["first_change"][0] - 1
    lines = pruned.path.parent.joinpath("parent", "ledger.jsonl").read_text().splitlines()
    told = [line["told"] for line in map(json.loads, lines) if line["event"] == "round" and line["round"] > kept]
    room, (stated,) = sum(len(canonical_json(one)) for one in told), found["integrity"].assumptions[-1:]
    assert 0 < len(told) < 8
    assert stated.startswith(f"What stages told of {len(told)} rounds of ancestors is as told: {room:,} bytes")
    other = next(c for c in pruned.plan.retained.clients if c != 3)
    request = Request.of(samples=[pruned.plan.retained.samples[other][0]])
    again = unlearn(pruned, "fats", request, tmp_path / "again")
    assert verdicts(looked_at(again, quick)) == FINE
    twice, _ = prune(again)
    assert verdicts(looked_at(twice, quick)) == FINE
    without = redact(twice, tmp_path / "without")
    found = looked_at(without, quick)
    assert (without.digest, verdicts(found)) == (twice.digest, REDACTED)
    assert found["replay"].shows.endswith("stays with the clients. Ask for the whole run.")


class Stop(Exception):
    pass


EVERY = {"run": {"checkpoint_every": 1, "engine": "reference", "device": "cpu"}}


@pytest.mark.parametrize("at", [1, 5])
def test_a_run_that_was_stopped_goes_on_as_it_would_have(whole, tmp_path, at):
    def progress(doing, number, of):
        if doing == "rounds" and number >= at:
            raise Stop

    with pytest.raises(Stop):
        train(EVERYTHING, tmp_path / "run", secret=secret(1), progress=progress)
    assert resume(tmp_path / "run").digest == whole.digest
    request = Request.of([drawn_client(whole)])
    shutil.copytree(whole.path, tmp_path / "parent")
    child = unlearn(tmp_path / "parent", "fats", request, tmp_path / "child")
    with pytest.raises(Stop):
        unlearn(tmp_path / "parent", "fats", request, tmp_path / "stopped", progress=progress)
    shutil.copytree(tmp_path / "stopped", tmp_path / "changed")
    table = RunWriter(tmp_path / "changed").run.secrets
    first, last = table.generations
    other = replace(table, generations=(first, last | {min(last): bytes(32)}))
    RunWriter(tmp_path / "changed").write(SECRETS, other.table(child.opening))
    with pytest.raises(EvidenceError, match=r"do not follow from those of|another salt"):
        resume(tmp_path / "changed")
    assert resume(tmp_path / "stopped").digest == child.digest


def test_secrets_of_a_child_that_do_not_follow_from_its_parents_are_refused(tmp_path, bytes_of):
    """No salt gives them away where clients keep nothing: the draws would be some that nobody committed to."""
    parent = train(tables([{"use": "test-clip-and-noise"}]), tmp_path / "parent", secret=secret(1))
    request, out = Request.of([drawn_client(parent)]), tmp_path / "child"
    whole = unlearn(parent, "fats", request, tmp_path / "whole")
    assert not [name for name in whole.files if name.startswith("clients/0")]

    def progress(doing, number, of):
        raise Stop

    with pytest.raises(Stop):
        unlearn(parent, "fats", request, out, progress=progress)
    table = RunWriter(out).run.secrets
    first, last = table.generations
    for other in (
        replace(table, generations=(first, last | {min(last): bytes(32)})),
        replace(table, shared=(table.shared[0], bytes(32))),
    ):
        RunWriter(out).write(SECRETS, other.table(whole.opening))
        before = bytes_of(out)
        with pytest.raises(EvidenceError, match="do not follow from those of"):
            resume(out)
        assert bytes_of(out) == before
    RunWriter(out).write(SECRETS, table.table(whole.opening))
    assert resume(out).digest == whole.digest


def test_what_is_stored_must_fit_before_a_run_goes_on(tmp_path):
    def progress(doing, number, of):
        if doing == "rounds" and number >= 3:
            raise Stop

    with pytest.raises(Stop):
        train(tables([{"use": "test-memory"}]) | EVERY, tmp_path / "run", secret=secret(1), progress=progress)
    models, memories = (tmp_path / "run" / folder for folder in ("checkpoints", "clients"))
    for folder, words in ((memories, "missing"), (models, "not the model that the ledger names")):
        run = shutil.copytree(tmp_path / "run", tmp_path / folder.name)
        at = run / folder.name / "000002.safetensors"
        at.unlink() if folder == memories else shutil.copy(at.with_stem("000001"), at)
        with pytest.raises(EvidenceError, match=words):
            resume(run)


def test_a_ledger_that_nobody_could_read_is_not_written(whole, tmp_path):
    assert whole.ledger.size == (whole.path / LEDGER).stat().st_size
    ledger = append(tmp_path, Ledger(), "round", round=1)
    assert ledger.size == (tmp_path / LEDGER).stat().st_size
    full = replace(ledger, size=MAX_JSON_BYTES - SPARE - 50)
    with pytest.raises(PluginError, match="what stages tell of round 2"):
        append(tmp_path, full, "round", round=2)
    assert ledger.size == (tmp_path / LEDGER).stat().st_size
    assert append(tmp_path, full, "sealed", digest="0" * 64).kinds == ["round", "sealed"]


def test_redacted(whole, tmp_path, quick, fuaudit):
    code, out, _ = fuaudit("redact", whole.path, "--out", tmp_path / "redacted")
    assert (code, whole.digest in out) == (0, True)
    redacted = load_run(tmp_path / "redacted")
    assert (redacted.digest, redacted.redacted) == (whole.digest, True)
    assert not (tmp_path / "redacted" / "clients").exists()
    stages = "sgd test-remembering test-memory test-clip-and-noise test-agreement quantise test-flip"
    assert [part["use"] for part in parts_of(whole.config)] == [*stages.split(), "test-sums", "test-median", "momentum"]
    for path, made in ((whole.path, "; clients' secrets were made from one secret"), (redacted.path, "")):
        drawn = f"  round         {in_words(whole.config)}{made}; events: 8 released, 32 sent\n"
        shown, document = fuaudit("show", path)[1], json.loads(fuaudit("show", path, "--json")[1])
        assert drawn in shown
        assert ("  confidential  clients/ holds the clients' secrets" in shown) == bool(made)
        assert document["confidential"] == (["clients"] if made else [])
    assert verdicts(looked_at(redacted, quick)) == REDACTED
    told = looked_at(whole, quick)["provenance"].assumptions
    assert any("has the one secret of training" in line for line in told)
    assert not any("generators of their systems" in line for line in told)
    shutil.copytree(whole.path, tmp_path / "torn")
    (tmp_path / "torn" / "clients" / "000004.safetensors").unlink()
    with pytest.raises(EvidenceError, match="missing: clients/000004"):
        load_run(tmp_path / "torn")
    plain = train(tables(learner={"rounds": 1}), tmp_path / "plain", secret=secret(2))
    assert "  round  " not in fuaudit("show", plain.path)[1]
    assert "confidential" not in fuaudit("show", plain.path)[1]
    with pytest.raises(UsageError, match=r"draw nothing, so there is nothing to leave out\n  It holds .*keys\.json"):
        redact(plain, tmp_path / "no")
    for inside in ("new", "clients/new"):
        with pytest.raises(UsageError, match="lies inside the run"):
            redact(whole, whole.path / inside)


# planted faults


def test_another_tale_fails(whole, tmp_path, quick):
    """A ledger with one mechanism less, sealed again."""
    rows = [event for line in whole.ledger.of_kind("round") for event in line["told"]]
    assert {(event["kind"], event["part"]) for event in rows} == {("released", "client.2"), ("sent", "client.4")}
    shutil.copytree(whole.path, tmp_path / "parent")

    def silent(events):
        return [{name: value for name, value in event.items() if name != "told"} for event in events]

    told(tmp_path / "parent", silent)
    run = load_run(tmp_path / "parent")
    found = looked_at(run, quick)["replay"]
    assert found.verdict == "FAIL"
    assert "round 1" in found.shows
    assert "as told" not in found.shows_not
    found = [looked_at(run, quick, spot_check=2)["replay"]]
    told(tmp_path / "parent", lambda events: [_elsewhere(event) for event in events])
    found += [looked_at(load_run(tmp_path / "parent"), quick, spot_check=drawn)["replay"] for drawn in (2, None)]
    for one in found:
        assert (one.verdict, one.plainly, one.shows[:28]) == ("FAIL", "", "What a ledger tells of round")


def _elsewhere(event):
    """Events as if the platform computed otherwise: mechanisms are told by all platforms alike."""
    return event | {"canary": "0" * 64} if event["event"] == "platform" else event


def test_of_kept_rounds_the_ancestors_must_tell_what_is_true(whole, tmp_path, quick):
    """The ledger binds no digest of a run, so a child does not see that its parent's was rewritten."""
    shutil.copytree(whole.path, tmp_path / "parent")
    child = unlearn(tmp_path / "parent", "fats", Request.of(samples=[drawn_sample(whole)]), tmp_path / "child")
    assert child.ledger.of_kind("unlearning")[0]["kept_rounds"] > 0

    def silent(events):
        return [{name: value for name, value in event.items() if name != "told"} for event in events]

    told(tmp_path / "parent", silent)
    in_parts = with_options(quick, replay={"stretches": 100})
    for spec in (quick, in_parts):
        found = looked_at(child, spec)["replay"]
        assert (found.verdict, "is taken as told" in found.shows_not) == ("FAIL", True)
    assert "round 1" in looked_at(child, quick)["replay"].shows


def test_the_manifest_confirms_no_guess_of_an_accuracy(whole, tmp_path, quick, fuaudit):
    """Its digest of participation.json is everybody's, and a server knows all but the accuracies."""
    table = whole.participation
    assert table["salt"] == whole.participation_salt
    without = {name: value for name, value in table.items() if name != "salt"}
    assert sha256(pretty_json(without)) != whole.files["participation.json"]["sha256"]
    assert "salt" not in fuaudit("show", whole.path, "--json")[1]
    for number, change in enumerate(({"salt": "0" * 64}, {"salt": None}, {"salt": 3})):
        run = shutil.copytree(whole.path, tmp_path / str(number))
        changed = {name: value for name, value in (table | change).items() if value is not None}
        (run / "participation.json").write_bytes(pretty_json(changed))
        with pytest.raises(EvidenceError, match=r"participation\.json"):
            reseal(run)
    plain = train(tables(learner={"rounds": 1}), tmp_path / "plain", secret=secret(2))
    assert "salt" not in plain.participation


def test_how_secrets_were_made_is_committed_to(whole, tmp_path):
    path = tmp_path / "run"
    shutil.copytree(whole.path, path)
    table = replace(whole.secrets, made="apart").table(whole.opening)
    RunWriter(path).write(SECRETS, table)
    with pytest.raises(EvidenceError, match="is not the one that was committed to"):
        reseal(path)


@pytest.mark.parametrize("kept", [{"salts": True}, {"names": True}])
def test_names_and_salts_lie_with_the_secrets(whole, tmp_path, kept):
    shutil.copytree(whole.path, tmp_path / "run")
    table = json.loads((whole.path / SECRETS).read_text()) | {"names": {"2": "cay"}}
    edit(tmp_path / "run", "clients.json", **{word: table[word] for word in kept})
    with pytest.raises(EvidenceError, match=r"has names or salts in clients\.json that belong to clients/secrets"):
        reseal(tmp_path / "run")


def test_a_receipt_covers_the_secret(whole, tmp_path):
    receipt = receipt_of(whole, 2)
    assert receipt.own.secret == secret_digest(whole.secrets.generations[0][2], whole.secrets.made)
    (tmp_path / "receipt.json").write_bytes(pretty_json(receipt.table()))
    assert read_receipt(tmp_path / "receipt.json") == receipt
    (tmp_path / "receipt.json").write_bytes(pretty_json(receipt.table() | {"secret": bytes(32).hex()}))
    with pytest.raises(EvidenceError):
        read_receipt(tmp_path / "receipt.json")


def test_an_editor_trains_on_through_an_exchange_that_draws(tmp_path):
    run = train(tables([{"use": "quantise"}], learner={"rounds": 2}), tmp_path / "run", secret=secret(4))
    request = Request.of([drawn_client(run, 0)])
    child, again = (unlearn(run, "finetune", request, tmp_path / name, {"rounds": 1}) for name in ("child", "again"))
    assert child.digest == again.digest
    assert not torch.equal(run.model, child.model)
    assert not [line for line in child.ledger.of_kind("round") if "told" in line]


def test_secrets_that_were_not_committed_to_or_do_not_follow(tmp_path, quick):
    run = train(tables([{"use": "quantise"}]), tmp_path / "parent", secret=secret(1))
    child = unlearn(run, "fats", Request.of([drawn_client(run)]), tmp_path / "child")
    first, last = child.secrets.generations
    one = next(iter(last))

    def exchanged_for(name, **changes):
        shutil.copytree(child.path, tmp_path / name)
        secrets = replace(child.secrets, **changes)
        RunWriter(tmp_path / name).write(SECRETS, secrets.table(child.opening))
        edit(tmp_path / name, "participation.json", salt=secrets.participation_salt)
        for file in filter(child.has, (PARTITION, RECORDED, INVOLVEMENT)):
            (tmp_path / name / file).write_bytes(tensor_bytes(salted(child.arrays(file), secrets.participation_salt)))
        return reseal(tmp_path / name)

    with pytest.raises(EvidenceError, match="is not the one that was committed to"):
        exchanged_for("first", generations=({**first, one: bytes(32)}, last))
    with pytest.raises(EvidenceError, match="the shared secret is not the one that was committed to"):
        exchanged_for("shared", shared=(bytes(32), child.secrets.shared[1]))
    with pytest.raises(EvidenceError, match="lacks secrets of clients"):
        exchanged_for("kept", generations=(first, {**last, drawn_client(run): bytes(32)}))
    other = exchanged_for("last", generations=(first, {**last, one: bytes(32)}))
    assert looked_at(other, quick)["provenance"].verdict == "FAIL"


@pytest.mark.parametrize("server", [({"use": "test-median"},), ({"use": "mean"},)])
def test_what_is_no_number_makes_the_whole_model_so(server):
    """Before a median, and before rounding, which would hide the mark of an erased row."""
    for client in ((), ({"use": "quantise"},)):
        exchange = exchange_of(resolve(tables(client, server=server)))
        updates = updates_of(0, 3, torch.float32)
        updates[1, 2] = torch.nan
        context = replace(stacked([context_of([0, 2, 4], torch.float32)]), draws=(PublicDraws(),))
        row = exchanged(exchange, updates[None], context, {}, {}).row
        assert bool(row.isnan().all()), (client, server)


@pytest.mark.parametrize("bad", range(4))
def test_an_update_that_is_no_number_shows_behind_sums_whoever_sends_infinity(bad):
    """A buffer that is not finite is discarded; one such update makes the model NaN all the same."""
    infinite = answering(clients=(2,), apply=lambda updates, _, state: (updates / 0, state))
    exchange = Exchange(Chain((Mean(),)), Chain((infinite,)), SecureSum(2), frozenset({0}))
    for number in range(1, 9):
        updates, context = updates_of(0, 4, torch.float32), context_of([0, 2, 3, 4], torch.float32, number)
        together = replace(stacked([context]), draws=(PublicDraws(),))
        assert bool(exchanged(exchange, updates[None], together, {}, {}).row.isfinite().all())
        updates[bad, 2] = torch.nan
        assert bool(exchanged(exchange, updates[None], together, {}, {}).row.isnan().all())


def adding(deliver):
    """A transport that says that it shows sums."""
    part = answering(deliver=deliver)
    type(part).shows = "sums"
    return part


def test_sums_of_a_strangers_transport_that_are_not_finite_are_refused():
    infinite = answering(clients=(2,), apply=lambda updates, _, state: (updates / 0, state))
    mean = adding(lambda rows, context: Delivery(rows.mean(dim=0, keepdim=True), context.cohort.counted(1), rows))
    with pytest.raises(PluginError, match=r"deliver in round 1, shows a sum that is not finite\n  Discard it"):
        one_round(Mean(), [infinite], mean, byzantine=[0])


def test_a_sum_hides_nobody_among_clients_without_samples():
    halves = adding(lambda rows, context: Delivery(rows[:2] + rows[2:], context.cohort.counted(2), rows))
    exchange, rows = Exchange(Chain((Mean(),)), transport=halves), torch.ones(4, 5)
    for clients, hidden in (([0, 2, 3, 4], True), ([0, 1, 2, 3], False)):
        context = context_of(clients, torch.float32)
        sending = client_half(exchange, rows, context, {})
        if hidden:
            assert len(delivered(exchange, sending).rows) == 2
        else:
            with pytest.raises(PluginError, match="shows 2 rows as sums of 3 participations with samples"):
                delivered(exchange, sending)


def test_what_no_number_is_is_rejected_by_name_if_a_byzantine_client_sent_it(tmp_path, quick):
    config = tables([{"use": "test-infinite", "clients": [2]}], learner={"rounds": 4})
    run = train(config, tmp_path / "run", secret=secret(3))
    rejected = [event for line in run.ledger.of_kind("round") for event in line.get("told", [])]
    assert rejected
    assert all(
        event == {"kind": "rejected", "part": "exchange", "client": 2, "why": "not finite"} for event in rejected
    )
    assert bool(run.model.isfinite().all())
    assert looked_at(run, quick)["replay"].verdict == "PASS"


def test_a_sum_of_two_participations_is_not_of_one_client(tmp_path):
    with pytest.raises(
        UsageError, match="a client twice in one round, so a sum of the transport 'test-sums' could be of one client"
    ):
        train(tables(transport={"use": "test-sums"}, learner={"use": "fats"}), tmp_path / "run")


@pytest.mark.parametrize(
    ("transport", "words"),
    [
        ({"use": "test-sums", "size": 1}, "4 rows as sums of 4"),
        ({"use": "test-naming-sums"}, "^transport .test-naming-sums., deliver in round 1, names who is in its sums"),
    ],
)
def test_what_is_shown_as_sums_is_compared_in_each_round(tmp_path, transport, words):
    with pytest.raises(PluginError, match=words):
        train(tables(transport=transport, learner={"rounds": 1}), tmp_path / "run")


def test_byzantine_clients_must_be_there(tmp_path):
    with pytest.raises(UsageError, match="'test-flip' names client 9, but the federation has no such client"):
        train(tables([{"use": "test-flip", "clients": [1, 9]}]), tmp_path / "run")
    with pytest.raises(PluginError, match=r"'test-nameless' of .*\n  it does not say clients"):
        train(tables([{"use": "test-nameless"}]), tmp_path / "run")


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        ("test-forgetful", "changed its form"),
        ("test-unnamed", "^client stage 'test-unnamed' keeps what it does not name in per_client_state: 'memory'"),
        ("test-undeclared", "^client stage 'test-undeclared', apply in round 1, says: .*did not declare it"),
        ("test-stranger-s-noise", "whose stage it is not"),
        ("test-stranger-s-noise-later", "whose stage it is not"),
        (
            "test-raises",
            r"^client stage 'test-raises', apply in round 1, raised ValueError.* \(fuaudit_stages.py, line \d+\)$",
        ),
        (
            "test-wider",
            r"client stage 'test-wider', apply in round 1, returned .*float64.* and not \(\d, 650\) of torch.float32",
        ),
        ("test-babbles", "whole and finite numbers"),
        ("test-agrees-on-nothing-real", r"must return ascending columns from 0 to 649, each once, and not 1\n"),
    ],
)
def test_stages_that_break_their_word_stop_training(stage, words, tmp_path):
    with pytest.raises(PluginError, match=words):
        train(tables([{"use": stage}]), tmp_path / "run", secret=secret(4))


def test_a_transport_that_does_not_say_what_it_shows_is_no_wrong_config():
    with pytest.raises(PluginError, match=r"transport 'test-mumbling' of .* declares wrongly:\n  .*shows"):
        resolve(tables(transport={"use": "test-mumbling"}))


@pytest.mark.parametrize("use", ["test-drops-all", "test-delivers-none"])
def test_transports_that_deliver_nothing(use, tmp_path, quick):
    config = tables(transport={"use": use}, server=[{"use": "mean"}, {"use": "momentum"}], learner={"rounds": 2})
    if use == "test-delivers-none":
        with pytest.raises(PluginError, match=r"transport .test-delivers-none., deliver in round 1, returned NoneType"):
            train(config, tmp_path / "run", secret=secret(4))
        return
    run = train(config, tmp_path / "run", secret=secret(4))
    assert torch.equal(run.checkpoint(0)[0], run.model)
    assert looked_at(run, quick)["replay"].verdict == "PASS"


# one round of one run


def one_round(server, client_stages=(), transport=None, byzantine=()):
    """The row of a round of clients 0, 2 and 4, and their updates ``(3, 5)``."""
    servers = tuple(server) if isinstance(server, list) else (server,)
    chains, updates = (Chain(servers), Chain(tuple(client_stages))), updates_of(0, 3, torch.float32)
    exchange = Exchange(*chains, transport or Clear(), frozenset(byzantine))
    return exchanged(exchange, updates[None], stacked([context_of([0, 2, 4], torch.float32)]), {}, {}).row[0], updates


@dataclass(frozen=True)
class Noisy(Stateless):
    """One drawn number everywhere."""

    draws: ClassVar[bool] = True

    def apply(self, updates, context, state):
        return torch.full_like(updates[:1], context.shared.uniform("x", 1)[0]), state


def test_a_server_stage_draws_behind_the_transport():
    """The same numbers, whatever client stages there are."""
    for stages in ((), (Quantise(),)):
        row, _ = one_round(Noisy(), stages)
        drawn = PublicDraws().shared(1, Part("server", 0)).uniform("x", 1)[0]
        assert torch.equal(row, torch.full((1, 5), drawn, dtype=torch.float32))


@dataclass(frozen=True)
class Knowing(Clear):
    """A transport that notes who was rejected before it."""

    _seen: list = field(default_factory=list)

    def deliver(self, rows, context):
        self._seen.append(context.accepted.tolist())
        return super().deliver(rows, context)


def test_a_transport_knows_whose_rows_were_rejected():
    infinite = answering(clients=(2,), apply=lambda updates, _, state: (updates / 0, state))
    transport = Knowing()
    row, updates = one_round(Mean(), [infinite], transport, byzantine=[0])
    assert transport._seen == [[True, False, True]]
    assert torch.allclose(row, updates[[0, 2]].mean(dim=0, keepdim=True))


def test_a_round_can_be_entered_at_a_delivery():
    exchange = Exchange(Chain((Mean(), Momentum())), Chain((Quantise(),)))
    context, memory = context_of([0, 2, 4], torch.float32), {"1.velocity": torch.ones(1, 5)}
    updates = updates_of(0, 3, torch.float32)
    sending = client_half(exchange, updates, context, {})
    served = server_half(exchange, delivered(exchange, sending), sending.context, memory)
    together = stacked([context])
    whole = exchanged(exchange, updates[None], together, {}, {"1.velocity": memory["1.velocity"][None]})
    assert torch.equal(whole.row[0], served.row)
    assert torch.equal(whole.server["1.velocity"][0], served.state["1.velocity"])


@pytest.mark.parametrize("vectorised", [False, True])
def test_a_server_stage_that_divides_by_nothing_is_named(vectorised):
    def apply(self, updates, context, state):
        return updates.sum(dim=-2, keepdim=True) / (0 * updates[..., :1, :1]), state

    divides = type("Odd", (Stateless,), {"apply": apply, "vectorised": vectorised})()
    words = r"apply in round 1, turned finite rows into one that is not finite\n.* cohort.sizes are 0"
    with pytest.raises(PluginError, match=words):
        one_round(divides)
    with pytest.raises(PluginError, match=words):
        one_round([Mean(), divides])


def test_what_is_no_number_before_a_strangers_stage_is_not_its_fault():
    """Erased rows are NaN, and audits look for them."""
    first = answering(apply=lambda updates, context, state: (updates[:1], state))
    exchange, updates = Exchange(Chain((first,))), updates_of(0, 3, torch.float32)
    updates[0, 1] = torch.nan
    row = exchanged(exchange, updates[None], stacked([context_of([0, 2, 4], torch.float32)]), {}, {}).row
    assert bool(row.isnan().all())


def test_where_nothing_is_agreed_on_nothing_moves():
    nothing = answering(propose=[torch.arange(0)] * 3, agree=torch.arange(0))
    exchange = Exchange(Chain((Mean(), Momentum())), Chain((nothing,)))
    memory = {"1.velocity": torch.ones(1, 1, 5)}
    context = stacked([context_of([0, 2, 4], torch.float32)])
    made = exchanged(exchange, updates_of(0, 3, torch.float32)[None], context, {}, memory)
    assert torch.equal(made.row, torch.zeros(1, 1, 5))
    assert torch.equal(made.server["1.velocity"], memory["1.velocity"])


def test_rows_of_honest_clients_stay_as_they_were():
    import fuaudit_stages

    row, updates = one_round(Mean(), [fuaudit_stages.Flip((2,))], byzantine=[0])
    updates[1] = -updates.mean(dim=0)
    assert torch.equal(row, Mean().apply(updates, context_of([0, 2, 4], torch.float32), {})[0])


@dataclass(frozen=True)
class Spoils(Stateless):
    """Writes into all that it is given, and says what it should."""

    clients: tuple[int, ...] = (2,)

    def apply(self, updates, context, state):
        made = updates.clone()
        for tensor in (updates, *context.tensors.values()):
            tensor.zero_()
        return made, state

    def proposals(self, found, updates, context):
        said = [one.clone() for one in found]
        for tensor in (updates, *found):
            tensor.zero_()
        return said

    def settle(self, sent, answer, context, state):
        for tensor in (sent, answer):
            tensor.zero_()
        return state


@dataclass(frozen=True)
class SpoilsAtTheServer(Spoils):
    """The same, at the server: clients still have to settle the round."""

    def apply(self, updates, context, state):
        made = super().apply(updates, replace(context, coordinates=None), state)[0]
        return made.mean(dim=0, keepdim=True), state


@dataclass(frozen=True)
class Keeps(Stateless):
    """Looks at what comes of the round."""

    _came: list = field(default_factory=list)

    def apply(self, updates, context, state):
        return updates, state

    def settle(self, sent, answer, context, state):
        self._came[:] = [sent, answer, *context.tensors.values()]
        return state


@dataclass(frozen=True)
class Later:
    """Agrees on the first columns, and keeps the very tensor that it returned."""

    _made: list = field(default_factory=list)

    def propose(self, updates, context):
        return [torch.arange(2) for _ in updates]

    def agree(self, proposals, context):
        self._made.append(torch.cat(proposals).unique())
        return self._made[-1]


@dataclass(frozen=True)
class Shifts(Keeps):
    """Writes into the columns that were agreed on, by the agreement's own tensor."""

    later: Later = Later()

    def apply(self, updates, context, state):
        self.later._made[-1].add_(3)
        return updates, state


@dataclass(frozen=True)
class ClearsBehind(Stateless):
    """Writes into the aggregator's row."""

    after_aggregation: ClassVar[bool] = True

    def apply(self, updates, context, state):
        return updates.zero_(), state


@dataclass(frozen=True)
class AcceptsAll(Clear):
    """A transport that writes into the word of who was rejected."""

    def deliver(self, rows, context):
        context.accepted.fill_(True)
        return super().deliver(rows, context)


def test_what_a_part_hands_over_it_cannot_change_later():
    import fuaudit_stages

    right, wrong, later = Keeps(), Keeps(), Later()
    expected, _ = one_round(Mean(), [later, right])
    row, _ = one_round([Mean(), ClearsBehind()], [later, Shifts(later=later), wrong])
    assert not row.any()
    assert all(map(torch.equal, wrong._came, right._came))
    shown, _ = one_round(Mean(), [later, Shifts(later=later)])
    assert torch.equal(shown, expected)
    mean, _ = one_round([Mean(), ClearsBehind()], [right])
    assert not mean.any()
    assert right._came[1].all()
    for transport in (Clear(), AcceptsAll()):
        one_round(fuaudit_stages.Median(), [fuaudit_stages.Infinite(), right], transport, [0])
        assert not right._came[0][0].any()


def test_nobody_spoils_what_others_are_given():
    import fuaudit_stages

    right, wrong = Keeps(), Keeps()
    agreement = fuaudit_stages.TopTogether(2)
    expected, _ = one_round(Mean(), [agreement, right])
    for server in (Mean(), SpoilsAtTheServer()):
        row, _ = one_round(server, [Spoils(), agreement, Spoils(), wrong, Spoils()], byzantine=[0, 4])
        assert torch.allclose(row, expected)
        assert all(map(torch.allclose, wrong._came, right._came))


def test_a_tale_that_follows_from_another_model_names_that_model(tmp_path, monkeypatch, quick):
    """The first round that went wrong is the one to look at: the ledger tells otherwise of a later one alone."""
    learner = {"use": "fedrep", "rounds": 9, "cohort": 4, "steps": 2, "batch": 2, "step_size": 0.2}
    client = [{"use": "error-feedback"}, {"use": "consensus", "per_client": 2}]
    right = GeometricMedian.apply

    def wrong(self, updates, context, state):
        row, new = right(self, updates, context, state)
        return row * (-40 if context.number == 5 else 1), new

    with monkeypatch.context() as patched:
        patched.setattr(GeometricMedian, "apply", wrong)
        config = tiny_config(learner=learner, client=client, server=[{"use": "geometric-median"}])
        run = train(config, tmp_path / "run", tiny_dataset(), secret(4))
    found = verify(run, quick, data=tiny_dataset(), key=AUDIT_KEY, save=False).findings
    replayed = next(one for one in found if one.audit == "replay")
    assert (replayed.verdict, replayed.shows[:28]) == ("FAIL", "What a ledger tells of round")
    (detail,) = replayed.details
    assert detail.startswith("before that, after round 5, the stored model differs")


def test_a_proposal_that_stops_a_round_is_named_with_who_made_it():
    """Agreed columns ascend and look right for long; the wrong one is the last, and no honest client's."""
    import fuaudit_stages

    far = answering(
        clients=(0, 4), proposals=lambda found, *_: [one + 10**6 for one in found], apply=lambda *given: given[::2]
    )
    told = "must return ascending columns from 0 to 4, each once, and not 1000000, proposed by client 0 and client 4"
    with pytest.raises(PluginError, match=told) as caught:
        one_round(Mean(), [far, fuaudit_stages.TopTogether(5)], byzantine=[0])
    assert "tell Rejected" in caught.value.hint


def reached(thing, seen):
    """All that is reached from an object by plain attributes of its own."""
    if id(thing) in seen or isinstance(thing, type):
        return
    seen[id(thing)] = thing
    names = {*getattr(thing, "__dict__", ()), *(n for c in type(thing).__mro__ for n in getattr(c, "__slots__", ()))}
    for name in names:
        reached(getattr(thing, name, None), seen)
    for one in thing if isinstance(thing, list | tuple | dict | set) else ():
        reached(one, seen)


def test_a_part_is_given_no_key_no_plan_and_no_tale():
    draws = PlannedDraws.flat(Plan.fresh(LAW, MEMBERS, Keyed(bytes(32))), [Keyed(bytes(32))])
    told = []
    whole = replace(context_of([0, 2, 4], torch.float32), draws=(draws,), told=told)
    for part, (stage, clients) in enumerate([(Quantise(), None), (Noisy(), ()), (Clear(), None)]):
        seen = {}
        context = whole.at(PLACES[part], stage, clients)
        reached(context, seen)
        if part == 0:
            reached(context.own(1), seen)
        if part < 2:
            reached(context.shared, seen)
        kinds = {type(one) for one in seen.values()}
        assert not kinds & {bytes, Plan, PlannedDraws, Generation, list}, kinds
    assert numbers(draws, 1, 0, 2) == whole.at(PLACES[0], Quantise(), None).own(1).integers("x", 2**31, 4).tolist()


@dataclass(frozen=True)
class Curious(Sgd):
    """A solver that declares no draws, and would draw."""

    def before(self, context, state):
        context.own(0)


def test_a_part_that_counts_its_calls_is_refused_before_the_first_round(tmp_path, monkeypatch, quick):
    import fuaudit_stages

    config = tables([{"use": "test-counts"}], learner={"rounds": 2})
    run = train(config, tmp_path / "steady", secret=secret(4))
    assert looked_at(run, quick)["replay"].verdict == "PASS"
    monkeypatch.setattr(fuaudit_stages.Counts, "_calls", count())
    words = "client stage 'test-counts', apply in round 1, gives other bits when it is asked twice on this machine"
    with pytest.raises(PluginError, match=words):
        train(config, tmp_path / "run", secret=secret(4))
    assert not (tmp_path / "run").exists()
    replay = looked_at(run, quick)["replay"]
    assert replay.verdict == "ERROR"
    assert words in replay.shows


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (lambda rows, context, state: (rows, {"seen": state["seen"].add_(1)}), "writes into what it is given"),
        (lambda rows, context, state: context.tell(Sent(1, "row", next(TICKS))) or (rows, state), "gives other bits"),
    ],
    ids=["writes", "tells the time"],
)
def test_asking_twice_finds_what_no_replay_could_repeat(fault, words):
    stage = answering(apply=fault)
    context = context_of([0, 1, 2], torch.float32).at(Part("client"), stage)
    with asking_twice() as found:
        asked(stage, "apply", a(tuple), torch.ones(3, 5), context, {"seen": torch.zeros(3, 1)})
    assert len(found) == 1
    assert words in found[0]
    right = answering(apply=lambda rows, context, state: (rows * 2, {"seen": state["seen"] + 1}))
    with asking_twice() as found:
        asked(right, "apply", a(tuple), torch.ones(3, 5), context, {"seen": torch.zeros(3, 1)})
    assert not found


def test_a_state_that_no_run_can_hold_is_refused_by_name(tmp_path):
    stage = answering(init=lambda shape: {"m": torch.zeros(1, shape.dimension, dtype=torch.bfloat16)})
    shape = StateShape(5, 3, torch.float32, torch.device("cpu"))
    with pytest.raises(PluginError, match=r"keeps 'm' as torch\.bfloat16, and a run cannot hold it"):
        first_state(Sgd(), Exchange(Chain((stage,))), shape)


def test_a_solver_draws_what_it_declares_and_nothing_that_a_stage_draws():
    ready = setup(resolve(tables([{"use": "quantise"}])), None)
    population = federation((3, 3, 3, 3, 3, 3, 3, 3))
    plan = Plan.fresh(ready.learner.law, population, Keyed(bytes(32)))
    start = initial_state(ready.procedure, [plan], population, ready.device)
    procedure, problem = replace(ready.procedure, solver=Curious()), ready.client_problem(population)
    rounds = execute(procedure, problem, population, LazySchedule([plan]), start, ready.engine, draws=[PublicDraws()])
    with pytest.raises(PluginError, match="did not declare it"):
        next(rounds)
    declares, whole = Noisy(), context_of([0, 1, 2], torch.float32)
    places = Part("solver"), Part("client"), Part("client", 1), Part("transport"), Part("server")
    mine, *others = (whole.at(place, declares, None).own(1).normal("noise", 5).tolist() for place in places)
    assert all(not {*mine} & {*other} for other in others)
    tells = answering(before=lambda context, state: context.tell(Sent(1, "row", 4)))
    rounds = execute(replace(procedure, solver=tells), problem, population, LazySchedule([plan]), start, ready.engine)
    with pytest.raises(PluginError, match="tell nothing of a round"):
        next(rounds)


@pytest.mark.parametrize("method", ["apply", "proposals", "settle"])
def test_byzantine_clients_tell_nothing(method):
    def gossips(*given):
        context = next(one for one in given if isinstance(one, RoundContext))
        context.tell(Sent(3, "row", 4))

    odd = answering(clients=(0,), **SETTLES | {method: gossips})
    with pytest.raises(PluginError, match=rf"^Odd, {method} in round 1, says: .* tell nothing of a round"):
        one_round(Mean(), [answering(**AGREES), odd], None, [1])


def test_what_honest_stages_and_transports_must_not_make():
    import fuaudit_stages

    @dataclass(frozen=True)
    class Narrow(fuaudit_stages.DropsAll):
        def deliver(self, rows, context):
            return Delivery(rows[:, :1], context.cohort, rows)

    finite = r"'test-infinite', apply in round 1, turned a finite row"
    for stages, byzantine in (
        ([fuaudit_stages.Infinite()], []),
        ([fuaudit_stages.Infinite(), fuaudit_stages.Flip()], [1]),
    ):
        with pytest.raises(PluginError, match=finite):
            one_round(fuaudit_stages.Median(), stages, byzantine=byzantine)
    with pytest.raises(PluginError, match=r"Odd, in_the_clear, returned NoneType, and not a transport"):
        Exchange(Chain((Mean(),)), transport=answering(in_the_clear=None)).in_the_clear()
    with pytest.raises(PluginError, match=r"made rows \(3, 1\), .* of rows \(3, 5\)"):
        one_round(Mean(), transport=Narrow())
    with pytest.raises(PluginError, match="which is no event"):
        context_of([0], torch.float32).tell("a tale")
    for event in (Sent(1, repr([0.5]), 4), Released("row 7", {}), Rejected(1, ""), Suspected((1,), "3")):
        with pytest.raises(PluginError, match="of letters and hyphens"):
            context_of([0], torch.float32).tell(event)
    with pytest.raises(PluginError, match="more than 64 bits"):
        context_of([0], torch.float32).tell(Sent(1, "update", 10**5000))
    lists = Summed((2, -1), 0, False), Suspected((2, -1), "x"), Suspected((2, 0.5), "x")
    for event in (Sent(1, "update", -4), Sent(-1, "update", 4), Sent(1, "update", 0.5), *lists):
        with pytest.raises(PluginError, match="clients, sizes and numbers of rows are whole numbers from 0"):
            context_of([0], torch.float32).tell(event)
    for event in (Summed(3, 0, False), Summed((3,), 0, 1)):
        with pytest.raises(PluginError, match="rows are a tuple of whole numbers, and failed is True or False"):
            context_of([0], torch.float32).tell(event)
    for event in (Suspected(3, "x"), Suspected((), "x"), Suspected([3], "x")):
        with pytest.raises(PluginError, match="clients are a tuple of ids, one at least"):
            context_of([0], torch.float32).tell(event)
    unnamed = {"vectorised": False, "deliver": lambda _, rows, c: Delivery(rows, c.cohort.counted(len(rows)), rows)}
    with pytest.raises(PluginError, match="shows rows of nobody"):
        one_round(Mean(), transport=type("Odd", (Clear,), unnamed)())


def answering(**answers):
    """A part whose methods answer so, or raise what they are given."""

    def method(answer):
        def says(self, *arguments):
            if isinstance(answer, Exception):
                raise answer
            return answer(*arguments) if callable(answer) else answer

        return says

    named = {"clients": answers.pop("clients", ())}
    return type("Odd", (Stateless,), named | {name: method(answer) for name, answer in answers.items()})()


COLUMNS = [torch.arange(2)] * 3
TICKS = count()
APPLIES = (
    ValueError("no"),
    None,
    torch.ones(3, 5),
    ([1], {}),
    (torch.ones(3, 5).double(), {}),
    (torch.ones(1, 5), None),
)
SETTLES = {"apply": lambda rows, context, state: (rows, state)}
AGREES = {"propose": COLUMNS, "agree": torch.arange(2)}


@pytest.mark.parametrize(
    ("method", "place", "part"),
    [
        *(("apply", "client", {"apply": answer}) for answer in (*APPLIES, (torch.ones(2, 5), {}))),
        *(("apply", "server", {"apply": answer}) for answer in (*APPLIES, (torch.ones(1, 4), {}))),
        *(("settle", "client", SETTLES | {"settle": answer}) for answer in (ValueError("no"), None, {"m": 1})),
        *(("propose", "client", AGREES | {"propose": one}) for one in (COLUMNS[:1], None, [torch.ones(2)] * 3)),
        *(("agree", "client", AGREES | {"agree": one}) for one in (None, torch.tensor([False, True]), torch.ones(2))),
        *(("proposals", "byzantine", SETTLES | {"proposals": one}) for one in ([], None, ValueError("no"))),
        ("deliver", "transport", {"deliver": ValueError("no")}),
        ("deliver", "transport", {"deliver": lambda rows, context: Delivery([1], context.cohort, rows)}),
        ("deliver", "transport", {"deliver": lambda rows, context: Delivery(rows.double(), context.cohort, rows)}),
        ("deliver", "transport", {"deliver": lambda rows, context: Delivery(rows, None, rows)}),
    ],
)
def test_what_a_part_answers_comes_through_one_door(method, place, part):
    odd = answering(clients=(0,), **part)
    parts = {
        "client": (Mean(), [odd]),
        "byzantine": (Mean(), [answering(**AGREES), odd], None, [1]),
        "transport": (Mean(), (), odd),
        "server": (odd,),
    }
    with pytest.raises(PluginError, match=rf"^Odd, {method} in round 1, (raised|returned)"):
        one_round(*parts[place])


@pytest.mark.parametrize("answer", [ValueError("no"), None, {"m": 1}, {1: torch.ones(1)}])
@pytest.mark.parametrize("part", ["solver", "client", "server"])
def test_what_a_part_begins_with_comes_through_the_door(part, answer):
    parts = {"solver": Sgd(), "client": Mean(), "server": Mean()} | {part: answering(init=answer)}
    exchange = Exchange(Chain((parts["server"],)), Chain((parts["client"],)))
    with pytest.raises(PluginError, match=r"^Odd, init, (raised|returned)"):
        first_state(parts["solver"], exchange, StateShape(5, 3, torch.float32, torch.device("cpu")))


@pytest.mark.parametrize("shape", [(3,), (5, 3), (3, 2, 5), (2, 3, 5), None])
@pytest.mark.parametrize("part", ["solver", "client", "server"])
def test_a_row_a_client_is_a_table_with_as_many_rows(part, shape):
    def begun(shape):
        odd = answering(init=lambda given: {"rows": given.zeros(*shape)} if shape else {})
        object.__setattr__(odd, "per_client_state", frozenset({"rows"}))
        parts = {"solver": Sgd(), "client": Mean(), "server": Mean()} | {part: odd}
        exchange = Exchange(Chain((parts["server"],)), Chain((parts["client"],)))
        return first_state(parts["solver"], exchange, StateShape(5, 3, torch.float32, torch.device("cpu")))

    assert [len(table) for table in begun((3, 1)).values()] == [3]
    with pytest.raises(PluginError, match=r"^Odd (names 'rows' in|lacks what it names in) per_client_state"):
        begun(shape)


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("before", None),
        ("before", ValueError("no")),
        ("after", lambda outcome, context, state: outcome.updates),
        ("after", lambda outcome, context, state: (outcome.updates.double(), state)),
        ("after", ValueError("no")),
    ],
)
def test_what_a_solver_answers_comes_through_the_door(method, answer):
    ready = setup(resolve(tables()))
    sgd = {"before": lambda *given: Sgd().before(*given), "after": lambda *given: Sgd().after(*given)}
    procedure = replace(ready.procedure, solver=answering(**sgd | {method: answer}))
    plan = Plan.fresh(ready.learner.law, Population({c: range(9 * c, 9 * c + 9) for c in range(8)}), Keyed(bytes(32)))
    start = initial_state(procedure, [plan], plan.retained, ready.device)
    problem = ready.client_problem(plan.retained)
    with pytest.raises(PluginError, match=rf"^Odd, {method} in round 1, (raised|returned)"):
        next(execute(procedure, problem, plan.retained, expand(plan), start, ready.engine))


def test_noise_is_never_used_twice_over_other_rows(tmp_path):
    """Weights by size: kept rounds are executed again over other sizes, and would keep their noise."""
    config = tables([{"use": "quantise"}], server=[{"use": "size-weighted"}])
    run = train(config, tmp_path / "run", secret=secret(5))
    index = run.plan.index
    sample = max(index.samples, key=lambda one: index.samples[one])
    with pytest.raises(UsageError, match="with the noise that they had"):
        unlearn(run, "fats", Request.of(samples=[sample]), tmp_path / "child", allow_inexact=True)
    unlearn(run, "retrain", Request.of(samples=[sample]), tmp_path / "retrained")


def test_one_noise_over_two_models_is_found_where_nothing_says_what_rounds_depend_on(tmp_path, quick):
    """The stage divides by the number of clients, unsaid: the operator makes kept rounds again with their noise."""
    run = train(tables([{"use": "test-counting"}, {"use": "quantise"}]), tmp_path / "run", secret=secret(5))
    child = unlearn(run, "fats", Request.of([drawn_client(run)]), tmp_path / "child")
    found = looked_at(child, quick)
    assert (found["replay"].verdict, found["provenance"].verdict) == ("FAIL", "PASS")
    forged = remade(child.path)
    edited = unlearn(forged, "finetune", Request.of([forged.plan.retained.clients[0]]), tmp_path / "edited")
    assert "one noise over two models" in looked_at(edited, quick)["provenance"].shows
    for again in (forged, prune(forged, allow_orphans=True)[0]):
        found = looked_at(again, quick)
        assert (found["replay"].verdict, found["provenance"].verdict) == ("PASS", "FAIL")
        assert "one noise over two models" in found["provenance"].shows


def test_an_editor_makes_no_round_again_and_has_one_verdict_after_a_prune(tmp_path, quick):
    config = tables([{"use": "quantise"}], server=[{"use": "size-weighted"}])
    run = train(config, tmp_path / "run", secret=secret(5))
    edited = unlearn(run, "finetune", Request.of(samples=[drawn_sample(run)]), tmp_path / "edited")
    anew = unlearn(edited, "retrain", Request.of([drawn_client(run)]), tmp_path / "anew")
    assert verdicts(looked_at(edited, quick))["provenance"] == "PASS"
    assert verdicts(looked_at(anew, quick)) == FINE
    assert verdicts(looked_at(prune(anew)[0], quick)) == FINE


def test_a_private_solver_keeps_its_rows_with_the_clients(tmp_path, quick):
    """In front of client stages and of sums, which a solver whose rows the server has is refused before."""
    config = tables([{"use": "test-memory"}], {"use": "test-sums"}, solver={"use": "test-momentum"})
    run = train(config, tmp_path / "run", secret=secret(7))
    names = {"client.0.memory", "client.solver.velocity"}
    assert run.checkpoint(8)[1].keys() == names
    assert run.arrays("checkpoints/000008.safetensors").keys() == {"vector"}
    assert run.arrays("clients/000008.safetensors").keys() == {"salt", *(f"state.{name}" for name in names)}
    client = drawn_client(run)
    child = unlearn(run, "fats", Request.of([client]), tmp_path / "child")
    assert [len(child.checkpoint(8)[1][name]) for name in sorted(names)] == [7, 7]
    assert verdicts(looked_at(child, quick)) == FINE
    alone = train(tables(solver={"use": "test-momentum"}, learner={"rounds": 2}), tmp_path / "alone", secret=secret(7))
    assert verdicts(looked_at(redact(alone, tmp_path / "without"), quick))["integrity"] == "PASS"


def test_what_a_private_solver_keeps_is_no_memory_of_stages():
    """Of two runs one has an update that is no number, so what its stages keep stays; both have the same names."""
    ready = setup(resolve(tables([{"use": "quantise"}], solver={"use": "test-momentum"})), None)
    population = federation((3, 3, 3, 3, 3, 3, 3, 3))
    plans = [Plan.fresh(ready.learner.law, population, Keyed(bytes([key] * 32))) for key in range(2)]
    start = initial_state(ready.procedure, plans, population, ready.device)
    start.vectors[0] = torch.nan
    problem, draws = ready.client_problem(population), [PublicDraws()] * 2
    rounds = execute(ready.procedure, problem, population, LazySchedule(plans), start, ready.engine, draws=draws)
    _, after = next(rounds)
    assert after.state.keys() == {"client.solver.velocity"}
    assert after.vectors.isnan().all(dim=1).tolist() == [True, False]


# draws


LAW, MEMBERS = UniformLaw(4, 2, 3, 1), federation((3, 3, 3))


PLACES = [Part("client", 0), Part("client", 1), Part("transport"), Part("server", 0), Part("server", 1)]


def together(draws, number, part=0):
    return draws.shared(number, PLACES[part]).integers("x", 2**31, 4).tolist()


def numbers(draws, number, part=0, client=1):
    return draws.own(number, PLACES[part], client, 0).integers("x", 2**31, 4).tolist()


@given(st.integers(1, 4), st.integers(0, 3), st.sampled_from([0, 2, 3]))
def test_after_a_cut_draws_of_stages_are_new_from_its_round_on(round_number, step, part):
    old, fresh = Keyed(bytes(32)), Keyed(bytes(range(32)))
    plan = Plan.fresh(LAW, MEMBERS, old)
    cut = plan.erase(Request.of([2]), fresh, Position(round_number, step))
    before, after = PlannedDraws.flat(plan, [old]), PlannedDraws.flat(cut, [old, fresh])
    for number in range(1, 5):
        same = numbers(before, number, part) == numbers(after, number, part)
        assert same == (number < round_number)
        assert (together(before, number, part) == together(after, number, part)) == (number < round_number)


@given(st.sampled_from(list(Stream)), st.integers(0, 4), st.sampled_from([0, 2, 3]))
def test_whatever_is_drawn_anew_stages_draw_anew_from_there_on(stream, start, part):
    """One stream alone, also where it goes back to its old draws later: models differ from there on."""
    old, fresh = Keyed(bytes(32)), Keyed(bytes(range(32)))
    plan, start = Plan.fresh(LAW, MEMBERS, old), 0 if stream is Stream.INITIAL else start
    kept = plan.erase(Request.of([2]), fresh, END)
    new = (Segment(Position(start, 0), 1, 1), Segment(Position(start + 1, 0), 0, 0))
    changed = replace(kept, streams={**kept.streams, stream: (*WHOLE[stream], *new)[start == 0 :]})
    before, after = PlannedDraws.flat(plan, [old]), PlannedDraws.flat(changed, [old, fresh])
    for number in range(1, 5):
        assert (numbers(before, number, part) == numbers(after, number, part)) == (number < start)
        assert (together(before, number, part) == together(after, number, part)) == (number < start)
    assert keeps_draws(kept, 1)
    assert keeps_draws(changed, 1) == (start > 1)


def test_old_keys_over_another_population_are_no_new_draws():
    plan = Plan.fresh(LAW, MEMBERS, Keyed(bytes(32))).erase(Request.of([2]), Keyed(bytes(range(32))), END)
    whole = (Segment(START, 0, 1),)
    assert keeps_draws(replace(plan, streams={stream: whole for stream in Stream}), 1)


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4), st.integers(0, 2)), min_size=2, max_size=2, unique=True)
)
def test_no_two_parts_share_noise(places):
    draws = PlannedDraws.flat(Plan.fresh(LAW, MEMBERS, Keyed(bytes(32))), [Keyed(bytes(32))])
    one, other = (numbers(draws, *place) for place in places)
    assert one != other


def test_siblings_configs_and_methods_never_share_secrets(whole, tmp_path):
    secret_before = bytes(range(32))
    steps = [
        Renewal(commitment, context, {"use": use, "options": options}, executed)
        for commitment in ("c1", "c2")
        for context in ("r1", "r2")
        for use, options in (("fats", {}), ("retrain", {}), ("fats", {"a": 1}))
        for executed in (7, 8)
    ]
    assert len({step.renewed(secret_before) for step in steps}) == len(steps)
    other = train(EVERYTHING | {"scaling": "standardise"}, tmp_path / "other", secret=secret(1))
    # one master secret gives the same secrets to clients, and the commitments make of them other draws
    assert other.secrets.generations == whole.secrets.generations
    (mine,), (theirs,) = whole.stage_draws(whole.plan), other.stage_draws(other.plan)
    assert numbers(mine, 1) != numbers(theirs, 1)
    assert together(mine, 1) != together(theirs, 1)
    assert whole.secrets.made == "from one secret"


def test_without_a_secret_clients_make_their_own(tmp_path):
    run = train(tables([{"use": "quantise"}], learner={"rounds": 1}), tmp_path / "run")
    assert run.secrets.made == "apart"
    (own,) = run.secrets.generations
    assert len(set(own.values())) == 8
    seeds = run.keys.seeds
    assert first_secrets([1, 2], None, seeds).generations != first_secrets([1, 2], None, seeds).generations
    assert ClientSecrets.of_table(run.secrets.table(run.opening)) == run.secrets


def test_clients_with_one_secret_are_named(tmp_path, quick, monkeypatch):
    monkeypatch.setattr("secrets.token_bytes", bytes)
    run = train(tables([{"use": "quantise"}], learner={"rounds": 1}), tmp_path / "run")
    monkeypatch.undo()
    (told,) = (text for text in looked_at(run, quick)["provenance"].assumptions if "one secret" in text)
    assert told.endswith("Client 0 has one secret with 7 others, client 1 among them.")


def test_a_rewriter_gets_no_draw_of_a_stage():
    plan = veiled(Plan.fresh(LAW, MEMBERS, Keyed(bytes(32))))
    at = Address(Purpose.STAGE, 1, 4, 1)
    for ask in (plan.sources[0].sequence, plan.sources[0].subset):
        with pytest.raises(PluginError, match="it gets those of cohorts and batches alone"):
            ask(at, [1, 2], 1)


def test_every_part_draws_by_itself():
    """One generation, one client: a part draws otherwise than its neighbour."""
    plan = replace(
        Plan.fresh(LAW, MEMBERS, Keyed(bytes(32))),
        streams={stream: (Segment(Position(0, 0), 0, 0),) for stream in Stream},
    )
    draws = PlannedDraws(plan, (Generation.flat(bytes(32)),))
    assert len({tuple(numbers(draws, 1, part)) for part in range(5)}) == 5


# many runs at once


def test_runs_beside_each_other_are_treated_one_by_one_where_a_part_is_not_stackable():
    exchange = Exchange(Chain((Mean(),)), Chain((Quantise(),)))
    contexts = [context_of([0, 2, 4], torch.float32), context_of([3, 5, -1], torch.float32)]
    updates = torch.stack([updates_of(run, 3, torch.float32) for run in range(2)])
    together = exchanged(exchange, updates, replace(stacked(contexts), draws=(PublicDraws(), PublicDraws())), {}, {})
    for run, context in enumerate(contexts):
        alone = replace(stacked([context]), draws=(PublicDraws(),))
        assert torch.equal(together.row[run], exchanged(exchange, updates[run : run + 1], alone, {}, {}).row[0])


def test_mimic_at_the_clients_is_mimic_and_the_server_never_sees_what_it_keeps(tmp_path):
    learner = {"use": "mimic", "scenario": "static", "probability": 0.5, "cohort": None}
    learner = {name: value for name, value in (tables()["learner"] | learner).items() if value is not None}
    learner |= {"rounds": 4}
    one = {**tables(), "learner": learner}
    del one["server"]
    server = train(one, tmp_path / "server", secret=secret(6))
    clients = train(one | {"learner": learner | {"use": "mimic-at-clients"}}, tmp_path / "clients", secret=secret(6))
    assert torch.equal(server.model, clients.model)
    assert not [name for name in clients.arrays("checkpoints/000004.safetensors") if "corrections" in name]
    kept = clients.checkpoint(4)[1]["client.0.corrections"]
    assert np.array_equal(kept, server.checkpoint(4)[1]["server.0.corrections"])
