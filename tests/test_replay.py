"""Replay where bits cannot be compared, and spot checks: what they find, what they cannot, and that they say so."""

import gc
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from math import inf

import numpy as np
import pytest
import torch
from tests_support import (
    AUDIT_KEY,
    audits,
    changed,
    claimed,
    config,
    drawn_client,
    drawn_sample,
    fitting,
    one_more,
    reseal,
    secret,
    told,
)

from fuaudit import load_run, train, unlearn, verify
from fuaudit.audits.lineage.audit import LAST_DIGITS, OTHER_FIGURES, Lineage
from fuaudit.audits.replay.audit import Replay
from fuaudit.audits.replay.gaps import Hidden, bit_equal, finite, gaps, hidden, largest
from fuaudit.audits.replay.stretches import detection, drawn_stretches, suffices
from fuaudit.audits.replay.tolerance import within_tolerance
from fuaudit.config import resolve
from fuaudit.draws import Keyed
from fuaudit.errors import EvidenceError, UsageError
from fuaudit.formats.files import write_bytes
from fuaudit.formats.forms import pretty_json
from fuaudit.plans import Request
from fuaudit.plans.expanded import NONE, expand
from fuaudit.reporting import write_report
from fuaudit.reporting.contents import read_contents
from fuaudit.reporting.repeat import commands
from fuaudit.reporting.words import copies
from fuaudit.runs.ancestors import parent_of
from fuaudit.runs.derived_files import derived_files
from fuaudit.runs.encoding import digest_of_vector
from fuaudit.runs.layout import CHECKPOINT, LEDGER, of_round
from fuaudit.runs.ledger import Ledger, read_ledger
from fuaudit.training.engines.reference import local_steps
from fuaudit.training.execute import RoundState, execute, initial_state
from fuaudit.training.setup import load_dataset
from fuaudit.training.solvers import Steps
from fuaudit.verification import rerun as rerun_module
from fuaudit.verification.case import Case
from fuaudit.verification.counterfactual import RestrictedSchedule
from fuaudit.verification.evidence import Evidence
from fuaudit.verification.quiet import loudness, quietest
from fuaudit.verification.spec import Check, read_spec
from fuaudit.workflow.append import append
from fuaudit.workflow.writer import RunWriter

EPS = torch.finfo(torch.float32).eps
TWO = {"run": {"checkpoint_every": 2, "engine": "reference", "device": "cpu"}}


def case_of(run, key=AUDIT_KEY, **changes):
    run = load_run(run.path)
    dataset = load_dataset(run.config, None)
    return changed(Case(Evidence(run, parent_of(run), dataset), Keyed(key)), **changes)


def elsewhere(run):
    """Made on another platform, as far as an auditor can tell: other versions, and an engine that rounds otherwise."""
    info = json.loads((run.path / "run.json").read_text())
    info["engine"] = "batched"
    (run.path / "run.json").write_bytes(pretty_json(info))
    text = (run.path / "config.toml").read_text()
    (run.path / "config.toml").write_text(text.replace('"reference"', '"batched"'))
    return claimed(run.path, torch="another")


def store(run, models, every_round=None):
    """A forger's hand: other stored models, and every figure, file and ledger line that goes with them."""
    case = case_of(run)
    for name, content in derived_files(case.rerun.ready, run.plan.retained, case.rerun.schedule, models).items():
        write_bytes(run.path / name, content)
    logged = {**{r: vector for r, (vector, _) in models.items()}, **(every_round or {})}
    events = read_ledger(run.path).events
    (run.path / LEDGER).unlink()
    ledger = Ledger()
    for event in events[:-1]:
        facts = {k: v for k, v in event.items() if k not in ("event", "previous")}
        if event["event"] == "round" and event["round"] in logged:
            facts["model"] = digest_of_vector(logged[event["round"]])
        ledger = append(run.path, ledger, event["event"], **facts)
    return reseal(run.path)


