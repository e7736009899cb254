"""Platforms: honest runs made, resumed, unlearned and audited where bits differ never FAIL; forged ones still do."""

import json
import os
import platform
import shutil
import subprocess
import sys
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import combinations
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from tests_support import AUDIT_KEY, audits, changed, claimed, secret, told

from fuaudit import load_run, train, unlearn
from fuaudit.audits.lineage.audit import Lineage
from fuaudit.audits.provenance import Provenance
from fuaudit.audits.replay.audit import Replay
from fuaudit.config import resolve
from fuaudit.data.dataset import Dataset, padded
from fuaudit.draws import END, Keyed
from fuaudit.errors import EvidenceError
from fuaudit.plans import Request
from fuaudit.registry import build
from fuaudit.runs.ancestors import parent_of
from fuaudit.runs.derived_files import derived_files
from fuaudit.runs.encoding import digest_of_vector
from fuaudit.runs.platforms import Platform, makers, makers_of, platforms_kept, platforms_of, versions
from fuaudit.training.canary import _words, canary
from fuaudit.training.engines.reference import Reference
from fuaudit.training.exchange import Exchange
from fuaudit.training.setup import setup
from fuaudit.training.stages import Chain
from fuaudit.unlearning.apply import edited
from fuaudit.verification.case import Case
from fuaudit.verification.evidence import Evidence, Known
from fuaudit.verification.gather import gather
from fuaudit.verification.rerun import EQUAL_BITS
from fuaudit.workflow.prune import prune
from fuaudit.workflow.resume import resume

BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "platforms.py"


@pytest.fixture(scope="module")
def images():
    """Digits as images, for models of every kind."""
    flat = build("datasets", {"use": "digits"}).load(None)
    return replace(flat, inputs=flat.inputs.view(-1, 1, 8, 8), test_inputs=flat.test_inputs.view(-1, 1, 8, 8))


def tables(**changes):
    learner = {"use": "fats", "rounds": 6, "cohort": 2, "steps": 2, "batch": 8, "step_size": 0.1}
    table = {
        "data": {"use": "tensors", "classes": 10},
        "partition": {"use": "iid", "clients": 10},
        "model": {"use": "cnn", "channels": [4]},
        "learner": learner | changes.pop("learner", {}),
        "run": {"checkpoint_every": 2, "engine": "reference", "device": "cpu"} | changes.pop("run", {}),
    }
    return table | changes


def ready(images, **changes):
    return setup(resolve(tables(**changes)), images)


@contextmanager
def another_library():
    """Convolutions by another library than oneDNN, in this process: other bits under the same versions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = torch.backends.mkldnn.set_flags(_enabled=False)
        try:
            yield
        finally:
            torch.backends.mkldnn.set_flags(*before)


# processes of their own

OTHERS = {"MKL_CBWR": "COMPATIBLE"}, {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"}
"""Settings under which the libraries take another path; the first is told by no version."""


def done(setting, *steps):
    """What steps of the benchmark give in a process of its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **setting}
    work = [{"engine": "threads", **{name: str(value) for name, value in step.items()}} for step in steps]
    process = subprocess.run(
        [sys.executable, BENCHMARK, "--work"],
        input=json.dumps(work),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])


