"""Rounds that came in messages: recorded, entered at the server's half, replayed, and never a PASS for erasure."""

import shutil
import sys
import tracemalloc
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests_support import (
    AUDIT_KEY,
    claimed,
    deliveries,
    hand_in,
    holding,
    in_messages,
    in_messages_never_pass,
    lean,
    of_the_run,
    reseal,
    secret,
)
from tests_support import run as command

from fuaudit import load_run, receive, receive_child, receive_rest, train, unlearn, verify
from fuaudit.draws import Keyed
from fuaudit.errors import EvidenceError, StorageError, UsageError
from fuaudit.formats.forms import parse_arrays, tensor_bytes
from fuaudit.plans import Request
from fuaudit.reporting import render
from fuaudit.runs.account import account_of
from fuaudit.runs.encoding import digest_of_vector
from fuaudit.runs.layout import CHECKPOINT, CONFIG, LEDGER, RECEIVED, of_round
from fuaudit.testing.tiny import tiny_config, tiny_dataset
from fuaudit.training.asking import are_columns
from fuaudit.training.events import REJECTED_FOR, Rejected
from fuaudit.training.setup import setup
from fuaudit.verification.case import Case
from fuaudit.verification.examine import examine
from fuaudit.verification.gather import gather
from fuaudit.workflow.inbox import Inbox
from fuaudit.workflow.prune import prune
from fuaudit.workflow.receiving import receiving, size_of_records
from fuaudit.workflow.redact import redact
from fuaudit.workflow.resume import resume
from fuaudit.workflow.train import size_of_run
from fuaudit.workflow.unlearn import begun_child

DATA, SECRET = tiny_dataset(), secret(3)
CLIENTS = 8
ROUNDS = {"rounds": 4, "steps": 1, "batch": 2, "step_size": 0.3}
EVERYBODY = {"use": "fedrep", "cohort": CLIENTS, **ROUNDS}
PLAIN = {"learner": {"use": "fats", "cohort": 3, **ROUNDS}, "run": {"checkpoint_every": 2, "engine": "reference"}}
CHAIN = [{"use": "error-feedback"}, {"use": "consensus", "per_client": 3}, {"use": "quantise"}]
SUMS = {"use": "secure-sum", "size": 2}
FEDREP = {
    "learner": EVERYBODY,
    "solver": {"use": "local-momentum"},
    "client": CHAIN,
    "transport": SUMS,
    "server": [{"use": "krum", "byzantine": 0}, {"use": "momentum"}],
}
CONFIGS = {
    "plain": PLAIN,
    "each round stored": {},
    "momentum of the server": {"server": [{"use": "mean"}, {"use": "momentum"}]},
    "weights": {"server": [{"use": "size-weighted"}]},
    "a memory of the server": {
        "learner": EVERYBODY,
        "server": [{"use": "centered-clipping", "radius": 0.5, "steps": 2}],
    },
    "draws of the server": {"learner": EVERYBODY, "server": [{"use": "bucketing"}, {"use": "geometric-median"}]},
    "rounds of nobody": {
        "learner": {"use": "mifa", "scenario": "static", "probability": 0.1, "first_all": False, **ROUNDS}
    },
    "memories of clients": {"learner": EVERYBODY, "client": CHAIN},
    "sums": FEDREP,
}


def table(**changes):
    return tiny_config(partition={"use": "iid", "clients": CLIENTS}, **changes)


def received_of(run, out):
    """The run once more, of messages that hold what was delivered in the simulation."""
    return in_messages(run, out, DATA, SECRET)


def findings(run, spec=None, **options):
    """The verdict and findings by audit."""
    spec = lean(spec or "client-erasure")
    result = verify(run, spec, budget=0, key=AUDIT_KEY, save=False, data=DATA, **options)
    return result, {one.audit: one for one in result.findings}


def of_run(run, **options):
    """The findings of the audits that judge such a run, as each gives them."""
    case = Case(gather(run, {"data": DATA, **options}), Keyed(AUDIT_KEY))
    return {check.audit["use"]: examine(check, case)[0] for check in of_the_run().checks}


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    root, made = tmp_path_factory.mktemp("simulated"), {}

    def run(name):
        if name not in made:
            made[name] = train(table(**CONFIGS[name]), root / name.replace(" ", "-"), DATA, SECRET)
        return made[name]

    return run


@pytest.fixture(scope="module")
def messages(simulated, tmp_path_factory):
    """Simulated runs of some configs, and the same of messages."""
    root, made = tmp_path_factory.mktemp("messages"), {}

    def run(name):
        if name not in made:
            made[name] = received_of(simulated(name), root / name.replace(" ", "-"))
        return made[name]

    return run


def copied(run, folder):
    return shutil.copytree(run.path, folder / run.path.name)


def record(path, number, change):
    """Write a record of a run anew."""
    place = path / of_round(RECEIVED, number)
    arrays = dict(parse_arrays(place.read_bytes(), place))
    change(arrays)
    place.write_bytes(tensor_bytes(arrays))


# --- the oracle: a run of messages is the run that was simulated


@pytest.mark.parametrize("name", CONFIGS)
def test_the_recorded_run_is_the_simulated_one(simulated, messages, name):
    whole, run = simulated(name), messages(name)
    assert {n: digest_of_vector(m) for n, m in run.models.items()} == {
        n: digest_of_vector(m) for n, m in whole.models.items()
    }
    assert run.commitment == whole.commitment
    assert run.received_rounds == tuple(range(1, run.rounds_executed + 1))
    assert not any(file.startswith("clients/0") for file in run.files)
    found = of_run(run)
    assert found["replay"].verdict == "PASS", found["replay"].shows
    rounds = f"Rounds 1 to {run.rounds_executed} rest on messages as they were recorded"
    assert rounds in found["replay"].shows
    assert rounds in found["replay"].qualification
    assert "is what clients sent" in found["replay"].assumptions[-1]
    assert (found["integrity"].verdict, found["provenance"].verdict) == ("PASS", "PASS")
    assert found["lineage"].verdict == "INCONCLUSIVE"
    assert "nothing regenerates" in found["lineage"].shows


