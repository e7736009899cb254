"""Level 3: keys follow from commitments, plans are rewrites of their parents' plans, the erased is in no draw.

Every link of the lineage is checked, up to the training run: what an ancestor says of itself is not believed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, pairwise

import torch

from fuaudit import registry
from fuaudit.data.partition import partition
from fuaudit.draws import END, Keyed, Stream
from fuaudit.errors import FuauditError
from fuaudit.plans import Plan
from fuaudit.plans.plan import occurrences
from fuaudit.runs.keys import RunKeys, digest_of_key, initial_key
from fuaudit.runs.prune import Tombstone
from fuaudit.runs.run import Run
from fuaudit.training.setup import depended_on
from fuaudit.unlearning.apply import edited, provenance, rewritten
from fuaudit.unlearning.protocol import is_editor
from fuaudit.verification.case import Case, drawn_plan
from fuaudit.verification.finding import Finding, Subject, Verdict

SHOWS_NOT = "It does not show that the method has the right law; that is for enumeration."


@dataclass(frozen=True)
class Answer:
    """The outcome of one question of this audit."""

    verdict: Verdict
    text: str


@dataclass(frozen=True)
class PlanAudit:
    """Asks for the commitment, the training plan, every child's keys and rewrite, the request, and the draws."""

    def examine(self, case: Case) -> Finding:
        """FAIL if any answer is; INCONCLUSIVE if one is missing; PASS otherwise."""
        chain = (case.run, *case.ancestors)
        answers = [own_commitment(run) for run in chain if isinstance(run, Run)]
        answers += [anchor(case), training(case)]
        for child, parent in pairwise(chain):
            if isinstance(child, Run):
                answers += [child_keys(child, parent), recomputed(case, child, parent)]
        if case.run.is_child:
            answers += [asked(case), absence(case), key_reuse(case.run.plan), initial_draw(case)]
        verdicts = [answer.verdict for answer in answers]
        worst = next((v for v in (Verdict.FAIL, Verdict.INCONCLUSIVE) if v in verdicts), Verdict.PASS)
        shows = next(answer.text for answer in answers if answer.verdict is worst)
        if worst is Verdict.PASS and case.run.is_child:
            shows = _all_well(case)
        return Finding(
            "plan",
            Subject.RUN,
            worst,
            shows,
            SHOWS_NOT,
            {"nothing_to_forget": never_drawn(case), "links": len(chain) - 1},
            assumptions=self._assumptions(case),
            details=tuple(dict.fromkeys(f"{a.verdict}: {a.text}" for a in answers)),
        )

    def _assumptions(self, case: Case) -> tuple[str, ...]:
        lines = []
        if case.run.is_child:
            lines.append("The request did not depend on the draws or on published models (non-adaptive).")
        if case.commitment is None:
            lines.append("The commitment is not anchored outside: no --commitment was given to compare with.")
        if case.run.is_child and case.expected is None:
            lines.append(
                "The request is the one that the run names: no --client or --sample was given to compare with."
            )
        if any(isinstance(run, Tombstone) for run in case.ancestors):
            lines.append("An ancestor was pruned: kept draws are as recorded then, and its rewrite was not repeated.")
        if len(case.run.requests) > 1:
            lines.append(
                f"The {len(case.run.requests) - 1} earlier requests were really made: each gives other keys to all "
                "that follow, so whoever could invent some could choose among them."
            )
        if case.stopped:
            lines.append(f"Training really was stopped for a request after round {case.parent.executed}.")  # type: ignore[union-attr]
        return tuple(lines)


def _all_well(case: Case) -> str:
    """What a PASS shows."""
    if case.is_editor:
        return "The model is what the named method makes of the parent's, with keys that follow from the commitment."
    if any(isinstance(run, Tombstone) for run in case.ancestors):
        return (
            "Keys and partition are those committed to, and nothing in the plan was to be forgotten. An ancestor was "
            "pruned: its rewrite was not repeated, and kept draws are taken as recorded."
        )
    return "The plan follows from committed keys by the named method; nothing in it was to be forgotten."


