"""Robust rules: what they are by plain arithmetic, what they guarantee, what they must not hide."""

from dataclasses import dataclass, replace
from itertools import combinations
from math import dist, hypot, inf, sqrt
from pathlib import Path

import pytest
import torch
from fuaudit_plugins.bucketing import Bucketing
from fuaudit_plugins.clipping import CenteredClipping, NormClipping
from fuaudit_plugins.error_feedback import ErrorFeedback
from fuaudit_plugins.krum import Krum, MultiKrum
from fuaudit_plugins.medians import CoordinateMedian, GeometricMedian, TrimmedMean
from fuaudit_plugins.quantise import Quantise
from fuaudit_plugins.rcgd import NormThresholding, TopK
from fuaudit_plugins.robust import NETWORK, ascending, observed_constant, squares
from fuaudit_plugins.secure_sum import SecureSum
from fuaudit_plugins.spectral import SpectralFilter
from hypothesis import given, settings
from hypothesis import strategies as st
from tests_support import AUDIT_KEY, broken

from fuaudit import train, verify
from fuaudit.config import resolve
from fuaudit.errors import PluginError, UsageError
from fuaudit.plans.stage_draws import Part
from fuaudit.runs.ledger import failed_rounds
from fuaudit.testing import check_aggregator
from fuaudit.testing.contexts import context_of, shape_of, stacked
from fuaudit.testing.tiny import tiny_config, tiny_dataset
from fuaudit.training.events import Failed, Summed
from fuaudit.training.exchange import Clear, Exchange
from fuaudit.training.one_round import exchanged
from fuaudit.training.stages import Chain, Mean, Momentum

SYMMETRIC = (
    CoordinateMedian(),
    TrimmedMean(0.3),
    TrimmedMean(1),
    GeometricMedian(),
    Krum(2),
    MultiKrum(2),
    MultiKrum(2, keep=5),
    CenteredClipping(1.0, steps=3),
    SpectralFilter(0.5),
)
ANY = (*SYMMETRIC, NormThresholding(3))
"""Norm thresholding depends on where 0 is."""


def drawn(count, columns=3, key=0, dtype=torch.float64):
    return torch.randn(count, columns, generator=torch.Generator().manual_seed(key), dtype=dtype)


def around(rows):
    """A round of so many rows."""
    return context_of([place % 6 for place in range(len(rows))], rows.dtype)


def row_of(rule, rows, state=None):
    """What a rule makes of rows in its first round, or from a state."""
    if state is None:
        state = {"centre": rows.new_zeros(1, rows.shape[1])} if isinstance(rule, CenteredClipping) else {}
    context = around(rows)  # a chain gives each of its stages what it may draw
    return rule.apply(rows, context if isinstance(rule, Chain) else context.at(Part("server"), rule), state)[0]


# plain arithmetic on lists


def mean(points):
    return [sum(column) / len(points) for column in zip(*points, strict=True)]


def trimmed(points, trim):
    return [mean([[x] for x in sorted(column)[trim : len(points) - trim]])[0] for column in zip(*points, strict=True)]


def krum_order(points, byzantine):
    """By scores; Python's sort keeps the order of equal ones."""

    def score(place):
        others = sorted(dist(points[place], point) ** 2 for other, point in enumerate(points) if other != place)
        return sum(others[: len(points) - byzantine - 2])

    return sorted(range(len(points)), key=lambda place: round(score(place), 9))


def clipped(points, centre, radius, steps):
    for _ in range(steps):
        apart = [[x - v for x, v in zip(point, centre, strict=True)] for point in points]
        short = [[x * min(1, radius / (hypot(*one) or 1e-300)) for x in one] for one in apart]
        centre = [v + m for v, m in zip(centre, mean(short), strict=True)]
    return centre


def weiszfeld(points, start, steps):
    for _ in range(steps):
        weights = [1 / dist(point, start) for point in points]
        total = sum(weights)
        parts = [[w / total * x for x in point] for w, point in zip(weights, points, strict=True)]
        start = [sum(column) for column in zip(*parts, strict=True)]
    return start


ATTACKED = (
    lambda honest: drawn(4, key=9),
    lambda honest: honest[:1].expand(4, 3),  # mimics one
    lambda honest: (honest.mean(0) - 1.5 * honest.std(0)).expand(4, 3),  # a little is enough
    lambda honest: -10 * honest.mean(0).expand(4, 3),
    lambda honest: torch.tensor([1e9, -1e9, 0.0], dtype=torch.float64) * torch.ones(4, 1),
)