@pytest.mark.parametrize("name", ["plain", "memories of clients", "weights"])
@pytest.mark.parametrize("number", [1, 3])
def test_one_number_of_one_record_makes_other_models(messages, tmp_path, name, number):
    """The forger changes a record and seals again; he does not make the models that follow."""
    path = copied(messages(name), tmp_path)
    record(path, number, lambda arrays: arrays["rows"].__setitem__((0, 0), arrays["rows"][0, 0] + 1))
    assert of_run(reseal(path))["replay"].verdict == "FAIL"


def test_other_sums_make_other_models(messages, tmp_path):
    """The rule takes one of them, whichever it is."""
    path = copied(messages("sums"), tmp_path)
    record(path, 2, lambda arrays: arrays["rows"].__iadd__(1))
    assert of_run(reseal(path))["replay"].verdict == "FAIL"


def test_a_spot_check_enters_rounds_at_records(messages, tmp_path):
    run = messages("plain")
    result, found = findings(run, spot_check=2)
    assert found["replay"].verdict == "PASS"
    assert "rest on messages" in found["replay"].shows
    path = copied(run, tmp_path)
    record(path, 3, lambda arrays: arrays["rows"].__setitem__((0, 0), arrays["rows"][0, 0] + 1))
    result, found = findings(reseal(path), spot_check=2)
    assert (result.verdict, found["replay"].verdict) == ("FAIL", "FAIL")


def test_a_run_whose_records_are_left_out_is_simulated_and_refuted(messages, tmp_path):
    """Whoever takes the records away has models that no data makes."""
    run = messages("plain")
    moved = holding(copied(run, tmp_path), {n: (m + 0.5, {}) for n, m in run.models.items()}, DATA)
    shutil.rmtree(moved.path / "received")
    (moved.path / "run.json").write_text((moved.path / "run.json").read_text().replace(' "received": true,\n', ""))
    bare = reseal(moved.path)
    assert not bare.received_rounds
    assert of_run(bare)["replay"].verdict == "FAIL"


# --- who does not answer, and bad messages


def test_bad_messages_are_rejected_with_a_reason_and_the_round_goes_on(tmp_path):
    config = table(learner=EVERYBODY | {"rounds": 2}, server=[{"use": "mean"}])
    with receive(config, tmp_path / "run", DATA, SECRET) as reception:
        model, length = reception.round.model, len(reception.round.model)
        good = [torch.full((length,), float(client)) for client in range(CLIENTS)]
        assert reception.receive(1, 0, good[0]) is None
        assert reception.receive(1, 0, good[1]) == Rejected(0, "twice")
        assert reception.receive(1, 1, good[1][:-1]) == Rejected(1, "wrong length")
        assert reception.receive(1, 2, good[2] * float("nan")) == Rejected(2, "not finite")
        assert reception.receive(1, 3, np.full(length, 1e300)) == Rejected(3, "not finite")
        assert reception.receive(1, 4, "a row") == Rejected(4, "no numbers")
        assert reception.receive(2, 5, good[5]) == Rejected(5, "not in the round")
        assert reception.receive(1, 99, good[5]) == Rejected(99, "not in the round")
        assert reception.receive(1, 5, [5.0] * length) is None
        assert reception.receive(1, 6, good[6].numpy()) is None
        assert reception.reject(4, "too many coordinates") == Rejected(4, "too many coordinates")
        with pytest.raises(UsageError, match="no reason"):
            reception.reject(4, "I dislike it")
        after = reception.advance()
        assert torch.equal(after, model - torch.stack([good[0], good[5], good[6]]).mean(dim=0))
        assert reception.receive(1, 7, good[7]) == Rejected(7, "late")
        assert torch.equal(reception.advance(), after)
        assert reception.round is None
        assert reception.receive(2, 7, good[7]) == Rejected(7, "late")
        run = reception.close()
    first, second = run.received[1], run.received[2]
    assert first.places == (0, 5, 6)
    assert first.absent == (7,)
    assert dict.fromkeys(client for client, _ in first.rejected) == dict.fromkeys([0, 1, 2, 3, 4, 5])
    assert {why for _, why in first.rejected} <= {*REJECTED_FOR}
    assert (second.places, second.absent, second.rejected) == ((), tuple(range(CLIENTS)), ((7, "late"),))
    told = [event for line in run.ledger.of_kind("round") for event in line.get("told", [])]
    assert {event["part"] for event in told} == {"exchange"}
    assert len(told) == len(first.rejected) + 1
    assert of_run(run)["replay"].verdict == "PASS"


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_a_late_message_is_no_answer(tmp_path, order):
    """Who sends a message of the round as well has answered, whichever came first."""
    with receive(table(learner=EVERYBODY | {"rounds": 2}), tmp_path / "run", DATA, SECRET) as reception:
        length = len(reception.round.model)
        reception.advance()
        assert reception.receive(1, 3, [0.0] * length) == Rejected(3, "late")
        for number in order:
            why = "late" if number == 1 else "wrong length"
            assert reception.receive(number, 5, [0.0]) == Rejected(5, why)
        reception.advance()
        run = reception.close()
    assert run.received[2].absent == (0, 1, 2, 3, 4, 6, 7)
    assert run.received[2].rejected == ((3, "late"), (5, "late"), (5, "wrong length"))


def test_a_client_that_was_drawn_twice_sends_twice(tmp_path):
    run = None
    for number in range(20):
        with receive(table(), tmp_path / f"{number}", DATA, secret(number)) as reception:
            clients = reception.round.clients
            if len({*clients}) == len(clients):
                continue
            rows = [torch.full_like(reception.round.model, float(n)) for n in range(2)]
            assert [reception.receive(1, clients[0], row) for row in rows] == [None, None]
            assert reception.receive(1, clients[0], rows[0]) == Rejected(clients[0], "twice")
            model = reception.round.model
            assert torch.equal(reception.advance(), model - 0.5)
            run = number
            break
    assert run is not None


