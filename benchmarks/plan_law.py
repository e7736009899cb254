"""The law of plans at full size: ``python benchmarks/plan_law.py``.

Draws, rewrites and scores 100,000 plans of the paper's MNIST setting, prints the time and its ratio to the slow way
(rewriters that draw to find the first involvement, plans drawn in full), and the findings on several rewriters.
``--bound`` runs methods beside the reference, up to the first plan that differs, also under laws of availability.
``--power`` plants violations at known rates. False alarms are counted by ``benchmarks/calibration.py``.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics as describe
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from fuaudit_plugins.fats import FatsAsPrinted, FatsUnlearning
from machine import hardware
from mnist_setting import LAW, POPULATION
from numpy.typing import NDArray
from scipy.stats import beta

from fuaudit.audits.plan_law import comparison, simulate
from fuaudit.audits.plan_law.audit import PlanLaw
from fuaudit.audits.plan_law.known_laws import registered
from fuaudit.audits.plan_law.outcome import finding
from fuaudit.audits.plan_law.plan_statistics import Ids, of_history
from fuaudit.audits.plan_law.simulate import Scores, Step, Trial
from fuaudit.commitments.keys import derive
from fuaudit.draws import END, Address, Draws, Keyed, Position, Purpose
from fuaudit.plans import AvailabilityLaw, Law, Plan, Request, UniformLaw
from fuaudit.plans.availability import (
    Availability,
    BoundedRoundRobin,
    FreshBatches,
    StaticProbability,
    TimeVaryingWeights,
)
from fuaudit.statistics.known_law import average, log_wealth
from fuaudit.unlearning.baselines import Noop, Retrain

REQUESTS = {"sample": Request.of(samples=[0]), "client": Request.of(clients=[0])}
ALPHA, EFFECT = 0.001, 0.01
RATES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
REPLICATIONS = 60


@dataclass(frozen=True)
class Late(FatsUnlearning):
    """A mutant: restarts one round too late."""

    def rewrite(self, plan: Plan, request: Request, fresh: Draws, not_before: Position) -> Plan:
        first = plan.first_involvement(request) or END
        return plan.erase(request, fresh, first if first == END else Position(first.round + 1, 0))


REWRITERS = {
    "fats": FatsUnlearning(),
    "retrain": Retrain(),
    "fats-as-printed": FatsAsPrinted(),
    "late": Late(),
    "noop": Noop(),
}


def trial_of(name: str, request: Request, law: UniformLaw = LAW, population: Any = POPULATION) -> Trial:
    return Trial(law, population, (Step(REWRITERS[name], name, request),))


Run = Callable[[Callable[[range], Any], int], list[Any]]


def timed(work: Callable[[range], Any], numbers: range) -> tuple[Any, float]:
    """A result, and the processor time that it took."""
    started = time.process_time()
    return work(numbers), time.process_time() - started


@contextmanager
def pool(workers: int) -> Iterator[Run]:
    """Runs a function of plan numbers on so many processes; results come in the order of the numbers."""
    if workers == 1:
        yield lambda work, plans: [work(range(plans))]
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as executor:
        list(executor.map(abs, range(workers)))  # started before any clock

        def run(work: Callable[[range], Any], plans: int) -> list[Any]:
            size = max(simulate.CHUNK, math.ceil(plans / workers / 4))
            return list(executor.map(work, [range(i, min(i + size, plans)) for i in range(0, plans, size)]))

        yield run


def slow(trial: Trial, key: bytes, numbers: range) -> Ids:
    """The same numbers the slow way: one plan after another, every draw made."""
    rows = []
    for number, plan in zip(numbers, simulate.trained(trial, key, numbers), strict=True):
        for place, step in enumerate(trial.steps):
            source = Keyed(derive(key, "plan law request", str(number), str(place)))
            plan = step.unlearner.rewrite(plan, step.request, source, step.not_before)
        rows.append(of_history(plan.history(), trial.probe))
    return np.array(rows)


def timing(run: Run, key: bytes, plans: int, few: int) -> dict[str, Any]:
    """Seconds for all plans, and the slow way on a few plans in between; equal numbers are required."""
    table: dict[str, Any] = {}
    for kind, request in REQUESTS.items():
        trial = trial_of("fats", request)
        fast, dull, busy = [], [], []
        for _ in range(3):
            started = time.perf_counter()
            parts = run(partial(timed, partial(simulate.simulate, trial, key)), plans)
            scores = Scores.joined([part for part, _ in parts])
            fast.append((time.perf_counter() - started) / plans)
            busy.append(sum(spent for _, spent in parts) / plans)
            started = time.perf_counter()
            rows = slow(trial, key, range(few))
            dull.append((time.perf_counter() - started) / few)
            if not np.array_equal(rows, scores.unlearned[:few]):
                raise SystemExit("the fast way reads other numbers than the slow way")
        seconds = [a * plans for a in fast]
        table[kind] = {
            "plans": plans,
            "seconds": seconds,
            "microseconds_a_plan": 1e6 * describe.median(fast),
            "processor_microseconds_a_plan": 1e6 * describe.median(busy),
            "slow_microseconds_a_plan": 1e6 * describe.median(dull),
            "ratio": describe.median(b / a for a, b in zip(fast, dull, strict=True)),
        }
        print(
            f"{kind}: {plans:,} plans drawn, rewritten and scored in {describe.median(seconds):.2f} s "
            f"(three times: {', '.join(f'{s:.2f}' for s in seconds)}), {1e6 * describe.median(fast):.1f} microseconds "
            f"a plan ({1e6 * describe.median(busy):.1f} of processor time); slow way on {few} plans "
            f"{1e3 * describe.median(dull):.1f} ms a plan: ratio {table[kind]['ratio']:.0f}; equal numbers on both"
        )
    return table


def findings(run: Run, key: bytes, plans: int) -> dict[str, Any]:
    table = {}
    for kind, request in REQUESTS.items():
        fresh = np.concatenate(run(partial(simulate.retrained, trial_of("fats", request), key), plans))
        for name in REWRITERS:
            trial = trial_of(name, request)
            scores = Scores.joined(run(partial(simulate.simulate, trial, key), plans))
            found = finding(trial, scores, fresh, ALPHA, EFFECT)
            table[f"{name}, {kind}"] = asdict(replace(found, series={}))
            print(f"{name}, {kind}: {found.verdict}. {found.shows}")
            for control in found.controls:
                if not control.held:
                    print(f"  control {control.name}: expected {control.expected}, {control.observed}")
            for line in found.details:
                if "rate below" in line or "log wealth" in line:
                    print(f"  {line}")
    return table


def rejected(numbers: Ids, chosen: Any, alpha: float) -> bool:
    path = average([log_wealth(s.of(numbers), s.law, s.believed) for s in chosen])
    return bool(path.max() >= -math.log(alpha))


def uniforms(key: bytes, label: str, *shape: int) -> NDArray[np.float64]:
    source = Keyed(derive(key, "plan law power", label))
    return np.asarray(source.uniform(Address(Purpose.AUDIT, 1), math.prod(shape)), dtype=np.float64).reshape(shape)


def power(run: Run, key: bytes, plans: int) -> dict[str, Any]:
    """How often the printed form, planted in a fraction of plans, is rejected.

    Replications resample the rows of 100,000 plans of either form, so they are no independent audits.
    """
    request, table = REQUESTS["sample"], {}
    pools = [
        Scores.joined(run(partial(simulate.simulate, trial_of(name, request), key), plans)).unlearned
        for name in ("fats", "fats-as-printed")
    ]
    trial = trial_of("fats", request)
    chosen = registered(trial)
    for rate in (0.0, *RATES):
        hits = 0
        for replication in range(REPLICATIONS):
            pick, mark = uniforms(key, f"{rate} {replication}", 2, plans)
            rows = (pick * plans).astype(np.int64)
            hits += rejected(np.where((mark < rate)[:, None], pools[1][rows], pools[0][rows]), chosen, ALPHA)
        low, high = clopper_pearson(hits, REPLICATIONS)
        table[str(rate)] = {"rejected": hits, "of": REPLICATIONS, "interval_95": [low, high]}
        print(
            f"printed form in {rate:.0%} of {plans:,} plans: rejected {hits} of {REPLICATIONS} [{low:.2f}, {high:.2f}]"
        )
    return table


STREAMS = {
    "client": (REQUESTS["client"],),
    "sample": (REQUESTS["sample"],),
    "ten samples of ten clients": (Request.of(samples=range(0, 2000, 200)),),
    "ten clients": (Request.of(clients=range(10)),),
    "mixed": (Request.of(clients=[3], samples=[0, 777]),),
    "stream of three": (REQUESTS["sample"], Request.of(clients=[5]), Request.of(samples=[400, 800])),
    "during training": (REQUESTS["sample"],),
}
STOPPED = Position(15, 0)
AVAILABLE: dict[str, Availability] = {
    "bounded round-robin": BoundedRoundRobin(5, "drawn"),
    "static availability": StaticProbability(Fraction(1, 10)),
    "time-varying weights": TimeVaryingWeights(number=10),
}


def bound(run: Run, key: bytes, plans: int) -> dict[str, Any]:
    """Plans compared with the reference: time, the bound at .999, or the first plan that differs."""
    table = {}
    laws: dict[str, Law] = {"uniform": LAW}
    for name, who in AVAILABLE.items():
        laws[name] = AvailabilityLaw(LAW.rounds, who, FreshBatches(LAW.steps, LAW.batch_size), first_all=False)
    for law_name, law in laws.items():
        for kind, requests in STREAMS.items() if law is LAW else list(STREAMS.items())[:2]:
            for name in ("fats", "fats-as-printed", "noop") if kind == "sample" and law is LAW else ("fats",):
                moment = STOPPED if kind == "during training" else END
                trial = Trial(law, POPULATION, tuple(Step(REWRITERS[name], name, r, moment) for r in requests))
                count = PlanLaw(plans=plans).planned(trial)
                started, busy = time.perf_counter(), time.process_time()
                beside = comparison.references(trial, key)
                busy = time.process_time() - busy
                found = comparison.Comparison(0, None, 0)
                for part, spent in run(partial(timed, partial(comparison.compare, trial, beside, key)), count):
                    busy += spent
                    if found.first is None:
                        found = found.then(part)
                seconds = time.perf_counter() - started
                result = f"plan {found.equal + 1} differs" if found.first else f"below {found.below(ALPHA):.3g}"
                row = {"plans": count, "seconds": seconds, "processor_seconds": busy, "equal": found.equal}
                table[f"{law_name}, {kind}, {name}"] = row
                print(
                    f"{law_name}, {kind}, {name}: {count:,} plans in {seconds:.1f} s, {busy:.1f} s of processor time; "
                    f"{result}",
                    flush=True,
                )
    return table


def clopper_pearson(hits: int, number: int) -> tuple[float, float]:
    low = beta.ppf(0.025, hits, number - hits + 1) if hits else 0.0
    high = beta.ppf(0.975, hits + 1, number - hits) if hits < number else 1.0
    return float(low), float(high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plans", type=int, default=100_000)
    parser.add_argument("--few", type=int, default=100, help="plans that the slow way reads as well")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--key", default=bytes(32).hex(), metavar="HEX", help="32 bytes that all plans follow from")
    parser.add_argument("--power", action="store_true")
    parser.add_argument("--bound", action="store_true")
    parser.add_argument("--json", type=Path, metavar="OUT", help="also write the figures there")
    given = parser.parse_args()
    key, document = bytes.fromhex(given.key), {"key": given.key, "machine": hardware()}
    with pool(given.workers) as run:
        if given.bound:
            document["bound"] = bound(run, key, given.plans)
        elif given.power:
            document["power"] = power(run, key, given.plans)
        else:
            document["timing"] = timing(run, key, given.plans, given.few)
            document["findings"] = findings(run, key, given.plans)
    if given.json:
        given.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