@pytest.mark.thorough
def test_honest_runs_under_settings_of_the_matrix_library(tmp_path):
    """Trained and begun under one setting, gone on with under another, audited there and under a third: no FAIL."""
    models = ("linear", "mlp", "cnn")

    def trained(where):
        return [{"do": "train", "model": model, "run": tmp_path / f"{model}-{where}"} for model in models]

    begun = [{"do": "begin", "model": model, "run": tmp_path / f"{model}-begun"} for model in models]
    goes_on = [{"do": "resume", "run": tmp_path / f"{model}-begun"} for model in models] + [
        {"do": "unlearn", "parent": tmp_path / f"{model}-first", "run": tmp_path / f"{model}-child"} for model in models
    ]
    looks = [{"do": "audit", "run": tmp_path / f"{model}-{what}"} for model in models for what in ("begun", "child")]
    straight = [{"do": "audit", "run": tmp_path / f"{model}-first"} for model in models]
    one = done(OTHERS[0], *trained("first"), *begun)
    two = done({}, *trained("second"), *goes_on, *straight, *looks)
    three = done(OTHERS[1], *trained("third"), *looks)
    found = [*two[9:], *three[3:]]
    assert len(found) == 15
    for verdicts in found:
        assert "FAIL" not in verdicts.values(), verdicts
        assert verdicts["integrity"] == verdicts["provenance"] == "PASS"
    differing = 0
    for place in range(len(models)):
        for a, b in combinations((one[place], two[place], three[place]), 2):
            if (a["model"], a["metrics"]) != (b["model"], b["metrics"]):
                assert a["canary"] != b["canary"]
                differing += 1
    if platform.machine() == "x86_64" and torch.backends.mkl.is_available():
        assert differing >= 6, "these settings change nothing, so nothing was tried"


# in this process


@pytest.fixture(scope="module")
def made_there(images, tmp_path_factory):
    """A CNN trained where convolutions are another library's; begun there as well. Nobody may edit it."""
    root = tmp_path_factory.mktemp("platforms")

    def ended(what, round_number, rounds):
        if what == "rounds" and round_number == 3:
            raise KeyboardInterrupt

    with another_library():
        train(tables(), root / "parent", data=images, secret=secret(7))
        with pytest.raises(KeyboardInterrupt):
            train(tables(), root / "begun", data=images, secret=secret(7), progress=ended)
    return root


@pytest.fixture
def there(made_there, tmp_path):
    """The same, free to be edited."""
    shutil.copytree(made_there, tmp_path / "there")
    return tmp_path / "there"


def late(run):
    """A request for the client that is drawn last, so that rounds are kept."""
    first = run.plan.index.clients
    return Request.of([max(first, key=first.__getitem__)])


def case_of(run, images, **changes):
    run = load_run(run.path)
    return changed(Case(Evidence(run, parent_of(run), images), Keyed(AUDIT_KEY)), **changes)


@pytest.mark.thorough
def test_what_was_unlearned_here_of_a_run_made_there(there, images, quick):
    parent = load_run(there / "parent")
    child = unlearn(parent, "fats", late(parent), there / "child", data=images)
    (kept,) = (event["kept_rounds"] for event in child.ledger.of_kind("unlearning"))
    assert kept > 0
    first, own = platforms_of(child.ledger)
    assert (first,) == platforms_of(parent.ledger)
    assert (own.since, own.unlike(first)) == (kept, "canary")
    result, found = audits(child, spec=quick, data=images)
    assert result.context["run_versions"]["canary"] == f"{first.canary[:16]} and {own.canary[:16]}"
    assert result.context["run_versions"]["torch"] == first.versions["torch"]
    assert result.verdict != "FAIL", {name: finding.shows for name, finding in found.items()}
    assert "tolerance" in found["replay"].values
    assert any("another platform: other canary" in line for line in found["replay"].details)
    assert any("another platform: other canary" in line for line in found["lineage"].details)
    alone = case_of(child, images, parent=None)
    assert Replay().examine(alone).verdict == Lineage().examine(alone).verdict == "INCONCLUSIVE"
    with another_library():
        assert audits(child, spec=quick, data=images)[0].verdict != "FAIL"
    pruned, _ = prune(child)
    assert platforms_of(pruned.ledger) == (first, own)
    assert "FAIL" not in {finding.verdict for finding in audits(pruned, spec=quick, data=images)[1].values()}


