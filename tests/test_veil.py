"""What a rewriter gets: draws of cohorts and batches, and nothing that tells one run from another."""

from collections import UserDict
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction

import pytest
from fuaudit_plugins.fats import FatsUnlearning
from tests_support import foreseeing

from fuaudit.draws import (
    END,
    START,
    Address,
    Enumeration,
    Keyed,
    Leaves,
    Position,
    Purpose,
    Recorded,
    Seeded,
    Seeds,
    Stream,
    enumerate_law,
)
from fuaudit.errors import BudgetError, EvidenceError, PluginError, UsageError
from fuaudit.plans import Plan, Request, Segment, UniformLaw, veil
from fuaudit.plans.availability import AvailabilityLaw, PermutedEpochs, StaticProbability
from fuaudit.plans.veil import rewritten
from fuaudit.proofs import exactness
from fuaudit.proofs.toys import federation

LAW, MEMBERS = UniformLaw(2, 1, 1, 1), federation((2, 2, 2))
CLIENT, SAMPLE = Request.of(clients=[0]), Request.of(samples=[0])
OLD, NEW = Keyed(bytes([1]) * 32), Keyed(bytes([2]) * 32)
PLAN = Plan.fresh(LAW, MEMBERS, OLD)


def through(rewrite, plan=PLAN, fresh=NEW, request=CLIENT):
    """What a function of (plan, request, fresh, executed) makes behind the veil."""

    class Method:
        def rewrite(self, *given):
            return rewrite(*given)

    return rewritten(Method(), "method", plan, request, fresh, END)


def fats(plan, request, fresh, not_before):
    return FatsUnlearning().rewrite(plan, request, fresh, not_before)


def looks(found):
    """A rewriter that notes what it can see of its sources and its index, and is FATS."""

    def rewrite(plan, request, fresh, not_before):
        found.append([(type(source), repr(source)) for source in (*plan.sources, fresh, plan.index)])
        found.append(sorted(name for name in dir(fresh) if not name.startswith("__")))
        return fats(plan, request, fresh, not_before)

    return rewrite


def test_sources_look_the_same_in_proof_and_in_use():
    enumeration = Enumeration([])
    proof = Plan.fresh(LAW, MEMBERS, enumeration.source("training"))
    pruned = Plan.fresh(LAW, MEMBERS, Recorded({**answers_of(PLAN)}))
    indexed = foreseeing([PLAN], CLIENT)[0][0]
    seen = []
    for plan, fresh in ((PLAN, NEW), (pruned, NEW), (indexed, NEW), (proof, enumeration.source("request"))):
        found = []
        through(looks(found), plan, fresh)
        seen.append(found)
    assert seen[0][1] == ["independent", "many_subsets", "permutation", "sequence", "subset", "uniform", "weighted"]
    assert seen == seen[:1] * 4


def answers_of(plan):
    answers = {}
    for round_number in (1, 2):
        (client,) = answers[Address(Purpose.COHORT, round_number)] = plan.cohort(round_number)
        answers[Address(Purpose.BATCH, round_number, 1, client)] = plan.batch(round_number, 1, client, 0)
    return answers


@pytest.mark.parametrize("request_", [CLIENT, SAMPLE], ids=str)
def test_the_plan_is_that_of_the_rewriter_itself(request_):
    for number in range(50):
        old, new = (Keyed(bytes([number, who]) * 16) for who in range(2))
        plan = Plan.fresh(LAW, MEMBERS, old)
        expected = FatsUnlearning().rewrite(plan, request_, new, END)
        indexed = foreseeing([plan], request_)[0][0]
        assert through(fats, plan, new, request_) == expected == through(fats, indexed, new, request_)


@pytest.mark.parametrize("key", [NEW, OLD])
@pytest.mark.parametrize(
    "look",
    [
        lambda plan, fresh: plan.initial_uniform(1),
        lambda plan, fresh: fresh.uniform(Address(Purpose.INIT), 1),
        lambda plan, fresh: fresh.sequence(Address(Purpose.INIT), range(2), 1),
        lambda plan, fresh: plan.sources[0].subset(Address(Purpose.INIT), range(2), 1),
        lambda plan, fresh: fresh.weighted(Address(Purpose.INIT), (0, 1), (1, 1), 1),
        lambda plan, fresh: fresh.permutation(Address(Purpose.PARTITION), range(4)),
        lambda plan, fresh: fresh.permutation(Address(Purpose.AUDIT), range(4)),
    ],
)
def test_what_is_no_draw_of_cohorts_or_batches_is_refused(look, key):
    def rewrite(plan, request, fresh, not_before):
        look(plan, fresh)
        return fats(plan, request, fresh, not_before)

    with pytest.raises(PluginError, match="it gets those of cohorts and batches alone"):
        through(rewrite, fresh=key)


