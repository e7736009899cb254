"""Replay on another platform: bits differ, so a tolerance is fixed in advance and must earn its verdict.

It earns a PASS only where leaving the erased data in would show ten times as far; see docs/decisions.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor, inf, isfinite

import torch
from torch import Tensor

from fuaudit.audits.replay.gaps import FEW, Gaps, Hidden, bit_equal, finite, gaps, hidden, largest, other_bits
from fuaudit.audits.replay.judgement import UNKNOWN_KEY, Judgement
from fuaudit.commitments.keys import derive
from fuaudit.draws import Address, Keyed, Purpose
from fuaudit.runs.derived_files import Checkpoints
from fuaudit.runs.run import Run
from fuaudit.statistics.rounding import up
from fuaudit.text import counted
from fuaudit.training.execute import state_without
from fuaudit.training.rounds import State
from fuaudit.verification.case import Case
from fuaudit.verification.counterfactual import Counterfactual, RestrictedSchedule
from fuaudit.verification.figure import Figure
from fuaudit.verification.finding import Control, Verdict

ELSEWHERE = "On another platform than the run's, models were compared within a tolerance."
"""What a PASS says that no equal bits stand behind."""

TIMES = 10
"""How many tolerances away the erased data, left in, must lie."""

MOST_HIDDEN = 1 / 3
"""Which share of the numbers that a fault moves may stay unseen; see :func:`fuaudit.audits.replay.gaps.hidden`.

Measured in float32 on digits, ten clients: .04 to .28 for FATS with linear models and MLPs, .05 to .31 with momentum
or MimiC, .29 to .63 with the memories of MIFA. Beside loud features it was .7 to .99.
"""

CHOSEN = 16
"""Rows of each client that are asked one by one. The key of the audit chooses them, so nobody can say beforehand which:
where a quarter of her rows hides, one of it is among 16 with probability .99."""

LEFT_IN = "the erased data left in"

CONSTANTS = "sizes and constants of before"

DONE = "what it did until training was stopped"

OLDER_ROWS = (
    "Nothing of single rows is left in as runs older than the parent of their request drew them: under those draws all "
    "that a request erased of a client was asked at once."
)
"""What a PASS of several requests takes on trust."""

IN_COMPANY = (
    "No client did in the company of others who were erased what is hidden here: what is erased of each was asked with "
    "the gradients of all else of its request masked, and with those in it that later requests erased; scaling "
    "constants and sizes for each client."
)
"""What a PASS takes on trust where several clients or samples were erased: what one does depends on who else counts."""

TO_PARENT = ", of the parent's models"

APART_THERE = (
    f"Two plans whose models lie {TIMES} tolerances apart here do not make one and the same, bit for bit, on the "
    "platform of the run."
)
"""What a FAIL assumes that rests on bits of an ancestor. Parts that rank, round or choose break it."""

FEWEST = "in the stored model, or what is kept beside it, where fewest do"
"""Where the share of equal bits is taken: kept rounds agree in every bit, and would speak for the others."""

ROOM = 2
"""How many tolerances a number can be exchanged by: rounding of the two platforms and the forger's have one each."""


