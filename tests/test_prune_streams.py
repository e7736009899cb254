"""Prune after a stream of three requests, for each law and both kinds of request.

The draws that are kept follow from the commitment alone, without findings of before; and neither a destroyed seed nor
a salt of an erased row is in any file that is left.
"""

import shutil
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from tests_support import AUDIT_KEY, secret

from fuaudit import load_run, train, unlearn, verify
from fuaudit.data.dataset import Dataset
from fuaudit.plans import Request
from fuaudit.verification.spec import read_spec
from fuaudit.workflow.prune import prune

CLIENTS, ROWS = 8, 6
AWAY = {"use": "dropouts", "rounds": 6, "batch": 2, "step_size": 0.1, "first_all": False}
STEPS, EPOCHS = {"steps": 2}, {"epochs": 1, "largest_client": ROWS}
UNIFORM = {"rounds": 6, "cohort": 1, "steps": 2, "batch": 2, "step_size": 0.1}
LAWS = {
    "uniform, with replacement": {"use": "fats"} | UNIFORM,
    "uniform, without": {"use": "fedavg"} | UNIFORM,
    "static, steps": AWAY | STEPS | {"scenario": "static", "probability": 0.3},
    "static, epochs": AWAY | EPOCHS | {"scenario": "static", "probability": 0.3},
    "in turn, aligned": AWAY | STEPS | {"scenario": "round-robin", "tau_max": 4},
    "in turn, drawn": AWAY | STEPS | {"scenario": "round-robin", "tau_max": 4, "phase": "drawn"},
    "weights, a number": AWAY | STEPS | {"scenario": "time-varying", "active": 2},
    "weights, a share": AWAY | STEPS | {"scenario": "time-varying", "share": 0.25},
}


def data():
    rows = torch.arange(CLIENTS * ROWS * 2, dtype=torch.float32).reshape(-1, 2) / 100
    owners = torch.arange(CLIENTS).repeat_interleave(ROWS)
    return Dataset(rows, torch.arange(len(rows)) % 2, rows[:4] + 1, torch.arange(4) % 2, 2, owners=owners)


def target(run, kind):
    """What takes part late, so that something is kept before it."""
    found = run.plan.index.clients if kind == "client" else run.plan.index.samples
    owner = run.plan.retained.owner
    last = max((at, name) for name, at in found.items() if kind == "client" or name in owner)[1]
    return Request.of(**{f"{kind}s": [last]})


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A trained run of each law, which nobody may edit."""

    @cache
    def of_law(law):
        tables = {
            "data": {"use": "tensors", "classes": 2},
            "partition": {"use": "by-owner"},
            "model": {"use": "linear"},
            "learner": LAWS[law],
            "run": {"checkpoint_every": 1, "engine": "reference", "device": "cpu", "requests": 4},
        }
        return train(tables, tmp_path_factory.mktemp("laws") / "run", data=data(), secret=secret(5)).path

    return of_law


def lineage(root, trained, kinds, methods):
    """A run and three requests, one after another; the last run, and all of them."""
    runs = [load_run(shutil.copytree(trained, root / "run-0"))]
    for number, (kind, method) in enumerate(zip(kinds, methods, strict=True), 1):
        asked = target(runs[-1], kind)
        path = root / f"run-{number}"
        runs.append(unlearn(runs[-1], method, asked, path, data=data(), allow_inexact=True))
    return runs


def subtrees(tree, lost):
    """The seeds of every subtree that holds a lost leaf: each of them gives that leaf back."""
    from fuaudit.draws.seeds import half, middle_of

    def walk(seed, first, last):
        if any(first <= leaf < last for leaf in lost):
            yield seed
            if last - first > 1:
                middle = middle_of(first, last)
                yield from walk(half(seed, False), first, middle)
                yield from walk(half(seed, True), middle, last)

    return walk(tree.parts[0].seed, 0, tree.size)


def erased_rows(run, contents):
    """The leaves of salts of what the requests of a run took away."""
    for client, samples in run.original.samples.items():
        kept = set(run.plan.retained.samples.get(client, ()))
        leaves = contents.salts_of(client)  # the first is that of the client's name
        if client not in run.plan.retained.samples:
            yield from leaves
        else:
            yield from (leaf for leaf, sample in zip(leaves[1:], samples, strict=True) if sample not in kept)


def of_plans():
    """A spec of the run's plan, and of plans like it."""
    spec = read_spec("client-erasure")
    checks = [check for check in spec.checks if check.audit["use"] in ("provenance", "plan-law")]
    small = {"use": "plan-law", "plans": 200, "effect": 0.05, "alpha": 0.001}
    return replace(spec, checks=(checks[0], replace(checks[1], audit=small)))


