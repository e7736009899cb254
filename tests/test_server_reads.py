"""What the server can read of a run behind sums: every file is walked, for rows, accuracies and digests of one client.

The same walk finds them in what auditors are given, in the clear, and where clients have no secrets.
"""

import json
import re
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import product

import numpy as np
import pytest
import torch
from fuaudit_plugins.error_feedback import ErrorFeedback
from tests_support import deliveries, in_messages, secret

from fuaudit import train, unlearn
from fuaudit.commitments.contents import row_digests, row_leaf
from fuaudit.data.dataset import Dataset
from fuaudit.formats.forms import as_tensors, parse_arrays, pretty_json, tensor_bytes
from fuaudit.formats.schema import is_text_of_share
from fuaudit.plans import Request
from fuaudit.plans.stacked import LazySchedule
from fuaudit.runs.layout import INVOLVEMENT, LEDGER, MANIFEST, PARTITION, Reader, file_of, names_in
from fuaudit.testing.tiny import tiny_config
from fuaudit.training.exchange import Clear
from fuaudit.training.execute import execute, initial_state
from fuaudit.training.setup import setup
from fuaudit.training.stages import Chain
from fuaudit.workflow.prune import prune

CLIENTS, GONE = 8, 5
LEARNER = {"use": "fedrep", "cohort": CLIENTS, "steps": 1, "batch": 4, "step_size": 0.5}
STAGES = [{"use": "error-feedback"}, {"use": "consensus", "per_client": 4}, {"use": "quantise"}]
SUMS = {"use": "secure-sum", "size": 2}


def dataset():
    """56 training rows, so accuracies of clients are sevenths, and 12 test rows."""
    generator = torch.Generator().manual_seed(7)
    inputs = torch.rand(68, 4, generator=generator)
    targets = (inputs.argmax(dim=1) + torch.randint(0, 2, (68,), generator=generator)) % 4
    return Dataset(inputs[:56], targets[:56], inputs[56:], targets[56:], 4)


def made(folder, rounds=3, data=None, **changes):
    table = tiny_config(
        data={"use": "tensors", "classes": 4},
        partition={"use": "iid", "clients": CLIENTS},
        learner=LEARNER | {"rounds": rounds},
        **{"client": STAGES, "transport": SUMS, "server": [{"use": "krum", "byzantine": 0}, {"use": "momentum"}]}
        | changes,
    )
    return train(table, folder, data=data or dataset(), secret=secret(3))


@dataclass(frozen=True)
class Recording(ErrorFeedback):
    """Error feedback that keeps, for the test, every row that comes to it and all that was sent of it."""

    rows: list = field(default_factory=list)

    def apply(self, updates, context, state):
        self.rows.extend(updates)
        return super().apply(updates, context, state)

    def settle(self, sent, answer, context, state):
        self.rows.extend(context.on_all(sent))
        return super().settle(sent, answer, context, state)


def rows_of_clients(run):
    """Every update, what was sent of it, and all that clients keep, of each client and round."""
    ready, plan = setup(run.config, dataset()), run.plan
    first, *stages = ready.procedure.exchange.client_stages.stages
    assert type(first) is ErrorFeedback
    recording = Recording()
    exchange = replace(ready.procedure.exchange, client_stages=Chain((recording, *stages)))
    procedure = replace(ready.procedure, exchange=exchange)
    population, schedule = plan.retained, LazySchedule([plan], run.rounds_executed)
    start = initial_state(procedure, [plan], population, ready.device)
    draws = run.stage_draws(plan)
    problem = ready.client_problem(population)
    states = [one for _, one in execute(procedure, problem, population, schedule, start, ready.engine, 1, draws)]
    assert torch.equal(states[-1].vectors[0], run.model)
    kept = [
        row for one in states for name, table in one.state.items() if name.startswith("client.") for row in table[0]
    ]
    return [row for row in (*recording.rows, *kept) if row.numel() > 1 and bool(row.any())]


