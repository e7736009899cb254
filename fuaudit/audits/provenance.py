"""Level 3: draws follow from the commitment, plans are rewrites of their parents' plans, the erased is in no draw.

Every link of the lineage is checked, up to the training run: what an ancestor says of itself is not believed. Where a
prune has destroyed what a rewrite needs, the plan is found again position by position from the seeds that were kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain as joined
from itertools import pairwise
from typing import Any, ClassVar

import torch

from fuaudit import registry
from fuaudit.data.dataset import Dataset
from fuaudit.data.partition import names_of, partition
from fuaudit.draws import END, Keyed, Position, Recorded, Stream
from fuaudit.errors import EvidenceError, FuauditError, UsageError
from fuaudit.plans import Plan, Request
from fuaudit.plans.plan import occurrences
from fuaudit.runs.layout import CONFIG, RECORDED
from fuaudit.runs.names import in_words, to_forget
from fuaudit.runs.prune import Tombstone, former_of, repeated, unspoiled
from fuaudit.runs.run import Run
from fuaudit.training.setup import depended_on
from fuaudit.unlearning.apply import edited, provenance, rewritten
from fuaudit.unlearning.protocol import doubts_of, is_editor
from fuaudit.verification.case import Case, drawn_plan, made_by_another
from fuaudit.verification.figure import Figure
from fuaudit.verification.finding import FORMAT, NEAR, Finding, Subject, Verdict

SHOWS_NOT = "It does not show that the method has the right law; that is for enumeration."

NOTHING = "yes: it was never drawn, this run contains nothing to forget"
UNUSED = "The training had never used this data, so this model held nothing of it."
"""What that means for the person concerned."""

KEEPING_NOTHING = "retrain"
"""The one unlearner whose plan starts over whatever was drawn."""

BEFORE = "before the prune, by the findings given with --before"
"""Words of every answer that rests on such findings."""


@dataclass(frozen=True)
class CheckResult:
    """The outcome of one question of this audit."""

    verdict: Verdict
    text: str
    trusts: str = ""
    """What it takes on trust, where it does."""


BEFORE_TRAINING = (
    "The commitment given by --commitment was received before training began: one that was received after the request "
    "shows only that nothing was changed since."
)
FINDINGS_ARE_OURS = (
    "The findings given by --before are those of an audit, kept out of the operator's reach since: anybody can write "
    "such a file, and what it shows, nothing in the pruned run shows."
)


@dataclass(frozen=True)
class Provenance:
    """Asks for the commitment, the training plan, every rewrite, the request, and the draws."""

    evidence: ClassVar[frozenset[str]] = frozenset({"provenance"})
    uses: ClassVar[frozenset[str]] = frozenset(
        {"data", "erased", "parent", "commitment", "request", "before", "beacon"}
    )
    recomputes: ClassVar[str] = "the keys, and the plan or model that the method makes of the parent's"

    def examine(self, case: Case) -> Finding:
        """FAIL if any answer is; INCONCLUSIVE if one is missing; PASS otherwise."""
        chain = (case.run, *case.evidence.ancestors)
        answers = [own_commitment(case, run) for run in chain if isinstance(run, Run)]
        answers += [anchor(case), beacon(case), training(case), named(case), *doubted(case)]
        for place, child in enumerate(chain):
            if isinstance(child, Run) and child.is_child:
                answers += link(case, child, chain[place:])
        if case.run.is_child:
            answers += [asked(case), absence(case), key_reuse(case.run.plan)]
        verdicts = [answer.verdict for answer in answers]
        worst = next((v for v in (Verdict.FAIL, Verdict.INCONCLUSIVE) if v in verdicts), Verdict.PASS)
        shows = next(answer.text for answer in answers if answer.verdict is worst)
        if worst is Verdict.PASS and case.run.is_child:
            shows = _all_well(case, answers)
        nothing = never_drawn(case)
        return Finding(
            "provenance",
            Subject.RUN,
            worst,
            shows,
            SHOWS_NOT,
            (
                Figure(
                    "nothing_to_forget",
                    "Is there nothing to forget?",
                    nothing,
                    "every draw of the parent's plan was looked at, and what its config says that rounds depend on",
                ),
                Figure(
                    "links",
                    "Links of the lineage checked",
                    len(chain) - 1,
                    "counted; each step from a run to its child is checked",
                ),
            ),
            assumptions=(
                *self._assumptions(case),
                *dict.fromkeys(a.trusts for a in answers if a.trusts),
                *_of_earlier(case, answers),
            ),
            details=tuple(dict.fromkeys(f"{a.verdict}: {a.text}" for a in answers)),
            plainly=UNUSED if nothing == NOTHING else "",
        )

    def _assumptions(self, case: Case) -> tuple[str, ...]:
        lines = []
        if case.run.is_child:
            lines.append("The request did not depend on the draws or on published models (non-adaptive).")
        if case.known.commitment is None:
            lines.append("The commitment is not anchored outside: no --commitment was given to compare with.")
        else:
            lines.append(BEFORE_TRAINING)
        lines.append(_of_beacon(case))
        if case.run.is_child and case.known.request is None:
            lines.append(
                "The request is the one that the run names: no --client or --sample was given to compare with."
            )
        lines += [*_on_the_partition(case), *_on_names(case), *_chosen_later(case)]
        if len(case.run.requests) > 1:
            lines.append(
                f"The {len(case.run.requests) - 1} earlier requests were really made: each gives other draws to all "
                "that follow, so whoever could invent some could choose among them."
            )
        lines += [
            f"The training of {_name(run)} really was stopped for a request after round {run.rounds_executed}."
            for run in case.evidence.ancestors
            if run.rounds_executed < case.run.plan.law.rounds
        ]
        if _is_pruned(case) and any(request.samples for request in case.run.requests):
            lines.append("The ids of erased samples are as told; no draw follows from them.")
        return tuple(lines)


def _is_pruned(case: Case) -> bool:
    """Whether anything of the lineage at hand was pruned."""
    return any(isinstance(run, Tombstone) or run.pruned for run in (case.run, *case.evidence.ancestors))


def _of_earlier(case: Case, answers: Sequence[CheckResult]) -> list[str]:
    """What a reader has to know of the findings given with --before."""
    if case.known.before is None:
        return []
    if not passed(case.known.before.findings, "provenance"):
        return ["The findings given with --before do not pass the audit plan: nothing here rests on them."]
    if not any(answer.text.endswith(f"{BEFORE}.") for answer in answers):
        return ["Nothing here rests on the findings given with --before: they were not needed, or do not fit."]
    digest = f" (SHA-256 {case.known.before.sha256})"
    return [f"The findings given with --before{digest} are the auditor's own: nothing in them proves who made them."]


def _on_the_partition(case: Case) -> list[str]:
    """Why the partition was not dealt again, where it was not: who owned what is then what the commitment says."""
    root = (case.run, *case.evidence.ancestors)[-1]
    told = "The partition was not dealt again, but taken from the commitment"
    if isinstance(root, Tombstone) or root.keys.partition is None:
        return [f"{told}: a prune destroyed its key."]
    if case.dataset is not None and case.dataset.absent:
        return [f"{told}: {len(case.dataset.absent)} rows are not at hand."]
    return []


def _on_names(case: Case) -> list[str]:
    """Whose names nothing was compared with: nothing at hand says who owns their rows, or a prune dropped them."""
    run = case.run
    if run.opening.names is None:
        return []
    lines, root = list[str](), (case.run, *case.evidence.ancestors)[-1]
    dealt = case.dataset is not None and not case.dataset.absent and isinstance(root, Run) and not root.is_child
    if not dealt or root.keys.partition is None:  # type: ignore[union-attr]
        compared = set() if case.dataset is None else _owners_at_hand(run, case.dataset).keys()
        if left := [run.called(client) for client in run.opening.names if client not in compared]:
            lines.append(
                f"The names of {len(left)} clients, {left[0]} among them, are taken from the commitment: nothing at "
                "hand says whose their rows are."
            )
    clients = dict.fromkeys(client for request in run.requests for client in request.clients)
    if gone := [client for client in clients if client in run.contents.clients and run.name(client) is None]:
        lines.append(
            f"The name of client {', '.join(map(str, gone))} was not shown: a prune dropped it. That the request named "
            "this number for whoever asked is taken on trust; a receipt holds the name."
        )
    return lines


def _of_beacon(case: Case) -> str:
    """What a reader has to know of when the draws were fixed."""
    if case.run.beacon is None:
        return (
            "No beacon was mixed into the draws: secrets could be tried until their draws were liked, before the "
            "commitment was published."
        )
    known = "it is the one given by --beacon" if case.known.beacon else "no --beacon was given to compare with"
    return (
        f"The beacon {case.run.beacon[:16]} was mixed into the draws, and {known}. It shows that draws were not chosen "
        "only if it was published after the commitment."
    )


def _chosen_later(case: Case) -> list[str]:
    """Where a method of the lineage is not the one that the committed config names."""
    named, lines = case.run.config.unlearner, []
    for run in (case.run, *case.evidence.ancestors):
        if not run.is_child:
            continue
        used = run.info["unlearner"]
        options = {name: value for name, value in used["options"].items() if value is not None}
        if {**options, "use": used["use"]} != named:
            what = f"the committed config names {named['use']!r}" if named else "the committed config names none"
            lines.append(f"The unlearner of {_name(run)}, {used['use']!r}, was chosen later: {what}.")
    return lines


def _all_well(case: Case, answers: Sequence[CheckResult]) -> str:
    """What a PASS shows."""
    if case.evidence.is_editor:
        return "The model is what the named method makes of the parent's, with draws that follow from the commitment."
    if any(answer.text.endswith(f"{BEFORE}.") for answer in answers):
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


def _name(run: Run | Tombstone) -> str:
    return run.path.name


def own_commitment(case: Case, run: Run) -> CheckResult:
    """The first event of a run is the commitment to the seeds, the config and the contents that the run holds.

    There is one for a lineage: a child has its parent's.
    """
    told = run.ledger.events[0]["commitment"]
    sizes = tuple(len(run.original.samples[client]) for client in run.original.clients)
    if (run.original.clients, sizes) != (run.contents.clients, run.contents.sizes):
        return CheckResult(
            Verdict.FAIL, f"The partition of {_name(run)} is not that of the contents that it committed to."
        )
    if run.commitment != told:
        return CheckResult(
            Verdict.FAIL, f"{_name(run)} does not hold the seeds, config and contents that it committed to."
        )
    if told != case.run.commitment:
        return CheckResult(Verdict.FAIL, f"{_name(run)} has another commitment than {_name(case.run)}.")
    return CheckResult(Verdict.PASS, f"{_name(run)} holds what it committed to: {told}.")


def anchor(case: Case) -> CheckResult:
    """What the auditor received before training is the commitment of the lineage."""
    if case.known.commitment is None:
        return CheckResult(Verdict.PASS, "No commitment from outside was given.")
    if case.known.commitment == case.run.commitment:
        return CheckResult(Verdict.PASS, "The lineage committed to what was received from outside.")
    return CheckResult(Verdict.FAIL, "The lineage has another commitment than --commitment says.")


def beacon(case: Case) -> CheckResult:
    """All runs of the lineage mix the same into their draws: what the auditor knows, where something was given."""
    runs = [run for run in (case.run, *case.evidence.ancestors) if isinstance(run, Run)]
    if other := [run for run in runs if run.beacon != case.run.beacon]:
        return CheckResult(Verdict.FAIL, f"{_name(other[0])} has another beacon than {_name(case.run)}.")
    if case.known.beacon is not None and case.known.beacon != case.run.beacon:
        told = "has none" if case.run.beacon is None else "has another"
        return CheckResult(Verdict.FAIL, f"The run should have mixed in the beacon of --beacon; it {told}.")
    if case.run.beacon is None:
        return CheckResult(Verdict.PASS, "No beacon was mixed into the draws.")
    return CheckResult(Verdict.PASS, f"The beacon {case.run.beacon} was mixed into all draws.")


def training(case: Case) -> CheckResult:
    """The oldest run is a training run, drawn as a whole, with the partition that its key deals."""
    root = (case.run, *case.evidence.ancestors)[-1]
    if root.is_child:
        return CheckResult(Verdict.INCONCLUSIVE, f"The parent of {_name(root)} is not at hand.")
    if isinstance(root, Tombstone):
        return CheckResult(Verdict.PASS, f"{_name(root)} was pruned; its partition is the one that was committed to.")
    if drawn_plan(root) != Plan.fresh(root.plan.law, root.original, root.sources[0]):
        return CheckResult(Verdict.FAIL, f"The plan of {_name(root)} was not drawn as a whole.")
    if root.keys.partition is None:
        return CheckResult(Verdict.FAIL, f"{_name(root)} lacks the key of its partition, and was not pruned.")
    if case.dataset is None:
        return CheckResult(Verdict.INCONCLUSIVE, "The data is not at hand: the partition cannot be dealt again.")
    if case.dataset.absent:
        return CheckResult(Verdict.PASS, f"{_name(root)} was drawn as a whole from its seeds.")
    dealer = registry.build("partitions", root.config.partition)
    dealt = partition(dealer, case.dataset, Keyed(root.keys.partition))
    if dealt.samples != root.original.samples:
        return CheckResult(Verdict.FAIL, f"The partition of {_name(root)} is not the one that its key deals.")
    if names_of(dealer, case.dataset, dealt) != root.opening.names:
        return CheckResult(Verdict.FAIL, f"Clients of {_name(root)} have other names than the owners of their rows.")
    return CheckResult(Verdict.PASS, f"{_name(root)} was drawn as a whole from its seeds, the partition from its key.")


def named(case: Case) -> CheckResult:
    """Clients have the names of those who own their rows, as far as the data at hand says who does."""
    for run in (case.run, *case.evidence.ancestors):
        if case.dataset is None or not isinstance(run, Run):
            continue
        for client, owners in _owners_at_hand(run, case.dataset).items():
            if owners != {run.name(client)}:
                who = sorted(owners - {run.name(client)})[0]
                text = f"Rows of {run.called(client)} of {_name(run)} are those of {who!r} in the data at hand."
                return CheckResult(Verdict.FAIL, text)
    return CheckResult(Verdict.PASS, "No row at hand belongs to somebody of another name than its client's.")


def _owners_at_hand(run: Run, data: Dataset) -> dict[int, set[str]]:
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


def link(case: Case, child: Run, chain: Sequence[Run | Tombstone]) -> Iterator[CheckResult]:
    """What can be asked of a child; ``chain`` is the child and its ancestors at hand, youngest first."""
    yield form(child)
    if child.pruned:
        yield prune_of(child, chain)
    if len(chain) < 2:
        return  # that the parent is missing is said already
    parent = chain[1]
    if isinstance(parent, Tombstone) and parent.files[CONFIG] != child.files[CONFIG]:
        yield CheckResult(Verdict.FAIL, f"{_name(child)} has another config than its pruned parent.")
    elif isinstance(parent, Run) and parent.requests != child.requests[:-1]:
        yield CheckResult(Verdict.FAIL, f"The requests of {_name(child)} do not continue those of its parent.")
    elif isinstance(parent, Run) and not child.pruned and (child.keys, child.opening) != (parent.keys, parent.opening):
        # which prune was the last is not said by the child itself: it holds what its parent holds, to the bit
        yield CheckResult(Verdict.FAIL, f"{_name(child)} holds other seeds, names or salts than its parent.")
    elif is_editor(child.unlearner):
        yield _edit_recomputed(case, child, parent)
    elif isinstance(parent, Tombstone) or child.pruned:
        yield followed(case, child, chain)
    else:
        yield recomputed(child, parent)


def form(child: Run) -> CheckResult:
    """The child executed the whole plan, and names its unlearner in the words of the installed plugin."""
    name, law = child.info["unlearner"]["use"], child.plan.law
    if child.rounds_executed != law.rounds:
        return CheckResult(
            Verdict.FAIL, f"{_name(child)} was stopped after round {child.rounds_executed} of {law.rounds}."
        )
    recorded = child.info["unlearner"]
    installed = provenance(registry.find("unlearners", name), child.unlearner)
    if other := made_by_another(child):
        return CheckResult(Verdict.INCONCLUSIVE, f"{other}.")
    if installed != recorded:
        return CheckResult(Verdict.FAIL, f"{_name(child)} describes {name!r} in words that are not the plugin's own.")
    return CheckResult(
        Verdict.PASS, f"{_name(child)} was made by {name!r} as it is installed, and executed as a whole."
    )


def recomputed(child: Run, parent: Run) -> CheckResult:
    """The installed unlearner, as recorded, makes this plan of the parent's, with the draws of this request."""
    name = child.info["unlearner"]["use"]
    if child.config != parent.config or child.info["first_change"] != list(child.plan.first_change(parent.plan)):
        return CheckResult(Verdict.FAIL, f"{_name(child)} has another config than its parent, or names another change.")
    if other := made_by_another(child):
        return CheckResult(Verdict.INCONCLUSIVE, f"The plan of {_name(child)} cannot be repeated: {other}.")
    fresh = parent.fresh(child.request)
    expected = rewritten(child.unlearner, name, drawn_plan(parent), child.request, fresh, parent.next_position)
    if expected != child.plan:
        return CheckResult(Verdict.FAIL, f"The plan of {_name(child)} is not what {name!r} makes of its parent's plan.")
    return CheckResult(Verdict.PASS, f"The plan of {_name(child)} is what {name!r} makes of its parent's plan.")


