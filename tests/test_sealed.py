"""Sealed views: what the server may be given of a run is opened and verified, and shows no more than it can."""

import itertools
import json
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from fuaudit_plugins.secure_sum import SecureSum, WholeSums
from secure_transcripts import Kept as InMemory
from secure_transcripts import with_another_sum
from test_secured_runs import FEDAVG, FEDREP, INFINITE, NOISY, SHARES, published, sealed_with_child, trained
from test_transcript_runs import examined, messages, parties
from tests_support import AUDIT_KEY, in_messages, secret

from fuaudit import load_run, report, train, unlearn, verify
from fuaudit.audits.transcript.audit import Transcript, _checked
from fuaudit.audits.transcript.known import draws_in_order, known_of
from fuaudit.audits.transcript.served import _half, _stored, served
from fuaudit.commitments.blocks import digest_from, state_after
from fuaudit.commitments.view import View
from fuaudit.draws import Keyed
from fuaudit.errors import EvidenceError, PluginError, RedactedError, UsageError
from fuaudit.formats.files import sha256
from fuaudit.formats.forms import pretty_json, tensor_bytes
from fuaudit.plans import Request, UniformLaw, WeightedLaw
from fuaudit.plans.availability import BoundedRoundRobin
from fuaudit.runs.account import account_of
from fuaudit.runs.encoding import digest_of_vector, files_of_round
from fuaudit.runs.fears import fears_of
from fuaudit.runs.kin import kinship
from fuaudit.runs.layout import (
    BODIES,
    CHECKPOINT,
    FILES,
    LEDGER,
    MANIFEST,
    MODEL,
    VIEW,
    Reader,
    file_of,
    is_withheld,
    names_in,
    of_round,
)
from fuaudit.runs.ledger import Ledger, read_ledger, suite_of
from fuaudit.runs.manifest import digest_of_files, entry_of, manifest_bytes
from fuaudit.runs.neighbours import neighbours
from fuaudit.runs.sums import buffers_of, sums_of
from fuaudit.runs.transcripts import chain_of
from fuaudit.secure import adder
from fuaudit.secure.adder import end_all
from fuaudit.secure.envelope import terms_of
from fuaudit.secure.messages import Message
from fuaudit.secure.receipts import Receipt
from fuaudit.secure.suites import Suite
from fuaudit.secure.terms import Lot, columns_bytes, columns_of
from fuaudit.secure.transcript import opened_in
from fuaudit.testing.tiny import tiny_config, tiny_dataset
from fuaudit.training.setup import device_of
from fuaudit.verification.case import Case
from fuaudit.verification.claims import CLAIMS
from fuaudit.verification.conclude import conclude
from fuaudit.verification.evidence import Evidence
from fuaudit.verification.spec import read_spec
from fuaudit.workflow.append import append
from fuaudit.workflow.prune import prune
from fuaudit.workflow.redact import redact
from fuaudit.workflow.seal import seal
from fuaudit.workflow.writer import begun_transcript

