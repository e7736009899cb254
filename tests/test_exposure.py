"""Exposure: exact chances against every order of the clients, and the least sums against real suites."""

from dataclasses import replace
from fractions import Fraction
from itertools import combinations, permutations, product
from math import log

import numpy as np
import pytest
from fuaudit_plugins.secure_sum import SecureSum, sizes
from hypothesis import given
from hypothesis import strategies as st
from secure_parties import opening_of, rows_of

from fuaudit.errors import UsageError
from fuaudit.runs.sums import Alike, Sums
from fuaudit.secure import masked
from fuaudit.secure.attacks.buffers import both_secrets
from fuaudit.secure.exposure import Buffer, buffers_under, exposed, fewest, meeting, partners_needed, within_all
from fuaudit.secure.names import EXACT, floor_of
from fuaudit.secure.refusal import RefusedError
from fuaudit.secure.suites import Suite

SUITES = (None, "bfv", "bfv+mask", "mask", "plain")


def buffers_of(places, size, smallest="complete"):
    return [Buffer(n, n if smallest == "complete" else smallest) for n in sizes(places, size)]


def alike(places, size, smallest="complete", rounds=4, empty=0):
    return (Alike(rounds, tuple(buffers_of(places, size, smallest)), empty),)


def by_listing(suite, buffers, colluders):
    """Every order of the clients, and every choice of who did not come: a sum of one honest row opens it."""
    places, seen, opened = sum(one.size for one in buffers), 0, 0
    bad = set(range(1, colluders + 1))
    for order in permutations(range(places)):
        at = 0
        for one in buffers:
            some = order[at : at + one.size]
            at += one.size
            if 0 in some:
                opened += (suite == "plain" and one.smallest <= one.size) or _opens(suite, one, set(some), bad)
        seen += 1
    return Fraction(opened, seen)


def _opens(suite, buffer, some, bad):
    """Whether the server can have a sum of client 0 and of colluders alone, or in ``mask`` both secrets of client 0."""
    sums = [
        set(came) | {0}
        for count in range(fewest(suite, buffer) - 1, buffer.size)
        for came in combinations(sorted(some - {0}), count)
    ]
    if any(one - {0} <= bad for one in sums):
        return True
    if suite != "mask" or fewest(suite, buffer) > buffer.size:
        return False
    honest, theirs = len(some - bad), len(some & bad)
    needed = masked_threshold(buffer.size)
    if fewest(suite, buffer) == buffer.size:  # whoever is told that a row did not come tells nothing
        return theirs >= needed
    return any(theirs + told >= needed and theirs + honest - told >= needed for told in range(1, honest + 1))


def masked_threshold(size):
    return masked.threshold(type("T", (), {"members": range(size)}))


SMALL = [
    (places, size, smallest, colluders)
    for places in range(2, 7)
    for size in range(2, places + 1)
    for smallest in ("complete", 2, 3, 4)
    for colluders in range(places)
    if places < 6 or size < 4
]


@pytest.mark.parametrize("suite", SUITES, ids=str)
def test_chances_are_those_of_all_orders(suite):
    known = {}
    for places, size, smallest, colluders in SMALL:
        buffers = buffers_of(places, size, smallest)
        key = (*sorted((one.size, one.smallest) for one in buffers), colluders)
        if key not in known:
            known[key] = by_listing(suite, buffers, colluders)
        assert exposed(suite, buffers, colluders) == known[key], (places, size, smallest, colluders)
    assert len({*known.values()}) > 1


FIGURES = {
    "two": (2, "complete", 1, "0.226"),
    "two, in ten rounds": (2, "complete", 10, "0.923"),
    "four complete": (4, "complete", 1, "0.008"),
    "three of four": (4, 3, 1, "0.120"),
    "three of eight": (8, 3, 1, "0.510"),
}


@pytest.mark.parametrize("name", FIGURES)
def test_of_32_clients_with_7_who_collude(name):
    size, smallest, rounds, due = FIGURES[name]
    chance = exposed("bfv", buffers_of(32, size, smallest), 7)
    assert f"{within_all([(chance, rounds)]):.3f}" == due