def within_tolerance(case: Case, stored: Checkpoints, tolerance: int) -> Judgement:
    """Judge stored models that differ in bits from their replay on another platform.

    - PASS: every gap is within the tolerance. The faults of every request were executed here, and each moves the
      models that it moves at all by ten tolerances or more; so does what it erases of each client, without the others,
      under the draws of its parent and of each older ancestor, where these moved anything by it.
      So do, by themselves and in the rounds that drew them, its samples, and of each of its clients the quietest rows
      and some that the audit's key chooses. The parents' stored models are those executed here, within the tolerance.
    - FAIL, where no platform matters: the plan reads what was to be forgotten. Or a stored model is an ancestor's, bit
      for bit, after rounds that were drawn anew, and the ancestor's plan makes one here that is ten tolerances or more
      away from the replay; no part of the rounds may rank, round or choose.
    - INCONCLUSIVE: everything else, and by rule whatever a part of the rounds ranked, rounded or chose.

    Args:
        stored: the models of the run, at the rounds of ``case.rerun.replayed``.
        tolerance: in units of the machine epsilon of the run's dtype, relative to the largest entry of a tensor, or of
            a client's row in it; 0 allows none, so that other bits are INCONCLUSIVE.

    Raises:
        UsageError: no data is at hand.
    """
    limit = tolerance * torch.finfo(case.rerun.ready.procedure.dtype).eps
    replayed = case.rerun.replayed
    gap = max(_apart(case, stored, replayed).values(), default=0.0)
    alike = bit_equal(stored, replayed, case.rerun.ready.procedure.per_client_state)
    differ = other_bits(stored, replayed)
    figures = _figures(len(replayed), gap, limit, alike, differ)
    if RestrictedSchedule(case.rerun.schedule, case.run.plan.retained).takes_something:
        shows = "The plan reads rows that were to be forgotten: the retained data makes no model of it."
        return Judgement(Verdict.FAIL, shows, figures)
    if not tolerance:
        shows = "Replay gives other bits on this platform, and the spec allows no tolerance."
        return Judgement(Verdict.INCONCLUSIVE, shows, figures)
    if case.evidence.received:  # an ancestor's, too: its plan says nothing of what the erased data did
        shows = (
            "Replay gives other bits on this platform, and rounds that came in messages cannot be executed with the "
            "erased data left in: no tolerance could tell."
        )
        return Judgement(Verdict.INCONCLUSIVE, shows, figures)
    left = case.rerun.counterfactuals
    copied = tuple(line for link in left.links for line in _copied(case, link, stored, limit))
    # before copies: two plans can honestly choose one row, and here a near tie of one of them falls otherwise
    if abrupt := case.rerun.ready.procedure.abrupt:
        also = " Stored models are an ancestor's, bit for bit, which such a part can make honestly." if copied else ""
        shows = (
            f"Replay gives other bits on this platform, and the {abrupt[0]} turns last bits into other models: no "
            f"tolerance could tell.{also}"
        )
        return Judgement(Verdict.INCONCLUSIVE, shows, figures, details=(*copied, *left.missing))
    if copied:
        shows = "Stored models are an ancestor's, bit for bit, where the plan makes others."
        return Judgement(Verdict.FAIL, shows, figures, assumptions=(APART_THERE,), details=copied)
    by_row = case.rerun.ready.procedure.per_client_state
    alike = min([alike, *(bit_equal(stored, replayed, by_row, kept) for kept in _kept(case, left.links))])
    figures = _figures(len(replayed), gap, limit, alike, differ)
    faults = [_found_once(case, link, stored, gap > limit, limit) for link in left.links]
    effects = [effect for fault in faults for effect in fault.effects]
    blind = [line for fault in faults for line in fault.blind]
    controls = tuple(control for fault in faults for control in fault.controls)
    unseen = Hidden.most(fault.hidden for fault in faults)
    verdict, shows = _outcome(gap > limit, left.missing, blind, all(control.held for control in controls))
    judged = Judgement(
        verdict,
        shows,
        (*figures, *([_effect(min(effects)), *_hidden(unseen)] if effects else [])),
        controls=controls,
        details=(
            f"largest gap {gap:.3g}, tolerance {limit:.3g}, relative to the largest entry of a tensor, "
            "or of a client's row",
            f"{_percent(alike)} of the numbers that rounds moved agree in every bit, {FEWEST}; what the others hold "
            "below the tolerance, nothing here judges",
            *(line for fault in faults for line in fault.lines),
            *(f"could not be told from rounding: {line}" for line in blind),
            *left.missing,
        ),
        qualification=ELSEWHERE,
    )
    # a share of the effect moves a model by that share of its gap, and rounding may take a tolerance of it away
    if verdict is not Verdict.PASS:
        return judged
    several = len(left.links) > 1
    company = several or any(link.alone for link in left.links)
    on_others = (*([OLDER_ROWS] if several else []), *([IN_COMPANY] if company else []))
    return _passed(judged, 2 * limit / min(effects), _in_bits(alike, differ), unseen, on_others)


