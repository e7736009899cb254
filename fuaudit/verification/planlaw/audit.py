"""Level 5: plans are drawn and rewritten at full size, and tested against the known law of retraining.

Nothing is trained: a plan is all that the question needs. The subject is the algorithm; whether this run's own
draws follow from its keys is the question of the audit of plans.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuaudit.draws import END, Position
from fuaudit.errors import UsageError
from fuaudit.plans import UniformLaw
from fuaudit.runs.prune import Tombstone
from fuaudit.runs.run import Run
from fuaudit.unlearning.protocol import is_editor
from fuaudit.verification.case import Case
from fuaudit.verification.finding import NO_REQUEST, NON_ADAPTIVE, Control, Finding, Subject, Verdict
from fuaudit.verification.planlaw import laws
from fuaudit.verification.planlaw.betting import average, log_wealth
from fuaudit.verification.planlaw.bounds import RateBound, plans_needed, rate_bound, unseen
from fuaudit.verification.planlaw.laws import quarters
from fuaudit.verification.planlaw.simulate import CHUNK, KEPT, Scores, Step, Trial, retrained, simulate
from fuaudit.verification.planlaw.stability import stream
from fuaudit.verification.planlaw.statistics import Ids, Statistic, statistics
from fuaudit.verification.sequential import SequentialTest, tested

NAME = "plan-law"
SHOWS_NOT = (
    "A deviation from the law that these statistics miss stays unseen, and so does one at a rate below those stated; "
    "it says nothing about requests that depend on the draws, nor about what is computed along a plan."
)


@dataclass(frozen=True)
class PlanLaw:
    """The test of the law of plans.

    Attributes:
        plans: fixed in advance.
        alpha: false alarms of the test, and of each stated bound.
        effect: PASS needs that plans which the method leaves untouched occur at a rate below this.
    """

    plans: int = 20_000
    alpha: float = 0.001
    effect: float = 0.01

    def __post_init__(self) -> None:
        if self.plans < 1 or not 0 < self.alpha < 1 or not 0 < self.effect <= 1:
            raise UsageError("plan-law needs plans >= 1, alpha in (0, 1) and effect in (0, 1]")

    def examine(self, case: Case) -> Finding:
        """FAIL on a plan that draws the target or on rejection; PASS when a small enough violation would have shown."""
        if case.request is None or case.is_editor:
            reason = NO_REQUEST if case.request is None else "An editor has no plan whose law could be tested."
            return Finding(NAME, Subject.ALGORITHM, Verdict.NOT_APPLICABLE, reason, SHOWS_NOT)
        law = case.run.plan.law
        if not isinstance(law, UniformLaw):
            reason = f"The law of the statistics is not known for plans drawn by {law.name!r}."
            return Finding(NAME, Subject.ALGORITHM, Verdict.INCONCLUSIVE, reason, SHOWS_NOT)
        trial = trial_of(case)
        parts = []
        for start in range(0, self.plans, CHUNK):
            parts.append(simulate(trial, case.key.secret, range(start, min(start + CHUNK, self.plans))))
            case.progress("plans", min(start + CHUNK, self.plans), self.plans)
        return finding(
            trial, Scores.joined(parts), retrained(trial, case.key.secret, range(self.plans)), self.alpha, self.effect
        )


def trial_of(case: Case) -> Trial:
    """The requests of the lineage at hand as they were made; only the last one where the lineage is cut short.

    Raises:
        UsageError: the population before the request is not at hand (a pruned run, without the data).
    """
    chain = [case.run, *case.ancestors]
    whole = case.complete_lineage and not any(isinstance(run, Tombstone) or run.pruned for run in chain)
    whole = whole and not any(is_editor(unlearner) for unlearner, _ in case.steps)
    links = list(zip(chain, [*case.ancestors, None], strict=True)) if whole else [(case.run, case.parent)]
    unlearners = [unlearner for unlearner, _ in case.steps][::-1]  # youngest first, as the links are
    steps = [
        Step(unlearner, run.info["unlearner"]["use"], run.request, _moment(parent))
        for (run, parent), unlearner in zip(links, unlearners, strict=False)
        if isinstance(run, Run)
    ]
    law, populations = case.run.plan.law, case.run.plan.populations
    assert isinstance(law, UniformLaw)
    before = case.before if case.run.pruned else populations[-len(steps) - 1]
    return Trial(law, before, tuple(reversed(steps)))


def _moment(parent: Run | Tombstone | None) -> Position:
    """The first position not yet executed when a request came to this parent, as far as it tells."""
    return parent.next_position if isinstance(parent, Run) else END


def test(numbers: Ids, chosen: tuple[Statistic, ...], alpha: float) -> tuple[SequentialTest, dict[str, float]]:
    """The test of scores ``(n, 5)`` by averaged wealth, and the largest log wealth of each statistic."""
    paths = {s.name: log_wealth(s.of(numbers), s.law, s.suspects) for s in chosen}
    return tested(average(paths.values()), alpha), {name: float(path.max()) for name, path in paths.items()}


def first_involvement(trial: Trial) -> Statistic:
    """The first round of training that draws the target of the first request, in categories, with its law."""
    missed = laws.missed_round(trial.law, trial.population, trial.steps[0].request)
    categories = quarters(trial.law.rounds)
    return Statistic("first involvement", 0, categories, categories.merge(laws.first_of(missed, trial.law.rounds)))


def chance(trial: Trial) -> float:
    """The exact probability that what was executed before the last request draws its target."""
    missed = laws.missed_round(trial.law, trial.before, trial.steps[-1].request)
    executed = min(trial.steps[-1].executed.round - 1, trial.law.rounds)
    return float(1 - missed**executed)


def bounds_of(trial: Trial, numbers: Ids, chosen: tuple[Statistic, ...], alpha: float) -> list[RateBound]:
    """Upper bounds on the rates of the violations whose laws are known."""
    shown = chance(trial)
    target = np.minimum(numbers[:, 0], 1)
    bounds = [rate_bound(target, (1.0, 0.0), (1 - shown, shown), alpha, "plans left untouched")]
    for statistic in chosen:
        if statistic.suspects:
            name = "client sets drawn anew on the first step of a round (FATS as printed)"
            printed = statistic.suspects[-1]
            bounds.append(rate_bound(statistic.of(numbers), statistic.law, printed, alpha, name))
    return bounds


def registered(trial: Trial) -> tuple[Statistic, ...]:
    """The statistics of a trial; where its law is known, the printed form of FATS is suspected, at rates 1/2 and 1."""
    last = trial.steps[-1]
    owners = {trial.before.owner[s] for s in last.request.samples}
    chosen = statistics(trial.law, trial.retained, trial.focus)
    if len(trial.steps) > 1 or last.request.clients or len(owners) > 1 or last.executed != END:
        return chosen
    return tuple(replace(s, suspects=_printed(trial, s)) if s.name == "participations" else s for s in chosen)


def _printed(trial: Trial, statistic: Statistic) -> tuple[tuple[float, ...], ...]:
    terms = max(statistic.categories.edges)
    law = laws.printed_participations(trial.law, trial.before, trial.steps[-1].request, terms)
    whole = statistic.categories.merge(law)
    return tuple((a + b) / 2 for a, b in zip(statistic.law, whole, strict=True)), whole


def finding(trial: Trial, scores: Scores, fresh: Ids, alpha: float, effect: float) -> Finding:
    """What scores ``scores`` of rewritten and ``fresh (n, 5)`` of retrained plans say."""
    chosen = registered(trial)
    plans = len(fresh)
    subject, wealths = test(scores.unlearned, chosen, alpha)
    null, _ = test(fresh, chosen, alpha)
    involved = first_involvement(trial)
    training = tested(log_wealth(involved.of(scores.first[:, None]), involved.law), alpha)
    bounds = bounds_of(trial, scores.unlearned, chosen, alpha)
    violations = np.flatnonzero(scores.unlearned[:, 0])
    shown, untouched = chance(trial), bounds[0].below
    controls = (
        Control("retrained plans", "not rejected", _word(null)),
        Control("first involvement in training", "not rejected", _word(training)),
        Control("untouched plans", "rejected", "rejected" if scores.touched.any() else "not rejected"),
    )
    seen = unseen(plans, shown, 0.1)
    detectable = (
        f"plans left untouched at a rate of {seen:.2g} would have shown with power 0.9 (exact: each shows with "
        f"probability {shown:.6g})"
    )
    names = ", then ".join(repr(step.name) for step in trial.steps)
    if len(violations):
        verdict = Verdict.FAIL
        shows = f"{names} leaves what was to be forgotten in {len(violations)} of {plans} plans."
    elif null.rejected_at is not None or training.rejected_at is not None:
        verdict = Verdict.INCONCLUSIVE
        shows = "The test rejects plans drawn by the law itself: a false alarm, or the law is not as stated."
    elif subject.rejected_at is not None:
        verdict = Verdict.FAIL
        shows = f"{names} has not the law of retraining: rejected after {subject.rejected_at} plans (alpha {alpha})."
    elif untouched is None or untouched > effect or not scores.touched.any():
        verdict = Verdict.INCONCLUSIVE
        needed = plans_needed(effect, shown, alpha)
        shows = f"No deviation in {plans} plans, but too few of them could have shown one" + (
            f": about {needed:,} plans are needed." if needed else "."
        )
    else:
        verdict = Verdict.PASS
        shows = (
            f"In {plans} plans nothing erased is drawn and the law of retraining is not rejected; "
            f"plans left untouched occur at a rate below {untouched:.2g}."
        )
    statistic: dict[str, Any] = {
        "plans": plans,
        "alpha": alpha,
        "alpha_bounds": alpha * sum(bound.below is not None for bound in bounds),
        "plans_with_target": len(violations),
        "p_value": subject.p_value,
        "rejected_at": subject.rejected_at,
        "recomputed": int((scores.redrawn[:, -1] > 0).sum()),
        "first_involved": int((scores.first < trial.law.rounds).sum()),
        "first_involved_exact": float(1 - involved.law[-1]),
        "rounds_redrawn_mean": float(scores.redrawn.sum(axis=1).mean()),
        "untouched_below": untouched,
    }
    focus = trial.focus
    return Finding(
        NAME,
        Subject.ALGORITHM,
        verdict,
        shows,
        SHOWS_NOT,
        statistic,
        detectable=detectable,
        controls=controls,
        assumptions=(
            NON_ADAPTIVE,
            "Bounds on rates hold for the stated violations alone, each at its own level.",
        ),
        details=(
            *(
                f"plan {int(number)}: {int(scores.unlearned[number, 0])} draws of the target"
                for number in violations[:3]
            ),
            f"looked at: client {focus.client}"
            + (f" and sample {focus.sample}" if focus.sample >= 0 else "")
            + ", next to what is erased",
            *(
                f"{s.name}: {len(s.law)} categories from {', '.join(map(str, (0, *s.categories.edges)))}; "
                f"known law {', '.join(f'{p:.4f}' for p in s.law)}; "
                f"frequencies {', '.join(f'{f:.4f}' for f in _frequencies(s, scores.unlearned))}; "
                f"largest log wealth {wealths[s.name]:.2f}"
                for s in chosen
            ),
            *map(str, bounds),
            _bookkeeping(trial, scores),
        ),
        series={"log wealth": _thinned(subject.log_wealth), "log wealth of retrained plans": _thinned(null.log_wealth)},
    )


def _bookkeeping(trial: Trial, scores: Scores) -> str:
    """Where plans were restarted: no part of the test, for exactness says nothing about it."""
    restarts, inside = int((scores.restarted != KEPT).sum()), int((scores.restarted == 1).sum())
    text = (
        f"bookkeeping, not tested: the last request restarted {restarts} plans; in {inside} of them client "
        f"{trial.focus.client} is in the cohort of the restarted round"
    )
    if all(step.executed == END for step in trial.steps):
        least = sum(c.rounds for c in stream(trial.law, trial.population, [step.request for step in trial.steps]))
        text += f"; {least:.4f} rounds are to be drawn anew on average if none is that need not be"
    return text


def _word(result: SequentialTest) -> str:
    return "not rejected" if result.rejected_at is None else "rejected"


def _frequencies(statistic: Statistic, numbers: Ids) -> NDArray[np.float64]:
    return np.bincount(statistic.of(numbers), minlength=len(statistic.law)) / len(numbers)


def _thinned(path: NDArray[np.float64]) -> list[float]:
    """At most 256 points of a path, the last one among them; infinite wealth is drawn at the largest float."""
    places = np.unique(np.linspace(0, len(path) - 1, min(256, len(path))).astype(np.int64))
    return [float(v) for v in np.nan_to_num(path[places])]