@pytest.mark.parametrize("count", [8, 9])
@pytest.mark.parametrize("attack", ATTACKED)
def test_rules_are_what_plain_arithmetic_says(count, attack):
    honest = drawn(count)
    rows = torch.cat([attack(honest), honest])[torch.randperm(count + 4, generator=torch.Generator().manual_seed(1))]
    points, middle = rows.tolist(), (count + 3) // 2
    best = krum_order(points, 4)
    expected = {
        CoordinateMedian(): trimmed(points, middle),
        TrimmedMean(4): trimmed(points, 4),
        TrimmedMean(0.34): trimmed(points, 4),
        GeometricMedian(steps=3): weiszfeld(points, trimmed(points, middle), 3),
        Krum(4): points[best[0]],
        MultiKrum(4): mean([points[place] for place in best[: count - 2]]),
        MultiKrum(4, keep=count): mean([points[place] for place in best[:count]]),
        NormThresholding(4): mean(sorted(points, key=lambda point: hypot(*point))[:count]),
        CenteredClipping(0.7, steps=3): clipped(points, [0.0] * 3, 0.7, 3),
    }
    for rule, row in expected.items():
        assert row_of(rule, rows)[0].tolist() == pytest.approx(row, rel=1e-9, abs=1e-9), rule
    lengths = [min(1, 2 / hypot(*point)) for point in points]
    scaled = [[x * factor for x in point] for point, factor in zip(points, lengths, strict=True)]
    assert row_of(NormClipping(2.0), rows).flatten().tolist() == pytest.approx([x for point in scaled for x in point])


FEW = (0.0, -0.0, 1.0, -1.0, 2.0, 5e-324, 1e-30, -1e30, 1e38)
LARGE = (0.0, 1.0, -1.0, 1e-200, 1e150, -1e150, 1e200, 1e308, -1.7e308, 1.7e308)
CONVEX = (
    *(CoordinateMedian(), TrimmedMean(0.3), GeometricMedian(), GeometricMedian(1, 1.0), GeometricMedian(40, 1e-300)),
    *(Krum(0), MultiKrum(0), NormThresholding(0.3), Mean(), SpectralFilter(inf)),
    *(SpectralFilter(sigma) for sigma in (1e-200, 1e-3, 1.0, 1e200)),
)
"""Rules whose row is within the range of each coordinate."""
CLIPPING = (
    *(CenteredClipping(radius, 3) for radius in (1e-300, 1.0)),
    *(NormClipping(norm) for norm in (1e-300, 1.0, inf)),
)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_rules_end_on_rows_that_tie_and_leave_a_row_among_them(data):
    """Equal rows, heaps of equal rows, rows that differ by the least float, and rows whose squares are no floats."""
    values = st.sampled_from(data.draw(st.sampled_from([FEW, LARGE])))
    columns, count = data.draw(st.integers(1, 3)), data.draw(st.integers(3, 7))
    row = st.lists(values, min_size=columns, max_size=columns)
    kinds = data.draw(st.lists(row, min_size=1, max_size=count))
    points = data.draw(st.lists(st.sampled_from(kinds), min_size=count, max_size=count))
    rows = torch.tensor(points, dtype=torch.float64)
    least, most = rows.amin(dim=0), rows.amax(dim=0)
    room = 1e-12 * rows.abs().amax(dim=0) + 1e-300
    for rule in CONVEX:
        left = row_of(rule, rows)[0]
        assert bool(((left >= least - room) & (left <= most + room)).all()), rule
    for rule in CLIPPING:
        assert bool(row_of(rule, rows).isfinite().all()), rule


