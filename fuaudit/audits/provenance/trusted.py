"""What a finding of provenance takes on trust, and what its PASS shows, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fuaudit import registry
from fuaudit.audits.provenance.answers import BEFORE, NOT_SHOWN, CheckResult, name_of
from fuaudit.audits.provenance.asked import on_the_others, room_in
from fuaudit.audits.provenance.commitment import owners_at_hand
from fuaudit.audits.provenance.dealing import TAKEN, with_key
from fuaudit.audits.provenance.pruned import passed
from fuaudit.commitments.keys import KEY_BYTES
from fuaudit.commitments.tree import DIGEST_BYTES
from fuaudit.data.dataset import Dataset
from fuaudit.data.partition import MOST_OWNERS, by_owners
from fuaudit.draws import Stream
from fuaudit.draws.seeds import SEED_BYTES
from fuaudit.runs.layout import CONFIG, TRANSCRIPT_FOLDER
from fuaudit.runs.run import Run
from fuaudit.runs.tombstone import Tombstone
from fuaudit.runs.transcripts import names_of_transcript
from fuaudit.text import counted
from fuaudit.verification.case import Case
from fuaudit.verification.erased_rows import to_be_forgotten
from fuaudit.verification.finding import NON_ADAPTIVE

BEFORE_TRAINING = (
    "The commitment given by --commitment was received before training began: one that was received after the request "
    "shows only that nothing was changed since."
)


def assumptions(case: Case) -> tuple[str, ...]:
    """All that a finding takes on trust, but what single answers do."""
    lines = []
    if case.run.is_child:
        lines.append(NON_ADAPTIVE)
    if case.known.commitment is None:
        lines.append("The commitment is not anchored outside: no --commitment was given to compare with.")
    else:
        lines.append(BEFORE_TRAINING)
    lines.append(_of_beacon(case))
    lines += _on_the_roster(case)
    if case.run.is_child and case.known.request is None:
        lines.append(
            "The request is the one that the run names: no --client or --sample was given to compare with, so whoever "
            f"could choose it could choose among draws, and {room_in(case, case.run.requests[-1:])}."
        )
    lines += [*_on_the_partition(case), *_on_numbers(case), *_on_names(case), *_chosen_later(case)]
    lines += [f"{name_of(case.run)} is doubted, and this does not answer it: {why}." for why in _doubts(case)]
    lines += on_the_others(case) if case.run.is_child else []
    lines += [
        f"The training of {name_of(run)} really was stopped for a request after round {run.rounds_executed}."
        for run in case.evidence.ancestors
        if run.rounds_executed < case.run.plan.law.rounds
    ]
    if case.evidence.is_pruned and any(request.samples for request in case.run.requests):
        lines.append("The ids of erased samples are as told; no draw follows from them.")
    return (*lines, *_on_what_was_written(case), *_on_the_messages(case), *_on_what_is_closed(case))


def _on_the_roster(case: Case) -> list[str]:
    """Who says that the parties of sums are who they are said to be."""
    if case.run.contents.identities is None:
        return []
    if case.known.roster is None:
        return [
            "All clients are real: no list of clients and their keys from outside was given (--roster FILE) to compare "
            "with, so the operator can have invented clients."
        ]
    return [
        f"The list given by --roster (SHA-256 {case.known.roster.sha256}) has each key from the one whose name stands "
        "beside it: whoever made the list can have invented clients."
    ]


def _on_what_was_written(case: Case) -> list[str]:
    """What was committed to as it was written: nothing makes it again, so it could say anything."""
    run, names, secrets = case.run, case.run.opening.names, case.run.secrets
    if not run.is_child:
        return []
    written = [f"{CONFIG} ({counted(run.files[CONFIG]['size'], 'byte')})"]
    if names:
        size = sum(len(name.encode()) for name in names.values())
        written.append(f"the names of {counted(len(names), 'client')} ({counted(size, 'byte')})")
    if secrets:  # that they follow from one secret is as told: nobody shows it
        own = len(secrets.generations[0])
        written.append(f"the secrets of {counted(own, 'client')} ({counted(own * KEY_BYTES, 'byte')})")
        if parties := len(secrets.parties):
            written.append(f"those of witness and key holder ({counted(parties * KEY_BYTES, 'byte')})")
    return [
        f"Nothing is hidden in what was written before the commitment and nothing makes again: {', '.join(written)}. "
        "Whoever wrote it had the rows, and could have trained on them in private."
    ]


def _on_the_messages(case: Case) -> list[str]:
    """Messages of secure sums, which lie in the run and follow from nothing."""
    files = names_of_transcript(case.run.path)
    size = sum((case.run.path / name).stat().st_size for name in files)
    return [
        f"Nothing is hidden in the messages of secure sums that the run holds ({TRANSCRIPT_FOLDER}, "
        f"{counted(size, 'byte')}): nothing makes them again. Ciphertexts can hold anything, and so can the digests of "
        "messages that a prune removed."
    ] * bool(files)


_OWN = {"secrets": "secrets", "identities": "keys", "lots": "ends of chains"}
"""What clients commit to beside names and rows: tensor -> a word."""


def _on_what_is_closed(case: Case) -> list[str]:
    """How much was committed to and is opened by nothing at hand: whoever made it could choose it."""
    run = case.run
    salts, seeds = run.opening.salts.parts, run.keys.seeds.parts
    rows = _unopened(case)
    if len(seeds) == 1:
        leaves = counted(rows, "leaf of an erased row, which nothing", "leaves of erased rows, which nothing")
        return [f"Nothing was hidden in {leaves} at hand opens: each has room for {DIGEST_BYTES} bytes."] * bool(rows)
    shown = {receipt.client for receipt in case.known.receipts}
    closed = [client for client in run.contents.clients if not _has_salt(run, client)]
    own = [name for name in run.contents.tensors() if name in _OWN]
    hashed = len(set(closed) - shown) + len(own) * len(closed)
    *most, last = ["names", "rows", *(_OWN[name] for name in own)]
    of = f"{', '.join(most)} and {last}"
    kept = sum(part.seed is not None for part in (*salts, *seeds))
    digests = sum(part.seed is None for part in seeds)
    return [
        f"Nothing was hidden in what a prune closes: {counted(rows + hashed, 'leaf', 'leaves')} of {of}, "
        f"{counted(kept, 'seed')} and {counted(digests, 'digest')} follow from nothing that is left, and each has room "
        f"for {SEED_BYTES} bytes."
    ]


def _unopened(case: Case) -> int:
    """How many leaves of erased rows are opened by no row at hand, and by no receipt."""
    opened = {place for receipt in case.known.receipts for place, _ in to_be_forgotten(case.run, receipt)}
    if case.dataset is not None:
        opened |= set(case.evidence.at_hand.places.values())
    return len(case.run.contents.rows) - case.run.plan.retained.size - len(opened)


def _has_salt(run: Run, client: int) -> bool:
    """Whether the salt of a client's name is left."""
    place = run.contents.salts_of(client)[0]
    return run.opening.salts.holds(place)


