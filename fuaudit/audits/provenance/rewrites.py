"""Each link of a lineage: the named method, as it is installed, makes the child's plan or model of the parent's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from fuaudit import registry
from fuaudit.audits.bearing import by_the_reference, starts_over
from fuaudit.audits.provenance.answers import CheckResult, fails, holds, name_of, unclear
from fuaudit.audits.provenance.edits import edit_recomputed
from fuaudit.audits.provenance.pruned import followed, prune_of, shown_before
from fuaudit.draws import START, Position
from fuaudit.errors import UsageError
from fuaudit.plans import Law, Plan, Request
from fuaudit.plans.veil import rewritten
from fuaudit.runs.ancestors import moment
from fuaudit.runs.drawn import drawn_plan
from fuaudit.runs.layout import CONFIG
from fuaudit.runs.run import Run
from fuaudit.runs.tombstone import Tombstone
from fuaudit.training.setup import depended_on
from fuaudit.unlearning.apply import unlearner_record
from fuaudit.unlearning.protocol import doubts_of, is_editor
from fuaudit.verification.case import Case, made_by_another


def link(case: Case, child: Run, chain: Sequence[Run | Tombstone]) -> Iterator[CheckResult]:
    """What can be asked of a child; ``chain`` is the child and its ancestors at hand, youngest first."""
    yield form(child)
    if child.pruned:
        yield prune_of(child, chain)
    if len(chain) < 2:
        return  # that the parent is missing is said already
    parent = chain[1]
    if isinstance(parent, Tombstone) and parent.files[CONFIG] != child.files[CONFIG]:
        yield fails(f"{name_of(child)} has another config than its pruned parent.")
    elif isinstance(parent, Run) and parent.requests != child.requests[:-1]:
        yield fails(f"The requests of {name_of(child)} do not continue those of its parent.")
    elif isinstance(parent, Run) and not child.pruned and (child.keys, child.opening) != (parent.keys, parent.opening):
        # which prune was the last is not said by the child itself: it holds what its parent holds, to the bit
        yield fails(f"{name_of(child)} holds other seeds, names or salts than its parent.")
    elif is_editor(child.unlearner):
        yield edit_recomputed(case, child, parent)
    elif isinstance(parent, Tombstone) or child.pruned:
        yield followed(case, child, chain)
    else:
        yield recomputed(child, parent)


def _can_be_repeated(child: Run | Tombstone, parent: Run | Tombstone) -> bool:
    """Whether what the rewrite needs is at hand: neither run was pruned since."""
    return isinstance(child, Run) and isinstance(parent, Run) and not child.pruned


def form(child: Run) -> CheckResult:
    """The child names its unlearner in the words of the installed plugin."""
    name = child.info["unlearner"]["use"]
    recorded = child.info["unlearner"]
    installed = unlearner_record(registry.find("unlearners", name), child.unlearner)
    if other := made_by_another(child):
        return unclear(f"{other}.")
    if installed != recorded:
        return fails(f"{name_of(child)} describes {name!r} in words that are not the plugin's own.")
    return holds(f"{name_of(child)} was made by {name!r} as it is installed.")


def recomputed(child: Run, parent: Run) -> CheckResult:
    """The installed unlearner, as recorded, makes this plan of the parent's, with the draws of this request."""
    name = child.info["unlearner"]["use"]
    if child.config != parent.config or child.info["first_change"] != list(child.plan.first_change(parent.plan)):
        return fails(f"{name_of(child)} has another config than its parent, or names another change.")
    if other := made_by_another(child):
        return unclear(f"The plan of {name_of(child)} cannot be repeated: {other}.")
    fresh = parent.fresh(child.request)
    expected = rewritten(child.unlearner, name, drawn_plan(parent), child.request, fresh, parent.next_position)
    if expected != child.plan:
        return fails(f"The plan of {name_of(child)} is not what {name!r} makes of its parent's plan.")
    return holds(f"The plan of {name_of(child)} is what {name!r} makes of its parent's plan.")


