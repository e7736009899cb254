"""One client's row from what is sent: a sum of one, a key holder that colludes, a copy, and values that are too large.

In every attack the server has all messages. What else an attacker holds, each of them says.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from fuaudit.secure import bfv, ckks, masked, shamir
from fuaudit.secure.attacks.opening import VICTIM, Got, Opening
from fuaudit.secure.attacks.parties import Parties
from fuaudit.secure.encrypted import Total, ciphertexts_of, framed
from fuaudit.secure.masked import own_mask
from fuaudit.secure.messages import DIGEST_BYTES, Message, list_digest
from fuaudit.secure.names import SCARY
from fuaudit.secure.refusal import RefusedError
from fuaudit.secure.slots import checks, unpacked
from fuaudit.secure.streams import Ints
from fuaudit.secure.terms import CHECKS, SLOTS

COLLUDER = VICTIM + 1


def single_opening(suite: str, opening: Opening) -> Got:
    """The server has one client's row opened as if it were the sum; the witness signs whatever it likes."""
    if suite == "plain":
        return Got(opening.row, opening.row)  # it is what the server is sent
    if suite == SCARY:
        return Got(_of_ckks(opening, [VICTIM]), opening.row)
    if suite == "mask":
        return Got(_without_own_mask(opening), opening.row)
    return Got(_said_to_be_the_sum(suite, opening), opening.row)


def _of_ckks(opening: Opening, summands: Sequence[int]) -> Ints:
    """What the key holder of the demonstration opens: the sum of these clients' ciphertexts."""
    holder = ckks.DemoKeyHolder(opening.bits, opening.most)
    sent = [ckks.encrypted(holder.public(), opening.rows[one]) for one in summands]
    total = sent[0] if len(sent) == 1 else ckks.added(holder.keyless(), sent)
    return np.rint(holder.opened(total)[: opening.rows.shape[1]]).astype(np.int64)


def _without_own_mask(opening: Opening) -> Ints:
    """The victim's masked row without the mask of its seed, which the server is told: masks of its pairs are left."""
    with Parties("mask", opening.rows, opening.bits, opening.most) as some:
        _, shared, sent = some.masked_rows()
        came, at = [message.sender for message in sent], DIGEST_BYTES  # shares are of dealers, ascending
        bodies = [one.unmask(came).body for one in some.mask_clients]
        parts = {place: body[at : at + shamir.SHARE_BYTES] for place, body in enumerate(bodies)}
        seed = shamir.reconstructed(dict(list(parts.items())[: masked.threshold(some.terms)])) or b""
        row = np.frombuffer(sent[VICTIM].body[DIGEST_BYTES:], dtype="<u4").astype(np.int64)
        found = (row - own_mask(seed, list_digest(shared), len(row))) & masked.RING
        return found[: some.terms.columns] - some.terms.largest


def _said_to_be_the_sum(suite: str, opening: Opening) -> Ints | None:
    """What the key holder opens of the victim's ciphertexts under all names; the sum it tells has all offsets of L."""
    with Parties(suite, opening.rows, opening.bits, opening.most) as some:
        _, sent = some.sent()
        total = Total(some.terms.members, ciphertexts_of(sent[VICTIM], some.terms)[1])
        try:
            found = some.signed(total)
        except RefusedError as error:
            if error.broke:
                raise
            return None
        return found.sums + some.terms.largest * (len(opening.rows) - 1)


def key_holder_and_server(suite: str, opening: Opening) -> Got:
    """The key holder opens what the server was sent by one client."""
    if suite == SCARY:
        return Got(_of_ckks(opening, [VICTIM]), opening.row)
    return Got(held_by_key_holder(suite, opening, [VICTIM]), opening.row)


