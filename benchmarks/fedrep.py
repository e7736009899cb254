"""FedREP against attacks, and against what it is compared with: the studies of its paper, on Fashion-MNIST.

    python benchmarks/fedrep.py --data ROOT --out DIR --plan          what there is to do, and about how long it takes
    python benchmarks/fedrep.py --data ROOT --out DIR                 all cells; can be killed, and given again
    python benchmarks/fedrep.py --data ROOT --out DIR --study rates --study alpha
    python benchmarks/fedrep.py --data ROOT --out DIR --smoke --cell rate-fedrep-5-0.1       one tiny cell, in seconds
    python benchmarks/fedrep.py --out DIR --report docs/results/fedrep.md                    the page, of what is there
    python benchmarks/fedrep.py --data ROOT --out DIR --kept docs/results/fedrep.jsonl       go on behind a page

32 clients, of which 7 are Byzantine, a CNN of 21,840 parameters, batches of 25, buffers of 2, 10 epochs: 24,000 client
steps a cell, of which there are 116. A cell that is done is one line of JSON, in a file of its name under DIR. Its run
is removed then (60 MB), unless --keep is said; one that was interrupted is resumed. Several commands can work side by
side on different studies, where DIR has the rates. The page comes with the lines that it is made of, in a .jsonl file
beside it. --kept reads such a file: what it has is not run again.

Cells wait for others: a learning rate is the one of best final accuracy among the clean runs of its system (study
"rates"), and RCGD-EF and SparseSecAgg send as many values as FedREP turned out to send. What waits for something that
is not in DIR is left out, and said. Keys are fixed here, before any result; so are the cells and what counts as a
difference.

Time: one epoch of a clean cell took 10.1 ms of processor time a client step at I = 1, and 8.5 ms at I = 5, set-up
included, on one thread of a Xeon that others kept busy. So a cell takes about 4 minutes, and all of them about 7 hours
of one core. On that machine, with a load of 12 on two cores, the clock showed five times as much. SparseSecAgg, which
draws a lot for each of 496 pairs, was not measured. --plan takes the times of cells that are done where there are some.

What differs from the paper, and why: Fashion-MNIST and a small CNN in place of CIFAR-10 and ResNet-20, 10 epochs in
place of 120, so that all of it takes hours on two cores (with an accelerator: --dataset cifar-10 --model resnet-20
--epochs 120 --device cuda). The learning rate stays what it is; print takes a tenth of it after two thirds. Rates are
chosen among three of the paper's six. Three of its settings are not printed: the interval of local steps where
coordinates are attacked, where SparseSecAgg is compared and at s = 4; it is 5 here.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import permutations
from pathlib import Path
from typing import Any, Literal

from dropouts import scaled
from machine import hardware

from fuaudit import registry
from fuaudit.data.dataset import Dataset
from fuaudit.formats.files import write_bytes
from fuaudit.runs.run import Run, load_run
from fuaudit.runs.traffic import traffic
from fuaudit.workflow.resume import resume
from fuaudit.workflow.train import train

CLIENTS, BATCH = 32, 25
RATES = (0.1, 0.2, 0.5)
ATTACKS: dict[str, dict[str, Any]] = {
    "bit-flip": {"use": "bit-flip"},
    "alie": {"use": "alie"},
    "foe": {"use": "ipm", "magnitude": 0.5},
}
RULES: dict[str, dict[str, Any]] = {
    "geomed": {"use": "geometric-median", "steps": 5},
    "tmean": {"use": "trimmed-mean", "trim": 7 / 16},
    "cclip": {"use": "centered-clipping", "radius": 0.5, "steps": 5},
}
"""As the paper has them."""

SECONDS = {1: 0.0101, 5: 0.0085}
"""Seconds of a client step, by the local steps of a round, where DIR has none: see the docstring."""

MARGIN = 2.0
"""Points of accuracy below which two cells do not differ; the keys of the study "keys" show whether that is much."""


@dataclass(frozen=True)
class Cell:
    """One run.

    Attributes:
        system: "fedrep", "share", "rcgd-ef" or "sparse".
        steps: I, of a round.
        share: K / d, what FedREP may send at most.
        bad: how many clients are Byzantine, the last ones; none without an attack.
        proposes: what these propose instead of their own coordinates; "" for nothing.
        rate: the learning rate; None for the one that the study of rates found.
        matched: the cell whose realised number of values this one sends; "" for its share.
    """

    study: str
    system: str
    steps: int
    rule: str = "geomed"
    attack: str = ""
    alpha: float = 0.0
    size: int = 2
    momentum: float = 0.9
    share: float = 0.05
    bad: int = 7
    proposes: str = ""
    rate: float | None = None
    matched: str = ""
    key: int = 1

    @property
    def family(self) -> str:
        """Whose learning rate it has; without momentum that of FedREP, as print keeps other conditions the same."""
        return f"{self.system}-{self.steps}" if self.momentum else f"fedrep-{self.steps}-plain"

    @property
    def name(self) -> str:
        """Told apart from all others, for files."""
        if self.study == "rates":
            return f"rate-{self.family}-{self.rate}"
        parts = [self.system, self.rule if self.system in ("fedrep", "share") else "", f"I{self.steps}", self.attack]
        parts += [f"a{self.alpha:g}" if self.study == "alpha" or self.alpha else "", f"s{self.size}"]
        parts += [
            "" if self.momentum else "plain",
            self.proposes,
            self.matched and f"as-s{self.matched.split('-s')[1]}",
        ]
        return "-".join(filter(None, parts)) + (f"-key-{self.key}" if self.key > 1 else "")

    @property
    def waits(self) -> tuple[str, ...]:
        """The cells that have to be done before it."""
        rates = [] if self.rate else [c.name for c in CELLS if c.study == "rates" and c.family == self.family]
        return (*rates, *filter(None, [self.matched]))


def cells() -> Iterator[Cell]:
    """All cells, each behind those that it waits for."""
    families = [("fedrep", 1, 0.9), ("fedrep", 1, 0.0), ("fedrep", 5, 0.9), ("fedrep", 5, 0.0)]
    families += [(system, 5, 0.9) for system in ("share", "rcgd-ef", "sparse")]
    for system, steps, momentum in families:
        for rate in RATES:
            yield Cell("rates", system, steps, momentum=momentum, rate=rate, bad=0)
    for attack in ATTACKS:
        for rule in RULES:
            for alpha in (0.0, 0.5, 0.95, *[0.99] * (rule == "cclip"), 1.0):
                yield Cell("alpha", "fedrep", 1, rule, attack, alpha)
    for attack in ATTACKS:
        for rule in RULES:
            yield Cell("systems", "fedrep", 5, rule, attack)
            yield Cell("systems", "share", 5, rule, attack)
        yield Cell("systems", "rcgd-ef", 5, attack=attack, matched=Cell("systems", "fedrep", 5, attack=attack).name)
    for size in (4, 8, 16):
        clean = Cell("sums", "fedrep", 5, size=size, bad=0)
        yield clean
        yield Cell("sums", "sparse", 5, bad=0, matched=clean.name)
    for system in ("fedrep", "share"):
        yield replace(Cell("fours", system, 5, attack="alie", size=4, momentum=0.0, bad=3))
    for rule in RULES:
        yield Cell("momentum", "fedrep", 1, rule, "alie", momentum=0.0)
    for attack in ATTACKS:
        for proposes in ("correct", "smallest", "random", "same"):
            yield Cell("coordinates", "fedrep", 5, attack=attack, share=0.065, proposes=proposes)
    for key in (2, 3):
        for alpha in (0.0, 0.95):
            yield Cell("keys", "fedrep", 1, "cclip", "alie", alpha, key=key)
        for system in ("fedrep", "share"):
            yield Cell("keys", system, 5, "geomed", "alie", key=key)
        fedrep = Cell("systems", "fedrep", 5, attack="alie").name
        yield Cell("keys", "rcgd-ef", 5, attack="alie", matched=fedrep, key=key)
        yield Cell("keys", "fedrep", 1, "geomed", "alie", momentum=0.0, key=key)


CELLS = tuple(cells())
STUDIES = tuple(dict.fromkeys(cell.study for cell in CELLS))


@dataclass(frozen=True)
class Scale:
    """What may be another than in the studies; stated in the result."""

    epochs: int = 10
    rows: int = 60_000
    model: str = "cnn"
    dataset: str = "fashion-mnist"
    device: str = "auto"
    engine: str = "auto"

    def rounds(self, cell: Cell) -> int:
        """As many as make the epochs."""
        return max(1, round(self.epochs * (self.rows // CLIENTS / BATCH) / cell.steps))

    def client_steps(self, cell: Cell) -> int:
        return self.rounds(cell) * cell.steps * CLIENTS

    @property
    def mark(self) -> str:
        """What tells scales apart in names of files. Engine and device are no part of it."""
        asked = asdict(replace(self, device="", engine=""))
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:8]


Line = Mapping[str, Any]
Found = Mapping[str, Line]
"""Name of a cell -> its line."""


def key(number: int) -> bytes:
    """The keys of this benchmark, for everybody to compute."""
    return hashlib.sha256(f"fuaudit fedrep {number}".encode()).digest()


def rate_of(cell: Cell, found: Found) -> float:
    """The learning rate: given, or that of best final accuracy among its family's clean runs, the lowest of equals."""
    if cell.rate is not None:
        return cell.rate
    same = [c for c in CELLS if c.study == "rates" and c.family == cell.family]
    tried = {c.rate: found[c.name]["final"] for c in same if c.rate is not None}
    return max(sorted(tried), key=lambda rate: tried[rate])


