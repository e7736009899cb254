"""Sealed views of children: what an operator without the clients' keys can put in the place of an honest one."""

import json
import shutil
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from secure_transcripts import Kept as InMemory
from test_sealed import looked_at, messages, modelled, sealed_again, telling, without_attacks
from test_secured_runs import NOISY, QUANTISE, sealed_with_child, trained
from test_transcript_runs import parties
from tests_support import AUDIT_KEY, secret

from fuaudit import load_run, train, unlearn, verify
from fuaudit.errors import EvidenceError
from fuaudit.formats.forms import pretty_json
from fuaudit.plans import Request
from fuaudit.plans.availability import BoundedRoundRobin
from fuaudit.runs.layout import MANIFEST, VIEW, is_withheld
from fuaudit.secure.envelope import terms_of
from fuaudit.secure.messages import Message
from fuaudit.secure.suites import Suite
from fuaudit.secure.terms import Lot
from fuaudit.testing.tiny import tiny_dataset
from fuaudit.workflow.prune import prune
from fuaudit.workflow.seal import seal

LOUD = NOISY | {"client": [{"use": "gaussian-noise", "norm": 0.5, "noise": 1.0}, QUANTISE]}


@pytest.fixture(scope="module")
def lineage(tmp_path_factory):
    """A run, its child that forgets client 0, and their views, which nobody may change."""
    return sealed_with_child(tmp_path_factory.mktemp("lineage"), LOUD, "plain")


@pytest.fixture
def copied(lineage, tmp_path):
    """Copies of both views, of which that of the child is to be changed."""
    shutil.copytree(lineage[2].path.parent, tmp_path / "views")
    return [load_run(tmp_path / "views" / name) for name in ("parent", "child")]


def verdicts(view):
    return {one.audit: one for one in verify(view, without_attacks(), key=AUDIT_KEY, save=False).findings}


def planned(path, change):
    """A view with another plan."""
    plan = json.loads((path / "plan.json").read_text())
    change(plan)
    (path / "plan.json").write_bytes(pretty_json(plan))


def in_place_of(child, parent):
    """A child's view with all that its parent made; the ledger, the server's own word, does not tell of client 0."""
    for name in ("transcript", "checkpoints"):
        shutil.rmtree(child.path / name)
        shutil.copytree(parent.path / name, child.path / name)
    for name in ("model.safetensors", "metrics.json"):
        shutil.copy(parent.path / name, child.path / name)
    theirs = {event["round"]: event for event in parent.ledger.of_kind("round")}

    def course(event):
        if event["event"] != "round":
            return event
        one = theirs[event["round"]]
        return one | {"told": [told for told in one["told"] if told.get("client") != 0]}

    return sealed_again(child.path, course)


def test_an_honest_child_passes(copied):
    parent, child = copied
    assert looked_at(child, parent).verdict == "PASS"
    told = verdicts(child)
    assert (told["transcript"].verdict, told["provenance"].verdict) == ("PASS", "INCONCLUSIVE")


@pytest.mark.parametrize("segment", [[0, 0, 0, 1], [0, 0, 0, 0]], ids=["over whom is left", "over everybody"])
def test_a_child_that_copies_its_parent_is_found(copied, segment):
    """No key is needed for it. Rounds that draw what the parent drew have the parent's noise, or are the parent's."""
    parent, child = copied
    planned(child.path, lambda plan: plan.update(streams={name: [segment] for name in plan["streams"]}))
    told = verdicts(in_place_of(child, parent))
    assert (told["transcript"].verdict, told["provenance"].verdict) == ("FAIL", "FAIL")
    assert any("round 1, draws: " in line for line in told["transcript"].details)


def test_own_rounds_with_the_draws_of_the_parent_are_found(copied):
    """Its first model is drawn anew, so noise is too; its cohorts and batches are not."""
    _, child = copied
    planned(child.path, lambda plan: plan["streams"].update(batches=[[0, 0, 0, 1]]))
    told = verdicts(sealed_again(child.path))
    assert (told["transcript"].verdict, told["provenance"].verdict) == ("FAIL", "FAIL")
    assert "draws of one request over the population of another" in told["transcript"].details[0]