STREAMS = {"clients": ("client",) * 3, "samples": ("sample",) * 3, "mixed": ("sample", "client", "sample")}


@pytest.mark.parametrize(
    ("stream", "retrained"),
    [*((stream, False) for stream in STREAMS), ("mixed", True)],
    ids=[*STREAMS, "retrained between"],
)
@pytest.mark.parametrize("law", LAWS)
def test_kept_draws_follow_from_the_commitment_and_nothing_lost_is_left(
    law, stream, retrained, trained, tmp_path, quick, bytes_of
):
    methods = ("fats", "retrain" if retrained else "fats", "fats")
    *_, run = runs = lineage(tmp_path, trained(law), STREAMS[stream], methods)
    for number, (above, one) in enumerate(pairwise(runs), 1):
        earliest, latest = run.plan.changes_of(number)
        assert earliest <= one.plan.first_change(above.plan) <= latest
    seeds, salts = runs[0].keys.seeds, runs[0].opening.salts
    rows = list(erased_rows(run, runs[0].contents))
    everything = b"".join(bytes_of(tmp_path).values())
    assert seeds.parts[0].seed.hex().encode() in everything
    assert salts.parts[0].seed.hex().encode() in everything
    period = law.startswith("in turn") and ("client", "fats") in zip(STREAMS[stream], methods, strict=True)
    given = {"data": data(), "commitment": runs[0].commitment, "request": run.request, "key": AUDIT_KEY}
    before = verify(run, of_plans(), **given) if period else None
    pruned, _ = prune(run)
    kept = load_run(pruned.path).keys.seeds
    lost = [leaf for leaf in range(seeds.size) if not kept.holds(leaf)]
    assert lost
    assert kept.root == seeds.root
    after = b"".join(bytes_of(tmp_path).values())
    for secret_seed in [*subtrees(seeds, lost), *subtrees(salts, rows)]:
        assert secret_seed not in after
        assert secret_seed.hex().encode() not in after
    found = {finding.audit: finding for finding in verify(pruned, quick, save=False, **given).findings}
    assert found["replay"].verdict == found["lineage"].verdict == "PASS", (
        found["replay"].shows,
        found["lineage"].shows,
    )
    plan = found["provenance"]
    assert plan.verdict == ("INCONCLUSIVE" if period else "PASS"), (plan.shows, plan.details)
    if before is not None:  # an erased client's period went with her seed; who was there tells something of it
        result = verify(pruned, quick, save=False, before=before.path, **given)
        plan = next(finding for finding in result.findings if finding.audit == "provenance")
        assert plan.verdict == "PASS", (plan.shows, plan.details)


@pytest.mark.parametrize(("law", "expected"), [("static, steps", "PASS"), ("weights, a share", "INCONCLUSIVE")])
def test_what_an_outside_method_kept_is_right_under_laws_that_allow_it(
    law, expected, trained, tmp_path, quick, monkeypatch
):
    """It has the plan of a proved method here; that it must, and that keeping is right, are two questions."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "mutants"))
    *_, run = lineage(tmp_path, trained(law), ["sample"], ["mutant-printed-for-two"])
    assert run.info["first_change"][0] > 1
    result = verify(prune(run)[0], quick, data=data(), key=AUDIT_KEY, save=False)
    (plan,) = (finding for finding in result.findings if finding.audit == "provenance")
    assert plan.verdict == expected, (plan.shows, plan.details)