def accuracies(run):
    """Those of single clients that no whole number is."""
    return {share for share in run.own_accuracy.values() if share} - {1.0}


@dataclass
class Walked:
    """Numbers, digests and rows of numbers in some files."""

    numbers: set = field(default_factory=set)
    digests: set = field(default_factory=set)
    rows: list = field(default_factory=list)

    def tables(self, value):
        """All of a document."""
        if isinstance(value, dict | list):
            for inner in value.values() if isinstance(value, dict) else value:
                self.tables(inner)
        elif isinstance(value, float) or is_text_of_share(value):
            self.numbers.add(float(value))

    def file(self, path):
        content = path.read_bytes()
        self.digests |= set(re.findall(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])", content))
        if path.suffix == ".safetensors":
            named = as_tensors(parse_arrays(content, path))
            if "coordinates" in named:  # what was sent of rows, on all columns
                (model,) = vectors(path.parents[1] / "checkpoints/000000.safetensors")
                whole = torch.zeros(len(named["rows"]), len(model))
                named |= {"rows": whole.index_copy(1, named["coordinates"], named["rows"])}
            tensors = named.values()
            self.rows += [row for one in tensors if one.is_floating_point() for row in one.reshape(-1, one.shape[-1])]
        elif path.suffix != ".toml":
            for line in content.splitlines() if path.name == LEDGER else [content]:
                self.tables(json.loads(line))


def walked(folders, reader):
    """What a reader finds in the files of some runs; models of one run are subtracted from each other, too."""
    found = Walked()
    for folder in folders:
        names = [name for name in names_in(folder) if file_of(name).is_for(reader)]
        assert names
        for name in names:
            found.file(folder / name)
        models = [row for name in names if name.startswith("checkpoints/") for row in vectors(folder / name)]
        found.rows += [one - other for one in models for other in models if one is not other]
    return found


def vectors(path):
    return [as_tensors(parse_arrays(path.read_bytes(), path))["vector"]]


def found_rows(walk, rows):
    """How many rows of clients are among those that were walked, times whatever number."""
    there = torch.stack([row.double() for row in walk.rows if row.numel() == len(rows[0]) and bool(row.any())])
    ours = torch.stack([row.double() for row in rows])
    cosine = torch.nn.functional.normalize(there) @ torch.nn.functional.normalize(ours).T
    return int((cosine.abs() > 1 - 1e-9).any(dim=0).sum())


def unsalted(run, name):
    """The tensors of a file as somebody guesses them who has no salt."""
    return {key: array for key, array in run.arrays(name).items() if key != "salt"}


def digests_of(run, rows):
    """Digests that say of one client's rows what they are, to who guesses them; no salt is in them."""
    data = dataset()
    told = {sha256(row.to(kind).numpy().tobytes()) for row in rows for kind in (torch.float32, torch.float64)}
    leaves = row_digests(data.inputs, data.targets)
    told |= {sha256(leaf) for leaf in leaves} | {sha256(one.numpy().tobytes()) for one in data.inputs}
    bare = {name: value for name, value in run.participation.items() if name != "salt"}
    told |= {sha256(pretty_json(bare))}
    told |= {sha256(tensor_bytes(unsalted(run, name))) for name in (PARTITION, INVOLVEMENT)}
    leaves += [row_leaf(b"", number, leaf) for number, leaf in enumerate(leaves)]
    return {one.hexdigest().encode() for one in told} | {leaf.hex().encode() for leaf in leaves}


