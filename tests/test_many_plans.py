"""Plans in arrays, rewriters run once for each cut, compiled draws: each beside its slow form."""

import time
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from fuaudit_plugins.fats import FatsAsPrinted, FatsUnlearning
from hypothesis import given, settings
from hypothesis import strategies as st

from fuaudit.audits.plan_law import comparison, simulate
from fuaudit.audits.plan_law.simulate import Step, Trial
from fuaudit.draws import END, START, Address, Keyed, Position, Purpose, Stream
from fuaudit.draws.columns import Derived
from fuaudit.draws.keyed import Addresses, derive, ranks_by, sequences_in_arrays, subsets_in_arrays
from fuaudit.draws.philox import compiled, in_arrays
from fuaudit.errors import PluginError
from fuaudit.plans import Plan, Request, UniformLaw
from fuaudit.plans import stacked as stacked_plans
from fuaudit.plans.cuts import Carrier, by_first_involvement
from fuaudit.plans.expanded import NONE, expand
from fuaudit.plans.involvement import involvements
from fuaudit.plans.many import Plans
from fuaudit.plans.participation import Involvement
from fuaudit.plans.plan import Segment, first_change, segment_at
from fuaudit.plans.reference import PROVED, Anew, BehindEdit, Edited, Reference
from fuaudit.plans.stacked import LazySchedule, Stack
from fuaudit.plans.telling import batches_of, participations_of, telling
from fuaudit.plans.veil import rewritten
from fuaudit.proofs.toys import federation
from fuaudit.unlearning.baselines import Noop, Retrain

KEY = bytes(range(32))
LAW, CLIENTS = UniformLaw(5, 3, 3, 2), federation((4, 3, 5, 1, 4))
REQUESTS = [Request.of(clients=[2]), Request.of(samples=[7]), Request.of(clients=[1], samples=[0, 7])]
ENDS = [END, Position(3, 0), Position(2, 2)]


@dataclass(frozen=True)
class Asks(FatsUnlearning):
    """Says that first involvement alone decides, and looks at a cohort."""

    by_first_involvement: ClassVar[bool] = True

    def rewrite(self, plan, request, fresh, not_before):
        try:
            seen = plan.cohort(1)
        except Exception:
            seen = (0,)
        return plan.restart(request, fresh) if 3 in seen else super().rewrite(plan, request, fresh, not_before)


@dataclass(frozen=True)
class Flips(FatsUnlearning):
    """Says the same, and throws a coin of its own."""

    by_first_involvement: ClassVar[bool] = True

    def rewrite(self, plan, request, fresh, not_before):
        if fresh.sequence(Address(Purpose.COUPLING, 1), range(2), 1) == (0,):
            return plan.restart(request, fresh)
        return super().rewrite(plan, request, fresh, not_before)


CALLS = [0]


@dataclass(frozen=True)
class Counts(FatsUnlearning):
    """Says the same, and does otherwise every third time: no draw tells it when."""

    by_first_involvement: ClassVar[bool] = True

    def rewrite(self, plan, request, fresh, not_before):
        CALLS[0] += 1
        return plan.restart(request, fresh) if CALLS[0] % 3 == 0 else super().rewrite(plan, request, fresh, not_before)


@dataclass(frozen=True)
class Writes(FatsUnlearning):
    """Says the same, and writes draws down."""

    by_first_involvement: ClassVar[bool] = True

    def rewrite(self, plan, request, fresh, not_before):
        return super().rewrite(plan, request, fresh, not_before).recorded({})


@dataclass(frozen=True)
class Silent(FatsUnlearning):
    """A rewriting of its own below a class that says the word: not believed."""

    def rewrite(self, plan, request, fresh, not_before):
        return plan.restart(request, fresh) if 3 in plan.cohort(1) else plan.erase(request, fresh, END)


@dataclass(frozen=True)
class Same(FatsUnlearning):
    """A subclass with the rewriting of its class."""


def plans_of(count, law=LAW, population=CLIENTS):
    return Plans.fresh(law, population, Derived(KEY, "training", range(count)))


def carried_out(unlearner, request, count=60, not_before=END, plans=None):
    plans = plans_of(count) if plans is None else plans
    fresh = Derived(KEY, "request", range(len(plans)), ("0",))
    return (
        plans,
        fresh,
        Carrier(unlearner, "it", request, not_before).carried_out(plans, fresh, *involvements(plans, request)),
    )


