"""What unlearning means where server or clients keep a memory of every client.

A restart at the first round of an erased client is exact as long as kept rounds know nothing of it. They do where a
method divides by the number of all clients (MIFA, SCAFFOLD). A memory that is purged of a row but not rewound still
knows the client through the rows of those who took part with it.
"""

import json
import re
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

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
    lean,
    reseal,
    secret,
    with_options,
)

from fuaudit import load_run, train, unlearn, verify
from fuaudit.audits.lineage.audit import Lineage
from fuaudit.draws import Keyed
from fuaudit.errors import EvidenceError, UsageError
from fuaudit.formats.files import sha256
from fuaudit.formats.forms import pretty_json
from fuaudit.plans import Request
from fuaudit.selftest.faults import with_memory_kept
from fuaudit.training.setup import setup
from fuaudit.verification.case import Case
from fuaudit.verification.evidence import Evidence
from fuaudit.verification.spec import read_spec
from fuaudit.workflow.prune import prune
from fuaudit.workflow.resume import resume

SOMETIMES = {"scenario": "static", "probability": 0.3, "first_all": False}
ROBIN = {"scenario": "round-robin", "tau_max": 4, "phase": "drawn", "first_all": False}


def learner(name, **options):
    return {"use": name, "rounds": 8, "steps": 2, "batch": 4, "step_size": 0.1, "decay": 0.9, **options}


@pytest.fixture(autouse=True)
def _mutants(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "mutants"))


@pytest.fixture(scope="module")
def parent_of(tmp_path_factory):
    """A run of a method in which clients come and go; made once."""
    made = {}

    def work(name, availability=SOMETIMES, **changes):
        key = json.dumps([name, availability, changes], sort_keys=True)
        if key not in made:
            folder = tmp_path_factory.mktemp(name)
            made[key] = train(
                config(learner=learner(name, **availability), **changes), folder / "run", secret=secret(4)
            )
        return made[key]

    return work


@pytest.fixture(scope="module")
def examined():
    """Verdict and findings of the audits that judge models and plan of a run, and the kept rounds of stress plans.

    Enumeration does not look at solvers and servers, so it is asked once for every law only.
    """
    spec = read_spec("client-erasure")
    judges = ("integrity", "replay", "stress", "provenance", "lineage")
    spec = replace(spec, asks="run", checks=tuple(check for check in spec.checks if check.audit["use"] in judges))

    def work(run, **options):
        result = verify(run, spec=spec, budget=0, key=AUDIT_KEY, save=False, **options)
        return result, {finding.audit: finding for finding in result.findings}

    return work


def verdicts(found):
    return {name: (finding.verdict, finding.shows, finding.details) for name, finding in found.items()}


KNOWS_ALL = {"mifa", "scaffold"}
METHODS = ["dropouts", "fedprox", "scaffold", "mifa", "mimic", "mimic-at-clients"]


@pytest.mark.parametrize("name", METHODS)
def test_fats_forgets_a_client_unless_kept_rounds_divide_by_their_number(name, parent_of, examined):
    run = parent_of(name)
    request = Request.of([drawn_client(run)])
    if name in KNOWS_ALL:
        with pytest.raises(UsageError, match=r"depend on all clients, .* 'fats', which keeps rounds"):
            unlearn(run, "fats", request, run.path.parent / "fats")
    child = unlearn(run, "fats", request, run.path.parent / "fats", allow_inexact=name in KNOWS_ALL)
    assert bool(child.info["doubts"]) == (name in KNOWS_ALL)
    result, found = examined(child)
    expected = "FAIL" if name in KNOWS_ALL else "PASS"
    assert result.verdict == expected, verdicts(found)
    for audit in ("replay", "stress", "lineage"):
        assert found[audit].verdict == expected
    assert found["provenance"].verdict == "PASS"
    retrained, found = examined(unlearn(run, "retrain", request, run.path.parent / "retrained"))
    assert retrained.verdict == "PASS", verdicts(found)