def spec(asks, audit="replay", **options):
    """One audit alone, which gives too little evidence for any claim: its own finding is looked at."""
    check = Check("models", {"use": audit, **options})
    return replace(read_spec("client-erasure"), id="one", asks=asks, alpha=None, checks=(check,))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A training run, and children of it by request and unlearner; nobody may edit them."""
    root = tmp_path_factory.mktemp("replay")
    run = train(config(**TWO), root / "parent", secret=secret(7))
    client, sample = Request.of(clients=[drawn_client(run)]), Request.of(samples=[drawn_sample(run)])
    unlearn(run, "fats", client, root / "client")
    unlearn(run, "fats", sample, root / "sample")
    return root


@pytest.fixture
def lineage(made, tmp_path):
    """The same, free to be edited."""
    return {path.name: load_run(shutil.copytree(path, tmp_path / path.name)) for path in made.iterdir()}


def examined(run, **changes):
    """The findings of replay and lineage, at their own options."""
    case = case_of(run, **changes)
    return Replay().examine(case), Lineage().examine(case)


# another platform


@pytest.mark.thorough
@pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() == "DEFAULT", reason="this processor has one instruction set"
)
def test_another_instruction_set(tmp_path):
    """Training with the oldest instruction set of this processor is another platform, with bits of its own."""
    program = (
        "from tests_support import *; from fuaudit import train, unlearn; from fuaudit.plans import Request; "
        f"import pathlib; root = pathlib.Path({str(tmp_path)!r}); "
        f"run = train(config(**{TWO!r}), root / 'parent', secret=secret(7)); "
        "unlearn(run, 'fats', Request.of(clients=[drawn_client(run)]), root / 'child')"
    )
    oldest = {"ATEN_CPU_CAPABILITY": "default", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2", "DNNL_MAX_CPU_ISA": "SSE41"}
    environment = {**os.environ, **oldest, "PYTHONPATH": os.path.dirname(__file__)}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
    child = load_run(tmp_path / "child")
    assert not case_of(child).rerun.same_platform
    result, found = audits(child)
    assert result.verdict == "PASS", {n: (f.verdict, f.shows, f.details) for n, f in found.items()}
    for finding in (found["replay"], found["lineage"]):
        assert "gap" not in finding.values or "not bit for bit" in finding.shows
    assert ("gap" in found["replay"].values) == ("within a tolerance" in result.reason)


@pytest.mark.parametrize("kind", ["client", "sample"])
def test_a_tolerance_that_would_have_told(lineage, kind):
    for finding in examined(elsewhere(lineage[kind])):
        assert finding.verdict == "PASS", (finding.shows, finding.details)
        assert "within the tolerance, not bit for bit" in finding.shows
        figures = finding.values
        assert figures["tolerance"] == 256 * EPS
        assert 0 < figures["gap"] <= figures["tolerance"] <= figures["effect"] / 10
        assert [control.held for control in finding.controls] == [True]
        assert "kept" in finding.detectable
        assert len(finding.assumptions) == {"replay": 6, "lineage": 7}[finding.audit]


MEMORIES = ["scaffold", "mifa", "mimic", "mimic-at-clients"]


@pytest.fixture(scope="module")
def with_memory(tmp_path_factory):
    """A run of a method that keeps a row a client; made once, nobody may edit it."""
    made = {}

    def work(name):
        if name not in made:
            learner = {"use": name, "rounds": 8, "steps": 2, "batch": 4, "step_size": 0.1, "decay": 0.9}
            learner |= {"scenario": "static", "probability": 0.3, "first_all": False}
            tables = config(learner=learner, run=TWO["run"] | {"dtype": "float64"})
            made[name] = train(tables, tmp_path_factory.mktemp(name) / "run", secret=secret(4))
        return made[name]

    return work


@pytest.mark.parametrize("name", MEMORIES)
@pytest.mark.parametrize("kind", ["client", "sample"])
def test_a_memory_with_a_row_a_client_on_another_platform(name, kind, with_memory, tmp_path):
    """A parent's states have the erased client's row, and what is compared with them has not."""
    shutil.copytree(with_memory(name).path, tmp_path / "run")
    run = load_run(tmp_path / "run")
    asked = Request.of([drawn_client(run)]) if kind == "client" else Request.of(samples=[drawn_sample(run)])
    exact = "retrain" if kind == "client" and name in ("scaffold", "mifa") else "fats"
    for finding in examined(elsewhere(unlearn(run, exact, asked, tmp_path / "child"))):
        assert finding.verdict == "PASS", (finding.shows, finding.details)
        assert [control.held for control in finding.controls] == [True]


def test_a_loud_row_frees_no_other(with_memory, tmp_path):
    """A row that moved by less than the tolerance of the whole table, and by more than its own."""
    run = load_run(shutil.copytree(with_memory("mifa").path, tmp_path / "run"))
    child = elsewhere(unlearn(run, "fats", Request.of(samples=[drawn_sample(run)]), tmp_path / "child"))
    vector, state = child.checkpoint(8)
    (name,) = case_of(child).rerun.ready.procedure.per_client_state
    loudness = state[name].abs().amax(dim=1)
    assert 0 < loudness.min() < loudness.max() / 2
    state[name][loudness.argmin()] += 0.7 * 256 * torch.finfo(torch.float64).eps * loudness.max()
    RunWriter(child.path).checkpoint(8, vector, state)
    for finding in examined(reseal(child.path)):
        assert finding.verdict == "INCONCLUSIVE"
        assert "more than the tolerance" in finding.shows


def test_one_loud_number_frees_no_quiet_ones(tmp_path):
    """A column in units of its own: all other numbers of the model may be the untouched ones, and no gap shows it."""
    digits = load_dataset(resolve(config()), None)
    inputs = digits.inputs.clone()
    inputs[:, 0] = 1e5 * (0.5 + torch.arange(len(inputs)) / len(inputs))
    loud = {"dataset": replace(digits, inputs=inputs)}
    run = train(config(**TWO), tmp_path / "run", secret=secret(7), data=loud["dataset"])
    child = unlearn(run, "fats", Request.of([drawn_client(run)]), tmp_path / "child", data=loud["dataset"])
    case = case_of(child, **loud)
    mixed = {r: (v.clone(), state) for r, (v, state) in case.rerun.replayed.items()}
    for number, (vector, _) in mixed.items():
        quiet = vector.abs() < vector.abs().max() / 1000
        vector[quiet] = torch.where(quiet, run.checkpoint(number)[0], vector)[quiet]
    limit, rows = 256 * EPS, frozenset[str]()
    found = gaps(mixed, case.rerun.replayed, case.rerun.replayed)
    assert max(found.values()) < limit
    faults, judged = case.rerun.counterfactuals.links[0], within_tolerance(case, mixed, 256)
    assert hidden(faults.untouched, faults.taken_out, case.rerun.replayed, limit, rows).share > 0.5
    assert judged.verdict == "INCONCLUSIVE"
    assert "or many of their numbers do" in judged.shows
    assert any("of the numbers moved, beside much larger ones" in line for line in judged.details)


def test_every_number_that_the_data_moved_counts():
    """What only the erased client had is moved by all that training did, far more than what others had too."""
    start = torch.full((13,), 0.1)
    trained = start + torch.tensor([1e4, *[1e-2] * 6, *[0.0] * 6])
    moved = torch.tensor([10.0, *[1e-4] * 6, *[5.0] * 6])
    honest, untouched = {0: (start, {}), 1: (trained, {})}, {1: (trained + moved, {})}
    assert hidden(untouched, honest, honest, 1e-5, ()) == Hidden(share=6 / 13)
    others = torch.arange(1000.0)  # trained, and not moved: they dilute nothing
    more = [{n: (torch.cat([v, others * n]), s) for n, (v, s) in models.items()} for models in (untouched, honest)]
    assert hidden(more[0], more[1], more[1], 1e-5, ()) == Hidden(share=6 / 13)
    quiet = {1: (trained + moved * (torch.arange(13) > 6), {})}
    assert hidden(quiet, honest, honest, 1e-5, ()) == Hidden()


def test_a_share_of_few_numbers_is_their_share():
    """Three of six are half of them. Where few move it is the number that counts, and row by row in a table."""
    start, loud = torch.zeros(2, 12), torch.zeros(2, 12)
    loud[:, 0] = 1e3
    near = start.clone()
    near[0, :6] = torch.tensor([1.0, 1.0, 1.0, 1e-4, 1e-4, 1e-4])
    near[1, 1] = 1e-4
    honest = {0: (torch.zeros(1), {"m": start}), 1: (torch.zeros(1), {"m": loud})}
    assert hidden({1: (torch.zeros(1), {"m": loud + near})}, honest, honest, 1e-5, {"m"}) == Hidden(0, 3, 1)
    near[1, 1] = 0.0
    assert hidden({1: (torch.zeros(1), {"m": loud + near})}, honest, honest, 1e-5, {"m"}) == Hidden(0, 3, 0.5)
    near[1, 1:11] = 1e-4
    assert hidden({1: (torch.zeros(1), {"m": loud + near})}, honest, honest, 1e-5, {"m"}) == Hidden(1, 3, 0.5)


def test_what_is_no_number_is_unseen():
    """NaN is neither near nor far: it moved, and no gap shows by how much."""
    honest, nan = {0: (torch.zeros(20), {}), 1: (torch.ones(20), {})}, torch.full((20,), torch.nan)
    assert hidden({1: (nan, {})}, honest, honest, 1e-5, ()) == Hidden(share=1)
    assert not finite({1: (torch.ones(2), {"m": nan})})


def test_models_that_are_far_larger_are_measured_by_themselves():
    """Two that differ by their own rounding are not far from each other, however small the replay is."""
    replayed = {1: (torch.ones(20), {"m": torch.tensor([3])})}
    one = {1: (torch.full((20,), 1e9), {"m": torch.tensor([3])})}
    other = {1: (one[1][0] * (1 + EPS), {"m": torch.tensor([3])})}
    assert gaps(one, other, replayed)[1, "vector"] > 10
    assert gaps(one, other, largest(replayed, one, other))[1, "vector"] < 2 * EPS
    assert hidden(one, other, replayed, 1e-5, ()) == Hidden(share=1)


def test_the_quietest_rows():
    """Loud is what is large for its feature; features that are rarely lit are not loud, nor are tokens."""
    rows = torch.ones(40, 3) * torch.tensor([1e6, 1.0, 0.0])
    rows[::2, 1], rows[5, 1], rows[7, 2] = 0.5, 100.0, 1.0
    assert loudness(rows, [5, 7, 0], range(40)).tolist() == [200, 2, 1]
    assert quietest(rows, [5, 7, 9], range(40)) == (7,)
    assert quietest(rows, [*range(40)], range(40)) == (0, 2, 4, 6)
    assert quietest(rows.long(), [9, 5], range(40)) == (9,)
    assert quietest(rows, [], range(40)) == ()


def test_equal_bits_need_no_tolerance(lineage):
    for finding in examined(claimed(lineage["client"].path, numpy="another")):
        assert finding.verdict == "PASS"
        assert "not bit for bit" not in finding.shows


@pytest.mark.parametrize("tolerance", [256, 0])
@pytest.mark.parametrize("at_hand", [True, False], ids=["a parent at hand", "none"])
def test_other_last_digits_of_figures_beside_equal_bits(lineage, tolerance, at_hand):
    """Nothing can be left in models of equal bits: neither a parent nor a tolerance is needed."""
    child = lineage["client"]
    rows = json.loads((child.path / "metrics.json").read_text())
    rows[-1]["test_loss"] = one_more(rows[-1]["test_loss"])
    (child.path / "metrics.json").write_bytes(pretty_json(rows))
    case = case_of(claimed(child.path, numpy="another"), **({} if at_hand else {"parent": None}))
    found = Lineage(tolerance=tolerance).examine(case)
    assert found.verdict == Replay(tolerance=tolerance).examine(case).verdict == "PASS", found.shows
    assert "other last digits: metrics.json" in found.details
    assert "byte for byte but for the last digit of 1 figure" in found.shows
    assert LAST_DIGITS.format("1 figure differs", 4) in found.assumptions
    rows[-1]["test_loss"] = one_more(rows[-1]["test_loss"])
    (child.path / "metrics.json").write_bytes(pretty_json(rows))
    case = case_of(reseal(child.path))
    found = Lineage(tolerance=tolerance).examine(case)
    assert (found.verdict, found.shows) == ("INCONCLUSIVE", OTHER_FIGURES)


def test_a_tolerance_that_is_too_coarse_or_too_fine(lineage):
    case = case_of(elsewhere(lineage["sample"]))
    for audit in (Replay, Lineage):
        coarse = audit(tolerance=2**20).examine(case)
        assert coarse.verdict == "INCONCLUSIVE"
        assert "could not have told" in coarse.shows
        fine = audit(tolerance=1).examine(case)
        assert fine.values["gap"] > EPS
        assert fine.verdict == "INCONCLUSIVE"
        assert "more than the tolerance" in fine.shows
        none = audit(tolerance=0).examine(case)
        assert none.verdict == "INCONCLUSIVE"
        assert "allows no tolerance" in none.shows
        with pytest.raises(UsageError):
            audit(tolerance=-1)


def test_who_was_never_drawn_tells_nothing(tmp_path):
    run = train(config(**TWO, partition={"use": "iid", "clients": 60}), tmp_path / "parent", secret=secret(2))
    client = next(c for c in run.original.clients if c not in run.plan.index.clients)
    for name in ("fats", "retrain"):
        child = unlearn(run, name, Request.of(clients=[client]), tmp_path / name)
        for finding in examined(elsewhere(child)):
            assert finding.verdict == "INCONCLUSIVE"
            assert "could not have told" in finding.shows
            assert any("never drawn" in line for line in finding.details)


def test_a_training_run_has_nothing_to_leave_in(lineage):
    for finding in examined(elsewhere(lineage["parent"])):
        assert finding.verdict == "INCONCLUSIVE"
        assert "carries out no request" in finding.shows


def test_missing_evidence_is_inconclusive(lineage):
    child = elsewhere(lineage["client"])
    erased = case_of(child).evidence.erased_rows
    data = load_dataset(child.config, None)
    inputs = data.inputs.clone()
    inputs[min(erased)] += 1
    for changes, words in (
        ({"parent": None}, "is not at hand"),
        ({"dataset": replace(data, absent=erased)}, "erased rows of parent are not at hand"),
        ({"dataset": replace(data, inputs=inputs)}, "rows of 1 client are not those that parent was trained on"),
    ):
        for finding in examined(child, **changes):
            assert finding.verdict == "INCONCLUSIVE"
            assert words in finding.shows


def test_lineage_asks_again_what_replay_had_executed(lineage):
    """The faults of a request are most of the work, and both audits ask them of the same models."""
    case, alone = case_of(elsewhere(lineage["client"])), case_of(load_run(lineage["client"].path))
    replayed, found = Replay().examine(case), Lineage().examine(case)
    assert len(case.rerun.kept) == 1
    again = Lineage().examine(alone)
    assert (found.verdict, found.values, found.details) == (again.verdict, again.values, again.details)
    assert replayed.values["effect"] == found.values["effect"]


def test_the_untouched_models_under_a_right_plan(lineage):
    """Bits of two runs need no platform; a forger who blurs them is told of, but rounding is not excluded."""
    parent, child = lineage["parent"], lineage["client"]
    models = {round_number: parent.checkpoint(round_number) for round_number in parent.checkpoints}
    for finding in examined(elsewhere(store(child, models))):
        assert finding.verdict == "FAIL"
        assert "bit for bit" in finding.shows
        assert any("is that of parent" in line for line in finding.details)
    blurred = {round_number: (torch.nextafter(v, v + 1), state) for round_number, (v, state) in models.items()}
    for finding in examined(store(load_run(child.path), blurred)):
        assert finding.verdict == "INCONCLUSIVE"
        assert any("within the tolerance of the untouched ones" in line for line in finding.details)


def test_noop_fails_anywhere(lineage):
    parent = lineage["parent"]
    child = unlearn(parent, "noop", Request.of(clients=[drawn_client(parent)]), parent.path.parent / "noop")
    for finding in examined(elsewhere(child), parent=None):
        assert finding.verdict == "FAIL"
        assert "reads rows that were to be forgotten" in finding.shows


def test_the_stated_share_would_have_been_seen(lineage):
    """What the erased data did, added to honest models: the share that ``detectable`` names is never passed."""
    child = elsewhere(lineage["client"])
    case = case_of(child)
    honest = {round_number: child.checkpoint(round_number) for round_number in case.rerun.stored_rounds}
    figures = Replay().examine(case).values
    link = case.rerun.counterfactuals.links[0]

    def leaked(part):
        return {
            r: (v + part * (link.untouched[r][0] - link.taken_out[r][0]), state) for r, (v, state) in honest.items()
        }

    assert figures["share"] <= 0.2
    for finding in examined(store(child, leaked(figures["share"]))):
        assert finding.verdict == "INCONCLUSIVE"
        assert "more than the tolerance" in finding.shows
    # a tolerance does hide something: a twentieth of that share in the round where it shows most
    most = max(gaps(link.untouched, link.taken_out, case.rerun.replayed).values())
    hidden = figures["tolerance"] / most / 2
    for finding in examined(store(load_run(child.path), leaked(hidden))):
        assert finding.verdict == "PASS"


def test_a_fault_in_the_weights_must_be_told_as_well(tmp_path):
    """Sizes of before leave less than the erased data itself; a tolerance between the two tells nothing."""
    for number in range(3, 30):  # the first key under which the sizes count, and leave less than everything else
        folder = tmp_path / str(number)
        run = train(config(**TWO, server=[{"use": "size-weighted"}]), folder / "parent", secret=secret(number))
        sample = drawn_sample(run)
        child = elsewhere(unlearn(run, "retrain", Request.of(samples=[sample]), folder / "child"))
        case = case_of(child)
        link, ours = case.rerun.counterfactuals.links[0], case.rerun.replayed
        fault = min(gaps(link.remembered, ours, ours).values(), default=0.0)
        others = [gaps(link.untouched, ours, ours), gaps(link.untouched, link.taken_out, ours)]
        if 0 < fault < min(value for found in others for value in found.values()):
            break
    far = "could not be told from rounding: request to parent: sizes and constants of before"
    assert far not in Replay(tolerance=int(fault / 10 / EPS)).examine(case).details
    blind = Replay(tolerance=int(fault / 10 / EPS) + 1).examine(case)
    assert blind.verdict == "INCONCLUSIVE"
    assert far in blind.details
    forged = Replay(tolerance=64).examine(case_of(store(child, link.remembered)))
    assert forged.verdict == "INCONCLUSIVE"


def test_every_request_of_the_lineage_is_left_in(lineage):
    child = lineage["client"]
    second = unlearn(child, "fats", Request.of(clients=[drawn_client(child)]), child.path.parent / "second")
    found = Replay().examine(case_of(elsewhere(second)))
    assert found.verdict == "PASS", found.details
    assert [control.name for control in found.controls] == [
        "models of client replayed here",
        "models of parent replayed here",
    ]
    shutil.rmtree(lineage["parent"].path)
    for finding in examined(load_run(second.path)):
        assert finding.verdict == "INCONCLUSIVE"
        assert "parent of client is not at hand" in finding.shows


@pytest.fixture
def by_themselves(tmp_path):
    """A rerun, the only link of its lineage, and six parts, drawn in every round; every model is stored."""
    tables = config(run=TWO["run"] | {"checkpoint_every": 1}, partition={"use": "iid", "clients": 3})
    tables["learner"] |= {"use": "fedavg", "cohort": 3}
    parent = train(tables, tmp_path / "parent", secret=secret(7))
    child = unlearn(parent, "retrain", Request.of([parent.plan.cohort(1)[0]]), tmp_path / "child")
    rerun = case_of(child).rerun
    (link,) = rerun.counterfactuals.links
    ((_, rows),) = link.drawn.items()
    assert len(rerun.replayed) == 9
    return rerun, link, {f"all but row {row}": tuple({*rows} - {row}) for row in rows[:6]}


@pytest.mark.thorough
def test_rows_by_themselves_hold_one_sum_each(by_themselves):
    """Not one a stored model."""
    rerun, link, parts = by_themselves
    size = rerun.replayed[0][0].numel()

    def living():
        gc.collect()
        return sum(1 for thing in gc.get_objects() if type(thing) is torch.Tensor and thing.numel() == size)

    before = living()
    counts = [living() - before for _ in rerun.contributions(link, parts, of_parent=True)]
    assert len(counts) == len(rerun.replayed) - 1
    assert max(counts) < 3 * len(parts), counts


def test_many_rows_by_themselves_are_added_up_in_turn(by_themselves, monkeypatch):
    rerun, link, parts = by_themselves

    def found():
        sums = [(number, sums) for number, _, sums in rerun.contributions(link, parts)]
        return max(len(s) for _, s in sums), {(number, name): s[name] for number, s in sums for name in s}

    (most, together), _ = found(), monkeypatch.setattr(rerun_module, "SUMS", 2 * rerun.replayed[0][0].numel())
    few, in_turn = found()
    assert (most, few) == (6, 2)
    assert together.keys() == in_turn.keys()
    assert any(total.any() for total in together.values())
    assert all(torch.equal(total, in_turn[at]) for at, total in together.items())


def test_an_edited_parent_is_named(lineage):
    """No draws make its model, so nothing says what the erased data did to it; no other reason is given."""
    edited = unlearn(
        lineage["parent"],
        "finetune",
        Request.of([drawn_client(lineage["parent"])]),
        lineage["parent"].path.parent / "e",
    )
    request = Request.of([next(c for c in edited.plan.cohort(1) if c in edited.plan.retained.samples)])
    child = elsewhere(unlearn(edited, "retrain", request, edited.path.parent / "again"))
    for finding in examined(child):
        assert finding.verdict == "INCONCLUSIVE"
        assert "the model of e was edited" in finding.shows
        assert not any(line.startswith("could not be told") for line in finding.details), finding.details
        assert [control.name for control in finding.controls] == ["models of parent replayed here"]


def test_a_parent_that_is_not_what_its_plan_makes(lineage):
    """Then what was left in is not what was there to be forgotten, and nothing follows from how far it lies."""
    parent, child = lineage["parent"], lineage["client"]
    moved = store(parent, {r: (v * 1.01, state) for r, (v, state) in case_of(parent).rerun.replayed.items()})
    info = json.loads((child.path / "run.json").read_text())
    info["parent"]["digest"] = moved.digest
    (child.path / "run.json").write_bytes(pretty_json(info))
    for finding in examined(elsewhere(child)):
        assert finding.verdict == "INCONCLUSIVE"
        assert "a parent's models do not" in finding.shows
        assert [control.held for control in finding.controls] == [False]


def test_the_last_model_of_a_parent_that_was_stopped(tmp_path):
    """It is stored after a round that the child does not store."""
    tables = config(run=TWO["run"] | {"checkpoint_every": 8})
    parent = train(tables, tmp_path / "parent", secret=secret(7), stop_after=5)
    assert parent.checkpoints == (0, 5)
    honest = dict(case_of(parent).rerun.replayed)
    request = Request.of([parent.plan.cohort(1)[0]])
    for name, times in (("as it was", 1), ("another", 2)):
        parent = store(parent, honest | {5: (honest[5][0] * times, honest[5][1])})
        child = unlearn(parent, "retrain", request, tmp_path / name)
        for finding in examined(elsewhere(child)):
            assert [control.held for control in finding.controls] == [times == 1]
            assert (finding.verdict == "PASS") == (times == 1), finding.shows


def test_reports_say_how_models_were_compared(lineage):
    child = elsewhere(lineage["client"])
    verify(child, spec("bound"), key=AUDIT_KEY)
    assert "Tolerance" in write_report(child.path, "md").read_text()
    result = verify(child, spec("exact", audit="lineage"), key=AUDIT_KEY)
    (finding,) = result.findings
    assert finding.verdict == "PASS"
    assert "within a tolerance" in finding.qualification
    listed = [str(copy) for copy in copies(read_contents(result.as_json()))]
    assert any("keys.json" in line for line in listed)
    assert not any("tolerance" in line for line in listed)


def test_contradictions_need_no_platform(lineage):
    child = elsewhere(lineage["client"])
    (child.path / of_round(CHECKPOINT, 4)).unlink()
    for finding in examined(told(child.path, lambda events: fitting(child.path, events))):
        assert finding.verdict == "FAIL"
    other = elsewhere(lineage["sample"])
    vector, state = other.checkpoint(8)
    RunWriter(other.path).checkpoint(8, torch.nextafter(vector, vector + 1), state)
    replayed, files = examined(reseal(other.path))
    assert replayed.verdict == "FAIL"
    assert "ledger names another model for round 8" in " ".join(replayed.details)
    assert files.verdict == "FAIL"  # model.safetensors is not the stored model of the last round


def test_figures_of_other_models(lineage):
    child = elsewhere(lineage["client"])
    rows = json.loads((child.path / "metrics.json").read_text())
    rows[-1]["test_loss"] = one_more(rows[-1]["test_loss"])
    (child.path / "metrics.json").write_bytes(pretty_json(rows))
    found = Lineage().examine(case_of(reseal(child.path)))
    assert found.verdict == "PASS"
    assert LAST_DIGITS.format("1 figure differs", 4) in found.assumptions
    rows[-1]["test_loss"] = one_more(rows[-1]["test_loss"])
    (child.path / "metrics.json").write_bytes(pretty_json(rows))
    found = Lineage().examine(case_of(reseal(child.path)))
    assert found.verdict == "INCONCLUSIVE"
    assert "figures" in found.shows


@pytest.mark.parametrize("by", ["mean", "total"])
def test_the_data_left_in_against_a_loop_by_hand(tmp_path, by):
    server = [{"use": "mean"}] if by == "mean" else [{"use": "size-weighted", "by": "total"}]
    parent = train(config(**TWO, server=server), tmp_path / "parent", secret=secret(7))
    target = drawn_client(parent)
    case = case_of(unlearn(parent, "fats", Request.of(clients=[target]), tmp_path / "child", allow_inexact=True))
    link = case.rerun.counterfactuals.links[0]
    for round_number in case.rerun.stored_rounds:
        assert torch.equal(link.untouched[round_number][0], parent.checkpoint(round_number)[0])
    ready, plan, retained = case.rerun.ready, parent.plan, case.run.plan.retained
    problem, drawn = ready.client_problem(retained), expand(plan)
    vector = initial_state(ready.procedure, [plan], plan.retained, ready.device).vectors[0]
    for round_number in range(1, plan.law.rounds + 1):
        total = torch.zeros_like(vector)
        for place, client in enumerate(drawn.cohorts[0, round_number - 1]):
            if client == target:
                continue
            weight = 1 / 2 if by == "mean" else len(retained.samples[client]) / retained.size * 9 / 2
            batches = torch.from_numpy(drawn.batches[0, round_number - 1, place])
            end, _ = local_steps(
                problem.module, problem, vector, batches, Steps(ready.procedure.step_sizes.at(round_number))
            )
            total += weight * (vector - end)
        vector = vector - total
        if round_number in link.taken_out:
            assert torch.allclose(link.taken_out[round_number][0], vector, rtol=0, atol=1e-6)
    assert not torch.allclose(link.untouched[8][0], vector, rtol=0, atol=1e-3)


def test_only_takes_out_what_is_outside(lineage):
    retained = lineage["sample"].plan.retained
    schedule = expand(lineage["parent"].plan)
    left = RestrictedSchedule(schedule, retained)
    (sample,) = lineage["sample"].request.samples
    for number in range(1, schedule.rounds + 1):
        whole, kept = schedule.round(number), left.round(number)
        assert np.array_equal(kept.cohorts, whole.cohorts)
        assert np.array_equal(kept.batches, np.where(whole.batches == sample, NONE, whole.batches))
    assert left.takes_something == (schedule.batches == sample).any()
    assert not RestrictedSchedule(expand(lineage["sample"].plan), retained).takes_something


def test_gaps_are_largest_differences_over_the_scale():
    ours = {0: (torch.tensor([1.0, 2.0]), {}), 2: (torch.tensor([1.0, 4.0]), {"m": torch.zeros(1), "n": torch.ones(1)})}
    theirs = {
        0: (torch.tensor([1.0, 2.0]), {}),
        2: (torch.tensor([1.5, 4.25]), {"m": torch.zeros(1), "n": torch.ones(1) * 3}),
    }
    unit = {
        0: (torch.tensor([1.0, -2.0]), {}),
        2: (torch.tensor([-8.0, 1.0]), {"m": torch.ones(1), "n": torch.ones(1)}),
    }
    assert gaps(ours, theirs, unit) == {(2, "vector"): 0.5 / 8, (2, "state n"): 2.0}
    assert gaps(theirs, ours, unit) == gaps(ours, theirs, unit)


def test_gaps_of_a_row_a_client_are_over_its_own_scale():
    table = torch.tensor([[1e6, 0.0], [1.0, 2.0], [0.0, 0.0]])
    other = table + torch.tensor([[10.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    ours, theirs = ({0: (torch.ones(1), {"m": one})} for one in (table, other))
    assert gaps(ours, theirs, ours) == {(0, "state m"): 1e-5}
    assert gaps(ours, theirs, ours, {"m"}) == {(0, "state m", 0): 1e-5, (0, "state m", 1): 0.5}
    narrow = {0: (torch.ones(1), {"m": other[:2]})}
    assert gaps(ours, narrow, ours, {"m"}) == {(0, "state m"): inf}


def test_a_zero_of_the_other_sign_is_no_equal_bit():
    """It is an equal number, and no gap: something can be written in signs of zeros."""
    ours, theirs = ({0: (torch.tensor([zero, 1.0, 2.0, torch.nan]), {})} for zero in (0.0, -0.0))
    assert (bit_equal(ours, ours), bit_equal(ours, theirs)) == (1, 0.75)
    assert bit_equal(ours, {0: (ours[0][0].double(), {})}) == 0


def test_equal_bits_are_counted_where_fewest_are():
    """Neither other rounds, nor numbers that no round moved, nor other clients' rows speak for a tensor."""
    start = {0: (torch.arange(8.0), {"m": torch.zeros(3, 4)})}
    table = torch.tensor([[0.0, 0.0, 0.0, 0.0], [1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 0.0]])
    moved = torch.arange(8.0)
    moved[:4] += 1
    theirs = start | {2: (moved, {"m": table})}
    assert bit_equal(theirs, theirs, {"m"}) == 1
    model, state = moved.clone(), table.clone()
    model[0] = 1.5
    assert bit_equal(start | {2: (model, {"m": table})}, theirs, {"m"}) == 3 / 4
    model[7] = 7.5  # what no round moved counts once it differs
    assert bit_equal(start | {2: (model, {"m": table})}, theirs, {"m"}) == 3 / 5
    state[2, 0] = 1.5
    assert bit_equal(start | {2: (moved, {"m": state})}, theirs, {"m"}) == 2 / 3
    assert bit_equal(start | {2: (moved, {"m": state})}, theirs) == 6 / 7
    assert bit_equal(start | {2: (moved, {})}, theirs, {"m"}) == 0
    kept = torch.arange(8.0)
    kept[:3] += 1  # rounds that were kept moved these three, and later ones the fourth
    assert bit_equal(start | {2: (model, {"m": table})}, theirs, {"m"}, {1: (kept, {"m": table})}) == 1 / 3