@pytest.mark.parametrize("not_before", ENDS)
@pytest.mark.parametrize("request_", REQUESTS, ids=str)
@pytest.mark.parametrize(
    "unlearner",
    [FatsUnlearning(), FatsAsPrinted(), Noop(), Retrain(), Same(), Silent(), Reference(), *PROVED.values(), Edited(),
     BehindEdit(Retrain()), BehindEdit(FatsUnlearning())],
    ids=repr,
)  # fmt: skip
def test_plans_are_rewritten_as_one_by_one(unlearner, request_, not_before):
    plans, fresh, after = carried_out(unlearner, request_, not_before=not_before)
    expected = [rewritten(unlearner, "it", p, request_, f, not_before) for p, f in zip(plans, fresh, strict=True)]
    assert list(after) == expected
    # again on what came out: segments are of several forms then
    again, more = Request.of(clients=[0], samples=[14]), Derived(KEY, "second", range(len(plans)))
    second = Carrier(FatsUnlearning(), "it", again, END).carried_out(after, more, *involvements(after, again))
    assert list(second) == [
        rewritten(FatsUnlearning(), "it", p, again, f, END) for p, f in zip(expected, more, strict=True)
    ]


def test_who_is_believed():
    says = [FatsUnlearning(), FatsAsPrinted(), Noop(), Retrain(), Same(), Reference(), Anew(), BehindEdit(Retrain())]
    assert all(map(by_first_involvement, says))
    assert not any(map(by_first_involvement, [Silent(), BehindEdit(Silent()), object()]))


def test_a_rewriter_is_run_once_for_each_cut(monkeypatch):
    seen = []

    @dataclass(frozen=True)
    class Noted(FatsUnlearning):
        by_first_involvement: ClassVar[bool] = True

        def rewrite(self, plan, request, fresh, not_before):
            seen.append(plan.first_involvement(request))
            return super().rewrite(plan, request, fresh, not_before)

    plans, _, after = carried_out(Noted(), REQUESTS[0], count=2000)
    cuts = {(r, s) for r, s in zip(*(found.tolist() for found in involvements(plans, REQUESTS[0])), strict=True)}
    assert len(cuts) <= len(seen) < len(cuts) + 2000 // 20
    assert len(after.streams) <= len(cuts)


@pytest.mark.parametrize("unlearner", [Asks(), Flips(), Counts(), Writes()], ids=repr)
def test_who_does_not_keep_the_word_is_refused(unlearner):
    with pytest.raises(PluginError, match="declares by_first_involvement"):
        carried_out(unlearner, REQUESTS[1], count=3000)


@pytest.mark.thorough
@pytest.mark.parametrize("places", [1, 40, 500_000])
def test_work_is_cut_by_places_and_nothing_changes(monkeypatch, places):
    trial = Trial(LAW, CLIENTS, tuple(Step(FatsUnlearning(), "fats", r) for r in (REQUESTS[1], REQUESTS[0])))
    whole = simulate.simulate(trial, KEY, range(90))
    beside = comparison.references(trial, KEY)
    compared = comparison.compare(trial, beside, KEY, range(90))
    for module in (simulate, stacked_plans):
        monkeypatch.setattr(module, "PLACES", places)
    monkeypatch.setattr("fuaudit.audits.plan_law.plan_statistics.PLACES", places)
    cut = simulate.simulate(trial, KEY, range(90))
    assert all(getattr(whole, name).tobytes() == getattr(cut, name).tobytes() for name in whole.__annotations__)
    assert comparison.compare(trial, beside, KEY, range(90)) == compared
    assert len([*simulate.chunks(trial, range(90))]) == {1: 90, 40: 45, 500_000: 1}[places]


def test_derived_sources_are_those_derived_one_by_one():
    column = Derived(KEY, "a label", [3, 141, 59], ("x", "2"))
    assert [*column] == [Keyed(derive(KEY, "a label", str(number), "x", "2")) for number in (3, 141, 59)]
    assert [*column[1:]] == [*column][1:]