def test_what_was_resumed_here_of_a_run_begun_there(there, images):
    run = resume(there / "begun", data=images)
    first, own = platforms_of(run.ledger)
    assert (first.since, own.since, own.unlike(first)) == (0, 2, "canary")
    assert not torch.equal(run.model, load_run(there / "parent").model)
    found = [audit.examine(case_of(run, images)) for audit in (Replay(), Lineage(), Replay(stretches=3))]
    assert {finding.verdict for finding in found} == {"INCONCLUSIVE"}
    child = unlearn(run, "retrain", late(run), there / "child", data=images)
    assert [platform.since for platform in platforms_of(child.ledger)] == [0]
    assert Replay().examine(case_of(child, images)).verdict == "PASS"


def test_resuming_on_one_platform_tells_of_it_once(there, images):
    with another_library():
        run = resume(there / "begun", data=images)
    assert len(platforms_of(run.ledger)) == 1
    assert torch.equal(run.model, load_run(there / "parent").model)


def ended(at):
    """Ends a process after a round."""

    def progress(what, round_number, rounds):
        if what == "rounds" and round_number == at:
            raise KeyboardInterrupt

    return progress


def broken_off(folder, images, at):
    with pytest.raises(KeyboardInterrupt):
        resume(folder, data=images, progress=ended(at))


def test_several_in_a_row_without_progress(there, images):
    """Of platforms that stored nothing the ledger keeps none, and the run opens."""
    broken_off(there / "begun", images, 3)
    with another_library():
        broken_off(there / "begun", images, 3)
    broken_off(there / "begun", images, 3)
    broken_off(there / "begun", images, 5)
    run = resume(there / "begun", data=images)
    assert [(platform.since, platform.canary) for platform in platforms_of(run.ledger)] == [
        (0, platforms_of(load_run(there / "parent").ledger)[0].canary),
        (2, canary(ready(images))),
    ]


@pytest.mark.parametrize("method", ["train", "retrain", "finetune"])
def test_who_began_and_stored_nothing(method, there, images, monkeypatch):
    """Begun under other versions, resumed here before a round was stored: the whole run is this platform's."""
    monkeypatch.setattr("fuaudit.runs.platforms.versions", _named)
    monkeypatch.setattr("fuaudit.workflow.writer.versions", _named)
    path, last = there / "new", {"finetune": "seal"}.get(method)
    if last:
        monkeypatch.setattr("fuaudit.workflow.unlearn.complete", _interrupted)
    parent = load_run(there / "parent")
    if method == "train":
        with pytest.raises(KeyboardInterrupt):
            train(tables(), path, data=images, secret=secret(7), progress=ended(1))
    else:
        with pytest.raises(KeyboardInterrupt):
            unlearn(parent, method, late(parent), path, data=images, progress=ended(1))
    monkeypatch.undo()
    run = resume(path, data=images)
    (own,) = platforms_of(run.ledger)
    assert own.versions == run.info["versions"]
    assert run.info["versions"]["processor"] != "another"
    if not last:
        assert Replay().examine(case_of(run, images)).verdict == "PASS"


def _named(device):
    return versions(device) | {"processor": "another"}


@pytest.mark.parametrize("given", [True, False])
def test_rows_that_a_script_computed_elsewhere_refute_nothing(given, images, quick, tmp_path, monkeypatch):
    """Rows given as tensors may have been computed, with other bits on another processor; a file's cannot."""
    monkeypatch.setattr("fuaudit.runs.platforms.versions", _named)
    monkeypatch.setattr("fuaudit.workflow.writer.versions", _named)
    flat = build("datasets", {"use": "digits"}).load(None)
    model = {"use": "linear"}
    read = tables(data={"use": "digits"}, model=model)
    run = train(tables(model=model) if given else read, tmp_path / "run", data=images if given else None)
    monkeypatch.undo()
    other = images if given else flat
    other = replace(other, inputs=other.inputs.nextafter(torch.tensor(9.0)))
    case = Case(Evidence(run, None, other, Known(rows_made=given)), Keyed(AUDIT_KEY))
    assert Replay().examine(case).verdict == ("INCONCLUSIVE" if given else "FAIL")
    if given:
        assert gather(run, {"data": other}).known.rows_made


