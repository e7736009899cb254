"""A forger keeps the original model, bit for bit, in a run that he says was pruned.

He unlearns client TARGET and prunes. Then he gives her images and labels to a client who never was drawn, and writes
draws down in which that client stands in her places: the run makes the original model out of what it calls retained
data, and by its own draws she never took part. He makes every file follow, and manifests and ledger fit. The auditor
has the commitment, the request, and the forger's data or the honest one.
"""

import json
from dataclasses import replace

import pytest
import torch
from tests_support import AUDIT_KEY, config, edit, remade, secret

from fuaudit import train, unlearn, verify
from fuaudit.data.images import Digits
from fuaudit.draws import Address, Purpose
from fuaudit.errors import EvidenceError
from fuaudit.formats.forms import tensor_bytes
from fuaudit.plans import Population, Request
from fuaudit.plans.plan import occurrences
from fuaudit.runs.encoding import population_tensors, recorded_tensors
from fuaudit.workflow.prune import prune

TARGET, OTHER = 0, 5
"""With this secret the one is drawn in round 5 first, the other never."""


@pytest.fixture
def parent(tmp_path):
    return train(config(run={"checkpoint_every": 1}), tmp_path / "parent", secret=secret(3))


@pytest.fixture
def pruned(parent, tmp_path):
    keys, original = (parent.path / "keys.json").read_bytes(), parent.model
    child, _ = prune(unlearn(parent, "fats", Request.of([TARGET]), tmp_path / "child"))
    return child, keys, original


@pytest.fixture
def asked(parent, quick):
    commitment = parent.commitment

    def work(run, data=None):
        options = {"data": data, "commitment": commitment, "request": Request.of([TARGET])}
        result = verify(run, quick, key=AUDIT_KEY, save=False, **options)
        return result.verdict, {finding.audit: finding for finding in result.findings}

    return work


def exchanged(parent):
    """Digits, where the rows of OTHER hold what those of TARGET do."""
    data = Digits().load(None)
    owned = parent.original.samples
    inputs, targets = data.inputs.clone(), data.targets.clone()
    hers, his = list(owned[TARGET]), list(owned[OTHER])[: len(owned[TARGET])]
    inputs[his], targets[his] = data.inputs[hers], data.targets[hers]
    return replace(data, inputs=inputs, targets=targets)


def renamed(parent):
    """The draws of the parent, with OTHER in the places of TARGET, and the same rows by their place in his list."""
    owned = parent.original.samples
    places = dict(zip(owned[TARGET], owned[OTHER], strict=False))
    answers = {}
    for round_number in range(1, 9):
        cohort = parent.plan.cohort(round_number)
        answers[Address(Purpose.COHORT, round_number)] = tuple(OTHER if c == TARGET else c for c in cohort)
        for client, occurrence in occurrences(cohort):
            for step in (1, 2):
                at = Address(Purpose.BATCH, round_number, step, OTHER if client == TARGET else client, occurrence)
                answers[at] = tuple(
                    places.get(row, row) for row in parent.plan.batch(round_number, step, client, occurrence)
                )
    return answers


def from_the_start(events):
    """Rounds 1 to 8 are told of as executed by the child, on one platform."""
    events = [event for event in events if event["event"] != "round"]
    last = [event | {"since": 0} for event in events if event["event"] == "platform"][-1]
    for event in events:
        if event["event"] == "unlearning":
            event = event | {"first_change": [0, 0], "kept_rounds": 0}
        if event["event"] != "platform":
            yield event
    yield last
    for number in range(1, 9):
        yield {"event": "round", "round": number}


def recorded(parent, path, data):
    """The forged run: all draws are those of a record in the place of one generation of seeds."""
    streams = {"initial": [[0, 0, 0, 0]], "cohorts": [[0, 0, 1, 1]], "batches": [[0, 0, 1, 1]]}
    edit(path, "plan.json", streams=streams)
    (path / "recorded.safetensors").write_bytes(tensor_bytes(recorded_tensors({1: renamed(parent)})))
    edit(path, "run.json", first_change=[0, 0])
    return remade(path, from_the_start, data)


@pytest.mark.parametrize("all_is_forged", [True, False], ids=["his data", "honest data"])
def test_draws_that_were_written_down(parent, pruned, asked, all_is_forged):
    """Recorded by a method that records nothing; and on honest data it is no computation at all."""
    child, _, original = pruned
    data = exchanged(parent)
    forged = recorded(parent, child.path, data)
    assert torch.equal(forged.model, original)
    assert TARGET not in {client for round_number in range(1, 9) for client in forged.plan.cohort(round_number)}
    verdict, found = asked(forged, data if all_is_forged else None)
    assert verdict == found["provenance"].verdict == found["replay"].verdict == "FAIL"
    words = "not what was committed to" if all_is_forged else "not what the plan makes"
    assert words in found["replay"].shows


def test_seeds_of_another_tree(parent, pruned, asked, tmp_path):
    """The seeds that he keeps are of a run in which she never was drawn; their root is not the one committed to."""
    child, _, _ = pruned
    tried = train(config(run={"checkpoint_every": 1}), tmp_path / "tried", secret=secret(1))
    keys = json.loads((child.path / "keys.json").read_bytes())
    edit(child.path, "keys.json", **(keys | {"seeds": tried.keys.seeds.as_rows()}))
    with pytest.raises(EvidenceError, match="lacks the key of its partition"):
        remade(child.path)
    cut = tried.keys.seeds.keeping([range(tried.keys.seeds.size - 1)])
    edit(child.path, "keys.json", **(keys | {"seeds": cut.as_rows()}))
    verdict, found = asked(remade(child.path))
    assert verdict == found["provenance"].verdict == "FAIL"
    assert "does not hold the seeds, config and contents that it committed to" in found["provenance"].shows


def test_it_was_never_drawn_says_the_run(parent, pruned, asked):
    """All draws are those of training, from seeds that the forger kept, and nothing ever changed."""
    child, keys, _ = pruned
    (child.path / "keys.json").write_bytes(keys)
    edit(child.path, "plan.json", streams={name: [[0, 0, 0, 0]] for name in ("initial", "cohorts", "batches")})
    edit(child.path, "run.json", first_change=[9, 0])
    with pytest.raises(EvidenceError):
        asked(remade(child.path, lambda events: events))


def test_she_goes_on_under_another_number(parent, pruned, asked):
    """The same with her rows under a client whom no request names."""
    child, keys, _ = pruned
    clients = dict(parent.original.samples)
    clients[10] = clients.pop(TARGET)
    (child.path / "partition.safetensors").write_bytes(tensor_bytes(population_tensors(Population(clients))))
    (child.path / "keys.json").write_bytes(keys)
    edit(child.path, "plan.json", streams={name: [[0, 0, 0, 0]] for name in ("initial", "cohorts", "batches")})
    with pytest.raises(EvidenceError, match="clients have other ids than"):
        asked(remade(child.path))