@pytest.mark.parametrize(
    ("a", "b", "scale"),
    [
        (torch.ones(2), torch.ones(3), torch.ones(2)),
        (torch.ones(2), torch.ones(2).double() * 2, torch.ones(2)),
        (torch.ones(2), torch.tensor([1.0, torch.nan]), torch.ones(2)),
        (torch.full((2,), torch.nan), torch.full((2,), torch.nan), torch.ones(2)),
        (torch.ones(2), torch.ones(2) + EPS, torch.tensor([torch.nan, 1.0])),
        (torch.ones(2), torch.ones(2) + EPS, torch.zeros(2)),
        (torch.tensor([1]), torch.tensor([2]), torch.tensor([1])),
    ],
)
def test_what_cannot_be_compared_is_infinitely_far(a, b, scale):
    assert gaps({0: (a, {})}, {0: (b, {})}, {0: (scale, {})}) == {(0, "vector"): inf}
    empty = {0: (torch.ones(1), {})}
    assert gaps({0: (torch.ones(1), {"m": a})}, empty, empty) == {(0, "state m"): inf}


# spot checks


def test_detection_by_counting_every_subset():
    for stretches in range(1, 8):
        for replayed in range(stretches + 1):
            subsets = list(combinations(range(stretches), replayed))
            for forged in range(1, stretches + 1):
                seen = sum(min(subset, default=stretches) < forged for subset in subsets)
                assert detection(stretches, replayed, forged) == Fraction(seen, len(subsets))