def _interrupted(*arguments):
    raise KeyboardInterrupt


def test_an_edit_is_judged_by_who_made_it(there, images):
    """Of a lineage: what an ancestor edited there is no FAIL here, whoever went on with it here."""
    parent = load_run(there / "parent")
    first, second = parent.plan.retained.clients[:2]
    with another_library():
        edited_there = unlearn(parent, "finetune", Request.of([first]), there / "edited", data=images)
    again = unlearn(edited_there, "finetune", Request.of([second]), there / "again", data=images)
    for run in (edited_there, again):
        found = Provenance().examine(case_of(run, images))
        assert found.verdict == "INCONCLUSIVE", found.details
        assert "edited gives other bits on this platform" in found.shows
        assert Lineage().examine(case_of(run, images)).verdict == "NOT_APPLICABLE"


@pytest.mark.parametrize("spot_check", [None, 3])
def test_a_forged_model_made_here_fails_whoever_went_on(spot_check, images, tmp_path):
    """Resumed elsewhere, or so it says: what was made here before that must have the bits of here."""
    run = train(tables(), tmp_path / "run", data=images, secret=secret(7))
    case = case_of(run, images)
    stored = {round_number: run.checkpoint(round_number) for round_number in run.checkpoints}
    stored[2] = stored[2][0] + 1e-3, stored[2][1]
    for name, content in derived_files(case.rerun.ready, run.plan.retained, case.rerun.schedule, stored).items():
        (run.path / name).write_bytes(content)
    told(run.path, lambda events: _with_model(_gone_on_with(events), 2, stored[2][0]))
    found = Replay(stretches=spot_check or 0).examine(case_of(run, images))
    assert found.verdict == "FAIL", found.shows
    assert EQUAL_BITS in found.assumptions


def _gone_on_with(events):
    """A ledger in which another platform goes on after round 4."""
    (event,) = (event for event in events if event["event"] == "platform")
    for one in events:
        yield one
        if one["event"] == "round" and one["round"] == 4:
            yield {**event, "since": 4, "canary": "0" * 64}


def _with_model(events, round_number, vector):
    for event in events:
        named = event["event"] == "round" and event["round"] == round_number
        yield {**event, "model": digest_of_vector(vector)} if named else event


# what a ledger may tell


def _platforms(edit):
    """An edit of a ledger's platforms, each by itself; None leaves one out."""

    def work(events):
        number = 0
        for event in events:
            if event["event"] == "platform":
                event = edit(number, event)
                number += 1
            if event is not None:
                yield event

    return work


@pytest.mark.parametrize(
    "edit",
    [
        lambda number, event: None,
        lambda number, event: None if number == 0 else event,
        lambda number, event: None if number == 1 else event,
        lambda number, event: {**event, "since": 0},
        lambda number, event: {**event, "since": event["since"] + 1},
        lambda number, event: {**event, "canary": "0"},
        lambda number, event: {**event, "plugins": [3]},
        lambda number, event: {**event, "versions": {"torch": 2}},
        lambda number, event: {**event, "versions": {**event["versions"], "torch": "another"}},
        lambda number, event: {**event, "plugins": event["plugins"][1:]},
    ],
)
def test_platforms_that_no_run_has(edit, there, images):
    parent = load_run(there / "parent")
    child = unlearn(parent, "fats", late(parent), there / "child", data=images)
    with pytest.raises(EvidenceError):
        told(child.path, _platforms(edit))


def test_other_platforms_than_the_parents(there, images, quick):
    """A child that says other things of kept rounds than its parent contradicts it."""
    parent = load_run(there / "parent")
    child = unlearn(parent, "fats", late(parent), there / "child", data=images)
    told(child.path, _platforms(lambda number, event: event if number else {**event, "canary": "0" * 64}))
    _, found = audits(load_run(child.path), spec=quick, data=images)
    assert found["integrity"].verdict == "FAIL"
    assert any("other platforms for the rounds that it keeps" in line for line in found["integrity"].details)