def _doubts(case: Case) -> list[str]:
    """Those that the run records; that they are the ones which follow is asked elsewhere."""
    return list(case.run.info["doubts"]) if case.run.is_child else []


NOT_NEEDED = (
    "what is left of the run answers all that this audit asks. No other audit reads them, so what is said elsewhere of "
    "a pruned lineage stays as it is"
)


def of_earlier(case: Case, answers: Sequence[CheckResult]) -> list[str]:
    """What a reader has to know of the findings given with --before."""
    if case.known.before is None:
        return []
    if not passed(case.known.before.findings, "provenance"):
        return ["The findings given with --before do not pass the audit provenance: nothing here rests on them."]
    if not any(answer.before for answer in answers):
        asked = any(NOT_SHOWN in answer.text for answer in answers)
        why = "they do not show what was asked of them" if asked else NOT_NEEDED
        return [f"Nothing here rests on the findings given with --before: {why}."]
    digest = f" (SHA-256 {case.known.before.sha256})"
    return [f"The findings given with --before{digest} are the auditor's own: nothing in them proves who made them."]


def _on_the_partition(case: Case) -> list[str]:
    """Why the partition was not dealt again, where it was not: who owned what is then what the commitment says."""
    if with_key(case) is not None:
        return []
    kept = case.run.plan.retained
    whose = f"which of {counted(len(kept.clients), 'client')} has which of {counted(kept.size, 'row')}"
    return [f"{TAKEN}: a prune destroyed its key. Whoever wrote it could choose {whose}."]


