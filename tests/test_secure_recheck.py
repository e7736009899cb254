"""Rechecks: an honest transcript passes, and each way to alter it is found with its own reason."""

import json
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from secure_parties import rows_of
from secure_transcripts import COLUMNS, CONTEXT, PATH, SUITES, Kept, Training, rechecked, written

from fuaudit.errors import EvidenceError, UsageError
from fuaudit.secure import masked
from fuaudit.secure.encrypted import Total, ciphertexts_of, framed, summands_of
from fuaudit.secure.envelope import FRONT_BYTES, envelope, parsed, terms_message, terms_of
from fuaudit.secure.exposure import Buffer
from fuaudit.secure.masked import names_digest
from fuaudit.secure.messages import STEPS, Identity, Message, ids_bytes, list_digest, require_distinct
from fuaudit.secure.names import ATTEMPTS, HOLDER, WITNESS
from fuaudit.secure.receipts import Receipt
from fuaudit.secure.recheck import buffers, sums, transcripts
from fuaudit.secure.recheck.transcripts import added_apart, recheck
from fuaudit.secure.refusal import RefusedError
from fuaudit.secure.suites import Books, Suite, remembered
from fuaudit.secure.terms import Lot, columns_bytes, coordinates_digest, new_attempt
from fuaudit.secure.transcript import Chain, Entry, read_chain

KEYED = ("bfv", "bfv+mask")


@pytest.fixture(scope="module")
def trainings():
    """One small training of each suite."""
    return {suite: Training(suite) for suite in SUITES}


@pytest.fixture(params=SUITES)
def made(request, trainings):
    return trainings[request.param]


def kinds(checked):
    return {finding.kind for finding in checked.wrong}


def found(made, messages, kind, reason):
    """A transcript of these messages has a finding of a kind and a reason, also where its heads are told anew."""
    kept = written(messages)
    checked = made.checked(kept)
    assert any(one.kind == kind and reason in one.sentence for one in checked.wrong), checked.wrong
    assert "head" in kinds(made.checked(kept, anchored=True))
    return checked


# what is honest


@pytest.mark.parametrize("suite", SUITES)
def test_an_honest_transcript_passes(suite):
    made = Training(suite, rounds=2, clients=6)
    checked = made.checked()
    assert not checked.wrong
    assert not checked.discarded
    assert not checked.unread
    assert checked.messages == len(made.kept.messages())
    assert {at: one.sums.tolist() for at, one in checked.opened.items()} == {
        at: rows.sum(axis=0).tolist() for at, rows in made.rows.items()
    }
    assert len(made.rows) == 4


def test_little_knowledge_is_said_and_not_held_against_it(made):
    checked = made.checked(heads={}, cohort=None, buffers=None, columns=None)
    assert not checked.wrong
    assert any("No head of the chain" in one for one in checked.cannot)
    assert not any("No head of the chain" in one for one in made.checked().cannot)
    assert any("key holder's word" in one for one in made.checked().cannot) == (made.suite in KEYED)


def test_a_buffer_that_is_left_out_as_a_whole_is_told():
    """It may be one that a training did not ask for, so it is no finding by itself."""
    made = Training("plain", clients=6)
    assert made.checked().unplayed == ()
    messages = made.kept.messages()
    gone = terms_of(next(one for one in messages if (one.step, one.buffer) == ("terms", 1))).members
    checked = made.checked(written([one for one in messages if one.buffer != 1]))
    assert (checked.wrong, checked.unplayed) == ((), ((1, gone),))


def test_an_empty_transcript_shows_nothing(made):
    checked = made.checked(Kept())
    assert (checked.wrong, checked.opened, checked.messages) == ((), {}, 0)


def test_after_envelopes_are_gone_the_chain_is_still_looked_at(made):
    gone = Kept()
    gone.lines = list(made.kept.lines)
    checked = made.checked(gone)
    assert (checked.wrong, checked.opened, checked.unread) == ((), {}, (1,))
    assert any("are gone" in one for one in checked.cannot)
    for lines in (made.kept.messages()[:-1], made.kept.messages() + made.kept.messages()[3:]):
        other = written(lines)
        other.bodies = {}
        assert kinds(made.checked(other)) & {"order", "twice"}


def test_other_suites_have_no_transcript(made):
    with pytest.raises(UsageError, match="no transcript of a suite"):
        made.checked(suite="ckks")


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("step", ["announce", "share", "send", "unmask", "witness", "receipt"])
def test_dropouts_are_no_findings(suite, step):
    """Four clients of one buffer, opened from three on where the suite can: the sum is of who came."""
    made = Training(suite, rounds=0, clients=4, smallest=3)
    made.rounds = 1
    record, members, rows = made.kept.transcript.record, (0, 1, 2, 3), rows_of(4, COLUMNS)
    party = {"witness": WITNESS, "receipt": HOLDER}.get(step, 2)
    try:
        opened = made.open(rows, members, (1, 0), {party: step} if party >= 0 or suite in KEYED else {}, record)
    except RefusedError:
        opened = None
    checked = made.checked(ends={}, buffers=None)
    assert not checked.wrong
    if opened is None:
        assert (checked.opened, checked.discarded) == ({}, ((1, 0),))
    else:
        assert (checked.opened[1, 0].members, checked.opened[1, 0].sums.tolist()) == (
            opened.members, rows[list(opened.members)].sum(axis=0).tolist(),
        )  # fmt: skip


# the operator writes the transcript anew


def _rewritten(messages):
    """As :func:`written`, also of messages whose rounds do not ascend."""
    kept, previous = Kept(), "0" * 64
    for number, message in enumerate(messages, 1):
        content = envelope(message)
        entry = Entry.of(message, content, number, previous)
        kept.keep(message.round, content, entry.line)
        previous = entry.digest
    return kept


OF_DROPPED = {
    "lot": ("lot", "withheld its contribution"),
    "terms": ("terms", "under terms that nobody sent"),
    "context": ("sum", "0 messages of step context"),
    "send": ("sum", ""),
    "announce": ("sum", ""),
    "share": ("sum", ""),
    "unmask": ("sum", "too few right shares"),
    "came": ("sum", "0 messages of step came"),
    "total": ("sum", "0 messages of step total"),
    "witness": ("sum", "0 messages of step witness"),
    "receipt": ("order", "a buffer has no end"),
    "opened": ("order", "a buffer has no end"),
}


def test_each_message_that_is_dropped(made):
    messages = made.kept.messages()
    for place, message in enumerate(messages):
        found(made, messages[:place] + messages[place + 1 :], *OF_DROPPED[message.step])


def told_columns(made, columns, number=1, signature=None):
    """Its messages, with columns that the server told behind the lots of the first round."""
    said = Message.unsigned("columns", columns_bytes(np.array(columns)), made.lot(number))
    said = replace(said, round=1) if signature is None else replace(said, round=1, signature=signature)
    messages = made.kept.messages()
    return said, [one for one in messages if one.step == "lot"], [one for one in messages if one.step != "lot"]