def _kept(case: Case, links: Sequence[Counterfactual]) -> list[Checkpoints]:
    """The models before the first round that each request changed, as far as rounds were kept."""
    rounds = sorted({link.changed - 1 for link in links if 1 < link.changed <= case.run.rounds_executed})
    return [case.rerun.after(number) for number in rounds]


def _in_bits(alike: float, differ: int) -> str:
    """How far the low bits agree, in words."""
    return f"{_percent(alike)} agree in every bit, {FEWEST}, and {counted(differ, 'number')} of a stored model do not"


def _passed(judged: Judgement, share: float, in_bits: str, unseen: Hidden, on_others: tuple[str, ...]) -> Judgement:
    """A PASS, with the share of the effect that it would have seen and what it takes on trust.

    ``on_others`` is what is trusted where several clients were erased, or one after another.
    """
    return replace(
        judged,
        figures=(*judged.figures, _share(share)),
        detectable=f"a stored model that kept a share of {up(share, 3)} or more of what the erased data, or what is "
        "erased of one client, did to its largest numbers; of single rows a share of what they did in the rounds that "
        "drew them",
        assumptions=(
            "The run was made on the platforms that it names.",
            UNKNOWN_KEY,
            "Rounding on the platform of the run moves models by at most the tolerance.",
            "A fault leaves in a model a share of what one of the executed faults leaves in it; all that is erased of "
            "one client is one, and of each client of a request so is the quietest tenth of the rows drawn, and each "
            f"of {CHOSEN} that the key chose, at their weight in their batches.",
            "Later rounds did not forget some of the rows of a client down to the tolerance: rows are judged by what "
            "they did in the rounds that drew them.",
            *on_others,
            f"Nothing is hidden below the tolerance, in the low bits of the numbers that differ: {in_bits}; and "
            f"{_unseen(unseen)}.",
        ),
    )


def _unseen(unseen: Hidden) -> str:
    """What of the numbers moved could be other ones as a whole, in words."""
    share = up(max(unseen.share, unseen.share_of_few), 2)
    few = (
        f": at most {up(unseen.share, 2)} where {FEW} or more of a tensor, or of a client's row, were moved, and at "
        f"most {counted(unseen.few, 'number')} where fewer were"
    )
    return (
        f"a share of at most {share} of those that the data moved was moved so little, beside the largest of its "
        f"tensor, that all of it could be{few if unseen.few else ''}"
    )


@dataclass(frozen=True)
class _Fault:
    """What one fault does to the models: its gaps, and the share of the numbers moved that no gap shows.

    ``whole`` says that every number of it is finite.
    """

    gaps: Gaps
    hidden: Hidden
    whole: bool

    @property
    def effects(self) -> tuple[float, ...]:
        """The gaps that have a size."""
        return tuple(gap for gap in self.gaps.values() if isfinite(gap))

    def doubts(self, limit: float) -> Iterator[str]:
        """Why the tolerance could not have told it from rounding; nothing where it could."""
        if not self.whole:
            yield ": models overflow here, so they set no scale"
        elif self.gaps and min(self.gaps.values()) < TIMES * limit:
            yield ""
        elif self.hidden.share > MOST_HIDDEN:
            yield f": a share of {up(self.hidden.share, 2)} of the numbers moved, beside much larger ones"
        elif self.hidden.few > MOST_HIDDEN * FEW:
            yield f": {self.hidden.few} of the numbers moved, which are fewer than {FEW}, beside much larger ones"

    def __str__(self) -> str:
        far = self.gaps.values()
        return f"between {min(far):.3g} and {max(far):.3g} away" if far else "no difference"


def _fault(case: Case, models: Checkpoints, others: Checkpoints, limit: float) -> _Fault:
    """The difference of two sets of models, in units of the largest that the replay or one of them has."""
    rows, replayed = case.rerun.ready.procedure.per_client_state, case.rerun.replayed
    compared = {number: replayed[number] for number in models.keys() & others.keys()}
    found = _moved(gaps(models, others, largest(compared, models, others), rows), limit)
    share = hidden(models, others, replayed, ROOM * limit, rows)
    return _Fault(found, share, finite(models) and finite(others))