@pytest.fixture(scope="module")
def lineage(tmp_path_factory):
    """A run behind sums, and what is left of it and its child when it has forgotten a client; with what must be hid."""
    folder = tmp_path_factory.mktemp("sums")
    run = made(folder / "run")
    before = walked([run.path], Reader.SERVER)
    auditors = walked([run.path], Reader.AUDITOR)
    rows = rows_of_clients(run)
    hidden = rows, accuracies(run), digests_of(run, rows)
    child = unlearn(run, "fats", Request.of([GONE]), folder / "child", data=dataset())
    own = rows_of_clients(child)
    whole = walked([run.path, child.path], Reader.SERVER)
    pruned, tombstones = prune(child)
    after = walked([pruned.path, *tombstones], Reader.SERVER)
    hidden = hidden[0] + own, hidden[1] | accuracies(pruned), hidden[2] | digests_of(pruned, own)
    return hidden, auditors, {"run": before, "run and child": whole, "pruned": after}


STEPS = {"sgd": {"use": "sgd"}, "dpsgd": {"use": "dpsgd", "norm": 1.0, "noise": 1e-6}}
"""Where steps have noise everybody takes some, also who has no samples; this noise hides nothing."""


@pytest.fixture(scope="module", params=STEPS)
def emptied(request, tmp_path_factory):
    """What is left where a client keeps its place and has no samples: its row is 0 or noise, and hides nobody."""
    folder = tmp_path_factory.mktemp("emptied")
    krum = [{"use": "krum", "byzantine": 0}]
    run = made(folder / "run", rounds=12, server=krum, solver=STEPS[request.param])
    owner = run.plan.retained.owner
    wish = Request.of(samples=[sample for sample in owner if owner[sample] == GONE])
    child = unlearn(run, "fats", wish, folder / "child", data=dataset())
    assert not child.plan.retained.samples[GONE]
    own = rows_of_clients(child)
    return own, child, walked([child.path], Reader.SERVER)


@pytest.mark.thorough
def test_the_server_reads_nothing_of_one_client_whose_partner_was_emptied(emptied):
    """Krum publishes one buffer as it is: with an emptied client in it, it would be half of its partner's row."""
    rows, child, walk = emptied
    told = [event for line in child.ledger.of_kind("round") for event in line["told"]]
    silent = {event["client"] for event in told if event["kind"] == "sent" and not event["size"]}
    assert silent == (set() if child.config.solver["use"] == "dpsgd" else {GONE})
    assert all(event["discarded"] == 1 for event in told if event["kind"] == "summed")
    assert walk.rows
    assert found_rows(walk, rows) == 0
    assert not walk.numbers & accuracies(child)
    assert not walk.digests & digests_of(child, rows)