def forged_at(run, stretch):
    """A run in which one stretch is forged: its end is moved a little, and everything after follows from that."""
    case = case_of(run)
    _, end = stretch
    models = {round_number: run.checkpoint(round_number) for round_number in run.checkpoints}
    vector, state = models[end]
    models[end] = vector + 1e-6, state
    round_state = RoundState(models[end][0][None], {})
    retained = run.plan.retained
    for round_number, after in execute(
        case.rerun.ready.procedure,
        case.rerun.ready.client_problem(retained),
        retained,
        case.rerun.schedule,
        round_state,
        case.rerun.ready.engine,
        first=end + 1,
    ):
        if round_number in models:
            models[round_number] = after.vectors[0], {}
    return store(run, models)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("name", ["parent", "client"])
def test_one_forged_stretch_is_seen_as_often_as_stated(made, tmp_path, name, count):
    """For a fixed key, exactly the drawn stretches convict: N of S forgeries, no sampling."""
    verdicts = {}
    for key in (AUDIT_KEY, secret(50)):
        for stretch in ((0, 2), (2, 4), (4, 6), (6, 8)):
            folder = tmp_path / f"{stretch[0]}-{key.hex()}"
            run = forged_at(load_run(shutil.copytree(made / name, folder)), stretch)
            case = changed(case_of(load_run(made / name), key), run=run)
            found = Replay(stretches=count).examine(case)
            whole, chosen = drawn_stretches(case, count)
            assert whole == [(0, 2), (2, 4), (4, 6), (6, 8)]
            assert found.verdict == ("FAIL" if stretch in chosen else "INCONCLUSIVE")
            assert found.values["detection"] == str(Fraction(count, 4))
            assert "starts from stored models" in found.shows_not
            assert "replayed" not in vars(case), "everything was replayed"
            verdicts[key, stretch] = found.verdict
    assert list(verdicts.values()).count("FAIL") == 2 * count
    assert Replay().examine(case).verdict == "FAIL"