def _on_numbers(case: Case) -> list[str]:
    """Whose numbers follow from nothing at hand: clients who are owners have any numbers below a limit."""
    run, data = case.run, case.dataset
    clients = run.original.clients
    if not by_owners(registry.build("partitions", run.config.partition)) or clients == tuple(range(len(clients))):
        return []
    shown = set() if data is None else _owners(run, data)
    if not (told := [client for client in clients if client not in shown]):
        return []
    room = -(-len(told) * (MOST_OWNERS - 1).bit_length() // 8)
    return [
        f"The numbers of {counted(len(told), 'client')} are taken from the commitment: no row at hand is of an owner "
        f"with such a number. Whoever wrote them had room for {counted(room, 'byte')}."
    ]


def _owners(run: Run, data: Dataset) -> set[int]:
    """The clients whose rows at hand are all of the owner with their number; of some a row is at hand."""
    if data.owners is None:
        return set()
    owners, gone = data.owners.tolist(), run.stand_ins | data.absent
    found = {
        client: {owners[row] for row in rows if row < data.size and row not in gone}
        for client, rows in run.original.samples.items()
    }
    return {client for client, whose in found.items() if whose == {client}}


def _on_names(case: Case) -> list[str]:
    """Whose names nothing was compared with: nothing at hand says who owns their rows, or a prune dropped them."""
    run = case.run
    if run.opening.names is None:
        return []
    lines = list[str]()
    clients = dict.fromkeys(client for request in run.requests for client in request.clients)
    compared = set() if case.dataset is None else owners_at_hand(run, case.dataset).keys()
    if left := [client for client in run.opening.names if client not in compared]:
        # whoever did not ask is not named to a reader of the report
        asked = [run.called(client) for client in left if client in clients]
        among = f", {asked[0]} among them," if asked else ""
        of = f"The names of {counted(len(left), 'client')}{among} are", "their rows"
        if len(left) == 1:
            of = f"The name of {asked[0] if asked else '1 client'} is", "the rows of that client"
        lines.append(f"{of[0]} taken from the commitment: nothing at hand says whose {of[1]} are.")
    shown = {receipt.client for receipt in case.known.receipts}  # under the commitment, which covers the name
    gone = [client for client in clients if client in run.contents.clients and run.name(client) is None]
    if gone := [client for client in gone if client not in shown]:
        whose = f"The name of client {gone[0]} was not shown: a prune dropped it. That the request named this number"
        if len(gone) > 1:
            numbers = ", ".join(map(str, gone))
            whose = f"The names of clients {numbers} were not shown: a prune dropped them. That requests named these"
        lines.append(f"{whose} for whoever asked is taken on trust; a receipt holds the name.")
    return lines


def _of_beacon(case: Case) -> str:
    """What a reader has to know of when the draws were fixed."""
    if case.run.beacon is None:
        return (
            "No beacon was mixed into the draws: secrets could be tried until their draws were liked, before the "
            "commitment was published."
        )
    if case.known.beacon is None:
        return (
            f"The beacon {case.run.beacon[:16]} was mixed into the draws, and no --beacon was given to compare with: "
            "beacons could be tried until their draws were liked, also after the commitment was published."
        )
    return (
        f"The beacon {case.run.beacon[:16]} was mixed into the draws, and it is the one given by --beacon. It shows "
        "that draws were not chosen only if it was published after the commitment."
    )


def _chosen_later(case: Case) -> list[str]:
    """Where a method of the lineage is not the one that the committed config names."""
    named, lines = case.run.config.unlearner, []
    for run in (case.run, *case.evidence.ancestors):
        if not run.is_child:
            continue
        used = run.info["unlearner"]
        options = {name: value for name, value in used["options"].items() if value is not None}
        if (method := {**options, "use": used["use"]}) != named:
            what = f"the committed config names {_in_words(named) if named else 'none'}"
            lines.append(f"The unlearner of {name_of(run)}, {_in_words(method)}, was chosen later: {what}.")
    return lines


def _in_words(method: Mapping[str, Any]) -> str:
    """The name of a method and its options."""
    options = ", ".join(f"{name} = {value!r}" for name, value in method.items() if name != "use")
    return f"{method['use']!r}{f' with {options}' if options else ''}"


def all_well(case: Case, answers: Sequence[CheckResult]) -> str:
    """What a PASS shows."""
    if case.evidence.is_editor:
        return "The model is what the named method makes of the parent's, with draws that follow from the commitment."
    if any(answer.before for answer in answers):
        return (
            "The plan draws from seeds and records that were committed to or sealed; which draws were kept, and why, "
            f"was shown {BEFORE}. Nothing in it was to be forgotten."
        )
    (first,) = case.run.plan.streams[Stream.INITIAL]
    if first.source and any(isinstance(run, Tombstone) for run in case.evidence.ancestors):
        later = "" if first.source == len(case.run.requests) else " What later ones kept is before what they name."
        return (
            f"The plan follows from what was committed to: an ancestor was pruned, and request {first.source} kept "
            f"nothing of what was drawn before it.{later} Nothing in it was to be forgotten."
        )
    if any(isinstance(run, Tombstone) for run in case.evidence.ancestors):
        return (
            "The plan follows from what was committed to: an ancestor was pruned, and what was kept of its draws is "
            "what comes before each first involvement. Nothing in it was to be forgotten."
        )
    return "The plan follows from committed seeds by the named method; nothing in it was to be forgotten."
