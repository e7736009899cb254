"""Buffers that were drawn and not opened: where an honest run has one, by what the ledger of a sealed view tells.

Behind whole numbers a row that is not finite is a Byzantine client's: an honest one ends the training. The transport
tells who was in a sum that is not finite. It discards a sum of fewer than two clients with samples, and opens nothing
of a round that fails, which follows from how many sums are left. Anything else that was not opened was left out:
whoever saw the sums of several rounds over one model, and told none of them, solves for rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fuaudit.audits.transcript.known import TRANSPORT, cohort_of, must_fail, told_rounds
from fuaudit.declared import offers
from fuaudit.runs.run import Run
from fuaudit.runs.untrained import all_told
from fuaudit.secure.recheck.shown import Checked, Wrong
from fuaudit.training.events import NOT_FINITE

Members = tuple[int, ...]


def left_out(run: Run, checked: Checked) -> Iterator[Wrong]:
    """Rounds of a sealed view whose ledger tells of other buffers than the lot gives, or leaves one out for no reason.

    Where clients may be without samples in a round, a buffer without a word is as told.
    """
    transport, cohort = run.exchange.transport, cohort_of(run)
    if not run.signatories.ends:
        return
    for event in told_rounds(run):
        number, places = event["round"], len({*cohort(event["round"])})
        unplayed = checked.unplayed_of(number)
        told = [one for one in event.get("told", ()) if one["part"] == TRANSPORT]
        buffers = run.exchange.buffers(places) if places else []
        sentences = [*_wrong_sums(told, [size for size, _ in buffers]), *_wrong_suspects(run, told, unplayed)]
        if places and offers(transport, "fails") and len(unplayed) == len(buffers):
            sentences += _wrong_silence(told)
        if not sentences and places and (run.exchange.counts_all(run.law) or all_told(run)):
            large = {size for size, smallest in buffers if size >= smallest}  # smaller ones are never asked for
            due = [members for members in unplayed if len(members) in large]
            sentences += _without_reason(run, told, due, sum(size in large for size, _ in buffers))
        yield from (Wrong("buffer", sentence, number) for sentence in sentences)


def _wrong_sums(told: Sequence[Mapping[str, Any]], sizes: Sequence[int]) -> Iterator[str]:
    """Where the ledger does not tell once, of a round with clients, how many rows each of its buffers has."""
    summed = [one for one in told if one["kind"] == "summed"]
    if [one["rows"] for one in summed] not in ([[*sizes]] if sizes else [], [[*sizes] or [0]]):
        yield f"the ledger tells of other buffers than {len(sizes)}, of {', '.join(map(str, sizes)) or 'nobody'}"
    elif any(one["discarded"] > len(one["rows"]) for one in summed):
        yield "the ledger tells of more buffers that were discarded than there are"


def _wrong_suspects(run: Run, told: Sequence[Mapping[str, Any]], unplayed: Sequence[Members]) -> Iterator[str]:
    """Suspects who are no buffer that was left out, or of whom none is Byzantine by the config.

    That nobody is told twice, :func:`~.events.wrong_events` sees to.
    """
    for one in told:
        if one["kind"] != "suspected":
            continue
        clients = tuple(one["clients"])
        if clients not in unplayed or one["why"] != NOT_FINITE:
            yield f"the ledger suspects clients {clients}, who are no buffer that was discarded as {NOT_FINITE}"
        elif not {*clients} & run.exchange.deviating:
            yield f"the ledger suspects clients {clients}, and by the config each of them is honest"


def _wrong_silence(told: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A round of which no sum was opened fails."""
    if any(one["kind"] == "summed" and not one["failed"] for one in told):
        yield "the ledger tells that the round goes on, and no sum of it was opened"


def _without_reason(run: Run, told: Sequence[Mapping[str, Any]], left: Sequence[Members], most: int) -> Iterator[str]:
    """Buffers of which no sum was opened, though the round goes on and nobody is suspected; rounds told to fail.

    Of ``most`` buffers that count ``left`` were not opened.
    """
    suspects = [tuple(one["clients"]) for one in told if one["kind"] == "suspected"]
    counted, known = most - len(suspects), len(suspects)
    fails = must_fail(run.exchange, counted, known)
    summed = [one for one in told if one["kind"] == "summed"]
    if any(one["failed"] != fails for one in summed):
        told_, due = ("goes on", "fails") if fails else ("fails", "goes on")
        yield f"the ledger tells that the round {told_}, and with {counted} sums left it {due}"
    elif not fails and (silent := [members for members in left if members not in suspects]):
        yield f"nothing of clients {silent[0]} was opened, and the ledger suspects none of them: an honest server asks"
    elif any(one["discarded"] != len(one["rows"]) - counted for one in summed):
        yield f"the ledger tells of another number of discarded buffers than {counted} sums leave"
