"""What a sealed view tells of its provenance: who was committed to, and how its plan goes on from its parent's.

It holds no seed, so whether draws follow from the commitment is not known. A view can be refuted, and never passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from fuaudit.audits.provenance.answers import CheckResult, fails, holds, name_of, unclear
from fuaudit.audits.provenance.commitment import anchor, beacon, own_commitment, roster
from fuaudit.audits.provenance.heads import head
from fuaudit.audits.provenance.rewrites import doubted, form
from fuaudit.commitments.keys import next_context
from fuaudit.plans import Population
from fuaudit.plans.stage_draws import not_drawn_anew
from fuaudit.runs.layout import CONFIG
from fuaudit.runs.run import Run
from fuaudit.runs.tombstone import Tombstone
from fuaudit.verification.case import Case

NO_SEEDS = (
    "What was drawn is not known: a sealed view holds no seeds, no partition and no secrets of clients. The operator "
    "has them, and may give an auditor the whole run."
)


def of_view(case: Case) -> list[CheckResult]:
    """Every question that can be asked of a sealed view, and that the rest cannot."""
    chain = (case.run, *case.evidence.ancestors)
    answers = [own_commitment(case, run) for run in chain]
    answers += [anchor(case), *([head(case)] if case.known.ledger_head is not None else []), beacon(case)]
    answers += [roster(case)] if case.run.exchange.signs else []
    answers += [_draws(run) for run in chain if isinstance(run, Run)]
    answers += [form(run) for run in chain if isinstance(run, Run) and run.is_child]
    answers += doubted(case)
    return [*answers, *_links(chain), unclear(NO_SEEDS)]


def other_contexts(child: Run, parent: Run) -> bool:
    """Whether a child tells other contexts than its parent, or another one of its own than its request makes there.

    Of a request that names samples only whoever has the partition can make it.
    """
    told, before = child.contexts, parent.contexts
    if told[:-1] != before:
        return True
    known = not (parent.sealed and child.request.samples)
    original = Population({}) if parent.sealed else parent.original
    return known and told[-1] != next_context(before[-1], child.request, original)


def _draws(run: Run) -> CheckResult:
    """Whether what a run executed anew is drawn with the keys of its last request, over who was left by then."""
    if run.segments.mixes_generations:
        return fails(f"The plan of {name_of(run)} uses draws of one request over the population of another.")
    # what is kept behind the last model that was stored is executed again as it was, and is none of its own
    if old := not_drawn_anew(run.segments, run.own_rounds, len(run.requests)):
        return fails(f"Round {old[0]} of {name_of(run)} is drawn with other keys than those of its last request.")
    return holds(f"What {name_of(run)} executed from its first change on is drawn with the keys of its last request.")


def _links(chain: Sequence[Run | Tombstone]) -> Iterator[CheckResult]:
    """Whether each run of a lineage at hand goes on from its parent as it says."""
    for child, parent in pairwise(chain):
        if isinstance(child, Run):
            yield _link(child, parent)


def _link(child: Run, parent: Run | Tombstone) -> CheckResult:
    if parent.files[CONFIG] != child.files[CONFIG]:
        return fails(f"{name_of(child)} has another config than its parent.")
    if isinstance(parent, Tombstone):
        return unclear(f"The plan of {name_of(parent)} was removed by a prune.")
    if parent.requests != child.requests[:-1]:
        return fails(f"The requests of {name_of(child)} do not continue those of its parent.")
    if other_contexts(child, parent):
        return fails(f"What draws of {name_of(child)} depend on does not go on from its parent's.")
    if child.info["first_change"] != list(child.segments.first_change(parent.segments)):
        return fails(f"The plan of {name_of(child)} goes on from its parent's elsewhere than it says.")
    return holds(f"The plan of {name_of(child)} keeps its parent's segments up to the first change that it names.")