@pytest.mark.parametrize(
    ("look", "message", "hint"),
    [
        (
            lambda fresh: fresh.sequence(Address(Purpose.INIT), range(2), 1),
            "asked for a draw of init: it gets those of cohorts and batches alone",
            "Whether the initial model is drawn anew must not depend on the initial model",
        ),
        (
            lambda fresh: fresh.sequence(Address(Purpose.AUDIT, 1), range(2), 1),
            "asked for a draw of audit: it gets those of cohorts and batches alone",
            "fresh.sequence(Address(Purpose.COUPLING, 1), range(2), 1)",
        ),
        (
            lambda fresh: fresh.uniform(Address(Purpose.COUPLING, 1), 1),
            "asked for numbers in [0, 1) at a draw of coupling: it gets ids alone",
            "fresh.sequence(Address(Purpose.COUPLING, 1), range(2), 1)",
        ),
    ],
    ids=["of the initial model", "of another purpose", "of no ids"],
)
def test_a_refused_draw_says_what_may_be_asked(look, message, hint):
    def rewrite(plan, request, fresh, not_before):
        look(fresh)
        return fats(plan, request, fresh, not_before)

    with pytest.raises(PluginError) as error:
        through(rewrite)
    assert message in str(error.value)
    assert hint in error.value.hint
    assert ("initial model" in error.value.hint) == ("init:" in message)


@pytest.mark.parametrize("name", ["secret", "key", "source", "answers", "plan", "_source", "__dict__"])
def test_no_secret_has_a_name(name):
    def rewrite(plan, request, fresh, not_before):
        for source in (*plan.sources, fresh, plan.index):
            assert not hasattr(source, name)
        return fats(plan, request, fresh, not_before)

    through(rewrite)


@dataclass(frozen=True)
class InitialPicker(FatsUnlearning):
    """Goes behind the veil all the same, and draws the initial model anew where it dislikes the old one."""

    def rewrite(self, plan, request, fresh, not_before):
        kept = super().rewrite(plan, request, fresh, not_before)
        inside = [cell.cell_contents for cell in plan.sources[0].sequence.__closure__]
        (source,) = (one for one in inside if hasattr(one, "uniform"))
        if source.uniform(Address(Purpose.INIT), 1)[0] >= 0.5:
            return kept
        anew = (Segment(START, len(plan.sources), len(plan.populations)),)
        return replace(kept, streams={**kept.streams, Stream.INITIAL: anew})


@pytest.mark.parametrize("request_", [CLIENT, SAMPLE], ids=str)
def test_the_initial_draw_is_in_the_history_that_is_proved(request_):
    result = exactness(InitialPicker(), UniformLaw(1, 1, 1, 1), federation((2, 2)), [request_])
    assert result.total_variation == Fraction(1, 4)
    assert result.witness.initial == 0
    assert result.witness.unlearned == result.witness.retrained / 2


def test_an_initial_draw_that_nobody_looks_at_is_not_branched():
    for members, law in ((MEMBERS, LAW), (federation((2, 2)), UniformLaw(1, 1, 1, 1))):
        result = exactness(FatsUnlearning(), law, members, [CLIENT])
        assert result.exact
        assert result.histories == (len(members.clients) - 1) ** law.rounds * 2**law.rounds


