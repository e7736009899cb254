"""FedREP: consensus sparsification by its exact law, what clients keep, momentum, buffers, and a federation of all."""

import json
import os
import shutil
import tomllib
from collections import defaultdict
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations, pairwise, product
from math import comb, exp, inf, isnan
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from fuaudit_plugins.conspar import Consensus, proposed, top
from fuaudit_plugins.error_feedback import ErrorFeedback
from fuaudit_plugins.fedrep import FedRep, LocalMomentum
from fuaudit_plugins.krum import Krum
from fuaudit_plugins.medians import CoordinateMedian, GeometricMedian
from fuaudit_plugins.quantise import Quantise, rounded
from fuaudit_plugins.rcgd import NormThresholding, TopK
from fuaudit_plugins.secure_sum import SecureSum, sizes
from fuaudit_plugins.sparse_sum import SparseSum
from tests_support import AUDIT_KEY, audits, broken, claimed, config, edit, holding, of_the_run, secret
from torch.nn.functional import cross_entropy

from fuaudit import load_run, train, unlearn, verify
from fuaudit.audits.lineage.audit import Lineage
from fuaudit.audits.replay.audit import Replay
from fuaudit.audits.replay.tolerance import APART_THERE
from fuaudit.budgets.conspar.law import ConSpar, probability
from fuaudit.config import resolve
from fuaudit.data.images import Digits
from fuaudit.draws import Keyed
from fuaudit.errors import UsageError
from fuaudit.plans import Population, Request
from fuaudit.plans.stage_draws import Part
from fuaudit.plugins import check_agreement, check_client_stage, check_solver, check_transport
from fuaudit.registry import build
from fuaudit.runs.ancestors import parent_of
from fuaudit.runs.ledger import other_events
from fuaudit.runs.procedure import in_words, parts_of
from fuaudit.runs.traffic import traffic
from fuaudit.testing.contexts import context_of, same, shape_of, updates_of
from fuaudit.testing.tiny import tiny_config, tiny_dataset
from fuaudit.training.events import Answered, Rejected, Released, Sent, Summed, Suspected
from fuaudit.training.exchange import Clear, Exchange, exchange_of
from fuaudit.training.execute import Procedure
from fuaudit.training.federation import require_federation
from fuaudit.training.one_round import client_half, delivered, server_half, settled
from fuaudit.training.setup import load_dataset
from fuaudit.training.solvers import Sgd
from fuaudit.training.stages import Chain, Momentum, Stateless
from fuaudit.verification.case import Case
from fuaudit.verification.evidence import Evidence
from fuaudit.workflow.prune import prune

HALF, THIRD = Fraction(1, 2), Fraction(1, 3)


# the law of what a client proposes


class OnePath:
    """Draws of one path: how many are replaced, which ranks stay and come; with the probability of each."""

    def __init__(self, replaced, stay, come):
        self.replaced, self.ranks, self.weight = replaced, {"stay": stay, "come": come}, Fraction(1)

    def binomial(self, label, trials, probability):
        r = self.replaced
        self.weight *= comb(trials, r) * probability**r * (1 - probability) ** (trials - r)
        return r

    def subset(self, label, size, count):
        self.weight /= comb(size, count)
        return torch.tensor(self.ranks[label], dtype=torch.int64).numpy()


def law(largest, columns, alpha):
    """Each set that a client can propose, with its probability, by all paths of its draws."""
    found, k = defaultdict(Fraction), len(largest)
    for r in range(k + 1):
        for stay, come in product(combinations(range(k), k - r), combinations(range(columns - k + r), r)):
            path = OnePath(r, stay, come)
            columns_of = proposed(torch.tensor(largest), columns, alpha, path)
            found[tuple(columns_of.tolist())] += path.weight
    return found


@pytest.mark.parametrize("alpha", [Fraction(0), Fraction(1, 20), HALF, Fraction(19, 20), Fraction(1)])
def test_what_is_proposed_has_the_law_that_budgets_charge(alpha):
    """Equation 18, by all paths; where k is d there is one set."""
    for columns in range(1, 7):
        assert law(list(range(columns)), columns, alpha) == {tuple(range(columns)): 1}
        for k in range(1, columns):
            largest = [(3 * place + 1) % columns if columns % 3 else columns - 1 - place for place in range(k)]
            found = law(largest, columns, alpha)
            assert sum(found.values()) == 1
            for chosen in combinations(range(columns), k):
                overlap = len({*chosen} & {*largest})
                assert found[chosen] == probability(ConSpar(columns, k, alpha), overlap)
            if alpha == 1:
                assert {*found.values()} == {Fraction(1, comb(columns, k))}


def test_what_a_client_draws_has_this_law():
    """The stage itself, in rounds enough: the number of sets of each kind is within five standard deviations."""
    rounds, stage, seen = 1500, Consensus(2, 0.5), defaultdict(int)
    row = torch.tensor([[0.1, -3.0, 2.0, 0.0, -0.2]])
    whole = context_of([2], torch.float32)
    for number in range(1, rounds + 1):
        context = replace(whole, number=number).at(Part("client", 1), stage, None)
        seen[tuple(stage.propose(row, context)[0].tolist())] += 1
    for chosen, share in law([1, 2], 5, HALF).items():
        assert abs(seen[chosen] - rounds * share) < 5 * (rounds * share) ** 0.5


def test_the_top_is_by_size_and_of_equal_ones_the_lower():
    generator = torch.Generator().manual_seed(1)
    for columns in range(1, 9):
        row = torch.randint(-2, 3, (columns,), generator=generator).to(torch.float32)
        wanted = sorted(range(columns), key=lambda place: (-abs(row[place]), place))
        for k in range(columns + 2):
            assert top(row, k).tolist() == wanted[:k]


def test_theorem_1_and_both_propositions_by_exact_expectations():
    """Three clients of four coordinates; rows and probabilities are fractions."""
    d, k, m = 4, 1, 3
    rows = [[Fraction(n) for n in numbers] for numbers in ((5, -2, 1, 0), (4, -3, 0, 1), (1, 1, -6, 2))]
    tops = [sorted(range(d), key=lambda j, row=row: (-abs(row[j]), j))[:k] for row in rows]
    apart = sum((a - b) ** 2 for a, b in zip(*rows[:2], strict=True))
    for alpha in (Fraction(0), THIRD, HALF, Fraction(1)):
        laws = [law(top, d, alpha) for top in tops]
        within = [[sum(p for s, p in own.items() if j in s) for j in range(d)] for own in laws]
        # Theorem 1, where each sends its own coordinates
        sparse = sum(
            p * q * sum(((rows[0][j] if j in s else 0) - (rows[1][j] if j in t else 0)) ** 2 for j in range(d))
            for (s, p), (t, q) in product(laws[0].items(), laws[1].items())
        )
        a, b = within[:2]
        said = sum(
            (rows[0][j] - rows[1][j]) ** 2 * a[j] * b[j]
            + rows[0][j] ** 2 * a[j] * (1 - b[j])
            + rows[1][j] ** 2 * b[j] * (1 - a[j])
            for j in range(d)
        )
        assert sparse == said
        for honest in (3, 2):  # of three; a third one that is not honest proposes nothing
            kept = [Fraction(0)] * m
            for path in product(*(laws[:honest])):
                agreed, weight = {j for s in path for j in s}, Fraction(1)
                for own, chosen in zip(laws, path, strict=False):
                    weight *= own[chosen]
                # Proposition 1, on every path
                assert sum((rows[0][j] - rows[1][j]) ** 2 for j in agreed) <= apart
                for client in range(honest):
                    kept[client] += weight * sum(rows[client][j] ** 2 for j in agreed)
            # Proposition 2
            left = exp(-float(alpha) * k * (honest - 1) / d)
            share = (d * (1 - left) + k * left) / d
            for client in range(honest):
                assert kept[client] >= share * float(sum(x * x for x in rows[client])) * (1 - 1e-12)


