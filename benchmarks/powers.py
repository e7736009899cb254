"""Whether stated powers are true: ``python benchmarks/powers.py [--real 20] [--page OUT]``.

400 audits of synthetic laws, 40 of each: every audit draws its own runs and states a rate; the true power there is
measured by fresh audits of the same laws, which share nothing with it. Beside it the former statement, made from the
same runs: 60 resamples that reorder the pairs at hand, and the estimate in place of a limit. ``--real`` adds audits of
trained models: pairs of a digits federation, of which every audit takes some that no other has, and true power from
all of them. Keys follow from ROOT and are fixed in advance. Finished laws are kept in a folder,
from which a killed run goes on.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import hardware
from numpy.typing import NDArray

from fuaudit import train, unlearn
from fuaudit.audits.model_law.audit import SHARES
from fuaudit.audits.model_law.measure import Statistics
from fuaudit.commitments.keys import derive
from fuaudit.data.images import Digits
from fuaudit.draws import Keyed
from fuaudit.plans import Request
from fuaudit.replicas.pairs import Pairs
from fuaudit.statistics.two_sample.betting import log_wealth_path
from fuaudit.statistics.two_sample.power import RATES, Detectable, detectable_rate
from fuaudit.verification.case import Case
from fuaudit.verification.evidence import Evidence

ROOT = b"fuaudit: stated powers, v2......"
Floats = NDArray[np.float64]
Table = dict[str, Any]
Sample = Callable[[np.random.Generator, tuple[int, ...]], Floats]
"""Runs ``(..., s)`` of a leading shape."""

FRESH = 1000
"""Audits at every rate that measure true power: a standard error of .01 where it is .9."""


def normal(statistics: int) -> Sample:
    return lambda rng, shape: rng.normal(size=(*shape, statistics))


def shifted(sample: Sample, by: float, statistics: int = 1) -> Sample:
    """The first statistics moved."""

    def moved(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        runs = sample(rng, shape)
        runs[..., :statistics] += by
        return runs

    return moved


def sometimes(sample: Sample, value: float, chance: float) -> Sample:
    """The first statistic at ``value`` in a part of runs only."""

    def mixed(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        runs = sample(rng, shape)
        runs[..., 0] = np.where(rng.random(shape) < chance, value, runs[..., 0])
        return runs

    return mixed


def correlated(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    own, common = rng.normal(size=(*shape, 3)), rng.normal(size=(*shape, 1))
    return 0.5 * own + math.sqrt(0.75) * common


def heavy(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    return rng.standard_t(2, size=(*shape, 3))


def cauchy(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    return rng.standard_cauchy(size=(*shape, 2))


def poisson(mean: float) -> Sample:
    return lambda rng, shape: rng.poisson(mean, (*shape, 2)).astype(float)


def coin(chance: float) -> Sample:
    return lambda rng, shape: (rng.random((*shape, 2)) < chance).astype(float)


LAWS: dict[str, tuple[Sample, Sample, int, float]] = {
    "normal, shift 1 of one of three": (shifted(normal(3), 1.0), normal(3), 64, 0.01),
    "normal, shift 1.3 of one of three": (shifted(normal(3), 1.3), normal(3), 64, 0.01),
    "normal, shift 3 of all three": (shifted(normal(3), 3.0, 3), normal(3), 64, 0.01),
    "normal, shift .9 of all eight": (shifted(normal(8), 0.9, 8), normal(8), 64, 0.01),
    "correlated, shift 2 of all": (shifted(correlated, 2.0, 3), correlated, 64, 0.01),
    "t with 2 degrees, shift 2.5": (shifted(heavy, 2.5), heavy, 64, 0.01),
    "Cauchy, shift 4": (shifted(cauchy, 4.0), cauchy, 64, 0.01),
    "ties: Poisson 2.5 against 1": (poisson(2.5), poisson(1.0), 64, 0.01),
    "6 sd away in six of ten runs": (sometimes(normal(3), 6.0, 0.6), normal(3), 64, 0.01),
    "normal, shift 3, 24 pairs": (shifted(normal(2), 3.0), normal(2), 24, 0.05),
}
"""Untouched and retrained runs, pairs and alpha. Ties of 0 and 1, and values that are no numbers, are in the tests."""


def generator(*names: str) -> np.random.Generator:
    return np.random.default_rng(list(derive(ROOT, *names)))


def largest(subject: Floats, reference: Floats, shares: tuple[float, ...] | None = None) -> Floats:
    """The largest log wealth of audits ``(a, n, s)``."""
    size = max(1, (1 << 20) // subject[0].size)
    parts = [slice(at, at + size) for at in range(0, len(subject), size)]
    return np.concatenate([log_wealth_path(subject[p], reference[p], shares).max(axis=-1, initial=0.0) for p in parts])


def true_powers(law: tuple[Sample, Sample, int, float], rng: np.random.Generator) -> dict[float, float]:
    """By fresh audits, at every rate."""
    untouched, retrained, pairs, alpha = law
    shape, powers = (FRESH, pairs), {}
    for rate in RATES:
        planted = rng.random(shape) < rate
        subject = np.where(planted[..., None], untouched(rng, shape), retrained(rng, shape))
        powers[rate] = float((largest(subject, retrained(rng, shape)) >= -math.log(alpha)).mean())
    return powers


def former(
    untouched: Floats,
    reference: Floats,
    second: Floats,
    alpha: float,
    rng: np.random.Generator,
    shares: tuple[float, ...] | None = None,
    rates: tuple[float, ...] = RATES,
) -> float | None:
    """The rate as it was stated before: pairs reordered 60 times, the smallest rate from which on 54 reject."""
    order = np.argsort(rng.random((60, len(untouched))), axis=1)
    marks, answer = rng.random((60, len(untouched))), None
    for rate in reversed(rates):
        subject = np.where((marks < rate)[..., None], untouched[order], second[order])
        if (largest(subject, reference[order], shares) >= -math.log(alpha)).mean() < 0.9:
            break
        answer = rate
    return answer


def bare(found: Detectable) -> float | None:
    """The rate that the same resamples would give without a margin."""
    without = replace(found, curve=tuple(replace(point, lower=point.estimate) for point in found.curve))
    return without.rate


Arms = tuple[Floats, Floats, Floats, Floats]
"""Untouched runs, two retrained arms, and a third one for the runs of a subject that were unlearned."""


def audited(
    arms: Arms, alpha: float, rng: np.random.Generator, shares: tuple[float, ...] | None = None
) -> tuple[dict[str, float | None], list[bool]]:
    """What one audit states, and whether it keeps silent about a defective subject, at every rate.

    The rates it states: by the lower limit, by the bare share of the same resamples, and as before. The subject is
    left untouched at a rate: its planted runs are the audit's own untouched ones, as they are in an audit.
    """
    untouched, reference, second, unlearned = arms
    found = detectable_rate(untouched, reference, second, alpha, rng.random, shares=shares)
    rates = {
        "stated": found.rate,
        "bare share": bare(found),
        "former": former(untouched, reference, second, alpha, rng, shares),
    }
    marks = rng.random(len(untouched))[:, None]
    subjects = np.stack([np.where(marks < rate, untouched, unlearned) for rate in RATES])
    references = np.broadcast_to(reference, subjects.shape)
    return rates, (largest(subjects, references, shares) < -math.log(alpha)).tolist()


def gathered(powers: dict[float, float], audits: list[tuple[dict[str, float | None], list[bool]]]) -> Table:
    """The audits of one law, beside its true powers."""
    rates: dict[str, list[float | None]] = {way: [one[way] for one, _ in audits] for way in audits[0][0]}
    return {
        "true": powers,
        "least true rate": next((rate for rate, power in powers.items() if power >= 0.9), None),
        "rates": rates,
        "powers": {way: [None if r is None else powers[r] for r in found] for way, found in rates.items()},
        # silent, and said to have seen this rate: the false PASS of a spec whose effect is the rate
        "passed": {
            str(rate): sum(s[at] and o["stated"] is not None and o["stated"] <= rate for o, s in audits)
            for at, rate in enumerate(RATES)
        },
    }


def synthetic(name: str, audits: int) -> Table:
    untouched, retrained, pairs, alpha = LAWS[name]
    found = []
    for number in range(audits):
        rng = generator(name, "audit", str(number))
        retrainings = (retrained(rng, (pairs,)), retrained(rng, (pairs,)), retrained(rng, (pairs,)))
        found.append(audited((untouched(rng, (pairs,)), *retrainings), alpha, rng))
    return gathered(true_powers(LAWS[name], generator(name, "truth")), found)


# --- trained models -----------------------------------------------------------------------------------------------

CONFIG: Table = {
    "data": {"use": "digits"},
    "partition": {"use": "one-holder", "clients": 20, "label": 9},
    "model": {"use": "mlp", "hidden": [32]},
    "learner": {"use": "fats", "rounds": 10, "cohort": 4, "steps": 5, "batch": 8, "step_size": 0.1},
}
PAIRS, LEVEL = 48, 0.01
TRAINED = "digits, trained models"


def federation(audits: int) -> Table:
    """Audits of one federation on pairs of their own; true power by audits resampled from all runs together."""
    data = Digits().load(None)
    with tempfile.TemporaryDirectory() as folder:
        run = train(CONFIG, Path(folder) / "run", secret=derive(ROOT, "training"))
        child = unlearn(run, "fats", Request.of(clients=[0]), Path(folder) / "child")
        work = Pairs.of(Case(Evidence(child, None, data), Keyed(derive(ROOT, "pairs"))), Statistics(300))
        parts = [work.compute(part, 1) for part in work.shards(audits * PAIRS)]
    arms = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    names, found = ("untouched", "retrained", "second", "subject"), []
    for number in range(audits):
        own = slice(number * PAIRS, (number + 1) * PAIRS)
        runs = (arms["untouched"][own], arms["retrained"][own], arms["second"][own], arms["subject"][own])
        found.append(audited(runs, LEVEL, generator("federation", str(number)), SHARES))
    rng, powers = generator("federation", "truth"), {}
    retrained = np.concatenate([arms[name] for name in names[1:]])  # FATS is exact: its runs are retrained ones
    for rate in RATES:
        planted = (rng.random((FRESH, PAIRS)) < rate)[..., None]
        first, second, third = (
            pool[rng.integers(len(pool), size=(FRESH, PAIRS))] for pool in (arms["untouched"], retrained, retrained)
        )
        powers[rate] = float((largest(np.where(planted, first, second), third, SHARES) >= -math.log(LEVEL)).mean())
    return gathered(powers, found)


# --- in words -----------------------------------------------------------------------------------------------------


def row(powers: list[float | None]) -> Table:
    """What became of audits, from the true power at the rate each stated; None where none was stated."""
    given = np.array([power for power in powers if power is not None])
    table: Table = {"audits": len(powers), "stated": len(given)}
    if len(given):
        shares = {f"at least {limit}": float((given >= limit).mean()) for limit in (0.8, 0.9)}
        table |= {"mean": float(given.mean()), **shares, "worst": float(given.min())}
    return table


def cells(powers: list[float | None]) -> str:
    found = row(powers)
    if not found["stated"]:
        return f"0 of {found['audits']} | | | | "
    return (
        f"{found['stated']} of {found['audits']} | {found['mean']:.3f} | {found['at least 0.8']:.3f} | "
        f"{found['at least 0.9']:.3f} | {found['worst']:.2f}"
    )


def lines(law: Table) -> list[str]:
    return [f"{way}: {cells(powers)}" for way, powers in law["powers"].items()]


def stated_rates(law: Table, way: str) -> str:
    rates = sorted(rate for rate in law["rates"][way] if rate is not None)
    return f"{rates[0]:g} / {float(np.median(rates)):g} / {rates[-1]:g}" if rates else "none"


def worst(laws: Table) -> str:
    """Where a defect is passed most often."""
    count, of, name, rate = max(
        (count, len(law["rates"]["stated"]), name, rate)
        for name, law in laws.items()
        for rate, count in law["passed"].items()
    )
    return f"at most {count} of {of} audits ({name}, rate {rate})" if count else "in no audit"


def page(document: Table, command: str) -> str:
    laws = document["synthetic"]
    both = {way: [p for law in laws.values() for p in law["powers"][way]] for way in ("stated", "bare share", "former")}
    head = "| law | " + "audits with a rate | mean true power | at least .8 | at least .9 | worst |"
    rule = "|---|---|---|---|---|---|"
    names = {"stated": "as stated now", "bare share": "without the margin", "former": "as stated before"}
    machine = document["machine"]
    text = [
        "# Whether stated powers are true",
        "",
        f"    {command}",
        "",
        f"fuaudit {machine['fuaudit']}, numpy {machine['numpy']}, {machine['processor']}, cores shared with other "
        f"work, {document['seconds']:.0f} s of processor time. Root of all keys: `{ROOT.decode()}`, fixed before "
        "anything was run; a law that was cut off was computed again from the same keys.",
        "",
        "An audit states the smallest rate of untouched models that it would have found with power .9. Here many "
        "audits state one, each from runs of its own, and the true power at that rate is measured by "
        f"{FRESH:,} fresh audits (standard error .01). *Now*: 200 resamples with replacement from one pool of "
        "retrained runs, and a margin for the luck of the runs. *Without the margin*: the share of the same resamples. "
        "*Before*: the pairs at hand, reordered 60 times. Asked for: .87 in the mean, .8 in nine of ten.",
        "",
        f"## {len(both['stated'])} audits of synthetic laws together",
        "",
        head.replace("law", "rate"),
        rule,
        *(f"| {names[way]} | {cells(powers)} |" for way, powers in both.items()),
        "",
        "## Law by law, as stated now",
        "",
        "64 pairs and alpha .01, or 24 and .05. Rates: smallest, median, largest stated; beside them the smallest rate "
        "of the grid that truly has power .9.",
        "",
        head.replace("worst |", "worst | rates stated | before | true |"),
        rule + "---|---|---|",
        *(
            f"| {name} | {cells(law['powers']['stated'])} | {stated_rates(law, 'stated')} | "
            f"{stated_rates(law, 'former')} | {law['least true rate'] or 'none'} |"
            for name, law in laws.items()
        ),
        "",
        "## Silence about a defect",
        "",
        "In the same audits the subject is left untouched at a rate; its planted runs are the audit's own untouched "
        "ones. A spec whose `effect` is that rate passes it if betting does not reject and the audit states that it "
        f"would have seen this rate. Over all laws and rates: {worst(laws | document['real'])}.",
    ]
    for name, law in document["real"].items():
        text += [
            "",
            "## Trained models",
            "",
            f"{name}: the federation of [calibration.md](calibration.md) (digits, one client holds a class, MLP), "
            f"{PAIRS} pairs an audit, alpha {LEVEL}, the ten statistics and shares of the audit. True power from "
            "audits resampled from the runs of all audits together. Rates stated now: "
            f"{stated_rates(law, 'stated')}; before: {stated_rates(law, 'former')}; truly: {law['least true rate']}.",
            "",
            head.replace("law", "rate"),
            rule,
            *(f"| {names[way]} | {cells(powers)} |" for way, powers in law["powers"].items()),
        ]
    return "\n".join(text) + "\n"


def task(name: str, audits: int, kept: Path) -> Table:
    """The audits of one law, or of trained models: from the folder if they lie there, else computed and kept."""
    file = kept / (f"{name}, {audits}.json".replace(" ", "-"))
    if not file.exists():
        torch.set_num_threads(1)
        begun = time.process_time()
        result = synthetic(name, audits) if name in LAWS else federation(audits)
        result["seconds"] = time.process_time() - begun
        file.with_suffix(".part").write_text(json.dumps(result) + "\n", encoding="utf-8")
        file.with_suffix(".part").replace(file)
    found: Table = json.loads(file.read_text(encoding="utf-8"))
    # JSON knows no numbers as keys
    found["true"] = {float(rate): power for rate, power in found["true"].items()}
    print(name, *lines(found), sep="\n  ", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--audits", type=int, default=40, help="of every law")
    parser.add_argument("--real", type=int, default=0, metavar="AUDITS", help="audits of trained models too")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path(tempfile.gettempdir()) / "fuaudit-powers",
        help="finished laws, to go on after a kill",
    )
    parser.add_argument("--page", type=Path, metavar="OUT")
    given = parser.parse_args()
    given.cache.mkdir(parents=True, exist_ok=True)
    names, sizes = list(LAWS), [given.audits] * len(LAWS)
    if given.real:
        names, sizes = [TRAINED, *names], [given.real, *sizes]
    with ProcessPoolExecutor(given.workers) as pool:
        found = dict(zip(names, pool.map(task, names, sizes, [given.cache] * len(names)), strict=True))
    real = {name: found.pop(name) for name in [TRAINED] if given.real}
    seconds = sum(table["seconds"] for table in [*found.values(), *real.values()])
    if given.page:
        options = "".join(
            f" --{name} {value}"
            for name, value, usual in (("audits", given.audits, 40), ("real", given.real, 0))
            if value != usual
        )
        command = f"python benchmarks/powers.py{options} --page {given.page}"
        document = {"machine": hardware(), "synthetic": found, "real": real, "seconds": seconds}
        given.page.write_text(page(document, command), encoding="utf-8")


if __name__ == "__main__":
    main()