@pytest.mark.parametrize(
    ("points", "row"),
    [
        ([[1.0], [-1.0], [1.0], [-1.0]], [0.0]),
        ([[1.0, 2.0], [3.0, 2.0]], [2.0, 2.0]),
        ([[0.1, 0.7]] * 3 + [[-0.3, 0.2]] * 3, [-0.1, 0.45]),
        ([[1.0], [-1.0], [9.0], [9.0], [9.0]], [9.0]),
        ([[-1.0], [1.0], [50.0], [-1.0], [1.0], [-50.0]], [0.0]),
    ],
)
def test_the_filter_keeps_its_weights_where_none_would_be_left(points, row):
    """Rows that all have the largest tau; also after others have lost their weight."""
    rows = torch.tensor(points, dtype=torch.float64)
    for scale, shift in ((1.0, 0.0), (1e6, 1e-3), (1e-2, -7.0)):
        moved, wanted = rows * scale + shift, [x * scale + shift for x in row]
        for given_rows in (moved, moved.flip(0)):
            left = row_of(SpectralFilter(1e-6), given_rows)[0]
            assert left.tolist() == pytest.approx(wanted, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("count", [*range(1, 13), 31, NETWORK, NETWORK + 1])
def test_a_network_sorts_as_a_library_does(count):
    """What sorts all zeros and ones sorts everything (Knuth, volume 3, 5.3.4, theorem Z): tried up to twelve rows."""
    bits = torch.arange(2 ** min(count, 12))[None] >> torch.arange(count)[:, None] & 1
    generator = torch.Generator().manual_seed(count)
    ties = torch.randint(-2, 3, (count, 9000), generator=generator) / torch.tensor(3.0)
    for rows in (bits.to(torch.float64), ties, torch.cat([ties, torch.full((count, 1), torch.inf)], dim=1)):
        before, first = rows.clone(), count // 3
        assert torch.equal(ascending(rows, 0, count), rows.sort(dim=0).values)
        assert torch.equal(ascending(rows, first, first + 1), rows.sort(dim=0).values[first : first + 1])
        assert torch.equal(rows, before)


@pytest.mark.parametrize("count", [3, NETWORK + 1])
def test_a_zero_has_no_sign_that_the_order_of_rows_decides(count):
    rows = torch.zeros(count, 1)
    rows[::2] *= -1
    for rule in (CoordinateMedian(), TrimmedMean(1)):
        found = [row_of(rule, one) for one in (rows, rows.flip(0), rows.roll(1, 0))]
        assert not any(bool(row.signbit()) for row in found), rule


def test_a_sum_that_overflows_is_no_row_that_is_not_finite():
    rows = torch.full((3, 4), 3e38)
    assert torch.equal(row_of(CoordinateMedian(), rows), rows[:1])


def test_many_steps_lead_to_the_geometric_median():
    """Where the gradient of the sum of distances is zero; from the mean, far rows hold the first steps back."""
    rows = torch.cat([drawn(9), torch.full((4, 3), 1e9, dtype=torch.float64)])
    point = row_of(GeometricMedian(steps=300), rows)
    apart = rows - point
    assert float((apart / apart.norm(dim=1, keepdim=True)).sum(dim=0).norm()) < 1e-9
    assert dist(weiszfeld(rows.tolist(), mean(rows.tolist()), 8), point[0].tolist()) > 1e5
    assert dist(row_of(GeometricMedian(steps=8), rows)[0].tolist(), point[0].tolist()) < 0.1


def test_smoothing_follows_the_scale_of_updates():
    """With an absolute least distance, rows shorter than it give the mean."""
    rows = torch.cat([drawn(9), 10 + drawn(4, key=1)])
    for scale in (2.0**-60, 2.0**60):
        assert torch.equal(row_of(GeometricMedian(), rows * scale), row_of(GeometricMedian(), rows) * scale)
    small = (rows * 2.0**-100).to(torch.float32)
    assert torch.allclose(row_of(GeometricMedian(), small) * 2.0**100, row_of(GeometricMedian(), rows.float()))


def test_a_majority_of_equal_rows_is_the_geometric_median():
    rows = torch.cat([torch.ones(5, 3), drawn(4, dtype=torch.float32)])
    assert torch.equal(row_of(GeometricMedian(), rows), torch.ones(1, 3))


@pytest.mark.parametrize("rule", SYMMETRIC, ids=str)
def test_order_and_origin_do_not_matter(rule):
    rows = drawn(9)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(2))
    before = row_of(rule, rows)
    after = row_of(rule, rows[order])
    shift = torch.tensor([[5.0, -3.0, 0.25]], dtype=torch.float64)
    state = {"centre": shift} if isinstance(rule, CenteredClipping) else {}
    assert torch.allclose(row_of(rule, rows + shift, state), before + shift, rtol=0, atol=1e-12)
    assert torch.allclose(after, before, rtol=0, atol=1e-12)
    if not isinstance(rule, GeometricMedian | CenteredClipping | SpectralFilter):
        assert torch.equal(after, before)


def test_kept_rows_are_no_longer_than_an_honest_one_and_the_error_does_not_shrink_with_their_distance():
    honest = drawn(9)
    longest = float(honest.norm(dim=1).max())
    for bad in (-honest[:3], 5 * honest[:3], honest.mean(0).expand(3, -1)):
        rows = torch.cat([bad, honest])
        assert float(row_of(NormThresholding(3), rows).norm()) <= longest
        order = torch.randperm(12, generator=torch.Generator().manual_seed(2))
        assert torch.allclose(row_of(NormThresholding(3), rows[order]), row_of(NormThresholding(3), rows))
    equal = torch.cat([-torch.ones(3, 2), torch.ones(9, 2)])  # of equal norms the lower places stay
    assert torch.allclose(row_of(NormThresholding(3), equal), torch.full((1, 2), (6 - 3) / 9))


def filtered(rows, sigma):
    """The filter on the covariance matrix itself."""
    weights = torch.ones(len(rows), dtype=torch.float64)
    while True:
        centre = (weights[:, None] * rows).sum(0) / weights.sum()
        apart = rows - centre
        values, vectors = torch.linalg.eigh((weights[:, None] * apart).T @ apart / weights.sum())
        if values[-1] <= 9 * sigma**2:
            return centre
        along = (apart @ vectors[:, -1]) ** 2 * (weights > 0)
        weights = (1 - along / along.max()) * weights


@pytest.mark.parametrize(("n", "f"), [(8, 1), (16, 2)])
def test_the_spectral_filter_is_that_of_the_covariance_and_within_its_bound(n, f):
    for key in range(4):
        honest, way = drawn(n - f, key=key), drawn(1, key=9 + key)
        centre = honest.mean(dim=0, keepdim=True)
        sigma = float(torch.linalg.eigvalsh((honest - centre).T @ (honest - centre) / (n - f))[-1]) ** 0.5
        for away in (1, 5, 20, 1e4, 1e160):
            rows = torch.cat([(centre + way / way.norm() * sigma * away).expand(f, -1), honest])
            row = row_of(SpectralFilter(sigma), rows)
            assert float((row - centre).norm()) <= 4 * sigma * sqrt(f / (n - 2 * f))
            if away < 1e9:
                assert torch.allclose(row[0], filtered(rows, sigma), rtol=0, atol=1e-6)
        assert not torch.allclose(row_of(SpectralFilter(sigma / 4), honest), centre)


