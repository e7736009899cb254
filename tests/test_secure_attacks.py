"""Attacks on secure sums: what each party could try, and what comes of it. Each must fail, but the one on CKKS."""

import gc
import sys
from dataclasses import replace
from types import FrameType, FunctionType, ModuleType, TracebackType

import numpy as np
import pytest
import tenseal
from secure_parties import Parties, opening_of, rows_of

from fuaudit.errors import FuauditError, UsageError
from fuaudit.secure import bfv, ckks, encrypted, masked, messages, pairs, shamir, slots, streams, suites, terms
from fuaudit.secure.attacks import keys
from fuaudit.secure.attacks.openings import copy_of, held_by_key_holder
from fuaudit.secure.encrypted import Handout, Server, Total, Witness, ciphertexts_of
from fuaudit.secure.masked import Dealt, MaskClient, MaskServer
from fuaudit.secure.messages import Message
from fuaudit.secure.names import SCARY
from fuaudit.secure.pairs import PairKey, pair_masks
from fuaudit.secure.refusal import RefusedError
from fuaudit.secure.suites import Books, Suite
from fuaudit.secure.terms import RINGS, SLOTS, Once

KEYED = ("bfv", "bfv+mask")


@pytest.fixture
def parties():
    """A function that makes the parties of a buffer, whose secrets end with the test."""
    made = []

    def work(suite, clients=4, columns=30_000, **others):
        made.append(Parties(suite, rows_of(clients, columns), **others))
        return made[-1]

    return work


# the key of CKKS, and that of BFV


def test_whoever_sees_sums_of_ckks_has_the_key_and_every_row():
    """The server's own view: ciphertexts, their sum, and what the key holder gave for it."""
    got = keys.key_recovery(SCARY, opening_of(4, 2 * ckks.HALF))
    assert np.array_equal(got.found, got.due)


@pytest.mark.parametrize("suite", KEYED)
def test_the_same_division_gives_no_key_of_bfv(suite):
    """Two sums under one key give two polynomials that are no key: what was opened has no noise in it."""
    found = keys.keys_of_bfv(suite, opening_of(4, 30_000))
    assert len(found) == 2
    assert all(sum(abs(one) <= 1) < 5 for one in found)
    assert sum(found[0] == found[1]) < 5


# what is opened is the sum of the clients, or nothing


def altered(ciphertexts, at, by):
    return tuple(by(one) if place == at else one for place, one in enumerate(ciphertexts))


def flip_in_ciphertext(make, at, place):
    """One flipped bit; nothing is opened, or the sum is right (a bit that only adds noise).

    Eight clients with 19 bits fill a field: hardly any number is too large to be a sum.
    """
    four = make("bfv", clients=8, columns=9000, bits=19)
    total = four.server.total(four.sent()[1])

    def flipped(one):
        changed = bytearray(one)
        changed[place] ^= 64
        return bytes(changed)

    try:
        opened = four.signed(replace(total, ciphertexts=altered(total.ciphertexts, at, flipped)))
    except RefusedError:
        return
    assert np.array_equal(opened.sums, four.rows.sum(axis=0)), "a wrong sum was accepted"


def addition_without_a_key(make, at):
    """Anybody can add a constant to a ciphertext."""
    four = make("bfv+mask")
    announced, sent = four.sent()
    total = four.server.total(sent, announced)

    def more(one):
        vector = bfv.parsed(bfv.loaded(four.holder.keyless()), one)
        return vector.add([5] + [0] * (SLOTS - 1)).serialize()

    with pytest.raises(RefusedError, match="does not fit its checks"):
        four.signed(replace(total, ciphertexts=altered(total.ciphertexts, at, more)))


def one_client_twice(make):
    """In the place of another one: as many rows as there should be."""
    four = make("bfv")
    _, sent = four.sent()
    context = bfv.loaded(four.holder.keyless())
    parts = [ciphertexts_of(sent[number], four.terms)[1] for number in (0, 0, 2, 3)]
    sums = bfv.added([[bfv.parsed(context, one) for one in row] for row in parts])
    with pytest.raises(RefusedError, match="does not fit its checks"):
        four.signed(Total((0, 1, 2, 3), tuple(sums)))


def one_row_alone(make, members):
    """A single client's ciphertexts, said to be the sum."""
    four = make("bfv")
    _, sent = four.sent()
    single = Total(members, ciphertexts_of(sent[1], four.terms)[1])
    with pytest.raises(RefusedError, match=r"checks|left, where|none of this buffer"):
        four.signed(single)


