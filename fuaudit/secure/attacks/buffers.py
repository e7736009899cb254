"""One client's row from sums that are opened as they should be: by those who are in them, and by two that differ."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fuaudit.secure import masked, shamir
from fuaudit.secure.attacks.opening import VICTIM, Got, Opening
from fuaudit.secure.attacks.parties import Parties
from fuaudit.secure.exposure import Buffer, partners_needed
from fuaudit.secure.masked import own_mask, words_of
from fuaudit.secure.messages import DIGEST_BYTES, Message, list_digest
from fuaudit.secure.pairs import PUBLIC_BYTES, PairKey, pair_masks
from fuaudit.secure.refusal import RefusedError
from fuaudit.secure.streams import Ints
from fuaudit.secure.suites import Suite


def invented_clients(suite: str, opening: Opening) -> Got:
    """All clients but one are the server's own: their rows are zeros, and the sum is the row.

    No suite knows who is invented. Only a list of clients from outside does.
    """
    rows = np.zeros_like(opening.rows)
    rows[VICTIM] = opening.row
    return Got(Suite(suite, opening.most).sums(rows, opening.bits), opening.row)


def enough_colluders(suite: str, opening: Opening) -> Got:
    """As many partners collude as open a row: the server leaves out everybody else, and takes their rows away."""
    return left_out(suite, opening, _needed(suite, opening))


def one_colluder_less(suite: str, opening: Opening) -> Got:
    """The same with one colluder less, which must not do."""
    return left_out(suite, opening, _needed(suite, opening) - 1)


def _needed(suite: str, opening: Opening) -> int:
    size = len(opening.buffer)
    return partners_needed(suite, Buffer(size, opening.smallest or size))


def left_out(suite: str, opening: Opening, colluders: int) -> Got:
    """Some partners collude; the server says that all others did not come, or in ``mask`` says both of the victim."""
    found = None if colluders < 0 else _alone(suite, opening, colluders)
    if found is None and suite == "mask":
        found = both_secrets(opening, colluders)
    return Got(found, opening.row)


def _alone(suite: str, opening: Opening, colluders: int) -> Ints | None:
    step, rows = "send" if suite == "bfv" else "announce", opening.buffer
    absent = dict.fromkeys(range(colluders + 1, len(rows)), step)
    made = Suite(suite, opening.most)
    try:
        opened = made.opened(rows, opening.bits, absent=absent, smallest=opening.smallest)
    except RefusedError as error:
        if error.broke:
            raise
        return None
    found: Ints = opened.sums - rows[1 : colluders + 1].sum(axis=0)
    return found


def both_secrets(opening: Opening, colluders: int) -> Ints | None:
    """The victim's row by seed and key of its masks: the server shows some that its row came, others that it did not.

    Colluders tell both shares. Everybody else tells one, and the victim none of its key.
    """
    with Parties("mask", opening.buffer, opening.bits, opening.most, opening.smallest) as some:
        announced, shared, sent = some.masked_rows()
        few = masked.threshold(some.terms)
        told = _told(some, colluders, few)
        if min(map(len, told.values())) < few:
            return None
        seed, key = (shamir.reconstructed(dict(list(told[what].items())[:few])) for what in ("seed", "key"))
        return _unmasked_row(some, announced, sent[VICTIM], list_digest(shared), seed or b"", key or b"")


def _told(some: Parties, colluders: int, few: int) -> Mapping[str, dict[int, bytes]]:
    """Shares of the victim's seed and key, by holder."""
    told: dict[str, dict[int, bytes]] = {"seed": {}, "key": {}}
    everybody, theirs = list(some.terms.members), range(1, colluders + 1)
    for holder in theirs:
        told["seed"][holder], told["key"][holder] = some.mask_clients[holder]._vault.get("shares", dict)[VICTIM]
    for holder in (one for one in everybody if one not in theirs):
        what = "seed" if len(told["seed"]) < few else "key"
        came = [one for one in everybody if what == "seed" or one != VICTIM]
        try:
            body = some.mask_clients[holder].unmask(came).body
        except RefusedError as error:
            if error.broke:
                raise
            continue
        told[what][holder] = body[DIGEST_BYTES : DIGEST_BYTES + shamir.SHARE_BYTES]
    return told


def _unmasked_row(
    some: Parties, announced: list[Message], sent: Message, agreed: bytes, seed: bytes, key: bytes
) -> Ints:
    row = np.frombuffer(sent.body[DIGEST_BYTES:], dtype="<u4").astype(np.int64)
    peers = {one.sender: one.body[PUBLIC_BYTES:] for one in announced if one.sender != VICTIM}
    masks = pair_masks(PairKey(key), VICTIM, peers, agreed, lambda pair: words_of(pair, len(row)))
    found = (row - masks - own_mask(seed, agreed, len(row))) & masked.RING
    values: Ints = found[: some.terms.columns] - some.terms.largest
    return values


def parent_minus_child(suite: str, opening: Opening) -> Got:
    """All sums of a round, less those of a round without the victim: whoever else was in which buffer."""
    rows, half = opening.rows, (len(opening.rows) + 1) // 2
    left = [one for one in range(len(rows)) if one != VICTIM][::-1]
    before, after = rows + opening.noise[0], rows + opening.noise[1]
    parent = [before[:half], before[half:]]
    child = [after[left[: len(left) // 2]], after[left[len(left) // 2 :]]]
    sums = [[_sum(suite, opening, some) for some in side] for side in (parent, child)]
    found: Ints = np.sum(sums[0], axis=0) - np.sum(sums[1], axis=0)
    return Got(found, opening.row)


def _sum(suite: str, opening: Opening, rows: Ints) -> Ints:
    """Of a buffer; of one client alone no suite makes one, and none is needed to show what a difference tells."""
    return rows[0] if len(rows) == 1 else Suite(suite, opening.most).sums(rows, opening.bits)


def the_same_without_noise(suite: str, opening: Opening) -> Got:
    """:func:`parent_minus_child` where clients answer in the child as in the parent."""
    return parent_minus_child(suite, Opening(opening.rows, np.zeros_like(opening.noise), opening.bits, opening.most))
