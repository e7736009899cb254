"""What a checker of a transcript knows from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from fuaudit.errors import UsageError, nearest
from fuaudit.secure.encrypted import Summands
from fuaudit.secure.exposure import Buffer
from fuaudit.secure.names import EXACT
from fuaudit.secure.terms import Plaintexts

Bodies = Callable[[int], bytes | None]
"""Round -> its envelopes one after the other; None where they were removed."""

Adder = Callable[[Summands, Plaintexts], Sequence[bytes]]
"""Adds the ciphertexts of clients. RefusedError for what is none."""


@dataclass(frozen=True)
class Known:
    """What a checker knows from elsewhere: from a commitment, a config and a ledger.

    Attributes:
        suite: its name.
        rounds: R, of the training: there is none before 1 or behind R.
        bits: of a value.
        most: of how many clients the largest buffer is at most, where ``sizes`` does not say it.
        clients: the roster: client -> public key, 64 hexadecimal digits.
        witness: its public key; empty in suites that have none.
        holder: that of the key holder, likewise.
        heads: round that was executed -> head of the chain after it, as a ledger tells; empty where none is known.
        context: of lots and terms, 64 hexadecimal digits: of a run and a generation of it.
        ends: client -> the end of its chain of contributions, 32 bytes; empty where no lots are drawn.
        earlier: how many contributions of each chain belong to earlier generations.
        cohort: round -> its clients, ascending, each once; None where that is not known.
        buffers: round and contributions by client -> the members of each buffer, ascending, by its number; None is not
            known.
        sizes: round -> its buffers, by their numbers: how many participations the lot puts into each, and from how
            many rows on it opens, as its terms have to say. None is not known: then each opens complete.
        columns: round -> how many columns are summed, and their digest, or None where nothing is summed in it; None is
            not known.
        agrees: whether clients agree on columns, so that the server has to tell them.
    """

    suite: str
    rounds: int
    bits: int
    most: int
    clients: Mapping[int, str]
    witness: str = ""
    holder: str = ""
    heads: Mapping[int, str] = field(default_factory=dict)
    context: str = ""
    ends: Mapping[int, bytes] = field(default_factory=dict)
    earlier: int = 0
    cohort: Callable[[int], tuple[int, ...]] | None = None
    buffers: Callable[[int, Mapping[int, bytes]], Sequence[tuple[int, ...]]] | None = None
    sizes: Callable[[int], Sequence[Buffer]] | None = None
    columns: Callable[[int], tuple[int, str] | None] | None = None
    agrees: bool = False

    def __post_init__(self) -> None:
        if self.suite not in EXACT:
            raise UsageError(f"there is no transcript of a suite {self.suite!r}", nearest(self.suite, EXACT))