def test_columns_that_were_told_are_those_of_all_terms(made):
    said, lots, rest = told_columns(made, range(COLUMNS))
    checked = made.checked(written([*lots, said, *rest]), agrees=True)
    assert not checked.wrong
    assert {number: one.tolist() for number, one in checked.columns.items()} == {1: [*range(COLUMNS)]}
    assert made.checked().columns == {}


def test_columns_that_were_not_told_as_they_must_be(made):
    said, lots, rest = told_columns(made, range(COLUMNS))
    found(made, [*lots, said, said, *rest], "order", "step columns of the server, which does not follow there")
    found(made, [*lots, *rest, said], "order", "step columns of the server, which does not follow there")
    found(made, [said, *lots, *rest], "order", "which does not follow there")
    for columns in ([0, 1, 2, 3], [0, 1, 2, 3, 5], [*range(COLUMNS + 1)]):
        others, *_ = told_columns(made, columns)
        found(made, [*lots, others, *rest], "terms", "another set of columns than the server told")
    for columns in ([0, 1, 2, 4, 3], [0, 1, 2, 2, 3]):
        others, *_ = told_columns(made, columns)
        found(made, [*lots, others, *rest], "message", "columns do not ascend")
    found(made, [*lots, replace(said, body=said.body[:-1]), *rest], "message", "4 bytes each")
    found(made, [*lots, replace(said, body=b""), *rest], "message", "0 bytes at step columns")
    found(made, [*lots, replace(said, terms=bytes(32)), *rest], "message", "does not have its signature")
    elsewhere, *_ = told_columns(made, range(COLUMNS), number=2)
    found(made, [*lots, elsewhere, *rest], "message", "does not have its signature")
    signed, *_ = told_columns(made, range(COLUMNS), signature=bytes([1]) * 64)
    found(made, [*lots, signed, *rest], "message", "does not have its signature")
    found(made, [*lots, replace(said, sender=0), *rest], "message", "at step columns, where columns of a member is due")
    found(
        made,
        [*lots, replace(said, buffer=0), *rest],
        "order",
        "step columns of the server, which does not follow there",
    )


def test_columns_that_clients_agreed_on_have_to_be_told(made):
    said, lots, rest = told_columns(made, range(COLUMNS))
    assert not made.checked(written([*lots, said, *rest]), agrees=True).wrong
    missing = made.checked(written([*lots, *rest]), agrees=True).wrong
    assert [one.sentence for one in missing] == ["the server did not tell the columns that clients agreed on"]
    found(made, [*lots, said, *rest], "order", "the server told columns, and clients agree on none")
    nobodys = made.checked(written([said, *rest]), agrees=True, ends={}, buffers=None).wrong
    assert [one.sentence for one in nobodys] == ["there are contributions to a lot, and nobody committed to any"]
    alone = made.checked(written([*lots, said]), agrees=True).wrong
    assert [one.sentence for one in alone] == ["the server told columns, and no sum was asked for"]


def test_each_message_that_comes_twice(made):
    messages = made.kept.messages()
    for place, message in enumerate(messages):
        kind, reason = "twice", f"sent step {message.step} 2 times"
        if message.step == "lot":
            kind, reason = "message", "two messages of client"
        elif message.step in ("terms", "receipt", "opened"):
            kind, reason = "order", "does not follow there"
        found(made, [*messages[:place], message, *messages[place:]], kind, reason)


def test_each_pair_of_neighbours_in_another_order(made):
    """Also of one step, whose messages follow their senders' numbers: another order would be a place to write in."""
    messages = made.kept.messages()
    for place in range(len(messages) - 1):
        swapped = [*messages[:place], messages[place + 1], messages[place], *messages[place + 2 :]]
        found(made, swapped, "order", "which does not follow there")


@pytest.mark.parametrize("suite", SUITES)
def test_buffers_have_the_numbers_that_the_lot_gives(suite):
    """Also one that was made up, of a number that there is not, and discarded ones do not hide whom nobody summed."""
    made = Training(suite, clients=6)
    messages = made.kept.messages()
    lots, one, other = ([m for m in messages if m.buffer == number] for number in (-1, 0, 1))
    terms = told(other)[1]
    for number in (7, 2**53 - 1):
        anew = replace(terms, buffer=number, attempt=new_attempt())
        made_up = [terms_message(anew), Message.unsigned("discard", b"silent", anew)]
        checked = found(made, [*lots, *one, *made_up], "buffer", f"clients {terms.members} were drawn as buffer 1")
        assert checked.unplayed == ((1, terms.members),)
    anew = replace(terms, attempt=new_attempt())
    tried = made.checked(written([*lots, *one, terms_message(anew), Message.unsigned("discard", b"silent", anew)]))
    assert (tried.wrong, tried.unplayed) == ((), ((1, terms.members),))


@pytest.mark.parametrize("suite", SUITES)
def test_buffers_have_one_order_too(suite):
    """The second one first, and one begun within the other."""
    made = Training(suite, clients=6)
    messages = made.kept.messages()
    lots, one, other = ([m for m in messages if m.buffer == number] for number in (-1, 0, 1))
    for order in ([*other, *one], [*one[:-1], other[0], one[-1], *other[1:]], [one[0], *other, *one[1:]]):
        found(made, [*lots, *order], "order", "which does not follow there")
    found(made, [*one, *lots, *other], "order", "has step lot of client 0")


@pytest.mark.parametrize("suite", SUITES)
def test_each_message_of_another_round(suite):
    """Replayed in the place of its like, as it is, with another round in its head, and a whole buffer."""
    made = Training(suite, rounds=2)
    messages = made.kept.messages()
    half = len(messages) // 2
    for place, old in enumerate(messages[:half]):
        kept = _rewritten([*messages[: half + place], old, *messages[half + place + 1 :]])
        checked = rechecked(kept.content, kept.bodies.get, made.known())
        if place:  # before the first line of round 2 it only makes round 1 longer
            assert kinds(checked) == {"chain"}
        moved = [*messages[: half + place], replace(old, round=2), *messages[half + place + 1 :]]
        found(made, moved, *{"lot": ("message", "under these terms")}.get(old.step, ("terms", "under t")))
    found(made, messages[:half] + [replace(one, round=2) for one in messages[:half]], "terms", "under these terms")


def test_bodies_that_are_swapped_between_clients(made):
    messages = made.kept.messages()
    for step in {"lot", "announce", "share", "send", "unmask"} & {one.step for one in messages}:
        one, other = (place for place, each in enumerate(messages) if each.step == step and each.sender in (0, 1))
        swapped = list(messages)
        swapped[one] = replace(messages[one], body=messages[other].body)
        swapped[other] = replace(messages[other], body=messages[one].body)
        found(made, swapped, "message", "does not have its signature")
        swapped[one] = replace(messages[one], sender=1)
        swapped[other] = replace(messages[other], sender=0)
        found(made, swapped, "message", "does not have its signature")


