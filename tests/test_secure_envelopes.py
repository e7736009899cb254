"""Envelopes: one message has one form in bytes, and what is altered, strange or too long is refused before parsing."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from secure_parties import rows_of

from fuaudit.errors import UsageError
from fuaudit.secure.encrypted import Handout, KeyHolder, Total
from fuaudit.secure.envelope import (
    FRONT_BYTES,
    TERMS_BYTES,
    Front,
    envelope,
    limits,
    parsed,
    terms_message,
    terms_of,
)
from fuaudit.secure.messages import HEAD, STEPS, UNSIGNED, WAYS, Identity, Message
from fuaudit.secure.names import EVERYBODY, HOLDER, SERVER, WITNESS
from fuaudit.secure.receipts import Receipt
from fuaudit.secure.refusal import REASONS as WORDS
from fuaudit.secure.refusal import RefusedError
from fuaudit.secure.suites import Suite
from fuaudit.secure.terms import LIBRARY, Lot, Once, Terms, coordinates_digest, new_attempt

SUITES = ("plain", "mask", "bfv", "bfv+mask")
KEYS = [Identity(bytes([number]) * 32) for number in range(6)]
PARTIES = st.integers(0, 2**53) | st.sampled_from([SERVER, WITNESS, HOLDER, EVERYBODY])


def terms_for(suite, **changes):
    ends = [one.public for one in KEYS[4:]] if suite.startswith("bfv") else ["", ""]
    roster = tuple(one.public for one in KEYS[:3])
    coordinates = coordinates_digest(np.arange(5))
    made = Terms(suite, (2, 4, 7), 5, 12, 8, 3, roster, LIBRARY, 9, 1, new_attempt(), coordinates, *ends, "c" * 64)
    return replace(made, **changes)


def opening(suite, clients=3):
    """All messages of a buffer, and its terms."""
    found = []
    Suite(suite).opened(rows_of(clients, 5), 12, record=found.append)
    return found, terms_of(found[0])


MESSAGES = st.builds(
    Message, st.sampled_from(STEPS), PARTIES, PARTIES, st.integers(-1, 2**53), st.integers(-1, 2**53),
    st.binary(min_size=32, max_size=32), st.binary(max_size=300), st.binary(min_size=64, max_size=64),
).map(lambda one: one if one.step != "discard" else replace(one, body=WORDS[len(one.body) % 5].encode()))  # fmt: skip


def received(content, terms):
    """The message of an envelope by all that parties look at: its front, its body, and who signed it."""
    front = Front.of(content)
    front.require(terms)
    message = front.message(content[FRONT_BYTES:])
    message.require(message.step, *limits(terms)[message.step], terms)
    return message


@given(st.binary(max_size=1000))
def test_a_discard_tells_a_word_of_the_list(reason):
    terms = terms_for("plain")
    content = envelope(Message.unsigned("discard", reason, terms))
    if reason.decode(errors="replace") in WORDS:
        assert received(content, terms).body == reason
    for read in (parsed, lambda one: received(one, terms)):
        if reason.decode(errors="replace") not in WORDS:
            with pytest.raises(RefusedError):
                read(content)
    for one in WORDS:
        assert received(envelope(Message.unsigned("discard", one.encode(), terms)), terms).body == one.encode()


@given(MESSAGES)
def test_every_message_has_one_envelope(message):
    content = envelope(message)
    assert len(content) == FRONT_BYTES + len(message.body)
    assert parsed(content) == message
    assert envelope(parsed(content)) == content
    for wrong in (content[:-1], content + b"\0"):
        with pytest.raises(RefusedError):
            parsed(wrong)


@given(st.binary(max_size=400))
def test_other_bytes_are_no_envelope(content):
    with pytest.raises(RefusedError):
        parsed(content)


@given(st.binary(min_size=120, max_size=300))
def test_no_bytes_behind_the_magic_make_anything_but_a_refusal_or_an_envelope(content):
    try:
        message = parsed(b"fuaudit\x01lot     " + content)
    except RefusedError:
        return
    assert envelope(message) == b"fuaudit\x01lot     " + content


@pytest.mark.parametrize("suite", SUITES)
def test_a_suite_sends_steps_of_its_own_within_their_limits(suite):
    messages, terms = opening(suite)
    allowed = limits(terms)
    assert {message.step for message in messages} == set(allowed) - {"handout", "discard"}
    for message in messages:
        assert received(envelope(message), terms) == message
        assert allowed[message.step][0] <= len(message.body) <= allowed[message.step][1]
        assert Front.of(envelope(message)[:FRONT_BYTES]).require(terms) == len(message.body)


def flipped(content, at):
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


@pytest.mark.parametrize("suite", SUITES)
def test_one_flipped_bit_of_head_or_signature_is_refused(suite):
    """In every byte; of the body, in some."""
    messages, terms = opening(suite)
    for message in messages:
        content = envelope(message)
        for at in (*range(FRONT_BYTES), *range(FRONT_BYTES, len(content), 997)):
            with pytest.raises(RefusedError):
                received(flipped(content, at), terms)


REASONS = {
    "magic": (0, "no envelope of this version"),
    "version": (7, "no envelope of this version"),
    "step": (8, "a step that there is not"),
    "sender": (16, "client 1 at step announce|does not have its signature"),
    "receiver": (24, "where announce of a member is due"),
    "round": (32, "are due, or it is under other terms"),
    "buffer": (40, "are due, or it is under other terms"),
    "terms": (48, "are due, or it is under other terms"),
    "length": (80, "bytes, where 32 to 32 are due"),
    "body's digest": (88, "is not the one that its head names"),
    "signature": (HEAD.size, "does not have its signature"),
    "body": (FRONT_BYTES, "is not the one that its head names"),
}


@pytest.mark.parametrize("field", REASONS)
def test_each_field_has_its_reason(field):
    messages, terms = opening("bfv+mask")
    announce = next(one for one in messages if one.step == "announce" and one.sender == 0)
    at, reason = REASONS[field]
    with pytest.raises(RefusedError, match=reason) as caught:
        received(flipped(envelope(announce), at), terms)
    assert caught.value.blamed is None


def test_a_length_is_looked_at_before_its_body():
    """A head that announces 2**63 bytes is refused by its head alone."""
    terms = terms_for("mask")
    front = bytearray(envelope(Message.signed("send", 4, bytes(60), terms, KEYS[1]))[:FRONT_BYTES])
    front[80:88] = (2**63).to_bytes(8, "little")
    with pytest.raises(RefusedError, match="9223372036854775808 bytes, where 60 to 60"):
        Front.of(bytes(front)).require(terms)


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("change", [{"round": 8}, {"buffer": 2}, {"attempt": "0" * 32}, {"coordinates": "0" * 64}])
def test_a_message_belongs_to_one_place(suite, change):
    """Replayed in another round, buffer or attempt, or of other columns: refused."""
    terms = terms_for(suite)
    size = limits(terms)["send"][1]
    message = Message.signed("send", 4, bytes(min(size, 40)), terms, KEYS[1])
    with pytest.raises(RefusedError, match="are due, or it is under other terms"):
        received(envelope(message), replace(terms, **change))


def test_no_party_speaks_for_another_one():
    """By another key, at a step of another one, or for another receiver."""
    terms = terms_for("bfv")
    said = Message.signed("witness", WITNESS, bytes(32), terms, KEYS[4])
    assert received(envelope(said), terms) == said
    wrong = [
        Message.signed("witness", WITNESS, bytes(32), terms, KEYS[5]),
        Message.signed("witness", HOLDER, bytes(32), terms, KEYS[5]),
        Message.signed("witness", 4, bytes(32), terms, KEYS[1]),
        replace(said, receiver=EVERYBODY),
        replace(said, signature=UNSIGNED),
        Message.signed("discard", HOLDER, b"few", terms, KEYS[5]),
        Message.signed("discard", SERVER, b"few", terms, KEYS[5]),
        Message.signed("send", 3, bytes(32), terms, KEYS[1]),
        Message.signed("lot", 4, bytes(32), terms, KEYS[1]),
    ]
    for one in wrong:
        with pytest.raises(RefusedError):
            received(envelope(one), terms)


def test_a_contribution_to_a_lot_is_of_its_round_and_context():
    lot = Lot("a" * 64, 3, (2, 4), tuple(one.public for one in KEYS[:2]))
    message = Message.signed("lot", 4, bytes(32), lot, KEYS[1])
    assert received(envelope(message), lot) == message
    for other in (replace(lot, context="b" * 64), replace(lot, round=4), replace(lot, clients=(2, 5))):
        with pytest.raises(RefusedError):
            received(envelope(message), other)
    with pytest.raises(RefusedError):
        received(envelope(Message.signed("lot", 4, bytes(31), lot, KEYS[1])), lot)


@pytest.mark.parametrize("suite", SUITES)
def test_terms_come_back_from_their_bytes(suite):
    terms = terms_for(suite)
    found = terms_of(parsed(envelope(terms_message(terms))))
    assert (found, found.digest) == (terms, terms.digest)


def test_terms_of_the_most_clients_are_short():
    roster, most = (KEYS[0].public,) * 32, 2**53 - 1
    members = tuple(range(most - 31, most + 1))
    made = Terms(
        "bfv+mask", members, 10**12, 24, 32, 32, roster, LIBRARY, most, most, "f" * 32, "f" * 64, *(roster[0],) * 3
    )
    assert len(made.body) < TERMS_BYTES / 2


@pytest.mark.parametrize(
    "change",
    [
        (b'"round":9', b'"round":9.0'), (b'"round":9', b'"round":true'), (b'"round":9', b'"round": 9'),
        (b'"round":9', b'"round":-9'), (b'"bits":12', b'"bits":"12"'), (b'"bits":12', b'"bits":30'),
        (b"[2,4,7]", b"[2,4,4]"), (b"[2,4,7]", b"[2,4]"), (b"[2,4,7]", b"[2,[4],7]"), (b"[2,4,7]", b"{}"),
        (b'"most":8', b'"most":8,"more":1'), (b'"most":8,', b""), (b'"suite":"bfv"', b'"suite":["bfv"]'),
        (b'"columns":5', b'"columns":0'), (b'"holder":"', b'"holder":"x'), (b'"attempt":"', b'"attempt":"0'),
        (b'"context":"', b'"context":"0'), (b'"context":"' + b"c" * 64 + b'",', b""),
        (b"{", b"["), (b"}", b""),
    ],
)  # fmt: skip
def test_other_terms_are_none(change):
    body = terms_for("bfv").body
    assert body.count(change[0]) >= 1
    with pytest.raises(RefusedError, match="as terms of a buffer are none"):
        Terms.of(body.replace(*change))


@given(st.binary(max_size=200))
def test_bytes_are_no_terms(body):
    with pytest.raises(RefusedError):
        Terms.of(body)


def test_a_handout_is_for_one_client():
    terms = terms_for("bfv")
    with KeyHolder(terms, KEYS[5], Once()) as holder:
        message = received(envelope(holder.handout_message(4)), terms)
        assert Handout.of(message, 4, terms) == holder.handout(4)
    with pytest.raises(RefusedError, match="for client 4"):
        Handout.of(message, 2, terms)


@pytest.mark.parametrize("suite", SUITES)
def test_no_secret_crosses_in_what_is_recorded(suite):
    messages, _ = opening(suite)
    assert "handout" not in {message.step for message in messages}


@given(st.sets(st.sampled_from([2, 4, 7]), min_size=2), st.integers(0, 2**32))
def test_receipts_come_back(members, seed):
    terms, members = terms_for("bfv"), tuple(sorted(members))
    sums = rows_of(len(members), 5, seed=seed).sum(axis=0)
    receipt = Receipt(b"t" * 32, members, sums)
    found = Receipt.of(Message.signed("receipt", HOLDER, receipt.body(), terms, KEYS[5]), terms)
    assert (found.total, found.members, found.sums.tolist()) == (receipt.total, members, sums.tolist())


@pytest.mark.parametrize(
    ("members", "value", "reason"),
    [((2, 5), 0, "not clients"), ((4, 2), 0, "not clients"), ((2, 2), 0, "not clients"), ((2, 4), 4095, "no rows")],
)
def test_receipts_of_no_sum_are_refused(members, value, reason):
    terms = terms_for("bfv")
    body = Receipt(bytes(32), members, np.full(5, value)).body()
    with pytest.raises(RefusedError, match=reason):
        Receipt.of(Message.signed("receipt", HOLDER, body, terms, KEYS[5]), terms)


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=1), st.sets(st.sampled_from([2, 4, 7])))
def test_sums_of_ciphertexts_come_back(ciphertexts, members):
    terms = terms_for("bfv")
    total = Total(tuple(sorted(members)), tuple(ciphertexts))
    assert Total.of(Message.unsigned("total", total.body(), terms), terms) == total
    for wrong in (total.body()[:-1], total.body() + b"\0", b"\xff" * 8 + total.body()[8:]):
        with pytest.raises(RefusedError):
            Total.of(Message.unsigned("total", wrong, terms), terms)


def test_every_step_has_a_way():
    assert set(WAYS) == set(STEPS)
    assert all(len(step) <= 8 for step in STEPS)


@pytest.mark.parametrize("suite", SUITES)
def test_nobody_but_the_server_is_told_a_sum(suite):
    """A member of a buffer of two that is given it has the other's row. A sum for everybody is refused."""
    messages, terms = opening(suite)
    (told,) = [one for one in messages if one.step in ("receipt", "opened")]
    assert told.receiver == SERVER
    signer = Identity()
    terms = replace(terms, holder=signer.public if terms.holder else "")
    for receiver in (SERVER, EVERYBODY, 0):
        bare = replace(told, receiver=receiver, terms=terms.digest, signature=UNSIGNED)
        said = replace(bare, signature=signer.signature(bare.head)) if terms.holder else bare
        if receiver == SERVER:
            assert Receipt.of(said, terms).members == terms.members
            continue
        with pytest.raises(RefusedError, match="of a member is due"):
            Receipt.of(said, terms)


def test_the_page_names_the_senders_and_receivers_of_every_step():
    words = {None: "client", SERVER: "server", WITNESS: "witness", HOLDER: "key holder", EVERYBODY: "everybody"}
    text = (Path(__file__).parents[1] / "docs" / "secure-aggregation.md").read_text()
    told = {}
    for row in text.partition("| step | from | to |")[2].partition("\n\n")[0].splitlines()[2:]:
        steps, sender, receiver = (cell.strip() for cell in row.split("|")[1:4])
        told |= dict.fromkeys(steps.replace("`", "").split(", "), (sender, receiver))
    assert told == {step: (words[one], words[other]) for step, (one, other) in WAYS.items()}


@pytest.mark.parametrize("suite", SUITES)
def test_witness_and_key_holder_are_there_where_ciphertexts_are(suite):
    for ends in ({"witness": ""}, {"holder": ""}) if suite.startswith("bfv") else ({"witness": KEYS[4].public},):
        with pytest.raises(UsageError, match="if it has ciphertexts, and only then"):
            terms_for(suite, **ends)