REMEMBERING = FEDREP | {"server": [{"use": "coordinate-median"}, {"use": "momentum", "beta": 0.5}]}
SUITES = "plain", "bfv+mask"
ABSENT = ("INCONCLUSIVE", "sealed view")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of each suite, which nobody may change."""
    return {suite: trained(tmp_path_factory.mktemp("whole") / "run", REMEMBERING, suite) for suite in SUITES}


@pytest.fixture(scope="module")
def views(whole, tmp_path_factory):
    """The sealed view of each, likewise."""
    return {suite: seal(run, tmp_path_factory.mktemp("views") / "view") for suite, run in whole.items()}


@pytest.fixture
def copied(views, tmp_path):
    """A copy of a sealed view, to be changed."""
    return lambda suite="plain": load_run(shutil.copytree(views[suite].path, tmp_path / f"view of {suite}"))


def without_attacks():
    """The spec of sums, without the attacks on openings of their own, which take seconds."""
    spec = read_spec("secure-aggregation")
    checks = tuple(one for one in spec.checks if one.audit["use"] != "aggregation-attacks")
    return replace(spec, id="view", checks=checks, origin="")


def looked_at(view, parent=None):
    return Transcript().examine(Case(Evidence(view, parent, None), Keyed(AUDIT_KEY)))


def sealed_again(path, course=lambda event: event):
    """A sealed view whose ledger and manifest were made anew around what is there, as its forger can."""
    files = json.loads((path / MANIFEST).read_text())["files"]
    files = {n: entry_of((path / n).read_bytes()) if (path / n).exists() else entry for n, entry in files.items()}
    events = [event for event in read_ledger(path).events if event["event"] != "sealed"]
    (path / LEDGER).unlink()
    ledger = Ledger()
    for event in map(course, events):
        facts = {name: value for name, value in event.items() if name not in ("event", "previous", "time")}
        ledger = append(path, ledger, event["event"], **facts)
    ledger = append(path, ledger, "sealed", digest=digest_of_files(files))
    (path / MANIFEST).write_bytes(manifest_bytes(digest_of_files(files), files, ledger.head))
    return load_run(path)


def holding(view, number, vector, state):
    """A view with another model after a round: manifest and ledger follow."""
    for name, content in files_of_round(number, vector, state, None).items():
        (view.path / name).write_bytes(content)
    if number == view.rounds_executed:
        (view.path / MODEL).write_bytes(exported(view, vector))

    def course(event):
        ours = event["event"] == "round" and event["round"] == number
        return event | ({"model": digest_of_vector(vector)} if ours else {})

    return sealed_again(view.path, course)


def exported(view, vector):
    """The named parameters of a model: weight and bias of a linear layer, in this order."""
    named, at = {}, 0
    for name, array in sorted(view.arrays(MODEL).items(), reverse=True):
        named[name] = vector.numpy()[at : at + array.size].reshape(array.shape)
        at += array.size
    return tensor_bytes(named)


def telling(view, changed):
    """A view with other messages: chain, ledger and manifest follow."""
    shutil.rmtree(view.path / "transcript")
    keeper = begun_transcript(view.path)
    for message in changed:
        keeper.record(message)
    chain = chain_of(view.path)

    def course(event):
        return event | ({"transcript": chain.head_after(event["round"])} if event["event"] == "round" else {})

    return sealed_again(view.path, course)


def columns(run):
    """Round -> the columns that the server told."""
    return {one.round: columns_of(one.body) for one in messages(run) if one.step == "columns"}


# what it is


@pytest.mark.parametrize("suite", SUITES)
def test_a_sealed_view_has_the_digest_of_its_run_and_what_the_server_may_be_given(whole, views, suite):
    run, view = whole[suite], views[suite]
    assert (view.digest, view.sealed, view.redacted) == (run.digest, True, True)
    assert (run.sealed, view.commitment) == (False, run.commitment)
    there = set(names_in(view.path))
    assert there == {name for name in names_in(run.path) if file_of(name).is_for(Reader.SERVER)} | {VIEW}
    assert all((view.path / name).read_bytes() == (run.path / name).read_bytes() for name in there - {VIEW})
    assert (view.members, view.contexts) == (run.members, run.contexts)
    assert view.signatories == run.signatories
    for name in sorted(set(run.files) - there):
        with pytest.raises(RedactedError, match=f"{name} is not in it, for the server may not be given that"):
            view.read(name)


def test_of_the_table_of_files_the_server_is_given_no_key_and_nothing_of_one_client():
    """What a sealed view lacks stands in one column: a new file that nobody thought of is withheld."""
    given = {file.name for file in FILES.values() if not file.is_withheld}
    assert given == {
        "manifest.json", "ledger.jsonl", "run.json", "config.toml", "plan.json", "edit.json",
        "checkpoints/NNNNNN.safetensors", "received/NNNNNN.safetensors", "transcript/chain.jsonl",
        "transcript/NNNNNN.bodies", "metrics.json", "model.safetensors", "former-manifest.json", "tombstone.json",
        VIEW,
    }  # fmt: skip
    assert is_withheld("another.json")


def named_data():
    """Rows of four clients with names, eight of one and four of another."""
    owners = torch.tensor([0] * 8 + [1] * 4 + [2] * 6 + [3] * 6)
    return replace(tiny_dataset(), owners=owners, owner_names=("Aurelia", "Bartholomew", "Cunegonde", "Demetrius"))


def test_no_key_secret_salt_name_or_row_is_in_any_file(tmp_path):
    """Nor who has how many rows: a view of other numbers has other states, and nothing else tells them apart."""
    data = named_data()
    run = train(REMEMBERING | {"partition": {"use": "by-owner"}}, tmp_path / "run", data, secret(1), secure="bfv+mask")
    view = seal(run, tmp_path / "view")
    own, keys = run.document("clients/secrets.json"), run.document("keys.json")
    hidden = [secret(1), *(bytes.fromhex(one) for table in own["generations"] for one in table.values())]
    hidden += [bytes.fromhex(one) for one in (*own["shared"], *own["parties"], keys["partition"])]
    hidden += [bytes.fromhex(row[3]) for row in (*own["salts"], *keys["seeds"]) if row[2] == "seed"]
    hidden += [parties(run).witness.private, parties(run).holder.private]
    hidden += [one.tobytes() for one in (data.inputs.numpy(), data.test_inputs.numpy()) for one in one]
    hidden += [leaf for client in run.contents.clients for leaf in run.contents.leaves_of(client)]
    names = [name.encode() for name in data.owner_names]
    assert set(own["names"].values()) == set(data.owner_names)
    assert len(hidden) > 70
    for name in names_in(view.path):
        content = (view.path / name).read_bytes()
        found = [one for one in hidden if one in content or one.hex().encode() in content]
        assert not found, name
        assert not [one for one in names if one in content], name
    table = json.loads((view.path / VIEW).read_text())
    assert [client for client, *_ in table["clients"]] == [0, 1, 2, 3]
    assert all(len(state) == 64 and len(rest) == 2 * (17 + 96) for _, state, rest in table["clients"])


@pytest.mark.parametrize("size", [64, 65, 81, 113, 118, 119, 120, 127, 128, 145, 177, 200])
def test_sha256_goes_on_from_a_state(size):
    text = np.random.default_rng(size).bytes(size)
    assert digest_from(state_after(text[:64]), 64, text[64:]).hex() == sha256(text)


def test_sealing_twice_gives_the_same_bytes_and_so_does_sealing_a_redacted_run(whole, views, tmp_path, bytes_of):
    run = whole["bfv+mask"]
    expected = bytes_of(views["bfv+mask"].path)
    assert bytes_of(seal(run.path, tmp_path / "again").path) == expected
    assert bytes_of(seal(redact(run, tmp_path / "redacted"), tmp_path / "of redacted").path) == expected


def test_what_cannot_be_sealed(whole, views, tmp_path):
    with pytest.raises(UsageError, match="is a sealed view already"):
        seal(views["plain"], tmp_path / "no")
    with pytest.raises(UsageError, match="lies inside the run"):
        seal(whole["plain"], whole["plain"].path / "no")
    with pytest.raises(UsageError, match="exists"):
        seal(whole["plain"], views["plain"].path)
    simulated = trained(tmp_path / "simulated", REMEMBERING, None)
    came = in_messages(simulated, tmp_path / "came", tiny_dataset(), secret(1))
    with pytest.raises(UsageError, match="came in messages, and who was drawn for them is not in a sealed view"):
        seal(came, tmp_path / "no")
    assert not (tmp_path / "no").exists()


# what decides


@pytest.fixture(scope="module")
def verified(views):
    """What the whole spec says of a view."""
    return verify(views["bfv+mask"].path, "secure-aggregation", key=AUDIT_KEY, save=False)


def test_what_decides_passes_and_the_rest_says_what_is_missing_and_who_has_it(verified):
    found = {finding.audit: finding for finding in verified.findings}
    assert {name: str(one.verdict) for name, one in found.items()} == {
        "integrity": "PASS",
        "replay": "INCONCLUSIVE",
        "provenance": "INCONCLUSIVE",
        "lineage": "INCONCLUSIVE",
        "transcript": "PASS",
        "aggregation-attacks": "PASS",
    }
    assert verified.verdict == "INCONCLUSIVE"
    for name in ("replay", "provenance", "lineage"):
        assert "sealed view" in found[name].shows
        assert "The operator has" in found[name].shows
    assert "holds what it committed to" in "".join(found["provenance"].details)
    assert "nobody looked at their contents" in found["integrity"].shows
    assert "contents.safetensors" in found["integrity"].details[-1]
    told = found["transcript"]
    assert "a sealed view does not tell" in told.shows
    assert (told.values["sums"], told.values["rounds"]) == (4, 2)
    assert any("holds no rows and no secrets of clients" in line for line in told.assumptions)
    assert any("holds no seeds" in line for line in told.assumptions)


def test_what_was_compared_with_nothing_is_no_pass(verified):
    """Commitment, list of parties and beacon were not given: in the details that is neither yes nor no."""
    (found,) = (finding for finding in verified.findings if finding.audit == "provenance")
    told = dict(line.split(": ", 1)[::-1] for line in found.details)
    missing = {text: verdict for text, verdict in told.items() if text.startswith("No ")}
    assert len(missing) == 3
    assert {*missing.values()} == {"NOT_APPLICABLE"}
    assert "PASS" in told.values()


def test_the_command_lists_what_passed_rests_on_where_a_view_is_inconclusive(copied, fuaudit):
    code, out, _ = fuaudit("verify", copied().path, "--spec", "secure-aggregation")
    assert code == 3
    _, rests = out.split("what passed rests on:")
    assert "transcript: The opened sums are taken as they are" in rests


def test_the_page_does_not_say_that_sums_were_made_of_rows_which_no_view_holds(verified, tmp_path):
    page = report(verified, out=tmp_path / "page.html").read_text()
    (worked_out,) = (line for line in page.splitlines() if "sum from the messages of its buffer" in line)
    assert "of a sealed view none" in worked_out


def concluded(views, verified, deciding, **changes):
    """What follows of some findings alone, and what they say."""
    pairs = zip(verified.spec.checks, verified.findings, strict=True)
    checks, findings = zip(*(pair for pair in pairs if pair[1].audit in deciding), strict=True)
    spec = replace(verified.spec, id="view", checks=checks, origin="", **changes)
    return conclude(spec, findings, Evidence(views["bfv+mask"], None, None), ())


def test_a_spec_of_what_decides_passes_and_names_what_it_rests_on(views, verified):
    found = concluded(views, verified, {"integrity", "transcript", "aggregation-attacks"})
    assert found.verdict == "PASS", found.reason
    assert any("opened sums are taken as they are" in line for line in found.rests_on)
    assert any("holds no seeds" in line for line in found.rests_on)
    assert any(line.startswith("Files that the server may not be given") for line in found.rests_on)


@pytest.mark.parametrize("asks", [claim for claim in CLAIMS if claim != "sums"])
def test_no_claim_about_a_request_passes(family, verified, asks):
    """Also of a child, by audits that pass: what it needs beside them does not bear on it."""
    found = concluded({"bfv+mask": family[1]}, verified, {"integrity", "transcript"}, asks=asks)
    assert found.verdict == "INCONCLUSIVE"
    assert "the run is a sealed view" in found.reason
    assert "it shows nothing about a request" in found.reason


def test_what_was_given_and_can_be_compared_is_compared(views, tmp_path):
    view, spec = views["plain"], without_attacks()
    lines = [f"{who} {key.hex()}" for who, key in view.signatories.identities.items()]
    lines += [
        f"{who} {key.hex()}" for who, key in zip(("witness", "key holder"), view.signatories.parties, strict=True)
    ]
    (tmp_path / "roster").write_text("\n".join(lines))
    given = {"commitment": view.commitment, "roster": tmp_path / "roster"}

    def provenance(**changes):
        result = verify(view, spec, key=AUDIT_KEY, save=False, **given | changes)
        return next(one for one in result.findings if one.audit == "provenance")

    assert provenance().verdict == "INCONCLUSIVE"
    assert provenance(commitment="0" * 64).verdict == "FAIL"
    (tmp_path / "other").write_text("\n".join([lines[1].replace("1 ", "0 ", 1), *lines[1:]]))
    assert provenance(roster=tmp_path / "other").verdict == "FAIL"
    for word, value in (("data", tiny_dataset()), ("data", tmp_path), ("receipts", [tmp_path / "receipt"])):
        with pytest.raises(UsageError, match="is a sealed view: nothing in it could be compared with --"):
            verify(view, spec, save=False, **{word: value})


# what is wrong


def test_a_model_that_was_not_made_of_the_sums_is_found(copied):
    view = copied()
    vector, state = view.checkpoint(2)
    forged = vector.clone()
    forged[3] += 0.25
    found = looked_at(holding(view, 2, forged, state))
    assert (found.verdict, found.shows) == (
        "FAIL", "Stored models are not those that the sums make which the messages opened.",
    )  # fmt: skip
    assert [line[:14] for line in found.details] == ["round 2, model"]


def test_another_model_under_the_names_of_parameters_is_found(copied):
    view = copied()
    (view.path / MODEL).write_bytes(exported(view, view.model * 2))
    found = looked_at(sealed_again(view.path))
    assert (found.verdict, found.shows) == ("FAIL", "What lies in model.safetensors is not the last stored model.")


def test_a_stage_of_the_server_that_was_skipped_is_found(copied):
    """Momentum is left out of the model, and its memory is that of an honest server."""
    view = copied()
    (before, _), (_, state) = view.checkpoint(1), view.checkpoint(2)
    velocities = [view.checkpoint(number)[1]["server.1.velocity"][0] for number in (1, 2)]
    found = looked_at(holding(view, 2, before - (velocities[1] - 0.5 * velocities[0]), state))
    assert (found.verdict, [line[:14] for line in found.details]) == ("FAIL", ["round 2, model"])


def test_a_memory_of_the_server_that_sums_do_not_make_is_found(copied):
    view = copied()
    vector, state = view.checkpoint(2)
    found = looked_at(holding(view, 2, vector, state | {"server.1.velocity": 2 * state["server.1.velocity"]}))
    assert (found.verdict, [line[:14] for line in found.details]) == ("FAIL", ["round 2, model"])


def test_a_model_of_other_coordinates_is_found(copied):
    """The update lies on the neighbours of the columns that clients agreed on."""
    view = copied()
    (before, _), (_, state), agreed = view.checkpoint(0), view.checkpoint(1), columns(view)[1]
    assert 0 < len(agreed) < len(before)
    moved = state["server.1.velocity"].roll(1, dims=-1)
    found = looked_at(holding(view, 1, before - moved[0], state | {"server.1.velocity": moved}))
    assert (found.verdict, found.details[0][:14]) == ("FAIL", "round 1, model")


def test_other_columns_than_all_signed_are_found(copied):
    view = copied()

    def altered(one):
        if (one.step, one.round) != ("columns", 1):
            return one
        told = columns_of(one.body)
        others = sorted({*range(max(told) + 2)} - {*told.tolist()})[:1] + told.tolist()[1:]
        return replace(one, body=columns_bytes(np.array(sorted(others))))

    found = looked_at(telling(view, map(altered, messages(view))))
    assert found.verdict == "FAIL"
    assert found.details[0].endswith("the terms have another set of columns than the server told")


def test_columns_have_to_be_told(copied):
    view = copied()
    found = looked_at(telling(view, [one for one in messages(view) if one.step != "columns"]))
    assert found.verdict == "FAIL"
    assert found.details[0] == "round 1, order: the server did not tell the columns that clients agreed on"


@pytest.mark.parametrize("suite", SUITES)
def test_a_sum_that_was_changed_is_found(whole, copied, suite):
    """In the open it is not that of the messages; behind ciphertexts the model was not made of it."""
    view = copied(suite)
    found = looked_at(telling(view, [*with_another_sum(messages(view), parties(whole[suite]))]))
    assert found.verdict == "FAIL"
    reason = "is not the sum of the rows that came" if suite == "plain" else "is not what the opened sums make"
    assert reason in found.details[0]


def test_a_key_holder_who_lies_and_a_server_who_believes_it_pass_and_the_finding_says_so(whole, copied):
    """The limit of a sealed view: numbers behind ciphertexts are the key holder's word. With the rows it is a FAIL."""
    view = copied("bfv+mask")
    view = telling(view, [*with_another_sum(messages(view), parties(whole["bfv+mask"]))])
    for number in (1, 2):
        vector, state = made_of_sums(view, number)
        view = holding(view, number, vector, state)
    found = looked_at(view)
    assert found.verdict == "PASS", found.details
    assert "The opened numbers are the key holder's word" in found.shows_not
    assert any("taken as they are" in line for line in found.assumptions)


