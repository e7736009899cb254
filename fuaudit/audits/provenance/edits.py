"""An edit of a lineage: the named editor, as it is installed, makes the child's model and messages of its parent."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import asdict

import torch

from fuaudit.audits.bearing import bearing
from fuaudit.audits.provenance.answers import CheckResult, fails, holds, name_of, unclear
from fuaudit.draws import END
from fuaudit.errors import FuauditError
from fuaudit.plans import Plan
from fuaudit.runs.drawn import drawn_plan
from fuaudit.runs.layout import EDIT
from fuaudit.runs.run import Run
from fuaudit.runs.tombstone import Tombstone
from fuaudit.text import counted
from fuaudit.unlearning.apply import edited
from fuaudit.verification.case import Case, made_by_another


def edit_recomputed(case: Case, child: Run, parent: Run | Tombstone) -> CheckResult:
    """The plan is the parent's, and the installed editor makes this model, with these messages, of the parent's."""
    if isinstance(parent, Run) and child.plan != _left_alone(child, parent):
        return fails(f"The plan of {name_of(child)} is not its parent's, which an editor leaves alone.")
    if child.info["first_change"] != list(END):
        return fails(f"{name_of(child)} names a change of its plan, which an editor leaves alone.")
    if reason := _missing(case, child, parent):
        told = f"The edit of {name_of(child)} cannot be repeated: {reason}."
        if all(one.digest != child.digest for one in bearing(case)):
            told += " Nothing of it is in the run under audit, since a run between them starts over."
            return holds(told, told)
        return unclear(told)
    assert isinstance(parent, Run)
    if parent.rounds_executed != parent.plan.law.rounds:
        return fails(f"{name_of(child)} was made of {name_of(parent)}, which was stopped: editors edit final models.")
    name = child.info["unlearner"]["use"]
    try:
        wrong = list(_differences(case, child, parent, name))
    except FuauditError as error:
        return unclear(f"The edit of {name_of(child)} cannot be repeated: {error}")
    if not wrong and torch.equal(child.model, parent.model) and drawn_plan(parent).first_involvement(child.request):
        return unclear(
            f"The model of {name_of(child)} is its parent's in every bit, though what was to be forgotten was drawn: "
            f"{name!r} changed nothing, whatever it does where it is sampled."
        )
    if not wrong:
        return holds(f"The model of {name_of(child)} is what {name!r} makes of its parent's model, with its messages.")
    if elsewhere := case.rerun.elsewhere(child):
        return unclear(f"The edit of {name_of(child)} gives other bits on this platform: {elsewhere[0]}.")
    return fails(wrong[0])


def _left_alone(child: Run, parent: Run) -> Plan:
    """The parent's plan, less what is erased."""
    return drawn_plan(parent).erase(child.request, parent.fresh(child.request), END)


def _differences(case: Case, child: Run, parent: Run, name: str) -> Iterator[str]:
    """What of an edit is another thing when it is made again; FuauditError where the editor cannot do it."""
    draws = child.stage_draws(child.plan)
    model, messages = edited(
        case.rerun.ready,
        drawn_plan(parent),
        child.plan,
        child.unlearner,
        name,
        parent.model,
        parent.models,
        draws=draws,
    )
    if not torch.equal(model, child.model):
        yield f"The model of {name_of(child)} is not what {name!r} makes of its parent's model."
    if [asdict(message) for message in messages] != child.document(EDIT)["messages"]:
        yield f"{EDIT} of {name_of(child)} does not hold the messages that {name!r} sends."


def _missing(case: Case, child: Run, parent: Run | Tombstone) -> str:
    """Why an edit cannot be made again here; "" where it can."""
    if isinstance(parent, Tombstone):
        return "its parent was pruned"
    if other := made_by_another(child):
        return other
    if case.dataset is None:
        return "the data is not at hand"
    count = len(_read(child, parent) & _strange(case))
    told = "is not at hand as it was" if count == 1 else "are not at hand as they were"
    return f"{counted(count, 'row')} that it reads {told} committed to" if count else ""


def _read(child: Run, parent: Run) -> Set[int]:
    """The training rows that an editor may read by what it declares; scaling looks at all rows of a population."""
    who = child.unlearner.participants
    if "target" in who:
        return parent.plan.retained.owner.keys()
    return child.plan.retained.owner.keys() if "retained clients" in who else frozenset()


def _strange(case: Case) -> set[int]:
    """The rows that are absent, and those under erased ids of which nobody can say that they open their leaves."""
    here = case.evidence.at_hand
    return {*case.evidence.rows.absent, *here.other, *here.unknown}