FORMS = {
    "another key": lambda plan, new: replace(new, sources=(*new.sources[:-1], Keyed(bytes(32)))),
    "the key of training again": lambda plan, new: replace(new, sources=(*plan.sources, plan.sources[0])),
    "one key more": lambda plan, new: replace(new, sources=(*new.sources, new.sources[-1])),
    "an initial model from a record": lambda plan, new: replace(
        plan.restart(CLIENT, new.sources[-1]), sources=(*plan.sources, Recorded({}))
    ),
    "an initial model in two halves": lambda plan, new: with_stream(
        new, Stream.INITIAL, Segment(START, 0, 0), Segment(Position(1, 0), 1, 1)
    ),
    "a stream without a beginning": lambda plan, new: with_stream(new, Stream.COHORTS, Segment(Position(1, 0), 1, 1)),
    "a stream out of order": lambda plan, new: with_stream(
        new, Stream.COHORTS, Segment(START, 0, 0), Segment(Position(2, 0), 1, 1), Segment(Position(1, 0), 1, 1)
    ),
    "a source that is not there": lambda plan, new: with_stream(new, Stream.BATCHES, Segment(START, 2, 1)),
    "no stream": lambda plan, new: replace(new, streams={}),
    "another population in between": lambda plan, new: replace(
        new, populations=(federation((2, 2)), new.populations[-1])
    ),
    "more people": lambda plan, new: replace(new, populations=(*plan.populations, federation((2, 2, 2)))),
    "another law": lambda plan, new: replace(new, law=UniformLaw(1, 1, 1, 1)),
    "no plan": lambda plan, new: "plan",
}


def with_stream(plan, stream, *segments):
    return replace(plan, streams={**plan.streams, stream: segments})


@pytest.mark.parametrize("name", FORMS)
def test_plans_of_another_form_are_refused(name):
    def rewrite(plan, request, fresh, not_before):
        return FORMS[name](plan, plan.erase(request, fresh, Position(1, 0)))

    with pytest.raises(PluginError, match=r"'method' (returned|added or dropped|recorded or cut)"):
        through(rewrite)


def test_a_plan_that_answers_for_itself_is_taken_apart():
    class Liar(Plan):
        def cohort(self, round_number):
            return (1,)

    def rewrite(plan, request, fresh, not_before):
        new = plan.erase(request, fresh, Position(1, 0))
        return Liar(new.law, new.populations, new.sources, new.streams, new.index)

    new = through(rewrite)
    assert type(new) is Plan
    assert new.sources == (OLD, NEW)
    assert new == PLAN.erase(CLIENT, NEW, Position(1, 0))


def test_records_go_through():
    def rewrite(plan, request, fresh, not_before):
        return plan.erase(request, fresh, Position(1, 0)).recorded({1: (1,), 2: (2,)})

    new = through(rewrite)
    assert [new.cohort(round_number) for round_number in (1, 2)] == [(1,), (2,)]
    assert new.sources[0] is OLD
    assert type(new.sources[1]) is Recorded
    again = through(fats, new, Keyed(bytes(32)), Request.of(clients=[2]))
    assert again.cohort(1) == (1,)
    assert again.cohort(2) != (2,)


def test_a_request_that_does_not_fit_is_not_the_rewriters_fault():
    with pytest.raises(UsageError, match="no client 7"):
        through(fats, request=Request.of(clients=[7]))


class Odd(int):
    """A number that seems to be another one."""

    def __eq__(self, other):
        return int(self) + 1 == int(other) or super().__eq__(other)

    __hash__ = int.__hash__


@pytest.mark.parametrize(
    "answers",
    [
        {Address(Purpose.COHORT, 1): (Odd(1),)},
        {Address(Purpose.COHORT, Odd(1)): (1,)},
        {Address(Purpose.COHORT, 1): [1]},
        UserDict({Address(Purpose.COHORT, 1): (1,)}),
    ],
    ids=["id", "round", "list", "mapping"],
)
def test_records_hold_numbers_and_nothing_that_compares_as_it_likes(answers):
    """What seems to be the fair draw was enumerated as that, and trained with as it is."""

    def rewrite(plan, request, fresh, not_before):
        noted = plan.erase(request, fresh, Position(1, 0)).recorded({})
        return replace(noted, sources=(*noted.sources[:-1], Recorded(answers)))

    with pytest.raises(PluginError, match="recorded something else than a dict of addresses and tuples of ids"):
        through(rewrite)


def test_segments_hold_numbers_and_nothing_that_compares_as_it_likes():
    """What is equal to everything would be drawn as a proved method draws it, and carried out otherwise."""

    class Lying(Position):
        def __eq__(self, other):
            return True

        __hash__ = Position.__hash__

    @dataclass(frozen=True)
    class Liar(FatsUnlearning):
        def rewrite(self, plan, request, fresh, not_before):
            new = super().rewrite(plan, request, fresh, not_before)
            segments = [s._replace(start=Lying(*s.start)) for s in new.streams[Stream.BATCHES]]
            return replace(new, streams={**new.streams, Stream.BATCHES: tuple(segments)})

    plan = Plan.fresh(UniformLaw(3, 2, 1, 1), federation((2, 2, 2)), Keyed(bytes(32)))
    with pytest.raises(PluginError, match="not made of segments in order"):
        rewritten(Liar(), "liar", plan, Request.of([0]), Keyed(bytes([1]) * 32), END)