def changes(case: Case) -> Iterator[CheckResult]:
    """What runs and tombstones say of their course, where their method or what is left of their draws contradicts.

    A tombstone may name any first change of its method between the bounds: all that it bears on was drawn anew since.
    The bounds hold where no method goes back to older draws. Those that follow the reference and editors do not; of
    others it is not known.
    """
    plan, chain = case.run.plan, (case.run, *case.evidence.ancestors)
    for at, child in enumerate(chain):
        if not child.is_child:
            break
        if at == len(case.run.requests):
            yield fails(f"{name_of(child)} is a run more than the plan has requests.")
            break
        plan = child.plan if isinstance(child, Run) else plan
        yield from _first_change(case, plan, chain, at)
        if child.rounds_executed != plan.law.rounds:
            yield fails(f"{name_of(child)} was stopped after round {child.rounds_executed} of {plan.law.rounds}.")


def _first_change(case: Case, plan: Plan, chain: Sequence[Run | Tombstone], at: int) -> Iterator[CheckResult]:
    """What speaks against the first change of a child, by its place in the chain; ``plan`` is the oldest one left."""
    child, requests = chain[at], case.run.requests
    earliest, latest = plan.changes_of(len(requests) - at)
    if not earliest <= Position(*child.info["first_change"]) <= latest:
        told = f"{name_of(child)} names another first change than the plan leaves it."
        if all(map(_never_goes_back, chain[: at + 1])):
            yield fails(told)
        elif not any(_can_be_repeated(*pair) for pair in pairwise(chain[at : at + 2])):
            yield shown_before(case, case.run, told)
    elif at + 1 < len(chain) and not _may_change(child, chain[at + 1], requests[-1 - at], plan.law):
        told = f"{name_of(child)} names a first change that {child.info['unlearner']['use']!r} never makes."
        yield fails(told)


def _may_change(child: Run | Tombstone, parent: Run | Tombstone, request: Request, law: Law) -> bool:
    """Whether the method of a child can have made its first change; of those that are not known all are believed."""
    at = Position(*child.info["first_change"])
    if at == START or not by_the_reference(child):
        return True
    if starts_over(child):
        return False
    named = request.samples if at.step else request.clients
    is_draw = bool(named) and 1 <= at.round <= law.rounds and at.step <= law.steps and law.drawn_at(at.step) == at.step
    return at == (came := moment(parent, law.rounds)) or (is_draw and at < came)


def _never_goes_back(run: Run | Tombstone) -> bool:
    """Whether a run was made by a method whose plans never use draws that were given up before."""
    return by_the_reference(run) or is_editor(run.unlearner)


def doubted(case: Case) -> Iterator[CheckResult]:
    """Every run and tombstone of the lineage names just the doubts that its method, request and parent give it."""
    chain = (case.run, *case.evidence.ancestors)
    # a run whose parent is missing is left out: what it inherits cannot be known, and no PASS is given for the lineage
    for child, parent, request in zip(chain, chain[1:], reversed(case.run.requests), strict=False):
        if made_by_another(child):
            yield unclear(f"The doubts of {name_of(child)} cannot be made: {made_by_another(child)}.")
        elif isinstance(child, Tombstone) and (words := _strange_method(child)):
            yield fails(words)
        elif child.info["doubts"] != _doubts(case, child, parent, request):
            yield fails(f"{name_of(child)} names other doubts than its method, request and parent give.")


def _strange_method(stone: Tombstone) -> str:
    """In words that a tombstone describes an installed method in other words than the plugin; "" where it does not."""
    recorded = stone.info["unlearner"]
    try:
        installed = unlearner_record(registry.find("unlearners", recorded["use"]), stone.unlearner)
    except UsageError as error:
        return f"The tombstone of {name_of(stone)} names a method that cannot be: {error}."
    if installed == recorded:
        return ""
    return f"The tombstone of {name_of(stone)} describes {recorded['use']!r} in words that are not the plugin's own."


def _doubts(case: Case, child: Run | Tombstone, parent: Run | Tombstone, request: Request) -> list[str]:
    """The doubts that unlearning would record for a child; law and config are those of the whole lineage."""
    change, name = Position(*child.info["first_change"]), child.info["unlearner"]["use"]
    known, inherited = depended_on(case.run.config, request), parent.info.get("doubts", [])
    if isinstance(child, Run):
        change = child.segments.redrawn_from(change)
    return list(doubts_of(child.unlearner, name, case.run.law, request, known, change, inherited))