def test_theorem_1_as_printed_is_false_where_coordinates_follow_from_values():
    """Two clients, each (1, 0) or (0, 2), apart from each other, send their largest coordinate."""
    values = [((1, 0), HALF), ((0, 2), HALF)]
    pairs = [(a, b, p * q) for (a, p), (b, q) in product(values, values)]

    def mean(told):
        return sum(weight * told(a, b) for a, b, weight in pairs)

    def sends(row, column):
        return column in top(torch.tensor(row), 1).tolist()

    left = mean(lambda a, b: sum((a[j] * sends(a, j) - b[j] * sends(b, j)) ** 2 for j in range(2)))
    right = Fraction(0)
    for j in range(2):
        both = mean(lambda a, b, j=j: sends(a, j) and sends(b, j))
        right += mean(lambda a, b, j=j: (a[j] - b[j]) ** 2) * both
        right += mean(lambda a, b, j=j: a[j] ** 2) * mean(lambda a, b, j=j: sends(a, j) and not sends(b, j))
        right += mean(lambda a, b, j=j: b[j] ** 2) * mean(lambda a, b, j=j: sends(b, j) and not sends(a, j))
    assert (left, right) == (Fraction(5, 2), Fraction(15, 8))


# the agreement


def agreed_on(proposals, per_client=2, columns=None):
    told = []
    context = replace(context_of([0, 2, 3], torch.float64).bare(), coordinates=columns, tell=told.append)
    found = Consensus(per_client).agree([torch.tensor(one, dtype=torch.int64) for one in proposals], context)
    return found.tolist(), told


def test_what_no_client_may_propose_is_rejected_by_name():
    found, told = agreed_on([[0, 4], [1], [3, 0]])
    assert found == [0, 1, 3, 4]
    sent = [Sent(0, "coordinates", 8), Sent(2, "coordinates", 4), Sent(3, "coordinates", 8)]
    answered = [Answered("coordinates", 16), Answered("values", 32)]
    assert told == [*sent, *answered, Released("conspar", {"dim": 5, "per_client": 2, "alpha": 0.0})]
    for wrong, why in (
        ([0, 1, 2], "too many coordinates"),
        ([2, 2], "coordinates twice"),
        ([0, 5], "coordinates out of range"),
        ([-1], "coordinates out of range"),
    ):
        found, told = agreed_on([[4], wrong, [3]])
        assert (found, told[2]) == ([3, 4], Rejected(2, why))
    assert agreed_on([[2], [], []], columns=torch.tensor([0, 3]))[0] == []


def test_options_that_cannot_be():
    for options, told in (
        ((0,), "a per_client of at least 1, not 0"),
        ((3, 1.5), "an alpha from 0 to 1, not 1.5"),
        ((3, -0.1), "an alpha from 0 to 1, not -0.1"),
        ((3, 0.12345678911), "cannot draw with an alpha"),
    ):
        with pytest.raises(UsageError, match=told):
            Consensus(*options)


# rounds


CLIENT_STAGES = "error-feedback", "consensus", "quantise"
CLIENTS = [0, 1, 2, 3, 4, 5]
"""Of whom client 1 was emptied."""


def rounds(exchange, count, key=0, grid=2.0**-20, clients=CLIENTS):
    """Rounds of an exchange: what it made, memories before and after. Updates are multiples of a grid; 0 is none."""
    kept = exchange.client_stages.init(shape_of(torch.float64))
    server = exchange.server.init(shape_of(torch.float64))
    for number in range(1, count + 1):
        updates = updates_of(100 * key + number, len(clients), torch.float64)
        updates = (updates / grid).round() * grid if grid else updates
        context = context_of(clients, torch.float64, number)
        sending = client_half(exchange, updates, context, kept)
        delivery = delivered(exchange, sending)
        served = server_half(exchange, delivery, sending.context, server)
        after = settled(exchange, sending, delivery, served.answer)
        yield updates, kept, sending, delivery, served, after
        kept, server = after, served.state


def chain(*stages, **more):
    return Exchange(Chain((CoordinateMedian(), Momentum())), Chain(stages), **more)


@dataclass(frozen=True)
class SometimesInfinite(Stateless):
    """Named clients send what is no number in two of three rounds."""

    clients: tuple[int, ...] = (3, 4)

    def apply(self, updates, context, state):
        return (torch.full_like(updates, torch.inf) if context.number % 3 else -updates), state


@pytest.mark.parametrize(
    ("transport", "discards", "fails"),
    [
        (Clear(), False, False),
        (SecureSum(2), True, True),
        (SecureSum(3, smallest=3), True, True),
        (SecureSum(2, smallest=2), True, True),
        (SecureSum(2, byzantine=1), True, True),
    ],
    ids=str,
)
@pytest.mark.parametrize(("rounding", "grid"), [((), 0), ((Quantise(0.7, 6),), 2.0**-20)], ids=["any float", "rounded"])
def test_nothing_is_lost(transport, discards, fails, rounding, grid):
    """What a client keeps and what it sent are what it kept and its update: exactly, in every round.

    So it is where buffers are discarded and rounds fail, which leave model and server as they were. Byzantine clients
    know what they meant to send. Where a stage rounds, values have one binary scale.
    """
    stages = ErrorFeedback(), Consensus(1, 0.5), *rounding, SometimesInfinite()
    failed = discarded = 0
    remembered = None
    exchange = chain(*stages, transport=transport, byzantine=frozenset({len(stages) - 1}))
    for updates, before, sending, delivery, served, after in rounds(exchange, 40, grid=grid):
        meant = torch.where(torch.tensor([[client in (3, 4)] for client in CLIENTS]), -delivery.sent, delivery.sent)
        whole = sending.context.on_all(meant)
        assert torch.equal(after["0.memory"] + whole, before["0.memory"] + updates)
        lost = after["0.memory"].norm(dim=1) / (before["0.memory"] + updates).norm(dim=1)
        assert torch.allclose(after["0.lost"][:, 0], lost)
        left = int(sending.rows.isfinite().all(dim=1).sum()) - int(delivery.taken.sum())
        failed, discarded = failed + (not len(delivery.rows)), discarded + (left > 0)
        if not len(delivery.rows):
            assert not bool(delivery.sent.any() or served.row.any())
            assert torch.equal(after["0.memory"], before["0.memory"] + updates)
            assert remembered is None or same(served.state, remembered)
        remembered = served.state
    assert (discarded > 0, 0 < failed < 40) == (discards, fails)


def test_at_alpha_one_coordinates_do_not_depend_on_data():
    agreed = [
        [sending.context.coordinates.tolist() for _, _, sending, *_ in rounds(chain(ErrorFeedback(), stage), 6, key)]
        for stage in (Consensus(1, 1), Consensus(1, 0.5))
        for key in (1, 2)
    ]
    assert agreed[0] == agreed[1]
    assert agreed[2] != agreed[3]


def test_at_alpha_one_a_run_over_other_data_changes_the_same_coordinates(tmp_path):
    """The same draws over other rows, with memory: where successive models differ. At another alpha they do not agree.

    The plan of one run is executed on both: two runs never share draws, for these follow from the commitment too.
    """
    rows = tiny_dataset()
    other = replace(rows, inputs=rows.inputs.flip(0) * torch.tensor([3.0, -1.0, 0.2]), targets=(rows.targets + 1) % 3)
    same_ones = []
    for alpha in (1.0, 0.5):
        table = tiny_config(
            learner={"use": "fedrep", "rounds": 6, "cohort": 4, "steps": 1, "batch": 2, "step_size": 0.2},
            client=[{"use": "error-feedback"}, {"use": "consensus", "per_client": 1, "alpha": alpha}],
            transport={"use": "secure-sum"},
            server=[{"use": "mean"}],
        )
        run = train(table, tmp_path / f"{alpha}", data=rows, secret=secret(2))
        changed = []
        for data in (rows, other):
            models = [vector for vector, _ in Case(Evidence(run, None, data), Keyed(bytes(32))).rerun.replayed.values()]
            changed.append([(new != old).tolist() for old, new in pairwise(models)])
        assert [len(one) for one in changed] == [6, 6]
        assert all(0 < sum(one) <= 4 for one in changed[0])
        same_ones.append(changed[0] == changed[1])
    assert same_ones == [True, False]


def test_with_all_coordinates_it_is_share():
    """A robust rule over secure sums, of the same lots: bit for bit. In the clear it is the rule alone."""
    with_samples = [0, 2, 3, 4, 5]
    for alpha, transport in product((0.0, 0.3, 1), (Clear(), SecureSum(2))):
        dense, sparse = (
            rounds(Exchange(Chain((GeometricMedian(), Momentum())), Chain(stages), transport=transport), 4,
                   clients=with_samples)
            for stages in ((), (ErrorFeedback(), Consensus(5, alpha)))
        )  # fmt: skip
        for one, other in zip(sparse, dense, strict=True):
            assert torch.equal(one[4].row, other[4].row)
            assert not bool(one[5]["0.memory"].any())