def slowly(schedule):
    clients, samples = {}, {}
    for number in range(1, schedule.rounds + 1):
        drawn = schedule.round(number)
        for client in drawn.cohorts[0].tolist():
            if client != NONE:
                clients.setdefault(client, number)
        for found in (drawn.batches, drawn.cut):
            for e, ids in enumerate([] if found is None else found[0].transpose(1, 0, 2)):
                for sample in ids.reshape(-1).tolist():
                    if sample != NONE:
                        samples[sample] = min(samples.get(sample, END), Position(number, e + 1))
    return Involvement(clients, samples)


@pytest.mark.parametrize("request_", REQUESTS, ids=str)
def test_what_kept_rounds_have_of_a_request_is_found_as_one_by_one(request_, monkeypatch):
    plans, kept = plans_of(40), [number % (LAW.rounds + 1) for number in range(40)]
    cohorts = [[plan.cohort(r) for r in range(1, last + 1)] for plan, last in zip(plans, kept, strict=True)]
    expected = [
        [count(plan, request_, drawn) for plan, drawn in zip(plans, cohorts, strict=True)]
        for count in (batches_of, participations_of)
    ]
    assert any(expected[0]) == bool(request_.samples)
    assert any(expected[1])
    assert [found.tolist() for found in telling(plans, request_, kept)] == expected
    monkeypatch.setattr(Stack, "fits", lambda plans: False)
    assert [found.tolist() for found in telling(plans, request_, kept)] == expected


def test_first_involvements_are_found_as_one_by_one(poisson_plan):
    for plan in (*plans_of(20), poisson_plan):
        for schedule in (expand(plan), LazySchedule([plan])):
            assert Involvement.of(schedule) == slowly(schedule)
    assert expand(poisson_plan).cut is not None


@pytest.fixture
def poisson_plan():
    from fractions import Fraction

    from fuaudit.plans import AvailabilityLaw
    from fuaudit.plans.availability import PoissonBatches, StaticProbability

    law = AvailabilityLaw(
        6, StaticProbability(Fraction(1, 2)), PoissonBatches(3, Fraction(1, 2), 2, 1), first_all=False
    )
    return Plan.fresh(law, CLIENTS, Keyed(KEY))


WORDS = st.integers(0, 2**64 - 1)
SMALL = st.integers(0, 2**31 - 1)


@st.composite
def addresses(draw):
    count = draw(st.integers(1, 7))

    def column(of, kind=np.int64):
        return np.array(draw(st.lists(of, min_size=count, max_size=count)), dtype=kind)

    keys = tuple(column(WORDS, np.uint64) for _ in range(2))
    return Addresses(keys, column(SMALL), column(SMALL), column(SMALL) - 1, column(SMALL), np.zeros(1, dtype=np.int64))


@given(addresses(), st.integers(1, 13), st.sampled_from([13, 40, 2**31 + 7, 2**62 + 2**61 + 1, 2**63 - 1]))
@settings(deadline=None, max_examples=60)
def test_compiled_draws_are_those_in_arrays(at, count, size):
    """Large sizes reject up to every other word, so that words are drawn anew, many times."""
    fast = compiled()
    assert fast is not None, "numba belongs to the extra dev"
    sizes = np.full(len(at.round), size)
    assert np.array_equal(ranks_by(fast, at, sizes, count, False), sequences_in_arrays(at, sizes, count))
    assert np.array_equal(ranks_by(fast, at, sizes, count, True), subsets_in_arrays(at, sizes, count))
    flat = [np.ascontiguousarray(np.broadcast_to(w, sizes.shape)) for w in (*at.counters, at.keys[0], *at.keys)]
    result = np.empty((len(sizes), 4), dtype=np.uint64)
    fast.blocks(*flat, result)
    assert np.array_equal(result, in_arrays(flat))


def test_compiled_code_comes_in_when_it_pays_and_changes_nothing(monkeypatch):
    from fuaudit.draws import philox

    monkeypatch.setattr(philox, "_made", [0])
    monkeypatch.setattr(philox, "PAYS", 10**9)
    before = Stack(plans_of(300)).schedule()
    assert philox._made[0] > 0
    monkeypatch.setattr(philox, "PAYS", 0)
    assert philox.kernels(1) is compiled()
    after = Stack(plans_of(300)).schedule()
    assert np.array_equal(before.cohorts, after.cohorts)
    assert np.array_equal(before.batches, after.batches)