def _name(run: Run | Tombstone) -> str:
    return run.path.name


def own_commitment(run: Run) -> Answer:
    """The first event of a run commits to the keys, the config and the partition that the run holds."""
    first = run.ledger.events[0]
    if first["event"] != "commitment":
        return Answer(Verdict.FAIL, f"The ledger of {_name(run)} does not begin with a commitment.")
    if run.commitment is None:
        return Answer(Verdict.INCONCLUSIVE, f"The keys of {_name(run)} were destroyed.")
    if run.commitment != first.get("commitment"):
        return Answer(Verdict.FAIL, f"{_name(run)} does not hold the keys, config and partition that it committed to.")
    return Answer(Verdict.PASS, f"{_name(run)} holds what it committed to: {run.commitment}.")


def anchor(case: Case) -> Answer:
    """What the auditor received before training is the commitment of the training run, or of a run since."""
    if case.commitment is None:
        return Answer(Verdict.PASS, "No commitment from outside was given.")
    if case.commitment in {run.commitment for run in (case.run, *case.ancestors)}:
        return Answer(Verdict.PASS, "A run of this lineage committed to what was received from outside.")
    if not case.complete_lineage:
        return Answer(Verdict.INCONCLUSIVE, "The run that the commitment may belong to is not at hand.")
    return Answer(Verdict.FAIL, "No run of this lineage committed to what --commitment says.")


def training(case: Case) -> Answer:
    """The oldest run is a training run, drawn as a whole from one key, with the partition that this key deals."""
    root = (case.run, *case.ancestors)[-1]
    if isinstance(root, Tombstone):
        return Answer(Verdict.PASS, f"{_name(root)} was pruned; its commitment is {root.commitment}.")
    if root.is_child:
        return Answer(Verdict.INCONCLUSIVE, f"The parent of {_name(root)} is not at hand.")
    if len(root.plan.sources) != 1 or not isinstance(root.plan.sources[0], Keyed):
        return Answer(Verdict.FAIL, f"{_name(root)} was not drawn from one key.")
    fresh = Plan.fresh(root.plan.law, root.original, root.plan.sources[0])
    if drawn_plan(root) != fresh:
        return Answer(Verdict.FAIL, f"The plan of {_name(root)} was not drawn as a whole.")
    if case.dataset is None:
        return Answer(Verdict.INCONCLUSIVE, "The data is not at hand: the partition cannot be dealt again.")
    if case.dataset.absent:
        return Answer(Verdict.PASS, "Rows are absent from the data, so the partition is taken from the commitment.")
    dealt = partition(registry.build("partitions", root.config.partition), case.dataset, root.plan.sources[0])
    if dealt.samples != root.original.samples:
        return Answer(Verdict.FAIL, f"The partition of {_name(root)} is not the one that its key deals.")
    return Answer(Verdict.PASS, f"{_name(root)} was drawn as a whole from one key, the partition too.")


def child_keys(child: Run, parent: Run | Tombstone) -> Answer:
    """A child's keys follow from the parent's, its commitment and the request."""
    if child.run_keys is None:
        return Answer(Verdict.INCONCLUSIVE, f"The keys of {_name(child)} were destroyed.")
    if isinstance(parent, Tombstone):
        if parent.children is None:
            return Answer(Verdict.INCONCLUSIVE, f"The key of the children of {_name(parent)} was destroyed.")
        above = RunKeys(bytes(32), bytes.fromhex(parent.children))
    elif parent.run_keys is None:
        return Answer(Verdict.INCONCLUSIVE, f"The keys of {_name(parent)} were destroyed.")
    else:
        above = parent.run_keys
    if above.child(str(parent.commitment), child.request) != child.run_keys:
        return Answer(Verdict.FAIL, f"The keys of {_name(child)} do not follow from its parent and the request.")
    return Answer(
        Verdict.PASS, f"The keys of {_name(child)} follow from its parent's key and commitment, and the request."
    )


