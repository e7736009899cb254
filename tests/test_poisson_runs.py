"""Runs with Poisson batches: trained, unlearned, verified, pruned, on every engine; and a wrong method refuted."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from test_replay import case_of, elsewhere
from tests_support import AUDIT_KEY, config, drawn_client, lean, of_the_run, secret, with_options

from fuaudit import load_run, train, unlearn, verify
from fuaudit.audits.replay.audit import Replay
from fuaudit.draws import END
from fuaudit.errors import UsageError
from fuaudit.plans import Request
from fuaudit.plans.availability import chance_of_cuts
from fuaudit.plans.expanded import expand
from fuaudit.plans.participation import Involvement
from fuaudit.runs.derived_files import INVOLVEMENT
from fuaudit.testing.tiny import tiny_config, tiny_dataset
from fuaudit.training.setup import setup
from fuaudit.verification.verify import default_spec
from fuaudit.workflow.prune import prune

LEARNER = {
    "use": "dropouts", "scenario": "static", "probability": 0.3, "first_all": False,
    "rounds": 8, "steps": 2, "rate": 0.02, "batch": 3, "largest_batch": 3, "step_size": 0.2,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _mutants(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "mutants"))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train(config(learner=LEARNER), tmp_path_factory.mktemp("poisson") / "run", secret=secret(4))


@pytest.fixture(scope="module")
def cut(run):
    """A sample that was included in a batch of a kept round, and cut from it, before any batch held it.

    Chosen by looking at the draws, so an adaptive request: it shows what a run records, and no law.
    """
    plan = run.plan
    left = Involvement.of(replace(expand(plan), cut=None)).samples
    included = Involvement.of(expand(plan)).samples
    return next(s for s, at in sorted(included.items()) if at.round > 2 and left.get(s, END) > at)


def enough(run):
    """A lean spec with more leaves, and fewer than the built-in one: batches have more outcomes than uniform sets."""
    return with_options(lean(default_spec(run)), enumeration={"leaves": 6_000})


def audits(run, **options):
    """Verdicts by audit, without repeated sampling of models."""
    result = verify(
        run, options.pop("spec", None) or lean(default_spec(run)), budget=0, key=AUDIT_KEY, save=False, **options
    )
    return result, {finding.audit: finding for finding in result.findings}


def verdicts(found):
    return {name: (finding.verdict, finding.shows, finding.details) for name, finding in found.items()}


def test_a_run_of_poisson_batches_cuts_some(run):
    schedule = expand(run.plan)
    assert schedule.batches.shape[-1] == 3
    assert schedule.cut is not None
    lengths = (schedule.batches >= 0).sum(axis=-1)
    assert {0, 1, 2, 3} == {*lengths[schedule.cohorts >= 0].ravel().tolist()}


def test_where_draws_are_kept_the_chance_is_that_of_the_population_before(tmp_path, fuaudit):
    """The largest client is gone, and her batches were executed."""
    run = train(config(learner=LEARNER | {"largest_batch": 12}), tmp_path / "run", secret=secret(4))
    largest = max(run.original.clients, key=lambda client: len(run.original.samples[client]))
    child = unlearn(run, "noop", Request.of([largest]), tmp_path / "noop", allow_inexact=True)
    told = json.loads(fuaudit("show", child.path, "--json")[1])["cuts"]
    assert told == json.loads(fuaudit("show", run.path, "--json")[1])["cuts"]
    assert told["any_batch"] > chance_of_cuts(child.plan.law, child.plan.retained).any_batch


def test_show_says_how_likely_a_cut_is(run, fuaudit):
    found = chance_of_cuts(run.plan.law, run.plan.retained)
    assert 0.5 < found.any_of_one < found.any_batch <= 1
    assert "any of one client" in fuaudit("show", run.path)[1]
    assert json.loads(fuaudit("show", run.path, "--json")[1])["cuts"] == {
        "any_batch": found.any_batch,
        "any_of_one": found.any_of_one,
    }


@pytest.mark.thorough
@pytest.mark.parametrize("what", ["cut sample", "client"])
def test_an_honest_run_passes_before_and_after_a_prune(run, cut, what, tmp_path):
    """Small federations for a client take long, and are walked in :mod:`test_poisson`."""
    request = Request.of(samples=[cut]) if what == "cut sample" else Request.of([drawn_client(run)])
    parent = load_run(shutil.copytree(run.path, tmp_path / "run"))
    child = unlearn(parent, "fats", request, tmp_path / "fats")
    assert not child.info["doubts"]
    if what == "cut sample":
        first = expand(run.plan)
        assert child.info["first_change"] == list(run.plan.first_involvement(request))
        assert Involvement.of(replace(first, cut=None)).first(request) != run.plan.first_involvement(request)
    _, found = audits(child, spec=enough(child) if what == "cut sample" else of_the_run("plan-law", "stress"))
    known = {name: finding.verdict for name, finding in found.items() if name != "model-law"}
    assert known == dict.fromkeys(known, "PASS"), verdicts(found)
    if what == "cut sample":
        reached = "batches have the rate of the run (at most 2 rounds, 2 steps, batches of 2)"
        assert reached in found["enumeration"].shows, found["enumeration"].shows
    pruned, _ = prune(child)
    result, found = audits(pruned, spec=of_the_run("plan-law"))
    assert result.verdict == "PASS", verdicts(found)


def test_keeping_by_what_is_left_is_refuted(run, cut, tmp_path):
    child = unlearn(run, "mutant-by-what-is-left", Request.of(samples=[cut]), tmp_path / "left")
    result, found = audits(child, parent=run.path, spec=lean(of_the_run("enumeration")))
    assert result.verdict == "FAIL"
    assert found["enumeration"].verdict == "FAIL", found["enumeration"].shows
    assert found["replay"].verdict == "PASS"  # the model is made of retained rows


def test_doing_nothing_is_refuted(run, tmp_path):
    child = unlearn(run, "noop", Request.of([drawn_client(run)]), tmp_path / "noop", allow_inexact=True)
    assert audits(child, parent=run.path)[0].verdict == "FAIL"


def test_engines_make_one_model(run, tmp_path):
    for name in ("threads", "batched"):
        other = train(
            config(learner=LEARNER, run={"checkpoint_every": 2, "engine": name}), tmp_path / name, secret=secret(4)
        )
        assert torch.allclose(other.model, run.model, rtol=0, atol=1e-5)
        assert other.files[INVOLVEMENT] == run.files[INVOLVEMENT]


def test_the_divisor_is_that_of_the_config(run, tmp_path):
    """Half the divisor and half the step size are the same training, up to rounding."""
    half = LEARNER | {"batch": 6, "step_size": 0.4}
    other = train(config(learner=half), tmp_path / "half", secret=secret(4))
    assert torch.allclose(other.model, run.model, rtol=0, atol=1e-5)
    assert setup(run.config).procedure.divisor == 3


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"largest_batch": None}, "rate and largest_batch"),
        ({"rate": None}, "rate and largest_batch"),
        ({"steps": None, "epochs": 2}, "by steps"),
        ({"rate": 0.0}, "rate must be above 0"),
        ({"largest_batch": 2000}, "Set largest_batch"),
    ],
    ids=["no width", "no rate", "epochs", "never", "too wide"],
)
def test_configs_that_fit_nothing(changes, words, tmp_path):
    table = {name: value for name, value in (LEARNER | changes).items() if value is not None}
    with pytest.raises(UsageError) as error:
        train(config(learner=table), tmp_path / "run", secret=secret(4))
    assert words in f"{error.value} {error.value.hint}"


def test_the_theorem_of_mimic_is_about_means(tmp_path):
    found = train(config(learner=LEARNER | {"use": "mimic", "first_all": True}), tmp_path / "run", secret=secret(4))
    assert found.participation["conditions"] is None
    assert "Poisson" in found.participation["no_conditions"]


def test_another_platform_is_judged_by_the_divisor(run, tmp_path):
    """Each row counts one over the divisor, so what an erased one did is told apart from rounding."""
    parent = load_run(shutil.copytree(run.path, tmp_path / "run"))
    child = elsewhere(unlearn(parent, "fats", Request.of([drawn_client(run)]), tmp_path / "fats"))
    found = Replay().examine(case_of(child))
    assert found.verdict == "PASS", (found.shows, found.details)
    assert "within the tolerance" in found.shows


def emptied_late(folder):
    """A run of noisy steps behind sums, and a request for all rows of a client none of which came up at first."""
    learner = {"use": "dropouts", "scenario": "static", "probability": 1.0, "rounds": 6, "steps": 1, "rate": 0.1}
    tables = tiny_config(
        learner=learner | {"batch": 2, "largest_batch": 8, "step_size": 0.3},
        solver={"use": "dpsgd", "norm": 1.0, "noise": 5.0},
        transport={"use": "secure-sum", "size": 2},
        server=[{"use": "mean"}],
        run={"checkpoint_every": 1, "engine": "reference", "device": "cpu"},
    )
    for number in range(3, 60):
        run = train(tables, folder / str(number), tiny_dataset(), secret(number))
        came, owned = run.plan.index.samples, run.plan.retained.samples
        first = {client: min(came[s].round if s in came else 99 for s in owned[client]) for client in owned}
        if late := [client for client, round_number in first.items() if 3 <= round_number <= 6]:
            return run, Request.of(samples=owned[late[0]])
    raise AssertionError("no client came up late")


def test_a_request_changes_no_sum_of_rounds_that_are_kept(tmp_path, quick):
    """Steps with noise are taken on empty batches: who counts in a sum must not follow from whose rows are left."""
    run, request = emptied_late(tmp_path)
    child = unlearn(run, "fats", request, tmp_path / "child", data=tiny_dataset())
    kept = child.info["first_change"][0]
    assert kept > 2
    sums = [
        [[event for event in line.get("told", []) if event["kind"] == "summed"] for line in one.ledger.of_kind("round")]
        for one in (run, child)
    ]
    counts = {tuple(event["rows"]) for events in sums[0] + sums[1] for event in events}
    assert len(counts) == 1, counts
    found = verify(load_run(child.path), quick, key=AUDIT_KEY, save=False, data=tiny_dataset()).findings
    assert {str(finding.verdict) for finding in found} == {"PASS"}