def test_behind_sums_nobody_is_named(tmp_path):
    config = table(**FEDREP | {"server": [{"use": "mean"}]})
    with receive(config, tmp_path / "run", DATA, SECRET) as reception:
        model = reception.round.model
        with pytest.raises(UsageError, match="agree on coordinates"):
            reception.receive_sum(1, model, 2)
        with pytest.raises(UsageError, match="must ascend"):
            reception.agree([2, 1])
        reception.agree([0, 2])
        with pytest.raises(UsageError, match="shows sums alone"):
            reception.receive(1, 0, model[:2])
        for count in (1, CLIENTS + 1):
            with pytest.raises(UsageError, match="cannot be of this round"):
                reception.receive_sum(1, [1.0, 2.0], count)
        assert reception.receive_sum(1, [2.0, 4.0], 2) == ""
        assert reception.receive_sum(1, [2.0, 4.0], 3) == ""
        assert reception.receive_sum(1, [float("inf"), 4.0], 2) == "not finite"
        with pytest.raises(UsageError, match="are summed or absent"):
            reception.advance(absent=range(4))
        reception.advance(absent=[7])
        for _ in range(3):
            reception.agree([])
            reception.advance()
        run = reception.close()
    first = run.received[1]
    assert (first.places, first.counts, first.discarded, first.absent) == (None, (2, 3), 1, (7,))
    (told,) = run.ledger.of_kind("round")[0]["told"]
    assert (told["kind"], told["rows"], told["discarded"], told["failed"]) == ("summed", [2, 3], 1, False)
    assert of_run(run)["replay"].verdict == "PASS"


# --- records that are no evidence


def absent_too(arrays):
    arrays["absent"] = np.arange(1, dtype=np.int64)


BROKEN = {
    "a row too many": lambda a: a.update(rows=np.concatenate([a["rows"], a["rows"][:1]])),
    "a shorter row": lambda a: a.update(rows=a["rows"][:, :-1].copy()),
    "another kind": lambda a: a.update(rows=a["rows"].astype(np.float64)),
    "places out of order": lambda a: a.update(places=a["places"][::-1].copy()),
    "no such place": lambda a: a.update(places=a["places"] + 7),
    "absent, and there": absent_too,
    "of no place": lambda a: a.update(places=a["places"][:-1], rows=a["rows"][:-1].copy()),
    "counts": lambda a: a.update(counts=a["places"] + 2),
    "coordinates": lambda a: a.update(coordinates=np.arange(3)),
    "another tensor": lambda a: a.update(old=a["places"]),
    "an unknown reason": lambda a: a.update(rejected=np.array([[0, 99]])),
    "a rejected stranger": lambda a: a.update(rejected=np.array([[99, 0]])),
    "rejected in no order": lambda a: a.update(rejected=np.array([[1, 0], [0, 0]])),
}
BEHIND_SUMS = {
    "places": lambda a: a.update(places=a["counts"]),
    "a sum of one": lambda a: a.update(counts=a["counts"] - 1),
    "sums of more than there are": lambda a: a.update(counts=a["counts"] + 1),
    "rows of clients": lambda a: [a.pop("counts"), a.pop("discarded"), a.update(places=np.arange(4))],
    "no coordinates": lambda a: a.pop("coordinates"),
    "coordinates out of order": lambda a: a.update(coordinates=a["coordinates"][::-1].copy()),
    "coordinates of no column": lambda a: a.update(coordinates=a["coordinates"] + 99),
    "two numbers of sums": lambda a: a.update(discarded=np.array([0, 0])),
    "many sums that were not taken": lambda a: a.update(discarded=np.array([2**40])),
}


@pytest.mark.parametrize(
    ("name", "change"),
    [("plain", change) for change in BROKEN.values()] + [("sums", change) for change in BEHIND_SUMS.values()],
    ids=[*BROKEN, *BEHIND_SUMS],
)
def test_a_record_of_another_form_is_no_evidence(messages, tmp_path, name, change):
    path = copied(messages(name), tmp_path)
    record(path, 1, change)
    with pytest.raises(EvidenceError):
        reseal(path)


@pytest.mark.parametrize("number", [0, 5])
def test_a_record_of_another_round_is_no_evidence(messages, tmp_path, number):
    path = copied(messages("plain"), tmp_path)
    shutil.copy(path / of_round(RECEIVED, 1), path / of_round(RECEIVED, number))
    with pytest.raises(EvidenceError, match="which such a run has not"):
        reseal(path)


@pytest.mark.parametrize("name", ["plain", "sums"])
def test_a_missing_record_is_no_evidence(messages, tmp_path, name):
    path = copied(messages(name), tmp_path)
    (path / of_round(RECEIVED, 2)).unlink()
    with pytest.raises(EvidenceError, match="records of other rounds"):
        reseal(path)


# --- forgetting


@pytest.fixture(scope="module")
def late(messages):
    """A client of the plain run whom later rounds alone drew, so that rounds are kept."""
    first = messages("plain").plan.index.clients
    client = max(first, key=lambda one: (first[one], one))
    assert first[client] > 2
    return client


@pytest.fixture
def parent(messages, tmp_path):
    return load_run(copied(messages("plain"), tmp_path))


def never_pass(run, **options):
    """See :func:`tests_support.in_messages_never_pass`."""
    return in_messages_never_pass(run, DATA, **options)


def test_a_child_that_keeps_rounds_of_messages_is_inconclusive(parent, late, tmp_path):
    with pytest.raises(UsageError, match="came in messages"):
        unlearn(parent, "fats", Request.of([late]), tmp_path / "child", data=DATA)
    child = unlearn(parent, "fats", Request.of([late]), tmp_path / "child", data=DATA, allow_inexact=True)
    kept = child.own_rounds.start - 1
    assert child.received_rounds == tuple(range(1, kept + 1))
    found = never_pass(child)
    assert f"Round{'s 1 to' * (kept > 1)} {kept} rest" in found["replay"].shows
    assert {name: one.verdict for name, one in found.items()} == {
        "integrity": "PASS",
        "replay": "PASS",
        "provenance": "PASS",
        "lineage": "INCONCLUSIVE",
    }
    _, every = findings(child)
    assert every["enumeration"].verdict == every["plan-law"].verdict == "INCONCLUSIVE"
    assert "judges simulated rounds alone" in every["enumeration"].shows