def test_ties_of_krum_go_to_the_lowest_place():
    rows = torch.tensor([[2.0, 1.0], [1.0, 2.0], [0.0, 1.0], [1.0, 0.0]])  # corners of a square: equal scores
    assert torch.equal(row_of(Krum(1), rows), rows[:1])
    assert torch.equal(row_of(MultiKrum(1, keep=2), rows), rows[:2].mean(dim=0, keepdim=True))


@pytest.mark.parametrize(
    "rule",
    [
        TrimmedMean(0),
        TrimmedMean(0.05),
        MultiKrum(0, keep=9),
        NormThresholding(0.1),
        CenteredClipping(inf),
        SpectralFilter(inf),
        Chain((NormClipping(inf), Mean())),
    ],
)
def test_limits_are_the_mean(rule):
    rows = drawn(9)
    assert torch.allclose(row_of(rule, rows), row_of(Mean(), rows), rtol=0, atol=1e-12)


def test_a_fraction_is_the_decimal_that_is_written():
    """0.29 of 100 rows are 29, though the float times 100 is below."""
    rows = torch.arange(100.0).unsqueeze(1) ** 2
    for hundredths in range(0, 50, 7):
        assert torch.equal(TrimmedMean(hundredths / 100).aggregate(rows), TrimmedMean(hundredths).aggregate(rows))
    assert torch.equal(TrimmedMean(0.29).aggregate(rows), TrimmedMean(29).aggregate(rows))


# guarantees


def kappa_of_median(n, f):
    return (n - 1) / (n + 1 - 2 * f) if n % 2 else (n - 2) / (n + 2 - 2 * f)


def kappa_of_trimming(n, f, b):
    return b / (n - f - b)


def kappa_of_krum(n, f):
    return (sqrt(2 * (n - f)) + sqrt(f + 1)) ** 2 / (n - 2 * f - 1)


def kappa_of_steps(n, f):
    return ((2 * (n - f) + n * sqrt(kappa_of_median(n, f))) / (n - 2 * f) * (1 + 1e-4)) ** 2


KAPPA = {
    CoordinateMedian: kappa_of_median,
    TrimmedMean: lambda n, f: kappa_of_trimming(n, f, f),
    GeometricMedian: kappa_of_steps,
    Krum: kappa_of_krum,
    MultiKrum: kappa_of_krum,
}


def bad_rows(honest, f, generator):
    """Drawn far and near ones, copies, and what pulls to a side."""
    far = torch.randn(f, honest.shape[1], generator=generator, dtype=honest.dtype)
    pull = (honest.mean(0) + 1.2 * honest.std(0)).expand(f, -1)
    return [far * scale for scale in (0.3, 3.0, 1e8)] + [
        honest[:1].expand(f, -1),
        honest.max(0).values.expand(f, -1),
        pull,
    ]


def test_errors_are_within_what_is_proved_and_bounds_from_below_meet_those_from_above():
    generator = torch.Generator().manual_seed(5)
    largest = dict.fromkeys(KAPPA, 0.0)
    for n, f in [(3, 1), (4, 1), (7, 2), (7, 3), (8, 3), (12, 5)]:
        for _ in range(2):
            honest = torch.randn(n - f, 2, generator=generator, dtype=torch.float64) ** 3
            for bad in bad_rows(honest, f, generator):
                rows = torch.cat([bad, honest])
                for rule in (
                    CoordinateMedian(),
                    TrimmedMean(f),
                    GeometricMedian(steps=4),
                    Krum(f),
                    MultiKrum(f, n - f),
                ):
                    kind = type(rule)
                    if kind in (Krum, MultiKrum) and n < max(2 * f + 2, f + 3):
                        continue
                    delta, kappa = f / n, KAPPA[kind](n, f)
                    c = observed_constant(rule.aggregate(rows), honest, n)
                    assert c <= kappa / (2 * delta) * (1 - 1 / (n - f)) * (1 + 1e-9), (rule, n, f)
                    largest[kind] = max(largest[kind], c / kappa * 2 * delta)
    assert min(largest.values()) > 0.01, largest


@pytest.mark.parametrize(("n", "f"), [(5, 1), (9, 4), (16, 7)])
def test_the_trimmed_mean_has_the_least_constant_of_all_rules(n, f):
    """f honest rows at 1 look like the bad ones of another input, in which all honest rows are at 0."""
    honest = torch.cat([torch.ones(f, 1), torch.zeros(n - 2 * f, 1)]).double()
    rows = torch.cat([torch.zeros(f, 1, dtype=torch.float64), honest])
    best = f / (n - 2 * f) * n / (2 * f) * (1 - 1 / (n - f))
    for rule in (TrimmedMean(f), CoordinateMedian(), GeometricMedian()):
        assert float(rule.aggregate(rows)) == 0  # as it must be, or c would be infinite for the other input
        assert observed_constant(rule.aggregate(rows), honest, n) == pytest.approx(best)


