"""The transcript of a run: every message of its secure sums, as far as it is there, and the chain over all of them.

The chain is no file of the manifest, so the digest of the run does not hang on it. The ledger holds its head after
every round, and the seal closes the ledger. The chain has the digest of every envelope, so opening compares each byte.
What messages mean is asked by the audit "transcript" alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fuaudit.errors import EvidenceError, FuauditError
from fuaudit.formats.files import read_bytes
from fuaudit.runs.layout import BODIES, CHAIN, FILES, TRANSCRIPT_FOLDER, names_in, of_round
from fuaudit.runs.ledger import suite_of
from fuaudit.runs.manifest import limit_of
from fuaudit.text import span

if TYPE_CHECKING:
    from fuaudit.runs.stored import Stored
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


def names_of_transcript(folder: Path) -> list[str]:
    """The paths of the transcript's files in the folder of a run."""
    return [name for name in names_in(folder) if name.startswith(TRANSCRIPT_FOLDER)]


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


def wrong_transcript(run: Stored) -> Iterator[str]:
    """What the folder of a run holds otherwise than its ledger tells of a transcript.

    Raises:
        EvidenceError: the chain is missing, torn or broken, or an envelope is not the one that was recorded.
    """
    there = set(names_of_transcript(run.path))
    if suite_of(run.ledger) is None:
        yield from (f"has {name}, which only {FILES[CHAIN].when} has" for name in sorted(there)[:1])
        return
    chain, told = chain_of(run.path), {event["round"]: event["transcript"] for event in run.ledger.of_kind("round")}
    if not {*chain.rounds} <= told.keys():
        yield f"has messages in {CHAIN} of other rounds than {span(sorted(told)) or 'none'}, which it executed"
        return
    sizes = {} if run.pruned else {of_round(BODIES, number): chain.size_of(number) for number in chain.rounds}
    if there != {CHAIN, *sizes}:
        odd = sorted(there ^ {CHAIN, *sizes})
        yield f"{'has' if odd[0] in there else 'lacks'} {odd[0]}, otherwise than {CHAIN} tells"
        return
    for name, size in sizes.items():
        if _size(run.path / name) != size:
            yield f"has another number of bytes in {name} than {CHAIN} tells"
            return
    for number in sorted(told):
        if told[number] != chain.head_after(number):
            yield f"has another head in {CHAIN} after round {number} than its ledger names"
            return
    if not run.pruned:
        _require_recorded(run.path, chain)


def _require_recorded(folder: Path, chain: Chain) -> None:
    """Raises EvidenceError where an envelope is not the one that was recorded. One body is read at a time."""
    from fuaudit.secure.transcript import envelopes

    for number in chain.rounds:
        for _ in envelopes(chain.of_round(number), body_of(folder, number) or b"", folder / of_round(BODIES, number)):
            pass


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise EvidenceError(f"cannot read {path}: {error.strerror or error}") from error