def copied_ciphertext(make, fresh):
    """Client 1 sends that of client 0 as its own, also made to look new, with the checks that it can know."""
    four = make("bfv")
    _, sent = four.sent()
    sent[1] = four.resigned(sent[1], copy_of(four, sent[0], fresh))
    with pytest.raises(RefusedError, match="does not fit its checks" if fresh else "a ciphertext came twice"):
        four.opened(sent)


def swapped_ciphertexts(make):
    four = make("bfv")
    total = four.server.total(four.sent()[1])
    with pytest.raises(RefusedError, match="does not fit its checks"):
        four.signed(replace(total, ciphertexts=total.ciphertexts[::-1]))


@pytest.mark.parametrize("at", range(2))
def test_a_flipped_bit_of_any_ciphertext_gives_no_wrong_sum(parties, at):
    flips(parties, at)


@pytest.mark.parametrize("at", range(3))
def test_a_number_that_is_added_to_any_ciphertext_is_refused(parties, at):
    addition_without_a_key(parties, at)


def test_a_client_that_is_counted_twice_is_refused(parties):
    one_client_twice(parties)


@pytest.mark.parametrize("members", [(0, 1, 2, 3), (1,), (1, 2, 3), (1, 1, 1, 1), (1, 7, 8, 9)])
def test_one_client_alone_is_refused(parties, members):
    one_row_alone(parties, members)


@pytest.mark.parametrize("fresh", [False, True])
def test_a_copy_of_a_ciphertext_is_refused(parties, fresh):
    copied_ciphertext(parties, fresh)


def test_ciphertexts_in_another_order_are_refused(parties):
    swapped_ciphertexts(parties)


def test_what_the_witness_did_not_sign_is_not_opened(parties):
    four = parties("bfv", columns=9)
    _, sent = four.sent()
    total = four.server.total(sent)
    other = replace(total, ciphertexts=four.server.total(sent[:1] + sent[1:]).ciphertexts[::-1], members=(0, 1, 2))
    signature = four.witness.signature(sent, total)
    with pytest.raises(RefusedError, match="did not sign"):
        four.holder.opened(other, signature)
    with pytest.raises(RefusedError, match="not due"):  # and the key is gone
        four.holder.opened(total, signature)


def test_the_witness_signs_the_sum_of_the_messages_and_no_other_one(parties):
    four = parties("bfv", columns=9, smallest=3)
    _, sent = four.sent()
    for wrong in (four.server.total(sent[:3]), replace(four.server.total(sent), members=(0, 1, 2))):
        with pytest.raises(RefusedError, match="not that of the clients' messages"):
            four.witness.signature(sent, wrong)
    four.witness.signature(sent, four.server.total(sent))
    with pytest.raises(RefusedError, match="answered already"):
        four.witness.signature(sent[:3], four.server.total(sent[:3]))


def test_every_message_is_that_of_its_client(parties):
    """Altered, from nobody, twice, of another step or of another attempt: refused, and nobody is blamed for it."""
    four, other = parties("bfv", columns=9), parties("bfv", columns=9)
    _, sent = four.sent()
    changed = bytearray(sent[2].body)
    changed[-70] ^= 1
    wrong = [
        replace(sent[2], body=bytes(changed)),
        replace(sent[2], sender=3),
        replace(sent[2], sender=7),
        replace(sent[2], step="share"),
        replace(sent[2], signature=bytes(64)),
        sent[1],
        other.sent()[1][2],
    ]
    for one in wrong:
        with pytest.raises(RefusedError) as caught:
            four.server.total([*sent[:2], one, sent[3]])
        assert caught.value.blamed is None


@pytest.mark.parametrize("body", [b"", bytes(32), bytes(32) + b"\x05\0\0\0hello", bytes(32) + b"\xff" * 70_000])
def test_bytes_that_are_no_ciphertexts_are_their_senders(parties, body):
    four = parties("bfv", columns=9)
    _, sent = four.sent()
    sent[2] = Message.signed("send", 2, body, four.terms, four.identities[2])
    with pytest.raises(RefusedError) as caught:
        four.server.total(sent)
    assert caught.value.blamed == 2


# masks