def test_top_k_sends_the_largest_of_each_row_and_the_memory_keeps_the_rest():
    sparse = chain(ErrorFeedback(), TopK(2))
    for updates, before, _sending, delivery, _, after in rounds(sparse, 3):
        whole = updates + before["0.memory"]
        for row, sent in zip(whole.tolist(), delivery.sent.tolist(), strict=True):
            kept = sorted(range(5), key=lambda place, row=row: (-abs(row[place]), place))[:2]
            assert sent == [value if place in kept else 0.0 for place, value in enumerate(row)]
        assert torch.equal(after["0.memory"] + delivery.sent, whole)
    told = []
    TopK(9).apply(updates, replace(context_of(CLIENTS, torch.float64).bare(), tell=told.append), {})
    assert told[:2] == [Sent(0, "coordinates", 20), Sent(0, "values", 40)]


def test_who_has_no_samples_proposes_nothing():
    stage = Consensus(2, 0.5)
    for _, _, sending, *_ in rounds(chain(stage), 1):
        found = stage.propose(updates_of(3, 6, torch.float64), sending.context.at(Part("client"), stage, None))
        assert [len(one) for one in found] == [2, 0, 2, 2, 2, 2]


@pytest.mark.thorough
def test_contracts():
    for stage in (ErrorFeedback(), TopK(2)):
        check_client_stage(stage)
    for transport in (SecureSum(2), SecureSum(4, smallest=3)):
        check_transport(transport)
    for momentum in (0.0, 0.9):
        check_solver(LocalMomentum(momentum))
    for options in ((2, 1), (9, 0.25)):
        check_agreement(Consensus(*options))


def test_quantised_rows_are_whole_numbers_of_a_power_of_two():
    for clip, bits in ((1.0, 12), (0.7, 6), (3.0, 24), (2047 / 1024, 12)):
        stage = Quantise(clip, bits)
        assert Fraction(stage.step).numerator == 1 or Fraction(stage.step).denominator == 1
        most = 2 ** (bits - 1) - 1
        assert most * stage.step >= clip > most * stage.step / 2


# buffers


