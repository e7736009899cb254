"""Level 6: repeated unlearning against repeated retraining, by a sequential test, batch tests, and controls.

Every pair is a fresh original run that is unlearned, and a fresh retrained run; fixing one original would
wrongly fail exact methods. The statistics are fixed before the runs. The test by betting divides its money over
them; batch tests look once, at the fixed number of pairs. Controls run beside the subject: a second retrained arm
that must not be rejected, and the untouched originals, which must be.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from math import ceil, log
from typing import Any, ClassVar

import numpy as np

from fuaudit.audits.bearing import bearing, by_the_reference, starts_over
from fuaudit.audits.model_law import figures
from fuaudit.audits.model_law.figures import BOUNDS, Floats
from fuaudit.audits.model_law.measure import PRIMARY, STATISTICS, Statistics
from fuaudit.commitments.keys import derive
from fuaudit.draws import Address, Keyed, Purpose
from fuaudit.errors import UsageError
from fuaudit.replicas.arms import WITHOUT
from fuaudit.replicas.pairs import PAIRS_A_SHARD, Pairs, measured, refusal, runs_a_pair
from fuaudit.statistics.rounding import rate_up
from fuaudit.statistics.sequential import SequentialTest
from fuaudit.statistics.two_sample.batch import BatchTest, batch_test
from fuaudit.statistics.two_sample.betting import two_sample
from fuaudit.statistics.two_sample.power import Detectable, detectable_rate
from fuaudit.text import counted
from fuaudit.verification.case import Case
from fuaudit.verification.figure import Figure
from fuaudit.verification.finding import NO_REQUEST, NON_ADAPTIVE, Control, Finding, Subject, Verdict
from fuaudit.workers import Arrays, CachedJob, Job

SHARES = tuple(0.5 if at == PRIMARY else 0.5 / (len(STATISTICS) - 1) for at in range(len(STATISTICS)))
"""How the test by betting divides its money over the statistics."""

BETTING = 0.8
"""The part of alpha for the test by betting; the batch tests have the rest."""

LEAST_BATCH = 16
"""Pairs below which no batch test is made: it could not reject."""

SERVER_DATA = "The method was given the test set, on which its figures are measured: not on rows it did not see."
"""What findings say of an editor that needs ``server data``."""

DROPPED = "A prune dropped which rows were to be forgotten, so originals cannot be trained, whatever data is at hand."

COMPARED = ("subject", "second", "untouched")
"""The arms that are tested against retraining."""

STOPPED = (
    "The results decided when to stop (--stopping decided): the test by betting allows that; the limits of the power "
    "are stated as if looked at once.",
)
"""Taken on trust where the number of pairs was not fixed."""

RESAMPLED = (
    "The detectable rate comes from resamples of the audit's own runs, with a margin for their luck: the confidence of "
    "its lower limit is approximate."
)
"""Taken on trust of the power."""

EARLIER = (
    "Only the last request is compared: originals never had what earlier requests took away, as if these had been "
    "carried out well."
)
"""Taken on trust where an earlier request is doubted, or a method is not proved to carry out any stream of requests."""

WHOLE = "What a method does with a training that was stopped was not tried: pairs are trained whole."
"""Taken on trust of a request during training, where the method is none of the proved ones."""

LONG = 1_000_000
"""Client steps from which on the work to come is told with how to have less: some minutes of a small model."""

LONGEST_REASON = 300
"""Characters of an editor's own words in a finding."""

SHOWS_NOT = (
    "It bounds no distance between the laws of the models: a difference of another kind than models left untouched, of "
    "any size, may be there and stay unseen."
)


