"""Transcripts: what was recorded is read back, and what was altered since is no evidence."""

import json
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from secure_parties import rows_of
from secure_transcripts import PATH, SUITES, Kept, signers

from fuaudit.errors import EvidenceError
from fuaudit.secure.envelope import envelope, terms_of
from fuaudit.secure.names import HOLDER, WITNESS
from fuaudit.secure.receipts import Receipt
from fuaudit.secure.refusal import RefusedError
from fuaudit.secure.suites import SCARY, Books, Suite, remembered
from fuaudit.secure.transcript import GENESIS, Chain, messages_of, opened_in, read_chain


def kept(suite, rounds=(1, 2), buffers=2):
    """A transcript of some rounds of buffers of three, and the rows by round and buffer."""
    found, rows, own = Kept(), {}, signers(3 * buffers)
    for number in rounds:
        for buffer in range(buffers):
            rows[number, buffer] = rows_of(3, 5, seed=10 * number + buffer)
            clients = range(3 * buffer, 3 * buffer + 3)
            Suite(suite).opened(
                rows[number, buffer], 12, clients, at=(number, buffer), signers=own, record=found.transcript.record
            )
    return found, rows


@pytest.fixture(scope="module", params=SUITES)
def suite(request):
    return request.param


@pytest.fixture(scope="module")
def made(suite):
    return kept(suite)


def test_what_was_recorded_is_read_back(made):
    found, rows = made
    chain = found.chain()
    assert chain.rounds == (1, 2)
    assert (chain.content, chain.head) == (found.content, found.transcript.head)
    for number in chain.rounds:
        messages = messages_of(chain.of_round(number), found.bodies[number], PATH)
        assert b"".join(map(envelope, messages)) == found.bodies[number]
        assert chain.size_of(number) == len(found.bodies[number])
        opened = opened_in(messages)
        assert {buffer: one.sums.tolist() for buffer, one in opened.items()} == {
            buffer: rows[number, buffer].sum(axis=0).tolist() for buffer in (0, 1)
        }


def test_heads_and_cuts(made):
    found, _ = made
    chain = found.chain()
    first = chain.cut(1)
    assert (first.rounds, chain.cut(0), chain.cut(7)) == ((1,), Chain(), chain)
    assert (chain.head_after(0), chain.head_after(1), chain.head_after(2)) == (GENESIS, first.head, chain.head)
    assert read_chain(first.content, PATH) == first
    assert chain.entries[len(first.entries)].previous == first.head


def test_a_transcript_goes_on_behind_a_chain(suite):
    whole, _ = kept(suite, rounds=(1,), buffers=1)
    again = Kept(whole.chain())
    Suite(suite).opened(rows_of(3, 5), 12, at=(2, 0), signers=signers(), record=again.transcript.record)
    chain = again.chain()
    assert chain.cut(1) == whole.chain()
    assert (chain.rounds, chain.head) == ((1, 2), again.transcript.head)


def test_what_a_break_left_open_is_cut_off(made):
    found, _ = made
    chain = found.chain()
    for places in range(len(chain.entries) + 1):
        ended = Chain(chain.entries[:places]).ended()
        assert not ended.entries or ended.entries[-1].step in ("receipt", "opened")
        assert len(chain.entries[:places]) - len(ended.entries) < 2 + len(chain.of_round(1)) // 2


def altered_lines(lines):
    """Every kind of damage to a chain, by what it is called."""
    yield "dropped", lines[:2] + lines[3:]
    yield "twice", [*lines[:3], lines[2], *lines[3:]]
    yield "reordered", [*lines[:2], lines[3], lines[2], *lines[4:]]
    yield "first dropped", lines[1:]
    for field in json.loads(lines[2]):
        value = json.loads(lines[2])
        value[field] = value[field] + 1 if isinstance(value[field], int) else value[field][::-1]
        yield field, [*lines[:2], json.dumps(value, sort_keys=True, separators=(",", ":")).encode(), *lines[3:]]
    yield "spaces", [*lines[:2], lines[2].replace(b":", b": "), *lines[3:]]
    yield "more", [*lines[:2], lines[2].replace(b"{", b'{"a":1,', 1), *lines[3:]]
    yield "no line", [*lines[:2], b"", *lines[2:]]
    yield "long", [*lines[:2], b" " * 600 + lines[2], *lines[3:]]


def test_a_chain_that_was_altered_is_none(made):
    found, _ = made
    for name, lines in altered_lines(found.lines):
        with pytest.raises(EvidenceError):
            print(name, read_chain(b"".join(line + b"\n" for line in lines), PATH))
    for content in (found.content[:-1], found.content[:-30]):
        with pytest.raises(EvidenceError, match="torn"):
            read_chain(content, PATH)


def test_a_truncated_tail_has_another_head(made):
    found, _ = made
    heads = {read_chain(b"".join(line + b"\n" for line in found.lines[:n]), PATH).head for n in range(len(found.lines))}
    assert len(heads) == len(found.lines)
    assert found.transcript.head not in heads


def test_bodies_that_were_altered_are_none(made):
    found, _ = made
    chain, body = found.chain(), found.bodies[1]
    entries = chain.of_round(1)
    starts = np.cumsum([0, *(entry.size for entry in entries)])
    first, second = body[: starts[1]], body[starts[1] : starts[2]]
    wrong = [body[:-1], body + b"\0", b"", body[starts[1] :], second + first + body[starts[2] :], found.bodies[2]]
    wrong += [body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :] for at in starts[:-1]]
    for content in wrong:
        with pytest.raises(EvidenceError):
            messages_of(entries, content, PATH)