def config(cell: Cell, scale: Scale, dimension: int, found: Found) -> dict[str, Any]:
    """The tables of a cell, from the lines that it waits for."""
    values = found[cell.matched]["values"] if cell.matched else cell.share * dimension
    named = {"clients": list(range(CLIENTS - cell.bad, CLIENTS))}
    attack = [ATTACKS[cell.attack] | named] if cell.attack else []
    coordinates = [{"use": "coordinate-attack", "proposes": cell.proposes} | named] if cell.proposes else []
    memory, many = {"use": "error-feedback"}, {"per_client": max(1, round(values / CLIENTS)), "alpha": cell.alpha}
    sums = {"use": "secure-sum", "size": cell.size, "byzantine": cell.bad if cell.attack else 0}
    parts: dict[str, dict[str, Any]] = {
        "fedrep": {"client": [memory, {"use": "consensus"} | many, *attack, *coordinates], "transport": sums},
        "share": {"client": attack, "transport": sums},
        "rcgd-ef": {"client": [memory, {"use": "top-k", "per_client": max(1, round(values))}, *attack]},
        "sparse": {"transport": {"use": "sparse-sum", "alpha": round(values / dimension, 6)}},
    }
    rules = {"rcgd-ef": {"use": "norm-thresholding", "trim": 7}, "sparse": {"use": "mean"}}
    rounds = scale.rounds(cell)
    return {
        "data": {"use": scale.dataset},
        "partition": {"use": "iid", "clients": CLIENTS},
        "model": {"use": scale.model},
        "learner": {
            **{"use": "fedrep", "rounds": rounds, "cohort": CLIENTS, "steps": cell.steps, "batch": BATCH},
            "step_size": rate_of(cell, found),
        },
        "solver": {"use": "local-momentum", "momentum": cell.momentum},
        "server": [rules.get(cell.system, RULES[cell.rule])],
        "run": {
            "checkpoint_every": max(1, rounds // scale.epochs),
            **{"device": scale.device, "engine": scale.engine},
        },
        **{name: table for name, table in parts[cell.system].items() if table},
    }


def told(run: Run) -> Iterator[tuple[int, dict[str, Any]]]:
    """What stages told: how many took part in the round, and the event."""
    for line in run.ledger.of_kind("round"):
        for event in line.get("told", []):
            yield len(run.participation["cohorts"][line["round"] - 1]), event


def values_of(run: Run) -> float:
    """How many values a client sent in a round, on average; of 4 bytes each."""
    sent = [event["size"] for _, event in told(run) if event["kind"] == "sent" and event["what"] == "values"]
    # where nobody tells of values by itself, everybody sends those that were agreed on
    agreed = [
        count * event["size"] for count, event in told(run) if event["kind"] == "answered" and event["what"] == "values"
    ]
    size = sum(sent or agreed)
    return size / (4 * traffic(run).participations) if size else float(dimension_of(run))


def dimension_of(run: Run) -> int:
    """How many numbers the model has."""
    return int(run.model.numel())


def line_of(cell: Cell, scale: Scale, run: Run) -> dict[str, Any]:
    """What one cell found. Accuracies are in percent, of the models that are stored once an epoch."""
    ladder = [100 * row["test_accuracy"] for row in run.metrics]
    failed = sum(event["kind"] == "summed" and event["failed"] for _, event in told(run))
    return {
        "cell": asdict(cell),
        "scale": asdict(scale),
        "final": ladder[-1],
        "best": max(ladder),
        "accuracies": ladder,
        "rate": run.config.learner["step_size"],
        "values": values_of(run),
        "dimension": dimension_of(run),
        "failed_rounds": failed,
        "traffic": traffic(run).table(),
        "client_steps": scale.client_steps(cell),
        "engine": run.info["engine"],
        "device": run.info["device"],
        "commitment": run.commitment,
        "instructions": run.info["versions"]["processor"],
        "machine": hardware(),
    }


def lines(out: Path, scale: Scale, kept: Path | None = None) -> dict[str, Line]:
    """The lines of a scale that a folder has, and those of a file beside a page."""
    files = {cell.name: out / f"{cell.name}-{scale.mark}.json" for cell in CELLS}
    found = {name: json.loads(file.read_text()) for name, file in files.items() if file.is_file()}
    before = [json.loads(line) for line in kept.read_text().splitlines()] if kept else []
    same = [line for line in before if Scale(**line["scale"]).mark == scale.mark]
    return {Cell(**line["cell"]).name: line for line in same} | found


def written(found: Found) -> str:
    """The lines of all cells, one line of JSON each, in the order of cells."""
    return "".join(json.dumps(found[cell.name], sort_keys=True) + "\n" for cell in CELLS if cell.name in found)


def compute(cell: Cell, scale: Scale, data: Dataset, out: Path, found: Found, keep: bool) -> None:
    """Read, resume or train the run of a cell, and write its line."""
    folder, shown = out / "runs" / f"{cell.name}-{scale.mark}", time.monotonic()
    started = shown, time.process_time()

    def progress(what: str, done: int, total: int) -> None:
        nonlocal shown
        if time.monotonic() - shown > 30 or done == total:
            shown = time.monotonic()
            print(f"{cell.name}: {what} {done} of {total}", flush=True)

    begun = (folder / "run.json").exists()
    if (folder / "manifest.json").exists():
        run = load_run(folder)
    elif begun:
        run = resume(folder, data=data, progress=progress)
    else:
        module = registry.build("models", {"use": scale.model}).build(data.shape, data.classes)
        dimension = sum(parameter.numel() for parameter in module.parameters())
        shutil.rmtree(folder, ignore_errors=True)  # what was killed before it had begun
        folder.parent.mkdir(parents=True, exist_ok=True)
        tables = config(cell, scale, dimension, found)
        run = train(tables, folder, secret=key(cell.key), data=data, progress=progress)
    # of a run that was interrupted nobody took the time
    ended = time.monotonic(), time.process_time()
    seconds, processor = (None if begun else b - a for a, b in zip(started, ended, strict=True))
    line = line_of(cell, scale, run) | {"seconds": seconds, "processor_seconds": processor}
    write_bytes(out / f"{cell.name}-{scale.mark}.json", (json.dumps(line) + "\n").encode())
    if not keep:
        shutil.rmtree(folder)


def seconds_of(cell: Cell, found: Found) -> float:
    """About how long a client step of a cell takes: the median of cells with as many steps a round, else SECONDS."""
    alike = [line for line in found.values() if line["seconds"] and line["cell"]["steps"] == cell.steps]
    times = [line["seconds"] / line["client_steps"] for line in alike]
    return statistics.median(times) if times else SECONDS[cell.steps]


def planned(chosen: Iterable[Cell], scale: Scale, found: Found) -> list[str]:
    """What is left, and about how long it takes."""
    left = [cell for cell in chosen if cell.name not in found]
    steps = sum(scale.client_steps(cell) for cell in left)
    hours = sum(scale.client_steps(cell) * seconds_of(cell, found) for cell in left) / 3600
    return [f"{len(left)} cells are left, {steps:,} client steps: about {hours:.1f} hours on this machine"]


# what the paper says

Verdict = Literal["holds", "fails", "no difference", "not run"]


@dataclass(frozen=True)
class Comparison:
    """Two cells, and what the paper says of them: the first is "not below" the second, "above" it, or "alike"."""

    first: str
    how: str
    second: str

    def gap(self, found: Found) -> float | None:
        """Points of best accuracy by which the first is above the second; None where a cell is missing."""
        if not {self.first, self.second} <= found.keys():
            return None
        return float(found[self.first]["best"] - found[self.second]["best"])

    def judged(self, found: Found) -> Verdict:
        """Whether it holds. Who should be above and is within the margin shows nothing, for it or against it."""
        gap = self.gap(found)
        if gap is None:
            return "not run"
        holds = {"not below": gap > -MARGIN, "above": gap > MARGIN, "alike": abs(gap) <= MARGIN}[self.how]
        if holds:
            return "holds"
        return "no difference" if abs(gap) <= MARGIN else "fails"


@dataclass(frozen=True)
class Statement:
    """A finding of the paper, as comparisons of cells."""

    where: str
    text: str
    comparisons: tuple[Comparison, ...]

    def judged(self, found: Found) -> str:
        """In words; a part that was not run leaves it open."""
        answers = Counter(one.judged(found) for one in self.comparisons)
        run = len(self.comparisons) - answers["not run"]
        if not run:
            return "not run"
        rest = f"{answers['holds']} of {run}" + f"; {answers['no difference']} show no difference" * (
            answers["no difference"] > 0
        )
        if answers["not run"]:
            return f"open: so far {rest}; {answers['not run']} not run"
        if len(answers) == 1:
            if answers["no difference"]:
                below = all(gap < 0 for gap in self._gaps(found))
                return f"not confirmed: below in {run} of {run}, by less than the margin" if below else NO_DIFFERENCE
            return f"confirmed: {rest}" if answers["holds"] else f"contradicted: {rest}"
        return f"in part: {rest}"

    def _gaps(self, found: Found) -> list[float]:
        return [gap for one in self.comparisons if (gap := one.gap(found)) is not None]

    def above(self, found: Found) -> str:
        """In how many comparisons the first is above the second at all."""
        gaps = self._gaps(found)
        return f"{sum(gap > 0 for gap in gaps)} of {len(gaps)}" if gaps else ""

    def gaps(self, found: Found) -> str:
        """The least, the median and the largest gap of what was run."""
        gaps = self._gaps(found)
        return " / ".join(f"{of(gaps):+.2f}" for of in (min, statistics.median, max)) if gaps else ""


NO_DIFFERENCE = "no difference found"

C_1 = (
    "Under ALIE geoMed and CClip are above TMean, by their best, at alpha 0, 0.5 and 0.95 (print: TMean is not stable "
    "enough)"
)


def statements() -> tuple[Statement, ...]:
    """The paper's findings, one by one."""

    def named(*given: Any, **more: Any) -> str:
        return Cell(*given, **more).name

    def alphas(rules: Iterable[str], first: float, how: str, second: float) -> tuple[Comparison, ...]:
        pairs = [(rule, attack) for rule in rules for attack in ATTACKS]
        return tuple(
            Comparison(
                *(named("alpha", "fedrep", 1, rule, attack, first), how),
                named("alpha", "fedrep", 1, rule, attack, second),
            )
            for rule, attack in pairs
        )

    def systems(
        first: str, how: str, second: str, attacks: Iterable[str], rules: Iterable[str]
    ) -> tuple[Comparison, ...]:
        def one(system: str, rule: str, attack: str) -> str:
            return next(
                c.name
                for c in CELLS
                if (c.study, c.system, c.attack) == ("systems", system, attack)
                and (system == "rcgd-ef" or c.rule == rule)
            )

        return tuple(Comparison(one(first, r, a), how, one(second, r, a)) for a in attacks for r in rules)

    others = ("geomed", "tmean")
    clean = {c.size: c.name for c in CELLS if c.study == "sums" and c.system == "fedrep"}
    matched = {c.matched: c.name for c in CELLS if c.study == "sums" and c.system == "sparse"}
    fours = {c.system: c.name for c in CELLS if c.study == "fours"}
    coordinates = {(c.attack, c.proposes): c.name for c in CELLS if c.study == "coordinates"}
    return (
        Statement("5, figure 1", "With CClip alpha changes little up to 0.95", alphas(["cclip"], 0.95, "alike", 0.0)),
        Statement("5, figure 1", "With CClip alpha = 1 is worse than 0.95", alphas(["cclip"], 0.95, "above", 1.0)),
        Statement("C.1", "With the other rules alpha changes little up to 0.95", alphas(others, 0.95, "alike", 0.0)),
        Statement("C.1", "With the other rules alpha = 1 is worse than 0.95", alphas(others, 0.95, "above", 1.0)),
        Statement(
            *("C.1", C_1),
            tuple(
                Comparison(
                    named("alpha", "fedrep", 1, rule, "alie", a),
                    "above",
                    named("alpha", "fedrep", 1, "tmean", "alie", a),
                )
                for rule in ("geomed", "cclip")
                for a in (0.0, 0.5, 0.95)
            ),
        ),
        Statement(
            *("5, figure 2", "Under bit-flipping and FoE FedREP is comparable to RCGD-EF"),
            systems("fedrep", "not below", "rcgd-ef", ["bit-flip", "foe"], RULES),
        ),
        Statement(
            "5, figure 2", "Under ALIE FedREP is above RCGD-EF", systems("fedrep", "above", "rcgd-ef", ["alie"], RULES)
        ),
        Statement(
            *("C.2", "Attacks on coordinates have little effect"),
            tuple(
                Comparison(coordinates[attack, proposes], "alike", coordinates[attack, "correct"])
                for attack in ATTACKS
                for proposes in ("smallest", "random", "same")
            ),
        ),
        Statement(
            *("C.3", "Under ALIE local momentum helps"),
            tuple(
                Comparison(
                    *(named("alpha", "fedrep", 1, rule, "alie"), "above"),
                    named("momentum", "fedrep", 1, rule, "alie", momentum=0.0),
                )
                for rule in RULES
            ),
        ),
        Statement(
            *("C.4", "Without an attack FedREP is above SparseSecAgg of as many values"),
            tuple(Comparison(name, "above", matched[name]) for name in clean.values()),
        ),
        Statement(
            *(
                "C.5",
                "FedREP loses little against SHARE, which sends all values (print: s = 4, no momentum, 0 or 3 bad)",
            ),
            systems("fedrep", "not below", "share", ATTACKS, RULES),
        ),
        Statement(
            *("C.5", "Under ALIE FedREP is above SHARE (7 of 32 at s = 2; 3 of 32 at s = 4)"),
            (
                *systems("fedrep", "above", "share", ["alie"], ["geomed"]),
                Comparison(fours["fedrep"], "above", fours["share"]),
            ),
        ),
    )


# the page


def unrest(line: Line) -> float:
    """The spread of the last five accuracies around the line through them: what an epoch more or less makes of it."""
    late = line["accuracies"][-5:]
    slope, start = statistics.linear_regression(range(len(late)), late)
    squares = [(one - start - slope * at) ** 2 for at, one in enumerate(late)]
    return float((sum(squares) / (len(late) - 2)) ** 0.5)


def worth(found: Found) -> Iterator[str]:
    """How far accuracies move by themselves, which rates lie at the edge, and which gaps still close."""
    known = {cell.name: cell for cell in CELLS}
    for steps in sorted(SECONDS):
        of = {name: line for name, line in found.items() if known[name].steps == steps and known[name].alpha < 1}
        if spreads := [unrest(line) for line in of.values() if len(line["accuracies"]) > 2]:
            falls = [line["best"] - line["final"] for line in of.values()]
            yield (
                f"- I = {steps}: the last five accuracies of a cell deviate by {statistics.median(spreads):.2f} points "
                "from the line through them (root of the squares over n - 2; the median over cells, the largest is "
                f"{max(spreads):.2f}), and the last one is up to {max(falls):.2f} below the best, over {len(of)} cells "
                f"below alpha = 1. The margin of {MARGIN:g} is the same for all."
            )
    rates: dict[str, dict[float, float]] = {}
    for name, line in found.items():
        if known[name].study == "rates":
            rates.setdefault(known[name].family, {})[line["rate"]] = line["final"]
    edge = sorted(family for family, tried in rates.items() if max(sorted(tried), key=tried.__getitem__) == RATES[-1])
    if edge:
        yield (
            f"- The best of {len(RATES)} rates is the largest, {RATES[-1]:g}, for {', '.join(edge)}: a larger one may "
            "be better. Print tries up to 5, and finds 5 best for SparseSecAgg."
        )
    for one, other in repeated(found):
        by = abs(found[one]["final"] - found[other]["final"])
        yield (
            f"- `{one}` and `{other}` are one run, with one commitment, on other processors: last bits alone make "
            f"{by:.2f} points at the end, and up to {most_apart(found[one], found[other]):.2f} before."
        )
    for name, other, key in rekeyed():
        if name in found and other in found:
            again = {**found, name: found[other]}
            for told in statements():
                was, now = told.judged(found), told.judged(again)
                if was != now:
                    yield f"- With key {key} of `{name}`: {told.text} ({told.where}): {now}, in the place of {was}."
    yield from apart(found)
    yield (
        "- RCGD-EF and SparseSecAgg are matched with the numbers of values of FedREP with the geometric median, and "
        "compared with the other rules too, which send a little less or more. SHARE without momentum has the rate of "
        "FedREP without momentum."
    )
    if gaps := list(closing(found)):
        yield (
            "- How far alpha 0.95 is below alpha 0, by epoch. Print has 120 epochs: where a gap still closes, 10 say "
            "nothing about the end of 120."
        )
        yield from gaps


def repeated(found: Found) -> Iterator[tuple[str, str]]:
    """Cells that are one run: two numbers of values can be matched by one share."""
    first: dict[str, str] = {}
    for name, line in found.items():
        if (other := first.setdefault(line["commitment"], name)) != name:
            yield other, name


def most_apart(one: Line, other: Line) -> float:
    """The most points between two cells after an epoch."""
    apart: list[float] = [abs(a - b) for a, b in zip(one["accuracies"], other["accuracies"], strict=True)]
    return max(apart)


def closing(found: Found) -> Iterator[str]:
    """Of each rule and attack, how far alpha 0.95 is below alpha 0 at some epochs."""
    cells = [cell for cell in CELLS if cell.study == "alpha" and cell.alpha == 0.95]
    for cell in cells:
        base = replace(cell, alpha=0.0).name
        if cell.name in found and base in found:
            late, early = found[cell.name]["accuracies"], found[base]["accuracies"]
            told = ", ".join(f"{early[at] - late[at]:.1f} after {at}" for at in (3, 5, 7, 10) if at < len(late))
            yield f"  - {cell.rule}, {cell.attack}: {told}"


def row_of(cell: Cell, line: Line | None) -> str:
    """One cell in the table of all."""
    if line is None:
        return f"| {cell.study} | `{cell.name}` | not run | | | | | | | |"
    took = "" if line["seconds"] is None else f"{line['seconds']:,.0f}"
    return (
        f"| {cell.study} | `{cell.name}` | {line['final']:.2f} | {line['best']:.2f} | {line['rate']:g} | "
        f"{line['values']:,.0f} | {bytes_of(line)} | {line['failed_rounds']} | {took} |"
    )


def bytes_of(line: Line) -> str:
    """What a client sent and was sent in a round, on average; nothing where a line does not tell."""
    told = line.get("traffic") or {}
    return f"{told['up_each']:,.0f} | {told['down_each']:,.0f}" if told else "| "


def rekeyed() -> Iterator[tuple[str, str, int]]:
    """The cells that are run under further keys, each with the cell of such a key, and the key."""
    for cell in CELLS:
        if cell.study == "keys":
            for base in CELLS:
                if base.study != "keys" and replace(base, study="keys", key=cell.key) == cell and base.key == 1:
                    yield base.name, cell.name, cell.key


def apart(found: Found) -> Iterator[str]:
    """Pairs of systems under one attack, of which every key of the one is below every key of the other."""
    of = {cell.name: cell for cell in CELLS}
    sets = dict(keyed(found))
    for (one, low), (other, high) in permutations(sets.items(), 2):
        a, b = of[one], of[other]
        if a.system != b.system and (a.steps, a.attack, a.bad) == (b.steps, b.attack, b.bad) and max(low) < min(high):
            gap = statistics.mean(high) - statistics.mean(low)
            yield f"- All three keys of `{one}` are below all three of `{other}`, by {gap:.2f} points on average."


def keyed(found: Found) -> Iterator[tuple[str, list[float]]]:
    """The cells that were run under three keys, and their best accuracies."""
    for cell in CELLS:
        names = [cell.name, *(replace(cell, study="keys", key=number).name for number in (2, 3))]
        if cell.study != "keys" and cell.key == 1 and all(name in found for name in names):
            yield cell.name, [found[name]["best"] for name in names]


def page(found: Found, scale: Scale) -> str:
    """docs/results/fedrep.md, of the lines that there are."""
    missing = [cell.name for cell in CELLS if cell.name not in found]
    kinds = sorted({line["instructions"] for line in found.values() if "instructions" in line}) or ["unknown"]
    machines = sorted({json.dumps(line["machine"], sort_keys=True) for line in found.values()})
    spread = [
        f"| `{name}` | {' / '.join(f'{one:.2f}' for one in best)} | {max(best) - min(best):.2f} |"
        for name, best in keyed(found)
    ]
    text = [
        "# FedREP: the studies of its paper",
        "",
        "    python benchmarks/fedrep.py --data ROOT --out DIR",
        "    python benchmarks/fedrep.py --out DIR --report docs/results/fedrep.md",
        "",
        "[fedrep.jsonl](fedrep.jsonl) has the line of each cell; with `--kept docs/results/fedrep.jsonl` the first "
        "command goes on behind them.",
        "",
        f"{len(found)} of {len(CELLS)} cells were run, and {len(missing)} were not. Scale: {scale}. The command says "
        "what differs from the paper. Accuracy on the test rows in percent; models are stored once an epoch, and best "
        "is the best of these, as in print. Rates were chosen on clean runs. Cells were run on several states of "
        "this version, whose lots of buffers differ in bits and not in law, so a state has other commitments; and on "
        f"processors with other instructions ({', '.join(kinds)}; early lines do not say), which round otherwise.",
        "",
        *(f"Machine: {machine}" for machine in machines),
        "",
        "## Findings of the paper",
        "",
        f"Cells differ where their best accuracies are more than {MARGIN:g} points apart; that was fixed before any "
        "run. A finding is confirmed where all its comparisons hold, contradicted where all fail, and open until all "
        "were run. Where one should be above and is within the margin, no difference was found; where it is below in "
        "all comparisons, by less than the margin, it is not confirmed. Gaps are the points by which the first is "
        "above the second: least, median, largest. Above is in how many comparisons it is, by however little. "
        "Comparable means not below by more than the margin. Comparisons share cells.",
        "",
        "| section | finding | here | gaps | above |",
        "|---|---|---|---|---|",
        *(
            f"| {one.where} | {one.text} | {one.judged(found)} | {one.gaps(found)} | {one.above(found)} |"
            for one in statements()
        ),
        "",
        "## What these gaps are worth",
        "",
        *worth(found),
        "",
        "## Three keys",
        "",
        "All other comparisons are of one key. Which findings another key of these cells turns is told above.",
        "",
        *(["| cell | best of keys 1 / 2 / 3 | range |", "|---|---|---|", *spread] if spread else ["Not run."]),
        "",
        "## All cells",
        "",
        "`values` are those that a client sent in a round, on average; up and down are all bytes that it sent and was "
        "sent. Proposals are 5 % of the coordinates, 6.5 % in the study `coordinates`; SHARE sends all.",
        "",
        "| study | cell | final | best | rate | values | up | down | failed rounds | seconds |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *(row_of(cell, found.get(cell.name)) for cell in CELLS),
    ]
    return "\n".join(text) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, metavar="ROOT", help="the folder that holds FashionMNIST/raw")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="lines are kept and looked for there")
    parser.add_argument("--study", choices=STUDIES, action="append", help="by default all")
    parser.add_argument("--cell", metavar="NAME", action="append", help="by default all of the studies")
    parser.add_argument("--plan", action="store_true", help="say what there is to do, and do nothing")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the page of what is there, and do nothing")
    parser.add_argument("--kept", type=Path, metavar="FILE", help="lines of cells that were run before, beside a page")
    parser.add_argument("--keep", action="store_true", help="keep the runs")
    parser.add_argument("--epochs", type=int, default=Scale.epochs)
    parser.add_argument("--dataset", default=Scale.dataset)
    parser.add_argument("--model", default=Scale.model)
    parser.add_argument("--device", default=Scale.device)
    parser.add_argument("--engine", default=Scale.engine)
    parser.add_argument("--smoke", action="store_true", help="12,800 rows of one epoch: it runs, no more")
    given = parser.parse_args()
    rows = {"fashion-mnist": 60_000, "cifar-10": 50_000}.get(given.dataset, 60_000)
    scale = Scale(given.epochs, rows, given.model, given.dataset, given.device, given.engine)
    scale = replace(scale, epochs=1, rows=12_800) if given.smoke else scale
    found = lines(given.out, scale, given.kept)
    if unknown := set(given.cell or ()) - {cell.name for cell in CELLS}:
        parser.error(f"there is no cell {sorted(unknown)[0]!r}; --plan --report FILE writes a table of all")
    chosen = [c for c in CELLS if c.study in (given.study or STUDIES) and c.name in (given.cell or [c.name])]
    if given.report:
        write_bytes(given.report, page(found, scale).encode())
        write_bytes(given.report.with_suffix(".jsonl"), written(found).encode())
        return
    print(*planned(chosen, scale, found), sep="\n", flush=True)
    if given.plan:
        return
    if given.data is None:
        parser.error("--data names the folder of the data set")
    data = scaled(registry.build("datasets", {"use": scale.dataset}).load(given.data), scale.rows)
    for cell in chosen:
        found = lines(given.out, scale, given.kept)
        if missing := [name for name in cell.waits if name not in found]:
            print(f"{cell.name} waits for {', '.join(missing)}", flush=True)
        elif cell.name not in found:
            compute(cell, scale, data, given.out, found, given.keep)
            print(*planned(chosen, scale, lines(given.out, scale, given.kept)), sep="\n", flush=True)


if __name__ == "__main__":
    main()