class TwoLists(tuple):
    """Lists other members than it gives by number."""

    def __getitem__(self, at):
        return 0


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda draws: draws.sequence(Address(Purpose.COHORT, 1, client=2**64 - 1), (0, 1), 1), "no address"),
        (lambda draws: draws.sequence(Address(Purpose.COHORT, 1, version=-1), (0, 1), 1), "no address"),
        (lambda draws: draws.sequence(Address(Purpose.COHORT, 1, occurrence=-1), (0, 1), 1), "no address"),
        (lambda draws: draws.sequence(Address(Purpose.COHORT, 1, -1), (0, 1), 1), "no address"),
        (lambda draws: draws.sequence(Address(Purpose.COHORT, -1), (0, 1), 1), "no address"),
        (lambda draws: draws.subset(Address(Purpose.COHORT, 1, 2**32), (0, 1), 1), "no address"),
        (lambda draws: draws.subset(Address(Purpose.COHORT, Odd(1)), (0, 1), 1), "no address"),
        (lambda draws: draws.many_subsets([Address(Purpose.COHORT, 2**31)], [(0, 1)], [1]), "no address"),
        (lambda draws: draws.permutation(Address(Purpose.COHORT, 1), (Odd(0), 1)), "no ids"),
        (lambda draws: draws.sequence(Address(Purpose.COHORT, 1), (0, 1), Odd(1)), "a number of type int"),
    ],
)
def test_what_keys_and_proofs_would_read_otherwise_is_refused(ask, words):
    def rewrite(plan, request, fresh, not_before):
        ask(fresh)
        return plan.erase(request, fresh, Position(1, 0))

    with pytest.raises(PluginError, match=words):
        through(rewrite)


def test_a_population_is_read_once():
    """Proofs list it, and keys take members by number."""
    found = []

    def rewrite(plan, request, fresh, not_before):
        found.append(fresh.sequence(Address(Purpose.COUPLING, 1), TwoLists((1, 1)), 1))
        return plan.erase(request, fresh, Position(1, 0))

    through(rewrite)
    assert found == [(1,)]


class TheirOwn(int):
    """A number of another type."""


AT = Address(Purpose.COUPLING, 1)
ODD = {
    "nobody": lambda draws: draws.sequence(AT, (), 1),
    "a count of no whole number": lambda draws: draws.sequence(AT, (0, 1), float("nan")),
    "a count that is a truth": lambda draws: draws.subset(AT, (0, 1), True),
    "a count below zero": lambda draws: draws.sequence(AT, (0, 1), -1),
    "a subset below zero": lambda draws: draws.subset(AT, (0, 1), -1),
    "a huge count": lambda draws: draws.sequence(AT, (0, 1), 2**70),
    "more than there are": lambda draws: draws.subset(AT, (0, 1), 3),
    "one named twice": lambda draws: draws.subset(AT, (0, 0, 1), 2),
    "an order of one named twice": lambda draws: draws.permutation(AT, (0, 0, 1)),
    "a truth among ids": lambda draws: draws.sequence(AT, (True, 2), 1),
    "no number among ids": lambda draws: draws.permutation(AT, (float("nan"), 2)),
    "ids of a type of their own": lambda draws: draws.subset(AT, [TheirOwn(1), 2], 1),
    "weights of zero": lambda draws: draws.weighted(AT, (0, 1), (0, 0), 1),
    "fewer of a weight than asked": lambda draws: draws.weighted(AT, (0, 1), (0, 1), 2),
    "a weight below zero": lambda draws: draws.weighted(AT, (0, 1), (-1, 2), 1),
    "huge weights": lambda draws: draws.weighted(AT, (0, 1), (2**64, 1), 1),
    "a weight that is no number": lambda draws: draws.weighted(AT, (0, 1), (float("nan"), 1), 1),
    "a weight that is a truth": lambda draws: draws.weighted(AT, (0, 1), (True, 1), 1),
    "fewer weights": lambda draws: draws.weighted(AT, (0, 1), (1,), 1),
    "weights of one named twice": lambda draws: draws.weighted(AT, (0, 0, 1), (1, 2, 3), 1),
    "a chance that is no fraction": lambda draws: draws.independent(AT, (0, 1), 0.5),
    "a chance above one": lambda draws: draws.independent(AT, (0, 1), Fraction(3, 2)),
    "a chance below zero": lambda draws: draws.independent(AT, (0, 1), Fraction(-1, 2)),
    "a chance of a type of its own": lambda draws: draws.independent(AT, (0, 1), type("Half", (Fraction,), {})(1, 2)),
    "too fine a chance": lambda draws: draws.independent(AT, (0, 1), Fraction(1, 2**64 + 1)),
    "each of one named twice": lambda draws: draws.independent(AT, (0, 0, 1), Fraction(1, 2)),
    "many of two purposes": lambda draws: draws.many_subsets([AT, Address(Purpose.COHORT, 1)], [(0, 1)] * 2, [1, 1]),
    "many with too few counts": lambda draws: draws.many_subsets([AT, AT], [(0, 1)] * 2, [1]),
    "many, one too many": lambda draws: draws.many_subsets([AT], [(0, 1)], [3]),
}


