"""Level 3: draws follow from the commitment, plans are rewrites of their parents' plans, the erased is in no draw.

Every link of the lineage is checked, up to the training run: what an ancestor says of itself is not believed. Where a
prune has destroyed what a rewrite needs, the plan is found again position by position from the seeds that were kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from fuaudit.audits.provenance.asked import asked, compared_in_words, of_the_compared, plainly_of_the_compared
from fuaudit.audits.provenance.budget import budget
from fuaudit.audits.provenance.commitment import anchor, beacon, named, own_commitment, roster, training
from fuaudit.audits.provenance.draws import absence, in_words, key_reuse, never_drawn, remembered
from fuaudit.audits.provenance.heads import head
from fuaudit.audits.provenance.rewrites import changes, doubted, link
from fuaudit.audits.provenance.secrets import noise_used_once, parties_follow, secrets_follow
from fuaudit.audits.provenance.trusted import all_well, assumptions, of_earlier
from fuaudit.audits.provenance.view import of_view
from fuaudit.runs.run import Run
from fuaudit.verification.case import Case
from fuaudit.verification.figure import Figure
from fuaudit.verification.finding import Finding, Subject, Verdict

SHOWS_NOT = "It does not show that the method has the right law; that is for enumeration."


@dataclass(frozen=True)
class Provenance:
    """Asks for the commitment, the training plan, every rewrite, the request, and the draws."""

    evidence: ClassVar[frozenset[str]] = frozenset({"provenance"})
    uses: ClassVar[frozenset[str]] = frozenset(
        {"data", "erased", "parent", "commitment", "request", "receipts", "before", "beacon", "roster", "ledger_head"}
    )
    knows_received: ClassVar[bool] = True
    knows_sealed: ClassVar[bool] = True
    recomputes: ClassVar[str] = "the keys, and the plan or model that the method makes of the parent's"

    def examine(self, case: Case) -> Finding:
        """FAIL if any answer is; INCONCLUSIVE if one is missing, as of every sealed view; PASS otherwise."""
        if case.run.sealed:
            return _of_view(case)
        chain = (case.run, *case.evidence.ancestors)
        answers = [own_commitment(case, run) for run in chain]
        answers += [anchor(case), *([head(case)] if case.known.ledger_head is not None else []), beacon(case)]
        answers += [roster(case), parties_follow(case.run)] if case.run.exchange.signs else []
        # what a reader understands at once goes before what follows from it
        answers += [asked(case), absence(case)] if case.run.is_child else []
        answers += [training(case), named(case), *changes(case), *doubted(case)]
        answers += [answer for run in chain if isinstance(run, Run) for answer in remembered(run)]
        for place, child in enumerate(chain):
            if isinstance(child, Run) and child.is_child:
                answers += link(case, child, chain[place:])
        if case.run.is_child:
            answers += [key_reuse(case.run.plan)]
        answers += [budget(case.run, target)] if (target := case.run.config.budget) is not None else []
        answers += [secrets_follow(case.run, chain)] if case.run.exchange.has_secrets else []
        planned = case.evidence.planned
        if case.run.exchange.draws and isinstance(planned, Run):
            answers.append(noise_used_once(planned, chain[chain.index(planned) :]))
        verdicts = [answer.verdict for answer in answers]
        worst = next((v for v in (Verdict.FAIL, Verdict.INCONCLUSIVE) if v in verdicts), Verdict.PASS)
        told = sorted(answers, key=lambda answer: answer.verdict is not worst)  # what decides comes first
        shows = told[0].text
        if worst is Verdict.PASS and case.run.is_child:
            shows = all_well(case, answers)
        uses = never_drawn(case)
        qualifications = of_the_compared(case), *(use.qualification for use in uses.values())
        plainly = plainly_of_the_compared(case), *(use.plainly for use in uses.values())
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
                    in_words(uses),
                    "every draw that the run before executed was looked at, and what rounds depend on by its config",
                ),
                Figure(
                    "compared",
                    "Requests compared with what was asked for",
                    compared_in_words(case),
                    "requests of the lineage, numbered from its first; --client and --sample say what was asked for",
                ),
                Figure(
                    "links",
                    "Links of the lineage checked",
                    len(chain) - 1,
                    "counted; each step from a run to its child is checked",
                ),
                Figure(
                    "commitment",
                    "Commitment of the lineage",
                    case.run.ledger.events[0]["commitment"],
                    "as the ledger tells it; compared with what the run holds",
                ),
            ),
            assumptions=(
                *assumptions(case),
                *dict.fromkeys(a.trusts for a in answers if a.trusts),
                *of_earlier(case, answers),
                *dict.fromkeys(
                    f"There was something to forget: whether the training used it is {use.answer}."
                    for use in uses.values()
                    if use.is_untold
                ),
            ),
            details=tuple(dict.fromkeys(f"{a.verdict}: {a.text}" for a in told)),
            plainly=_joined(plainly) if worst is Verdict.PASS else "",
            qualification=_joined(qualifications) if worst is Verdict.PASS else "",
        )


def _of_view(case: Case) -> Finding:
    """Of a sealed view."""
    answers = of_view(case)
    worst = Verdict.FAIL if any(one.verdict is Verdict.FAIL for one in answers) else Verdict.INCONCLUSIVE
    told = sorted(answers, key=lambda answer: answer.verdict is not worst)
    details = tuple(dict.fromkeys(f"{a.verdict}: {a.text}" for a in told))
    return Finding("provenance", Subject.RUN, worst, told[0].text, SHOWS_NOT, details=details)


def _joined(sentences: Iterable[str]) -> str:
    """Sentences that are there, each once."""
    return " ".join(dict.fromkeys(filter(None, sentences)))