FIELDS = {
    "magic": 3, "version": 7, "step": 8, "sender": 16, "receiver": 24, "round": 32, "buffer": 40, "terms": 50,
    "length": 80, "digest": 100, "signature": 130, "body": FRONT_BYTES,
}  # fmt: skip
OF_FIELD = {
    "sender": {"message", "terms"}, "receiver": {"message", "terms"}, "round": {"chain"}, "buffer": {"order"},
    "terms": {"terms"}, "signature": {"message", "terms"},
}  # fmt: skip


def test_each_field_with_one_flipped_bit(made):
    """Of each message: where lines stay as they are, and where somebody writes them to fit."""
    honest, messages, starts = made.kept, made.kept.messages(), [0]
    for message in messages:
        starts.append(starts[-1] + len(envelope(message)))
    for place, message in enumerate(messages):
        for name, at in FIELDS.items():
            content = bytearray(envelope(message))
            content[at] ^= 1
            body = honest.bodies[1][: starts[place]] + content + honest.bodies[1][starts[place + 1] :]
            kept = Kept()
            kept.lines, kept.bodies = honest.lines, {1: bytes(body)}
            checked = made.checked(kept)
            assert kinds(checked) == {"body"}, (message.step, name)
            assert "is not the one that was recorded" in checked.wrong[0].sentence
            try:
                altered = parsed(bytes(content))
            except RefusedError:
                continue
            kept = _rewritten([*messages[:place], altered, *messages[place + 1 :]])
            checked = rechecked(kept.content, kept.bodies.get, replace(made.known(), heads={}))
            due = {"lot", "message", "order", "chain"} if message.step == "lot" else OF_FIELD[name]
            assert kinds(checked) & due, (message.step, name)


def test_each_ciphertext_and_body_with_one_flipped_bit(made):
    """Of a body whose digest in the head was made to fit; where the server has no key, its sum is compared."""
    messages = made.kept.messages()
    for place, message in enumerate(messages):
        for at in {0, 33 % len(message.body), len(message.body) // 2, len(message.body) - 1}:
            body = bytearray(message.body)
            body[at] ^= 1
            kind = "message" if message.sender >= 0 or message.sender in (WITNESS, HOLDER) else None
            altered = [*messages[:place], replace(message, body=bytes(body)), *messages[place + 1 :]]
            checked = made.checked(written(altered))
            assert kinds(checked) & ({kind} if kind else {"sum", "receipt", "terms"}), (message.step, at)


def test_a_truncated_tail_is_caught_by_its_head(made):
    """A transcript that ends with an earlier buffer is whole in itself; the head that was told is another one."""
    messages = made.kept.messages()
    for length in range(len(messages)):
        assert "head" in kinds(made.checked(written(messages[:length]), anchored=True))
    longer = Training(made.suite, rounds=2)
    first = [one for one in longer.kept.messages() if one.round == 1]
    assert not longer.checked(written(first)).wrong
    checked = longer.checked(written(first), anchored=True)
    assert kinds(checked) == {"head", "lot"}
    assert "head" in kinds(longer.checked(written(first), anchored=True, cohort=lambda _: ()))
    behind = longer.checked(heads={1: longer.kept.chain().head_after(1)})
    assert [one.sentence for one in behind.wrong] == [
        "the chain goes on behind round 1, after which its last head was told"
    ]


# parties that sign what is wrong


def told(messages):
    """What is said at each step, and its terms."""
    terms = terms_of(next(one for one in messages if one.step == "terms"))
    return {step: [one for one in messages if one.step == step] for step in STEPS}, terms


def forged(made, sent, members=None, sums=None, total=None, witnessed=None):
    """The transcript of a training whose witness and key holder sign whatever the server likes, over other rows."""
    messages = made.kept.messages()
    terms = told(messages)[1]
    if total is None:
        summands = {one.sender: ciphertexts_of(one, terms)[1] for one in sent}
        total = Total(tuple(summands), tuple(added_apart(summands, terms.layout.ring)))
    members = total.members if members is None else members
    own = made.signers
    sums = np.zeros(COLUMNS, dtype=np.int64) if sums is None else sums
    digest = (witnessed or total).said(terms)
    end = [
        Message.unsigned("total", total.body(), terms),
        Message.signed("witness", WITNESS, digest, terms, own.witness),
        Message.signed("receipt", HOLDER, Receipt(digest, members, sums).body(), terms, own.holder),
    ]
    front = [one for one in messages if STEPS.index(one.step) < STEPS.index("send")]
    return [*front, *sent, *end]


def test_a_ciphertext_that_was_copied_under_another_name(trainings):
    made = trainings["bfv"]
    said, terms = told(made.kept.messages())
    copied = Message.signed("send", 1, said["send"][0].body, terms, made.signers.clients[1])
    sent = [said["send"][0], copied, said["send"][2]]
    found(made, forged(made, sent), "sum", "a ciphertext came twice")
    with pytest.raises(RefusedError, match="came twice"):  # server and witness refuse it too
        summands_of(sent, (), terms)


@pytest.mark.parametrize("suite", KEYED)
def test_too_few_summands(trainings, suite):
    made = trainings[suite]
    said, _ = told(made.kept.messages())
    found(made, forged(made, said["send"][:2]), "sum", "2 of 3 clients of buffer 0 are left")


def test_too_few_summands_behind_masks_alone_and_in_the_open(trainings):
    for suite in ("mask", "plain"):
        made = trainings[suite]
        messages = made.kept.messages()
        said, terms = told(messages)
        sent = said["send"][:2]
        receipt = Receipt(list_digest(sent), (0, 1), np.zeros(COLUMNS, dtype=np.int64))
        few = [one for one in messages if one.step != "opened" and one not in said["send"][2:]]
        few.append(Message.unsigned("opened", receipt.body(), terms))
        kind = made.checked(written(few)).wrong
        assert any(one.kind == "sum" for one in kind)


def test_a_sum_of_other_ciphertexts(trainings):
    """One client's own, said to be the sum; ciphertexts of the sum in another place; one bit of it."""
    made = trainings["bfv"]
    said, terms = told(made.kept.messages())
    single = Total((0, 1, 2), ciphertexts_of(said["send"][1], terms)[1])
    found(made, forged(made, said["send"], total=single), "sum", "is not that of the ciphertexts that came")
    honest = Total.of(said["total"][0], terms)
    flip = bytearray(honest.ciphertexts[0])
    flip[3000] ^= 1
    wrong = replace(honest, ciphertexts=(bytes(flip),))
    found(made, forged(made, said["send"], total=wrong), "sum", "is not that of the ciphertexts that came")
    found(made, forged(made, said["send"], total=honest, witnessed=wrong), "sum", "the witness signed another sum")


def test_a_receipt_of_other_clients_or_of_no_sum(trainings):
    made = trainings["bfv"]
    said, _ = told(made.kept.messages())
    found(made, forged(made, said["send"], members=(0, 1)), "receipt", "is not the sum of the rows of (0, 1, 2)")
    large = np.full(COLUMNS, 3 * 2047 + 1)
    found(made, forged(made, said["send"], sums=large), "receipt", "sums that no rows of these terms have")


def test_the_numbers_of_a_key_holder_are_its_word(trainings):
    """A wrong number is not seen, and that is said."""
    made = trainings["bfv"]
    said, _ = told(made.kept.messages())
    checked = made.checked(written(forged(made, said["send"])))
    assert not checked.wrong
    assert any("key holder's word" in one for one in checked.cannot)


def test_a_server_that_tells_another_sum_of_rows(trainings):
    for suite in ("plain", "mask"):
        made = trainings[suite]
        messages = made.kept.messages()
        receipt = Receipt.of(messages[-1], told(messages)[1])
        wrong = replace(receipt, sums=receipt.sums + np.eye(1, COLUMNS, 2, dtype=np.int64)[0])
        messages[-1] = replace(messages[-1], body=wrong.body())
        found(made, messages, "receipt", "is not the sum of the rows that came")


def test_a_buffer_that_is_opened_twice(made):
    """Over the same rows, by parties who forgot the first time."""
    again = []
    made.open(made.rows[1, 0], (0, 1, 2), (1, 0), {}, again.append)
    checked = found(made, made.kept.messages() + again, "twice", "a buffer was opened 2 times")
    assert any("answered 2 times in one round" in one.sentence for one in checked.wrong)
    again.clear()
    made.open(made.rows[1, 0], (0, 1, 2), (1, 1), {}, again.append)
    found(made, made.kept.messages() + again, "buffer", "client 0 is in 2 buffers")


@pytest.mark.parametrize("suite", SUITES)
def test_a_buffer_that_is_tried_with_others_and_rows_in_two_buffers(suite):
    made = Training(suite, clients=6)
    messages, again = made.kept.messages(), []
    rows, members = made.rows[1, 0], terms_of(next(one for one in messages if one.step == "terms")).members
    other = tuple(sorted({*range(6)} - {*members}))
    made.open(rows, other, (1, 0), {}, again.append)
    found(made, messages + again, "buffer", "tried again with other clients")
    lots = [one for one in messages if one.step == "lot"]
    again.clear()
    made.open(rows, (members[0], members[1], other[0]), (1, 0), {}, again.append)
    checked = found(made, lots + again, "buffer", "were not drawn together")
    assert {one.kind for one in checked.wrong} == {"buffer"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"suite": "mask"}, "suite"), ({"bits": 13}, "bits of a value"), ({"most": 7}, "largest buffer"),
     ({"witness": "a" * 64}, "key of the witness"), ({"holder": "b" * 64}, "key of the key holder"),
     ({"context": "d" * 64}, "context"), ({"context": ""}, "context"),
     ({"columns": lambda _: (COLUMNS, "0" * 64)}, "set of columns"),
     ({"columns": lambda _: (COLUMNS - 1, coordinates_digest(np.arange(COLUMNS)))}, "set of columns")],
)  # fmt: skip
def test_terms_of_another_training(trainings, change, reason):
    checked = trainings["bfv"].checked(**change)
    assert any(f"another {reason}" in one.sentence for one in checked.wrong)
    assert not checked.opened