def test_nobody_says_that_a_federation_of_messages_never_used_somebody(parent, simulated, tmp_path):
    """The plan never drew her. Of a simulation that means that her data was not used, of messages it does not."""
    never = next(iter({*parent.plan.retained.clients} - parent.plan.index.clients.keys()))
    request = Request.of([never])
    child = unlearn(parent, "fats", request, tmp_path / "child", data=DATA, allow_inexact=True)
    found = never_pass(child, request=request)
    assert (
        found["provenance"].values["nothing_to_forget"].startswith("unknown: rounds 1 to 4 of plain came in messages")
    )
    assert any("made of messages" in copy.why for copy in found["lineage"].copies)
    assert any("received/000001" in copy.place for copy in found["lineage"].copies)
    like = unlearn(simulated("plain"), "fats", request, tmp_path / "like", data=DATA)
    found = of_run(like, parent=simulated("plain").path)
    assert found["provenance"].values["nothing_to_forget"].startswith("yes: it was never drawn")


def test_nor_that_an_earlier_run_never_used_somebody(parent, tmp_path):
    """Between them a run was simulated from the start, and did not draw her either."""
    for gone in parent.plan.retained.clients:
        out = tmp_path / f"without-{gone}"
        between = unlearn(parent, "retrain", Request.of([gone]), out, data=DATA, allow_inexact=True)
        unused = {*between.plan.retained.clients} - between.plan.index.clients.keys() - parent.plan.index.clients.keys()
        if unused:
            break
    request = Request.of([min(unused)])
    child = unlearn(between, "fats", request, tmp_path / "child", data=DATA)
    told = never_pass(child, request=request)["provenance"].values["nothing_to_forget"]
    assert "but rounds of plain came in messages" in told


def test_every_report_can_be_made(parent, late, tmp_path):
    child = unlearn(parent, "fats", Request.of([late]), tmp_path / "child", data=DATA, allow_inexact=True)
    for run in (parent, child):
        result, _ = findings(run)
        for form in ("html", "md", "junit"):
            page = render(result.as_json(), form).decode()
            assert "came in messages" in page
            assert "INCONCLUSIVE" in page


def test_a_child_that_was_killed_goes_on_with_the_records_that_it_keeps(parent, late, tmp_path):
    whole = unlearn(parent, "fats", Request.of([late]), tmp_path / "whole", data=DATA, allow_inexact=True)
    out, asked = tmp_path / "child", Request.of([late])
    with begun_child(parent, "fats", asked, out, None, DATA, True) as child:
        child.writer.keep_received(parent, 2)
    assert resume(out, DATA).digest == whole.digest


def test_what_a_child_keeps_is_what_its_parent_has(parent, late, tmp_path):
    child = unlearn(parent, "fats", Request.of([late]), tmp_path / "child", data=DATA, allow_inexact=True)
    record(child.path, 1, lambda arrays: arrays["rows"].__setitem__((0, 0), arrays["rows"][0, 0] + 1))
    found = of_run(reseal(child.path))
    assert found["integrity"].verdict == "FAIL"
    assert "keeps round 1 with other messages" in found["integrity"].details[0]


def test_a_child_that_is_computed_anew_from_a_run_of_messages(parent, tmp_path):
    """The rewriter changed rounds of recorded answers; none of them is in the child."""
    child = unlearn(parent, "retrain", Request.of([0]), tmp_path / "child", data=DATA, allow_inexact=True)
    assert not child.received_rounds
    found = never_pass(child)
    assert (found["replay"].verdict, found["lineage"].verdict) == ("PASS", "PASS")
    assert "messages" not in found["replay"].shows


def test_a_child_of_messages(parent, simulated, late, tmp_path):
    """The rounds after the first change are asked for again; those before it are kept with their records."""
    like = unlearn(simulated("plain"), "fats", Request.of([late]), tmp_path / "like", data=DATA)
    rounds = deliveries(like, DATA)
    with receive_child(parent, "fats", Request.of([late]), tmp_path / "child", data=DATA) as reception:
        assert reception.round.number == like.own_rounds.start
        while reception.round is not None:
            assert late not in reception.round.clients
            hand_in(reception, rounds[reception.round.number])
            reception.advance()
        child = reception.close()
    assert child.received_rounds == (1, 2, 3, 4)
    assert torch.equal(child.model, like.model)
    assert never_pass(child)["replay"].verdict == "PASS"
    grandchild = unlearn(child, "retrain", Request.of([0]), tmp_path / "third", data=DATA, allow_inexact=True)
    never_pass(grandchild)


def test_a_child_that_has_nothing_to_ask_for(parent, tmp_path):
    """Training never drew her, so all rounds are kept."""
    never = next(iter({*parent.plan.retained.clients} - parent.plan.index.clients.keys()))
    with receive_child(parent, "fats", Request.of([never]), tmp_path / "child", data=DATA) as reception:
        assert reception.round is None
        child = reception.close()
    assert torch.equal(child.model, parent.model)
    assert never_pass(child)["replay"].verdict == "PASS"


@pytest.mark.parametrize("again", [True, False])
def test_after_a_training_that_was_stopped(again, tmp_path):
    """Requests come during training: the rounds that are left come in messages, or are simulated."""

    def answer(reception):
        while (at := reception.round) is not None:
            for client in at.clients:
                assert reception.receive(at.number, client, torch.full_like(at.model, 0.01 * client)) is None
            reception.advance()
        return reception.close()

    with receive(table(**PLAIN), tmp_path / "stopped", DATA, SECRET, stop_after=3) as reception:
        run = answer(reception)
    drawn = min(run.plan.index.clients, key=lambda client: -run.plan.index.clients[client])
    never = next(iter({*run.plan.retained.clients} - run.plan.index.clients.keys()))
    for gone, kept in ((never, 3), (drawn, run.plan.index.clients[drawn] - 1)):
        out, request = tmp_path / f"{gone}", Request.of([gone])
        if again:
            with receive_child(run, "fats", request, out, data=DATA) as reception:
                child = answer(reception)
        else:
            child = unlearn(run, "fats", request, out, data=DATA, allow_inexact=True)
        assert child.received_rounds == tuple(range(1, (4 if again else kept) + 1))
        assert never_pass(child)["replay"].verdict == "PASS"


def test_an_edited_child_is_inconclusive(parent, tmp_path):
    child = unlearn(parent, "finetune", Request.of([0]), tmp_path / "child", data=DATA)
    assert not child.received_rounds
    found = never_pass(child, erased=None)
    assert "rest on messages" in found["replay"].shows