def test_all_stretches_are_a_full_replay(made):
    case = case_of(load_run(made / "client"))
    found = Replay(stretches=100).examine(case)
    assert found.verdict == "PASS"
    assert found.values["detection"] == "1"
    assert found.values["stretches_replayed"] == 4


def test_a_forged_beginning_is_always_seen(made, tmp_path):
    """All stretches follow from an initial model that no key makes."""
    run = load_run(shutil.copytree(made / "client", tmp_path / "child"))
    found = Replay(stretches=1).examine(case_of(forged_at(run, (0, 0))))
    assert found.verdict == "FAIL"
    assert "initial model" in " ".join(found.details)


def test_a_ledger_of_rounds_that_are_not_stored(made, tmp_path):
    run = load_run(shutil.copytree(made / "parent", tmp_path / "parent"))
    models = {round_number: run.checkpoint(round_number) for round_number in run.checkpoints}
    with pytest.raises(EvidenceError, match="other rounds than those whose models are stored"):
        store(run, models, {7: torch.zeros_like(run.model)})


def test_a_ledger_of_another_model_than_is_stored(made, tmp_path):
    run = load_run(shutil.copytree(made / "parent", tmp_path / "parent"))
    models = {round_number: run.checkpoint(round_number) for round_number in run.checkpoints}
    found = Replay(stretches=4).examine(case_of(store(run, models, {6: torch.zeros_like(run.model)})))
    assert found.verdict == "FAIL"
    assert "ledger names another model for round 6" in " ".join(found.details)