@pytest.mark.parametrize(("n", "f", "b"), [(5, 0, 1), (9, 1, 4), (9, 1, 2), (16, 0, 7), (16, 3, 5), (16, 7, 7)])
def test_the_bound_of_the_trimmed_mean_is_met_and_no_small_input_is_beyond_it(n, f, b):
    """b honest rows are at 0, the bad ones stand with the others; then all rows of zeros and ones."""

    def ratio(honest, bad):
        row = TrimmedMean(b).aggregate(torch.cat([bad, honest]))
        away = squares(honest, honest.mean(0, keepdim=True)).mean()
        return float(squares(row, honest.mean(0, keepdim=True)) / away)

    zeros, ones = torch.zeros(n, 1).double(), torch.ones(n, 1).double()
    met = ratio(torch.cat([zeros[:b], ones[: n - f - b]]), ones[:f])
    assert met == pytest.approx(kappa_of_trimming(n, f, b))
    for low in range(1, n - f):
        for bad in range(f + 1):
            honest = torch.cat([zeros[:low], ones[: n - f - low]])
            assert ratio(honest, torch.cat([zeros[:bad], ones[: f - bad]])) <= met * (1 + 1e-12)


@pytest.mark.parametrize("n", [3, 8, 9])
def test_the_median_is_the_trimmed_mean_that_leaves_one_value_or_two(n):
    rows, b = drawn(n), (n - 1) // 2
    assert torch.equal(CoordinateMedian().aggregate(rows), TrimmedMean(b).aggregate(rows))
    for f in range(b + 1):
        assert kappa_of_median(n, f) == pytest.approx(kappa_of_trimming(n, f, b))


@pytest.mark.parametrize(("n", "f"), [(5, 0), (7, 2), (8, 1), (12, 4)])
def test_the_bound_of_the_median_is_met(n, f):
    """Just fewer honest rows than half are at 0; the bad ones stand with the others."""
    low = (n - 1) // 2
    honest = torch.cat([torch.zeros(low, 1), torch.ones(n - f - low, 1)]).double()
    row = CoordinateMedian().aggregate(torch.cat([honest, torch.ones(f, 1).double()]))
    spread = float(squares(honest, honest.mean(0, keepdim=True)).mean())
    assert float(squares(row, honest.mean(0, keepdim=True))) == pytest.approx(kappa_of_median(n, f) * spread)


def test_one_step_of_centered_clipping_is_within_its_bound_and_the_mean_is_not():
    honest, radius = drawn(9), 1.5
    rows = torch.cat([honest, torch.full((2, 3), 1e6, dtype=torch.float64)])
    centre, delta, radius = honest.mean(0, keepdim=True), 2 / 11, 1.5
    spread = float(squares(honest, centre).mean())
    for away in (0.0, 0.5, 2.0):
        start = centre + away / sqrt(3)
        error = float(squares(row_of(CenteredClipping(radius), rows, {"centre": start}), centre)) ** 0.5
        assert error <= delta * away + (1 - delta) * (spread + away**2) / (4 * radius) + delta * radius
    assert observed_constant(rows.mean(0, keepdim=True), honest, 11) > 1e9


def test_nothing_is_observed_without_bad_rows():
    rows = drawn(4)
    for honest, count in ((rows, 4), (rows[:1].expand(3, 3), 4)):
        with pytest.raises(UsageError, match="c is observed where"):
            observed_constant(rows[:1], honest, count)


@pytest.mark.parametrize("row", [drawn(1)[0], drawn(2), drawn(1, 4)])
def test_a_constant_is_observed_of_one_row(row):
    with pytest.raises(UsageError, match=r"a row \(1, d\) and honest rows \(g, d\), not \("):
        observed_constant(row, drawn(5), 6)


# what they must not do


@pytest.mark.parametrize("bad", [float("nan"), inf, -inf])
@pytest.mark.parametrize("rule", ANY, ids=str)
def test_no_rule_hides_what_is_no_number(rule, bad):
    rows = drawn(9)
    rows[4, 1] = bad
    assert bool(row_of(rule, rows).isnan().all())


def test_stages_keep_what_is_no_number():
    rows = drawn(4)
    rows[2, 1] = float("nan")
    assert row_of(NormClipping(1.0), rows)[2].isnan().any()
    assert int(row_of(Bucketing(), rows).isnan().any(dim=1).sum()) == 1


def test_distances_have_bits_that_depend_on_two_rows_alone():
    rows, centre = drawn(5, 1001), drawn(1, 1001, key=1)
    together = squares(rows, centre)
    assert torch.equal(together, torch.cat([squares(one[None], centre) for one in rows]))
    assert torch.equal(together, squares(torch.stack([rows, -rows]), centre.expand(2, 1, -1))[0])
    assert together.tolist() == pytest.approx(((rows - centre) ** 2).sum(1).tolist())
    assert squares(rows[:, :0], centre[:, :0]).tolist() == [0.0] * 5


@pytest.mark.parametrize("rule", ANY, ids=str)
def test_a_round_that_agreed_on_nothing_leaves_nothing(rule):
    assert row_of(rule, drawn(9)[:, :0]).shape == (1, 0)