@dataclass(frozen=True)
class _Faults:
    """What the faults of one request do to the models, executed here.

    Attributes:
        effects: gaps that the erased data makes where it is left in, all of it or a part.
        blind: faults that the tolerance could not have told from rounding.
        controls: whether the parent's stored models are those executed here.
        lines: how far each fault is away, for an engineer.
        hidden: the share of numbers of a model that a fault changes, and no gap shows.
    """

    effects: tuple[float, ...]
    blind: tuple[str, ...]
    controls: tuple[Control, ...]
    lines: tuple[str, ...]
    hidden: Hidden


def _found_once(case: Case, link: Counterfactual, stored: Checkpoints, apart: bool, limit: float) -> _Faults:
    """For replay and lineage alike: both ask it of the same stored models, and it is most of their work."""
    kept, asked = case.rerun.kept, ("faults", link.parent.digest, apart, limit)
    if asked not in kept:
        kept[asked] = _faults(case, link, stored, apart, limit)
    found: _Faults = kept[asked]
    return found


def _faults(case: Case, link: Counterfactual, stored: Checkpoints, apart: bool, limit: float) -> _Faults:
    """The faults of one request; ``apart`` says that the stored models are not within the limit of the replay."""
    replayed, request = case.rerun.replayed, f"request to {link.parent.path.name}"
    pairs = {
        LEFT_IN: (link.untouched, link.masked),
        "the untouched models": (_since(link, link.untouched), replayed),
        "the draws of before, without the erased data": (_since(link, link.taken_out), replayed),
        CONSTANTS: (link.remembered, replayed),
    }
    if link.did is not None:  # what follows a stop can make much of little, and the little is what may be left in
        pairs[DONE] = _done(case, link.executed, link.did)
    faults = {name: _fault(case, *pair, limit) for name, pair in pairs.items()}
    blind = [name + why for name, fault in faults.items() for why in fault.doubts(limit)]
    told = {"its data": faults[LEFT_IN]} | {name: faults[name] for name in (DONE,) if name in faults}
    for ask in (_by_themselves, _left_in_alone, _as_older_ones_drew, _constants_alone):
        if apart or blind:  # nothing that a part could say would change the verdict
            break
        found = ask(case, link, limit)
        faults |= found
        told |= {} if ask is _constants_alone else found
        blind = [name + why for name, fault in found.items() for why in fault.doubts(limit)]
    # data that nothing was made of sets no scale, so nothing says what the tolerance would hide of it
    blind += [
        f"{name} {'moves nothing' if name.startswith('sample ') else 'was never drawn, or moves nothing'}"
        for name, fault in told.items()
        if not fault.effects
    ]
    lines = [f"{request}: {name}: {fault}" for name, fault in faults.items()]
    if blind and all(any(line.startswith(name) for name in _chosen(case, link)) for line in blind):
        lines.append(f"{request}: only rows that the key chose could not be told; another key chooses others")
    if apart and max(_apart(case, stored, link.untouched).values(), default=0.0) <= limit:
        lines.append(f"{request}: the stored models are within the tolerance of the untouched ones")
    return _Faults(
        tuple(effect for fault in told.values() for effect in fault.effects),
        tuple(f"{request}: {line}" for line in blind),
        _controls(case, link, limit),
        tuple(lines),
        Hidden.most(fault.hidden for fault in faults.values()),
    )


def _done(case: Case, executed: int, did: Tensor) -> tuple[Checkpoints, Checkpoints]:
    """Models of the run after training was stopped for a request: with what was done until then, and without it."""
    after = {number: vector for number, (vector, _) in case.rerun.replayed.items() if number >= executed}
    return {n: (v + did, {}) for n, v in after.items()}, {n: (v, {}) for n, v in after.items()}


def _left_in_alone(case: Case, link: Counterfactual, limit: float) -> dict[str, _Fault]:
    """What each client of a request did to the models, without the others: later rounds may have forgotten it."""
    return _left_in(case, link.parent, link, link.alone, limit)


def _as_older_ones_drew(case: Case, link: Counterfactual, limit: float) -> dict[str, _Fault]:
    """What a request, and each client of it, did under the draws of each older ancestor, where it did anything.

    An ancestor's rounds may never have drawn it. Then nothing of that can be left in.
    """
    parts = {"what is erased": link.gone} | dict(link.alone)
    return {
        f"{name}, drawn as in {older.path.name}": fault
        for older in link.older
        for name, fault in _left_in(case, older, link, parts, limit).items()
        if fault.gaps
    }


