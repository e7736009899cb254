"""False alarms and power over thousands of simulated audits: python benchmarks/calibration.py plans|parameters --help.

    python benchmarks/calibration.py plans --audits 2000
    python benchmarks/calibration.py parameters --audits 2000 --workers 2 --keep FOLDER

`plans` draws plans, unlearns them, and tests statistics of the rewritten plans against those of fresh plans over the
retained population; no gradient is taken. `parameters` does what level 6 does, on digits. Keys follow from the number
of the audit and are fixed in advance. Bounds on false alarms are binomial 99.9 % quantiles at exactly the level, so a
right implementation exceeds one of them with probability at most .001. Power is against planted violations: a share
of the subject's runs is left untouched.
"""

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import click
import numpy as np
from scipy.stats import binom

from fuaudit import registry, train, unlearn
from fuaudit.data.images import Digits
from fuaudit.draws import END, Address, Keyed, Purpose
from fuaudit.plans import Plan, Population, Request
from fuaudit.plans.law import UniformLaw
from fuaudit.plans.schedule import expand_many
from fuaudit.runs.keys import derive
from fuaudit.verification.case import Case
from fuaudit.verification.executor import Kept, executor
from fuaudit.verification.pairs import Pairs
from fuaudit.verification.parameters import SHARES
from fuaudit.verification.twosample.batch import batch_test
from fuaudit.verification.twosample.betting import log_wealth_path

ROOT = b"fuaudit: calibration audits, v1."
ALPHAS = (0.01, 0.05)
RATES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)


def uniforms(*names):
    source = Keyed(derive(ROOT, *names))
    return lambda count: source.uniform(Address(Purpose.AUDIT), count)


def planted(untouched, second, rate, number):
    marks = uniforms("planted", str(number), str(rate))(len(untouched)) < rate
    return np.where(marks[:, None], untouched, second)


def verdicts(arms, number, shares):
    """For every alpha and every subject: whether betting rejects, and whether the batch tests do."""
    subjects = {"exact": arms["subject"]}
    subjects |= {f"rate {rate}": planted(arms["untouched"], arms["second"], rate, number) for rate in RATES}
    rows = {}
    for name, subject in subjects.items():
        largest = log_wealth_path(subject, arms["retrained"], shares).max()
        p_value = batch_test(subject, arms["retrained"], ALPHAS[0], uniforms("batch", str(number), name)).p_value
        for alpha in ALPHAS:
            rows[f"{name}, {alpha}, betting"] = bool(largest >= -np.log(alpha))
            rows[f"{name}, {alpha}, batch"] = bool(p_value <= alpha)
    return rows


def summary(rows, title):
    """Prints counts; the last line says whether false alarms stay within their bounds."""
    count, held = len(rows), True
    for key in rows[0]:
        hits = sum(row[key] for row in rows)
        name, alpha, _ = key.split(", ")
        note = ""
        if name == "exact":
            bound = int(binom.ppf(0.999, count, float(alpha)))
            held &= hits <= bound
            note = f"  (at most {bound})"
        click.echo(f"{title}: {key}: {hits} of {count} rejected{note}")
    click.echo(f"{title}: false alarms {'within' if held else 'BEYOND'} their bounds")


# --- plans --------------------------------------------------------------------------------------------------------

CLIENTS, ROWS = 10, 6
LAW = UniformLaw(rounds=6, cohort_size=2, steps=2, batch_size=2)


def figures_of(plans):
    """Statistics ``(n, 6)`` of some plans: who took part, how early, and which samples were read."""
    whole = expand_many(plans)
    cohorts, batches = whole.cohorts, whole.batches
    return np.stack(
        [
            (cohorts == 1).sum(axis=(1, 2)),
            (cohorts[:, 0] == 2).sum(axis=1),
            (cohorts[:, -1] == 3).sum(axis=1),
            [len(np.unique(row)) for row in cohorts],
            (batches == ROWS).sum(axis=(1, 2, 3, 4)),  # the first sample of client 1
            [len(np.unique(row[row >= 0])) for row in batches],
        ],
        axis=1,
    ).astype(float)


def plan_arms(unlearner, pairs, number):
    whole = Population({c: tuple(range(c * ROWS, (c + 1) * ROWS)) for c in range(CLIENTS)})
    request = Request.of(clients=[0])
    retained = whole.without(request)

    def source(arm, i):
        return Keyed(derive(ROOT, "plans", str(number), arm, str(i)))

    originals = [Plan.fresh(LAW, whole, source("original", i)) for i in range(pairs)]
    subject = [unlearner.rewrite(plan, request, source("request", i), END) for i, plan in enumerate(originals)]
    shared = subject[0].populations
    arms = {
        "untouched": originals,
        "subject": [replace(plan, populations=shared) for plan in subject],
        "retrained": [Plan.fresh(LAW, retained, source("retrained", i)) for i in range(pairs)],
        "second": [Plan.fresh(LAW, retained, source("second", i)) for i in range(pairs)],
    }
    return {arm: figures_of(plans) for arm, plans in arms.items()}


# --- commands -----------------------------------------------------------------------------------------------------


@click.group()
def main():
    """See the top of this file."""


@main.command()
@click.option("--audits", default=2000, show_default=True)
@click.option("--pairs", default=128, show_default=True)
@click.option("--with", "name", default="fats", show_default=True)
@click.option("--json", "out", type=click.Path(path_type=Path))
def plans(audits, pairs, name, out):
    """Plans alone."""
    unlearner = registry.build("unlearners", name)
    rows = [verdicts(plan_arms(unlearner, pairs, number), number, None) for number in range(audits)]
    summary(rows, f"plans, {name}")
    if out:
        out.write_text(json.dumps(rows))


@main.command()
@click.option("--audits", default=2000, show_default=True)
@click.option("--pairs", default=256, show_default=True)
@click.option("--with", "name", default="fats", show_default=True)
@click.option("--workers", default=1, show_default=True)
@click.option("--keep", type=click.Path(path_type=Path), help="Folder for finished parts, to go on after a kill.")
@click.option("--json", "out", type=click.Path(path_type=Path))
def parameters(audits, pairs, name, workers, keep, out):
    """Trained models on digits: one client of twenty holds a class, and is erased."""
    config = {
        "data": {"use": "digits"},
        "partition": {"use": "one-holder", "clients": 20, "label": 9},
        "model": {"use": "mlp", "hidden": [32]},
        "learner": {"use": "fats", "rounds": 20, "cohort": 4, "steps": 5, "batch": 8, "step_size": 0.1},
    }
    data, rows = Digits().load(None), []
    with tempfile.TemporaryDirectory() as folder:
        run = train(config, Path(folder) / "run", secret=derive(ROOT, "training"))
        child = unlearn(run, name, Request.of(clients=[0]), Path(folder) / name)
        for number in range(audits):
            work = Pairs.of(Case(child, None, data, Keyed(derive(ROOT, "parameters", str(number)))), 1000)
            found = list(executor(workers).map(Kept(work, keep) if keep else work, work.parts(pairs)))
            arms = {arm: np.concatenate([part[arm] for part in found]) for arm in found[0]}
            rows.append(verdicts(arms, number, SHARES))
    summary(rows, f"parameters, {name}")
    if out:
        out.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
