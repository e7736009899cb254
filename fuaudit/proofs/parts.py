"""The procedures of a proof in parts, under laws of fuaudit's: what many paths have in common is done once.

They give what :func:`fuaudit.proofs.exactness.unlearning` and ``retraining`` give, on the same paths in the same order
(tests/test_parts.py). Four things make them cheaper:

1. Each request, and each draw of the history behind them, is a part: see :class:`fuaudit.draws.enumerating.Then`.
2. A law of fuaudit's is a function of what it draws. Each of its calls is remembered as a tree: what it asks first, by
   the answer what it asks then, and at the end what it gives.
3. A rewriter of fuaudit's is remembered so behind the veil: mostly by where the request is first involved.
4. Probes of an estimate are made once for all that ask for them.

A law of a stranger has none of this: what it gives may hang on more than its draws. So may what a rewriter of a
stranger makes, and he may look behind the veil. So he is run on every path, as ever, and what he makes is compared with
what he made of the same draws before. Where it is another plan, all is walked again, by the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache, partial, reduce
from itertools import product
from math import inf, prod
from operator import or_
from typing import Any, ClassVar, NamedTuple, cast

from fuaudit.declared import says
from fuaudit.draws import Address, Draws, Enumeration, Position, Purpose, Recorded, Stream
from fuaudit.draws.address import STREAM_OF
from fuaudit.draws.enumerating import Ends, Then, probed, walk
from fuaudit.errors import FuauditError
from fuaudit.plans.availability import AvailabilityLaw
from fuaudit.plans.law import Law, UniformLaw
from fuaudit.plans.plan import Plan, Routed, Segments, occurrences
from fuaudit.plans.population import Population, Request
from fuaudit.plans.strange_laws import is_foreign, is_just
from fuaudit.plans.veil import FIRST, Asked, Veiled, rewritten
from fuaudit.proofs.toys import federation
from fuaudit.proofs.value import option

Drawn = tuple[int, ...]
Part = Callable[[Enumeration], Any]
Heard = Sequence[tuple[tuple[Any, ...], Any]]

LATEST = 16
"""Of so many federations something is remembered: whoever walks them asks all there is of one before the next."""

WAYS = 4096
"""In so many ways may a rewriter be answered on plans with the same streams; more are not remembered."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and by the answer what comes then: another question, or what is given at the end."""

    asked: tuple[Any, ...]
    then: dict[Any, Any] = field(default_factory=dict)


def _grow(tree: dict[Any, Any], root: Hashable, heard: Heard, end: object) -> None:
    """Remember under a root what was asked and answered, in order, and what was given at the end."""
    branch = root
    for asked, answer in heard:
        question = tree.setdefault(branch, Question(asked))
        tree, branch = question.then, answer
    tree[branch] = end


@dataclass(frozen=True)
class Recalled(Plan):
    """A plan of a proof under a law of fuaudit's, which remembers what the law asked.

    Attributes:
        path: the enumeration that its sources belong to.
        calls: a tree for each call of the law; None where nothing is remembered.
    """

    path: Enumeration = field(default_factory=lambda: Enumeration([]), compare=False, repr=False)
    calls: dict[Any, Any] | None = field(default=None, compare=False, repr=False)
    by_strangers: ClassVar[bool] = False

    @cached_property
    def draws(self) -> Routed:
        """See :class:`fuaudit.plans.Plan`; it is made once."""
        return Routed(self)

    def cohort(self, round_number: int) -> Drawn:
        """See :class:`fuaudit.plans.Plan`."""
        return self._recalled("cohort", (round_number,))

    def batch(self, round_number: int, step: int, client: int, occurrence: int) -> Drawn:
        """See :class:`fuaudit.plans.Plan`."""
        return self._recalled("batch", (round_number, step, client, occurrence))

    def included(self, round_number: int, step: int, client: int, occurrence: int) -> Drawn:
        """See :class:`fuaudit.plans.Plan`."""
        return self._recalled("included", (round_number, step, client, occurrence))

    def _recalled(self, name: str, place: tuple[int, ...]) -> Drawn:
        if self.calls is None:
            return cast(Drawn, getattr(super(), name)(*place))
        found, draw = self.calls.get((name, place)), self.path.draw
        while type(found) is Question:
            found = found.then.get(draw(*found.asked))
        if found is None:
            found, heard = self.path.hear(lambda: getattr(super(Recalled, self), name)(*place))
            _grow(self.calls, (name, place), [(one[:-1], one.answer) for one in heard], found)
        return cast(Drawn, found)