def doubted(case: Case) -> Iterator[CheckResult]:
    """Every run and tombstone of the lineage names just the doubts that its method, request and parent give it."""
    chain = (case.run, *case.evidence.ancestors)
    # a run whose parent is missing is left out: what it inherits cannot be known, and no PASS is given for the lineage
    for child, parent, request in zip(chain, chain[1:], reversed(case.run.requests), strict=False):
        if made_by_another(child):
            yield CheckResult(
                Verdict.INCONCLUSIVE, f"The doubts of {_name(child)} cannot be made: {made_by_another(child)}."
            )
        elif isinstance(child, Tombstone) and (words := _strange_method(child)):
            yield CheckResult(Verdict.FAIL, words)
        elif child.info["doubts"] != _doubts(case, child, parent, request):
            yield CheckResult(
                Verdict.FAIL, f"{_name(child)} names other doubts than its method, request and parent give."
            )


def _strange_method(stone: Tombstone) -> str:
    """In words that a tombstone describes an installed method in other words than the plugin; "" where it does not."""
    recorded = stone.info["unlearner"]
    try:
        installed = provenance(registry.find("unlearners", recorded["use"]), _method(stone))
    except UsageError as error:
        return f"The tombstone of {_name(stone)} names a method that cannot be: {error}."
    if installed == recorded:
        return ""
    return f"The tombstone of {_name(stone)} describes {recorded['use']!r} in words that are not the plugin's own."