@pytest.mark.parametrize("field", ["step", "sender", "receiver", "round", "buffer"])
def test_a_line_tells_of_its_envelope(made, field):
    """Also where somebody wrote the chain anew: what a line says is what the envelope's head says."""
    found, _ = made
    entries = found.chain().of_round(1)
    wrong = replace(entries[2], **{field: "discard" if field == "step" else getattr(entries[2], field) + 3})
    with pytest.raises(EvidenceError, match="tells of another envelope"):
        messages_of([*entries[:2], wrong, *entries[3:]], found.bodies[1], PATH)


def test_earlier_rounds_and_handouts_are_not_recorded(made):
    found, _ = made
    old = messages_of(found.chain().of_round(1), found.bodies[1], PATH)[0]
    new = Kept(found.chain())
    for message in (old, replace(old, round=3, step="handout")):
        with pytest.raises(RefusedError, match="is not recorded"):
            new.transcript.record(message)
    assert not new.bodies


def test_who_answered_before_a_break_does_not_answer_behind_it(suite, made):
    """Of every message the parties remember: nothing is opened twice, and the next round opens."""
    found, rows = made
    messages = messages_of(found.chain().of_round(1), found.bodies[1], PATH)
    with pytest.raises(RefusedError, match="answered already in round 1"):
        Suite(suite).opened(rows[1, 0], 12, at=(1, 0), books=remembered(messages))
    assert Suite(suite).opened(rows[1, 0], 12, at=(2, 0), books=remembered(messages)).members == (0, 1, 2)


@pytest.mark.parametrize("name", ["bfv", "bfv+mask"])
@pytest.mark.parametrize("step", ["witness", "receipt"])
def test_witness_and_key_holder_remember_by_themselves(name, step):
    """Of their own messages alone, whatever clients forgot."""
    found = Kept()
    Suite(name).opened(rows_of(3, 5), 12, at=(1, 0), record=found.transcript.record)
    messages = messages_of(found.chain().entries, found.bodies[1], PATH)
    books = remembered(one for one in messages if one.step in ("terms", step))
    with pytest.raises(RefusedError, match="answered already in round 1, buffer 0"):
        Suite(name).opened(rows_of(3, 5), 12, at=(1, 0), books=books)
    assert Suite(name).opened(rows_of(3, 5), 12, (3, 4, 5), at=(1, 1), books=books).members == (3, 4, 5)


OF_CLIENTS = [(0, step) for step in ("announce", "share", "send", "unmask")]
OF_OTHERS = [(WITNESS, "witness"), (HOLDER, "announce"), (HOLDER, "receipt")]
LEAVING = [(name, *one) for name in SUITES for one in OF_CLIENTS + OF_OTHERS * name.startswith("bfv")]


@pytest.mark.parametrize(("name", "party", "step"), LEAVING)
def test_a_buffer_that_somebody_leaves_ends_with_its_sum_or_with_a_reason(name, party, step):
    """Clients at every step, the witness, the key holder before and after: one end, and never a wrong sum."""
    found, rows = Kept(), rows_of(3, 5)
    try:
        opened = Suite(name).opened(rows, 12, absent={party: step}, at=(1, 0), record=found.transcript.record)
    except RefusedError as error:
        reason = error.reason
    else:
        assert (opened.members, opened.sums.tolist()) == ((0, 1, 2), rows.sum(axis=0).tolist())
        reason = None
    messages = messages_of(found.chain().entries, found.bodies[1], PATH)
    ends = [message for message in messages if message.step in ("receipt", "opened", "discard")]
    assert ends == [messages[-1]]
    assert (ends[0].step == "discard") == (reason is not None)
    if reason is not None:
        assert ends[0].body.decode() == reason
        assert not opened_in(messages)
    if party < 0:
        assert reason is not None


@pytest.mark.parametrize(("name", "party", "step"), LEAVING)
def test_no_buffer_has_two_sums_whoever_leaves(name, party, step):
    """The buffer is tried again, by the same parties over other rows: whatever comes of it, one sum is told at most."""
    found, books, own = Kept(), Books(), signers()
    again = {"at": (1, 0), "books": books, "signers": own, "record": found.transcript.record}
    for seed, absent in ((1, {party: step}), (2, {}), (3, {})):
        with suppress(RefusedError):
            Suite(name).opened(rows_of(3, 5, seed=seed), 12, absent=absent, **again)
    messages = messages_of(found.chain().entries, found.bodies[1], PATH)
    told = [message for message in messages if message.step in ("receipt", "opened")]
    assert len(told) <= 1
    assert [message.step for message in messages].count("discard") == 3 - len(told)
    for sum_ in told:
        (terms,) = (terms_of(one) for one in messages if one.step == "terms" and one.terms == sum_.terms)
        place = [one.terms for one in messages if one.step == "terms"].index(sum_.terms)
        assert Receipt.of(sum_, terms).sums.tolist() == rows_of(3, 5, seed=place + 1).sum(axis=0).tolist()


def test_the_demo_of_ckks_is_not_recorded():
    with pytest.raises(Exception, match="no messages that could be recorded"):
        Suite(SCARY).opened(rows_of(3, 5), 12, record=lambda _: None)
