"""Secure sums: equal to the sum of whole numbers, exactly, whoever is silent when; what does not fit is refused."""

import dataclasses
import subprocess
import sys
from math import isqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from secure_parties import Parties, rows_of

from fuaudit.errors import UsageError
from fuaudit.secure import bfv, shamir, terms
from fuaudit.secure.refusal import RefusedError
from fuaudit.secure.silence import STEPS
from fuaudit.secure.slots import packed, unpacked, weighted
from fuaudit.secure.streams import below
from fuaudit.secure.suites import SCARY, Books, Suite
from fuaudit.secure.terms import RINGS, SLOTS, layout_of

EXACT = ("bfv+mask", "bfv", "mask", "plain")
SLOW = settings(max_examples=10)


def extreme(clients, columns, bits, draw):
    """Rows of values at both ends, or of any in between."""
    largest = (1 << bits - 1) - 1
    kind = draw(st.sampled_from(["least", "most", "both", "any"]))
    if kind in ("least", "most"):
        return np.full((clients, columns), largest if kind == "most" else -largest)
    found = rows_of(clients, columns, bits, draw(st.integers(0, 2**32)))
    return np.where(found < 0, -largest, largest) if kind == "both" else found


@SLOW
@given(st.data())
def test_every_suite_gives_the_sum(data):
    """Around multiples of what a ciphertext holds, for 2 to 8 clients."""
    bits, clients = data.draw(st.integers(2, 24)), data.draw(st.integers(2, 8))
    layout = layout_of(bits, 8)
    whole = layout.fields * (SLOTS - 1)
    columns = max(1, data.draw(st.sampled_from([0, whole, 2 * whole])) + data.draw(st.integers(-2, 2)))
    rows = extreme(clients, columns, bits, data.draw)
    for name in EXACT:
        assert np.array_equal(Suite(name).sums(rows, bits), rows.sum(axis=0)), name


@pytest.mark.thorough
@settings(max_examples=3)
@given(st.data())
def test_buffers_of_more_than_eight_have_the_smaller_ring(data):
    clients, bits = data.draw(st.integers(9, 32)), data.draw(st.integers(2, 24))
    rows = extreme(clients, 50, bits, data.draw)
    for name in EXACT:
        assert np.array_equal(Suite(name, most=32).sums(rows, bits), rows.sum(axis=0)), name


def test_one_row_of_forty_thousand():
    rows = rows_of(3, 40_000)
    for name in EXACT:
        assert np.array_equal(Suite(name).sums(rows, 12), rows.sum(axis=0))


def test_the_demo_of_ckks_gives_rounded_sums_and_goes_by_its_whole_name():
    rows = rows_of(8, 3000)
    assert np.array_equal(Suite(SCARY).sums(rows, 12), rows.sum(axis=0))
    with pytest.raises(UsageError, match="recovers the key"):
        Suite("ckks-demo")
    with pytest.raises(UsageError, match=r"no suite 'bfw'"):
        Suite("bfw")


@pytest.mark.parametrize(
    ("bits", "most", "fields", "modulus"),
    [(12, 8, 3, RINGS[0]), (8, 8, 4, RINGS[0]), (19, 8, 2, RINGS[0]), (9, 32, 3, RINGS[1]), (24, 32, 1, RINGS[1])],
)
def test_widths_follow_from_the_largest_buffer(bits, most, fields, modulus):
    layout = layout_of(bits, most)
    assert (layout.fields, layout.ring) == (fields, modulus)
    assert layout.fields * layout.width <= layout.ring.bits
    assert 1 << layout.ring.bits < layout.ring.modulus
    assert most * 2 * ((1 << bits - 1) - 1) < 1 << layout.width


def test_moduli_are_primes_of_batching():
    for modulus in (ring.modulus for ring in RINGS):
        assert modulus % (2 * SLOTS) == 1
        assert (modulus % np.arange(3, isqrt(modulus) + 1, 2)).all()


@pytest.mark.parametrize("most", [33, 64])
def test_too_many_clients_are_refused_at_the_start(most):
    with pytest.raises(UsageError, match="of 2 to 32 clients"):
        Suite("bfv", most=most)


@pytest.mark.parametrize("name", EXACT)
def test_a_buffer_is_no_larger_than_was_said(name):
    with pytest.raises(UsageError, match="where 8 is the most"):
        Suite(name).sums(rows_of(9, 5), 12)