@pytest.mark.parametrize("name", METHODS)
def test_fats_forgets_a_sample_with_every_memory(name, parent_of, examined):
    """The number of clients stays, and no row knows a sample that was not yet drawn."""
    run = parent_of(name)
    result, found = examined(unlearn(run, "fats", Request.of(samples=[drawn_sample(run)]), run.path.parent / "sample"))
    assert result.verdict == "PASS", verdicts(found)
    assert found["stress"].values["kept_rounds"] > 0


@pytest.mark.parametrize("name", sorted(KNOWS_ALL))
def test_what_was_drawn_decides_no_refusal(name, parent_of, tmp_path):
    """Whoever is refused for what was drawn, and takes another method, changes the law of the result."""
    run = parent_of(name)
    first, never = run.plan.cohort(1)[0], next((c for c in range(10) if c not in run.plan.index.clients), None)
    for client in {first, drawn_client(run), first if never is None else never}:
        with pytest.raises(UsageError, match="depend on all clients"):
            unlearn(run, "fats", Request.of([client]), tmp_path / "child")


def test_doubts_go_on_to_children(parent_of, tmp_path):
    """What an earlier method kept is still there; only starting over is free of it."""
    run = parent_of("mimic")
    asked = [Request.of([client]) for client in run.plan.retained.clients[:2]]
    kept = unlearn(run, "noop", asked[0], tmp_path / "noop")
    assert kept.info["doubts"] == ["'noop' claims to be exact for no law"]
    with pytest.raises(UsageError, match="'noop' claims to be exact for no law"):
        unlearn(kept, "fats", asked[1], tmp_path / "fats")
    assert unlearn(kept, "fats", asked[1], tmp_path / "fats", allow_inexact=True).info["doubts"] == kept.info["doubts"]
    assert unlearn(kept, "retrain", asked[1], tmp_path / "retrain").info["doubts"] == []
    again = unlearn(run, "fats", asked[0], tmp_path / "first")
    assert again.info["doubts"] == []
    assert unlearn(again, "fats", asked[1], tmp_path / "second").info["doubts"] == []


@pytest.mark.parametrize("name", ["scaffold", "mifa", "mimic"])
def test_with_everybody_there_first_nothing_is_kept(name, parent_of, examined):
    """A first round of all means that forgetting a client starts again, from the same initial model."""
    run = parent_of(name, {**SOMETIMES, "first_all": True})
    child = unlearn(run, "fats", Request.of([3]), run.path.parent / "fats")
    assert child.info["first_change"] == [1, 0]
    result, found = examined(child)
    assert result.verdict == "PASS", verdicts(found)


@pytest.mark.parametrize("name", ["scaffold", "mifa", "mimic", "mimic-at-clients"])
def test_a_memory_that_was_not_rewound(name, parent_of, examined):
    """The model goes back to before the first round of the client, the memory only loses its row."""
    run = parent_of(name)
    child = unlearn(run, "fats", Request.of([drawn_client(run)]), run.path.parent / "not-rewound", allow_inexact=True)
    kept = [round_number for round_number in run.checkpoints if 0 < round_number < child.info["first_change"][0]]
    spoiled = with_memory_kept(run, child, run.path.parent / "spoiled")
    assert kept
    for round_number in kept:
        assert torch.equal(spoiled.checkpoint(round_number)[0], child.checkpoint(round_number)[0])
    shapes = [{name: rows.shape for name, rows in one.checkpoint(8)[1].items()} for one in (spoiled, child)]
    assert shapes[0] == shapes[1], "the row is gone"
    result, found = examined(spoiled)
    assert result.verdict == "FAIL"
    assert found["replay"].verdict == "FAIL"
    assert found["lineage"].verdict == "FAIL"
    assert found["provenance"].verdict == "PASS", "the draws are right, the memory is not"


@pytest.mark.parametrize("name", ["scaffold", "mifa", "mimic", "mimic-at-clients"])
def test_dropping_the_row_alone_is_no_unlearning(name, parent_of, examined):
    """noop keeps model and memory; the core takes the row out, and the rest still knows the client."""
    run = parent_of(name)
    child = unlearn(run, "noop", Request.of([drawn_client(run)]), run.path.parent / "noop")
    last = child.checkpoint(8)[1]
    assert {t.shape[0] for t in last.values() if t.shape[0] > 1} == {9}
    _, found = examined(child)
    assert found["replay"].verdict == "FAIL"
    assert found["lineage"].verdict == "FAIL"