@dataclass(frozen=True)
class ModelLaw:
    """The comparison of repeated unlearning with repeated retraining.

    Attributes:
        pairs: fixed in advance.
        alpha: false alarms of all tests of the subject together.
        effect: the largest detectable rate of untouched models at which silence still counts as support.
        test_rows: at most so many retained rows, and so many test rows, enter the statistics.
    """

    evidence: ClassVar[frozenset[str]] = frozenset({"sampling"})
    uses: ClassVar[frozenset[str]] = frozenset({"data", "erased", "parent", "budget", "stopping", "cache"})
    recomputes: ClassVar[str] = "repeated unlearning and repeated retraining, with controls"
    alpha_option: ClassVar[str] = "alpha"

    pairs: int = 256
    alpha: float = 0.001
    effect: float = 0.5
    test_rows: int = 1000

    def __post_init__(self) -> None:
        if self.pairs < 2 or not 0 < self.alpha < 1 or not 0 < self.effect <= 1 or self.test_rows < 1:
            raise UsageError("model-law needs pairs >= 2, alpha in (0, 1), effect in (0, 1] and test_rows >= 1")

    def examine(self, case: Case) -> Finding:
        """FAIL on rejection; PASS when the controls held and the power against a small enough violation suffices."""
        if case.request is None:
            return _unsampled(Verdict.NOT_APPLICABLE, NO_REQUEST)
        erased = case.evidence.erased_rows
        missing = case.dataset is None or bool(case.dataset.absent & erased) or not erased
        without = Verdict.INCONCLUSIVE if case.evidence.is_editor else Verdict.NOT_APPLICABLE
        if not case.run.stand_ins.isdisjoint(case.run.before.owner):
            return _unsampled(without, DROPPED)
        if missing:
            return _unsampled(
                without,
                "The erased data is not at hand, so originals cannot be trained.",
                "Give --data ROOT, and --erased ROOT where the erased rows lie apart.",
            )
        if other := case.evidence.erased_rows.intersection(case.evidence.at_hand.other):
            return _unsampled(
                Verdict.INCONCLUSIVE,
                f"{len(other)} erased rows at hand are not those that were committed to: originals had other rows.",
                "Give --erased ROOT with the rows that the run was trained on.",
            )
        limit, cost = self.limit(case), runs_a_pair(case.evidence.is_editor)
        if limit < 2:
            return _unsampled(
                Verdict.INCONCLUSIVE,
                f"A budget of {counted(case.effort.budget or 0, 'run')} allows no test: "
                f"{counted(cost, 'run')} a pair, {counted(self.pairs, 'pair')} planned.",
            )
        return self._finding(case, self._sampled(case, limit))

    def cost(self, case: Case) -> str:
        """The work of repeated sampling."""
        pairs, runs = self.limit(case), runs_a_pair(case.evidence.is_editor)
        law = case.run.plan.law
        steps = pairs * runs * law.rounds * law.places(case.run.original.of_laws) * law.steps
        less = "; --budget N executes fewer, 0 none, and --workers N shares them out" * (steps > LONG)
        return (
            f"repeated sampling: {counted(pairs, 'pair')}, "
            f"{counted(pairs * runs, 'training run')}, at most {steps:,} client steps{less}"
        )

    def limit(self, case: Case) -> int:
        """The most pairs that are run: the spec's, or what the budget allows; beyond the spec's until decided."""
        if case.effort.budget is None:
            return self.pairs
        allowed = case.effort.budget // runs_a_pair(case.evidence.is_editor)
        return allowed if case.effort.stopping == "decided" else min(self.pairs, allowed)

    def _sampled(self, case: Case, limit: int) -> Sampled:
        """Pairs, part by part in a fixed order, up to the limit; when a decision stops them, after a whole part."""
        # where somebody looks in between, or an editor may refuse a part, parts are small; else two for two processors
        small = case.effort.stopping == "decided" or case.evidence.is_editor
        pairs = Pairs.of(case, Statistics(self.test_rows), 0 if small else -(-limit // 2))
        job: Job = CachedJob(pairs, case.effort.cache) if case.effort.cache else pairs
        shards, found = pairs.shards(limit), list[Arrays]()
        case.effort.progress("pairs of runs", 0, limit)
        with closing(case.effort.executor.map(job, shards)) as results:
            for (first, count), result in zip(shards, results, strict=True):
                found.append(result)
                case.effort.progress("pairs of runs", first + count, limit)
                looked = (first + count) // PAIRS_A_SHARD > first // PAIRS_A_SHARD  # as often, however small parts are
                if case.effort.stopping == "decided" and looked and self._decided(case, found):
                    break
        return self._judged(case, found)

    def _decided(self, case: Case, found: list[Arrays]) -> bool:
        """Whether no more pairs are needed: a rejection by betting, or support at the spec's pairs or beyond."""
        arms = _stacked(found)
        if self._bet(arms["subject"], arms).rejected_at is not None:
            return True
        return len(arms["subject"]) >= self.pairs and self._judged(case, found).verdict(self) is Verdict.PASS

    def _bet(self, arm: Floats, arms: Mapping[str, Floats], reference: str = "retrained") -> SequentialTest:
        return two_sample(arm, arms[reference], BETTING * self.alpha, SHARES)

    def _judged(self, case: Case, found: list[Arrays]) -> Sampled:
        arms = _stacked(found)
        count = len(arms["subject"])
        # where a decision may stop the pairs, what holds for a fixed number is of the spec's pairs or not at all
        fixed = 0 if case.effort.stopping == "decided" and count < self.pairs else min(self.pairs, count)
        level = (1 - BETTING) * self.alpha
        return Sampled(
            arms,
            {arm: self._bet(arms[arm], arms) for arm in COMPARED},
            self._bet(arms["subject"], arms, WITHOUT) if WITHOUT in arms else None,
            {a: batch_test(arms[a][:fixed], arms["retrained"][:fixed], level, _uniform(case, a)) for a in COMPARED}
            if fixed >= LEAST_BATCH
            else {},
            detectable_rate(
                arms["untouched"],
                arms["retrained"],
                arms["second"],
                BETTING * self.alpha,
                _uniform(case, "power"),
                shares=SHARES,
            ),
            fixed,
            Missing.of(found) if case.evidence.is_editor else None,
        )

    def _finding(self, case: Case, sampled: Sampled) -> Finding:
        verdict = sampled.verdict(self)
        rejected, rate, count = sampled.rejected, sampled.power.rate, sampled.pairs
        detectable = (
            f"a method that leaves the model untouched in {rate:.0%} of runs"
            if rate is not None
            else "none within this budget"
        )
        bets = sampled.bets["subject"]
        needed = None if verdict is not Verdict.INCONCLUSIVE else sampled.pairs_needed(self.effect)
        cost = runs_a_pair(case.evidence.is_editor)
        details = [f"statistic {i}: {text}" for i, text in enumerate(STATISTICS, 1)]
        if rejected["second"]:
            shows = "The test rejects retraining itself: a false alarm, or the test is wrong."
        elif rejected["subject"]:
            way = (
                f"after {counted(bets.rejected_at, 'pair')}"
                if bets.rejected_at
                else f"by the batch tests on {counted(count, 'pair')}"
            )
            shows = f"Unlearned models are told from retrained ones {way} (alpha {rate_up(self.alpha)})."
        elif count < self.pairs:
            shows = f"No difference was found in {counted(count, 'pair')}; the spec has fixed {self.pairs}."
        elif rate is None or not rejected["untouched"]:
            shows = "No difference was found, but the test could not have seen even large ones: it says nothing."
        else:
            goal = sampled.power.goal
            power = f"power {goal.power} or more (a lower limit at confidence about {goal.confidence}, from resamples)"
            shows = f"No difference in {counted(count, 'pair')}; {detectable} would have been told with {power}."
            if verdict is Verdict.INCONCLUSIVE:
                shows += f" The spec asks to see untouched models in {100 * self.effect:.4g}% of runs."
        if needed is not None:
            details.append(sampled.needed_in_words(self.effect, needed, cost))
        if case.evidence.is_editor:
            sentence = _beside(sampled, rejected["subject"])
            details.append(sentence)
            shows += f" {sentence}" if rejected["subject"] or sampled.missing else ""
        return Finding(
            "model-law",
            Subject.ALGORITHM,
            verdict,
            shows,
            SHOWS_NOT,
            (
                *figures.sizes(count, count * cost, case.effort.stopping == "decided", needed, sampled.basis),
                *self._figures(sampled),
            ),
            detectable=detectable,
            controls=tuple(
                Control(f"{name} against retrained", expected, "rejected" if rejected[arm] else "not rejected")
                for name, arm, expected in (
                    ("retrained", "second", "not rejected"),
                    ("untouched", "untouched", "rejected"),
                )
            ),
            assumptions=(
                *((SERVER_DATA,) if case.evidence.is_editor and "server data" in case.evidence.unlearner.needs else ()),
                NON_ADAPTIVE,
                RESAMPLED,
                *_of_earlier(case),
                *_of_stopped(case),
                *(STOPPED if case.effort.stopping == "decided" else ()),
                *case.evidence.unopened(case.run.before),
            ),
            details=(*details, *_batch_details(sampled)),
            series={
                **{f"log wealth, {arm}": test.log_wealth.tolist() for arm, test in sampled.bets.items()},
                "power, rate": [point.rate for point in sampled.power.curve],
                "power, estimate": [point.estimate for point in sampled.power.curve],
                "power, lower limit": [point.lower for point in sampled.power.curve],
                "log wealth, threshold": [log(1 / (BETTING * self.alpha))],
                "power, detectable rate": [] if rate is None else [rate],
            },
            error_rate=self.alpha,
            bounds_rate=min(1.0, BOUNDS * self.alpha),
            qualification=str(sampled.missing) if sampled.missing and verdict is Verdict.PASS else "",
        )

    def _figures(self, sampled: Sampled) -> Iterator[Figure]:
        subject, untouched = (sampled.batches.get(arm) for arm in ("subject", "untouched"))
        betting = BETTING * self.alpha
        yield from figures.rates(self.alpha, betting, (1 - BETTING) * self.alpha if subject else None)
        yield from figures.tests(sampled.bets["subject"], subject, betting)
        yield from figures.controls(sampled.bets["untouched"], untouched, sampled.power.rate)
        yield from figures.bounds(sampled.arms, sampled.fixed, self.alpha)
        if sampled.without is not None:
            yield from figures.without(sampled.without, betting)


@dataclass(frozen=True)
class Missing:
    """Why an editor's models are not compared with those that it makes of runs without the target.

    Attributes:
        parts: how many parts of the pairs it failed in, and how many there are.
        why: what the first of them says.
    """

    parts: tuple[int, int]
    why: str

    @classmethod
    def of(cls, found: list[Arrays]) -> Missing | None:
        """Of the parts of all pairs; None where every one has that arm."""
        reasons = [reason for part in found if (reason := refusal(part, WITHOUT)) is not None]
        return cls((len(reasons), len(found)), reasons[0]) if reasons else None

    def __str__(self) -> str:
        failed, parts = self.parts
        some = "" if failed == parts else f", in {failed} of {parts} parts of the pairs"
        return (
            "Not compared: these models with those that the same editor makes of runs that never had the target. It "
            f"failed there{some}, and says: {_shortened(self.why)!r}. If they differ from retrained ones, further "
            "training alone may be why: nothing tells."
        )


def _shortened(text: str) -> str:
    """A plugin's words without addresses of its objects, which differ from process to process, at most a few lines."""
    plain = re.sub("0x[0-9a-fA-F]+", "0x...", " ".join(text.split()))
    return plain if len(plain) <= LONGEST_REASON else f"{plain[:LONGEST_REASON]} ..."


@dataclass(frozen=True)
class Sampled:
    """Statistics ``(n, 10)`` by arm, and the tests of them against retraining.

    ``without`` tests an editor's subject against the same editor on runs that never had the target; ``batches`` is
    empty where no batch test may be made. ``fixed`` is the number of pairs that was fixed in advance, on which batch
    tests and bounds without optional stopping are made; 0 where the data chose the number. ``missing`` says why
    there is no ``without``, where an editor failed.
    """

    arms: dict[str, Floats]
    bets: dict[str, SequentialTest]
    without: SequentialTest | None
    batches: dict[str, BatchTest]
    power: Detectable
    fixed: int = 0
    missing: Missing | None = None

    @property
    def pairs(self) -> int:
        """How many there are."""
        return len(self.arms["subject"])

    @property
    def rejected(self) -> dict[str, bool]:
        """Whether an arm is told from retraining, by betting or by the batch tests."""
        return {
            arm: test.rejected_at is not None or (arm in self.batches and self.batches[arm].rejected)
            for arm, test in self.bets.items()
        }

    def verdict(self, asked: ModelLaw) -> Verdict:
        """What follows for the subject."""
        rate = self.power.rate
        if self.rejected["second"]:
            return Verdict.INCONCLUSIVE
        if self.rejected["subject"]:
            return Verdict.FAIL
        seen = self.rejected["untouched"] and rate is not None and rate <= asked.effect
        return Verdict.PASS if seen and self.pairs >= asked.pairs else Verdict.INCONCLUSIVE

    def pairs_needed(self, effect: float) -> int | None:
        """About how many pairs would find untouched models in a part ``effect`` of runs; None without any growth.

        The mean growth of the log wealth is taken to fall with the square of the rate, as it does for small shifts.
        It is read off the smallest rate that was found with the power wanted, else off the untouched control (then
        for even odds only).
        """
        if self.power.rate is not None:
            return ceil(self.pairs * (self.power.rate / effect) ** 2)
        whole = self.bets["untouched"].pairs_needed
        return None if whole is None else ceil(whole / effect**2)

    @property
    def basis(self) -> str:
        """What :meth:`pairs_needed` is computed from, in words."""
        if self.power.rate is not None:
            return f"the smallest rate that is seen with power {self.power.goal.power}, {self.power.rate:.0%}"
        return "one control of untouched models, as no rate is seen: so many pairs tell them with even odds alone"

    def needed_in_words(self, effect: float, needed: int, cost: int) -> str:
        """How many pairs would be needed, as a sentence; each takes ``cost`` training runs."""
        return (
            f"to see untouched models in {100 * effect:.4g}% of runs, about {needed} pairs ({needed * cost} training "
            f"runs) would be needed, extrapolated from {self.basis}; log wealth is taken to grow with the rate's square"
        )


def _of_earlier(case: Case) -> tuple[str, ...]:
    """What is said of a run with several requests of which not all that bear on it are known to be carried out well."""
    if len(case.run.requests) == 1:
        return ()
    makers = bearing(case)
    known = len(makers) == len(case.run.requests) or starts_over(makers[-1])
    return () if known and all(map(by_the_reference, makers)) and not case.run.info["doubts"] else (EARLIER,)


def _of_stopped(case: Case) -> tuple[str, ...]:
    """What is said where a request came during training, and the method that then made rounds is somebody's own."""
    whole = case.run.plan.law.rounds
    early = any(run.rounds_executed < whole for run in case.evidence.ancestors)
    return (WHOLE,) if early and not all(map(by_the_reference, bearing(case))) else ()


def _unsampled(verdict: Verdict, shows: str, *details: str) -> Finding:
    return Finding("model-law", Subject.ALGORITHM, verdict, shows, SHOWS_NOT, details=details)


def _stacked(found: list[Arrays]) -> dict[str, Floats]:
    """The parts of every arm that all of them have, ``(n, 10)`` each."""
    names = [name for name in measured(found[0]) if all(name in part for part in found)]
    return {name: np.concatenate([part[name] for part in found]) for name in sorted(names)}


def _uniform(case: Case, name: str) -> Any:
    source = Keyed(derive(case.key.secret, "parameters", "tests", name))
    return lambda count: source.uniform(Address(Purpose.AUDIT), count)


def _beside(sampled: Sampled, rejected: bool) -> str:
    """What the comparison with the same editor on runs without the target says."""
    test = sampled.without
    if test is None:
        return str(sampled.missing)
    if test.rejected_at is not None:
        return (
            "They are also told from models that the same editor made of runs that never had the target, after "
            f"{counted(test.rejected_at, 'pair')}."
        )
    cause = "; further training alone may then make the difference from retraining" if rejected else ""
    return (
        "Against models that the same editor made of runs that never had the target, no difference was found "
        f"(p-value {test.p_value:.3g}){cause}."
    )


def _batch_details(sampled: Sampled) -> list[str]:
    """A line for every batch test of every arm."""
    return [
        f"batch tests, {arm}: combined p-value {test.p_value:.3g}; alone "
        + ", ".join(f"{name} {value:.3g}" for name, value in test.parts.items())
        + f"; held-out accuracy of the classifier {test.accuracy:.3f}; {test.resamples} swaps"
        for arm, test in sampled.batches.items()
    ]