def test_a_claimed_canary_gets_the_tolerance_and_a_spec_can_refuse_it(images, tmp_path):
    """A limit, and what stands against it: whoever names another platform is judged by tolerance, or by none."""
    run = train(tables(), tmp_path / "parent", data=images, secret=secret(7))
    child = unlearn(run, "fats", late(run), tmp_path / "child", data=images)
    vector, state = child.checkpoint(6)
    stored = {round_number: child.checkpoint(round_number) for round_number in child.checkpoints} | {
        6: (vector.nextafter(vector + 1), state)
    }
    case = case_of(child, images)
    for name, content in derived_files(case.rerun.ready, child.plan.retained, case.rerun.schedule, stored).items():
        (child.path / name).write_bytes(content)
    told(child.path, lambda events: _with_model(events, 6, stored[6][0]))
    assert Replay().examine(case_of(child, images)).verdict == "FAIL"
    claimed(run.path, canary="0" * 64)
    claimed(child.path, canary="0" * 64)
    assert Replay().examine(case_of(child, images)).verdict in ("PASS", "INCONCLUSIVE")
    assert Replay(tolerance=0).examine(case_of(child, images)).verdict == "INCONCLUSIVE"


def _platform(since, name="a"):
    return Platform(since, {"torch": "2"}, [], name)


def test_whose_work_is_stored():
    """A platform whose rounds were lost before one was stored made nothing; the last one measured at least."""
    lost, first, last = _platform(0, "lost"), _platform(0, "first"), _platform(4, "last")
    assert makers([lost, first, last]) == (first, last)
    assert makers([first, _platform(4, "lost"), last]) == (first, last)
    assert makers([last]) == (last,)

    class Told:
        def of_kind(self, kind):
            return [one.facts for one in (lost, first, last)]

    ledger = Told()
    assert makers_of(ledger, 0) == makers_of(ledger, 4) == platforms_kept(ledger, 4) == (first,)
    assert makers_of(ledger, 5) == (first, last)
    assert makers_of(ledger, 6, after=4) == (last,)
    assert platforms_kept(ledger, 0) == ()


@pytest.mark.parametrize("name", ["torch", "numpy", "platform", "processor", "python", "fuaudit"])
def test_which_versions_count(name):
    one = Platform(0, {"torch": "1", "numpy": "1", "platform": "1", "processor": "1"}, [], "a")
    other = replace(one, versions={**one.versions, name: "2"})
    assert one.unlike(other) == ("" if name in ("python", "fuaudit") else name)
    assert one.unlike(replace(one, plugins=[{"use": "fats"}])) == "plugins"
    assert one.unlike(replace(one, since=3)) == ""


# the canary itself


@pytest.mark.parametrize("engine", ["reference", "threads", "batched"])
def test_a_canary_is_of_the_config_and_the_machine_alone(engine, images):
    config = {"run": {"engine": engine}, "model": {"use": "mlp"}}
    threads = torch.get_num_threads()
    first = canary(ready(images, **config))
    assert torch.get_num_threads() == threads
    other_rows = replace(images, inputs=images.inputs.flip(0), targets=images.targets.flip(0))
    fewer = replace(images, inputs=images.inputs[:500], targets=images.targets[:500])
    for data in (images, other_rows, fewer, padded(images, images.size + 7)):
        assert canary(ready(data, **config)) == first
    assert canary(ready(images, **config, partition={"use": "iid", "clients": 3}, learner={"rounds": 9})) == first
    try:
        torch.set_num_threads(2)
        assert canary(ready(images, **config)) == first
    finally:
        torch.set_num_threads(threads)


def test_engines_of_equal_bits_have_one_canary(images):
    one, other = (canary(ready(images, run={"engine": engine})) for engine in ("reference", "threads"))
    assert one == other