def test_a_spot_check_compares_bits(lineage):
    """On another platform it decides nothing."""
    found = Replay(stretches=4).examine(case_of(elsewhere(lineage["client"])))
    assert found.verdict == "INCONCLUSIVE"
    assert "this platform" in found.shows


def test_an_auditor_may_ask_for_a_spot_check(made):
    run = load_run(made / "client")
    result, found = audits(run, spot_check=2)
    assert result.verdict == "INCONCLUSIVE"
    assert found["replay"].verdict == found["lineage"].verdict == "INCONCLUSIVE"
    assert found["replay"].values["detection"] == "1/2"
    assert found["replay"].values["detection_of_more"] == "2: 0.8333"
    whole, _ = audits(run)
    assert whole.verdict == "PASS"
    with pytest.raises(UsageError, match="a number of stretches, from 1"):
        audits(run, spot_check=0)


def test_a_spot_check_still_lists_what_is_left_behind(lineage):
    parent, child = lineage["parent"], lineage["client"]
    shutil.copy(parent.path / of_round(CHECKPOINT, 8), child.path / of_round(CHECKPOINT, 7))
    with pytest.raises(EvidenceError, match="models of other rounds than those whose models are stored"):
        reseal(child.path)

    def stored(events):
        return [event | ({"model": "0" * 64} if event.get("round") == 7 else {}) for event in events]

    case = case_of(told(child.path, stored), spot_check=1)
    found = Lineage().examine(case)
    assert "replayed" not in vars(case), "everything was replayed"
    assert found.verdict == "FAIL"
    assert any("left behind" in line for line in found.details)