def test_who_has_no_samples_hides_nobody():
    """Of 16 clients in buffers of four 8 have none: listed are the sets of three others behind a sum that open."""

    def over(colluders, empty, smallest="complete"):
        return Sums(None, alike(16, 4, smallest, empty=empty), 0, colluders, ()).over(colluders)[0]

    others = [*["colluder"] * 3, *["empty"] * 8, *["honest"] * 4]
    for colluders in range(4):
        kinds = ["honest" if one == "colluder" and place >= colluders else one for place, one in enumerate(others)]
        sets = [[kinds[place] for place in some] for some in combinations(range(15), 3)]
        opens = [some for some in sets if "honest" not in some and "colluder" in some]
        assert over(colluders, 8) == len(opens) / len(sets)
    assert over(1, 8) == pytest.approx(28 / 455)
    assert over(1, 8, 2) > over(1, 8) > over(1, 0) == over(0, 8) == 0
    told = "with 1 colluding client, beside 8 clients without samples: in a round with a chance of 6.16 %"
    assert told in Sums(None, alike(16, 4, empty=8), 0, 1, ()).in_short


@pytest.mark.parametrize("suite", ["bfv", "bfv+mask", "mask"])
@pytest.mark.parametrize("smallest", ["complete", 3, 4])
def test_sums_of_three_open_for_two_colluders_whoever_is_without_samples(suite, smallest):
    """Of eight clients in buffers of four or of eight: every set of partners, of which the server leaves out some."""
    for size, bad, empty in ((s, b, e) for s in (4, 8) for b in range(4) for e in range(4)):
        transport = SecureSum(size, smallest)
        (buffer, *_) = buffers = [Buffer(*pair, transport.least_trained) for pair in transport.buffers(8)]
        kinds = [*["colluder"] * bad, *["empty"] * empty, *["honest"] * (7 - bad - empty)]
        sets = [[kinds[place] for place in some] for some in combinations(range(7), size - 1)]
        found = Fraction(sum(_is_open(suite, buffer, some) for some in sets), len(sets))
        assert exposed(suite, buffers, bad, empty) == found


def _is_open(suite, buffer, partners):
    """The server leaves out whom it likes: rows enough are in a sum, two colluders and the one who has samples too."""
    bad, empty = partners.count("colluder"), partners.count("empty")
    sums = ((b, e) for b in range(bad + 1) for e in range(empty + 1))
    trained = buffer.trained
    alone = any(1 + b + e >= fewest(suite, buffer) and 1 + b >= trained for b, e in sums)
    return alone or (suite == "mask" and bad >= partners_needed(suite, buffer))


@pytest.mark.parametrize("suite", SUITES, ids=str)
@pytest.mark.parametrize("size", [3, 7, 9])
def test_who_has_no_samples_has_no_secrets_either(suite, size):
    """In one complete buffer: enough colluders for the suite, or all others known and a colluder among them."""
    buffer = Buffer(size, size)
    for empty, colluders in ((e, c) for e in range(size) for c in range(1, size - e)):
        opens = colluders >= partners_needed(suite, buffer) or colluders + empty == size - 1
        assert Alike(1, (buffer,), empty).chance(suite, colluders) == opens, (colluders, empty)


def test_in_a_round_of_nobody_with_samples_no_row_is_open():
    """Also in plain, and whoever colludes; other rounds count as they are."""
    idle, busy = Alike(2, (Buffer(3, 3),), 3), Alike(1, (Buffer(3, 3),), 2)
    for suite, colluders in product(("plain", "bfv", None), range(4)):
        assert idle.chance(suite, colluders) == 0
    assert (Sums("bfv", (idle,), 0, 0, ()).fewest, Sums("plain", (idle, busy), 0, 0, ()).empty) == (None, 3)
    assert Sums("bfv", (idle, replace(busy, empty=0)), 0, 0, ()).over(2) == (1, 1)


def test_rounds_with_few_clients_are_counted_as_they_were():
    """Rounds of 10 and 8 in twos, one colluder: 1/9 and 1/7 of the lots. The run opens a row in any of its rounds."""
    sums = Sums("mask", (*alike(10, 2, rounds=2), *alike(8, 2, rounds=1)), 0, 0, ())
    assert sums.over(1) == (pytest.approx(1 / 7), pytest.approx(1 - (8 / 9) ** 2 * (6 / 7)))
    assert (sums.places, sums.rounds) == (10, 3)
    assert "in a round, the worst of them, with a chance of 14.3 %; at least once in 3 rounds" in sums.in_short
    assert sums.meetings == (pytest.approx(2 / 9 + 1 / 7), pytest.approx(1 - (8 / 9) ** 2 * (6 / 7)))
    # of a round of two, eight colluders are one
    assert Sums("mask", (*alike(10, 2), *alike(2, 2)), 0, 0, ()).over(8)[0] == 1