def test_a_prune_keeps_what_came_and_no_spec_passes(parent, late, tmp_path):
    child = unlearn(parent, "fats", Request.of([late]), tmp_path / "child", data=DATA, allow_inexact=True)
    pruned, stones = prune(child)
    assert pruned.received_rounds
    assert [stone.name for stone in stones] == [parent.path.name]
    found = never_pass(load_run(pruned.path))
    assert (found["integrity"].verdict, found["replay"].verdict) == ("PASS", "PASS")


def test_a_prune_after_a_child_that_holds_no_messages(parent, tmp_path):
    """Its tombstone lists the records of before: the lineage rests on messages."""
    child = unlearn(parent, "retrain", Request.of([0]), tmp_path / "child", data=DATA, allow_inexact=True)
    never_pass(prune(child)[0])


def test_memories_that_only_clients_know(messages, simulated, tmp_path):
    """Rounds cannot go on from what clients keep where they came from elsewhere; from the start they can."""
    run = load_run(copied(messages("memories of clients"), tmp_path))
    assert run.exchange.clients_keep
    assert not run.exchange.remembers
    few = CONFIGS["memories of clients"] | {"learner": {"use": "fedavg", "cohort": 2, **ROUNDS}}
    held = train(table(**few), tmp_path / "held", DATA, SECRET)
    first = held.plan.index.clients
    last = max(first, key=lambda client: first[client])
    assert first[last] > 1
    with (
        pytest.raises(UsageError, match="clients keep something"),
        receive_child(held, "fats", Request.of([last]), tmp_path / "child", data=DATA, allow_inexact=True),
    ):
        pass
    known = received_of(held, tmp_path / "known")
    with pytest.raises(UsageError, match="clients keep something"):
        unlearn(known, "fats", Request.of([last]), tmp_path / "child", data=DATA, allow_inexact=True)
    child = unlearn(run, "retrain", Request.of([0]), tmp_path / "child", data=DATA, allow_inexact=True)
    assert child.exchange.remembers
    assert never_pass(child)["replay"].verdict == "PASS"


# --- ends and beginnings


@pytest.mark.parametrize("name", ["plain", "sums"])
def test_a_run_that_was_left_goes_on_from_its_records(simulated, messages, tmp_path, name):
    rounds, out = deliveries(simulated(name), DATA), tmp_path / "run"
    with receive(simulated(name).config.tables(), out, DATA, SECRET):
        pass
    with pytest.raises(UsageError, match="come in messages"):
        resume(out, DATA)
    with pytest.raises(EvidenceError, match="incomplete"):
        load_run(out)
    for number in range(1, 5):
        with receive_rest(out, DATA) as reception:
            assert reception.round.number == number
            hand_in(reception, rounds[number])
            reception.advance()
            with ExitStack() as stack:
                stack.enter_context(pytest.raises(UsageError, match="waits for messages" if number < 4 else "over"))
                _ = reception.close() if number < 4 else reception.advance()
    with receive_rest(out, DATA) as reception:
        run = reception.close()
    assert run.digest == messages(name).digest
    assert of_run(run)["replay"].verdict == "PASS"
    with pytest.raises(UsageError, match="complete"), receive_rest(out, DATA):
        pass


def test_a_child_that_was_left_goes_on(parent, simulated, late, tmp_path):
    like = unlearn(simulated("plain"), "fats", Request.of([late]), tmp_path / "like", data=DATA)
    rounds, request = deliveries(like, DATA), Request.of([late])
    with receive_child(parent, "fats", request, tmp_path / "child", data=DATA) as reception:
        hand_in(reception, rounds[reception.round.number])
        reception.advance()
    with receive_rest(tmp_path / "child", DATA) as reception:
        while reception.round is not None:
            hand_in(reception, rounds[reception.round.number])
            reception.advance()
        child = reception.close()
    assert torch.equal(child.model, like.model)
    assert of_run(child)["integrity"].verdict == "PASS"


def other_rows():
    """The data with one row that is another."""
    return replace(DATA, inputs=torch.cat([DATA.inputs[:1] + 1, DATA.inputs[1:]]))


def shorter(content):
    arrays = dict(parse_arrays(content, Path()))
    return tensor_bytes(arrays | {"rows": arrays["rows"][:, :-1]})


def other_rows_of(content):
    arrays = dict(parse_arrays(content, Path()))
    return tensor_bytes(arrays | {"rows": 2 * arrays["rows"]})


@pytest.mark.parametrize(
    ("name", "change", "data", "words"),
    [
        (of_round(CHECKPOINT, 1), None, DATA, "is not the model that the ledger names"),
        (of_round(RECEIVED, 2), shorter, DATA, "rows of another length"),
        (of_round(RECEIVED, 2), lambda content: b"", DATA, of_round(RECEIVED, 2)),
        (of_round(RECEIVED, 9), lambda content: content, DATA, "is a file that such a run has not"),
        (of_round(RECEIVED, 1), other_rows_of, DATA, f"{of_round(RECEIVED, 1)} was altered"),
        (of_round(CHECKPOINT, 0), None, DATA, f"{of_round(CHECKPOINT, 0)} was altered"),
        (CONFIG, lambda content: content + b"[budget]\nepsilon = 9.0\ndelta = 1e-5\n", DATA, f"{CONFIG} .*was altered"),
        (LEDGER, lambda content: content, other_rows(), "is not what .* committed to"),
    ],
    ids=[
        *("a model", "a record", "no record", "a round that there is not", "rows of a stored round", "the first model"),
        *("a config", "rows"),
    ],
)
def test_a_run_that_cannot_go_on_is_left_as_it_was(simulated, messages, tmp_path, bytes_of, name, change, data, words):
    """With the torn line, and the line of the round whose model is not there."""
    rounds, out = deliveries(simulated("each round stored"), DATA), tmp_path / "run"
    with receive(simulated("each round stored").config.tables(), out, DATA, SECRET) as reception:
        for number in (1, 2):
            hand_in(reception, rounds[number])
            reception.advance()
    (out / of_round(CHECKPOINT, 2)).unlink()
    (out / LEDGER).write_bytes((out / LEDGER).read_bytes() + b'{"torn"')
    (out / "ledger.jsonl.partial").write_bytes(b"torn")
    whole = bytes_of(out)
    content = whole.get(name) or whole[of_round(RECEIVED, 1)]
    other = of_round(CHECKPOINT, 1 if name == of_round(CHECKPOINT, 0) else 0)
    (out / name).write_bytes(change(content) if change else whole[other])
    before = bytes_of(out)
    with pytest.raises((EvidenceError, UsageError), match=words), receive_rest(out, data):
        pass
    assert bytes_of(out) == before
    (out / name).write_bytes(content)
    if name not in whole:
        (out / name).unlink()
    with receive_rest(out, DATA) as reception:
        assert reception.round.number == 3
        while reception.round is not None:
            hand_in(reception, rounds[reception.round.number])
            reception.advance()
        assert reception.close().digest == messages("each round stored").digest