def test_figures_must_follow_from_the_stored_models(lineage):
    child = lineage["client"]
    rows = json.loads((child.path / "metrics.json").read_text())
    rows[-1]["test_accuracy"] = 0.99
    (child.path / "metrics.json").write_bytes(pretty_json(rows))
    assert Lineage().examine(case_of(reseal(child.path), spot_check=1)).verdict == "FAIL"


def test_a_probability_is_asked_for_as_it_is_written():
    """As a float .2 is more than a fifth, and one stretch of five would not be enough."""
    for whole in (4, 5, 10, 20):
        for count in range(1, whole + 1):
            assert suffices(detection(whole, count, 1), count / whole)
            assert not suffices(detection(whole, count - 1, 1), count / whole)


def test_a_spec_sets_the_probability_it_asks_for(made):
    run = load_run(made / "client")
    for expected, options in (
        ("PASS", {"stretches": 1, "detection": 0.25}),
        ("INCONCLUSIVE", {"stretches": 1, "detection": 0.26}),
        ("INCONCLUSIVE", {"stretches": 3}),
    ):
        result, found = audits(run, spec=spec("bound", **options))
        assert found["replay"].verdict == expected
        assert result.verdict == "INCONCLUSIVE"
    assert Replay(stretches=3).evidence == {"execution"}
    assert Replay(stretches=1, detection=0.25).evidence == frozenset()
    for wrong in ({"stretches": -1}, {"detection": 0.0}, {"detection": 1.5}):
        with pytest.raises(UsageError):
            Replay(**wrong)


