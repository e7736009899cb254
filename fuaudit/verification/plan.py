"""Level 3: keys follow from commitments, the plan is the rewrite of the parent's plan, the erased is in no draw."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fuaudit import registry
from fuaudit.draws import END, Keyed, Position
from fuaudit.errors import FuauditError
from fuaudit.plans import Plan
from fuaudit.plans.plan import occurrences
from fuaudit.runs.keys import RunKeys, commitment, digest_of_key
from fuaudit.runs.prune import Tombstone
from fuaudit.runs.run import Run, segment_rows
from fuaudit.unlearning.apply import edited, rewritten
from fuaudit.verification.case import Case
from fuaudit.verification.finding import Finding, Subject, Verdict

SHOWS_NOT = "It does not show that the method has the right law; that is for enumeration."


@dataclass(frozen=True)
class Answer:
    """The outcome of one question of this audit."""

    verdict: Verdict
    text: str


@dataclass(frozen=True)
class PlanAudit:
    """Four questions: the commitment, the child's keys, the rewrite, and the draws."""

    def examine(self, case: Case) -> Finding:
        """FAIL if any answer is; INCONCLUSIVE if one is missing; PASS otherwise."""
        answers = [self._commitment(case)]
        if case.run.is_child:
            answers += [self._keys(case), self._recomputed(case), self._absence(case), self._key_reuse(case.run.plan)]
        verdicts = [answer.verdict for answer in answers]
        worst = next((v for v in (Verdict.FAIL, Verdict.INCONCLUSIVE) if v in verdicts), Verdict.PASS)
        first = next((a.text for a in answers if a.verdict is worst), "")
        shows = first
        if worst is Verdict.PASS and case.run.is_child:
            shows = (
                "The model is what the named method makes of the parent's, with keys that follow from the commitment."
                if case.is_editor
                else "The plan follows from committed keys by the named method, and holds nothing that was to be forgotten."
            )
        assumptions = (
            ["The request did not depend on the draws or on published models (non-adaptive)."]
            if case.run.is_child
            else []
        )
        if case.commitment is None:
            assumptions.append("The commitment is not anchored outside: no --commitment was given to compare with.")
        if isinstance(case.parent, Tombstone):
            assumptions.append(
                "The parent was pruned: kept draws are as recorded then, and the rewrite was not repeated."
            )
        statistic = {"nothing_to_forget": self._never_drawn(case)}
        return Finding(
            "plan",
            Subject.RUN,
            worst,
            shows,
            SHOWS_NOT,
            statistic,
            assumptions=tuple(assumptions),
            details=tuple(f"{a.verdict}: {a.text}" for a in answers),
        )

    def _commitment(self, case: Case) -> Answer:
        """The first event commits to the keys that the run holds, and to the commitment known from outside."""
        run = case.run
        first = run.ledger.events[0]
        if first["event"] != "commitment":
            return Answer(Verdict.FAIL, "The ledger does not begin with a commitment.")
        keys = run.run_keys
        if keys is not None and keys.commitment != first.get("commitment"):
            return Answer(Verdict.FAIL, "The keys of the run are not those it committed to.")
        if case.commitment is not None:
            known = {first.get("commitment")}
            if isinstance(case.parent, Run):
                known.add(case.parent.ledger.events[0].get("commitment"))
            if isinstance(case.parent, Tombstone):
                known.add(commitment(case.parent.draws_digest, case.parent.children_digest))
            if case.commitment not in known:
                return Answer(Verdict.FAIL, "Neither the run nor its parent committed to what --commitment says.")
        return Answer(Verdict.PASS, f"The keys are those of the commitment {first.get('commitment')}.")

    def _keys(self, case: Case) -> Answer:
        """The child's keys follow from the parent's, its digest and the request."""
        run, parent = case.run, case.parent
        assert case.request is not None
        if parent is None or run.run_keys is None:
            return Answer(Verdict.INCONCLUSIVE, "The parent is not at hand: the child's keys cannot be derived.")
        if isinstance(parent, Tombstone):
            if parent.children is None:
                return Answer(Verdict.INCONCLUSIVE, "The key of the parent's children was destroyed.")
            if digest_of_key(bytes.fromhex(parent.children)) != parent.children_digest:
                return Answer(Verdict.FAIL, "The tombstone's key of children does not have its digest.")
            above = RunKeys(bytes(32), bytes.fromhex(parent.children))
        elif parent.run_keys is None:
            return Answer(Verdict.INCONCLUSIVE, "The keys of the parent were destroyed.")
        else:
            above = parent.run_keys
        if above.child(parent.digest, case.request) != run.run_keys:
            return Answer(Verdict.FAIL, "The child's keys do not follow from the parent and the request.")
        return Answer(Verdict.PASS, "The child's keys follow from the parent's key, its digest and the request.")

    def _recomputed(self, case: Case) -> Answer:
        """The installed unlearner makes this plan (or model) of the parent's, with the child's key."""
        run, parent = case.run, case.parent
        assert case.request is not None
        if run.executed != run.plan.law.rounds:
            return Answer(Verdict.FAIL, f"The child was stopped after round {run.executed} of {run.plan.law.rounds}.")
        recorded = run.info["unlearner"]
        entry = registry.find("unlearners", recorded["use"])
        if (entry.distribution, entry.version) != (recorded["distribution"], recorded["version"]):
            return Answer(
                Verdict.INCONCLUSIVE,
                f"The run was made by {recorded['distribution']} {recorded['version']}, installed is {entry.distribution} {entry.version}.",
            )
        if isinstance(parent, Tombstone):
            return Answer(Verdict.PASS, "The rewrite is not repeated: the parent was pruned.")
        if parent is None:
            return Answer(Verdict.INCONCLUSIVE, "The parent is not at hand: the rewrite cannot be repeated.")
        if parent.requests != run.requests[:-1]:
            return Answer(Verdict.FAIL, "The requests of the child do not continue those of the parent.")
        fresh = Keyed(bytes.fromhex(run.keys["draws"][-1]))
        if case.is_editor:
            return self._edit_recomputed(case, parent, fresh)
        executed = Position(parent.executed + 1, 0) if parent.executed < parent.plan.law.rounds else END
        expected = rewritten(case.unlearner, recorded["use"], parent.plan, case.request, fresh, executed)
        same = (
            run.keys["draws"][:-1] == parent.keys["draws"]
            and run.original.samples == parent.original.samples
            and run.config == parent.config
            and segment_rows(expected.cohorts) == segment_rows(run.plan.cohorts)
            and segment_rows(expected.batches) == segment_rows(run.plan.batches)
            and expected.initial == run.plan.initial
        )
        if not same:
            return Answer(Verdict.FAIL, f"The plan is not what {recorded['use']!r} makes of the parent's plan.")
        return Answer(Verdict.PASS, f"The plan is what {recorded['use']!r} makes of the parent's plan.")

    def _edit_recomputed(self, case: Case, parent: Run, fresh: Keyed) -> Answer:
        """The installed editor makes this model of the parent's."""
        name = case.run.info["unlearner"]["use"]
        if case.dataset is None:
            return Answer(Verdict.INCONCLUSIVE, "The data is not at hand: the edit cannot be repeated.")
        stored = {round: parent.checkpoint(round)[0] for round in parent.checkpoints}
        try:
            plan = parent.plan.erase(case.run.request, fresh, END)
            model, _ = edited(case.ready, parent.plan, plan, case.unlearner, name, parent.model, stored)
        except FuauditError as error:
            return Answer(Verdict.INCONCLUSIVE, f"The edit cannot be repeated: {error}")
        if torch.equal(model, case.run.model):
            return Answer(Verdict.PASS, f"The model is what {name!r} makes of the parent's model.")
        if case.same_platform:
            return Answer(Verdict.FAIL, f"The model is not what {name!r} makes of the parent's model.")
        return Answer(Verdict.INCONCLUSIVE, "The edit gives other bits on this platform.")

    def _absence(self, case: Case) -> Answer:
        """No draw of the expanded plan holds what was to be forgotten, in any of the requests so far."""
        plan = case.run.plan
        if case.edited:
            return Answer(Verdict.PASS, "An edited model has no plan of its own; absence is not a question of draws.")
        clients = {c for request in case.run.requests for c in request.clients}
        samples = {s for request in case.run.requests for s in request.samples}
        allowed = plan.retained.samples
        for round in range(1, case.run.executed + 1):
            cohort = plan.cohort(round)
            strangers = [c for c in cohort if c in clients or c not in allowed]
            if strangers:
                return Answer(Verdict.FAIL, f"Round {round} draws client {strangers[0]}, which was to be forgotten.")
            for client, occurrence in occurrences(cohort):
                own = set(allowed[client])
                for step in range(1, plan.law.steps + 1):
                    batch = plan.batch(round, step, client, occurrence)
                    wrong = [s for s in batch if s in samples or s not in own]
                    if wrong:
                        return Answer(
                            Verdict.FAIL,
                            f"Round {round}, step {step} draws sample {wrong[0]} of client {client}, which was to be forgotten.",
                        )
        return Answer(Verdict.PASS, "No draw at any position holds anything that was to be forgotten.")

    def _key_reuse(self, plan: Plan) -> Answer:
        """No key serves two populations under one version, so no random number is used twice."""
        seen: dict[tuple[object, int], int] = {}
        for segment in (*plan.cohorts, *plan.batches, plan.initial):
            source = plan.sources[segment.source]
            name = source if isinstance(source, Keyed) else segment.source
            other = seen.setdefault((name, segment.version), segment.source)
            if other != segment.source:
                return Answer(Verdict.FAIL, "One key appears as two sources: a draw would be used twice.")
        versions: dict[object, set[int]] = {}
        for segment in (*plan.cohorts, *plan.batches):
            source = plan.sources[segment.source]
            if isinstance(source, Keyed):
                versions.setdefault(source, set()).add(segment.version)
        if any(len(found) > 1 for found in versions.values()):
            return Answer(Verdict.FAIL, "A key of an earlier population was used again over a smaller one.")
        return Answer(Verdict.PASS, "Every key was used over one population only.")

    def _never_drawn(self, case: Case) -> str:
        """Whether the parent ever drew what was to be forgotten."""
        if case.request is None:
            return "no request"
        if not isinstance(case.parent, Run):
            return "unknown: the parent is not at hand"
        drawn = case.parent.plan.first_involvement(case.request)
        return "no: it was drawn" if drawn else "yes: it was never drawn, this run contains nothing to forget"