def rounds_of(child, training, clients):
    """Messages of own rounds in which other clients take part, as who has their keys can write them."""
    signers, keys, kept = parties(training), training.signatories.identities, InMemory()
    of = next(terms_of(one) for one in messages(child) if one.step == "terms")
    for number in child.own_rounds:
        lot = Lot(of.context, number, tuple(clients), tuple(keys[client].hex() for client in clients))
        for client in clients:
            element = training.lots.chain(client).element(len(child.requests) * child.law.rounds + number)
            kept.transcript.record(Message.signed("lot", client, element, lot, signers.clients[client]))
        rows = np.arange(len(clients) * of.columns, dtype=np.int64).reshape(len(clients), -1) % 50
        Suite("plain", len(clients)).opened(
            rows, of.bits, clients, at=(number, 0), signers=signers, record=kept.transcript.record,
            coordinates=of.coordinates, context=of.context,
        )  # fmt: skip
    return kept.messages()


def remade(view, training, clients):
    """A child's view in whose own rounds these clients take part, and whose models were made of their sums."""
    view = telling(view, rounds_of(view, training, clients))

    def course(event):
        told = [one for one in event.get("told", ()) if one.get("client", clients[0]) in clients]
        told = [one | ({"rows": [len(clients)]} if one["kind"] == "summed" else {}) for one in told]
        return event | ({"told": told} if event["event"] == "round" else {})

    view = sealed_again(view.path, course)
    for number in view.own_rounds:
        view = modelled(view, number)
    return view


def test_an_erased_client_in_rounds_of_a_child_is_found(lineage, copied):
    parent, child = copied
    found = looked_at(remade(child, lineage[0], (0, 1, 2, 3)), parent)
    assert found.verdict == "FAIL"
    assert found.details[0] == "round 1, lot: client 0 contributed to the lot of a round that it is not in"


def test_all_who_are_left_are_in_rounds_of_a_child_that_draws_everybody(lineage, copied):
    parent, child = copied
    assert looked_at(remade(child, lineage[0], (1, 2, 3)), parent).verdict == "PASS"
    found = looked_at(remade(child, lineage[0], (1, 2)), parent)
    assert found.verdict == "FAIL"
    assert "round 1, lot: 2 clients contributed to the lot, and the config draws 3 in this round" in found.details


SOME = LOUD | {
    "partition": {"use": "iid", "clients": 8},
    "learner": LOUD["learner"] | {"cohort": 5},
    "transport": {"use": "secure-sum", "size": 5},
}
"""Five of eight clients are drawn in each round."""
LONG = LOUD | {
    "learner": LOUD["learner"] | {"cohort": 2, "rounds": 5, "steps": 2, "batch": 1},
    "transport": {"use": "secure-sum", "size": 2},
    "run": LOUD["run"] | {"requests": 4},
}


@pytest.fixture(scope="module")
def of_some(tmp_path_factory):
    """A run of eight clients, a child that forgets three of them, and their views."""
    folder = tmp_path_factory.mktemp("some")
    (folder / "views").mkdir()
    parent = trained(folder / "parent", SOME, "plain")
    child = unlearn(parent, "retrain", Request.of([0, 1, 2]), folder / "child", data=tiny_dataset())
    return [parent, child, *(seal(run, folder / "views" / run.path.name) for run in (parent, child))]


@pytest.mark.parametrize("clients", [(3, 4, 5), (3, 4, 5, 6)], ids=["two less", "one less"])
def test_rounds_of_a_child_have_as_many_clients_as_its_law_draws(of_some, tmp_path, clients):
    """Five are left of eight, and five are drawn: so everybody. Fewer hide a row from fewer colluders."""
    parent, view = of_some[2], load_run(shutil.copytree(of_some[3].path, tmp_path / "child"))
    assert looked_at(view, parent).verdict == "PASS"
    found = looked_at(remade(view, of_some[0], clients), parent)
    assert (found.verdict, found.details[0].split(", ", 2)[1:]) == (
        "FAIL", [f"lot: {len(clients)} clients contributed to the lot", "and the config draws 5 in this round"],
    )  # fmt: skip