def test_far_rows_of_a_byzantine_minority_leave_finite_rows():
    rows = torch.cat([drawn(9, dtype=torch.float32), torch.full((3, 3), 3e38)])
    for rule in ANY:
        if rule != TrimmedMean(1):
            assert float(row_of(rule, rows).abs().max()) < 10, rule


def test_the_centre_is_the_row_that_was_applied():
    rows, rule = drawn(4, 2), CenteredClipping(0.1)
    state = {"centre": torch.tensor([[9.0, 1.0, 9.0, 2.0, 9.0]], dtype=torch.float64)}
    context = replace(around(rows), coordinates=torch.tensor([1, 3]))
    row, after = rule.apply(rows, context, state)
    assert torch.equal(row, row_of(rule, rows, {"centre": torch.tensor([[1.0, 2.0]], dtype=torch.float64)}))
    assert torch.equal(after["centre"], context.on_all(row))
    assert torch.equal(context.on_all(row)[0, [0, 2, 4]], torch.zeros(3))


def test_a_radius_bounds_how_far_a_round_leads():
    rows = torch.full((5, 3), 1e6, dtype=torch.float64)
    assert float(row_of(CenteredClipping(0.5, steps=4), rows).norm()) == pytest.approx(2.0)


def test_buckets_are_means_in_an_order_by_lot():
    rows = drawn(7)
    made = row_of(Bucketing(3), rows)
    order = torch.from_numpy(around(rows).at(Part("server"), Bucketing()).shared.permutation("order", 7))
    assert sorted(order.tolist()) == list(range(7))
    assert torch.allclose(made, torch.stack([part.mean(dim=0) for part in rows[order].split(3)]))
    places = [around(rows).at(Part("server", number), Bucketing()) for number in range(4)]
    assert len({tuple(place.shared.permutation("order", 7).tolist()) for place in places}) > 1


def test_honest_buckets_are_as_near_as_promised():
    """By every pair of disjoint buckets of two among five rows."""
    rows = drawn(5)
    pairs = [float(squares(a[None], b[None])) for a, b in combinations(rows, 2)]
    buckets = [
        float(squares((rows[a] + rows[b])[None] / 2, (rows[c] + rows[d])[None] / 2))
        for a, b in combinations(range(5), 2)
        for c, d in combinations(set(range(5)) - {a, b}, 2)
    ]
    assert sum(buckets) / len(buckets) == pytest.approx(sum(pairs) / len(pairs) / 2)


# in runs

ALL_FOUR = {"use": "fedavg", "rounds": 3, "cohort": 4, "steps": 2, "batch": 2, "step_size": 0.2}
BUCKETS = [{"use": "norm-clipping", "norm": 0.05}, {"use": "bucketing"}]


def test_rules_behind_buckets_see_the_rows_that_there_are():
    rows = drawn(6)
    made = row_of(Bucketing(4), rows)
    assert torch.equal(row_of(Chain((Bucketing(4), Mean())), rows), made.mean(dim=0, keepdim=True))
    assert not torch.allclose(row_of(Mean(), rows), made.mean(dim=0, keepdim=True))


@pytest.mark.parametrize(
    ("last", "words"),
    [
        ("mifa", "but 'mifa' keeps one a client"),
        ("size-weighted", "'size-weighted' asks how many samples are behind it"),
    ],
)
def test_what_asks_who_is_in_a_bucket_is_refused(last, words):
    assert resolve(tiny_config(learner=ALL_FOUR, server=[{"use": last}, {"use": "momentum"}]))
    with pytest.raises(UsageError, match=words):
        resolve(tiny_config(learner=ALL_FOUR, server=[*BUCKETS, {"use": last}]))


@pytest.mark.parametrize(
    ("first", "behind"),
    [
        ({"use": "krum", "byzantine": 1}, [{"use": "coordinate-median"}]),
        ({"use": "mean"}, [{"use": "momentum"}, {"use": "geometric-median"}]),
        ({"use": "mean"}, [{"use": "krum", "byzantine": 1}]),
        ({"use": "mean"}, [{"use": "mean"}]),
        ({"use": "geometric-median"}, [{"use": "bucketing"}]),
    ],
)
def test_a_second_rule_behind_the_first_is_refused(first, behind):
    """It would get one row: an error in round 1, a mean divided twice, or a run in which all rounds fail."""
    told = f"{behind[-1]['use']!r} needs a row for every participant, but {first['use']!r} before it leaves one"
    with pytest.raises(UsageError, match=told):
        resolve(tiny_config(learner=ALL_FOUR, server=[first, *behind]))
    kept = [{"use": "norm-clipping", "norm": 0.1}, {"use": "momentum"}]
    assert resolve(tiny_config(learner=ALL_FOUR, server=[*BUCKETS, first, *kept]))


def test_a_run_with_buckets_and_a_remembered_centre_is_replayed(tmp_path, quick):
    server = [*BUCKETS, {"use": "centered-clipping", "radius": 0.02, "steps": 2}, {"use": "momentum"}]
    run = train(tiny_config(learner=ALL_FOUR, server=server), tmp_path / "run", data=tiny_dataset())
    found = verify(run, quick, key=AUDIT_KEY, save=False, data=tiny_dataset()).findings
    verdicts = {one.audit: str(one.verdict) for one in found}
    assert (verdicts["integrity"], verdicts["replay"]) == ("PASS", "PASS")