def recomputed(case: Case, child: Run, parent: Run | Tombstone) -> Answer:
    """The installed unlearner, as recorded, makes this plan (or model) of the parent's, with the child's key."""
    name, law = child.info["unlearner"]["use"], child.plan.law
    if child.executed != law.rounds:
        return Answer(Verdict.FAIL, f"{_name(child)} was stopped after round {child.executed} of {law.rounds}.")
    recorded = child.info["unlearner"]
    installed = provenance(registry.find("unlearners", name), child.unlearner)
    if any(installed[word] != recorded.get(word) for word in ("distribution", "version")):
        return Answer(
            Verdict.INCONCLUSIVE,
            f"{_name(child)} was made by {recorded.get('distribution')} {recorded.get('version')}, "
            f"installed is {installed['distribution']} {installed['version']}.",
        )
    if installed != recorded:
        return Answer(Verdict.FAIL, f"{_name(child)} describes {name!r} in words that are not the plugin's own.")
    if isinstance(parent, Tombstone):
        if parent.files["config.toml"] != child.files["config.toml"]:
            return Answer(Verdict.FAIL, f"{_name(child)} has another config than its pruned parent.")
        return Answer(Verdict.PASS, f"The rewrite of {_name(child)} is not repeated: its parent was pruned.")
    if parent.requests != child.requests[:-1]:
        return Answer(Verdict.FAIL, f"The requests of {_name(child)} do not continue those of its parent.")
    fresh = Keyed(bytes.fromhex(child.keys["draws"][-1]))
    if is_editor(child.unlearner):
        return _edit_recomputed(case, child, parent, fresh)
    expected = rewritten(child.unlearner, name, drawn_plan(parent), child.request, fresh, parent.next_position)
    same = child.config == parent.config and child.info["first_change"] == list(expected.first_change(parent.plan))
    same = same and (_same_draws(expected, child.plan) if child.pruned else expected == child.plan)
    if not same:
        return Answer(Verdict.FAIL, f"The plan of {_name(child)} is not what {name!r} makes of its parent's plan.")
    return Answer(Verdict.PASS, f"The plan of {_name(child)} is what {name!r} makes of its parent's plan.")


def _same_draws(expected: Plan, found: Plan) -> bool:
    """Whether two plans are one history over one retained population, whatever keys or records they come from.

    So a run that was pruned while its parent still lies beside it (a prune that was interrupted) can be compared.
    """
    return (
        expected.retained.samples == found.retained.samples
        and expected.history() == found.history()
        and bool((expected.initial_uniform(4) == found.initial_uniform(4)).all())
    )


def _edit_recomputed(case: Case, child: Run, parent: Run, fresh: Keyed) -> Answer:
    """The installed editor makes this model of the parent's."""
    name = child.info["unlearner"]["use"]
    if case.dataset is None:
        return Answer(Verdict.INCONCLUSIVE, "The data is not at hand: the edit cannot be repeated.")
    plan = drawn_plan(parent)
    if plan.erase(child.request, fresh, END) != child.plan:
        return Answer(Verdict.FAIL, f"The plan of {_name(child)} is not its parent's, which an editor leaves alone.")
    try:
        model, _ = edited(
            case.ready, plan, plan.erase(child.request, fresh, END), child.unlearner, name, parent.model, parent.models
        )
    except FuauditError as error:
        return Answer(Verdict.INCONCLUSIVE, f"The edit of {_name(child)} cannot be repeated: {error}")
    if torch.equal(model, child.model):
        return Answer(Verdict.PASS, f"The model of {_name(child)} is what {name!r} makes of its parent's model.")
    if case.same_platform:
        return Answer(Verdict.FAIL, f"The model of {_name(child)} is not what {name!r} makes of its parent's model.")
    return Answer(Verdict.INCONCLUSIVE, f"The edit of {_name(child)} gives other bits on this platform.")