def test_where_a_method_recorded_draws_numbers_of_clients_are_not_known(of_some, tmp_path):
    """Its record is not in a view. A server can say that there was one, and then nothing passes."""
    parent, view = of_some[2], load_run(shutil.copytree(of_some[3].path, tmp_path / "child"))
    view = remade(view, of_some[0], (3, 4, 5))
    files = json.loads((view.path / MANIFEST).read_text())["files"]
    files["recorded.safetensors"] = files["partition.safetensors"]
    (view.path / MANIFEST).write_bytes(pretty_json({"files": files}))
    found = looked_at(sealed_again(view.path), parent)
    assert (found.verdict, "A method recorded draws" in found.shows) == ("INCONCLUSIVE", True)


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["retrain", "fats"])
def test_honest_children_and_grandchildren_pass(tmp_path, method):
    """By client and by sample: also a round that is cut inside, whose cohort was drawn before."""
    (tmp_path / "views").mkdir()
    runs = [trained(tmp_path / "parent", LONG, "plain")]
    mine = runs[0].original.samples
    for number, request in enumerate([([], mine[3][:1]), ([], mine[2][1:2]), ([0], []), ([1], mine[2][:1])]):
        runs.append(
            unlearn(
                runs[-1], method, Request.of(*request), tmp_path / f"child {number}", data=tiny_dataset(),
                allow_inexact=True,
            )
        )  # fmt: skip
    views = [seal(run, tmp_path / "views" / run.path.name) for run in runs]
    changes = [run.info["first_change"] for run in runs[1:]]
    assert (method == "retrain") == all(change == [0, 0] for change in changes)
    assert (method == "fats") == any(step for _, step in changes)
    for parent, child in pairwise(views):
        told = verdicts(child)
        assert told["provenance"].verdict == "INCONCLUSIVE", told["provenance"].details
        found = looked_at(child, parent)
        assert found.verdict == ("PASS" if child.own_rounds else "INCONCLUSIVE"), (found.shows, found.details)


@pytest.fixture(scope="module")
def of_samples(tmp_path_factory):
    """Views of a run, of its child by a request for a sample, and of a grandchild by one for another; and the runs."""
    folder = tmp_path_factory.mktemp("samples")
    (folder / "views").mkdir()
    runs = [trained(folder / "run", LOUD, "plain")]
    for number, sample in enumerate(runs[0].original.samples[0][:2]):
        name = folder / f"child {number}"
        runs.append(unlearn(runs[-1], "retrain", Request.of([], [sample]), name, data=tiny_dataset()))
    return runs, [seal(run, folder / "views" / run.path.name) for run in runs]


def with_contexts(path, *contexts):
    table = json.loads((path / VIEW).read_text())
    (path / VIEW).write_bytes(pretty_json(table | {"contexts": [*contexts]}))


def test_the_context_of_a_parent_is_not_that_of_its_child(of_samples, tmp_path):
    """Of requests for samples it is as told. Under its parent's all messages of the parent would be the child's."""
    path = shutil.copytree(of_samples[1][2].path, tmp_path / "child")
    with_contexts(path, *[of_samples[1][1].contexts[1]] * 2)
    with pytest.raises(EvidenceError, match="has one context of two requests"):
        load_run(path)


def test_contexts_go_on_from_those_of_the_parent(of_samples, tmp_path):
    whole, views = of_samples
    assert verdicts(views[2])["transcript"].verdict == "PASS"
    shutil.copytree(views[2].path.parent, tmp_path / "views")
    path = tmp_path / "views" / "child 1"
    with_contexts(path, "ab" * 32, views[2].contexts[2])
    told = verdicts(path)
    assert (told["transcript"].verdict, told["provenance"].verdict) == ("FAIL", "FAIL")
    assert told["transcript"].details[-1].startswith("context: ")
    # its own is as told, and a PASS says so; whoever has the partition of the parent can make it
    with_contexts(path, views[2].contexts[1], "ab" * 32)
    assert not any(line.startswith("context: ") for line in looked_at(load_run(path), views[1]).details)
    assert any("Under another one messages" in line for line in looked_at(views[2], views[1]).assumptions)
    assert any(line.startswith("context: ") for line in looked_at(load_run(path), whole[1]).details)
    assert looked_at(views[2], whole[1]).verdict == "PASS"


@pytest.mark.parametrize(
    "segments",
    [
        [[0, 0, 0, 0], [1, 1, 0, 0]],
        [[0, 0, 0, 0], [3, 0, 1, 1]],
        [[0, 0, 0, 0], [1, 2, 1, 1]],
    ],
    ids=["one that changes nothing", "behind the last round", "behind the last step"],
)
def test_a_plan_has_no_room_in_segments_that_change_nothing(copied, segments):
    _, child = copied
    planned(child.path, lambda plan: plan["streams"].update(batches=segments))
    with pytest.raises(EvidenceError, match=r"segments in plan\.json that change nothing, or where nothing is drawn"):
        sealed_again(child.path)


def test_a_plan_that_goes_back_to_draws_that_were_given_up_is_as_told(of_samples, tmp_path):
    """No method of fuaudit goes back. One of another package may, and a server could write in such a plan."""
    _, views = of_samples
    child = load_run(shutil.copytree(views[1].path, tmp_path / "child"))
    planned(child.path, lambda plan: plan["streams"].update(batches=[[0, 0, 1, 1], [2, 0, 0, 0], [2, 1, 1, 1]]))
    found = looked_at(sealed_again(child.path), views[0])
    assert (found.verdict, "goes back to draws" in found.shows) == ("INCONCLUSIVE", True)