def sources():
    yield Keyed(bytes(32))
    yield Seeded(Seeds.of(bytes(32), 64), Leaves((0, 1, 2), 2, 1), 0, "a test")
    yield Recorded({AT: (0,)})
    yield Enumeration([]).source("a test")


@pytest.mark.parametrize("name", ODD)
def test_all_kinds_of_draws_refuse_the_same_in_the_same_words(name):
    """Another error in a proof than in a run would tell who asks where he is."""
    told = set()
    for source in sources():
        for draws in (source, veil.Veiled(source, range(9), [])):
            with pytest.raises(Exception) as caught:
                ODD[name](draws)
            told.add((type(caught.value), str(caught.value)))
    assert {kind for kind, _ in told} <= {PluginError, UsageError}
    assert len(told) == 1, told


@pytest.mark.parametrize(
    "draw",
    [
        lambda draws: draws.sequence(AT, range(2), 60),
        lambda draws: draws.permutation(AT, range(40)),
        lambda draws: draws.subset(AT, range(60), 30),
        lambda draws: draws.weighted(AT, range(40), (1,) * 40, 20),
        lambda draws: draws.independent(AT, range(60), Fraction(1, 2)),
    ],
)
def test_one_draw_of_too_many_outcomes_is_told_whoever_catches_it(draw):
    """They were listed, for ever; and he who could catch an error there would know that he is in a proof."""

    class Catches(FatsUnlearning):
        def rewrite(self, plan, request, fresh, not_before):
            with suppress(Exception):
                draw(fresh)
            return super().rewrite(plan, request, fresh, not_before)

    with pytest.raises(BudgetError, match="outcomes"):
        exactness(Catches(), LAW, MEMBERS, [CLIENT])


def test_what_cannot_be_drawn_is_no_outcome():
    drawn = enumerate_law(lambda draws: draws.source("it").weighted(AT, (0, 1, 2), (0, 1, 3), 1))
    assert drawn == {(1,): Fraction(1, 4), (2,): Fraction(3, 4)}


@pytest.mark.parametrize("ids", [(7,), (10**6, 10**6 + 1), range(10**6, 10**6 + 2)])
def test_an_answer_does_not_tell_who_gave_it(ids):
    """A proof that remembers its answers would give the same object twice, and a run two equal ones."""
    told = set()
    for source in (OLD, Seeded(Seeds.of(bytes(32), 64), Leaves((0, 1, 2), 2, 1), 0, "a test"), _enumerated()):
        draws = veil.Veiled(source, range(3), [])
        one, again = draws.sequence(AT, ids, 1), draws.sequence(AT, ids, 1)
        inside = [one[0] is member for member in ids]
        told.add((one is again, one[0] is again[0], any(inside)))
    assert len(told) == 1, told


def _enumerated():
    return Enumeration([]).source("a test")


GONE = Seeded(Seeds.of(bytes(32), 64).keeping([]), Leaves((0, 1, 2), 2, 1), 0, "a test")
"""Draws whose seeds were destroyed: only a run can have such."""

TELLING = {
    "a client who never was": (OLD, lambda draws: draws.sequence(AT._replace(client=9), (7,), 1), PluginError),
    "a seed that is gone": (GONE, lambda draws: draws.sequence(AT, (7,), 1), EvidenceError),
    "ids without end": (_enumerated(), lambda draws: draws.sequence(AT, range(2**40), 1), BudgetError),
    "ids beyond all memory": (OLD, lambda draws: draws.sequence(AT, range(2**70), 1), PluginError),
}


