"""Level 6: repeated unlearning against repeated retraining, by a sequential test with controls.

Every pair is a fresh original run that is unlearned, and a fresh retrained run; fixing one original would
wrongly fail exact methods. The statistics are fixed before the runs: eight scalars of the final model. The
test bets on each of them and averages the wealth. Controls run beside the subject: a second retrained arm
that must not be rejected, and the untouched originals, which must be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call, vmap
from torch.nn.functional import cross_entropy

from fuaudit.data.dataset import scaling_constants
from fuaudit.draws import END, Address, Keyed, Purpose, Stream
from fuaudit.errors import UsageError
from fuaudit.models.layout import linear_stack
from fuaudit.plans import Plan, Population
from fuaudit.plans.schedule import Schedule, expand_many
from fuaudit.runs.keys import derive
from fuaudit.training.engines import Engine, engine, suggested
from fuaudit.training.execute import Moment, beginning, execute
from fuaudit.training.setup import Setup
from fuaudit.unlearning.apply import edited, rewritten
from fuaudit.verification.betting import Detectable, SequentialTest, detectable_rate, two_sample
from fuaudit.verification.case import Case
from fuaudit.verification.finding import Control, Finding, Subject, Verdict

Floats = NDArray[np.float64]
STATISTICS = (
    "loss on the erased data",
    "the same minus test loss",
    "test loss",
    "weight norm",
    "projection 1",
    "projection 2",
    "probe logit 1",
    "probe logit 2",
)
"""Pre-registered; all are read off the final model of a run."""

SHOWS_NOT = (
    "It bounds no distance between the laws of the models; a difference that these statistics miss stays unseen."
)
ARMS = 4
"""Training runs for each pair: an original, its unlearned model, and two retrained ones."""


@dataclass(frozen=True)
class Parameters:
    """The sequential two-sample test.

    Attributes:
        pairs: fixed in advance.
        alpha: false alarms of the subject's test.
        effect: the largest detectable rate of untouched models at which silence still counts as support.
        test_rows: at most so many test rows enter the statistics.
    """

    pairs: int = 256
    alpha: float = 0.001
    effect: float = 0.5
    test_rows: int = 1000

    def __post_init__(self) -> None:
        if self.pairs < 2 or not 0 < self.alpha < 1 or not 0 < self.effect <= 1:
            raise UsageError("parameters needs pairs >= 2, alpha in (0, 1) and effect in (0, 1]")

    def examine(self, case: Case) -> Finding:
        """FAIL on rejection; PASS when the controls held and a small enough violation would have been seen."""
        name = "parameters"
        if case.request is None:
            return Finding(
                name, Subject.ALGORITHM, Verdict.NOT_APPLICABLE, "The run carries out no request.", SHOWS_NOT
            )
        missing = case.dataset is None or bool(case.dataset.absent & case.erased_rows) or not case.erased_rows
        if missing or case.run.pruned:
            verdict = Verdict.INCONCLUSIVE if case.is_editor else Verdict.NOT_APPLICABLE
            return Finding(
                name,
                Subject.ALGORITHM,
                verdict,
                "The erased data is not at hand, so originals cannot be trained.",
                SHOWS_NOT,
                details=("Give --data ROOT, and --erased ROOT where the erased rows lie apart.",),
            )
        pairs = self.pairs if case.budget is None else min(self.pairs, case.budget // ARMS)
        if pairs < 2:
            return Finding(
                name,
                Subject.ALGORITHM,
                Verdict.INCONCLUSIVE,
                f"A budget of {case.budget} runs allows no test: {ARMS} runs a pair, {self.pairs} pairs planned.",
                SHOWS_NOT,
            )
        arms = Arms.of(case, pairs, self.test_rows)
        tests = {
            arm: two_sample(getattr(arms, arm), arms.retrained, self.alpha)
            for arm in ("subject", "second", "untouched")
        }
        probe = Keyed(derive(case.key.secret, "parameters", "power"))
        power = detectable_rate(
            arms.untouched, arms.retrained, arms.second, self.alpha, lambda n: probe.uniform(Address(Purpose.AUDIT), n)
        )
        return self._finding(case, pairs, tests, power)

    def _finding(self, case: Case, pairs: int, tests: dict[str, SequentialTest], power: Detectable) -> Finding:
        rejected = {arm: test.rejected_at is not None for arm, test in tests.items()}
        controls = (
            Control(
                "retrained against retrained", "not rejected", "rejected" if rejected["second"] else "not rejected"
            ),
            Control("untouched against retrained", "rejected", "rejected" if rejected["untouched"] else "not rejected"),
        )
        rate = power.rate
        detectable = (
            f"a method that leaves the model untouched in {rate:.0%} of runs"
            if rate is not None
            else "none within this budget"
        )
        subject = tests["subject"]
        statistic = {
            "pairs": pairs,
            "alpha": self.alpha,
            "p_value": subject.p_value,
            "rejected_at": subject.rejected_at,
            "untouched_rejected_at": tests["untouched"].rejected_at,
            "detectable_rate": rate,
        }
        if rejected["second"]:
            verdict, shows = (
                Verdict.INCONCLUSIVE,
                "The test rejects retraining itself: a false alarm, or the test is wrong.",
            )
        elif rejected["subject"]:
            verdict = Verdict.FAIL
            shows = (
                f"Unlearned models are told from retrained ones after {subject.rejected_at} pairs (alpha {self.alpha})."
            )
        elif pairs < self.pairs:
            verdict = Verdict.INCONCLUSIVE
            shows = f"No difference was found in {pairs} pairs; the spec has fixed {self.pairs}."
        elif not rejected["untouched"] or rate is None or rate > self.effect:
            verdict = Verdict.INCONCLUSIVE
            shows = "No difference was found, but the test could not have seen even large ones: it says nothing."
        else:
            verdict = Verdict.PASS
            shows = f"No difference in {pairs} pairs; {detectable} would have been found with power {power.goal.power}."
        return Finding(
            "parameters",
            Subject.ALGORITHM,
            verdict,
            shows,
            SHOWS_NOT,
            statistic,
            detectable=detectable,
            controls=controls,
            assumptions=(
                "Requests do not depend on the draws (non-adaptive).",
                "The detectable rate is an estimate: its replications resample the same runs.",
            ),
            details=tuple(f"statistic {i}: {text}" for i, text in enumerate(STATISTICS, 1)),
            series={
                **{f"log wealth, {arm}": [float(v) for v in test.log_wealth] for arm, test in tests.items()},
                "power, rate": [point.rate for point in power.curve],
                "power, estimate": [point.estimate for point in power.curve],
            },
        )


@dataclass(frozen=True)
class Arms:
    """Statistics ``(pairs, 8)`` of four arms; row i of each comes from keys of its own."""

    subject: Floats = field(repr=False)
    untouched: Floats = field(repr=False)
    retrained: Floats = field(repr=False)
    second: Floats = field(repr=False)

    @classmethod
    def of(cls, case: Case, pairs: int, test_rows: int) -> Arms:
        """Train, unlearn and retrain ``pairs`` times, and measure."""
        ready, plan = case.ready, case.run.plan
        maker = engine(suggested(ready.learning.module, ready.device, many=True))
        measure = Measure.of(case, test_rows)
        # originals keep every round, so that each can go on from its own
        chunk = max(1, min(pairs, 40_000_000 // (ready.learning.layout.dimension * (plan.law.rounds + 1))))
        rows: dict[str, list[Floats]] = {"subject": [], "untouched": [], "retrained": [], "second": []}
        for first in range(0, pairs, chunk):
            numbers = range(first, min(first + chunk, pairs))
            originals = [Plan.fresh(plan.law, case.before, _source(case, "original", i)) for i in numbers]
            history = _rounds(ready, originals, maker)
            rows["untouched"].append(measure(history[-1].vectors))
            rows["subject"].append(measure(_subjects(case, originals, history, maker, numbers)))
            for arm in ("retrained", "second"):
                fresh = [Plan.fresh(plan.law, plan.retained, _source(case, arm, i)) for i in numbers]
                rows[arm].append(measure(_rounds(ready, fresh, maker, keep=False)[-1].vectors))
            case.progress("pairs of runs", numbers.stop, pairs)
        return cls(**{arm: np.concatenate(parts) for arm, parts in rows.items()})


def _source(case: Case, arm: str, number: int) -> Keyed:
    return Keyed(derive(case.key.secret, "parameters", arm, str(number)))


def _rounds(ready: Setup, plans: Sequence[Plan], maker: Engine, keep: bool = True) -> list[Moment]:
    """The moments after rounds 0 to R of many runs over one population; only the last one unless ``keep``."""
    population = plans[0].retained
    moments = [beginning(ready.learning, plans, ready.device)]
    schedule = expand_many(plans)
    for _, moment in execute(ready.learning, ready.ground(population), population, schedule, moments[0], maker):
        moments = [*moments, moment] if keep else [moment]
    return moments


def _subjects(case: Case, originals: list[Plan], history: list[Moment], maker: Engine, numbers: range) -> Tensor:
    """The unlearned models ``(n, d)`` of some originals, made as `unlearn` makes them."""
    assert case.request is not None
    name = case.run.info["unlearner"]["use"]
    fresh = [_source(case, "request", i) for i in numbers]
    if case.is_editor:
        models = []
        for place, (plan, source) in enumerate(zip(originals, fresh, strict=True)):
            stored = {round: moment.vectors[place].cpu() for round, moment in enumerate(history)}
            after = plan.erase(case.request, source, END)
            models.append(edited(case.ready, plan, after, case.unlearner, name, stored[max(stored)], stored)[0])
        return torch.stack(models).to(case.ready.device)
    plans = [rewritten(case.unlearner, name, p, case.request, s, END) for p, s in zip(originals, fresh, strict=True)]
    # runs of one history of populations are stacked by making the populations the same object
    shared = plans[0].populations
    plans = [_sharing(plan, shared) for plan in plans]
    inherited = [moment.without(case.ready.learning, case.before, plans[0].retained) for moment in history]
    return _resume(case.ready, plans, originals, inherited, maker)


def _sharing(plan: Plan, populations: tuple[Population, ...]) -> Plan:
    return replace(plan, populations=populations)


def _resume(ready: Setup, plans: list[Plan], originals: list[Plan], history: list[Moment], maker: Engine) -> Tensor:
    """Final models ``(n, d)``: every run goes on from the start of its first changed round, on the retained data."""
    rounds = plans[0].law.rounds
    firsts = np.array([min(max(p.first_change(o).round, 1), rounds + 1) for p, o in zip(plans, originals, strict=True)])
    initial = [[p.streams[Stream.INITIAL] for p in pair] for pair in zip(plans, originals, strict=True)]
    redrawn = [place for place, (new, old) in enumerate(initial) if new != old]
    vectors = history[-1].vectors.clone()
    state = {k: v.clone() for k, v in history[-1].state.items()}
    if redrawn:
        begin = beginning(ready.learning, [plans[place] for place in redrawn], ready.device)
    schedule, population = expand_many(plans), plans[0].retained
    ground = ready.ground(population)
    for round in range(1, rounds + 1):
        starting = np.flatnonzero(firsts == round)
        vectors[starting] = history[round - 1].vectors[starting]
        for key, value in state.items():
            value[starting] = history[round - 1].state[key][starting]
        if round == 1 and redrawn:
            vectors[redrawn] = begin.vectors
            for key, value in state.items():
                value[redrawn] = begin.state[key]
        active = np.flatnonzero(firsts <= round)
        if not len(active):
            continue
        part = Schedule(schedule.cohorts[active, :round], schedule.batches[active, :round])
        moment = Moment(vectors[active], {k: v[active] for k, v in state.items()})
        *_, (_, moment) = execute(ready.learning, ground, population, part, moment, maker, first=round)
        vectors[active] = moment.vectors
        for key, value in state.items():
            value[active] = moment.state[key]
    return vectors


@dataclass(frozen=True)
class Measure:
    """The pre-registered statistics of models ``(n, d)`` as ``(n, 8)``, in float64.

    Projections are on unit vectors, probes are test rows and classes; both are drawn from the audit's key.
    """

    ready: Setup
    erased: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    directions: Tensor
    probes: tuple[tuple[int, int], tuple[int, int]]
    lanes: int

    @classmethod
    def of(cls, case: Case, test_rows: int) -> Measure:
        """The statistics of a case; inputs are scaled by the constants of the retained data."""
        ready, data, population = case.ready, case.ready.dataset, case.run.plan.retained
        shift, divisor = scaling_constants(data, population, ready.learning.scaling)
        key = Keyed(derive(case.key.secret, "parameters", "statistics"))
        count = len(data.test_targets)
        chosen = list(key.subset(Address(Purpose.AUDIT, 1), range(count), min(count, test_rows)))
        dimension = ready.learning.layout.dimension
        directions = torch.from_numpy(key.uniform(Address(Purpose.AUDIT, 2), 2 * dimension) - 0.5).view(2, dimension)
        rows = key.sequence(Address(Purpose.AUDIT, 3), range(len(chosen)), 2)
        classes = key.sequence(Address(Purpose.AUDIT, 4), range(data.classes), 2)

        def scaled(inputs: Tensor) -> Tensor:
            return ((inputs.to(ready.learning.dtype) - shift) / divisor).to(ready.device)

        gone = sorted(case.erased_rows)
        return cls(
            ready,
            (scaled(data.inputs[gone]), data.targets[gone].to(ready.device)),
            (scaled(data.test_inputs[chosen]), data.test_targets[chosen].to(ready.device)),
            directions / directions.norm(dim=1, keepdim=True),
            ((rows[0], classes[0]), (rows[1], classes[1])),
            32 if linear_stack(ready.learning.module) else 4,
        )

    @torch.no_grad()
    def __call__(self, vectors: Tensor) -> Floats:
        parts = [self._chunk(part) for part in torch.split(vectors, self.lanes)]
        return np.concatenate(parts)

    def _chunk(self, vectors: Tensor) -> Floats:
        """A chunk of models, padded to one size, so that bits do not depend on how many there are."""
        count = len(vectors)
        padded = torch.cat([vectors, vectors[:1].expand(self.lanes - count, -1)])
        erased, _ = self._losses(padded, *self.erased)
        test, logits = self._losses(padded, *self.test)
        exact = padded.double().cpu()
        columns = [
            erased,
            erased - test,
            test,
            exact.norm(dim=1),
            *((exact * direction).sum(dim=1) for direction in self.directions),
            *(logits[:, row, label] for row, label in self.probes),
        ]
        return torch.stack(columns, dim=1)[:count].numpy()

    def _losses(self, vectors: Tensor, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Mean losses ``(c,)`` and logits ``(c, rows, classes)`` in float64 on the CPU."""
        layout, module = self.ready.learning.layout, self.ready.learning.module

        def forward(vector: Tensor) -> Tensor:
            parameters = dict(zip(layout.names, layout.split(vector), strict=True))
            logits = functional_call(module, parameters, (inputs,))
            assert isinstance(logits, Tensor)
            return logits

        logits = vmap(forward)(vectors).double().cpu()
        flat = cross_entropy(logits.flatten(0, 1), targets.cpu().repeat(len(vectors)), reduction="none")
        return flat.view(len(vectors), -1).mean(dim=1), logits
