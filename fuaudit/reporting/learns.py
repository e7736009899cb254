"""Who learns what of the sums of a run, in words: party by party, for the suite that made them.

``docs/secure-aggregation.md`` says the same at length. What is said here follows from suite, buffers, and which files
the run at hand has: no message of a run is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

from fuaudit.reporting.contents import Summing
from fuaudit.runs.sums import percent
from fuaudit.secure.exposure import Buffer, fewest
from fuaudit.text import counted

CAPTION = (
    "What follows from the protocol of the suite, if all parties do what it says. No message of the run was looked at."
)
NO_SUITE = "No suite made the sums: the simulator added up rows that it saw."
OPERATOR = (
    "every client's row of every round that was simulated, whatever the suite: all parties were parts of one process, "
    "or processes of one user"
)
"""What whoever ran the training learns."""
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
SERVER = {
    "": (f"{SUMS}, as if a suite with the same buffers had made them", COLLUDERS),
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
    sizes = [size for size, *_ in sums.buffers]
    span, places = _span(sizes), _span(sums.places)
    made = f"Sums were made by the suite {sums.suite!r}, by the ledger." if sums.suite else NO_SUITE
    given = "every client's row, and so their sums" if sums.suite == "plain" else "sums of clients' rows, and no row"
    return [
        f"The server is given {given}. {made} A round has {places} participations, in buffers of {span}, by lot.",
        "Which coordinates clients agree on, who takes part, and who has no samples is public. Clients without samples "
        f"in a round, who have none or drew none, hide nobody. {_empty(sums)}",
    ]


def _empty(sums: Summing) -> str:
    """How many clients are without samples in a round, as far as the run tells."""
    if sums.all_told:
        return f"There are {sums.empty} in a round at most, and the chances have them beside the colluders."
    return "How many there are is not told here, so the chances are those of rounds in which everybody has some."


def _span(numbers: Sequence[int]) -> str:
    """From the least to the most."""
    return f"{min(numbers)}" if min(numbers) == max(numbers) else f"{min(numbers)} to {max(numbers)}"


def smallest(sums: Summing) -> int:
    """How many clients with samples are behind a sum of some round, at least; 0 where no buffer opens."""
    kinds = [Buffer(*kind) for kind in sums.buffers]
    opening = [(fewest(sums.suite or None, one), one) for one in kinds]
    return min((max(few - sums.empty, one.trained) for few, one in opening if few <= one.size), default=0)


def who(sums: Summing) -> list[tuple[str, str, str]]:
    """Party, what it learns, and with whom it has one client's row."""
    learnt, together = SERVER[sums.suite]
    few = smallest(sums)
    others = f"the {counted(few - 2, 'other client')} behind the sum" if few > 2 else "nobody"
    row = "her partner's row" if few <= 2 else f"the sum of the {few - 1} others, at least"
    if few > 2 and not sums.all_told:
        others, row = f"{others}; nobody where these drew no samples", f"{row}, as far as these drew samples"
    learns = f"where she sees a sum, {row}; else what the public learns" if few else "as the public: no buffer opens"
    partner = ("Partner in a buffer", learns, others)
    parties = (("Server", learnt, together), *OTHERS.get(sums.suite, ()), partner)
    ran = "Who ran the training", OPERATOR, "nobody"
    return [ran, *parties, ("Auditor", *auditor(sums)), ("Public", PUBLIC, "as a partner, whoever is one")]


def auditor(sums: Summing) -> tuple[str, str]:
    """What whoever has the files of the run learns, and with whom one client's row: as much as these files tell."""
    has = {*sums.holds}
    if "messages" not in has:
        learnt = ["what the public learns"]
    elif sums.suite == "plain":
        learnt = ["every client's row, which the messages of the run hold in the clear"]
    else:
        learnt = ["all that the server learns: the messages of the run have every sum, and of whom it is"]
    learnt += ["by the clients' secrets in the run who was in which buffer"] * ("secrets" in has)
    learnt += ["what each client keeps, in the clear, from which rows of rounds follow"] * ("memories" in has)
    if "memories" in has or ("messages" in has and sums.suite == "plain"):
        return "; ".join(learnt), "nobody"
    together = ["As many clients of a buffer as the server needs, or more."] * ("messages" in has)
    if "secrets" in has:
        together += ["Whoever has the rows of training: every client's row, for a replay computes it."]
    elif "seeds" in has:
        together += ["Whoever has the rows of training: every client's row, but for what she drew herself."]
    return "; ".join(learnt), " ".join(together) or "as the public"


def chances_of(sums: Summing) -> str:
    """What the table of chances is about."""
    worst = "In a round: in the worst one, as they have different numbers of clients. " * (len(sums.places) > 1)
    untold = f" Who took part in {counted(sums.untold, 'kept round')} is not told: more on top." * bool(sums.untold)
    shares = ", or enough of a buffer to hold both secrets of a client" * (sums.suite == "mask")
    fewer = any(few < size for size, few, _ in sums.buffers)
    out = " The server says of others that they did not come, as far as buffers open without them." if fewer else ""
    return (
        "With which chance the row of an honest client who takes part is open to the server and colluders: these are "
        f"everybody else behind its sum{shares}.{out} Rounded up. {worst}In the run: in rounds that it executed or "
        f"kept; those that an ancestor executed and the run did not keep come on top.{untold}"
    )


def chances(sums: Summing) -> list[tuple[str, str, str]]:
    """Colluders, and the chance of an open row in a round and in the run."""
    fewest = next((number for number, a_round, _ in sums.exposed if a_round), None)
    if_all = "" if sums.all_told else " if everybody drew samples"
    words = {"feared": sums.feared or None, f"the fewest that open a row{if_all}": fewest}
    marks = {number: ", ".join(word for word, of in words.items() if of == number) for number, *_ in sums.exposed}
    return [
        (f"{n} ({marks[n]})" if marks[n] else f"{n}", percent(a_round), percent(run))
        for n, a_round, run in sums.exposed
    ]


def picked(sums: Summing) -> list[tuple[int, float, float]]:
    """One colluder, those that are feared, and the most of the table: each with the chances of a round and the run."""
    known = {number: (a_round, run) for number, a_round, run in sums.exposed}
    wanted = sorted({1, sums.feared or 1, max(known, default=0)})
    return [(number, *known[number]) for number in wanted if number in known]


def meetings(sums: Summing) -> str:
    """How often two clients share a buffer."""
    mean, ever = sums.meetings
    return (
        f"Two given clients who take part in all {sums.rounds} rounds are in one buffer {mean:.3g} times on average, "
        f"and at least once with a chance of {percent(ever)}."
    )


BYTES = (
    "What each party sends at most for the largest buffer of a round, in bytes of whole messages: heads, signatures, "
    "terms, contributions to the lot of the round, and agreed columns too. Each client sends as much. They follow "
    "from the terms; ciphertexts are a little shorter. What the server passes on from one party to another is not "
    "counted again. How long parties compute is not here: docs/results/secure.md has it, by benchmarks/secure.py."
)


def bytes_of(sums: Summing) -> list[tuple[str, str, str]]:
    """What parties send."""
    return [(party.capitalize(), to, f"{size:,}") for party, to, size in sums.parties]