def made_of_sums(view, number):
    """The model and the memory that the sums of a round make, computed here by hand: medians, then momentum."""
    vector, state = view.checkpoint(number - 1)
    unit, opened, of = view.exchange.client_stages.stages[-1].step, {}, None
    for one in messages(view):
        if one.round == number and one.step == "terms":
            of = terms_of(one)
        if one.round == number and one.step in ("receipt", "opened"):
            opened[one.buffer] = Receipt.of(one, of)
    means = [torch.tensor(one.sums * unit / len(one.members), dtype=torch.float64) for _, one in sorted(opened.items())]
    row = torch.zeros(len(vector))
    row[columns(view)[number]] = torch.stack(means).to(torch.float32).quantile(0.5, dim=0)
    velocity = state["server.1.velocity"] * 0.5 + row
    return vector - velocity[0], {"server.1.velocity": velocity}


def test_the_models_are_those_that_are_computed_by_hand(views):
    for number in (1, 2):
        vector, state = made_of_sums(views["plain"], number)
        stored, kept = views["plain"].checkpoint(number)
        assert torch.equal(vector, stored)
        assert torch.equal(state["server.1.velocity"], kept["server.1.velocity"])


def test_a_round_that_is_left_out_must_leave_the_model_as_it_was(copied):
    """Its messages are gone, and the ledger tells of no sums; the model moved all the same."""
    view = copied()
    kept = [one for one in messages(view) if one.round != 2]

    def silent(event):
        return {k: v for k, v in event.items() if k != "told"} if event.get("round") == 2 else event

    telling(view, kept)
    view = sealed_again(view.path, silent)
    found = looked_at(view)
    assert (found.verdict, [line[:12] for line in found.details]) == ("FAIL", ["round 2, lot"])
    assert served(view, _checked(view, known_of(view))).others == (2,)  # as of a law whose rounds may have no clients


@pytest.mark.parametrize("suite", SUITES)
def test_buffers_that_the_lot_does_not_give_are_found(whole, copied, suite):
    view, signers, again = copied(suite), parties(whole[suite]), InMemory()
    told = messages(view)
    (a, b), (c, d) = (terms_of(one).members for one in told if one.step == "terms" and one.round == 1)
    of = next(terms_of(one) for one in told if one.step == "terms")
    for number, members in enumerate(((a, c), (b, d))):
        Suite(suite, of.most).opened(
            np.zeros((2, of.columns), dtype=np.int64), of.bits, sorted(members), at=(1, number),
            signers=signers, record=again.transcript.record, coordinates=of.coordinates, context=of.context,
        )  # fmt: skip
    lots = [one for one in told if one.step in ("lot", "columns") and one.round == 1]
    found = looked_at(telling(view, [*lots, *again.messages(), *(one for one in told if one.round == 2)]))
    assert found.verdict == "FAIL"
    assert sum(line.endswith("were not drawn together") for line in found.details) == 2