def _method(run: Run | Tombstone) -> Any:
    """The installed unlearner that a run names, with its recorded options."""
    recorded = run.info["unlearner"]
    return registry.build("unlearners", {**recorded["options"], "use": recorded["use"]})


def _doubts(case: Case, child: Run | Tombstone, parent: Run | Tombstone, request: Request) -> list[str]:
    """The doubts that unlearning would record for a child; law and config are those of the whole lineage."""
    change, name = Position(*child.info["first_change"]), child.info["unlearner"]["use"]
    known, inherited = depended_on(case.run.config, request), parent.info.get("doubts", [])
    return list(doubts_of(_method(child), name, case.run.plan.law, request, known, change, inherited))


def prune_of(run: Run, chain: Sequence[Run | Tombstone]) -> CheckResult:
    """A pruned run keeps the manifest of before, which fits, and holds nothing that a prune destroys."""
    try:
        former_of(run)
    except EvidenceError as error:
        return CheckResult(Verdict.FAIL, str(error))
    if len(chain) != len(run.requests) + 1:
        return CheckResult(Verdict.INCONCLUSIVE, f"What the prune of {_name(run)} destroys depends on its ancestors.")
    if not unspoiled(run, chain):
        return CheckResult(
            Verdict.FAIL, f"{_name(run)} was pruned, and does not hold what a prune leaves of its keys and ids."
        )
    return CheckResult(Verdict.PASS, f"{_name(run)} was pruned, and holds what a prune leaves.")