def held_by_key_holder(suite: str, opening: Opening, members: Sequence[int]) -> Ints:
    """What a key holder that colludes with the server finds in the sum of some clients' ciphertexts, ``(c,)``."""
    with Parties(suite, opening.rows, opening.bits, opening.most) as some:
        _, sent = some.sent()
        parts = [ciphertexts_of(sent[one], some.terms)[1] for one in members]
        sums = parts[0] if len(parts) == 1 else bfv.added([some.parsed(one) for one in parts])
        layout = some.terms.layout
        found = bfv.decrypted(some.holder._vault.get("keys", bfv.Keys), sums, layout.ring)
        values = unpacked(found[:, : SLOTS - CHECKS], layout, some.terms.columns)
        return values - len(members) * some.terms.largest


def copied_ciphertext(suite: str, opening: Opening) -> Got:
    """A colluder sends the victim's message as its own: in a buffer of two half of the sum is the row.

    In ``bfv`` and ``bfv+mask`` it also tries a copy that it made to look new, by an encryption of what it knows of its
    own check.
    """
    two = Opening(opening.rows[: COLLUDER + 1], opening.noise[:, : COLLUDER + 1], opening.bits, opening.most)
    if suite == SCARY:
        return Got(_of_ckks(two, [VICTIM, VICTIM]) // 2, opening.row)
    ways = [_copied_masked] if suite == "mask" else [partial(_copied, suite, fresh) for fresh in (False, True)]
    for way in ways:
        try:
            return Got(way(two) // 2, opening.row)
        except RefusedError as error:
            if error.broke:
                raise
    return Got(None, opening.row)


def _copied_masked(opening: Opening) -> Ints:
    with Parties("mask", opening.rows, opening.bits, opening.most) as some:
        announced, shared, sent = some.masked_rows()
        sent[COLLUDER] = some.resigned(sent[COLLUDER], sent[VICTIM].body)
        return some.unmasked(announced, shared, sent).sums


def _copied(suite: str, fresh: bool, opening: Opening) -> Ints:
    with Parties(suite, opening.rows, opening.bits, opening.most) as some:
        announced, sent = some.sent()
        sent[COLLUDER] = some.resigned(sent[COLLUDER], copy_of(some, sent[VICTIM], fresh))
        return some.opened(sent, announced).sums


def copy_of(some: Parties, message: Message, fresh: bool) -> bytes:
    """The body of a copy of a message's ciphertexts; ``fresh`` looks like a new one, with the colluder's offsets."""
    agreed, parts = ciphertexts_of(message, some.terms)
    copies = list(parts)
    if fresh:
        handout, ring = some.holder.handout(COLLUDER), some.terms.layout.ring
        empty = np.zeros((len(parts), SLOTS - CHECKS), dtype=np.int64)
        own = checks(empty, handout.weights, [handout.offsets], some.terms)
        more = bfv.encrypted(handout.public, np.concatenate([empty, own[:, None]], axis=1), ring)
        copies = bfv.added([some.parsed(parts), some.parsed(more)])
    return agreed + framed(copies)


def overflow(suite: str, opening: Opening) -> Got:
    """A client sends a value by which a sum is larger by one than any sum of rows, with a check that fits.

    A smaller one cannot be told from other rows: what it adds beyond its range is what the others leave of the range
    of the sum. One that is carried into the next field is another row of its client, and no more.
    """
    rows = opening.rows.copy()
    rows[VICTIM, 0] = opening.largest * len(rows) + 1 - rows[COLLUDER:, 0].sum()
    large = Opening(rows, opening.noise, opening.bits, opening.most)
    due = rows.sum(axis=0)[:1]
    if suite == SCARY:
        return Got(_of_ckks(large, range(len(rows)))[:1], due)
    with Parties(suite, opening.rows, opening.bits, opening.most) as some:
        clients = some.mask_clients if suite == "mask" else some.clients
        clients[VICTIM]._vault.put("row", rows[VICTIM] + opening.largest)  # its own code, and it looks at nothing
        try:
            if suite == "mask":
                return Got(some.unmasked(*some.masked_rows()).sums[:1], due)
            announced, sent = some.sent()
            return Got(some.opened(sent, announced).sums[:1], due)
        except RefusedError as error:
            if error.broke:
                raise
            return Got(None, due)