def test_buffers_of_another_run_of_the_same_clients(made):
    """All that differs is which run they are for: that is under every signature."""
    other, record = Training(made.suite, rounds=0), []
    Suite(made.suite).opened(
        made.rows[1, 0], 12, (0, 1, 2), at=(1, 0), signers=other.signers, record=record.append, context="d" * 64
    )
    lots = [one for one in made.kept.messages() if one.step == "lot"]
    checked = found(made, [*lots, *record], "terms", "another context than this training")
    assert not checked.opened
    renamed = [terms_message(replace(told(record)[1], context=CONTEXT)), *record[1:]]
    found(made, [*lots, *renamed], "terms", "under terms that nobody sent")


def test_terms_that_open_with_fewer_than_agreed():
    made = Training("bfv", rounds=0, clients=4)
    made.rounds = 1
    made.smallest = 3
    made.open(rows_of(4, COLUMNS), (0, 1, 2, 3), (1, 0), {}, made.kept.transcript.record)
    for sizes in (None, lambda _: [Buffer(4, 4), Buffer(8, 8)], lambda _: [Buffer(4, 4), Buffer(4, 3), Buffer(8, 8)]):
        checked = made.checked(sizes=sizes, ends={}, buffers=None)
        assert [one.sentence for one in checked.wrong] == ["the terms have another fewest rows than this training"]
    assert not made.checked(sizes=lambda number: {1: [Buffer(4, 3), Buffer(8, 8)]}[number], ends={}, buffers=None).wrong


def test_keys_of_others_than_the_roster(made):
    strange = Identity(b"s" * 32).public
    checked = made.checked(clients=made.keys | {1: strange})
    assert any("another keys of clients" in one.sentence for one in checked.wrong)
    twice = made.checked(clients=made.keys | {1: made.keys[0]})
    assert any(one.kind == "roster" for one in twice.wrong)


@pytest.mark.parametrize("party", ["witness", "holder"])
def test_a_witness_or_a_key_holder_who_is_another_party_is_in_no_roster(trainings, party):
    """Who signs that a sum is one is nobody who gains by it."""
    made = trainings["bfv"]
    other = made.signers.holder if party == "witness" else made.signers.witness
    for key in (made.keys[0], other.public):
        wrong = made.checked(**{party: key}).wrong
        assert [one.sentence for one in wrong if one.kind == "roster"] == [f"2 parties have the key {key[:8]}... each"]


def test_terms_of_another_version_of_the_library_are_not_those_of_this_training(made, monkeypatch):
    """What its encoding makes of numbers is the same in one version alone."""
    monkeypatch.setattr(buffers, "LIBRARY", "another 1.0")
    assert [one.sentence for one in made.checked().wrong] == [
        "the terms have another version of the library than this training"
    ]


# lots


def contributed(made, client, contribution):
    """The messages with another contribution of a client, which it signed."""
    new = Message.signed("lot", client, contribution, made.lot(1), made.signers.clients[client])
    return [new if (one.step, one.sender) == ("lot", client) else one for one in made.kept.messages()]