@pytest.mark.parametrize("name", TELLING)
def test_an_error_of_a_draw_ends_the_rewriting_whoever_catches_it(name):
    """Some errors only a proof raises, and some only a run: who could catch one would know where he is."""
    source, ask, kind = TELLING[name]

    def rewrite(plan, request, fresh, not_before):
        with suppress(Exception):
            ask(fresh)
        return plan.erase(request, fresh, Position(1, 0))

    with pytest.raises(kind):
        through(rewrite, fresh=source)


def test_a_question_to_the_old_plan_is_no_other():
    """Also where it is the old plan that cannot answer."""

    def rewrite(plan, request, fresh, not_before):
        with suppress(Exception):
            plan.cohort(1)
        return plan.erase(request, fresh, Position(1, 0))

    with pytest.raises(EvidenceError, match="destroyed"):
        through(rewrite, plan=Plan.fresh(LAW, MEMBERS, GONE))


def test_an_index_speaks_of_what_was_executed():
    """A run that was stopped knows no more; a proof could look at rounds that nobody executed."""
    found = []

    def rewrite(plan, request, fresh, not_before):
        found.append(plan.first_involvement(request))
        return plan.erase(request, fresh, not_before)

    request = Request.of(clients=PLAN.cohort(1)[:1])
    (ahead,), *_ = foreseeing([PLAN], request)
    first = PLAN.first_involvement(request)
    for moment in (END, Position(first.round + 1, 0), first):
        for plan in (PLAN, ahead):
            rewritten(_With(rewrite), "any", plan, request, NEW, moment)
    assert found == [first, first, first, first, None, None]


@dataclass(frozen=True)
class _With:
    rewrite: object


@dataclass(frozen=True)
class Forgetful(FatsUnlearning):
    """Forgets that what was not executed must come from the fresh key."""

    def rewrite(self, plan, request, fresh, not_before):
        return super().rewrite(plan, request, fresh, END)


@pytest.mark.parametrize("request_", [CLIENT, SAMPLE], ids=str)
def test_who_ignores_where_training_stopped_is_refuted(request_):
    """He was proved where plans look ahead, and was another method in a run, where they do not."""
    law, members = UniformLaw(2, 1, 1, 1), federation((2, 2))
    assert exactness(Forgetful(), law, members, [request_]).exact
    assert not exactness(Forgetful(), law, members, [request_], not_before=[Position(2, 0)]).exact
    assert exactness(FatsUnlearning(), law, members, [request_], not_before=[Position(2, 0)]).exact


def test_an_index_made_beforehand_answers_as_a_plan_does():
    """With permuted epochs a sample is read later than its place is drawn: either was told, by who had looked."""
    law = AvailabilityLaw(2, StaticProbability(Fraction(1)), PermutedEpochs(3, 1, 3))
    found = []

    def rewrite(plan, request, fresh, not_before):
        found.append(plan.first_use(request))
        return plan.erase(request, fresh, Position(1, 0))

    for number in range(8):
        plan = Plan.fresh(law, federation((3, 3)), Keyed(bytes([number]) * 32))
        (ahead,), *_ = foreseeing([plan], SAMPLE)
        for one in (plan, ahead):
            rewritten(_With(rewrite), "any", one, SAMPLE, NEW, END)
    assert found[::2] == found[1::2]
    assert {position.step for position in found} == {1}


def test_who_ends_the_program_gave_no_plan():
    """Its exit code would be read as a verdict."""

    def rewrite(plan, request, fresh, not_before):
        raise SystemExit(0)

    with pytest.raises(PluginError, match=r"raised while rewriting the plan: SystemExit\(0\)"):
        through(rewrite)


def test_a_record_of_nothing_is_none():
    """No file would have it, so whoever reads the run would find another plan."""

    def rewrite(plan, request, fresh, not_before):
        new = FatsUnlearning().rewrite(plan, request, fresh, not_before)
        return replace(new, sources=(*new.sources[:-1], Recorded({})))

    plan = Plan.fresh(UniformLaw(1, 1, 1, 1), federation((1, 1, 1)), Keyed(bytes(32)))
    never = next(client for client in (0, 1, 2) if client not in plan.cohort(1))
    assert rewritten(_With(rewrite), "any", plan, Request.of([never]), NEW, END).sources == (*plan.sources, NEW)
