"""The account of DP-SGD at the level of rows: what holds under the law of batches, and what Opacus says beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, hypot, inf, log, sqrt
from typing import Any

from fuaudit.budgets.compose import UNIT, Bracket
from fuaudit.budgets.dpsgd.beside import WHOLE, Figure, central_limit, random_variables, renyi
from fuaudit.budgets.dpsgd.composed import CELLS, bracket
from fuaudit.budgets.dpsgd.laws import MULTISET, POISSON, BatchLaw
from fuaudit.budgets.dpsgd.steps import Steps, merged
from fuaudit.budgets.gaussian.curve import epsilon_of
from fuaudit.budgets.statement import Statement, delta_in_words, finite, version_of
from fuaudit.budgets.target import require_delta
from fuaudit.errors import UsageError
from fuaudit.text import counted, in_full

NO_NOISE = "some steps have no noise, so there is no guarantee"
NO_DELTA = "delta is 0, and Gaussian noise has no pure epsilon: choose one above 0, by --delta"
TOO_LITTLE = "there is too little noise to account"
NOT_COMPOSED = "the exact loss is not composed: noise is beyond all measure, or delta is too small beside the rounding"
CUT_TOO_OFTEN = "batches are cut too often: with what joins it delta is 1, so there is no guarantee"
NOT_POISSON = "Opacus accounts for Poisson batches alone"


@dataclass(frozen=True)
class DpSgdAccount:
    """The epsilon of ``steps`` at ``delta`` under a law of batches.

    Attributes:
        times: how often a row counts in one step, at most.
        plain: the epsilon without amplification, which holds for every law; infinite where there is none.
        exact: both sides of the exact epsilon with amplification; None where it is not counted, or not computed.
        whole: a bound by Renyi divergences of whole orders; None where there is none.
        beside: name -> what Opacus says.
        cut: the chance that any batch is cut, at most: such a one is no Poisson batch.
    """

    steps: tuple[Steps, ...]
    delta: float
    law: BatchLaw
    times: int
    plain: float
    exact: Bracket | None
    whole: float | None
    beside: dict[str, Figure]
    cut: float = 0.0

    @property
    def delta_in_all(self) -> float:
        """The delta at which the total holds where batches can be cut; rounded up. 1 where they are cut too often.

        What is let out differs from Poisson batches with a chance of at most ``cut``, with a row and without it. So
        (epsilon, delta) becomes (epsilon, delta + (1 + e^epsilon) cut).
        """
        if not self.cut or self.total == inf:
            return self.delta
        power = self.total + log(self.cut)  # the product may be within range where e^epsilon is not
        return 1.0 if power >= 0 else min(1.0, (self.delta + self.cut + exp(power)) * (1 + 1e-12))

    @property
    def total(self) -> float:
        """The smallest epsilon that is known to hold; infinite where none does."""
        known = [self.plain, self.whole, self.exact.high if self.exact else None]
        return min(each for each in known if each is not None)

    @property
    def at_least(self) -> float | None:
        """The exact epsilon is no smaller; None where that is not known, as where batches can be cut."""
        if self.cut:
            return None
        if self.law.amplified:
            return self.exact.low if self.exact else None
        return finite(self.plain)

    @property
    def count(self) -> int:
        """Of all steps."""
        return sum(each.count for each in self.steps)

    @property
    def note(self) -> str:
        """Why something is missing; empty where nothing is."""
        if self.total == inf:
            if min(each.noise for each in self.steps) == 0:
                return NO_NOISE
            return NO_DELTA if self.delta == 0 else TOO_LITTLE
        if self.delta_in_all == 1:
            return CUT_TOO_OFTEN
        return NOT_COMPOSED if self.law.amplified and self.exact is None else ""

    def too_small(self) -> bool:
        """Whether the approximation that is no bound is shown to be below the exact epsilon here."""
        figure = self.beside["gdp"].epsilon
        return figure is not None and self.exact is not None and figure < self.exact.low

    def as_json(self) -> dict[str, Any]:
        """What ``--json`` prints; null is an epsilon that is unbounded or not computed."""
        return {
            "steps": [
                {"noise": each.noise, "count": each.count} | ({"rate": each.rate} if self.law.amplified else {})
                for each in self.steps
            ],
            "delta": self.delta, "cut": self.cut, "delta_in_all": self.delta_in_all,
            "sampling": self.law.name, "times": self.times,
            "epsilon_total": finite(self.total), "epsilon_total_at_least": self.at_least,
            "epsilon_without_amplification": finite(self.plain),
            **{f"epsilon_{name}": figure.epsilon for name, figure in self.beside.items()},
            "gdp_is_bound": False,
            "not_computed": {name: figure.reason for name, figure in self.beside.items() if figure.reason},
            "reason": self.note or None, "statement": statement(self).as_json(),
        }  # fmt: skip


def account(
    steps: Sequence[Steps],
    delta: float,
    law: BatchLaw,
    times: int = 1,
    cells: int = CELLS,
    cut: float = 0.0,
    figures: bool = True,
) -> DpSgdAccount:
    """The account of so many steps; the exact loss is composed on so many ``cells``.

    Args:
        cut: the chance that any batch that may have the row is cut to fit, at most; of Poisson batches.
        figures: whether Opacus's are computed too, which do not decide.

    Raises:
        UsageError: numbers out of range, or no library that composes.
    """
    require_delta(delta)
    if not 0 <= cut <= 1 or (cut and law is not POISSON):
        raise UsageError("the chance of a cut is from 0 to 1, and of Poisson batches alone")
    if times < 1 or (times > 1 and law is not MULTISET):
        raise UsageError(f"a row counts once in a step of {law.name} batches, not {times} times")
    # without amplification a rate says nothing: a row counts as if it were in every batch
    kinds = merged(steps if law.amplified else [replace(each, rate=1.0) for each in steps])
    plain = unamplified(kinds, delta, times)
    if not law.amplified:
        silent = dict.fromkeys(("rdp", "prv", "gdp"), Figure(None, NOT_POISSON))
        return DpSgdAccount(kinds, delta, law, times, plain, None, None, silent)
    if plain == inf and (delta == 0 or min(each.noise for each in kinds) == 0):
        silent = dict.fromkeys(("rdp", "prv", "gdp"), Figure(None, NO_DELTA if delta == 0 else NO_NOISE))
        return DpSgdAccount(kinds, delta, law, times, plain, None, None, silent, cut)
    beside = {"rdp": renyi, "prv": random_variables, "gdp": central_limit} if figures else {}
    return DpSgdAccount(
        kinds, delta, law, times, plain, bracket(kinds, delta, cells), by_whole_orders(kinds, delta),
        {name: says(kinds, delta) for name, says in beside.items()}, cut,
    )  # fmt: skip


def unamplified(steps: Sequence[Steps], delta: float, times: int) -> float:
    """The epsilon that holds for every law of batches; infinite where there is none."""
    return epsilon_of(_mu(steps, times), delta)


def by_whole_orders(steps: Sequence[Steps], delta: float) -> float | None:
    """The bound by Renyi divergences of whole orders, rounded up; None where there is none."""
    found = renyi(steps, delta, WHOLE).epsilon
    return None if found is None else found * (1 + 1e-9)


def _mu(steps: Sequence[Steps], times: int) -> float:
    """Of all steps together, rounded up: Gaussian steps are one with less noise, whatever noise each has."""
    if min(each.noise for each in steps) == 0:
        return inf
    return times * hypot(*(sqrt(each.count) / each.noise for each in steps)) * (1 + 64 * UNIT)


OUTSIDE = (
    "other runs on the same data, steps that a request executes again, tuning, audits; metrics and stored rows that "
    "were computed from private rows; layers that mix rows; rounding of noise to floats"
)


ASSUMED = "This is assumed; neither numbers nor a history show it"


def statement(found: DpSgdAccount, shown: str = ASSUMED) -> Statement:
    """What an epsilon is about; ``shown`` says what shows that batches came about so."""
    law = found.law
    return Statement(
        delta=_delta(found),
        unit="one row of the training data; its gradient is clipped to a norm by itself, before gradients are added up",
        adjacency=law.adjacency + (f"; in each step it counts at most {found.times} times" if found.times > 1 else ""),
        adversary=_adversary(law),
        trust_model="whoever trains is trusted: it sees rows and gradients, and adds the noise",
        sampling_assumption=f"{law.name}: {law.words}. {shown}{_cut(found)}",
        accountant=_accountant(found),
        rounds_covered=_covered(found),
        outside_it=OUTSIDE if found.cut else f"{OUTSIDE}; batches that are cut to fit",
        remark=(
            "one row, and not one person",
            "whoever has n rows is protected less: by n times the epsilon, at a delta that is larger too. The "
            "figure is that of real numbers; floats are assumed to tell no more by their last bits",
        ),
    )


def _delta(found: DpSgdAccount) -> str:
    of_steps = delta_in_words(found.delta)
    return f"{in_full(found.delta_in_all)}, of which {of_steps} without cuts" if found.cut and found.delta else of_steps


def _cut(found: DpSgdAccount) -> str:
    if not found.cut:
        return ""
    joins = ": 1 + e^epsilon times it is in delta" if found.total < inf else ""
    return f". A batch is cut to fit with a chance of at most {in_full(found.cut)}{joins}"


def _adversary(law: BatchLaw) -> str:
    sees = "sees the model after every step, and knows all settings and all other rows; it does not see the noise"
    if not law.amplified:
        return f"{sees}. It may know which rows each batch has"
    return f"{sees}, nor which rows a batch has: whoever has the plan or the key of draws does, and needs 'fixed'"


def _covered(found: DpSgdAccount) -> str:
    rates = [f" and rate {in_full(each.rate)}" if found.law.amplified else "" for each in found.steps]
    kinds = [
        f"{each.count:,} with noise {in_full(each.noise)}{rate}"
        for each, rate in zip(found.steps[:8], rates, strict=False)
    ]
    more = f", and {counted(len(found.steps) - 8, 'more kind')}" if len(found.steps) > 8 else ""
    return f"{counted(found.count, 'step')}: {', '.join(kinds)}{more}"


def _accountant(found: DpSgdAccount) -> str:
    own = f"fuaudit {version_of('fuaudit')}"
    if found.exact and found.total == found.exact.high:
        return f"{own}; {found.law.accountant}; composed by dp-accounting {version_of('dp-accounting')}"
    if found.whole is not None and found.total == found.whole:
        return f"{own}; Renyi divergences of whole orders, by Opacus {version_of('opacus')}"
    return f"{own}; closed form of composed Gaussians, without amplification"
