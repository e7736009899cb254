"""The beginning of a lineage: what was committed to, what the auditor received, and how training was drawn."""

from __future__ import annotations

from fuaudit.audits.provenance.answers import CheckResult, fails, holds, name_of, not_compared, unclear
from fuaudit.audits.provenance.dealing import dealt_again, with_key
from fuaudit.commitments.keys import BEACON_TO_COME, NO_BEACON
from fuaudit.data.dataset import Dataset
from fuaudit.data.partition import look_of
from fuaudit.plans import Plan
from fuaudit.runs.drawn import drawn_plan
from fuaudit.runs.roster import compared
from fuaudit.runs.run import Run
from fuaudit.runs.tombstone import Tombstone
from fuaudit.text import counted
from fuaudit.verification.case import Case


def own_commitment(case: Case, run: Run | Tombstone) -> CheckResult:
    """The first event of a run is the commitment to the seeds, the config and the contents that the run holds.

    There is one for a lineage: a child has its parent's. Of a tombstone nothing else is left to compare.
    """
    told, name = run.ledger.events[0]["commitment"], name_of(run)
    another = f"{name} has another commitment than {name_of(case.run)}."
    if told != case.run.commitment and isinstance(run, Tombstone):
        return _promised_otherwise(case.run, told, f"of {name} ") or fails(another)
    if isinstance(run, Tombstone):
        return holds(f"{name} committed to what {name_of(case.run)} did.")
    if not run.sealed and not _deals_contents(run):
        return fails(f"The partition of {name} is not that of the contents that it committed to.")
    if run.commitment != told:
        other = f"{name} does not hold the seeds, config and contents that it committed to."
        return _promised_otherwise(run, told, f"of {name} ") or fails(other)
    if told != case.run.commitment:
        return _promised_otherwise(case.run, told, f"of {name} ") or fails(another)
    return holds(f"{name} holds what it committed to.")


def _deals_contents(run: Run) -> bool:
    """Whether the partition of a run has the clients, and as many rows of each, as the contents."""
    sizes = tuple(len(run.original.samples[client]) for client in run.original.clients)
    return (run.original.clients, sizes) == (run.contents.clients, run.contents.sizes)


def _promised_otherwise(run: Run, told: str, whose: str) -> CheckResult | None:
    """That a commitment is the one of a run but for what it says of the beacon; None where more is different."""
    if run.beacon is None and told == run.commitment_for(BEACON_TO_COME):
        return fails(f"The commitment {whose}says that a beacon is to come, and {name_of(run)} mixed none in.")
    if run.beacon is not None and told == run.commitment_for(NO_BEACON):
        return fails(f"The commitment {whose}says that no beacon is to come, and {name_of(run)} mixed one in.")
    return None


def anchor(case: Case) -> CheckResult:
    """What the auditor received before training is the commitment of the lineage."""
    if case.known.commitment is None:
        return not_compared("No commitment from outside was given.")
    if case.known.commitment == case.run.commitment:
        return holds("The lineage committed to what was received from outside.")
    return _promised_otherwise(case.run, case.known.commitment, "given by --commitment ") or fails(
        "The lineage has another commitment than --commitment says."
    )


def roster(case: Case) -> CheckResult:
    """Clients, witness and key holder are those of the list that the auditor received, with the keys that it says."""
    if case.known.roster is None:
        return not_compared("No list of parties from outside was given.")
    found = compared(case.run, case.known.roster)
    if wrong := found.differences:
        rest = f" That is one of {counted(len(wrong), 'difference')}." if len(wrong) > 1 else ""
        return fails(f"The parties are not those of the list given by --roster. {wrong[0]}{rest}")
    if found.doubts:
        rest = f" That is one of {counted(len(found.doubts), 'doubt')}." if len(found.doubts) > 1 else ""
        return unclear(f"The keys are those of the list given by --roster. {found.doubts[0]}{rest}")
    told = f" The names of {counted(found.nameless, 'client')} are not here: their keys alone were compared."
    return holds(
        f"The parties and their keys are those of the list that was received from outside.{told * bool(found.nameless)}"
    )


def beacon(case: Case) -> CheckResult:
    """All runs of the lineage mix the same into their draws: what the auditor knows, where something was given.

    A tombstone tells its beacon in what has the digest that its child names.
    """
    if other := [run for run in case.evidence.ancestors if run.beacon != case.run.beacon]:
        return fails(f"{name_of(other[0])} has another beacon than {name_of(case.run)}.")
    if case.known.beacon is not None and case.known.beacon != case.run.beacon:
        told = "has none" if case.run.beacon is None else "has another"
        return fails(f"The run should have mixed in the beacon of --beacon; it {told}.")
    if case.run.beacon is None:
        return not_compared("No beacon was mixed into the draws.")
    return holds(f"The beacon {case.run.beacon} was mixed into all draws.")


def training(case: Case) -> CheckResult:
    """The oldest run is a training run, drawn as a whole, with the partition that its key deals."""
    root = (case.run, *case.evidence.ancestors)[-1]
    if root.is_child:
        way = "give its folder with --parent" if root is case.run else f"put it beside {name_of(root)}"
        return unclear(f"The parent of {name_of(root)} is not at hand: {way}.")
    keyed = with_key(case)
    if isinstance(root, Tombstone) and keyed is None:
        return holds(f"{name_of(root)} was pruned; its partition is the one that was committed to.")
    if isinstance(root, Run) and drawn_plan(root) != Plan.fresh(root.plan.law, root.original, root.sources[0]):
        return fails(f"The plan of {name_of(root)} was not drawn as a whole.")
    if isinstance(root, Run) and root.keys.partition is None:
        return fails(f"{name_of(root)} lacks the key of its partition, and was not pruned.")
    if case.dataset is None:
        return unclear("The data is not at hand: the partition cannot be dealt again.")
    assert keyed is not None
    return dealt_again(case, keyed, keyed.keys.partition or b"")


def named(case: Case) -> CheckResult:
    """Clients have the names of those who own their rows, as far as the data at hand says who does.

    And nobody has the name of another: a receipt shows the name that a prune dropped.
    """
    shown = [(receipt.client, receipt.name) for receipt in case.known.receipts if receipt.name is not None]
    names = {*(case.run.opening.names or {}).items(), *shown}
    for client, name in shown:
        if other := [one for one, same in names if look_of(same) == look_of(name) and one != client]:
            return fails(f"Clients {client} and {other[0]} were committed to under one name, {name!r}.")
    for run in (case.run, *case.evidence.ancestors):
        if case.dataset is None or not isinstance(run, Run):
            continue
        for client, owners in owners_at_hand(run, case.dataset).items():
            if owners != {run.name(client)}:
                who = sorted(owners - {run.name(client)})[0]
                return fails(
                    f"Rows of {run.called(client)} of {name_of(run)} are those of {who!r} in the data at hand."
                    + (f" {case.evidence.moved}" if case.evidence.moved else "")
                )
    return holds("No row at hand belongs to somebody of another name than its client's.")


def owners_at_hand(run: Run, data: Dataset) -> dict[int, set[str]]:
    """Client -> names of the owners of its rows, of clients with names whose rows are at hand with such owners."""
    found: dict[int, set[str]] = {}
    if run.opening.names is None or data.owners is None:
        return found
    owners, names = data.owners.tolist(), data.owner_names
    for client in run.opening.names:
        rows = (row for row in run.original.samples.get(client, ()) if row < data.size and row not in data.absent)
        if told := {names[owners[row]] for row in rows if 0 <= owners[row] < len(names)}:
            found[client] = told
    return found