def test_a_memory_whose_rows_are_not_named(parent_of):
    """A mutant: MIFA that looks rows up by client id and does not say that it keeps them. The row stays.

    It is noticed by its shape as soon as such a run is opened, which unlearning does at its end.
    """
    run = parent_of("mifa", server=[{"use": "mutant-unnamed-rows"}])
    last = run.plan.retained.clients[-1]  # ids below it still find their rows
    with pytest.raises(EvidenceError, match=r"memories .* other shapes"):
        unlearn(run, "fats", Request.of([last]), run.path.parent / "unnamed", allow_inexact=True)
    with pytest.raises(EvidenceError, match=r"memories .* other shapes"):
        load_run(run.path.parent / "unnamed")


def findings(folder, result):
    """The file of a verification."""
    path = folder / "findings.json"
    path.write_bytes(pretty_json(result.as_json()))
    return path


def test_gaps_and_conditions_are_recorded_and_regenerated(parent_of, examined):
    run = parent_of("mimic")
    table = json.loads((run.path / "participation.json").read_text())
    cohorts = [run.plan.cohort(round_number) for round_number in range(1, 9)]
    assert table["cohorts"] == [list(cohort) for cohort in cohorts]
    assert table["uploads"] == [sum(map(len, cohorts[:r])) for r in range(1, 9)]
    assert table["own_accuracy"].keys() == table["gaps"].keys()
    data, owned = setup(run.config).dataset, run.plan.retained.samples[3]
    weight, bias = run.model.split([640, 10])
    logits = data.inputs[list(owned)].flatten(1) @ weight.view(10, 64).T + bias
    hits = (logits.argmax(dim=1) == data.targets[list(owned)]).sum()
    assert table["own_accuracy"]["3"] == f"{int(hits) / len(owned):.6f}"
    assert run.own_accuracy["3"] == pytest.approx(int(hits) / len(owned), abs=5e-7)
    for client in run.plan.retained.clients:
        there = [0, *(r for r in range(1, 9) if client in cohorts[r - 1]), 9]
        assert table["gaps"][str(client)] == max(b - a for a, b in pairwise(there))
    assert table["largest_gap"] == max(table["gaps"].values())
    assert set(table["conditions"]) == {"condition_19", "smallest_rho", "log10_of_largest_smoothness"}
    child = unlearn(run, "fats", Request.of([drawn_client(run)]), run.path.parent / "gaps")
    assert str(child.request.clients[0]) not in json.loads((child.path / "participation.json").read_text())["gaps"]
    (child.path / "participation.json").write_bytes(pretty_json(table))
    _, found = examined(reseal(child.path))
    assert found["lineage"].verdict == "FAIL"
    assert any("participation.json" in line for line in found["lineage"].details)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("work", "scenario", "name"),
    [("epochs", SOMETIMES, "mimic"), ("steps", ROBIN, "mimic-at-clients"), ("epochs", ROBIN, "dropouts")],
)
def test_a_pruned_run_is_the_same_evidence(work, scenario, name, tmp_path, examined):
    """Where a client's period says when it would have been there, it is gone: findings of before show what it did."""
    options = learner(name, **scenario)
    if work == "epochs":
        options = {k: v for k, v in options.items() if k != "steps"} | {"epochs": 1, "largest_client": 200, "batch": 60}
    run = train(config(learner=options), tmp_path / "run", secret=secret(4))
    target = drawn_client(run, 1)
    child = unlearn(run, "fats", Request.of([target]), tmp_path / "child")
    history = child.plan.history()
    result, found = examined(child)
    assert {finding.verdict for finding in found.values()} == {"PASS"}, verdicts(found)
    asked = {"commitment": run.commitment, "request": child.request}
    small = {"use": "plan-law", "plans": 200, "effect": 0.05, "alpha": 0.001}
    spec = read_spec("client-erasure")
    both = [check for check in spec.checks if check.audit["use"] in ("provenance", "plan-law")]
    both = [replace(check, audit=small) if check.audit["use"] == "plan-law" else check for check in both]
    spec = replace(spec, checks=tuple(both))
    with pytest.raises(UsageError, match="never pruned"):
        verify(child, spec=spec, key=AUDIT_KEY, save=False, before=findings(tmp_path, result))
    (tmp_path / "plan-only.json").write_bytes(pretty_json(result.as_json()))
    unasked = verify(child, spec=spec, key=AUDIT_KEY, save=False)
    (tmp_path / "unasked.json").write_bytes(pretty_json(unasked.as_json()))
    document = findings(tmp_path, verify(child, spec=spec, key=AUDIT_KEY, save=False, **asked))
    pruned, _ = prune(child)
    assert pruned.plan.history() == history
    leaves, seeds = pruned.leaves, pruned.keys.seeds
    assert [seeds.holds(leaves.client(0, c)) for c in run.original.clients] == [c != target for c in range(10)]
    result, found = examined(pruned)
    if scenario is ROBIN:
        assert found["provenance"].verdict == "INCONCLUSIVE"
        assert "no findings from before the prune were given (--before)" in found["provenance"].shows
        for name, missing in (("plan-only", "do not pass plan-law"), ("unasked", "did not compare this --commitment")):
            result, found = examined(pruned, before=tmp_path / f"{name}.json", **asked)
            assert found["provenance"].verdict == "INCONCLUSIVE"
            assert missing in found["provenance"].shows
        table = json.loads(document.read_text())
        table["checks"][0]["finding"]["verdict"] = "FAIL"
        (tmp_path / "failed.json").write_bytes(pretty_json(table))
        found = examined(pruned, before=tmp_path / "failed.json", **asked)[1]["provenance"]
        assert found.verdict == "INCONCLUSIVE"
        assert any("do not pass the audit provenance" in line for line in found.assumptions)
        (tmp_path / "failed.json").write_bytes(pretty_json(json.loads(document.read_text()) | {"verdict": "FAIL"}))
        found = examined(pruned, before=tmp_path / "failed.json", **asked)[1]["provenance"]
        assert found.verdict == "INCONCLUSIVE"
        assert "the findings given say FAIL" in " ".join((found.shows, *found.assumptions, *found.details)), found
        result, found = examined(pruned, before=document, **asked)
        assert any("shown before the prune, by the findings" in line for line in found["provenance"].details)
        assert "was shown before the prune, by the findings given with --before" in found["provenance"].shows
        told = f"with --before (SHA-256 {sha256(document.read_bytes())}) are the auditor's own: nothing in them proves"
        assert any(told in line for line in found["provenance"].assumptions)
    else:
        unneeded = examined(pruned, before=document)[1]["provenance"].assumptions
        told = "--before: what is left of the run answers all that this audit asks. No other audit reads them"
        assert any(told in line for line in unneeded)
    assert {finding.verdict for finding in found.values()} == {"PASS"}, verdicts(found)


