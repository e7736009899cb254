"""The transcript of a run: the chain over all messages of its secure sums, and whether the ledger tells the same.

The chain is no file of the manifest, so the digest of the run does not hang on it. The ledger holds its head after
every round, and the seal closes the ledger. The chain has the digest of every envelope, so opening compares each byte.
What messages mean is asked by the audit "transcript" alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from fuaudit.errors import EvidenceError
from fuaudit.runs.layout import BODIES, CHAIN, FILES, of_round
from fuaudit.runs.ledger import suite_of
from fuaudit.runs.stored import Stored
from fuaudit.runs.transcripts import body_of, chain_of, names_of_transcript
from fuaudit.text import span

if TYPE_CHECKING:
    from fuaudit.secure.transcript import Chain


@dataclass(frozen=True)
class WithTranscript(Stored):
    """A run that tells of its messages."""

    @cached_property
    def chain(self) -> Chain:
        """The chain over its messages, read once; EvidenceError where it is missing, torn or broken."""
        return chain_of(self.path)


def wrong_transcript(run: WithTranscript) -> Iterator[str]:
    """What the folder of a run holds otherwise than its ledger tells of a transcript.

    Raises:
        EvidenceError: the chain is missing, torn or broken, or an envelope is not the one that was recorded.
    """
    there = set(names_of_transcript(run.path))
    if suite_of(run.ledger) is None:
        yield from (f"has {name}, which only {FILES[CHAIN].when} has" for name in sorted(there)[:1])
        return
    chain, told = run.chain, {event["round"]: event["transcript"] for event in run.ledger.of_kind("round")}
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
