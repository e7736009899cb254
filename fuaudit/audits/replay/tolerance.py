"""Replay on another platform: bits differ, so a tolerance is fixed in advance and must earn its verdict.

It earns a PASS only where leaving the erased data in would show ten times as far; see docs/decisions.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite

import torch
from torch import Tensor

from fuaudit.runs.derived_files import Checkpoints
from fuaudit.statistics.rounding import up
from fuaudit.training.execute import state_without
from fuaudit.verification.case import Case
from fuaudit.verification.counterfactual import Counterfactual, RestrictedSchedule
from fuaudit.verification.figure import Figure
from fuaudit.verification.finding import Control, Finding, ResidualCopy, Subject, Verdict

ELSEWHERE = "On another platform than the run's, models were compared within a tolerance."
"""What a PASS says that no equal bits stand behind."""

TIMES = 10
"""How many tolerances away the erased data, left in, must lie."""

Gaps = dict[tuple[int, str], float]
"""(round, tensor) -> gap, where two sets of models differ. The model is called ``vector``."""


@dataclass(frozen=True)
class Judgement:
    """What stored models or files amount to: the fields of a finding that depend on them."""

    verdict: Verdict
    shows: str
    figures: tuple[Figure, ...] = ()
    detectable: str = ""
    controls: tuple[Control, ...] = ()
    assumptions: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    qualification: str = ""

    def finding(self, audit: str, shows_not: str, copies: tuple[ResidualCopy, ...] = ()) -> Finding:
        """The finding of an audit of this run."""
        return Finding(
            audit,
            Subject.RUN,
            self.verdict,
            self.shows,
            shows_not,
            self.figures,
            detectable=self.detectable,
            controls=self.controls,
            assumptions=self.assumptions,
            details=self.details,
            copies=copies,
            qualification=self.qualification if self.verdict is Verdict.PASS else "",
        )


def gaps(found: Checkpoints, other: Checkpoints, scale: Checkpoints) -> Gaps:
    """How far two sets of models are apart, tensor by tensor, where they differ at all.

    A gap is the largest difference of two entries over the largest entry of ``scale``, in absolute values: a
    largest, not a mean, because what a sample leaves may sit in a few entries. It is infinite for numbers that
    cannot be compared: other shapes, NaN, a scale of nothing but zeros, and integers, which have no rounding.
    """
    result: Gaps = {}
    for round_number in sorted(found.keys() & other.keys()):
        ours, theirs, unit = (_tensors(models, round_number) for models in (found, other, scale))
        for name in sorted(ours.keys() | theirs.keys()):
            if name not in ours or name not in theirs:
                result[round_number, name] = inf
            elif not torch.equal(ours[name], theirs[name]):
                result[round_number, name] = _gap(ours[name], theirs[name], unit.get(name))
    return result


def bit_equal(found: Checkpoints, other: Checkpoints) -> float:
    """The share of the numbers of two sets of models that agree in every bit; of tensors of other shapes none does."""
    same = total = 0
    for round_number in sorted(found.keys() & other.keys()):
        ours, theirs = _tensors(found, round_number), _tensors(other, round_number)
        total += sum(tensor.numel() for tensor in theirs.values())
        same += sum(
            int((ours[name] == tensor).sum())
            for name, tensor in theirs.items()
            if name in ours and ours[name].shape == tensor.shape
        )
    return same / total if total else 1.0


def _tensors(models: Checkpoints, round_number: int) -> dict[str, Tensor]:
    vector, state = models[round_number]
    return {"vector": vector, **{f"state {name}": tensor for name, tensor in state.items()}}


def _gap(a: Tensor, b: Tensor, scale: Tensor | None) -> float:
    if a.shape != b.shape or a.dtype != b.dtype or scale is None or not a.is_floating_point():
        return inf
    unit = float(scale.abs().max())
    gap = float((a.double() - b.double()).abs().max()) / unit if unit else inf
    return gap if isfinite(gap) else inf


def within_tolerance(case: Case, stored: Checkpoints, tolerance: int) -> Judgement:
    """Judge stored models that differ in bits from their replay on another platform.

    PASS: every gap is within the tolerance, and with the data of any request left in every stored model that
    then differs is ten times the tolerance away. FAIL, where no platform matters: the plan reads what was to be
    forgotten, or a stored model is an ancestor's, bit for bit, after rounds that were drawn anew and that here make
    one ten tolerances away. INCONCLUSIVE: everything else.

    Args:
        stored: the models of the run, at the rounds of ``case.rerun.replayed``.
        tolerance: in units of the machine epsilon of the run's dtype, relative to the largest entry of a tensor;
            0 allows none, so that other bits are INCONCLUSIVE.

    Raises:
        UsageError: no data is at hand.
    """
    limit = tolerance * torch.finfo(case.rerun.ready.procedure.dtype).eps
    replayed = case.rerun.replayed
    gap = max(gaps(stored, replayed, replayed).values(), default=0.0)
    alike = bit_equal(stored, replayed)
    figures = _figures(len(replayed), gap, limit, alike)
    if RestrictedSchedule(case.rerun.schedule, case.run.plan.retained).takes_something:
        shows = "The plan reads rows that were to be forgotten: the retained data makes no model of it."
        return Judgement(Verdict.FAIL, shows, figures)
    if not tolerance:
        shows = "Replay gives other bits on this platform, and the spec allows no tolerance."
        return Judgement(Verdict.INCONCLUSIVE, shows, figures)
    left = case.rerun.counterfactuals
    if copied := [line for link in left.links for line in _copied(link, stored, replayed, limit)]:
        shows = "Stored models are an ancestor's, bit for bit, where the plan makes others."
        return Judgement(Verdict.FAIL, shows, figures, details=tuple(copied))
    details = [
        f"largest gap {gap:.3g}, tolerance {limit:.3g}, relative to the largest entry of a tensor",
        f"{alike:.0%} of the numbers agree in every bit; what the others hold below the tolerance, nothing here judges",
    ]
    controls: list[Control] = []
    effects: list[float] = []
    blind: list[str] = []
    for link in left.links:
        request = f"request to {link.parent.path.name}"
        effect = gaps(link.untouched, link.taken_out, replayed)
        faults = {
            "the erased data left in": effect,
            "the untouched models": _untouched(link, replayed),
            "sizes and constants of before": gaps(link.remembered, replayed, replayed),
        }
        for name, found in faults.items():
            far = f"between {min(found.values()):.3g} and {max(found.values()):.3g} away" if found else "no difference"
            details.append(f"{request}: {name}: {far}")
            blind += [f"{request}: {name}"] if found and min(found.values()) < TIMES * limit else []
        # data that nothing was made of sets no scale, so nothing says what the tolerance would hide of it
        blind += [] if effect else [f"{request}: its data was never drawn"]
        effects += effect.values()
        controls += _controls(case, link, limit)
        if gap > limit and max(gaps(stored, link.untouched, replayed).values(), default=0.0) <= limit:
            details.append(f"{request}: the stored models are within the tolerance of the untouched ones")
    if effects:
        figures += (_effect(min(effects)),)
    verdict, shows = _outcome(gap > limit, left.missing, blind, all(control.held for control in controls))
    detectable = ""
    if verdict is Verdict.PASS:
        # a share of the effect moves a model by that share of its gap, and rounding may take a tolerance of it away
        share = 2 * limit / min(effects)
        figures += (_share(share),)
        detectable = f"a stored model that kept a share of {up(share, 3)} or more of what the erased data did"
    assumptions = (
        "The run was made on the platforms that it names.",
        "Rounding on the platform of the run moves models by at most the tolerance.",
        "A fault leaves in a model a share of what one of the executed faults leaves in it.",
        f"Nothing is hidden below the tolerance, in the low bits of the numbers that differ: {alike:.0%} agree in "
        "every bit.",
    )
    return Judgement(
        verdict,
        shows,
        figures,
        detectable,
        tuple(controls),
        assumptions if verdict is Verdict.PASS else (),
        (*details, *(f"could not be told from rounding: {line}" for line in blind), *left.missing),
        qualification=ELSEWHERE,
    )


def _figures(models: int, gap: float, limit: float, alike: float) -> tuple[Figure, ...]:
    return (
        Figure(
            "models",
            "Stored models compared within a tolerance",
            models,
            "each computed anew from the retained data; this platform is not the run's",
        ),
        Figure(
            "gap",
            "Largest gap",
            _number(gap),
            "between stored and recomputed models: largest difference over the largest entry of a tensor",
        ),
        Figure(
            "tolerance",
            "Tolerance",
            limit,
            "set in the spec, in units of the machine epsilon; never fitted to the run",
        ),
        Figure(
            "bit_equal",
            "Share of numbers that agree in every bit",
            alike,
            "the rest agrees within the tolerance; below it, numbers can carry something that nothing here judges",
        ),
    )


def _effect(least: float) -> Figure:
    return Figure(
        "effect",
        "What the data in question does, at least",
        _number(least),
        "smallest gap between the parent's draws executed with it and without it, over all stored models",
    )


def _share(share: float) -> Figure:
    return Figure("share", "Share of that which would have been seen", share, "twice the tolerance over the line above")


def _outcome(apart: bool, missing: tuple[str, ...], blind: list[str], controlled: bool) -> tuple[Verdict, str]:
    if apart:
        return Verdict.INCONCLUSIVE, (
            "On this platform replay differs by more than the tolerance: rounding that grew, or other models; "
            "only the platform of the run can tell."
        )
    if missing:
        return Verdict.INCONCLUSIVE, (
            f"Replay agrees within the tolerance, but the erased data cannot be left in for comparison: {missing[0]}."
        )
    if not controlled:
        return Verdict.INCONCLUSIVE, (
            "Replay agrees within the tolerance, but a parent's models do not: what was left in is not what they hold."
        )
    if blind:
        return Verdict.INCONCLUSIVE, (
            "Replay agrees within the tolerance, but this tolerance could not have told: "
            f"with the data left in, models differ by less than {TIMES} times as much."
        )
    return Verdict.PASS, (
        "On another platform every stored model is what the plan makes of the retained data, within the tolerance, "
        f"not bit for bit; with the erased data left in they differ by {TIMES} times the tolerance or more."
    )


def _untouched(link: Counterfactual, replayed: Checkpoints) -> Gaps:
    """How far the untouched models are from the replay, once draws differ: rounds before that are the same ones."""
    return {at: gap for at, gap in gaps(link.untouched, replayed, replayed).items() if at[0] >= link.changed}


def _copied(link: Counterfactual, stored: Checkpoints, replayed: Checkpoints, limit: float) -> list[str]:
    """Rounds whose stored model is the parent's in every bit, where the two plans make different ones."""
    return [
        f"after round {round_number} the stored model is that of {link.parent.path.name}"
        for (round_number, name), gap in _untouched(link, replayed).items()
        if name == "vector"
        and gap >= TIMES * limit
        and round_number in link.parent.checkpoints
        and torch.equal(stored[round_number][0], link.parent.checkpoint(round_number)[0])
    ]


def _controls(case: Case, link: Counterfactual, limit: float) -> list[Control]:
    """Whether a parent's stored models are the ones executed here with its data; none for an edited parent."""
    parent = link.parent
    if "edited_by" in parent.info:
        return []
    before, after = parent.plan.retained, case.run.plan.retained
    held = {}
    for round_number in parent.checkpoints:
        vector, state = parent.checkpoint(round_number)
        held[round_number] = (
            vector,
            state_without(case.rerun.ready.procedure, state, before, after),
        )  # as in what is executed here
    far = max(gaps(held, link.untouched, case.rerun.replayed).values(), default=0.0)
    expected = "within the tolerance"
    return [
        Control(
            f"models of {parent.path.name} replayed here",
            expected,
            expected if far <= limit else "beyond the tolerance",
        )
    ]


def _number(value: float) -> float | str:
    """For JSON, which has no infinity."""
    return value if isfinite(value) else "infinite"