def followed(case: Case, child: Run, chain: Sequence[Run | Tombstone]) -> CheckResult:
    """The plan follows from the commitment and the requests: draws kept are those before each first involvement."""
    plan, name = child.plan, _name(child)
    (first,) = plan.streams[Stream.INITIAL]
    in_force = {segment.source for segments in plan.streams.values() for segment in segments}
    for number in in_force:
        maker = chain[len(child.requests) - number] if len(chain) > len(child.requests) - number else child
        if isinstance(plan.sources[number], Recorded):
            told = f"The plan of {name} has draws that {maker.info['unlearner']['use']!r} recorded."
            return CheckResult(Verdict.FAIL, told) if _by_the_reference(maker) else _shown_before(case, child, told)
    try:
        expected = repeated(child, chain)
    except EvidenceError as error:
        return _shown_before(case, child, f"The plan of {name} cannot be followed from its seeds: {error}.")
    changed = [s.start for segments in plan.streams.values() for s in segments if s.source == len(child.requests)]
    if child.info["first_change"] != list(min(changed, default=END)):
        return CheckResult(Verdict.FAIL, f"{name} names another first change than its plan has.")
    makers = chain[: len(child.requests) - first.source]
    if expected.streams != plan.streams:
        told = f"The plan of {name} does not keep what comes before each first involvement, and that only."
        right = all(map(_by_the_reference, makers))
        return CheckResult(Verdict.FAIL, told) if right else _shown_before(case, child, told)
    maker = chain[len(child.requests) - first.source]
    if first.source and not _starts_over(maker):
        told = f"{_name(maker)} keeps nothing, by a method that may have looked at what was drawn."
        return _shown_before(case, child, told)
    return CheckResult(
        Verdict.PASS,
        f"The plan of {name} follows from the seeds committed to: every draw that was kept, and that each cut is the "
        "first position that names what was to be forgotten.",
    )