class Made(NamedTuple):
    """What a rewriter makes of a plan: its streams, and a record in the place of the fresh source, if any."""

    streams: Mapping[Stream, Segments]
    written: Draws | None


@dataclass(frozen=True)
class Own:
    """What is remembered of a rewriter of fuaudit's on one federation.

    Attributes:
        unlearner: the rewriter.
        rewritings: a tree for each moment and the streams of a plan.
        probes: by moments, see :func:`fuaudit.draws.enumerating.probed`.
    """

    unlearner: Any
    rewritings: dict[Any, dict[Any, Any]] = field(default_factory=dict)
    probes: dict[Any, list[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Memory:
    """What is remembered of a law of fuaudit's over one population and some requests.

    Attributes:
        law, population: while they are held, no others have their identity.
        calls: by the streams of plans, for :class:`Recalled`.
        own: by rewriter.
    """

    law: Law
    population: Population
    calls: dict[Any, dict[Any, Any]] = field(default_factory=dict)
    own: dict[Hashable, Own] = field(default_factory=dict)

    def fresh(self, draws: Enumeration, key: str) -> Recalled:
        """A plan that is drawn as a whole."""
        return self.recalled(draws, Plan.fresh(self.law, self.population, draws.source(key)))

    def recalled(self, draws: Enumeration, plan: Plan) -> Recalled:
        """The plan with what is remembered of all plans that draw alike at all addresses."""
        given = plan.law, plan.populations, plan.sources, plan.streams
        if any(type(source) is Recorded for source in plan.sources):  # it answers for this plan alone
            return Recalled(*given, path=draws, calls=None)
        return Recalled(*given, path=draws, calls=self.calls.setdefault(_alike(plan), {}))

    def of(self, unlearner: Any) -> Own | None:
        """What is remembered of a rewriter, as he stands; None for one of a stranger's."""
        if is_foreign(unlearner):
            return None
        return self.own.setdefault(option(unlearner), Own(unlearner))


def _alike(plan: Plan) -> Hashable:
    """What says where each draw of a plan comes from, where the law and the requests are given."""
    return len(plan.sources), *(plan.streams[stream] for stream in Stream)


_memories: dict[Hashable, Memory] = {}


def _memory(law: Law, population: Population, requests: Sequence[Request]) -> Memory:
    """What is remembered of these very objects, as they stand."""
    key = option(law), id(law), id(population), tuple(requests)
    found = _memories.get(key)
    if found is None:
        if len(_memories) >= LATEST:
            _memories.clear()
        found = _memories[key] = Memory(law, population)
    return found


def unlearning_in_parts(
    unlearner: Any, law: Law, population: Population, requests: Sequence[Request], moments: Sequence[Position]
) -> Part:
    """As :func:`fuaudit.proofs.exactness.unlearning`, for a law of fuaudit's."""
    memory, name = _memory(law, population, requests), type(unlearner).__name__
    own = memory.of(unlearner)
    if own is None:  # whoever looks behind the veil finds no memory there that serves others
        memory = Memory(law, population)

    def carried_out(plan: Recalled, number: int, watched: tuple[_Again, ...]) -> Part:
        request, moment = requests[number], moments[number]

        def part(draws: Enumeration) -> Then:
            fresh = draws.source(f"request {number + 1}")
            if own:
                new, watching = _rewritten(own, plan, request, fresh, moment), watched
            else:
                again = partial(rewritten, unlearner, name, plan, request, fresh, moment)
                watching = *watched, _Again(again, new := again())
            after = memory.recalled(draws, new)
            if number + 1 < len(requests):
                return Then(carried_out(after, number + 1, watching))
            return Then(_history(draws, after, watching))

        return part

    return lambda draws: Then(carried_out(memory.fresh(draws, "training"), 0, ()))


class OtherPlanError(Exception):
    """A rewriter made another plan of the same draws."""


class _Again:
    """Runs a rewriter of a stranger on each path behind what he made; on the first of them he was run."""

    def __init__(self, again: Callable[[], Plan], made: Plan) -> None:
        self._again, self._made, self._first = again, made, True

    def __call__(self, draws: Enumeration) -> None:
        """Raises OtherPlanError where he makes another plan, or asks for more."""
        if self._first:
            self._first = False
            return
        drawn, new = draws.drawn, self._again()
        same = new.streams == self._made.streams and new.sources[-1] == self._made.sources[-1]
        if not same or draws.drawn != drawn:
            raise OtherPlanError


def retraining_in_parts(law: Law, population: Population, requests: Sequence[Request]) -> Part:
    """As :func:`fuaudit.proofs.exactness.retraining`, for a law of fuaudit's."""
    return _retraining(law, population.without(reduce(or_, requests)))


def _retraining(law: Law, left: Population) -> Part:
    memory = _memory(law, left, ())
    return lambda draws: Then(_history(draws, memory.fresh(draws, "retraining")))


def estimated_in_parts(
    unlearner: Any,
    law: Law,
    population: Population,
    requests: Sequence[Request],
    moments: Sequence[Position],
    probes: int,
    most: float = inf,
) -> float:
    """As :func:`fuaudit.draws.enumerating.estimate_leaves` of these procedures, of retraining for ``None``."""
    if unlearner is None:
        left = population.without(reduce(or_, requests))
        known, procedure = _probes_of_retraining(law, left)
    else:
        own = _memory(law, population, requests).of(unlearner)
        known = own.probes.setdefault(tuple(moments), []) if own else []
        procedure = unlearning_in_parts(unlearner, law, population, requests, moments)
    total = 0.0
    for probe in range(probes):
        if probe == len(known):
            known.append(probed(procedure, probe))
        total += known[probe]
        if total > most * probes:
            break
    return total / probes


_probes: dict[Hashable, list[int]] = {}


def _probes_of_retraining(law: Law, left: Population) -> tuple[list[int], Part]:
    """What is known of probes of retraining, and what gives more.

    Under these laws of fuaudit's it hangs on sizes, and not on ids: who is drawn is drawn by place.
    """
    if not is_just(law, UniformLaw, AvailabilityLaw):
        return [], _retraining(law, left)
    sizes = tuple(len(left.samples[client]) for client in left.clients)
    if len(_probes) >= 50_000:
        _probes.clear()
    return _probes.setdefault((option(law), sizes), []), _retraining(law, _numbered(sizes))


_numbered = lru_cache(maxsize=4 * LATEST)(federation)


def _rewritten(own: Own, plan: Recalled, request: Request, fresh: Draws, not_before: Position) -> Plan:
    """See :func:`fuaudit.plans.veil.rewritten`; what he made when he was answered alike, where he was."""
    tree = own.rewritings.setdefault((not_before, _alike(plan)), {})
    broken = list[Exception]()

    def ask(number: int, how: str, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if number == FIRST:
            return Asked(plan, not_before, broken).first(*given, **named)
        clients = frozenset(plan.populations[0].clients)
        return _kept(getattr(Veiled((*plan.sources, fresh)[number], clients, broken), how)(*given, **named))

    found = tree.get(None)
    while type(found) is Question:
        found = found.then.get(ask(*found.asked))
    if found is None:
        heard = list[tuple[tuple[Any, ...], Any]]()
        name = type(own.unlearner).__name__
        new = rewritten(own.unlearner, name, plan, request, fresh, not_before, lambda *asked: _listen(heard, *asked))
        last = new.sources[-1]
        if len(heard) <= 1 or tree.setdefault(WAYS, 0) < WAYS:
            tree[WAYS] = tree.get(WAYS, 0) + 1
            _grow(tree, None, heard, Made(new.streams, None if last is fresh else last))
        return new
    populations = (*plan.populations, plan.retained.without(request))
    return Plan(plan.law, populations, (*plan.sources, found.written or fresh), found.streams)


def _listen(heard: list[tuple[tuple[Any, ...], Any]], number: int, asked: Any) -> None:
    """Have all that is asked of draws, or of an index, written down with its answers."""
    for name in type(asked).__slots__:
        setattr(asked, name, _listening(heard, number, name, getattr(asked, name)))


def _listening(
    heard: list[tuple[tuple[Any, ...], Any]], number: int, name: str, method: Callable[..., Any]
) -> Callable[..., Any]:
    def ask(*given: Any, **named: Any) -> Any:
        answer = method(*given, **named)
        heard.append(((number, name, given, named), _kept(answer)))
        return answer

    return ask


def _kept(answer: Any) -> Hashable:
    """An answer that can be looked up: many are a list."""
    return tuple(answer) if type(answer) is list else answer


@lru_cache(maxsize=4096)
def _places(cohort: Drawn, steps: int) -> tuple[tuple[int, int, int], ...]:
    """Step, client and occurrence of all batches of a round, in the order of a history."""
    return tuple((step, *place) for place in occurrences(cohort) for step in range(1, steps + 1))


def _history(draws: Enumeration, plan: Recalled, watched: tuple[_Again, ...] = ()) -> Part:
    """See :func:`fuaudit.proofs.exactness.drawn`; whoever looked at the initial draw did so by now."""
    looked = draws.looked_at(Purpose.INIT)
    by_draws = _From(plan, watched, looked, says(plan.law, "cuts"), plan.law.rounds)
    if watched or looked or draws.alone or plan.calls is None or not is_just(plan.law, UniformLaw):
        return by_draws
    return _ByRounds(by_draws)


@dataclass(frozen=True, slots=True)
class _From:
    """The history of a plan from one draw on; after the next draw that is new comes the next part.

    Attributes:
        watched: rewriters who are run once more at its end.
        looked: whether the initial draw is told.
        cuts: whether batches are cut.
        until: the last round that is told.
        rounds: those before.
        cohort: that of the round, with those of its batches that came before; None before it.
    """

    plan: Recalled
    watched: tuple[_Again, ...]
    looked: bool
    cuts: bool
    until: int
    rounds: tuple[Hashable, ...] = ()
    cohort: Drawn | None = None
    batches: tuple[Drawn, ...] = ()

    def __call__(self, draws: Enumeration) -> Any:
        plan, rounds, cohort, batches = self.plan, self.rounds, self.cohort, self.batches
        law, last = plan.law, inf if draws.alone else draws.drawn
        while len(rounds) < self.until:
            number = len(rounds) + 1
            if cohort is None:
                cohort, batches = plan.cohort(number), ()
            places = _places(cohort, law.steps)
            while len(batches) < len(places) and draws.drawn <= last:
                batches = *batches, plan.batch(number, *places[len(batches)])
            if len(batches) == len(places):
                rounds, cohort = (*rounds, self._round(number, cohort, batches)), None
            if draws.drawn > last and len(rounds) < self.until:
                return Then(_From(plan, self.watched, self.looked, self.cuts, self.until, rounds, cohort, batches))
        for again in self.watched:
            again(draws)
        return (plan.initial_uniform(1)[0] if self.looked else None), rounds

    def _round(self, number: int, cohort: Drawn, batches: tuple[Drawn, ...]) -> Hashable:
        """See :meth:`fuaudit.plans.Plan.history`."""
        steps = self.plan.law.steps
        if not self.cuts:
            return cohort, _by_place(batches, steps)
        included = [self.plan.included(number, *place) for place in _places(cohort, steps)]
        cut = [tuple(sorted({*all_}.difference(left))) for all_, left in zip(included, batches, strict=True)]
        return cohort, _by_place(batches, steps), _by_place(cut, steps)


def _by_place(batches: Sequence[Drawn], steps: int) -> Hashable:
    """Those of each place of a cohort together."""
    return tuple(tuple(batches[at : at + steps]) for at in range(0, len(batches), steps))


End = tuple[Hashable, tuple[int, int]]
"""The history of one round, and its probability as numerator and denominator."""

ROUNDS, MANY = 1024, 1024
"""Of so many rounds the histories are remembered, where they are at most so many."""


@dataclass(frozen=True, slots=True)
class _ByRounds:
    """The history of a plan under a law whose rounds draw each for itself: all histories of all rounds, multiplied.

    A round is walked once for all paths on which the same of its draws were made before. Where one cannot be walked
    by itself, or has too many histories, the plan is walked draw by draw: so an error is raised where its path comes,
    if the budget does not end before.
    """

    by_draws: _From

    def __call__(self, draws: Enumeration) -> Any:
        rounds = list[Sequence[End]]()
        for number in range(1, self.by_draws.until + 1):
            ends = _ends_of(self.by_draws, draws, number)
            if not ends:
                return Then(self.by_draws)
            rounds.append(ends)
        return Ends(_together(rounds))


def _together(rounds: Sequence[Sequence[End]]) -> Iterator[tuple[Any, tuple[int, int]]]:
    """The histories of all rounds after one another, the last one going through its own first."""
    for path in product(*rounds):
        told, weights = zip(*path, strict=True)
        overs, unders = zip(*weights, strict=True)
        yield (None, told), (prod(overs), prod(unders))


def _ends_of(history: _From, draws: Enumeration, number: int) -> Sequence[End]:
    """All histories of one round, with their probabilities given the draws of it that were made on this path.

    They hang on the law, on whom the round draws from, and on those draws. Keys and the number of the round only say
    which draw is the same, and the draws that the plan reads have the keys that it reads them by. There are none where
    the round cannot be walked by itself.
    """
    plan = history.plan
    calls: Any = plan.calls
    given = tuple(one for one in draws.told(number) if _reads(plan, *one[:2]))
    ends = calls.get(("round", (number, given)))
    if ends is None:
        alike = _alike_rounds(plan, number, given)
        if alike not in _rounds:
            if len(_rounds) >= ROUNDS:
                _rounds.clear()
            _rounds[alike] = _walked_round(history, number, given)
        ends = calls["round", (number, given)] = _rounds[alike]
    return cast(Sequence[End], ends)


_rounds: dict[Hashable, Sequence[End]] = {}


def _alike_rounds(plan: Recalled, number: int, given: Sequence[tuple[Any, ...]]) -> Hashable:
    """What the histories of a round hang on."""
    at = [Position(number, step) for step in range(plan.law.steps + 1)]
    over = [plan.segment(Stream.COHORTS, at[0]), *(plan.segment(Stream.BATCHES, one) for one in at[1:])]
    samples = [tuple(plan.populations[segment.version].samples.items()) for segment in over]
    before = [(place.purpose, place[2:5], question, answer) for _, place, question, answer in given]
    return option(replace(cast(UniformLaw, plan.law), rounds=1)), tuple(samples), tuple(before)


def _walked_round(history: _From, number: int, given: Sequence[tuple[Any, ...]]) -> Sequence[End]:
    """See :func:`_ends_of`, walked."""
    try:
        walked = list(walk(partial(_round_again, history, number, given), MANY))
    except FuauditError:
        return ()
    return [(rounds[-1], weight) for (_, rounds), weight in walked]


def _reads(plan: Recalled, key: str, at: Address) -> bool:
    """Whether the history of a plan reads a draw, where it has one at its address."""
    stream = STREAM_OF.get(at.purpose)
    if stream is None:
        return False
    segment = plan.segment(stream, at.position)
    source: Any = plan.sources[segment.source]
    return (source.key, segment.version) == (key, at.version)


def _round_again(history: _From, number: int, given: Sequence[tuple[Any, ...]], path: Enumeration) -> Then:
    """One round on a path of its own, behind the draws that are given."""
    for key, at, question, answer in given:
        path.draw(key, at, question, partial(list, [(answer, Fraction(1))]))
    sources: Any = history.plan.sources
    plan = replace(history.plan, sources=tuple(path.source(source.key) for source in sources), path=path)
    return Then(_From(plan, (), False, history.cuts, number, (None,) * (number - 1)))