FEWEST = {
    "plain": (Sums("plain", alike(6, 6), 0, 0, ()), 0, "open to the server, and nobody need help it"),
    "one buffer": (
        Sums("bfv", alike(6, 6), 0, 0, ()),
        5,
        "with 5 colluding clients, and not with fewer: in a round",
    ),
    "three of four": (Sums("bfv", alike(8, 4, 3), 0, 0, ()), 2, "with 2 colluding clients, and not with fewer: in"),
    "more are feared": (Sums("bfv", alike(8, 4, 3), 0, 3, ()), 2, "with 3 colluding clients: in a round"),
    "plain, and no buffer opens": (Sums("plain", alike(2, 4, 3), 0, 0, ()), None, "a row to the server: no buffer"),
    "no buffer opens": (Sums("bfv", alike(2, 4, 3), 0, 0, ()), None, "no number of colluding clients opens a row"),
    "empty ones": (
        Sums("bfv", alike(6, 6, empty=2), 0, 0, ()),
        3,
        "not with fewer, beside 2 clients without samples: in a",
    ),
    "a small round": (Sums("bfv", (*alike(9, 4), *alike(3, 4)), 0, 0, ()), 2, "with 2 colluding clients, and not"),
}


@pytest.mark.parametrize("name", FEWEST)
def test_the_line_says_how_many_colluders_it_takes(name):
    sums, fewest, words = FEWEST[name]
    assert sums.fewest == fewest
    assert words in sums.in_short
    rows = {row["colluders"]: row["in_the_worst_round"] for row in sums.table()["exposed"]}
    assert min((number for number, chance in rows.items() if chance), default=None) == fewest
    assert fewest in (0, None) or rows[fewest] == pytest.approx(sums.over(fewest)[0], rel=1e-5)
    assert fewest in (0, None) or sums.over(fewest - 1)[0] == 0


def test_who_takes_part_beside_the_empty_in_a_small_round():
    """Of a round of four in one buffer at most two are without samples beside one colluder: she has the fourth row."""
    assert Sums(None, alike(4, 4, empty=2), 0, 1, ()).over(1)[0] == 1


def test_behind_masks_fewer_rows_open_less():
    """With a list of more than half five of eight have to come, with two thirds six; but two secrets open a row too."""
    few = buffers_of(32, 8, 3)
    assert [fewest(suite, few[0]) for suite in ("bfv", "bfv+mask", "mask")] == [3, 5, 6]
    assert [partners_needed(suite, few[0]) for suite in ("bfv", "bfv+mask", "mask")] == [2, 4, 4]
    # (35 * 2024 + 21 * 276 + 7 * 24 + 1) / 2629575 of these have four of seven partners or more who collude
    assert [round(float(exposed(suite, few, 7)), 4) for suite in ("bfv", "bfv+mask")] == [0.5101, 0.0292]


@given(st.integers(2, 40), st.integers(2, 9), st.integers(2, 9), st.sampled_from(SUITES), st.data())
def test_chances_grow_with_colluders_and_with_rows_that_may_be_left_out(places, size, smallest, suite, data):
    colluders = data.draw(st.integers(0, places - 1))
    complete, fewer = buffers_of(places, size), [Buffer(n, min(n, smallest)) for n in sizes(places, size)]
    one, other = (exposed(suite, some, colluders) for some in (complete, fewer))
    assert 0 <= one <= other <= 1
    assert one <= exposed(suite, complete, places - 1) == 1
    assert colluders == 0 or exposed(suite, complete, colluders - 1) <= one
    assert suite == "plain" or exposed(suite, complete, 0) == 0
    assert within_all([(other, 3)]) == pytest.approx(float(1 - (1 - other) * (1 - other) * (1 - other)), rel=1e-15)


def test_the_chance_of_rounds_is_that_of_one_in_each():
    assert [within_all([(Fraction(1, 3), rounds)]) for rounds in range(3)] == pytest.approx([0, 1 / 3, 5 / 9])
    assert within_all([(Fraction(1), 0), (Fraction(1, 2), 1)]) == pytest.approx(1 / 2)
    assert within_all([(Fraction(1, 2), 3), (Fraction(1), 1)]) == 1


@pytest.mark.parametrize(("chance", "rounds"), [(Fraction(1, 10**18), 1), (Fraction(7, 10**20), 1000)])
def test_a_small_chance_is_not_rounded_to_none(chance, rounds):
    """One less such a chance is one, as a float: a run of 10^6 such rounds would have been said to open no row."""
    assert within_all([(chance, rounds)]) == pytest.approx(float(1 - (1 - chance) ** rounds), rel=1e-12)