def _by_the_reference(run: Run | Tombstone) -> bool:
    """Whether a run was made by an unlearner of fuaudit, as installed here, that says its plans are the reference's.

    Others are not asked: a subclass would say it too, by inheritance.
    """
    if made_by_another(run):
        return False
    entry = registry.find("unlearners", run.info["unlearner"]["use"])
    return entry.own and entry.load().follows_reference is True


def _starts_over(run: Run | Tombstone) -> bool:
    """Whether a run was made by the method that starts over, always."""
    return bool(run.info["unlearner"]["use"] == KEEPING_NOTHING and not made_by_another(run))


def _shown_before(case: Case, child: Run, missing: str) -> CheckResult:
    """What a prune has made impossible to show: PASS where the auditor has findings that showed it before."""
    reason = "no findings from before the prune were given (--before)"
    if case.known.before is not None:
        reason = _no_proof(case, case.known.before.findings, child)
    if reason:
        return CheckResult(Verdict.INCONCLUSIVE, f"{missing} It was not shown before the prune: {reason}.")
    return CheckResult(Verdict.PASS, f"{missing} It was shown {BEFORE}.", FINDINGS_ARE_OURS)


def _no_proof(case: Case, findings: Mapping[str, Any], child: Run) -> str:
    """Why findings do not show the plan of a run that was pruned since; empty where they do."""
    if not child.pruned:
        return f"{_name(child)} was not pruned"
    try:
        former = former_of(child)
    except EvidenceError as error:
        return str(error)
    if child.files.get(RECORDED) != former.get(RECORDED):
        return "the prune took draws out of the record, and what is left of it is taken on trust"
    if findings.get("format") != FORMAT or findings.get("run") != child.ledger.events[-1]["before"]:
        return f"the findings given are of another run than {_name(child)} was then"
    if not passed(findings, "provenance"):
        return "the findings given do not pass the plan"
    if not any(_is_near(found) for found in passed(findings, "plan-law")):
        return f"the findings given do not pass plan-law with a distance of {NEAR} or less"
    context = findings.get("context")
    words = context.get("arguments") if isinstance(context, dict) else None
    words = words if isinstance(words, list) else []
    if case.known.commitment is not None and ("--commitment", case.known.commitment) not in pairwise(words):
        return "the findings given did not compare this --commitment"
    if case.known.request is not None and not {"--client", "--sample"}.intersection(map(str, words)):
        return "the findings given did not compare the request with one that was in hand"
    return ""


