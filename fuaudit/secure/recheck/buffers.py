"""The buffers of one round: terms, signatures, who is with whom, and their sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from fuaudit.secure.envelope import limits, terms_of
from fuaudit.secure.messages import OF_ROUND, Message, named
from fuaudit.secure.names import ANSWERS
from fuaudit.secure.recheck.known import Adder, Known
from fuaudit.secure.recheck.lots import Lots
from fuaudit.secure.recheck.order import TOLD
from fuaudit.secure.recheck.shown import Kind, Wrong, sentence_of
from fuaudit.secure.recheck.sums import UnmadeError, again, wrong_so_far
from fuaudit.secure.refusal import RefusedError
from fuaudit.secure.terms import LIBRARY, Opened, Terms, coordinates_digest
from fuaudit.secure.transcript import ENDS
from fuaudit.text import counted


class Buffers:
    """The buffers of one round, by their terms."""

    def __init__(self, number: int, messages: Sequence[Message], known: Known, add: Adder, attempts: set[str]) -> None:
        self.number, self._known, self._add, self._attempts = number, known, add, attempts
        self._played = [*_attempts(messages)]
        self.opened: dict[int, Opened] = {}
        self.unplayed: list[tuple[int, ...]] = []
        self.unmade: list[tuple[int, str]] = []

    def wrong(self, lots: Lots) -> Iterator[Wrong]:
        """What is wrong; what was opened and fits is in ``opened`` afterwards, and in ``unmade`` what nobody knows."""
        all_terms: list[Terms] = []
        for messages in self._played:
            buffer = messages[0].buffer
            try:
                terms = _own_terms(messages)
            except RefusedError as error:
                yield Wrong("terms", sentence_of(error), self.number, buffer)
                continue
            all_terms.append(terms)
            yield from (Wrong(*one, self.number, buffer) for one in self._wrong_buffer(terms, messages))
        yield from self._wrong_members(all_terms, lots)
        told = lots.columns
        if told is not None and all_terms:
            due = len(told), coordinates_digest(told)
            for terms in all_terms:
                if (terms.columns, terms.coordinates) != due:
                    sentence = "the terms have another set of columns than the server told"
                    yield Wrong("terms", sentence, self.number, terms.buffer)

    def _wrong_buffer(self, terms: Terms, messages: Sequence[Message]) -> Iterator[tuple[Kind, str]]:
        wrong: list[tuple[Kind, str]] = [
            ("terms", sentence) for sentence in wrong_terms(terms, self._known, self.number)
        ]
        if terms.attempt in self._attempts:
            wrong.append(("terms", "the terms have the attempt of other ones"))
        self._attempts.add(terms.attempt)
        wrong += [("message", sentence) for sentence in _wrong_messages(terms, messages)]
        yield from wrong or self._wrong_sum(terms, messages)

    def _wrong_sum(self, terms: Terms, messages: Sequence[Message]) -> Iterator[tuple[Kind, str]]:
        try:
            if not any(message.step in TOLD for message in messages):
                yield from wrong_so_far(terms, messages, self._add)
                return
            opened, wrong = again(terms, messages, self._add)
        except UnmadeError as error:
            self.unmade.append((terms.buffer, str(error)))
            return
        if opened is not None and terms.buffer not in self.opened:
            self.opened[terms.buffer] = opened
        yield from wrong

    def _wrong_members(self, all_terms: Sequence[Terms], lots: Lots) -> Iterator[Wrong]:
        """Who is with whom: as the lot says, and each client in one buffer, with one answer."""
        buffers: dict[int, tuple[int, ...]] = {}
        for terms in all_terms:
            if buffers.setdefault(terms.buffer, terms.members) != terms.members:
                yield Wrong("buffer", "a buffer was tried again with other clients", self.number, terms.buffer)
        yield from self._twice(buffers)
        yield from self._wrong_sizes(buffers)
        for terms in all_terms:
            if lots.right is not None and (others := sorted({*terms.members} - lots.right.keys())):
                yield Wrong("buffer", f"client {others[0]} is in no lot of this round", self.number, terms.buffer)
        yield from self._not_drawn(all_terms, lots)

    def _twice(self, buffers: Mapping[int, tuple[int, ...]]) -> Iterator[Wrong]:
        """Clients in two buffers, or with two answers in a round."""
        for client, times in Counter(client for members in buffers.values() for client in members).items():
            if times > 1:
                yield Wrong("buffer", f"client {client} is in {times} buffers", self.number)
        answer = ANSWERS[self._known.suite]
        answers = Counter(one.sender for messages in self._played for one in messages if one.step == answer)
        for client, times in answers.items():
            if times > 1:
                yield Wrong("twice", f"client {client} answered {times} times in one round", self.number)

    def _not_drawn(self, all_terms: Sequence[Terms], lots: Lots) -> Iterator[Wrong]:
        """Buffers that the lot does not give; ``unplayed`` are afterwards those that it gives and nobody told of."""
        known = self._known
        if known.buffers is None or (known.ends and lots.right is None):
            return
        drawn, told = [*known.buffers(self.number, lots.right or {})], self._told_of(all_terms)
        self.unplayed = sorted(members for buffer, members in enumerate(drawn) if (buffer, members) not in told)
        for terms in all_terms:
            if terms.members not in drawn:
                yield Wrong("buffer", f"clients {terms.members} were not drawn together", self.number, terms.buffer)
            elif not (terms.buffer < len(drawn) and drawn[terms.buffer] == terms.members):
                sentence = f"clients {terms.members} were drawn as buffer {drawn.index(terms.members)}"
                yield Wrong("buffer", sentence, self.number, terms.buffer)

    def _wrong_sizes(self, buffers: Mapping[int, tuple[int, ...]]) -> Iterator[Wrong]:
        """Buffers with more clients than the config puts into them, or with fewer than it opens."""
        if self._known.sizes is None:
            return
        sizes = [*self._known.sizes(self.number)]
        for buffer, members in sorted(buffers.items()):
            if not 0 <= buffer < len(sizes):
                yield Wrong("buffer", f"the round has {counted(len(sizes), 'buffer')}", self.number, buffer)
                continue
            due = sizes[buffer]
            if not due.smallest <= len(members) <= due.size:
                has = f"clients {members} are in a buffer of {due.size}"
                yield Wrong("buffer", f"{has}, which opens from {counted(due.smallest, 'row')} on", self.number, buffer)

    def _told_of(self, all_terms: Sequence[Terms]) -> set[tuple[int, tuple[int, ...]]]:
        """Numbers and members of the buffers of which a sum was told."""
        told = {messages[0].terms for messages in self._played if any(one.step in TOLD for one in messages)}
        return {(terms.buffer, terms.members) for terms in all_terms if terms.digest in told}


def _attempts(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """The messages of each attempt, in order: those under one digest of terms up to an end.

    Behind that end the same terms are another attempt: what was discarded is not gone on with.
    """
    open_, found = dict[bytes, list[Message]](), list[list[Message]]()
    for message in messages:
        if message.step in OF_ROUND:
            continue
        if message.terms not in open_:
            found.append(open_.setdefault(message.terms, []))
        open_[message.terms].append(message)
        if message.step in ENDS:
            del open_[message.terms]
    yield from found


def _own_terms(messages: Sequence[Message]) -> Terms:
    """The terms under which messages stand. RefusedError where they do not stand first among them."""
    if messages[0].step != "terms":
        raise RefusedError(f"{named(messages[0].sender)} sent step {messages[0].step} under terms that nobody sent")
    return terms_of(messages[0])


def _due_sizes(terms: Terms, known: Known, number: int) -> tuple[int, int]:
    """Of how many clients the largest buffer of a round is, and from how many rows on that of some terms opens."""
    if known.sizes is None:
        return min(terms.most, known.most), len(terms.members)
    sizes = known.sizes(number)
    there = 0 <= terms.buffer < len(sizes)
    return max((one.size for one in sizes), default=0), sizes[terms.buffer].smallest if there else 0


def wrong_terms(terms: Terms, known: Known, number: int) -> Iterator[str]:
    """How terms differ from what is known of a training and its round; a sentence each."""
    most, few = _due_sizes(terms, known, number)
    due = {
        "suite": (terms.suite, known.suite),
        "bits of a value": (terms.bits, known.bits),
        "largest buffer": (terms.most, most),
        "fewest rows": (terms.smallest, few),
        "version of the library": (terms.library, LIBRARY),
        "key of the witness": (terms.witness, known.witness),
        "key of the key holder": (terms.holder, known.holder),
        "context": (terms.context, known.context),
        "keys of clients": (terms.roster, tuple(known.clients.get(client, "no key") for client in terms.members)),
    }
    if known.columns is not None:
        columns = known.columns(number)
        if columns is None:
            yield "there are terms in a round that has no sums"
        else:
            due["set of columns"] = ((terms.columns, terms.coordinates), columns)
    for what, (found, expected) in due.items():
        if found != expected:
            yield f"the terms have another {what} than this training"


def _wrong_messages(terms: Terms, messages: Sequence[Message]) -> Iterator[str]:
    """Which messages are not signed, or not of these terms; a sentence each."""
    allowed = limits(terms)
    for message in messages:
        if message.step not in allowed:
            yield f"{named(message.sender)} sent step {message.step}, which suite {terms.suite} does not have"
            continue
        try:
            message.require(message.step, *allowed[message.step], terms)
        except RefusedError as error:
            yield sentence_of(error)