@pytest.mark.parametrize(("places", "size"), [(2, 2), (5, 2), (6, 2), (6, 3), (7, 3), (4, 9)])
def test_who_meets_whom_is_counted_over_all_orders(places, size):
    met = count = 0
    for order in permutations(range(places)):
        at, count = 0, count + 1
        for one in sizes(places, size):
            met += {0, 1} <= set(order[at : at + one])
            at += one
    assert meeting(buffers_of(places, size)) == Fraction(met, count)


@pytest.mark.parametrize("colluders", [-1, 4])
def test_more_colluders_than_others_are_refused(colluders):
    for bad, empty in ((colluders, 0), (0, colluders), (2, 2)):
        with pytest.raises(ValueError, match=f"of 4 clients {bad} collude and {empty} are empty, and one has a row"):
            exposed("bfv", buffers_of(4, 2), bad, empty)


# what suites do


@pytest.mark.parametrize("suite", ["bfv", "bfv+mask", "mask"])
@pytest.mark.parametrize("size", [2, 3, 4, 5, 6])
def test_suites_open_from_as_many_rows_as_is_said(suite, size):
    """The server says of some that they did not come; one row less is refused."""
    step = "send" if suite == "bfv" else "announce"
    for smallest in {2} if size == 2 else {3, size - 1, size} - {2}:
        few = fewest(suite, Buffer(size, smallest))
        rows = rows_of(size, 5)
        gone = dict.fromkeys(range(size - few), step)
        found = Suite(suite, most=8).opened(rows, 12, absent=gone, smallest=smallest)
        assert np.array_equal(found.sums, rows[size - few :].sum(axis=0))
        with pytest.raises(RefusedError):
            Suite(suite, most=8).opened(rows, 12, absent=gone | {size - 1: step}, smallest=smallest)


@pytest.mark.parametrize("size", [4, 5, 6, 7, 8])
def test_behind_masks_as_many_partners_have_both_secrets_as_is_said(size):
    """One less has not. So the second way is there, and is no shorter than it is said to be."""
    needed = partners_needed("mask", Buffer(size, 3))
    some, split = opening_of(size, 5, smallest=3), 2 * fewest("mask", Buffer(size, 2)) - size
    if split == needed:
        assert np.array_equal(both_secrets(some, needed), some.row)
    assert both_secrets(some, split - 1) is None


@pytest.mark.parametrize("size", [3, 6, 7, 8])
def test_of_a_complete_buffer_behind_masks_two_thirds_have_both_secrets(size):
    """From seven on these are fewer than all others."""
    some, needed = opening_of(size, 5), partners_needed("mask", Buffer(size, size))
    assert needed == {3: 2, 6: 5, 7: 5, 8: 6}[size]
    shares = fewest("mask", Buffer(size, 2))
    if needed == shares:
        assert np.array_equal(both_secrets(some, needed), some.row)
    assert both_secrets(some, needed - 1) is None


@pytest.mark.parametrize("suite", EXACT)
def test_terms_say_what_exposure_counts(suite):
    """A buffer of the option's 2 is one of 3 where it has three members; terms with 2 are refused."""
    pairs = SecureSum(2, smallest=2).buffers(5)
    assert pairs == [(3, 2), (2, 2)]
    assert buffers_under(suite, pairs) == (Buffer(3, 3), Buffer(2, 2))
    assert buffers_under(None, pairs) == (Buffer(3, 2), Buffer(2, 2))
    for size in range(2, 9):
        few = floor_of(size)
        assert fewest(suite, Buffer(size, 2)) >= few == Suite(suite).floor(size)
        Suite(suite).opened(rows_of(size, 3), 12, smallest=few)
        with pytest.raises(UsageError, match=f"cannot be opened from {few - 1} rows on"):
            Suite(suite).opened(rows_of(size, 3), 12, smallest=few - 1)


def test_the_transport_says_its_buffers():
    assert SecureSum(2).buffers(5) == [(3, 3), (2, 2)]
    assert SecureSum(4, smallest=3).buffers(9) == [(5, 3), (4, 3)]
    assert SecureSum(4, smallest=3).buffers(2) == SecureSum(3).buffers(2) == [(2, 3)]


def test_rounds_until_half_of_the_rows_were_open():
    """The curve of the figure: of 32 with 7, in buffers of two, a row is open by the third round at even odds."""
    chance = float(exposed("bfv", buffers_of(32, 2), 7))
    assert log(0.5) / log(1 - chance) < 3
