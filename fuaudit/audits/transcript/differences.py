"""Differences: sums of two runs that tell a row together, though neither tells one alone.

All buffers of a round add up to the sum of all rows, whoever was in which. Where a run and an ancestor both opened a
round from one model, and clients send what they sent before, the difference of the two totals is the row of who was
erased between them. Noise that each request draws anew covers it. A model that is a little beside the other makes rows
that are a little beside the others, so models are compared by their distance.

Within one run no two sums are of nearly the same rows: buffers of a round have no client in common, and each is opened
once, as the recheck asks; rounds have batches of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor

from fuaudit.audits.provenance.view import other_contexts
from fuaudit.audits.transcript.known import told_rounds
from fuaudit.draws import START
from fuaudit.registry import build
from fuaudit.runs.ledger import suite_of
from fuaudit.runs.noise import noise_of, step_of
from fuaudit.runs.run import Run
from fuaudit.runs.tombstone import Tombstone
from fuaudit.secure.recheck.shown import Wrong
from fuaudit.training.federation import per_client_state
from fuaudit.training.rounds import SERVER, State, inherited, owner_of
from fuaudit.verification.case import Case

NO_NOISE = ", without noise that was drawn anew: their difference is the row of who was erased"
NOT_KEPT = "what is stored after this round is not what {parent} stores, from which the run goes on"
NEAR = 16
"""Models that are no more steps of what is sent beside each other are taken for one."""
RELATIVE = 2.0**-10
"""Where nothing is sent in steps: this share of the largest number of a model is the step."""
UNSEEN = (
    "The messages are those of the protocol. An ancestor that is not at hand as a whole may have opened rounds from "
    "the same models, and the difference of such sums tells the row of who was erased."
)
SUBTRACTED = (
    "The messages are those of the protocol. Sums were opened of an ancestor too, and clients of this run draw no "
    "noise anew. How much of the row of who was erased the difference of such sums tells, is a matter of the models "
    "and of the data."
)
TOO_LITTLE = (
    "The messages are those of the protocol. Sums were opened of an ancestor too, and {noise}. Below one step it hides "
    "no more than rounding does: the difference of such sums can be the row of who was erased."
)
COVERED = (
    "Noise covers what the sums of this run and of its ancestors tell together: {noise}. Whether that is enough is not "
    "judged here. Its epsilon is what counts: fuaudit budget run{of_whom}."
)
OF_THE_WHOLE = ", of the whole run, for a view has no account"
CANCELS = (
    "Clients remember what was not sent in front of that noise, so each round takes back the noise of the one before: "
    "in the totals of several rounds there is the noise of one, and there is no epsilon of sums."
)


def runs_above(case: Case) -> list[Run]:
    """The ancestors at hand, the parent first."""
    return [one for one in case.evidence.ancestors if isinstance(one, Run)]


def telling_differences(case: Case) -> Iterator[Wrong]:
    """Rounds that the run and an ancestor at hand both opened from one model, without noise that was drawn anew.

    A child takes its suite from its parent. One whose ancestor names none, or another, is shown beside another training
    of the same digest, whose transcript tells nothing of what was opened. It goes on from what its parent stores.
    """
    suite, runs = suite_of(case.run.ledger), runs_above(case)
    for ancestor in runs:
        if (other := suite_of(ancestor.ledger)) != suite:
            named = "no suite" if other is None else repr(other)
            said = f"the ledger of {ancestor.path.name} names {named}, and {suite!r} made the sums of this run"
            yield Wrong("suite", f"{said}: a child takes it from its parent")
    for child, parent in pairwise((case.run, *case.evidence.ancestors)):
        if isinstance(child, Run) and isinstance(parent, Run) and other_contexts(child, parent):
            said = f"the contexts of {child.path.name} do not go on from those of {parent.path.name}"
            yield Wrong("context", f"{said}, and they are under every signature")
    yield from _not_kept(case)
    if not case.run.is_child or noise_of(case.run) is not None:
        return
    for ancestor in runs:
        if suite_of(ancestor.ledger) == suite:
            for number in sorted(_rounds(case.run) & _rounds(ancestor)):
                if _are_near(case.run, _before(case.run, number), _before(ancestor, number)):
                    where = f"sums of this round were opened here and in {ancestor.path.name} from one model"
                    yield Wrong("difference", where + NO_NOISE, number)


def uncovered(case: Case) -> str:
    """Why sums of an ancestor and those of the run may tell a row together, as a sentence; empty where noise covers it.

    Without noise nobody can say that they do not. Of noise that is below a step nobody can either.
    """
    noise = noise_of(case.run)
    if noise is not None:
        return "" if noise.hides or not case.run.is_child else TOO_LITTLE.format(noise=noise.in_words)
    if any(isinstance(one, Tombstone) for one in case.evidence.ancestors) or not case.evidence.complete_lineage:
        return UNSEEN
    return SUBTRACTED if case.run.is_child else ""


def covered_by(case: Case) -> list[str]:
    """What a PASS of a child takes on trust of the noise on its sums."""
    noise = noise_of(case.run)
    if noise is None or not case.run.is_child:
        return []
    of_whom = OF_THE_WHOLE if case.run.sealed else ""
    return [COVERED.format(noise=noise.in_words, of_whom=of_whom), *[CANCELS] * noise.cancels]


def _not_kept(case: Case) -> Iterator[Wrong]:
    """Rounds that the run keeps of its parent, and of which it stores something else."""
    run, parent = case.run, case.parent
    if not run.is_child or run.by_editor or not isinstance(parent, Run) or run.info["first_change"] == list(START):
        return
    (told,) = run.ledger.of_kind("unlearning")
    of_server = any(one.redacted or one.sealed for one in (run, parent))
    for number in sorted({*run.checkpoints} & {*parent.checkpoints}):
        if number <= told["kept_rounds"]:
            kept, due = run.checkpoint(number), _without_erased(run, parent, *parent.checkpoint(number))
            if _stored(*kept, of_server) != _stored(*due, of_server):
                yield Wrong("beginning", NOT_KEPT.format(parent=parent.path.name), number)


def _without_erased(run: Run, parent: Run, vector: Tensor, state: State) -> tuple[Tensor, State]:
    """Model and memories of a parent's round as a child keeps them: of clients who are left."""
    tables = per_client_state(build("solvers", run.config.solver), run.exchange)
    return vector, inherited(state, tables, parent.members, run.members)


def _stored(vector: Tensor, state: State, of_server: bool) -> dict[str, bytes]:
    """The bytes of a model and of memories, or of the server's alone where no other ones are stored."""
    kept = {name: tensor for name, tensor in state.items() if not of_server or owner_of(name) == SERVER}
    return {name: tensor.contiguous().numpy().tobytes() for name, tensor in {"": vector, **kept}.items()}


def _are_near(run: Run, one: Tensor, other: Tensor) -> bool:
    """Whether clients send from two models what differs by little; also where numbers are not finite."""
    if one.shape != other.shape:
        return False
    one, other = one.to(torch.float64), other.to(torch.float64)
    step = step_of(run) or RELATIVE * float(torch.maximum(one.abs().max(), other.abs().max()))
    return not bool(((one - other).abs() > NEAR * step).any())


def _rounds(run: Run) -> set[int]:
    return {event["round"] for event in told_rounds(run)}


def _before(run: Run, number: int) -> Tensor:
    """The model before a round ``(d,)``."""
    return run.checkpoint(number - 1)[0]
