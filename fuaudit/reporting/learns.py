"""Who learns what of the sums of a run, in words: party by party, for the suite that made them.

``docs/secure-aggregation.md`` says the same at length. What is said here follows from suite and buffers alone: no
message of a run is looked at.
"""

from __future__ import annotations

from fuaudit.reporting.contents import Summing
from fuaudit.runs.sums import percent
from fuaudit.secure.exposure import Buffer, fewest
from fuaudit.text import counted

CAPTION = (
    "What follows from the protocol of the suite, if all parties do what it says. No message of the run was looked at."
)
SUMS = (
    "the sum of each buffer, of whom it is, who proposed which coordinates where clients agree on some, and what they "
    "agreed on"
)
SEALED = "ciphertexts, which it cannot open"
COLLUDERS = "enough clients of a buffer: the chances are below"

PUBLIC = (
    "the model of every round, so what the server's rule makes of the sums; which coordinates were agreed on; how many "
    "rows each sum had"
)
AUDITOR = (
    "what the public learns, and by the clients' secrets in the run who was in which buffer; with the rows of training "
    "at hand every client's row, for a replay computes them in the clear"
)

SERVER = {
    "": (f"{SUMS}, if a suite with the same buffers had made them; here the simulator saw every row", COLLUDERS),
    "plain": ("every client's row", "nobody: it is sent them"),
    "mask": (f"{SUMS}, and rows under masks", COLLUDERS),
    "bfv": (f"{SUMS}, and {SEALED}", f"{COLLUDERS}; or the key holder"),
    "bfv+mask": (f"{SUMS}, and {SEALED}", f"{COLLUDERS}; the key holder's help opens no more"),
}
"""By suite: what the server learns, and with whom it has more."""

OTHERS = {
    "bfv": (
        ("Key holder", "the sum of each buffer", "the server, or the witness: each has ciphertexts that its key opens"),
        ("Witness", f"who is in which buffer, and {SEALED}", "the key holder"),
    ),
    "bfv+mask": (
        (
            "Key holder",
            "the sum of each buffer",
            "all other clients of a buffer; to fewer, with server and witness, a row is noise",
        ),
        ("Witness", f"who is in which buffer, and {SEALED}", "as the server"),
    ),
}
"""By suite: parties that are neither server nor clients."""


def lead(sums: Summing) -> list[str]:
    """What the sums are, in sentences."""
    sizes = [size for size, _ in sums.buffers]
    span = f"{min(sizes)}" if min(sizes) == max(sizes) else f"{min(sizes)} to {max(sizes)}"
    by = f"made by the suite {sums.suite!r}, by the ledger" if sums.suite else "made by the simulator, without a suite"
    return [
        f"The server is given sums of clients' rows, and no row: {by}. The largest round has "
        f"{counted(sums.places, 'participation')} in {counted(len(sizes), 'buffer')} of {span}, by lot.",
        "Which coordinates clients agree on, who takes part, and who has no samples is public. Clients without samples "
        f"hide nobody. As far as the run tells there are {sums.empty}, and the chances have them beside the colluders.",
    ]


def smallest(sums: Summing) -> int:
    """From how many rows on some buffer of the round opens, at least."""
    opening = [Buffer(*pair) for pair in sums.buffers]
    found = [fewest(sums.suite or None, one) for one in opening if fewest(sums.suite or None, one) <= one.size]
    return min(found, default=0)


def who(sums: Summing) -> list[tuple[str, str, str]]:
    """Party, what it learns, and with whom it has one client's row."""
    learnt, together = SERVER[sums.suite]
    few = smallest(sums)
    few = max(2, few - sums.empty) if few > 2 else few
    others = f"the {counted(few - 2, 'other client')} behind the sum" if few > 2 else "nobody"
    row = "her partner's row" if few == 2 else f"the sum of the {few - 1} others, at least"
    partner = ("Partner in a buffer", f"where she sees a sum, {row}; else what the public learns", others)
    parties = (("Server", learnt, together), *OTHERS.get(sums.suite, ()), partner)
    return [*parties, ("Auditor", AUDITOR, "the rows"), ("Public", PUBLIC, "as a partner, whoever is one")]


def chances_of(sums: Summing) -> str:
    """What the table of chances is about."""
    fewer = any(few < size for size, few in sums.buffers)
    out = " The server says of others that they did not come, as far as buffers open without them." if fewer else ""
    return (
        "With which chance the row of an honest client who takes part is open to the server and colluders: these are "
        f"everybody else behind its sum.{out} Rounded up. In the run: in rounds that it executed or kept; those that "
        "an ancestor executed and the run did not keep come on top."
    )


def chances(sums: Summing) -> list[tuple[str, str, str]]:
    """Colluders, and the chance of an open row in a round and in the run."""
    mark = {sums.feared: " (feared)"} if sums.feared else {}
    return [(f"{n}{mark.get(n, '')}", percent(a_round), percent(run)) for n, a_round, run in sums.exposed]


def picked(sums: Summing) -> list[tuple[int, float]]:
    """One colluder, those that are feared, and the most of the table: each with the chance of a round."""
    known = {number: a_round for number, a_round, _ in sums.exposed}
    wanted = sorted({1, sums.feared or 1, max(known, default=0)})
    return [(number, known[number]) for number in wanted if number in known]


def meetings(sums: Summing) -> str:
    """How often two clients share a buffer."""
    mean, ever = sums.meetings
    return (
        f"Two given clients who take part in all {sums.rounds} rounds are in one buffer {mean:.3g} times on average, "
        f"and at least once with a chance of {percent(ever)}."
    )


def bytes_of(sums: Summing) -> list[tuple[str, str, str]]:
    """What parties send."""
    return [(party.capitalize(), to, f"{size:,}") for party, to, size in sums.parties]