def test_a_child_of_messages_whose_parent_is_not_at_hand_is_left_as_it_was(parent, late, tmp_path, bytes_of):
    with receive_child(parent, "fats", Request.of([late]), tmp_path / "child", data=DATA):
        pass
    out = shutil.copytree(tmp_path / "child", tmp_path / "lonely" / "child")
    (out / LEDGER).write_bytes((out / LEDGER).read_bytes() + b'{"torn"')
    before = bytes_of(out)
    with pytest.raises(EvidenceError, match="is not at hand"), receive_rest(out, DATA):
        pass
    assert bytes_of(out) == before
    with receive_rest(out, DATA, parent.path) as reception:
        assert reception.round is not None


def test_a_child_for_whose_records_there_is_no_room_is_not_begun(parent, late, tmp_path, monkeypatch):
    ready = receiving(setup(parent.config, DATA))
    room, records = (size(ready, parent.plan.retained) for size in (size_of_run, size_of_records))
    assert records > 2
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=room + records // 2))
    with (
        pytest.raises(StorageError, match="the run needs about"),
        receive_child(parent, "fats", Request.of([late]), tmp_path / "child", data=DATA),
    ):
        pass
    assert not (tmp_path / "child").exists()


def test_a_simulated_run_does_not_go_on_with_messages(simulated, tmp_path):
    path = copied(simulated("plain"), tmp_path)
    (path / "manifest.json").unlink()
    with pytest.raises(UsageError, match="do not come in messages"), receive_rest(path, DATA):
        pass


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"solver": {"use": "scaffold"}, "learner": EVERYBODY}, "beside their update"),
        (
            {
                "learner": EVERYBODY,
                "solver": {"use": "dpsgd", "norm": 0.5, "noise": 4.0},
                "budget": {"epsilon": 500.0, "delta": 1e-5},
            },
            "keep to no budget",
        ),
    ],
)
def test_what_a_record_cannot_hold_is_refused_before_anything_is_written(tmp_path, changes, words):
    with pytest.raises(UsageError, match=words), receive(table(**changes), tmp_path / "run", DATA, SECRET):
        pass
    assert not (tmp_path / "run").exists()


def test_an_account_says_that_nothing_shows_what_clients_let_out(simulated, tmp_path):
    changes = {"learner": EVERYBODY, "client": [{"use": "gaussian-noise", "norm": 0.5, "noise": 2.0}]}
    whole = train(table(**changes), tmp_path / "whole", DATA, SECRET)
    assert not account_of(whole, 1e-5).towards["server"].spent.reasons
    shutil.copytree(whole.path, tmp_path / "apart" / "whole")
    run = received_of(load_run(tmp_path / "apart" / "whole"), tmp_path / "run")
    told = account_of(run, 1e-5).towards["server"].reasons
    assert any("came in messages, and nothing shows what clients let out" in reason for reason in told)


def test_redacting_leaves_what_came(messages, tmp_path):
    run = redact(messages("sums"), tmp_path / "out")
    assert (run.redacted, run.digest) == (True, messages("sums").digest)
    assert run.received[1].counts


def test_on_another_platform_no_tolerance_could_tell(messages, tmp_path):
    run = messages("plain")
    models = {n: (m * (1 + 1e-6), {}) for n, m in run.models.items()}
    other = claimed(holding(copied(run, tmp_path), models, DATA).path, torch="9.9.9")
    found = of_run(other)
    assert (found["replay"].verdict, found["lineage"].verdict) == ("INCONCLUSIVE", "INCONCLUSIVE")
    assert "no tolerance could tell" in found["replay"].shows


def test_nor_of_a_child_of_messages_that_is_simulated(parent, tmp_path):
    """What the erased data did to its parent no plan says."""
    child = unlearn(parent, "retrain", Request.of([0]), tmp_path / "child", data=DATA, allow_inexact=True)
    models = {n: (m * (1 + 1e-6), {}) for n, m in child.models.items()}
    found = never_pass(claimed(holding(child.path, models, DATA).path, torch="9.9.9"))
    assert "no tolerance could tell" in found["replay"].shows


def test_show_tells_which_rounds_came_in_messages(messages, fuaudit):
    assert (
        "in messages   rounds 1 to 4: they rest on what was recorded" in fuaudit("show", str(messages("plain").path))[1]
    )


@pytest.mark.thorough
def test_the_example_runs(tmp_path):
    """A federation whose server has no row: what is wrong or late is rejected, and replay makes the same models."""
    script = Path(__file__).parents[1] / "examples" / "received.py"
    told = command(sys.executable, str(script), str(tmp_path / "run"))
    assert "round 3: hospital 2 is rejected, not finite" in told
    assert "round 2: hospital 3 is rejected, late" in told
    assert "replay: PASS" in told
    assert "Rounds 1 to 8 rest on messages" in told
    found = load_run(tmp_path / "run").received
    assert {number: record.absent for number, record in found.items() if number in (3, 4)} == {3: (3,), 4: (1,)}


def test_a_round_with_too_few_rows_for_its_rule_stays_open_until_it_is_given_up(tmp_path):
    tables = tiny_config(
        learner={"use": "fedrep", "cohort": 5, "rounds": 2, "steps": 1, "batch": 2, "step_size": 0.3},
        partition={"use": "iid", "clients": 5},
        server=[{"use": "krum", "byzantine": 1}],
        run={"checkpoint_every": 1, "engine": "reference"},
    )
    with receive(tables, tmp_path / "run", DATA, SECRET) as federation:
        asked = federation.round
        for client in asked.clients[:2]:
            assert federation.receive(1, client, torch.ones(len(asked.model))) is None
        with pytest.raises(UsageError, match="too few rows came in round 1"):
            federation.advance()
        assert federation.round.number == 1
        assert not (tmp_path / "run" / of_round(RECEIVED, 1)).exists()
        for client in asked.clients[2:]:
            assert federation.receive(1, client, torch.ones(len(asked.model))) is None
        assert not torch.equal(federation.advance(), asked.model)
        before = federation.round.model
        federation.receive(2, federation.round.clients[0], torch.ones(len(before)))
        assert torch.equal(federation.advance(allow_failed=True), before)
        run = federation.close()
    assert [event["why"] for event in run.ledger.of_kind("round")[1]["told"] if event["kind"] == "failed"]