def test_a_contribution_is_the_one_that_was_committed_to(made):
    chain = made.contributions[1]
    for wrong in (chain.element(4), chain.element(2), chain.end, bytes(32)):
        found(made, contributed(made, 1, wrong), "lot", "client 1 to the lot is not the one that it committed to")
    assert not made.checked(written(contributed(made, 1, chain.element(3)))).wrong


def test_contributions_of_a_later_round_fit_by_those_before():
    made = Training("plain", rounds=4)
    assert not made.checked().wrong
    late = [one for one in made.kept.messages() if one.round in (1, 4)]
    assert not made.checked(written(late)).wrong
    assert any(one.kind == "lot" for one in made.checked(written(late), earlier=1).wrong)


def test_lots_that_nobody_committed_to_or_that_come_late(made):
    assert "lot" in kinds(made.checked(ends={}))
    messages = made.kept.messages()
    late = [*messages[1:4], messages[0], *messages[4:]]
    found(made, late, "order", "has step lot of client 0, which does not follow there")
    none = made.checked(written([one for one in messages if one.step != "lot"]), cohort=None, buffers=None)
    assert {one.sentence for one in none.wrong if one.kind == "lot"} == {"nobody contributed to the lot"}
    few = made.checked(written(messages[1:]), cohort=None, buffers=None, context=CONTEXT)
    assert {"message"} == kinds(few)  # the others signed that client 0 is in the round
    strangers = made.checked(cohort=lambda _: (0, 1))
    assert any(
        "client 2 contributed to the lot of a round that it is not in" in one.sentence for one in strangers.wrong
    )
    assert any("does not have its signature" in one.sentence for one in made.checked(context="d" * 64).wrong)


def test_clients_whom_nobody_knows_are_named(made):
    known = {client: key for client, key in made.keys.items() if client != 2}
    for cohort in (None, lambda _: (0, 1, 2)):
        checked = made.checked(clients=known, cohort=cohort)
        assert any("client 2 contributed" in one.sentence for one in checked.wrong)
        assert any("another keys of clients" in one.sentence for one in checked.wrong)


@given(st.data())
@settings(max_examples=60)
def test_no_bytes_make_anything_but_findings(trainings, data):
    """Bytes of an envelope are changed, cut or repeated, and its line is written to fit."""
    made = trainings[data.draw(st.sampled_from(["plain", "mask"]))]
    messages = made.kept.messages()
    place = data.draw(st.integers(0, len(messages) - 1))
    content = bytearray(envelope(messages[place]))
    for at in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=4, unique=True)):
        content[at] ^= data.draw(st.integers(1, 255))
    kept, previous = Kept(), "0" * 64
    for number, message in enumerate(messages, 1):
        part = bytes(content) if number - 1 == place else envelope(message)
        try:
            said = parsed(part)
        except RefusedError:
            said = message
        entry = Entry.of(said, part, number, previous)
        kept.keep(1, part, entry.line)
        previous = entry.digest
    assert rechecked(kept.content, kept.bodies.get, made.known()).wrong


@given(st.binary(min_size=1, max_size=300))
def test_other_bytes_are_no_chain(content):
    with pytest.raises(EvidenceError):
        read_chain(content, PATH)


@given(st.binary(max_size=300))
def test_a_chain_without_lines_lacks_all_rounds(trainings, body):
    checked = recheck(Chain(), lambda _: body, trainings["plain"].known())
    assert [one.kind for one in checked.wrong] == ["head"] + ["lot"] * 3


def test_a_chain_of_rounds_that_there_are_not(made):
    """No hash is taken for a round that a training does not have."""
    terms = replace(told(made.kept.messages())[1], round=2**50)
    kept = written([Message.unsigned("terms", terms.body, terms)])
    begun = time.monotonic()
    assert kinds(made.checked(kept)) == {"chain"}
    assert time.monotonic() - begun < 5


def test_whoever_adds_is_who_was_named(trainings):
    """A worker that refuses, or gives another sum, makes a finding and no error."""

    def refusing(*_):
        raise RefusedError("a worker died")

    made = trainings["bfv"]
    for add, reason in ((refusing, "a worker died"), (lambda *_: [b"other"], "is not that of the ciphertexts")):
        checked = rechecked(made.kept.content, made.kept.bodies.get, made.known(), add)
        assert [reason in one.sentence for one in checked.wrong] == [True]


def test_hostile_ciphertexts_are_findings(trainings):
    made = trainings["bfv"]
    said, terms = told(made.kept.messages())
    for part, kind in ((b"", "sum"), (b"\x0a\xff" * 300, "sum"), (b"x" * 70_000, "message")):
        wrong = Message.signed("send", 1, bytes(32) + framed([part]), terms, made.signers.clients[1])
        sent = [said["send"][0], wrong, said["send"][2]]
        found(made, forged(made, sent, total=Total.of(said["total"][0], terms)), kind, "")


# faults of this machine


def raising(error):
    def add(*_):
        raise error

    return add


FAULTS = {
    "memory is short": (MemoryError(), "_due of a secure sum broke off (MemoryError)"),
    "no process starts": (BlockingIOError(11, "no more processes"), "broke off (BlockingIOError)"),
    "the process gives no sum": (
        RefusedError("no process adds ciphertexts", "See whether memory is short.", reason="broke"),
        "no process adds ciphertexts. See whether memory is short.",
    ),
}


def by(made, add, messages=None):
    """What a transcript shows to a checker with this adder."""
    kept = written(messages or made.kept.messages())
    return rechecked(kept.content, kept.bodies.get, made.known(kept), add)


@pytest.mark.parametrize("suite", KEYED)
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_this_machine_is_no_finding(trainings, suite, name):
    """Nothing is wrong then, and nothing is opened: the buffer and the cause are named."""
    error, why = FAULTS[name]
    checked = by(trainings[suite], raising(error))
    assert (checked.wrong, checked.opened, checked.unplayed) == ((), {}, ())
    ((number, buffer, told_),) = checked.unmade
    assert (number, buffer) == (1, 0)
    assert why in told_


def test_a_fault_of_this_machine_hides_nothing_that_is_wrong(trainings):
    """What is found without a sum is found, and so is what an adder says of ciphertexts."""
    made, (error, _) = trainings["bfv"], FAULTS["memory is short"]
    messages = made.kept.messages()
    signed = [replace(one, signature=bytes(64)) if one.step == "send" else one for one in messages]
    checked = by(made, raising(error), signed)
    assert (kinds(checked), checked.unmade) == ({"message"}, ())
    checked = by(made, raising(RefusedError("client 1: bytes that were sent are no ciphertext", blamed=1)))
    assert ([one.kind for one in checked.wrong], checked.unmade) == (["sum"], ())


def test_one_buffer_that_is_not_made_again_leaves_the_others():
    made, rings = Training("bfv", rounds=2), []

    def second(summands, ring):
        rings.append(ring)
        return raising(MemoryError())() if len(rings) == 2 else added_apart(summands, ring)

    checked = by(made, second)
    assert (checked.wrong, set(checked.opened)) == ((), {(1, 0)})
    assert [one[:2] for one in checked.unmade] == [(2, 0)]


