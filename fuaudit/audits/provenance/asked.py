"""The request that the auditor has in hand: which of the lineage it is, and what a PASS has to say of the others."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

from fuaudit.audits.provenance.answers import CheckResult, fails, holds, name_of, unclear
from fuaudit.plans import Request
from fuaudit.runs.names import asked_in, besides, called, forgets, in_words, rows_of, to_forget
from fuaudit.text import counted
from fuaudit.verification.case import Case

OF_THE_LAST = "what looks at one request alone looks at the last: model-law, and in a pruned lineage plan-law"
"""What the audits do not show of an earlier request."""

NOT_GIVEN = "none: no --client or --sample was given"


def asked(case: Case) -> CheckResult:
    """The lineage carries out the request that the auditor has in hand, and the ledger tells the last one."""
    run, expected = case.run, case.known.request
    events = run.ledger.of_kind("request")
    logged = [(tuple(e.get("clients", ())), tuple(e.get("samples", ()))) for e in events]
    if logged != [(run.request.clients, run.request.samples)]:
        return fails("The request in the ledger is not the one in the plan.")
    last = "; ".join(map(in_words, to_forget(run)))
    if expected is None:
        return holds(f"The run carries out the request to forget {run.request}: {last}.")
    if not (found := compared(case)):
        return fails(f"{forgets(run)}; asked for was {called(run, expected)}.")
    if case.evidence.is_editor and found != (len(run.requests),):
        return unclear(
            f"What was asked for is {_numbered(case, found)}, and of an edited model audits judge the last request "
            f"alone: verify {_carried_out_by(case, found)}."
        )
    if found == (len(run.requests),):
        return holds(f"The run carries out the request to forget {run.request}: {last}.")
    rows = "; ".join(in_words(row) for number in found for row in rows_of(run, run.requests[number - 1]))
    return holds(f"What was asked for is {_numbered(case, found)}, for {rows}.")


def compared(case: Case) -> tuple[int, ...]:
    """The numbers of the requests of the lineage, from 1, that the auditor has in hand; none where none is."""
    return () if case.known.request is None else asked_in(case.run, case.known.request)


def compared_in_words(case: Case) -> str:
    """Which requests were compared: "request 1 of 2"."""
    if case.known.request is None:
        return NOT_GIVEN
    return _numbered(case, found) if (found := compared(case)) else "none of the lineage is the one given"


def of_the_compared(case: Case) -> str:
    """What a PASS has to say where the last request is not the only one that was compared; "" elsewhere."""
    found, run = compared(case), case.run
    if not found or found == (len(run.requests),):
        return ""
    were = "was" if len(found) == 1 else "were"
    later = [number for number in range(found[-1] + 1, len(run.requests) + 1)]
    after = f"no --client or --sample was given for {_named(case, later)}, made later; " if later else ""
    return f"What was asked for {were} {_named(case, found)}; {after}{OF_THE_LAST}."


def plainly_of_the_compared(case: Case) -> str:
    """The same for the person concerned, who need not know of the others by name; "" elsewhere."""
    found = compared(case)
    if not found or found == (len(case.run.requests),):
        return ""
    were = "was" if len(found) == 1 else "were"
    return f"What was asked for {were} {_numbered(case, found)}. Some checks look at the last request alone."


def on_the_others(case: Case) -> list[str]:
    """What is taken on trust of the requests that were not compared, and of how things were grouped and ordered."""
    found = compared(case)
    lines = [*_on_grouping(case, found), *_on_company(case, found)]
    if not (others := len(case.run.requests) - (len(found) or 1)):
        return lines
    what = "other request was" if others == 1 else "other requests were"
    known = found or (len(case.run.requests),)
    left = [one for number, one in enumerate(case.run.requests, 1) if number not in known]
    return [
        f"The {others} {what} really made: each gives other draws to all that follow, so whoever could invent some "
        f"could choose among them, and {room_in(case, left)}.",
        *lines,
    ]


def _on_grouping(case: Case, numbers: Sequence[int]) -> list[str]:
    """That several things were asked for in just these requests: nothing in a run tells wishes from requests."""
    expected = case.known.request
    if expected is None or not numbers or len(expected.clients) + len(expected.samples) < 2:
        return []
    kinds = {"client": len(expected.clients), "sample": len(expected.samples)}
    what = " and ".join(counted(number, kind) for kind, number in kinds.items() if number)
    how = "in one request" if len(numbers) == 1 else f"in {_numbered(case, numbers)}, in this order"
    return [
        f"The {what} that were asked for were asked for as they were carried out: {how}. Another grouping or order "
        "gives other draws, so whoever could choose it could choose among them."
    ]


def _on_company(case: Case, numbers: Sequence[int]) -> list[str]:
    """What is taken on trust of others whom a request names beside the one that was asked for."""
    if (expected := case.known.request) is None:
        return []
    more = {number: besides(case.run.requests[number - 1], expected) for number in numbers}
    return [
        f"Request {number} of {len(case.run.requests)} takes away more than was asked for, and that was asked for too: "
        f"{called(case.run, rest)}. What a request names gives its draws, so whoever could add to it could choose "
        f"among them, and {room_in(case, [rest])}."
        for number, rest in more.items()
        if rest != Request()
    ]


def room_in(case: Case, requests: Sequence[Request]) -> str:
    """How much could be written into the choice of what requests name, in words: a bit a row at most."""
    contents = case.run.contents
    clients, rows = len(contents.clients), sum(contents.sizes)
    ways = [comb(clients, len(one.clients)) * comb(rows, len(one.samples)) for one in requests]
    bits = sum((number - 1).bit_length() for number in ways)
    return f"write up to {counted(-(-bits // 8), 'byte')} by which ones they name"


def _numbered(case: Case, numbers: Sequence[int]) -> str:
    """Numbers of requests: "request 1 of 2", "requests 1, 2 and 4 of 4"."""
    what, (*most, last) = "request" if len(numbers) == 1 else "requests", numbers
    before = f"{', '.join(map(str, most))} and " if most else ""
    return f"{what} {before}{last} of {len(case.run.requests)}"


def _named(case: Case, numbers: Sequence[int]) -> str:
    """Numbers of requests, and whom they name: "request 1 of 2 (client 0)"."""
    whom = "; ".join(called(case.run, case.run.requests[number - 1]) for number in numbers)
    return f"{_numbered(case, numbers)} ({whom})"


def _carried_out_by(case: Case, numbers: Sequence[int]) -> str:
    """The runs that carried out some requests, as far as they are at hand."""
    chain = (case.run, *case.evidence.ancestors)
    back = [len(case.run.requests) - number for number in numbers]
    return " and ".join(name_of(chain[place]) if place < len(chain) else "a run that is not at hand" for place in back)