def test_the_command_to_repeat_a_spot_check(lineage):
    child = lineage["client"]
    asked = verify(child, spec("exact"), key=AUDIT_KEY, spot_check=3).as_json()
    assert any(line.endswith("--spot-check 3") for line in commands(read_contents(asked)))
    by_the_spec = verify(child, spec("exact", stretches=3), key=AUDIT_KEY).as_json()
    assert not any("--spot-check" in line for line in commands(read_contents(by_the_spec)))


def test_the_command_to_repeat_it_has_every_argument_that_bears_on_findings(lineage):
    """Numbers of samples are those of before training, which the command line counts; folders have stand-ins."""
    child = lineage["client"]
    sample = child.sample(3, 4)
    asked = {"budget": 0, "commitment": "ab" * 32, "request": Request.of([1], [sample]), "stopping": "decided"}
    whole = read_spec("client-erasure")
    whole = replace(
        whole, checks=tuple(c for c in whole.checks if c.audit["use"] in ("replay", "provenance", "model-law"))
    )
    found = [verify(child, whole, key=AUDIT_KEY, parent=lineage["parent"].path, **asked) for _ in range(2)]
    assert found[0].as_json() == found[1].as_json()
    line = commands(read_contents(found[0].as_json()))[2]
    assert line.endswith(
        f"--key {AUDIT_KEY.hex()} --parent PARENT --commitment {'ab' * 32} "
        "--client 1 --sample 3:4 --budget 0 --stopping decided"
    )
    other = verify(child, whole, key=AUDIT_KEY, budget=1).as_json()
    assert commands(read_contents(other))[2].endswith(f"{AUDIT_KEY.hex()} --budget 1")


def test_spot_on_the_command_line(made, tmp_path, fuaudit, lean_file):
    for name in ("parent", "client"):
        shutil.copytree(made / name, tmp_path / name)
    given = ("--spec", lean_file, "--budget", 0, "--key", AUDIT_KEY.hex(), "--json")
    command = "verify", tmp_path / "client", "--spot-check", 1, *given
    code, out, _ = fuaudit(*command)
    assert code == 3
    found = {row["finding"]["audit"]: row["finding"] for row in json.loads(out)["checks"]}
    values = {figure["key"]: figure["value"] for figure in found["replay"]["figures"]}
    assert (values["stretches_replayed"], values["detection"]) == (1, "1/4")
    assert fuaudit("verify", tmp_path / "client", "--spot-check", 0)[0] == 2