def asked(case: Case) -> Answer:
    """The run carries out the request that the auditor has in hand, and its ledger says so."""
    request = case.run.request
    events = case.run.ledger.of_kind("request")
    logged = [(tuple(e.get("clients", ())), tuple(e.get("samples", ()))) for e in events]
    if logged != [(request.clients, request.samples)]:
        return Answer(Verdict.FAIL, "The request in the ledger is not the one in the plan.")
    if case.expected is not None and case.expected != request:
        return Answer(Verdict.FAIL, f"The run forgets {request}; asked for was {case.expected}.")
    return Answer(Verdict.PASS, f"The run carries out the request to forget {request}.")


def absence(case: Case) -> Answer:
    """No draw of the expanded plan holds what was to be forgotten, in any of the requests so far."""
    plan = case.run.plan
    if case.run.executed != plan.law.rounds:
        return Answer(Verdict.FAIL, "The run was stopped: not all of its draws were executed.")
    if case.is_editor:
        return Answer(Verdict.PASS, "An edited model has no plan of its own; absence is not a question of draws.")
    clients = {c for request in case.run.requests for c in request.clients}
    samples = {s for request in case.run.requests for s in request.samples}
    allowed = plan.retained.samples
    for round in range(1, plan.law.rounds + 1):
        cohort = plan.cohort(round)
        strangers = [c for c in cohort if c in clients or c not in allowed]
        if strangers:
            return Answer(Verdict.FAIL, f"Round {round} draws client {strangers[0]}, which was to be forgotten.")
        for client, occurrence in occurrences(cohort):
            own = set(allowed[client])
            for step in range(1, plan.law.steps + 1):
                wrong = [s for s in plan.batch(round, step, client, occurrence) if s in samples or s not in own]
                if wrong:
                    where = f"Round {round}, step {step} draws sample {wrong[0]} of client {client}"
                    return Answer(Verdict.FAIL, f"{where}, which was to be forgotten.")
    return Answer(Verdict.PASS, "No draw at any position holds anything that was to be forgotten.")


def key_reuse(plan: Plan) -> Answer:
    """No key serves two populations, so no random number is used twice."""
    keys = [source for source in plan.sources if isinstance(source, Keyed)]
    if len(set(keys)) != len(keys):
        return Answer(Verdict.FAIL, "One key appears as two sources: a draw would be used twice.")
    versions: dict[object, set[int]] = {}
    drawn = (plan.streams[stream] for stream in (Stream.COHORTS, Stream.BATCHES))
    for segment in chain.from_iterable(drawn):
        source = plan.sources[segment.source]
        if isinstance(source, Keyed):
            versions.setdefault(source, set()).add(segment.version)
    if any(len(found) > 1 for found in versions.values()):
        return Answer(Verdict.FAIL, "A key of an earlier population was used again over a smaller one.")
    return Answer(Verdict.PASS, "Every key was used over one population only.")


def initial_draw(case: Case) -> Answer:
    """Where a prune kept only the key of the initial draw, it is the one that was committed to."""
    kept = case.run.keys.get("initial")
    if kept is None or isinstance(case.run.plan.sources[case.run.plan.streams[Stream.INITIAL][0].source], Keyed):
        return Answer(Verdict.PASS, "The initial model is drawn from a key of the run.")
    oldest_first = (case.run, *case.ancestors)[::-1]
    maker = oldest_first[kept["source"]] if case.complete_lineage and kept["source"] < len(oldest_first) else None
    if isinstance(maker, Run) and maker.run_keys is not None:  # a prune that was interrupted
        committed = digest_of_key(initial_key(maker.run_keys.draws))
    elif isinstance(maker, Tombstone):
        committed = maker.initial_digest
    else:
        return Answer(Verdict.INCONCLUSIVE, "The run that drew the initial model is not at hand.")
    if digest_of_key(bytes.fromhex(kept["key"])) != committed:
        return Answer(Verdict.FAIL, "The key of the initial model is not the one that was committed to.")
    return Answer(Verdict.PASS, "The key kept for the initial model is the one that was committed to.")


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
    return "yes: it was never drawn, this run contains nothing to forget"
