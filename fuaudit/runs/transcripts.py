"""The files of a transcript: every message of secure sums, as far as it is there, and the chain over all of them.

They are read of any folder, also of one whose run broke off. What the run that is complete tells of them lies in
:mod:`fuaudit.runs.transcribed`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fuaudit.errors import FuauditError
from fuaudit.formats.files import read_bytes
from fuaudit.runs.layout import BODIES, CHAIN, TRANSCRIPT_FOLDER, names_in, of_round
from fuaudit.runs.manifest import limit_of

if TYPE_CHECKING:
    from fuaudit.secure.messages import Message
    from fuaudit.secure.transcript import Chain


def chain_of(folder: Path) -> Chain:
    """The chain of a run; EvidenceError where it is missing, torn or broken."""
    from fuaudit.secure.transcript import read_chain  # cryptography, which runs without a suite do not need

    return read_chain(read_bytes(folder / CHAIN, limit_of(CHAIN)), folder / CHAIN)


def body_of(folder: Path, number: int) -> bytes | None:
    """The envelopes of a round; None where a prune removed them."""
    path = folder / of_round(BODIES, number)
    return read_bytes(path, limit_of(BODIES)) if path.exists() else None


def names_of_transcript(folder: Path, torn: bool = False) -> list[str]:
    """The paths of the transcript's files in the folder of a run; ``torn``: as :func:`names_in` takes it."""
    return [name for name in names_in(folder, torn) if name.startswith(TRANSCRIPT_FOLDER)]


def given_up(folder: Path) -> str:
    """Why a run that broke off cannot be finished: a buffer was discarded for good, as the end of its transcript tells.

    Empty where it can be, has no transcript, or a broken one: whoever finishes it is told of that.
    """
    if not (folder / CHAIN).exists():
        return ""
    try:
        end = _last_discard(folder)
    except FuauditError:
        return ""
    if end is None:
        return ""
    return (
        f"buffer {end.buffer} of round {end.round} was discarded ({end.body.decode()}). Its clients answered, or it "
        "was tried too often, so it is not tried again: two sums over other rows tell the difference of both"
    )


def _last_discard(folder: Path) -> Message | None:
    """The message that discards a buffer for good in the last round of a transcript."""
    from fuaudit.secure.transcript import given_up as last_of
    from fuaudit.secure.transcript import messages_of, read_chain

    path = folder / CHAIN
    content = read_bytes(path, limit_of(CHAIN))
    chain = read_chain(content[: content.rfind(b"\n") + 1], path).ended()
    number = max(chain.rounds, default=0)
    body = body_of(folder, number) or b""
    return last_of(messages_of(chain.of_round(number), body[: chain.size_of(number)], path))