def test_a_canary_tells_what_arithmetic_depends_on(images):
    changes = [
        {},
        {"run": {"dtype": "float64"}},
        {"model": {"use": "mlp"}},
        {"learner": {"batch": 4}},
        {"scaling": "standardise"},
        {"solver": {"use": "sgd", "momentum": 0.5}},
        {"solver": {"use": "fedprox", "mu": 0.1}},
    ]
    found = [canary(ready(images, **change)) for change in changes]
    assert len(set(found)) == len(found)
    with another_library():
        assert canary(ready(images)) != found[0]


def test_a_canary_reads_tokens_that_the_model_knows():
    rows = torch.arange(60).view(12, 5) % 7
    tokens = Dataset(rows, torch.arange(12) % 5, rows, torch.arange(12) % 5, classes=5)
    model = {"use": "lstm", "tokens": 7, "hidden": 4, "layers": 1}
    assert len(canary(ready(tokens, model=model))) == 64


class Refusing:
    """An aggregator that wants more participants than a miniature has."""

    vectorised: ClassVar[bool] = True
    per_client_state: ClassVar[frozenset[str]] = frozenset()

    def init(self, shape):
        return {}

    def apply(self, updates, context, state):
        if updates.shape[-2] < 1000:
            raise ValueError("too few")
        return updates.mean(dim=-2, keepdim=True), state


def test_a_stage_that_refuses_small_federations(images):
    whole = ready(images, model={"use": "linear"})
    alone = replace(whole, procedure=replace(whole.procedure, exchange=Exchange(Chain((Refusing(),)))))
    assert canary(alone) == canary(whole), "its place is taken by the mean"
    quantised = {"model": {"use": "linear"}, "client": [{"use": "quantise"}]}
    kept = ready(images, **quantised)
    server = replace(kept.procedure.exchange, server=Chain((Refusing(),)))
    alone = replace(kept, procedure=replace(kept.procedure, exchange=server))
    assert canary(alone) == canary(kept) != canary(whole), "and no other's"


def test_another_rounding_anywhere_is_seen(images, monkeypatch):
    """One bit of one update, of a memory, or of an answer."""
    whole = ready(images, model={"use": "linear"}, solver={"use": "sgd", "momentum": 0.5})
    before = canary(whole)
    advance = Reference.advance

    def rounded(self, *arguments):
        outcome = advance(self, *arguments)
        flat = outcome.updates.view(-1)
        flat[-1] = torch.nextafter(flat[-1], flat[-1] + 1)
        return outcome

    monkeypatch.setattr(Reference, "advance", rounded)
    assert canary(whole) != before


# editors


@dataclass(frozen=True)
class Threadful:
    """An editor that tells how many threads torch has while it works."""

    needs: ClassVar[frozenset[str]] = frozenset({"model"})
    participants: ClassVar[frozenset[str]] = frozenset()
    seen: ClassVar[list[int]] = []

    def edit(self, context):
        self.seen.append(torch.get_num_threads())
        return context.model


def test_editors_work_with_one_thread(images, tmp_path):
    """Bits of what an editor computes itself would depend on the number of threads, which no platform tells."""
    run = train(tables(model={"use": "linear"}), tmp_path / "run", data=images, secret=secret(7))
    request = Request.of([0])
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        edited(
            setup(run.config, images),
            run.plan,
            run.plan.erase(request, Keyed(secret(3)), END),
            Threadful(),
            "threadful",
            run.model,
            {},
        )
    finally:
        torch.set_num_threads(threads)
    assert Threadful.seen == [1]


def test_numbers_are_made_from_integers():
    """The words, once more by Python's integers."""
    mask = 2**64 - 1
    first = int.from_bytes(sha256(b"inputs").digest()[:8], "little")
    for place, word in enumerate(_words(5, "inputs").tolist()):
        z = (first + place * 0x9E3779B97F4A7C15) & mask
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        assert word == z ^ (z >> 31)
    assert np.array_equal(_words(3, "inputs"), _words(5, "inputs")[:3])