@pytest.mark.parametrize("version", [None, "0.3.16"])
def test_a_library_that_is_not_here_or_another_one_is_no_finding(made, monkeypatch, version):
    """Another version may add otherwise. Suites without ciphertexts need none."""
    if version is None:
        monkeypatch.setitem(sys.modules, "tenseal", None)
    else:
        monkeypatch.setattr("fuaudit.secure.terms.version", lambda _: version)
    checked = made.checked()
    assert checked.wrong == ()
    keyed = made.suite in KEYED
    assert (len(checked.opened), len(checked.unmade)) == ((0, 1) if keyed else (1, 0))
    assert all("pip install tenseal==0.3.18" in why for *_, why in checked.unmade)


def test_masks_that_this_machine_cannot_take_away_are_no_finding(trainings, monkeypatch):
    """Neither of a sum that was told, nor of a buffer that was discarded: enough may have come, or not."""
    made = trainings["mask"]
    discarded = ended_by_a_discard(made)
    assert made.checked(written(discarded)).wrong
    monkeypatch.setattr(masked, "own_mask", raising(MemoryError()))
    for messages in (made.kept.messages(), discarded):
        checked = made.checked(written(messages))
        assert (checked.wrong, checked.opened) == ((), {})
        assert ["MemoryError" in why for *_, why in checked.unmade] == [True]


@pytest.mark.parametrize("suite", KEYED)
def test_a_discarded_sum_that_this_machine_cannot_make_is_no_finding(trainings, suite):
    made = trainings[suite]
    checked = by(made, raising(MemoryError()), ended_by_a_discard(made))
    assert (checked.wrong, checked.discarded) == ((), ((1, 0),))
    assert [one[:2] for one in checked.unmade] == [(1, 0)]


# attempts that were discarded


def attempt(made, *steps, reason=b"few", **bodies):
    """An attempt of buffer 0 of round 1 under terms of its own, as parties sign it that collude, up to a discard."""
    said, terms = told(made.kept.messages())
    anew, own, found = replace(terms, attempt=new_attempt()), made.signers, []
    keys = own.clients | {WITNESS: own.witness, HOLDER: own.holder}
    for step in steps:
        for one in said[step]:
            body = bodies.get(step, one.body)
            body = body(anew) if callable(body) else body
            key = keys.get(one.sender)
            made_ = Message.unsigned(step, body, anew) if key is None else None
            found.append(made_ or Message.signed(step, one.sender, body, anew, key))
    return [terms_message(anew), *found, Message.unsigned("discard", reason, anew)]


def around(made, extra, behind=False):
    """The messages of a training with others in front of its first buffer, or behind the end of it."""
    messages = made.kept.messages()
    at = len(messages) if behind else next(place for place, one in enumerate(messages) if one.step == "terms")
    return [*messages[:at], *extra, *messages[at:]]


def alone(made):
    """One client's ciphertext, called the sum."""
    said, terms = told(made.kept.messages())
    return Total((0,), ciphertexts_of(said["send"][0], terms)[1])


def test_attempts_of_which_nobody_heard_are_no_findings(made):
    """Two, then the one that opened. Another key holder's context is that of all."""
    steps = [step for step in ("context", "announce") if made.suite in KEYED and told(made.kept.messages())[0][step]]
    both = attempt(made, *steps) + attempt(made, *steps, reason=b"silent")
    assert not made.checked(written(around(made, both))).wrong
    found(made, around(made, both + attempt(made)), "order", "a buffer was tried 4 times, and 3 are the most")
    found(made, around(made, attempt(made), behind=True), "order", "tried again after it was opened")


@pytest.mark.parametrize("suite", KEYED)
@pytest.mark.parametrize("behind", [False, True])
def test_a_sum_of_one_client_in_a_discarded_attempt(trainings, suite, behind):
    made, single = trainings[suite], alone(trainings[suite])
    steps = ["context", *(["announce"] if suite == "bfv+mask" else []), "total", "witness"]
    second = attempt(made, *steps, total=single.body(), witness=single.said)
    checked = found(
        made, around(made, second, behind), "sum", "0 of 3 clients" if suite == "bfv" else "clients of buffer"
    )
    assert {
        "step total of a buffer came 2 times in one round",
        "step witness of a buffer came 2 times in one round",
    } <= {one.sentence for one in checked.wrong}


@pytest.mark.parametrize("suite", KEYED)
def test_a_discarded_attempt_is_judged_as_far_as_it_got(trainings, suite):
    """It alone is in the transcript, so nothing is there twice."""
    made, front = trainings[suite], [one for one in trainings[suite].kept.messages() if one.step == "lot"]
    single, mask = alone(made), ["announce"] if suite == "bfv+mask" else []
    sums = {
        "0 messages of step context": attempt(made, "total", total=single.body()),
        "another context": attempt(made, "context", context=b"k" * 86),
    }
    for reason, messages in sums.items():
        found(made, front + messages, "sum", reason)
    record = front.copy()
    with pytest.raises(RefusedError):  # an honest one, whose key holder is gone
        made.open(made.rows[1, 0], (0, 1, 2), (1, 0), {HOLDER: "receipt"}, record.append)
    assert {"total", "witness", *mask} <= {one.step for one in record}
    assert not made.checked(written(record)).wrong
    found(made, [one for one in record if one.step != "total"], "sum", "0 messages of step total")
    terms = told(record)[1]
    flip = [
        Message.signed("witness", WITNESS, single.said(terms), terms, made.signers.witness) if one.step == "witness"
        else one for one in record
    ]  # fmt: skip
    found(made, flip, "sum", "the witness signed another sum")
    flip = [Message.unsigned("total", single.body(), terms) if one.step == "total" else one for one in record]
    found(made, flip, "sum", "the server's sum is not that of the ciphertexts")


def test_discarded_masked_rows_are_unmasked_for_those_who_came(trainings):
    made, record = trainings["mask"], []
    front = [one for one in made.kept.messages() if one.step == "lot"]
    with pytest.raises(RefusedError):
        made.open(made.rows[1, 0], (0, 1, 2), (1, 0), {2: "unmask"}, record.append)
    assert not made.checked(written(front + record)).wrong
    few = []
    with pytest.raises(RefusedError):  # nobody told a share, and the buffer may be tried again
        made.open(made.rows[1, 0], (0, 1, 2), (1, 0), {2: "send"}, few.append)
    assert not made.checked(written(around(made, few))).wrong
    terms = told(record)[1]
    other = [Message.unsigned("came", ids_bytes([0, 1]), terms) if one.step == "came" else one for one in record]
    found(made, front + other, "sum", "the server named other clients")
    of = next(one for one in record if one.step == "unmask")
    body = names_digest((0, 1)) + of.body[32:]
    changed = Message.signed("unmask", of.sender, body, terms, made.signers.clients[of.sender])
    found(made, front + [changed if one is of else one for one in record], "sum", "unmasks another sum")
    unnamed = [one for one in record if one.step != "came"]
    found(made, front + unnamed, "sum", "0 messages of step came came, where one is due")