def test_words_and_doubts_of_a_method_are_compared_in_a_view_too(copied):
    _, child = copied
    info = json.loads((child.path / "run.json").read_text())
    for other in (info | {"doubts": ["abc"]}, info | {"unlearner": info["unlearner"] | {"cite": "abc"}}):
        (child.path / "run.json").write_bytes(pretty_json(other))
        told = verdicts(sealed_again(child.path))
        assert told["provenance"].verdict == "FAIL", told["provenance"].details


def test_what_is_as_told_of_a_child_is_among_what_integrity_rests_on(of_samples, lineage):
    for view, named in ((of_samples[1][1], [1, 1]), (lineage[3], [1, 0]), (lineage[2], [0, 0])):
        lines = verdicts(view)["integrity"].assumptions
        told = ("says of its method is as told here", "which samples requests name: 1 number,")
        assert [sum(words in line for line in lines) for words in told] == named


def test_sizes_in_a_manifest_tell_of_an_erased_client_after_a_prune(tmp_path):
    """The limit: with as many rows in all, and another number of hers, the file of salts has another size."""
    sizes = []
    for rows in (2, 5):
        folder = tmp_path / f"{rows}"
        (folder / "views").mkdir(parents=True)
        owners = torch.tensor([c for c, count in enumerate((rows, 12 - rows, 6, 6)) for _ in range(count)])
        data = replace(tiny_dataset(), owners=owners, owner_names=("Ann", "Bob", "Cid", "Dan"))
        tables = LOUD | {"partition": {"use": "by-owner"}}
        parent = train(tables, folder / "parent", data, secret(1), secure="plain")
        unlearn(parent, "retrain", Request.of([0]), folder / "child", data=data)
        pruned, _ = prune(load_run(folder / "child"))
        files = json.loads((seal(pruned, folder / "views" / "child").path / MANIFEST).read_text())["files"]
        sizes.append({name: entry["size"] for name, entry in files.items() if is_withheld(name)})
    assert {name for name in sizes[0] if sizes[0][name] != sizes[1][name]} >= {"clients/secrets.json"}


PERIODS = LOUD | {
    "partition": {"use": "iid", "clients": 7},
    "learner": {"use": "dropouts", "rounds": 4, "steps": 1, "batch": 2, "step_size": 0.2, "scenario": "round-robin"}
    | {"tau_max": 4, "first_all": False, "phase": "drawn"},
    "solver": {"use": "sgd"},
    "transport": {"use": "secure-sum", "size": 2},
}


def of_periods(folder):
    """A training by periods, a client who comes late, and one who is always there; so that one round has both."""
    for number in range(1, 60):
        run = trained(folder / f"run-{number}", PERIODS, "plain", number)
        cohorts = run.participation["cohorts"]
        first = {who: min((n for n, some in enumerate(cohorts, 1) if who in some), default=9) for who in run.members}
        late = [who for who, at in first.items() if at == 4]
        always = [who for who in run.members if all(who in some for some in cohorts)]
        if late and always and len({*cohorts[3]} - {late[0]}) >= 4:
            return run, late[0], always[0]
    raise AssertionError("no training has such clients")


def test_clients_of_a_child_are_there_as_they_were_in_its_parent(tmp_path, monkeypatch):
    """A period is kept: one own round allows any, and with the parent's rounds none does."""
    run, late, always = of_periods(tmp_path)
    parent, honest, asked = seal(run, tmp_path / "parent"), BoundedRoundRobin.cohort, Request.of([late])
    fair = unlearn(run, "fats", asked, tmp_path / "fair", data=tiny_dataset(), allow_inexact=True)
    assert [*fair.own_rounds] == [4]
    assert looked_at(seal(fair, tmp_path / "fair-view"), parent).verdict == "PASS"

    def without(law, draws, number, clients):
        came = honest(law, draws, number, clients)
        return tuple(client for client in came if (number, client) != (4, always))

    with monkeypatch.context() as forging:
        forging.setattr(BoundedRoundRobin, "cohort", without)
        child = unlearn(run, "fats", asked, tmp_path / "child", data=tiny_dataset(), allow_inexact=True)
        view = seal(child, tmp_path / "child-view")
    found = looked_at(load_run(view.path), parent)
    assert found.verdict == "FAIL"
    assert f"lot: client {always} was there in 1, 2, 3, 4, and away in 4" in found.details[0]