def test_messages_of_the_parent_in_its_child_are_found(family, tmp_path):
    """Its buffers byte for byte, behind the child's own contributions: they were signed for another generation."""
    parent, child, _ = family
    copy = load_run(shutil.copytree(child.path, tmp_path / "child"))
    lots = [one for one in messages(child) if one.step == "lot"]
    theirs = [one for one in messages(parent) if one.step != "lot"]
    found = looked_at(telling(copy, sorted(lots + theirs, key=lambda one: one.round)), parent)
    assert found.verdict == "FAIL"
    assert any(line.endswith("the terms have another context than this training") for line in found.details)


def told_as_discarded(view, number, buffer):
    """A view whose server saw the last sum of a round, says that it discarded it, and makes the model of the others."""
    told = messages(view)
    terms = next(terms_of(one) for one in told if (one.step, one.round, one.buffer) == ("terms", number, buffer))
    ends = [(one.round, one.buffer) == (number, buffer) and one.step in ("opened", "receipt") for one in told]
    said = Message.unsigned("discard", b"silent", terms)
    return modelled(telling(view, [said if is_end else one for is_end, one in zip(ends, told, strict=True)]), number)


def modelled(view, number):
    """A view whose model after a round is that of the sums which its messages open, and whose ledger counts these."""
    behind = [one for one in messages(view) if one.round == number and one.step not in ("lot", "columns")]
    sums = [one for _, one in sorted(opened_in(behind).items())]
    asked, before = view.exchange.summation(suite_of(view.ledger)), view.checkpoint(number - 1)
    after = _half(view, asked, number, before, sums, columns(view).get(number), device_of("cpu"))
    vector, state = _stored(before[0], after)
    view = holding(view, number, vector, state)

    def course(event):
        if event["event"] != "round" or event["round"] != number or "told" not in event:
            return event
        told = [
            one | ({"discarded": len(one["rows"]) - len(sums)} if one["kind"] == "summed" else {})
            for one in event["told"]
        ]
        return event | {"told": told}

    return sealed_again(view.path, course)


@pytest.mark.parametrize("suite", SUITES)
def test_a_sum_that_was_seen_and_told_as_discarded(copied, suite):
    """Behind ciphertexts it may not have been opened. But a training ends where a buffer is not."""
    found = looked_at(told_as_discarded(copied(suite), 2, 1))
    assert found.verdict == "FAIL"
    assert any("all came that the server needs to open" in line for line in found.details) == (suite == "plain")
    assert found.details[-1].startswith("round 2, buffer 1, sum: a buffer was tried and not opened")
    assert (found.values["discarded"], found.values["unplayed"]) == (1, 1)


def left_out(view, number, buffer, *events):
    """A view of which a buffer is gone with all its messages; its server tells of it what it likes."""
    view = telling(view, [one for one in messages(view) if (one.round, one.buffer) != (number, buffer)])

    def course(event):
        ours = event["event"] == "round" and event["round"] == number
        return event | ({"told": [*events, *event["told"]]} if ours else {})

    return sealed_again(modelled(view, number).path, course)


def suspected(*clients):
    return {"kind": "suspected", "part": "transport", "clients": [*clients], "why": "not finite"}


@pytest.mark.parametrize("suite", SUITES)
def test_a_buffer_that_is_left_out_for_no_reason_is_found(copied, suite):
    """Everybody has samples and nobody is Byzantine, so an honest server asks for all sums."""
    view = copied(suite)
    members = next(
        terms_of(one).members for one in messages(view) if (one.step, one.round, one.buffer) == ("terms", 2, 1)
    )
    view = left_out(view, 2, 1)
    found = looked_at(view)
    assert (found.verdict, found.details[0]) == (
        "FAIL",
        f"round 2, buffer: nothing of clients {members} was opened, and the ledger suspects none of them: an honest "
        "server asks",
    )
    assert (found.values["discarded"], found.values["unplayed"]) == (0, 1)
    found = looked_at(left_out(view, 2, 1, suspected(*members)))
    assert (found.verdict, "by the config each of them is honest" in found.details[0]) == ("FAIL", True)


def test_a_sum_that_a_byzantine_client_is_said_to_have_spoilt_is_what_a_pass_rests_on(tmp_path):
    """The limit: she may have, and who records nothing of a sum can have seen it. Members are named, and so is that."""
    tables = FEDREP | {"client": [*FEDREP["client"][:2], {"use": "alie", "clients": [3]}, FEDREP["client"][2]]}
    view = seal(trained(tmp_path / "run", tables, "plain"), tmp_path / "view")
    assert looked_at(view).verdict == "PASS"
    assert (view.exchange.transport.byzantine, sums_of(view).feared) == (0, 1)  # the config has one, whoever is feared
    buffers = {one.buffer: terms_of(one).members for one in messages(view) if (one.step, one.round) == ("terms", 2)}
    bad = next(number for number, members in buffers.items() if 3 in members)
    path = shutil.copytree(view.path, tmp_path / "another")
    found = looked_at(left_out(view, 2, bad, suspected(*buffers[bad])))
    assert found.verdict == "PASS", found.details
    assert any(line.startswith("Of 1 buffer that a lot gives no message is there") for line in found.assumptions)
    assert (found.values["discarded"], found.values["unplayed"], len(found.details)) == (0, 1, 1)
    late = shutil.copytree(path, tmp_path / "of another reason")
    found = looked_at(left_out(load_run(late), 2, bad, suspected(*buffers[bad]) | {"why": "late"}))
    assert (found.verdict, "no buffer that was discarded as not finite" in found.details[0]) == ("FAIL", True)
    twice = shutil.copytree(path, tmp_path / "told twice")
    found = looked_at(left_out(load_run(twice), 2, bad, *[suspected(*buffers[bad])] * 2))
    assert (found.verdict, "suspected something, twice" in found.details[0]) == ("FAIL", True), found.details
    other = buffers[1 - bad]
    found = looked_at(left_out(load_run(path), 2, 1 - bad, suspected(*buffers[bad])))
    assert (found.verdict, f"clients {buffers[bad]}, who are no buffer" in found.details[0]) == ("FAIL", True), other


def test_rounds_that_are_said_to_have_failed_over_a_model_that_stays_are_found(tmp_path):
    """Sums of other buffers in each round over one model are equations for the same rows."""
    tables = FEDAVG | {"transport": {"use": "secure-sum", "size": 2}}
    view = seal(trained(tmp_path / "run", tables, "plain"), tmp_path / "view")
    view = telling(view, [one for one in messages(view) if one.step == "lot" or one.round == 2])
    view = modelled(holding(view, 1, *view.checkpoint(0)), 2)

    def course(event):
        if event["event"] != "round" or event["round"] != 1:
            return event
        return event | {
            "told": [
                one | ({"discarded": 2, "failed": True} if one["kind"] == "summed" else {}) for one in event["told"]
            ]
        }

    found = looked_at(sealed_again(view.path, course))
    assert (found.verdict, found.details) == (
        "FAIL", ("round 1, buffer: the ledger tells that the round fails, and with 2 sums left it goes on",),
    )  # fmt: skip


def test_sums_of_a_round_that_fails_are_found(tmp_path):
    """The rule has too few, so the model stays: the next round's sums are of the same clients over it."""
    tables = published(FEDREP, {"use": "multi-krum", "byzantine": 0, "keep": 2}, clients=6)
    view = seal(trained(tmp_path / "run", tables, "bfv+mask"), tmp_path / "view")
    view = modelled(telling(view, [one for one in messages(view) if (one.round, one.buffer) != (2, 2)]), 2)
    assert torch.equal(view.checkpoint(2)[0], view.checkpoint(1)[0])
    found = looked_at(view)
    assert (found.verdict, found.details) == (
        "FAIL", ("round 2, sum: sums were opened, and the round fails with so few: an honest server opens none then",),
    )  # fmt: skip