@pytest.mark.parametrize("scenario", [SOMETIMES, ROBIN], ids=lambda s: s["scenario"])
def test_epochs_forget_a_sample(scenario, tmp_path, examined):
    """Every epoch of its owner reads it, so the restart is at the owner's first epoch."""
    options = learner("mimic", **scenario)
    options = {k: v for k, v in options.items() if k != "steps"} | {"epochs": 2, "largest_client": 200, "batch": 60}
    run = train(config(learner=options), tmp_path / "run", secret=secret(4))
    owner = drawn_client(run)
    sample = run.plan.retained.samples[owner][5]
    child = unlearn(run, "fats", Request.of(samples=[sample]), tmp_path / "child")
    assert child.info["first_change"] == [run.plan.index.clients[owner], 1]
    result, found = examined(child)
    assert result.verdict == "PASS", verdicts(found)


def test_a_share_of_the_clients_is_refuted_by_enumeration(tmp_path, examined, fuaudit):
    """Three tenths of ten clients are three, of nine clients two: kept rounds have too many."""
    options = learner("dropouts", scenario="time-varying", share=0.3, first_all=False)
    run = train(config(learner=options), tmp_path / "run", secret=secret(4))
    assert {len(run.plan.cohort(r)) for r in range(1, 9)} == {3}
    request = Request.of([drawn_client(run, 1)])
    command = ("unlearn", run.path, "--with", "fats", "--client", request.clients[0], "--out", tmp_path / "fats")
    code, _, err = fuaudit(*command)
    assert code == 2
    assert "does not claim to be exact for client requests under draws of the law 'time-varying" in err
    assert "'retrain', which keeps nothing; or say --allow-inexact" in err
    assert not (tmp_path / "fats").exists()
    assert fuaudit(*command, "--allow-inexact")[0] == 0
    result, found = audits(load_run(tmp_path / "fats"))
    assert result.verdict == "FAIL"
    assert found["enumeration"].verdict == "FAIL"
    result, found = examined(unlearn(run, "retrain", request, tmp_path / "retrain"))
    assert result.verdict == "PASS", verdicts(found)