def test_a_child_that_no_messages_can_make_is_refused_before_anything_is_written(tmp_path):
    noise = [{"use": "gaussian-noise", "norm": 0.5, "noise": 20.0}]
    tables = tiny_config(client=noise, server=[{"use": "mean"}], budget={"epsilon": 99.0, "delta": 1e-5})
    run = train(tables, tmp_path / "run", DATA, SECRET)
    with (
        pytest.raises(UsageError, match="keep to no budget"),
        receive_child(run, "retrain", Request.of([0]), tmp_path / "child", data=DATA),
    ):
        pass
    assert not (tmp_path / "child").exists()


# --- what a hostile participant can hand in


EVERY = {"learner": EVERYBODY | {"rounds": 2}, "server": [{"use": "mean"}]}
MEANS_OF_TWO = EVERY | {"transport": SUMS}


def closed(reception):
    while reception.round is not None:
        reception.advance()
    return reception.close()


def test_more_bad_sums_than_clients_leave_a_run_that_opens(tmp_path):
    with receive(table(**MEANS_OF_TWO), tmp_path / "run", DATA, SECRET) as reception:
        length = len(reception.round.model)
        assert {reception.receive_sum(1, [float("nan")] * length, 2) for _ in range(3 * CLIENTS)} == {"not finite"}
        assert {reception.receive_sum(1, [0.1] * length, 2) for _ in range(CLIENTS // 2)} == {""}
        run = closed(reception)
    assert run.received[1].discarded == CLIENTS
    assert of_run(load_run(run.path))["replay"].verdict == "PASS"


@pytest.mark.parametrize("made", [torch.tensor, np.array], ids=["torch", "numpy"])
def test_what_is_agreed_on_is_what_was_said(tmp_path, made):
    config = table(learner=EVERYBODY, client=CHAIN)
    with receive(config, tmp_path / "run", DATA, SECRET) as reception:
        columns = made([1, 2])
        reception.agree(columns)
        reception.receive(1, 0, [1.0, 2.0])
        columns[0] = 2
        reception.advance()
        for _ in range(3):
            reception.agree([])
            reception.advance()
        run = load_run(reception.close().path)
    assert run.received[1].coordinates.tolist() == [1, 2]


def test_a_record_that_would_not_open_is_not_written(tmp_path):
    with receive(table(learner=EVERYBODY, client=CHAIN), tmp_path / "run", DATA, SECRET) as reception:
        reception.agree([1, 2])
        reception._inbox.coordinates[0] = 2
        with pytest.raises(UsageError, match="not in order"):
            reception.advance()
        assert not (tmp_path / "run" / of_round(RECEIVED, 1)).exists()


STRANGE_COLUMNS = {
    "sparse": torch.tensor([1, 2]).to_sparse(),
    "beyond 64 bits": [2**70],
    "fractions": [0.9, 1.5],
    "truth values": [False, True],
    "words": "12",
    "one number": torch.tensor(1),
}


@pytest.mark.parametrize("name", STRANGE_COLUMNS)
def test_columns_that_are_none_are_refused(tmp_path, name):
    with (
        receive(table(learner=EVERYBODY, client=CHAIN), tmp_path / "run", DATA, SECRET) as reception,
        pytest.raises(UsageError, match="coordinates must ascend"),
    ):
        reception.agree(STRANGE_COLUMNS[name])


class Raises:
    """Not even its length can be asked."""

    def __len__(self):
        raise KeyError("length")

    def __getitem__(self, place):
        raise OverflowError

    def __index__(self):
        raise ZeroDivisionError


def odd_rows(length):
    row = torch.ones(length)
    return {
        "sparse": row.to_sparse(),
        "quantised": torch.quantize_per_tensor(row, 0.1, 0, torch.qint8),
        "nested": torch.nested.nested_tensor([row[:2], row[2:]]),
        "bits": torch.zeros(length, dtype=torch.int16).view(torch.bits16),
        "mkldnn": row.to_mkldnn() if torch.backends.mkldnn.is_available() else row.to_sparse(),
        "meta": row.to("meta"),
        "complex": row.to(torch.complex64),
        "masked": np.ma.masked_array(np.ones(length), mask=[True] * length),
        "words": np.array(["1"] * length),
        "of any class": Raises(),
        "nothing": None,
    }


@pytest.mark.filterwarnings("ignore")
def test_odd_rows_are_no_numbers(tmp_path):
    with receive(table(**EVERY), tmp_path / "run", DATA, SECRET) as reception:
        for name, row in odd_rows(len(reception.round.model)).items():
            assert reception.receive(1, 3, row) == Rejected(3, "no numbers"), name
        assert load_run(closed(reception).path).received[1].rejected == ((3, "no numbers"),)


def test_numbers_of_any_order_and_kind_are_taken(tmp_path):
    with receive(table(**EVERY), tmp_path / "run", DATA, SECRET) as reception:
        row = np.arange(len(reception.round.model), dtype=np.float32)
        sent = [row, row.astype(">f4"), row[::-1].copy()[::-1], row.astype(np.longdouble), row.astype(object)]
        sent += [row.astype(">i8"), row.tolist(), torch.from_numpy(row).requires_grad_()]
        assert [reception.receive(1, client, one) for client, one in enumerate(sent)] == [None] * CLIENTS
        run = closed(reception)
    assert run.received[1].rows.equal(torch.from_numpy(row).expand(CLIENTS, -1))


def test_ids_and_numbers_of_any_kind_are_whole_numbers_or_nobodys(tmp_path):
    with receive(table(**EVERY), tmp_path / "run", DATA, SECRET) as reception:
        row, bad = [0.1] * len(reception.round.model), [float("nan")] * len(reception.round.model)
        for client in (np.int64(3), torch.tensor(3)):
            assert reception.receive(np.int64(1), client, bad) == Rejected(3, "not finite")
        for client in (3.0, True, np.True_, torch.tensor(True), "3", [3], None, Raises()):
            for sent in (row, bad):
                assert reception.receive(1, client, sent).why == "not in the round"
        for number in ("1", [1], True, 1.0, Raises()):
            assert reception.receive(number, 5, row) == Rejected(5, "not in the round")
        assert reception.receive(1, np.int32(4), row) is None
        run = load_run(closed(reception).path)
    assert run.received[1].rejected == ((3, "not finite"), (5, "not in the round"))
    assert run.received[1].places == (4,)
    assert run.received[1].absent == (0, 1, 2, 5, 6, 7)


def test_numbers_of_sums_are_whole(tmp_path):
    with receive(table(**MEANS_OF_TWO), tmp_path / "run", DATA, SECRET) as reception:
        row = [2.0] * len(reception.round.model)
        for count in (2.5, "2", True, None, [2]):
            with pytest.raises(UsageError, match="cannot be of this round"):
                reception.receive_sum(1, row, count)
        for number in ("1", None, 1.5):
            assert reception.receive_sum(number, row, 2) == "not in the round"
        assert reception.receive_sum(1, row, np.int64(2)) == ""
        for absent in ([True], ["7"], [[7]]):
            with pytest.raises(UsageError, match="does not take part"):
                reception.advance(absent=absent)
        reception.advance(absent=[np.int64(7)])
        run = load_run(closed(reception).path)
    assert (run.received[1].counts, run.received[1].absent) == ((2,), (7,))


def test_a_row_that_makes_the_model_overflow_is_dropped_by_its_server(tmp_path):
    server = [{"use": "mean"}, {"use": "server-step", "size": 10.0}]
    with receive(table(**EVERY | {"server": server}), tmp_path / "run", DATA, SECRET) as reception:
        model = reception.round.model
        for client in range(CLIENTS):
            assert reception.receive(1, client, torch.full_like(model, 3.4e38 if not client else 0.1)) is None
        for allow_failed in (False, True):
            with pytest.raises(UsageError, match=r"no longer finite after round 1\n  Drop a row that is too large"):
                reception.advance(allow_failed=allow_failed)
        assert reception.receive(1, 0, torch.zeros_like(model)) == Rejected(0, "twice")
        assert reception.reject(0, "late") == Rejected(0, "late")
        with pytest.raises(UsageError, match="no longer finite"):
            reception.advance()
        assert reception.reject(np.int64(0), "not finite") == Rejected(0, "not finite")
        assert reception.reject(1, "not finite") == Rejected(1, "not finite")
        assert reception.receive(1, 1, torch.zeros_like(model)) is None
        reception.advance()
        run = load_run(closed(reception).path)
    assert run.received[1].places == tuple(range(1, CLIENTS))
    assert run.received[1].rejected == ((0, "late"), (0, "not finite"), (0, "twice"), (1, "not finite"))
    assert not run.received[1].rows[0].any()
    assert of_run(run)["replay"].verdict == "PASS"


@pytest.mark.parametrize("case", ["too few", "overflows"])
def test_sums_of_a_round_that_is_closed_as_failed_are_not_recorded(tmp_path, case):
    """Over a model that stays the next round opens sums of other clients: whoever reads both solves for rows."""
    few = case == "too few"
    rule = [{"use": "krum", "byzantine": 1}] if few else [{"use": "mean"}, {"use": "server-step", "size": 10.0}]
    with receive(table(**MEANS_OF_TWO | {"server": rule}), tmp_path / "run", DATA, SECRET) as reception:
        model = reception.round.model
        large = torch.full_like(model, 1.0 if few else 6e38, dtype=torch.float64)
        for _ in range(3):
            assert reception.receive_sum(1, large, 2) == ""
        told = "too few rows came in round 1" if few else "no longer finite"
        with pytest.raises(UsageError, match=told):
            reception.advance()
        with pytest.raises(UsageError, match="are summed or absent"):
            reception.advance(absent=range(3), allow_failed=True)
        assert torch.equal(reception.advance(absent=[7], allow_failed=True), model)
        run = load_run(closed(reception).path)
    record = run.received[1]
    assert (record.counts, record.discarded, record.absent, len(record.rows)) == ((), 3, (7,), 0)
    (told,) = run.ledger.of_kind("round")[0]["told"]
    assert (told["rows"], told["discarded"], told["failed"]) == ([], 3, True)
    assert of_run(run)["replay"].verdict == "PASS"


def test_a_rejected_message_of_an_erased_client_is_not_recorded(messages, tmp_path):
    parent = messages("plain")
    with receive_child(parent, "retrain", Request.of([5]), tmp_path / "child", data=DATA, allow_inexact=True) as child:
        assert child.reject(5, "late") == Rejected(5, "late")
        assert child.receive(1, 5, [1.0]) == Rejected(5, "not in the round")
        assert child.reject(6, "late") == Rejected(6, "late")
        run = load_run(closed(child).path)
    assert run.received[1].rejected == ((6, "late"),)
    assert '"client":5' not in (run.path / "ledger.jsonl").read_text().replace(" ", "")


@pytest.mark.parametrize(
    ("columns", "right"),
    [([], True), ([0], True), ([0, 2, 4], True), ([5], False), ([-1, 2], False), ([2, 2], False), ([3, 1], False)],
)
def test_columns_ascend_each_once_within_the_row(columns, right):
    assert are_columns(torch.tensor(columns, dtype=torch.int64), 5) is right
    assert not are_columns(torch.tensor(columns, dtype=torch.float64), 5)


@pytest.mark.parametrize("agreed", [False, True])
def test_a_round_is_closed_without_a_list_of_its_columns(agreed):
    """Its record was compared with a set of all numbers of a model: ten million made a gigabyte a round."""
    dimension = 300_000
    inbox = Inbox((0, 1), {0, 1}, dimension, torch.float32, sums=False, agreeing=agreed)
    if agreed:
        inbox.agree(torch.arange(dimension))
    for client in (0, 1):
        assert inbox.row(client, torch.zeros(dimension)) is None
    tracemalloc.start()
    inbox.closed()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < dimension
