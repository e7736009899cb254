"""Unlearn: from a run and a request to a child run. The parent is never edited."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fuaudit import registry
from fuaudit.commitments.secrets import Renewal
from fuaudit.config import Config
from fuaudit.data.dataset import Dataset
from fuaudit.declared import says
from fuaudit.draws import END, START, Draws, Position
from fuaudit.errors import PluginError, UsageError
from fuaudit.formats.files import claimed
from fuaudit.plans import Plan, Request
from fuaudit.plans.population import require_request
from fuaudit.plans.stacked import LazySchedule
from fuaudit.plans.stage_draws import PlannedDraws, keeps_draws
from fuaudit.plans.veil import rewritten
from fuaudit.progress import Progress, silent
from fuaudit.renamed import renamed
from fuaudit.runs.layout import EDIT, stored_rounds
from fuaudit.runs.ledger import Ledger, suite_of
from fuaudit.runs.names import require_committed
from fuaudit.runs.platforms import Platform, platforms_kept
from fuaudit.runs.run import Run, load_run
from fuaudit.training.engines.protocol import threads_restored
from fuaudit.training.execute import state_without
from fuaudit.training.rounds import State
from fuaudit.training.setup import Setup, depended_on, depending, setup
from fuaudit.unlearning.apply import edited, unlearner_record
from fuaudit.unlearning.protocol import doubts_of, doubts_of_law, is_editor, is_mutant
from fuaudit.workflow.memory import require_memory
from fuaudit.workflow.receiving import receiving, size_of_records
from fuaudit.workflow.secured import books_of, require_fresh_noise, require_secured, secured
from fuaudit.workflow.train import complete, finish, size_of_run
from fuaudit.workflow.writer import RunWriter, require_new, require_space

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Unlearning:
    """A plan rewritten: what is kept, from which round on models must be computed again, and why to doubt it."""

    plan: Plan
    first_change: Position
    doubts: tuple[str, ...] = ()

    def first_round(self, rounds_executed: int) -> int:
        """The first round to execute, from 1; one more than ``rounds_executed`` when no executed round changed."""
        return min(max(self.first_change.round, 1), rounds_executed + 1)


@renamed(anyway="allow_inexact", root="data", dataset="data")
@threads_restored()
def unlearn(
    parent: Run | Path | str,
    name: str,
    request: Request,
    out: Path | str,
    options: Mapping[str, object] | None = None,
    data: Path | str | Dataset | None = None,
    progress: Progress = silent,
    allow_inexact: bool = False,
) -> Run:
    """Carry out a request on a run with an unlearner, and save the child run.

    Args:
        allow_inexact: carry it out with a rewriter that is not exact for this run and request, although it is for
            others. Such a run can be made, and refuted; it records why it was doubted, and so do its children.

    Raises:
        UsageError: unknown unlearner, option, client or sample; a folder that exists; more requests than the commitment
            has room for; without ``allow_inexact``, a rewriter that is exact for other laws, solvers or servers than
            those of the run.
        EvidenceError: the parent does not check out.
        PluginError: the unlearner raised or touched what it had not declared.
    """
    with begun_child(parent, name, request, out, options, data, allow_inexact) as child:
        return carry_out(child.writer, child.ready, child.parent, child.plan, progress)


@dataclass(frozen=True)
class Child:
    """A child that is begun: its plan and its request are written, and no round yet."""

    writer: RunWriter
    ready: Setup
    parent: Run
    plan: Plan


@contextmanager
def begun_child(
    parent: Run | Path | str,
    name: str,
    request: Request,
    out: Path | str,
    options: Mapping[str, object] | None,
    data: Path | str | Dataset | None,
    allow_inexact: bool,
    received: bool = False,
) -> Iterator[Child]:
    """Begin a child run; see :func:`unlearn`. Its folder is held as long as the context lasts.

    ``received``: whether the rounds that it does not keep come in messages.
    """
    require_request(request)
    run = parent if isinstance(parent, Run) else load_run(parent)
    out = Path(out)
    require_new(out)
    if options and "use" in options:
        raise UsageError("use is no option of an unlearner", f"Which one to use is said already: {name!r}.")
    unlearner = registry.build("unlearners", {**(options or {}), "use": name})
    editor, entry = is_editor(unlearner), registry.find("unlearners", name)
    if editor and received:
        raise UsageError(f"{name!r} edits models: it leaves no round that could come in messages")
    record = unlearner_record(entry, unlearner)
    require_fresh_noise(run, unlearner)
    fresh = run.fresh(request)
    run.plan.retained.without(request)  # says what is unknown
    if editor:
        change = _all_kept(run, name, request, fresh)
    else:
        change = _rewritten(run, unlearner, name, request, fresh, allow_inexact)
        _require_memories(run, change, received)
        if run.rests_on_messages and not received and not allow_inexact:
            raise UsageError(
                f"rounds of {run.path} came in messages, and no audit can show that a child forgets what was in them",
                "Say --allow-inexact (in Python allow_inexact=True) to make a run of which all else can be verified.",
            )
    if unlearner_record(entry, unlearner) != record:
        raise PluginError(
            f"unlearner {name!r} wrote into its own options while it rewrote the plan",
            "An option is what was asked for, before anything was drawn: audits build the unlearner with it again.",
        )
    ready = setup(run.config, data, run.rows).turned(run.owner)
    require_committed(run, ready.dataset)
    records = size_of_records(receiving(ready), change.plan.retained) if received else 0
    if not editor and not received:
        require_secured(ready, suite_of(run.ledger), change.plan.retained, apart=False)
    require_memory(ready, change.plan.retained)
    require_space(out, size_of_run(ready, change.plan.retained) + records)
    info: dict[str, Any] = {
        "kind": "unlearning",
        "rounds_executed": run.plan.law.rounds,
        "parent": {"digest": run.digest, "name": run.path.resolve().name},
        "unlearner": record,
        "first_change": list(change.first_change),
        "doubts": list(change.doubts),
    }
    info |= {"edited_by": name} if editor else {"received": True} if received else {}
    renewal = Renewal(run.commitment, fresh.context, info["unlearner"], run.rounds_executed)
    secrets = run.secrets and run.secrets.after(change.plan.retained.samples, renewal)
    with claimed(out):
        writer = RunWriter(out, Ledger(time=run.ledger.time))
        suite = None if received else suite_of(run.ledger)
        writer.begin(run.foundation, info, change.plan, secrets, (*run.requests, request), run.beacon, suite)
        yield Child(writer, ready, run, change.plan)


def _require_memories(run: Run, change: Unlearning, received: bool) -> None:
    """Raises UsageError where rounds would go on from what clients keep, and nothing says what that is.

    Of rounds that came in messages only clients know it; of simulated ones those who would answer do not.
    """
    kept = change.first_round(run.rounds_executed) > 1
    if run.exchange.clients_keep and kept and run.rests_on_messages != received:
        before, after = ("came in messages", "simulated") if run.rests_on_messages else ("were simulated", "received")
        raise UsageError(
            f"rounds that would be kept of {run.path} {before}, so those after them cannot be {after}: clients keep "
            "something from round to round",
            "Use 'retrain', which keeps nothing; or let the rounds come from where they came before.",
        )


def _all_kept(run: Run, name: str, request: Request, fresh: Draws) -> Unlearning:
    """For an editor: the whole plan, less what is erased. Raises UsageError where there is no final model to edit."""
    if run.rounds_executed < run.plan.law.rounds:
        raise UsageError(
            f"{name!r} edits final models; training of {run.path} was stopped after round {run.rounds_executed}"
        )
    return Unlearning(run.plan.erase(request, fresh, END), END, tuple(run.info.get("doubts", ())))


def _rewritten(
    run: Run, unlearner: object, name: str, request: Request, fresh: Draws, allow_inexact: bool
) -> Unlearning:
    """For a rewriter: the plan that it makes. Raises UsageError where it has doubts and ``allow_inexact`` is not said.

    A rewriter that promises nothing cannot break a promise, and a mutant is there to break one: their doubts are
    recorded, and they are never refused.
    """
    law = run.plan.law
    promises = bool(says(unlearner, "exact_for")) and not is_mutant(unlearner)
    if promises and not allow_inexact:
        # before the rewriter runs on a law that it may not know
        _refuse(doubts_of_law(unlearner, name, law.name, request.kind))
    plan = rewritten(unlearner, name, run.plan, request, fresh, run.next_position)
    first = plan.first_change(run.plan)
    if "edited_by" in run.info and plan.redrawn_from(first) != START:
        raise UsageError(
            f"the model of {run.path} was edited by {run.info['edited_by']!r}: its plan does not make its model",
            "Only an unlearner that keeps nothing, such as retrain, can go on from here.",
        )
    if plan.mixes_generations:
        raise UsageError(
            f"{name!r} uses draws of one request over the population of another",
            "What is drawn for a population serves that one only: put the fresh source with the last population.",
        )
    known, earlier = depended_on(run.config, request), run.info.get("doubts", [])
    if known and run.exchange.draws and keeps_draws(plan, len(run.requests) + 1):
        # a kept round is executed again over other rows with the same noise: parent minus child has none left
        raise UsageError(
            f"rounds that {name!r} keeps depend on {known}, and would be made again with the noise that they had: "
            f"{depending(run.config, request)}",
            "The difference of the two models would have no noise in it. Use 'retrain', which draws all of it anew.",
        )
    doubts = doubts_of(unlearner, name, law, request, known, plan.redrawn_from(first), earlier)
    if promises and not allow_inexact:
        _refuse(doubts, depending(run.config, request) if doubts else "")
    return Unlearning(plan, first, doubts)


def _refuse(doubts: Sequence[str], depending: str = "") -> None:
    """Raises UsageError where there are doubts; what rounds depend on is told by which part it comes from."""
    if doubts:
        raise UsageError(
            "; ".join((*doubts, *filter(None, [depending]))),
            "Use 'retrain', which keeps nothing; or say --allow-inexact (in Python allow_inexact=True) to make a run "
            "that audits can refute.",
        )


def carry_out(
    writer: RunWriter,
    ready: Setup,
    parent: Run,
    plan: Plan,
    progress: Progress,
    draws: Sequence[PlannedDraws] = (),
    apart: bool = False,
) -> Run:
    """Compute the models of a child run whose plan is written, and seal it; also the second half of a resume.

    ``draws``: of stages, for the self-test; by default those of the run. ``apart`` as in ``train``.
    """
    if is_editor(writer.run.unlearner):
        record_request(writer, parent)
        return _edit(writer, ready, parent, plan)
    keep_rounds(writer, ready, parent, plan)
    with secured(ready, suite_of(writer.ledger), books_of(writer, plan), apart) as sums:
        return finish(writer, sums, plan, plan.law.rounds, progress, draws=draws)


def keep_rounds(writer: RunWriter, ready: Setup, parent: Run, plan: Plan) -> None:
    """Write what a child of a rewriter keeps of its parent, and what its ledger tells before its first round."""
    record_request(writer, parent)
    change = Unlearning(plan, plan.first_change(parent.plan))
    writer.keep_received(parent, change.first_round(parent.rounds_executed))
    for round_number in sorted({*kept_of(ready.config, parent, plan)} - {*writer.stored}):
        writer.checkpoint(round_number, *as_kept(ready, parent, plan, round_number))
    done = max(writer.stored, default=0)
    before_a_kill = writer.ledger.of_kind("unlearning")
    kept_rounds = before_a_kill[0]["kept_rounds"] if before_a_kill else done
    writer.record_platform(Platform.here(ready, done), platforms_kept(parent.ledger, kept_rounds))
    if not before_a_kill:
        writer.record("unlearning", first_change=list(change.first_change), kept_rounds=done)


def kept_of(config: Config, parent: Run, plan: Plan) -> tuple[int, ...]:
    """The rounds of its parent whose models a child of a rewriter stores, ascending."""
    change = Unlearning(plan, plan.first_change(parent.plan))
    if change.first_change == START:
        return ()
    first = change.first_round(parent.rounds_executed)
    # only those that training on would have stored: the round after which training was stopped is no such round
    to_store = stored_rounds(config.run.checkpoint_every, plan.law.rounds)
    return tuple(number for number in parent.checkpoints if number < first and number in to_store)


def as_kept(ready: Setup, parent: Run, plan: Plan, round_number: int) -> tuple[Tensor, State]:
    """Model ``(d,)`` and state of a parent after a round, as a child keeps them: without rows of who is erased."""
    vector, state = parent.checkpoint(round_number)
    return vector, state_without(ready.procedure, state, parent.plan.retained, plan.retained)


def record_request(writer: RunWriter, parent: Run) -> None:
    """Tell the ledger of a child what was asked for, and of which run; unless it was told before a kill."""
    if not writer.ledger.of_kind("request"):
        asked = writer.run.request
        writer.record("request", clients=list(asked.clients), samples=list(asked.samples), parent=parent.digest)


def _edit(writer: RunWriter, ready: Setup, parent: Run, plan: Plan) -> Run:
    """Run an editor in a context that holds what it declared, and store the one model it returns."""
    writer.record_platform(Platform.here(ready, 0))
    unlearner, name, draws = writer.run.unlearner, writer.run.info["unlearner"]["use"], writer.run.stage_draws(plan)
    vector, messages = edited(ready, parent.plan, plan, unlearner, name, parent.model, parent.models, draws=draws)
    traffic = [asdict(message) for message in messages]
    if not writer.ledger.of_kind("unlearning"):
        writer.record("unlearning", messages=len(traffic), bytes=sum(m["size"] for m in traffic))
    writer.write(EDIT, {"messages": traffic})
    writer.checkpoint(plan.law.rounds, vector, {})
    return complete(writer, ready, plan.retained, LazySchedule([plan]))