def _left_in(
    case: Case, ancestor: Run, link: Counterfactual, parts: Mapping[str, tuple[int, ...]], limit: float
) -> dict[str, _Fault]:
    """What each part of a request did to the models under an ancestor's draws, without the others."""
    result, executed = dict[str, _Fault](), min(ancestor.rounds_executed, case.run.rounds_executed)
    for name, models, masked in case.rerun.left_in(ancestor, link.retained, parts):
        result[f"{name}, left in alone"] = _fault(case, _stored(case, models), masked, limit)
        if executed < case.run.rounds_executed:
            did = models[executed][0] - masked[executed][0]
            result[f"{name}, {DONE}"] = _fault(case, *_done(case, executed, did), limit)
    return result


def _constants_alone(case: Case, link: Counterfactual, limit: float) -> dict[str, _Fault]:
    """Sizes and constants that hold one client of a request more than they should: the others would answer for her."""
    replayed = case.rerun.replayed
    return {
        f"{CONSTANTS}, with {name}": _fault(case, _stored(case, case.rerun.remembered(link, rows)), replayed, limit)
        for name, rows in link.alone.items()
    }


def _stored(case: Case, models: Checkpoints) -> Checkpoints:
    """Models of the rounds that the run stores."""
    return {number: found for number, found in models.items() if number in case.rerun.replayed}


def _parts(case: Case, link: Counterfactual) -> dict[str, tuple[int, ...]]:
    """The rows that are asked by themselves: of each client the quietest, and some that the audit's key chooses."""
    return {f"the quietest of {name}": rows for name, rows in link.quietest.items()} | _chosen(case, link)


def _chosen(case: Case, link: Counterfactual) -> dict[str, tuple[int, ...]]:
    """Rows that were drawn, of each client those that the audit's key chooses."""
    result = dict[str, tuple[int, ...]]()
    for name, rows in link.drawn.items():
        own = Keyed(derive(case.key.secret, "rows asked by themselves", link.parent.digest, name))
        chosen = own.subset(Address(Purpose.AUDIT), rows, min(CHOSEN, len(rows))) if len(rows) > 1 else ()
        result |= {f"sample {row} of {name}": (row,) for row in chosen}
    return result


def _by_themselves(case: Case, link: Counterfactual, limit: float) -> dict[str, _Fault]:
    """What each part of a request does by itself, to the run's models and to the parent's."""
    parts = _parts(case, link)
    result = {f"{name} by itself{to}": _Fault({}, Hidden(), True) for name in parts for to in ("", TO_PARENT)}
    for to in ("", TO_PARENT):
        for number, vector, sums in case.rerun.contributions(link, parts, of_parent=bool(to)):
            for part, moved in sums.items():
                name = f"{part} by itself{to}"
                fault = _fault(case, {number: (vector + moved, {})}, {number: (vector, {})}, limit)
                old = result[name]
                result[name] = _Fault(
                    old.gaps | fault.gaps, Hidden.most([old.hidden, fault.hidden]), old.whole and fault.whole
                )
    return result


def _figures(models: int, gap: float, limit: float, alike: float, differ: int) -> tuple[Figure, ...]:
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
            "between stored and recomputed models: largest difference over the largest entry of a tensor, or of the "
            "client's row where one is kept a client",
        ),
        Figure(
            "tolerance",
            "Tolerance",
            limit,
            "set in the spec, in units of the machine epsilon; never fitted to the run",
        ),
        Figure(
            "bit_equal",
            "Share of numbers that agree in every bit, at least",
            alike,
            f"{FEWEST}, and of the numbers that rounds moved; the rest agrees within the tolerance; below it, numbers "
            "can carry something that nothing here judges",
        ),
        Figure(
            "other_bits",
            "Numbers of a stored model that have other bits",
            differ,
            "where most do; their low bits can carry something, whatever share they are of all",
        ),
    )


def _percent(share: float) -> str:
    """A share, rounded down: all is 100%, and nothing else is."""
    return f"{floor(100 * share)}%"