def noise_to_the_key_holder(_, members=(0, 2)):
    hidden = opening_of(4, 9000)
    due, found = hidden.rows[list(members)].sum(axis=0), held_by_key_holder("bfv+mask", hidden, members)
    assert (found == due).mean() < 0.01, "the key holder can open some rows"
    assert abs(np.corrcoef(found, due)[0, 1]) < 0.06  # six standard deviations of 9,000 independent pairs


@pytest.mark.parametrize("members", [(1,), (0, 2), (0, 1, 2)])
def test_server_and_key_holder_together_find_noise_behind_masks_and_rows_without(parties, members):
    plain = opening_of(4, 9000)
    assert np.array_equal(held_by_key_holder("bfv", plain, members), plain.rows[list(members)].sum(axis=0))
    noise_to_the_key_holder(parties, members)


def masks_cancel_under_one_list_alone():
    """Of two clients who were shown two lists the masks do not cancel."""
    keys = [PairKey(), PairKey()]
    numbers = pairs.modular(RINGS[0].modulus, (5,))

    def total(one, other):
        lists = (one, other)
        masks = [pair_masks(keys[n], n, {1 - n: keys[1 - n].public}, lists[n], numbers) for n in (0, 1)]
        return sum(masks)

    assert not total(b"a" * 32, b"a" * 32).any()
    assert total(b"a" * 32, b"b" * 32).all(), "masks of two lists cancel"


def two_lists_of_keys(make):
    """The server shows half of the clients one list and the rest another one; no sum of few comes out."""
    eight = make("mask", clients=8, columns=9, smallest=6)
    announced = eight.announced()
    shared = []
    for client in eight.clients:
        seen = announced[:6] if client.number < 3 else announced[2:]
        shared.append(client.share(seen))
    for client, seen in ((eight.clients[0], shared[:6]), (eight.clients[3], shared[2:])):
        with pytest.raises(RefusedError, match=r"names another list|announced no keys"):
            client.send(seen)


def test_masks_of_clients_who_were_shown_two_lists_do_not_cancel(parties):
    masks_cancel_under_one_list_alone()
    two_lists_of_keys(parties)


@pytest.mark.parametrize("suite", ["mask", "bfv+mask"])
def test_a_list_of_few_is_refused_by_every_client(parties, suite):
    """Two of eight clients who are told that they are alone would give the sum of two rows."""
    eight = parties(suite, clients=8, columns=9, smallest=3)
    announced = eight.announced()
    step = "share" if suite == "mask" else "send"
    for client in eight.clients[:2]:
        with pytest.raises(RefusedError, match="2 of 8 clients"):
            getattr(client, step)(announced[:2])
    for client in eight.clients[2:4]:
        with pytest.raises(RefusedError, match="4 of 8 clients"):
            getattr(client, step)(announced[:4])