def test_whoever_did_not_come_unmasks_no_discarded_sum():
    """Four in a buffer of three at least: three rows came, and the fourth one tells shares of their secrets."""
    made, sent = Training("mask", rounds=0, clients=4, smallest=3), []
    made.rounds = 1
    made.open(rows_of(4, COLUMNS), (0, 1, 2, 3), (1, 0), {3: "send"}, sent.append)
    said, terms = told(sent)
    of = said["unmask"][-1]
    late = Message.signed("unmask", 3, of.body, terms, made.signers.clients[3])
    front = [one for one in sent if one.step not in ("unmask", "opened")]
    end = Message.unsigned("discard", b"few", terms)
    for unmasked, wrong in ((said["unmask"][:1], False), ([late], True)):
        checked = made.checked(written([*front, *unmasked, end]), ends={}, buffers=None)
        assert [one.sentence for one in checked.wrong] == [
            "client 3 unmasks another sum than that of (0, 1, 2)"
        ] * wrong


def ended_by_a_discard(made):
    """A training whose server saw the sum, and says that it discarded the buffer."""
    messages = made.kept.messages()
    return [*messages[:-1], Message.unsigned("discard", b"silent", told(messages)[1])]


@pytest.mark.parametrize("suite", ["plain", "mask"])
def test_a_buffer_of_which_all_came_was_not_discarded(trainings, suite):
    made = trainings[suite]
    found(made, ended_by_a_discard(made), "sum", "all came that the server needs to open the buffer")


def test_a_buffer_of_which_enough_was_unmasked_was_not_discarded():
    """Three of four shares are enough; two are not, and then nobody has the sum."""
    made = Training("mask", rounds=0, clients=4)
    made.rounds, record = 1, made.kept.transcript.record
    made.open(rows_of(4, COLUMNS), (0, 1, 2, 3), (1, 0), {}, record)
    messages, free = ended_by_a_discard(made), {"ends": {}, "buffers": None}
    for silent, wrong in ((1, True), (2, False)):
        left = [one for one in messages if one.step != "unmask" or one.sender >= silent]
        checked = made.checked(written(left), **free)
        assert [one.kind for one in checked.wrong] == ["sum"] * wrong


def test_a_row_in_the_open_that_is_none_is_discarded_by_an_honest_server(trainings):
    """All of it came, and nobody adds it up: its client signed a value outside its field."""
    made = trainings["plain"]
    honest = made.kept.messages()
    for value, wrong in ((2047, ["sum"]), (2048, [])):
        row = np.full(COLUMNS, value)
        other = [
            Message.signed("send", 0, row.astype("<i4").tobytes(), told(honest)[1], made.signers.clients[0])
            if (one.step, one.sender) == ("send", 0)
            else one
            for one in ended_by_a_discard(made)
        ]
        checked = made.checked(written(other))
        assert [one.kind for one in checked.wrong] == wrong
        assert checked.discarded == ((1, 0),)


def test_a_client_who_signs_a_wrong_share_is_named_and_the_sum_is_made_without_it():
    made = Training("mask", rounds=0, clients=4)
    made.rounds, record = 1, made.kept.transcript.record
    rows = rows_of(4, COLUMNS)
    made.open(rows, (0, 1, 2, 3), (1, 0), {}, record)
    honest, free = made.kept.messages(), {"ends": {}, "buffers": None}
    assert not made.checked(written(honest), **free).liars
    body = next(one.body for one in honest if (one.step, one.sender) == ("unmask", 2))
    wrong = body[:-1] + bytes([body[-1] ^ 1])
    other = [
        Message.signed("unmask", 2, wrong, told(honest)[1], made.signers.clients[2])
        if (one.step, one.sender) == ("unmask", 2)
        else one
        for one in honest
    ]
    checked = made.checked(written(other), **free)
    assert (checked.wrong, [*checked.liars]) == ((), [(1, 0, 2)])
    assert checked.opened[1, 0].sums.tolist() == rows.sum(axis=0).tolist()


def test_a_buffer_in_the_open_was_not_discarded_where_as_many_rows_came_as_it_opens_from():
    made = Training("plain", rounds=0, clients=4, smallest=3)
    made.rounds, record = 1, made.kept.transcript.record
    made.open(rows_of(4, COLUMNS), (0, 1, 2, 3), (1, 0), {}, record)
    messages, free = ended_by_a_discard(made), {"ends": {}, "buffers": None}
    for silent, wrong in ((0, True), (1, True), (2, False)):
        left = [one for one in messages if one.step != "send" or one.sender >= silent]
        assert [one.kind for one in made.checked(written(left), **free).wrong] == ["sum"] * wrong


@pytest.mark.parametrize("suite", KEYED)
def test_what_a_key_holder_did_with_a_signed_sum_is_its_word(trainings, suite):
    made = trainings[suite]
    checked = made.checked(written(ended_by_a_discard(made)))
    assert (checked.wrong, checked.discarded, checked.opened) == ((), ((1, 0),), {})
    assert checked.unplayed == ((1, (0, 1, 2)),)


def test_masked_rows_of_fewer_than_agreed_are_not_unmasked(trainings):
    made = trainings["mask"]
    _, terms = told(made.kept.messages())
    two = [one for one in made.kept.messages() if (one.step, one.sender) not in (("send", 2), ("unmask", 2))]
    few = []
    for one in two[:-1]:
        if one.step == "came":
            one = Message.unsigned("came", ids_bytes([0, 1]), terms)
        if one.step == "unmask":
            one = Message.signed(
                "unmask", one.sender, names_digest((0, 1)) + one.body[32:], terms, made.signers.clients[one.sender]
            )
        few.append(one)
    found(made, [*few, Message.unsigned("discard", b"few", terms)], "sum", "2 of 3 clients of buffer 0 are left")


def test_one_attempt_is_not_told_as_two(made):
    """The same terms again behind a discard, wherever it is cut: a second reading of what clients signed once."""
    messages = made.kept.messages()
    of = next(one for one in messages if one.step == "terms")
    discard = Message.unsigned("discard", b"silent", terms_of(of))
    for place in range(messages.index(of) + 1, len(messages)):
        found(
            made,
            [*messages[:place], discard, of, *messages[place:]],
            "terms",
            "the terms have the attempt of other ones",
        )
        gone_on = [*messages[:place], discard, *messages[place:]]
        found(made, gone_on, "terms", "under terms that nobody sent")