def passed(findings: Mapping[str, Any], audit: str) -> list[dict[str, Any]]:
    """The findings of an audit in a document of findings; none where one of them is not a PASS."""
    checks = findings.get("checks")
    found = [check.get("finding") for check in checks if isinstance(check, dict)] if isinstance(checks, list) else []
    ours = [one for one in found if isinstance(one, dict) and one.get("audit") == audit]
    return ours if all(one.get("verdict") == "PASS" for one in ours) else []


def _is_near(found: Mapping[str, Any]) -> bool:
    """Whether a PASS of plan-law is evidence: it bounds the distance, or the rate of untouched plans, by so little."""
    figures = found.get("figures")
    rows = [row for row in figures if isinstance(row, dict)] if isinstance(figures, list) else []
    values = {str(row.get("key")): row.get("value") for row in rows}
    below = values.get("differs_below", values.get("untouched_below"))
    return isinstance(below, int | float) and 0 <= below <= NEAR


def _edit_recomputed(case: Case, child: Run, parent: Run | Tombstone) -> CheckResult:
    """The installed editor makes this model of the parent's."""
    name = child.info["unlearner"]["use"]
    if isinstance(parent, Tombstone):
        return CheckResult(
            Verdict.INCONCLUSIVE, f"The edit of {_name(child)} cannot be repeated: its parent was pruned."
        )
    if other := made_by_another(child):
        return CheckResult(Verdict.INCONCLUSIVE, f"The edit of {_name(child)} cannot be repeated: {other}.")
    if case.dataset is None:
        return CheckResult(Verdict.INCONCLUSIVE, "The data is not at hand: the edit cannot be repeated.")
    plan, fresh = drawn_plan(parent), parent.fresh(child.request)
    if plan.erase(child.request, fresh, END) != child.plan:
        return CheckResult(
            Verdict.FAIL, f"The plan of {_name(child)} is not its parent's, which an editor leaves alone."
        )
    try:
        after, models = plan.erase(child.request, fresh, END), parent.models
        model, _ = edited(case.rerun.ready, plan, after, child.unlearner, name, parent.model, models)
    except FuauditError as error:
        return CheckResult(Verdict.INCONCLUSIVE, f"The edit of {_name(child)} cannot be repeated: {error}")
    if torch.equal(model, child.model):
        return CheckResult(Verdict.PASS, f"The model of {_name(child)} is what {name!r} makes of its parent's model.")
    if elsewhere := case.rerun.elsewhere(child):
        text = f"The edit of {_name(child)} gives other bits on this platform: {elsewhere[0]}."
        return CheckResult(Verdict.INCONCLUSIVE, text)
    return CheckResult(Verdict.FAIL, f"The model of {_name(child)} is not what {name!r} makes of its parent's model.")