def forged_announcement(make, suite="mask"):
    """The server puts keys of its own in the place of a client's: it would know the masks of that pair."""
    four = make(suite, columns=9)
    announced, step = four.announced(), "share" if suite == "mask" else "send"
    forged = replace(announced[2], body=b"".join(PairKey().public for _ in range(len(announced[2].body) // 32)))
    with pytest.raises(RefusedError, match="does not have its signature"):
        getattr(four.clients[0], step)([*announced[:2], forged, announced[3]])


@pytest.mark.parametrize("suite", ["mask", "bfv+mask"])
def test_a_key_in_the_place_of_a_clients_is_refused(parties, suite):
    forged_announcement(parties, suite)


@pytest.mark.parametrize("suite", ["mask", "bfv+mask"])
def test_a_client_looks_for_its_own_key_in_the_list(parties, suite):
    four = parties(suite, columns=9)
    announced, step = four.announced(), "share" if suite == "mask" else "send"
    other = four.masked(0) if suite == "mask" else four.client(0)
    other.announce()
    with pytest.raises(RefusedError, match="not in the list of keys with what it announced"):
        getattr(other, step)(announced)


def both_shares_of_a_client(make):
    """The server says to some clients that 5 came, to others that it did not; it needs six shares of each."""
    eight = make("mask", clients=8, columns=9, smallest=6)
    _, _, sent = eight.sent()
    everybody = [message.sender for message in sent]
    told = {"seed": 0, "key": 0}
    for client in eight.clients:
        came = everybody if client.number % 2 else [one for one in everybody if one != 5]
        if client.number in came:
            client.unmask(came)
            told["seed" if 5 in came else "key"] += 1
        for again in (everybody, everybody[1:]):
            try:
                client.unmask(again)
            except RefusedError:
                continue
            told["seed"] += 1
            told["key"] += 1
    assert max(told.values()) < masked.threshold(eight.terms), "both shares of one client can be had"


def test_nobody_tells_both_shares_and_nobody_tells_twice(parties):
    both_shares_of_a_client(parties)


@pytest.mark.parametrize("came", [(0, 1, 2), (1, 2, 3, 4, 5, 6, 7), (0, 1, 2, 3, 4, 5, 6, 9)])
def test_a_client_unmasks_a_sum_of_many_with_its_own_row(parties, came):
    eight = parties("mask", clients=8, columns=9, smallest=3)
    eight.sent()
    with pytest.raises(RefusedError, match=r"left, where|sum of others"):
        eight.clients[0].unmask(came)


# who lies is named, or nobody


def lying_dealer(make):
    """Client 1 deals client 3 shares that are not what it committed to; client 3, its victim, is not named."""
    four = make("mask", columns=9)
    announced = four.announced()
    shared = [one.share(announced) for one in four.clients]
    dealt = Dealt.of(shared[1], four.terms.members, four.terms)
    wrong = replace(dealt, sealed=dealt.sealed | {3: bytes(len(dealt.sealed[3]))})
    shared[1] = four.resigned(shared[1], wrong.body())
    for number in (0, 2):
        four.clients[number].send(shared)
    with pytest.raises(RefusedError, match="client 1 dealt shares to client 3") as caught:
        four.clients[3].send(shared)
    assert caught.value.blamed == 1


def lying_holder(make, holders):
    """Clients who tell wrong shares: few are not needed, of many one of them is named and none of their victims."""
    six = make("mask", clients=6, columns=9)
    announced, shared, sent = six.sent()
    came = [message.sender for message in sent]
    answers = [one.unmask(came) for one in six.clients]
    for holder in holders:
        body = bytearray(answers[holder].body)
        body[32 + shamir.SHARE_BYTES * 2 + 5] ^= 1  # the share of what client 2 dealt
        answers[holder] = six.resigned(answers[holder], bytes(body))
    return six, MaskServer(six.terms), (announced, shared, sent, answers)


def dealer_of_another_seed(make):
    """Client 1 deals shares that fit its commitments, of a seed with which it did not mask."""
    four = make("mask", columns=9)
    announced = four.announced()
    shared = [one.share(announced) for one in four.clients]
    dealt = Dealt.of(shared[1], four.terms.members, four.terms)
    wrong = replace(dealt, seed=bytes(32))
    shared[1] = four.resigned(shared[1], wrong.body())
    sent = [one.send(shared) for one in four.clients if one.number != 1]
    with pytest.raises(RefusedError, match=r"client 1|3 of 4"):
        four.unmasked(announced, shared, sent)


def test_a_dealer_that_lies_is_named_and_not_its_victim(parties):
    lying_dealer(parties)
    dealer_of_another_seed(parties)


def test_a_holder_that_lies_is_not_needed_and_named(parties):
    six, server, came = lying_holder(parties, [4])
    opened = server.opened(*came)
    assert (opened.liars, opened.members) == ((4,), tuple(range(6)))
    assert np.array_equal(opened.sums, six.rows.sum(axis=0))
    _, server, came = lying_holder(parties, [4, 5])
    with pytest.raises(RefusedError, match="too few right shares") as caught:
        server.opened(*came)
    assert caught.value.blamed in (4, 5)


@pytest.mark.parametrize("suite", ["mask", "bfv+mask"])
def test_a_key_with_which_all_share_one_secret_is_its_announcers(parties, suite):
    four = parties(suite, columns=9)
    announced = four.announced()
    announced[1] = four.resigned(announced[1], bytes(len(announced[1].body)))
    step = "share" if suite == "mask" else "send"
    with pytest.raises(RefusedError, match="client 1 announced a public key") as caught:
        getattr(four.clients[3], step)(announced)
    assert caught.value.blamed == 1


def test_a_row_that_is_none_makes_no_wrong_sum(parties):
    """A client of masks that sends noise: nobody is named, nothing is opened."""
    four = parties("mask", columns=9)
    announced, shared, sent = four.sent()
    body = bytearray(sent[2].body)
    body[33] ^= 1
    sent[2] = four.resigned(sent[2], bytes(body))
    with pytest.raises(RefusedError, match="do not add up to a sum of rows") as caught:
        four.unmasked(announced, shared, sent)
    assert caught.value.blamed is None


# secrets


def reached(start):
    """All that can be reached from an object: what frames, errors, functions and containers hold."""
    seen, waiting = {}, [start]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, ModuleType | type):
            continue
        seen[id(one)] = one
        if isinstance(one, FrameType):
            waiting += [one.f_locals, one.f_back] if "fuaudit" in one.f_globals.get("__name__", "") else []
        elif isinstance(one, TracebackType):
            waiting += [one.tb_frame, one.tb_next]
        elif isinstance(one, BaseException):
            waiting += [one.__traceback__, one.__context__, one.__cause__, one.args, vars(one)]
        elif not isinstance(one, FunctionType):
            waiting += gc.get_referents(one)
    return list(seen.values())


@pytest.fixture
def told(monkeypatch):
    """Every secret that is made or derived while the test runs, as bytes."""
    found = set()

    def noting(work):
        def noted(*args, **kwargs):
            made = work(*args, **kwargs)
            found.add(made)
            return made

        return noted

    monkeypatch.setattr(streams.secrets, "token_bytes", noting(streams.secrets.token_bytes))
    for room in (pairs, masked, slots):
        monkeypatch.setattr(room, "derived", noting(streams.derived))
    monkeypatch.setattr(PairKey, "shared", noting(PairKey.shared))
    return found


BROKEN = {
    "a value outside": lambda: Suite("bfv+mask").sums(rows_of(3, 5) * 2, 12),
    "too few": lambda: Suite("bfv").opened(rows_of(3, 5), 12, None, {1: "send"}),
    "too few, behind masks": lambda: Suite("bfv+mask").opened(rows_of(4, 5), 12, None, {1: "send"}),
    "too few with shares": lambda: Suite("mask").opened(rows_of(4, 5), 12, None, {1: "unmask", 2: "unmask"}),
    "too few to deal": lambda: Suite("mask").opened(rows_of(4, 5), 12, None, {1: "share", 2: "share"}),
}
SECRETS = (PairKey, Handout, Dealt, bfv.Keys)


def refused_opening(make):
    four = make("bfv")
    total = four.server.total(four.sent()[1])
    total = replace(total, ciphertexts=total.ciphertexts[::-1])
    # not by the room of attacks, whose frames hold rows of their own
    return four.holder.opened(total, four.witness_key.signature(total.said(four.terms)))


def library_error(monkeypatch):
    def broken(*_):
        raise ValueError("from a library")

    monkeypatch.setattr(encrypted, "unpacked", broken)
    return Suite("bfv").sums(rows_of(3, 5), 12)


def no_secret_on(error, told, known=()):
    found = reached(error)
    assert not [one for one in found if isinstance(one, (*SECRETS, *known))]
    held = {bytes(one) for one in found if isinstance(one, bytes | bytearray)}
    assert not held & told
    assert not [one for one in found if isinstance(one, tenseal.Context) and one.has_secret_key()]


@pytest.mark.parametrize("name", [*BROKEN, "a refused opening", "an error of a library"])
def test_no_error_keeps_a_secret(parties, told, monkeypatch, name):
    others = {
        "a refused opening": lambda: refused_opening(parties),
        "an error of a library": lambda: library_error(monkeypatch),
    }
    with pytest.raises(FuauditError) as caught:
        (BROKEN | others)[name]()
    assert told or name == "a value outside"
    error = caught.value
    assert error.__context__ is error.__cause__ is None
    if name == "a refused opening":  # the frames of this test hold clients of its own
        frames = [frame.frame.f_locals for frame in caught.traceback if "fuaudit/secure" in str(frame.path)]
        held = [one for local in frames for one in local.values() if not isinstance(one, FunctionType)]
        assert not [one for one in reached(held) if isinstance(one, (*SECRETS, tenseal.Context, np.ndarray))]
        return
    no_secret_on(error, told)


def kept_of(work, told):
    """What is still held after some work of the secrets that were told in it.

    Objects of before are frozen, so that only new ones are walked; who of them all holds a secret is asked once.
    The collector does not know a dict or tuple of bytes alone, so these are walked too.
    """
    gc.collect()
    gc.freeze()
    try:
        work()
        gc.collect()
        left = gc.get_objects()
    finally:
        gc.unfreeze()
    contexts = [one for one in left if isinstance(one, tenseal.Context)]
    held = [one for some in left for one in gc.get_referents(some)]
    held += [one for some in held if type(some) in (dict, tuple) for one in gc.get_referents(some)]
    copies = [one for one in held if type(one) is bytes and one in told]
    return [
        *(one for one in left if isinstance(one, SECRETS)),
        *(one for one in contexts if one.has_secret_key() or one.has_public_key()),
        *(one for one in gc.get_referrers(*told) if one is not told),
        *copies,
    ]


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["mask", "bfv", "bfv+mask"])
def test_secrets_end_with_the_round(told, name):
    kept = kept_of(lambda: Suite(name).sums(rows_of(4, 5), 12), told)
    assert told
    assert not kept


KEPT = []


@pytest.mark.thorough
@pytest.mark.parametrize(
    "keep",
    [
        lambda secret: secret,
        lambda secret: [bytes(bytearray(secret))],
        lambda secret: [{"one": bytes(bytearray(secret))}],
        lambda _: PairKey(),
        lambda _: bfv.new_keys(terms.RINGS[0]),
    ],
    ids=["itself", "a copy", "a copy in a dict", "a key", "keys of ciphertexts"],
)
def test_a_secret_that_stays_is_seen(told, keep):
    try:
        assert kept_of(lambda: KEPT.append(keep(streams.secrets.token_bytes(32))), told)
    finally:
        KEPT.clear()


@pytest.mark.parametrize("name", ["mask", "bfv", "bfv+mask"])
def test_nothing_that_is_sent_comes_twice(monkeypatch, name):
    """The same rows, twice: no message, key, mask or signature is the same, so none follows from rows or a number."""
    runs, said = [], Message.signed.__func__

    def noted(cls, step, sender, body, *others):
        if sender >= 0:
            runs[-1].append(np.frombuffer(body[0 if step == "announce" else 32 :], dtype=np.uint8))  # behind a digest
        return said(cls, step, sender, body, *others)

    monkeypatch.setattr(Message, "signed", classmethod(noted))
    for _ in range(2):
        runs.append([])
        Suite(name).sums(rows_of(4, 5), 12)
    assert len(runs[0]) == len(runs[1]) > 3
    for one, other in zip(*runs, strict=True):
        assert (one == other).mean() < 0.05 + 4 / len(one)  # of random bytes one in 256 is alike


def test_the_room_draws_from_nothing_that_a_run_can_repeat():
    for room in (bfv, ckks, encrypted, masked, messages, pairs, shamir, slots, streams, suites, terms):
        named = {getattr(value, "__module__", "") or "" for value in vars(room).values()} | set(vars(room))
        assert not {name for name in named if name.startswith(("fuaudit.draws", "numpy.random", "random"))}, room


def test_neither_server_nor_witness_can_encrypt_or_open(parties):
    four = parties("bfv", columns=9)
    _, sent = four.sent()
    part = four.holder.keyless()
    assert len(part) == 86
    context = bfv.loaded(part)
    ciphertext = bfv.parsed(context, ciphertexts_of(sent[0], four.terms)[1][0])
    for attempt in (ciphertext.decrypt, context.decryptor, lambda: tenseal.bfv_vector(context, [1])):
        with pytest.raises((ValueError, RuntimeError)):
            attempt()
    own = tenseal.context(tenseal.SCHEME_TYPE.BFV, SLOTS, plain_modulus=RINGS[0].modulus, n_threads=1)
    contexts = [own.serialize(True, secret, False, False) for secret in (False, True)]
    for other in (four.holder.handout(0).public, *contexts):
        with pytest.raises(RefusedError):
            Server(four.terms, other).total(sent)
        with pytest.raises(RefusedError):
            bfv.loaded(other)


@pytest.mark.parametrize("suite", ["mask", *KEYED])
def test_the_servers_side_is_given_bytes_alone(suite):
    """Every argument of server and witness, and all that is reached from it: ids, words and bytes; never a row."""
    given, homes = [], (Server, Witness, MaskServer)
    codes = {
        method.__wrapped__.__code__ if hasattr(method, "__wrapped__") else method.__code__
        for home in homes
        for method in vars(home).values()
        if isinstance(method, FunctionType)
    }

    def watch(frame, event, _):
        if event == "call" and frame.f_code in codes:
            given.append({name: value for name, value in frame.f_locals.items() if name != "self"})
            given.append(vars(frame.f_locals["self"]).copy())

    rows = rows_of(4, 50)
    sys.setprofile(watch)
    try:
        assert np.array_equal(Suite(suite).sums(rows, 12), rows.sum(axis=0))
    finally:
        sys.setprofile(None)
    assert given
    for one in given:
        kinds = {type(each) for each in reached(list(one.values()))}
        assert not {kind for kind in kinds if kind.__module__.startswith(("tenseal", "_tenseal", "cryptography"))} - {
            kind for kind in kinds if "Ed25519" in kind.__name__
        }
        if suite != "mask":
            assert np.ndarray not in kinds
    assert not any(b"".join(row.tobytes() for row in rows)[:64] in str(one).encode() for one in given)


# wrong implementations


def first_alone(slots_, *others, right=slots.checks):
    """A check of the first ciphertext alone."""
    due = right(slots_, *others)
    due[1:] = 0
    return due


def no_list(secret, about, one, other, agreed, right=pairs.pair_key):
    """Keys of pairs without the list in them."""
    return right(secret, about, one, other, bytes(32))


def flips(make, at):
    """A bit of bytes in a row: some are too low to change a number, some too high to be one."""
    for place in range(20_008, 20_014):
        flip_in_ciphertext(make, at, place)


def dealing_twice(make):
    """A client that deals twice, to other lists, would tell shares of one key to more than it should."""
    four = make("mask", columns=9, smallest=3)
    announced = four.announced()
    four.clients[0].share(announced)
    with pytest.raises(RefusedError, match="not due"):
        four.clients[0].share(announced[:3])


def second_opening(suite):
    """Of one buffer, over other rows."""
    books = Books()
    Suite(suite).opened(rows_of(4, 5), 12, books=books)
    with pytest.raises(RefusedError, match="answered already"):
        Suite(suite).opened(rows_of(4, 5, seed=2), 12, books=books)


def clipped(name):
    """A value outside its field is never cut."""
    rows = rows_of(3, 5)
    rows[1, 2] = 5000
    with pytest.raises(UsageError, match="are outside"):
        Suite(name).sums(rows, 12)


NOTHING = lambda *_, **__: None  # noqa: E731
MUTANTS = {
    "one ciphertext is checked, added": (encrypted, "checks", first_alone, lambda m: addition_without_a_key(m, 2)),
    "no offsets": (encrypted, "checks", lambda s, w, _, t: slots.checks(s, w, [], t), one_client_twice),
    "one offset for all": (encrypted, "offset_key", lambda key, _: slots.offset_key(key, 0), one_client_twice),
    "no weights": (slots, "weighted", lambda values, *_: values[..., 0] * 0, lambda m: addition_without_a_key(m, 0)),
    "keys without the list": (pairs, "pair_key", no_list, lambda _: masks_cancel_under_one_list_alone()),
    "lists are not compared": (masked, "require_one_list", NOTHING, two_lists_of_keys),
    "steps may be repeated": (streams.Party, "_turn", NOTHING, dealing_twice),
    "no memory of rounds": (Once, "require_first", NOTHING, lambda _: second_opening("mask")),
    "no memory of buffers": (Once, "require_first", NOTHING, lambda _: second_opening("bfv+mask")),
    "shares are not compared": (MaskClient, "_share_of", lambda *_: (bytes(66), bytes(66)), lying_dealer),
    "values are cut": (terms.Terms, "require_values", NOTHING, lambda _: clipped("mask")),
    "values are not looked at": (terms.Terms, "require_values", NOTHING, lambda _: clipped("bfv")),
    "signatures are not looked at": (messages, "is_signed", lambda *_: True, lambda m: forged_announcement(m)),
    "no mask inside": (pairs, "modular", lambda *_: lambda key: np.int64(0), noise_to_the_key_holder),
}


def test_flipped_bits_are_caught_by_the_check_of_their_ciphertext(parties, monkeypatch):
    """Without that of the later ones a flipped bit there gives a wrong sum that is accepted."""

    def decrypted(*given, right=bfv.decrypted):
        found = right(*given)
        found[1:, -1] = 0
        return found

    monkeypatch.setattr(bfv, "decrypted", decrypted)
    monkeypatch.setattr(encrypted, "checks", first_alone)
    flips(parties, 0)
    with pytest.raises(AssertionError, match="a wrong sum was accepted"):
        flips(parties, 1)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_implementation_is_caught(parties, monkeypatch, name):
    where, what, mutant, attack = MUTANTS[name]
    monkeypatch.setattr(where, what, mutant)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        attack(parties)