def test_who_came_stands_in_one_order(trainings):
    made = trainings["mask"]
    for ids in ([2, 1, 0], [0, 1, 1], [0, 2, 1]):
        wrong = [replace(one, body=ids_bytes(ids)) if one.step == "came" else one for one in made.kept.messages()]
        assert "sum" in kinds(made.checked(written(wrong))) or "message" in kinds(made.checked(written(wrong)))


@pytest.mark.parametrize("suite", SUITES)
def test_terms_have_one_form(trainings, suite):
    """A field that has a default is not left out: other bytes would have the same digest."""
    made = trainings[suite]
    for field_ in ("context", "holder", "witness"):

        def shorter(one, gone=field_):
            if one.step != "terms":
                return one
            left = {name: value for name, value in json.loads(one.body).items() if name != gone}
            return replace(one, body=json.dumps(left, sort_keys=True, separators=(",", ":")).encode())

        found(made, map(shorter, made.kept.messages()), "terms", "as terms of a buffer are none")


@pytest.mark.parametrize("suite", KEYED)
def test_a_handout_stands_in_no_transcript(trainings, suite, monkeypatch):
    made = trainings[suite]
    terms = told(made.kept.messages())[1]
    one = Message.signed("handout", HOLDER, bytes(64), terms, made.signers.holder, receiver=0)
    messages = made.kept.messages()
    at = next(place for place, each in enumerate(messages) if each.step == "context") + 1
    monkeypatch.setattr("fuaudit.secure.transcript.HIDDEN", "none")  # the recorder of an operator refuses nothing
    found(made, [*messages[:at], one, *messages[at:]], "message", "which is for the eyes of one client")


def test_a_reason_is_a_word_of_the_list(made):
    for reason in (b"", b"row 17: 0 0 5 13", b"few "):
        found(made, around(made, attempt(made, reason=reason)), "body", "for a reason that there is not")


def test_a_buffer_is_not_tried_more_often_than_a_transcript_may_tell():
    books, record = Books(), []
    for _ in range(ATTEMPTS + 1):
        with pytest.raises(RefusedError) as refused:
            Suite("mask").opened(rows_of(3, 5), 12, absent={0: "send"}, at=(1, 0), books=books, record=record.append)
    assert "was tried 3 times" in refused.value.args[0]
    assert [one.step for one in record].count("terms") == ATTEMPTS
    assert remembered(record).attempts == {(1, 0): ATTEMPTS}


def test_terms_in_a_round_without_sums(made):
    checked = made.checked(columns=lambda _: None)
    assert "there are terms in a round that has no sums" in {one.sentence for one in checked.wrong}


def test_a_round_that_is_left_out_as_a_whole():
    """Of a round with clients each owes its contribution, and each buffer its sum."""
    made = Training("plain", rounds=2)
    first = [one for one in made.kept.messages() if one.round == 1]
    heads = {1: made.kept.chain().head_after(1)} | {2: made.kept.chain().cut(1).head}
    checked = made.checked(written(first), heads=heads)
    withheld = [f"client {client} withheld its contribution to the lot" for client in range(3)]
    assert [(one.sentence, one.round) for one in checked.wrong] == [(one, 2) for one in withheld]
    nobody = made.checked(written(first), heads=heads, cohort=lambda number: (0, 1, 2) if number == 1 else ())
    assert not nobody.wrong
    no_lots = [one for one in first if one.step != "lot"]
    members = made.checked(
        written(no_lots), heads=made.known(written(no_lots)).heads | {2: written(no_lots).chain().head}, ends={},
        buffers=lambda number, _: [(0, 1, 2)],
    )  # fmt: skip
    assert (members.wrong, members.unplayed) == ((), ((2, (0, 1, 2)),))


def test_many_contributions_of_one_client_are_refused_at_once():
    made = Training("plain")
    lot = made.kept.messages()[0]
    lots, begun = [lot] * 100_000 + [replace(lot, sender=number) for number in range(20_000)], time.monotonic()
    with pytest.raises(RefusedError, match="two messages of client 0"):
        require_distinct(lots)
    assert time.monotonic() - begun < 5


# wrong implementations of the check


BLIND = {
    "signatures are not looked at": (buffers, "_wrong_messages", lambda *_: iter(()), "swapped"),
    "order is not looked at": (transcripts, "wrong_order", lambda *_: iter(()), "order"),
    "sums are not made again": (sums, "_due", None, "other sum"),
    "terms are not compared": (buffers, "wrong_terms", lambda *_: iter(()), "bits"),
    "heads are not compared": (transcripts, "wrong_heads", lambda *_: iter(()), "tail"),
}


@pytest.mark.parametrize("name", BLIND)
def test_a_check_that_does_not_look_is_caught(trainings, monkeypatch, name):
    """Each tampering is found by the check that is meant for it, and by no other one."""
    room, what, blind, case = BLIND[name]
    made = trainings["plain"]
    messages = made.kept.messages()
    receipt = Receipt.of(messages[-1], told(messages)[1])
    if blind is None:
        due = sums._Due(receipt.total, receipt.members)
        blind = lambda *_: due  # noqa: E731
    last = replace(messages[-1], body=replace(receipt, sums=-receipt.sums).body())
    sends = [place for place, one in enumerate(messages) if one.step == "send"]
    signed = list(messages)
    signed[sends[0]] = replace(messages[sends[0]], signature=bytes(64))
    cases = {
        "swapped": (signed, {}),
        "order": ([*messages[: sends[0]], *reversed(messages[sends[0] : sends[2] + 1]), *messages[sends[2] + 1 :]], {}),
        "other sum": ([*messages[:-1], last], {}),
        "bits": (messages, {"bits": 14}),
        "tail": (messages[:0], {"heads": made.known().heads, "cohort": lambda _: ()}),
    }
    kept, others = written(cases[case][0]), cases[case][1]
    assert made.checked(kept, **others).wrong
    monkeypatch.setattr(room, what, blind)
    left = made.checked(kept, **others).wrong
    assert not left or {one.kind for one in left} == {"sum"}, left


def test_who_is_in_a_buffer_is_in_the_lot():
    """Also where nobody knows how buffers are drawn: two clients draw, and a third one is summed."""
    made = Training("plain", rounds=0)
    made.rounds = 1
    two, record = Lot(CONTEXT, 1, (0, 1), tuple(made.keys.values())[:2]), made.kept.transcript.record
    for client in (0, 1):
        contribution = made.contributions[client].element(3)
        record(Message.signed("lot", client, contribution, two, made.signers.clients[client]))
    made.open(rows_of(3, COLUMNS), (0, 1, 2), (1, 0), {}, record)
    checked = made.checked(cohort=None, buffers=None)
    assert [one.sentence for one in checked.wrong] == ["client 2 is in no lot of this round"]