def asked(case: Case) -> CheckResult:
    """The run carries out the request that the auditor has in hand, and its ledger says so."""
    request = case.run.request
    events = case.run.ledger.of_kind("request")
    logged = [(tuple(e.get("clients", ())), tuple(e.get("samples", ()))) for e in events]
    if logged != [(request.clients, request.samples)]:
        return CheckResult(Verdict.FAIL, "The request in the ledger is not the one in the plan.")
    if case.known.request is not None and case.known.request != request:
        return CheckResult(Verdict.FAIL, f"The run forgets {request}; asked for was {case.known.request}.")
    whom = "; ".join(map(in_words, to_forget(case.run)))
    return CheckResult(Verdict.PASS, f"The run carries out the request to forget {request}: {whom}.")


def absence(case: Case) -> CheckResult:
    """No draw of the expanded plan holds what was to be forgotten, in any of the requests so far."""
    plan = case.run.plan
    if case.run.rounds_executed != plan.law.rounds:
        return CheckResult(Verdict.FAIL, "The run was stopped: not all of its draws were executed.")
    if case.evidence.is_editor:
        return CheckResult(Verdict.PASS, "An edited model has no plan of its own; absence is not a question of draws.")
    clients = {c for request in case.run.requests for c in request.clients}
    samples = {s for request in case.run.requests for s in request.samples}
    allowed = plan.retained.samples
    for round_number in range(1, plan.law.rounds + 1):
        cohort = plan.cohort(round_number)
        strangers = [c for c in cohort if c in clients or c not in allowed]
        if strangers:
            return CheckResult(
                Verdict.FAIL, f"Round {round_number} draws client {strangers[0]}, which was to be forgotten."
            )
        for client, occurrence in occurrences(cohort):
            own = set(allowed[client])
            for step in range(1, plan.law.steps + 1):
                wrong = [s for s in plan.batch(round_number, step, client, occurrence) if s in samples or s not in own]
                if wrong:
                    where = f"Round {round_number}, step {step} draws sample {wrong[0]} of client {client}"
                    return CheckResult(Verdict.FAIL, f"{where}, which was to be forgotten.")
    return CheckResult(Verdict.PASS, "No draw at any position holds anything that was to be forgotten.")


def key_reuse(plan: Plan) -> CheckResult:
    """The draws of a request serve the population after it and no other, so no random number is used twice."""
    if any(segment.source != segment.version for segment in joined.from_iterable(plan.streams.values())):
        return CheckResult(Verdict.FAIL, "Draws of one request were used over the population of another.")
    return CheckResult(Verdict.PASS, "The draws of every request were used over one population only.")


def never_drawn(case: Case) -> str:
    """Whether the parent holds nothing of what was to be forgotten: it never drew it, nor used it otherwise."""
    if case.request is None:
        return "no request"
    if not isinstance(case.parent, Run):
        return "unknown: the parent is not at hand"
    if drawn_plan(case.parent).first_involvement(case.request):
        return "no: it was drawn"
    if known := depended_on(case.parent.config, case.request):
        return f"no: it was never drawn, but rounds depend on {known}"
    return NOTHING