def _effect(least: float) -> Figure:
    return Figure(
        "effect",
        "What the data in question does, at least",
        _number(least),
        "smallest gap between the parent's draws executed with it and with its gradients masked, over all stored "
        "models, or what is erased of one client does there, or what a part of it does by itself, at its weight in its "
        "batches",
    )


def _hidden(unseen: Hidden) -> tuple[Figure, ...]:
    return (
        Figure(
            "hidden",
            "Share of the numbers moved that could stay unseen, at most",
            max(unseen.share, unseen.share_of_few),
            "of the numbers of a tensor, or of a client's row, that the data in question moves by more than rounding: "
            f"those moved by less than {ROOM} tolerances, because others are so much larger",
        ),
        Figure(
            "hidden_of_many",
            f"The same share where {FEW} numbers or more are moved, at most",
            unseen.share,
            "this share must stay at a third or below",
        ),
        Figure(
            "hidden_of_few",
            f"Numbers that could stay unseen where fewer than {FEW} are moved, at most",
            unseen.few,
            f"of each tensor, or client's row; {floor(MOST_HIDDEN * FEW)} are let pass, whatever share they are",
        ),
    )


def _share(share: float) -> Figure:
    return Figure(
        "share",
        "Smallest share of that which would have been seen, at most",
        share,
        "twice the tolerance over the line above",
    )


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
            "Replay agrees within the tolerance, but this tolerance could not have told: with the data left in, models "
            f"differ by less than {TIMES} times as much, or many of their numbers do, or nothing sets a scale."
        )
    return Verdict.PASS, (
        "On another platform every stored model is what the plan makes of the retained data, within the tolerance, "
        f"not bit for bit; with the erased data left in they differ by {TIMES} times the tolerance or more."
    )


def _apart(case: Case, models: Checkpoints, others: Checkpoints) -> Gaps:
    """Gaps in units of the replay's numbers; what keeps a row a client is compared row by row."""
    return gaps(models, others, case.rerun.replayed, case.rerun.ready.procedure.per_client_state)


def _moved(found: Gaps, limit: float) -> Gaps:
    """Without clients' rows that a fault moves by a tolerance or less: all that it does there is in low bits."""
    return {at: gap for at, gap in found.items() if len(at) == 2 or gap > limit}


def _since(link: Counterfactual, models: Checkpoints) -> Checkpoints:
    """Models of the parent's draws once draws differ: in rounds before that they are the run's own draws."""
    return {number: found for number, found in models.items() if number >= link.changed}


def _copied(case: Case, link: Counterfactual, stored: Checkpoints, limit: float) -> list[str]:
    """Rounds whose stored model is the parent's in every bit, where the two plans make different ones."""
    return [
        f"after round {round_number} the stored model is that of {link.parent.path.name}"
        for (round_number, name, *_), gap in _apart(case, _since(link, link.untouched), case.rerun.replayed).items()
        if name == "vector"
        and TIMES * limit <= gap < inf
        and round_number in link.parent.checkpoints
        and torch.equal(stored[round_number][0], link.parent.checkpoint(round_number)[0])
    ]


def _controls(case: Case, link: Counterfactual, limit: float) -> tuple[Control, ...]:
    """Whether a parent's stored models are the ones executed here with its data."""
    parent = link.parent
    before, after = parent.plan.retained, case.run.plan.retained
    held = dict[int, tuple[Tensor, State]]()
    for round_number in parent.checkpoints:
        vector, state = parent.checkpoint(round_number)
        # as in what is executed here
        held[round_number] = vector, state_without(case.rerun.ready.procedure, state, before, after)
    # over its own numbers: a row that it has may be zero in the replay, which draws other clients
    rows = case.rerun.ready.procedure.per_client_state
    far = max(gaps(held, link.untouched, link.untouched, rows).values(), default=0.0)
    expected = "within the tolerance"
    observed = expected if far <= limit else "beyond the tolerance"
    return (Control(f"models of {parent.path.name} replayed here", expected, observed),)


def _number(value: float) -> float | str:
    """For JSON, which has no infinity."""
    return value if isfinite(value) else "infinite"