def test_a_round_that_fails_for_its_rule_opens_no_sum(tmp_path):
    """Over a model that stays each round would open sums of other buffers: all rows would follow from them."""
    run = made(tmp_path / "run", client=STAGES[:1], server=[{"use": "krum", "byzantine": 1}])
    child = unlearn(run, "retrain", Request.of([1, GONE]), tmp_path / "child", data=dataset())
    assert child.model.equal(child.checkpoint(0)[0])
    assert {len(rows) for rows, *_ in deliveries(run, dataset()).values()} == {CLIENTS // 2}
    assert {len(rows) for rows, *_ in deliveries(child, dataset()).values()} == {0}
    told = [event for line in child.ledger.of_kind("round") for event in line["told"]]
    assert [(event["kind"], event.get("failed")) for event in told] == [("summed", True)] * 3


@pytest.mark.parametrize("which", ["run", "run and child", "pruned"])
def test_the_server_reads_nothing_of_one_client(lineage, which):
    (rows, shares, digests), _, walks = lineage
    walk = walks[which]
    assert walk.rows
    assert walk.numbers
    assert walk.digests
    assert found_rows(walk, rows) == 0
    assert not walk.numbers & shares
    assert not walk.digests & digests


def test_the_server_reads_sums_of_a_run_of_messages(lineage, tmp_path):
    """What came behind sums is recorded: means of two, no row, and no memory."""
    (rows, shares, digests), _, _ = lineage
    simulated = made(tmp_path / "simulated")
    run = in_messages(simulated, tmp_path / "run", dataset(), secret(3))
    assert run.model.equal(simulated.model)
    walk, rows = walked([run.path], Reader.SERVER), rows_of_clients(simulated)
    records = [walked_record(run, number) for number in run.received_rounds]
    assert sum(len(one) for one in records) == 3 * CLIENTS // 2
    assert found_rows(walk, rows) == 0
    assert not walk.numbers & shares
    assert not walk.digests & digests
    assert found_rows(walk, [records[0][0]]) == 1


def walked_record(run, number):
    """The means that a record holds, on all columns."""
    found = run.received[number]
    return torch.zeros(len(found.rows), len(run.model)).index_copy(1, found.coordinates, found.rows)


def test_the_walk_finds_what_auditors_are_given(lineage):
    (rows, shares, _), auditors, _ = lineage
    assert found_rows(auditors, rows) > 2 * CLIENTS
    assert shares & auditors.numbers


def test_the_walk_finds_what_other_rounds_show(tmp_path):
    """In the clear one client's row can be the answer; without secrets no salt is in what tells accuracies."""
    run = made(tmp_path / "clear", transport={"use": "clear"}, server=[{"use": "krum", "byzantine": 0}])
    assert type(run.exchange.transport) is Clear
    assert found_rows(walked([run.path], Reader.SERVER), rows_of_clients(run)) > 0
    solver = {"use": "sgd"}
    open_run = made(tmp_path / "open", client=[], transport={"use": "clear"}, solver=solver, server=[{"use": "mean"}])
    assert walked([open_run.path], Reader.SERVER).digests & digests_of(open_run, [torch.ones(1)])
    assert walked([open_run.path], Reader.SERVER).digests & {
        sha256(tensor_bytes(unsalted(open_run, INVOLVEMENT))).hexdigest().encode()
    }


def guessed(run):
    """Which samples were used, by the digest that everybody may read: found where no salt is in it."""
    told = json.loads((run.path / MANIFEST).read_text())["files"][INVOLVEMENT]["sha256"]
    owned, clients = run.plan.retained.samples, run.arrays(INVOLVEMENT)["clients"]
    for picked in product(*owned.values()):
        samples = np.array([[sample, 1, 1] for sample in sorted(picked)], dtype=np.int64)
        if sha256(tensor_bytes({"clients": clients, "samples": samples})).hexdigest() == told:
            return set(picked)
    return None


def test_no_digest_confirms_a_guess_of_who_used_which_sample(tmp_path):
    """Four clients with two samples each, and one batch of one: 16 guesses."""
    rows = torch.rand(16, 4, generator=torch.Generator().manual_seed(1))
    data = Dataset(rows[:8], torch.arange(8) % 4, rows[8:], torch.arange(8) % 4, 4, owners=torch.arange(8) // 2)
    for name, stages in (
        ("sums", {"client": STAGES, "transport": SUMS}),
        ("open", {"client": [], "solver": {"use": "sgd"}}),
    ):
        table = tiny_config(
            data={"use": "tensors", "classes": 4},
            partition={"use": "by-owner"},
            learner=LEARNER | {"rounds": 1, "cohort": 4, "batch": 1},
            server=[{"use": "mean"}],
            **stages,
        )
        run = train(table, tmp_path / name, data, secret(3))
        used = {*run.arrays(INVOLVEMENT)["samples"][:, 0].tolist()}
        assert guessed(run) == (None if name == "sums" else used)


def test_no_size_tells_how_well_a_client_is_served(tmp_path):
    """One row with another label changes accuracies, and no size that the server reads."""
    told = {}
    for label in range(4):
        data = dataset()
        data.targets[3] = label
        run = made(tmp_path / str(label), data=data)
        files = json.loads((run.path / MANIFEST).read_text())["files"]
        sizes = {name: entry["size"] for name, entry in files.items() if not file_of(name).is_for(Reader.SERVER)}
        told[tuple(run.own_accuracy.values())] = sizes
    assert len(told) > 1
    assert all(sizes == next(iter(told.values())) for sizes in told.values())