@pytest.mark.thorough
@pytest.mark.parametrize("scenario", [SOMETIMES, ROBIN], ids=lambda s: s["scenario"])
def test_all_audits_of_a_run_with_dropouts(scenario, parent_of):
    """With the proof that the draws have the law of retraining. Such laws have more outcomes than others."""
    run, spec = parent_of("mimic", scenario), with_options(lean("client-erasure"), enumeration={"leaves": 12_000})
    child = unlearn(run, "fats", Request.of([drawn_client(run, 1)]), run.path.parent / "all")
    result = verify(child, spec, budget=0, key=AUDIT_KEY, save=False)
    found = {finding.audit: finding for finding in result.findings}
    assert result.verdict == "PASS", verdicts(found)
    assert found["enumeration"].values["proved"] > 10


def test_the_work_announced_counts_everybody_who_may_be_there(parent_of):
    """In any round all ten clients may be available, so one run of 8 rounds and 2 steps has up to 160 steps."""
    run = parent_of("mimic")
    run = unlearn(run, "fats", Request.of([drawn_client(run, 1)]), run.path.parent / "announced")
    told = []
    spec = read_spec("client-erasure")
    check = next(check for check in spec.checks if check.audit["use"] == "model-law")
    spec = replace(spec, checks=(replace(check, audit={**check.audit, "pairs": 16}),))
    verify(run, spec=spec, key=AUDIT_KEY, save=False, estimate=told.append)
    work = re.fullmatch(r"repeated sampling: .* (\d+) training runs, at most ([\d,]+) client steps", told[0])
    assert int(work[2].replace(",", "")) == int(work[1]) * 160


@pytest.mark.thorough
def test_a_run_in_which_everybody_is_always_there_can_pass(tmp_path):
    """Periods up to 0 are a law too, and enumeration has a small form of it."""
    run = train(config(learner=learner("mimic", scenario="round-robin", tau_max=0)), tmp_path / "run", secret=secret(4))
    result, found = audits(unlearn(run, "fats", Request.of([3]), tmp_path / "fats"))
    assert result.verdict == "PASS", verdicts(found)
    assert found["enumeration"].verdict == "PASS"


@pytest.mark.parametrize("name", ["scaffold", "mifa", "mimic"])
def test_a_run_with_memory_resumes_to_the_same_digest(name, parent_of, tmp_path):
    """The memory is in the checkpoints, so a kill after round 5 costs one round."""
    run = parent_of(name)
    shutil.copytree(run.path, tmp_path / "cut")
    keep = {"config.toml", "partition.safetensors", "plan.json", "keys.json", "run.json", "ledger.jsonl"}
    keep |= {"contents.safetensors", "clients.json"}
    for path in (p for p in (tmp_path / "cut").rglob("*") if p.is_file()):
        if path.name not in keep and path.stem not in ("000000", "000002", "000004"):
            path.unlink()
    assert resume(tmp_path / "cut").digest == run.digest


@pytest.mark.parametrize("scenario", [SOMETIMES, ROBIN], ids=lambda s: s["scenario"])
def test_a_request_during_training(scenario, tmp_path, examined):
    """After five of eight rounds; what was not executed is drawn from the new key, with the client or without."""
    stopped = train(config(learner=learner("mimic", **scenario)), tmp_path / "run", secret=secret(4), stop_after=5)
    child = unlearn(stopped, "fats", Request.of([drawn_client(stopped, 1)]), tmp_path / "child")
    result, found = examined(child)
    assert result.verdict == "PASS", verdicts(found)
    assert child.rounds_executed == 8


