"""What a transcript of a suite cannot show, and no check of it can change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from fuaudit.secure.names import has_key_holder
from fuaudit.secure.recheck.known import Known


def cannot(known: Known, unread: Sequence[int]) -> tuple[str, ...]:
    """What a transcript of a suite does not show, a sentence each."""
    found = [*_ALWAYS, _OF_SUITE[known.suite]]
    found += [_FILLED] if known.suite != "plain" else []
    found += [_WORD] if has_key_holder(known.suite) else []
    found += [] if known.heads else [_NO_HEAD]
    found += [] if known.ends else [_NO_LOT]
    if unread:
        found.append(
            f"The envelopes of {len(unread)} rounds are gone, first of round {unread[0]}: no sum is made again."
        )
    return tuple(found)


_ALWAYS = (
    "Messages that nobody recorded are not in it: parties can have told each other anything beside it.",
    "It shows no party's memory, and not who colluded with whom.",
    "It shows that keys signed, and not who held them: invented clients sign like others.",
)
_FILLED = "Ciphertexts and masked rows can hold anything: nothing makes them again."
_WORD = "The opened numbers are the key holder's word: its key is gone, so no sum of ciphertexts is opened again."
_NO_HEAD = "No head of the chain was given: lines that were cut off at its end, or written anew, are not seen."
_NO_LOT = "No ends of chains were given: who is with whom is the word of who made the buffers."
_OF_SUITE: Mapping[str, str] = MappingProxyType(
    {
        "plain": "Rows lie open in it, for everybody who has it.",
        "mask": "A third of a buffer's clients who tell the server their shares give it rows, and leave no trace.",
        "bfv": "A key holder who was given one client's ciphertext opened it, and left no trace.",
        "bfv+mask": "All other clients of a buffer, with server and key holder, know a row, and leave no trace.",
    }
)
