"""False alarms and power over thousands of simulated audits: ``python benchmarks/calibration.py --json OUT``.

``plans`` is level 5: whole audits of the law of plans on a small federation; nothing is trained. ``parameters`` is
level 6: whole audits of trained models on digits, every audit with pairs of its own. Keys follow from ROOT and the
number of the audit and are fixed in advance, and nothing is run again. Exact methods may be rejected at most as often
as the binomial 99.9 % quantile at exactly the level says, so a right implementation exceeds one of these bounds with
probability at most .001. Power is against planted violations: a share of the subject's runs is left untouched, or,
for plans, has the law of the printed form.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import tempfile
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import hardware
from numpy.typing import NDArray
from plan_law import REQUESTS, clopper_pearson, trial_of
from scipy.stats import binom

from fuaudit import train, unlearn
from fuaudit.audits.model_law.audit import BETTING, SHARES
from fuaudit.audits.model_law.measure import Statistics
from fuaudit.audits.plan_law import simulate
from fuaudit.audits.plan_law.known_laws import chance, registered
from fuaudit.audits.plan_law.plan_statistics import Ids
from fuaudit.audits.plan_law.simulate import Trial
from fuaudit.commitments.keys import derive
from fuaudit.data.images import Digits
from fuaudit.draws import Address, Keyed, Purpose
from fuaudit.plans import Request, UniformLaw
from fuaudit.proofs.toys import federation
from fuaudit.replicas.pairs import Pairs
from fuaudit.statistics.known_law import average, log_wealth
from fuaudit.statistics.two_sample.batch import batch_test
from fuaudit.statistics.two_sample.betting import log_wealth_path
from fuaudit.verification.case import Case
from fuaudit.verification.evidence import Evidence
from fuaudit.workers import IN_PROCESS, CachedJob

ROOT = b"fuaudit: calibration audits, v2."
ALPHAS = (0.01, 0.05)
RATES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
PATHS = 12
"""Audits whose wealth is kept after every pair, for a figure."""

Floats = NDArray[np.float64]
Table = dict[str, Any]


def uniforms(root: bytes, *names: str) -> Any:
    """Independent numbers, uniform in [0, 1), from a key of their own."""
    source = Keyed(derive(root, *names))
    return lambda count: source.uniform(Address(Purpose.AUDIT), count)


def counted(hits: int, audits: int, alpha: float | None = None) -> Table:
    """A count with its interval; with ``alpha`` also the bound that an exact method must keep."""
    row: Table = {"rejected": hits, "of": audits, "interval_95": clopper_pearson(hits, audits)}
    if alpha is not None:
        row["at_most"] = int(binom.ppf(0.999, audits, alpha))
        row["held"] = hits <= row["at_most"]
    return row


def printed(title: str, row: Table) -> None:
    low, high = row["interval_95"]
    bound = f"; at most {row['at_most']}: {'held' if row['held'] else 'EXCEEDED'}" if "held" in row else ""
    print(f"{title}: {row['rejected']} of {row['of']} [{low:.3f}, {high:.3f}]{bound}", flush=True)


# --- level 5: the law of plans ------------------------------------------------------------------------------------

LAW, MEMBERS = UniformLaw(rounds=6, cohort_size=3, steps=2, batch_size=2), federation((8,) * 10)
EXACT = (("fats", "sample"), ("fats", "client"), ("retrain", "sample"), ("retrain", "client"))
PLANTED = (("noop", "sample"), ("noop", "client"), ("fats-as-printed", "sample"))


def refused(trial: Trial, numbers: Ids) -> list[bool]:
    """Whether an audit rejects scores ``(n, 5)``, at each alpha: by a plan with the target, or by wealth."""
    path = average([log_wealth(s.of(numbers), s.law, s.believed) for s in registered(trial)])
    found = bool(numbers[:, 0].any())
    return [found or bool(path.max() >= -math.log(alpha)) for alpha in ALPHAS]


def plans(root: bytes, audits: int, size: int) -> Table:
    """Audits of ``size`` plans each; all arms of an audit share its original plans and are judged one by one."""
    hits: dict[tuple[str, str], list[list[bool]]] = {}
    for number in range(audits):
        key = derive(root, "plans", str(number))
        unlearned = {
            (name, kind): simulate.simulate(trial_of(name, REQUESTS[kind], LAW, MEMBERS), key, range(size)).unlearned
            for name, kind in (*EXACT, *PLANTED)
        }
        for name, kind in EXACT:
            trial = trial_of(name, REQUESTS[kind], LAW, MEMBERS)
            hits.setdefault((f"{name}, {kind}", "exact"), []).append(refused(trial, unlearned[name, kind]))
        marks = uniforms(key, "planted")(size)
        for name, kind in PLANTED:
            trial, right = trial_of("fats", REQUESTS[kind], LAW, MEMBERS), unlearned["fats", kind]
            for rate in (*RATES, 1.0):
                subject = np.where((marks < rate)[:, None], unlearned[name, kind], right)
                hits.setdefault((f"{name}, {kind}", str(rate)), []).append(refused(trial, subject))
    exact: Table = {}
    power: Table = {}
    for (name, what), rows in hits.items():
        for alpha, count in zip(ALPHAS, np.sum(rows, axis=0).tolist(), strict=True):
            if what == "exact":
                row = exact.setdefault(name, {})[str(alpha)] = counted(count, audits, alpha)
            else:
                row = power.setdefault(name, {}).setdefault(what, {})[str(alpha)] = counted(count, audits)
            printed(f"plans: {name}, {what}, alpha {alpha}", row)
    certain = {
        kind: {
            str(rate): 1 - (1 - rate * chance(trial_of("noop", REQUESTS[kind], LAW, MEMBERS))) ** size for rate in RATES
        }
        for kind in REQUESTS
    }
    return {"audits": audits, "plans": size, "exact": exact, "power": power, "target_seen": certain}


# --- level 6: trained models --------------------------------------------------------------------------------------

CONFIG: Table = {
    "data": {"use": "digits"},
    "partition": {"use": "one-holder", "clients": 20, "label": 9},
    "model": {"use": "mlp", "hidden": [32]},
    "learner": {"use": "fats", "rounds": 10, "cohort": 4, "steps": 5, "batch": 8, "step_size": 0.1},
}
TARGET = Request.of(clients=[0])
TEST_ROWS = 300


def wealths(arms: dict[str, Floats], names: tuple[str, ...]) -> dict[str, Floats]:
    return {name: log_wealth_path(arms[name], arms["retrained"], SHARES) for name in names}


def batch(subject: Floats, arms: dict[str, Floats], key: bytes, name: str) -> float:
    # resamples for the smallest level that is asked: the batch part of alpha .01
    level = (1 - BETTING) * ALPHAS[0]
    return batch_test(subject, arms["retrained"], level, uniforms(key, "batch", name)).p_value


def decisions(wealth: float, p_value: float) -> Table:
    """Rejections by each test alone, and by the audit as it is shipped, which divides alpha between them."""
    return {
        str(alpha): {
            "betting": bool(wealth >= -math.log(alpha)),
            "batch": bool(p_value <= alpha),
            "audit": bool(wealth >= -math.log(BETTING * alpha) or p_value <= (1 - BETTING) * alpha),
        }
        for alpha in ALPHAS
    }


def parameters(root: bytes, name: str, audits: int, pairs: int, powered: int, kept: Path | None) -> Table:
    """Audits of ``pairs`` pairs each of a method; the first ``powered`` also of planted violations."""
    data = Digits().load(None)
    rows: list[Table] = []
    planted: dict[str, list[Table]] = {}
    paths: list[Table] = []
    with tempfile.TemporaryDirectory() as folder:
        run = train(CONFIG, Path(folder) / "run", secret=derive(root, "training"))
        child = unlearn(run, name, TARGET, Path(folder) / name)
        for number in range(audits):
            key = derive(root, "parameters", name, str(number))
            work = Pairs.of(Case(Evidence(child, None, data), Keyed(key)), Statistics(TEST_ROWS))
            found = list(IN_PROCESS.map(CachedJob(work, kept) if kept else work, work.shards(pairs)))
            arms = {arm: np.concatenate([part[arm] for part in found]) for arm in found[0]}
            path = wealths(arms, ("subject", "second", "untouched"))
            rows.append(
                {
                    "wealth": {arm: float(p.max()) for arm, p in path.items()},
                    "batch": {arm: batch(arms[arm], arms, key, arm) for arm in ("subject", "second")},
                }
            )
            if number < PATHS:
                paths.append({arm: p.tolist() for arm, p in path.items()})
            if number < powered:
                marks = uniforms(key, "planted")(pairs)[:, None]
                for rate in (*RATES, 1.0):
                    subject = np.where(marks < rate, arms["untouched"], arms["second"])
                    largest = float(log_wealth_path(subject, arms["retrained"], SHARES).max())
                    planted.setdefault(str(rate), []).append(
                        decisions(largest, batch(subject, arms, key, f"rate {rate}"))
                    )
            if (number + 1) % 100 == 0:
                print(f"{name}: {number + 1} audits", flush=True)
    table: Table = {"audits": audits, "pairs": pairs, "exact": {}, "power": {}, "rows": rows, "paths": paths}
    for arm in ("subject", "second"):
        decided = [decisions(row["wealth"][arm], row["batch"][arm]) for row in rows]
        for alpha in ALPHAS:
            for test in ("betting", "batch", "audit"):
                row = counted(sum(d[str(alpha)][test] for d in decided), audits, alpha)
                table["exact"].setdefault(arm, {}).setdefault(str(alpha), {})[test] = row
                printed(f"parameters: {name}, {arm}, alpha {alpha}, {test}", row)
    for planted_rate, decided in planted.items():
        for alpha in ALPHAS:
            for test in ("betting", "batch", "audit"):
                row = counted(sum(d[str(alpha)][test] for d in decided), len(decided))
                table["power"].setdefault(planted_rate, {}).setdefault(str(alpha), {})[test] = row
                printed(f"parameters: {name}, untouched in {planted_rate}, alpha {alpha}, {test}", row)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("plans", "model-law"))
    parser.add_argument("--audits", type=int, default=2000, help="of FATS; of retrain a tenth, at level 6")
    parser.add_argument("--plans", type=int, default=250, help="in an audit of level 5")
    parser.add_argument("--pairs", type=int, default=64, help="in an audit of level 6")
    parser.add_argument("--powered", type=int, default=500, help="audits of level 6 with planted violations")
    parser.add_argument("--root", default=ROOT.hex(), metavar="HEX", help="32 bytes that all keys follow from")
    parser.add_argument("--cache", type=Path, metavar="FOLDER", help="finished parts, to go on after a kill")
    parser.add_argument("--json", type=Path, metavar="OUT")
    given = parser.parse_args()
    torch.set_num_threads(1)
    root = bytes.fromhex(given.root)
    versions = {name: version(name) for name in ("fuaudit", "numpy", "torch")} | {"python": platform.python_version()}
    document: Table = {"root": given.root, "versions": versions, "machine": hardware()}
    if given.only != "model-law":
        document["plans"] = plans(root, given.audits, given.plans)
    if given.only != "plans":
        work = partial(parameters, root, pairs=given.pairs, kept=given.cache)
        document["model-law"] = {
            "fats": work("fats", audits=given.audits, powered=min(given.powered, given.audits)),
            "retrain": work("retrain", audits=max(1, given.audits // 10), powered=0),
        }
    if given.json:
        given.json.write_text(json.dumps(document) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