def test_an_editor_may_train_on(parent_of, examined):
    """Continued training starts with an empty memory and never sees the client's row; it proves nothing."""
    run = parent_of("mimic")
    child = unlearn(run, "finetune", Request.of([3]), run.path.parent / "finetune")
    result, found = examined(child)
    assert result.verdict == "INCONCLUSIVE", verdicts(found)
    assert not child.checkpoint(8)[1]


def forge(run, name, **changes):
    """Change entries of a JSON file of a run, or of the last row of a list of them, and seal it again."""
    table = json.loads((run.path / name).read_text())
    (table[-1] if isinstance(table, list) else table).update(changes)
    (run.path / name).write_bytes(pretty_json(table))
    return reseal(run.path)


@pytest.mark.parametrize(
    ("name", "changes", "without_data"),
    [
        ("metrics.json", {"test_accuracy": 0.99}, "NOT_APPLICABLE"),
        ("participation.json", {"own_accuracy": {"1": "1.000000"}}, "NOT_APPLICABLE"),
        ("participation.json", {"uploads": [1] * 8}, "FAIL"),
        ("participation.json", {"cohorts": [[1]] * 8}, "FAIL"),
    ],
)
def test_figures_of_an_edited_model_are_those_of_its_plan_and_model(
    name, changes, without_data, parent_of, examined, tmp_path
):
    run = parent_of("mimic")
    honest = unlearn(run, "finetune", Request.of([3]), tmp_path / "finetune")
    data = setup(honest.config).dataset
    case = Case(Evidence(honest, None, data), Keyed(AUDIT_KEY))
    assert Lineage().examine(case).verdict == "NOT_APPLICABLE"
    assert Lineage().examine(changed(case, dataset=None)).verdict == "NOT_APPLICABLE"
    forged = changed(case, run=forge(honest, name, **changes))
    found = Lineage().examine(forged)
    assert found.verdict == "FAIL"
    assert f"not regenerated: {name}" in found.details
    assert Lineage().examine(changed(forged, dataset=None)).verdict == without_data


@pytest.mark.parametrize(("changes", "verdict"), [("own", "INCONCLUSIVE"), ("uploads", "FAIL")])
def test_what_is_arithmetic_of_dropouts_is_judged_as_figures_elsewhere(changes, verdict, parent_of, tmp_path):
    """A training row that tips over on another platform is no contradiction; who took part is the plan's."""
    shutil.copytree(parent_of("dropouts").path, tmp_path / "run")
    run = load_run(tmp_path / "run")
    child = unlearn(run, "fats", Request.of([drawn_client(run)]), tmp_path / "child")
    claimed(child.path, torch="another")
    table = json.loads((child.path / "participation.json").read_text())
    own = table["own_accuracy"]
    first = next(iter(own))
    new = (
        {"own_accuracy": own | {first: f"{abs(float(own[first]) - 1 / 180):.6f}"}}
        if changes == "own"
        else {"uploads": [0] * 8}
    )
    child = forge(child, "participation.json", **new)
    found = Lineage().examine(Case(Evidence(child, run, setup(run.config).dataset), Keyed(AUDIT_KEY)))
    assert found.verdict == verdict, (found.shows, found.details)
    assert ("figures" in found.shows) == (changes == "own")


def test_a_run_that_cannot_be_pruned_is_left_alone_with_its_folder(parent_of, tmp_path, bytes_of, monkeypatch):
    """Its law has draws that last all rounds, and does not say so. What was written beside the run goes again."""
    parent = load_run(shutil.copytree(parent_of("mifa", ROBIN).path, tmp_path / "run"))
    first = parent.plan.index.clients
    request = Request.of([max(first, key=first.__getitem__)])
    child = unlearn(parent, "fats", request, tmp_path / "child", allow_inexact=True)
    assert child.info["first_change"][0] > 1
    before = bytes_of(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(type(child.plan.law), "lasting", False)
        with pytest.raises(UsageError, match="cannot be pruned: draws that it keeps"):
            prune(child)
    assert bytes_of(tmp_path) == before
    assert prune(child)[0].pruned