def test_what_the_server_remembers_before_the_first_round_follows_from_no_seed(copied):
    """It begins with zeros; with another memory all models would be made of the sums, and be others."""
    view = copied()
    vector, memory = view.checkpoint(0)
    assert not any(tensor.any() for tensor in memory.values())
    view = holding(view, 0, vector, {name: torch.full_like(tensor, 7) for name, tensor in memory.items()})
    for number in (1, 2):
        view = modelled(view, number)
    found = looked_at(view)
    assert found.verdict == "FAIL"
    assert any("server.1.velocity', which is remembered before round 1, is not" in line for line in found.details)


ROUND_ROBIN = {"use": "dropouts", "rounds": 5, "steps": 1, "batch": 2, "step_size": 0.2, "scenario": "round-robin"}


@pytest.mark.parametrize(
    ("left", "number"), [((0, 3), None), ((0, 1, 2, 3, 4, 5), 3)], ids=["two clients", "a whole round"]
)
def test_clients_of_a_round_robin_are_there_as_some_period_has_it(tmp_path, monkeypatch, left, number):
    """Their period is one draw. Who was there in two rounds running is always there; in odd ones of two all are."""
    tables = FEDAVG | {
        "partition": {"use": "iid", "clients": 6},
        "learner": ROUND_ROBIN | {"tau_max": 2},
        "solver": {"use": "sgd"},
        "transport": {"use": "secure-sum", "size": 2},
    }
    assert looked_at(seal(trained(tmp_path / "run", tables, "plain"), tmp_path / "view")).verdict == "PASS"
    honest = BoundedRoundRobin.cohort

    def without(law, draws, at, clients):
        gone = left if (at >= 3 if number is None else at == number) else ()
        return tuple(client for client in honest(law, draws, at, clients) if client not in gone)

    with monkeypatch.context() as forging:
        forging.setattr(BoundedRoundRobin, "cohort", without)
        view = seal(trained(tmp_path / "forged", tables, "plain"), tmp_path / "forged view")
    found = looked_at(load_run(view.path))
    assert found.verdict == "FAIL"
    assert {line.partition(" was there in ")[0] for line in found.details if "no period of the config" in line} >= {
        f"lot: client {client}" for client in left
    }