def test_sizes_of_buffers():
    for size in (2, 3, 5):
        for rows in range(40):
            found = sizes(rows, size)
            assert (sum(found), len(found)) == (rows, max(1, rows // size))
            assert max(found) - min(found) <= 1
            assert rows < size or size <= min(found) <= max(found) <= 2 * size - 1


def summed(transport, rows, came=None, number=1, clients=None, events=None):
    """A delivery of those of the rows that were not rejected, and what was told; all have samples where none is named.

    Events are put into a list, if there is one.
    """
    told, came = [], torch.ones(len(rows), dtype=torch.bool) if came is None else came
    context = context_of(clients or [(0, 2, 3, 4, 5)[place % 5] for place in range(len(rows))], rows.dtype, number)
    here = replace(context.at(Part("transport"), transport), tell=told.append, accepted=came)
    delivery = transport.deliver(rows[came], replace(here, cohort=here.cohort.among(came)))
    if events is not None:
        events += told
    return delivery, next(event for event in told if isinstance(event, Summed))


def test_means_are_exact_in_any_order():
    """Of quantised rows each mean is the rounded mean of whole numbers."""
    rows = Quantise(0.7, 24).apply(
        updates_of(1, 6, torch.float64), context_of(CLIENTS, torch.float64).at(Part("client"), Quantise(), None), {}
    )[0]
    for dtype, number in product((torch.float32, torch.float64), range(1, 4)):
        given = rows.to(dtype)
        assert torch.equal(given.to(torch.float64), rows)
        delivery, told = summed(SecureSum(3), given, number=number)
        assert told == Summed((3, 3), discarded=0, failed=False)
        assert torch.equal(delivery.sent, given)
        exact = {
            tuple(float(sum(Fraction(x) for x in column) / 3) for column in zip(*some, strict=True))
            for some in combinations(rows.tolist(), 3)
        }
        wanted = {tuple(torch.tensor(row, dtype=torch.float64).to(dtype).tolist()) for row in exact}
        assert {tuple(row) for row in delivery.rows.tolist()} <= wanted


def test_sums_are_added_in_the_order_of_places():
    """A library adds more than 32 rows in another order, which is another one for other shapes."""
    rows = updates_of(1, 96, torch.float64, 50) * 10.0 ** torch.arange(96)[:, None].remainder(7)
    means = {tuple(row) for row in summed(SecureSum(48), rows)[0].rows.tolist()}
    lot = context_of([place % 6 for place in range(96)], rows.dtype).at(Part("transport"), SecureSum(48))
    for some in lot.shared.permutation("order", 96).reshape(2, 48):
        total = torch.zeros(50, dtype=torch.float64)
        for place in sorted(some.tolist()):
            total = total + rows[place]
        assert tuple((total / 48).tolist()) in means


@pytest.mark.parametrize(("clip", "bits"), [(1.0, 3), (0.7, 6), (1.0, 12)])
def test_the_mean_of_what_is_rounded_is_the_clipped_update(clip, bits):
    """Each value goes to a neighbour, and the mean over 400 rounds is within five standard errors."""
    stage, times, total = Quantise(clip, bits), 400, torch.zeros(400, dtype=torch.float64)
    row = torch.linspace(-1.2, 1.2, 400, dtype=torch.float64)
    clipped = row.clamp(-clip, clip)
    for number in range(1, times + 1):
        context = replace(context_of([2], torch.float64), number=number).at(Part("client"), stage, None)
        (sent,), _ = stage.apply(row[None], context, {})
        assert bool(((sent - clipped).abs() < stage.step).all())
        total += sent
    assert float((total / times - clipped).abs().max()) < 5 * 0.5 * stage.step / times**0.5


def test_a_whole_number_never_goes_up():
    """Shares are multiples of 2**-53, and the largest one added to a large number is rounded up."""
    last = 1 - 2.0**-53
    values = torch.tensor([0.0, 1.0, -3.0, 2.0**23 - 1, 0.25, -0.25, 2.0**22 + 0.5, torch.nan], dtype=torch.float64)
    found = [rounded(values, torch.full_like(values, share)).tolist() for share in (0.0, 0.5, last)]
    assert torch.floor(values[3] + last) == values[3] + 1
    assert [one[:7] for one in found] == [
        [0, 1, -3, 2.0**23 - 1, 0, -1, 2.0**22],
        [0, 1, -3, 2.0**23 - 1, 0, 0, 2.0**22 + 1],
        [0, 1, -3, 2.0**23 - 1, 1, 0, 2.0**22 + 1],
    ]
    assert all(isnan(one[7]) for one in found)
    for clip in (0.0, 1e-320, 1e39, inf):
        with pytest.raises(UsageError, match="a clip from 1e-30 to 1e30"):
            Quantise(clip)


def test_what_the_paper_counts_is_of_no_more_coordinates_than_there_are():
    assert Consensus(8).printed_bytes(16, 2410) == (96 + 32 / 16) * 128 / 8
    assert Consensus(2410).printed_bytes(16, 2410) == Consensus(5000).printed_bytes(16, 2410) == 29_523  # 12.25 * 2,410
    assert Consensus(8).printed_bytes(0, 2410) == 0


def test_the_lot_is_drawn_before_anything_is_rejected():
    rows = torch.eye(6, dtype=torch.float64)
    whole = summed(SecureSum(2), rows)[0].rows
    for rejected in range(6):
        came = torch.arange(6) != rejected
        delivery, told = summed(SecureSum(2), rows, came)
        kept = [row for row in whole.tolist() if not row[rejected]]
        assert delivery.rows.tolist() == kept
        assert (told.discarded, sorted(told.rows)) == (1, [1, 2, 2])
        assert delivery.sent.sum(dim=0).tolist() == (2 * torch.tensor(kept)).sum(dim=0).tolist()
        assert len(summed(SecureSum(3), rows, came)[0].rows) == 1  # complete, unless a smallest size is said
        # with a smallest size the mean is over those who are there
        eight = torch.eye(8, dtype=torch.float64)
        opened = summed(SecureSum(4, smallest=3), eight, torch.arange(8) != rejected)[0].rows
        assert sorted(float(row.max()) for row in opened) == [1 / 4, 1 / 3]


def test_rounds_fail_where_half_of_the_buffers_may_be_bad():
    rows = torch.ones(8, 2, dtype=torch.float64)
    all_but = [torch.arange(8) >= count for count in range(4)]
    assert len(summed(SecureSum(2, byzantine=1), rows)[0].rows) == 4
    delivery, told = summed(SecureSum(2, byzantine=2), rows)
    assert (len(delivery.rows), told.failed, bool(delivery.sent.any())) == (0, True, False)
    # who was rejected by name is feared no more
    for count in (1, 2):
        delivery, told = summed(SecureSum(2, smallest=2, byzantine=2), rows, all_but[count])
        left = 4 - told.discarded
        assert (len(delivery.rows) == left) == (not told.failed) == (2 * (2 - count) < left)
    assert not len(summed(SecureSum(2), rows[:1])[0].rows)
    assert len(summed(SecureSum(5), rows[:3])[0].rows) == 1


@pytest.mark.parametrize(("size", "smallest", "least"), [(3, "complete", 3), (3, 3, 3), (5, "complete", 3), (5, 4, 4)])
def test_no_sum_is_of_two_where_sizes_are_three_or_more(size, smallest, least):
    """A round of two fails there: the model would be the sum, and each has her own row. Client 1 has no samples."""
    transport = SecureSum(size, smallest)
    rows, others = updates_of(1, 6, torch.float64), [0, 2, 3, 4, 5, 0]
    for number, count, empty in product(range(1, 4), range(1, 6), (0, 1)):
        clients = [1, *others][1 - empty :][:count]
        delivery, told = summed(transport, rows[:count], number=number, clients=clients)
        assert len(delivery.rows) == (count - empty >= least)
        assert told.failed == (not len(delivery.rows)) == (not bool(delivery.sent.any()))
    assert transport.rows_left(2, 2) == 0
    assert transport.buffers(2)[0][1] > 2
    assert transport.least_trained == least
    with pytest.raises(UsageError, match="every round of 2 would fail: at most 0 of its buffers count, for each needs"):
        transport.require_places(2, 2)


def test_sums_of_two_are_asked_for_by_a_size_of_two():
    assert SecureSum(2).least_trained == SecureSum(2, smallest=2).least_trained == 2
    assert SecureSum(2).buffers(2) == [(2, 2)]
    with pytest.raises(UsageError, match="a smallest of at least 3 where the size is 3 or more"):
        SecureSum(3, smallest=2)


def test_who_has_no_samples_hides_nobody():
    """A buffer is opened where enough with samples are in it; its mean is over all, an emptied client among them."""
    rows = updates_of(1, 6, torch.float64)
    for number, transport in product(range(1, 13), (SecureSum(2), SecureSum(3), SecureSum(6))):
        size, fewest = transport.size, min(3, transport.size)
        delivery, told = summed(transport, rows, number=number, clients=CLIENTS)
        lot = context_of(CLIENTS, torch.float64, number).at(Part("transport"), transport).shared
        buffers = lot.permutation("order", 6).reshape(-1, size).tolist()
        opened = [sorted(some) for some in buffers if len({*some} - {1}) >= fewest]
        assert opened == [sorted(some) for some in buffers if 1 not in some or size == 6]
        assert (told.discarded, told.rows) == (len(buffers) - len(opened), (size,) * len(buffers))
        assert torch.allclose(delivery.rows, torch.stack([rows[some].mean(dim=0) for some in opened]), rtol=1e-15)
        sent = sorted(place for some in opened for place in some)
        assert torch.equal(delivery.sent[sent], rows[sent])
        assert int(delivery.sent.any(dim=1).sum()) == len(sent)
    lonely, told = summed(SecureSum(2, smallest=2), rows[:2], clients=[0, 1])
    assert (len(lonely.rows), told.failed) == (0, True)


def test_who_took_no_step_hides_nobody():
    """As where a batch was drawn empty: the row is then what the memory holds, which may be nothing."""
    context = context_of([0, 2, 3], torch.float64)
    idle = replace(context.cohort, steps=torch.tensor([2, 0, 2]))
    assert idle.trained.tolist() == [True, False, True]
    for transport in (SecureSum(3), SparseSum(1.0)):
        here = replace(context, cohort=replace(idle, steps=torch.tensor([2, 0, 0]))).at(Part("transport"), transport)
        delivery = transport.deliver(updates_of(1, 3, torch.float64), here)
        assert not len(delivery.rows)
        assert not bool(delivery.sent.any())


@pytest.mark.parametrize("bad", [torch.inf, -torch.inf, torch.nan, 1.5e308])
def test_a_sum_that_is_not_finite_is_discarded_and_its_clients_are_suspected(bad):
    """Nobody behind sums knows whose row it was; so many buffers hold so many Byzantine clients at least."""
    rows, clients = updates_of(1, 8, torch.float64), [0, 2, 3, 4, 5, 0, 2, 3]
    rows[2, 1] = rows[3, 1] = bad
    shared = 0
    for number in range(1, 30):
        lot = context_of(clients, torch.float64, number).at(Part("transport"), SecureSum(2)).shared
        buffers = [sorted(some) for some in lot.permutation("order", 8).reshape(-1, 2).tolist()]
        wrong = [some for some in buffers if (some == [2, 3] if bad == 1.5e308 else {*some} & {2, 3})]
        shared += len(wrong) == 1
        for feared in range(4):
            delivery, told = summed(SecureSum(2, byzantine=feared), rows, None, number, clients, events := [])
            names = [tuple(sorted({clients[place] for place in some})) for some in wrong]
            assert events[:-1] == [Suspected(one, "not finite") for one in names]
            failed = 2 * max(0, feared - len(wrong)) >= 4 - len(wrong)
            assert told == Summed((2,) * 4, len(wrong), failed)
            taken = [] if failed else [some for some in buffers if some not in wrong]
            assert torch.equal(delivery.sent, torch.zeros_like(rows).index_copy_(0, *came(rows, taken)))
            assert len(delivery.rows) == len(taken)
            assert bool(delivery.rows.isfinite().all())
    assert 0 < shared < 29


def came(rows, buffers):
    """Places of buffers, and the rows there."""
    places = torch.tensor([place for some in buffers for place in some], dtype=torch.int64)
    return places, rows[places]


def test_what_can_never_deliver_is_refused(tmp_path):
    for options, left in (({"byzantine": 1}, 2), ({"smallest": 3}, 0)):
        with pytest.raises(UsageError, match=f"every round of 4 would fail: at most {left} of its buffers count"):
            trained(tmp_path / "run", transport={"use": "secure-sum", "size": 2} | options)
    for options in ((1,), (2, 1), (2, 2, -1)):
        with pytest.raises(UsageError, match="secure-sum needs a size"):
            SecureSum(*options)


def test_what_can_never_deliver_for_want_of_samples_is_refused():
    """Of so many participations with samples so many buffers count at most: the lot that is best for them."""
    for places, trained, options in product(range(9), range(9), ({}, {"smallest": 2}, {"smallest": 3}, {"size": 4})):
        transport = SecureSum(**options)
        fewest = min(transport.size, 3) if transport.smallest == "complete" else transport.smallest
        best, left = 0, trained
        for size in sizes(places, transport.size):
            if size >= fewest and left >= fewest:
                best, left = best + 1, left - fewest
        assert trained > places or transport.rows_left(places, trained) == best
        for feared in range(4 if trained <= places else 0):
            asked = replace(transport, byzantine=feared)
            if 2 * feared < best:
                asked.require_places(places, trained)
            else:
                with pytest.raises(UsageError, match=f"at most {best} of its buffers count"):
                    asked.require_places(places, trained)
    assert [SparseSum(0.5).rows_left(4, trained) for trained in range(5)] == [0, 0, 1, 1, 1]
    SparseSum(0.5).require_places(4, 2)
    with pytest.raises(UsageError, match="two clients with samples at least, and of 2,000 at most, not of 1"):
        SparseSum(0.5).require_places(4, 1)


def test_a_federation_with_one_client_that_has_samples_is_refused(tmp_path):
    samples = {0: (0, 1, 2), 1: (), 2: (), 3: ()}
    for transport, told in (("secure-sum", "3 of them without samples, would fail"), ("sparse-sum", "not of 1")):
        options = {} if transport == "secure-sum" else {"alpha": 0.5}
        resolved = resolve(
            tiny_config(learner=ALL_FOUR, transport={"use": transport} | options, server=[{"use": "mean"}])
        )
        parts = exchange_of(resolved), Sgd(), build("learners", resolved.learner).law
        require_federation(resolved, *parts, Population(dict.fromkeys(samples, (0, 1))))
        with pytest.raises(UsageError, match=told):
            require_federation(resolved, *parts, Population(samples))


@pytest.mark.parametrize("transport", ["secure-sum", "test-sums"])
def test_a_rule_that_gets_too_few_sums_for_want_of_samples_is_refused(monkeypatch, transport):
    """Four participations are two sums at most; of three with samples one sum counts, whatever the transport says."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "stages"))
    rule = [{"use": "norm-thresholding", "trim": 1}]
    resolved = resolve(tiny_config(learner=ALL_FOUR, transport={"use": transport}, server=rule))
    parts = exchange_of(resolved), Sgd(), build("learners", resolved.learner).law
    samples = {0: (0, 1), 1: (0, 1), 2: (0,), 3: (1,)}
    require_federation(resolved, *parts, Population(samples))
    with pytest.raises(UsageError, match=r"every round of 4 would fail: .* needs at least 2 rows, and gets 1 at most"):
        require_federation(resolved, *parts, Population(samples | {3: ()}))


ALL_FOUR = {"use": "fedrep", "rounds": 1, "cohort": 4, "steps": 1, "batch": 2, "step_size": 0.2}


# runs


def trained(folder, learner=(), clients=4, **more):
    options = {"use": "fedrep", "rounds": 3, "cohort": 4, "steps": 2, "batch": 4, "step_size": 0.1} | dict(learner)
    table = config(learner=options, partition={"use": "iid", "clients": clients}, **more)
    table["run"] = {"checkpoint_every": 1, "engine": "reference", "device": "cpu", "dtype": "float64"}
    return train(table, folder, secret=secret(2))


def test_memories_that_do_not_fit_are_refused_before_training(tmp_path, monkeypatch):
    """Two tables of 4 x 650 numbers of 8 bytes, each before and after a round, a share of each client, and updates."""
    parts = {"client": [{"use": "error-feedback"}, {"use": "consensus", "per_client": 9}]}
    needed = (2 * 2 + 1) * 4 * 650 * 8 + 2 * 4 * 8
    asked = {"SC_PAGE_SIZE": 8, "SC_PHYS_PAGES": needed // 8 - 1}
    monkeypatch.setattr(os, "sysconf", asked.get)
    with pytest.raises(UsageError, match=r"needs at least 102 KiB of memory, and this machine has 102 KiB") as refused:
        trained(tmp_path / "run", **parts)
    assert not (tmp_path / "run").exists()
    for what in ("memory of the client stage 'error-feedback', 4 x 650", "momenta of the solver 'local-momentum', 4 x"):
        assert f"41 KiB for {what}" in str(refused.value)
    assert "20 KiB for the updates of a round, 4 x 650" in str(refused.value)
    asked["SC_PHYS_PAGES"] += 1
    run = trained(tmp_path / "run", **parts)
    asked["SC_PHYS_PAGES"] = 0
    with pytest.raises(UsageError, match="needs at least"):
        unlearn(run, "retrain", Request.of([0]), tmp_path / "child")
    monkeypatch.delattr(os, "sysconf")  # some operating systems do not tell
    assert unlearn(run, "retrain", Request.of([0]), tmp_path / "child").is_child


def test_momentum_is_carried_from_round_to_round(tmp_path):
    """Equation 180, by hand."""
    run = trained(tmp_path / "run", server=[{"use": "mean"}], solver={"use": "local-momentum", "momentum": 0.8})
    data, (model, _) = Digits().load(None), run.checkpoint(0)
    inputs, targets = data.inputs.to(torch.float64), data.targets
    momenta = dict.fromkeys(range(4), torch.zeros_like(model))
    for number in range(1, 4):
        ends = []
        for client in run.plan.cohort(number):
            w = model.clone()
            for step in (1, 2):
                rows = list(run.plan.batch(number, step, client, 0))
                w.requires_grad_()
                answers = inputs[rows].flatten(1) @ w[:640].view(10, 64).T + w[640:]
                (gradient,) = torch.autograd.grad(cross_entropy(answers, targets[rows]), w)
                momenta[client] = 0.8 * momenta[client] + 0.2 * gradient
                w = w.detach() - 0.1 * momenta[client]
            ends.append(w)
        model = torch.stack(ends).mean(dim=0)
        stored, state = run.checkpoint(number)
        assert torch.allclose(stored, model, rtol=1e-10, atol=1e-12)
        wanted = torch.stack([momenta[client] for client in range(4)])
        assert torch.allclose(state["client.solver.momenta"], wanted, rtol=1e-10, atol=1e-12)


def test_limits_are_runs_without_the_parts(tmp_path):
    """k = d is as without the stages, and no momentum is plain SGD: bit for bit."""
    dense = [{"use": "error-feedback"}, {"use": "consensus", "per_client": 650, "alpha": 0.25}]
    pairs = (
        ({"client": dense}, {}),
        ({"solver": {"use": "local-momentum", "momentum": 0.0}}, {"solver": {"use": "sgd"}}),
    )
    for number, pair in enumerate(pairs):
        one, other = (trained(tmp_path / f"{number}-{place}", **more) for place, more in enumerate(pair))
        assert torch.equal(one.model, other.model)
    assert {len(one.plan.cohort(number)) for number in (1, 2, 3)} == {4}


def test_the_example_trains_and_its_round_is_drawn(tmp_path, fuaudit):
    table = tomllib.loads((Path(__file__).parents[1] / "examples" / "fedrep.toml").read_text())
    table["learner"]["rounds"] = 12  # of 60, for time
    run = train(table, tmp_path / "run", secret=bytes(32))
    assert run.metrics[-1]["test_accuracy"] > run.metrics[0]["test_accuracy"] + 0.2
    parts = ["local-momentum", *CLIENT_STAGES, "secure-sum", "geometric-median"]
    assert [part["use"] for part in parts_of(run.config)] == parts
    assert f"  round         {in_words(run.config)}; clients' secrets" in fuaudit("show", run.path)[1]


@pytest.mark.thorough
def test_a_federation_of_all_parts_forgets(tmp_path, monkeypatch, quick):
    """A client: everybody was in round 1, so it starts anew there. A sample: rounds before it are kept."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "stages"))
    client = [
        {"use": "error-feedback"},
        {"use": "test-flip", "clients": [3]},
        {"use": "consensus", "per_client": 20, "alpha": 0.5},
        {"use": "quantise", "clip": 0.5},
        {"use": "test-infinite", "clients": [4]},
    ]
    buffers = {"use": "secure-sum", "size": 2, "byzantine": 1}
    server = [{"use": "coordinate-median"}, {"use": "momentum"}]
    run = trained(
        tmp_path / "run", {"rounds": 2, "cohort": 8, "steps": 1}, 8, client=client, transport=buffers, server=server
    )
    assert audit_of(run, quick) == FINE
    assert [event | {"rows": sorted(event["rows"])} for event in told_of(run, "summed")] == [SUMMED] * 2
    assert told_of(run, "released") == [RELEASED] * 2
    assert not told_of(run, "rejected")
    suspected = told_of(run, "suspected")
    assert all(len(event["clients"]) == 2 and 4 in event["clients"] for event in suspected)
    assert [event | {"clients": []} for event in suspected] == [SUSPECTED] * 2
    late = next(sample for sample, at in sorted(run.plan.index.samples.items()) if at.round == 2)
    for request, first in ((Request.of([5]), 1), (Request.of(samples=[late]), 2)):
        folder = tmp_path / f"from-{first}"
        shutil.copytree(run.path, folder / "parent")
        child = unlearn(folder / "parent", "fats", request, folder / "child")
        assert child.plan.first_change(run.plan).round == first
        assert len(told_of(child, "summed")) == 3 - first
        result, found = audits(child)
        assert result.verdict == "PASS", {name: (f.verdict, f.shows, f.details) for name, f in found.items()}
        pruned, _ = prune(child)
        assert audit_of(pruned, quick) == FINE
        assert torch.equal(pruned.model, child.model)
    # an erased client's momentum and memory went with it
    assert child.checkpoint(2)[1]["client.0.memory"].shape == (8, 650)
    assert load_run(tmp_path / "from-1" / "child").checkpoint(2)[1]["client.solver.momenta"].shape == (7, 650)


FINE = dict.fromkeys(("integrity", "replay", "provenance", "lineage"), "PASS")
SUMMED = {"kind": "summed", "part": "transport", "rows": [2, 2, 2, 2], "discarded": 1, "failed": False}
SUSPECTED = {"kind": "suspected", "part": "transport", "clients": [], "why": "not finite"}
CONSPAR = {"dim": 650, "per_client": 20, "alpha": 0.5}
RELEASED = {"kind": "released", "part": "client.2", "mechanism": "conspar", "parameters": CONSPAR}


def test_suspects_are_named_in_ledgers(tmp_path, monkeypatch, quick):
    """Also of an erased client, by what a prune leaves; what is finite may be otherwise on another platform."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "stages"))
    parts = {"transport": {"use": "secure-sum", "byzantine": 1}, "server": [{"use": "mean"}]}
    client = [{"use": "test-infinite", "clients": [4]}]
    run = trained(tmp_path / "run", {"rounds": 2, "cohort": 8, "steps": 1}, 8, client=client, **parts)
    assert {event["kind"] for kind in ("suspected", "rejected") for event in told_of(run, kind)} == {"suspected"}
    told = {
        line["round"]: [e for e in line["told"] if e["kind"] != "suspected"] for line in run.ledger.of_kind("round")
    }
    assert [other_events(run.ledger, told, range(1, 3), everywhere) for everywhere in (False, True)] == [1, 0]
    child = unlearn(run, "fats", Request.of([4]), tmp_path / "child")
    assert not told_of(child, "suspected")
    pruned, _ = prune(child)
    (found,) = (one for one in verify(pruned, quick, key=AUDIT_KEY, save=False).findings if one.audit == "lineage")
    assert found.verdict == "PASS"
    told = "run/ledger.jsonl: holds what stages told of 2 rounds, also of erased clients"
    assert told in [str(copy) for copy in found.copies]


@pytest.mark.thorough
@pytest.mark.parametrize("whose", [4, 2], ids=["of a Byzantine client", "of an honest one"])
def test_erased_rows_that_are_still_used_show_behind_sums(tmp_path, monkeypatch, quick, whose):
    """A buffer that is not finite is discarded. An update from an erased row makes the replayed model NaN."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "stages"))
    client = [
        {"use": "error-feedback"},
        {"use": "consensus", "per_client": 20},
        {"use": "test-infinite", "clients": [4]},
    ]
    buffers = {"use": "secure-sum", "size": 2, "byzantine": 1}
    parts = {"client": client, "transport": buffers, "server": [{"use": "coordinate-median"}]}
    run = trained(tmp_path / "run", {"rounds": 2, "cohort": 8, "steps": 1, "batch": 1000}, 8, **parts)
    assert len(told_of(run, "suspected")) == 2
    mine = sorted(run.plan.retained.samples[whose])
    for name, request in (("client", Request.of([whose])), ("sample", Request.of(samples=mine[:1]))):
        child = unlearn(run, "noop", request, tmp_path / name)
        assert torch.equal(child.model, run.model)
        found = audit_of(child, quick)
        assert found["replay"] == "FAIL", found
        case = Case(Evidence(child, run, load_dataset(child.config, None)), Keyed(AUDIT_KEY))
        replayed = [vector for vector, _ in case.rerun.replayed.values()]
        assert bool(replayed[-1].isnan().all())


def audit_of(run, spec):
    findings = verify(run, spec, key=AUDIT_KEY, save=False).findings
    return {finding.audit: str(finding.verdict) for finding in findings}


def told_of(run, kind):
    rounds_told = [line.get("told", []) for line in run.ledger.of_kind("round")]
    return [event for told in rounds_told for event in told if event["kind"] == kind]


# forgetting


def test_what_forgetting_costs_is_said_before_and_after(tmp_path, fuaudit):
    """A client: everybody is in round 1, so all is computed anew. A sample: rounds before its first batch are kept."""
    run = trained(tmp_path / "run", {"rounds": 5, "steps": 2, "batch": 100})
    said = fuaudit("show", run.path)[1]
    everybody = "everybody is in round 1, so all 5 rounds are computed anew, about 30 client steps"
    assert f"forgetting one more client: {everybody}" in said
    late = max(run.plan.index.samples.items(), key=lambda item: item[1].round)
    assert late[1].round > 1
    owner = run.plan.retained.owner[late[0]]
    place = sorted(run.plan.retained.samples[owner]).index(late[0])
    for options, first, steps in (
        (("--client", "3"), 1, 2 * 3 * 5),
        (("--sample", f"{owner}:{place}"), late[1].round, 2 * 4 * (6 - late[1].round)),
    ):
        made = tmp_path / options[0].strip("-")
        code, out, err = fuaudit("unlearn", run.path, "--with", "fats", *options, "--out", made, "--json")
        assert code == 0, err
        computed = {"from_round": first, "rounds": 6 - first, "client_steps": steps, "drawn_as_before": 0}
        assert json.loads(out)["computed_anew"] == computed
        rounds = "1 round" if first == 5 else f"{6 - first} rounds"
        assert f"computed anew from round {first} on: {rounds}, {steps} client steps" in fuaudit("show", made)[1]


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["retrain", "fats"])
@pytest.mark.parametrize("buffers", [True, False], ids=["sums", "rows"])
def test_an_erasure_that_leaves_a_rule_too_few_rows_is_carried_out(tmp_path, fuaudit, quick, method, buffers):
    """All rounds fail, and the model is the initial one: nobody's erasure hangs on who else is left."""
    transport = {"use": "secure-sum", "size": 2, "byzantine": 1} if buffers else {"use": "clear"}
    run = trained(
        tmp_path / "run",
        {"rounds": 2, "cohort": 8, "steps": 1},
        8,
        client=[{"use": "error-feedback"}, {"use": "quantise", "clip": 0.5}],
        transport=transport,
        server=[{"use": "krum", "byzantine": 1 if buffers else 5}, {"use": "momentum"}],
    )
    assert "failed" not in fuaudit("show", run.path)[1]
    made = tmp_path / "child"
    code, out, err = fuaudit("unlearn", run.path, "--with", method, "--client", "5", "--out", made)
    assert code == 0, err
    told = "failed        all rounds from 1 on: nothing was applied, and the model is the initial one"
    assert told in out
    assert json.loads(fuaudit("show", made, "--json")[1])["failed_rounds"] == [1, 2]
    child = load_run(made)
    failed = [{"kind": "failed", "part": "exchange", "why": "too few rows"}] * 2
    assert told_of(child, "failed") == ([] if buffers else failed)
    assert [event["failed"] for event in told_of(child, "summed")] == [True] * (2 if buffers else 0)
    vector, state = child.checkpoint(2)
    assert torch.equal(vector, child.checkpoint(0)[0])
    assert not state["server.1.velocity"].any()
    assert bool((state["client.0.lost"] == 1).all())  # whole updates, of all
    result, found = audits(child)
    assert result.verdict == "PASS", {name: (f.verdict, f.shows, f.details) for name, f in found.items()}
    # a tombstone's ledger tells of failed rounds, too
    after = unlearn(child, "retrain", Request.of([6]), tmp_path / "after")
    assert audit_of(prune(after)[0], quick) == FINE


def test_an_erasure_that_leaves_too_few_buffers_says_so(tmp_path, fuaudit):
    """The transport fails the rounds; rounds before are kept where the sample was in none of them."""
    buffers = {"use": "secure-sum", "size": 2, "byzantine": 1}
    run = trained(tmp_path / "run", {"rounds": 2, "cohort": 6, "steps": 1}, 6, transport=buffers)
    code, out, err = fuaudit("unlearn", run.path, "--with", "fats", "--client", "5", "--out", tmp_path / "child")
    assert code == 0, err
    assert "all rounds from 1 on: nothing was applied, and the model is the initial one" in out


def test_an_unlearning_that_is_refused_in_a_round_says_how_to_go_on(tmp_path, fuaudit, monkeypatch):
    """A rule of another package raises where it has too few rows; it says so in the round, and not before."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "stages"))
    run = trained(tmp_path / "run", server=[{"use": "test-of-four"}])
    child = tmp_path / "child"
    asked = "unlearn", run.path, "--client", "1", "--out", child, "--with"
    code, _, err = fuaudit(*asked, "retrain")
    assert (code, "four rows are needed, and there are 3" in err) == (2, True), err
    again = f"fuaudit resume {child}"
    assert f"What was complete is kept in {child}. Remove it to try again otherwise, or go on with: {again}" in err
    code, _, err = fuaudit(*asked, "noop")
    assert (code, f"{child} exists already: a run was begun there and did not end" in err) == (2, True), err
    assert f"Finish it: {again}" in err
    assert "What was complete" not in err
    code, _, err = fuaudit("resume", child)
    assert (code, "four rows are needed" in err, "What was complete" in err) == (2, True, False), err
    shutil.rmtree(child)
    code, _, err = fuaudit(*asked, "noop")
    assert code == 0, err


def test_who_was_never_drawn_costs_nothing(tmp_path, fuaudit):
    run = trained(tmp_path / "run", {"rounds": 1, "steps": 1})
    never = min({*run.plan.retained.owner} - {*run.plan.index.samples})
    child = unlearn(run, "fats", Request.of(samples=[never]), tmp_path / "child")
    computed = json.loads(fuaudit("show", child.path, "--json")[1])["computed_anew"]
    assert computed == {"from_round": None, "rounds": 0, "client_steps": 0, "drawn_as_before": 0}
    assert "computed anew" not in fuaudit("show", child.path)[1].partition("forgetting")[0]


def test_fewer_than_all_start_anew_later():
    population = Population({client: tuple(range(32 * client, 32 * client + 32)) for client in range(32)})
    everybody, some = (FedRep(60, cohort, 5, 25, 0.1).stability(population) for cohort in (32, 8))
    assert everybody[0].endswith(f"all 60 rounds are computed anew, about {60 * 31 * 5:,} client steps")
    anew = sum(1 - Fraction(3, 4) ** number for number in range(1, 61))
    assert f"on average {float(anew):.1f} of 60 rounds" in some[0]


ABRUPT = {
    "consensus": {"client": [{"use": "consensus", "per_client": 650}]},
    "quantise": {"client": [{"use": "quantise", "clip": 4.0, "bits": 24}]},
    "top-k": {"client": [{"use": "top-k", "per_client": 650}]},
    "krum": {"server": [{"use": "krum", "byzantine": 0}]},
    "multi-krum": {"server": [{"use": "multi-krum", "byzantine": 0}]},
    "norm-thresholding": {"server": [{"use": "norm-thresholding", "trim": 1}]},
    "spectral-filter": {"server": [{"use": "spectral-filter", "sigma": 9.0}]},
    "coordinate-attack": {
        "client": [
            {"use": "error-feedback"},
            {"use": "coordinate-attack", "clients": [0], "proposes": "smallest"},
        ]
    },
}


@pytest.mark.parametrize("part", [*ABRUPT, "none"])
def test_elsewhere_no_tolerance_judges_what_ranks_or_rounds(tmp_path, part):
    """Bits of another platform within the tolerance: a chain without such a part passes, no other one does."""
    changes = {"server": [{"use": "mean"}], "solver": {"use": "sgd"}} | ABRUPT.get(part, {})
    run = trained(tmp_path / "run", {"rounds": 2, "steps": 2, "batch": 8}, **changes)
    child = unlearn(run, "fats", Request.of([3]), tmp_path / "child")
    vector, state = child.checkpoint(2)
    models = {number: child.checkpoint(number) for number in child.checkpoints}
    moved = holding(child.path, models | {2: (vector.nextafter(vector + 1), state)})
    claimed(run.path, canary="0" * 64)
    claimed(moved.path, canary="0" * 64)
    finding = verify(child.path, of_the_run(), key=AUDIT_KEY, save=False).findings
    found = {one.audit: one for one in finding}["replay"]
    if part == "none":
        assert found.verdict == "PASS", (found.shows, found.details)
    else:
        assert found.verdict == "INCONCLUSIVE"
        assert f"{part!r} turns last bits into other models: no tolerance could tell." in found.shows


@pytest.mark.parametrize("part", [*ABRUPT, "none"])
def test_elsewhere_a_choice_may_make_the_parents_model(tmp_path, part):
    """Parent and child chose one row on the run's platform, and a near tie falls otherwise here: that refutes nothing.

    Where nothing ranks, rounds or chooses, two plans do not land on one model.
    """
    changes = {"server": [{"use": "mean"}], "solver": {"use": "sgd"}} | ABRUPT.get(part, {})
    run = trained(tmp_path / "run", {"rounds": 2, "steps": 2, "batch": 8}, **changes)
    child = unlearn(run, "fats", Request.of([3]), tmp_path / "child")
    vector, state = child.checkpoint(2)
    chosen = vector.nextafter(vector + 1)
    above, below = ({number: one.checkpoint(number) for number in one.checkpoints} for one in (run, child))
    above = holding(run.path, above | {2: (chosen, run.checkpoint(2)[1])})
    holding(child.path, below | {2: (chosen, state)})
    edit(child.path, "run.json", parent=child.info["parent"] | {"digest": claimed(above.path, canary="0" * 64).digest})
    child = claimed(child.path, canary="0" * 64)
    rows = load_dataset(child.config, None)
    case = Case(Evidence(child, parent_of(child), rows), Keyed(AUDIT_KEY))
    for found in (Replay().examine(case), Lineage().examine(case)):
        assert any("after round 2 the stored model is that of run" in line for line in found.details), found
        if part == "none":
            assert found.verdict == "FAIL"
            assert APART_THERE in found.assumptions
        else:
            assert found.verdict == "INCONCLUSIVE"
            assert f"{part!r} turns last bits into other models: no tolerance could tell." in found.shows
            assert "Stored models are an ancestor's, bit for bit" in found.shows


@dataclass(frozen=True)
class Signs(Sgd):
    """A solver that sends signs would say so."""

    abrupt: ClassVar[bool] = True


def test_a_solver_may_say_that_it_chooses():
    exchange = Exchange(Chain((Krum(byzantine=0),)))
    assert Procedure(torch.nn.Flatten(), exchange, lambda number: 0.1).abrupt == ("aggregator 'krum'",)
    assert Procedure(torch.nn.Flatten(), exchange, lambda number: 0.1, Signs()).abrupt[0] == "Signs"


def test_a_rule_that_leaves_nothing_out_is_not_abrupt():
    """Only the order of its sum is chosen: it must not turn a refutation into a rule that says nothing."""
    assert [NormThresholding(trim).abrupt for trim in (0, 0.0, 1, 0.1)] == [False, False, True, True]


# traffic


def test_traffic_is_counted_from_what_stages_told(tmp_path, fuaudit, monkeypatch):
    """By hand: coordinates are numbers of 4 bytes, values those of the run or what rounding makes of them."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "stages"))
    three = [{"use": "error-feedback"}, {"use": "consensus", "per_client": 5}]
    absent = {"use": "test-infinite", "clients": [0, 1, 2]}
    buffers = {"use": "secure-sum", "size": 2}
    for name, changes in {
        "float64": {"client": three, "transport": buffers},
        "rounded": {"client": [*three, {"use": "quantise", "bits": 12}], "transport": buffers},
        "failed": {"client": [*three, absent], "transport": buffers},
        "own": {"client": [{"use": "top-k", "per_client": 5}], "server": [{"use": "mean"}]},
        "plain": {"server": [{"use": "mean"}]},
    }.items():
        run = trained(tmp_path / name, **changes)
        agreed = [event["size"] // 4 for event in told_of(run, "answered") if event["what"] == "coordinates"]
        assert len(agreed) == (3 if "client" in changes and name != "own" else 0)
        assert all(5 <= one <= 20 for one in agreed)
        if name in ("float64", "rounded"):
            changed = [int((run.checkpoint(n)[0] != run.checkpoint(n - 1)[0]).sum()) for n in range(1, 4)]
            assert all(one <= most for one, most in zip(changed, agreed, strict=True))
        by_hand = {
            "float64": lambda c: (20 + 8 * c, 12 * c),
            "rounded": lambda c: (20 + (12 * c + 7) // 8, 12 * c),
            "failed": lambda c: (20 + 8 * c, 4 * c),
            "own": lambda _: (60, 8 * 650),
            "plain": lambda _: (8 * 650, 8 * 650),
        }[name]
        pairs = [by_hand(one) for one in agreed or [0] * 3]
        found = traffic(run)
        assert (found.up, found.down) == tuple(4 * sum(column) for column in zip(*pairs, strict=True))
        assert found.participations == 12
        bits = None if not agreed else 12 * (96 + 32 / 4) * 4 * 5 / 8
        assert found.printed == bits
        assert found.table()["up_each"] == pytest.approx(found.up / 12, abs=0.05)
        shown = fuaudit("show", run.path)[1]
        assert f"traffic       a client and round {found.table()['up_each']:,.0f} B up, " in shown
        assert ("FedREP's paper counts" in shown) == bool(agreed)
        assert json.loads(fuaudit("show", run.path, "--json")[1])["traffic"] == found.table()
    run = load_run(tmp_path / "rounded")
    verify(run, of_the_run(), key=AUDIT_KEY)
    assert fuaudit("report", run.path, "--format", "md", "--out", tmp_path / "report.md")[0] == 0
    written = (tmp_path / "report.md").read_text()
    each = traffic(run).table()
    assert f"sends {each['up_each']:,.0f} B a round and is sent {each['down_each']:,.0f} B" in written
    assert "FedREP's paper counts 260 B" in written


def test_each_of_two_agreements_is_sent_back_and_values_once(tmp_path):
    """Clients are sent what every agreement leaves, and in the end the values of the last."""
    client = [{"use": "error-feedback"}, {"use": "consensus", "per_client": 9}, {"use": "consensus", "per_client": 2}]
    run = trained(tmp_path / "run", client=client, transport={"use": "secure-sum", "size": 2})
    agreed = {
        part: [event["size"] // 4 for event in told_of(run, "answered") if event["what"] == "coordinates"
               and event["part"] == part]
        for part in ("client.1", "client.2")
    }  # fmt: skip
    pairs = [*zip(agreed["client.1"], agreed["client.2"], strict=True)]
    assert len(pairs) == 3
    assert all(first > last for first, last in pairs)
    found = traffic(run)
    assert found.down == 4 * sum(4 * first + 4 * last + 8 * last for first, last in pairs)
    assert found.up == 4 * sum(4 * 9 + 4 * 2 + 8 * last for _, last in pairs)


# SparseSecAgg


@pytest.mark.thorough
def test_a_sparse_sum_keeps_its_contract():
    for alpha in (0.05, 0.5, 1.0):
        check_transport(SparseSum(alpha))
    for alpha in (0, 1.5, float("nan"), 1e-7):
        with pytest.raises(UsageError, match="sparse-sum needs an alpha"):
            SparseSum(alpha)


@dataclass(frozen=True)
class Alone(SparseSum):
    """Wrong: opens coordinates that one client alone sends."""

    def deliver(self, rows, context):
        made = super().deliver(rows, context)
        if not len(made.rows):
            return made
        sent = made.sent.clone()
        sent[1:, 0], sent[0, 0] = 0, 2 * rows[0, 0]
        mean = (sent.sum(dim=0, keepdim=True, dtype=torch.float64) / len(sent)).to(rows.dtype)
        return replace(made, rows=mean, sent=sent)


@dataclass(frozen=True)
class Weighed(SparseSum):
    """Wrong: one client counts twice."""

    def deliver(self, rows, context):
        heavy = rows.clone()
        heavy[:1] *= 2
        return super().deliver(heavy, context)


@pytest.mark.thorough
def test_the_contract_finds_a_sparse_sum_that_shows_one_client_or_weighs_it():
    broken(check_transport, Alone(0.5), "a coordinate that it shows is of one participation")
    broken(check_transport, Weighed(0.5), "weigh nobody")


def test_a_sparse_sum_by_a_plain_loop():
    """Who sends which coordinate, the mean of all, and the smallest group; nobody sends one alone."""
    rows, stage, seen = updates_of(1, 6, torch.float64), SparseSum(0.4), set()
    p = 1 - (1 - Fraction(2, 25)) ** 5
    assert stage.of_a_client(6) == p
    for number in range(1, 30):
        delivery, told = summed(stage, rows, number=number)
        wanted = torch.zeros_like(rows)
        lot = context_of(CLIENTS, torch.float64, number).at(Part("transport"), stage).shared
        for one, other in combinations(range(6), 2):
            hit = torch.from_numpy(lot.integers(f"pair {one} {other}", 25, 5) < 2)
            for row in (one, other):
                wanted[row, hit] = rows[row, hit] / float(p)
        assert torch.equal(delivery.sent, wanted)
        groups = [count for count in (wanted != 0).sum(dim=0).tolist() if count]
        if not groups:
            assert (len(delivery.rows), told) == (0, Summed((0,), 0, failed=True))
            continue
        assert torch.allclose(delivery.rows, wanted.mean(dim=0, keepdim=True), rtol=1e-15)
        assert told == Summed((min(groups),), 0, failed=False)
        seen.add(min(groups))
        # a rejected row leaves groups behind: one that is left alone is not opened
        came = torch.arange(6) != number % 6
        some, _ = summed(stage, rows, came, number)
        left = wanted[came]
        left[:, (left != 0).sum(dim=0) < 2] = 0
        assert torch.equal(some.sent, left)
    assert 2 in seen


def test_a_sparse_sum_opens_no_coordinate_of_one_client_with_samples():
    """Who has none makes no pairs; p is that of the others, so the mean over all stays unbiased."""
    rows, stage, total = updates_of(1, 6, torch.float64), SparseSum(0.4), torch.zeros(5, dtype=torch.float64)
    rows[1] = 0
    filled, p = [0, 2, 3, 4, 5], float(SparseSum(0.4).of_a_client(5))
    for number in range(1, 400):
        delivery, told = summed(stage, rows, number=number, clients=CLIENTS)
        group = (delivery.sent[filled] != 0).sum(dim=0)
        assert not bool(delivery.sent[1].any())
        assert 1 not in group
        assert told.rows == (int(group[group > 0].min()) if bool(group.any()) else 0,)
        taken = delivery.sent != 0
        assert torch.allclose(delivery.sent[taken], rows[taken] / p, rtol=1e-15)
        total += delivery.rows[0] if len(delivery.rows) else 0
    error = (rows.square().sum(dim=0) * ((1 - p) / p / 399)).sqrt() / 6
    assert bool(((total / 399 - rows.mean(dim=0)).abs() < 5 * error).all())


def test_a_sparse_sum_opens_no_coordinate_that_is_not_finite():
    rows, stage = updates_of(1, 6, torch.float64), SparseSum(0.6)
    rows[2, 1], rows[3, 4] = torch.nan, torch.inf
    for number in range(1, 20):
        clean, _ = summed(stage, rows.nan_to_num(nan=0.5, posinf=0.5), number=number)
        delivery, told = summed(stage, rows, None, number, None, events := [])
        broken = torch.tensor([False, bool(clean.sent[2, 1]), False, False, bool(clean.sent[3, 4])])
        if bool(broken.any()):
            who = sorted({(0, 2, 3, 4, 5, 0)[row] for row in clean.sent[:, broken].any(dim=1).nonzero()[:, 0].tolist()})
            assert events[0] == Suspected(tuple(who), "not finite")
        assert torch.equal(delivery.sent, clean.sent.masked_fill(broken, 0))
        group = (delivery.sent != 0).sum(dim=0)
        assert told == Summed((int(group[group > 0].min()) if bool(group.any()) else 0,), 0, not bool(group.any()))
        assert torch.equal(delivery.rows, clean.rows.masked_fill(broken, 0)[: len(delivery.rows)])


def test_a_sparse_sum_is_unbiased():
    """The mean over many lots is the mean of rows, within five standard errors."""
    rows, count = torch.full((4, 5), 3.0, dtype=torch.float64), 400
    total = torch.zeros(5, dtype=torch.float64)
    for number in range(1, count + 1):
        came = summed(SparseSum(0.6), rows, number=number)[0].rows
        total += came[0] if len(came) else 0
    p = float(SparseSum(0.6).of_a_client(4))
    assert torch.allclose(total / count, rows[0], atol=5 * 3 * ((1 - p) / p / count) ** 0.5)


def test_a_memory_in_front_of_a_sparse_sum_is_refused(tmp_path):
    """What is sent is x / p, so what is left of x grows from round to round. A correction by the answer does not."""
    sparse = {"transport": {"use": "sparse-sum", "alpha": 0.3}, "server": [{"use": "mean"}]}
    with pytest.raises(UsageError, match="grows without bound"):
        trained(tmp_path / "run", **sparse, client=[{"use": "error-feedback"}])
    assert not (tmp_path / "run").exists()
    trained(tmp_path / "mimic", **sparse, client=[{"use": "mimic-client"}])


def test_a_federation_of_sparse_sums_forgets(tmp_path, quick):
    parts = {"transport": {"use": "sparse-sum", "alpha": 0.3}, "server": [{"use": "mean"}], "client": []}
    run = trained(tmp_path / "run", **parts)
    child = unlearn(run, "fats", Request.of([2]), tmp_path / "child")
    assert audit_of(run, quick) == audit_of(child, quick) == FINE
    assert [len(event["rows"]) for event in told_of(child, "summed")] == [1, 1, 1]
    shown = traffic(run)
    assert 12 * 82 < shown.up < 12 * (82 + 0.4 * 650 * 8)
    pruned, _ = prune(child)
    assert audit_of(pruned, quick) == FINE
    with pytest.raises(UsageError, match="two clients with samples at least"):
        trained(tmp_path / "one", {"cohort": 1}, 1, **parts)