@pytest.mark.parametrize("name", [*EXACT, SCARY])
@pytest.mark.parametrize("value", [2048, -2048, 2**40, -(2**63)])
def test_a_value_outside_its_field_stops_its_client(name, value):
    rows = rows_of(3, 7)
    rows[1, 4] = value
    with pytest.raises(UsageError, match=r"client 1: 1 of 7 values are outside.*column 4") as caught:
        Suite(name).sums(rows, 12)
    assert "quantise" in caught.value.hint
    assert str(abs(value)) not in str(caught.value).replace("2047", "")


@pytest.mark.parametrize("rows", [np.zeros((3, 7)), np.zeros(7, dtype=np.int64), np.zeros((2, 7), dtype=np.int32)])
def test_rows_are_whole_numbers_of_64_bits(rows):
    with pytest.raises(UsageError):
        Suite("plain").sums(rows, 12)


@pytest.mark.parametrize("bits", [1, 25])
def test_values_have_2_to_24_bits(bits):
    with pytest.raises(UsageError, match="2 to 24 bits"):
        Suite("bfv").sums(rows_of(2, 3, 2), bits)


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("smallest", [1, 2, 9])
def test_few_rows_are_never_enough(name, smallest):
    with pytest.raises(UsageError, match="from 3 of more"):
        Suite(name).opened(rows_of(8, 3), 12, smallest=smallest)


def opens(name, step, left, smallest):
    """Whether a buffer of six opens where ``left`` of them are not silent from a step on."""
    if name == "mask":
        return left >= (5 if step == "unmask" else max(5, smallest))
    if step == "unmask":
        return True
    if name == "bfv+mask":
        return step == "announce" and left >= max(4, smallest)
    return left >= smallest


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("gone", "smallest"), [((5,), 6), ((5,), 3), ((0, 5), 3), ((0, 1, 2), 3)])
def test_who_is_silent_makes_no_sum_wrong(name, step, gone, smallest):
    """Whatever opens is the sum of those that it names; complete buffers alone where nothing else was said."""
    rows, absent = rows_of(6, 9), dict.fromkeys(gone, step)
    if not opens(name, step, 6 - len(gone), smallest):
        with pytest.raises(RefusedError):
            Suite(name).opened(rows, 12, None, absent, smallest)
        return
    opened = Suite(name).opened(rows, 12, None, absent, smallest)
    assert opened.members == tuple(one for one in range(6) if step == "unmask" or one not in gone)
    assert np.array_equal(opened.sums, rows[list(opened.members)].sum(axis=0))


@pytest.mark.parametrize("name", EXACT)
def test_no_buffer_is_opened_twice(name):
    """Nor over other rows: the difference of two sums would tell what changed."""
    suite, books, rows = Suite(name), Books(), rows_of(4, 5)
    assert np.array_equal(suite.opened(rows, 12, at=(3, 1), books=books).sums, rows.sum(axis=0))
    for other in (rows, rows_of(4, 5, seed=2)):
        with pytest.raises(RefusedError, match="answered already"):
            suite.opened(other, 12, at=(3, 1), books=books)
    assert suite.opened(rows, 12, at=(4, 1), books=books).members == (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("name", "gone", "again"),
    [
        ("bfv+mask", "announce", True),
        ("bfv+mask", "send", False),
        ("bfv", "send", False),
        ("mask", "send", True),
        ("mask", "unmask", False),
    ],
)
def test_a_client_sends_and_unmasks_once_a_round(name, gone, again):
    """What a key holder could have opened, and what shares were told for, is not tried again with other clients."""
    rows, suite, books = rows_of(6, 5), Suite(name), Books()
    with pytest.raises(RefusedError):
        suite.opened(rows, 12, None, dict.fromkeys((0, 1), gone), books=books)
    if again:
        assert np.array_equal(suite.opened(rows, 12, books=books).sums, rows.sum(axis=0))
    else:
        with pytest.raises(RefusedError, match="answered already"):
            suite.opened(rows, 12, books=books)


def test_rows_are_those_of_the_clients_that_are_named():
    """In any order; a client is in one buffer of a round."""
    rows, books = rows_of(3, 5), Books()
    for name in EXACT:
        opened = Suite(name).opened(rows, 12, [9, 4, 7], {4: "unmask"} if name != "mask" else {})
        assert (opened.members, opened.sums.tolist()) == ((4, 7, 9), rows.sum(axis=0).tolist())
    Suite("mask").opened(rows, 12, [9, 4, 7], at=(1, 0), books=books)
    Suite("mask").opened(rows, 12, [1, 2, 3], at=(1, 1), books=books)
    with pytest.raises(RefusedError, match="answered already in round 1"):
        Suite("mask").opened(rows, 12, [5, 6, 7], at=(1, 2), books=books)
    with pytest.raises(UsageError, match="s clients"):
        Suite("mask").opened(rows, 12, [5, 6, 6])