@pytest.mark.parametrize(("part", "method"), [(WholeSums, "mean_of"), (SecureSum, "members")])
@pytest.mark.parametrize("broken", [lambda *_: 1 // 0, lambda *_: None], ids=["raises", "gives nothing"])
def test_a_transport_that_breaks_in_an_audit_is_blamed_by_name(views, monkeypatch, part, method, broken):
    monkeypatch.setattr(part, method, broken)
    who = f"{part.__name__}|transport 'secure-sum'"
    with pytest.raises(PluginError, match=f"({who}), {method}, (raised ZeroDivisionError|returned NoneType)"):
        looked_at(load_run(views["plain"].path))


@pytest.fixture(scope="module")
def of_all(tmp_path_factory):
    """A run whose config draws all four clients in every round, and its view."""
    run = trained(tmp_path_factory.mktemp("all") / "run", FEDAVG, "plain")
    return run, seal(run, tmp_path_factory.mktemp("view of all") / "view")


def test_a_round_of_a_config_that_draws_clients_is_not_left_out(of_all, tmp_path):
    _, view = of_all
    assert looked_at(view).verdict == "PASS"
    view = load_run(shutil.copytree(view.path, tmp_path / "view"))
    view = telling(view, [one for one in messages(view) if one.round != 1])
    view = sealed_again(
        view.path, lambda one: {k: v for k, v in one.items() if k != "told"} if one.get("round") == 1 else one
    )
    found = looked_at(modelled(holding(view, 1, *view.checkpoint(0)), 2))
    assert found.verdict == "FAIL"
    assert found.details == ("round 1, lot: 0 clients contributed to the lot, and the config draws 4 in this round",)


def test_clients_of_a_config_that_draws_all_are_not_left_out(of_all, tmp_path):
    run, view = of_all
    view, signers, out = load_run(shutil.copytree(view.path, tmp_path / "view")), parties(run), []
    known = known_of(run)
    for number in (1, 2):
        told = [one for one in messages(run) if one.round == number]
        lot = Lot(known.context, number, (0, 1), (known.clients[0], known.clients[1]))
        out += [
            Message.signed("lot", one.sender, one.body, lot, signers.clients[one.sender])
            for one in told if one.step == "lot" and one.sender in (0, 1)
        ]  # fmt: skip
        rows = [np.frombuffer(one.body, "<i4").astype(np.int64) for one in told if one.step == "send"][:2]
        of, again = next(terms_of(one) for one in told if one.step == "terms"), InMemory()
        Suite("plain", of.most).opened(
            np.stack(rows), of.bits, [0, 1], at=(number, 0), signers=signers, record=again.transcript.record,
            coordinates=of.coordinates, context=of.context,
        )  # fmt: skip
        out += again.messages()
    view = telling(view, out)
    found = looked_at(modelled(modelled(view, 1), 2))
    assert found.verdict == "FAIL"
    told = [line.partition(": ")[2] for line in found.details]
    assert told.count("2 clients contributed to the lot, and the config draws 4 in this round") == 2


def test_a_rule_that_publishes_a_sum_of_two_is_found_where_a_training_did_not_refuse_it(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:  # the training of an operator refuses nothing
        patched.setattr("fuaudit.workflow.secured.require_unpublished", lambda *_: None)
        tables = published(FEDREP, {"use": "krum", "byzantine": 0}, clients=6)
        run = trained(tmp_path / "run", tables, "plain")
    for found in (examined(run), looked_at(seal(run, tmp_path / "view"))):
        assert found.verdict == "FAIL"
        assert found.details[0].startswith("rule: the aggregator 'krum' may publish a sum as it is")


def test_another_platform_leaves_it_open_and_so_does_rounding(copied):
    view = copied()
    vector, state = view.checkpoint(2)
    near = vector.clone()
    near[3] = torch.nextafter(near[3], torch.tensor(9.0))
    found = looked_at(holding(view, 2, near, state))
    assert found.verdict == "INCONCLUSIVE"
    assert "as small as rounding" in found.details[0]
    far = holding(load_run(view.path), 2, vector + 1, state)
    assert looked_at(far).verdict == "FAIL"
    versions = far.info["versions"] | {"processor": "another"}
    (far.path / "run.json").write_bytes(pretty_json(far.info | {"versions": versions}))

    def course(event):
        return event | ({"versions": versions} if event["event"] == "platform" else {})

    found = looked_at(sealed_again(far.path, course))
    assert found.verdict == "INCONCLUSIVE"
    assert "another platform: other processor" in found.details[0]


def test_rounding_is_that_of_each_number(copied):
    """One large weight that no round touches is no room for the others."""
    view = copied()
    never = next(at for at in range(len(view.model)) if not any(at in told for told in columns(view).values()))
    for number in (0, 1, 2):
        vector, state = view.checkpoint(number)
        vector[never] = 1e6
        vector[columns(view)[1][0]] += 5.0 * (number == 2)
        view = holding(load_run(view.path), number, vector, state)
    found = looked_at(view)
    assert (found.verdict, [line[:14] for line in found.details]) == ("FAIL", ["round 2, model"])


def test_a_head_that_no_line_has_is_a_fail_of_provenance_too(views):
    def verified(head):
        found = verify(views["plain"].path, without_attacks(), key=AUDIT_KEY, save=False, ledger_head=head)
        return {one.audit: one for one in found.findings}

    told = verified("0" * 64)
    assert (told["provenance"].verdict, told["transcript"].verdict) == ("FAIL", "FAIL")
    assert "has the head given by --ledger-head" in told["provenance"].shows
    right = verify(
        views["plain"].path, without_attacks(), key=AUDIT_KEY, save=False, ledger_head=views["plain"].ledger.head
    )
    assert {one.audit: str(one.verdict) for one in right.findings}["provenance"] == "INCONCLUSIVE"


# other rounds


DROPOUTS = {"use": "dropouts", "rounds": 4, "batch": 2, "step_size": 0.2, "first_all": False, "steps": 1}
OTHERS = {
    "one buffer of everybody": (FEDAVG, "mask"),
    "some clients a round": (
        FEDAVG | {"learner": FEDAVG["learner"] | {"cohort": 3}, "transport": {"use": "secure-sum", "size": 3}},
        "plain",
    ),
    "shares of noise": (SHARES, "plain"),
    "a buffer that is discarded": (INFINITE, "plain"),
    "rounds without clients": (
        FEDAVG
        | {
            "learner": DROPOUTS | {"scenario": "static", "probability": 0.5},
            "solver": {"use": "sgd"},
            "transport": {"use": "secure-sum", "size": 2},
        },
        "plain",
    ),
    "buffers that are too small to count": (
        FEDAVG
        | {
            "partition": {"use": "iid", "clients": 7},
            "learner": FEDAVG["learner"] | {"cohort": 7},
            "transport": {"use": "secure-sum", "size": 2, "smallest": 3},
        },
        "plain",
    ),
    "several buffers that are discarded": (
        published(INFINITE, {"use": "mean"}, clients=8)
        | {
            "client": [{"use": "test-infinite", "clients": [1, 3, 5]}, *FEDREP["client"]],
            "transport": {"use": "secure-sum", "size": 2, "byzantine": 1},
        },
        "plain",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_trainings_pass(tmp_path, monkeypatch, name):
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "stages"))
    run = trained(tmp_path / "run", *OTHERS[name])
    view = seal(run, tmp_path / "view")
    found = looked_at(view)
    assert found.verdict == "PASS", (found.shows, found.details)
    assert examined(run).verdict == "PASS"
    if name == "rounds without clients":
        sizes = [len(cohort) for cohort in run.participation["cohorts"]]
        assert min(sizes) < 2 <= max(sizes)
        assert {1} < {*sizes}
        assert sums_of(run).places == max(sizes)  # one alone in a round is no reason to tell of no sums
    if name == "several buffers that are discarded":  # half of those that are left may be bad, but for who is found
        assert all(
            2 <= [one["kind"] for one in line["told"]].count("suspected") <= 3 for line in run.ledger.of_kind("round")
        )
    if name == "a buffer that is discarded":
        assert found.values["sums"] == 2
        assert all("nothing of them was opened" in line for line in found.details)


def test_a_round_that_fails_after_its_clients_agreed_on_columns_is_no_fault(tmp_path, monkeypatch):
    """The rule has too few sums, so none is asked for, and no columns are told: how many, the ledger alone tells."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "stages"))
    tables = published(INFINITE, {"use": "multi-krum", "byzantine": 0, "keep": 2}, clients=6)
    found = looked_at(seal(trained(tmp_path / "run", tables, "plain"), tmp_path / "view"))
    assert (found.verdict, "No sum was opened in any round" in found.shows) == ("INCONCLUSIVE", True), found.details


def test_a_round_of_which_nothing_was_opened_leaves_the_model_as_it_was(tmp_path):
    """One client came, or nobody: no sum is opened, and a model that moved all the same was not made of any."""
    run = trained(tmp_path / "run", *OTHERS["rounds without clients"])
    view = seal(run, tmp_path / "view")
    number = next(n for n, cohort in enumerate(run.participation["cohorts"], 1) if len(cohort) < 2)
    assert torch.equal(view.checkpoint(number)[0], view.checkpoint(number - 1)[0])
    found = looked_at(holding(view, number, view.checkpoint(number)[0] + 1, {}))
    assert (found.verdict, found.details[0][:14]) == ("FAIL", f"round {number}, model")


def test_a_stage_of_the_server_that_draws_is_executed_where_what_clients_share_is_there(tmp_path):
    tables = FEDREP | {"server": [{"use": "bucketing", "size": 2}, {"use": "mean"}]}
    run = trained(tmp_path / "run", tables, "plain")
    whole = [examined(run), examined(run, data=False)]
    assert [str(one.verdict) for one in whole] == ["PASS", "INCONCLUSIVE"]
    assert "the models were made of the sums" in whole[1].shows
    found = looked_at(seal(run, tmp_path / "view"))
    assert found.verdict == "INCONCLUSIVE"
    assert "draws with what all clients share" in found.details[0]


def test_an_order_that_only_seeds_tell_leaves_it_open():
    assert draws_in_order(UniformLaw(1, 2, 1, 1, replacement=False))
    assert not draws_in_order(UniformLaw(1, 2, 1, 1))
    assert not draws_in_order(WeightedLaw(1, 2, 1, 1, weights=((0, 1), (1, 1))))


# what is smuggled in


def test_what_the_server_may_not_be_given_is_refused(whole, views, tmp_path):
    run = whole["plain"]
    lacking = sorted(set(run.files) - set(names_in(views["plain"].path)))
    assert {"keys.json", "clients/secrets.json", "clients/000001.safetensors", "partition.safetensors"} < {*lacking}
    for number, name in enumerate(lacking):
        path = shutil.copytree(views["plain"].path, tmp_path / str(number))
        (path / name).parent.mkdir(exist_ok=True)
        shutil.copy(run.path / name, path / name)
        with pytest.raises(EvidenceError, match=f"is a sealed view and holds {name}, which the server may not"):
            load_run(path)
    path = shutil.copytree(views["plain"].path, tmp_path / "strange")
    (path / "rows.safetensors").write_bytes(b"")
    with pytest.raises(EvidenceError, match=r"not listed: rows.safetensors"):
        load_run(path)


def test_a_row_beside_a_model_is_refused(views, tmp_path):
    """Whoever makes manifest and ledger anew hides it in no tensor, and in no field."""
    path = shutil.copytree(views["plain"].path, tmp_path / "tensor")
    name, view = of_round(CHECKPOINT, 2), views["plain"]
    arrays = view.arrays(name) | {"state.server.0.row": np.ones((4, 3), dtype=np.float32)}
    (path / name).write_bytes(tensor_bytes(arrays))
    with pytest.raises(EvidenceError, match=r"has memories in checkpoints/000002\.safetensors that nothing"):
        sealed_again(path)
    table = json.loads((view.path / VIEW).read_text())
    path = shutil.copytree(views["plain"].path, tmp_path / "field")
    (path / VIEW).write_bytes(pretty_json(table | {"name": "Aurelia"}))
    with pytest.raises(EvidenceError, match="'name'"):
        load_run(path)
    (path / VIEW).unlink()
    with pytest.raises(EvidenceError, match="missing"):
        load_run(path)


def spoiled(table):
    """Every field of a view with another value."""
    client, state, rest = table["clients"][1]
    for place in range(0, len(rest), 2):
        other = rest[:place] + f"{int(rest[place : place + 2], 16) ^ 1:02x}" + rest[place + 2 :]
        yield table | {"clients": [table["clients"][0], [client, state, other], *table["clients"][2:]]}
    yield table | {"clients": [table["clients"][0], [client, state[::-1], rest], *table["clients"][2:]]}
    yield table | {"clients": table["clients"][:-1]}
    yield table | {"clients": table["clients"][::-1]}
    yield table | {"clients": [[client, state, rest[:-64]] for client, state, rest in table["clients"]]}
    yield table | {"tests": table["tests"] + 1}
    yield table | {"parties": table["parties"][::-1]}
    yield table | {"parties": table["parties"][:1]}
    yield table | {"contexts": ["0" * 64]}
    for name in ("partition_digest", "seeds_digest", "tests_digest"):
        yield table | {name: table[name][::-1]}


def test_no_field_of_what_opens_the_commitment_can_be_another(copied):
    view = copied()
    table = json.loads((view.path / VIEW).read_text())
    count = 0
    for other in spoiled(table):
        (view.path / VIEW).write_bytes(pretty_json(other))
        with pytest.raises(EvidenceError):
            load_run(view.path)
        count += 1
    assert count > 120
    (view.path / VIEW).write_bytes(pretty_json(table))
    assert load_run(view.path).sealed


def test_a_whole_run_has_no_such_file(whole, views, tmp_path):
    path = shutil.copytree(whole["plain"].path, tmp_path / "run")
    shutil.copy(views["plain"].path / VIEW, path / VIEW)
    with pytest.raises(EvidenceError, match="is a sealed view and holds"):
        load_run(path)


# children, prunes, other runs


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    """A run and its child, each whole and as a sealed view, and the child pruned."""
    folder = tmp_path_factory.mktemp("family")
    _, _, *made = sealed_with_child(folder, NOISY, "bfv+mask")
    pruned, _ = prune(shutil_copy(folder, "child", "parent"))
    return [*made, pruned]


def shutil_copy(folder, *names):
    """Copies of runs beside each other, of which the first is opened."""
    for name in names:
        shutil.copytree(folder / name, folder / "pruned" / name)
    return load_run(folder / "pruned" / names[0])


def test_a_child_is_verified_beside_the_view_of_its_parent(family, tmp_path):
    parent, child, _ = family
    assert child.members == (1, 2, 3)
    found = looked_at(child, parent)
    assert found.verdict == "PASS", found.details
    result = verify(child, without_attacks(), key=AUDIT_KEY, save=False)
    told = {one.audit: one for one in result.findings}
    assert (told["integrity"].verdict, told["transcript"].verdict) == ("PASS", "PASS")
    assert any("keeps its parent's segments" in line for line in told["provenance"].details)
    about = verify(child, "client-erasure", key=AUDIT_KEY, save=False, budget=0)
    assert about.verdict == "INCONCLUSIVE"
    assert {str(one.verdict) for one in about.findings} <= {"PASS", "INCONCLUSIVE", "NOT_APPLICABLE"}
    alone = shutil.copytree(child.path, tmp_path / "alone" / "child")
    told = {one.audit: one for one in verify(alone, without_attacks(), key=AUDIT_KEY, save=False).findings}
    assert told["integrity"].verdict == "INCONCLUSIVE"


def test_a_request_that_names_somebody_else_is_refused(family, tmp_path):
    _, child, _ = family
    path = shutil.copytree(child.path, tmp_path / "views" / "child")
    plan = json.loads((path / "plan.json").read_text())
    plan["requests"][0]["clients"] = [7]
    (path / "plan.json").write_bytes(pretty_json(plan))

    def course(event):
        return event | ({"clients": [7]} if event["event"] == "request" else {})

    with pytest.raises(EvidenceError, match=r"forgets clients in plan\.json whom view\.json does not have"):
        sealed_again(path, course)


def test_another_context_of_a_request_is_refused(family, tmp_path):
    _, child, _ = family
    path = shutil.copytree(child.path, tmp_path / "child")
    table = json.loads((path / VIEW).read_text())
    (path / VIEW).write_bytes(pretty_json(table | {"contexts": ["0" * 64]}))
    with pytest.raises(EvidenceError, match=r"has another context in view\.json than its request in plan\.json makes"):
        load_run(path)


def test_a_view_is_listed_without_names(family, fuaudit):
    code, out, _ = fuaudit("runs", family[1].path.parent)
    assert (code, "of parent by retrain: client 0" in out) == (0, True)


def test_a_pruned_run_is_sealed_as_it_is(family, tmp_path):
    view = seal(family[2], tmp_path / "view")
    assert (view.pruned, view.sealed, view.digest) == (True, True, family[2].digest)
    assert not list((view.path / "transcript").glob("*.bodies"))
    found = looked_at(view)
    assert (found.verdict, "no sum can be made again" in found.shows) == ("NOT_APPLICABLE", True)
    assert "former-manifest.json" in names_in(view.path)


def test_a_run_whose_sums_no_suite_made_is_sealed_too(tmp_path):
    clear = seal(trained(tmp_path / "run", FEDREP, None), tmp_path / "view")
    assert not {"keys.json", "clients.json", "contents.safetensors"} & set(names_in(clear.path))
    result = verify(clear, "secure-aggregation", key=AUDIT_KEY, save=False)
    assert {one.audit: str(one.verdict) for one in result.findings} == {
        "integrity": "PASS", "replay": "INCONCLUSIVE", "provenance": "INCONCLUSIVE", "lineage": "INCONCLUSIVE",
        "transcript": "NOT_APPLICABLE", "aggregation-attacks": "NOT_APPLICABLE",
    }  # fmt: skip


def test_a_run_whose_partition_has_no_salt_has_no_view(tmp_path, tiny):
    """Its manifest has the digest of the partition, which tells who has which rows to whoever tries all of them."""
    run, path = tiny(tmp_path / "run"), tmp_path / "forged"
    assert "salt" not in run.arrays("partition.safetensors")
    with pytest.raises(UsageError, match="has no salt"):
        seal(run, tmp_path / "no")
    shutil.copytree(run.path, path)
    for name in filter(is_withheld, names_in(path)):
        (path / name).unlink()
    (path / VIEW).write_bytes(pretty_json(View.of(run.contents, run.keys, run.contexts[1:]).table()))
    with pytest.raises(EvidenceError, match="is a sealed view of a run without secrets of clients"):
        load_run(path)


def test_what_lies_beside_a_run_is_known_for_what_it_is(family, tmp_path, fuaudit):
    """A view is no second run of a family; alone it does not tell how its rounds were drawn. It holds models."""
    for run in ("parent", "child"):
        shutil.copytree(family[0].path.parents[1] / run, tmp_path / run)
    before = spent(load_run(tmp_path / "parent"))
    shutil.copytree(family[0].path, tmp_path / "a view of the parent")
    shutil.copytree(family[1].path, tmp_path / "a view of the child")
    assert spent(load_run(tmp_path / "parent")) == before
    shutil.rmtree(tmp_path / "child")
    kin = kinship(load_run(tmp_path / "parent"))
    assert {name: why[:19] for name, why in kin.gaps.items()} == {"a view of the child": "it is a sealed view"}
    shutil.copytree(family[0].path.parents[1] / "child", tmp_path / "child")
    pruned, _ = prune(load_run(tmp_path / "child"), allow_orphans=True)
    assert {path.name for path in neighbours(pruned).without_keys} == {"a view of the parent", "a view of the child"}


def spent(run):
    return {name: towards.spent.rounds for name, towards in account_of(run).towards.items()}


# what is shown of it


@pytest.mark.thorough
def test_what_seal_proposes_passes_and_compares_all_that_it_was_given(whole, tmp_path, fuaudit):
    """The spec of one's own that docs proposed could use neither the commitment nor the list of parties."""
    run, view, roster = whole["bfv+mask"], tmp_path / "view", tmp_path / "roster.txt"
    document = json.loads(fuaudit("seal", run.path, "--out", view, "--json")[1])
    (proposed,) = document["next"]
    assert proposed.startswith(f"fuaudit verify {view} --spec sealed-view ")
    assert f"--commitment {run.commitment} --ledger-head {run.ledger.head} --roster FILE" in proposed
    roster.write_text(fuaudit("show", run.path, "--roster")[1])
    words = shlex.split(proposed.replace("FILE", str(roster)))[1:]
    assert fuaudit(*words, "--key", AUDIT_KEY.hex())[0] == 0
    names = roster.read_text().splitlines()
    changed = [names[0][:-1] + ("0" if names[0][-1] != "0" else "1"), *names[1:]]
    roster.write_text("\n".join(changed) + "\n")
    assert fuaudit(*words, "--key", AUDIT_KEY.hex())[0] == 1
    others = [word if len(word) != 64 else "ab" * 32 for word in words]
    assert fuaudit(*others[:-2], "--key", AUDIT_KEY.hex())[0] == 1


@pytest.fixture
def first_round_unmade(monkeypatch):
    """A machine on which no process that adds can be started, until two sums were asked for."""
    started, count = adder.started, itertools.count()

    def failing(*given):
        if next(count) < 2:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return started(*given)

    end_all()
    monkeypatch.setattr(adder, "started", failing)
    yield
    end_all()


def test_a_sum_that_was_not_made_again_hides_no_other_round(copied, first_round_unmade):
    view = copied("bfv+mask")
    found = looked_at(view)
    assert (found.verdict, [line[:7] for line in found.details]) == ("INCONCLUSIVE", ["round 1"] * 2)


def test_the_model_of_another_round_is_a_fail_all_the_same(copied, first_round_unmade):
    """INCONCLUSIVE was said of all of it: whoever made one sum break off could store what he liked."""
    view = copied("bfv+mask")
    vector, state = view.checkpoint(2)
    found = looked_at(holding(view, 2, 2 * vector, state))
    assert (found.verdict, found.shows) == (
        "FAIL", "Stored models are not those that the sums make which the messages opened.",
    )  # fmt: skip


def test_a_round_of_which_a_sum_was_not_made_again_is_not_said_to_fail(tmp_path, request):
    """Two of its three sums are unknown, and a rule that needs two rows has one: it was opened for something."""
    tables = published(FEDREP, {"use": "multi-krum", "byzantine": 0, "keep": 2}, clients=6)
    view = seal(trained(tmp_path / "run", tables, "bfv+mask"), tmp_path / "view")
    request.getfixturevalue("first_round_unmade")
    found = looked_at(view)
    assert (found.verdict, [line[:7] for line in found.details]) == ("INCONCLUSIVE", ["round 1"] * 2), found.details


@pytest.mark.parametrize(("suite", "step"), [("bfv", "send"), ("bfv+mask", "announce"), ("mask", "send")])
def test_a_client_who_was_left_out_of_a_sum_is_found(tmp_path, suite, step, monkeypatch):
    """Three of four suffice, and all answer in a training: here the server left one out, and divided by three."""
    tables = FEDAVG | {"transport": {"use": "secure-sum", "size": 4, "smallest": 3}}
    opened, mean_of = Suite.opened, WholeSums.mean_of

    def without_one(self, rows, bits, clients, **more):
        return opened(self, rows, bits, clients, **more | {"absent": {clients[0]: step}})

    with monkeypatch.context() as patch:
        patch.setattr(Suite, "opened", without_one)
        patch.setattr(WholeSums, "mean_of", lambda self, total, _, like: mean_of(self, total, 3, like))
        run = trained(tmp_path / "run", tables, suite)
    for found in (looked_at(seal(run, tmp_path / "view")), examined(run, data=False)):
        assert found.verdict == "FAIL"
        assert "was opened, of a buffer of 4: all answer, or a training ends" in found.details[0]


def test_a_seal_that_breaks_off_leaves_nothing(whole, tmp_path, monkeypatch):
    """A folder without a manifest was left there, and refused the next one."""
    out, left = tmp_path / "view", []

    def broken(source, folder):
        left.append((folder, [path.name for path in folder.rglob("*") if path.is_file()]))
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("fuaudit.workflow.writer.copy_transcript", broken)
        for act in (seal, redact):
            with pytest.raises(OSError, match="full"):
                act(whole["plain"], out)
    assert all(names and not folder.exists() for folder, names in left)
    assert [*tmp_path.iterdir()] == []
    assert seal(whole["plain"], out).digest == whole["plain"].digest


def test_where_there_are_no_messages_none_is_proposed(family, tmp_path, fuaudit):
    code, out, _ = fuaudit("seal", family[2].path, "--out", tmp_path / "pruned")
    assert (code, "its messages went with the prune" in out, "fuaudit verify" in out) == (0, True, False)
    out = fuaudit("show", family[2].path)[1]
    assert ("its messages went with the prune" in out, "--spec" in out) == (True, False)
    clear = trained(tmp_path / "clear", FEDREP, None)
    out = fuaudit("seal", clear.path, "--out", tmp_path / "view")[1]
    assert ("train with --secure bfv+mask" in out, "fuaudit verify" in out) == (True, False)


def test_it_is_sealed_shown_verified_and_reported(whole, tmp_path, fuaudit):
    code, out, _ = fuaudit("seal", whole["plain"].path, "--out", tmp_path / "view")
    assert (code, whole["plain"].digest in out) == (0, True)
    code, out, _ = fuaudit("show", tmp_path / "view")
    assert (code, "a sealed view" in out, "not here" in out) == (0, True, True)
    document = json.loads(fuaudit("show", tmp_path / "view", "--json")[1])
    assert document["sealed"]
    assert "keys.json" in document["lacking"]
    roster = fuaudit("show", tmp_path / "view", "--roster")[1]
    assert roster == fuaudit("show", whole["plain"].path, "--roster")[1]
    code, out, _ = fuaudit("verify", tmp_path / "view", "--spec", "secure-aggregation", "--key", AUDIT_KEY.hex())
    assert code == 3
    assert "unlearn first" not in out
    for form in ("html", "md", "json", "junit"):
        assert fuaudit("report", tmp_path / "view", "--format", form)[0] == 0
    code, out, _ = fuaudit("runs", tmp_path)
    assert (code, "view" in out) == (0, True)
    for words in (("receipt", tmp_path / "view", "--client", "0"), ("prune", tmp_path / "view", "--yes")):
        assert fuaudit(*words)[0] in (2, 4)
    code, _, err = fuaudit("unlearn", tmp_path / "view", "--with", "fats", "--client", "0")
    assert (code, "sealed view" in err) == (4, True)


# whole runs


def test_whole_runs_are_asked_too(whole, tmp_path):
    """Without rows the models are compared with the opened sums; then with those of the rows."""
    run = whole["bfv+mask"]
    found = examined(run, data=False)
    assert found.verdict == "INCONCLUSIVE"
    assert "the models were made of the sums that they opened" in found.shows
    assert examined(run).verdict == "PASS"
    assert set(columns(run)) == {1, 2}
    assert (run.path / of_round(BODIES, 1)).exists()


def test_what_a_config_may_mean_is_told_of_a_view_as_of_its_run(tmp_path):
    """A round draws 10 of 20 clients, so five sums; and a child that kept all rounds has none of its own."""
    learner = {"use": "fedrep", "rounds": 2, "cohort": 10, "steps": 1, "batch": 1, "step_size": 0.2}
    tables = tiny_config(
        partition={"use": "iid", "clients": 20},
        learner=learner,
        client=[{"use": "skellam-noise", "norm": 1.0, "noise": 2.0, "bits": 16}],
        transport={"use": "secure-sum", "byzantine": 2},
        server=[{"use": "multi-krum", "byzantine": 2, "keep": 2}],
        run={"checkpoint_every": 1},
    )
    run = train(tables, tmp_path / "run", data=tiny_dataset(), secret=secret(3), secure="plain")
    never = next(row for row in run.plan.retained.owner if row not in run.plan.index.samples)
    child = unlearn(run, "fats", Request.of(samples=[never]), tmp_path / "child", data=tiny_dataset())
    assert not child.ledger.of_kind("round")
    for name, one in (("run", run), ("child", child)):
        seal(one, tmp_path / f"view of {name}")
        view = load_run(tmp_path / f"view of {name}")
        assert fears_of(view) == fears_of(one) != []
    assert not buffers_of(view)
