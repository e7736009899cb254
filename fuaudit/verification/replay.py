"""Level 2: the model is execute(retained data, plan), from scratch, bit for bit.

One half of exactness. It catches kept rounds that still know the erased data through aggregation weights,
scaling constants, or an aggregator's memory, and models that were made in any other way.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fuaudit.data.dataset import digest_of_client
from fuaudit.runs.products import checkpoint_bytes
from fuaudit.runs.writer import digest_of_vector
from fuaudit.verification.case import Case
from fuaudit.verification.finding import Finding, Subject, Verdict

SHOWS_NOT = "It does not show that the plan has the law that it should have; that is for enumeration."


@dataclass(frozen=True)
class Replay:
    """Executes the run's plan on the retained data, erased rows overwritten by NaN, and compares every stored model."""

    def examine(self, case: Case) -> Finding:
        """PASS on equal bits; FAIL on a difference on the same platform; INCONCLUSIVE elsewhere or without data."""
        run = case.run
        if case.is_editor:
            return Finding(
                "replay",
                Subject.RUN,
                Verdict.NOT_APPLICABLE,
                f"The model was edited by {run.info['unlearner']['use']!r}: no plan makes it to be replayed.",
                SHOWS_NOT,
            )
        if case.dataset is None:
            return Finding(
                "replay",
                Subject.RUN,
                Verdict.INCONCLUSIVE,
                "The retained data is not at hand: nothing was replayed.",
                SHOWS_NOT,
                details=("Give --data ROOT.",),
            )
        wrong_data = changed_clients(case)
        if wrong_data:
            return Finding(
                "replay",
                Subject.RUN,
                Verdict.INCONCLUSIVE,
                f"The data at hand is not the data of the run: the rows of {len(wrong_data)} clients differ.",
                SHOWS_NOT,
                details=(f"clients with other rows: {', '.join(map(str, wrong_data[:10]))}",),
            )
        differences = []
        for round, (vector, state) in sorted(case.replayed.items()):
            stored = run.checkpoint(round)
            if checkpoint_bytes(vector, state) != checkpoint_bytes(*stored):
                differences.append((round, _largest(vector, stored[0])))
        unlogged = self._ledger_differences(case)
        if not differences and not unlogged and set(case.replayed) == set(run.checkpoints):
            return Finding(
                "replay",
                Subject.RUN,
                Verdict.PASS,
                f"All {len(case.replayed)} stored models are what the plan makes of the retained data, bit for bit.",
                SHOWS_NOT,
                {"models": len(case.replayed), "rounds": run.executed},
            )
        details = [f"after round {r} the stored model differs by up to {gap:.3g}" for r, gap in differences]
        details += [f"the ledger names another model for round {round}" for round in unlogged]
        details += [f"rounds stored: {sorted(run.checkpoints)}; rounds expected: {sorted(case.replayed)}"]
        verdict = Verdict.FAIL if case.same_platform else Verdict.INCONCLUSIVE
        reason = (
            "Stored models are not what the plan makes of the retained data."
            if verdict is Verdict.FAIL
            else "Replay gives other bits, but this platform differs from the run's: a tolerance could hide a sample."
        )
        first = differences[0] if differences else (unlogged[0] if unlogged else 0, float("nan"))
        return Finding(
            "replay",
            Subject.RUN,
            verdict,
            reason,
            SHOWS_NOT,
            {"first_difference": first[0], "differences": len(differences)},
            details=tuple(details),
        )

    def _ledger_differences(self, case: Case) -> list[int]:
        logged = {event["round"]: event["model"] for event in case.run.ledger.of_kind("round")}
        return [
            round
            for round, (vector, _) in sorted(case.replayed.items())
            if round in logged and logged[round] != digest_of_vector(vector)
        ]


def _largest(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).abs().max()) if a.shape == b.shape else float("nan")


def changed_clients(case: Case) -> list[int]:
    """Clients whose retained rows at hand have another digest than the run recorded."""
    assert case.dataset is not None
    samples = case.run.plan.retained.samples
    recorded = case.run.client_digests
    return [c for c in samples if digest_of_client(case.dataset, samples[c]) != recorded.get(c)]