@given(st.integers(2, 24), st.integers(2, 8), st.integers(1, 70), st.integers(0, 2**32))
def test_packing_is_undone_also_of_sums(bits, clients, columns, seed):
    layout, largest = layout_of(bits, clients), (1 << bits - 1) - 1
    rows = rows_of(clients, columns, bits, seed) + largest
    total = sum(packed(row, layout) for row in rows)
    assert total.max() < layout.ring.modulus
    assert np.array_equal(unpacked(total, layout, columns), rows.sum(axis=0))


@given(st.integers(1, 200), st.integers(0, 2**32), st.sampled_from([ring.modulus for ring in RINGS]))
def test_weighted_sums_are_those_of_whole_numbers(count, seed, modulus):
    values, weights = np.random.Generator(np.random.Philox(seed)).integers(0, modulus, (2, count))
    due = sum(int(v) * int(w) for v, w in zip(values, weights, strict=True)) % modulus
    assert int(weighted(values, weights, modulus)) == due
    assert int(weighted(values * 0 + modulus - 1, weights * 0 + modulus - 1, modulus)) == count % modulus


def test_weighted_sums_of_many_do_not_overflow():
    modulus, count = RINGS[0].modulus, 3 * 2**16 + 5
    most = np.full(count, modulus - 1)
    assert int(weighted(most, most, modulus)) == count


def test_numbers_below_a_modulus_are_not_biased_by_a_remainder():
    """Of 3 numbers drawn by two bits each has a third; cutting remainders would give the first a half."""
    counts = np.bincount(below(3, bytes(32), 30_000), minlength=3)
    assert counts.sum() == 30_000
    assert (abs(counts - 10_000) < 500).all()  # six standard deviations, of one fixed stream
    assert np.array_equal(below(RINGS[0].modulus, b"k" * 32, 9)[:5], below(RINGS[0].modulus, b"k" * 32, 5))


@given(st.binary(min_size=32, max_size=32), st.integers(2, 32), st.data())
def test_shares_give_the_secret(secret, places, data):
    threshold = 2 * places // 3 + 1
    dealt = shamir.shares(secret, threshold, places)
    some = data.draw(st.permutations(range(places)))[:threshold]
    assert shamir.reconstructed({place: dealt[place] for place in some}) == secret
    assert shamir.reconstructed({place: dealt[place] for place in some[:-1]}) != secret


@pytest.mark.parametrize("ring", RINGS)
def test_the_margin_is_measured_at_the_most_summands(ring):
    assert bfv.require_margin(ring) >= bfv.MARGIN


def test_a_ring_without_margin_is_refused_at_the_start():
    """One modulus with eight bits more: sums of eight are wrong there."""
    wide = terms.Plaintexts(1125899906826241, 49, 32)
    assert wide.modulus % (2 * SLOTS) == 1
    with pytest.raises(UsageError, match="bits of noise budget are left"):
        bfv.require_margin(wide)


def test_another_version_of_the_library_is_refused():
    terms.require_library(terms.installed())
    with pytest.raises(UsageError, match=r"tenseal 0\.3\.18 is needed for encrypted sums, not 0\.3\.16"):
        terms.require_library("0.3.16")


def test_the_room_imports_no_torch():
    script = "import sys, fuaudit.secure.suites; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {"torch", "tenseal"} & set(done.stdout.split())


@pytest.mark.parametrize("suite", ["bfv", "bfv+mask", "mask"])
@pytest.mark.parametrize("step", ["bits", "columns", "most", "round"])
def test_what_is_agreed_on_is_one_thing(suite, step):
    """A client that holds other terms is refused before its row is looked at, and nobody else is named."""
    parties = Parties(suite, rows_of(4, 6, 8))
    other = dataclasses.replace(parties.terms, **{step: getattr(parties.terms, step) + 1})
    if step == "columns":
        parties.rows = rows_of(4, 7, 8)
    if suite == "mask":
        parties.clients[2] = parties.masked(2, other)
        messages = parties.announced()
        with pytest.raises(RefusedError, match="client 2 at step announce does not have its signature"):
            parties.clients[0].share(messages)
    else:
        with pytest.raises(RefusedError, match="client 2 and the key holder did not agree"):
            parties.client(2, other)