@pytest.mark.parametrize(
    ("server", "transport", "words"),
    [
        ([{"use": "krum", "byzantine": 2}], "clear", "'krum' needs at least 5 rows, and gets 4 at most"),
        ([{"use": "multi-krum", "byzantine": 1, "keep": 4}], "clear", "needs at least 5 rows, and gets 4"),
        ([{"use": "bucketing"}, {"use": "krum", "byzantine": 0}], "clear", "needs at least 3 rows, and gets 2"),
        ([{"use": "norm-thresholding", "trim": 2}], "secure-sum", "needs at least 3 rows, and gets 2"),
        ([{"use": "trimmed-mean", "trim": 1}], "sparse-sum", "needs at least 3 rows, and gets 1"),
        ([{"use": "trimmed-mean", "trim": 1}], "test-sums", "needs at least 3 rows, and gets 2"),
    ],
)
def test_a_rule_that_never_has_enough_rows_is_refused(tmp_path, monkeypatch, server, transport, words):
    """Before anything is drawn or written; what a transport does not say is taken as half of the participations."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "stages"))
    options = {"alpha": 0.5} if transport == "sparse-sum" else {}
    tables = tiny_config(learner=ALL_FOUR, server=server, transport={"use": transport} | options)
    with pytest.raises(UsageError, match=f"every round of 4 would fail: the aggregator .*{words}"):
        train(tables, tmp_path / "run", data=tiny_dataset())
    assert not (tmp_path / "run").exists()


def test_a_rule_that_has_just_enough_rows_trains(tmp_path):
    for name, server in (
        ("krum", [{"use": "krum", "byzantine": 1}]),
        ("fraction", [{"use": "trimmed-mean", "trim": 0.49}]),
        ("buckets", [{"use": "bucketing", "size": 3}, {"use": "norm-thresholding", "trim": 1}]),
    ):
        run = train(tiny_config(learner=ALL_FOUR, server=server), tmp_path / name, data=tiny_dataset())
        assert not failed_rounds(run.ledger)
        assert not torch.equal(run.model, run.checkpoint(0)[0])


ROOM = Chain((TrimmedMean(1), Momentum()))
"""A rule that needs three rows, and a memory of the server."""


def _failed_sums(count):
    return "transport", Summed((count,), 0, failed=True)


def _says_failed(told):
    return isinstance(told[1], Failed) or (isinstance(told[1], Summed) and told[1].failed)


@pytest.mark.parametrize("transport", [Clear(), SecureSum(2)], ids=str)
def test_a_round_with_too_few_rows_leaves_everything_as_it_was(transport):
    """Rounds of six clients are applied, those of two are not: their updates stay whole in their memories."""
    exchange = Exchange(ROOM, Chain((ErrorFeedback(), Quantise(0.5, 6))), transport)
    shape = shape_of(torch.float64)
    kept, server = exchange.client_stages.init(shape), exchange.server.init(shape)
    for number, count in enumerate((6, 2, 6, 2), 1):
        told, updates = [], drawn(count, 5, key=number)
        whole = context_of([*range(count)], torch.float64, number)
        cohort = replace(whole.cohort, sizes=whole.cohort.sizes.clamp(min=1), steps=whole.cohort.steps.clamp(min=2))
        context = replace(stacked([replace(whole, cohort=cohort)]), told=told)
        made = exchanged(exchange, updates[None], context, alone(kept), alone(server))
        kept, before = {name: table[0] for name, table in made.memories.items()}, kept
        server, former = {name: table[0] for name, table in made.server.items()}, server
        failed = [("exchange", Failed("too few rows"))] if type(transport) is Clear else [_failed_sums(count)]
        assert [one for one in told if _says_failed(one)] == failed * (count == 2)
        assert torch.equal(server["1.velocity"], former["1.velocity"]) == (count == 2)
        assert bool(made.row.any()) == (count == 6)
        if count == 2:
            assert torch.equal(kept["0.memory"][:2], before["0.memory"][:2] + updates)


@dataclass(frozen=True)
class Deaf(SecureSum):
    """Does not ask whether its sums are enough."""

    def deliver(self, rows, context):
        return super().deliver(rows, replace(context, enough=lambda count: True))


def test_sums_of_a_round_that_fails_are_refused():
    """Two buffers are shown to a rule that needs three rows: the next round would show others over the same model."""
    whole = context_of([0, 2, 3, 4], torch.float64)
    context, state = replace(stacked([whole]), told=[]), alone(ROOM.init(shape_of(torch.float64)))
    with pytest.raises(PluginError, match="shows 2 sums, and the round fails with so few"):
        exchanged(Exchange(ROOM, transport=Deaf(2)), drawn(4, 5)[None], context, {}, state)


def test_what_is_enough_for_a_chain_is_enough_for_each_stage():
    buckets = Chain((Bucketing(2), Krum(0), Momentum()))
    assert [rows for rows in range(9) if buckets.enough(rows)] == [5, 6, 7, 8]
    assert [rows for rows in range(5) if Chain((Mean(),)).enough(rows)] == [1, 2, 3, 4]


def test_of_many_runs_those_fail_that_have_too_few_rows():
    exchange = Exchange(Chain((TrimmedMean(2),)))
    contexts = [context_of([0, 1, 2, 3, 4, 5], torch.float64), context_of([0, 1, 2, 3, -1, -1], torch.float64)]
    made = exchanged(exchange, torch.stack([drawn(6, 5), drawn(6, 5)]), stacked(contexts), {}, {})
    assert [bool(row.any()) for row in made.row] == [True, False]


def test_too_few_rows_hide_no_erased_row():
    """NaN marks it; a round that fails would leave the model as it was."""
    for exchange in (Exchange(ROOM), Exchange(ROOM, Chain((ErrorFeedback(),)))):
        rows, context = drawn(2, 5), context_of([0, 2], torch.float64)
        rows[1, 1] = torch.nan
        shape = shape_of(torch.float64)
        memories, server = alone(exchange.client_stages.init(shape)), alone(exchange.server.init(shape))
        assert bool(exchanged(exchange, rows[None], stacked([context]), memories, server).row.isnan().all())


def alone(state):
    """The state of one run, as many have it."""
    return {name: tensor[None] for name, tensor in state.items()}


@pytest.mark.thorough
def test_rules_that_say_how_many_rows_they_need_keep_their_contract():
    for rule in (MultiKrum(1, keep=3), TrimmedMean(2), NormThresholding(3), Bucketing(4)):
        check_aggregator(rule)
    check_aggregator(Krum(2), rows=(5, 8))  # of five rows two are nearest to each other, and tie
    broken(check_aggregator, type("Fewer", (Bucketing,), {"rows_left": lambda self, rows: rows // 2})(3), "and says")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TrimmedMean(0.5), "from 0 to below 0.5, not 0.5"),
        (lambda: TrimmedMean(-1), "not -1"),
        (lambda: TrimmedMean(float("nan")), "not nan"),
        (lambda: GeometricMedian(steps=0), "at least 1 step"),
        (lambda: GeometricMedian(smoothing=0), "smoothing above 0"),
        (lambda: NormThresholding(0.5), "from 0 to below 0.5, not 0.5"),
        (lambda: TopK(0), "top-k needs a per_client of at least 1, not 0"),
        (lambda: row_of(NormThresholding(4), drawn(4)), "norm-thresholding needs at least 5 rows"),
        (lambda: SpectralFilter(0), "spectral-filter needs a sigma above 0, not 0"),
        (lambda: Krum(-1), "krum needs a number of Byzantine rows"),
        (lambda: MultiKrum(-1), "multi-krum needs a number"),
        (lambda: MultiKrum(1, keep=0), "keeps at least 1 row, not 0"),
        (lambda: CenteredClipping(0), "a radius above 0"),
        (lambda: CenteredClipping(float("nan")), "a radius above 0"),
        (lambda: CenteredClipping(1, steps=0), "at least 1 step"),
        (lambda: NormClipping(0), "a norm above 0, not 0"),
        (lambda: Bucketing(0), "at least 1, not 0"),
        (lambda: row_of(Krum(3), drawn(5)), "krum needs at least 6 rows, and the round has 5"),
        (lambda: row_of(MultiKrum(1), drawn(3)), "multi-krum needs at least 4 rows, and the round has 3"),
        (lambda: row_of(MultiKrum(1, keep=5), drawn(5)), "needs at least 6 rows, and the round has 5"),
        (lambda: row_of(TrimmedMean(2), drawn(4)), "trimmed-mean needs at least 5 rows, and the round has 4"),
    ],
)
def test_what_cannot_be_is_refused(make, words):
    with pytest.raises(UsageError, match=words):
        make()


@pytest.mark.parametrize("norm", [1.0, 1e-3, 1e-5, 7e-7, 1e-7])
def test_a_huge_row_is_clipped_to_its_norm_and_keeps_its_direction(norm):
    """Its factor is below the least number of its type that has all digits."""
    rows = torch.tensor([[3.3e38, -2.2e38, 1.1e38], [1.0, 2.0, -2.0]])
    clipped = NormClipping(norm).apply(rows, context_of([2], torch.float32), {})[0]
    assert clipped.double().norm(dim=1).tolist() == pytest.approx([norm, min(norm, 3.0)], rel=1e-6)
    assert torch.allclose(clipped[0] / clipped[0, 0], torch.tensor([1.0, -2 / 3, 1 / 3]), rtol=1e-5)
    moved = row_of(CenteredClipping(norm), rows, {"centre": torch.zeros(1, 3)})
    pulls = [row.double() / row.double().norm() * min(norm, row.double().norm()) / 2 for row in rows]
    assert torch.allclose(moved[0].double(), sum(pulls), rtol=1e-5)


def test_the_constant_is_not_observed_where_squares_overflow():
    honest = torch.tensor([[1e160], [2e160]], dtype=torch.float64)
    with pytest.raises(UsageError, match="overflow"):
        observed_constant(honest[:1], honest, 3)