def test_without_numba_the_array_form_stays(monkeypatch):
    from fuaudit.draws import philox

    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(philox, "import_module", absent)
    philox.compiled.cache_clear()
    try:
        monkeypatch.setattr(philox, "PAYS", 0)
        assert philox.kernels(1) is None
        assert np.array_equal(Stack(plans_of(9)).cohorts()[0], expand(plans_of(9)[0]).cohorts[0])
    finally:
        philox.compiled.cache_clear()


def dealt_one_by_one(self, labels, draws):
    classes = np.unique(labels)
    pools = [draws.permutation(np.flatnonzero(labels == label)).tolist() for label in classes]
    hands = []
    for _ in range(self.clients):
        mixture = draws.dirichlet(np.full(len(classes), self.concentration)) + 1e-12
        hand = []
        for _ in range(len(labels) // self.clients):
            left = mixture * np.array([bool(pool) for pool in pools])
            place = int(np.searchsorted(np.cumsum(left), draws.random() * left.sum(), side="right"))
            hand.append(pools[min(place, int(np.flatnonzero(left)[-1]))].pop())
        hands.append(hand)
    return hands


@pytest.mark.parametrize("concentration", [0.01, 0.5, 100.0])
@pytest.mark.parametrize("clients", [1, 7, 60])
def test_dirichlet_deals_as_one_row_after_another(clients, concentration, monkeypatch):
    """All rows are dealt where they divide, so classes are used up on the way."""
    from fuaudit.data import partition
    from fuaudit.data.partition import Dirichlet

    monkeypatch.setattr(partition, "CELLS", 64)  # and tables are cut

    for seed in range(4):
        labels = np.random.default_rng(seed).integers(0, 5, 420) * 3
        plugin = Dirichlet(clients, concentration)
        found = plugin.deal(labels, np.random.Generator(np.random.Philox(seed)))
        assert found == dealt_one_by_one(plugin, labels, np.random.Generator(np.random.Philox(seed)))


def test_ledgers_that_grow_share_what_they_hold():
    from fuaudit.runs.ledger import Events

    first = Events([{"event": "a"}])
    second, other = first.with_one({"event": "b"}), first.with_one({"event": "c"})
    assert (first, second, other) == (
        ({"event": "a"},), ({"event": "a"}, {"event": "b"}), ({"event": "a"}, {"event": "c"}),
    )  # fmt: skip
    assert second.with_one({"event": "d"})[0] is second[0]
    assert (second[-1], second[1:], [*first], first[-5:]) == (
        {"event": "b"}, ({"event": "b"},), [{"event": "a"}], ({"event": "a"},),
    )  # fmt: skip
    with pytest.raises(IndexError):
        first[1]
    assert second != other


def _first_change(ours, theirs):
    """The dumb version: at every start of either."""
    changed = [
        at
        for name, segments in ours.items()
        for at in {s.start for s in (*segments, *theirs[name])}
        if segment_at(segments, at).origin != segment_at(theirs[name], at).origin
    ]
    return min(changed, default=END)


STREAMS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 1), st.integers(0, 1)), max_size=5
).map(
    lambda rows: (
        Segment(START, 0, 0),
        *(Segment(Position(*at), *of) for at, of in sorted({row[:2]: row[2:] for row in rows}.items()) if at != START),
    )
)


@given(STREAMS, STREAMS, STREAMS, STREAMS)
def test_the_first_change_is_where_the_first_stream_parts(one, other, third, fourth):
    ours, theirs = {Stream.COHORTS: one, Stream.BATCHES: third}, {Stream.COHORTS: other, Stream.BATCHES: fourth}
    assert first_change(ours, theirs) == _first_change(ours, theirs)


def test_the_first_change_of_many_segments_is_found_in_time():
    """It was quadratic: 8,000 segments took a minute."""
    one, other = (tuple(Segment(Position(n, step if n else 0), 0, 0) for n in range(20_000)) for step in (0, 1))
    began = time.process_time()
    assert first_change(dict.fromkeys(Stream, one), dict.fromkeys(Stream, other)) == END
    assert time.process_time() - began < 2
